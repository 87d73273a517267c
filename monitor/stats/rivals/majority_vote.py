"""The majority vote of the classifiers, weighted by their accuracies on the labelled rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from monitor.base.records import Floats
from monitor.stats.labelled.base import Fitted
from monitor.stats.labelled.inputs import UNLABELLED, LabelledScores, effective_weights, votes
from monitor.stats.labelled.posterior import PosteriorEstimator

_DRAWS = 100
_TIED = 1e-12  # rounding error of sums of the same weights in another order


class MajorityVote(PosteriorEstimator):
    """Metrics with the majority vote of the models in place of the true class.

    A model votes for its most probable class. The weight of its vote is its accuracy on the labelled rows
    that it answered. A model without labelled answers has the mean weight of the others; without any labels
    all weights are equal (flag "no labels"). The paper does not say whether it uses the weighted mean of the
    votes or the class with the most votes. This class uses the second, which reproduces the errors that the
    paper reports.

    The estimator assumes that the majority is right. Models with similar training make common errors, which
    then count as the truth, and **the accuracy of the models that agree is too high**, with any number of
    labels. The interval includes the sampling of the rows and of the labels behind the weights (Bayesian
    bootstrap), but not that error.

    Lowest coverage of its 95 % intervals on real classifiers (`tests/fidelity/SCOREBOARD.md`): accuracy 13
    %, class_ece 5 %, auroc 0 %, average_precision 0 %.

    References
    ----------
    Shanmugam et al., section 5 and appendix B.2 ("Majority-Vote").

    Examples
    --------
    >>> scores = [[[0.9, 0.1], [0.7, 0.3], [0.4, 0.6]], [[0.2, 0.8], [0.4, 0.6], [0.3, 0.7]]]
    >>> fit = MajorityVote().fit(scores, [-1, 1])
    >>> fit.posterior.round(2).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    >>> [fit.point("accuracy", model) for model in range(3)]
    [1.0, 1.0, 0.5]
    """

    tag = "majority_vote"
    draws: ClassVar[int] = _DRAWS

    def __init__(self, *, seed: int = 0, positive: int | None = None) -> None:
        super().__init__(seed=seed, positive=positive)
        self._weights = np.empty((0, 0))

    def _fit(self, data: LabelledScores) -> Fitted:
        voted = votes(data.scores)
        rows = np.flatnonzero(data.labelled)
        right = (voted[rows] == data.labels[rows, None]).astype(np.float64)
        answered = (voted[rows] != UNLABELLED).astype(np.float64)
        weight = effective_weights(data, rows)
        resampled = self.rng().standard_exponential((_DRAWS, len(rows))) * weight
        every = np.vstack([weight, resampled])
        self._weights = _accuracies(every @ (right * answered), every @ answered)
        flags = () if len(rows) else ("no labels",)
        return Fitted(data.clamp(_elected(data.scores, self._weights[0])), flags=flags)

    def _draw_posteriors(self, rng: np.random.Generator) -> Iterator[Floats]:
        data, _ = self._done()
        for weights in self._weights[1:]:
            yield data.clamp(_elected(data.scores, weights))

    def _predict(self, scores: Floats) -> Floats:
        return _elected(scores, self._weights[0])


def _accuracies(right: Floats, answered: Floats) -> Floats:
    """Return (draws, M) weights of the models.

    A model without labelled answers has the mean weight of the others.
    """
    known = answered > 0
    share: Floats = np.divide(right, answered, out=np.zeros_like(right), where=known)
    count = np.maximum(known.sum(axis=1, keepdims=True), 1)
    mean = np.where(known.any(axis=1, keepdims=True), share.sum(axis=1, keepdims=True) / count, 1.0)
    weights = np.where(known, share, mean)
    # A model that is never right has the weight 0; if no model is ever right, each has the weight 1.
    positive: Floats = np.where(weights.sum(axis=1, keepdims=True) > 0, weights, 1.0)
    return positive


def _elected(scores: Floats, weights: Floats) -> Floats:
    """Return the class with the most votes as (n, K) shares, equal among ties, and without votes."""
    voted = votes(scores)
    counted = np.stack([(voted == k) @ weights for k in range(scores.shape[2])], axis=1)
    most = counted >= counted.max(axis=1, keepdims=True) * (1.0 - _TIED)
    elected: Floats = most / most.sum(axis=1, keepdims=True)
    return elected
