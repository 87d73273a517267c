"""The promises of every store, wherever its tables are: in a folder, and in PostgreSQL."""

from __future__ import annotations

import itertools
import json
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np
import pytest

from monitor.agent.resume import restore_marks
from monitor.base.codec import plain
from monitor.base.errors import InUseError, MissingExtraError, StoreAwayError, StoreError
from monitor.base.records import id_keys
from monitor.base.state_changes import Changes, assemble
from monitor.reports.views import AgentView
from monitor.store import StateStore, Store
from monitor.store.database import Database, SqlConnection
from monitor.store.history import StoreHistory, newest_lines
from monitor.store.postgres import PostgresConnection, PostgresDatabase, PostgresStore
from monitor.store.schema import MIGRATIONS, VERSION
from monitor.store.store import FILE, copy_store
from tests.accounting import assert_adds_up
from tests.engine.test_engine import stream as records_of
from tests.numbers import as_numbers, rig_of_numbers
from tests.plain_state import same
from tests.services.postgres_server import PASSWORD, PostgresServer
from tests.streams import Record, Rig, answers, lines, task

KINDS = ("classification", "regression")
IDS = ["erm-1700000000-3", "erm-1700000000-50", "early-1", "absent"]
DAMAGED = r"is damaged \(.*\); (put a backup in its place|restore a backup), or "
BLOBS = {"part": "state", "ring_rows": "rows", "ring_changes": "rows"}


class Place(Protocol):
    """Somewhere to keep a store."""

    def open(self, name: str = "store", keep_reports: int = 100_000) -> StateStore:
        """Return a store of this name; it is made if absent."""

    def where(self) -> Path | Database:
        """Return the place that its readers are given."""

    def run(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """Change the store behind its back."""

    def holds(self, name: str) -> bool:
        """Return whether the key of this id is anywhere in it."""

    def back_up_and_restore(self) -> None:
        """Put a backup in the place of the store."""


class FolderPlace:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def open(self, name: str = "store", keep_reports: int = 100_000) -> StateStore:
        return Store(self._folder / name, keep_reports)

    def where(self) -> Path:
        return self._folder / "store" / FILE

    def run(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        with closing(sqlite3.connect(self.where())) as connection, connection:
            return connection.execute(statement, values).fetchall()

    def holds(self, name: str) -> bool:
        key = id_keys([name])[0].tobytes()
        return any(key in path.read_bytes() for path in self.where().parent.iterdir())

    def back_up_and_restore(self) -> None:
        copy = self._folder / "copy"
        copy_store(self.where(), copy)
        shutil.rmtree(self.where().parent)
        self.where().parent.mkdir()
        copy.rename(self.where())


class PostgresPlace:
    _numbers = itertools.count()

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._dsn, self._prefix = server.dsn, f"store{next(self._numbers)}"

    def open(self, name: str = "store", keep_reports: int = 100_000) -> StateStore:
        return PostgresStore(self.where(name), keep_reports)

    def where(self, name: str = "store") -> PostgresDatabase:
        return PostgresDatabase(self._dsn, f"{self._prefix}_{name}")

    def run(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        with closing(PostgresConnection(self.where())) as connection:
            rows = connection.execute(statement, values)
            return rows.fetchall() if statement.startswith("SELECT") else []

    def holds(self, name: str) -> bool:
        key = id_keys([name])[0].tobytes()
        blobs = [self.run(f"SELECT {column} FROM {table}") for table, column in BLOBS.items()]
        return any(key in blob for rows in blobs for (blob,) in rows)

    def back_up_and_restore(self) -> None:
        schema = f"{self._prefix}_store"
        with tempfile.TemporaryDirectory() as folder:
            self._server.dump(schema, Path(folder, "copy"))
            self._server.execute(f"DROP SCHEMA {schema} CASCADE")
            self._server.restore(Path(folder, "copy"))


@pytest.fixture(params=["folder", pytest.param("postgres", marks=pytest.mark.postgres)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "folder":
        return FolderPlace(tmp_path)
    return PostgresPlace(request.getfixturevalue("postgres_server"))


def resumed(rig: Rig, place: Place) -> None:
    """Go on as a new process would: from the store alone."""
    store = place.open()
    rig.engine = loaded(store, rig).engine
    store.close()


def rows_of(store: StateStore, after: int = 0) -> list[tuple[int, bytes]]:
    with closing(store.reader()) as reader:
        return reader.reports_after(after, 100_000)


def newest_report(store: StateStore) -> int:
    with closing(store.reader()) as reader:
        return reader.newest_report()


def save(store: StateStore, rig: Rig, records: list) -> None:
    reports = rig.feed(records)
    store.commit(rig.engine.changes(), reports)
    rig.engine.confirm()


@pytest.mark.slow
@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_an_engine_resumed_from_checkpoints_goes_on_as_if_nothing_had_happened(place, every, small, kind):
    labels = {"max_answers": 1000, "max_waiting": 1000} if small else {}
    records = records_of(n=1200) + answers(np.random.default_rng(3), 300, "new", groups={"region": "eu"})
    if kind == "regression":
        records = as_numbers(records)
        whole, killed = (rig_of_numbers(labels=labels, groups=["region"]) for _ in range(2))
    else:
        settings = task(labels=labels, groups=["region"], reference={"first_windows": 5})
        whole, killed = Rig(settings), Rig(settings)
    expected, saved, unsaved = [], [], []
    for number, start in enumerate(range(0, len(records), 100)):
        piece = records[start : start + 100]
        expected += whole.feed(piece)
        store = place.open()
        unsaved += killed.feed(piece)
        if number % every == every - 1:
            store.commit(killed.engine.changes(), unsaved)
            saved, unsaved = saved + unsaved, []
            killed.engine.confirm()
            store.close()
            resumed(killed, place)
        else:
            store.close()
    assert lines(saved + unsaved + killed.engine.finish()) == lines(expected + whole.engine.finish())
    assert any(report.revision > 0 for report in expected)
    assert killed.engine.view() == whole.engine.view()
    assert killed.engine.labelled() == whole.engine.labelled()


@pytest.mark.slow
def test_what_could_not_be_saved_is_given_again(place):
    rig, whole = Rig(), Rig()
    records = records_of()
    store = place.open()
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
    resumed(rig, place)
    assert rig.engine.view() == whole.engine.view()
    np.testing.assert_equal(plain(rig.engine.snapshot()), plain(whole.engine.snapshot()))


@pytest.mark.slow
def test_the_disk_is_bounded_by_the_rings_and_by_keep_reports(place):
    rig = Rig(task(labels={"max_answers": 1000}))
    store = place.open(keep_reports=20)
    for i in range(60):
        reports = rig.feed(answers(np.random.default_rng(i), 500, start=1.7e9 + 1000 * i))
        newest = store.commit(rig.engine.changes(), reports, {"reports": (5 * i, 0)})
        rig.engine.confirm()
    assert newest == 300
    kept = [number for number, _ in rows_of(store)]
    assert kept == list(range(281, 301))
    rows = store._connection.execute("SELECT sum(count) FROM ring_rows").fetchone()[0]
    assert rows <= 1500  # the ring, and what is left of its oldest piece
    store.close()


def test_reports_that_a_sink_does_not_have_yet_are_kept_longer(place):
    rig = Rig()
    store = place.open(keep_reports=1)
    reports = rig.feed(answers(np.random.default_rng(0), 500))
    store.commit(rig.engine.changes(), reports, {"reports": (2, 77), "reports.kafka/w-0": (4, 9)})
    assert [number for number, _ in rows_of(store)] == [3, 4, 5]
    assert store.marks() == {"reports": (2, 77), "reports.kafka/w-0": (4, 9)}
    rig.engine.confirm()
    store.commit(rig.engine.changes(), [], {"reports": (5, 100), "reports.kafka/w-0": (5, 10)})
    assert [number for number, _ in rows_of(store)] == [5]
    assert newest_report(store) == 5
    store.close()


@pytest.mark.slow
def test_what_waits_for_a_sink_that_is_away_is_bounded(place):
    rig = Rig()
    store = place.open(keep_reports=1)
    (report,) = rig.feed(answers(np.random.default_rng(0), 100))
    changes = rig.engine.changes()
    for _ in range(3):
        store.commit(changes, [report] * 10_000, {"reports": (0, 0)})
    rows = rows_of(store)
    assert (rows[0][0], rows[-1][0]) == (10_001, 30_000)
    store.close()


def test_a_store_has_an_identity_of_its_own_for_good(place):
    first, other = place.open("a"), place.open("b")
    identity = first.identity
    assert identity == first.identity != other.identity
    first.close()
    other.close()
    again = place.open("a")
    assert again.identity == identity
    again.close()


def test_forgotten_pieces_are_gone(place):
    rig = Rig({"a": task(), "b": task()})
    rng = np.random.default_rng(0)
    rig.feed(answers(rng, 10, task="a") + answers(rng, 10, task="b"))
    store = place.open()
    store.commit(rig.engine.changes())
    saved = store.load()
    store.forget(pieces := [name for name in (*saved.parts, *saved.rings) if name.endswith("/a")])
    assert len(pieces) == 4
    left = store.load()
    assert set(left.parts) == {"engine", "task/b", "revisions/b", "series/0/b"}
    assert set(left.rings) == {"answers/b"}
    store.close()


def test_an_empty_change_is_a_checkpoint_too(place):
    store = place.open()
    assert store.commit(Changes()) == 0
    saved = store.load()
    assert assemble(saved.parts, saved.rings) is None
    store.close()


@pytest.mark.parametrize("table", ["part", "ring_rows", "ring_changes"])
def test_other_bytes_in_a_state_are_refused(place, table):
    """A flipped bit within a blob leaves the database's own check content."""
    rig, store = Rig(task(labels={"max_answers": 1000})), place.open()
    for start in range(0, 600, 200):
        save(store, rig, records_of()[start : start + 200])
    store.close()
    column, key = ("state", "name") if table == "part" else ("rows", "ring")
    ((name, blob), *_) = place.run(f"SELECT {key}, {column} FROM {table} ORDER BY 1 DESC")
    middle = len(blob) // 2
    wrong = blob[:middle] + bytes([blob[middle] ^ 128]) + blob[middle + 1 :]
    place.run(f"UPDATE {table} SET {column} = ? WHERE {key} = ? AND {column} = ?", (wrong, name, blob))
    store = place.open()
    with pytest.raises(StoreError, match=DAMAGED):
        store.load()
    store.close()


def test_a_piece_of_a_ring_that_is_missing_is_refused(place):
    rig, store = Rig(), place.open()
    for i in range(3):
        save(store, rig, answers(np.random.default_rng(i), 100 * (3 - i), start=1.7e9 + 1000 * i))
    store.close()
    place.run("DELETE FROM ring_rows WHERE first = 300")
    store = place.open()
    with pytest.raises(StoreError, match=r"answers/t: rows 300 to 500 are missing, or there twice\); "):
        store.load()
    store.close()


def test_forgetting_a_task_leaves_one_whose_name_begins_so(place):
    rig = Rig({"tox": task(), "toxicity": task()})
    rng = np.random.default_rng(0)
    rig.feed(answers(rng, 10, task="tox") + answers(rng, 10, task="toxicity"))
    store = place.open()
    store.commit(rig.engine.changes())
    saved = store.load()
    store.forget([name for name in (*saved.parts, *saved.rings) if name.endswith("/tox")])
    left = store.load()
    assert set(left.parts) == {"engine", "task/toxicity", "revisions/toxicity", "series/0/toxicity"}
    assert set(left.rings) == {"answers/toxicity"}
    store.close()


def test_a_line_of_a_window_that_is_none_any_more_is_refused_at_the_start(place):
    rig, store = Rig(), place.open()
    save(store, rig, answers(np.random.default_rng(0), 250))
    store.close()
    ((line,),) = place.run("SELECT line FROM report WHERE id = 1")
    place.run("UPDATE report SET line = ? WHERE id = 1", (line[:50],))
    store = place.open()
    with pytest.raises(StoreError, match=r"is damaged \(window 0 of t, erm: .*\); "):
        store.load()
    store.close()


def stream() -> list[Record]:
    rows = answers(np.random.default_rng(1), 60)
    labels = [{"id": row["id"], "label": "ok", "time": row["time"] + 90} for row in rows[::2]]
    corrected = [{"id": rows[50]["id"], "label": "bad", "time": rows[50]["time"] + 95}]
    named = [{"id": "early-1", "model": "erm", "label": "ok", "time": 1.7e9}]
    return [*rows, *labels, *corrected, *named, {"id": "early-2", "label": "ok", "time": 1.7e9}]


def loaded(store: StateStore, rig: Rig) -> Rig:
    """Return an engine from what the store holds."""
    from monitor.base.state_changes import assemble

    saved = store.load()
    other = Rig(rig.settings.tasks, rig.settings.references)
    other.engine = rig.settings.build(assemble(saved.parts, saved.rings))
    return other


@pytest.mark.parametrize("steps", [1, 7, 40])
@pytest.mark.parametrize("saved_before", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_what_was_forgotten_is_as_if_it_had_never_been_kept(
    place: Place, steps: int, saved_before: bool, kind: str
) -> None:
    store = place.open()
    rig, convert = (rig_of_numbers(), as_numbers) if kind == "regression" else (Rig(task()), list)
    records = convert(stream())
    for start in range(0, len(records), steps):
        rig.feed(records[start : start + steps])
        if saved_before:
            store.commit(rig.engine.changes())
            rig.engine.confirm()
    forgotten = rig.engine.forget(id_keys(IDS))
    assert (forgotten.answers, forgotten.labels, forgotten.waiting) == (2, 2, 1)
    first = rig.engine.changes()
    rig.engine.retract()  # the disk was full; it is given again
    again = rig.engine.changes()
    assert [ring.wiped is not None for ring in again.rings] == [
        ring.wiped is not None for ring in first.rings
    ]
    store.commit(again)
    rig.engine.confirm()
    assert not any(place.holds(name) for name in IDS)
    assert place.holds("early-2")
    other = loaded(store, rig)
    assert other.engine.view() == rig.engine.view()
    assert_adds_up(AgentView(engine=other.engine.view()))
    for one in (rig, other):
        late = {"id": IDS[1], "label": "ok", "time": 1.7e9 + 200}
        one.feed([records[3], records[4], *convert([late])])
        (series,) = one.engine.view().series
        assert series.duplicates == 1, "of the one that is still known"
        assert one.engine.view().labels_waiting == {"t": 2}, "early-2, and a label whose answer is gone"
        assert_adds_up(AgentView(engine=one.engine.view()))
    assert other.engine.view() == rig.engine.view()
    store.close()


def test_an_earlier_use_of_an_id_goes_too(place: Place) -> None:
    rig, store = Rig(task(labels={"horizon_days": 1})), place.open()
    for day in (0, 30):
        rig.feed([{"id": "again", "model": "erm", "scores": [0.5, 0.5], "time": 1.7e9 + day * 86_400}])
        rig.feed([{"id": "again", "label": "ok", "time": 1.7e9 + day * 86_400}])
        store.commit(rig.engine.changes())
        rig.engine.confirm()
    assert place.holds("again")
    forgotten = rig.engine.forget(id_keys(["again"]), "t")
    assert (forgotten.answers, forgotten.labels) == (1, 1)
    store.commit(rig.engine.changes())
    assert not place.holds("again")
    pieces = store.load().rings["answers/t"]
    assert not pieces.keys.any()
    assert not pieces.columns["time"].any()
    store.close()


def test_nothing_to_forget_changes_nothing(place: Place) -> None:
    rig, store = Rig(task()), place.open()
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


def pieces(store: StateStore, table: str = "ring_rows") -> int:
    return store._connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]


def assert_same(store: StateStore, rig: Rig) -> None:
    saved = store.load()
    again = rig.settings.build(assemble(saved.parts, saved.rings))
    assert again.view() == rig.engine.view()
    assert same(*(each.snapshot().tasks["t"].join for each in (again, rig.engine)))


@pytest.mark.slow
def test_a_slow_stream_leaves_no_piece_a_row(place):
    rig, store = Rig(task(labels={"max_answers": 1000})), place.open()
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


@pytest.mark.slow
def test_labels_that_contradict_each_other_for_ever_do_not_fill_the_disk(place):
    rig, store = Rig(), place.open()
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
        size = store._connection.execute("SELECT coalesce(sum(length(rows)), 0) FROM ring_changes").fetchone()
        sizes.append(size[0])
    assert max(sizes) < 5 << 20, "of each ring twice its rows, and two spare MiB"
    assert sum(after < before for before, after in itertools.pairwise(sizes)) > 3, "it was folded"
    assert_same(store, rig)
    store.close()


def test_a_second_agent_is_refused_by_name(place: Place) -> None:
    store = place.open()
    with pytest.raises(InUseError, match=r"is in use by another agent \(.*process \d+.*\); stop it, or"):
        place.open()
    store.close()
    place.open().close()


def test_a_store_of_a_newer_version_is_refused(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as newer:
        newer.setattr("monitor.store.schema.VERSION", VERSION + 1)
        place.open().close()
    message = rf"was written by a newer Blindsight \(store version {VERSION + 1}, this one knows {VERSION}\)"
    with pytest.raises(StoreError, match=message):
        place.open()
    with pytest.raises(StoreError, match="is not a store, or belongs to a newer Blindsight"):
        StoreHistory(place.where())


def test_a_migration_is_done_once_and_whole_or_not_at_all(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig, store = Rig(), place.open()
    save(store, rig, records_of())
    store.close()
    done: list[int] = []

    def half(connection: SqlConnection) -> None:
        connection.execute("DELETE FROM part")
        raise StoreError("no further")

    def whole(connection: SqlConnection) -> None:
        connection.execute("UPDATE meta SET value = 'migrated' WHERE key = 'identity'")
        done.append(1)

    monkeypatch.setattr("monitor.store.schema.VERSION", VERSION + 1)
    monkeypatch.setitem(MIGRATIONS, VERSION, half)
    with pytest.raises(StoreError, match="no further"):
        place.open()
    monkeypatch.setitem(MIGRATIONS, VERSION, whole)
    for _ in range(2):
        store = place.open()
        assert loaded(store, rig).engine.view() == rig.engine.view()
        store.close()
    assert done == [1]


def test_what_fails_within_a_checkpoint_leaves_nothing_of_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig, store = Rig(), place.open()
    records = records_of()
    save(store, rig, records[:400])
    before = rig.engine.view()
    reports = rig.feed(records[400:])
    changes = rig.engine.changes()
    with monkeypatch.context() as broken:
        broken.setattr(store, "_before_commit", lambda: place.run("SELECT * FROM nowhere"))
        with pytest.raises(StoreError, match="nowhere"):
            store.commit(changes, reports, {"reports": (1, 2)}, config="{}")
    assert loaded(store, rig).engine.view() == before
    assert (store.marks(), store.load().config) == ({}, "")
    store.commit(changes, reports)
    rig.engine.confirm()
    assert loaded(store, rig).engine.view() == rig.engine.view()
    numbers = [number for number, _ in rows_of(store)]
    assert numbers == list(range(1, len(numbers) + 1)), "what was taken back leaves no gap"
    store.close()


def test_the_history_is_read_while_the_store_is_written(place: Place) -> None:
    rig, store = Rig(), place.open()
    reports = rig.feed(records_of())
    section = {"chart": {"estimator": "ssme", "shared": True}, "window": {"max_age_seconds": 60.0}}
    tasks = {"t": section, "chat": {"kind": "arena"}, "old": {"chart": {}}}
    store.commit(rig.engine.changes(), reports, config=json.dumps({"tasks": tasks}))
    written = lines(reports)
    with closing(StoreHistory(place.where())) as history:
        assert list(history.reports()) == written
        windows = [(line.model, line.window, line.revision) for line in history.windows()]
        assert sorted(windows) == sorted(newest(reports))
        assert (history.count_windows_of_tasks(), history.judged_estimators()) == (0, {"t": "ssme"})
        assert history.shared_seconds() == {"t": 180.0}
        assert set(history.calibrations()) == {("t", "erm", ""), ("t", "irm", "")}
    shown = newest_lines(place.where(), ("t", "erm", ""), 2)
    assert [msgspec.json.decode(line)["window"] for line in shown] == sorted(
        {w for m, w, _ in windows if m == "erm"}
    )[-2:]
    store.close()


def newest(reports: list) -> list[tuple[str, int, int]]:
    """Return each window in its newest revision."""
    revisions: dict[tuple[str, int], int] = {}
    for report in reports:
        key = report.model, report.window
        revisions[key] = max(report.revision, revisions.get(key, 0))
    return [(*key, revision) for key, revision in revisions.items()]


def test_a_restored_store_tells_its_sinks_once(place: Place) -> None:
    rig, store = Rig(), place.open()
    save(store, rig, records_of())
    identity, lines_before = store.identity, newest_report(store)
    store.close()
    place.back_up_and_restore()
    store = place.open()
    saved = store.load()
    assert saved.backup_time.endswith("Z")
    store.mark_restore(restore_marks(saved))
    assert store.identity.partition(".")[0] == identity
    assert store.identity != identity
    marks = rows_of(store, lines_before)
    assert [number for number, _ in marks] == [lines_before + 1, lines_before + 2]
    assert {msgspec.json.decode(line)["kind"] for _, line in marks} == {"restore"}
    store.close()
    again = place.open()
    assert again.load().backup_time == ""
    again.close()


def test_without_the_extra_the_pip_line_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        MissingExtraError, match=r"store\.postgres needs an optional package: pip install 'blind"
    ):
        PostgresDatabase("postgresql://db/m", "one")


@pytest.mark.parametrize(
    ("address", "kind", "message"),
    [
        (
            "nonsense",
            StoreError,
            "no address of PostgreSQL; give one such as postgresql://agent@db/monitoring",
        ),
        (
            "host=127.0.0.1 port=1",
            StoreAwayError,
            "PostgreSQL at 127.0.0.1:1/, schema one, cannot be opened: ",
        ),
        (
            "host=127.0.0.1 port={port} user=owner dbname=nowhere",
            StoreError,
            'database "nowhere" does not exist; create it, or correct store.postgres',
        ),
        (
            "host=127.0.0.1 port={port} user=reader dbname=postgres",
            StoreError,
            "no password supplied; give store.password_file, or PGPASSWORD in the environment",
        ),
    ],
)
def test_a_database_that_cannot_be_used_is_said_with_the_remedy(
    postgres_server: PostgresServer, address: str, kind: type[StoreError], message: str
) -> None:
    with pytest.raises(StoreError) as refused:
        PostgresStore(PostgresDatabase(address.format(port=postgres_server.port), "one"))
    assert type(refused.value) is kind
    assert message in str(refused.value)


def test_a_password_comes_from_a_file_or_the_environment_and_is_shown_nowhere(
    postgres_server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgres_server.execute("CREATE SCHEMA secret AUTHORIZATION reader")
    address = f"postgresql://reader@127.0.0.1:{postgres_server.port}/postgres"
    file = tmp_path / "password"
    file.write_text("wrong-secret\n")
    with pytest.raises(
        StoreError, match=r"check the user in store\.postgres, and store\.password_file"
    ) as refused:
        PostgresStore(PostgresDatabase(address, "secret", str(file)))
    assert "wrong-secret" not in str(refused.value)
    file.write_text(f"{PASSWORD}\n")
    PostgresStore(PostgresDatabase(address, "secret", str(file))).close()
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    PostgresStore(PostgresDatabase(address, "secret")).close()
    with pytest.raises(
        StoreError, match=r"permission denied .*; let the user create and own the schema other"
    ):
        PostgresStore(PostgresDatabase(address, "other"))


def test_tables_of_another_program_are_left_alone_and_lost_ones_are_told(
    postgres_server: PostgresServer,
) -> None:
    postgres_server.execute("CREATE SCHEMA foreign_one")
    postgres_server.execute("CREATE TABLE foreign_one.mine (x integer)")
    message = "schema foreign_one, has tables of another program; give another store.prefix"
    with pytest.raises(StoreError, match=message):
        PostgresStore(PostgresDatabase(postgres_server.dsn, "foreign_one"))
    store = PostgresStore(PostgresDatabase(postgres_server.dsn, "dropped"))
    postgres_server.execute("DROP SCHEMA dropped CASCADE")
    with pytest.raises(StoreError, match="its tables are gone: restore a backup, or restart to start afresh"):
        store.commit(Changes())
    store.close()
