"""Ranks of models from means or coefficients that are known with an error: best and worst possible rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri
from scipy.stats import chi2

from monitor.estimate.poisson_binomial import checked_level
from monitor.records import Floats

Method = Literal["bonferroni", "chi_square"]


@dataclass(frozen=True, slots=True)
class RankInterval:
    """The ranks that a model may have; 1 is the best.

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
    """Intervals of M values that hold all of them at once with the stated probability.

    Parameters
    ----------
    value : (M,) array of float
    covariance : (M, M) array of float
        Of the values' errors, taken as normal.
    level : float
        The paper ranks at 0.9.
    method : {"bonferroni", "chi_square"}
        Each interval at 1 − (1 − level)/M; or the shadow of the ellipsoid (μ̂ − μ)ᵀ Σ⁻¹ (μ̂ − μ) ≤ χ² of M
        degrees of freedom on each axis, which is wider for all M above 1.

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
    center = np.asarray(value, dtype=np.float64)
    spread = np.asarray(covariance, dtype=np.float64)
    if center.ndim != 1 or not len(center) or spread.shape != (len(center), len(center)):
        raise ValueError(
            f"value must have the shape (M,) and covariance (M, M), got {center.shape} and {spread.shape}"
        )
    if method not in ("bonferroni", "chi_square"):
        raise ValueError(f"method must be 'bonferroni' or 'chi_square', got {method!r}")
    out = 1 - checked_level(level)
    if method == "bonferroni":
        reach = float(ndtri(1 - out / (2 * len(center))))
    else:
        reach = float(np.sqrt(chi2.ppf(level, len(center))))
    half = reach * np.sqrt(np.diagonal(spread))
    return np.stack([center - half, center + half], axis=1)


def rank_intervals(intervals: ArrayLike) -> tuple[RankInterval, ...]:
    """Ranks that simultaneous intervals leave open; models whose intervals overlap may be tied.

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
    above = (ends[None, :, 0] > ends[:, None, 1]).sum(axis=1)
    below = (ends[None, :, 1] < ends[:, None, 0]).sum(axis=1)
    return tuple(
        RankInterval(1 + int(a), len(ends) - int(b))
        for a, b in zip(above.tolist(), below.tolist(), strict=True)
    )
