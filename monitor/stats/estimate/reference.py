"""The base class of accuracy estimators that are fitted on a labelled reference, and their common checks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import scipy
from numpy.typing import ArrayLike

from monitor.base.records import Floats
from monitor.base.results import Estimate, Reason, Result, Unknown
from monitor.stats.estimate.poisson_binomial import checked_level, checked_probabilities


@dataclass(frozen=True, slots=True)
class ReferenceEstimator(ABC):
    """An estimator of the accuracy that is fitted on the confidences of a labelled reference.

    A subclass is a frozen dataclass. Its fields are the fitted numbers, which the stored state contains.

    Attributes
    ----------
    is_share : bool
        True if the estimate is a share of the rows.
    """

    is_share: ClassVar[bool]

    @classmethod
    @abstractmethod
    def fit(cls, confidence: ArrayLike, correct: ArrayLike) -> Self:
        """Return the estimator, fitted on (n,) confidences and on (n,) outcomes, True for a right prediction.

        Raises
        ------
        ValueError
            The arrays differ in length or are empty, or a value is out of range.
        """

    def estimate(self, confidence: ArrayLike, level: float = 0.95) -> Result:
        """Return the accuracy of a window of confidences (n,), 0 to 1; Unknown for no rows.

        Raises
        ------
        ValueError
            A confidence or the level is out of range.
        """
        window = checked_probabilities(confidence, 1, "confidence")
        value = self._accuracy(window) if len(window) else 0.0
        return binomial_estimate(min(max(value, 0.0), 1.0), len(window), level)

    @abstractmethod
    def _accuracy(self, confidence: Floats) -> float:
        """Return the accuracy of a window with at least one row; a value outside 0 to 1 is clipped."""


def checked_reference(confidence: ArrayLike, correct: ArrayLike) -> tuple[Floats, Floats]:
    """Return (n,) confidences and (n,) outcomes as floats, or raise a ValueError if they are invalid.

    An outcome is 1.0 if the prediction was right, otherwise 0.0. At least one row is required.
    """
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
    """Return an accuracy with the central quantiles of a binomial distribution of n trials.

    `value` is the success probability of each trial. If the trials have different probabilities with this
    mean, their number of successes varies less (Hoeffding), so the interval is wide enough for them too.
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
