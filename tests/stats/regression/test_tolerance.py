"""The probability of an error within a tolerance: slow witnesses, the laws, and the texts of errors."""

from __future__ import annotations

import numpy as np
import pytest
import scipy

from monitor.stats.regression.tolerance import (
    FEWEST_ERRORS,
    ErrorSpread,
    Tolerance,
    chance_by_deviation,
    chance_by_quantiles,
)
from tests.nearly import nearly


def test_the_default_tolerance_holds_four_of_five_errors() -> None:
    errors = np.random.default_rng(1).normal(size=1000)
    tolerance = Tolerance.from_errors(errors)
    assert tolerance.holds(np.zeros(1000), errors).sum() == 800


@pytest.mark.parametrize("value", [0.0, -1.0, np.inf, np.nan])
def test_a_tolerance_is_above_0_and_finite(value: float) -> None:
    with pytest.raises(ValueError, match="a tolerance must be above 0 and finite"):
        Tolerance(value)


def test_an_error_of_exactly_the_tolerance_is_right_despite_rounding() -> None:
    predictions = np.arange(1.0, 100.0)
    assert Tolerance(0.3).holds(predictions, predictions + 0.3).all()
    assert not Tolerance(0.3).holds(predictions, predictions + 0.301).any()
    assert Tolerance(0.1, relative=True).holds(-predictions, -1.1 * predictions).all()


def test_two_quantiles_of_a_normal_distribution_give_the_chance_of_its_deviation() -> None:
    deviations, limits = np.array([0.5, 1.0, 4.0]), np.array([1.0, 2.0, 3.0])
    quantiles = np.outer(deviations, scipy.stats.norm.ppf([0.05, 0.95]))
    by_quantiles = chance_by_quantiles([0.05, 0.95], quantiles, np.zeros(3), limits)
    assert by_quantiles == nearly(chance_by_deviation(deviations, limits))
    witness = [scipy.stats.norm.cdf(t / s) - scipy.stats.norm.cdf(-t / s) for s, t in zip(deviations, limits)]  # noqa: B905
    assert by_quantiles == nearly(np.array(witness))


def test_a_chance_by_quantiles_is_that_of_interpolated_scores() -> None:
    rng = np.random.default_rng(2)
    levels = [0.1, 0.4, 0.8, 0.9]
    quantiles = np.sort(rng.normal(size=(50, 4)), axis=1)
    predictions, limits = rng.normal(size=50), rng.random(50) + 0.1
    scores = scipy.stats.norm.ppf(levels)

    def level_at(row: int, at: float) -> float:
        line = scipy.interpolate.interp1d(quantiles[row], scores, fill_value="extrapolate")
        return float(scipy.stats.norm.cdf(line(at)))

    witness = [
        level_at(row, predictions[row] + limits[row]) - level_at(row, predictions[row] - limits[row])
        for row in range(50)
    ]
    assert chance_by_quantiles(levels, quantiles, predictions, limits) == nearly(np.array(witness))


def probability_below(quantiles: np.ndarray, scores: np.ndarray, at: float, included: bool) -> float:
    """Return the probability of numbers below `at`, or up to it, by bisection of the quantile function."""
    low, high = -40.0, 40.0
    for _ in range(70):
        middle = (low + high) / 2
        k = sum(middle >= score for score in scores[1:-1])
        share = (middle - scores[k]) / (scores[k + 1] - scores[k])
        number = quantiles[k] + share * (quantiles[k + 1] - quantiles[k])
        reached = number <= at if included else number < at
        low, high = (middle, high) if reached else (low, middle)
    return float(scipy.stats.norm.cdf(low))


def test_a_chance_by_quantiles_with_ties_is_that_of_the_quantile_function() -> None:
    rng = np.random.default_rng(9)
    levels = [0.05, 0.3, 0.5, 0.95]
    quantiles = np.sort(rng.integers(0, 5, (120, 4)), axis=1).astype(np.float64)
    predictions = rng.integers(-1, 7, 120).astype(np.float64)
    limits = rng.integers(1, 4, 120).astype(np.float64)
    ends = np.stack((predictions - limits, predictions + limits))
    assert ((quantiles[None] == ends[..., None]).sum(axis=2) > 1).any(axis=1).all()  # ties at both ends
    scores = scipy.stats.norm.ppf(levels)
    witness = [
        probability_below(quantiles[row], scores, ends[1, row], included=True)
        - probability_below(quantiles[row], scores, ends[0, row], included=False)
        for row in range(120)
    ]
    by_quantiles = chance_by_quantiles(levels, quantiles, predictions, limits)
    assert by_quantiles == pytest.approx(np.array(witness), abs=1e-9)


def test_a_number_at_the_limit_counts_at_either_end() -> None:
    def chance(quantiles: list[float], prediction: float, limit: float) -> float:
        rows = np.array([quantiles], dtype=np.float64)
        levels = [0.05, 0.5, 0.95][3 - len(quantiles) :]
        return float(chance_by_quantiles(levels, rows, np.array([prediction]), np.array([limit]))[0])

    for limit in (1.0, 1.0000001):
        assert chance([0, 0, 10], 1.0, limit) == pytest.approx(0.629, abs=5e-4), limit
    assert (chance([5, 5], 6.0, 1.0), chance([5, 5], 4.0, 1.0)) == (1.0, 1.0)
    assert (chance([5, 5], 7.0, 1.0), chance([5, 5], 3.0, 1.0)) == (0.0, 0.0)
    assert chance([2.3, 2.3], 2.6, 0.3) == 1.0 == chance([0.3, 0.3], 0.2, 0.1)  # in binary, beyond the limit


def test_a_tiny_deviation_is_a_certain_number() -> None:
    assert chance_by_deviation(np.array([5e-324, 1e-310]), np.ones(2)).tolist() == [1.0, 1.0]


def test_equal_quantiles_are_a_certain_number() -> None:
    quantiles = np.full((2, 2), 5.0)
    chances = chance_by_quantiles([0.1, 0.9], quantiles, np.array([5.0, 9.0]), np.ones(2))
    assert chances.tolist() == [1.0, 0.0]


def spread_of(unit: float = 1.0) -> tuple[ErrorSpread, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(4000, 1))
    errors = unit * rng.standard_normal(4000) * np.exp(0.5 * x[:, 0])
    return ErrorSpread.from_rows(x, ["number"], errors), x, errors


def test_chances_are_right_in_other_rows() -> None:
    spread, *_ = spread_of()
    rng = np.random.default_rng(4)
    for shift in (0.0, 1.0):
        x = rng.normal(shift, 1.0, size=(20_000, 1))
        errors = rng.standard_normal(20_000) * np.exp(0.5 * x[:, 0])
        chances = spread.chance(x, np.ones(20_000))
        # A scale of log(|e| + 0.1 · mean |e|) varies less than that of the errors; calibrations correct it.
        assert abs((np.abs(errors) <= 1.0).mean() - chances.mean()) < 0.04


def test_values_far_from_all_others_leave_most_of_the_effect_of_a_column() -> None:
    spread, x, errors = spread_of()
    at = np.array([[-1.5], [-1.0], [0.0], [1.0], [1.5]])
    without = spread.chance(at, np.ones(5))
    for outliers in (
        (1e3,),
        (1e10,),
        (1e16,),
        (1e100,),
        (-1e16, 1e10, 1e100),
        (5e-324, 1e-310),
        (1e308, -1e308),
    ):
        columns = x.copy()
        columns[7 : 7 + len(outliers), 0] = outliers
        own = ErrorSpread.from_rows(columns, ["number"], errors)
        # Without the column, the chances at -1.5 and 1.5 differ from these by 0.24 and 0.26.
        assert np.abs(own.chance(at, np.ones(5)) - without).max() < 0.1, outliers
        anywhere = np.array([[1e300], [-1e308], [1e9], [0.0]])
        assert (np.abs(np.log(own.scales(anywhere))) < 5.0).all(), outliers
        assert (np.abs(np.log(own.own)) < 5.0).all(), outliers


def test_the_unit_of_the_errors_does_not_matter() -> None:
    (one, x, _), (other, *_) = spread_of(), spread_of(unit=60.0)
    assert other.chance(x, np.full(4000, 60.0)) == nearly(one.chance(x, np.ones(4000)))


def test_a_larger_limit_is_never_less_likely_and_no_chance_is_certain() -> None:
    spread, x, _ = spread_of()
    chances = np.stack([spread.chance(x, np.full(4000, limit)) for limit in (0.0, 0.5, 1.0, 1e9)])
    assert (np.diff(chances, axis=0) >= 0).all()
    assert 0.0 < chances.min() < chances.max() < 1.0


def test_a_row_of_the_reference_is_judged_by_other_rows() -> None:
    rng = np.random.default_rng(5)
    x, errors = rng.normal(size=(400, 1)), rng.standard_normal(400)
    spread = ErrorSpread.from_rows(x, ["number"], errors)
    changed = errors.copy()
    changed[7] *= 1000.0
    again = ErrorSpread.from_rows(x, ["number"], changed)
    assert again.scales(x)[7] > 1.2 * spread.scales(x)[7]
    # The mean error, which the logarithm adds, still moves all rows a little.
    assert again.own[7] / spread.own[7] < again.own[8] / spread.own[8] * 1.2


def test_a_row_without_a_column_or_with_a_new_text_is_not_reached() -> None:
    rng = np.random.default_rng(6)
    columns = np.column_stack((rng.normal(size=400), rng.integers(0, 3, 400)))
    spread = ErrorSpread.from_rows(columns, ["number", "text"], rng.standard_normal(400))
    rows = np.array([[0.0, 1.0], [np.nan, 1.0], [0.0, 7.0], [99.0, 2.0]])
    assert spread.reaches(rows).tolist() == [True, False, False, True]


def test_too_few_rows_are_refused() -> None:
    few = FEWEST_ERRORS - 1
    with pytest.raises(
        ValueError, match=f"needs at least {FEWEST_ERRORS} labelled rows, got {few}; give a longer"
    ):
        ErrorSpread.from_rows(np.zeros((few, 1)), ["number"], np.zeros(few))


def test_errors_that_are_all_0_are_within_any_limit() -> None:
    spread = ErrorSpread.from_rows(np.zeros((300, 1)), ["number"], np.zeros(300))
    assert (spread.chance(np.zeros((2, 1)), np.ones(2)) > 0.99).all()
