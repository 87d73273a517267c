"""Going back to an older version, as docs/upgrade.md says: its own store is refused, a backup goes on."""

from __future__ import annotations

import gzip
import shutil
import sqlite3
from pathlib import Path

import pytest

from monitor.agent.resume import resume
from monitor.base.errors import StoreError
from monitor.store import Store
from monitor.store.schema import VERSION
from monitor.store.store import FILE
from tests.store.kept.make_store import CUT, records, settings
from tests.streams import Rig, lines

KEPT = Path(__file__).parent / "kept" / "v1" / f"{FILE}.gz"


def put(folder: Path, content: Path) -> Path:
    folder.mkdir()
    shutil.copyfile(content, folder / FILE)
    return folder


def test_a_store_of_a_newer_version_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    Store(tmp_path / "new").close()
    file = tmp_path / "new" / FILE
    connection = sqlite3.connect(file)
    connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    connection.commit()
    connection.close()
    before = file.read_bytes()
    with pytest.raises(StoreError, match=r"was written by a newer Blindsight .* install that version"):
        Store(tmp_path / "new")
    assert file.read_bytes() == before


def test_an_upgrade_can_be_undone_with_the_copy_from_before_and_made_again(tmp_path: Path) -> None:
    copy = tmp_path / "before-upgrade.sqlite"
    with gzip.open(KEPT) as source, copy.open("wb") as target:
        shutil.copyfileobj(source, target)
    rest = records()[CUT:]
    written = []
    for name in ("upgraded", "again"):  # the second one stands where somebody went back and upgraded anew
        store = Store(put(tmp_path / name, copy))
        rig = Rig(settings())
        rig.engine, rig.offset = resume(rig.settings, store.load()).engine, CUT
        store.close()
        written.append(lines(rig.feed(rest) + rig.engine.finish()))
    assert written[0] == written[1] != []
    connection = sqlite3.connect(copy)
    assert connection.execute("PRAGMA user_version").fetchone() == (1,)  # what the older version opens
    connection.close()
