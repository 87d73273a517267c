"""A file to which whole lines are appended, with optional rotation that bounds the space."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path

from monitor.base.errors import SinkError
from monitor.export.sinks.destination import Destination, Item


def rotate(path: str, keep: int) -> None:
    """Rename a file to `<path>.1` and its predecessors to the next number, and keep `keep` of them.

    Each step renames one file. If the process is killed between two steps, one number is unused, and the next
    rotation uses this number before it deletes a file.

    Parameters
    ----------
    path : str
        The file to rename, usually because it has reached its size limit.
    keep : int
        Number of predecessors to keep, at least 1.

    Raises
    ------
    OSError
        A file cannot be renamed. Files that were renamed before keep their new names.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> for text in ("a", "b", "c", "d"):
    ...     _ = (folder / "w").write_text(text)
    ...     rotate(str(folder / "w"), keep=2)
    >>> sorted((file.name, file.read_text()) for file in folder.iterdir())
    [('w.1', 'd'), ('w.2', 'c')]
    """
    names = [path, *(f"{path}.{number}" for number in range(1, keep + 1))]
    free = next((at for at, name in enumerate(names) if not os.path.lexists(name)), keep)
    for at in range(free, 0, -1):
        os.replace(names[at - 1], names[at])


def files_of(path: str, keep: int) -> list[Path]:
    """Return the file, which may be a device, and its existing renamed predecessors, newest first.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name in ("w", "w.2", "w.3"):
    ...     _ = (folder / name).write_text("")
    >>> [file.name for file in files_of(str(folder / "w"), keep=2)]
    ['w', 'w.2']
    """
    older = (Path(f"{path}.{number}") for number in range(1, keep + 1))
    return [Path(path), *(file for file in older if file.is_file())]


_TAKE_SECONDS = 1.0  # the time in which a slow reader must make room in its pipe


def is_pipe(path: str) -> bool:
    """Return whether the path is a named pipe, or ``/dev/stdout`` connected to a pipe."""
    try:
        return stat.S_ISFIFO(os.stat(path).st_mode)
    except OSError:
        return False


class PipeWriter:
    """Writes lines into a named pipe while another program has the pipe open for reading.

    Without a reader, nothing is written, because the kernel would accept 64 KiB that may never be read. Data
    that is left in the pipe when a reader ends goes to the next reader, which may start in the middle of a
    line. If the pipe accepted only a part of a line (of more than 4 KiB), the next write continues there.

    Parameters
    ----------
    path : str
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = -1
        self._rest = b""  # the unwritten rest of the next call's first line

    def write(self, lines: Sequence[bytes]) -> int:
        """Write one or more of the first lines, and return the number of written lines.

        Raises
        ------
        OSError
            No program reads the pipe, or the program reads too slowly. The next call must begin with the same
            lines.
        """
        self._ready()
        for done, line in enumerate(lines):
            rest = self._rest or line
            try:
                while rest:
                    rest = rest[self._part(rest) :]
            except OSError:
                self._rest = rest if len(rest) < len(line) else b""
                if not done:
                    raise
                return done
            self._rest = b""
        return len(lines)

    def close(self) -> None:
        """Close the pipe."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _ready(self) -> None:
        if self._file >= 0 and not is_in_place(self._path, self._file):
            self.close()
        if self._file < 0:
            self._rest = b""
            self._file = os.open(self._path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    def _part(self, data: bytes) -> int:
        room = select.poll()
        room.register(self._file, select.POLLOUT)
        if not room.poll(1000 * _TAKE_SECONDS):
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return os.write(self._file, data)


class LineFile(Destination[Item]):
    """A destination that appends lines to a file.

    A line is written completely or not at all: if a write fails, the partial line is cut off. If a crash left
    a partial last line, a newline is added to it first, so that lines never merge. If the file was renamed or
    removed, a new file begins under its name. Data is not forced to disk (no `fsync`). After a power cut, the
    last seconds may be lost, and after a crash of the agent, the queue is lost. A named pipe receives lines
    while a program reads it.

    A subclass may override `write` and `rotate`, the two steps that change files, to let them fail in a test.

    Parameters
    ----------
    path : str
        The file; its folder must exist.
    name, setting : str
        See `Destination`.
    encode : callable
        A function from an item to its line with a newline. It runs in the sink's thread.
    max_bytes : int or None
        The size limit of the file; None for no limit. If the next line would exceed the limit, the file is
        renamed to `<path>.1`, and a new file begins. A single line that is longer than the limit is still
        written.
    keep : int
        Number of renamed files to keep, at least 1.
    mode : int
        Permissions of a new file, which the umask restricts.
    locks : bool
        True to lock the file while lines are written, because another process may remove lines from it.

    Attributes
    ----------
    end : int
        The size of the file after the last line that was written; 0 before it is known.
    """

    def __init__(
        self,
        path: str,
        *,
        name: str,
        setting: str,
        encode: Callable[[Item], bytes],
        max_bytes: int | None = None,
        keep: int = 1,
        mode: int = 0o666,
        locks: bool = False,
    ) -> None:
        self.name = name
        self.setting = setting
        self.where = path
        self.end = 0
        self._path = path
        self._mode = mode
        self._encode = encode
        self._max_bytes = max_bytes
        self._keep = keep
        self._locks = locks
        self._file = -1
        self._torn = False  # a part of a line, which could not be cut off, follows the end
        self._pipe = PipeWriter(path)

    def open(self) -> None:
        """Open the file for appending. If this fails, raise `SinkError` with the reason."""
        if is_pipe(self._path):  # a reader may still come
            return
        try:
            self._open()
        except OSError as error:
            raise SinkError(f"{self.setting}: {cannot_write(self._path, error)}") from error

    def deliver(self, items: Sequence[Item]) -> int:
        """Write as many lines as fit in the file and on the disk, and return the number of written lines."""
        lines = [self._encode(item) for item in items]
        try:
            return self._pipe.write(lines) if is_pipe(self._path) else self._append(lines)
        except OSError as error:
            if not self._torn:
                self._shut()
            raise SinkError(cannot_write(self._path, error)) from error

    def close(self, timeout_seconds: float) -> None:
        """Close the file."""
        self._pipe.close()
        self._shut()

    def write(self, data: bytes) -> int:
        """Append lines to the open file, and return the number of written bytes."""
        return os.write(self._file, data)

    def rotate(self) -> None:
        """Rename the full file and its predecessors: see `rotate`."""
        rotate(self._path, self._keep)

    def _append(self, lines: Sequence[bytes]) -> int:
        self._make_room(len(lines[0]))
        ends = [0, *accumulate(map(len, lines))]
        fitting = len(lines)
        if self._max_bytes is not None:
            fitting = max(1, sum(self.end + end <= self._max_bytes for end in ends[1:]))
        data = b"".join(lines[:fitting])
        done = 0
        try:
            while done < len(data):
                done += self.write(data[done:])
        except OSError:
            fitting = sum(end <= done for end in ends[1:])
            self._torn = done > ends[fitting]
            if not fitting:
                raise
        finally:
            self.end += ends[fitting]
            with suppress(OSError):  # the next call tries again
                self._cut()
            if self._locks:
                fcntl.flock(self._file, fcntl.LOCK_UN)
        return fitting

    def _make_room(self, line_bytes: int) -> None:
        """Make sure that the right file is open, ends with a whole line and has room for the next one."""
        while True:
            self._follow_rotation()
            if self._locks:  # until the lines are written
                fcntl.flock(self._file, fcntl.LOCK_EX)
                if not is_in_place(self._path, self._file):
                    continue
            self._end_line()
            if self._max_bytes is None or not self.end or self.end + line_bytes <= self._max_bytes:
                return
            self.rotate()

    def _follow_rotation(self) -> None:
        """Begin a new file if the present one was renamed or removed."""
        if self._file >= 0 and not is_in_place(self._path, self._file):
            self._shut()
        if self._file < 0:
            self._open()

    def _end_line(self) -> None:
        """Move to the end of the file, after the last whole line."""
        self._cut()
        self.end = end_line(self._file)

    def _cut(self) -> None:
        """Cut off the part of a line that a failed write left, unless the file was emptied since."""
        if self._torn:
            os.ftruncate(self._file, min(self.end, os.fstat(self._file).st_size))
            self._torn = False

    def _open(self) -> None:
        # Reading is for the last byte. Appending puts each write at the end, even if others write too.
        self._file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, self._mode)
        self._torn = False

    def _shut(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def end_line(file: int) -> int:
    """End a partial last line of an open file with a newline, and return the file's size, 0 for a device.

    A crash or another program may have left the partial line. Readers lose only this line.
    """
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode):
        return 0
    if not status.st_size or os.pread(file, 1, status.st_size - 1) == b"\n":
        return status.st_size
    return status.st_size + os.write(file, b"\n")


def is_in_place(path: str | Path, file: int) -> bool:
    """Return whether the path still belongs to this open file (a file descriptor)."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(file))
    except FileNotFoundError:
        return False


def cannot_write(path: str, error: OSError) -> str:
    """Return a sentence with the reason why a file cannot be written, and a remedy.

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
    elif error.errno in (errno.ENXIO, errno.EPIPE):
        why = "no program reads this pipe; start one, or give another path"
    elif isinstance(error, BlockingIOError):
        why = "the program that reads this pipe takes nothing more; let it read on, or give another path"
    elif isinstance(error, PermissionError):
        why = "this user may not; change the permissions or give another path"
    else:
        why = f"{error.strerror or error}; make room or give another path"
    return f"cannot write {path!r}: {why}"
