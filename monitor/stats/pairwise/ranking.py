"""Best and worst possible ranks of models whose means or coefficients are uncertain.

Two methods from section 2.2 of AutoEval control the joint level of all ranks. One uses an interval for each
model at Bonferroni's level. The other uses the joint ellipsoid of all values, which includes the correlation
of their errors. The ellipsoid gives narrower ranks for few models, or for models that answered the same
requests and make similar errors. The intervals give narrower ranks for many models with independent errors.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from monitor.base.records import Floats
from monitor.base.results import RankInterval
from monitor.stats.estimate.poisson_binomial import checked_level

Method = Literal["bonferroni", "chi_square"]

RANK_LEVEL = 0.9
"""The joint level of all exported ranks, as in the paper."""


def simultaneous_intervals(
    value: ArrayLike, covariance: ArrayLike, level: float = 0.9, method: Method = "bonferroni"
) -> Floats:
    """Return intervals that contain all M values at the same time with the probability `level`.

    Parameters
    ----------
    value : (M,) array of float
    covariance : (M, M) array of float
        Covariance of the values' errors, which are assumed normal.
    level : float
        The joint level; the paper uses 0.9 for ranks.
    method : {"bonferroni", "chi_square"}
        "bonferroni" gives each interval the level 1 − (1 − level)/M. "chi_square" projects the ellipsoid (μ̂
        − μ)ᵀ Σ⁻¹ (μ̂ − μ) ≤ χ² of M degrees of freedom on each axis. The intervals by "chi_square" are wider
        if M is above 1. For ranks, `simultaneous_ranks` uses the ellipsoid itself, which is more precise than
        its projections.

    Returns
    -------
    (M, 2) float64

    Raises
    ------
    ValueError
        A shape, the level or the method is invalid.

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
    half = reach * np.sqrt(np.maximum(np.diagonal(spread), 0.0))  # rounding may turn a variance of 0 negative
    return np.stack([center - half, center + half], axis=1)


def rank_intervals(intervals: ArrayLike) -> tuple[RankInterval, ...]:
    """Return the possible ranks of M models, given simultaneous intervals of their values.

    The order of two models is certain if their intervals do not overlap. `best` is 1 plus the number of
    models that are certainly above this one; `worst` is M minus the number of models that are certainly below
    it. The ranks have the joint level of the intervals.

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
    """Return the rank intervals of M models, which are all right with at least the probability `level`.

    Parameters
    ----------
    value : (M,) array of float
        Larger values are better.
    covariance : (M, M) array of float
        Covariance of the values' errors, which are assumed normal; it may be singular.
    level : float
    method : {"bonferroni", "chi_square"}
        "bonferroni" compares intervals: see `simultaneous_intervals` and `rank_intervals`. "chi_square" uses
        the ellipsoid (μ̂ − μ)ᵀ Σ⁻¹ (μ̂ − μ) ≤ χ² of M degrees of freedom. Model i is certainly above model j
        if this holds in the whole ellipsoid: μ̂ᵢ − μ̂ⱼ > √(χ² · var(μ̂ᵢ − μ̂ⱼ)), as in H. Scheffé's
        comparisons.

    Returns
    -------
    tuple of RankInterval
        One for each model.

    Raises
    ------
    ValueError
        A shape, the level or the method is invalid.

    References
    ----------
    Boyeau et al., *AutoEval Done Right*, section 2.2, which compares the coordinates pair by pair. H.
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
    """Return ranks from a matrix that is true where the model of the row is above that of the column."""
    models = len(beats)
    return tuple(
        RankInterval(1 + above, models - below)
        for above, below in zip(beats.sum(axis=0).tolist(), beats.sum(axis=1).tolist(), strict=True)
    )
