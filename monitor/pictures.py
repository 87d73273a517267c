"""Control charts from closed windows: what a replay and the demo draw at their end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from monitor.estimate.proportion import wilson
from monitor.evaluate import AVERAGE_CONFIDENCE
from monitor.export.svg import ControlChartData
from monitor.report import WindowReport
from monitor.result import Estimate

_COLUMNS = 8


@dataclass(slots=True)
class History:
    """The windows of one series and metric by their numbers, as figures: not the reports themselves."""

    level: float = 0.95
    objective: float = math.nan
    is_floor: bool = True
    rows: dict[int, tuple[float, ...]] = field(default_factory=dict)

    def add(self, metric: str, report: WindowReport) -> None:
        """Take the estimate, limits and alarm of a window."""
        found = next(
            (
                e.result
                for e in report.estimates
                if e.metric == metric and e.estimator == AVERAGE_CONFIDENCE and isinstance(e.result, Estimate)
            ),
            None,
        )
        chart = next((c.verdict for c in report.charts if c.metric == metric), None)
        for objective in report.objectives:
            if objective.metric == metric:
                self.objective, self.is_floor = objective.bound, objective.is_floor
        if found is not None:
            self.level = found.level
        self.rows[report.window] = (
            report.end_time,
            *((found.value, found.lower, found.upper) if found else (math.nan,) * 3),
            *((chart.center, chart.lower, chart.upper) if chart else (math.nan,) * 3),
            float(bool(chart and chart.rules)),
            float(bool(chart and chart.out_of_control)),
        )


class Histories:
    """The windows of every series, for pictures.

    Examples
    --------
    >>> Histories().charts({})
    {}
    """

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, str], dict[str, History]] = {}

    def add(self, reports: Sequence[WindowReport]) -> None:
        """Take closed windows."""
        for report in reports:
            series = self._found.setdefault((report.task, report.model, report.group), {})
            # Those of earlier windows too: one that a window says nothing of is a gap in its chart.
            for metric in dict.fromkeys([*series, *(e.metric for e in report.estimates)]):
                series.setdefault(metric, History()).add(metric, report)

    def charts(
        self,
        labelled: dict[tuple[str, str, str], dict[int, tuple[int, int]]],
        realised_name: str = "realised",
    ) -> dict[tuple[str, str, str], list[ControlChartData]]:
        """A picture's data for each series: one chart a metric.

        Parameters
        ----------
        labelled : mapping of (task, model, group) to mapping of int to (int, int)
            By window, its labelled rows and how many of those were right.
        realised_name : str
            What the legend calls that.
        """
        return {
            series: [
                _chart(series, metric, history, labelled.get(series, {}), realised_name)
                for metric, history in metrics.items()
                if not np.isnan([row[1] for row in history.rows.values()]).all()
            ]
            for series, metrics in self._found.items()
        }


def _chart(
    series: tuple[str, str, str],
    metric: str,
    history: History,
    labelled: dict[int, tuple[int, int]],
    realised_name: str,
) -> ControlChartData:
    columns = np.array(list(history.rows.values()), dtype=np.float64).T
    places = {window: place for place, window in enumerate(history.rows)}
    realised = np.full((3, len(history.rows)), np.nan)
    if metric == "accuracy":
        for window, (n, k) in labelled.items():
            found = wilson(k, n, history.level)
            if isinstance(found, Estimate) and window in places:
                realised[:, places[window]] = found.value, found.lower, found.upper
    task, model, group = series
    times = np.maximum.accumulate(columns[0])
    return ControlChartData(
        title=f"{model}{' · ' + group if group else ''}: {metric}",
        subtitle=f"task {task}, {len(history.rows)} windows",
        x=times,
        x_is_time=True,
        value=columns[1],
        lower=columns[2],
        upper=columns[3],
        center=columns[4],
        limit_lower=columns[5],
        limit_upper=columns[6],
        violated=columns[7] > 0,
        out_of_control=columns[8] > 0,
        realised=realised[0],
        realised_lower=realised[1],
        realised_upper=realised[2],
        objective=history.objective,
        is_floor=history.is_floor,
        level=history.level,
        estimate_name="average confidence",
        realised_name=realised_name,
    )
