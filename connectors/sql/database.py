"""A connection to a database with a DB-API driver, for reading. The rows of a result are fetched one by one.

A driver limits a fetch only by the number of rows, but a single row may have a megabyte. Batches are
therefore built from single rows until they reach a limit of rows or bytes. psycopg fetches single rows in
libpq's single-row mode, in which the remaining rows wait in the socket. PostgreSQL and SQLite do not send the
large cells of a row that is too large; they return NULL for these cells.
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
# A broken network must cause an error within a minute; libpq's defaults would wait for two hours.
_TIMEOUTS = {"connect_timeout": 10, "keepalives_idle": 30, "tcp_user_timeout": 30_000}
_STYLES = {"qmark": "?", "numeric": ":{0}", "named": ":p{0}", "format": "%s", "pyformat": "%(p{0})s"}
"""The placeholder of a value in a statement, by the driver's `paramstyle`; `{0}` is the value's number."""
_SIZE = "blindsight_bytes"  # name of the column with the size of a row
_FETCH_ROWS = 5000  # rows of one FETCH from PostgreSQL, which are still received one by one
_POINTER_BYTES = 16  # two pointers to each cell, one in its row and one in its column
_CONTAINERS = {list, dict}
_PARSED_FACTOR = 16  # estimated memory of parsed JSON, as a multiple of its text
_FIXED = {
    *("bool", "int2", "int4", "int8", "float4", "float8", "date", "time", "timetz", "timestamp"),
    *("timestamptz", "interval", "uuid", "oid"),
}
"""PostgreSQL types of a fixed size of at most 16 bytes, which need not be measured."""
_MEASURABLE = {"text", "varchar", "bpchar", "bytea"}
"""PostgreSQL types whose size is known from `octet_length`."""
_MAY_BE_UNREADABLE = ("date", "time", "timetz", "timestamp", "timestamptz", "interval", "json", "jsonb")
"""PostgreSQL types with values that Python cannot represent."""
Row = Sequence[Any]
"""The cells of a row."""


def import_driver(name: str) -> Any:
    """Import a DB-API 2.0 driver by the name of its module and return the module.

    Raises
    ------
    MissingExtraError
        The driver is psycopg, which is not installed.
    SourceError
        The module cannot be imported or is not a DB-API 2.0 driver.
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
    """The result rows of a statement, fetched in batches.

    Parameters
    ----------
    names : list of str
        The names of the columns.
    rows : iterator of sequence
        The rows, fetched one by one.
    measured : bool
        True if each row ends with an extra cell. This cell is the size of the row in bytes, measured by the
        database.
    close : callable
        Closes the statement.

    Attributes
    ----------
    ended : bool
        Whether all rows have been fetched.
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
        """Close the statement, even if some rows have not been fetched. A second call has no effect."""
        if not self._closed:
            self._closed = True
            self._close()

    def batch(self, most_rows: int, most_bytes: int, until: float) -> list[tuple[Row, int]]:
        """Fetch rows until a limit is reached.

        Parameters
        ----------
        most_rows : int
            The largest number of rows.
        most_bytes : int
            The memory in bytes after which no further row is fetched.
        until : float
            The reading of `time.monotonic()` after which no further row is fetched. The first row is always
            fetched.

        Returns
        -------
        list of (row, int)
            Each row with its size in bytes; an empty list if all rows have been fetched.

        Raises
        ------
        Exception
            The driver's error. If rows were fetched before the error, they are returned, and the next call
            raises the error.
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
                self._failure = error  # the next call raises it; this one returns the rows before it
                break
            if row is None:
                self.ended = True
                break
            held += _cost(row)
            rows.append((row[:-1], row[-1]) if self._measured else (row, sum(map(_size, row))))
        return rows


class SqlDatabase:
    """A connection to the database of a `sql` source, which commits nothing.

    With psycopg and sqlite3 the connection is read-only. One thread uses the connection. Any thread may call
    `cut` and read `waited_seconds`.

    Parameters
    ----------
    settings : SqlSourceConfig
    driver : module
        A DB-API 2.0 driver; see `import_driver`.
    """

    def __init__(self, settings: SqlSourceConfig, driver: Any) -> None:
        self._settings, self._driver = settings, driver
        self._kind = settings.driver.partition(".")[0]
        self._connection: Any = None
        # The cursors of the current transaction; SQLite keeps its lock until all of them are closed.
        self._cursors: list[Any] = []
        self._request_time: float | None = None
        self._was_cut = False

    @property
    def waited_seconds(self) -> float:
        """The seconds since the pending request to the database was sent; 0 if no request is pending."""
        request_time = self._request_time
        return 0.0 if request_time is None else time.monotonic() - request_time

    @contextmanager
    def limited(self) -> Iterator[None]:
        """Cut the connection if the requests in the `with` block take longer than `timeout_seconds`.

        Raises
        ------
        SourceError
            A request failed because the connection was cut.
        """
        limit = threading.Timer(self._settings.timeout_seconds, self.cut)
        limit.daemon = True
        self._request_time = time.monotonic()
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
            self._request_time = None

    def cut(self) -> None:
        """Interrupt the pending request, if the driver supports that, and mark the connection as cut."""
        self._was_cut = True
        self._interrupt()

    def _interrupt(self) -> None:
        """Shut down psycopg's socket; for another driver, call the connection's `interrupt` or `cancel`."""
        connection = self._connection
        if connection is None:
            return
        with suppress(OSError, self._driver.Error):  # the connection may be closed already
            if self._kind == "psycopg":
                with socket.socket(fileno=os.dup(connection.fileno())) as end:
                    end.shutdown(socket.SHUT_RDWR)
            elif (
                interrupt := getattr(connection, "interrupt", getattr(connection, "cancel", None))
            ) is not None:
                interrupt()

    def connect(self) -> None:
        """Connect to the database if there is no connection.

        With psycopg and sqlite3 the connection is read-only. Nothing is committed with any driver.

        Raises
        ------
        SourceError
            The driver does not accept the configured options, or the file of the password cannot be read.
        Exception
            The driver's error if the connection fails.
        """
        if self._connection is not None:
            return
        self._was_cut = False
        settings = self._settings
        options: dict[str, Any] = dict(settings.options)
        dsn = settings.dsn
        if settings.password_file is not None:
            options["password"] = read_secret("password_file", settings.password_file)
        if self._kind == "sqlite3" and dsn is not None:  # mode=rw does not create a missing file
            dsn = f"{Path(dsn).absolute().as_uri()}?mode=rw"
            options = {"uri": True, "check_same_thread": False, **options}
        if self._kind == "psycopg":
            named = self._driver.conninfo.conninfo_to_dict(dsn or "")
            options = {**{key: value for key, value in _TIMEOUTS.items() if key not in named}, **options}
        try:
            connection = self._driver.connect(*([] if dsn is None else [dsn]), **options)
        except (TypeError, ValueError) as error:  # an unknown keyword
            raise SourceError(f"options: {settings.driver} does not take them: {error}") from error
        # The flag stays set until the next connection: after a cut, `batch` first returns the rows fetched
        # before it, and a later call raises the error, which `limited` must recognise as a timeout.
        self._connection, self._was_cut = connection, False
        if self._kind == "sqlite3":
            connection.execute("PRAGMA query_only = 1")
            connection.text_factory = _any_text
        if self._kind == "psycopg":
            connection.read_only = True
            _load_leniently(connection)

    def close(self) -> None:
        """Close all cursors and the connection; ignore errors."""
        connection, self._connection = self._connection, None
        cursors, self._cursors = self._cursors, []
        for each in (*cursors, *([] if connection is None else [connection])):
            with suppress(Exception):  # a driver may raise any error for a broken connection
                each.close()

    def end_transaction(self) -> None:
        """Roll the transaction back, so that the database can release its snapshot.

        The connection to SQLite is closed. Otherwise its write-ahead log would stay, and would become part of
        a file that replaces the database.
        """
        if self._kind == "sqlite3":
            self.close()
        if self._connection is not None:
            self._connection.rollback()
            self._cursors.clear()

    def rows(
        self, where: str, values: Sequence[Any], columns: Sequence[str] = (), order: str = ""
    ) -> FetchedRows:
        """Execute a SELECT on the table or query, and return its result rows.

        Parameters
        ----------
        where : str
            The condition, with ``{}`` for each value.
        values : sequence
            The values of the condition.
        columns : sequence of str, optional
            The names of the columns. By default the rows have all columns, and psycopg and sqlite3 also
            return the size of each row.
        order : str, optional
            The column names of the ORDER BY clause; by default the rows have no order.
        """
        head, measured = f"SELECT {', '.join(columns) or '*'} FROM {self._from_clause}", False
        if not columns and self._kind in ("psycopg", "sqlite3"):
            head, measured = self._measuring_select()
        tail = f" ORDER BY {order}" if order else ""
        if self._kind == "psycopg":
            return self._declare_cursor(head, where, tail, values, measured)
        cursor = self._execute(head, f" WHERE {where}{tail}", values)
        names = [column[0] for column in cursor.description]
        return FetchedRows(
            names[:-1] if measured else names, iter(cursor.fetchone, None), measured, cursor.close
        )

    @property
    def _from_clause(self) -> str:
        """The table, or the query in parentheses, for a FROM clause."""
        # The line break ends a comment in the last line of the query.
        return self._settings.table or f"({(self._settings.query or '').rstrip().rstrip(';')}\n) records"

    def _measuring_select(self) -> tuple[str, bool]:
        """Return a SELECT clause that leaves out large cells, and whether it returns the size of each row.

        The clause is ``SELECT *`` if two columns have the same name, because neither can be named then.
        """
        cursor = self._execute(f"SELECT * FROM {self._from_clause}", " WHERE 1 = 0", ())
        names, kinds = [column[0] for column in cursor.description], self._kinds(cursor)
        cursor.close()
        if len(set(names)) < len(names):
            return f"SELECT * FROM {self._from_clause}", False
        quoted = ['"' + name.replace('"', '""') + '"' for name in names]
        sizes = [self._size_of(name, kind) for name, kind in zip(quoted, kinds, strict=True)]
        total = " + ".join(f"coalesce({size}, 0)" for size in sizes if size) or "0"
        is_small = [f"coalesce({size or 0}, 0) <= {MAX_LINE_BYTES}" for size in sizes]
        measured = ""
        if self._kind == "psycopg":  # with OFFSET 0, PostgreSQL measures a row once, not once for each column
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
        return f"SELECT {', '.join(cells)}, {total} AS {_SIZE} FROM {self._from_clause}{measured}", True

    def _kinds(self, cursor: Any) -> list[str]:
        """Return the PostgreSQL types of a result's columns; an empty text for other types and for SQLite."""
        if self._kind == "sqlite3":
            return ["" for _ in cursor.description]
        types = self._driver.adapters.types
        infos = [types.get(column.type_code) for column in cursor.description]
        return [
            # The type of an array is looked up as its element type, which has another oid.
            each.name if each is not None and each.oid == column.type_code else ""
            for each, column in zip(infos, cursor.description, strict=True)
        ]

    def _size_of(self, name: str, kind: str) -> str | None:
        """Return an SQL expression for the size of a cell in bytes; None if its type is in `_FIXED`."""
        if self._kind == "sqlite3":  # from version 3.43 on, octet_length does not read the cell
            if self._driver.sqlite_version_info >= (3, 43):
                return f"octet_length({name})"
            return f"length(CAST({name} AS BLOB))"
        if kind in _FIXED:
            return None
        if kind in _MEASURABLE:
            return f"octet_length({name})"
        # A compressed cell has at most 255 times its stored size. A cell with a small stored size is
        # therefore small, and need not be decompressed.
        small = f"pg_column_size({name})"
        return (
            f"CASE WHEN {small} <= {MAX_LINE_BYTES // 256} THEN {small} ELSE octet_length({name}::text) END"
        )

    def _execute(self, head: str, where: str, values: Sequence[Any]) -> Any:
        """Execute a statement, keep its cursor until the transaction ends, and return the cursor."""
        text, arguments = self._bind(head, where, values)
        cursor = self._connection.cursor()
        self._cursors.append(cursor)
        cursor.execute(text, *arguments)
        return cursor

    def _bind(self, head: str, where: str, values: Sequence[Any]) -> tuple[str, list[Any]]:
        """Return a statement with the driver's placeholders, and the list of its values for `execute`."""
        if not values:
            return head + where, []
        style = self._driver.paramstyle
        marks = [_STYLES[style].format(i + 1) for i in range(len(values))]
        text = (head.replace("%", "%%") if style in ("format", "pyformat") else head) + where.format(*marks)
        named = {f"p{i + 1}": value for i, value in enumerate(values)}
        return text, [named if style in ("named", "pyformat") else tuple(values)]

    def _declare_cursor(
        self, head: str, where: str, tail: str, values: Sequence[Any], measured: bool
    ) -> FetchedRows:
        """Declare a cursor in PostgreSQL, and return its rows; each FETCH requests `_FETCH_ROWS` rows."""
        names = [column.name for column in self._execute(head, " WHERE 1 = 0", ()).description]
        self._execute(f"DECLARE blindsight NO SCROLL CURSOR FOR {head}", f" WHERE {where}{tail}", values)
        connection = self._connection

        def fetch_rows() -> Generator[Row, None, None]:
            count = _FETCH_ROWS
            while count == _FETCH_ROWS:
                count = 0
                with connection.cursor() as cursor:
                    for row in cursor.stream(f"FETCH FORWARD {_FETCH_ROWS} FROM blindsight"):
                        count += 1
                        yield row

        stream = fetch_rows()

        def close() -> None:
            if rows.ended:
                connection.execute("CLOSE blindsight")
            else:  # a further statement would first have to read all rows that the server is sending
                self._interrupt()
                stream.close()
                self.close()

        rows = FetchedRows(names[:-1] if measured else names, stream, measured, close)
        return rows


def _size(value: Any) -> int:
    """Estimate the size of a cell's content in bytes."""
    if isinstance(value, str | bytes | bytearray | memoryview):
        return len(value)
    return 8 if value is None or isinstance(value, int | float) else len(repr(value))


def _cost(row: Row) -> int:
    """Estimate the memory of a row in bytes, including the Python objects of parsed JSON."""
    cost = sum(map(sys.getsizeof, row)) + _POINTER_BYTES * len(row)
    if not _CONTAINERS.isdisjoint(map(type, row)):
        cost += _PARSED_FACTOR * sum(len(repr(value)) for value in row if type(value) in _CONTAINERS)
    return cost


def _any_text(data: bytes) -> str:
    """Decode a text of SQLite, which may be invalid UTF-8; keep invalid bytes as surrogates."""
    return data.decode("utf-8", "surrogateescape")


def _load_leniently(connection: Any) -> None:
    """Make psycopg return a text for values that Python cannot represent, such as `infinity` or a time BC."""
    from psycopg.adapt import Loader
    from psycopg.pq import Format

    def lenient(kind: Any) -> type[Loader]:
        """Return a loader that tries the loader `kind` first."""

        class TextWhereUnreadable(Loader):
            def __init__(self, oid: int, context: Any = None) -> None:
                super().__init__(oid, context)
                self._load = kind(oid, context).load

            def load(self, data: Any) -> Any:
                try:
                    return self._load(data)
                except Exception:  # noqa: BLE001 - the parsers of the types raise different errors
                    return in_utc(bytes(data).decode("utf-8", "replace"))

        return TextWhereUnreadable

    for name in _MAY_BE_UNREADABLE:
        kind = connection.adapters.get_loader(connection.adapters.types[name].oid, Format.TEXT)
        if kind is not None:
            connection.adapters.register_loader(name, lenient(kind))
