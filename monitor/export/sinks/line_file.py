"""A file that lines are appended to, whole or not at all, in bounded space where that is
wanted: a file that is full takes another name.
"""

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
    """Give a file the name `<path>.1`, its predecessors the next number each; the oldest past `keep` goes.

    Each step is a renaming. A process killed between two leaves a number free; the next rotation fills it
    before it takes a file away.

    Parameters
    ----------
    path : str
        Of the file that is full.
    keep : int
        Predecessors that stay, at least 1.

    Raises
    ------
    OSError
        A file cannot be renamed; those before it have been.

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
    """The file, which may be a device, and those of its predecessors that there are, the newest first.

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


_TAKE_SECONDS = 1.0  # for a reader that is behind to make room in its pipe


def is_pipe(path: str) -> bool:
    """Whether the path is a named pipe, or ``/dev/stdout`` where that is a pipe."""
    try:
        return stat.S_ISFIFO(os.stat(path).st_mode)
    except OSError:
        return False


class PipeWriter:
    """Writes lines into a named pipe, while a program has it open for reading.

    Without a reader nothing is written: the kernel would take 64 KiB that perhaps nobody ever reads. What
    lies in the pipe as its reader ends goes to the next one, which may begin within a line. A line of more
    than 4 KiB that the pipe took in part goes on where it was cut.

    Parameters
    ----------
    path : str
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = -1
        self._rest = b""  # of the first line of the next call

    def write(self, lines: Sequence[bytes]) -> int:
        """Write lines from the first on; how many, at least one.

        Raises
        ------
        OSError
            Nobody reads, or not fast enough; the next call must begin with the same lines.
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
        """Let go of the pipe."""
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
    """Appends lines to a file.

    A line is written whole or not at all: what a failed write left of one is cut off again, and a
    half-written last line found in the file (a crash) gets a newline first, so that lines never merge. A
    file that was renamed or removed is begun anew under its name. Nothing is forced to the disk itself
    (no `fsync`): a power cut may take the last seconds, a crash of the agent takes what was queued. A named
    pipe takes lines while a program reads it.

    Parameters
    ----------
    path : str
        The file; its folder must exist.
    name, setting : str
        As of any `Destination`.
    encode : callable
        Makes an item its line, ending in a newline. Runs in the sink's thread.
    max_bytes : int or None
        Past this the file is renamed to `<path>.1` and begun anew. A single longer line is still written.
        None: never.
    keep : int
        Renamed files that stay, at least 1.
    mode : int
        Permissions of a file that is made anew, before the umask takes some away.
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
    ) -> None:
        self.name = name
        self.setting = setting
        self.where = path
        self._path = path
        self._mode = mode
        self._encode = encode
        self._max_bytes = max_bytes
        self._keep = keep
        self._file = -1
        self._pipe = PipeWriter(path)

    def open(self) -> None:
        """Open the file for appending, or raise `SinkError` with why it cannot be."""
        if is_pipe(self._path):  # whose reader may come yet
            return
        try:
            self._open()
        except OSError as error:
            self._shut()
            raise SinkError(f"{self.setting}: {cannot_write(self._path, error)}") from error

    def deliver(self, items: Sequence[Item]) -> int:
        """Write as many lines as the file may take before it is rotated, and fit on the disk; how many."""
        lines = [self._encode(item) for item in items]
        try:
            return self._pipe.write(lines) if is_pipe(self._path) else self._append(lines)
        except OSError as error:
            self._shut()
            raise SinkError(cannot_write(self._path, error)) from error

    def close(self, timeout_seconds: float) -> None:
        """Close the file."""
        self._pipe.close()
        self._shut()

    def _append(self, lines: Sequence[bytes]) -> int:
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
        finally:
            if self._max_bytes is not None:
                fcntl.flock(self._file, fcntl.LOCK_UN)
        return fitting

    def _ready_file(self, line_bytes: int) -> int:
        """Make sure that the right file is open and has room for the next line; its size."""
        while True:
            if self._file >= 0 and not is_in_place(self._path, self._file):
                self._shut()
            if self._file < 0:
                self._open()
            if self._max_bytes is None:
                return end_line(self._file)
            # Until the lines are written: `blindsight forget` takes lines out, from a process of its own.
            fcntl.flock(self._file, fcntl.LOCK_EX)
            if not is_in_place(self._path, self._file):
                continue
            size = end_line(self._file)
            if not size or size + line_bytes <= self._max_bytes:
                return size
            rotate(self._path, self._keep)

    def _open(self) -> None:
        # Read: for the last byte. Append: each write lands at the end, whoever else wrote.
        self._file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, self._mode)

    def _shut(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def end_line(file: int) -> int:
    """Close a line that a crash or another program left in part; the open file's size, 0 of a device.

    A reader loses that line alone.
    """
    found = os.fstat(file)
    if not stat.S_ISREG(found.st_mode):
        return 0
    if not found.st_size or os.pread(file, 1, found.st_size - 1) == b"\n":
        return found.st_size
    return found.st_size + os.write(file, b"\n")


def is_in_place(path: str | Path, file: int) -> bool:
    """Whether an open file still bears this name."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(file))
    except FileNotFoundError:
        return False


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
    elif error.errno in (errno.ENXIO, errno.EPIPE):
        why = "no program reads this pipe; start one, or give another path"
    elif isinstance(error, BlockingIOError):
        why = "the program that reads this pipe takes nothing more; let it read on, or give another path"
    elif isinstance(error, PermissionError):
        why = "this user may not; change the permissions or give another path"
    else:
        why = f"{error.strerror or error}; make room or give another path"
    return f"cannot write {path!r}: {why}"
