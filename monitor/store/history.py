"""Reads the history in a store or a backup: the reports of windows, and the states of models."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from monitor.base.codec import unpack
from monitor.base.errors import StoreError
from monitor.config.task import SILENT_AFTER_AGES
from monitor.reports.window_report import WindowLine, rfc3339
from monitor.store.database import Database, SqliteFile
from monitor.store.schema import VERSION
from monitor.store.store import FILE

T = TypeVar("T")

_TOGETHER = 1000  # lines of about a kilobyte that are read at a time


_decode = msgspec.json.Decoder(WindowLine).decode


class StoreHistory:
    """A read-only view of the reports in a store. An agent may use the store at the same time.

    The view does not include reports that are written after it was opened.

    Parameters
    ----------
    where : Path or Database
        The store's folder, its file, a backup of the file, or the store's database.

    Raises
    ------
    StoreError
        There is no store at this place, or the store cannot be read.
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
        """Yield the last report of each window, in the order in which the windows closed.

        Windows that all models of a task share are left out.

        Raises
        ------
        StoreError
            The store cannot be read, or a line in it is not the report of a window.
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
                # All rows are fetched at once, because SQLite cannot truncate its log during an open
                # statement.
                for _, *place in self._connection.execute(order, (self._last,)).fetchall():
                    row = self._connection.execute(newest, (*place, self._last)).fetchone()
                    if row is not None:  # a running agent may have deleted the window
                        yield _decode(row[0])
        except msgspec.DecodeError as error:
            raise StoreError(f"{self.name}: a reported window cannot be read: {error}") from error

    def count_windows_of_tasks(self) -> int:
        """Return the number of windows that all models of a task share. `windows` leaves these out.

        Raises
        ------
        StoreError
            The store cannot be read.
        """
        query = "SELECT count(*) FROM report WHERE id <= ? AND model = '' AND revision >= 0"
        with self._database.convert_errors("be read"):
            return int(self._connection.execute(query, (self._last,)).fetchone()[0])

    def reports(self) -> Iterator[bytes]:
        """Yield all reports, including revised ones, as lines of JSON, in the order of writing.

        Raises
        ------
        StoreError
            The store cannot be read.
        """
        after = 0
        query = "SELECT id, line FROM report WHERE id > ? AND id <= ? AND revision >= 0 ORDER BY id LIMIT ?"
        with self._database.convert_errors("be read"):
            # Each query fetches some rows, because SQLite cannot truncate its log during an open statement.
            while rows := self._connection.execute(query, (after, self._last, _TOGETHER)).fetchall():
                yield from (line for _, line in rows)
                after = rows[-1][0]

    def judged_estimators(self) -> dict[str, str]:
        """Return the name of the estimator that charts judge, for each task of the saved configuration.

        Tasks without charts, and tasks that an older version saved without such names, are left out.

        Raises
        ------
        StoreError
            The store cannot be read.
        """
        return self._of_tasks(lambda task: task["chart"]["estimator"])

    def shared_seconds(self) -> dict[str, float]:
        """Return `Task.shared_seconds` of each task of the saved configuration.

        Tasks without charts, and tasks that a version without `chart.shared` saved, are left out.

        Raises
        ------
        StoreError
            The store cannot be read.
        """
        return self._of_tasks(
            lambda task: SILENT_AFTER_AGES * task["window"]["max_age_seconds"] * task["chart"]["shared"]
        )

    def _of_tasks(self, value: Callable[[dict[str, Any]], T]) -> dict[str, T]:
        """Return a value of the section of each task of the saved configuration that has the value."""
        with self._database.convert_errors("be read"):
            row = self._connection.execute("SELECT value FROM meta WHERE key = 'config'").fetchone()
        values: dict[str, T] = {}
        with suppress(msgspec.DecodeError, KeyError, AttributeError):  # a configuration of an older version
            for name, task in (msgspec.json.decode(row[0])["tasks"] if row else {}).items():
                with suppress(KeyError, TypeError):
                    values[name] = value(task)
        return values

    def calibrations(self) -> dict[tuple[str, str, str], dict[str, Any]]:
        """Return the calibration of each series at the last checkpoint, by task, model and group.

        A calibration is a mapping with the fields of `monitor.engine.calibration.CalibrationState`.

        Raises
        ------
        StoreError
            The store cannot be read.
        """
        return self._of_series(lambda state: state["calibration"])

    def features(self) -> dict[tuple[str, str, str], tuple[int, dict[str, Any]]]:
        """Return, for each model with features, the number of closed windows and the state of the features.

        The keys are the task, the model and the group.

        Raises
        ------
        StoreError
            The store cannot be read.
        """
        every = self._of_series(
            lambda state: (state["windows"]["number"], state["features"]) if state.get("features") else None
        )
        return {series: own for series, own in every.items() if own is not None}

    def _of_series(self, read: Callable[[dict[str, Any]], T]) -> dict[tuple[str, str, str], T]:
        """Return a part of the state of each series at the last checkpoint, by task, model and group."""
        query = "SELECT name, state FROM part WHERE name LIKE 'series/%'"
        by_series = {}
        try:
            with self._database.convert_errors("be read"):
                for name, packed in self._connection.execute(query):
                    model, group, state = unpack(packed)
                    by_series[name.split("/", 2)[2], model, group] = read(state)
        except (ValueError, KeyError, TypeError) as error:
            raise StoreError(
                f"{self.name}: the state of a model cannot be read by this version: {error!r}"
            ) from error
        return by_series

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


_PAGE_BUSY_SECONDS = 2.0  # a page may fail after a short wait, because its reader can load the page again
_MOST_LINES = 20_000
_NO_WINDOW = 2**62  # greater than the number of any window


class _End(msgspec.Struct):
    end_time: str


_end = msgspec.json.Decoder(_End).decode


def newest_ids(
    lines: Iterable[tuple[int, int, int]],
    most: int,
    since: float | None = None,
    read: Callable[[int], bytes | None] = lambda id_: None,
) -> list[int]:
    """Return the ids of the last reports of the newest windows of a series, oldest window first.

    Parameters
    ----------
    lines : iterable of (int, int, int)
        The id, window number and revision of each report of the series, newest id first.
    most : int
        The largest number of windows.
    since : float, optional
        Only windows that ended at this time or later, seconds since the epoch. If there are more than `most`
        such windows, the result has the newest window and those whose numbers are multiples of some k, which
        is chosen so that at most `most` windows are left.
    read : callable
        A function from an id to the report's line, or None if it has been deleted. It is called about 75
        times if `since` is set.

    Returns
    -------
    list of int
        The ids. If the series started again with window 0, reports before this start are left out.

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
    windows = sorted(by_window)
    if since is not None:
        windows = _spread(windows[_first(windows, by_window, since, read) :], most)
    return [by_window[window] for window in windows[-most:]]


def _first(
    windows: Sequence[int], ids: dict[int, int], since: float, read: Callable[[int], bytes | None]
) -> int:
    """Return the index of the first window that ended at `since` or later.

    Windows end in order, except where the time of a record is wrong. So the end of a window is the median of
    the ends of five windows.
    """

    def end(window: int) -> str:
        line = read(ids[window])
        return "" if line is None else _end(line).end_time  # the oldest windows are the deleted ones

    def median_end(index: int) -> str:
        near = sorted(map(end, windows[max(index - 2, 0) : index + 3]))
        return near[len(near) // 2]

    return bisect_left(range(len(windows)), rfc3339(since), key=median_end)


def _spread(windows: Sequence[int], most: int) -> list[int]:
    """Return at most `most` windows, evenly spread; the same ones when further windows close."""
    step = max(-(-len(windows) // most), 1)
    return [window for window in windows[:-1] if window % step == 0] + list(windows[-1:])


def newest_lines(
    where: Path | Database,
    series: tuple[str, str, str],
    most: int,
    before: int | None = None,
    since: float | None = None,
) -> list[bytes]:
    """Return the last reports of the newest windows of a series as JSON, oldest window first.

    Parameters
    ----------
    where : Path or Database
        The store's file, or its database.
    series : (str, str, str)
        The task, model and group.
    most : int
        The largest number of windows. If windows were revised very often, the result may contain fewer.
    before : int, optional
        Return only windows with smaller numbers; by default, all windows.
    since : float, optional
        Return only windows that ended at this time or later, evenly spread: see `newest_ids`. Only the newest
        20,000 reports of the series are searched.

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
    # Each call opens a connection, because several threads make pages.
    with (
        database.convert_errors("be read"),
        closing(database.connect_read_only(_PAGE_BUSY_SECONDS)) as connection,
    ):

        def read(id_: int) -> bytes | None:
            row = connection.execute("SELECT line FROM report WHERE id = ?", (id_,)).fetchone()
            return None if row is None else row[0]

        ids = newest_ids(connection.execute(places, (*series, below, _MOST_LINES)), most, since, read)
        lines = [read(id_) for id_ in ids]
    return [line for line in lines if line is not None]  # a running agent may have deleted some windows
