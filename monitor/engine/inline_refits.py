"""Refits in the flow of records, each at the window with which it is due: the same input, the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from monitor.base.records import Chunk
from monitor.engine.chunks import latest_arrivals, split
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

    def piece(
        self, chunk: Chunk, tasks: Mapping[str, TaskEngine], clock: float, event_time: bool
    ) -> tuple[Chunk, Chunk | None]:
        """A chunk up to where a refit may be due, and the rest; the whole where there is none.

        Parameters
        ----------
        chunk : Chunk
        tasks : mapping of str to TaskEngine
        clock : float
            Before the chunk.
        event_time : bool
            Whether the records' own times move it.
        """
        ours = [batch for batch in chunk.batches if batch.task in tasks]
        refitting = [batch for batch in ours if self._may_refit(tasks[batch.task], chunk)]
        if not refitting:
            return chunk, None
        arrival = latest_arrivals(chunk, clock, event_time)
        stop = min(tasks[batch.task].may_close(batch, arrival, clock) for batch in refitting)
        return split(chunk, stop) if stop < len(arrival) else (chunk, None)

    def given_out(self, task: TaskEngine, sequence: int, now: float) -> list[Job | None]:
        """What of a task is due and not done in the flow."""
        return [
            None if self.refit else task.begin_refit(sequence, now),
            None if self.recalibrate else task.begin_recalibration(),
        ]

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
                closed = task.recalibrations.take_closed()
                while (due := task.begin_recalibration(closed)) is not None:
                    task.publish(self.recalibrate(due), now)

    def _may_refit(self, task: TaskEngine, chunk: Chunk) -> bool:
        if self.refit and task.refits is not None:
            return True
        if not self.recalibrate or task.recalibrations is None:
            return False
        # Without a label nothing comes due: a chunk of answers alone is not worth cutting up.
        told = bool(chunk.labels) or any((batch.label >= 0).any() for batch in chunk.batches)
        return told or task.recalibrations.any_due
