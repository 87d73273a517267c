"""The accuracy by PPI++.

Wilson's interval for an effective number of labels makes it suitable for few labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from monitor.base.records import Floats, Ints
from monitor.base.results import Estimate, Reason, Result, Unknown
from monitor.stats.estimate.proportion import wilson_interval
from monitor.stats.labelled.inputs import LabelledScores
from monitor.stats.labelled.ppi import prediction_powered


def powered_share(
    right: Floats,
    expected: Floats,
    population: Floats,
    weights: Floats | None,
    lam: float | None,
    level: float,
) -> Estimate:
    """Return the share of right answers by PPI++, 0 to 1, with an interval.

    PPI++ combines labels with the probabilities of an annotator, a model of the labels that covers all rows.
    The interval is Wilson's interval for the effective number of labels, which is the number that would give
    the same variance without an annotator. For the variance, two rows are added, one right and one wrong,
    both with the annotator's mean probability (as in `monitor.stats.estimate.hajek`). Without these rows, the
    effective number would be infinite if all answers are right or all are wrong.

    Parameters
    ----------
    right : (n,) float64
        1 if the labelled row is right, else 0; n ≥ 1.
    expected : (n,) float64
        The annotator's probability that the labelled row is right.
    population : (N,) float64
        The annotator's probabilities for the rows that represent the population.
    weights : (n,) float64 or None
        Weights of the labelled rows.
    lam : float or None
        Weight of the annotator, 0 to 1; None to tune it for the least variance.
    level : float
        The level of the interval.

    Examples
    --------
    >>> right = np.r_[np.ones(45), np.zeros(5)]
    >>> share = powered_share(right, np.full(50, 0.9), np.full(500, 0.9), None, None, 0.95)
    >>> round(share.value, 6), round(share.lower, 4), round(share.upper, 4), share.n
    (0.9, 0.7864, 0.9565, 50)
    """
    powered = prediction_powered(right, expected, population, lam=lam, weights=weights)
    value = float(np.clip(powered.value[0], 0.0, 1.0))
    w = np.ones(len(right)) if weights is None else weights
    rows = effective_trials(right, expected, population, w, float(powered.lam[0]))
    lower, upper = wilson_interval(value, rows, level)
    return Estimate(value, lower, upper, level, len(right))


def effective_trials(right: Floats, expected: Floats, population: Floats, w: Floats, lam: float) -> float:
    """Return the number of equally weighted labels that would give the same variance without an annotator.

    The number is above 0. It is larger than the number of labels if the annotator is good. `powered_share`
    explains the two rows that the computation adds.

    Parameters
    ----------
    right : (n,) float64
        1 if the labelled row is right, else 0.
    expected : (n,) float64
        The annotator's probability that the labelled row is right.
    population : (N,) float64
        The annotator's probabilities for the rows that represent the population.
    w : (n,) float64
        Weights of the labelled rows.
    lam : float
        Weight of the annotator, 0 to 1.
    """
    middle, heavy = float(w @ expected / w.sum()), float(w @ w / w.sum())
    more_w = np.r_[w, heavy, heavy]
    more_right, more_expected = np.r_[right, 1.0, 0.0], np.r_[expected, middle, middle]
    powered = prediction_powered(more_right, more_expected, population, lam=lam, weights=more_w)
    share = float(more_w @ more_right / more_w.sum())
    alone = share * (1 - share) * float(more_w @ more_w) / float(more_w.sum()) ** 2
    kish = float(w.sum() ** 2 / (w @ w))
    return kish * alone / float(powered.covariance[0, 0])


def accuracy_of(
    data: LabelledScores, rows: Ints, model: int, chance: Floats, lam: float | None, level: float
) -> Result:
    """Return the accuracy of a model on some rows by PPI++, from their labels and an annotator.

    Without weights the unlabelled rows represent the population, as in the paper. With weights all rows
    represent it, because the unlabelled rows are not a random sample.

    Parameters
    ----------
    data : LabelledScores
    rows : (r,) int64
        Rows that the model has answered.
    model : int
        The index of the model.
    chance : (n, K) float64
        The annotator's class probabilities for all rows.
    lam : float or None
        Weight of the annotator, 0 to 1; None to tune it for the least variance.
    level : float
        The level of the interval.
    """
    if not (data.labels[rows] >= 0).any():
        return Unknown(Reason.NO_LABELS)
    parts = _Parts.from_rows(data, rows, model, chance)
    return powered_share(parts.right, parts.expected, parts.population, parts.weights, lam, level)


def accuracy_covariance(data: LabelledScores, chances: Sequence[Floats], lam: float | None) -> Floats:
    """Return the (M, M) covariance of the errors of the M models' accuracies by `accuracy_of`.

    Rows and columns of a model without a labelled row are NaN. Each row contributes to the error of each
    model, and the covariance of two models is the sum over rows of the products of their contributions. A
    labelled row of weight w contributes w (δ − mean δ) / Σw with δ = right − λ·expected, where λ is the
    weight of the annotator. A row of the population contributes λ (expected − mean) / N.

    As in `effective_trials`, two rows are added, in which each model is right with the probability one half,
    independently of the others. Without these rows, the difference of two models would seem to have no error
    if one of them is right on all labelled rows.

    Parameters
    ----------
    data : LabelledScores
    chances : sequence of (n, K) float64
        For each model, the annotator's class probabilities for all rows.
    lam : float or None
        λ, the weight of the annotator, 0 to 1; None to tune it for the least variance.

    References
    ----------
    A. Agresti, Y. Min, *Simple improved confidence intervals for comparing matched proportions*, Statistics
    in Medicine 24 (2005), for the two rows: half a row in each cell of the table of two models.
    """
    of_labels, of_rows = np.zeros((data.rows, data.models)), np.zeros((data.rows, data.models))
    share, lean = np.full(data.models, np.nan), np.zeros(data.models)
    for model, chance in enumerate(chances):
        rows = np.flatnonzero(data.present[:, model])
        if not (data.labels[rows] >= 0).any():
            continue
        parts = _Parts.from_rows(data, rows, model, chance)
        step, fresh, share[model], lean[model] = parts.errors(lam)
        of_labels[parts.labelled_rows, model] = step
        of_rows[parts.population_rows, model] = fresh
    coins = 2 * np.outer(share, share) * (0.25 * np.eye(data.models) + np.outer(lean, lean))
    covariance: Floats = of_labels.T @ of_labels + of_rows.T @ of_rows + coins
    return covariance


@dataclass(frozen=True, slots=True, eq=False)
class _Parts:
    """The input of PPI for a model's accuracy: l labelled rows and p rows of the population."""

    right: Floats
    expected: Floats
    population: Floats
    weights: Floats | None
    labelled_rows: Ints
    population_rows: Ints

    @classmethod
    def from_rows(cls, data: LabelledScores, rows: Ints, model: int, chance: Floats) -> _Parts:
        """Split the rows that a model has answered into labelled rows and rows of the population."""
        known = data.labels[rows] >= 0
        acted = data.predicted[rows, model]
        expected = chance[rows, acted]
        right = (acted == data.labels[rows])[known].astype(np.float64)
        weights = None if data.weights is None else data.weights[rows][known]
        stand = ~known if weights is None else np.ones_like(known)
        return cls(right, expected[known], expected[stand], weights, rows[known], rows[stand])

    def errors(self, lam: float | None) -> tuple[Floats, Floats, float, float]:
        """Return the (l,) and (p,) contributions of the rows to the error, and two numbers of the added rows.

        The numbers are the weight of an added row, and the distance of its δ from the mean.
        """
        powered = prediction_powered(
            self.right, self.expected, self.population, lam=lam, weights=self.weights
        )
        trust = float(powered.lam[0])
        w = np.ones(len(self.right)) if self.weights is None else self.weights
        heavy = float(w @ w / w.sum())
        total = float(w.sum()) + 2 * heavy
        delta, coin = self.right - trust * self.expected, 0.5 - trust * float(w @ self.expected / w.sum())
        center = (float(w @ delta) + 2 * heavy * coin) / total
        many = max(len(self.population), 1)
        fresh = trust * (self.population - self.population.sum() / many) / many
        return w * (delta - center) / total, fresh, heavy / total, coin - center
