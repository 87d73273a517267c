"""Fits on new labels that run in the same thread as the records, right after the window that makes them due.

The result does not depend on how long a fit takes: the same records give the same reports, byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from monitor.base.records import Chunk
from monitor.engine.refit.job import RefitJob, RefitResult
from monitor.engine.refit.recalibration import RecalibrationJob, RecalibrationResult
from monitor.engine.refit.wire import Job
from monitor.engine.task import TaskEngine


@dataclass(frozen=True, slots=True)
class InlineRefits:
    """The functions of the two kinds of fit that the engine itself runs, before it reads the next record.

    Parameters
    ----------
    refit : callable or None
        Runs a refit of the estimators that use labels. If None, the engine returns such jobs to its caller,
        and does not wait for their results.
    recalibrate : callable or None
        Runs a recalibration of one model; None has the same meaning as for `refit`.
    """

    refit: Callable[[RefitJob], RefitResult] | None
    recalibrate: Callable[[RecalibrationJob], RecalibrationResult] | None

    def wait_for(self, task: TaskEngine, chunk: Chunk) -> bool:
        """Return whether a fit for this task may become due inside this chunk.

        If so, the engine cuts the chunk where a window closes, and runs the fit there before it continues.

        Parameters
        ----------
        task : TaskEngine
        chunk : Chunk
            The records that the engine reads next.
        """
        if self.refit and task.refits is not None:
            return True
        if not self.recalibrate or task.recalibrations is None:
            return False
        # Only labels make a recalibration due: a chunk of answers alone need not be cut.
        has_labels = bool(chunk.labels) or any((batch.label >= 0).any() for batch in chunk.batches)
        return has_labels or task.recalibrations.any_due

    def jobs_to_hand_out(self, task: TaskEngine, sequence: int, now: float) -> list[Job]:
        """Return the due jobs of a task that another process must do.

        Parameters
        ----------
        task : TaskEngine
        sequence : int
            The sequence number of the newest record that the jobs may use.
        now : float
            The engine's clock, seconds since the epoch.
        """
        refit = None if self.refit else task.begin_refit(sequence, now)
        recalibration = None if self.recalibrate else task.begin_recalibration()
        return [job for job in (refit, recalibration) if job is not None]

    def run_due(self, tasks: Iterable[TaskEngine], sequence: int, now: float) -> None:
        """Do the jobs that are due in tasks with a newly closed window, and publish their results.

        A recalibration waits until a window of its own model closes, so that a model's results depend only on
        its own answers and labels, not on other models.

        Parameters
        ----------
        tasks : iterable of TaskEngine
        sequence : int
            The sequence number of the newest record that the jobs may use.
        now : float
            The engine's clock, seconds since the epoch.
        """
        for task in tasks:
            if self.refit and task.refits is not None and task.refits.take_closed():
                job = task.begin_refit(sequence, now)
                if job is not None:
                    task.publish(self.refit(job), now)
            if self.recalibrate and task.recalibrations is not None:
                for code in task.recalibrations.take_closed():
                    while (due := task.begin_recalibration((code,))) is not None:
                        task.publish(self.recalibrate(due), now)
