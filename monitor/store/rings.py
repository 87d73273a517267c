"""The saved ring tables (tables of limited size, in which new rows overwrite the oldest).

A checkpoint appends the new rows of a ring table as a piece, and saves the changes of older rows separately.
Small pieces are merged. Otherwise a slow stream would leave a piece for each row. If the changes need more
than twice the space of the rows, they are applied to the rows. Otherwise labels that change repeatedly would
fill the disk.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from monitor.base.codec import concatenate_columns, pack, restored, unpack
from monitor.base.records import Ints, Keys
from monitor.base.state_changes import ChangedRows, RingChange, RingRows, RingState
from monitor.store.database import SqlConnection

_LARGEST_PIECE = 16_384  # rows; a larger piece would be kept too long, until all its rows are overwritten
_PIECES_A_RING = 8  # merging leaves at least this number of pieces, for the same reason
_LOOKED_AT_ONCE = 32  # pieces; enough, because each merged piece is as large as all later pieces together
_SPARE_BYTES = 1 << 20


class SavedRings:
    """Reads and writes the ring tables of a store, in transactions that the caller begins."""

    def __init__(self, connection: SqlConnection) -> None:
        self._run = connection
        # For each ring, the size of the changes since `_fold` was last called, in bytes.
        self._since: Counter[str] = Counter()

    def names(self) -> list[str]:
        """Return the names of the ring tables that have rows."""
        return [name for (name,) in self._run.execute("SELECT DISTINCT ring FROM ring_rows")]

    def read(self, name: str) -> RingState:
        """Return the saved state of a ring table. The saved changes are applied to its rows.

        Raises
        ------
        ValueError
            Rows are missing, or cannot be read.
        """
        query = "SELECT first, count, rows FROM ring_rows WHERE ring = ? ORDER BY first"
        pieces: list[RingRows] = []
        first = stop = -1
        for start, count, blob in self._run.execute(query, (name,)):
            rows = restored(unpack(blob), RingRows)
            if len(rows.keys) != count or (pieces and start != stop):
                raise ValueError(f"{name}: rows {stop} to {start} are missing, or there twice")
            first, stop = (first if pieces else start), start + count
            pieces.append(rows)
        whole = _joined(pieces)
        changes = self._run.execute("SELECT rows FROM ring_changes WHERE ring = ? ORDER BY id", (name,))
        for (blob,) in changes:
            change = restored(unpack(blob), ChangedRows)
            kept = change.rows >= first
            place = change.rows[kept] - first
            whole.keys[place] = change.keys[kept]
            for column, values in change.columns.items():
                if column in whole.columns:
                    whole.columns[column][place] = values[kept]
        return RingState(whole.keys, whole.columns, first)

    def write(self, ring: RingChange) -> None:
        """Save the new, changed and wiped rows of a ring table, and delete the overwritten rows."""
        run, name = self._run, ring.name
        if ring.wiped is not None:  # before the insertion, because an added row may have one of these keys
            wipe_keys(run, name, ring.wiped)
        count = len(ring.added.keys)
        if count:
            query = (
                "INSERT INTO ring_rows VALUES (?, ?, ?, ?) "
                "ON CONFLICT (ring, first) DO UPDATE SET count = excluded.count, rows = excluded.rows"
            )
            run.execute(query, (name, ring.first, count, pack(ring.added)))
        if ring.changed is not None:
            newest, blob = int(ring.changed.rows.max()), pack(ring.changed)
            query = "INSERT INTO ring_changes (ring, newest, rows) VALUES (?, ?, ?)"
            run.execute(query, (name, newest, blob))
            self._since[name] += len(blob)
        run.execute("DELETE FROM ring_rows WHERE ring = ? AND first + count <= ?", (name, ring.oldest))
        run.execute("DELETE FROM ring_changes WHERE ring = ? AND newest < ?", (name, ring.oldest))
        if count:
            self._merge(name, ring.first + count - ring.oldest)
        if self._since[name] > _SPARE_BYTES:
            self._fold(name)

    def _merge(self, name: str, live: int) -> None:
        """Merge the newest pieces into one.

        Beginning with the newest piece, the next older piece is included while it is no larger than all later
        pieces together. This works like the carries of a binary counter: if n rows come one at a time, each
        row is written about log2(n) times, and about log2(n) pieces remain.

        Parameters
        ----------
        name : str
            The name of the ring table.
        live : int
            The number of rows that are not overwritten.
        """
        query = "SELECT first, count FROM ring_rows WHERE ring = ? ORDER BY first DESC LIMIT ?"
        newest = self._run.execute(query, (name, _LOOKED_AT_ONCE)).fetchall()
        most = min(_LARGEST_PIECE, live // _PIECES_A_RING)
        merged, rows = 1, newest[0][1]
        while merged < len(newest) and newest[merged][1] <= rows and rows + newest[merged][1] <= most:
            rows += newest[merged][1]
            merged += 1
        if merged == 1:
            return
        first = newest[merged - 1][0]
        query = "SELECT rows FROM ring_rows WHERE ring = ? AND first >= ? ORDER BY first"
        pieces = [restored(unpack(blob), RingRows) for (blob,) in self._run.execute(query, (name, first))]
        self._run.execute("DELETE FROM ring_rows WHERE ring = ? AND first >= ?", (name, first))
        whole = pack(_joined(pieces))
        self._run.execute("INSERT INTO ring_rows VALUES (?, ?, ?, ?)", (name, first, rows, whole))

    def _fold(self, name: str) -> None:
        """Apply the saved changes to the saved rows, if the changes have over twice the size of the rows."""
        self._since[name] = 0
        changes, rows = (
            self._run.execute(
                f"SELECT coalesce(sum(length(rows)), 0) FROM {table} WHERE ring = ?", (name,)
            ).fetchone()[0]
            for table in ("ring_changes", "ring_rows")
        )
        if changes <= 2 * rows + _SPARE_BYTES:
            return
        whole = self.read(name)
        query = "SELECT first, count FROM ring_rows WHERE ring = ?"
        for first, count in self._run.execute(query, (name,)).fetchall():
            place = slice(first - whole.first, first - whole.first + count)
            columns = {column: values[place] for column, values in whole.columns.items()}
            piece = pack(RingRows(whole.keys[place], columns))
            query = "UPDATE ring_rows SET rows = ? WHERE ring = ? AND first = ?"
            self._run.execute(query, (piece, name, first))
        self._run.execute("DELETE FROM ring_changes WHERE ring = ?", (name,))


def _joined(pieces: list[RingRows]) -> RingRows:
    """Concatenate one or more pieces."""
    keys = [rows.keys for rows in pieces]
    columns = concatenate_columns([rows.columns for rows in pieces], [len(each) for each in keys])
    return RingRows(np.concatenate(keys), columns)


def wipe_keys(connection: SqlConnection, ring: str, keys: Keys) -> None:
    """Erase the content of the rows with these keys in a saved ring table, and delete their saved changes.

    The rows stay in place, without keys and values.

    All rows of the table are read, because there is no index of keys. For a gigabyte this takes some seconds,
    in the thread that saves checkpoints.

    Parameters
    ----------
    connection : SqlConnection
        A connection within a transaction.
    ring : str
        The name of the ring table, such as ``answers/toxicity``.
    keys : (n,) uint64
        The keys of the rows: hashes of ids.
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


def _overwrite(connection: SqlConnection, ring: str, first: int, keys: Keys) -> Ints:
    """Erase the rows with these keys from a piece, and return their indices in the piece."""
    where = "WHERE ring = ? AND first = ?"
    (blob,) = connection.execute(f"SELECT rows FROM ring_rows {where}", (ring, first)).fetchone()
    rows = restored(unpack(blob), RingRows)
    places: Ints = np.flatnonzero(np.isin(rows.keys, keys))
    if len(places):
        rows.keys[places] = 0
        for column in rows.columns.values():
            column[places] = column.dtype == np.bool_  # `BoundedTable.wipe` sets the same values
        connection.execute(f"UPDATE ring_rows SET rows = ? {where}", (pack(rows), ring, first))
    return places


def _drop(connection: SqlConnection, number: int, keys: Keys, gone: Ints) -> None:
    """Delete the rows with these keys or row numbers from a saved change."""
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
