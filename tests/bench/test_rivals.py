"""The comparison with other libraries, short and without them: its arrays, its judge, our part."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tests.bench import bench_rivals_drift
from tests.bench.bench_rivals import SHOWN, WINDOW, arrays, powered, realised, run_script, share_and_width
from tests.bench.rivals.drift_frames import MOVED, NAMES, SETS
from tests.bench.rivals.stopwatch import Measured

WINDOWS = 12


@pytest.mark.process
def test_our_part_says_an_interval_of_each_window_and_they_hold_most_of_what_came(tmp_path: Path) -> None:
    inputs = arrays(WINDOWS)
    path = tmp_path / "arrays.npz"
    np.savez(path, **inputs)
    results = run_script(sys.executable, "ours", path, rounds=1)
    assert set(results) == {"accuracy", "eight", "labelled"}
    assert set(results["eight"].intervals) == {*SHOWN, "ece"}
    assert all(each.estimate > 0 for each in results.values())
    for metric, truth in realised(inputs).items():
        assert truth.shape == (WINDOWS,)
        share, width = share_and_width(results["eight"].intervals[metric], truth)
        # Of 12 windows of a 95 % interval, fewer than 9 inside has a chance of 1 in 400.
        assert share >= 100 * 9 / WINDOWS, metric
        assert 0 < width < 100 * 4 / np.sqrt(WINDOW), metric


def test_the_judge_counts_windows_inside_and_the_mean_width() -> None:
    ends = [[0.4, 0.6], [0.7, 0.9], [np.nan, np.nan], [0.5, 0.5]]
    share, width = share_and_width(ends, np.array([0.6, 0.65, 0.5, 0.5]))
    assert (round(share, 1), round(width, 1)) == (66.7, 13.3)


@pytest.mark.slow
def test_the_comparison_with_ppi_python_is_of_the_same_numbers(ppi: ModuleType) -> None:
    line = powered()
    assert float(line.rsplit(" ", 1)[1]) < 1e-8, line


@pytest.mark.process
def test_our_part_names_a_number_that_has_moved_and_seldom_another_feature(tmp_path: Path) -> None:
    path = tmp_path / "arrays.npz"
    np.savez(path, **bench_rivals_drift.arrays(WINDOWS))
    work = run_script(sys.executable, "ours_drift", path, rounds=1)["drift"]
    assert {part: len(windows) for part, windows in work.drifted.items()} == dict.fromkeys(SETS, WINDOWS)
    moved = sum(MOVED in each for each in work.drifted["moved"])
    # It is named in 88 % of windows: fewer than 6 of 12 has a chance of 1 in 6,000.
    assert moved >= 6
    # A false alarm has at most 5 %: more than 4 in 24 has a chance of 1 in 160.
    assert sum(bool(each) for part in ("same", "short") for each in work.drifted[part]) <= 4


def test_a_window_alarms_if_enough_of_its_columns_have_drifted() -> None:
    half = list(NAMES[:8])
    named = {"same": [[], half[:1], half, half], "short": [half[:7], []], "moved": [half, half[:1], half[1:]]}
    results = {"drift": Measured(0.0, 1.0, 0.0, drifted=named)}
    line = bench_rivals_drift.alarms("any", results)
    assert line.split() == ["any", *["75.0", "%", "of", "4", "50.0", "%", "of", "2", "66.7", "%", "of", "3"]]
    line = bench_rivals_drift.alarms("half", results, 0.5)
    assert line.split() == ["half", *["50.0", "%", "of", "4", "0.0", "%", "of", "2", "33.3", "%", "of", "3"]]
    assert bench_rivals_drift.alarms("none", {}).split() == ["none", "-", "-", "-"]
