"""The encoding of refits' jobs and results for the worker process, checked when they are read.

The encoding contains only numbers, text, lists and arrays (`monitor.base.codec`): nothing read from the pipe
is executed. Other bytes raise an error with a sentence as its message, and never result in a partly filled
object.
"""

from __future__ import annotations

import msgspec

from monitor.base.codec import pack, restored, unpack
from monitor.engine.refit.job import RefitJob, RefitResult
from monitor.engine.refit.recalibration import RecalibrationJob, RecalibrationResult

Job = RefitJob | RecalibrationJob
JobResult = RefitResult | RecalibrationResult


class _Asked(msgspec.Struct, frozen=True):
    job: Job
    memory_bytes: float


class _Answered(msgspec.Struct, frozen=True):
    result: JobResult


def job_to_bytes(job: Job, memory_bytes: float) -> bytes:
    """Return the bytes of a job and of the memory that it may use beyond the idle worker's."""
    return pack(_Asked(job, memory_bytes))


def job_from_bytes(data: bytes) -> tuple[Job, float]:
    """Return the job and its memory from the result of `job_to_bytes`; raise ValueError for other bytes."""
    try:
        read = restored(unpack(data), _Asked)
    except msgspec.ValidationError as error:
        raise ValueError(f"these bytes are no job of a refit: {error}") from error
    return read.job, read.memory_bytes


def result_to_bytes(result: JobResult) -> bytes:
    """Return the bytes of a result of either kind.

    Examples
    --------
    >>> result_from_bytes(result_to_bytes(RefitResult("t", 3, 100, 1.5, refused="too few rows"))).number
    3
    """
    return pack(_Answered(result))


def result_from_bytes(data: bytes) -> JobResult:
    """Return the result from the bytes of `result_to_bytes`; raise ValueError for other bytes."""
    try:
        return restored(unpack(data), _Answered).result
    except msgspec.ValidationError as error:
        raise ValueError(f"this is no result of a refit: {error}") from error
