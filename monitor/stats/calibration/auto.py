"""The choice of a calibration method by its loss on rows outside the fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from monitor.base.records import Floats, Ints
from monitor.stats.calibration.base import Calibration, Calibrator, check_fit_input, cross_fit_in_time
from monitor.stats.calibration.beta import BetaCalibrator
from monitor.stats.calibration.isotonic import IsotonicCalibration, IsotonicCalibrator
from monitor.stats.calibration.platt import PlattCalibrator
from monitor.stats.calibration.temperature import TemperatureCalibrator
from monitor.stats.calibration.vector import VectorCalibrator

_SIMPLEST_FIRST: tuple[type[Calibrator], ...] = (
    TemperatureCalibrator,
    PlattCalibrator,
    VectorCalibrator,
    BetaCalibrator,
    IsotonicCalibrator,
)


@dataclass(frozen=True, slots=True)
class Choice:
    """The calibration method that `choose` selects, with the losses of all methods.

    Parameters
    ----------
    method : str
        Key in `CALIBRATORS`.
    losses : mapping of str to float
        Mean log loss of each method on rows outside the fit, in nats per row. It includes `none`, the raw
        scores, for comparison only.
    """

    method: str
    losses: Mapping[str, float]


def log_loss(calibrated: Floats, labels: Ints, smallest: float) -> Floats:
    """Return each row's negative log-probability of its true class, (n,) in nats.

    Parameters
    ----------
    calibrated : (n, K) float64
        Class probabilities; for K = 1, the probability that the prediction is right.
    labels : (n,) int64
        True class; for K = 1, 0 is correct and 1 is wrong.
    smallest : float
        Smaller probabilities are raised to this value. An isotonic curve can give the probability 0, whose
        loss would be infinite.

    Examples
    --------
    >>> log_loss(np.array([[0.5, 0.5], [1.0, 0.0]]), np.array([0, 1]), 0.01).round(2).tolist()
    [0.69, 4.61]
    """
    if calibrated.shape[1] == 1:
        calibrated = np.column_stack((calibrated[:, 0], 1.0 - calibrated[:, 0]))
    of_label = np.take_along_axis(calibrated, labels[:, None], axis=1)[:, 0]
    loss: Floats = -np.log(np.maximum(of_label, smallest))
    return loss


def choose(
    scores: Floats, predicted: Ints, labels: Ints, weights: Floats | None = None, folds: int = 5
) -> Choice:
    """Choose a calibration method by its cross-validated log loss.

    Each method calibrates every row by a fit on other rows (`cross_fit_in_time`). The function chooses the
    simplest method whose mean loss is within one standard error of the smallest mean loss. From simple to
    complex, the methods are temperature, platt, vector (for three classes or more; for two it equals beta),
    beta and isotonic. The standard error is that of the mean difference in loss between the two methods on
    the same rows. `none` is not a candidate, because a temperature near 1 is nearly the same map.

    Probabilities below 1 / (n + 2) are raised to this value, which is Laplace's estimate for an event that
    does not occur in n rows. The standard error assumes independent rows. If neighbouring rows are similar,
    the standard error is too small, and the chosen method may be too complex. The losses are measured on past
    rows. After a drift, a different method may be better.

    Parameters
    ----------
    scores, predicted, labels, weights
        See `Calibrator.fit`; in time order.
    folds : int
        2 to n.

    Raises
    ------
    ValueError
        See `cross_fit_in_time`.

    References
    ----------
    L. Breiman, J. H. Friedman, R. A. Olshen, C. J. Stone, *Classification and Regression Trees* (1984),
    section 3.4.3, for the rule of one standard error.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> score = rng.random(2000)
    >>> labels = (rng.random(2000) < np.where(score > 0.4, 0.9, 0.1)).astype(int)  # no smooth curve
    >>> choice = choose(np.column_stack((1 - score, score)), labels, labels)
    >>> choice.method, round(choice.losses["isotonic"], 2), round(choice.losses["platt"], 2)
    ('isotonic', 0.33, 0.44)
    """
    check_fit_input(scores, predicted, labels, weights)
    n, width = scores.shape
    weight = np.ones(n) if weights is None else np.asarray(weights, dtype=np.float64)
    smallest = 1.0 / (n + 2.0)
    rows: dict[str, Floats] = {}
    for calibrator in _SIMPLEST_FIRST:
        if calibrator is VectorCalibrator and width <= 2:
            continue
        calibrated = cross_fit_in_time(calibrator(), scores, predicted, labels, folds, weights)
        rows[calibrator.method] = log_loss(calibrated, labels, smallest)
    means = {method: float(np.average(loss, weights=weight)) for method, loss in rows.items()}
    best = min(means, key=means.__getitem__)
    chosen = next(
        method
        for method, loss in rows.items()
        if means[method] - means[best] <= _standard_error(loss - rows[best], weight)
    )
    raw = float(np.average(log_loss(scores, labels, smallest), weights=weight))
    return Choice(chosen, {"none": raw, **means})


def _standard_error(difference: Floats, weight: Floats) -> float:
    """Return the standard error of the weighted mean of independent rows."""
    share = weight / weight.sum()
    away = difference - share @ difference
    return float(np.sqrt((share * share) @ (away * away)))


@dataclass(frozen=True, slots=True)
class AutoCalibrator(Calibrator):
    """The calibrator that selects a method by `choose` and fits it.

    The `method` of the fitted map is the selected method.

    A fit needs six fits of each method. This takes about half a second for 40,000 rows.

    Examples
    --------
    >>> score = np.tile([0.01, 0.99], 5000)  # too sure: right in 9 of 10
    >>> labels = np.tile([0, 1], 5000)
    >>> labels[::20], labels[1::20] = 1, 0
    >>> AutoCalibrator().fit(np.column_stack((1 - score, score)), labels, labels).method
    'temperature'
    """

    method: ClassVar[str] = "auto"
    calibration: ClassVar[type[Calibration]] = IsotonicCalibration  # or the class of another method

    def fit(
        self, scores: Floats, predicted: Ints, labels: Ints, weights: Floats | None = None
    ) -> Calibration:
        """Choose a method, and return its calibration, fitted on all rows."""
        choice = choose(scores, predicted, labels, weights)
        calibrator = next(each for each in _SIMPLEST_FIRST if each.method == choice.method)
        return calibrator().fit(scores, predicted, labels, weights)
