"""Expected confusion matrices without labels, for a model and for a threshold on its confidence."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from monitor.base.records import Floats, Ints
from monitor.stats.estimate.poisson_binomial import checked_level, checked_probabilities, trimmed_pmf_many


def checked_rows(scores: ArrayLike, predicted: ArrayLike, name: str = "scores") -> tuple[Floats, Ints]:
    """Return class probabilities (n, K) and predicted classes (n,), after checking them.

    A wrong shape, probability or class index raises a ValueError that names the first wrong value.
    """
    chances = checked_probabilities(scores, 2, name)
    n, width = chances.shape
    if width < 1:
        raise ValueError(f"{name} must have one column for each class, got the shape {chances.shape}")
    acted = np.asarray(predicted)
    if acted.shape != (n,):
        raise ValueError(
            f"predicted must have the shape ({n},), one entry for each row of {name}, got {acted.shape}"
        )
    if n and acted.dtype.kind not in "iu":
        raise ValueError(f"predicted must be class indices, whole numbers, got the type {acted.dtype}")
    if n and not (acted.min() >= 0 and acted.max() < width):
        at = int(np.flatnonzero((acted < 0) | (acted >= width))[0])
        raise ValueError(f"predicted[{at}] must be a class index from 0 to {width - 1}, got {acted[at]}")
    return chances, acted.astype(np.int64)


def expected_confusion(scores: ArrayLike, predicted: ArrayLike) -> Floats:
    """Return the expected confusion matrix of a window without labels.

    Each row adds its class probabilities to the column of its predicted class. The expectations are right if
    the probabilities are calibrated, even if rows depend on each other. The result misleads under concept
    drift.

    Parameters
    ----------
    scores : (n, K) array of float
        Calibrated class probabilities, K at least 2; each row should sum to 1.
    predicted : (n,) array of int
        Predicted classes, 0 to K − 1.

    Returns
    -------
    (K, K) float64
        Expected numbers of rows: true class by predicted class. Their sum is n.

    Raises
    ------
    ValueError
        A shape, a probability or a class index is out of range, or there is one column only.

    References
    ----------
    Kivimäki et al., *Confidence-based Estimators for Predictive Performance in Model Monitoring*, sections
    4.3 and 5.1.3, where it is described as NannyML's CBPE.

    Examples
    --------
    >>> expected_confusion([[0.9, 0.1], [0.25, 0.75], [0.5, 0.5]], [0, 1, 1]).tolist()
    [[0.9, 0.75], [0.1, 1.25]]
    """
    chances, acted = checked_rows(scores, predicted)
    if chances.shape[1] < 2:
        raise ValueError(
            "scores must have at least two columns, one for each class, got 1; "
            "a confidence alone has no confusion matrix: see failure_prediction"
        )
    confusion = np.zeros((chances.shape[1],) * 2)
    for k in range(chances.shape[1]):
        confusion[:, k] = chances[acted == k].sum(axis=0)
    return confusion


def confusion_intervals(scores: ArrayLike, predicted: ArrayLike, level: float = 0.95) -> Floats:
    """Return the expected confusion matrix with an interval for each count, without labels.

    A count is the number of rows with one predicted class and one true class. Each row has a different
    probability of the true class, so the count is Poisson-binomial. The interval is between the exact central
    quantiles. The counts of a column have a fixed sum, so the intervals of one column are not independent.

    The result misleads in the same cases as `expected_confusion`. The intervals ignore errors of the
    calibration.

    Parameters
    ----------
    scores, predicted
        As in `expected_confusion`.
    level : float
        The level of each interval, above 0 and below 1.

    Returns
    -------
    (K, K, 3) float64
        Counts: true class by predicted class, each with its value, lower and upper end.

    Raises
    ------
    ValueError
        As in `expected_confusion`, or the level is out of range.

    References
    ----------
    Kivimäki et al., section 4.3 for the matrix; the intervals follow their section 4.1.

    Examples
    --------
    >>> confusion_intervals([[0.9, 0.1]] * 20 + [[0.25, 0.75]] * 8, [0] * 20 + [1] * 8)[1].round(9).tolist()
    [[2.0, 0.0, 5.0], [6.0, 3.0, 8.0]]
    """
    expected = expected_confusion(scores, predicted)
    chances, acted = checked_rows(scores, predicted)
    checked_level(level)
    matrix = np.stack([expected] * 3, axis=-1)
    for k in np.unique(acted).tolist():
        for i, count in enumerate(trimmed_pmf_many(chances[acted == k].T)):
            low, high = count.interval(level)
            matrix[i, k, 1:] = min(low, expected[i, k]), max(high, expected[i, k])
    return matrix


def failure_prediction(confidence: ArrayLike, threshold: float) -> Floats:
    """Return the expected confusion matrix of a rule that accepts answers of at least this confidence.

    The matrix describes the rule as a predictor of whether an answer is right. The accuracy of the model is
    the sum of the first row, divided by the sum of the matrix. For intervals of the rule's precision or
    recall, pass to `classification_estimates` the scores ``[1 − confidence, confidence]`` and the predicted
    class ``confidence >= threshold``.

    Parameters
    ----------
    confidence : (n,) array of float
        Calibrated probabilities that the predicted classes are right, each from 0 to 1.
    threshold : float
        0 to 1.

    Returns
    -------
    (2, 2) float64
        ``[[TP, FN], [FP, TN]]``, expected numbers of rows, as in the paper's table. The first row has the
        right answers, and the first column has the accepted answers.

    Raises
    ------
    ValueError
        A confidence or the threshold is out of range.

    References
    ----------
    Kivimäki et al., section 4.3, Table 1.

    Examples
    --------
    >>> failure_prediction([0.9, 0.75, 0.5], 0.75).round(9).tolist()
    [[1.65, 0.5], [0.35, 0.5]]
    """
    checked = checked_probabilities(confidence, 1, "confidence")
    if not 0.0 <= threshold <= 1.0:
        raise ValueError(f"threshold must be a probability from 0 to 1, got {threshold}")
    accepted = checked >= threshold
    correct = np.array([checked[accepted].sum(), checked[~accepted].sum()])
    rows = np.array([accepted.sum(), (~accepted).sum()])
    return np.stack([correct, rows - correct])
