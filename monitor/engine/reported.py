"""The estimates of one series as they are reported: of every estimator that its task lists."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from monitor.base.names import AVERAGE_CONFIDENCE, REALISED, REALISED_COHORT, REALISED_HORIZON
from monitor.base.results import Reason, Result, Unknown
from monitor.config.root import Task
from monitor.engine.evaluate import Evaluation
from monitor.engine.labels.tally import Tally
from monitor.engine.last_window import LastWindow, estimates_from, plain_estimates
from monitor.reports.views import ClassEstimate, MetricEstimate


class Reported:
    """Puts together what a window's report says: without labels, by labels, and by the last refit.

    Parameters
    ----------
    task : Task
    model, group : str
    tally : Tally
        The series' labelled rows.
    resume : mapping, optional
        What `snapshot` gave.
    """

    def __init__(
        self, task: Task, model: str, group: str, tally: Tally, resume: Mapping[str, Any] | None = None
    ) -> None:
        self._task = task
        self._refits = not group and model in task.refit_models
        self._by_labels = task.realised_estimators if "accuracy" in task.metrics else ()
        self._tally = tally
        self._fitted = estimates_from((resume or {}).get("fitted", ()))

    def take(self, fitted: tuple[MetricEstimate, ...]) -> None:
        """A refit has brought these."""
        self._fitted = fitted

    def of_window(
        self, window: int, evaluation: Evaluation, rivals: Sequence[MetricEstimate]
    ) -> tuple[MetricEstimate, ...]:
        """Those of a window that has closed just now.

        Parameters
        ----------
        window : int
            Its number.
        evaluation : Evaluation
        rivals : sequence of MetricEstimate
            What `monitor.engine.comparators` says of it.
        """
        found = []
        if AVERAGE_CONFIDENCE in self._task.estimators:
            found = [
                MetricEstimate(
                    metric, AVERAGE_CONFIDENCE, result, evaluation.labels if metric == "accuracy" else 0
                )
                for metric, result in evaluation.estimates.items()
            ]
        return (*found, *rivals, *self._realised(window), *self._refitted())

    def of_classes(self, evaluation: Evaluation) -> tuple[ClassEstimate, ...]:
        """The classes by themselves of a window that has closed just now, where they are asked for."""
        if AVERAGE_CONFIDENCE not in self._task.estimators:
            return ()
        return tuple(
            ClassEstimate(metric, AVERAGE_CONFIDENCE, self._task.classes[k], result)
            for (metric, k), result in evaluation.classes.items()
        )

    def current(self, last: LastWindow | None, open_window: int) -> tuple[MetricEstimate, ...]:
        """The last window's; realised as known now, of the newest window with labels; refitted as of now.

        Parameters
        ----------
        last : LastWindow or None
        open_window : int
            Its number: labels of its rows tell of no closed window.
        """
        if last is None:
            return ()
        newest = self._tally.newest(before=open_window)
        now = self._realised(self._tally.closed - 1 if newest is None else newest) + self._refitted()
        by_labels = {found.estimator for found in now}
        return (*(found for found in last.estimates if found.estimator not in by_labels), *now)

    def snapshot(self) -> dict[str, Any]:
        """What the last refit brought, for the series' snapshot."""
        return {"fitted": plain_estimates(self._fitted)}

    def _refitted(self) -> list[MetricEstimate]:
        """What the last refit said of this model, not of a window of it; nothing of a group."""
        if not self._refits:
            return []
        known = {(found.estimator, found.metric): found for found in self._fitted}
        none = Unknown(Reason.NOT_FITTED)
        return [
            known.get((tag, metric), MetricEstimate(metric, tag, none))
            for tag in self._task.refit_estimators
            for metric in self._task.metrics
        ]

    def _realised(self, window: int) -> list[MetricEstimate]:
        """What the labels that are known say of this window, of the newest cohort, and of the horizon."""
        task = self._task
        if not self._by_labels:
            return []
        found: dict[str, Callable[[], Result]] = {
            REALISED: lambda: self._tally.realised(window, task.level),
            REALISED_COHORT: lambda: self._tally.realised_cohort(task.level),
            REALISED_HORIZON: lambda: self._tally.realised_horizon(task.level),
        }
        return [
            MetricEstimate("accuracy", name, estimate())
            for name, estimate in found.items()
            if name in self._by_labels
        ]
