"""The base classes of calibrations: a `Calibrator` has the settings of a method, and fits a `Calibration`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

import numpy as np

from monitor.base.codec import plain, restored
from monitor.base.records import Floats, Ints


class Calibration(ABC):
    """An immutable fitted map from raw scores to class probabilities.

    Attributes
    ----------
    method : str
        Key in `CALIBRATIONS`.
    width : int
        Number of columns K of the scores: one for each class, or 1 for the confidence in the prediction.
    """

    method: ClassVar[str]
    width: int

    @abstractmethod
    def apply(self, scores: Floats) -> Floats:
        """Return calibrated class probabilities, (n, K) float64.

        For K of 2 or more, each row sums to 1. For K = 1, the value is the calibrated probability that the
        prediction is right. A call takes microseconds.

        Parameters
        ----------
        scores : (n, K) float64
            Raw scores from 0 to 1, K = `width`; not modified.

        Raises
        ------
        ValueError
            The scores do not have `width` columns.
        """

    def snapshot(self) -> dict[str, Any]:
        """Return the calibration and its `method` as a mapping that JSON can encode."""
        return {"method": self.method, **plain(self)}

    @classmethod
    def from_snapshot(cls, snapshot: Mapping[str, Any]) -> Self:
        """Return the calibration that a `snapshot` describes. Its results are the same to the last bit."""
        return restored(snapshot, cls)

    def _check_width(self, scores: Floats) -> None:
        if scores.ndim != 2 or scores.shape[1] != self.width:
            raise ValueError(
                f"scores must have the shape (n, {self.width}), like the scores of the calibration's fit, "
                f"got {scores.shape}"
            )


class Calibrator(ABC):
    """The settings of a calibration method: immutable, and checked by the constructor.

    Attributes
    ----------
    method : str
        Name of the method in `CALIBRATORS` and in the configuration.
    calibration : type
        The type that `fit` returns.
    """

    method: ClassVar[str]
    calibration: ClassVar[type[Calibration]]

    @abstractmethod
    def fit(
        self, scores: Floats, predicted: Ints, labels: Ints, weights: Floats | None = None
    ) -> Calibration:
        """Return the calibration fitted on labelled rows.

        Parameters
        ----------
        scores : (n, K) float64
            Raw class probabilities, or one column with the confidence.
        predicted : (n,) int64
            The model's class.
        labels : (n,) int64
            True class; for K = 1, 0 is correct and 1 is wrong.
        weights : (n,) float64, optional
            Weights of at least 0, by default 1. A row with the weight 2 counts as two rows. If the weights
            are inverse probabilities of labelling, scale them to a mean of 1 first.

        Raises
        ------
        ValueError
            Shapes differ, a value is out of range, or the rows do not determine the map; the message names
            the remedy.
        """

    def prepare_fit(self, scores: Floats, predicted: Ints, labels: Ints) -> Callable[[Floats], Calibration]:
        """Return a function that fits on these rows with any weights, such as 0 to leave rows out.

        Parameters
        ----------
        scores, predicted, labels
            See `fit`.

        Returns
        -------
        callable
            A function of (n,) weights. It has the same result, or raises the same error, as `fit` on the rows
            with a weight above 0.
        """

        def fit(weights: Floats) -> Calibration:
            kept = weights > 0
            return self.fit(scores[kept], predicted[kept], labels[kept], weights[kept])

        return fit


def check_fit_input(scores: Floats, predicted: Ints, labels: Ints, weights: Floats | None = None) -> None:
    """Raise a ValueError if arguments of `Calibrator.fit` have a wrong shape or a value out of range."""
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
    """Raise a ValueError unless the weights have the shape (n,), are finite, at least 0, and not all 0."""
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
    """Return the calibrated probability of the predicted class, (n,).

    The result is not always the largest probability of the row, because the predicted class comes from the
    raw scores or from the record.

    Parameters
    ----------
    calibrated : (n, K) float64
        Result of `Calibration.apply`; for K = 1, the confidence itself.
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
    """Return the (folds + 1,) edges that divide n rows into contiguous folds of nearly equal length."""
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
    """Return the calibrated probabilities of each row from a map that is fitted on other rows.

    The function divides the rows into contiguous folds in time order, and calibrates each fold with a map
    that is fitted on the other folds. On the rows on which a map is fitted, it looks better than it is. With
    random folds, the map would also look too good, because rows that are near in time are similar.

    Parameters
    ----------
    calibrator : Calibrator
    scores, predicted, labels, weights
        See `Calibrator.fit`; in time order.
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
    fit, counts = (
        calibrator.prepare_fit(scores, predicted, labels),
        np.ones(n) if weights is None else weights,
    )
    for first, past in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        others = counts.copy()
        others[first:past] = 0.0
        try:
            fitted = fit(others)
        except ValueError as error:
            raise ValueError(f"outside rows {first} to {past - 1} of the reference: {error}") from error
        calibrated[first:past] = fitted.apply(scores[first:past])
    return calibrated
