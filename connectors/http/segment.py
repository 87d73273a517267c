"""The format of the spool's files (segments): frames of whole lines, each with a checksum.

::

    frame    magic 4 bytes | checksum uint32 | start uint64 | rows uint32 | length uint32 | lines
    file     consecutive frames; the name of the file is the `start` of its first frame, in 20 digits

Numbers are little-endian. The checksum (CRC-32) covers everything after it in the frame. The checksum shows
whether a crash has cut off a frame. The highest bit of `rows` is set if the lines were posted as labels. An
offset (`start`) is the number of bytes of lines since the first file that the spool ever wrote; the heads of
frames do not count. A place is the number of bytes from the beginning of one file, including the heads.
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
"""The size of the head of a frame."""


@dataclass(slots=True)
class SpoolSegment:
    """A file of the spool. All fields describe only the complete frames that are synced to the disk.

    Parameters
    ----------
    path : Path
    start, end : int
        The offset of the first line, and the offset after the last line.
    size : int
        The number of bytes of all frames.
    rows : int
        The number of lines.
    """

    path: Path
    start: int
    end: int
    size: int = 0
    rows: int = 0


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame of the spool: the values in its head, and its place in the file.

    Parameters
    ----------
    start : int
        The offset of the first line.
    length : int
        The number of bytes of the lines.
    rows : int
        The number of lines.
    place : int
        The place of the frame in its file, in bytes.
    labels : bool
        Whether the lines were posted as labels.
    """

    start: int
    length: int
    rows: int
    place: int
    labels: bool = False

    @property
    def end(self) -> int:
        """The offset after the last line of the frame."""
        return self.start + self.length

    @property
    def next_place(self) -> int:
        """The place in the file at which the next frame begins."""
        return self.place + FRAME_BYTES + self.length


def name_of(start: int) -> str:
    """Return the name of the file whose first line begins at this offset.

    Examples
    --------
    >>> name_of(81)
    '00000000000000000081.spool'
    """
    return f"{start:020d}{SUFFIX}"


def pack(start: int, rows: int, lines: bytes, labels: bool = False) -> bytes:
    """Return the bytes of a frame with these lines. `start`, `rows` and `labels` are as in `Frame`.

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
    """Return the frame at `offset` in `data` without checking its lines, or None if no frame begins there.

    `place` is the place of the frame in its file, in bytes.
    """
    if len(data) - offset < FRAME_BYTES:
        return None
    magic, _, start, rows, length = _HEAD.unpack_from(data, offset)
    if magic != _MAGIC:
        return None
    return Frame(start, length, rows & ~_LABELS, place, bool(rows & _LABELS))


def unpack(data: bytes | memoryview, offset: int, place: int) -> Frame | None:
    """Return the frame at `offset` in `data`, or None if the frame is incomplete or its checksum is wrong.

    Parameters
    ----------
    data : bytes
        A part of a file.
    offset : int
        The index in `data` at which the frame begins.
    place : int
        The place of the frame in the file, in bytes.
    """
    frame = unpack_head(data, offset, place)
    if frame is None or len(data) - offset < FRAME_BYTES + frame.length:
        return None
    checked = memoryview(data)[offset + _AFTER_CHECKSUM : offset + FRAME_BYTES + frame.length]
    return frame if zlib.crc32(checked) == _HEAD.unpack_from(data, offset)[1] else None


def segments_in(folder: Path) -> list[SpoolSegment]:
    """Return the files of a spool in order, without reading them. `measure` sets their sizes."""
    names = [path for path in folder.iterdir() if path.suffix == SUFFIX and path.stem.isdecimal()]
    return [SpoolSegment(path, int(path.stem), int(path.stem)) for path in sorted(names)]


def measure(segment: SpoolSegment, until: int | None) -> None:
    """Read the frames of a file, set its `end`, `size` and `rows`, and remove an incomplete last frame.

    Parameters
    ----------
    segment : SpoolSegment
        A file from `segments_in`.
    until : int or None
        The start of the next file, or None for the last file. Only the last file may end in an incomplete
        frame, because each frame is synced to the disk before the next one is written.

    Raises
    ------
    SourceError
        The file has any other damage, so that acknowledged records would be lost.
    """
    with segment.path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if until is None:
            _add_checked_frames(segment, file.read())
        else:
            for frame in frames_by_head(file.fileno(), size):
                if frame.start != segment.end or frame.end > until:
                    break
                _add_frame(segment, frame)
            if segment.end != until:
                raise damaged(segment, segment.size)
    if until is None and segment.size < size:
        os.truncate(segment.path, segment.size)


def _add_checked_frames(segment: SpoolSegment, data: bytes) -> None:
    """Count the valid frames of a file; raise SourceError if there is a valid frame after an invalid one."""
    while (frame := unpack(data, segment.size, segment.size)) is not None and frame.start == segment.end:
        _add_frame(segment, frame)
    place = data.find(_MAGIC, segment.size + 1)
    while place >= 0:
        head = unpack_head(data, place, place)
        if head is not None and _may_follow(segment, head) and unpack(data, place, place) is not None:
            raise damaged(segment, segment.size)
        place = data.find(_MAGIC, place + 1)


def _may_follow(segment: SpoolSegment, frame: Frame) -> bool:
    """Return whether a frame fits its place behind the whole ones, unlike bytes of a post that look like one.

    This check is cheap, and comes before the checksum: a post may have 100,000 such places.
    """
    lines = frame.start - segment.end
    heads = frame.place - segment.size - lines
    return frame.length > 0 and lines >= 0 and heads >= FRAME_BYTES and heads % FRAME_BYTES == 0


def _add_frame(segment: SpoolSegment, frame: Frame) -> None:
    segment.end, segment.size = frame.end, frame.next_place
    segment.rows += frame.rows


def frames_by_head(descriptor: int, size: int) -> Iterator[Frame]:
    """Yield the frames of a file up to the first incomplete frame, without checking the checksums.

    Parameters
    ----------
    descriptor : int
        The descriptor of the open file.
    size : int
        The size of the file in bytes.
    """
    place = 0
    while place < size:
        frame = unpack_head(os.pread(descriptor, FRAME_BYTES, place), 0, place)
        if frame is None or frame.next_place > size:
            return
        yield frame
        place = frame.next_place


def damaged(segment: SpoolSegment, place: int) -> SourceError:
    """Return the error to raise if no valid frame begins at a place where one must begin."""
    return SourceError(
        f"The spool's file {segment.path} is damaged at byte {place}; restore it from a backup, or move "
        "the spool's folder away to continue without its records"
    )
