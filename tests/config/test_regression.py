"""The section of a task whose models predict numbers: its defaults, and the texts of its errors."""

from __future__ import annotations

from typing import Any

import pytest

from monitor.base.errors import ConfigError
from monitor.config.file import config_from
from monitor.config.regression import Regression
from monitor.config.root import Config
from monitor.config.task import charted_metrics

SECTION = {"kind": "regression", "reference": {"path": "reference.csv"}}


def problem(**settings: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        config_from({"tasks": {"delay": SECTION | settings}})
    return str(caught.value)


def test_a_section_needs_only_a_reference() -> None:
    task = config_from({"tasks": {"delay": SECTION}}).tasks["delay"]
    assert isinstance(task, Regression)
    assert (task.share, task.metrics, task.layout.numeric) == (
        "within_tolerance",
        ("within_tolerance", "ece"),
        True,
    )


def test_the_unit_applies_to_each_metric_of_errors() -> None:
    task = config_from({"tasks": {"delay": SECTION | {"unit": "minutes", "error_metrics": ["mae", "bias"]}}})
    assert task.scored_tasks["delay"].error_units == {"mae": "minutes", "bias": "minutes"}
    own = SECTION | {"unit": "minutes", "error_metrics": ["mape", "coverage"], "quantiles": [0.1, 0.9]}
    task = config_from({"tasks": {"delay": own}})
    assert task.scored_tasks["delay"].error_units == {"mape": "ratio", "coverage": "ratio"}


def test_objectives_of_errors_are_in_the_unit_of_the_target() -> None:
    task = config_from(
        {"tasks": {"delay": SECTION | {"objective": {"mae": {"max": 12}, "bias": {"min": -2}}}}}
    )
    bounds = task.scored_tasks["delay"].objective.bounds()
    assert {metric: (bound.min, bound.max) for metric, bound in bounds.items()} == {
        "mae": (None, 12.0),
        "bias": (-2.0, None),
    }
    with pytest.raises(ConfigError, match=r"tasks\.t\.objective\.mae: unknown key"):
        config_from({"tasks": {"t": {"objective": {"mae": {"max": 12}}}}})


def test_charts_of_errors_share_the_budget_of_false_alarms() -> None:
    budget = {"chart": {"arl0": {"false_alarms_per_week": 1}}, "models": {"gbm": {"answers_per_day": 50_000}}}
    task = config_from({"tasks": {"delay": SECTION | budget}}).scored_tasks["delay"]
    assert charted_metrics(task) == ("within_tolerance", "ece", "mae", "rmse", "bias")
    assert task.charting.windows == 7 * 100 * 5


def test_a_saved_section_can_be_read_again() -> None:
    config = config_from({"tasks": {"delay": SECTION | {"quantiles": [0.05, 0.95], "tolerance": 15}}})
    assert Config.model_validate_json(config.model_dump_json()) == config


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"reference": {"first_windows": 20}}, "tasks.delay.reference: expected path, because labelled"),
        ({"tolerance": 0}, "tasks.delay.tolerance: expected a number above 0"),
        ({"tolerance": 3, "relative_tolerance": 0.1}, "got both: leave one out"),
        ({"quantiles": [0.5]}, "tasks.delay.quantiles: expected at least two levels, or none, got 0.5 only"),
        (
            {"quantiles": [0.05, 95]},
            "delay.quantiles[1]: expected a number above 0 and below 1, got 95",
        ),
        ({"quantiles": [0.9, 0.1]}, "expected increasing levels, got 0.9, 0.1: sort them"),
        (
            {"classes": ["a", "b"]},
            "tasks.delay.classes: expected none in a task whose models predict numbers",
        ),
        (
            {"error_metrics": ["mse"]},
            "tasks.delay.error_metrics[0]: expected one of mae, rmse, bias, mape, wape, coverage, r2, got",
        ),
        (
            {"unit": " min"},
            "delay.unit: expected one line of text without spaces at its ends, such as minutes",
        ),
        ({"unit": "a\nb"}, "got 'a\\nb': remove the spaces and line breaks"),
        (
            {"unit": "ratio"},
            "tasks.delay.unit: expected the name of the target's unit, got 'ratio', which marks metrics "
            "without a unit: leave it out, or write another name",
        ),
        (
            {"objective": {"coverage": {"min": 1.2}}},
            "tasks.delay.objective.coverage.min: expected a number from 0 to 1, got 1.2",
        ),
        (
            {"error_metrics": ["coverage"]},
            "delay.error_metrics: expected metrics other than coverage in a task without quantiles, got "
            "coverage: give quantiles, the levels that the records state, or leave coverage out",
        ),
        (
            {"error_metrics": ["mae", "mae"]},
            "delay.error_metrics: expected each name once, got 'mae' 2 times",
        ),
        ({"metrics": ["ece"]}, "tasks.delay.metrics: expected a list with within_tolerance, got ece: add it"),
        ({"objective": {"accuracy": {"min": 0.9}}}, "tasks.delay.objective.accuracy: expected a metric that"),
        (
            {"error_metrics": ["mae"], "objective": {"bias": {"max": 2}}},
            "tasks.delay.objective.bias: expected a metric that error_metrics lists (mae): add it there",
        ),
        ({"objective": {"mae": {"max": 2, "min": 1}}}, "objective.mae: expected either min or max, got both"),
    ],
)
def test_what_does_not_go_together_is_refused(settings: dict[str, Any], text: str) -> None:
    assert text in problem(**settings)


def test_the_share_of_another_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match="expected one of accuracy, ece"):
        config_from({"tasks": {"t": {"classes": ["a", "b"], "metrics": ["within_tolerance"]}}})
