"""The realised accuracy of labelled rows that were sampled with unequal, known probabilities.

A row that was sampled with probability q counts as 1/q rows. More generally, the result is a share of
successes; for the accuracy, a success is a row whose predicted class is its label.

All sums are integers, so rows may be added and removed in any order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from monitor.base.records import Floats
from monitor.base.results import Estimate, Result
from monitor.stats.estimate.proportion import wilson, wilson_interval

ONE = 1 << 24
"""A weight of 1 in the sums. Probabilities have single precision: 24 bits."""


class Excess(NamedTuple):
    """The weighted sums minus the plain counts: Σ(w − 1), Σ(w − 1)y, Σ(w² − 1) and Σ(w² − 1)y over rows.

    Here w is the weight of a row, and y is 1 for a success and 0 for a failure. Rows with the weight 1 add 0
    to all four sums, so they need no computation. Sums of weights are integers in units of 1 / `ONE`, sums of
    squares in units of 1 / `ONE`².
    """

    weight: int = 0
    weighted_successes: int = 0
    squares: int = 0
    squared_successes: int = 0

    def plus(self, other: Excess, sign: int = 1) -> Excess:
        """Return the sum of both objects, or their difference if `sign` is -1."""
        if not any(other):
            return self
        return Excess(*(mine + sign * theirs for mine, theirs in zip(self, other, strict=True)))


def excess(weight: float, rows: int, successes: int) -> Excess:
    """Return the excess sums of `rows` rows that have the same weight, `successes` of them successes.

    Parameters
    ----------
    weight : float
    rows, successes : int
        The numbers of rows and of successes among them; negative to remove rows.

    Examples
    --------
    >>> excess(1.0, rows=5, successes=4) == Excess()
    True
    >>> [number / ONE for number in excess(4.0, rows=2, successes=1)[:2]]
    [6.0, 3.0]
    """
    once = round(weight * ONE)
    more, squared = once - ONE, once * once - ONE * ONE
    return Excess(rows * more, successes * more, rows * squared, successes * squared)


class WeightedCounts(NamedTuple):
    """The number of rows and of successes, and by how much the sums of weights exceed them: see `Excess`."""

    n: int = 0
    successes: int = 0
    excess: Excess = Excess()

    def plus(self, other: WeightedCounts, sign: int = 1) -> WeightedCounts:
        """Return the sum of both objects, or their difference if `sign` is -1."""
        return WeightedCounts(
            self.n + sign * other.n,
            self.successes + sign * other.successes,
            self.excess.plus(other.excess, sign),
        )


def weighted_counts(success: NDArray[np.bool_], weight: Floats) -> WeightedCounts:
    """Return the counts and weighted sums of n rows.

    Parameters
    ----------
    success : (n,) bool
    weight : (n,) float64
        1 / the probability that the row was sampled: at least 1, finite. It is rounded to 24 binary places.

    Raises
    ------
    ValueError
        A weight is below 1 or not finite, or the shapes differ.
    """
    if success.shape != weight.shape or success.ndim != 1:
        raise ValueError(
            f"success and weight must be of one shape (n,), got {success.shape} and {weight.shape}"
        )
    wrong = np.flatnonzero(~((weight >= 1.0) & np.isfinite(weight)))
    if len(wrong):
        at = int(wrong[0])
        raise ValueError(
            f"weight[{at}] must be at least 1 and finite (1 / the probability of picking the row), "
            f"got {weight[at]}"
        )
    total = Excess()
    for good, w in zip(success.tolist(), weight.tolist(), strict=True):
        total = total.plus(excess(w, 1, int(good)))
    return WeightedCounts(len(success), int(success.sum()), total)


def hajek(counts: WeightedCounts, level: float = 0.95) -> Result:
    """Estimate the share of successes among rows that were sampled with unequal probabilities.

    The estimate is Σwy / Σw, where y is 1 for a success and 0 for a failure, and the weight w of a row is 1 /
    its sampling probability. The interval is Wilson's interval for the effective number of rows, which is the
    number of equally weighted rows with the same standard error. With equal weights, it is exactly Wilson's
    interval.

    The effective number is Kish's, (Σw)² / Σw², divided by a factor for the relation of weight and success.
    The factor is the ratio of two variances of the share p: the linearised variance, Σw²(y - p)² / (Σw)², and
    the variance without such a relation, p(1 - p) Σw² / (Σw)².

    For the factor, two rows are added: one success and one failure, both with the weight Σw² / Σw. Without
    these two rows, a few failures with small weights would make the interval far too narrow. If rows that are
    often wrong are sampled 25 times as often as others, it would contain the truth 84 times in 100 at 230
    rows, instead of 99 times (``tests/fidelity/output/hajek.txt``).

    The estimate misleads if one outcome is hardly ever sampled: if rows that are often wrong are sampled with
    2 % and the others with 10 %, the interval contains the truth 85 times in 100 at 170 rows. The rows cannot
    show failures that were not sampled. The estimate also misleads if the probabilities are wrong.

    Parameters
    ----------
    counts : WeightedCounts
    level : float
        Level of the interval, above 0 and below 1.

    Returns
    -------
    Estimate or Unknown
        From 0 to 1, of n rows; `Unknown` for no rows.

    Raises
    ------
    ValueError
        The level is out of range.

    References
    ----------
    J. Hájek, comment in *Foundations of Statistical Inference* (1971), page 236. C.-E. Särndal, B. Swensson,
    J. Wretman, *Model Assisted Survey Sampling* (1992), section 5.7: the ratio and its linearised variance,
    for rows picked independently with small probabilities. L. Kish, *Survey Sampling* (1965), section 11.7:
    the effective number. E. L. Korn, B. I. Graubard, *Confidence intervals for proportions with small
    expected number of positive counts estimated from survey data*, Survey Methodology 24 (1998), pages
    193-201: a binomial interval at that number.

    Examples
    --------
    >>> right, picked = np.array([True, True, True, False]), np.array([0.1, 0.1, 0.5, 0.5])
    >>> hajek(weighted_counts(right, 1 / picked))
    Estimate(value=0.9166..., lower=0.3741..., upper=0.9950..., level=0.95, n=4)
    """
    n, successes, more = counts
    w, squares = n * ONE + more.weight, n * ONE**2 + more.squares
    if n * squares == w * w:  # Cauchy-Schwarz: only where all weights are equal
        return wilson(successes, n, level)
    weighted = successes * ONE + more.weighted_successes
    squared_successes = successes * ONE**2 + more.squared_successes
    share = 1.0 if successes == n else weighted / w
    effective = w * w / squares / _variance_ratio(w, weighted, squares, squared_successes)
    lower, upper = wilson_interval(share, effective, level)
    return Estimate(share, lower, upper, level, n)


def _variance_ratio(w: int, weighted: int, squares: int, squared_successes: int) -> float:
    """Return Σw²(y - p)² over p(1 - p) Σw², with one more success and failure of the mean weight."""
    mean = squares / w
    share = (weighted + mean) / (w + 2 * mean)
    total = squares + 2 * mean * mean
    good = squared_successes + mean * mean
    return ((1 - share) ** 2 * good + share**2 * (total - good)) / (share * (1 - share) * total)
