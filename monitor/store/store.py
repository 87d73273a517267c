"""The store: what the agent knows, on disk, one transaction a checkpoint.

A checkpoint is written in this order, all of it or nothing:

1. the pieces of the state that changed, source positions among them;
2. rows added to the rings of answers and labels, and changes to older rows;
3. the windows that closed, as lines of the reports file;
4. how far the reports had been delivered, sink by sink;
5. what is out of bounds goes: rows that the rings have overwritten, reports beyond `keep_reports`.

Only then do the sinks of reports and the sources hear of it. A process killed at any moment finds the state
of its last whole checkpoint, with the positions that belong to it.
"""

from __future__ import annotations

import sqlite3
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from monitor.base.codec import pack, unpack
from monitor.base.errors import StoreError
from monitor.base.state_changes import Changes, RingState
from monitor.reports.reader import from_json
from monitor.reports.window_report import RestoreMark, WindowReport, encoded, rfc3339, to_json
from monitor.store.lock import FolderLock
from monitor.store.rings import SavedRings
from monitor.store.schema import prepare

FILE = "blindsight.sqlite"
_BUSY_SECONDS = 10.0
_LOG_BYTES = 16 << 20
_BACKUP = "backup"  # in a copy, when it was made; what is opened with it was restored
_ADD_REPORT = "INSERT INTO report (task, model, grp, window, revision, line) VALUES (?, ?, ?, ?, ?, ?)"
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


class Store:
    """An open store; used by one thread at a time.

    Parameters
    ----------
    folder : Path
        Made if absent.
    keep_reports : int
        Lines of closed windows kept, oldest out first. Those that a sink does not have yet are bounded too:
        by this number, or by 20,000 where that is more. After a restart labels revise no window whose newest
        line is not among them.

    Raises
    ------
    StoreError
        The folder cannot be written, another agent holds it, the file is damaged, or no store of this
        version.
    """

    def __init__(self, folder: Path, keep_reports: int = 100_000) -> None:
        self.folder = folder
        self.path = folder / FILE
        self._keep = keep_reports
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = FolderLock(folder)
        except OSError as error:
            raise StoreError(
                f"store.path: cannot write {folder}: {error.strerror}; change the permissions or give "
                "another path"
            ) from error
        try:
            with self._ours("be opened"):
                self._connection = self._connect()
                prepare(self._connection, str(self.path))
                self._check()
            self._rings = SavedRings(self._connection)
            self._files = self._in_folder()
        except BaseException:
            self._lock.release()
            raise

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
        return Saved(parts, rings, meta.get("config", ""), meta.get(_BACKUP, ""))

    def mark_restore(self, marks: Sequence[RestoreMark]) -> None:
        """Tell every sink of reports, once, from which windows on lines may come again.

        The store's identity gets another end: its reports' numbers, by which readers of a topic see
        repetitions, have been given to other windows since the backup.
        """
        identity = f"{self.identity.partition('.')[0]}.{uuid.uuid4().hex[:8]}"
        with self._ours("be written"), self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(
                _ADD_REPORT, [(m.task, m.model, m.group, m.window, m.revision, encoded(m)) for m in marks]
            )
            self._connection.execute("REPLACE INTO meta VALUES ('identity', ?)", (identity,))
            self._connection.execute("DELETE FROM meta WHERE key = ?", (_BACKUP,))

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
        """
        with self._ours("be written"), self._connection:
            run = self._connection
            run.execute("BEGIN IMMEDIATE")
            run.executemany(
                "REPLACE INTO part VALUES (?, ?)",
                [(name, pack(state)) for name, state in changes.parts.items()],
            )
            for ring in changes.rings:
                self._rings.write(ring)
            run.executemany(
                _ADD_REPORT,
                [(r.task, r.model, r.group, r.window, r.revision, to_json(r)) for r in reports],
            )
            run.executemany(
                "REPLACE INTO sink VALUES (?, ?, ?)",
                [(name, last, place) for name, (last, place) in (written or {}).items()],
            )
            if config is not None:
                run.execute("REPLACE INTO meta VALUES ('config', ?)", (config,))
            newest = self._drop_old_reports(written or {})
            self._refuse_if_gone()
        if any(ring.wiped is not None for ring in changes.rings):
            self._empty_log()
        return newest

    def forget(self, names: Sequence[str]) -> None:
        """Drop the parts and rings of these names: of a task that cannot go on from what was saved."""
        if not names:
            return
        with self._ours("be written"), self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
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
        with self._ours("be written"), self._connection:
            self._connection.execute("INSERT OR IGNORE INTO meta VALUES ('identity', ?)", (uuid.uuid4().hex,))
            found = self._connection.execute("SELECT value FROM meta WHERE key = 'identity'").fetchone()
        return str(found[0])

    def close(self) -> None:
        """Close the file and let go of the folder."""
        self._connection.close()
        self._lock.release()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        # WAL: readers (backup, report) never wait for a checkpoint, nor it for them. NORMAL: a kill of the
        # process loses nothing; a power cut may take the last checkpoints, never a part of one.
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        # What is deleted is overwritten: the file must not keep what the agent has let go of.
        connection.execute("PRAGMA secure_delete = ON")
        # What one large checkpoint, or a reader in its way, made of the log is given back.
        connection.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}")
        return connection

    def _in_folder(self) -> tuple[int | None, ...]:
        """Which files stand in the folder under the names of the store's and of its log; None for none."""
        return tuple(_number_of(path) for path in (self.path, self.path.with_name(f"{FILE}-wal")))

    def _refuse_if_gone(self) -> None:
        """What is written into a file that has been deleted, or replaced, is lost without a word."""
        if self._in_folder() != self._files:
            raise StoreError(
                f"{self.path} was deleted or replaced while the agent uses it; restore its files, or "
                "restart the agent to continue from the present files"
            )

    def _check(self) -> None:
        (verdict,) = self._connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise StoreError(damaged(self.path, " ".join(verdict.split())))

    def _lines(self, task: str, kept: Mapping[str, Any]) -> list[str | None]:
        """The newest lines of the windows that labels may still revise; None for one that was dropped."""
        # By the newest id: a task that was begun anew counts its windows from 0 again.
        query = (
            "SELECT line FROM report WHERE task = ? AND model = ? AND grp = ? AND window = ? "
            "AND revision = ? ORDER BY id DESC LIMIT 1"
        )
        columns = [kept[name].tolist() for name in ("series", "window", "revision")]
        found = [
            self._connection.execute(query, (task, *kept["names"][series], window, revision)).fetchone()
            for series, window, revision in zip(*columns, strict=True)
        ]
        for row, series, window in zip(found, columns[0], columns[1], strict=True):
            _refuse_no_line(row, f"window {window} of {task}, {' '.join(kept['names'][series]).strip()}")
        return [row[0].decode() if row else None for row in found]

    def _empty_log(self) -> None:
        """Bring the write-ahead log into the file and cut it off: it holds pages as they were."""
        with suppress(sqlite3.OperationalError):  # a backup reads from it: the next checkpoint rewinds it
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _drop_old_reports(self, written: Mapping[str, tuple[int, int]]) -> int:
        newest = self._connection.execute("SELECT coalesce(max(id), 0) FROM report").fetchone()[0]
        delivered = min((last for last, _ in written.values()), default=newest)
        oldest = min(newest - self._keep, max(delivered, newest - _MOST_WAITING))
        self._connection.execute("DELETE FROM report WHERE id <= ?", (oldest,))
        return int(newest)

    @contextmanager
    def _ours(self, what: str) -> Iterator[None]:
        """SQLite's errors as ours, with what to do."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            raise explained(self.path, what, error) from error
        except ValueError as error:  # of `unpack`: whole pages, with other bytes in them than were written
            raise StoreError(damaged(self.path, str(error))) from error


class StoreReader:
    """Reads closed windows from a store that another thread, or another process, writes.

    Parameters
    ----------
    path : Path
        Of the store's file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection = sqlite3.connect(
            f"file:{path}?mode=ro", uri=True, timeout=_BUSY_SECONDS, check_same_thread=False
        )

    def reports_after(self, last: int, most: int) -> list[tuple[int, bytes]]:
        """Reports with a larger id, in order: (id, line)."""
        query = "SELECT id, line FROM report WHERE id > ? ORDER BY id LIMIT ?"
        try:
            return list(self._connection.execute(query, (last, most)))
        except sqlite3.DatabaseError as error:
            raise explained(self._path, "be read", error) from error

    def newest_report(self) -> int:
        """The id of the newest report; 0 before the first."""
        try:
            found = self._connection.execute("SELECT coalesce(max(id), 0) FROM report").fetchone()
        except sqlite3.DatabaseError as error:
            raise explained(self._path, "be read", error) from error
        return int(found[0])

    def close(self) -> None:
        """Close the file."""
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


def explained(path: Path, what: str, error: sqlite3.DatabaseError) -> StoreError:
    """SQLite's error as a sentence."""
    name = getattr(error, "sqlite_errorname", "") or ""
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return StoreError(damaged(path, str(error)))
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
        return StoreError(f"{path} cannot {what}: another program has locked it for {_BUSY_SECONDS:.0f} s")
    return StoreError(f"{path} cannot {what}: {error}")


def damaged(path: Path, verdict: str) -> str:
    """What to say of a file that is no whole database."""
    return (
        f"{path} is damaged ({verdict}); put a backup in its place, or move it away to start afresh: the "
        "sources are then read from the group's positions or from their start"
    )


def copy_store(path: Path, target: Path) -> None:
    """Copy a store's file as of its last checkpoint, with the time; an agent may be using it.

    Raises
    ------
    StoreError
        There is no store, or the copy cannot be written.
    """
    if not path.is_file():
        raise StoreError(f"{path}: there is no store")
    try:
        source = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=_BUSY_SECONDS)
        copy = sqlite3.connect(target)
        with copy:
            source.backup(copy)
            copy.execute("REPLACE INTO meta VALUES (?, ?)", (_BACKUP, rfc3339(time.time())))
        # Of a copy that kept its log even a reader would write: two files beside it, which nobody removes.
        copy.execute("PRAGMA journal_mode = DELETE")
        copy.close()
        source.close()
    except sqlite3.DatabaseError as error:
        raise explained(target, "be written as a copy", error) from error
