"""Estimators in a series that are fitted on its model's labelled reference: DoC-Feat, ATC, NannyML's band.

A class of the table is fitted on confidences and on who was right, keeps numbers, and tells the accuracy; a
function takes an estimate of any metric, and what a labelled row adds to the realised one.
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
from monitor.config.root import Task
from monitor.engine.evaluate import Evaluation
from monitor.engine.reference import Reference
from monitor.reports.views import MetricEstimate
from monitor.stats.calibration import CALIBRATORS
from monitor.stats.calibration.base import Calibration, confidence_of
from monitor.stats.estimate.classification import CLASSIFICATION_METRICS
from monitor.stats.estimate.influence import labelled_row_sd
from monitor.stats.estimate.poisson_binomial import TrimmedPmf, trimmed_pmf_many

_CODE: Classes[Any] = Classes(COMPARISON_ESTIMATORS)


class ComparisonFits(msgspec.Struct, frozen=True):
    """What a labelled reference taught.

    Parameters
    ----------
    bias : float
        Of DoC-Feat.
    threshold : float
        Of ATC.
    row_sd : mapping of str to float
        By metric, what one labelled row adds to the realised metric; a metric that the reference leaves
        undefined is missing.
    others : mapping of str to float
        What other estimators keep, by the names of their fields.
    """

    bias: float
    threshold: float
    row_sd: dict[str, float]
    others: dict[str, float] = {}

    @classmethod
    def of(cls, reference: Reference, calibration: Calibration, task: Task) -> ComparisonFits:
        """Fitted on all labelled rows of a model, its groups' too.

        Their confidences are out of the fit wherever the calibration is the reference's own: by one fitted
        on these rows the bias of DoC-Feat would be 0, whatever it is on others.

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

    def fitted(self, code: Any) -> Any:
        """An estimator of this class, as it was fitted."""
        kept = {"bias": self.bias, "threshold": self.threshold, **self.others}
        return code(**{each.name: kept[each.name] for each in fields(code)})


class ComparisonEstimators:
    """The estimators of one series that its model's labelled reference is needed for.

    Without one each is unknown. They are fitted at the start, and again on the same rows where another
    calibration comes into force, for a threshold on confidences means nothing on others. A new version of
    the model keeps them, as it keeps its calibration.

    Parameters
    ----------
    task : Task
    reference : Reference or None
        Of the model, also for its groups.
    calibration : Calibration
        The one in force.
    fits : ComparisonFits, optional
        What the series' snapshot holds.
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
            self.recalibrated(calibration)

    def recalibrated(self, calibration: Calibration) -> None:
        """Another calibration is in force."""
        if self._tags and self._reference is not None:
            self.fits = ComparisonFits.of(self._reference, calibration, self._task)

    def of_window(self, evaluation: Evaluation) -> list[MetricEstimate]:
        """What they say of a window: DoC-Feat and ATC of the accuracy, the band of each metric it knows."""
        estimates = []
        for tag in self._tags:
            metrics = ("accuracy",) if isinstance(_CODE[tag], type) else CLASSIFICATION_METRICS
            estimates += [
                MetricEstimate(metric, tag, self._estimate(tag, metric, evaluation))
                for metric in evaluation.estimates
                if metric in metrics
            ]
        return estimates

    def judged(self, evaluation: Evaluation) -> Evaluation:
        """The evaluation as charts and objectives take it: with the accuracy of `chart.estimator`."""
        tag = self._task.chart.estimator
        if tag not in COMPARISON_ESTIMATORS or "accuracy" not in evaluation.estimates:
            return evaluation
        result = self._estimate(tag, "accuracy", evaluation)
        row_sd = dict(evaluation.row_sd)
        counts: TrimmedPmf | None = None
        if isinstance(result, Estimate):
            [counts] = trimmed_pmf_many(np.full((1, result.n), result.value))
            if _CODE[tag].is_share:
                row_sd["accuracy"] = math.sqrt(result.value * (1.0 - result.value))
        estimates = {**evaluation.estimates, "accuracy": result}
        exposures = {metric: each for metric, each in evaluation.exposures.items() if metric != "accuracy"}
        return replace(evaluation, estimates=estimates, row_sd=row_sd, accuracy=counts, exposures=exposures)

    def _estimate(self, tag: str, metric: str, evaluation: Evaluation) -> Result:
        if self.fits is None:
            return Unknown(Reason.NO_REFERENCE)
        if isinstance(_CODE[tag], type):
            told: Result = self.fits.fitted(_CODE[tag]).estimate(evaluation.confidence, self._task.level)
            return told
        row_sd = self.fits.row_sd.get(metric)
        if row_sd is None:
            return Unknown(Reason.ONE_CLASS)
        banded: Result = _CODE[tag](evaluation.estimates[metric], row_sd)
        return banded


def _confidence(reference: Reference, calibration: Calibration) -> Floats:
    """(n,) confidences of the reference's rows, out of the fit where the calibration is its own.

    A reference too short or too uneven to be fitted on in parts is calibrated by the whole fit.
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
        return {"accuracy": math.sqrt(right * (1.0 - right))}
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
