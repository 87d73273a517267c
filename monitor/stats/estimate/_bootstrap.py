"""A seeded bootstrap of rows, for statistics that are sums over blocks of sorted rows.

Each draw gives every row a Poisson(1) weight. Such weights are like the usual multinomial counts, but without
a fixed total. So the weights of a row do not depend on the number of rows, and windows of any size use the
same table. (J. A. Hanley, B. MacGibbon, *Creating non-parametric bootstrap samples using Poisson
frequencies*, Computer Methods and Programs in Biomedicine 83 (2006).)
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from monitor.base.records import Floats, Ints

DRAWS = 200
_TABLE_ROWS = 4096  # the resampled sum of a longer run is normal: 3 MB instead of 200·n
_TABLE_SEED = 20_101


@lru_cache(maxsize=8)
def _weights(rows: int) -> NDArray[np.float32]:
    """Return (rows, DRAWS) Poisson weights; a shorter table is the beginning of a longer one."""
    table = np.random.default_rng(_TABLE_SEED).poisson(1.0, (rows, DRAWS)).astype(np.float32)
    table.flags.writeable = False
    return table


@lru_cache(maxsize=64)
def _totals(n: int) -> Floats:
    """Return the (DRAWS,) resampled numbers of rows, at least 1."""
    table = _weights(1 << (n - 1).bit_length())
    totals: Floats = np.maximum(table[:n].sum(axis=0, dtype=np.float64), 1.0)
    totals.flags.writeable = False
    return totals


def resampled_sums(values: Floats, starts: Ints, seed: int) -> tuple[Floats, Floats]:
    """Return (DRAWS, runs) resampled sums over runs of neighbouring rows, and (DRAWS,) numbers of rows.

    Parameters
    ----------
    values : (n,) float64
        n at least 1.
    starts : (runs,) int64
        The start of each run, strictly rising from 0; a run ends at the next start.
    seed : int
        The seed of the order of the draws. If several windows have different seeds, their draws can be
        averaged one by one to pool the windows.
    """
    n = len(values)
    order = _order(seed)
    if n > _TABLE_ROWS:
        sums, totals = _normal_sums(values, starts)
    else:
        table = _weights(1 << (n - 1).bit_length())
        sums = _weighted_sums(values.astype(np.float32), table[:n], starts).T
        totals = _totals(n)
    return sums[order], totals[order]


@lru_cache(maxsize=4096)
def _order(seed: int) -> NDArray[np.uint8]:
    """Return the order of the draws by seed; models of a task are at about the same window number."""
    order = np.random.default_rng(seed).permutation(DRAWS).astype(np.uint8)
    order.flags.writeable = False
    return order


@lru_cache(maxsize=64)
def _even_starts(n: int, length: int) -> Ints:
    return np.arange(0, n, length)


def _weighted_sums(values: NDArray[np.float32], table: NDArray[np.float32], starts: Ints) -> Floats:
    """Return (runs, DRAWS) sums over runs of rows, each row by its weights."""
    n, runs = len(values), len(starts)
    length = n // runs
    if n == runs * length and (starts == _even_starts(n, length)).all():
        # The same products of a run with its weights, in one call.
        return (values.reshape(runs, 1, length) @ table.reshape(runs, length, DRAWS))[:, 0].astype(np.float64)
    ends = [*starts[1:].tolist(), n]
    return np.array(
        [values[a:b] @ table[a:b] for a, b in zip(starts.tolist(), ends, strict=True)], dtype=np.float64
    )


def _normal_sums(values: Floats, starts: Ints) -> tuple[Floats, Floats]:
    """Return normal approximations of Poisson-weighted sums over long runs, correlated with the counts."""
    rows = np.diff(starts, append=len(values))
    sums = np.add.reduceat(values, starts)
    squares = np.add.reduceat(values * values, starts)
    mean = sums / rows
    noise = np.random.default_rng(_TABLE_SEED).standard_normal((2, DRAWS, len(starts)))
    extra_rows = np.sqrt(rows) * noise[0]
    spread = np.sqrt(np.maximum(squares - sums * mean, 0.0))
    return sums + mean * extra_rows + spread * noise[1], len(values) + extra_rows.sum(axis=1)


def centered_interval(draws: Floats, value: float, level: float) -> tuple[Floats, float, float]:
    """Return the draws, shifted so that `value` is their mean, and their central quantiles within 0 and 1.

    A sum of absolute values is too large in every draw, because resampling adds noise. The shift removes this
    bias.
    """
    moved: Floats = draws + (value - float(draws.mean()))
    ordered = np.sort(moved).tolist()
    tail = (1.0 - level) / 2.0 * (len(ordered) - 1)
    at = int(tail)
    low = ordered[at] + (tail - at) * (ordered[at + 1] - ordered[at])
    high = ordered[-1 - at] - (tail - at) * (ordered[-1 - at] - ordered[-2 - at])
    moved.flags.writeable = False
    return moved, min(max(low, 0.0), value), min(max(high, value), 1.0)
