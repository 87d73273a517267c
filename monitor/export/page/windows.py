"""The data of the page's charts: the store's history, or without a store the newest windows."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from monitor.base.results import Estimate
from monitor.export.charts.pictures import Histories
from monitor.export.charts.svg import ControlChartData
from monitor.reports.reader import from_json
from monitor.reports.window_report import WindowReport, to_json
from monitor.store.database import Database
from monitor.store.history import chosen, newest_lines

MOST_WINDOWS = 500
"""Of a series in one chart: a window a pixel on a phone, and no more than a few milliseconds to read."""

_KEPT_LINES = 10_000  # all series together, of a kilobyte or so each

Series = tuple[str, str, str]


class Windows(Protocol):
    """Gives the newest windows of a series as lines of the reports, oldest first. Called from any thread."""

    def newest(self, series: Series, most: int) -> list[bytes]:
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

    def newest(self, series: Series, most: int) -> list[bytes]:
        """As of the last checkpoint."""
        return newest_lines(self._where, series, most)


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

    def newest(self, series: Series, most: int) -> list[bytes]:
        """Of the lines that are kept."""
        with self._lock:
            own = [row for row in self._lines if row[0] == series]
        places = ((place, own[place][1], own[place][2]) for place in range(len(own) - 1, -1, -1))
        return [own[place][3] for place in chosen(places, most)]


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


def history_json(lines: Sequence[bytes], metric: str, estimator: str) -> dict[str, Any]:
    """A chart's columns for the page's script: ratios, times in seconds since the epoch, null for unknown."""
    reports = [from_json(line) for line in lines]
    if not reports:
        return {"time": []}
    chart = chart_of(reports, metric, estimator)
    columns: tuple[str, ...] = ("value", "lower", "upper", "center", "limit_lower", "limit_upper")
    columns += ("realised", "realised_lower", "realised_upper")
    found: dict[str, Any] = {name: _nullable(getattr(chart, name).tolist()) for name in columns}
    return found | {
        "window": [report.window for report in reports],
        "time": chart.x.tolist(),
        "ssme": [_value(report, metric, "ssme") for report in reports],
        "violated": chart.violated.astype(int).tolist(),
        "out_of_control": chart.out_of_control.astype(int).tolist(),
        "objective": _nullable([float(chart.objective)])[0],
        "is_floor": chart.is_floor,
        "level": chart.level,
        "estimator": chart.estimate_name,
        "realised_name": chart.realised_name,
        "versions": chart.versions,
    }


def _nullable(values: Sequence[float]) -> list[float | None]:
    """JSON has no NaN."""
    return [value if abs(value) < float("inf") else None for value in values]


def _value(report: WindowReport, metric: str, estimator: str) -> float | None:
    for e in report.estimates:
        if e.metric == metric and e.estimator == estimator and isinstance(e.result, Estimate):
            return e.result.value
    return None
