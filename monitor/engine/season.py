"""The season of one charted metric of a series: collects its four weeks, and judges windows by their hour.

Until there are four weeks, the chart has the same centre and limits at all hours. A window in which an alarm
has been on for more than a week is not in control; the four weeks begin again after it. A shorter alarm may
be the season itself, so its windows count, unless they differ from the same hours of the other weeks.

The four weeks are complete when four times as many days have windows as days of the week do: 28, or 20
without weekends. Cells more than four weeks from the median cell do not count. So neither a pause nor a wrong
time stands for weeks of windows, and a stream that continues after a pause outvotes the weeks before it.
While labels hold the alarm of the accuracy, the season does not begin: the newest weeks may be the failure.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median_low

import msgspec

from monitor.base.registry import METRICS
from monitor.base.results import Estimate
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
    near_other_weeks,
    repeated_cells,
)

log = logging.getLogger("blindsight")

_DAY = 24  # hours
_WEEK_SECONDS = HOURS * 3600.0
_MOST_AWAY = WEEKS * HOURS  # hours, of a cell from the median cell


class SeasonState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The stored state of a `SeasonLogic`.

    Parameters
    ----------
    points : list of HourPoint
        The cells that were collected, in the order in which they began; empty once there is a season.
    season : Season or None
    labelled : list of HourPoint
        The corrected accuracy of the first window with enough labels of each cell.
    newest : list of int
        The hours of the newest windows, the last one last.
    """

    points: list[HourPoint] = []
    season: Season | None = None
    labelled: list[HourPoint] = []
    newest: list[int] = []


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
    weight : float
        The weight of the newest window in what the chart judges: `Detector.newest_weight`.
    """

    chart: ChartConfig
    name: str
    metric: str
    weight: float = 1.0

    def build(self, resume: SeasonState | None = None) -> SeasonLogic:
        """Return the season, new or resumed from a snapshot."""
        return SeasonLogic(self, resume)


class SeasonLogic:
    """The season of one metric: fitted, or collecting its weeks."""

    def __init__(self, settings: SeasonSettings, resume: SeasonState | None = None) -> None:
        state = resume or SeasonState()
        self._settings = settings
        self._zone = time_zone(settings.chart.time_zone)
        self._bounds = METRICS[settings.metric].bounds
        self._points = {point.hour: point for point in state.points}
        self._season = state.season
        self._labelled = {point.hour: point for point in state.labelled}
        self._newest = deque(state.newest, POOLED)
        self._logged = ""

    def start(self, points: Sequence[HourPoint]) -> Baseline | None:
        """Fit the season on the cells of a reference, and return the baseline of the chart.

        The result is None if the reference is shorter than four weeks, or has too few windows.
        """
        days, needed = count_days(point.hour for point in points)
        if days < needed or (fit := fit_season(points, self._settings.weight, self._bounds)) is None:
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
        """The mean offset of the newest windows that labels judge together; 0 without a season."""
        if self._season is None or not self._newest:
            return 0.0
        return sum(float(self._season.offsets[hour % HOURS]) for hour in self._newest) / len(self._newest)

    def judge(self, chart: ChartLogic, value: float, size: int, time: float) -> Verdict:
        """Return the verdict of a chart on a window whose middle record has this time."""
        hour = hour_number(time, self._zone)
        self._newest.append(hour)
        if self._season is None:
            return chart.update(value, size)
        return self._season.judge(chart, value, size, hour)

    def collect(
        self,
        point: tuple[float, int, float],
        times: tuple[float, float],
        alarmed_since: float | None,
        labelled: Estimate | None = None,
        held: bool = False,
    ) -> Baseline | None:
        """Add a judged window. Return a baseline for the chart if the season begins with the next window.

        Parameters
        ----------
        point : tuple
            The estimate of the window, its number of rows, and the standard deviation of one row.
        times : tuple of float
            The time of the window's middle record, and of its end.
        alarmed_since : float or None
            The time of the window that raised the metric's alarm; None without an alarm.
        labelled : Estimate, optional
            The corrected accuracy of the window, if it has enough labels.
        held : bool
            Whether labels hold the alarm, so that the season does not begin.
        """
        if self._season is not None:
            return None
        middle, end = times
        if alarmed_since is not None and end - alarmed_since > _WEEK_SECONDS:
            self._points, self._labelled = {}, {}
            return None
        hour = hour_number(middle, self._zone)
        if not held and self._begins_a_day(hour) and (baseline := self._fit()) is not None:
            return baseline
        self._add(hour, *point, labelled)
        return None

    def pop_labelled(self) -> tuple[list[float], list[int]]:
        """Return and drop the labelled accuracies of the four weeks without the season, and their rows.

        Hours that are far from the same hours of the other weeks are left out. The result is empty before
        there is a season.
        """
        if self._season is None:
            return [], []
        points, self._labelled = near_other_weeks(list(self._labelled.values())), {}
        offsets = self._season.offsets
        without = [min(max(each.value - float(offsets[each.hour % HOURS]), 0.0), 1.0) for each in points]
        return without, [int(each.size) for each in points]

    def _begins_a_day(self, hour: int) -> bool:
        """Return whether an hour is on a day without cells, and the four weeks before it are complete."""
        if hour in self._points or hour // _DAY in {each // _DAY for each in self._points}:
            return False
        days, needed = count_days(each.hour for each in self._counted())
        return bool(days) and days >= needed

    def _counted(self) -> list[HourPoint]:
        """Return the cells that are at most four weeks from the median cell."""
        if not self._points:
            return []
        middle = median_low(self._points)
        return [point for hour, point in self._points.items() if abs(hour - middle) <= _MOST_AWAY]

    def _add(self, hour: int, value: float, size: int, row_sd: float, labelled: Estimate | None) -> None:
        if labelled is not None and hour not in self._labelled:
            own_sd = (labelled.value * (1 - labelled.value)) ** 0.5
            self._labelled[hour] = HourPoint.from_window(hour, labelled.value, labelled.n, own_sd)
        known = self._points.get(hour)
        if known is not None:
            self._points[hour] = known.plus(value, size)
            return
        self._points[hour] = HourPoint.from_window(hour, value, size, row_sd)
        if len(self._points) == 1:
            self._log_view()
        # Later cells stay, because they may outvote the median; at most half of all cells are later.
        oldest = median_low(self._points) - _MOST_AWAY
        self._points = {each: cell for each, cell in self._points.items() if each >= oldest}
        self._labelled = {each: cell for each, cell in self._labelled.items() if each in self._points}

    def _fit(self) -> Baseline | None:
        points = self._counted()
        fit = fit_season(points, self._settings.weight, self._bounds)
        if fit is not None:
            hours = {point.hour for point in points}
            self._labelled = {hour: each for hour, each in self._labelled.items() if hour in hours}
            self._season, self._points = fit.season, {}
        self._log_view()
        if fit is not None and fit.left_out:
            log.warning(
                "%s: %d hours are far from the other weeks, and do not count.",
                self._settings.name,
                fit.left_out,
            )
        return None if fit is None else fit.baseline

    def _log_view(self) -> None:
        """Log whether there is a season, and otherwise why not, unless the last line said the same."""
        if (words := str(self.view())) != self._logged:
            self._logged = words
            log.info("%s: %s.", self._settings.name, words)

    def view(self, held: bool = False) -> SeasonView:
        """Return what exporters show: whether there is a season, and otherwise when it begins.

        Parameters
        ----------
        held : bool
            Whether labels hold the alarm, so that the season does not begin.
        """
        waits = "" if self._season is not None else self._waits(held)
        return SeasonView(self._settings.metric, self._settings.chart.time_zone, waits)

    def _waits(self, held: bool) -> str:
        """Return the reason why there is no season yet."""
        points = self._counted()
        if not points:
            return "the four weeks begin with the next window in control"
        hours = [point.hour for point in points]
        days, needed = count_days(hours)
        if days >= needed and repeated_cells(points) < FEWEST_REPEATED:
            return f"they need {FEWEST_REPEATED} hours with windows in the same hour of an earlier week"
        first, last = min(hours) // _DAY, next(reversed(self._points)) // _DAY
        before, enough = count_days(hour for hour in hours if hour // _DAY != last)
        if not before or before < enough:
            begin = max(first + WEEKS * 7, last + 1 + max(needed - days, 0))
            what = "four weeks of windows of one version in control"
            return f"they need {what}, and begin on {date_of(begin * _DAY)}"
        if held:
            return "they begin when the alarm that labels hold has ended"
        return "they begin with the next day"

    def snapshot(self) -> SeasonState:
        """Return the state, from which another `SeasonLogic` can resume."""
        return SeasonState(
            list(self._points.values()), self._season, list(self._labelled.values()), list(self._newest)
        )


def count_days(hours: Iterable[int]) -> tuple[int, int]:
    """Return the number of days that have one of these hours, and how many such days make four weeks.

    Four weeks are four days for each day of the week that has hours. All seven count before hours have
    covered a week.

    Examples
    --------
    >>> count_days([30, 50, 71]), count_days(range(28 * 24))
    ((2, 28), (28, 28))
    >>> count_days(hour for hour in range(28 * 24) if hour % 168 < 5 * 24)  # without Saturday and Sunday
    (20, 20)
    """
    days = {hour // _DAY for hour in hours}
    covers_a_week = bool(days) and max(days) - min(days) >= 6
    return len(days), WEEKS * (len({day % 7 for day in days}) if covers_a_week else 7)
