"""The choice of a calibration method by rows outside the fit."""

from __future__ import annotations

import numpy as np
import pytest

from monitor import CALIBRATORS, Choice, choose, cross_fit_in_time
from monitor.base.records import Floats, Ints
from monitor.engine.reference import Reference

METHODS = ["temperature", "platt", "beta", "isotonic"]


def of_two(score: Floats, chance: Floats, seed: int = 0) -> tuple[Floats, Ints]:
    labels = (np.random.default_rng(seed).random(len(score)) < chance).astype(np.int64)
    return np.column_stack((1 - score, score)), labels


def chosen(score: Floats, chance: Floats) -> Choice:
    scores, labels = of_two(score, chance)
    return choose(scores, labels, labels)


def logit(p: Floats) -> Floats:
    return np.log(p) - np.log1p(-p)


def sigmoid(x: Floats) -> Floats:
    return 1 / (1 + np.exp(-x))


@pytest.mark.slow
def test_each_shape_of_distortion_brings_out_its_method() -> None:
    score = np.random.default_rng(1).uniform(0.001, 0.999, 20_000)
    assert chosen(score, score).method == "temperature"
    assert chosen(score, sigmoid(0.5 * logit(score))).method == "temperature"
    assert chosen(score, sigmoid(logit(score) - 1.0)).method == "platt"
    assert chosen(score, sigmoid(2.0 * np.log(score) - 0.3 * np.log1p(-score))).method == "beta"
    assert chosen(score, np.where(score > 0.4, 0.9, 0.1)).method == "isotonic"


@pytest.mark.slow
def test_classes_that_need_a_shift_each_bring_out_vector_scaling() -> None:
    rng = np.random.default_rng(2)
    truth = rng.dirichlet(np.ones(3), 20_000)
    labels = (rng.random((20_000, 1)) > np.cumsum(truth, axis=1)).sum(axis=1)
    scores = truth * np.array([1.0, 3.0, 9.0])
    scores /= scores.sum(axis=1, keepdims=True)
    choice = choose(scores, labels, labels)
    assert choice.method == "vector"
    assert list(choice.losses) == ["none", "temperature", "platt", "vector", "beta", "isotonic"]


def test_the_losses_are_those_of_cross_fitting_by_hand() -> None:
    scores, labels = of_two(np.random.default_rng(3).random(1000), np.full(1000, 0.5))
    choice = choose(scores, labels, labels)
    assert list(choice.losses) == ["none", *METHODS]
    for method, loss in choice.losses.items():
        calibrated = cross_fit_in_time(CALIBRATORS[method](), scores, labels, labels)
        chance = np.maximum(calibrated[np.arange(1000), labels], 1 / 1002)
        assert loss == pytest.approx(-np.log(chance).mean(), abs=1e-12)


@pytest.mark.slow
def test_a_tie_goes_to_the_simpler_though_another_may_read_less() -> None:
    """Calibrated scores: on several of 20 sets another method reads the least, and temperature is taken."""
    choices = []
    for seed in range(20):
        score = np.random.default_rng(seed).uniform(0.05, 0.95, 2000)
        scores, labels = of_two(score, score, 100 + seed)
        choices.append(choose(scores, labels, labels))
    least = [min(METHODS, key=each.losses.__getitem__) for each in choices]
    assert sum(method != "temperature" for method in least) >= 3
    assert sum(each.method == "temperature" for each in choices) >= 16


def test_weights_move_the_choice() -> None:
    """Half of the rows call for isotonic; with next to no weight they no longer do."""
    rng = np.random.default_rng(4)
    score = rng.uniform(0.01, 0.99, 8000)
    odd = np.arange(8000) % 2 == 1
    scores, labels = of_two(score, np.where(odd, np.where(score > 0.4, 0.95, 0.05), score))
    assert choose(scores, labels, labels).method != "temperature"
    assert choose(scores, labels, labels, np.where(odd, 1e-6, 1.0)).method == "temperature"


def test_a_reference_remembers_its_choice_and_fits_it_once() -> None:
    score = np.random.default_rng(5).random(3000)
    scores, labels = of_two(score, np.where(score > 0.4, 0.9, 0.1))
    reference = Reference(scores, labels, labels, np.arange(3000.0), "", {})
    fitted = reference.calibration("auto")
    assert fitted.method == reference.choice().method == "isotonic"
    assert reference.calibration("isotonic") is fitted
    assert reference.choice() is reference.choice()


def test_too_few_rows_or_outcomes_are_named() -> None:
    scores, labels = of_two(np.array([0.2, 0.8, 0.7]), np.array([0.0, 1.0, 1.0]))
    with pytest.raises(ValueError, match=r"folds must lie from 2 to the number of rows \(3\), got 5"):
        choose(scores, labels, labels)
    one = np.ones(100, dtype=np.int64)
    with pytest.raises(ValueError, match=r"outside rows 0 to 19 .* needs at least two different outcomes"):
        choose(np.full((100, 2), 0.5), one, one)
