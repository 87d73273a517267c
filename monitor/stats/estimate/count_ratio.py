"""Ratios of two independent counts: the exact distribution of precision, recall, specificity and F1.

For a class with predicted positives and the rest, the true positives TP and the false negatives FN are
Poisson binomials over disjoint rows, so they are independent. Every ratio of a confusion matrix is

    weight·H / (own·H + R + fixed)

| metric | H | R | weight | own | fixed |
|---|---|---|---|---|---|
| accuracy | right answers | 0 | 1 | 0 | rows |
| precision | TP | 0 | 1 | 0 | predicted positives |
| recall | TP | FN | 1 | 1 | 0 |
| specificity | TN | FP | 1 | 1 | 0 |
| F1 | TP | FN | 2 | 1 | predicted positives |

It rises with H for every R, so its CDF costs one look-up in the CDF of H for each count of R. Quantiles need
no sorting of the joint grid: only the cells between two points of a coarse grid.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from math import sqrt

import numpy as np
import scipy

from monitor.base.records import Floats, Ints
from monitor.stats.estimate.poisson_binomial import RESOLUTION, TrimmedPmf, checked_level

MOSTLY_UNDEFINED = 0.5
"""A metric is unknown if labels would leave it undefined with a larger probability."""

_FEW_CELLS = 20_000  # cells in one sort: about a millisecond
_GAP = 1e-11  # less than the distance of two different ratios of counts up to 200,000


@cache
def _grid() -> Floats:
    """Standard errors around the centre. Not at import, as scipy.special loads in a quarter of a second."""
    grid: Floats = scipy.special.ndtri(np.linspace(0.0005, 0.9995, 24))
    return grid


def nothing() -> TrimmedPmf:
    """The distribution of a count that is always 0."""
    return TrimmedPmf(0, np.ones(1), 0)


def mirrored(count: TrimmedPmf) -> TrimmedPmf:
    """The distribution of the number of failures.

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
    """Distribution of ``weight·H / (own·H + R + fixed)`` with independent counts H and R.

    It is exact, up to the trimming of the counts' distributions (1e-15 of mass on each side). `convolve`
    pools independent windows exactly: the ratio of the pooled counts.

    It misleads if rows share an error that the confidences ignore: the true distribution is then wider.

    Parameters
    ----------
    hits, rest : TrimmedPmf
        Distributions of H and R.
    weight, own : int
        1 or 2, and 0 or 1; weight at least own.
    fixed : int
        The certain part of the denominator, 0 or more.
    rows : int
        Rows of the window, for the report.

    Raises
    ------
    ValueError
        A number is out of range, or the ratio could exceed 1.

    Examples
    --------
    >>> from monitor import trimmed_pmf_many
    >>> found, missed = trimmed_pmf_many([[0.9] * 40, [0.1] * 40])
    >>> recall = CountRatio(found, missed, weight=1, own=1, fixed=0, rows=80)
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
        """The ratio of the expected counts, 0 to 1; 0 if the denominator is certainly 0."""
        hits = self.hits.mean
        below = self.own * hits + self.rest.mean + self.fixed
        return min(self.weight * hits / below, 1.0) if below > 0 else 0.0

    @cached_property
    def undefined(self) -> float:
        """Probability that the denominator is 0, so labels would leave the metric undefined."""
        if self.fixed or self.rest.offset or (self.own and self.hits.offset):
            return 0.0
        return min(float(self.rest.mass[0]) * (float(self.hits.mass[0]) if self.own else 1.0), 1.0)

    @cached_property
    def standard_error(self) -> float:
        """Standard deviation of the ratio, to first order; 0 if it is undefined."""
        below = self.own * self.hits.mean + self.rest.mean + self.fixed
        if below <= 0:
            return 0.0
        by_hits, by_rest = (self.weight - self.own * self.value) / below, self.value / below
        return sqrt(by_hits**2 * _variance(self.hits) + by_rest**2 * _variance(self.rest))

    def convolve(self, other: CountRatio) -> CountRatio:
        """The ratio of both windows' counts together, for independent windows.

        Raises a ValueError for another kind of ratio.
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
        """The ratio with more certain hits, over another fixed denominator.

        Examples
        --------
        >>> half = CountRatio(TrimmedPmf(1, np.ones(1), 2), nothing(), weight=1, own=0, fixed=2, rows=2)
        >>> half.value, half.shifted(2, 4).value
        (0.5, 0.75)
        """
        moved = TrimmedPmf(self.hits.offset + hits, self.hits.mass, self.hits.n + hits)
        return CountRatio(moved, self.rest, self.weight, self.own, fixed, self.rows)

    def interval(self, level: float) -> tuple[float, float]:
        """Central quantiles of the ratio, given that it is defined.

        Each is the smallest ratio whose CDF reaches (1 − level)/2 or (1 + level)/2. Counts are discrete, so
        the interval covers at least `level`, and mostly more: see `holds`.

        Raises a ValueError if the level is not between 0 and 1, or the ratio is certainly undefined.
        """
        tail = (1.0 - checked_level(level)) / 2.0
        defined = 1.0 - self.undefined
        if defined < RESOLUTION:
            raise ValueError(
                "the ratio has no interval, as its denominator is certainly 0: check `undefined` first"
            )
        grid = np.clip(self.value + self.standard_error * _grid(), 0.0, 1.0 - _GAP)
        limits = self._limits(grid)
        reached = self._reached(limits)
        low, high = (self._quantile(q * defined, grid, limits, reached) for q in (tail, 1.0 - tail))
        return low, high

    def holds(self, lower: float, upper: float) -> float:
        """Probability that the ratio lies from `lower` to `upper`, both included, given that it is defined.

        It is the interval's coverage if the confidences are calibrated.

        Examples
        --------
        >>> from monitor import trim
        >>> precision = CountRatio(trim([0.0, 0.5, 0.5]), nothing(), weight=1, own=0, fixed=2, rows=2)
        >>> precision.holds(0.5, 0.5), precision.holds(0.0, 1.0)
        (0.5, 1.0)
        """
        ends = np.array([lower - _GAP, upper + _GAP])
        reached = self._reached(self._limits(np.clip(ends, -1.0, 1.0 - _GAP)))
        reached[ends > 1.0] = 1.0 - self.undefined
        reached[ends < 0.0] = 0.0
        return float((reached[1] - reached[0]) / (1.0 - self.undefined))

    def _limits(self, ratios: Floats) -> Ints:
        """(ratios, counts of R) index of the largest H that keeps the ratio at or below; −1 for none."""
        below = self.fixed + self.rest.offset + np.arange(len(self.rest.mass))
        most = np.floor(np.multiply.outer(ratios / (self.weight - self.own * ratios), below))
        limits: Ints = np.clip(most - self.hits.offset, -1, len(self.hits.mass) - 1).astype(np.int64)
        return limits

    @cached_property
    def _steps(self) -> Floats:
        """CDF of H with a 0 before it."""
        return np.concatenate([[0.0], np.cumsum(self.hits.mass)])

    def _reached(self, limits: Ints) -> Floats:
        """Probability of being defined and at or below each ratio."""
        reached: Floats = np.einsum("rb,b->r", self._steps[limits + 1], self.rest.mass) - self.undefined
        return reached

    def _quantile(self, mass: float, grid: Floats, limits: Ints, reached: Floats) -> float:
        """The smallest ratio at which the defined mass reaches `mass`, between two grid points."""
        at = int(np.searchsorted(reached, mass - RESOLUTION))
        low, first, so_far = 0.0, np.full(limits.shape[1], -1), 0.0
        high, past = 1.0, np.full(limits.shape[1], len(self.hits.mass) - 1)
        if at:
            low, first, so_far = float(grid[at - 1]), limits[at - 1], float(reached[at - 1])
        if at < len(grid):
            high, past = float(grid[at]), limits[at]
        while int((past - first).sum()) > _FEW_CELLS and high - low > _GAP:
            middle = (low + high) / 2
            between = self._limits(np.array([middle]))
            mass_between = float(self._reached(between)[0])
            if mass_between < mass - RESOLUTION:
                low, first, so_far = middle, between[0], mass_between
            else:
                high, past = middle, between[0]
        return self._among(first, past, so_far, mass)

    def _ratio(self, hits: Ints, rest: Ints) -> Floats:
        """Ratios of cells, by their indices; NaN for an undefined one."""
        counted = hits + self.hits.offset
        below = self.own * counted + rest + (self.rest.offset + self.fixed)
        with np.errstate(invalid="ignore"):
            ratio: Floats = self.weight * counted / below
        return ratio

    def _among(self, first: Ints, past: Ints, so_far: float, mass: float) -> float:
        """The quantile among the cells after `first` up to `past` of each count of R."""
        counts = past - first
        rest = np.repeat(np.arange(len(counts)), counts)
        hits = np.arange(len(rest)) - np.repeat(np.cumsum(counts) - counts, counts) + first[rest] + 1
        ratio = self._ratio(hits, rest)
        weight = self.hits.mass[hits] * self.rest.mass[rest]
        known = ~np.isnan(ratio)
        ratio, weight = ratio[known], weight[known]
        order = np.argsort(ratio, kind="stable")
        total = np.cumsum(weight[order]) + so_far
        place = min(int(np.searchsorted(total, mass - RESOLUTION)), len(order) - 1)
        return float(ratio[order[place]])
