"""Broken features are noticed, and sound ones are not."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest

from monitor.stats.features.health import (
    ASSUMED_WINDOWS_PER_DAY,
    FALSE_ALARMS_PER_YEAR,
    Fault,
    FeatureNorm,
    constant_features,
    health_level,
    rate_p_value,
    window_faults,
)
from monitor.stats.features.tables import FeatureTable, count_features
from tests.nearly import nearly

LEVEL = 3e-7


def faults(
    kind: str, reference: np.ndarray, window: np.ndarray, broken: tuple[str, ...] = (), rows: int = 500
) -> tuple[Fault, ...]:
    table, norm = FeatureTable.from_values(kind, reference), FeatureNorm.from_values(kind, reference, rows)
    constant = bool(constant_features(window[:, None])[0])
    return norm.faults(table.count(window), constant, LEVEL, broken)


def kinds(*arguments: object, **more: object) -> list[str]:
    return [each.kind for each in faults(*arguments, **more)]


@pytest.mark.parametrize(
    ("count", "rows", "before", "rows_before"), [(2, 3, 1, 4), (3, 3, 0, 4), (1, 4, 2, 3)]
)
def test_the_p_value_counts_all_draws(count: int, rows: int, before: int, rows_before: int) -> None:
    marked = [True] * (count + before) + [False] * (rows + rows_before - count - before)
    draws = [sum(draw) for draw in combinations(marked, rows)]
    expected = sum(each >= count for each in draws) / len(draws)
    assert rate_p_value(count, rows, before, rows_before) == nearly(expected)


def test_no_row_concerned_is_no_evidence() -> None:
    assert rate_p_value(0, 500, 0, 5000) == 1.0
    assert rate_p_value(500, 500, 5000, 5000) == pytest.approx(1.0)


def test_a_missing_feature_is_noticed_with_its_rates() -> None:
    rng = np.random.default_rng(0)
    hours = rng.integers(0, 24, 5000) * 1.0
    reference = np.where(rng.random(5000) < 0.01, np.nan, hours)
    window = np.where(np.arange(500) < 205, np.nan, hours[:500])
    (fault,) = faults("number", reference, window)
    assert fault.kind == "missing"
    assert fault[1:] == pytest.approx((0.41, np.isnan(reference).mean()))
    assert kinds("number", reference, np.full(500, np.nan)) == ["missing"]


def test_a_small_rise_is_no_fault_however_sure() -> None:
    reference = np.where(np.arange(100_000) % 100 == 0, np.nan, np.arange(100_000) % 7)
    window = np.where(np.arange(10_000) % 20 == 0, np.nan, np.arange(10_000) % 7)
    assert rate_p_value(500, 10_000, 1000, 100_000) < 1e-100
    assert kinds("number", reference, window) == []


def test_values_beyond_the_reference_are_noticed() -> None:
    rng = np.random.default_rng(1)
    minutes = rng.exponential(10, 5000)
    assert kinds("number", minutes, 60 * rng.exponential(10, 500)) == ["out_of_range"]
    assert kinds("number", minutes, rng.exponential(10, 500)) == []
    airports = rng.integers(0, 20, 5000) * 1.0
    assert kinds("text", airports, airports[:500] + 1000) == ["unseen"]
    assert kinds("text", airports, airports[:500]) == []


def test_a_text_that_is_new_all_the_time_is_never_unseen() -> None:
    ids = np.arange(6000.0)
    assert kinds("text", ids[:5000], ids[5000:]) == []


def test_rare_texts_are_expected_to_be_new_sometimes() -> None:
    rng = np.random.default_rng(2)
    rare = np.floor(rng.pareto(0.4, 6000))
    table = FeatureTable.from_values("text", rare[:5000])
    assert table.count(rare[5000:5500])[-2] > 25  # more than 5 % of the window
    assert kinds("text", rare[:5000], rare[5000:5500]) == []


@pytest.mark.parametrize("noise", [0.0, 30.0])
def test_a_number_that_always_rises_or_falls_is_no_fault(noise: float) -> None:
    dates = np.arange(5500.0) // 10 + np.random.default_rng(3).normal(scale=noise, size=5500)
    for sign in (1, -1):
        assert kinds("number", sign * dates[:5000], sign * (dates[5000:] + 5000)) == []
        assert kinds("number", sign * dates[:5000], np.full(500, np.nan)) == ["missing"]


def test_a_rate_that_varies_from_window_to_window_is_compared_with_the_worst() -> None:
    calm = np.arange(500) % 5 * 1.0
    half = np.where(np.arange(500) % 2 == 0, np.nan, calm)
    reference = np.concatenate([calm, calm, half, calm, calm, calm, calm, calm, calm, calm])
    assert kinds("number", reference, half) == []
    assert kinds("number", reference, np.where(np.arange(500) % 5 < 3, np.nan, calm)) == ["missing"]


def test_a_constant_is_noticed_if_the_reference_never_is_constant_for_long() -> None:
    rng = np.random.default_rng(4)
    flags = (rng.random(5000) < 0.5) * 1.0
    assert kinds("number", flags, np.ones(500)) == ["constant"]
    assert kinds("text", flags, np.where(np.arange(500) < 10, np.nan, 1.0)) == ["constant"]
    rare = (rng.random(5000) < 0.002) * 1.0
    assert kinds("number", rare, np.zeros(500)) == []  # likely by chance
    weekdays = np.arange(5000) // 400 % 7 * 1.0
    assert kinds("number", weekdays, np.full(500, 3.0)) == []  # long runs are usual
    assert kinds("number", np.zeros(5000), np.zeros(500)) == []


def test_a_fault_clears_when_the_rate_is_normal() -> None:
    reference = np.arange(5000) % 9 * 1.0
    half_way = np.where(np.arange(500) < 20, np.nan, np.arange(500) % 9)  # 4 %
    normal = np.where(np.arange(500) < 10, np.nan, np.arange(500) % 9)  # 2 %
    assert kinds("number", reference, half_way) == []
    assert kinds("number", reference, half_way, broken=("missing",)) == ["missing"]
    assert kinds("number", reference, normal, broken=("missing",)) == []


def test_a_reference_without_the_feature_makes_no_fault_of_its_absence() -> None:
    nothing = np.full(5000, np.nan)
    assert kinds("number", nothing, nothing[:500]) == []


def test_windows_of_a_few_rows_need_evidence() -> None:
    reference = np.where(np.arange(5000) % 50 == 0, np.nan, np.arange(5000) % 9)
    assert kinds("number", reference, np.array([1.0, np.nan]), rows=2) == []
    assert FeatureNorm.from_values("number", reference, 500).faults(np.zeros(34, int), False, LEVEL) == ()


def test_the_level_shares_the_alarms_of_a_year() -> None:
    level = health_level(16, ASSUMED_WINDOWS_PER_DAY)
    assert level * 365 * ASSUMED_WINDOWS_PER_DAY * 16 * 3 == nearly(FALSE_ALARMS_PER_YEAR)
    assert health_level(0, 0.0) <= 1


def test_thinned_rows_stand_for_all() -> None:
    reference = np.arange(5000) // 40 % 3 * 1.0
    thinned = FeatureNorm.from_values("number", reference[::10], 500, step=10)
    assert thinned.longest_run == FeatureNorm.from_values("number", reference, 500).longest_run == 40


@pytest.mark.simulation
def test_chance_breaks_no_more_than_the_level() -> None:
    """The exact test alone, without the least rise, at a level that 3,000 trials can measure."""
    rng = np.random.default_rng(5)
    level, trials = 0.02, 3000
    for rate in (0.002, 0.05, 0.4):
        before, now = rng.binomial(2500, rate, trials), rng.binomial(500, rate, trials)
        alarms = sum(
            rate_p_value(int(k), 500, int(x), 2500) <= level for k, x in zip(now, before, strict=True)
        )
        assert alarms <= trials * level + 4 * math.sqrt(trials * level)


@pytest.mark.simulation
def test_sixteen_sound_features_are_not_broken_by_chance() -> None:
    rng = np.random.default_rng(6)
    level = health_level(16, 100.0)
    shape = rng.uniform(0.2, 1.5, 16)
    missing = rng.uniform(0, 0.05, 16)

    def rows(n: int) -> np.ndarray:
        values = np.floor(4 * rng.pareto(shape + 1, (n, 16)))
        return np.where(rng.random((n, 16)) < missing, np.nan, values)

    reference = rows(5000)
    kind = ["number" if j % 2 else "text" for j in range(16)]
    tables = [FeatureTable.from_values(kind[j], reference[:, j]) for j in range(16)]
    norms = [FeatureNorm.from_values(kind[j], reference[:, j], 500) for j in range(16)]
    noticed = 0
    for _ in range(1825):  # a twentieth of a year
        window = rows(500)
        counts = count_features(tables, window)
        broken = window_faults(norms, counts, constant_features(window), level, [()] * 16)
        noticed += any(broken)
    assert noticed == 0


@pytest.mark.simulation
def test_a_missing_feature_is_noticed_in_its_first_window() -> None:
    """10 % of the rows, a base rate of 1 %, windows of 500: at least 99 % of 1,000 streams."""
    rng = np.random.default_rng(7)
    noticed = 0
    for _ in range(1000):
        reference = np.where(rng.random(5000) < 0.01, np.nan, rng.normal(size=5000))
        window = np.where(rng.random(500) < 0.1, np.nan, rng.normal(size=500))
        noticed += kinds("number", reference, window) == ["missing"]
    assert noticed >= 0.99 * 1000
