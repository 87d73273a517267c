"""The readers of a file source, one for each kind of file."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path
from typing import Protocol

from connectors.formats.files.line_cutter import BLOCK_BYTES, LineCutter
from monitor.base.source import EndOfSource, Raw, RawTable


class FileReader(Protocol):
    """The interface of a reader of one file, which starts at a position.

    The methods have the same meaning as in `monitor.base.source.Source`.
    """

    @property
    def up(self) -> bool:
        """True while the file is open and may hold more records."""
        ...

    def read(self, timeout_seconds: float) -> list[Raw]:
        """Return some whole lines or a table. Raise `EndOfSource` at the end of the file."""
        ...

    def lag(self) -> int | None:
        """Return the approximate number of waiting records, or None if unknown."""
        ...

    def close(self) -> None:
        """Close the file."""
        ...


class Plain:
    """A reader of an uncompressed file up to its end.

    Parameters
    ----------
    file : FileIO
        A file that is open for reading bytes.
    make_cutter : callable
        A function from a position to a `LineCutter` that begins there.
    start : int
        The byte offset at which to start. If it is past the end, the file was replaced, and reading starts at
        0.
    block_bytes : int
        The number of bytes to read at once.
    """

    def __init__(
        self,
        file: FileIO,
        make_cutter: Callable[[int], LineCutter],
        start: int,
        block_bytes: int = BLOCK_BYTES,
    ) -> None:
        self.file = file
        self._block_bytes = block_bytes
        size = file.seek(0, os.SEEK_END)
        self._first = start if start <= size else 0
        self._lines = 0
        self._ended = False
        self.cutter = make_cutter(self._first)
        file.seek(self._first)

    @property
    def up(self) -> bool:
        """True until `read` has reached the end of the file."""
        return not self._ended

    def read(self, timeout_seconds: float) -> list[Raw]:
        """Return the whole lines of about one block, or raise `EndOfSource` at the end of the file."""
        while not self._ended:
            data = self.file.read(self._block_bytes)
            self._ended = not data
            raws = self.take(data) if data else self.cutter.finish()
            if raws:
                return raws
        raise EndOfSource

    def take(self, data: bytes) -> list[Raw]:
        """Pass bytes to the cutter, and count and return the lines that are now complete."""
        self._lines += data.count(b"\n")
        return self.cutter.feed(data)

    def lag(self) -> int | None:
        """Return the remaining bytes divided by the mean length of a line; None before the first line.

        A call from another thread may raise `ValueError` or `OSError` while the file is being closed.
        """
        # Read once each, because the reading thread may change them.
        lines, fed = self._lines, self.cutter.fed - self._first
        if not lines or fed <= 0:
            return None
        left = max(os.fstat(self.file.fileno()).st_size - self.cutter.position, 0)
        return -(-left * lines // fed)

    def close(self) -> None:
        """Close the file."""
        self.file.close()


class Piped:
    """A reader of a named pipe or a device, until its last writer closes it.

    Parameters
    ----------
    descriptor : int
        The result of `open_pipe`.
    cutter : LineCutter
    """

    def __init__(self, descriptor: int, cutter: LineCutter) -> None:
        self._descriptor, self._cutter = descriptor, cutter
        self._ready = select.poll()
        self._ready.register(descriptor, select.POLLIN)
        self._ended = False

    @property
    def up(self) -> bool:
        """True until the last writer closes the pipe."""
        return not self._ended

    def read(self, timeout_seconds: float) -> list[Raw]:
        """Return the whole lines in the pipe; an empty list if no line is complete within the time limit.

        Raises
        ------
        EndOfSource
            The last writer has closed the pipe.
        """
        deadline = time.monotonic() + timeout_seconds
        while not self._ended:
            # Before the first writer opens the pipe, nothing is ready, and that is not the end.
            if not self._ready.poll(1000 * max(deadline - time.monotonic(), 0.0)):
                return []
            data = os.read(self._descriptor, BLOCK_BYTES)
            self._ended = not data
            raws = self._cutter.feed(data) if data else self._cutter.finish()
            if raws:
                return raws
        raise EndOfSource

    def lag(self) -> None:
        """Return None: the number of records that the writers will send is unknown."""
        return

    def close(self) -> None:
        """Close the pipe."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor, self._ended = -1, True


def open_pipe(path: Path) -> int:
    """Open a pipe without waiting for a writer, and return its descriptor."""
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)


class Table:
    """A reader of one table up to its end."""

    def __init__(self, tables: Iterator[RawTable]) -> None:
        self._tables = tables
        self._ended = False

    @property
    def up(self) -> bool:
        """True until `read` has reached the end of the file."""
        return not self._ended

    def read(self, timeout_seconds: float) -> list[Raw]:
        """Return a few thousand rows, or raise `EndOfSource` at the end of the table."""
        table = next(self._tables, None)
        if table is None:
            self._ended = True
            raise EndOfSource
        return [table]

    def lag(self) -> None:
        """Return None: the rows of a table are not counted in advance."""
        return

    def close(self) -> None:
        """Close the file."""
        close = getattr(self._tables, "close", None)
        if close is not None:
            close()
