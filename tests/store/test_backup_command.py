from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from monitor.base.errors import ConfigError, StoreError
from monitor.cli.state import back_up
from monitor.store import Store
from monitor.store.store import FILE, copy_store

CONFIG = "tasks: {t: {classes: [ok, bad]}}\n"


def test_a_backup_is_a_whole_store(tmp_path):
    (tmp_path / "c.yaml").write_text(CONFIG + "store: {path: state}\n")
    store = Store(tmp_path / "state")
    said = back_up(str(tmp_path / "c.yaml"), tmp_path / "copy")
    store.close()
    assert said.endswith(
        "copy: the store as of its last checkpoint. To restore it, put it back as blindsight.sqlite."
    )
    connection = sqlite3.connect(tmp_path / "copy")
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


def test_who_reads_a_backup_leaves_nothing_beside_it(tmp_path):
    Store(tmp_path / "state").close()
    (tmp_path / "kept").mkdir()
    copy_store(tmp_path / "state" / FILE, tmp_path / "kept" / "copy")
    with closing(sqlite3.connect(f"file:{tmp_path / 'kept' / 'copy'}?mode=ro", uri=True)) as reader:
        assert reader.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] > 0
        assert [path.name for path in (tmp_path / "kept").iterdir()] == ["copy"]
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["copy"]


def test_what_cannot_be_backed_up_is_said(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(CONFIG)
    with pytest.raises(ConfigError, match="store: there is none in this configuration"):
        back_up(str(path), tmp_path / "copy")
    path.write_text(CONFIG + "store: {path: state}\n")
    with pytest.raises(StoreError, match="there is no store"):
        back_up(str(path), tmp_path / "copy")
    with pytest.raises(ConfigError, match="exists already; give a new file"):
        back_up(str(path), path)
