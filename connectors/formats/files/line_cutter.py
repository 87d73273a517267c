"""Cuts a stream of bytes into blocks of whole lines, in bounded memory."""

from __future__ import annotations

import re

import numpy as np

from connectors.formats.decode.structs import MAX_LINE_BYTES, RAW_BYTES
from monitor.base.source import Raw, RawBlock, RawSkipped

BLOCK_BYTES = 1 << 20
"""The number of bytes to read at once; larger blocks take more memory and decode no faster."""


HEAD_BYTES = 1 << 10
"""The number of bytes at the start of a text that show whether it is a JSON array."""

_SEPARATORS = np.frombuffer(b",]", dtype=np.uint8)
_BREAKS, _WHITE = np.frombuffer(b"\r\n", dtype=np.uint8), np.frombuffer(b" \t\r\n", dtype=np.uint8)
_ENDS = np.frombuffer(b"}]", dtype=np.uint8)
_QUOTE, _BACKSLASH, _OPEN, _CLOSE, _BRACKET, _NEWLINE, _SPACE = b'"\\{}[\n '
_ARRAY = re.compile(rb"(\xef\xbb\xbf)?\s*\[\s*[{\]]")
_UNDECIDED = re.compile(rb"(\xef\xbb\xbf)?\s*(\[\s*)?")


class LineCutter:
    """A buffer that receives bytes, returns whole lines, and keeps a line until its newline arrives.

    The buffer holds at most one block and one line of `max_line_bytes`. The buffer keeps only the first 2,000
    bytes of a longer line and the number of its bytes. When the line ends, the buffer returns a `RawSkipped`.
    In a text that is one JSON array of objects, each element becomes a line. Each byte keeps its position in
    the file.

    Parameters
    ----------
    partition : str
        The name of the partition.
    start : int, default 0
        The position of the first byte to be fed.
    max_line_bytes : int, default 1 MiB
    head : bytes, optional
        The first bytes of the text, at most `HEAD_BYTES`. Required if `start` is not 0.

    Examples
    --------
    >>> cutter = LineCutter("p")
    >>> [raw.data for raw in cutter.feed(b"one\\ntw")], cutter.position
    ([b'one\\n'], 4)
    >>> [raw.data for raw in cutter.feed(b"o\\n")], cutter.position
    ([b'two\\n'], 8)
    >>> [(raw.data, raw.start) for raw in LineCutter("p").feed(b'[{"a":\\n[1, 2]}, {"b": "[,"}]')]
    [(b' {"a": [1, 2]}\\n {"b": "[,"}\\n', 0)]
    """

    def __init__(
        self, partition: str, start: int = 0, max_line_bytes: int = MAX_LINE_BYTES, head: bytes = b""
    ) -> None:
        self.partition = partition
        self.max_line_bytes = max_line_bytes
        self.position = start
        self._kept = b""
        self._too_long = False  # whether the kept bytes are the head of a line that is skipped
        self._skipped = 0  # skipped bytes after that head
        self._decided = start > 0
        self._elements = _Elements() if begins_array(head) else None

    @property
    def fed(self) -> int:
        """The position after the last byte that `feed` received."""
        return self.position + len(self._kept) + self._skipped

    @property
    def head(self) -> bytes:
        """The first bytes of the incomplete line at the end, at most 2,000."""
        return self._kept[:RAW_BYTES]

    def feed(self, data: bytes) -> list[Raw]:
        """Add the next bytes, and return the lines that are now complete."""
        if not self._decided:
            data, self._kept = self._kept + data, b""
            if len(data) < HEAD_BYTES and _UNDECIDED.fullmatch(data):
                self._kept = data
                return []
            self._decided, self._elements = True, _Elements() if begins_array(data) else None
        if self._elements is not None:
            data = self._elements.as_lines(data)
        raws: list[Raw] = []
        if self._too_long:
            end = data.find(b"\n") + 1
            if not end:
                self._skipped += len(data)
                return []
            self._skipped += end
            raws.append(self._end_skipped())
            data = data[end:]
        data = self._kept + data
        cut = data.rfind(b"\n") + 1
        if cut:
            raws.append(RawBlock(data[:cut], self.partition, self.position))
            self.position += cut
        self._kept = data[cut:]
        if len(self._kept) > self.max_line_bytes:
            self._too_long = True
            self._skipped = max(len(self._kept) - RAW_BYTES, 0)
            self._kept = self._kept[:RAW_BYTES]
        return raws

    def finish(self) -> list[Raw]:
        """Return the last line if it has no newline at its end. Call this method at the end of the input."""
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


class _Elements:
    """A converter of a JSON array to lines, one for each element.

    Between elements, commas and closing brackets become newlines, and opening brackets become blanks; line
    breaks become blanks, except after an element without a comma. A writer that appends elements overwrites
    the last bracket, so the text after it continues the array.
    """

    def __init__(self) -> None:
        self._depth = 0  # number of open braces
        self._in_text = False
        self._escapes = False  # whether the last byte is a backslash that escapes the next one
        self._last = _BRACKET  # the last byte other than white space

    def as_lines(self, data: bytes) -> bytes:
        """Return the next bytes of the array as lines."""
        text = np.frombuffer(data, dtype=np.uint8).copy()
        quotes = (text == _QUOTE) & ~self._escaped(text)
        # A closing quote counts as outside; this has no effect, because quotes are not replaced.
        inside = ((np.cumsum(quotes) + self._in_text) & 1).astype(bool)
        self._in_text = bool(inside[-1])
        outside = ~inside
        braces = (outside & (text == _OPEN)).astype(np.int64) - (outside & (text == _CLOSE))
        total = self._depth + np.cumsum(braces)
        depth = total - np.minimum(np.minimum.accumulate(total), 0)  # a surplus closing brace has no effect
        self._depth = int(depth[-1])
        between = outside & (depth == 0)
        breaks = outside & np.isin(text, _BREAKS)
        breaks[self._ends(text, np.flatnonzero(breaks & between))] = False
        text[breaks | (between & (text == _BRACKET))] = _SPACE
        text[between & np.isin(text, _SEPARATORS)] = _NEWLINE
        return text.tobytes()

    def _ends(self, data: np.ndarray, breaks: np.ndarray) -> np.ndarray:
        """Return the line breaks between elements that follow an element without a comma."""
        visible = np.flatnonzero(~np.isin(data, _WHITE))
        places = np.concatenate(([self._last], data[visible]))
        self._last = int(places[-1])
        return breaks[np.isin(places[np.searchsorted(visible, breaks)], _ENDS)]

    def _escaped(self, data: np.ndarray) -> np.ndarray:
        """Return a mask of the bytes after a backslash that is not escaped itself."""
        escaped = np.zeros(len(data) + 1, dtype=bool)
        escaped[0] = self._escapes
        for place in np.flatnonzero(data == _BACKSLASH).tolist():
            escaped[place + 1] = not escaped[place]
        self._escapes = bool(escaped[-1])
        return escaped[:-1]


def begins_array(head: bytes) -> bool:
    """Return whether a text that begins with these bytes is one JSON array of objects.

    Examples
    --------
    >>> begins_array(b' [\\n {"id": 1},'), begins_array(b'{"id": [1]}'), begins_array(b"[INFO] begun")
    (True, False, False)
    """
    return _ARRAY.match(head) is not None
