"""The contract of every estimator from confidences."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from monitor import (
    ATC,
    CLASSIFICATION_METRICS,
    DoCFeat,
    Estimate,
    Unknown,
    average_confidence,
    calibration_error,
    cbpe_sem,
    classification_estimates,
)
from monitor.base.records import Floats, Ints
from monitor.base.results import Result

Estimator = Callable[[Floats, Ints, float], Result]


def of_class(metric: str) -> Estimator:
    return lambda scores, predicted, level: classification_estimates(
        scores, predicted, [metric], level, positive=0, seed=3
    )[metric]


def on_reference(fit: Callable[[Floats, Floats], ATC | DoCFeat]) -> Estimator:
    """Return fitted on a labelled reference, which is the same for each window."""
    rng = np.random.default_rng(17)
    confidence = rng.beta(8, 2, 1000)
    fitted = fit(confidence, (rng.random(1000) < confidence).astype(np.float64))
    return lambda scores, predicted, level: fitted.estimate(confidence_in(scores, predicted), level)


def of_metric(metric: str, average: str) -> Estimator:
    return lambda scores, predicted, level: classification_estimates(
        scores,
        predicted,
        [metric],
        level,
        average=average,  # type: ignore[arg-type]
        seed=3,
    )[metric]


def confidence_in(scores: Floats, predicted: Ints) -> Floats:
    return scores[np.arange(len(scores)), predicted]


ESTIMATORS: dict[str, Estimator] = {
    "average_confidence": lambda s, p, level: average_confidence(confidence_in(s, p), level),
    "calibration_error": lambda s, p, level: (
        calibration_error(confidence_in(s, p), confidence_in(s, p) ** 1.2, level=level).result
    ),
    "cbpe_sem": lambda s, p, level: cbpe_sem(average_confidence(confidence_in(s, p), level), 0.3),
    "doc": on_reference(DoCFeat.fit),
    "atc": on_reference(ATC.fit),
    **{m: of_metric(m, "macro") for m in CLASSIFICATION_METRICS},
    **{f"{m}, micro": of_metric(m, "micro") for m in CLASSIFICATION_METRICS},
    **{f"{m}, first class": of_class(m) for m in CLASSIFICATION_METRICS},
}
"""Each takes scores (n, K), predicted classes (n,) and a level."""

OF_ANY_LEVEL = ("cbpe_sem",)
"""Whose band is as wide at each level: three standard errors."""
UNDEFINED_WITH_ONE_CLASS = ("recall", "auroc", "average_precision")
UNKNOWN_OF_THE_FIRST_ALONE = {
    *UNDEFINED_WITH_ONE_CLASS,
    *(f"{metric}, micro" for metric in UNDEFINED_WITH_ONE_CLASS),  # of two classes, of the second
    "specificity, first class",
    "auroc, first class",
}


def window(n: int, width: int) -> tuple[Floats, Ints]:
    rng = np.random.default_rng(n)
    scores = rng.dirichlet(np.full(width, 0.5), n)
    return scores, scores.argmax(axis=1)


@pytest.mark.parametrize("width", [2, 3])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_input_stays_and_the_same_input_gives_the_same_numbers(name: str, width: int) -> None:
    scores, predicted = window(300, width)
    before = scores.copy(), predicted.copy()
    scores.flags.writeable = predicted.flags.writeable = False
    first, again = (ESTIMATORS[name](scores, predicted, 0.95) for _ in range(2))
    assert isinstance(first, Estimate)
    assert first == again
    assert (scores == before[0]).all()
    assert (predicted == before[1]).all()


@pytest.mark.parametrize("width", [2, 3])
@pytest.mark.parametrize("name", [name for name in ESTIMATORS if name != "calibration_error"])
def test_the_order_of_rows_changes_nothing(name: str, width: int) -> None:
    """But for rounding. The bootstrap of a calibration error keeps its rows by rank: see its own tests."""
    scores, predicted = window(300, width)
    shuffled = np.random.default_rng(1).permutation(300)
    one, other = (
        ESTIMATORS[name](scores[rows], predicted[rows], 0.95) for rows in (np.arange(300), shuffled)
    )
    assert isinstance(one, Estimate)
    assert isinstance(other, Estimate)
    ends = [(each.value, each.lower, each.upper) for each in (one, other)]
    assert ends[0] == pytest.approx(ends[1], abs=1e-12)


@pytest.mark.parametrize("width", [2, 3])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_intervals_lie_within_0_and_1_hold_the_value_and_widen_with_the_level(name: str, width: int) -> None:
    scores, predicted = window(200, width)
    widths = []
    for level in (0.5, 0.8, 0.95, 0.99):
        result = ESTIMATORS[name](scores, predicted, level)
        assert isinstance(result, Estimate)
        assert 0.0 <= result.lower <= result.value <= result.upper <= 1.0
        assert (result.level, result.n) == (level, 200)
        widths.append(result.upper - result.lower)
    assert widths == sorted(widths)
    assert (widths[0] < widths[-1]) == (name not in OF_ANY_LEVEL)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_no_rows_are_unknown_and_one_row_never_breaks(name: str) -> None:
    result = ESTIMATORS[name](np.zeros((0, 2)), np.zeros(0, dtype=np.int64), 0.95)
    assert result == Unknown("no rows")
    one = ESTIMATORS[name](np.array([[0.3, 0.7]]), np.array([1]), 0.95)
    assert isinstance(one, Unknown) or 0.0 <= one.lower <= one.value <= one.upper <= 1.0


@pytest.mark.parametrize("name", ESTIMATORS)
def test_equal_scores_give_an_estimate(name: str) -> None:
    result = ESTIMATORS[name](np.tile([0.4, 0.6], (100, 1)), np.ones(100, dtype=np.int64), 0.95)
    if name == "precision, first class":
        assert result == Unknown("class never predicted")
        return
    assert isinstance(result, Estimate)
    assert 0.0 <= result.lower <= result.value <= result.upper <= 1.0
    if name.startswith("auroc"):
        assert (result.lower, result.value, result.upper) == pytest.approx((0.5, 0.5, 0.5))


@pytest.mark.parametrize("name", ESTIMATORS)
def test_scores_of_0_and_1_and_a_single_class_never_break(name: str) -> None:
    predicted = np.arange(100) % 2
    alone = np.tile([1.0, 0.0], (100, 1))
    for scores in (np.eye(2)[predicted], np.eye(2)[1 - predicted], alone):
        result = ESTIMATORS[name](scores, predicted, 0.95)
        assert isinstance(result, Unknown) or 0.0 <= result.lower <= result.value <= result.upper <= 1.0
    assert isinstance(ESTIMATORS[name](alone, predicted, 0.95), Unknown) == (
        name in UNKNOWN_OF_THE_FIRST_ALONE
    )


@pytest.mark.parametrize("name", CLASSIFICATION_METRICS)
def test_certain_scores_of_both_classes_and_of_one(name: str) -> None:
    predicted = np.arange(100) % 2
    both = ESTIMATORS[name](np.eye(2)[predicted], predicted, 0.95)
    assert isinstance(both, Estimate)
    assert (both.lower, both.value, both.upper) == (1.0, 1.0, 1.0)
    negatives = ESTIMATORS[name](np.tile([1.0, 0.0], (100, 1)), predicted, 0.95)
    assert isinstance(negatives, Unknown) == (name in UNDEFINED_WITH_ONE_CLASS)
