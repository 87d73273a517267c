"""The common part of DoC-Feat and ATC: labelled confidences for the fit, and an interval."""

from __future__ import annotations

import numpy as np
import scipy
from numpy.typing import ArrayLike

from monitor.base.records import Floats
from monitor.base.results import Estimate, Reason, Result, Unknown
from monitor.stats.estimate.poisson_binomial import checked_level, checked_probabilities


def checked_reference(confidence: ArrayLike, correct: ArrayLike) -> tuple[Floats, Floats]:
    """Return confidences and outcomes (1.0 if right) of the same rows, at least one, or raise ValueError."""
    confidences = checked_probabilities(confidence, 1, "confidence")
    outcomes = np.asarray(correct)
    if outcomes.shape != confidences.shape:
        raise ValueError(
            f"correct must have the shape {confidences.shape}, like the confidences, got {outcomes.shape}"
        )
    if not len(confidences):
        raise ValueError("the reference has no labelled rows to fit on; give some")
    if outcomes.dtype.kind not in "biuf" or not np.isin(outcomes, (0, 1)).all():
        raise ValueError("correct must hold true and false, or 1 and 0, only")
    return confidences, outcomes.astype(np.float64)


def binomial_estimate(value: float, n: int, level: float) -> Result:
    """Return an accuracy with the central quantiles of n trials that all have this probability.

    Trials with unequal probabilities vary less around the same mean (Hoeffding), so the interval is wide
    enough if the value is the mean probability.
    """
    checked_level(level)
    if n == 0:
        return Unknown(Reason.NO_ROWS)
    if not 0.0 < value < 1.0:
        return Estimate(value, value, value, level, n)
    tail = (1.0 - level) / 2.0
    low, high = (_binomial_quantiles(np.array([tail, 1.0 - tail]), n, value) / n).tolist()
    return Estimate(value, min(low, value), max(high, value), level, n)


def _binomial_quantiles(q: Floats, n: int, p: float) -> Floats:
    """Return the quantiles of `scipy.stats.binom.ppf`, whose import is slow at the first window."""
    counts = np.ceil(scipy.special.bdtrik(q, n, p))
    before = np.maximum(counts - 1.0, 0.0)
    quantiles: Floats = np.where(scipy.special.bdtr(before, n, p) >= q, before, counts)
    return quantiles
