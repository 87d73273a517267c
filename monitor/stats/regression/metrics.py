"""The metrics of a regressor's errors in the unit of the target, without labels and from labelled rows.

An error e is the prediction minus the label. The metrics are `mae`, the mean of |e|; `rmse`, the root of the
mean of e²; and `bias`, the mean of e. Without labels, `monitor.stats.regression.losses` estimates these
means. This module converts its results, and computes the realised metrics from sums over labelled rows.

The interval of a realised metric is for the mean of the population from which the labelled rows are drawn. It
is Student's interval of a weighted mean (Hájek's estimate) for Kish's effective number of rows, with the root
of both ends for the `rmse`. With few labels and errors of heavy tails, the intervals of `mae` and `rmse` are
too narrow.

References
----------
L. Kish, *Survey Sampling* (1965), section 11.7: the effective number, (Σw)² / Σw².
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

NO_SUMS = np.zeros((1, TERMS))
"""The sums of no rows."""

_LARGEST = 1e300  # larger terms count as infinite, so that no sum of finite ones overflows
_FEWEST_EFFECTIVE = 2.0 - 1e-9  # rows; weights are rounded
_FEWEST_EQUAL = 20  # equal losses: at 95 %, up to 14 % of the other rows may have a different loss
_ROUNDING = 1e-12
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
    """Return the terms that labels add to the sums of `TERMS`, and those that they remove, (n, 2, TERMS).

    Parameters
    ----------
    errors, replaced : (n,) float64
        The error by each label, and by the label that it replaces. NaN where there is none.
    weights : (n,) float64
        1 over the probability with which the row was picked for labelling.

    Examples
    --------
    >>> terms = error_terms(np.array([-2.0]), np.array([np.nan]), np.array([1.0]))
    >>> terms[0, 0].tolist()
    [1.0, 1.0, 1.0, -2.0, 2.0, 4.0, -2.0, 2.0, 4.0, 16.0]
    """
    with np.errstate(over="ignore"):
        return np.stack((_terms(errors, weights), -_terms(replaced, weights)), axis=1)


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
    """Return the sums with these terms.

    The sums are exact, so that they do not depend on the order of the terms and on the number of calls. If an
    infinite term is removed again, its sum is NaN.

    Parameters
    ----------
    sums : (D, TERMS) float64
        `NO_SUMS`, or the result of an earlier call.
    terms : (n, 2, TERMS) float64

    Returns
    -------
    (D, TERMS) float64
        The first row has the rounded sums, and each other row the rounding errors of the rows above it.

    Examples
    --------
    >>> terms = error_terms(np.array([1e9, 1.0]), np.array([np.nan, 1e9]), np.ones(2))
    >>> added_terms(NO_SUMS, terms)[0, 3:6].tolist()
    [1.0, 1.0, 1.0]
    """
    rows = terms.reshape(-1, TERMS)
    rows = rows[rows.any(axis=1)]
    rows = np.where(np.abs(rows) > _LARGEST, np.copysign(np.inf, rows), rows)
    parts = [_exact_sum(column) for column in np.vstack((sums, rows)).T.tolist()]
    exact = np.zeros((max(map(len, parts)), TERMS))
    for column, own in enumerate(parts):
        exact[: len(own), column] = own
    return exact


def _exact_sum(numbers: list[float]) -> list[float]:
    """Return the rounded sum of the numbers, and the rounded rests; together they are the exact sum."""
    if not all(map(math.isfinite, numbers)):
        return [sum(numbers)]
    parts = [math.fsum(numbers)]
    rest = parts[0]
    while rest != 0.0:
        numbers.append(-rest)
        rest = math.fsum(numbers)
        if rest != 0.0:
            parts.append(rest)
    return parts


def realised_metric(metric: str, sums: Floats, level: float) -> Result:
    """Return a metric of labelled rows with its interval, from their sums.

    The result is unknown without labels, with a single one, and with weights that are so unequal that one row
    decides. It is also unknown if fewer than 20 rows have the same loss and no row has another one, because
    their interval would have no width.

    Examples
    --------
    >>> errors = np.array([1.0, -3.0, 2.0, 2.0])
    >>> sums = added_terms(NO_SUMS, error_terms(errors, np.full(4, np.nan), np.ones(4)))
    >>> [realised_metric(metric, sums, 0.95).value for metric in ("mae", "bias")]
    [2.0, 0.5]
    >>> print(realised_metric("mae", NO_SUMS, 0.95).reason)
    no labels yet
    """
    own = sums[0, [0, 1, 2, *_COLUMNS[metric]]]
    if np.isnan(own).any():
        return Unknown(Reason.LABEL_TOO_LARGE)
    count, total, squares, first, second, third = own.tolist()
    n = round(count)
    if n < 1:
        return Unknown(Reason.NO_LABELS)
    effective = min(total / squares * total, n)
    if effective < _FEWEST_EFFECTIVE:
        return TooFew(Reason.TOO_FEW_LABELS, n)
    mean = first / total
    with np.errstate(over="ignore", invalid="ignore"):
        spread = max(float(np.float64(third) - 2.0 * mean * second + np.float64(mean) ** 2 * squares), 0.0)
    if spread <= _ROUNDING * third and effective < _FEWEST_EQUAL:
        return TooFew(Reason.TOO_FEW_LABELS, n)
    t = float(scipy.special.stdtrit(effective - 1.0, (1.0 + checked_level(level)) / 2.0))
    half = t * math.sqrt(spread / (1.0 - 1.0 / effective)) / total
    return _estimate(metric, (mean, mean - half, mean + half), level, n)


def _estimate(metric: str, ends: tuple[float, float, float], level: float, n: int) -> Estimate:
    """Return the estimate of a metric from the value and the interval of the mean of its loss."""
    value, lower, upper = map(float, ends)
    if metric != "bias":
        value, lower, upper = max(value, 0.0), max(lower, 0.0), max(upper, 0.0)
    if metric == "rmse":
        value, lower, upper = math.sqrt(value), math.sqrt(lower), math.sqrt(upper)
    return Estimate(value, lower, upper, level, n)
