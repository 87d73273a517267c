"""The columns that the join of labels takes and gives."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from monitor.records import NO_ID, Floats, Ints, Keys, mix

_MODEL_SALT = np.uint64(0xD6E8FEB86659FD93)


def answer_keys(keys: Keys, model: Ints) -> Keys:
    """Keys of (id, model) pairs; `NO_ID` stays what it is."""
    salted = mix(keys ^ ((model.astype(np.uint64) + np.uint64(1)) * _MODEL_SALT))
    salted[salted == NO_ID] = np.uint64(1)
    salted[keys == NO_ID] = NO_ID
    return salted


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
    """

    series: Ints
    window: Ints
    labelled: Ints
    correct: Ints
    sequence: Ints

    @classmethod
    def none(cls) -> Matches:
        """No match."""
        empty = np.zeros(0, dtype=np.int64)
        return cls(empty, empty, empty, empty, empty)

    def take(self, index: Ints | slice) -> Matches:
        """The matches at these places."""
        return Matches(
            self.series[index],
            self.window[index],
            self.labelled[index],
            self.correct[index],
            self.sequence[index],
        )

    @classmethod
    def join(cls, parts: list[Matches]) -> Matches:
        """All matches of several steps."""
        if not parts:
            return cls.none()
        return cls(
            *(
                np.concatenate([getattr(part, name) for part in parts])
                for name in ("series", "window", "labelled", "correct", "sequence")
            )
        )


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
    """

    key: Keys
    model: Ints
    predicted: Ints
    time: Floats
    sequence: Ints
    series: Ints
    window: Ints

    def take(self, index: Ints) -> Answers:
        """The answers at these places."""
        return Answers(
            self.key[index],
            self.model[index],
            self.predicted[index],
            self.time[index],
            self.sequence[index],
            self.series[index],
            self.window[index],
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
class Labels:
    """Labels on their way in; `model` is -1 where one is about all answers with its id."""

    key: Keys
    model: Ints
    label: Ints
    time: Floats
    sequence: Ints

    def take(self, index: slice) -> Labels:
        """The labels at these places."""
        return Labels(
            self.key[index], self.model[index], self.label[index], self.time[index], self.sequence[index]
        )


@dataclass(frozen=True, slots=True)
class Pairs:
    """Answers (rows of the ring) and a label of each; `row` is that label's row, -1 where it is settled."""

    answer: Ints
    label: Ints
    time: Floats
    sequence: Ints
    row: Ints
