from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from monitor.base.codec import pack, unpack
from monitor.base.errors import StoreError
from monitor.base.state_changes import assemble
from monitor.store import Store
from monitor.store.schema import VERSION
from monitor.store.store import FILE, copy_store
from tests.engine.test_engine import stream
from tests.streams import Rig, answers


def resumed(rig: Rig, folder: Path) -> None:
    """Go on as a new process would: from the store alone."""
    store = Store(folder)
    saved = store.load()
    rig.engine = rig.settings.build(assemble(saved.parts, saved.rings))
    store.close()


def test_only_what_changed_is_written(tmp_path):
    rig = Rig()
    rig.feed(answers(np.random.default_rng(0), 150, "a") + answers(np.random.default_rng(1), 150, "b"))
    rig.engine.changes()
    rig.engine.confirm()
    rig.feed(answers(np.random.default_rng(2), 10, "b", start=1.71e9))
    changes = rig.engine.changes()
    assert set(changes.parts) == {"engine", "task/t", "series/1/t"}
    assert {ring.name: len(ring.added.keys) for ring in changes.rings} == {"answers/t": 10}


def test_a_second_agent_is_refused_by_name(tmp_path):
    store = Store(tmp_path)
    code = f"from pathlib import Path; from monitor.store import Store; Store(Path({str(tmp_path)!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "is in use by another agent (process " in done.stderr
    store.close()
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_store_of_a_newer_version_is_refused(tmp_path):
    Store(tmp_path).close()
    with sqlite3.connect(tmp_path / FILE) as connection:
        connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    connection.close()
    with pytest.raises(
        StoreError,
        match=rf"was written by a newer Blindsight \(store version {VERSION + 1}, this one knows {VERSION}\)",
    ):
        Store(tmp_path)


def test_another_programs_file_is_refused(tmp_path):
    with sqlite3.connect(tmp_path / FILE) as connection:
        connection.execute("CREATE TABLE mine (x)")
    connection.close()
    with pytest.raises(StoreError, match="is an SQLite file of another program"):
        Store(tmp_path)


@pytest.mark.parametrize("damage", [b"no database at all" * 100, None])
def test_a_damaged_file_is_refused_with_what_to_do(tmp_path, damage):
    rig = Rig()
    store = Store(tmp_path)
    rig.feed(stream())
    store.commit(rig.engine.changes())
    store.close()
    path = tmp_path / FILE
    data = bytearray(path.read_bytes())
    if damage is None:
        data[4096:12288] = b"\xff" * 8192
    path.write_bytes(damage or data)
    with pytest.raises(StoreError, match=r"is damaged \(.*\); put a backup in its place, or move it away"):
        Store(tmp_path)


def test_an_unusable_folder_is_said(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(StoreError, match=r"store\.path: cannot write .*file"):
        Store(file)


def test_a_full_disk_leaves_the_last_checkpoint_and_loses_nothing(tmp_path):
    rig = Rig()
    store = Store(tmp_path)
    records = stream()
    rig.feed(records[:400])
    store.commit(rig.engine.changes())
    rig.engine.confirm()
    pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
    store._connection.execute(f"PRAGMA max_page_count = {pages}")
    rig.feed(records[400:])
    with pytest.raises(StoreError, match=r"cannot be written: the disk is full; make room"):
        store.commit(rig.engine.changes())
    rig.engine.retract()
    store._connection.execute("PRAGMA max_page_count = 1000000")
    store.commit(rig.engine.changes())
    rig.engine.confirm()
    before = rig.engine.view()
    store.close()
    resumed(rig, tmp_path)
    assert rig.engine.view() == before


def test_a_backup_is_taken_while_the_store_is_written(tmp_path):
    rig = Rig()
    store = Store(tmp_path / "state")
    rig.feed(stream()[:500])
    store.commit(rig.engine.changes())
    rig.engine.confirm()
    copy_store(store.path, tmp_path / "copy.sqlite")
    view = rig.engine.view()
    rig.feed(stream()[500:])
    store.commit(rig.engine.changes())
    store.close()
    (tmp_path / "restored").mkdir()
    shutil.copy(tmp_path / "copy.sqlite", tmp_path / "restored" / FILE)
    resumed(rig, tmp_path / "restored")
    assert rig.engine.view() == view


def test_a_backup_of_nothing_is_an_error(tmp_path):
    with pytest.raises(StoreError, match="there is no store"):
        copy_store(tmp_path / FILE, tmp_path / "copy")


def test_the_codec_keeps_types_shapes_and_bytes():
    state = {
        "a": np.arange(6, dtype=np.int32).reshape(2, 3),
        "b": np.array([True, False]),
        "c": [1, 2.5, None, "x", float("-inf"), np.float64(3.0)],
        "d": np.zeros((0, 2)),
    }
    back = unpack(pack(state))
    assert back["a"].dtype == np.int32
    assert back["a"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert back["b"].dtype == bool
    assert back["c"] == [1, 2.5, None, "x", float("-inf"), 3.0]
    assert back["d"].shape == (0, 2)
    assert pack(back) == pack(state)


def test_the_codec_refuses_what_it_cannot_keep():
    with pytest.raises(TypeError, match="state holds a object"):
        pack({"x": object()})
    with pytest.raises(TypeError, match="an array of Python objects"):
        pack({"x": np.array([object()])})
    with pytest.raises(ValueError, match="a stored state cannot be read"):
        unpack(b"\xc1")
