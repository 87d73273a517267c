"""The newest window of a model: its expected confusion matrix, and its confidences beside the reference."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from monitor.base.results import Estimate, Unknown
from monitor.engine.evaluate import confusion_shares, evaluate
from monitor.reports.views import ConfusionView
from monitor.stats.estimate.confusion import confusion_intervals
from tests.engine.test_predictive_intervals import learnt, reference, rig, windows_of
from tests.streams import Rig, answers, task

METRICS = ("accuracy", "precision")


def counts_of(shares: tuple[tuple[object, ...], ...]) -> np.ndarray:
    cells = [[e for e in row if isinstance(e, Estimate)] for row in shares]
    return np.array([[[e.n * x for x in (e.value, e.lower, e.upper)] for e in row] for row in cells])


def test_the_shares_are_those_of_the_exact_matrix() -> None:
    [request] = windows_of(500, 1, None, METRICS)
    shares = confusion_shares(evaluate([request])[0], request.predicted, 0.95)
    assert request.calibrated is not None
    expected = confusion_intervals(request.calibrated, request.predicted)
    assert counts_of(shares) == pytest.approx(expected)


@pytest.mark.parametrize("predictive", [False, True])
def test_the_share_of_right_answers_of_the_positive_class_is_its_precision(predictive: bool) -> None:
    [request] = windows_of(500, 1, learnt() if predictive else None, METRICS)
    evaluation = evaluate([request])[0]
    shares = confusion_shares(evaluation, request.predicted, 0.95)
    own, precision = shares[1][1], evaluation.estimates["precision"]
    assert isinstance(own, Estimate)
    assert isinstance(precision, Estimate)
    assert (own.value, own.lower, own.upper) == pytest.approx(
        (precision.value, precision.lower, precision.upper), abs=1e-9
    )
    exact = confusion_shares(replace(evaluation, predictive=None), request.predicted, 0.95)[1][1]
    assert isinstance(exact, Estimate)
    assert (own.upper - own.lower > exact.upper - exact.lower) is predictive


def test_a_class_that_is_never_predicted_has_unknown_shares() -> None:
    [request] = windows_of(500, 1, learnt(), METRICS)
    never = replace(request, predicted=np.zeros(500, dtype=np.int64))
    shares = confusion_shares(evaluate([never])[0], never.predicted, 0.95)
    assert all(isinstance(row[0], Estimate) and isinstance(row[1], Unknown) for row in shares)


def test_the_view_has_the_newest_window_and_outlives_a_restart_and_a_division_of_the_stream() -> None:
    records = answers(np.random.default_rng(2), 350)
    known = reference(1000)
    whole, pieces = rig(known), rig(known)
    whole.feed(records)
    for start in range(0, 350, 70):
        pieces.feed(records[start : start + 70])
    (one,), (other,) = whole.engine.view().series, pieces.engine.view().series
    assert isinstance(one.confusion, ConfusionView)
    assert sum(e.n for e in one.confusion.shares[0] if isinstance(e, Estimate)) == 100
    assert one.confusion == other.confusion
    assert one.distributions is not None
    assert one.distributions == other.distributions
    assert sum(one.distributions.newest.counts) == 100
    curve = one.distributions.reference
    assert curve is not None
    assert sum(curve.labelled) == 1000
    right = int((known.predicted == known.labels).sum())
    assert sum(curve.correct) == right
    whole.restart()
    again = whole.engine.view().series[0]
    assert (again.confusion, again.distributions) == (one.confusion, one.distributions)


def test_groups_and_models_without_a_reference_have_neither() -> None:
    one = Rig(task(groups=["region"]))
    one.feed([record | {"groups": {"region": "eu"}} for record in answers(np.random.default_rng(2), 300)])
    model, group = one.engine.view().series
    assert (group.confusion, group.distributions) == (None, None)
    assert model.confusion is not None
    assert model.distributions is not None
    assert model.distributions.reference is None
