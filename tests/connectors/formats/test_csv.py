"""CSV files as spreadsheets and broken writers leave them: each row is read, or costs itself alone."""

from __future__ import annotations

import io
import random
from pathlib import Path

import pytest

from connectors.files import FileSource
from connectors.formats.decode.decoder import Decoder
from connectors.formats.files.tables import EVERY_COLUMN, _BoundedLines, _rows, read_csv
from monitor.base.errors import SourceError
from monitor.base.records import Chunk, TaskLayout
from monitor.base.source import EndOfSource
from tests.bench.fuzz_decoder import check_chunk
from tests.bench.fuzz_tables import feed

LAYOUT = TaskLayout("t", ("ok", "toxic"))
NAMES = "id,model,note,scores.ok,scores.toxic,label\n"


def rows(begin: int, end: int, note: str = "fine") -> str:
    return "".join(f"{i},m,{note},0.25,0.75,ok\n" for i in range(begin, end))


def read(path: Path, text: str | bytes) -> Chunk:
    path = path / "t.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    source = FileSource(path)
    source.open({})
    raws = []
    try:
        while True:
            raws += source.read(0.0)
    except EndOfSource:
        chunk = Decoder([LAYOUT], "t").decode(raws)
    check_chunk(chunk)
    return chunk


def faults(chunk: Chunk) -> list[tuple[str, int]]:
    return [(reject.message, reject.position) for reject in chunk.rejects]


def test_a_quote_that_is_not_closed_costs_its_line_alone(tmp_path: Path) -> None:
    opened = '{},m,"open,0.25,0.75,ok\n'
    text = NAMES + rows(0, 50) + opened.format(50) + rows(51, 400) + opened.format(400) + rows(401, 500)
    chunk = read(tmp_path, text)
    assert faults(chunk) == [
        ("$: in line 52 a quote opens a cell that does not end within 200 lines or 1048576 characters", 50),
        ("$: in line 402 a quote opens a cell that does not end before the file does", 400),
    ]
    assert len(chunk.batches[0]) == 498


def test_a_file_full_of_open_quotes_is_read_a_few_times_at_most() -> None:
    class Counted(_BoundedLines):
        read = 0

        def __next__(self) -> str:
            self.read += 1
            return super().__next__()

    count = 5_000
    # Such a line opens a quote, and where one is open closes it and opens another.
    lines = Counted(io.StringIO(NAMES + '0"x,m,"\n' * count + rows(0, 3)), 1 << 20)
    read_rows = list(_rows(lines, 6))
    assert sum(why is not None for _, why in read_rows) == count
    assert [cells[0] for cells, why in read_rows[-3:] if why is None] == ["0", "1", "2"]
    assert lines.read < 5 * count  # 200 times as many without a bound


@pytest.mark.parametrize("between", [0, 1, 5, 150])
def test_two_quotes_that_are_not_closed_are_told_from_one_cell_of_many_lines(
    tmp_path: Path, between: int
) -> None:
    opened = '{},m,"open,0.25,0.75,ok\n'
    chunk = read(
        tmp_path, NAMES + opened.format(0) + rows(1, between + 1) + opened.format(99) + rows(100, 150)
    )
    assert [message.partition(" that ")[0] for message, _ in faults(chunk)] == [
        "$: in line 2 a quote opens a cell",
        f"$: in line {between + 3} a quote opens a cell",
    ]
    assert len(chunk.batches[0]) == between + 50


def test_lines_within_a_cell_that_look_like_rows_are_rows(tmp_path: Path) -> None:
    text = NAMES + '0,m,"open,0.25,0.75,ok\n' + rows(1, 20) + '20,m",0.25,0.75,ok,\n' + rows(21, 30)
    chunk = read(tmp_path, text)
    assert faults(chunk)[0][0].startswith("$: in line 2 a quote opens a cell of 21 lines, ")
    assert len(chunk.batches[0]) >= 28


def test_a_cell_of_several_lines_is_one_cell(tmp_path: Path) -> None:
    poem = "a line, with a comma\nand another\n\nand a last" * 20
    chunk = read(
        tmp_path, NAMES + f'0,m,"{poem}",0.25,0.75,ok\n' + rows(1, 3) + '3,m,"two\nlines",0.25,0.75,ok'
    )
    assert (faults(chunk), len(chunk.batches[0])) == ([], 4)


def test_a_last_row_that_the_end_of_the_file_cuts_is_told(tmp_path: Path) -> None:
    chunk = read(tmp_path, NAMES + rows(0, 3) + "3,m,fine,0.25")
    assert faults(chunk) == [("$: expected 6 cells, got 4: the file ends within this row", 3)]
    assert len(read(tmp_path, NAMES + rows(0, 3).rstrip("\n")).batches[0]) == 3


def test_columns_without_a_name_and_blanks_after_commas_do_not_count(tmp_path: Path) -> None:
    wide = NAMES.replace("\n", ",,\n") + rows(0, 3).replace("\n", ",,\n") + rows(3, 4).replace("\n", ",,,\n")
    assert (faults(read(tmp_path, wide)), len(read(tmp_path, wide).batches[0])) == ([], 4)
    blank = (NAMES + rows(0, 3)).replace(",", ", ") + '3, m, "a, b", 0.25, 0.75, ok\n'
    assert (faults(read(tmp_path, blank)), len(read(tmp_path, blank).batches[0])) == ([], 4)
    assert read(tmp_path, blank).batches[0].models == ("m",)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ((NAMES + rows(0, 3)).encode("utf-16"), "it is in UTF-16; save the file as UTF-8, with commas"),
        (NAMES.replace(",", ";"), "it has semicolons between them; put commas"),
        (NAMES.replace(",", "\t"), "it has tabs between them; put commas"),
        ("id,id,model\n", "two columns are called id; rename one, or leave it out"),
    ],
)
def test_a_file_of_another_dialect_is_refused_with_the_remedy(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(SourceError, match=why):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("number", "hint"),
    [
        ("0,95", "; this is a decimal comma: write 0.95"),
        ("95%", "; this is a per cent sign: write 0.95"),
        ("95,5 %", "; this is a decimal comma and a per cent sign: write 0.955"),
        ("high", ""),
    ],
)
def test_a_number_of_a_spreadsheet_has_its_hint(tmp_path: Path, number: str, hint: str) -> None:
    chunk = read(tmp_path, f'{NAMES}0,m,fine,"{number}",0.05,ok\n')
    message = f'$.scores.ok: expected a number from 0 to 1, got "{number}"{hint}'
    assert faults(chunk) == [(message, 0)]


def test_ids_that_a_spreadsheet_rounded_join_nothing(tmp_path: Path) -> None:
    chunk = read(tmp_path, NAMES + "9.00720E+15,m,fine,0.25,0.75,ok\n" + rows(1, 2))
    [reject] = chunk.rejects
    assert (reject.reason, len(chunk.batches[0])) == ("bad_id", 1)
    assert reject.message.endswith("a number that a spreadsheet has rounded; have it write ids as text")


@pytest.mark.slow
def test_random_tables_are_accounted_for(tmp_path: Path) -> None:
    """The short form of `tests.bench.fuzz_tables`."""
    rng = random.Random(3)
    read_of = [feed(rng, number, tmp_path) for number in range(90)]
    assert sum(chunk is not None for _, chunk in read_of) > 60
    assert any(chunk is not None and chunk.batches for _, chunk in read_of)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_a_mark_is_named(tmp_path: Path, encoding: str) -> None:
    with pytest.raises(SourceError, match="it is in UTF-16; save the file as UTF-8"):
        read(tmp_path, (NAMES + rows(0, 3)).encode(encoding))


def test_a_first_line_of_numbers_names_no_columns(tmp_path: Path) -> None:
    with pytest.raises(
        SourceError, match=r"0\.25 is a number: put a line with the names of the columns before"
    ):
        read(tmp_path, rows(0, 3))
    numbers = "id,model,scores.0.5,scores.1.5\n1,m,0.25,0.75\n"  # classes may be called so
    with pytest.raises(SourceError, match="none of them is known"):
        read(tmp_path, "0,1\n0.25,0.75\n")
    (tmp_path / "t.csv").write_text("0.25,0.75,0\n")
    with pytest.raises(SourceError, match=r"0\.25 is a number"):  # although the mapping reads a column 0
        list(read_csv(tmp_path / "t.csv", "p", 0, ["0"]))
    assert read(tmp_path, numbers).rejects[0].reason.value == "unknown_class"


def test_columns_of_one_name_that_nobody_reads_cost_nothing(tmp_path: Path) -> None:
    names = NAMES.replace("note", "x,x")
    text = names + rows(0, 3).replace("fine", "1,2")
    assert len(read(tmp_path, text).batches[0]) == 3
    (table,) = read_csv(tmp_path / "t.csv", "p", 0, EVERY_COLUMN)
    assert sorted(table.columns) == ["id", "label", "model", "scores.ok", "scores.toxic"]
