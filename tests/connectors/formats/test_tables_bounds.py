"""Tables in bounded memory: rows that unpack to many times their size, long cells, rows without an end."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from connectors.formats.files import tables as tables_module
from connectors.formats.files.tables import ROWS, open_parquet, read_csv, read_parquet
from monitor.base.source import RawTable
from tests.services.process import PATIENCE_SECONDS

Read = Callable[..., Iterator[RawTable]]


def column(tables: list[RawTable], name: str) -> list[object]:
    return [value for table in tables for value in table.columns[name]]


def repeated(path: Path, rows: int, size: int) -> Path:
    """Return a file in which every row has the same long text, which stands in it once."""
    text = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * rows, pyarrow.int32()), ["x" * size])
    pyarrow.parquet.write_table(pyarrow.table({"id": text, "label": ["yes"] * rows}), path)
    return path


def test_a_table_of_parquet_ends_at_so_many_bytes_unpacked(tmp_path: Path) -> None:
    path = repeated(tmp_path / "a.parquet", 500, 10_000)
    assert path.stat().st_size < 5000
    tables = list(read_parquet(path, "a", 0, table_bytes=100_000))
    assert {len(table) for table in tables} == {9, 500 % 9}
    assert column(tables, "id") == ["x" * 10_000] * 500
    assert all(table.size is not None and table.size <= 100_000 for table in tables)


def test_a_reader_that_begins_where_a_table_ended_gives_the_same_tables(tmp_path: Path) -> None:
    ids = [f"{number}" * (1 + number % 97) for number in range(3000)]
    data = {"id": ids, "label": ["yes", None, "no"] * 1000, "scores": [[0.25, 0.75]] * 3000}
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.table(data), path, row_group_size=700)
    csv = tmp_path / "a.csv"
    csv.write_text("id,label\n" + "".join(f"{each},yes\n" for each in ids))
    for read in (partial(read_parquet, path), partial(read_csv, csv)):
        tables = list(read("a", 0, table_bytes=20_000))
        assert len(tables) > 10
        assert column(tables, "id") == ids
        for table in tables:
            again = next(read("a", table.start, table_bytes=20_000))
            assert (again.start, again.columns) == (table.start, table.columns), read


def test_a_small_file_of_parquet_is_read_whole_with_the_same_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The witness holds rows until they fill a table."""
    rows = 40
    data = {
        "note": ["not read"] * rows,
        "id": pyarrow.array([f"r{number}" for number in range(rows)]).dictionary_encode(),
        "time": pyarrow.array([None, *range(1, rows)], pyarrow.timestamp("us", "UTC")),
        "scores": [[0.25, 0.75], None] * (rows // 2),
        "label": [b"\xff", b"yes"] * (rows // 2),
    }
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.table(data), path, row_group_size=16)
    held: list[int] = []

    class Held(tables_module._HeldRows):
        def __init__(self, *settings: Any) -> None:
            held.append(1)
            super().__init__(*settings)

    monkeypatch.setattr(tables_module, "_HeldRows", Held)
    [whole] = read_parquet(path, "a", 0)
    assert not held
    monkeypatch.setattr(tables_module, "_SMALL_BYTES", 0)
    [slow] = read_parquet(path, "a", 0)
    assert held
    assert (whole.columns, whole.start, whole.broken) == (slow.columns, slow.start, slow.broken)
    assert [*whole.columns] == [*data]
    [rest] = read_parquet(path, "a", 30)
    assert rest.columns["id"] == slow.columns["id"][30:]


def test_a_file_whose_text_unpacks_to_more_than_a_row_may_have_is_not_read_whole(tmp_path: Path) -> None:
    """A list in one row repeats a text that stands in the file once."""
    text = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * 2000, pyarrow.int32()), ["x" * 1000])
    lists = pyarrow.ListArray.from_arrays(pyarrow.array([0, 2000], pyarrow.int32()), text)
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"id": ["a"], "scores": lists}), path)
    assert path.stat().st_size < 5000
    with open_parquet(path) as file:
        assert tables_module._most_bytes(file.metadata) > 2000 * 1000


def test_a_row_of_parquet_that_is_too_long_is_broken_and_is_not_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    texts = ["a", "x" * 5000, "c"]
    for encoded in (True, False):
        pyarrow.parquet.write_table(
            pyarrow.table({"id": texts, "label": ["yes"] * 3}), path, use_dictionary=encoded
        )
        [table] = read_parquet(path, "a", 0, max_line_bytes=1000)
        assert table.columns == {"id": ["a", None, "c"], "label": ["yes", None, "yes"]}
        [(row, why)] = table.broken.items()
        assert row == 1
        assert re.fullmatch("a row of 50[0-9]+ bytes; at most 1000 are allowed", why)


def test_a_cell_of_csv_may_be_as_long_as_a_row(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"id,label\n{'x' * 200_000},yes\nb,no\n")
    [table] = read_csv(path, "a", 0)
    assert (table.columns["id"], table.broken) == (["x" * 200_000, "b"], {})


@pytest.mark.parametrize("line", ["a\n", 'b","c\n'], ids=["one cell", "many cells"])
def test_a_row_of_csv_without_an_end_is_broken_in_bounded_memory(tmp_path: Path, line: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id,label\nfirst,yes\n" + '"' + line * 1000 + '"\nlast,yes\n')
    tables = list(read_csv(path, "a", 0, max_line_bytes=1000))
    broken = [why for table in tables for why in table.broken.values()]
    assert broken[0] == "in line 3 a quote opens a cell that does not end within 200 lines or 1000 characters"
    assert column(tables, "id")[0] == "first"
    assert max(len(str(value)) for value in column(tables, "id")) <= 1000 + len(line)


def test_a_table_of_csv_ends_at_so_many_characters(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id,label\n" + "".join(f"{'x' * 990},{number}\n" for number in range(100)))
    tables = list(read_csv(path, "a", 0, table_bytes=10_000))
    assert max(map(len, tables)) == 11
    assert column(tables, "label") == [str(number) for number in range(100)]


def test_rows_that_are_short_come_in_tables_of_one_size(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    rows = 2 * ROWS + 5
    pyarrow.parquet.write_table(pyarrow.table({"id": [*map(str, range(rows))]}), path, row_group_size=5000)
    assert [len(table) for table in read_parquet(path, "a", 0)] == [ROWS, ROWS, 5]


@pytest.mark.process
@pytest.mark.parametrize("encoding", ["dictionary", "delta", "list"])
def test_a_small_file_that_unpacks_to_gigabytes_is_read_in_bounded_memory(
    tmp_path: Path, encoding: str
) -> None:
    """1.65 GB of text from some kilobytes, in an address space of 1.5 GB."""
    rows, size = 11_000, 150_000
    path = tmp_path / "a.parquet"
    if encoding == "dictionary":
        repeated(path, rows, size)
    else:
        write_shared(path, rows, size, encoding)
    assert path.stat().st_size < 500_000
    script = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from connectors.formats.files.tables import read_parquet\n"
        "import pyarrow.parquet\n"
        "from tests.harness import resident\n"
        "resource.setrlimit(resource.RLIMIT_AS, (1500 << 20, resource.RLIM_INFINITY))\n"
        "rows = sum(map(len, read_parquet(Path(sys.argv[1]), 'a', 0)))\n"
        "print(rows, resident(most=True) >> 20)\n"
    )
    command = [sys.executable, "-c", script, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    read, peak = map(int, done.stdout.split())
    assert read == rows
    assert peak < 600, "MiB"


def write_shared(path: Path, rows: int, size: int, encoding: str) -> None:
    """Write texts that share all but their ends with the row before, or that stand in lists."""
    options: dict[str, Any] = {"compression": "zstd", "row_group_size": rows}
    if encoding == "delta":
        options |= {"use_dictionary": False, "column_encoding": {"id": "DELTA_BYTE_ARRAY", "label": "PLAIN"}}
        schema = pyarrow.schema([("id", pyarrow.string()), ("label", pyarrow.string())])
        ids = ["x" * size]
    else:
        schema = pyarrow.schema([("id", pyarrow.string()), ("scores", pyarrow.list_(pyarrow.string()))])
        ids = ["a"]
    with pyarrow.parquet.ParquetWriter(
        path, schema, **{k: options[k] for k in options if k != "row_group_size"}
    ) as file:
        part = 500
        for _ in range(0, rows, part):
            second = ["yes"] * part if encoding == "delta" else [["x" * size]] * part
            names = schema.names
            file.write_table(
                pyarrow.table({names[0]: ids * part, names[1]: second}, schema), row_group_size=part
            )


def test_a_small_file_is_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.parquet"
    measured: list[Any] = []
    pyarrow.parquet.write_table(pyarrow.table({"id": ["1"], "label": ["yes"]}), path)
    most_bytes = tables_module._most_bytes

    def measure(metadata: Any) -> int:
        measured.append(metadata)
        return most_bytes(metadata)

    monkeypatch.setattr(tables_module, "_most_bytes", measure)
    [table] = read_parquet(path, "a", 0)
    assert table.columns == {"id": ["1"], "label": ["yes"]}
    assert len(measured) == 1
