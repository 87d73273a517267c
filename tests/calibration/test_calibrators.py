"""What every calibration method must keep: the table `CALIBRATORS` is walked, so that a new one is too."""

from __future__ import annotations

import json

import numpy as np
import pytest

from monitor.calibration import (
    CALIBRATORS,
    calibration_from_snapshot,
    confidence_of,
    cross_fit_in_time,
)
from monitor.records import Floats, Ints

Rows = tuple[Floats, Ints, Ints]


def rows(width: int, n: int = 600, seed: int = 0) -> Rows:
    """Overconfident scores with their predicted classes and labels."""
    rng = np.random.default_rng(seed)
    if width == 1:
        score = rng.beta(6, 2, (n, 1))
        return score, np.zeros(n, dtype=np.int64), (rng.random(n) > score[:, 0] * 0.9).astype(np.int64)
    truth = rng.dirichlet(np.ones(width), n)
    labels = (rng.random((n, 1)) > np.cumsum(truth, axis=1)).sum(axis=1).clip(0, width - 1)
    scores = truth**2 / (truth**2).sum(axis=1, keepdims=True)
    return scores, scores.argmax(axis=1), labels


WIDTHS = [1, 2, 3, 5]
every_method = pytest.mark.parametrize("method", sorted(CALIBRATORS))
every_width = pytest.mark.parametrize("width", WIDTHS)


@every_method
@every_width
def test_gives_probabilities(method: str, width: int) -> None:
    scores, predicted, labels = rows(width)
    calibrated = CALIBRATORS[method]().fit(scores, predicted, labels).apply(scores)
    assert calibrated.shape == scores.shape
    assert calibrated.dtype == np.float64
    assert calibrated.min() >= 0.0
    assert calibrated.max() <= 1.0
    if width > 1:
        np.testing.assert_allclose(calibrated.sum(axis=1), 1.0, atol=1e-12)


@every_method
@every_width
def test_a_snapshot_comes_back_through_json_to_the_last_bit(method: str, width: int) -> None:
    scores, predicted, labels = rows(width)
    fitted = CALIBRATORS[method]().fit(scores, predicted, labels)
    assert fitted.method == method
    back = calibration_from_snapshot(json.loads(json.dumps(fitted.snapshot())))
    assert type(back) is type(fitted)
    np.testing.assert_array_equal(back.apply(scores), fitted.apply(scores))
    assert back.snapshot() == fitted.snapshot()


@every_method
@every_width
def test_input_is_left_alone_and_output_is_its_own(method: str, width: int) -> None:
    scores, predicted, labels = rows(width)
    for array in (scores, predicted, labels):
        array.flags.writeable = False
    calibrated = CALIBRATORS[method]().fit(scores, predicted, labels).apply(scores)
    assert not np.shares_memory(calibrated, scores)
    cross_fit_in_time(CALIBRATORS[method](), scores, predicted, labels)


@every_method
@every_width
def test_the_order_of_rows_does_not_matter(method: str, width: int) -> None:
    scores, predicted, labels = rows(width)
    scores = np.round(scores, 1)  # ties
    order = np.random.default_rng(1).permutation(len(scores))
    first = CALIBRATORS[method]().fit(scores, predicted, labels)
    second = CALIBRATORS[method]().fit(scores[order], predicted[order], labels[order])
    np.testing.assert_allclose(first.apply(scores), second.apply(scores), atol=1e-12)


@every_method
def test_extreme_scores_and_no_rows(method: str) -> None:
    scores, predicted, labels = rows(3)
    fitted = CALIBRATORS[method]().fit(scores, predicted, labels)
    corners = fitted.apply(np.eye(3))
    np.testing.assert_allclose(corners.sum(axis=1), 1.0)
    assert fitted.apply(np.zeros((0, 3))).shape == (0, 3)


@every_method
def test_relabelling_the_classes_permutes_the_result(method: str) -> None:
    scores, predicted, labels = rows(3)
    order = np.array([2, 0, 1])
    renamed = np.argsort(order)
    plain = CALIBRATORS[method]().fit(scores, predicted, labels).apply(scores)
    moved = CALIBRATORS[method]().fit(scores[:, order], renamed[predicted], renamed[labels])
    np.testing.assert_allclose(moved.apply(scores[:, order]), plain[:, order], atol=1e-12)


@every_method
def test_scores_of_another_width_are_refused(method: str) -> None:
    fitted = CALIBRATORS[method]().fit(*rows(2))
    with pytest.raises(ValueError, match=r"scores must have the shape \(n, 2\) .* got \(4, 3\)"):
        fitted.apply(np.full((4, 3), 1 / 3))


@every_method
def test_bad_references_are_named(method: str) -> None:
    fit = CALIBRATORS[method]().fit
    scores, predicted, labels = rows(2, 30)
    with pytest.raises(ValueError, match="the reference has no labelled rows"):
        fit(scores[:0], predicted[:0], labels[:0])
    with pytest.raises(ValueError, match=r"labels must have the shape \(30,\), .* got \(29,\)"):
        fit(scores, predicted, labels[1:])
    with pytest.raises(ValueError, match=r"scores must have the shape \(n, K\) .* got \(30,\)"):
        fit(scores[:, 0], predicted, labels)
    unlabelled = labels.copy()
    unlabelled[7] = -1
    with pytest.raises(ValueError, match=r"labels\[7\] must be a class index from 0 to 1, got -1"):
        fit(scores, predicted, unlabelled)
    broken = scores.copy()
    broken[3, 1] = np.nan
    with pytest.raises(ValueError, match=r"scores\[3, 1\] must be a number from 0 to 1, got nan"):
        fit(broken, predicted, labels)


@every_method
@every_width
def test_cross_fitting_equals_fitting_outside_each_fold_by_hand(method: str, width: int) -> None:
    scores, predicted, labels = rows(width, 101)
    found = cross_fit_in_time(CALIBRATORS[method](), scores, predicted, labels, folds=4)
    for first, past in ((0, 25), (25, 50), (50, 75), (75, 101)):
        inside = (np.arange(101) >= first) & (np.arange(101) < past)
        fitted = CALIBRATORS[method]().fit(scores[~inside], predicted[~inside], labels[~inside])
        np.testing.assert_array_equal(found[inside], fitted.apply(scores[inside]))


def test_cross_fitting_says_which_fold_cannot_be_fitted() -> None:
    scores, predicted, _ = rows(2, 100)
    labels = (np.arange(100) >= 80).astype(np.int64)  # all positives in the last of five folds
    with pytest.raises(ValueError, match="outside rows 80 to 99 of the reference: isotonic"):
        cross_fit_in_time(CALIBRATORS["isotonic"](), scores, predicted, labels)
    with pytest.raises(ValueError, match=r"folds must lie from 2 to the number of rows \(100\), got 1"):
        cross_fit_in_time(CALIBRATORS["isotonic"](), scores, predicted, labels, folds=1)


def test_confidence_is_that_of_the_class_acted_on() -> None:
    calibrated = np.array([[0.7, 0.3], [0.4, 0.6], [0.2, 0.8]])
    assert confidence_of(calibrated, np.array([1, 1, 0])).tolist() == [0.3, 0.6, 0.2]
    alone = np.array([[0.9], [0.8]])
    confidence = confidence_of(alone, np.array([0, 0]))
    assert confidence.tolist() == [0.9, 0.8]
    assert not np.shares_memory(confidence, alone)


def test_an_unknown_method_is_named() -> None:
    with pytest.raises(ValueError, match=r"snapshot\.method must be one of isotonic, none, ssme, got 'plat'"):
        calibration_from_snapshot({"method": "plat"})
