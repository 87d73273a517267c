"""The spool in PostgreSQL: the table in which an HTTP source stores received posts until they are processed.

A row of the table `spool` contains several posts. A post is acknowledged to its sender when its row is
committed. Each transaction locks the agent's lease (see `monitor.store.postgres`). Until the transaction
ends, no other agent can take the lease. Checkpoints are not blocked. So an agent that has lost its lease
acknowledges no posts, and the next owner of the lease sees all acknowledged posts.

A checkpoint saves the position before which all lines are processed. Rows before this position are deleted
after the checkpoint.

The table `acknowledged` has a row for each row of `spool`, without the lines. If somebody drops or empties
`spool`, `acknowledged` shows the number of lost lines.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial

from monitor.base.errors import LeaseLostError, SourceError, StoreAwayError, StoreError
from monitor.base.spool import (
    PostSpool,
    SpoolFrame,
    SpoolLines,
    SpoolPost,
    SpoolWriteError,
    make_frames,
    merge_stretches,
)
from monitor.store.postgres import PostgresConnection, PostgresDatabase, PostgresStore, hold_lease

log = logging.getLogger("blindsight")

_GROUP_BYTES = 1 << 20  # the size of a row; a read returns about as much
_READ_BYTES = 1 << 20
_ROW_BYTES = 100  # the overhead of a row: its header, its other columns, its index entry
_CLOSE_SECONDS = 2.0
_LOCK_SECONDS = 5.0  # the longest wait of a post for a lock on the table
_ANSWER_SECONDS = 15.0  # the longest wait for a statement; then the connection is cut and posts are refused
_WATCH_SECONDS = 1.0
_AGAIN_SECONDS = 1.0

_TABLE = """
CREATE TABLE IF NOT EXISTS spool (
    source text NOT NULL,
    start bigint NOT NULL,
    stop bigint NOT NULL,
    count bigint NOT NULL,
    labels boolean NOT NULL,
    lines bytea NOT NULL,
    PRIMARY KEY (source, start)
)
"""
_ACKNOWLEDGED = """
CREATE TABLE IF NOT EXISTS acknowledged (
    source text NOT NULL,
    stop bigint NOT NULL,
    count bigint NOT NULL,
    PRIMARY KEY (source, stop)
)
"""
_NOTE = "INSERT INTO acknowledged VALUES (?, ?, ?)"
_LOSE = (
    "WITH lost AS (DELETE FROM acknowledged a WHERE source = ? AND NOT EXISTS "
    "(SELECT 1 FROM spool s WHERE s.source = a.source AND s.stop = a.stop) RETURNING stop, count) "
    "SELECT coalesce(sum(count), 0)::bigint FROM lost WHERE stop > ?"
)
_LOCK = "LOCK TABLE spool, acknowledged IN ROW EXCLUSIVE MODE"
"""The statement that takes the lock of an insertion; it fails if no row can be inserted."""
_UNUSED = (
    "SELECT min(start), coalesce(sum(count), 0)::bigint, "
    "coalesce(sum(stop - start) + ? * count(*), 0)::bigint FROM spool WHERE source = ? AND stop > ?"
)
_END = "SELECT max(stop) FROM spool WHERE source = ?"
_FIRST = "SELECT min(start) FROM spool WHERE source = ?"
_ADD = "INSERT INTO spool VALUES (?, ?, ?, ?, ?, ?)"
_REMOVE = tuple(f"DELETE FROM {table} WHERE source = ? AND stop <= ?" for table in ("spool", "acknowledged"))
_TAKE_BACK = tuple(
    f"DELETE FROM {table} WHERE source = ? AND stop > ?" for table in ("spool", "acknowledged")
)
_READ = (
    "SELECT start, count, labels, lines FROM spool WHERE source = ? AND stop > ? AND start < ? ORDER BY start"
)


class SpoolTable(PostSpool):
    """The stored posts of one source, in the database of the agent's store.

    Parameters
    ----------
    store : PostgresStore
        The store. This agent must hold its lease.
    source : str
        The name of the source.
    max_bytes : int
        The largest size of the posts that are not yet processed, including posts that are not yet written.
    """

    def __init__(self, store: PostgresStore, source: str, max_bytes: int) -> None:
        super().__init__(max_bytes, _GROUP_BYTES, _ROW_BYTES)
        self._database = store.postgres
        self._number = store.number
        self._still_seconds = store.lease_seconds  # time limit of an idle transaction
        self._source = source
        self._connections: list[PostgresConnection] = []
        self._end = self._position = self._absorbed = 0
        self._removed = -1  # the offset before which rows are deleted
        self._tidy_from = 0.0  # monotonic time from which rows may be deleted again
        self._unread = 0  # lines
        self._handed: deque[tuple[int, int]] = deque()  # offset after each read, and its size in bytes
        self._doubtful = False  # whether an unknown commit may have left rows after the end
        self._away = False
        self._watched = threading.Event()  # set when the watcher's thread must end

    def open(self, position: int | None) -> None:
        """Open the spool, to read from the offset `position`; if `position` is None, from the first row.

        Raises
        ------
        LeaseLostError
            Another agent has taken the lease.
        StoreError
            The database cannot be reached or used.
        """
        still = {
            "idle_in_transaction_session_timeout": round(1000 * self._still_seconds),
            "lock_timeout": round(1000 * _LOCK_SECONDS),
        }
        try:
            with self._database.convert_errors("keep posts"):
                self._connections.append(PostgresConnection(self._database, **still))
                self._connections.append(self._database.connect_read_only())
                with self._fenced() as run:
                    run.execute(_TABLE)
                    run.execute(_ACKNOWLEDGED)
                    if position is None:
                        position = int(run.execute(_FIRST, (self._source,)).fetchone()[0] or 0)
                    (end,) = run.execute(_END, (self._source,)).fetchone()
                    unused = (_ROW_BYTES, self._source, position)
                    first, self._unread, self._bytes = run.execute(_UNUSED, unused).fetchone()
                    (lost,) = run.execute(_LOSE, (self._source, position)).fetchone()
        except BaseException:
            self.close()
            raise
        self._absorbed, self._end = position, max(position, end or 0)
        self._position = position if first is None else max(position, first)
        self._report_missing(position, lost)
        self._begin_writing()
        self._watched.clear()
        threading.Thread(target=self._watch, name="blindsight-spool-watch", daemon=True).start()

    def _report_missing(self, position: int, lost: int) -> None:
        """Count and log the lost records, and log a gap between the saved position and the first row."""
        self.lost = (self.lost or 0) + lost
        if lost:
            log.error(
                "%s: %d records of %s that were acknowledged are lost: the table spool was dropped or "
                "emptied before they were read.",
                self._database.name,
                lost,
                self._source,
            )
        elif self._position > position:
            log.warning(
                "%s: the spool of %s begins at %d, past the position %d: the records between were deleted as "
                "used, and the present state is older.",
                self._database.name,
                self._source,
                self._position,
                position,
            )

    def read(self, timeout_seconds: float) -> list[SpoolLines]:
        """Wait for lines, and return the next complete lines.

        The list is empty if no lines come in time, or if the database is unreachable.

        Raises
        ------
        SourceError
            The rows at the present position are missing.
        """
        with self._lock:
            self._to_read.wait_for(lambda: self._end > self._position or self._closing, timeout_seconds)
            end = min(self._end, self._position + _READ_BYTES)
        if end <= self._position:
            return []
        try:
            with self._database.convert_errors("be read"):
                values = (self._source, self._position, end)
                rows = self._connections[1].execute(_READ, values).fetchall()
        except StoreAwayError as error:  # the store logs that its database cannot be reached
            log.debug("Posts are not read: %s.", error)
            time.sleep(timeout_seconds)
            return []
        return merge_stretches(list(self._advance(rows)))

    def _advance(self, rows: Sequence[tuple[int, int, bool, bytes]]) -> Iterator[SpoolLines]:
        """Yield the lines of consecutive rows, and move the position to the end of the last row."""
        size = lines = 0
        for start, count, labels, data in rows:
            if start > self._position:
                break
            yield SpoolLines(data[self._position - start :], self._position, labels)
            self._position = start + len(data)
            size, lines = size + len(data) + _ROW_BYTES, lines + count
        if not size:
            raise SourceError(
                f"{self._database.name}: the spool of {self._source} has no record at {self._position}; "
                "restore a backup, or empty its table spool to continue without its records"
            )
        with self._lock:
            self._handed.append((self._position, size))
            self._unread -= lines

    def absorbed(self, position: int) -> None:
        """Record that all lines before an offset are processed and saved. They may then be deleted."""
        with self._lock:
            self._absorbed = max(self._absorbed, position)
            while self._handed and self._handed[0][0] <= self._absorbed:
                self._bytes -= self._handed.popleft()[1]
            self._to_write.notify()

    def close(self) -> None:
        """Write the waiting posts, for at most 2 seconds, and close the connections."""
        self._end_writing(_CLOSE_SECONDS)
        self._watched.set()
        for connection in self._connections:
            connection.close()
        self._connections = []

    @property
    def lag(self) -> int:
        """The number of stored lines that have not been read."""
        with self._lock:
            return self._unread

    def erase(self, is_gone: Callable[[bytes], bool]) -> int:
        """Overwrite some lines with spaces, to delete personal data, and return the number of these lines.

        Offsets do not change, and readers skip blank lines. Call this method on a spool that is not open,
        while the agent holds the lease.

        Parameters
        ----------
        is_gone : callable
            Returns whether a line must be overwritten.

        Raises
        ------
        StoreError
            The database cannot be written.
        """
        erased = 0
        with self._database.convert_errors("be written"), closing(PostgresConnection(self._database)) as run:
            self._connections = [run]
            with self._fenced():
                run.execute(_TABLE)
                starts = run.execute("SELECT start FROM spool WHERE source = ?", (self._source,)).fetchall()
                place = "WHERE source = ? AND start = ?"
                for (start,) in starts:
                    key = (self._source, start)
                    (data,) = run.execute(f"SELECT lines FROM spool {place}", key).fetchone()
                    lines = data.split(b"\n")
                    gone = [i for i, line in enumerate(lines) if line.strip() and is_gone(line)]
                    for i in gone:
                        lines[i] = b" " * len(lines[i])
                    if gone:
                        run.execute(f"UPDATE spool SET lines = ? {place}", (b"\n".join(lines), *key))
                    erased += len(gone)
            if erased:
                run.execute("VACUUM spool")  # dead rows still hold the erased lines
            self._connections = []
        return erased

    @contextmanager
    def _fenced(self) -> Iterator[PostgresConnection]:
        """Run a block in a transaction that holds the lease. Raise LeaseLostError if the lease is lost."""
        run = self._connections[0]
        with run.transaction("posts"):
            if not hold_lease(run, self._number):
                raise LeaseLostError(f"{self._database.name}: the lease is lost; no posts are taken any more")
            yield run

    def _commit(self, step: Callable[[PostgresConnection], object]) -> None:
        """Call a function in a transaction and commit it.

        The agent notices only at the next request that a session is closed or has outdated settings. So if
        the call fails quickly and the session is closed, it is repeated in a new session.
        """
        began = time.monotonic()
        try:
            with self._database.convert_errors("keep posts"), self._fenced() as run:
                step(run)
        except StoreError:
            if self._connections[0].is_open or time.monotonic() - began > _LOCK_SECONDS:
                raise
            with self._database.convert_errors("keep posts"), self._fenced() as run:
                step(run)

    _look_seconds = 5.0

    def _look(self) -> None:
        try:
            self._commit(lambda run: run.execute(_LOCK))
        except Exception as error:
            self._log_change(error)
            raise SpoolWriteError(str(error)) from error
        self._log_change(None)

    def _watch(self) -> None:
        """Close connections whose server does not answer, until the spool is closed."""
        while not self._watched.wait(_WATCH_SECONDS):
            for connection in self._connections.copy():
                connection.cut(_ANSWER_SECONDS)

    def _kept(self, group: Sequence[SpoolPost], reserved: int) -> int:
        frames, upto = list(make_frames(group, self._end)), self._absorbed
        try:
            self._commit(partial(self._add, frames, upto))
        except Exception as error:
            with self._lock:
                self._bytes -= reserved
            self._log_change(error)
            raise SpoolWriteError(str(error)) from error
        self._doubtful, self._removed = False, upto
        self._log_change(None)
        with self._lock:
            self._end = frames[-1].end
            self._bytes += sum(len(each.lines) + _ROW_BYTES for each in frames) - reserved
            self._unread += sum(each.rows for each in frames)
            self._to_read.notify_all()
            return self._end

    def _add(self, frames: Sequence[SpoolFrame], upto: int, run: PostgresConnection) -> None:
        """Insert rows. They replace the rows of an earlier transaction whose commit is unknown."""
        if self._doubtful:  # the senders repeat the earlier rows, or these rows repeat them
            for statement in _TAKE_BACK:
                run.execute(statement, (self._source, self._end))
        self._doubtful = True
        rows = [(self._source, each.start, each.end, each.rows, each.labels, each.lines) for each in frames]
        run.executemany(_ADD, rows)
        run.executemany(_NOTE, [(self._source, each.end, each.rows) for each in frames])
        if upto > self._removed:
            self._remove(upto, run)

    def _remove(self, upto: int, run: PostgresConnection) -> None:
        """Delete the rows before an offset."""
        for statement in _REMOVE:
            run.execute(statement, (self._source, upto))

    def _untidy(self) -> bool:
        return self._absorbed > self._removed and time.monotonic() >= self._tidy_from

    def _untidy_seconds(self) -> float | None:
        return _AGAIN_SECONDS if self._absorbed > self._removed else None

    def _tidy(self) -> None:
        upto = self._absorbed
        try:
            with self._database.convert_errors("be written"), self._fenced() as run:
                self._remove(upto, run)
            self._removed = upto
        except StoreError as error:  # the store logs that its database cannot be reached
            log.debug("Posts that are used are not deleted: %s.", error)
            self._tidy_from = time.monotonic() + _AGAIN_SECONDS

    def _log_change(self, error: Exception | None) -> None:
        """Log the first failure after a success, and the first success after a failure."""
        if error is not None and not self._away:
            log.error("%s: posts cannot be kept: %s. They are answered 503.", self._source, error)
        if error is None and self._away:
            log.info("%s: posts are kept again.", self._source)
        self._away = error is not None


def newest_post(database: PostgresDatabase, source: str) -> int:
    """Return the offset after the newest stored post of a source, or 0 if there is no post.

    Raises
    ------
    StoreError
        The database cannot be read.
    """
    with database.convert_errors("be read"), closing(database.connect_read_only()) as run:
        if run.execute("SELECT to_regclass('spool')").fetchone()[0] is None:
            return 0
        return int(run.execute(_END, (source,)).fetchone()[0] or 0)


def has_posts_before(database: PostgresDatabase, source: str, position: int) -> bool:
    """Return whether the spool still contains posts of a source that end at or before an offset."""
    if position == 0:  # the table may not exist
        return False
    with database.convert_errors("be read"), closing(database.connect_read_only()) as run:
        query = "SELECT EXISTS (SELECT 1 FROM spool WHERE source = ? AND stop <= ?)"
        return bool(run.execute(query, (source, position)).fetchone()[0])
