"""The response of a metric to errors that the rows of a window, or of several windows, have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from monitor.base.records import Floats, Ints


@dataclass(frozen=True, slots=True, eq=False)
class Exposure:
    """The first-order response of a metric to errors that the rows of one or several windows have in common.

    To pool windows, all fields except `model` are summed: to first order, the pooled metric is the mean of
    the windows' metrics, weighted by `weight`.

    Parameters
    ----------
    model : int
        The number of the calibration. Windows with the same number share their calibration error.
    weight : float
        The window's weight: rows, or the expected denominator of a ratio.
    rows : int
    along : (r,) float64
        `weight` times the change of the metric along each of the r directions of the calibration's error
        (`Predictive.directions`).
    moved, information : (strata,) float64
        Two values for each stratum (predicted class). `moved` is `weight` times the change of the metric that
        a bias of one logit causes. `information` is the sum of c(1 − c) over the confidences c. A single
        entry means one bias for all rows, as for the accuracy.
    lean : float
        `weight` times the bias of the metric that the calibration's error causes. An `ece` has such a bias,
        because it is a mean of absolute values, and errors of either sign increase it.
    """

    model: int
    weight: float
    rows: int
    along: Floats
    moved: Floats
    information: Floats
    lean: float = 0.0


class SharedError(NamedTuple):
    """The variance and the mean of the error of a metric that its rows share, in the metric's unit.

    Parameters
    ----------
    variance : float
    shift : float
        The mean of the error according to labels; 0 without labels. It widens the interval on the side of its
        sign.
    """

    variance: float
    shift: float = 0.0


def by_confidence(scores: Floats, predicted: Ints, column: int | Ints) -> Floats:
    """Return the (…, n) derivative of a class's probability with respect to each row's confidence.

    The confidence is the probability of the predicted class. When the confidence rises, the probabilities of
    all other classes fall in proportion.

    Parameters
    ----------
    scores : (…, n, K) float64
        Calibrated, K at least 2.
    predicted : (…, n) int64
    column : int or (…, n) int64
        The class.

    Examples
    --------
    >>> scores = np.array([[0.5, 0.3, 0.2], [0.5, 0.3, 0.2]])
    >>> by_confidence(scores, np.array([0, 1]), 1).tolist()
    [-0.6, 1.0]
    """
    confidence, chance = of_class(scores, predicted), of_class(scores, column)
    even = np.full(confidence.shape, 1.0 / (scores.shape[-1] - 1))
    share = np.divide(chance, 1.0 - confidence, out=even, where=confidence < 1.0)
    change: Floats = np.where(predicted == column, 1.0, -np.minimum(share, 1.0))
    return change


def of_class(scores: Floats, column: int | Ints) -> Floats:
    """Return the (…, n) probabilities of one class, or of a separate class for each row.

    The scores are (…, n, K).
    """
    if isinstance(column, int):
        return scores[..., column]
    return np.take_along_axis(scores, column[..., None], axis=-1)[..., 0]
