"""One record as it stands on the wire, typed, before it becomes a row of columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from types import NoneType
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

if TYPE_CHECKING:
    from monitor.base.records import Ints, Reject, RejectReason

Scores = list[float] | dict[str, float] | float
"""In class order, by class, or the probability of the second of two classes.

A mapping that gives each class a path makes tuples of it, which are read as lists are.
"""

RAW_BYTES = 2_000
"""So much of a rejected record is kept."""

MAX_LINE_BYTES = 1 << 20
"""A longer line is no record of ours, and holding it would cost memory without bound."""

MAX_ID = 512
"""Characters of an id, and of the name of a round of draws."""

MAX_NAME = 200
"""Characters of the name of a model, a version or a group's value, which stand in every sample of theirs."""


class Record(msgspec.Struct, gc=False):
    """Every field of SPEC section 3, each optional: what is missing is judged later, by column.

    Fields that are not listed are passed over. No reference cycle can go through a record, so the
    garbage collector need not look at it (`gc=False`), which speeds decoding.
    """

    id: str | int | None = None
    time: str | float | None = None
    task: str | None = None
    model: str | None = None
    scores: Scores | None = None
    models: dict[str, Scores] | None = None
    confidence: float | None = None
    prediction: str | int | float | bool | None = None
    version: str | int | float | None = None
    groups: dict[str, Any] | None = None
    # What is wrong with a label costs the label, not its answer: `true_classes` looks at its type.
    label: Any = None
    correct: Any = None
    probability: Any = None
    draw: Any = None  # looked at in labels; beside an answer it is no field
    features: Any = None  # looked at where the task has features; elsewhere it is no field
    # Of an arena's records. Their types are looked at where there is one: elsewhere they are no fields.
    model_a: Any = None
    model_b: Any = None
    winner: Any = None
    judge_winner: Any = None
    judge_b: Any = None


class RowRecord(Record, gc=False):
    """One row of a request: its id is the request's, a colon and the row's number from 0."""

    rows: int = 0  # that the request had


class OneOfRows(Record, gc=False):
    """A record of which a mapping reads one row, and leaves others."""

    left: int = 0  # rows beside it


@lru_cache(maxsize=64)  # senders choose what they leave out; each shape is a type of its own
def record_without(absent: frozenset[str], scored: bool = False) -> type[Record]:
    """`Record` that takes no value for these fields: which records have none is known without a look.

    With `scored` it has scores, or is none.

    Examples
    --------
    >>> plain = record_without(frozenset(Record.__struct_fields__) - {"id", "scores"})
    >>> msgspec.json.decode(b'{"id": "a", "scores": [0.25, 0.75], "label": null, "more": 1}', type=plain).id
    'a'
    >>> msgspec.json.decode(b'{"id": "a", "label": "toxic"}', type=plain)
    Traceback (most recent call last):
        ...
    msgspec.ValidationError: Expected `null`, got `str` - at `$.label`
    """
    fields: list[Any] = [(name, None, None) for name in Record.__struct_fields__ if name in absent]
    fields += [("scores", Scores)] if scored else []
    made: Any = msgspec.defstruct("Record", fields, bases=(Record,), gc=False, kw_only=True)
    found: type[Record] = made
    return found


@lru_cache(maxsize=64)
def without(kind: type[Record]) -> frozenset[str]:
    """The fields that records of this type never have.

    Examples
    --------
    >>> len(without(Record)), without(record_without(frozenset({"label"})))
    (0, frozenset({'label'}))
    """
    return frozenset(field.name for field in msgspec.structs.fields(kind) if field.type in (None, NoneType))


ARENA_FIELDS = ("model_a", "model_b", "winner", "judge_winner", "judge_b")
"""Fields of `Record` that only comparisons have."""


Fault = tuple["RejectReason", str]
"""Why something is not used: the reason, and the sentence that says where and what."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What one raw block, list of messages or table holds.

    Parameters
    ----------
    records : list of Record
        n of them, in order.
    positions : (n,) int64
        Where each stands in its partition.
    raw : callable
        From a record's number to the bytes it was read from; called for rejected records only.
    rejects : list of (int, Reject)
        What could not be read at all, each with the number of records read before it.
    ignored : int
        Events among them that hold no record, as they may.
    """

    records: list[Record]
    positions: Ints
    raw: Callable[[int], bytes]
    rejects: list[tuple[int, Reject]]
    ignored: int = 0


REJECTS_BYTES = 16 << 20
"""About so many bytes of rejects are kept of one read: 30,000 short records."""

_REJECT_BYTES = 300  # what one takes beside its record and its message

RejectKind = tuple["RejectReason", str, str, bool, bool]
"""Rejects that can be counted together: reason, partition, task, whether it is an answer, `Reject.along`."""


class BoundedRejects:
    """Rejects of one read with their places: each alone up to a bound in bytes, then one of each kind.

    Parameters
    ----------
    room : int
        Bytes.

    Examples
    --------
    >>> from monitor.base.records import Reject, RejectReason
    >>> some, kind = BoundedRejects(room=700), (RejectReason.MALFORMED, "p", "", True, False)
    >>> for number in range(5):
    ...     some.add(number, kind, 1, lambda: Reject(RejectReason.MALFORMED, "no JSON", b"x", "p", number))
    >>> [(place, each.position, each.records, each.answers) for place, each in some.items()]
    [(0, 0, 1, 1), (1, 1, 1, 1), (2, 2, 3, 3)]
    """

    __slots__ = ("_alone", "_counts", "_room")

    def __init__(self, room: int = REJECTS_BYTES) -> None:
        self._room = room
        self._alone: list[tuple[Any, Reject]] = []
        # Of each kind for which there was no room: the index of its first, records, answers.
        self._counts: dict[RejectKind, list[int]] = {}

    def add(
        self, place: Any, kind: RejectKind, answers: int, make: Callable[[], Reject], records: int = 1
    ) -> None:
        """Add a reject; it is made only if it is kept."""
        if (counts := self._counts.get(kind)) is not None:
            counts[1] += records
            counts[2] += answers
            return
        reject = make()
        self._room -= _REJECT_BYTES + len(reject.raw) + len(reject.message)
        if self._room < 0:
            self._counts[kind] = [len(self._alone), records, answers]
        self._alone.append((place, reject))

    def items(self) -> list[tuple[Any, Reject]]:
        """Return them with their places, in the order in which they were added."""
        found = self._alone.copy()
        for index, records, answers in self._counts.values():
            place, reject = found[index]
            found[index] = (place, replace(reject, records=records, answers=answers))
        return found


class Faults:
    """What is wrong with which rows of a column; the first finding of a row stands.

    Parameters
    ----------
    size : int
        Rows.
    """

    __slots__ = ("_last", "found", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.found: dict[int, Fault] = {}
        self._last: Fault | None = None

    def add(self, row: int, reason: RejectReason, message: str) -> None:
        """Note a fault of a row that has none yet."""
        fault = (reason, message)
        if fault == self._last:  # rows of a flood have one fault in common
            fault = self._last
        self._last = fault
        self.found.setdefault(int(row), fault)

    def good(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """(size,) bool, False where something is wrong."""
        good = np.ones(self.size, dtype=bool)
        good[list(self.found)] = False
        return good
