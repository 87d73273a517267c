"""Estimators of other papers and tools, for comparison: DoC-Feat, ATC and NannyML's band.

They are fitted on the model's labelled reference. DoC-Feat and ATC are registered as classes, and estimate
the accuracy from confidences. The band is registered as a function, which replaces the interval of an
estimate of the accuracy, or of another metric such as precision.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import asdict, fields, replace
from typing import Any

import msgspec
import numpy as np

from monitor.base.records import Floats
from monitor.base.registry import COMPARISON_ESTIMATORS, Classes
from monitor.base.results import Estimate, Reason, Result, Unknown
from monitor.config.task import Task
from monitor.engine.evaluate import Evaluation
from monitor.engine.reference import Reference
from monitor.reports.views import MetricEstimate
from monitor.stats.calibration import CALIBRATORS
from monitor.stats.calibration.base import Calibration, confidence_of
from monitor.stats.estimate.classification import CLASSIFICATION_METRICS
from monitor.stats.estimate.influence import labelled_row_sd
from monitor.stats.estimate.poisson_binomial import TrimmedPmf, trimmed_pmf_many
from monitor.stats.estimate.reference import ReferenceEstimator

_CODE: Classes[Any] = Classes(COMPARISON_ESTIMATORS)


class ComparisonFits(msgspec.Struct, frozen=True):
    """The parameters of the comparison estimators, fitted on a labelled reference.

    Parameters
    ----------
    bias : float
        The bias of DoC-Feat.
    threshold : float
        The threshold of ATC.
    row_sd : mapping of str to float
        The standard deviation of one labelled row, by metric. It is the standard error of the realised metric
        times √n. A metric that is undefined in the reference is missing.
    others : mapping of str to float
        The parameters of any other estimators, by the names of their fields.
    """

    bias: float
    threshold: float
    row_sd: dict[str, float]
    others: dict[str, float] = {}

    @classmethod
    def fit(cls, reference: Reference, calibration: Calibration, task: Task) -> ComparisonFits:
        """Return the parameters fitted on all labelled rows of a model's reference.

        If the calibration was fitted on the same rows, the confidences are cross-fitted: each row's
        confidence comes from a fit on other rows. Without cross-fitting, the bias of DoC-Feat would always be
        0.

        Raises
        ------
        ValueError
            The reference has no row.
        """
        confidence = _confidence(reference, calibration)
        correct = reference.labels == reference.predicted
        numbers: dict[str, float] = {}
        for code in _CODE.values():
            if isinstance(code, type):
                numbers |= asdict(code.fit(confidence, correct))  # type: ignore[attr-defined]
        bias, threshold = numbers.pop("bias"), numbers.pop("threshold")
        return cls(bias, threshold, _row_sds(reference, task), numbers)

    def fitted(self, code: type[ReferenceEstimator]) -> ReferenceEstimator:
        """Return an estimator of the class `code` with the fitted parameters."""
        kept = {"bias": self.bias, "threshold": self.threshold, **self.others}
        return code(**{each.name: kept[each.name] for each in fields(code)})


class ComparisonEstimators:
    """The comparison estimators of one series (a model, or a group of its answers).

    They need the model's labelled reference. Without a reference, each estimate is unknown. The estimators
    are fitted at the start. A fitted threshold is valid only for the confidences of one calibration, so a new
    calibration fits the estimators again on the same rows. A new version of the model does not.

    Parameters
    ----------
    task : Task
    reference : Reference or None
        The model's reference. A group uses the reference of its model.
    calibration : Calibration
        The calibration in use.
    fits : ComparisonFits, optional
        The parameters from the series' snapshot.
    """

    def __init__(
        self,
        task: Task,
        reference: Reference | None,
        calibration: Calibration,
        fits: ComparisonFits | None = None,
    ) -> None:
        self._task, self._reference = task, reference
        self._tags = tuple(tag for tag in COMPARISON_ESTIMATORS if tag in task.estimators)
        self.fits = fits
        if self.fits is None:
            self.refit(calibration)

    def refit(self, calibration: Calibration) -> None:
        """Fit the estimators again, because the calibration and therefore the confidences have changed."""
        if self._tags and self._reference is not None:
            self.fits = ComparisonFits.fit(self._reference, calibration, self._task)

    def estimates(self, evaluation: Evaluation) -> list[MetricEstimate]:
        """Return a window's estimates by the comparison estimators that are configured.

        DoC-Feat and ATC estimate the accuracy. The band applies to all metrics but calibration errors.
        """
        estimates = []
        for tag in self._tags:
            fitted = isinstance(_CODE[tag], type)
            metrics = (self._task.share,) if fitted else (*CLASSIFICATION_METRICS, self._task.share)
            estimates += [
                MetricEstimate(metric, tag, self._estimate(tag, metric, evaluation))
                for metric in evaluation.estimates
                if metric in metrics
            ]
        return estimates

    def judged(self, evaluation: Evaluation) -> Evaluation:
        """Return the evaluation, with its accuracy replaced by the estimate that charts and objectives judge.

        The setting `chart.estimator` names the estimator of this accuracy.
        """
        tag = self._task.chart.estimator
        share = self._task.share
        if tag not in COMPARISON_ESTIMATORS or share not in evaluation.estimates:
            return evaluation
        result = self._estimate(tag, share, evaluation)
        row_sd = dict(evaluation.row_sd)
        counts: TrimmedPmf | None = None
        if isinstance(result, Estimate):
            [counts] = trimmed_pmf_many(np.full((1, result.n), result.value))
            if _CODE[tag].is_share:
                row_sd[share] = math.sqrt(result.value * (1.0 - result.value))
        estimates = {**evaluation.estimates, share: result}
        exposures = {metric: each for metric, each in evaluation.exposures.items() if metric != share}
        return replace(evaluation, estimates=estimates, row_sd=row_sd, accuracy=counts, exposures=exposures)

    def _estimate(self, tag: str, metric: str, evaluation: Evaluation) -> Result:
        if self.fits is None:
            return Unknown(Reason.NO_REFERENCE)
        if isinstance(_CODE[tag], type):
            return self.fits.fitted(_CODE[tag]).estimate(evaluation.confidence, self._task.level)
        row_sd = self.fits.row_sd.get(metric)
        if row_sd is None:
            return Unknown(Reason.ONE_CLASS)
        banded: Result = _CODE[tag](evaluation.estimates[metric], row_sd)
        return banded


def _confidence(reference: Reference, calibration: Calibration) -> Floats:
    """Return the confidences of the reference's rows, (n,), out of fold if the calibration is its own.

    A reference that cannot be fitted in folds, because it is too short or too uneven, is calibrated by the
    whole fit.
    """
    method = calibration.method
    if method == "none":
        return confidence_of(reference.scores, reference.predicted)
    own = method in CALIBRATORS and reference.calibration(method).snapshot() == calibration.snapshot()
    calibrated = None
    if own:
        with suppress(ValueError):
            calibrated = reference.cross_fitted(method)
    if calibrated is None:
        calibrated = calibration.apply(reference.scores)
    return confidence_of(calibrated, reference.predicted)


def _row_sds(reference: Reference, task: Task) -> dict[str, float]:
    if not task.classes:
        right = float((reference.labels == reference.predicted).mean())
        return {task.share: math.sqrt(right * (1.0 - right))}
    positive = task.positive_index if len(task.classes) == 2 else None
    deviations = {
        metric: labelled_row_sd(
            reference.labels,
            reference.predicted,
            reference.scores,
            metric,
            positive=positive,
            average=task.charted_average,
        )
        for metric in task.metrics
        if metric in CLASSIFICATION_METRICS
    }
    return {metric: sd for metric, sd in deviations.items() if sd is not None}
