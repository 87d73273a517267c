"""Fits a model's calibration again on labels, and decides whether the new fit replaces the old one.

The same job always gives the same result.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from monitor.engine.labels.trust import epsilon_of
from monitor.stats.calibration import CALIBRATORS, calibration_from_snapshot
from monitor.stats.calibration.auto import choose, log_loss
from monitor.stats.calibration.base import Calibration, confidence_of
from monitor.stats.calibration.refit import LabelledRows, Refitted, refitted

log = logging.getLogger("blindsight")

AS_SURE = 1.1
"""The largest standard error of a new calibration, divided by that of the present calibration.

The limit applies only while labels have not contradicted the present calibration. It is above 1, because the
standard errors of two fits on the same number of rows differ by a few per cent.
"""

FIRST_LABELS = 200
"""The least number of labels for a first calibration, which replaces raw scores."""


class RecalibrationJob(msgspec.Struct, frozen=True, eq=False, tag="recalibration"):
    """The input of one recalibration of one model, with n labelled rows.

    Parameters
    ----------
    task, model : str
        The names.
    number : int
        The number of the recalibration in the task, from 1.
    sequence : int
        The sequence number of the newest answer in the fit.
    method : str
        The calibration method. It is `auto` only if there is no reference on which a method could be chosen.
    labelled : LabelledRows
        The labelled answers, in order of time.
    fresh : (n,) bool
        True for rows on which the present calibration was not fitted. Only these rows may evaluate this
        calibration.
    reference : LabelledRows or None
        Rows of the model's reference, if it has one.
    in_force : mapping
        The snapshot of the present calibration.
    trusted : bool
        False if labels have contradicted the present calibration.
    epsilon : float
        The standard error of the present calibration, in logits (`monitor.engine.labels.trust.epsilon_of`);
        infinite if the error is not known.
    """

    task: str
    model: str
    number: int
    sequence: int
    method: str
    labelled: LabelledRows
    fresh: NDArray[np.bool_]
    reference: LabelledRows | None
    in_force: Mapping[str, Any]
    trusted: bool
    epsilon: float = math.inf

    def refused(self, reason: str) -> RecalibrationResult:
        """Return a result that refuses this job, with the reason."""
        return RecalibrationResult(
            self.task, self.model, self.number, self.sequence, refused=reason, rows=len(self.labelled.labels)
        )


class RecalibrationResult(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="recalibration"):
    """The result of a `RecalibrationJob`: a new calibration, or the decision to keep the present one.

    Parameters
    ----------
    task, model, number, sequence
        As in the job.
    refused : str or None
        The reason why nothing could be fitted, as a sentence; None if a calibration was fitted.
    calibration : mapping or None
        The snapshot of the new calibration; None if the present calibration stays in use.
    gain : float
        The log-likelihood of the new calibration minus the log-likelihood of the present one, in nats. The
        rows were not used to fit either calibration.
    weight : float
        The weight of a row of the reference relative to a labelled row.
    epsilon : float
        The standard error of the new calibration, in logits (`monitor.engine.labels.trust.epsilon_of`). 0 if
        the present calibration stays in use.
    time : float
        The time of the newest answer in the fit, seconds since the epoch.
    rows : int
        The number of labelled rows in the fit.
    seconds : float
        Wall time of the fit. No reproducible result contains it.
    """

    task: str
    model: str
    number: int
    sequence: int
    refused: str | None = None
    calibration: Mapping[str, Any] | None = None
    gain: float = 0.0
    weight: float = 0.0
    epsilon: float = 0.0
    time: float = 0.0
    rows: int = 0
    seconds: float = 0.0


def recalibrate(job: RecalibrationJob) -> RecalibrationResult:
    """Fit a model's calibration again, and decide whether the new fit replaces the present calibration.

    The two calibrations are compared by their log-likelihood on the n labelled rows on which the present
    calibration was not fitted. The new calibration is cross-fitted: each row is predicted by a fit on the
    reference and on other labelled rows (`monitor.stats.calibration.refitted`). If labels have not
    contradicted the present calibration, the standard error of the new one must be at most `AS_SURE` times
    the standard error of the present one. The rows of the reference get the weight that achieves this, at
    most 1. The new calibration replaces the present one in three cases:

    * Labels have contradicted the present calibration, and the rows favour the new one.
    * Labels have not contradicted the present calibration, and the rows favour the new one by more than ln n
      nats (the Bayesian information criterion for one parameter). With a smaller limit, chance would change
      the estimates under the control charts at every refit.
    * There is no present calibration. There are at least `FIRST_LABELS` rows, and they do not favour the raw
      scores by ln n nats or more.

    Returns
    -------
    RecalibrationResult
        The same result for the same job. The caller sets `seconds`.

    Raises
    ------
    MemoryError
        The fit needs more memory than is available.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> def rows(n, shift):
    ...     score = rng.uniform(0.5, 1.0, n)
    ...     wrong = (rng.random(n) > score - shift).astype(int)
    ...     return LabelledRows(score[:, None], wrong * 0, wrong, np.arange(float(n)), np.ones(n))
    >>> before, now = rows(5000, 0.0), rows(500, 0.2)
    >>> old = CALIBRATORS["platt"]().fit(before.scores, before.predicted, before.labels)
    >>> job = RecalibrationJob("t", "m", 1, 9, "platt", now, now.time >= 0, before, old.snapshot(), True)
    >>> done = recalibrate(job)
    >>> done.refused, done.weight, done.gain > 6.2, done.calibration["method"]
    (None, 0.0, True, 'platt')
    """
    try:
        in_force = calibration_from_snapshot(job.in_force)
        _refuse_too_little(job, in_force)
        refit = refitted(job.reference, job.labelled, CALIBRATORS[_method(job)](), _as_sure(job, in_force))
        gain = _gain(job, in_force, refit)
        accepted = refit.calibration if gain > _needed(job, in_force) else None
    except ValueError as error:
        return job.refused(str(error))
    except MemoryError:
        raise
    except Exception as error:
        log.exception("tasks.%s: recalibration %d of %s failed.", job.task, job.number, job.model)
        return job.refused(f"the fit failed ({type(error).__name__}: {error})")
    return RecalibrationResult(
        job.task,
        job.model,
        job.number,
        job.sequence,
        calibration=None if accepted is None else dict(accepted.snapshot()),
        gain=gain,
        weight=refit.weight,
        epsilon=0.0 if accepted is None else _pinned_down(job, accepted)(refit.weight),
        time=float(job.labelled.time[-1]),
        rows=len(job.labelled.labels),
    )


def _refuse_too_little(job: RecalibrationJob, in_force: Calibration) -> None:
    labels = job.labelled.labels
    if in_force.method == "none" and len(labels) < FIRST_LABELS:
        raise ValueError(
            f"a first calibration needs {FIRST_LABELS} labelled rows, got {len(labels)}; wait for more labels"
        )
    if len(labels) and (labels == labels[0]).all():
        # A fit with a reference would succeed, but labels selected by their outcome mislead it.
        raise ValueError(
            f"the {len(labels)} labelled rows are all of class {labels[0]}, counted from 0: label answers "
            "independently of the outcome; wait for labels of another class"
        )


def _as_sure(job: RecalibrationJob, in_force: Calibration) -> Callable[[float], bool]:
    """Return a function that tells whether a fit with this weight of the reference's rows is precise enough.

    A precise fit may replace the present calibration.
    """
    if not job.trusted or job.reference is None or in_force.method == "none":
        return lambda weight: True
    epsilon, most = _pinned_down(job, in_force), AS_SURE * job.epsilon
    return lambda weight: epsilon(weight) <= most


def _method(job: RecalibrationJob) -> str:
    """Return the one method of all fits.

    With `auto`, choosing a method in each fit would need some hundred fits.
    """
    if job.method != "auto":
        return job.method
    rows = job.labelled
    return choose(rows.scores, rows.predicted, rows.labels, rows.weights / rows.weights.mean()).method


def _needed(job: RecalibrationJob, in_force: Calibration) -> float:
    if in_force.method == "none":
        return -math.log(len(job.labelled.labels))
    return math.log(max(int(job.fresh.sum()), 2)) if job.trusted else 0.0


def _gain(job: RecalibrationJob, in_force: Calibration, refit: Refitted) -> float:
    """Return the log-likelihood, in nats, by which rows of neither fit favour the new calibration."""
    rows, weights = job.labelled, job.labelled.weights / job.labelled.weights.mean()
    old = log_loss(in_force.apply(rows.scores), rows.labels, 1 / (len(rows.labels) + 2.0))
    return float((weights * (old - refit.held_out))[job.fresh].sum())


def _pinned_down(job: RecalibrationJob, calibration: Calibration) -> Callable[[float], float]:
    """Return a function from the weight of the reference's rows to the uncertainty of the fit, in logits."""
    parts = [job.labelled] if job.reference is None else [job.labelled, job.reference]
    confidence = np.concatenate(
        [confidence_of(calibration.apply(rows.scores), rows.predicted) for rows in parts]
    )
    own = job.labelled.weights / job.labelled.weights.mean()

    def epsilon(weight: float) -> float:
        weights = [own] if job.reference is None else [own, weight * job.reference.weights]
        return epsilon_of(confidence, np.concatenate(weights))

    return epsilon
