"""Seeded draws of a window's labels from its calibrated probabilities."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from monitor.base.records import Floats, Ints
from monitor.stats.estimate._one_class import OneClass

LABEL_DRAWS = 1000
"""With so many draws, an end of a 95 % interval scatters by 0.09 standard deviations of the metric."""

_STEP = 1 << 18  # labels drawn at once: they stay in the second-level cache


def drawn_values(
    scores: Floats,
    classes: Sequence[OneClass],
    columns: Iterable[int] | None,
    metrics: Sequence[str],
    seed: int,
) -> dict[str, Floats]:
    """(classes, LABEL_DRAWS) values of each metric, from the same draws of labels; NaN if undefined in a
    draw.

    Parameters
    ----------
    scores : (n, K) float64
    classes : sequence of OneClass
    columns : iterable of int, or None
        The column of each class; None for a single one with all (row, class) pairs.
    metrics : sequence of str
    seed : int
    """
    kept = None if columns is None else list(columns)
    found = {metric: np.empty((len(classes), LABEL_DRAWS)) for metric in metrics}
    start = 0
    if not found:
        return found
    for labels in _draws(scores, seed, kept if kept is not None and len(kept) == 1 else None):
        stop = start + len(labels)
        for i, one in enumerate(classes):
            if kept is None:
                positive = (labels[:, :, None] == np.arange(scores.shape[1])).reshape(len(labels), -1)
            else:
                positive = labels == kept[i]
            for metric in metrics:
                found[metric][i, start:stop] = one.drawn(metric, positive)
        start = stop
    return found


def _draws(scores: Floats, seed: int, only: list[int] | None) -> Iterator[Ints]:
    """(draws, n) labels, some draws at a time; if only one class matters, any other is −1."""
    rng = np.random.default_rng(seed)
    n = len(scores)
    step = max(_STEP // n, 1)
    # Single precision is twice as fast; its rounding is at most 6e-8. A probability of 1 exceeds all draws.
    edges = scores[:, only].T if only else np.cumsum(scores, axis=1).T[:-1]
    edges = edges.astype(np.float32)
    for first in range(0, LABEL_DRAWS, step):
        uniform = rng.random((min(step, LABEL_DRAWS - first), n), dtype=np.float32)
        if only:
            yield np.where(uniform < edges[0], only[0], -1)
            continue
        labels = np.zeros(uniform.shape, dtype=np.int64)
        for edge in edges:
            labels += uniform >= edge
        yield labels
