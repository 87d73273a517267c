"""Rows of a database by any DB-API driver, as a rising column goes on: docs/tables.md."""

from __future__ import annotations

import importlib
import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from hashlib import blake2b
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np

from connectors.formats.decode.structs import MAX_LINE_BYTES
from connectors.formats.files.tables import columns_read
from connectors.formats.messages.wording import listing
from connectors.formats.wires.choice import columns_of, wire_of
from monitor.base.errors import SourceError
from monitor.base.files import read_secret
from monitor.base.registry import Extra
from monitor.base.source import Raw, RawPosition, RawTable, Source, SourceCounts
from monitor.config.sql import SqlSourceConfig

log = logging.getLogger(__name__)

READ_BYTES, FIRST_ROWS = 4 << 20, 200
MOST_KNOWN, MOST_WITHOUT, MOST_COUNTED = 100_000, 10_000, 100_000
IDLE_SECONDS, COUNT_SECONDS, AHEAD = 10.0, 60.0, 86_400 * 10**6
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_POSTGRES = Extra("postgres", ("psycopg",))
# A network that is gone must show within a minute, not within libpq's two hours.
_PATIENCE = {"connect_timeout": 10, "keepalives_idle": 30, "tcp_user_timeout": 30_000}
_NAMED = (
    "source %s: more than %d rows within overlap_seconds: rows that come late before %s are not looked for"
)
_WITHOUT = "source %s: more than %d rows have no value in %s: the others are not counted"
_LATE = (
    "source %s: %d rows came with a value of %s lower than what was looked at, and are lost; raise "
    "overlap_seconds, or let the column rise"
)
_STYLES = {"qmark": "?", "numeric": ":{0}", "named": ":p{0}", "format": "%s", "pyformat": "%(p{0})s"}
Position = dict[str, Any]
Point = list[Any]


def driver_of(name: str) -> Any:
    """The module of a driver.

    Raises
    ------
    MissingExtraError
        It is psycopg, and not installed.
    SourceError
        There is no such module, or it is no driver.
    """
    if name.partition(".")[0] == "psycopg":
        _POSTGRES.require("A source of kind sql with driver: psycopg")
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        raise SourceError(
            f"driver: the Python module {name} cannot be imported ({error}); install it with pip, or "
            "correct its name"
        ) from error
    if not all(hasattr(module, each) for each in ("connect", "paramstyle", "Error")):
        raise SourceError(
            f"driver: {name} is no DB-API 2.0 driver, as it lacks connect, paramstyle or Error; name one "
            "such as psycopg or sqlite3"
        )
    return module


def connected(settings: SqlSourceConfig, driver: Any) -> Any:
    """A connection that only reads, as far as the driver has words for it; nothing is ever committed."""
    kind = settings.driver.partition(".")[0]
    given: dict[str, Any] = dict(settings.options)
    dsn = settings.dsn
    if settings.password_file is not None:
        given["password"] = read_secret("password_file", settings.password_file)
    if kind == "sqlite3" and dsn is not None:  # mode=rw: a wrong path must not become an empty database
        dsn = f"{Path(dsn).absolute().as_uri()}?mode=rw"
        given = {"uri": True, "check_same_thread": False, **given}
    if kind == "psycopg":
        given = {**{key: value for key, value in _PATIENCE.items() if key not in (dsn or "")}, **given}
    try:
        connection = driver.connect(*([] if dsn is None else [dsn]), **given)
    except (TypeError, ValueError) as error:  # a keyword that it does not have
        raise SourceError(f"options: {settings.driver} does not take them: {error}") from error
    if kind == "sqlite3":
        connection.execute("PRAGMA query_only = 1")
        connection.text_factory = _text
    if kind == "psycopg":
        connection.read_only = True
        _keep_odd_times(connection)
    return connection


def _text(data: bytes) -> str:
    """A text of SQLite, which keeps whatever bytes it was given; what is no UTF-8 costs its row alone."""
    return data.decode("utf-8", "surrogateescape")


def _keep_odd_times(connection: Any) -> None:
    """Have psycopg hand on a time that Python cannot hold (infinity, the year 10000) as PostgreSQL's text."""
    import psycopg
    from psycopg.types import datetime as times

    def kept(loader: Any) -> Any:
        class Forgiving(loader):  # type: ignore[misc]
            def load(self, data: Any) -> Any:
                try:
                    return super().load(data)
                except psycopg.DataError:
                    return bytes(data).decode("utf-8", "surrogateescape")

        return Forgiving

    loaders = {
        "date": times.DateLoader,
        "timestamp": times.TimestampLoader,
        "timestamptz": times.TimestamptzLoader,
    }
    for name, loader in loaders.items():
        connection.adapters.register_loader(name, kept(loader))


def rank(value: object) -> float | None:
    """Where a value of the rising column stands: a number, or microseconds; None where it is neither.

    Examples
    --------
    >>> rank(7), rank(datetime(1970, 1, 2)), rank("1970-01-01 00:00:01"), rank("soon"), rank(True)
    (7.0, 86400000000.0, 1000000.0, None, None)
    """
    if isinstance(value, bool):
        return None
    try:
        if isinstance(value, str):
            value = datetime.fromisoformat(value)
        if isinstance(value, date):
            moment = value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)
            since = moment.replace(tzinfo=moment.tzinfo or UTC) - _EPOCH
            return float((since.days * 86_400 + since.seconds) * 10**6 + since.microseconds)
        found = float(value) if isinstance(value, int | float | Decimal) else math.nan
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def below(value: Any, seconds: float) -> Any:
    """A value so far below another one of the column, as the column has it.

    Examples
    --------
    >>> below(1000, 300), below(datetime(2026, 1, 1), 60), below("2026-01-01 00:05:00.5+01:00", 300)
    (700, datetime.datetime(2025, 12, 31, 23, 59), '2026-01-01 00:00:00')
    """
    if isinstance(value, str):
        # In whole seconds: it stands before all that begin with it, whatever fraction and zone follow.
        low = datetime.fromisoformat(value) - timedelta(seconds=seconds)
        whole = low.replace(tzinfo=None, microsecond=0).isoformat(sep=value[10:11] or "T")
        return whole[: min(len(value), 19)]
    if isinstance(value, datetime):
        return value - timedelta(seconds=seconds)
    if isinstance(value, date):
        return value - timedelta(days=math.ceil(seconds / 86_400))
    if isinstance(value, int):
        return value - math.ceil(seconds)
    return value - type(value)(seconds)


def low_rank(value: Any, seconds: float) -> float:
    """The rank of `below`: of text without its zone, that of the value's zone."""
    low = below(value, seconds)
    zone = datetime.fromisoformat(value).tzinfo if isinstance(value, str) else None
    found = rank(low if zone is None else datetime.fromisoformat(low).replace(tzinfo=zone))
    assert found is not None
    return found


_KINDS: Mapping[str, tuple[type, Any]] = {
    "time": (datetime, datetime.fromisoformat),
    "date": (date, date.fromisoformat),
    "decimal": (Decimal, Decimal),
    "uuid": (UUID, UUID),
}


def stored(value: Any) -> Any:
    """A value as a store can hold it; `restored` gives it back.

    Examples
    --------
    >>> restored(stored(datetime(2026, 1, 1))), stored("a"), restored(stored(Decimal("0.1")))
    (datetime.datetime(2026, 1, 1, 0, 0), 'a', Decimal('0.1'))
    """
    for tag, (kind, _) in _KINDS.items():
        if isinstance(value, kind):
            return [tag, value.isoformat() if isinstance(value, date) else str(value)]
    return value if isinstance(value, str | int | float | bytes | None) else str(value)


def restored(value: Any) -> Any:
    """What `stored` was given."""
    return _KINDS[value[0]][1](value[1]) if isinstance(value, list | tuple) else value


def digest(value: object) -> int:
    """What an id is known by."""
    return int.from_bytes(blake2b(repr(value).encode("utf-8", "replace"), digest_size=8).digest(), "little")


class Known:
    """Rows that were read within the look-back: each by its id and its place in the rising column."""

    def __init__(self, saved: bytes = b"") -> None:
        table = np.frombuffer(saved, dtype=[("id", "<u8"), ("rank", "<f8")])
        self.rows = set(zip(table["id"].tolist(), table["rank"].tolist(), strict=True))
        self._newest: dict[int, float] = {}
        for row, at in self.rows:
            self._newest[row] = max(at, self._newest.get(row, at))

    def saved(self) -> bytes:
        """The rows as bytes, from which they can be restored."""
        return np.array(list(self.rows), dtype=[("id", "<u8"), ("rank", "<f8")]).tobytes()

    def add(self, row: int, at: float) -> bool:
        """Keep a row; whether its value had been greater before."""
        self.rows.add((row, at))
        newest = self._newest.get(row, at)
        self._newest[row] = max(at, newest)
        return at < newest

    def forget_below(self, low: float) -> int:
        """Forget rows below a place; how many there were."""
        old = [each for each in self.rows if each[1] < low]
        self.rows.difference_update(old)
        for row, at in old:
            if self._newest.get(row) == at:
                del self._newest[row]
        return len(old)


@dataclass
class Look:
    """One look at the database: a cursor over the rows from `low` on; later over those without a value."""

    cursor: Any
    low: float
    names: list[str]
    used: float
    without: bool = False


class SqlSource(Source[Position]):
    """Each row once, and again when its rising column has risen: docs/tables.md."""

    up = False
    counts = SourceCounts()

    def __init__(self, settings: SqlSourceConfig) -> None:
        self.name, self._settings = settings.label, settings
        self._driver: Any = None
        self._connection: Any = None
        self._look: Look | None = None
        self._mapped = columns_of(wire_of(settings))
        self._next_look = self._next_count = 0.0
        self._rows = min(FIRST_ROWS, settings.batch_rows)
        self._resume({})

    def _resume(self, position: Mapping[str, Any]) -> None:
        self._place = position.get("place", 0)
        self._high = restored(position.get("high"))
        # Where the look-back would hold too many rows it begins here: at a value, behind an id.
        self._floor: Point | None = position.get("floor")
        self._known = Known(position.get("known", b""))
        self._without = set(np.frombuffer(position.get("without", b""), dtype="<u8").tolist())
        # Since a value, so many rows that were read are older than the look-back.
        self._settled: Point | None = position.get("settled")

    def open(self, positions: Mapping[str, Position]) -> None:
        self._driver = driver_of(self._settings.driver)
        self._resume(positions.get(self.name, {}))

    def read(self, timeout_seconds: float) -> list[Raw]:
        deadline = time.monotonic() + timeout_seconds
        while True:
            found = self._step() if self._look or time.monotonic() >= self._next_look else None
            left = deadline - time.monotonic()
            if found is not None or left <= 0:
                return [] if found is None else [found]
            if self._look is None:
                time.sleep(min(left, max(self._next_look - time.monotonic(), 0.0)))

    def keep_alive(self) -> None:
        """End a look that nobody goes on with: the database keeps what it shows for as long as it lasts."""
        if self._look is not None and time.monotonic() > self._look.used + IDLE_SECONDS:
            self._end_look(0.0)

    def close(self) -> None:
        look, self._look, connection, self._connection = self._look, None, self._connection, None
        self.up = False
        for each in (None if look is None else look.cursor, connection):
            try:
                if each is not None:
                    each.close()
            except (self._driver.Error, OSError):  # the server is gone already
                log.debug("source %s: could not be closed", self.name, exc_info=True)

    @classmethod
    def sample(cls, settings: Any, records: int) -> list[Raw] | str:
        source = cls(settings.model_copy(update={"batch_rows": records}))
        source.open({})
        source._rows = records
        try:
            return source.read(0.0)
        finally:
            source.close()

    def _step(self) -> Raw | None:
        """One fetch, and what is new in it."""
        try:
            if self._connection is None:
                self._connection = connected(self._settings, self._driver)
            if self._look is None:
                self._look = self._begin()
            look = self._look
            look.used = time.monotonic()
            rows = look.cursor.fetchmany(self._rows)
            found = self._taken(look, rows) if rows else self._ended(look)
            if look.without and rows and len(self._without) >= MOST_WITHOUT:
                log.warning(_WITHOUT, self.name, MOST_WITHOUT, self._settings.cursor)
                self._end_look(self._settings.poll_seconds)
            self.up = True
            return found
        except SourceError:
            self.close()
            raise
        except (self._driver.Error, OSError) as error:
            self.close()
            raise self._settings.explained(error) from error

    def _begin(self) -> Look:
        """A look from the look-back on."""
        cursor, identity, seconds = self._settings.cursor, self._settings.id, self._settings.overlap_seconds
        low, where, values = -math.inf, f"{cursor} IS NOT NULL", list[Any]()
        if self._high is not None:
            low = low_rank(self._high, seconds)
            where, values = f"{cursor} >= {{}}", [below(self._high, seconds)]
            floor = None if self._floor is None else list(map(restored, self._floor))
            if floor is not None and (rank(floor[0]) or 0.0) >= low:
                where = f"({cursor} > {{}} OR ({cursor} = {{}} AND {identity} > {{}}))"
                values = [floor[0], floor[0], floor[1]]
            else:
                self._floor = None
        return self._executed(where, values, low)

    def _executed(self, where: str, values: Sequence[Any], low: float = -math.inf) -> Look:
        order = f" ORDER BY {self._settings.cursor}, {self._settings.id}"
        cursor = self._cursor(f"SELECT * FROM {self._records} WHERE {where}{order}", values, streams=True)
        look = Look(cursor, low, [column[0] for column in cursor.description], time.monotonic())
        self._check(look)
        return look

    @property
    def _records(self) -> str:
        # A query may end in a comment, which ends with its line.
        return self._settings.table or f"({(self._settings.query or '').rstrip().rstrip(';')}\n) records"

    def _cursor(self, statement: str, values: Sequence[Any], streams: bool = False) -> Any:
        """A cursor over what a statement gives; each ``{}`` behind its WHERE stands for a value."""
        style = self._driver.paramstyle
        head, where, tail = statement.rpartition(" WHERE ")
        marks = [_STYLES[style].format(i + 1) for i in range(len(values))]
        text = head + where + tail.format(*marks)
        if values and style in ("format", "pyformat"):
            text = head.replace("%", "%%") + where + tail.format(*marks)
        named = {f"p{i + 1}": value for i, value in enumerate(values)}
        given: Any = named if style in ("named", "pyformat") else tuple(values)
        # Without a name psycopg would fetch all rows at once.
        on_server = streams and self._settings.driver.partition(".")[0] == "psycopg"
        cursor = self._connection.cursor(name="blindsight") if on_server else self._connection.cursor()
        try:
            cursor.execute(text, *([given] if values else []))
        except BaseException:
            cursor.close()
            raise
        return cursor

    def _check(self, look: Look) -> None:
        """See that the columns are there; else nothing is left open."""
        names, problem = look.names, ""
        lower = [name.lower() for name in names]
        for key, name in (("cursor", self._settings.cursor), ("id", self._settings.id)):
            if name.lower() not in lower:
                problem = f"{key}: there is no column {name} among {listing(names)}; correct it"
        read = columns_read(names, self._mapped)
        twice = next((name for name in read if read.count(name) > 1), None)
        if twice is not None:
            problem = problem or f"two columns are called {twice}; rename one by AS in a query"
        if not read:
            ours = "name them as docs/records.md says, or give a mapping"
            if self._mapped:
                ours = f"the mapping reads {', '.join(sorted(self._mapped))}"
            problem = problem or f"none of the columns is known ({listing(names)}); {ours}"
        if problem:
            look.cursor.close()
            raise SourceError(f"source {self.name}: {problem}")

    def _taken(self, look: Look, rows: Sequence[Sequence[Any]]) -> RawTable | None:
        """Of fetched rows those that are new, as a table."""
        lower = [name.lower() for name in look.names]
        rising, identity = lower.index(self._settings.cursor.lower()), lower.index(self._settings.id.lower())
        sizes = [sum(map(_size, row)) for row in rows]
        kept: list[Sequence[Any]] = []
        broken: dict[int, str] = {}
        for row, size in zip(rows, sizes, strict=True):
            is_new, why = self._judged(look, row[rising], row[identity])
            if is_new:
                why = why or (_TOO_LARGE.format(MAX_LINE_BYTES) if size > MAX_LINE_BYTES else None)
                if why is not None:
                    broken[len(kept)] = why
                kept.append(row)
        self._rows = max(1, min(self._settings.batch_rows, READ_BYTES * len(rows) // max(sum(sizes), 1)))
        self._let_go(rows[-1][rising], rows[-1][identity])
        if not kept:
            return None
        columns = {name: [_cell(row[i]) for row in kept] for i, name in enumerate(look.names)}
        start, self._place = self._place, self._place + len(kept)
        return RawTable(columns, self.name, start, broken, self._position())

    def _judged(self, look: Look, value: Any, identity: Any) -> tuple[bool, str | None]:
        """Whether a row was not read before, and what is wrong with it."""
        cursor, row, at = self._settings.cursor, digest(identity), rank(value)
        if value is None:
            is_new = row not in self._without
            self._without.add(row)
            return is_new, f"{cursor}: NULL; give each row a value, or leave such rows out by a query"
        ahead = rank(datetime.now(UTC)) or 0.0
        wrong = None
        if at is None:
            wrong = f"{cursor}: expected a time or a number, got {type(value).__name__}"
        elif isinstance(value, date | str) and at > ahead + AHEAD:
            wrong = f"{cursor}: more than a day ahead of this machine's clock; correct the clock that set it"
        if wrong is not None or at is None:
            # It stands for itself: no other value is compared with it, and it is not forgotten.
            row, at = digest((identity, value)), math.inf
        if at < look.low or (row, at) in self._known.rows:
            return False, None
        if identity is None:
            wrong = wrong or f"{self._settings.id}: NULL; give each row an id"
        fell = self._known.add(row, at) and identity is not None
        if at < math.inf and (self._high is None or at > (rank(self._high) or 0.0)):
            self._high = value
        if fell:
            wrong = f"{cursor}: it falls: this id was read with a greater value; let the column rise"
        return True, wrong

    def _let_go(self, value: Any, identity: Any) -> None:
        """Forget rows that the look-back has left behind; all of them where it would hold too many."""
        if self._high is None:
            return
        seconds = self._settings.overlap_seconds
        gone = self._known.forget_below(low_rank(self._high, seconds))
        low = below(self._high, seconds)
        if self._settled is None or self._settled[1] > MOST_COUNTED:
            self._settled = [stored(low), 0]
        else:
            self._settled[1] += gone
        if len(self._known.rows) > MOST_KNOWN and identity is not None and rank(value) is not None:
            if self._floor is None:
                log.warning(_NAMED, self.name, MOST_KNOWN, value)
            self._floor, self._settled, self._known = [stored(value), stored(identity)], None, Known()

    def _position(self) -> Position:
        return {
            "place": self._place,
            "high": stored(self._high),
            "floor": self._floor,
            "known": self._known.saved(),
            "without": np.array(sorted(self._without), dtype="<u8").tobytes(),
            "settled": self._settled and list(self._settled),
        }

    def _ended(self, look: Look) -> Raw | None:
        """After the rows those without a value; then it is over until the next look."""
        if not look.without and len(self._without) < MOST_WITHOUT:
            look.cursor.close()
            self._look = self._executed(f"{self._settings.cursor} IS NULL", [])
            self._look.without = True
            return None
        late = self._late_rows()
        self._end_look(self._settings.poll_seconds)
        return RawPosition(self.name, self._position()) if late else None

    def _late_rows(self) -> int:
        """Count rows that are older than the look-back and more than were read."""
        if self._settled is None or self._high is None or time.monotonic() < self._next_count:
            return 0
        self._next_count = time.monotonic() + COUNT_SECONDS
        cursor = self._settings.cursor
        values = [restored(self._settled[0]), below(self._high, self._settings.overlap_seconds)]
        where = f"{cursor} >= {{}} AND {cursor} < {{}}"
        counted = self._cursor(f"SELECT count(*) FROM {self._records} WHERE {where}", values).fetchone()[0]
        late: int = max(counted - self._settled[1], 0)
        self._settled[1] = counted
        if late:
            log.warning(_LATE, self.name, late, cursor)
            self.counts = replace(self.counts, gap_records=self.counts.gap_records + late)
        return late

    def _end_look(self, pause: float) -> None:
        look, self._look = self._look, None
        self._next_look = time.monotonic() + pause
        if look is not None:
            look.cursor.close()
            self._connection.rollback()


_PLAIN = (str, int, float, date, list, dict, Decimal, type(None))
_TOO_LARGE = "a row of more than {} bytes; send less of it"


def _size(value: Any) -> int:
    """About how many bytes a cell takes."""
    if isinstance(value, str | bytes | bytearray | memoryview):
        return len(value)
    return 8 if value is None or isinstance(value, int | float) else len(repr(value))


def _cell(value: Any) -> object:
    """A cell as a table of a file could have it."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "surrogateescape")
    finite = not isinstance(value, Decimal) or value.is_finite()
    return value if isinstance(value, _PLAIN) and finite else str(value)
