"""Older stores are rewritten as this version would have written them: no reader knows what used to be.

Each function leads to the next version, in the transaction of its caller.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

import numpy as np

from monitor.store.codec import pack, unpack


def from_version_1(connection: sqlite3.Connection) -> None:
    """Labels had no probability, and answers no confidence: none was given."""
    for table in ("ring_rows", "ring_changes"):
        _rewrite(connection, table, "ring", "rows", _with_columns)
    _rewrite(connection, "part", "name", "state", _part_of_version_2)


def _with_columns(name: str, rows: Any) -> Any:
    columns, count = rows["columns"], len(rows["keys"])
    columns["probability"] = np.full(count, np.nan, dtype=np.float32)
    if name.startswith("answers/"):
        columns["confidence"] = np.full(count, np.nan, dtype=np.float32)
    else:
        columns["first_sequence"] = columns["sequence"]
    return rows


def _part_of_version_2(name: str, state: Any) -> Any:
    if name == "engine":
        state["format"] = 2
    return state


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
