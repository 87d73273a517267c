"""The chart at the end of a replay shows its reports, window by window."""

from __future__ import annotations

import math
import tracemalloc
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

from monitor import wilson
from monitor.base.results import Estimate, Unknown
from monitor.export.charts import pictures
from monitor.export.charts.pictures import Alarm, ChartHistory, Histories
from monitor.export.charts.svg import ControlChartData, stacked_svg
from monitor.reports.statements import describe_shared
from monitor.reports.views import MetricEstimate, Rebaselined
from monitor.reports.window_report import WindowReport
from monitor.stats.charts.shared import FEWEST_MODELS, fewest_moved
from tests.streams import Rig, answers, task

WORSE = (0.5, 0.4, 0.1)
SERIES = ("t", "erm", "")


def shifted(labelled: bool = True) -> tuple[Rig, list[WindowReport]]:
    """Return ten windows as in the reference, then ten worse ones: the engine and its reports."""
    settings = task(
        reference={"first_windows": 5},
        chart={"sigmas": 3},
        objective={"accuracy": {"min": 0.9}},
        groups=["region"],
    )
    rig = Rig(settings)
    rng = np.random.default_rng(11)
    more = {"labelled": labelled, "groups": {"region": "eu"}}
    good = rig.feed(answers(rng, 1000, **more))
    return rig, good + rig.feed(answers(rng, 1000, weights=WORSE, start=1.8e9, **more))


@pytest.fixture(scope="module")
def both() -> tuple[Rig, list[WindowReport]]:
    return shifted()


@pytest.fixture(scope="module")
def rig(both: tuple[Rig, list[WindowReport]]) -> Rig:
    return both[0]


@pytest.fixture(scope="module")
def reports(both: tuple[Rig, list[WindowReport]]) -> list[WindowReport]:
    return both[1]


@pytest.fixture(scope="module")
def chart(rig: Rig, reports: list[WindowReport]) -> ControlChartData:
    """Return the chart of the whole model's accuracy."""
    histories = Histories()
    histories.add(reports)
    (chart,) = histories.charts(rig.engine.labelled())[SERIES]
    return chart


def own(reports: list[WindowReport]) -> list[WindowReport]:
    return [report for report in reports if not report.group]


@pytest.mark.slow
def test_estimate_and_interval_are_those_of_the_reports(
    chart: ControlChartData, reports: list[WindowReport]
) -> None:
    results = [report.estimates[0].result for report in own(reports)]
    assert all(isinstance(result, Estimate) for result in results)
    for column in ("value", "lower", "upper"):
        assert getattr(chart, column).tolist() == [getattr(result, column) for result in results]
    assert chart.x.tolist() == [report.end_time for report in own(reports)]
    assert (chart.level, chart.x_is_time) == (0.95, True)


def test_limits_are_missing_until_there_is_a_baseline_and_then_those_of_the_chart(
    chart: ControlChartData, reports: list[WindowReport]
) -> None:
    assert np.isnan(chart.center[:5]).all()
    verdicts = [report.charts[0].verdict for report in own(reports)[5:]]
    assert chart.center[5:].tolist() == [verdict.center for verdict in verdicts]
    assert chart.limit_lower[5:].tolist() == [verdict.lower for verdict in verdicts]
    assert chart.limit_upper[5:].tolist() == [verdict.upper for verdict in verdicts]


def test_the_alarm_is_marked_where_the_chart_raised_it(
    chart: ControlChartData, reports: list[WindowReport]
) -> None:
    charts = [report.charts for report in own(reports)]
    assert chart.out_of_control.tolist() == [bool(c) and c[0].verdict.out_of_control for c in charts]
    assert chart.violated.tolist() == [bool(c) and bool(c[0].verdict.rules) for c in charts]
    assert not chart.out_of_control[:12].any(), "labels decide, on five windows together"
    assert chart.out_of_control[12:].all()


def test_the_objective_is_drawn_as_a_floor(chart: ControlChartData) -> None:
    assert (chart.objective, chart.is_floor) == (0.9, True)


def test_realised_is_the_share_of_right_labels_with_wilsons_interval(
    rig: Rig, chart: ControlChartData
) -> None:
    counted = rig.engine.labelled()[SERIES]
    assert sorted(counted) == list(range(20))
    for window, (n, k, _) in counted.items():
        share = wilson(k, n, 0.95)
        assert isinstance(share, Estimate)
        assert chart.realised[window] == share.value == k / n
        assert (chart.realised_lower[window], chart.realised_upper[window]) == (share.lower, share.upper)


def test_without_labels_nothing_realised_is_drawn() -> None:
    rig, reports = shifted(labelled=False)
    histories = Histories()
    histories.add(reports)
    (chart,) = histories.charts(rig.engine.labelled())[SERIES]
    assert np.isnan(chart.realised).all()
    assert np.isfinite(chart.value).all()


def test_a_group_has_charts_of_its_own(rig: Rig, reports: list[WindowReport]) -> None:
    histories = Histories()
    histories.add(reports)
    charts = histories.charts(rig.engine.labelled())
    assert list(charts) == [SERIES, ("t", "erm", "region=eu")]
    assert charts["t", "erm", "region=eu"][0].title == "erm · region=eu: accuracy"


def test_a_window_that_says_nothing_of_a_metric_is_a_gap_in_its_place(
    rig: Rig, reports: list[WindowReport]
) -> None:
    whole = own(reports)
    whole[3] = replace(whole[3], estimates=())
    histories = Histories()
    histories.add(whole)
    (chart,) = histories.charts(rig.engine.labelled())[SERIES]
    assert np.flatnonzero(np.isnan(chart.value)).tolist() == [3]
    assert np.isfinite(chart.realised).all()


def test_a_picture_that_begins_late_has_its_labels_in_the_right_windows(
    rig: Rig, reports: list[WindowReport]
) -> None:
    histories = Histories()
    histories.add(own(reports)[12:])
    (chart,) = histories.charts(rig.engine.labelled())[SERIES]
    counted = rig.engine.labelled()[SERIES]
    assert chart.realised.tolist() == [counted[w][1] / counted[w][0] for w in range(12, 20)]


def test_a_later_revision_takes_the_place_of_its_window(reports: list[WindowReport]) -> None:
    whole = own(reports)
    histories = Histories()
    histories.add([*whole, replace(whole[2], revision=1, estimates=whole[15].estimates)])
    (chart,) = histories.charts({})[SERIES]
    assert len(chart.value) == 20
    assert chart.value[2] == chart.value[15]


def test_windows_stand_in_the_order_of_their_numbers_however_they_come(
    rig: Rig, reports: list[WindowReport]
) -> None:
    whole = own(reports)
    histories = Histories()
    histories.add([whole[i] for i in np.random.default_rng(3).permutation(20)])
    (chart,) = histories.charts(rig.engine.labelled())[SERIES]
    histories = Histories()
    histories.add(whole)
    (expected,) = histories.charts(rig.engine.labelled())[SERIES]
    for name in ("x", "value", "center", "limit_upper", "out_of_control", "realised"):
        np.testing.assert_array_equal(getattr(chart, name), getattr(expected, name), err_msg=name)


def long_history(
    reports: list[WindowReport], windows: int
) -> tuple[ChartHistory, list[WindowReport], np.ndarray]:
    """Return quiet windows with an alarm of nine windows every thousand; a version changes in the middle."""
    sample, alarmed = own(reports)[7], own(reports)[15]
    value = np.random.default_rng(5).uniform(0.85, 0.95, windows)
    history, history_windows = ChartHistory(), []
    for window in range(windows):
        base = alarmed if window % 1000 < 9 else sample
        estimate = base.estimates[0]
        assert isinstance(estimate.result, Estimate)
        moved = replace(estimate, result=replace(estimate.result, value=float(value[window])))
        version = "a" if window < windows // 2 else "b"
        history_windows.append(
            replace(
                base, window=window, end_time=window * 1.5, estimates=(moved,), version=version, revision=0
            )
        )
        history.add("accuracy", history_windows[-1])
    return history, history_windows, value


@pytest.mark.slow
def test_a_long_history_is_thinned_and_bounded(reports: list[WindowReport]) -> None:
    history, _, value = long_history(reports, 50_000)
    assert history.windows == 50_000
    assert 1000 < len(history) <= 4096
    number, end, kept, *_ = history.columns()
    assert (np.diff(number) > 0).all()
    assert (number[0], number[-1]) == (0, 49_999)
    np.testing.assert_array_equal(kept, value[number.astype(int)])
    np.testing.assert_array_equal(end, number * 1.5)


@pytest.mark.slow
def test_a_thinned_history_has_every_alarm_and_version(reports: list[WindowReport]) -> None:
    history, windows, _ = long_history(reports, 10_500)
    assert len(history) < 4096
    expected = list(range(0, 10_500, 1000))
    assert [alarm.window for alarm in history.alarms()] == expected
    ((place, name),) = history.versions()
    assert (history.columns()[0][place], name) == (5250, "b")
    broken = [w.window for w in windows if w.charts and w.charts[0].verdict.rules]
    assert set(broken) <= set(history.columns()[0].astype(int).tolist())


def test_a_thinned_history_keeps_the_ends_of_what_it_leaves_out(reports: list[WindowReport]) -> None:
    history, _, value = long_history(reports, 5000)
    kept = history.columns()
    number = kept[0].astype(int)
    left_out = np.setdiff1d(np.arange(4000), number)
    assert len(left_out) > 1500
    for window in left_out.tolist():
        near = kept[2][np.abs(number - window) < 4 + 9]  # of four quiet windows; an alarm may lie between
        assert near.min() < value[window] < near.max()


def test_a_revision_of_a_window_that_was_left_out_changes_nothing(reports: list[WindowReport]) -> None:
    history, windows, _ = long_history(reports, 5000)
    number = history.columns()[0].astype(int)
    absent = int(np.setdiff1d(np.arange(4000), number)[0])
    before = history.columns()
    history.add("accuracy", replace(windows[absent], revision=1))
    np.testing.assert_array_equal(history.columns(), before)
    history.add("accuracy", replace(windows[int(number[5])], revision=1, estimates=windows[7].estimates))
    assert history.columns()[2][5] == windows[7].estimates[0].result.value
    assert history.windows == 5000


def test_a_history_that_only_has_things_to_tell_keeps_them_all(reports: list[WindowReport]) -> None:
    history = ChartHistory()
    both = own(reports)[7], own(reports)[15]
    for window in range(9000):
        history.add("accuracy", replace(both[window % 2], window=window, revision=0))
    assert len(history) == history.windows == 9000
    assert len(history.alarms()) == 4500


def test_a_window_costs_what_history_says(reports: list[WindowReport]) -> None:
    windows, sample = 4000, own(reports)[15]
    history = ChartHistory()
    tracemalloc.start()
    for window in range(windows):
        history.add("accuracy", replace(sample, window=window, end_time=window * 1.5))
    # Threads of the test run allocate meanwhile.
    allocated = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, pictures.__file__)])
    tracemalloc.stop()
    used = sum(trace.size for trace in allocated.traces)
    assert len(history) == windows
    assert 112 * windows <= used < 126 * windows


def test_a_metric_that_was_never_known_is_not_drawn(reports: list[WindowReport]) -> None:
    never = MetricEstimate("ece", "average_confidence", Unknown("not calibrated"))
    unknown = [replace(r, estimates=(*r.estimates, never)) for r in own(reports)]
    histories = Histories()
    histories.add(unknown)
    assert [chart.title for chart in histories.charts({})[SERIES]] == ["erm: accuracy"]


def test_time_never_runs_back_in_a_picture(reports: list[WindowReport]) -> None:
    whole = own(reports)
    whole[7] = replace(whole[7], end_time=whole[7].end_time - 5000)
    histories = Histories()
    histories.add(whole)
    (chart,) = histories.charts({})[SERIES]
    assert (np.diff(chart.x) >= 0).all()
    assert math.isclose(chart.x[-1], whole[-1].end_time)


def test_the_alarms_are_the_windows_at_which_the_latch_closed(
    chart: ControlChartData, reports: list[WindowReport]
) -> None:
    histories = Histories()
    histories.add(own(reports))
    first = int(np.flatnonzero(chart.out_of_control)[0])
    assert histories.alarms() == {SERIES: {"accuracy": (Alarm(first, own(reports)[first].end_time),)}}


def test_an_unknown_window_leaves_the_latch_and_a_new_version_opens_it(reports: list[WindowReport]) -> None:
    whole = own(reports)
    whole[13] = replace(whole[13], charts=())
    whole[16:] = [replace(report, version="8") for report in whole[16:]]
    history = ChartHistory()
    for report in whole:
        history.add("accuracy", report)
    assert [alarm.window for alarm in history.alarms()] == [12, 16]


def test_a_latch_that_opened_can_close_again(reports: list[WindowReport]) -> None:
    whole = own(reports)
    whole[14] = replace(whole[14], charts=whole[7].charts)
    history = ChartHistory()
    for report in whole:
        history.add("accuracy", report)
    assert [alarm.window for alarm in history.alarms()] == [12, 15]


def test_a_thinned_history_has_every_new_baseline_and_calibration(reports: list[WindowReport]) -> None:
    base, history = reports[0], ChartHistory()
    second = replace(base.calibration, version=base.calibration.version + 1)
    for window in range(3 * pictures.MOST_KEPT):
        report = replace(base, window=window, end_time=float(window), revision=0)
        if window == 1003:
            report = replace(report, rebaselined=(Rebaselined("accuracy", "as asked"),))
        if window > 7001:
            report = replace(report, calibration=second)
        history.add("accuracy", report)
    assert len(history) < history.windows
    windows = history.columns()[0]
    assert [(windows[place], reason) for place, reason in history.rebaselined()] == [(1003, "as asked")]
    fit = f"{second.method}, fit {second.version}"
    assert [(windows[place], name) for place, name in history.refitted()] == [(7002, fit)]


def test_versions_are_marked_where_they_begin(reports: list[WindowReport]) -> None:
    whole = own(reports)
    whole[4:9] = [replace(report, version="7") for report in whole[4:9]]
    histories = Histories()
    histories.add([whole[i] for i in np.random.default_rng(4).permutation(20)])
    chart = histories.chart(SERIES, "accuracy")
    assert chart.versions == ((4, "7"), (9, ""))
    root = ElementTree.fromstring(stacked_svg([chart]))
    assert [text.text for text in root.iter() if text.get("class") == "version-name"][:1] == ["version 7"]


def test_a_chart_of_which_nothing_is_known_is_a_key_error(reports: list[WindowReport]) -> None:
    histories = Histories()
    histories.add(reports)
    with pytest.raises(KeyError):
        histories.chart(SERIES, "ece")


def test_what_comes_out_is_well_formed_and_holds_no_value_that_is_none(chart: ControlChartData) -> None:
    svg = stacked_svg([chart, chart])
    ElementTree.fromstring(svg)
    assert "nan" not in svg.lower()


def test_windows_without_times_are_drawn_by_their_number(reports: list[WindowReport]) -> None:
    histories = Histories()
    histories.add([replace(report, start_time=0.0, end_time=0.0) for report in own(reports)])
    chart = histories.chart(SERIES, "accuracy")
    assert (chart.x.tolist(), chart.x_is_time) == (list(range(20)), False)
    alone = Histories()
    alone.add(reports[:1])
    assert alone.chart(SERIES, "accuracy").x_is_time


# ── changes that models share ──

Stretch = tuple[int, int]
"""The window that raises an alarm, and the first one without it."""


def add_windows(
    histories: Histories, sample: WindowReport, model: str, *alarms: Stretch, first: int = 0, last: int = 39
) -> None:
    """Add windows that end a second apart, whose accuracy is 3 points lower while an alarm is on."""
    (chart,) = sample.charts
    for window in range(first, last + 1):
        on = any(begin <= window < end for begin, end in alarms)
        accuracy = Estimate(0.87 if on else 0.9, 0.8, 0.95, 0.95, 100)
        verdict = replace(chart.verdict, center=0.9, out_of_control=on, improved=False)
        estimates = (MetricEstimate("accuracy", "average_confidence", accuracy),)
        charts = (replace(chart, verdict=verdict),)
        one = replace(sample, model=model, window=window, start_time=0.0, end_time=1000.0 + window)
        histories.add([replace(one, estimates=estimates, charts=charts)])


def test_alarms_that_are_on_together_are_a_change_that_models_share(reports: list[WindowReport]) -> None:
    sample, histories = own(reports)[-1], Histories()
    for model, begin, end in (("a", 10, 20), ("b", 11, 22), ("c", 12, 18)):
        add_windows(histories, sample, model, (begin, end), (30, 40))
    add_windows(histories, sample, "other", (12, 25), last=5)
    past, now = histories.shared({"t": 3.0})
    assert (past.task, past.metric, past.models) == ("t", "accuracy", ("a", "b", "c"))
    assert [model for model, _ in past.changes] == ["a", "b", "c"]
    assert [change for _, change in past.changes] == pytest.approx([-0.03] * 3)
    assert (past.since, past.until) == (1011.0, 1018.0)
    assert str(describe_shared(past)) == (
        "all 3 models of t: accuracy fell by 3.0 points from 1970-01-01 00:16 UTC to 1970-01-01 00:16 UTC, a "
        "change that they shared"
    )
    assert (now.since, now.until) == (1030.0, None)
    assert histories.shared({"t": 0.0}) == histories.shared({"other": 3.0}) == []


def test_the_quiet_windows_at_the_end_of_an_alarm_do_not_count_in_its_change(
    reports: list[WindowReport],
) -> None:
    history, sample = ChartHistory(), own(reports)[-1]
    (chart,) = sample.charts
    for window, value in enumerate((0.9, 0.8, 0.86, 0.8, 0.9, 0.9)):
        rules = ("limits",) if value == 0.8 else ()
        verdict = replace(chart.verdict, center=0.9, rules=rules, out_of_control=window > 0, improved=False)
        accuracy = MetricEstimate("accuracy", "average_confidence", Estimate(value, 0.7, 1.0, 0.95, 100))
        one = replace(sample, window=window, end_time=float(window), estimates=(accuracy,))
        history.add("accuracy", replace(one, charts=(replace(chart, verdict=verdict),)))
    assert history.change(1.0, None) == pytest.approx((-0.1 - 0.04 - 0.1) / 3)
    assert history.change(4.0, None) == 0
    assert history.change(9.0, None) is None


def test_an_alarm_in_the_first_window_does_not_say_when_the_change_began(reports: list[WindowReport]) -> None:
    histories = Histories()
    for model in "abc":
        add_windows(histories, own(reports)[-1], model, (0, 9))
    (past,) = histories.shared({"t": 3.0})
    assert past.since is None
    assert "fell by 3.0 points until 1970-01-01 00:16 UTC, a change that they shared" in str(
        describe_shared(past)
    )


@pytest.mark.parametrize("seed", range(20))
def test_shared_changes_are_those_of_counting_at_each_moment(seed: int, reports: list[WindowReport]) -> None:
    rng, histories = np.random.default_rng([733, seed]), Histories()
    names = "abcdefg"[: rng.integers(2, 8)]
    alarms = {}
    for model in names:
        edges = np.sort(rng.choice(np.arange(1, 40), 6, replace=False)).tolist()
        alarms[model] = list(zip(edges[::2], edges[1::2], strict=True))
        add_windows(histories, own(reports)[-1], model, *alarms[model])
    counts = [
        sum(any(begin <= time < end for begin, end in own) for own in alarms.values()) for time in range(40)
    ]
    shared = [len(names) >= FEWEST_MODELS and count >= fewest_moved(len(names)) for count in counts]
    wanted = [time for time in range(1, 40) if shared[time - 1] and not shared[time]]
    changes = histories.shared({"t": 3.0})
    assert [each.until for each in changes if each.until is not None] == [1000.0 + time for time in wanted]
    assert len(changes) - len(wanted) == shared[-1]
