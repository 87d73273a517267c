"""Metrics under a posterior: scikit-learn where labels are hard, drawn labels where they are not."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import sklearn.metrics as witness

from monitor import labelled_calibration_error
from monitor.base.records import Floats, Ints
from monitor.stats.labelled.inputs import LabelledScores, checked_input
from monitor.stats.labelled.metrics import METRICS, ModelRows, counted_metrics

ROWS = 400


def made(classes: int, seed: int, ties: bool = False) -> tuple[Floats, Ints, Ints]:
    """Return scores (n, K), labels and acted-on classes of a model that is right more often than not."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, ROWS)
    logits = 1.5 * np.eye(classes)[labels] + rng.normal(size=(ROWS, classes))
    scores = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    if ties:
        scores = np.round(scores * 5) + 1
        scores /= scores.sum(axis=1, keepdims=True)
    predicted = np.where(rng.random(ROWS) < 0.1, rng.integers(0, classes, ROWS), scores.argmax(axis=1))
    return scores, labels, predicted


def view_of(data: LabelledScores, positive: int, where: np.ndarray | None = None) -> ModelRows:
    mask = np.ones(data.rows, dtype=bool) if where is None else np.asarray(data.to_sorted(where), dtype=bool)
    return ModelRows.from_data(data, [0], mask, positive)


def hard(data: LabelledScores) -> Floats:
    return np.eye(data.classes)[data.labels][None]


def by_scikit_learn(scores: Floats, labels: Ints, predicted: Ints, positive: int) -> dict[str, float]:
    classes = scores.shape[1]
    values = {"accuracy": witness.accuracy_score(labels, predicted)}
    if classes == 2:
        truth, acted, score = labels == positive, predicted == positive, scores[:, positive]
        values["auroc"] = witness.roc_auc_score(truth, score)
        values["average_precision"] = witness.average_precision_score(truth, score)
        parts = witness.precision_recall_fscore_support(truth, acted, average="binary")
    else:
        truth = np.eye(classes)[labels]
        values["auroc"] = witness.roc_auc_score(labels, scores, multi_class="ovr", average="macro")
        values["average_precision"] = witness.average_precision_score(truth, scores, average="macro")
        parts = witness.precision_recall_fscore_support(labels, predicted, average="macro")
    values.update(zip(("precision", "recall", "f1"), parts[:3], strict=True))
    # Each class's specificity is the recall of "another class".
    selected = [positive] if classes == 2 else range(classes)
    values["specificity"] = np.mean([witness.recall_score(labels != k, predicted != k) for k in selected])
    return values


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize(("classes", "positive"), [(2, 1), (2, 0), (3, 2), (9, 8)])
def test_hard_labels_give_the_values_of_scikit_learn(classes: int, positive: int, ties: bool) -> None:
    scores, labels, predicted = made(classes, classes, ties)
    data = checked_input(scores[:, None], labels, predicted[:, None])
    values = dict(zip(METRICS, view_of(data, positive).values(hard(data))[0, :, 0], strict=True))
    for metric, value in by_scikit_learn(scores, labels, predicted, positive).items():
        assert values[metric] == pytest.approx(value, abs=1e-12), metric


@pytest.mark.parametrize("ties", [False, True])
def test_weights_count_rows_as_often_as_copies_of_them(ties: bool) -> None:
    scores, labels, predicted = made(2, 3, ties)
    times = np.random.default_rng(0).integers(1, 4, ROWS)
    data = checked_input(scores[:, None], labels, predicted[:, None])
    values = dict(
        zip(METRICS, view_of(data, 1).values(hard(data), data.to_sorted(times)[None])[0, :, 0], strict=True)
    )
    rows = np.repeat(np.arange(ROWS), times)
    for metric, value in by_scikit_learn(scores[rows], labels[rows], predicted[rows], 1).items():
        assert values[metric] == pytest.approx(value, abs=1e-12), metric


@pytest.mark.parametrize(("classes", "ties"), [(2, False), (2, True), (3, False)])
def test_all_rows_labelled_give_the_corrected_calibration_error_of_labels(classes: int, ties: bool) -> None:
    scores, labels, predicted = made(classes, 7, ties)
    data = checked_input(scores[:, None], labels, predicted[:, None])
    values = dict(zip(METRICS, view_of(data, classes - 1).values(hard(data))[0, :, 0], strict=True))
    confidence = scores[np.arange(ROWS), predicted]
    expected = labelled_calibration_error(confidence, predicted == labels, 20).corrected.result
    assert values["ece"] == pytest.approx(expected.value, abs=5e-3)
    claimed = np.ones(ROWS, dtype=int) if classes == 2 else scores.argmax(axis=1)
    score = scores[np.arange(ROWS), claimed]
    expected = labelled_calibration_error(score, claimed == labels, 10).corrected.result
    # Not to the last digit: here the scatter is summed over bins before it is divided, there after.
    assert values["class_ece"] == pytest.approx(expected.value, abs=5e-3)


def plain_calibration_error(score: Floats, chance: Floats, bins: int) -> float:
    """Return a loop over bins of equal count."""
    order = np.argsort(score, kind="stable")
    parts = np.array_split(order, bins)
    return sum(abs(score[part].sum() - chance[part].sum()) for part in parts) / len(score)


def test_a_posterior_without_labels_gives_the_plain_gap_to_it() -> None:
    scores, _, predicted = made(2, 11)
    posterior = np.random.default_rng(1).dirichlet([2.0, 3.0], ROWS)
    data = checked_input(scores[:, None], np.full(ROWS, -1), predicted[:, None])
    values = view_of(data, 1).values(np.asarray(data.to_sorted(posterior))[None])[0, :, 0]
    at = np.arange(ROWS)
    expected = plain_calibration_error(scores[at, predicted], posterior[at, predicted], 20)
    assert values[METRICS.index("ece")] == pytest.approx(expected, abs=1e-12)
    expected = plain_calibration_error(scores[:, 1], posterior[:, 1], 10)
    assert values[METRICS.index("class_ece")] == pytest.approx(expected, abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("classes", [2, 3])
def test_expectations_are_the_mean_over_drawn_labels(classes: int, ties: bool) -> None:
    """4,000 draws of labels; tolerance four standard errors of their mean, plus 0.1 points for O(1/n)."""
    scores, _, predicted = made(classes, 5, ties)
    data = checked_input(scores[:, None], np.full(ROWS, -1), predicted[:, None])
    view = view_of(data, classes - 1)
    rng = np.random.default_rng(2)
    posterior = np.asarray(data.to_sorted(0.6 * scores + 0.4 * rng.dirichlet(np.ones(classes), ROWS)))
    above = rng.random((4000, ROWS, 1)) > np.cumsum(posterior, axis=1)
    labels = np.minimum(above.sum(axis=2), classes - 1)
    sampled = np.concatenate(
        [view.values(np.eye(classes)[part])[0] for part in np.array_split(labels, 20)], axis=1
    )
    values = view.values(posterior[None])[0, :, 0]
    for at, metric in enumerate(METRICS):
        if metric in ("ece", "class_ece"):  # hard labels without `labels` carry noise that nothing takes off
            assert sampled[at].mean() > values[at]
            continue
        error = sampled[at].std(ddof=1) / np.sqrt(4000)
        assert values[at] == pytest.approx(sampled[at].mean(), abs=4 * error + 1e-3), metric


def test_many_draws_at_once_are_those_one_by_one() -> None:
    scores, _, predicted = made(3, 8, ties=True)
    rng = np.random.default_rng(4)
    posterior, weights = rng.dirichlet(np.ones(3), (5, ROWS)), rng.exponential(size=(5, ROWS))
    data = checked_input(scores[:, None], np.full(ROWS, -1), predicted[:, None])
    view = view_of(data, 2)
    together = view.values(posterior, weights)[0]
    for at in range(5):
        alone = view.values(posterior[at : at + 1], weights[at : at + 1])[0, :, 0]
        np.testing.assert_allclose(together[:, at], alone, rtol=0, atol=1e-12)


def by_pairs(score: Floats, chance: Floats, weight: Floats) -> tuple[float, float]:
    """Return AUROC and average precision by all pairs of different rows."""
    mass, missed = weight * chance, weight * (1 - chance)
    others = 1.0 - np.eye(len(score))
    above = (score[:, None] > score) + 0.5 * (score[:, None] == score)
    auroc = (np.outer(mass, missed) * above * others).sum() / (np.outer(mass, missed) * others).sum()
    reached = score >= score[:, None]
    precision = mass * (weight + (reached * others) @ mass) / (reached @ weight)
    return float(auroc), float(precision.sum() / mass.sum())


@pytest.mark.parametrize("ties", [False, True])
def test_ranked_metrics_of_weighted_rows_are_those_of_all_pairs(ties: bool) -> None:
    scores, _, _ = made(2, 14, ties)
    rng = np.random.default_rng(9)
    posterior, weights = rng.dirichlet([0.3, 0.7], (3, ROWS)), rng.exponential(size=(3, ROWS))
    data = checked_input(scores[:, None], np.full(ROWS, -1))
    values = view_of(data, 1).values(posterior, weights)[0]
    for at in range(3):
        auroc, precision = by_pairs(data.scores[:, 0, 1], posterior[at, :, 1], weights[at])
        assert values[METRICS.index("auroc"), at] == pytest.approx(auroc, abs=1e-12)
        assert values[METRICS.index("average_precision"), at] == pytest.approx(precision, abs=1e-12)


@pytest.mark.parametrize("classes", [2, 3])
def test_models_together_are_those_one_by_one(classes: int) -> None:
    """Some models miss some rows, or all of a subgroup's; with some metrics or all."""
    rng = np.random.default_rng(10)
    scores = np.stack([made(classes, seed, ties=seed == 1)[0] for seed in range(3)], axis=1)
    scores[rng.random((ROWS, 3)) < 0.3] = np.nan
    labels = np.where(rng.random(ROWS) < 0.2, rng.integers(0, classes, ROWS), -1)
    data = checked_input(scores, labels)
    where = ~data.present[:, 2] | (rng.random(ROWS) < 0.5)
    posterior, weights = rng.dirichlet(np.ones(classes), (4, ROWS)), rng.exponential(size=(4, ROWS))
    for mask in (where, ~data.present[:, 2]):
        together = ModelRows.from_data(data, range(3), mask, classes - 1).values(posterior, weights)
        for model in range(3):
            alone = ModelRows.from_data(data, [model], mask, classes - 1).values(posterior, weights)[0]
            np.testing.assert_allclose(together[model], alone, rtol=0, atol=1e-12)
        assert np.isnan(together[2]).all() == (not data.present[mask, 2].any())
    for at, metric in enumerate(METRICS):
        one = ModelRows.from_data(data, range(3), mask, classes - 1, [metric]).values(posterior, weights)
        np.testing.assert_allclose(one[:, 0], together[:, at], rtol=0, atol=1e-12)


def test_a_subgroup_is_what_those_rows_alone_give() -> None:
    scores, labels, predicted = made(2, 9)
    where = np.random.default_rng(3).random(ROWS) < 0.4
    data = checked_input(scores[:, None], labels, predicted[:, None])
    values = dict(zip(METRICS, view_of(data, 1, where).values(hard(data))[0, :, 0], strict=True))
    for metric, value in by_scikit_learn(scores[where], labels[where], predicted[where], 1).items():
        assert values[metric] == pytest.approx(value, abs=1e-12), metric


@pytest.mark.slow
def test_label_noise_of_some_labelled_rows_is_taken_off_in_part() -> None:
    """A calibrated model, half labelled: 200 pools; the reading lies nearer to 0 than the plain gap does."""
    rng = np.random.default_rng(6)
    plain, corrected = [], []
    for _ in range(200):
        chance = rng.uniform(0.05, 0.95, ROWS)
        labels = np.where(np.arange(ROWS) < ROWS // 2, rng.random(ROWS) < chance, -1).astype(int)
        posterior = np.stack([1 - chance, chance], axis=1)
        data = checked_input(posterior[:, None], labels)
        clamped = data.clamp(np.asarray(data.to_sorted(posterior)))
        corrected.append(view_of(data, 1).values(clamped[None])[0, METRICS.index("class_ece"), 0])
        plain.append(plain_calibration_error(chance, data.to_original(clamped)[:, 1], 10))
    assert np.mean(corrected) < 0.5 * np.mean(plain)
    assert np.mean(plain) > 0.015


@pytest.mark.parametrize(
    ("labels", "predicted", "nan"),
    [
        ([1] * 30, [1] * 30, {"auroc", "average_precision", "specificity"}),
        ([0] * 30, [1] * 30, {"auroc", "average_precision", "recall", "f1"}),
        ([0, 1] * 15, [0] * 30, {"precision"}),
    ],
)
def test_what_is_not_defined_is_nan(labels: list[int], predicted: list[int], nan: set[str]) -> None:
    scores = np.random.default_rng(0).dirichlet(np.ones(2), 30)
    data = checked_input(scores[:, None], labels, np.array(predicted)[:, None])
    values = view_of(data, 1).values(hard(data))[0, :, 0]
    assert {metric for metric, value in zip(METRICS, values, strict=True) if np.isnan(value)} == nan


def test_fewer_rows_than_bins_have_no_calibration_error() -> None:
    scores = np.random.default_rng(0).dirichlet(np.ones(2), 15)
    data = checked_input(scores[:, None], np.arange(15) % 2)
    values = dict(zip(METRICS, view_of(data, 1).values(hard(data))[0, :, 0], strict=True))
    assert np.isnan(values["ece"])
    assert 0.0 <= values["class_ece"] <= 1.0


def test_means_over_classes_leave_out_the_classes_that_are_absent() -> None:
    scores, labels, _ = made(3, 12)
    labels = np.minimum(labels, 1)  # nothing is of class 2, but some rows are predicted to be
    data = checked_input(scores[:, None], labels)
    values = dict(zip(METRICS, view_of(data, 2).values(hard(data))[0, :, 0], strict=True))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn says that it calls the absent class 0
        recalls = witness.recall_score(labels, scores.argmax(axis=1), average=None)
    assert values["recall"] == pytest.approx(recalls[:2].mean(), abs=1e-12)
    both = [witness.roc_auc_score(labels == k, scores[:, k]) for k in (0, 1)]
    assert values["auroc"] == pytest.approx(np.mean(both), abs=1e-12)


def test_confusion_matrices_are_shares_of_the_rows() -> None:
    scores, labels, predicted = made(3, 13)
    data = checked_input(scores[:, None], labels, predicted[:, None])
    confusion = view_of(data, 2).confusion(hard(data))[0, 0]
    np.testing.assert_allclose(confusion, witness.confusion_matrix(labels, predicted) / ROWS, atol=1e-12)
    accuracy = counted_metrics(confusion[None], (0, 1, 2))[0, 0]
    assert accuracy == pytest.approx((labels == predicted).mean(), abs=1e-12)
