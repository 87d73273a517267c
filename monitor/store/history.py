"""The history in a store or its backup: the reported windows, and their calibrations."""

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

_TOGETHER = 1000  # lines, of a kilobyte or so each


_decode = msgspec.json.Decoder(WindowLine).decode


class StoreHistory:
    """Reads a store that nobody, or an agent, has open. Nothing is written.

    Parameters
    ----------
    where : Path or Database
        The store's folder, or a file (the store's own or a backup of it); or its database.

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
        self._connection = where.reading()
        try:
            self._last = self._newest()
        except BaseException:
            self._connection.close()
            raise

    def _newest(self) -> int:
        with self._database.ours("be read"):
            try:
                version = self._database.version(self._connection)
            except StoreError:
                version = None  # of another program
            if version is None or version > VERSION:
                raise StoreError(
                    f"{self.name} is not a store, or belongs to a newer Blindsight; verify it with the "
                    "version that wrote it"
                )
            found = self._connection.execute("SELECT coalesce(max(id), 0) FROM report").fetchone()
        return int(found[0])

    def windows(self) -> Iterator[WindowLine]:
        """Every window of a model in the order in which they closed, each as its highest revision says.

        Those of arenas, which are of no model, are left out.

        Raises
        ------
        StoreError
            The file cannot be read, or a line in it is none.
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
            with self._database.ours("be read"):
                # All at once: a statement left open keeps the agent's log from being cut for as long.
                for _, *place in self._connection.execute(order, (self._last,)).fetchall():
                    found = self._connection.execute(newest, (*place, self._last)).fetchone()
                    if found is not None:  # an agent that goes on drops old ones meanwhile
                        yield _decode(found[0])
        except msgspec.DecodeError as error:
            raise StoreError(f"{self.name}: a reported window cannot be read: {error}") from error

    def arena_windows(self) -> int:
        """How many windows of arenas there are.

        Raises
        ------
        StoreError
            The file cannot be read.
        """
        query = "SELECT count(*) FROM report WHERE id <= ? AND model = '' AND revision >= 0"
        with self._database.ours("be read"):
            return int(self._connection.execute(query, (self._last,)).fetchone()[0])

    def reports(self) -> Iterator[bytes]:
        """Every line of a closed window, revisions too, in the order in which they were written.

        Raises
        ------
        StoreError
            The file cannot be read.
        """
        after = 0
        query = "SELECT id, line FROM report WHERE id > ? AND id <= ? AND revision >= 0 ORDER BY id LIMIT ?"
        with self._database.ours("be read"):
            # In pieces: a statement left open keeps the agent's log from being cut as long as this lasts.
            while found := self._connection.execute(query, (after, self._last, _TOGETHER)).fetchall():
                yield from (line for _, line in found)
                after = found[-1][0]

    def judged(self) -> dict[str, str]:
        """By task, the estimator that its charts judge, as configured when the state was last saved.

        Raises
        ------
        StoreError
            The file cannot be read.
        """
        try:
            with self._database.ours("be read"):
                found = self._connection.execute("SELECT value FROM meta WHERE key = 'config'").fetchone()
            tasks = msgspec.json.decode(found[0])["tasks"] if found else {}
            return {name: task["chart"]["estimator"] for name, task in tasks.items()}
        except (msgspec.DecodeError, KeyError, TypeError):
            return {}  # of a version that knew no other estimator

    def calibrations(self) -> dict[tuple[str, str, str], dict[str, Any]]:
        """By series, the calibration of the last checkpoint: `fit`, `version` and more.

        Raises
        ------
        StoreError
            The file cannot be read.
        """
        query = "SELECT name, state FROM part WHERE name LIKE 'series/%'"
        found = {}
        try:
            with self._database.ours("be read"):
                for name, packed in self._connection.execute(query):
                    model, group, state = unpack(packed)
                    found[name.split("/", 2)[2], model, group] = state["calibration"]
        except (ValueError, KeyError, TypeError) as error:
            raise StoreError(
                f"{self.name}: a calibration cannot be read by this version: {error!r}"
            ) from error
        return found

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()


_PAGE_BUSY_SECONDS = 2.0  # a page may fail; who opened it loads it again
_MOST_LINES = 20_000
_NO_WINDOW = 2**62  # above every number


def chosen(lines: Iterable[tuple[int, int, int]], most: int) -> list[int]:
    """Which lines tell the newest windows: of each its newest revision, oldest window first.

    Parameters
    ----------
    lines : iterable of (int, int, int)
        Id, window and revision of one series' lines, newest id first.
    most : int
        Windows.

    Returns
    -------
    list of int
        Ids. Lines from before the series was begun anew are left out: its windows count from 0 again.

    Examples
    --------
    >>> chosen([(9, 1, 0), (8, 0, 1), (7, 0, 0), (6, 1, 0), (5, 0, 0)], 10)
    [8, 9]
    """
    found: dict[int, int] = {}
    for id_, window, revision in lines:
        found.setdefault(window, id_)
        if window == 0 and revision == 0:
            break
    return [found[window] for window in sorted(found)[-most:]]


def newest_lines(
    where: Path | Database, series: tuple[str, str, str], most: int, before: int | None = None
) -> list[bytes]:
    """Lines of the newest windows of a series, oldest first, each in its newest revision.

    Parameters
    ----------
    where : Path or Database
        The store's file, or its database.
    series : (str, str, str)
        Task, model and group.
    most : int
        Windows; of those that have been revised very often there may be fewer.
    before : int, optional
        Only windows with numbers below this one.

    Raises
    ------
    StoreError
        It cannot be read.
    """
    database = SqliteFile(where) if isinstance(where, Path) else where
    places = (
        'SELECT id, "window", revision FROM report WHERE task = ? AND model = ? AND grp = ? '
        'AND revision >= 0 AND "window" < ? ORDER BY id DESC LIMIT ?'
    )
    below = _NO_WINDOW if before is None else before
    # A connection of its own: pages are made in several threads.
    with database.ours("be read"), closing(database.reading(_PAGE_BUSY_SECONDS)) as connection:
        ids = chosen(connection.execute(places, (*series, below, _MOST_LINES)), most)
        found = (connection.execute("SELECT line FROM report WHERE id = ?", (id_,)) for id_ in ids)
        rows = [rows.fetchone() for rows in found]
    return [row[0] for row in rows if row is not None]  # the agent drops old ones meanwhile
