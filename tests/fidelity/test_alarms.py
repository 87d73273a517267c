"""The measurement of alarms: its counting, on cases by hand, and a part of its simulation."""

from __future__ import annotations

import numpy as np
import pytest

from monitor.reports.views import ObjectiveState
from tests.fidelity.alarms import Signal, _life, onsets, pooled, stretches

pytestmark = pytest.mark.simulation


def test_truths_are_pooled_over_the_window_and_the_four_before() -> None:
    values = np.array([1.0, 2.0, np.nan, 4.0, 5.0, 6.0])
    np.testing.assert_allclose(pooled(values), [1.0, 1.5, 1.5, 7 / 3, 3.0, 17 / 4])


def test_stretches_less_than_five_windows_apart_are_one() -> None:
    on = np.zeros(20, dtype=bool)
    on[[2, 3, 7, 14]] = True
    assert onsets(on) == [2, 7, 14]
    assert stretches(on) == [(2, 7), (14, 14)]


def test_an_alarm_is_right_if_the_truth_is_bad_within_five_windows() -> None:
    bad, on = np.zeros((2, 30), dtype=bool)
    bad[[4, 20, 21]] = True
    on[[0, 1, 8, 21]] = True
    assert Signal.of(on, bad) == Signal(alarms=3, right=2, found=1, drops=2, windows=4.0)


def test_few_healthy_models_are_at_risk() -> None:
    states = []
    for seed in range(100, 110):
        report, floor = _life(seed, 0.015)
        [objective] = report.objectives
        assert objective.bound == pytest.approx(floor)
        states.append(objective.state)
    assert states.count(ObjectiveState.AT_RISK) + states.count(ObjectiveState.BREACHED) <= 2
