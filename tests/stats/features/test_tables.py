"""The counts of features, beside a count of one value at a time."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.stats.features.tables import (
    MISSING,
    MOST_KNOWN,
    OUTSIDE,
    WIDTH,
    FeatureTable,
    count_features,
)

NUMBERS = st.lists(
    st.one_of(st.floats(-50, 50), st.integers(-3, 3).map(float), st.just(math.nan)), max_size=60
)
CODES = st.lists(st.one_of(st.integers(0, 60).map(float), st.just(math.nan)), max_size=200)


def counted_slowly(table: FeatureTable, values: np.ndarray) -> list[int]:
    """Each value in turn, by comparisons."""
    counts = [0] * WIDTH
    for value in values.tolist():
        if math.isnan(value):
            counts[MISSING] += 1
        elif table.kind == "text":
            known = table.values.tolist()
            counts[min(known.index(value), OUTSIDE - 1) if value in known else OUTSIDE] += 1
        else:
            edges = table.values.tolist()
            inside = [j for j in range(len(edges) - 1) if edges[j] < value <= edges[j + 1]]
            counts[inside[0] if inside else OUTSIDE] += 1
    return counts


@given(NUMBERS, NUMBERS)
def test_numbers_are_counted_as_one_by_one(reference: list[float], window: list[float]) -> None:
    table = FeatureTable.from_values("number", np.array(reference, dtype=np.float64))
    values = np.array(window, dtype=np.float64)
    assert table.count(values).tolist() == counted_slowly(table, values)
    assert (table.counts.sum(), table.counts[OUTSIDE]) == (len(reference), 0)


@given(CODES, CODES)
def test_texts_are_counted_as_one_by_one(reference: list[float], window: list[float]) -> None:
    table = FeatureTable.from_values("text", np.array(reference, dtype=np.float64))
    values = np.array(window, dtype=np.float64)
    assert table.count(values).tolist() == counted_slowly(table, values)
    assert (table.counts.sum(), table.counts[OUTSIDE]) == (len(reference), 0)


@given(NUMBERS, CODES)
def test_each_bin_has_a_name_of_its_own_and_the_values_between_its_edges(
    numbers: list[float], codes: list[float]
) -> None:
    for kind, values in (("number", np.array(numbers)), ("text", np.array(codes))):
        table = FeatureTable.from_values(kind, values.astype(np.float64))  # type: ignore[arg-type]
        bins = table.bins()
        assert len({each.name for each in bins}) == len({each.column for each in bins}) == len(bins)
        assert sum(table.counts[each.column] for each in bins) == len(values)
        for each in bins:
            if each.lower is not None and each.upper is not None:
                inside = (values > each.lower) & (values <= each.upper)
                assert inside.sum() == table.counts[each.column]


def test_rare_texts_share_a_bin() -> None:
    names = [each.name for each in FeatureTable.from_values("text", np.arange(33.0)).bins()]
    assert names[29:] == ["value 30", "value 31", "other known values", "not in the reference", "missing"]
    names = [each.name for each in FeatureTable.from_values("text", np.arange(31.0)).bins()]
    assert names[29:] == ["value 30", "value 31", "not in the reference", "missing"]


@given(CODES, st.integers(0, 200))
def test_the_counts_of_parts_add_up(window: list[float], cut: int) -> None:
    values = np.array(window, dtype=np.float64)
    table = FeatureTable.from_values("number", np.arange(40.0))
    parts = table.count(values[:cut]) + table.count(values[cut:])
    assert parts.tolist() == table.count(values).tolist()


def test_the_largest_codes_are_told_apart() -> None:
    codes = np.array([2.0**52 - 1, 2.0**52 - 2, 2.0**52 - 4])
    table = FeatureTable.from_values("text", codes)
    assert table.count(np.append(codes, 2.0**52 - 3))[[0, 1, 2, OUTSIDE]].tolist() == [1, 1, 1, 1]


def test_a_table_knows_a_bounded_number_of_texts() -> None:
    table = FeatureTable.from_values("text", np.arange(5000.0).repeat(2))
    assert len(table.values) == MOST_KNOWN
    assert table.counts[OUTSIDE] == 10_000 - 2 * MOST_KNOWN


def test_a_value_a_little_beyond_the_range_is_within() -> None:
    table = FeatureTable.from_values("number", np.linspace(0, 100, 1001))
    assert table.count(np.array([-9.9, 109.9]))[OUTSIDE] == 0
    assert table.count(np.array([-10.1, 110.1]))[OUTSIDE] == 2


def test_deciles_hold_a_tenth_of_the_reference_each() -> None:
    table = FeatureTable.from_values("number", np.random.default_rng(0).normal(size=10_000))
    assert table.counts[:12].tolist() == pytest.approx([100, 900, *[1000] * 8, 900, 100])


def test_several_features_are_counted_in_one_call() -> None:
    rng = np.random.default_rng(1)
    rows = np.where(rng.random((300, 5)) < 0.1, np.nan, rng.integers(0, 9, (300, 5)))
    tables = [FeatureTable.from_values("text" if j % 2 else "number", rows[:100, j]) for j in range(5)]
    counts = count_features(tables, rows)
    assert counts.tolist() == [table.count(rows[:, j]).tolist() for j, table in enumerate(tables)]
    assert count_features([], rows[:, :0]).shape == (0, WIDTH)


def test_bins_of_texts_that_chance_chose_are_joined_in_reference_and_window() -> None:
    """Their own bin keep 100 and 64, whose roots are three above that of the 31st value's 25, or more."""
    frequencies = [100, 64, 63, *[25] * 30, 24]
    table = FeatureTable.from_values("text", np.repeat(np.arange(34.0), frequencies))
    assert int(table.counts[OUTSIDE - 1]) == 25 + 25 + 24
    joined = table.unbiased(table.counts)
    assert (joined[:2].tolist(), int(joined[OUTSIDE])) == ([100, 64], sum(frequencies) - 164)
    window = table.unbiased(table.count(np.array([0.0, 0.0, 1.0, 2.0, 33.0, 99.0, np.nan])))
    assert (window[:2].tolist(), int(window[OUTSIDE]), int(window[MISSING])) == ([2, 1], 3, 1)
    assert (int(joined.sum()), int(window.sum())) == (sum(frequencies), 7)


def test_known_texts_keep_their_bins_if_they_are_hardly_unknown_by_chance() -> None:
    table = FeatureTable.from_values("text", np.repeat([1.0, 2.0, 3.0], [50, 9, 8]))
    joined = table.unbiased(table.counts)
    assert (joined[:3].tolist(), int(joined[OUTSIDE])) == ([50, 9, 0], 8)
    numbers = FeatureTable.from_values("number", np.arange(50.0))
    assert numbers.unbiased(numbers.counts) is numbers.counts
