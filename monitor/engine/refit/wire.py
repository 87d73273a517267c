"""Encodes the jobs and results of refits as bytes for the worker process, and checks them when they are read.

The bytes contain only numbers, text, lists and arrays (`monitor.base.codec`), so nothing read from the pipe
is executed. Invalid bytes raise an error that explains the fault. They never give a partly filled object.
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
    """Return a job as bytes, with the memory that it may use in addition to that of the idle worker."""
    return pack(_Asked(job, memory_bytes))


def job_from_bytes(data: bytes) -> tuple[Job, float]:
    """Return the job and its memory in bytes from the result of `job_to_bytes`.

    Raise ValueError if the data is not such a result.
    """
    try:
        read = restored(unpack(data), _Asked)
    except msgspec.ValidationError as error:
        raise ValueError(f"these bytes are no job of a refit: {error}") from error
    return read.job, read.memory_bytes


def result_to_bytes(result: JobResult) -> bytes:
    """Return the result of a refit or a recalibration as bytes.

    Examples
    --------
    >>> result_from_bytes(result_to_bytes(RefitResult("t", 3, 100, 1.5, refused="too few rows"))).number
    3
    """
    return pack(_Answered(result))


def result_from_bytes(data: bytes) -> JobResult:
    """Return the result of a job from the result of `result_to_bytes`.

    Raise ValueError if the data is not such a result.
    """
    try:
        return restored(unpack(data), _Answered).result
    except msgspec.ValidationError as error:
        raise ValueError(f"this is no result of a refit: {error}") from error
