"""Weights for labels that are no random sample: how much more often a row occurs than it was labelled."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize
from scipy.special import expit, logit

from monitor.records import Floats

_EDGE = 1e-6  # scores of 0 and 1 have no logit
_RIDGE = 1.0  # a normal prior of variance 1 on the slopes of standardised columns


def shift_weights(scores: ArrayLike, scores_unlabelled: ArrayLike) -> Floats:
    """Density ratio dP/dQ on the labelled rows, estimated from scores by logistic regression.

    The regression tells unlabelled rows (P) from labelled ones (Q) by the logits of the scores and their
    squares; its odds are the ratio, up to a factor. It is right where whatever decided on labelling is seen
    in the scores and is about that smooth; a shift that the scores do not show stays.

    Parameters
    ----------
    scores : (n,) or (n, M) array of float
        Probabilities on the labelled rows, a column a model.
    scores_unlabelled : (N,) or (N, M) array of float
        The same on rows of the population of interest.

    Returns
    -------
    (n,) float64
        Positive, with the mean 1.

    Raises
    ------
    ValueError
        One is empty, or the columns differ.

    References
    ----------
    Boyeau et al., *AutoEval Done Right*, appendix B, for the use; M. Sugiyama, T. Suzuki, T. Kanamori,
    *Density Ratio Estimation in Machine Learning* (2012), chapter 4, for the estimate.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> weight = shift_weights(rng.beta(4, 2, 400), rng.beta(2, 4, 4000))
    >>> weight.shape, round(float(weight.mean()), 6)
    ((400,), 1.0)
    """
    own, fresh = _features(scores), _features(scores_unlabelled)
    if not len(own) or not len(fresh) or own.shape[1] != fresh.shape[1]:
        raise ValueError(
            "scores and scores_unlabelled must each have at least one row, and as many columns as each other"
        )
    both = np.concatenate([own, fresh])
    center, scale = both.mean(axis=0), both.std(axis=0)
    x = (both - center) / np.where(scale > 0, scale, 1.0)
    x = np.concatenate([np.ones((len(x), 1)), x], axis=1)
    unlabelled = np.arange(len(both)) >= len(own)

    def loss(beta: Floats) -> tuple[float, Floats]:
        line = x @ beta
        slope = np.r_[0.0, beta[1:]] * _RIDGE
        value = np.logaddexp(0.0, line).sum() - line[unlabelled].sum() + 0.5 * float(slope @ beta)
        return float(value), x.T @ (expit(line) - unlabelled) + slope

    beta = minimize(loss, np.zeros(x.shape[1]), jac=True, method="L-BFGS-B").x
    line = x[: len(own)] @ beta
    weight = np.exp(line - line.max())
    found: Floats = weight / weight.mean()
    return found


def _features(scores: ArrayLike) -> Floats:
    table = np.asarray(scores, dtype=np.float64)
    columns = table[:, None] if table.ndim == 1 else table
    line: Floats = logit(np.clip(columns, _EDGE, 1 - _EDGE))
    return np.concatenate([line, line * line], axis=1)
