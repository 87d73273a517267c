"""The store in PostgreSQL: the tables of `monitor.store.schema` in a separate schema, and a lease.

The lease ensures that only one agent writes. It is a row with a number, an owner and a time of expiry by the
database's clock. An agent takes an expired lease by incrementing its number. Each transaction of an agent
first locks the row of the lease that has the agent's number. If another agent has taken the lease, there is
no such row, and nothing is written. This holds even if the first agent was paused for a long time, or if its
clock is wrong. While the row is locked, no other agent can take the lease.

The server ends a transaction if the agent is idle in it for longer than the lease. It cannot end the
transaction if the agent stopped within a pipeline of statements. In this case, the agent that takes the lease
ends the transaction.
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

# A broken network must cause an error within seconds, before the lease expires; libpq's default is hours.
_PATIENCE = {
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
    "target_session_attrs": "primary",  # the writable host, if the address names several hosts
}
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.25, 5.0
_RENEWALS_A_LEASE = 3
_MEETS = ("40", "55")
"""SQLSTATE classes of conflicts with another transaction, after which the session remains usable."""
_COMES_BACK = ("starting up", "shutting down", "recovery mode", "too many", "connection slots")
_REMEDIES = {
    "password authentication failed": "check the user in store.postgres, and store.password_file",
    "no password supplied": "give store.password_file, or PGPASSWORD in the environment",
    "does not exist": "create it, or correct store.postgres",
    "no pg_hba.conf entry": "let this host in by the server's pg_hba.conf",
}
"""The remedy for an error, by a part of the server's message."""

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
"""The name of the lease on the whole state, whose numbers begin with 1."""
_UNTIL = "clock_timestamp() + ? * interval '1 second'"
_TAKE = (
    f"UPDATE lease SET number = number + 1, owner = ?, expires = {_UNTIL} "
    "WHERE name = ? AND expires <= clock_timestamp() RETURNING number, commits"
)
_FREE = "SELECT 1 FROM lease WHERE name = ? AND expires <= clock_timestamp() FOR UPDATE"
_LOCK = "SELECT commits FROM lease WHERE name = ? AND number = ? FOR NO KEY UPDATE"
_HOLD = "SELECT commits FROM lease WHERE name = ? AND number = ? FOR KEY SHARE"
"""The statement that locks the lease for a post.

The lock modes of `_LOCK` and `_HOLD` let posts run concurrently with each other and with a checkpoint. An
agent that wants to take the lease waits for both.
"""
_END_STUCK = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE xact_start IS NOT NULL "
    "AND wait_event = 'ClientRead' AND state_change < clock_timestamp() - ? * interval '1 second' "
    "AND pid IN (SELECT pid FROM pg_locks WHERE pid <> pg_backend_pid() "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
    "AND relation = to_regclass('lease')) "
    "AND EXISTS (SELECT FROM lease WHERE name = ? AND expires <= clock_timestamp())"
)
"""The statement that ends transactions which hold an expired lease and wait for a stopped agent."""
_SHORT_WAIT, _LOCKED = "SET LOCAL lock_timeout = '1s'", "55P03"
"""The statement that sets the lock timeout for taking the lease, and the SQLSTATE of a lock timeout."""
_RENEW = f"UPDATE lease SET expires = {_UNTIL} WHERE name = ? AND number = ? RETURNING number"
_COUNT = f"UPDATE lease SET expires = {_UNTIL}, commits = ? WHERE name = ? AND number = ?"
_GIVE_UP = "UPDATE lease SET expires = clock_timestamp() WHERE name = ? AND number = ?"
_HELD = "SELECT expires > clock_timestamp() FROM lease WHERE name = ?"
_HOLDER = "SELECT number, owner, extract(epoch FROM expires)::float8 FROM lease WHERE name = ?"


class PostgresDatabase(Database):
    """A schema of a PostgreSQL database, which holds the tables of a store.

    Parameters
    ----------
    address : str
        A connection string or URI of libpq without a password, such as ``postgresql://agent@db/monitoring``.
    prefix : str
        The name of the schema.
    password_file : str, optional
        A file with the password. It is read for each connection. Without such a file, libpq uses PGPASSWORD
        and ``~/.pgpass``.

    Raises
    ------
    MissingExtraError
        The driver is not installed.
    StoreError
        The address is not valid.
    """

    setting = "store.prefix"
    remedy = "restore a backup, or give another store.prefix to start afresh"
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
            self._options = conninfo_to_dict(address)
        except psycopg.ProgrammingError as error:  # its text may quote a password
            raise StoreError(
                "store.postgres: no address of PostgreSQL; give one such as postgresql://agent@db/monitoring"
            ) from error
        host, port = self._options.get("host", "localhost"), self._options.get("port", 5432)
        self.name = f"PostgreSQL at {host}:{port}/{self._options.get('dbname', '')}, schema {prefix}"

    def connect(self, timeout_seconds: float | None = None, **session: object) -> psycopg.Connection[Any]:
        """Return a new connection in autocommit mode.

        Parameters
        ----------
        timeout_seconds : float, optional
            The time limit for connecting.
        **session : object
            Settings of PostgreSQL for the session, such as ``lock_timeout``.

        Raises
        ------
        StoreError
            The file of the password cannot be read.
        psycopg.Error
            The connection fails: see `to_store_error`.
        """
        import psycopg

        # After a lock, a statement must see the current row, also if the database has another default
        # isolation.
        isolation = {"default_transaction_isolation": r"read\ committed"}
        session = {"search_path": self.prefix, **isolation, **session}
        options = " ".join(f"-c {key}={value}" for key, value in session.items())
        arguments = {**_PATIENCE, "application_name": "blindsight", **self._options}
        arguments["options"] = f"{self._options.get('options') or ''} {options}".strip()
        if timeout_seconds is not None:
            arguments["connect_timeout"] = max(2, round(timeout_seconds))
        if self._password_file is not None:
            try:
                arguments["password"] = read_secret("store.password_file", self._password_file)
            except SourceError as error:
                raise StoreError(str(error)) from error
        return psycopg.connect(autocommit=True, **arguments)  # type: ignore[arg-type]

    def connect_read_only(self, seconds: float = 10.0) -> PostgresConnection:
        """Return a new read-only connection. A statement waits for locks for at most `seconds`."""
        with self.convert_errors("be read"):
            milliseconds = round(1000 * seconds)
            return PostgresConnection(
                self, seconds, default_transaction_read_only="on", lock_timeout=milliseconds
            )

    def version(self, connection: SqlConnection) -> int | None:
        """Return the version of the tables, or None if there are no tables yet."""
        query = (
            "SELECT count(*), count(*) FILTER (WHERE relname IN ('meta', 'lease')) FROM pg_class "
            "WHERE relkind = 'r' AND relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = ?)"
        )
        tables, ours = connection.execute(query, (self.prefix,)).fetchone()
        if tables == 0:
            return None
        query = "SELECT value FROM meta WHERE key = 'version'"
        row = connection.execute(query).fetchone() if ours == 2 else None
        if row is None:
            raise StoreError(f"{self.name}, has tables of another program; give another store.prefix")
        return int(row[0])

    def set_version(self, connection: SqlConnection, version: int) -> None:
        """Save the version of the tables."""
        connection.execute(PUT_META, ("version", str(version)))

    def to_store_error(self, what: str, error: Exception) -> StoreError:
        """Convert an error of the driver to a StoreError.

        If waiting may help, the result is a StoreAwayError.
        """
        import psycopg

        message = getattr(getattr(error, "diag", None), "message_primary", None) or str(error)
        text = "; ".join(line.strip() for line in message.splitlines() if line.strip()).rstrip(".")
        state = getattr(error, "sqlstate", None) or ""
        problem = f"{self.name}, cannot {what}: {text}"
        if isinstance(error, psycopg.OperationalError):
            refused = any(sign in text for sign in ("FATAL", "no password")) and not any(
                sign in text for sign in _COMES_BACK
            )
            if state[:2] in ("08", "57") or state in ("25P03", "53300") or (not state and not refused):
                return StoreAwayError(problem)
        if state == "53100":
            return StoreError(f"{problem}; make room on the server's disk")
        if state == "25006":
            return StoreError(f"{problem}; give the address of the primary server")
        if state == "42501":
            return StoreError(f"{problem}; let the user create and own the schema {self.prefix}")
        if state == "42P01":
            return StoreError(f"{problem}; its tables are gone: restore a backup, or restart to start afresh")
        remedy = next((f"; {remedy}" for sign, remedy in _REMEDIES.items() if sign in text), "")
        return StoreError(problem + remedy)

    def is_held(self) -> bool | None:
        """Return whether an agent holds the lease, or None if the store does not exist yet.

        Raises
        ------
        StoreError
            The database cannot be reached or read.
        """
        with closing(self.connect_read_only()) as connection, self.convert_errors("be read"):
            if self.version(connection) is None:
                return None
            return bool(connection.execute(_HELD, (_WHOLE,)).fetchone()[0])

    def identify(self, connection: SqlConnection) -> str:
        """Return an identifier of the schema. A restored backup or a copy has a different identifier."""
        query = (
            "SELECT (SELECT system_identifier FROM pg_control_system()), d.oid::bigint, n.oid::bigint "
            "FROM pg_database d, pg_namespace n WHERE d.datname = current_database() AND n.nspname = ?"
        )
        return "/".join(map(str, connection.execute(query, (self.prefix,)).fetchone()))


class PostgresConnection:
    """A PostgreSQL connection with the interface `SqlConnection`, which reconnects after an error.

    A session keeps the server settings with which it began, such as read-only mode or a statement timeout.
    These settings may cause an error. So after an error, the next statement uses a new session. After each
    failed attempt to connect, the connection waits longer before the next attempt, up to 5 seconds.

    Parameters
    ----------
    database : PostgresDatabase
    timeout_seconds, **session
        See `PostgresDatabase.connect`.
    """

    def __init__(
        self, database: PostgresDatabase, timeout_seconds: float | None = None, **session: object
    ) -> None:
        self._new = partial(database.connect, timeout_seconds, **session)
        self._errors = database.errors
        self._session = self._new()
        self._within = False
        self._pause, self._next_try = _FIRST_PAUSE_SECONDS, 0.0
        self._refusal: Exception | None = None
        self._waiting_since: float | None = None  # monotonic time at which the current wait began

    @property
    def is_open(self) -> bool:
        """False if the connection is known to be lost."""
        return not self._session.closed

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> SqlRows:
        """Run a statement. `values` contains a value for each question mark."""
        with self._waiting() as run:
            return run.execute(_translated(statement), values, binary=True)

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> None:
        """Run a statement for each row of values."""
        values = list(rows)
        if values:
            with self._waiting() as run, run.cursor() as cursor:
                cursor.executemany(_translated(statement), values)

    def first_of_each(self, statement: str, rows: Sequence[Sequence[Any]]) -> list[Any]:
        """Run a query for each row of values, in one round trip.

        Return the first result row for each row of values, or None if there is no result.
        """
        results: list[Any] = []
        if rows:
            with self._waiting() as run, run.cursor(binary=True) as cursor:
                cursor.executemany(_translated(statement), rows, returning=True)
                results.append(cursor.fetchone())
                while cursor.nextset():
                    results.append(cursor.fetchone())
        return results

    @contextmanager
    def transaction(self, what: str = "a checkpoint") -> Iterator[None]:
        """Run a block in a transaction. If the block raises an error, roll the transaction back.

        `what` names the content of the transaction in messages.

        Raises
        ------
        CommitUnknownError
            The connection was lost during the commit.
        """
        self.execute("BEGIN")
        self._within = True
        try:
            yield
        except BaseException as error:
            self._roll_back()
            self._drop_after(error)
            raise
        else:
            self._commit(what)
        finally:
            self._within = False

    def close(self) -> None:
        """Close the connection."""
        self._session.close()

    def cut(self, after_seconds: float) -> None:
        """Shut the connection down if another thread waits for the server for more than `after_seconds`."""
        since = self._waiting_since
        if since is None or time.monotonic() - since < after_seconds:
            return
        with suppress(OSError, *self._errors), socket.socket(fileno=os.dup(self._session.fileno())) as same:
            same.shutdown(socket.SHUT_RDWR)

    @contextmanager
    def _waiting(self) -> Iterator[psycopg.Connection[Any]]:
        """Lend the session for a request to the server. Note the start of the wait for `cut`."""
        self._waiting_since = time.monotonic()
        try:
            yield self._ready()
        except self._errors as error:
            if not self._within:
                self._drop_after(error)
            raise
        finally:
            self._waiting_since = None

    def _roll_back(self) -> None:
        try:
            with self._waiting() as run:
                run.execute("ROLLBACK")
        except self._errors:
            self._session.close()

    def _drop_after(self, error: BaseException) -> None:
        """Close the session after an error, unless it was a conflict with another transaction."""
        if isinstance(error, self._errors) and (getattr(error, "sqlstate", None) or "")[:2] not in _MEETS:
            self._session.close()

    def _commit(self, what: str) -> None:
        try:
            with self._waiting() as run:
                ended = run.execute("COMMIT").statusmessage
        except self._errors as error:
            if not self._session.closed:
                raise
            raise CommitUnknownError(
                f"the connection to PostgreSQL was lost while {what} was committed ({error})"
            ) from error
        if ended != "COMMIT":  # the status is ROLLBACK if an earlier statement failed
            raise StoreError(f"PostgreSQL has taken {what} back, as one of its statements had failed")

    def _ready(self) -> psycopg.Connection[Any]:
        """Return the session. If there is none, connect again.

        Raises the last error of connecting if the pause after this error is not over.
        """
        if not self._session.closed or self._within:
            return self._session
        if self._refusal is not None and time.monotonic() < self._next_try:
            raise self._refusal.with_traceback(None)  # otherwise the traceback would grow with each raise
        try:
            self._session = self._new()
        except self._errors as error:
            self._refusal = error
            # Agents that lost the same server must not reconnect at the same time.
            self._next_try = time.monotonic() + self._pause * random.uniform(0.5, 1.0)
            self._pause = min(2 * self._pause, _LONGEST_PAUSE_SECONDS)
            raise
        self._pause, self._refusal = _FIRST_PAUSE_SECONDS, None
        return self._session


@lru_cache(maxsize=256)
def _translated(statement: str) -> bytes:
    """Replace the question marks of a statement by the driver's placeholders."""
    return statement.replace("%", "%%").replace("?", "%s").encode()


class PostgresStore(StateStore):
    """A store in PostgreSQL. A lease gives this agent the right to write.

    Parameters
    ----------
    database : PostgresDatabase
    keep_reports : int
        See `StateStore`.
    lease_seconds : float
        The time after which another agent may take a lease that has not been renewed.

    Raises
    ------
    InUseError
        Another agent holds the lease.
    StoreAwayError
        The database cannot be reached.
    StoreError
        The database cannot be used, or its store has a newer version.
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
        with self._convert_errors("be opened"):
            self._connection = PostgresConnection(
                database, idle_in_transaction_session_timeout=round(1000 * lease_seconds)
            )
            try:
                version = self._ensure_tables()
                self.number, self._commits = self._take_lease()
                self.lease = self.number
                migrate(database, self._connection, version, self._transaction)
            except BaseException:
                self.close()
                raise
        self._rings = SavedRings(self._connection)

    def reader(self) -> StoreReader:
        """Return a reader of reports for another thread. The reader fails if the lease is lost."""
        return _FencedReader(self.postgres, self.number)

    def commit(
        self,
        changes: Changes,
        reports: Sequence[WindowReport] = (),
        written: Mapping[str, tuple[int, int]] | None = None,
        config: str | None = None,
    ) -> int:
        """Write a checkpoint: see `StateStore.commit`.

        If the result of a commit is unknown, the next call must have the same arguments. This call first
        checks whether the earlier commit succeeded. If it did, nothing is written.
        """
        if self._doubtful and self._is_committed():
            return self._newest()
        try:
            newest = super().commit(changes, reports, written, config)
        except CommitUnknownError:
            self._doubtful = True
            raise
        self._commits += 1
        return newest

    def renew(self) -> None:
        """Extend the lease.

        Raises
        ------
        LeaseLostError
            Another agent has taken the lease.
        """
        with self._convert_errors("be reached"):
            values = (self.lease_seconds, _WHOLE, self.number)
            if self._connection.execute(_RENEW, values).fetchone() is None:
                raise self._lost()

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Return a context manager that renews the lease while its block runs.

        A thread with a separate connection renews the lease.
        """
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
        """Release the lease, so that another agent need not wait until it expires. Close the connection."""
        if self._connection.is_open:
            with suppress(*self.postgres.errors):
                self._connection.execute(_GIVE_UP, (_WHOLE, self.number))
        self._connection.close()

    def _first_of_each(self, query: str, rows: Sequence[Sequence[Any]]) -> list[Any]:
        return self._connection.first_of_each(query, rows)

    def _ensure_tables(self) -> int:
        """Return the version of the tables. If there are no tables, create them."""
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
            run.execute(PUT_META, (_PLACE, self.postgres.identify(run)))
        version = self.database.version(run)
        assert version is not None
        return version

    def _take_lease(self) -> tuple[int, int]:
        """Take the lease, and return its number and the number of checkpoints committed so far."""
        run = self._connection
        run.execute(_END_STUCK, (self.lease_seconds, _WHOLE))
        with run.transaction():
            *_, expires = run.execute(_HOLDER, (_WHOLE,)).fetchone()
            lease = self._try_lease()
            if lease is None:
                number, owner, _ = run.execute(_HOLDER, (_WHOLE,)).fetchone()  # the owner may be another now
                raise InUseError(
                    f"{self.database.name}, is in use by another agent ({owner}, lease {number}); stop it, "
                    "or give this agent another store.prefix"
                )
            kept = run.execute("SELECT value FROM meta WHERE key = ?", (_PLACE,)).fetchone()
            here = self.postgres.identify(run)
            if kept is not None and kept[0] != here:  # the tables were restored from a backup or copied
                run.execute(PUT_META, (_PLACE, here))
                run.execute(PUT_META, (BACKUP, rfc3339(max(expires, 0.0))))
        return int(lease[0]), int(lease[1])

    def _try_lease(self) -> tuple[Any, ...] | None:
        """Take an expired lease, and return its number and count of checkpoints.

        Return None if the lease has not expired, or if a transaction of its owner still locks its row.
        """
        run = self._connection
        run.execute("SAVEPOINT taking")
        run.execute(_SHORT_WAIT)
        values = (self.owner, self.lease_seconds, _WHOLE)
        try:
            free = run.execute(_FREE, (_WHOLE,)).fetchone()
            lease: tuple[Any, ...] | None = free and run.execute(_TAKE, values).fetchone()
        except self.postgres.errors as error:
            if getattr(error, "sqlstate", None) != _LOCKED:
                raise
            run.execute("ROLLBACK TO SAVEPOINT taking")
            return None
        return lease

    def _lost(self) -> LeaseLostError:
        """Return the error for a lease that another agent has taken."""
        number, owner, _ = self._connection.execute(_HOLDER, (_WHOLE,)).fetchone() or (0, "nobody", 0)
        return LeaseLostError(
            f"{self.database.name}: the lease is lost: {owner} took over with number {number}, this "
            f"agent had {self.number}; that one goes on from the last checkpoint, and nothing of this one is "
            "written any more"
        )

    def _is_committed(self) -> bool:
        """Return whether the last commit, whose outcome is unknown, succeeded."""
        query = "SELECT commits FROM lease WHERE name = ?"
        try:
            with self._convert_errors("be written"), self._transaction():
                row = self._connection.execute(query, (_WHOLE,)).fetchone()
        except StoreAwayError as error:
            raise CommitUnknownError(str(error)) from error
        self._doubtful = False
        committed = int(row[0]) > self._commits
        self._commits += committed
        return committed

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._connection.transaction():
            if self._connection.execute(_LOCK, (_WHOLE, self.number)).fetchone() is None:
                raise self._lost()
            yield

    def _before_commit(self) -> None:
        values = (self.lease_seconds, self._commits + 1, _WHOLE, self.number)
        self._connection.execute(_COUNT, values)

    def _after_wipe(self) -> None:
        """Vacuum the tables, because dead rows still hold the erased data."""
        with suppress(*self.postgres.errors), self.holding():  # autovacuum may clean the tables later
            self._connection.execute("VACUUM ring_rows, ring_changes, part")


_PLACE = "place"


def hold_lease(run: PostgresConnection, number: int) -> bool:
    """Lock the lease with this number until the end of the transaction. Return False if the lease is lost."""
    return run.execute(_HOLD, (_WHOLE, number)).fetchone() is not None


class _FencedReader(StoreReader):
    """A reader that fails once the lease is lost, because the new owner then delivers the reports."""

    def __init__(self, database: PostgresDatabase, number: int) -> None:
        super().__init__(database)
        self._number = number

    def reports_after(self, last: int, most: int) -> list[tuple[int, bytes]]:
        """Return at most `most` reports with ids above `last`.

        Raises
        ------
        LeaseLostError
            Another agent has taken the lease.
        """
        with self._database.convert_errors("be read"):
            lease = self._connection.execute(_HOLDER, (_WHOLE,)).fetchone()
        if lease is None or lease[0] != self._number:
            raise LeaseLostError(f"{self._database.name}: the lease is lost; nothing is delivered any more")
        return super().reports_after(last, most)
