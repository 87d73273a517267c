"""The erasure of single lines from a spool that no agent uses."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from connectors.http.segment import FRAME_BYTES, SpoolSegment, damaged, measure, pack, segments_in, unpack
from monitor.base.errors import SourceError
from monitor.base.files import put


@contextmanager
def idle_spool(folder: Path) -> Iterator[bool]:
    """Hold the lock of a spool's folder, so that no agent can open it.

    The context manager returns True. If an agent already uses the folder, it returns False and does not hold
    the lock. A folder without a lock file counts as unused.
    """
    try:
        file = os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        yield True
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
    else:
        yield True
    finally:
        os.close(file)


def erase(folder: Path, is_gone: Callable[[bytes], bool]) -> int:
    """Overwrite lines with spaces, and return the number of these lines.

    Readers skip the spaces, and the offsets of other lines do not change. The function writes each changed
    file under a temporary name and then renames it. After a crash, either the old or the new file exists, and
    either is complete.

    Parameters
    ----------
    folder : Path
        The spool's folder. The caller must hold its lock by `idle_spool`. If the folder does not exist,
        nothing is erased.
    is_gone : callable
        A function that returns whether a line, passed without its newline, must be erased.

    Raises
    ------
    SourceError
        A file is damaged or cannot be written.
    """
    if not folder.is_dir():
        return 0
    segments = segments_in(folder)
    try:
        for i, segment in enumerate(segments):  # remove a frame that a crash cut off, as at each start
            measure(segment, segments[i + 1].start if i + 1 < len(segments) else None)
        return sum(_erase_from(segment, is_gone) for segment in segments)
    except OSError as error:
        raise SourceError(f"The spool {folder} cannot be written: {error.strerror or error}") from error


def _erase_from(segment: SpoolSegment, is_gone: Callable[[bytes], bool]) -> int:
    data = segment.path.read_bytes()
    place, erased, parts = 0, 0, list[bytes]()
    while (frame := unpack(data, place, place)) is not None:
        lines = data[place + FRAME_BYTES : frame.next_place].split(b"\n")
        gone = [i for i, line in enumerate(lines) if line.strip() and is_gone(line)]
        for i in gone:
            lines[i] = b" " * len(lines[i])
        parts.append(pack(frame.start, frame.rows, b"\n".join(lines), frame.labels))
        place, erased = frame.next_place, erased + len(gone)
    if place < len(data):
        raise damaged(segment, place)
    if erased:
        put(segment.path, b"".join(parts))
    return erased
