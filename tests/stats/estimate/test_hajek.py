"""The weighted share against sums written out row by row, and against Wilson's where weights are equal."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtri

from monitor import Estimate, Unknown, WeightedCounts, hajek, weighted_counts, wilson
from monitor.base.results import Reason
from monitor.stats.estimate.hajek import Excess, excess

_weight = st.floats(1.0, 1000.0)
_rows = st.lists(st.tuples(st.booleans(), _weight), min_size=1, max_size=30)


def columns(rows: list[tuple[bool, float]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([good for good, _ in rows], dtype=bool), np.array([w for _, w in rows], dtype=float)


def estimate_of(rows: list[tuple[bool, float]], level: float = 0.95) -> Estimate:
    result = hajek(weighted_counts(*columns(rows)), level)
    assert isinstance(result, Estimate)
    return result


def slow(rows: list[tuple[bool, float]], level: float) -> tuple[float, float, float]:
    """Return the docstring's sums, one row at a time."""
    total = sum(w for _, w in rows)
    share = sum(w * good for good, w in rows) / total
    kish = total**2 / sum(w * w for _, w in rows)
    mean = sum(w * w for _, w in rows) / total
    more = [*rows, (True, mean), (False, mean)]
    middle = sum(w * good for good, w in more) / sum(w for _, w in more)
    ratio = sum((w * (good - middle)) ** 2 for good, w in more)
    ratio /= middle * (1 - middle) * sum(w * w for _, w in more)
    n, z = kish / ratio, float(ndtri(0.5 + level / 2))
    center, half = share + z * z / (2 * n), z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return share, (center - half) / (1 + z * z / n), (center + half) / (1 + z * z / n)


@given(_rows, st.floats(0.5, 0.999))
def test_equals_the_sums_written_out(rows: list[tuple[bool, float]], level: float) -> None:
    estimate = estimate_of(rows, level)
    assert (estimate.value, estimate.lower, estimate.upper) == pytest.approx(slow(rows, level), abs=1e-5)
    assert 0.0 <= estimate.lower <= estimate.value <= estimate.upper <= 1.0
    assert (estimate.n, estimate.level) == (len(rows), level)


@given(st.lists(st.booleans(), min_size=1, max_size=200), _weight)
def test_with_equal_weights_it_is_wilsons_to_the_last_bit(success: list[bool], weight: float) -> None:
    rows = [(good, weight) for good in success]
    assert estimate_of(rows) == wilson(sum(success), len(success))


@given(_rows, st.randoms())
def test_the_order_of_rows_changes_nothing_and_what_is_taken_back_leaves_nothing(rows, random) -> None:
    shuffled = rows.copy()
    random.shuffle(shuffled)
    whole = weighted_counts(*columns(rows))
    assert weighted_counts(*columns(shuffled)) == whole
    half = weighted_counts(*columns(rows[: len(rows) // 2]))
    assert whole.plus(half, -1) == weighted_counts(*columns(rows[len(rows) // 2 :]))


def test_a_worked_example() -> None:
    # Weights 10, 10, 2 right and 2 wrong: share 22/24. Kish (24)²/208 = 2.769; a virtual row weighs
    # 208/24 = 8.667, so p = 30.667/41.333 = 0.74194; Σw²(y - p)² = 279.11 · 0.06660 + 79.11 · 0.55047 =
    # 62.136 over p(1 - p) · 358.22 = 68.589: 0.90592. Effective 2.769/0.90592 = 3.0568 rows.
    estimate = estimate_of([(True, 10.0), (True, 10.0), (True, 2.0), (False, 2.0)])
    z2, n, p = 1.959964**2, 3.0568, 22 / 24
    half = math.sqrt(z2) * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n))
    assert estimate.lower == pytest.approx((p + z2 / (2 * n) - half) / (1 + z2 / n), abs=2e-4)
    assert estimate.upper == pytest.approx((p + z2 / (2 * n) + half) / (1 + z2 / n), abs=2e-4)


@given(st.lists(_weight, min_size=2, max_size=30))
def test_nothing_but_successes_or_failures_still_has_an_interval(weights: list[float]) -> None:
    right, wrong = estimate_of([(True, w) for w in weights]), estimate_of([(False, w) for w in weights])
    assert right.value == right.upper == 1.0
    assert wrong.value == wrong.lower == 0.0
    assert (wrong.upper, 1.0) == pytest.approx((1 - right.lower, 1.0))
    assert right.lower < 1.0


@given(_rows)
def test_a_higher_level_is_wider(rows: list[tuple[bool, float]]) -> None:
    narrow, wide = estimate_of(rows, 0.8), estimate_of(rows, 0.99)
    assert wide.lower <= narrow.lower
    assert narrow.upper <= wide.upper


def test_the_largest_weight_stays_exact() -> None:
    assert excess(1e12, 1, 1).plus(excess(3.0, 1, 0)).plus(excess(1e12, 1, 1), -1) == excess(3.0, 1, 0)
    assert excess(1.0, 7, 3) == Excess()


def test_a_weight_beyond_all_others_leaves_the_interval_within_0_and_1() -> None:
    heavy = weighted_counts(np.array([True, False, True]), np.array([1e12, 1.0, 2.0]))
    light = weighted_counts(np.array([False, True, False]), np.array([1e12, 1.0, 2.0]))
    for estimate in (hajek(heavy), hajek(light)):
        assert isinstance(estimate, Estimate)
        assert 0.0 <= estimate.lower <= estimate.value <= estimate.upper <= 1.0


def test_no_labels_is_unknown() -> None:
    assert hajek(WeightedCounts()) == Unknown(Reason.NO_LABELS)


@pytest.mark.parametrize(
    ("success", "weight", "message"),
    [
        ([True], [0.5], r"weight\[0\] must be at least 1 and finite .* got 0\.5"),
        ([True, True], [1.0, math.inf], r"weight\[1\] must be at least 1 and finite .* got inf"),
        ([True], [math.nan], r"weight\[0\] must be at least 1 and finite .* got nan"),
        ([True], [1.0, 2.0], r"success and weight must be of one shape \(n,\), got \(1,\) and \(2,\)"),
    ],
)
def test_bad_input_is_named(success: list[bool], weight: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        weighted_counts(np.array(success), np.array(weight))
    with pytest.raises(ValueError, match="level must lie between 0 and 1"):
        hajek(WeightedCounts(3, 2, excess(4.0, 1, 1)), 1.0)
