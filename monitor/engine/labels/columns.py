"""The columns of answers and labels that the label join reads, stores and returns."""

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

_SAME_NUMBER = 1e-9  # of the larger number

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
"""Values of the column `rows`, for the first answer to a request: it has one row, or several.

All other answers have the value 0.
"""


def label_columns(numeric: bool = False) -> dict[str, DTypeLike]:
    """Return the names and types of the stored columns of a label; `numeric` adds the true number."""
    return LABEL_COLUMNS | ({"number": np.float64} if numeric else {})


def answer_columns(
    series: int, scored: int = 0, numbered: bool = False, numeric: bool = False, stated: bool = False
) -> dict[str, DTypeLike]:
    """Return the names and types of the stored columns of an answer.

    `block` contains `Matches.block` plus 1. Stores of older versions lack this column. A missing column reads
    as 0.

    Parameters
    ----------
    series : int
        The largest number of series (the model, and the groups of the answer) that an answer counts in.
    scored : int
        The number of scores to store. If it is not 0, two more columns are stored. `id` joins the answers of
        several models. `replaced` is true if a later label changed the class.
    numbered : bool
        Whether the source numbers the rows of requests. Then `rows` is stored: see `ALONE`.
    numeric : bool
        Whether predictions are numbers. Then `number` is stored, the prediction, and `truth`, the label; NaN
        without a label.
    stated : bool
        Whether to store the ends of the stated intervals, `lower` and `upper`; NaN without one.
    """
    stored: dict[str, DTypeLike] = {"rows": np.int8} if numbered else {}
    if numeric:
        stored |= {"number": np.float64, "truth": np.float64}
    if stated:
        stored |= {"lower": np.float64, "upper": np.float64}
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
    """Return the weight of each labelled row.

    The weight is 1 over the probability of picking the row for labelling, or 1 if this probability is
    unknown.

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
    """Return a hash of a model's name. It is 0 or more, and the same in every process."""
    return int(id_keys([model])[0] >> np.uint64(1))


def answer_keys(keys: Keys, model: Ints) -> Keys:
    """Return the key (a hash) of each pair of an id and a model, (n,). The key of `NO_ID` is `NO_ID`."""
    salted = mix(keys ^ ((model.astype(np.uint64) + np.uint64(1)) * _MODEL_SALT))
    salted[salted == NO_ID] = np.uint64(1)
    salted[keys == NO_ID] = NO_ID
    return salted


def keys_of(ids: Keys, models: Ints) -> tuple[Keys, Keys]:
    """Return all keys of the answers with these ids, and all keys of the labels with these ids.

    Parameters
    ----------
    ids : (n,) uint64
        Hashes of the ids.
    models : (m,) int64
        Numbers of the models, from `model_code`.

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
    """Labels that were matched to answers, and the changes that they make to the counts of windows.

    An answer counts in its model's window, and in one window for each of its groups. There is one row for
    each of these windows.

    Parameters
    ----------
    series, window : (n,) int64
        The number of the series, and of the window in the series.
    labelled : (n,) int64
        1 for an answer's first label, 0 for a corrected label.
    correct : (n,) int64
        The change of the number of correct rows, -1 to 1.
    sequence : (n,) int64
        The number of the record at which both the answer and its label were known.
    weight : (n,) float64
        1 over the probability with which the row was picked for labelling. The first label states this
        probability; the weight is 1 if it states none. A corrected label has the same weight. So the sum of
        weights changes by `labelled` or `correct` times the weight, and the sum of squared weights
        accordingly.
    confidence : (n,) float64
        The probability that the answer is right, by the calibration in use when the answer came.
    right : (n,) bool
        Whether the answer is right by its current label.
    id : (n,) uint64
        The hash of the answer's id; `NO_ID` if the hash is not stored, or if the answer has no id.
    label : (n,) int64
        The current label.
    replaced : (n,) bool
        Whether a later label with the same id changed the class.
    block : (n,) int64
        The number in the series of the first row of the answer's block; -1 if unknown. A block is a run of
        successive rows for which the correction estimates one bias (`monitor.stats.estimate.corrected`).
    predicted : (n,) int64
        The class that the model predicted.
    error, replaced_error : (n,) float64, optional
        If predictions are numbers: the prediction minus the label, by the current label and by the label that
        it replaced. NaN where there is none, which is the default.
    truths, inside : (n, 2) float64, optional
        By the current label and by the label that it replaced, for metrics that need them: the label, and
        whether it is within the stated interval, 1 or 0. NaN where there is none, which is the default.
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
    error: Floats = field(default_factory=lambda: np.zeros(0))
    replaced_error: Floats = field(default_factory=lambda: np.zeros(0))
    truths: Floats = field(default_factory=lambda: np.zeros((0, 2)))
    inside: Floats = field(default_factory=lambda: np.zeros((0, 2)))

    def __post_init__(self) -> None:
        n = len(self.series)
        shapes = {"error": (n,), "replaced_error": (n,), "truths": (n, 2), "inside": (n, 2)}
        for name, shape in shapes.items():
            if not len(getattr(self, name)):
                object.__setattr__(self, name, np.broadcast_to(np.nan, shape))

    @classmethod
    def none(cls) -> Matches:
        """Return an object without matched labels."""
        empty, numbers, flags = np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0, dtype=bool)
        ids = np.zeros(0, dtype=np.uint64)
        return cls(
            empty, empty, empty, empty, empty, numbers, numbers, flags, ids, empty, flags, empty, empty
        )

    @classmethod
    def join(cls, parts: list[Matches]) -> Matches:
        """Return the rows of several objects as one object."""
        if len(parts) < 2:
            return parts[0] if parts else cls.none()
        return cls.concatenate(parts)


@dataclass(frozen=True, slots=True)
class Answers(ColumnarRows):
    """The columns of n answers to be joined with labels. Each answer counts in windows of one or more series.

    Parameters
    ----------
    key : (n,) uint64
        The hash of the id, without the model.
    model : (n,) int64
        The number of the model, from `model_code`.
    predicted : (n,) int64
        The index of the predicted class.
    time : (n,) float64
        Seconds since the epoch.
    sequence : (n,) int64
        The number of each answer's record in the stream.
    series, window : (n, S) int64
        The number of each series that the answer counts in (its model, then its groups; -1 for no group), and
        the number of its window in each series.
    confidence : (n,) float64
        The probability that the answer is right.
    scores : (n, K) float64
        Raw scores.
    request : (n,) uint64, optional
    alone : (n,) bool, optional
        As in `Batch`.
    block : (n, S) int64, optional
        As in `Matches`; by default -1.
    number : (n,) float64, optional
        The prediction, if predictions are numbers; by default NaN.
    stated : (n, 2) float64, optional
        The lower and the upper end of the interval that the model states; by default NaN.
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
    number: Floats = field(default_factory=lambda: np.zeros(0))
    stated: Floats = field(default_factory=lambda: np.zeros((0, 2)))

    def __post_init__(self) -> None:
        if not len(self.number):
            object.__setattr__(self, "number", np.broadcast_to(np.nan, len(self.key)))
        if not self.stated.size:
            object.__setattr__(self, "stated", np.broadcast_to(np.nan, (len(self.key), 2)))
        if not len(self.request):
            object.__setattr__(self, "request", np.full(len(self.key), NO_ID))
        if not len(self.alone):
            object.__setattr__(self, "alone", np.zeros(len(self.key), dtype=bool))
        if not len(self.block):
            object.__setattr__(self, "block", np.full(self.series.shape, -1))

    def to_columns(
        self, scored: int, numbered: bool = False, numeric: bool = False, stated: bool = False
    ) -> dict[str, NDArray[Any]]:
        """Return the columns to store, as `answer_columns` lists them; the answers have no labels yet."""
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
        if numeric:
            columns |= {"number": self.number, "truth": np.full(n, np.nan)}
        if stated:
            columns |= {"lower": self.stated[:, 0], "upper": self.stated[:, 1]}
        if numbered:
            columns["rows"] = np.where(self.request == NO_ID, 0, np.where(self.alone, ALONE, SEVERAL))
        if not scored:
            return columns
        return columns | {"id": self.key, "scores": self.scores, "replaced": np.zeros(n, dtype=bool)}


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The numbers of answers and labels that were deleted by id.

    `waiting` is the number of deleted labels whose answers had not come.
    """

    answers: int = 0
    labels: int = 0
    waiting: int = 0

    def __add__(self, other: Forgotten) -> Forgotten:
        return Forgotten(
            self.answers + other.answers, self.labels + other.labels, self.waiting + other.waiting
        )


@dataclass(frozen=True, slots=True)
class Horizon:
    """The largest time between an answer and its label. Later labels are not joined to the answer."""

    seconds: float

    def is_near(self, lag: Floats) -> NDArray[np.bool_]:
        """Return whether each time between an answer and its label, in seconds, is within the horizon."""
        return np.abs(lag) <= self.seconds

    def is_outdated(self, label_time: Floats, clock: Floats | float) -> NDArray[np.bool_]:
        """Return whether labels are too old: more than a horizon older than the newest answer.

        Times are rounded to steps of a hundredth of the horizon. So one check of all labels at each step
        gives the same result as a check at each record.
        """
        late: NDArray[np.bool_] = self.mark(clock) > self.mark(label_time + self.seconds)
        return late

    def mark(self, time: Floats | float) -> Any:
        """Return the number of the step (a hundredth of the horizon) that contains this time."""
        return np.floor(np.asarray(time) / (self.seconds / _STEPS_A_HORIZON))


@dataclass(frozen=True, slots=True)
class Labels(ColumnarRows):
    """Labels to be joined with answers.

    `model` is the number of the label's model, or -1 if the label applies to all answers with its id.
    `number` is the true number, if predictions are numbers, and otherwise NaN.
    """

    key: Keys
    first_row: Keys
    model: Ints
    label: Ints
    time: Floats
    sequence: Ints
    probability: Floats
    number: Floats

    def differ_from(self, label: Ints, number: Floats) -> NDArray[np.bool_]:
        """Return whether each label differs from another class or number, (n,).

        Numbers differ if they are further apart than 1e-9 of the larger one.
        """
        room = _SAME_NUMBER * np.maximum(np.abs(self.number), np.abs(number))
        differ: NDArray[np.bool_] = (self.label != label) | (np.abs(self.number - number) > room)
        return differ


@dataclass(frozen=True, slots=True)
class Pairs(ColumnarRows):
    """Pairs of an answer and a label that have the same id.

    `answer` is the answer's row in its ring table. `row` is the label's row, or -1 if the label's outcome has
    been counted. `number` is as in `Labels`. `sequence` is the sequence number of the label. `first_sequence`
    and `probability` are those of the first label for this id. `several` is true if the label names a request
    of several rows, so that it cannot be joined to one of them.
    """

    answer: Ints
    label: Ints
    time: Floats
    sequence: Ints
    row: Ints
    first_sequence: Ints
    probability: NDArray[np.floating]
    several: NDArray[np.bool_]
    number: Floats
