"""Records as columns: the form in which a decoder passes them to the engine.

A `Chunk` contains the records of one read of one source: the rejected records, and for each task a `Batch` of
answers and a `LabelBatch` of labels. The column `order` contains the position of each row in the chunk. The
engine uses it to process a chunk as if the records had arrived one by one. So results do not depend on the
sizes of reads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Keys = NDArray[np.uint64]

DEFAULT_TASK = "classification"
"""The kind of a task whose section of the configuration, or line of a window, names none."""

FeatureKind = Literal["number", "text"]
"""The type of a feature's values."""

NO_ID = np.uint64(0)
"""The key of a record without an id. Such a record counts in windows, but no label can be joined to it."""

DRAW = np.dtype([("round", np.uint64), ("number", np.int64), ("pool", np.int64), ("probability", np.float64)])
"""The draw by which a row was sampled for labelling; the rows of a round are drawn without replacement.

The fields are the `id_keys` of the round's name; the number of the draw in the round (from 1; 0 for a label
without a draw); the number of rows before the first draw; and the probability with which the row was drawn
from the rows that were left.
"""

FIRST_MILLISECOND, LAST_MILLISECOND = -62_135_596_800_000, 253_402_300_799_999
"""The first millisecond of the year 1 and the last millisecond of the year 9999, since the epoch.

This is the range of times in RFC 3339.
"""


class RejectReason(StrEnum):
    """The reason why a record was not used. There are few, because each is a value of a Prometheus label."""

    MALFORMED = "malformed"
    ENCODING = "encoding"
    TOO_LARGE = "too_large"
    WRONG_TYPE = "wrong_type"
    NO_SCORES = "no_scores"
    WRONG_LENGTH = "wrong_length"
    NOT_A_NUMBER = "not_a_number"
    OUT_OF_RANGE = "out_of_range"
    LOGITS = "logits"
    WRONG_SUM = "wrong_sum"
    UNKNOWN_CLASS = "unknown_class"
    UNKNOWN_TASK = "unknown_task"
    NO_TASK = "no_task"
    NO_MODEL = "no_model"
    NO_LABEL = "no_label"
    NO_ID = "no_id"
    BAD_ID = "bad_id"
    TIME_UNIT = "time_unit"
    TIME_FORMAT = "time_format"
    BAD_TIME = "bad_time"


@dataclass(frozen=True, slots=True)
class Reject:
    """A record that was not used, or several such records with the same reason.

    Parameters
    ----------
    reason : RejectReason
    message : str
        The field and the problem, such as ``$.scores[1]: expected a number from 0 to 1, got 1.7``.
    raw : bytes
        The first 2,000 bytes of the record as received.
    partition : str
        The partition of the source, such as the path of a file or ``topic-3``.
    position : int
        The position in the partition, such as the byte offset in a file or the offset of a message.
    answers : int
        The number of rejected answers: 1 for an unreadable record, the number of models for a record with
        several models, 0 for a label.
    task : str
        The task; empty if it is not known.
    along : bool
        Whether only the label of the record was rejected, and its answers are used.
    records : int
        The number of rejected records. It is above 1 if a read had too many rejected records to keep each of
        them. The other fields then describe the first one.
    """

    reason: RejectReason
    message: str
    raw: bytes
    partition: str
    position: int
    answers: int = 1
    task: str = ""
    along: bool = False
    records: int = 1


@dataclass(frozen=True, slots=True)
class TaskLayout:
    """The settings of a task that a decoder needs to convert its records to columns.

    Parameters
    ----------
    name : str
    classes : tuple of str
        Classes in the order of the scores. Empty for a task whose models give only a confidence. The scores
        then have one column, and the labels are 0 (correct) and 1 (wrong).
    positive : int
        Index of the positive class of a task with two classes.
    models : tuple of str
        Models that the configuration maps to this task, for records that name no task.
    groups : tuple of str
        The keys of the record's `groups` whose values have separate windows.
    kind : str
        The kind of the task, a tag in `monitor.base.registry.TASK_KINDS`.
    long_names : frozenset of str
        Names of models, groups and versions that are longer than the limit but accepted, because the state of
        an older version contains them.
    numbered : bool
        Whether a source adds row numbers to the ids of requests. A label may then contain only the id of the
        request.
    features : tuple of (str, {"number", "text"})
        The keys of the record's `features` that the task uses, each with its type.
    numeric : bool
        Whether predictions and labels are numbers. The scores are then the spread that the model gives: a
        standard deviation, and a quantile for each of `quantiles`.
    quantiles : tuple of float
        The levels of the quantiles in the records, increasing.
    """

    name: str
    classes: tuple[str, ...]
    positive: int = 1
    models: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    kind: str = DEFAULT_TASK
    long_names: frozenset[str] = frozenset()
    numbered: bool = False
    features: tuple[tuple[str, FeatureKind], ...] = ()
    numeric: bool = False
    quantiles: tuple[float, ...] = ()

    @property
    def width(self) -> int:
        """The number of columns of the scores: one for each class, one for a confidence, or the spread's."""
        return max(len(self.classes), 1 + len(self.quantiles))

    @property
    def answer_field(self) -> str:
        """The field that makes a record an answer, as messages name it."""
        return "prediction" if self.numeric else "scores"


@dataclass(frozen=True, slots=True)
class Batch:
    """The n answers of one task in a chunk, in order of arrival.

    Parameters
    ----------
    task : str
    scores : (n, K) float64
        Uncalibrated class probabilities from the models, 0 to 1; each row sums to 1 within 1e-3.
        (n, 1) for a confidence. If predictions are numbers: the standard deviation, then the quantiles,
        NaN where the record has none; the task's engine makes confidences of them.
    predicted : (n,) int64
        Predicted class: the record's `prediction`, or the argmax of the scores if the record has none. 0 for
        a confidence.
    model, version : (n,) int64
        Indices into `models` and `versions`.
    models, versions : tuple of str
        A record without a version has the version ``""``.
    time : (n,) float64
        Seconds since the epoch, in the years 1 to 9999. NaN for a record without a time; the engine then uses
        the time of arrival.
    key : (n,) uint64
        Hash of the record's id by `id_keys`; `NO_ID` without an id.
    label : (n,) int64
        True class if the record contains a label, otherwise -1. If a record contains a label and answers of
        several models, only the first used answer has the label. The join by id gives the label to the other
        answers. If the record has no id, each of its answers has the label.
    groups : mapping of str to (tuple of str, (n,) int64)
        By group name: the values, and the index of each row's value; -1 if the row has no value.
    order : (n,) int64
        Position of the row among all answers and labels of the chunk, increasing.
    partition, position : (n,) int64
        Index into the chunk's `partitions`, and the position in that partition.
    probability : (n,) float64, optional
        Probability with which the row was sampled for labelling, above 0 and at most 1; NaN if it is unknown
        or there is no label. By default NaN in every row.
    other : (n,) int64
        Index of model b if the rows are comparisons of two models; by default -1 in every row. In a
        comparison, `model` is model a. `scores`, (n, 1), is the judge's probability that b wins, or NaN if
        there is no judgement. `label` is the human's verdict: 0 for a, 1 for a tie, 2 for b.
    request : (n,) uint64, optional
        Used only for requests with numbered rows. The id of such a row is the request's id, a colon and the
        row's number from 0. The first row of a request has the hash of the request's id by `id_keys`. All
        other rows have `NO_ID`.
    alone : (n,) bool, optional
        Whether the row's request had only one row.
    features : (n, F) float64, optional
        The features in the order of the layout: a number as received, a text as its code by `text_codes`, NaN
        for a missing value. F is 0 by default.
    numbers : (n, C) float64, optional
        If predictions are numbers: the predicted and the true number, NaN without a label. `label` is then 0
        where there is a true number. C is 0 by default.

    Examples
    --------
    >>> zeros = np.zeros(2, dtype=np.int64)
    >>> Batch("t", np.full((2, 1), 0.9), zeros, zeros, ("m",), zeros, ("",), np.zeros(2),
    ...       id_keys(["a", "b"]), zeros, {}, zeros, zeros, zeros).probability
    array([nan, nan])
    """

    task: str
    scores: Floats
    predicted: Ints
    model: Ints
    models: tuple[str, ...]
    version: Ints
    versions: tuple[str, ...]
    time: Floats
    key: Keys
    label: Ints
    groups: Mapping[str, tuple[tuple[str, ...], Ints]]
    order: Ints
    partition: Ints
    position: Ints
    probability: Floats = field(default_factory=lambda: np.zeros(0))
    other: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    request: Keys = field(default_factory=lambda: np.zeros(0, dtype=np.uint64))
    alone: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=bool))
    features: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    numbers: Floats = field(default_factory=lambda: np.zeros((0, 0)))

    def __post_init__(self) -> None:
        for name in ("features", "numbers"):
            if not len(getattr(self, name)) and len(self.time):
                object.__setattr__(self, name, no_features(len(self.time)))
        if not len(self.request):
            object.__setattr__(self, "request", np.full(len(self.time), NO_ID))
        if not len(self.alone):
            object.__setattr__(self, "alone", np.zeros(len(self.time), dtype=bool))
        if not len(self.probability):
            object.__setattr__(self, "probability", np.full(len(self.time), np.nan))
        if not len(self.other):
            object.__setattr__(self, "other", np.full(len(self.time), -1, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.time)

    @property
    def labels_are_general(self) -> bool:
        """True if a label is about the request, false if it says whether one model was right."""
        return bool(self.scores.shape[1] > 1 or self.numbers.shape[1] > 0)

    @property
    def certain(self) -> NDArray[np.bool_]:
        """A mask of the answers that are certain by `certain_rows`, (n,); no predicted number is certain."""
        numeric = self.numbers.shape[1] > 0  # the scores are the spreads that the model states
        return np.zeros(len(self), dtype=np.bool_) if numeric else certain_rows(self.scores)


@dataclass(frozen=True, slots=True)
class LabelBatch:
    """The n labels of one task in a chunk, in order of arrival.

    Parameters
    ----------
    task : str
    key : (n,) uint64
        Hash of the id by `id_keys`; never `NO_ID`.
    label : (n,) int64
        True class. In a task without classes, 0 is correct and 1 is wrong.
    model : (n,) int64
        Index into `models` of the labelled model; -1 if the label is for all models.
    models : tuple of str
        Each name once.
    time : (n,) float64
        Seconds since the epoch, in the years 1 to 9999. NaN for a record without a time; the engine then uses
        the time of arrival.
    probability : (n,) float64
        Probability with which the row was sampled for labelling, above 0 and at most 1; NaN if not known.
    order : (n,) int64
        Position of the label among all answers and labels of the chunk, increasing.
    draw : (n,) DRAW, optional
        The draw that sampled each row for labelling. By default, no row was sampled by draws.
    first_row : (n,) uint64, optional
        Hash by `id_keys` of the id of the first row of a request, if the label's id is the id of a request.
        `NO_ID` if no source numbers rows.
    numbers : (n, C) float64, optional
        The true number, if predictions are numbers; `label` is then 0. C is 0 by default.
    """

    task: str
    key: Keys
    label: Ints
    model: Ints
    models: tuple[str, ...]
    time: Floats
    probability: Floats
    order: Ints
    draw: NDArray[np.void] = field(default_factory=lambda: np.zeros(0, dtype=DRAW))
    first_row: Keys = field(default_factory=lambda: np.zeros(0, dtype=np.uint64))
    numbers: Floats = field(default_factory=lambda: np.zeros((0, 0)))

    def __post_init__(self) -> None:
        if not len(self.numbers) and len(self.time):
            object.__setattr__(self, "numbers", no_features(len(self.time)))
        if not len(self.first_row):
            object.__setattr__(self, "first_row", np.full(len(self.time), NO_ID))
        if not len(self.draw):
            object.__setattr__(self, "draw", np.zeros(len(self.time), dtype=DRAW))

    def __len__(self) -> int:
        return len(self.time)


@dataclass(frozen=True, slots=True)
class Within:
    """The positions of a chunk's records in the whole stream, if the chunk is a part of a divided stream.

    Other workers process the other records of the stream.

    Parameters
    ----------
    sequence : (n,) int64
        The position of each answer and label in the whole stream, increasing. The column `order` of the chunk
        contains indices into this array.
    clock : (n,) float64
        The clock of the whole stream at each of these positions, in seconds since the epoch, nondecreasing.
        See `monitor.engine.clock.EventClock`.
    """

    sequence: Ints
    clock: Floats

    def __getitem__(self, rows: slice) -> Within:
        return Within(self.sequence[rows], self.clock[rows])


class SampleIds(NamedTuple):
    """The ids of one answer and of one label of a chunk, for messages.

    An id is ``""`` if the record has none. It is None if the chunk has no answer or no label.
    """

    answer: str | None = None
    label: str | None = None

    def or_else(self, other: SampleIds) -> SampleIds:
        """Return a copy in which the ids of `other` replace ids that are None."""
        return SampleIds(
            *(theirs if ours is None else ours for ours, theirs in zip(self, other, strict=True))
        )


@dataclass(frozen=True, slots=True)
class Chunk:
    """The decoded records of one read of one source.

    Parameters
    ----------
    source : str
        The source's name, which is a Prometheus label.
    batches, labels : tuple
        For each task, at most one batch of answers and one batch of labels.
    rejects : tuple of Reject
    partitions : tuple of str
        The partitions; the `partition` columns of the batches are indices into this tuple.
    positions : mapping of str to object
        For each partition, the position at which reading continues after this chunk. Only the source
        interprets positions.
    answers : int
        Number of answers received: the rows of the batches, and the `answers` of the rejects.
    labels_received : int
        Number of records received that contain only a label, including rejected ones. Labels in records with
        answers (`Batch.label`, `Reject.along`) are not counted.
    after_others : tuple of str
        Partitions in which another agent has used records since the previous chunk of this agent.
    within : Within, optional
        The positions of the records in the whole stream, if the chunk is a part of a divided stream. By
        default, the chunk follows the previous chunk.
    ignored : int
        The number of valid events without an answer.
    shed : int
        Number of answers that the source refused since the previous chunk because it was full. They are not
        included in `answers`.
    labels_shed : mapping of str to int
        Number of labels that the source refused because it was full, by task.
    rows_left : mapping of str to int
        The number of rows that were not read, because the mapping reads only one row of each record. The key
        is the path of the row that the mapping reads.
    ids : mapping of str to SampleIds
        The ids of the first answer and of the first label of each task, for messages.
    """

    source: str
    batches: tuple[Batch, ...] = ()
    labels: tuple[LabelBatch, ...] = ()
    rejects: tuple[Reject, ...] = ()
    partitions: tuple[str, ...] = ()
    positions: Mapping[str, object] = field(default_factory=dict)
    answers: int = 0
    labels_received: int = 0
    after_others: tuple[str, ...] = ()
    within: Within | None = None
    ignored: int = 0
    shed: int = 0
    labels_shed: Mapping[str, int] = field(default_factory=dict)
    rows_left: Mapping[str, int] = field(default_factory=dict)
    ids: Mapping[str, SampleIds] = field(default_factory=dict)

    @property
    def rejected(self) -> int:
        """The number of rejected records. It includes records of which only the label was rejected."""
        return sum(reject.records for reject in self.rejects)


_LENGTH_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_BYTES_OF_IDS = 1 << 22  # the largest size of one hashing step; otherwise a long id could cost gigabytes
_WORD = 8
_LONGEST_ID = 4096
"""The largest number of characters of an id that is hashed as a whole; a longer id is replaced by a digest.

Hashing a batch takes one step over all ids for each eight bytes of the longest id.
"""


def certain_rows(scores: Floats) -> NDArray[np.bool_]:
    """Return a mask, (n,), of rows with a largest score of exactly 1, or a confidence of exactly 0 or 1.

    With three or more classes, a score of exactly 0 does not make a row certain, because a random forest
    gives many such scores.

    Examples
    --------
    >>> certain_rows(np.array([[1.0, 0.0, 0.0], [0.75, 0.25, 0.0]])).tolist()
    [True, False]
    >>> certain_rows(np.array([[0.0], [0.5]])).tolist()
    [True, False]
    """
    certain: NDArray[np.bool_] = (scores == 1).any(axis=1)
    return certain | (scores[:, 0] == 0) if scores.shape[1] == 1 else certain


def mix(x: Keys) -> Keys:
    """Map 64-bit integers one to one to 64-bit integers that look random. Close values become far apart.

    This is the finaliser of splitmix64 (Steele, Lea, Flood 2014).

    Examples
    --------
    >>> mix(np.array([0, 1], dtype=np.uint64))
    array([                  0, 6238072747940578789], dtype=uint64)
    """
    x = x ^ (x >> np.uint64(30))
    x = x * np.uint64(0xBF58476D1CE4E5B9)
    x = x ^ (x >> np.uint64(27))
    x = x * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def id_keys(ids: Sequence[str]) -> Keys:
    """Return 64-bit hashes of record ids, which are equal in every process and batch.

    The hash starts with the length of the id. Each group of eight bytes of the UTF-8 text is combined with
    the hash by exclusive or, and `mix` is applied to the result. Different ids of equal length up to eight
    bytes never have the same hash. Among ten million longer ids, the probability that two have the same hash
    is about 3 in a million. The agent would treat such ids as one id. The hash is not safe against ids that
    are chosen to collide.

    Parameters
    ----------
    ids : sequence of str
        ``""`` means no id. An id of more than 4,096 characters is replaced by its digest of 16 bytes.

    Returns
    -------
    (n,) uint64
        `NO_ID` for ``""``, and never for another id.

    Examples
    --------
    >>> a = id_keys(["req-81", "req-82", ""])
    >>> bool(a[0] == id_keys(["req-81"])[0]), bool(a[0] == a[1]), int(a[2])
    (True, False, 0)
    """
    if len(ids) == 0:
        return np.zeros(0, dtype=np.uint64)
    lengths = np.fromiter(map(len, ids), dtype=np.int64, count=len(ids))
    if lengths.max() > _LONGEST_ID:
        return id_keys([text if len(text) <= _LONGEST_ID else _digest(text) for text in ids])
    step = max(1, _BYTES_OF_IDS // max(int(lengths.max()), 1))
    if len(ids) > step:
        return np.concatenate([id_keys(ids[i : i + step]) for i in range(0, len(ids), step)])
    texts: Sequence[str | bytes] = ids
    try:
        return _keys_of(np.array(texts, dtype=f"S{_room(lengths)}"), lengths)
    except UnicodeEncodeError:  # numpy converts only ASCII text to bytes
        # An id from a table may have a lone surrogate; the other ids must still be hashed.
        texts = [text.encode("utf-8", "surrogatepass") for text in ids]
    lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
    return _keys_of(np.array(texts, dtype=f"S{_room(lengths)}"), lengths)


def _digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def text_codes(texts: Sequence[str]) -> Floats:
    """Return the codes of texts, (n,): integers below 2⁵², the upper bits of their hashes by `id_keys`.

    Examples
    --------
    >>> a = text_codes(["JFK", "LGA", "JFK"])
    >>> bool(a[0] == a[2]), bool(a[0] == a[1]), bool(a.max() < 2**52)
    (True, False, True)
    """
    return (id_keys(texts) >> np.uint64(12)).astype(np.float64)


_MANY = 1 << 48  # rows
_NO_FEATURES = np.lib.stride_tricks.as_strided(np.zeros((1, 0)), (_MANY, 0))
_NO_GROUPS = np.lib.stride_tricks.as_strided(np.zeros((1, 0), dtype=np.int64), (_MANY, 0))


def no_features(rows: int) -> Floats:
    """Return the features, or the numbers, of a task without any: an array with the shape (rows, 0).

    The array is a view that needs no memory. Numpy would allocate an array without columns as if it had one
    column.
    """
    return _NO_FEATURES[:rows]


def no_groups(rows: int) -> Ints:
    """Return the groups of a task without groups: an array with the shape (rows, 0).

    The array is a view that needs no memory.
    """
    return _NO_GROUPS[:rows]


def _room(lengths: Ints) -> int:
    """Return the length of the longest id in bytes, rounded up to whole words."""
    return max(_WORD, -(-int(lengths.max()) // _WORD) * _WORD)


def _keys_of(packed: NDArray[np.bytes_], lengths: Ints) -> Keys:
    words = packed.view(np.dtype("<u8")).reshape(len(packed), -1)
    keys = mix(lengths.astype(np.uint64) * _LENGTH_FACTOR)
    shortest = int(lengths.min())
    for j in range(words.shape[1]):
        mixed = mix(keys ^ words[:, j])
        # Padding is not hashed, because the key of an id must not depend on the lengths of other ids.
        keys = mixed if shortest > _WORD * j else np.where(lengths > _WORD * j, mixed, keys)
    keys[keys == NO_ID] = np.uint64(1)
    keys[lengths == 0] = NO_ID
    return keys


_RUN = re.compile(
    r"(?<![^\W_])[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![^\W_])"
    r"|(?<![^\W_])(?=\d*[a-f])(?=[a-f]*\d)[0-9a-f]{8,}(?![^\W_])"
    r"|\d+|[^\W\d_]+",
    re.IGNORECASE,
)
_LONGEST_SHOWN = 24


def id_shape(id_: str) -> str:
    """Return the pattern of an id: `9` for digits, `a` for letters, `hex` or `UUID`, and separators.

    Examples
    --------
    >>> id_shape("req-81:0"), id_shape("5F0C6E2A9B1D4E77"), id_shape("1f6de1ac-88a4-4d5c-9b0e-6a3f2c1d7e90:0")
    ('a-9:9', 'hex', 'UUID:9')
    """

    def kind(run: re.Match[str]) -> str:
        text = run[0]
        return "UUID" if "-" in text else "9" if text.isdigit() else "a" if text.isalpha() else "hex"

    return _RUN.sub(kind, id_)


def id_look(id_: str) -> str:
    """Return an id for a message: shortened, and with its pattern (`id_shape`).

    Examples
    --------
    >>> id_look("req-81"), id_look(""), id_look("1f6de1ac-88a4-4d5c-9b0e-6a3f2c1d7e90")
    ('"req-81" (a-9)', 'no id at all', '"1f6de1ac-88a4-4d5c-9b0e…" (UUID)')
    """
    if not id_:
        return "no id at all"
    short = id_ if len(id_) <= _LONGEST_SHOWN else f"{id_[: _LONGEST_SHOWN - 1]}…"
    return f'"{short}" ({id_shape(id_[: _LONGEST_SHOWN * 2])})'
