"""Lets a finished stream grow as a log would, so that the agent can be watched while it follows it."""

from __future__ import annotations

import threading
import time
from pathlib import Path

_STEPS_A_SECOND = 20


class Pour:
    """Copies a file into another, evenly over some seconds, in a thread of its own.

    Parameters
    ----------
    source, target : Path
        The target is begun anew.
    seconds : float
        0 copies it at once.
    """

    def __init__(self, source: Path, target: Path, seconds: float) -> None:
        self._source = source
        self._target = target
        self._seconds = seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pour", daemon=True)
        self.error: OSError | None = None

    def start(self) -> None:
        """Begin; the target is there when this returns."""
        self._target.write_bytes(b"")
        self._thread.start()

    @property
    def done(self) -> bool:
        """Whether nothing more will come."""
        return not self._thread.is_alive()

    def stop(self) -> None:
        """End early."""
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
