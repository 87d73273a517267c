"""Penalised least squares with one function of each column: piecewise linear, or a step for each category."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from monitor.base.records import Floats
from monitor.stats.features.ratio import FeatureBins

_KNOTS = (0.0, 0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98, 1.0)  # quantiles
_HEIGHT = 1e-3  # penalties, in residual variances
_BEND = 0.05  # the slope changes by one residual sd within this share of the range
_REACH = 1000.0  # gaps between knots: a range that is longer, because of outliers, counts as this long
_LARGEST = 1e100  # values beyond it count as it
_FARTHEST = 1e6  # outer gaps: the last slope goes on no farther
_FOLDS = 5
_FEWEST_OUTER = 5  # rows beyond the fence that make it wider


@dataclass(frozen=True, slots=True, eq=False)
class ColumnBasis:
    """The functions of one column: one for each category of a text, or piecewise linear ones of a number.

    A number has knots at its least and largest value in the reference, and at quantiles. A parameter is the
    height at a knot. Beyond the outer knots, the function goes on with its last slope.

    Values beyond `low` and `high` count as these limits, in the reference and in a window, because a few
    outliers do not show the function's height there. Each limit is twice as far from the median as the 2 %
    or 98 % quantile. If at least five values of the reference are beyond it, the limit is the fifth most
    extreme value.

    Parameters
    ----------
    bins : FeatureBins
    knots : (K,) float64
        Empty for a text.
    low, high : float
        The smallest and the largest value of a number that is not clipped.
    """

    bins: FeatureBins
    knots: Floats
    low: float = -_LARGEST
    high: float = _LARGEST

    @classmethod
    def from_values(cls, bins: FeatureBins, values: Floats) -> ColumnBasis:
        """Return the basis of a column with these values in the reference."""
        if bins.kind == "text":
            return cls(bins, np.empty(0))
        ordered = np.sort(np.clip(values, -_LARGEST, _LARGEST))
        knots = np.quantile(ordered, _KNOTS, method="inverted_cdf")
        outer, median = min(_FEWEST_OUTER, len(ordered)), knots[len(knots) // 2]
        low = float(min(2.0 * knots[1] - median, ordered[outer - 1]))
        high = float(max(2.0 * knots[-2] - median, ordered[-outer]))
        return cls(bins, np.unique(np.clip(knots, low, high)), low, high)

    @property
    def size(self) -> int:
        """The number of parameters of the column in the fit."""
        return self.bins.size if self.bins.kind == "text" else len(self.knots)

    def design(self, values: Floats) -> Floats:
        """Return the value of each function at these values of the column, (n, size)."""
        rows, design = np.arange(len(values)), np.zeros((len(values), self.size))
        if self.bins.kind == "text":
            design[rows, self.bins.parameters(values)] = 1.0
        elif self.size > 1:
            values = np.clip(values, self.low, self.high)
            left = np.clip(self.knots.searchsorted(values, side="right") - 1, 0, self.size - 2)
            with np.errstate(over="ignore"):
                share = (values - self.knots[left]) / (self.knots[left + 1] - self.knots[left])
            share = np.clip(share, -_FARTHEST, _FARTHEST)
            design[rows, left], design[rows, left + 1] = 1.0 - share, share
        return design

    def penalty(self) -> Floats:
        """Return the (size, size) penalty of a text's heights, or of the changes of a number's slope."""
        if self.bins.kind == "text":
            return self.bins.prior()
        penalty = _HEIGHT * np.eye(self.size)
        if self.size > 2:
            steps, gaps = np.diff(np.eye(self.size), axis=0), np.diff(self.knots)
            reach = np.minimum(self.knots[-1] - self.knots[0], _REACH * np.minimum(gaps[:-1], gaps[1:]))
            after, before = (reach / gaps[1:])[:, None] * steps[1:], (reach / gaps[:-1])[:, None] * steps[:-1]
            bends = _BEND * (after - before)
            penalty += bends.T @ bends
        return penalty


@dataclass(frozen=True, slots=True, eq=False)
class AdditiveFit:
    """A penalised least-squares fit with an intercept and functions of each column, for one set of rows.

    Parameters
    ----------
    bases : tuple of ColumnBasis
    rows : (N, 1 + P) float64
        For each row of the fit: 1 for the intercept, and the values of the functions.
    penalty : (1 + P, 1 + P) float64
    """

    bases: tuple[ColumnBasis, ...]
    rows: Floats
    penalty: Floats

    @classmethod
    def from_rows(cls, bases: tuple[ColumnBasis, ...], columns: Floats) -> AdditiveFit:
        """Return the object that fits outcomes of the rows with these columns, (N, C)."""
        penalty = scipy.linalg.block_diag(np.zeros((1, 1)), *[basis.penalty() for basis in bases])
        return cls(bases, _functions(bases, columns), penalty)

    def design(self, columns: Floats) -> Floats:
        """Return the design matrix of other rows with these columns (n, C): (n, 1 + P), like `rows`."""
        return _functions(self.bases, columns)

    def fit(self, outcomes: Floats) -> tuple[Floats, Floats]:
        """Fit L outcomes (L, N); return their parameters (L, 1 + P) and cross-fitted values (L, N)."""
        folds = [self.rows[k::_FOLDS] for k in range(_FOLDS)]
        matrices = [fold.T @ fold for fold in folds]
        sides = [fold.T @ outcomes[:, k::_FOLDS].T for k, fold in enumerate(folds)]
        matrix, side, values = self.penalty + sum(matrices), sum(sides), np.empty_like(outcomes)
        for k, fold in enumerate(folds):
            without = scipy.linalg.solve(matrix - matrices[k], side - sides[k], assume_a="pos")
            values[:, k::_FOLDS] = (fold @ without).T
        return scipy.linalg.solve(matrix, side, assume_a="pos").T, values

    def leverage(self, functions: Floats) -> Floats:
        """Return the covariances of fitted values, (L, L), as multiples of the residual variance.

        `functions` has L rows with the same columns as `rows`. The covariance for its rows f and g is
        fᵀ A⁻¹ g, where A is XᵀX plus the penalty, and X is `rows`.
        """
        inverse = scipy.linalg.solve(self.rows.T @ self.rows + self.penalty, functions.T, assume_a="pos")
        leverage: Floats = functions @ inverse
        return leverage


def _functions(bases: Sequence[ColumnBasis], columns: Floats) -> Floats:
    ones = np.ones((len(columns), 1))
    return np.hstack([ones, *[basis.design(columns[:, k]) for k, basis in enumerate(bases)]])
