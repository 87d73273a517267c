"""The tables of the store, their version, and the way from older versions to this one."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from monitor.base.errors import StoreError
from monitor.store.migrations import from_version_1

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

MIGRATIONS: dict[int, Callable[[sqlite3.Connection], None]] = {1: from_version_1}
"""By version, what leads to the next one. A test opens a kept store of each."""


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
