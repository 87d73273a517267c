"""A ring table: rows with 64-bit keys in numpy columns, of limited size, read and written in batches.

New rows overwrite the oldest. A hash table (open addressing, linear probing) points to the rows. The entry of
an overwritten row stays in the hash table. Lookups skip this entry, because the row has another key now. When
the hash table is full of entries, it is rebuilt. Lookups and insertions are vectorised, and take tens of
nanoseconds for each row. A dictionary of Python objects would need at least 150 bytes for each row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from monitor.base.records import Ints, Keys
from monitor.base.state_changes import ChangedRows, RingChange, RingRows, RingState

_FIRST_CAPACITY = 1024
_ENTRIES_PER_ROW = 4  # table entries for each ring row; rebuilds keep at most 60 % of them in use
_FULLEST = 0.6
_GROWTH = 4  # doubling would add half the cost of all insertions while a stream fills the ring
_BLOCK = 8192  # rows entered into a new table at once, so that their temporary columns stay in the cache

_STEP = 1024  # rows moved into a new table with each call, and two more for each added row

LARGEST = 500_000_000
"""The largest number of rows in a ring."""
_EMPTY = np.int32(0)


class _Moving(NamedTuple):
    """A table that is being replaced, with the number of rows already moved and the number of all rows."""

    table: NDArray[np.int32]
    done: int
    rows: int


def _longer(column: NDArray[Any], capacity: int) -> NDArray[Any]:
    """Return the column with room for more rows. The new room uses no memory until rows are written to it."""
    longer = np.zeros((capacity, *column.shape[1:]), dtype=column.dtype)
    longer[: len(column)] = column
    return longer


class BoundedTable:
    """A ring table of rows with unique keys.

    A row has an index and a number. The index selects the row's values in the columns, until a new row
    overwrites the row. The number counts all rows ever added, including those before a restart.

    Parameters
    ----------
    columns : mapping of str to dtype
        The columns beside the key. The key 0 is reserved: lookups never find it.
    capacity : int
        The largest number of rows, up to 500 million. The memory grows with the number of rows.
    resume : RingState, optional
        A snapshot. If it has more than `capacity` rows, only the newest are used. Columns that the snapshot
        lacks are filled with 0. Columns that are not in `columns` are dropped.

    Examples
    --------
    >>> ring = BoundedTable({"label": np.int32}, capacity=2000)
    >>> rows = ring.add(np.array([11, 12], dtype=np.uint64), {"label": np.array([0, 1])})
    >>> ring.find(np.array([12, 13], dtype=np.uint64)).tolist()
    [1, -1]
    >>> ring["label"][ring.find(np.array([12], dtype=np.uint64))].tolist()
    [1]
    """

    def __init__(
        self,
        columns: Mapping[str, DTypeLike],
        capacity: int,
        resume: RingState | None = None,
    ) -> None:
        if not 1 <= capacity <= LARGEST:
            raise ValueError(f"capacity must be from 1 to {LARGEST:,}, got {capacity:,}")
        self._limit = capacity
        self._types = {name: np.dtype(kind) for name, kind in columns.items()}
        self._base = 0  # number of the first row since the ring was created or resumed
        self._added = 0  # rows added since then; the next row goes to _added % _limit
        self._saved = 0  # of those, the rows that `changes` has returned
        self._touched: list[Ints] = []  # rows changed after `changes` returned them
        self._touches = 0  # rows in `_touched`
        self._wiped: list[Keys] = []  # keys that `changes` has not returned yet
        self._unconfirmed: tuple[int, list[Ints], list[Keys]] | None = None
        self._used = 0  # table entries in use, with those of overwritten rows
        self._allocate(min(capacity, _FIRST_CAPACITY))
        if resume is not None:
            self._restore(resume)

    @staticmethod
    def bytes_per_row(columns: Mapping[str, DTypeLike]) -> int:
        """Return the largest memory of a row of a full table, in bytes, including its part of the hash table.

        Examples
        --------
        >>> BoundedTable.bytes_per_row({"label": np.int32})
        44
        """
        table = 2 * _ENTRIES_PER_ROW * np.dtype(np.int32).itemsize  # its size is rounded up to a power of two
        return table + sum(np.dtype(kind).itemsize for kind in (np.uint64, *columns.values()))

    def __len__(self) -> int:
        return min(self._added, self._limit)

    @property
    def limit(self) -> int:
        """The largest number of rows that the table can hold."""
        return self._limit

    @property
    def nbytes(self) -> int:
        """The memory of the columns, the keys and the hash table, in bytes."""
        parts: list[NDArray[Any]] = [self._keys, self._table, *self._columns.values()]
        parts += [] if self._moving is None else [self._moving.table]
        return sum(part.nbytes for part in parts)

    def __getitem__(self, column: str) -> NDArray[Any]:
        """Return a column. Index the column by the row indices that `find` and `add` return."""
        return self._columns[column]

    def keys(self, rows: Ints) -> Keys:
        """Return the keys of the rows with these indices; 0 for a row that `forget` has hidden."""
        return self._keys[rows]

    def __contains__(self, column: str) -> bool:
        return column in self._columns

    def find(self, keys: Keys) -> Ints:
        """Return the row index of each key, (n,), or -1 if there is no row with this key."""
        rows = np.full(len(keys), -1, dtype=np.int64)
        if not self._added:
            return rows
        self._look_up(self._table, keys, np.flatnonzero(keys), rows)
        if self._moving is not None:
            missing = np.flatnonzero((rows < 0) & (keys != 0))
            self._look_up(self._moving.table, keys, missing, rows)
        return rows

    def _look_up(self, table: NDArray[np.int32], keys: Keys, active: Ints, rows: Ints) -> None:
        """Write into `rows` the rows of the keys at the indices `active`, if the table contains the keys."""
        mask = np.uint64(len(table) - 1)
        place = (keys[active] & mask).astype(np.int64)
        while True:
            entry = table[place]
            used = np.flatnonzero(entry)  # only these few need a comparison of keys
            if not len(used):
                return
            active, place, row = active[used], place[used], entry[used].astype(np.int64) - 1
            hit = self._keys[row] == keys[active]
            rows[active[hit]] = row[hit]
            going = ~hit
            active, place = active[going], (place[going] + 1) & np.int64(mask)

    def add(self, keys: Keys, values: Mapping[str, NDArray[Any]]) -> Ints:
        """Add rows with new, distinct keys; return their row indices, (n,).

        If there are more rows than the table can hold, only the last ones are stored, and the others get the
        index -1. The new rows may overwrite rows that `find` has just returned.
        """
        skipped = max(0, len(keys) - self._limit)
        if skipped:
            kept = self.add(keys[skipped:], {name: column[skipped:] for name, column in values.items()})
            return np.concatenate([np.full(skipped, -1, dtype=np.int64), kept])
        self._make_room(len(keys))
        start = self._added % self._limit
        rows = (start + np.arange(len(keys))) % self._limit
        self._added += len(keys)
        self._write(self._keys, start, keys)
        for name, column in values.items():
            self._write(self._columns[name], start, column)
        self._enter(keys, rows)
        self._move(2 * len(keys) + _STEP)
        return rows

    def _write(self, column: NDArray[Any], start: int, values: NDArray[Any]) -> None:
        """Write values into the ring from `start` on, in one or two blocks."""
        fits = self._limit - start
        column[start : start + len(values)] = values[:fits]
        column[: max(0, len(values) - fits)] = values[fits:]

    def at(self, numbers: Ints) -> Ints:
        """Return the indices of the rows with these numbers. The numbers must lie in `span`."""
        return (numbers - self._base) % self._limit

    def put(self, column: str, rows: Ints, values: Any) -> None:
        """Set a column of the rows with these indices. If an index is repeated, its last value counts."""
        self._columns[column][rows] = values
        self._touch(rows)

    def forget(self, rows: Ints) -> None:
        """Hide these rows from lookups, so that their keys can be added again."""
        self._keys[rows] = 0
        self._touch(rows)

    def wipe(self, keys: Keys) -> int:
        """Delete the rows with these keys, here and in the store.

        Returns
        -------
        int
            The number of rows deleted here. Rows that only the store still holds are not counted.
        """
        rows = self.find(keys)
        rows = rows[rows >= 0]
        self.forget(rows)
        for column in self._columns.values():
            column[rows] = column.dtype == np.bool_  # a true flag means that nothing is left to do
        self._wiped.append(keys)
        return len(rows)

    @property
    def span(self) -> tuple[int, int]:
        """The number of the oldest row, and the number that the next new row will get."""
        return self._oldest, self._base + self._added

    def numbered(self, first: int, stop: int) -> Ints:
        """Return the indices of the rows with numbers from `first` to below `stop`, oldest first.

        Overwritten rows are left out, and hidden rows are included.
        """
        start = max(first - self._base, self._added - len(self))
        return np.arange(start, max(start, min(stop - self._base, self._added))) % self._limit

    def retire(self, rows: Ints) -> None:
        """Delete the rows with these indices, here and in the store. They may be hidden by `forget`."""
        keys = self._keys[rows[self._number(rows) < self._saved]]
        self.forget(rows)
        for column in self._columns.values():
            column[rows] = column.dtype == np.bool_
        keys = keys[keys != 0]
        if len(keys):  # rows that were never saved need no erasure elsewhere
            self._wiped.append(keys)

    def _number(self, rows: Ints) -> Ints:
        """Return the number of rows added before each of these rows since the table was made or resumed."""
        return self._added - 1 - (self._added - 1 - rows) % self._limit

    def _touch(self, rows: Ints) -> None:
        if not len(rows) or self._saved <= self._added - len(self):
            return  # no saved row is left: `changes` returns all rows as added
        self._touched.append(np.array(rows))
        self._touches += len(rows)
        if self._touches > 2 * self._limit:  # saving has failed for long
            self._touched = [np.unique(np.concatenate(self._touched))]
            self._touches = len(self._touched[0])

    def overwritten_by(self, rows: int) -> Ints:
        """Return the indices of the rows that `rows` new rows would overwrite, oldest first."""
        out = min(len(self), max(0, len(self) + rows - self._limit))
        return (self._added - len(self) + np.arange(out)) % self._limit

    def live(self, wanted: NDArray[np.bool_] | None = None) -> Ints:
        """Return the indices of all stored rows, oldest first. Rows that `forget` has hidden are included.

        `wanted` is a mask of ``len(self)`` values. If it is passed, only the rows for which it is true are
        returned.
        """
        places = np.arange(len(self)) if wanted is None else np.flatnonzero(wanted)
        oldest = places.searchsorted(max(0, self._added - self._limit) % self._limit)
        return np.concatenate([places[oldest:], places[:oldest]])

    def snapshot(self) -> RingState:
        """Return copies of the keys and columns, oldest row first."""
        return RingState(*self._rows(self.live()), self._oldest)

    def changes(self, name: str) -> RingChange | None:
        """Return the rows added and changed since the last call, to be saved; None if there are none.

        Call `confirm` after the rows are saved, or `retract` if they could not be saved. After `retract`, the
        next call returns the rows again.
        """
        start = max(self._saved, self._added - len(self))
        added = np.arange(start, self._added) % self._limit
        changed = self._changed(start)
        wiped = np.concatenate(self._wiped) if self._wiped else None
        if not len(added) and changed is None and wiped is None:
            return None
        self._unconfirmed = (self._saved, self._touched, self._wiped)
        self._saved, self._touched, self._touches, self._wiped = self._added, [], 0, []
        rows = RingRows(*self._rows(added))
        return RingChange(name, self._base + start, rows, changed, self._oldest, wiped)

    def confirm(self) -> None:
        """Record that the last result of `changes` has been saved."""
        self._unconfirmed = None

    def retract(self) -> None:
        """Record that the last result of `changes` could not be saved. The next result includes it."""
        if self._unconfirmed is not None:
            self._saved, touched, wiped = self._unconfirmed
            self._touched = [*touched, *self._touched]
            self._touches = sum(map(len, self._touched))
            self._wiped = [*wiped, *self._wiped]
            self._unconfirmed = None

    def _changed(self, start: int) -> ChangedRows | None:
        """Return the changed rows numbered before `start` that still exist."""
        if not self._touched or start == self._added - len(self):
            return None
        rows = np.unique(np.concatenate(self._touched))
        number = self._number(rows)
        rows = rows[number < start]
        if not len(rows):
            return None
        return ChangedRows(*self._rows(rows), self._base + number[number < start])

    @property
    def _oldest(self) -> int:
        """The number of the oldest row."""
        return self._base + self._added - len(self)

    def _rows(self, rows: Ints) -> tuple[Keys, dict[str, NDArray[Any]]]:
        """Return the keys and columns of these rows."""
        return self._keys[rows], {name: column[rows] for name, column in self._columns.items()}

    def _restore(self, state: RingState) -> None:
        self._base = state.first + max(0, len(state.keys) - self._limit)
        keys = state.keys[-self._limit :]
        self._allocate(max(self._capacity, len(keys)))
        self._keys[: len(keys)] = keys
        for name, column in self._columns.items():
            if name in state.columns:
                column[: len(keys)] = state.columns[name][-self._limit :]
        self._added = self._saved = len(keys)
        self._rebuild()

    def _allocate(self, capacity: int) -> None:
        self._capacity = capacity
        self._keys = np.zeros(capacity, dtype=np.uint64)
        self._columns = {name: np.zeros(capacity, dtype=kind) for name, kind in self._types.items()}
        self._new_table()

    def _new_table(self) -> None:
        size = 1 << int(np.ceil(np.log2(self._capacity * _ENTRIES_PER_ROW)))
        self._table = np.zeros(size, dtype=np.int32)
        self._mask = np.uint64(size - 1)
        self._used = 0
        self._moving: _Moving | None = None

    def _make_room(self, rows: int) -> None:
        needed = min(self._added + rows, self._limit)
        if needed > self._capacity:
            self._grow(needed)
        elif self._used + rows > _FULLEST * len(self._table):
            self._rebuild()

    def _grow(self, needed: int) -> None:
        """Enlarge a table in which no row has been overwritten. The rows keep their indices.

        Entering a million rows at once would stop the stream for a while. So each addition moves only a few
        rows to the new hash table. Until all rows have moved, lookups also use the old hash table.
        """
        self._move(len(self))
        capacity = min(self._limit, max(needed, _GROWTH * self._capacity))
        self._keys = _longer(self._keys, capacity)
        self._columns = {name: _longer(column, capacity) for name, column in self._columns.items()}
        self._capacity = capacity
        old = self._table
        self._new_table()
        self._moving = _Moving(old, 0, len(self))

    def _move(self, rows: int) -> None:
        """Enter `rows` more of the rows that only the old hash table contains."""
        if self._moving is None:
            return
        start, stop = self._moving.done, min(self._moving.done + rows, self._moving.rows)
        self._enter_kept(start, stop)
        self._moving = None if stop == self._moving.rows else self._moving._replace(done=stop)

    def _rebuild(self) -> None:
        self._new_table()
        self._enter_kept(0, len(self))

    def _enter_kept(self, first: int, stop: int) -> None:
        """Enter the rows from `first` to below `stop`."""
        # Forgotten rows all have the key 0: entering them would search one ever longer cluster.
        rows = first + np.flatnonzero(self._keys[first:stop])
        for start in range(0, len(rows), _BLOCK):
            block = rows[start : start + _BLOCK]
            self._enter(self._keys[block], block)

    def _enter(self, keys: Keys, rows: Ints) -> None:
        """Point a free entry of the hash table at each row.

        If several rows try the same entry, one gets it, and the others try the next entry.
        """
        place = (keys & self._mask).astype(np.int64)
        entries = (rows + 1).astype(np.int32)
        while len(entries):
            free = self._table[place] == _EMPTY
            self._table[place[free]] = entries[free]
            waiting = self._table[place] != entries
            entries = entries[waiting]
            place = (place[waiting] + 1) & np.int64(self._mask)
        self._used += len(rows)
