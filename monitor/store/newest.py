"""The newest windows of one series, read from the store while the agent writes it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from monitor.store.store import explained

_BUSY_SECONDS = 2.0  # a page may fail; who opened it loads it again
_MOST_LINES = 20_000


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


def newest_lines(path: Path, series: tuple[str, str, str], most: int) -> list[bytes]:
    """Lines of the newest windows of a series, oldest first, each in its newest revision.

    Parameters
    ----------
    path : Path
        Of the store's file.
    series : (str, str, str)
        Task, model and group.
    most : int
        Windows; of those that have been revised very often there may be fewer.

    Raises
    ------
    StoreError
        The file cannot be read.
    """
    places = (
        "SELECT id, window, revision FROM report WHERE task = ? AND model = ? AND grp = ? "
        "ORDER BY id DESC LIMIT ?"
    )
    try:
        # A connection of its own: pages are made in several threads.
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=_BUSY_SECONDS)) as connection:
            ids = chosen(connection.execute(places, (*series, _MOST_LINES)), most)
            found = (connection.execute("SELECT line FROM report WHERE id = ?", (id_,)) for id_ in ids)
            rows = [rows.fetchone() for rows in found]
    except sqlite3.DatabaseError as error:
        raise explained(path, "be read", error) from error
    return [row[0] for row in rows if row is not None]  # the agent drops old ones meanwhile
