"""The measurement of shared alarms: a part of its simulation."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.fidelity.shared import Fleet, independent, one_drop, shared_drop, table
from tests.harness import kept

pytestmark = pytest.mark.simulation


def test_an_alarm_that_comes_back_within_two_rounds_is_no_second_one() -> None:
    on = np.zeros((12, 3), dtype=bool)
    on[[1, 3, 10]] = True  # off in round 2, and in the rounds from 4 to 9
    assert Fleet(np.zeros(on.shape), on).rounds(np.random.default_rng(1)) == [1, 10]


@pytest.mark.parametrize(("models", "windows", "trials"), [(3, 500, 10), (8, 500, 4), (300, 100, 1)])
def test_independent_models_share_fewer_alarms_than_arl0_allows(
    models: int, windows: int, trials: int
) -> None:
    quiet = independent(models, windows, 11, trials)
    assert quiet.own > 0
    assert quiet.alarms <= 0.2 * quiet.rounds / 370, quiet
    assert quiet.moved <= 0.1


@pytest.mark.parametrize(("models", "correlation"), [(4, 0.8), (8, 0.8), (20, 0.3), (20, 0.8)])
def test_models_whose_noise_is_correlated_share_no_more_alarms_than_arl0_allows(
    models: int, correlation: float
) -> None:
    quiet = independent(models, 500, 15, 12, correlation=correlation)
    assert quiet.own > 0
    assert quiet.alarms <= quiet.rounds / 370, quiet  # 16; the kept table has about half


def test_the_kept_table_allows_each_number_of_shared_alarms() -> None:
    rows = re.findall(r"^(\S.*?) +([\d,]+) +(\d+) +(\d+\.\d) +[\d,]+ +[\d.]+%$", kept(table), re.MULTILINE)
    named = {f"{models} models, correlation {each}" for models in (4, 8, 20) for each in (0.3, 0.8)}
    assert named < {row[0] for row in rows}
    for name, _, shared, allowed in rows:
        assert int(shared) <= float(allowed), name


def test_a_drop_of_one_model_beside_nineteen_is_not_shared() -> None:
    quiet = one_drop(20, 200, 10.0, 12, 2)
    assert quiet.alarms == 0
    assert quiet.moved > 1 / 20


def test_a_shared_drop_of_three_sigma_is_seen_within_three_windows() -> None:
    dropped = shared_drop(20, 3.0, 13, 20, windows=10)
    assert (dropped.windows <= 3).all()
    assert dropped.own_alarms > 15
    four = shared_drop(4, 3.0, 14, 40, windows=10)
    assert (four.windows <= 3).mean() > 0.9 - 3 * np.sqrt(0.9 * 0.1 / 40)
