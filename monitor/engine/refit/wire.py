"""Encodes the jobs and results of refits as bytes for the worker process, and decodes and checks them.

The bytes contain only numbers, text, lists and arrays (`monitor.base.codec`). So nothing that is read from
the pipe is executed. If the bytes are invalid, decoding raises an error that explains the fault. It never
returns a partly filled object.
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
    """Return a job, together with its limit of memory, as bytes.

    `memory_bytes` is the memory that the worker may use for the job, in addition to the memory of the idle
    worker.
    """
    return pack(_Asked(job, memory_bytes))


def job_from_bytes(data: bytes) -> tuple[Job, float]:
    """Return the job and its limit of memory in bytes. `data` is a result of `job_to_bytes`.

    Raises
    ------
    ValueError
        The data is not such a result.
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
    """Return the result of a job. `data` is a result of `result_to_bytes`.

    Raises
    ------
    ValueError
        The data is not such a result.
    """
    try:
        return restored(unpack(data), _Answered).result
    except msgspec.ValidationError as error:
        raise ValueError(f"this is no result of a refit: {error}") from error
