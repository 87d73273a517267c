"""Accuracy by PPI++ with an interval that holds with few labels: Wilson's at the effective number of them."""

from __future__ import annotations

import numpy as np

from monitor.estimate.proportion import wilson_interval
from monitor.labels.estimators.inputs import LabelledScores
from monitor.labels.estimators.ppi import prediction_powered
from monitor.records import Floats, Ints
from monitor.result import Estimate, Reason, Result, Unknown


def powered_share(
    right: Floats,
    expected: Floats,
    population: Floats,
    weights: Floats | None,
    lam: float | None,
    level: float,
) -> Estimate:
    """Share of right rows by PPI++, from 0 to 1.

    The interval is Wilson's at the number of labels that would know the share as well as the estimate
    does. That number comes from the variance with one right and one wrong row more, both with the
    annotator's mean guess (as in `monitor.estimate.hajek`): otherwise labels that are all alike would
    make it infinite.

    Parameters
    ----------
    right : (n,) float64
        1 where the labelled row is right, else 0; n ≥ 1.
    expected : (n,) float64
        The annotator's chance that it is.
    population : (N,) float64
        The same on the rows that stand for the population.
    weights : (n,) float64 or None
        Of the labelled rows.
    lam : float or None
        Tuned where None.
    level : float

    Examples
    --------
    >>> powered_share(np.r_[np.ones(45), np.zeros(5)], np.full(50, 0.9), np.full(500, 0.9), None, None, 0.95)
    Estimate(value=0.9, lower=0.7863..., upper=0.9565..., level=0.95, n=50)
    """
    found = prediction_powered(right, expected, population, lam=lam, weights=weights)
    value = float(np.clip(found.value[0], 0.0, 1.0))
    w = np.ones(len(right)) if weights is None else weights
    rows = effective_trials(right, expected, population, w, float(found.lam[0]))
    lower, upper = wilson_interval(value, rows, level)
    return Estimate(value, lower, upper, level, len(right))


def effective_trials(right: Floats, expected: Floats, population: Floats, w: Floats, lam: float) -> float:
    """Labels of equal weight that alone would tell as much, above 0; see `powered_share`.

    Parameters
    ----------
    right, expected, w : (n,) float64
    population : (N,) float64
    lam : float
    """
    middle, heavy = float(w @ expected / w.sum()), float(w @ w / w.sum())
    more_w = np.r_[w, heavy, heavy]
    more_right, more_expected = np.r_[right, 1.0, 0.0], np.r_[expected, middle, middle]
    found = prediction_powered(more_right, more_expected, population, lam=lam, weights=more_w)
    share = float(more_w @ more_right / more_w.sum())
    alone = share * (1 - share) * float(more_w @ more_w) / float(more_w.sum()) ** 2
    kish = float(w.sum() ** 2 / (w @ w))
    return kish * alone / float(found.covariance[0, 0])


def accuracy_of(
    data: LabelledScores, rows: Ints, model: int, chance: Floats, lam: float | None, level: float
) -> Result:
    """Accuracy of a model on some rows, from their labels and an annotator's class probabilities.

    Without weights the unlabelled rows stand for the population, as in the paper. With weights they are
    no random sample any more, so all rows do.

    Parameters
    ----------
    data : LabelledScores
    rows : (r,) int64
        Rows that the model has answered.
    model : int
    chance : (n, K) float64
        The annotator's class probabilities of all rows.
    lam : float or None
    level : float
    """
    known = data.labels[rows] >= 0
    if not known.any():
        return Unknown(Reason.NO_LABELS)
    acted = data.predicted[rows, model]
    expected = chance[rows, acted]
    right = (acted == data.labels[rows])[known].astype(np.float64)
    weights = None if data.weights is None else data.weights[rows][known]
    population = expected[~known] if weights is None else expected
    return powered_share(right, expected[known], population, weights, lam, level)
