"""Samples of the recent requests for a fit, stratified by class and confidence.

The pool is the set of requests that a fit could use, and may be too large. A sample contains every labelled
request of the pool. The other requests are sampled so that each stratum has the same share in the sample as
in the pool. A stratum is a class and a decile: the class with the largest mean score of the models, and the
decile of that score. So even if labels were requested for uncertain answers, uncertain answers do not become
too frequent, and the sample represents the pool without weights.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from monitor.base.records import Floats, Ints, Keys, mix

DECILES = 10
_SALT = np.uint64(0x5BF03635)


def strata(scores: Floats, labelled: NDArray[np.bool_]) -> Ints:
    """Return the stratum of each row: the class with the largest mean score, and the decile of that score.

    Parameters
    ----------
    scores : (n, M, K) array of float
        NaN for models that did not answer; at least one answered each row.
    labelled : (n,) bool
        The labelled rows; deciles are computed without them.

    Returns
    -------
    (n,) int64
        `DECILES` times the class plus the decile, from 0 to K · `DECILES` − 1.

    Examples
    --------
    >>> scores = np.array([[[0.9, 0.1]], [[0.6, 0.4]], [[0.2, 0.8]]])
    >>> strata(scores, np.zeros(3, dtype=bool)).tolist()
    [9, 4, 19]
    """
    present = ~np.isnan(scores[:, :, 0])
    many = np.maximum(present.sum(axis=1), 1)[:, None]
    mean: Floats = np.where(present[:, :, None], scores, 0.0).sum(axis=1, dtype=np.float64) / many
    top = mean.argmax(axis=1)
    confidence = mean[np.arange(len(top)), top]
    stratum = top * DECILES
    for k in range(scores.shape[2]):
        own = top == k
        known = np.sort(confidence[own & ~labelled])
        if len(known):
            edges = known[np.arange(1, DECILES) * len(known) // DECILES]
            stratum[own] += np.searchsorted(edges, confidence[own], side="right")
    return np.asarray(stratum, dtype=np.int64)


def sample(stratum: Ints, labelled: NDArray[np.bool_], keys: Keys, many: int, unlabelled: int) -> Ints:
    """Return every labelled row and `many` other rows, with the shares that the strata have in the pool.

    Parameters
    ----------
    stratum : (n,) int64
    labelled : (n,) bool
    keys : (n,) uint64
        Keys of the requests. Within a stratum, the selection depends only on the keys.
    many : int
        Number of unlabelled rows to sample.
    unlabelled : int
        Number of unlabelled rows in the pool. The unlabelled rows of the arguments are a uniform sample of
        the pool's.

    Returns
    -------
    (rows,) int64
        Indices of the rows, ascending.

    Examples
    --------
    >>> labelled = np.arange(12) < 2
    >>> rows = sample(np.arange(12) % 2, labelled, np.arange(12, dtype=np.uint64), 4, unlabelled=10)
    >>> (len(rows), np.bincount(rows % 2).tolist())
    (6, [3, 3])
    """
    others = np.flatnonzero(~labelled)
    if len(others) <= many:
        return np.arange(len(stratum))
    strata_ = int(stratum.max()) + 1
    own = np.bincount(stratum[labelled], minlength=strata_).astype(np.float64)
    there = np.bincount(stratum[others], minlength=strata_)
    pool = own + there * (unlabelled / len(others))
    take = _shares(pool, own, there, many)
    order = others[np.lexsort((mix(keys[others] ^ _SALT), stratum[others]))]
    first = np.cumsum(there) - there
    rank = np.arange(len(order)) - first[stratum[order]]
    return np.sort(np.concatenate([np.flatnonzero(labelled), order[rank < take[stratum[order]]]]))


def _shares(pool: Floats, own: Floats, there: Ints, many: int) -> Ints:
    """Return the number of rows to sample from each stratum: `many` in total, at most `there` of each.

    Bisection solves Σ min(max(λ · pool − own, 0), there) = `many` for λ; the largest remainders are rounded
    up.
    """
    low, high = 0.0, float((own + there)[there > 0].max() / pool[there > 0].min()) + 1.0
    for _ in range(100):
        middle = (low + high) / 2
        if np.clip(middle * pool - own, 0.0, there).sum() < many:
            low = middle
        else:
            high = middle
    wanted = np.clip(high * pool - own, 0.0, there)
    take = np.floor(wanted + 1e-9).astype(np.int64)
    room = np.flatnonzero(take < there)
    rest = room[np.argsort(take[room] - wanted[room], kind="stable")][: many - int(take.sum())]
    take[rest] += 1
    return take


def sampling_variance(stratum: Ints, labelled: NDArray[np.bool_], chance: Floats, pool: int) -> float:
    """Return the variance of a column's mean that comes from the sampling of unlabelled rows.

    Every sample contains the labelled rows, and m of the M unlabelled rows of each stratum of the pool. The
    mean of the m rows has the variance s² / m · (1 − m / M), with s² the variance within the stratum. So the
    mean over all n rows of the sample has the variance Σ m s² (1 − m / M) / n² (Cochran, Sampling Techniques,
    3rd edition 1977, theorem 5.3). The result does not include the variation of the fit between samples.

    Parameters
    ----------
    stratum : (n,) int64
        The result of `strata` for the rows of the sample.
    labelled : (n,) bool
    chance : (n,) float64
        The values whose mean is computed, such as the probability that an answer is right.
    pool : int
        Number of rows of the pool, including labelled rows.

    Returns
    -------
    float
        0 if the sample is the whole pool. For a stratum with one row, s² is the variance of all unlabelled
        rows.

    Examples
    --------
    >>> chance = np.array([0.1, 0.3, 0.7, 0.9])
    >>> none = np.zeros(4, dtype=bool)
    >>> round(sampling_variance(np.array([0, 0, 1, 1]), none, chance, pool=8), 4)
    0.0025
    >>> round(sampling_variance(np.zeros(4, dtype=np.int64), none, chance, pool=8), 4)
    0.0167
    """
    others = ~labelled
    if pool <= len(chance) or not others.any():
        return 0.0
    strata_, own = int(stratum.max()) + 1, stratum[others]
    sampled = np.bincount(own, minlength=strata_).astype(np.float64)
    known = np.bincount(stratum[labelled], minlength=strata_)
    there = np.maximum((sampled + known) * (pool / len(chance)) - known, sampled)
    mean = np.bincount(own, chance[others], strata_) / np.maximum(sampled, 1.0)
    squares = np.bincount(own, (chance[others] - mean[own]) ** 2, strata_)
    spread = np.where(sampled > 1, squares / np.maximum(sampled - 1, 1.0), chance[others].var())
    left_out = 1 - sampled / np.maximum(there, 1.0)
    return float((sampled * spread * left_out).sum()) / len(chance) ** 2


def widening(sampling: float, rows: int, pool: int, chance: Floats, half_width: float, z: float) -> float:
    """Return by which fraction the accuracy's interval is wider because a fit uses only a sample.

    The comparison is with a fit on the whole pool. A result of 0.1 means 10 % wider. The interval's variance
    is (half width / z)². A part of this variance, `var(chance) / rows`, comes from the selection of rows, if
    the selection is treated as random. With the whole pool, this part would be `rows / pool` times as large.
    Let W be the interval's variance in that case. A stratified sample adds its variance S to W, so the result
    is √((W + S) / W) − 1. The published interval is even wider, because it ignores the strata.

    Measurements (`tests/fidelity/sampling.py`): with a thousand rows, estimates from several samples of a
    pool differ as S predicts, which is half as much as with simple random samples. With ten thousand rows,
    the noise of a fit, 0.2 percentage points of accuracy, exceeds S.

    Parameters
    ----------
    sampling : float
        S, the result of `sampling_variance`.
    rows, pool : int
        Number of rows of the fit, and of the pool from which they were sampled.
    chance : (n,) float64
        Probability that each answer is right.
    half_width : float
        Half width of the interval.
    z : float
        The half width in standard deviations, such as 1.96.

    Examples
    --------
    >>> round(widening(0.0001, 1000, 100_000, np.tile([0.0, 1.0], 500), 0.05, 1.96), 3)
    0.117
    """
    variance = (half_width / z) ** 2
    if rows >= pool or variance <= 0:
        return 0.0
    whole = variance - min(float(chance.var()) / rows, variance) * (1 - rows / pool)
    return float(np.sqrt(1 + sampling / whole)) - 1
