"""The range of a reference's numbers, which one outlier must not widen."""

from __future__ import annotations

import numpy as np
import pytest

from monitor.base.records import Floats
from monitor.stats.features.ratio import FeatureBins, RatioReference

SIZES = (200, 1000, 10_000)


def unseen(reference: Floats, values: Floats) -> list[bool]:
    bins = FeatureBins.from_values("number", reference)
    outside: list[bool] = bins.unseen(values).tolist()
    return outside


def test_an_outlier_of_the_reference_does_not_widen_its_range() -> None:
    rng = np.random.default_rng(0)
    for n in SIZES:
        for columns in (rng.normal(size=n), rng.exponential(size=n), rng.integers(0, 24, n) * 1.0):
            for side in (-1.0, 1.0):
                spoiled = columns.copy()
                spoiled[n // 2] = 1e6 * side
                # Values beyond the others are beyond the reference; the outlier itself is not.
                assert unseen(spoiled, side * np.array([100.0, 1e6, 2e6])) == [True, False, True], n


def test_without_an_outlier_the_range_is_that_of_the_values() -> None:
    rng = np.random.default_rng(1)
    for n in SIZES:
        for values in (rng.normal(size=n), rng.random(n), rng.integers(0, 24, n) * 1.0):
            bins, room = FeatureBins.from_values("number", values), 0.1 * np.ptp(values)
            assert (bins.low, bins.high) == pytest.approx((values.min() - room, values.max() + room)), n
            assert bins.outliers == ()


def test_rows_like_those_of_a_heavy_tailed_reference_are_seldom_beyond_it() -> None:
    """200 references; 1 of n + 1 rows exceeds the largest value of n."""
    rng = np.random.default_rng(2)
    for n in (200, 2000):
        values = np.exp(1.5 * rng.normal(size=(200, n)))
        more = np.exp(1.5 * rng.normal(size=(200, 500)))
        shares = [np.mean(unseen(*each)) for each in zip(values, more, strict=True)]
        assert np.mean(shares) < 1 / n + 0.003, (n, np.mean(shares))


def test_rare_values_of_an_indicator_are_no_outliers() -> None:
    for n in SIZES:
        for ones in (1, 3, 4, 5, 40):
            indicator = (np.arange(n) < ones) * 1.0
            assert unseen(indicator, np.array([0.0, 1.0, 3.0])) == [False, False, True], (n, ones)
            assert unseen(1.0 - indicator, np.array([0.0, 1.0, -2.0])) == [False, False, True], (n, ones)


def test_extreme_and_equal_values_have_a_range() -> None:
    assert unseen(np.full(500, 7.0), np.array([7.0, 7.1])) == [False, True]
    largest = np.finfo(np.float64).max
    wide = np.append(np.linspace(-1.0, 1.0, 999), largest)
    assert unseen(wide, np.array([0.0, 3.0, largest, -largest])) == [False, True, False, True]
    assert unseen(np.array([3.0]), np.array([3.0, 4.0])) == [False, True]


def test_an_outlier_of_the_reference_does_not_hide_that_a_window_is_apart() -> None:
    rng = np.random.default_rng(3)
    reference, window = rng.normal(size=(5000, 2)), rng.normal(size=(1000, 2))
    window[:, 0] = 3.2 + 0.1 * window[:, 0]  # few rows of the reference are there
    clean = RatioReference.from_rows(reference, ["number", "number"]).fit(window)
    reference[77, 0] = -1e6
    spoiled = RatioReference.from_rows(reference, ["number", "number"]).fit(window)
    assert clean.apart > 0.5
    assert not clean.overlaps
    assert spoiled.apart == pytest.approx(clean.apart, rel=0.1)
    assert not spoiled.overlaps
