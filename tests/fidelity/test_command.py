"""Only a run in full may overwrite a kept table."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.fidelity.command import print_and_keep


@pytest.mark.parametrize(("arguments", "count"), [([], 40), (["--lives", "40"], 40), (["--lives", "3"], 3)])
def test_a_run_prints_and_keeps_the_table_of_the_default_count_alone(
    arguments: list[str],
    count: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["table", *arguments])
    kept = tmp_path / "table.txt"
    kept.write_text("before\n", encoding="utf-8")
    print_and_keep("What it shows.\n\nMore.", kept, "lives", 40, lambda lives: f"of {lives} lives\n")
    assert capsys.readouterr().out == f"of {count} lives\n"
    assert kept.read_text(encoding="utf-8") == ("of 40 lives\n" if count == 40 else "before\n")


def test_help_says_what_it_shows_and_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["table", "--help"])
    with pytest.raises(SystemExit):
        print_and_keep("What it shows.\n\nMore.", tmp_path / "kept.txt", "trials", 1000, str)
    text = capsys.readouterr().out
    assert "What it shows." in text
    assert "1,000 if absent" in text
