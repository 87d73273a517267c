"""Isotonic calibration: the least-squares non-decreasing curve from raw score to observed frequency."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from monitor.base.records import Floats, Ints
from monitor.stats.calibration.base import Calibration, Calibrator, check_fit_input, check_weights
from monitor.stats.calibration.order import refuse_reversed_ranks
from monitor.stats.calibration.rows import (
    apply_by_column,
    column_problems,
    fit_rows,
    fitted_columns,
    refuse_one_outcome,
)

_FEW = 8
"""The number of blocks for each merge above which a loop over the blocks is faster than a vectorised pass."""


def pool_adjacent_violators(y: Floats, weight: Floats, group: Ints | None = None) -> tuple[Ints, Floats]:
    """Return the non-decreasing sequence that is nearest to `y` by weighted least squares.

    Parameters
    ----------
    y, weight : (n,) float64
        Weights are above 0.
    group : (n,) int64, optional
        A group number for each entry, non-decreasing. Each group has a separate fit.

    Returns
    -------
    (blocks,) int64, (blocks,) float64
        The start index and the value of each block of equal values. From block to block within a group,
        values rise strictly.

    References
    ----------
    R. E. Barlow, D. J. Bartholomew, J. M. Bremner, H. D. Brunk, *Statistical Inference under Order
    Restrictions* (1972), section 1.2.

    Examples
    --------
    >>> pool_adjacent_violators(np.array([1.0, 3.0, 2.0, 4.0]), np.ones(4))
    (array([0, 1, 3]), array([1. , 2.5, 4. ]))
    """
    starts, total = np.arange(len(y)), y * weight
    sums, rows = total, weight
    while True:
        blocks = len(starts)
        while not (rising := _rising(sums, rows, starts, group)).all():
            few = group is None and _FEW * np.count_nonzero(~rising) < len(rising)
            kept = np.array(_pooled(sums, rows)) if few else _firsts(rising)
            starts, sums, rows = starts[kept], np.add.reduceat(sums, kept), np.add.reduceat(rows, kept)
        if len(starts) == blocks:
            return starts, sums / rows
        # Sums of sums are fast. Sums of the rows do not depend on the order of the merges in their rounding.
        sums, rows = np.add.reduceat(total, starts), np.add.reduceat(weight, starts)


def _firsts(rising: NDArray[np.bool_]) -> Ints:
    """Return the blocks that begin a merged block: the first, and each that lies above the one before."""
    places = rising.nonzero()[0]
    firsts = np.zeros(len(places) + 1, dtype=np.int64)
    np.add(places, 1, out=firsts[1:])
    return firsts


def _rising(sums: Floats, rows: Floats, starts: Ints, group: Ints | None) -> np.ndarray:
    """Return whether each block has a larger mean than the block before, or another group."""
    # Products instead of quotients: with integer sums, blocks of equal means merge exactly.
    rises: np.ndarray = sums[:-1] * rows[1:] < sums[1:] * rows[:-1]
    if group is not None:
        rises |= group[starts[1:]] != group[starts[:-1]]
    return rises


def _pooled(sums: Floats, rows: Floats) -> list[int]:
    """Return the starts of the solution's blocks, by one loop, for sequences in which few blocks merge."""
    kept: list[tuple[float, float, int]] = []
    before, more, first = -math.inf, 1.0, -1  # the newest block; the initial one merges with no other
    for place, (total, weight) in enumerate(zip(sums.tolist(), rows.tolist(), strict=True)):
        start = place
        while before * weight >= total * more:
            total, weight, start = total + before, weight + more, first
            before, more, first = kept.pop()
        kept.append((before, more, first))
        before, more, first = total, weight, start
    return [*(start for _, _, start in kept[1:]), first]


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """A piecewise linear, non-decreasing curve that is constant beyond its ends.

    The points have strictly rising coordinates `x` and non-decreasing coordinates `y`.
    """

    x: Floats
    y: Floats

    def __call__(self, score: Floats) -> Floats:
        """Return the curve's value at each score."""
        values: Floats = np.interp(score, self.x, self.y)
        return values


def fit_curve(score: Floats, success: Floats, weights: Floats | None = None) -> Curve:
    """Return the isotonic (non-decreasing) curve from score to frequency of success.

    Equal scores are averaged first, so the order of rows does not matter. A block is a range of scores with
    equal fitted values. The curve is flat over a block, and linear from the last score of a block to the
    first score of the next. Therefore, on the fitted rows, the mean of the curve equals the observed
    frequency. The mean confidence needs this property. Interpolation between the centres of blocks would not
    have it.

    Parameters
    ----------
    score : (n,) float64
        n at least 1.
    success : (n,) float64
        0 or 1, or the probability of 1.
    weights : (n,) float64, optional
        Above 0; all 1 by default.

    Examples
    --------
    >>> curve = fit_curve(np.array([0.1, 0.2, 0.6, 0.9]), np.array([0.0, 1.0, 0.0, 1.0]))
    >>> curve.x.tolist(), curve.y.tolist()
    ([0.1, 0.2, 0.6, 0.9], [0.0, 0.5, 0.5, 1.0])
    """
    distinct, inverse = np.unique(score, return_inverse=True)
    return fit_ranked_curve(distinct, inverse, success, np.ones(len(score)) if weights is None else weights)


def fit_ranked_curve(distinct: Floats, place: Ints, success: Floats, weights: Floats) -> Curve:
    """Return the curve of `fit_curve` for rows whose scores are already sorted into distinct values.

    Row i has the score `distinct[place[i]]`. Rows of weight 0 are ignored.
    """
    weight = np.bincount(place, weights=weights, minlength=len(distinct)).astype(np.float64)
    hits = np.bincount(place, weights=success * weights, minlength=len(distinct))
    present = weight > 0
    if not present.all():
        distinct, weight, hits = distinct[present], weight[present], hits[present]
    starts, values = pool_adjacent_violators(hits / weight, weight)
    knots = np.empty((len(starts), 2), dtype=np.int64)
    knots[:, 0], knots[:-1, 1], knots[-1, 1] = starts, starts[1:] - 1, len(distinct) - 1
    first = np.ones(knots.shape, dtype=np.bool_)
    first[:, 1] = knots[:, 1] > starts  # a block of one score has one knot, its start
    y = np.minimum(np.maximum(values, 0.0), 1.0)
    return Curve(distinct[knots[first]], y.repeat(2)[first.ravel()])


@dataclass(frozen=True, slots=True, eq=False)
class IsotonicCalibration(Calibration):
    """A fitted isotonic calibration: one rising curve, or one for each class if there are three or more.

    Parameters
    ----------
    width : int
        Number of columns of the scores.
    curves : tuple of Curve
        Width 1: the curve of the confidence. Width 2: the curve of the second class. Width 3 or more: a curve
        for each class, in order.

    Examples
    --------
    >>> curve = Curve(np.array([0.0, 1.0]), np.array([0.2, 0.8]))
    >>> IsotonicCalibration(2, (curve,)).apply(np.array([[0.5, 0.5], [1.0, 0.0]])).tolist()
    [[0.5, 0.5], [0.8, 0.2]]
    """

    width: int
    curves: tuple[Curve, ...]
    method: ClassVar[str] = "isotonic"

    def apply(self, scores: Floats) -> Floats:
        """Apply the curves, and divide rows of three or more classes by their sums."""
        self._check_width(scores)
        return apply_by_column(self.curves, scores)


@dataclass(frozen=True, slots=True)
class IsotonicCalibrator(Calibrator):
    """The settings of isotonic calibration: isotonic regression of the outcome on the raw score.

    For two classes, the curve predicts the second class. For a confidence, it predicts whether the prediction
    is right (label 0). For more classes, each class is fitted against the rest, and each row is divided by
    its sum. A row of zeros becomes uniform. A class without labels gets the probability 0. Scores beyond the
    range of the reference get the value at the end of the range.

    The only assumption is that a higher score does not mean a smaller probability. The map misleads on small
    references: below about 1,000 rows the ends of the curve depend on a few rows and may be exactly 0 or 1.
    With more than two classes, the division by sums loses the exact match of means.

    References
    ----------
    B. Zadrozny, C. Elkan, *Transforming classifier scores into accurate multiclass probability
    estimates*, KDD 2002, sections 3 and 4.

    Examples
    --------
    >>> scores = np.array([[0.9, 0.1], [0.6, 0.4], [0.4, 0.6], [0.2, 0.8]])
    >>> fitted = IsotonicCalibrator().fit(scores, np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]))
    >>> fitted.apply(scores)[:, 1].tolist()
    [0.0, 0.5, 0.5, 1.0]
    """

    method: ClassVar[str] = "isotonic"
    calibration: ClassVar[type[Calibration]] = IsotonicCalibration

    def fit(
        self, scores: Floats, predicted: Ints, labels: Ints, weights: Floats | None = None
    ) -> IsotonicCalibration:
        """Return the calibration with one fitted curve (a confidence, two classes), or one for each class."""
        rows = fit_rows(self.method, scores, predicted, labels, weights)
        curves = [fit_curve(score, success, rows.weights) for score, success in column_problems(rows)]
        return IsotonicCalibration(rows.scores.shape[1], tuple(curves))

    def prepare_fit(
        self, scores: Floats, predicted: Ints, labels: Ints
    ) -> Callable[[Floats], IsotonicCalibration]:
        """Return a function that fits these rows with any weights. Each column is sorted only once."""
        check_fit_input(scores, predicted, labels)
        width = scores.shape[1]
        success = [(labels == k).astype(np.float64) for k in range(width)]

        @cache  # mostly only one of two columns is used
        def column(k: int) -> tuple[Floats, Ints]:
            return np.unique(scores[:, k], return_inverse=True)

        @cache  # the same rows are fitted with several weights
        def check_rows(mask: bytes) -> None:
            kept = np.frombuffer(mask, dtype=np.bool_)
            refuse_one_outcome(self.method, labels[kept], width)
            refuse_reversed_ranks(self.method, lambda k: column(k)[1], success, kept)

        def fit(weights: Floats) -> IsotonicCalibration:
            check_weights(weights, len(labels))
            check_rows((weights > 0).tobytes())
            curves = [fit_ranked_curve(*column(k), success[k], weights) for k in fitted_columns(width)]
            return IsotonicCalibration(width, tuple(curves))

        return fit
