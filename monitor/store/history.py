"""Readers of the history in a store or its backup: the reported windows, and their calibrations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from monitor.base.codec import unpack
from monitor.base.errors import StoreError
from monitor.reports.window_report import WindowLine
from monitor.store.database import Database, SqliteFile
from monitor.store.schema import VERSION
from monitor.store.store import FILE

_TOGETHER = 1000  # lines, about a kilobyte each


_decode = msgspec.json.Decoder(WindowLine).decode


class StoreHistory:
    """A read-only view of the history in a store, which an agent may be using.

    Parameters
    ----------
    where : Path or Database
        The store's folder, its file or a backup of it, or its database.

    Raises
    ------
    StoreError
        There is no store there, or it cannot be read.
    """

    def __init__(self, where: Path | Database) -> None:
        if isinstance(where, Path):
            path = where / FILE if where.is_dir() else where
            if not path.is_file():
                raise StoreError(f"{path}: there is no store; give the folder of store.path, or a backup")
            where = SqliteFile(path)
        self.name = where.name
        self._database = where
        self._connection = where.connect_read_only()
        try:
            self._last = self._newest()
        except BaseException:
            self._connection.close()
            raise

    def _newest(self) -> int:
        with self._database.convert_errors("be read"):
            try:
                version = self._database.version(self._connection)
            except StoreError:
                version = None  # the tables belong to another program
            if version is None or version > VERSION:
                raise StoreError(
                    f"{self.name} is not a store, or belongs to a newer Blindsight; verify it with the "
                    "version that wrote it"
                )
            row = self._connection.execute("SELECT coalesce(max(id), 0) FROM report").fetchone()
        return int(row[0])

    def windows(self) -> Iterator[WindowLine]:
        """Yield the highest revision of every window, in the order in which the windows closed.

        Windows of arenas, which belong to no model, are left out.

        Raises
        ------
        StoreError
            The file cannot be read, or a line in it is not a window.
        """
        order = (
            "SELECT min(id), task, model, grp, \"window\" FROM report WHERE id <= ? AND model <> '' "
            'AND revision >= 0 GROUP BY task, model, grp, "window" ORDER BY 1'
        )
        newest = (
            'SELECT line FROM report WHERE task = ? AND model = ? AND grp = ? AND "window" = ? AND id <= ? '
            "ORDER BY revision DESC, id DESC LIMIT 1"
        )
        try:
            with self._database.convert_errors("be read"):
                # All rows at once, because an open statement keeps the agent's log from being truncated.
                for _, *place in self._connection.execute(order, (self._last,)).fetchall():
                    row = self._connection.execute(newest, (*place, self._last)).fetchone()
                    if row is not None:  # a running agent deletes old windows meanwhile
                        yield _decode(row[0])
        except msgspec.DecodeError as error:
            raise StoreError(f"{self.name}: a reported window cannot be read: {error}") from error

    def count_arena_windows(self) -> int:
        """Return the number of windows of arenas.

        Raises
        ------
        StoreError
            The file cannot be read.
        """
        query = "SELECT count(*) FROM report WHERE id <= ? AND model = '' AND revision >= 0"
        with self._database.convert_errors("be read"):
            return int(self._connection.execute(query, (self._last,)).fetchone()[0])

    def reports(self) -> Iterator[bytes]:
        """Yield the line of every closed window and revision, in the order in which they were written.

        Raises
        ------
        StoreError
            The file cannot be read.
        """
        after = 0
        query = "SELECT id, line FROM report WHERE id > ? AND id <= ? AND revision >= 0 ORDER BY id LIMIT ?"
        with self._database.convert_errors("be read"):
            # In pieces, because an open statement keeps the agent's log from being truncated.
            while rows := self._connection.execute(query, (after, self._last, _TOGETHER)).fetchall():
                yield from (line for _, line in rows)
                after = rows[-1][0]

    def judged_estimators(self) -> dict[str, str]:
        """Return the estimator that the charts of each task judge, from the last saved configuration.

        Raises
        ------
        StoreError
            The file cannot be read.
        """
        try:
            with self._database.convert_errors("be read"):
                row = self._connection.execute("SELECT value FROM meta WHERE key = 'config'").fetchone()
            tasks = msgspec.json.decode(row[0])["tasks"] if row else {}
            return {name: task["chart"]["estimator"] for name, task in tasks.items()}
        except (msgspec.DecodeError, KeyError, TypeError):
            return {}  # written by a version without a choice of estimator

    def calibrations(self) -> dict[tuple[str, str, str], dict[str, Any]]:
        """Return the calibration of each series at the last checkpoint: `fit`, `version` and more.

        Raises
        ------
        StoreError
            The file cannot be read.
        """
        query = "SELECT name, state FROM part WHERE name LIKE 'series/%'"
        by_series = {}
        try:
            with self._database.convert_errors("be read"):
                for name, packed in self._connection.execute(query):
                    model, group, state = unpack(packed)
                    by_series[name.split("/", 2)[2], model, group] = state["calibration"]
        except (ValueError, KeyError, TypeError) as error:
            raise StoreError(
                f"{self.name}: a calibration cannot be read by this version: {error!r}"
            ) from error
        return by_series

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


_PAGE_BUSY_SECONDS = 2.0  # a page may fail, because its reader can load it again
_MOST_LINES = 20_000
_NO_WINDOW = 2**62  # above every number


def newest_ids(lines: Iterable[tuple[int, int, int]], most: int) -> list[int]:
    """Return the ids of the newest revisions of the newest windows, oldest window first.

    Parameters
    ----------
    lines : iterable of (int, int, int)
        Id, window and revision of the lines of one series, newest id first.
    most : int
        The largest number of windows.

    Returns
    -------
    list of int
        Ids of lines since the series last began, that is, since its windows last counted from 0.

    Examples
    --------
    >>> newest_ids([(9, 1, 0), (8, 0, 1), (7, 0, 0), (6, 1, 0), (5, 0, 0)], 10)
    [8, 9]
    """
    by_window: dict[int, int] = {}
    for id_, window, revision in lines:
        by_window.setdefault(window, id_)
        if window == 0 and revision == 0:
            break
    return [by_window[window] for window in sorted(by_window)[-most:]]


def newest_lines(
    where: Path | Database, series: tuple[str, str, str], most: int, before: int | None = None
) -> list[bytes]:
    """Return the lines of the newest windows of a series in their newest revisions, oldest window first.

    Parameters
    ----------
    where : Path or Database
        The store's file, or its database.
    series : (str, str, str)
        Task, model and group.
    most : int
        The largest number of windows; there may be fewer if windows were revised very often.
    before : int, optional
        A number of a window; only earlier windows are returned.

    Raises
    ------
    StoreError
        The store cannot be read.
    """
    database = SqliteFile(where) if isinstance(where, Path) else where
    places = (
        'SELECT id, "window", revision FROM report WHERE task = ? AND model = ? AND grp = ? '
        'AND revision >= 0 AND "window" < ? ORDER BY id DESC LIMIT ?'
    )
    below = _NO_WINDOW if before is None else before
    # A connection for each call, because pages are made in several threads.
    with (
        database.convert_errors("be read"),
        closing(database.connect_read_only(_PAGE_BUSY_SECONDS)) as connection,
    ):
        ids = newest_ids(connection.execute(places, (*series, below, _MOST_LINES)), most)
        results = (connection.execute("SELECT line FROM report WHERE id = ?", (id_,)) for id_ in ids)
        rows = [result.fetchone() for result in results]
    return [row[0] for row in rows if row is not None]  # a running agent deletes old windows meanwhile
