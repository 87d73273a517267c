"""Keys of tasks of predicted numbers that hold at once."""

from __future__ import annotations

import pytest

from tests.config.test_reload_keys import reload, rig
from tests.numbers import predictions

OF_NUMBERS = ("objective.within_tolerance.min", "objective.within_tolerance.max")


@pytest.mark.parametrize("key", OF_NUMBERS)
def test_what_holds_at_once_of_numbers_is_seen_in_the_next_window(key: str) -> None:
    side = key.rpartition(".")[2]
    old = {
        "kind": "regression",
        "tolerance": 1.5,
        "reference": {"path": "r"},
        "window": {"size": 100, "max_age_seconds": 1e9},
    }
    new = old | {"objective": {"within_tolerance": {side: 0.5}}}
    engine_rig = rig(old)
    [first] = engine_rig.feed(predictions(2, 150))
    assert first.objectives == ()
    assert reload(engine_rig, f"tasks.*.{key}", old, new) == []
    [second] = engine_rig.feed(predictions(3, 100, start=1.72e9))
    assert [(o.metric, o.is_floor, o.bound) for o in second.objectives] == [
        ("within_tolerance", side == "min", 0.5)
    ]
