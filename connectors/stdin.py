"""The source of standard input, or of any other stream of bytes."""

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
    """A source of NDJSON from standard input.

    A pipe can be read only once. Therefore each run begins at position 0 and ignores the positions of an
    earlier run.

    Parameters
    ----------
    name : str, default "stdin"
        The name of the source and of its partition.
    stream : binary stream, optional
        The stream to read, by default standard input. If the stream has a file descriptor, the source reads
        from the descriptor, without the stream's buffer.
    max_line_bytes : int, default 1 MiB
        The largest length of a line. A longer line is skipped in bounded memory and counted as rejected.

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
        """Return a source of standard input with the name in its section."""
        return cls(name=settings.label)

    @classmethod
    def sample(cls, settings: Any, records: int) -> list[Raw] | str:
        """Return the reason why a pipe cannot be sampled, as a sentence."""
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
        """Prepare to read; `positions` are ignored.

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
            return  # a stream in memory is always ready
        # select() works for regular files, as in `command < file`; epoll refuses them.
        self._selector = selectors.SelectSelector()
        self._selector.register(descriptor, selectors.EVENT_READ)

    def read(self, timeout_seconds: float) -> list[Raw]:
        """Return the available whole lines, or an empty list if there was none within `timeout_seconds`.

        Raises
        ------
        EndOfSource
            The other end of the pipe is closed, and everything was read.
        SourceError
            Standard input cannot be read.
        """
        deadline = time.monotonic() + timeout_seconds
        while self._open_stream is not None:
            data = self._read_available(self._open_stream, max(deadline - time.monotonic(), 0.0))
            if data is None:
                return []
            if not data:
                self.close()
            raws = self._cutter.feed(data) if data else self._cutter.finish()
            if raws:
                return raws
        raise EndOfSource

    def _read_available(self, stream: BinaryIO, timeout_seconds: float) -> bytes | None:
        """Return the available bytes, b"" if the other end is closed, or None if nothing came in time."""
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
        """Stop reading. The stream stays open, because it belongs to the caller."""
        if self._selector is not None:
            self._selector.close()
            self._selector = None
        self._open_stream = None

    @property
    def up(self) -> bool:
        """True while the source is open and the other end of the pipe may still write."""
        return self._open_stream is not None
