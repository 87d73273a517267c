"""What a file source reads with: one class for each way in which a file gives its records."""

from __future__ import annotations

import logging
import os
import select
import time
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path
from typing import Protocol

from connectors.formats.files.line_cutter import BLOCK_BYTES, LineCutter
from monitor.base.errors import SourceError
from monitor.base.source import EndOfSource, Raw, RawTable

log = logging.getLogger("blindsight")

_POLL_SECONDS = 0.1


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
    missing_seconds : float
        So long there may be no file of this name before that is an error.
    """

    def __init__(
        self,
        path: Path,
        make_cutter: Callable[[int], LineCutter],
        start: int,
        settle_seconds: float,
        missing_seconds: float,
    ) -> None:
        self._path, self._make_cutter, self._start = path, make_cutter, start
        self._settle_seconds, self._missing_seconds = settle_seconds, missing_seconds
        self._plain: Plain | None = None
        self._renamed_at: float | None = None
        self._missing_since: float | None = None
        self._try_open()

    @property
    def up(self) -> bool:
        """Whether there is a file."""
        return self._plain is not None

    def read(self, timeout_seconds: float) -> list[Raw]:
        """About 1 MiB of whole lines; [] if none came in time.

        Raises
        ------
        SourceError
            Nothing came, and there has been no file of this name for `missing_seconds`.
        """
        deadline = time.monotonic() + timeout_seconds
        while True:
            found = self._poll()
            if found:
                return found
            self._note_missing()
            left = deadline - time.monotonic()
            if left <= 0:
                return []
            time.sleep(min(_POLL_SECONDS, left))

    def _note_missing(self) -> None:
        if os.path.exists(self._path):
            self._missing_since = None
            return
        now = time.monotonic()
        if self._missing_since is None:
            self._missing_since = now
        if now - self._missing_since >= self._missing_seconds:
            was = "There is no file" if self._plain is None else "There is no longer a file"
            raise SourceError(f"{was} {self._path}; it is waited for.")

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
            log.warning(
                "%s: the file is shorter than the part already read, so it was cut or rewritten: reading "
                "starts again at its start. Repeated records count once if they have an id.",
                self._path,
            )
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
        start = _line_start(file, self._start)
        if start < self._start:
            log.warning(
                "%s: no line ends at byte %d, where reading should continue, so it is another file: "
                "reading starts at its start.",
                self._path,
                self._start,
            )
        self._plain = Plain(file, self._make_cutter, start)
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
