"""Reads CSV and Parquet files as tables of a few thousand rows."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from connectors.formats.decode.structs import MAX_LINE_BYTES
from connectors.formats.files.compressed import DAMAGED, DECOMPRESSORS, DamagedFileError
from connectors.formats.files.table_rows import KNOWN_COLUMNS, is_column
from connectors.formats.messages.wording import listing
from monitor.base.errors import MissingExtraError, SourceError
from monitor.base.source import RawTable

ROWS = 8192
"""Rows a table: about 1 MiB of ordinary records."""


class _EveryColumn(frozenset[str]):
    """Holds every name."""

    def __contains__(self, name: object) -> bool:
        return True

    def __bool__(self) -> bool:
        return True


EVERY_COLUMN: frozenset[str] = _EveryColumn()
"""As `mapped`: a table is read whole, to see what it holds."""


def read_csv(
    path: Path,
    partition: str,
    start: int,
    max_line_bytes: int = MAX_LINE_BYTES,
    mapped: Collection[str] = (),
) -> Iterator[RawTable]:
    """The rows of a CSV file from number `start` on; its first line names the columns.

    A row with more cells than there are columns, or that is too long, is handed on as broken.
    Bytes that are not UTF-8 come as lone surrogates, for the decoder to reject that row alone. A file whose
    name ends in ``.gz`` or ``.zst`` is unpacked; of a damaged one every whole row is given first.
    `mapped` are the columns that a mapping reads, where there is one: then they are those that are known.

    Raises
    ------
    SourceError
        There is no line with names, or one names two columns alike or none that is known.
    DamagedFileError
        Every whole row before the fault has been given.
    """
    with _open_text(path) as file:
        lines = _BoundedLines(file, max_line_bytes)
        rows = _rows(csv.reader(lines), lines)
        names, broken = next(rows, ([], None))
        if not names and broken is None:  # what is wrong shows only once that row was asked for
            broken = f"it is damaged: {lines.fault}" if lines.fault else "it is empty"
        why = broken or _why_no_names(names, mapped)
        if why is not None:
            message = f"{path}: the first line of a CSV file must name its columns, but {why}"
            raise DamagedFileError(message, 0) if lines.fault else SourceError(message)
        rows = islice(rows, start, None)
        while some := list(islice(rows, ROWS)):
            yield _table(names, some, partition, start)
            start += len(some)
        if lines.fault is not None:
            message = f"{path} is damaged after row {start}: {lines.fault}"
            raise DamagedFileError(message, start) from lines.fault


def _open_text(path: Path) -> TextIO:
    opened = DECOMPRESSORS.get(path.suffix.lower())
    stream = path.open("rb") if opened is None else opened(path)
    return io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline="")


def _is_read(name: str, mapped: Collection[str]) -> bool:
    """Whether a column is one of a record's, or of a mapping's where there is one."""
    return name in mapped if mapped else is_column(name)


def _why_no_names(names: list[str], mapped: Collection[str]) -> str | None:
    """What is wrong with the names of columns, as the end of a sentence."""
    if len(set(names)) != len(names):
        return "it names two columns alike"
    if any(_is_read(name, mapped) for name in names):
        return None
    for delimiter, word in ((";", "semicolons"), ("\t", "tabs"), ("|", "bars")):
        if any(
            name.strip() in mapped or is_column(name.strip()) for name in ",".join(names).split(delimiter)
        ):
            return f"it has {word} between them; put commas, there and in every row"
    if mapped:
        return f"none of them is among those that the mapping reads: {', '.join(mapped)}"
    return f"none of them is known; known are {', '.join(KNOWN_COLUMNS)}"


def _table(
    names: list[str], rows: list[tuple[list[str], str | None]], partition: str, start: int
) -> RawTable:
    width = len(names)
    broken: dict[int, str] = {}
    for i, (cells, why) in enumerate(rows):
        if why is not None:
            broken[i] = why
        elif len(cells) > width:
            broken[i] = f"expected {width} cells, got {len(cells)}"
    columns: dict[str, list[object]] = {
        name: [cells[k] if k < len(cells) else None for cells, _ in rows] for k, name in enumerate(names)
    }
    return RawTable(columns, partition, start, broken)


class _BoundedLines:
    """Lines of a file, each cut at a length, so that a file without newlines cannot fill the memory."""

    def __init__(self, file: TextIO, max_characters: int) -> None:
        self._file, self._max = file, max_characters
        self.cut = False
        self.fault: Exception | None = None

    def __iter__(self) -> _BoundedLines:
        return self

    def __next__(self) -> str:
        line = self._read()
        if not line:
            raise StopIteration
        if len(line) == self._max and not line.endswith("\n"):
            self.cut = True
            while (rest := self._read()) and not rest.endswith("\n"):
                pass
        return line

    def _read(self) -> str:
        try:
            return "" if self.fault else self._file.readline(self._max)
        except DAMAGED as error:  # kept, so that the rows before it are used first
            self.fault = error
            return ""


def _rows(reader: Any, lines: _BoundedLines) -> Iterator[tuple[list[str], str | None]]:
    """Cells of each row, or none and why; blank lines are passed over."""
    while True:
        lines.cut = False
        try:
            cells = next(reader, None)
        except csv.Error as error:
            yield [], f"not CSV: {error}"
            continue
        if cells is None:
            return
        if lines.cut:
            yield [], f"a row of more than {lines._max} characters; send one record a row"
        elif cells:
            yield cells, None


@contextmanager
def open_parquet(path: Path) -> Iterator[Any]:
    """A Parquet file, as pyarrow's `ParquetFile`.

    Raises
    ------
    MissingExtraError
        pyarrow is not installed.
    SourceError
        It is no Parquet file, or is damaged.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("Reading Parquet files", "files") from error
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            yield file
    except (pyarrow.ArrowException, OSError) as error:
        raise SourceError(f"{path} cannot be read as Parquet: {error}") from error


def read_parquet(path: Path, partition: str, start: int, mapped: Collection[str] = ()) -> Iterator[RawTable]:
    """The rows of a Parquet file from number `start` on; row groups before it are not read.

    Raises
    ------
    MissingExtraError
        pyarrow is not installed.
    SourceError
        Two columns that are read have one name, or none is known.
    DamagedFileError
        It is no Parquet file, or is damaged; what lies before the fault has been given.
    """
    try:
        for table in _tables(path, partition, start, mapped):
            yield table
            start = table.start + max(map(len, table.columns.values()), default=0)
    except _UnusableError:
        raise
    except SourceError as error:
        raise DamagedFileError(str(error), start) from error


class _UnusableError(SourceError):
    """A whole file of which nothing can be used, for the names of its columns."""


def _wanted(path: Path, names: list[str], mapped: Collection[str]) -> list[str]:
    """The columns that are read."""
    found = [name for name in names if _is_read(name, mapped)]
    twice = next((name for name in found if found.count(name) > 1), None)
    if twice is not None:
        raise _UnusableError(f"{path}: two of its columns are called {twice}; rename one, or drop it")
    if not found:
        ours = f"the mapping reads {', '.join(mapped)}" if mapped else "name them as docs/records.md says"
        raise _UnusableError(f"{path}: none of its columns is known ({listing(names)}); {ours}")
    return found


def _tables(path: Path, partition: str, start: int, mapped: Collection[str]) -> Iterator[RawTable]:
    with open_parquet(path) as file:
        names = file.schema_arrow.names
        wanted = _wanted(path, names, mapped)
        others = [name for name in names if name not in wanted]
        groups, first = _row_groups_from(file.metadata, start)

        def table(parts: list[Any], begin: int) -> RawTable:
            columns = {
                name: [row for each in parts for row in each.column(name).to_pylist()] for name in wanted
            }
            # The others by name only, so that a message can say which was probably meant.
            return RawTable({**{name: [] for name in others}, **columns}, partition, begin)

        held: list[Any] = []
        begin = at = max(start, first)
        for batch in file.iter_batches(batch_size=ROWS, columns=wanted, row_groups=groups):
            stop = first + batch.num_rows
            while at < stop:
                # Cut where a reader from the first row does: what a full memory lets go of depends on it.
                end = min(stop, (begin // ROWS + 1) * ROWS)
                held.append(batch.slice(at - first, end - at))
                at = end
                if at % ROWS == 0:
                    yield table(held, begin)
                    held, begin = [], at
            first = stop
        if held:
            yield table(held, begin)


def _row_groups_from(metadata: Any, start: int) -> tuple[list[int], int]:
    """The row groups that hold rows from number `start` on, and the number of their first row."""
    first = 0
    for number in range(metadata.num_row_groups):
        rows = metadata.row_group(number).num_rows
        if first + rows > start:
            return list(range(number, metadata.num_row_groups)), first
        first += rows
    return [], first
