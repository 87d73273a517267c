"""Keys of tasks of predicted numbers that hold at once."""

from __future__ import annotations

import pytest

from tests.config.test_reload_keys import reload, rig
from tests.numbers import predictions

OBJECTIVES = ("objective.within_tolerance.min", "objective.within_tolerance.max")
OF_NUMBERS = (*OBJECTIVES, "unit", "error_metrics")
OLD = {
    "kind": "regression",
    "tolerance": 1.5,
    "reference": {"path": "r"},
    "window": {"size": 100, "max_age_seconds": 1e9},
}


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("unit", "minutes", [(metric, "minutes") for metric in ("mae", "rmse", "bias")]),
        ("error_metrics", ["bias"], [("bias", "")]),
    ],
)
def test_metrics_of_errors_and_their_unit_change_in_the_next_window(
    key: str, value: object, expected: list[tuple[str, str]]
) -> None:
    engine_rig = rig(OLD)
    [first] = engine_rig.feed(predictions(2, 150))
    assert len(first.values) == 6
    assert reload(engine_rig, f"tasks.*.{key}", OLD, OLD | {key: value}) == []
    [view] = engine_rig.engine.view().series
    [second] = engine_rig.feed(predictions(3, 100, start=1.72e9))
    for values in (view.values, second.values):
        assert [(each.metric, each.unit) for each in values[::2]] == expected


@pytest.mark.parametrize("key", OBJECTIVES)
def test_what_holds_at_once_of_numbers_is_seen_in_the_next_window(key: str) -> None:
    side = key.rpartition(".")[2]
    new = OLD | {"objective": {"within_tolerance": {side: 0.5}}}
    engine_rig = rig(OLD)
    [first] = engine_rig.feed(predictions(2, 150))
    assert first.objectives == ()
    assert reload(engine_rig, f"tasks.*.{key}", OLD, new) == []
    [second] = engine_rig.feed(predictions(3, 100, start=1.72e9))
    assert [(o.metric, o.is_floor, o.bound) for o in second.objectives] == [
        ("within_tolerance", side == "min", 0.5)
    ]
