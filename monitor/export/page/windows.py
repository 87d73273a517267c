"""The data of the page's charts: the store's history, or the newest windows if there is no store."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, Protocol

import msgspec
import numpy as np

from monitor.base.names import REALISED
from monitor.export.charts.pictures import Histories
from monitor.export.charts.svg import ControlChartData
from monitor.reports.attribution import Attribution
from monitor.reports.views import SeriesState, SeriesView
from monitor.reports.window_report import WindowReport, rfc3339, to_json
from monitor.store.database import Database
from monitor.store.history import newest_ids, newest_lines

MOST_WINDOWS = 500
"""The largest number of windows in one chart: about one window for each pixel of a phone."""

RANGES = {"24h": 86_400.0, "7d": 7 * 86_400.0, "30d": 30 * 86_400.0, "all": math.inf}
"""The spans of time of charts, in seconds before the end of the newest window."""

Range = Literal["24h", "7d", "30d", "all"]
"""A key of `RANGES`."""

_KEPT_LINES = 10_000  # for all series together, about a kilobyte each

Series = tuple[str, str, str]


class Windows(Protocol):
    """The interface of readers of windows, which several threads may call at the same time."""

    def newest(
        self, series: Series, most: int, before: int | None = None, since: float | None = None
    ) -> list[bytes]:
        """Return the newest windows of a series as lines of JSON, oldest first.

        For the parameters, see `monitor.store.history.newest_lines`.
        """


class StoredWindows:
    """A reader of windows in a store, to which an agent may be writing.

    Parameters
    ----------
    where : Path, Database or callable
        The file of the store, or its database. If each partition has a separate store, a function that
        returns the store with the windows of a series, or None if another agent has the series.
    """

    def __init__(self, where: Path | Database | Callable[[Series], Path | Database | None]) -> None:
        self._where = where

    def newest(
        self, series: Series, most: int, before: int | None = None, since: float | None = None
    ) -> list[bytes]:
        """Return the newest windows as of the last checkpoint."""
        where = self._where if isinstance(self._where, Path | Database) else self._where(series)
        return [] if where is None else newest_lines(where, series, most, before, since)


class RecentWindows:
    """The newest windows in memory, at most 10,000 in total, for agents without a store.

    Examples
    --------
    >>> RecentWindows().newest(("toxicity", "erm", ""), 10)
    []
    """

    def __init__(self) -> None:
        self._lines: deque[tuple[Series, int, int, bytes]] = deque(maxlen=_KEPT_LINES)
        self._lock = threading.Lock()

    def add(self, reports: Sequence[WindowReport]) -> None:
        """Add closed windows, and drop the oldest if there are too many."""
        with self._lock:
            for one in reports:
                series = (one.task, one.model, one.group)
                self._lines.append((series, one.window, one.revision, to_json(one)))

    def newest(
        self, series: Series, most: int, before: int | None = None, since: float | None = None
    ) -> list[bytes]:
        """Return the newest windows of a series that are in memory."""
        with self._lock:
            own = [row for row in self._lines if row[0] == series and (before is None or row[1] < before)]
        places = ((place, own[place][1], own[place][2]) for place in range(len(own) - 1, -1, -1))
        ids = newest_ids(places, most, since, lambda place: own[place][3])
        return [own[place][3] for place in ids]


def chart_of(reports: Sequence[WindowReport], metric: str, estimator: str) -> ControlChartData:
    """Return the data of the control chart of one metric of one series.

    Parameters
    ----------
    reports : sequence of WindowReport
        At least one report; all reports are of the same series.
    metric : str
    estimator : str
        The estimator that the chart judges. The lines of reports do not name it.
    """
    first = reports[0]
    histories = Histories({first.task: estimator})
    histories.add([_judged_by(report, estimator) for report in reports])
    return histories.chart((first.task, first.model, first.group), metric)


def _judged_by(report: WindowReport, estimator: str) -> WindowReport:
    charts = (c if c.unit is not None else replace(c, estimator=estimator) for c in report.charts)
    return replace(report, charts=tuple(charts))


class ChartColumns(msgspec.Struct, frozen=True, kw_only=True):
    """A control chart in columns, each with a value for every window, oldest first. Null means unknown.

    Parameters
    ----------
    window : list of int
        Numbers of the windows.
    time : list of float
        Ends of the windows, seconds since the epoch; never descending.
    value, lower, upper : list of float or None
        The estimate that the chart judges, with its interval, in `unit`.
    center, limit_lower, limit_upper : list of float or None
        The centre line and the control limits.
    realised, realised_lower, realised_upper : list of float or None
        The value computed from labels, with its interval.
    labels : list of int or None
        The number of labels of `realised`.
    ssme : list of float or None
    violated, out_of_control, improved : list of int
        `violated` is 1 if the window broke a rule, but not for the better; `out_of_control` is 1 if the alarm
        was on at its end; `improved` is 1 if the chart signalled an improvement at its end. Otherwise 0.
    objective : float or None
    is_floor : bool
    level : float
        Level of the intervals.
    estimator, realised_name : str
        The names of `value` and `realised`.
    unit : str or None
        The unit of a metric of errors, such as minutes; null for ratios.
    versions, rebaselined, refitted : list of (int, str)
        The indices of windows at which another version begins, with its name; at which a baseline begins on
        request, with the reason; and at which another calibration begins, with its name.
    other : list of float or None
        The estimates of a second model or period; empty if no comparison was requested.
    other_name : str
    """

    window: list[int] = []
    time: list[float] = []
    value: list[float | None] = []
    lower: list[float | None] = []
    upper: list[float | None] = []
    center: list[float | None] = []
    limit_lower: list[float | None] = []
    limit_upper: list[float | None] = []
    realised: list[float | None] = []
    realised_lower: list[float | None] = []
    realised_upper: list[float | None] = []
    labels: list[int | None] = []
    ssme: list[float | None] = []
    violated: list[int] = []
    out_of_control: list[int] = []
    improved: list[int] = []
    objective: float | None = None
    is_floor: bool = True
    level: float = 0.95
    estimator: str = ""
    realised_name: str = ""
    unit: str | None = None
    versions: list[tuple[int, str]] = []
    rebaselined: list[tuple[int, str]] = []
    refitted: list[tuple[int, str]] = []
    other: list[float | None] = []
    other_name: str = ""


_COLUMNS = ("value", "lower", "upper", "center", "limit_lower", "limit_upper")
_BY_LABELS = ("realised", "realised_lower", "realised_upper")


def chart_columns(reports: Sequence[WindowReport], metric: str, estimator: str) -> ChartColumns:
    """Return the control chart of one metric of one series, in columns."""
    if not reports:
        return ChartColumns()
    chart = chart_of(reports, metric, estimator)
    columns = {name: _nullable(getattr(chart, name).tolist()) for name in (*_COLUMNS, *_BY_LABELS)}
    result = ChartColumns(
        window=[report.window for report in reports],
        time=np.maximum.accumulate([report.end_time for report in reports]).tolist(),
        labels=[None if each is None else each.n for each in (r.known(metric, REALISED) for r in reports)],
        ssme=[None if each is None else each.value for each in (r.known(metric, "ssme") for r in reports)],
        violated=chart.violated.astype(int).tolist(),
        out_of_control=chart.out_of_control.astype(int).tolist(),
        improved=chart.improved.astype(int).tolist(),
        objective=_nullable([float(chart.objective)])[0],
        is_floor=chart.is_floor,
        level=chart.level,
        estimator=chart.estimate_name,
        realised_name=chart.realised_name,
        unit=chart.unit,
        versions=list(chart.versions),
        rebaselined=list(chart.rebaselined),
        refitted=list(chart.refitted),
    )
    return msgspec.structs.replace(result, **columns)


def with_other(chart: ChartColumns, other: ChartColumns, name: str, by_time: bool) -> ChartColumns:
    """Return a chart to which the estimates of another chart are added, in the columns `other`.

    Parameters
    ----------
    chart, other : ChartColumns
    name : str
        Name of the other chart.
    by_time : bool
        If True, each window is paired with the newest window of the other chart that had ended by the end of
        this window. If False, windows are paired in order from the newest to the oldest.
    """
    if by_time:
        places = (np.searchsorted(other.time, chart.time, side="right") - 1).tolist()
    else:
        missing = len(other.time) - len(chart.time)
        places = [place + missing for place in range(len(chart.time))]
    values = [other.value[place] if place >= 0 else None for place in places]
    return msgspec.structs.replace(chart, other=values, other_name=name)


class AlarmLine(msgspec.Struct, frozen=True, kw_only=True):
    """An alarm of a control chart, from the window that raised it to the window that ended it.

    Parameters
    ----------
    metric : str
    raised_window : int
    raised_time : str
        The end of the window that raised the alarm, RFC 3339.
    ended_window : int or None
        The window that ended the alarm; None while the alarm is on. A new version also ends an alarm.
    ended_time : str or None
    rules : list of str
        The rules broken by the window that raised the alarm.
    by_labels : bool
        True if labels raised the alarm; False if the chart raised it.
    """

    metric: str
    raised_window: int
    raised_time: str
    ended_window: int | None = None
    ended_time: str | None = None
    rules: list[str] = []
    by_labels: bool = False


def alarms_of(reports: Sequence[WindowReport]) -> list[AlarmLine]:
    """Return the alarms of all charts of a series, from its windows, in the order in which they were raised.

    A window that a chart could not judge does not change the alarm. An alarm that is on in the first window
    may have been raised earlier.
    """
    alarms: list[AlarmLine] = []
    on: dict[str, int] = {}  # the place of each metric's active alarm in `alarms`
    version = reports[0].version if reports else ""

    def end(metric: str, report: WindowReport) -> None:
        ends = {"ended_window": report.window, "ended_time": rfc3339(report.end_time)}
        place = on.pop(metric)
        alarms[place] = msgspec.structs.replace(alarms[place], **ends)

    for report in reports:
        if report.version != version:
            version = report.version
            for metric in list(on):
                end(metric, report)
        for chart in report.charts:
            verdict = chart.verdict
            if verdict.out_of_control and chart.metric not in on:
                on[chart.metric] = len(alarms)
                raised = (chart.metric, report.window, rfc3339(report.end_time))
                alarms.append(
                    AlarmLine(
                        metric=raised[0],
                        raised_window=raised[1],
                        raised_time=raised[2],
                        rules=list(verdict.rules),
                        by_labels=chart.by_labels is not None,
                    )
                )
            elif not verdict.out_of_control and chart.metric in on:
                end(chart.metric, report)
    return alarms


def _nullable(values: Sequence[float]) -> list[float | None]:
    """Replace NaN and infinities by None, because JSON has none."""
    return [value if abs(value) < float("inf") else None for value in values]


def series_view(
    last: WindowReport,
    windows: int,
    since: Mapping[str, float | None],
    attributions: tuple[Attribution, ...] = (),
) -> SeriesView:
    """Return the state of a series at the end of a window, for exporters, from the window's report.

    A report does not have all data of a `SeriesView`. The counts of predictions, duplicates, pending rows and
    violations are 0 or empty.

    Parameters
    ----------
    last : WindowReport
        The report of the window.
    windows : int
        Closed windows so far.
    since : mapping of str to float or None
        The time when each active alarm was raised, by metric.
    attributions : tuple of Attribution
        The attributions of the changes behind active alarms.
    """
    state = SeriesState.IN_CONTROL if last.charts else SeriesState.WARMING_UP
    if any(chart.verdict.out_of_control for chart in last.charts):
        state = SeriesState.OUT_OF_CONTROL
    if last.trust is not None or last.broken_features:
        state = SeriesState.UNTRUSTED
    return SeriesView(
        task=last.task,
        model=last.model,
        group=last.group,
        share=last.share,
        version=last.version,
        state=state,
        window_size=last.size,
        windows_closed=windows,
        predictions=0,
        duplicates=0,
        pending=0,
        window_end_time=last.end_time,
        calibration=last.calibration,
        estimates=last.estimates,
        values=last.values,
        charts=last.charts,
        objectives=last.objectives,
        violations={},
        trust=last.trust,
        trust_in_errors=last.trust_in_errors,
        broken_features=last.broken_features,
        alarmed_since=since,
        classes=last.classes,
        attributions=attributions,
    )
