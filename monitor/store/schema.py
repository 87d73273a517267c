"""The tables of the store, their version, and the way from older versions to this one."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

import numpy as np

from monitor.base.codec import pack, unpack
from monitor.base.errors import StoreError

VERSION = 2
"""Of the tables. A store of a newer one is refused; an older one is migrated, a step a version."""

APPLICATION_ID = 0x426C6E64  # "Blnd": tells a store from any other SQLite file

_TABLES = """
CREATE TABLE part (            -- one piece of the engine's state, replaced when it changes
    name TEXT PRIMARY KEY,
    state BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE ring_rows (       -- rows of a bounded ring, appended; oldest dropped as the ring overwrites them
    ring TEXT NOT NULL,
    first INTEGER NOT NULL,    -- absolute number of the first row
    count INTEGER NOT NULL,
    rows BLOB NOT NULL,
    PRIMARY KEY (ring, first)
);
CREATE TABLE ring_changes (    -- later changes to such rows
    id INTEGER PRIMARY KEY,
    ring TEXT NOT NULL,
    newest INTEGER NOT NULL,   -- largest absolute number among the rows
    rows BLOB NOT NULL
);
CREATE TABLE report (          -- closed windows, as they are written to the reports file
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    task TEXT NOT NULL,
    model TEXT NOT NULL,
    grp TEXT NOT NULL,
    window INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    line BLOB NOT NULL
);
CREATE INDEX report_series ON report (task, model, grp, window, revision);
CREATE TABLE sink (            -- how far each file has been written
    name TEXT PRIMARY KEY,
    last INTEGER NOT NULL,     -- report.id
    place INTEGER NOT NULL     -- size of the file after it
) WITHOUT ROWID;
CREATE TABLE meta (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;
"""


def prepare(connection: sqlite3.Connection, name: str) -> None:
    """Make the tables, or bring older ones up to date, one transaction a version.

    Raises
    ------
    StoreError
        The file is no store of ours, or one of a newer version.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if version == 0 and tables == 0:
        marks = f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {VERSION};"
        connection.executescript(f"BEGIN; {_TABLES} {marks} COMMIT;")
        return
    if application != APPLICATION_ID:
        raise StoreError(f"{name} is an SQLite file of another program; give another store.path")
    if version > VERSION:
        raise StoreError(
            f"{name} was written by a newer Blindsight (store version {version}, this one knows "
            f"{VERSION}); install that version, or give another store.path to start from nothing"
        )
    for step in range(version, VERSION):
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            MIGRATIONS[step](connection)
            connection.execute(f"PRAGMA user_version = {step + 1}")


def from_version_1(connection: sqlite3.Connection) -> None:
    """Labels had no probability, answers no confidence, counted windows no end: none is known.

    Windows that had closed before are none of those of the horizon.
    """
    for table in ("ring_rows", "ring_changes"):
        _rewrite(connection, table, "ring", "rows", _with_columns)
    labels = _labels_taken(connection)
    _rewrite(connection, "part", "name", "state", lambda name, state: _part_of_version_2(name, state, labels))


def _with_columns(name: str, rows: Any) -> Any:
    columns, count = rows["columns"], len(rows["keys"])
    columns["probability"] = np.full(count, np.nan, dtype=np.float32)
    if name.startswith("answers/"):
        columns["confidence"] = np.full(count, np.nan, dtype=np.float32)
    else:
        columns["first_sequence"] = columns["sequence"]
    return rows


def _labels_taken(connection: sqlite3.Connection) -> int:
    """The labels that the tasks have had; with those rejected, all that came."""
    found = connection.execute("SELECT state FROM part WHERE substr(name, 1, 5) = 'task/'").fetchall()
    joins = [unpack(state)["join"] for (state,) in found]
    return sum(join["waiting"] + sum(join["outcomes"].values()) for join in joins)


def _part_of_version_2(name: str, state: Any, labels: int) -> Any:
    if name == "engine":
        state["format"] = 2
        came = labels + sum(state["labels_rejected"].values())
        if came and "labels_received" not in state:
            # From which source each came is not known; the sum over them must be right, so one has all.
            state["labels_received"] = {next(iter(state["received"] or state["positions"])): came}
    if name.startswith("series/"):
        saved = state[2]
        end = saved["last"]["end_time"] if saved["last"] is not None else -np.inf
        saved["tally"] = _tally_of_version_2(saved["tally"], saved["windows"]["number"], end)
        if saved["last"] is not None:
            for found in saved["last"]["estimates"]:
                found[2] = [found[2]] if isinstance(found[2], str) else found[2]
    return state


def _tally_of_version_2(state: Any, closed: int, newest_end: float) -> dict[str, Any]:
    windows = [window for window, _, _ in state["windows"]]
    start, stop = min([*windows, closed]), max([*windows, closed - 1]) + 1
    counts = np.zeros((2, stop - start), dtype=np.int32)
    for window, labelled, correct in state["windows"]:
        counts[:, window - start] = labelled, correct
    return {
        "start": start,
        "counts": counts,
        "end": np.full(stop - start, -np.inf),
        "newest_end": newest_end,
        "closed": closed,
        "excess": [],
        "labelled": state["labelled"],
        "correct": state["correct"],
    }


def _rewrite(
    connection: sqlite3.Connection, table: str, name: str, blob: str, change: Callable[[str, Any], Any]
) -> None:
    """Decode, change and encode a column of every row, one at a time: a ring may be larger than memory."""
    own = "name" if table == "part" else "rowid"
    keys = connection.execute(f"SELECT {own} FROM {table}").fetchall()
    for (key,) in keys:
        query = f"SELECT {name}, {blob} FROM {table} WHERE {own} = ?"
        found, content = connection.execute(query, (key,)).fetchone()
        changed = pack(change(found, unpack(content)))
        connection.execute(f"UPDATE {table} SET {blob} = ? WHERE {own} = ?", (changed, key))


MIGRATIONS: dict[int, Callable[[sqlite3.Connection], None]] = {1: from_version_1}
"""By version, what leads to the next one. A test opens a kept store of each."""
