"""Calibration `none`, which uses the raw scores as probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from monitor.base.records import Floats, Ints
from monitor.stats.calibration.base import Calibration, Calibrator, check_fit_input


@dataclass(frozen=True, slots=True)
class Uncalibrated(Calibration):
    """The identity map, which returns the raw scores.

    Estimates from raw scores are biased if the model is over- or underconfident.

    Parameters
    ----------
    width : int
        Number of columns of the scores.

    Examples
    --------
    >>> import numpy as np
    >>> Uncalibrated(2).apply(np.array([[0.25, 0.75]])).tolist()
    [[0.25, 0.75]]
    """

    width: int
    method: ClassVar[str] = "none"

    def apply(self, scores: Floats) -> Floats:
        """Return a copy of the raw scores."""
        self._check_width(scores)
        return scores.copy()


@dataclass(frozen=True, slots=True)
class NoCalibrator(Calibrator):
    """The calibrator that returns the identity map for any rows."""

    method: ClassVar[str] = "none"
    calibration: ClassVar[type[Calibration]] = Uncalibrated

    def fit(
        self, scores: Floats, predicted: Ints, labels: Ints, weights: Floats | None = None
    ) -> Uncalibrated:
        """Check the arguments, and return the identity map."""
        check_fit_input(scores, predicted, labels, weights)
        return Uncalibrated(scores.shape[1])
