"""The store: what the agent knows, in a database, one transaction a checkpoint.

A checkpoint is written in this order, all of it or nothing:

1. the pieces of the state that changed, source positions among them;
2. rows added to the rings of answers and labels, and changes to older rows;
3. the windows that closed, as lines of the reports file;
4. how far the reports had been delivered, sink by sink;
5. what is out of bounds goes: rows that the rings have overwritten, reports beyond `keep_reports`.

Only then do the sinks of reports and the sources hear of it. A process killed at any moment finds the state
of its last whole checkpoint, with the positions that belong to it.

`StateStore` is all of this; `Store` has it in a folder, `monitor.store.postgres` in PostgreSQL.
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
"""In a copy, when it was made; what is opened with it was restored."""
_ADD_REPORT = "INSERT INTO report VALUES (?, ?, ?, ?, ?, ?, ?)"
_PUT_PART = "INSERT INTO part VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET state = excluded.state"
_PUT_SINK = (
    "INSERT INTO sink VALUES (?, ?, ?) "
    "ON CONFLICT (name) DO UPDATE SET last = excluded.last, place = excluded.place"
)
PUT_META = "INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
"""Notes a value under a key."""
_NEWEST = "SELECT coalesce(max(id), 0) FROM report"
_MOST_WAITING = 20_000  # twice what one checkpoint can bring: a sink that keeps up must not lose any of it


@dataclass(frozen=True, slots=True)
class Saved:
    """What a store held when it was opened.

    Parameters
    ----------
    parts : mapping of str to state
    rings : mapping of str to RingState
    config : str
        The configuration that it was written under, as JSON; ``""`` in a new store.
    backup_time : str
        When the backup was made that the store was restored from; ``""`` once `mark_restore` was called,
        and in any other store.
    """

    parts: Mapping[str, Any]
    rings: Mapping[str, RingState]
    config: str
    backup_time: str = ""


class StateStore(ABC):
    """An open store; used by one thread at a time.

    Parameters
    ----------
    database : Database
    keep_reports : int
        Lines of closed windows kept, oldest out first. Those that a sink does not have yet are bounded too:
        by this number, or by 20,000 where that is more. After a restart labels revise no window whose newest
        line is not among them.

    Attributes
    ----------
    renew_seconds : float or None
        How often `renew` must be called where nothing is committed; None for never.
    lease : int or None
        The number of the right to write, which grows with each owner; None where a lock is that right.
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
        """A connection of its own to the closed windows, for another thread."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the database, and of the right to write."""

    @abstractmethod
    def _transaction(self) -> AbstractContextManager[None]:
        """All or nothing of what is done inside, by the one agent that may."""

    @abstractmethod
    def renew(self) -> None:
        """Keep the right to write.

        Raises
        ------
        StoreError
            It is not known to be kept, or is lost.
        """

    def holding(self) -> AbstractContextManager[None]:
        """Keep the right to write, however long what is done inside takes."""
        return nullcontext()

    @abstractmethod
    def _before_commit(self) -> None:
        """The last look before what was written counts."""

    @abstractmethod
    def _wiped(self) -> None:
        """Something was removed for good: see that no copy of it stays."""

    def load(self) -> Saved:
        """Everything that was saved; empty mappings in a new store."""
        with self._ours("be read"):
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
        """Tell every sink of reports, once, from which windows on lines may come again.

        The store's identity gets another end: its reports' numbers, by which readers of a topic see
        repetitions, have been given to other windows since the backup.
        """
        identity = f"{self.identity.partition('.')[0]}.{uuid.uuid4().hex[:8]}"
        with self._ours("be written"), self._transaction():
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
        """Write a checkpoint; return the id of the newest report.

        Parameters
        ----------
        changes : Changes
        reports : sequence of WindowReport
            Closed since the last checkpoint, in order.
        written : mapping of str to (int, int)
            By sink, the id of the last report in it and where it ended after that.
        config : str, optional
            The configuration as JSON, where it changed.

        Raises
        ------
        StoreError
            Nothing was written, and why; the same changes may be committed again.
        CommitUnknownError
            It may have been written: the very same must be committed next.
        LeaseLostError
            Nothing was written, and nothing can be any more.
        """
        # Before the transaction: nobody need wait for this.
        parts = [(name, pack(state)) for name, state in changes.parts.items()]
        with self._ours("be written"), self._transaction():
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
            self._wiped()
        return newest

    def forget(self, names: Sequence[str]) -> None:
        """Drop the parts and rings of these names: of a task that cannot go on from what was saved."""
        if not names:
            return
        with self._ours("be written"), self._transaction():
            for table, column in (("part", "name"), ("ring_rows", "ring"), ("ring_changes", "ring")):
                query = f"DELETE FROM {table} WHERE {column} = ?"
                self._connection.executemany(query, [(name,) for name in names])

    def marks(self) -> dict[str, tuple[int, int]]:
        """How far each sink had been written: the last report's id, and where its file or partition ended.

        One that was never written to is not there.
        """
        with self._ours("be read"):
            return {
                name: (last, place)
                for name, last, place in self._connection.execute("SELECT name, last, place FROM sink")
            }

    @property
    def identity(self) -> str:
        """A random name of this store, made with it: tells its reports from those of another in one topic.

        Each restore gives it another end, after a dot.
        """
        with self._ours("be written"), self._transaction():
            made = "INSERT INTO meta VALUES ('identity', ?) ON CONFLICT (key) DO NOTHING"
            self._connection.execute(made, (uuid.uuid4().hex,))
            found = self._connection.execute("SELECT value FROM meta WHERE key = 'identity'").fetchone()
        return str(found[0])

    def _lines(self, task: str, kept: Mapping[str, Any]) -> list[str | None]:
        """The newest lines of the windows that labels may still revise; None for one that was dropped."""
        # By the newest id: a task that was begun anew counts its windows from 0 again.
        query = (
            'SELECT line FROM report WHERE task = ? AND model = ? AND grp = ? AND "window" = ? '
            "AND revision = ? ORDER BY id DESC LIMIT 1"
        )
        columns = [kept[name].tolist() for name in ("series", "window", "revision")]
        wanted = [
            (task, *kept["names"][series], window, revision)
            for series, window, revision in zip(*columns, strict=True)
        ]
        found = self._first_of_each(query, wanted)
        for row, series, window in zip(found, columns[0], columns[1], strict=True):
            _refuse_no_line(row, f"window {window} of {task}, {' '.join(kept['names'][series]).strip()}")
        return [row[0].decode() if row else None for row in found]

    def _first_of_each(self, query: str, rows: Sequence[Sequence[Any]]) -> list[Any]:
        """The first row of a query for each row of values; None where there is none."""
        return [self._connection.execute(query, row).fetchone() for row in rows]

    def _add_reports(self, rows: Sequence[tuple[str, str, str, int, int, bytes]]) -> int:
        """Number the lines without a gap, from which readers would see that some are missing."""
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
    def _ours(self, what: str) -> Iterator[None]:
        """The database's errors as ours, with what to do."""
        try:
            with self.database.ours(what):
                yield
        except ValueError as error:  # of `unpack`: whole pages, with other bytes in them than were written
            raise StoreError(self.database.damaged(str(error))) from error


class Store(StateStore):
    """A store in a folder: a file of SQLite, and a lock.

    Parameters
    ----------
    folder : Path
        Made if absent.
    keep_reports : int
        See `StateStore`.

    Raises
    ------
    StoreError
        The folder cannot be written, another agent holds it, the file is damaged, or no store of this
        version.
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
            with self._ours("be opened"):
                self._connection = file.writing()
                undo.callback(self._connection.close)
                self._prepare()
                self._check()
            self._rings = SavedRings(self._connection)
            self._files = self._in_folder()
            undo.pop_all()

    def reader(self) -> StoreReader:
        return StoreReader(self.path)

    def close(self) -> None:
        """Close the file and let go of the folder."""
        self._connection.close()
        self._lock.release()

    def renew(self) -> None:
        """The lock lasts as long as the process."""

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
        """Which files stand in the folder under the names of the store's and of its log; None for none."""
        return tuple(_number_of(path) for path in (self.path, self.path.with_name(f"{FILE}-wal")))

    def _before_commit(self) -> None:
        """What is written into a file that has been deleted, or replaced, is lost without a word."""
        if self._in_folder() != self._files:
            raise StoreError(
                f"{self.path} was deleted or replaced while the agent uses it; restore its files, or "
                "restart the agent to continue from the present files"
            )

    def _check(self) -> None:
        (verdict,) = self._connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise StoreError(self.database.damaged(" ".join(verdict.split())))

    def _wiped(self) -> None:
        """Bring the write-ahead log into the file and cut it off: it holds pages as they were."""
        with suppress(sqlite3.OperationalError):  # a backup reads from it: the next checkpoint rewinds it
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


class StoreReader:
    """Reads closed windows from a store that another thread, or another process, writes.

    Parameters
    ----------
    where : Path or Database
        The store's file, or its database.
    """

    def __init__(self, where: Path | Database) -> None:
        self._database = SqliteFile(where) if isinstance(where, Path) else where
        self._connection = self._database.reading()

    def reports_after(self, last: int, most: int) -> list[tuple[int, bytes]]:
        """Reports with a larger id, in order: (id, line)."""
        query = "SELECT id, line FROM report WHERE id > ? ORDER BY id LIMIT ?"
        with self._database.ours("be read"):
            return list(self._connection.execute(query, (last, most)))

    def newest_report(self) -> int:
        """The id of the newest report; 0 before the first."""
        with self._database.ours("be read"):
            return int(self._connection.execute(_NEWEST).fetchone()[0])

    def close(self) -> None:
        """Let go of the database."""
        self._connection.close()


def _unpacked(name: str, blob: bytes) -> Any:
    try:
        return unpack(blob)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def _refuse_no_line(row: tuple[bytes] | None, what: str) -> None:
    """A line is decoded much later, when labels revise its window: the engine must not find out then."""
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
    """Copy a store's file as of its last checkpoint, with the time; an agent may be using it.

    Raises
    ------
    StoreError
        There is no store, or the copy cannot be written.
    """
    if not path.is_file():
        raise StoreError(f"{path}: there is no store")
    with (
        SqliteFile(target).ours("be written as a copy"),
        closing(SqliteFile(path).reading()) as source,
        closing(sqlite3.connect(target)) as copy,
    ):
        with copy:
            source.backup(copy)
            copy.execute(PUT_META, (BACKUP, rfc3339(time.time())))
        # Of a copy that kept its log even a reader would write: two files beside it, which nobody removes.
        copy.execute("PRAGMA journal_mode = DELETE")
