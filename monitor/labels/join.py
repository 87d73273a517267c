"""Labels find their answers by id, in either order of arrival, in bounded memory.

Answers and labels each stand in a `KeyedRing`. A label that finds no answer waits for one; an answer
looks for waiting labels. Which batches the records came in does not matter: every match carries the
sequence at which both were known, and the engine counts it into a window's report by that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monitor.labels.table import KeyedRing
from monitor.records import NO_ID, Floats, Ints, Keys, LabelBatch, mix
from monitor.view import LabelOutcome

_MODEL_SALT = np.uint64(0xD6E8FEB86659FD93)
_WAITING, _USED, _EXPIRED = 0, 1, 2
_LAGS_KEPT = 1000
_SECONDS_A_DAY = 86_400.0
_PURGES_A_HORIZON = 100  # waiting labels are looked through so often while one horizon passes


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


@dataclass(frozen=True, slots=True)
class LabelJoin:
    """Settings of the join of one task.

    Parameters
    ----------
    horizon_days : float
        A label may come so long after its prediction; an id used again later is a new answer.
    max_answers, max_waiting : int
        Answers and labels kept, oldest out first.
    series_per_answer : int
        1, and 1 more for each watched group.
    """

    horizon_days: float
    max_answers: int
    max_waiting: int
    series_per_answer: int = 1

    def build(self, resume: Mapping[str, Any] | None = None) -> LabelJoinLogic:
        """The logic, from the start or from where a snapshot left it."""
        return LabelJoinLogic(self, resume)


class LabelJoinLogic:
    """The join of one task at work."""

    def __init__(self, settings: LabelJoin, resume: Mapping[str, Any] | None = None) -> None:
        state: Mapping[str, Any] = resume or {}
        self._horizon = settings.horizon_days * _SECONDS_A_DAY
        self._most_waiting = settings.max_waiting
        width = settings.series_per_answer
        answer_columns: dict[str, Any] = {
            "predicted": np.int32,
            "label": np.int32,
            "time": np.float64,
            "sequence": np.int64,
            "series": np.dtype((np.int32, width)),
            "window": np.dtype((np.int32, width)),
        }
        label_columns = {"label": np.int32, "time": np.float64, "state": np.int8, "sequence": np.int64}
        self._answers = KeyedRing(answer_columns, settings.max_answers, state.get("answers"))
        self._labels = KeyedRing(label_columns, settings.max_waiting, state.get("labels"))
        self.outcomes: Counter[LabelOutcome] = Counter(
            {LabelOutcome(name): count for name, count in state.get("outcomes", {}).items()}
        )
        self.waiting: int = state.get("waiting", 0)
        self._newest: float = state.get("newest", -np.inf)
        self._purged_at: float = state.get("purged_at", -np.inf)
        self._lags: list[float] = list(state.get("lags", ()))

    def snapshot(self) -> dict[str, Any]:
        """All that is kept, as arrays and plain numbers."""
        return {
            "answers": self._answers.snapshot(),
            "labels": self._labels.snapshot(),
            "outcomes": {outcome.value: count for outcome, count in self.outcomes.items()},
            "waiting": self.waiting,
            "newest": self._newest,
            "purged_at": self._purged_at,
            "lags": list(self._lags),
        }

    @property
    def lag_seconds(self) -> float | None:
        """Median time from prediction to label over the newest matches; None before the first."""
        return float(np.median(self._lags)) if self._lags else None

    def is_new(self, key: Keys, model: Ints, time: Floats) -> NDArray[np.bool_]:
        """Which answers are no duplicates: not seen within the horizon, nor earlier in this batch."""
        keys = answer_keys(key, model)
        new = np.ones(len(keys), dtype=bool)
        known = self._answers.find(keys)
        seen = np.flatnonzero(known >= 0)
        if len(seen):
            old = time[seen] - self._answers["time"][known[seen]] > self._horizon
            self._answers.forget(known[seen[old]])
            new[seen[~old]] = False
        _, first = np.unique(keys, return_index=True)
        if len(first) < len(keys):
            repeated = np.ones(len(keys), dtype=bool)
            repeated[first] = False
            new &= ~repeated
        new[key == NO_ID] = True
        return new

    def add_answers(self, answers: Answers) -> Matches:
        """Keep new answers; return the matches with labels that waited for them."""
        kept = np.flatnonzero(answers.key != NO_ID)
        if not len(kept):
            return Matches.none()
        key, model = answers.key[kept], answers.model[kept]
        keys = answer_keys(key, model)
        rows = self._answers.add(
            keys,
            {
                "predicted": answers.predicted[kept],
                "label": np.full(len(kept), -1),
                "time": answers.time[kept],
                "sequence": answers.sequence[kept],
                "series": answers.series[kept],
                "window": answers.window[kept],
            },
        )
        self._note_time(answers.time[kept])
        if not len(self._labels):
            return Matches.none()
        waiting = np.stack([self._labels.find(key), self._labels.find(keys)])
        which, column = np.nonzero((waiting >= 0) & (rows >= 0))
        return self._match(rows[column], waiting[which, column])

    def add_labels(self, labels: LabelBatch, models: Ints, all_models: int, sequence: Ints) -> Matches:
        """Take labels; return the matches with answers already known.

        `models` is each label's model index within the task, -1 for all of them, and `all_models` how
        many the task has.
        """
        keys = np.where(models < 0, labels.key, answer_keys(labels.key, models))
        self._note_time(labels.time)
        parts: list[Matches] = []
        rest = np.arange(len(keys))
        while len(rest):  # a round for each repetition of a key: such labels take effect one after another
            _, first = np.unique(keys[rest], return_index=True)
            now = rest[np.sort(first)[: self._most_waiting]]
            taken = self._take(keys[now], labels.label[now], labels.time[now], sequence[now])
            effective = taken >= 0
            answers, rows = self._find_answers(
                labels.key[now][effective], models[now][effective], all_models, taken[effective]
            )
            parts.append(self._match(answers, rows))
            rest = np.setdiff1d(rest, now)
        return Matches.join(parts)

    def _take(self, keys: Keys, label: Ints, time: Floats, sequence: Ints) -> Ints:
        """Store labels with distinct keys; return the ring row of each that says something new, else -1."""
        rows = self._labels.find(keys)
        again = rows >= 0
        changed = again & (self._labels["label"][rows] != label)
        self.outcomes[LabelOutcome.DUPLICATE] += int((again & ~changed).sum())
        self.outcomes[LabelOutcome.CONFLICTING] += int(changed.sum())
        self._labels["label"][rows[changed]] = label[changed]
        self._labels["sequence"][rows[changed]] = sequence[changed]
        fresh = np.flatnonzero(~again)
        self._expire(self._labels.overwritten_by(len(fresh)))
        self.waiting += len(fresh)
        rows[again & ~changed] = -1
        rows[fresh] = self._labels.add(
            keys[fresh],
            {
                "label": label[fresh],
                "time": time[fresh],
                "state": np.full(len(fresh), _WAITING),
                "sequence": sequence[fresh],
            },
        )
        return rows

    def _find_answers(self, keys: Keys, models: Ints, all_models: int, rows: Ints) -> tuple[Ints, Ints]:
        """Pairs of (answer row, label row): a label that names no model reaches every model's answer."""
        one = np.flatnonzero(models >= 0)
        every = np.repeat(np.flatnonzero(models < 0), all_models)
        label = np.concatenate([one, every])
        model = np.concatenate([models[one], np.arange(len(every)) % max(all_models, 1)])
        answers = self._answers.find(answer_keys(keys[label], model))
        hit = answers >= 0
        return answers[hit], rows[label[hit]]

    def _match(self, answers: Ints, labels: Ints) -> Matches:
        """Join pairs of rows, unless the label came after the horizon."""
        if not len(answers):
            return Matches.none()
        lag = self._labels["time"][labels] - self._answers["time"][answers]
        in_time = lag <= self._horizon
        self._expire(np.setdiff1d(labels[~in_time], labels[in_time]))
        answers, labels = answers[in_time], labels[in_time]
        self._lags = [*self._lags, *lag[in_time].tolist()][-_LAGS_KEPT:]
        used = np.unique(labels)
        newly = used[self._labels["state"][used] == _WAITING]
        self._labels["state"][used] = _USED
        self.outcomes[LabelOutcome.MATCHED] += len(newly)
        self.waiting -= len(newly)
        return self._write(answers, labels)

    def _write(self, answers: Ints, labels: Ints) -> Matches:
        """Give answers their labels; a corrected one counts by the difference."""
        old, new = self._answers["label"][answers], self._labels["label"][labels]
        predicted = self._answers["predicted"][answers]
        first = old < 0
        correct = (new == predicted).astype(np.int64) - (~first & (old == predicted))
        self._answers["label"][answers] = new
        sequence = np.maximum(self._answers["sequence"][answers], self._labels["sequence"][labels])
        series, window = self._answers["series"][answers], self._answers["window"][answers]
        row, column = np.nonzero(series >= 0)
        return Matches(
            series=series[row, column].astype(np.int64),
            window=window[row, column].astype(np.int64),
            labelled=first[row].astype(np.int64),
            correct=correct[row],
            sequence=sequence[row],
        )

    def _expire(self, rows: Ints) -> None:
        """Count those of these labels that still waited as expired."""
        waiting = rows[self._labels["state"][rows] == _WAITING]
        self._labels["state"][waiting] = _EXPIRED
        self.outcomes[LabelOutcome.EXPIRED] += len(waiting)
        self.waiting -= len(waiting)

    def _note_time(self, time: Floats) -> None:
        """Move the newest time on, and now and then expire labels that waited longer than the horizon."""
        if not len(time):
            return
        self._newest = max(self._newest, float(time.max()))
        if self._newest - self._purged_at < self._horizon / _PURGES_A_HORIZON:
            return
        self._purged_at = self._newest
        rows = self._labels.live()
        self._expire(rows[self._labels["time"][rows] < self._newest - self._horizon])
