"""Runs refits in the background: a thread passes jobs to the worker process and collects the results.

A refit fits estimators or a calibration again, with new labels. It may take seconds.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Hashable, Mapping

from monitor.agent.refit_process import ProcessLimits, RefitWorker
from monitor.base.durations import RefitDurations
from monitor.engine.engine import Engine
from monitor.engine.refit.recalibration import RecalibrationResult
from monitor.engine.refit.wire import Job, JobResult

log = logging.getLogger("blindsight")

_JOIN_SECONDS = 2.0
_PAUSE_SECONDS = 0.05

LimitsOf = Callable[[str], ProcessLimits]
"""The type of a function that returns the limits of a task's refits by the name of the task."""


class Refitter:
    """A thread that runs the refits of an agent. So the engine's thread never waits for a refit.

    Jobs run one after another, in the order in which they became due. When the agent stops, the running job
    is cancelled. It is due again after a restart.

    Parameters
    ----------
    worker : RefitWorker
        The worker. Only this thread uses it, except for `kill`.
    limits : callable
        Takes the name of a task and returns the limits of its refits.
    """

    def __init__(self, worker: RefitWorker, limits: LimitsOf) -> None:
        self._worker = worker
        self._limits = limits
        self._jobs: queue.SimpleQueue[tuple[Hashable, Job] | None] = queue.SimpleQueue()
        self._results: deque[tuple[Hashable, JobResult]] = deque()
        self._durations: dict[str, RefitDurations] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="refits", daemon=True)

    @property
    def durations(self) -> Mapping[str, RefitDurations]:
        """The histogram of the durations of the refits so far, by task."""
        return dict(self._durations)

    def start(self) -> None:
        """Start the thread. The worker process starts with the first job."""
        self._thread.start()

    def step(self, engine: Engine, now: float, owner: Hashable = None) -> None:
        """Pass the results of an engine's finished jobs to the engine, and queue its jobs that are due.

        Parameters
        ----------
        engine : Engine
        now : float
            Seconds since the epoch.
        owner : hashable
            A key of the engine, if there are several engines. Each engine gets the results of its own jobs.
        """
        for _ in range(len(self._results)):
            key, result = self._results.popleft()
            if key != owner:
                self._results.append((key, result))
                continue
            _log_result(result)
            engine.publish(result, now)
        for job in engine.refits():
            self._jobs.put((owner, job))

    def drop(self, others_than: Collection[Hashable]) -> None:
        """Delete the results for engines that no longer exist.

        Parameters
        ----------
        others_than : collection of hashable
            The keys of the engines that still exist.
        """
        for _ in range(len(self._results)):
            key, result = self._results.popleft()
            if key in others_than:
                self._results.append((key, result))

    def stop(self) -> None:
        """Cancel the current job, and end the worker process."""
        self._stopping.set()
        self._jobs.put(None)
        deadline = time.monotonic() + _JOIN_SECONDS
        while self._thread.is_alive() and time.monotonic() < deadline:
            self._worker.kill()  # repeated, because the worker may be starting a child
            self._thread.join(_PAUSE_SECONDS)

    def _run(self) -> None:
        try:
            while (due := self._jobs.get()) is not None and not self._stopping.is_set():
                owner, job = due
                result = self._answer(job)
                if not self._stopping.is_set():
                    before = self._durations.get(job.task, RefitDurations())
                    self._durations[job.task] = before.plus(result.seconds)
                    self._results.append((owner, result))
        finally:
            self._worker.close()

    def _answer(self, job: Job) -> JobResult:
        try:
            return self._worker.run(job, self._limits(job.task))
        except Exception as error:
            # This is a bug of ours. Without an answer, the task would wait for this refit for ever.
            log.exception("tasks.%s: refit %d could not be run.", job.task, job.number)
            reason = f"the refit could not be run ({type(error).__name__}: {error})"
            return job.refused(reason)


def _log_result(result: JobResult) -> None:
    """Log that a fit was refused, or that a new calibration is in use."""
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
