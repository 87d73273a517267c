"""The reading progress of a table, as a state machine that knows no database.

The state is the **greatest** value of the rising column that was read, and **rows**: by id and value, those
that were read. A look at the table begins `overlap_seconds` below the greatest value. Its laws:

* A row within a look is new if it is not among the rows. It becomes one of them, and is handed out once.
* All rows that were read with a value above `start` are kept. So a row of the table between `start` and the
  look-back that is not kept was never read: it came late, and is counted once.
* `start` rises if there are too many rows to keep. Rows below it are neither looked for nor counted.
* If too many rows to keep have one value, `tied`, the last ones read stand for all before them in the order
  of their ids.
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

from connectors.sql.values import at_most, below, low_rank, rank, restored, stored
from monitor.base.records import Keys, id_keys, mix, text_codes

MOST_KNOWN = 100_000
"""The largest number of rows that are kept."""
MOST_COUNTED = 20_000
"""The largest number of rows kept below the look-back, by which late rows are recognised."""
MOST_UNUSABLE = 10_000
"""Rows without a usable value that are counted."""
TIED = 1_000
"""Rows that stand for all before them, where too many have one value."""
AHEAD = 86_400 * 10**6
_ROW = np.dtype([("id", "<u8"), ("rank", "<f8")])

Row = tuple[int, float]


class LateRows(NamedTuple):
    """The numbers of rows that came late, and of rows beside them that had been read."""

    late: int
    known: int


class Progress:
    """The reading progress of a table.

    Parameters
    ----------
    cursor, identity : str
        Names of the rising column and of the id, for messages.
    overlap : float
        `overlap_seconds`.
    saved : mapping of str to value
        What `saved` returned, also that of an older version; empty for a table of which nothing was read.

    Attributes
    ----------
    place : int
        Number of rows handed out.
    high : number, date, datetime, str or None
        The greatest value read.
    tied : number, date, datetime, str or None
        The value of which too many rows were read to be kept.
    passed : object
        The id of the last row read of those with the value `tied`; None where it is not known since a
        restart. It is never saved: ids rest in no position.
    """

    def __init__(self, cursor: str, identity: str, overlap: float, saved: Mapping[str, Any]) -> None:
        self._cursor, self._identity, self._overlap = cursor, identity, overlap
        self.place: int = saved.get("place", 0)
        self.high = restored(saved.get("high"))
        self._top = -math.inf if self.high is None else rank(self.high) or 0.0
        self.tied = restored((saved.get("tied") or [None])[0])
        self.passed: Any = None
        self.start: float = saved.get("start", -math.inf)
        self._salt = np.uint64(int(saved["salt"]) if "salt" in saved else secrets.randbits(64))
        self._rows = _rows(saved.get("rows", b""))
        self._unusable = _rows(saved.get("unusable", b""))
        self._newest = _newest(self._rows)
        self._former = _Former.from_saved(saved)
        if "salt" not in saved and self.high is not None:
            self._begin_from_former(restored_point(saved.get("floor")))

    def saved(self) -> dict[str, Any]:
        """Return the state as a store can hold it."""
        return {
            "place": self.place,
            "high": stored(self.high),
            "start": self.start,
            "tied": None if self.tied is None else [stored(self.tied)],
            "overlap": self._overlap,
            "salt": str(self._salt),
            "rows": _bytes(self._rows),
            "unusable": _bytes(self._unusable),
            **({} if self._former is None else self._former.saved),
        }

    def keys(self, identities: Sequence[object]) -> list[int]:
        """Return the `id_keys` of ids, salted with a number of this position's own."""
        return self._salted(id_keys([_text(each) for each in identities]))

    def look_back(self) -> tuple[Any, float]:
        """Return the value where a look begins (None: the beginning of the table), and its rank."""
        if self.high is None:
            return None, -math.inf
        low = low_rank(self.high, self._overlap)
        if self.tied is not None and (rank(self.tied) or 0.0) < low:
            self.start, self.tied = max(self.start, rank(self.tied) or 0.0), None
        if self.start >= low:
            return at_most(self.high, self.start), self.start
        return below(self.high, self._overlap), low

    def is_unread(self, key: int, value: Any, identity: object, low: float) -> tuple[bool, str | None]:
        """Add a row of a look, and return whether it is new and what is wrong with it.

        Parameters
        ----------
        key : int
            See `keys`.
        value, identity : object
            Its value of the rising column, and its id.
        low : float
            Where the look began.
        """
        at, wrong = self._judged(value)
        if at is None or wrong is not None:
            return self._is_unread_unusable(key, value, identity), wrong
        if at < low or at <= self.start or (key, at) in self._rows:
            return False, None
        fell = at < self._newest.get(key, at) and identity is not None
        self._add(key, at)
        if at > self._top:
            self.high, self._top = value, at
        if self._former is not None and self._former.has(identity, at):
            return False, None
        if identity is None:
            return True, f"{self._identity}: NULL; give each row an id"
        if fell:
            wrong = f"{self._cursor}: it falls: this id was read with a greater value; let the column rise"
        return True, wrong

    def trim(self, identity: object, value: object) -> bool:
        """Drop the lowest rows where they are too many, after a row with this id and value.

        Returns
        -------
        bool
            Whether the look-back begins later from now on.
        """
        if self.high is None:
            return False
        if self.tied is not None and rank(value) == rank(self.tied):
            self.passed = identity
        low = low_rank(self.high, self._overlap)
        was_later = self.start >= low
        if len(self._rows) > MOST_COUNTED:
            counted = [at for _, at in self._rows if at < low]
            if len(counted) > MOST_COUNTED * 5 // 4:  # not a few at each time, as it takes a pass over all
                self._keep_highest(counted, MOST_COUNTED)
        if len(self._rows) <= MOST_KNOWN:
            return False
        kept = self._keep_highest([at for _, at in self._rows], MOST_KNOWN * 9 // 10)
        if not kept:
            self._tie(value, identity)
        return self.start >= low and not was_later

    def late_range(self) -> tuple[Any, Any] | None:
        """Return the values between which each row of the table was read, unless it came late."""
        _, low = self.look_back()
        end = None if self.high is None else below(self.high, self._overlap)
        if end is None or self.start >= low:
            return None
        return None if self.start == -math.inf else at_most(self.high, self.start), end

    def count_late(self, batches: Iterable[Sequence[tuple[Any, object]]]) -> LateRows:
        """Count the rows within `late_range` that came late, each once.

        Parameters
        ----------
        batches : iterable of sequence of (value, id)
        """
        low, known, count = self.look_back()[1], 0, 0
        late: dict[Row, None] = {}
        for batch in batches:
            keys = self.keys([identity for _, identity in batch])
            ranks = [rank(value) for value, _ in batch]
            for key, at, (value, identity) in zip(keys, ranks, batch, strict=True):
                if at is None:
                    count += self._is_unread_unusable(key, value, identity)
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
            self.begin_again()
        for key, at in late:
            self._add(key, at)
        return LateRows(count, known)

    def end_look(self) -> None:
        """Drop what an older version knew: a whole look has found it again."""
        self._former = None

    @property
    def oldest_kept(self) -> Any:
        """Return a value with no kept row below it; None if every row that was read is kept."""
        return None if not self._rows or self.start == -math.inf else at_most(self.high, self.start)

    def begin_again(self) -> None:
        """Drop all rows below the look-back."""
        low = self.look_back()[1]
        self._drop_below(low)
        self.start = max(self.start, math.nextafter(low, -math.inf))

    def keep_none(self) -> None:
        """Drop all rows, as the table has none of them any more."""
        self._drop_below(math.inf)
        self.start = max(self.start, math.nextafter(self.look_back()[1], -math.inf))

    def knows_last_of_tied(self, rows: Iterable[tuple[int, object]]) -> bool:
        """Find the last row read with the value `tied`, among keys and ids in the order of the ids."""
        at = rank(self.tied)
        for key, identity in rows:
            if (key, at) in self._rows:
                self.passed = identity
        return self.passed is not None

    def leave_tied(self) -> None:
        """Continue behind the rows with the value `tied`."""
        self.start, self.tied = rank(self.tied) or 0.0, None

    @property
    def unusable_is_full(self) -> bool:
        """Return whether the limit of counted rows without a usable value is reached."""
        return len(self._unusable) >= MOST_UNUSABLE

    def forget(self, keys: Keys) -> bool:
        """Drop the rows with these `id_keys`, and return whether there were any.

        A row that is in the table still is read again, or, below the look-back, not counted as late.
        """
        gone, low = set(self._salted(keys)), self.look_back()[1]
        dropped = [row for row in self._rows if row[0] in gone]
        hidden = [row for row in self._unusable if row[0] in gone]
        if any(at < low for _, at in dropped):
            self.begin_again()
        for row in dropped:
            self._rows.pop(row, None)
        for row in hidden:
            del self._unusable[row]
        self._newest = _newest(self._rows)
        return bool(dropped or hidden)

    def _salted(self, keys: Keys) -> list[int]:
        salted: list[int] = mix(keys ^ self._salt).tolist()
        return salted

    def _add(self, key: int, at: float) -> None:
        self._rows[key, at] = None
        self._newest[key] = max(at, self._newest.get(key, at))

    def _judged(self, value: Any) -> tuple[float | None, str | None]:
        if value is None:
            said = "NULL; give each row a value, or leave such rows out by a query"
            return None, f"{self._cursor}: {said}"
        at = rank(value)
        if at is None:
            return None, f"{self._cursor}: expected a time or a number, got {type(value).__name__}"
        if isinstance(value, date | str) and at > (rank(datetime.now(UTC)) or 0.0) + AHEAD:
            said = "more than a day ahead of this machine's clock; correct the clock that set it"
            return at, f"{self._cursor}: {said}"
        return at, None

    def _is_unread_unusable(self, key: int, value: object, identity: object) -> bool:
        row = key, float(text_codes(["" if value is None else _text(value)])[0])
        is_new = row not in self._unusable and not self.unusable_is_full
        if is_new:
            self._unusable[row] = None
            is_new = self._former is None or not self._former.has_unusable(identity, value)
        return is_new

    def _keep_highest(self, ranks: list[float], most: int) -> int:
        """Keep the highest of these ranks, whole values only, and return how many rows are left."""
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
        self._rows = {row: None for row in self._rows if row[1] >= low}
        self._newest = _newest(self._rows)

    def _tie(self, value: object, identity: object) -> None:
        """Keep the last rows read, as all rows have one value."""
        top = max(at for _, at in self._rows)
        tied = next((each for each in (value, self.high) if rank(each) == top), None)
        last = [row for row in self._rows if row[1] == top][-TIED:] if tied is not None else []
        self._rows = dict.fromkeys(last)
        self._newest = _newest(self._rows)
        self.start, self.tied = top if tied is None else math.nextafter(top, -math.inf), tied
        self.passed = identity if rank(value) == top else None

    def _begin_from_former(self, floor: tuple[Any, Any] | None) -> None:
        """Continue from an older version's position, which does not tell rows below the look-back apart."""
        self.start = math.nextafter(low_rank(self.high, self._overlap), -math.inf)
        if floor is not None and (at := rank(floor[0])) is not None and at > self.start:
            self.start, self.tied, self.passed = math.nextafter(at, -math.inf), *floor
            self._add(self.keys([self.passed])[0], at)


class _Former:
    """Rows in the position of an older version, whose digests had no salt."""

    def __init__(self, known: bytes, without: bytes) -> None:
        self.saved = {"known": known, "without": without}
        self._known = set(_rows(known))
        self._without = set(np.frombuffer(without, dtype="<u8").tolist())

    @classmethod
    def from_saved(cls, saved: Mapping[str, Any]) -> _Former | None:
        return cls(saved["known"], saved.get("without", b"")) if "known" in saved else None

    def has(self, identity: object, at: float) -> bool:
        return (self._digest(identity), at) in self._known

    def has_unusable(self, identity: object, value: object) -> bool:
        if value is None:
            return self._digest(identity) in self._without
        return (self._digest((identity, value)), math.inf) in self._known

    @staticmethod
    def _digest(value: object) -> int:
        hashed = blake2b(repr(value).encode("utf-8", "replace"), digest_size=8).digest()
        return int.from_bytes(hashed, "little")


def restored_point(saved: Sequence[Any] | None) -> tuple[Any, Any] | None:
    """Return a value and an id, as an older version saved them."""
    return None if saved is None else (restored(saved[0]), restored(saved[1]))


def _rows(saved: bytes) -> dict[Row, None]:
    table = np.frombuffer(saved, dtype=_ROW)
    return dict.fromkeys(zip(table["id"].tolist(), table["rank"].tolist(), strict=True))


def _bytes(rows: Mapping[Row, None]) -> bytes:
    table = np.empty(len(rows), dtype=_ROW)
    table["id"] = np.fromiter((key for key, _ in rows), dtype=np.uint64, count=len(rows))
    table["rank"] = np.fromiter((at for _, at in rows), dtype=np.float64, count=len(rows))
    return table.tobytes()


def _newest(rows: Iterable[Row]) -> dict[int, float]:
    newest: dict[int, float] = {}
    for key, at in rows:
        newest[key] = max(at, newest.get(key, at))
    return newest


def _text(value: object) -> str:
    """Return an id as a record has it."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "surrogateescape")
    is_whole = isinstance(value, float | Decimal) and math.isfinite(value) and value == int(value)
    return str(int(value) if is_whole else value)  # type: ignore[call-overload]
