"""The store in PostgreSQL: the tables of `monitor.store.schema` in a schema of their own, and a lease.

The lease is a row: its number, its owner, and until when it holds by the database's clock. Who finds it
expired takes it, with the next number. Each transaction of an agent begins by locking the row with the
agent's own number. So an agent that lost its lease finds no such row, and writes nothing, however long it was
paused and whatever its clock says; and nobody takes the lease while a transaction of its owner is under way.
The server ends a transaction whose agent has stood still for as long as a lease holds. It does not where the
agent stopped within a pipeline of statements: there whoever takes the lease ends it.
"""

from __future__ import annotations

import os
import random
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from monitor.base.errors import (
    CommitUnknownError,
    InUseError,
    LeaseLostError,
    SourceError,
    StoreAwayError,
    StoreError,
)
from monitor.base.files import read_secret
from monitor.base.registry import Extra
from monitor.base.state_changes import Changes
from monitor.reports.window_report import WindowReport, rfc3339
from monitor.store.database import Database, SqlConnection, SqlRows
from monitor.store.rings import SavedRings
from monitor.store.schema import create, migrate, refuse_newer
from monitor.store.store import BACKUP, PUT_META, StateStore, StoreReader

if TYPE_CHECKING:
    import psycopg

POSTGRES = Extra("postgres", ("psycopg",))

# A network that is gone must show within seconds, not within libpq's two hours: the lease runs.
_PATIENCE = {
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
    "target_session_attrs": "primary",  # of several hosts, the one that can be written
}
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.25, 5.0
_RENEWALS_A_LEASE = 3
_MEETS = ("40", "55")
"""Classes of errors of a statement that met another transaction: to be tried again in the same session."""
_COMES_BACK = ("starting up", "shutting down", "recovery mode", "too many", "connection slots")
_REMEDIES = {
    "password authentication failed": "check the user in store.postgres, and store.password_file",
    "no password supplied": "give store.password_file, or PGPASSWORD in the environment",
    "does not exist": "create it, or correct store.postgres",
    "no pg_hba.conf entry": "let this host in by the server's pg_hba.conf",
}
"""The remedy, by a part of the server's message."""

_LEASE = """
CREATE TABLE lease (
    name text PRIMARY KEY,
    number bigint NOT NULL,
    owner text NOT NULL,
    expires timestamptz NOT NULL,
    commits bigint NOT NULL
)
"""
_REQUEST = "CREATE TABLE request (id text PRIMARY KEY, body bytea NOT NULL, answer bytea)"
_WHOLE = "store"
"""Name of the lease on all of the state; its numbers begin with 1."""
_UNTIL = "clock_timestamp() + ? * interval '1 second'"
_TAKE = (
    f"UPDATE lease SET number = number + 1, owner = ?, expires = {_UNTIL} "
    "WHERE name = ? AND expires <= clock_timestamp() RETURNING number, commits"
)
_FREE = "SELECT 1 FROM lease WHERE name = ? AND expires <= clock_timestamp() FOR UPDATE"
_LOCK = "SELECT commits FROM lease WHERE name = ? AND number = ? FOR NO KEY UPDATE"
_HOLD = "SELECT commits FROM lease WHERE name = ? AND number = ? FOR KEY SHARE"
"""The modes: posts go beside each other and beside a checkpoint, and a take-over waits for both."""
_END_STUCK = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE xact_start IS NOT NULL "
    "AND wait_event = 'ClientRead' AND state_change < clock_timestamp() - ? * interval '1 second' "
    "AND pid IN (SELECT pid FROM pg_locks WHERE pid <> pg_backend_pid() "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
    "AND relation = to_regclass('lease')) "
    "AND EXISTS (SELECT FROM lease WHERE name = ? AND expires <= clock_timestamp())"
)
"""Ends transactions on an expired lease that have waited so long for their agent."""
_SHORT_WAIT, _LOCKED = "SET LOCAL lock_timeout = '1s'", "55P03"
"""Who takes the lease looks again rather than wait; the server's word for a lock that it did not get."""
_RENEW = f"UPDATE lease SET expires = {_UNTIL} WHERE name = ? AND number = ? RETURNING number"
_COUNT = f"UPDATE lease SET expires = {_UNTIL}, commits = ? WHERE name = ? AND number = ?"
_GIVE_UP = "UPDATE lease SET expires = clock_timestamp() WHERE name = ? AND number = ?"
_HELD = "SELECT expires > clock_timestamp() FROM lease WHERE name = ?"
_HOLDER = "SELECT number, owner, extract(epoch FROM expires)::float8 FROM lease WHERE name = ?"


class PostgresDatabase(Database):
    """A schema of a PostgreSQL database.

    Parameters
    ----------
    address : str
        As libpq takes it, without a password: ``postgresql://agent@db/monitoring``.
    prefix : str
        The schema.
    password_file : str, optional
        Read for each connection; without it libpq looks for PGPASSWORD and ``~/.pgpass``.

    Raises
    ------
    MissingExtraError
        The driver is not installed.
    StoreError
        The address is none.
    """

    setting = "store.prefix"
    afresh = "restore a backup, or give another store.prefix to start afresh"
    types: Mapping[str, str] = {
        "blob": "bytea",
        "integer": "bigint",
        "own_id": "bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
        "report_id": "bigint PRIMARY KEY",
        "by_key": "",
    }

    def __init__(self, address: str, prefix: str, password_file: str | None = None) -> None:
        POSTGRES.require("store.postgres")
        import psycopg
        from psycopg.conninfo import conninfo_to_dict

        self.errors = (psycopg.Error,)
        self.prefix = prefix
        self._password_file = password_file
        try:
            self._given = conninfo_to_dict(address)
        except psycopg.ProgrammingError as error:  # it may quote what it could not read
            raise StoreError(
                "store.postgres: no address of PostgreSQL; give one such as postgresql://agent@db/monitoring"
            ) from error
        host, port = self._given.get("host", "localhost"), self._given.get("port", 5432)
        self.name = f"PostgreSQL at {host}:{port}/{self._given.get('dbname', '')}, schema {prefix}"

    def connect(self, timeout_seconds: float | None = None, **session: object) -> psycopg.Connection[Any]:
        """A new connection, in which each statement is a transaction of its own.

        Parameters
        ----------
        timeout_seconds : float, optional
            For the connection itself.
        **session : object
            The server's settings.
        """
        import psycopg

        # A lock must show the row as it is by then, whatever the database's default.
        isolation = {"default_transaction_isolation": r"read\ committed"}
        session = {"search_path": self.prefix, **isolation, **session}
        options = " ".join(f"-c {key}={value}" for key, value in session.items())
        given = {**_PATIENCE, "application_name": "blindsight", **self._given}
        given["options"] = f"{self._given.get('options') or ''} {options}".strip()
        if timeout_seconds is not None:
            given["connect_timeout"] = max(2, round(timeout_seconds))
        if self._password_file is not None:
            try:
                given["password"] = read_secret("store.password_file", self._password_file)
            except SourceError as error:
                raise StoreError(str(error)) from error
        return psycopg.connect(autocommit=True, **given)  # type: ignore[arg-type]

    def reading(self, seconds: float = 10.0) -> PostgresConnection:
        with self.ours("be read"):
            milliseconds = round(1000 * seconds)
            return PostgresConnection(
                self, seconds, default_transaction_read_only="on", lock_timeout=milliseconds
            )

    def version(self, connection: SqlConnection) -> int | None:
        query = (
            "SELECT count(*), count(*) FILTER (WHERE relname IN ('meta', 'lease')) FROM pg_class "
            "WHERE relkind = 'r' AND relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = ?)"
        )
        tables, ours = connection.execute(query, (self.prefix,)).fetchone()
        if tables == 0:
            return None
        query = "SELECT value FROM meta WHERE key = 'version'"
        found = connection.execute(query).fetchone() if ours == 2 else None
        if found is None:
            raise StoreError(f"{self.name}, has tables of another program; give another store.prefix")
        return int(found[0])

    def set_version(self, connection: SqlConnection, version: int) -> None:
        connection.execute(PUT_META, ("version", str(version)))

    def explained(self, what: str, error: Exception) -> StoreError:
        import psycopg

        said = getattr(getattr(error, "diag", None), "message_primary", None) or str(error)
        text = "; ".join(line.strip() for line in said.splitlines() if line.strip()).rstrip(".")
        state = getattr(error, "sqlstate", None) or ""
        told = f"{self.name}, cannot {what}: {text}"
        if isinstance(error, psycopg.OperationalError):
            refused = any(sign in text for sign in ("FATAL", "no password")) and not any(
                sign in text for sign in _COMES_BACK
            )
            if state[:2] in ("08", "57") or state in ("25P03", "53300") or (not state and not refused):
                return StoreAwayError(told)
        if state == "53100":
            return StoreError(f"{told}; make room on the server's disk")
        if state == "25006":
            return StoreError(f"{told}; give the address of the primary server")
        if state == "42501":
            return StoreError(f"{told}; let the user create and own the schema {self.prefix}")
        if state == "42P01":
            return StoreError(f"{told}; its tables are gone: restore a backup, or restart to start afresh")
        remedy = next((f"; {remedy}" for sign, remedy in _REMEDIES.items() if sign in text), "")
        return StoreError(told + remedy)

    def held(self) -> bool | None:
        """Whether an agent has the lease; None where there is no store yet.

        Raises
        ------
        StoreError
            It cannot be told.
        """
        with closing(self.reading()) as connection, self.ours("be read"):
            if self.version(connection) is None:
                return None
            return bool(connection.execute(_HELD, (_WHOLE,)).fetchone()[0])

    def place(self, connection: SqlConnection) -> str:
        """Which tables these are: those of a restored backup, or of a copy, are others."""
        query = (
            "SELECT (SELECT system_identifier FROM pg_control_system()), d.oid::bigint, n.oid::bigint "
            "FROM pg_database d, pg_namespace n WHERE d.datname = current_database() AND n.nspname = ?"
        )
        return "/".join(map(str, connection.execute(query, (self.prefix,)).fetchone()))


class PostgresConnection:
    """A PostgreSQL connection with the interface of SQLite's, which reconnects after a loss or a failure.

    A session keeps what held when it began (that the database only reads, how long a statement may take), so
    that after an error another session is asked. After a failed attempt none is made for a while, twice as
    long each time.

    Parameters
    ----------
    database : PostgresDatabase
    timeout_seconds : float, optional
    **session : object
        See `PostgresDatabase.connect`.
    """

    def __init__(
        self, database: PostgresDatabase, timeout_seconds: float | None = None, **session: object
    ) -> None:
        self._new = partial(database.connect, timeout_seconds, **session)
        self._errors = database.errors
        self._of = self._new()
        self._within = False
        self._pause, self._next_try = _FIRST_PAUSE_SECONDS, 0.0
        self._refusal: Exception | None = None
        self._asked: float | None = None  # since when the server is waited for, monotonic

    @property
    def there(self) -> bool:
        """Whether it is not known to be lost."""
        return not self._of.closed

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> SqlRows:
        with self._asking() as run:
            return run.execute(_translated(statement), values, binary=True)

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> None:
        given = list(rows)
        if given:
            with self._asking() as run, run.cursor() as cursor:
                cursor.executemany(_translated(statement), given)

    def first_of_each(self, statement: str, rows: Sequence[Sequence[Any]]) -> list[Any]:
        """The first row of a query for each row of values, None where there is none; one wait for all."""
        found: list[Any] = []
        if rows:
            with self._asking() as run, run.cursor(binary=True) as cursor:
                cursor.executemany(_translated(statement), rows, returning=True)
                found.append(cursor.fetchone())
                while cursor.nextset():
                    found.append(cursor.fetchone())
        return found

    @contextmanager
    def transaction(self, what: str = "a checkpoint") -> Iterator[None]:
        """All or nothing of what is done inside; `what` that is, for messages.

        Raises
        ------
        CommitUnknownError
            The connection was lost with the last word.
        """
        self.execute("BEGIN")
        self._within = True
        try:
            yield
        except BaseException as error:
            self._take_back()
            self._drop_after(error)
            raise
        else:
            self._commit(what)
        finally:
            self._within = False

    def close(self) -> None:
        self._of.close()

    def cut(self, after_seconds: float) -> None:
        """End the wait of another thread that has waited too long for the server: its connection is lost."""
        asked = self._asked
        if asked is None or time.monotonic() - asked < after_seconds:
            return
        with suppress(OSError, *self._errors), socket.socket(fileno=os.dup(self._of.fileno())) as same:
            same.shutdown(socket.SHUT_RDWR)

    @contextmanager
    def _asking(self) -> Iterator[psycopg.Connection[Any]]:
        self._asked = time.monotonic()
        try:
            yield self._ready()
        except self._errors as error:
            if not self._within:
                self._drop_after(error)
            raise
        finally:
            self._asked = None

    def _take_back(self) -> None:
        try:
            with self._asking() as run:
                run.execute("ROLLBACK")
        except self._errors:
            self._of.close()

    def _drop_after(self, error: BaseException) -> None:
        """Close the session after an error, unless the error only met another transaction."""
        if isinstance(error, self._errors) and (getattr(error, "sqlstate", None) or "")[:2] not in _MEETS:
            self._of.close()

    def _commit(self, what: str) -> None:
        try:
            with self._asking() as run:
                ended = run.execute("COMMIT").statusmessage
        except self._errors as error:
            if not self._of.closed:
                raise
            raise CommitUnknownError(
                f"the connection to PostgreSQL was lost while {what} was committed ({error})"
            ) from error
        if ended != "COMMIT":  # the server says ROLLBACK, and no more, where a statement before has failed
            raise StoreError(f"PostgreSQL has taken {what} back, as one of its statements had failed")

    def _ready(self) -> psycopg.Connection[Any]:
        if not self._of.closed or self._within:
            return self._of
        if self._refusal is not None and time.monotonic() < self._next_try:
            raise self._refusal.with_traceback(None)  # it would grow with each time
        try:
            self._of = self._new()
        except self._errors as error:
            self._refusal = error
            # Agents that lost the same server must not come back all at once.
            self._next_try = time.monotonic() + self._pause * random.uniform(0.5, 1.0)
            self._pause = min(2 * self._pause, _LONGEST_PAUSE_SECONDS)
            raise
        self._pause, self._refusal = _FIRST_PAUSE_SECONDS, None
        return self._of


@lru_cache(maxsize=256)
def _translated(statement: str) -> bytes:
    """A statement with the driver's marks for values."""
    return statement.replace("%", "%%").replace("?", "%s").encode()


class PostgresStore(StateStore):
    """A store in PostgreSQL, with the lease on it.

    Parameters
    ----------
    database : PostgresDatabase
    keep_reports : int
        See `StateStore`.
    lease_seconds : float
        For so long nobody takes over from an agent that is not heard of.

    Raises
    ------
    InUseError
        Another agent has the lease.
    StoreAwayError
        The database cannot be reached.
    StoreError
        It cannot be used, or has no store of this version.
    """

    _connection: PostgresConnection

    def __init__(
        self, database: PostgresDatabase, keep_reports: int = 100_000, lease_seconds: float = 6.0
    ) -> None:
        super().__init__(database, keep_reports)
        self.postgres = database
        self.lease_seconds = lease_seconds
        self.renew_seconds = lease_seconds / _RENEWALS_A_LEASE
        self._doubtful = False
        self.number = self._commits = 0
        self.owner = f"{socket.gethostname()} process {os.getpid()}"
        with self._ours("be opened"):
            self._connection = PostgresConnection(
                database, idle_in_transaction_session_timeout=round(1000 * lease_seconds)
            )
            try:
                version = self._made()
                self.number, self._commits = self._take()
                self.lease = self.number
                migrate(database, self._connection, version, self._transaction)
            except BaseException:
                self.close()
                raise
        self._rings = SavedRings(self._connection)

    def reader(self) -> StoreReader:
        return _FencedReader(self.postgres, self.number)

    def commit(
        self,
        changes: Changes,
        reports: Sequence[WindowReport] = (),
        written: Mapping[str, tuple[int, int]] | None = None,
        config: str | None = None,
    ) -> int:
        if self._doubtful and self._arrived():
            return self._newest()
        try:
            newest = super().commit(changes, reports, written, config)
        except CommitUnknownError:
            self._doubtful = True
            raise
        self._commits += 1
        return newest

    def renew(self) -> None:
        with self._ours("be reached"):
            values = (self.lease_seconds, _WHOLE, self.number)
            if self._connection.execute(_RENEW, values).fetchone() is None:
                raise self._lost()

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Renew the lease in a thread, over a connection of its own."""
        ended = threading.Event()

        def renew() -> None:
            values = (self.lease_seconds, _WHOLE, self.number)
            with (
                suppress(StoreError, *self.postgres.errors),
                closing(PostgresConnection(self.postgres)) as run,
            ):
                while not ended.wait(self.renew_seconds):
                    run.execute(_RENEW, values)

        thread = threading.Thread(target=renew, name="lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def close(self) -> None:
        """Give the lease up, so that nobody need wait for its end."""
        if self._connection.there:  # who cannot reach the database need not tell it
            with suppress(*self.postgres.errors):
                self._connection.execute(_GIVE_UP, (_WHOLE, self.number))
        self._connection.close()

    def _first_of_each(self, query: str, rows: Sequence[Sequence[Any]]) -> list[Any]:
        return self._connection.first_of_each(query, rows)

    def _made(self) -> int:
        """The version of the tables, which are made where there are none."""
        run, prefix = self._connection, self.postgres.prefix
        with run.transaction():
            run.execute("SELECT pg_advisory_xact_lock(hashtextextended(?, 0))", (f"blindsight {prefix}",))
            version = self.database.version(run)
            if version is not None:
                refuse_newer(self.database, version)
                return version
            if run.execute("SELECT 1 FROM pg_namespace WHERE nspname = ?", (prefix,)).fetchone() is None:
                run.execute(f'CREATE SCHEMA "{prefix}"')
            run.execute(_LEASE)
            run.execute(_REQUEST)
            run.execute("INSERT INTO lease VALUES (?, 0, '', '-infinity', 0)", (_WHOLE,))
            create(self.database, run)
            run.execute(PUT_META, (_PLACE, self.postgres.place(run)))
        version = self.database.version(run)
        assert version is not None
        return version

    def _take(self) -> tuple[int, int]:
        """The lease's number, and how many checkpoints there were."""
        run = self._connection
        run.execute(_END_STUCK, (self.lease_seconds, _WHOLE))
        with run.transaction():
            *_, expires = run.execute(_HOLDER, (_WHOLE,)).fetchone()
            found = self._taken()
            if found is None:
                number, owner, _ = run.execute(_HOLDER, (_WHOLE,)).fetchone()  # as it is by now
                raise InUseError(
                    f"{self.database.name}, is in use by another agent ({owner}, lease {number}); stop it, "
                    "or give this agent another store.prefix"
                )
            kept = run.execute("SELECT value FROM meta WHERE key = ?", (_PLACE,)).fetchone()
            here = self.postgres.place(run)
            if kept is not None and kept[0] != here:  # the tables were restored, or copied
                run.execute(PUT_META, (_PLACE, here))
                run.execute(PUT_META, (BACKUP, rfc3339(max(expires, 0.0))))
        return int(found[0]), int(found[1])

    def _taken(self) -> tuple[Any, ...] | None:
        """The lease's row, if it can be taken; None where its owner has it, or a transaction under way."""
        run = self._connection
        run.execute("SAVEPOINT taking")
        run.execute(_SHORT_WAIT)
        values = (self.owner, self.lease_seconds, _WHOLE)
        try:
            free = run.execute(_FREE, (_WHOLE,)).fetchone()
            found: tuple[Any, ...] | None = free and run.execute(_TAKE, values).fetchone()
        except self.postgres.errors as error:
            if getattr(error, "sqlstate", None) != _LOCKED:
                raise
            run.execute("ROLLBACK TO SAVEPOINT taking")
            return None
        return found

    def _lost(self) -> LeaseLostError:
        found = self._connection.execute(_HOLDER, (_WHOLE,)).fetchone() or (0, "nobody", 0)
        return LeaseLostError(
            f"{self.database.name}: the lease is lost: {found[1]} took over with number {found[0]}, this "
            f"agent had {self.number}; that one goes on from the last checkpoint, and nothing of this one is "
            "written any more"
        )

    def _arrived(self) -> bool:
        """Whether the commit in doubt counts."""
        query = "SELECT commits FROM lease WHERE name = ?"
        try:
            with self._ours("be written"), self._transaction():
                found = self._connection.execute(query, (_WHOLE,)).fetchone()
        except StoreAwayError as error:
            raise CommitUnknownError(str(error)) from error
        self._doubtful = False
        arrived = int(found[0]) > self._commits
        self._commits += arrived
        return arrived

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._connection.transaction():
            if self._connection.execute(_LOCK, (_WHOLE, self.number)).fetchone() is None:
                raise self._lost()
            yield

    def _before_commit(self) -> None:
        values = (self.lease_seconds, self._commits + 1, _WHOLE, self.number)
        self._connection.execute(_COUNT, values)

    def _wiped(self) -> None:
        """Dead rows hold what was wiped until they are vacuumed."""
        with suppress(*self.postgres.errors), self.holding():  # autovacuum comes later
            self._connection.execute("VACUUM ring_rows, ring_changes, part")


_PLACE = "place"


def hold_lease(run: PostgresConnection, number: int) -> bool:
    """Let nobody take the lease while the caller's transaction lasts; False where somebody has."""
    return run.execute(_HOLD, (_WHOLE, number)).fetchone() is not None


class _FencedReader(StoreReader):
    """Gives nothing to an agent that lost its lease: its successor delivers what is there."""

    def __init__(self, database: PostgresDatabase, number: int) -> None:
        super().__init__(database)
        self._number = number

    def reports_after(self, last: int, most: int) -> list[tuple[int, bytes]]:
        with self._database.ours("be read"):
            found = self._connection.execute(_HOLDER, (_WHOLE,)).fetchone()
        if found is None or found[0] != self._number:
            raise LeaseLostError(f"{self._database.name}: the lease is lost; nothing is delivered any more")
        return super().reports_after(last, most)
