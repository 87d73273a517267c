"""What a file source reads with: one class for each way in which a file gives its records."""

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
    """Reads one file from a position on; `read` is that of `monitor.base.source.Source`."""

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
    block_bytes : int
        Read at once.
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
        """Whether the end has not been met."""
        return not self._ended

    def read(self, timeout_seconds: float) -> list[Raw]:
        """About a block of lines."""
        while not self._ended:
            data = self.file.read(self._block_bytes)
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


class Piped:
    """A named pipe, or a device, read as it comes until its last writer has closed it.

    Parameters
    ----------
    descriptor : int
        As `open_pipe` gives it.
    cutter : LineCutter
    """

    def __init__(self, descriptor: int, cutter: LineCutter) -> None:
        self._descriptor, self._cutter = descriptor, cutter
        self._ready = select.poll()
        self._ready.register(descriptor, select.POLLIN)
        self._ended = False

    @property
    def up(self) -> bool:
        """Whether it has not been closed by its writers."""
        return not self._ended

    def read(self, timeout_seconds: float) -> list[Raw]:
        """What is in the pipe; [] if no whole line came in time."""
        deadline = time.monotonic() + timeout_seconds
        while not self._ended:
            # Nothing is ready before the first writer has come, so its absence is not taken for the end.
            if not self._ready.poll(1000 * max(deadline - time.monotonic(), 0.0)):
                return []
            data = os.read(self._descriptor, BLOCK_BYTES)
            self._ended = not data
            found = self._cutter.feed(data) if data else self._cutter.finish()
            if found:
                return found
        raise EndOfSource

    def lag(self) -> None:
        """Unknown: what has not been written yet cannot be counted."""
        return

    def close(self) -> None:
        """Let go of the pipe."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor, self._ended = -1, True


def open_pipe(path: Path) -> int:
    """A descriptor of a pipe, at once: an ordinary opening would wait for a writer."""
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)


class Table:
    """A table, read to its end."""

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
