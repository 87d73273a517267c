"""Beta calibration: exact if the scores of each class follow a beta distribution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import msgspec
import numpy as np

from monitor.base.records import Floats, Ints
from monitor.stats.calibration.base import Calibration, Calibrator
from monitor.stats.calibration.newton import logistic_fit, sigmoid
from monitor.stats.calibration.rows import apply_by_column, clipped_logs, column_problems, fit_rows

_IDENTITY = np.array([1.0, 1.0, 0.0])
_FLOORS = np.array([0.0, 0.0, -np.inf])


class BetaCurve(msgspec.Struct, frozen=True, array_like=True):
    """The beta curve, score s to probability: 1 / (1 + exp(−a·ln s + b·ln(1 − s) − c)) with a, b ≥ 0.

    With a = b = 1 and c = 0 it is the identity.
    """

    a: float
    b: float
    c: float

    def __call__(self, score: Floats) -> Floats:
        """Return the curve's value at each score."""
        log, rest = clipped_logs(score)
        return sigmoid(self.a * log - self.b * rest + self.c)


@dataclass(frozen=True, slots=True)
class BetaCalibration(Calibration):
    """A fitted beta calibration: one beta curve, or one for each class if there are three or more.

    Parameters
    ----------
    width : int
        Number of columns of the scores.
    curves : tuple of BetaCurve
        Width 1: the curve of the confidence. Width 2: the curve of the second class. Width 3 or more: a curve
        for each class, in order.

    Examples
    --------
    >>> BetaCalibration(2, (BetaCurve(1.0, 1.0, 0.0),)).apply(np.array([[0.3, 0.7]])).round(12).tolist()
    [[0.3, 0.7]]
    """

    width: int
    curves: tuple[BetaCurve, ...]
    method: ClassVar[str] = "beta"

    def apply(self, scores: Floats) -> Floats:
        """Apply the curves, and divide rows of three or more classes by their sums."""
        self._check_width(scores)
        return apply_by_column(self.curves, scores)


@dataclass(frozen=True, slots=True)
class BetaCalibrator(Calibrator):
    """The settings of beta calibration: a logistic regression on two functions of the score s.

    The regressors are ln s and −ln(1 − s), with coefficients of at least 0.

    The map has three parameters for each class. It is exact if the scores of each class follow a beta
    distribution. The map can bend the two ends of the scale independently. The identity and Platt's sigmoid
    (a = b) are special cases. For two classes, the regression predicts the second class. For a confidence, it
    predicts whether the prediction is right. For more classes, there is a regression for each class against
    the rest, and each row is divided by its sum.

    If the unconstrained fit has a negative coefficient (a falling curve), the paper sets that coefficient to
    0 and fits again. This class maximises the likelihood over a, b ≥ 0. The result is the better one of the
    paper's fits. A weak normal prior (standard deviation 10 around the identity) keeps the fit finite for
    separable classes.

    The map misleads if many scores are exactly 0 or 1, because scores are clipped to 10⁻⁶ and 1 − 10⁻⁶.

    References
    ----------
    M. Kull, T. M. Silva Filho, P. Flach, *Beta calibration: a well-founded and easily implemented
    improvement on logistic calibration for binary classifiers*, AISTATS 2017, equation 3 and section 4.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> labels = (rng.random(20_000) < 0.5).astype(int)
    >>> score = np.where(labels == 1, rng.beta(4, 2, 20_000), rng.beta(2, 3, 20_000))
    >>> fitted = BetaCalibrator().fit(score[:, None], np.zeros(20_000, dtype=int), 1 - labels)
    >>> [round(each) for each in fitted.snapshot()["curves"][0][:2]]  # 4 − 2 and 3 − 2
    [2, 1]
    """

    method: ClassVar[str] = "beta"
    calibration: ClassVar[type[Calibration]] = BetaCalibration

    def fit(
        self, scores: Floats, predicted: Ints, labels: Ints, weights: Floats | None = None
    ) -> BetaCalibration:
        """Return the calibration with one fitted curve (a confidence, two classes), or one for each class."""
        rows = fit_rows(self.method, scores, predicted, labels, weights)
        curves = [_fit_beta(score, success, rows.weights) for score, success in column_problems(rows)]
        return BetaCalibration(rows.scores.shape[1], tuple(curves))


def _fit_beta(score: Floats, success: Floats, weights: Floats) -> BetaCurve:
    log, rest = clipped_logs(score)
    design = np.column_stack((log, -rest, np.ones(len(score))))
    a, b, c = logistic_fit(design, weights * success, weights, _IDENTITY, _FLOORS).tolist()
    return BetaCurve(a, b, c)
