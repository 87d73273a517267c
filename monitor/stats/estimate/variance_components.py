"""The variance of a model's accuracy between windows beyond chance, from a reference in time order.

Let c be the calibrated confidences of n rows. If the confidences are right, the number of right answers has
the mean `Σ c` and the standard deviation `√I`, with the information `I = Σ c(1 − c)`. Let `R = Σ (right − c)`
over a block of neighbouring rows of the reference. A bias of b logits that the rows of a block have in common
adds `I·b` to R. So, for blocks of m rows,

    E[R² / I] = 1 + I / I_rest + x₀ + I · Σ t_l [ρ_m(l) + ρ_rest(l)]

where the `rest` are the rows on which the block's confidences were calibrated. The terms of the sum are:

* 1 is chance.
* I / I_rest is the error of that calibration.
* x₀ is an over-dispersion, the same for blocks of any length: neighbouring rows are right or wrong together.
* t_l is the variance of biases that last for about l rows, in the block and in the `rest`. Their
  autocorrelation falls exponentially over l rows. The mean over n rows retains the fraction ρ_n(l) = 2 (x − 1
  + e⁻ˣ) / x² of their variance, with x = n / l.

The left side is measured for blocks of 25, 50, 100 … rows. The blocks lie inside contiguous folds, and each
fold is calibrated by a fit on the other folds. Non-negative least squares, weighted by the number of blocks
of each length, give x₀ and the t_l.

Biases that last longer than a quarter of the reference can hardly be distinguished from its mean, so this
method underestimates 1/f drift. Differences of neighbouring blocks (`monitor.stats.estimate.drift_spectrum`)
show more of this drift. For references of at least 10,000 rows, the larger of the two variances is used.

The result misleads if drift begins after the reference. Because of sampling noise, the estimated variance is
above 0 even for stable streams, so their intervals are a little too wide.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from monitor.base.records import Floats, Ints
from monitor.stats.estimate.drift_spectrum import (
    SHORTEST_BLOCK,
    SHORTEST_REFERENCE,
    Spectrum,
    drift_spectrum,
    errors_in_folds,
)
from monitor.stats.solvers import non_negative_least_squares

LENGTHS = (30.0, 100.0, 300.0, 1000.0, 3000.0, 10_000.0)
"""The numbers of rows for which a bias may last. Lengths above a quarter of the reference are left out."""

FEWEST_BLOCKS = 4
"""The smallest number of blocks of one length. The mean square of fewer blocks is too noisy."""


@lru_cache(maxsize=4096)
def remembered(n: float, length: float) -> float:
    """Return the fraction of the variance of a bias that remains after averaging over n rows.

    The bias lasts for about `length` rows. The fraction is near 1 for n far below `length`, and falls as n
    grows.

    Examples
    --------
    >>> round(remembered(1, 1000), 3), round(remembered(10_000, 1000), 3)
    (1.0, 0.18)
    """
    x = n / length  # 0 for a bias that is never forgotten
    if x < 1e-4:  # cancellation would eat the digits
        return 1 - x / 3
    return float(2 * (x - 1 + np.exp(-x)) / x**2)


@lru_cache(maxsize=4096)  # called at every window, and windows of a task have one size
def _kept(variances: tuple[tuple[float, float], ...], n: int) -> float:
    """Return the variance of the mean over n rows, of biases of these (length, variance)."""
    return sum(variance * remembered(n, length) for length, variance in variances)


@dataclass(frozen=True, slots=True)
class Components:
    """The variance of a model's bias between windows, in logits², by how long the bias lasts.

    Parameters
    ----------
    dispersion : float
        The over-dispersion x₀ (see the module), 0 or more, without a unit.
    variances : tuple of (float, float)
        Pairs of a number of rows for which a bias lasts, and the variance of such biases in logits², 0 or
        more.
    rows : int
        Rows of the reference.
    spectrum : Spectrum or None
        A second estimate of the variance, from differences of neighbouring blocks; None if it is not used.

    Examples
    --------
    >>> Components(0.0, ((1000.0, 0.04),), 20_000).of_bias(n=1, information=0.1)
    0.0437...
    """

    dispersion: float
    variances: tuple[tuple[float, float], ...] = ()
    rows: int = 0
    spectrum: Spectrum | None = None

    def of_bias(self, n: int, information: float) -> float:
        """Return the variance of the mean bias of a later window, in logits².

        If there is a `spectrum`, the result is the larger of two estimates.

        Parameters
        ----------
        n : int
            Rows of the window.
        information : float
            I of the window, the sum of c(1 − c) over its confidences c. If it is 0, the over-dispersion is
            ignored.
        """
        variance = self._moving(n, information) + self._lasting()
        contrasts = self.spectrum
        return variance if contrasts is None else max(variance, contrasts.moving(n) + contrasts.beyond)

    def moving(self, n: int, information: float) -> float:
        """Return the part of the variance `of_bias` that differs between windows, in logits².

        Labels of other windows cannot reduce this part. The parameters are those of `of_bias`.
        """
        variance = self._moving(n, information)
        return variance if self.spectrum is None else max(variance, self.spectrum.moving(n))

    @property
    def lasting(self) -> float:
        """The part of `of_bias` that all later windows share, in logits²: the reference's own error."""
        return self._lasting() if self.spectrum is None else max(self._lasting(), self.spectrum.beyond)

    def _moving(self, n: int, information: float) -> float:
        variance = self.dispersion / information if information > 0 else 0.0
        return variance + _kept(self.variances, n)

    def _lasting(self) -> float:
        return _kept(self.variances, self.rows)


def variance_components(
    folded: Mapping[int, Floats],
    right: NDArray[np.bool_],
    where: NDArray[np.bool_] | None = None,
    among: Ints | None = None,
    lasting: bool = False,
) -> Components | None:
    """Return the variance components of a labelled reference in time order.

    Parameters
    ----------
    folded : mapping of int to (N,) float64
        For each number of folds, the confidences of all rows. Each contiguous fold is calibrated by a fit on
        the other folds (`monitor.stats.calibration.base.cross_fit_in_time`).
    right : (N,) bool
    where : (N,) bool, optional
        True for the rows whose errors count, by default all rows. The other rows, such as the rows of other
        predicted classes, keep their place in time, but their errors count as 0.
    among : (m,) int64, optional
        The indices of a group's rows, increasing. Blocks then consist of these rows, and the result is for
        windows of the group.
    lasting : bool
        True if a bias may last for ever: without a calibration, or for a group with the calibration of the
        whole model. The square of such a bias counts as a variance.

    Returns
    -------
    Components or None
        None if the reference has fewer than `FEWEST_BLOCKS` blocks of every length.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> right = rng.random(4000) < 0.9
    >>> stable = variance_components({8: np.full(4000, 0.9)}, right)
    >>> stable.of_bias(500, 45.0) < 0.02
    True
    """
    n = len(right) if among is None else len(among)
    lengths = [length for length in LENGTHS if length <= max(n / 4, LENGTHS[0])]
    lengths += [np.inf] if lasting else []
    rows, excesses, weights = [], [], []
    for folds, confidence in folded.items():
        rest = float(errors_in_folds(confidence, right, folds, where)[1].sum()) * (1 - 1 / folds)
        errors = errors_in_folds(confidence, right, folds, where, among)
        for m, ratio, blocks, information in _mean_squares(*errors):
            far = n * (1 - 1 / folds)
            rows.append([1.0, *(information * (remembered(m, k) + remembered(far, k)) for k in lengths)])
            excesses.append(ratio - 1 - information / max(rest, 1.0))
            weights.append(np.sqrt(blocks / len(folded)))
    if not rows:
        return None
    weight = np.array(weights)
    fitted = non_negative_least_squares(np.array(rows) * weight[:, None], np.array(excesses) * weight)
    kept = tuple((k, float(t)) for k, t in zip(lengths, fitted[1:], strict=True) if t > 0)
    fewest = min(folded)
    spectrum = None
    if n >= SHORTEST_REFERENCE:
        spectrum = drift_spectrum(folded[fewest], right, fewest, where, among)
    return Components(float(fitted[0]), kept, n, spectrum)


def _mean_squares(error: Floats, variance: Floats, edges: Ints) -> list[tuple[int, float, int, float]]:
    """Return the blocks of each length inside folds.

    Each entry has the length, the mean of R² / I, the number of blocks and their mean I.
    """
    sums = [np.r_[0.0, column.cumsum()] for column in (error, variance)]
    squares, m = [], SHORTEST_BLOCK
    while m <= np.diff(edges).max():
        starts = np.concatenate([np.arange(a, b - m + 1, m) for a, b in pairwise(edges.tolist())])
        total, information = (column[starts + m] - column[starts] for column in sums)
        if len(starts) >= FEWEST_BLOCKS and information.sum() > 0:
            # A ratio of means, because I of blocks of certain answers is nearly 0.
            ratio = float((total**2).sum() / information.sum())
            squares.append((m, ratio, len(starts), float(information.mean())))
        m *= 2
    return squares
