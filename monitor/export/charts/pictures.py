"""The history of closed windows, thinned to a bounded size, and the data of its control charts."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from statistics import median_low
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from monitor.base.names import AVERAGE_CONFIDENCE, DOUBLY_ROBUST, REALISED
from monitor.base.records import Floats
from monitor.base.registry import METRICS, SHARES
from monitor.base.results import Estimate
from monitor.export.charts.svg import ControlChartData
from monitor.reports.shared import SharedView
from monitor.reports.window_report import WindowReport
from monitor.stats.charts.shared import FEWEST_MODELS, fewest_moved
from monitor.stats.estimate.hajek import WeightedCounts, hajek

# For each window: number, end; estimate, limits, realised, three figures each; rule broken, alarm, version.
_FIGURES = 14

MOST_KEPT = 4096
"""The largest number of windows that a history keeps: about four for each pixel of the picture."""

_TOGETHER = 4  # of each four ordinary windows, the lowest and the highest stay


class Alarm(NamedTuple):
    """An alarm of a control chart.

    Parameters
    ----------
    window, time : int, float
        The number of the window that raised the alarm, and its end in seconds since the epoch.
    ended_window, ended_time : int or None, float or None
        The number and the end of the first window in which the alarm was no longer on; None while it is on.
    """

    window: int
    time: float
    ended_window: int | None = None
    ended_time: float | None = None


@dataclass(slots=True)
class ChartHistory:
    """The windows of one series (a model or group) and one metric, in the order of their numbers.

    The history keeps only numbers, 112 bytes for each window. Of millions of windows it keeps a few thousand.
    When there are too many, it keeps two of every four windows: the windows with the lowest and the highest
    estimate. A picture would not show the other two. The history keeps every window that broke a rule, and
    every window at which the alarm, the version, the calibration, or the presence of an estimate changed, or
    with which a baseline began on request. Therefore alarms are exact for any length of the stream.

    Parameters
    ----------
    level : float
        Level of the estimates' intervals, 0 to 1.
    objective : float
        The floor or ceiling, NaN without an objective.
    is_floor : bool
    estimator : str
        The estimator that the chart judges.
    unit : str or None
        The unit of a metric of errors; None for a ratio.
    """

    level: float = 0.95
    objective: float = math.nan
    is_floor: bool = True
    estimator: str = AVERAGE_CONFIDENCE
    unit: str | None = None
    _rows: array[float] = field(default_factory=lambda: array("d"), init=False)
    _versions: dict[str, int] = field(default_factory=dict, init=False)
    _calibration: tuple[str, int] | None = field(default=None, init=False)
    _refitted: dict[int, str] = field(default_factory=dict, init=False)
    _rebaselined: dict[int, str] = field(default_factory=dict, init=False)
    _most: int = field(default=MOST_KEPT, init=False)
    _left_out: int = field(default=0, init=False)

    def add(self, metric: str, report: WindowReport) -> None:
        """Add the estimate, limits and alarm of a window."""
        charted = next((c for c in report.charts if c.metric == metric), None)
        chart = charted.verdict if charted else None
        judged = charted.estimator if charted else self.estimator
        estimate = report.known(metric, judged)
        place = self._place(report.window)
        if place >= len(self) - 1:  # a revision of an older window may have outdated settings
            self.estimator = judged
            for objective in report.objectives:
                if objective.metric == metric:
                    self.objective, self.is_floor = objective.bound, objective.is_floor
            if estimate is not None:
                self.level = estimate.level
        self._note_events(metric, report, is_newest=place == len(self))
        row = (
            report.window,
            report.end_time,
            *_three(estimate),
            *((chart.center, chart.lower, chart.upper) if chart else (math.nan,) * 3),
            *_three(report.known(metric, REALISED)),
            bool(chart and chart.rules and not chart.improved),
            chart.out_of_control - chart.improved if chart else math.nan,
            self._versions.setdefault(report.version, len(self._versions)),
        )
        # A revision replaces its window; another window is inserted in the order of the numbers.
        stop = place + (place < len(self) and self._rows[place * _FIGURES] == report.window)
        if stop == place and report.revision and self._left_out:
            return  # a revision of a window that was left out
        self._rows[place * _FIGURES : stop * _FIGURES] = array("d", row)
        if len(self) > self._most:
            self._thin()

    def _note_events(self, metric: str, report: WindowReport, is_newest: bool) -> None:
        """Note whether a baseline begins with a window, and whether it is the first with its calibration."""
        for each in report.rebaselined:
            if each.metric == metric:
                self._rebaselined[report.window] = each.reason
        calibration = report.calibration.method, report.calibration.version
        if is_newest:
            if self._calibration not in (None, calibration):
                self._refitted[report.window] = f"{calibration[0]}, fit {calibration[1]}"
            self._calibration = calibration

    def _thin(self) -> None:
        """Leave out about half of the ordinary windows."""
        rows = self.columns().T
        happened = _happened(rows) | np.isin(rows[:, 0], [*self._rebaselined, *self._refitted])
        kept = rows[happened | _ends(rows[:, 2], ~happened)]
        self._left_out += len(rows) - len(kept)
        self._rows = array("d", kept.tobytes())
        self._most = max(MOST_KEPT, 4 * int(happened.sum()))  # leave enough room that thinning is rare

    @property
    def windows(self) -> int:
        """The number of windows, including windows that were left out."""
        return len(self) + self._left_out

    def __len__(self) -> int:
        return len(self._rows) // _FIGURES

    def _place(self, window: int) -> int:
        """Return the first place whose window's number is not below this one."""
        if not self._rows or self._rows[-_FIGURES] < window:
            return len(self)  # the usual case: windows close in the order of their numbers
        return bisect_left(range(len(self)), float(window), key=lambda place: self._rows[place * _FIGURES])

    def columns(self) -> Floats:
        """Return a column of 14 numbers for each kept window, (14, windows) float64.

        The rows are: number and end of the window; value, lower and upper end of the estimate; centre, lower
        and upper limit of the chart; value, lower and upper end from the window's labels; 1 if the window
        broke a rule, but not for the better; 1 if the alarm was on, -1 if the chart signalled an improvement;
        and the version, numbered in order of appearance. NaN means unknown.
        """
        return np.array(self._rows, dtype=np.float64).reshape(-1, _FIGURES).T

    def change(self, since: float, until: float | None) -> float | None:
        """Return the mean difference of the estimates from the centre during an alarm; None if none is known.

        The quiet windows at the end of the alarm, until it goes off, do not count.

        Parameters
        ----------
        since, until : float or None
            The ends of the first window and of the window after the last one; None for all to the end.
        """
        end, value, center, broken = self.columns()[[1, 2, 5, -3]]
        inside = (end >= since) & (end < (math.inf if until is None else until))
        if (inside & (broken > 0)).any():
            inside &= end <= end[inside & (broken > 0)].max()
        parts = (value.round(6) - center.round(6))[inside]  # as in the lines of the reports
        parts = parts[np.isfinite(parts)]
        return float(parts.mean()) if parts.size else None

    @property
    def known(self) -> bool:
        """True if the estimate of any window is known."""
        return not np.isnan(self.columns()[2]).all()

    def versions(self) -> tuple[tuple[int, str], ...]:
        """Return the indices of the windows at which a new version begins, with the name of the version."""
        code = self.columns()[-1].astype(int)
        names = list(self._versions)
        return tuple((place, names[code[place]]) for place in (np.flatnonzero(np.diff(code)) + 1).tolist())

    def rebaselined(self) -> tuple[tuple[int, str], ...]:
        """Return the index of each window with which a requested baseline begins, with the reason."""
        return self._places(self._rebaselined)

    def refitted(self) -> tuple[tuple[int, str], ...]:
        """Return the index of each window at which another calibration begins, with its method and number."""
        return self._places(self._refitted)

    def _places(self, events: Mapping[int, str]) -> tuple[tuple[int, str], ...]:
        places = {window: place for place, window in enumerate(self.columns()[0].tolist())}
        return tuple((places[window], events[window]) for window in sorted(events) if window in places)

    def alarms(self) -> tuple[Alarm, ...]:
        """Return the raised alarms in the order of the windows.

        A window that the chart could not judge does not change the alarm. The chart of a new version begins
        without an alarm.
        """
        number, end, *_, alarm, version = self.columns()
        raised: list[Alarm] = []
        latched, current = False, math.nan
        for row in zip(number.tolist(), end.tolist(), alarm.tolist(), version.tolist(), strict=True):
            here, before = (int(row[0]), row[1]), latched
            latched = latched and row[3] == current
            current = row[3]
            stands = latched if math.isnan(row[2]) else row[2] == 1
            if before and not (latched and stands):
                raised[-1] = Alarm(*raised[-1][:2], *here)
            if stands and not latched:
                raised.append(Alarm(*here))
            latched = stands
        return tuple(raised)


def _three(estimate: Estimate | None) -> tuple[float, float, float]:
    return (estimate.value, estimate.lower, estimate.upper) if estimate else (math.nan,) * 3


def _happened(rows: Floats) -> NDArray[np.bool_]:
    """Return a mask of the windows to keep: eventful ones, and the first and the last.

    Eventful windows broke a rule, or changed the alarm, the version, or whether the estimate is known.
    """
    value, broken, alarm, version = rows[:, 2], rows[:, -3], rows[:, -2], rows[:, -1]
    eventful = broken > 0
    for state in (np.isnan(value), np.nan_to_num(alarm, nan=-2.0), version):
        eventful[1:] |= state[1:] != state[:-1]
    eventful[[0, -1]] = True
    return eventful


def _ends(value: Floats, among: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return a mask of the lowest and the highest of every four such windows, and of the rest at the end."""
    rest = np.flatnonzero(among)
    whole = len(rest) // _TOGETHER * _TOGETHER
    together = rest[:whole].reshape(-1, _TOGETHER)
    each = np.arange(len(together))
    kept = np.zeros(len(value), dtype=bool)
    kept[together[each, value[together].argmin(axis=1)]] = True
    kept[together[each, value[together].argmax(axis=1)]] = True
    kept[rest[whole:]] = True
    return kept


class Histories:
    """The windows of every series (a model or group) and metric, for drawing control charts.

    Parameters
    ----------
    judged : mapping of str to str, optional
        For each task, the estimator whose accuracy is drawn for windows without a chart. By default, it is
        the average confidence.

    Examples
    --------
    >>> Histories().charts({})
    {}
    """

    def __init__(self, judged: Mapping[str, str] | None = None) -> None:
        self._judged = judged or {}
        self._histories: dict[tuple[str, str, str], dict[str, ChartHistory]] = {}

    def add(self, reports: Sequence[WindowReport]) -> None:
        """Add the reports of closed windows."""
        for report in reports:
            series = self._histories.setdefault((report.task, report.model, report.group), {})
            # Metrics of earlier windows too: a metric that this window lacks gets a gap in its chart.
            metrics = (e.metric for e in (*report.estimates, *report.values))
            for metric in dict.fromkeys([*series, *metrics]):
                if metric not in series:
                    series[metric] = self._history(metric, report)
                series[metric].add(metric, report)

    def _history(self, metric: str, report: WindowReport) -> ChartHistory:
        """Return an empty history of a metric. Only for the accuracy may a chart judge another estimator."""
        of_errors = next((each for each in report.values if each.metric == metric), None)
        if of_errors is not None:
            return ChartHistory(estimator=DOUBLY_ROBUST, unit=of_errors.unit)
        judged = self._judged.get(report.task) if metric in SHARES else None
        return ChartHistory(estimator=judged or AVERAGE_CONFIDENCE)

    def take_over(self, series: tuple[str, str, str], other: Histories) -> None:
        """Copy the windows of a series from other histories."""
        self._histories[series] = other._histories[series]

    def forget(self, series: tuple[str, str, str]) -> None:
        """Drop the windows of a series."""
        self._histories.pop(series, None)

    def alarms(self) -> dict[tuple[str, str, str], dict[str, tuple[Alarm, ...]]]:
        """Return the past and present alarms by series and metric. Metrics without alarms are left out."""
        return {
            series: {metric: raised for metric, history in metrics.items() if (raised := history.alarms())}
            for series, metrics in self._histories.items()
        }

    def shared(self, seconds: Mapping[str, float]) -> list[SharedView]:
        """Return the past and present changes that the models of a task share, by their ends.

        A model has moved while its alarm is on, because reports do not have the deviations of other windows.
        So a change begins here when `fewest_moved` alarms are on together, which may be a window or two later
        than by `shared_views`. The change of a model is the mean over the windows of its alarm.

        Parameters
        ----------
        seconds : mapping of str to float
            For each task, how long a model is compared after its last window; see `Task.shared_seconds`. The
            models of other tasks, and of a task with 0, are not compared.
        """
        by_metric: dict[tuple[str, str], dict[str, ChartHistory]] = {}
        for (task, model, group), metrics in self._histories.items():
            for metric, history in metrics.items():
                pages = metric in METRICS and METRICS[metric].pages  # errors may have no chart
                if seconds.get(task) and not group and pages:
                    by_metric.setdefault((task, metric), {})[model] = history
        changes = [
            change
            for (task, metric), models in by_metric.items()
            if len(models) >= FEWEST_MODELS
            for change in _shared(task, metric, models, seconds[task])
        ]
        return sorted(changes, key=lambda each: math.inf if each.until is None else each.until)

    def chart(
        self,
        series: tuple[str, str, str],
        metric: str,
        labelled: Mapping[int, WeightedCounts] | None = None,
    ) -> ControlChartData:
        """Return the chart data of one metric of one series, with the realised values from its reports.

        Parameters
        ----------
        series : (str, str, str)
            Task, model and group.
        metric : str
        labelled : mapping of int to WeightedCounts, optional
            For each window, the numbers of labelled rows and of right answers among them. For the accuracy,
            these numbers replace the realised values in the reports.

        Raises
        ------
        KeyError
            No window has this metric.
        """
        return _chart(series, metric, self._histories[series][metric], labelled or {}, "realised")

    def charts(
        self,
        labelled: dict[tuple[str, str, str], dict[int, WeightedCounts]],
        realised_name: str = "realised",
    ) -> dict[tuple[str, str, str], list[ControlChartData]]:
        """Return the data of the charts of each series, one chart for each metric.

        Parameters
        ----------
        labelled : mapping of (task, model, group) to mapping of int to WeightedCounts
            For each window, the numbers of labelled rows and of right answers among them. For the accuracy,
            these numbers replace the realised values in the reports.
        realised_name : str
            The name of the realised values in the legend.
        """
        return {
            series: [
                _chart(series, metric, history, labelled.get(series, {}), realised_name)
                for metric, history in metrics.items()
                if history.known
            ]
            for series, metrics in self._histories.items()
        }


def _shared(
    task: str, metric: str, models: Mapping[str, ChartHistory], seconds: float
) -> Iterator[SharedView]:
    """Yield the stretches of time in which enough alarms of the models were on together."""
    compared: set[str] = set()
    on: dict[str, Alarm] = {}
    change: dict[str, Alarm] = {}
    for time, at_once in groupby(_events(models, seconds), key=lambda event: event[0]):
        for _, begins, model, alarm in at_once:
            if alarm is None:
                (compared.add if begins else compared.discard)(model)
            elif begins:
                on[model] = alarm
            else:
                on.pop(model, None)
        alarmed = on.keys() & compared
        if len(compared) >= FEWEST_MODELS and len(alarmed) >= fewest_moved(len(compared)):
            change = {model: on[model] for model in alarmed} | change
            names = compared | change.keys()
        elif change:
            yield _shared_view(task, metric, models, names, change, time)
            change = {}
    if change:
        yield _shared_view(task, metric, models, names, change, None)


def _shared_view(
    task: str,
    metric: str,
    models: Mapping[str, ChartHistory],
    compared: Collection[str],
    alarms: Mapping[str, Alarm],
    until: float | None,
) -> SharedView:
    """Return a stretch in which these alarms of the compared models were on, and which ended at `until`."""
    changes = [(model, models[model].change(alarms[model].time, until)) for model in sorted(alarms)]
    changes.sort(key=lambda each: METRICS[metric].better * (each[1] or 0.0))
    # An alarm that is on in the first window may have been raised before the period.
    began = [alarm.time for model, alarm in alarms.items() if alarm.window != models[model].columns()[0, 0]]
    since = median_low(began) if began else None
    return SharedView(task, metric, tuple(sorted(compared)), tuple(changes), since, until=until)


def _events(
    models: Mapping[str, ChartHistory], seconds: float
) -> list[tuple[float, bool, str, Alarm | None]]:
    """Return when each model is compared and alarms are on: time, whether it begins, model, and alarm.

    The events are in order of time, and end with the last window.
    """
    events: list[tuple[float, bool, str, Alarm | None]] = []
    last = -math.inf
    for model, history in models.items():
        ends, center = history.columns()[[1, 5]]
        if (charted := ends[np.isfinite(center)]).size:
            last = max(last, float(charted[-1]))
            events += [(float(charted[0]), True, model, None), (charted[-1] + seconds, False, model, None)]
        for alarm in history.alarms():
            end = math.inf if alarm.ended_time is None else alarm.ended_time
            if alarm.time < end:  # all windows of records without times end at once
                events += [(alarm.time, True, model, alarm), (end, False, model, alarm)]
    return sorted((each for each in events if each[0] <= last), key=lambda each: each[:2])


def _update_realised(
    realised: Floats, number: Floats, labelled: Mapping[int, WeightedCounts], level: float
) -> None:
    """Replace realised values, (3, n), by those from the labels known now."""
    places = {window: place for place, window in enumerate(number.astype(int).tolist())}
    for window, counts in labelled.items():
        result = hajek(counts, level)
        if isinstance(result, Estimate) and window in places:
            realised[:, places[window]] = result.value, result.lower, result.upper


def _chart(
    series: tuple[str, str, str],
    metric: str,
    history: ChartHistory,
    labelled: Mapping[int, WeightedCounts],
    realised_name: str,
) -> ControlChartData:
    columns = history.columns()
    number, end, value, lower, upper, center, limit_lower, limit_upper = columns[:8]
    realised, (broken, alarm) = columns[8:11].copy(), columns[-3:-1]
    if metric in SHARES:
        _update_realised(realised, number, labelled, history.level)
    (task, model, group), timed = series, len(end) < 2 or np.ptp(end) > 0  # without times, all are equal
    return ControlChartData(
        title=f"{model}{' · ' + group if group else ''}: {metric}",
        subtitle=f"task {task}, {history.windows} windows",
        unit=history.unit,
        x=np.maximum.accumulate(end) if timed else number,
        x_is_time=bool(timed),
        value=value,
        lower=lower,
        upper=upper,
        center=center,
        limit_lower=limit_lower,
        limit_upper=limit_upper,
        violated=broken > 0,
        out_of_control=alarm > 0,
        improved=alarm < 0,
        realised=realised[0],
        realised_lower=realised[1],
        realised_upper=realised[2],
        objective=history.objective,
        is_floor=history.is_floor,
        level=history.level,
        estimate_name=history.estimator.replace("_", " "),
        realised_name=realised_name,
        versions=history.versions(),
        rebaselined=history.rebaselined(),
        refitted=history.refitted(),
    )
