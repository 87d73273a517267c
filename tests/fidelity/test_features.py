"""The part that is named first is the cause, and a correlated one is not named, in a few streams."""

from __future__ import annotations

import math

import pytest

from monitor.config.chart import FeatureAlarms, feature_alarm_level
from tests.fidelity.features import (
    CAUSES,
    FREQUENCIES,
    WatchedWorld,
    World,
    counted,
    counted_alarms,
    errors,
    false_alarms,
)
from tests.harness import kept

STREAMS = 25
FIRST, ECHO, NONE = 0.95, 0.02, 0.01


@pytest.mark.parametrize("cause", [each for each in CAUSES if each != "none"])
def test_the_cause_is_named_first(cause: str) -> None:
    """95 % of the changes of five points or more at least, less two standard errors of so few."""
    counts = counted(cause, STREAMS, 5000, 0.7)
    assert counts.alarms >= (5 if cause == "category" else 12)
    error = math.sqrt(FIRST * (1 - FIRST) / counts.alarms)
    assert counts.first / counts.alarms >= FIRST - 2 * error
    assert counts.echo <= 1 + ECHO * counts.alarms
    assert counts.inexact < 1e-9


@pytest.mark.parametrize("values", FREQUENCIES)
@pytest.mark.parametrize(("reference", "rows"), [(400, 500), (5000, 50), (10_000, 5000)])
def test_drift_keeps_its_budget_of_false_alarms(values: str, reference: int, rows: int) -> None:
    """A week of 5,000 tests of features, less three standard errors of the number that the budget allows."""
    budget, tests = 20, 5000
    level = feature_alarm_level(FeatureAlarms(false_alarms_per_week=budget), tests)
    assert false_alarms(values, reference, rows, tests, level, 7000) <= budget + 3 * math.sqrt(budget)


def test_without_a_change_hardly_any_part_is_named() -> None:
    counts = counted("none", 2 * STREAMS, 5000, 0.7)
    assert counts.named <= 2  # the probability of three or more at 1 % is 1.4 %
    assert counts.inexact < 1e-9


def test_the_report_of_an_alarm_names_the_cause_first() -> None:
    """Through the engine, with fewer streams than `python -m tests.fidelity.features alarm`."""
    worlds = [WatchedWorld(World(6000 + k, 0.7)) for k in range(8)]
    every = {cause: counted_alarms(cause, worlds) for cause in CAUSES}
    assert every.pop("none").alarms == 0
    assert all(counts.alarms >= 2 for counts in every.values()), every
    alarms, first = (sum(getattr(each, name) for each in every.values()) for name in ("alarms", "first"))
    assert first / alarms >= FIRST - 2 * math.sqrt(FIRST * (1 - FIRST) / alarms)
    assert sum(each.echo for each in every.values()) <= 1 + ECHO * alarms


def test_the_kept_table_names_the_feature_behind_a_changed_error() -> None:
    """A wider feature is seldom named: few rows of the reference are as far out."""
    rows = [line.split() for line in kept(errors, "errors").splitlines()[2:]]
    shares = {(row[0], row[1]): (int(row[2]), row[3:]) for row in rows}
    for cause in ("half", "shift", "longer"):
        changed, cells = shares[cause, "mae"]
        first, echo = float(cells[0]), float(cells[3])
        assert (changed, first) == (60, 100.0), cause
        assert echo <= 100 * ECHO, cause
    assert {shares["none", metric][0] for metric in ("mae", "rmse")} == {0}
