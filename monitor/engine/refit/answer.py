"""What a worker of refits does with a job, whichever kind it is of."""

from __future__ import annotations

from monitor.engine.refit.fit import refit
from monitor.engine.refit.recalibration import RecalibrationJob, recalibrate
from monitor.engine.refit.wire import Job, JobResult


def answer(job: Job) -> JobResult:
    """The result of a job; see `refit` and `recalibrate`."""
    return recalibrate(job) if isinstance(job, RecalibrationJob) else refit(job)
