"""The signals of a model: the log knows which were on in each window, and counts changes for the better."""

from __future__ import annotations

from monitor.base.results import Estimate
from monitor.cli.backtest.signals import LABELS, SignalLog, signals_of
from monitor.reports.trust import Trust
from monitor.reports.views import CalibrationView, ChartView, MetricEstimate, ObjectiveState, ObjectiveView
from monitor.reports.window_report import WindowReport
from monitor.stats.charts.base import Verdict


def window(number: int, alarm: bool = False, better: bool = False, **more: object) -> WindowReport:
    verdict = Verdict(0.9, 0.85, 0.95, (), alarm, better)
    return WindowReport(
        task="t",
        model="erm",
        group="",
        version="",
        window=number,
        size=100,
        closed_by="size",
        start_time=100.0 * number,
        end_time=100.0 * number + 99,
        calibration=CalibrationView("none", 0, False, None),
        estimates=(MetricEstimate("accuracy", "average_confidence", Estimate(0.9, 0.8, 1.0, 0.95, 100)),),
        charts=(ChartView("accuracy", verdict),),
        **more,  # type: ignore[arg-type]
    )


def test_the_log_keeps_the_signals_of_each_window() -> None:
    log = SignalLog()
    for number, alarm in enumerate([False, True, True, False, True]):
        log.add(window(number, alarm))
    on = frozenset({"chart of accuracy"})
    assert [log.at(number) for number in range(6)] == [frozenset(), on, on, frozenset(), on, on]
    assert (log.windows, log.accuracy, log.timed) == (5, 0.9, True)
    assert log.last_time - log.first_time == 400


def test_a_change_for_the_better_is_no_signal_and_is_counted_once_while_it_lasts() -> None:
    log = SignalLog()
    for number, better in enumerate([True, True, False, True]):
        log.add(window(number, better=better))
    assert (log.improvements, log.at(3)) == (2, frozenset())


def test_signals_of_objectives_and_of_labels() -> None:
    breached = ObjectiveView("accuracy", 0.95, True, ObjectiveState.BREACHED)
    report = window(0, trust=Trust(False, 30.0, 200), objectives=(breached,))
    assert signals_of(report) == {"objective of accuracy", LABELS}
