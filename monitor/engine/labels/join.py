"""The join of labels with answers by id. Labels may come before their answers. The memory is bounded.

Answers and labels are stored in one `BoundedTable` each. A label matches an answer with the same id if their
times differ by at most the horizon. Records come in steps, such as chunks. In each step, the caller first
adds the answers (`is_new`, `add_answers`), then the labels (`add_labels`). The result equals the result of a
join that reads one record after another. So it does not depend on the division of the stream into steps.

There are two exceptions. First, if the memory is full, later answers of a step may overwrite an answer before
a label of the same step can match it. Second, one step may have the same id twice, at times that differ by
more than the horizon. Records between the two may then miss the first one.

If a source numbers the rows of its requests, a client knows the id of the request, `r-1`, but not the id of
the row, `r-1:0`. So a label with the id of a request of one row is joined to the model's answer for this row.
There is one exception: if the model has already answered with exactly the label's id, the label is joined to
that answer. If the request had several rows, the label is not joined.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from monitor.base.records import NO_ID, Floats, Ints, Keys, LabelBatch
from monitor.base.state_changes import RingState
from monitor.engine.labels.columns import (
    NO_LABEL,
    SEVERAL,
    Answers,
    Forgotten,
    Horizon,
    Labels,
    Matches,
    Pairs,
    answer_columns,
    answer_keys,
    keys_of,
    label_columns,
    model_code,
)
from monitor.engine.labels.matching import Repeats, assign_labels, repeats
from monitor.engine.labels.table import LARGEST, BoundedTable
from monitor.reports.views import LabelOutcome
from monitor.stats.regression.tolerance import Tolerance

__all__ = ["Answers", "LabelJoin", "LabelJoinLogic", "Matches"]

_PAIRS_AT_ONCE = 1 << 17  # of labels and models, so that a thousand models do not cost a gigabyte
_LAGS_KEPT = 1000
_SECONDS_A_DAY = 86_400.0
_FEWEST_LABELS = 1000  # with fewer rows, the table would cut a batch of labels into many pieces


@dataclass(frozen=True, slots=True)
class LabelJoin:
    """The settings of a task's label join.

    Parameters
    ----------
    horizon_days : float
        The largest time between a label and its answer. A second answer with the same id within this time is
        a duplicate. A later answer is a new use of the id. An id should not be reused within twice this time,
        because a label could then match both uses.
    max_answers : int
        The largest number of stored answers, 1 to 500 million; new answers overwrite the oldest.
    max_waiting : int
        The largest number of stored labels, 0 to 500 million; new labels overwrite the oldest. At least 1,000
        are always stored.
    series_per_answer : int
        The number of series that an answer counts in: its model, and one group for each group name of the
        task.
    max_bytes : int, optional
        The largest memory of answers and labels together. If they would need more, `max_answers` and
        `max_waiting` are reduced by the same factor. An answer needs at most 88 bytes and 16 for each group.
        It needs 8 + 4 K more if K scores are stored, and 1 more if a source numbers rows. A label needs 73
        bytes.
    scored : int
        The number of scores of each answer that are stored for refits; 0 without refits.
    numbered : bool
        Whether labels may name a request whose rows are numbered.
    tolerance : Tolerance, optional
        The largest error of a right answer, if predictions and labels are numbers. An answer then needs 16
        bytes more, and a label 8.
    truths : bool
        Whether the matches have the labels' numbers, for metrics of errors that need them.
    stated : bool
        Whether the ends of stated intervals are stored, so that the matches say whether the label is inside.
        An answer then needs 16 bytes more.

    Raises
    ------
    ValueError
        A number is out of range.
    """

    horizon_days: float
    max_answers: int
    max_waiting: int
    series_per_answer: int = 1
    max_bytes: int | None = None
    scored: int = 0
    numbered: bool = False
    tolerance: Tolerance | None = None
    truths: bool = False
    stated: bool = False

    def __post_init__(self) -> None:
        if not self.horizon_days > 0:
            raise ValueError(f"horizon_days must be above 0, got {self.horizon_days}")
        if self.series_per_answer < 1:
            raise ValueError(f"series_per_answer must be at least 1, got {self.series_per_answer}")
        for name, least in (("max_answers", 1), ("max_waiting", 0)):
            got = getattr(self, name)
            if not least <= got <= LARGEST:
                raise ValueError(f"{name} must be from {least} to {LARGEST:,}, got {got:,}")

    @property
    def rows(self) -> tuple[int, int]:
        """The largest number of stored answers, and the largest number of stored labels."""
        within = (self.max_answers, self.max_waiting, self.series_per_answer, self.scored, self.numbered)
        return rows_within(self.max_bytes, *within, self.tolerance is not None, self.stated)

    def build(self, resume: JoinState | None = None) -> LabelJoinLogic:
        """Return the join, new or resumed from a snapshot."""
        return LabelJoinLogic(self, resume)


class JoinState(msgspec.Struct, frozen=True):
    """The stored state of a join.

    If the store saves the rows of answers and labels separately, `answers` and `labels` are None. `tolerance`
    has the fields of the `Tolerance` by which labels were compared with predictions; None without numbers.
    `truths` is true if the answers have their labels' numbers, which older versions did not store; `stated`
    if they have the ends of their stated intervals.
    """

    outcomes: dict[str, int] = {}
    waiting: int = 0
    forgotten: int = 0
    named: bool = False
    newest: float = -np.inf
    lags: list[float] = []
    answers: RingState | None = None
    labels: RingState | None = None
    tolerance: tuple[float, bool] | None = None
    truths: bool = False
    stated: bool = False


class LabelJoinLogic:
    """The running join of one task.

    Attributes
    ----------
    outcomes : Counter of LabelOutcome
        The numbers of labels by outcome: matched, duplicate, conflicting, expired or ambiguous.
    forgotten : int
        The number of answers that were overwritten without a label, although their labels could still come.
    waiting : int
        The number of labels that do not have an outcome yet, because their answers have not come.
    truths : bool
        As in `LabelJoin`.

    Notes
    -----
    A label expires in three cases. First, it comes when all known answers with its id are further away than
    the horizon. Second, an answer comes whose time is more than a horizon later (this is checked once each
    hundredth of a horizon). Third, another label overwrites it. In the first two cases, the expired label can
    still match an answer that comes late.
    """

    def __init__(self, settings: LabelJoin, resume: JoinState | None = None) -> None:
        state = resume or JoinState()
        self._horizon = Horizon(settings.horizon_days * _SECONDS_A_DAY)
        most_answers, self._most_labels = settings.rows
        self._numbered, self._tolerance = settings.numbered, settings.tolerance
        self.truths, self._stated = settings.truths, settings.stated
        self._kinds = settings.scored, self._numbered, self._tolerance is not None, self._stated
        columns = answer_columns(settings.series_per_answer, *self._kinds)
        self._answers = BoundedTable(columns, most_answers, state.answers)
        if self._tolerance is not None and not state.truths:
            self._answers.put("truth", np.arange(len(self._answers)), np.nan)
        for end in ("lower", "upper") if self._stated and not state.stated else ():
            self._answers.put(end, np.arange(len(self._answers)), np.nan)
        self._label_columns = label_columns(self._tolerance is not None)
        self._labels = BoundedTable(self._label_columns, self._most_labels, state.labels)
        self.outcomes: Counter[LabelOutcome] = Counter(
            {LabelOutcome(name): count for name, count in state.outcomes.items()}
        )
        self.waiting, self.forgotten = state.waiting, state.forgotten
        self._named = state.named  # whether a label has ever named a model
        self._newest = state.newest
        self._lags = deque(state.lags, maxlen=_LAGS_KEPT)
        self._checked_at = float(self._horizon.mark(self._newest))
        self._sequence, self._clock = np.array([-1]), np.array([-np.inf])  # of the last step's answers

    @property
    def rings(self) -> dict[str, BoundedTable]:
        """The ring tables with the keys ``answers`` and ``labels``."""
        return {"answers": self._answers, "labels": self._labels}

    def snapshot(self, rings: bool = True) -> JoinState:
        """Return the state between two steps, with or without the rows of the ring tables."""
        outcomes = {outcome.value: count for outcome, count in self.outcomes.items()}
        counts = outcomes, self.waiting, self.forgotten, self._named, self._newest, list(self._lags)
        known = self._tolerance
        return JoinState(
            *counts,
            answers=self._answers.snapshot() if rings else None,
            labels=self._labels.snapshot() if rings else None,
            tolerance=None if known is None else (known.value, known.relative),
            truths=known is not None,
            stated=self._stated,
        )

    @property
    def lag_seconds(self) -> float | None:
        """The median time from answer to label of the newest 1,000 matches; None before the first match."""
        return float(np.median(self._lags)) if self._lags else None

    @property
    def waiting_keys(self) -> Keys:
        """The keys of labels whose answers have not come, (waiting,), in increasing order."""
        rows = np.flatnonzero(~self._labels["settled"][: len(self._labels)])
        keys = self._labels.keys(rows)
        waiting: Keys = np.unique(keys[keys != 0])
        return waiting

    def may_know(self, ids: Keys, model: str) -> NDArray[np.bool_]:
        """Return for each id whether a stored answer of the model may match a label with this id, (n,)."""
        if self._numbered:
            return np.ones(len(ids), dtype=bool)
        keys = answer_keys(ids, np.full(len(ids), model_code(model)))
        known: NDArray[np.bool_] = self._answers.find(keys) >= 0
        return known

    def is_new(self, key: Keys, model: Ints, time: Floats) -> NDArray[np.bool_]:
        """Return for each answer whether it is new, (n,); the others are duplicates.

        An answer is a duplicate if an answer of the same model with the same id came within the horizon
        before. The caller must pass the new answers to `add_answers` next. An answer without an id is always
        new. An answer whose model is -1 is not examined, and is always new.
        """
        new = np.ones(len(key), dtype=bool)
        rows = np.flatnonzero((key != NO_ID) & (model >= 0))
        keys, time = answer_keys(key[rows], model[rows]), time[rows]
        known = self._answers.find(keys)
        seen = np.flatnonzero(known >= 0)
        before = np.full(len(rows), -np.inf)
        before[seen] = self._answers["time"][known[seen]]
        fresh = time - before > self._horizon.seconds
        again, _, first = repeats(keys)
        latest: dict[int, float] = {}
        for row, head in zip(again.tolist(), first.tolist(), strict=True):
            used = latest.setdefault(head, float(time[head] if fresh[head] else before[head]))
            fresh[row] = time[row] - used > self._horizon.seconds
            if fresh[row]:
                latest[head] = float(time[row])
        self._answers.forget(known[fresh & (known >= 0)])
        new[rows] = fresh
        return new

    def add_answers(self, answers: Answers) -> Matches:
        """Store the new answers of a step; return their matches with labels of earlier steps."""
        kept = np.flatnonzero(answers.key != NO_ID)
        if not len(kept):
            return Matches.none()
        answers = answers if len(kept) == len(answers.key) else answers.take(kept)
        clock = np.maximum.accumulate(np.maximum(answers.time, self._newest))
        self._newest = float(clock[-1])
        self._sequence, self._clock = answers.sequence, clock
        keys = answer_keys(answers.key, answers.model)
        again = np.sort(repeats(keys)[0])
        once = np.delete(np.arange(len(keys)), again)
        parts = [self._keep(keys[once], answers.take(once)) if len(again) else self._keep(keys, answers)]
        for row in again[:, np.newaxis]:  # an id used again in the step, after a horizon: rare
            self._answers.forget(self._answers.find(keys[row]))
            parts.append(self._keep(keys[row], answers.take(row)))
        self._expire_outdated()
        return Matches.join(parts)

    def add_labels(self, labels: LabelBatch, models: Ints, all_models: Ints, sequence: Ints) -> Matches:
        """Add the labels of a step; return their matches with known answers.

        `models` contains the number of each label's model; -1 means that the label applies to every model.
        `all_models` contains the numbers of all models of the task.
        """
        self._named |= bool((models >= 0).any())
        keys = np.where(models < 0, labels.key, answer_keys(labels.key, models))
        ids = labels.key, labels.first_row
        number = np.broadcast_to(np.nan, len(keys)) if self._tolerance is None else labels.numbers[:, 0]
        rest = Labels(*ids, models, labels.label, labels.time, sequence, labels.probability, number)
        parts = []
        while len(keys):
            some = keys[: self._most_labels]
            repeated = repeats(some)
            stop = self._count_until_reuse(some, repeated, rest)
            if stop < len(some):
                some, repeated = some[:stop], repeats(some[:stop])
            parts.append(self._add_some(some, rest.take(slice(stop)), repeated, all_models))
            keys, rest = keys[stop:], rest.take(slice(stop, None))
        return Matches.join(parts)

    def forget(self, ids: Keys, models: Ints) -> Forgotten:
        """Delete the answers and labels of these models with these ids.

        Deleted labels whose answers had not come count as expired.
        """
        of_answers, of_labels = keys_of(ids, models)
        waited = self.waiting
        self._settle(self._labels.find(of_labels), LabelOutcome.EXPIRED)
        return Forgotten(
            answers=self._answers.wipe(of_answers),
            labels=self._labels.wipe(of_labels),
            waiting=waited - self.waiting,
        )

    def expire(self, kind: str, rows: Ints) -> None:
        """Count as expired the labels that will be removed before their answers have come.

        `rows` are their row indices in the ring table `kind`. With ``"answers"``, nothing is counted.
        """
        self._settle(rows if kind == "labels" else rows[:0], LabelOutcome.EXPIRED)

    def _keep(self, keys: Keys, answers: Answers) -> Matches:
        """Store answers with distinct keys, and match them with the stored labels."""
        self._note_forgotten(len(keys))
        rows = self._answers.add(keys, answers.to_columns(*self._kinds))
        if not len(self._labels):
            return Matches.none()
        hits = [self._labels.find(answers.key)]
        if self._named:
            hits.append(self._labels.find(keys))
        label, answer = np.concatenate(hits), np.tile(rows, len(hits))
        if self._numbered:
            by_request = self._find_labels_of_requests(answers, rows)
            label, answer = (np.concatenate(each) for each in zip((label, answer), by_request, strict=True))
        hit = np.flatnonzero((label >= 0) & (answer >= 0))
        row, exact = label[hit], hit < len(hits) * len(rows)
        names = [name for name in self._label_columns if name != "settled"]
        columns = {"number": np.broadcast_to(np.nan, len(row))} | {
            name: self._labels[name][row] for name in names
        }
        several = ~exact & self._have_several_rows(answer[hit])
        return self._match(Pairs(answer[hit], row=row, several=several, **columns))

    def _find_labels_of_requests(self, answers: Answers, rows: Ints) -> tuple[Ints, Ints]:
        """Return the rows of labels that name these answers' requests, and the rows of the answers."""
        of = np.flatnonzero((answers.request != NO_ID) & (rows >= 0))
        request, model = answers.request[of], answers.model[of]
        keys = answer_keys(request, model)
        label = np.concatenate([self._labels.find(request), self._labels.find(keys)])
        answer = np.tile(rows[of], 2)
        came = np.maximum(self._answers["sequence"][answer], self._labels["sequence"][label])
        met = (label >= 0) & ~self._answered_exactly(np.tile(keys, 2), came)
        return label[met], answer[met]

    def _answered_exactly(self, keys: Keys, came: Ints) -> NDArray[np.bool_]:
        """Return whether answers with these keys were known at these places in the stream."""
        exact = self._answers.find(keys)
        known: NDArray[np.bool_] = (exact >= 0) & (self._answers["sequence"][exact] < came)
        return known

    def _have_several_rows(self, rows: Ints) -> NDArray[np.bool_]:
        """Return whether the requests of these answers have several rows."""
        if not self._numbered:
            return np.zeros(len(rows), dtype=bool)
        several: NDArray[np.bool_] = self._answers["rows"][rows] == SEVERAL
        return several

    def _note_forgotten(self, added: int) -> None:
        """Count the answers without labels that `added` new answers will overwrite."""
        out = self._answers.overwritten_by(added)
        young = self._newest - self._answers["time"][out] <= self._horizon.seconds
        awaited = young & (self._answers["label"][out] == NO_LABEL)
        self.forgotten += int(awaited.sum()) + max(0, added - self._answers.limit)

    def _count_until_reuse(self, keys: Keys, repeated: Repeats, labels: Labels) -> int:
        """Return the number of labels before the first label that uses an id again."""
        again, _, first = repeated
        if not len(again):
            return len(keys)
        rows, time = self._labels.find(keys[first]), labels.time[first]
        kept = self._labels["time"][rows]
        time = np.where((rows >= 0) & self._horizon.is_near(time - kept), kept, time)
        reused = again[~self._horizon.is_near(labels.time[again] - time)]
        return int(reused.min()) if len(reused) else len(keys)

    def _add_some(self, keys: Keys, labels: Labels, repeated: Repeats, all_models: Ints) -> Matches:
        """Add labels, of which each id has only one use, and which the ring can store."""
        rows, time, new_or_changed = self._store_labels(keys, labels, repeated)
        answer, label, exact = self._find_answers(labels, np.flatnonzero(new_or_changed), all_models)
        came, probability = labels.sequence[label], labels.probability[label]
        several = ~exact & self._have_several_rows(answer)
        number = labels.number[label]
        matches = self._match(
            Pairs(
                answer,
                labels.label[label],
                time[label],
                came,
                rows[label],
                came,
                probability,
                several,
                number,
            )
        )
        self._expire(rows[rows >= 0])
        return matches

    def _store_labels(
        self, keys: Keys, labels: Labels, repeated: Repeats
    ) -> tuple[Ints, Floats, NDArray[np.bool_]]:
        """Store labels.

        A label that changes an earlier label keeps the earlier label's time, because it belongs to the same
        request.

        Return the rows of new labels (-1 for others), the times, and which labels are new or changed.
        """
        again, previous, first = repeated
        rows = self._find_same_use(keys, labels.time)
        known = np.flatnonzero(rows >= 0)
        before, time = np.full(len(keys), NO_LABEL), labels.time.copy()
        number = np.full(len(keys), np.nan)
        before[known] = self._labels["label"][rows[known]]
        if self._tolerance is not None:
            number[known] = self._labels["number"][rows[known]]
            number[again] = labels.number[previous]
        time[known] = self._labels["time"][rows[known]]
        before[again] = labels.label[previous]
        time[again] = time[first]
        fresh = rows < 0
        fresh[again] = False
        changed = ~fresh & labels.differ_from(before, number)
        self.outcomes[LabelOutcome.CONFLICTING] += int(changed.sum())
        self.outcomes[LabelOutcome.DUPLICATE] += int((~fresh & ~changed).sum())
        # The last of several changes to a row stays, because numpy assigns repeated indices in order.
        old = np.flatnonzero(changed & (rows >= 0))
        moved = changed[again]
        stored: dict[str, NDArray[Any]] = {}
        for name in ("label", "sequence", "number"):
            if name not in self._labels:
                continue
            column = getattr(labels, name)
            self._labels.put(name, rows[old], column[old])
            stored[name] = column.copy()
            stored[name][first[moved]] = column[again[moved]]
        stored |= {"time": time, "first_sequence": labels.sequence, "probability": labels.probability}
        rows[:] = -1
        rows[fresh] = self._add_to_ring(keys[fresh], {name: column[fresh] for name, column in stored.items()})
        return rows, time, fresh | changed

    def _find_same_use(self, keys: Keys, time: Floats) -> Ints:
        """Return the row of each key, or -1. Labels of an earlier use of an id are forgotten."""
        rows = self._labels.find(keys)
        known = np.flatnonzero(rows >= 0)
        old = known[~self._horizon.is_near(time[known] - self._labels["time"][rows[known]])]
        self._settle(rows[old], LabelOutcome.EXPIRED)
        self._labels.forget(rows[old])
        rows[old] = -1
        return rows

    def _add_to_ring(self, keys: Keys, columns: Mapping[str, NDArray[Any]]) -> Ints:
        self._settle(self._labels.overwritten_by(len(keys)), LabelOutcome.EXPIRED)
        self.waiting += len(keys)
        return self._labels.add(keys, {**columns, "settled": np.zeros(len(keys), dtype=bool)})

    def _find_answers(
        self, labels: Labels, which: Ints, all_models: Ints
    ) -> tuple[Ints, Ints, NDArray[np.bool_]]:
        """Return pairs of an answer's row and a label's index, and whether their ids are equal.

        A label that names no model applies to the answers of every model.
        """
        model = labels.model[which]
        hits = [self._hits(labels, which[model >= 0], model[model >= 0])]
        general = which[model < 0]
        step = max(1, _PAIRS_AT_ONCE // max(len(all_models), 1))
        for start in range(0, len(general), step):
            some = general[start : start + step]
            hits.append(self._hits(labels, np.repeat(some, len(all_models)), np.tile(all_models, len(some))))
        answers, label, exact = zip(*hits, strict=True)
        return np.concatenate(answers), np.concatenate(label), np.concatenate(exact)

    def _hits(self, labels: Labels, label: Ints, model: Ints) -> tuple[Ints, Ints, NDArray[np.bool_]]:
        keys = answer_keys(labels.key[label], model)
        answers = self._answers.find(keys)
        hit = answers >= 0
        matched, of = answers[hit], label[hit]
        if not self._numbered:
            return matched, of, np.ones(len(of), dtype=bool)
        row = self._answers.find(answer_keys(labels.first_row[label], model))
        came = np.maximum(self._answers["sequence"][row], labels.sequence[label])
        met = (row >= 0) & (self._answers["rows"][row] > 0) & ~self._answered_exactly(keys, came)
        exact = np.arange(len(of) + int(met.sum())) < len(of)
        return np.concatenate([matched, row[met]]), np.concatenate([of, label[met]]), exact

    def _clock_at(self, sequence: Ints) -> Floats:
        """Return the largest time of an answer up to these answers of the last step, in seconds."""
        place = np.searchsorted(self._sequence, sequence)
        return self._clock[np.minimum(place, len(self._clock) - 1)]

    def _match(self, pairs: Pairs) -> Matches:
        """Join the pairs within the horizon, and count the outcomes of their labels."""
        if not len(pairs.answer):
            return Matches.none()
        lag = pairs.time - self._answers["time"][pairs.answer]
        near = self._horizon.is_near(lag)
        came = self._answers["sequence"][pairs.answer]
        there = came <= pairs.sequence
        outdated = self._horizon.is_outdated(pairs.time, self._clock_at(came))
        # In this order: answers known before the label decide first. `_expire_outdated` finds the labels that
        # are outdated when their answers come.
        joins = near & ~pairs.several
        self._settle(pairs.row[there & joins], LabelOutcome.MATCHED)
        if pairs.several.any():
            self._settle(pairs.row[there & near], LabelOutcome.AMBIGUOUS)
        self._settle(pairs.row[there & ~near], LabelOutcome.EXPIRED)
        later = near & ~there & ~outdated
        if pairs.several.any():
            self._settle_by_first(pairs.row[later], came[later], pairs.several[later])
        else:
            self._settle(pairs.row[later], LabelOutcome.MATCHED)
        self._lags.extend(lag[joins][-_LAGS_KEPT:].tolist())
        return assign_labels(self._answers, pairs.take(joins), self._tolerance, self.truths)

    def _settle_by_first(self, rows: Ints, came: Ints, several: NDArray[np.bool_]) -> None:
        """Count the outcome of each label by the first answer that came after it."""
        order = np.argsort(came, kind="stable")
        labels, first = np.unique(rows[order], return_index=True)
        ambiguous = several[order][first]
        self._settle(labels[~ambiguous], LabelOutcome.MATCHED)
        self._settle(labels[ambiguous], LabelOutcome.AMBIGUOUS)

    def _settle(self, rows: Ints, outcome: LabelOutcome) -> None:
        """Count the waiting labels among these rows under an outcome; a row of -1 means no label."""
        if not len(rows):  # the usual case
            return
        waiting = np.unique(rows[rows >= 0])
        waiting = waiting[~self._labels["settled"][waiting]]
        self._labels.put("settled", waiting, True)
        self.outcomes[outcome] += len(waiting)
        self.waiting -= len(waiting)

    def _expire(self, rows: Ints) -> None:
        """Expire the labels at these rows that have waited too long."""
        stale = self._horizon.is_outdated(self._labels["time"][rows], self._newest)
        self._settle(rows[stale], LabelOutcome.EXPIRED)

    def _expire_outdated(self) -> None:
        """Expire labels that have waited too long, once for each step of the clock."""
        mark = float(self._horizon.mark(self._newest))
        if mark <= self._checked_at:
            return
        self._checked_at = mark
        self._expire(np.arange(len(self._labels)))


def rows_within(
    max_bytes: int | None,
    max_answers: int,
    max_labels: int,
    series: int,
    scored: int = 0,
    numbered: bool = False,
    numeric: bool = False,
    stated: bool = False,
) -> tuple[int, int]:
    """Return the numbers of answers and labels that fit into `max_bytes`.

    If both do not fit, they are reduced by the same factor. The result is at least one answer and 1,000
    labels. If `max_bytes` is None, there is no limit.

    Examples
    --------
    >>> rows_within(None, 1_000_000, 100_000, series=1)
    (1000000, 100000)
    >>> rows_within(47_650_000, 1_000_000, 100_000, series=1)
    (500000, 50000)
    """
    labels = max(max_labels, _FEWEST_LABELS)
    if max_bytes is None:
        return max_answers, labels
    answer = BoundedTable.bytes_per_row(answer_columns(series, scored, numbered, numeric, stated))
    label = BoundedTable.bytes_per_row(label_columns(numeric))
    share = min(1.0, max_bytes / (max_answers * answer + labels * label))
    labels = max(int(labels * share), _FEWEST_LABELS)
    return max(1, min(max_answers, (max_bytes - labels * label) // answer)), labels
