"""Records as columns: what a decoder hands to the engine.

A `Chunk` is what one read of one source brought: the answers as a `Batch` a task, the labels as a
`LabelBatch` a task, and what could not be used. `order` gives each row's place in the chunk, so that
the engine can treat a chunk exactly as if its records had come one by one, wherever the source cut.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from monitor.base.names import FeatureKind

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Keys = NDArray[np.uint64]

NO_ID = np.uint64(0)
"""The key of a record without an id: it counts in windows, and no label can reach it."""

DRAW = np.dtype([("round", np.uint64), ("number", np.int64), ("pool", np.int64), ("probability", np.float64)])
"""How a row was drawn for labelling, where rows are drawn one after another without being put back:
`id_keys` of the round's name, the number of the draw in it (from 1; 0 for a label that was not drawn so),
the rows before the first draw, and the chance with which the row was taken out of those left."""


FIRST_MILLISECOND, LAST_MILLISECOND = -62_135_596_800_000, 253_402_300_799_999
"""Milliseconds since the epoch that begin the year 1 and end the year 9999: what RFC 3339 can write."""


class RejectReason(StrEnum):
    """Why a record was not used. A small fixed set, because it becomes a label in Prometheus."""

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
    """One record that was not used.

    Parameters
    ----------
    reason : RejectReason
    message : str
        Where and what: ``$.scores[1]: expected a number from 0 to 1, got 1.7``.
    raw : bytes
        The record as it came, cut at 2,000 bytes.
    partition : str
        The part of the source it came from (a file's path, ``topic-3``).
    position : int
        Where in that partition: the byte of a file, the offset of a message.
    answers : int
        How many answers it stands for in the accounting: 1 for an unreadable record, one a model
        for a record with several, 0 for a label.
    task : str
        The task, where it is known.
    along : bool
        Whether it is the label alone of a record whose answers are used.
    records : int
        How many records it stands for: more than 1 where a read brought too many to keep each. It then shows
        the first of them.
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
    """What a decoder must know of a task to lay its records out as columns.

    Parameters
    ----------
    name : str
    classes : tuple of str
        In the order of the scores. Empty for a task whose models only give a confidence: its
        scores have one column, and its two labels are 0 (correct) and 1 (wrong).
    positive : int
        Index of the positive class, where there are two.
    models : tuple of str
        Models that the configuration maps to this task, for records that name no task.
    groups : tuple of str
        Names of the record's `groups` that are watched on their own.
    arena : bool
        Its records are comparisons: `Batch.other`.
    long_names : frozenset of str
        Models, groups and versions whose names are longer than new ones may be, and which go on: the state
        of an older version holds them.
    numbered : bool
        Whether a source numbers the rows of its requests, so that a label may name the request alone.
    features : tuple of (str, {"number", "text"})
        Names of the record's `features` that a calibration uses, each with its kind.
    """

    name: str
    classes: tuple[str, ...]
    positive: int = 1
    models: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    arena: bool = False
    long_names: frozenset[str] = frozenset()
    numbered: bool = False
    features: tuple[tuple[str, FeatureKind], ...] = ()

    @property
    def width(self) -> int:
        """Columns of the scores: one a class, or one for a confidence."""
        return max(len(self.classes), 1)


@dataclass(frozen=True, slots=True)
class Batch:
    """Answers of one task in order of arrival, n rows.

    Parameters
    ----------
    task : str
    scores : (n, K) float64
        Raw class probabilities as the models gave them, 0 to 1, each row summing to 1 within 1e-3;
        (n, 1) for a confidence.
    predicted : (n,) int64
        Class acted on: `prediction` if given, else the argmax; 0 for a confidence.
    model, version : (n,) int64
        Indices into `models` and `versions`.
    models, versions : tuple of str
        A record without a version has the version ``""``.
    time : (n,) float64
        Seconds since the epoch, in the years 1 to 9999. NaN where the record has none: the engine takes
        the arrival.
    key : (n,) uint64
        `id_keys` of the record's id; `NO_ID` without one.
    label : (n,) int64
        True class where it came along, else -1. A record of several models brings one label: it stands on
        the first of its answers that is kept, and the join by id brings it to the others. Without an id
        there is no join, and it stands on them all.
    groups : mapping of str to (tuple of str, (n,) int64)
        For each watched group: its values and each row's index into them, -1 where absent.
    order : (n,) int64
        Place of the row among all answers and labels of the chunk, rising.
    partition, position : (n,) int64
        Index into the chunk's `partitions`, and the place there.
    probability : (n,) float64, optional
        Of the label: the chance with which the row was picked for labelling, above 0 and at most 1; NaN
        where not given or there is no label. Left out, it is NaN in every row.
    other : (n,) int64
        Of an arena, whose rows are comparisons; left out, it is -1 in every row. `model` is then model_a,
        `other` the index of model_b, `scores` (n, 1) what b got of the win by the judge, 0 to 1 and NaN where
        it did not judge, and `label` the human's verdict: 0 for a, 1 for a tie, 2 for b.
    request : (n,) uint64, optional
        Of the first of a request's numbered rows, whose ids are the request's own, a colon and the row's
        number from 0: `id_keys` of the request's own id. `NO_ID` in any other row.
    alone : (n,) bool, optional
        Whether its request had one row.
    features : (n, F) float64, optional
        The layout's features, in its order: a number as it came, a text as its `text_codes`; NaN where the
        record has none. Left out, F is 0.

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

    def __post_init__(self) -> None:
        if not len(self.features) and len(self.time):
            object.__setattr__(self, "features", no_features(len(self.time)))
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


@dataclass(frozen=True, slots=True)
class LabelBatch:
    """Labels of one task in order of arrival, n rows.

    Parameters
    ----------
    task : str
    key : (n,) uint64
        `id_keys` of the id; never `NO_ID`.
    label : (n,) int64
        True class; for a task without classes 0 is correct and 1 is wrong.
    model : (n,) int64
        Index into `models` where the label is about one model's answer, -1 where about them all.
    models : tuple of str
    time : (n,) float64
        Seconds since the epoch, in the years 1 to 9999. NaN where the record has none: the engine takes
        the arrival.
    probability : (n,) float64
        Chance with which the row was picked for labelling, above 0 and at most 1; NaN where not given.
    order : (n,) int64
        As in `Batch`.
    draw : (n,) DRAW, optional
        Left out, none was drawn.
    first_row : (n,) uint64, optional
        `id_keys` of what the first row has for an id if this is its request's; `NO_ID` where no source
        numbers rows.
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

    def __post_init__(self) -> None:
        if not len(self.first_row):
            object.__setattr__(self, "first_row", np.full(len(self.time), NO_ID))
        if not len(self.draw):
            object.__setattr__(self, "draw", np.zeros(len(self.time), dtype=DRAW))

    def __len__(self) -> int:
        return len(self.time)


@dataclass(frozen=True, slots=True)
class Within:
    """Where the records of a chunk stand in a longer stream, of which others take the other records.

    Parameters
    ----------
    sequence : (n,) int64
        By the chunk's `order`: the place of each answer and label in the whole stream, rising.
    clock : (n,) float64
        By the chunk's `order`: the time of the whole stream at that place, seconds since the epoch, never
        falling; see `monitor.engine.clock.EventClock`.
    """

    sequence: Ints
    clock: Floats

    def __getitem__(self, rows: slice) -> Within:
        return Within(self.sequence[rows], self.clock[rows])


class SampleIds(NamedTuple):
    """The id of an answer and of a label, as text: "" of a record without one, None where none came."""

    answer: str | None = None
    label: str | None = None

    def or_else(self, other: SampleIds) -> SampleIds:
        """With the other's in place of what is missing."""
        return SampleIds(
            *(theirs if ours is None else ours for ours, theirs in zip(self, other, strict=True))
        )


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one read of one source brought.

    Parameters
    ----------
    source : str
        The source's name, a label in Prometheus.
    batches, labels : tuple
        At most one of each a task.
    rejects : tuple of Reject
    partitions : tuple of str
        What the batches' `partition` columns point into.
    positions : mapping of str to object
        For each partition touched, where reading goes on after this chunk: the source's own, which nobody
        else looks into.
    answers : int
        Answers received, used or not: the sum of the batches' rows and of the rejects' `answers`.
    labels_received : int
        Records received that are labels and nothing else, used or not; a label that came along with its
        answers is not among them, whether it is used (`Batch.label`) or not (`Reject.along`).
    after_others : tuple of str
        Partitions of which another agent used the records between these and the last ones read here.
    within : Within, optional
        For a part of a stream: where its records stand there. Left out, the chunk follows on the one before.
    ignored : int
        Events that hold no answer, as they may.
    shed : int
        Answers that the source refused for want of room since the chunk before; not among `answers`.
    labels_shed : mapping of str to int
        Labels that it refused so, by task.
    rows_left : mapping of str to int
        Rows that a mapping did not read, by the path of the one beside them that it read.
    ids : mapping of str to SampleIds
        By task, of messages' examples: what a first answer and a first label call themselves.
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
        """Records, or their labels, that were not used."""
        return sum(reject.records for reject in self.rejects)


_LENGTH_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_BYTES_OF_IDS = 1 << 22  # bytes a hashing step may lay out at once: a long id must not cost gigabytes
_WORD = 8
_LONGEST_ID = 4096
"""A digest stands for a longer text, each word of which would cost a step over all its neighbours."""


def mix(x: Keys) -> Keys:
    """Scramble 64-bit integers one to one, so that near ones fall far apart.

    The finaliser of splitmix64 (Steele, Lea, Flood 2014).

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
    """64-bit keys of record ids, the same in every process and whatever ids stand beside them.

    The id's UTF-8 bytes are taken eight at a time: the key so far, begun with the length, is combined
    with the next eight by exclusive or and scrambled by `mix`. Ids of one length up to eight bytes
    never share a key; among ten million longer ones the chance that any two do is about 3 in a
    million, and two that do are taken for one record. Not safe against ids made to collide.

    Parameters
    ----------
    ids : sequence of str
        ``""`` stands for no id. A digest of 16 bytes stands for an id of more than 4,096 characters.

    Returns
    -------
    (n,) uint64
        `NO_ID` for ``""``; never `NO_ID` for another.

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
    except UnicodeEncodeError:  # numpy writes ASCII only
        # A lone surrogate can come out of a table; it must not stop the others.
        texts = [text.encode("utf-8", "surrogatepass") for text in ids]
    lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
    return _keys_of(np.array(texts, dtype=f"S{_room(lengths)}"), lengths)


def _digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def text_codes(texts: Sequence[str]) -> Floats:
    """(n,) whole numbers below 2⁵² that stand for texts, by the upper bits of `id_keys`: no order is meant.

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
    """(rows, 0): the features of rows of a task that uses none.

    It takes no memory: numpy allocates an array of no columns as if it had one.
    """
    return _NO_FEATURES[:rows]


def no_groups(rows: int) -> Ints:
    """(rows, 0): the groups of rows of which none are watched; it takes no memory either."""
    return _NO_GROUPS[:rows]


def _room(lengths: Ints) -> int:
    """Bytes of whole words that hold the longest."""
    return max(_WORD, -(-int(lengths.max()) // _WORD) * _WORD)


def _keys_of(packed: NDArray[np.bytes_], lengths: Ints) -> Keys:
    words = packed.view(np.dtype("<u8")).reshape(len(packed), -1)
    keys = mix(lengths.astype(np.uint64) * _LENGTH_FACTOR)
    shortest = int(lengths.min())
    for j in range(words.shape[1]):
        mixed = mix(keys ^ words[:, j])
        # Padding must not enter: an id's key may not depend on how long its neighbours are.
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
    """How an id is made: 9 for digits, a for letters, hex for both in one; its separators as they are.

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
    """An id for a message: shortened, with its shape.

    Examples
    --------
    >>> id_look("req-81"), id_look(""), id_look("1f6de1ac-88a4-4d5c-9b0e-6a3f2c1d7e90")
    ('"req-81" (a-9)', 'no id at all', '"1f6de1ac-88a4-4d5c-9b0e…" (UUID)')
    """
    if not id_:
        return "no id at all"
    short = id_ if len(id_) <= _LONGEST_SHOWN else f"{id_[: _LONGEST_SHOWN - 1]}…"
    return f'"{short}" ({id_shape(id_[: _LONGEST_SHOWN * 2])})'
