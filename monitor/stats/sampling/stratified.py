"""Which requests of a large pool an estimator is fitted on: a sample stratified by class and confidence.

Every labelled request stays. Of the others, as many as a fit may have are taken so that all together, the
labelled ones among them, are spread as the pool is over the strata: the class that the models' mean score is
largest for, and within it the decile of that score. Labels that were picked where models are unsure then do
not weigh those requests twice, and the fit's rows stand for the pool without weights.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from monitor.base.records import Floats, Ints, Keys, mix

DECILES = 10
_SALT = np.uint64(0x5BF03635)


def strata(scores: Floats, labelled: NDArray[np.bool_]) -> Ints:
    """The stratum of each row: class of the largest mean score, times the decile of that score.

    Parameters
    ----------
    scores : (n, M, K) array of float
        NaN for models that did not answer; at least one of them did.
    labelled : (n,) bool
        Deciles are those of the other rows.

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
    """Every labelled row, and so many of the others that strata have their shares of the pool.

    Parameters
    ----------
    stratum : (n,) int64
    labelled : (n,) bool
    keys : (n,) uint64
        Of the requests: which ones of a stratum are taken hangs on them alone.
    many : int
        Unlabelled rows to take.
    unlabelled : int
        Unlabelled rows of the pool, of which those given are an even sample; at least as many as given.

    Returns
    -------
    (m,) int64
        Rows, rising.

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
    """How many rows to take of each stratum: `many` in all, no more than are there.

    Raises the level λ until Σ min(max(λ · pool − own, 0), there) is `many`; what rounding leaves goes to
    the largest remainders.
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
    """Variance that a sample of a pool's unlabelled rows brings into the mean of a column.

    The labelled rows are in every sample; of stratum h, m of the pool's M unlabelled rows are. Their mean
    varies with which ones by s² / m · (1 − m / M), s² being the variance within the stratum: so of the mean
    over all n rows of the sample the variance is Σ m s² (1 − m / M) / n² (Cochran, Sampling Techniques, 3rd
    edition 1977, theorem 5.3). How the fit itself would differ with other rows is not in it.

    Parameters
    ----------
    stratum : (n,) int64
        As `strata` gives them for the rows of the sample.
    labelled : (n,) bool
    chance : (n,) float64
    pool : int
        Rows that the sample stands for, spread over the strata as it is; the labelled ones among them.

    Returns
    -------
    float
        0 where nothing was left out. A stratum with one row counts with the variance of all.

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
    """By how much an interval of the accuracy is wider than one fitted on the whole pool need be.

    Of the interval's variance, (half width / z)², the part `var(chance) / rows` is that of which rows there
    are, taken as drawn at random from all; on the whole pool it would be `rows / pool` of that. What is left,
    W, the whole pool has too; a stratified sample adds its own variance S to it: √((W + S) / W) − 1. The
    interval that is published is wider still, as it takes no account of the strata.

    Measured (`tests/fidelity/sampling.py`): values from several samples of a pool lie apart as S says with a
    thousand rows, half as far as with rows drawn evenly; with ten thousand a fit's own noise, 0.2 points of
    accuracy, is more than S.

    Parameters
    ----------
    sampling : float
        S, as `sampling_variance` gives it.
    rows, pool : int
        Rows of the fit, and those that they stand for.
    chance : (n,) float64
        Of each answer to be right.
    half_width : float
        Of the interval.
    z : float
        Standard deviations that its half width is.

    Returns
    -------
    float
        0.1 for a tenth wider; 0 where nothing was left out.

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
