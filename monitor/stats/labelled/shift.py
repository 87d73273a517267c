"""Weights for labels that are no random sample."""

from __future__ import annotations

import numpy as np
import scipy
from numpy.typing import ArrayLike

from monitor.base.records import Floats
from monitor.stats.labelled.inputs import UNLABELLED, mean_of_models

FEWEST_EFFECTIVE = 10.0
"""With fewer effective labels there is no estimate by weights: a few rows would have all the weight."""

LARGEST_IMBALANCE = 0.5
"""Largest distance of the weighted labels' scores from all rows', in standard deviations: beyond it, a part
of the rows has no similar label."""

_LABELS_PER_COLUMN = 3  # fewer, and the regression would find a shift in the models' noise
_RIDGE = 1.0  # a normal prior of variance 1 on the slopes of standardised columns


def chance_weights(scores: ArrayLike, labels: ArrayLike) -> Floats:
    """(n,) weights of labelled rows: 1 / their probability of being labelled, estimated from the scores.

    A labelled row represents itself and the unlabelled rows with similar scores: 1 + N/n times their density
    ratio by logistic regression, for n labelled and N other rows. The columns are the ranks of each model's
    scores, their squares, and whether the model answered; only of the models' mean score if there are more
    than a third as many columns as labels. The weights are 1 on rows without a label, and on all rows if none
    or all have labels.

    It is right if labels are missing at random given the scores: the choice depended on the scores, or on
    nothing that tells more about the answer. If labels came because an answer was wrong (complaints), the
    estimate stays wrong. With such weights, taken as known, intervals are too wide rather than too narrow
    (Hirano, Imbens, Ridder): an estimated probability also evens out random differences of the labelled rows.

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
    """Distance of the weighted labelled rows from all rows, in standard deviations of all rows.

    It is the largest over the classes, for the models' mean score; 0 if all scores are equal.

    Parameters
    ----------
    scores : (n, M, K) array of float
    labels : (n,) array of int
        −1 if unknown; at least one is known.
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
    """(n, c) columns of the regression, from scores (n, M, K)."""
    mean, present = mean_of_models(scores), ~np.isnan(scores[:, :, :1])
    whole = np.where(present, scores, mean[:, None])[:, :, 1:].reshape(len(scores), -1)
    found = np.concatenate([_by_rank(whole), present[:, :, 0]], axis=1)
    if found.shape[1] * _LABELS_PER_COLUMN <= labelled:
        return found
    return _by_rank(mean[:, 1:])


def _by_rank(columns: Floats) -> Floats:
    """Ranks from 0 to 1 and their squares: bounded, so no extreme score dominates the labels."""
    rank = scipy.stats.rankdata(columns, axis=0) / len(columns)
    return np.concatenate([rank, rank * rank], axis=1)


def ratio(own: Floats, fresh: Floats) -> Floats:
    """(n,) density of `fresh` rows over `own` ones, at the own ones, with the mean 1, by regression.

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
    found: Floats = weight / weight.mean()
    return found
