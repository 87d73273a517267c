"""False alarms and delays of every chart and set of rules, in short seeded form."""

from __future__ import annotations

import math

import numpy as np
import pytest

from monitor import CHARTS, false_alarm_rate
from monitor.stats.charts.detectors import Detector
from tests.fidelity.all_charts import RULE_SETS, alarms, delay, in_control, ruled


@pytest.mark.parametrize("m", [math.inf, 100])
@pytest.mark.parametrize("kind", sorted(CHARTS))
def test_the_promise_holds_at_the_defaults(kind: str, m: float) -> None:
    # 500 charts of 500 windows: about 670 alarms, so an error of 4 % and what baselines add; four of them
    result = in_control(CHARTS[kind](), m, series=500, windows=500, seed=3)
    assert result.error < 0.12 * 370
    assert abs(result.windows - 370) < 4 * result.error


def test_sums_and_averages_suffer_from_autocorrelation_and_single_windows_hardly() -> None:
    # the long form: 85 and 94 windows of the promised 370, against 368
    by_kind = {kind: in_control(CHARTS[kind](), math.inf, 0.3, series=300, windows=600) for kind in CHARTS}
    assert by_kind["cusum"].windows < 110
    assert by_kind["ewma"].windows < 120
    assert abs(by_kind["shewhart"].windows - 370) < 5 * by_kind["shewhart"].error


def test_a_small_shift_is_seen_soonest_by_ewma_and_cusum_and_a_large_one_by_shewhart() -> None:
    # the long form, one point and five: shewhart 29.1 and 1.0, ewma 7.6 and 1.3, cusum 7.7 and 1.3
    small = {k: delay(CHARTS[k](), math.inf, 0.01, series=300) for k in ("shewhart", "ewma", "cusum")}
    large = {
        k: delay(CHARTS[k](), math.inf, 0.05, series=300, windows=40) for k in ("shewhart", "ewma", "cusum")
    }
    for kind, expected in (("shewhart", 29.1), ("ewma", 7.6), ("cusum", 7.7)):
        assert abs(small[kind].windows - expected) < 4 * small[kind].error + 0.1
    assert small["shewhart"].windows > 3 * max(small["ewma"].windows, small["cusum"].windows)
    assert large["shewhart"].windows < min(large["ewma"].windows, large["cusum"].windows)


@pytest.mark.parametrize("kind", ["shewhart", "ewma", "cusum"])
def test_the_simulated_detector_is_the_one_that_runs(kind: str) -> None:
    detector: Detector = CHARTS[kind]().detector
    z = np.random.default_rng(4).normal(0.4, 1.0, (20, 150))
    alarmed = alarms(detector, 2.2, z)
    assert alarmed.any(axis=1).all()
    for row, expected in zip(z, alarmed, strict=True):
        memory, own = detector.memory(2.2, None), []
        for value in row:
            own.append(bool(memory.update(float(value))))
            if own[-1]:
                memory.restart()
        assert own == expected.tolist()


@pytest.mark.parametrize("m", [20, 100])
@pytest.mark.parametrize("name", ["we2", "we3", "we1-4", "nelson5", "nelson7", "nelson8", "nelson1-8"])
def test_sets_of_rules_keep_their_promise_on_an_estimated_reference(name: str, m: float) -> None:
    # 400 charts of 600 windows: 400 alarms or more, so an error of 5 % and what baselines add; four of them.
    # Above it: patterns of up to 15 windows are not complete at the end, and rules counted apart (5 %).
    chart = ruled(RULE_SETS[name])
    result = in_control(chart, m, series=400, windows=600, seed=3)
    promised = 1 / false_alarm_rate(chart, m)
    assert chart.arl0 is not None
    assert promised > 0.999 * chart.arl0
    assert result.error < 0.16 * promised
    assert promised - 4 * result.error < result.windows < 1.1 * promised + 4 * result.error


@pytest.mark.parametrize("rules", [RULE_SETS["we1-4"], RULE_SETS["nelson1-8"]])
def test_the_simulated_rules_are_those_that_run(rules: tuple[str, ...]) -> None:
    detector = ruled(rules).detector
    z = np.random.default_rng(4).normal(0.4, 1.0, (10, 150))
    for row, expected in zip(z, alarms(detector, 2.6, z), strict=True):
        memory, own = detector.memory(2.6, None), []
        for value in row:
            own.append(bool(memory.update(float(value))))
            if own[-1]:
                memory = detector.memory(2.6, None)
        assert own == expected.tolist()
