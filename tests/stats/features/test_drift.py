"""The distances between counts: against SciPy and loops, and their thresholds against simulated chance."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.spatial.distance import jensenshannon
from scipy.stats import chi2, chi2_contingency

from monitor.base.records import Ints
from monitor.stats.features.drift import FEWEST_EXPECTED, Drift, discoveries, drift, median_shift

MANY = np.array([400, 900, 1700, 1200, 800])
FEW = np.array([60, 80, 130, 150, 80])


def test_the_p_value_is_that_of_scipy_up_to_the_factor_of_williams() -> None:
    statistic, _, degrees, expected = chi2_contingency(
        [MANY, FEW], correction=False, lambda_="log-likelihood"
    )
    total, rows = expected.sum(), expected.sum(axis=1)
    by_rows, by_cells = (total * (1 / each).sum() - 1 for each in (rows, expected.sum(axis=0)))
    factor = 1 + by_rows * by_cells / (6 * total * degrees)
    assert 1 < factor < 1.01
    assert drift(MANY, FEW).p_value == pytest.approx(chi2.sf(statistic / factor, degrees))


def test_the_distances_are_those_of_the_definitions() -> None:
    p, q = (MANY + 0.5) / (MANY + 0.5).sum(), (FEW + 0.5) / (FEW + 0.5).sum()
    measured = drift(MANY, FEW, level=0.001)
    psi = sum((b - a) * math.log(b / a) for a, b in zip(p, q, strict=True))
    assert measured.psi == pytest.approx(psi)
    assert measured.distance == pytest.approx(jensenshannon(p, q, base=2))
    assert measured.psi_threshold == pytest.approx((1 / 5000 + 1 / 500) * chi2.isf(0.001, 4))


@pytest.mark.parametrize("side", [MANY, FEW])
def test_the_distances_of_equal_shares_are_zero(side: Ints) -> None:
    measured = drift(side * 1000, side * 3000)
    assert measured.p_value == pytest.approx(1.0)
    assert measured.psi == pytest.approx(0.0, abs=1e-9)
    assert measured.distance == pytest.approx(0.0, abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "cells"), [(100, 10), (500, 10), (500, 34), (2000, 34)])
def test_each_threshold_is_exceeded_as_often_as_its_level_says(rows: int, cells: int) -> None:
    """1,500 windows without drift; four standard errors of their share, and the level of 5 %."""
    rng = np.random.default_rng(rows + cells)
    shares = rng.dirichlet(np.full(cells, 5.0))
    beyond = np.zeros(3)
    for _ in range(1500):
        one = drift(rng.multinomial(5000, shares), rng.multinomial(rows, shares), level=0.05)
        beyond += [one.p_value < 0.05, one.psi > one.psi_threshold, one.distance > one.distance_threshold]
    assert np.all(np.abs(beyond / 1500 - 0.05) < 4 * math.sqrt(0.05 * 0.95 / 1500)), beyond / 1500


def test_cells_with_few_rows_are_joined() -> None:
    """Ten cells of one row in the window have the same result as one cell of ten rows."""
    split = drift(np.append(MANY, np.full(10, 9)), np.append(FEW, np.full(10, 1)))
    whole = drift(np.append(MANY, 90), np.append(FEW, 10))
    assert split == whole


def test_a_joined_cell_that_is_still_small_takes_the_next() -> None:
    lone = drift(np.array([4000, 990, 10]), np.array([400, 99, 1]))
    assert lone == drift(np.array([4000, 1000]), np.array([400, 100]))


@pytest.mark.parametrize("window", [[0, 0], [3, 1]])
def test_too_few_rows_show_no_drift(window: list[int]) -> None:
    assert sum(window) < FEWEST_EXPECTED
    assert drift(np.array([500, 500]), np.array(window)) == Drift(1.0, 0.0, math.inf, 0.0, 1.0)


def test_a_disjoint_window_has_almost_the_largest_distance() -> None:
    apart = drift(np.array([50_000, 0]), np.array([0, 50_000]))
    assert apart.distance == pytest.approx(1.0, abs=1e-3)
    assert apart.p_value < 1e-300


@pytest.mark.parametrize(
    ("before", "now", "level", "message"),
    [
        ([1, 2], [1, 2, 3], 0.01, r"before and now must be counts of the same cells, got shapes \(2,\) and"),
        ([1, -2], [1, 2], 0.01, r"counts must not be negative, got \[1, -2\]"),
        ([1, 2], [1, 2], 1.0, r"level must lie between 0 and 1, got 1\.0"),
    ],
)
def test_what_is_no_pair_of_counts_is_refused(
    before: list[int], now: list[int], level: float, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        drift(np.array(before), np.array(now), level)


def test_discoveries_are_those_of_the_definition() -> None:
    """The k smallest p-values are named for the largest k with p_(k) <= level * k / F."""
    rng = np.random.default_rng(3)
    for _ in range(200):
        p = rng.random(8) ** rng.integers(1, 8)
        largest = max((k for k in range(1, 9) if np.sort(p)[k - 1] <= 0.05 * k / 8), default=0)
        chosen = discoveries(p)
        assert chosen.sum() == largest
        assert set(np.flatnonzero(chosen).tolist()) == set(np.argsort(p)[:largest].tolist())
    assert discoveries(np.zeros(0)).tolist() == []


def test_the_median_is_that_of_rows_spread_evenly_within_their_bins() -> None:
    edges = np.array([-3.0, -1.0, 0.0, 0.5, 2.0, 7.0])
    before, now = np.array([0, 40, 200, 300, 200, 60, 0]), np.array([0, 10, 30, 50, 200, 90, 0])

    def rows(counts: Ints) -> list[float]:
        return [
            low + (high - low) * (k + 0.5) / many
            for low, high, many in zip(edges, edges[1:], counts[1:-1].tolist(), strict=False)
            for k in range(many)
        ]

    low, middle, high = np.quantile(rows(before), [0.25, 0.5, 0.75])
    expected = (np.median(rows(now)) - middle) / (high - low)
    assert median_shift(edges, before, now) == pytest.approx(expected, abs=0.01)


def test_the_median_beyond_the_last_edge_counts_as_there() -> None:
    edges = np.array([0.0, 1.0, 2.0])
    assert median_shift(edges, np.array([0, 50, 50, 0]), np.array([0, 1, 1, 98])) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("before", "now"), [([0, 0, 0], [1, 1, 1]), ([1, 1, 1], [0, 0, 0]), ([100, 0, 0], [1, 1, 1])]
)
def test_there_is_no_shift_without_rows_or_range(before: list[int], now: list[int]) -> None:
    assert median_shift(np.array([0.0, 1.0]), np.array(before), np.array(now)) is None
