"""Estimates the metrics of closed windows without labels. One vectorised step estimates many windows.

The result depends only on the windows, their calibrations and the settings. The engine calls `evaluate` once
for all windows that a chunk closed. The intervals include two errors that all rows of a window share: the
error of the calibration, and the variation between windows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from monitor.base.records import Floats, Ints
from monitor.base.registry import METRICS, SHARES
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
from monitor.stats.estimate.poisson_binomial import TrimmedPmf, trimmed_pmf_many
from monitor.stats.estimate.predictive import Placed, Predictive, mid_p_estimate
from monitor.stats.estimate.shared_error import Exposure, SharedError, by_confidence
from monitor.stats.estimate.widening import widened, widened_interval
from monitor.stats.regression.losses import MeanLoss
from monitor.stats.regression.metrics import chart_value


@dataclass(frozen=True, slots=True)
class EstimationRequest:
    """The input of the estimators for one window: its rows, their calibrated scores, and the settings.

    Parameters
    ----------
    scores : (n, K) float64
        Raw scores.
    predicted : (n,) int64
    calibrated : (n, K) float64 or None
        None if there is no calibration. Then calibration errors are unknown.
    metrics : tuple of str
    positive : int
        The index of the positive class, if there are two classes.
    level : float
        The level of the intervals, above 0 and below 1.
    average : {"macro", "micro", "per_class"}
        The average over three or more classes. "per_class" means macro, and also the metrics of each class.
    seed : int
        The seed of the bootstrap. Windows that will be pooled must have different seeds.
    predictive : Predictive or None
        The model of the calibration's error and of the variation between windows. None for exact intervals,
        which assume that the calibrated scores are right.
    adapted : Adapted or None
        The calibration that was fitted for this window alone; None if the task does not fit such
        calibrations. If the fit failed, all estimates are unknown.
    charted : (n, K) float64 or None
        Scores calibrated by the calibration of the charts' baseline; None if that calibration is still in
        use. Charts judge the calibration errors of these scores.
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
        """Return the request with a calibration fitted for this window.

        The fit weights the rows of the reference. With these weights, their features have the same
        distribution as in the window.

        Parameters
        ----------
        covariates : CovariateReference
            The rows of the reference, with their features.
        features : (n, F) float64
            The features of the window's rows. The first columns are the features of `covariates`.
        """
        adapted = covariates.adapt(features[:, : len(covariates.names)])
        if adapted.calibration is None:
            return replace(self, adapted=adapted)
        predictive = self.predictive
        if predictive is not None:
            predictive = adapted.predictive(predictive, covariates, predictive.number)
        calibrated = adapted.calibration.apply(self.scores)
        return replace(self, calibrated=calibrated, predictive=predictive, adapted=adapted)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The estimates of one window without labels, with distributions for pooling several windows.

    These distributions include only the random error of single rows. Several windows share the other errors,
    so these are added after pooling.

    Parameters
    ----------
    estimates : mapping of str to Estimate or Unknown
        The estimates by metric.
    row_sd : mapping of str to float
        The standard deviation of one row, by metric. It is the standard error of the estimate times √n.
    accuracy : TrimmedPmf or None
        The distribution of the number of right answers, for pooling.
    errors : mapping of str to CalibrationErrorEstimate
        The calibration errors by metric, with bootstrap draws for pooling.
    others : mapping of str to ClassificationEstimate
        The other metrics, such as precision, with distributions for pooling.
    confidence : (n,) float64
        The probability that each predicted class is right.
    classes : mapping of (str, int) to Estimate or Unknown
        The estimates by metric and class, if each class is evaluated.
    exposures : mapping of str to Exposure
        The dependence of each metric's estimate on the errors that rows share; empty with exact intervals.
    predictive : Predictive or None
        As in `EstimationRequest`.
    adapted : Adapted or None
        As in `EstimationRequest`.
    scores : (n, K) float64 or None
        The calibrated scores, or the raw scores without a calibration; None if all estimates are unknown.
    charted : mapping of str to CalibrationErrorEstimate
        The calibration errors that charts judge, by metric; empty if charts judge `errors`.
    by_class : mapping of (str, int) to (Estimate, Exposure)
        The known estimates of `classes` with exact intervals; empty if the intervals in `classes` are exact.
    informed : mapping of str to int
        For each metric whose interval was widened because of labels, the number of labelled rows.
    losses : mapping of str to MeanLoss or Unknown
        The mean losses behind the metrics of errors; empty if predictions are no numbers.
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
    losses: Mapping[str, MeanLoss | Unknown] = field(default_factory=dict)

    def for_charts(self) -> Evaluation:
        """Return the evaluation with the estimates that charts judge.

        These are calibration errors by the calibration of the baseline, and metrics of errors on the scale of
        their charts.
        """
        if not self.charted and not self.losses:
            return self
        results = {metric: error.result for metric, error in self.charted.items()}
        known = {name: one for name, one in self.charted.items() if one.standard_error is not None}
        row_sd = {metric: _row_sd(error, len(self.confidence)) for metric, error in known.items()}
        for metric, mean in self.losses.items():
            if metric not in METRICS or not isinstance(mean, MeanLoss):
                continue
            if (value := chart_value(metric, mean)) is not None:
                results[metric] = Estimate(value, value, value, 0.0, mean.n)
                # By how much rows alone move it depends on the fit: only windows show how much it varies.
                row_sd[metric] = 0.0
        return replace(
            self,
            estimates={**self.estimates, **results},
            row_sd={**self.row_sd, **row_sd},
            errors={**self.errors, **known},
        )


def calibrate(calibration: Calibration, scores: Floats) -> Floats | None:
    """Return calibrated scores, (n, K); None if the calibration's method is "none"."""
    return None if calibration.method == "none" else calibration.apply(scores)


def evaluate(requests: Sequence[EstimationRequest], *, accuracy_interval: bool = True) -> list[Evaluation]:
    """Estimate the requested metrics of each window.

    Parameters
    ----------
    requests : sequence of EstimationRequest
    accuracy_interval : bool
        False skips the accuracy's interval and distribution, which a baseline does not need.

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


_Key = TypeVar("_Key")

_Counts = tuple[float, TrimmedPmf | None]
"""The mean confidence, and the distribution of the number of right answers."""


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
        if metric in SHARES:
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
    """Return the calibration errors of the scores in `EstimationRequest.charted`; empty if it is None."""
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
    """Return an evaluation in which each metric is unknown for this reason."""
    each = [m for m in request.metrics if m in CLASSIFICATION_METRICS and m not in SHARES]
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
    """Return the accuracy with its exact interval, or without an interval if it will be widened later."""
    if counts is None:
        return Unknown(Reason.NO_ROWS)
    mean, pmf = counts
    if request.predictive is None and pmf is not None:
        return exact_estimate(mean, pmf, request.level)
    return Estimate(mean, mean, mean, request.level, len(request.predicted))


def _standard_deviation(confidence: Floats) -> float:
    """Return the same bits as `numpy.std` in a third of its time; 0 without rows."""
    if not len(confidence):
        return 0.0
    apart = confidence - np.add.reduce(confidence) / len(confidence)
    return math.sqrt(np.add.reduce(apart * apart) / len(confidence))


def _widened(exact: Evaluation, request: EstimationRequest) -> Evaluation:
    """Return the evaluation with predictive intervals."""
    model, estimates = request.predictive, dict(exact.estimates)
    if model is None or not len(exact.confidence):
        return replace(exact, predictive=model)
    rows = model.place(exact.confidence, request.predicted)
    exposures = _exposures(model, rows, request, exact)
    errors = model.errors_of(list(exposures.values()))
    for (metric, exposure), error in zip(exposures.items(), errors, strict=True):
        result = exact.estimates[metric]
        assert isinstance(result, Estimate)
        if metric in SHARES and exact.accuracy is not None:
            estimates[metric] = widened_accuracy(exact.accuracy, result.value, error.variance, result.level)
        else:
            estimates[metric] = widened_result(result, error, exposure.lean / exposure.weight)
    return replace(exact, estimates=estimates, exposures=exposures, predictive=model)


def _exposures(
    model: Predictive, rows: Placed, request: EstimationRequest, evaluation: Evaluation
) -> dict[str, Exposure]:
    """Return the exposures of the known metrics."""
    of_others = metric_exposures(model, rows, evaluation.others)
    exposures = {}
    for metric, result in evaluation.estimates.items():
        exposure = of_others.get(metric)
        if metric not in evaluation.others:
            exposure = _exposure(metric, model, rows, request, evaluation)
        if exposure is not None and isinstance(result, Estimate):
            exposures[metric] = exposure
    return exposures


def _exposure(
    metric: str, model: Predictive, rows: Placed, request: EstimationRequest, evaluation: Evaluation
) -> Exposure | None:
    """Return the exposure of a metric; None if it is unknown."""
    if metric in evaluation.errors and request.calibrated is not None:
        column, bins = _judged(metric, request)
        response = None
        if column is not request.predicted:
            response = by_confidence(request.calibrated, request.predicted, column)
        return error_exposure(model, rows, evaluation.errors[metric], bins, response)
    return accuracy_exposure(model, rows) if metric in SHARES else None


def _others(requests: Sequence[EstimationRequest]) -> list[dict[str, ClassificationEstimate]]:
    """Return metrics such as precision, for the positive class of two or averaged over more classes."""
    results: list[dict[str, ClassificationEstimate]] = [{} for _ in requests]
    alike: dict[tuple[Any, ...], list[int]] = {}
    for i, one in enumerate(requests):
        average: Average = "micro" if one.average == "micro" else "macro"
        alike.setdefault((one.metrics, one.level, one.scores.shape[1], one.positive, average), []).append(i)
    for (*_, average), places in alike.items():
        details = _details([requests[i] for i in places], average)
        for i, each in zip(places, details, strict=True):
            results[i] = each
    return results


_ByClass = dict[tuple[str, int], tuple[Estimate, Exposure]]


def _classes(
    request: EstimationRequest, confidence: Floats
) -> tuple[dict[tuple[str, int], Result], _ByClass]:
    """Return the metrics of each of three or more classes, and the estimates to be widened later."""
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


def _with_errors(model: Predictive, known: Mapping[_Key, tuple[Estimate, Exposure]]) -> dict[_Key, Estimate]:
    """Return the results with intervals widened by each metric's shared error."""
    errors = model.errors_of([exposure for _, exposure in known.values()])
    return {
        of: widened_result(result, error)
        for (of, (result, _)), error in zip(known.items(), errors, strict=True)
    }


def informed(evaluation: Evaluation, model: Predictive, shown: ShownErrors | None) -> Evaluation:
    """Widen the intervals of precision and similar metrics if labels show that the confidences are biased.

    The estimated values do not change. The accuracy does not change either, because the estimator `corrected`
    corrects it by labels. Calibration errors do not change.

    Parameters
    ----------
    evaluation : Evaluation
    model : Predictive
        The evaluation's model of the calibration error.
    shown : ShownErrors or None
        The errors of labelled rows by stratum of `model`, from which biases are estimated; None without
        labels.

    Returns
    -------
    Evaluation
        The evaluation with the wider intervals; `evaluation` itself if `shown` is None.
    """
    if shown is None:
        return evaluation
    wider = model.informed(shown)
    known = {
        metric: (each.result, evaluation.exposures[metric])
        for metric, each in evaluation.others.items()
        if metric in evaluation.exposures and isinstance(each.result, Estimate)
    }
    widened_results = _with_errors(wider, known)
    moved = {
        metric: shown.labels
        for metric, result in widened_results.items()
        if result != evaluation.estimates[metric]
    }
    return replace(
        evaluation,
        estimates={**evaluation.estimates, **widened_results},
        classes={**evaluation.classes, **_with_errors(wider, evaluation.by_class)},
        predictive=wider,
        informed=moved,
    )


def confusion_shares(evaluation: Evaluation, predicted: Ints, level: float) -> tuple[tuple[Result, ...], ...]:
    """Return the expected confusion matrix of a window without labels, as shares of each predicted class.

    Among the answers of one predicted class, the number of each true class is Poisson-binomial, like the
    number of right answers. With a predictive model, the intervals also contain the error that rows share.

    Parameters
    ----------
    evaluation : Evaluation
        It has scores, (n, K).
    predicted : (n,) int64
    level : float

    Returns
    -------
    tuple of tuple of Estimate or Unknown
        True class by predicted class: the share of the true class among the answers of the predicted class,
        whose number is the estimate's `n`. A class that was not predicted has unknown shares.
    """
    scores, model = evaluation.scores, evaluation.predictive
    assert scores is not None
    width = scores.shape[1]
    matrix: list[list[Result]] = [[Unknown(Reason.NONE_PREDICTED)] * width for _ in range(width)]
    rows = None if model is None or not len(predicted) else model.place(evaluation.confidence, predicted)
    for k in np.unique(predicted).tolist():
        chosen = predicted == k
        counts = trimmed_pmf_many(scores[chosen].T)
        shares = [exact_estimate(float(scores[chosen, i].mean()), counts[i], level) for i in range(width)]
        if model is not None and rows is not None:
            slopes = np.stack([by_confidence(scores, predicted, i) for i in range(width)]) * chosen
            exposures = model.exposures(rows, slopes / chosen.sum(), [float(chosen.sum())] * width)
            errors = model.errors_of(exposures)
            shares = [widened_result(share, error) for share, error in zip(shares, errors, strict=True)]
        for i, share in enumerate(shares):
            matrix[i][k] = share
    return tuple(map(tuple, matrix))


def _details(
    requests: Sequence[EstimationRequest], average: Average
) -> list[dict[str, ClassificationEstimate]]:
    """Return metrics such as precision for requests that differ only in their rows and seeds."""
    one = requests[0]
    metrics = [m for m in one.metrics if m in CLASSIFICATION_METRICS and m not in SHARES]
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
    """Return a calibration error: of the predicted class, or of the positive (or most probable) class.

    `confidence` is the calibrated score of the predicted class.
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
    """Return the class whose score a calibration error measures, for each row, and the number of bins."""
    if metric == "ece":
        return request.predicted, ECE_BINS
    if request.scores.shape[1] == 2:
        return np.full(len(request.predicted), request.positive), CLASS_ECE_BINS
    return request.scores.argmax(axis=1), CLASS_ECE_BINS


def accuracy_exposure(model: Predictive, rows: Placed) -> Exposure:
    """Return how the accuracy of n rows responds to the calibration errors that these rows share.

    The weight of the response is n, so that the responses of several windows can be added.
    """
    return model.exposure(rows, weight=float(len(rows.bins)))


def widened_accuracy(pmf: TrimmedPmf, value: float, variance: float, level: float) -> Estimate:
    """Return the accuracy with an interval that includes chance and the calibration error that rows share.

    The limits are the mid-p limits of the exact distribution, convolved with a normal distribution.

    Parameters
    ----------
    pmf : TrimmedPmf
        The distribution of the number of right answers.
    value : float
        The mean confidence.
    variance : float
        The variance of the accuracy from errors that rows share.
    level : float
    """
    return mid_p_estimate(value, widened(pmf, pmf.n**2 * variance), level)


def metric_exposures(
    model: Predictive, rows: Placed, estimates: Mapping[_Key, ClassificationEstimate]
) -> dict[_Key, Exposure]:
    """Return how each known metric, such as precision, responds to the calibration errors that rows share."""
    known = {of: each for of, each in estimates.items() if each.slope is not None}
    if not known:
        return {}
    slopes = np.stack([each.slope for each in known.values() if each.slope is not None])
    weights = [each.weight for each in known.values()]
    return dict(zip(known, model.exposures(rows, slopes, weights), strict=True))


def error_exposure(
    model: Predictive, rows: Placed, estimate: CalibrationErrorEstimate, bins: int, response: Floats | None
) -> Exposure | None:
    """Return how a metric that is a calibration error, such as `ece`, responds to the error that rows share.

    The result is None if the calibration error is unknown.

    Parameters
    ----------
    model : Predictive
        The model of the shared errors.
    rows : Placed
        The rows, assigned to the strata of `model`.
    estimate : CalibrationErrorEstimate
    bins : int
        The number of bins of `estimate`.
    response : (n,) float64 or None
        For each row, the derivative of the probability that the metric uses, with respect to the confidence.
        None if the metric uses the confidence itself.
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
    """Return an estimate whose interval also includes an error that all rows share.

    Parameters
    ----------
    estimate : Estimate
    error : SharedError
    lean : float
        The upward bias of a calibration error. The lower end is also reduced by this number.
    """
    ends = estimate.lower, estimate.upper
    lower, upper = widened_interval(estimate.value, *ends, error.variance, estimate.level, error.shift)
    return Estimate(estimate.value, max(lower - lean, 0.0), upper, estimate.level, estimate.n)
