"""Certificates that the openssl command makes for a run: an authority, and what it signs for 127.0.0.1."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.services.process import PATIENCE_SECONDS

OPENSSL = shutil.which("openssl")


class Authority:
    """An authority that signs certificates; its own is `cert`.

    Parameters
    ----------
    folder : Path
        Made; holds all that it signs, where nothing else is said.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.cert, self._key = folder / "ca.pem", folder / "ca.key"
        self._run(
            "req",
            "-x509",
            "-days",
            "2",
            "-subj",
            "/CN=test authority",
            "-addext",
            "keyUsage=critical,keyCertSign,cRLSign",
            "-out",
            self.cert,
            *self._new(self._key),
        )

    def sign(self, name: str, folder: Path | None = None) -> tuple[Path, Path]:
        """Return a certificate for 127.0.0.1, and its key."""
        folder = folder or self.folder
        cert, key, request, more = (folder / f"{name}.{kind}" for kind in ("pem", "key", "csr", "ext"))
        # From Python 3.13 on, a certificate has to say by which key it is signed.
        more.write_text("subjectAltName=IP:127.0.0.1\nauthorityKeyIdentifier=keyid\n")
        self._run("req", "-subj", f"/CN={name}", "-out", request, *self._new(key))
        signer = ("-CA", self.cert, "-CAkey", self._key, "-CAcreateserial")
        self._run("x509", "-req", "-days", "2", "-in", request, "-out", cert, "-extfile", more, *signer)
        return cert, key

    @staticmethod
    def _new(key: Path) -> tuple[str | Path, ...]:
        return "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key

    @staticmethod
    def _run(*arguments: str | Path) -> None:
        assert OPENSSL is not None
        subprocess.run(
            [OPENSSL, *map(str, arguments)], check=True, capture_output=True, timeout=PATIENCE_SECONDS
        )
