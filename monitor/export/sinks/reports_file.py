"""The reports file. Its lines come from the store, or from a queue in replays and agents without a store."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Mapping, Sequence

from monitor.base.errors import SinkError
from monitor.export.sinks.arrived import arrived
from monitor.export.sinks.destination import FollowedDestination, Mark, ReportsAfter, Row
from monitor.export.sinks.line_file import LineFile, cannot_write, files_of, is_pipe
from monitor.export.sinks.queued import QueuedSink

QUEUED_REPORTS = 10_000
"""The number of windows, about 1 kB each, that may wait for a sink without a store."""


class ReportWriter(QueuedSink[bytes]):
    """A sink that appends lines of `monitor.reports.window_report.to_json` to the reports file.

    If more than `capacity` windows wait, the oldest are dropped and counted as lost.

    Parameters
    ----------
    path : str
    capacity : int
        The largest number of waiting windows, about 1 kB each.
    max_bytes, keep
        See `LineFile`.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "windows.ndjson")
    ...     writer = ReportWriter(str(path))
    ...     writer.start()
    ...     taken = writer.write(b'{"window":0}')
    ...     (taken, writer.close(timeout=5), path.read_bytes(), writer.lost)
    (True, True, b'{"window":0}\\n', 0)
    """

    def __init__(
        self, path: str, capacity: int = QUEUED_REPORTS, max_bytes: int | None = None, keep: int = 1
    ) -> None:
        file = LineFile[bytes](
            path,
            name="reports_file",
            setting="reports.path",
            encode=as_line,
            max_bytes=max_bytes,
            keep=keep,
        )
        super().__init__(file, capacity, drop_oldest=True)


def as_line(text: bytes) -> bytes:
    """Return the text with exactly one newline at its end."""
    return text if text.endswith(b"\n") else text + b"\n"


def why_not_writable(path: str) -> str | None:
    """Return a sentence that says why the agent cannot append to a file, or None if it can.

    The file need not exist. The check does not open or create a file, so it can run while an agent runs. It
    does not detect a full disk.

    Examples
    --------
    >>> why_not_writable("nowhere/windows.ndjson")
    "cannot write 'nowhere/windows.ndjson': there is no folder 'nowhere'; make it or give another path"
    """
    folder = os.path.dirname(path) or "."
    if os.path.isdir(path):
        code = errno.EISDIR
    elif os.path.exists(path):
        code = 0 if os.access(path, os.R_OK | os.W_OK) else errno.EACCES
    elif not os.path.isdir(folder):
        code = errno.ENOTDIR if os.path.exists(folder) else errno.ENOENT
    else:
        code = 0 if os.access(folder, os.W_OK | os.X_OK) else errno.EACCES
    return cannot_write(path, OSError(code, os.strerror(code))) if code else None


log = logging.getLogger("blindsight")

MARK = "reports"
"""The key under which the store keeps the file's mark."""


class ReportsFile(LineFile[Row], FollowedDestination):
    """A destination that appends the store's reports to a file, one on each line, with optional rotation.

    Checkpoints save the id of the last report in the file, and the size of the file after this report. After
    a crash, the content after this size, including newer files, is compared with the reports that should
    follow. A named pipe receives lines while a program reads it. After a crash, it receives the lines since
    the last checkpoint again.

    Parameters
    ----------
    path, max_bytes, keep
        See `LineFile`. After a crash, renamed files are searched too, even if another program renamed them.
    """

    def __init__(self, path: str, max_bytes: int | None = None, keep: int = 1) -> None:
        super().__init__(
            path,
            name="reports_file",
            setting="reports.path",
            encode=lambda row: row[1] + b"\n",
            max_bytes=max_bytes,
            keep=keep,
        )
        self._last = 0
        self._marks: Mapping[str, Mark] = {}

    @property
    def marks(self) -> Mapping[str, Mark]:
        """The id of the last report in the file, and the file's size after this report; empty until known."""
        return self._marks

    def last_of(self, saved: Mapping[str, Mark]) -> int:
        """Return the id of the last report that was delivered when `marks` were saved."""
        return saved.get(MARK, (0, 0))[0]

    def resume(self, saved: Mapping[str, Mark], reports_after: ReportsAfter) -> int:
        """Continue after the reports that are already in the file, and return the id of the last of them."""
        if is_pipe(self._path):  # it is unknown what its reader has read
            self._last = self.last_of(saved)
        else:
            try:
                self._follow_rotation()
                # A kill may have followed the first written windows, before the first mark was saved.
                unmarked = (0, os.fstat(self._file).st_size)
                self._reconcile(saved.get(MARK, unmarked), reports_after)
            except OSError as error:
                raise SinkError(cannot_write(self._path, error)) from error
        self._note()
        return self._last

    def deliver(self, items: Sequence[Row]) -> int:
        """Append as many lines as fit in the file and on the disk, and return their number."""
        done = super().deliver(items)
        self._last = items[done - 1][0]
        self._note()
        return done

    def _note(self) -> None:
        self._marks = {MARK: (self._last, self.end)}

    def _reconcile(self, mark: Mark, reports_after: ReportsAfter) -> None:
        """Continue after a crash, after the reports that are already in the files."""
        result = arrived(files_of(self._path, self._keep), mark, reports_after)
        self._last, self.end = result.last, result.place
        if result.torn:  # the partial line is written again in full
            os.ftruncate(self._file, self.end)
        if result.foreign:
            log.warning("reports.path: something else was written to %s; it stays.", self._path)
            self._end_line()
