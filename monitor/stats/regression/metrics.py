"""The metrics of a regressor's errors in the unit of the target, without labels and from labelled rows.

An error e is the prediction minus the label. The metrics are `mae`, the mean of |e|; `rmse`, the root of the
mean of e²; and `bias`, the mean of e. Without labels, `monitor.stats.regression.losses` estimates these
means. This module converts its results, and computes the realised metrics from sums over labelled rows.

The interval of a realised metric is for the mean of the population from which the labelled rows are drawn. It
is Student's interval of a weighted mean (Hájek's estimate), with the root of both ends for the `rmse`. With
few labels and errors of heavy tails, the intervals of `mae` and `rmse` are too narrow.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import scipy

from monitor.base.records import Floats
from monitor.base.results import Estimate, Reason, Result, TooFew, Unknown
from monitor.stats.estimate.poisson_binomial import checked_level
from monitor.stats.regression.losses import MeanLoss, RowLosses

ERROR_METRICS = ("mae", "rmse", "bias")
"""The metrics of errors."""

TERMS = 10
"""The number of sums over labelled rows: of 1, w, w², we, w|e|, we², w²e, w²|e|, w²e² and w²e⁴."""

_FOURTH = TERMS - 1
_MOST_REMOVED = 1e12  # a larger term that is subtracted leaves fewer than four right digits of the sum
_COLUMNS = {"mae": (4, 7, 8), "rmse": (5, 8, 9), "bias": (3, 6, 8)}  # Σwx, Σw²x, Σw²x²


def losses_of(errors: Floats, metrics: Iterable[str] = ERROR_METRICS) -> dict[str, RowLosses]:
    """Return the losses of n errors whose means determine these metrics."""
    losses = {
        "mae": RowLosses(np.abs(errors), 1),
        "rmse": RowLosses(errors**2, 2),
        "bias": RowLosses(errors, 1, signed=True),
    }
    return {metric: losses[metric] for metric in metrics}


def metric_of_mean(metric: str, mean: MeanLoss | Unknown, level: float) -> Result:
    """Return a metric with its interval, from the estimated mean of its loss.

    Examples
    --------
    >>> metric_of_mean("rmse", MeanLoss(value=9.0, variance=0.0, third=0.0, n=500), 0.95)
    Estimate(value=3.0, lower=3.0, upper=3.0, level=0.95, n=500)
    """
    if isinstance(mean, Unknown):
        return mean
    return _estimate(metric, (mean.value, *mean.interval(level)), level, mean.n)


def error_terms(errors: Floats, replaced: Floats, weights: Floats) -> Floats:
    """Return the changes that labels make to the sums of `TERMS`, (n, TERMS).

    Parameters
    ----------
    errors, replaced : (n,) float64
        The error by each label, and by the label that it replaces. NaN where there is none.
    weights : (n,) float64
        1 over the probability with which the row was picked for labelling.

    Examples
    --------
    >>> added = error_terms(np.array([-2.0]), np.array([np.nan]), np.array([1.0]))
    >>> added[0].tolist()
    [1.0, 1.0, 1.0, -2.0, 2.0, 4.0, -2.0, 2.0, 4.0, 16.0]
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return _terms(errors, weights) - _terms(replaced, weights)


def _terms(errors: Floats, w: Floats) -> Floats:
    size, square = np.abs(errors), errors**2
    terms = np.stack(
        (
            np.ones(len(errors)),
            w,
            w**2,
            w * errors,
            w * size,
            w * square,
            w**2 * errors,
            w**2 * size,
            w**2 * square,
            w**2 * square**2,
        ),
        axis=1,
    )
    return np.where(np.isnan(errors)[:, None], 0.0, terms)


def added_terms(sums: Floats, terms: Floats) -> Floats:
    """Return the sums after these changes, (TERMS,). Several calls give the result of one.

    The sums are NaN if a replaced label had so large an error that their digits are lost.

    Parameters
    ----------
    sums : (TERMS,) float64
    terms : (n, TERMS) float64
        In the order of the stream, because sums are rounded.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        total: Floats = np.add.accumulate(np.vstack((sums, terms)))[-1]
        removed = -terms[:, _FOURTH].min(initial=0.0)
        if removed != 0.0 and not removed <= _MOST_REMOVED * total[_FOURTH]:  # also if infinities became NaN
            return np.full(TERMS, np.nan)
    return total


def realised_metric(metric: str, sums: Floats, level: float) -> Result:
    """Return a metric of labelled rows with its interval, from their sums.

    The result is unknown without labels and with a single one.

    Examples
    --------
    >>> errors = np.array([1.0, -3.0, 2.0, 2.0])
    >>> sums = added_terms(np.zeros(TERMS), error_terms(errors, np.full(4, np.nan), np.ones(4)))
    >>> [realised_metric(metric, sums, 0.95).value for metric in ("mae", "bias")]
    [2.0, 0.5]
    >>> print(realised_metric("mae", np.zeros(TERMS), 0.95).reason)
    no labels yet
    """
    if np.isnan(sums[0]):
        return Unknown(Reason.LABEL_TOO_LARGE)
    n, total, squares = round(sums[0]), sums[1], sums[2]
    if n < 1:
        return Unknown(Reason.NO_LABELS)
    if n < 2:
        return TooFew(Reason.TOO_FEW_LABELS, n)
    first, second, third = _COLUMNS[metric]
    mean = sums[first] / total
    with np.errstate(over="ignore", invalid="ignore"):
        spread = max(sums[third] - 2.0 * mean * sums[second] + mean**2 * squares, 0.0)
        t = float(scipy.special.stdtrit(n - 1, (1.0 + checked_level(level)) / 2.0))
        half = t * math.sqrt(spread * n / (n - 1)) / total
    return _estimate(metric, (mean, mean - half, mean + half), level, n)


def _estimate(metric: str, ends: tuple[float, float, float], level: float, n: int) -> Estimate:
    """Return the estimate of a metric from the value and the interval of the mean of its loss."""
    value, lower, upper = map(float, ends)
    if metric != "bias":
        value, lower, upper = max(value, 0.0), max(lower, 0.0), max(upper, 0.0)
    if metric == "rmse":
        value, lower, upper = math.sqrt(value), math.sqrt(lower), math.sqrt(upper)
    return Estimate(value, lower, upper, level, n)
