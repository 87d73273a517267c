"""The intervals of one window, widened by what its rows share: the calibration's error, and the time."""

from __future__ import annotations

from monitor.base.records import Floats
from monitor.base.results import Estimate
from monitor.stats.estimate.calibration_error import CalibrationErrorEstimate, calibration_error_slope
from monitor.stats.estimate.classification import ClassificationEstimate
from monitor.stats.estimate.equal_count import bin_rows, label_noise_bias
from monitor.stats.estimate.poisson_binomial import TrimmedPmf
from monitor.stats.estimate.predictive import Placed, Predictive, mid_p_estimate
from monitor.stats.estimate.shared_error import Exposure
from monitor.stats.estimate.widening import widened, widened_interval


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


def metric_exposure(model: Predictive, rows: Placed, found: ClassificationEstimate) -> Exposure | None:
    """Of precision and the like; None where the metric is unknown."""
    return None if found.slope is None else model.exposure(rows, found.slope, found.weight)


def error_exposure(
    model: Predictive, rows: Placed, found: CalibrationErrorEstimate, bins: int, response: Floats | None
) -> Exposure | None:
    """Of a calibration error; None where it is unknown.

    Parameters
    ----------
    model : Predictive
    rows : Placed
    found : CalibrationErrorEstimate
    bins : int
        Those of `found`.
    response : (n,) float64 or None
        What each row's confidence moves the chance by that is judged; None where it is the confidence.
    """
    if found.order is None or found.differences is None:
        return None
    slope, place, gaps = calibration_error_slope(found.order, found.differences, bins)
    weight, rows_of_bins = float(len(place)), bin_rows(len(place), bins)
    each = (1.0 / rows_of_bins)[place]
    if response is not None:
        slope, each = slope * response, each * response
    noise = model.curve_variances(rows, each, place, bins)
    lean = float(label_noise_bias(gaps, noise, rows_of_bins / weight))
    return model.exposure(rows, slope, weight, weight * lean)


def widened_result(found: Estimate, variance: float, lean: float = 0.0) -> Estimate:
    """An estimate with a normal variance on top of its interval, and its lower end moved down by `lean`."""
    lower, upper = widened_interval(found.value, found.lower, found.upper, variance, found.level)
    return Estimate(found.value, max(lower - lean, 0.0), upper, found.level, found.n)
