"""A database by a DB-API driver: a connection that only reads, and rows that come one by one.

Drivers limit a fetch by its number of rows only, and each of a thousand rows may have a megabyte. So rows are
taken one by one until they make a batch. psycopg does this in libpq's single-row mode, in which the socket
holds back the other rows. The large cells of a row that is too large never leave PostgreSQL and SQLite: they
come as NULL.
"""

from __future__ import annotations

import importlib
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from connectors.formats.decode.structs import MAX_LINE_BYTES
from connectors.sql.values import in_utc
from monitor.base.errors import SourceError
from monitor.base.files import read_secret
from monitor.base.registry import Extra
from monitor.config.sql import SqlSourceConfig

_POSTGRES = Extra("postgres", ("psycopg",))
# A network that is gone must show within a minute, not within libpq's two hours.
_PATIENCE = {"connect_timeout": 10, "keepalives_idle": 30, "tcp_user_timeout": 30_000}
_STYLES = {"qmark": "?", "numeric": ":{0}", "named": ":p{0}", "format": "%s", "pyformat": "%(p{0})s"}
_SIZE = "blindsight_bytes"
_FETCHED = 5000  # rows that PostgreSQL is asked for at once; they come one by one
_POINTER_BYTES = 16  # of a cell in its row, and in its column
_CONTAINERS = {list, dict}
_PARSED = 16  # times the text that a list or an object was parsed from
_FIXED = {
    *("bool", "int2", "int4", "int8", "float4", "float8", "date", "time", "timetz", "timestamp"),
    *("timestamptz", "interval", "uuid", "oid"),
}
_MEASURED = {"text", "varchar", "bpchar", "bytea"}
_MAY_BE_UNREADABLE = ("date", "time", "timetz", "timestamp", "timestamptz", "interval", "json", "jsonb")
Row = Sequence[Any]


def driver_of(name: str) -> Any:
    """Return the module of a driver.

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


class FetchedRows:
    """The rows that a statement yields.

    Parameters
    ----------
    names : list of str
        Of the columns.
    rows : iterator of sequence
    measured : bool
        Whether the last cell of each row is its size in bytes, as the database says, and no column.
    close : callable
    """

    def __init__(
        self, names: list[str], rows: Iterator[Row], measured: bool, close: Callable[[], None]
    ) -> None:
        self.names = names
        self._rows = rows
        self._measured = measured
        self._close = close
        self._closed = self.ended = False
        self._failure: Exception | None = None

    def close(self) -> None:
        """Close the statement, even if rows are left."""
        if not self._closed:
            self._closed = True
            self._close()

    def batch(self, most_rows: int, most_bytes: int, until: float) -> list[tuple[Row, int]]:
        """Take rows until they reach a limit of rows, bytes or time; return [] when none is left.

        Returns
        -------
        list of (row, int)
            With the size of each row in bytes.
        """
        if self._failure is not None:
            raise self._failure
        rows: list[tuple[Row, int]] = []
        held = 0
        while len(rows) < most_rows and held < most_bytes and not (rows and time.monotonic() > until):
            try:
                row = next(self._rows, None)
            except Exception as error:
                if not rows:
                    raise
                self._failure = error  # first, what came before it
                break
            if row is None:
                self.ended = True
                break
            held += _cost(row)
            rows.append((row[:-1], row[-1]) if self._measured else (row, sum(map(_size, row))))
        return rows


class SqlDatabase:
    """A connection to a configured database; `cut` may be called by another thread.

    Parameters
    ----------
    settings : SqlSourceConfig
    driver : module
    """

    def __init__(self, settings: SqlSourceConfig, driver: Any) -> None:
        self._settings, self._driver = settings, driver
        self._kind = settings.driver.partition(".")[0]
        self._connection: Any = None
        self._cursors: list[
            Any
        ] = []  # of the transaction: SQLite keeps its lock until the last one is closed
        self._asked_at: float | None = None
        self._was_cut = False
        self._file: tuple[int, int] | None = None  # SQLite's, as it was opened

    @property
    def waited_seconds(self) -> float:
        """Return how long the database has owed an answer; 0 if it owes none."""
        asked_at = self._asked_at
        return 0.0 if asked_at is None else time.monotonic() - asked_at

    @contextmanager
    def limited(self) -> Iterator[None]:
        """Cut the connection if the block takes longer than `timeout_seconds`.

        Raises
        ------
        SourceError
            It did.
        """
        limit = threading.Timer(self._settings.timeout_seconds, self.cut)
        limit.daemon = True
        self._asked_at = time.monotonic()
        limit.start()
        try:
            yield
        except Exception as error:
            if not self._was_cut:
                raise
            raise SourceError(
                f"Database by {self._settings.driver}: no answer within "
                f"{self._settings.timeout_seconds:g} s; see that it works, index {self._settings.cursor}, or "
                "raise timeout_seconds"
            ) from error
        finally:
            limit.cancel()
            self._asked_at = None

    def cut(self) -> None:
        """End every wait for the database, as far as the driver has a way to do so."""
        self._was_cut = True
        self._interrupt()

    def _interrupt(self) -> None:
        connection = self._connection
        if connection is None:
            return
        with suppress(OSError, self._driver.Error):  # it is gone already
            if self._kind == "psycopg":
                with socket.socket(fileno=os.dup(connection.fileno())) as end:
                    end.shutdown(socket.SHUT_RDWR)
            elif (
                interrupt := getattr(connection, "interrupt", getattr(connection, "cancel", None))
            ) is not None:
                interrupt()

    def leave_replaced_file(self) -> None:
        """Disconnect from a file of SQLite that another one has replaced: nobody writes to it any more."""
        if self._connection is not None and self._file != self._file_now():
            self.close()

    def _file_now(self) -> tuple[int, int] | None:
        """Return the device and inode of SQLite's file; None if it is not there, or for other drivers."""
        if self._kind != "sqlite3" or self._settings.dsn is None:
            return None
        try:
            now = os.stat(self._settings.dsn)
        except OSError:
            return None
        return now.st_dev, now.st_ino

    def connect(self) -> None:
        """Connect for reading only, as far as the driver can; nothing is ever committed."""
        if self._connection is not None:
            return
        self._was_cut = False
        settings = self._settings
        options: dict[str, Any] = dict(settings.options)
        dsn = settings.dsn
        if settings.password_file is not None:
            options["password"] = read_secret("password_file", settings.password_file)
        if self._kind == "sqlite3" and dsn is not None:  # mode=rw: a wrong path must not become an empty file
            dsn = f"{Path(dsn).absolute().as_uri()}?mode=rw"
            options = {"uri": True, "check_same_thread": False, **options}
        if self._kind == "psycopg":
            options = {
                **{key: value for key, value in _PATIENCE.items() if key not in (dsn or "")},
                **options,
            }
        self._file = self._file_now()
        try:
            connection = self._driver.connect(*([] if dsn is None else [dsn]), **options)
        except (TypeError, ValueError) as error:  # a keyword that it does not have
            raise SourceError(f"options: {settings.driver} does not take them: {error}") from error
        # Until here: rows that came before a cut are handed on first, and its error is met in a later step.
        self._connection, self._was_cut = connection, False
        if self._kind == "sqlite3":
            connection.execute("PRAGMA query_only = 1")
            connection.text_factory = _any_text
        if self._kind == "psycopg":
            connection.read_only = True
            _load_leniently(connection)

    def close(self) -> None:
        """Disconnect, and never raise."""
        connection, self._connection = self._connection, None
        cursors, self._cursors = self._cursors, []
        for each in (*cursors, *([] if connection is None else [connection])):
            with suppress(Exception):  # whatever a driver says of a connection that is gone
                each.close()

    def end_transaction(self) -> None:
        """End the transaction, so that the database need not keep its snapshot any longer."""
        if self._connection is not None:
            self._connection.rollback()
            self._cursors.clear()

    def rows(
        self, where: str, values: Sequence[Any], columns: Sequence[str] = (), order: str = ""
    ) -> FetchedRows:
        """Return rows of the table or query.

        Parameters
        ----------
        where : str
            A condition, with ``{}`` for each value.
        values : sequence
        columns : sequence of str, optional
            Names of columns; all where left out, each row with its size if the database can measure it.
        order : str, optional
        """
        head, measured = f"SELECT {', '.join(columns) or '*'} FROM {self._records}", False
        if not columns and self._kind in ("psycopg", "sqlite3"):
            head, measured = self._measuring()
        tail = f" ORDER BY {order}" if order else ""
        if self._kind == "psycopg":
            return self._declared(head, where, tail, values, measured)
        cursor = self._executed(head, f" WHERE {where}{tail}", values)
        names = [column[0] for column in cursor.description]
        return FetchedRows(
            names[:-1] if measured else names, iter(cursor.fetchone, None), measured, cursor.close
        )

    @property
    def _records(self) -> str:
        # A query may end in a comment, which ends with its line.
        return self._settings.table or f"({(self._settings.query or '').rstrip().rstrip(';')}\n) records"

    def _measuring(self) -> tuple[str, bool]:
        """Return the beginning of a statement that omits large cells, and whether it measures rows."""
        cursor = self._executed(f"SELECT * FROM {self._records}", " WHERE 1 = 0", ())
        names, kinds = [column[0] for column in cursor.description], self._kinds(cursor)
        cursor.close()
        if len(set(names)) < len(names):  # of two columns with one name neither can be named
            return f"SELECT * FROM {self._records}", False
        quoted = ['"' + name.replace('"', '""') + '"' for name in names]
        sizes = [self._size_of(name, kind) for name, kind in zip(quoted, kinds, strict=True)]
        total = " + ".join(f"coalesce({size}, 0)" for size in sizes if size) or "0"
        is_small = [f"coalesce({size or 0}, 0) <= {MAX_LINE_BYTES}" for size in sizes]
        measured = ""
        if self._kind == "psycopg":  # OFFSET 0: sizes are measured once a row, not once a column
            measured = f" CROSS JOIN LATERAL (SELECT {total} AS {_SIZE} OFFSET 0) sized"
            keys = {self._settings.cursor.lower(), self._settings.id.lower()}
            is_small = [
                cell if name.lower() in keys else f"{_SIZE} <= {MAX_LINE_BYTES}"
                for name, cell in zip(names, is_small, strict=True)
            ]
            total = _SIZE
        cells = [
            name if size is None else f"CASE WHEN {small} THEN {name} END AS {name}"
            for name, size, small in zip(quoted, sizes, is_small, strict=True)
        ]
        return f"SELECT {', '.join(cells)}, {total} AS {_SIZE} FROM {self._records}{measured}", True

    def _kinds(self, cursor: Any) -> list[str]:
        if self._kind == "sqlite3":
            return ["" for _ in cursor.description]
        types = self._driver.adapters.types
        infos = [types.get(column.type_code) for column in cursor.description]
        return [
            each.name if each is not None and each.oid == column.type_code else ""  # else an array of it
            for each, column in zip(infos, cursor.description, strict=True)
        ]

    def _size_of(self, name: str, kind: str) -> str | None:
        """Return an SQL expression for the bytes of a column; None for types of few bytes."""
        if self._kind == "sqlite3":  # from 3.43 on, it does not read the cell for this
            if self._driver.sqlite_version_info >= (3, 43):
                return f"octet_length({name})"
            return f"length(CAST({name} AS BLOB))"
        if kind in _FIXED:
            return None
        if kind in _MEASURED:
            return f"octet_length({name})"
        # What PostgreSQL compresses has at most 255 times its size. To measure it, it must unpack it.
        small = f"pg_column_size({name})"
        return (
            f"CASE WHEN {small} <= {MAX_LINE_BYTES // 256} THEN {small} ELSE octet_length({name}::text) END"
        )

    def _executed(self, head: str, where: str, values: Sequence[Any]) -> Any:
        """Execute a statement and return its cursor."""
        text, arguments = self._bound(head, where, values)
        cursor = self._connection.cursor()
        self._cursors.append(cursor)
        cursor.execute(text, *arguments)
        return cursor

    def _bound(self, head: str, where: str, values: Sequence[Any]) -> tuple[str, list[Any]]:
        """Return a statement in the parameter style of the driver, and its values."""
        if not values:
            return head + where, []
        style = self._driver.paramstyle
        marks = [_STYLES[style].format(i + 1) for i in range(len(values))]
        text = (head.replace("%", "%%") if style in ("format", "pyformat") else head) + where.format(*marks)
        named = {f"p{i + 1}": value for i, value in enumerate(values)}
        return text, [named if style in ("named", "pyformat") else tuple(values)]

    def _declared(
        self, head: str, where: str, tail: str, values: Sequence[Any], measured: bool
    ) -> FetchedRows:
        """Return the rows of a cursor on PostgreSQL's side, which holds back all but the next ones."""
        names = [column.name for column in self._executed(head, " WHERE 1 = 0", ()).description]
        self._executed(f"DECLARE blindsight NO SCROLL CURSOR FOR {head}", f" WHERE {where}{tail}", values)
        connection = self._connection

        def fetched() -> Generator[Row, None, None]:
            count = _FETCHED
            while count == _FETCHED:
                count = 0
                with connection.cursor() as cursor:
                    for row in cursor.stream(f"FETCH FORWARD {_FETCHED} FROM blindsight"):
                        count += 1
                        yield row

        stream = fetched()

        def close() -> None:
            if rows.ended:
                connection.execute("CLOSE blindsight")
            else:  # the rows that are on their way would have to be read
                self._interrupt()
                stream.close()
                self.close()

        rows = FetchedRows(names[:-1] if measured else names, stream, measured, close)
        return rows


def _size(value: Any) -> int:
    """Estimate how many bytes the content of a cell takes."""
    if isinstance(value, str | bytes | bytearray | memoryview):
        return len(value)
    return 8 if value is None or isinstance(value, int | float) else len(repr(value))


def _cost(row: Row) -> int:
    """Estimate how much memory a row takes; parsed JSON has an object for each number and name."""
    cost = sum(map(sys.getsizeof, row)) + _POINTER_BYTES * len(row)
    if not _CONTAINERS.isdisjoint(map(type, row)):
        cost += _PARSED * sum(len(repr(value)) for value in row if type(value) in _CONTAINERS)
    return cost


def _any_text(data: bytes) -> str:
    """Decode text of SQLite, which does not check that it is UTF-8."""
    return data.decode("utf-8", "surrogateescape")


def _load_leniently(connection: Any) -> None:
    """Make psycopg return text for values that Python lacks, such as `infinity` or a time BC."""
    from psycopg.adapt import Loader
    from psycopg.pq import Format

    def lenient(kind: Any) -> type[Loader]:
        class TextWhereUnreadable(Loader):
            def __init__(self, oid: int, context: Any = None) -> None:
                super().__init__(oid, context)
                self._load = kind(oid, context).load

            def load(self, data: Any) -> Any:
                try:
                    return self._load(data)
                except Exception:  # noqa: BLE001 - of any parser that a type may have
                    return in_utc(bytes(data).decode("utf-8", "replace"))

        return TextWhereUnreadable

    for name in _MAY_BE_UNREADABLE:
        kind = connection.adapters.get_loader(connection.adapters.types[name].oid, Format.TEXT)
        if kind is not None:
            connection.adapters.register_loader(name, lenient(kind))
