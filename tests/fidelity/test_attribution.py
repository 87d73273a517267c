"""The part that an alarm names is the one that was changed, in a short seeded simulation of real alarms."""

from __future__ import annotations

import math

import pytest

from tests.fidelity.attribution import ALL, CAUSES, CLASS, REGION, SHARE, counted

WORLDS, EACH = 8, 10
PROMISED = 0.95


@pytest.mark.parametrize("cause", CAUSES)
def test_the_cause_is_named_first(cause: str) -> None:
    """At least 95 % of the alarms of five points or more, less two standard errors of so few."""
    counts = counted(cause, 500, WORLDS, EACH, seed=1)
    assert counts.alarms >= {SHARE: 60, REGION: 30, CLASS: 40, ALL: 60}[cause]
    error = math.sqrt(PROMISED * (1 - PROMISED) / counts.alarms)
    assert counts.first / counts.alarms >= PROMISED - 2 * error
