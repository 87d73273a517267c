"""Closed windows as lines of a file, by way of a queue: what a daemon without a store has, and a replay."""

from __future__ import annotations

import errno
import os

from monitor.export.sinks.line_file import LineFile, cannot_write
from monitor.export.sinks.queued import QueuedSink

__all__ = ["ReportWriter", "cannot_write", "why_not_writable"]

QUEUED_REPORTS = 10_000
"""Windows that may wait for a sink that has no store behind it, about 1 kB each."""


class ReportWriter(QueuedSink[bytes]):
    """Appends closed windows to the reports file, as `monitor.reports.window_report.to_json` writes them.

    Past its capacity the oldest windows that wait are dropped, and counted.

    Parameters
    ----------
    path : str
    capacity : int
        Windows that may wait, about 1 kB each.
    max_bytes, keep
        As of a `LineFile`.

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
    """With a newline at its end, and only one."""
    return text if text.endswith(b"\n") else text + b"\n"


def why_not_writable(path: str) -> str | None:
    """As `cannot_write`, of a file that need not be there yet; None where it can be appended to.

    Nothing is opened or made, so it may be asked beside a running agent. A full disk is not seen.

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
