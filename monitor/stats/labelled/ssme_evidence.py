"""The evidence of several classifiers about the class of a row. `SSME` computes probabilities from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import scipy

from monitor.base.records import Floats, Ints
from monitor.stats.labelled.inputs import Bools, mean_of_models

SMALLEST_SCORE = 1e-4
"""The lower bound of scores before a logarithm, so that a score of exactly 0 has a finite weight."""

_RIDGE = 0.3
"""Constant on the diagonal of the models' correlations, which keeps small differences between similar models
from deciding. Chosen, not tuned."""

_STRANGER = 0.15
"""The smallest loading on the common component, as a share of the median loading, for a weight above 0. It
excludes a broken model among good ones. Chosen, not tuned."""


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """The scores of M models on n rows as centred logarithms: for each model, and pooled over the models.

    Parameters
    ----------
    pooled : (n, K) float64
        Weighted mean of the models' centred log-probabilities; 0 if no model answered.
    each : (n, M, K) float64
        Centred log-probabilities of each model; 0 if missing.
    present : (n, M) bool
        Whether a model has answered a row.
    votes : (n, M) int64
        Each model's most probable class; 0 if missing.
    mean : (n, K) float64
        Mean score over the models with a weight above 0.
    """

    pooled: Floats
    each: Floats
    present: Bools
    votes: Ints
    mean: Floats

    @property
    def rows(self) -> int:
        """The number of rows, n."""
        return int(self.pooled.shape[0])

    @property
    def classes(self) -> int:
        """The number of classes, K."""
        return int(self.pooled.shape[1])


@dataclass(frozen=True, slots=True, eq=False)
class Pooling:
    """The weights and scales with which `SSME` pools the models' scores. They do not depend on labels.

    Parameters
    ----------
    weights : (M,) float64
        Weights with the sum 1: see `agreement_weights`.
    scales : (M,) float64
        Root mean square of each model's centred log-probabilities.
    """

    weights: Floats
    scales: Floats

    @classmethod
    def from_scores(cls, scores: Floats) -> Self:
        """Return weights and scales for scores (n, M, K), which are NaN for a missing answer."""
        present = ~np.isnan(scores[:, :, 0])
        each = centred_logs(scores)
        square = (each**2).sum(axis=(0, 2)) / np.maximum(present.sum(axis=0) * scores.shape[2], 1)
        return cls(agreement_weights(each, present), np.maximum(np.sqrt(square), 1e-3))

    def evidence(self, scores: Floats) -> Evidence:
        """Return the evidence of rows with scores (n, M, K), with the models in the order of the pooling."""
        present = ~np.isnan(scores[:, :, 0])
        each = centred_logs(scores)
        weight = self.weights * present
        total = weight.sum(axis=1)
        voiced = total > 0.0
        weight[~voiced] = present[~voiced]  # only models of weight 0 answered: use their plain mean
        total = np.maximum(weight.sum(axis=1), 1e-300)
        pooled = np.einsum("nm,nmk->nk", weight, each) / total[:, None]
        votes = np.where(present[:, :, None], scores, 0.0).argmax(axis=2)
        heard = np.where((weight > 0.0)[:, :, None], scores, np.nan)
        return Evidence(pooled, each, present, votes, mean_of_models(heard))


def centred_logs(scores: Floats) -> Floats:
    """Return the logarithms of (n, M, K) scores minus their mean over the classes; 0 for a missing answer.

    Examples
    --------
    >>> centred_logs(np.array([[[0.5, 0.5], [1.0, 0.0]]])).round(2).tolist()
    [[[0.0, 0.0], [4.61, -4.61]]]
    """
    logs = np.log(np.maximum(np.where(np.isnan(scores), 1.0, scores), SMALLEST_SCORE))
    logs -= logs.mean(axis=2, keepdims=True)
    return logs


def agreement_weights(each: Floats, present: Bools) -> Floats:
    """Return the (M,) weights of the models for pooling, from their agreement alone.

    The weights are at least 0, with the sum 1, and equal for one or two models. R is the correlation matrix
    of the models' normal scores, which are computed from the ranks of the centred log-probabilities. Models
    with a small loading on R's first principal component have the weight 0. For the others, w₀ = (R +
    0.3·I)⁻¹1 divides the weight of a model among its copies, and λ = R·w₀ is each model's agreement with the
    rest. The weights are (R + 0.3·I)⁻¹λ, clipped at 0. They give the best linear estimate of the common
    component.

    The weights mislead if most models are wrong in the same way: they then exclude the good models.

    Parameters
    ----------
    each : (n, M, K) float64
        The result of `centred_logs`.
    present : (n, M) bool

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.normal(size=(2000, 1))
    >>> models = truth + rng.normal(size=(2000, 4))
    >>> models[:, 1] = models[:, 0]
    >>> each = np.stack([models, -models], axis=2)
    >>> agreement_weights(each, np.ones((2000, 4), dtype=bool)).round(1).tolist()
    [0.2, 0.2, 0.3, 0.3]
    """
    n, models, _ = each.shape
    answered = present.any(axis=0)
    equal = answered / answered.sum() if answered.any() else np.full(models, 1.0 / models)
    if models <= 2 or n < 2:
        return equal
    normal = np.stack([_normal_scores(each[:, m], present[:, m]) for m in range(models)])
    spread = np.linalg.norm(normal, axis=1)
    live = spread > 1e-9
    if live.sum() <= 2:
        return live / live.sum() if live.any() else equal
    weights = np.zeros(models)
    weights[live] = _voices(normal[live] / spread[live, None])
    return weights / weights.sum() if weights.any() else equal


def _voices(unit: Floats) -> Floats:
    """Return weights (M,) from unit vectors of normal scores (M, values)."""
    correlation = unit @ unit.T
    first = np.linalg.eigh(correlation)[1][:, -1]
    first = first * np.sign(np.median(first))
    heard = first >= _STRANGER * np.median(first)
    among = correlation[np.ix_(heard, heard)]
    damped = among + _RIDGE * np.eye(len(among))
    even = np.maximum(np.linalg.solve(damped, np.ones(len(among))), 0.0)
    voices = np.zeros(len(unit))
    voices[heard] = np.maximum(np.linalg.solve(damped, np.maximum(among @ even, 0.0)), 0.0)
    return voices


def _normal_scores(logs: Floats, present: Bools) -> Floats:
    """Return the normal scores of the ranks of (n, K) values, flattened; 0 if missing."""
    scores = np.zeros(logs.shape)
    values = logs[present]
    if values.size and np.ptp(values) > 0.0:
        ranks = (scipy.stats.rankdata(values.ravel()) - 0.5) / values.size
        scores[present] = scipy.special.ndtri(ranks).reshape(values.shape)
    return scores.ravel()
