"""The summary at the end of the demo: alarms of every metric, and the truth of both metrics."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from monitor import labelled_calibration_error
from monitor.base.results import Estimate
from monitor.cli.demo.calibration import (
    CalibrationSummary,
    calibration_sentence,
    turned_out_calibration,
)
from monitor.cli.demo.stream import TASK, WINDOW_SIZE, DemoData
from monitor.cli.demo.summary import FirstShown, ModelSummary, Month, alarms_of_truth, sentences, turned_out
from monitor.config.root import ChartConfig
from monitor.engine.charting import chart_for
from monitor.export.charts.pictures import Alarm, Histories
from monitor.reports.views import CalibrationView, MetricEstimate
from monitor.reports.window_report import WindowReport

DAY = 86_400.0
APRIL, DECEMBER = 1365724800.0, 1387065600.0  # 12 April and 15 December 2013


def summary(**alarms: tuple[Alarm, ...]) -> ModelSummary:
    months = (Month("April", 0.92, 0.88, 0.0), Month("May", 0.9, 0.905, 0.1))
    return ModelSummary("forest", 500, 0.38, 0.95, 0.041, 0.047, alarms, 12, months)


def test_alarms_are_told_of_every_metric() -> None:
    many = tuple(Alarm(25 + n, APRIL + n * DAY) for n in range(11))
    (sentence,) = sentences([summary(accuracy=(Alarm(460, DECEMBER),), ece=many)])
    assert sentence.endswith(
        "1 accuracy alarm, the first on 15 December; 11 ECE alarms, the first on 12 April. The true accuracy "
        "charted alike: 12 alarms."
    )
    (quiet,) = sentences([summary()])
    assert quiet.endswith("No accuracy alarm; no ECE alarm. The true accuracy charted alike: 12 alarms.")
    assert "Worst in April: estimated 92.0 %, turned out 88.0 % (4.0 points too high)." in sentence


def judged(realised: np.ndarray, alarmed: np.ndarray, reference: np.ndarray) -> str:
    return calibration_sentence(CalibrationSummary("forest", 0.012, realised, reference, alarmed))


def spread(mean: float, n: int) -> np.ndarray:
    return mean + 0.002 * np.where(np.arange(n) % 2 == 0, 1, -1)


NONE, HALF = np.zeros(40, dtype=bool), np.arange(40) < 20


@pytest.mark.parametrize(
    ("realised", "alarmed", "reference", "ending"),
    [
        (spread(0.05, 40), NONE, 0.03, "No alarm, which missed the rise."),
        (spread(0.03, 40), NONE, 0.03, "No alarm, and no rise either."),
        (spread(0.02, 40), NONE, 0.03, "No alarm, and no rise either."),
        (
            np.concatenate([spread(0.06, 20), spread(0.03, 20)]),
            HALF,
            0.03,
            "The alarm stood in 50 % of the windows, with 6.0 %, against 3.0 % in the others: rightly.",
        ),
        (
            spread(0.04, 40),
            HALF,
            0.03,
            "The alarm stood in 50 % of the windows, with 4.0 %, against 4.0 % in the others: wrongly, "
            "as they were no worse.",
        ),
        (spread(0.05, 40), ~NONE, 0.03, "The alarm stood in 100 % of the windows, with 5.0 %: rightly."),
        (
            spread(0.03, 40),
            ~NONE,
            0.03,
            "The alarm stood in 100 % of the windows, with 3.0 %: wrongly, as the reference had no less.",
        ),
    ],
)
def test_alarms_are_held_against_what_turned_out(
    realised: np.ndarray, alarmed: np.ndarray, reference: float, ending: str
) -> None:
    sentence = judged(realised, alarmed, spread(reference, 20))
    assert sentence.endswith(ending)
    assert sentence.startswith(
        f"forest: estimated 1.2 %, turned out {100 * realised.mean():.1f} % a window; "
    )
    assert f"in the reference {100 * reference:.1f} %." in sentence


def test_an_alarm_of_one_window_is_judged_without_a_warning() -> None:
    alarmed = np.arange(40) == 7
    realised = spread(0.03, 40)
    realised[7] = 0.09
    assert judged(realised, alarmed, spread(0.03, 20)).endswith(": rightly.")


def test_what_turned_out_is_of_the_windows_own_flights_with_a_known_outcome(data: DemoData) -> None:
    rng = np.random.default_rng(8)
    late = data.late.copy()
    late[rng.choice(3 * WINDOW_SIZE, 30, replace=False)] = -1
    changed = replace(data, late=late)
    errors = turned_out_calibration(changed, 1, 3)
    accuracy = turned_out(changed, 1, 3)
    for window in range(3):
        rows = np.arange(window * WINDOW_SIZE, (window + 1) * WINDOW_SIZE)
        rows = rows[late[rows] >= 0]
        score = data.scores[rows, 1]
        right = (score > 0.5) == (late[rows] == 1)
        error = labelled_calibration_error(np.maximum(score, 1 - score), right).corrected.result
        assert isinstance(error, Estimate)
        assert errors[window] == error.value
        assert accuracy[window] == right.mean()


def test_the_truth_charted_alike_alarms_once_for_each_time_that_it_falls(data: DemoData) -> None:
    """Windows at the reference's accuracy, then a stretch with every answer wrong, twice."""
    chart = chart_for(ChartConfig(kind="shewhart", arl0=370, rules=["we1"]), "accuracy")
    predicted = data.scores[:, 0] > 0.5
    # Of every eleven answers one is wrong, in the reference too, with no chance in it.
    wrong = np.arange(len(predicted)) % 11 == 0
    rows = np.arange(20 * WINDOW_SIZE)
    reference = {
        "reference_scores": np.full((len(rows), len(data.models)), 0.9),
        "reference_late": (rows % 11 > 0).astype(np.int64),
    }
    calm = replace(data, late=(predicted ^ wrong).astype(np.int64), **reference)
    assert alarms_of_truth(calm, 0, chart) == 0
    bad = np.isin(np.arange(len(predicted)) // WINDOW_SIZE, [2, 3, 15, 16])
    falls = replace(calm, late=np.where(bad, ~predicted, predicted ^ wrong).astype(np.int64))
    assert len(predicted) > 17 * WINDOW_SIZE
    assert alarms_of_truth(falls, 0, chart) == 2


def test_a_window_without_outcomes_is_unknown(data: DemoData) -> None:
    late = data.late.copy()
    late[:WINDOW_SIZE] = -1
    assert np.isnan(turned_out_calibration(replace(data, late=late), 0, 2)).tolist() == [True, False]


def test_a_models_intervals_are_those_that_labels_had_corrected_when_its_windows_closed() -> None:
    def report(window: int, revision: int = 0, group: str = "", **values: float) -> WindowReport:
        estimates = [
            MetricEstimate("accuracy", tag, Estimate(value, value - 0.1, value + 0.05, 0.95, 500))
            for tag, value in values.items()
        ]
        names = {"task": TASK, "model": "forest", "group": group, "version": ""}
        times = {"closed_by": "size", "start_time": 0.0, "end_time": 1.0}
        calibration = CalibrationView("none", 0, foreign=False, fitted_time=None)
        return WindowReport(
            **names, **times, window=window, revision=revision, size=500, calibration=calibration,
            estimates=tuple(estimates),
        )  # fmt: skip

    reports = [report(0, average_confidence=0.9), report(1, average_confidence=0.91, corrected=0.85)]
    later = [
        report(1, 1, corrected=0.8),
        report(1, group="origin=JFK", corrected=0.7),
        report(2, corrected=0.5),
    ]
    first = FirstShown()
    first.add([*reports, *later])
    chart = Histories({TASK: "average_confidence"})
    chart.add(reports)
    curve = first.on("forest", chart.chart((TASK, "forest", ""), "accuracy"))
    assert curve.value.tolist() == [0.9, 0.85]
    assert curve.lower.tolist() == pytest.approx([0.8, 0.75])
    assert curve.upper.tolist() == pytest.approx([0.95, 0.9])
