"""The recalibrations of one task: which model's is next, the rows of its fit, and the use of the result."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from monitor.base.records import NO_ID, Ints
from monitor.config.root import Task
from monitor.engine.labels.columns import weights
from monitor.engine.labels.table import BoundedTable
from monitor.engine.reference import Reference
from monitor.engine.refit.due import too_many_replaced
from monitor.engine.refit.recalibration import RecalibrationJob, RecalibrationResult
from monitor.engine.series import Series
from monitor.stats.calibration import calibration_from_snapshot
from monitor.stats.calibration.base import Calibration
from monitor.stats.calibration.refit import FEWEST_LABELS, LabelledRows
from monitor.stats.calibration.rests_on import rests_on

NEWEST_LABELS = 2000
"""The largest number of labelled rows in a fit, the newest: their standard error is 0.7 points at 90 %."""

FEWEST_SINCE_CHANGE = 200
"""The least number of labelled rows in the first fit after a loss of trust.

If fewer came since the change, the newest before it are used too. The result of some tens of labels is mostly
chance.
"""

REFERENCE_ROWS = 5000
"""The largest number of reference rows in a fit, evenly spread over its time and weighted accordingly.

Thirty fits on all rows of a large reference would take seconds, and beside new labels it hardly ever has its
full weight.
"""


class RecalibrationsState(msgspec.Struct, frozen=True):
    """The stored state of `TaskRecalibrations`: the number of fits that a task has begun.

    The rest of what a recalibration needs after a restart is in the states of the series.
    """

    number: int = 0


class TaskRecalibrations:
    """The recalibrations of a task's models, which are fitted one at a time.

    The first that became due is the next.
    A fit uses labelled answers whose windows are closed in all their series, so that no window is estimated
    by a calibration that was fitted on one of its rows.

    Parameters
    ----------
    name : str
        The name of the task.
    task : Task
        Its configuration, with recalibrations.
    answers : BoundedTable
        The table of answers of the task's label join, with ids and scores.
    references : mapping of str to Reference
        By model.
    resume : RecalibrationsState, optional
        A snapshot.
    """

    def __init__(
        self,
        name: str,
        task: Task,
        answers: BoundedTable,
        references: Mapping[str, Reference],
        resume: RecalibrationsState | None = None,
    ) -> None:
        self._name = name
        self._task = task
        self._answers = answers
        self._references = references
        self._number = resume.number if resume else 0
        self._under_way: int | None = None  # the series
        self._job: RecalibrationJob | None = None
        self._due: dict[int, None] = {}  # in order
        self._closed: dict[int, None] = {}  # in order

    @property
    def any_due(self) -> bool:
        """True if a recalibration of any model is due."""
        return bool(self._due)

    def close_window(self, code: int) -> None:
        """Remember that a window of a model's series has closed, until `take_closed`.

        Parameters
        ----------
        code : int
            The number of the series.
        """
        self._closed.setdefault(code)

    def take_closed(self) -> list[int]:
        """Return the numbers of the series with windows closed since the last call, in order."""
        closed, self._closed = list(self._closed), {}
        return closed

    def look(self, code: int, series: Series) -> None:
        """Put a series at the end of the queue if its recalibration is due.

        Call it for each new series, and after labels came.

        Parameters
        ----------
        code : int
            The number of the series.
        series : Series
        """
        if series.recalibration is not None and series.recalibration.due:
            self._due.setdefault(code)

    def begin(
        self, series: Sequence[Series], among: Collection[int] | None = None
    ) -> RecalibrationJob | None:
        """Begin the next recalibration, and return its job.

        Return None if none is due or possible, or if one is under way.

        Parameters
        ----------
        series : sequence of Series
            All series of the task, by number.
        among : collection of int, optional
            The numbers of series that may begin; all by default.
        """
        while self._under_way is None:
            code = next((due for due in self._due if among is None or due in among), None)
            if code is None:
                return None
            del self._due[code]
            schedule = series[code].recalibration
            if schedule is None or not schedule.due:  # dropped for a new version of the model
                continue
            rows = self._rows(code, series)
            held = too_many_replaced(self._answers["replaced"][rows], self._task.labels.max_replaced)
            if held or len(rows) < FEWEST_LABELS:
                too_few = f"{len(rows)} labelled answers in closed windows, {FEWEST_LABELS} are needed; "
                schedule.wait(held or f"{too_few}wait for more labels", held is not None)
                series[code].changed = True
                continue
            self._under_way = code
            self._number += 1
            schedule.begin(len(rows))
            series[code].invalidate_view()
            job = self._make_job(series[code], rows)
            self._job = job
            return job
        return None

    def end(self, result: RecalibrationResult, series: Sequence[Series]) -> bool:
        """Use the result of the recalibration under way, and return False if no job waits for it.

        Parameters
        ----------
        result : RecalibrationResult
        series : sequence of Series
            All series of the task, by number. The groups of the model get its new calibration too.
        """
        code, job = self._under_way, self._job
        if code is None or job is None or result.number != self._number:
            return False
        self._under_way = self._job = None
        schedule = series[code].recalibration
        if schedule is None or not schedule.under_way:  # dropped for a new version of the model
            return False
        series[code].changed = True
        refused, calibration = result.refused, None
        if refused is None and result.calibration is not None:
            try:
                calibration = self._read(result.calibration)
            except (ValueError, KeyError, TypeError, IndexError) as error:
                refused = f"what the fit brought cannot be read: {error}"
        if calibration is None:
            schedule.end("kept" if refused is None else "refused", refused)
            return True
        schedule.end("taken", seen=result.sequence)
        rows = rests_on(job.labelled, job.reference, result.weight)
        series[code].recalibrate(calibration, result.time, rows, result.epsilon)
        for each in series:
            if each.settings.group and each.settings.model == result.model:
                each.follow(series[code])
        return True

    def snapshot(self) -> RecalibrationsState:
        """Return the state to store: how many recalibrations the task has begun."""
        return RecalibrationsState(self._number)

    def _read(self, snapshot: Mapping[str, Any]) -> Calibration:
        calibration, width = calibration_from_snapshot(snapshot), max(len(self._task.classes), 1)
        if calibration.width != width:
            raise ValueError(f"the calibration is for {calibration.width} classes, the task has {width}")
        return calibration

    def _rows(self, code: int, series: Sequence[Series]) -> Ints:
        """Return the answers of the join to fit on, in order of time."""
        answers, schedule = self._answers, series[code].recalibration
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
    """Return a reference as rows of a fit, each weighted for the rows left out beside it.

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
