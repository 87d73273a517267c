"""Refits in the flow of records, each at the window with which it is due: the same input, the same bytes."""

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
    """What is done in the flow.

    Parameters
    ----------
    refit, recalibrate : callable or None
        None for what is given out instead, and waited for by nobody.
    """

    refit: Callable[[RefitJob], RefitResult] | None
    recalibrate: Callable[[RecalibrationJob], RecalibrationResult] | None

    def wait_for(self, task: TaskEngine, chunk: Chunk) -> bool:
        """Whether something may be due as a window of this task closes in this chunk."""
        if self.refit and task.refits is not None:
            return True
        if not self.recalibrate or task.recalibrations is None:
            return False
        # Without a label nothing comes due: a chunk of answers alone is not worth cutting up.
        told = bool(chunk.labels) or any((batch.label >= 0).any() for batch in chunk.batches)
        return told or task.recalibrations.any_due

    def given_out(self, task: TaskEngine, sequence: int, now: float) -> list[Job]:
        """What of a task is due and not done in the flow."""
        refit = None if self.refit else task.begin_refit(sequence, now)
        recalibration = None if self.recalibrate else task.begin_recalibration()
        return [job for job in (refit, recalibration) if job is not None]

    def done(self, tasks: Iterable[TaskEngine], sequence: int, now: float) -> None:
        """Do what is due in tasks of which a window has closed, resting on records up to this sequence.

        A recalibration waits for a window of its own model: so what a model's windows say rests on its own
        answers and labels, whichever other models stand beside it.
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
