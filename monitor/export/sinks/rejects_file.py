"""Rejected records, written to a file with the reason, so that their sender can be informed.

Lines can be removed from the file and its predecessor by id, and old lines are removed automatically. One
thread or process may append lines while another removes lines. Both lock the file, so that no line is lost
between reading and renaming.
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from monitor.base.errors import SinkError
from monitor.base.records import Reject
from monitor.export.sinks.line_file import LineFile, cannot_write, is_in_place
from monitor.export.sinks.queued import QueuedSink
from monitor.reports.window_report import rfc3339

_encode = msgspec.json.Encoder().encode

Rejected = tuple[Reject, str]
"""A rejected record and the name of its source."""

QUEUED_REJECTS = 5_000
"""The number of rejected records, at most 2 kB each, that may wait for a sink."""


class RejectWriter(QueuedSink[Rejected]):
    """A sink that appends rejected records to a file of bounded size, as one JSON object on each line.

    A line has the keys `reason`, `message`, `source`, `partition`, `position` and `raw`. `raw` is the part of
    the record that the decoder kept. Bytes that are not UTF-8 are written as ``\\xff``. If very many records
    are rejected, a line may represent several records, and its key `records` is their number. A separate
    thread makes the lines, so that rejects hardly slow the caller. Records beyond the capacity are dropped
    and counted in `lost`. The counts of rejected records in the metrics include them.

    Parameters
    ----------
    path : str
    max_bytes : int
        Size limit of the file. A file that would exceed it is renamed to `<path>.1`, and a new one begins.
        There are at most these two files.
    capacity : int
        The largest number of waiting records, at most 2 kB each. Further records are dropped and counted.
    clock : callable, optional
        Seconds since the epoch. With a clock, each line begins with the `time` at which it was written.
        Without a clock, as in a replay, lines have no time, and `RejectsRetention` does not know their age.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from monitor.base.records import RejectReason
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "rejects.ndjson")
    ...     writer = RejectWriter(str(path), max_bytes=1_000_000)
    ...     writer.start()
    ...     taken = writer.write((Reject(RejectReason.ENCODING, "no UTF-8", b"\\xff", "t-3", 7), "kafka"))
    ...     drained = writer.close(timeout=5)
    ...     print(path.read_text(), end="")
    {"reason":"encoding","message":"no UTF-8","source":"kafka","partition":"t-3","position":7,"raw":"\\\\xff"}
    """

    def __init__(
        self,
        path: str,
        max_bytes: int,
        capacity: int = QUEUED_REJECTS,
        clock: Callable[[], float] | None = None,
    ) -> None:
        # Not readable by everyone, because rejected records may hold private data.
        file = LineFile[Rejected](
            path,
            name="rejects_file",
            setting="rejects.path",
            encode=reject_line if clock is None else lambda item: reject_line(item, clock()),
            max_bytes=max_bytes,
            mode=0o640,
            locks=True,
        )
        super().__init__(file, capacity)


def reject_line(item: Rejected, written_time: float | None = None) -> bytes:
    """Return the JSON line of a rejected record, with its newline: see `RejectWriter`."""
    reject, source = item
    line: dict[str, Any] = {} if written_time is None else {"time": rfc3339(written_time)}
    line |= {
        "reason": reject.reason.value,
        "message": _utf8(reject.message),
        "source": _utf8(source),
        "partition": _utf8(reject.partition),
        "position": reject.position,
        "raw": reject.raw.decode("utf-8", errors="backslashreplace"),
    }
    if reject.records > 1:
        line["records"] = reject.records
    return _encode(line) + b"\n"


def _utf8(text: str) -> str:
    """Escape lone surrogates, with which Python represents bytes of file names that are not UTF-8."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


log = logging.getLogger("blindsight")


class _Line(msgspec.Struct):
    """The fields that are read from a line. Both are empty for a line of another program."""

    raw: str = ""
    time: str = ""


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock on the rejects file, if it exists, so that no other process appends to it."""
    while True:
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            yield
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            if is_in_place(path, file):
                yield
                return
        finally:
            os.close(file)


def previous(path: Path) -> Path:
    """Return the path to which the full rejects file `path` is renamed."""
    return path.with_name(f"{path.name}.1")


class RejectsRetention:
    """A thread that removes old lines from the rejects files, first at the start and then at intervals.

    The thread checks the files 24 times within the retention time. It removes lines that would be too old at
    the next check, and lines without a time, because their age is unknown.

    Parameters
    ----------
    path : Path
        `rejects.path`.
    seconds : float
        Retention time of a line.
    clock : callable
        Seconds since the epoch.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "rejects.ndjson"
    >>> _ = path.write_text('{"time": "2026-11-20T10:00:00.000Z"}\\n{"time": "2026-11-20T11:00:00.000Z"}\\n')
    >>> RejectsRetention(path, seconds=24 * 60, clock=lambda: 1795172400.0).sweep()  # at 11:00
    1
    """

    def __init__(self, path: Path, seconds: float, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._seconds = seconds
        self._clock = clock
        self._every = seconds / 24
        self._stop = threading.Event()
        self._failing = False
        self._thread = threading.Thread(target=self._run, name="rejects-retention", daemon=True)

    def start(self) -> None:
        """Start the thread that removes old lines."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread after the current check."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(1.0)

    def sweep(self) -> int:
        """Check the files once: remove the old lines, and return their number.

        Raises
        ------
        SinkError
            A file cannot be written.
        """
        oldest = rfc3339(self._clock() - self._seconds + self._every)
        try:
            with locked(self._path):
                return sum(_expire(each, oldest) for each in (self._path, previous(self._path)))
        except OSError as error:
            raise SinkError(f"rejects.path: {cannot_write(str(self._path), error)}") from error

    def _run(self) -> None:
        while True:
            try:
                self.sweep()
                self._failing = False
            except SinkError as error:
                if not self._failing:
                    log.error("rejects.retention_days: %s. Old lines stay until it can be written.", error)
                self._failing = True
            if self._stop.wait(self._every):
                return


def _expire(path: Path, oldest: str) -> int:
    """Remove the old lines of a file whose lines are in the order of their times; return their number."""
    _draft(path).unlink(missing_ok=True)  # left by a process that was killed
    if not path.is_file():
        return 0
    with path.open("rb") as file:
        first = file.readline()
    if not first or _time_of(first) >= oldest:
        return 0
    return _rewrite(path, lambda line: _time_of(line) < oldest)


def _time_of(line: bytes) -> str:
    """Return the time at which a line was written, as RFC 3339 in UTC; empty if the line has no time."""
    with suppress(msgspec.MsgspecError, UnicodeDecodeError):
        return msgspec.json.decode(line, type=_Line).time
    return ""


def remove_lines(path: Path, is_gone: Callable[[bytes], bool]) -> int:
    """Remove the lines that `is_gone` selects, even while an agent appends lines, and return their number.

    The remaining lines are written to a new file, which then replaces the old one, so a kill leaves the old
    or the new file.

    Parameters
    ----------
    path : Path
        `rejects.path`.
    is_gone : callable
        A function from the record in a line to whether the line must be removed.

    Raises
    ------
    SinkError
        A file cannot be written.
    """
    try:
        with locked(path):
            files = [each for each in (path, previous(path)) if each.is_file()]
            return sum(_rewrite(each, lambda line: is_gone(_record_of(line))) for each in files)
    except OSError as error:
        raise SinkError(f"rejects.path: {cannot_write(str(path), error)}") from error


def _rewrite(path: Path, is_gone: Callable[[bytes], bool]) -> int:
    """Rewrite a file without some lines, and return their number."""
    draft = _draft(path)
    removed = 0
    try:
        with path.open("rb") as old, draft.open("wb") as new:
            os.fchmod(new.fileno(), os.fstat(old.fileno()).st_mode & 0o777)
            for line in old:
                if is_gone(line):
                    removed += 1
                else:
                    new.write(line)
            new.flush()
            os.fsync(new.fileno())
        if removed:
            draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return removed


def _draft(path: Path) -> Path:
    return path.with_name(f".{path.name}.forgetting")


def _record_of(line: bytes) -> bytes:
    """Return the record in a line, or the line itself if it was cut off or written by another program."""
    with suppress(msgspec.MsgspecError, UnicodeDecodeError):
        return msgspec.json.decode(line, type=_Line).raw.encode()
    return line
