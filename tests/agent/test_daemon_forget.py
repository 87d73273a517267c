"""`blindsight forget` on a daemon that runs, on one that was stopped, and the traces on the disk."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from secrets import token_hex
from typing import Any

import httpx
import pytest

from connectors.sql.progress import Progress
from monitor.base.codec import unpack
from monitor.base.records import id_keys
from tests.accounting import assert_adds_up, labels_account
from tests.daemon import DaemonProcess, command, configuration, ndjson, read_windows, write_configuration
from tests.services.postgres_server import PostgresServer
from tests.services.process import free_ports

GONE = "alice@example.org"
KEPT = "bob@example.org"
SERIES = {"task": "t", "model": "erm"}


def config(port: int = 0, **rest: Any) -> dict[str, Any]:
    sources: list[dict[str, Any]] = [{"kind": "file", "path": "in.ndjson", "follow": True}]
    if port:
        sources.append({"kind": "http", "listen": f"127.0.0.1:{port}", "spool": {"path": "spool"}})
    return configuration(
        sources=sources,
        reports={"path": "windows.ndjson"},
        rejects={"path": "rejects.ndjson"},
        store={"path": "state", "every_seconds": 0.1},
        **rest,
    )


def about(name: str) -> list[dict[str, Any] | bytes]:
    """Return an answer, a label that waits, a label that found its answer, and two unusable records."""
    return [
        {"id": name, "model": "erm", "scores": [0.25, 0.75], "time": 1.7e9},
        {"id": f"{name}/early", "label": "ok", "time": 1.7e9},
        {"id": name, "label": "bad", "time": 1.7e9 + 60},
        {"id": name, "model": "erm", "scores": [0.25, 1.75]},
        f'{{"id": "{name}", "model": "erm", "sco'.encode(),
    ]


def forget(folder: Path, *words: str) -> list[str]:
    done = command("forget", "config.yaml", GONE, f"{GONE}/early", *words, cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def holds(folder: Path, name: str) -> bool:
    """Return whether a file of the agent holds the id or its key, also where a database has free pages."""
    needles = [name.encode(), *(key.tobytes() for key in id_keys([name, f"{name}/early"]))]
    files = [p for p in folder.rglob("*") if p.is_file() and p.name not in ("in.ndjson", "daemon.log")]
    return any(needle in p.read_bytes() for p in files for needle in needles)


def started(folder: Path, daemon: DaemonProcess) -> None:
    daemon.until_value(2, "labels_total", task="t", outcome="matched")
    daemon.until(lambda: len(read_windows(folder / "rejects.ndjson")) == 4, "rejects are written")
    state = folder / "state"
    daemon.until(lambda: holds(state, KEPT) and holds(state, GONE), "both are saved")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in.ndjson").write_bytes(ndjson([*about(GONE), *about(KEPT)]))
    return tmp_path


def test_a_running_daemon_lets_go_of_everything_everywhere_and_keeps_its_counts(folder: Path) -> None:
    with DaemonProcess(folder, config()) as daemon:
        started(folder, daemon)
        assert forget(folder) == [
            "store: 1 answer and 2 labels removed; 1 label of these waited for its answer, and counts as "
            "expired.",
            "rejects: 2 lines removed.",
        ]
        assert not holds(folder, GONE)
        assert holds(folder, KEPT)
        daemon.until_value(1, "labels_waiting", task="t")
        scrape = assert_adds_up(daemon)
        assert scrape.value("answers_pending", **SERIES) == 2, "a window's counts stay"
        assert labels_account(scrape).parts["expired"] == 1
        assert forget(folder) == ["store: nothing was known by these ids.", "rejects: 0 lines removed."]
        # Whoever sends the record again sends a new one; of the other it is a duplicate still.
        with (folder / "in.ndjson").open("ab") as file:
            file.write(ndjson([about(GONE)[0], about(KEPT)[0]]))
        daemon.until_value(3, "answers_pending", **SERIES)
        daemon.until_value(1, "duplicates_total", **SERIES)
        daemon.end(signal.SIGKILL)
    with DaemonProcess(folder, config()) as daemon:
        daemon.until_value(3, "answers_pending", **SERIES)
        assert_adds_up(daemon)
    assert GONE not in daemon.log


def test_where_no_agent_runs_the_files_are_changed_and_the_next_one_goes_on(folder: Path) -> None:
    with DaemonProcess(folder, config()) as daemon:
        started(folder, daemon)
        daemon.end(signal.SIGKILL)
    lines = forget(folder)
    assert lines[0].startswith("store: 1 answer and 2 labels removed; 1 label of these waited")
    assert lines[1] == "rejects: 2 lines removed."
    assert not holds(folder, GONE)
    assert holds(folder, KEPT)
    with DaemonProcess(folder, config()) as daemon:
        daemon.until_value(1, "labels_waiting", task="t")
        scrape = assert_adds_up(daemon)
        assert scrape.value("answers_pending", **SERIES) == 2
        assert scrape.value("labels_total", task="t", outcome="expired") == 1


def test_posts_that_are_not_used_yet_are_overwritten_where_no_agent_runs(folder: Path) -> None:
    (port,) = free_ports(1)
    names = [GONE if i == 2 else f"{name}{i}" for i in range(5) for name in (GONE, KEPT)]
    rows = [{"id": name, "model": "erm", "scores": [0.5, 0.5]} for name in names]
    with DaemonProcess(folder, config(port)) as daemon:
        daemon.until_value(1, "source_up", source="http")
        url, headers = f"http://127.0.0.1:{port}/v1/predictions", {"content-type": "application/x-ndjson"}
        assert httpx.post(url, content=ndjson(rows), headers=headers).status_code == 202
        daemon.end(signal.SIGKILL)
    lines = forget(folder)
    assert "spool of http: 2 lines removed." in lines
    spool = b"".join(path.read_bytes() for path in (folder / "spool").iterdir())
    assert f'"{GONE}"'.encode() not in spool
    assert f'"{KEPT}4"'.encode() in spool
    with DaemonProcess(folder, config(port)) as daemon:
        daemon.until(lambda: daemon.metrics().total("answers_pending") >= 10, "the others are used")
        assert_adds_up(daemon)


def test_posts_that_a_running_agent_has_are_waited_for(folder: Path) -> None:
    (port,) = free_ports(1)
    with DaemonProcess(folder, config(port)) as daemon:
        daemon.until_value(1, "source_up", source="http")
        row = {"id": GONE, "model": "irm", "scores": [0.5, 0.5]}
        assert httpx.post(f"http://127.0.0.1:{port}/v1/predictions", json=row).status_code == 202
        lines = forget(folder)
        assert lines[1:3] == [
            "spool of http: used, and gone.",
            "store, after what was in the spools: nothing was known by these ids.",
        ]
        assert not holds(folder, GONE)
        assert_adds_up(daemon)


def test_a_command_killed_at_any_moment_is_run_again(folder: Path) -> None:
    write_configuration(folder, config())
    with DaemonProcess(folder, config()) as daemon:
        started(folder, daemon)
        words = ["-m", "monitor.cli", "forget", "config.yaml", GONE, f"{GONE}/early"]
        for seconds in (0.6, 0.9, 1.2):
            process = subprocess.Popen([sys.executable, *words], cwd=folder, stdout=subprocess.DEVNULL)
            try:
                process.wait(seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        forget(folder)
        daemon.until(lambda: not holds(folder, GONE), "nothing is left")
        assert len(read_windows(folder / "rejects.ndjson")) == 2
        assert_adds_up(daemon)


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (["a", "--task", "tt"], 1, "task: there is no 'tt'; there is only 't'"),
        ([""], 2, "ID: there is none; give at least one id, as in the records"),
    ],
)
def test_what_cannot_be_asked_is_refused(folder: Path, words: list[str], code: int, why: str) -> None:
    write_configuration(folder, config())
    done = command("forget", "config.yaml", *words, cwd=folder)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", f"blindsight: {why}\n")


def test_ids_on_standard_input_that_are_no_utf_8_are_refused(folder: Path) -> None:
    write_configuration(folder, config())
    (folder / "ids").write_bytes(b"5\n\xff\n")
    with (folder / "ids").open() as ids:
        done = command("forget", "config.yaml", "-", stdin=ids, cwd=folder)
    message = "ID: standard input is not UTF-8 (invalid start byte); give ids as in the records"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"blindsight: {message}\n")


def test_ids_may_come_by_standard_input_and_a_task_of_its_own_keeps_the_others(folder: Path) -> None:
    lines = [{"raw": json.dumps({"id": "5", "task": task})} for task in ("t", "u")]
    (folder / "rejects.ndjson").write_bytes(ndjson([*lines, {"raw": '{"id": 5}'}, {"raw": '{"id": 55}'}]))
    write_configuration(folder, config())
    (folder / "ids").write_text("5\n\n6\n")
    with (folder / "ids").open() as ids:
        done = command("forget", "config.yaml", "-", "--task", "t", stdin=ids, cwd=folder)
    assert done.stdout == "store: there is none yet.\nrejects: 2 lines removed.\n"
    assert [json.loads(line["raw"])["id"] for line in read_windows(folder / "rejects.ndjson")] == ["5", 55]


@pytest.mark.parametrize("offline", [False, True])
@pytest.mark.postgres
@pytest.mark.parametrize("store", ["folder", "postgres"])
def test_nothing_of_an_id_is_left_in_the_position_of_a_table(
    tmp_path: Path, postgres_server: PostgresServer, store: str, offline: bool
) -> None:
    """All rows have one value, so that a position needs to know the last one of them by its id."""
    with closing(sqlite3.connect(tmp_path / "labels.db")) as labels:
        labels.execute("CREATE TABLE labels (id TEXT, model TEXT, scores REAL, updated TEXT)")
        row = "VALUES (?, 'erm', 0.75, '2026-11-26 10:00:00')"
        labels.executemany(f"INSERT INTO labels {row}", [(f"{i:04}",) for i in range(50)])
        labels.executemany(f"INSERT INTO labels {row}", [(name,) for name in (KEPT, GONE)])
        labels.commit()
    section = {"kind": "sql", "driver": "sqlite3", "dsn": "labels.db", "table": "labels", "cursor": "updated"}
    schema = f"forget_{token_hex(4)}"
    where = {"path": "state"} if store == "folder" else {"postgres": postgres_server.dsn, "prefix": schema}
    settings = configuration(sources=[section | {"poll_seconds": 0.1}], store=where | {"every_seconds": 0.1})

    def rests(name: str) -> bool:
        """Return whether the id, its key, or its hash in the position is in the store."""
        held = [path.read_bytes() for path in tmp_path.rglob("state/*") if path.is_file()]
        if store == "postgres":
            held = [bytes(row[0]) for row in postgres_rows(postgres_server, schema)]
        parts = held_parts(tmp_path, postgres_server, store, schema)
        if "engine" not in parts:
            return False
        position = unpack(parts["engine"])["positions"]["labels"]["labels"]
        salted = Progress("updated", "id", 300, position).hash_ids([name])[0].to_bytes(8, "little")
        needles = [name.encode(), id_keys([name])[0].tobytes(), salted]
        return any(needle in data for needle in needles for data in held)

    with DaemonProcess(tmp_path, settings) as daemon:
        daemon.until_value(52, "answers_pending", **SERIES)
        daemon.until(lambda: rests(KEPT) and rests(GONE), "both are saved")
        with closing(sqlite3.connect(tmp_path / "labels.db")) as labels:
            labels.execute("DELETE FROM labels WHERE id = ?", (GONE,))
            labels.commit()
        if not offline:
            assert forget(tmp_path)[0].startswith("store: 1 answer and 0 labels removed")
            daemon.until(lambda: not rests(GONE), "it is gone")
        assert daemon.end()[0] == 0
    if offline:
        assert forget(tmp_path)[0].startswith("store: 1 answer and 0 labels removed")
    assert not rests(GONE)
    assert rests(KEPT)
    with DaemonProcess(tmp_path, settings) as daemon:
        daemon.until_value(1, "source_up", source="labels")
        assert daemon.metrics().value("answers_pending", **SERIES) == 52, "no row came twice"
        assert_adds_up(daemon)


def held_parts(folder: Path, server: PostgresServer, store: str, schema: str) -> dict[str, bytes]:
    """Return the pieces of the state, by name."""
    if store == "folder":
        with closing(sqlite3.connect(folder / "state" / "blindsight.sqlite")) as connection:
            return dict(connection.execute("SELECT name, state FROM part"))
    with server.connection() as connection:
        parts = connection.execute(f"SELECT name, state FROM {schema}.part".encode()).fetchall()
        return {name: bytes(state) for name, state in parts}


def postgres_rows(server: PostgresServer, schema: str) -> list[Any]:
    """Return every value of bytes or text in every table of a schema, as bytes."""
    rows = []
    with server.connection() as connection:
        query = b"SELECT table_name FROM information_schema.tables WHERE table_schema = %s"
        for (name,) in connection.execute(query, [schema]).fetchall():
            for row in connection.execute(f'SELECT * FROM {schema}."{name}"'.encode()).fetchall():
                rows += [
                    (each.encode() if isinstance(each, str) else bytes(each),)
                    for each in row
                    if isinstance(each, str | bytes | memoryview)
                ]
    return rows
