"""What a file source reads with: one class for each way in which a file gives its records."""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path
from typing import Any, Protocol

from connectors.base import EndOfSource, Raw, RawTable
from connectors.formats.line_cutter import BLOCK_BYTES, LineCutter
from monitor.errors import MissingExtraError, SourceError

_POLL_SECONDS = 0.1


class FileReader(Protocol):
    """Reads one file from a position on; `read` is that of `connectors.base.Source`."""

    @property
    def up(self) -> bool:
        """Whether there is a file open that may give more."""
        ...

    def read(self, timeout_seconds: float) -> list[Raw]:
        """Some whole lines, or a table; raises `EndOfSource` after the last."""
        ...

    def lag(self) -> int | None:
        """About how many records wait, None if unknown."""
        ...

    def close(self) -> None:
        """Let go of the file."""
        ...


class Plain:
    """An uncompressed file, read to its end.

    Parameters
    ----------
    file : FileIO
        Opened for reading bytes.
    make_cutter : callable
        From a position to a `LineCutter` that begins there.
    start : int
        Byte offset to begin at; past the end, the file is taken for a new one and begun at 0.
    """

    def __init__(self, file: FileIO, make_cutter: Callable[[int], LineCutter], start: int) -> None:
        self.file = file
        size = file.seek(0, os.SEEK_END)
        self._first = start if start <= size else 0
        self._lines = 0
        self._ended = False
        self.cutter = make_cutter(self._first)
        file.seek(self._first)

    @property
    def up(self) -> bool:
        """Whether the end has not been met."""
        return not self._ended

    def read(self, timeout_seconds: float) -> list[Raw]:
        """About 1 MiB of lines."""
        while not self._ended:
            data = self.file.read(BLOCK_BYTES)
            self._ended = not data
            found = self.take(data) if data else self.cutter.finish()
            if found:
                return found
        raise EndOfSource

    def take(self, data: bytes) -> list[Raw]:
        """Feed the cutter, and count lines."""
        self._lines += data.count(b"\n")
        return self.cutter.feed(data)

    def lag(self) -> int | None:
        """Bytes left over the mean length of a line so far; None before the first.

        Asked by another thread, the file may be closed just now: `ValueError` or `OSError`.
        """
        # Each once: the reading thread may move them between two looks.
        lines, fed = self._lines, self.cutter.fed - self._first
        if not lines or fed <= 0:
            return None
        left = max(os.fstat(self.file.fileno()).st_size - self.cutter.position, 0)
        return -(-left * lines // fed)

    def close(self) -> None:
        """Let go of the file."""
        self.file.close()


class Following:
    """A plain file that grows and is rotated; `connectors.files.FileSource` says how.

    Parameters
    ----------
    path : Path
    make_cutter : callable
        From a position to a `LineCutter` that begins there.
    start : int
        Byte offset to begin at, if a line ends there; else the file is taken for a new one.
    settle_seconds : float
        So long nothing may have been added to a renamed file before it is left.
    """

    def __init__(
        self, path: Path, make_cutter: Callable[[int], LineCutter], start: int, settle_seconds: float
    ) -> None:
        self._path, self._make_cutter, self._start = path, make_cutter, start
        self._settle_seconds = settle_seconds
        self._plain: Plain | None = None
        self._renamed_at: float | None = None
        self._try_open()

    @property
    def up(self) -> bool:
        """Whether there is a file."""
        return self._plain is not None

    def read(self, timeout_seconds: float) -> list[Raw]:
        """About 1 MiB of whole lines; [] if none came in time."""
        deadline = time.monotonic() + timeout_seconds
        while True:
            found = self._poll()
            if found:
                return found
            left = deadline - time.monotonic()
            if left <= 0:
                return []
            time.sleep(min(_POLL_SECONDS, left))

    def _poll(self) -> list[Raw]:
        """What can be had now. Never the end of one file and the start of the next in one answer:
        positions within an answer rise."""
        if self._plain is None and not self._try_open():
            return []
        assert self._plain is not None
        while data := self._plain.file.read(BLOCK_BYTES):
            self._renamed_at = None
            found = self._plain.take(data)
            if found:
                return found
        if os.fstat(self._plain.file.fileno()).st_size < self._plain.cutter.fed:
            found = self._plain.cutter.finish()
            self._plain = Plain(self._plain.file, self._make_cutter, 0)
            return found
        return self._leave() if self._is_settled() else []

    def _is_settled(self) -> bool:
        """Whether another file has taken the path, and this one has been quiet for long enough."""
        assert self._plain is not None
        try:
            now_there = os.stat(self._path)
        except FileNotFoundError:
            return False
        ours = os.fstat(self._plain.file.fileno())
        if (now_there.st_dev, now_there.st_ino) == (ours.st_dev, ours.st_ino):
            self._renamed_at = None
            return False
        now = time.monotonic()
        if self._renamed_at is None:
            self._renamed_at = now
        return now - self._renamed_at >= self._settle_seconds

    def _leave(self) -> list[Raw]:
        """End with the old file; the next poll opens the new one."""
        assert self._plain is not None
        left, self._plain = self._plain, None  # the name first: another thread may ask for `lag`
        self._renamed_at, self._start = None, 0
        found = left.cutter.finish()
        left.close()
        return found

    def _try_open(self) -> bool:
        try:
            file = FileIO(self._path)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise SourceError(f"{self._path} cannot be read: {error.strerror or error}") from error
        self._plain = Plain(file, self._make_cutter, _line_start(file, self._start))
        return True

    def lag(self) -> int | None:
        """As `Plain.lag`."""
        plain = self._plain
        return None if plain is None else plain.lag()

    def close(self) -> None:
        """Let go of the file."""
        plain, self._plain = self._plain, None
        if plain is not None:
            plain.close()


def _line_start(file: FileIO, start: int) -> int:
    """`start` if a line ends just before it, else 0: then this is not the file that was read."""
    if start <= 0:
        return 0
    file.seek(start - 1)
    return start if file.read(1) == b"\n" else 0


class Compressed:
    """A compressed file, read to its end.

    Parameters
    ----------
    path : Path
    stream : object
        Gives uncompressed bytes by `read(size)`.
    cutter : LineCutter
    start : int
        So many uncompressed bytes are read and passed over.
    """

    def __init__(self, path: Path, stream: Any, cutter: LineCutter, start: int) -> None:
        self._path, self._stream, self._cutter = path, stream, cutter
        self._to_pass_over = start
        self._ended = False

    @property
    def up(self) -> bool:
        """Whether the end has not been met."""
        return not self._ended

    def read(self, timeout_seconds: float) -> list[Raw]:
        """About 1 MiB of lines."""
        while not self._ended:
            data = self._next()
            self._ended = not data
            found = self._cutter.feed(data) if data else self._cutter.finish()
            if found:
                return found
        raise EndOfSource

    def _next(self) -> bytes:
        """The next bytes after those to be passed over; b"" at the end."""
        while True:
            try:
                data: bytes = self._stream.read(BLOCK_BYTES)
            except (OSError, EOFError, zlib.error) as error:
                place = f"after byte {self._cutter.fed} of its uncompressed text"
                raise SourceError(f"{self._path} is damaged {place}: {error}") from error
            rest = data[self._to_pass_over :]
            self._to_pass_over -= len(data) - len(rest)
            if rest or not data:
                return rest

    def lag(self) -> None:
        """Unknown: how much text is left is not to be seen from outside."""
        return

    def close(self) -> None:
        """Let go of the file."""
        self._stream.close()


def open_zstandard(path: Path) -> Any:
    """A stream of the uncompressed bytes of a ``.zst`` file, over all its frames.

    Raises
    ------
    MissingExtraError
        Neither zstandard nor pyarrow is installed.
    """
    try:
        import zstandard
    except ImportError:
        return _open_with_pyarrow(path)
    reader = zstandard.ZstdDecompressor().stream_reader(path.open("rb"), read_across_frames=True)
    return _OSErrors(reader, zstandard.ZstdError)


def _open_with_pyarrow(path: Path) -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise MissingExtraError("Reading .zst files", "files") from error
    return pyarrow.input_stream(str(path), compression="zstd")


class _OSErrors:
    """Turns a package's own error into an `OSError`, which the other decompressors raise."""

    def __init__(self, stream: Any, error: type[Exception]) -> None:
        self._stream, self._error = stream, error

    def read(self, size: int) -> bytes:
        try:
            data: bytes = self._stream.read(size)
        except self._error as error:
            raise OSError(str(error)) from error
        return data

    def close(self) -> None:
        self._stream.close()


class Table:
    """A table, read to its end.

    Parameters
    ----------
    tables : iterator of RawTable
    """

    def __init__(self, tables: Iterator[RawTable]) -> None:
        self._tables = tables
        self._ended = False

    @property
    def up(self) -> bool:
        """Whether the end has not been met."""
        return not self._ended

    def read(self, timeout_seconds: float) -> list[Raw]:
        """Some thousand rows."""
        table = next(self._tables, None)
        if table is None:
            self._ended = True
            raise EndOfSource
        return [table]

    def lag(self) -> None:
        """Unknown: a table is read by row, and its rows are not counted beforehand."""
        return

    def close(self) -> None:
        """Let go of the file."""
        close = getattr(self._tables, "close", None)
        if close is not None:
            close()
