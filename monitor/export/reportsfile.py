"""The reports file behind a store."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence

from monitor.errors import SinkError
from monitor.export.destination import Followed, Mark, ReportsAfter, Row
from monitor.export.linefile import cannot_write

log = logging.getLogger("blindsight")

MARK = "reports"
"""Under which the store keeps how far the file was written."""

_AT_ONCE = 500


class ReportsFile(Followed):
    """Appends the store's reports to a file, a line each.

    Its mark is the file's size after the last report: what stands behind it after a crash is compared with
    the reports that should stand there.

    Parameters
    ----------
    path : str
    """

    name = "reports_file"
    setting = "reports.path"

    def __init__(self, path: str) -> None:
        self.where = self._path = path
        self._file = -1
        self._broken = False
        self._last = self._place = 0
        self._marks: Mapping[str, Mark] = {}

    @property
    def marks(self) -> Mapping[str, Mark]:
        """The last report in the file, and the file's size after it; empty before it is known."""
        return self._marks

    def open(self) -> None:
        """Open the file, or raise `SinkError` with why it cannot be written."""
        try:
            self._open()
        except OSError as error:
            raise SinkError(f"{self.setting}: {cannot_write(self._path, error)}") from error

    def last_of(self, saved: Mapping[str, Mark]) -> int:
        """The last report that had arrived when these marks were saved."""
        return saved.get(MARK, (0, 0))[0]

    def resume(self, saved: Mapping[str, Mark], reports_after: ReportsAfter) -> int:
        """Go on behind what of the reports is in the file already; the last of those."""
        try:
            if MARK in saved:
                self._last, self._place = saved[MARK]
                self._reconcile(reports_after)
            else:
                self._place = os.fstat(self._file).st_size
        except OSError as error:
            raise SinkError(cannot_write(self._path, error)) from error
        self._note()
        return self._last

    def deliver(self, items: Sequence[Row]) -> int:
        """Append all of them or, cut off again, none."""
        try:
            self._follow_rotation()
            self._append(b"".join(line + b"\n" for _, line in items))
        except OSError as error:
            raise SinkError(cannot_write(self._path, error)) from error
        self._last = items[-1][0]
        self._note()
        return len(items)

    def close(self, timeout_seconds: float) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _note(self) -> None:
        self._marks = {MARK: (self._last, self._place)}

    def _append(self, data: bytes) -> None:
        if self._broken:
            self._cut()
        done = 0
        try:
            while done < len(data):
                done += os.write(self._file, data[done:])
        except OSError:
            self._broken = done > 0
            if self._broken:
                self._cut()
            raise
        self._place += len(data)

    def _cut(self) -> None:
        """Take away what a failed write left; where that fails too, it is tried before the next one."""
        os.ftruncate(self._file, self._place)
        self._broken = False

    def _open(self) -> None:
        self._file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)

    def _follow_rotation(self) -> None:
        """A file that was renamed or removed is begun anew under its name."""
        if self._file < 0:  # it could not be opened under its name the last time
            self._open()
            self._place = os.fstat(self._file).st_size
        held = os.fstat(self._file)
        try:
            named = os.stat(self._path)
        except FileNotFoundError:
            named = None
        if named is None or (named.st_dev, named.st_ino) != (held.st_dev, held.st_ino):
            os.close(self._file)
            self._file = -1
            self._broken = False
            self._open()
            self._place = os.fstat(self._file).st_size

    def _reconcile(self, reports_after: ReportsAfter) -> None:
        """After a crash: go on behind what of the reports is in the file already.

        The file may hold windows that were saved, and written, after the last note of how far it came; the
        last of them perhaps in part. It was rotated where it is shorter than noted.
        """
        size = os.fstat(self._file).st_size
        self._place = min(self._place, size)
        tail = os.pread(self._file, size - self._place, self._place)
        for report, line in reports_after(self._last, max(_AT_ONCE, tail.count(b"\n") + 1)):
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
