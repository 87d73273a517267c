"""The lines of `check` on calibrations: the choice of `auto`, and the weaknesses of a reference."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from monitor.base.errors import ConfigError
from monitor.base.records import Floats, Ints
from monitor.cli.check.calibrations import (
    calibration_warnings,
    choice_lines,
    refuse_one_class,
    surprise_warnings,
)
from monitor.config.root import Task
from monitor.engine.reference import Reference
from tests.daemon import command_here, configuration, ndjson, write_configuration
from tests.engine.test_covariates import covariates, flights
from tests.numbers import predictions, reference_of_numbers, regression, stated
from tests.streams import answers, reference_of, task


def reference(scores: Floats, labels: Ints) -> Reference:
    return Reference(scores, scores.argmax(axis=1), labels, np.arange(float(len(labels))), "", {})


def overconfident(n: int, width: int = 2, seed: int = 0) -> tuple[Floats, Ints]:
    rng = np.random.default_rng(seed)
    truth = rng.dirichlet(np.ones(width), n)
    labels = (rng.random((n, 1)) > np.cumsum(truth, axis=1)).sum(axis=1).clip(0, width - 1)
    return truth**2 / (truth**2).sum(axis=1, keepdims=True), labels


def warnings_of(scores: Floats, labels: Ints, **task: object) -> list[str]:
    classes = ["a", "b", "c"][: scores.shape[1]]
    settings = Task.model_validate({"classes": classes, **task})
    return calibration_warnings({"t": settings}, {"t": {"m": reference(scores, labels)}})


def test_a_good_reference_is_not_spoken_of() -> None:
    assert warnings_of(*overconfident(1000)) == []
    assert warnings_of(*overconfident(1000, 3)) == []


def test_thirty_rows_are_told_with_their_uncertainty() -> None:
    scores, labels = overconfident(30)
    right = (scores.argmax(axis=1) == labels).mean()
    points = 200 * np.sqrt(right * (1 - right) / 30)
    assert warnings_of(scores, labels) == [
        "tasks.t.reference, model m: 30 labelled rows are few for a calibration: chance alone makes every "
        f"estimate uncertain by {points:.0f} points (two standard errors), which is in every interval; "
        "give 1,000 or more"
    ]
    assert warnings_of(scores, labels, calibration={"method": "none"}) == []


def test_thirty_rows_that_are_all_right_are_not_taken_for_certain() -> None:
    labels = np.arange(30) % 2
    (warning,) = warnings_of(np.where(np.eye(2)[labels] == 1, 0.9, 0.1), labels)
    assert "uncertain by 7 points" in warning


def test_constant_scores_are_told() -> None:
    assert warnings_of(np.full((1000, 2), 0.5), np.arange(1000) % 2) == [
        "tasks.t.reference, model m: its scores are all equal, so each answer gets the same confidence, "
        "and no drift is visible; does the model give probabilities?"
    ]


def test_scores_of_zero_and_one_are_told() -> None:
    scores, labels = overconfident(1000)
    scores[:600] = np.eye(2)[scores[:600].argmax(axis=1)]
    assert warnings_of(scores, labels) == [
        "tasks.t.reference, model m: 60% of its rows have a score of exactly 0 or 1, so all of them get "
        "the same confidence; give probabilities before rounding"
    ]


def test_an_absent_class_is_told_by_name() -> None:
    scores, labels = overconfident(3000, 3)
    kept = labels != 1
    assert warnings_of(scores[kept], labels[kept]) == [
        "tasks.t.reference, model m: no row has the label b: it gets next to no probability, whatever the "
        "scores say (temperature leaves it what the scores give); give rows of every class"
    ]


def test_two_of_three_classes_that_no_row_has_leave_one_which_is_refused_by_its_name() -> None:
    scores, labels = overconfident(3000, 3)
    one = reference(scores[labels == 1], labels[labels == 1])
    task = Task.model_validate({"classes": ["a", "b", "c"], "reference": {"path": "r"}})
    with pytest.raises(ConfigError) as refused:
        refuse_one_class("t", task, "m", one)
    assert str(refused.value) == (
        "tasks.t.reference, model m: isotonic calibration needs at least two different outcomes, got "
        f"{(labels == 1).sum():,} rows with only the label b; give a longer reference, or set "
        "calibration.method to none"
    )
    none = Task.model_validate({"classes": ["a", "b", "c"], "calibration": {"method": "none"}})
    refuse_one_class("t", none, "m", one)  # nothing is fitted
    refuse_one_class("t", task, "m", reference(scores[labels < 2], labels[labels < 2]))  # a warning says it


def test_the_choice_is_told_for_auto_only() -> None:
    references = {"t": {"m": reference(*overconfident(2000))}}
    assert choice_lines({"t": Task()}, references) == []
    (line,) = choice_lines({"t": Task.model_validate({"calibration": {"method": "auto"}})}, references)
    losses = references["t"]["m"].choice().losses
    assert line == "t, m: calibration temperature; log loss " + ", ".join(
        f"{method} {losses[method]:.4f}" for method in ("none", "temperature", "platt", "beta", "isotonic")
    )


def test_calibrations_for_each_window_tell_the_rows_that_they_rest_on() -> None:
    rows = flights(0, 500, 0.3)
    for row in rows[:120]:
        del row["features"]["hour"]
    lines = choice_lines({"t": covariates()}, {"t": reference_of(covariates(), rows)})
    which = "calibration for each window by carrier, hour"
    assert lines == [f"t, erm: {which}; 380 of 500 rows of the reference have all of them"]


@pytest.mark.parametrize(
    ("bound", "is_warned"),
    [({"min": 0.7}, False), ({"min": 0.9}, True), ({"max": 0.9}, False), ({"max": 0.7}, True)],
)
def test_an_objective_that_the_reference_misses_is_told(bound: dict[str, float], is_warned: bool) -> None:
    labels = np.tile([0, 0, 0, 0, 1], 200)
    task = Task.model_validate({"classes": ["a", "b"], "objective": {"accuracy": bound}})
    warnings = surprise_warnings({"t": task}, {"t": {"m": reference(np.full((1000, 2), 0.5), labels)}})
    message = "tasks.t.objective.accuracy: the accuracy of m in the reference is 0.800, outside the bound"
    assert [each[: len(message)] for each in warnings] == [message] * is_warned


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        (
            {"mae": {"max": 0.5}},
            "mae: the mae of gbm in the reference is {} minutes, outside",
        ),
        ({"wape": {"max": 0.001}}, "wape: the WAPE of gbm in the reference is 0."),
        ({"coverage": {"min": 0.99}}, "coverage: the coverage of gbm in the reference is 0."),
        ({"mae": {"max": 50}, "coverage": {"min": 0.2}, "bias": {"min": -1}, "r2": {"min": 0.2}}, None),
    ],
)
def test_an_objective_of_an_error_that_the_reference_misses_is_told(
    bounds: dict[str, dict[str, float]], words: str | None
) -> None:
    metrics = ["mae", "bias", "wape", "coverage", "r2"]
    own = regression(error_metrics=metrics, quantiles=[0.1, 0.5, 0.9], unit="minutes", objective=bounds)
    records = stated(predictions(1, 400))
    mae = np.mean([abs(each["prediction"] - each["label"]) for each in records])
    warnings = surprise_warnings({"t": own}, {"t": reference_of_numbers(own, records)})
    expected = [] if words is None else [f"tasks.t.objective.{words.format(f'{mae:.3g}')}"]
    assert [warning[: len(start)] for warning, start in zip(warnings, expected, strict=True)] == expected


def test_groups_of_which_a_window_takes_weeks_are_told() -> None:
    rows = replace(
        reference(np.full((1000, 2), 0.5), np.tile([0, 1], 500)),
        groups={"region=eu": np.arange(990), "region=us": np.arange(990, 1000)},
    )
    traffic = {"m": {"answers_per_day": 5000}}
    task = Task(classes=("a", "b"), window={"size": 500}, groups=("region",), models=traffic)
    (warning,) = surprise_warnings({"t": task}, {"t": {"m": rows}})
    assert warning.startswith(
        "tasks.t.groups: of m 1 value has too few answers for a window of 500 a week; one of region=us would "
        "take 10 days, and closes by age with fewer rows and a wide interval; group more coarsely"
    )
    assert surprise_warnings({"t": Task(classes=("a", "b"), groups=("region",))}, {"t": {"m": rows}}) == []


def test_a_group_that_only_another_model_has_is_not_spoken_of() -> None:
    rng, traffic = np.random.default_rng(0), {name: {"answers_per_day": 5000} for name in ("erm", "other")}
    settings = task(groups=["region"], models=traffic)
    rows = [
        *answers(rng, 500, "erm", labelled=True, groups={"region": "eu"}),
        *answers(rng, 500, "other", labelled=True, groups={"region": "us"}),
    ]
    assert surprise_warnings({"t": settings}, {"t": reference_of(settings, rows)}) == []


@pytest.mark.parametrize(("method", "is_printed"), [("auto", True), ("beta", False)])
def test_check_prints_it(tmp_path: Path, method: str, is_printed: bool) -> None:
    scores, labels = overconfident(600)
    rows = [
        {"model": "erm", "scores": pair, "label": ["ok", "bad"][label]}
        for pair, label in zip(scores.tolist(), labels.tolist(), strict=True)
    ]
    (tmp_path / "ref.ndjson").write_bytes(ndjson(rows))
    task = {"reference": {"path": "ref.ndjson"}, "calibration": {"method": method}}
    done = command_here("check", write_configuration(tmp_path, configuration(task=task)))
    assert done.returncode == 0, done.stderr
    heading = "Calibrations that auto takes:\n  t, erm: calibration temperature; log loss"
    assert (heading in done.stdout) == is_printed
    assert "model erm: 600 labelled rows are few for a calibration" in done.stdout
