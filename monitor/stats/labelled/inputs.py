"""The input of every estimator that uses labels: checks and sorting.

Rows and models are sorted by their content before a fit, so their order does not change the result. Without
sorting, the random numbers of a row would depend on its position in the array.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from monitor.base.records import Floats, Ints

UNLABELLED = -1
"""The label of a row whose class is unknown."""

SUM_TOLERANCE = 1e-3
"""The largest allowed distance of a row's sum of scores from 1, the same as for records. The rows are then
normalised."""

_ROUNDING = 1e-9
_LARGEST_OFF = SUM_TOLERANCE + 1e-7  # [0.5, 0.501] must pass also in single precision, which pools use

Bools = NDArray[np.bool_]
_Array = TypeVar("_Array", Floats, Ints, Bools)


@dataclass(frozen=True, slots=True, eq=False)
class LabelledScores:
    """The scores of M models on n rows, some of which are labelled.

    The arrays are read-only.

    Parameters
    ----------
    scores : (n, M, K) float64
        Class probabilities with the sum 1; NaN for all classes if a model has no answer.
    labels : (n,) int64
        True class; −1 if unknown.
    predicted : (n, M) int64
        The model's class, by default the argmax of the scores; −1 if the model has no answer.
    present : (n, M) bool
        True where a model has an answer.
    weights : (n,) float64 or None
        Inverse of the probability with which the row was labelled; not used on unlabelled rows.
    acquisition : (n,) int64 or None
        Number of the draw that labelled the row; −1 for an unlabelled row.
    row_order : (n,) int64
        Index of each row in the caller's arrays.
    model_order : (M,) int64
        Index of each model in the caller's arrays.
    """

    scores: Floats
    labels: Ints
    predicted: Ints
    present: Bools
    weights: Floats | None
    acquisition: Ints | None
    row_order: Ints
    model_order: Ints

    @property
    def rows(self) -> int:
        """The number of rows, n."""
        return len(self.labels)

    @property
    def models(self) -> int:
        """The number of models, M."""
        return int(self.scores.shape[1])

    @property
    def classes(self) -> int:
        """The number of classes, K."""
        return int(self.scores.shape[2])

    @property
    def labelled(self) -> Bools:
        """A mask (n,) of the rows with a label."""
        known: Bools = self.labels != UNLABELLED
        return known

    def clamp(self, posterior: Floats) -> Floats:
        """Return a copy of (…, n, K) class probabilities with 1 for the class of each labelled row."""
        clamped = posterior.copy()
        known = self.labelled
        clamped[..., known, :] = np.eye(self.classes)[self.labels[known]]
        return clamped

    def mean_of_models(self) -> Floats:
        """Return the (n, K) mean score over the models that answered; see the function `mean_of_models`."""
        return mean_of_models(self.scores)

    def to_sorted(self, rows: ArrayLike) -> NDArray[np.generic]:
        """Return an array with an entry for each row, moved from the caller's order to the sorted order."""
        return np.asarray(rows)[self.row_order]

    def to_original(self, rows: Floats) -> Floats:
        """Return an array with an entry for each row, moved from the sorted order to the caller's order."""
        returned = np.empty_like(rows)
        returned[self.row_order] = rows
        return returned


def effective_weights(data: LabelledScores, rows: Ints) -> Floats:
    """Return weights of the l labelled `rows`, scaled so that their sum is the effective number of labels.

    The effective number is L. Kish's (Σw)² / Σw². If `data` has no weights, all are 1.

    Examples
    --------
    >>> data = checked_input(np.full((3, 1, 2), 0.5), [0, 1, -1], weights=[1.0, 3.0, 1.0])
    >>> sorted(effective_weights(data, np.flatnonzero(data.labelled)).tolist())
    [0.4, 1.2...]
    """
    if data.weights is None or len(rows) == 0:
        return np.ones(len(rows))
    weight = data.weights[rows]
    scaled: Floats = weight * weight.sum() / (weight @ weight)
    return scaled


def effective_number(weight: Floats) -> float:
    """Return the effective number of weighted rows, (Σw)² / Σw² (L. Kish); 0 for no rows.

    Examples
    --------
    >>> effective_number(np.array([1.0, 1.0, 4.0]))
    2.0
    """
    return float(weight.sum() ** 2 / (weight @ weight)) if len(weight) else 0.0


def votes(scores: Floats) -> Ints:
    """Return the (n, M) most probable class of each model for each row, from (n, M, K) scores.

    If several classes are equally probable, the result is the first of them. The class of a missing answer is
    −1.

    Examples
    --------
    >>> votes(np.array([[[0.2, 0.8], [np.nan, np.nan]]])).tolist()
    [[1, -1]]
    """
    present = ~np.isnan(scores[:, :, 0])
    return np.where(present, np.argmax(np.where(present[:, :, None], scores, 0.0), axis=2), -1)


def mean_of_models(scores: Floats) -> Floats:
    """Return the (n, K) mean scores over the models that answered, from (n, M, K) scores.

    A row without any answer gets the mean of the other rows, or 1/K if there are no other rows.
    """
    present = ~np.isnan(scores[:, :, :1])
    answers = present.sum(axis=1)
    mean = np.where(present, scores, 0.0).sum(axis=1) / np.maximum(answers, 1)
    silent = answers[:, 0] == 0
    if silent.any():
        mean[silent] = mean[~silent].mean(axis=0) if not silent.all() else 1.0 / scores.shape[2]
    return np.asarray(mean)


def checked_input(
    scores: ArrayLike,
    labels: ArrayLike,
    predicted: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    acquisition: ArrayLike | None = None,
) -> LabelledScores:
    """Check the arguments of `fit`, copy them, and sort them by content.

    An invalid argument raises a ValueError, which names the argument, its first wrong entry, and the allowed
    values.

    Examples
    --------
    >>> data = checked_input([[[0.2, 0.8]], [[0.9, 0.1]]], [1, -1])
    >>> data.rows, data.models, data.classes, int(data.labelled.sum())
    (2, 1, 2, 1)
    >>> checked_input([[[0.2, 0.9]]], [0])
    Traceback (most recent call last):
        ...
    ValueError: scores[0, 0] must sum to 1 within 0.001 (class probabilities), got a sum of 1.1
    """
    table = checked_scores(scores)
    n, _, classes = table.shape
    present: Bools = ~np.isnan(table[:, :, 0])
    truth = _whole(labels, "labels", (n,), UNLABELLED, classes - 1, "-1 for no label, else a class index")
    acted = _predicted(predicted, table, present)
    weight = None if weights is None else _weights(weights, truth)
    draw = None if acquisition is None else _acquisition(acquisition, truth)
    model_order = _order_of_models(table, acted)
    table, acted, present = table[:, model_order], acted[:, model_order], present[:, model_order]
    order = _order_of_rows(table, acted, truth, weight, draw)
    return LabelledScores(
        _frozen(table[order]),
        _frozen(truth[order]),
        _frozen(acted[order]),
        _frozen(present[order]),
        None if weight is None else _frozen(weight[order]),
        None if draw is None else _frozen(draw[order]),
        _frozen(order),
        _frozen(model_order),
    )


def checked_scores(scores: ArrayLike, models: int | None = None, classes: int | None = None) -> Floats:
    """Return a checked float64 copy of (n, M, K) class probabilities.

    Parameters
    ----------
    scores : (n, M, K) array of float
    models, classes : int, optional
        The required M and K.

    Raises
    ------
    ValueError
        The shape is wrong, a value is not a probability, a model's scores of a row are NaN for some classes
        only, or their sum is not 1 within `SUM_TOLERANCE`.
    """
    table = np.array(scores, dtype=np.float64)
    wanted = f"(n, {'M' if models is None else models}, {'K' if classes is None else classes})"
    fits = table.ndim == 3 and table.shape[1] >= 1 and table.shape[2] >= 2
    if (
        not fits
        or table.shape[1] != (models or table.shape[1])
        or table.shape[2] != (classes or table.shape[2])
    ):
        raise ValueError(
            f"scores must have the shape {wanted}: rows, models (at least 1), classes (at least 2), got "
            f"{table.shape}; for one model alone give scores[:, None, :]"
        )
    unknown: Ints = np.isnan(table).sum(axis=2)
    _refuse(
        (unknown > 0) & (unknown < table.shape[2]),
        "scores{at} holds NaN for some classes only; give NaN for all of them where a model is missing",
    )
    _refuse(
        (table < 0.0) | (table > 1.0),
        "scores{at} must be a probability from 0 to 1, got {value}; turn logits or percentages into "
        "probabilities first",
        table,
    )
    total: Floats = table.sum(axis=2)
    off: Bools = np.asarray(np.abs(total - 1.0) > _LARGEST_OFF)
    _refuse(
        off,
        f"scores{{at}} must sum to 1 within {SUM_TOLERANCE} (class probabilities), got a sum of {{value}}",
        total,
    )
    # Rows whose sum has only a rounding error are kept: a division would break ties between equal scores.
    table /= np.where(np.abs(total - 1.0) > _ROUNDING, total, 1.0)[:, :, None]
    return table


def _refuse(wrong: Bools, message: str, values: Floats | Ints | None = None) -> None:
    if not wrong.any():
        return
    at = np.argwhere(wrong)[0].tolist()
    value = "" if values is None else f"{values[tuple(at)]:.6g}"
    raise ValueError(message.format(at=at, value=value))


def _whole(values: ArrayLike, name: str, shape: tuple[int, ...], low: int, high: int, meaning: str) -> Ints:
    array = np.asarray(values)
    if array.shape != shape:
        raise ValueError(f"{name} must have the shape {shape}, like the scores, got {array.shape}")
    if array.size and array.dtype.kind not in "iu":
        raise ValueError(f"{name} must hold whole numbers ({meaning}), got an array of {array.dtype}")
    whole = array.astype(np.int64)
    _refuse(
        (whole < low) | (whole > high),
        f"{name}{{at}} must lie from {low} to {high} ({meaning}), got {{value}}",
        whole,
    )
    return whole


def _predicted(predicted: ArrayLike | None, scores: Floats, present: Bools) -> Ints:
    classes = scores.shape[2]
    if predicted is None:
        acted = np.argmax(np.where(present[:, :, None], scores, 0.0), axis=2)
    else:
        acted = _whole(predicted, "predicted", present.shape, -1, classes - 1, "the class acted on")
        _refuse(
            present & (acted < 0),
            "predicted{at} must be a class index where the model has scores, got -1",
        )
    return np.where(present, acted, -1)


def _weights(weights: ArrayLike, labels: Ints) -> Floats:
    weight = np.array(weights, dtype=np.float64)
    if weight.shape != labels.shape:
        raise ValueError(f"weights must have the shape {labels.shape}, one for each row, got {weight.shape}")
    with np.errstate(invalid="ignore"):
        wrong = (labels != UNLABELLED) & ~((weight > 0) & np.isfinite(weight))
    _refuse(
        wrong,
        "weights{at} must be a positive number (1 / probability of being labelled), got {value}",
        weight,
    )
    return np.where(labels == UNLABELLED, 1.0, weight)


def _acquisition(acquisition: ArrayLike, labels: Ints) -> Ints:
    draw = _whole(
        acquisition, "acquisition", labels.shape, -1, np.iinfo(np.int64).max, "-1 = unlabelled, else the draw"
    )
    _refuse(
        (draw >= 0) != (labels != UNLABELLED),
        "acquisition{at} must be -1 exactly where the row has no label, got {value}",
        draw,
    )
    return draw


def _order_of_models(scores: Floats, predicted: Ints) -> Ints:
    """Return an order of the models by their sorted scores. It does not depend on the order of the rows."""
    marginal = np.sort(scores, axis=0)
    counts = np.sort(predicted, axis=0)
    keys = [marginal[:, m].tobytes() + counts[:, m].tobytes() for m in range(scores.shape[1])]
    return np.array(sorted(range(len(keys)), key=keys.__getitem__), dtype=np.int64)


def _order_of_rows(scores: Floats, predicted: Ints, labels: Ints, *others: Floats | Ints | None) -> Ints:
    flat = scores.reshape(len(scores), scores.shape[1] * scores.shape[2])
    columns = [flat, predicted, labels[:, None]]
    columns += [other[:, None] for other in others if other is not None]
    keys = np.concatenate(columns, axis=1)
    return np.lexsort(keys.T).astype(np.int64)


def _frozen(array: _Array) -> _Array:
    array.flags.writeable = False
    return array
