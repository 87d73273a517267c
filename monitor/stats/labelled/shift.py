"""Weights for labels that are no random sample: how much more often a row occurs than it was labelled."""

from __future__ import annotations

import numpy as np
import scipy
from numpy.typing import ArrayLike

from monitor.base.records import Floats
from monitor.stats.labelled.inputs import UNLABELLED, mean_of_models

FEWEST_EFFECTIVE = 10.0
"""Effective labels below which estimated weights are no ground for an estimate: a few rows carry it all."""

LARGEST_IMBALANCE = 0.5
"""Standard deviations that the weighted labels' scores may lie from those of all rows: further, and a part of
the rows has no label like it, whatever that weighs."""

_LABELS_PER_COLUMN = 3  # fewer, and the regression would find a shift in the models' noise
_RIDGE = 1.0  # a normal prior of variance 1 on the slopes of standardised columns


def chance_weights(scores: ArrayLike, labels: ArrayLike) -> Floats:
    """What each labelled row counts for: 1 / its chance of being labelled, estimated from the scores.

    A labelled row stands for itself and for the unlabelled rows with scores like its own: 1 + N/n times their
    density ratio by logistic regression, for n labelled and N other rows. Its columns are the ranks of each
    model's scores, their squares, and whether the model answered; of the models' mean score alone where
    there are more than a third as many columns as labels.

    It is right where labels are missing at random given the scores: whoever chose saw the scores, or nothing
    that tells more of the answer being right than they do. Labels that came because an answer was wrong, as
    complaints do, leave the estimate as wrong as it was. Such weights, taken as known, leave intervals
    too wide rather than too narrow (Hirano, Imbens, Ridder): an estimated chance also evens out what by
    luck is unlike among the labelled rows.

    Parameters
    ----------
    scores : (n, M, K) array of float
        Class probabilities; NaN for all classes where a model has no answer.
    labels : (n,) array of int
        −1 where not known.

    Returns
    -------
    (n,) float64
        Positive; 1 on rows without a label, and on all where there is none with or none without.

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
    """How far the weighted labelled rows lie from all rows, in standard deviations of these.

    Parameters
    ----------
    scores : (n, M, K) array of float
    labels : (n,) array of int
        −1 where not known; one at least is.
    weight : (n,) array of float

    Returns
    -------
    float
        The largest over the classes, of the models' mean score; 0 where all scores are alike.

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
    """(n, c) what the regression sees of scores (n, M, K)."""
    mean, present = mean_of_models(scores), ~np.isnan(scores[:, :, :1])
    whole = np.where(present, scores, mean[:, None])[:, :, 1:].reshape(len(scores), -1)
    found = np.concatenate([_by_rank(whole), present[:, :, 0]], axis=1)
    if found.shape[1] * _LABELS_PER_COLUMN <= labelled:
        return found
    return _by_rank(mean[:, 1:])


def _by_rank(columns: Floats) -> Floats:
    """Ranks from 0 to 1 and their squares: bounded, so that no far score is worth all labels together."""
    rank = scipy.stats.rankdata(columns, axis=0) / len(columns)
    return np.concatenate([rank, rank * rank], axis=1)


def ratio(own: Floats, fresh: Floats) -> Floats:
    """(n,) density of fresh rows over that of own ones, at the own ones, with the mean 1: by regression.

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
