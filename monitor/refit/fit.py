"""The refit itself: every estimator asked for, on the rows of the job; pure and seeded."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from monitor.labels import ESTIMATORS, METRICS, SSME, LabelEstimator
from monitor.records import Floats
from monitor.refit.curves import calibrations
from monitor.refit.job import ModelRefit, RefitJob, RefitResult
from monitor.refit.tags import companions
from monitor.result import Reason, Result, Unknown
from monitor.view import MetricEstimate

log = logging.getLogger("blindsight")

FAILED = "the estimator failed"
"""Why an estimate is unknown where its estimator raised an error; the log has the error."""

_COLLAPSED = 1e-9  # expected rows outside one class, as a share: such a fit has given up the others


def reported(estimators: Sequence[str]) -> tuple[str, ...]:
    """The estimators whose estimates a refit gives: those asked for, and the companions of `ssme`.

    Parameters
    ----------
    estimators : sequence of str
        Tags of `ESTIMATORS`; others are left out.

    Examples
    --------
    >>> reported(["ssme", "labelled", "average_confidence"])
    ('ssme', 'labelled', 'ensemble')
    """
    asked = [tag for tag in estimators if tag in ESTIMATORS]
    return tuple(dict.fromkeys([*asked, *companions(asked)]))


def refit(job: RefitJob) -> RefitResult:
    """Fit and ask every estimator of a job.

    A refit stands or falls with its main estimator: `ssme` where it is asked for or a calibration is,
    else the first of the job. Where that one cannot be published nothing is, and the last good fit stays.
    Another one that cannot takes none with it: its estimates are unknown, with the reason.

    Parameters
    ----------
    job : RefitJob

    Returns
    -------
    RefitResult
        The same for the same job. `seconds` is 0: time is for who calls. `refused` says why where
        there are no rows or too few, the scores are wrong, the fit has collapsed onto one class or
        refuses itself, or it failed.

    Raises
    ------
    MemoryError
        The fit needs more memory than there is.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> late = rng.integers(0, 2, 400)
    >>> logit = (2 * late - 1)[:, None] + rng.normal(size=(400, 2))
    >>> scores = np.stack([1 / (1 + np.exp(logit)), 1 / (1 + np.exp(-logit))], axis=2)
    >>> job = RefitJob("late", 1, 400, 0.0, ("a", "b"), 1, scores, np.where(np.arange(400) < 80, late, -1),
    ...                scores.argmax(axis=2), np.ones(400), ("ssme",), ("accuracy",), 0.95, 0, True)
    >>> done = refit(job)
    >>> done.refused, done.labelled, [e.estimator for e in done.models["a"].estimates]
    (None, 80, ['ssme', 'ensemble', 'labelled'])
    """
    tags = reported(job.estimators)
    main = "ssme" if job.calibrate or "ssme" in tags else next(iter(tags), "")
    fits: dict[str, LabelEstimator | str] = {tag: _fitted(job, tag) for tag in dict.fromkeys([main, *tags])}
    chief = fits[main]
    if isinstance(chief, str):
        return job.refused(f"{main}: {chief}")
    return RefitResult(
        job.task,
        job.number,
        job.sequence,
        job.time,
        models={
            name: ModelRefit(_estimates(job, fits, at, tags), curve)
            for at, (name, curve) in enumerate(zip(job.models, _curves(job, chief), strict=True))
        },
        rows=len(job.labels),
        labelled=int((job.labels >= 0).sum()),
        prevalence=tuple(chief.prevalence.tolist()),
        effective_labels=chief.effective_labels,
        converged=chief.converged,
        iterations=chief.iterations,
    )


def _fitted(job: RefitJob, tag: str) -> LabelEstimator | str:
    """The estimator, fitted; or why there is none that may be published."""
    if tag not in ESTIMATORS:
        return f"is no estimator that uses labels ({', '.join(ESTIMATORS)})"
    positive = job.positive if job.scores.shape[2] == 2 else None
    try:
        fit = ESTIMATORS[tag](seed=job.seed, positive=positive).fit(
            job.scores, job.labels, predicted=job.predicted, weights=_weights(job)
        )
        return _unfit(fit) or fit
    except MemoryError:
        raise
    except Exception as error:
        log.exception("tasks.%s: the estimator %s failed in refit %d.", job.task, tag, job.number)
        return f"{FAILED} ({type(error).__name__}: {error})"


def _weights(job: RefitJob) -> Floats | None:
    """None where all labels weigh the same: estimators have more precise forms then."""
    labelled = job.weights[job.labels >= 0]
    return None if len(labelled) == 0 or bool((labelled == labelled[0]).all()) else job.weights


def _unfit(fit: LabelEstimator) -> str | None:
    """Why a fit is not fit to publish."""
    if fit.refused is not None:
        return fit.refused
    if not np.isfinite(fit.prevalence).all():  # labelled rows of models that are in the list no more
        return Reason.NO_ROWS
    if fit.tag == "ssme" and fit.prevalence.max() > 1.0 - _COLLAPSED:
        return Reason.COLLAPSED
    return None


def _curves(job: RefitJob, chief: LabelEstimator) -> list[dict[str, Any] | None]:
    return calibrations(job, chief) if job.calibrate and isinstance(chief, SSME) else [None] * len(job.models)


def _estimates(
    job: RefitJob, fits: dict[str, LabelEstimator | str], at: int, tags: Sequence[str]
) -> tuple[MetricEstimate, ...]:
    return tuple(
        MetricEstimate(metric, tag, _estimate(fits[tag], metric, at, job.level))
        for metric in job.metrics
        for tag in tags
    )


def _estimate(fit: LabelEstimator | str, metric: str, at: int, level: float) -> Result:
    if metric not in METRICS:
        return Unknown(Reason.NOT_DEFINED)
    if isinstance(fit, str):
        return Unknown(FAILED if fit.startswith(FAILED) else fit)
    try:
        return fit.estimate(metric, at, level=level)
    except MemoryError:
        raise
    except Exception:
        log.exception("The estimator %s failed to estimate %s.", fit.tag, metric)
        return Unknown(FAILED)
