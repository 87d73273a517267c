"""Bins of equal count of sorted rows, and what label noise adds to the gaps in them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from monitor.records import Floats, Ints

_UNSHARED: Floats = np.zeros(1)


@dataclass(frozen=True, slots=True)
class EqualCountBins:
    """Sorted differences, cut into runs so that bins are sums of runs and of shares of runs.

    The runs begin at `starts`; bin edge e lies `share[e]` of the way from cumulative sum `before[e]` to
    `after[e]`. The share is 0 unless tied scores lie on both sides of the edge: then each of them
    belongs to both bins in part, so that their order does not matter.
    """

    values: Floats
    starts: Ints
    before: Ints
    after: Ints
    share: Floats
    rows: Floats

    def sums(self, runs: Floats) -> Floats:
        """Bin sums (…, bins) of sums over runs (…, runs)."""
        if not self.share.any():
            return runs
        total = np.zeros((*runs.shape[:-1], runs.shape[-1] + 1))
        np.cumsum(runs, axis=-1, out=total[..., 1:])
        low = total[..., self.before]
        at_edges = low + self.share * (total[..., self.after] - low)
        sums: Floats = np.diff(at_edges, axis=-1)
        return sums

    def of(self, values: Floats) -> Floats:
        """Bin sums (bins,) of values in the sorted order."""
        return self.sums(np.add.reduceat(values, self.starts))


def equal_count_bins(raw: Floats, values: Floats, bins: int) -> tuple[EqualCountBins, Ints]:
    """Cut rows into bins of equal count by their raw score.

    Parameters
    ----------
    raw : (n,) float64
        What the rows are sorted by; n at least `bins`.
    values : (n,) float64
        What will be summed; ties of `raw` are put in its order, so that a resampling cannot see theirs.
    bins : int

    Returns
    -------
    EqualCountBins
    order : (n,) int64
        Of the rows.

    Examples
    --------
    >>> cut, order = equal_count_bins(np.array([0.3, 0.1, 0.2, 0.4]), np.ones(4), 2)
    >>> order.tolist(), cut.of(np.array([1.0, 2.0, 3.0, 4.0])).tolist()
    ([1, 2, 0, 3], [3.0, 7.0])
    """
    n = len(raw)
    order = np.argsort(raw, kind="stable")
    ordered = raw[order]
    edges = np.arange(bins + 1) * n // bins
    starts, before, after, share = edges[:-1], edges, edges, _UNSHARED
    if bool((ordered[1:] == ordered[:-1]).any()):
        order = np.lexsort((values, raw))  # the resampling must not see the order of ties either
        inner = ordered[edges[1:-1]]
        first = np.concatenate([[0], np.searchsorted(ordered, inner, "left"), [n]])
        past = np.concatenate([[0], np.searchsorted(ordered, inner, "right"), [n]])
        share = (edges - first) / np.maximum(past - first, 1)
    if share.any():
        points, places = np.unique(np.concatenate([first, past]), return_inverse=True)
        starts, before, after = points[:-1], places[: bins + 1], places[bins + 1 :]
    rows = np.diff(edges).astype(np.float64)
    return EqualCountBins(values[order], starts, before, after, share, rows), order


def label_noise_bias(gaps: Floats, noise: Floats, weight: Floats) -> Floats:
    """What label noise adds to the weighted sum of absolute gaps.

    The derivation is in `labelled_calibration_error`.

    Parameters
    ----------
    gaps : (…, bins) float64
        Mean score less share of right answers.
    noise : (bins,) float64
        Variance that label noise gives each gap.
    weight : (bins,) float64
        Share of the rows, summing to 1.

    Returns
    -------
    (…) float64
        0 where there is no noise.

    Examples
    --------
    >>> gaps = np.array([0.01, -0.02, 0.01, 0.0])
    >>> weight = np.full(4, 0.25)
    >>> [round(float(label_noise_bias(gaps, np.full(4, v), weight)), 4) for v in (0.0, 1e-3)]
    [0.0, 0.0252]
    """
    bins = gaps.shape[-1]
    mean = gaps.mean(axis=-1, keepdims=True)
    between = ((gaps - mean) ** 2).sum(axis=-1, keepdims=True) / max(bins - 1, 1)
    spread = np.maximum(between - noise.mean(), 0.0)
    common = np.sqrt(np.maximum(mean * mean - noise.mean() / bins, 0.0))
    added: Floats = (_mean_absolute(common, spread + noise) - _mean_absolute(common, spread)) @ weight
    return added


def _mean_absolute(mean: Floats, variance: Floats) -> Floats:
    """E|N(mean, variance)|, broadcast; |mean| where the variance is 0."""
    mean, variance = np.broadcast_arrays(mean, variance)
    sd = np.sqrt(variance)
    z = np.divide(mean, sd, out=np.full(mean.shape, np.inf), where=sd > 0)
    density = np.exp(-0.5 * np.minimum(z * z, 1400.0)) * np.sqrt(2.0 / np.pi)
    folded: Floats = sd * density + mean * (1.0 - 2.0 * ndtr(-z))
    return folded
