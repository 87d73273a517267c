"""Tables of a real PostgreSQL and of SQLite: each row once, also one that commits late."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from secrets import token_hex
from types import ModuleType
from typing import Any

import pytest
from pydantic import ValidationError

from connectors.formats.decode.decoder import Decoder
from connectors.formats.wires.choice import wire_of
from connectors.sql import progress
from connectors.sql import source as sql
from connectors.sql.source import SqlSource
from monitor.base.codec import pack, unpack
from monitor.base.errors import MissingExtraError, SourceError
from monitor.base.records import TaskLayout
from monitor.base.source import Raw, RawPosition, RawTable, SourceCounts
from monitor.config.sql import SqlSourceConfig
from tests.services.postgres_server import PASSWORD, PostgresServer
from tests.services.process import wait_until

LAYOUT = TaskLayout("t", ("no", "yes"))
New = Callable[..., SqlSource]


class Reader:
    """A reader of a source that keeps rows and the newest position, as a store would have it."""

    def __init__(self, source: SqlSource) -> None:
        self.source = source
        self.raws: list[RawTable] = []
        self.position: dict[str, Any] = {}

    @property
    def ids(self) -> list[Any]:
        return [each for raw in self.raws for each in raw.columns["id"]]

    def once(self, timeout_seconds: float = 0.2) -> int:
        raws = self.source.read(timeout_seconds)
        for raw in raws:
            assert isinstance(raw, RawTable | RawPosition)
            if isinstance(raw, RawTable):
                self.raws.append(raw)
            self.position = unpack(pack({raw.partition: raw.after}))
        return len(raws)

    def until(self, count: int) -> list[Any]:
        """Read until `count` rows came in all, and no more."""
        wait_until(lambda: self.once() >= 0 and len(self.ids) >= count, f"{count} came", pause=0.005)
        self.look()
        assert len(self.ids) == count, self.ids
        return self.ids

    def look(self) -> None:
        """Wait for one whole look at least, from its beginning."""
        for _ in range(2):
            before = self.source._next_poll
            wait_until(partial(self._is_past, before), "it has looked", pause=0.005)

    def _is_past(self, look: float) -> bool:
        self.once(0.0)
        return self.source._next_poll > look


class Table:
    """A table of SQLite, in a file."""

    def __init__(self, path: Path, rising: str = "INTEGER") -> None:
        self.path = path
        self.do(f"CREATE TABLE labels (id TEXT, label TEXT, updated {rising})")

    def do(self, statement: str, *rows: tuple[Any, ...]) -> None:
        with closing(sqlite3.connect(self.path)) as connection:
            connection.executemany(statement, rows or [()])
            connection.commit()

    def add(self, *rows: tuple[Any, Any]) -> None:
        """Add rows of an id and a value of the rising column."""
        self.do("INSERT INTO labels VALUES (?, 'yes', ?)", *rows)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path / "labels.db")


@pytest.fixture
def new(tmp_path: Path) -> Iterator[New]:
    """Yield a function that makes open sources of SQLite's table by default; close them in the end."""
    with ExitStack() as stack:

        def make(at: dict[str, Any] | None = None, **more: Any) -> SqlSource:
            place = {"driver": "sqlite3", "dsn": str(tmp_path / "labels.db"), "table": "labels"}
            rest = {"cursor": "updated", "poll_seconds": 0.05, "overlap_seconds": 10}
            section = {"kind": "sql", **place, **rest} | more
            source = SqlSource(SqlSourceConfig(**{k: v for k, v in section.items() if v is not None}))
            stack.callback(source.close)
            source.open(at or {})
            return source

        yield make


def numbered(server: PostgresServer, name: str, rows: int, label: str = "'yes'") -> None:
    """Make a table of rows 1, 2, …."""
    select = f"SELECT {label} AS label, id::text, id AS updated FROM generate_series(1, {rows}) id"
    server.execute(f"CREATE TABLE {name} AS {select}")


def decoded(raws: list[Raw], source: SqlSource) -> list[tuple[str, str]]:
    """Return reason and message of each reject."""
    chunk = Decoder([LAYOUT], "labels", wire=wire_of(source._settings)).decode(raws)
    return [(reject.reason.value, reject.message) for reject in chunk.rejects]


# ── each row once ──


def test_rows_come_by_the_rising_column_each_once_and_again_when_it_has_risen(table: Table, new: New) -> None:
    table.add(("b", 2), ("a", 1), ("c", 3))
    reader = Reader(new())
    assert reader.until(3) == ["a", "b", "c"]
    assert [raw.start for raw in reader.raws] == [0]
    table.add(("d", 3), ("e", 2))
    table.do("UPDATE labels SET label = 'no', updated = 4 WHERE id = 'a'")
    assert reader.until(6)[3:] == ["e", "d", "a"]
    assert reader.raws[-1].columns["label"][-1] == "no"
    assert (reader.raws[-1].start, reader.source.counts) == (3, SourceCounts())
    assert Reader(new(reader.position)).until(0) == []


def test_rows_of_one_value_are_each_used_once_over_batches_and_restarts(table: Table, new: New) -> None:
    names = [f"{i:02}" for i in range(20)]
    table.add(*[(name, 7) for name in names])
    reader, ids = Reader(new(batch_rows=3, overlap_seconds=0)), []
    while len(ids) < 20:
        reader.once()
        ids += reader.ids
        reader.source.close()
        reader = Reader(new(reader.position, batch_rows=3, overlap_seconds=0))
    assert ids == names
    assert reader.until(0) == []


def test_a_file_that_replaces_that_of_sqlite_is_read(table: Table, new: New, tmp_path: Path) -> None:
    table.add(("a", 1), ("b", 2))
    reader = Reader(new())
    reader.until(2)
    other = Table(tmp_path / "other.db")
    other.add(("a", 1), ("b", 2), ("c", 3))
    table.path.rename(tmp_path / "old.db")
    wait_until(lambda: raises(reader), "the source says that its file has gone")
    other.path.rename(table.path)
    assert reader.until(3)[-1] == "c"


def test_a_file_of_sqlite_that_was_replaced_beside_its_write_ahead_log_is_read(
    table: Table, new: New, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(table.path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = wal")
        connection.execute("INSERT INTO labels VALUES ('a', 'yes', 1)")
        reader = Reader(new())
        reader.until(1)
    other = Table(tmp_path / "other.db")
    other.add(("b", 2))
    other.path.rename(table.path)
    assert reader.until(2) == ["a", "b"]
    with closing(sqlite3.connect(table.path)) as connection:
        assert connection.execute("SELECT id FROM labels").fetchall() == [("b",)]


def raises(reader: Reader) -> bool:
    """Return whether reading fails."""
    try:
        reader.once(0.0)
    except SourceError:
        return True
    return False


def test_a_transaction_that_commits_late_is_found_once(postgres_server: PostgresServer, new: New) -> None:
    name = f"late_{token_hex(4)}"
    postgres_server.execute(
        f"CREATE TABLE {name} (id text, label text DEFAULT 'yes', updated timestamptz DEFAULT now())"
    )
    insert = f"INSERT INTO {name} VALUES (%s)".encode()
    more = {"driver": "psycopg", "dsn": postgres_server.dsn, "table": name, "overlap_seconds": 300}
    slow, quick = postgres_server.connection(), postgres_server.connection()
    with slow, quick:
        slow.execute(insert, ["slow"])  # its updated is that of the beginning
        for number in range(3):
            quick.execute(insert, [f"quick{number}"])
            quick.commit()
        reader = Reader(new(**more))
        assert reader.until(3) == ["quick0", "quick1", "quick2"]
        saved = reader.position
        slow.commit()
        assert reader.until(4)[3:] == ["slow"]
    assert Reader(new(reader.position, **more)).until(0) == []
    assert Reader(new(saved, **more)).until(1) == ["slow"], "over a restart too"
    chunk = Decoder([LAYOUT], "labels").decode(reader.raws)
    assert [len(batch) for batch in chunk.labels] == [4]


@pytest.mark.parametrize(
    ("rising", "values", "later"),
    [
        ("TEXT", ["2026-01-01 10:00:00", "2026-01-01 10:00:05.5"], "2026-01-01 09:59:59"),
        ("TEXT", ["2026-01-01T10:00:00+05:00", "2026-01-01T10:00:05+05:00"], "2026-01-01T09:59:58+05:00"),
        ("REAL", [1.5, 2.25], 1.75),
    ],
)
def test_the_rising_column_may_be_of_times_as_text_and_of_numbers(
    table: Table, new: New, rising: str, values: list[Any], later: Any
) -> None:
    table.do("DROP TABLE labels")
    table.do(f"CREATE TABLE labels (id TEXT, label TEXT, updated {rising})")
    table.add(*[(str(i), value) for i, value in enumerate(values)])
    reader = Reader(new())
    reader.until(len(values))
    table.add(("later", later))
    assert reader.until(len(values) + 1)[-1] == "later"
    assert Reader(new(reader.position)).until(0) == []


def test_a_column_of_dates_and_one_of_decimals_rise_too(postgres_server: PostgresServer, new: New) -> None:
    for kind, values in (("date", "2026-01-01 2026-01-02 2026-01-03"), ("numeric", "0.1 0.2 0.3")):
        name = f"{kind}_{token_hex(4)}"
        postgres_server.execute(f"CREATE TABLE {name} (id uuid, label text, updated {kind})")
        for value in values.split():
            postgres_server.execute(f"INSERT INTO {name} VALUES (gen_random_uuid(), 'yes', '{value}')")
        more = {"driver": "psycopg", "dsn": postgres_server.dsn, "table": name, "overlap_seconds": 1}
        reader = Reader(new(**more))
        reader.until(3)
        assert decoded(list(reader.raws), reader.source) == []
        assert Reader(new(reader.position, **more)).until(0) == []


# ── what cannot be used ──


def test_null_and_falling_values_are_counted_once_each_with_the_column(table: Table, new: New) -> None:
    table.add(("a", 5), ("n1", None), ("n2", None), (None, 6), ("text", "soon"))
    reader = Reader(new())
    reader.until(5)
    table.do("UPDATE labels SET updated = 4 WHERE id = 'a'")
    reader.until(6)
    null = "$: updated: NULL; give each row a value, or leave such rows out by a query"
    assert decoded(list(reader.raws), reader.source) == [
        ("malformed", "$: id: NULL; give each row an id"),
        ("malformed", "$: updated: expected a time or a number, got str"),
        ("malformed", null),
        ("malformed", null),
        (
            "malformed",
            "$: updated: it falls: this id was read with a greater value; let the column rise",
        ),
    ]
    assert Reader(new(reader.position)).until(0) == []
    table.do("UPDATE labels SET updated = 7 WHERE id = 'n1'")
    assert Reader(new(reader.position)).until(1) == ["n1"], "once it has a value it is used"


def test_a_time_far_ahead_is_rejected_and_does_not_hide_what_comes_after(table: Table, new: New) -> None:
    table.do("DROP TABLE labels")
    table.do("CREATE TABLE labels (id TEXT, label TEXT, updated TEXT)")
    table.add(("wrong", "2999-01-01 00:00:00"), ("a", "2026-01-01 00:00:00"))
    reader = Reader(new())
    assert reader.until(2) == ["a", "wrong"]
    table.add(("b", "2026-01-01 00:01:00"))
    assert reader.until(3)[2:] == ["b"]
    message = "$: updated: more than a day ahead of this machine's clock; correct the clock that set it"
    assert decoded(list(reader.raws), reader.source) == [("malformed", message)]


def test_rows_that_come_below_the_look_back_are_counted_as_lost(
    table: Table, new: New, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sql, "COUNT_SECONDS", 0.0)
    table.add(*[(str(i), i) for i in range(100)])
    reader = Reader(new())
    reader.until(100)
    table.add(*[(str(i), i) for i in range(100, 200)])
    reader.until(200)
    table.add(("lost", 120), ("lost too", 130), ("found", 195))
    assert reader.until(201)[-1] == "found"
    assert reader.source.counts == SourceCounts(gap_records=2)
    assert (
        "source labels: 2 rows came with a value of updated lower than what was looked at, and are lost; "
        "raise overlap_seconds, or let the column rise"
    ) in caplog.text
    again = Reader(new(reader.position))
    again.until(0)
    assert again.source.counts == SourceCounts(), "each is counted once"


# ── bounds ──


def test_where_the_look_back_holds_too_many_rows_it_is_said_and_each_row_is_still_used_once(
    table: Table, new: New, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(progress, "MOST_KNOWN", 8)
    monkeypatch.setattr(progress, "TIED", 3)
    names = [f"{i:02}" for i in range(50)]
    table.add(*[(name, 7) for name in names])
    reader, ids = Reader(new(batch_rows=5)), []
    while len(ids) < 50:
        reader.once()
        ids += reader.ids
        assert len(reader.source._progress._rows) <= 8
        reader.source.close()
        reader = Reader(new(reader.position, batch_rows=5))
    assert ids == names
    table.add(("later", 8), ("new", 30))
    assert reader.until(2) == ["later", "new"]
    assert Reader(new(reader.position)).until(0) == []
    message = "source labels: more than 8 rows within overlap_seconds: rows that come late before 7"
    assert message in caplog.text


def test_rows_without_a_value_are_counted_up_to_a_bound(
    table: Table, new: New, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(progress, "MOST_UNUSABLE", 6)
    table.add(*[(str(i), None) for i in range(20)])
    reader = Reader(new(batch_rows=3))
    reader.until(6)
    table.add(("a", 1))
    assert reader.until(7)[-1] == "a"
    assert "source labels: more than 6 rows have no usable value in updated: the others are" in caplog.text


def test_of_wide_rows_a_few_mib_are_held_and_a_huge_one_is_rejected(
    postgres_server: PostgresServer, new: New
) -> None:
    name = f"wide_{token_hex(4)}"
    numbered(postgres_server, name, 240, "repeat('x', 200000)")
    postgres_server.execute(f"INSERT INTO {name} VALUES (repeat('x', 2000000), 'huge', 241)")
    more = {"driver": "psycopg", "dsn": postgres_server.dsn, "table": name}
    reader = Reader(new(**more))
    reader.until(241)
    assert all(len(raw) <= 21 for raw in reader.raws), "21 of them are just more than 4 MiB"
    last = reader.raws[-1]
    assert dict(last.broken) == {len(last) - 1: "a row of more than 1048576 bytes; send less of it"}
    assert last.columns["label"][-1] is None, "it stayed in the database"


# ── the database ──


def test_a_database_that_goes_away_is_an_error_and_reading_goes_on_where_it_was(
    postgres_server: PostgresServer, new: New
) -> None:
    name = f"away_{token_hex(4)}"
    numbered(postgres_server, name, 50)
    reader = Reader(new(driver="psycopg", dsn=postgres_server.dsn, table=name, batch_rows=20))
    assert reader.once() == 1
    assert reader.source.up
    postgres_server.halt()
    try:
        with pytest.raises(SourceError, match=f"Database by psycopg, table {name}: "):
            wait_until(lambda: reader.once() < 0, "never")
        assert not reader.source.up
        with pytest.raises(SourceError, match=r"connection to server at .*Connection refused"):
            reader.once()
    finally:
        postgres_server.start()
    assert reader.until(50) == [str(i) for i in range(1, 51)]
    assert reader.source.up


def test_a_look_that_nobody_goes_on_with_ends_and_no_transaction_stays_open(
    postgres_server: PostgresServer, new: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"idle_{token_hex(4)}"
    numbered(postgres_server, name, 50)
    dsn = f"{postgres_server.dsn} application_name={name}"
    reader = Reader(new(driver="psycopg", dsn=dsn, table=name, batch_rows=20))
    reader.once()

    def has_transaction() -> bool:
        with postgres_server.connection() as connection:
            query = b"SELECT 1 FROM pg_stat_activity WHERE application_name = %s AND xact_start IS NOT NULL"
            return connection.execute(query, [name]).fetchone() is not None

    reader.source.keep_alive()
    assert has_transaction()
    monkeypatch.setattr(sql, "IDLE_SECONDS", 0.0)
    reader.source.keep_alive()
    wait_until(lambda: not has_transaction(), "it ends")
    reader.until(50)
    assert not has_transaction()


def test_a_query_has_its_own_conditions_and_names_and_only_reads(
    postgres_server: PostgresServer, new: New
) -> None:
    name = f"votes_{token_hex(4)}"
    postgres_server.execute(
        f'CREATE TABLE {name} (answer int, vote text, "at time" timestamptz DEFAULT now())'
    )
    postgres_server.execute(f"CREATE SEQUENCE {name}_seq")
    for vote in ("yes", "100%", "no"):
        postgres_server.execute(f"INSERT INTO {name} VALUES (%s, %s)", len(vote), vote)
    query = f"SELECT answer, vote, \"at time\" AS at FROM {name} WHERE vote NOT LIKE '100%' -- no; numbers"
    more = {"driver": "psycopg", "dsn": postgres_server.dsn, "table": None, "cursor": "at", "id": "answer"}
    mapping = {"id": "answer", "label": "vote", "time": "at"}
    source = new(query=query, mapping=mapping, **more)
    assert source.name == "sql"
    [raw] = source.read(5)
    chunk = Decoder([LAYOUT], "sql", wire=wire_of(source._settings)).decode([raw])
    assert (len(chunk.rejects), [len(batch) for batch in chunk.labels]) == (0, [2])
    source.read(0.2)
    postgres_server.execute(f"INSERT INTO {name} VALUES (7, '100% sure'), (8, 'yes')")
    [raw] = source.read(5)
    assert isinstance(raw, RawTable)
    assert raw.columns["answer"] == [8]
    writes = new(
        query=f"SELECT nextval('{name}_seq') AS answer, now() AS at, 'yes' AS vote", mapping=mapping, **more
    )
    with pytest.raises(
        SourceError, match=r"cannot execute nextval.. in a read-only transaction; a query may"
    ):
        writes.read(5)


def test_what_is_no_time_in_python_costs_its_row_at_most(postgres_server: PostgresServer, new: New) -> None:
    name = f"endless_{token_hex(4)}"
    postgres_server.execute(f"CREATE TABLE {name} (id text, label text, updated timestamptz, until date)")
    times = ("infinity", "-infinity", "0044-03-15 BC", "12026-01-01", "0001-01-01 00:00:00+00")
    for number, moment in enumerate(times):
        postgres_server.execute(f"INSERT INTO {name} VALUES (%s, 'yes', %s, 'infinity')", number, moment)
    postgres_server.execute(f"INSERT INTO {name} VALUES ('new', 'yes', now(), 'infinity')")
    more = {"driver": "psycopg", "dsn": postgres_server.dsn, "table": name}
    reader = Reader(new(**more))
    reader.until(6)
    message = "$: updated: expected a time or a number, got str"
    assert decoded(list(reader.raws), reader.source) == [("malformed", message)] * 4
    assert [*reader.raws[0].columns["until"]] == ["infinity"] * 6
    assert Reader(new(reader.position, **more)).until(0) == []
    for zone in ("Asia/Kolkata", "America/St_Johns"):
        in_zone = more | {"dsn": f"{postgres_server.dsn} options='-c timezone={zone}'"}
        assert Reader(new(reader.position, **in_zone)).until(0) == [], "no row comes again in another zone"


def test_a_time_that_python_cannot_hold_costs_nothing_but_its_own_row(
    postgres_server: PostgresServer, new: New
) -> None:
    name = f"endless_{token_hex(4)}"
    postgres_server.execute(
        f"CREATE TABLE {name} (label text, id text, updated int, until timestamptz, time timestamptz, d date)"
    )
    postgres_server.execute(
        f"INSERT INTO {name} VALUES ('yes', 'a', 1, 'infinity', '2026-11-20T10:00:00Z', '-infinity'), "
        "('yes', 'b', 2, NULL, 'infinity', NULL), "
        "('yes', 'c', 3, NULL, '10000-01-01T00:00:00Z', '0044-03-15 BC')"
    )
    [raw] = new(driver="psycopg", dsn=postgres_server.dsn, table=name).read(5)
    chunk = Decoder([TaskLayout("t", ("no", "yes"))], "db").decode([raw])
    assert [reject.reason.value for reject in chunk.rejects] == ["not_a_number", "time_format"]
    assert [len(labels) for labels in chunk.labels] == [1]


def test_sqlite_is_opened_to_read_and_a_wrong_path_makes_no_file(
    table: Table, new: New, tmp_path: Path
) -> None:
    source = new()
    source.read(0.0)
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        source._database._connection.execute("DELETE FROM labels")
    wrong = tmp_path / "no#such file.db"
    message = "Database by sqlite3, table labels: unable to open database file; correct dsn"
    with pytest.raises(SourceError) as error:
        new(dsn=str(wrong)).read(0.0)
    assert (str(error.value), wrong.exists()) == (message, False)


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"table": "none"}, "Database by sqlite3, table none: no such table: none; correct table, query"),
        ({"cursor": "at"}, "Database by sqlite3, table labels: no such column: at; correct table, query,"),
        ({"table": None, "query": "SELECT 1,"}, 'Database by sqlite3, query: near ")": syntax error; corr'),
        (
            {"mapping": {"label": "vote"}},
            "none of the columns is known (id, label, updated); the mapping reads",
        ),
        ({"options": {"colour": 1}}, "options: sqlite3 does not take them: …'colour'"),
    ],
)
def test_an_error_of_a_statement_says_what_to_correct(
    table: Table, new: New, more: dict[str, Any], text: str
) -> None:
    source = new(**more)
    for _ in range(2):
        with pytest.raises(SourceError) as error:
            source.read(0.0)
        assert all(
            part in str(error.value) for part in text.split("…")
        )  # the driver's words differ by version
        assert not source.up


def test_a_password_comes_from_a_file_and_a_refused_login_does_not_name_it(
    postgres_server: PostgresServer, new: New, tmp_path: Path
) -> None:
    name = f"rights_{token_hex(4)}"
    postgres_server.execute(f"CREATE TABLE {name} AS SELECT 1 AS id, 1 AS updated, 'yes' AS label")
    dsn = postgres_server.dsn.replace("user=owner", "user=reader")
    secret = tmp_path / "password"
    source = new(driver="psycopg", dsn=dsn, table=name, password_file=str(secret))
    with pytest.raises(SourceError, match=r"password_file: .* cannot be used: No such file"):
        source.read(0.0)
    secret.write_text("wrong-hunter2")
    with pytest.raises(
        SourceError, match=r"authentication failed for user .reader.; check the user"
    ) as error:
        source.read(0.0)
    assert "hunter2" not in str(error.value)
    secret.write_text(PASSWORD + "\n")
    with pytest.raises(SourceError, match=f"permission denied for table {name}.*; grant the user SELECT"):
        source.read(0.0)
    postgres_server.execute(f"GRANT SELECT ON {name} TO reader")
    assert len(source.read(5)) == 1


def test_a_driver_that_is_missing_or_none_is_an_error_that_says_so(
    new: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        SourceError, match=r"driver: the Python module no_driver cannot be imported .*; install"
    ):
        new(driver="no_driver")
    with pytest.raises(
        SourceError, match=r"driver: json is no DB-API 2.0 driver, as it lacks connect, param"
    ):
        new(driver="json")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(
        MissingExtraError, match=r"driver: psycopg needs .*pip install 'blindsight\[postgres\]'"
    ):
        new(driver="psycopg")


class NumericCursor(sqlite3.Cursor):
    """A cursor that binds `:1` by a sequence, as drivers of this style do; SQLite's own binds it by name."""

    def execute(self, query: str, values: Sequence[Any] | dict[str, Any] = ()) -> sqlite3.Cursor:
        if not isinstance(values, dict):
            values = {str(place): value for place, value in enumerate(values, 1)}
        return super().execute(query, values)


class NumericConnection(sqlite3.Connection):
    """A connection with such cursors."""

    def cursor(self, factory: type[sqlite3.Cursor] = NumericCursor) -> sqlite3.Cursor:
        return super().cursor(factory)


@pytest.mark.parametrize("style", ["qmark", "numeric", "named"])
def test_values_are_bound_in_the_style_of_the_driver(
    table: Table, new: New, style: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite knows three of the five styles; psycopg has another."""
    driver = ModuleType("styled")
    vars(driver).update({**vars(sqlite3), "paramstyle": style})
    if style == "numeric":
        driver.connect = partial(sqlite3.connect, factory=NumericConnection)
    monkeypatch.setitem(sys.modules, "styled", driver)
    table.add(("'; DROP TABLE labels; --", 1), ("b", 2))
    options = {"database": str(table.path), "check_same_thread": False}
    reader = Reader(new(driver="styled", dsn=None, options=options))
    reader.until(2)
    table.add(("c", 1))
    assert reader.until(3)[-1] == "c"


def test_a_sample_takes_the_first_rows(table: Table, new: New) -> None:
    table.add(*[(str(i), i) for i in range(50)])
    [raw] = SqlSource.sample(new()._settings, 7)
    assert isinstance(raw, RawTable)
    assert raw.columns["id"] == [str(i) for i in range(7)]


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"query": "SELECT 1"}, "expected one of table and query: name a table, or write a query"),
        ({"table": None}, "expected one of table and query: name a table, or write a query"),
        (
            {"cursor": "x; DROP"},
            "expected a name of letters, digits and _, got 'x; DROP'; for another,",
        ),
        ({"table": "a b"}, "expected a name of letters, digits and _, got 'a b'; for another, rename it"),
        ({"dsn": None}, "missing: where the database is"),
        (
            {"dsn": "host=db password=hunter2"},
            "expected no password in it, got one; give it as password_file",
        ),
        ({"dsn": "host=db sslpassword=hunter2"}, "expected no password in it, got one; give it as password"),
        ({"dsn": "postgresql://me:hunter2@db/x"}, "expected no password in it, got one; give it as password"),
    ],
)
def test_a_wrong_section_is_refused_with_what_to_do(more: dict[str, Any], text: str) -> None:
    section = {"kind": "sql", "dsn": "host=db", "table": "labels", "cursor": "updated"} | more
    with pytest.raises(ValidationError) as error:
        SqlSourceConfig(**{key: value for key, value in section.items() if value is not None})
    assert text in str(error.value)


def test_a_section_shows_no_secret_and_places_the_file_of_sqlite() -> None:
    section = {"kind": "sql", "driver": "sqlite3", "dsn": "labels.db", "table": "l", "cursor": "c"}
    settings = SqlSourceConfig(**section, options={"key": "hunter2"}, password_file="p")
    assert settings.resolve("/etc/b").dsn == "/etc/b/labels.db"
    assert settings.resolve("/etc/b").password_file == "/etc/b/p"
    assert "hunter2" not in repr(settings)
    assert "labels.db" not in repr(settings)
