"""Which of the store's reports stand in the reports file, or in those that it was rotated to, already.

After a kill the store knows how far the file had come at the last checkpoint. More may have been written
since, the last line in part, and the file may have been renamed in between, more than once. What arrived is
told by the lines themselves: no two windows have the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, dropwhile
from pathlib import Path

from monitor.export.sinks.destination import Mark, ReportsAfter, Row

_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Arrived:
    """What was found.

    Parameters
    ----------
    last : int
        The last report that arrived whole; at least that of the mark.
    place : int
        Where it ends in the newest file, in bytes; 0 where it stands in an older one.
    torn : bool
        Whether a part of the next one follows, at the newest file's end.
    foreign : bool
        Whether something else follows there.
    """

    last: int
    place: int
    torn: bool = False
    foreign: bool = False


def arrived(files: Sequence[Path], mark: Mark, reports_after: ReportsAfter) -> Arrived:
    """Find the last report that arrived.

    Parameters
    ----------
    files : sequence of Path
        The newest first; that one exists.
    mark : (int, int)
        The last report at the last checkpoint, and the size of the file after it.
    reports_after : callable
        The store's reports.

    Raises
    ------
    OSError
        A file cannot be read.

    Examples
    --------
    One window was noted; then a second was written, the file renamed, and a third begun.

    >>> import tempfile
    >>> new, old = (Path(tempfile.mkdtemp(), "w"), Path(tempfile.mkdtemp(), "w.1"))
    >>> _ = old.write_bytes(b"one\\ntwo\\n"), new.write_bytes(b"thr")
    >>> rows = [(1, b"one"), (2, b"two"), (3, b"three")]
    >>> arrived([new, old], (1, 4), lambda last, most: [row for row in rows if row[0] > last][:most])
    Arrived(last=2, place=0, torn=True, foreign=False)
    """
    at, offset, rows = _beginning(files, mark, reports_after)
    found = Arrived(mark[0], offset)
    following = next(rows, None)
    for file in reversed(files[: at + 1]):
        found = Arrived(found.last, offset)
        for line in _lines(file, offset):
            whole = b"" if following is None else following[1] + b"\n"
            if following is None or line != whole:
                torn = not line.endswith(b"\n") and whole.startswith(line)
                found = Arrived(found.last, found.place, torn, foreign=not torn)
                break
            found = Arrived(following[0], found.place + len(line))
            following = next(rows, None)
        offset = 0
    return found


def _beginning(
    files: Sequence[Path], mark: Mark, reports_after: ReportsAfter
) -> tuple[int, int, Iterator[Row]]:
    """Where what came after the mark begins: number of the file, place in it, and the reports from there."""
    last, place = mark
    rows = _rows(last, reports_after)
    noted = [line + b"\n" for report, line in reports_after(last - 1, 1) if report == last]
    after = [line + b"\n" for _, line in reports_after(last, 1)]
    sizes = [file.stat().st_size for file in files]
    # The line before the place is gone from a store that keeps few: then the one behind it tells, there or
    # at the start of the file that was begun just then.
    known = [(line, place - len(line), place) for line in noted]
    known += [(line, start, start) for line in after for start in (place, 0)]
    for line, start, offset in known:
        for at, file in enumerate(files):
            if 0 <= start < sizes[at] and _holds(file, start, line):
                return at, offset, rows
    # Rotated away, with more than one file since: the oldest that is left begins amid what came after.
    oldest = len(files) - 1
    first = next(iter(_lines(files[oldest], 0)), b"")
    if first:
        rest = dropwhile(lambda row: row[1] + b"\n" != first, rows)
        row = next(rest, None)
        if row is not None:
            return oldest, 0, chain([row], rest)
    return 0, min(place, sizes[0]), _rows(last, reports_after)


def _rows(last: int, reports_after: ReportsAfter) -> Iterator[Row]:
    while rows := reports_after(last, _AT_ONCE):
        yield from rows
        last = rows[-1][0]


def _holds(file: Path, start: int, line: bytes) -> bool:
    with file.open("rb") as opened:
        opened.seek(start)
        return opened.read(len(line)) == line


def _lines(file: Path, offset: int) -> Iterator[bytes]:
    if file.stat().st_size <= offset:  # a device, such as /dev/full, may be read for ever and has no size
        return
    with file.open("rb") as opened:
        opened.seek(offset)
        yield from opened
