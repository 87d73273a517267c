"""The slopes of a metric by each row's confidence: against differences, for two classes and three."""

from __future__ import annotations

import numpy as np
import pytest

from monitor import CLASSIFICATION_METRICS, classification_details
from monitor.base.results import Estimate
from tests.nearly import nearly

STEP = 1e-5
METRICS = [metric for metric in CLASSIFICATION_METRICS if metric != "accuracy"]


def window(width: int, n: int = 60, seed: int = 1):
    rng = np.random.default_rng(seed)
    scores = rng.dirichlet(np.full(width, 0.7), n).clip(0.01, 1)
    scores /= scores.sum(axis=1, keepdims=True)
    ranking = np.round(scores, 1)  # with ties, as scores that a calibration has joined
    predicted = np.where(rng.random(n) < 0.8, scores.argmax(axis=1), rng.integers(0, width, n))
    return scores, predicted, ranking


def surer(scores, predicted, row: int, by: float):
    """One answer is more surely right; the other classes lose in proportion to their chances."""
    moved, own = scores.copy(), predicted[row]
    others = np.arange(scores.shape[1]) != own
    moved[row, others] *= 1 - by / (1 - scores[row, own])
    moved[row, own] += by
    return moved


@pytest.mark.parametrize("width", [2, 3])
@pytest.mark.parametrize("metric", METRICS)
def test_slopes_are_what_differences_of_the_value_show(width: int, metric: str) -> None:
    scores, predicted, ranking = window(width)
    positive = 1 if width == 2 else None

    def value(of) -> float:
        details = classification_details(of, predicted, [metric], positive=positive, ranking=ranking)
        result = details[metric].result
        assert isinstance(result, Estimate)
        return result.value

    slope = classification_details(scores, predicted, [metric], positive=positive, ranking=ranking)[
        metric
    ].slope
    for row in range(0, 60, 7):
        ends = [value(surer(scores, predicted, row, by)) for by in (STEP, -STEP)]
        assert slope[row] == pytest.approx((ends[0] - ends[1]) / (2 * STEP), abs=1e-7), row


@pytest.mark.parametrize("metric", METRICS)
def test_slopes_of_micro_averages_are_too(metric: str) -> None:
    scores, predicted, ranking = window(3)

    def detail_of(of):
        return classification_details(of, predicted, [metric], average="micro", ranking=ranking)[metric]

    slope = detail_of(scores).slope
    for row in range(0, 60, 11):
        ends = [detail_of(surer(scores, predicted, row, by)).result.value for by in (STEP, -STEP)]
        assert slope[row] == pytest.approx((ends[0] - ends[1]) / (2 * STEP), abs=1e-7), row


def test_slopes_stand_in_the_order_in_which_rows_came() -> None:
    scores, predicted, ranking = window(2)
    turn = np.random.default_rng(3).permutation(60)
    for metric in METRICS:
        plain, turned = (
            classification_details(scores[o], predicted[o], [metric], positive=1, ranking=ranking[o])[metric]
            for o in (np.arange(60), turn)
        )
        assert plain.slope[turn] == nearly(turned.slope), metric


def test_a_metric_that_is_unknown_has_no_slope_and_certain_rows_have_a_finite_one() -> None:
    none_predicted = classification_details(np.full((20, 2), 0.5), np.zeros(20, dtype=int), ["precision"])
    assert none_predicted["precision"].slope is None
    sure = np.eye(3)[np.arange(30) % 3]
    for metric, detail in classification_details(sure, np.arange(30) % 3, METRICS).items():
        assert detail.slope is None or np.isfinite(detail.slope).all(), metric
