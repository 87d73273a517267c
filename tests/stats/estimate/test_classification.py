"""Metrics from confidences: values, exact intervals, averages and errors."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import product

import numpy as np
import pytest
from sklearn import config_context
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    confusion_matrix,
    multilabel_confusion_matrix,
    precision_recall_fscore_support,
    roc_auc_score,
)

from monitor import (
    CLASSIFICATION_METRICS,
    Estimate,
    Unknown,
    average_confidence,
    classification_details,
    classification_estimates,
    confusion_intervals,
    expected_confusion,
    failure_prediction,
)
from monitor.base.records import Floats, Ints
from monitor.base.results import Reason


def rows(n: int, width: int, seed: int = 0) -> tuple[Floats, Ints]:
    """Calibrated scores that are rounded, so that there are ties, and classes acted on."""
    rng = np.random.default_rng(seed)
    scores = rng.dirichlet(np.full(width, 0.6), n).round(2)
    scores[:, -1] = 1.0 - scores[:, :-1].sum(axis=1)
    scores = np.clip(scores, 0.0, 1.0)
    return scores, np.where(rng.random(n) < 0.9, scores.argmax(axis=1), rng.integers(0, width, n))


@config_context(assume_finite=True, skip_parameter_validation=True)  # else it mostly checks
def witnesses(labels: Ints, predicted: Ints, ranking: Floats, classes: Iterable[int]) -> dict[str, Floats]:
    """scikit-learn's values of each of these classes against all others; NaN where one is undefined."""
    chosen = list(classes)
    precision, recall, f1, _ = precision_recall_fscore_support(
        labels, predicted, labels=chosen, zero_division=np.nan
    )
    counts = multilabel_confusion_matrix(labels, predicted, labels=chosen)
    with np.errstate(invalid="ignore"):
        specificity = counts[:, 0, 0] / counts[:, 0].sum(axis=1)
    truths = [labels == k for k in chosen]
    return {
        "accuracy": np.full(len(chosen), accuracy_score(labels, predicted)),
        "precision": precision,
        "recall": recall,
        "specificity": specificity,
        "f1": f1,
        "auroc": np.array(
            [
                roc_auc_score(truth, ranking[:, k]) if 0 < truth.sum() < len(truth) else np.nan
                for k, truth in zip(chosen, truths, strict=True)
            ]
        ),
        "average_precision": np.array(
            [
                average_precision_score(truth, ranking[:, k]) if truth.any() else np.nan
                for k, truth in zip(chosen, truths, strict=True)
            ]
        ),
    }


def averaged(width: int) -> Iterable[int]:
    """Return the classes whose mean is the metric's value."""
    return [width - 1] if width == 2 else range(width)


@pytest.mark.parametrize("width", [2, 4])
@pytest.mark.parametrize("metric", CLASSIFICATION_METRICS)
def test_certain_scores_give_scikit_learns_values_and_no_width(metric: str, width: int) -> None:
    scores, predicted = rows(200, width)
    labels = np.random.default_rng(1).integers(0, width, 200)
    certain = np.eye(width)[labels]
    estimate = classification_estimates(certain, predicted, [metric], ranking=scores)[metric]
    want = witnesses(labels, predicted, scores, averaged(width))[metric].mean()
    assert isinstance(estimate, Estimate)
    assert (estimate.value, estimate.lower, estimate.upper) == pytest.approx((want, want, want), abs=1e-12)


@cache
def enumerated(seed: int) -> tuple[Floats, Ints, Floats, dict[str, Floats]]:
    """Return scores of 7 rows, classes acted on, and all 2^7 labellings: the chance of each, and its
    values.
    """
    scores, predicted = rows(7, 2, seed)
    labellings = np.array(list(product((0, 1), repeat=7)))
    mass = np.where(labellings == 1, scores[:, 1], scores[:, 0]).prod(axis=1)
    each = [witnesses(labels, predicted, scores, [1]) for labels in labellings]
    return (
        scores,
        predicted,
        mass,
        {metric: np.concatenate([one[metric] for one in each]) for metric in each[0]},
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "metric", [m for m in CLASSIFICATION_METRICS if m not in ("auroc", "average_precision")]
)
def test_a_small_window_is_enumerated(metric: str) -> None:
    scores, predicted, mass, values = enumerated(3)
    value = values[metric]
    known = ~np.isnan(value)
    detail = classification_details(scores, predicted, [metric])[metric]
    assert detail.undefined == pytest.approx(mass[~known].sum(), abs=1e-13)
    order = np.argsort(value[known])
    cdf = np.cumsum(mass[known][order]) / mass[known].sum()
    lower, upper = (value[known][order][np.searchsorted(cdf, q - 1e-12)] for q in (0.025, 0.975))
    assert isinstance(detail.result, Estimate)
    assert detail.result.lower == pytest.approx(min(lower, detail.result.value))
    assert detail.result.upper == pytest.approx(max(upper, detail.result.value))


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["auroc", "average_precision"])
def test_the_draws_have_the_mean_and_the_quantiles_of_an_enumeration(metric: str) -> None:
    scores, predicted, mass, values = enumerated(5)
    value = values[metric]
    known = ~np.isnan(value)
    mean = (mass[known] @ value[known]) / mass[known].sum()
    sd = np.sqrt(mass[known] @ (value[known] - mean) ** 2 / mass[known].sum())
    draws = classification_details(scores, predicted, [metric], seed=1)[metric].draws
    assert draws is not None
    assert abs(draws.mean() - mean) < 3 * sd / np.sqrt(len(draws))
    assert draws.std() == pytest.approx(sd, rel=0.1)


def drawn_labels(rng: np.random.Generator, scores: Floats, times: int) -> Ints:
    """Return `times` labellings (times, rows) by the scores' chances."""
    edges = np.cumsum(scores, axis=1)[:, :-1]
    return (rng.random((times, len(scores), 1)) >= edges).sum(axis=2)


@cache
def values_of_drawn_labels(width: int) -> dict[str, Floats]:
    """Return, by metric, 150 values of 400 rows."""
    scores, predicted = rows(400, width, seed=7)
    each = [
        witnesses(labels, predicted, scores, averaged(width))
        for labels in drawn_labels(np.random.default_rng(8), scores, 150)
    ]
    return {metric: np.array([one[metric].mean() for one in each]) for metric in each[0]}


@pytest.mark.simulation
@pytest.mark.parametrize("width", [2, 3])
@pytest.mark.parametrize("metric", CLASSIFICATION_METRICS)
def test_value_and_interval_agree_with_drawn_labels(metric: str, width: int) -> None:
    samples = values_of_drawn_labels(width)[metric]
    scores, predicted = rows(400, width, seed=7)
    estimate = classification_estimates(scores, predicted, [metric])[metric]
    assert isinstance(estimate, Estimate)
    sd = float(np.std(samples))
    assert abs(estimate.value - np.mean(samples)) < 4 * sd / np.sqrt(150)
    # A 2.5 % quantile of 150 drawn values has a standard error of 0.21 sd.
    assert (estimate.lower, estimate.upper) == pytest.approx(
        tuple(np.quantile(samples, [0.025, 0.975])), abs=0.8 * sd
    )


@pytest.mark.simulation
@pytest.mark.parametrize("width", [2, 3])
def test_row_sd_is_the_spread_of_the_estimate_over_windows(width: int) -> None:
    population, acted = rows(20_000, width, seed=9)
    rng = np.random.default_rng(10)
    windows = []
    for _ in range(150):
        some = rng.choice(20_000, 300, replace=False)
        estimates = classification_estimates(population[some], acted[some], CLASSIFICATION_METRICS)
        windows.append([estimates[metric].value for metric in CLASSIFICATION_METRICS])
    details = classification_details(population, acted, CLASSIFICATION_METRICS)
    for metric, values in zip(CLASSIFICATION_METRICS, np.array(windows).T, strict=True):
        # The standard deviation of 150 values has a relative error of 6 %.
        assert np.std(values) * np.sqrt(300) == pytest.approx(details[metric].row_sd, rel=0.2), metric


def test_the_expected_confusion_is_the_mean_of_drawn_ones() -> None:
    scores, predicted = rows(60, 3)
    labels = drawn_labels(np.random.default_rng(11), scores, 2000)
    mean = confusion_matrix(labels.ravel(), np.tile(predicted, 2000), labels=range(3)) / 2000
    assert expected_confusion(scores, predicted) == pytest.approx(mean, abs=0.35)
    assert expected_confusion(scores, predicted).sum() == pytest.approx(60)


def test_the_matrix_of_failure_prediction_is_the_papers_table() -> None:
    confidence = np.array([0.95, 0.8, 0.6, 0.4])
    tp, fn, fp, tn = failure_prediction(confidence, 0.6).ravel()
    assert (tp, fn) == pytest.approx((0.95 + 0.8 + 0.6, 0.4))
    assert (fp, tn) == pytest.approx((0.05 + 0.2 + 0.4, 0.6))
    assert (tp + fn) / 4 == pytest.approx(confidence.mean())  # the paper's decomposition of the accuracy
    scores = np.column_stack([1 - confidence, confidence])
    rule = classification_estimates(scores, confidence >= 0.6, ["precision", "recall"])
    assert [each.value for each in rule.values()] == pytest.approx([tp / (tp + fp), tp / (tp + fn)])


def test_the_accuracy_is_average_confidence() -> None:
    scores, predicted = rows(500, 3)
    estimate = classification_estimates(scores, predicted, ["accuracy"])["accuracy"]
    want = average_confidence(scores[np.arange(500), predicted])
    assert isinstance(estimate, Estimate)
    assert isinstance(want, Estimate)
    assert (estimate.value, estimate.lower, estimate.upper) == pytest.approx(
        (want.value, want.lower, want.upper)
    )


def test_three_classes_by_class_micro_and_macro() -> None:
    scores, predicted = rows(300, 3)
    metrics = ["recall", "accuracy", "specificity"]
    each = classification_estimates(scores, predicted, metrics, average="class")
    assert list(each) == [
        *(f"recall[{k}]" for k in range(3)),
        "accuracy",
        *(f"specificity[{k}]" for k in range(3)),
    ]
    assert each["recall[1]"] == classification_estimates(scores, predicted, metrics, positive=1)["recall"]
    macro = classification_estimates(scores, predicted, metrics)["recall"]
    assert isinstance(macro, Estimate)
    assert macro.value == pytest.approx(np.mean([each[f"recall[{k}]"].value for k in range(3)]))
    micro = classification_estimates(scores, predicted, metrics, average="micro")
    assert micro["recall"] == micro["accuracy"] == each["accuracy"]
    wrong = 1 - micro["accuracy"].value
    assert micro["specificity"].value == pytest.approx(1 - wrong / 2)
    assert micro["specificity"].upper == pytest.approx(1 - (1 - micro["accuracy"].upper) / 2)


@pytest.mark.parametrize("metric", ["auroc", "average_precision"])
def test_micro_ranks_all_pairs(metric: str) -> None:
    scores, predicted = rows(200, 3)
    labels = np.random.default_rng(1).integers(0, 3, 200)
    score = roc_auc_score if metric == "auroc" else average_precision_score
    estimate = classification_estimates(
        np.eye(3)[labels], predicted, [metric], average="micro", ranking=scores
    )[metric]
    assert estimate.value == pytest.approx(score(np.eye(3)[labels].ravel(), scores.ravel()))
    assert (estimate.lower, estimate.upper) == pytest.approx((estimate.value, estimate.value))


def test_ranking_by_raw_scores_keeps_what_calibration_joins() -> None:
    raw = np.column_stack([1 - np.linspace(0, 1, 100), np.linspace(0, 1, 100)])
    steps = np.round(raw, 0)
    calibrated = 0.2 + 0.6 * steps
    joined = classification_estimates(calibrated, steps[:, 1].astype(int), ["auroc"])["auroc"]
    apart = classification_estimates(calibrated, steps[:, 1].astype(int), ["auroc"], ranking=raw)["auroc"]
    assert joined.value == pytest.approx(0.8, abs=0.01)
    assert apart.value == pytest.approx(joined.value, abs=0.01)
    assert classification_estimates(calibrated, steps[:, 1].astype(int), ["auroc"], ranking=raw[::-1])[
        "auroc"
    ].value == pytest.approx(0.2, abs=0.01)


@pytest.mark.parametrize(
    ("chance", "acted", "metric", "reason"),
    [
        (0.001, 1, "recall", Reason.ONE_CLASS),
        (0.001, 1, "auroc", Reason.ONE_CLASS),
        (0.001, 1, "average_precision", Reason.ONE_CLASS),
        (0.999, 1, "specificity", Reason.ONE_CLASS),
        (0.4, 0, "precision", Reason.NONE_PREDICTED),
    ],
)
def test_what_labels_would_mostly_leave_undefined_is_unknown(
    chance: float, acted: int, metric: str, reason: Reason
) -> None:
    scores = np.tile([1 - chance, chance], (100, 1))
    detail = classification_details(scores, np.full(100, acted), [metric])[metric]
    assert detail.result == Unknown(reason)
    assert detail.undefined > 0.5


def test_a_confidence_alone_has_an_accuracy_and_nothing_else() -> None:
    estimates = classification_estimates(np.full((50, 1), 0.8), np.zeros(50, dtype=int), ["accuracy", "f1"])
    assert estimates["accuracy"].value == pytest.approx(0.8)
    assert estimates["f1"] == Unknown(Reason.NOT_DEFINED)


GOOD = np.array([[0.4, 0.6], [0.7, 0.3]])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"metrics": ["mcc"]}, "metrics must be of accuracy, precision, .*, got 'mcc'"),
        ({"average": "weighted"}, "average must be macro, micro or class, got 'weighted'"),
        ({"positive": 2}, "positive must be a class index from 0 to 1, got 2"),
        ({"level": 1.0}, "level must lie between 0 and 1"),
        ({"predicted": [0, 2]}, r"predicted\[1\] must be a class index from 0 to 1, got 2"),
        (
            {"predicted": [0]},
            r"predicted must have the shape \(2,\), one entry for each row of scores, got \(1,\)",
        ),
        ({"predicted": [0.5, 1.0]}, "predicted must be class indices, whole numbers, got the type float64"),
        ({"scores": [[0.4, 0.6], [0.7, 1.3]]}, r"scores\[1, 1\] must be a probability from 0 to 1, got 1.3"),
        ({"ranking": [[0.4], [0.7]]}, r"ranking must have the shape of scores, \(2, 2\), got \(2, 1\)"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, object], message: str) -> None:
    inputs = {"scores": GOOD, "predicted": [1, 0], "metrics": ["recall"]} | arguments
    with pytest.raises(ValueError, match=message):
        classification_estimates(**inputs)  # type: ignore[arg-type]


def test_confusion_refuses_a_confidence_and_a_threshold_out_of_range() -> None:
    with pytest.raises(ValueError, match="scores must have at least two columns, one for each class, got 1"):
        expected_confusion([[0.5]], [0])
    with pytest.raises(ValueError, match="threshold must be a probability from 0 to 1, got"):
        failure_prediction([0.5], 1.5)


def test_intervals_of_the_confusion_matrix_are_those_of_every_labelling_counted() -> None:
    """The test enumerates 3 classes, 7 rows, all 2,187 labellings with their chances."""
    rng = np.random.default_rng(11)
    scores = rng.dirichlet(np.ones(3), 7)
    predicted = np.array([0, 0, 0, 0, 1, 1, 2])
    intervals = confusion_intervals(scores, predicted, 0.8)
    every = np.array(list(product(range(3), repeat=7)))
    chance = scores[np.arange(7), every].prod(axis=1)
    assert intervals[..., 0] == pytest.approx(expected_confusion(scores, predicted))
    for i, k in product(range(3), repeat=2):
        count = ((every == i) & (predicted == k)).sum(axis=1)
        cdf = np.cumsum(np.bincount(count, chance, minlength=8))
        low, high = np.searchsorted(cdf, [0.1, 0.9])
        value = intervals[i, k, 0]
        assert intervals[i, k, 1:] == pytest.approx([min(low, value), max(high, value)])


def test_a_confusion_matrix_of_a_window_without_rows_is_all_0() -> None:
    assert not confusion_intervals(np.zeros((0, 2)), np.zeros(0, dtype=np.int64)).any()
    with pytest.raises(ValueError, match="level must"):
        confusion_intervals(np.zeros((0, 2)), np.zeros(0, dtype=np.int64), 1.0)
