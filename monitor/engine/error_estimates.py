"""The estimates of a series' metrics of errors without labels."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from monitor.base.names import DOUBLY_ROBUST
from monitor.base.records import Floats
from monitor.base.results import Reason, Unknown
from monitor.config.task import Task
from monitor.engine.labels.error_trust import ExpectedError, choose_tests
from monitor.engine.reference import Reference
from monitor.reports.views import MetricEstimate
from monitor.stats.regression.losses import MOST_UNUSABLE, LossReference, MeanLoss
from monitor.stats.regression.metrics import CAPPED, FUNCTIONS, metric_of_mean


class ErrorEstimator:
    """The estimator of the metrics that `Task.error_units` names, for the windows of one series.

    The errors of the series' rows in the reference are fitted at the first use. A group has its own rows,
    because its errors may differ from those of the whole model.

    Parameters
    ----------
    task : Task
    reference : Reference or None
        The labelled reference of the model; None if it has none, and then the metrics are unknown.
    group : str
        The name of the group; ``""`` for the model.
    """

    def __init__(self, task: Task, reference: Reference | None, group: str) -> None:
        self._task, self._reference, self._group = task, reference, group
        self._losses: LossReference | Unknown | None = None
        self._cap: float | None = None

    def learn(self) -> bool:
        """Fit the errors of the reference in advance; return False if there is nothing to fit."""
        if not self._task.error_units or self._losses is not None:
            return False
        return isinstance(self._known(), LossReference)

    def means(self, features: Floats) -> Mapping[str, MeanLoss | Unknown]:
        """Return the mean loss behind each metric of a window, and those of `CAPPED` that labels test.

        The result is empty without such metrics.

        Parameters
        ----------
        features : (n, F + 1) float64
            The features of the window's rows, then their predictions.
        """
        units = self._task.error_units
        if not units:
            return {}
        known, capped = self._known(), [CAPPED[metric] for metric in choose_tests(units)]
        has_column = features.shape[1] == len(self._task.features) + 1
        # Older versions did not store predictions, which no row of this version lacks.
        if not has_column or np.isnan(features[:, -1]).sum() > MOST_UNUSABLE * len(features):
            known = Unknown(Reason.OLDER_WINDOW)
        if isinstance(known, Unknown):
            return dict.fromkeys((*units, *capped), known)
        functions = {metric: FUNCTIONS[metric] for metric in units if metric in FUNCTIONS}
        means = known.estimate(features, functions)
        means.setdefault("coverage", Unknown(Reason.NO_INTERVALS))  # of a reference that states none
        return {metric: means[metric] for metric in (*units, *capped)}

    def estimates(self, means: Mapping[str, MeanLoss | Unknown]) -> tuple[MetricEstimate, ...]:
        """Return the estimates of a window from the result of `means`."""
        if not means:
            return ()
        level = self._task.level
        return tuple(
            MetricEstimate(metric, DOUBLY_ROBUST, metric_of_mean(metric, means[metric], level), unit=unit)
            for metric, unit in self._task.error_units.items()
        )

    def expected(self, means: Mapping[str, MeanLoss | Unknown]) -> dict[str, ExpectedError]:
        """Return what the tests of trust expect of a window's labels, by metric, from the result of `means`.

        A metric whose estimate is unknown is left out.
        """
        known = {metric: means.get(loss) for metric, loss in CAPPED.items()}
        capped = {metric: mean for metric, mean in known.items() if isinstance(mean, MeanLoss)}
        if not capped or self._reference is None:
            return {}
        if self._cap is None:
            self._cap = self._reference.error_cap(self._group)
        if not self._cap > 0.0:
            return {}
        return {
            metric: ExpectedError(mean.value, math.sqrt(max(mean.variance - mean.chance, 0.0)), self._cap)
            for metric, mean in capped.items()
        }

    def _known(self) -> LossReference | Unknown:
        if self._losses is None:
            none = Unknown(Reason.NO_REFERENCE)
            own = self._reference
            self._losses = (
                none if own is None else own.losses(self._task.features, self._group, self._task.error_units)
            )
        return self._losses
