"""The contract of every chart in CHARTS."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any, get_args

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from monitor import CHARTS, Baseline, Ewma, Shewhart, Verdict
from monitor.base.codec import plain, restored
from monitor.base.errors import ConfigError
from monitor.base.registry import METRICS, SHARES
from monitor.config.chart import MinChange
from monitor.config.root import ChartConfig
from monitor.config.task import CALIBRATION_ERRORS, Metric
from monitor.engine.charting import chart_for, chart_from_config
from monitor.stats.charts.base import ChartState
from monitor.stats.charts.detectors import best_weight
from monitor.stats.charts.latch import RELEASE_WINDOWS, ChartLogic, Latch
from monitor.stats.charts.rules import WESTERN_ELECTRIC
from monitor.stats.charts.settings import LimitsAndRules
from monitor.stats.regression.metrics import ERROR_METRICS

SIZE = 400
KINDS = pytest.mark.parametrize("kind", sorted(CHARTS))
RULED = sorted(kind for kind, chart in CHARTS.items() if issubclass(chart, LimitsAndRules))
"""Those with run rules; the others add up or average windows, and name the one rule that they are."""

MANY_RULES = (*WESTERN_ELECTRIC, "nelson3", "nelson4", "nelson7", "nelson8")


def ruled(kind: str, *rules: str) -> dict[str, Any]:
    """Return the rules as a setting, for a chart that has them."""
    return {"rules": rules} if kind in RULED else {}


def limit_rule(kind: str) -> str:
    return "we1" if kind in RULED else kind


def reference(m: int = 20, seed: int = 1, mean: float = 0.9) -> Baseline:
    """Return windows of a process whose rows have the binomial's own variance, right for both charts."""
    row_sd = math.sqrt(mean * (1 - mean))
    values = np.random.default_rng(seed).normal(mean, row_sd / math.sqrt(SIZE), m)
    return Baseline(values, np.full(m, float(SIZE)), row_sd)


def logic_of(kind: str, baseline: Baseline | None = None, **settings: Any) -> ChartLogic:
    return CHARTS[kind](**settings).build(baseline or reference())


def stream(n: int = 120, seed: int = 2) -> list[tuple[float, int]]:
    """In control, then shifted, then in control again, with sizes that vary."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(50, 800, n)
    mean = np.where((np.arange(n) > 40) & (np.arange(n) < 70), 0.84, 0.9)
    values = np.clip(rng.normal(mean, 0.3 / np.sqrt(sizes)), 0, 1)
    return [(float(v), int(s)) for v, s in zip(values, sizes, strict=True)]


def test_the_table_names_each_chart_by_its_kind() -> None:
    assert CHARTS
    assert all(chart.kind == kind for kind, chart in CHARTS.items())
    assert ChartConfig.model_json_schema()["properties"]["kind"]["enum"] == [*CHARTS]


@KINDS
def test_a_section_of_the_configuration_becomes_its_chart(kind: str) -> None:
    settings = ruled(kind, "we1", "we3")
    chart = chart_from_config(ChartConfig(kind=kind, arl0=50, **settings))  # type: ignore[arg-type]
    assert chart == CHARTS[kind](arl0=50, **settings)
    plain = chart_from_config(ChartConfig(kind=kind, sigmas=2.5))  # type: ignore[arg-type]
    assert plain == CHARTS[kind](sigmas=2.5)
    default = chart_from_config(ChartConfig(kind=kind))  # type: ignore[arg-type]
    assert (default.arl0, default.sigmas, default.detector.rules) == (370.0, None, (limit_rule(kind),))
    assert default == CHARTS[kind]()


@KINDS
def test_settings_are_frozen_and_checked(kind: str) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        CHARTS[kind]().arl0 = 5  # type: ignore[misc]
    with pytest.raises(ConfigError, match="give one of them"):
        CHARTS[kind](arl0=370, sigmas=3.0)
    with pytest.raises(ConfigError, match="sigmas: got 11; allowed is a number above 0, up to 10"):
        CHARTS[kind](sigmas=11.0)
    if kind in RULED:
        with pytest.raises(ConfigError, match="rules: got 'we7'"):
            CHARTS[kind](rules=("we7",))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ewma", "cusum"])
def test_what_a_sum_or_an_average_is_tuned_to_is_checked_and_changes_its_limits(kind: str) -> None:
    for wrong in (0.0, 0.2, 5.1, math.nan):
        with pytest.raises(ConfigError, match=r"shift: got .*; allowed is 0.25 to 5 standard deviations of"):
            CHARTS[kind](shift=wrong)
    multipliers = {logic_of(kind, shift=shift).multiplier for shift in (0.5, 1.0, 2.0)}
    assert len(multipliers) == 3


def test_the_weight_is_checked_and_stands_over_the_shift() -> None:
    for wrong in (0.0, 0.04, 1.1, math.nan):
        with pytest.raises(ConfigError, match=r"weight: got .*; allowed is 0.05 to 1"):
            Ewma(weight=wrong)
    assert Ewma(shift=2.0).detector.weight == best_weight(2.0) == 0.38
    assert Ewma(shift=2.0, weight=0.2).detector == Ewma(weight=0.2).detector


def test_an_average_of_one_window_is_the_shewhart_chart() -> None:
    ewma, plain = (logic_of(kind, **own) for kind, own in (("ewma", {"weight": 1.0}), ("shewhart", {})))
    assert ewma.multiplier == pytest.approx(plain.multiplier, rel=1e-4)
    for value, size in stream():
        one, other = ewma.update(value, size), plain.update(value, size)
        assert bool(one.rules) == bool(other.rules)
        assert one.lower == pytest.approx(other.lower, abs=1e-6)


@pytest.mark.parametrize("kind", ["shewhart_p", "shewhart_np", "laney"])
def test_charts_of_counts_are_of_the_accuracy_only(kind: str) -> None:
    config = ChartConfig(kind=kind, arl0=100, rules=("we1", "we2"))  # type: ignore[arg-type]
    accuracy, ece = {"min_change": 0.01, "better": 1}, {"better": -1}
    assert chart_for(config, "accuracy") == CHARTS[kind](arl0=100, rules=("we1", "we2"), **accuracy)
    assert chart_for(config, "ece") == Shewhart(arl0=100, rules=("we1", "we2"), **ece)
    assert chart_for(ChartConfig(kind="cusum"), "ece") == CHARTS["cusum"](**ece)


@KINDS
def test_every_setting_changes_a_verdict(kind: str) -> None:
    def verdicts(**settings: Any) -> list[Verdict]:
        logic = logic_of(kind, **settings)
        return [logic.update(*window) for window in stream()]

    default = verdicts()
    assert verdicts(arl0=370) == default
    assert verdicts(arl0=20) != default
    assert verdicts(sigmas=2.0) != default
    if kind in RULED:
        assert verdicts(arl0=50, rules=("we1", "we2")) != verdicts(arl0=50)


@KINDS
def test_the_baseline_is_left_as_it_was_and_may_be_read_only(kind: str) -> None:
    baseline = reference()
    before = (baseline.values.copy(), baseline.sizes.copy(), baseline.row_sd)
    baseline.values.flags.writeable = baseline.sizes.flags.writeable = False
    logic = CHARTS[kind]().build(baseline)
    logic.update(0.7, 10)
    np.testing.assert_array_equal(baseline.values, before[0])
    np.testing.assert_array_equal(baseline.sizes, before[1])
    assert baseline.row_sd == before[2]


@pytest.mark.slow
@KINDS
def test_a_snapshot_taken_anywhere_goes_on_with_the_same_verdicts(kind: str) -> None:
    settings = ruled(kind, *MANY_RULES)
    chart, baseline, windows = CHARTS[kind](arl0=40, **settings), reference(50), stream()
    logic, snapshots = chart.build(baseline), []
    whole = []
    for window in windows:
        snapshots.append(through_json(logic.snapshot()))
        whole.append(logic.update(*window))
    assert {v.out_of_control for v in whole} == {True, False}
    for cut in range(0, len(windows), 13):
        second = chart.build(baseline, snapshots[cut])
        assert [second.update(*window) for window in windows[cut:]] == whole[cut:]


def through_json(state: ChartState) -> ChartState:
    """Return the same state; a number that is not finite would come back as null, which no state has."""
    return msgspec.json.decode(msgspec.json.encode(state), type=ChartState)


@KINDS
def test_a_snapshot_is_not_changed_by_what_follows(kind: str) -> None:
    logic = logic_of(kind)
    logic.update(0.5, 400)
    state = logic.snapshot()
    kept = through_json(state)
    for window in stream():
        logic.update(*window)
    assert state == kept


@KINDS
def test_a_snapshot_that_is_none_is_refused(kind: str) -> None:
    own, state = own_memory(logic_of(kind)), logic_of(kind).snapshot()
    for wrong in ({}, {own: []}, {own: [], "quiet_windows": None, "more": 1}, {"x": [], "quiet_windows": 1}):
        with pytest.raises(ValueError, match=r"missing required field `quiet_windows`|unknown field"):
            restored(wrong, ChartState)
    with pytest.raises(ValueError, match="quiet_windows must be None or 0 to 7, got 9"):
        CHARTS[kind]().build(reference(), replace(state, quiet_windows=9))
    with pytest.raises(ValueError, match=f"{own} must hold .* numbers, got"):
        CHARTS[kind]().build(reference(), ChartState.from_memory(own, [math.nan] * 2, state.quiet_windows))


def own_memory(logic: ChartLogic) -> str:
    """Return the name of what a chart remembers."""
    state = logic.snapshot()
    return next(
        iter([*state.others, *(key for key in plain(state) if key not in ("others", "quiet_windows"))])
    )


def test_a_memory_of_a_kind_without_a_field_is_kept_by_its_kind() -> None:
    state = ChartState.from_memory("calm", [0.5], 3)
    assert through_json(state) == state
    assert (state.memory("calm"), state.memory("ewma"), state.quiet_windows) == ([0.5], None, 3)
    assert ChartState.from_memory("ewma", [0.5], None) == ChartState(ewma=[0.5], quiet_windows=None)


@KINDS
@pytest.mark.parametrize("before", ["shewhart", "ewma", "cusum"])
def test_a_chart_that_follows_one_of_another_kind_takes_over_the_alarm_only(kind: str, before: str) -> None:
    # the configuration changed while the agent was down: no reason to fail, nor to read one state as another
    first = logic_of(before)
    assert first.update(0.5, SIZE).out_of_control
    second = CHARTS[kind]().build(reference(), first.snapshot())
    assert second.update(0.9, SIZE).out_of_control
    same_state = kind == before or {kind, before} <= set(RULED)
    if not same_state:
        again = CHARTS[kind]().build(reference(), first.snapshot())
        assert again.snapshot() == replace(logic_of(kind).snapshot(), quiet_windows=0)


@KINDS
def test_a_constant_stream_at_the_centre_never_alarms(kind: str) -> None:
    logic = logic_of(kind, arl0=40, baseline=reference(50), **ruled(kind, *MANY_RULES))
    for _ in range(50):
        verdict = logic.update(logic.center, SIZE)
        assert (verdict.rules, verdict.out_of_control) == ((), False)


@KINDS
@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_reference_without_variance_takes_its_own_value_and_no_other(kind: str, value: float) -> None:
    baseline = Baseline(np.full(7, value), np.full(7, 500.0), row_sd=0.0)
    logic = logic_of(kind, baseline)
    same = logic.update(value, 500)
    assert same == Verdict(value, value, value, (), False)
    assert logic.update(abs(value - 1e-12), 500).rules == ()
    other = logic.update(0.5, 500)
    assert other == Verdict(value, value, value, (limit_rule(kind),), True)
    assert through_json(logic.snapshot()) == logic.snapshot()


def test_equal_confidences_of_any_value_are_no_variance_despite_rounding() -> None:
    # the standard deviation of equal numbers comes out near 1e-17, and their means differ in the last digit
    values = np.array([np.full(n, 0.9).mean() for n in (101, 333, 500, 777, 997)])
    baseline = Baseline(values, np.array([101.0, 333.0, 500.0, 777.0, 997.0]), float(np.full(500, 0.9).std()))
    logic = logic_of("shewhart", baseline)
    for n in (50, 123, 499, 1001):
        assert logic.update(float(np.full(n, 0.9).mean()), n).rules == ()
    assert logic.update(0.9001, 500).rules == ("we1",)


def test_equal_reference_windows_leave_the_rows_own_variance() -> None:
    logic = logic_of("shewhart", Baseline(np.full(20, 0.9), np.full(20, 400.0), row_sd=0.2), sigmas=3.0)
    verdict = logic.update(0.9, 400)
    assert (verdict.lower, verdict.upper) == pytest.approx((0.87, 0.93))


@KINDS
def test_limits_follow_the_windows_size_and_stay_within_0_and_1(kind: str) -> None:
    logic = logic_of(kind, sigmas=1.5)
    small, large, one = (logic.update(logic.center, size) for size in (100, 400, 1))
    assert small.center - small.lower == pytest.approx(2 * (large.center - large.lower))
    assert one.upper == 1.0
    for value in (0.0, 1.0):
        for size in (1, 10, SIZE):
            verdict = logic.update(value, size)
            assert 0.0 <= verdict.lower <= verdict.center <= verdict.upper <= 1.0
    assert logic.update(0.0, SIZE).rules == (limit_rule(kind),)


@KINDS
def test_a_window_breaks_its_limits_just_where_it_leaves_those_that_are_shown(kind: str) -> None:
    logic, was_on = logic_of(kind, sigmas=2.0), False
    for value, size in stream():
        verdict = logic.update(value, size)
        if kind in RULED or not was_on:  # while the alarm is on, an average may be out wherever a window lies
            assert bool(verdict.rules) == (not verdict.lower <= value <= verdict.upper)
        was_on = verdict.out_of_control


@KINDS
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -0.01, 1.01])
def test_a_value_that_is_no_ratio_is_refused_and_changes_nothing(kind: str, value: float) -> None:
    logic = logic_of(kind)
    logic.update(0.5, 400)
    before = through_json(logic.snapshot())
    with pytest.raises(ValueError, match=r"value: got .*; a chart takes an estimate from 0 to 1, and no"):
        logic.update(value, 400)
    with pytest.raises(ValueError, match=r"size: got 0; a window has at least 1 row"):
        logic.update(0.9, 0)
    assert logic.snapshot() == before


@KINDS
def test_one_lasting_shift_is_one_alarm(kind: str) -> None:
    # a shift of 3 sigma breaks we1 in half of its windows only: without the latch it would flicker
    logic = logic_of(kind, reference(100), arl0=370 if kind in RULED else 2000)
    sigma = 0.3 / math.sqrt(SIZE)
    rng = np.random.default_rng(9)
    values = [*rng.normal(0.9, sigma / 2, 30), *rng.normal(0.9 - 3 * sigma, sigma, 60)]
    verdicts = [logic.update(float(v), SIZE) for v in values]
    states = [v.out_of_control for v in verdicts]
    assert not any(states[:30])
    assert sum(after and not before for before, after in itertools.pairwise(states)) == 1
    assert all(states[40:])
    assert kind not in RULED or any(not v.rules for v in verdicts[40:])


@pytest.mark.parametrize("kind", ["ewma", "cusum"])
def test_a_shift_that_such_a_chart_is_tuned_to_is_one_alarm_and_ends_soon_after_it(kind: str) -> None:
    # 1 sigma for 80 windows, each of 100 charts with known limits: seen by nearly all, and rarely twice
    rng = np.random.default_rng(10)
    onsets = lasting = 0
    for _ in range(100):
        logic = ChartLogic(0.9, 0.09, 4.77 if kind == "cusum" else 2.78, CHARTS[kind]().detector)
        z = np.concatenate([rng.normal(1.0, 1.0, 80), rng.normal(0.0, 1.0, 60)])
        states = [False] + [logic.update(0.9 + 0.3 * float(x) / 20, SIZE).out_of_control for x in z]
        onsets += sum(b and not a for a, b in itertools.pairwise(states[:81]))
        lasting += all(states[81:])
    assert 98 <= onsets <= 106
    assert lasting <= 3


@KINDS
def test_eight_windows_in_control_release_the_alarm_and_seven_do_not(kind: str) -> None:
    logic = logic_of(kind)
    assert logic.update(0.5, SIZE).out_of_control
    settle(logic)
    assert all(logic.update(logic.center, SIZE).out_of_control for _ in range(RELEASE_WINDOWS - 1))
    assert logic.update(0.5, SIZE).out_of_control  # starts the count again
    settle(logic)
    assert all(logic.update(logic.center, SIZE).out_of_control for _ in range(RELEASE_WINDOWS - 1))
    assert not logic.update(logic.center, SIZE).out_of_control
    assert logic.update(0.5, SIZE).out_of_control  # a later shift is a new alarm


def settle(logic: ChartLogic) -> None:
    """Add windows at the centre until the last one that breaks a rule: sums take a while to come back."""
    for _ in range(40):
        ahead = ChartLogic(
            logic.center, logic.row_variance, logic.multiplier, logic.detector, logic.snapshot()
        )
        ahead.update(logic.center, SIZE)
        if ahead.snapshot().quiet_windows:
            return
        logic.update(logic.center, SIZE)
    raise AssertionError("an alarm outlasts its shift by 40 windows")


@KINDS
def test_a_new_baseline_starts_with_the_alarm_off(kind: str) -> None:
    chart = CHARTS[kind]()
    logic = chart.build(reference())
    assert logic.update(0.6, SIZE).out_of_control
    again = chart.build(reference(mean=0.6))
    assert not again.update(0.6, SIZE).out_of_control


@KINDS
@pytest.mark.parametrize(
    ("baseline", "message"),
    [
        (
            Baseline(np.full(5, 0.9), np.full(4, 100.0), 0.1),
            r"values and sizes must be \(m,\) alike",
        ),
        (Baseline(np.full((5, 1), 0.9), np.full((5, 1), 9.0), 0.1), r"values and sizes must be \(m,\) alike"),
        (
            Baseline(np.array([0.9, math.nan] * 3), np.full(6, 9.0), 0.1),
            r"baseline.values\[1\]: got nan",
        ),
        (
            Baseline(np.array([0.9, 1.2] * 3), np.full(6, 9.0), 0.1),
            r"baseline.values\[1\]: got 1.2; allowed",
        ),
        (
            Baseline(np.full(5, 0.9), np.array([9.0, 9, 0, 9, 9]), 0.1),
            r"baseline.sizes\[2\]: got 0.0",
        ),
        (Baseline(np.full(5, 0.9), np.full(5, math.inf), 0.1), r"baseline.sizes\[0\]: got inf"),
        (
            Baseline(np.full(5, 0.9), np.full(5, 9.0), math.nan),
            r"baseline.row_sd: got nan; allowed is",
        ),
        (Baseline(np.full(5, 0.9), np.full(5, 9.0), -1.0), r"baseline.row_sd: got -1.0; allowed is"),
    ],
)
def test_a_baseline_that_is_none_is_refused(kind: str, baseline: Baseline, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CHARTS[kind]().build(baseline)


def out(logic: ChartLogic, value: float, times: int = 1) -> list[tuple[bool, bool]]:
    """Alarm and improvement after each of some equal windows."""
    verdicts = [logic.update(value, SIZE) for _ in range(times)]
    return [(verdict.out_of_control, verdict.improved) for verdict in verdicts]


@KINDS
@pytest.mark.parametrize("better", [1, -1])
def test_a_change_for_the_better_is_no_alarm_but_an_improvement(kind: str, better: int) -> None:
    logic = logic_of(kind, reference(mean=0.6), better=better)
    up, down = (logic.center + side * 0.35 for side in (better, -better))
    assert out(logic, up)[-1] == (False, True)
    logic = logic_of(kind, reference(mean=0.6), better=better)
    assert out(logic, down)[-1] == (True, False)
    logic = logic_of(kind, reference(mean=0.6))
    assert out(logic, up)[-1] == (True, False), "without a better side each change is an alarm"


@KINDS
def test_an_alarm_hides_no_improvement_for_longer_than_it_stands_and_none_hides_an_alarm(kind: str) -> None:
    logic = logic_of(kind, reference(mean=0.6), better=1)
    assert out(logic, logic.center + 0.35)[-1] == (False, True)
    worse = out(logic, logic.center - 0.35, 6)
    assert worse[-1] == (True, False), "the alarm comes while the improvement is still latched"
    better = out(logic, logic.center + 0.35, 30)
    assert better[0] == (True, False)
    assert better[-1] == (False, True), "windows that are better release the alarm"
    assert better == sorted(better, reverse=True), "once"


@KINDS
def test_an_improvement_is_released_by_eight_windows_that_show_none(kind: str) -> None:
    logic = logic_of(kind, reference(mean=0.6), better=1)
    out(logic, logic.center + 0.35)
    states = out(logic, logic.center, 40)
    stood = states.count((False, True))
    assert stood >= RELEASE_WINDOWS - 1
    assert states == [(False, True)] * stood + [(False, False)] * (40 - stood)
    assert kind not in RULED or stood == RELEASE_WINDOWS - 1


@KINDS
def test_a_snapshot_keeps_an_improvement(kind: str) -> None:
    chart = CHARTS[kind](better=1, min_change=0.005)
    logic = chart.build(reference())
    for value in (0.99, 0.9, 0.9):
        logic.update(value, SIZE)
    saved = msgspec.msgpack.encode(logic.snapshot())
    resumed = chart.build(reference(), msgspec.msgpack.decode(saved, type=ChartState))
    for value in (0.9, 0.9, 0.8, 0.9, 0.99, 0.9):
        assert resumed.update(value, SIZE) == logic.update(value, SIZE)
    old = ChartState(quiet_windows=2)
    assert (old.quiet_improved, chart.build(reference(), old).update(0.9, SIZE).out_of_control) == (
        None,
        True,
    )


@KINDS
def test_a_change_below_the_least_one_is_no_alarm(kind: str) -> None:
    """A window of 1,000,000 rows has a sigma of 0.0003: a thousandth off its centre is far out."""
    size = 1_000_000
    for least, alarms in ((0.0, True), (0.0009, True), (0.0011, False)):
        logic = logic_of(kind, min_change=least)
        states = [logic.update(logic.center - 0.001, size).out_of_control for _ in range(60)]
        assert any(states) is alarms, (kind, least)
    logic = logic_of(kind, min_change=0.01)
    verdicts = [logic.update(logic.center - 0.011, size) for _ in range(60)]
    assert verdicts[-1].out_of_control


@pytest.mark.parametrize("kind", RULED)
def test_the_limits_lie_no_nearer_than_the_least_change(kind: str) -> None:
    logic = logic_of(kind, min_change=0.01)
    verdict = logic.update(logic.center, 1_000_000)
    assert (verdict.lower, verdict.upper) == pytest.approx(
        (logic.center - 0.01, logic.center + 0.01), abs=1e-8
    )
    assert logic.update(logic.center - 0.01, 1_000_000).rules, "at least: the change itself is an alarm"
    assert not logic.update(logic.center - 0.00999, 1_000_000).rules


@pytest.mark.parametrize(
    "kind", ["shewhart", "laney", "ewma", "cusum"]
)  # the others' sigma is the binomial's
def test_without_any_variation_the_least_change_decides(kind: str) -> None:
    same = Baseline(np.full(20, 0.9), np.full(20, float(SIZE)), 0.0)
    for value, alarm in ((0.895, False), (0.885, True)):
        logic = CHARTS[kind](min_change=0.01).build(same)
        [*_, last] = [logic.update(value, SIZE) for _ in range(3)]
        assert last.out_of_control is alarm
        assert (last.lower, last.upper) == pytest.approx((0.89, 0.91))


def test_patterns_about_order_and_spread_point_to_no_side() -> None:
    """Six windows that fall above the centre, and fifteen within a third of the limits, are alarms."""
    falling = CHARTS["shewhart"](rules=("nelson3",), sigmas=3.0, better=1).build(reference())
    states = [falling.update(0.96 - 0.005 * i, SIZE) for i in range(7)]
    assert (states[-1].out_of_control, states[-1].improved) == (True, False)
    rising = CHARTS["shewhart"](rules=("nelson3",), sigmas=3.0, better=1).build(reference())
    states = [rising.update(0.92 + 0.005 * i, SIZE) for i in range(7)]
    assert (states[-1].out_of_control, states[-1].improved) == (False, True)
    quiet = CHARTS["shewhart"](rules=("nelson7",), sigmas=3.0, better=1).build(reference())
    states = [quiet.update(0.9 + 0.001 * (i % 2 + 1), SIZE) for i in range(16)]
    assert (states[-1].out_of_control, states[-1].improved) == (True, False)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"min_change": -0.1}, "min_change: got -0.1; allowed is 0 to 1"),
        ({"min_change": math.nan}, "min_change: got nan; allowed is 0 to 1"),
        ({"better": 2}, "better: got 2; allowed are 1, -1 and 0"),
    ],
)
def test_impossible_changes_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Shewhart(**settings)


def test_each_metric_has_its_better_side_and_its_least_change() -> None:
    config = ChartConfig(kind="laney")
    for metric, entry in METRICS.items():
        chart = chart_for(config, metric)
        smaller = metric in (*CALIBRATION_ERRORS, "mae", "rmse", "mape", "wape")
        assert chart.better == (-1 if smaller else 0 if metric in ("bias", "coverage") else 1) == entry.better
        assert chart.bounds == entry.bounds
        assert chart.min_change == (0.01 if metric in SHARES else 0.0)
    every = ChartConfig(min_change=0.02)
    one = ChartConfig(min_change={"accuracy": 0.03})
    assert [every.least_change(metric) for metric in ("accuracy", "ece", "mae")] == [0.02, 0.02, 0.0]
    assert [one.least_change(metric) for metric in ("accuracy", "ece", "bias")] == [0.03, 0.0, 0.0]
    silent = {metric for metric, entry in METRICS.items() if not entry.pages}
    assert silent == {*CALIBRATION_ERRORS, *ERROR_METRICS}
    ratios = [metric for metric, entry in METRICS.items() if entry.scale == "ratio"]
    assert ratios == list(MinChange.model_fields)
    assert {*ratios} == {*get_args(Metric), *SHARES}


def test_a_chart_without_bounds_has_the_same_verdicts_in_any_unit() -> None:
    values = np.random.default_rng(5).normal(0.0, 0.3, 20)
    stream = [0.1, -0.2, 1.5, 0.0]

    def verdicts(unit: float) -> list[Verdict]:
        baseline = Baseline(values * unit, np.full(20, 500.0), 0.0)
        logic = Shewhart(bounds=(-math.inf, math.inf)).build(baseline)
        return [logic.update(value * unit, 500) for value in stream]

    small, large = verdicts(1e-12), verdicts(1e12)
    assert [each.rules for each in small] == [(), (), ("we1",), ()] == [each.rules for each in large]
    assert [each.upper * 1e24 for each in small] == pytest.approx([each.upper for each in large])
    with pytest.raises(ValueError, match="a chart takes an estimate from -inf to inf, and no unknown one"):
        Shewhart(bounds=(-math.inf, math.inf)).build(Baseline(values, np.full(20, 9.0), 0.0)).update(
            math.inf, 9
        )


def test_limits_move_and_are_clipped_within_the_bounds() -> None:
    verdict = Verdict(-1.0, -2.0, 0.5, (), False)
    moved = verdict.moved_by(1.0, (-math.inf, math.inf))
    assert (moved.center, moved.lower, moved.upper) == (0.0, -1.0, 1.5)
    clipped = verdict.moved_by(1.0)
    assert (clipped.center, clipped.lower, clipped.upper) == (0.0, 0.0, 1.0)
    doubled = verdict.mapped(lambda end: 2 * end)
    assert (doubled.center, doubled.lower, doubled.upper) == (-2.0, -4.0, 1.0)


def test_the_latch_refuses_a_state_that_it_cannot_be_in() -> None:
    with pytest.raises(ValueError, match="quiet_windows must be None or 0 to 7, got -1"):
        Latch(-1)
    assert Latch(7).update(broken=False) is False
