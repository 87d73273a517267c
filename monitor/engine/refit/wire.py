"""Refits as bytes: what goes to the worker process and what comes back, checked on the way in.

Numbers, text, lists and arrays only (`monitor.base.codec`): nothing that comes over the pipe is executed,
and what is not of this form is an error with a sentence, never an object half filled.
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
    """A job with the memory that it may take on top of what the worker has when it is idle."""
    return pack(_Asked(job, memory_bytes))


def job_from_bytes(data: bytes) -> tuple[Job, float]:
    """What `job_to_bytes` wrote; other bytes raise a `ValueError`."""
    try:
        read = restored(unpack(data), _Asked)
    except msgspec.ValidationError as error:
        raise ValueError(f"these bytes are no job of a refit: {error}") from error
    return read.job, read.memory_bytes


def result_to_bytes(result: JobResult) -> bytes:
    """A result of either kind.

    Examples
    --------
    >>> result_from_bytes(result_to_bytes(RefitResult("t", 3, 100, 1.5, refused="too few rows"))).number
    3
    """
    return pack(_Answered(result))


def result_from_bytes(data: bytes) -> JobResult:
    """What `result_to_bytes` wrote; other bytes raise a `ValueError` that says what is wrong."""
    try:
        return restored(unpack(data), _Answered).result
    except msgspec.ValidationError as error:
        raise ValueError(f"this is no result of a refit: {error}") from error
