"""The reports file behind a store: every closed window once, whatever was killed when.

The store has the windows; this thread copies what is new there to the file. How far it came is saved with
the next checkpoint, and after a crash the file is compared with what should stand in it from there on.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

from monitor.errors import SinkError, StoreError
from monitor.export.reports import cannot_write

log = logging.getLogger("blindsight")

ReportsAfter = Callable[[int, int], list[tuple[int, bytes]]]
"""Reports with a larger id than the first argument, at most the second, as (id, line)."""

_AT_ONCE = 500
_RETRY_SECONDS = 1.0


class ReportFollower:
    """Appends the store's reports to a file.

    Parameters
    ----------
    path : Path
    reports_after : callable
        Reads the store; called from this thread alone, once started.
    noted : (int, int) or None
        The last report that is known to be in the file, and the file's size after it; None where the
        store has never written to it.
    """

    def __init__(self, path: Path, reports_after: ReportsAfter, noted: tuple[int, int] | None) -> None:
        self._path = path
        self._reports_after = reports_after
        self._noted = noted
        self._last, self._place = noted or (0, 0)
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._failing = False
        self._file = -1
        self._thread = threading.Thread(target=self._run, name="reports", daemon=True)

    @property
    def written(self) -> tuple[int, int]:
        """The last report in the file, and the file's size after it."""
        return self._last, self._place

    def start(self) -> None:
        """Open the file, bring it in line with the store, and begin.

        Raises
        ------
        SinkError
            The file cannot be written.
        """
        try:
            self._open()
            if self._noted is None:
                self._place = os.fstat(self._file).st_size
            else:
                self._reconcile()
        except OSError as error:
            raise SinkError(f"reports.path: {cannot_write(str(self._path), error)}") from error
        self._thread.start()

    def wake(self) -> None:
        """There may be new reports."""
        self._wake.set()

    def close(self, timeout: float) -> None:
        """Write what is there and close the file."""
        self._stop.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(timeout)
        if self._file >= 0 and not self._thread.is_alive():
            os.close(self._file)
            self._file = -1

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            stopping = self._stop.is_set()
            while not self._copy() and not self._stop.wait(_RETRY_SECONDS):
                pass
            if stopping:
                return

    def _copy(self) -> bool:
        """Append everything new; whether that went well."""
        try:
            while rows := self._reports_after(self._last, _AT_ONCE):
                self._follow_rotation()
                self._append(b"".join(line + b"\n" for _, line in rows))
                self._last = rows[-1][0]
        except (OSError, StoreError) as error:
            if not self._failing:
                why = str(error) if isinstance(error, StoreError) else cannot_write(str(self._path), error)
                log.error("reports.path: %s. It is tried again.", why)
            self._failing = True
            return False
        self._failing = False
        return True

    def _append(self, data: bytes) -> None:
        """All of it or, cut off again, nothing."""
        done = 0
        try:
            while done < len(data):
                done += os.write(self._file, data[done:])
        except OSError:
            os.ftruncate(self._file, self._place)
            raise
        self._place += len(data)

    def _open(self) -> None:
        self._file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)

    def _follow_rotation(self) -> None:
        """A file that was renamed or removed is begun anew under its name."""
        held = os.fstat(self._file)
        try:
            named = os.stat(self._path)
        except FileNotFoundError:
            named = None
        if named is None or (named.st_dev, named.st_ino) != (held.st_dev, held.st_ino):
            os.close(self._file)
            self._open()
            self._place = os.fstat(self._file).st_size

    def _reconcile(self) -> None:
        """After a crash: go on behind what of the reports is in the file already.

        The file may hold windows that were saved, and written, after the last note of how far it came; the
        last of them perhaps in part. It was rotated where it is shorter than noted.
        """
        size = os.fstat(self._file).st_size
        self._place = min(self._place, size)
        tail = os.pread(self._file, size - self._place, self._place)
        for report, line in self._reports_after(self._last, max(_AT_ONCE, tail.count(b"\n") + 1)):
            whole = line + b"\n"
            if not tail.startswith(whole):
                if whole.startswith(tail):  # written in part: it is written again, whole
                    os.ftruncate(self._file, self._place)
                    return
                break
            tail = tail[len(whole) :]
            self._last, self._place = report, self._place + len(whole)
        if tail:
            log.warning("reports.path: something else was written to %s; it stays.", self._path)
            if not tail.endswith(b"\n"):
                os.write(self._file, b"\n")
            self._place = os.fstat(self._file).st_size
