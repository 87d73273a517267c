"""Refits beside the engine: a thread that hands jobs to the worker process and keeps what comes back."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Protocol

from monitor.agent.refit_process import ProcessLimits
from monitor.base.durations import RefitDurations
from monitor.engine.refit.recalibration import RecalibrationResult
from monitor.engine.refit.wire import Job, JobResult

log = logging.getLogger("blindsight")

_JOIN_SECONDS = 2.0
_PAUSE_SECONDS = 0.05

LimitsOf = Callable[[str], ProcessLimits]
"""The limits of a task's refits, by its name."""


class Worker(Protocol):
    """What runs jobs: see `monitor.agent.refit_process.RefitWorker`."""

    def run(self, job: Job, limits: ProcessLimits) -> JobResult: ...
    def kill(self) -> None: ...
    def close(self) -> None: ...


class RefittedEngine(Protocol):
    """What is refitted: see `monitor.engine.engine.Engine`."""

    def refits(self) -> list[Job]: ...
    def publish(self, result: JobResult, now: float) -> bool: ...


class Refitter:
    """Refits of a running agent: the engine's thread only ever puts and takes, and never waits.

    Jobs run one after the other, in the order in which they came due. Each is answered, at the worst by a
    refusal; only what is under way when the agent stops is dropped, and is due again after a restart.

    Parameters
    ----------
    worker : Worker
        Used and closed by the thread of this object.
    limits : callable
    """

    def __init__(self, worker: Worker, limits: LimitsOf) -> None:
        self._worker = worker
        self._limits = limits
        self._jobs: queue.SimpleQueue[tuple[Hashable, Job] | None] = queue.SimpleQueue()
        self._results: deque[tuple[Hashable, JobResult]] = deque()
        self._durations: dict[str, RefitDurations] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="refits", daemon=True)

    @property
    def durations(self) -> Mapping[str, RefitDurations]:
        """By task, how long its refits have taken; a copy."""
        return dict(self._durations)

    def start(self) -> None:
        """Begin; the worker process starts with the first job."""
        self._thread.start()

    def step(self, engine: RefittedEngine, now: float, of: Hashable = None) -> None:
        """Publish what has come back, and take what has become due.

        Parameters
        ----------
        engine : RefittedEngine
        now : float
            Seconds since the epoch.
        of : hashable
            Which engine it is, where there are several: it gets the answers to its own jobs.
        """
        for _ in range(len(self._results)):
            asked, result = self._results.popleft()
            if asked != of:
                self._results.append((asked, result))
                continue
            _tell(result)
            engine.publish(result, now)
        for job in engine.refits():
            self._jobs.put((of, job))

    def drop(self, others_than: Collection[Hashable]) -> None:
        """Let go of answers to engines that are gone."""
        for _ in range(len(self._results)):
            asked, result = self._results.popleft()
            if asked in others_than:
                self._results.append((asked, result))

    def stop(self) -> None:
        """Drop what is under way, and end the worker process."""
        self._stopping.set()
        self._jobs.put(None)
        deadline = time.monotonic() + _JOIN_SECONDS
        while self._thread.is_alive() and time.monotonic() < deadline:
            self._worker.kill()  # again: a child may have been about to start
            self._thread.join(_PAUSE_SECONDS)

    def _run(self) -> None:
        try:
            while (due := self._jobs.get()) is not None and not self._stopping.is_set():
                of, job = due
                result = self._answer(job)
                if not self._stopping.is_set():
                    before = self._durations.get(job.task, RefitDurations())
                    self._durations[job.task] = before.plus(result.seconds)
                    self._results.append((of, result))
        finally:
            self._worker.close()

    def _answer(self, job: Job) -> JobResult:
        try:
            return self._worker.run(job, self._limits(job.task))
        except Exception as error:
            # An error here is one of ours; unanswered, the task would wait for this refit for ever.
            log.exception("tasks.%s: refit %d could not be run.", job.task, job.number)
            reason = f"the refit could not be run ({type(error).__name__}: {error})"
            return job.refused(reason)


def _tell(result: JobResult) -> None:
    """Log what an operator would want to know of."""
    who = f"refit {result.number}"
    if isinstance(result, RecalibrationResult):
        who = f"recalibration {result.number}, of {result.model},"
        if result.calibration is not None:
            log.info(
                "tasks.%s: %s brought a calibration from %d labelled rows, a row of the reference counting "
                "for %.3g.",
                result.task,
                who,
                result.rows,
                result.weight,
            )
    if result.refused is not None:
        log.warning(
            "tasks.%s: %s was refused, the last good one stays in use: %s.", result.task, who, result.refused
        )
