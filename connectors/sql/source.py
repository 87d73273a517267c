"""The source of kind sql, which reads a table again and again and hands out each row once."""

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
from connectors.formats.wires.choice import columns_of, wire_of
from connectors.sql import progress
from connectors.sql.database import FetchedRows, Row, SqlDatabase, driver_of
from connectors.sql.progress import Progress
from monitor.base.errors import SourceError
from monitor.base.records import Keys
from monitor.base.source import Raw, RawPosition, RawTable, Source, SourceCounts
from monitor.config.sql import SqlSourceConfig

log = logging.getLogger(__name__)

IDLE_SECONDS, COUNT_SECONDS = 10.0, 60.0
QUIET_SECONDS = 15.0
"""A database that owes an answer for longer is not up, although it may answer yet."""
_MOST_SECONDS = 1.0  # rows that come slowly are handed on before they are a batch
_NAMED = (
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
Result = TypeVar("Result")


@dataclass
class Look:
    """One look at the table: rows from `low` on; later those without a value.

    Parameters
    ----------
    rows : FetchedRows
    low : float
        Rank of the value that it begins with.
    used : float
        When it was last read from.
    without : bool
        Whether it is over rows without a value.
    seen : int
        Rows with a usable value that it had so far.
    """

    rows: FetchedRows
    low: float
    used: float
    without: bool = False
    seen: int = 0


class SqlSource(Source[Position]):
    """A source of rows, each once and again when its rising column has risen: docs/tables.md."""

    counts = SourceCounts()

    def __init__(self, settings: SqlSourceConfig) -> None:
        self.name, self._settings = settings.label, settings
        self._database: SqlDatabase | None = None
        self._look: Look | None = None
        self._mapped = columns_of(wire_of(settings))
        self._next_look = self._next_count = 0.0
        self._answered = False
        self._forgotten: queue.SimpleQueue[Keys] = queue.SimpleQueue()
        self._resume({})

    def _resume(self, position: Mapping[str, Any]) -> None:
        """Continue from a position; rows that were read since are read again."""
        self._handed = position
        self._progress = _progress_of(self._settings, position)

    def open(self, positions: Mapping[str, Position]) -> None:
        self._database = SqlDatabase(self._settings, driver_of(self._settings.driver))
        self._resume(positions.get(self.name, {}))

    def read(self, timeout_seconds: float) -> list[Raw]:
        deadline = time.monotonic() + timeout_seconds
        if self._forget():
            return [self._position()]
        while True:
            raw = self._step() if self._look or time.monotonic() >= self._next_look else None
            left = deadline - time.monotonic()
            if raw is not None or left <= 0:
                return [] if raw is None else [raw]
            if self._look is None:
                time.sleep(min(left, max(self._next_look - time.monotonic(), 0.0)))

    @property
    def up(self) -> bool:
        return self._answered and self._waited_seconds <= QUIET_SECONDS

    @property
    def trouble(self) -> str | None:
        waited = self._waited_seconds
        return f"the database has not answered for {waited:.0f} s" if waited > QUIET_SECONDS else None

    @property
    def _waited_seconds(self) -> float:
        return 0.0 if self._database is None else self._database.waited_seconds

    def keep_alive(self) -> None:
        """End a look that nobody continues, as the database keeps its snapshot for as long as it lasts."""
        if self._look is not None and time.monotonic() > self._look.used + IDLE_SECONDS:
            self._guarded(self._give_up_look)

    def close(self) -> None:
        self._answered, self._look = False, None
        if self._database is not None:
            if self._database.waited_seconds:  # another thread waits for it
                self._database.cut()
            self._database.close()

    def forget(self, keys: Keys) -> None:
        self._forgotten.put(keys)

    @classmethod
    def without(cls, position: Position, keys: Keys) -> Position:
        if "overlap" not in position:  # an older version's, of which a look leaves nothing
            return position
        kept = Progress("", "", position["overlap"], position)
        return kept.saved() if kept.forget(keys) else position

    @classmethod
    def sample(cls, settings: Any, records: int) -> list[Raw] | str:
        return cls(settings.model_copy(update={"batch_rows": records}))._first_rows()

    @classmethod
    def sample_every_column(cls, settings: Any, records: int) -> list[Raw]:
        source = cls(settings.model_copy(update={"batch_rows": records}))
        source._mapped = EVERY_COLUMN
        return source._first_rows()

    def _first_rows(self) -> list[Raw]:
        self.open({})
        try:
            return self.read(0.0)
        finally:
            self.close()

    def _forget(self) -> bool:
        forgot = False
        while not self._forgotten.empty():
            forgot |= self._progress.forget(self._forgotten.get())
        return forgot

    def _step(self) -> Raw | None:
        """Take one batch, and return what is new in it."""
        return self._guarded(self._advance)

    def _guarded(self, step: Callable[[], Result]) -> Result:
        """Do a step; whatever a driver raises, continue from the last position that was handed out."""
        try:
            return step()
        except Exception as error:
            self.close()
            self._resume(self._handed)
            if isinstance(error, SourceError):
                raise
            raise self._settings.to_source_error(error) from error

    def _advance(self) -> Raw | None:
        assert self._database is not None
        with self._database.limited():
            if self._look is None:
                self._database.leave_replaced_file()
            self._database.connect()
            if self._look is None:
                self._look = self._begin()
            look = self._look
            look.used = time.monotonic()
            if look.without and self._progress.unusable_is_full:
                log.warning(_UNUSABLE, self.name, progress.MOST_UNUSABLE, self._settings.cursor)
                raw = self._finished(look)
            else:
                rows = look.rows.batch(
                    self._settings.batch_rows, self._settings.batch_bytes, look.used + _MOST_SECONDS
                )
                raw = self._table_of_new(look, rows) if rows else self._ended(look)
        self._answered = True
        return raw

    def _begin(self) -> Look:
        """Begin a look at the look-back."""
        cursor, identity, now = self._settings.cursor, self._settings.id, self._progress
        value, low = now.look_back()
        where, values = f"{cursor} IS NOT NULL", list[Any]()
        if now.tied is not None and (now.passed is not None or self._find_passed()):
            where = f"({cursor} > {{}} OR ({cursor} = {{}} AND {identity} > {{}}))"
            values = [now.tied, now.tied, now.passed]
        elif value is not None:
            where, values = f"{cursor} >= {{}}", [value]
        return self._started(where, values, low)

    def _find_passed(self) -> bool:
        """Find the last row read of those with one value again; else continue behind all of them."""
        now, cursor = self._progress, self._settings.cursor
        ids = (
            (key, identity)
            for batch in self._pairs(f"{cursor} = {{}}", [now.tied], order=True)
            for key, (_, identity) in zip(now.keys([each for _, each in batch]), batch, strict=True)
        )
        found = now.knows_last_of_tied(ids)
        if not found:
            log.warning(_TIED, self.name, now.tied)
            now.leave_tied()
            self._count_gap(1)
        return found

    def _started(self, where: str, values: Sequence[Any], low: float) -> Look:
        assert self._database is not None
        order = f"{self._settings.cursor}, {self._settings.id}"
        look = Look(self._database.rows(where, values, order=order), low, time.monotonic())
        self._check(look)
        return look

    def _check(self, look: Look) -> None:
        """Check that the columns exist."""
        names = look.rows.names
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
        return SourceError(f"source {self.name}: {problem}")

    def _table_of_new(self, look: Look, rows: Sequence[tuple[Row, int]]) -> RawTable | None:
        """Return the rows that are new, as a table."""
        lower = [name.lower() for name in look.rows.names]
        rising, identity = lower.index(self._settings.cursor.lower()), lower.index(self._settings.id.lower())
        now = self._progress
        new: list[Row] = []
        broken: dict[int, str] = {}
        for (row, size), key in zip(rows, now.keys([row[identity] for row, _ in rows]), strict=True):
            is_new, why = now.is_unread(key, row[rising], row[identity], look.low)
            look.seen += why is None
            if is_new:
                if size > MAX_LINE_BYTES:
                    why = why or _TOO_LARGE.format(MAX_LINE_BYTES)
                if why is not None:
                    broken[len(new)] = why
                new.append(row)
        last, _ = rows[-1]
        if now.trim(last[identity], last[rising]):
            log.warning(_NAMED, self.name, progress.MOST_KNOWN, last[rising])
        if not new:
            return None
        columns = {name: _cells([row[i] for row in new]) for i, name in enumerate(look.rows.names)}
        start, now.place = now.place, now.place + len(new)
        return RawTable(columns, self.name, start, broken, self._position().after)

    def _position(self) -> RawPosition:
        self._handed = self._progress.saved()
        return RawPosition(self.name, self._handed)

    def _ended(self, look: Look) -> Raw | None:
        """Look at the rows without a value after the others, then end the look."""
        if look.without or self._progress.unusable_is_full:
            return self._finished(look)
        look.rows.close()
        self._look = self._started(f"{self._settings.cursor} IS NULL", [], -math.inf)
        self._look.without, self._look.seen = True, look.seen
        return None

    def _finished(self, look: Look) -> Raw | None:
        lost = 0
        if time.monotonic() >= self._next_count:
            self._next_count = time.monotonic() + COUNT_SECONDS
            look.rows.close()
            lost = self._late_rows(look)
        self._progress.end_look()
        if lost:
            self._count_gap(lost)
        self._end_look(self._settings.poll_seconds)
        return RawPosition(self.name, self._handed) if lost else None

    def _late_rows(self, look: Look) -> int:
        """Count the rows below the look-back that came late; 1 if the whole table went back."""
        cursor, now = self._settings.cursor, self._progress
        late = known = 0
        if (between := now.late_range()) is not None:
            low, high = between
            where, values = f"{cursor} < {{}}", [high]
            if low is not None:
                where, values = f"{cursor} >= {{}} AND {cursor} < {{}}", [low, high]
            late, known = now.count_late(self._pairs(where, values))
        if late:
            log.warning(_LATE, self.name, late, cursor)
        elif not known and not look.seen and self._went_back():
            log.warning(_GONE, self.name, cursor, now.high)
            now.keep_none()
            return 1
        return late

    def _went_back(self) -> bool:
        """Return whether the table has none of the rows read last any more, but others below them."""
        now, cursor = self._progress, self._settings.cursor
        if now.tied is not None:
            where = f"{cursor} = {{}} AND {self._settings.id} = {{}}"
            if not any(self._pairs(where, [now.tied, now.passed])):
                now.passed = None  # the next look finds the last one that is there
            return False
        if now.oldest_kept is None:
            return False
        [[(lowest, _)]] = self._pairs(f"{cursor} < {{}}", [now.oldest_kept], (f"min({cursor})", "0"))
        return lowest is not None

    def _pairs(
        self, where: str, values: Sequence[Any], columns: tuple[str, str] | None = None, order: bool = False
    ) -> Iterator[list[tuple[Any, Any]]]:
        """Yield values of the rising column and ids, in batches."""
        assert self._database is not None
        read = columns or (self._settings.cursor, self._settings.id)
        rows = self._database.rows(where, values, read, self._settings.id if order else "")
        while batch := rows.batch(self._settings.batch_rows, self._settings.batch_bytes, math.inf):
            yield [(value, identity) for (value, identity), _ in batch]
        rows.close()

    def _count_gap(self, records: int) -> None:
        """Count records as lost, and only once, even if a later step fails."""
        self.counts = replace(self.counts, gap_records=self.counts.gap_records + records)
        self._handed = self._progress.saved()

    def _give_up_look(self) -> None:
        assert self._database is not None
        with self._database.limited():
            self._end_look(0.0)

    def _end_look(self, pause: float) -> None:
        look, self._look = self._look, None
        self._next_look = time.monotonic() + pause
        if look is not None and self._database is not None:
            look.rows.close()
            self._database.end_transaction()


def _progress_of(settings: SqlSourceConfig, position: Mapping[str, Any]) -> Progress:
    return Progress(settings.cursor, settings.id, settings.overlap_seconds, position)


def _cells(column: list[Any]) -> list[object]:
    """Return a column as a table of a file could have it."""
    return column if _AS_THEY_ARE.issuperset(map(type, column)) else list(map(_cell, column))


def _cell(value: Any) -> object:
    """Return a cell as a table of a file could have it."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "surrogateescape")
    finite = not isinstance(value, Decimal) or value.is_finite()
    return value if isinstance(value, _PLAIN) and finite else str(value)
