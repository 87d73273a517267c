"""The seam between a store and the database of its tables: how it is opened, and what its errors mean.

The statements of the store are the same for both. They have question marks for values, and no words that
only one database knows.
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
""""Blnd": tells a store from any other SQLite file."""

_BUSY_SECONDS = 10.0


class SqlRows(Protocol):
    """What a statement gives."""

    def fetchone(self) -> Any:
        """The next row; None where there is none."""

    def fetchall(self) -> list[Any]:
        """All rows that are left."""

    def __iter__(self) -> Iterator[Any]: ...


class SqlConnection(Protocol):
    """What the store needs of a connection."""

    def execute(self, statement: str, values: Sequence[Any] = ..., /) -> SqlRows:
        """Run a statement with a value for each question mark."""

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> object:
        """Run a statement for each row of values."""

    def close(self) -> None:
        """Let go of the database."""


class Database(ABC):
    """Where the tables of a store are.

    Attributes
    ----------
    name : str
        For messages.
    setting : str
        The key of the configuration that leads to another store, for messages.
    afresh : str
        What to do with a store that cannot be used, for messages.
    types : mapping of str to str
        How this database writes the types of the tables: see `monitor.store.schema`.
    errors : tuple of exception classes
        That its driver raises.
    """

    name: str
    setting: str
    afresh: str
    types: Mapping[str, str]
    errors: tuple[type[Exception], ...]

    @abstractmethod
    def reading(self, seconds: float = _BUSY_SECONDS) -> SqlConnection:
        """A new connection that only reads, and waits so long at most for who is in its way.

        Raises
        ------
        StoreError
            There is no such database.
        """

    @abstractmethod
    def version(self, connection: SqlConnection) -> int | None:
        """The version of the tables; None where there are none yet.

        Raises
        ------
        StoreError
            They are of another program.
        """

    @abstractmethod
    def set_version(self, connection: SqlConnection, version: int) -> None:
        """Note the version of the tables, within the transaction that made them so."""

    @abstractmethod
    def explained(self, what: str, error: Exception) -> StoreError:
        """The driver's error as a sentence; `what` cannot be done: ``be read``."""

    def damaged(self, verdict: str) -> str:
        """What to say of tables whose content is wrong."""
        return (
            f"{self.name} is damaged ({verdict}); {self.afresh}: the sources are then read from the group's "
            "positions or from their start"
        )

    @contextmanager
    def ours(self, what: str) -> Iterator[None]:
        """The driver's errors as ours, with what to do."""
        try:
            yield
        except self.errors as error:
            raise self.explained(what, error) from error


class SqliteFile(Database):
    """A file of SQLite.

    Parameters
    ----------
    path : Path
    """

    setting = "store.path"
    afresh = "put a backup in its place, or move it away to start afresh"
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

    def reading(self, seconds: float = _BUSY_SECONDS) -> sqlite3.Connection:
        with self.ours("be read"):
            return sqlite3.connect(
                f"file:{self.path}?mode=ro", uri=True, timeout=seconds, check_same_thread=False
            )

    def writing(self) -> sqlite3.Connection:
        """A connection for the one agent that has the folder."""
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
        # WAL: readers (backup, report) never wait for a checkpoint, nor it for them. NORMAL: a kill of the
        # process loses nothing; a power cut may take the last checkpoints, never a part of one.
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        # What is deleted is overwritten: the file must not keep what the agent has let go of.
        connection.execute("PRAGMA secure_delete = ON")
        # What one large checkpoint, or a reader in its way, made of the log is given back.
        connection.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}")

    def version(self, connection: SqlConnection) -> int | None:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if version == 0 and tables == 0:
            return None
        if application != APPLICATION_ID:
            raise StoreError(f"{self.name} is an SQLite file of another program; give another store.path")
        return int(version)

    def set_version(self, connection: SqlConnection, version: int) -> None:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {version}")

    def explained(self, what: str, error: Exception) -> StoreError:
        name = getattr(error, "sqlite_errorname", "") or ""
        path = self.path
        if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
            return StoreError(self.damaged(str(error)))
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
