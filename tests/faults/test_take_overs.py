"""Agents on one PostgreSQL: one works at a time, whatever is killed, stopped, cut off or restarted."""

from __future__ import annotations

import itertools
import json
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import httpx
import numpy as np
import psycopg
import pytest

from monitor.base.errors import CommitUnknownError, InUseError, LeaseLostError, StoreAwayError
from monitor.base.state_changes import Changes, assemble
from monitor.store.postgres import PostgresDatabase, PostgresStore
from tests.accounting import assert_adds_up
from tests.daemon import DaemonProcess, command_here, ndjson, write_configuration
from tests.daemon import configuration as plain
from tests.faults.kills import stream
from tests.faults.take_overs import Agent, alone, configuration, hand_over
from tests.services.postgres_server import PostgresServer
from tests.services.process import PATIENCE_SECONDS, free_ports, wait_until
from tests.services.process import answers as answers_on
from tests.streams import Record, Rig, answers, lines

pytestmark = pytest.mark.process


def test_windows_over_hand_overs_are_those_of_one_agent(
    tmp_path: Path, postgres_server: PostgresServer
) -> None:
    result = hand_over(tmp_path, postgres_server, records=20_000, rounds=2, lease=3, seed=1)
    assert result.equal
    assert (len(result.seconds), result.stopped) == (2, 1)
    assert result.windows > 70
    assert min(result.seconds) > 1, "nobody takes over before the lease has ended"
    assert min(result.seconds) < 10


def test_a_database_that_restarts_loses_nothing(tmp_path: Path, postgres_server: PostgresServer) -> None:
    records = list(stream(20_000, seed=2))
    expected = alone(tmp_path, records)
    (port,) = free_ports(1)
    growing, written = tmp_path / "stream.ndjson", tmp_path / "killed.ndjson"
    growing.write_text("\n".join(records[:9000]) + "\n", encoding="utf-8")
    agent = Agent(tmp_path, configuration(postgres_server.dsn, "restarts", port), "one", port)
    with agent.daemon as daemon:
        daemon.until(lambda: written.exists() and b'"revision":0' in written.read_bytes(), "windows are out")
        postgres_server.halt()
        try:
            with growing.open("a", encoding="utf-8") as file:
                file.write("\n".join(records[9000:]) + "\n")
            daemon.until(lambda: "The state cannot be saved: " in agent.get("/-/ready")[1], "it is not ready")
            assert agent.get("/-/healthy")[0] == 200
            daemon.until(lambda: daemon.metrics().used == 20_000, "the stream goes on")
            assert len(written.read_bytes()) < len(expected), "what is not saved is not delivered"
            waiting = Agent(tmp_path, configuration(postgres_server.dsn, "restarts", 0), "other", 0)
            with waiting.daemon as other:
                other.until(lambda: "Stand-by: PostgreSQL at" in other.log, "another one waits for it too")
        finally:
            postgres_server.start()
        daemon.until(lambda: agent.ready, "it is ready again")
        daemon.until(lambda: written.stat().st_size >= len(expected), "all is written")
        assert daemon.end()[0] == 0
        assert "The state is saved again." in daemon.log
    assert written.read_bytes() == expected


@pytest.mark.parametrize("arrives", [True, False])
def test_a_checkpoint_whose_last_word_got_lost_counts_once(
    postgres_server: PostgresServer, arrives: bool
) -> None:
    """The server may have committed what the agent heard no answer to."""
    rng, rig = np.random.default_rng(0), Rig()
    with cutting(postgres_server.port, b"COMMIT", arrives) as (port, cut, _):
        address = f"host=127.0.0.1 port={port} user=owner dbname=postgres"
        store = PostgresStore(PostgresDatabase(address, f"lost_{arrives}".lower()))
        first = rig.feed(answers(rng, 250))
        store.commit(rig.engine.changes(), first)
        rig.engine.confirm()
        second = rig.feed(answers(rng, 250, start=1.71e9))
        changes = rig.engine.changes()
        cut.set()
        with pytest.raises(CommitUnknownError, match="lost while a checkpoint was committed"):
            store.commit(changes, second)
        cut.clear()
        wait_until(lambda: committed(store, changes, second), "the server is heard of again")
        rig.engine.confirm()
        with closing(store.reader()) as reader:
            assert [line for _, line in reader.reports_after(0, 100)] == lines(first + second)
        saved = store.load()
        assert rig.settings.build(assemble(saved.parts, saved.rings)).view() == rig.engine.view()
        store.close()


def test_who_lost_the_lease_writes_and_delivers_nothing(postgres_server: PostgresServer) -> None:
    database = PostgresDatabase(postgres_server.dsn, "fenced")
    rng, rig = np.random.default_rng(0), Rig()
    first = PostgresStore(database, lease_seconds=2)
    reader = first.reader()
    first.commit(rig.engine.changes(), rig.feed(answers(rng, 250)))
    assert len(reader.reports_after(0, 10)) == 2
    second = awaited(database)
    assert second.number == first.number + 1
    message = (
        rf"schema fenced: the lease is lost: {second.owner} took over with number {second.number}, this "
        rf"agent had {first.number}; that one goes on from the last checkpoint"
    )
    for write in (
        lambda: first.commit(Changes(), rig.feed(answers(rng, 250, start=1.71e9))),
        lambda: first.forget(["engine"]),
        lambda: first.identity,
        first.renew,
    ):
        with pytest.raises(LeaseLostError, match=message):
            write()
    with pytest.raises(LeaseLostError, match="nothing is delivered any more"):
        reader.reports_after(0, 10)
    reader.close()
    first.close()
    second.renew()
    with closing(second.reader()) as reader:
        assert len(reader.reports_after(0, 10)) == 2
    second.close()


def test_a_network_that_pauses_over_the_leases_end_lets_one_agent_go_on(
    postgres_server: PostgresServer,
) -> None:
    rng, rig = np.random.default_rng(0), Rig()
    changes = Changes()
    with cutting(postgres_server.port, b"COMMIT", arrives=True) as (port, _, open_):
        address = f"host=127.0.0.1 port={port} user=owner dbname=postgres"
        first = PostgresStore(PostgresDatabase(address, "paused"), lease_seconds=2)
        open_.clear()
        with ThreadPoolExecutor(1) as thread:
            writing = thread.submit(first.commit, changes, rig.feed(answers(rng, 250)))
            second = awaited(PostgresDatabase(postgres_server.dsn, "paused"))
            assert not writing.done()
            open_.set()
            assert isinstance(writing.exception(PATIENCE_SECONDS), LeaseLostError)
        with closing(second.reader()) as reader:
            assert reader.newest_report() == 0
        first.close()
        second.close()


def test_who_stands_still_within_a_transaction_holds_nobody_up(postgres_server: PostgresServer) -> None:
    database = PostgresDatabase(postgres_server.dsn, "still")
    first = PostgresStore(database, lease_seconds=2)
    ended = pytest.raises(psycopg.Error, match="idle-in-transaction timeout")
    with ended, first._transaction():
        second = awaited(database)
        first._connection.execute("DELETE FROM part")
    with pytest.raises(LeaseLostError):
        first.commit(Changes())
    second.commit(Changes())
    first.close()
    second.close()


def test_a_transaction_whose_agent_stopped_within_a_pipeline_holds_nobody_up(
    postgres_server: PostgresServer,
) -> None:
    """The server's own limit for idle transactions does not hold there."""
    database = PostgresDatabase(postgres_server.dsn, "stuck")
    first = PostgresStore(database, lease_seconds=1)
    stopped = first._transaction()
    stopped.__enter__()
    first._connection.executemany("INSERT INTO meta VALUES (?, ?)", [("a", "1"), ("b", "2")])
    second = awaited(database)
    with pytest.raises(CommitUnknownError, match="lost while a checkpoint was committed"):
        stopped.__exit__(None, None, None)
    assert second.number == first.number + 1
    second.commit(Changes())
    with pytest.raises(LeaseLostError):
        first.commit(Changes())
    first.close()
    with closing(database.connect_read_only()) as connection:
        assert connection.execute("SELECT count(*) FROM meta WHERE key IN ('a', 'b')").fetchone()[0] == 0
    second.close()


def test_a_transaction_under_way_is_not_ended_by_who_waits_for_the_lease(
    postgres_server: PostgresServer,
) -> None:
    database = PostgresDatabase(postgres_server.dsn, "under_way")
    first = PostgresStore(database, lease_seconds=60)
    with first._transaction():
        first._connection.executemany("INSERT INTO meta VALUES (?, ?)", [("a", "1")])
        with pytest.raises(InUseError, match="is in use by another agent"):
            PostgresStore(database, lease_seconds=1)
    assert first.load().config == ""
    first.close()


def awaited(database: PostgresDatabase, lease_seconds: float = 2) -> PostgresStore:
    """Return the store, once its lease has ended."""
    stores: list[PostgresStore] = []

    def is_acquired() -> bool:
        with suppress(InUseError):
            stores.append(PostgresStore(database, lease_seconds=lease_seconds))
        return bool(stores)

    wait_until(is_acquired, "the lease has ended")
    return stores[0]


def poster(
    folder: Path, server: PostgresServer, name: str, prefix: str, every: float = 0.1, lease: float = 2.0
) -> tuple[Agent, int]:
    """Return an agent that takes posts into the database, and the port of those; nothing of it is in a
    folder.
    """
    shown, taking = free_ports(2)
    store = {"postgres": server.dsn, "prefix": prefix, "every_seconds": every, "lease_seconds": lease}
    config = plain(
        sources=[{"kind": "http", "listen": f"127.0.0.1:{taking}"}],
        store=store,
        export={"listen": f"127.0.0.1:{shown}"},
        reports={"path": str(folder / f"{prefix}.ndjson")},
    )
    return Agent(folder, json.dumps(config), name, shown), taking


def post(port: int, rows: Sequence[Record]) -> httpx.Response:
    address, headers = f"http://127.0.0.1:{port}/v1/predictions", {"content-type": "application/x-ndjson"}
    return httpx.post(address, content=ndjson(rows), headers=headers, timeout=PATIENCE_SECONDS)


def posted_alone(folder: Path, server: PostgresServer, posts: Sequence[Sequence[Record]]) -> bytes:
    """Return the lines of one agent that runs through."""
    prefix = f"alone{next(_NUMBERS)}"
    agent, port = poster(folder, server, "alone", prefix)
    with agent.daemon as daemon:
        wait_until(lambda: agent.ready, "it is ready")
        for rows in posts:
            assert post(port, rows).status_code == 202
        daemon.until(lambda: daemon.metrics().used == sum(map(len, posts)), "all is used")
        assert daemon.end()[0] == 0, daemon.log
    return (folder / f"{prefix}.ndjson").read_bytes()


_NUMBERS = itertools.count()


def test_a_stand_by_takes_no_posts(tmp_path: Path, postgres_server: PostgresServer) -> None:
    posters = [poster(tmp_path, postgres_server, name, "posts", lease=4) for name in ("one", "two")]
    agents = [agent for agent, _ in posters]
    with agents[0].daemon, agents[1].daemon:
        wait_until(lambda: any(agent.ready for agent in agents), "one agent works")
        (works,) = [place for place, agent in enumerate(agents) if agent.ready]
        waits = 1 - works
        wait_until(lambda: agents[waits].waits, "the other one waits")
        assert [answers_on(port) for _, port in posters] == [works == 0, works == 1]
        assert [agents[waits].get(path)[0] for path in ("/metrics", "/")] == [200, 200]
        assert agents[waits].daemon.end()[0] == 0, "a stand-by ends when it is told to"
        wait_until(lambda: connections(postgres_server) == 5, "it has as many connections as the docs say")
        held = {path.name for path in (tmp_path / "one").iterdir()}
        assert held == {"config.yaml", "daemon.log"}, "it has written nothing there"


def test_posts_that_a_dead_agent_acknowledged_are_in_the_windows_of_its_successor(
    tmp_path: Path, postgres_server: PostgresServer
) -> None:
    rows = answers(np.random.default_rng(0), 1000)
    posts = [rows[start : start + 50] for start in range(0, 1000, 50)]
    expected = posted_alone(tmp_path, postgres_server, posts)
    first, one = poster(tmp_path, postgres_server, "first", "killed", every=600)
    with first.daemon as daemon:
        wait_until(lambda: first.ready, "the first agent is ready")
        second, other = poster(tmp_path, postgres_server, "second", "killed")
        with second.daemon as successor:
            wait_until(lambda: second.waits, "the other agent waits")
            assert {post(one, each).status_code for each in posts[:7]} == {202}
            assert daemon.metrics().used <= 350
            with postgres_server.connection() as connection:
                saved = connection.execute("SELECT count(*) FROM killed.part").fetchone()
            assert saved == (0,), "nothing is saved but the posts"
            daemon.send(signal.SIGKILL)
            wait_until(lambda: second.ready, "the other agent has taken over")
            assert {post(other, each).status_code for each in posts[7:]} == {202}
            successor.until(lambda: successor.metrics().used == 1000, "all is used")
            written = tmp_path / "killed.ndjson"
            successor.until(lambda: written.stat().st_size >= len(expected), "all is written")
            assert_adds_up(successor, sent=1000)
            assert successor.end()[0] == 0, successor.log
    assert written.read_bytes() == expected
    with postgres_server.connection() as connection:
        assert connection.execute("SELECT count(*) FROM killed.spool").fetchone() == (0,), "they are gone"


class Client(threading.Thread):
    """A client that posts to any agent that accepts; it gives unacknowledged rows up, and does not send
    them again.
    """

    def __init__(self, name: str, ports: list[int], ended: threading.Event) -> None:
        super().__init__(daemon=True)
        self._prefix, self._ports, self._ended = name, ports, ended
        self.acknowledged = self.doubtful = 0

    def run(self) -> None:
        rows, number = answers(np.random.default_rng(0), 20), 0
        while not self._ended.is_set():
            number += 1
            some = [{**row, "id": f"{self._prefix}-{number}-{i}"} for i, row in enumerate(rows)]
            try:
                status = post(self._ports[number % 2], some).status_code
            except httpx.TransportError as error:
                self.doubtful += not isinstance(error, httpx.ConnectError)
                self._ended.wait(0.02)
                continue
            assert status in (202, 503)
            self.acknowledged += status == 202
            self.doubtful += status == 503


def test_what_was_acknowledged_is_used_once_whichever_agent_is_killed(
    tmp_path: Path, postgres_server: PostgresServer
) -> None:
    ports, ended = [0, 0], threading.Event()
    agent, ports[0] = poster(tmp_path, postgres_server, "agent", "chaos")
    clients = [Client(f"c{i}", ports, ended) for i in range(3)]
    with ExitStack() as stack:
        stack.callback(ended.set)
        stack.enter_context(agent.daemon)
        wait_until(lambda: agent.ready, "it is ready")
        for client in clients:
            client.start()
        for number in range(3):
            other, port = poster(tmp_path, postgres_server, f"agent{number}", "chaos")
            stack.enter_context(other.daemon)
            wait_until(lambda other=other: other.waits, "the other one waits")
            ports[(number + 1) % 2] = port
            before = sum(client.acknowledged for client in clients)
            wait_until(
                lambda before=before: sum(c.acknowledged for c in clients) > before + 20, "posts are taken"
            )
            agent.daemon.send(signal.SIGKILL)
            wait_until(lambda other=other: other.ready, "the other one has taken over")
            agent = other
        ended.set()
        for client in clients:
            client.join(PATIENCE_SECONDS)
        acknowledged = 20 * sum(client.acknowledged for client in clients)
        doubtful = 20 * sum(client.doubtful for client in clients)
        with postgres_server.connection() as connection:
            query = "SELECT count(*) FROM chaos.spool"
            wait_until(lambda: connection.execute(query).fetchone() == (0,), "all posts are used")
        used = agent.daemon.metrics().used
        assert acknowledged <= used <= acknowledged + doubtful
        assert used % 20 == 0, "no part of a post"
        assert acknowledged > 1000
        duplicates = agent.daemon.metrics().all("duplicates_total")
        assert sum(duplicates.values()) == 0, "a row was used twice"
        assert_adds_up(agent.daemon, sent=int(used))
        assert agent.daemon.end()[0] == 0, agent.daemon.log


def test_posts_are_refused_while_the_database_is_away_and_none_is_lost(
    tmp_path: Path, postgres_server: PostgresServer
) -> None:
    rows = answers(np.random.default_rng(0), 1000)
    posts = [rows[start : start + 50] for start in range(0, 1000, 50)]
    expected = posted_alone(tmp_path, postgres_server, posts)
    agent, port = poster(tmp_path, postgres_server, "agent", "away")
    with agent.daemon as daemon:
        wait_until(lambda: agent.ready, "it is ready")
        assert {post(port, each).status_code for each in posts[:7]} == {202}
        postgres_server.halt()
        try:
            refused = post(port, posts[7])
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
            assert refused.json() == {"error": "The rows could not be kept; send them again"}
            daemon.until(lambda: "The state cannot be saved: " in agent.get("/-/ready")[1], "it says why")
            assert agent.get("/-/healthy")[0] == agent.get("/metrics")[0] == 200
        finally:
            postgres_server.start()
        wait_until(lambda: post(port, posts[7]).status_code == 202, "posts are taken again")
        assert {post(port, each).status_code for each in posts[8:]} == {202}
        daemon.until(lambda: daemon.metrics().used == 1000, "all is used")
        daemon.until(lambda: agent.ready, "it is ready again")
        written = tmp_path / "away.ndjson"
        daemon.until(lambda: written.stat().st_size >= len(expected), "all is written")
        assert_adds_up(daemon, sent=1000)
        assert daemon.end()[0] == 0, daemon.log
    assert written.read_bytes() == expected


def test_forget_reaches_posts_in_the_database(tmp_path: Path, postgres_server: PostgresServer) -> None:
    rows = answers(np.random.default_rng(0), 60)
    agent, port = poster(tmp_path, postgres_server, "one", "forgets", every=600, lease=1)
    config = tmp_path / "one" / "config.yaml"
    with agent.daemon as daemon:
        wait_until(lambda: agent.ready, "it is ready")
        assert post(port, rows).status_code == 202
        daemon.send(signal.SIGKILL)
    database = PostgresDatabase(postgres_server.dsn, "forgets")
    wait_until(lambda: not database.is_held(), "the lease has ended")
    gone = str(rows[7]["id"])
    assert "spool of http: 1 line removed." in command_here("forget", config, gone).stdout
    with postgres_server.connection() as connection:
        ((kept,),) = connection.execute("SELECT lines FROM forgets.spool").fetchall()
    assert (gone.encode() in kept, kept.count(b"\n")) == (False, 60)
    agent, port = poster(tmp_path, postgres_server, "two", "forgets")
    config = tmp_path / "two" / "config.yaml"
    with agent.daemon as daemon:
        daemon.until(lambda: daemon.metrics().used == 59, "the others are used")
        assert post(port, answers(np.random.default_rng(1), 10, "irm")).status_code == 202
        done = command_here("forget", config, "irm-1700000000-3")
        assert "spool of http: used, and gone." in done.stdout, done.stdout + done.stderr
        assert daemon.end()[0] == 0, daemon.log


def test_commands_reach_an_agent_whose_state_is_in_a_database(
    tmp_path: Path, postgres_server: PostgresServer
) -> None:
    rows = answers(np.random.default_rng(0), 650)
    (tmp_path / "in.ndjson").write_bytes(ndjson(rows))
    store = {"postgres": postgres_server.dsn, "prefix": "commands"}
    sources = [{"kind": "file", "path": "in.ndjson", "follow": True}]
    config = plain(store=store, sources=sources, reports={"path": "windows.ndjson"})
    path = write_configuration(tmp_path, config)
    first, again = str(rows[-1]["id"]), str(rows[-2]["id"])
    options = ("--model", "erm", "--metric", "accuracy", "--reason", "a new head")

    assert "there is none yet" in command_here("forget", path, first).stdout
    done = command_here("rebaseline", path, *options)
    assert (done.returncode, "there is no store yet; start an agent first" in done.stderr) == (1, True)
    with DaemonProcess(tmp_path, config) as daemon:
        daemon.until_used(650)
        assert "store: 1 answer and 0 labels removed." in command_here("forget", path, first).stdout
        done = command_here("rebaseline", path, *options)
        assert done.returncode == 0, done.stderr
        assert "Asked for rebaseline" in daemon.log
        done = command_here("rebaseline", path, "--model", "none", *options[2:])
        assert (done.returncode, "model: there is no 'none'" in done.stderr) == (1, True), done.stderr
        status, chart = daemon.get("/api/v1/chart?task=t&model=erm&metric=accuracy")
        assert (status, json.loads(chart)["window"]) == (200, list(range(6)))
        wait_until(lambda: connections(postgres_server) == 3, "it has as many connections as the docs say")
        assert daemon.end()[0] == 0, daemon.log
    assert "store: 1 answer and 0 labels removed." in command_here("forget", path, again).stdout
    done = command_here("rebaseline", path, *options)
    assert "No agent runs on PostgreSQL at" in done.stdout
    assert (
        "of its table request) and is taken up when one is started; delete that row to take it back."
        in done.stdout
    )
    with DaemonProcess(tmp_path, config) as daemon:
        daemon.until(lambda: "Asked for rebaseline" in daemon.log, "what waited is carried out")
        assert daemon.end()[0] == 0, daemon.log
    with postgres_server.connection() as connection:
        left = connection.execute("SELECT count(*) FROM commands.request WHERE answer IS NULL").fetchone()
    assert left == (0,)
    done = command_here("verify", path, path, tmp_path / "in.ndjson")
    assert (done.returncode, "windows checked          6" in done.stdout) == (0, True), (
        done.stdout + done.stderr
    )
    done = command_here("report", path, "--out", tmp_path / "report.html")
    assert done.returncode == 0, done.stderr
    assert "erm" in (tmp_path / "report.html").read_text()


def connections(server: PostgresServer) -> int:
    query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'blindsight'"
    with server.connection() as connection:
        return connection.execute(query).fetchone()[0]


def test_a_backup_is_left_to_the_databases_tools(tmp_path: Path) -> None:
    store = {"postgres": "postgresql://agent@db/m", "prefix": "one"}
    done = command_here("backup", write_configuration(tmp_path, plain(store=store)), tmp_path / "copy")
    assert done.returncode == 2
    command = "pg_dump --format=custom --schema=one --file="
    assert command in done.stderr
    assert done.stderr.count("postgresql://agent@db/m") == 1


def test_an_agent_whose_commits_are_cut_off_writes_each_window_once(
    tmp_path: Path, postgres_server: PostgresServer
) -> None:
    records = list(stream(12_000, seed=3))
    expected = alone(tmp_path, records)
    (shown,) = free_ports(1)
    growing, written = tmp_path / "stream.ndjson", tmp_path / "killed.ndjson"
    growing.write_bytes(b"")
    with cutting(postgres_server.port, b"COMMIT", arrives=True) as (port, cut, _):
        address = f"host=127.0.0.1 port={port} user=owner dbname=postgres"
        agent = Agent(tmp_path, configuration(address, "cut", shown), "one", shown)
        with agent.daemon as daemon, growing.open("a", encoding="utf-8") as file:
            daemon.until(lambda: agent.ready, "it is ready")
            for start in range(0, len(records), len(records) // 5):
                before = daemon.log.count("lost while a checkpoint was committed")
                cut.set()
                file.write("".join(f"{line}\n" for line in records[start : start + len(records) // 5]))
                file.flush()
                wanted = before + 1
                daemon.until(
                    lambda wanted=wanted: daemon.log.count("lost while a checkpoint was committed") >= wanted,
                    "an answer got lost",
                )
                cut.clear()
                daemon.until(lambda: agent.ready, "it has found out")
            daemon.until(lambda: written.stat().st_size >= len(expected), "all is written")
            assert daemon.end()[0] == 0, daemon.log
    assert written.read_bytes() == expected


def committed(store: PostgresStore, *what: object) -> bool:
    try:
        store.commit(*what)  # type: ignore[arg-type]
    except StoreAwayError:
        return False
    return True


@contextmanager
def cutting(port: int, word: bytes, arrives: bool) -> Iterator[tuple[int, threading.Event, threading.Event]]:
    """Yield a port before another one. It cuts a connection at a word of its client while the first event
    is set.

    While the second event is not set, nothing passes to the server.
    """
    cut, open_, listener = threading.Event(), threading.Event(), socket.create_server(("127.0.0.1", 0))
    opened: list[socket.socket] = [listener]
    open_.set()

    def forward(client: socket.socket, server: socket.socket, dead: threading.Event) -> None:
        with suppress(OSError):
            while data := client.recv(1 << 16):
                open_.wait(PATIENCE_SECONDS)
                if word in data and cut.is_set():
                    dead.set()
                    if arrives:
                        server.sendall(data)
                        return  # with the answer to it the connection ends
                    break
                server.sendall(data)
        end(client, server)

    def answer(client: socket.socket, server: socket.socket, dead: threading.Event) -> None:
        with suppress(OSError):
            while (data := server.recv(1 << 16)) and not dead.is_set():
                client.sendall(data)
        end(client, server)

    def end(*sockets: socket.socket) -> None:
        for each in sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def serve() -> None:
        with suppress(OSError):
            while True:
                client = listener.accept()[0]
                opened.append(client)
                ends = client, socket.create_connection(("127.0.0.1", port)), threading.Event()
                opened.append(ends[1])
                for pump in (forward, answer):
                    threading.Thread(target=pump, args=ends, daemon=True).start()

    serving = threading.Thread(target=serve, daemon=True)
    serving.start()
    try:
        yield listener.getsockname()[1], cut, open_
    finally:
        end(*opened)
        serving.join()
        for each in opened:
            each.close()
