"""The promises of charts, and their behaviour without one: budgets, short references, odd references."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monitor import CHARTS
from monitor.base.errors import ConfigError
from monitor.base.results import Estimate, Unknown
from monitor.cli.daemon import Daemon
from monitor.cli.replay import replay
from monitor.cli.trial import ReferenceTrial
from monitor.config.file import load_config
from tests.daemon import command_here, configuration, ndjson, read_windows, write_configuration
from tests.streams import Record, Rig, answers, task

WINDOW = 50
METRICS = ["accuracy", "recall"]


def in_control(seed: int, rows: int) -> list[Record]:
    """Return two models, each answer in one of two regions; a window's mean confidence is all but normal."""
    rng = np.random.default_rng(seed)
    scores = rng.random((rows, 2)).round(6)
    regions = rng.integers(0, 2, rows)
    return [
        {
            "id": f"{i}",
            "time": 1.7e9 + 30.0 * i,
            "models": {"a": [1 - one, one], "b": [1 - two, two]},
            "groups": {"region": f"r{region}"},
        }
        for i, ((one, two), region) in enumerate(zip(scores.tolist(), regions, strict=True))
    ]


@pytest.mark.simulation
def test_a_budget_of_false_alarms_is_kept_over_models_groups_and_metrics(tmp_path: Path) -> None:
    """86,400 s / 30 s are 2,880 answers a day and model: 2 × 57.6 × 7 windows a week, groups and metrics
    twice each, 3,225.6 together; 64.512 a week leave each chart an ARL0 of 50.

    The stream has 600 windows of each model, 300 of each region, of which the first 100 make the baseline:
    2 × 2 × (500 + 2 × 200) charted, 72 alarms expected. Patterns of alarms of a metric and its model, and of
    the model and its regions, are shared rows: the sum's standard deviation is at most that of a third as
    many (√(3 × 72) = 15); baselines of 100 windows add a seventh of it. Four of these.
    """
    models = {name: {"answers_per_day": 2880} for name in ("a", "b")}
    settings = {
        "window": {"size": WINDOW, "min_size": 20, "max_age_seconds": 1e7},
        "reference": {"first_windows": 100},
        "metrics": METRICS,
        "groups": ["region"],
        "models": models,
        "chart": {"arl0": {"false_alarms_per_week": 64.512}},
    }
    path = write_configuration(tmp_path, configuration(task=settings))
    done = command_here("check", path)
    assert (
        "t: 64.512 a week, groups included, divided among 3,226 windows a week: an ARL0 of 50" in done.stdout
    )
    assert "All charts together: 65 a week, 32 of them of groups." in done.stdout
    (tmp_path / "in.ndjson").write_bytes(ndjson(in_control(3, 30_000)))
    replay(str(path), [tmp_path / "in.ndjson"], tmp_path / "out", lambda path, size: None)
    charts = [
        (window["group"], chart)
        for window in read_windows(tmp_path / "out" / "windows.ndjson")
        for chart in window["charts"]
        if window["closed_by"] == "size"
    ]
    assert 3550 < len(charts) <= 3600
    assert {chart["metric"] for _, chart in charts} == set(METRICS)
    alarms = sum(bool(chart["rules"]) for _, chart in charts)
    assert abs(alarms - 72) < 4 * 17
    of_groups = sum(bool(chart["rules"]) for group, chart in charts if group)
    assert 0 < of_groups < alarms


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(CHARTS))
def test_check_prints_what_every_chart_adds_to_the_week(tmp_path: Path, kind: str) -> None:
    settings = {
        "reference": {"first_windows": 20},
        "window": {"size": 100, "min_size": 20, "max_age_seconds": 1e6},
        "metrics": ["accuracy", "f1"],
        "models": {"a": {"answers_per_day": 10_000}},
        "chart": {"kind": kind, "arl0": 200},
    }
    done = command_here("check", write_configuration(tmp_path, configuration(task=settings)))
    assert done.stdout.count("3.5 a week (100 windows a day)") == 2, done.stdout
    assert "All charts together: 7 a week." in done.stdout


SHORT = {
    "window": {"size": 100, "min_size": 20, "max_age_seconds": 1e9},
    "metrics": ["accuracy"],
    "calibration": {"method": "none"},
    "chart": {"arl0": 150, "rules": ["we1", "we4"]},
}


def referenced(folder: Path, records: list[Record], **more: Any) -> Path:
    (folder / "reference.ndjson").write_bytes(ndjson(records))
    settings = SHORT | {"reference": {"path": "reference.ndjson"}} | more
    return write_configuration(folder, configuration(task=settings))


def labelled(rows: int, seed: int = 4, **more: Any) -> list[Record]:
    return answers(np.random.default_rng(seed), rows, labelled=True, **more)


def test_a_reference_too_short_for_the_promise_is_refused_with_what_it_can_promise(tmp_path: Path) -> None:
    path = referenced(tmp_path, labelled(600))
    done = command_here("check", path)
    assert done.returncode == 2
    assert "tasks.t.reference, model erm: arl0: got 150, but with 6 reference windows the rules we1, we4" in (
        done.stderr
    )
    assert "we4 (eight in a row on one side) does not widen with the limits; lower arl0" in done.stderr


def test_a_group_too_short_for_the_promise_waits_for_the_stream_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    many = labelled(2000, groups={"region": "eu"})
    few = labelled(600, seed=5, start=1.6e9, groups={"region": "us"})
    path = referenced(tmp_path, [*few, *many], groups=["region"])
    config = load_config(str(path))
    caplog.set_level(logging.WARNING, "blindsight")
    settings = ReferenceTrial(config).engine_settings()
    [line] = [r.getMessage() for r in caplog.records if "region=us" in r.getMessage()]
    assert line.startswith("tasks.t.reference, erm region=us: arl0: got 150, but with 6 reference windows")
    assert line.endswith("Its charts wait for the stream's first 20 windows.")
    engine = settings.build()
    rig = Rig(dict(config.tasks), dict(settings.references))  # type: ignore[arg-type]
    rig.engine = engine
    rows = answers(np.random.default_rng(6), 2100, start=1.7e9, groups={"region": "us"})
    reports = [report for report in rig.feed(rows) if report.group]
    assert [len(report.charts) for report in reports] == [0] * 20 + [1]
    eu = rig.feed(answers(np.random.default_rng(7), 100, start=1.8e9, groups={"region": "eu"}))
    assert [len(report.charts) for report in eu if report.group] == [1]


def test_a_stream_baseline_too_short_takes_as_many_windows_again_and_says_whose(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A model that the reference lacks takes 20 windows; these reach 153, and 40 reach 191."""
    settings = task(**SHORT | {"reference": {"path": "r"}, "chart": {"arl0": 170, "rules": ["we1", "we4"]}})
    rig = Rig({"t": settings})
    reports = rig.feed(answers(np.random.default_rng(8), 4100))
    assert [len(report.charts) for report in reports] == [0] * 40 + [1]
    [line] = [r.getMessage() for r in caplog.records]
    assert line.startswith(
        "t, erm: the baseline waits for 20 windows more, 20 are too few. arl0: got 170, but with 20 "
        "reference windows the rules we1, we4 reach at most 153 windows together"
    )


# ── references and windows that say little ──


def test_a_reference_of_30_rows_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = referenced(tmp_path, labelled(30), calibration={"method": "platt"}, chart={"arl0": 370})
    done = command_here("check", path)
    assert done.returncode == 2
    assert done.stderr == (
        "blindsight: tasks.t.chart: reference: got 0 windows for a control chart, which needs at least 5 (20 "
        "or more are good); give more reference rows, or a smaller window.size\n"
    )


@pytest.mark.parametrize("method", ["isotonic", "platt", "beta", "temperature", "vector", "auto"])
def test_a_reference_of_one_class_is_refused_with_what_to_do(tmp_path: Path, method: str) -> None:
    records = [record | {"label": "ok"} for record in labelled(1000)]
    path = referenced(tmp_path, records, calibration={"method": method}, chart={"arl0": 370})
    done = command_here("check", path)
    assert done.returncode == 2
    assert f"{method} calibration needs at least two different outcomes, got 1,000 rows" in done.stderr
    assert "with only the label ok;" in done.stderr
    assert "give a longer reference, or set calibration.method to none" in done.stderr


def constant(rows: int, score: float = 0.3, start: float = 1.7e9) -> list[Record]:
    rng = np.random.default_rng(9)
    return [
        record | {"scores": [1 - score, score], "label": ["ok", "bad"][int(rng.random() < score)]}
        for record in answers(rng, rows, start=start)
    ]


@pytest.mark.parametrize("kind", sorted(CHARTS))
def test_constant_scores_are_charted_without_alarm_until_they_change(kind: str) -> None:
    settings = task(**SHORT | {"chart": {"kind": kind, "sigmas": 3}, "reference": {"first_windows": 5}})
    rig = Rig({"t": settings})
    reports = rig.feed(constant(1500))
    assert [len(r.charts) for r in reports] == [0] * 5 + [1] * 10
    assert not any(r.charts[0].verdict.rules for r in reports[5:])
    if kind in ("shewhart", "ewma", "cusum"):  # the textbook's have the sigma of a share of labels
        [changed] = rig.feed(constant(100, score=0.31, start=1.8e9))
        assert changed.charts[0].confidences_moved, "and labels, which decide, have not"


def test_a_metric_that_its_window_cannot_define_is_unknown_and_the_chart_goes_on() -> None:
    metrics = ("accuracy", "recall", "precision", "auroc")
    settings = SHORT | {"metrics": metrics, "chart": {"sigmas": 3}, "reference": {"first_windows": 5}}
    rig = Rig({"t": task(**settings)})
    rig.feed(answers(np.random.default_rng(1), 600))
    nothing = [r | {"scores": [1.0, 0.0]} for r in answers(np.random.default_rng(2), 100, start=1.8e9)]
    [report] = rig.feed(nothing)
    by_metric = {e.metric: e.result for e in report.estimates if e.estimator == "average_confidence"}
    assert isinstance(by_metric["accuracy"], Estimate)
    assert by_metric["recall"] == by_metric["auroc"] == Unknown("one class only")
    assert by_metric["precision"] == Unknown("class never predicted")
    assert [chart.metric for chart in report.charts] == ["accuracy"]
    [after] = rig.feed(answers(np.random.default_rng(3), 100, start=1.9e9))
    assert {chart.metric for chart in after.charts} == set(metrics)


def test_classes_the_wrong_way_round_are_refused_with_that_sentence(tmp_path: Path) -> None:
    turned = [record | {"scores": record["scores"][::-1]} for record in labelled(1000)]
    path = referenced(tmp_path, turned, calibration={"method": "isotonic"}, chart={"arl0": 370})
    with pytest.raises(ConfigError, match="in reverse order"):
        Daemon(load_config(str(path)))
    assert command_here("check", path).returncode == 2
