"""Exact distributions of precision, recall, specificity and F1, as ratios of two independent counts.

The true positives TP are counted over the rows that are predicted as positive, and the false negatives FN
over the other rows. These rows are disjoint, so TP and FN are independent Poisson binomials. Each metric
below is a ratio of two independent counts H and R, with three fixed numbers:

    weight·H / (own·H + R + fixed)

| metric | H | R | weight | own | fixed |
|---|---|---|---|---|---|
| accuracy | right answers | 0 | 1 | 0 | rows |
| precision | TP | 0 | 1 | 0 | predicted positives |
| recall | TP | FN | 1 | 1 | 0 |
| specificity | TN | FP | 1 | 1 | 0 |
| F1 | TP | FN | 2 | 1 | predicted positives |

For every R, the ratio rises with H. So the CDF of the ratio needs only one look-up in the CDF of H for each
value of R. To find a quantile, only the (H, R) pairs between two close ratios are sorted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import sqrt

import numpy as np
import scipy

from monitor.base.records import Floats
from monitor.stats.estimate.poisson_binomial import RESOLUTION, TrimmedPmf, checked_level

MOSTLY_UNDEFINED = 0.5
"""If the unknown labels leave a metric undefined with a probability above this value, the metric is
unknown."""

_TOGETHER = 64  # ratios in one search
_FEW_CELLS = 1.0  # ratios of counts in a bracket, for each count of R
_MOST_STEPS = 200
_BESIDE = (0.05, 0.003)  # standard errors beside a guess
_GAP = 1e-11  # less than the distance of two different ratios of counts up to 200,000


def nothing() -> TrimmedPmf:
    """Return the distribution of a count that is always 0."""
    return TrimmedPmf(0, np.ones(1), 0)


def mirrored(count: TrimmedPmf) -> TrimmedPmf:
    """Return the distribution of the number of failures, from the distribution of the number of successes.

    Examples
    --------
    >>> mirrored(TrimmedPmf(1, np.array([0.25, 0.75]), 5))
    TrimmedPmf(offset=3, mass=array([0.75, 0.25]), n=5)
    """
    return TrimmedPmf(count.n - count.offset - len(count.mass) + 1, count.mass[::-1], count.n)


def _variance(count: TrimmedPmf) -> float:
    places = np.arange(len(count.mass)) - (count.mean - count.offset)
    return float(count.mass @ (places * places))


@dataclass(frozen=True, eq=False)
class CountRatio:
    """The distribution of ``weight·H / (own·H + R + fixed)`` with independent random counts H and R.

    The module has a table of metrics that are such ratios, for example precision and recall. The distribution
    is exact, except that 1e-15 of the probability is cut off at each end of the counts. `convolve` pools
    independent windows exactly: it gives the ratio of the summed counts.

    The distribution misleads if rows share an error that the confidences ignore: the true distribution is
    then wider.

    Parameters
    ----------
    hits, rest : TrimmedPmf
        Distributions of H and R.
    weight, own : int
        `weight` is 1 or 2, and `own` 0 or 1; `weight` is at least `own`.
    fixed : int
        The certain part of the denominator, 0 or more.
    rows : int
        The number of rows in the window, which the report shows.

    Raises
    ------
    ValueError
        A number is out of range, or the ratio could exceed 1.

    Examples
    --------
    >>> from monitor import trimmed_pmf_many
    >>> hits, missed = trimmed_pmf_many([[0.9] * 40, [0.1] * 40])
    >>> recall = CountRatio(hits, missed, weight=1, own=1, fixed=0, rows=80)
    >>> round(recall.value, 6), [round(end, 4) for end in recall.interval(0.95)]
    (0.9, [0.814, 0.9744])
    """

    hits: TrimmedPmf
    rest: TrimmedPmf
    weight: int
    own: int
    fixed: int
    rows: int

    def __post_init__(self) -> None:
        if self.own not in (0, 1) or self.weight not in (1, 2):
            raise ValueError(f"weight must be 1 or 2 and own 0 or 1, got {self.weight} and {self.own}")
        if self.fixed < (self.weight - self.own) * self.hits.n:
            raise ValueError(
                f"fixed must be at least (weight − own)·hits.n = {(self.weight - self.own) * self.hits.n}, "
                f"or the ratio could exceed 1, got {self.fixed}"
            )

    @cached_property
    def value(self) -> float:
        """The ratio of the expected counts, 0 to 1. It is 0 if the denominator is certainly 0."""
        hits = self.hits.mean
        below = self.own * hits + self.rest.mean + self.fixed
        return min(self.weight * hits / below, 1.0) if below > 0 else 0.0

    @cached_property
    def undefined(self) -> float:
        """The probability that the denominator is 0, which leaves the metric undefined."""
        if self.fixed or self.rest.offset or (self.own and self.hits.offset):
            return 0.0
        return min(float(self.rest.mass[0]) * (float(self.hits.mass[0]) if self.own else 1.0), 1.0)

    @cached_property
    def standard_error(self) -> float:
        """The standard deviation of the ratio, to first order; 0 if the ratio is undefined."""
        below = self.own * self.hits.mean + self.rest.mean + self.fixed
        if below <= 0:
            return 0.0
        by_hits, by_rest = (self.weight - self.own * self.value) / below, self.value / below
        return sqrt(by_hits**2 * _variance(self.hits) + by_rest**2 * _variance(self.rest))

    def convolve(self, other: CountRatio) -> CountRatio:
        """Return the distribution of the ratio for two independent windows together.

        If the other ratio has a different `weight` or `own`, a ValueError is raised.
        """
        if (self.weight, self.own) != (other.weight, other.own):
            raise ValueError(
                f"a ratio of weight {self.weight} and own {self.own} pools with the same kind only, "
                f"got weight {other.weight} and own {other.own}"
            )
        return CountRatio(
            self.hits.convolve(other.hits),
            self.rest.convolve(other.rest),
            self.weight,
            self.own,
            self.fixed + other.fixed,
            self.rows + other.rows,
        )

    def shifted(self, hits: int, fixed: int) -> CountRatio:
        """Return the ratio after `hits` are added to H, and with the fixed part `fixed` of the denominator.

        Parameters
        ----------
        hits : int
            The constant to add to H.
        fixed : int
            The new fixed part of the denominator.

        Examples
        --------
        >>> half = CountRatio(TrimmedPmf(1, np.ones(1), 2), nothing(), weight=1, own=0, fixed=2, rows=2)
        >>> half.value, half.shifted(2, 4).value
        (0.5, 0.75)
        """
        moved = TrimmedPmf(self.hits.offset + hits, self.hits.mass, self.hits.n + hits)
        return CountRatio(moved, self.rest, self.weight, self.own, fixed, self.rows)

    def interval(self, level: float) -> tuple[float, float]:
        """Return the central quantiles of the ratio, given that it is defined.

        Each quantile is the smallest ratio whose CDF reaches (1 − level)/2 or (1 + level)/2. Counts are
        discrete, so the coverage is at least `level`, and usually larger: see `holds`.

        A level that is not strictly between 0 and 1, or a ratio that is always undefined, raises a
        ValueError.
        """
        [ends] = ratio_intervals([self], level)
        return ends

    def holds(self, lower: float, upper: float) -> float:
        """Return the probability that the ratio, if it is defined, lies from `lower` to `upper`.

        If the confidences are calibrated, this is the coverage of the interval.

        Examples
        --------
        >>> from monitor import trim
        >>> precision = CountRatio(trim([0.0, 0.5, 0.5]), nothing(), weight=1, own=0, fixed=2, rows=2)
        >>> precision.holds(0.5, 0.5), precision.holds(0.0, 1.0)
        (0.5, 1.0)
        """
        ends = np.array([[lower - _GAP, upper + _GAP]])
        below, above = _Stacked([self]).reached(np.clip(ends, 0.0, 1.0 - _GAP))[0].tolist()
        below, above = 0.0 if lower <= _GAP else below, 1.0 - self.undefined if upper >= 1.0 - _GAP else above
        return (above - below) / (1.0 - self.undefined)


def ratio_intervals(ratios: Sequence[CountRatio], level: float) -> list[tuple[float, float]]:
    """Return `CountRatio.interval` of each of many ratios, computed together.

    The ratios may be of different kinds. A level that is not strictly between 0 and 1, or a ratio that is
    always undefined, raises a ValueError.

    Examples
    --------
    >>> from monitor import trim
    >>> one = CountRatio(trim([0.0, 0.5, 0.5]), nothing(), weight=1, own=0, fixed=2, rows=2)
    >>> ratio_intervals([one, one], 0.95)
    [(0.5, 1.0), (0.5, 1.0)]
    """
    tail = (1.0 - checked_level(level)) / 2.0
    if any(1.0 - each.undefined < RESOLUTION for each in ratios):
        raise ValueError(
            "the ratio has no interval, as its denominator is certainly 0: check `undefined` first"
        )
    intervals: list[tuple[float, float]] = []
    for first in range(0, len(ratios), _TOGETHER):
        intervals += map(tuple, _quantiles(_Stacked(ratios[first : first + _TOGETHER]), tail).tolist())
    return intervals


class _Stacked:
    """Ratios side by side, (m, …) each, padded to the longest distributions."""

    def __init__(self, ratios: Sequence[CountRatio]) -> None:
        m, hits, rest = len(ratios), [each.hits for each in ratios], [each.rest for each in ratios]
        of_hits, self.mass = _padded(hits), _padded(rest)
        # The CDFs of H, each with a 0 before it, in one row, and the index where each begins.
        steps = np.zeros((m, of_hits.shape[1] + 1))
        np.cumsum(of_hits, axis=1, out=steps[:, 1:])
        self.steps, self.begins = steps.ravel(), np.arange(1, 1 + steps.size, steps.shape[1])[:, None, None]
        numbers = [
            (e.weight, e.own, h.offset, r.offset, e.fixed, e.undefined, len(h.mass) - 1)
            for e, h, r in zip(ratios, hits, rest, strict=True)
        ]
        columns = np.array(numbers, dtype=np.float64).T[:, :, None]
        self.weight, self.own, self.offset, rest_offset, fixed, self.undefined, self.most = columns
        self.below = rest_offset + fixed + np.arange(self.mass.shape[1])
        self.hits, self.rest = _moments(of_hits, self.offset), _moments(self.mass, rest_offset + fixed)

    def limits(self, at: Floats) -> Floats:
        """Return the (m, e, counts of R) index of the largest H with a ratio up to (m, e); −1 for none."""
        most = (at / (self.weight - self.own * at))[:, :, None] * self.below[:, None, :]
        np.floor(most, out=most)
        most -= self.offset[:, :, None]
        np.maximum(most, -1.0, out=most)
        limits: Floats = np.minimum(most, self.most[:, :, None], out=most)
        return limits

    def reached(self, at: Floats) -> Floats:
        """Return the (m, e) probability of a defined ratio of at most (m, e), each from 0 to below 1."""
        places = self.limits(at).astype(np.int64)
        places += self.begins
        probability: Floats = np.einsum("mer,mr->me", self.steps[places], self.mass) - self.undefined
        return probability

    def among(self, first: Floats, past: Floats, so_far: Floats, wanted: Floats) -> Floats:
        """Return the (m, e) smallest ratios that reach `wanted`.

        For each count of R, the function searches among the counts of H after `first` up to `past`. `so_far`
        is the probability up to `first`.
        """
        counts = np.where(self.mass[:, None, :] > 0.0, past - first, 0.0).astype(np.int64)
        many = counts.ravel()
        cell = np.repeat(np.arange(many.size), many)  # (m, e, counts of R) of each ratio, in one row
        end, rest = np.divmod(cell, counts.shape[2])
        of = end // counts.shape[1]
        index = first.ravel()[cell] + np.arange(1, 1 + cell.size) - np.repeat(np.cumsum(many) - many, many)
        places = index.astype(np.int64) + self.begins.ravel()[of]
        mass = self.mass[of, rest] * (self.steps[places] - self.steps[places - 1])
        counted = index + self.offset.ravel()[of]
        below = self.own.ravel()[of] * counted + self.below[of, rest]
        ratio = np.divide(
            self.weight.ravel()[of] * counted, below, out=np.zeros(below.shape), where=below > 0.0
        )
        mass[below <= 0.0] = 0.0  # undefined
        order = np.lexsort((ratio, end))
        starts = np.cumsum(counts.sum(axis=2).ravel()) - counts.sum(axis=2).ravel()
        total = np.cumsum(mass[order])
        before = np.where(starts > 0, total[starts - 1], 0.0)
        short = (total - before[end] + so_far.ravel()[end] < wanted.ravel()[end]).astype(np.int64)
        at = np.minimum(np.add.reduceat(short, starts) + starts, np.append(starts[1:], len(order)) - 1)
        smallest: Floats = ratio[order][at].reshape(wanted.shape)
        return smallest

    def guessed(self, z: Floats) -> tuple[Floats, Floats]:
        """Return (m, e) approximate quantiles at (e,) normal quantiles, and (m, 1) standard deviations.

        Both are computed from the cumulants of the linearised ratio.
        """
        (hits, of_hits, third), (rest, of_rest, third_rest) = self.hits, self.rest
        below = np.maximum(self.own * hits + rest, 1e-300)
        value = self.weight * hits / below
        by_hits, by_rest = (self.weight - self.own * value) / below, -value / below
        variance = by_hits**2 * of_hits + by_rest**2 * of_rest
        shared = (self.own * by_hits * of_hits + by_rest * of_rest) / below
        skewed = by_hits**3 * third + by_rest**3 * third_rest - 6.0 * variance * shared
        sd = np.sqrt(variance)
        skew = skewed / np.maximum(variance * sd, 1e-300)
        return value - shared + sd * (z + skew * (z**2 - 1.0) / 6.0), sd


def _padded(counts: Sequence[TrimmedPmf]) -> Floats:
    """Return the (m, counts) masses, side by side."""
    masses = np.zeros((len(counts), max(len(each.mass) for each in counts)))
    for row, each in zip(masses, counts, strict=True):
        row[: len(each.mass)] = each.mass
    return masses


def _moments(mass: Floats, offset: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the (m, 1) mean, variance and third central moment of (m, counts) masses."""
    places = np.arange(mass.shape[1], dtype=np.float64)
    mean = (mass * places).sum(axis=1)[:, None]
    apart = places - mean
    weighted = mass * apart * apart
    return mean + offset, weighted.sum(axis=1)[:, None], (weighted * apart).sum(axis=1)[:, None]


def _quantiles(every: _Stacked, tail: float) -> Floats:
    """Return the (m, 2) smallest ratios whose CDF reaches either tail, given that they are defined.

    A bracket around a guess is narrowed until it contains only a few ratios of counts. Then these are sorted.
    """
    tails = np.array([tail, 1.0 - tail])
    guess, sd = every.guessed(scipy.special.ndtri(tails))
    defined = 1.0 - every.undefined
    wanted = tails * defined - RESOLUTION
    bracket = np.full(guess.shape, -1.0), np.ones(guess.shape), 0.0 * wanted, defined + 0.0 * wanted
    for step in range(_MOST_STEPS):
        if step < len(_BESIDE):  # around the guess, then around a line through both ends
            beside = _BESIDE[step] * sd
            tried = np.clip(np.concatenate([guess - beside, guess + beside], axis=1), 0.0, 1.0 - _GAP)
            probability = every.reached(tried)
            for e in (slice(0, 2), slice(2, 4)):
                bracket = _narrowed(*bracket, tried[:, e], probability[:, e], wanted)
        else:
            bracket = _narrowed(*bracket, guess, every.reached(guess), wanted)
        low, high, under, over = bracket
        first, past = every.limits(np.maximum(low, 0.0)), every.limits(np.minimum(high, 1.0 - _GAP))
        first[low < 0.0], past[high == 1.0] = -1.0, np.inf
        np.minimum(past, every.most[:, :, None], out=past)
        if step and (past - first).sum() <= _FEW_CELLS * past.size:
            break
        share = (
            (wanted - under) / np.maximum(over - under, 1e-300) if step % 3 < 2 else np.full(low.shape, 0.5)
        )
        start = np.maximum(low, 0.0)
        guess = np.minimum(start + (high - start) * np.clip(share, 0.02, 0.98), 1.0 - _GAP)
    return every.among(first, past, under, wanted)


def _narrowed(
    low: Floats, high: Floats, under: Floats, over: Floats, tried: Floats, probability: Floats, wanted: Floats
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return a bracket with the CDF at both ends, after trying another value within it."""
    up, down = (probability >= wanted) & (tried < high), (probability < wanted) & (tried > low)
    return (
        np.where(down, tried, low),
        np.where(up, tried, high),
        np.where(down, probability, under),
        np.where(up, probability, over),
    )
