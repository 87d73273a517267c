"""Runs the agent on a file that grows like a log, so that users can watch the agent while it reads."""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from rich.console import Console

from monitor.agent.agent import Agent
from monitor.base.errors import ConfigError, SinkError
from monitor.cli.daemon import Daemon
from monitor.config.file import load_config
from monitor.config.root import Config, FileSourceConfig, listen_address
from monitor.export.sinks.line_file import cannot_write
from monitor.reports.window_report import WindowReport

WHOLE = ".whole"
"""The suffix of the full stream while its own name holds the growing copy."""

_FRAME_SECONDS = 0.25
_STEPS_A_SECOND = 20


class Pour:
    """A thread that copies a file into another at a steady rate.

    Parameters
    ----------
    source, target : Path
        `start` empties the target.
    seconds : float
        Duration of the copy; 0 copies the file at once.
    """

    def __init__(self, source: Path, target: Path, seconds: float) -> None:
        self._source = source
        self._target = target
        self._seconds = seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pour", daemon=True)
        self.error: OSError | None = None

    def start(self) -> None:
        """Create or empty the target, and start the thread."""
        self._target.write_bytes(b"")
        self._thread.start()

    @property
    def done(self) -> bool:
        """True if the copy has ended."""
        return not self._thread.is_alive()

    def stop(self) -> None:
        """Stop the copy, even before its end."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        size = self._source.stat().st_size
        began = time.monotonic()
        copied = 0
        try:
            with self._source.open("rb") as source, self._target.open("ab", buffering=0) as target:
                while copied < size and not self._stop.is_set():
                    share = 1.0 if self._seconds <= 0 else (time.monotonic() - began) / self._seconds
                    due = int(min(share, 1.0) * size) - copied
                    copied += target.write(source.read(due)) if due > 0 else 0
                    if copied < size:
                        self._stop.wait(1 / _STEPS_A_SECOND)
        except OSError as error:
            self.error = error


@contextmanager
def followed(
    config: Path,
    stream: Path,
    listen: str,
    seconds: float,
    watch: Callable[[Sequence[WindowReport]], None],
) -> Iterator[tuple[Agent, Pour, str]]:
    """Run an agent that follows the growing stream.

    Yield the agent, the thread that makes the stream grow, and the address of the page.
    """
    settings = following(load_config(config), stream, listen)
    with poured(stream, seconds) as pour:
        daemon = Daemon(settings, watch=watch, in_flow=True)
        with daemon.running() as agent:
            yield agent, pour, f"http://127.0.0.1:{daemon.server.port}/"


def serve_on(console: Console, address: str) -> None:
    """Wait for Ctrl-C, so that the user can look at the page."""
    with suppress(KeyboardInterrupt):
        console.print(f"The page is still there: {address} (Ctrl-C ends the demo)", highlight=False)
        while True:  # a signal just before an endless wait would not end it
            time.sleep(_FRAME_SECONDS)


@contextmanager
def poured(stream: Path, seconds: float) -> Iterator[Pour]:
    """Let the stream grow under its final name, so that reported positions are valid for the full stream."""
    whole = stream.with_name(f"{stream.name}{WHOLE}")
    try:
        stream.replace(whole)
        pour = Pour(whole, stream, seconds)
        try:
            pour.start()
            yield pour
        finally:
            pour.stop()
            whole.replace(stream)  # restores the full stream even if the demo was interrupted
    except OSError as error:
        raise SinkError(cannot_write(str(stream), error)) from error


def following(config: Config, live: Path, listen: str) -> Config:
    """Return the demo's configuration with the growing file as its source."""
    source = FileSourceConfig(kind="file", path=str(live), follow=True)
    export = config.export.model_copy(update={"listen": listen})
    return config.model_copy(update={"sources": (source,), "export": export})


def free_address(listen: str) -> str:
    """Return the address, or the same host with port 0 if the port is in use.

    Raises
    ------
    ConfigError
        The text is not an address, or this machine cannot listen on it.
    """
    try:
        host, port = listen_address(listen)
    except ValueError as error:
        raise ConfigError(f"--listen: {error}") from error
    with closing(socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return f"{listen.rpartition(':')[0]}:0"
            raise ConfigError(
                f"--listen: cannot listen on {listen!r}: {error.strerror}; give another address, "
                "such as '127.0.0.1:9109'"
            ) from error
    return listen
