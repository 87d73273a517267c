"""The intervals of one window, widened by what its rows share: the calibration's error, and the time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from monitor.calibration.base import confidence_of
from monitor.estimate.calibration_error import calibration_error_slope
from monitor.estimate.classification import ClassificationEstimate
from monitor.estimate.equal_count import label_noise_bias
from monitor.estimate.poisson_binomial import TrimmedPmf
from monitor.estimate.predictive import Predictive, mid_p_estimate
from monitor.estimate.shared_error import Exposure, by_confidence
from monitor.estimate.widening import widened, widened_interval
from monitor.records import Floats, Ints
from monitor.result import Estimate


def accuracy_exposure(model: Predictive, confidence: Floats, predicted: Ints) -> Exposure:
    """Of the accuracy of n rows, which counts for n."""
    return model.exposure(confidence, predicted, weight=float(len(confidence)))


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


def metric_exposure(
    model: Predictive, confidence: Floats, predicted: Ints, found: ClassificationEstimate
) -> Exposure | None:
    """Of precision and the like; None where the metric is unknown."""
    if found.slope is None:
        return None
    return model.exposure(confidence, predicted, found.slope, found.weight)


def error_exposure(
    model: Predictive, raw: Floats, calibrated: Floats, predicted: Ints, column: Ints, bins: int
) -> Exposure:
    """Of a calibration error.

    Parameters
    ----------
    model : Predictive
    raw, calibrated : (n, K) float64
        n at least `bins`.
    predicted, column : (n,) int64
        The class acted on, and the one whose scores are judged.
    bins : int
    """
    confidence = confidence_of(calibrated, predicted)
    chance = confidence_of(calibrated, column)
    slope, place, gaps = calibration_error_slope(confidence_of(raw, column), chance, bins)
    rows = np.bincount(place, minlength=bins).astype(np.float64)
    each = 1.0 / rows[place]
    if calibrated.shape[1] > 1:
        slope, each = (by_confidence(calibrated, predicted, column, of) for of in (slope, each))
    weight = float(len(place))
    noise = model.curve_variances(confidence, predicted, each, place, bins)
    lean = float(label_noise_bias(gaps, noise, rows / weight))
    return replace(model.exposure(confidence, predicted, slope, weight), lean=weight * lean)


def widened_result(found: Estimate, variance: float, lean: float = 0.0) -> Estimate:
    """An estimate with a normal variance on top of its interval, and its lower end moved down by `lean`."""
    lower, upper = widened_interval(found.value, found.lower, found.upper, variance, found.level)
    return Estimate(found.value, max(lower - lean, 0.0), upper, found.level, found.n)
