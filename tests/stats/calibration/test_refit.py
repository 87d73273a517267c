"""Calibrations fitted again on labels: what they are worth under drift, and what they cost without."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from monitor import CALIBRATORS, LabelledRows, confidence_of, refitted
from monitor.base.records import Floats
from monitor.stats.calibration.refit import FEWEST_LABELS, RATIOS
from tests.nearly import nearly

METHODS = ["beta", "isotonic", "platt", "temperature", "vector"]
every_method = pytest.mark.parametrize("method", METHODS)
REFERENCE = 3000
TRIALS = 14
WINDOW = 2000


def world(drift: float) -> Callable[[Floats], Floats]:
    """Return chance of the second class at a score: that of the reference, less so much on the logit's
    scale.
    """
    return lambda score: 1 / (1 + np.exp(-0.6 * (np.log(score) - np.log1p(-score)) * (1 - drift)))


def rows(rng: np.random.Generator, n: int, drift: float, start: float = 0.0) -> LabelledRows:
    score = np.clip(rng.beta(0.5, 0.5, n), 0.001, 0.999)
    labels = (rng.random(n) < world(drift)(score)).astype(np.int64)
    scores = np.column_stack((1 - score, score))
    return LabelledRows(scores, scores.argmax(axis=1), labels, start + np.arange(n), np.ones(n))


def window_errors(method: str, labels: int, drift: float) -> tuple[Floats, Floats, Floats]:
    """Return, by trial, the error of the mean confidence of a fresh window by the old and the new fit, and
    the weight.
    """
    results = []
    for trial in range(TRIALS):
        rng = np.random.default_rng([trial, labels, round(100 * drift)])
        reference, came = rows(rng, REFERENCE, 0.0), rows(rng, labels, drift, 1e5)
        window = rows(rng, WINDOW, drift)
        truth = world(drift)(window.scores[:, 1])
        accuracy = np.where(window.predicted == 1, truth, 1 - truth).mean()
        old = CALIBRATORS[method]().fit(*reference[:3])
        new = refitted(reference, came, CALIBRATORS[method]())
        errors = [
            abs(confidence_of(fitted.apply(window.scores), window.predicted).mean() - accuracy)
            for fitted in (old, new.calibration)
        ]
        results.append([*errors, new.weight])
    before, after, weight = np.array(results).T
    return before, after, weight


@pytest.mark.simulation
@every_method
def test_after_drift_the_window_accuracy_is_nearer_and_the_reference_counts_for_little(method: str) -> None:
    """500 labels; accuracy fell by some six points. The mean error must fall by half at least."""
    before, after, weight = window_errors(method, 500, drift=0.5)
    assert before.mean() > 0.05
    assert after.mean() < before.mean() / 2
    assert np.median(weight) * REFERENCE <= 500


@pytest.mark.simulation
@every_method
def test_without_drift_it_costs_little(method: str) -> None:
    """The labels' own share of right answers would be off by 1.5 points on average at 500. The refit is
    nearer, and the reference mostly counts for as much as the labels or more."""
    before, after, weight = window_errors(method, 500, drift=0.0)
    assert before.mean() < 0.009
    assert after.mean() < 0.0133
    assert (weight * REFERENCE >= 500).mean() > 0.5


@pytest.mark.simulation
def test_more_labels_follow_more_closely() -> None:
    few, many = (window_errors("platt", n, drift=0.5)[1].mean() for n in (100, 2000))
    assert many < few / 2


@every_method
def test_it_is_the_fit_by_hand_at_the_weight_of_least_held_out_loss(method: str) -> None:
    rng = np.random.default_rng(1)
    reference, came = rows(rng, 1000, 0.0), rows(rng, 200, 0.4, 1e5)
    refit = refitted(reference, came, CALIBRATORS[method]())
    assert list(refit.losses) == nearly([1.0, *(ratio * 0.2 for ratio in reversed(RATIOS) if ratio < 5), 0.0])
    assert refit.losses[refit.weight] == min(refit.losses.values())
    assert refit.until == came.time[-1]
    joined = [np.concatenate(pair) for pair in zip(reference[:3], came[:3], strict=True)]
    weights = np.repeat([refit.weight, 1.0], [1000, 200])
    by_hand = CALIBRATORS[method]().fit(*joined, weights)
    np.testing.assert_allclose(
        refit.calibration.apply(came.scores), by_hand.apply(came.scores), rtol=0, atol=1e-12
    )


def test_held_out_losses_are_those_of_fits_without_the_fold() -> None:
    rng = np.random.default_rng(2)
    reference, came = rows(rng, 300, 0.0), rows(rng, 100, 0.4, 1e5)
    total = 0.0
    for first in range(0, 100, 20):
        inside = (np.arange(100) >= first) & (np.arange(100) < first + 20)
        joined = [np.concatenate((a, b[~inside])) for a, b in zip(reference[:3], came[:3], strict=True)]
        fitted = CALIBRATORS["platt"]().fit(*joined)
        total -= np.log(fitted.apply(came.scores[inside])[np.arange(20), came.labels[inside]]).sum()
    assert refitted(reference, came, CALIBRATORS["platt"]()).losses[1.0] == pytest.approx(total / 100)


def test_weights_of_labels_count_whatever_their_scale() -> None:
    """Wrong answers labelled three times as often: without weights the accuracy would be far too low."""
    rng = np.random.default_rng(3)
    reference, pool = rows(rng, 2000, 0.0), rows(rng, 6000, 0.5, 1e5)
    chance = np.where(pool.predicted == pool.labels, 0.2, 0.6)
    picked = rng.random(6000) < chance
    came = LabelledRows(*(column[picked] for column in pool))._replace(weights=1 / chance[picked])
    truth = (pool.predicted == pool.labels).mean()
    accuracy = []
    for sample in (
        came,
        came._replace(weights=7 * came.weights),
        came._replace(weights=np.ones(picked.sum())),
    ):
        fitted = refitted(reference, sample, CALIBRATORS["platt"]()).calibration
        accuracy.append(confidence_of(fitted.apply(pool.scores), pool.predicted).mean())
    assert accuracy[0] == pytest.approx(truth, abs=0.03)
    assert accuracy[1] == pytest.approx(accuracy[0], abs=1e-9)
    assert accuracy[2] < truth - 0.1


def test_nothing_given_is_changed_and_the_same_comes_twice() -> None:
    rng = np.random.default_rng(4)
    samples = rows(rng, 500, 0.0), rows(rng, 100, 0.3, 1e5)
    for column in (column for each in samples for column in each):
        column.flags.writeable = False
    first, second = (refitted(*samples, CALIBRATORS["isotonic"]()) for _ in range(2))
    assert first.calibration.snapshot() == second.calibration.snapshot()
    assert (first.weight, first.losses) == (second.weight, second.losses)


def test_labels_of_one_outcome_keep_the_reference_in_the_fit() -> None:
    """Alone they cannot be fitted on: the weight 0 is left out, not fallen over."""
    rng = np.random.default_rng(5)
    reference, came = rows(rng, 500, 0.0), rows(rng, 60, 0.0, 1e5)
    refit = refitted(reference, came._replace(labels=np.ones(60, dtype=np.int64)), CALIBRATORS["platt"]())
    assert 0.0 not in refit.losses
    assert refit.weight > 0


def test_what_cannot_be_refitted_is_named() -> None:
    rng = np.random.default_rng(6)
    reference, came = rows(rng, 500, 0.0), rows(rng, FEWEST_LABELS, 0.0, 1e5)
    platt = CALIBRATORS["platt"]()
    with pytest.raises(
        ValueError, match=r"labelled must have at least 50 rows, .* got 49; wait for more labels"
    ):
        refitted(reference, LabelledRows(*(column[1:] for column in came)), platt)
    with pytest.raises(
        ValueError, match=r"labelled: time must have one entry for each row and must not fall; sort"
    ):
        refitted(reference, came._replace(time=came.time[::-1]), platt)
    with pytest.raises(ValueError, match=r"reference: labels\[0\] must be a class index from 0 to 1, got 2"):
        refitted(reference._replace(labels=reference.labels + 2), came, platt)
    same = reference._replace(labels=np.ones(500, dtype=np.int64))
    with pytest.raises(ValueError, match="cannot be fitted again: platt calibration needs at least two diff"):
        refitted(same, came._replace(labels=np.ones(FEWEST_LABELS, dtype=np.int64)), platt)
