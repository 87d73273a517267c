"""Cuts a stream of bytes into blocks of whole lines, in bounded memory."""

from __future__ import annotations

from connectors.formats.decode.structs import MAX_LINE_BYTES, RAW_BYTES
from monitor.base.source import Raw, RawBlock, RawSkipped

BLOCK_BYTES = 1 << 20
"""Read at once: larger blocks do not decode faster, and cost memory."""


class LineCutter:
    """Takes bytes as they come, gives whole lines, and keeps the rest until its newline comes.

    It never holds more than one block and one line of `max_line_bytes`: of a longer line it keeps the
    first 2,000 bytes and a count, and hands on a `RawSkipped` once the line has ended.

    Parameters
    ----------
    partition : str
    start : int, default 0
        Position of the first byte that will be fed.
    max_line_bytes : int, default 1 MiB

    Examples
    --------
    >>> cutter = LineCutter("p")
    >>> [raw.data for raw in cutter.feed(b"one\\ntw")], cutter.position
    ([b'one\\n'], 4)
    >>> [raw.data for raw in cutter.feed(b"o\\n")], cutter.position
    ([b'two\\n'], 8)
    """

    def __init__(self, partition: str, start: int = 0, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self.partition = partition
        self.max_line_bytes = max_line_bytes
        self.position = start
        self._kept = b""
        self._too_long = False  # whether what is kept is only the head of a line that is passed over
        self._skipped = 0  # bytes passed over beyond that head

    @property
    def fed(self) -> int:
        """Position after the last byte that was fed."""
        return self.position + len(self._kept) + self._skipped

    @property
    def head(self) -> bytes:
        """The first bytes, at most 2,000, of the line that has not ended."""
        return self._kept[:RAW_BYTES]

    def feed(self, data: bytes) -> list[Raw]:
        """Take the next bytes; give what they completed."""
        found: list[Raw] = []
        if self._too_long:
            end = data.find(b"\n") + 1
            if not end:
                self._skipped += len(data)
                return []
            self._skipped += end
            found.append(self._end_skipped())
            data = data[end:]
        data = self._kept + data
        cut = data.rfind(b"\n") + 1
        if cut:
            found.append(RawBlock(data[:cut], self.partition, self.position))
            self.position += cut
        self._kept = data[cut:]
        if len(self._kept) > self.max_line_bytes:
            self._too_long = True
            self._skipped = max(len(self._kept) - RAW_BYTES, 0)
            self._kept = self._kept[:RAW_BYTES]
        return found

    def finish(self) -> list[Raw]:
        """Give the last line, though no newline ended it."""
        if self._too_long:
            return [self._end_skipped()]
        if not self._kept:
            return []
        block = RawBlock(self._kept, self.partition, self.position)
        self.position += len(self._kept)
        self._kept = b""
        return [block]

    def _end_skipped(self) -> RawSkipped:
        size = len(self._kept) + self._skipped
        skipped = RawSkipped(self._kept, size, self.partition, self.position)
        self.position += size
        self._kept, self._too_long, self._skipped = b"", False, 0
        return skipped
