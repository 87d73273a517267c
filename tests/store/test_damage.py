"""Damage to a store from outside: an error with a remedy, or the state of a checkpoint."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from monitor.base.codec import pack, unpack
from monitor.base.errors import StoreError
from monitor.base.state_changes import assemble
from monitor.store import Store
from monitor.store.store import FILE
from tests.engine.test_engine import stream
from tests.streams import Rig

DAMAGED = r"is damaged \(.*\); put a backup in its place, or move it away"


def save(store: Store, rig: Rig, records: list) -> None:
    reports = rig.feed(records)
    store.commit(rig.engine.changes(), reports)
    rig.engine.confirm()


def edit(folder: Path, *statements: str) -> None:
    connection = sqlite3.connect(folder / FILE)
    with connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


def test_every_changed_byte_of_a_stored_state_is_noticed():
    state = {"a": np.arange(4.0), "b": [1, "x", None], "c": np.array([True])}
    packed = pack(state)
    for place in range(len(packed)):
        for flip in (1, 128):
            wrong = bytearray(packed)
            wrong[place] ^= flip
            with pytest.raises(ValueError, match="a stored state cannot be read"):
                unpack(bytes(wrong))


@pytest.mark.slow
@pytest.mark.parametrize("how", ["cut", "overwritten"])
def test_a_log_that_lost_its_end_goes_on_from_an_earlier_checkpoint(tmp_path, how):
    rig, store = Rig(), Store(tmp_path / "state")
    store._connection.execute("PRAGMA wal_autocheckpoint = 0")
    views = [rig.engine.view()]
    for start in range(0, 600, 100):
        save(store, rig, stream()[start : start + 100])
        views.append(rig.engine.view())
    log = (tmp_path / "state" / f"{FILE}-wal").read_bytes()
    reached = set()
    for cut in np.linspace(0, len(log), 40).astype(int).tolist():
        copy = tmp_path / f"copy{cut}"
        copy.mkdir()
        shutil.copy(tmp_path / "state" / FILE, copy / FILE)
        rest = b"" if how == "cut" else b"\x5a" * (len(log) - cut)
        (copy / f"{FILE}-wal").write_bytes(log[:cut] + rest)
        again = Store(copy)
        saved = again.load()
        again.close()
        engine = rig.settings.build(assemble(saved.parts, saved.rings))
        assert engine.view() in views, "the state of no checkpoint"
        reached.add(views.index(engine.view()))
    assert {0, len(views) - 1} <= reached
    assert len(reached) > 3
    store.close()


@pytest.mark.parametrize("gone", [FILE, f"{FILE}-wal", "."])
def test_a_store_deleted_under_the_agent_is_told_at_the_next_checkpoint(tmp_path, gone):
    folder, aside = tmp_path / "state", tmp_path / "aside"
    rig, store = Rig(), Store(folder)
    save(store, rig, stream()[:200])
    (folder / gone).rename(aside)
    rig.feed(stream()[200:400])
    changes = rig.engine.changes()
    message = r"blindsight\.sqlite was deleted or replaced while the agent uses it; restore its files"
    with pytest.raises(StoreError, match=message):
        store.commit(changes)
    aside.rename(folder / gone)
    store.commit(changes)
    rig.engine.confirm()
    store.close()
    store = Store(folder)
    saved = store.load()
    assert rig.settings.build(assemble(saved.parts, saved.rings)).view() == rig.engine.view()
    store.close()


def test_a_store_replaced_by_another_is_not_written_on(tmp_path):
    rig, store = Rig(), Store(tmp_path)
    save(store, rig, stream()[:200])
    shutil.copy(tmp_path / FILE, tmp_path / "backup")
    (tmp_path / "backup").replace(tmp_path / FILE)
    with pytest.raises(StoreError, match="was deleted or replaced"):
        store.commit(rig.engine.changes())
    store.close()
