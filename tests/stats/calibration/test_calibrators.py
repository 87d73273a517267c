"""The contract of every calibration method: the tests walk the table `CALIBRATORS`, so that it holds for new
ones.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

from monitor import CALIBRATORS, calibration_from_snapshot, confidence_of, cross_fit_in_time
from monitor.base.records import Floats, Ints
from tests.nearly import nearly

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
FITTING = sorted(set(CALIBRATORS) - {"none"})
SINGLE = sorted(set(CALIBRATORS) - {"auto"})  # the folds of auto are cut in the order of the rows: in time
every_fitting = pytest.mark.parametrize("method", FITTING)
every_single = pytest.mark.parametrize("method", SINGLE)
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
    assert fitted.method == method or method == "auto"
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


@every_single
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
    with pytest.raises(ValueError, match=r"scores must have the shape \(n, 2\), .* got \(4, 3\)"):
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
    calibrated = cross_fit_in_time(CALIBRATORS[method](), scores, predicted, labels, folds=4)
    for first, past in ((0, 25), (25, 50), (50, 75), (75, 101)):
        inside = (np.arange(101) >= first) & (np.arange(101) < past)
        fitted = CALIBRATORS[method]().fit(scores[~inside], predicted[~inside], labels[~inside])
        assert calibrated[inside] == nearly(fitted.apply(scores[inside]))


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
    with pytest.raises(
        ValueError,
        match="must be one of beta, covariates, isotonic, none, platt, ssme, temperature, vector, got 'plat'",
    ):
        calibration_from_snapshot({"method": "plat"})


@every_method
@every_width
def test_a_fit_is_the_same_every_time(method: str, width: int) -> None:
    snapshots = [CALIBRATORS[method]().fit(*rows(width)).snapshot() for _ in range(2)]
    assert snapshots[0] == snapshots[1]


@every_single
@every_width
def test_a_weight_of_two_is_the_row_twice_and_of_zero_no_row(method: str, width: int) -> None:
    scores, predicted, labels = rows(width, 400)
    weights = np.random.default_rng(2).integers(0, 3, 400).astype(np.float64)
    every = np.repeat(np.arange(400), weights.astype(int))
    weighted = CALIBRATORS[method]().fit(scores, predicted, labels, weights)
    repeated = CALIBRATORS[method]().fit(scores[every], predicted[every], labels[every])
    np.testing.assert_allclose(weighted.apply(scores), repeated.apply(scores), atol=1e-9)
    plain = CALIBRATORS[method]().fit(scores, predicted, labels)
    same = CALIBRATORS[method]().fit(scores, predicted, labels, np.ones(400))
    np.testing.assert_allclose(same.apply(scores), plain.apply(scores), atol=1e-12)


@every_method
@every_width
def test_a_prepared_fit_is_that_of_the_rows_that_weigh_something(method: str, width: int) -> None:
    scores, predicted, labels = rows(width, 400)
    scores = scores.round(2 if width < 3 else 6)  # equal scores, some of them in dropped rows only
    fit = CALIBRATORS[method]().prepare_fit(scores, predicted, labels)
    for part in (slice(0), slice(0, 80), slice(200, 400)):
        weights = np.random.default_rng(2).integers(0, 3, 400) / 2.0
        weights[part] = 0.0
        kept = weights > 0
        alone = CALIBRATORS[method]().fit(scores[kept], predicted[kept], labels[kept], weights[kept])
        np.testing.assert_allclose(fit(weights).apply(scores), alone.apply(scores), atol=1e-12)


@every_fitting
@pytest.mark.parametrize("width", [1, 2, 3])
def test_a_prepared_fit_refuses_what_a_fit_refuses_in_the_same_words(method: str, width: int) -> None:
    scores, predicted, labels = rows(width, 600)
    wrong, half = (1 - scores if width < 3 else scores[:, [1, 2, 0]]), np.arange(600) < 300
    weights, words = half.astype(np.float64), r"needs at least two|would reverse|folds must"
    for inputs, outcomes in ((wrong, labels), (scores, np.where(half, 0, labels))):
        with pytest.raises(ValueError, match=words) as refused:
            CALIBRATORS[method]().fit(inputs[half], predicted[half], outcomes[half], weights[half])
        with pytest.raises(ValueError, match=words) as refused_too:
            CALIBRATORS[method]().prepare_fit(inputs, predicted, outcomes)(weights)
        assert str(refused_too.value) == str(refused.value)


@every_method
def test_bad_weights_are_named(method: str) -> None:
    scores, predicted, labels = rows(2, 30)
    fit = CALIBRATORS[method]().fit
    with pytest.raises(ValueError, match=r"weights must have the shape \(30,\), .* got \(29,\)"):
        fit(scores, predicted, labels, np.ones(29))
    for wrong in (-1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match=rf"weights\[4\] must be a number of at least 0, got {wrong}"):
            fit(scores, predicted, labels, np.where(np.arange(30) == 4, wrong, 1.0))
    with pytest.raises(ValueError, match="weights must be above 0 in some row, got 0 in every one"):
        fit(scores, predicted, labels, np.zeros(30))


@every_fitting
@pytest.mark.parametrize("width", [1, 2, 3])
def test_scores_that_are_all_equal_give_the_frequencies(method: str, width: int) -> None:
    _, predicted, labels = rows(width, 3000)
    scores = np.full((3000, width), 1 / max(width, 2))
    calibrated = CALIBRATORS[method]().fit(scores, predicted, labels).apply(scores[:1])[0]
    frequencies = np.array([(labels == k).mean() for k in range(width)])
    if method == "temperature":  # has no shift: a half stays a half
        frequencies[:] = 1 / max(width, 2)
    np.testing.assert_allclose(calibrated, frequencies, atol=0.015 if method == "auto" else 1e-3)


@every_fitting
@pytest.mark.parametrize("width", [1, 2, 3])
def test_scores_of_exactly_zero_and_one_stay_finite_and_take_the_frequency(method: str, width: int) -> None:
    rng = np.random.default_rng(7)
    side = max(width, 2)
    labels = rng.integers(0, side, 4000)
    predicted = np.where(rng.random(4000) < 0.8, labels, rng.integers(0, side, 4000))
    scores = np.eye(side)[predicted][:, :width]
    if width == 1:
        scores = rng.integers(0, 2, (4000, 1)).astype(np.float64)
        predicted = np.zeros(4000, dtype=np.int64)
        labels = (rng.random(4000) > 0.1 + 0.8 * scores[:, 0]).astype(np.int64)
    calibrated = CALIBRATORS[method]().fit(scores, predicted, labels).apply(scores)
    assert np.isfinite(calibrated).all()
    assert confidence_of(calibrated, predicted).mean() == pytest.approx(
        (predicted == labels).mean(), abs=0.03
    )


@every_fitting
@every_width
def test_one_outcome_or_one_row_is_refused_with_the_way_out(method: str, width: int) -> None:
    scores, predicted, _ = rows(width, 40)
    fit = CALIBRATORS[method]().fit
    for n in (40, 1):
        with pytest.raises(ValueError, match=rf"({method}|temperature) .* two different outcomes|folds must"):
            fit(scores[:n], predicted[:n], np.zeros(n, dtype=np.int64))


@every_fitting
def test_a_class_without_a_label_gets_next_to_no_probability(method: str) -> None:
    """There are three classes; with two there would be one outcome only."""
    scores, predicted, labels = rows(3, 3000)
    present = labels != 2
    fitted = CALIBRATORS[method]().fit(scores[present], predicted[present], labels[present])
    absent = fitted.apply(scores)[:, 2].mean()
    if method == "temperature":  # cannot take anything from one class alone
        assert absent > 0.1
    else:
        assert absent < 2e-3


@every_fitting
@pytest.mark.parametrize("width", [1, 2, 3])
def test_scores_the_wrong_way_round_are_refused_with_the_sentence(method: str, width: int) -> None:
    scores, predicted, labels = rows(width, 600)
    wrong = 1 - scores if width < 3 else scores[:, [1, 2, 0]]
    meanings = {
        1: "a right answer has the larger confidence than a wrong one with a chance of .*; is it the prob",
        2: r"the score of a class is larger where that class is right with a chance of only .* class 0 and "
        r".* class 1; are these classes \(0 to 1, in the order of `classes`\) the wrong way round\?",
        3: r"of only .*for class 0 and .*for class 1 and .*for class 2; are these classes \(0 to 2,",
    }[width]
    with pytest.raises(ValueError, match=f"calibration would reverse the order of the scores: .*{meanings}"):
        CALIBRATORS[method]().fit(wrong, predicted, labels)


@every_fitting
def test_one_badly_learnt_class_of_three_is_flat_and_not_refused(method: str) -> None:
    scores, predicted, labels = rows(3, 3000)
    odd = scores.copy()
    odd[:, 2] = (1 - scores[:, 2]) / 2
    odd /= odd.sum(axis=1, keepdims=True)
    calibrated = CALIBRATORS[method]().fit(odd, predicted, labels).apply(odd)
    np.testing.assert_allclose(calibrated.sum(axis=1), 1.0, atol=1e-12)


@every_fitting
def test_scores_that_say_nothing_are_hardly_ever_refused(method: str) -> None:
    """The bound is passed by chance in 3 of 100,000: in 40 trials it is not."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        score = rng.random(200)
        labels = rng.integers(0, 2, 200)
        fitted = CALIBRATORS[method]().fit(np.column_stack((1 - score, score)), labels, labels)
        at = np.linspace(0, 1, 11)
        curve = fitted.apply(np.column_stack((1 - at, at)))[:, 1]
        assert (np.diff(curve) >= 0).all()


@every_fitting
@every_width
def test_thirty_rows_can_be_fitted(method: str, width: int) -> None:
    scores, predicted, labels = rows(width, 30)
    calibrated = CALIBRATORS[method]().fit(scores, predicted, labels).apply(scores)
    assert np.isfinite(calibrated).all()


@every_fitting
def test_separable_rows_have_a_finite_fit(method: str) -> None:
    score = np.linspace(0.05, 0.95, 60)
    labels = (score > 0.5).astype(np.int64)
    order = np.random.default_rng(0).permutation(60)
    scores = np.column_stack((1 - score, score))[order]
    calibrated = CALIBRATORS[method]().fit(scores, labels[order], labels[order]).apply(scores)
    assert np.isfinite(calibrated).all()
    assert (calibrated.argmax(axis=1) == labels[order]).all()
