"""The season of one charted metric of a series: collects its four weeks, and judges windows by their hour.

Until there are four weeks, the chart has the same centre and limits at all hours. A window in which an alarm
has been on for more than a week is not in control; the four weeks begin again after it. A shorter alarm may
be the season itself, so its windows count, unless they differ from the same hours of the other weeks.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from monitor.base.zones import time_zone
from monitor.config.chart import ChartConfig
from monitor.engine.label_alarm import POOLED
from monitor.reports.window_view import SeasonView
from monitor.stats.charts.base import Baseline, Verdict
from monitor.stats.charts.latch import ChartLogic
from monitor.stats.charts.season import (
    FEWEST_REPEATED,
    HOURS,
    WEEKS,
    HourPoint,
    Season,
    date_of,
    fit_season,
    hour_number,
)

log = logging.getLogger("blindsight")

NEEDED_HOURS = WEEKS * HOURS
_DAY = 24  # hours
_WEEK_SECONDS = HOURS * 3600.0
_MOST_HOURS = 2 * NEEDED_HOURS  # of cells, if few of them repeat an hour


class SeasonState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The stored state of a `SeasonLogic`.

    Parameters
    ----------
    points : list of HourPoint
        The cells that were collected; empty once there is a season.
    season : Season or None
    recent : list of float
        The offsets of the newest windows, the last one last.
    """

    points: list[HourPoint] = []
    season: Season | None = None
    recent: list[float] = []


@dataclass(frozen=True, slots=True)
class SeasonSettings:
    """The settings of the season of a metric.

    Parameters
    ----------
    chart : ChartConfig
        The task's section `chart`, with its time zone.
    name : str
        The name of the series and the metric in the log.
    metric : str
    """

    chart: ChartConfig
    name: str
    metric: str

    def build(self, resume: SeasonState | None = None) -> SeasonLogic:
        """Return the season, new or resumed from a snapshot."""
        return SeasonLogic(self, resume)


class SeasonLogic:
    """The season of one metric: fitted, or collecting its weeks."""

    def __init__(self, settings: SeasonSettings, resume: SeasonState | None = None) -> None:
        state = resume or SeasonState()
        self._settings = settings
        self._zone = time_zone(settings.chart.time_zone)
        self._points = {point.hour: point for point in state.points}
        self._season = state.season
        self._recent = deque(state.recent, POOLED)

    def start(self, points: Sequence[HourPoint]) -> Baseline | None:
        """Fit the season on the cells of a reference, and return the baseline of the chart.

        The result is None if the reference is shorter than four weeks, or has too few windows.
        """
        if (
            covered_hours(point.hour for point in points) < NEEDED_HOURS
            or (fit := fit_season(points)) is None
        ):
            return None
        if fit.left_out:
            log.warning(
                "%s: %d of the %d hours of the reference are far from the other weeks, and do not count.",
                self._settings.name,
                fit.left_out,
                len(points),
            )
        self._season = fit.season
        return fit.baseline

    def restarted(self) -> SeasonLogic:
        """Return the season without the collected weeks."""
        return self._settings.build()

    @property
    def fitted(self) -> bool:
        """True if windows are judged by their hour."""
        return self._season is not None

    def offset(self, time: float) -> float:
        """Return the deviation of the hour of this time from the common centre; 0 without a season."""
        if self._season is None:
            return 0.0
        return float(self._season.offsets[hour_number(time, self._zone) % HOURS])

    @property
    def pooled_offset(self) -> float:
        """The mean offset of the newest windows that labels judge together."""
        return sum(self._recent) / len(self._recent) if self._recent else 0.0

    def judge(self, chart: ChartLogic, value: float, size: int, time: float) -> Verdict:
        """Return the verdict of a chart on a window whose middle record has this time."""
        if self._season is None:
            return chart.update(value, size)
        self._recent.append(self.offset(time))
        return self._season.judge(chart, value, size, hour_number(time, self._zone))

    def collect(
        self, value: float, size: int, row_sd: float, times: tuple[float, float], alarmed_since: float | None
    ) -> Baseline | None:
        """Add a judged window. Return a baseline for the chart if the season begins with the next window.

        Parameters
        ----------
        value, row_sd : float
        size : int
        times : tuple of float
            The time of the window's middle record, and of its end.
        alarmed_since : float or None
            The time of the window that raised the metric's alarm; None without an alarm.
        """
        if self._season is not None:
            return None
        middle, end = times
        if alarmed_since is not None and end - alarmed_since > _WEEK_SECONDS:
            self._points = {}
            return None
        hour = hour_number(middle, self._zone)
        baseline = None
        if self._points and hour // _DAY > max(self._points) // _DAY and self._missing(hour) <= 0:
            baseline = self._fit()
        if baseline is None:
            self._add(hour, value, size, row_sd)
        return baseline

    def _missing(self, hour: int) -> int:
        """Return the number of hours from the start of the day of `hour` to the end of the four weeks."""
        return min(self._points) // _DAY * _DAY + NEEDED_HOURS - hour // _DAY * _DAY

    def _add(self, hour: int, value: float, size: int, row_sd: float) -> None:
        known = self._points.get(hour)
        if known is not None:
            self._points[hour] = known.plus(value, size)
            return
        self._points[hour] = HourPoint.from_window(hour, value, size, row_sd)
        if len(self._points) == 1:
            log.info("%s: %s.", self._settings.name, self.view())
        if len(self._points) > _MOST_HOURS:
            del self._points[min(self._points)]

    def _fit(self) -> Baseline | None:
        fit = fit_season(list(self._points.values()))
        if fit is not None:
            self._season, self._points = fit.season, {}
        log.info("%s: %s.", self._settings.name, self.view())
        if fit is not None and fit.left_out:
            log.warning(
                "%s: %d hours are far from the other weeks, and do not count.",
                self._settings.name,
                fit.left_out,
            )
        return None if fit is None else fit.baseline

    def view(self) -> SeasonView:
        """Return what exporters show: whether there is a season, and otherwise when it begins."""
        zone = self._settings.chart.time_zone
        if self._season is not None:
            return SeasonView(self._settings.metric, zone)
        if not self._points:
            return SeasonView(
                self._settings.metric, zone, "the four weeks begin with the next window in control"
            )
        ends = min(self._points) // _DAY * _DAY + NEEDED_HOURS
        if max(self._points) < ends:
            return SeasonView(
                self._settings.metric,
                zone,
                f"they need four weeks of windows in control, and begin on {date_of(ends)}",
            )
        return SeasonView(
            self._settings.metric,
            zone,
            f"they need {FEWEST_REPEATED} hours with windows in the same hour of an earlier week",
        )

    def snapshot(self) -> SeasonState:
        """Return the state, from which another `SeasonLogic` can resume."""
        return SeasonState(list(self._points.values()), self._season, list(self._recent))


def covered_hours(hours: Iterable[int]) -> int:
    """Return the number of hours of the days from the first to the last of these hours.

    Examples
    --------
    >>> covered_hours([30, 50, 71]), covered_hours([])
    (48, 0)
    """
    days = [hour // _DAY for hour in hours]
    return (max(days) - min(days) + 1) * _DAY if days else 0
