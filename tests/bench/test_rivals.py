"""The comparison with other libraries, short and without them: its arrays, its judge, our part."""

from __future__ import annotations

import sys
from types import ModuleType

import numpy as np
import pytest

from tests.bench import bench_rivals_drift
from tests.bench import bench_rivals_regression as regressors
from tests.bench.bench_rivals import SHOWN, WINDOW, arrays, powered, realised, run_scripts, share_and_width
from tests.bench.bench_rivals_tables import CHANGED, Judged, accuracies, cases, ours, sums
from tests.bench.rivals.drift_frames import MOVED, NAMES, SETS
from tests.bench.rivals.stopwatch import Measured

WINDOWS = 12


@pytest.mark.process
def test_our_part_says_an_interval_of_each_window_and_they_hold_most_of_what_came() -> None:
    inputs = arrays(WINDOWS)
    [results, unmeasured] = run_scripts(inputs, {"ours": (sys.executable, 1), "nannyml_cbpe": (None, 1)})
    assert unmeasured == {}
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
def test_our_part_names_a_number_that_has_moved_and_seldom_another_feature() -> None:
    [results] = run_scripts(bench_rivals_drift.arrays(WINDOWS), {"ours_drift": (sys.executable, 1)})
    work = results["drift"]
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


@pytest.mark.slow
def test_our_part_of_the_tables_is_near_the_truth_before_the_noise_and_lower_with_it() -> None:
    case = next(cases())
    assert case.name == "digits, logistic, sudden"
    truth, judged = accuracies(case), ours(case)
    assert truth[CHANGED:].mean() < truth[:CHANGED].mean() - 0.1
    # The standard error of the accuracy of 294 rows is 1.4 points.
    assert judged.values[:CHANGED].mean() == pytest.approx(truth[:CHANGED].mean(), abs=0.04)
    assert judged.values[CHANGED:].mean() < judged.values[:CHANGED].mean()
    assert judged.alarms[:CHANGED].sum() == 0

    above = Judged(truth + np.repeat([0.01, 0.02], CHANGED), np.repeat([0, 1], CHANGED))
    exact = Judged(truth, np.repeat([1, 0], CHANGED))
    assert list(sums([case], {"ours": {case.name: above}, "NannyML": {case.name: exact}})) == [
        "ours     mean error of a window: 1.0 points before the noise, 2.0 with it; windows in alarm: "
        "0 of 6 before, 6 of 6 with it",
        "NannyML  mean error of a window: 0.0 points before the noise, 0.0 with it; windows in alarm: "
        "6 of 6 before, 0 of 6 with it",
        "the smaller mean error before the noise: ours in 0 rows, NannyML's in 1; the same in 0",
        "the smaller mean error with it: ours in 0 rows, NannyML's in 1; the same in 0",
    ]


@pytest.mark.slow
def test_our_part_of_the_regressors_is_near_the_truth_before_the_noise_and_alarms_with_it() -> None:
    case = next(regressors.cases(rows=9000))
    assert case.name == "flights, linear, sudden"
    judged = regressors.ours(case)
    # The deviation of the mean absolute error of 1,500 rows is about 3 %.
    before = slice(None, CHANGED)
    assert judged.values[before].mean() == pytest.approx(case.errors[before].mean(), rel=0.1)
    assert case.errors[CHANGED:].mean() > 2 * case.errors[before].mean()
    assert (judged.alarms[before].sum(), judged.alarms[CHANGED:].sum()) == (0, CHANGED)

    truth = case.errors
    values = np.where(np.arange(WINDOWS) < CHANGED, 1.1 * truth, np.nan)
    mine = regressors.Judged(values, truth, 2 * truth, np.repeat([0, 1], CHANGED), 0.5)
    theirs = regressors.Judged(1.2 * truth, 1.1 * truth, 1.3 * truth, np.repeat([1, 0], CHANGED), 2.0)
    libraries = {"ours": {case.name: mine}, "DLE": {case.name: theirs}}
    assert list(regressors.sums([case], libraries)) == [
        "windows without an estimate of ours: 6 of 12",
        "ours  before the noise: error 10.0 %, held 100 %; with it: not known; windows in alarm: 0 of 6 "
        "before, 6 of 6 with it; 0.50 s a row",
        "DLE   before the noise: error 20.0 %, held 0 %; with it: not known; where ours is unknown: error "
        "20.0 %, held 0 %; windows in alarm: 6 of 6 before, 0 of 6 with it; 2.00 s a row",
    ]
