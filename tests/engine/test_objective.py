"""Objectives: three states on pooled intervals, beside the whole distribution and by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

import numpy as np
import pytest

from monitor.config.root import Bound
from monitor.engine.objective import (
    BootstrapDraws,
    Objective,
    Poolable,
    PooledState,
    _interval,
    _joined,
    _value,
    judge,
)
from monitor.reports.views import ObjectiveState
from monitor.stats.estimate.poisson_binomial import PoissonBinomial, TrimmedPmf, trim
from tests.plain_state import same, through_msgpack


def window(p: float | np.ndarray, n: int = 500) -> TrimmedPmf:
    return trim(PoissonBinomial(np.full(n, p) if np.isscalar(p) else p).pmf)


def draws(value: float, spread: float = 0.01, size: int = 500, seed: int = 0) -> BootstrapDraws:
    return BootstrapDraws(value, value + spread * np.random.default_rng(seed).standard_normal(200), size)


def pooled_interval(items: Sequence[Poolable], level: float) -> tuple[float, float]:
    """Return the slow witness: the interval of several windows, joined one after the other."""
    return _interval(reduce(_joined, items), level)


FLOOR, CEILING = Bound(min=0.9), Bound(max=0.05)


@pytest.mark.parametrize(
    ("bound", "lower", "value", "upper", "state"),
    [
        (FLOOR, 0.91, 0.92, 0.93, "met"),
        (FLOOR, 0.90, 0.91, 0.93, "met"),
        (FLOOR, 0.89, 0.90, 0.91, "at_risk"),
        (FLOOR, 0.88, 0.89, 0.90, "at_risk"),
        (FLOOR, 0.80, 0.81, 0.92, "at_risk"),
        (FLOOR, 0.88, 0.9099, 0.92, "at_risk"),
        (FLOOR, 0.88, 0.9101, 0.92, "not_proven"),
        (FLOOR, 0.87, 0.88, 0.8999, "breached"),
        (CEILING, 0.01, 0.02, 0.04, "met"),
        (CEILING, 0.01, 0.02, 0.05, "met"),
        (CEILING, 0.04, 0.05, 0.06, "at_risk"),
        (CEILING, 0.05, 0.055, 0.06, "at_risk"),
        (CEILING, 0.02, 0.0401, 0.06, "at_risk"),
        (CEILING, 0.02, 0.0399, 0.06, "not_proven"),
        (CEILING, 0.0501, 0.055, 0.06, "breached"),
    ],
)
def test_the_four_states(bound: Bound, lower: float, value: float, upper: float, state: str) -> None:
    assert judge(bound, lower, value, upper) == state


def test_a_ceiling_mirrors_a_floor() -> None:
    rng = np.random.default_rng(1)
    seen = set()
    for lower, value, upper in np.sort(rng.uniform(0, 1, (200, 3)), axis=1):
        state = judge(Bound(min=0.4), lower, value, upper)
        assert state == judge(Bound(max=0.6), 1 - upper, 1 - value, 1 - lower)
        seen.add(state)
    assert seen == set(ObjectiveState)


def test_pooled_counts_are_the_distribution_of_all_rows_at_once() -> None:
    rng = np.random.default_rng(2)
    rows = [rng.beta(9, 1, n) for n in (500, 300, 61, 500)]
    low, high = PoissonBinomial(np.concatenate(rows)).interval(0.95)
    assert pooled_interval([window(p) for p in rows], 0.95) == (low / 1361, high / 1361)


def test_pooled_draws_are_the_size_weighted_mean_draw_by_draw() -> None:
    first, second = draws(0.03, size=500), draws(0.06, size=250, seed=5)
    pooled = sorted((500 * a + 250 * b) / 750 for a, b in zip(first.draws, second.draws, strict=True))
    lower, upper = pooled_interval([first, second], 0.9)
    # numpy's default quantile: linear between order statistics 0.05 · 199 = 9.95 and 0.95 · 199 = 189.05
    assert lower == pytest.approx(pooled[9] + 0.95 * (pooled[10] - pooled[9]))
    assert upper == pytest.approx(pooled[189] + 0.05 * (pooled[190] - pooled[189]))


def test_pooling_narrows_and_a_higher_level_widens() -> None:
    for item in (window(0.9), draws(0.05)):
        others = (
            [window(0.9)] * 5 if isinstance(item, TrimmedPmf) else [draws(0.05, seed=s) for s in range(5)]
        )
        one, five = pooled_interval([item], 0.95), pooled_interval(others, 0.95)
        sure = pooled_interval([item], 0.99)
        assert five[1] - five[0] < 0.6 * (one[1] - one[0])
        assert sure[0] < one[0] < one[1] < sure[1]


def test_order_of_the_windows_does_not_matter() -> None:
    items = [window(p) for p in (0.8, 0.9, 0.99)]
    assert pooled_interval(items, 0.95) == pooled_interval(items[::-1], 0.95)


def test_the_pooled_estimate_is_that_of_all_rows() -> None:
    """Counts of 60 and 440 rows at 0.8 and 0.95, and draws of the same sizes: the mean weighs the rows."""
    counts = [window(0.8, 60), window(0.95, 440)]
    assert _value(reduce(_joined, counts)) == pytest.approx((60 * 0.8 + 440 * 0.95) / 500, abs=1e-9)
    errors = [draws(0.02, size=60), draws(0.05, size=440)]
    assert _value(reduce(_joined, errors)) == pytest.approx((60 * 0.02 + 440 * 0.05) / 500)


def test_an_objective_that_the_interval_merely_reaches_is_not_proven() -> None:
    logic = Objective(FLOOR, windows=1).build()
    interval = logic.update(window(0.92, 200))
    assert interval.lower < 0.9
    assert 0.25 * (interval.upper - interval.lower) < 0.92 - 0.9
    assert interval.state is ObjectiveState.NOT_PROVEN
    assert logic.update(window(0.905, 200)).state is ObjectiveState.AT_RISK


def test_pooling_sees_what_one_window_cannot() -> None:
    logic = Objective(FLOOR, windows=5).build()
    states = [logic.update(window(0.88)).state.value for _ in range(5)]
    assert states[0] == "at_risk"
    assert states[-1] == "breached"


def test_only_the_last_windows_count() -> None:
    logic = Objective(FLOOR, windows=2).build()
    states = [logic.update(window(p)).state.value for p in (0.7, 0.7, 0.99, 0.99)]
    assert states == ["breached", "breached", "breached", "met"]


def test_an_unknown_window_adds_nothing_but_takes_its_place() -> None:
    logic = Objective(FLOOR, windows=2).build()
    assert logic.update(None).state is None
    known = logic.update(window(0.95))
    assert (known.state, known.windows, known.rows) == (ObjectiveState.MET, 1, 500)
    left = logic.update(None)
    assert (left.state, left.lower, left.upper) == (ObjectiveState.MET, known.lower, known.upper)
    gone = logic.update(None)
    assert (gone.state, gone.lower, gone.upper, gone.rows) == (None, None, None, 0)


def stream(kind: str, n: int, seed: int = 3) -> list[TrimmedPmf | BootstrapDraws | None]:
    """Windows of several sizes, every fourth without an estimate."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(20, 300, n).tolist()
    return [
        None
        if t % 4 == 3
        else window(rng.beta(9, 1, size))
        if kind == "counts"
        else draws(0.05, size=size, seed=t)
        for t, size in enumerate(sizes)
    ]


@pytest.mark.parametrize("windows", [1, 2, 3, 5, 7, 8, 16, 50])
def test_counts_are_pooled_as_if_all_windows_were_convolved_each_time(windows: int) -> None:
    items = stream("counts", 120, seed=windows)
    logic = Objective(FLOOR, windows=windows, level=0.9).build()
    for t, item in enumerate(items):
        verdict = logic.update(item)
        kept = [one for one in items[max(0, t + 1 - windows) : t + 1] if one is not None]
        assert (verdict.windows, verdict.rows) == (len(kept), sum(one.n for one in kept))
        assert (verdict.lower, verdict.upper) == (pooled_interval(kept, 0.9) if kept else (None, None))


@pytest.mark.slow
def test_a_thousand_windows_reach_the_same_counts_in_another_order_of_convolving() -> None:
    rng = np.random.default_rng(6)
    items = [window(rng.beta(9, 1, 60)) for _ in range(1100)]
    logic = Objective(FLOOR, windows=1000).build()
    verdicts = [logic.update(item) for item in items]
    for t in (999, 1042, 1099):
        kept = items[t - 999 : t + 1]
        assert (verdicts[t].lower, verdicts[t].upper) == pooled_interval(kept, 0.95)


@pytest.mark.parametrize("windows", [1, 2, 5, 6])
def test_draws_are_pooled_as_the_weighted_mean_of_all_windows(windows: int) -> None:
    items = stream("draws", 40)
    logic = Objective(CEILING, windows=windows).build()
    for t, item in enumerate(items):
        verdict = logic.update(item)
        kept = [one for one in items[max(0, t + 1 - windows) : t + 1] if one is not None]
        if kept:
            mean = np.average([one.draws for one in kept], axis=0, weights=[one.size for one in kept])
            expected = np.quantile(mean, [0.025, 0.975])
            assert (verdict.lower, verdict.upper) == pytest.approx(tuple(expected), rel=1e-12)
            assert verdict.rows == sum(one.size for one in kept)


@pytest.mark.parametrize("kind", ["counts", "draws"])
@pytest.mark.parametrize("windows", [1, 3, 5])
def test_a_snapshot_taken_anywhere_goes_on_with_the_same_verdicts_to_the_last_bit(
    kind: str, windows: int
) -> None:
    items = stream(kind, 17)  # the last one is known
    settings = Objective(FLOOR if kind == "counts" else CEILING, windows=windows)
    logic = settings.build()
    whole = [logic.update(item) for item in items]
    assert len({v.lower for v in whole}) > 3
    for cut in range(18):
        first = settings.build()
        for item in items[:cut]:
            first.update(item)
        second = settings.build(through_msgpack(first.snapshot()))
        assert [second.update(item) for item in items[cut:]] == whole[cut:]
        assert same(second.snapshot(), logic.snapshot())
        kept = second._pool.total
        again = logic._pool.total
        assert kept is not None
        assert again is not None
        column = "mass" if kind == "counts" else "draws"
        assert np.array_equal(getattr(kept, column), getattr(again, column))


def test_a_cleared_objective_is_a_new_one() -> None:
    logic, new = (Objective(FLOOR, windows=3).build() for _ in range(2))
    for item in stream("counts", 5):
        logic.update(item)
    logic.clear()
    assert logic.snapshot() == new.snapshot() == PooledState([], 0)
    assert logic.update(None).state is None
    new.update(None)
    items = stream("counts", 8, seed=9)
    assert [logic.update(item) for item in items] == [new.update(item) for item in items]


@pytest.mark.parametrize("after", [1, 2, 3, 5, 9])
def test_another_number_of_windows_keeps_the_newest_of_a_snapshot(after: int) -> None:
    items = stream("counts", 20)
    for before in range(1, 9):
        logic = Objective(FLOOR, windows=before).build()
        for item in items[:7]:
            logic.update(item)
        changed = Objective(FLOOR, windows=after).build(logic.snapshot())
        for t, item in enumerate(items[7:], start=7):
            verdict = changed.update(item)
            oldest = max(0, 7 - before, t + 1 - after)
            kept = [one for one in items[oldest : t + 1] if one is not None]
            assert verdict.windows == len(kept), (before, t)
            interval = pooled_interval(kept, 0.95) if kept else (None, None)
            assert (verdict.lower, verdict.upper) == interval, (before, t)


def test_sure_windows_give_an_interval_of_no_width() -> None:
    verdict = Objective(FLOOR).build().update(window(1.0, n=1))
    assert (verdict.state.value, verdict.lower, verdict.upper) == ("met", 1.0, 1.0)
    assert Objective(FLOOR).build().update(window(0.0)).state is ObjectiveState.BREACHED


def test_a_metric_at_its_floor_is_called_breached_as_seldom_as_the_level_says() -> None:
    # 2,000 windows at an accuracy of exactly 0.9: labels drawn, the count's law being the estimate
    # shifted by what was drawn; of a normal interval 2.5 % lie wholly below, binomial error 0.35 %
    rng = np.random.default_rng(4)
    breached = 0
    for correct in rng.binomial(500, 0.9, 2000):
        share = correct / 500
        noisy = BootstrapDraws(share, share + math.sqrt(0.09 / 500) * rng.standard_normal(200), 500)
        breached += Objective(FLOOR, windows=1).build().update(noisy).state is ObjectiveState.BREACHED
    assert abs(breached / 2000 - 0.025) < 4 * 0.0035


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([window(0.9), draws(0.1)], "items must be windows of one kind, got counts and draws"),
        (
            [BootstrapDraws(0.1, np.ones(3), 5), BootstrapDraws(0.1, np.ones(4), 5)],
            "draws must be as many in each window, got 3 and 4",
        ),
    ],
)
def test_windows_that_do_not_go_together(items: list[TrimmedPmf | BootstrapDraws], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pooled_interval(items, 0.95)


def test_impossible_settings_and_items_are_named() -> None:
    with pytest.raises(ValueError, match="windows must be 1 or more, got 0"):
        Objective(FLOOR, windows=0)
    for level in (0.0, 1.0, math.nan):
        with pytest.raises(ValueError, match=f"level must be above 0 and below 1, got {level}"):
            Objective(FLOOR, level=level)
    with pytest.raises(ValueError, match="draws must be finite numbers"):
        BootstrapDraws(0.1, np.array([0.1, math.nan]), 5)
    with pytest.raises(ValueError, match="draws must be finite numbers"):
        BootstrapDraws(0.1, np.zeros(0), 5)
    with pytest.raises(ValueError, match="value must be a finite number, got nan"):
        BootstrapDraws(math.nan, np.ones(3), 5)
    with pytest.raises(ValueError, match="size must be 1 or more, got 0"):
        BootstrapDraws(0.1, np.ones(3), 0)
    with pytest.raises(ValueError, match=r"resume must hold windows of an objective, got one with \['x'\]"):
        Objective(FLOOR).build(PooledState([{"x": 1}], 0))
