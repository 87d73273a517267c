"""Reads CSV and Parquet files as tables of a few thousand rows."""

from __future__ import annotations

import csv
import io
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from connectors.formats.decode.structs import MAX_LINE_BYTES
from connectors.formats.files.compressed import DAMAGED, DECOMPRESSORS, DamagedFileError
from connectors.formats.files.table_rows import KNOWN_COLUMNS, is_column
from connectors.formats.messages.explain import UTF_16
from connectors.formats.messages.wording import listing
from connectors.formats.wires.marks import formats_of_table
from monitor.base.errors import MissingExtraError, SourceError
from monitor.base.registry import FORMATS
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


def columns_read(names: Sequence[str], mapped: Collection[str] = ()) -> list[str]:
    """Those of a table's columns that are read.

    Parameters
    ----------
    names : sequence of str
        Of all columns.
    mapped : collection of str
        The columns that a mapping reads. Where there is none, columns under our names are read, or those
        of the format whose marks the table has.

    Examples
    --------
    >>> columns_read(["id", "scores", "comment"]), columns_read(["id", "p"], ["p"])
    (['id', 'scores'], ['p'])
    >>> columns_read(["databricks_request_id", "response", "request"])
    ['databricks_request_id', 'response']
    """
    if mapped:
        return [name for name in names if name in mapped]
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
    max_line_bytes: int = MAX_LINE_BYTES,
    mapped: Collection[str] = (),
) -> Iterator[RawTable]:
    """The rows of a CSV file from number `start` on; its first line names the columns.

    A row with more cells than there are columns, that is too long, or whose quoted cell does not end, is
    handed on as broken. Blanks around the names of columns, and after each comma if they stand before names,
    do not count; columns without a name are passed over.
    Bytes that are not UTF-8 come as lone surrogates, for the decoder to reject that row alone. A file whose
    name ends in ``.gz`` or ``.zst`` is unpacked; of a damaged one every whole row is given first.
    `mapped` are the columns that a mapping reads, where there is one: then they are those that are known.

    Raises
    ------
    SourceError
        There is no line with names, or it names two columns that are read alike or none that is known.
    DamagedFileError
        Every whole row before the fault has been given.
    """
    with _open_text(path) as file:
        lines = _BoundedLines(file, max_line_bytes)
        names, why = _names(lines, mapped)
        if why is not None:
            message = f"{path}: the first line of a CSV file must name its columns, but {why}"
            raise DamagedFileError(message, 0) if lines.fault else SourceError(message)
        rows = islice(_rows(lines, len(names)), start, None)
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


def _names(lines: _BoundedLines, mapped: Collection[str]) -> tuple[list[str], str | None]:
    """The names of the columns, and what is wrong with them, as the end of a sentence."""
    cells, broken = next(_rows(lines), ([], None))
    if not cells and broken is None:  # what is wrong shows only once that row was asked for
        broken = f"it is damaged: {lines.fault}" if lines.fault else "it is empty"
    if broken is None:
        without = next(csv.reader(lines.row, skipinitialspace=True))
        lines.blanks = without != cells
        names = zip(cells, without, strict=False)
        cells = [
            name if name in mapped and mapped is not EVERY_COLUMN else bare.strip() for name, bare in names
        ]
    return cells, broken or _why_no_names(cells, mapped)


def _why_no_names(names: list[str], mapped: Collection[str]) -> str | None:
    """What is wrong with the names of columns, as the end of a sentence."""
    whole = ",".join(names)
    if "\0" in whole and whole.encode("utf-8", "surrogateescape").replace(b"\0", b"").startswith(UTF_16):
        return "it is in UTF-16; save the file as UTF-8, with commas (Excel: CSV UTF-8)"
    read = columns_read([name for name in names if name], mapped)
    twice = next((name for name in read if read.count(name) > 1), None)
    if twice is not None:
        return f"it names two columns {twice}; rename one, or drop it"
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
"""Lines of a row: a quote that is not closed would make one cell of the rest of the file."""


class _BoundedLines:
    """Lines of a file, each cut at a length, so that a file without newlines cannot fill the memory.

    It holds the lines of one row, which can be read again if they turn out to be several rows.
    """

    def __init__(self, file: TextIO, max_characters: int) -> None:
        self._file, self.max = file, max_characters
        self._again: deque[str] = deque()
        self._size = self._number = 0
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
        self._size += len(line)
        self.row.append(line)
        if len(line) == self.max and not line.endswith("\n"):
            self.cut = True
        if len(self.row) > 1 and (len(self.row) > _MOST_LINES or self._size > self.max):
            raise StopIteration
        return line

    @property
    def first(self) -> int:
        """The number of the row's first line, counted from 1."""
        return self._number - len(self.row) + 1

    @property
    def too_many(self) -> bool:
        """Whether the row has more lines than are read as one."""
        return len(self.row) > 1 and (len(self.row) > _MOST_LINES or self._size > self.max)

    def begin(self) -> None:
        """Begin a row."""
        self.row.clear()
        self._size = 0
        self.cut = self.ended = False

    def keep_first(self) -> str:
        """The first line of the row; the others will be read again."""
        self._again.extendleft(reversed(self.row[1:]))
        self._number -= len(self.row) - 1
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
        except DAMAGED as error:  # kept, so that the rows before it are used first
            self.fault = error
            return ""


def _rows(lines: _BoundedLines, width: int = 0) -> Iterator[tuple[list[str], str | None]]:
    """Cells of each row, and why it is none; blank lines are passed over.

    A quote that is not closed makes one cell of all that follows. So a row of several lines is looked at: if
    it is none, its first line alone is broken, and the others are read again.

    Parameters
    ----------
    lines : _BoundedLines
    width : int
        Columns; 0 for the line of names.
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


def _why_no_row(lines: _BoundedLines, cells: list[str], width: int) -> str | None:
    """What is wrong with a row of several lines, or of the last one; None where nothing is."""
    begins = f"in line {lines.first} a quote opens a cell"
    if lines.ended:
        return f"{begins} that does not end before the file does"
    if lines.too_many:
        return f"{begins} that does not end within {_MOST_LINES} lines or {lines.max} characters"
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
    """The cells of one line, whatever its quotes are."""
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return []


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
    found = columns_read(names, mapped)
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
            columns = {name: [row for each in parts for row in _values(each.column(name))] for name in wanted}
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


def _values(column: Any) -> list[object]:
    """The cells of a column; what Python cannot hold as text, so that it costs its row alone."""
    if "map<" not in str(column.type):
        try:
            values: list[object] = column.to_pylist()
            return values
        except (ValueError, OverflowError, KeyError):  # bytes of a text, a year, a zone
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
    """A text with lone surrogates for bytes that are not UTF-8; a time as ISO 8601 writes those years."""
    from pyarrow import types

    kind = scalar.type
    if hasattr(scalar, "as_buffer"):
        return bytes(scalar.as_buffer().to_pybytes()).decode("utf-8", "surrogateescape")
    unit: Any = "D" if types.is_date32(kind) else getattr(kind, "unit", "ms")
    zone = "Z" if getattr(kind, "tz", None) is not None else ""
    return f"{np.datetime64(scalar.value, unit)}{zone}"


def _row_groups_from(metadata: Any, start: int) -> tuple[list[int], int]:
    """The row groups that hold rows from number `start` on, and the number of their first row."""
    first = 0
    for number in range(metadata.num_row_groups):
        rows = metadata.row_group(number).num_rows
        if first + rows > start:
            return list(range(number, metadata.num_row_groups)), first
        first += rows
    return [], first
