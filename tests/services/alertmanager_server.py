"""A real Alertmanager (Debian's package `prometheus-alertmanager`) with the configuration of a test."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import urllib.request
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.services.process import PATIENCE_SECONDS, ServiceUnavailable, free_ports, started, stop

EXAMPLE = Path(__file__).parents[2] / "deploy" / "alertmanager" / "alertmanager.yml"


def example(webhook: str) -> str:
    """Return the shipped example, but for its waits, which are of seconds, and the address of its
    receivers.
    """
    text = EXAMPLE.read_text(encoding="utf-8")
    changes = {
        "group_wait: 30s": "group_wait: 1s",
        "group_interval: 5m": "group_interval: 2s",
        "http://127.0.0.1:9095": webhook,
    }
    for old, new in changes.items():
        assert old in text, f"the example no longer has {old}"
        text = text.replace(old, new)
    return text


class AlertmanagerServer:
    """One Alertmanager. A context manager: it answers inside, and is gone with its data outside.

    Parameters
    ----------
    config : str
        Its configuration, YAML.
    web : str
        What guards it: the content of `--web.config.file`, YAML.
    reached : OpenerDirector, optional
        How it is asked where it is guarded; over TLS where it is given.
    """

    def __init__(
        self, config: str, web: str = "", reached: urllib.request.OpenerDirector | None = None
    ) -> None:
        # Debian gives it a name of its own, upstream's packages do not.
        program = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
        if program is None:
            raise ServiceUnavailable("`prometheus-alertmanager` is missing: run .ci/install-services.sh")
        self.program = program
        self._config, self._web = config, web
        self._scheme = "http" if reached is None else "https"
        self._reached = reached or urllib.request.build_opener()
        self.port = free_ports(1)[0]
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: Path | None = None

    @property
    def address(self) -> str:
        """``host:port``."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """``http://host:port``, or ``https``."""
        return f"{self._scheme}://{self.address}"

    def __enter__(self) -> AlertmanagerServer:
        self._folder = Path(tempfile.mkdtemp(prefix="blindsight-alertmanager-"))
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stop(self._process)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def start(self) -> None:
        """Start it, or start it again on the same port and data, and wait until it answers."""
        assert self._folder is not None
        (self._folder / "alertmanager.yml").write_text(self._config, encoding="utf-8")
        (self._folder / "web.yml").write_text(self._web, encoding="utf-8")
        log = self._folder / "alertmanager.log"
        words = [
            self.program,
            f"--config.file={self._folder / 'alertmanager.yml'}",
            f"--web.config.file={self._folder / 'web.yml'}",
            f"--storage.path={self._folder / 'data'}",
            f"--web.listen-address={self.address}",
            "--cluster.listen-address=",
        ]
        self._process = started("Alertmanager", words, log, self._ready)

    def kill(self) -> None:
        """Send SIGKILL, like a crash; `start` brings it back with its saved state."""
        stop(self._process, kill=True)

    def alerts(self, **labels: str) -> list[dict[str, Any]]:
        """Return alerts that have not ended, with these labels; those that are muted, too."""
        alerts: list[dict[str, Any]] = self._call("/api/v2/alerts")
        return [alert for alert in alerts if labels.items() <= alert["labels"].items()]

    def silence(self, **labels: str) -> str:
        """Mute alerts with these labels for an hour; the silence's id."""
        now = datetime.now(UTC)
        matchers = [
            {"name": name, "value": value, "isRegex": False, "isEqual": True}
            for name, value in labels.items()
        ]
        silence = {
            "matchers": matchers,
            "startsAt": now.isoformat(),
            "endsAt": (now + timedelta(hours=1)).isoformat(),
            "createdBy": "a test",
            "comment": "known",
        }
        return str(self._call("/api/v2/silences", silence)["silenceID"])

    def _call(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, data=data, headers=headers)
        with self._reached.open(request, timeout=PATIENCE_SECONDS) as answer:
            return json.load(answer)

    def _ready(self) -> bool:
        try:
            with self._reached.open(self.url + "/-/ready", timeout=1) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False
