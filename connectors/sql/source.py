"""The `sql` source, which polls a table or query and hands out each row once.

The rising column (`cursor` in the configuration) has a greater value in each new or changed row.
"""

from __future__ import annotations

import logging
import math
import queue
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any, TypeVar

from connectors.formats.decode.structs import MAX_LINE_BYTES
from connectors.formats.files.tables import EVERY_COLUMN, columns_read
from connectors.formats.messages.wording import listing
from connectors.formats.wires.choice import wire_of
from connectors.sql import progress
from connectors.sql.database import FetchedRows, Row, SqlDatabase, import_driver
from connectors.sql.progress import Progress
from monitor.base.errors import SourceError
from monitor.base.records import Keys
from monitor.base.source import Raw, RawPosition, RawTable, Source, SourceCounts
from monitor.config.sql import SqlSourceConfig

log = logging.getLogger(__name__)

IDLE_SECONDS = 10.0
"""A poll that is not continued for longer ends, so that the database can release its snapshot."""
COUNT_SECONDS = 60.0
"""The time between two counts of late rows."""
QUIET_SECONDS = 15.0
"""A source that waits longer for the database is not up, although an answer may still arrive."""
_MOST_SECONDS = 1.0  # a batch ends after this time, also if it is not full
_TOO_MANY_ROWS = (
    "source %s: more than %d rows within overlap_seconds: rows that come late before %s are not looked for"
)
_UNUSABLE = "source %s: more than %d rows have no usable value in %s: the others are not counted"
_LATE = (
    "source %s: %d rows came with a value of %s lower than what was looked at, and are lost; raise "
    "overlap_seconds, or let the column rise"
)
_GONE = (
    "source %s: none of the rows read last is there any more, and no row has a value of %s of %s or more: "
    "the table was replaced, emptied or restored, and lower values are not read; give the source another "
    "name to read it from its beginning"
)
_TIED = "source %s: the rows read last with the value %s are all gone; other rows with it may be lost"
_PLAIN = (str, int, float, date, list, dict, Decimal, type(None))
_AS_THEY_ARE = {str, int, float, bool, datetime, date, type(None)}
_TOO_LARGE = "a row of more than {} bytes; send less of it"
Position = dict[str, Any]
"""The position of a source: a snapshot of `Progress`."""
Result = TypeVar("Result")


@dataclass
class Poll:
    """A poll of the table.

    A poll executes two statements. The first selects the rows whose rising column is not below `low`, and the
    second selects the rows whose rising column is NULL.

    Parameters
    ----------
    rows : FetchedRows
        The result rows of the current statement.
    low : float
        The rank of the value at which the poll starts.
    used : float
        The reading of `time.monotonic()` when rows were last fetched.
    without_value : bool
        Whether the current statement selects the rows with NULL in the rising column.
    seen : int
        The number of rows with a usable value that the poll has returned.
    """

    rows: FetchedRows
    low: float
    used: float
    without_value: bool = False
    seen: int = 0


class SqlSource(Source[Position]):
    """A source of the rows of a table or query: docs/files.md.

    Each row is handed out once, and again whenever its value of the rising column has increased. A call of
    `read` may return only one batch of a poll. The next call continues the poll.
    """

    counts = SourceCounts()

    def __init__(self, settings: SqlSourceConfig) -> None:
        self.name, self._settings = settings.label, settings
        self._database: SqlDatabase | None = None
        self._poll: Poll | None = None
        self._mapped = wire_of(settings).columns
        self._next_poll = self._next_count = 0.0
        self._answered = False
        self._forgotten: queue.SimpleQueue[Keys] = queue.SimpleQueue()
        self._resume({})

    def _resume(self, position: Mapping[str, Any]) -> None:
        """Set the progress to a position that was handed out or saved; the rows after it are read again."""
        self._handed = position
        self._progress = _progress_from(self._settings, position)

    def open(self, positions: Mapping[str, Position]) -> None:
        """Import the driver and set the position. The first call of `read` connects to the database.

        Raises
        ------
        MissingExtraError
            The driver is psycopg, which is not installed.
        SourceError
            The module of the driver cannot be imported or is not a DB-API 2.0 driver.
        """
        self._database = SqlDatabase(self._settings, import_driver(self._settings.driver))
        self._resume(positions.get(self.name, {}))

    def read(self, timeout_seconds: float) -> list[Raw]:
        """Return the next new rows as a table, or a position without rows. If neither is ready, return [].

        Raises
        ------
        SourceError
            The database failed, or the configured table, query, columns or options are wrong.
        """
        deadline = time.monotonic() + timeout_seconds
        if self._forget():
            return [self._position()]
        while True:
            raw = self._step() if self._poll or time.monotonic() >= self._next_poll else None
            left = deadline - time.monotonic()
            if raw is not None or left <= 0:
                return [] if raw is None else [raw]
            if self._poll is None:
                time.sleep(min(left, max(self._next_poll - time.monotonic(), 0.0)))

    @property
    def up(self) -> bool:
        """True if the database has answered since the last error and no answer is overdue."""
        return self._answered and self._waited_seconds <= QUIET_SECONDS

    @property
    def trouble(self) -> str | None:
        """A message that the database has not answered for more than `QUIET_SECONDS`; otherwise None."""
        waited = self._waited_seconds
        return f"the database has not answered for {waited:.0f} s" if waited > QUIET_SECONDS else None

    @property
    def _waited_seconds(self) -> float:
        """The seconds since the pending request was sent to the database; 0 if no request is pending."""
        return 0.0 if self._database is None else self._database.waited_seconds

    def keep_alive(self) -> None:
        """End a poll that was not continued for `IDLE_SECONDS`, so that its transaction ends."""
        if self._poll is not None and time.monotonic() > self._poll.used + IDLE_SECONDS:
            self._run_guarded(self._give_up_poll)

    def close(self) -> None:
        """Disconnect from the database. A request for which another thread waits is interrupted."""
        self._answered, self._poll = False, None
        if self._database is not None:
            if self._database.waited_seconds:
                self._database.cut()
            self._database.close()

    def forget(self, keys: Keys) -> None:
        """Remove the rows with these ids from all positions that later calls of `read` return."""
        self._forgotten.put(keys)

    @classmethod
    def without(cls, position: Position, keys: Keys) -> Position:
        """Return a position without the rows that have these ids.

        A position of an older version is returned unchanged. The next complete poll removes its rows.
        """
        if "overlap" not in position:  # a position of an older version
            return position
        kept = Progress("", "", position["overlap"], position)
        return kept.snapshot() if kept.forget(keys) else position

    @classmethod
    def sample(cls, settings: Any, records: int) -> list[Raw] | str:
        """Return a batch of the first rows of the table; see `Source.sample` for parameters and errors."""
        return cls(settings.model_copy(update={"batch_rows": records}))._first_rows()

    @classmethod
    def sample_every_column(cls, settings: Any, records: int) -> list[Raw]:
        """Return a batch of the first rows of the table, even if the mapping reads none of its columns."""
        source = cls(settings.model_copy(update={"batch_rows": records}))
        source._mapped = EVERY_COLUMN
        return source._first_rows()

    def _first_rows(self) -> list[Raw]:
        """Open the source without a position, read one batch, and close the source."""
        self.open({})
        try:
            return self.read(0.0)
        finally:
            self.close()

    def _forget(self) -> bool:
        """Remove the ids that were passed to `forget`, and return whether the progress had any of them."""
        forgot = False
        while not self._forgotten.empty():
            forgot |= self._progress.forget(self._forgotten.get())
        return forgot

    def _step(self) -> Raw | None:
        """Fetch one batch, and return a table of its new rows, a position without rows, or None."""
        return self._run_guarded(self._advance)

    def _run_guarded(self, step: Callable[[], Result]) -> Result:
        """Call a function that uses the database, and return its result.

        After any exception, disconnect and set the progress back to the last position that was handed out.

        Raises
        ------
        SourceError
            The function failed; an error of the driver is converted.
        """
        try:
            return step()
        except Exception as error:
            self.close()
            self._resume(self._handed)
            if isinstance(error, SourceError):
                raise
            raise self._settings.to_source_error(error) from error

    def _advance(self) -> Raw | None:
        """Connect and start a poll if necessary, and do the work of `_step`."""
        assert self._database is not None
        with self._database.limited():
            self._database.connect()
            if self._poll is None:
                self._poll = self._begin()
            poll = self._poll
            poll.used = time.monotonic()
            if poll.without_value and self._progress.unusable_is_full:
                log.warning(_UNUSABLE, self.name, progress.MOST_UNUSABLE, self._settings.cursor)
                raw = self._finish(poll)
            else:
                rows = poll.rows.batch(
                    self._settings.batch_rows, self._settings.batch_bytes, poll.used + _MOST_SECONDS
                )
                raw = self._table_of_new(poll, rows) if rows else self._end_statement(poll)
        self._answered = True
        return raw

    def _begin(self) -> Poll:
        """Start a poll at the look-back, or after the last tied row."""
        cursor, identity, state = self._settings.cursor, self._settings.id, self._progress
        value, low = state.lookback()
        where, values = f"{cursor} IS NOT NULL", list[Any]()
        if state.tied is not None and (state.last_tied_id is not None or self._find_last_tied()):
            where = f"({cursor} > {{}} OR ({cursor} = {{}} AND {identity} > {{}}))"
            values = [state.tied, state.tied, state.last_tied_id]
        elif value is not None:
            where, values = f"{cursor} >= {{}}", [value]
        return self._start_poll(where, values, low)

    def _find_last_tied(self) -> bool:
        """Search the table for the last row read with the value `tied`, and return whether it exists.

        If the row does not exist, continue reading above the value and count one lost record.
        """
        state, cursor = self._progress, self._settings.cursor
        ids = (
            (key, identity)
            for batch in self._pairs(f"{cursor} = {{}}", [state.tied], order=True)
            for key, (_, identity) in zip(state.hash_ids([each for _, each in batch]), batch, strict=True)
        )
        exists = state.find_last_tied(ids)
        if not exists:
            log.warning(_TIED, self.name, state.tied)
            state.skip_tied()
            self._count_gap(1)
        return exists

    def _start_poll(self, where: str, values: Sequence[Any], low: float) -> Poll:
        """Execute a statement for rows in the order of their value and id, and check its columns."""
        assert self._database is not None
        order = f"{self._settings.cursor}, {self._settings.id}"
        poll = Poll(self._database.rows(where, values, order=order), low, time.monotonic())
        self._check(poll)
        return poll

    def _check(self, poll: Poll) -> None:
        """Check the columns of a result.

        Raises
        ------
        SourceError
            The rising column or the id column is missing, or no column is known to the mapping.
        """
        names = poll.rows.names
        lower = [name.lower() for name in names]
        for key, name in (("cursor", self._settings.cursor), ("id", self._settings.id)):
            if name.lower() not in lower:
                raise self._refused(f"{key}: there is no column {name} among {listing(names)}; correct it")
        try:
            read = columns_read(names, self._mapped)
        except SourceError as error:
            raise self._refused(str(error)) from error
        if not read:
            ours = "name them as docs/records.md says, or give a mapping"
            if self._mapped:
                ours = f"the mapping reads {', '.join(sorted(self._mapped))}"
            raise self._refused(f"none of the columns is known ({listing(names)}); {ours}")

    def _refused(self, problem: str) -> SourceError:
        """Return a SourceError for a problem, with the name of the source in its message."""
        return SourceError(f"source {self.name}: {problem}")

    def _table_of_new(self, poll: Poll, rows: Sequence[tuple[Row, int]]) -> RawTable | None:
        """Return the new rows of a batch as a table; None if no row is new."""
        lower = [name.lower() for name in poll.rows.names]
        rising, identity = lower.index(self._settings.cursor.lower()), lower.index(self._settings.id.lower())
        state = self._progress
        new: list[Row] = []
        broken: dict[int, str] = {}
        for (row, size), key in zip(rows, state.hash_ids([row[identity] for row, _ in rows]), strict=True):
            is_new, why = state.add_row(key, row[rising], row[identity], poll.low)
            poll.seen += why is None
            if is_new:
                if size > MAX_LINE_BYTES:
                    why = why or _TOO_LARGE.format(MAX_LINE_BYTES)
                if why is not None:
                    broken[len(new)] = why
                new.append(row)
        last, _ = rows[-1]
        if state.trim(last[identity], last[rising]):
            log.warning(_TOO_MANY_ROWS, self.name, progress.MOST_KNOWN, last[rising])
        if not new:
            return None
        columns = {name: _cells([row[i] for row in new]) for i, name in enumerate(poll.rows.names)}
        start, state.place = state.place, state.place + len(new)
        return RawTable(columns, self.name, start, broken, self._position().after)

    def _position(self) -> RawPosition:
        """Return the position after the rows read so far, and note it as handed out."""
        self._handed = self._progress.snapshot()
        return RawPosition(self.name, self._handed)

    def _end_statement(self, poll: Poll) -> Raw | None:
        """Continue the poll with the rows without a value; finish the poll after these rows."""
        if poll.without_value or self._progress.unusable_is_full:
            return self._finish(poll)
        poll.rows.close()
        self._poll = self._start_poll(f"{self._settings.cursor} IS NULL", [], -math.inf)
        self._poll.without_value, self._poll.seen = True, poll.seen
        return None

    def _finish(self, poll: Poll) -> Raw | None:
        """End a poll, and return a position if late rows were counted.

        Late rows are counted once in `COUNT_SECONDS`.
        """
        lost = 0
        if time.monotonic() >= self._next_count:
            self._next_count = time.monotonic() + COUNT_SECONDS
            poll.rows.close()
            lost = self._late_rows(poll)
        self._progress.end_poll()
        if lost:
            self._count_gap(lost)
        self._end_poll(self._settings.poll_seconds)
        return RawPosition(self.name, self._handed) if lost else None

    def _late_rows(self, poll: Poll) -> int:
        """Count the late rows below the look-back; return 1 if the table no longer has any kept row."""
        cursor, state = self._settings.cursor, self._progress
        late = known = 0
        if (between := state.late_range()) is not None:
            low, high = between
            where, values = f"{cursor} < {{}}", [high]
            if low is not None:
                where, values = f"{cursor} >= {{}} AND {cursor} < {{}}", [low, high]
            late, known = state.count_late(self._pairs(where, values))
        if late:
            log.warning(_LATE, self.name, late, cursor)
        elif not known and not poll.seen and self._went_back():
            log.warning(_GONE, self.name, cursor, state.high)
            state.drop_all()
            return 1
        return late

    def _went_back(self) -> bool:
        """Return whether the table has rows below all kept rows, after a poll that returned no kept row.

        If there is a tied value, return False, and clear `last_tied_id` if the table no longer has that row.
        """
        state, cursor = self._progress, self._settings.cursor
        if state.tied is not None:
            where = f"{cursor} = {{}} AND {self._settings.id} = {{}}"
            if not any(self._pairs(where, [state.tied, state.last_tied_id])):
                state.last_tied_id = None  # the next poll looks for the last tied row that remains
            return False
        if state.oldest_kept is None:
            return False
        [[(lowest, _)]] = self._pairs(f"{cursor} < {{}}", [state.oldest_kept], (f"min({cursor})", "0"))
        return lowest is not None

    def _pairs(
        self, where: str, values: Sequence[Any], columns: tuple[str, str] | None = None, order: bool = False
    ) -> Iterator[list[tuple[Any, Any]]]:
        """Yield pairs of a value of the rising column and an id in batches, or pairs of the given columns."""
        assert self._database is not None
        read = columns or (self._settings.cursor, self._settings.id)
        rows = self._database.rows(where, values, read, self._settings.id if order else "")
        while batch := rows.batch(self._settings.batch_rows, self._settings.batch_bytes, math.inf):
            yield [(value, identity) for (value, identity), _ in batch]
        rows.close()

    def _count_gap(self, records: int) -> None:
        """Count lost records, and note the position as handed out, so that they are counted only once."""
        self.counts = replace(self.counts, gap_records=self.counts.gap_records + records)
        self._handed = self._progress.snapshot()

    def _give_up_poll(self) -> None:
        """End the poll before its last row; the next read starts another poll."""
        assert self._database is not None
        with self._database.limited():
            self._end_poll(0.0)

    def _end_poll(self, pause: float) -> None:
        """End the poll and its transaction; the next poll starts after `pause` seconds."""
        poll, self._poll = self._poll, None
        self._next_poll = time.monotonic() + pause
        if poll is not None and self._database is not None:
            poll.rows.close()
            self._database.end_transaction()


def _progress_from(settings: SqlSourceConfig, position: Mapping[str, Any]) -> Progress:
    """Return the progress at a position."""
    return Progress(settings.cursor, settings.id, settings.overlap_seconds, position)


def _cells(column: list[Any]) -> list[object]:
    """Return the cells of a column as values that a column of a file may have."""
    return column if _AS_THEY_ARE.issuperset(map(type, column)) else list(map(_cell, column))


def _cell(value: Any) -> object:
    """Return a cell as a value that a file may have; bytes and unknown types become text."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "surrogateescape")
    finite = not isinstance(value, Decimal) or value.is_finite()
    return value if isinstance(value, _PLAIN) and finite else str(value)
