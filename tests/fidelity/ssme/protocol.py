"""The paper's protocol: a pool cut in half, estimates from one half, the truth from the other.

Shanmugam et al., section 5 and the README of the shared data: from the estimation half `labelled` rows
with labels (at least one of each class) and `unlabelled` rows without are drawn; what an estimator says
of each model is compared with the same metric over the other half, and averaged over models.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from monitor.base.records import Floats, Ints
from monitor.stats.labelled.inputs import checked_input
from monitor.stats.labelled.metrics import ModelRows

UNLABELLED_ROWS = 1000


@dataclass(frozen=True)
class Run:
    """One draw from the estimation half.

    Parameters
    ----------
    scores : (n, M, K) float64
    labels : (n,) int64
        −1 where hidden.
    hidden : (n,) int64
        All true classes, for the floor.
    """

    scores: Floats
    labels: Ints
    hidden: Ints


@dataclass(frozen=True)
class Pool:
    """Scores of several models on labelled rows, whose first half is drawn from and second half is the truth.

    Parameters
    ----------
    name : str
    scores : (n, M, K) float64
    labels : (n,) int64
    """

    name: str
    scores: Floats
    labels: Ints

    @property
    def half(self) -> int:
        """Rows of the estimation half."""
        return len(self.labels) // 2

    @cached_property
    def truth(self) -> Floats:
        """(len(METRICS), M) metrics of the evaluation half, label noise taken off calibration errors."""
        return metrics_of(self.scores[self.half :], self.labels[self.half :])

    def run(self, labelled: int, seed: int, unlabelled: int = UNLABELLED_ROWS) -> Run:
        """Draw rows; the first ones are labelled.

        Parameters
        ----------
        labelled : int
            Drawn again until each class that the half holds is among them; 0 is allowed. Where that is
            hopeless (more than `labelled` classes, or 200 draws in vain) the last draw is taken.
        seed : int
            Of the draw, the same for every estimator.
        unlabelled : int
            As many as the half has, if it has fewer.
        """
        rng = np.random.default_rng([seed, labelled])
        classes = len(np.unique(self.labels[: self.half]))
        for _ in range(200):
            rows = rng.choice(self.half, min(labelled + unlabelled, self.half), replace=False)
            if labelled == 0 or len(np.unique(self.labels[rows[:labelled]])) == classes:
                break
        hidden = self.labels[rows]
        labels = np.where(np.arange(len(rows)) < labelled, hidden, -1)
        return Run(self.scores[rows], labels, hidden)


def metrics_of(scores: Floats, labels: Ints) -> Floats:
    """Return (len(METRICS), M) metrics of fully labelled rows."""
    data = checked_input(scores, labels)
    posterior = np.eye(data.classes)[data.labels][None]
    every = np.ones(data.rows, dtype=np.bool_)
    view = ModelRows.from_data(data, np.argsort(data.model_order), every, data.classes - 1)
    return view.values(posterior)[:, :, 0].T
