"""Ranks of models from means or coefficients that are known with an error: best and worst possible rank.

Two ways to be right of all ranks at once, both of AutoEval's section 2.2: intervals at Bonferroni's level,
and the ellipsoid that holds all values at once, which knows how their errors go together. The ellipsoid
tells more where models are few, or answered the same requests and err alike; the intervals do where many
models have errors of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from monitor.base.records import Floats
from monitor.stats.estimate.poisson_binomial import checked_level

Method = Literal["bonferroni", "chi_square"]

RANK_LEVEL = 0.9
"""Level at which all ranks that are exported hold at once: that of the paper."""


@dataclass(frozen=True, slots=True)
class RankInterval:
    """The possible ranks of a model; 1 is the best.

    Parameters
    ----------
    best, worst : int
        From 1 to the number of models; equal where the rank is known.
    """

    best: int
    worst: int


def simultaneous_intervals(
    value: ArrayLike, covariance: ArrayLike, level: float = 0.9, method: Method = "bonferroni"
) -> Floats:
    """Intervals of M values that contain all of them together with the stated probability.

    Parameters
    ----------
    value : (M,) array of float
    covariance : (M, M) array of float
        Of the values' errors, taken as normal.
    level : float
        The paper ranks at 0.9.
    method : {"bonferroni", "chi_square"}
        Each interval at 1 − (1 − level)/M; or the shadow of the ellipsoid (μ̂ − μ)ᵀ Σ⁻¹ (μ̂ − μ) ≤ χ² of M
        degrees of freedom on each axis, which is wider for all M above 1. What the ellipsoid says of ranks
        is more than its shadow does: `simultaneous_ranks`.

    Returns
    -------
    (M, 2) float64

    Raises
    ------
    ValueError
        A shape, the level or the method is not allowed.

    References
    ----------
    Boyeau et al., *AutoEval Done Right*, section 2.2 and appendix C.2.

    Examples
    --------
    >>> simultaneous_intervals([0.8, 0.9], np.diag([1e-4, 1e-4])).round(4).tolist()
    [[0.7804, 0.8196], [0.8804, 0.9196]]
    """
    center, spread = _checked(value, covariance)
    if method not in ("bonferroni", "chi_square"):
        raise ValueError(f"method must be 'bonferroni' or 'chi_square', got {method!r}")
    out = 1 - checked_level(level)
    if method == "bonferroni":
        reach = float(scipy.special.ndtri(1 - out / (2 * len(center))))
    else:
        reach = float(np.sqrt(2 * scipy.special.gammaincinv(len(center) / 2, level)))
    half = reach * np.sqrt(np.maximum(np.diagonal(spread), 0.0))  # rounding may leave -1e-20 for no variance
    return np.stack([center - half, center + half], axis=1)


def rank_intervals(intervals: ArrayLike) -> tuple[RankInterval, ...]:
    """Possible ranks by simultaneous intervals; models whose intervals overlap may be tied.

    With intervals that hold all values at once with a probability, the ranks do so too.

    Parameters
    ----------
    intervals : (M, 2) array of float
        Lower and upper ends; larger values are better.

    Returns
    -------
    tuple of RankInterval
        One a model. `best` is 1 + the models that lie wholly above it; `worst` is M − those wholly below.

    Examples
    --------
    >>> rank_intervals([[0.7, 0.8], [0.75, 0.9], [0.85, 0.95]])
    (RankInterval(best=2, worst=3), RankInterval(best=1, worst=3), RankInterval(best=1, worst=2))
    """
    ends = np.asarray(intervals, dtype=np.float64)
    return _ranks(ends[:, None, 0] > ends[None, :, 1])


def simultaneous_ranks(
    value: ArrayLike, covariance: ArrayLike, level: float = 0.9, method: Method = "bonferroni"
) -> tuple[RankInterval, ...]:
    """Ranks of M models that are right together with at least the stated probability.

    Parameters
    ----------
    value : (M,) array of float
        Larger values are better.
    covariance : (M, M) array of float
        Of the values' errors, taken as normal; it need not have an inverse.
    level : float
    method : {"bonferroni", "chi_square"}
        By intervals that do not overlap (`simultaneous_intervals` at Bonferroni's level, `rank_intervals`);
        or by the ellipsoid (μ̂ − μ)ᵀ Σ⁻¹ (μ̂ − μ) ≤ χ² of M degrees of freedom: a model stands above another
        where it does so all over that set, μ̂ᵢ − μ̂ⱼ > √(χ² · var(μ̂ᵢ − μ̂ⱼ)), as in H. Scheffé's comparisons.

    Returns
    -------
    tuple of RankInterval
        One a model.

    Raises
    ------
    ValueError
        A shape, the level or the method is not allowed.

    References
    ----------
    Boyeau et al., *AutoEval Done Right*, section 2.2, where the set's coordinates are looked at pair by pair.
    H. Scheffé, *A method for judging all contrasts in the analysis of variance*, Biometrika 40 (1953).

    Examples
    --------
    >>> alike = 1e-4 * np.array([[1.0, 0.9], [0.9, 1.0]])
    >>> simultaneous_ranks([0.80, 0.82], alike)
    (RankInterval(best=1, worst=2), RankInterval(best=1, worst=2))
    >>> simultaneous_ranks([0.80, 0.82], alike, method="chi_square")
    (RankInterval(best=2, worst=2), RankInterval(best=1, worst=1))
    """
    if method != "chi_square":
        return rank_intervals(simultaneous_intervals(value, covariance, level, method))
    center, spread = _checked(value, covariance)
    reach = float(np.sqrt(2 * scipy.special.gammaincinv(len(center) / 2, checked_level(level))))
    own = np.diagonal(spread)
    apart = np.maximum(own[:, None] + own[None, :] - 2 * spread, 0.0)  # rounding may leave -1e-20
    return _ranks(center[:, None] - center[None, :] > reach * np.sqrt(apart))


def _checked(value: ArrayLike, covariance: ArrayLike) -> tuple[Floats, Floats]:
    center = np.asarray(value, dtype=np.float64)
    spread = np.asarray(covariance, dtype=np.float64)
    if center.ndim != 1 or not len(center) or spread.shape != (len(center), len(center)):
        raise ValueError(
            f"value must have the shape (M,) and covariance (M, M), got {center.shape} and {spread.shape}"
        )
    return center, spread


def _ranks(beats: NDArray[np.bool_]) -> tuple[RankInterval, ...]:
    """From which model, by row, surely stands above which, by column."""
    models = len(beats)
    return tuple(
        RankInterval(1 + above, models - below)
        for above, below in zip(beats.sum(axis=0).tolist(), beats.sum(axis=1).tolist(), strict=True)
    )
