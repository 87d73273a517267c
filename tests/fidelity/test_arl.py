"""The promised rate of false alarms, in short seeded simulations of the real charts."""

from __future__ import annotations

import math

import numpy as np
import pytest

from monitor import Baseline, Shewhart
from monitor.stats.charts.base import DEFAULT_ARL0
from monitor.stats.charts.rules import WESTERN_ELECTRIC
from tests.fidelity.arl import (
    autocorrelated,
    charts_of,
    confidence_process,
    first_alarm,
    normal_process,
    rule_alarms,
    share_process,
    simulate,
    standardised,
    tails,
)


@pytest.mark.parametrize(
    ("rules", "arl0", "m"),
    [
        (("we1",), 370.0, math.inf),
        (("we1",), 370.0, 100),
        (("we1",), 370.0, 20),
        (("we1", "we2", "we3"), 92.0, 20),
        (WESTERN_ELECTRIC, 92.0, 100),
        (WESTERN_ELECTRIC, 92.0, 20),
    ],
)
def test_the_promise_holds(rules: tuple[str, ...], arl0: float, m: float) -> None:
    # 600 baselines of 600 windows: 970 alarms at 370 and 3,900 at 92. Within four standard errors of the
    # rate, which count both the alarms' own error and the difference between baselines (4 to 6 %).
    lengths = simulate(
        "shewhart", normal_process(), m, rules, ("arl0", arl0), series=600, windows=600, seed=1
    )
    assert lengths.harmonic_error < 0.06 * arl0
    assert abs(lengths.harmonic - arl0) < 4 * lengths.harmonic_error


def test_short_references_differ_so_that_the_plain_mean_says_more_than_a_fleet_sees() -> None:
    lengths = simulate("shewhart", normal_process(), 20, ("we1",), ("arl0", 100.0), series=600, windows=600)
    assert lengths.mean > 1.2 * lengths.harmonic
    assert lengths.median < lengths.harmonic


@pytest.mark.parametrize(
    ("m", "rho", "stated"),
    [(math.inf, 0.0, 91.75), (20, 0.0, 72.0), (math.inf, 0.3, 42.8), (20, 0.3, 33.4)],
)
def test_all_four_rules_at_plain_3_sigma(m: float, rho: float, stated: float) -> None:
    # SPEC section 5: once in 92 with known limits, in 71 with 20 reference windows, in 43 at rho = 0.3
    lengths = simulate(
        "shewhart",
        normal_process(),
        m,
        WESTERN_ELECTRIC,
        ("sigmas", 3.0),
        rho=rho,
        series=600,
        windows=500,
        seed=2,
    )
    assert lengths.harmonic_error < 0.04 * stated
    assert abs(lengths.harmonic - stated) < 4 * lengths.harmonic_error


def test_autocorrelation_breaks_the_promise_by_as_much_as_is_stated() -> None:
    # the long form: once in 295 (±9) at m = 20 where 370 was promised
    lengths = simulate(
        "shewhart", normal_process(), 20, ("we1",), ("arl0", 370.0), rho=0.3, series=800, windows=800
    )
    assert abs(lengths.harmonic - 295) < 4 * math.hypot(lengths.harmonic_error, 9)
    assert lengths.harmonic < 350


def test_the_p_chart_on_shares_is_near_its_promise() -> None:
    # the long form: 350.8 (±8.1); binomial shares are a little skewed and fall on a lattice
    lengths = simulate("shewhart_p", share_process(), 20, ("we1",), ("arl0", 370.0), series=600, windows=600)
    assert abs(lengths.harmonic - 350.8) < 4 * math.hypot(lengths.harmonic_error, 8.1)


def test_three_sigma_of_the_p_chart_on_a_mean_confidence_are_nearly_five() -> None:
    process = confidence_process(500)
    # Table 2's mixture has closed moments: E = Σ w a/(a+b), E² = Σ w a(a+1)/((a+b)(a+b+1))
    parts = ((0.90, 20, 1), (0.08, 2, 2), (0.02, 1, 20))
    mean = sum(w * a / (a + b) for w, a, b in parts)
    square = sum(w * a * (a + 1) / ((a + b) * (a + b + 1)) for w, a, b in parts)
    assert process.mean == pytest.approx(mean, abs=1e-6)
    assert process.row_sd == pytest.approx(math.sqrt(square - mean**2), rel=1e-5)
    ratio = process.row_sd / math.sqrt(mean * (1 - mean))
    assert 3 / ratio == pytest.approx(4.80, abs=0.005)
    half = 3 * math.sqrt(mean * (1 - mean) / 500)
    assert 1 / sum(tails(process, mean - half, mean + half)) == pytest.approx(172_000, rel=0.01)


def test_the_law_of_the_mean_is_that_of_drawn_rows() -> None:
    # 4,000 windows of 100 rows drawn one by one; the Kolmogorov distance of such a sample stays below
    # 1.95/√4000 with a chance of 99.9 %
    rng = np.random.default_rng(6)
    process = confidence_process(100)
    component = rng.choice(3, p=(0.9, 0.08, 0.02), size=(4000, 100))
    a, b = np.array([20, 2, 1])[component], np.array([1, 2, 20])[component]
    means = np.sort(rng.beta(a, b).mean(axis=1))
    assert process.values is not None
    assert process.cdf is not None
    law = process.cdf[np.searchsorted(process.values, means) - 1]
    assert np.abs(law - (np.arange(4000) + 0.5) / 4000).max() < 1.95 / math.sqrt(4000)


def test_the_simulated_run_lengths_are_those_of_the_chart_that_runs() -> None:
    # the agent's own logic, window by window, alarms where the simulation does, up to the first alarm
    process, rules = normal_process(), WESTERN_ELECTRIC
    z = autocorrelated(np.random.default_rng(7), 20, 320, 0.0)
    values = process.draw(z)
    logics = charts_of("shewhart", process, values[:, :20], ("arl0", 92.0), rules)
    stream = standardised(logics, values[:, 20:], 500)
    first = first_alarm(rule_alarms(stream, logics[0].multiplier, rules))
    assert np.isfinite(first).sum() > 10
    for row, expected in enumerate(first):
        states = [logics[row].update(float(v), 500).out_of_control for v in values[row, 20:]]
        assert (states.index(True) + 1 if any(states) else math.inf) == expected


def test_latched_alarms_are_no_more_frequent_than_promised() -> None:
    # 60 charts of 1,000 windows at an ARL0 of 50; a latched alarm also uses up at least eight windows, so
    # that onsets come once in 50 to about 62. 1,100 alarms: a standard error of 3 % for the alarms, and
    # as much again between baselines.
    process, rng, onsets = normal_process(), np.random.default_rng(8), 0
    for _ in range(60):
        values = process.draw(rng.standard_normal(1050))
        logic = Shewhart(arl0=50).build(Baseline(values[:50], np.full(50, 500.0), process.row_sd))
        states = [False] + [logic.update(float(v), 500).out_of_control for v in values[50:]]
        onsets += int(np.sum(np.diff(np.array(states, dtype=int)) == 1))
    assert 50 * 0.85 < 60_000 / onsets < 62 * 1.15


def test_the_default_is_what_the_docstring_states() -> None:
    assert Shewhart().arl0 == DEFAULT_ARL0 == 370
