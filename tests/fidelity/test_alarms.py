"""The measurement of alarms: its counting, on cases by hand, and a part of its simulation."""

from __future__ import annotations

import numpy as np
import pytest

from monitor.reports.views import ObjectiveState
from tests.fidelity.alarms import Signal, _life, _watched, onsets, pooled, stretches
from tests.fidelity.predictive import simulated
from tests.fidelity.streams import calibrated

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
    assert Signal.of(on, bad) == Signal(alarms=3, right=2, caught=1, drops=2, windows=4.0)


def test_an_alarm_by_labels_is_on_while_the_truth_is_bad_and_a_surer_one_is_on_less() -> None:
    life = simulated("jump", 5000, 77_003)
    stream = calibrated(life.scores, life.predicted, life.labels, life.reference)
    picked = np.flatnonzero(np.random.default_rng(5).random(len(stream.right)) < 0.2)
    watched = _watched(stream, 500, picked, picked // 500 + 1)
    center, spread = watched.band
    bad = watched.truth < center - 3 * spread
    assert 5 < bad.sum() < len(bad) - 5
    assert watched.on[0.75][bad].mean() > 0.5
    assert onsets(watched.on[0.75])[0] >= onsets(bad)[0]
    assert watched.on[0.975].sum() <= watched.on[0.75].sum() <= watched.on[0.501].sum()


def test_few_healthy_models_are_at_risk() -> None:
    states = []
    for seed in range(100, 110):
        report, floor = _life(seed, 0.015)
        [objective] = report.objectives
        assert objective.bound == pytest.approx(floor)
        states.append(objective.state)
    assert states.count(ObjectiveState.AT_RISK) + states.count(ObjectiveState.BREACHED) <= 2
