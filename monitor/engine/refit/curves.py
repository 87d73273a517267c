"""The calibrations that a refit publishes: curves of `ssme`, or the reference's curves adjusted by labels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy

from monitor.base.records import Floats, Ints
from monitor.engine.refit.job import RefitJob
from monitor.stats.calibration.auto import log_loss
from monitor.stats.calibration.followed import LEAST, NEWEST, WORTH, FollowedCurves, follow
from monitor.stats.calibration.isotonic import Curve, IsotonicCalibration
from monitor.stats.calibration.ssme import SSMECalibration
from monitor.stats.labelled.ssme import SSME

STAYS = 0.499
"""The reference's calibration stays in use if the probability that nothing has changed is above this value.

The prior probability of no change is 0.5. The value is slightly lower, so that rounding has no effect.
"""

NEW_PRIOR = 0.1
"""The prior probability that the curve of `ssme` is right, and not the adjusted curve of the reference."""

FREE_NUMBERS = 2
"""The number of free parameters that count as fitted to labels in the curve of `ssme`.

Each costs (ln n) / 2 nats, by the Bayesian information criterion. The number is that of a curve that is
shifted and stretched.
"""


def calibrations(job: RefitJob, fit: SSME) -> list[dict[str, Any] | None]:
    """Return the snapshot of the calibration to publish for each model; None for a model without scores.

    A model without a reference gets the curve of `ssme`. A model with a reference keeps the calibration of
    the reference, to the last bit, while the labels show no change. If they show a change, the model gets a
    weighted mean of two curves: the curve of `ssme`, and the curve of the reference adjusted by the labels
    (`monitor.stats.calibration.followed`). The weight of a curve depends on how well it predicts the labelled
    rows.

    Parameters
    ----------
    job : RefitJob
    fit : SSME
        The successful fit on the rows of the job.
    """
    answered = [not np.isnan(job.scores[:, m, 0]).all() for m in range(len(job.models))]
    new = [
        SSMECalibration.from_isotonic(fit.calibration(m)) if there else None
        for m, there in enumerate(answered)
    ]
    references = job.references or (None,) * len(job.models)
    old = {
        m: IsotonicCalibration.from_snapshot(reference)
        for m, reference in enumerate(references)
        if reference is not None and answered[m]
    }
    snapshots = [None if one is None else dict(one.snapshot()) for one in new]
    if not old:
        return snapshots
    followed, rows = _followed(job, old)
    for place, (m, reference) in enumerate(old.items()):
        one = new[m]
        share = 0.0 if one is None else _share(job, m, one, followed, rows)
        if one is None or (1.0 - share) * followed.still > STAYS:
            snapshots[m] = dict(references[m] or {})
            continue
        first = place * len(reference.curves)
        moved = [followed.curve(curve, first + k) for k, curve in enumerate(reference.curves)]
        mixed = tuple(_mixed(a, b, share) for a, b in zip(moved, one.curves, strict=True))
        snapshots[m] = dict(SSMECalibration(reference.width, mixed).snapshot())
    return snapshots


def _followed(job: RefitJob, old: Mapping[int, IsotonicCalibration]) -> tuple[FollowedCurves, Ints]:
    """Return the curves of the references adjusted by the labelled rows, and these rows."""
    labelled = np.flatnonzero(job.labels >= 0)
    there = ~np.isnan(job.scores[labelled][:, list(old), 0]).all(axis=1)
    rows = labelled[there][-NEWEST:]
    chances, events = [], []
    for m, reference in old.items():
        # Two classes have one curve, for the second; more have one each, against the rest.
        classes = (1,) if reference.width == 2 else range(reference.width)
        for k, curve in zip(classes, reference.curves, strict=True):
            score = np.asarray(job.scores[rows, m, k], dtype=np.float64)
            chances.append(np.where(np.isnan(score), np.nan, curve(np.nan_to_num(score))))
            events.append((job.labels[rows] == k).astype(np.float64))
    # Each of K curves against the rest uses a row's label: the two of two classes would use it twice.
    width = job.scores.shape[2]
    share = 1.0 if width == 2 else width / 2.0
    return follow(np.stack(chances, axis=1), np.stack(events, axis=1), _weights(job, rows), share), rows


def _weights(job: RefitJob, rows: Ints) -> Floats:
    """Return weights whose sum is the effective number of labels (by Kish's formula)."""
    weight = job.weights[rows]
    scaled: Floats = weight * (weight.sum() / (weight @ weight)) if len(rows) else weight
    return scaled


def _share(job: RefitJob, model: int, new: SSMECalibration, followed: FollowedCurves, rows: Ints) -> float:
    """Return the posterior probability of the curve of `ssme` against the adjusted curve of the reference."""
    own = ~np.isnan(job.scores[rows, model, 0])
    if not own.any():
        return 0.0
    mine = rows[own]
    calibrated = np.clip(new.apply(np.asarray(job.scores[mine, model], dtype=np.float64)), LEAST, 1 - LEAST)
    log_likelihood = -WORTH * float(_weights(job, rows)[own] @ log_loss(calibrated, job.labels[mine], LEAST))
    # The evidence covers all rows: scale up from the rows that this model answered.
    log_likelihood *= len(rows) / len(mine)
    penalty = FREE_NUMBERS / 2 * math.log(len(mine))
    odds = math.log(NEW_PRIOR / (1.0 - NEW_PRIOR)) + log_likelihood - penalty - followed.log_evidence
    return float(scipy.special.expit(odds))


def _mixed(old: Curve, new: Curve, share: float) -> Curve:
    knots = np.union1d(old.x, new.x)
    return Curve(knots, (1.0 - share) * old(knots) + share * new(knots))
