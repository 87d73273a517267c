"""The refit itself: every estimator asked for, on the rows of the job; pure and seeded."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from monitor.calibration import calibration_from_snapshot
from monitor.calibration.auto import log_loss
from monitor.calibration.base import Calibration
from monitor.calibration.ssme import SSMECalibration
from monitor.labels import ESTIMATORS, METRICS, SSME, LabelEstimator
from monitor.records import Floats
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
        return _refused(job, f"{main}: {chief}")
    return RefitResult(
        job.task,
        job.number,
        job.sequence,
        job.time,
        models={name: _of_model(job, fits, at, chief, tags) for at, name in enumerate(job.models)},
        rows=len(job.labels),
        labelled=int((job.labels >= 0).sum()),
        prevalence=tuple(chief.prevalence.tolist()),
        effective_labels=chief.effective_labels,
        converged=chief.converged,
        iterations=chief.iterations,
    )


def _refused(job: RefitJob, reason: str) -> RefitResult:
    return RefitResult(
        job.task,
        job.number,
        job.sequence,
        job.time,
        refused=reason,
        rows=len(job.labels),
        labelled=int((job.labels >= 0).sum()),
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


def _of_model(
    job: RefitJob, fits: dict[str, LabelEstimator | str], at: int, chief: LabelEstimator, tags: Sequence[str]
) -> ModelRefit:
    estimates = tuple(
        MetricEstimate(metric, tag, _estimate(fits[tag], metric, at, job.level))
        for metric in job.metrics
        for tag in tags
        if metric in METRICS and metric in ESTIMATORS[tag].metrics
    )
    answered = not np.isnan(job.scores[:, at]).all()
    return ModelRefit(estimates, _curve(job, chief, at) if job.calibrate and answered else None)


def _estimate(fit: LabelEstimator | str, metric: str, at: int, level: float) -> Result:
    if isinstance(fit, str):
        return Unknown(FAILED if fit.startswith(FAILED) else fit)
    try:
        return fit.estimate(metric, at, level=level)
    except MemoryError:
        raise
    except Exception:
        log.exception("The estimator %s failed to estimate %s.", fit.tag, metric)
        return Unknown(FAILED)


def _curve(job: RefitJob, fit: LabelEstimator, at: int) -> dict[str, Any] | None:
    """The distilled calibration of one model that some row has scores of, or its reference's."""
    if not isinstance(fit, SSME):
        return None
    curve = SSMECalibration.of(fit.calibration(at))
    reference = job.references[at] if job.references else None
    if reference is not None and not _favoured(curve, calibration_from_snapshot(reference), job, at):
        return dict(reference)
    return dict(curve.snapshot())


def _favoured(curve: Calibration, reference: Calibration, job: RefitJob, at: int) -> bool:
    """Whether the model's labelled rows speak for a new curve beyond what it learnt of them by heart.

    Bayes' information criterion for a curve that was shifted and stretched: its log-likelihood must be
    larger by ln n. Without this, a curve from some tens of labels would replace one from thousands,
    and every refit would move the estimates under the control charts.
    """
    rows = np.flatnonzero((job.labels >= 0) & ~np.isnan(job.scores[:, at, 0]))
    if not len(rows):
        return False
    scores, labels = np.asarray(job.scores[rows, at], dtype=np.float64), job.labels[rows]
    weights = job.weights[rows] / job.weights[rows].mean()
    # No curve knows a chance below that of one surprise among its labels: a zero is not infinitely wrong.
    least = 1.0 / (len(rows) + 2)
    new, old = (
        log_loss(np.clip(one.apply(scores), least, 1.0 - least), labels, least) for one in (curve, reference)
    )
    return float(weights @ (old - new)) > math.log(len(rows))
