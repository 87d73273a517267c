"""Weights for labelled rows that are not a random sample of all rows."""

from __future__ import annotations

import numpy as np
import scipy
from numpy.typing import ArrayLike

from monitor.base.records import Floats
from monitor.stats.labelled.inputs import UNLABELLED, mean_of_models

FEWEST_EFFECTIVE = 10.0
"""The smallest effective number of labels for weighted estimates. With fewer, a few rows would have all the
weight."""

LARGEST_IMBALANCE = 0.5
"""The largest `imbalance` for weighted estimates. With a larger imbalance, some rows have no similar labelled
row."""

_LABELS_PER_COLUMN = 3  # with fewer labels the regression would fit the noise of the models
_RIDGE = 1.0  # a normal prior of variance 1 on the slopes of standardised columns


def chance_weights(scores: ArrayLike, labels: ArrayLike) -> Floats:
    """Return (n,) weights of the rows: inverse probabilities of being labelled, estimated from the scores.

    A labelled row represents itself and the unlabelled rows with similar scores. So its weight is 1 + N/n
    times a density ratio from a logistic regression, for n labelled and N other rows. The regressors are the
    ranks of each model's scores, their squares, and whether the model answered. If there are more regressors
    than a third of the labels, they are the ranks and squares of the models' mean score instead. The weights
    are 1 on rows without a label, and on all rows if none or all have labels.

    The weights are right if labels are missing at random given the scores: among rows with the same scores,
    the choice does not depend on whether the answer is right. If rows are labelled because an answer was
    wrong (complaints), weighted estimates are still biased. Intervals that treat the weights as known are
    more likely too wide than too narrow (Hirano, Imbens, Ridder), because estimated probabilities also
    balance random differences between the labelled rows and the others.

    Parameters
    ----------
    scores : (n, M, K) array of float
        Class probabilities; NaN for all classes if a model has no answer.
    labels : (n,) array of int
        −1 if unknown.

    References
    ----------
    Boyeau et al., *AutoEval Done Right*, appendix B. K. Hirano, G. W. Imbens, G. Ridder, *Efficient
    estimation of average treatment effects using the estimated propensity score*, Econometrica 71 (2003).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> sure = rng.beta(4, 2, 4000)
    >>> labelled = rng.random(4000) < 0.3 * sure
    >>> weight = chance_weights(np.stack([1 - sure, sure], axis=1)[:, None], np.where(labelled, 1, -1))
    >>> f"{sure.mean():.2f} of all, {sure[labelled].mean():.2f} of the labelled"
    '0.66 of all, 0.71 of the labelled'
    >>> bool(abs(np.average(sure[labelled], weights=weight[labelled]) - sure.mean()) < 0.01)
    True
    """
    table, known = np.asarray(scores, dtype=np.float64), np.asarray(labels) != UNLABELLED
    weight, own = np.ones(len(known)), np.flatnonzero(known)
    if 0 < len(own) < len(known):
        columns = _columns(table, len(own))
        rest = columns[~known]
        weight[own] += len(rest) / len(own) * ratio(columns[own], rest)
    return weight


def imbalance(scores: ArrayLike, labels: ArrayLike, weight: ArrayLike) -> float:
    """Return the distance between the mean scores of the weighted labelled rows and of all rows.

    The score of a row is the mean over the models. The result is the largest distance over the classes, in
    standard deviations over all rows; it is 0 if all scores are equal.

    Parameters
    ----------
    scores : (n, M, K) array of float
    labels : (n,) array of int
        −1 if unknown; at least one must be known.
    weight : (n,) array of float

    Examples
    --------
    >>> score = np.linspace(0.0, 1.0, 101)
    >>> both = np.stack([1 - score, score], axis=1)[:, None]
    >>> round(imbalance(both, np.where(score > 0.9, 1, -1), np.ones(101)), 2)
    1.56
    """
    mean, known = mean_of_models(np.asarray(scores, dtype=np.float64)), np.asarray(labels) != UNLABELLED
    apart = np.abs(np.average(mean[known], axis=0, weights=np.asarray(weight)[known]) - mean.mean(axis=0))
    spread = mean.std(axis=0)
    return float(np.divide(apart, spread, out=np.zeros_like(apart), where=spread > 0).max())


def _columns(scores: Floats, labelled: int) -> Floats:
    """Return the (n, c) columns of the regression, from scores (n, M, K)."""
    mean, present = mean_of_models(scores), ~np.isnan(scores[:, :, :1])
    whole = np.where(present, scores, mean[:, None])[:, :, 1:].reshape(len(scores), -1)
    columns = np.concatenate([_by_rank(whole), present[:, :, 0]], axis=1)
    if columns.shape[1] * _LABELS_PER_COLUMN <= labelled:
        return columns
    return _by_rank(mean[:, 1:])


def _by_rank(columns: Floats) -> Floats:
    """Return ranks from 0 to 1 and their squares. They are bounded, so no extreme score dominates."""
    rank = scipy.stats.rankdata(columns, axis=0) / len(columns)
    return np.concatenate([rank, rank * rank], axis=1)


def ratio(own: Floats, fresh: Floats) -> Floats:
    """Return the ratio of two densities, of the `fresh` rows over the `own` rows, at each of the n own rows.

    The ratio is estimated by a logistic regression, and scaled to the mean 1.

    References
    ----------
    M. Sugiyama, T. Suzuki, T. Kanamori, *Density Ratio Estimation in Machine Learning* (2012), chapter 4.
    """
    both = np.concatenate([own, fresh])
    center, scale = both.mean(axis=0), both.std(axis=0)
    x = (both - center) / np.where(scale > 0, scale, 1.0)
    x = np.concatenate([np.ones((len(x), 1)), x], axis=1)
    unlabelled = np.arange(len(both)) >= len(own)

    def loss(beta: Floats) -> tuple[float, Floats]:
        line = x @ beta
        slope = np.r_[0.0, beta[1:]] * _RIDGE
        value = np.logaddexp(0.0, line).sum() - line[unlabelled].sum() + 0.5 * float(slope @ beta)
        return float(value), x.T @ (scipy.special.expit(line) - unlabelled) + slope

    beta = scipy.optimize.minimize(loss, np.zeros(x.shape[1]), jac=True, method="L-BFGS-B").x
    line = x[: len(own)] @ beta
    weight = np.exp(line - line.max())
    normalised: Floats = weight / weight.mean()
    return normalised
