"""A calibration curve of one model from an SSME fit, fast enough for every window."""

from __future__ import annotations

import numpy as np

from monitor.base.records import Floats
from monitor.stats.calibration.isotonic import IsotonicCalibration, fit_curve


def distil(scores: Floats, posterior: Floats) -> IsotonicCalibration:
    """Return an isotonic curve from one model's scores to the class probabilities of a fit.

    For two classes, one isotonic regression predicts the second class from its score; for more classes, there
    is one for each class against the rest. `IsotonicCalibrator` does the same with labels; if every row is
    labelled, the results are equal. For two classes, the mean calibrated probability over the rows equals the
    mean of the fit. So the mean confidence equals the accuracy of the fit, except for information that the
    model's ranking of the rows does not have.

    The curve averages over the other models' scores. It is right for later rows as long as the joint
    distribution of classes and all models' scores stays the same.

    Parameters
    ----------
    scores : (n, K) float64
        One model's class probabilities; rows with NaN (no answer) are left out.
    posterior : (n, K) float64

    Raises
    ------
    ValueError
        The shapes differ, or the model has no row.

    Examples
    --------
    >>> scores = np.array([[0.9, 0.1], [0.6, 0.4], [0.1, 0.9]])
    >>> posterior = np.array([[0.8, 0.2], [0.7, 0.3], [0.4, 0.6]])
    >>> distil(scores, posterior).apply(scores)[:, 1].tolist()
    [0.2, 0.3, 0.6]
    """
    if scores.shape != posterior.shape or scores.ndim != 2:
        raise ValueError(
            f"scores and posterior must have the same shape (n, K), got {scores.shape} and {posterior.shape}"
        )
    present = ~np.isnan(scores[:, 0])
    if not present.any():
        raise ValueError("scores are missing in every row, so there is no curve of this model; leave it out")
    width = scores.shape[1]
    columns = (1,) if width == 2 else tuple(range(width))
    return IsotonicCalibration(
        width, tuple(fit_curve(scores[present, k], posterior[present, k]) for k in columns)
    )
