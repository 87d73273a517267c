"""The sampling error of a calibration curve, from a bootstrap of its reference."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from monitor.base.records import Floats, Ints
from monitor.stats.calibration.isotonic import pool_adjacent_violators

CURVES = 200
BINS = 400
_JOINED = 4  # neighbouring bins joined after the draws: means over rows hardly change
_LEFT_OUT = 1e-2  # of the curves' variance: ragged directions, which means over rows average out


def bootstrap_curves(
    confidence: Floats, stratum: Ints, strata: int, rng: np.random.Generator
) -> tuple[tuple[Floats, ...], NDArray[np.float32]]:
    """Return the sampling error of a calibration's curves as a covariance, from resampled rows.

    Each draw resamples the rows, simulates right and wrong answers with the confidences as probabilities, and
    fits a rising curve. Rows belong to strata, which have separate curves.

    Parameters
    ----------
    confidence : (n,) float64
        Calibrated, n at least 1.
    stratum : (n,) int64
        The stratum of each row, 0 to `strata` − 1.
    strata : int
        The number of strata. A stratum without rows is given a single row, which is right with the mean
        confidence as its probability.
    rng : numpy Generator

    Returns
    -------
    edges : tuple of float64 arrays
        For each stratum, the confidences that separate its bins of about equal count.
    directions : (r, bins) float32
        A factor of the covariance matrix of the curves' values: the covariance of bins i and j is Σ_r
        directions[r, i]·directions[r, j]. The bins of all strata follow one another.

    Examples
    --------
    >>> rows = np.linspace(0.5, 1.0, 400)
    >>> edges, directions = bootstrap_curves(rows, np.zeros(400, int), 1, np.random.default_rng(1))
    >>> sd = np.sqrt((directions.astype(float).mean(axis=1) ** 2).sum())  # of the mean over all bins
    >>> len(edges[0]), round(float(sd / np.sqrt((rows * (1 - rows)).sum() / 400**2)), 1)
    (99, 1.1)
    """
    edges, curves, counts = [], [], []
    for k in range(strata):
        own = confidence[stratum == k]
        own = own if len(own) else confidence.mean(keepdims=True)
        bins = min(max(round(BINS * len(own) / len(confidence)), 1), len(own))
        order = np.sort(own)
        fine = np.unique(order[np.arange(1, bins) * len(own) // bins])
        values, count = _drawn_curves(own, fine, len(confidence), rng)
        starts = np.arange(0, len(count), _JOINED)
        heavy = np.maximum(count, 1e-9)
        edges.append(fine[_JOINED - 1 :: _JOINED])
        counts.append(np.add.reduceat(heavy, starts))
        curves.append(np.add.reduceat(values * heavy, starts, axis=1) / counts[-1])
    every = np.concatenate(curves, axis=1)
    # Weighted by the root of its rows: bins of a row or two vary most, but hardly change means over rows.
    scale = np.sqrt(np.concatenate(counts))
    apart = (every - every.mean(axis=0)) * scale / np.sqrt(CURVES - 1)
    _, sizes, rows = np.linalg.svd(apart, full_matrices=False)
    left = 1 - (sizes**2).cumsum() / max(float((sizes**2).sum()), 1e-300)
    many = int(np.searchsorted(-left, -_LEFT_OUT)) + 1
    # In single precision from the start, so that a store returns the same values.
    return tuple(edges), (sizes[:many, None] * rows[:many] / scale).astype(np.float32)


def _drawn_curves(own: Floats, edges: Floats, total: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Return (curves, bins) values of curves fitted to draws of these rows, and the rows of each bin."""
    bins = len(edges) + 1
    place = np.searchsorted(edges, own, side="right")
    count = np.bincount(place, minlength=bins).astype(np.float64)
    mean = np.bincount(place, own, minlength=bins) / np.maximum(count, 1)
    share, chance = count / len(own), np.clip(mean, 0.0, 1.0)
    draws, hits = np.empty((2, CURVES, bins), dtype=np.int64)
    for i in range(CURVES):
        draws[i] = rng.poisson(count) if len(own) < total else rng.multinomial(len(own), share)
        hits[i] = rng.binomial(draws[i], chance)
    return _rising(draws, hits, mean), count


def _rising(draws: Ints, hits: Ints, mean: Floats) -> Floats:
    """Return (curves, bins) rising curves of the draws' shares, linear over bins without rows.

    A curve without any draws is `mean`.
    """
    curves, bins = draws.shape
    curve, place = np.nonzero(draws)
    weight = draws[curve, place].astype(np.float64)
    starts, values = pool_adjacent_violators(hits[curve, place] / weight, weight, curve)
    fitted = np.repeat(values, np.diff(np.append(starts, len(curve))))
    rising, every = np.empty((curves, bins)), np.arange(bins)
    edges = np.searchsorted(curve, np.arange(curves + 1)).tolist()
    for i, (start, stop) in enumerate(pairwise(edges)):
        rising[i] = np.interp(every, place[start:stop], fitted[start:stop]) if stop > start else mean
    return rising
