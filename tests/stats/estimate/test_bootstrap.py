"""Resampled sums of runs of rows, run by run and all in one call."""

from __future__ import annotations

import numpy as np
import pytest

from monitor.stats.estimate._bootstrap import DRAWS, resampled_sums


@pytest.mark.parametrize(("n", "runs"), [(500, 20), (60, 10), (20, 20), (37, 1)])
def test_runs_of_equal_length_are_summed_in_one_call_as_others_one_by_one(n: int, runs: int) -> None:
    values = np.random.default_rng(n).normal(size=n)
    starts = np.arange(0, n, n // runs)
    together, totals = resampled_sums(values, starts, seed=5)
    padded = np.append(values, 0.0)  # one row more in the last run, which is then unlike the others
    apart, _ = resampled_sums(padded, starts, seed=5)
    if (n - 1).bit_length() == n.bit_length():  # the same table of weights
        np.testing.assert_allclose(together, apart, atol=1e-5)
    assert together.shape == (DRAWS, runs)
    assert totals.min() >= 1


def test_the_sums_scatter_as_poisson_counts_of_rows_do() -> None:
    """200 draws: a variance is known to 10 % (one standard error); its bound here is four of them."""
    values = np.random.default_rng(3).normal(1.0, 0.2, 400)
    sums, totals = resampled_sums(values, np.arange(0, 400, 40), seed=1)
    np.testing.assert_allclose(
        sums.mean(axis=0), values.reshape(10, 40).sum(axis=1), rtol=4 / np.sqrt(40 * 200)
    )
    ratio = sums.sum(axis=1).var(ddof=1) / (values**2).sum()
    assert 0.6 < ratio < 1.4
    assert totals.mean() == pytest.approx(400, abs=4 * np.sqrt(400 / DRAWS))
    again, _ = resampled_sums(values, np.arange(0, 400, 40), seed=1)
    other, _ = resampled_sums(values, np.arange(0, 400, 40), seed=2)
    assert np.array_equal(sums, again)
    assert not np.array_equal(sums, other)
    assert np.array_equal(np.sort(sums, axis=0), np.sort(other, axis=0)), "the same draws in another order"
