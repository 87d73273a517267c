"""Temperature scaling: one parameter that makes all confidences larger or smaller."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy

from monitor.base.records import Floats, Ints
from monitor.stats.calibration.base import Calibration, Calibrator
from monitor.stats.calibration.newton import PRIOR, minimise
from monitor.stats.calibration.rows import FitRows, fit_rows, log_scores


@dataclass(frozen=True, slots=True)
class TemperatureCalibration(Calibration):
    """A fitted temperature scaling: one factor for the logarithms of all scores.

    Parameters
    ----------
    width : int
        Number of columns of the scores.
    sharpness : float
        The inverse temperature, 0 or more. A value above 1 means that the raw scores are underconfident, and
        a value below 1 that they are overconfident.

    Examples
    --------
    >>> TemperatureCalibration(3, 0.5).apply(np.array([[0.64, 0.16, 0.2]])).round(3).tolist()
    [[0.486, 0.243, 0.271]]
    """

    width: int
    sharpness: float
    method: ClassVar[str] = "temperature"

    def apply(self, scores: Floats) -> Floats:
        """Return the softmax of the log-scores multiplied by `sharpness`."""
        self._check_width(scores)
        calibrated: Floats = scipy.special.softmax(self.sharpness * log_scores(scores), axis=1)
        return calibrated[:, : self.width].copy() if self.width == 1 else calibrated


@dataclass(frozen=True, slots=True)
class TemperatureCalibrator(Calibrator):
    """The settings of temperature scaling, which divides the log-scores by one temperature.

    The result is the softmax of the divided log-scores. The temperature T maximises the likelihood of the
    labels, with a weak normal prior on 1/T around 1 (`newton.PRIOR`). The prior hardly changes T if the
    likelihood alone has a finite maximum.

    The map has one parameter for any number of classes, and needs fewer rows than the other methods. It keeps
    the order of the classes within a row, so the most probable class stays the same. For two classes and for
    a confidence, the map is a sigmoid of the logit with the slope 1/T and no intercept. This is Platt's map
    without the shift and without the smoothed targets. The logarithms of the scores (clipped at 10⁻⁶) may
    replace the model's logits, because a constant that is added to a row does not change the softmax.

    The map cannot correct a model that predicts a class too often or too rarely: it has no intercept for each
    class, so equal scores stay equal. Negative temperatures, which would reverse the order, are excluded.

    References
    ----------
    C. Guo, G. Pleiss, Y. Sun, K. Q. Weinberger, *On calibration of modern neural networks*, ICML 2017,
    section 4.2, equation 9.

    Examples
    --------
    >>> score = np.tile([0.01, 0.99], 5000)  # overconfident: right in 9 of 10
    >>> labels = np.tile([0, 1], 5000)
    >>> labels[:1000] = 1 - labels[:1000]
    >>> fitted = TemperatureCalibrator().fit(np.column_stack((1 - score, score)), labels, labels)
    >>> round(1 / fitted.sharpness, 2)
    2.09
    """

    method: ClassVar[str] = "temperature"
    calibration: ClassVar[type[Calibration]] = TemperatureCalibration

    def fit(
        self, scores: Floats, predicted: Ints, labels: Ints, weights: Floats | None = None
    ) -> TemperatureCalibration:
        """Return the calibration with the temperature that fits the labels best."""
        rows = fit_rows(self.method, scores, predicted, labels, weights)
        return TemperatureCalibration(rows.scores.shape[1], _fit_sharpness(rows))


def _fit_sharpness(rows: FitRows) -> float:
    logs = np.asfortranarray(log_scores(rows.scores))  # sums over few classes take a third of the time
    every = np.arange(len(logs))
    own = logs[every, rows.labels]

    def objective(at: Floats) -> tuple[float, Floats, Floats]:
        scaled = at[0] * logs
        fit = scipy.special.log_softmax(scaled, axis=1)[every, rows.labels]
        chance = scipy.special.softmax(scaled, axis=1)
        mean = (chance * logs).sum(axis=1)
        spread = (chance * (logs - mean[:, None]) ** 2).sum(axis=1)
        away = at - 1.0
        value = -float(rows.weights @ fit) + PRIOR / 2 * float(away @ away)
        slope = rows.weights @ (mean - own) + PRIOR * away
        return value, slope, np.array([[rows.weights @ spread + PRIOR]])

    return float(minimise(objective, np.ones(1), np.zeros(1))[0])
