"""The metrics of a regressor's errors, without labels and from labelled rows.

An error e is the prediction minus the label y. In the unit of the target are `mae`, the mean of |e|; `rmse`,
the root of the mean of e²; and `bias`, the mean of e. Without a unit are `mape`, the mean of |e|/|y|; `wape`,
Σ|e| / Σ|y|; `coverage`, the share of labels within the interval that the model states; and `r2`, one minus
the mean of e² over the variance of y. Without labels, `monitor.stats.regression.losses` estimates the means
on which they depend. This module converts its results, and computes the realised metrics from sums over
labelled rows.

The interval of a realised metric is for the population from which the labelled rows are drawn. It is
Student's interval of a weighted mean (Hájek's estimate) for Kish's effective number of rows, with the root of
both ends for the `rmse`. `wape` and `r2` are functions of several means. Their interval is that of one loss:
the sum of the losses, each times the function's derivative by its mean (delta method). With few labels and
errors of heavy tails, these intervals are too narrow. `coverage` has the interval of the accuracy,
`monitor.stats.estimate.hajek`.

References
----------
L. Kish, *Survey Sampling* (1965), section 11.7: the effective number, (Σw)² / Σw². C.-E. Särndal,
B. Swensson, J. Wretman, *Model Assisted Survey Sampling* (1992), section 5.5: functions of several totals.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import scipy

from monitor.base.records import Floats, Ints
from monitor.base.registry import METRICS
from monitor.base.results import Estimate, Reason, Result, TooFew, Unknown
from monitor.stats.estimate.hajek import ONE, Excess, WeightedCounts, hajek
from monitor.stats.estimate.poisson_binomial import checked_level
from monitor.stats.regression.losses import LossFunction, MeanLoss, RowLosses

DEFAULT_METRICS = ("mae", "rmse", "bias")
"""The metrics in the unit of the target."""

ERROR_METRICS = (*DEFAULT_METRICS, "mape", "wape", "coverage", "r2")
"""The metrics of errors."""

CAPPED = {"mae": "capped", "bias": "capped_bias"}
"""The names of two losses by the metric whose estimate labels test: |e| and e, with `Reference.error_cap` as
the largest size."""

TERMS = 10
"""The number of sums over labelled rows for `DEFAULT_METRICS`."""

NO_SUMS = np.zeros((1, TERMS))
"""The sums of no rows."""

_LARGEST = 1e300  # larger terms count as infinite, so that no sum of finite ones overflows
_FEWEST_EFFECTIVE = 2.0 - 1e-9  # rows; weights are rounded
_FEWEST_EQUAL = 20  # equal losses: at 95 %, up to 14 % of the other rows may have a different loss
_ROUNDING = 1e-12
_LEAST_VARIANCE = 1e-6  # of the labels, in mean squares: below it, rounding spoils the sums of fourth powers
_RANGES = {"bias": (-math.inf, math.inf), "r2": (-math.inf, 1.0), "coverage": (0.0, 1.0)}

_SUMMED = (
    *((0, "one"), (1, "one"), (2, "one"), (1, "bias"), (1, "mae"), (1, "rmse")),
    *((2, "bias"), (2, "mae"), (2, "rmse"), (2, "rmse rmse")),
    *((0, "known"), (0, "zero"), (1, "mape"), (2, "mape"), (2, "mape mape")),
    *((1, "size"), (2, "size"), (2, "mae size"), (1, "label"), (2, "label"), (1, "square"), (2, "square")),
    *((2, "rmse label"), (2, "rmse square"), (2, "label square"), (2, "square square")),
    *((0, "stated"), (1, "stated"), (2, "stated"), (0, "inside"), (1, "inside"), (2, "inside")),
)
"""The sums over labelled rows: each is of a power of the weight times a quantity of `_quantities`.

Tasks that have only `DEFAULT_METRICS` store the first `TERMS` alone.
"""

_PLACES = {term: place for place, term in enumerate(_SUMMED)}
_PRODUCTS = {
    ("mae", "mae"): "rmse",
    ("rmse", "rmse"): "rmse rmse",
    ("bias", "bias"): "rmse",
    ("mape", "mape"): "mape mape",
    ("mae", "size"): "mae size",
    ("size", "size"): "square",
    ("rmse", "label"): "rmse label",
    ("rmse", "square"): "rmse square",
    ("label", "label"): "square",
    ("label", "square"): "label square",
    ("square", "square"): "square square",
}
"""The quantity that is the product of two losses."""


def _ratio(means: Floats) -> tuple[float, Floats]:
    """Return the ratio of two means with its derivatives; see `LossFunction`."""
    error, size = means.tolist()
    if size <= 0.0:
        return math.nan, np.full(2, math.nan)
    return error / size, np.array([1.0 / size, -error / size**2])


def _explained(means: Floats) -> tuple[float, Floats]:
    """Return R² with its derivatives, from the means of e², y and y²; see `LossFunction`."""
    squared, label, square = means.tolist()
    variance = square - label**2
    if not variance > _LEAST_VARIANCE * square:
        return math.nan, np.full(3, math.nan)
    rest = squared / variance
    return 1.0 - rest, np.array([-1.0, -2.0 * rest * label, rest]) / variance


FUNCTIONS = {
    "wape": LossFunction(("mae", "size"), _ratio, Reason.LABELS_ZERO),
    "r2": LossFunction(("rmse", "label", "square"), _explained, Reason.LABELS_EQUAL),
}
"""The metrics that are functions of several means."""


def losses_of(
    errors: Floats,
    metrics: Iterable[str] = DEFAULT_METRICS,
    labels: Floats | None = None,
    inside: Floats | None = None,
) -> dict[str, RowLosses]:
    """Return the losses of n errors whose means determine these metrics.

    Parameters
    ----------
    errors : (n,) float64
    metrics : iterable of str
    labels : (n,) float64, optional
        Needed for `mape`, `wape` and `r2`. Labels must not be 0 for `mape`.
    inside : (n,) float64, optional
        Needed for `coverage`: 1 where the label is within the stated interval, 0 where it is not.
    """
    losses = {
        "mae": RowLosses(np.abs(errors), 1),
        "rmse": RowLosses(errors**2, 2),
        "bias": RowLosses(errors, 1, signed=True),
    }
    if labels is not None:
        centred = labels - labels.mean()  # so that the squares of large labels keep their digits
        with np.errstate(divide="ignore", invalid="ignore"):
            losses["mape"] = RowLosses(np.abs(errors) / np.abs(labels), 1)
        losses["size"] = RowLosses(np.abs(labels), 0)
        losses["label"] = RowLosses(centred, 0, signed=True)
        losses["square"] = RowLosses(centred**2, 0)
    if inside is not None:
        losses["coverage"] = RowLosses(inside, 0)
    return {name: losses[name] for metric in metrics for name in _losses_of_metric(metric)}


def _losses_of_metric(metric: str) -> tuple[str, ...]:
    return FUNCTIONS[metric].losses if metric in FUNCTIONS else (metric,)


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


def chart_value(metric: str, mean: MeanLoss) -> float | None:
    """Return a metric on the scale of its control chart.

    It is the logarithm of the metrics whose estimates vary by a share of their size, such as `mae`, and the
    others themselves. The result is None if it is not finite.

    Examples
    --------
    >>> chart_value("rmse", MeanLoss(value=math.e**2, variance=0.1, third=0.0, n=500))
    1.0
    """
    if not math.isfinite(mean.value):
        return None
    if METRICS[metric].scale == "identity":
        return mean.value
    if mean.value <= 0.0:
        return None
    return (0.5 if metric == "rmse" else 1.0) * math.log(mean.value)


def error_terms(
    errors: Floats,
    replaced: Floats,
    weights: Floats,
    labels: Floats | None = None,
    inside: Floats | None = None,
) -> Floats:
    """Return the terms that labels add to the sums of labelled rows, and those that they remove, (n, 2, T).

    Parameters
    ----------
    errors, replaced : (n,) float64
        The error by each label, and by the label that it replaces. NaN where there is none.
    weights : (n,) float64
        1 over the probability with which the row was picked for labelling.
    labels : (n, 2) float64, optional
        Each label, and the label that it replaces. Without it, T is `TERMS`, for `DEFAULT_METRICS`.
    inside : (n, 2) float64, optional
        Whether these labels are within the stated interval: 1, 0, or NaN without an interval.

    Examples
    --------
    >>> terms = error_terms(np.array([-2.0]), np.array([np.nan]), np.array([1.0]))
    >>> terms[0, 0].tolist()
    [1.0, 1.0, 1.0, -2.0, 2.0, 4.0, -2.0, 2.0, 4.0, 16.0]
    """
    none = np.full((len(errors), 2), np.nan)
    inside = none if inside is None else inside
    summed = _SUMMED[:TERMS] if labels is None else _SUMMED
    labels = none if labels is None else labels
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        added = _terms(summed, errors, weights, labels[:, 0], inside[:, 0])
        removed = _terms(summed, replaced, weights, labels[:, 1], inside[:, 1])
    return np.stack((added, -removed), axis=1)


def _terms(
    summed: Iterable[tuple[int, str]], errors: Floats, weights: Floats, labels: Floats, inside: Floats
) -> Floats:
    quantities = _quantities(errors, labels, inside)
    terms = np.stack([weights**power * quantities[name] for power, name in summed], axis=1)
    return np.where(np.isnan(errors)[:, None], 0.0, terms)


def _quantities(errors: Floats, labels: Floats, inside: Floats) -> dict[str, Floats]:
    """Return the quantities of labelled rows that `_SUMMED` names; those of absent numbers are 0."""
    known, stated = np.isfinite(labels), np.isfinite(inside)
    labels, square = np.where(known, labels, 0.0), errors**2
    size, labels_squared = np.abs(labels), labels**2
    relative = np.where(size > 0.0, np.abs(errors) / size, 0.0)
    return {
        "one": np.ones(len(errors)),
        "bias": errors,
        "mae": np.abs(errors),
        "rmse": square,
        "rmse rmse": square**2,
        "known": known * 1.0,
        "zero": (known & (size == 0.0)) * 1.0,
        "mape": relative,
        "mape mape": relative**2,
        "size": size,
        "mae size": np.abs(errors) * size,
        "label": labels,
        "square": labels_squared,
        "rmse label": square * labels,
        "rmse square": square * labels_squared,
        "label square": labels * labels_squared,
        "square square": labels_squared**2,
        "stated": stated * 1.0,
        "inside": np.where(stated, inside, 0.0),
    }


def padded(sums: Floats, terms: int) -> Floats:
    """Return sums or terms with at least `terms` of them in the last axis; those that are added are 0."""
    missing = max(terms - sums.shape[-1], 0)
    return np.pad(sums, [(0, 0)] * (sums.ndim - 1) + [(0, missing)]) if missing else sums


def added_terms(sums: Floats, terms: Floats) -> Floats:
    """Return the sums with these terms.

    The sums are exact, so that they do not depend on the order of the terms and on the number of calls. If an
    infinite term is removed again, its sum is NaN.

    Parameters
    ----------
    sums : (D, S) float64
        `NO_SUMS`, or the result of an earlier call.
    terms : (n, 2, T) float64

    Returns
    -------
    (D, max(S, T)) float64
        The first row has the rounded sums, and each other row the rounding errors of the rows above it.

    Examples
    --------
    >>> terms = error_terms(np.array([1e9, 1.0]), np.array([np.nan, 1e9]), np.ones(2))
    >>> added_terms(NO_SUMS, terms)[0, 3:6].tolist()
    [1.0, 1.0, 1.0]
    """
    sums, rows = padded(sums, terms.shape[2]), padded(terms, sums.shape[1])
    rows = rows.reshape(-1, rows.shape[2])
    rows = rows[rows.any(axis=1)]
    rows = np.where(np.abs(rows) > _LARGEST, np.copysign(np.inf, rows), rows)
    parts = [_exact_sum(column) for column in np.vstack((sums, rows)).T.tolist()]
    exact = np.zeros((max(map(len, parts)), len(parts)))
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
    their interval would have no width. `mape` is unknown if a label is 0, `wape` if all are, and `r2` if
    their standard deviation is below a thousandth of their size.

    Examples
    --------
    >>> errors = np.array([1.0, -3.0, 2.0, 2.0])
    >>> sums = added_terms(NO_SUMS, error_terms(errors, np.full(4, np.nan), np.ones(4)))
    >>> [realised_metric(metric, sums, 0.95).value for metric in ("mae", "bias")]
    [2.0, 0.5]
    >>> print(realised_metric("mae", NO_SUMS, 0.95).reason)
    no labels yet
    """
    own = padded(sums, len(_SUMMED))[0]
    reason = _missing(metric, own)
    if reason is not None:
        return Unknown(reason)
    return _coverage(own, level) if metric == "coverage" else _by_moments(metric, own, level)


def _missing(metric: str, own: Floats) -> Reason | None:
    """Return why the sums of labelled rows do not give the metric; None if they do."""
    needed = (
        [0, 1, 2] if metric == "coverage" else [0, 1, 2, *np.hstack([p.ravel() for p in _places(metric)])]
    )
    if np.isnan(own[needed]).any():
        return Reason.LABEL_TOO_LARGE
    count = {name: round(own[_PLACES[0, name]]) for name in ("one", "known", "zero", "stated")}
    if count["one"] < 1:
        return Reason.NO_LABELS
    if metric not in DEFAULT_METRICS and count["known"] < count["one"]:
        return Reason.OLDER_WINDOW
    if metric == "mape" and count["zero"]:
        return Reason.LABEL_ZERO
    if metric == "coverage" and count["stated"] < 1:
        return Reason.NO_INTERVALS
    return None


def _coverage(own: Floats, level: float) -> Result:
    n, weight, squares = own[[_PLACES[power, "stated"] for power in (0, 1, 2)]].tolist()
    good, weighted, squared = own[[_PLACES[power, "inside"] for power in (0, 1, 2)]].tolist()
    more = round((weight - n) * ONE), round((weighted - good) * ONE)
    more_squares = round((squares - n) * ONE**2), round((squared - good) * ONE**2)
    return hajek(WeightedCounts(round(n), round(good), Excess(*more, *more_squares)), level)


def _by_moments(metric: str, own: Floats, level: float) -> Result:
    (first, second, products), (count, total, squares) = (own[p] for p in _places(metric)), own[:3].tolist()
    n = round(count)
    effective = min(total / squares * total, n)
    if effective < _FEWEST_EFFECTIVE:
        return TooFew(Reason.TOO_FEW_LABELS, n)
    means = first / total
    value, slopes = (means[0], np.ones(1)) if metric not in FUNCTIONS else FUNCTIONS[metric].at(means)
    if math.isnan(value):
        return Unknown(FUNCTIONS[metric].undefined)
    with np.errstate(over="ignore", invalid="ignore"):
        around = products - np.outer(means, second) - np.outer(second, means)
        spread = max(float(slopes @ (around + squares * np.outer(means, means)) @ slopes), 0.0)
        size = float(np.abs(np.outer(slopes, slopes) * products).sum())
    if spread <= _ROUNDING * size and effective < _FEWEST_EQUAL:
        return TooFew(Reason.TOO_FEW_LABELS, n)
    t = float(scipy.special.stdtrit(effective - 1.0, (1.0 + checked_level(level)) / 2.0))
    half = t * math.sqrt(spread / (1.0 - 1.0 / effective)) / total
    return _estimate(metric, (value, value - half, value + half), level, n)


def _places(metric: str) -> tuple[Ints, Ints, Ints]:
    """Return the places of Σwx and Σw²x of each loss x, (L,), and of Σw²xy of each pair, (L, L)."""
    losses = _losses_of_metric(metric)
    pairs = [[_PRODUCTS.get((a, b)) or _PRODUCTS[b, a] for b in losses] for a in losses]
    first, second = (np.array([_PLACES[power, loss] for loss in losses]) for power in (1, 2))
    return first, second, np.array([[_PLACES[2, product] for product in row] for row in pairs])


def _estimate(metric: str, ends: tuple[float, float, float], level: float, n: int) -> Estimate:
    """Return the estimate of a metric from the value and the interval of the mean of its loss."""
    least, most = _RANGES.get(metric, (0.0, math.inf))
    value, lower, upper = (min(max(float(end), least), most) for end in ends)
    if metric == "rmse":
        value, lower, upper = math.sqrt(value), math.sqrt(lower), math.sqrt(upper)
    return Estimate(value, lower, upper, level, n)
