"""Refits as bytes: what goes to the worker process and what comes back, checked on the way in.

Numbers, text, lists and arrays only (`monitor.base.codec`): nothing that comes over the pipe is executed,
and what is not of this form is an error with a sentence, never an object half filled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

import msgspec

from monitor.base.codec import pack, unpack
from monitor.base.results import Estimate, Result, TooFew, Unknown
from monitor.engine.refit.job import ModelRefit, RefitJob, RefitResult
from monitor.engine.refit.recalibration import RecalibrationJob, RecalibrationResult
from monitor.reports.views import MetricEstimate
from monitor.stats.calibration.refit import LabelledRows
from monitor.stats.pairwise.ranking import RankInterval

Job = RefitJob | RecalibrationJob
JobResult = RefitResult | RecalibrationResult


class _Known(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An estimate as it travels: a value with its interval, or why there is none."""

    metric: str
    estimator: str
    value: float | None = None
    lower: float = 0.0
    upper: float = 0.0
    level: float = 0.0
    n: int | None = None
    unknown: str | None = None
    rank: tuple[int, int] | None = None
    rank_chi_square: tuple[int, int] | None = None


class _Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    estimates: list[_Known]
    calibration: dict[str, Any] | None


class _Result(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    task: str
    number: int
    sequence: int
    time: float
    refused: str | None
    models: dict[str, _Model]
    rows: int
    labelled: int
    pool_rows: int
    widening: float
    prevalence: list[float]
    effective_labels: float
    converged: bool
    iterations: int
    seconds: float
    drawn: int | None
    missing_draws: int | None


class _Recalibration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    task: str
    model: str
    number: int
    sequence: int
    refused: str | None
    calibration: dict[str, Any] | None
    gain: float
    weight: float
    epsilon: float
    time: float
    rows: int
    seconds: float


def job_to_bytes(job: Job, memory_bytes: float) -> bytes:
    """A job with the memory that it may take.

    Parameters
    ----------
    job : RefitJob or RecalibrationJob
    memory_bytes : float
        On top of what the worker has when it is idle.
    """
    kind = "recalibration" if isinstance(job, RecalibrationJob) else "job"
    return pack({kind: {f.name: getattr(job, f.name) for f in fields(job)}, "memory_bytes": memory_bytes})


def job_from_bytes(data: bytes) -> tuple[Job, float]:
    """What `job_to_bytes` wrote.

    Raises
    ------
    ValueError
        The bytes are none of `job_to_bytes`'.
    """
    read = unpack(data)
    try:
        if "recalibration" in read:
            return _recalibration_job(read["recalibration"]), float(read["memory_bytes"])
        job: dict[str, Any] = {
            name: tuple(v) if isinstance(v, list) else v for name, v in read["job"].items()
        }
        return RefitJob(**job), float(read["memory_bytes"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"these bytes are no job of a refit: {error!r}") from error


def _recalibration_job(read: Mapping[str, Any]) -> RecalibrationJob:
    reference = read["reference"]
    return RecalibrationJob(
        **{
            **read,
            "labelled": LabelledRows(*read["labelled"]),
            "reference": None if reference is None else LabelledRows(*reference),
        }
    )


def result_to_bytes(result: JobResult) -> bytes:
    """A result of either kind.

    Examples
    --------
    >>> result_from_bytes(result_to_bytes(RefitResult("t", 3, 100, 1.5, refused="too few rows"))).number
    3
    """
    plain = {f.name: getattr(result, f.name) for f in fields(result)}
    if isinstance(result, RecalibrationResult):
        return pack({"recalibration": plain})
    models = {
        name: {
            "estimates": [estimate_state(e) for e in model.estimates],
            "calibration": None if model.calibration is None else dict(model.calibration),
        }
        for name, model in result.models.items()
    }
    return pack({**plain, "models": models, "prevalence": list(result.prevalence)})


def result_from_bytes(data: bytes) -> JobResult:
    """What `result_to_bytes` wrote.

    Raises
    ------
    ValueError
        The bytes are none of `result_to_bytes`': the message says what is wrong.
    """
    try:
        found = unpack(data)
        if isinstance(found, dict) and "recalibration" in found:
            known = msgspec.convert(found["recalibration"], _Recalibration)
            return RecalibrationResult(**msgspec.structs.asdict(known))
        read = msgspec.convert(found, _Result)
    except msgspec.ValidationError as error:
        raise ValueError(f"this is no result of a refit: {error}") from error
    plain = {f.name: getattr(read, f.name) for f in fields(RefitResult)}
    models = {
        name: ModelRefit(tuple(map(_estimate, model.estimates)), model.calibration)
        for name, model in read.models.items()
    }
    return RefitResult(**{**plain, "models": models, "prevalence": tuple(read.prevalence)})


def estimate_state(found: MetricEstimate) -> dict[str, Any]:
    """An estimate as plain values, to the last bit.

    Examples
    --------
    >>> estimate_state(MetricEstimate("f1", "ssme", Unknown("one class only")))["unknown"]
    'one class only'
    """
    result = found.result
    head: dict[str, Any] = {"metric": found.metric, "estimator": found.estimator}
    for name, rank in (("rank", found.rank), ("rank_chi_square", found.rank_chi_square)):
        if rank is not None:
            head[name] = [rank.best, rank.worst]
    if isinstance(result, Estimate):
        return head | asdict(result)
    size = {"n": result.n} if isinstance(result, TooFew) else {}
    return head | {"unknown": str(result.reason)} | size


def estimate_from_state(state: Mapping[str, Any]) -> MetricEstimate:
    """What `estimate_state` gave.

    Raises
    ------
    ValueError
        A field is missing, not known, or of another type.
    """
    try:
        return _estimate(msgspec.convert(state, _Known))
    except msgspec.ValidationError as error:
        raise ValueError(f"this is no estimate: {error}") from error


def _estimate(read: _Known) -> MetricEstimate:
    result: Result
    if read.value is not None:
        result = Estimate(read.value, read.lower, read.upper, read.level, read.n or 0)
    elif read.unknown is None:
        raise ValueError(f"the estimate of {read.metric} by {read.estimator} has neither value nor reason")
    else:
        result = Unknown(read.unknown) if read.n is None else TooFew(read.unknown, read.n)
    ranks = (None if r is None else RankInterval(*r) for r in (read.rank, read.rank_chi_square))
    return MetricEstimate(read.metric, read.estimator, result, 0, *ranks)
