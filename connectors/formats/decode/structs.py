"""The records, faults and rejects that the decoders exchange, before values go into columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from types import NoneType
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from monitor.base.registry import TASK_KINDS

if TYPE_CHECKING:
    from monitor.base.records import Ints, Reject, RejectReason

Scores = list[float] | dict[str, float] | float
"""Scores in class order, scores by class name, or the probability of the second of two classes.

If the mapping of the source has a path for each class, the scores are a tuple in class order.
"""

RAW_BYTES = 2_000
"""The largest part of a rejected record that is kept, in bytes."""

MAX_LINE_BYTES = 1 << 20
"""The default limit of a record in bytes: without a limit one line could fill the memory."""

MAX_ID = 512
"""The largest number of characters of an id and of the name of a round of draws."""

MAX_NAME = 200
"""The largest number of characters of a model, a version or the value of a group, which metrics repeat."""


class Record(msgspec.Struct, gc=False):
    """The typed fields of a record in Blindsight's format. Every field may be missing.

    The decoder skips fields with other names. Missing fields are reported later, when records become columns.
    A record cannot be part of a reference cycle, so the garbage collector does not track it (`gc=False`).
    This speeds up decoding.
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
    # Any type: a wrong label costs the label, not its answer, and `true_classes` checks it.
    label: Any = None
    correct: Any = None
    probability: Any = None
    draw: Any = None  # checked in labels, ignored in answers
    features: Any = None  # checked if the task has features, else ignored
    # Fields of predicted numbers, checked if a task has such records, else ignored.
    sigma: Any = None
    quantiles: Any = None
    # Fields of comparisons, checked if a task has such records, else ignored.
    model_a: Any = None
    model_b: Any = None
    winner: Any = None
    judge_winner: Any = None
    judge_b: Any = None


class RowRecord(Record, gc=False):
    """A record that is one row of a request with several rows.

    The id of the record is the request's id, a colon, and the row number, which starts at 0. `rows` is the
    number of rows of the request.
    """

    rows: int = 0  # number of rows in the request


class OneOfRows(Record, gc=False):
    """A record that was read from one row of a message with several rows.

    This happens if a path of the mapping has the index of a row, as in ``$.rows[0].score``. `left` is the
    number of the other rows, which are not read. The agent logs a warning about them.
    """

    left: int = 0  # number of the other rows


@lru_cache(maxsize=64)  # bounded: senders choose the fields, and each set of fields is a type
def record_without(absent: frozenset[str], scored: bool = False) -> type[Record]:
    """Return a subtype of `Record` in which a value in one of the fields `absent` is an error.

    Code that makes columns of such records need not check these fields. With `scored`, the scores are
    required.

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
    kind: type[Record] = made
    return kind


@lru_cache(maxsize=64)
def without(kind: type[Record]) -> frozenset[str]:
    """Return the names of the fields that a record of this type, made by `record_without`, cannot have.

    Examples
    --------
    >>> len(without(Record)), without(record_without(frozenset({"label"})))
    (0, frozenset({'label'}))
    """
    return frozenset(field.name for field in msgspec.structs.fields(kind) if field.type in (None, NoneType))


KIND_FIELDS = tuple(name for kind in TASK_KINDS.values() for name in kind.fields)
"""The fields of `Record` that only records of one kind of task have."""


Fault = tuple["RejectReason", str]
"""The reason why a value is not used, and a message that names its place and the problem."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The records and unreadable parts of one raw input: a block, a list of messages, or a table.

    Parameters
    ----------
    records : list of Record
        The n records in order.
    positions : (n,) int64
        The position of each record in its partition.
    raw : callable
        A function from the index of a record to its bytes. It is called only for rejected records.
    rejects : list of (int, Reject)
        The unreadable parts, each with the number of records before it.
    ignored : int
        The number of valid events that hold no record.
    """

    records: list[Record]
    positions: Ints
    raw: Callable[[int], bytes]
    rejects: list[tuple[int, Reject]]
    ignored: int = 0


REJECTS_BYTES = 16 << 20
"""The approximate limit of the kept rejects of one read in bytes, about 30,000 short records."""

_REJECT_BYTES = 300  # memory of a reject beside its record and message

RejectKind = tuple["RejectReason", str, str, bool, bool]
"""The key by which rejects are counted.

The key consists of the reason, the partition, the task, whether the reject is an answer, and `Reject.along`.
"""


class BoundedRejects:
    """The rejects of one chunk, within a memory limit. A reject is a record that cannot be used.

    All rejects are kept until their size exceeds `room` bytes. After that, only the first reject of each kind
    is kept, and its counts include the later rejects of this kind.

    Parameters
    ----------
    room : int
        The limit in bytes.

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
        # For each kind beyond the room: the index of its first reject, and numbers of records and answers.
        self._counts: dict[RejectKind, list[int]] = {}

    def add(
        self, place: Any, kind: RejectKind, answers: int, make: Callable[[], Reject], records: int = 1
    ) -> None:
        """Add a reject.

        Parameters
        ----------
        place : object
            The place of the reject, which `items` returns with the reject.
        kind : RejectKind
            The key by which rejects beyond the limit are counted.
        answers : int
            The number of answers that the reject counts as.
        make : callable
            A function that returns the reject. It is called only if the reject is kept.
        records : int
            The number of records that the reject counts as.
        """
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
        """Return each reject with the `place` that was passed to `add`, in the order of the calls."""
        rejects = self._alone.copy()
        for index, records, answers in self._counts.values():
            place, reject = rejects[index]
            rejects[index] = (place, replace(reject, records=records, answers=answers))
        return rejects


class Faults:
    """The faults of the values in a column; each row keeps its first fault.

    Parameters
    ----------
    size : int
        Number of rows.

    Attributes
    ----------
    by_row : dict of int to Fault
        The fault of each faulty row, in the order of `add`.
    """

    __slots__ = ("_last", "by_row", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.by_row: dict[int, Fault] = {}
        self._last: Fault | None = None

    def add(self, row: int, reason: RejectReason, message: str) -> None:
        """Add a fault to a row, unless the row has one already.

        Parameters
        ----------
        row : int
        reason : RejectReason
        message : str
            The place of the value and the problem.
        """
        fault = (reason, message)
        if fault == self._last:  # many rows with the same fault share one object
            fault = self._last
        self._last = fault
        self.by_row.setdefault(int(row), fault)

    def good(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Return a (size,) mask that is False for the rows with a fault."""
        good = np.ones(self.size, dtype=bool)
        good[list(self.by_row)] = False
        return good
