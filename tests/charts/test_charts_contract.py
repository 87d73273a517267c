"""What every chart in CHARTS keeps, whatever it computes."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from monitor.charts import CHARTS, Baseline, Verdict, chart_from_config
from monitor.charts.latch import RELEASE_WINDOWS, Latch, LatchedLogic
from monitor.charts.rules import RULES
from monitor.charts.settings import LimitsAndRules
from monitor.config import ChartConfig
from monitor.errors import ConfigError

SIZE = 400
KINDS = pytest.mark.parametrize("kind", sorted(CHARTS))


def reference(m: int = 20, seed: int = 1, mean: float = 0.9) -> Baseline:
    """Windows of a process whose rows have the binomial's own variance, right for both charts."""
    row_sd = math.sqrt(mean * (1 - mean))
    values = np.random.default_rng(seed).normal(mean, row_sd / math.sqrt(SIZE), m)
    return Baseline(values, np.full(m, float(SIZE)), row_sd)


def logic_of(kind: str, baseline: Baseline | None = None, **settings: Any) -> LatchedLogic:
    logic = CHARTS[kind](**settings).build(baseline or reference())
    assert isinstance(logic, LatchedLogic)
    return logic


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
    allowed = ChartConfig.model_fields["kind"].annotation
    assert set(CHARTS) == set(allowed.__args__)  # type: ignore[union-attr]


@KINDS
def test_a_section_of_the_configuration_becomes_its_chart(kind: str) -> None:
    chart = chart_from_config(ChartConfig(kind=kind, arl0=50, rules=("we1", "we3")))  # type: ignore[arg-type]
    assert chart == CHARTS[kind](arl0=50, rules=("we1", "we3"))
    plain = chart_from_config(ChartConfig(kind=kind, sigmas=2.5))  # type: ignore[arg-type]
    assert plain == CHARTS[kind](sigmas=2.5)
    default = chart_from_config(ChartConfig(kind=kind))  # type: ignore[arg-type]
    assert isinstance(default, LimitsAndRules)
    assert (default.arl0, default.sigmas, default.rules) == (370.0, None, ("we1",))


@KINDS
def test_settings_are_frozen_and_checked(kind: str) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        CHARTS[kind]().arl0 = 5  # type: ignore[misc]
    with pytest.raises(ConfigError, match="give one of them"):
        CHARTS[kind](arl0=370, sigmas=3.0)
    with pytest.raises(ConfigError, match="rules: got 'we7'"):
        CHARTS[kind](rules=("we7",))


@KINDS
def test_every_setting_changes_a_verdict(kind: str) -> None:
    def verdicts(**settings: Any) -> list[Verdict]:
        logic = logic_of(kind, **settings)
        return [logic.update(*window) for window in stream()]

    default = verdicts()
    assert verdicts(arl0=370) == default
    assert verdicts(arl0=20) != default
    assert verdicts(sigmas=2.0) != default
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


@KINDS
def test_a_snapshot_taken_anywhere_goes_on_with_the_same_verdicts(kind: str) -> None:
    chart, baseline, windows = CHARTS[kind](arl0=92, rules=RULES), reference(50), stream()
    logic = chart.build(baseline)
    whole = [logic.update(*window) for window in windows]
    assert {v.out_of_control for v in whole} == {True, False}
    for cut in range(0, len(windows), 7):
        first = chart.build(baseline)
        for window in windows[:cut]:
            first.update(*window)
        state: Mapping[str, Any] = json.loads(json.dumps(first.snapshot(), allow_nan=False))
        second = chart.build(baseline, state)
        assert [second.update(*window) for window in windows[cut:]] == whole[cut:]


@KINDS
def test_a_snapshot_is_not_changed_by_what_follows(kind: str) -> None:
    logic = logic_of(kind)
    logic.update(0.5, 400)
    state = logic.snapshot()
    kept = json.dumps(state)
    for window in stream():
        logic.update(*window)
    assert json.dumps(state) == kept


@KINDS
def test_a_snapshot_that_is_none_is_refused(kind: str) -> None:
    for wrong in ({}, {"recent": []}, {"recent": [], "quiet_windows": None, "more": 1}):
        with pytest.raises(ValueError, match="resume must hold recent and quiet_windows, got"):
            CHARTS[kind]().build(reference(), wrong)
    with pytest.raises(ValueError, match="quiet_windows must be None or 0 to 7, got 9"):
        CHARTS[kind]().build(reference(), {"recent": [], "quiet_windows": 9})


@KINDS
def test_a_constant_stream_at_the_centre_never_alarms(kind: str) -> None:
    logic = logic_of(kind, arl0=92, rules=RULES, baseline=reference(50))
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
    assert other == Verdict(value, value, value, ("we1",), True)
    json.dumps(logic.snapshot(), allow_nan=False)


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
    logic = logic_of(kind, sigmas=4.0)
    small, large, one = (logic.update(logic.center, size) for size in (100, 400, 1))
    assert small.center - small.lower == pytest.approx(2 * (large.center - large.lower))
    assert (one.lower, one.upper) == (0.0, 1.0)
    for value, size in ((0.0, 1), (1.0, 1), (1.0, 10)):
        assert logic.update(value, size).rules == ()
    assert logic.update(0.0, 10).rules == ("we1",)


@KINDS
def test_a_value_breaks_we1_just_where_it_leaves_the_limits_that_are_shown(kind: str) -> None:
    logic = logic_of(kind, sigmas=2.0)
    for value, size in stream():
        verdict = logic.update(value, size)
        assert ("we1" in verdict.rules) == (not verdict.lower <= value <= verdict.upper)


@KINDS
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -0.01, 1.01])
def test_a_value_that_is_no_ratio_is_refused_and_changes_nothing(kind: str, value: float) -> None:
    logic = logic_of(kind)
    logic.update(0.5, 400)
    before = json.dumps(logic.snapshot())
    with pytest.raises(ValueError, match=r"value: got .*; a chart takes an estimate from 0 to 1, and no"):
        logic.update(value, 400)
    with pytest.raises(ValueError, match=r"size: got 0; a window has at least 1 row"):
        logic.update(0.9, 0)
    assert json.dumps(logic.snapshot()) == before


@KINDS
def test_one_lasting_shift_is_one_alarm(kind: str) -> None:
    # a shift of 3 sigma breaks we1 in half of its windows only: without the latch it would flicker
    logic = logic_of(kind, reference(100))
    sigma = 0.3 / math.sqrt(SIZE)
    rng = np.random.default_rng(9)
    values = [*rng.normal(0.9, sigma / 2, 30), *rng.normal(0.9 - 3 * sigma, sigma, 60)]
    verdicts = [logic.update(float(v), SIZE) for v in values]
    states = [v.out_of_control for v in verdicts]
    assert not any(states[:30])
    assert sum(after and not before for before, after in itertools.pairwise(states)) == 1
    assert all(states[40:])
    assert any(not v.rules for v in verdicts[40:])


@KINDS
def test_eight_windows_in_control_release_the_alarm_and_seven_do_not(kind: str) -> None:
    logic = logic_of(kind)
    assert logic.update(0.5, SIZE).out_of_control
    assert all(logic.update(logic.center, SIZE).out_of_control for _ in range(RELEASE_WINDOWS - 1))
    assert logic.update(0.5, SIZE).out_of_control  # starts the count again
    assert all(logic.update(logic.center, SIZE).out_of_control for _ in range(RELEASE_WINDOWS - 1))
    assert not logic.update(logic.center, SIZE).out_of_control
    assert logic.update(0.5, SIZE).out_of_control  # a later shift is a new alarm


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


@KINDS
@pytest.mark.parametrize("settings", [{}, {"sigmas": 3.0}])
def test_a_short_reference_is_a_sentence(kind: str, settings: dict[str, float]) -> None:
    for m in (0, 1, 4):
        with pytest.raises(ConfigError, match=f"reference: got {m} windows for a control chart"):
            CHARTS[kind](**settings).build(reference(m))
    CHARTS[kind](**settings).build(reference(5))


def test_the_latch_refuses_a_state_that_it_cannot_be_in() -> None:
    with pytest.raises(ValueError, match="quiet_windows must be None or 0 to 7, got -1"):
        Latch(-1)
    assert Latch(7).update(broken=False) is False
