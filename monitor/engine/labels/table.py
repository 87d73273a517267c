"""A bounded table of rows found by 64-bit key: columns in numpy, whole batches at a time.

Rows stand in a ring, newest over oldest; an open-addressing hash table with linear probing points into
it. An overwritten row leaves its entry behind, which no longer matches its key and is passed over; the
table is built anew when entries fill it. Lookups and insertions are vectorised over a batch: tens of
nanoseconds a row, where a dictionary of Python objects would take 150 bytes and more for each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from monitor.base.records import Ints, Keys
from monitor.base.state_changes import ChangedRows, RingChange, RingRows, RingState

_FIRST_CAPACITY = 1024
_ENTRIES_PER_ROW = 4  # table entries for each ring row: at most 60 % of them fill up between rebuilds
_FULLEST = 0.6
_GROWTH = 4  # doubling would cost a stream that fills the ring half as much again as all its insertions
_BLOCK = 8192  # rows entered at a time into a new table: their temporary columns stay in the cache

_STEP = 1024  # rows moved into a new table with each call, beside two for each row that comes

LARGEST = 500_000_000
"""Rows that a ring may hold at most."""
_EMPTY = np.int32(0)


class _Moving(NamedTuple):
    """A table that is being replaced: how many of its rows the new one has, and how many there were."""

    table: NDArray[np.int32]
    done: int
    rows: int


def _longer(column: NDArray[Any], capacity: int) -> NDArray[Any]:
    """The column with room for more rows, of which no page is touched before it is used."""
    longer = np.zeros((capacity, *column.shape[1:]), dtype=column.dtype)
    longer[: len(column)] = column
    return longer


class BoundedTable:
    """A ring of rows with a unique key each.

    Parameters
    ----------
    columns : mapping of str to dtype
        What each row carries beside its key. The key 0 is reserved: it is never found.
    capacity : int
        Rows kept at most, oldest out first; memory grows up to there as rows come. At most 500 million.
    resume : RingState, optional
        A snapshot; of more rows than `capacity` the newest are taken. A column that it lacks is all 0, and
        one that is no longer wanted is left out.

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
        self._base = 0  # absolute number of the row that was the first since the ring was made or resumed
        self._added = 0  # rows added since: the next stands at _added % _limit
        self._saved = 0  # of those, how many `changes` has given out
        self._touched: list[Ints] = []  # rows changed after they were given out
        self._touches = 0  # rows in there
        self._wiped: list[Keys] = []  # not yet given out
        self._given: tuple[int, list[Ints], list[Keys]] | None = None
        self._used = 0  # table entries in use, stale ones too
        self._allocate(min(capacity, _FIRST_CAPACITY))
        if resume is not None:
            self._restore(resume)

    @staticmethod
    def bytes_per_row(columns: Mapping[str, DTypeLike]) -> int:
        """What a row of a full ring takes at most: its columns, its key, and its share of the table.

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
        """Rows kept at most."""
        return self._limit

    @property
    def nbytes(self) -> int:
        """Bytes that the columns, the keys and the table take."""
        parts: list[NDArray[Any]] = [self._keys, self._table, *self._columns.values()]
        parts += [] if self._moving is None else [self._moving.table]
        return sum(part.nbytes for part in parts)

    def __getitem__(self, column: str) -> NDArray[Any]:
        """A column of the ring, to be indexed by the rows that `find` and `add` return."""
        return self._columns[column]

    def keys(self, rows: Ints) -> Keys:
        """The keys of these rows; 0 where one was forgotten."""
        return self._keys[rows]

    def __contains__(self, column: str) -> bool:
        return column in self._columns

    def find(self, keys: Keys) -> Ints:
        """Ring row of each key, -1 where there is none."""
        rows = np.full(len(keys), -1, dtype=np.int64)
        if not self._added:
            return rows
        self._look_up(self._table, keys, np.flatnonzero(keys), rows)
        if self._moving is not None:
            missing = np.flatnonzero((rows < 0) & (keys != 0))
            self._look_up(self._moving.table, keys, missing, rows)
        return rows

    def _look_up(self, table: NDArray[np.int32], keys: Keys, active: Ints, rows: Ints) -> None:
        """Write into `rows` the rows of the keys at the places `active`, as far as the table knows them."""
        mask = np.uint64(len(table) - 1)
        place = (keys[active] & mask).astype(np.int64)
        while True:
            entry = table[place]
            taken = np.flatnonzero(entry)  # few are: only for those a key has to be fetched
            if not len(taken):
                return
            active, place, row = active[taken], place[taken], entry[taken].astype(np.int64) - 1
            hit = self._keys[row] == keys[active]
            rows[active[hit]] = row[hit]
            going = ~hit
            active, place = active[going], (place[going] + 1) & np.int64(mask)

    def add(self, keys: Keys, values: Mapping[str, NDArray[Any]]) -> Ints:
        """Add rows with new, distinct keys; return where they stand.

        Of more rows than the ring holds only the newest are kept; the others get the row -1. The rows
        pushed out may be ones that `find` has just returned.
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
        """Lay values into the ring from `start` on, in one or two blocks."""
        fits = self._limit - start
        column[start : start + len(values)] = values[:fits]
        column[: max(0, len(values) - fits)] = values[fits:]

    def at(self, numbers: Ints) -> Ints:
        """The rows with these numbers, which must lie in `span`."""
        return (numbers - self._base) % self._limit

    def put(self, column: str, rows: Ints, values: Any) -> None:
        """Change a column of these rows; of repeated rows the last value stays."""
        self._columns[column][rows] = values
        self._touch(rows)

    def forget(self, rows: Ints) -> None:
        """Make these rows unfindable, so that their keys may be added again."""
        self._keys[rows] = 0
        self._touch(rows)

    def wipe(self, keys: Keys) -> int:
        """Make keys unfindable for good; nothing of their rows stays, here or where they were saved.

        Returns
        -------
        int
            Rows found. Earlier uses of a key, which are not, go from where they were saved all the same.
        """
        rows = self.find(keys)
        rows = rows[rows >= 0]
        self.forget(rows)
        for column in self._columns.values():
            column[rows] = column.dtype == np.bool_  # a flag says that something is done, not to be done
        self._wiped.append(keys)
        return len(rows)

    @property
    def span(self) -> tuple[int, int]:
        """Number of the oldest row and of the next one to come; rows keep theirs when they are saved."""
        return self._oldest, self._base + self._added

    def numbered(self, first: int, stop: int) -> Ints:
        """The rows with numbers from `first` to below `stop` that are still there, oldest first."""
        start = max(first - self._base, self._added - len(self))
        return np.arange(start, max(start, min(stop - self._base, self._added))) % self._limit

    def retire(self, rows: Ints) -> None:
        """Wipe rows, forgotten ones too: nothing of them stays, here or where they were saved."""
        keys = self._keys[rows[self._number(rows) < self._saved]]
        self.forget(rows)
        for column in self._columns.values():
            column[rows] = column.dtype == np.bool_
        keys = keys[keys != 0]
        if len(keys):  # of rows that were never saved, nothing need be told
            self._wiped.append(keys)

    def _number(self, rows: Ints) -> Ints:
        """How many rows had been added before these since the ring was made or resumed."""
        return self._added - 1 - (self._added - 1 - rows) % self._limit

    def _touch(self, rows: Ints) -> None:
        if not len(rows) or self._saved <= self._added - len(self):
            return  # nothing of what was given out is still there: all of it is given out anew
        self._touched.append(np.array(rows))
        self._touches += len(rows)
        if self._touches > 2 * self._limit:  # they could not be saved for long
            self._touched = [np.unique(np.concatenate(self._touched))]
            self._touches = len(self._touched[0])

    def overwritten_by(self, rows: int) -> Ints:
        """The rows that adding so many would push out, oldest first."""
        out = min(len(self), max(0, len(self) + rows - self._limit))
        return (self._added - len(self) + np.arange(out)) % self._limit

    def live(self, wanted: NDArray[np.bool_] | None = None) -> Ints:
        """Every row, oldest first, or the wanted ones of the first ``len(self)`` of each column."""
        places = np.arange(len(self)) if wanted is None else np.flatnonzero(wanted)
        oldest = places.searchsorted(max(0, self._added - self._limit) % self._limit)
        return np.concatenate([places[oldest:], places[:oldest]])

    def snapshot(self) -> RingState:
        """Keys and columns, oldest first; it shares nothing with the ring."""
        return RingState(*self._rows(self.live()), self._oldest)

    def changes(self, name: str) -> RingChange | None:
        """What was added and changed since the last call, to be saved; None for nothing.

        Call `confirm` once it is saved, or `retract` if it could not be: then the next call gives it again.
        """
        start = max(self._saved, self._added - len(self))
        added = np.arange(start, self._added) % self._limit
        changed = self._changed(start)
        wiped = np.concatenate(self._wiped) if self._wiped else None
        if not len(added) and changed is None and wiped is None:
            return None
        self._given = (self._saved, self._touched, self._wiped)
        self._saved, self._touched, self._touches, self._wiped = self._added, [], 0, []
        rows = RingRows(*self._rows(added))
        return RingChange(name, self._base + start, rows, changed, self._oldest, wiped)

    def confirm(self) -> None:
        """What `changes` gave is saved."""
        self._given = None

    def retract(self) -> None:
        """What `changes` gave could not be saved."""
        if self._given is not None:
            self._saved, touched, wiped = self._given
            self._touched = [*touched, *self._touched]
            self._touches = sum(map(len, self._touched))
            self._wiped = [*wiped, *self._wiped]
            self._given = None

    def _changed(self, start: int) -> ChangedRows | None:
        """The rows touched that stood before `start` and still do."""
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
        """Absolute number of the oldest row."""
        return self._base + self._added - len(self)

    def _rows(self, rows: Ints) -> tuple[Keys, dict[str, NDArray[Any]]]:
        """Keys and columns."""
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
        """While nothing was overwritten yet: rows keep their places.

        The new table is filled a few rows at a time, with the rows that follow: entering a million at once
        would hold up the stream. Until then what it lacks is looked up in the old one.
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
        """Enter so many more of the rows that only the old table knows."""
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
        # Forgotten rows all have the key 0: entering them would search through one ever longer cluster.
        rows = first + np.flatnonzero(self._keys[first:stop])
        for start in range(0, len(rows), _BLOCK):
            block = rows[start : start + _BLOCK]
            self._enter(self._keys[block], block)

    def _enter(self, keys: Keys, rows: Ints) -> None:
        """Point a free table entry at each row; the loser of a race for one tries the next."""
        place = (keys & self._mask).astype(np.int64)
        entries = (rows + 1).astype(np.int32)
        while len(entries):
            free = self._table[place] == _EMPTY
            self._table[place[free]] = entries[free]
            waiting = self._table[place] != entries
            entries = entries[waiting]
            place = (place[waiting] + 1) & np.int64(self._mask)
        self._used += len(rows)
