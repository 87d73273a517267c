"""No calibration: the raw scores are the probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from monitor.base.records import Floats, Ints
from monitor.stats.calibration.base import Calibration, Calibrator, check_fit_input


@dataclass(frozen=True, slots=True)
class Uncalibrated(Calibration):
    """Returns the raw scores. Estimates are as wrong as the model is over- or underconfident.

    Parameters
    ----------
    width : int
        Columns of the scores.

    Examples
    --------
    >>> import numpy as np
    >>> Uncalibrated(2).apply(np.array([[0.25, 0.75]])).tolist()
    [[0.25, 0.75]]
    """

    width: int
    method: ClassVar[str] = "none"

    def apply(self, scores: Floats) -> Floats:
        self._check_width(scores)
        return scores.copy()


@dataclass(frozen=True, slots=True)
class NoCalibrator(Calibrator):
    """Returns `Uncalibrated`, whatever the data."""

    method: ClassVar[str] = "none"
    calibration: ClassVar[type[Calibration]] = Uncalibrated

    def fit(
        self, scores: Floats, predicted: Ints, labels: Ints, weights: Floats | None = None
    ) -> Uncalibrated:
        check_fit_input(scores, predicted, labels, weights)
        return Uncalibrated(scores.shape[1])
