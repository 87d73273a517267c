"""Control charts from closed windows: what a replay and the demo draw at their end."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from monitor.base.names import AVERAGE_CONFIDENCE, REALISED
from monitor.base.records import Floats
from monitor.base.results import Estimate
from monitor.export.charts.svg import ControlChartData
from monitor.reports.window_report import WindowReport
from monitor.stats.estimate.hajek import WeightedCounts, hajek

# Of a window: its number, its end; estimate, limits, realised, each of three; rules broken, alarm, version.
_FIGURES = 14

MOST_KEPT = 4096
"""Windows of a history after which it is thinned: some four to a pixel of the picture."""

_TOGETHER = 4  # of so many ordinary windows the lowest and the highest stay


class Alarm(NamedTuple):
    """An alarm of a chart: the number and the end of the window that raised it, and of the first without it.

    Ends are seconds since the epoch; the last two are None while the alarm stands.
    """

    window: int
    time: float
    ended_window: int | None = None
    ended_time: float | None = None


@dataclass(slots=True)
class ChartHistory:
    """The windows of one series and metric in the order of their numbers.

    Figures only, 112 bytes a window, and of millions of windows some thousands: each time that there are
    too many, of each four the one with the lowest and the one with the highest estimate stay, as the
    picture would show no others. All stay that broke a rule, and all at which the alarm, the version, or
    whether the estimate is known changed: alarms are exact however long the stream was.

    Parameters
    ----------
    level : float
        Of the estimates' intervals, 0 to 1.
    objective : float
        The floor or ceiling, NaN without one.
    is_floor : bool
    estimator : str
        Whose estimate the chart judges.
    """

    level: float = 0.95
    objective: float = math.nan
    is_floor: bool = True
    estimator: str = AVERAGE_CONFIDENCE
    _rows: array[float] = field(default_factory=lambda: array("d"), init=False)
    _versions: dict[str, int] = field(default_factory=dict, init=False)
    _most: int = field(default=MOST_KEPT, init=False)
    _left_out: int = field(default=0, init=False)

    def add(self, metric: str, report: WindowReport) -> None:
        """Take the estimate, limits and alarm of a window."""
        charted = next((c for c in report.charts if c.metric == metric), None)
        chart = charted.verdict if charted else None
        judged = charted.estimator if charted else self.estimator
        found = _estimate(report, metric, judged)
        place = self._place(report.window)
        if place >= len(self) - 1:  # what an older window's revision says of these may have changed since
            self.estimator = judged
            for objective in report.objectives:
                if objective.metric == metric:
                    self.objective, self.is_floor = objective.bound, objective.is_floor
            if found is not None:
                self.level = found.level
        row = (
            report.window,
            report.end_time,
            *_three(found),
            *((chart.center, chart.lower, chart.upper) if chart else (math.nan,) * 3),
            *_three(_estimate(report, metric, REALISED)),
            bool(chart and chart.rules and not chart.improved),
            chart.out_of_control - chart.improved if chart else math.nan,
            self._versions.setdefault(report.version, len(self._versions)),
        )
        # A revision takes the place of its window; any other is put in before those that follow it.
        stop = place + (place < len(self) and self._rows[place * _FIGURES] == report.window)
        if stop == place and report.revision and self._left_out:
            return  # of one that was left out
        self._rows[place * _FIGURES : stop * _FIGURES] = array("d", row)
        if len(self) > self._most:
            self._thin()

    def _thin(self) -> None:
        """Leave out about half of the windows at which nothing happened."""
        rows = self.columns().T
        happened = _happened(rows)
        kept = rows[happened | _ends(rows[:, 2], ~happened)]
        self._left_out += len(rows) - len(kept)
        self._rows = array("d", kept.tobytes())
        self._most = max(
            MOST_KEPT, 4 * int(happened.sum())
        )  # room enough that it is not done window by window

    @property
    def windows(self) -> int:
        """How many windows there were, those left out too."""
        return len(self) + self._left_out

    def __len__(self) -> int:
        return len(self._rows) // _FIGURES

    def _place(self, window: int) -> int:
        """The first place whose window is not below this one."""
        if not self._rows or self._rows[-_FIGURES] < window:
            return len(self)  # nearly always: windows close in the order of their numbers
        return bisect_left(range(len(self)), float(window), key=lambda place: self._rows[place * _FIGURES])

    def columns(self) -> Floats:
        """(14, windows kept) float64

        Number and end of the window; value, lower, upper of its estimate; center, lower, upper of its
        chart; value, lower, upper of what its labels said; whether it broke a rule, not for the better;
        1 where the alarm stood, -1 where a change for the better did; and the version, counted in order
        of appearance. NaN for what was unknown.
        """
        return np.array(self._rows, dtype=np.float64).reshape(-1, _FIGURES).T

    @property
    def known(self) -> bool:
        """Whether any window has an estimate."""
        return not np.isnan(self.columns()[2]).all()

    def versions(self) -> tuple[tuple[int, str], ...]:
        """Places among the windows where another version begins, with its name."""
        code = self.columns()[-1].astype(int)
        names = list(self._versions)
        return tuple((place, names[code[place]]) for place in (np.flatnonzero(np.diff(code)) + 1).tolist())

    def alarms(self) -> tuple[Alarm, ...]:
        """The alarms that were raised, one for each time that it latched.

        A window that the chart could not judge leaves the latch as it was; a new version's chart begins
        without one.
        """
        number, end, *_, alarm, version = self.columns()
        found: list[Alarm] = []
        latched, current = False, math.nan
        for row in zip(number.tolist(), end.tolist(), alarm.tolist(), version.tolist(), strict=True):
            here, before = (int(row[0]), row[1]), latched
            latched = latched and row[3] == current
            current = row[3]
            stands = latched if math.isnan(row[2]) else row[2] == 1
            if before and not (latched and stands):
                found[-1] = Alarm(*found[-1][:2], *here)
            if stands and not latched:
                found.append(Alarm(*here))
            latched = stands
        return tuple(found)


def _estimate(report: WindowReport, metric: str, estimator: str) -> Estimate | None:
    for e in report.estimates:
        if e.metric == metric and e.estimator == estimator and isinstance(e.result, Estimate):
            return e.result
    return None


def _three(found: Estimate | None) -> tuple[float, float, float]:
    return (found.value, found.lower, found.upper) if found else (math.nan,) * 3


def _happened(rows: Floats) -> NDArray[np.bool_]:
    """(windows,) Where a rule was broken, or the alarm, the version or what is known changed; both ends."""
    value, broken, alarm, version = rows[:, 2], rows[:, -3], rows[:, -2], rows[:, -1]
    found = broken > 0
    for state in (np.isnan(value), np.nan_to_num(alarm, nan=-2.0), version):
        found[1:] |= state[1:] != state[:-1]
    found[[0, -1]] = True
    return found


def _ends(value: Floats, among: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(windows,) Of each four of these in a row the lowest and the highest, and those that are over."""
    rest = np.flatnonzero(among)
    whole = len(rest) // _TOGETHER * _TOGETHER
    together = rest[:whole].reshape(-1, _TOGETHER)
    each = np.arange(len(together))
    found = np.zeros(len(value), dtype=bool)
    found[together[each, value[together].argmin(axis=1)]] = True
    found[together[each, value[together].argmax(axis=1)]] = True
    found[rest[whole:]] = True
    return found


class Histories:
    """The windows of every series, for pictures.

    Parameters
    ----------
    judged : mapping of str to str, optional
        By task, the estimator of the accuracy that is drawn where a window has no chart yet; the average
        confidence where it is left out.

    Examples
    --------
    >>> Histories().charts({})
    {}
    """

    def __init__(self, judged: Mapping[str, str] | None = None) -> None:
        self._judged = judged or {}
        self._found: dict[tuple[str, str, str], dict[str, ChartHistory]] = {}

    def add(self, reports: Sequence[WindowReport]) -> None:
        """Take closed windows."""
        for report in reports:
            series = self._found.setdefault((report.task, report.model, report.group), {})
            # Those of earlier windows too: one that a window says nothing of is a gap in its chart.
            for metric in dict.fromkeys([*series, *(e.metric for e in report.estimates)]):
                if metric not in series:
                    # Only of the accuracy may a chart judge another estimator.
                    judged = self._judged.get(report.task) if metric == "accuracy" else None
                    series[metric] = ChartHistory(estimator=judged or AVERAGE_CONFIDENCE)
                series[metric].add(metric, report)

    def take_over(self, series: tuple[str, str, str], other: Histories) -> None:
        """Take the windows of a series from another's."""
        self._found[series] = other._found[series]

    def forget(self, series: tuple[str, str, str]) -> None:
        """Drop the windows of a series."""
        self._found.pop(series, None)

    def alarms(self) -> dict[tuple[str, str, str], dict[str, tuple[Alarm, ...]]]:
        """For each series the alarms of each metric; metrics without one are left out."""
        return {
            series: {metric: raised for metric, history in metrics.items() if (raised := history.alarms())}
            for series, metrics in self._found.items()
        }

    def chart(
        self,
        series: tuple[str, str, str],
        metric: str,
        labelled: Mapping[int, WeightedCounts] | None = None,
    ) -> ControlChartData:
        """One metric of one series, with what the reports themselves say of its labels.

        `labelled` is as in `charts`, of this series.

        Raises
        ------
        KeyError
            No window has said anything of it.
        """
        return _chart(series, metric, self._found[series][metric], labelled or {}, "realised")

    def charts(
        self,
        labelled: dict[tuple[str, str, str], dict[int, WeightedCounts]],
        realised_name: str = "realised",
    ) -> dict[tuple[str, str, str], list[ControlChartData]]:
        """A picture's data for each series: one chart a metric.

        Parameters
        ----------
        labelled : mapping of (task, model, group) to mapping of int to WeightedCounts
            By window, its labelled rows and how many of those were right: for the accuracy, instead of what
            the reports say.
        realised_name : str
            What the legend calls that.
        """
        return {
            series: [
                _chart(series, metric, history, labelled.get(series, {}), realised_name)
                for metric, history in metrics.items()
                if history.known
            ]
            for series, metrics in self._found.items()
        }


def _put_in(realised: Floats, number: Floats, labelled: Mapping[int, WeightedCounts], level: float) -> None:
    """What labels say of the windows by now, (3, n), in the place of what they said by then."""
    places = {window: place for place, window in enumerate(number.astype(int).tolist())}
    for window, counts in labelled.items():
        found = hajek(counts, level)
        if isinstance(found, Estimate) and window in places:
            realised[:, places[window]] = found.value, found.lower, found.upper


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
    if metric == "accuracy":
        _put_in(realised, number, labelled, history.level)
    (task, model, group), timed = series, len(end) < 2 or np.ptp(end) > 0  # records without times are of one
    return ControlChartData(
        title=f"{model}{' · ' + group if group else ''}: {metric}",
        subtitle=f"task {task}, {history.windows} windows",
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
    )
