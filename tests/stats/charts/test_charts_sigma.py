"""The sigma of each chart, computed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from monitor import Baseline, Shewhart, ShewhartP
from monitor.stats.charts.detectors import Spread
from monitor.stats.charts.latch import ChartLogic
from monitor.stats.charts.limits import limits

VALUES = np.array([0.90, 0.92, 0.88, 0.91, 0.89, 0.93, 0.87, 0.90])
SIZES = np.array([500.0, 400, 600, 500, 250, 500, 500, 100])


def built(chart: Shewhart | ShewhartP, row_sd: float) -> ChartLogic:
    return chart.build(Baseline(VALUES, SIZES, row_sd))


def test_the_centre_is_the_mean_of_the_rows() -> None:
    rows = sum(v * n for v, n in zip(VALUES, SIZES, strict=True)) / sum(SIZES)
    assert built(Shewhart(), 0.2).center == pytest.approx(rows)
    assert built(ShewhartP(), 0.2).center == pytest.approx(rows)


def test_windows_that_vary_no_more_than_their_rows_leave_the_rows_sigma() -> None:
    assert built(Shewhart(), 0.6).row_variance == pytest.approx(0.36)


def test_windows_that_vary_more_inflate_it_as_laney_does() -> None:
    centre = np.average(VALUES, weights=SIZES)
    z = (VALUES - centre) / (0.2 / np.sqrt(SIZES))
    phi = math.sqrt(sum(z**2) / 7)
    assert phi > 1
    assert built(Shewhart(sigmas=3.0), 0.2).row_variance == pytest.approx((0.2 * phi) ** 2)


def test_a_promise_from_few_windows_inflates_the_excess_a_little_more() -> None:
    chosen = limits(370, ("we1",), 8)
    assert chosen.inflation > 1
    seen = built(Shewhart(sigmas=3.0), 0.2).row_variance
    ours = built(Shewhart(), 0.2)
    assert ours.multiplier == chosen.multiplier
    assert ours.row_variance == pytest.approx(0.04 + chosen.inflation**2 * (seen - 0.04))


def test_merging_reference_windows_or_scaling_sizes_does_not_move_the_centre() -> None:
    whole = Shewhart().build(Baseline(VALUES, SIZES, 0.2)).update(0.9, 500)
    scaled = Shewhart().build(Baseline(VALUES, SIZES * 3, 0.2)).update(0.9, 500)
    assert whole.center == pytest.approx(scaled.center)


def test_the_p_chart_takes_the_binomial_and_nothing_else() -> None:
    logic = built(ShewhartP(), 0.05)
    assert logic.row_variance == pytest.approx(logic.center * (1 - logic.center))
    assert logic.multiplier == limits(370, ("we1",), 8, Spread.KNOWN).multiplier


def test_reference_windows_in_another_order_give_the_same_limits() -> None:
    order = np.random.default_rng(0).permutation(8)
    logic = Shewhart().build(Baseline(VALUES[order], SIZES[order], 0.2))
    assert logic.row_variance == pytest.approx(built(Shewhart(), 0.2).row_variance)
