"""A calibration refitted on new labels. The labels determine the weight of the older reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from monitor.base.records import Floats, Ints
from monitor.stats.calibration.auto import log_loss
from monitor.stats.calibration.base import Calibration, Calibrator, check_fit_input, fold_edges
from monitor.stats.calibration.order import refuse_reversed_scores

FEWEST_LABELS = 50
"""The smallest number of labelled rows for a refit. Fewer rows cannot show whether the reference is still
valid."""

RATIOS = (0.25, 1.0, 4.0, 16.0)
"""Candidate weights of the whole reference, in multiples of the number of labelled rows. 0 and full weight
are candidates too."""

_FOLDS = 5


class LabelledRows(NamedTuple):
    """The n labelled answers of one model, in time order.

    Attributes
    ----------
    scores : (n, K) float64
        Raw scores.
    predicted, labels : (n,) int64
    time : (n,) float64
        Times of the answers in seconds since the epoch, non-decreasing.
    weights : (n,) float64
        The inverse of each row's probability to be labelled, up to a common factor; all 1 for the reference.
    """

    scores: Floats
    predicted: Ints
    labels: Ints
    time: Floats
    weights: Floats


@dataclass(frozen=True, eq=False)
class Refitted:
    """The result of `refitted`: a calibration, the weight of the reference, and the losses.

    Parameters
    ----------
    fit : callable
        The function that fits `calibration`. It is called when the attribute `calibration` is first read.
    weight : float
        The weight of each row of the reference. With 0, the reference is ignored. With 1, a row of the
        reference counts as much as a labelled row.
    losses : mapping of float to float
        Mean log loss on held-out labelled rows, in nats per row, for each candidate weight that allows a fit.
    until : float
        The time of the newest answer in the fit. Only later answers may be used to evaluate the calibration.
    held_out : (n,) float64
        Log loss in nats of each labelled row, from a fit without the row's fold at the chosen weight.
    """

    fit: Callable[[], Calibration]
    weight: float
    losses: Mapping[float, float]
    until: float
    held_out: Floats

    @cached_property
    def calibration(self) -> Calibration:
        """The calibration fitted on all rows. Reading it raises a ValueError if the rows allow no fit."""
        return self.fit()


def refitted(
    reference: LabelledRows | None,
    labelled: LabelledRows,
    calibrator: Calibrator,
    allowed: Callable[[float], bool] = lambda weight: True,
) -> Refitted:
    """Return a calibration fitted on labelled rows and the reference, whose weight is cross-validated.

    Each row of the reference has the weight w, and labelled rows have the mean weight 1. The candidates for w
    are 0, 1 and the weights with which the whole reference counts as a quarter, one, four and sixteen times
    the number of labels. For each w the function cuts the labelled rows into five contiguous folds in time
    order, and predicts each fold by a fit on the reference and the other four folds. It chooses the w with
    the smallest mean log loss, and the largest such w in a tie. `Refitted.calibration` then fits all rows
    with this w.

    If nothing has changed, the reference keeps its weight and the labels add information. After a drift, the
    reference loses weight as soon as the log loss shows the drift. Small drifts become visible only with many
    labels. The result misleads if labelling depends on more than the score and `weights` do not correct for
    this, or if the model drifts after the newest label. If the model drifts within the labelled rows, the
    result is an average over the drift, so pass only the newest rows.

    The function makes 26 to 31 fits. An `AutoCalibrator` would choose a method in each fit. Pass the chosen
    calibrator instead (``CALIBRATORS[calibration.method]()``).

    Parameters
    ----------
    reference, labelled : LabelledRows
        Two disjoint sets of rows. If `reference` is None, the labelled rows are fitted alone.
    calibrator : Calibrator
    allowed : callable, optional
        Function that returns whether a weight of the reference below 1 may be a candidate; by default all
        may.

    Raises
    ------
    ValueError
        There are fewer than `FEWEST_LABELS` labelled rows, their scores are reversed, times decrease, a
        column is out of range, or no weight allows a fit.

    Examples
    --------
    >>> from monitor import PlattCalibrator
    >>> rng = np.random.default_rng(0)
    >>> def rows(n, shift):
    ...     score = rng.uniform(0.5, 1.0, n)
    ...     wrong = (rng.random(n) > score - shift).astype(int)
    ...     return LabelledRows(score[:, None], wrong * 0, wrong, np.arange(float(n)), np.ones(n))
    >>> refit = refitted(rows(5000, 0.0), rows(500, 0.2), PlattCalibrator())
    >>> refit.weight, refit.calibration.apply(np.array([[0.75]])).round(2).tolist()
    (0.0, [[0.54]])
    """
    if reference is not None:
        _check("reference", reference)
    _check("labelled", labelled)
    _refuse_misleading(labelled, calibrator.method)
    labelled = labelled._replace(weights=labelled.weights / labelled.weights.mean())
    fit = _prepared(reference, labelled, calibrator)
    held_out: dict[float, Floats] = {}
    refusal: ValueError | None = None
    for weight in _candidates(reference, labelled):
        if weight < 1 and reference is not None and not allowed(weight):
            continue
        try:
            held_out[weight] = _held_out(fit, labelled, weight)
        except ValueError as error:
            refusal = error
    if not held_out:
        raise ValueError(f"the calibration cannot be fitted again: {refusal}") from refusal
    n = len(labelled.labels)
    losses = {weight: float(loss @ labelled.weights) / n for weight, loss in held_out.items()}
    best = min(losses, key=lambda weight: (losses[weight], -weight))
    until = max(float(rows.time[-1]) for rows in (reference, labelled) if rows is not None)
    return Refitted(partial(fit, best, slice(0)), best, losses, until, held_out[best])


def _refuse_misleading(labelled: LabelledRows, method: str) -> None:
    """Raise a ValueError for too few labels, or for reversed scores."""
    n = len(labelled.labels)
    if n < FEWEST_LABELS:
        raise ValueError(
            f"labelled must have at least {FEWEST_LABELS} rows, so that they can say what the reference is "
            f"still worth, got {n}; wait for more labels"
        )
    refuse_reversed_scores(method, labelled.scores, labelled.labels)


def _check(name: str, rows: LabelledRows) -> None:
    try:
        check_fit_input(rows.scores, rows.predicted, rows.labels, rows.weights)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    if rows.time.shape != rows.labels.shape or (np.diff(rows.time) < 0).any():
        raise ValueError(
            f"{name}: time must have one entry for each row and must not fall; sort the rows by time"
        )


def _candidates(reference: LabelledRows | None, labelled: LabelledRows) -> list[float]:
    """Return the candidate weights of a row of the reference, in descending order."""
    if reference is None:
        return [0.0]
    even = len(labelled.labels) / float(reference.weights.sum())
    return sorted({0.0, 1.0, *(ratio * even for ratio in RATIOS if ratio * even < 1.0)}, reverse=True)


_Fit = Callable[[float, slice], Calibration]
"""A fit with the given weight of each row of the reference, and without a slice of the labelled rows."""


def _held_out(fit: _Fit, labelled: LabelledRows, weight: float) -> Floats:
    """Return the (n,) log losses of the labelled rows, each by a fit without its fold."""
    n = len(labelled.labels)
    loss = np.empty(n)
    for fold in (slice(*edges) for edges in pairwise(fold_edges(n, _FOLDS).tolist())):
        calibrated = fit(weight, fold).apply(labelled.scores[fold])
        loss[fold] = log_loss(calibrated, labelled.labels[fold], 1 / (n + 2.0))
    return loss


def _prepared(reference: LabelledRows | None, labelled: LabelledRows, calibrator: Calibrator) -> _Fit:
    """Return the function that fits the reference and labelled rows, which prepares all rows once."""
    parts = [labelled] if reference is None else [reference, labelled]
    fit = calibrator.prepare_fit(
        np.concatenate([part.scores for part in parts]),
        np.concatenate([part.predicted for part in parts]),
        np.concatenate([part.labels for part in parts]),
    )

    def without(weight: float, rows: slice) -> Calibration:
        own = labelled.weights.copy()
        own[rows] = 0.0
        return fit(own if reference is None else np.concatenate([weight * reference.weights, own]))

    return without
