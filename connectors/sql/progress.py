"""The progress of a `sql` source in reading a table, as a state machine without access to the database.

The state has the **greatest value** read from the rising column (`cursor` in the configuration), and the
**kept rows**: the hashed id and the value of each row that was read recently. Each poll of the table starts
at the **look-back**, which is the value `overlap_seconds` below the greatest value. The state follows these
rules:

* A row that a poll returns is new if it is not a kept row. It then becomes a kept row and is handed out once.
* Every row that was read with a value above `start` is kept. A row of the table between `start` and the
  look-back that is not a kept row was therefore committed late, after a poll had read past its value. It is
  counted as lost once.
* `start` increases if there are too many rows to keep. Rows below `start` are neither read nor counted.
* If too many rows have the same value (`tied`), only the last of them are kept. Rows with this value are read
  in the order of their ids, so the id of the last row shows which rows have been read.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from connectors.sql.values import from_stored, low_rank, rank, to_stored, value_below, value_below_rank
from monitor.base.records import Keys, id_keys, mix, text_codes

MOST_KNOWN = 100_000
"""The largest number of kept rows."""
MOST_COUNTED = 20_000
"""The largest number of kept rows below the look-back, by which late rows are recognised."""
MOST_UNUSABLE = 10_000
"""The largest number of rows without a usable value that are counted as rejected."""
TIED = 1_000
"""The number of kept rows with the value `tied`, if too many rows have this value."""
MOST_AHEAD = 86_400 * 10**6
"""The largest distance of a time into the future, in microseconds; a later time is rejected."""
_ROW = np.dtype([("id", "<u8"), ("rank", "<f8")])

Row = tuple[int, float]
"""The salted hash of the id of a row, and the rank of its value of the rising column."""


class LateRows(NamedTuple):
    """The numbers of late rows, and of rows that had been read before, in `Progress.late_range`.

    A late row was committed after a poll had read past its value.
    """

    late: int
    known: int


class Progress:
    """The progress of a source in reading a table, which decides for each row of a poll whether it is new.

    The rank of a value is a number by which values of the rising column are compared. The module explains the
    other terms.

    Parameters
    ----------
    cursor, identity : str
        The names of the rising column and of the id column, for messages.
    overlap : float
        The distance of the look-back below the greatest value: `overlap_seconds` of the configuration.
    saved : mapping of str to value
        A snapshot, perhaps of an older version; empty for a table that has never been read.

    Attributes
    ----------
    place : int
        The number of rows handed out.
    high : number, date, datetime, str or None
        The greatest value that was read; None if no row was read.
    tied : number, date, datetime, str or None
        A value for which there are too many rows to keep; None if there is no such value.
    last_tied_id : object
        The id of the last row read with the value `tied`. A position must hold no ids, so the id is not saved
        and is None after a restart, until `find_last_tied` finds the row in the table.
    start : float
        The rank (`values.rank`) above which every row that was read is still kept. Minus infinity if no row
        was dropped.
    """

    def __init__(self, cursor: str, identity: str, overlap: float, saved: Mapping[str, Any]) -> None:
        self._cursor, self._identity, self._overlap = cursor, identity, overlap
        self.place: int = saved.get("place", 0)
        self.high = from_stored(saved.get("high"))
        self._top = -math.inf if self.high is None else rank(self.high) or 0.0
        self.tied = from_stored((saved.get("tied") or [None])[0])
        self.last_tied_id: Any = None
        self.start: float = saved.get("start", -math.inf)
        self._salt = np.uint64(int(saved["salt"]) if "salt" in saved else secrets.randbits(64))
        self._rows = _rows(saved.get("rows", b""))
        self._unusable = _rows(saved.get("unusable", b""))
        self._newest = _newest(self._rows)
        self._former = _Former.from_saved(saved)
        if "salt" not in saved and self.high is not None:
            self._begin_from_former(_restored_point(saved.get("floor")))

    def snapshot(self) -> dict[str, Any]:
        """Return the state as values that the store can hold."""
        return {
            "place": self.place,
            "high": to_stored(self.high),
            "start": self.start,
            "tied": None if self.tied is None else [to_stored(self.tied)],
            "overlap": self._overlap,
            "salt": str(self._salt),
            "rows": _bytes(self._rows),
            "unusable": _bytes(self._unusable),
            **({} if self._former is None else self._former.saved),
        }

    def hash_ids(self, identities: Sequence[object]) -> list[int]:
        """Return the hashes of ids: their `id_keys` with the random salt of this state."""
        return self._salt_keys(id_keys([_text(each) for each in identities]))

    def lookback(self) -> tuple[Any, float]:
        """Return the value at which a poll starts, and the rank of this value.

        For a poll from the beginning of the table, the value is None and the rank is minus infinity. If
        `start` is above the look-back, the poll starts at `start`.
        """
        if self.high is None:
            return None, -math.inf
        low = low_rank(self.high, self._overlap)
        if self.tied is not None and (rank(self.tied) or 0.0) < low:
            self.start, self.tied = max(self.start, rank(self.tied) or 0.0), None
        if self.start >= low:
            return value_below_rank(self.high, self.start), self.start
        return value_below(self.high, self._overlap), low

    def add_row(self, key: int, value: Any, identity: object, low: float) -> tuple[bool, str | None]:
        """Keep a row that a poll returned.

        Return whether the row is new, and a message about its fault or None.

        Parameters
        ----------
        key : int
            The hash of the id; see `hash_ids`.
        value, identity : object
            The row's value of the rising column and its id.
        low : float
            The rank at which the poll started.
        """
        at, wrong = self._check_value(value)
        if at is None or wrong is not None:
            return self._add_unusable(key, value, identity), wrong
        if at < low or at <= self.start or (key, at) in self._rows:
            return False, None
        is_lower = at < self._newest.get(key, at) and identity is not None
        self._keep(key, at)
        if at > self._top:
            self.high, self._top = value, at
        if self._former is not None and self._former.has(identity, at):
            return False, None
        if identity is None:
            return True, f"{self._identity}: NULL; give each row an id"
        if is_lower:
            wrong = f"{self._cursor}: it falls: this id was read with a greater value; let the column rise"
        return True, wrong

    def trim(self, identity: object, value: object) -> bool:
        """Drop the kept rows with the lowest values if there are too many kept rows.

        Parameters
        ----------
        identity, value : object
            The id and the value of the last row of the batch.

        Returns
        -------
        bool
            Whether this call has raised `start` to the look-back or above, so that the next polls start at
            `start`.
        """
        if self.high is None:
            return False
        if self.tied is not None and rank(value) == rank(self.tied):
            self.last_tied_id = identity
        low = low_rank(self.high, self._overlap)
        was_later = self.start >= low
        if len(self._rows) > MOST_COUNTED:
            counted = [at for _, at in self._rows if at < low]
            if len(counted) > MOST_COUNTED * 5 // 4:  # a large part at once: each drop copies all kept rows
                self._keep_highest(counted, MOST_COUNTED)
        if len(self._rows) <= MOST_KNOWN:
            return False
        kept = self._keep_highest([at for _, at in self._rows], MOST_KNOWN * 9 // 10)
        if not kept:
            self._keep_tied(value, identity)
        return self.start >= low and not was_later

    def late_range(self) -> tuple[Any, Any] | None:
        """Return the range of values from `start` to the look-back; rows in it that are not kept are late.

        The lower end is None for a range from the beginning of the table. The result is None if the range is
        empty.
        """
        _, low = self.lookback()
        end = None if self.high is None else value_below(self.high, self._overlap)
        if end is None or self.start >= low:
            return None
        return None if self.start == -math.inf else value_below_rank(self.high, self.start), end

    def count_late(self, batches: Iterable[Sequence[tuple[Any, object]]]) -> LateRows:
        """Count the late rows among rows of the table, and keep them, so that each is counted once.

        Parameters
        ----------
        batches : iterable of sequence of (value, id)
            The rows of the table in `late_range`.
        """
        low, known, count = self.lookback()[1], 0, 0
        late: dict[Row, None] = {}
        for batch in batches:
            keys = self.hash_ids([identity for _, identity in batch])
            ranks = [rank(value) for value, _ in batch]
            for key, at, (value, identity) in zip(keys, ranks, batch, strict=True):
                if at is None:
                    count += self._add_unusable(key, value, identity)
                    continue
                if at <= self.start or at >= low:
                    continue
                if (key, at) in self._rows:
                    known += 1
                elif (key, at) not in late:
                    count += 1
                    if count <= MOST_COUNTED:
                        late[key, at] = None
        if count > MOST_COUNTED:
            self.drop_below_lookback()
        for key, at in late:
            self._keep(key, at)
        return LateRows(count, known)

    def end_poll(self) -> None:
        """Drop the rows from a position of an older version. The complete poll has kept these rows again."""
        self._former = None

    @property
    def oldest_kept(self) -> Any:
        """A value below all kept rows; None if no row is kept, or if no row was ever dropped."""
        return None if not self._rows or self.start == -math.inf else value_below_rank(self.high, self.start)

    def drop_below_lookback(self) -> None:
        """Drop all kept rows below the look-back."""
        low = self.lookback()[1]
        self._drop_below(low)
        self.start = max(self.start, math.nextafter(low, -math.inf))

    def drop_all(self) -> None:
        """Drop all kept rows, for a table that no longer contains any of them."""
        self._drop_below(math.inf)
        self.start = max(self.start, math.nextafter(self.lookback()[1], -math.inf))

    def find_last_tied(self, rows: Iterable[tuple[int, object]]) -> bool:
        """Set `last_tied_id` again after a restart, and return whether the row was found.

        Parameters
        ----------
        rows : iterable of (int, object)
            The hash and the id of each row of the table with the value `tied`, in the order of the ids.
        """
        at = rank(self.tied)
        for key, identity in rows:
            if (key, at) in self._rows:
                self.last_tied_id = identity
        return self.last_tied_id is not None

    def skip_tied(self) -> None:
        """Continue reading above the value `tied`, without the remaining rows that have this value."""
        self.start, self.tied = rank(self.tied) or 0.0, None

    @property
    def unusable_is_full(self) -> bool:
        """True if the largest number of rows without a usable value, `MOST_UNUSABLE`, has been counted."""
        return len(self._unusable) >= MOST_UNUSABLE

    def forget(self, keys: Keys) -> bool:
        """Drop the kept rows with these `id_keys`, and return whether there were any.

        A dropped row that is still in the table is read again if its value is above the look-back. If a
        dropped row is below the look-back, all kept rows below the look-back are dropped, so that the dropped
        row is not counted as late.
        """
        dropped_keys, low = set(self._salt_keys(keys)), self.lookback()[1]
        dropped_rows = [row for row in self._rows if row[0] in dropped_keys]
        unusable_rows = [row for row in self._unusable if row[0] in dropped_keys]
        if any(at < low for _, at in dropped_rows):
            self.drop_below_lookback()
        for row in dropped_rows:
            self._rows.pop(row, None)
        for row in unusable_rows:
            del self._unusable[row]
        self._newest = _newest(self._rows)
        return bool(dropped_rows or unusable_rows)

    def _salt_keys(self, keys: Keys) -> list[int]:
        """Return the salted hashes of `id_keys`."""
        salted: list[int] = mix(keys ^ self._salt).tolist()
        return salted

    def _keep(self, key: int, at: float) -> None:
        """Add a row to the kept rows, and note the greatest rank of its id."""
        self._rows[key, at] = None
        self._newest[key] = max(at, self._newest.get(key, at))

    def _check_value(self, value: Any) -> tuple[float | None, str | None]:
        """Return the rank of a value of the rising column, and its problem; each is None if there is none."""
        if value is None:
            problem = "NULL; give each row a value, or leave such rows out by a query"
            return None, f"{self._cursor}: {problem}"
        at = rank(value)
        if at is None:
            return None, f"{self._cursor}: expected a time or a number, got {type(value).__name__}"
        if isinstance(value, date | str) and at > (rank(datetime.now(UTC)) or 0.0) + MOST_AHEAD:
            problem = "more than a day ahead of this machine's clock; correct the clock that set it"
            return at, f"{self._cursor}: {problem}"
        return at, None

    def _add_unusable(self, key: int, value: object, identity: object) -> bool:
        """Keep a row without a usable value; return False if the row is not new or too many are kept."""
        row = key, float(text_codes(["" if value is None else _text(value)])[0])
        is_new = row not in self._unusable and not self.unusable_is_full
        if is_new:
            self._unusable[row] = None
            is_new = self._former is None or not self._former.has_unusable(identity, value)
        return is_new

    def _keep_highest(self, ranks: list[float], most: int) -> int:
        """Drop the lowest kept rows until at most `most` of `ranks` are left, and count the kept rows.

        Rows of the same rank are kept or dropped together. If more than `most` rows have the greatest rank,
        no row is dropped and the result is 0.

        Parameters
        ----------
        ranks : list of float
            The ranks of all kept rows, or of the kept rows below the look-back.
        most : int
        """
        if len(ranks) > most:
            highest = sorted(ranks)[len(ranks) - most - 1]
            if highest == max(at for _, at in self._rows):
                return 0
            self._drop_below(math.nextafter(highest, math.inf))
            self.start = max(self.start, highest)
            if self.tied is not None and (rank(self.tied) or 0.0) <= self.start:
                self.tied = None
        return len(self._rows)

    def _drop_below(self, low: float) -> None:
        """Drop the kept rows below a rank."""
        self._rows = {row: None for row in self._rows if row[1] >= low}
        self._newest = _newest(self._rows)

    def _keep_tied(self, value: object, identity: object) -> None:
        """Keep only the last rows read with the greatest value, which too many rows have.

        Parameters
        ----------
        value, identity : object
            The value and the id of the last row read.
        """
        top = max(at for _, at in self._rows)
        tied = next((each for each in (value, self.high) if rank(each) == top), None)
        last = [row for row in self._rows if row[1] == top][-TIED:] if tied is not None else []
        self._rows = dict.fromkeys(last)
        self._newest = _newest(self._rows)
        self.start, self.tied = top if tied is None else math.nextafter(top, -math.inf), tied
        self.last_tied_id = identity if rank(value) == top else None

    def _begin_from_former(self, floor: tuple[Any, Any] | None) -> None:
        """Continue from a position of an older version, which has no rows below the look-back.

        Parameters
        ----------
        floor : (object, object) or None
            The tied value of that position and the last id read with it.
        """
        self.start = math.nextafter(low_rank(self.high, self._overlap), -math.inf)
        if floor is not None and (at := rank(floor[0])) is not None and at > self.start:
            self.start, self.tied, self.last_tied_id = math.nextafter(at, -math.inf), *floor
            self._keep(self.hash_ids([self.last_tied_id])[0], at)


class _Former:
    """The rows in a position of an older version, which hashed ids without a salt.

    Parameters
    ----------
    known : bytes
        The rows with a value.
    without : bytes
        The hashed ids of the rows without a value.
    """

    def __init__(self, known: bytes, without: bytes) -> None:
        self.saved = {"known": known, "without": without}
        self._known = set(_rows(known))
        self._without = set(np.frombuffer(without, dtype="<u8").tolist())

    @classmethod
    def from_saved(cls, saved: Mapping[str, Any]) -> _Former | None:
        """Return the rows of a saved position; None if the position is of this version."""
        return cls(saved["known"], saved.get("without", b"")) if "known" in saved else None

    def has(self, identity: object, at: float) -> bool:
        """Return whether a row with this id and rank was read."""
        return (self._digest(identity), at) in self._known

    def has_unusable(self, identity: object, value: object) -> bool:
        """Return whether a row with this id and this unusable value, or NULL, was read."""
        if value is None:
            return self._digest(identity) in self._without
        return (self._digest((identity, value)), math.inf) in self._known

    @staticmethod
    def _digest(value: object) -> int:
        """Return the 64-bit hash of an id, or of an id with a value."""
        hashed = blake2b(repr(value).encode("utf-8", "replace"), digest_size=8).digest()
        return int.from_bytes(hashed, "little")


def _restored_point(saved: Sequence[Any] | None) -> tuple[Any, Any] | None:
    """Return the value and the id that an older version saved as `floor`; None if it saved none."""
    return None if saved is None else (from_stored(saved[0]), from_stored(saved[1]))


def _rows(saved: bytes) -> dict[Row, None]:
    """Return the rows that `_bytes` packed, in their order."""
    table = np.frombuffer(saved, dtype=_ROW)
    return dict.fromkeys(zip(table["id"].tolist(), table["rank"].tolist(), strict=True))


def _bytes(rows: Mapping[Row, None]) -> bytes:
    """Pack rows into bytes."""
    table = np.empty(len(rows), dtype=_ROW)
    table["id"] = np.fromiter((key for key, _ in rows), dtype=np.uint64, count=len(rows))
    table["rank"] = np.fromiter((at for _, at in rows), dtype=np.float64, count=len(rows))
    return table.tobytes()


def _newest(rows: Iterable[Row]) -> dict[int, float]:
    """Return the greatest rank of each hashed id."""
    newest: dict[int, float] = {}
    for key, at in rows:
        newest[key] = max(at, newest.get(key, at))
    return newest


def _text(value: object) -> str:
    """Return an id as the text that it has in a record; NULL is an empty text."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "surrogateescape")
    is_whole = isinstance(value, float | Decimal) and math.isfinite(value) and value == int(value)
    return str(int(value) if is_whole else value)  # type: ignore[call-overload]
