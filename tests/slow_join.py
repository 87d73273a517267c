"""The join of labels, one record at a time in plain dictionaries, and how to run the real one beside it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from monitor.base.records import LabelBatch, id_keys
from monitor.engine.labels.columns import answer_keys
from monitor.engine.labels.join import Answers, LabelJoin, LabelJoinLogic, Matches
from monitor.reports.views import LabelOutcome
from tests.plain_state import through_msgpack

HORIZON_DAYS = 0.01
HORIZON = HORIZON_DAYS * 86_400.0  # 864 seconds
MODELS = 3
SETTINGS = LabelJoin(
    HORIZON_DAYS, max_answers=5000, max_waiting=5000, series_per_answer=2, scored=2, numbered=True
)

Change = tuple[int, int, int]  # sequence, series, window
Sums = tuple[float, float, float, float]
Counts = dict[Change, Sums]  # labelled rows, correct ones, and their weights, added at that sequence


@dataclass(frozen=True)
class Answer:
    id: str
    model: int
    time: float
    predicted: int = 0
    group: int = -1
    rows: int = 0  # of its request; then its id is the request's, a colon and the row's number

    @property
    def request(self) -> str:
        return self.id.removesuffix(":0") if self.rows and self.id.endswith(":0") else ""


@dataclass(frozen=True)
class Label:
    id: str
    value: int
    time: float
    model: int = -1
    probability: float = math.nan


Record = Answer | Label


@dataclass
class Known:
    """An answer or a label that the slow join keeps."""

    record: Any
    sequence: int
    label: int | None = None
    waiting: bool = False
    first_sequence: int = -1
    weight: float = 1.0
    replaced: bool = False


@dataclass
class SlowJoin:
    """One record at a time, by the rules in words; nothing is ever pushed out."""

    answers: dict[tuple[str, int], Known] = field(default_factory=dict)
    labels: dict[tuple[str, int], Known] = field(default_factory=dict)
    clock: float = -math.inf
    outcomes: Counter[LabelOutcome] = field(default_factory=Counter)
    counts: Counts = field(default_factory=dict)

    @property
    def waiting(self) -> int:
        return sum(label.waiting for label in self.labels.values())

    def take(self, record: Record, sequence: int) -> None:
        if isinstance(record, Label):
            self._label(record, sequence)
        elif record.id:
            self._answer(record, sequence)

    def _answer(self, answer: Answer, sequence: int) -> None:
        seen = self.answers.get((answer.id, answer.model))
        if seen is not None and answer.time - seen.record.time <= HORIZON:
            return
        self.clock = max(self.clock, answer.time)
        for label in self.labels.values():
            if label.waiting and self._outdated(label):
                self._settle(label, LabelOutcome.EXPIRED)
        known = self.answers[answer.id, answer.model] = Known(answer, sequence)
        candidates = [self.labels.get((answer.id, model)) for model in (-1, answer.model)]
        if answer.request and (answer.request, answer.model) not in self.answers:
            by_request = [self.labels.get((answer.request, model)) for model in (-1, answer.model)]
            if answer.rows == 1:
                candidates += by_request
            for one in by_request:
                if one and abs(one.record.time - answer.time) <= HORIZON and answer.rows > 1:
                    self._settle(one, LabelOutcome.AMBIGUOUS)
        near = [one for one in candidates if one and abs(one.record.time - answer.time) <= HORIZON]
        if near:
            known.weight = weight_of(min(near, key=lambda one: one.first_sequence).record)
        for label in sorted(near, key=lambda one: one.sequence):
            self._settle(label, LabelOutcome.MATCHED)
            self._give(known, label.label, sequence)
            known.replaced |= label.sequence != label.first_sequence

    def _label(self, label: Label, sequence: int) -> None:
        known = self.labels.get((label.id, label.model))
        if known is not None and abs(label.time - known.record.time) > HORIZON:
            self._settle(known, LabelOutcome.EXPIRED)
            known = None
        if known is not None and known.label == label.value:
            self.outcomes[LabelOutcome.DUPLICATE] += 1
            return
        changes = known is not None
        if known is not None:
            self.outcomes[LabelOutcome.CONFLICTING] += 1
            known.label, known.sequence = label.value, sequence
        else:
            known = self.labels[label.id, label.model] = Known(
                label, sequence, label.value, waiting=True, first_sequence=sequence
            )
        models = range(MODELS) if label.model < 0 else (label.model,)
        there = [self.answers[label.id, model] for model in models if (label.id, model) in self.answers]
        others = [model for model in models if (label.id, model) not in self.answers]
        rows = [self.answers.get((f"{label.id}:0", model)) for model in others]
        there += [one for one in rows if one and one.record.rows]
        near = [one for one in there if abs(known.record.time - one.record.time) <= HORIZON]
        several = [one for one in near if one.record.rows > 1 and one.record.id != label.id]
        near = [one for one in near if one not in several]
        for answer in near:
            if answer.label is None:
                answer.weight = weight_of(known.record)
            self._give(answer, label.value, sequence)
        if changes:  # what became of the label that it changes is settled without it
            return
        if near:
            self._settle(known, LabelOutcome.MATCHED)
        elif several:
            self._settle(known, LabelOutcome.AMBIGUOUS)
        elif there or self._outdated(known):
            self._settle(known, LabelOutcome.EXPIRED)

    def _outdated(self, label: Known) -> bool:
        if self.clock == -math.inf:
            return False
        hundredth = HORIZON / 100
        return bool(
            math.floor(self.clock / hundredth) > math.floor((label.record.time + HORIZON) / hundredth)
        )

    def _settle(self, label: Known, outcome: LabelOutcome) -> None:
        if label.waiting:
            label.waiting = False
            self.outcomes[outcome] += 1

    def _give(self, answer: Known, value: int | None, sequence: int) -> None:
        right = int(value == answer.record.predicted)
        was_right = int(answer.label == answer.record.predicted)
        answer.replaced |= answer.label not in (None, value)
        for series, window in cells(answer.record, answer.sequence):
            before = self.counts.get((sequence, series, window), (0, 0, 0, 0))
            change = (int(answer.label is None), right - was_right)
            self.counts[sequence, series, window] = added(before, *change, answer.weight)
        answer.label = value


def weight_of(label: Label) -> float:
    return 1.0 if math.isnan(label.probability) else 1.0 / label.probability


def added(sums: Sums, labelled: int, correct: int, weight: float) -> Sums:
    n, k, of_labelled, of_correct = sums
    return n + labelled, k + correct, of_labelled + labelled * weight, of_correct + correct * weight


def confidence_of(sequence: int) -> float:
    """Return the confidence of the answer at this place."""
    return sequence % 64 / 64


def cells(answer: Answer, sequence: int) -> list[tuple[int, int]]:
    """Return the (series, window) in which an answer counts: its model's, and its group's where it has
    one.
    """
    own = (answer.model, sequence // 3)
    return [own] if answer.group < 0 else [own, (10 + answer.group, sequence // 5)]


def key_of(ids: Iterable[str]) -> np.ndarray[Any, np.dtype[np.uint64]]:
    return id_keys(list(ids))


def step(join: LabelJoinLogic, records: Sequence[tuple[int, Record]]) -> list[Matches]:
    """Return one step as the engine makes it: answers that are no duplicates, then labels."""
    answers = [(sequence, one) for sequence, one in records if isinstance(one, Answer)]
    labels = [(sequence, one) for sequence, one in records if isinstance(one, Label)]
    matches: list[Matches] = []
    if answers:
        new = join.is_new(
            key_of(one.id for _, one in answers),
            np.array([one.model for _, one in answers]),
            np.array([one.time for _, one in answers], dtype=float),
        )
        matches.append(join.add_answers(columns([pair for pair, ok in zip(answers, new, strict=True) if ok])))
    if labels:
        models = np.array([one.model for _, one in labels])
        sequences = np.array([sequence for sequence, _ in labels])
        batch = label_batch([one for _, one in labels])
        matches.append(join.add_labels(batch, models, np.arange(MODELS), sequences))
    return matches


def columns(answers: Sequence[tuple[int, Answer]]) -> Answers:
    places = [[*cells(one, sequence), (-1, -1)][:2] for sequence, one in answers]
    pairs = np.array(places, dtype=np.int64).reshape(len(answers), 2, 2)
    return Answers(
        key=key_of(one.id for _, one in answers),
        model=np.array([one.model for _, one in answers], dtype=np.int64),
        predicted=np.array([one.predicted for _, one in answers], dtype=np.int64),
        time=np.array([one.time for _, one in answers], dtype=float),
        sequence=np.array([sequence for sequence, _ in answers], dtype=np.int64),
        series=pairs[:, :, 0],
        window=pairs[:, :, 1],
        confidence=np.array([confidence_of(sequence) for sequence, _ in answers]),
        scores=np.zeros((len(answers), 2)),
        request=key_of(one.request for _, one in answers),
        alone=np.array([one.rows == 1 for _, one in answers], dtype=bool),
    )


def label_batch(labels: Sequence[Label]) -> LabelBatch:
    return LabelBatch(
        task="t",
        key=key_of(one.id for one in labels),
        label=np.array([one.value for one in labels], dtype=np.int64),
        model=np.array([one.model for one in labels], dtype=np.int64),
        models=("a", "b", "c"),
        time=np.array([one.time for one in labels], dtype=float),
        probability=np.array([one.probability for one in labels], dtype=float),
        order=np.arange(len(labels)),
        first_row=key_of(f"{one.id}:0" for one in labels),
    )


def counted(matches: Iterable[Matches]) -> Counts:
    """Return the sums of matches, by (sequence, series, window); nothing where they cancel out."""
    counts: Counts = {}
    for part in matches:
        rows = zip(
            part.sequence, part.series, part.window, part.labelled, part.correct, part.weight, strict=True
        )
        for sequence, series, window, labelled, correct, weight in rows:
            change = (int(sequence), int(series), int(window))
            counts[change] = added(
                counts.get(change, (0, 0, 0, 0)), int(labelled), int(correct), float(weight)
            )
    return without_zeros(counts)


def rows_counted(matches: Iterable[Matches]) -> dict[Change, tuple[int, int]]:
    """Return labelled and correct rows alone."""
    return {change: (int(sums[0]), int(sums[1])) for change, sums in counted(matches).items()}


def without_zeros(counts: Counts) -> Counts:
    return {change: sums for change, sums in counts.items() if any(sums)}


def no_zeros(outcomes: Counter[LabelOutcome]) -> dict[LabelOutcome, int]:
    return {outcome: count for outcome, count in outcomes.items() if count}


def run(records: Sequence[Record], cuts: Iterable[int] = (), resume_at: int = -1) -> LabelJoinLogic:
    """Take records in steps beside the slow join; demand the same outcomes after each step, and counts."""
    join, slow = SETTINGS.build(), SlowJoin()
    matches: list[Matches] = []
    start = 0
    for place, stop in enumerate(sorted({*cuts, len(records)})):
        part = [(start + i, record) for i, record in enumerate(records[start:stop])]
        matches += step(join, part)
        for sequence, record in part:
            slow.take(record, sequence)
        start = stop
        assert (no_zeros(join.outcomes), join.waiting) == (no_zeros(slow.outcomes), slow.waiting)
        received = sum(isinstance(record, Label) for record in records[:start])
        assert received == sum(join.outcomes.values()) + join.waiting
        if place == resume_at:
            join = SETTINGS.build(through_msgpack(join.snapshot()))
    assert counted(matches) == without_zeros(slow.counts)
    assert replaced(join, slow.answers) == {name for name, known in slow.answers.items() if known.replaced}
    return join


def replaced(join: LabelJoinLogic, answers: Iterable[tuple[str, int]]) -> set[tuple[str, int]]:
    """Return those answers whose label has replaced another label."""
    ring, names = join.rings["answers"], list(answers)
    models = np.array([model for _, model in names], dtype=np.int64)
    rows = ring.find(answer_keys(key_of(name for name, _ in names), models))
    return {name for name, changed in zip(names, ring["replaced"][rows].tolist(), strict=True) if changed}
