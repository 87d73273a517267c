"""The drift of a model's accuracy by time scale, from differences of neighbouring blocks of its reference.

`monitor.stats.estimate.variance_components` estimates biases that last for a limited time. Another kind of
drift is 1/f drift, which has the same variance in every octave of time. A reference shows only the octaves up
to its length. Differences of blocks do not depend on the long-term mean. For two neighbouring blocks of m
rows, `R/I` estimates the bias of each block in logits (R is the sum of right − c, and I the sum of c(1 − c),
over confidences c), and

    S(m) = E (b₁ − b₂)² = E (R₁/I₁ − R₂/I₂)² − 1/I₁ − 1/I₂.

The variance of a mean over 2m rows is S(m)/4 smaller than that of a mean over m rows (the Haar variance of an
octave). So the variance of windows of n rows, around the mean of N rows in sequence, is the sum of S(m)/4
over the octaves from n to N. Here N is the length of the reference. The difference between the mean of N
later rows and the mean of the reference has the variance S(N), which the reference cannot show. The average
of the three longest octaves is used instead of S(N):

    D(n) = Σ S(n 2^k) / 4 over n 2^k < N, + S(longest).

**Noise.** The estimate from p pairs of blocks has a standard error of about √(2/p) · 2/I. For a short
reference this is as large as the drift itself. Octaves of fewer than eight pairs are left out. Each octave is
averaged with its two neighbours, weighted by precision, set to 0 if negative, and multiplied by S² / (S² + 2
· error²). This factor hardly changes significant values, and moves other values towards 0. For a reference of
fewer than 10,000 rows, this correction is not enough, and the predictive interval does not use the result.

The result misleads if drift begins after the reference. The first half of a season shows nothing about the
second half.

Source of the octaves: D. W. Allan, *Statistics of atomic frequency standards*, Proceedings of the IEEE 54
(1966); D. B. Percival and A. T. Walden, *Wavelet Methods for Time Series Analysis* (2000), chapter 8. The
shrinkage and the sum's last term are our own.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from monitor.base.records import Floats, Ints

SHORTEST_BLOCK = 25
"""The number of rows of the shortest blocks. Shorter blocks rarely contain a wrong answer of a good model."""

SHORTEST_REFERENCE = 10_000
"""The number of rows of the shortest reference for which the drift spectrum is used by default. In a shorter
reference, chance that looks like drift would widen the intervals too much (by half at 1,000 rows)."""

_FEWEST_PAIRS = 8  # of blocks: the mean square of fewer has too long a tail for the shrinkage
_LONGEST = 3  # octaves that stand for those beyond the reference
_SHRINKAGE = 2.0  # times the error's square


@dataclass(frozen=True, slots=True)
class Spectrum:
    """The drift of a reference by time scale, from the differences between neighbouring blocks of rows.

    Parameters
    ----------
    contrasts : tuple of (int, float)
        Pairs of the number m of rows in a block, increasing, and S(m) (see the module): the variance of the
        difference between the biases of two neighbouring blocks, in logits², 0 or more.
    beyond : float
        S for blocks as long as the reference, in logits², 0 or more.
    rows : int
        Rows of the reference.

    Examples
    --------
    >>> result = Spectrum(((25, 0.0), (50, 0.04), (100, 0.04)), beyond=0.04, rows=400)
    >>> round(result.moving(50), 3), round(result.moving(100), 3), result.beyond
    (0.03, 0.02, 0.04)
    """

    contrasts: tuple[tuple[int, float], ...]
    beyond: float
    rows: int

    def moving(self, n: int) -> float:
        """Return the variance of the mean bias of n rows around the mean bias of the whole reference.

        The reference has `rows` rows. The variance is in logits². It is 0 if n is at least `rows`.
        """
        if not self.contrasts:
            return 0.0
        total, length = 0.0, n
        while length < self.rows:
            total += self._at(length)
            length *= 2
        return total / 4

    def _at(self, length: int) -> float:
        """Return S of a block of any length, linear in its logarithm."""
        above = bisect_right(self.contrasts, length, key=itemgetter(0))
        if above == len(self.contrasts):
            last, variance = self.contrasts[-1]
            return variance if length == last else self.beyond
        if above == 0:
            return self.contrasts[0][1]
        (low, at_low), (high, at_high) = self.contrasts[above - 1 : above + 1]
        share = math.log(length / low) / math.log(high / low)
        return (1 - share) * at_low + share * at_high


def drift_spectrum(
    confidence: Floats,
    right: NDArray[np.bool_],
    folds: int,
    where: NDArray[np.bool_] | None = None,
    among: Ints | None = None,
) -> Spectrum:
    """Return the drift of a labelled reference in time order, by time scale.

    Parameters
    ----------
    confidence : (N,) float64
        The confidences of all rows. Each contiguous fold is calibrated by a fit on the other folds. Fewer
        folds give more octaves.
    right : (N,) bool
    folds : int
    where, among
        As in `monitor.stats.estimate.variance_components.variance_components`.

    Returns
    -------
    Spectrum
        The result has no contrasts if the folds hold fewer than eight pairs of blocks of 25 rows.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> days = np.tile(np.repeat([0.95, 0.85], 400), 10)   # announced: 0.9
    >>> result = drift_spectrum(np.full(8000, 0.9), rng.random(8000) < days, folds=1)
    >>> contrasts = dict(result.contrasts)
    >>> contrasts[50] < 0.1, contrasts[400] > 0.3
    (True, True)
    """
    errors = errors_in_folds(confidence, right, folds, where, among)
    lengths, raw, precision = _contrasts(*errors)
    rows = len(errors[0])
    if not lengths:
        return Spectrum((), 0.0, rows)
    near = np.tri(len(lengths), k=1, dtype=bool) & np.tri(len(lengths), k=1, dtype=bool).T
    smooth = _shrunk(near @ (raw * precision), near @ precision)
    last = slice(-_LONGEST, None)
    beyond = _shrunk((raw * precision)[last].sum(keepdims=True), precision[last].sum(keepdims=True))
    return Spectrum(tuple(zip(lengths, smooth.tolist(), strict=True)), float(beyond[0]), rows)


def errors_in_folds(
    confidence: Floats,
    right: NDArray[np.bool_],
    folds: int,
    where: NDArray[np.bool_] | None = None,
    among: Ints | None = None,
) -> tuple[Floats, Floats, Ints]:
    """Return each row's error and its variance by chance, and the (folds + 1,) edges of the folds.

    The error is 1 minus the confidence c for a right answer, and −c for a wrong answer. Its variance is c(1 −
    c). For `where` and `among`, see `variance_components`.

    Examples
    --------
    >>> errors_in_folds(np.full(4, 0.5), np.array([True, True, False, False]), 2, among=np.array([1, 2, 3]))
    (array([ 0.5, -0.5, -0.5]), array([0.25, 0.25, 0.25]), array([0, 1, 3]))
    """
    error, variance = right - confidence, confidence * (1 - confidence)
    if where is not None:
        error, variance = np.where(where, error, 0.0), np.where(where, variance, 0.0)
    edges: Ints = np.arange(folds + 1) * len(right) // folds
    if among is not None:
        error, variance, edges = error[among], variance[among], np.searchsorted(among, edges)
    return error, variance, edges


def _shrunk(total: Floats, precision: Floats) -> Floats:
    """Return means weighted by precision, shrunk to 0 if they are within their error."""
    mean = np.maximum(total / precision, 0.0)
    error = 2.0 / precision
    means: Floats = mean * mean**2 / (mean**2 + _SHRINKAGE * error)
    return means


def _contrasts(errors: Floats, variance: Floats, edges: Ints) -> tuple[list[int], Floats, Floats]:
    """Return the block lengths, S for each, and 2 / the square of its error without drift."""
    sums = [np.r_[0.0, column.cumsum()] for column in (errors, variance)]
    lengths, raw, precision, m = [], [], [], SHORTEST_BLOCK
    while 2 * m <= np.diff(edges).max():
        ends = pairwise(edges.tolist())
        starts = np.concatenate([np.arange(a, b - 2 * m + 1, 2 * m) for a, b in ends])
        (error, other), (first, second) = (
            (column[starts + m] - column[starts], column[starts + 2 * m] - column[starts + m])
            for column in sums
        )
        known = (first > 0) & (second > 0)  # blocks of certain answers show no bias
        error, other, first, second = error[known], other[known], first[known], second[known]
        harmonic = first * second / (first + second)
        if np.count_nonzero(known) >= _FEWEST_PAIRS:
            squares = (error * second - other * first) ** 2 / (first * second * (first + second))
            lengths.append(m)
            raw.append(float((squares - 1).sum() / harmonic.sum()))
            precision.append(float(len(harmonic) * harmonic.mean() ** 2))
        m *= 2
    return lengths, np.array(raw), np.array(precision)
