"""What is forgotten by id leaves the join, the store and its file, in whatever state a row was."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from monitor.base.records import id_keys
from monitor.base.state_changes import Changes
from monitor.reports.views import AgentView
from monitor.store import Store
from tests.accounting import assert_adds_up
from tests.streams import Record, Rig, answers, task

IDS = ["erm-1700000000-3", "erm-1700000000-50", "early-1", "absent"]


def stream() -> list[Record]:
    rows = answers(np.random.default_rng(1), 60)
    labels = [{"id": row["id"], "label": "ok", "time": row["time"] + 90} for row in rows[::2]]
    corrected = [{"id": rows[50]["id"], "label": "bad", "time": rows[50]["time"] + 95}]
    named = [{"id": "early-1", "model": "erm", "label": "ok", "time": 1.7e9}]
    return [*rows, *labels, *corrected, *named, {"id": "early-2", "label": "ok", "time": 1.7e9}]


def on_disk(folder: Path, name: str) -> bool:
    keys = id_keys([name])
    return any(keys[0].tobytes() in path.read_bytes() for path in folder.iterdir())


def loaded(store: Store, rig: Rig) -> Rig:
    """An engine from what the store holds."""
    from monitor.base.state_changes import assembled

    saved = store.load()
    other = Rig(rig.settings.tasks)
    other.engine = rig.settings.build(assembled(saved.parts, saved.rings))
    return other


@pytest.mark.parametrize("steps", [1, 7, 40])
@pytest.mark.parametrize("saved_before", [True, False])
def test_what_was_forgotten_is_as_if_it_had_never_been_kept(
    tmp_path: Path, steps: int, saved_before: bool
) -> None:
    rig, store = Rig(task()), Store(tmp_path)
    records = stream()
    for start in range(0, len(records), steps):
        rig.feed(records[start : start + steps])
        if saved_before:
            store.commit(rig.engine.changes())
            rig.engine.confirm()
    found = rig.engine.forget(id_keys(IDS))
    assert (found.answers, found.labels, found.waiting) == (2, 2, 1)
    first = rig.engine.changes()
    rig.engine.retract()  # the disk was full; it is given again
    again = rig.engine.changes()
    assert [ring.wiped is not None for ring in again.rings] == [
        ring.wiped is not None for ring in first.rings
    ]
    store.commit(again)
    rig.engine.confirm()
    assert not any(on_disk(tmp_path, name) for name in IDS)
    assert on_disk(tmp_path, "early-2")
    other = loaded(store, rig)
    assert other.engine.view() == rig.engine.view()
    assert_adds_up(AgentView(engine=other.engine.view()))
    for one in (rig, other):
        one.feed([records[3], records[4], {"id": IDS[1], "label": "ok", "time": 1.7e9 + 200}])
        (series,) = one.engine.view().series
        assert series.duplicates == 1, "of the one that is still known"
        assert one.engine.view().labels_waiting == {"t": 2}, "early-2, and a label whose answer is gone"
        assert_adds_up(AgentView(engine=one.engine.view()))
    assert other.engine.view() == rig.engine.view()
    store.close()


def test_an_earlier_use_of_an_id_goes_too(tmp_path: Path) -> None:
    rig, store = Rig(task(labels={"horizon_days": 1})), Store(tmp_path)
    for day in (0, 30):
        rig.feed([{"id": "again", "model": "erm", "scores": [0.5, 0.5], "time": 1.7e9 + day * 86_400}])
        rig.feed([{"id": "again", "label": "ok", "time": 1.7e9 + day * 86_400}])
        store.commit(rig.engine.changes())
        rig.engine.confirm()
    assert on_disk(tmp_path, "again")
    found = rig.engine.forget(id_keys(["again"]), "t")
    assert (found.answers, found.labels) == (1, 1)
    store.commit(rig.engine.changes())
    assert not on_disk(tmp_path, "again")
    pieces = store.load().rings["answers/t"]
    assert not pieces.keys.any()
    assert not pieces.columns["time"].any()
    store.close()


def test_nothing_to_forget_changes_nothing(tmp_path: Path) -> None:
    rig, store = Rig(task()), Store(tmp_path)
    rig.feed(stream())
    store.commit(rig.engine.changes())
    rig.engine.confirm()
    before = store.load()
    assert rig.engine.forget(id_keys(["absent"])).answers == 0
    store.commit(Changes({}, rig.engine.changes().rings))
    after = store.load()
    assert before.rings["answers/t"].keys.tolist() == after.rings["answers/t"].keys.tolist()
    with pytest.raises(KeyError):
        rig.engine.forget(id_keys(["absent"]), "no such task")
    store.close()
