"""A fit distilled into one rising curve for each model, fast enough for every window."""

from __future__ import annotations

import numpy as np

from monitor.base.records import Floats
from monitor.stats.calibration.isotonic import IsotonicCalibration, fit_curve


def distilled(scores: Floats, posterior: Floats) -> IsotonicCalibration:
    """Isotonic regression of the fit's class probabilities on one model's scores.

    Two classes: it fits the second class against its score. More classes: each against the rest, as
    `IsotonicCalibrator` does with labels; with every row labelled the two are the same. For two classes the
    mean calibrated probability over the rows equals the fit's, so Average Confidence over them gives the
    fit's accuracy up to the information that the model's order of rows hides.

    The curve is an average over the other models' scores; it is right for later rows as long as the scores of
    all models and the classes keep their joint distribution.

    Parameters
    ----------
    scores : (n, K) float64
        One model's class probabilities; rows with NaN (missing) are left out.
    posterior : (n, K) float64

    Raises
    ------
    ValueError
        The shapes differ, or the model has no row.

    Examples
    --------
    >>> scores = np.array([[0.9, 0.1], [0.6, 0.4], [0.1, 0.9]])
    >>> posterior = np.array([[0.8, 0.2], [0.7, 0.3], [0.4, 0.6]])
    >>> distilled(scores, posterior).apply(scores)[:, 1].tolist()
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
