"""The columns that the join of labels takes, keeps and gives."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from monitor.base.records import NO_ID, Floats, Ints, Keys, id_keys, mix

_MODEL_SALT = np.uint64(0xD6E8FEB86659FD93)
_STEPS_A_HORIZON = 100  # waiting labels are looked through so often while one horizon passes
_LEAST_PROBABILITY = 1e-12  # its weight, squared, still fits a double beside others

NO_LABEL = -1

LABEL_COLUMNS: dict[str, DTypeLike] = {
    "label": np.int32,
    "time": np.float64,
    "settled": np.bool_,
    "sequence": np.int64,
    "first_sequence": np.int64,
    "probability": np.float32,
}
"""The stored columns of a label; `first_sequence` and `probability` are those of its id's first label."""


ALONE, SEVERAL = 1, 2
"""What stands in `rows` of the first answer to a request of one row, or of several; 0 in any other."""


def answer_columns(series: int, scored: int = 0, numbered: bool = False) -> dict[str, DTypeLike]:
    """What is kept of an answer that counts in at most so many series, and has so many scores to keep.

    With scores its id is kept too, to join the answers of several models, and whether its label has replaced
    another class (`replaced`). Where a source numbers the rows of requests, `rows` is kept: see `ALONE`.
    `block` holds `Matches.block` plus 1: stores of older versions lack it, and an absent column reads as 0.
    """
    kept: dict[str, DTypeLike] = {"rows": np.int8} if numbered else {}
    if scored:
        kept |= {"id": np.uint64, "scores": np.dtype((np.float32, (scored,))), "replaced": np.bool_}
    return kept | {
        "predicted": np.int32,
        "label": np.int32,
        "confidence": np.float32,
        "probability": np.float32,
        "time": np.float64,
        "sequence": np.int64,
        "series": np.dtype((np.int32, (series,))),
        "window": np.dtype((np.int32, (series,))),
        "block": np.dtype((np.int64, (series,))),
    }


def weights(probability: NDArray[np.floating]) -> Floats:
    """What a labelled row counts for: 1 / its probability of being picked, 1 where none was given.

    Parameters
    ----------
    probability : (n,) float
        Above 0 and at most 1, NaN for none given. Below 1e-12 it is taken as that.

    Examples
    --------
    >>> weights(np.array([0.25, np.nan])).tolist()
    [4.0, 1.0]
    """
    given = np.maximum(probability.astype(np.float64), _LEAST_PROBABILITY)
    return np.where(np.isnan(probability), 1.0, 1.0 / given)


@lru_cache(maxsize=100_000)  # more than models of an agent: all are asked for with each chunk
def model_code(model: str) -> int:
    """A model's number in the keys of its answers and labels: the same in every process, never negative."""
    return int(id_keys([model])[0] >> np.uint64(1))


def answer_keys(keys: Keys, model: Ints) -> Keys:
    """Keys of (id, model) pairs; `NO_ID` stays what it is."""
    salted = mix(keys ^ ((model.astype(np.uint64) + np.uint64(1)) * _MODEL_SALT))
    salted[salted == NO_ID] = np.uint64(1)
    salted[keys == NO_ID] = NO_ID
    return salted


def keys_of(ids: Keys, models: Ints) -> tuple[Keys, Keys]:
    """Every key under which answers, and under which labels, of these ids may stand.

    Parameters
    ----------
    ids : (n,) uint64
    models : (m,) int64

    Examples
    --------
    >>> answers, labels = keys_of(np.array([7, 8], dtype=np.uint64), np.array([1, 2, 3]))
    >>> len(answers), len(labels)
    (6, 8)
    """
    named = [answer_keys(ids, np.full(len(ids), model)) for model in models.tolist()]
    of_answers = np.concatenate([*named, np.zeros(0, dtype=np.uint64)])
    return of_answers, np.concatenate([ids, of_answers])


@dataclass(frozen=True, slots=True)
class Matches:
    """What labels say of windows: one row a (series, window) that a label reached.

    Parameters
    ----------
    series, window : (n,) int64
    labelled : (n,) int64
        1 for a new labelled row; 0 where a label was corrected.
    correct : (n,) int64
        Change of the number of correct rows, -1 to 1.
    sequence : (n,) int64
        When both the answer and its label were known.
    weight : (n,) float64
        1 / the probability with which the row was picked for labelling, as its first label said; 1 where
        that said nothing. A correction has its row's: all sums of weights change by `labelled` and
        `correct` times it (or its square).
    confidence : (n,) float64
        The probability that the answer is right, by the calibration in force when it came.
    right : (n,) bool
        Whether the label now says that it is.
    id : (n,) uint64
        Of the answer; `NO_ID` where it is not kept, or there is none.
    label : (n,) int64
        What the label says now.
    replaced : (n,) bool
        Whether it took the place of another class.
    block : (n,) int64
        First row, among all rows of the series, of the answer's block in `monitor.stats.estimate.corrected`;
        -1 where it is not known.
    predicted : (n,) int64
        The class that the answer names.
    """

    series: Ints
    window: Ints
    labelled: Ints
    correct: Ints
    sequence: Ints
    weight: Floats
    confidence: Floats
    right: NDArray[np.bool_]
    id: Keys
    label: Ints
    replaced: NDArray[np.bool_]
    block: Ints
    predicted: Ints

    @classmethod
    def none(cls) -> Matches:
        """No match."""
        empty, numbers, flags = np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0, dtype=bool)
        ids = np.zeros(0, dtype=np.uint64)
        return cls(
            empty, empty, empty, empty, empty, numbers, numbers, flags, ids, empty, flags, empty, empty
        )

    def take(self, index: Ints | slice) -> Matches:
        """The matches at these places."""
        return Matches(*(getattr(self, column.name)[index] for column in fields(self)))

    @classmethod
    def join(cls, parts: list[Matches]) -> Matches:
        """All matches of several steps."""
        if len(parts) < 2:
            return parts[0] if parts else cls.none()
        names = [column.name for column in fields(cls)]
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers to be joined, n rows; each counts in the windows of one or more series.

    Parameters
    ----------
    key : (n,) uint64
        Of the id alone.
    model : (n,) int64
        Index of the model within its task.
    predicted : (n,) int64
    time : (n,) float64
    sequence : (n,) int64
    series, window : (n, S) int64
        The series that the answer counts in (the model's own, then its groups'), -1 for none, and the
        window there.
    confidence : (n,) float64
        Probability that the answer is right.
    scores : (n, K) float64
        Raw.
    request : (n,) uint64, optional
    alone : (n,) bool, optional
        As in `Batch`.
    block : (n, S) int64, optional
        As in `Matches`. Left out, it is not known.
    """

    key: Keys
    model: Ints
    predicted: Ints
    time: Floats
    sequence: Ints
    series: Ints
    window: Ints
    confidence: Floats
    scores: Floats
    request: Keys = field(default_factory=lambda: np.zeros(0, dtype=np.uint64))
    alone: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=bool))
    block: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def __post_init__(self) -> None:
        if not len(self.request):
            object.__setattr__(self, "request", np.full(len(self.key), NO_ID))
        if not len(self.alone):
            object.__setattr__(self, "alone", np.zeros(len(self.key), dtype=bool))
        if not len(self.block):
            object.__setattr__(self, "block", np.full(self.series.shape, -1))

    def take(self, index: Ints) -> Answers:
        """The answers at these places."""
        return Answers(*(getattr(self, column.name)[index] for column in fields(self)))

    def kept(self, scored: int, numbered: bool = False) -> dict[str, NDArray[Any]]:
        """The columns of `answer_columns`, without a label yet."""
        n = len(self.key)
        columns: dict[str, NDArray[Any]] = {
            "predicted": self.predicted,
            "label": np.full(n, NO_LABEL),
            "confidence": self.confidence,
            "probability": np.full(n, np.nan),
            "time": self.time,
            "sequence": self.sequence,
            "series": self.series,
            "window": self.window,
            "block": self.block + 1,
        }
        if numbered:
            columns["rows"] = np.where(self.request == NO_ID, 0, np.where(self.alone, ALONE, SEVERAL))
        if not scored:
            return columns
        return columns | {"id": self.key, "scores": self.scores, "replaced": np.zeros(n, dtype=bool)}


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What was let go of by id: answers, labels, and how many of these still waited for an answer."""

    answers: int = 0
    labels: int = 0
    waiting: int = 0

    def __add__(self, other: Forgotten) -> Forgotten:
        return Forgotten(
            self.answers + other.answers, self.labels + other.labels, self.waiting + other.waiting
        )


@dataclass(frozen=True, slots=True)
class Clock:
    """The newest time among all answers so far, at each answer of the last step."""

    sequence: Ints
    time: Floats

    def at(self, sequence: Ints) -> Floats:
        place = np.searchsorted(self.sequence, sequence)
        return self.time[np.minimum(place, len(self.time) - 1)]


@dataclass(frozen=True, slots=True)
class Horizon:
    """How far apart in time an answer and its label may lie."""

    seconds: float

    def near(self, lag: Floats) -> NDArray[np.bool_]:
        """Whether these lags are within it."""
        return np.abs(lag) <= self.seconds

    def outdated(self, label_time: Floats, clock: Floats | float) -> NDArray[np.bool_]:
        """Whether the answers' clock has passed labels by the horizon, in whole steps of it.

        In steps, so that looking through all labels once a step finds exactly these.
        """
        late: NDArray[np.bool_] = self.mark(clock) > self.mark(label_time + self.seconds)
        return late

    def mark(self, time: Floats | float) -> Any:
        """The last step up to this time."""
        return np.floor(np.asarray(time) / (self.seconds / _STEPS_A_HORIZON))


@dataclass(frozen=True, slots=True)
class Labels:
    """Labels on their way in; `model` is -1 where one is about all answers with its id."""

    key: Keys
    first_row: Keys
    model: Ints
    label: Ints
    time: Floats
    sequence: Ints
    probability: Floats

    def take(self, index: slice) -> Labels:
        """The labels at these places."""
        return Labels(*(getattr(self, column.name)[index] for column in fields(self)))


@dataclass(frozen=True, slots=True)
class Pairs:
    """Answers (rows of the ring) and a label of each; `row` is that label's row, -1 where it is settled.

    `sequence` is the label's, `first_sequence` that of the first label for its id, whose probability holds.
    `several` holds where the label names a request of several rows, and cannot mean one of them.
    """

    answer: Ints
    label: Ints
    time: Floats
    sequence: Ints
    row: Ints
    first_sequence: Ints
    probability: NDArray[np.floating]
    several: NDArray[np.bool_]

    def take(self, index: NDArray[np.bool_] | Ints) -> Pairs:
        """The pairs at these places."""
        return Pairs(*(getattr(self, column.name)[index] for column in fields(self)))
