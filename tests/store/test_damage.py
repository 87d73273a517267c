"""What happens to a store from outside: an error that says what to do, or the state of a checkpoint."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from monitor.base.codec import pack, unpack
from monitor.base.errors import StoreError
from monitor.base.state_changes import assembled
from monitor.store import Store
from monitor.store.store import FILE
from tests.engine.test_engine import stream
from tests.streams import Rig, answers, task

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


@pytest.mark.parametrize("table", ["part", "ring_rows", "ring_changes"])
def test_other_bytes_in_a_whole_page_are_refused(tmp_path, table):
    """A flipped bit within a blob leaves SQLite's own check content."""
    rig, store = Rig(task(labels={"max_answers": 1000})), Store(tmp_path)
    for start in range(0, 600, 200):
        save(store, rig, stream()[start : start + 200])
    store.close()
    column = "state" if table == "part" else "rows"
    middle = f"length({column}) / 2"
    flipped = f"CASE hex(substr({column}, {middle}, 1)) WHEN '07' THEN x'08' ELSE x'07' END"
    whole = f"CAST(substr({column}, 1, {middle} - 1) || {flipped} || substr({column}, {middle} + 1) AS BLOB)"
    where = f"rowid = (SELECT min(rowid) FROM {table})" if table != "part" else "name = 'series/0/t'"
    edit(tmp_path, f"UPDATE {table} SET {column} = {whole} WHERE {where}")
    store = Store(tmp_path)
    with pytest.raises(StoreError, match=DAMAGED):
        store.load()
    store.close()


def test_a_piece_of_a_ring_that_is_missing_is_refused(tmp_path):
    rig, store = Rig(), Store(tmp_path)
    for i in range(3):
        save(store, rig, answers(np.random.default_rng(i), 100 * (3 - i), start=1.7e9 + 1000 * i))
    store.close()
    edit(tmp_path, "DELETE FROM ring_rows WHERE first = 300")
    store = Store(tmp_path)
    with pytest.raises(StoreError, match=r"answers/t: rows 300 to 500 are missing, or there twice\); put a"):
        store.load()
    store.close()


@pytest.mark.parametrize("how", ["cut", "overwritten"])
def test_a_log_that_lost_its_end_goes_on_from_an_earlier_checkpoint(tmp_path, how):
    rig, store = Rig(), Store(tmp_path / "state")
    store._connection.execute("PRAGMA wal_autocheckpoint = 0")
    views = [rig.engine.view()]
    for start in range(0, 600, 100):
        save(store, rig, stream()[start : start + 100])
        views.append(rig.engine.view())
    log = (tmp_path / "state" / f"{FILE}-wal").read_bytes()
    found = set()
    for cut in np.linspace(0, len(log), 40).astype(int).tolist():
        copy = tmp_path / f"copy{cut}"
        copy.mkdir()
        shutil.copy(tmp_path / "state" / FILE, copy / FILE)
        rest = b"" if how == "cut" else b"\x5a" * (len(log) - cut)
        (copy / f"{FILE}-wal").write_bytes(log[:cut] + rest)
        again = Store(copy)
        saved = again.load()
        again.close()
        engine = rig.settings.build(assembled(saved.parts, saved.rings))
        assert engine.view() in views, "the state of no checkpoint"
        found.add(views.index(engine.view()))
    assert {0, len(views) - 1} <= found
    assert len(found) > 3
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
    assert rig.settings.build(assembled(saved.parts, saved.rings)).view() == rig.engine.view()
    store.close()


def test_a_store_replaced_by_another_is_not_written_on(tmp_path):
    rig, store = Rig(), Store(tmp_path)
    save(store, rig, stream()[:200])
    shutil.copy(tmp_path / FILE, tmp_path / "backup")
    (tmp_path / "backup").replace(tmp_path / FILE)
    with pytest.raises(StoreError, match="was deleted or replaced"):
        store.commit(rig.engine.changes())
    store.close()


def test_forgetting_a_task_leaves_one_whose_name_begins_so(tmp_path):
    rig = Rig({"tox": task(), "toxicity": task()})
    rng = np.random.default_rng(0)
    rig.feed(answers(rng, 10, task="tox") + answers(rng, 10, task="toxicity"))
    store = Store(tmp_path)
    store.commit(rig.engine.changes())
    saved = store.load()
    store.forget([name for name in (*saved.parts, *saved.rings) if name.endswith("/tox")])
    left = store.load()
    assert set(left.parts) == {"engine", "task/toxicity", "revisions/toxicity", "series/0/toxicity"}
    assert set(left.rings) == {"answers/toxicity"}
    store.close()


def test_a_line_of_a_window_that_is_none_any_more_is_refused_at_the_start(tmp_path):
    rig, store = Rig(), Store(tmp_path)
    save(store, rig, answers(np.random.default_rng(0), 250))
    store.close()
    edit(tmp_path, "UPDATE report SET line = CAST(substr(line, 1, 50) AS BLOB) WHERE id = 1")
    store = Store(tmp_path)
    with pytest.raises(StoreError, match=r"is damaged \(window 0 of t, erm: .*\); put a backup"):
        store.load()
    store.close()
