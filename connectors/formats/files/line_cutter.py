"""Cuts a stream of bytes into blocks of whole lines, in bounded memory."""

from __future__ import annotations

import re

import numpy as np

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


_QUOTE, _BACKSLASH, _COMMA, _NEWLINE, _SPACE = b'"\\,\n '
_OPENING, _CLOSING = np.frombuffer(b"[{", dtype=np.uint8), np.frombuffer(b"]}", dtype=np.uint8)
_ARRAY = re.compile(rb"(\xef\xbb\xbf)?\s*\[\s*[{\]]")
_BLANK = np.frombuffer(b"\r\n", dtype=np.uint8)


class ArrayCutter(LineCutter):
    """A cutter of one JSON array, the content of a file, into lines: one for each element.

    A comma between two elements becomes the end of a line; brackets of the array, and line breaks within it,
    become blanks. Each byte keeps its place, so that positions are those in the file. Of several arrays, one
    after the other, each is read so.

    Parameters
    ----------
    partition : str
    start : int, default 0
        Position of the first byte that will be fed: 0, or where an element begins.
    max_line_bytes : int, default 1 MiB

    Examples
    --------
    >>> cutter = ArrayCutter("p")
    >>> raws = [*cutter.feed(b'[{"a":\\n[1, 2]}, {"b": "[,"}]'), *cutter.finish()]
    >>> [(raw.data, raw.start) for raw in raws]
    [(b' {"a": [1, 2]}\\n', 0), (b' {"b": "[,"} ', 15)]
    """

    def __init__(self, partition: str, start: int = 0, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        super().__init__(partition, start, max_line_bytes)
        self._depth = 1 if start else 0
        self._in_text = False
        self._escapes = False  # whether the last byte was a backslash that escapes the next one

    def feed(self, data: bytes) -> list[Raw]:
        """Take the next bytes and return the lines that they complete."""
        return super().feed(self._as_lines(data)) if data else []

    def _as_lines(self, data: bytes) -> bytes:
        found = np.frombuffer(data, dtype=np.uint8).copy()
        quotes = (found == _QUOTE) & ~self._escaped(found)
        # A closing quote counts as outside, which changes nothing: no byte that is asked for is a quote.
        inside = ((np.cumsum(quotes) + self._in_text) & 1).astype(bool)
        self._in_text = bool(inside[-1])
        outside = ~inside
        opens, closes = outside & np.isin(found, _OPENING), outside & np.isin(found, _CLOSING)
        depth = self._depth + np.cumsum(opens.astype(np.int64) - closes)
        self._depth = int(depth[-1])
        brackets = (opens & (depth == 1)) | (closes & (depth == 0))
        found[brackets | (outside & (depth > 0) & np.isin(found, _BLANK))] = _SPACE
        found[outside & (found == _COMMA) & (depth == 1)] = _NEWLINE
        return found.tobytes()

    def _escaped(self, data: np.ndarray) -> np.ndarray:
        """Return (n,) bool, True where a byte follows a backslash that is not escaped itself."""
        escaped = np.zeros(len(data) + 1, dtype=bool)
        escaped[0] = self._escapes
        for place in np.flatnonzero(data == _BACKSLASH).tolist():
            escaped[place + 1] = not escaped[place]
        self._escapes = bool(escaped[-1])
        return escaped[:-1]


def begins_array(head: bytes) -> bool:
    """Return whether a file that begins with these bytes is one JSON array of objects.

    Examples
    --------
    >>> begins_array(b' [\\n {"id": 1},'), begins_array(b'{"id": [1]}'), begins_array(b"[INFO] begun")
    (True, False, False)
    """
    return _ARRAY.match(head) is not None
