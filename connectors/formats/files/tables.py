"""The reader of CSV and Parquet files, which returns tables of a few thousand rows."""

from __future__ import annotations

import csv
import io
import os
import re
from collections import deque
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
from connectors.formats.messages.explain import is_utf_16
from connectors.formats.messages.wording import listing
from connectors.formats.wires.marks import formats_of_table
from monitor.base.errors import MissingExtraError, SourceError
from monitor.base.registry import FORMATS
from monitor.base.source import RawTable

ROWS = 8192
"""The number of rows of a table, about 1 MiB of ordinary records."""
TABLE_BYTES = 4 << 20
"""The approximate largest size of a table in uncompressed bytes. A single row may be larger."""
_WHOLE_GROUP_BYTES, _FEW_ROWS = 64 << 20, 64
_SMALL_BYTES = 1 << 20
_DICTIONARIES = {"RLE_DICTIONARY", "PLAIN_DICTIONARY"}


class _EveryColumn(frozenset[str]):
    """A set that contains every name."""

    def __contains__(self, name: object) -> bool:
        return True

    def __bool__(self) -> bool:
        return True


EVERY_COLUMN: frozenset[str] = _EveryColumn()
"""A value of `mapped` with which all columns are read, for the inspection of a table."""


def columns_read(names: Sequence[str], mapped: Collection[str] = ()) -> list[str]:
    """Return the names of the columns of a table that must be read.

    Parameters
    ----------
    names : sequence of str
        The names of all columns.
    mapped : collection of str
        The columns that the mapping names. Without a mapping, the result has the columns with the names of
        Blindsight's fields. If the names show another known format, the result has the columns of this
        format. With `EVERY_COLUMN`, the result has all columns, except unknown columns with a name that
        occurs twice.

    Raises
    ------
    SourceError
        Two of the columns have the same name.

    Examples
    --------
    >>> columns_read(["id", "scores", "comment"]), columns_read(["id", "p"], ["p"])
    (['id', 'scores'], ['p'])
    >>> columns_read(["databricks_request_id", "response", "request"])
    ['databricks_request_id', 'response']
    """
    read = [name for name in names if name in mapped] if mapped else _known(names)
    if mapped is EVERY_COLUMN:
        read = [name for name in read if is_column(name) or read.count(name) == 1]
    twice = next((name for name in read if read.count(name) > 1), None) if len({*read}) < len(read) else None
    if twice is not None:
        raise SourceError(f"two columns are called {twice}; rename one, or leave it out")
    return read


def _known(names: Sequence[str]) -> list[str]:
    """Return the columns with our names, or those of a format."""
    formats = formats_of_table(names)
    if not formats:
        return [name for name in names if is_column(name)]
    parts = [FORMATS[tag].columns for tag in formats]
    wanted = frozenset[str]().union(*parts) if all(parts) else frozenset(names)
    return [name for name in names if name in wanted]


def read_csv(
    path: Path,
    partition: str,
    start: int,
    mapped: Collection[str] = (),
    max_line_bytes: int = MAX_LINE_BYTES,
    table_bytes: int = TABLE_BYTES,
) -> Iterator[RawTable]:
    """Yield the rows of a CSV file from row number `start` on.

    The first line of the file names the columns.

    A row is marked in `RawTable.broken` if it has more cells than there are columns, is too long, or has a
    quoted cell that does not end. Blanks around column names are ignored. If the first line has blanks after
    its commas, blanks after the commas of all rows are ignored too. Columns without a name are ignored. Bytes
    that are not UTF-8 become lone surrogates, and the decoder rejects only the rows with such bytes. A file
    with the extension ``.gz`` or ``.zst`` is decompressed.

    Parameters
    ----------
    path : Path
    partition : str
        The partition of the tables.
    start : int
        The number of the first row to return; the first row of the file has the number 0.
    mapped : collection of str
        The columns that a mapping reads: see `columns_read`.
    max_line_bytes, table_bytes : int
        The largest size of a row, and the approximate largest size of a table. For CSV, both are counted in
        characters.

    Raises
    ------
    SourceError
        The first line is not a list of column names in UTF-8, separated by commas; two of the columns to read
        have the same name; or none of the columns is one that the mapping reads (without a mapping: one of
        Blindsight's fields, or of a known format).
    DamagedFileError
        The file is damaged. The function has yielded every whole row before the damage.
    """
    csv.field_size_limit(max(csv.field_size_limit(), max_line_bytes))  # the default is 128 KiB
    with _open_text(path) as file:
        lines = _BoundedLines(file, max_line_bytes)
        names, why = _names(lines, mapped)
        if why is not None:
            message = f"{path}: the first line of a CSV file must name its columns, but {why}"
            raise DamagedFileError(message, 0) if lines.fault else SourceError(message)
        rows = _rows(lines, len(names))
        next(islice(rows, start, start), None)  # skip the rows before `start`
        begin = lines.characters
        while some := _some(rows, lines, table_bytes):
            yield replace(_table(names, some, partition, start), size=lines.characters - begin)
            begin = lines.characters
            start += len(some)
        if lines.fault is not None:
            message = f"{path} is damaged after row {start}: {lines.fault}"
            raise DamagedFileError(message, start) from lines.fault


_FRACTION = re.compile(r"-?[0-9]*\.(?!0+$)[0-9]+(e-?[0-9]+)?", re.IGNORECASE)


def _open_text(path: Path) -> TextIO:
    opened = DECOMPRESSORS.get(path.suffix.lower())
    stream = path.open("rb") if opened is None else opened(path)
    return io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline="")


def _names(lines: _BoundedLines, mapped: Collection[str]) -> tuple[list[str], str | None]:
    """Return the names of the columns, and their fault as the end of a sentence, or None."""
    cells, broken = next(_rows(lines), ([], None))
    if not cells and broken is None:  # the fault is known only after the first row was read
        broken = f"it is damaged: {lines.fault}" if lines.fault else "it is empty"
    if broken is None:
        without = next(csv.reader(lines.row, skipinitialspace=True))
        lines.blanks = without != cells
        names = zip(cells, without, strict=False)
        cells = [
            name if name in mapped and mapped is not EVERY_COLUMN else bare.strip() for name, bare in names
        ]
    why = broken or _why_no_names(cells, mapped)
    if why is None and mapped is EVERY_COLUMN:
        cells = [name if is_column(name) or cells.count(name) == 1 else "" for name in cells]
    return cells, why


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _why_no_names(names: list[str], mapped: Collection[str]) -> str | None:
    """Return the fault of the names of columns as the end of a sentence, or None."""
    whole = ",".join(names)
    if is_utf_16(whole.encode("utf-8", "surrogateescape")):
        return "it is in UTF-16; save the file as UTF-8, with commas (Excel: CSV UTF-8)"
    try:
        read = columns_read([name for name in names if name], mapped)
    except SourceError as error:
        return str(error)
    number = next((name for name in names if _FRACTION.fullmatch(name)), None)
    if number is not None and (not read or mapped is EVERY_COLUMN or all(map(_is_number, names))):
        return f"{number} is a number: put a line with the names of the columns before the others"
    if read and not (mapped is EVERY_COLUMN and len(names) == 1):
        return None
    for delimiter, word in ((";", "semicolons"), ("\t", "tabs"), ("|", "bars")):
        parts = [name.strip() for name in whole.split(delimiter)]
        if len(parts) > 1 and any(name in mapped or is_column(name) for name in parts):
            return f"it has {word} between them; put commas, there and in every row"
    if read:
        return None
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
        elif len(cells) > width and any(cells[width:]):
            broken[i] = f"expected {width} cells, got {len(cells)}"
    columns: dict[str, list[object]] = {
        name: [cells[k] if k < len(cells) else None for cells, _ in rows]
        for k, name in enumerate(names)
        if name
    }
    return RawTable(columns, partition, start, broken)


_MOST_LINES = 200
"""The largest number of lines of a row: an open quote would make one cell of the rest of the file."""

_MOST_AGAIN = 1000
"""The budget of lines to read again, to which each row adds `_AGAIN_A_ROW`. It bounds the cost of a file full
of open quotes to a few readings."""
_AGAIN_A_ROW = 2


class _BoundedLines:
    """The lines of a file, cut at a limit, so that a file without newlines cannot fill the memory.

    The lines of the current row are kept, and can be read again if they turn out to be several rows.
    """

    def __init__(self, file: TextIO, max_characters: int) -> None:
        self._file, self.max = file, max_characters
        self._again: deque[str] = deque()
        self._size = self._number = self.characters = 0
        self._again_left, self.most_lines = _MOST_AGAIN, _MOST_LINES
        self.row: list[str] = []
        self.blanks = self.cut = self.ended = False
        self.fault: Exception | None = None

    def __iter__(self) -> _BoundedLines:
        return self

    def __next__(self) -> str:
        line = self._again.popleft() if self._again else self._next()
        if not line:
            self.ended = True
            raise StopIteration
        self._number += 1
        self.characters += len(line)
        self._size += len(line)
        self.row.append(line)
        if len(line) == self.max and not line.endswith("\n"):
            self.cut = True
        if self.too_many:
            raise StopIteration
        return line

    @property
    def first(self) -> int:
        """The number of the first line of the row, counted from 1."""
        return self._number - len(self.row) + 1

    @property
    def too_many(self) -> bool:
        """True if the row has more lines or characters than a row may have."""
        return len(self.row) > 1 and (len(self.row) > self.most_lines or self._size > self.max)

    def begin(self) -> None:
        """Start a row."""
        self._again_left = min(self._again_left + _AGAIN_A_ROW, _MOST_AGAIN)
        self.most_lines = min(_MOST_LINES, self._again_left)
        self.row.clear()
        self._size = 0
        self.cut = self.ended = False

    def keep_first(self) -> str:
        """Return the first line of the row, and put back the others to be read again."""
        self._again.extendleft(reversed(self.row[1:]))
        self._again_left = max(self._again_left - len(self.row) + 1, 0)
        self._number -= len(self.row) - 1
        self.characters -= sum(map(len, self.row[1:]))
        return self.row[0]

    def _next(self) -> str:
        line = self._read()
        if len(line) == self.max and not line.endswith("\n"):
            while (rest := self._read()) and not rest.endswith("\n"):
                pass
        return line

    def _read(self) -> str:
        try:
            return "" if self.fault else self._file.readline(self.max)
        except DAMAGED as error:  # kept until the rows before it have been returned
            self.fault = error
            return ""


def _rows(lines: _BoundedLines, width: int = 0) -> Iterator[tuple[list[str], str | None]]:
    """Yield the cells of each row with its fault or None; blank lines are skipped.

    An open quote makes one cell of all later lines. So a row of several lines is checked: if it is not
    plausible, only its first line is broken, and the others are read again.

    Parameters
    ----------
    lines : _BoundedLines
    width : int
        The number of columns, 0 for the line of names.
    """
    reader = csv.reader(lines, skipinitialspace=lines.blanks)
    while True:
        lines.begin()
        why = None
        try:
            cells = next(reader, None)
        except csv.Error as error:
            cells, why = [], f"not CSV: {error}"
        if cells is None:
            return
        if lines.cut:
            why = f"a row of more than {lines.max} characters; send one record a row"
        elif len(lines.row) > 1 or lines.ended:
            why = why or _why_no_row(lines, cells, width)
        elif len(cells) < width and cells and not lines.row[0].endswith(("\n", "\r")):
            why = f"expected {width} cells, got {len(cells)}: the file ends within this row"
        if why is not None:
            yield _cells_of(lines.keep_first()), why
        elif cells:
            yield cells, None


def _some(
    rows: Iterator[tuple[list[str], str | None]], lines: _BoundedLines, most_characters: int
) -> list[tuple[list[str], str | None]]:
    """Return the rows of the next table."""
    some, end = [], lines.characters + most_characters
    for row in rows:
        some.append(row)
        if len(some) == ROWS or lines.characters >= end:
            break
    return some


def _why_no_row(lines: _BoundedLines, cells: list[str], width: int) -> str | None:
    """Return the fault of a row of several lines or of the last row, or None."""
    begins = f"in line {lines.first} a quote opens a cell"
    if lines.ended:
        return f"{begins} that does not end before the file does"
    if lines.too_many:
        return f"{begins} that does not end within {lines.most_lines} lines or {lines.max} characters"
    try:
        next(csv.reader(lines.row, strict=True, skipinitialspace=lines.blanks))
    except csv.Error as error:
        return f"{begins} that ends {len(lines.row) - 1} lines later, within another ({error})"
    if len(cells) > width > 0:
        return f"{begins} of {len(lines.row)} lines, and the row has {len(cells)} cells, expected {width}"
    between = lines.row[1:-1]
    alike = sum(len(_cells_of(line)) == width for line in between)
    if width > 1 and alike > 1 and alike * 2 > len(between):
        return f"{begins} of {len(lines.row)} lines, of which {alike} look like rows"
    return None


def _cells_of(line: str) -> list[str]:
    """Return the cells of one line, even if its quotes are wrong."""
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return []


@contextmanager
def open_parquet(path: Path, packed: bool = False) -> Iterator[Any]:
    """Open a Parquet file as pyarrow's `ParquetFile`.

    Parameters
    ----------
    path : Path
    packed : bool, default False
        True to keep columns of text dictionary-encoded. Then a text that many rows repeat is in memory only
        once.

    Raises
    ------
    MissingExtraError
        pyarrow is not installed.
    SourceError
        The file is no Parquet file, or is damaged.
    """
    with _open_measured(path, packed) as (file, _):
        yield file


@contextmanager
def _open_measured(path: Path, packed: bool) -> Iterator[tuple[Any, int]]:
    """Open a file as `open_parquet` does, and measure how many bytes its rows can take at most."""
    try:
        import pyarrow
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise MissingExtraError("Reading Parquet files", "files") from error
    try:
        # Given a path, `ParquetFile` would look for its file system, and reject a name that is not UTF-8.
        with pyarrow.OSFile(os.fsencode(path)) as source:
            # Filling a buffer in advance takes another thread, and longer than reading a small file.
            file = ParquetFile(source, pre_buffer=False)
            most = _most_bytes(file.metadata)
            if most > _SMALL_BYTES:
                texts = _packed_texts(file) if packed and not _is_small(file.metadata) else []
                file = ParquetFile(source, metadata=file.metadata, read_dictionary=texts or None)
            yield file, most
    except (pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError, OSError) as error:
        raise SourceError(f"{path} cannot be read as Parquet: {error}") from error


def _most_bytes(metadata: Any) -> int:
    """Return an upper bound of the uncompressed bytes of all rows: each value may take its whole column.

    The bound is far too large for files of many rows, and shows cheaply that small files are small.
    """
    most = 0
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for number in range(group.num_columns):
            column = group.column(number)
            most += column.num_values * column.total_uncompressed_size
    return most


def _is_small(metadata: Any) -> bool:
    """Return whether all rows fit into memory, even if each had the largest cell of its column."""
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
    """Return the columns of text that the file stores dictionary-encoded."""
    names = {field.name for field in file.schema_arrow if _is_text(field.type)}
    groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
    packed = []
    for number in range(len(file.schema)):
        name = file.schema.column(number).path
        encodings = (
            {each for group in groups for each in group.column(number).encodings} if name in names else set()
        )
        # pyarrow reads only these and the plain encoding as a dictionary.
        if encodings & _DICTIONARIES and not any(each.startswith("DELTA") for each in encodings):
            packed.append(name)
    return packed


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
    """Yield the rows of a Parquet file from row number `start` on.

    Row groups before this row are not read. A row whose cells together exceed `max_line_bytes` is marked in
    `RawTable.broken`. See `read_csv` for the parameters.

    Raises
    ------
    MissingExtraError
        pyarrow is not installed.
    SourceError
        Two columns to read have the same name, or there is no column to read: see `columns_read`.
    DamagedFileError
        The file is no Parquet file, or is damaged. The function has yielded the rows before the damage.
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
    """The names of the columns make the whole file unusable."""


def _wanted(path: Path, names: list[str], mapped: Collection[str]) -> list[str]:
    """Return the columns to read, or raise an `_UnusableError`."""
    try:
        wanted = columns_read(names, mapped)
    except SourceError as error:
        raise _UnusableError(f"{path}: {error}") from error
    if not wanted:
        ours = f"the mapping reads {', '.join(mapped)}" if mapped else "name them as docs/records.md says"
        raise _UnusableError(f"{path}: none of its columns is known ({listing(names)}); {ours}")
    return wanted


def _tables(
    path: Path, partition: str, start: int, mapped: Collection[str], max_line_bytes: int, table_bytes: int
) -> Iterator[RawTable]:
    with _open_measured(path, packed=True) as (file, most):
        names = file.schema_arrow.names
        wanted = _wanted(path, names, mapped)
        # Other columns stay by name, so that a message can suggest one.
        columns = {name: name in wanted for name in names}
        if start == 0 and most <= min(max_line_bytes, table_bytes, _SMALL_BYTES):
            yield from _whole(file, columns, partition)
            return
        groups, first = _row_groups_from(file.metadata, start)
        rows = _rows_at_once(file, groups, wanted)
        held = _HeldRows(columns, partition, max(start, first), max_line_bytes, table_bytes)
        for batch in file.iter_batches(rows, row_groups=groups, columns=wanted, use_threads=False):
            passed_over = max(held.end - first, 0)
            first += batch.num_rows
            if passed_over < batch.num_rows:
                yield from held.add(batch.slice(passed_over))
        yield from held.finish()


def _whole(file: Any, columns: dict[str, bool], partition: str) -> Iterator[RawTable]:
    """Yield all rows of a file that is too small to have a row over the limit."""
    wanted = [name for name, is_read in columns.items() if is_read]
    rows = file.read(None if len(wanted) == len(columns) else wanted, use_threads=False)
    size = sum(file.metadata.row_group(number).total_byte_size for number in range(file.num_row_groups))
    for start in range(0, rows.num_rows, ROWS):
        some = rows if rows.num_rows <= ROWS else rows.slice(start, ROWS)
        cells = {name: _cells(some.column(name)) if is_read else [] for name, is_read in columns.items()}
        yield RawTable(cells, partition, start, size=size * len(some) // len(rows))


class _HeldRows:
    """A buffer of rows of Parquet, which collects them until they fill a table.

    The ends of tables depend only on the rows, if reading starts at the end of a table. So a restart does not
    change the rows that are shed if the memory is full.

    Parameters
    ----------
    columns : mapping of str to bool
        For each name of a column, whether the column is read.
    partition : str
    begin : int
        The number of the first row.
    max_line_bytes : int
        The limit of a row; a longer one is broken and is not decompressed.
    table_bytes : int
        The approximate limit of a table.
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
        """Add rows, and yield the tables that they fill."""
        sizes = _row_bytes(batch)
        while len(sizes):
            count = min(len(sizes), (self._begin // ROWS + 1) * ROWS - self.end)
            # A row that is too long is not decompressed.
            total = np.cumsum(np.where(sizes[:count] > self._max_line_bytes, 0, sizes[:count])) + self._bytes
            fits = int(np.searchsorted(total, self._table_bytes, side="right"))
            if not self._parts:
                fits = max(fits, 1)
            kept = min(count, fits)
            if kept:
                self._parts.append((batch.slice(0, kept), sizes[:kept]))
                self._bytes, self.end = int(total[kept - 1]), self.end + kept
            batch, sizes = batch.slice(kept), sizes[kept:]
            if fits < count or self.end % ROWS == 0:
                yield from self.finish()

    def finish(self) -> Iterator[RawTable]:
        """Yield the table of the remaining rows, if there are any."""
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
    """Return an estimate of the uncompressed bytes of each row."""
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
    return int(column.nbytes) // max(len(column), 1)  # the mean for lists, read in few rows at once


def _values(column: Any, usable: NDArray[np.bool_]) -> Sequence[object]:
    """Return the values of a column, None in unusable rows."""
    from pyarrow import types

    if types.is_dictionary(column.type):
        column = column if usable.all() else column.filter(_mask(usable))
        column = column.dictionary_decode()
    elif not usable.all():
        column = column.filter(_mask(usable))
    values = _cells(column)
    if len(values) == len(usable):
        return values
    remaining = iter(values)
    return [next(remaining) if here else None for here in usable.tolist()]


def _mask(usable: NDArray[np.bool_]) -> Any:
    import pyarrow

    return pyarrow.array(usable)


def _rows_at_once(file: Any, groups: Sequence[int], wanted: Collection[str]) -> int:
    """Return the number of rows to decompress at once: fewer for large row groups and for unknown sizes.

    The sizes of texts in lists are unknown, and so are those of texts that store only their difference to the
    row before (DELTA_BYTE_ARRAY), where few bytes may become many.
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


def _cells(column: Any) -> list[object]:
    """Return the cells of a column, those that Python cannot hold as text: they cost their rows alone."""
    if not column.type.num_fields or "map<" not in str(column.type):
        try:
            values: list[object] = column.to_pylist()
            return values
        except (ValueError, OverflowError, KeyError):  # invalid UTF-8, or an unknown year or zone
            pass
    return [_value(scalar) for scalar in column]


def _value(scalar: Any) -> object:
    from pyarrow import types

    kind = scalar.type
    if not scalar.is_valid:
        return None
    if types.is_dictionary(kind):
        return _value(scalar.value)
    if types.is_struct(kind):
        return {kind.field(i).name: _value(scalar[i]) for i in range(kind.num_fields)}
    if types.is_map(kind):
        pairs = [(_value(pair[0]), _value(pair[1])) for pair in scalar.values]
        return {text if isinstance(text, str) else str(text): value for text, value in pairs}
    if hasattr(scalar, "values"):
        return [_value(each) for each in scalar.values]
    try:
        value: object = scalar.as_py()
        return value
    except (ValueError, OverflowError, KeyError):
        return _as_text(scalar)


def _as_text(scalar: Any) -> str:
    """Return text with lone surrogates for invalid UTF-8, and a time that Python lacks in ISO 8601."""
    from pyarrow import types

    kind = scalar.type
    if hasattr(scalar, "as_buffer"):
        return bytes(scalar.as_buffer().to_pybytes()).decode("utf-8", "surrogateescape")
    unit: Any = "D" if types.is_date32(kind) else getattr(kind, "unit", "ms")
    zone = "Z" if getattr(kind, "tz", None) is not None else ""
    return f"{np.datetime64(scalar.value, unit)}{zone}"


def _row_groups_from(metadata: Any, start: int) -> tuple[list[int], int]:
    """Return the row groups that hold rows from number `start` on, and the number of their first row."""
    first = 0
    for number in range(metadata.num_row_groups):
        rows = metadata.row_group(number).num_rows
        if first + rows > start:
            return list(range(number, metadata.num_row_groups)), first
        first += rows
    return [], first
