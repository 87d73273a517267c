"""Refits in the flow of records, each when the window closes that makes it due: same input, same bytes."""

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
    """The fits that the engine does in the flow.

    Parameters
    ----------
    refit, recalibrate : callable or None
        None if such jobs are handed out instead, and nothing waits for them.
    """

    refit: Callable[[RefitJob], RefitResult] | None
    recalibrate: Callable[[RecalibrationJob], RecalibrationResult] | None

    def wait_for(self, task: TaskEngine, chunk: Chunk) -> bool:
        """Return whether a fit may become due as a window of this task closes in this chunk."""
        if self.refit and task.refits is not None:
            return True
        if not self.recalibrate or task.recalibrations is None:
            return False
        # Only labels make a recalibration due: a chunk of answers alone need not be cut.
        has_labels = bool(chunk.labels) or any((batch.label >= 0).any() for batch in chunk.batches)
        return has_labels or task.recalibrations.any_due

    def jobs_to_hand_out(self, task: TaskEngine, sequence: int, now: float) -> list[Job]:
        """Return the jobs of a task that are due but not done in the flow."""
        refit = None if self.refit else task.begin_refit(sequence, now)
        recalibration = None if self.recalibrate else task.begin_recalibration()
        return [job for job in (refit, recalibration) if job is not None]

    def run_due(self, tasks: Iterable[TaskEngine], sequence: int, now: float) -> None:
        """Do the jobs that are due in tasks with a newly closed window, on records up to `sequence`.

        A recalibration waits for a window of its own model, so that a model's results depend only on its own
        answers and labels, not on other models.
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
