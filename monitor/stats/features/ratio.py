"""The ratio of the densities of features in a window and in the reference.

A classifier predicts whether a row belongs to the N rows of the reference or to the n rows of the window. A
row that belongs to the window with probability p has the ratio (N/n) · p / (1 − p). The classifier is a
logistic regression with a parameter for each bin of a number (20 quantiles, and finer tails) and for each
category, fitted by Newton's method. A normal prior keeps the parameters of neighbouring bins close to each
other, and the parameters of categories close to 0. So with few rows, or without a shift, the ratio stays near
1.

A model that is additive in the features misses joint shifts of two features: a change of their correlation,
or a shift within one segment. So for each pair, a test compares the window's counts in a table of coarse bins
with those of the weighted reference. The pairs that differ most (at most `_MOST_PAIRS`) get additional
parameters, and the regression is fitted again.

References
----------
J. Qin, *Inferences for case-control and semiparametric two-sample density ratio models*, Biometrika 85
(1998). E. A. Stuart, *Matching methods for causal inference: a review and a look forward*, Statistical
Science 25 (2010), section 4.1, for the bound on standardised differences.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from monitor.base.records import FeatureKind, Floats, Ints
from monitor.stats.features.tables import BEYOND

FEWEST_EFFECTIVE = 100.0
"""The smallest effective size of the weighted reference."""

MOST_APART = 0.25
"""The largest allowed standardised difference between the means of a number in the window and in the weighted
reference. Three standard errors of the window's mean are always allowed. The value is the usual one for
balance in propensity-score matching. With a larger difference, the weighted reference does not resemble the
window, even if its effective size is large."""

CROWDED = 3.0
"""A bin or category is crowded if it is more than this many times as frequent in the window."""

_MOST_LEVELS = 40  # categories of a text with a parameter; rarer ones share one
_QUANTILES = np.concatenate([[0.01, 0.03], np.arange(1, 20) / 20, [0.97, 0.99]])
_FEWEST_OUTER = 5  # the rank of the extreme value that shows the spread of a short reference
_OUTER = 1000  # of a long one: 1 in so many values is more extreme
_COARSE = 4  # bins of a number in a pair
_COARSE_LEVELS = 6
_CATEGORY = 1.0  # precisions of the prior, in 1 / nats²
_STEP = 9.0
_LEVEL = 0.3
_PAIR = 3.0
_MOST_PAIRS = 4
_PAIR_SURE = 4.0  # standard errors
_EVEN = 3.0  # standard errors: smaller moves leave a pair to both features
_FITTED_ROWS = 5000  # reference rows in the regression: more add little beside a window of some hundred rows
_NEWTON_STEPS = 30
_LEAST_STEP = 1e-4  # share of Newton's step
_LARGEST_LOG = 500.0  # its exponential is finite
_CLOSE = 1e-4  # predicted gain of a step in nats; Newton's next step would gain about its square


@dataclass(frozen=True, slots=True, eq=False)
class FeatureBins:
    """The bins or categories of one feature. Each has a parameter in the regression.

    Parameters
    ----------
    kind : {"number", "text"}
    values : float64 array
        The edges between the bins of a number, or the categories of a text, in ascending order.
    column : int64 array
        The index of the parameter of each bin or category.
    coarse : int64 array
        The coarse bin of each parameter.
    low, high : float
        The range of a number without its outliers. Values outside of the range are beyond the reference,
        except those of the outliers themselves.
    outliers : tuple of float
        The reference's values outside of the range.
    """

    kind: FeatureKind
    values: Floats
    column: Ints
    coarse: Ints
    low: float = -np.inf
    high: float = np.inf
    outliers: tuple[float, ...] = ()

    @classmethod
    def from_values(cls, kind: FeatureKind, values: Floats) -> FeatureBins:
        """Return the bins of a feature that has these finite values in the reference."""
        return cls._from_numbers(values) if kind == "number" else cls._from_texts(values)

    @classmethod
    def _from_numbers(cls, values: Floats) -> FeatureBins:
        edges = np.unique(np.quantile(values, _QUANTILES, method="inverted_cdf"))
        count = np.bincount(edges.searchsorted(values), minlength=len(edges) + 1)
        before = (count.cumsum() - count / 2) / len(values)
        low, high = _ends(values)
        beyond = BEYOND * (high - low)
        low, high = low - beyond, high + beyond
        coarse = np.minimum((_COARSE * before).astype(np.int64), _COARSE - 1)
        outliers = tuple(np.unique(values[(values < low) | (values > high)]).tolist())
        return cls("number", edges, np.arange(len(count)), coarse, low, high, outliers)

    @classmethod
    def _from_texts(cls, values: Floats) -> FeatureBins:
        levels, count = np.unique(values, return_counts=True)
        rank = np.empty(len(levels), dtype=np.int64)
        rank[np.argsort(-count, kind="stable")] = np.arange(len(levels))
        column = np.minimum(rank, _MOST_LEVELS - 1)
        coarse = np.minimum(np.arange(min(len(levels), _MOST_LEVELS)), _COARSE_LEVELS - 1)
        return cls("text", levels, column, coarse)

    @property
    def size(self) -> int:
        """The number of parameters of the feature in the regression."""
        return len(self.coarse)

    def unseen(self, values: Floats) -> NDArray[np.bool_]:
        """Return a mask of the (n,) finite values that are out of range, or a new category."""
        outside: NDArray[np.bool_]
        if self.kind == "number":
            outside = (values < self.low) | (values > self.high)
            if self.outliers:
                outside &= ~np.isin(values, self.outliers)
        else:
            place = np.minimum(self.values.searchsorted(values), len(self.values) - 1)
            outside = self.values[place] != values
        return outside

    def parameters(self, values: Floats) -> Ints:
        """Return the index of the parameter of each value, (n,)."""
        columns: Ints = self.column[self.values.searchsorted(values)]
        return columns

    def prior(self) -> Floats:
        """Return the (size, size) prior precision of the parameters."""
        if self.kind == "text":
            return _CATEGORY * np.eye(self.size)
        step = np.diff(np.eye(self.size), axis=0)
        precision: Floats = _STEP * (step.T @ step) + _LEVEL * np.eye(self.size)
        return precision


class ParameterGroup(NamedTuple):
    """The parameters of one feature, or of a pair of features, in the regression.

    Parameters
    ----------
    features : tuple of int
        The indices of the one or two features.
    place : (rows,) int64
        The index of the parameter of each row, within this group.
    size : int
        The number of parameters.
    prior : (size, size) float64
        The prior precision matrix of the parameters.
    """

    features: tuple[int, ...]
    place: Ints
    size: int
    prior: Floats

    def select(self, rows: Ints) -> ParameterGroup:
        """Return the group restricted to the rows with these indices."""
        return self._replace(place=self.place[rows])


@dataclass(frozen=True, slots=True, eq=False)
class Ratio:
    """The density of the features in a window over their density in the reference, at N reference rows.

    Parameters
    ----------
    blocks : tuple of ParameterGroup
        The groups of parameters of features and pairs; their rows are those of the reference.
    at : (1 + P,) float64
        The intercept, and the parameters of all blocks in order.
    curvature : (1 + P, 1 + P) float64
        Upper triangle of the second derivatives of the negative log-posterior density. The inverse of the
        full matrix is the covariance of `at`.
    weights : (N,) float64
        The ratio at each row, truncated at √N and scaled to the mean 1.
    apart : float
        The largest difference between a number's means in the window and in the weighted reference, in
        standard deviations, pooled over window and unweighted reference. Outliers of the reference count as
        the end of the range.
    rows : int
        The number of the window's rows in the fit.
    moved : (F,) float64
        For each feature alone, the χ² distance between its distributions in the window and in the reference,
        in standard errors of chance, at least 0.
    """

    blocks: tuple[ParameterGroup, ...]
    at: Floats
    curvature: Floats
    weights: Floats
    apart: float
    rows: int
    moved: Floats

    def share(self, feature: int, block: ParameterGroup) -> float:
        """Return the part of a group's log-ratio, 0 to 1, that is attributed to one of its features.

        A pair is divided between its features in proportion to how far the distribution of each moved
        (`moved`). If neither moved, each has one half.
        """
        if len(block.features) == 1:
            return 1.0
        known = sum(self.moved[j] + _EVEN for j in block.features)
        return float((self.moved[feature] + _EVEN) / known)

    @property
    def effective(self) -> float:
        """The effective size of the weighted reference: Kish's number of equally weighted rows."""
        return float(self.weights.sum() ** 2 / (self.weights @ self.weights))

    @property
    def overlaps(self) -> bool:
        """True if the weighted reference resembles the window, so that the ratio can be used."""
        return self.apart <= max(MOST_APART, 3 / math.sqrt(self.rows)) and self.effective >= FEWEST_EFFECTIVE


@dataclass(frozen=True, slots=True, eq=False)
class RatioReference:
    """The features of a reference; `fit` estimates the density ratio of each window to it.

    Parameters
    ----------
    bins : tuple of FeatureBins
    values : (F, N) float64
    places : (F, N) int64
        The index of the parameter of each value.
    """

    bins: tuple[FeatureBins, ...]
    values: Floats
    places: Ints

    @classmethod
    def from_rows(cls, features: Floats, kinds: Sequence[FeatureKind]) -> RatioReference:
        """Return the reference with these rows. Every row must have all features.

        Parameters
        ----------
        features : (N, F) float64
            Finite numbers. A text is encoded as a number, and equal texts have equal numbers.
        kinds : sequence of {"number", "text"}
        """
        values = np.ascontiguousarray(features.T)
        every = tuple(FeatureBins.from_values(kind, each) for kind, each in zip(kinds, values, strict=True))
        places = np.stack([bins.parameters(each) for bins, each in zip(every, values, strict=True)])
        return cls(every, values, places)

    def unseen(self, features: Floats) -> NDArray[np.bool_]:
        """Return a mask (n, F) of the finite values that are out of range, or a new category."""
        beyond = np.zeros(features.shape, dtype=np.bool_)
        for k, bins in enumerate(self.bins):
            there = np.isfinite(features[:, k])
            beyond[there, k] = bins.unseen(features[there, k])
        return beyond

    def crowded(self, features: Floats) -> tuple[Floats, Floats]:
        """Return how many times more frequent each value is in a window than in the reference.

        The first array is for the values of the reference, and the second for the values of the window. An
        entry is the frequency of the value's bin or category in the window, divided by its frequency in the
        reference. It is 0 if this quotient is at most `CROWDED`, or if the value is missing or beyond the
        reference.
        """
        before, now = np.zeros(self.values.T.shape), np.zeros(features.shape)
        unseen = self.unseen(features)
        for k, bins in enumerate(self.bins):
            there = np.flatnonzero(np.isfinite(features[:, k]) & ~unseen[:, k])
            place = bins.parameters(features[there, k])
            expected = np.bincount(self.places[k], minlength=bins.size) / len(before)
            times = (
                np.bincount(place, minlength=bins.size) / max(len(there), 1) / np.maximum(expected, 1e-300)
            )
            times[times <= CROWDED] = 0.0
            before[:, k], now[there, k] = times[self.places[k]], times[place]
        return before, now

    def fit(self, features: Floats) -> Ratio:
        """Return the density of the features in a window over their density in the reference.

        Parameters
        ----------
        features : (n, F) float64
            The rows of the window, at least one. All values are finite and within the reference's range.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> reference = RatioReference.from_rows(rng.integers(0, 2, (4000, 1)) * 1.0, ["text"])
        >>> ratio = reference.fit((rng.random((1000, 1)) < 0.8) * 1.0)  # 0 in a fifth of the rows, not a half
        >>> round(float(ratio.weights[reference.values[0] == 0].max()), 1), ratio.overlaps
        (0.4, True)
        """
        old, n = len(self.values[0]), len(features)
        own = [bins.parameters(features[:, k]) for k, bins in enumerate(self.bins)]
        places = [np.concatenate(each) for each in zip(self.places, own, strict=True)]
        blocks = [
            ParameterGroup((k,), place, bins.size, bins.prior())
            for k, (place, bins) in enumerate(zip(places, self.bins, strict=True))
        ]
        rows = np.append(evenly(old, _FITTED_ROWS), np.arange(old, old + n))
        at, curvature = _Regression([block.select(rows) for block in blocks], n).fit()
        weights = _as_weights(_line(blocks, at)[:old])
        pairs = self._pairs(places, weights, n)
        if pairs:
            blocks += pairs
            at, curvature = _Regression([block.select(rows) for block in blocks], n).fit(at)
            weights = _as_weights(_line(blocks, at)[:old])
        kept = tuple(block.select(np.arange(old)) for block in blocks)
        return Ratio(kept, at, curvature, weights, self._apart(features, weights), n, self._moved(places, n))

    def _moved(self, places: Sequence[Ints], n: int) -> Floats:
        ones = np.ones(len(self.values[0]))
        moved = [
            _difference(place, bins.size, ones, n, bins.size - 1)
            for place, bins in zip(places, self.bins, strict=True)
        ]
        return np.maximum(moved, 0.0)

    def _apart(self, features: Floats, weights: Floats) -> float:
        largest = 0.0
        for k, bins in enumerate(self.bins):
            # One outlier of the reference would make any other difference small.
            before, now = (np.clip(each, bins.low, bins.high) for each in (self.values[k], features[:, k]))
            spread = math.sqrt((float(now.var()) + float(before.var())) / 2)
            if bins.kind == "number" and spread > 0:
                away = float(now.mean()) - float(before @ weights) / len(weights)
                largest = max(largest, abs(away) / spread)
        return largest

    def _pairs(self, places: Sequence[Ints], weights: Floats, n: int) -> list[ParameterGroup]:
        """Return blocks for the pairs of features that differ most between window and weighted reference."""
        coarse = [bins.coarse[place] for bins, place in zip(self.bins, places, strict=True)]
        many = [int(bins.coarse.max()) + 1 for bins in self.bins]
        different = []
        for a, b in combinations(range(len(coarse)), 2):
            size = many[a] * many[b]
            place = coarse[a] * many[b] + coarse[b]
            sure = _difference(place, size, weights, n, (many[a] - 1) * (many[b] - 1))
            if sure > _PAIR_SURE:
                different.append((sure, ParameterGroup((a, b), place, size, _PAIR * np.eye(size))))
        different.sort(key=lambda each: -each[0])
        return [block for _, block in different[:_MOST_PAIRS]]


def _as_weights(ratio: Floats) -> Floats:
    """Return weights with mean 1 from logarithms of the ratio, truncated at √N before the last division."""
    weights = np.exp(ratio - ratio.max())
    weights /= weights.mean()
    weights = np.minimum(weights, np.sqrt(len(weights)))
    normalised: Floats = weights / weights.mean()
    return normalised


def evenly(n: int, most: int) -> Ints:
    """Return the indices of `most` evenly spaced rows among n rows, or of all rows if n is smaller."""
    many = min(n, most)
    rows: Ints = np.arange(many) * n // many
    return rows


def _ends(values: Floats) -> tuple[float, float]:
    """Return the least and the largest of these values, (N,), N at least 1, without outliers.

    An outlier is more than twice as far from the median as the fifth most extreme value of its side, or as
    the 0.1 % or 99.9 % quantile if N is above 5,000. If the fifth is the median itself, no value is an
    outlier, because nothing shows the spread: these may be rare values of an indicator.
    """
    ordered = np.sort(values).tolist()
    median = ordered[len(ordered) // 2]
    outer = min(max(_FEWEST_OUTER, len(ordered) // _OUTER), len(ordered))
    low, high = ordered[outer - 1], ordered[-outer]
    least = max(2.0 * low - median, ordered[0]) if low < median else ordered[0]
    largest = min(2.0 * high - median, ordered[-1]) if high > median else ordered[-1]
    return least, largest


def _line(blocks: Sequence[ParameterGroup], at: Floats) -> Floats:
    """Return each row's log-odds of belonging to the window: the intercept plus a parameter of each block."""
    log_odds = np.full(len(blocks[0].place), at[0])
    first = 1
    for block in blocks:
        log_odds += at[first : first + block.size][block.place]
        first += block.size
    return log_odds


class _Regression:
    """A logistic regression of membership in the window on one parameter of each block, with a normal prior.

    The last n rows belong to the window. Parameter 0 is the intercept, which has no prior.
    """

    def __init__(self, blocks: Sequence[ParameterGroup], n: int) -> None:
        edges = np.cumsum([1, *(block.size for block in blocks)]).tolist()
        self._blocks, self._n, self._rows = blocks, n, len(blocks[0].place)
        self._own = [slice(first, past) for first, past in pairwise(edges)]
        self._prior = np.zeros((edges[-1], edges[-1]))
        for block, own in zip(blocks, self._own, strict=True):
            self._prior[own, own] = block.prior
        self._tables = [
            (a, b, blocks[a].place * blocks[b].size + blocks[b].place)
            for a, b in combinations(range(len(blocks)), 2)
        ]

    def fit(self, start: Floats | None = None) -> tuple[Floats, Floats]:
        """Return the parameters with the largest posterior density, and the second derivatives near them.

        Newton's method halves each step until the objective decreases. `start` has values of the first
        parameters.
        """
        at = np.zeros(len(self._prior))
        if start is None:
            at[0] = np.log(self._n / (self._rows - self._n))
        else:
            at[: len(start)] = start
        value, odds = self._objective(at)
        curvature = self._prior
        for _ in range(_NEWTON_STEPS):
            gradient, curvature = self._slopes(at, odds)
            step = scipy.linalg.solve(curvature, gradient, assume_a="pos", lower=False, check_finite=False)
            share = 1.0
            while (tried := self._objective(at - share * step))[0] > value and share > _LEAST_STEP:
                share /= 2
            if tried[0] > value:
                break
            at = at - share * step
            value, odds = tried
            if float(gradient @ step) < _CLOSE:
                break
        return at, curvature

    def _objective(self, at: Floats) -> tuple[float, Floats]:
        """Return the negative log-posterior density in nats, and the (rows,) odds."""
        line = _line(self._blocks, at)
        odds = np.exp(np.minimum(line, _LARGEST_LOG))
        value = np.log1p(odds).sum() - line[-self._n :].sum() + at @ self._prior @ at / 2
        return float(value), odds

    def _slopes(self, at: Floats, odds: Floats) -> tuple[Floats, Floats]:
        """Return the gradient, and the upper triangle of the second derivatives."""
        residual = odds / (1.0 + odds)
        spread = residual * (1.0 - residual)
        residual[-self._n :] -= 1.0
        gradient, curvature = self._prior @ at, self._prior.copy()
        gradient[0] += residual.sum()
        curvature[0, 0] += spread.sum()
        for block, own in zip(self._blocks, self._own, strict=True):
            gradient[own] += np.bincount(block.place, residual, block.size)
            held = np.bincount(block.place, spread, block.size)
            curvature[own, own] += np.diag(held)
            curvature[0, own] += held
        for a, b, place in self._tables:
            shape = self._blocks[a].size, self._blocks[b].size
            table = np.bincount(place, spread, shape[0] * shape[1]).reshape(shape)
            curvature[self._own[a], self._own[b]] += table
        return gradient, curvature


def _difference(place: Ints, size: int, weights: Floats, n: int, free: int) -> float:
    """Return the distance between the tables of window and weighted reference, in standard errors of chance.

    The χ² distance of the tables has `free` degrees of freedom.
    """
    old, new = place[:-n], place[-n:]
    total = float(weights.sum())
    expected = n * np.bincount(old, weights, size) / total
    error = expected + n**2 * np.bincount(old, weights * weights, size) / total**2
    apart = np.bincount(new, minlength=size) - expected
    held = error > 0
    away = float((apart[held] ** 2 / np.maximum(error[held], 1.0)).sum())
    return (away - free) / math.sqrt(2.0 * max(free, 1))
