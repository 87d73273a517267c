"""The season of a metric against slow witnesses: Bayes' formula on the joint covariance, and plain loops."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import numpy as np
import pytest
from scipy.optimize import lsq_linear
from scipy.stats import binom, f_oneway

from monitor import Shewhart
from monitor.base.zones import time_zone
from monitor.stats.charts.season import (
    FEWEST_REPEATED,
    HOURS,
    HourPoint,
    SeasonFit,
    date_of,
    fit_season,
    hour_number,
    repeated_cells,
)

ROW_SD = 0.18


def cells(rng: np.random.Generator, pattern: Any, weeks: int = 4, sizes: Any = 500.0) -> list[HourPoint]:
    hours = np.arange(weeks * HOURS)
    rows = np.broadcast_to(sizes, hours.shape).astype(float)
    values = (
        0.9 + np.broadcast_to(pattern, HOURS)[hours % HOURS] + rng.normal(0, ROW_SD, len(hours)) / rows**0.5
    )
    return [
        HourPoint.from_window(hour, value, size, ROW_SD)
        for hour, value, size in zip(hours.tolist(), values.tolist(), rows.tolist(), strict=True)
    ]


def fitted(points: list[HourPoint]) -> SeasonFit:
    fit = fit_season(points)
    assert fit is not None
    return fit


def shared(one: int, other: int) -> tuple[bool, bool, bool]:
    """Return whether two hours of the week share their day, their hour of the day, and everything."""
    return one // 24 == other // 24, one % 24 == other % 24, one == other


def moments(points: list[HourPoint]) -> tuple[float, Any]:
    """Return v and the covariance matrix Σ, by loops over hours and over pairs of hours."""
    hours: dict[int, list[HourPoint]] = {}
    for point in points:
        hours.setdefault(point.hour % HOURS, []).append(point)
    rows = {hour: sum(p.rows for p in each) for hour, each in hours.items()}
    means = {hour: sum(p.rows * p.mean for p in each) / rows[hour] for hour, each in hours.items()}
    within = sum(p.rows * (p.mean - means[hour]) ** 2 for hour, each in hours.items() for p in each)
    least = sum(p.size * p.row_sd**2 for p in points) / sum(p.size for p in points)
    variance = max(within / (len(points) - len(hours)), least)
    total = sum(rows.values())
    mean = sum(rows[hour] * means[hour] for hour in hours) / total
    equations, values = [], []
    for of in range(3):
        classes: dict[int, list[int]] = {}
        for hour in hours:
            classes.setdefault((hour // 24, hour % 24, hour)[of], []).append(hour)
        spread, expected, noise = 0.0, np.zeros(3), -variance
        for each in classes.values():
            own = sum(rows[hour] for hour in each)
            spread += own * (sum(rows[hour] * means[hour] for hour in each) / own - mean) ** 2
            noise += variance
            expected += sum(rows[i] * rows[j] / own * np.array(shared(i, j)) for i in each for j in each)
        expected -= sum(rows[i] * rows[j] / total * np.array(shared(i, j)) for i in hours for j in hours)
        scale = (len(classes) - 1) * total / len(hours)
        equations.append(expected / scale)
        values.append((spread - noise) / scale)
    parts = lsq_linear(np.array(equations), np.array(values), (0, np.inf), tol=1e-14).x
    every = range(HOURS)
    return variance, np.array([[np.dot(parts, shared(i, j)) for j in every] for i in every])


def conditional(
    points: list[HourPoint], variance: float, sigma: Any, center: float | None = None
) -> tuple[Any, Any, float]:
    """Return means and covariances of the hours' deviations, by the joint normal distribution with all cells.

    Without a centre, it is the generalised least squares estimate.
    """
    x, rows = np.array([p.mean for p in points]), np.array([p.rows for p in points])
    design = np.equal.outer(np.array([p.hour % HOURS for p in points]), np.arange(HOURS)).astype(float)
    inverse = np.linalg.inv(design @ sigma @ design.T + np.diag(variance / rows))
    if center is None:
        center = float(inverse.sum(axis=0) @ x / inverse.sum())
    gain = sigma @ design.T @ inverse
    return gain @ (x - center), sigma - gain @ design @ sigma, center


def uneven(rng: np.random.Generator) -> list[HourPoint]:
    """Return cells of different sizes, some of several windows; some hours occur seldom or never."""
    sizes = rng.integers(50, 500, 4 * HOURS)
    pattern = 0.02 * np.sin(np.arange(HOURS)) - 0.03 * (np.arange(HOURS) < 24)
    points = cells(rng, pattern, sizes=sizes)
    points = [p.plus(p.value + 0.01, 300) if p.hour % 3 == 0 else p for p in points]
    return [p for p in points if p.hour % HOURS > 5 and (p.hour % HOURS > 20 or p.hour < HOURS)]


def test_the_offsets_are_the_posterior_of_the_joint_normal_distribution() -> None:
    points = uneven(np.random.default_rng(1))
    fit = fitted(points)
    assert fit.left_out == 0
    variance, sigma = moments(points)
    assert sigma[0, 0] > sigma[0, 1] > 0
    offsets, covariance, center = conditional(points, variance, sigma)
    np.testing.assert_allclose(fit.season.offsets, offsets, atol=1e-7)
    np.testing.assert_allclose(fit.season.variances, covariance.diagonal(), rtol=1e-4)
    for at in range(0, len(points), 97):  # the baseline leaves out the cell of each window
        others = points[:at] + points[at + 1 :]
        offsets, covariance, _ = conditional(others, variance, sigma, center)
        hour = points[at].hour % HOURS
        size, row_variance = points[at].size, fit.season.row_variance
        assert fit.baseline.values[at] == pytest.approx(points[at].value - offsets[hour], abs=1e-7)
        rows = size * row_variance / (row_variance + size * covariance[hour, hour])
        assert fit.baseline.sizes[at] == pytest.approx(rows, rel=1e-4)


@pytest.mark.parametrize("weight", [0.14, 0.6])
def test_a_chart_that_averages_windows_gets_half_of_the_variance_that_hours_have_in_common(
    weight: float,
) -> None:
    points = uneven(np.random.default_rng(8))
    fit = fit_season(points, weight)
    assert fit is not None
    _, covariance, _ = conditional(points, *moments(points))
    known = sorted({p.hour % HOURS for p in points})
    windows = sum(p.rows for p in points) / sum(p.size for p in points)
    for at in (0, 40, len(known) - 1):
        left, parts = 1.0, dict.fromkeys(known, 0.0)
        for back in range(20 * len(known)):  # the weights of the hours before, for many weeks
            newest = 1 - (1 - weight) ** windows
            parts[known[(at - back) % len(known)]] += left * newest
            left *= 1 - newest
        own = sum(parts[i] * parts[j] * covariance[i, j] for i in known for j in known)
        hour = known[at]
        expected = (covariance[hour, hour] + own * (2 - weight) / weight) / 2
        assert fit.season.variances[hour] == pytest.approx(expected, rel=1e-4)
    assert fit.season.offsets.tobytes() == fitted(points).season.offsets.tobytes()
    (never, *_) = set(range(HOURS)) - set(known)
    assert fit.season.variances[never] == pytest.approx(covariance[never, never], rel=1e-4)


def test_the_order_of_the_cells_changes_no_bit() -> None:
    points = uneven(np.random.default_rng(2))
    one, other = fitted(points), fitted(points[::-1])
    assert one.season.offsets.tobytes() == other.season.offsets.tobytes()
    assert one.baseline.values.tobytes() == other.baseline.values.tobytes()


def test_the_p_value_is_that_of_the_analysis_of_variance() -> None:
    for seed, pattern in ((0, 0.0), (1, 0.002 * np.sin(np.arange(HOURS)))):
        points = cells(np.random.default_rng(seed), pattern)
        by_hour = [[p.mean for p in points if p.hour % HOURS == hour] for hour in range(HOURS)]
        assert fitted(points).p_value == pytest.approx(f_oneway(*by_hour).pvalue, rel=1e-8)


@pytest.mark.simulation
def test_the_test_at_one_percent_proposes_a_season_without_one_in_one_of_a_hundred() -> None:
    trials = 400
    rng = np.random.default_rng(3)
    wrong = sum(fitted(cells(rng, 0.0)).p_value < 0.01 for _ in range(trials))
    assert wrong <= binom.ppf(0.9999, trials, 0.01)


def test_without_a_season_nothing_moves() -> None:
    fit = fitted(cells(np.random.default_rng(4), 0.0))
    assert np.abs(fit.season.offsets).max() < 0.003
    assert 450 < fit.season.rows(500, 0) <= 500


def test_equal_windows_have_no_season_and_no_variance() -> None:
    points = [HourPoint.from_window(hour, 0.9, 500.0, 0.0) for hour in range(4 * HOURS)]
    fit = fitted(points)
    assert not fit.season.offsets.any()
    assert fit.p_value == 1.0
    assert fit.season.rows(500, 7) == 500
    logic = Shewhart().build(fit.baseline)
    assert fit.season.judge(logic, 0.9, 500, 7).rules == ()


def test_hours_that_repeat_exactly_are_not_shrunk() -> None:
    points = [HourPoint.from_window(h, 0.9 - 0.03 * (h % HOURS < 24), 500.0, 0.0) for h in range(4 * HOURS)]
    fit = fitted(points)
    assert fit.season.offsets[30] - fit.season.offsets[3] == pytest.approx(0.03, abs=1e-6)
    assert fit.p_value == 0.0


def test_a_holiday_is_left_out_and_a_weekly_drop_is_not() -> None:
    pattern = -0.03 * (np.arange(HOURS) < 24)
    points = cells(np.random.default_rng(5), pattern)
    holiday = [
        p if not 2 * HOURS + 72 <= p.hour < 2 * HOURS + 96 else p._replace(mean=p.mean - 0.1) for p in points
    ]
    fit = fitted(holiday)
    assert fit.left_out == 24
    assert len(fit.baseline.values) == 4 * HOURS - 24
    assert np.abs(fit.season.offsets[72:96] - fit.season.offsets[96:120].mean()).max() < 0.02
    assert fit.season.offsets[:24].mean() < -0.02


def test_fewer_repeated_hours_give_no_season() -> None:
    points = cells(np.random.default_rng(6), 0.0)
    assert fit_season(points[: HOURS + FEWEST_REPEATED - 1]) is None
    assert fit_season(points[: HOURS + FEWEST_REPEATED]) is not None
    assert fit_season([]) is None
    assert repeated_cells(points[: HOURS + FEWEST_REPEATED]) == FEWEST_REPEATED
    assert repeated_cells([]) == 0


def test_the_limits_are_those_of_the_hour() -> None:
    fit = fitted(cells(np.random.default_rng(7), -0.03 * (np.arange(HOURS) < 24)))
    logic = Shewhart().build(fit.baseline)
    monday, tuesday = (fit.season.judge(logic, 0.9, 500, hour) for hour in (5, 30))
    assert tuesday.center - monday.center == pytest.approx(fit.season.offsets[30] - fit.season.offsets[5])
    assert fit.season.judge(Shewhart().build(fit.baseline), 0.87, 500, 5).rules == ()
    assert fit.season.judge(Shewhart().build(fit.baseline), 0.86, 500, 30).rules == ("we1",)


def test_limits_are_wider_by_the_error_of_the_hours_centre() -> None:
    rng = np.random.default_rng(8)
    # Four weeks show the centre of an hour that nothing shares with half the error of a window. All 96
    # windows of Mondays and all 28 of an hour of the day show what these share.
    mondays = -0.03 * (np.arange(HOURS) < 24)
    for pattern, low, high in ((rng.normal(0, 0.03, HOURS), 1.15, 1.27), (mondays, 1.0, 1.05)):
        season = fitted(cells(rng, pattern)).season
        wider = 1 + 500 * season.variances[5] / season.row_variance
        assert 500 / season.rows(500, 5) == pytest.approx(wider)
        assert low < wider < high


def test_hours_follow_the_clocks_of_the_zone() -> None:
    berlin = time_zone("Europe/Berlin")

    def hour(*time: int) -> int:
        return hour_number(datetime(*time, tzinfo=time_zone("UTC")).timestamp(), berlin)  # type: ignore[misc]

    assert hour(2026, 11, 29, 23, 30) % HOURS == 0  # Monday, half past midnight in Berlin
    assert date_of(hour(2026, 11, 29, 23, 30)) == "2026-11-30"
    assert hour(2026, 10, 25, 0, 30) == hour(2026, 10, 25, 1, 30)  # the clocks go back at 03:00
    assert hour(2026, 3, 29, 1, 30) == hour(2026, 3, 29, 0, 30) + 2  # and forward at 02:00


def test_times_beyond_the_calendar_count_as_its_ends() -> None:
    for zone in ("UTC", "Asia/Kolkata", "America/Los_Angeles", "Pacific/Kiritimati"):
        first, last = -62_135_596_800.0, 253_402_300_799.999
        for time, year in ((first, "0001-01"), (-1e15, "0001-01"), (last, "9999-12"), (1e15, "9999-12")):
            assert date_of(hour_number(time, time_zone(zone))).startswith(year)
    assert date_of(hour_number(253_402_300_799.0, time_zone("UTC")) + 28 * 24) == "9999-12-31"
    assert date_of(-1) == "0001-01-01"
