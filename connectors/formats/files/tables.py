"""Reads CSV and Parquet files as tables of a few thousand rows."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from connectors.formats.decode.structs import MAX_LINE_BYTES
from connectors.formats.files.compressed import DAMAGED, DECOMPRESSORS, DamagedFileError
from connectors.formats.files.table_rows import KNOWN_COLUMNS, is_column
from connectors.formats.messages.wording import listing
from monitor.base.errors import MissingExtraError, SourceError
from monitor.base.source import RawTable

ROWS = 8192
"""Rows a table: about 1 MiB of ordinary records."""
TABLE_BYTES = 4 << 20
"""About so many bytes a table may have at most, unpacked, unless one row has more."""
_WHOLE_GROUP_BYTES, _FEW_ROWS = 64 << 20, 64
_DICTIONARIES = {"RLE_DICTIONARY", "PLAIN_DICTIONARY"}


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
    mapped: Collection[str] = (),
    max_line_bytes: int = MAX_LINE_BYTES,
    table_bytes: int = TABLE_BYTES,
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
    csv.field_size_limit(max(csv.field_size_limit(), max_line_bytes))  # it bounds a cell at 128 KiB
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
        next(islice(rows, start, start), None)  # those before are passed over
        begin = lines.characters
        while some := _some(rows, lines, table_bytes):
            yield replace(_table(names, some, partition, start), size=lines.characters - begin)
            begin = lines.characters
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
    """Lines of a file, each cut at a length, so that a file without newlines cannot fill the memory.

    A row may have several lines, as a newline may stand between quotes: together they are bounded too.
    """

    def __init__(self, file: TextIO, max_characters: int) -> None:
        self._file, self._max = file, max_characters
        self.characters = 0
        self.cut = False
        self.fault: Exception | None = None
        self._row_begins = 0

    def __iter__(self) -> _BoundedLines:
        return self

    def __next__(self) -> str:
        if self.characters - self._row_begins >= self._max:
            self.cut = True  # the lines before this one belong to one row
            raise csv.Error(self.too_long)
        line = self._read()
        if not line:
            raise StopIteration
        self.characters += len(line)
        if len(line) == self._max and not line.endswith("\n"):
            self.cut = True
            while (rest := self._read()) and not rest.endswith("\n"):
                pass
        return line

    @property
    def too_long(self) -> str:
        """What is wrong with a row that was cut."""
        return f"a row of more than {self._max} characters; send one record a row"

    def begin_row(self) -> None:
        """Note that the next line begins a row."""
        self.cut, self._row_begins = False, self.characters

    def _read(self) -> str:
        try:
            return "" if self.fault else self._file.readline(self._max)
        except DAMAGED as error:  # kept, so that the rows before it are used first
            self.fault = error
            return ""


def _rows(reader: Any, lines: _BoundedLines) -> Iterator[tuple[list[str], str | None]]:
    """Cells of each row, or none and why; blank lines are passed over."""
    while True:
        lines.begin_row()
        try:
            cells = next(reader, None)
        except csv.Error as error:
            yield [], lines.too_long if lines.cut else f"not CSV: {error}"
            continue
        if cells is None:
            return
        if lines.cut:
            yield [], lines.too_long
        elif cells:
            yield cells, None


def _some(
    rows: Iterator[tuple[list[str], str | None]], lines: _BoundedLines, most_characters: int
) -> list[tuple[list[str], str | None]]:
    """The rows of one table."""
    some, end = [], lines.characters + most_characters
    for row in rows:
        some.append(row)
        if len(some) == ROWS or lines.characters >= end:
            break
    return some


@contextmanager
def open_parquet(path: Path, packed: bool = False) -> Iterator[Any]:
    """A Parquet file, as pyarrow's `ParquetFile`.

    Parameters
    ----------
    path : Path
    packed : bool, default False
        Whether columns of text stay dictionaries with indices: a text of 150 kB that stands in each row
        takes 150 kB.

    Raises
    ------
    MissingExtraError
        pyarrow is not installed.
    SourceError
        It is no Parquet file, or is damaged.
    """
    try:
        import pyarrow
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise MissingExtraError("Reading Parquet files", "files") from error
    try:
        with ParquetFile(path) as file:
            texts = _packed_texts(file) if packed and not _is_small(file.metadata) else []
            if not texts:
                yield file
                return
            with ParquetFile(path, metadata=file.metadata, read_dictionary=texts) as opened:
                yield opened
    except (pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError, OSError) as error:
        raise SourceError(f"{path} cannot be read as Parquet: {error}") from error


def _is_small(metadata: Any) -> bool:
    """Whether all rows fit into the memory, even if each had the largest cell of its column."""
    if metadata.num_rows > ROWS:
        return False
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    largest = sum(
        group.column(number).total_uncompressed_size
        for group in groups
        for number in range(group.num_columns)
    )
    return bool(metadata.num_rows * largest <= _WHOLE_GROUP_BYTES)


def _packed_texts(file: Any) -> list[str]:
    """The columns of text that stand in the file as dictionaries with indices."""
    names = {field.name for field in file.schema_arrow if _is_text(field.type)}
    groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
    found = []
    for number in range(len(file.schema)):
        name = file.schema.column(number).path
        encodings = (
            {each for group in groups for each in group.column(number).encodings} if name in names else set()
        )
        # pyarrow unpacks no other encoding into a dictionary but the plain one.
        if encodings & _DICTIONARIES and not any(each.startswith("DELTA") for each in encodings):
            found.append(name)
    return found


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_string(kind) or types.is_binary(kind))


def read_parquet(
    path: Path,
    partition: str,
    start: int,
    mapped: Collection[str] = (),
    max_line_bytes: int = MAX_LINE_BYTES,
    table_bytes: int = TABLE_BYTES,
) -> Iterator[RawTable]:
    """The rows of a Parquet file from number `start` on; row groups before it are not read.

    A row whose cells have more than `max_line_bytes` together is handed on as broken.

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
        for table in _tables(path, partition, start, mapped, max_line_bytes, table_bytes):
            yield table
            start = table.start + len(table)
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


def _tables(
    path: Path, partition: str, start: int, mapped: Collection[str], max_line_bytes: int, table_bytes: int
) -> Iterator[RawTable]:
    with open_parquet(path, packed=True) as file:
        names = file.schema_arrow.names
        wanted = _wanted(path, names, mapped)
        # The others by name only, so that a message can say which was probably meant.
        columns = {name: name in wanted for name in names}
        groups, first = _row_groups_from(file.metadata, start)
        rows = _rows_at_once(file, groups, wanted)
        held = _HeldRows(columns, partition, max(start, first), max_line_bytes, table_bytes)
        for batch in file.iter_batches(rows, row_groups=groups, columns=wanted, use_threads=False):
            passed_over = max(held.end - first, 0)
            first += batch.num_rows
            if passed_over < batch.num_rows:
                yield from held.add(batch.slice(passed_over))
        yield from held.finish()


class _HeldRows:
    """Rows of Parquet that wait for their table to be full.

    Where tables end depends on the rows alone, not on where reading began, as long as that is where one
    ended: what a full memory lets go of depends on it.

    Parameters
    ----------
    columns : mapping of str to bool
        Names of columns, and whether they are read.
    partition : str
    begin : int
        Number of the first row.
    max_line_bytes : int
        A row of more is broken, and not unpacked.
    table_bytes : int
        About so much a table has at most.
    """

    def __init__(
        self, columns: dict[str, bool], partition: str, begin: int, max_line_bytes: int, table_bytes: int
    ) -> None:
        self._columns, self._partition = columns, partition
        self._max_line_bytes, self._table_bytes = max_line_bytes, table_bytes
        self._parts: list[tuple[Any, NDArray[np.int64]]] = []
        self._bytes = 0
        self._begin = self.end = begin

    def add(self, batch: Any) -> Iterator[RawTable]:
        """Take rows; give the tables that they fill."""
        sizes = _row_bytes(batch)
        while len(sizes):
            count = min(len(sizes), (self._begin // ROWS + 1) * ROWS - self.end)
            # A row that is too long is not unpacked.
            total = np.cumsum(np.where(sizes[:count] > self._max_line_bytes, 0, sizes[:count])) + self._bytes
            fits = int(np.searchsorted(total, self._table_bytes, side="right"))
            if not self._parts:
                fits = max(fits, 1)
            taken = min(count, fits)
            if taken:
                self._parts.append((batch.slice(0, taken), sizes[:taken]))
                self._bytes, self.end = int(total[taken - 1]), self.end + taken
            batch, sizes = batch.slice(taken), sizes[taken:]
            if fits < count or self.end % ROWS == 0:
                yield from self.finish()

    def finish(self) -> Iterator[RawTable]:
        """Give the table of the rows that wait, if there are any."""
        parts, self._parts = self._parts, []
        start, self._begin = self._begin, self.end
        size, self._bytes = self._bytes, 0
        if not parts:
            return
        too_long = np.concatenate([sizes for _, sizes in parts])
        broken = {
            int(row): f"a row of {too_long[row]} bytes; at most {self._max_line_bytes} are allowed"
            for row in np.flatnonzero(too_long > self._max_line_bytes)
        }
        columns: dict[str, list[object]] = {
            name: [
                value
                for batch, sizes in parts
                for value in _values(batch.column(name), sizes <= self._max_line_bytes)
            ]
            if is_read
            else []
            for name, is_read in self._columns.items()
        }
        yield RawTable(columns, self._partition, start, broken, size=size)


def _row_bytes(batch: Any) -> NDArray[np.int64]:
    """About how many bytes each row takes once it is unpacked."""
    sizes = np.zeros(batch.num_rows, dtype=np.int64)
    for column in batch.columns:
        sizes += _cell_bytes(column)
    return sizes


def _cell_bytes(column: Any) -> NDArray[np.int64] | int:
    from pyarrow import compute, types

    if types.is_dictionary(column.type):
        lengths = compute.binary_length(column.dictionary).fill_null(0).to_numpy(zero_copy_only=False)
        indices = column.indices.fill_null(0).to_numpy(zero_copy_only=False)
        return np.asarray(lengths[indices], dtype=np.int64) if len(lengths) else 0
    if _is_text(column.type) or types.is_large_string(column.type) or types.is_large_binary(column.type):
        lengths = compute.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False)
        return np.asarray(lengths, dtype=np.int64)
    return int(column.nbytes) // max(len(column), 1)  # of lists the mean: few rows of them are read at once


def _values(column: Any, usable: NDArray[np.bool_]) -> Sequence[object]:
    """The values of a column; None where a row is not used."""
    from pyarrow import types

    if types.is_dictionary(column.type):
        column = column if usable.all() else column.filter(_mask(usable))
        column = column.dictionary_decode()
    elif not usable.all():
        column = column.filter(_mask(usable))
    values: list[object] = column.to_pylist()
    if len(values) == len(usable):
        return values
    found = iter(values)
    return [next(found) if here else None for here in usable.tolist()]


def _mask(usable: NDArray[np.bool_]) -> Any:
    import pyarrow

    return pyarrow.array(usable)


def _rows_at_once(file: Any, groups: Sequence[int], wanted: Collection[str]) -> int:
    """How many rows to unpack at once: fewer where a row group is large, or its size does not show.

    It does not show of texts within lists, and of those that are encoded by what they share with the row
    before (DELTA_BYTE_ARRAY): few bytes may become many.
    """
    if _is_small(file.metadata):
        return ROWS
    largest = 0
    leaves = [file.schema.column(number) for number in range(len(file.schema))]
    mine = [number for number, leaf in enumerate(leaves) if leaf.path.split(".")[0] in {*map(_first, wanted)}]
    for group in map(file.metadata.row_group, groups):
        columns = [(leaves[number], group.column(number)) for number in mine]
        for leaf, column in columns:
            nested = leaf.max_repetition_level > 0 and leaf.physical_type == "BYTE_ARRAY"
            if nested or "DELTA_BYTE_ARRAY" in column.encodings:
                return _FEW_ROWS
        largest = max(largest, sum(column.total_uncompressed_size for _, column in columns))
    return max(min(ROWS, ROWS * _WHOLE_GROUP_BYTES // max(largest, 1)), _FEW_ROWS)


def _first(name: str) -> str:
    return name.split(".")[0]


def _row_groups_from(metadata: Any, start: int) -> tuple[list[int], int]:
    """The row groups that hold rows from number `start` on, and the number of their first row."""
    first = 0
    for number in range(metadata.num_row_groups):
        rows = metadata.row_group(number).num_rows
        if first + rows > start:
            return list(range(number, metadata.num_row_groups)), first
        first += rows
    return [], first
