"""Lines appended to a file by a thread of its own, so that a slow or full disk never holds up the engine."""

from __future__ import annotations

import errno
import logging
import os
import stat
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate, islice
from typing import Generic, TypeVar

from monitor.errors import SinkError

_log = logging.getLogger("blindsight")

_BATCH = 500  # lines joined into one write: enough that the system call does not count
_RETRY_SECONDS = 1.0  # a disk that is full stays so for longer; a shorter wait only spins

Item = TypeVar("Item")


class LineWriter(ABC, Generic[Item]):
    """Appends lines to a file from a bounded queue; `write` never waits for the disk.

    A line is written whole or not at all: what a failed write left of one is cut off again, and a
    half-written last line found in the file (a crash) gets a newline first, so that lines never merge. A
    file that was renamed or removed is begun anew under its name. Nothing is forced to the disk itself
    (no `fsync`): a power cut may take the last seconds, a crash of the agent takes what was queued.

    Parameters
    ----------
    path : str
        The file; its folder must exist.
    setting : str
        Key of the configuration that holds the path, for messages.
    capacity : int
        Lines that may wait; a further one is dropped and counted.
    max_bytes : int or None
        Past this the file is renamed to `<path>.1`, replacing the last one, and begun anew. A single
        longer line is still written. None: never.
    mode : int
        Permissions of a file that is made anew, before the umask takes some away.
    """

    def __init__(
        self, path: str, *, setting: str, capacity: int, max_bytes: int | None = None, mode: int = 0o666
    ) -> None:
        self._path = path
        self._mode = mode
        self._setting = setting
        self._capacity = capacity
        self._max_bytes = max_bytes
        self._queue: deque[Item] = deque()
        self._lock = threading.Lock()
        self._filled = threading.Condition(self._lock)
        self._emptied = threading.Condition(self._lock)
        self._file = -1
        self._failing = False
        self._lost = self._written = self._failures = 0
        self._give_up: float | None = None  # once closing: when waiting for the disk ends, monotonic
        self._thread = threading.Thread(target=self._run, name=f"blindsight-{setting}", daemon=True)

    @property
    def lost(self) -> int:
        """Lines dropped: the queue was full, or they were still waiting when `close` ran out of time."""
        return self._lost

    @property
    def written(self) -> int:
        """Lines written since the start."""
        return self._written

    @property
    def failures(self) -> int:
        """Writes that failed and were tried again."""
        return self._failures

    def start(self) -> None:
        """Open the file and start writing.

        Raises
        ------
        SinkError
            The file cannot be opened for appending; the sentence says why and what to do.
        """
        try:
            self._open()
        except OSError as error:
            self._shut()
            raise SinkError(f"{self._setting}: {cannot_write(self._path, error)}") from error
        self._thread.start()

    def write(self, item: Item, wait_seconds: float = 0.0) -> bool:
        """Queue one line; whether it was taken.

        Parameters
        ----------
        item
            The line, or what `_encode` makes one of.
        wait_seconds : float
            How long to wait for room in a full queue: 0 in the daemon, where nothing may wait for a
            disk; more in a replay, where a missing line would be worse than a late one.
        """
        with self._lock:
            if wait_seconds > 0:
                self._emptied.wait_for(lambda: self._give_up is not None or self._has_room(), wait_seconds)
            if not self._has_room():
                self._lost += 1
                return False
            self._queue.append(item)
            self._filled.notify()
            return True

    def close(self, timeout: float) -> bool:
        """Write what waits and close the file; whether everything was written in time.

        Parameters
        ----------
        timeout : float
            Seconds; what has not been written by then counts as lost.
        """
        with self._lock:
            if self._give_up is None:
                self._give_up = time.monotonic() + timeout
            self._filled.notify()
            self._emptied.notify_all()
        if self._thread.ident is not None:
            self._thread.join(timeout)
        with self._lock:
            left = len(self._queue)
            self._lost += left
            self._queue.clear()
        return left == 0

    @abstractmethod
    def _encode(self, item: Item) -> bytes:
        """The line of an item, ending in a newline. Runs in the writer's thread."""

    def _has_room(self) -> bool:
        return self._give_up is None and len(self._queue) < self._capacity

    def _run(self) -> None:
        while (items := self._next()) is not None:
            lines = [self._encode(item) for item in items]
            try:
                whole = self._append(lines)
            except OSError as error:
                self._failed(error)
            else:
                self._succeeded(whole)
        self._shut()

    def _next(self) -> list[Item] | None:
        """The items to write next, which stay in the queue until they are written; None to stop."""
        with self._lock:
            self._filled.wait_for(lambda: self._queue or self._give_up is not None)
            out_of_time = self._give_up is not None and time.monotonic() >= self._give_up
            return None if out_of_time or not self._queue else list(islice(self._queue, _BATCH))

    def _append(self, lines: Sequence[bytes]) -> int:
        """Write as many lines as the file may take before it is rotated, and fit on the disk; how many."""
        size = self._ready_file(len(lines[0]))
        ends = list(accumulate(map(len, lines)))
        fitting = len(lines)
        if self._max_bytes is not None:
            fitting = max(1, sum(size + end <= self._max_bytes for end in ends))
        data = memoryview(b"".join(lines[:fitting]))
        done = 0
        try:
            while done < len(data):
                done += os.write(self._file, data[done:])
        except OSError:
            whole = sum(end <= done for end in ends)
            with suppress(OSError):
                os.ftruncate(self._file, size + (ends[whole - 1] if whole else 0))
            if not whole:
                raise
            return whole
        return fitting

    def _ready_file(self, line_bytes: int) -> int:
        """Make sure that the right file is open and has room for the next line; its size."""
        if self._file >= 0 and not self._is_in_place():
            self._shut()
        if self._file < 0:
            self._open()
        size = os.fstat(self._file).st_size
        if self._max_bytes is not None and size and size + line_bytes > self._max_bytes:
            self._rotate()
            return 0
        return size

    def _is_in_place(self) -> bool:
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(self._file))
        except FileNotFoundError:
            return False

    def _open(self) -> None:
        # Read: for the last byte. Append: each write lands at the end, whoever else wrote.
        self._file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, self._mode)
        found = os.fstat(self._file)
        if (
            stat.S_ISREG(found.st_mode)
            and found.st_size
            and os.pread(self._file, 1, found.st_size - 1) != b"\n"
        ):
            os.write(self._file, b"\n")

    def _rotate(self) -> None:
        self._shut()
        os.replace(self._path, f"{self._path}.1")
        self._open()

    def _shut(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _failed(self, error: OSError) -> None:
        self._failures += 1
        if not self._failing:
            _log.warning("%s; up to %d lines wait meanwhile", cannot_write(self._path, error), self._capacity)
        self._failing = True
        self._shut()
        with self._lock:
            self._filled.wait_for(lambda: self._give_up is not None, _RETRY_SECONDS)
            closing = self._give_up is not None
        if closing:
            time.sleep(0.05)  # the condition above no longer waits; without this, closing would spin

    def _succeeded(self, whole: int) -> None:
        if self._failing:
            _log.warning("%s is written again; %d lines were lost so far", self._path, self._lost)
        self._failing = False
        with self._lock:
            for _ in range(min(whole, len(self._queue))):
                self._queue.popleft()
            self._written += whole
            self._emptied.notify_all()


class ReportWriter(LineWriter[bytes]):
    """Appends closed windows to the reports file, as `monitor.report.to_json` writes them.

    Parameters
    ----------
    path : str
    capacity : int
        Windows that may wait, about 1 kB each.

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

    def __init__(self, path: str, capacity: int = 10_000) -> None:
        super().__init__(path, setting="reports.path", capacity=capacity)

    def _encode(self, item: bytes) -> bytes:
        return item if item.endswith(b"\n") else item + b"\n"


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


def cannot_write(path: str, error: OSError) -> str:
    """One sentence on why a file cannot be written, and what to do.

    Examples
    --------
    >>> cannot_write("out/windows.ndjson", PermissionError(13, "Permission denied"))
    "cannot write 'out/windows.ndjson': this user may not; change the permissions or give another path"
    """
    folder = os.path.dirname(path) or "."
    if isinstance(error, FileNotFoundError):
        why = f"there is no folder {folder!r}; make it or give another path"
    elif isinstance(error, NotADirectoryError):
        why = f"{folder!r} is not a folder; give another path"
    elif isinstance(error, IsADirectoryError):
        why = "it is a folder; give the path of a file"
    elif isinstance(error, PermissionError):
        why = "this user may not; change the permissions or give another path"
    else:
        why = f"{error.strerror or error}; make room or give another path"
    return f"cannot write {path!r}: {why}"
