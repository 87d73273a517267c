"""One file of the spool: frames of whole lines, each with a checksum, so that a torn end is seen.

::

    frame    magic 4 bytes | checksum uint32 | start uint64 | rows uint32 | length uint32 | lines
    file     a frame after another; its name is the start of its first, 20 digits

Numbers are little-endian; the checksum (CRC-32) covers all that follows it. The highest bit of `rows` is
set where the lines were posted as labels. `start` counts the bytes of
the lines alone, over all files: taken together, the lines are one NDJSON file that never ends, and the
frames are no part of its offsets.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from monitor.base.errors import SourceError

SUFFIX = ".spool"
_MAGIC = b"BSp1"
_HEAD = struct.Struct("<4sIQII")
_AFTER_CHECKSUM = 8
_LABELS = 1 << 31
FRAME_BYTES = _HEAD.size
"""What a frame takes beside its lines."""


@dataclass(slots=True)
class SpoolSegment:
    """A file of the spool, as far as it is on the disk for sure.

    Parameters
    ----------
    path : Path
    start, end : int
        Offsets of its first line and after its last, in lines' bytes over all files.
    size : int
        Bytes of its whole frames.
    rows : int
        Lines in it.
    """

    path: Path
    start: int
    end: int
    size: int = 0
    rows: int = 0


@dataclass(frozen=True, slots=True)
class Frame:
    """Where a frame lies: its lines' offset, their bytes, how many they are, and its place in the file.

    `labels` says whether they were posted as labels.
    """

    start: int
    length: int
    rows: int
    place: int
    labels: bool = False

    @property
    def end(self) -> int:
        return self.start + self.length

    @property
    def next_place(self) -> int:
        return self.place + FRAME_BYTES + self.length


def name_of(start: int) -> str:
    """The name of the file whose first line begins at this offset.

    Examples
    --------
    >>> name_of(81)
    '00000000000000000081.spool'
    """
    return f"{start:020d}{SUFFIX}"


def pack(start: int, rows: int, lines: bytes, labels: bool = False) -> bytes:
    """A frame, ready to be written.

    Examples
    --------
    >>> frame = pack(0, 1, b"{}\\n")
    >>> unpack(frame, 0, 0), len(frame) - FRAME_BYTES
    (Frame(start=0, length=3, rows=1, place=0, labels=False), 3)
    """
    rows |= _LABELS if labels else 0
    head = _HEAD.pack(_MAGIC, 0, start, rows, len(lines))
    checksum = zlib.crc32(lines, zlib.crc32(head[_AFTER_CHECKSUM:]))
    return _HEAD.pack(_MAGIC, checksum, start, rows, len(lines)) + lines


def unpack_head(data: bytes | memoryview, offset: int, place: int) -> Frame | None:
    """The frame that begins at `offset` of `data`, by its head alone; None where none does."""
    if len(data) - offset < FRAME_BYTES:
        return None
    magic, _, start, rows, length = _HEAD.unpack_from(data, offset)
    if magic != _MAGIC:
        return None
    return Frame(start, length, rows & ~_LABELS, place, bool(rows & _LABELS))


def unpack(data: bytes | memoryview, offset: int, place: int) -> Frame | None:
    """The frame that lies at `offset` of `data`; None where it is not whole, or its checksum is wrong.

    Parameters
    ----------
    data : bytes
    offset : int
        Within `data`.
    place : int
        The same within the file.
    """
    frame = unpack_head(data, offset, place)
    if frame is None or len(data) - offset < FRAME_BYTES + frame.length:
        return None
    checked = memoryview(data)[offset + _AFTER_CHECKSUM : offset + FRAME_BYTES + frame.length]
    return frame if zlib.crc32(checked) == _HEAD.unpack_from(data, offset)[1] else None


def segments_in(folder: Path) -> list[SpoolSegment]:
    """The files of a spool in their order, none of them looked into."""
    names = [path for path in folder.iterdir() if path.suffix == SUFFIX and path.stem.isdecimal()]
    return [SpoolSegment(path, int(path.stem), int(path.stem)) for path in sorted(names)]


def measure(segment: SpoolSegment, until: int | None) -> None:
    """Find where a segment's whole frames end, and cut off what a crash left torn behind them.

    Parameters
    ----------
    segment : SpoolSegment
        Its `end`, `size` and `rows` are set.
    until : int or None
        Where the next segment starts. None for the last: only that one may have a torn frame, as no
        frame is written before the one before it is on the disk.

    Raises
    ------
    SourceError
        It is damaged elsewhere than at its end: acknowledged records would be lost unseen.
    """
    with segment.path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if until is None:
            _take_checked(segment, file.read())
        else:
            for frame in frames_by_head(file.fileno(), size):
                if frame.start != segment.end or frame.end > until:
                    break
                _take(segment, frame)
            if segment.end != until:
                raise damaged(segment, segment.size)
    if until is None and segment.size < size:
        os.truncate(segment.path, segment.size)


def _take_checked(segment: SpoolSegment, data: bytes) -> None:
    while (frame := unpack(data, segment.size, segment.size)) is not None and frame.start == segment.end:
        _take(segment, frame)
    place = data.find(_MAGIC, segment.size + 1)
    while place >= 0:
        later = unpack(data, place, place)
        if later is not None and later.length and later.start >= segment.end:
            raise damaged(segment, segment.size)
        place = data.find(_MAGIC, place + 1)


def _take(segment: SpoolSegment, frame: Frame) -> None:
    segment.end, segment.size = frame.end, frame.next_place
    segment.rows += frame.rows


def frames_by_head(descriptor: int, size: int) -> Iterator[Frame]:
    """The frames of a file, their checksums unseen, as far as they are whole."""
    place = 0
    while place < size:
        frame = unpack_head(os.pread(descriptor, FRAME_BYTES, place), 0, place)
        if frame is None or frame.next_place > size:
            return
        yield frame
        place = frame.next_place


def damaged(segment: SpoolSegment, place: int) -> SourceError:
    """The error of a file whose frames do not follow each other."""
    return SourceError(
        f"The spool's file {segment.path} is damaged at byte {place}; restore it from a backup, or move "
        "the spool's folder away to continue without its records"
    )
