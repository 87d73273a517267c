"""Closed windows to label-free estimates: many windows in one vectorised step.

A pure function of the windows, their calibrations and the settings. The engine calls it once for all
windows that a chunk closed, whichever model they belong to. Intervals are widened by what a window's rows
share: the calibration's error, and the time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from monitor.base.records import Floats, Ints
from monitor.base.results import Estimate, Reason, Result, Unknown
from monitor.config.task import CALIBRATION_ERRORS
from monitor.stats.calibration.base import Calibration, confidence_of
from monitor.stats.calibration.covariates import Adapted, CovariateReference
from monitor.stats.estimate.average_confidence import counts_of_right, exact_estimate
from monitor.stats.estimate.calibration_error import (
    CLASS_ECE_BINS,
    ECE_BINS,
    CalibrationErrorEstimate,
    calibration_error,
    calibration_error_slope,
)
from monitor.stats.estimate.class_bias import ShownErrors
from monitor.stats.estimate.classification import (
    CLASSIFICATION_METRICS,
    Average,
    ClassificationEstimate,
    classification_details_many,
)
from monitor.stats.estimate.equal_count import bin_rows, label_noise_bias
from monitor.stats.estimate.poisson_binomial import TrimmedPmf
from monitor.stats.estimate.predictive import Placed, Predictive, mid_p_estimate
from monitor.stats.estimate.shared_error import Exposure, SharedError, by_confidence
from monitor.stats.estimate.widening import widened, widened_interval


@dataclass(frozen=True, slots=True)
class EstimationRequest:
    """One window to estimate.

    Parameters
    ----------
    scores : (n, K) float64
        Raw.
    predicted : (n,) int64
    calibrated : (n, K) float64 or None
        None where there is no calibration: calibration errors are unknown then.
    metrics : tuple of str
    positive : int
        Index of the positive of two classes.
    level : float
    average : {"macro", "micro", "per_class"}
        Of three classes or more; per_class is macro, with each class by itself beside it.
    seed : int
        Of the bootstrap; windows that are pooled must have different ones.
    predictive : Predictive or None
        The calibration's error, and what varies between windows; None for exact intervals, which take the
        calibrated scores for right.
    adapted : Adapted or None
        The calibration for this window, where each has its own; where that is unknown every estimate is.
    charted : (n, K) float64 or None
        Calibrated as the baseline of the charts was, where another calibration is in force now: charts judge
        the calibration errors by it.
    """

    scores: Floats
    predicted: Ints
    calibrated: Floats | None
    metrics: tuple[str, ...]
    positive: int
    level: float
    seed: int
    average: str = "macro"
    predictive: Predictive | None = None
    adapted: Adapted | None = None
    charted: Floats | None = None

    def adapted_to(self, covariates: CovariateReference, features: Floats) -> EstimationRequest:
        """The same by a calibration for this window, fitted on rows of the reference that are like its own.

        Parameters
        ----------
        covariates : CovariateReference
        features : (n, F) float64
            Of the window's rows.
        """
        adapted = covariates.adapt(features)
        if adapted.calibration is None:
            return replace(self, adapted=adapted)
        predictive = self.predictive
        if predictive is not None:
            predictive = adapted.predictive(predictive, covariates, predictive.number)
        calibrated = adapted.calibration.apply(self.scores)
        return replace(self, calibrated=calibrated, predictive=predictive, adapted=adapted)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The label-free estimates of one window.

    Parameters
    ----------
    estimates : mapping of str to Estimate or Unknown
        By metric.
    row_sd : mapping of str to float
        By metric, the standard deviation that one row adds to the estimate: the standard error times √n.
    accuracy : TrimmedPmf or None
        Distribution of the number of correct predictions, for pooling.
    errors : mapping of str to CalibrationErrorEstimate
        By metric, with the draws for pooling.
    others : mapping of str to ClassificationEstimate
        Precision and the like by metric, with the distributions for pooling.
    confidence : (n,) float64
        Of each row.
    classes : mapping of (str, int) to Estimate or Unknown
        By metric and class, where each is estimated by itself.
    exposures : mapping of str to Exposure
        By metric, how far it moves with what the rows share; empty with exact intervals.
    predictive : Predictive or None
        As in the request.
    adapted : Adapted or None
        As in the request.
    scores : (n, K) float64 or None
        The calibrated ones, or the raw ones where there is no calibration; None where nothing is known.
    charted : mapping of str to CalibrationErrorEstimate
        By metric, the calibration errors that charts judge, where they are not those of `errors`.
    by_class : mapping of (str, int) to (Estimate, Exposure)
        The known ones of `classes` as they are by chance alone, where their intervals are predictive.
    informed : mapping of str to int
        By metric, the labelled rows that widen its interval.

    The distributions are those of chance alone: windows share the rest, which is put on their pool.
    """

    estimates: Mapping[str, Result]
    row_sd: Mapping[str, float]
    accuracy: TrimmedPmf | None
    errors: Mapping[str, CalibrationErrorEstimate]
    others: Mapping[str, ClassificationEstimate] = field(default_factory=dict)
    confidence: Floats = field(default_factory=lambda: np.zeros(0))
    classes: Mapping[tuple[str, int], Result] = field(default_factory=dict)
    exposures: Mapping[str, Exposure] = field(default_factory=dict)
    predictive: Predictive | None = None
    adapted: Adapted | None = None
    scores: Floats | None = None
    charted: Mapping[str, CalibrationErrorEstimate] = field(default_factory=dict)
    by_class: Mapping[tuple[str, int], tuple[Estimate, Exposure]] = field(default_factory=dict)
    informed: Mapping[str, int] = field(default_factory=dict)

    def for_charts(self) -> Evaluation:
        """The same with the calibration errors that charts judge."""
        if not self.charted:
            return self
        results = {metric: error.result for metric, error in self.charted.items()}
        known = {name: one for name, one in self.charted.items() if one.standard_error is not None}
        row_sd = {metric: _row_sd(error, len(self.confidence)) for metric, error in known.items()}
        return replace(
            self,
            estimates={**self.estimates, **results},
            row_sd={**self.row_sd, **row_sd},
            errors={**self.errors, **known},
        )


def calibrate(calibration: Calibration, scores: Floats) -> Floats | None:
    """Calibrated scores; None where the calibration is none."""
    return None if calibration.method == "none" else calibration.apply(scores)


def evaluate(requests: Sequence[EstimationRequest], *, accuracy_interval: bool = True) -> list[Evaluation]:
    """Estimate every requested metric of every window.

    Windows of one size share a vectorised call for the accuracy, and one for the other metrics.

    Parameters
    ----------
    requests : sequence of EstimationRequest
    accuracy_interval : bool
        Without it the accuracy has no width and no distribution for pooling: a baseline takes its value.

    Returns
    -------
    list of Evaluation
        In the order of the requests.
    """
    confidences = [
        confidence_of(request.scores if request.calibrated is None else request.calibrated, request.predicted)
        for request in requests
    ]
    counts: Sequence[_Counts | None]
    if accuracy_interval:
        counts = counts_of_right(confidences)
    else:
        counts = [(float(each.mean()), None) if len(each) else None for each in confidences]
    parts = zip(requests, confidences, counts, _others(requests), strict=True)
    return [_assemble(*each) for each in parts]


_Of = TypeVar("_Of")

_Counts = tuple[float, TrimmedPmf | None]
"""Mean confidence, and the distribution of the number of right answers."""


def _assemble(
    request: EstimationRequest,
    confidence: Floats,
    counts: _Counts | None,
    others: Mapping[str, ClassificationEstimate],
) -> Evaluation:
    if request.adapted is not None and request.adapted.reason is not None:
        return _unknown(request, confidence, request.adapted.reason)
    estimates: dict[str, Result] = {}
    row_sd: dict[str, float] = {}
    errors: dict[str, CalibrationErrorEstimate] = {}
    for metric in request.metrics:
        if metric == "accuracy":
            estimates[metric] = _accuracy(request, counts)
            row_sd[metric] = _standard_deviation(confidence)
            continue
        if metric in others:
            estimates[metric] = others[metric].result
            row_sd[metric] = others[metric].row_sd or 0.0
            continue
        error = _error(metric, request, confidence)
        estimates[metric] = error.result
        if error.standard_error is not None:
            errors[metric] = error
            row_sd[metric] = _row_sd(error, len(confidence))
    classes, by_class = _classes(request, confidence)
    every = Evaluation(
        estimates,
        row_sd,
        None if counts is None else counts[1],
        errors,
        others,
        confidence,
        classes,
        adapted=request.adapted,
        scores=request.scores if request.calibrated is None else request.calibrated,
        charted=_charted(request),
        by_class=by_class,
    )
    return every if request.predictive is None else _widened(every, request)


def _charted(request: EstimationRequest) -> dict[str, CalibrationErrorEstimate]:
    """The calibration errors by the calibration of the charts' baseline, where that is another one."""
    if request.charted is None:
        return {}
    by_baseline = replace(request, calibrated=request.charted)
    confidence = confidence_of(request.charted, request.predicted)
    return {
        metric: _error(metric, by_baseline, confidence)
        for metric in request.metrics
        if metric in CALIBRATION_ERRORS
    }


def _row_sd(error: CalibrationErrorEstimate, rows: int) -> float:
    return (error.standard_error or 0.0) * math.sqrt(rows)


def _unknown(request: EstimationRequest, confidence: Floats, reason: Reason) -> Evaluation:
    """Nothing is known of the window, of no metric and no class."""
    each = [m for m in request.metrics if m in CLASSIFICATION_METRICS and m != "accuracy"]
    width = request.scores.shape[1]
    by_class = range(width) if request.average == "per_class" and width > 2 else ()
    return Evaluation(
        {metric: Unknown(reason) for metric in request.metrics},
        {},
        None,
        {},
        confidence=confidence,
        classes={(metric, k): Unknown(reason) for metric in each for k in by_class},
        predictive=request.predictive,
        adapted=request.adapted,
    )


def _accuracy(request: EstimationRequest, counts: _Counts | None) -> Result:
    """The accuracy with its exact interval, or with none where it is to be widened."""
    if counts is None:
        return Unknown(Reason.NO_ROWS)
    mean, pmf = counts
    if request.predictive is None and pmf is not None:
        return exact_estimate(mean, pmf, request.level)
    return Estimate(mean, mean, mean, request.level, len(request.predicted))


def _standard_deviation(confidence: Floats) -> float:
    """That of `numpy.std`, to the last bit, which takes three times as long for a window; 0 of no rows."""
    if not len(confidence):
        return 0.0
    apart = confidence - np.add.reduce(confidence) / len(confidence)
    return math.sqrt(np.add.reduce(apart * apart) / len(confidence))


def _widened(exact: Evaluation, request: EstimationRequest) -> Evaluation:
    """The same with predictive intervals."""
    model, estimates = request.predictive, dict(exact.estimates)
    if model is None or not len(exact.confidence):
        return replace(exact, predictive=model)
    rows = model.place(exact.confidence, request.predicted)
    exposures = _exposures(model, rows, request, exact)
    errors = model.errors_of(list(exposures.values()))
    for (metric, exposure), error in zip(exposures.items(), errors, strict=True):
        result = exact.estimates[metric]
        assert isinstance(result, Estimate)
        if metric == "accuracy" and exact.accuracy is not None:
            estimates[metric] = widened_accuracy(exact.accuracy, result.value, error.variance, result.level)
        else:
            estimates[metric] = widened_result(result, error, exposure.lean / exposure.weight)
    return replace(exact, estimates=estimates, exposures=exposures, predictive=model)


def _exposures(
    model: Predictive, rows: Placed, request: EstimationRequest, evaluation: Evaluation
) -> dict[str, Exposure]:
    """Of the known metrics."""
    of_others = metric_exposures(model, rows, evaluation.others)
    found = {}
    for metric, result in evaluation.estimates.items():
        exposure = of_others.get(metric)
        if metric not in evaluation.others:
            exposure = _exposure(metric, model, rows, request, evaluation)
        if exposure is not None and isinstance(result, Estimate):
            found[metric] = exposure
    return found


def _exposure(
    metric: str, model: Predictive, rows: Placed, request: EstimationRequest, evaluation: Evaluation
) -> Exposure | None:
    """None where the metric is unknown."""
    if metric in evaluation.errors and request.calibrated is not None:
        column, bins = _judged(metric, request)
        response = None
        if column is not request.predicted:
            response = by_confidence(request.calibrated, request.predicted, column)
        return error_exposure(model, rows, evaluation.errors[metric], bins, response)
    return accuracy_exposure(model, rows) if metric == "accuracy" else None


def _others(requests: Sequence[EstimationRequest]) -> list[dict[str, ClassificationEstimate]]:
    """Precision and the like: of the positive of two classes, or the mean over more of them."""
    found: list[dict[str, ClassificationEstimate]] = [{} for _ in requests]
    alike: dict[tuple[Any, ...], list[int]] = {}
    for i, one in enumerate(requests):
        average: Average = "micro" if one.average == "micro" else "macro"
        alike.setdefault((one.metrics, one.level, one.scores.shape[1], one.positive, average), []).append(i)
    for (*_, average), places in alike.items():
        details = _details([requests[i] for i in places], average)
        for i, each in zip(places, details, strict=True):
            found[i] = each
    return found


_ByClass = dict[tuple[str, int], tuple[Estimate, Exposure]]


def _classes(
    request: EstimationRequest, confidence: Floats
) -> tuple[dict[tuple[str, int], Result], _ByClass]:
    """The same of each class by itself, of three or more, and what wider intervals of them rest on."""
    width = request.scores.shape[1]
    if request.average != "per_class" or width < 3:
        return {}, {}
    [by_class] = _details([request], "class")
    metrics = dict.fromkeys(name.partition("[")[0] for name in by_class)
    every = {(metric, k): by_class[f"{metric}[{k}]"] for metric in metrics for k in range(width)}
    results = {of: each.result for of, each in every.items()}
    model = request.predictive
    if model is None or not len(confidence):
        return results, {}
    exposures = metric_exposures(model, model.place(confidence, request.predicted), every)
    known = {
        of: (result, exposures[of])
        for of, result in results.items()
        if of in exposures and isinstance(result, Estimate)
    }
    return {**results, **_with_errors(model, known)}, known


def _with_errors(model: Predictive, known: Mapping[_Of, tuple[Estimate, Exposure]]) -> dict[_Of, Estimate]:
    """Results with the shared error of each metric by itself on top of their intervals."""
    errors = model.errors_of([exposure for _, exposure in known.values()])
    return {
        of: widened_result(result, error)
        for (of, (result, _)), error in zip(known.items(), errors, strict=True)
    }


def informed(evaluation: Evaluation, model: Predictive, shown: ShownErrors | None) -> Evaluation:
    """The same with intervals of precision and the like that labels widen, and the model of such pools.

    The values stay, and so do the accuracy, which `corrected` follows, and the calibration errors.

    Parameters
    ----------
    evaluation : Evaluation
    model : Predictive
        That of the evaluation.
    shown : ShownErrors or None
        What labels show of the biases of its strata.
    """
    if shown is None:
        return evaluation
    wider = model.informed(shown)
    known = {
        metric: (each.result, evaluation.exposures[metric])
        for metric, each in evaluation.others.items()
        if metric in evaluation.exposures and isinstance(each.result, Estimate)
    }
    found = _with_errors(wider, known)
    moved = {
        metric: shown.labels for metric, result in found.items() if result != evaluation.estimates[metric]
    }
    return replace(
        evaluation,
        estimates={**evaluation.estimates, **found},
        classes={**evaluation.classes, **_with_errors(wider, evaluation.by_class)},
        predictive=wider,
        informed=moved,
    )


def _details(
    requests: Sequence[EstimationRequest], average: Average
) -> list[dict[str, ClassificationEstimate]]:
    """Of requests that differ in their rows and seeds alone."""
    one = requests[0]
    metrics = [m for m in one.metrics if m in CLASSIFICATION_METRICS and m != "accuracy"]
    if not metrics:
        return [{} for _ in requests]
    return classification_details_many(
        [each.scores if each.calibrated is None else each.calibrated for each in requests],
        [each.predicted for each in requests],
        metrics,
        one.level,
        positive=one.positive if one.scores.shape[1] == 2 else None,
        average=average,
        rankings=[each.scores for each in requests],
        seeds=[each.seed for each in requests],
    )


def _error(metric: str, request: EstimationRequest, confidence: Floats) -> CalibrationErrorEstimate:
    """The calibration error of the predicted class, or of the positive (or top) class.

    `confidence` is the calibrated one in the predicted class.
    """
    if request.calibrated is None:
        return CalibrationErrorEstimate(Unknown(Reason.NOT_CALIBRATED))
    if metric != "ece" and request.scores.shape[1] == 1:
        return CalibrationErrorEstimate(Unknown(Reason.NOT_DEFINED))
    column, bins = _judged(metric, request)
    raw = confidence_of(request.scores, column)
    calibrated = confidence if column is request.predicted else confidence_of(request.calibrated, column)
    return calibration_error(raw, calibrated, bins=bins, level=request.level, seed=request.seed)


def _judged(metric: str, request: EstimationRequest) -> tuple[Ints, int]:
    """The class whose scores a calibration error is of, row by row, and its number of bins."""
    if metric == "ece":
        return request.predicted, ECE_BINS
    if request.scores.shape[1] == 2:
        return np.full(len(request.predicted), request.positive), CLASS_ECE_BINS
    return request.scores.argmax(axis=1), CLASS_ECE_BINS


def accuracy_exposure(model: Predictive, rows: Placed) -> Exposure:
    """Of the accuracy of n rows, which counts for n."""
    return model.exposure(rows, weight=float(len(rows.bins)))


def widened_accuracy(pmf: TrimmedPmf, value: float, variance: float, level: float) -> Estimate:
    """The accuracy by the exact distribution convolved with a normal; mid-p limits.

    Parameters
    ----------
    pmf : TrimmedPmf
        Of the number of right answers.
    value : float
        The mean confidence.
    variance : float
        Of the share of right answers, beyond chance.
    level : float
    """
    return mid_p_estimate(value, widened(pmf, pmf.n**2 * variance), level)


def metric_exposures(
    model: Predictive, rows: Placed, estimates: Mapping[_Of, ClassificationEstimate]
) -> dict[_Of, Exposure]:
    """Of precision and the like; those that are known."""
    known = {of: each for of, each in estimates.items() if each.slope is not None}
    if not known:
        return {}
    slopes = np.stack([each.slope for each in known.values() if each.slope is not None])
    weights = [each.weight for each in known.values()]
    return dict(zip(known, model.exposures(rows, slopes, weights), strict=True))


def error_exposure(
    model: Predictive, rows: Placed, estimate: CalibrationErrorEstimate, bins: int, response: Floats | None
) -> Exposure | None:
    """Of a calibration error; None where it is unknown.

    Parameters
    ----------
    model : Predictive
    rows : Placed
    estimate : CalibrationErrorEstimate
    bins : int
        Those of `estimate`.
    response : (n,) float64 or None
        What each row's confidence moves the chance by that is judged; None where it is the confidence.
    """
    if estimate.order is None or estimate.differences is None:
        return None
    slope, place, gaps = calibration_error_slope(estimate.order, estimate.differences, bins)
    weight, rows_of_bins = float(len(place)), bin_rows(len(place), bins)
    each = (1.0 / rows_of_bins)[place]
    if response is not None:
        slope, each = slope * response, each * response
    noise = model.curve_variances(rows, each, place, bins)
    lean = float(label_noise_bias(gaps, noise, rows_of_bins / weight))
    return model.exposure(rows, slope, weight, weight * lean)


def widened_result(estimate: Estimate, error: SharedError, lean: float = 0.0) -> Estimate:
    """An estimate with a shared error on top of its interval, and its lower end moved down by `lean`."""
    ends = estimate.lower, estimate.upper
    lower, upper = widened_interval(estimate.value, *ends, error.variance, estimate.level, error.shift)
    return Estimate(estimate.value, max(lower - lean, 0.0), upper, estimate.level, estimate.n)
