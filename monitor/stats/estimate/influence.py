"""The standard error of a realised metric, from the influence of each labelled row on it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from monitor.base.records import Floats, Ints
from monitor.stats.estimate._one_class import OneClass, whole_accuracy
from monitor.stats.estimate.classification import CLASSIFICATION_METRICS, Average
from monitor.stats.estimate.confusion import checked_rows


def labelled_row_sd(
    labels: ArrayLike,
    predicted: ArrayLike,
    scores: ArrayLike,
    metric: str,
    *,
    positive: int | None = None,
    average: Average = "macro",
) -> float | None:
    """Return √n times the standard error of a realised metric over n labelled rows.

    The result divided by √n is the standard error of the metric over other n rows. It is computed to first
    order from the influence of each row: n times the change of the metric that an additional copy of the row
    would cause. With few rows of a class, the standard error is too small.

    Parameters
    ----------
    labels, predicted : (n,) array of int
        True classes and predicted classes, 0 to K − 1.
    scores : (n, K) array of float
        The scores that rank rows for AUROC and average precision, K at least 2.
    metric : str
        One of `CLASSIFICATION_METRICS`.
    positive : int, optional
        The class that the metric describes; by default the second of two classes. With three or more classes,
        the metric is averaged by default.
    average : {"macro", "micro"}
        For three classes or more without `positive`.

    Returns
    -------
    float or None
        0 or more. None if the metric is undefined, because rows or predictions of the class, or rows of other
        classes, are missing. An average leaves out classes without a defined metric.

    Raises
    ------
    ValueError
        An argument is out of range.

    Examples
    --------
    >>> labels, predicted = [1] * 9 + [0] * 91, [1] * 8 + [0] * 92
    >>> round(labelled_row_sd(labels, predicted, np.full((100, 2), 0.5), "accuracy"), 3)  # √(0.99·0.01)
    0.099
    """
    if metric not in CLASSIFICATION_METRICS:
        raise ValueError(f"metric must be of {', '.join(CLASSIFICATION_METRICS)}, got {metric!r}")
    if average not in ("macro", "micro"):
        raise ValueError(f"average must be macro or micro, got {average!r}")
    ranking, acted = checked_rows(scores, predicted)
    certain = np.eye(ranking.shape[1])[checked_rows(ranking, labels)[1]]
    if not len(acted):
        return None
    influence = _influence(metric, certain, acted, ranking, positive, average)
    return None if influence is None else float(influence.std())


def _influence(
    metric: str, certain: Floats, acted: Ints, ranking: Floats, positive: int | None, average: str
) -> Floats | None:
    """Return the (n,) influence of each row; None if no class defines the metric."""
    n, width = certain.shape
    ranked = metric in ("auroc", "average_precision")
    several = width > 2 and positive is None
    if several and average == "micro" and ranked:
        pairs = OneClass(certain.ravel(), np.zeros(n * width, dtype=np.bool_), ranking.ravel())
        per_pair: Floats = pairs.expected(metric)[1].reshape(n, width).sum(axis=1) / width
        return per_pair
    if metric == "accuracy" or (several and average == "micro"):
        each: Floats = whole_accuracy(certain[None], acted[None])[1][0]
        return each / (width - 1) if metric == "specificity" else each
    classes: Sequence[int] = range(width) if several else [width - 1 if positive is None else positive]
    known = [
        OneClass(certain[:, k], acted == k, ranking[:, k]).expected(metric)[1]
        for k in classes
        if _is_defined(metric, certain[:, k], acted == k)
    ]
    if not known:
        return None
    mean: Floats = np.mean(known, axis=0)
    return mean


def _is_defined(metric: str, true: Floats, acted: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> bool:
    positives = int(true.sum())
    if metric == "precision":
        return bool(acted.any())
    if metric == "f1":
        return bool(acted.any()) or positives > 0
    if metric == "specificity":
        return positives < len(true)
    return positives > 0 and (metric != "auroc" or positives < len(true))
