"""Precision and the like of three classes: one number or several, from the configuration to the scrape."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from monitor import classification_estimates
from monitor.base.results import Estimate, Result, Unknown
from monitor.export.prometheus.collector import registry
from monitor.reports.reader import from_json
from monitor.reports.views import AgentView
from monitor.reports.window_report import WindowReport, to_json
from tests.nearly import nearly
from tests.streams import Record, Rig, lines, task

CLASSES = ["cat", "dog", "fox"]
METRICS = ["accuracy", "recall", "precision", "auroc"]


def rig(**settings: Any) -> Rig:
    base = {"classes": CLASSES, "metrics": METRICS, "reference": {"first_windows": 5}}
    return Rig(task(**(base | {"chart": {"sigmas": 3}} | settings)))


def records(n: int, never: int | None = None) -> list[Record]:
    rng = np.random.default_rng(8)
    scores = rng.dirichlet([1.0, 0.6, 0.3], n).round(6)
    if never is not None:
        scores[:, never] = 0.0
        scores /= scores.sum(axis=1, keepdims=True)
    return [
        {"id": str(i), "time": 1.7e9 + i, "model": "erm", "scores": row}
        for i, row in enumerate(scores.tolist())
    ]


def direct(rows: list[Record], average: Any, seed: int) -> dict[str, Result]:
    scores = np.array([record["scores"] for record in rows])
    return classification_estimates(scores, scores.argmax(axis=1), METRICS[1:], average=average, seed=seed)


def whole(report: WindowReport) -> dict[str, Result]:
    estimates = [
        e for e in report.estimates if e.estimator == "average_confidence" and e.metric != "accuracy"
    ]
    return {e.metric: e.result for e in estimates}


@pytest.mark.parametrize(("average", "expected"), [(None, "macro"), ("macro", "macro"), ("micro", "micro")])
def test_a_window_says_the_average_that_was_asked_for(average: str | None, expected: str) -> None:
    rows = records(200)
    reports = rig(**({} if average is None else {"average": average})).feed(rows)
    for number, report in enumerate(reports):
        part = rows[100 * number : 100 * number + 100]
        assert whole(report) == nearly(direct(part, expected, number))
        assert report.classes == ()
    accuracy = next(e.result for e in reports[0].estimates if e.metric == "accuracy")
    recall = whole(reports[0])["recall"]
    assert isinstance(accuracy, Estimate)
    assert isinstance(recall, Estimate)
    assert (recall.value == pytest.approx(accuracy.value)) == (expected == "micro")


def test_each_class_by_itself_stands_beside_the_mean() -> None:
    rows = records(100)
    engine_rig = rig(average="per_class")
    [report] = engine_rig.feed(rows)
    assert whole(report) == nearly(direct(rows, "macro", 0))
    by_class = direct(rows, "class", 0)
    assert [(e.metric, e.of_class) for e in report.classes] == [(m, c) for m in METRICS[1:] for c in CLASSES]
    for e in report.classes:
        assert e.result == nearly(by_class[f"{e.metric}[{CLASSES.index(e.of_class)}]"])
    line = json.loads(to_json(report))
    assert line["classes"][0] == {"class": "cat"} | line["classes"][0]
    assert set(line["classes"][0]) == {
        "class", "metric", "estimator", "value", "lower", "upper", "level", "size",
    }  # fmt: skip
    assert to_json(from_json(to_json(report))) == to_json(report)


def test_each_class_is_exported_apart_from_the_mean() -> None:
    engine_rig = rig(average="per_class")
    [report] = engine_rig.feed(records(100, never=2))
    exposed = registry(lambda: AgentView(engine=engine_rig.engine.view()), 1000)
    who = {"task": "t", "model": "erm", "metric": "recall", "estimator": "average_confidence"}
    for e in report.classes:
        if e.metric != "recall":
            continue
        labels = {**who, "class": e.of_class}
        if e.of_class == "fox":
            assert e.result == Unknown("one class only"), "nothing of it is expected"
            unknown = {**labels, "reason": "one class only"}
            assert exposed.get_sample_value("blindsight_class_unknown", unknown) == 1
            assert exposed.get_sample_value("blindsight_class_estimate_ratio", labels) is None
            continue
        assert isinstance(e.result, Estimate)
        for name, value in (("", e.result.value), ("lower_", e.result.lower), ("upper_", e.result.upper)):
            name = f"blindsight_class_estimate_{name}ratio"
            assert exposed.get_sample_value(name, labels) == value
    mean = whole(report)["recall"]
    assert isinstance(mean, Estimate)
    assert exposed.get_sample_value("blindsight_estimate_ratio", who) == mean.value


def test_charts_and_objectives_judge_the_one_number_also_where_each_class_is_shown() -> None:
    rows = records(800)
    settings = {"objective": {"recall": {"min": 0.6}}}
    one, other = rig(**settings), rig(average="per_class", **settings)
    for left, right in zip(one.feed(rows), other.feed(rows), strict=True):
        assert (left.charts, left.objectives) == (right.charts, right.objectives)
        assert len(right.classes) == 9
    assert one.engine.view().series[0].violations == other.engine.view().series[0].violations


@pytest.mark.parametrize("average", ["micro", "per_class"])
def test_a_restart_goes_on_with_the_same_bytes_and_view(average: str) -> None:
    rows = records(700)
    uncut, cut = rig(average=average), rig(average=average)
    expected = lines(uncut.feed(rows))
    first = lines(cut.feed(rows[:650]))
    before = cut.engine.view().series[0].classes
    cut.restart()
    assert cut.engine.view().series[0].classes == before
    assert len(before) == (9 if average == "per_class" else 0)
    assert first + lines(cut.feed(rows[650:])) == expected
