"""Equally weighted rows that represent the weighted rows of a fit, to compute the fit's standard error."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from monitor.base.records import Floats, Ints
from monitor.stats.calibration.refit import LabelledRows


class RestsOn(NamedTuple):
    """Equally weighted rows with as much information as the weighted rows of a fit.

    The fields are the (m, K) raw `scores` and the (m,) `predicted` classes. The standard error of a
    calibration is computed from these m rows.
    """

    scores: Floats
    predicted: Ints


def rests_on(labelled: LabelledRows, reference: LabelledRows | None = None, weight: float = 0.0) -> RestsOn:
    """Return equally weighted rows with about as much information as the weighted rows of a fit.

    From the labelled rows, the function selects (Σw)²/Σw² rows (Kish's effective number), evenly spaced in
    time order. From the reference, it selects the fraction `weight` of the rows, clipped to 0 to 1, in the
    same way. The mean of rows with the weight w varies less than the mean of w times as many rows, because w²
    is below w. So the standard error is more likely too large than too small. It does not include the drift
    since the reference, which the weight reflects.

    Examples
    --------
    >>> rows = LabelledRows(np.ones((9, 1)), *(np.zeros(9, int),) * 2, np.arange(9.0), np.ones(9))
    >>> len(rests_on(rows).predicted), len(rests_on(rows, rows, 0.5).predicted)
    (9, 13)
    >>> len(rests_on(rows._replace(weights=np.array([9.0] + [1.0] * 8))).predicted)
    3
    """
    weights = labelled.weights
    parts = [(labelled, float(weights.sum()) ** 2 / float(weights @ weights))]
    if reference is not None:
        parts.append((reference, min(max(weight, 0.0), 1.0) * float(reference.weights.sum())))
    kept = [(rows, _spread(len(rows.labels), round(many))) for rows, many in parts]
    return RestsOn(
        np.concatenate([rows.scores[places] for rows, places in kept]),
        np.concatenate([rows.predicted[places] for rows, places in kept]),
    )


def _spread(n: int, many: int) -> Ints:
    kept = min(n, many)
    places: Ints = np.arange(kept, dtype=np.int64) * n // max(kept, 1)
    return places
