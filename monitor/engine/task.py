"""The engine of a classification task, which adds answers to windows and matches labels to answers."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from monitor.base.places import sorted_by_code
from monitor.base.records import NO_ID, Batch, Chunk, Floats, Ints, Keys, LabelBatch
from monitor.base.state_changes import DRAWS, POOL, RingChange
from monitor.config.task import Task
from monitor.engine.chunks import TimedBatch, first_closing, first_concerned
from monitor.engine.evaluate import EstimationRequest, Evaluation
from monitor.engine.label_checks import FirstLabels, compare_with_labels
from monitor.engine.label_fit import LabelFit
from monitor.engine.labels.ageing import Ageing, Marks
from monitor.engine.labels.audit import judge_together
from monitor.engine.labels.columns import Forgotten, model_code
from monitor.engine.labels.join import Answers, JoinState, LabelJoin, LabelJoinLogic, Matches
from monitor.engine.labels.matching import labels_along, match_directly, merged
from monitor.engine.labels.revisions import FEWEST_KEPT, Revisions, RevisionsState
from monitor.engine.labels.table import BoundedTable
from monitor.engine.labels.tally import Cell, Cells
from monitor.engine.report_order import StreamPosition
from monitor.engine.series import Series, SeriesSettings, SeriesSnapshot
from monitor.engine.series_index import SeriesIndex
from monitor.engine.task_logic import TaskLogic, TaskOutput, TaskSettings
from monitor.engine.task_recalibrations import RecalibrationsState, TaskRecalibrations
from monitor.engine.task_refits import RefitsState, TaskRefits
from monitor.engine.windows import AnswerRows, ClosedWindow
from monitor.reports.views import EngineView, LabelOutcome
from monitor.reports.window_report import WindowReport
from monitor.stats.calibration.base import confidence_of
from monitor.stats.estimate.corrected import block_rows, block_starts


def revisions_of(settings: TaskSettings[Task], resume: RevisionsState | None = None) -> Revisions:
    """Return the `Revisions` of a task (the further reports of its windows), new or resumed from a snapshot.

    It keeps the windows of all answers that the label join can store.
    """
    task = settings.task
    filled = (1 + len(task.groups)) * (task.labels.max_answers // task.window.size)
    # Two windows fewer than are tallied: the newest may be open, and another one just begun.
    each = SeriesSettings(settings.name, "", "", task).windows_tallied - 2
    return Revisions(max(FEWEST_KEPT, filled), each, task.labels.horizon_seconds, task.level, resume)


class TaskState(msgspec.Struct, frozen=True):
    """The whole state of a task, without its settings.

    An entry of `series` contains a model, a group, and the state of this series. A store saves the rows of
    ring tables, the revisions and the series separately. In the records of the store, these fields are empty.
    """

    join: JoinState = JoinState()
    dropped: list[tuple[str, str]] = []
    dropped_count: int = 0
    refits: RefitsState | msgspec.UnsetType = msgspec.UNSET
    recalibrations: RecalibrationsState | None = None
    ageing: Marks | None = None
    revisions: RevisionsState | None = None
    series: list[tuple[str, str, SeriesSnapshot]] = []
    rule: str = ""  # the fingerprint of the rule by which predicted numbers become confidences

    def without_baseline(self) -> TaskState:
        """Return the state without all that a baseline determines.

        Calibrations, charts, objectives and checks of labels are dropped.
        """
        series = [(model, group, saved.without_baseline()) for model, group, saved in self.series]
        refits = self.refits and self.refits.with_refit_due()
        return msgspec.structs.replace(self, series=series, refits=refits)


class TaskEngine(TaskLogic):
    """The running engine of one classification task.

    Its methods return closed windows. The caller evaluates the windows of all tasks in one call. Then it
    passes each window to `close`.
    """

    def __init__(self, settings: TaskSettings[Task], resume: TaskState | None = None) -> None:
        self._settings = settings
        task = settings.task
        state = resume or TaskState()
        self.join: LabelJoinLogic = self.label_join(settings).build(state.join)
        self.series: list[Series] = []
        self.fits = tuple(self._label_fits(state))
        self._old_pool = bool(state.refits) and not task.refits  # saved, but no longer used
        self._ageing = Ageing(self.rings, task.labels.horizon_seconds, state.ageing)
        self.revisions = revisions_of(settings, state.revisions)
        self.models: Ints = np.zeros(0, dtype=np.int64)
        """The keys of all watched models."""
        self._of_group: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)  # by series
        self._index = SeriesIndex(task.max_series, state.dropped, state.dropped_count)
        self._unlearnt: deque[int] = deque()  # series whose references may not be computed yet
        self._unconfirmed: list[int] = []
        self._unconfirmed_revisions = False
        for model, group, saved in state.series:
            self._index.add(model, group)
            self._add_series(model, group, saved)
        self._index.take_new()
        for model in task.models:
            self._index.series_of(model, "")  # a model that never answers must show as silent
        self._add_new_series()

    def label_join(self, settings: TaskSettings[Any]) -> LabelJoin:
        """Return the settings of the task's label join."""
        task = settings.task
        return LabelJoin(
            horizon_days=task.labels.horizon_days,
            max_answers=task.labels.max_answers,
            max_waiting=task.labels.max_waiting,
            max_bytes=task.labels.max_bytes,
            series_per_answer=1 + len(task.groups),
            scored=task.scored,
            numbered=settings.numbered,
        )

    def _label_fits(self, state: TaskState) -> Iterator[LabelFit[Any, Any]]:
        settings, task = self._settings, self._settings.task
        shared = settings.name, task, self.join.rings["answers"], settings.references, self.series
        if task.refits:
            yield TaskRefits(*shared, settings.refit, state.refits or None)
        if task.recalibrates:
            yield TaskRecalibrations(*shared, settings.recalibrate, state.recalibrations)

    def snapshot(self) -> TaskState:
        """Return the whole state of the task, without the settings."""
        return msgspec.structs.replace(
            self._counts(rings=True),
            revisions=self.revisions.snapshot(),
            series=[(s.settings.model, s.settings.group, s.snapshot()) for s in self.series],
        )

    def _counts(self, rings: bool = False) -> TaskState:
        """Return the snapshot without revisions and series, and with or without rings."""
        fits: dict[str, Any] = {fit.kind: fit.snapshot(rings) for fit in self.fits}
        return TaskState(
            self.join.snapshot(rings),
            self._index.dropped_names,
            self._index.dropped,
            ageing=self._ageing.snapshot(),
            **fits,
        )

    def cuts(self, chunk: Chunk) -> bool:
        """Return whether records of the chunk must wait until a window of the task has closed.

        Records must wait if the engine itself runs refits, and a refit may become due when the window closes.
        They must also wait if each window has its own calibration, because the newest calibration gives the
        confidences of later answers.
        """
        stored = len(self.join.rings["labels"]) > 0
        return self._settings.task.adapts or any(fit.may_run_in(chunk, stored) for fit in self.fits)

    def interrupt(self, partition: str) -> None:
        """Record that another agent has read the next records of a partition, which ends its ranges."""
        for series in self.series:
            series.interrupt(partition)

    @property
    def closes_at(self) -> float:
        """The time after which `tick` closes a window; infinite while no window has enough rows."""
        return min((series.open_window[0].closes_at for series in self.series), default=np.inf)

    @property
    def rings(self) -> dict[str, BoundedTable]:
        """The ring tables (tables of limited size) of the task's rows.

        The key is the ring's kind, such as ``answers``. In the store, the name of a ring is its kind, a slash
        and the name of the task.
        """
        return self.join.rings | {kind: ring for fit in self.fits for kind, ring in fit.rings.items()}

    def changes(self) -> tuple[dict[str, Any], list[RingChange]]:
        """Return the parts of the state that changed since the last call, and the changes of ring tables.

        Call `confirm` after the changes are saved, or `retract` if saving them failed.
        """
        parts: dict[str, Any] = {}
        name = self._settings.name
        changed = [i for i, series in enumerate(self.series) if series.changed]
        for i in changed:
            series = self.series[i]
            series.changed = False
            parts[f"series/{i}/{name}"] = series.settings.model, series.settings.group, series.snapshot()
        self._unconfirmed = changed
        self._unconfirmed_revisions = self.revisions.changed
        if self.revisions.changed:
            self.revisions.changed = False
            names = [(one.settings.model, one.settings.group) for one in self.series]
            parts[f"revisions/{name}"] = msgspec.structs.replace(self.revisions.counts(), names=names)
        parts[f"task/{name}"] = self._counts()
        rings = [ring.changes(f"{kind}/{name}") for kind, ring in self.rings.items()]
        if self._old_pool:
            rings += [RingChange.nothing_left(f"{kind}/{name}") for kind in (POOL, DRAWS)]
        return parts, [ring for ring in rings if ring is not None]

    def confirm(self) -> None:
        """Mark the result of `changes` as saved, so that the next call leaves it out."""
        super().confirm()
        self._unconfirmed, self._old_pool = [], False

    def retract(self) -> None:
        """Mark the result of `changes` as not saved, so that the next call returns it again."""
        for i in self._unconfirmed:
            self.series[i].changed = True
        self.revisions.changed |= self._unconfirmed_revisions
        self._unconfirmed = []
        super().retract()

    def absorb(
        self,
        answers: TimedBatch | None,
        labels: LabelBatch | None,
        partitions: tuple[str, ...],
        sequence: Ints,
    ) -> TaskOutput:
        """Process the task's answers and labels of a chunk, in order of arrival."""
        output = TaskOutput()
        if answers is not None:
            series = self._index.models(answers.batch)
            self._add_new_series()
            output = self._take_answers(answers, series, partitions, sequence[answers.batch.order])
            along = self._labels_along(answers, series >= 0)
            labels = along if labels is None else merged(along, labels)
        if labels is not None and len(labels):
            output.matches.append(self._take_labels(labels, sequence[labels.order]))
        return output

    def _labels_along(self, answers: TimedBatch, watched: NDArray[np.bool_]) -> LabelBatch:
        """Return the labels that the records of the answers contain."""
        batch = answers.batch
        # A record of several models holds its label once: it counts if any of them is watched.
        reached = watched
        if not watched.all():
            reached = watched | np.isin(batch.key, batch.key[watched & (batch.key != NO_ID)])
        self.join.outcomes[LabelOutcome.SHED] += int((~reached & (batch.label >= 0)).sum())
        time = np.minimum(batch.time, answers.arrival)
        return labels_along(replace(batch, time=time), np.flatnonzero(reached))

    def _take_answers(
        self, answers: TimedBatch, series: Ints, partitions: tuple[str, ...], sequence: Ints
    ) -> TaskOutput:
        batch, watched = answers.batch, series >= 0
        model = _model_codes(batch, watched)
        # A time ahead of the clock is the sender's error, and would make labels wait or expire for ever.
        time = np.minimum(batch.time, answers.arrival)
        new = self.join.is_new(batch.key, model, time)
        kept = np.flatnonzero(watched & new)
        groups = [self._index.groups(batch, name, watched) for name in self._settings.task.groups]
        self._add_new_series()
        memberships = [series, *groups]
        for member in memberships:
            self._count_duplicates(member[watched & ~new & (member >= 0)])
        rows = answers.rows(sequence)
        if groups:
            rows = replace(rows, groups=np.stack(groups, axis=1))
        closed, numbers, blocks, confidence = self._into_windows(batch, rows, partitions, memberships, kept)
        joined = Answers(
            key=batch.key[kept],
            model=model[kept],
            predicted=batch.predicted[kept],
            time=time[kept],
            sequence=sequence[kept],
            series=np.stack([member[kept] for member in memberships], axis=1),
            window=np.stack(numbers, axis=1),
            confidence=confidence,
            scores=batch.scores[kept],
            request=batch.request[kept],
            alone=batch.alone[kept],
            block=np.stack(blocks, axis=1),
            number=batch.numbers[kept, 0] if batch.numbers.shape[1] else np.zeros(0),
            stated=batch.numbers[kept, 2:],
        )
        for fit in self.fits:
            fit.answers_came(joined)
        direct = match_directly(batch, kept, joined, self.join.truths)
        without_id = (batch.label[kept] >= 0) & (batch.key[kept] == NO_ID)
        self.join.outcomes[LabelOutcome.MATCHED] += int(without_id.sum())
        return TaskOutput(_in_order(closed), [self.join.add_answers(joined), direct], int((~watched).sum()))

    def _take_labels(self, labels: LabelBatch, sequence: Ints) -> Matches:
        codes = np.array([*map(model_code, labels.models), -1], dtype=np.int64)  # -1 for every model
        for fit in self.fits:
            fit.labels_received(labels)
        return self.join.add_labels(labels, codes[labels.model], self.models, sequence)

    def names(self, series: int) -> tuple[str, str, str]:
        """Return the task, model and group of the series with this number."""
        settings = self.series[series].settings
        return settings.task_name, settings.model, settings.group

    def count(self, cells: Cells, cell: Cell, up_to: int | None = None) -> None:
        """Add matched labels to the counts of their cell (a series and a window), up to a sequence number.

        Labels with a sequence number above `up_to` are not counted yet.
        """
        labelled, correct, excess, errors = cells.take(cell, up_to)
        if labelled or correct or any(excess) or errors is not None:
            self.series[cell[0]].add_labels(cell[1], labelled, correct, excess, errors)

    def revise(self, series: int, window: int) -> WindowReport | None:
        """Return the revised report of a window, or None: see `Revisions.revise`."""
        report = self.revisions.revise(series, window)
        if report is not None:
            self.series[series].take_revision(window)
        return report

    def finish(self) -> list[tuple[int, WindowReport]]:
        """Return the last reports of windows at the end of the input: see `Revisions.finish`."""
        reports = self.revisions.finish()
        for _, report in reports:
            self.series[self._index.series_of(report.model, report.group)].take_revision(report.window)
        return reports

    def correct(self, rows: FirstLabels, series: int, up_to: int | None = None) -> None:
        """Add newly labelled rows of a series to its correction, up to the sequence number `up_to`."""
        piece = rows.take(series, up_to)
        self.series[series].checks.correct(
            rows.window[piece],
            rows.block[piece],
            rows.predicted[piece],
            rows.confidence[piece],
            rows.right[piece],
        )

    def audit(self, matches: Matches) -> None:
        """Test the estimates of each series on its newly labelled rows, and pass the labels to the fits.

        `matches` must be sorted by sequence number.
        """
        by_series = matches.take(np.argsort(matches.series.astype(np.int32), kind="stable"))
        group = self._of_group[by_series.series]
        if group.any():
            lost = self._compare(by_series.take(np.flatnonzero(~group)), audited=True)
            self._compare(by_series.take(np.flatnonzero(group)), audited=False)
        else:
            lost = self._compare(by_series, audited=True)
        for fit in self.fits:
            fit.labels_came(matches, lost)

    def _compare(self, matches: Matches, audited: bool) -> set[int]:
        """Return the series for which these labels cause a loss of trust: see `compare_with_labels`."""
        codes, place = np.unique(matches.series, return_inverse=True)
        checks = [self.series[code].checks for code in codes.tolist()]
        return set(codes[compare_with_labels(checks, replace(matches, series=place), audited)].tolist())

    def learn(self) -> bool:
        """Compute the calibration error of one series in advance; return False if all errors are known."""
        while self._unlearnt:
            if self.series[self._unlearnt.popleft()].learn():
                return True
        return False

    def view(self) -> EngineView:
        """Return the task's part of the view for exporters, without the counts of matched labels."""
        stale = (one for one in self.series if one.stale and not one.settings.group)
        judge_together(one.checks.audit for one in stale)
        name, refits = self._settings.name, [view for fit in self.fits if (view := fit.view()) is not None]
        return EngineView(
            series=tuple(series.view() for series in self.series),
            series_dropped=self._index.dropped,
            refits={name: refits[-1]} if refits else {},
            labels_unrevised={name: self.revisions.missed},
        )

    def request(self, window: ClosedWindow) -> EstimationRequest:
        """Return the input of the estimators for a window."""
        return self.series[self._number(window)].request(window)

    def close(
        self, window: ClosedWindow, evaluation: Evaluation, now: float, *, is_newest: bool
    ) -> list[WindowReport]:
        """Return the report of a closed window.

        The last reports of older windows that are now dropped follow it. `is_newest` is False if the same
        step closes a later window of the series.
        """
        number = self._number(window)
        report = self.series[number].close(window, evaluation, self._group_name, is_newest=is_newest)
        if not window.series.group:
            for fit in self.fits:
                fit.close_window(number, now)
        return [report, *self.revisions.closed(number, report, window.closed_at)]

    def _group_name(self, number: int) -> str:
        return self.series[number].settings.group

    def _number(self, window: ClosedWindow) -> int:
        return self._index.series_of(window.series.model, window.series.group)

    def next_piece(self, batch: Batch, labels: LabelBatch | None, arrival: Floats, now: float) -> int:
        """Return the index of the first record that must wait until a window has closed.

        If no record must wait, the index is the number of records. A refit changes all models. So if the task
        has refits, records wait for a window of any model. Otherwise a record waits only for a window of its
        own model.
        """
        known = {s.settings.model: s.open_window for s in self.series if not s.settings.group}
        window = self._settings.task.window
        if any(fit.changes_all_models for fit in self.fits):
            return first_closing(batch, arrival, now, known, window)
        return first_concerned(batch, labels, arrival, now, known, window, self.join.may_know)

    def forget(self, ids: Keys) -> Forgotten:
        """Delete the stored answers and labels with these ids."""
        for fit in self.fits:
            fit.wipe(ids)
        return self.join.forget(ids, self.models)

    def tick(self, now: float, live: bool = True) -> TaskOutput:
        """Close the windows that are too old.

        In a live run, also drop stored rows that are too old to be joined.
        """
        if live:
            for kind, rows in self._ageing.step(now):
                self.join.expire(kind, rows)
        for fit in self.fits:
            fit.tick(now)
        closed = [series.tick(now) for series in self.series]
        return TaskOutput(_in_order(window for window in closed if window))

    def end(self) -> TaskOutput:
        """Close every open window because the input has ended."""
        closed = [series.end() for series in self.series]
        return TaskOutput(_in_order(window for window in closed if window))

    def _into_windows(
        self, batch: Batch, rows: AnswerRows, partitions: tuple[str, ...], memberships: list[Ints], kept: Ints
    ) -> tuple[list[ClosedWindow], list[Ints], list[Ints], Floats]:
        """Add the kept rows to the windows of their series, first to the series of models.

        Return the closed windows, the window and the block of each row in each series, and the confidence of
        each row by its model's calibration.
        """
        closed: list[ClosedWindow] = []
        numbers: list[Ints] = []
        blocks: list[Ints] = []
        rows_of_block = block_rows(self._settings.task.window.size)
        confidence = np.full(len(batch), np.nan)
        for membership in memberships:
            number = np.full(len(batch), -1, dtype=np.int64)
            order, pieces = sorted_by_code(membership, kept)
            part, window_of_row, version = (
                rows.take(order),
                np.empty(len(order), dtype=np.int64),
                batch.version[order],
            )
            if not numbers:
                confidence[order] = self._confidence(part, pieces)
            opened = [self.series[code].open_window[0] for code, _ in pieces]
            firsts = [(window.number, window.first_row, window.pending) for window in opened]
            for (code, piece), names in zip(pieces, _names(version, pieces, batch.versions), strict=True):
                closed += self.series[code].push(part, piece, partitions, version, names, window_of_row)
            block = np.full(len(batch), -1, dtype=np.int64)
            number[order] = window_of_row
            block[order] = blocks_of(window_of_row, pieces, firsts, rows_of_block)
            numbers.append(number[kept])
            blocks.append(block[kept])
            task = self._settings.task
            rows = rows.of_groups(with_features=task.adapts or bool(task.error_units))
        return closed, numbers, blocks, confidence[kept]

    def _confidence(self, rows: AnswerRows, pieces: list[tuple[int, slice]]) -> Floats:
        """Return the probability that each answer is right, for rows sorted by series."""
        calibrated = rows.scores.copy()
        for code, piece in pieces:
            probabilities = self.series[code].active.calibrated(rows.scores[piece])
            if probabilities is not None:
                calibrated[piece] = probabilities
        return confidence_of(calibrated, rows.predicted)

    def _count_duplicates(self, series: Ints) -> None:
        if not len(series):  # the usual case
            return
        for code, count in zip(*np.unique(series, return_counts=True), strict=True):
            self.series[int(code)].add_duplicates(int(count))

    def _add_new_series(self) -> None:
        for model, group in self._index.take_new():
            self._add_series(model, group)

    def _add_series(self, model: str, group: str, saved: SeriesSnapshot | None = None) -> None:
        settings = SeriesSettings(self._settings.name, model, group, self._settings.task)
        series = settings.build(self._settings.references.get(model), saved)
        self._unlearnt.append(len(self.series))
        self.series.append(series)
        self._of_group = np.append(self._of_group, bool(group))
        self.models = self.models if group else np.append(self.models, model_code(model))
        self.revisions.add_series(series.tally, series.corrected)
        for fit in self.fits:
            fit.add_series(len(self.series) - 1)
        if group:
            whole = self.series[self._index.series_of(model, "")]
            if saved is None:
                series.follow(whole)  # a group that appears later starts with its model's present calibration
            else:
                # Older versions had no tests for groups.
                series.checks.inherit_tolerance(whole.checks.test.epsilon)


def blocks_of(
    numbers: Ints, pieces: Sequence[tuple[int, slice]], firsts: Sequence[tuple[int, int, int]], rows: int
) -> Ints:
    """Return the number in the series of the first row of each row's block, (n,).

    A block is a run of successive rows of a window for which the correction estimates one bias.

    Parameters
    ----------
    numbers : (n,) int64
        The number of each row's window; the rows are sorted by series.
    pieces : sequence of (int, slice)
        The number and the rows of each series.
    firsts : sequence of (int, int, int)
        Three numbers for each series, before these rows were added: the number of the open window, the number
        of rows in all closed windows, and the number of rows in the open window.
    rows : int
        The number of rows in a full block.

    Examples
    --------
    >>> blocks_of(np.array([4, 4, 5, 5, 5]), [(0, slice(0, 5))], [(4, 100, 1)], rows=2).tolist()
    [100, 102, 103, 103, 105]
    """
    if not len(numbers):
        return numbers
    starts = np.array([piece.start for _, piece in pieces])
    number, first, pending = np.array(firsts).T
    rows_of = np.diff(starts, append=len(numbers))
    place = np.arange(len(numbers)) + np.repeat(first + pending - starts, rows_of)
    opens = np.diff(numbers, prepend=-1) != 0
    opens[starts] = True
    at = np.flatnonzero(opens)
    window = place[at]
    goes_on = np.flatnonzero(numbers[starts] == number)
    window[np.searchsorted(at, starts[goes_on])] = first[goes_on]
    began = np.repeat(window, np.diff(at, append=len(numbers)))
    return block_starts(place, began, rows)


def _names(version: Ints, pieces: list[tuple[int, slice]], names: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return the version of each piece if all its rows name the same version, or all names if they differ."""
    if len(names) == 1 or not pieces:
        return [names] * len(pieces)
    starts = [piece.start for _, piece in pieces]
    least, most = np.minimum.reduceat(version, starts).tolist(), np.maximum.reduceat(version, starts).tolist()
    return [names[low : low + 1] if low == high else names for low, high in zip(least, most, strict=True)]


def _in_order(windows: Iterable[ClosedWindow]) -> list[ClosedWindow]:
    return sorted(windows, key=StreamPosition.from_window)


def _model_codes(batch: Batch, watched: NDArray[np.bool_]) -> Ints:
    """Return the key of each answer's model, (n,), or -1 if the model is not monitored.

    A flood of model names therefore costs no time.
    """
    codes = np.full(len(batch.models), -1)
    for i in np.flatnonzero(np.bincount(batch.model[watched])):
        codes[i] = model_code(batch.models[i])
    return np.where(watched, codes[batch.model], -1)
