"""Input files in splits that can be read side by side, in the order in which one process would read them."""

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
"""Of NDJSON some 200,000 records: seconds of work, so that what is lost with an executor is soon made up."""

_WHOLE = (".csv", ".gz", ".zst")
_LOOKED_AT = 4096  # bytes before a place: most lines are shorter

OfFile = RawBlock | RawTable | RawSkipped | RawDamaged


@dataclass(frozen=True, slots=True)
class Split:
    """A part of a file, from one record's start to another's.

    Parameters
    ----------
    path : str
        As it is named in reports.
    start : int
        Byte offset, or row of a table.
    stop : int or None
        Where the next split begins; None at the file's end.
    """

    path: str
    start: int
    stop: int | None


def splits_of(path: Path, size: int = SPLIT_BYTES) -> list[Split]:
    """A file in splits of about so many bytes.

    NDJSON is cut before the lines that span a multiple of the size, as `FileSource` cuts what it reads;
    Parquet where `FileSource` does, at the first such row of a row group. CSV, whose quotes may span lines,
    a JSON array, and what is compressed as a whole are one split.

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
    """Where the last line begins that begins before a place or there; `first` is where another does."""
    looked_at, stop = _LOOKED_AT, place
    while stop > first:
        start = max(first, stop - looked_at)
        file.seek(start)
        found = file.read(stop - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        looked_at, stop = 2 * looked_at, start
    return first


def _row_groups(path: Path, size: int) -> list[int]:
    starts, rows, held = [0], 0, 0
    with open_parquet(path) as file:
        for number in range(file.metadata.num_row_groups):
            group = file.metadata.row_group(number)
            start = -(-rows // ROWS) * ROWS  # where a reader from the first row cuts too
            if held and held + group.total_byte_size > size and starts[-1] < start < file.metadata.num_rows:
                starts.append(start)
                held = 0
            rows += group.num_rows
            held += group.total_byte_size
    return starts


def is_plain(path: Path) -> bool:
    """Whether a file is cut by its lines."""
    return path.suffix.lower() not in (*_WHOLE, ".parquet")


def read_split(source: FileSource, split: Split, at_once: int) -> Iterator[list[Raw]]:
    """What is in a split, so many reads at a time: each brings a MiB of lines, or a table of 8,192 rows.

    A split of lines that is not much larger is one read, which ends where the split does.

    Raises
    ------
    SourceError
        The file cannot be read, is damaged, or is not what it was.
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
                assert not isinstance(raw, RawMessages | RawPosition)  # a file has lines or rows
                if raw.start < split.start:
                    raise SourceError(f"{split.path}: it has become shorter while it was read; run it again")
                cut, ended = _until(raw, split.stop)
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


def _until(raw: OfFile, stop: int | None) -> tuple[OfFile | None, bool]:
    """What of it lies before a place, and whether nothing else does."""
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
