"""Run lengths of EWMA and CUSUM, beside the literature, closed forms and simulation."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from monitor.stats.charts.detectors import CusumDetector, EwmaDetector, Spread, best_weight
from monitor.stats.charts.fleet import mean_rate
from monitor.stats.charts.limits import Limits, limits
from monitor.stats.charts.smoothed import cusum_rate, ewma_rate
from tests.stats.charts.run_lengths import cusum_arl, ewma_arl


def both_sides(k: float, shift: float, h: float) -> float:
    return 1 / (1 / cusum_arl(k - shift, h) + 1 / cusum_arl(k + shift, h))


@pytest.mark.parametrize(
    ("weight", "width", "shift", "published"),
    [
        # Lucas and Saccucci 1990, table 3: designs for 500 windows, and their run lengths at shifts
        (0.4, 3.054, 0.0, 500),
        (0.25, 2.998, 0.0, 500),
        (0.1, 2.814, 0.0, 500),
        (0.05, 2.615, 0.0, 500),
        (0.4, 3.054, 1.0, 14.3),
        (0.25, 2.998, 1.0, 11.1),
        (0.1, 2.814, 1.0, 10.3),
        (0.05, 2.615, 1.0, 11.4),
        (0.1, 2.814, 2.0, 4.36),
    ],
)
def test_published_run_lengths_of_ewma(weight: float, width: float, shift: float, published: float) -> None:
    assert ewma_arl(weight, shift, width) == pytest.approx(published, rel=5e-3)


@pytest.mark.parametrize(
    ("h", "shift", "published"),
    [
        # Montgomery, table 9.3 (k = 1/2, two-sided, from Siegmund's and exact figures)
        (4.0, 0.0, 168),
        (5.0, 0.0, 465),
        (4.0, 0.5, 26.6),
        (4.0, 1.0, 8.38),
        (5.0, 1.0, 10.4),
        (4.0, 2.0, 3.34),
        (5.0, 3.0, 2.57),
    ],
)
def test_published_run_lengths_of_cusum(h: float, shift: float, published: float) -> None:
    assert both_sides(0.5, shift, h) == pytest.approx(published, rel=5e-3)


def test_an_average_of_one_window_is_geometric() -> None:
    assert ewma_arl(1.0, 0.5, 3.0) == pytest.approx(1 / (norm.sf(2.5) + norm.sf(3.5)), rel=1e-9)


def test_a_sum_with_a_steep_slope_or_no_interval_is_geometric() -> None:
    assert cusum_arl(2.5, 1e-9) == pytest.approx(1 / norm.sf(2.5), rel=1e-6)


@pytest.mark.parametrize("shift", [0.0, 0.4])
def test_the_memories_that_run_alarm_when_the_equations_say(shift: float) -> None:
    # 600 runs of each, at limits at which they end soon: within four standard errors
    rng = np.random.default_rng(31)
    for detector, threshold, exact in (
        (EwmaDetector(0.14), 1.8, ewma_arl(0.14, shift, 1.8)),
        (CusumDetector(1.0), 2.5, both_sides(0.5, shift, 2.5)),
    ):
        lengths = []
        for _ in range(600):
            memory, windows = detector.memory(threshold, None), 1
            while not memory.update(float(rng.normal(shift))):
                windows += 1
            lengths.append(windows)
        assert abs(np.mean(lengths) - exact) < 4 * np.std(lengths, ddof=1) / math.sqrt(600)


def test_many_at_once_agree_with_one_at_a_time() -> None:
    rng = np.random.default_rng(8)
    error, width = rng.uniform(-2.5, 2.5, 40), rng.uniform(0.3, 4.5, 40)
    one = [1 / ewma_arl(0.14, float(e), float(w)) for e, w in zip(error, width, strict=True)]
    np.testing.assert_allclose(ewma_rate(0.14, error, width), one, rtol=1e-3)
    interval = rng.uniform(0.2, 12.0, 40)
    both = [1 / both_sides(0.5, float(e), float(h)) for e, h in zip(error, interval, strict=True)]
    np.testing.assert_allclose(cusum_rate(np.full(40, 0.5), error, interval), both, rtol=5e-3)


@pytest.mark.parametrize("detector", [EwmaDetector(0.14), CusumDetector(1.0), CusumDetector(2.0)])
@pytest.mark.parametrize("m", [8, 20, 100, math.inf])
def test_the_rate_is_the_promised_one_where_the_rows_and_where_the_windows_show_the_sigma(
    detector: EwmaDetector | CusumDetector, m: float
) -> None:
    chosen = limits(370, detector, m)
    assert 1 / mean_rate(detector, m, chosen, 1.0, Spread.REFERENCE) == pytest.approx(370, rel=1e-4)
    if math.isfinite(m):
        wild = Limits(chosen.multiplier, chosen.inflation)
        assert 1 / mean_rate(detector, m, wild, math.inf, Spread.REFERENCE) == pytest.approx(370, rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("m", [10, 20, 100])
def test_the_moving_range_of_so_many_windows_tells_sigma_as_well_as_stated(m: int) -> None:
    # 100,000 other references: P(|x - centre| > L·sigma) is the promised one, within five standard errors,
    # those of the draws behind the limits counted in
    rng = np.random.default_rng(32)
    chosen = limits(370, ("we1",), m, Spread.MOVING_RANGE)
    x = rng.standard_normal((100_000, m))
    sigma = np.abs(np.diff(x, axis=1)).mean(axis=1) * math.sqrt(math.pi) / 2
    off, half = x.mean(axis=1), chosen.multiplier * sigma
    rates = norm.sf(half - off) + norm.sf(half + off)
    draws = min(100_000, 4_000_000 // m)
    error = 370 * rates.std() * math.sqrt(1 / 100_000 + 1 / draws)
    assert abs(rates.mean() * 370 - 1) < 5 * error


def test_the_weight_that_suits_a_shift_is_within_one_percent_of_the_best() -> None:
    @cache
    def width(weight: float) -> float:
        """Return the width that `limits` finds, to 1e-4, but without a table for every width and error of the
        weight.
        """
        return float(brentq(lambda limit: ewma_arl(weight, 0.0, limit) - 370, 1.5, 4.0, xtol=1e-6))

    def delay(weight: float, shift: float) -> float:
        return ewma_arl(weight, shift, width(weight))

    assert width(0.14) == pytest.approx(limits(370, EwmaDetector(0.14), math.inf).multiplier, abs=1e-4)
    for shift in (0.6, 1.0, 1.5, 2.2, 3.0):
        best = min(delay(float(weight), shift) for weight in np.linspace(0.05, 1.0, 39))
        assert delay(best_weight(shift), shift) < 1.01 * best
