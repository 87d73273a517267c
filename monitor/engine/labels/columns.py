"""The columns that the join of labels reads, stores and returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from monitor.base.columns import ColumnarRows
from monitor.base.records import NO_ID, Floats, Ints, Keys, id_keys, mix

_MODEL_SALT = np.uint64(0xD6E8FEB86659FD93)
_STEPS_A_HORIZON = 100  # checks of the waiting labels in the time of one horizon
_LEAST_PROBABILITY = 1e-12  # sums of squared weights still fit a double

NO_LABEL = -1

LABEL_COLUMNS: dict[str, DTypeLike] = {
    "label": np.int32,
    "time": np.float64,
    "settled": np.bool_,
    "sequence": np.int64,
    "first_sequence": np.int64,
    "probability": np.float32,
}
"""The stored columns of a label; `first_sequence` and `probability` come from the first label of its id."""

ALONE, SEVERAL = 1, 2
"""Values of `rows` for the first answer to a request of one row, and of several; 0 for all other answers."""


def answer_columns(series: int, scored: int = 0, numbered: bool = False) -> dict[str, DTypeLike]:
    """Return the stored columns of an answer.

    `block` holds `Matches.block` plus 1, because stores of older versions lack it and a missing column reads
    as 0.

    Parameters
    ----------
    series : int
        The largest number of series that an answer counts in.
    scored : int
        The number of scores to store. If there are any, `id` is stored to join the answers of several models,
        and `replaced` says whether the label has replaced another class.
    numbered : bool
        Whether the source numbers the rows of requests. Then `rows` is stored: see `ALONE`.
    """
    stored: dict[str, DTypeLike] = {"rows": np.int8} if numbered else {}
    if scored:
        stored |= {"id": np.uint64, "scores": np.dtype((np.float32, (scored,))), "replaced": np.bool_}
    return stored | {
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
    """Return the weight of each labelled row: 1 / its probability of being picked, 1 where that is unknown.

    Parameters
    ----------
    probability : (n,) float
        Above 0 and at most 1, or NaN where it is unknown. A value below 1e-12 counts as 1e-12.

    Examples
    --------
    >>> weights(np.array([0.25, np.nan])).tolist()
    [4.0, 1.0]
    """
    bounded = np.maximum(probability.astype(np.float64), _LEAST_PROBABILITY)
    return np.where(np.isnan(probability), 1.0, 1.0 / bounded)


@lru_cache(maxsize=100_000)  # more than an agent has models: each chunk looks up all of them
def model_code(model: str) -> int:
    """Return a model's number in the keys of its answers and labels: 0 or more, equal in every process."""
    return int(id_keys([model])[0] >> np.uint64(1))


def answer_keys(keys: Keys, model: Ints) -> Keys:
    """Return the keys of (id, model) pairs; `NO_ID` stays `NO_ID`."""
    salted = mix(keys ^ ((model.astype(np.uint64) + np.uint64(1)) * _MODEL_SALT))
    salted[salted == NO_ID] = np.uint64(1)
    salted[keys == NO_ID] = NO_ID
    return salted


def keys_of(ids: Keys, models: Ints) -> tuple[Keys, Keys]:
    """Return all keys under which answers, and under which labels, of these ids may be stored.

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
class Matches(ColumnarRows):
    """The effect of labels on windows: one row for each window of a series that a label reached.

    Parameters
    ----------
    series, window : (n,) int64
    labelled : (n,) int64
        1 for a newly labelled row; 0 for a corrected label.
    correct : (n,) int64
        The change of the number of correct rows, -1 to 1.
    sequence : (n,) int64
        The number of the record at which both the answer and its label were known.
    weight : (n,) float64
        1 / the probability with which the row was picked for labelling, from its first label; 1 where that
        label has none. A correction has the weight of its row, so all sums of weights change by `labelled`
        and `correct` times the weight (or its square).
    confidence : (n,) float64
        The probability that the answer is right, by the calibration in force when it came.
    right : (n,) bool
        Whether the answer is right by its current label.
    id : (n,) uint64
        The answer's id; `NO_ID` where it is not stored, or there is none.
    label : (n,) int64
        The current label.
    replaced : (n,) bool
        Whether the label replaced another class.
    block : (n,) int64
        The first row, among all rows of the series, of the answer's block in
        `monitor.stats.estimate.corrected`; -1 where it is unknown.
    predicted : (n,) int64
        The class that the model predicted.
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
        """Return matches without rows."""
        empty, numbers, flags = np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0, dtype=bool)
        ids = np.zeros(0, dtype=np.uint64)
        return cls(
            empty, empty, empty, empty, empty, numbers, numbers, flags, ids, empty, flags, empty, empty
        )

    @classmethod
    def join(cls, parts: list[Matches]) -> Matches:
        """Return the matches of several steps together."""
        if len(parts) < 2:
            return parts[0] if parts else cls.none()
        return cls.concatenate(parts)


@dataclass(frozen=True, slots=True)
class Answers(ColumnarRows):
    """Answers to join, n rows; each counts in the windows of one or more series.

    Parameters
    ----------
    key : (n,) uint64
        The key of the id alone.
    model : (n,) int64
        The number of the model, by `model_code`.
    predicted : (n,) int64
    time : (n,) float64
    sequence : (n,) int64
    series, window : (n, S) int64
        The series that the answer counts in (the model's own, then its groups'), -1 for none, and the number
        of its window there.
    confidence : (n,) float64
        The probability that the answer is right.
    scores : (n, K) float64
        Raw scores.
    request : (n,) uint64, optional
    alone : (n,) bool, optional
        As in `Batch`.
    block : (n, S) int64, optional
        As in `Matches`; -1 if absent.
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

    def to_columns(self, scored: int, numbered: bool = False) -> dict[str, NDArray[Any]]:
        """Return the columns of `answer_columns`, without labels."""
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
    """The numbers of answers and labels removed by id, and of labels among them that waited for answers."""

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
        """Return the clock at the answers with these sequence numbers."""
        place = np.searchsorted(self.sequence, sequence)
        return self.time[np.minimum(place, len(self.time) - 1)]


@dataclass(frozen=True, slots=True)
class Horizon:
    """The largest time between an answer and its label."""

    seconds: float

    def is_near(self, lag: Floats) -> NDArray[np.bool_]:
        """Return whether these lags lie within the horizon."""
        return np.abs(lag) <= self.seconds

    def is_outdated(self, label_time: Floats, clock: Floats | float) -> NDArray[np.bool_]:
        """Return whether the answers' clock has passed these labels by the horizon, in whole steps of it.

        With whole steps, a check of all labels once a step finds exactly these labels.
        """
        late: NDArray[np.bool_] = self.mark(clock) > self.mark(label_time + self.seconds)
        return late

    def mark(self, time: Floats | float) -> Any:
        """Return the number of the last step up to this time."""
        return np.floor(np.asarray(time) / (self.seconds / _STEPS_A_HORIZON))


@dataclass(frozen=True, slots=True)
class Labels(ColumnarRows):
    """Labels to join; `model` is -1 for a label that applies to all answers with its id."""

    key: Keys
    first_row: Keys
    model: Ints
    label: Ints
    time: Floats
    sequence: Ints
    probability: Floats


@dataclass(frozen=True, slots=True)
class Pairs(ColumnarRows):
    """Pairs of an answer, by its row in the ring, and a label; `row` is the label's row, -1 if it is settled.

    `sequence` is the label's; `first_sequence` is that of the first label for its id, which also gives the
    probability. `several` is true where the label names a request of several rows, so that it cannot mean one
    of them.
    """

    answer: Ints
    label: Ints
    time: Floats
    sequence: Ints
    row: Ints
    first_sequence: Ints
    probability: NDArray[np.floating]
    several: NDArray[np.bool_]
