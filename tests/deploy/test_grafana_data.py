"""Every expression of the dashboards, put to a real Prometheus that scrapes a real agent: each finds data."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monitor.export.page.addresses import external_address
from tests.daemon import DaemonProcess, command, configuration, ndjson
from tests.numbers import predictions
from tests.services.process import PATIENCE_SECONDS
from tests.services.prometheus_server import PrometheusServer
from tests.streams import CLASSES, Record, compared

DASHBOARDS = Path(__file__).parents[2] / "deploy" / "grafana" / "dashboards"
# As in tests/export/rules/test_end_to_end.py: two windows of half an hour each take 12 s.
TIME_SCALE = "0.0016666"
TASKS = {"t": "a", "three": "c", "delay": "gbm"}
"""Tasks, and a model of each that the dashboard `model` is asked for."""
THREE = ["red", "green", "blue"]
OUTSIDE = "https://models.example/b"


def requests(first: int, count: int, wrong: bool = False) -> list[Record]:
    """Return two models' answers to one task, one model's to another of three classes; every fifth labelled.

    With `wrong` the scores are less sure than the reference's, and the labels say the opposite of them.
    """
    rng = np.random.default_rng(first)
    records: list[Record] = []
    for i in range(first, first + count):
        claimed = rng.normal(0.0, 1.5 if wrong else 4.0)
        scores = 1 / (1 + np.exp(-(claimed + rng.normal(0.0, 0.3, 2))))
        bad = rng.random() < (1 / (1 + np.exp(claimed if wrong else -claimed)))
        third = rng.dirichlet([0.2, 0.2, 0.2])
        labelled = i % 5 == 0
        common = {"id": f"r{i}", "time": 1.7e9 + i, "groups": {"region": "eu" if i % 2 else "us"}}
        answers = {m: [1 - s, s] for m, s in zip("ab", scores.tolist(), strict=True)}
        records.append(common | {"task": "t", "models": answers})
        records.append({**common, "task": "three", "model": "c", "scores": third.tolist()})
        if labelled:
            records.append({"id": f"r{i}", "task": "t", "label": CLASSES[int(bad)], "time": 1.7e9 + i + 1})
            truth = THREE[int(rng.choice(3, p=third))]
            records.append({"id": f"r{i}", "task": "three", "label": truth, "time": 1.7e9 + i + 1})
    return records


def settings(folder: Path) -> dict[str, Any]:
    metrics = ["accuracy", "ece", "precision", "recall", "specificity", "f1", "auroc"]
    rows = [row for row in requests(10**6, 8000) if row["task"] == "t"]
    labels = {row["id"]: row["label"] for row in rows if "label" in row}
    reference = [
        row | {"label": labels[row["id"]]} for row in rows if "models" in row and row["id"] in labels
    ]
    (folder / "reference.ndjson").write_bytes(ndjson(reference))
    first = {
        "models": {"a": {}, "b": {}},
        "reference": {"path": "reference.ndjson"},
        "metrics": metrics,
        "estimators": ["average_confidence", "ssme", "realised"],
        "calibration": {"method": "isotonic"},
        "ssme": {"every_windows": 4},
        "objective": {"accuracy": {"min": 0.85}, "windows": 3},
        "groups": ["region"],
    }
    window = {"size": 100, "min_size": 20, "max_age_seconds": 3600}
    three = {
        "classes": THREE,
        "window": window,
        "reference": {"first_windows": 5},
        "metrics": ["accuracy", "ece", "precision", "recall"],  # without calibration, ece is unknown
        "average": "per_class",
        "chart": {"sigmas": 3},
        "models": {"c": {}},
    }
    settings = configuration(
        task=first,
        sources=[{"kind": "file", "path": "in.ndjson", "follow": True}],
        reports={"path": "windows.ndjson"},
        store={"path": "state"},
    )
    settings["export"]["external_url"] = OUTSIDE
    settings["tasks"]["three"] = three
    settings["tasks"]["chat"] = {"kind": "arena", "window": {"size": 200}}
    known = predictions(1, 600, "gbm", 1.6e9)
    (folder / "numbers.ndjson").write_bytes(ndjson(known))
    settings["tasks"]["delay"] = {
        "kind": "regression",
        "unit": "minutes",
        "tolerance": 1.5,
        "window": window,
        "reference": {"path": "numbers.ndjson"},
        "features": {"x": "number"},
        "models": {"gbm": {}},
    }
    return settings


def comparisons() -> list[Record]:
    """Return two windows of an arena, of whose models one was hardly compared: it has no rank."""
    pairs = compared(np.random.default_rng(4), 400, models=("alpha", "beta", "gamma"))
    new = {"model_a": "alpha", "model_b": "delta", "judge_winner": "model_b"}
    return [row | {"task": "chat"} | (new if i % 100 == 0 else {}) for i, row in enumerate(pairs)]


def dashboard(name: str) -> dict[str, Any]:
    board: dict[str, Any] = json.loads((DASHBOARDS / f"blindsight-{name}.json").read_text(encoding="utf-8"))
    return board


def expressions(name: str) -> Iterator[tuple[str, str]]:
    """Yield panel or annotation, and one of its expressions."""
    board = dashboard(name)
    for panel in board["panels"]:
        yield from ((panel["title"], target["expr"]) for target in panel.get("targets", ()))
    for mark in board["annotations"].get("list", ()):
        yield mark["name"], mark["expr"]


def filled(expression: str, **values: str) -> str:
    """Return the expression with its variables filled in as Grafana does; an unknown one is an error."""
    known = {"job": ".+", "instance": ".+", "task": ".+", "model": ".+", "metric": "accuracy"} | values
    known |= {"estimator": "average_confidence", "group_metric": "accuracy", "error": "mae"}
    known |= {"__rate_interval": "10m", "__range": "10m"}
    return re.sub(r"\$(\w+)", lambda match: known[match[1]], expression)


@pytest.fixture
def scraped(tmp_path: Path, prometheus: Callable[..., PrometheusServer]) -> Iterator[PrometheusServer]:
    """Yield Prometheus with the rules over an agent whose models were good, and are not any longer."""
    stream = tmp_path / "in.ndjson"
    stream.touch()

    def add(rows: list[Record]) -> None:
        with stream.open("ab") as file:
            file.write(ndjson(rows))

    with DaemonProcess(tmp_path, settings(tmp_path)) as daemon:
        printed = command("rules", daemon.config, "--time-scale", TIME_SCALE)
        assert printed.returncode == 0, printed.stderr
        server = prometheus([f"127.0.0.1:{daemon.port}"], rules=printed.stdout)
        server.wait_for("blindsight_build_info")
        numbers = [row | {"task": "delay"} for row in predictions(2, 200)]
        add([*comparisons(), *numbers, *requests(0, 1000)])
        server.wait_for('blindsight_state{task="t",state="in_control"} == 1', PATIENCE_SECONDS)
        server.wait_for("blindsight_refit_last_success_timestamp_seconds", PATIENCE_SECONDS)
        more = [*requests(1000, 1500, wrong=True), *requests(1000, 10)]
        add([*more, {"task": "t", "model": "a"}])  # the last has no scores
        server.wait_for('blindsight_estimate_bias_ratio{task="t",model="a"} < -0.1', PATIENCE_SECONDS)
        server.wait_for('ALERTS{alertstate="firing",model="a",metric="accuracy",group=""}', PATIENCE_SECONDS)
        yield server


def missing(server: PrometheusServer) -> list[tuple[str, str]]:
    """Return panels with an expression that finds nothing for any of the models asked for."""
    every: list[dict[str, str]] = [{"task": task, "model": model} for task, model in TASKS.items()]
    return [
        (f"{name}: {panel}", expression)
        for name, choices in (("fleet", [{}]), ("model", every))
        for panel, expression in expressions(name)
        if not any(server.query(filled(expression, **choice)) for choice in choices)
    ]


def by_label(server: PrometheusServer, expression: str, label: str) -> dict[str, float]:
    """Return values of an expression for the model that degraded."""
    rows = server.query(filled(expression, task="t", model="a"))
    return {row["metric"][label]: float(row["value"][1]) for row in rows}


def curve_is_that_of_the_labels(server: PrometheusServer) -> None:
    """Check the curve and distribution of the model whose labels contradict its claims."""
    queries = [e for panel, e in expressions("model") if panel == "Calibration curve in numbers"]
    confidence, right, labelled = (by_label(server, expression, "bin") for expression in queries)
    assert confidence.keys() == right.keys() == labelled.keys()
    for name, value in confidence.items():
        low, high = map(float, name.split("-"))
        assert low <= value <= high + 1e-9, name
    surest = max(confidence, key=lambda name: labelled[name])
    assert right[surest] < confidence[surest] - 0.1, "it is surer than it should be"
    exported = "blindsight_calibration_curve_labelled_total"
    matched = server.query(f'sum({exported}{{task="t",model="a"}})')
    assert float(matched[0]["value"][1]) == 500, "every fifth of 2,500 requests"

    [spread] = [e for panel, e in expressions("model") if panel == "Distribution of confidences"]
    buckets = by_label(server, spread, "le")
    ends = sorted(buckets, key=float)
    assert len(ends) == 10
    assert [buckets[end] for end in ends] == sorted(buckets.values()), "cumulative"
    used = float(server.query('blindsight_confidence_ratio_count{task="t",model="a"}')[0]["value"][1])
    total = float(server.query('blindsight_predictions_total{task="t",model="a"}')[0]["value"][1])
    assert used == total >= 2400


def test_every_expression_finds_data(scraped: PrometheusServer) -> None:
    assert len(list(expressions("fleet"))) > 25
    assert len(list(expressions("model"))) > 50
    deadline = time.monotonic() + PATIENCE_SECONDS
    while lacking := missing(scraped):
        assert time.monotonic() < deadline, lacking
        time.sleep(0.5)

    # Every variable is filled, by the labels of a series that is there.
    for name in ("fleet", "model"):
        for each in dashboard(name)["templating"]["list"]:
            if each["name"] == "page":
                match = re.fullmatch(r"query_result\((.+)\)", each["query"])
                assert match is not None, each["query"]
                urls = {row["metric"]["url"] for row in scraped.query(filled(match[1], task="t", model="a"))}
                assert urls == {OUTSIDE}
            elif each["type"] == "query":
                match = re.fullmatch(r"label_values\((.+), (\w+)\)", each["query"])
                assert match is not None, each["query"]
                [first, *_rest] = scraped.query(filled(match[1]))
                assert match[2] in first["metric"]

    # An alert leads to the page of its model.
    pages = {
        (alert["labels"]["model"], alert["labels"]["metric"]): alert["annotations"]["page_url"]
        for alert in scraped.alerts()
        if {"model", "metric"} <= set(alert["labels"]) and "group" not in alert["labels"]
    }
    assert pages["a", "accuracy"] == external_address(OUTSIDE, "t", "a", metric="accuracy")

    # The table of the fleet: the models that degraded stand above the one that did not.
    [state] = [e for panel, e in expressions("fleet") if panel == "States"]
    severities = {s["metric"]["model"]: float(s["value"][1]) for s in scraped.query(filled(state))}
    assert severities["a"] in (5.0, 6.0)
    assert severities["c"] < severities["a"]

    # The table that opens the model's board: what it is worth, how far from its floor, its worst state.
    opening = [e for panel, e in expressions("model") if panel == "Estimates now"]
    estimate, lower, upper, floor, above, worst, realised, *_ = (
        by_label(scraped, expression, "metric") for expression in opening
    )
    assert lower["accuracy"] <= estimate["accuracy"] <= upper["accuracy"]
    assert floor == {"accuracy": 0.85}
    assert above["accuracy"] == pytest.approx(100 * (estimate["accuracy"] - 0.85))
    assert worst["accuracy"] in (5.0, 6.0)
    assert realised["accuracy"] < estimate["accuracy"], "labels say that it is too high"

    curve_is_that_of_the_labels(scraped)

    # The arena's table: who wins most has the largest coefficient, and the one hardly compared has a reason.
    standing = [e for panel, e in expressions("fleet") if panel == "Models compared in pairs"]
    values = [
        {s["metric"]["model"]: float(s["value"][1]) for s in scraped.query(filled(e))} for e in standing
    ]
    coefficient, lower, upper, best, worst = values
    assert set(coefficient) == {"alpha", "beta", "gamma"}
    assert max(coefficient, key=lambda name: coefficient[name]) == "gamma"
    assert all(lower[name] <= coefficient[name] <= upper[name] for name in coefficient)
    assert best["gamma"] == 1
    assert all(best[name] <= worst[name] <= 3 for name in coefficient)
    [why] = [e for panel, e in expressions("fleet") if panel == "Models without a rank, and why"]
    assert [s["metric"]["model"] for s in scraped.query(filled(why))] == ["delta"]

    # The errors of predicted numbers, in their unit.
    queries = [e for panel, e in expressions("model") if panel == "Errors now"]
    rows = [scraped.query(filled(e, task="delay", model="gbm")) for e in queries]
    assert {row["metric"]["unit"] for each in rows for row in each} == {"minutes"}
    estimate, lower, upper, *_ = (
        {row["metric"]["metric"]: float(row["value"][1]) for row in each} for each in rows
    )
    assert set(estimate) == {"mae", "rmse", "bias"}
    assert all(lower[name] <= estimate[name] <= upper[name] for name in estimate)

    # The cells of the confusion matrix are shares of all answers, and its diagonal is the accuracy.
    cells = [
        float(scraped.query(filled(e, task="t", model="a"))[0]["value"][1])
        for panel, e in expressions("model")
        if panel.startswith("Confusion matrix")
    ]
    assert len(cells) == 4
    assert all(0 <= cell <= 1 for cell in cells)
    assert sum(cells) == pytest.approx(1.0, abs=1e-9)
    accuracy = (
        'blindsight_estimate_ratio{task="t",model="a",metric="accuracy",estimator="average_confidence"}'
    )
    assert cells[0] + cells[3] == pytest.approx(float(scraped.query(accuracy)[0]["value"][1]), abs=0.02)
    # Three classes' averages obey no such law, and have none.
    [first, *_rest] = [e for panel, e in expressions("model") if panel.startswith("Confusion matrix")]
    assert scraped.query(filled(first, task="three", model="c")) == []
