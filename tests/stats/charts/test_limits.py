"""Limits from a promise: exact promises, and refused ones with their sentences."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.stats import chi2, norm, t

from monitor import Cusum, Ewma, Shewhart, ShewhartP
from monitor.base.errors import ConfigError
from monitor.stats.charts.detectors import RunRules, Spread
from monitor.stats.charts.fleet import Limits
from monitor.stats.charts.latch import ChartLogic, RelevantChange
from monitor.stats.charts.limits import HIGHEST_ARL0, check_settings, false_alarm_rate, limits
from monitor.stats.charts.rules import WESTERN_ELECTRIC
from monitor.stats.charts.settings import Chart
from tests.stats.charts.run_lengths import in_control_rate, limit_multiplier, max_arl0

INF = math.inf


@pytest.mark.slow
def test_known_limits_are_the_textbooks() -> None:
    assert limit_multiplier(1 / (2 * norm.sf(3.0)), ("we1",), INF) == pytest.approx(3.0, abs=1e-6)
    assert limit_multiplier(91.7508, WESTERN_ELECTRIC, INF) == pytest.approx(3.0, abs=1e-3)
    assert limits(370, ("we1",), INF).inflation == 1.0


@pytest.mark.parametrize("m", [5, 10, 20, 50, 100, 1000, INF])
@pytest.mark.parametrize("rules", [("we1",), ("we1", "we2"), ("we2", "we3")])
def test_the_rate_is_the_promised_one(rules: tuple[str, ...], m: float) -> None:
    for arl0 in (20.0, 370.0, 5000.0):
        assert 1 / in_control_rate(rules, m, limits(arl0, rules, m)) == pytest.approx(arl0, rel=1e-6)


@pytest.mark.parametrize("m", [10, 20, 100])
def test_quadrature_agrees_with_a_sum_over_drawn_baselines(m: int) -> None:
    # we1 has a closed form given the baseline; 200,000 drawn baselines, bound of four standard errors
    rng = np.random.default_rng(5)
    chosen = limits(370, ("we1",), m)
    centre = rng.standard_normal(200_000) / math.sqrt(m)
    s2 = rng.chisquare(m - 1, 200_000) / (m - 1)
    half = chosen.multiplier * np.sqrt(1 + chosen.inflation**2 * np.maximum(0, s2 - 1))
    rates = norm.sf(half - centre) + norm.sf(half + centre)
    assert abs(rates.mean() - 1 / 370) < 4 * rates.std() / math.sqrt(200_000)


@pytest.mark.parametrize("m", [5, 20, 100])
def test_a_sigma_from_the_reference_alone_takes_students_t(m: int) -> None:
    # κL is the multiplier of a prediction interval: t with m - 1 degrees of freedom times √(1 + 1/m)
    chosen = limits(370, ("we1",), m)
    exact = t.isf(0.5 / 370, m - 1) * math.sqrt(1 + 1 / m)
    assert chosen.multiplier * chosen.inflation == pytest.approx(exact, rel=1e-4)


@pytest.mark.parametrize("m", [10, 20, 100])
def test_overdispersion_costs_what_is_stated_and_no_more(m: int) -> None:
    chosen = limits(370, ("we1",), m)
    laney = Limits(limit_with_laney(m), 1.0)
    phis = [1.1, 1.2, 1.35, 1.5, 2.0, 3.0, 10.0]
    ours = [370 * in_control_rate(("we1",), m, chosen, phi) for phi in phis]
    plain = [370 * in_control_rate(("we1",), m, laney, phi) for phi in phis]
    assert max(ours) < {10: 3.5, 20: 2.35, 100: 1.4}[m] < max(plain) + 0.2
    assert ours[-1] < 1.1  # far out the promise holds again
    assert all(a <= b for a, b in zip(ours, plain, strict=True))


def limit_with_laney(m: int) -> float:
    """Return the multiplier that keeps the promise at φ = 1 with Laney's plain inflation, by bisection."""
    low, high = 2.0, 4.0
    for _ in range(40):
        middle = (low + high) / 2
        rate = in_control_rate(("we1",), m, Limits(middle, 1.0))
        low, high = (middle, high) if rate > 1 / 370 else (low, middle)
    return low


def test_the_plain_mean_run_length_of_few_windows_is_carried_by_rare_baselines() -> None:
    # why the harmonic mean: at m = 20 the one baseline in a hundred with the widest limits holds most of it
    m, chosen = 20, limits(370, ("we1",), 20)
    s2 = chi2.ppf((np.arange(20_000) + 0.5) / 20_000, m - 1) / (m - 1)
    half = chosen.multiplier * np.sqrt(1 + chosen.inflation**2 * np.maximum(0, s2 - 1))
    arl = 1 / (2 * norm.sf(half))
    assert arl[-200:].sum() > 0.5 * arl.sum()


@pytest.mark.slow
def test_more_rules_and_a_larger_promise_widen_the_limits() -> None:
    for m in (20, INF):
        grown = [
            limit_multiplier(370, rules, m) for rules in (("we1",), ("we1", "we2"), ("we1", "we2", "we3"))
        ]
        assert grown == sorted(grown)
        assert grown[0] < grown[-1]
        wider = [limit_multiplier(arl0, ("we1", "we2"), m) for arl0 in (20, 92, 370, 10_000, 1_000_000)]
        assert all(a < b for a, b in itertools.pairwise(wider))


def test_the_order_of_the_rules_does_not_matter() -> None:
    assert limits(92, ("we4", "we1"), 50) == limits(92, ("we1", "we4"), 50)


def test_eight_in_a_row_bounds_what_can_be_promised() -> None:
    assert max_arl0(("we4",), INF) == pytest.approx(255.0, rel=1e-3)
    assert max_arl0(WESTERN_ELECTRIC, INF) == pytest.approx(255.0, rel=1e-3)
    reach = [max_arl0(("we1", "we4"), m) for m in (5, 10, 20, 50, 100, 1000)]
    assert reach == sorted(reach)
    assert max_arl0(("we1", "we2"), 20) == 1_000_000
    just = math.floor(reach[2])
    assert 1 / in_control_rate(("we1", "we4"), 20, limits(just, ("we1", "we4"), 20)) == pytest.approx(just)


def test_we4_alone_draws_the_textbooks_limits_and_keeps_its_own_rate() -> None:
    assert limits(92, ("we4",), 20) == Limits(3.0, 1.0)
    assert 1 / false_alarm_rate(Shewhart(arl0=92, rules=("we4",)), INF) == pytest.approx(255.0, rel=1e-3)


def test_nelson7_alone_has_one_rate_at_each_reference_and_no_promise_beyond_it() -> None:
    """Windows of chance 1 − 2·0.1587 until fifteen in a row: (1 − p¹⁵)/(p¹⁵(1 − p)), p = 0.6827, is 963."""
    assert max_arl0(("nelson7",), INF) == pytest.approx(963.3, abs=0.1)
    assert 1 / false_alarm_rate(Shewhart(arl0=370, rules=("nelson7",)), INF) == pytest.approx(963.3, abs=0.1)
    assert 500 < max_arl0(("nelson7",), 20) < max_arl0(("nelson7",), 100) < 963
    with pytest.raises(
        ConfigError, match=r"at most 963 windows together, because nelson7 \(fifteen in a row"
    ):
        Shewhart(arl0=1000, rules=("nelson7",))


def test_out_of_reach_says_what_was_asked_what_is_possible_and_what_to_do() -> None:
    with pytest.raises(ConfigError) as error:
        limits(370, WESTERN_ELECTRIC, 20)
    assert str(error.value) == (
        "arl0: got 370, which stands where neither arl0 nor sigmas is given, but with 20 reference windows "
        "the rules we1, we2, we3, we4 reach at most 153 windows together, because we4 (eight in a row on one "
        "side) does not widen with the limits; lower arl0, leave out we4, or give sigmas"
    )
    with pytest.raises(ConfigError, match=r"got 300, but with known limits .* at most 254 windows together"):
        Shewhart(arl0=300, rules=("we1", "we4"))
    with pytest.raises(
        ConfigError, match="so few windows tell centre and sigma too badly; lower arl0, take more reference"
    ):
        limits(1_000_000, ("we1", "we2", "we3"), 5)


@pytest.mark.parametrize("spread", [Spread.KNOWN, Spread.REFERENCE])
@pytest.mark.parametrize("m", [5, 20, math.inf])
def test_one_rule_alone_reaches_every_arl0_that_may_be_asked_for(m: float, spread: Spread) -> None:
    assert max_arl0(("we1",), m, spread) == HIGHEST_ARL0


@pytest.mark.parametrize("m", [0, 4, 4.9, math.nan])
def test_too_few_reference_windows(m: float) -> None:
    expected = (
        f"reference: got {m:g} windows for a control chart, which needs at least 5 \\(20 or more are good\\)"
    )
    for call in (
        lambda: limits(370, ("we1",), m),
        lambda: max_arl0(("we1",), m),
        lambda: false_alarm_rate(Shewhart(sigmas=3.0), m),
        lambda: in_control_rate(("we1",), m, Limits(3.0, 1.0)),
    ):
        with pytest.raises(ConfigError, match=expected):
            call()


@pytest.mark.parametrize(
    ("arl0", "sigmas", "message"),
    [
        (9.0, None, "arl0: got 9; allowed is 10 to 1,000,000 windows"),
        (2e6, None, r"arl0: got 2e\+06; allowed is 10 to 1,000,000 windows"),
        (math.nan, None, "arl0: got nan; allowed is"),
        (None, 0.0, "sigmas: got 0; allowed is a number above 0, up to 10"),
        (None, 10.5, "sigmas: got 10.5; allowed is a number above 0, up to 10"),
        (None, math.nan, "sigmas: got nan; allowed is"),
        (370.0, 3.0, r"arl0 and sigmas: got both \(370 and 3\); give one of them"),
    ],
)
def test_settings_out_of_range_are_named(arl0: float | None, sigmas: float | None, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_settings(arl0, sigmas, RunRules(("we1",)))


def test_the_rate_that_check_prints() -> None:
    for m in (20, 57, INF):
        assert false_alarm_rate(Shewhart(), m) == pytest.approx(1 / 370, rel=1e-6)
        assert false_alarm_rate(Shewhart(arl0=50, rules=("we1", "we2")), m) == pytest.approx(1 / 50, rel=1e-6)
    # textbook 3 sigma: the exact figures of the rules with known limits, fewer rows of reference, more alarms
    assert 1 / false_alarm_rate(Shewhart(sigmas=3.0, rules=WESTERN_ELECTRIC), INF) == pytest.approx(
        91.75, abs=0.05
    )
    assert 1 / false_alarm_rate(Shewhart(sigmas=3.0, rules=WESTERN_ELECTRIC), 20) == pytest.approx(
        72, abs=0.5
    )


def test_the_least_change_makes_false_alarms_rarer() -> None:
    """Witness: the probability of a window beyond limits and change, with known limits and 20 windows."""
    beyond = 2 * norm.sf(4.0)
    assert false_alarm_rate(Shewhart(min_change=0.01), INF, 0.0025) == pytest.approx(beyond, rel=1e-6)
    assert false_alarm_rate(Shewhart(min_change=0.01), INF, 0.01) == pytest.approx(1 / 370, rel=1e-6)
    assert false_alarm_rate(Shewhart(min_change=0.01), INF) == pytest.approx(1 / 370, rel=1e-6)
    off = 2 * norm.sf(4.0 / math.sqrt(1 + 1 / 20))
    assert false_alarm_rate(ShewhartP(min_change=0.01), 20, 0.0025) == pytest.approx(off, rel=1e-4)
    every = Shewhart(sigmas=3.0, rules=WESTERN_ELECTRIC, min_change=0.01)
    assert false_alarm_rate(every, INF, 0.0025) == pytest.approx(beyond, rel=1e-6)
    assert false_alarm_rate(every, INF, 0.05) == pytest.approx(1 / 91.75, rel=1e-3)


@pytest.mark.simulation
@pytest.mark.parametrize(
    "chart",
    [
        Shewhart(sigmas=2.0, min_change=0.01),
        Shewhart(sigmas=2.5, rules=("we1", "we2", "we4"), min_change=0.01),
        Ewma(sigmas=2.0, weight=0.3, min_change=0.004),
        Cusum(sigmas=2.0, shift=1.0, min_change=0.003),
    ],
)
def test_false_alarms_with_a_least_change_by_simulation(chart: Chart) -> None:
    """150 charts of 400 windows with known limits and a sigma of 0.005; each alarm is a fresh start."""
    rng, sd, alarms, charts, windows = np.random.default_rng(36), 0.005, 0, 150, 400
    for values in 0.5 + sd * rng.standard_normal((charts, windows)):
        logic = known_limits(chart, sd)
        for value in values.tolist():
            if logic.update(value, 1).rules:
                alarms += 1
                logic = known_limits(chart, sd)
    rate = false_alarm_rate(chart, INF, sd)
    expected = rate * charts * windows
    assert alarms < expected + 4 * math.sqrt(expected)
    exact = not isinstance(chart, Shewhart) or chart.rules == ("we1",)
    assert not exact or alarms > expected - 4 * math.sqrt(expected)


def known_limits(chart: Chart, sd: float) -> ChartLogic:
    """Return the chart's logic around 0.5, windows of one row."""
    relevant = RelevantChange(chart.min_change)
    return ChartLogic(0.5, sd**2, chart.sigmas or 0.0, chart.detector, relevant=relevant)


def test_the_p_chart_takes_its_sigma_as_known() -> None:
    config = ShewhartP(sigmas=3.0)
    exact = 2 * norm.sf(3.0 / math.sqrt(1 + 1 / 20))  # the centre's error is all there is
    assert false_alarm_rate(config, 20) == pytest.approx(exact, rel=1e-6)
    assert false_alarm_rate(ShewhartP(), 20) == pytest.approx(1 / 370, rel=1e-6)
