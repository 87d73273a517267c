"""Records from standard input, or from any other stream of bytes."""

from __future__ import annotations

import os
import selectors
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO, Self

from connectors.formats.decode.structs import MAX_LINE_BYTES
from connectors.formats.files.line_cutter import BLOCK_BYTES, LineCutter
from monitor.base.errors import SourceError
from monitor.base.records import TaskLayout
from monitor.base.source import EndOfSource, Raw, Source
from monitor.base.spool import Spools

PIPE_NOT_LOOKED_AT = (
    "not looked at: what is read of a pipe is gone; name a file with some of its records instead"
)


class StdinSource(Source[int]):
    """NDJSON that is piped in.

    What went through a pipe cannot be read again: each run begins at position 0, and positions from an
    earlier run are not looked at.

    Parameters
    ----------
    name : str, default "stdin"
        Also the partition.
    stream : binary stream, optional
        Standard input if absent. Read by its file descriptor where it has one, past its buffer.
    max_line_bytes : int, default 1 MiB
        A longer line is passed over in bounded memory, and counted.

    Examples
    --------
    >>> import io
    >>> source = StdinSource(stream=io.BytesIO(b'{"id": 1}\\n{"id": 2}'))
    >>> source.open({})
    >>> [raw.data for raw in source.read(0.0) + source.read(0.0)]
    [b'{"id": 1}\\n', b'{"id": 2}']
    """

    @classmethod
    def from_settings(cls, settings: Any, tasks: Sequence[TaskLayout], spools: Spools | None = None) -> Self:
        """Standard input, under the name that a section gives it."""
        return cls(name=settings.label)

    @classmethod
    def sample(cls, settings: Any, records: int) -> list[Raw] | str:
        """Why a pipe is not looked at."""
        return PIPE_NOT_LOOKED_AT

    def __init__(
        self, name: str = "stdin", stream: BinaryIO | None = None, max_line_bytes: int = MAX_LINE_BYTES
    ) -> None:
        self.name = name
        self.stream = stream
        self.max_line_bytes = max_line_bytes
        self._open_stream: BinaryIO | None = None
        self._selector: selectors.BaseSelector | None = None
        self._cutter = LineCutter(name, 0, max_line_bytes)

    def open(self, positions: Mapping[str, int]) -> None:
        """Get ready to read; `positions` is not looked at.

        Raises
        ------
        SourceError
            Standard input is closed.
        """
        stream = self.stream if self.stream is not None else getattr(sys.stdin, "buffer", None)
        if stream is None or stream.closed:
            raise SourceError("Standard input is closed; pipe records into the command, or use a file source")
        self._open_stream = stream
        self._cutter = LineCutter(self.name, 0, self.max_line_bytes)
        try:
            descriptor = stream.fileno()
        except OSError:
            return  # a stream in memory, which is always ready
        # select() and not epoll, which refuses ordinary files: `command < file` is allowed.
        self._selector = selectors.SelectSelector()
        self._selector.register(descriptor, selectors.EVENT_READ)

    def read(self, timeout_seconds: float) -> list[Raw]:
        """Read what is there, waiting for whole lines no longer than the timeout.

        Raises
        ------
        EndOfSource
            The other end of the pipe was closed, and everything was read.
        """
        deadline = time.monotonic() + timeout_seconds
        while self._open_stream is not None:
            data = self._take(self._open_stream, max(deadline - time.monotonic(), 0.0))
            if data is None:
                return []
            if not data:
                self.close()
            found = self._cutter.feed(data) if data else self._cutter.finish()
            if found:
                return found
        raise EndOfSource

    def _take(self, stream: BinaryIO, timeout_seconds: float) -> bytes | None:
        """Return the available bytes, none where the other end is closed; None where nothing came in time."""
        try:
            if self._selector is None:
                return stream.read(BLOCK_BYTES)
            if not self._selector.select(timeout_seconds):
                return None
            return os.read(stream.fileno(), BLOCK_BYTES)
        except Exception as error:
            reason = getattr(error, "strerror", None) or error
            raise SourceError(f"Standard input cannot be read: {reason}") from error

    def close(self) -> None:
        """Stop reading. The stream stays open: it belongs to whoever gave it."""
        if self._selector is not None:
            self._selector.close()
            self._selector = None
        self._open_stream = None

    @property
    def up(self) -> bool:
        """Whether the other end may still write."""
        return self._open_stream is not None
