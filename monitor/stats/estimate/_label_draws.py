"""Seeded random labels of a window's rows, drawn from their calibrated probabilities."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from monitor.base.records import Floats
from monitor.stats.estimate._one_class import OneClass
from monitor.stats.estimate.ranking import Bools

LABEL_DRAWS = 1000
"""The number of draws. With this number, the end of a 95 % interval has a random error of 0.09 standard
deviations of the metric."""

_STEP = 1 << 16  # labels drawn at once, into the same memory: they stay in the second-level cache


def drawn_values(
    scores: Floats,
    classes: Sequence[OneClass],
    columns: Sequence[int] | None,
    metrics: Sequence[str],
    seed: int,
) -> dict[str, Floats]:
    """Return the (classes, LABEL_DRAWS) values of each metric for random labels of one window.

    All metrics use the same draws of labels. A value is NaN if the metric is undefined in a draw.

    Parameters
    ----------
    scores : (n, K) float64
    classes : sequence of OneClass
        The classes of one window, each with arrays (n,).
    columns : sequence of int, or None
        The column of each class in `scores`; None if `classes` has a single entry, which counts all (row,
        class) pairs.
    metrics : sequence of str
    seed : int
    """
    values = {metric: np.empty((len(classes), LABEL_DRAWS)) for metric in metrics}
    start = 0
    if not values:
        return values
    if columns is not None and len(columns) == 1:
        [one] = classes
        steps: Iterator[Sequence[Bools]] = ([each] for each in _positive(one, seed))
    else:
        steps = _every(scores, classes, columns, seed)
    for positives in steps:
        stop = start + len(positives[0])
        for i, (one, positive) in enumerate(zip(classes, positives, strict=True)):
            for metric in metrics:
                values[metric][i, start:stop] = one.values_in_draws(metric, positive)
        start = stop
    return values


def _uniform(n: int, seed: int) -> Iterator[NDArray[np.float32]]:
    """Yield (draws, n) numbers from 0 to below 1, some draws at a time, in the same memory.

    Single precision is twice as fast; its rounding is at most 6e-8.
    """
    rng, step = np.random.default_rng(seed), max(_STEP // n, 1)
    memory = np.empty((min(step, LABEL_DRAWS), n), dtype=np.float32)
    for first in range(0, LABEL_DRAWS, step):
        yield rng.random(out=memory[: LABEL_DRAWS - first], dtype=np.float32)


def _positive(one: OneClass, seed: int) -> Iterator[Bools]:
    """Yield (draws, n) masks of rows that are of the class, in the order of its ranking."""
    # A probability of 1 exceeds all draws.
    chance = one.ranking.sorted(one.chance).astype(np.float32)
    memory = np.empty((max(_STEP // len(chance), 1), len(chance)), dtype=np.bool_)
    for uniform in _uniform(len(chance), seed):
        yield np.less(uniform, chance, out=memory[: len(uniform)])


def _every(
    scores: Floats, classes: Sequence[OneClass], columns: Sequence[int] | None, seed: int
) -> Iterator[list[Bools]]:
    """Yield the masks of `_positive` for each class, from the same labels."""
    edges = np.cumsum(scores, axis=1).T[:-1].astype(np.float32)
    for uniform in _uniform(len(scores), seed):
        labels = np.zeros(uniform.shape, dtype=np.int16)
        for edge in edges:
            labels += uniform >= edge
        if columns is None:
            pairs = (labels[:, :, None] == np.arange(scores.shape[1])).reshape(len(labels), -1)
            yield [pairs[:, one.ranking.order] for one in classes]
        else:
            yield [(labels == k)[:, one.ranking.order] for one, k in zip(classes, columns, strict=True)]
