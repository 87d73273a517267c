"""The division of files into splits, which several processes can read at the same time.

The records of all splits, in the order of the splits, have the same order as in the whole file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from connectors.files import FileSource
from connectors.formats.files.compressed import head_of
from connectors.formats.files.line_cutter import BLOCK_BYTES, begins_array
from connectors.formats.files.tables import ROWS, open_parquet
from monitor.base.errors import SourceError
from monitor.base.source import (
    EndOfSource,
    Raw,
    RawBlock,
    RawDamaged,
    RawMessages,
    RawPosition,
    RawSkipped,
    RawTable,
)

SPLIT_BYTES = 32 << 20
"""The approximate size of a split: some 200,000 records of NDJSON, which take seconds to read.

If an executor is lost, its split is soon read again.
"""

_WHOLE = (".csv", ".gz", ".zst")
_SEARCH_BYTES = 4096  # bytes to search at once; most lines are shorter

OfFile = RawBlock | RawTable | RawSkipped | RawDamaged


@dataclass(frozen=True, slots=True)
class Split:
    """A part of a file, with whole records.

    Parameters
    ----------
    path : str
        The path of the file, as reports name it.
    start : int
        The byte offset of the first record, or the number of the first row of a table.
    stop : int or None
        The start of the next split; None for the last split of a file.
    """

    path: str
    start: int
    stop: int | None


def splits_of(path: Path, size: int = SPLIT_BYTES) -> list[Split]:
    """Return the splits of a file, each of about `size` bytes.

    A split of NDJSON begins with the line that contains the byte at a multiple of `size`. A split of Parquet
    begins at a row group, at the same row as a table of `FileSource`. A CSV file is one split, because a
    quoted cell may have several lines. A JSON array and a compressed file are one split too.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "p.ndjson"
    >>> _ = path.write_bytes(b'{"id": 1}\\n' * 5)
    >>> [(split.start, split.stop) for split in splits_of(path, size=24)]
    [(0, 20), (20, 40), (40, None)]
    """
    starts = _starts(path, size)
    return [Split(str(path), a, b) for a, b in zip(starts, [*starts[1:], None], strict=True)]


def _starts(path: Path, size: int) -> list[int]:
    kind = path.suffix.lower()
    if kind == ".parquet":
        return _row_groups(path, size)
    return _lines(path, size) if is_plain(path) and not begins_array(head_of(path)) else [0]


def _lines(path: Path, size: int) -> list[int]:
    starts = [0]
    with path.open("rb") as file:
        for place in range(size, path.stat().st_size, size):
            start = _last_line(file, starts[-1], place)
            if start > starts[-1]:
                starts.append(start)
    return starts


def _last_line(file: BinaryIO, first: int, place: int) -> int:
    """Return the byte offset of the last line that begins at or before `place`.

    Parameters
    ----------
    file : binary file
    first : int
        The byte offset of an earlier line, at which the backward search ends.
    place : int
        A byte offset.
    """
    step, stop = _SEARCH_BYTES, place
    while stop > first:
        start = max(first, stop - step)
        file.seek(start)
        newline = file.read(stop - start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        step, stop = 2 * step, start
    return first


def _row_groups(path: Path, size: int) -> list[int]:
    starts, rows, held = [0], 0, 0
    with open_parquet(path) as file:
        for number in range(file.metadata.num_row_groups):
            group = file.metadata.row_group(number)
            start = -(-rows // ROWS) * ROWS  # a reader from the first row begins a table there too
            if held and held + group.total_byte_size > size and starts[-1] < start < file.metadata.num_rows:
                starts.append(start)
                held = 0
            rows += group.num_rows
            held += group.total_byte_size
    return starts


def is_plain(path: Path) -> bool:
    """Return whether a file can be divided at its lines, because it is neither a table nor compressed."""
    return path.suffix.lower() not in (*_WHOLE, ".parquet")


def read_split(source: FileSource, split: Split, at_once: int) -> Iterator[list[Raw]]:
    """Yield the records of a split, in lists of at least `at_once` blocks or tables.

    The last list may be shorter.

    A block has about 1 MiB of lines, and a table has at most 8,192 rows. A split of lines with at most twice
    the size of a block is read as one block.

    Parameters
    ----------
    source : FileSource
        A source of the file. The function opens the source, and closes it at the end.
    split : Split
    at_once : int

    Raises
    ------
    SourceError
        The file cannot be read, is damaged, or has become shorter.
    """
    if split.start == split.stop:
        return
    if is_plain(source.path) and split.stop is not None and split.stop - split.start <= 2 * BLOCK_BYTES:
        source.block_bytes = split.stop - split.start
    source.open({source.partition: split.start})
    pending: list[Raw] = []
    try:
        while True:
            for raw in source.read(0.0):
                assert not isinstance(raw, RawMessages | RawPosition)  # they come from other sources
                if raw.start < split.start:
                    raise SourceError(f"{split.path}: it has become shorter while it was read; run it again")
                cut, ended = _cut_at(raw, split.stop)
                pending += [] if cut is None else [cut]
                if ended:
                    raise EndOfSource
            if len(pending) >= at_once:
                yield pending
                pending = []
    except EndOfSource:
        if pending:
            yield pending
    finally:
        source.close()


def _cut_at(raw: OfFile, stop: int | None) -> tuple[OfFile | None, bool]:
    """Return the records before `stop`, or None if there are none, and whether the split ends there.

    `stop` is the end of the split, or None if the split ends with the file.
    """
    if stop is None:
        return raw, False
    if raw.start >= stop:
        return None, True
    left = stop - raw.start
    if isinstance(raw, RawBlock) and len(raw.data) >= left:
        return replace(raw, data=raw.data[:left]), True
    if isinstance(raw, RawTable) and len(raw) >= left:
        columns = {name: column[:left] for name, column in raw.columns.items()}
        broken = {row: why for row, why in raw.broken.items() if row < left}
        return replace(raw, columns=columns, broken=broken), True
    return raw, False
