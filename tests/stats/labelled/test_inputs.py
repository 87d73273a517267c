"""The errors of `fit`, and its order of rows and models, which comes from their content alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from monitor.stats.labelled.inputs import LabelledScores, checked_input, checked_scores, mean_of_models
from tests.nearly import nearly

GOOD = np.array([[[0.2, 0.8], [0.6, 0.4]], [[0.9, 0.1], [0.5, 0.5]], [[0.3, 0.7], [1.0, 0.0]]])
LABELS = np.array([1, -1, 0])


def changed(at: tuple[int, ...], value: object) -> np.ndarray:
    scores = GOOD.copy()
    scores[at] = value
    return scores


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            {"scores": GOOD[:, 0]},
            r"scores must have the shape \(n, M, K\).* got \(3, 2\); .* scores\[:",
        ),
        ({"scores": GOOD[:, :, :1]}, r"classes \(at least 2\), got \(3, 2, 1\)"),
        ({"scores": changed((1, 0, 1), np.nan)}, r"scores\[1, 0\] holds NaN for some classes only; give NaN"),
        (
            {"scores": changed((2, 1, 0), 1.5)},
            r"scores\[2, 1, 0\] must be a probability .* got 1.5; turn",
        ),
        ({"scores": changed((2, 1, 0), -0.1)}, r"scores\[2, 1, 0\] must be a probability .* got -0.1"),
        ({"scores": changed((0, 1, 0), np.inf)}, r"scores\[0, 1, 0\] must be a probability .* got inf"),
        ({"scores": changed((0, 0, 0), 0.3)}, r"scores\[0, 0\] must sum to 1 within 0.001 .* a sum of 1.1"),
        ({"labels": [1, -1]}, r"labels must have the shape \(3,\), like the scores, got \(2,\)"),
        ({"labels": [1, 2, 0]}, r"labels\[1\] must lie from -1 to 1 \(-1 for no label, else a class.* got 2"),
        ({"labels": [1, -2, 0]}, r"labels\[1\] must lie from -1 to 1 .* got -2"),
        ({"labels": [1.0, np.nan, 0.0]}, r"labels must hold whole numbers .* got an array of float64"),
        (
            {"predicted": [1, 0, 1]},
            r"predicted must have the shape \(3, 2\), like the scores, got \(3,\)",
        ),
        ({"predicted": [[0, 0], [1, 2], [0, 0]]}, r"predicted\[1, 1\] must lie from -1 to 1 .* got 2"),
        (
            {"predicted": [[0, 0], [1, -1], [0, 0]]},
            r"predicted\[1, 1\] must be a class index where the",
        ),
        ({"weights": [1.0, 1.0]}, r"weights must have the shape \(3,\), one for each row, got \(2,\)"),
        ({"weights": [1.0, 1.0, 0.0]}, r"weights\[2\] must be a positive number .*got 0"),
        ({"weights": [np.nan, 1.0, 1.0]}, r"weights\[0\] must be a positive number .*got nan"),
        (
            {"acquisition": [0, 1, 2]},
            r"acquisition\[1\] must be -1 exactly where the row has no .* got 1",
        ),
        ({"acquisition": [0, -1, -1]}, r"acquisition\[2\] must be -1 exactly where the row has no label"),
    ],
)
def test_bad_input_is_named(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        checked_input(**{"scores": GOOD, "labels": LABELS, **arguments})


def test_scores_to_predict_must_have_the_models_and_classes_of_the_fit() -> None:
    with pytest.raises(ValueError, match=r"shape \(n, 3, 2\): rows, models .* got \(3, 2, 2\)"):
        checked_scores(GOOD, 3, 2)
    assert checked_scores(GOOD, 2, 2).shape == (3, 2, 2)


def test_rounded_scores_are_divided_by_their_sum() -> None:
    checked = checked_input([[[0.333, 0.333, 0.333]]], [0])
    assert checked.scores.ravel().tolist() == pytest.approx([1 / 3] * 3, abs=1e-15)


def test_sums_off_by_rounding_alone_leave_ties_between_rows_as_they_are() -> None:
    scores = np.array([[[0.3, 0.1, 0.6]], [[0.1, 0.3, 0.6]], [[0.6, 0.3, 0.1]]])
    assert len(set(scores.sum(axis=2).ravel().tolist())) > 1  # 0.9999999999999999 and 1.0
    assert set(checked_input(scores, [0, 1, 2]).scores.ravel().tolist()) == {0.1, 0.3, 0.6}


def test_nan_weights_of_unlabelled_rows_are_not_read() -> None:
    checked = checked_input(GOOD, LABELS, weights=[2.0, np.nan, 4.0])
    assert checked.weights is not None
    assert sorted(checked.weights.tolist()) == [1.0, 2.0, 4.0]


def test_the_acted_on_class_is_the_argmax_unless_given_and_none_where_the_model_is_missing() -> None:
    scores = changed((1, 0), np.nan)
    checked = checked_input(scores, LABELS)
    back = checked.to_original(checked.predicted)[:, np.argsort(checked.model_order)]
    assert back.tolist() == [[1, 0], [-1, 0], [1, 0]]
    explicit = checked_input(scores, LABELS, predicted=[[0, 1], [1, 1], [0, 1]])
    assert explicit.to_original(explicit.predicted)[:, np.argsort(explicit.model_order)].tolist() == [
        [0, 1],
        [-1, 1],
        [0, 1],
    ]


def test_nothing_that_was_given_is_kept_or_can_be_written_to() -> None:
    scores, labels = GOOD.copy(), LABELS.copy()
    checked = checked_input(scores, labels)
    assert not np.shares_memory(checked.scores, scores)
    assert not np.shares_memory(checked.labels, labels)
    for array in (checked.scores, checked.labels, checked.predicted, checked.present, checked.row_order):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


def contents(data: LabelledScores) -> list[list[float]]:
    return [data.scores.ravel().tolist(), data.labels.tolist(), data.predicted.ravel().tolist()]


def test_the_order_of_rows_and_models_does_not_reach_a_fit() -> None:
    rng = np.random.default_rng(5)
    scores = rng.dirichlet(np.ones(3), (40, 4)).round(1)  # many ties
    scores /= scores.sum(axis=2, keepdims=True)
    scores[rng.random((40, 4)) < 0.1] = np.nan
    labels = rng.integers(-1, 3, 40)
    plain = checked_input(scores, labels)
    for seed in range(5):
        rows, models = np.random.default_rng(seed).permutation(40), np.random.default_rng(seed).permutation(4)
        moved = checked_input(scores[rows][:, models], labels[rows])
        np.testing.assert_array_equal(moved.scores, plain.scores)
        assert contents(moved)[1:] == contents(plain)[1:]
        assert labels[rows][moved.row_order].tolist() == moved.labels.tolist()


def test_rows_go_there_and_back() -> None:
    data = checked_input(GOOD, LABELS)
    values = np.array([10.0, 20.0, 30.0])
    assert data.to_original(np.asarray(data.to_sorted(values))).tolist() == values.tolist()


def test_the_mean_of_the_models_is_over_those_that_answered() -> None:
    scores = changed((0, 1), np.nan)
    scores[2] = np.nan
    mean = mean_of_models(scores)
    assert mean[0] == nearly(np.array([0.2, 0.8]))
    assert mean[1] == pytest.approx([0.7, 0.3])
    assert mean[2] == pytest.approx((mean[0] + mean[1]) / 2)  # no answer at all: the mean of the other rows
    assert mean_of_models(np.full((2, 3, 4), np.nan)).tolist() == [[0.25] * 4] * 2
