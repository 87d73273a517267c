"""Injected drops: the accuracy and the confidences fall by the same amount, whatever the chunks."""

from __future__ import annotations

import numpy as np
import pytest

from monitor.base.records import Floats, Ints
from monitor.stats.calibration.base import confidence_of
from monitor.stats.drops import Lowering, chance, replaced_labels, replaced_share

ROWS = 200_000


def calibrated(scores: Floats, predicted: Ints) -> Floats:
    """Return confidences below the scores of the predicted class, as of an overconfident model."""
    return confidence_of(scores, predicted) ** 1.5


@pytest.mark.parametrize("classes", [1, 2, 4])
def test_labels_and_confidences_fall_by_the_drop(classes: int) -> None:
    rng = np.random.default_rng(classes)
    scores = rng.dirichlet(np.full(max(classes, 2), 0.2), ROWS)[:, :classes]
    predicted = scores.argmax(axis=1) if classes > 1 else np.zeros(ROWS, dtype=np.int64)
    confidence = calibrated(scores, predicted)
    right = rng.random(ROWS) < confidence
    wrong = (predicted + rng.integers(1, max(classes, 2), ROWS)) % max(classes, 2)
    label = np.where(right, predicted, wrong)
    share = replaced_share(float(confidence.mean()), 0.05, classes)
    after = replaced_labels(label, np.arange(1, ROWS + 1, dtype=np.uint64), share, classes, seed=7)
    lower = calibrated(Lowering(classes, share, calibrated)(scores, predicted), predicted)
    lost = (label == predicted).mean() - (after == predicted).mean()
    assert lost == pytest.approx(0.05, abs=4 * (0.1 / ROWS) ** 0.5)
    known = confidence > chance(classes)
    goal = (1 - share) * confidence[known] + share * chance(classes)
    assert np.abs(lower[known] - goal).max() < 1e-3
    assert np.abs(lower[~known] - confidence[~known]).max(initial=0.0) < 1e-3  # scores are interpolated


def test_draws_do_not_depend_on_chunks_and_a_larger_share_contains_a_smaller() -> None:
    keys = np.arange(1, 5001, dtype=np.uint64)
    label = np.arange(5000, dtype=np.int64) % 2
    whole = replaced_labels(label, keys, 0.4, 2, seed=1)
    parts = [replaced_labels(label[i : i + 7], keys[i : i + 7], 0.4, 2, seed=1) for i in range(0, 5000, 7)]
    assert np.array_equal(np.concatenate(parts), whole)
    fewer = replaced_labels(label, keys, 0.1, 2, seed=1)
    assert set(np.flatnonzero(fewer != label)) < set(np.flatnonzero(whole != label))
    assert not np.array_equal(replaced_labels(label, keys, 0.4, 2, seed=2), whole)


def test_rows_without_a_label_stay_without_one() -> None:
    label = np.full(100, -1)
    assert np.array_equal(replaced_labels(label, np.arange(1, 101, dtype=np.uint64), 1.0, 2, seed=0), label)


def test_a_calibration_with_steps_lowers_to_the_nearer_step() -> None:
    def steps(scores: Floats, predicted: Ints) -> Floats:
        return np.floor(confidence_of(scores, predicted) * 10) / 10

    scores = np.array([[0.95, 0.05]])
    lowered = Lowering(2, 0.3, steps)(scores, np.array([0]))  # 0.9 to 0.7·0.9 + 0.3·0.5 = 0.78
    assert steps(lowered, np.array([0])).tolist() == [pytest.approx(0.8)]
