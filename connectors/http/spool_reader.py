"""The reader of a spool's files, which returns the lines of their frames."""

from __future__ import annotations

import os
from collections.abc import Sequence

from connectors.http.segment import FRAME_BYTES, SpoolSegment, damaged, frames_by_head, unpack, unpack_head
from monitor.base.errors import SourceError
from monitor.base.spool import SpoolLines, merge_stretches

_READ_BYTES = 1 << 20


class SpoolReader:
    """A reader of the files of a spool in order, used by one thread.

    Parameters
    ----------
    position : int
        The offset of the first line to read.

    Attributes
    ----------
    position : int
        The offset of the next line.
    rows_before : int
        The number of lines before `position`, counted from the first file that existed when reading began.
    """

    def __init__(self, position: int) -> None:
        self.position = position
        self.rows_before = 0
        self._segment: SpoolSegment | None = None
        self._file: int | None = None
        self._place = 0

    def read(self, segment: SpoolSegment, size: int) -> list[SpoolLines]:
        """Return about 1 MiB of lines, or one larger frame, and move the position.

        Consecutive frames are joined if the lines of all of them were posted as labels, or none of them.

        Parameters
        ----------
        segment : SpoolSegment
            The file that contains the position.
        size : int
            The number of bytes of this file that are synced to the disk.

        Raises
        ------
        SourceError
            The file is damaged or cannot be read.
        """
        try:
            return self._read(segment, size)
        except SourceError:
            raise
        except Exception as error:
            raise damaged(segment, self._place) from error

    def _read(self, segment: SpoolSegment, size: int) -> list[SpoolLines]:
        file = self._switch(segment)
        stretches: list[SpoolLines] = []
        offset = 0
        data = self._some_frames(file, segment, size)
        while (frame := unpack(data, offset, self._place)) is not None and (
            frame.start <= self.position < frame.end
        ):
            body = offset + FRAME_BYTES
            lines = data[body + self.position - frame.start : body + frame.length]
            stretches.append(SpoolLines(lines, self.position, frame.labels))
            offset = body + frame.length
            self.position, self._place = frame.end, frame.next_place
            self.rows_before += frame.rows
        if not offset:
            raise damaged(segment, self._place)
        return merge_stretches(stretches)

    def skip(self, segments: Sequence[SpoolSegment]) -> None:
        """Skip the frames before the position without reading their lines, and count their rows.

        Parameters
        ----------
        segments : sequence of SpoolSegment
            One or more files of the spool. The position may be the end of the last file.
        """
        self.rows_before = sum(segment.rows for segment in segments if segment.end <= self.position)
        here = next((segment for segment in segments if segment.end > self.position), None)
        if here is None:  # new lines will follow in the last file
            self._switch(segments[-1])
            self._place = segments[-1].size
            return
        for frame in frames_by_head(self._switch(here), here.size):
            if frame.end > self.position:
                return
            self._place = frame.next_place
            self.rows_before += frame.rows

    def _switch(self, segment: SpoolSegment) -> int:
        """Open a file at its start, unless it is open already, and return its descriptor."""
        if self._file is None or self._segment is not segment:
            self.close()
            self._file = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
            self._segment, self._place = segment, 0
        return self._file

    def _some_frames(self, file: int, segment: SpoolSegment, size: int) -> bytes:
        """Return bytes from the current place on, with at least one complete frame."""
        data = os.pread(file, min(_READ_BYTES, size - self._place), self._place)
        head = unpack_head(data, 0, self._place)
        if head is None or head.next_place > size:
            raise damaged(segment, self._place)
        if head.next_place - self._place > len(data):
            data = os.pread(file, head.next_place - self._place, self._place)
        return data

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
