"""The rows that a calibration fitted on labels rests on, for the error that their number leaves."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from monitor.base.records import Floats, Ints
from monitor.stats.calibration.refit import LabelledRows


class RestsOn(NamedTuple):
    """Rows each of which tells as much as one of a fit's, m of them.

    Parameters
    ----------
    scores : (m, K) float64
        Raw.
    predicted : (m,) int64
    """

    scores: Floats
    predicted: Ints


def rests_on(labelled: LabelledRows, reference: LabelledRows | None = None, weight: float = 0.0) -> RestsOn:
    """What a fit on labelled rows and on a reference that counts for less comes to.

    Of the labelled rows (Σw)²/Σw², Kish's number of equally weighted rows that tell as much; of the reference
    `weight` times its rows, at most those given. Both evenly spread over their times. The mean of rows
    of weight w varies less than that of w times as many (w² is below w): the error is put too large sooner
    than too small. That the reference has drifted is in no variance; its weight is what labels say of it.

    Parameters
    ----------
    labelled : LabelledRows
    reference : LabelledRows, optional
    weight : float
        What a row of the reference counts for beside a labelled one, 0 to 1.

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
    found: Ints = np.arange(kept, dtype=np.int64) * n // max(kept, 1)
    return found
