"""Average Confidence: a model's accuracy as the mean of its calibrated confidences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from monitor.base.records import Floats
from monitor.base.results import Estimate, Reason, Result, Unknown
from monitor.stats.estimate._convolution import fold_many, fold_one
from monitor.stats.estimate.poisson_binomial import (
    TrimmedPmf,
    central,
    checked_level,
    checked_probabilities,
    interval_many,
    sorted_probabilities,
    trimmed_pmf_many,
)

_BATCH_ROWS = 1 << 17  # rows at a time: their distributions take about 1 MiB


def average_confidence(confidence: ArrayLike, level: float = 0.95) -> Result:
    """Estimate the accuracy of the predictions in one window, without labels.

    The estimate is the mean confidence. The interval is for the share of right answers **among these rows**.
    Its ends are central quantiles of the Poisson binomial distribution of the number of right answers. With
    calibrated confidences and independent rows, the interval contains this share with at least the stated
    probability. The probability is usually a little larger, because counts are discrete.

    The estimate misleads if the confidences are wrong. The interval ignores errors from concept drift or from
    calibration on little data: on flights with real drift it contained the truth in 27 % of windows of 500
    rows.

    Parameters
    ----------
    confidence : (n,) array of float
        Calibrated probabilities that the predicted classes are right, each from 0 to 1.
    level : float
        Level of the interval, above 0 and below 1.

    Returns
    -------
    Estimate or Unknown
        Accuracy from 0 to 1; `Unknown` for no rows. If nearly every row is certain, both quantiles may lie on
        one side of the mean. Then the nearer end is moved to the mean.

    Raises
    ------
    ValueError
        A confidence or the level is out of range, or the array is not one-dimensional.

    References
    ----------
    Kivimäki et al., *Confidence-based Estimators for Predictive Performance in Model Monitoring*,
    section 4.1 (Lemma 1, Theorems 2 and 3: unbiased and consistent) and section 4.2 (interval).

    Examples
    --------
    >>> average_confidence([0.75] * 500)
    Estimate(value=0.75, lower=0.712, upper=0.788, level=0.95, n=500)
    >>> average_confidence([])
    Unknown(reason=<Reason.NO_ROWS: 'no rows'>)
    """
    checked = sorted_probabilities(confidence, "confidence")
    n = len(checked)
    if not n:
        checked_level(level)
        return Unknown(Reason.NO_ROWS)
    start, mass = fold_one(checked)
    low, high = central(mass, level)
    value = float(np.add.reduce(checked)) / n
    return Estimate(value, min((start + low) / n, value), max((start + high) / n, value), level, n)


def average_confidence_many(confidence: ArrayLike, level: float = 0.95) -> Floats:
    """Return the estimated accuracy of many windows of one size, (windows, 3): value, lower and upper end.

    Each row of the result is the `average_confidence` of a window.

    Parameters
    ----------
    confidence : (windows, n) array of float
        As in `average_confidence`; n at least 1.
    level : float
        As in `average_confidence`.

    Raises
    ------
    ValueError
        A confidence or the level is out of range, the array is not two-dimensional, or n is 0.

    Examples
    --------
    >>> average_confidence_many([[0.75] * 500, [0.5] * 500]).tolist()
    [[0.75, 0.712, 0.788], [0.5, 0.456, 0.544]]
    """
    checked = checked_probabilities(confidence, 2, "confidence")
    checked_level(level)
    if checked.shape[1] == 0:
        raise ValueError(
            f"confidence must have at least one row in each window, got the shape {checked.shape}; "
            "average_confidence answers Unknown for an empty window"
        )
    return _many(checked, level)


def average_confidence_windows(
    confidences: Sequence[ArrayLike], level: float = 0.95
) -> list[tuple[Result, TrimmedPmf | None]]:
    """Return the `average_confidence` of windows of any sizes, each with a distribution for pooling.

    The distribution is that of the number of right answers. It is None for a window without rows. Windows of
    equal size are computed together.

    Examples
    --------
    >>> (small, _), (empty, no_pmf) = average_confidence_windows([[0.9, 0.8], []])
    >>> small.n, empty, no_pmf
    (2, Unknown(reason=<Reason.NO_ROWS: 'no rows'>), None)
    """
    checked_level(level)
    return [
        (Unknown(Reason.NO_ROWS), None) if counts is None else (exact_estimate(*counts, level), counts[1])
        for counts in counts_of_right(confidences)
    ]


def counts_of_right(confidences: Sequence[ArrayLike]) -> list[tuple[float, TrimmedPmf] | None]:
    """Return each window's mean confidence and the distribution of its number of right answers.

    The entry of a window without rows is None. Windows of equal size are computed together. A confidence out
    of range raises a ValueError.

    Examples
    --------
    >>> (mean, counts), nothing = counts_of_right([[0.75, 1.0], []])
    >>> mean, counts.offset, counts.mass.round(12).tolist(), nothing
    (0.875, 1, [0.25, 0.75], None)
    """
    checked = [checked_probabilities(window, 1, f"confidences[{i}]") for i, window in enumerate(confidences)]
    results: list[tuple[float, TrimmedPmf] | None] = [None] * len(checked)
    by_size: dict[int, list[int]] = {}
    for i, window in enumerate(checked):
        by_size.setdefault(len(window), []).append(i)
    by_size.pop(0, None)
    for n, members in by_size.items():
        step = max(_BATCH_ROWS // n, 1)
        for first in range(0, len(members), step):
            some = members[first : first + step]
            together = np.stack([checked[i] for i in some])
            means = together.mean(axis=1).tolist()
            for i, mean, pmf in zip(some, means, trimmed_pmf_many(together), strict=True):
                results[i] = mean, pmf
    return results


def exact_estimate(mean: float, pmf: TrimmedPmf, level: float) -> Estimate:
    """Return the accuracy as the mean confidence, with an interval from the number of right answers.

    The ends of the interval are central quantiles of `pmf`, the distribution of this number.

    Examples
    --------
    >>> exact_estimate(0.875, TrimmedPmf(1, np.array([0.25, 0.75]), 2), 0.95)
    Estimate(value=0.875, lower=0.5, upper=1.0, level=0.95, n=2)
    """
    low, high = pmf.interval(level)
    return Estimate(mean, min(low / pmf.n, mean), max(high / pmf.n, mean), level, pmf.n)


def _many(confidence: Floats, level: float) -> Floats:
    """Return `average_confidence_many` without the checks."""
    windows, n = confidence.shape
    estimates = np.empty((windows, 3))
    step = max(_BATCH_ROWS // n, 1)
    for first in range(0, windows, step):
        some = confidence[first : first + step]
        rows = estimates[first : first + step]
        rows[:, 0] = np.ascontiguousarray(some).mean(axis=1)
        rows[:, 1:] = interval_many(*fold_many(some), level) / n
    np.minimum(estimates[:, 1], estimates[:, 0], out=estimates[:, 1])
    np.maximum(estimates[:, 2], estimates[:, 0], out=estimates[:, 2])
    return estimates
