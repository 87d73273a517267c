"""One class against all others: the counts of its metrics, and each row's share of them."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from monitor.base.records import Floats, Ints
from monitor.stats.estimate.count_ratio import CountRatio, mirrored, nothing
from monitor.stats.estimate.poisson_binomial import TrimmedPmf, trimmed_pmf_many
from monitor.stats.estimate.ranking import Bools, Ranking

COUNTED = ("accuracy", "precision", "recall", "specificity", "f1")


def _count(chance: Floats) -> TrimmedPmf:
    return trimmed_pmf_many(chance[None])[0] if len(chance) else nothing()


def whole_accuracy(scores: Floats, predicted: Ints) -> tuple[CountRatio, Floats]:
    """The accuracy over all classes, n at least 1, and each row's share of it."""
    n, width = scores.shape
    confidence = scores[:, 0] if width == 1 else scores[np.arange(n), predicted]
    return CountRatio(_count(confidence), nothing(), 1, 0, n, n), confidence - confidence.mean()


class OneClass:
    """One class of a window.

    Parameters
    ----------
    chance : (n,) float64
        Calibrated probabilities of the class, n at least 1.
    acted : (n,) bool
        Whether the class was predicted.
    score : (n,) float64
        The scores that rank the rows.
    """

    def __init__(self, chance: Floats, acted: Bools, score: Floats) -> None:
        self.chance, self.acted, self._score = chance, acted, score
        self.predicted = int(np.count_nonzero(acted))

    @cached_property
    def ranking(self) -> Ranking:
        return Ranking.of(self._score)

    @cached_property
    def _found(self) -> TrimmedPmf:
        """True positives."""
        return _count(self.chance[self.acted])

    @cached_property
    def _missed(self) -> TrimmedPmf:
        """False negatives."""
        return _count(self.chance[~self.acted])

    def counts(self, metric: str) -> CountRatio:
        """The exact distribution of precision, recall, specificity or F1."""
        n = len(self.chance)
        if metric == "precision":
            return CountRatio(self._found, nothing(), 1, 0, self.predicted, n)
        if metric == "recall":
            return CountRatio(self._found, self._missed, 1, 1, 0, n)
        if metric == "specificity":
            return CountRatio(mirrored(self._missed), mirrored(self._found), 1, 1, 0, n)
        return CountRatio(self._found, self._missed, 2, 1, self.predicted, n)

    def expected(self, metric: str) -> tuple[float, Floats]:
        """The value from the expected counts, and its change, times n, if a row counted once more.

        Both are 0 if the expected denominator is 0.
        """
        if metric == "auroc":
            return self.ranking.auroc(self.chance)
        if metric == "average_precision":
            return self.ranking.average_precision(self.chance)
        above, below = self._shares(metric)
        total, n = float(below.sum()), len(below)
        if total <= 0.0:
            return 0.0, np.zeros(n)
        value = min(float(above.sum()) / total, 1.0)
        return value, (above - value * below) * (n / total)

    def slope(self, metric: str) -> Floats:
        """(n,) derivative of the value by each row's probability; 0 if the metric is undefined."""
        if metric == "auroc":
            return self.ranking.auroc_slope(self.chance)
        if metric == "average_precision":
            return self.ranking.average_precision_slope(self.chance)
        total = self.total(metric)
        if total <= 0.0:
            return np.zeros(len(self.chance))
        a = self.acted.astype(np.float64)
        above, below = {
            "precision": (a, 0.0),
            "recall": (a, 1.0),
            "specificity": (a - 1.0, -1.0),
            "f1": (2.0 * a, 1.0),
        }[metric]
        slope: Floats = (above - self.expected(metric)[0] * below) / total
        return slope

    def total(self, metric: str) -> float:
        """The window's weight in pooling: the expected denominator, or for a ranking the rows."""
        if metric in ("accuracy", "auroc", "average_precision"):
            return float(len(self.chance))
        return float(self._shares(metric)[1].sum())

    def _shares(self, metric: str) -> tuple[Floats, Floats]:
        """Each row's share of the expected numerator and denominator."""
        p, a = self.chance, self.acted.astype(np.float64)
        return {
            "precision": (p * a, a),
            "recall": (p * a, p),
            "specificity": ((1.0 - p) * (1.0 - a), 1.0 - p),
            "f1": (2.0 * p * a, p + a),
        }[metric]

    def drawn(self, metric: str, positive: Bools) -> Floats:
        """(draws,) values of drawn labels (draws, n); NaN if a draw leaves the metric undefined."""
        if metric == "auroc":
            return self.ranking.drawn_auroc(positive)
        if metric == "average_precision":
            return self.ranking.drawn_average_precision(positive)
        n = positive.shape[1]
        count = np.count_nonzero(positive, axis=1).astype(np.float64)
        hits = np.count_nonzero(positive[:, self.acted], axis=1).astype(np.float64)
        above, below = {
            "precision": (hits, np.full(len(hits), float(self.predicted))),
            "recall": (hits, count),
            "specificity": (n - count - self.predicted + hits, n - count),
            "f1": (2.0 * hits, count + self.predicted),
        }[metric]
        with np.errstate(invalid="ignore"):
            values: Floats = above / below
        return values
