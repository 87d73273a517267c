"""The bench of the start: the commands that end, one small sidecar started twice, and what a row says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.bench_start import COUNTING, WINDOW, Checkout, Cost, header, lines, median, sidecar
from tests.daemon import ROOT, read_windows

MODELS = 2


@pytest.mark.process
def test_the_clock_stops_at_the_first_estimates_and_a_second_start_finds_the_store(tmp_path: Path) -> None:
    config = sidecar(tmp_path, MODELS, reference_rows=6 * WINDOW)
    first, data = Checkout(ROOT).until_data(tmp_path, config, MODELS, COUNTING)
    closed = read_windows(tmp_path / "windows.ndjson")
    assert {window["model"]: window["size"] for window in closed} == {"m0": WINDOW, "m1": WINDOW}
    again = Checkout(ROOT).until_data(tmp_path, config, MODELS)
    assert read_windows(tmp_path / "windows.ndjson") == closed, "the store has them: nothing is read again"
    assert 0 < first.passed <= data.passed
    assert 0 < first.processor <= data.processor
    assert 100 < first.modules <= data.modules
    assert [cost.modules for cost in again] == [0, 0], "modules are counted in runs of their own"


@pytest.mark.process
def test_bare_python_imports_less_and_takes_less_than_any_command() -> None:
    bare, *commands = Checkout(ROOT).ended(COUNTING).values()
    assert len(commands) == 2
    assert 0 < bare.modules < min(cost.modules for cost in commands)
    assert 0 < bare.processor < min(cost.processor for cost in commands)


@pytest.mark.process
def test_a_folder_without_the_package_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="has no package monitor"):
        Checkout(tmp_path).check_path()


def test_a_row_has_the_medians_of_each_checkout_and_how_they_compare() -> None:
    runs = [Cost(3.0, 2.0), Cost(1.0, 1.0), Cost(2.0, 9.0)]
    before, now = median(runs, 70), Cost(1.0, 0.5, 7)
    assert before == Cost(2.0, 2.0, 70)
    assert [line.split() for line in lines([{"run": before}])] == [["run", "2.000", "2.00", "70"]]
    [row] = lines([{"run": before}, {"run": now}])
    assert row.split() == ["run", "2.000", "2.00", "70", "1.000", "0.50", "7", "0.50"]
    assert len(row) == len(header(2, 5))
