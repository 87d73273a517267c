"""NannyML's band around an estimate: three standard errors from a labelled reference, for comparison."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import numpy as np
from numpy.typing import ArrayLike

from monitor.base.records import Floats, Ints
from monitor.base.results import Estimate, Result, Unknown
from monitor.stats.estimate._one_class import OneClass, whole_accuracy
from monitor.stats.estimate.classification import CLASSIFICATION_METRICS, Average
from monitor.stats.estimate.confusion import checked_rows

STANDARD_ERRORS = 3.0
"""Half the width of the band, as in NannyML."""


def cbpe_sem(found: Result, row_sd: float, standard_errors: float = STANDARD_ERRORS) -> Result:
    """The estimate with NannyML's band instead of its interval, for comparison.

    The band is ± `standard_errors` × `row_sd` / √n, cut to 0 and 1. It is equally wide for every window of n
    rows, whatever its confidences. It covers something else than an interval: the distance of the realised
    metric of n rows of the reference from the reference's. On calibrated data it covers 98.9 to 100 % where
    the exact interval covers 94 to 98 % (`tests/fidelity/output/metrics_coverage.txt`).

    Parameters
    ----------
    found : Estimate or Unknown
        For example from `classification_estimates`; Unknown stays Unknown.
    row_sd : float
        One labelled row's share of the realised metric's standard error, 0 or more: see `labelled_row_sd`.
    standard_errors : float
        Above 0. The paper takes 1.96 for a fair comparison.

    Returns
    -------
    Estimate or Unknown
        With the given level: the band has none.

    Raises
    ------
    ValueError
        `row_sd` or `standard_errors` is out of range.

    References
    ----------
    Kivimäki et al., *Confidence-based Estimators for Predictive Performance in Model Monitoring*, section
    5.1.3, equation 3. For accuracy and precision `row_sd` is exactly NannyML's standard deviation of the
    reference; for the other metrics NannyML has its own formulas or resampling, and `row_sd` is the
    first-order standard deviation that they approach.

    Examples
    --------
    >>> cbpe_sem(Estimate(0.9, 0.88, 0.92, level=0.95, n=900), row_sd=0.3)
    Estimate(value=0.9, lower=0.87, upper=0.93, level=0.95, n=900)
    """
    if not row_sd >= 0.0:
        raise ValueError(f"row_sd must be a number of 0 or more, got {row_sd}")
    if not standard_errors > 0.0:
        raise ValueError(f"standard_errors must be above 0 (3 is NannyML's), got {standard_errors}")
    if isinstance(found, Unknown):
        return found
    half = standard_errors * row_sd / sqrt(found.n)
    lower, upper = max(found.value - half, 0.0), min(found.value + half, 1.0)
    return Estimate(found.value, lower, upper, found.level, found.n)


def labelled_row_sd(
    labels: ArrayLike,
    predicted: ArrayLike,
    scores: ArrayLike,
    metric: str,
    *,
    positive: int | None = None,
    average: Average = "macro",
) -> float | None:
    """The standard error of a realised metric over labelled rows, times √n: the share of one row.

    It is of first order, from each row's influence: the change of the metric, times n, if the row counted
    once more. With few rows of a class it is too small.

    Parameters
    ----------
    labels, predicted : (n,) array of int
        True classes and predicted classes, 0 to K − 1.
    scores : (n, K) array of float
        The ranking for AUROC and average precision, K at least 2.
    metric : str
        One of `CLASSIFICATION_METRICS`.
    positive : int, optional
        The metric's class; by default the last of two, and none of three or more.
    average : {"macro", "micro"}
        For three classes or more without `positive`.

    Returns
    -------
    float or None
        0 or more. None if these rows leave the metric undefined: no rows, no row of the class or of any
        other, or no prediction of it. An average leaves out such classes.

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
    """(n,) influence of each row; None if no class defines the metric."""
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
