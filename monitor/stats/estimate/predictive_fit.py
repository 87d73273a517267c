"""Fits `Predictive`, the model of errors that estimates of later windows will have, on a reference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from monitor.base.records import Floats, Ints
from monitor.stats.calibration.base import Calibrator, confidence_of, cross_fit_in_time
from monitor.stats.estimate.curves import bootstrap_curves
from monitor.stats.estimate.drift_spectrum import SHORTEST_BLOCK
from monitor.stats.estimate.predictive import Predictive
from monitor.stats.estimate.variance_components import Components, variance_components

FOLDS = (2, 4, 8, 16)
FEWEST_IN_FOLD = 100
"""The smallest number of rows in a fold, so that blocks of one or two lengths fit into it."""

FEWEST_ROWS = FOLDS[0] * FEWEST_IN_FOLD
"""The number of rows of the shortest reference that shows variation between windows."""

_FEWEST_IN_STRATUM = 50  # of a predicted class; rarer ones share a curve and their variation


@dataclass(frozen=True, slots=True, eq=False)
class Folded:
    """A labelled reference in time order, with confidences from calibrations fitted on other rows.

    Parameters
    ----------
    confidence : (N,) float64
        The confidences from the calibration that was fitted on all rows.
    predicted : (N,) int64
    right : (N,) bool
    folds : mapping of int to (N,) float64
        For each number of contiguous folds, the confidences of all rows. Each fold is calibrated by a fit on
        the other folds.
    calibrated : bool
        False for the method `none`. Without a calibration, there is no error of a fit, but a bias may last
        for ever.
    """

    confidence: Floats
    predicted: Ints
    right: NDArray[np.bool_]
    folds: Mapping[int, Floats]
    calibrated: bool = True

    @classmethod
    def fit(cls, calibrator: Calibrator, scores: Floats, predicted: Ints, labels: Ints) -> Folded:
        """Fit calibrations on all rows and on the rows outside each fold.

        Raise the errors of `Calibrator.fit`.
        """
        fitted = calibrator.fit(scores, predicted, labels)
        right = labels == 0 if scores.shape[1] == 1 else labels == predicted
        classes = np.zeros_like(predicted) if scores.shape[1] == 1 else predicted
        folded = {}
        for folds in FOLDS:
            if len(labels) < folds * FEWEST_IN_FOLD:
                break
            try:
                crossed = cross_fit_in_time(calibrator, scores, predicted, labels, folds)
            except ValueError:  # a fold holds all rows of one class
                continue
            folded[folds] = confidence_of(crossed, predicted)
        confidence = confidence_of(fitted.apply(scores), predicted)
        return cls(confidence, classes, right, folded, fitted.method != "none")

    def predictive(self, width: int, seed: int = 0, among: Ints | None = None, number: int = 0) -> Predictive:
        """Return the model of the errors that estimates of later windows will have.

        Parameters
        ----------
        width : int
            The number of classes, or 1 for a confidence.
        seed : int
        among : (m,) int64, optional
            The indices of a group's rows, increasing; the variation between windows is then estimated from
            these rows. The calibration was not fitted on these rows alone, so a bias for the group may last
            for ever.
        number : int
        """
        strata = _strata(self.predicted, width)
        stratum = strata[self.predicted]
        many = int(strata.max()) + 1
        if self.calibrated:
            edges, directions = bootstrap_curves(self.confidence, stratum, many, np.random.default_rng(seed))
        else:
            edges, directions = (np.zeros(0),) * many, np.zeros((1, many), dtype=np.float32)
        lasting = among is not None or not self.calibrated

        def fitted(where: NDArray[np.bool_] | None) -> Components | None:
            if not self.folds:
                return None
            return variance_components(self.folds, self.right, where, among, lasting)

        whole = fitted(None)
        parts = tuple(fitted(stratum == k) for k in range(many)) if whole and many > 1 else ()
        rows = len(self.right) if among is None else len(among)
        return Predictive(edges, directions, whole, strata, parts, rows, number)


def two_folds_vary(calibrator: Calibrator, scores: Floats, predicted: Ints, labels: Ints) -> bool:
    """Return whether a fit in two folds of a reference can estimate the variation between windows.

    If so, `Folded.predictive` returns a model with `components`. The result is False if one half of the
    reference cannot calibrate the other half, or if all answers are certain. In this case, more than two
    folds may be enough. The reference must have at least `FEWEST_ROWS` rows.
    """
    try:
        crossed = cross_fit_in_time(calibrator, scores, predicted, labels, FOLDS[0])
    except ValueError:
        return False
    confidence = confidence_of(crossed, predicted)
    certain = confidence * (1 - confidence) == 0
    # In each half some uncertain answer must lie in a full block.
    half = len(labels) // 2
    return not certain[: half - SHORTEST_BLOCK].all()


def _strata(predicted: Ints, width: int) -> Ints:
    """Return the stratum of each class. Classes that are rarely predicted share one stratum."""
    often = np.bincount(predicted, minlength=width) >= _FEWEST_IN_STRATUM
    strata = np.cumsum(often) - 1
    strata[~often] = int(often.sum())
    codes: Ints = strata.astype(np.int64)
    return codes


def fit_predictive(
    calibrator: Calibrator, scores: Floats, predicted: Ints, labels: Ints, seed: int = 0
) -> Predictive:
    """Return the model of the errors of later estimates, fitted on a labelled reference in time order.

    Parameters
    ----------
    calibrator, scores, predicted, labels
        As in `Calibrator.fit`.
    seed : int

    Returns
    -------
    Predictive
        A model without components if the reference is too short for folds (fewer than 200 rows), or if a part
        of it cannot calibrate the rest.

    Raises
    ------
    ValueError
        As in `Calibrator.fit`.

    Examples
    --------
    >>> from monitor import CALIBRATORS
    >>> rng = np.random.default_rng(3)
    >>> chance = rng.beta(9, 1, 1000)
    >>> wrong = (rng.random(1000) > chance).astype(int)
    >>> zeros = np.zeros(1000, dtype=int)
    >>> model = fit_predictive(CALIBRATORS["isotonic"](), chance[:, None], zeros, wrong)
    >>> 0.005 < model.variance(chance) ** 0.5 < 0.03
    True
    """
    return Folded.fit(calibrator, scores, predicted, labels).predictive(scores.shape[1], seed)


def short_sentence(rows: int) -> str:
    """Return a sentence for a report: the interval is incomplete because the reference is short.

    Examples
    --------
    >>> short_sentence(150)
    'holds only as long as nothing but chance moves the accuracy: reference of 150 rows, 200 needed'
    """
    what = "holds only as long as nothing but chance moves the accuracy"
    if rows >= FEWEST_ROWS:
        return f"{what}: no part of the reference of {rows:,} rows can be calibrated by the others"
    return f"{what}: reference of {rows:,} rows, {FEWEST_ROWS} needed"
