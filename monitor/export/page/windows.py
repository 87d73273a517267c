"""The data of the page's charts: the store's history, or without a store the newest windows."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import msgspec
import numpy as np

from monitor.base.results import Estimate
from monitor.export.charts.pictures import Histories
from monitor.export.charts.svg import ControlChartData
from monitor.reports.attribution import Attribution
from monitor.reports.views import SeriesState, SeriesView
from monitor.reports.window_report import WindowReport, rfc3339, to_json
from monitor.store.database import Database
from monitor.store.history import newest_ids, newest_lines

MOST_WINDOWS = 500
"""Of a series in one chart: a window a pixel on a phone, and no more than a few milliseconds to read."""

_KEPT_LINES = 10_000  # all series together, of a kilobyte or so each

Series = tuple[str, str, str]


class Windows(Protocol):
    """Gives the newest windows of a series as lines of the reports, oldest first. Called from any thread."""

    def newest(self, series: Series, most: int, before: int | None = None) -> list[bytes]:
        """See `monitor.store.history.newest_lines`."""


class StoredWindows:
    """Those of a store that is in use.

    Parameters
    ----------
    where : Path or Database
        Its file, or its database.
    """

    def __init__(self, where: Path | Database) -> None:
        self._where = where

    def newest(self, series: Series, most: int, before: int | None = None) -> list[bytes]:
        """As of the last checkpoint."""
        return newest_lines(self._where, series, most, before)


class MovingWindows:
    """Those of the partitions whose state is here.

    Parameters
    ----------
    where : callable
        The database of a series; None where it is not here.
    """

    def __init__(self, where: Callable[[Series], Path | Database | None]) -> None:
        self._where = where

    def newest(self, series: Series, most: int, before: int | None = None) -> list[bytes]:
        """As of the last checkpoint."""
        where = self._where(series)
        return [] if where is None else newest_lines(where, series, most, before)


class RecentWindows:
    """The newest ones since the start, all series together at most 10,000 lines: for agents without a store.

    Examples
    --------
    >>> RecentWindows().newest(("toxicity", "erm", ""), 10)
    []
    """

    def __init__(self) -> None:
        self._lines: deque[tuple[Series, int, int, bytes]] = deque(maxlen=_KEPT_LINES)
        self._lock = threading.Lock()

    def add(self, reports: Sequence[WindowReport]) -> None:
        """Take closed windows."""
        with self._lock:
            for one in reports:
                series = (one.task, one.model, one.group)
                self._lines.append((series, one.window, one.revision, to_json(one)))

    def newest(self, series: Series, most: int, before: int | None = None) -> list[bytes]:
        """Of the lines that are kept."""
        with self._lock:
            own = [row for row in self._lines if row[0] == series and (before is None or row[1] < before)]
        places = ((place, own[place][1], own[place][2]) for place in range(len(own) - 1, -1, -1))
        return [own[place][3] for place in newest_ids(places, most)]


def chart_of(reports: Sequence[WindowReport], metric: str, estimator: str) -> ControlChartData:
    """The control chart of one metric of one series.

    Parameters
    ----------
    reports : sequence of WindowReport
        Of one series, at least one.
    metric : str
    estimator : str
        That the chart judges: the lines of the reports do not name it.
    """
    first = reports[0]
    histories = Histories({first.task: estimator})
    histories.add([_judged_by(report, estimator) for report in reports])
    return histories.chart((first.task, first.model, first.group), metric)


def _judged_by(report: WindowReport, estimator: str) -> WindowReport:
    return replace(report, charts=tuple(replace(chart, estimator=estimator) for chart in report.charts))


class ChartColumns(msgspec.Struct, frozen=True, kw_only=True):
    """A control chart: a value a window, oldest first; null where it is unknown.

    Parameters
    ----------
    window : list of int
        Numbers of the windows.
    time : list of float
        Their ends, seconds since the epoch; never falling.
    value, lower, upper : list of float or None
        The estimate that is judged, with its interval, as ratios.
    center, limit_lower, limit_upper : list of float or None
        Of the control chart.
    realised, realised_lower, realised_upper : list of float or None
        What labels said.
    ssme : list of float or None
    violated, out_of_control, improved : list of int
        1 where the window broke a rule, not for the better; where the alarm stood at its end; and where a
        change for the better did. Else 0.
    objective : float or None
    is_floor : bool
    level : float
        Of the intervals.
    estimator, realised_name : str
        What `value` and `realised` are called.
    versions : list of (int, str)
        Places among the windows where another version begins, with its name.
    other : list of float or None
        The same estimate of what the chart is compared with; empty where that was not asked for.
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
    ssme: list[float | None] = []
    violated: list[int] = []
    out_of_control: list[int] = []
    improved: list[int] = []
    objective: float | None = None
    is_floor: bool = True
    level: float = 0.95
    estimator: str = ""
    realised_name: str = ""
    versions: list[tuple[int, str]] = []
    other: list[float | None] = []
    other_name: str = ""


_COLUMNS = ("value", "lower", "upper", "center", "limit_lower", "limit_upper")
_BY_LABELS = ("realised", "realised_lower", "realised_upper")


def chart_columns(reports: Sequence[WindowReport], metric: str, estimator: str) -> ChartColumns:
    """The columns of the control chart of one metric of one series."""
    if not reports:
        return ChartColumns()
    chart = chart_of(reports, metric, estimator)
    columns = {name: _nullable(getattr(chart, name).tolist()) for name in (*_COLUMNS, *_BY_LABELS)}
    found = ChartColumns(
        window=[report.window for report in reports],
        time=np.maximum.accumulate([report.end_time for report in reports]).tolist(),
        ssme=[_value(report, metric, "ssme") for report in reports],
        violated=chart.violated.astype(int).tolist(),
        out_of_control=chart.out_of_control.astype(int).tolist(),
        improved=chart.improved.astype(int).tolist(),
        objective=_nullable([float(chart.objective)])[0],
        is_floor=chart.is_floor,
        level=chart.level,
        estimator=chart.estimate_name,
        realised_name=chart.realised_name,
        versions=list(chart.versions),
    )
    return msgspec.structs.replace(found, **columns)


def beside(chart: ChartColumns, other: ChartColumns, name: str, by_time: bool) -> ChartColumns:
    """A chart with the estimates of another one beside its own.

    Parameters
    ----------
    chart, other : ChartColumns
    name : str
        What the other one is called.
    by_time : bool
        Beside each window stands the newest of the other chart that had ended by then; else the windows are
        paired from the newest one back.
    """
    if by_time:
        places = (np.searchsorted(other.time, chart.time, side="right") - 1).tolist()
    else:
        missing = len(other.time) - len(chart.time)
        places = [place + missing for place in range(len(chart.time))]
    found = [other.value[place] if place >= 0 else None for place in places]
    return msgspec.structs.replace(chart, other=found, other_name=name)


class AlarmLine(msgspec.Struct, frozen=True, kw_only=True):
    """An alarm of a control chart, from the window that raised it to the one that ended it.

    Parameters
    ----------
    metric : str
    raised_window : int
    raised_time : str
        The end of that window, RFC 3339.
    ended_window : int or None
        None while the alarm is on. An alarm of a chart ends too where another version of the model begins.
    ended_time : str or None
    rules : list of str
        That the window broke which raised it.
    by_labels : bool
        Whether labels raised it, and not the chart.
    """

    metric: str
    raised_window: int
    raised_time: str
    ended_window: int | None = None
    ended_time: str | None = None
    rules: list[str] = []
    by_labels: bool = False


def alarms_of(reports: Sequence[WindowReport]) -> list[AlarmLine]:
    """The alarms of a series' windows, in the order in which they were raised.

    A window that a chart could not judge leaves its alarm as it was. An alarm that stood in the first of the
    windows may be older than that.
    """
    found: list[AlarmLine] = []
    on: dict[str, int] = {}  # by metric, the place of its alarm
    version = reports[0].version if reports else ""

    def end(metric: str, report: WindowReport) -> None:
        ends = {"ended_window": report.window, "ended_time": rfc3339(report.end_time)}
        place = on.pop(metric)
        found[place] = msgspec.structs.replace(found[place], **ends)

    for report in reports:
        if report.version != version:
            version = report.version
            for metric in list(on):
                end(metric, report)
        for chart in report.charts:
            verdict = chart.verdict
            if verdict.out_of_control and chart.metric not in on:
                on[chart.metric] = len(found)
                raised = (chart.metric, report.window, rfc3339(report.end_time))
                found.append(
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
    return found


def _nullable(values: Sequence[float]) -> list[float | None]:
    """JSON has no NaN."""
    return [value if abs(value) < float("inf") else None for value in values]


def _value(report: WindowReport, metric: str, estimator: str) -> float | None:
    for e in report.estimates:
        if e.metric == metric and e.estimator == estimator and isinstance(e.result, Estimate):
            return e.result.value
    return None


def series_view(
    last: WindowReport,
    windows: int,
    since: Mapping[str, float | None],
    attributions: tuple[Attribution, ...] = (),
) -> SeriesView:
    """A series as of a window, as far as its report tells.

    Parameters
    ----------
    last : WindowReport
    windows : int
        Closed so far.
    since : mapping of str to float or None
        By metric, when the alarm was raised that is on.
    attributions : tuple of Attribution
        Where the changes are that alarms stand for.
    """
    state = SeriesState.IN_CONTROL if last.charts else SeriesState.WARMING_UP
    if any(chart.verdict.out_of_control for chart in last.charts):
        state = SeriesState.OUT_OF_CONTROL
    if last.trust is not None:
        state = SeriesState.UNTRUSTED
    return SeriesView(
        task=last.task,
        model=last.model,
        group=last.group,
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
        charts=last.charts,
        objectives=last.objectives,
        violations={},
        trust=last.trust,
        alarmed_since=since,
        classes=last.classes,
        attributions=attributions,
    )
