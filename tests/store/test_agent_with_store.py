"""The agent by way of the store, with the public test kit: crash markers, a hand-moved list, real files."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import closing
from pathlib import Path

import msgspec
import numpy as np
import pytest

from connectors.formats.decode.decoder import Decoder
from monitor.agent import agent as agent_module
from monitor.agent import checkpoints as checkpoints_module
from monitor.agent.agent import Agent
from monitor.agent.checkpoints import Checkpoint, CheckpointWriter
from monitor.agent.resume import resume, tasks_as_json
from monitor.agent.shards import Kept
from monitor.base.errors import ConfigError, StoreAwayError, StoreError
from monitor.base.source import Input
from monitor.base.state_changes import Changes
from monitor.cli.daemon import Daemon
from monitor.config.file import config_from
from monitor.config.layouts import layouts
from monitor.engine.engine import EngineSettings
from monitor.export.sinks.follower import ReportFollower
from monitor.export.sinks.reports_file import ReportsFile
from monitor.store import StateStore, Store, StoreReader
from monitor.store.postgres import PostgresDatabase, PostgresStore
from monitor.testing import ListSinks, ListSource, Marker
from tests.accounting import assert_adds_up
from tests.daemon import configuration
from tests.nearly import nearly
from tests.numbers import predictions, reference_of_numbers, regression
from tests.services.process import PATIENCE_SECONDS, wait_until
from tests.streams import Rig, answers, lines, task


def agent_on(place: Path | StateStore, records, rig: Rig, every: float = 0.01):
    """Return an agent that reads a list, resumed from a store or the one in a folder."""
    store = Store(place) if isinstance(place, Path) else place
    saved = store.load()
    resumed = resume(rig.settings, saved)
    keeper = CheckpointWriter(store)
    keeper.start()
    source = ListSource(records, per_read=50)
    decode = Decoder(layouts(dict(rig.settings.tasks)), source.name).decode
    sinks = ListSinks()
    kept = Kept(keeper, every, tasks_as_json(dict(rig.settings.tasks)), tuple(resumed.reports))
    return Agent(resumed.engine, [Input(source, decode)], sinks, store=kept), sinks, source, keeper


def test_an_agent_that_is_stopped_keeps_its_open_windows_for_the_next_one(tmp_path):
    records = answers(np.random.default_rng(0), 250)
    rig = Rig()
    first, sinks, source, keeper = agent_on(tmp_path, records[:130], rig)
    first.start()
    wait_until(lambda: not source.lag, "all is read", pause=0.01)
    first.stop()
    assert first.wait(PATIENCE_SECONDS)
    keeper.close(PATIENCE_SECONDS)
    assert source.used == 130
    assert [w.closed_by for w in sinks.windows] == ["size"]
    second, more, source, keeper = agent_on(tmp_path, [*records, Marker.END], rig)
    second.start()
    assert second.wait(PATIENCE_SECONDS)
    keeper.close(PATIENCE_SECONDS)
    assert [(w.window, w.size, w.closed_by) for w in more.windows] == [(1, 100, "size"), (2, 50, "end")]


def test_where_every_source_has_ended_a_slow_disk_gets_its_time(tmp_path, monkeypatch):
    """Nobody waits for the end, and a pipe cannot be read again."""
    monkeypatch.setattr(agent_module, "FLUSH_SECONDS", 0.01)
    records = [*answers(np.random.default_rng(0), 250), Marker.END]
    agent, sinks, source, keeper = agent_on(tmp_path, records, Rig())
    commit = keeper._store.commit
    keeper._store.commit = lambda *rest: (time.sleep(0.1), commit(*rest))[1]
    agent.start()
    assert agent.wait(PATIENCE_SECONDS)
    keeper.close(PATIENCE_SECONDS)
    assert [(w.window, w.size, w.closed_by) for w in sinks.windows] == [
        (0, 100, "size"),
        (1, 100, "size"),
        (2, 50, "end"),
    ]
    assert source.used == 250


@pytest.mark.parametrize("why", ["asked to stop", "refused"])
def test_the_last_checkpoint_is_given_up_when(why, tmp_path, monkeypatch, caplog):
    """A request to stop has a limit; a disk that takes nothing is tried once."""
    monkeypatch.setattr(agent_module, "FLUSH_SECONDS", 0.01)
    leave = threading.Event()
    records = [*answers(np.random.default_rng(0), 250), Marker.END]
    agent, sinks, source, keeper = agent_on(tmp_path, records, Rig(), every=3600)
    keeper._store.commit = refuse if why == "refused" else lambda *rest: leave.wait(PATIENCE_SECONDS)
    agent.start()
    if why == "asked to stop":
        wait_until(lambda: keeper.busy, "the checkpoint is under way", pause=0.01)
        agent.stop()
    assert agent.wait(PATIENCE_SECONDS)
    leave.set()
    keeper.close(PATIENCE_SECONDS)
    assert (source.used, sinks.windows) == (None, [])
    assert "The last checkpoint failed; the next start reads the records" in caplog.text


def test_the_configuration_of_a_reload_is_saved_with_the_state(tmp_path):
    rig = Rig()
    agent, _, source, keeper = agent_on(tmp_path, answers(np.random.default_rng(0), 50), rig)
    agent.start()
    wait_until(lambda: not source.lag, "all is read", pause=0.01)
    agent.reconfigure(lambda engine: (engine, []), '{"tasks":{}}').result(PATIENCE_SECONDS)
    agent.stop()
    assert agent.wait(PATIENCE_SECONDS)
    keeper.close(PATIENCE_SECONDS)
    store = Store(tmp_path)
    assert store.load().config == '{"tasks":{}}'
    store.close()


def test_a_source_hears_only_of_what_is_saved(tmp_path):
    rig = Rig()
    agent, sinks, source, keeper = agent_on(tmp_path, answers(np.random.default_rng(0), 250), rig, every=0.01)
    keeper._store.commit = refuse  # a disk that is full from the start
    agent.start()
    wait_until(lambda: agent.view().store_failures, "it could not be saved", pause=0.01)
    view = agent.view()
    assert view.store_failing == "no room"
    assert_adds_up(view)
    assert (view.ready, view.healthy) == (False, True)
    assert "The state cannot be saved: no room." in view.reasons
    assert (source.used, sinks.windows) == (None, [])
    del keeper._store.commit
    wait_until(lambda: (source.used or 0) >= 250, "all is saved", pause=0.01)
    assert agent.view().store_failing is None
    assert_adds_up(agent.view())
    assert [w.window for w in sinks.windows] == [0, 1]
    agent.stop()
    agent.wait(PATIENCE_SECONDS)
    keeper.close(PATIENCE_SECONDS)


def refuse(*_: object) -> int:
    raise StoreError("no room")


@pytest.fixture(params=["folder", pytest.param("postgres", marks=pytest.mark.postgres)])
def outage(request, tmp_path):
    """Return a store, and how it goes away and comes back."""
    if request.param == "folder":
        store = Store(tmp_path / "state")
        yield store, lambda: setattr(store, "commit", refuse), lambda: delattr(store, "commit")
        return
    server = request.getfixturevalue("postgres_server")
    yield PostgresStore(PostgresDatabase(server.dsn, "waits_at_bound")), server.halt, server.start
    if not server.running:
        server.start()


def test_when_enough_windows_wait_for_the_store_the_sources_wait_and_nothing_is_lost(outage, monkeypatch):
    monkeypatch.setattr(checkpoints_module, "_MOST_REPORTS", 5)
    records = answers(np.random.default_rng(0), 4000)
    store, away, back = outage
    agent, sinks, source, keeper = agent_on(store, records, Rig())
    away()
    agent.start()
    message = "So many closed windows wait for it that the sources wait too."
    wait_until(
        lambda: any(message in reason for reason in agent.view().reasons), "the sources wait", pause=0.01
    )
    wait_until(lambda: agent._chunks.qsize() >= 8, "there is no more room", pause=0.01)
    at = source.lag
    assert at > 2000
    for _ in range(20):  # time enough for what a second brings otherwise
        time.sleep(0.05)
        assert source.lag == at
    view = agent.view()
    assert (view.ready, view.healthy, source.used, sinks.windows) == (False, True, None, [])
    assert view.engine.received["list"] <= 600, "five windows, and one chunk"
    assert_adds_up(view)
    back()
    wait_until(lambda: (source.used or 0) >= 4000, "all is saved", pause=0.01)
    got, expected = (
        [line.partition(b'"positions"')[0] for line in lines(windows)]
        for windows in (sinks.windows, Rig().feed(records))
    )
    assert got == expected
    wait_until(lambda: agent.view().ready, "it is ready again", pause=0.01)
    assert agent.view().reports_lost == 0
    agent.stop()
    assert agent.wait(PATIENCE_SECONDS)
    keeper.close(PATIENCE_SECONDS)


@pytest.mark.postgres
def test_a_database_that_stands_still_is_told_and_nothing_is_lost(postgres_server, monkeypatch):
    """Its disk hangs, or its machine is paused: no connection breaks."""
    monkeypatch.setattr(checkpoints_module, "_SLOW_SECONDS", 0.5)
    store = PostgresStore(PostgresDatabase(postgres_server.dsn, "stands_still"))
    agent, sinks, source, keeper = agent_on(store, answers(np.random.default_rng(0), 250), Rig())
    with postgres_server.connection() as connection:
        query = "SELECT pid FROM pg_stat_activity WHERE application_name = 'blindsight'"
        pids = [pid for (pid,) in connection.execute(query)]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    agent.start()
    message = "The state cannot be saved: a checkpoint has been under way for "
    try:
        wait_until(
            lambda: any(message in reason for reason in agent.view().reasons), "it is told", pause=0.01
        )
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    assert pids
    wait_until(lambda: source.used == 250, "all is saved", pause=0.01)
    wait_until(lambda: agent.view().ready, "it is ready", pause=0.01)
    assert [w.window for w in sinks.windows] == [0, 1]
    agent.stop()
    assert agent.wait(PATIENCE_SECONDS)
    keeper.close(PATIENCE_SECONDS)


@pytest.mark.postgres
def test_a_database_that_goes_away_during_the_start_is_no_wrong_configuration(postgres_server, monkeypatch):
    """After exit code 2, that of a wrong configuration, systemd does not start it again."""
    store = {"postgres": postgres_server.dsn, "prefix": "goes_away"}
    config = config_from(configuration(sources=[{"kind": "stdin"}], store=store))
    real = PostgresStore.load

    def load(self):
        postgres_server.halt()
        return real(self)

    monkeypatch.setattr(PostgresStore, "load", load)
    try:
        with pytest.raises(StoreAwayError):
            Daemon(config)
    finally:
        postgres_server.start()


def test_renewing_the_lease_does_not_say_that_anything_is_saved(tmp_path, monkeypatch):
    """A full disk of the server lets the lease's row be written, and no more."""
    store = Store(tmp_path / "state")
    renewed, keeper = [], CheckpointWriter(store)
    monkeypatch.setattr(store, "renew", lambda: renewed.append(keeper.failing))
    monkeypatch.setattr(store, "renew_seconds", 0.02, raising=False)
    monkeypatch.setattr(store, "commit", refuse)
    keeper.start()
    checkpoint = Checkpoint(Changes(), (), {})
    keeper.save(checkpoint)
    assert keeper.outcome(PATIENCE_SECONDS).error == "no room"
    wait_until(lambda: len(renewed) > 5, "the lease is kept, and without a pause", pause=0.01)
    assert set(renewed) == {"no room"}
    monkeypatch.undo()
    keeper.save(checkpoint)
    assert keeper.outcome(PATIENCE_SECONDS).error is None
    assert keeper.failing is None
    keeper.close(PATIENCE_SECONDS)


def test_a_checkpoint_that_stands_still_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints_module, "_SLOW_SECONDS", 0.05)
    store, leave = Store(tmp_path / "state"), threading.Event()
    real = store.commit
    monkeypatch.setattr(store, "commit", lambda *rest: (leave.wait(PATIENCE_SECONDS), real(*rest))[1])
    keeper = CheckpointWriter(store)
    keeper.start()
    keeper.save(Checkpoint(Changes(), (), {}))
    wait_until(lambda: keeper.failing, "it is told", pause=0.01)
    assert keeper.failing == "a checkpoint has been under way for 0 s"
    leave.set()
    assert keeper.outcome(PATIENCE_SECONDS).error is None
    assert keeper.failing is None
    keeper.close(PATIENCE_SECONDS)


CRASHING = """
    import sys
    from pathlib import Path
    import msgspec
    from tests.store.test_agent_with_store import agent_on
    from tests.streams import Rig, task
    from monitor.testing import Marker
    folder = Path(sys.argv[1])
    records = msgspec.json.decode((folder / "records.json").read_bytes())
    place = int(sys.argv[2])
    records.insert(place, Marker.CRASH)
    agent, sinks, source, keeper = agent_on(folder / "state", [*records, Marker.END], Rig(), every=0.0)
    agent.start()
    agent.wait(300)
"""


@pytest.mark.parametrize("place", [0, 40, 333, 405, 431])
def test_a_crash_between_two_records_loses_nothing_and_doubles_nothing(tmp_path, place):
    rng = np.random.default_rng(4)
    records = answers(rng, 400)
    records += [{"id": r["id"], "label": "ok", "time": r["time"] + 60} for r in records[::7]]
    records += answers(rng, 200, start=1.71e9)
    (tmp_path / "records.json").write_bytes(msgspec.json.encode(records))
    arguments = [sys.executable, "-c", textwrap.dedent(CRASHING), str(tmp_path), str(place)]
    assert subprocess.run(arguments, check=False).returncode == 137
    agent, _, _, keeper = agent_on(tmp_path / "state", [*records, Marker.END], Rig(event_time=False))
    agent.start()
    assert agent.wait(PATIENCE_SECONDS)
    assert_adds_up(agent.view())
    keeper.close(PATIENCE_SECONDS)
    with closing(Store(tmp_path / "state")) as store, closing(StoreReader(store.path)) as reader:
        delivered = [line for _, line in reader.reports_after(0, 100)]
    whole = Rig(event_time=False)
    reports = whole.feed(records, now=time.time()) + whole.engine.finish()
    assert sum(report.revision > 0 for report in reports) > 12  # the labels are late: 4 windows are revised
    expected = lines(reports)
    assert [line.replace(b'"list"', b'"part-0"') for line in delivered] == expected


def test_a_task_whose_classes_changed_starts_afresh_and_says_so(tmp_path, caplog):
    rig = Rig({"a": task(), "b": task()})
    rng = np.random.default_rng(0)
    rig.feed(answers(rng, 130, task="a") + answers(rng, 130, task="b"))
    store = Store(tmp_path)
    store.commit(rig.engine.changes(), config=tasks_as_json(dict(rig.settings.tasks)))
    changed = Rig({"a": task(classes=["ok", "bad", "ugly"]), "b": task(window={"size": 50})})
    resumed = resume(changed.settings, store.load())
    store.forget(resumed.forgotten)
    assert [(r.task, r.size, r.closed_by) for r in resumed.reports] == [("b", 30, "end")]
    assert [(s.task, s.windows_closed) for s in resumed.engine.view().series] == [("b", 2)]
    why = "its kind, classes, groups, features or quantiles changed"
    assert f"Task a does not continue from the store: {why}." in caplog.text
    assert "A new baseline begins, because the configuration changed: tasks.b.window.size." in caplog.text
    assert not [name for name in store.load().parts if name.endswith("/a")]
    store.close()


LABELLED = predictions(1, 600, start=1.6e9)


@pytest.mark.parametrize(
    ("before", "now", "factor", "why"),
    [
        ({}, {"tolerance": 2.0}, 1, "its tolerance: 1.5 changed to tolerance: 2.0"),
        (
            {},
            {"tolerance": None, "relative_tolerance": 0.1},
            1,
            "its tolerance: 1.5 changed to relative_tolerance: 0.1",
        ),
        ({}, {"quantiles": (0.05, 0.95)}, 1, "its kind, classes, groups, features or quantiles changed"),
        (
            {"tolerance": None},
            {"tolerance": None},
            2,
            r"its tolerance: \d\.\d+ changed to tolerance: \d\.\d+",
        ),
        ({"tolerance": None}, {"tolerance": None}, 1, ""),
        ({}, {}, 2, ""),
    ],
)
def test_a_task_whose_tolerance_or_quantiles_changed_starts_afresh(
    tmp_path, caplog, before, now, factor, why
):
    rig = Rig({"t": regression(**before)}, {"t": reference_of_numbers(regression(**before), LABELLED)})
    rig.feed(predictions(2, 250))
    larger = [r | {"label": r["prediction"] + factor * (r["label"] - r["prediction"])} for r in LABELLED]
    changed = Rig({"t": regression(**now)}, {"t": reference_of_numbers(regression(**now), larger)})
    with closing(Store(tmp_path)) as store:
        store.commit(rig.engine.changes(), config=tasks_as_json(dict(rig.settings.tasks)))
        resumed = resume(changed.settings, store.load())
    closed = [one.windows_closed for one in resumed.engine.view().series]
    assert closed == ([] if why else [2 if factor == 1 else 3])  # another reference closes the open window
    messages = [line for line in caplog.messages if "does not continue" in line]
    assert len(messages) == bool(why)
    assert all(re.search(f"Task t does not continue from the store: {why}[.]", line) for line in messages)


def test_another_reference_with_a_written_tolerance_begins_a_new_baseline(tmp_path, caplog):
    """Otherwise confidences by the new reference would be calibrated by a fit on those by the old one."""
    own = regression()
    rig = Rig({"t": own}, {"t": reference_of_numbers(own, LABELLED)})
    rig.feed(predictions(2, 250))
    larger = [r | {"label": r["prediction"] + 2 * (r["label"] - r["prediction"])} for r in LABELLED]
    changed = Rig({"t": own}, {"t": reference_of_numbers(own, larger)})
    with closing(Store(tmp_path)) as store:
        store.commit(rig.engine.changes(), config=tasks_as_json(dict(rig.settings.tasks)))
        same = resume(rig.settings, store.load())
        assert not same.reports
        assert "baseline" not in caplog.text
        resumed = resume(changed.settings, store.load())
    assert [(report.size, report.closed_by) for report in resumed.reports] == [(50, "end")]
    assert "A new baseline begins for task t, because the rows of its reference changed." in caplog.text
    changed.engine = resumed.engine
    records = predictions(3, 100, start=1.8e9)
    shown, fresh = (
        [
            each.result
            for each in each_rig.feed(records)[-1].estimates
            if each.estimator == "average_confidence"
        ]
        for each_rig in (changed, Rig({"t": own}, changed.settings.references))
    )
    assert shown[0] == nearly(fresh[0])


def test_a_task_of_another_kind_starts_afresh(tmp_path, caplog):
    rig = Rig({"t": task(classes=[], features={"x": "number"})})
    store = Store(tmp_path)
    store.commit(rig.engine.changes(), config=tasks_as_json(dict(rig.settings.tasks)))
    changed = Rig({"t": regression()}, {"t": reference_of_numbers(regression(), LABELLED)})
    assert resume(changed.settings, store.load()).forgotten
    assert "Task t does not continue from the store: its kind, classes," in caplog.text
    store.close()


def test_a_written_tolerance_continues_the_one_of_an_older_reference(tmp_path, caplog):
    by_errors = regression(tolerance=None)
    rig = Rig({"t": by_errors}, {"t": reference_of_numbers(by_errors, LABELLED)})
    rig.feed(predictions(2, 250))
    newer = reference_of_numbers(by_errors, predictions(8, 600, start=1.6e9))
    message = (
        r"tasks.t.reference: expected (tolerance: [\d.]+), with which .*, got tolerance: [\d.]+ from its"
    )
    with pytest.raises(ConfigError, match=message) as refused:  # by a reload
        rig.engine.reconfigured(EngineSettings({"t": by_errors}, {"t": newer}), {"t"})
    key, value = re.search(message, str(refused.value))[1].split(": ")
    written = regression(**{key: float(value)})
    changed = EngineSettings({"t": written}, {"t": reference_of_numbers(written, LABELLED)})
    with closing(Store(tmp_path)) as store:
        store.commit(rig.engine.changes(), config=tasks_as_json(dict(rig.settings.tasks)))
        resumed = resume(changed, store.load())
    assert [one.windows_closed for one in resumed.engine.view().series] == [2]
    assert "does not continue" not in caplog.text


def test_a_state_of_another_format_is_refused_with_what_to_do(tmp_path):
    rig = Rig()
    store = Store(tmp_path)
    rig.feed(answers(np.random.default_rng(0), 10))
    changes = rig.engine.changes()
    changes.parts["engine"] = msgspec.structs.replace(changes.parts["engine"], format=99)
    store.commit(changes, config=tasks_as_json(dict(rig.settings.tasks)))
    with pytest.raises(StoreError, match=r"cannot be read by this version .*; move the store away"):
        resume(rig.settings, store.load())
    store.close()


class Reports:
    """A store's table of reports, in memory."""

    def __init__(self, count: int) -> None:
        self.rows = [(i, b'{"window":%d}' % i) for i in range(1, count + 1)]

    def newest_report(self) -> int:
        return self.rows[-1][0]

    def reports_after(self, last: int, most: int) -> list[tuple[int, bytes]]:
        return [row for row in self.rows if row[0] > last][:most]

    def text(self) -> bytes:
        return b"".join(line + b"\n" for _, line in self.rows)


def follow(path: Path, reports: Reports, noted: tuple[int, int] | None) -> tuple[int, int]:
    follower = ReportFollower(ReportsFile(str(path)), reports, {"reports": noted} if noted else {})
    follower.start()
    assert follower.close(PATIENCE_SECONDS)
    return follower.marks["reports"]


@pytest.mark.parametrize("cut", range(0, 60, 7))
def test_a_file_that_was_written_further_than_noted_ends_with_each_line_once(tmp_path, cut):
    path, reports = tmp_path / "w.ndjson", Reports(8)
    whole = reports.text()
    noted = (2, len(b"".join(line + b"\n" for _, line in reports.rows[:2])))
    path.write_bytes(whole[: noted[1] + cut])
    assert follow(path, reports, noted) == (8, len(whole))
    assert path.read_bytes() == whole


def test_what_stood_in_the_file_before_the_store_stays(tmp_path):
    path, reports = tmp_path / "w.ndjson", Reports(3)
    path.write_bytes(b"mine\n")
    follow(path, reports, None)
    assert path.read_bytes() == b"mine\n" + reports.text()


def test_what_another_program_wrote_stays_and_the_windows_follow(tmp_path):
    path, reports = tmp_path / "w.ndjson", Reports(3)
    first = reports.rows[0][1] + b"\n"
    path.write_bytes(first + b"not ours")
    follow(path, reports, (1, len(first)))
    assert path.read_bytes() == first + b"not ours\n" + reports.text()[len(first) :]


def test_a_rotated_file_is_begun_anew(tmp_path):
    path, reports = tmp_path / "w.ndjson", Reports(3)
    path.write_bytes(b"")
    assert follow(path, reports, (2, 1000))[0] == 3
    assert path.read_bytes() == reports.rows[2][1] + b"\n"


def test_what_the_store_dropped_meanwhile_is_counted_as_lost(tmp_path, caplog):
    path, reports = tmp_path / "w.ndjson", Reports(9)
    path.write_bytes(b"")
    del reports.rows[:6]
    follower = ReportFollower(ReportsFile(str(path)), reports, {"reports": (2, 0)})
    follower.start()
    assert follower.close(PATIENCE_SECONDS)
    assert (follower.view.lost, follower.view.delivered, follower.view.waiting) == (4, 3, 0)
    assert f"4 windows were dropped from the store before {path} could take them" in caplog.text


def test_a_file_that_comes_to_an_older_store_lost_nothing_before(tmp_path):
    path, reports = tmp_path / "w.ndjson", Reports(9)
    del reports.rows[:6]
    follower = ReportFollower(ReportsFile(str(path)), reports, {})
    follower.start()
    assert follower.close(PATIENCE_SECONDS)
    assert (follower.view.lost, follower.view.delivered) == (0, 3)


def test_a_full_disk_leaves_the_windows_in_the_store_until_there_is_room(tmp_path):
    path, reports = tmp_path / "w.ndjson", Reports(3)
    path.symlink_to("/dev/full")
    follower = ReportFollower(ReportsFile(str(path)), reports, {})
    follower.start()
    wait_until(lambda: follower.view.trouble is not None, "it is delivered")
    assert "No space left on device" in follower.view.trouble
    assert (follower.view.waiting, follower.view.delivered, follower.view.lost) == (3, 0, 0)
    path.unlink()
    wait_until(lambda: follower.view.delivered == 3, "it is delivered")
    assert follower.view.trouble is None
    assert follower.close(PATIENCE_SECONDS)
    assert path.read_bytes() == reports.text()


def test_a_file_renamed_while_it_is_followed_is_begun_anew(tmp_path):
    path, reports = tmp_path / "w.ndjson", Reports(3)
    follower = ReportFollower(ReportsFile(str(path)), reports, {})
    follower.start()
    wait_until(lambda: follower.view.delivered >= 3, "all are delivered", pause=0.01)
    path.rename(tmp_path / "w.1")
    reports.rows.append((4, b'{"window":4}'))
    follower.wake()
    follower.close(PATIENCE_SECONDS)
    assert path.read_bytes() == b'{"window":4}\n'
    assert (tmp_path / "w.1").read_bytes().count(b"\n") == 3


def test_windows_saved_as_the_file_looks_for_the_last_time_are_delivered_at_the_close(tmp_path):
    class Late(Reports):
        """A reader that gets a window, and the request to close, when the follower has just seen that
        there is no more.
        """

        closing: threading.Thread | None = None

        def reports_after(self, last, most):
            reports = super().reports_after(last, most)
            if not reports and self.closing is None:
                self.rows.append((4, b'{"window":4}'))
                closing = threading.Thread(target=follower.close, args=(PATIENCE_SECONDS,))
                closing.start()
                self.closing = closing
                wait_until(follower._stop.is_set, "it is asked to close", pause=0.01)
            return reports

    path, reports = tmp_path / "w.ndjson", Late(3)
    follower = ReportFollower(ReportsFile(str(path)), reports, {})
    follower.start()
    wait_until(lambda: reports.closing, "all are delivered", pause=0.01)
    reports.closing.join(PATIENCE_SECONDS)
    assert path.read_bytes() == reports.text()
    assert reports.text().count(b"\n") == 4
