"""Reads CSV and Parquet files as tables of a few thousand rows."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from connectors.base import RawTable
from connectors.formats.structs import MAX_LINE_BYTES
from connectors.formats.table_rows import is_column
from monitor.errors import MissingExtraError, SourceError

ROWS = 8192
"""Rows a table: about 1 MiB of ordinary records."""


def read_csv(
    path: Path, partition: str, start: int, max_line_bytes: int = MAX_LINE_BYTES
) -> Iterator[RawTable]:
    """The rows of a CSV file from number `start` on; its first line names the columns.

    A row with more cells than there are columns, or that is too long, is handed on as broken.
    Bytes that are not UTF-8 come as lone surrogates, for the decoder to reject that row alone.

    Raises
    ------
    SourceError
        There is no line with names, or one names two columns alike.
    """
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        lines = _BoundedLines(file, max_line_bytes)
        rows = _rows(csv.reader(lines), lines)
        names, broken = next(rows, ([], "it is empty"))
        if broken is not None or len(set(names)) != len(names):
            why = broken or "it names two columns alike"
            raise SourceError(f"{path}: the first line of a CSV file must name its columns, but {why}")
        rows = islice(rows, start, None)
        while some := list(islice(rows, ROWS)):
            yield _table(names, some, partition, start)
            start += len(some)


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

    def __iter__(self) -> _BoundedLines:
        return self

    def __next__(self) -> str:
        line = self._file.readline(self._max)
        if not line:
            raise StopIteration
        if len(line) == self._max and not line.endswith("\n"):
            self.cut = True
            while (rest := self._file.readline(self._max)) and not rest.endswith("\n"):
                pass
        return line


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


def read_parquet(path: Path, partition: str, start: int) -> Iterator[RawTable]:
    """The rows of a Parquet file from number `start` on.

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
            wanted = [name for name in file.schema_arrow.names if is_column(name)]
            first = 0
            for batch in file.iter_batches(batch_size=ROWS, columns=wanted):
                skipped = max(start - first, 0)
                if skipped < batch.num_rows:
                    some = batch.slice(skipped)
                    columns = {name: some.column(name).to_pylist() for name in wanted}
                    yield RawTable(columns, partition, first + skipped)
                first += batch.num_rows
    except (pyarrow.ArrowException, OSError) as error:
        raise SourceError(f"{path} cannot be read as Parquet: {error}") from error
