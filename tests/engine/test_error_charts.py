"""Charts and objectives on the errors of predicted numbers: limits in units, alarms, baselines, restarts."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

from monitor.base.records import Floats
from monitor.base.results import Estimate
from monitor.engine.baselines import reference_windows
from monitor.engine.error_estimates import ErrorEstimator
from monitor.engine.reference import Reference
from monitor.reports.statements import describe
from monitor.reports.views import ChartView, ObjectiveState
from monitor.reports.window_report import WindowReport
from tests.numbers import OTHERS, predictions, reference_of_numbers, regression, stated
from tests.streams import Record, Rig, lines

OF_ERRORS = ("mae", "rmse", "bias")
REFERENCE = reference_of_numbers(regression(), predictions(1, 3000, start=1.6e9))


def rig(**settings: Any) -> Rig:
    return Rig({"t": regression(unit="minutes", **settings)}, {"t": REFERENCE})


def in_control(n: int, seed: int = 2, start: float = 1.7e9, **more: Any) -> list[Record]:
    return predictions(seed, n, start=start, **more)


def estimated(report: WindowReport, metric: str) -> Estimate:
    [result] = [e.result for e in report.values if (e.metric, e.estimator) == (metric, "doubly_robust")]
    assert isinstance(result, Estimate)
    return result


def charts(report: WindowReport) -> dict[str, ChartView]:
    return {chart.metric: chart for chart in report.charts if chart.unit is not None}


def test_each_metric_of_errors_has_a_chart_of_its_estimate_in_the_unit_of_the_target() -> None:
    reports = rig().feed(in_control(3000))
    assert [chart.metric for chart in reports[0].charts] == ["within_tolerance", "ece", *OF_ERRORS]
    for report in reports:
        for metric, chart in charts(report).items():
            verdict, value = chart.verdict, estimated(report, metric).value
            assert (chart.unit, chart.estimator) == ("minutes", "doubly_robust")
            assert verdict.lower < verdict.center < verdict.upper
            assert (verdict.lower <= value <= verdict.upper) == (not verdict.rules)
            if metric != "bias":  # judged on the scale of logarithms
                assert verdict.upper / verdict.center == pytest.approx(verdict.center / verdict.lower)
    assert sum(bool(chart.verdict.rules) for r in reports for chart in charts(r).values()) <= 3


def test_the_baseline_has_the_estimates_of_the_windows_of_the_reference() -> None:
    """The witness feeds the rows of the reference as a stream, window by window."""
    [report] = rig().feed(in_control(100))
    windows = rig().feed(
        [{k: v for k, v in r.items() if k != "label"} for r in predictions(1, 3000, start=1.6e9)]
    )
    assert len(windows) == 30
    for metric, chart in charts(report).items():
        values = [estimated(each, metric).value for each in windows]
        mean = np.mean(values) if metric == "bias" else math.exp(np.mean(np.log(values)))
        assert chart.verdict.center == pytest.approx(mean)


@pytest.mark.parametrize(("chart", "estimated_windows"), [({}, 100), ({"season": "hour_of_week"}, 150)])
def test_of_a_long_reference_some_windows_estimate_errors(chart: Record, estimated_windows: int) -> None:
    task = regression(window={"size": 20, "min_size": 20}, chart=chart)
    errors = ErrorEstimator(task, REFERENCE["gbm"], "")
    windows = reference_windows("none", REFERENCE["gbm"], "", task, 0, errors)
    assert len(windows) == 150
    assert all(isinstance(window.estimates["within_tolerance"], Estimate) for window in windows)
    assert sum(bool(window.losses) for window in windows) == estimated_windows
    assert windows[0].losses["mae"] == errors.means(rows_of(REFERENCE["gbm"])[:20])["mae"]


def rows_of(reference: Reference) -> Floats:
    return np.column_stack((reference.features, reference.numbers[:, :1]))


def test_larger_errors_raise_an_alarm_and_smaller_ones_are_an_improvement() -> None:
    worse = rig().feed(in_control(500, shift=1.0))[-1]
    better = rig().feed(in_control(500, shift=-1.0))[-1]
    for metric in ("mae", "rmse"):
        verdict = charts(worse)[metric].verdict
        assert (verdict.out_of_control, verdict.improved) == (True, False)
        assert estimated(worse, metric).value > verdict.upper
        verdict = charts(better)[metric].verdict
        assert (verdict.out_of_control, verdict.improved) == (False, True)


def test_a_restart_continues_the_charts_and_objectives() -> None:
    records = in_control(1000) + in_control(700, 3, 1.71e9, shift=0.7) + in_control(1000, 4, 1.72e9)
    objective = {"mae": {"max": 1.2}, "rmse": {"max": 3.0}, "bias": {"min": -0.5}, "windows": 3}
    whole = rig(objective=objective)
    cut = rig(objective=objective)
    pieces = cut.feed_in_pieces(records, [1, 130, 999, 1240, 1500, 2100], restart=True)
    assert lines(pieces) == lines(whole.feed(records))
    [ours], [theirs] = cut.engine.view().series, whole.engine.view().series
    assert (ours.charts, ours.objectives, ours.violations) == (
        theirs.charts,
        theirs.objectives,
        theirs.violations,
    )
    cut.restart()
    [after] = cut.engine.view().series
    assert after.charts == theirs.charts
    assert after.objectives == theirs.objectives


def test_a_new_version_begins_charts_of_errors_with_windows_of_the_stream() -> None:
    def of_version(seed: int, n: int, start: float, version: str) -> list[Record]:
        return [r | {"version": version} for r in in_control(n, seed, start)]

    own = rig()
    own.feed(of_version(2, 300, 1.7e9, "1"))
    reports = own.feed(of_version(3, 2300, 1.71e9, "2"))
    assert [bool(charts(report)) for report in reports] == [False] * 20 + [True] * 3
    assert set(charts(reports[-1])) == set(OF_ERRORS)


def test_a_rebaseline_of_a_metric_of_errors_leaves_the_others() -> None:
    own = rig()
    own.feed(in_control(500, shift=1.0))
    [series] = own.engine.series["t"]
    assert series.rebaseline("mae", "another route", 1.71e9) == 20
    reports = own.feed(in_control(2200, 5, 1.71e9, shift=1.0))
    assert "mae" not in charts(reports[0])
    assert "rmse" in charts(reports[0])
    verdict = charts(reports[-1])["mae"].verdict
    assert not verdict.out_of_control
    assert verdict.center == pytest.approx(estimated(reports[-1], "mae").value, rel=0.2)


def test_objectives_are_judged_by_the_interval_of_the_pooled_windows() -> None:
    own = rig(objective={"mae": {"max": 1.2}, "rmse": {"max": 0.5}, "bias": {"min": -1.0}, "windows": 4})
    reports = own.feed(in_control(400))
    judged = {o.metric: o for o in reports[-1].objectives}
    assert {metric: o.state for metric, o in judged.items()} == {
        "mae": ObjectiveState.MET,
        "rmse": ObjectiveState.BREACHED,
        "bias": ObjectiveState.MET,
    }
    assert {(o.unit, o.is_floor) for o in judged.values()} == {("minutes", False), ("minutes", True)}
    for metric, objective in judged.items():
        assert objective.pooled is not None
        lower, upper = objective.pooled
        results = [estimated(report, metric) for report in reports]
        widths = [result.upper - result.lower for result in results]
        assert min(r.value for r in results) < (lower + upper) / 2 < max(r.value for r in results)
        # The errors of single rows average out over four windows, those of the reference do not.
        assert 0.5 * np.mean(widths) < upper - lower < 0.9 * np.mean(widths)


def test_metrics_without_a_unit_have_charts_and_objectives_too() -> None:
    bounds = {"mape": {"max": 0.2}, "wape": {"max": 0.001}, "coverage": {"min": 0.1}, "r2": {"min": 0.99}}
    task = regression(objective=bounds, **OTHERS)
    reference = reference_of_numbers(task, stated(predictions(1, 3000, start=1.6e9)))
    reports = Rig({"t": task}, {"t": reference}).feed(stated(in_control(500)))
    own = {metric: chart for metric, chart in charts(reports[-1]).items() if chart.unit == "ratio"}
    assert set(own) == set(bounds)
    for metric, chart in own.items():
        assert chart.verdict.lower < estimated(reports[-1], metric).value < chart.verdict.upper
    assert {o.metric: o.state for o in reports[-1].objectives} == {
        "mape": ObjectiveState.MET,
        "wape": ObjectiveState.BREACHED,
        "coverage": ObjectiveState.MET,
        "r2": ObjectiveState.BREACHED,
    }


def test_a_window_without_an_estimate_has_no_verdict_and_counts_for_the_objective() -> None:
    own = rig(objective={"mae": {"max": 1.2}, "windows": 2})
    own.feed(in_control(200))
    lacking = [row | {"features": {}} for row in in_control(100, 6, 1.71e9)]
    [report] = own.feed(lacking)
    assert charts(report) == {}
    assert [o.state for o in report.objectives] == [ObjectiveState.MET]
    [report] = own.feed([row | {"features": {}} for row in in_control(100, 7, 1.72e9)])
    assert [o.state for o in report.objectives] == [None]


def test_labels_beyond_the_bound_breach_an_objective_that_the_estimate_does_not() -> None:
    """Errors are a quarter larger than the estimate, which labels do not contradict yet."""
    own = rig(objective={"mae": {"max": 0.964}, "windows": 5})
    records = in_control(500)
    labels = []
    for record in records:
        error = record.pop("label") - record["prediction"]
        labels.append({"id": record["id"], "label": record["prediction"] + 1.25 * error, "time": 1.7e9 + 500})
    [judged] = own.feed(records)[-1].objectives
    assert (judged.state, judged.labels) == (ObjectiveState.MET, 0)
    own.feed(labels[:100])
    [one] = own.engine.view().series
    assert one.objectives == (judged,)
    own.feed(labels[100:300])
    [one] = own.engine.view().series
    assert one.lost_trust_in_errors is None
    [breached] = one.objectives
    assert (breached.state, breached.labels) == (ObjectiveState.BREACHED, 300)
    assert breached.pooled is not None
    assert breached.pooled[0] > 0.964
    sizes = [abs(each["label"] - row["prediction"]) for each, row in zip(labels[:300], records, strict=False)]
    assert np.mean(breached.pooled) == pytest.approx(np.mean(sizes))
    fact = describe(one).fact
    words = r"mae 0\.\d+ to 1\.\d+ minutes by 300 labels of the last windows, must be at most 0\.964 minutes"
    assert re.fullmatch(words, fact), fact
    own.restart()
    assert own.engine.view().series[0].objectives == (breached,)


def test_a_line_has_limits_and_bounds_with_their_unit() -> None:
    [line] = lines(rig(objective={"mae": {"max": 1.25}}).feed(in_control(100)))
    assert b'"charts":[' in line
    assert b'"out_of_control":false,"unit":"minutes"}' in line
    assert b'{"metric":"mae","ceiling":1.25,"state":"met","unit":"minutes"}' in line
