"""Keys of tasks of predicted numbers that hold at once."""

from __future__ import annotations

import pytest

from monitor.stats.regression.metrics import ERROR_METRICS
from tests.config.test_reload_keys import reload, rig
from tests.numbers import OTHERS, predictions, stated

OBJECTIVES = tuple(
    f"objective.{metric}.{side}" for metric in ("within_tolerance", *ERROR_METRICS) for side in ("min", "max")
)
OF_NUMBERS = (*OBJECTIVES, "unit")
BEGINS_A_BASELINE = ("error_metrics",)
OLD = {
    "kind": "regression",
    "tolerance": 1.5,
    "reference": {"path": "r"},
    "window": {"size": 100, "max_age_seconds": 1e9},
}


def test_the_unit_of_metrics_of_errors_changes_in_the_next_window() -> None:
    engine_rig = rig(OLD)
    [first] = engine_rig.feed(predictions(2, 150))
    assert len(first.values) == 6
    assert reload(engine_rig, "tasks.*.unit", OLD, OLD | {"unit": "minutes"}) == []
    [view] = engine_rig.engine.view().series
    [second] = engine_rig.feed(predictions(3, 100, start=1.72e9))
    expected = [(metric, "minutes") for metric in ("mae", "rmse", "bias")]
    for each in (view, second):
        assert [(value.metric, value.unit) for value in each.values[::2]] == expected
        assert [(chart.metric, chart.unit) for chart in each.charts if chart.unit is not None] == expected


def test_other_metrics_of_errors_begin_a_new_baseline() -> None:
    engine_rig = rig(OLD)
    [first] = engine_rig.feed(predictions(2, 150))
    assert [chart.metric for chart in first.charts] == ["within_tolerance", "ece", "mae", "rmse", "bias"]
    [cut] = reload(engine_rig, "tasks.*.error_metrics", OLD, OLD | {"error_metrics": ["bias"]})
    assert (cut.size, cut.closed_by) == (50, "end")
    [second] = engine_rig.feed(predictions(3, 100, start=1.72e9))
    assert [each.metric for each in second.values[::2]] == ["bias"]
    assert [chart.metric for chart in second.charts] == ["within_tolerance", "ece", "bias"]


@pytest.mark.parametrize("key", OBJECTIVES)
def test_what_holds_at_once_of_numbers_is_seen_in_the_next_window(key: str) -> None:
    _, metric, side = key.split(".")
    old = OLD | OTHERS | {"error_metrics": ERROR_METRICS}
    engine_rig = rig(old)
    [first] = engine_rig.feed(stated(predictions(2, 150)))
    assert first.objectives == ()
    assert reload(engine_rig, f"tasks.*.{key}", old, old | {"objective": {metric: {side: 0.5}}}) == []
    [second] = engine_rig.feed(stated(predictions(3, 100, start=1.72e9)))
    assert [(o.metric, o.is_floor, o.bound) for o in second.objectives] == [(metric, side == "min", 0.5)]
