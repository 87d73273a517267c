"""The tables of the store, their version, and the migrations from older versions."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from monitor.base.codec import pack, unpack
from monitor.base.errors import StoreError
from monitor.store.database import Database, SqlConnection

VERSION = 2
"""The version of the tables. A store with newer tables is refused; older tables are migrated."""

_TABLES = """
CREATE TABLE part (            -- one piece of the engine's state, replaced when it changes
    name TEXT PRIMARY KEY,
    state {blob} NOT NULL
) {by_key};
CREATE TABLE ring_rows (       -- rows of a bounded ring, appended, and dropped as the ring overwrites them
    ring TEXT NOT NULL,
    first {integer} NOT NULL,    -- absolute number of the first row
    count {integer} NOT NULL,
    rows {blob} NOT NULL,
    PRIMARY KEY (ring, first)
);
CREATE TABLE ring_changes (    -- later changes to such rows
    id {own_id},
    ring TEXT NOT NULL,
    newest {integer} NOT NULL,   -- largest absolute number among the rows
    rows {blob} NOT NULL
);
CREATE TABLE report (          -- closed windows, as they are written to the reports file
    id {report_id},
    task TEXT NOT NULL,
    model TEXT NOT NULL,
    grp TEXT NOT NULL,
    "window" {integer} NOT NULL,
    revision {integer} NOT NULL,
    line {blob} NOT NULL
);
CREATE INDEX report_series ON report (task, model, grp, "window", revision);
CREATE TABLE sink (            -- how far each file has been written
    name TEXT PRIMARY KEY,
    last {integer} NOT NULL,     -- report.id
    place {integer} NOT NULL     -- size of the file after it
) {by_key};
CREATE TABLE meta (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL
) {by_key};
"""


def create(database: Database, connection: SqlConnection) -> None:
    """Create the tables, in a transaction that the caller begins."""
    for statement in _TABLES.format_map(database.types).split(";"):
        if statement.strip():
            connection.execute(statement)
    database.set_version(connection, VERSION)


def refuse_newer(database: Database, version: int) -> None:
    """Raise a StoreError if a newer version of Blindsight has written the tables."""
    if version > VERSION:
        raise StoreError(
            f"{database.name} was written by a newer Blindsight (store version {version}, this one knows "
            f"{VERSION}); install that version, or give another {database.setting} to start from nothing"
        )


def migrate(
    database: Database,
    connection: SqlConnection,
    version: int,
    transaction: Callable[[], AbstractContextManager[None]],
) -> None:
    """Migrate the tables from `version` to the present version. Each version has its own transaction."""
    for step in range(version, VERSION):
        with transaction():
            MIGRATIONS[step](connection)
            database.set_version(connection, step + 1)


def from_version_1(connection: SqlConnection) -> None:
    """Migrate from version 1 to 2: add the probabilities of labels and the confidences of answers.

    Old rows get the value NaN (unknown). The ends of old windows are unknown too. So these windows do not
    count in the realised accuracy of the last `horizon_days`.
    """
    for table in ("ring_rows", "ring_changes"):
        _rewrite(connection, table, "ring", "rows", _with_columns)
    labels = _count_labels(connection)
    _rewrite(connection, "part", "name", "state", lambda name, state: _part_of_version_2(name, state, labels))


def _with_columns(name: str, rows: Any) -> Any:
    columns, count = rows["columns"], len(rows["keys"])
    columns["probability"] = np.full(count, np.nan, dtype=np.float32)
    if name.startswith("answers/"):
        columns["confidence"] = np.full(count, np.nan, dtype=np.float32)
    else:
        columns["first_sequence"] = columns["sequence"]
    return rows


def _count_labels(connection: SqlConnection) -> int:
    """Return the number of labels that all tasks have received. Rejected labels are left out."""
    tasks = connection.execute("SELECT state FROM part WHERE substr(name, 1, 5) = 'task/'").fetchall()
    joins = [unpack(state)["join"] for (state,) in tasks]
    return sum(join["waiting"] + sum(join["outcomes"].values()) for join in joins)


def _part_of_version_2(name: str, state: Any, labels: int) -> Any:
    if name == "engine":
        state["format"] = 2
        came = labels + sum(state["labels_rejected"].values())
        if came and "labels_received" not in state:
            # The sources of the labels are not known. Only the sum must be right, so one source gets all
            # labels.
            state["labels_received"] = {next(iter(state["received"] or state["positions"])): came}
    if name.startswith("series/"):
        saved = state[2]
        end = saved["last"]["end_time"] if saved["last"] is not None else -np.inf
        saved["tally"] = _tally_of_version_2(saved["tally"], saved["windows"]["number"], end)
        if saved["last"] is not None:
            for estimate in saved["last"]["estimates"]:
                estimate[2] = [estimate[2]] if isinstance(estimate[2], str) else estimate[2]
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
    connection: SqlConnection, table: str, name: str, blob: str, change: Callable[[str, Any], Any]
) -> None:
    """Replace the values of a column by changed values.

    This is done row by row, because a ring table may be larger than the memory.

    Parameters
    ----------
    connection : SqlConnection
    table : str
    name, blob : str
        The column that names a row, and the column with the encoded value.
    change : callable
        Takes the name and the decoded value, and returns the changed value.
    """
    own = "name" if table == "part" else "rowid"
    keys = connection.execute(f"SELECT {own} FROM {table}").fetchall()
    for (key,) in keys:
        query = f"SELECT {name}, {blob} FROM {table} WHERE {own} = ?"
        value, content = connection.execute(query, (key,)).fetchone()
        changed = pack(change(value, unpack(content)))
        connection.execute(f"UPDATE {table} SET {blob} = ? WHERE {own} = ?", (changed, key))


MIGRATIONS: dict[int, Callable[[SqlConnection], None]] = {1: from_version_1}
"""The function that migrates from each version to the next one."""
