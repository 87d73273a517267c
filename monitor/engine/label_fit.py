"""The base class of fits (refits, recalibrations) that a task repeats when labels have come."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from monitor.base.records import Chunk, Keys, LabelBatch
from monitor.config.task import Task
from monitor.engine.labels.columns import Answers, Matches
from monitor.engine.labels.table import BoundedTable
from monitor.engine.refit.job import RefitJob, RefitResult
from monitor.engine.refit.recalibration import RecalibrationJob, RecalibrationResult
from monitor.engine.refit.wire import JobResult
from monitor.reports.views import RefitView
from monitor.stats.calibration import calibration_from_snapshot
from monitor.stats.calibration.base import Calibration

JobT = TypeVar("JobT", RefitJob, RecalibrationJob)
ResultT = TypeVar("ResultT", RefitResult, RecalibrationResult)
_T = TypeVar("_T")


class LabelFit(ABC, Generic[JobT, ResultT]):
    """The base class of a task's refits and recalibrations.

    A task calls the methods of its fits when answers or labels come and when windows close. A fit decides
    when its next job is due, and uses the result of the job. Only one job runs at a time. If the agent
    restarts, the running job is lost, and the fit begins a new one.

    Parameters
    ----------
    name : str
        The name of the task.
    task : Task
    run : callable or None
        Computes the result of a job. It is called in the thread of the records, right after the window that
        makes the job due. So the same records give the same reports, byte for byte. If `run` is None, `begin`
        returns the job, another process runs it, and the records do not wait for the result.

    Attributes
    ----------
    kind : str
        The field of `TaskState` that stores the fit's state.
    result_type : type
    changes_all_models : bool
        True if a result changes all models of the task, False if it changes only one.
    """

    kind: ClassVar[str]
    result_type: type[ResultT]
    changes_all_models: ClassVar[bool] = False

    def __init__(self, name: str, task: Task, run: Callable[[JobT], ResultT] | None) -> None:
        self._name = name
        self._task = task
        self._run: Callable[[JobT], ResultT] | None = run
        self._job: JobT | None = None
        self._closed: dict[int, None] = {}  # series with windows closed since the last run, in order

    @property
    def runs_inline(self) -> bool:
        """True if jobs run in the thread of the records, so that records wait for the results."""
        return self._run is not None

    @property
    def rings(self) -> dict[str, BoundedTable]:
        """The ring tables (tables of limited size) in which the fit stores rows.

        The key is the ring's kind, the first part of its name in the store. Empty by default.
        """
        return {}

    def may_run_in(self, chunk: Chunk, labels_stored: bool) -> bool:
        """Return whether a window that closes inside this chunk may make a job due at once.

        Parameters
        ----------
        chunk : Chunk
        labels_stored : bool
            Whether labels of earlier chunks are stored, which may match answers of this chunk.
        """
        return self.runs_inline

    def add_series(self, code: int) -> None:
        """Add the series with this number, which is new or was read from a stored state."""
        return

    def answers_came(self, answers: Answers) -> None:
        """Process new answers of the task. By default, do nothing."""
        return

    def labels_received(self, labels: LabelBatch) -> None:
        """Process labels before they are matched to answers."""
        return

    def labels_came(self, matches: Matches, lost: Collection[int]) -> None:
        """Process labels that were matched to answers.

        Parameters
        ----------
        matches : Matches
            Sorted by sequence number.
        lost : collection of int
            The numbers of the series whose confidences these labels contradict.
        """
        return

    def wipe(self, ids: Keys) -> None:
        """Delete the rows with these ids from the tables of the fit."""
        return

    def tick(self, now: float) -> None:
        """Pass the current time to the fit, in seconds since the epoch."""
        return

    def close_window(self, code: int, now: float) -> None:
        """Record that a window of a model (not of a group) has closed.

        Parameters
        ----------
        code : int
            The number of the series.
        now : float
            Seconds since the epoch.
        """
        self._closed.setdefault(code)

    def begin(self, sequence: int, now: float, code: int | None = None) -> JobT | None:
        """Begin the next job, if one is due, and return it.

        The result is None if no job is due or possible, or if one is already running.

        Parameters
        ----------
        sequence : int
            The sequence number of the newest processed record.
        now : float
            Seconds since the epoch.
        code : int, optional
            The number of a series. A job for a single model may begin only for this series. By default, it
            may begin for any series.
        """
        if self._job is not None:
            return None
        self._job = self._next_job(sequence, now, code)
        return self._job

    def end(self, result: JobResult, now: float) -> bool:
        """Use the result of the running job. If the result is a refusal, only count it.

        Return False if the result is ignored, because it belongs to no running job, or because a new version
        of the model has ended the job.
        """
        job = self._job
        if job is None or not isinstance(result, self.result_type) or result.number != job.number:
            return False
        self._job = None
        return self._use(job, result, now)

    def run_due(self, sequence: int, now: float) -> None:
        """Run the jobs that closed windows made due; do nothing if another process runs jobs.

        A job for one model waits until a window of this model closes, so that a model's results depend only
        on its own answers and labels.
        """
        if self._run is None:
            return
        closed, self._closed = self._closed, {}
        for code in closed:
            while (job := self.begin(sequence, now, code)) is not None:
                self.end(self._run(job), now)

    def view(self) -> RefitView | None:
        """Return the state for exporters; None if the views of the series contain the state."""
        return None

    @abstractmethod
    def snapshot(self, rings: bool = True) -> msgspec.Struct:
        """Return the whole state, with or without the rows of the ring tables."""

    @abstractmethod
    def _next_job(self, sequence: int, now: float, code: int | None) -> JobT | None:
        """Return the job that is due, or None; the parameters are those of `begin`."""

    @abstractmethod
    def _use(self, job: JobT, result: ResultT, now: float) -> bool:
        """Use the result of a job, and return False if nothing waits for it."""

    def _read(self, result: ResultT, read: Callable[[], _T]) -> tuple[_T | None, str | None]:
        """Return the result of `read`, and a reason if the fit was refused or its result cannot be read."""
        if result.refused is not None:
            return None, result.refused
        try:
            return read(), None
        except (ValueError, KeyError, TypeError, IndexError) as error:
            return None, f"what the fit brought cannot be read: {error}"

    def _calibration(self, model: str, snapshot: Mapping[str, Any]) -> Calibration:
        """Return the calibration of a model from its snapshot.

        Raises
        ------
        ValueError, KeyError, TypeError, IndexError
            The snapshot cannot be read, or is for another number of classes.
        """
        calibration, width = calibration_from_snapshot(snapshot), max(len(self._task.classes), 1)
        if calibration.width != width:
            raise ValueError(
                f"the calibration of {model} is for {calibration.width} classes, the task has {width}"
            )
        return calibration
