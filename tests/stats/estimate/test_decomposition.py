"""A change split by parts: exact against a loop over rows, for new parts too, and the rule of naming."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from monitor.stats.estimate.classification import classification_estimates
from monitor.stats.estimate.decomposition import (
    COUNTED_METRICS,
    LEVEL,
    OTHER,
    Decomposition,
    PartSums,
    count_columns,
    decomposed,
    most_concentrated,
    ratio_terms,
)
from tests.nearly import nearly

NAMES = [f"p{i}" for i in range(6)]
ROWS = st.lists(st.tuples(st.integers(0, 5), st.floats(0, 1)), min_size=1, max_size=60)

Rows = Sequence[tuple[int, float]]


def sums(rows: Rows, names: Sequence[str] = NAMES, most: int = 64) -> PartSums:
    codes, terms = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
    return PartSums.from_rows(names, codes, terms, most)


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def by_loop(window: Rows, baseline: Rows, level: float) -> dict[str, tuple[float, float]]:
    """Mix and within of each part, row by row."""
    effects = {}
    for k, name in enumerate(NAMES):
        now, before = ([term for code, term in rows if code == k] for rows in (window, baseline))
        if not now and not before:
            continue
        share, share_before = len(now) / len(window), len(before) / len(baseline)
        own, own_before = mean(now or before), mean(before or now)
        effects[name] = ((share - share_before) * (own_before - level), share * (own - own_before))
    return effects


@given(ROWS, ROWS)
def test_it_is_what_a_loop_over_the_rows_finds(window: Rows, baseline: Rows) -> None:
    decomposition = decomposed(sums(window), sums(baseline))
    expected = by_loop(window, baseline, decomposition.level)
    assert set(decomposition.names) == set(expected)
    order = [decomposition.names.index(name) for name in expected]
    mix, within = np.array(list(expected.values())).T
    np.testing.assert_allclose(decomposition.mix[order], mix, atol=1e-14)
    np.testing.assert_allclose(decomposition.within[order], within, atol=1e-14)


@given(ROWS, ROWS)
def test_the_parts_sum_to_the_whole_to_the_last_bits(window: Rows, baseline: Rows) -> None:
    """Parts in one of the two alone included: hypothesis leaves most of six parts out of short lists."""
    decomposition = decomposed(sums(window), sums(baseline))
    whole = mean([term for _, term in window]) - mean([term for _, term in baseline])
    assert abs(math.fsum([*decomposition.mix, *decomposition.within]) - whole) <= 16 * np.finfo(float).eps
    assert abs(decomposition.change - whole) <= 16 * np.finfo(float).eps


def test_a_part_that_is_new_or_gone_is_all_mix() -> None:
    baseline = [(0, 0.9)] * 6 + [(1, 0.6)] * 4  # mean 0.78
    window = [(0, 0.9)] * 5 + [(2, 0.5)] * 5  # mean 0.70
    decomposition = decomposed(sums(window), sums(baseline))
    assert decomposition.names == ["p0", "p1", "p2"]
    assert decomposition.within.tolist() == nearly([0.0, 0.0, 0.0])
    assert decomposition.level == pytest.approx(0.78), "outside of the part that is new"
    assert decomposition.mix.tolist() == pytest.approx([-0.1 * 0.12, -0.4 * -0.18, 0.5 * -0.28])
    assert (decomposition.mean[1], decomposition.mean_before[2]) == nearly((0.6, 0.5))
    assert decomposition.change == pytest.approx(-0.08)


@given(ROWS, ROWS, st.randoms(use_true_random=False))
def test_neither_the_order_of_rows_nor_how_they_are_put_together_matters(
    one: Rows, other: Rows, shuffled: object
) -> None:
    together = sums([*one, *other])
    apart = sums(one).plus(sums(other))
    for each in (apart, sums([*other, *one])):
        assert each.along(NAMES) == nearly(together.along(NAMES))


def test_a_dimension_keeps_its_largest_parts_and_the_rest_together() -> None:
    rows = [(k, k / 10) for k in range(6) for _ in range(k + 1)]
    kept = sums(rows, most=2)
    assert (kept.names, kept.folded) == (["p4", "p5", OTHER], True)
    assert kept.table[0].tolist() == [5, 6, 1 + 2 + 3 + 4]
    later = kept.plus(sums([(0, 0.5)] * 100, most=2), most=2)
    assert later.names == kept.names, "which parts are named is settled"
    assert later.table[0].tolist() == [5, 6, 110]
    # A part that the window shows is one of the others, of which the baseline may have had it.
    assert decomposed(sums([(0, 0.5)]), kept).names == kept.names
    whole = decomposed(sums(rows), kept)
    assert (whole.change, np.abs(whole.mix).max(), np.abs(whole.within).max()) == nearly((0.0, 0.0, 0.0))


def test_a_large_part_that_grows_gets_the_effect_of_its_share() -> None:
    """From 60 to 90 % of the rows: against the whole mean of 0.78, the others would have 3.6 of 6 points."""
    baseline = [(0, 0.7)] * 60 + [(1, 0.9)] * 20 + [(2, 0.9)] * 20
    window = [(0, 0.7)] * 90 + [(1, 0.9)] * 5 + [(2, 0.9)] * 5
    decomposition = decomposed(sums(window), sums(baseline))
    assert (decomposition.level, decomposition.change) == nearly((0.9, -0.06))
    assert decomposition.changes.tolist() == pytest.approx([-0.06, 0.0, 0.0])


# --- the rule of naming ------------------------------------------------------------------------------------


def split(
    codes: NDArray[np.int64], now: NDArray[np.float64], then: NDArray[np.float64], before: NDArray[np.int64]
) -> Decomposition:
    return decomposed(PartSums.from_rows(NAMES, codes, now), PartSums.from_rows(NAMES, before, then))


@pytest.mark.simulation
def test_evidence_is_chi_squared_where_all_parts_change_alike() -> None:
    """2,000 windows: a part's z² passes the 95 % point of χ² in 5 %, within four standard errors."""
    rng = np.random.default_rng(3)
    passed, trials = 0, 2000
    for _ in range(trials):
        before, codes = (rng.choice(3, n, p=[0.2, 0.3, 0.5]) for n in (4000, 500))
        then, now = (rng.beta(18, 3, len(c)) - 0.03 * c for c in (before, codes))
        passed += split(codes, now - 0.06, then, before).evidence[0] > 3.841
    assert passed / trials == pytest.approx(0.05, abs=4 * math.sqrt(0.05 * 0.95 / trials))


@pytest.mark.simulation
def test_a_cause_in_one_group_is_not_told_as_one_of_a_class_that_goes_with_it() -> None:
    """One group falls; a class holds 80 % of that group and 30 % of the others."""
    rng = np.random.default_rng(5)

    def rows(n: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        group = (rng.random(n) < 0.3).astype(int)
        return group, (rng.random(n) < np.where(group == 1, 0.8, 0.3)).astype(int)

    before, before_class = rows(5000)
    then = rng.beta(18, 3, 5000)
    for fallen in (0, 1):
        for _ in range(100):
            group, of_class = rows(500)
            causes = {"group": group, "class": of_class}
            at = causes[("group", "class")[fallen]] == 1
            now = rng.beta(18, 3, 500) - 0.2 * at
            decompositions = {
                "group": split(group, now, then, before),
                "class": split(of_class, now, then, before_class),
            }
            assert most_concentrated(decompositions) == ("group", "class")[fallen]


@pytest.mark.simulation
def test_nothing_is_named_where_all_fall_alike_but_for_chance() -> None:
    """400 windows: at most `LEVEL` of them, within four standard errors (2 points)."""
    rng = np.random.default_rng(7)
    named, trials = 0, 400
    for _ in range(trials):
        before, codes = rng.integers(0, 6, 5000), rng.integers(0, 6, 500)
        then, now = rng.beta(18, 3, 5000), rng.beta(18, 3, 500) - 0.08
        named += most_concentrated({"group": split(codes, now, then, before)}) is not None
    assert named / trials <= LEVEL + 4 * math.sqrt(LEVEL / trials)


def test_with_many_rows_a_difference_that_matters_to_nobody_names_nothing() -> None:
    rng = np.random.default_rng(9)
    before, codes = rng.integers(0, 2, 10**6), rng.integers(0, 2, 10**6)
    then = rng.beta(18, 3, 10**6)
    decomposition = split(codes, rng.beta(18, 3, 10**6) - 0.08 - 0.002 * codes, then, before)
    assert decomposition.evidence.max() > 50, "it is beyond chance"
    assert most_concentrated({"group": decomposition}) is None


def test_one_part_alone_is_no_dimension() -> None:
    fallen, flat = np.linspace(0.4, 0.6, 50), np.linspace(0.8, 1.0, 50)
    zeros = np.zeros(50, dtype=np.int64)
    assert most_concentrated({"class": split(zeros, fallen, flat, zeros)}) is None
    assert most_concentrated({}) is None


# --- ratios ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", COUNTED_METRICS)
@pytest.mark.parametrize(
    ("width", "positive", "average"), [(2, 1, "macro"), (4, None, "macro"), (4, None, "micro")]
)
def test_the_terms_of_a_ratio_have_its_change_as_their_mean(
    metric: str, width: int, positive: int | None, average: str
) -> None:
    rng = np.random.default_rng(11)

    def window(n: int, sharp: float) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        scores = rng.dirichlet(np.full(width, sharp), n)
        return scores, scores.argmax(axis=1)

    def value(scores: NDArray[np.float64], predicted: NDArray[np.int64]) -> float:
        estimates = classification_estimates(scores, predicted, [metric], positive=positive, average=average)
        return estimates[metric].value

    before, now = window(800, 0.4), window(300, 0.8)
    micro = average == "micro"
    totals = count_columns(metric, *before, positive, micro).sum(axis=1)
    terms = ratio_terms(count_columns(metric, *now, positive, micro), totals)
    assert terms.mean() == pytest.approx(value(*now) - value(*before), abs=1e-12)
    own = ratio_terms(count_columns(metric, *before, positive, micro), totals)
    assert own.mean() == pytest.approx(0.0, abs=1e-12)


def test_a_ratio_without_a_denominator_has_no_terms() -> None:
    columns = np.zeros((2, 5, 1))
    assert ratio_terms(columns, np.array([[1.0], [2.0]])).tolist() == [0.0] * 5
