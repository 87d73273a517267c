"""The answers to label next: chances that sum up, draws that keep to them, estimates without bias."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from monitor.base.results import Estimate
from monitor.stats.estimate.hajek import hajek, weighted_counts
from monitor.stats.sampling.acquisition import UNIFORM, draw, expected_widths, inclusion_probabilities

DRAWS = 400
N = 40
CERTAIN_NORMAL = float(norm.isf(1e-6))
"""Standard errors that a right answer passes once in a million."""


def confidences(rows: int = 2000, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.where(rng.random(rows) < 0.85, rng.beta(60, 1, rows), rng.beta(5, 4, rows))


@pytest.mark.parametrize("n", [1, 7, 50, 300, 1999])
def test_chances_sum_to_the_labels_wanted_and_none_is_impossible(n: int) -> None:
    chances = inclusion_probabilities(confidences(), n)
    assert chances.sum() == pytest.approx(n, rel=1e-12)
    assert chances.max() <= 1.0
    assert chances.min() >= UNIFORM * n / 2000 * (1 - 1e-9), "no label weighs more than ten even ones"


@pytest.mark.parametrize("same", [0.0, 0.5, 1.0])
def test_answers_that_are_alike_have_the_same_chance(same: float) -> None:
    np.testing.assert_allclose(inclusion_probabilities(np.full(80, same), 20), 0.25)
    widths = expected_widths(np.full(80, same), np.full(80, 0.25))
    assert 0.0 < widths.chosen == pytest.approx(widths.even)


def test_of_fewer_answers_than_labels_all_are_drawn() -> None:
    chances = inclusion_probabilities([0.9, 0.2, 1.0], 50)
    assert chances.tolist() == [1.0, 1.0, 1.0]
    assert draw(chances, np.random.default_rng(0)).tolist() == [0, 1, 2]


def test_the_rows_that_tell_most_are_drawn_more_often_than_the_sure_ones() -> None:
    sure, doubtful = inclusion_probabilities([0.99] * 90 + [0.5] * 10, 10)[[0, -1]]
    assert doubtful > 4 * sure


def test_draws_have_the_size_and_the_chances_asked_for() -> None:
    """400 draws of 40: each row's count is binomial, here compared in 20 bins of rows of like chances."""
    chances = inclusion_probabilities(confidences(), N)
    counts = np.zeros(len(chances))
    for seed in range(DRAWS):
        rows = draw(chances, np.random.default_rng(seed))
        assert len(rows) == len(set(rows.tolist())) == N
        counts[rows] += 1
    for rows in np.array_split(np.argsort(chances), 20):
        expected = DRAWS * chances[rows].sum()
        error = np.sqrt(DRAWS * (chances[rows] * (1 - chances[rows])).sum())
        assert abs(counts[rows].sum() - expected) < 5 * error


@pytest.mark.parametrize("right_confidences", [True, False])
def test_weighted_sums_are_unbiased_even_where_the_confidences_are_wrong(right_confidences: bool) -> None:
    """400 draws of 40: the mean of Σ y/π / N within the standard error of that mean, at one in a million."""
    c = confidences()
    rng = np.random.default_rng(5)
    right = rng.random(len(c)) < (c if right_confidences else rng.permutation(c) ** 3)
    chances = inclusion_probabilities(c, N)
    estimates = []
    for seed in range(DRAWS):
        rows = draw(chances, np.random.default_rng(seed))
        estimates.append((right[rows] / chances[rows]).sum() / len(c))
    error = np.std(estimates, ddof=1) / np.sqrt(DRAWS)
    assert abs(np.mean(estimates) - right.mean()) < CERTAIN_NORMAL * error


@pytest.mark.slow
def test_the_interval_is_as_narrow_as_was_said_and_narrower_than_an_even_draws() -> None:
    """300 draws of 200 of 5,000: mean widths within 10 % of those expected (their own error is below 2 %)."""
    c = confidences(5000, seed=3)
    rng = np.random.default_rng(8)
    chances, even = inclusion_probabilities(c, 200), np.full(5000, 200 / 5000)
    widths: dict[str, list[float]] = {"chosen": [], "even": []}
    for _ in range(300):
        right = rng.random(len(c)) < c
        for name, pi in (("chosen", chances), ("even", even)):
            rows = draw(pi, rng)
            estimate = hajek(weighted_counts(right[rows], 1 / pi[rows]))
            assert isinstance(estimate, Estimate)
            widths[name].append(estimate.upper - estimate.lower)
    expected = expected_widths(c, chances)
    assert np.mean(widths["chosen"]) == pytest.approx(expected.chosen, rel=0.1)
    assert np.mean(widths["even"]) == pytest.approx(expected.even, rel=0.1)
    assert expected.chosen < 0.9 * expected.even


@pytest.mark.parametrize(
    ("confidence", "n", "uniform", "message"),
    [
        ([0.5, 0.5], 0, 0.1, "n must be at least 1, got 0"),
        ([0.5, 0.5], 1, 0.0, "uniform must be a share above 0 and at most 1, got 0.0"),
        (
            [0.5, 1.2],
            1,
            0.1,
            "confidence must be numbers from 0 to 1, one for each answer, and not empty",
        ),
        ([], 1, 0.1, "confidence must be numbers from 0 to 1, one for each answer, and not empty"),
        ([np.nan], 1, 0.1, "confidence must be numbers from 0 to 1, one for each answer, and not empty"),
    ],
)
def test_what_is_not_allowed_is_said(confidence: list[float], n: int, uniform: float, message: str) -> None:
    with pytest.raises(ValueError, match="^" + message.replace("(", r"\(").replace(")", r"\)") + "$"):
        inclusion_probabilities(confidence, n, uniform=uniform)


def test_widths_need_a_chance_for_each_answer() -> None:
    with pytest.raises(
        ValueError, match=r"^probability must have the shape of confidence, \(2,\), got \(1,\)$"
    ):
        expected_widths([0.5, 0.6], [0.5])
