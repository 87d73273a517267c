"""Vector scaling: a slope and a shift for the log-score of each class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy

from monitor.base.records import Floats, Ints
from monitor.stats.calibration.base import Calibration, Calibrator
from monitor.stats.calibration.newton import PRIOR, minimise
from monitor.stats.calibration.rows import FitRows, fit_rows, log_scores


@dataclass(frozen=True, slots=True, eq=False)
class VectorCalibration(Calibration):
    """A fitted vector scaling: a slope and an intercept for the log-score of each class.

    Parameters
    ----------
    width : int
        Number of columns of the scores.
    slopes, intercepts : (max(K, 2),) float64
        Coefficients of the log-score of each class (for a confidence: of right and wrong). Slopes are 0 or
        more.

    Examples
    --------
    >>> VectorCalibration(2, np.ones(2), np.log([1.0, 3.0])).apply(np.array([[0.5, 0.5]])).round(12).tolist()
    [[0.25, 0.75]]
    """

    width: int
    slopes: Floats
    intercepts: Floats
    method: ClassVar[str] = "vector"

    def apply(self, scores: Floats) -> Floats:
        """Return the softmax of the log-scores times `slopes` plus `intercepts`."""
        self._check_width(scores)
        calibrated: Floats = scipy.special.softmax(log_scores(scores) * self.slopes + self.intercepts, axis=1)
        return calibrated[:, : self.width].copy() if self.width == 1 else calibrated


@dataclass(frozen=True, slots=True)
class VectorCalibrator(Calibrator):
    """The settings of vector scaling, the softmax of wₖ·ln sₖ + bₖ over the scores sₖ of the classes.

    The slopes wₖ ≥ 0 and the shifts bₖ maximise the likelihood of the labels.

    The map has two parameters for each class, which are fitted jointly instead of each class against the
    rest. It corrects classes that the model predicts too often or too confidently. The scores are clipped at
    10⁻⁶. For two classes and for a confidence the map equals beta calibration, except for the weak prior
    (standard deviation 10 around the identity) that keeps both finite.

    A fit needs some hundred rows for each class. With K classes and n rows, a step of the fit costs n·(2K)²
    operations: a second for 10,000 rows and about 500 classes. A class without labels gets a probability of
    nearly 0.

    References
    ----------
    C. Guo, G. Pleiss, Y. Sun, K. Q. Weinberger, *On calibration of modern neural networks*, ICML 2017,
    section 4.2, equation 8 with a diagonal matrix. The condition wₖ ≥ 0 is ours, as in beta calibration: a
    larger score must not make its class less probable.

    Examples
    --------
    >>> scores = np.tile([[0.6, 0.2, 0.2], [0.2, 0.6, 0.2], [0.2, 0.2, 0.6]], (1000, 1))
    >>> labels = np.tile([0, 1, 2], 1000)
    >>> labels[2::6] = 1  # half of the rows scored as class 2 are class 1
    >>> VectorCalibrator().fit(scores, labels, labels).apply(scores[2:3]).round(2).tolist()
    [[0.0, 0.5, 0.5]]
    """

    method: ClassVar[str] = "vector"
    calibration: ClassVar[type[Calibration]] = VectorCalibration

    def fit(
        self, scores: Floats, predicted: Ints, labels: Ints, weights: Floats | None = None
    ) -> VectorCalibration:
        """Return the calibration with the slopes and intercepts that fit the labels best."""
        rows = fit_rows(self.method, scores, predicted, labels, weights)
        scaling = _fit_scaling(rows)
        half = len(scaling) // 2
        return VectorCalibration(rows.scores.shape[1], scaling[:half].copy(), scaling[half:].copy())


def _fit_scaling(rows: FitRows) -> Floats:
    """Return the (2K,) slopes and intercepts, slopes first."""
    logs = np.asfortranarray(log_scores(rows.scores))  # sums over few classes take a third of the time
    classes = logs.shape[1]
    every = np.arange(len(logs))
    centre = np.repeat([1.0, 0.0], classes)

    def objective(at: Floats) -> tuple[float, Floats, Floats]:
        line = logs * at[:classes] + at[classes:]
        chance = scipy.special.softmax(line, axis=1)
        away = at - centre
        value = -float(rows.weights @ scipy.special.log_softmax(line, axis=1)[every, rows.labels])
        excess = chance * rows.weights[:, None]
        spread = np.hstack((excess * logs, excess))
        gradient = spread.sum(axis=0)
        np.add.at(gradient, rows.labels, -rows.weights * logs[every, rows.labels])
        np.add.at(gradient, classes + rows.labels, -rows.weights)
        return (
            value + PRIOR / 2 * float(away @ away),
            gradient + PRIOR * away,
            _curvature(spread, np.hstack((chance * logs, chance)), logs),
        )

    return minimise(objective, centre, np.repeat([0.0, -np.inf], classes))


def _curvature(weighted: Floats, chance: Floats, logs: Floats) -> Floats:
    """Return the (2K, 2K) second derivatives of the loss."""
    classes = logs.shape[1]
    shared = -(weighted.T @ chance)
    one, two = np.arange(classes), np.arange(classes, 2 * classes)
    shared[one, one] += (weighted[:, :classes] * logs).sum(axis=0)
    shared[one, two] += weighted[:, :classes].sum(axis=0)
    shared[two, one] += weighted[:, :classes].sum(axis=0)
    shared[two, two] += weighted[:, classes:].sum(axis=0)
    shared[np.diag_indices(2 * classes)] += PRIOR
    return shared
