"""The store's files stay within what is configured, however long and however slowly a stream runs."""

from __future__ import annotations

import itertools

import msgspec
import numpy as np

from monitor.base.state_changes import assembled
from monitor.store import Store
from monitor.store.store import FILE
from tests.plain_state import same
from tests.streams import Rig, answers, task


def pieces(store: Store, table: str = "ring_rows") -> int:
    return store._connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]


def assert_same(store: Store, rig: Rig) -> None:
    saved = store.load()
    again = rig.settings.build(assembled(saved.parts, saved.rings))
    assert again.view() == rig.engine.view()
    assert same(*(each.snapshot().tasks["t"].join for each in (again, rig.engine)))


def test_a_slow_stream_leaves_no_piece_a_row(tmp_path):
    rig, store = Rig(task(labels={"max_answers": 1000})), Store(tmp_path)
    records = answers(np.random.default_rng(0), 1100)
    most = 0
    for i, rows in enumerate([records[:700], *([record] for record in records[700:])]):
        reports = rig.feed(rows)
        store.commit(rig.engine.changes(), reports)
        rig.engine.confirm()
        most = max(most, pieces(store))
        if i % 150 == 77:
            assert_same(store, rig)
    assert most <= 100, "pieces of an eighth of the ring as it was then, and of 2, 4, 8, … rows"
    assert_same(store, rig)
    store.close()


def test_labels_that_contradict_each_other_for_ever_do_not_fill_the_disk(tmp_path):
    rig, store = Rig(), Store(tmp_path)
    rows = answers(np.random.default_rng(0), 1000)
    rig.feed(rows)
    sizes = []
    labels = [
        [msgspec.json.encode({"id": row["id"], "label": label, "time": row["time"]}) for row in rows]
        for label in ("ok", "bad")
    ]
    for i in range(200):
        rig.feed(labels[i % 2])
        store.commit(rig.engine.changes())
        rig.engine.confirm()
        found = store._connection.execute(
            "SELECT coalesce(sum(length(rows)), 0) FROM ring_changes"
        ).fetchone()
        sizes.append(found[0])
    assert max(sizes) < 5 << 20, "of each ring twice its rows, and two spare MiB"
    assert sum(after < before for before, after in itertools.pairwise(sizes)) > 3, "it was folded"
    assert_same(store, rig)
    store.close()


def test_files_stop_growing_and_give_the_log_back(tmp_path):
    """Rings, lines and changes wrap fifty times; a reader in the way lets the log grow only meanwhile."""
    rig = Rig(task(labels={"max_answers": 1000, "max_waiting": 1000}))
    store = Store(tmp_path, keep_reports=20)
    log, sizes = tmp_path / f"{FILE}-wal", []
    for i in range(190):
        rows = answers(np.random.default_rng(i), 500, start=1.7e9 + 1000 * i)
        rows += [{"id": row["id"], "label": "ok", "time": row["time"]} for row in rows[::5]]
        reports = rig.feed(rows)
        if i == 70:
            assert log.stat().st_size <= 16 << 20
            assert sizes[-1] <= 1.1 * sizes[40]
            held = store._connection.__class__(store.path)
            held.execute("BEGIN")
            held.execute("SELECT count(*) FROM report").fetchone()
        store.commit(rig.engine.changes(), reports)
        rig.engine.confirm()
        if i == 175:
            assert log.stat().st_size > 16 << 20, "the reader held it"
            held.close()
        sizes.append(store.path.stat().st_size)
    assert log.stat().st_size <= 16 << 20
    assert sizes[-1] <= 1.1 * sizes[40]
    store.close()
