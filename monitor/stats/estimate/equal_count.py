"""Bins of equal count of sorted rows, and the bias of their absolute gaps from label noise."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy
from numpy.typing import NDArray

from monitor.base.records import Floats, Ints

_UNSHARED: Floats = np.zeros(1)


@dataclass(frozen=True, slots=True)
class EqualCountBins:
    """Bins of equally many sorted rows, prepared for sums of values over each bin.

    The rows are cut into runs, which begin at `starts`. Bins consist of whole runs and of fractions of runs.
    The cumulative sum at bin edge e is interpolated: it lies a fraction `share[e]` between the cumulative
    sums at the runs `before[e]` and `after[e]`. The fraction is 0 unless tied scores lie on both sides of the
    edge. In that case, each tied row belongs partly to both bins, so the order of tied rows does not matter.
    """

    values: Floats
    starts: Ints
    before: Ints
    after: Ints
    share: Floats
    rows: Floats

    def sums(self, runs: Floats) -> Floats:
        """Return the sums over each bin (…, bins), from sums over each run (…, runs)."""
        if self.share is _UNSHARED:
            return runs
        total = np.zeros((*runs.shape[:-1], runs.shape[-1] + 1))
        np.cumsum(runs, axis=-1, out=total[..., 1:])
        low = total[..., self.before]
        at_edges = low + self.share * (total[..., self.after] - low)
        sums: Floats = np.diff(at_edges, axis=-1)
        return sums

    def bin_sums(self, values: Floats) -> Floats:
        """Return the (bins,) sums over each bin of (n,) values in the sorted order."""
        return self.sums(np.add.reduceat(values, self.starts))


@lru_cache(maxsize=64)  # windows of a task have one size
def bin_edges(n: int, bins: int) -> Ints:
    """Return the (bins + 1,) edges that divide n sorted rows into bins of equal count. Read-only."""
    edges: Ints = np.arange(bins + 1) * n // bins
    edges.flags.writeable = False
    return edges


@lru_cache(maxsize=64)
def bin_rows(n: int, bins: int) -> Floats:
    """Return the (bins,) number of rows in each bin of equal count. Read-only."""
    rows: Floats = np.diff(bin_edges(n, bins)).astype(np.float64)
    rows.flags.writeable = False
    return rows


def equal_count_bins(raw: Floats, values: Floats, bins: int) -> tuple[EqualCountBins, Ints]:
    """Return bins of equal count by raw score, and the (n,) order of the rows.

    Parameters
    ----------
    raw : (n,) float64
        The scores to sort by; n at least `bins`.
    values : (n,) float64
        The values to sum. Rows with tied scores are sorted by these values, so that resampling does not
        depend on the order of arrival.
    bins : int

    Examples
    --------
    >>> cut, order = equal_count_bins(np.array([0.3, 0.1, 0.2, 0.4]), np.ones(4), 2)
    >>> order.tolist(), cut.bin_sums(np.array([1.0, 2.0, 3.0, 4.0])).tolist()
    ([1, 2, 0, 3], [3.0, 7.0])
    """
    n = len(raw)
    order = raw.argsort()
    ordered = raw[order]
    tied = ordered[1:] == ordered[:-1]
    if tied.any():
        _settle(order, tied, raw, values)  # the resampling must not depend on the order of ties either
    edges = bin_edges(n, bins)
    starts, before, after, share = edges[:-1], edges, edges, _UNSHARED
    if tied[edges[1:-1] - 1].any():
        inner = ordered[edges[1:-1]]
        first = np.concatenate([[0], np.searchsorted(ordered, inner, "left"), [n]])
        past = np.concatenate([[0], np.searchsorted(ordered, inner, "right"), [n]])
        share = (edges - first) / np.maximum(past - first, 1)
        points, places = np.unique(np.concatenate([first, past]), return_inverse=True)
        starts, before, after = points[:-1], places[: bins + 1], places[bins + 1 :]
    return EqualCountBins(values[order], starts, before, after, share, bin_rows(n, bins)), order


def _settle(order: Ints, tied: NDArray[np.bool_], raw: Floats, values: Floats) -> None:
    """Order tied rows by their values, then by index; a sort of all rows by both takes much longer."""
    either = np.zeros(len(order), dtype=bool)
    either[:-1] = tied
    either[1:] |= tied
    places = np.flatnonzero(either)
    rows = np.sort(order[places])
    order[places] = rows[np.lexsort((values[rows], raw[rows]))]


def label_noise_bias(gaps: Floats, noise: Floats, weight: Floats) -> Floats:
    """Return the (…) bias that label noise adds to the weighted sum of absolute gaps of bins.

    The derivation is in `labelled_calibration_error`.

    Parameters
    ----------
    gaps : (…, bins) float64
        Mean score minus share of right answers in each bin.
    noise : (bins,) float64
        Variance of each gap from label noise.
    weight : (bins,) float64
        Share of the rows in each bin; the sum is 1.

    Examples
    --------
    >>> gaps = np.array([0.01, -0.02, 0.01, 0.0])
    >>> weight = np.full(4, 0.25)
    >>> [round(float(label_noise_bias(gaps, np.full(4, v), weight)), 4) for v in (0.0, 1e-3)]
    [0.0, 0.0252]
    """
    bins = gaps.shape[-1]
    mean, level = gaps.mean(axis=-1, keepdims=True), float(noise.mean())
    between = ((gaps - mean) ** 2).sum(axis=-1, keepdims=True) / max(bins - 1, 1)
    spread = np.maximum(between - level, 0.0)
    common = np.sqrt(np.maximum(mean * mean - level / bins, 0.0))
    means = _mean_absolute(common, np.concatenate([spread + noise, spread], axis=-1))
    added: Floats = (means[..., :-1] - means[..., -1:]) @ weight
    return added


def _mean_absolute(mean: Floats, variance: Floats) -> Floats:
    """Return E|N(mean, variance)| for a mean not below 0; the mean if the variance is 0."""
    sd = np.sqrt(variance)
    z = np.minimum(mean / np.maximum(sd, 1e-300), 40.0)  # no density is left, and no square overflows
    density = np.exp(-0.5 * z * z) * np.sqrt(2.0 / np.pi)
    folded: Floats = sd * density + mean * (1.0 - 2.0 * scipy.special.ndtr(-z))
    return folded
