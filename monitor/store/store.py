"""The store: the durable state of the agent in a database, with one transaction for each checkpoint.

The transaction of a checkpoint has these steps:

1. Write the changed parts of the state, which include the positions of sources.
2. Append new rows to the ring tables of answers and labels, and write the changes of older rows.
3. Append the reports, as lines of JSON.
4. Write the progress of each sink of reports.
5. Delete rows that the ring tables have overwritten, and old reports above `keep_reports`.

After the commit, sinks write the reports, and sources acknowledge records. If a process is killed at any
moment, it resumes from the last complete checkpoint, with the positions of this checkpoint.

`StateStore` is the base class. `Store` uses an SQLite file in a folder; `monitor.store.postgres` uses
PostgreSQL.
"""

from __future__ import annotations

import sqlite3
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from monitor.base.codec import pack, unpack
from monitor.base.errors import StoreError
from monitor.base.state_changes import Changes, RingState
from monitor.reports.reader import from_json
from monitor.reports.window_report import RestoreMark, WindowReport, encoded, rfc3339, to_json
from monitor.store.database import Database, SqlConnection, SqliteFile
from monitor.store.lock import FolderLock
from monitor.store.rings import SavedRings
from monitor.store.schema import create, migrate, refuse_newer

FILE = "blindsight.sqlite"
BACKUP = "backup"
"""The key, in the table `meta`, of the time of a backup; only backups and restored stores have it."""
_ADD_REPORT = "INSERT INTO report VALUES (?, ?, ?, ?, ?, ?, ?)"
_PUT_PART = "INSERT INTO part VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET state = excluded.state"
_PUT_SINK = (
    "INSERT INTO sink VALUES (?, ?, ?) "
    "ON CONFLICT (name) DO UPDATE SET last = excluded.last, place = excluded.place"
)
PUT_META = "INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
"""The statement that sets the value of a key in the table `meta`."""
_NEWEST = "SELECT coalesce(max(id), 0) FROM report"
_MOST_WAITING = 20_000  # twice the reports of a checkpoint, so that a sink without delays loses no report


@dataclass(frozen=True, slots=True)
class Saved:
    """The content of a store when it is opened.

    Parameters
    ----------
    parts : mapping of str to state
        The parts of the state by name, as plain values and arrays.
    rings : mapping of str to RingState
        The rows of the ring tables by name.
    config : str
        The configuration of the agent that saved the state, as JSON; ``""`` in a new store.
    backup_time : str
        The time of the backup from which the store was restored. It is ``""`` if the store was not restored,
        or if `mark_restore` has been called.
    """

    parts: Mapping[str, Any]
    rings: Mapping[str, RingState]
    config: str
    backup_time: str = ""


class StateStore(ABC):
    """The base class of an open store. Only one thread at a time may use it.

    Parameters
    ----------
    database : Database
    keep_reports : int
        The number of reports to keep. The oldest reports are deleted first. Reports that a sink has not read
        are kept longer: up to 20,000 of them, or `keep_reports` if this is more. After a restart, labels
        revise only windows whose last report is kept.

    Attributes
    ----------
    renew_seconds : float or None
        The longest interval between calls of `renew` or `commit`; None if `renew` need not be called.
    lease : int or None
        The number of the lease, which increases with each owner. None if the store uses a file lock instead
        of a lease.
    """

    _connection: SqlConnection
    _rings: SavedRings
    renew_seconds: float | None = None
    lease: int | None = None

    def __init__(self, database: Database, keep_reports: int) -> None:
        self.database = database
        self._keep = keep_reports

    @abstractmethod
    def reader(self) -> StoreReader:
        """Return a reader of reports with its own connection, for another thread."""

    @abstractmethod
    def close(self) -> None:
        """Close the database and release the right to write."""

    @abstractmethod
    def _transaction(self) -> AbstractContextManager[None]:
        """Return a context manager for a transaction, which checks the right to write."""

    @abstractmethod
    def renew(self) -> None:
        """Extend the right of this process to write to the store.

        Raises
        ------
        StoreError
            The right to write is lost, or the database cannot be reached.
        """

    def holding(self) -> AbstractContextManager[None]:
        """Return a context manager that keeps the right to write to the store while its block runs."""
        return nullcontext()

    @abstractmethod
    def _before_commit(self) -> None:
        """Do the last step of a checkpoint's transaction, such as a check."""

    @abstractmethod
    def _after_wipe(self) -> None:
        """Remove copies of erased data that the database keeps.

        The method is called after a checkpoint that erased rows.
        """

    def load(self) -> Saved:
        """Return the saved state. A new store has no parts and no ring tables."""
        with self._convert_errors("be read"):
            parts = {
                name: _unpacked(name, state)
                for name, state in self._connection.execute("SELECT name, state FROM part")
            }
            for name, state in parts.items():
                if name.startswith("revisions/"):
                    state["lines"] = self._lines(name.partition("/")[2], state)
            rings = {name: self._rings.read(name) for name in self._rings.names()}
            meta = dict(self._connection.execute("SELECT key, value FROM meta"))
        return Saved(parts, rings, meta.get("config", ""), meta.get(BACKUP, ""))

    def mark_restore(self, marks: Sequence[RestoreMark]) -> None:
        """Append marks to the reports, because the store was restored from a backup.

        A mark tells readers which reports of windows may be repeated. The identity of the store changes, too.
        Readers of a topic recognise a repeated report by the store's identity and the report's number.
        Without a new identity, the numbers after the backup would belong to two different reports.
        """
        identity = f"{self.identity.partition('.')[0]}.{uuid.uuid4().hex[:8]}"
        with self._convert_errors("be written"), self._transaction():
            self._add_reports([(m.task, m.model, m.group, m.window, m.revision, encoded(m)) for m in marks])
            self._connection.execute(PUT_META, ("identity", identity))
            self._connection.execute("DELETE FROM meta WHERE key = ?", (BACKUP,))

    def commit(
        self,
        changes: Changes,
        reports: Sequence[WindowReport] = (),
        written: Mapping[str, tuple[int, int]] | None = None,
        config: str | None = None,
    ) -> int:
        """Write a checkpoint and return the id of the newest report.

        Parameters
        ----------
        changes : Changes
        reports : sequence of WindowReport
            The reports since the last checkpoint, in order.
        written : mapping of str to (int, int)
            The progress of each sink: the id of the last report that it has written, and the end of its file
            or partition after this report.
        config : str, optional
            The configuration as JSON, if it changed.

        Raises
        ------
        StoreError
            Nothing was written; the same changes may be committed again.
        CommitUnknownError
            It is not known if the checkpoint was written. The next commit must have the same arguments.
        LeaseLostError
            Nothing was written, and this store can no longer write.
        """
        # Encoding is done before the transaction, to keep the transaction short.
        parts = [(name, pack(state)) for name, state in changes.parts.items()]
        with self._convert_errors("be written"), self._transaction():
            run = self._connection
            run.executemany(_PUT_PART, parts)
            for ring in changes.rings:
                self._rings.write(ring)
            newest = self._add_reports(
                [(r.task, r.model, r.group, r.window, r.revision, to_json(r)) for r in reports]
            )
            run.executemany(
                _PUT_SINK, [(name, last, place) for name, (last, place) in (written or {}).items()]
            )
            if config is not None:
                run.execute(PUT_META, ("config", config))
            self._drop_old_reports(newest, written or {})
            self._before_commit()
        if any(ring.wiped is not None for ring in changes.rings):
            self._after_wipe()
        return newest

    def forget(self, names: Sequence[str]) -> None:
        """Delete parts and ring tables by their names, for a task that cannot resume from its saved state."""
        if not names:
            return
        with self._convert_errors("be written"), self._transaction():
            for table, column in (("part", "name"), ("ring_rows", "ring"), ("ring_changes", "ring")):
                query = f"DELETE FROM {table} WHERE {column} = ?"
                self._connection.executemany(query, [(name,) for name in names])

    def marks(self) -> dict[str, tuple[int, int]]:
        """Return the progress of each sink: the id of its last report, and the end of its file or partition.

        Sinks that have written nothing are left out.
        """
        with self._convert_errors("be read"):
            return {
                name: (last, place)
                for name, last, place in self._connection.execute("SELECT name, last, place FROM sink")
            }

    @property
    def identity(self) -> str:
        """A random name of the store, which distinguishes its reports from other stores' reports in a topic.

        `mark_restore` adds a dot and a random part, or replaces this part.
        """
        with self._convert_errors("be written"), self._transaction():
            made = "INSERT INTO meta VALUES ('identity', ?) ON CONFLICT (key) DO NOTHING"
            self._connection.execute(made, (uuid.uuid4().hex,))
            row = self._connection.execute("SELECT value FROM meta WHERE key = 'identity'").fetchone()
        return str(row[0])

    def _lines(self, task: str, kept: Mapping[str, Any]) -> list[str | None]:
        """Return the newest line of each window that labels may still revise; None if it is deleted."""
        # Several lines may match, because a task without its saved state counts windows from 0 again.
        query = (
            'SELECT line FROM report WHERE task = ? AND model = ? AND grp = ? AND "window" = ? '
            "AND revision = ? ORDER BY id DESC LIMIT 1"
        )
        columns = [kept[name].tolist() for name in ("series", "window", "revision")]
        wanted = [
            (task, *kept["names"][series], window, revision)
            for series, window, revision in zip(*columns, strict=True)
        ]
        rows = self._first_of_each(query, wanted)
        for row, series, window in zip(rows, columns[0], columns[1], strict=True):
            _refuse_no_line(row, f"window {window} of {task}, {' '.join(kept['names'][series]).strip()}")
        return [row[0].decode() if row else None for row in rows]

    def _first_of_each(self, query: str, rows: Sequence[Sequence[Any]]) -> list[Any]:
        """Return the first result of a query, or None, for each row of values."""
        return [self._connection.execute(query, row).fetchone() for row in rows]

    def _add_reports(self, rows: Sequence[tuple[str, str, str, int, int, bytes]]) -> int:
        """Insert lines and return the last id. The ids are consecutive, because a gap means missing lines."""
        newest = self._newest()
        numbered = [(newest + place, *row) for place, row in enumerate(rows, 1)]
        self._connection.executemany(_ADD_REPORT, numbered)
        return newest + len(rows)

    def _newest(self) -> int:
        return int(self._connection.execute(_NEWEST).fetchone()[0])

    def _drop_old_reports(self, newest: int, written: Mapping[str, tuple[int, int]]) -> None:
        delivered = min((last for last, _ in written.values()), default=newest)
        oldest = min(newest - self._keep, max(delivered, newest - _MOST_WAITING))
        self._connection.execute("DELETE FROM report WHERE id <= ?", (oldest,))

    @contextmanager
    def _convert_errors(self, what: str) -> Iterator[None]:
        """Convert errors of the database, and damaged content, to a StoreError with a remedy."""
        try:
            with self.database.convert_errors(what):
                yield
        except ValueError as error:  # raised by `unpack` for content that the database does not find damaged
            raise StoreError(self.database.damage_message(str(error))) from error


class Store(StateStore):
    """A store in a folder: an SQLite file and a lock.

    Parameters
    ----------
    folder : Path
        The folder, which is created if it does not exist.
    keep_reports : int
        See `StateStore`.

    Raises
    ------
    StoreError
        The folder cannot be written, another agent uses it, or the file is damaged, belongs to another
        program or to a newer version.
    """

    _connection: sqlite3.Connection

    def __init__(self, folder: Path, keep_reports: int = 100_000) -> None:
        self.folder = folder
        self.path = folder / FILE
        file = SqliteFile(self.path)
        super().__init__(file, keep_reports)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = FolderLock(folder)
        except OSError as error:
            raise StoreError(
                f"store.path: cannot write {folder}: {error.strerror}; change the permissions or give "
                "another path"
            ) from error
        with ExitStack() as undo:
            undo.callback(self._lock.release)
            with self._convert_errors("be opened"):
                self._connection = file.connect()
                undo.callback(self._connection.close)
                self._prepare()
                self._check()
            self._rings = SavedRings(self._connection)
            self._files = self._in_folder()
            undo.pop_all()

    def reader(self) -> StoreReader:
        """Return a reader of reports with its own connection, for another thread."""
        return StoreReader(self.path)

    def close(self) -> None:
        """Close the file and release the lock."""
        self._connection.close()
        self._lock.release()

    def renew(self) -> None:
        """Do nothing, because the lock lasts as long as the process."""

    def _prepare(self) -> None:
        version = self.database.version(self._connection)
        if version is None:
            with self._transaction():
                create(self.database, self._connection)
            return
        refuse_newer(self.database, version)
        migrate(self.database, self._connection, version, self._transaction)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            yield

    def _in_folder(self) -> tuple[int | None, ...]:
        """Return the inodes of the store's file and of its write-ahead log, or None for a missing file."""
        return tuple(_number_of(path) for path in (self.path, self.path.with_name(f"{FILE}-wal")))

    def _before_commit(self) -> None:
        """Raise a StoreError if the file was deleted or replaced, because writes would be lost silently."""
        if self._in_folder() != self._files:
            raise StoreError(
                f"{self.path} was deleted or replaced while the agent uses it; restore its files, or "
                "restart the agent to continue from the present files"
            )

    def _check(self) -> None:
        (verdict,) = self._connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise StoreError(self.database.damage_message(" ".join(verdict.split())))

    def _after_wipe(self) -> None:
        """Truncate the write-ahead log, which still holds old pages."""
        with suppress(sqlite3.OperationalError):  # a backup reads the log; a later checkpoint overwrites it
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


class StoreReader:
    """A reader of the reports in a store that another thread or process writes.

    Parameters
    ----------
    where : Path or Database
        The store's file, or its database.
    """

    def __init__(self, where: Path | Database) -> None:
        self._database = SqliteFile(where) if isinstance(where, Path) else where
        self._connection = self._database.connect_read_only()

    def reports_after(self, last: int, most: int) -> list[tuple[int, bytes]]:
        """Return the first reports with ids above `last`, as (id, line of JSON).

        At most `most` reports are returned.
        """
        query = "SELECT id, line FROM report WHERE id > ? ORDER BY id LIMIT ?"
        with self._database.convert_errors("be read"):
            return list(self._connection.execute(query, (last, most)))

    def newest_report(self) -> int:
        """Return the id of the newest report, or 0 if there is none."""
        with self._database.convert_errors("be read"):
            return int(self._connection.execute(_NEWEST).fetchone()[0])

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def _unpacked(name: str, blob: bytes) -> Any:
    try:
        return unpack(blob)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def _refuse_no_line(row: tuple[bytes] | None, what: str) -> None:
    """Raise ValueError if a line cannot be decoded. The engine needs the line to revise its window."""
    try:
        if row is not None:
            from_json(row[0])
    except (msgspec.DecodeError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{what}: {error}") from error


def _number_of(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None


def copy_store(path: Path, target: Path) -> None:
    """Make a backup of a store's file.

    The copy contains the state at the last checkpoint, and the time of the copy. An agent may use the store
    at the same time.

    Raises
    ------
    StoreError
        There is no store, or the copy cannot be written.
    """
    if not path.is_file():
        raise StoreError(f"{path}: there is no store")
    with (
        SqliteFile(target).convert_errors("be written as a copy"),
        closing(SqliteFile(path).connect_read_only()) as source,
        closing(sqlite3.connect(target)) as copy,
    ):
        with copy:
            source.backup(copy)
            copy.execute(PUT_META, (BACKUP, rfc3339(time.time())))
        # In WAL mode, readers of the copy would create two files beside it, which nobody deletes.
        copy.execute("PRAGMA journal_mode = DELETE")
