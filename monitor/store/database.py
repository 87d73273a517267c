"""The interface between a store and its database: connections, the version of the tables, and errors.

SQLite and PostgreSQL run the same statements. These use only SQL that both databases support, and a question
mark for each value.
"""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from monitor.base.errors import StoreError

APPLICATION_ID = 0x426C6E64
"""The characters "Blnd", which mark an SQLite file as a store."""

_BUSY_SECONDS = 10.0


class SqlRows(Protocol):
    """The result rows of a statement, fetched by its methods."""

    def fetchone(self) -> Any:
        """Return the next row, or None if there is no further row."""

    def fetchall(self) -> list[Any]:
        """Return all rows that have not been fetched yet."""

    def __iter__(self) -> Iterator[Any]: ...


class SqlConnection(Protocol):
    """The interface of a database connection, with the methods that the store uses."""

    def execute(self, statement: str, values: Sequence[Any] = ..., /) -> SqlRows:
        """Run a statement. `values` contains a value for each question mark."""

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> object:
        """Run a statement for each row of values."""

    def close(self) -> None:
        """Close the connection."""


class Database(ABC):
    """The database that holds the tables of a store.

    Attributes
    ----------
    name : str
        The name of the database in messages.
    setting : str
        The configuration key that selects the store, for messages.
    remedy : str
        Advice for messages about a damaged store.
    types : mapping of str to str
        The SQL types of this database, by their placeholders in `monitor.store.schema`.
    errors : tuple of exception classes
        The exception classes of the driver.
    """

    name: str
    setting: str
    remedy: str
    types: Mapping[str, str]
    errors: tuple[type[Exception], ...]

    @abstractmethod
    def connect_read_only(self, seconds: float = _BUSY_SECONDS) -> SqlConnection:
        """Return a new read-only connection. A statement waits for locks for at most `seconds`.

        Raises
        ------
        StoreError
            There is no such database.
        """

    @abstractmethod
    def version(self, connection: SqlConnection) -> int | None:
        """Return the version of the tables, or None if there are no tables yet.

        Raises
        ------
        StoreError
            The tables belong to another program.
        """

    @abstractmethod
    def set_version(self, connection: SqlConnection, version: int) -> None:
        """Save the version of the tables, in the transaction that creates or migrates them."""

    @abstractmethod
    def to_store_error(self, what: str, error: Exception) -> StoreError:
        """Convert an error of the driver to a StoreError.

        Parameters
        ----------
        what : str
            The action that failed, such as ``be read``, for the message.
        error : Exception
        """

    def damage_message(self, verdict: str) -> str:
        """Return the message for a store with damaged content; `verdict` describes the damage."""
        return (
            f"{self.name} is damaged ({verdict}); {self.remedy}: the sources are then read from the group's "
            "positions or from their start"
        )

    @contextmanager
    def convert_errors(self, what: str) -> Iterator[None]:
        """Run a block, and convert errors of the driver to a StoreError: see `to_store_error`."""
        try:
            yield
        except self.errors as error:
            raise self.to_store_error(what, error) from error


class SqliteFile(Database):
    """The SQLite database of a store, which is one file.

    Parameters
    ----------
    path : Path
        The file.
    """

    setting = "store.path"
    remedy = "put a backup in its place, or move it away to start afresh"
    types: Mapping[str, str] = {
        "blob": "BLOB",
        "integer": "INTEGER",
        "own_id": "INTEGER PRIMARY KEY",
        "report_id": "INTEGER PRIMARY KEY AUTOINCREMENT",
        "by_key": "WITHOUT ROWID",
    }
    errors = (sqlite3.DatabaseError,)

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = str(path)

    def connect_read_only(self, seconds: float = _BUSY_SECONDS) -> sqlite3.Connection:
        """Return a new read-only connection."""
        with self.convert_errors("be read"):
            return sqlite3.connect(
                f"file:{self.path}?mode=ro", uri=True, timeout=seconds, check_same_thread=False
            )

    def connect(self) -> sqlite3.Connection:
        """Return a new writable connection. The caller must hold the lock on the folder."""
        connection = sqlite3.connect(
            self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            self._set_up(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _set_up(self, connection: sqlite3.Connection) -> None:
        # With WAL, readers (backup, report) and checkpoints never wait for each other. With NORMAL, a killed
        # process loses nothing; a power cut may lose the last checkpoints, but never a part of a checkpoint.
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        # SQLite overwrites deleted content, because the file must not contain data that the agent has
        # deleted.
        connection.execute("PRAGMA secure_delete = ON")
        # SQLite shrinks the log again after a large checkpoint or a slow reader has made the log grow.
        connection.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}")

    def version(self, connection: SqlConnection) -> int | None:
        """Return the version of the tables, or None if there are no tables yet."""
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if version == 0 and tables == 0:
            return None
        if application != APPLICATION_ID:
            raise StoreError(f"{self.name} is an SQLite file of another program; give another store.path")
        return int(version)

    def set_version(self, connection: SqlConnection, version: int) -> None:
        """Save the version of the tables."""
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {version}")

    def to_store_error(self, what: str, error: Exception) -> StoreError:
        """Convert an error of the driver to a StoreError with a remedy."""
        name = getattr(error, "sqlite_errorname", "") or ""
        path = self.path
        if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
            return StoreError(self.damage_message(str(error)))
        if name.startswith("SQLITE_FULL"):
            return StoreError(f"{path} cannot {what}: the disk is full; make room")
        if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
            return StoreError(
                f"{path} cannot {what}: {error}; make it writable for this user, or give another store.path"
            )
        if name.startswith("SQLITE_IOERR"):
            return StoreError(
                f"{path} cannot {what}: the disk fails ({error}: {name}); check the system's log, and set "
                "store.path on another disk"
            )
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            return StoreError(
                f"{path} cannot {what}: another program has locked it for {_BUSY_SECONDS:.0f} s"
            )
        return StoreError(f"{path} cannot {what}: {error}")


_LOG_BYTES = 16 << 20
