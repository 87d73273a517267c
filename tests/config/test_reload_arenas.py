"""Keys of arenas that hold at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from monitor.reports.arena_report import ArenaReport
from tests.config.test_reload_keys import reload, rig
from tests.streams import compared

OF_ARENAS: dict[str, tuple[Any, Callable[[ArenaReport], Any], tuple[Any, Any]]] = {
    # the value after, what is looked at, what is seen without the reload and with it
    "windows": (2, lambda report: report.pooled, (300, 200)),
    "reference_model": ("m1", lambda report: report.standing.reference, ("m0", "m1")),
    "max_models": (4, lambda report: len(report.standing.models), (3, 4)),
}


@pytest.mark.parametrize("key", OF_ARENAS)
def test_what_holds_at_once_of_an_arena_is_seen_in_its_next_window(key: str) -> None:
    after, look, expected = OF_ARENAS[key]
    rng = np.random.default_rng(0)
    old = {"kind": "arena", "window": {"size": 100}, "max_models": 3, "models": ["m0", "m1", "m2"]}
    new = old | {key: after}
    seen = []
    for reloads in (False, True):
        engine_rig = rig(old)
        assert [report.size for report in engine_rig.feed(compared(rng, 250))] == [100, 100]
        if reloads:
            assert reload(engine_rig, f"tasks.*.{key}", old, new) == []
        [report] = engine_rig.feed([*compared(rng, 20, "b", ("m0", "m9")), *compared(rng, 50, "d")])
        assert isinstance(report, ArenaReport)
        seen.append(look(report))
    assert tuple(seen) == expected


def test_another_window_of_an_arena_closes_the_open_one_and_then_has_its_size() -> None:
    old = {"kind": "arena", "window": {"size": 100}}
    engine_rig, rng = rig(old), np.random.default_rng(0)
    engine_rig.feed(compared(rng, 130))
    new = {"kind": "arena", "window": {"size": 50}}
    assert [(r.size, r.closed_by) for r in reload(engine_rig, "tasks.*.window.size", old, new)] == [
        (30, "end")
    ]
    assert [r.size for r in engine_rig.feed(compared(rng, 120, "b"))] == [50, 50]
