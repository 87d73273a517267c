"""LURE weights against enumeration and simulation, and the acquisition."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from monitor import Estimate
from monitor.stats.labelled.active_testing import (
    ActiveTesting,
    expected_error,
    lure_weights,
)


def test_the_weighted_mean_is_unbiased_over_all_orders_of_draws() -> None:
    """The slow witness: every way to draw 3 of 5 rows without replacement, with its probability."""
    score, loss = np.array([0.05, 0.1, 0.2, 0.3, 0.35]), np.array([1.0, 0.0, 0.3, 0.8, 0.1])
    expectation = total = 0.0
    for order in permutations(range(5), 3):
        q = [score[row] / (score.sum() - score[list(order[:m])].sum()) for m, row in enumerate(order)]
        chance = float(np.prod(q))
        expectation += chance * float((lure_weights(q, 5) * loss[list(order)]).mean())
        total += chance
    assert total == pytest.approx(1.0)
    assert expectation == pytest.approx(loss.mean(), abs=1e-12)


def test_uniform_draws_weigh_one_and_so_do_all_rows() -> None:
    q = 1 / np.arange(10, 4, -1)
    np.testing.assert_allclose(lure_weights(q, 10), 1.0)
    np.testing.assert_array_equal(lure_weights([0.9, 0.2], 2), [1.0, 1.0])


@pytest.mark.parametrize(
    ("chances", "rows", "message"),
    [
        ([0.0], 5, "draw_probabilities must be numbers above 0 and up to 1, one for each draw"),
        ([0.5, 0.5], 1, "rows must be at least the number of draws, 2, got 1"),
    ],
)
def test_wrong_draws_are_named(chances, rows: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        lure_weights(chances, rows)


@pytest.mark.slow
def test_the_interval_holds_the_truth_where_errors_are_drawn_more_often() -> None:
    # 300 trials: three binomial errors at 0.95 are 3.8 points.
    inside, errors = 0, []
    for seed in range(300):
        rng = np.random.default_rng([8, seed])
        chance = rng.beta(5, 1, 1000)
        right = rng.random(1000) < chance
        scores = np.stack([1 - np.maximum(chance, 0.5), np.maximum(chance, 0.5)], axis=1)[:, None]
        q = expected_error(np.stack([1 - chance, chance], axis=1), np.ones(1000, dtype=int), uniform=0.5)
        left, labels = np.ones(1000, dtype=bool), np.full(1000, -1)
        order, weights = np.full(1000, -1), np.ones(1000)
        for m in range(60):
            now = np.where(left, q, 0.0) / q[left].sum()
            row = rng.choice(1000, p=now)
            left[row], labels[row], order[row], weights[row] = False, int(right[row]), m, 1 / now[row]
        estimate = (
            ActiveTesting().fit(scores, labels, weights=weights, acquisition=order).estimate("accuracy")
        )
        assert isinstance(estimate, Estimate)
        inside += estimate.lower <= right.mean() <= estimate.upper
        errors.append(estimate.value - right.mean())
    assert inside / 300 >= 0.95 - 0.038
    assert np.mean(errors) == pytest.approx(0.0, abs=4 * np.std(errors) / np.sqrt(300))


def test_rows_that_are_all_right_are_all_right_whatever_they_weigh() -> None:
    """The errors are weighed, as in the paper: a mean over the right rows would be that of their weights."""
    scores = np.tile([[[0.1, 0.9]]], (100, 1, 1))
    order = np.where(np.arange(100) < 10, np.arange(100), -1)
    fit = ActiveTesting().fit(
        scores, np.where(order < 0, -1, 1), weights=np.where(order == 3, 400.0, 20.0), acquisition=order
    )
    answer = fit.estimate("accuracy")
    assert isinstance(answer, Estimate)
    assert answer.value == 1.0
    assert answer.lower < 0.95


def test_acquisitions_are_chances_and_know_what_the_surrogate_does_not() -> None:
    rng = np.random.default_rng(0)
    surrogate = rng.dirichlet([1.0, 1.0], size=30)
    acted = rng.integers(0, 2, 30)
    chances = expected_error(surrogate, acted)
    assert chances.sum() == pytest.approx(1.0)
    assert chances.min() >= 0.1 / 30
    np.testing.assert_allclose(expected_error(np.eye(2)[acted], acted), 1 / 30)
    with pytest.raises(ValueError, match="uniform must be a share from 0 to 1, got 2"):
        expected_error(surrogate, acted, uniform=2)
