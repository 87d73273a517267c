"""The requests of a large pool for an estimator's fit: a sample stratified by class and confidence.

Every labelled request stays. The others are sampled so that all together are spread over the strata like the
pool. A stratum is the class with the largest mean score of the models, and the decile of that score. So
labels picked at uncertain requests do not count these requests twice, and the fit's rows represent the pool
without weights.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from monitor.base.records import Floats, Ints, Keys, mix

DECILES = 10
_SALT = np.uint64(0x5BF03635)


def strata(scores: Floats, labelled: NDArray[np.bool_]) -> Ints:
    """(n,) stratum of each row: class of the largest mean score, times the decile of that score.

    Parameters
    ----------
    scores : (n, M, K) array of float
        NaN for models that did not answer; at least one did.
    labelled : (n,) bool
        Deciles are of the other rows.

    Returns
    -------
    (n,) int64
        From 0 to below K · `DECILES`.

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
    found = top * DECILES
    for k in range(scores.shape[2]):
        own = top == k
        known = np.sort(confidence[own & ~labelled])
        if len(known):
            edges = known[np.arange(1, DECILES) * len(known) // DECILES]
            found[own] += np.searchsorted(edges, confidence[own], side="right")
    return np.asarray(found, dtype=np.int64)


def sample(stratum: Ints, labelled: NDArray[np.bool_], keys: Keys, many: int, unlabelled: int) -> Ints:
    """Every labelled row, and `many` of the others, so that strata have their shares of the pool; rising.

    Parameters
    ----------
    stratum : (n,) int64
    labelled : (n,) bool
    keys : (n,) uint64
        Keys of the requests: they alone decide which ones of a stratum are taken.
    many : int
        Unlabelled rows to take.
    unlabelled : int
        Unlabelled rows of the pool, at least as many as given; the given ones are an even sample of them.

    Examples
    --------
    >>> labelled = np.arange(12) < 2
    >>> taken = sample(np.arange(12) % 2, labelled, np.arange(12, dtype=np.uint64), 4, unlabelled=10)
    >>> (len(taken), np.bincount(taken % 2).tolist())
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
    """The number of rows to take of each stratum: `many` in total, at most those `there`.

    Raises the level λ until Σ min(max(λ · pool − own, 0), there) is `many`; largest remainders decide on
    rounding.
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
    """Variance of the mean of a column from the sampling of a pool's unlabelled rows.

    The labelled rows are in every sample; of stratum h, m of the pool's M unlabelled rows are. Their mean has
    the variance s² / m · (1 − m / M), with s² the variance within the stratum: so the mean over all n rows of
    the sample has Σ m s² (1 − m / M) / n² (Cochran, Sampling Techniques, 3rd edition 1977, theorem 5.3). It
    does not contain the change of the fit itself with other rows.

    Parameters
    ----------
    stratum : (n,) int64
        From `strata` for the rows of the sample.
    labelled : (n,) bool
    chance : (n,) float64
    pool : int
        Rows that the sample represents, spread over the strata like it, with the labelled ones.

    Returns
    -------
    float
        0 for the whole pool. A stratum with one row has the variance of all.

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
    taken = np.bincount(own, minlength=strata_).astype(np.float64)
    known = np.bincount(stratum[labelled], minlength=strata_)
    there = np.maximum((taken + known) * (pool / len(chance)) - known, taken)
    mean = np.bincount(own, chance[others], strata_) / np.maximum(taken, 1.0)
    squares = np.bincount(own, (chance[others] - mean[own]) ** 2, strata_)
    spread = np.where(taken > 1, squares / np.maximum(taken - 1, 1.0), chance[others].var())
    left_out = 1 - taken / np.maximum(there, 1.0)
    return float((taken * spread * left_out).sum()) / len(chance) ** 2


def widening(sampling: float, rows: int, pool: int, chance: Floats, half_width: float, z: float) -> float:
    """The excess of an accuracy interval's width over that of a fit on the whole pool: 0.1 is a tenth wider.

    Of the interval's variance, (half width / z)², the part `var(chance) / rows` comes from the choice of
    rows, as if drawn at random; on the whole pool it would be `rows / pool` of that. The whole pool has the
    rest W too; a stratified sample adds its own variance S: √((W + S) / W) − 1. The published interval is
    wider still, as it ignores the strata.

    Measured (`tests/fidelity/sampling.py`): with a thousand rows, values from several samples of a pool
    differ as S predicts, half as much as with evenly drawn rows; with ten thousand, a fit's own noise, 0.2
    points of accuracy, is more than S.

    Parameters
    ----------
    sampling : float
        S, from `sampling_variance`.
    rows, pool : int
        Rows of the fit, and those that they represent.
    chance : (n,) float64
        Probability of each answer to be right.
    half_width : float
        Half width of the interval.
    z : float
        The half width in standard deviations.

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
