"""The search for the store's reports that are already in the reports file or its rotated predecessors.

After a kill, the store has the size of the file at the last checkpoint. After that checkpoint, the agent may
have written more lines, the last one perhaps only in part, and may have renamed the file more than once. The
search compares lines, because no two windows have the same line.
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
    """The result of `arrived`: the last complete report in the files, and the content after it.

    Parameters
    ----------
    last : int
        The id of the last complete report in the files, at least the id at the last checkpoint.
    place : int
        The byte offset of the end of this report in the newest file; 0 if the report is in an older file.
    torn : bool
        True if the newest file ends with a part of the next report.
    foreign : bool
        True if other content follows the report.
    """

    last: int
    place: int
    torn: bool = False
    foreign: bool = False


def arrived(files: Sequence[Path], mark: Mark, reports_after: ReportsAfter) -> Arrived:
    """Find the last report that is already in the files.

    Parameters
    ----------
    files : sequence of Path
        The reports file and its predecessors, the newest first; the newest one exists.
    mark : (int, int)
        The id of the last report at the last checkpoint, and the size of the file after this report.
    reports_after : callable
        Returns the store's reports: see `ReportStore.reports_after`.

    Raises
    ------
    OSError
        A file cannot be read.

    Examples
    --------
    At the checkpoint, the file held the first report. Then the agent wrote the second, renamed the file, and
    began the third.

    >>> import tempfile
    >>> new, old = (Path(tempfile.mkdtemp(), "w"), Path(tempfile.mkdtemp(), "w.1"))
    >>> _ = old.write_bytes(b"one\\ntwo\\n"), new.write_bytes(b"thr")
    >>> rows = [(1, b"one"), (2, b"two"), (3, b"three")]
    >>> arrived([new, old], (1, 4), lambda last, most: [row for row in rows if row[0] > last][:most])
    Arrived(last=2, place=0, torn=True, foreign=False)
    """
    at, offset, rows = _beginning(files, mark, reports_after)
    result = Arrived(mark[0], offset)
    following = next(rows, None)
    for file in reversed(files[: at + 1]):
        result = Arrived(result.last, offset)
        for line in _lines(file, offset):
            whole = b"" if following is None else following[1] + b"\n"
            if following is None or line != whole:
                torn = not line.endswith(b"\n") and whole.startswith(line)
                result = Arrived(result.last, result.place, torn, foreign=not torn)
                break
            result = Arrived(following[0], result.place + len(line))
            following = next(rows, None)
        offset = 0
    return result


def _beginning(
    files: Sequence[Path], mark: Mark, reports_after: ReportsAfter
) -> tuple[int, int, Iterator[Row]]:
    """Return the file and place where the content after the mark begins, and the reports after the mark."""
    last, place = mark
    rows = _rows(last, reports_after)
    noted = [line + b"\n" for report, line in reports_after(last - 1, 1) if report == last]
    after = [line + b"\n" for _, line in reports_after(last, 1)]
    sizes = [file.stat().st_size for file in files]
    # A store that keeps few reports may have dropped the line before the place. Then the next line is looked
    # for, at the place or at the start of a file that was begun just then.
    known = [(line, place - len(line), place) for line in noted]
    known += [(line, start, start) for line in after for start in (place, 0)]
    for line, start, offset in known:
        for at, file in enumerate(files):
            if 0 <= start < sizes[at] and _holds(file, start, line):
                return at, offset, rows
    # The marked file was deleted by rotation; the oldest remaining file begins somewhere after the mark.
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
    if file.stat().st_size <= offset:  # a device, such as /dev/full, has no size and may have no end
        return
    with file.open("rb") as opened:
        opened.seek(offset)
        yield from opened
