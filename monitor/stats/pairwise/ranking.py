"""Ranks of models from uncertain means or coefficients: best and worst possible rank.

There are two ways to be right about all ranks together, both from AutoEval's section 2.2: intervals at
Bonferroni's level, and the joint ellipsoid of all values, which uses the correlation of their errors. The
ellipsoid tells more for few models, or models that answered the same requests and err alike; the intervals
tell more for many models with independent errors.
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
"""Joint level of all exported ranks, as in the paper."""


@dataclass(frozen=True, slots=True)
class RankInterval:
    """The possible ranks of a model; 1 is the best.

    Parameters
    ----------
    best, worst : int
        From 1 to the number of models; equal if the rank is certain.
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
        Covariance of the values' errors, assumed normal.
    level : float
        The paper uses 0.9 for ranks.
    method : {"bonferroni", "chi_square"}
        Each interval at 1 − (1 − level)/M; or the projection on each axis of the ellipsoid (μ̂ − μ)ᵀ Σ⁻¹ (μ̂
        − μ) ≤ χ² of M degrees of freedom, which is wider for all M above 1. For ranks the ellipsoid tells
        more than its projection: see `simultaneous_ranks`.

    Returns
    -------
    (M, 2) float64

    Raises
    ------
    ValueError
        A shape, the level or the method is wrong.

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
    """Possible ranks by simultaneous intervals, one for each model; models whose intervals overlap may be
    tied.

    The ranks have the joint probability of the intervals. `best` is 1 + the number of models entirely above;
    `worst` is M − the number entirely below.

    Parameters
    ----------
    intervals : (M, 2) array of float
        Lower and upper ends; larger values are better.

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
        Covariance of the values' errors, assumed normal; it need not have an inverse.
    level : float
    method : {"bonferroni", "chi_square"}
        By intervals that do not overlap (`simultaneous_intervals` at Bonferroni's level, `rank_intervals`);
        or by the ellipsoid (μ̂ − μ)ᵀ Σ⁻¹ (μ̂ − μ) ≤ χ² of M degrees of freedom: a model is above another if
        it is so in that whole set, μ̂ᵢ − μ̂ⱼ > √(χ² · var(μ̂ᵢ − μ̂ⱼ)), as in H. Scheffé's comparisons.

    Returns
    -------
    tuple of RankInterval
        One for each model.

    Raises
    ------
    ValueError
        A shape, the level or the method is wrong.

    References
    ----------
    Boyeau et al., *AutoEval Done Right*, section 2.2, which compares the set's coordinates pair by pair. H.
    Scheffé, *A method for judging all contrasts in the analysis of variance*, Biometrika 40 (1953).

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
    """Ranks from the matrix of certain orders: the model of a row is above the model of a column."""
    models = len(beats)
    return tuple(
        RankInterval(1 + above, models - below)
        for above, below in zip(beats.sum(axis=0).tolist(), beats.sum(axis=1).tolist(), strict=True)
    )
