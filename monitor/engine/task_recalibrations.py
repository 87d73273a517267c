"""The recalibrations of one task: they choose the next model, collect its rows, and use the result."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from monitor.base.records import NO_ID, Chunk, Ints
from monitor.config.task import Task
from monitor.engine.label_fit import LabelFit
from monitor.engine.labels.columns import Matches, weights
from monitor.engine.labels.table import BoundedTable
from monitor.engine.reference import Reference
from monitor.engine.refit.due import too_many_replaced
from monitor.engine.refit.recalibration import RecalibrationJob, RecalibrationResult
from monitor.stats.calibration.refit import FEWEST_LABELS, LabelledRows
from monitor.stats.calibration.rests_on import rests_on

if TYPE_CHECKING:  # the task passes its series
    from monitor.engine.series import Series

NEWEST_LABELS = 2000
"""The largest number of labelled rows in a fit: the newest, with a standard error of 0.7 points at 90 %."""

FEWEST_SINCE_CHANGE = 200
"""The least number of labelled rows in the first fit after a loss of trust.

If fewer came since the change, the newest ones before the change are also used, because a fit on some tens of
labels is mostly chance.
"""

REFERENCE_ROWS = 5000
"""The largest number of reference rows in a fit, evenly spread in time and weighted for the rows left out.

Thirty fits on all rows of a large reference would take seconds.
"""


class RecalibrationsState(msgspec.Struct, frozen=True):
    """The stored state of `TaskRecalibrations`: the number of recalibrations that have begun.

    The states of the series contain the schedules and the calibrations.
    """

    number: int = 0


class TaskRecalibrations(LabelFit[RecalibrationJob, RecalibrationResult]):
    """The recalibrations of a task's models, which run one at a time, in the order in which they became due.

    A fit uses only labelled answers whose windows (of the model and of its groups) have closed. So no window
    is estimated by a calibration that was fitted on rows of this window.

    Parameters
    ----------
    name, task, run
        See `LabelFit`.
    answers : BoundedTable
        The stored answers of the task's label join, with ids and scores.
    references : mapping of str to Reference
        The labelled reference of each model.
    series : sequence of Series
        The task's list of its series, by number. The task appends new series to it.
    """

    kind = "recalibrations"
    result_type = RecalibrationResult

    def __init__(
        self,
        name: str,
        task: Task,
        answers: BoundedTable,
        references: Mapping[str, Reference],
        series: Sequence[Series],
        run: Callable[[RecalibrationJob], RecalibrationResult] | None,
        resume: RecalibrationsState | None = None,
    ) -> None:
        super().__init__(name, task, run)
        self._answers = answers
        self._references = references
        self._series = series
        self._number = resume.number if resume else 0
        self._under_way = -1  # the series of the job under way
        self._due: dict[int, None] = {}  # in order

    def may_run_in(self, chunk: Chunk, labels_stored: bool) -> bool:
        """Return whether a window that closes inside this chunk may make a job due at once.

        Only labels make a job due.
        """
        has_labels = bool(chunk.labels) or any((batch.label >= 0).any() for batch in chunk.batches)
        return self.runs_inline and (labels_stored or has_labels or bool(self._due))

    def add_series(self, code: int) -> None:
        """Add a series. If its stored state says that a recalibration is due, queue this recalibration."""
        self._queue_if_due(code)

    def labels_came(self, matches: Matches, lost: Collection[int]) -> None:
        """Count the newly labelled rows of each series, and queue a recalibration where enough have come."""
        labels = np.bincount(matches.series, matches.labelled)
        for code in np.flatnonzero(np.bincount(matches.series)).tolist():
            schedule = self._series[code].recalibration
            if schedule is not None:  # a group has none
                schedule.labels_came(int(labels[code]), code in lost)
                self._queue_if_due(code)

    def _queue_if_due(self, code: int) -> None:
        schedule = self._series[code].recalibration
        if schedule is not None and schedule.due:
            self._due.setdefault(code)

    def snapshot(self, rings: bool = True) -> RecalibrationsState:
        """Return the state to store: the number of recalibrations that have begun."""
        return RecalibrationsState(self._number)

    def _next_job(self, sequence: int, now: float, code: int | None) -> RecalibrationJob | None:
        """Return the job of the first series in the queue that has enough labels without contradictions.

        If `code` is not None, only this series is considered. The result is None if there is no such series.
        """
        while (due := next((each for each in self._due if code in (None, each)), None)) is not None:
            del self._due[due]
            series = self._series[due]
            schedule = series.recalibration
            if schedule is None or not schedule.due:  # dropped for a new version of the model
                continue
            rows = self._rows(due)
            held = too_many_replaced(self._answers["replaced"][rows], self._task.labels.max_replaced)
            if held or len(rows) < FEWEST_LABELS:
                too_few = f"{len(rows)} labelled answers in closed windows, {FEWEST_LABELS} are needed; "
                schedule.wait(held or f"{too_few}wait for more labels", held is not None)
                series.changed = True
                continue
            self._under_way = due
            self._number += 1
            schedule.begin(len(rows))
            series.invalidate_view()
            return self._make_job(series, rows)
        return None

    def _use(self, job: RecalibrationJob, result: RecalibrationResult, now: float) -> bool:
        """Use a new calibration for the model and its groups, or count why there is no new calibration."""
        series = self._series[self._under_way]
        schedule = series.recalibration
        if schedule is None or not schedule.under_way:  # dropped for a new version of the model
            return False
        series.changed = True
        snapshot = result.calibration
        calibration, refused = self._read(
            result, lambda: None if snapshot is None else self._calibration(job.model, snapshot)
        )
        if calibration is None:
            schedule.end("kept" if refused is None else "refused", refused)
            return True
        schedule.end("taken", seen=result.sequence)
        rows = rests_on(job.labelled, job.reference, result.weight)
        series.recalibrate(calibration, result.time, rows, result.epsilon)
        for each in self._series:
            if each.settings.group and each.settings.model == result.model:
                each.follow(series)
        return True

    def _rows(self, code: int) -> Ints:
        """Return the rows of the label join for a fit, in order of time."""
        answers, series = self._answers, self._series
        schedule = series[code].recalibration
        assert schedule is not None
        held = slice(len(answers))
        live = answers.live((answers["label"][held] >= 0) & (answers["series"][held, 0] == code))
        live = live[(answers["id"][live] != NO_ID) & (answers["window"][live, 0] >= schedule.since)]
        open_windows = np.array([each.open_window[0].number for each in series], dtype=np.int64)
        member = answers["series"][live]
        closed = (member < 0) | (answers["window"][live] < open_windows[member])
        live = live[closed.all(axis=1)]
        live = live[np.argsort(answers["sequence"][live], kind="stable")]
        if schedule.lost and len(live) >= FEWEST_LABELS:
            trust = series[code].checks.test.trust()
            since = trust.bias.rows if trust is not None and trust.bias is not None else 0
            schedule.first = int(answers["sequence"][live[-max(since, FEWEST_SINCE_CHANGE) :][0]])
        live = live[answers["sequence"][live] >= schedule.first][-NEWEST_LABELS:]
        rows: Ints = live[np.argsort(answers["time"][live], kind="stable")]
        return rows

    def _make_job(self, series: Series, rows: Ints) -> RecalibrationJob:
        answers, schedule = self._answers, series.recalibration
        assert schedule is not None
        sequence = answers["sequence"][rows]
        reference = self._references.get(series.settings.model)
        method = self._task.calibration.method
        return RecalibrationJob(
            task=self._name,
            model=series.settings.model,
            number=self._number,
            sequence=int(sequence.max()),
            method=method if reference is None else reference.calibration(method).method,
            labelled=LabelledRows(
                answers["scores"][rows].astype(np.float64),
                answers["predicted"][rows].astype(np.int64),
                answers["label"][rows].astype(np.int64),
                answers["time"][rows].copy(),
                weights(answers["probability"][rows]),
            ),
            fresh=sequence > schedule.seen,
            reference=None if reference is None else thinned(reference),
            in_force=series.active.calibration.snapshot(),
            trusted=series.checks.test.trusted,
            epsilon=series.checks.test.epsilon,
        )


def thinned(reference: Reference, most: int = REFERENCE_ROWS) -> LabelledRows:
    """Return at most `most` evenly spaced rows of a reference, with weights so that they represent all.

    Parameters
    ----------
    reference : Reference
    most : int
        The largest number of rows.

    Examples
    --------
    >>> rows = np.arange(10)
    >>> kept = thinned(Reference(np.ones((10, 1)), rows * 0, rows * 0, rows * 1.0, "", {}), most=4)
    >>> kept.time.tolist(), kept.weights.tolist()
    ([0.0, 2.0, 5.0, 7.0], [2.5, 2.5, 2.5, 2.5])
    """
    n = len(reference.labels)
    kept = np.arange(min(n, most)) * n // min(n, most)
    return LabelledRows(
        reference.scores[kept],
        reference.predicted[kept],
        reference.labels[kept],
        reference.time[kept],
        np.full(len(kept), n / len(kept)),
    )
