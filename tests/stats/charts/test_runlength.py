"""Exact run lengths, beside the literature, closed forms and simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from monitor.stats.charts.rules import NELSON, WESTERN_ELECTRIC
from monitor.stats.charts.runlength import NARROWEST, WIDEST, alarm_rate
from tests.nearly import nearly
from tests.stats.charts.order_rates import run_length
from tests.stats.charts.run_lengths import broken_rules, conditional_arl


@pytest.mark.parametrize(
    ("rules", "shift", "published"),
    [
        # Champ and Woodall 1987, table 1: rows for shifts of 0 and 1 standard deviations
        (("we1",), 0.0, 370.40),
        (("we1", "we2"), 0.0, 225.44),
        (("we1", "we3"), 0.0, 166.05),
        (("we1", "we4"), 0.0, 152.73),
        (("we1", "we2", "we3"), 0.0, 132.89),
        (WESTERN_ELECTRIC, 0.0, 91.75),
        (("we1",), 1.0, 43.89),
        (WESTERN_ELECTRIC, 1.0, 9.22),
    ],
)
def test_published_run_lengths_come_out(rules: tuple[str, ...], shift: float, published: float) -> None:
    assert conditional_arl(rules, shift, 3.0) == pytest.approx(published, abs=0.006)


def test_we1_is_geometric() -> None:
    for error, width in ((0.0, 3.0), (0.7, 2.5), (2.0, 4.0)):
        chance = norm.cdf(-width - error) + norm.sf(width - error)
        assert conditional_arl(("we1",), error, width) == pytest.approx(1 / chance, rel=1e-9)


def test_eight_in_a_row_is_a_run_of_coin_tosses() -> None:
    # 2^8 - 1 tosses on average until eight alike in a row, whatever the limits
    assert conditional_arl(("we4",), 0.0, 3.0) == pytest.approx(255.0, rel=1e-9)
    assert conditional_arl(("we4",), 0.0, 1.0) == pytest.approx(255.0, rel=1e-9)


@pytest.mark.parametrize("rules", [("we2",), ("we3",), ("we1", "we3", "we4"), WESTERN_ELECTRIC])
@pytest.mark.parametrize("error", [0.0, 0.6])
def test_simulation_agrees(rules: tuple[str, ...], error: float) -> None:
    # 4,000 runs at a width at which all end within 400 windows; the bound is four standard errors
    z = np.random.default_rng(21).standard_normal((4000, 400)) - error
    broken = broken_rules(z, 1.6, rules).any(axis=0)
    assert broken.any(axis=1).all()
    first = broken.argmax(axis=1) + 1.0
    exact = conditional_arl(rules, error, 1.6)
    assert abs(first.mean() - exact) < 4 * first.std(ddof=1) / math.sqrt(len(first))


@pytest.mark.parametrize("rules", [("we1",), ("we2",), ("we1", "we2", "we3"), WESTERN_ELECTRIC])
def test_many_at_once_agree_with_one_at_a_time(rules: tuple[str, ...]) -> None:
    rng = np.random.default_rng(8)
    error, width = rng.uniform(-2.5, 2.5, 60), rng.uniform(0.2, 6.5, 60)
    one = np.array(
        [1 / conditional_arl(rules, float(e), float(w)) for e, w in zip(error, width, strict=True)]
    )
    np.testing.assert_allclose(alarm_rate(rules, error, width), one, rtol=1e-3)


def test_the_rate_falls_with_the_width_and_rises_with_the_error() -> None:
    widths = np.linspace(0.3, 7.0, 50)
    assert np.all(np.diff(alarm_rate(WESTERN_ELECTRIC, np.zeros(50), widths)) < 0)
    errors = np.linspace(0.0, 2.5, 50)
    assert np.all(np.diff(alarm_rate(WESTERN_ELECTRIC, errors, np.full(50, 3.0))) > 0)


def test_widths_past_the_ends_are_the_ends() -> None:
    ends = alarm_rate(WESTERN_ELECTRIC, np.zeros(2), np.array([NARROWEST, WIDEST]))
    np.testing.assert_array_equal(alarm_rate(WESTERN_ELECTRIC, np.zeros(2), np.array([0.001, 50.0])), ends)


def test_nine_in_a_row_fifteen_within_and_eight_beyond_are_coin_tosses_too() -> None:
    assert conditional_arl(("nelson2",), 0.0, 3.0) == pytest.approx(511.0, rel=1e-9)
    for rule, windows, chance in (("nelson7", 15, 1 - 2 * norm.sf(1.0)), ("nelson8", 8, 2 * norm.sf(1.0))):
        exact = (1 - chance**windows) / ((1 - chance) * chance**windows)  # until so many successes in a row
        assert conditional_arl((rule,), 0.0, 3.0) == pytest.approx(exact, rel=1e-9)


def test_rules_of_two_names_are_the_same() -> None:
    western, nelson = ("we1", "we2", "we3"), ("nelson1", "nelson5", "nelson6")
    assert conditional_arl(western, 0.4, 3.0) == nearly(conditional_arl(nelson, 0.4, 3.0))


def test_the_rates_of_the_rules_of_order_are_the_exact_ones() -> None:
    for rules, trend, zigzag in ((("nelson3",), 6, None), (("nelson4",), None, 14), (NELSON[2:4], 6, 14)):
        assert conditional_arl(rules, 0.7, 2.0) == pytest.approx(run_length(trend, zigzag), rel=1e-6)
    # until three in a row rise or fall, the series goes up and down: with Entringer's zigzag numbers A(n),
    # P(T > n) = 2·A(n)/n! from n = 2 on, whose sum is 2(sec 1 + tan 1) - 4; and 2 windows come before
    assert run_length(3, None) == pytest.approx(2 * (1 / math.cos(1) + math.tan(1)) - 4 + 2, rel=1e-9)


@pytest.mark.simulation
@pytest.mark.parametrize("width", [2.4, 3.0])
def test_all_of_nelsons_rules_alarm_a_little_less_often_than_stated(width: float) -> None:
    # 3,000 runs until their first alarm; stated is up to 5 % too many, beside four standard errors
    z = np.random.default_rng(22).standard_normal((3000, 900))
    broken = broken_rules(z, width, NELSON).any(axis=0)
    first = np.where(broken.any(axis=1), broken.argmax(axis=1) + 1.0, 900.0)
    stated, error = conditional_arl(NELSON, 0.0, width), 4 * first.std(ddof=1) / math.sqrt(3000)
    assert stated - error < first.mean() < 1.05 * stated + error
