"""The test for a change that models share, against a count by hand."""

from __future__ import annotations

from itertools import product
from math import comb

import numpy as np
import pytest

from monitor.stats.charts.shared import FEWEST_ALARMS, FEWEST_MODELS, MOVED, fewest_moved, moved_together


def flags(text: str) -> np.ndarray:
    return np.array([letter == "1" for letter in text])


def counted(deviations: np.ndarray, alarmed: np.ndarray) -> np.ndarray:
    """Decide the same by loops and whole numbers: the slow witness."""
    moved = [bool(on) or value <= -MOVED for value, on in zip(deviations, alarmed, strict=True)]
    n, k = len(moved), sum(moved)
    tail = sum(comb(n, i) * 0.1**i * 0.9 ** (n - i) for i in range(k, n + 1))
    alarms = sum(map(bool, alarmed))
    enough = alarms >= FEWEST_ALARMS and 3 * alarms >= n
    shared = n >= FEWEST_MODELS and 2 * k > n and tail <= 1 / 370 and enough
    return np.array([each and shared for each in moved])


@pytest.mark.parametrize("models", [0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
def test_it_decides_as_a_count_by_hand(models: int) -> None:
    for states in product((0, 1, 2), repeat=models):  # quiet, moved without an alarm, with one
        deviations = np.array([(0.4, -MOVED, 2.0)[state] for state in states])
        alarmed = np.array([state == 2 for state in states], dtype=bool)
        got = moved_together(deviations, alarmed)
        assert got.tolist() == counted(deviations, alarmed).tolist(), states


@pytest.mark.parametrize("models", range(3, 60))
def test_so_many_are_a_majority_and_more_than_chance_and_one_fewer_is_not(models: int) -> None:
    fewest = fewest_moved(models)
    tails = {
        k: sum(comb(models, i) * 0.1**i * 0.9 ** (models - i) for i in range(k, models + 1))
        for k in (fewest - 1, fewest)
    }
    assert 2 * fewest > models
    assert tails[fewest] <= 1 / 370
    assert 2 * (fewest - 1) <= models or tails[fewest - 1] > 1 / 370


def test_one_huge_drop_beside_quiet_models_is_not_shared() -> None:
    deviations = np.array([-1e6, *np.linspace(-1.5, 1.5, 19)])
    assert not moved_together(deviations, deviations < -3).any()


def test_a_second_alarm_is_needed_beside_a_model_that_fell_long_ago() -> None:
    deviations = np.full(4, -2.0)
    assert not moved_together(deviations, flags("1000")).any()
    assert moved_together(deviations, flags("1100")).all()


def test_the_alarms_of_a_third_of_the_models_are_needed_beside_noise_that_they_have_in_common() -> None:
    deviations = np.full(20, -2.0)
    assert not moved_together(deviations, flags("1" * 6 + "0" * 14)).any()
    assert moved_together(deviations, flags("1" * 7 + "0" * 13)).all()
    for models in range(6, 301, 3):  # a third is exact
        alarmed = np.arange(models) < models // 3
        assert moved_together(np.full(models, -2.0), alarmed).all(), models
        alarmed[0] = False
        assert not moved_together(np.full(models, -2.0), alarmed).any(), models


def test_the_quiet_models_are_left_out() -> None:
    deviations = np.array([-4.0, -4.0, -4.0, -2.0, 0.1])
    assert moved_together(deviations, deviations < -3).tolist() == [True, True, True, True, False]


def test_changes_for_the_better_are_not_shared() -> None:
    assert not moved_together(np.full(20, 9.0), np.zeros(20, dtype=bool)).any()


def test_the_order_of_the_models_does_not_matter_and_the_input_is_not_changed() -> None:
    rng = np.random.default_rng(7)
    deviations, alarmed = rng.normal(-2, 1, 12), rng.random(12) < 0.4
    before, order = (deviations.copy(), alarmed.copy()), rng.permutation(12)
    assert moved_together(deviations[order], alarmed[order]).tolist() == (
        moved_together(deviations, alarmed)[order].tolist()
    )
    assert (deviations == before[0]).all()
    assert (alarmed == before[1]).all()
