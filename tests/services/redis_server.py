"""A real Redis (Debian's package `redis-server`), its data in a temporary folder."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from redis import Redis
from redis.exceptions import AuthenticationError, RedisError

from tests.services.process import ServiceUnavailable, answers, free_ports, started, stop


class RedisServer:
    """One Redis that keeps every write. A context manager: it answers inside, and is gone outside.

    Parameters
    ----------
    *words : str
        Further settings, in pairs: ``"--requirepass", "secret"``.
    tls : bool
        Whether it listens for TLS too, on `tls_port`.
    """

    def __init__(self, *words: str, tls: bool = False) -> None:
        program = shutil.which("redis-server")
        if program is None:
            raise ServiceUnavailable("`redis-server` is missing: run .ci/install-services.sh")
        self.port, self.tls_port = free_ports(2)
        self._words = [program, "--bind", "127.0.0.1", "--save", "", "--appendonly", "yes", *words]
        self._words += ["--port", str(self.port), *(("--tls-port", str(self.tls_port)) if tls else ())]
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = Path(tempfile.mkdtemp(prefix="blindsight-redis-"))

    @property
    def url(self) -> str:
        """``redis://host:port``."""
        return f"redis://127.0.0.1:{self.port}"

    def __enter__(self) -> RedisServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Start it with the data that it has."""
        log = self._folder / "redis.log"
        self._process = started("Redis", self._words, log, self._ready)

    def kill(self) -> None:
        """End it with SIGKILL: what it has answered is kept."""
        stop(self._process, kill=True)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Hold its process still inside the block: connections stay open and nothing answers."""
        assert self._process is not None, "the server has not been started"
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Stop it, and remove its data."""
        stop(self._process)
        shutil.rmtree(self._folder, ignore_errors=True)

    def client(self) -> Redis:
        """Return a client for the test's own use."""
        return Redis(port=self.port, protocol=2)

    def _ready(self) -> bool:
        if not answers(self.port):
            return False
        with self.client() as client:
            try:
                client.ping()
            except AuthenticationError:
                return True
            except RedisError:  # it still reads its data
                return False
        return True
