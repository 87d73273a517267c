"""One class against all others in windows of one size: counts, values and derivatives of its metrics."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from monitor.base.records import Floats, Ints
from monitor.stats.estimate._convolution import fold_many
from monitor.stats.estimate.count_ratio import CountRatio, mirrored, nothing
from monitor.stats.estimate.poisson_binomial import TrimmedPmf, trimmed
from monitor.stats.estimate.ranking import Bools, Ranking
from monitor.stats.estimate.shared_error import of_class

COUNTED = ("accuracy", "precision", "recall", "specificity", "f1")


def whole_accuracy(scores: Floats, predicted: Ints) -> tuple[list[CountRatio], Floats]:
    """Return the distributions of the accuracy of m windows of n rows, and each row's influence (m, n).

    The influence of a row is its confidence minus the mean confidence of the window.

    Parameters
    ----------
    scores : (m, n, K) float64
        n at least 1.
    predicted : (m, n) int64
    """
    confidence = scores[..., 0] if scores.shape[2] == 1 else of_class(scores, predicted)
    n = confidence.shape[1]
    right = counts_among(confidence, np.ones(confidence.shape, dtype=np.bool_))
    counts = [CountRatio(each, nothing(), 1, 0, n, n) for each in right]
    return counts, confidence - confidence.mean(axis=1, keepdims=True)


def counts_among(chance: Floats, selected: Bools) -> list[TrimmedPmf]:
    """Return the distribution of the number of positives among the selected rows of each of m windows.

    Both arrays have the shape (m, n). `chance` has each row's probability of being positive.

    Examples
    --------
    >>> [count] = counts_among(np.array([[0.5, 0.9, 1.0]]), np.array([[True, False, True]]))
    >>> count
    TrimmedPmf(offset=1, mass=array([0.5, 0.5]), n=2)
    """
    p = np.where(selected, chance, 0.0)
    # Windows of about the same variance are computed together, with limits of the variance that do not
    # depend on them: the last bits must not depend on which windows there are.
    scale = np.ceil(np.log(np.maximum((p * (1.0 - p)).sum(axis=1), 1.0)) / _LOG_STEP).astype(np.int64)
    counts: list[TrimmedPmf] = [nothing()] * len(p)
    rows = np.count_nonzero(selected, axis=1).tolist()
    for each in np.unique(scale).tolist():
        places = np.flatnonzero(scale == each)
        least = (each - 1 - _MARGIN) * _LOG_STEP if each else -np.inf
        most = (each + _MARGIN) * _LOG_STEP
        start, mass = fold_many(p[places], (float(np.exp(least)), float(np.exp(most))))
        for i, at, row in zip(places.tolist(), start.tolist(), mass, strict=True):
            counts[i] = trimmed(at, row, rows[i])
    return counts


_LOG_STEP = 0.25  # variances within a quarter are computed together
_MARGIN = 1e-9


class OneClass:
    """One class against all others: probabilities, predictions and scores of the rows of a window.

    The arrays may have a first axis for m windows of one size.

    Parameters
    ----------
    chance : (…, n) float64
        Calibrated probability that each row is of the class, n at least 1.
    acted : (…, n) bool
        Whether the class was predicted.
    score : (…, n) float64
        The scores that rank the rows.
    """

    def __init__(self, chance: Floats, acted: Bools, score: Floats) -> None:
        self.chance, self.acted, self._score = chance, acted, score
        self.predicted = np.count_nonzero(acted, axis=-1)

    def window(self, i: int) -> OneClass:
        """Return the values of window number `i` alone, with arrays (n,)."""
        return OneClass(self.chance[i], self.acted[i], self._score[i])

    @cached_property
    def ranking(self) -> Ranking:
        """The rows ranked by their scores."""
        return Ranking.from_scores(self._score)

    @cached_property
    def positives(self) -> Floats:
        """The (…,) expected numbers of positives."""
        sums: Floats = self.chance.sum(axis=-1)
        return sums

    @cached_property
    def hits(self) -> Floats:
        """The (…,) expected numbers of true positives."""
        sums: Floats = (self.chance * self.acted).sum(axis=-1)
        return sums

    @cached_property
    def _hit_counts(self) -> list[TrimmedPmf]:
        """The numbers of true positives of m windows."""
        return counts_among(self.chance, self.acted)

    @cached_property
    def _miss_counts(self) -> list[TrimmedPmf]:
        """The numbers of false negatives of m windows."""
        return counts_among(self.chance, ~self.acted)

    def counts(self, metric: str) -> list[CountRatio]:
        """Return the exact distribution of precision, recall, specificity or F1 in each of m windows."""
        n, predicted = self.chance.shape[-1], self.predicted.tolist()
        if metric == "precision":
            return [
                CountRatio(f, nothing(), 1, 0, k, n) for f, k in zip(self._hit_counts, predicted, strict=True)
            ]
        both = zip(self._hit_counts, self._miss_counts, strict=True)
        if metric == "recall":
            return [CountRatio(hits, misses, 1, 1, 0, n) for hits, misses in both]
        if metric == "specificity":
            return [CountRatio(mirrored(misses), mirrored(hits), 1, 1, 0, n) for hits, misses in both]
        counted = zip(both, predicted, strict=True)
        return [CountRatio(hits, misses, 2, 1, k, n) for (hits, misses), k in counted]

    def expected(self, metric: str) -> tuple[Floats, Floats]:
        """Return the metric at the expected counts (…), and each row's influence on it (…, n).

        The influence of a row is n times the first-order change of the metric that an additional copy of the
        row would cause. Metric and influence are 0 if the expected denominator is 0.
        """
        if metric == "auroc":
            return self.ranking.auroc(self.chance)
        if metric == "average_precision":
            return self.ranking.average_precision(self.chance)
        value, total = self.expected_ratio(metric)
        above, below = self._shares(metric)
        influence = (above - value[..., None] * below) * self._per_total(total, below.shape[-1])
        return value, influence

    def slope(self, metric: str) -> Floats:
        """Return the (…, n) derivative of the metric with respect to each row's probability.

        The derivative is 0 if the metric is undefined.
        """
        if metric == "auroc":
            return self.ranking.auroc_slope(self.chance)
        if metric == "average_precision":
            return self.ranking.average_precision_slope(self.chance)
        value, total = self.expected_ratio(metric)
        return self._rise(metric, value) * self._per_total(total)

    def _rise(self, metric: str, value: Floats) -> Floats:
        """Return the (…, n) `slope` times the expected denominator."""
        a, v = self.acted, value[..., None]
        if metric == "precision":
            return a.astype(np.float64)
        if metric == "recall":
            return a - v
        return v - ~a if metric == "specificity" else 2.0 * a - v

    def expected_ratio(self, metric: str) -> tuple[Floats, Floats]:
        """Return the metric at the expected counts (…), and its expected denominator (…)."""
        above, below = self._totals(metric)
        value = np.minimum(above / np.where(below > 0.0, below, 1.0), 1.0)
        return np.where(below > 0.0, value, 0.0), below

    @staticmethod
    def _per_total(total: Floats, times: float = 1.0) -> Floats:
        """Return `times` divided by the expected denominator, (…, 1); 0 if the denominator is 0."""
        per: Floats = np.where(total > 0.0, times / np.where(total > 0.0, total, 1.0), 0.0)[..., None]
        return per

    def total(self, metric: str) -> Floats:
        """Return the (…) weight of each window for pooling.

        The weight is the expected denominator of a ratio, or the number of rows for accuracy, AUROC and
        average precision.
        """
        if metric in ("accuracy", "auroc", "average_precision"):
            return np.full(self.chance.shape[:-1], float(self.chance.shape[-1]))
        return self._totals(metric)[1]

    def _totals(self, metric: str) -> tuple[Floats, Floats]:
        """Return the (…) expected numerators and denominators."""
        n, predicted = self.chance.shape[-1], self.predicted.astype(np.float64)
        return {
            "precision": (self.hits, predicted),
            "recall": (self.hits, self.positives),
            "specificity": (n - predicted - (self.positives - self.hits), n - self.positives),
            "f1": (2.0 * self.hits, self.positives + predicted),
        }[metric]

    def _shares(self, metric: str) -> tuple[Floats, Floats]:
        """Return each row's share of the expected numerator and denominator."""
        p, a = self.chance, self.acted
        if metric == "precision":
            return p * a, a.astype(np.float64)
        if metric == "recall":
            return p * a, p
        return ((1.0 - p) * ~a, 1.0 - p) if metric == "specificity" else (2.0 * p * a, p + a)

    def values_in_draws(self, metric: str, positive: Bools) -> Floats:
        """Return the (draws,) values of a metric for random labels of one window.

        `positive` has the shape (draws, n), with the rows in the order of `ranking`. A value is NaN if the
        metric is undefined for a draw.
        """
        if metric == "auroc":
            return self.ranking.drawn_auroc(positive)
        if metric == "average_precision":
            return self.ranking.drawn_average_precision(positive)
        n, predicted = positive.shape[1], float(self.predicted)
        acted = self.acted[self.ranking.order]
        count = np.count_nonzero(positive, axis=1).astype(np.float64)
        hits = np.count_nonzero(positive[:, acted], axis=1).astype(np.float64)
        above, below = {
            "precision": (hits, np.full(len(hits), predicted)),
            "recall": (hits, count),
            "specificity": (n - count - predicted + hits, n - count),
            "f1": (2.0 * hits, count + predicted),
        }[metric]
        with np.errstate(invalid="ignore"):
            values: Floats = above / below
        return values
