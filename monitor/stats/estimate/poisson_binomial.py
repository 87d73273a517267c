"""The number of successes in independent trials, each with its own probability.

If a model's confidences are calibrated, the number of its right answers in a window has this distribution,
and its quantiles are the interval of the window's accuracy.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from monitor.base.records import Floats, Ints
from monitor.stats.estimate._convolution import convolve, fold_many, fold_one

NEGLIGIBLE = 1e-15
"""The probability that `trim` drops on each side. It is about the rounding error of a whole window."""

RESOLUTION = 1e-13
"""A CDF that is below q by at most this value counts as q, so that rounding does not decide exact ties."""

_DIRECT = 1 << 18  # multiplications; measured: up to here plain convolution is faster than transforms


def checked_probabilities(p: ArrayLike, dimensions: int, name: str = "p") -> Floats:
    """Return probabilities as a read-only float64 array with this number of dimensions.

    A wrong shape, or a value outside 0 to 1, raises a ValueError. The message names the argument and the
    first wrong value.
    """
    array = np.asarray(p, dtype=np.float64)
    if array.ndim != dimensions:
        wanted = "a one-dimensional array" if dimensions == 1 else f"an array of {dimensions} dimensions"
        raise ValueError(f"{name} must be {wanted} of probabilities, got the shape {array.shape}")
    # A NaN makes both comparisons false.
    if array.size and not (array.min() >= 0.0 and array.max() <= 1.0):
        bad = np.argwhere(~((array >= 0.0) & (array <= 1.0)))[0].tolist()
        raise ValueError(
            f"{name}{bad} must be a probability from 0 to 1, got {array[tuple(bad)]}; "
            "scores that are logits or percentages must be turned into probabilities first"
        )
    return array


def checked_level(level: float) -> float:
    """Return the level of an interval, or raise a ValueError unless it is above 0 and below 1."""
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must lie between 0 and 1, both excluded (0.95 is usual), got {level}")
    return level


def sorted_probabilities(p: ArrayLike, name: str = "p") -> Floats:
    """Return a sorted copy of (n,) probabilities, checked by `checked_probabilities`."""
    array = np.array(p, dtype=np.float64)
    if array.ndim == 1:
        array.sort()  # its ends are then the only values to check: NaN comes last
        if not array.size or (array[0] >= 0.0 and array[-1] <= 1.0):
            return array
    return checked_probabilities(p, 1, name)  # raises, and names the first bad value


def _first_reached(cdf: Floats, q: float) -> int:
    """Return the first index at which the CDF reaches q; the last one if rounding keeps it below."""
    return min(int(cdf.searchsorted(q - RESOLUTION)), len(cdf) - 1)


@dataclass(frozen=True, slots=True, eq=False)
class TrimmedPmf:
    """The distribution of a count without the negligible probabilities at both ends, for fast pooling.

    Parameters
    ----------
    offset : int
        The count with the first probability in `mass`.
    mass : (width,) float64
        Probabilities of `offset`, `offset + 1`, …; they sum to 1. Do not write to it.
    n : int
        Number of trials.

    Examples
    --------
    >>> window = trim(PoissonBinomial([0.9] * 500).pmf)
    >>> window.n, window.offset > 350, len(window.mass) < 150
    (500, True, True)
    >>> window.convolve(window).interval(0.95)
    (881, 918)
    """

    offset: int
    mass: Floats
    n: int

    @property
    def mean(self) -> float:
        """The expected number of successes, 0 to n."""
        return self.offset + float(np.arange(len(self.mass)) @ self.mass)

    def convolve(self, other: TrimmedPmf) -> TrimmedPmf:
        """Return the distribution of the successes of two independent windows together."""
        direct = len(self.mass) * len(other.mass) <= _DIRECT
        by = np.convolve if direct else convolve
        return trimmed(self.offset + other.offset, by(self.mass, other.mass), self.n + other.n)

    def quantile(self, q: float) -> int:
        """Return the smallest count whose CDF reaches q, 0 to 1."""
        return self.offset + _first_reached(np.cumsum(self.mass), q)

    def interval(self, level: float) -> tuple[int, int]:
        """Return the central quantiles of the count, like `PoissonBinomial.interval`."""
        low, high = central(self.mass, level)
        return self.offset + low, self.offset + high


def trimmed(offset: int, mass: Floats, n: int) -> TrimmedPmf:
    """Return a distribution without negligible probabilities at its ends, with a sum of 1."""
    low = int(mass.cumsum().searchsorted(NEGLIGIBLE))
    high = len(mass) - int(mass[::-1].cumsum().searchsorted(NEGLIGIBLE))
    kept = np.maximum(mass[low:high], 0.0)
    kept /= kept.sum()
    kept.flags.writeable = False
    return TrimmedPmf(offset + low, kept, n)


def trim(pmf: ArrayLike) -> TrimmedPmf:
    """Return the part of a PMF that contains all but 1e-15 of the probability on each side.

    Parameters
    ----------
    pmf : (n + 1,) float64
        Probabilities of 0, 1, …, n successes; a sum other than 1 raises a ValueError.

    Examples
    --------
    >>> trim([0.0, 0.25, 0.75])
    TrimmedPmf(offset=1, mass=array([0.25, 0.75]), n=2)
    """
    mass = checked_probabilities(pmf, 1, "pmf")
    total = float(mass.sum())
    if not abs(total - 1.0) < 1e-9:
        raise ValueError(f"pmf must sum to 1 within 1e-9, got a sum of {total}")
    return trimmed(0, mass, len(mass) - 1)


def trimmed_pmf_many(p: ArrayLike) -> list[TrimmedPmf]:
    """Return each window's distribution of successes, from (windows, n) probabilities of success.

    Examples
    --------
    >>> [window.offset for window in trimmed_pmf_many([[0.0, 0.5], [1.0, 0.5]])]
    [0, 1]
    """
    checked = checked_probabilities(p, 2)
    start, mass = fold_many(checked)
    return [trimmed(at, row, checked.shape[1]) for at, row in zip(start.tolist(), mass, strict=True)]


def pmf_many(p: ArrayLike) -> Floats:
    """Return the (windows, n + 1) probabilities of each number of successes.

    `p` has the (windows, n) probabilities of success. The errors are below 1e-14; probabilities below 1e-16
    are 0.

    Examples
    --------
    >>> pmf_many([[0.5, 0.5], [0.0, 1.0]]).round(6).tolist()
    [[0.25, 0.5, 0.25], [0.0, 1.0, 0.0]]
    """
    checked = checked_probabilities(p, 2)
    start, mass = fold_many(checked)
    whole = np.zeros((len(checked), checked.shape[1] + 1))
    if len(checked):
        np.put_along_axis(whole, start[:, None] + np.arange(mass.shape[1]), mass, axis=1)
    return whole


def central(mass: Floats, level: float) -> tuple[int, int]:
    """Return the two indices at which the CDF of `mass` reaches (1 − level)/2 and (1 + level)/2."""
    tail = (1.0 - checked_level(level)) / 2.0
    low, high = mass.cumsum().searchsorted((tail - RESOLUTION, 1.0 - tail - RESOLUTION)).tolist()
    last = len(mass) - 1
    return min(low, last), min(high, last)


def interval_many(start: Ints, mass: Floats, level: float) -> Ints:
    """Return the (windows, 2) central quantiles of distributions that `fold_many` returned."""
    tail = (1.0 - checked_level(level)) / 2.0
    cdf = np.cumsum(mass, axis=1)
    last = mass.shape[1] - 1
    ends = [np.minimum((cdf < q - RESOLUTION).sum(axis=1), last) for q in (tail, 1.0 - tail)]
    intervals: Ints = start[:, None] + np.stack(ends, axis=1)
    return intervals


class PoissonBinomial:
    """The distribution of the number of successes in n independent trials, each with its own probability.

    The distribution is exact for any n. Divide and conquer and Fourier transforms multiply the polynomial
    `∏(1 − p_i + p_i z)`. The absolute error of every probability is below 1e-14. For more than 1,000 rows
    that are nearly all certain, it is below 1e-17 times the number of rows. Probabilities below about 1e-16
    are 0, so do not use the far tails for ratios such as likelihood ratios.

    The distribution misleads if the trials are not independent: the true distribution is then wider.

    Parameters
    ----------
    p : (n,) array of float
        Probabilities of success, each from 0 to 1 inclusive; n may be 0. The array is copied.

    Raises
    ------
    ValueError
        `p` is not one-dimensional, or a value is not a number from 0 to 1.

    References
    ----------
    Kivimäki et al., *Confidence-based Estimators for Predictive Performance in Model Monitoring*,
    section 4, equation 2. Y. Hong, *On computing the distribution function for the Poisson binomial
    distribution*, Computational Statistics & Data Analysis 59 (2013), section 2, for the transform;
    Biscarri, Zhao, Brunner, *A simple and fast method for computing the Poisson binomial distribution
    function*, same journal 122 (2018), section 3, for divide and conquer.

    Examples
    --------
    >>> window = PoissonBinomial([0.5, 0.8, 0.9])
    >>> window.pmf.round(3).tolist()
    [0.01, 0.14, 0.49, 0.36]
    >>> round(window.mean, 3), round(window.variance, 3), window.quantile(0.5), window.interval(0.95)
    (2.2, 0.5, 2, (1, 3))
    """

    def __init__(self, p: ArrayLike) -> None:
        self._p = sorted_probabilities(p)

    def __repr__(self) -> str:
        return f"PoissonBinomial(n={self.n}, mean={self.mean:.6g})"

    @property
    def n(self) -> int:
        """The number of trials."""
        return len(self._p)

    @property
    def mean(self) -> float:
        """The expected number of successes, Σp."""
        return float(self._p.sum())

    @property
    def variance(self) -> float:
        """The variance of the number of successes, Σp(1 − p)."""
        return float(self._p @ (1.0 - self._p))

    @cached_property
    def _folded(self) -> tuple[int, Floats]:
        """The first count that is not negligible, and the probabilities from it on, by `fold_one`."""
        return fold_one(self._p)

    @cached_property
    def pmf(self) -> Floats:
        """The probabilities of 0, 1, …, n successes, (n + 1,). Read-only."""
        start, mass = self._folded
        whole = np.zeros(self.n + 1)
        np.maximum(mass, 0.0, out=whole[start : start + len(mass)])
        whole /= whole.sum()
        return _read_only(whole)

    @cached_property
    def cdf(self) -> Floats:
        """The probabilities of at most 0, 1, …, n successes, (n + 1,). Read-only; the last is exactly 1."""
        cdf = np.minimum(np.cumsum(self.pmf), 1.0)
        cdf[-1] = 1.0
        return _read_only(cdf)

    def quantile(self, q: float) -> int:
        """Return the smallest count k with P(K ≤ k) ≥ q, exact down to probabilities of 1e-13.

        At q = 1 the result is the number of trials with a probability above 0. A q outside 0 to 1 raises a
        ValueError.
        """
        if not 0.0 <= q <= 1.0:
            raise ValueError(f"q must be a probability from 0 to 1, got {q}")
        if q == 1.0:
            return int(np.count_nonzero(self._p))
        return _first_reached(self.cdf, q)

    def interval(self, level: float) -> tuple[int, int]:
        """Return central quantiles: at most (1 − level)/2 of the probability lies beyond either end.

        Both ends are included. Counts are discrete, so the coverage is at least `level`, and usually larger.
        On the paper's simulated data it is about 97.0 % instead of 95 % for windows of 100 rows, and 96.0 %
        for windows of 500.

        A level that is not strictly between 0 and 1 raises a ValueError.
        """
        start, mass = self._folded
        low, high = central(mass, level)
        return start + low, start + high


def _read_only(array: Floats) -> Floats:
    array.flags.writeable = False
    return array
