"""False alarms and delays by hour of the week, in short seeded simulations of the real charts."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.fidelity.season import PATTERNS, Trial, delay, false_alarms, rate
from tests.harness import kept

TRIALS = 60  # of 2,000 windows: 324 alarms at the promise


@pytest.mark.parametrize("pattern", PATTERNS)
def test_with_a_season_false_alarms_remain_as_promised(pattern: str) -> None:
    times, error = rate(pattern, "on", TRIALS, seed=7)
    assert error < 0.12
    assert abs(times - 1) < 4 * error


@pytest.mark.parametrize("kind", ["ewma", "cusum"])
def test_charts_that_add_up_windows_keep_the_promise_under_mondays(kind: str) -> None:
    times, error = rate("Mondays", "on", TRIALS, kind, seed=7)
    assert error < 0.12
    assert abs(times - 1) < 4 * error


def test_the_kept_table_keeps_the_promise_with_a_season() -> None:
    rows = re.findall(r"^(\w+) +(\w+) +\d +on +(\d+) ", kept(false_alarms, "alarms"), re.MULTILINE)
    assert {("ewma", "Mondays"), ("cusum", "Mondays")} < {row[:2] for row in rows}
    for kind, pattern, arl0 in rows:
        assert 330 <= int(arl0) <= 420, (kind, pattern)


def test_without_a_season_mondays_raise_more_and_with_few_windows_far_more() -> None:
    off, error = rate("Mondays", "off", TRIALS, seed=7)
    assert off - 4 * error > 1.3
    few, error = rate("Mondays", "20 windows", 10, seed=7)
    assert few - 4 * error > 10


def test_with_a_season_a_drop_is_detected_sooner() -> None:
    for pattern in ("Mondays", "nights"):
        delays = {}
        for how in ("on", "off"):
            rng = np.random.default_rng(1)
            delays[how] = [delay(Trial.draw(rng, PATTERNS[pattern], 1), how, 0.03, rng) for _ in range(40)]
        assert np.mean(delays["on"]) < 2.5
        assert np.mean(delays["off"]) > 2 * np.mean(delays["on"])
