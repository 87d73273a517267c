"""Precision, recall and the rest through the whole engine: estimates, charts, objectives, restarts."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest

from monitor import CountRatio, classification_details, classification_estimates
from monitor.base.records import Floats
from monitor.base.results import Estimate
from monitor.config.root import Bound, Metric
from monitor.engine.objective import Objective
from monitor.reports.views import ObjectiveState
from tests.engine.test_engine import reference
from tests.engine.test_objective import pooled_interval
from tests.nearly import nearly
from tests.streams import CLASSES, Record, Rig, answers, lines, task

METRICS = list(get_args(Metric))
RATIOS = ("precision", "recall", "specificity", "f1")


def rig(**more: Any) -> Rig:
    settings = task(**{"reference": {"path": "r.ndjson"}, "metrics": METRICS} | more)
    return Rig(settings, reference(settings))


def stream(n: int, seed: int = 2) -> list[Record]:
    return answers(np.random.default_rng(seed), n)


def rows(scores: Floats) -> list[Record]:
    return [
        {"id": str(i), "time": 1.7e9 + i, "model": "erm", "scores": each}
        for i, each in enumerate(scores.tolist())
    ]


@pytest.mark.slow
def test_every_metric_is_estimated_and_charted_from_the_reference_on() -> None:
    (report,) = rig().feed(stream(100))
    results = {e.metric: e.result for e in report.estimates if e.estimator == "average_confidence"}
    assert list(results) == METRICS
    assert {metric: type(result) for metric, result in results.items()} == dict.fromkeys(METRICS, Estimate)
    assert {chart.metric for chart in report.charts} == set(METRICS)
    for chart in report.charts:
        assert 0 <= chart.verdict.lower <= chart.verdict.center <= chart.verdict.upper


def test_the_positive_class_is_the_one_of_the_configuration() -> None:
    scores = np.column_stack([np.linspace(0, 1, 100), 1 - np.linspace(0, 1, 100)]).round(6)
    records = rows(scores)
    for positive in (0, 1):
        (report,) = Rig(task(metrics=["recall", "auroc"], positive=CLASSES[positive])).feed(records)
        results = {e.metric: e.result for e in report.estimates if e.estimator == "average_confidence"}
        predicted = scores.argmax(axis=1)
        by_hand = classification_estimates(scores, predicted, ["recall", "auroc"], positive=positive)
        assert results == nearly(by_hand)


def test_three_classes_have_the_mean_over_the_classes() -> None:
    scores = np.random.default_rng(1).dirichlet([0.5] * 3, 100).round(4)
    scores[:, 2] = (1 - scores[:, 0] - scores[:, 1]).round(4)
    records = rows(scores)
    (report,) = Rig(task(classes=["a", "b", "c"], metrics=["accuracy", "f1"])).feed(records)
    [result] = [e.result for e in report.estimates if e.metric == "f1"]
    assert result == nearly(classification_estimates(scores, scores.argmax(axis=1), ["f1"])["f1"])


@pytest.mark.slow
def test_objectives_are_judged_and_a_restart_changes_no_byte() -> None:
    objective = {m: {"min": 0.1} for m in METRICS if "ece" not in m} | {"windows": 3}
    whole, pieces = rig(objective=objective), rig(objective=objective)
    records = stream(600)
    expected = whole.feed(records)
    assert {o.metric: o.state for o in expected[-1].objectives} == dict.fromkeys(
        [m for m in METRICS if "ece" not in m], ObjectiveState.MET
    )
    reports = pieces.feed(records[:350])
    pieces.restart()
    reports += pieces.feed(records[350:])
    assert lines(reports) == lines(expected)


@pytest.mark.parametrize("metric", RATIOS)
def test_pooled_windows_are_the_rows_of_all_at_once(metric: str) -> None:
    rng = np.random.default_rng(3)
    chance = rng.beta(0.5, 0.8, (3, 120))
    scores = np.stack([1 - chance, chance], axis=2)
    predicted = (chance > 0.4).astype(int)
    each = [classification_details(s, p, [metric]) for s, p in zip(scores, predicted, strict=True)]
    windows = [by_metric[metric].counts for by_metric in each]
    whole = classification_details(scores.reshape(-1, 2), predicted.ravel(), [metric])[metric].counts
    counts = [window for window in windows if isinstance(window, CountRatio)]
    assert whole is not None
    assert pooled_interval(counts, 0.95) == pytest.approx(whole.interval(0.95), abs=1e-12)
    logic = Objective(Bound(min=0.5), windows=3).build()
    for window in counts:
        verdict = logic.update(window)
    assert (verdict.rows, verdict.windows) == (360, 3)
    resumed = Objective(Bound(min=0.5), windows=3).build(logic.snapshot())
    assert resumed.update(counts[0]) == logic.update(counts[0])


def test_windows_that_leave_a_metric_undefined_are_judged_together_or_not_at_all() -> None:
    none = classification_details([[0.999, 0.001]] * 50, [1] * 50, ["recall"])["recall"].counts
    some = classification_details([[0.1, 0.9]] * 50, [1] * 50, ["recall"])["recall"].counts
    logic = Objective(Bound(min=0.5), windows=2).build()
    assert logic.update(none).state is None
    assert logic.update(some).state is ObjectiveState.MET
