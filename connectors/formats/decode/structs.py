"""One record as it stands on the wire, typed, before it becomes a row of columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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


class Faults:
    """What is wrong with which rows of a column; the first finding of a row stands.

    Parameters
    ----------
    size : int
        Rows.
    """

    __slots__ = ("found", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.found: dict[int, Fault] = {}

    def add(self, row: int, reason: RejectReason, message: str) -> None:
        """Note a fault of a row that has none yet."""
        self.found.setdefault(int(row), (reason, message))

    def good(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """(size,) bool, False where something is wrong."""
        good = np.ones(self.size, dtype=bool)
        good[list(self.found)] = False
        return good
