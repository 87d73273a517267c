"""The columns of a chunk's records, the places of the records, and the list of rejects.

The place of a record is its position in the source and its index in the chunk. A reject is a record, or a
part of a record, that cannot be used.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np

from connectors.formats.decode.structs import (
    KIND_FIELDS,
    BoundedRejects,
    Fault,
    Faults,
    Record,
    RowRecord,
    without,
)
from connectors.formats.messages.explain import is_unicode
from monitor.base.records import Floats, Ints, Keys, Reject
from monitor.base.registry import TASK_KINDS

T = TypeVar("T")
Bools = np.ndarray[Any, np.dtype[np.bool_]]


_FIELDS = frozenset(Record.__struct_fields__)


class Columns:
    """The fields of n records, each as a list with one value for each record.

    Parameters
    ----------
    records : list of Record
    ignored : collection of str
        The fields whose values are ignored, as if they were missing.
    reads_labels : bool
        Whether a record may be a label without an answer.
    sent_as_labels : (n,) bool, optional
        True for a record that was sent as a label, for example to `/v1/labels`. If such a record holds no
        answer, it counts as a label, even if required fields are missing.
    no_label : collection of str
        The texts that mean a missing label, in lower case.
    """

    __slots__ = (*Record.__struct_fields__, "is_label", "reads_labels", "rows", "size", "weight")

    sigma: list[Any]
    quantiles: list[Any]
    model_a: list[Any]
    model_b: list[Any]
    winner: list[Any]
    judge_winner: list[Any]
    judge_b: list[Any]

    def __init__(
        self,
        records: list[Record],
        ignored: Collection[str] = KIND_FIELDS,
        reads_labels: bool = True,
        sent_as_labels: Bools | None = None,
        no_label: Collection[str] = (),
    ) -> None:
        kinds = set(map(type, records))
        lacking = frozenset.intersection(*map(without, kinds)) if records else _FIELDS
        lacking = lacking.union(ignored)
        none: list[Any] = [None] * len(records)
        # A comprehension for each field: turning rows into tuples and zipping them takes four times as long.
        self.id = none if "id" in lacking else [r.id for r in records]
        self.time = none if "time" in lacking else [r.time for r in records]
        self.task = none if "task" in lacking else [r.task for r in records]
        self.model = none if "model" in lacking else [r.model for r in records]
        self.scores = none if "scores" in lacking else [r.scores for r in records]
        self.models = none if "models" in lacking else [r.models for r in records]
        self.confidence = none if "confidence" in lacking else [r.confidence for r in records]
        self.prediction = none if "prediction" in lacking else [r.prediction for r in records]
        self.version = none if "version" in lacking else [r.version for r in records]
        self.groups = none if "groups" in lacking else [r.groups for r in records]
        self.label = none if "label" in lacking else cleaned([r.label for r in records], no_label)
        self.correct = none if "correct" in lacking else cleaned([r.correct for r in records], no_label)
        self.probability = none if "probability" in lacking else [r.probability for r in records]
        self.draw = none if "draw" in lacking else [r.draw for r in records]
        self.features = none if "features" in lacking else [r.features for r in records]
        for name in KIND_FIELDS:
            setattr(self, name, none if name in lacking else [getattr(r, name) for r in records])
        # The number of rows in the request of each row; None if no record is a row of a request.
        self.rows = [getattr(r, "rows", 0) for r in records] if RowRecord in kinds else None
        self.size = len(records)
        self.reads_labels = reads_labels
        self.is_label = self._labels(sent_as_labels)
        self.weight = self._weights()

    @property
    def kinds(self) -> list[str]:
        """The kind of task that the fields of each record indicate; ``""`` if the fields indicate no kind."""
        kinds = [""] * self.size
        for tag, entry in TASK_KINDS.items():
            for column in (getattr(self, name) for name in entry.marks):
                if not absent(column):
                    kinds = [
                        kind if value is None else tag for kind, value in zip(kinds, column, strict=True)
                    ]
        return kinds

    @property
    def numbers(self) -> list[bool]:
        """For each record, True if it has predicted numbers and no field of classes."""
        if absent(self.prediction) and absent(self.models):
            return []
        classes = zip(self.scores, self.confidence, strict=True)
        predicted = zip(self.prediction, self.models, classes, strict=True)
        return [
            of_classes == (None, None)
            and all(map(_is_number, [prediction] if models is None else models.values()))
            for prediction, models, of_classes in predicted
        ]

    def take_predictions_as_answers(self, rows: Bools) -> None:
        """Treat the records in a mask that have a prediction as answers, even if they also have a label.

        Call this method for the records of tasks whose models predict numbers: there, the prediction is the
        answer. In other tasks a record with a prediction and a label, but without scores, is a label.

        Parameters
        ----------
        rows : (n,) bool
            The mask: True for the records of such tasks.
        """
        own = rows & self.is_label
        own[own] = [self.prediction[i] is not None for i in np.flatnonzero(own).tolist()]
        self.is_label[own], self.weight[own] = False, 1

    def _labels(self, sent: Bools | None) -> Bools:
        """Return a (size,) mask of the records that are labels and no answers."""
        is_label = np.zeros(self.size, dtype=bool) if sent is None else sent.copy()
        for column in (self.label, self.correct, self.winner):
            if not absent(column):
                is_label[[i for i, value in enumerate(column) if value is not None]] = True
        for i in np.flatnonzero(is_label).tolist():
            is_label[i] = (
                self.scores[i] is None
                and self.models[i] is None
                and self.confidence[i] is None
                and self.model_a[i] is None
                and self.model_b[i] is None
                # Without an id it is an answer that lacks scores.
                and (self.id[i] is not None or self.model[i] is None or (sent is not None and sent[i]))
            )
        return is_label

    def _weights(self) -> Ints:
        """Return the number of answers of each record, (size,) int64; 0 for a label."""
        weights = (~self.is_label).astype(np.int64)
        if not absent(self.models):
            for i, models in enumerate(self.models):
                if models is not None:
                    weights[i] = max(len(models), 1)
        return weights


def cleaned(labels: list[Any], no_label: Collection[str]) -> list[Any]:
    """Return the labels, with None for every value that means a missing label, such as NaN.

    Examples
    --------
    >>> cleaned(["toxic", "NULL", None, float("nan")], {"null"})
    ['toxic', None, None, None]
    """
    try:
        distinct = set(labels)
    except TypeError:  # an unhashable value is no label
        distinct = {label for label in labels if isinstance(label, str | float)}
    none = {each for each in distinct if isinstance(each, str) and each.strip().lower() in no_label}
    if not none and not any(label != label for label in distinct):
        return labels
    return [
        None if (isinstance(label, str) and label in none) or label != label else label for label in labels
    ]


def _is_number(value: object) -> bool:
    """Return whether a value is a number, or the text of a number as in a CSV file."""
    try:
        float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return False
    return not isinstance(value, bool)


def absent(column: Sequence[Any]) -> bool:
    """Return whether no row of a column has a value."""
    return column.count(None) == len(column)


def picker(chosen: Ints, size: int) -> Callable[[Sequence[T]], Sequence[T]]:
    """Return a function that takes a column and returns its chosen rows.

    Parameters
    ----------
    chosen : (m,) int64
        The indices of the rows.
    size : int
        The number of rows of the columns.
    """
    if len(chosen) == size:
        return lambda column: column
    rows = chosen.tolist()
    if len(rows) < 2:  # itemgetter of one index would return the value alone
        return lambda column: [column[i] for i in rows]
    return itemgetter(*rows)  # a third of the time of a comprehension


@dataclass(frozen=True, slots=True)
class Places:
    """The place of each of n records: its time, key and position, which do not depend on the task.

    Parameters
    ----------
    time : float64
        Seconds since the epoch, NaN if absent.
    key : uint64
        The key of the id (`monitor.base.records.id_keys`).
    order : int64
        The index of the first row of the record among all rows of the chunk.
    partition, position : int64
    request : uint64, optional
    alone : bool, optional
        See `Batch`.
    """

    time: Floats
    key: Keys
    order: Ints
    partition: Ints
    position: Ints
    request: Keys | None = None
    alone: Bools | None = None


class RejectList:
    """The unusable records of a chunk, collected in any order and returned in the order of the records.

    Parameters
    ----------
    partitions : sequence of str
    places : Places
    raw : callable
        A function from the index of a record to its bytes.
    keep : callable
        A function that takes a reject with the whole record, and returns the reject with the part that may be
        kept.
    hint : callable, optional
        A function of a record's index, bytes, fault and task that returns a text to append to the message.
    """

    def __init__(
        self,
        partitions: Sequence[str],
        places: Places,
        raw: Callable[[int], bytes],
        keep: Callable[[Reject], Reject],
        hint: Callable[[int, bytes, Fault, str], str] | None = None,
    ) -> None:
        self._partitions, self._places, self._raw = partitions, places, raw
        self._keep, self._hint = keep, hint
        self._rejects = BoundedRejects()

    def unread(self, records_before: int, reject: Reject) -> None:
        """Add a reject for an unreadable part of the input.

        Parameters
        ----------
        records_before : int
            The number of records before the unreadable part.
        reject : Reject
        """
        kind = (reject.reason, reject.partition, reject.task, reject.answers > 0, reject.along)
        kept = partial(self._kept, reject)
        self._rejects.add((records_before, 0), kind, reject.answers, kept, reject.records)

    def add(self, record: int, fault: Fault, answers: int, task: str, along: bool = False) -> None:
        """Add a reject for a record, or for one answer or label of a record.

        Parameters
        ----------
        record : int
            The index of the record.
        fault : Fault
        answers : int
            The number of rejected answers; 0 for a label.
        task : str
            The task, or "" if it is unknown.
        along : bool
            True if only the label is rejected, while the answers of the record are used.
        """
        partition = self._partitions[int(self._places.partition[record])]

        def make() -> Reject:
            raw = self._raw(record)
            reason, message = fault
            if self._hint is not None:
                message += self._hint(record, raw, fault, task)
            position = int(self._places.position[record])
            return self._kept(Reject(reason, message, raw, partition, position, answers, task, along))

        self._rejects.add((record, 1), (fault[0], partition, task, answers > 0, along), answers, make)

    def add_all(self, faults: Faults, chosen: Ints, weight: Ints, task: Callable[[int], str]) -> None:
        """Add a reject for each fault of a record.

        Parameters
        ----------
        faults : Faults
        chosen : (m,) int64
            The record of each row of `faults`.
        weight : (n,) int64
            The number of answers of each record.
        task : callable
            A function from the index of a record to the name of its task.
        """
        for row, fault in faults.by_row.items():
            record = int(chosen[row])
            self.add(record, fault, int(weight[record]), task(record))

    def in_order(self) -> tuple[Reject, ...]:
        """Return the rejects in the order of the records.

        After the rejects have exceeded the memory limit, only the first further reject of each kind is kept.
        Its counts include the others of this kind.
        """
        return tuple(reject for _, reject in sorted(self._rejects.items(), key=lambda item: item[0]))

    def _kept(self, reject: Reject) -> Reject:
        return self._keep(_quotable(reject))


def _quotable(reject: Reject) -> Reject:
    """Replace lone surrogates in the message, which can be neither printed nor encoded as UTF-8."""
    if is_unicode(reject.message):
        return reject
    return replace(reject, message=reject.message.encode("utf-8", "replace").decode())
