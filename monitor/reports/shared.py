"""Changes that the models of a task share, from the newest windows of all its models."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from monitor.base.registry import METRICS
from monitor.base.results import Estimate
from monitor.reports.views import ChartView, ObjectiveState, SeriesState, SeriesView
from monitor.reports.window_report import finite
from monitor.reports.window_view import leading_estimate
from monitor.stats.charts.shared import FEWEST_MODELS, moved_together

Charted = tuple[SeriesView, ChartView]
"""A model with its chart of the metric."""


@dataclass(frozen=True, slots=True)
class SharedView:
    """The comparison of the models of a task by the charts of one metric.

    Parameters
    ----------
    task, metric : str
    models : tuple of str
        The compared models, at least three.
    changes : tuple of (str, float or None)
        The models that share a change for the worse, each with the difference of its newest estimate from its
        baseline, -1 to 1; None if the estimate is unknown. The largest change for the worse is first. Empty
        if the models share no change.
    since : float or None
        The time when the change began, seconds since the epoch: the median of the times at which the alarms
        of these models began. None if it is unknown, and if the models share no change.
    breached : tuple of str
        The models that share the change and whose objective for this metric is breached, in the order of
        `changes`. Empty for a past change.
    until : float or None
        The time when a past change ended, seconds since the epoch. None while it is on, and if the models
        share no change.
    """

    task: str
    metric: str
    models: tuple[str, ...]
    changes: tuple[tuple[str, float | None], ...] = ()
    since: float | None = None
    breached: tuple[str, ...] = ()
    until: float | None = None

    @property
    def alarm(self) -> bool:
        """True if the models share a change for the worse."""
        return bool(self.changes)

    @property
    def change(self) -> float | None:
        """The median of the known changes; None if no change is known."""
        known = [change for _, change in self.changes if change is not None]
        return statistics.median(known) if known else None


def shared_views(series: Iterable[SeriesView]) -> Iterator[SharedView]:
    """Yield the comparison of the models of each task, by each metric whose alarms raise alerts.

    The result depends only on the newest closed window of each model, so it is the same however many engines
    made the views. A model is left out in these cases, and counts neither as moved nor as quiet:

    * It has no chart of the metric yet, or its newest window was too small to be judged.
    * It is silent, or its newest window ended more than `SeriesView.shared_seconds` before or after the
      median end of the models' newest windows: it may not overlap theirs. The median ignores a single clock
      that is ahead.
    * `chart.shared` is off.

    A metric of fewer than three compared models is left out too.
    """
    by_metric: dict[tuple[str, str], list[Charted]] = {}
    for one in series:
        if one.shared_seconds and not one.group and one.state is not SeriesState.SILENT:
            for chart in one.charts:
                if METRICS[chart.metric].pages:
                    by_metric.setdefault((one.task, chart.metric), []).append((one, chart))
    for (task, metric), models in by_metric.items():
        usual = statistics.median(one.window_end_time or 0.0 for one, _ in models)
        timely = [
            (one, chart)
            for one, chart in models
            if abs((one.window_end_time or 0.0) - usual) <= one.shared_seconds
        ]
        if len(timely) >= FEWEST_MODELS:
            yield _compared(task, metric, timely)


def _compared(task: str, metric: str, models: Sequence[Charted]) -> SharedView:
    names = tuple(one.model for one, _ in models)
    deviations = np.array([_deviation(chart) for _, chart in models]) * METRICS[metric].better
    alarmed = np.array([chart.verdict.out_of_control for _, chart in models])
    together = moved_together(deviations, alarmed)
    moved = [each for each, is_moved in zip(models, together.tolist(), strict=True) if is_moved]
    if not moved:
        return SharedView(task, metric, names)
    changes = [(one.model, _change(one, chart)) for one, chart in moved]
    changes.sort(key=lambda each: 0.0 if each[1] is None else each[1] * METRICS[metric].better)
    began = [time for one, _ in moved if (time := one.alarmed_since.get(metric)) is not None]
    missing = {
        one.model
        for one, _ in moved
        for each in one.objectives
        if each.metric == metric and each.state is ObjectiveState.BREACHED
    }
    breached = tuple(model for model, _ in changes if model in missing)
    since = statistics.median_low(began) if began else None
    return SharedView(task, metric, names, tuple(changes), since, breached)


def _deviation(chart: ChartView) -> float:
    """Return the deviation of the newest window; 0 if labels decide about the alarm, not the confidences."""
    return 0.0 if chart.by_labels is not None else chart.verdict.deviation


def _change(one: SeriesView, chart: ChartView) -> float | None:
    """Return the difference of the newest estimate from the baseline; None if the estimate is unknown."""
    estimate = leading_estimate(one.estimates, chart.metric, chart.estimator)
    result = None if estimate is None else finite(estimate.result)
    return result.value - chart.verdict.center if isinstance(result, Estimate) else None
