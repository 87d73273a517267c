"""Faults of a database and its driver: late and odd rows, size, errors at any call, silence."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from secrets import token_hex
from types import ModuleType
from typing import Any

import psutil
import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.sql import progress
from connectors.sql import source as sql
from connectors.sql.database import SqlDatabase, import_driver
from connectors.sql.values import low_rank, rank, value_below, value_below_rank
from monitor.base.codec import pack
from monitor.base.errors import SourceError
from monitor.base.records import id_keys
from monitor.base.source import SourceCounts
from monitor.config.sql import SqlSourceConfig
from tests.connectors.sql.test_source import New, Reader, Table, decoded, new, numbered, table
from tests.daemon import DaemonProcess, configuration, run_module
from tests.services.postgres_server import PostgresServer
from tests.services.process import PATIENCE_SECONDS, wait_until

__all__ = ["new", "table"]
FORMS = (
    "%Y-%m-%d",
    "%Y%m%d",
    "%Y-%m-%d %H:%M",
    "%Y-%m-%dT%H:%MZ",
    "%Y-%m-%dT%H:%M:%S",
    "%Y-%m-%d %H:%M:%S.%f",
    "%Y-%m-%dT%H:%M:%S.%f+05:00",
    "%Y%m%dT%H%M%SZ",
    "%Y%m%dT%H%M",
    "%Y-%m-%dT%H",
)
TIMES = st.datetimes(datetime(1000, 1, 1), datetime(2100, 1, 1))
DISTANCES = st.floats(0, 3e6)


# ── values of the rising column ──


@given(TIMES, TIMES, DISTANCES, st.sampled_from(FORMS))
def test_text_below_sorts_before_every_text_of_its_form_from_there_on(
    moment: datetime, other: datetime, distance: float, form: str
) -> None:
    value, text = moment.strftime(form), other.strftime(form)
    low = value_below(value, distance)
    assert low <= value
    assert low_rank(value, distance) <= (rank(value) or 0.0)
    if (rank(text) or 0.0) >= low_rank(value, distance):
        assert text >= low, "a look that begins there has it"


@given(
    st.one_of(st.integers(-(1 << 70), 1 << 70), st.floats(-1e30, 1e30), st.decimals(-1000, 1000), TIMES),
    st.floats(0, 1e9),
)
def test_a_value_at_most_has_a_rank_below_the_place(value: Any, distance: float) -> None:
    place = (rank(value) or 0.0) - distance
    low = value_below_rank(value, place)
    assert low is None or (rank(low) or 0.0) <= place


@pytest.mark.parametrize("first", ["0001-01-01 00:00:00", "20261120", "2026-11-20T10:00Z", "2026-11-20"])
def test_ordinary_times_as_text_are_read_and_so_are_later_ones(table: Table, new: New, first: str) -> None:
    table.do("DROP TABLE labels")
    table.do("CREATE TABLE labels (id TEXT, label TEXT, updated TEXT)")
    table.add(("a", first), ("b", first))
    reader = Reader(new())
    reader.until(2)
    saved = reader.position
    later = first.replace("20261120", "20261121").replace("10:00", "10:30").replace("11-20", "11-21")
    table.add(("c", later), ("d", first if later == first else later))
    assert sorted(reader.until(4)) == ["a", "b", "c", "d"]
    assert sorted(Reader(new(saved)).until(2)) == ["c", "d"]
    assert decoded(list(reader.raws), reader.source) == []


def test_zero_times_stand_beside_good_ones(table: Table, new: New) -> None:
    table.do("DROP TABLE labels")
    table.do("CREATE TABLE labels (id TEXT, label TEXT, updated TEXT)")
    table.add(*[(f"z{i}", "0001-01-01 00:00:00") for i in range(20)], ("a", "2026-01-01 00:00:00"))
    reader = Reader(new())
    reader.until(21)
    table.add(("b", "2026-01-01 00:00:01"))
    assert reader.until(22)[-1] == "b"
    assert reader.source.counts == SourceCounts()


def test_an_integer_too_large_for_the_store_is_kept_exactly(
    postgres_server: PostgresServer, new: New
) -> None:
    name = f"large_{token_hex(4)}"
    postgres_server.execute(f"CREATE TABLE {name} (id text, label text, updated numeric)")
    postgres_server.execute(f"INSERT INTO {name} VALUES ('a', 'yes', 1e30), ('b', 'yes', 1e30 + 1)")
    more = {"driver": "psycopg", "dsn": postgres_server.dsn, "table": name}
    reader = Reader(new(**more))
    reader.until(2)
    assert Reader(new(reader.position, **more)).until(0) == []


# ── late rows ──


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count late rows after each look."""
    monkeypatch.setattr(sql, "COUNT_SECONDS", 0.0)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("change", ["none", "update", "delete", "truncate"])
def test_late_rows_are_counted_whatever_became_of_the_rows_before(
    postgres_server: PostgresServer, new: New, change: str
) -> None:
    name = f"late_{token_hex(4)}"
    numbered(postgres_server, name, 1000)
    more = {"driver": "psycopg", "dsn": postgres_server.dsn, "table": name, "overlap_seconds": 100}
    reader = Reader(new(**more))
    reader.until(1000)
    used = 1000
    if change == "update":
        postgres_server.execute(f"UPDATE {name} SET updated = updated + 2000")
        used += 1000
    elif change != "none":
        postgres_server.execute(f"DELETE FROM {name}" if change == "delete" else f"TRUNCATE {name}")
    reader.until(used)
    late = "SELECT 'yes', 'late' || id, id FROM generate_series(101, 600) id"
    postgres_server.execute(f"INSERT INTO {name} {late}")
    reader.until(used)
    assert reader.source.counts == SourceCounts(gap_records=500)
    again = Reader(new(reader.position, **more))
    again.until(0)
    assert again.source.counts == SourceCounts(), "each is counted once, over a restart too"


@pytest.mark.usefixtures("at_once")
def test_no_row_of_a_large_transaction_is_reported_lost(
    postgres_server: PostgresServer, new: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, bound in (("MOST_KNOWN", 100), ("MOST_COUNTED", 40), ("TIED", 10)):
        monkeypatch.setattr(progress, key, bound)
    name = f"bulk_{token_hex(4)}"
    postgres_server.execute(f"CREATE TABLE {name} (id bigint, label text, updated bigint)")
    bulk = "SELECT id, 'yes', 50 FROM generate_series(1, 750) id"
    postgres_server.execute(f"INSERT INTO {name} {bulk}")
    more = {"driver": "psycopg", "dsn": postgres_server.dsn, "table": name, "batch_rows": 30}
    reader = Reader(new(**more))
    reader.until(750)
    for number in range(1000, 1060):
        postgres_server.execute(f"INSERT INTO {name} VALUES (%s, 'yes', %s)", number, number // 10)
    reader.until(810)
    reader.source.close()
    again = Reader(new(reader.position, **more))
    assert again.until(0) == []
    assert (reader.source.counts, again.source.counts) == (SourceCounts(), SourceCounts())


@pytest.mark.usefixtures("at_once")
def test_a_table_that_was_replaced_is_said_and_counted_once(
    table: Table, new: New, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(progress, "MOST_COUNTED", 20)
    table.add(*[(str(i), i) for i in range(1000)])
    reader = Reader(new(batch_rows=10))
    reader.until(1000)
    table.do("DELETE FROM labels")
    reader.until(1000)
    assert reader.source.counts == SourceCounts(), "an empty table has lost nothing"
    table.add(*[(f"new{i}", i) for i in range(100)])
    reader.until(1000)
    reader.until(1000)
    assert reader.source.counts == SourceCounts(gap_records=1)
    assert "source labels: none of the rows read last is there any more, and no row has a value of" in (
        caplog.text
    )
    table.add(("later", 2000))
    assert reader.until(1001)[-1] == "later"


@pytest.mark.usefixtures("at_once")
def test_rows_of_one_value_that_are_replaced_are_not_read_twice(
    table: Table, new: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "MOST_KNOWN", 8)
    monkeypatch.setattr(progress, "TIED", 3)
    table.add(*[(f"{i:02}", 7) for i in range(30)])
    reader = Reader(new(batch_rows=5))
    reader.until(30)
    assert reader.source._progress.tied == 7
    table.do("DELETE FROM labels WHERE id > '10'")
    again = Reader(new(reader.position, batch_rows=5))
    assert again.until(0) == []
    assert again.source.counts == SourceCounts(gap_records=1), "nobody knows which of the others were read"


# ── memory ──


def read_within(mib: int, rows: int, **section: Any) -> dict[str, int]:
    section = {"kind": "sql", "cursor": "updated", "poll_seconds": 0.05} | section
    done = run_module("tests.connectors.sql.reading_within", json.dumps(section), str(rows), str(mib))
    assert done.returncode == 0, done.stderr
    figures: dict[str, int] = json.loads(done.stdout)
    return figures


LARGE = {
    "many large rows after small ones": (20_200, 400, 300_000, 0),
    "many huge rows": (10, 100, 8_000_000, 100),
    "one huge row": (10, 1, 150_000_000, 1),
}


@pytest.mark.parametrize("case", LARGE)
def test_memory_of_postgresql_rows_is_bounded_by_bytes(postgres_server: PostgresServer, case: str) -> None:
    small, large, size, broken = LARGE[case]
    name = f"memory_{token_hex(4)}"
    columns = "id::text, 'yes' AS label, id AS updated"
    made = f"SELECT {columns}, 'hi' AS prompt FROM generate_series(1, {small}) id"
    postgres_server.execute(f"CREATE TABLE {name} AS {made}")
    postgres_server.execute(
        f"INSERT INTO {name} SELECT {columns}, repeat('x', {size}) "
        f"FROM generate_series({small + 1}, {small + large}) id"
    )
    figures = read_within(100, small + large, dsn=postgres_server.dsn, table=name)
    assert (figures["rows"], figures["broken"]) == (small + large, broken)
    assert figures["peak"] < 64


def test_memory_of_json_that_was_compressed_and_of_a_thousand_columns_is_bounded(
    postgres_server: PostgresServer,
) -> None:
    name = f"wide_{token_hex(4)}"
    more = ", ".join(f"repeat('w', 3) AS c{i}" for i in range(1000))
    deep = "'yes' AS label, jsonb_build_object('a', repeat('x', 30000000)) AS document"
    postgres_server.execute(
        f"CREATE TABLE {name} AS SELECT id, id AS updated, 'yes' AS label, {more} "
        "FROM generate_series(1, 600) id"
    )
    postgres_server.execute(
        f"CREATE TABLE {name}_json AS SELECT id, id AS updated, {deep} FROM generate_series(1, 5) id"
    )
    wide = read_within(100, 600, dsn=postgres_server.dsn, table=name)
    assert (wide["rows"], wide["broken"]) == (600, 0)
    documents = read_within(100, 5, dsn=postgres_server.dsn, table=f"{name}_json")
    assert (documents["rows"], documents["broken"]) == (5, 5)


@pytest.mark.parametrize("case", LARGE)
def test_memory_of_sqlite_rows_is_bounded_by_bytes(table: Table, case: str) -> None:
    small, large, size, broken = LARGE[case]
    table.do("ALTER TABLE labels ADD COLUMN prompt TEXT")
    table.do("CREATE INDEX by_updated ON labels (updated, id)")
    table.do(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
        "INSERT INTO labels SELECT i, 'yes', i, 'hi' FROM n",
        (small,),
    )
    table.do(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) INSERT INTO labels "
        "SELECT 1000000 + i, 'yes', 1000000 + i, replace(hex(zeroblob(?)), '00', 'x') FROM n",
        (large, size),
    )
    # Before 3.43 SQLite itself holds a cell to measure it.
    room = 100 if sqlite3.sqlite_version_info >= (3, 43) else 100 + 2 * size // 10**6
    figures = read_within(room, small + large, driver="sqlite3", dsn=str(table.path), table="labels")
    assert (figures["rows"], figures["broken"]) == (small + large, broken)


# ── an exception of the driver at any call ──

ERRORS: tuple[Callable[[], Exception], ...] = (
    lambda: sqlite3.OperationalError("database is locked"),
    lambda: psycopg.OperationalError("gone"),
    lambda: OSError("cut"),
    lambda: ValueError("odd"),
    lambda: MemoryError(),
    lambda: KeyError("x"),
    lambda: RuntimeError("bug"),
)


class Faults:
    """A driver that raises an exception at one call, counted from 1."""

    def __init__(self) -> None:
        self.calls, self.at, self.error = 0, 0, ERRORS[0]

    def call(self) -> None:
        self.calls += 1
        if self.calls == self.at:
            raise self.error()


def failing(of: type, faults: Faults, *methods: str, **others: Any) -> type:
    """Derive a class of a driver that may fail before each of these methods, and after `close`."""

    def before(name: str) -> Any:
        def called(self: Any, *rest: Any, **more: Any) -> Any:
            faults.call()
            return getattr(of, name)(self, *rest, **more)

        return called

    def close(self: Any) -> None:
        of.close(self)  # type: ignore[attr-defined]
        faults.call()

    return type(of.__name__, (of,), {**{name: before(name) for name in methods}, "close": close, **others})


def faulty_driver(name: str, faults: Faults) -> ModuleType:
    def stream(self: Any, *rest: Any, **more: Any) -> Iterator[Any]:
        for row in psycopg.Cursor.stream(self, *rest, **more):
            faults.call()
            yield row

    def make_cursor(self: Any) -> Any:
        faults.call()
        return sqlite3.Connection.cursor(self, cursor)

    def connect(*rest: Any, **more: Any) -> Any:
        faults.call()
        return make(*rest, **more)

    make: Callable[..., Any]
    if name == "sqlite3":
        cursor = failing(sqlite3.Cursor, faults, "execute", "fetchone")
        connection = failing(sqlite3.Connection, faults, "rollback", cursor=make_cursor)
        make = partial(sqlite3.connect, factory=connection)
    else:
        cursor = failing(psycopg.Cursor, faults, "execute", stream=stream)
        connection = failing(psycopg.Connection, faults, "rollback")
        make = partial(connection.connect, cursor_factory=cursor)  # type: ignore[attr-defined]
    driver = ModuleType(f"{name}.faulty")
    vars(driver).update({**vars(sys.modules[name]), "connect": connect, "__name__": driver.__name__})
    return driver


@pytest.fixture(params=["sqlite3", "psycopg"])
def faulty(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Return faults of a driver, the section of a source that uses it, and a way to write to its table."""
    faults, name = Faults(), f"faulty_{token_hex(4)}"
    create = f"CREATE TABLE {name} (id TEXT, label TEXT, updated BIGINT)"
    if request.param == "sqlite3":
        path = tmp_path / "labels.db"

        def do(statement: str) -> None:
            with closing(sqlite3.connect(path)) as connection:
                connection.execute(statement)
                connection.commit()

        place = str(path)
    else:
        server: PostgresServer = request.getfixturevalue("postgres_server")
        do, place = server.execute, server.dsn
    driver = faulty_driver(request.param, faults)
    monkeypatch.setitem(sys.modules, driver.__name__, driver)
    do(create)
    return faults, {"driver": driver.__name__, "dsn": place, "table": name}, do


@pytest.mark.usefixtures("at_once")
def test_late_rows_whose_time_cannot_be_read_are_counted_once(
    postgres_server: PostgresServer, new: New
) -> None:
    name = f"odd_{token_hex(4)}"
    postgres_server.execute(f"CREATE TABLE {name} (id text, label text, updated timestamptz)")
    first = "('a', 'yes', '2026-11-20 10:00Z'), ('early', 'yes', '-infinity')"
    postgres_server.execute(f"INSERT INTO {name} VALUES {first}")
    more = {"driver": "psycopg", "dsn": postgres_server.dsn, "table": name, "overlap_seconds": 10}
    reader = Reader(new(**more))
    reader.until(2)
    late = "('none', 'yes', '-infinity'), ('bc', 'yes', '0044-03-15 BC'), ('late', 'yes', '2026-11-20Z')"
    postgres_server.execute(f"INSERT INTO {name} VALUES {late}")
    reader.until(2)
    assert reader.source.counts == SourceCounts(gap_records=3)
    again = Reader(new(reader.position, **more))
    again.until(0)
    assert again.source.counts == SourceCounts()


@pytest.mark.usefixtures("at_once")
def test_an_exception_of_any_type_at_any_call_loses_and_doubles_nothing(faulty: Any, new: New) -> None:
    faults, section, do = faulty
    name, number, last = section["table"], 0, False
    while not last:
        number += 1
        do(f"DELETE FROM {name}")
        rows = ", ".join(f"('{i}', 'yes', {i})" for i in range(12))
        do(f"INSERT INTO {name} VALUES {rows}, ('null', 'yes', NULL)")
        faults.calls, faults.at, faults.error = 0, number, ERRORS[number % len(ERRORS)]
        reader = Reader(new(**section, batch_rows=5, overlap_seconds=4))
        raised = read_in_spite(reader, 13)
        do(f"INSERT INTO {name} VALUES ('late', 'yes', 3), ('in time', 'yes', 10)")
        raised += read_in_spite(reader, 14)
        raised += settle(reader)
        assert sorted(reader.ids) == sorted([*map(str, range(12)), "null", "in time"]), number
        assert reader.source.counts == SourceCounts(gap_records=1), number
        assert raised <= 1
        faults.at = 0
        reader.source.close()
        last = faults.calls < number
    assert number > 40


def read_in_spite(reader: Reader, count: int) -> int:
    """Read until `count` rows came; return how many errors there were."""
    raised = 0
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(reader.ids) < count and time.monotonic() < deadline:
        with suppress(SourceError):
            reader.once(0.0)
            continue
        raised += 1
    return raised


def settle(reader: Reader) -> int:
    """Return two whole looks more; how many errors there were."""
    with suppress(SourceError):
        reader.look()
        return 0
    reader.look()
    return 1


# ── silence ──


def test_limits_of_waiting_give_way_to_those_of_the_dsn_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where another value contains their names."""
    options: dict[str, Any] = {}

    def connect(dsn: str, **more: Any) -> None:
        options.update(more)
        raise psycopg.OperationalError("none here")

    monkeypatch.setattr(psycopg, "connect", connect)
    dsn = "host=127.0.0.1 dbname=connect_timeout keepalives_idle=7"
    settings = SqlSourceConfig(
        kind="sql", driver="psycopg", dsn=dsn, table="t", cursor="updated", options={"tcp_user_timeout": 1}
    )
    with pytest.raises(psycopg.OperationalError, match="none here"):
        SqlDatabase(settings, import_driver("psycopg")).connect()
    assert options == {"connect_timeout": 10, "tcp_user_timeout": 1}


@contextmanager
def stopped(server: PostgresServer) -> Iterator[None]:
    """Yield all processes of a server stand still."""
    processes = [server.pid, *(each.pid for each in psutil.Process(server.pid).children(recursive=True))]
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGCONT)


def test_a_server_that_stops_in_the_middle_is_left_after_a_while_and_read_on_when_it_is_back(
    postgres_server: PostgresServer, new: New
) -> None:
    name = f"stopped_{token_hex(4)}"
    numbered(postgres_server, name, 12_000)
    more = {"driver": "psycopg", "dsn": f"{postgres_server.dsn} connect_timeout=2", "table": name}
    reader = Reader(new(**more, timeout_seconds=3, batch_rows=100))
    reader.once()
    with stopped(postgres_server), pytest.raises(SourceError) as error:
        wait_until(lambda: reader.once() < 0, "never")
    assert str(error.value) == (
        "Database by psycopg: no answer within 3 s; see that it works, index updated, or raise "
        "timeout_seconds"
    )
    read_in_spite(reader, 12_000)  # on a busy machine the server may take longer than that again
    assert reader.ids == [str(number) for number in range(1, 12_001)]
    assert reader.source.counts == SourceCounts()


class HalfOpen:
    """A proxy that passes connections on to a server, until it stands still without closing any."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.open = threading.Event()
        self.open.set()
        self._sockets: list[socket.socket] = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._to))
                self._sockets += [near, far]
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self._pass, args=(one, other), daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(2000):
                self.open.wait()
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self.open.set()
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


def test_a_half_open_connection_is_cut_and_another_one_goes_on(
    postgres_server: PostgresServer, new: New
) -> None:
    name = f"half_{token_hex(4)}"
    numbered(postgres_server, name, 12_000)
    with closing(HalfOpen(postgres_server.port)) as proxy:
        dsn = postgres_server.dsn.replace(f"port={postgres_server.port}", f"port={proxy.port}")
        more = {"driver": "psycopg", "dsn": f"{dsn} connect_timeout=2", "table": name}
        reader = Reader(new(**more, timeout_seconds=3, batch_rows=100))
        reader.once()
        proxy.open.clear()
        with pytest.raises(SourceError, match=r"no answer within 3 s"):
            wait_until(lambda: reader.once() < 0, "never")
        proxy.open.set()
        read_in_spite(reader, 12_000)
        assert reader.ids == [str(number) for number in range(1, 12_001)]
        reader.source.close()


def test_a_statement_of_sqlite_that_takes_too_long_is_ended(table: Table, new: New) -> None:
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS id, i AS updated, "
    source = new(table=None, query=f"{endless} 'yes' AS label FROM n", timeout_seconds=1)
    began = time.monotonic()
    with pytest.raises(SourceError, match=r"Database by sqlite3: no answer within 1 s; see that it works"):
        source.read(0.0)
    assert time.monotonic() - began < 30


def test_a_source_that_waits_is_not_up_before_it_gives_up(
    table: Table, new: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql, "QUIET_SECONDS", 0.2)
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS id, i AS updated, "
    source = new(table=None, query=f"{endless} 'yes' AS label FROM n", timeout_seconds=600)
    errors: list[BaseException] = []

    def read() -> None:
        try:
            source.read(0.0)
        except SourceError as error:
            errors.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    wait_until(lambda: source.trouble is not None, "it says so")
    assert source.trouble is not None
    assert source.trouble.startswith("the database has not answered for ")
    assert not source.up
    source.close()  # as an agent does that ends: the thread is let go
    thread.join(60)
    assert not thread.is_alive()
    assert len(errors) == 1


def test_the_agent_is_not_ready_within_half_a_minute_after_the_server_stopped(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    name = f"silent_{token_hex(4)}"
    numbered(postgres_server, name, 100)
    source = {"kind": "sql", "dsn": postgres_server.dsn, "table": name, "cursor": "updated"}
    settings = configuration(
        sources=[source | {"poll_seconds": 0.1}], store={"path": "state", "every_seconds": 0.1}
    )
    with DaemonProcess(tmp_path, settings) as daemon:
        daemon.until_value(100, "labels_received_total", source=name)
        daemon.until(lambda: daemon.get("/-/ready")[0] == 200, "it is ready")
        with stopped(postgres_server):
            began = time.monotonic()
            wait_until(lambda: daemon.get("/-/ready")[0] == 503, "it is not ready")
            assert time.monotonic() - began < 30
            reason = daemon.get("/-/ready")[1]
            assert f"Source {name} is stuck: the database has not answered for " in reason
        daemon.until(lambda: daemon.get("/-/ready")[0] == 200, "it is ready again")
        assert daemon.metrics().value("source_gap_records_total", source=name) == 0
        assert daemon.end()[0] == 0


# ── what an older version saved ──


def test_a_position_of_an_older_version_goes_on_without_a_row_twice(table: Table, new: New) -> None:
    table.add(*[(str(i), i) for i in range(100)], ("null", None), ("odd", "soon"))
    known = [(progress._Former._digest(str(i)), float(i)) for i in range(89, 100)]
    known.append((progress._Former._digest(("odd", "soon")), float("inf")))
    without = progress._Former._digest("null").to_bytes(8, "little")
    former = {
        "place": 102,
        "high": 99,
        "floor": None,
        "known": progress._bytes(dict.fromkeys(known)),
        "without": without,
        "settled": [89, 89],
    }
    reader = Reader(new({"labels": former}))
    assert reader.until(0) == []
    table.add(("new", 100))
    assert reader.until(1) == ["new"]
    assert "known" not in reader.position["labels"], "digests without salt are gone after one look"


def test_a_floor_of_an_older_version_goes_on_behind_its_id_and_no_longer_holds_it(
    table: Table, new: New
) -> None:
    table.add(*[(f"id-{i:02}", 7) for i in range(30)])
    former = {"place": 20, "high": 7, "floor": [7, "id-19"], "known": b"", "without": b"", "settled": None}
    reader = Reader(new({"labels": former}))
    assert reader.until(10) == [f"id-{i:02}" for i in range(20, 30)]
    assert b"id-" not in pack(reader.position)
    assert Reader(new(reader.position)).until(0) == []


@pytest.mark.usefixtures("at_once")
def test_ids_that_are_forgotten_are_in_no_position_and_no_row_counts_as_late_for_it(
    table: Table, new: New
) -> None:
    table.add(*[(f"patient-{i}", i) for i in range(100)])
    reader = Reader(new())
    reader.until(100)
    for name in ("patient-5", "patient-95"):
        table.do(f"DELETE FROM labels WHERE id = '{name}'")
    keys = id_keys(["patient-5", "patient-95"])
    before = reader.position["labels"]
    salted = [
        key.to_bytes(8, "little") for key in reader.source._progress.hash_ids(["patient-5", "patient-95"])
    ]
    assert all(key in before["rows"] for key in salted)
    after = reader.source.without(before, keys)
    assert not any(key in after["rows"] for key in salted)
    reader.source.forget(keys)
    reader.until(100)
    assert not any(key in reader.position["labels"]["rows"] for key in salted)
    assert reader.source.counts == SourceCounts()
