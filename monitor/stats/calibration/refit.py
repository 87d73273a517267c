"""Fits a calibration again as labels come; the labels decide the weight of the reference."""

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
"""With fewer labelled rows there is no refit: they cannot show the present value of the reference."""

RATIOS = (0.25, 1.0, 4.0, 16.0)
"""Candidate weights of the reference, in multiples of the labelled rows, besides none and its full weight."""

_FOLDS = 5


class LabelledRows(NamedTuple):
    """Labelled answers of one model in time order, n rows.

    Attributes
    ----------
    scores : (n, K) float64
        Raw scores.
    predicted, labels : (n,) int64
    time : (n,) float64
        Times of the answers in seconds since the epoch; they do not fall.
    weights : (n,) float64
        1 over the probability of being labelled, up to a factor; all 1 for the reference.
    """

    scores: Floats
    predicted: Ints
    labels: Ints
    time: Floats
    weights: Floats


@dataclass(frozen=True, eq=False)
class Refitted:
    """A calibration fitted on the reference and on the labels since then.

    Parameters
    ----------
    fit : callable
        Fits `calibration`, which is not wanted where the held-out losses speak against it.
    weight : float
        Weight of a row of the reference: 0 for nothing, 1 for the same as a labelled row.
    losses : mapping of float to float
        Log loss on the held-out labelled rows by weight, in nats a row; without the weights that allowed no
        fit.
    until : float
        Time of the newest answer in the fit: only later answers may judge it.
    held_out : (n,) float64
        Log loss in nats of each labelled row, under the fit without it, at the chosen weight.
    """

    fit: Callable[[], Calibration]
    weight: float
    losses: Mapping[float, float]
    until: float
    held_out: Floats

    @cached_property
    def calibration(self) -> Calibration:
        """The fit on all rows; raises a ValueError if they allow none."""
        return self.fit()


def refitted(
    reference: LabelledRows | None,
    labelled: LabelledRows,
    calibrator: Calibrator,
    allowed: Callable[[float], bool] = lambda weight: True,
) -> Refitted:
    """Fit a calibration on the labelled rows and the reference, whose weight the labels choose.

    Each row of the reference counts as w, each labelled row as 1 on average. The candidates for w are 0, 1
    and the weights that make the reference worth a quarter, once, four and sixteen times as many rows as
    there are labels. For each w the labelled rows are cut into five contiguous folds in time order; the fit
    on the reference and the other four folds predicts each fold. The w with the least mean log loss wins (of
    equal ones the largest); `Refitted.calibration` then fits everything with it. No fit judges a row that it
    saw.

    If nothing has changed, the reference keeps its weight and the labels add to it. After drift the reference
    loses weight as fast as the labels' log loss can show it; small drifts need many labels. It misleads if
    labelling depends on more than the score and `weights` are wrong about it, and if the model drifts after
    the newest label. It averages over drift among the labelled rows: give it only the newest ones.

    It costs 26 to 31 fits. `AutoCalibrator` would choose again in each of them; give it the chosen calibrator
    instead (``CALIBRATORS[calibration.method]()``).

    Parameters
    ----------
    reference, labelled : LabelledRows
        Without common rows. Reference None: the labelled rows are fitted alone.
    calibrator : Calibrator
    allowed : callable, optional
        Whether a weight of the reference below 1 is a candidate; all are by default.

    Raises
    ------
    ValueError
        There are fewer than `FEWEST_LABELS` labelled rows, their scores rank the wrong way round, times fall,
        a column is out of range, or no weight allows a fit.

    Examples
    --------
    >>> from monitor import PlattCalibrator
    >>> rng = np.random.default_rng(0)
    >>> def rows(n, shift):
    ...     score = rng.uniform(0.5, 1.0, n)
    ...     wrong = (rng.random(n) > score - shift).astype(int)
    ...     return LabelledRows(score[:, None], wrong * 0, wrong, np.arange(float(n)), np.ones(n))
    >>> found = refitted(rows(5000, 0.0), rows(500, 0.2), PlattCalibrator())
    >>> found.weight, found.calibration.apply(np.array([[0.75]])).round(2).tolist()
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
    losses = {weight: float(found @ labelled.weights) / n for weight, found in held_out.items()}
    best = min(losses, key=lambda weight: (losses[weight], -weight))
    until = max(float(rows.time[-1]) for rows in (reference, labelled) if rows is not None)
    return Refitted(partial(fit, best, slice(0)), best, losses, until, held_out[best])


def _refuse_misleading(labelled: LabelledRows, method: str) -> None:
    """Refuse labels that are too few, or whose scores rank the wrong way round."""
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
    """The candidate weights of a row of the reference, in falling order."""
    if reference is None:
        return [0.0]
    even = len(labelled.labels) / float(reference.weights.sum())
    return sorted({0.0, 1.0, *(ratio * even for ratio in RATIOS if ratio * even < 1.0)}, reverse=True)


_Fit = Callable[[float, slice], Calibration]
"""The fit in which a row of the reference weighs so much, without these labelled rows."""


def _held_out(fit: _Fit, labelled: LabelledRows, weight: float) -> Floats:
    """(n,) log loss of the labelled rows, each under a fit without its fold."""
    n = len(labelled.labels)
    found = np.empty(n)
    for fold in (slice(*edges) for edges in pairwise(fold_edges(n, _FOLDS).tolist())):
        calibrated = fit(weight, fold).apply(labelled.scores[fold])
        found[fold] = log_loss(calibrated, labelled.labels[fold], 1 / (n + 2.0))
    return found


def _prepared(reference: LabelledRows | None, labelled: LabelledRows, calibrator: Calibrator) -> _Fit:
    """The fits on the reference and on labelled rows, for which all rows are made ready once."""
    parts = [labelled] if reference is None else [reference, labelled]
    fit = calibrator.prepared(
        np.concatenate([part.scores for part in parts]),
        np.concatenate([part.predicted for part in parts]),
        np.concatenate([part.labels for part in parts]),
    )

    def without(weight: float, rows: slice) -> Calibration:
        own = labelled.weights.copy()
        own[rows] = 0.0
        return fit(own if reference is None else np.concatenate([weight * reference.weights, own]))

    return without
