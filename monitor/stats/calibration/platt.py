"""Platt's calibration: a sigmoid of the score's logit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import msgspec
import numpy as np

from monitor.base.records import Floats, Ints
from monitor.stats.calibration.base import Calibration, Calibrator
from monitor.stats.calibration.newton import logistic_fit, sigmoid
from monitor.stats.calibration.rows import apply_by_column, clipped_logs, column_problems, fit_rows

_IDENTITY = np.array([1.0, 0.0])
_FLOORS = np.array([0.0, -np.inf])


class SigmoidCurve(msgspec.Struct, frozen=True, array_like=True):
    """The curve from a score s to the probability 1 / (1 + exp(−slope·logit(s) − intercept)), slope ≥ 0.

    With slope 1 and intercept 0 it is the identity.
    """

    slope: float
    intercept: float

    def __call__(self, score: Floats) -> Floats:
        """Return the curve's value at each score."""
        log, rest = clipped_logs(score)
        return sigmoid(self.slope * (log - rest) + self.intercept)


@dataclass(frozen=True, slots=True)
class PlattCalibration(Calibration):
    """A fitted calibration by Platt's method: one sigmoid, or one for each class if there are three or more.

    Parameters
    ----------
    width : int
        Number of columns of the scores.
    curves : tuple of SigmoidCurve
        Width 1: the curve of the confidence. Width 2: the curve of the second class. Width 3 or more: a curve
        for each class, in order.

    Examples
    --------
    >>> PlattCalibration(2, (SigmoidCurve(0.5, 0.0),)).apply(np.array([[0.1, 0.9]])).round(3).tolist()
    [[0.25, 0.75]]
    """

    width: int
    curves: tuple[SigmoidCurve, ...]
    method: ClassVar[str] = "platt"

    def apply(self, scores: Floats) -> Floats:
        """Apply the curves, and divide rows of three or more classes by their sums."""
        self._check_width(scores)
        return apply_by_column(self.curves, scores)


@dataclass(frozen=True, slots=True)
class PlattCalibrator(Calibrator):
    """The settings of Platt's calibration: logistic regression of the outcome on the logit of the score.

    The map has two parameters for each class. The outcomes are Platt's targets (N₊ + 1) / (N₊ + 2) and 1 /
    (N₋ + 2) instead of 1 and 0, which avoids overconfidence on few rows. For two classes, the regression
    predicts the second class. For a confidence, it predicts whether the prediction is right. For more
    classes, there is a regression for each class against the rest, and each row is divided by its sum.

    Platt applies the sigmoid to a margin. Here the margin is the logit of the score, clipped at 10⁻⁶. With
    this margin, the identity is one of the maps. A sigmoid of the score itself could not be the identity. The
    slope is never negative. If the scores rank the rows in reverse by no more than chance would explain, the
    slope is 0, and every row gets about the observed frequency (before the division by the sum). The same
    holds if only one of three or more classes is clearly reversed. Otherwise `fit` raises an error for a
    clear reversal: see `refuse_reversed_scores`.

    The map corrects over- and underconfidence that is symmetric around one half, and a change of the
    prevalence. It misleads for other distortions; use beta or isotonic calibration for them.

    References
    ----------
    J. Platt, *Probabilistic outputs for support vector machines and comparisons to regularized
    likelihood methods*, Advances in Large Margin Classifiers (1999), equations 3 and 4 and the targets
    after them; H.-T. Lin, C.-J. Lin, R. C. Weng, *A note on Platt's probabilistic outputs*, Machine Learning
    68 (2007), for Newton's method with safeguards.

    Examples
    --------
    >>> score = np.tile([0.01, 0.99], 5000)  # too sure: right in 9 of 10
    >>> labels = np.tile([0, 1], 5000)
    >>> labels[:1000] = 1 - labels[:1000]
    >>> fitted = PlattCalibrator().fit(np.column_stack((1 - score, score)), labels, labels)
    >>> fitted.apply(np.array([[0.01, 0.99]])).round(3).tolist()
    [[0.1, 0.9]]
    """

    method: ClassVar[str] = "platt"
    calibration: ClassVar[type[Calibration]] = PlattCalibration

    def fit(
        self, scores: Floats, predicted: Ints, labels: Ints, weights: Floats | None = None
    ) -> PlattCalibration:
        """Return the calibration with one fitted curve (a confidence, two classes), or one for each class."""
        rows = fit_rows(self.method, scores, predicted, labels, weights)
        curves = [_fit_sigmoid(score, success, rows.weights) for score, success in column_problems(rows)]
        return PlattCalibration(rows.scores.shape[1], tuple(curves))


def _fit_sigmoid(score: Floats, success: Floats, weights: Floats) -> SigmoidCurve:
    log, rest = clipped_logs(score)
    hits = float(weights @ success)
    misses = float(weights.sum()) - hits
    targets = np.where(success > 0, (hits + 1.0) / (hits + 2.0), 1.0 / (misses + 2.0))
    design = np.column_stack((log - rest, np.ones(len(score))))
    slope, intercept = logistic_fit(design, weights * targets, weights, _IDENTITY, _FLOORS).tolist()
    return SigmoidCurve(slope, intercept)
