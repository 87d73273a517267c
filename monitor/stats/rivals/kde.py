"""Gaussian kernel densities of classes in many dimensions, weighted and exact, in log space."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np

from monitor.base.records import Floats

Bandwidth = Literal["isj", "silverman", "scott"]
BANDWIDTHS: tuple[Bandwidth, ...] = ("isj", "silverman", "scott")

_BLOCK_BYTES = 32 << 20
_KEPT_BYTES = 64 << 20  # a kernel matrix up to this size is computed once
_UNDERFLOW = 1e-240  # a row with all sums below it is computed again in log space. Next to a larger sum,
# a class whose sum underflows (1e-308) has a share below 1e-60, which may be 0.


def bandwidths(points: Floats, rule: Bandwidth = "isj") -> tuple[Floats, int]:
    """Return a bandwidth for each dimension (d,), and the number of dimensions that needed a fallback.

    The kernel is a product of Gaussians, one for each dimension. If the improved Sheather-Jones equation has
    no solution for a dimension, its fallback is Silverman's bandwidth. If all values of a dimension are
    equal, its bandwidth is 1.

    Parameters
    ----------
    points : (n, d) float64
        n at least 2.
    rule : {"isj", "silverman", "scott"}
        "isj" is improved Sheather-Jones as KDEpy computes it. The others are rules of thumb for one
        dimension: spread · n^(−1/5), times 0.9 for "silverman" and 1.06 for "scott". For "scott", the spread
        is the standard deviation. For "silverman", it is the smaller of the standard deviation and the
        interquartile range / 1.349.

    Notes
    -----
    KDEpy 1.1 scales the solution by the range of the data instead of the range of its wider grid. So the
    bandwidth is about 2.5 times smaller than in Botev et al. (0.10 instead of 0.27 for 1,020 normal draws).
    This function returns KDEpy's value, because it follows the paper's description. In several dimensions, a
    row's own kernel dominates its density with either value.

    References
    ----------
    Z. I. Botev, J. F. Grotowski, D. P. Kroese, *Kernel density estimation via diffusion*, Annals of
    Statistics 38 (2010). B. W. Silverman, *Density estimation for statistics and data analysis* (1986),
    section 3.4.2.

    Examples
    --------
    >>> points = np.random.default_rng(0).normal(size=(1000, 2)) * [1.0, 3.0]
    >>> bandwidths(points, "silverman")[0].round(2).tolist()
    [0.23, 0.65]
    """
    if rule not in BANDWIDTHS:
        raise ValueError(f"bandwidth must be one of {', '.join(BANDWIDTHS)}, got {rule!r}")
    widths, failed = np.ones(points.shape[1]), 0
    for at in range(points.shape[1]):
        column = points[:, at]
        if np.ptp(column) == 0.0:
            continue
        width = _improved_sheather_jones(column) if rule == "isj" else None
        failed += rule == "isj" and width is None
        widths[at] = width or _rule_of_thumb(column, rule)
    return widths, failed


def _rule_of_thumb(column: Floats, rule: Bandwidth) -> float:
    deviation = float(column.std(ddof=1))
    if rule == "scott":
        return float(1.06 * deviation * len(column) ** -0.2)
    quartile = float(np.subtract(*np.quantile(column, [0.75, 0.25]))) / 1.349
    return float(0.9 * (min(deviation, quartile) if quartile > 0 else deviation) * len(column) ** -0.2)


def _improved_sheather_jones(column: Floats) -> float | None:
    """Return the bandwidth, or None if KDEpy finds no solution, as with a few distinct values."""
    from KDEpy.bw_selection import improved_sheather_jones  # this import takes 0.5 s

    try:
        with np.errstate(all="ignore"):
            width = float(improved_sheather_jones(column[:, None]))
    except (ValueError, ZeroDivisionError, FloatingPointError, AssertionError):
        return None
    return width if np.isfinite(width) and width > 0 else None


class ClassDensities:
    """Kernel densities of K classes over common points, with a weight of each point for each class.

    The densities are exact, with one exception: a log density may become −∞ if it is at least 550 below the
    log density of the row's densest class (a factor of 1e-240).

        log f_k(x) = log Σ_j w_jk Π_d N(x_d; s_jd, h_d) − log Σ_j w_jk

    Parameters
    ----------
    points : (n, d) float64
    width : (d,) float64
        Bandwidths.
    """

    def __init__(self, points: Floats, width: Floats) -> None:
        self._scaled = points / width
        self._width = width
        self._constant = float(-np.log(width).sum() - 0.5 * points.shape[1] * np.log(2 * np.pi))
        self._kept: list[Floats] | None = None

    def at_points(self, weights: Floats) -> Floats:
        """Return the log densities (n, K) at the points themselves, for weights (n, K)."""
        if self._kept is None and 8 * len(self._scaled) ** 2 <= _KEPT_BYTES:
            self._kept = [np.exp(block) for block in self._log_kernels(self._scaled)]
        return self._densities(self._scaled, weights, self._kept)

    def at(self, points: Floats, weights: Floats) -> Floats:
        """Return the log densities (m, K) at other points (m, d), for weights (n, K).

        Examples
        --------
        >>> densities = ClassDensities(np.array([[0.0], [4.0]]), np.array([1.0]))
        >>> densities.at(np.array([[0.0], [60.0]]), np.eye(2)).round(2).tolist()
        [[-0.92, -8.92], [-1800.92, -1568.92]]
        """
        return self._densities(points / self._width, weights, None)

    def _densities(self, scaled: Floats, weights: Floats, kernels: list[Floats] | None) -> Floats:
        with np.errstate(divide="ignore"):
            total, log_weights = np.log(weights.sum(axis=0)), np.log(weights)
        densities = np.empty((len(scaled), weights.shape[1]))
        first = 0
        for kernel in kernels if kernels is not None else map(np.exp, self._log_kernels(scaled)):
            past = first + len(kernel)
            summed = kernel @ weights
            with np.errstate(divide="ignore"):
                densities[first:past] = np.log(summed)
            lost = np.flatnonzero(summed.max(axis=1) < _UNDERFLOW)
            if len(lost):
                densities[first + lost] = self._in_log_space(scaled[first + lost], log_weights)
            first = past
        with np.errstate(invalid="ignore"):  # a class without any weight: −∞ − (−∞)
            densities -= total
        densities[:, np.isneginf(total)] = -np.inf
        return densities + self._constant

    def _in_log_space(self, scaled: Floats, log_weights: Floats) -> Floats:
        """Return the logarithms of the weighted sums of kernels (m, K), also far from all other points."""
        rows = []
        for block in self._log_kernels(scaled):
            columns = []
            for weight in log_weights.T:
                terms = block + weight
                top = terms.max(axis=1, keepdims=True)
                finite = np.where(np.isfinite(top), top, 0.0)
                with np.errstate(divide="ignore"):
                    columns.append(finite[:, 0] + np.log(np.exp(terms - finite).sum(axis=1)))
            rows.append(np.stack(columns, axis=1))
        return np.concatenate(rows)

    def _log_kernels(self, scaled: Floats) -> Iterator[Floats]:
        """Yield −½ times the squared distances to every point, in blocks of rows."""
        together = max(1, _BLOCK_BYTES // (8 * len(self._scaled)))
        own = 0.5 * np.einsum("nd,nd->n", self._scaled, self._scaled)
        for first in range(0, len(scaled), together):
            block = scaled[first : first + together]
            log = block @ self._scaled.T
            log -= own
            log -= 0.5 * np.einsum("nd,nd->n", block, block)[:, None]
            np.minimum(log, 0.0, out=log)
            yield log
