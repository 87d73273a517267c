"""The base of every calibration: frozen settings that fit a frozen map from raw scores to probabilities."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

import numpy as np

from monitor.base.codec import plain, restored
from monitor.base.records import Floats, Ints


class Calibration(ABC):
    """A fitted map from raw scores to class probabilities. Immutable; `apply` costs microseconds.

    Attributes
    ----------
    method : str
        Key of its calibrator in `CALIBRATORS`.
    width : int
        Columns of the scores in its fit: one for each class, or 1 for a confidence.
    """

    method: ClassVar[str]
    width: int

    @abstractmethod
    def apply(self, scores: Floats) -> Floats:
        """Calibrated class probabilities, (n, K) float64.

        Each row sums to 1; for K = 1 the value is the calibrated probability of being right. Raises a
        ValueError if the scores do not have `width` columns.

        Parameters
        ----------
        scores : (n, K) float64
            Raw scores from 0 to 1, K = `width`; not changed.
        """

    def snapshot(self) -> dict[str, Any]:
        """The map as plain numbers, strings, lists and mappings, with its `method`."""
        return {"method": self.method, **plain(self)}

    @classmethod
    def from_snapshot(cls, snapshot: Mapping[str, Any]) -> Self:
        """The map from its `snapshot`, equal to the last bit."""
        return restored(snapshot, cls)

    def _check_width(self, scores: Floats) -> None:
        if scores.ndim != 2 or scores.shape[1] != self.width:
            raise ValueError(
                f"scores must have the shape (n, {self.width}), like the scores of the calibration's fit, "
                f"got {scores.shape}"
            )


class Calibrator(ABC):
    """Settings of a calibration method: frozen, checked in the constructor.

    Attributes
    ----------
    method : str
        Key in `CALIBRATORS`, and in the configuration.
    calibration : type
        The type that `fit` returns.
    """

    method: ClassVar[str]
    calibration: ClassVar[type[Calibration]]

    @abstractmethod
    def fit(
        self, scores: Floats, predicted: Ints, labels: Ints, weights: Floats | None = None
    ) -> Calibration:
        """Learn the map from labelled rows.

        Parameters
        ----------
        scores : (n, K) float64
            Raw class probabilities, or one column with the confidence.
        predicted : (n,) int64
            The model's class.
        labels : (n,) int64
            True class; for K = 1, 0 is correct and 1 is wrong.
        weights : (n,) float64, optional
            0 or more, 1 by default: a weight of 2 equals the row twice. Scale inverse probabilities of
            labelling to a mean of 1 first.

        Raises
        ------
        ValueError
            Shapes differ, a value is out of range, or the rows do not determine the map; the message names
            the remedy.
        """

    def prepared(self, scores: Floats, predicted: Ints, labels: Ints) -> Callable[[Floats], Calibration]:
        """A fit on these rows that takes their weights, for many fits on parts of the same rows.

        Parameters
        ----------
        scores, predicted, labels
            As in `fit`.

        Returns
        -------
        callable
            From (n,) weights to what `fit` gives on the rows whose weight is above 0, to the last bit. It
            raises what `fit` raises.
        """

        def fit(weights: Floats) -> Calibration:
            kept = weights > 0
            return self.fit(scores[kept], predicted[kept], labels[kept], weights[kept])

        return fit


def check_fit_input(scores: Floats, predicted: Ints, labels: Ints, weights: Floats | None = None) -> None:
    """Refuse rows that allow no fit: see the errors of `Calibrator.fit`."""
    if scores.ndim != 2 or scores.shape[1] < 1:
        raise ValueError(f"scores must have the shape (n, K) with K at least 1, got {scores.shape}")
    n, width = scores.shape
    for name, column in (("predicted", predicted), ("labels", labels)):
        if column.shape != (n,):
            raise ValueError(
                f"{name} must have the shape ({n},), one entry for each row of scores, got {column.shape}"
            )
    if n == 0:
        raise ValueError("the reference has no labelled rows, so no calibration can be fitted on it")
    if not (scores.min() >= 0.0 and scores.max() <= 1.0):
        row, column_index = np.argwhere(~((scores >= 0.0) & (scores <= 1.0)))[0].tolist()
        raise ValueError(
            f"scores[{row}, {column_index}] must be a number from 0 to 1, got {scores[row, column_index]}"
        )
    for name, column, top in (("predicted", predicted, width - 1), ("labels", labels, max(width - 1, 1))):
        if column.min() < 0 or column.max() > top:
            at = int(np.flatnonzero((column < 0) | (column > top))[0])
            raise ValueError(f"{name}[{at}] must be a class index from 0 to {top}, got {column[at]}")
    if weights is not None:
        check_weights(weights, n)


def check_weights(weights: Floats, n: int) -> None:
    """Refuse weights of n rows that allow no fit."""
    if weights.shape != (n,):
        raise ValueError(
            f"weights must have the shape ({n},), one entry for each row of scores, got {weights.shape}"
        )
    if not ((weights >= 0.0) & (weights < np.inf)).all():
        at = int(np.flatnonzero(~((weights >= 0.0) & (weights < np.inf)))[0])
        raise ValueError(f"weights[{at}] must be a number of at least 0, got {weights[at]}")
    if not weights.any():
        raise ValueError("weights must be above 0 in some row, got 0 in every one")


def confidence_of(calibrated: Floats, predicted: Ints) -> Floats:
    """Calibrated probability of the predicted class, (n,).

    It is not always the largest one: the predicted class comes from the raw scores or from the record.

    Parameters
    ----------
    calibrated : (n, K) float64
        Result of `Calibration.apply`; K = 1 is the confidence itself.
    predicted : (n,) int64
        The model's class, 0 to K − 1.

    Examples
    --------
    >>> confidence_of(np.array([[0.7, 0.3], [0.4, 0.6]]), np.array([1, 1])).tolist()
    [0.3, 0.6]
    """
    if calibrated.shape[1] == 1:
        return calibrated[:, 0].copy()
    confidence: Floats = calibrated[np.arange(len(predicted)), predicted]
    return confidence


def fold_edges(n: int, folds: int) -> Ints:
    """(folds + 1,) the edges of contiguous folds of nearly equal length."""
    edges: Ints = np.arange(folds + 1) * n // folds
    return edges


def cross_fit_in_time(
    calibrator: Calibrator,
    scores: Floats,
    predicted: Ints,
    labels: Ints,
    folds: int = 5,
    weights: Floats | None = None,
) -> Floats:
    """Calibrate each row of the reference by a map that was not fitted on its neighbours in time.

    The rows are cut into contiguous folds in time order; the map for each fold is fitted on the other folds.
    On its own rows a map looks better than it is; and random folds would leak, because rows near in time are
    alike.

    Parameters
    ----------
    calibrator : Calibrator
    scores, predicted, labels, weights
        As in `Calibrator.fit`, in time order.
    folds : int
        From 2 to the number of rows.

    Returns
    -------
    (n, K) float64
        Calibrated class probabilities.

    Raises
    ------
    ValueError
        `folds` is out of range, or a fit outside one fold is impossible.

    Examples
    --------
    >>> from monitor import CALIBRATORS
    >>> scores = np.array([[0.1], [0.9], [0.1], [0.9]])
    >>> labels = np.array([1, 0, 1, 0])
    >>> predicted = np.zeros(4, dtype=int)
    >>> cross_fit_in_time(CALIBRATORS["isotonic"](), scores, predicted, labels, folds=2).ravel().tolist()
    [0.0, 1.0, 0.0, 1.0]
    """
    check_fit_input(scores, predicted, labels, weights)
    n = len(scores)
    if not 2 <= folds <= n:
        raise ValueError(f"folds must lie from 2 to the number of rows ({n}), got {folds}")
    calibrated = np.empty(scores.shape)
    edges = fold_edges(n, folds)
    fit, counts = calibrator.prepared(scores, predicted, labels), np.ones(n) if weights is None else weights
    for first, past in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        others = counts.copy()
        others[first:past] = 0.0
        try:
            fitted = fit(others)
        except ValueError as error:
            raise ValueError(f"outside rows {first} to {past - 1} of the reference: {error}") from error
        calibrated[first:past] = fitted.apply(scores[first:past])
    return calibrated
