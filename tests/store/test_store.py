from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from monitor.base.codec import pack, plain, unpack
from monitor.base.errors import StoreError
from monitor.base.state_changes import Changes, assembled
from monitor.store import Store, StoreReader
from monitor.store.schema import APPLICATION_ID, VERSION
from monitor.store.store import FILE, copy_store
from tests.engine.test_engine import stream
from tests.streams import Rig, answers, lines, task


def resumed(rig: Rig, folder: Path) -> None:
    """Go on as a new process would: from the store alone."""
    store = Store(folder)
    saved = store.load()
    rig.engine = rig.settings.build(assembled(saved.parts, saved.rings))
    store.close()


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("small", [False, True])
def test_an_engine_resumed_from_checkpoints_goes_on_as_if_nothing_had_happened(tmp_path, every, small):
    labels = {"max_answers": 1000, "max_waiting": 1000} if small else {}
    settings = task(labels=labels, groups=["region"], reference={"first_windows": 5})
    records = stream(n=1200) + answers(np.random.default_rng(3), 300, "new", groups={"region": "eu"})
    whole, killed = Rig(settings), Rig(settings)
    expected, found, unsaved = [], [], []
    for number, start in enumerate(range(0, len(records), 100)):
        piece = records[start : start + 100]
        expected += whole.feed(piece)
        store = Store(tmp_path)
        unsaved += killed.feed(piece)
        if number % every == every - 1:
            store.commit(killed.engine.changes(), unsaved)
            found, unsaved = found + unsaved, []
            killed.engine.confirm()
            store.close()
            resumed(killed, tmp_path)
        else:
            store.close()
    assert lines(found + unsaved + killed.engine.finish()) == lines(expected + whole.engine.finish())
    assert any(report.revision > 0 for report in expected)
    assert killed.engine.view() == whole.engine.view()
    assert killed.engine.labelled() == whole.engine.labelled()


def test_what_could_not_be_saved_is_given_again(tmp_path):
    rig, whole = Rig(), Rig()
    records = stream()
    store = Store(tmp_path)
    reports = []
    for start in range(0, len(records), 200):
        reports += rig.feed(records[start : start + 200])
        whole.feed(records[start : start + 200])
        changes = rig.engine.changes()
        if start % 400:
            store.commit(changes, reports)
            rig.engine.confirm()
            reports = []
        else:
            rig.engine.retract()
    store.commit(rig.engine.changes(), reports)
    rig.engine.confirm()
    store.close()
    resumed(rig, tmp_path)
    assert rig.engine.view() == whole.engine.view()
    np.testing.assert_equal(plain(rig.engine.snapshot()), plain(whole.engine.snapshot()))


def test_only_what_changed_is_written(tmp_path):
    rig = Rig()
    rig.feed(answers(np.random.default_rng(0), 150, "a") + answers(np.random.default_rng(1), 150, "b"))
    rig.engine.changes()
    rig.engine.confirm()
    rig.feed(answers(np.random.default_rng(2), 10, "b", start=1.71e9))
    changes = rig.engine.changes()
    assert set(changes.parts) == {"engine", "task/t", "series/1/t"}
    assert {ring.name: len(ring.added.keys) for ring in changes.rings} == {"answers/t": 10}


def test_the_disk_is_bounded_by_the_rings_and_by_keep_reports(tmp_path):
    rig = Rig(task(labels={"max_answers": 1000}))
    store = Store(tmp_path, keep_reports=20)
    sizes = []
    for i in range(60):
        reports = rig.feed(answers(np.random.default_rng(i), 500, start=1.7e9 + 1000 * i))
        newest = store.commit(rig.engine.changes(), reports, {"reports": (5 * i, 0)})
        rig.engine.confirm()
        sizes.append(store.path.stat().st_size)
    assert newest == 300
    kept = [number for number, _ in StoreReader(store.path).reports_after(0, 1000)]
    assert kept == list(range(281, 301))
    rows = store._connection.execute("SELECT sum(count) FROM ring_rows").fetchone()[0]
    assert rows <= 1500  # the ring, and what is left of its oldest piece
    store.close()


def test_reports_that_a_sink_does_not_have_yet_are_kept_longer(tmp_path):
    rig = Rig()
    store = Store(tmp_path, keep_reports=1)
    reports = rig.feed(answers(np.random.default_rng(0), 500))
    store.commit(rig.engine.changes(), reports, {"reports": (2, 77), "reports.kafka/w-0": (4, 9)})
    assert [number for number, _ in StoreReader(store.path).reports_after(0, 10)] == [3, 4, 5]
    assert store.marks() == {"reports": (2, 77), "reports.kafka/w-0": (4, 9)}
    rig.engine.confirm()
    store.commit(rig.engine.changes(), [], {"reports": (5, 100), "reports.kafka/w-0": (5, 10)})
    assert [number for number, _ in StoreReader(store.path).reports_after(0, 10)] == [5]
    assert StoreReader(store.path).newest_report() == 5
    store.close()


def test_what_waits_for_a_sink_that_is_away_is_bounded(tmp_path):
    rig = Rig()
    store = Store(tmp_path, keep_reports=1)
    (report,) = rig.feed(answers(np.random.default_rng(0), 100))
    changes = rig.engine.changes()
    for _ in range(3):
        store.commit(changes, [report] * 10_000, {"reports": (0, 0)})
    rows = StoreReader(store.path).reports_after(0, 100_000)
    assert (rows[0][0], rows[-1][0]) == (10_001, 30_000)
    store.close()


def test_a_store_has_an_identity_of_its_own_for_good(tmp_path):
    first, other = Store(tmp_path / "a"), Store(tmp_path / "b")
    identity = first.identity
    assert identity == first.identity != other.identity
    first.close()
    other.close()
    again = Store(tmp_path / "a")
    assert again.identity == identity
    again.close()


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


def test_forgotten_pieces_are_gone(tmp_path):
    rig = Rig({"a": task(), "b": task()})
    rng = np.random.default_rng(0)
    rig.feed(answers(rng, 10, task="a") + answers(rng, 10, task="b"))
    store = Store(tmp_path)
    store.commit(rig.engine.changes())
    saved = store.load()
    store.forget(pieces := [name for name in (*saved.parts, *saved.rings) if name.endswith("/a")])
    assert len(pieces) == 4
    left = store.load()
    assert set(left.parts) == {"engine", "task/b", "revisions/b", "series/0/b"}
    assert set(left.rings) == {"answers/b"}
    store.close()


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


def test_an_empty_change_is_a_checkpoint_too(tmp_path):
    store = Store(tmp_path)
    assert store.commit(Changes()) == 0
    saved = store.load()
    assert assembled(saved.parts, saved.rings) is None
    assert store._connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    store.close()
