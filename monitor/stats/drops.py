"""Drops of accuracy of a known size, made in the scores and labels of answers that a model gave.

A share of the labels is replaced by classes that are drawn with equal probabilities. With K classes, an
answer that was right with probability a is then right with probability (1 − share)·a + share / K. A model
that *knows* of the change gives these lower confidences. A model that does *not know* keeps its confidences,
and only labels can show the drop.

In a task without classes, a label says whether the answer is right, and a replaced label says that it is
wrong. The new probability is then (1 − share)·a.

Draws depend on the records' keys and a seed, and not on how the records are divided into chunks. The labels
that a smaller share replaces are among those that a larger share replaces.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from monitor.base.records import Floats, Ints, Keys, mix
from monitor.stats.calibration.base import confidence_of

_STEPS = 14  # of the bisection: a confidence is exact to 1/16,384
_GRID = 2049  # scores of one predicted class for which the lower score is computed; others are interpolated
_WRONG = 1  # the label of a wrong answer in a task without classes

Confidence = Callable[[Floats, Ints], Floats]
"""A function from scores (n, K) and predicted classes (n,) to the probability that each answer is right."""


def chance(classes: int) -> float:
    """Return the accuracy of answers whose labels are all replaced; `classes` is 1 in a task without classes.

    Examples
    --------
    >>> chance(2), chance(1)
    (0.5, 0.0)
    """
    return 1 / classes if classes > 1 else 0.0


def replaced_share(accuracy: float, drop: float, classes: int) -> float:
    """Return the share of the labels to replace so that the accuracy falls by `drop`.

    The result is above 1 if the accuracy cannot fall so far.

    Parameters
    ----------
    accuracy, drop : float
        Ratios, with `accuracy` above `chance(classes)`.
    classes : int
        The number of classes; 1 in a task without classes.

    Examples
    --------
    >>> round(replaced_share(0.9, 0.05, 2), 3)
    0.125
    """
    return drop / (accuracy - chance(classes))


def replaced_labels(labels: Ints, keys: Keys, share: float, classes: int, seed: int) -> Ints:
    """Return labels of which a share is replaced by classes drawn with equal probabilities.

    Parameters
    ----------
    labels : (n,) int64
        Classes, or 0 for right and 1 for wrong in a task without classes; -1 without a label.
    keys : (n,) uint64
        The keys by which labels are drawn. Equal keys get the same draw.
    share : float
        0 to 1.
    classes : int
    seed : int

    Examples
    --------
    >>> keys = np.arange(1, 100_001, dtype=np.uint64)
    >>> after = replaced_labels(np.zeros(100_000, dtype=np.int64), keys, 0.1, 2, seed=0)
    >>> round(float(after.mean()), 2)  # half of the replaced labels are of the same class again
    0.05
    """
    pick, draw = (uniform(keys, 2 * seed + part) for part in (0, 1))
    classes_drawn = np.full(len(labels), _WRONG) if classes == 1 else (draw * classes).astype(np.int64)
    return np.where((labels >= 0) & (pick < share), classes_drawn, labels)


def uniform(keys: Keys, stream: int) -> Floats:
    """Return a number in [0, 1) for each key; streams of another number are independent."""
    salt = mix(np.array([stream + 1], dtype=np.uint64))[0]
    numbers: Floats = (mix(mix(keys ^ salt)) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return numbers


class Lowering:
    """Lowers the confidences in scores as much as the accuracy falls when a share of labels is replaced.

    The score of the predicted class falls, and the other classes get the rest in equal parts. The predicted
    class does not change, even if its score is no longer the largest. Scores whose confidence is below
    `chance` do not change.

    Parameters
    ----------
    classes : int
        The number of classes; 1 in a task without classes.
    share : float
        The share of the labels that are replaced.
    confidence : callable
        Takes scores and predicted classes, and returns the calibrated confidences. They must increase with
        the score of the predicted class.

    Examples
    --------
    >>> lowering = Lowering(2, 0.1, confidence_of)
    >>> lowering(np.array([[0.9, 0.1], [0.3, 0.7]]), np.array([0, 1])).round(3).tolist()
    [[0.86, 0.14], [0.32, 0.68]]
    """

    def __init__(self, classes: int, share: float, confidence: Confidence) -> None:
        self._share, self._confidence = share, confidence
        self._grid = np.linspace(0.0, 1.0, _GRID)
        self._parts: list[Floats] = []
        if classes > 2:
            return
        # With one or two classes, the score of the predicted class determines all scores of a row.
        column = self._grid[:, np.newaxis]
        for code in range(classes):
            scores = column if classes == 1 else np.hstack([column, 1 - column][:: 1 - 2 * code])
            self._parts.append(_by_bisection(scores, np.full(_GRID, code), share, confidence))

    def __call__(self, scores: Floats, predicted: Ints) -> Floats:
        """Return the lower scores, (n, K), of answers with these scores and predicted classes, (n,)."""
        if not self._parts:
            return _moved(scores, predicted, _by_bisection(scores, predicted, self._share, self._confidence))
        own, part = confidence_of(scores, predicted), np.empty(len(scores))
        for code, parts in enumerate(self._parts):
            rows = predicted == code
            part[rows] = np.interp(own[rows], self._grid, parts)
        return _moved(scores, predicted, part)


def _by_bisection(scores: Floats, predicted: Ints, share: float, confidence: Confidence) -> Floats:
    """Return the part of the predicted class's score that is taken away, (n,)."""
    before = confidence(scores, predicted)
    least = chance(scores.shape[1])
    goal = np.where(before > least, (1 - share) * before + share * least, before)
    low, high = np.zeros(len(scores)), np.ones(len(scores))
    for _ in range(_STEPS):
        middle = (low + high) / 2
        enough: NDArray[np.bool_] = confidence(_moved(scores, predicted, middle), predicted) <= goal
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    # A calibration with steps jumps over the goal: take the nearer side.
    over, under = (
        np.abs(confidence(_moved(scores, predicted, part), predicted) - goal) for part in (low, high)
    )
    nearest: Floats = np.where(over <= under, low, high)
    return np.where(before > least, nearest, 0.0)


def _moved(scores: Floats, predicted: Ints, part: Floats) -> Floats:
    """Return scores of which a part of the predicted class's score is given to the other classes."""
    rows, classes = np.arange(len(scores)), scores.shape[1]
    mass = scores[rows, predicted] * part
    moved = scores + (mass / (classes - 1))[:, np.newaxis] if classes > 1 else scores.copy()
    moved[rows, predicted] = scores[rows, predicted] - mass
    return moved
