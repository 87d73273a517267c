"""A file that grows like a log, so that users can watch the agent while it reads the file."""

from __future__ import annotations

import threading
import time
from pathlib import Path

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
