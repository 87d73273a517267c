"""The signals of a model: which alarms are on at the end of each of its windows."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

from monitor.base.results import Estimate
from monitor.cli.backtest.results import ACCURACY
from monitor.export.page.windows import series_view
from monitor.reports.statements import Statement, describe
from monitor.reports.views import ObjectiveState
from monitor.reports.window_report import WindowReport
from monitor.reports.window_view import leading_estimate

LABELS = "labels contradict the estimate"


def signals_of(report: WindowReport) -> frozenset[str]:
    """Return the alarms that are on at the end of a window, in words."""
    return frozenset(_signals(report))


def _signals(report: WindowReport) -> Iterator[str]:
    for chart in report.charts:
        if chart.verdict.out_of_control:
            yield f"chart of {chart.metric}"
    for objective in report.objectives:
        if objective.state is ObjectiveState.BREACHED:
            yield f"objective of {objective.metric}"
    if report.trust is not None:
        yield LABELS
    if report.trust_in_errors is not None:
        yield from (f"labels contradict the estimated {each.metric}" for each in report.trust_in_errors.lost)


def statement_of(report: WindowReport) -> Statement:
    """Return what the page says of a model or group at the end of a window."""
    on = {chart.metric: report.end_time for chart in report.charts if chart.verdict.out_of_control}
    return describe(series_view(report, report.window + 1, on, report.attributions))


@dataclass(slots=True)
class SignalLog:
    """The signals of one model over its windows, of which only changes are kept.

    Attributes
    ----------
    windows : int
        The number of windows that a chart judged.
    improvements : int
        The number of times that a chart began to signal a change for the better, which is no alarm.
    first_time, last_time : float
        The ends of the first and of the last of them, seconds since the epoch.
    """

    windows: int = 0
    improvements: int = 0
    first_time: float = math.nan
    last_time: float = math.nan
    _numbers: list[int] = field(default_factory=lambda: [-1], init=False)
    _states: list[frozenset[str]] = field(default_factory=lambda: [frozenset()], init=False)
    _better: set[str] = field(default_factory=set, init=False)
    _accuracy: float = field(default=0.0, init=False)
    _estimates: int = field(default=0, init=False)

    def add(self, report: WindowReport) -> None:
        """Add the signals of a closed window, from the window's report."""
        now = signals_of(report)
        if now != self._states[-1]:
            self._numbers.append(report.window)
            self._states.append(now)
        if not report.charts:
            return
        better = {chart.metric for chart in report.charts if chart.verdict.improved}
        self.improvements += len(better - self._better)
        self._better = better
        if not self.windows:
            self.first_time = report.end_time
        self.windows += 1
        self.last_time = report.end_time
        judged = next((chart.estimator for chart in report.charts if chart.metric == ACCURACY), None)
        estimate = judged and leading_estimate(report.estimates, ACCURACY, judged)
        if estimate and isinstance(estimate.result, Estimate):
            self._accuracy += estimate.result.value
            self._estimates += 1

    def at(self, window: int) -> frozenset[str]:
        """Return the signals that were on at the end of a window."""
        return self._states[bisect_right(self._numbers, window) - 1]

    @property
    def accuracy(self) -> float | None:
        """The mean estimated accuracy of the judged windows; None if it is unknown."""
        return self._accuracy / self._estimates if self._estimates else None

    @property
    def timed(self) -> bool:
        """True if the windows have different times, from which months can be computed."""
        return self.windows > 1 and self.last_time > self.first_time
