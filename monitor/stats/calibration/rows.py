"""Labelled rows prepared for a fit, and fitted curves applied to columns of scores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from monitor.base.records import Floats, Ints
from monitor.stats.calibration.base import check_fit_input
from monitor.stats.calibration.order import refuse_reversed_scores

CLIP = 1e-6
"""The smallest distance from 0 and 1 of scores whose logarithm is computed. Without this limit, one wrong row
with a score of exactly 1 would outweigh all others. Half-precision models round even scores at a larger
distance to 1."""


class FitRows(NamedTuple):
    """The n rows of a fit, with weights above 0.

    The fields are the (n, K) `scores`, the (n,) `labels` and the (n,) `weights`.
    """

    scores: Floats
    labels: Ints
    weights: Floats


def fit_rows(method: str, scores: Floats, predicted: Ints, labels: Ints, weights: Floats | None) -> FitRows:
    """Return the rows with a weight above 0, or raise a ValueError if no map can be fitted on them.

    Parameters
    ----------
    method : str
        Name of the method, for messages.
    scores, predicted, labels, weights
        See `Calibrator.fit`.

    Raises
    ------
    ValueError
        The rows are invalid as in `Calibrator.fit`, all labels are the same, or the scores are reversed.
    """
    check_fit_input(scores, predicted, labels, weights)
    counts = np.ones(len(scores)) if weights is None else np.asarray(weights, dtype=np.float64)
    if not counts.all():
        kept = counts > 0
        scores, labels, counts = scores[kept], labels[kept], counts[kept]
    refuse_one_outcome(method, labels, scores.shape[1])
    refuse_reversed_scores(method, scores, labels)
    return FitRows(np.asarray(scores, dtype=np.float64), labels, counts)


def refuse_one_outcome(method: str, labels: Ints, width: int) -> None:
    """Raise a ValueError if all n labels are the same (n at least 1)."""
    if labels.min() == labels.max():
        only = f"only the label {labels[0]}" + (" (0 correct, 1 wrong)" if width == 1 else "")
        raise ValueError(
            f"{method} calibration needs at least two different outcomes, got {len(labels)} rows with "
            f"{only}; give a longer reference, or set calibration.method to none"
        )


def fitted_columns(width: int) -> Sequence[int]:
    """Return the indices of the score columns that get a curve, for scores with `width` columns."""
    return (0,) if width == 1 else (1,) if width == 2 else range(width)


def column_problems(rows: FitRows) -> Iterator[tuple[Floats, Floats]]:
    """Yield the (n,) scores and the (n,) outcomes, 0 or 1, for each curve to fit.

    A confidence (one column) needs one curve, with the outcome 1 for a right prediction. Two classes need one
    curve, for the second class. Each of three or more classes needs a curve, with the outcome 1 for rows of
    the class.
    """
    for k in fitted_columns(rows.scores.shape[1]):
        yield rows.scores[:, k], (rows.labels == k).astype(np.float64)


def apply_by_column(curves: Sequence[Callable[[Floats], Floats]], scores: Floats) -> Floats:
    """Return (n, K) class probabilities: the scores mapped by the curves that `column_problems` describes.

    For two classes or more, each row sums to 1. For three or more, rows are divided by their sum, and a row
    of zeros becomes uniform.

    Examples
    --------
    >>> apply_by_column([np.sqrt], np.array([[0.75, 0.25]])).tolist()
    [[0.5, 0.5]]
    """
    width = scores.shape[1]
    if width == 1:
        return curves[0](scores[:, 0])[:, None]
    calibrated = np.empty(scores.shape)
    if width == 2:
        calibrated[:, 1] = curves[0](scores[:, 1])
        np.subtract(1.0, calibrated[:, 1], out=calibrated[:, 0])
        return calibrated
    for k, curve in enumerate(curves):
        calibrated[:, k] = curve(scores[:, k])
    total = calibrated.sum(axis=1, keepdims=True)
    calibrated[total[:, 0] == 0.0] = 1.0
    calibrated /= np.where(total == 0.0, width, total)
    return calibrated


def clipped_logs(score: Floats) -> tuple[Floats, Floats]:
    """Return ln s and ln(1 − s) for scores s, which are first clipped to `CLIP` and 1 − `CLIP`."""
    clipped = np.clip(score, CLIP, 1.0 - CLIP)
    return np.log(clipped), np.log1p(-clipped)


def log_scores(scores: Floats) -> Floats:
    """Return (n, max(K, 2)) logarithms of the clipped scores.

    For a confidence, they are the logarithms of the probabilities of right and of wrong.
    """
    width = scores.shape[1]
    if width == 1:
        return np.column_stack(clipped_logs(scores[:, 0]))
    if width == 2:
        return np.column_stack(clipped_logs(scores[:, 1])[::-1])
    logs: Floats = np.log(np.clip(scores, CLIP, 1.0 - CLIP))
    return logs
