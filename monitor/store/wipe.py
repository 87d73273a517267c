"""Rows of a saved ring of which nothing may stay: taken out of every piece that holds them."""

from __future__ import annotations

import sqlite3

import numpy as np

from monitor.base.codec import pack, restored, unpack
from monitor.base.records import Ints, Keys
from monitor.base.state_changes import ChangedRows, RingRows


def wipe_keys(connection: sqlite3.Connection, ring: str, keys: Keys) -> None:
    """Overwrite the rows of these keys where they were added, and drop every later change to them.

    All pieces of the ring are read, as nothing else knows where an earlier use of a key stands: some
    seconds for a gigabyte, in the thread that saves.

    Parameters
    ----------
    connection : sqlite3.Connection
        Within a transaction, which makes it all or nothing.
    ring : str
        ``answers/toxicity``.
    keys : (n,) uint64
    """
    if not len(keys):
        return
    numbers = [np.zeros(0, dtype=np.int64)]
    query = "SELECT first FROM ring_rows WHERE ring = ?"
    for (first,) in connection.execute(query, (ring,)).fetchall():
        numbers.append(first + _overwrite(connection, ring, first, keys))
    gone = np.concatenate(numbers)
    changes = connection.execute("SELECT id FROM ring_changes WHERE ring = ?", (ring,)).fetchall()
    for (number,) in changes:
        _drop(connection, number, keys, gone)


def _overwrite(connection: sqlite3.Connection, ring: str, first: int, keys: Keys) -> Ints:
    """Places of the rows in this piece that had such a key."""
    where = "WHERE ring = ? AND first = ?"
    (blob,) = connection.execute(f"SELECT rows FROM ring_rows {where}", (ring, first)).fetchone()
    rows = restored(unpack(blob), RingRows)
    places: Ints = np.flatnonzero(np.isin(rows.keys, keys))
    if len(places):
        rows.keys[places] = 0
        for column in rows.columns.values():
            column[places] = column.dtype == np.bool_  # as `BoundedTable.wipe` leaves them
        connection.execute(f"UPDATE ring_rows SET rows = ? {where}", (pack(rows), ring, first))
    return places


def _drop(connection: sqlite3.Connection, number: int, keys: Keys, gone: Ints) -> None:
    """Drop from one saved change what it holds of such keys, or of the rows that they had."""
    (blob,) = connection.execute("SELECT rows FROM ring_changes WHERE id = ?", (number,)).fetchone()
    change = restored(unpack(blob), ChangedRows)
    kept = ~(np.isin(change.keys, keys) | np.isin(change.rows, gone))
    if kept.all():
        return
    if not kept.any():
        connection.execute("DELETE FROM ring_changes WHERE id = ?", (number,))
        return
    columns = {name: column[kept] for name, column in change.columns.items()}
    rest = ChangedRows(change.keys[kept], columns, change.rows[kept])
    query = "UPDATE ring_changes SET newest = ?, rows = ? WHERE id = ?"
    connection.execute(query, (int(rest.rows.max()), pack(rest), number))
