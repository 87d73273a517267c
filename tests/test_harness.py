"""The command line of benches and tables: what it offers and prints, and what may overwrite a kept text."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from tests import harness
from tests.harness import ROOT, apart, kept, output, processor_of_children, processor_seconds, resident


def table(lives: int = 40, trials: int = 1000, answers: Path | None = None) -> str:
    return f"of {lives} lives\n"


def lines(
    sizes: tuple[int, ...] = (1, 2), split: Literal["odd", "even"] = "odd", short: bool = False
) -> Iterator[str]:
    yield f"{sizes} {split}"
    yield f"short: {short}\n"


def loads(loads: tuple[str, ...] = ("plain", "5 % labelled")) -> str:
    return ", ".join(loads)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "table.txt"
    path.write_text("before\n", encoding="utf-8")
    return path


@pytest.fixture
def arguments(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    words = ["table"]
    monkeypatch.setattr(sys, "argv", words)
    return words


@pytest.mark.parametrize(
    ("options", "count", "is_kept"),
    [
        ([], 40, True),
        (["--lives", "40"], 40, True),
        (["--answers", "here"], 40, True),
        (["--lives", "3"], 3, False),
        (["--trials", "2"], 40, False),
        (["--lives", "3", "--keep"], 3, True),
    ],
)
def test_a_run_prints_and_keeps_the_table_of_the_default_count_alone(
    options: list[str],
    count: int,
    is_kept: bool,
    file: Path,
    arguments: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments += options
    harness.run(table, path=file)
    assert capsys.readouterr().out == f"of {count} lives\n"
    assert file.read_text(encoding="utf-8") == (f"of {count} lives\n" if is_kept else "before\n")


@pytest.mark.parametrize(("options", "is_kept"), [([], False), (["--keep"], True)])
def test_timings_are_kept_where_that_is_asked_for(
    options: list[str], is_kept: bool, file: Path, arguments: list[str]
) -> None:
    arguments += options
    harness.run(table, keep=False, path=file)
    assert (file.read_text(encoding="utf-8") != "before\n") == is_kept


def test_a_check_says_what_differs_and_keeps_nothing(
    file: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments.append("--check")
    with pytest.raises(SystemExit) as ended:
        harness.run(table, path=file)
    assert ended.value.code == 1
    assert capsys.readouterr().out.splitlines()[-2:] == ["-before", "+of 40 lives"]
    assert file.read_text(encoding="utf-8") == "before\n"
    file.write_text("of 40 lives\n", encoding="utf-8")
    harness.run(table, path=file)
    assert capsys.readouterr().out == "of 40 lives\nas kept in table.txt\n"


def test_help_says_what_it_shows_and_the_defaults(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments.append("--help")
    with pytest.raises(SystemExit):
        harness.run({"one": table, "other": lines, "loads": loads})
    text = capsys.readouterr().out
    assert "what may overwrite a kept text" in text
    for phrase in (
        "1,000 if absent",
        "1 2 if absent",
        "{odd,even}",
        "one, other, loads; all if absent",
        "plain 5 % labelled",
    ):
        assert phrase in text


def test_lines_are_printed_as_they_come_and_options_are_of_the_annotated_types(
    file: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments += ["--sizes", "5", "6", "--split", "even", "--short"]
    harness.run(lines, path=file)
    assert capsys.readouterr().out == "(5, 6) even\nshort: True\n"


def test_parts_are_asked_for_by_name_and_take_the_options_that_they_have(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    parts = {"one": table, "other": lines}
    arguments += ["other", "--lives", "3", "--short"]
    harness.run(parts)
    assert capsys.readouterr().out == "(1, 2) odd\nshort: True\n"
    arguments[1] = "third"
    with pytest.raises(SystemExit):
        harness.run(parts)
    assert "invalid choice: 'third' (choose from 'one', 'other'" in capsys.readouterr().err


def test_a_text_is_kept_beside_its_command() -> None:
    assert output(table, "one") == ROOT / "tests" / "output" / "test_harness_one.txt"
    from tests.fidelity import trust

    assert output(trust.table) == ROOT / "tests" / "fidelity" / "output" / "trust.txt"
    assert kept(trust.table).startswith("Lives that alarm")


def number_of_this_process(more: int) -> int:
    return os.getpid() + more


def test_work_apart_is_done_in_another_process_and_its_error_comes_back() -> None:
    assert apart(number_of_this_process, more=0) != os.getpid()
    with pytest.raises(TypeError):
        apart(number_of_this_process, "nothing to add")  # type: ignore[arg-type]


def test_what_a_process_takes_is_read_of_the_kernel() -> None:
    assert 0 < resident() <= resident(os.getpid(), most=True)
    assert processor_seconds(os.getpid()) == pytest.approx(time.process_time(), abs=1.0)
    ended = subprocess.Popen([sys.executable, "-c", "sum(range(1_000_000))"])
    before = processor_of_children()
    ended.wait()
    assert processor_of_children() > before
    assert resident(ended.pid) == 0
