"""Precision-recall and ROC curves with bands over draws, from labelled scores or from a mixture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from monitor.base.records import Floats
from monitor.stats.rivals.spe.mixture import Pair

Kind = Literal["precision_recall", "roc"]
GRID = np.linspace(0.0, 1.0, 101)
"""The abscissas of curves: recalls, or false positive rates."""
_SCORES = np.concatenate([[-1e9], np.linspace(1e-6, 1.5, 1024)])
_NONE = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class PerformanceCurve:
    """A precision-recall or ROC curve with an interval at each point.

    Parameters
    ----------
    kind : str
        "precision_recall" or "roc".
    x : (g,) float64
        Recall, or the false positive rate; ascending.
    value, lower, upper : (g,) float64
        Precision, or recall, from 0 to 1: the median over the draws and the ends of the central interval.
    level : float
        Level of the interval at each point. The probability that the whole curve lies within the band is
        smaller.
    """

    kind: Kind
    x: Floats
    value: Floats
    lower: Floats
    upper: Floats
    level: float


@dataclass(frozen=True, slots=True, eq=False)
class Rates:
    """The recall, the false positive rate and the precision at t thresholds, for each of d draws.

    Parameters
    ----------
    thresholds : (t,) float64
        Descending.
    recall, false_positive : (d, t) float64
        Shares of the positive and of the negative class above each threshold.
    precision : (d, t) float64
        Share of positives among all rows above each threshold.
    """

    thresholds: Floats
    recall: Floats
    false_positive: Floats
    precision: Floats

    @classmethod
    def from_labels(cls, scores: Floats, positive: Floats) -> Rates:
        """Return the rates for labels of n rows, with the scores of the rows as thresholds.

        A row is above a threshold if its score is at least the threshold.

        `positive` has the labels of each draw, (d, n): 1 for the positive class, otherwise 0.

        Examples
        --------
        >>> rates = Rates.from_labels(np.array([0.1, 0.4, 0.8]), np.array([[0.0, 1.0, 1.0]]))
        >>> rates.precision.round(2).tolist(), rates.recall.tolist()
        ([[1.0, 1.0, 0.67]], [[0.5, 1.0, 1.0]])
        """
        order = np.argsort(-scores, kind="stable")
        ordered = scores[order]
        last = np.flatnonzero(np.r_[ordered[1:] != ordered[:-1], True])
        hits = np.cumsum(positive[:, order], axis=1)
        above = last + 1.0
        reached = hits[:, last]
        positives = hits[:, -1:]
        negatives = positive.shape[1] - positives
        return cls(
            ordered[last],
            reached / np.maximum(positives, _NONE),
            (above - reached) / np.maximum(negatives, _NONE),
            reached / above,
        )

    @classmethod
    def from_mixture(cls, pair: Pair, parameters: Floats, thresholds: Floats | None = None) -> Rates:
        """Return the rates of a mixture with parameters (d, p), by equations (4) and (5) of the paper.

        The thresholds are descending. By default they are a grid that extends beyond all scores.
        """
        falling = _SCORES[::-1] if thresholds is None else thresholds
        false_positive, recall = (np.clip(share, 0.0, 1.0) for share in pair.survival(parameters, falling))
        share = 1.0 / (1.0 + np.exp(-pair.parts(parameters)[0]))
        true, false = share * recall, (1.0 - share) * false_positive
        # Beyond the last score both shares are 0 and their ratio is undefined: the curve continues level.
        reliable = true + false > 1e-9
        precision = np.where(reliable, true / np.maximum(true + false, 1e-300), np.nan)
        first = np.argmax(reliable, axis=1)
        level = precision[np.arange(len(precision)), first]
        precision = np.where(reliable, precision, np.nan_to_num(level, nan=1.0)[:, None])
        return cls(falling, recall, false_positive, precision)

    @classmethod
    def concatenate(cls, parts: Sequence[Rates]) -> Rates:
        """Return the draws of all parts together. The parts must have equal thresholds."""
        return cls(
            parts[0].thresholds,
            *(
                np.concatenate([getattr(part, name) for part in parts])
                for name in ("recall", "false_positive", "precision")
            ),
        )

    def at_recall(self, recalls: Floats) -> Floats:
        """Return the (d, r) precisions at the highest thresholds that reach each of r recalls."""
        return np.stack([_at(recalls, x, y) for x, y in zip(self.recall, self.precision, strict=True)])

    def at_false_positive(self, rates: Floats) -> Floats:
        """Return the (d, r) recalls at r false positive rates, interpolated."""
        curves = [
            np.interp(rates, np.r_[0.0, x], np.r_[0.0, y])
            for x, y in zip(self.false_positive, self.recall, strict=True)
        ]
        return np.stack(curves)

    def equal_error(self) -> Floats:
        """Return the (d,) error rates at which false positive and false negative rate are equal."""
        gap = self.false_positive - (1.0 - self.recall)
        crossings = []
        for step, false in zip(gap, self.false_positive, strict=True):
            after = int(np.searchsorted(step, 0.0))
            after = min(max(after, 1), len(step) - 1)
            crossings.append(np.interp(0.0, step[after - 1 : after + 1], false[after - 1 : after + 1]))
        rates: Floats = np.clip(np.array(crossings), 0.0, 1.0)
        return rates

    def on_grid(self, kind: Kind) -> Floats:
        """Return the (d, len(GRID)) values of the precision-recall or ROC curve of each draw at `GRID`."""
        return self.at_recall(GRID) if kind == "precision_recall" else self.at_false_positive(GRID)


def _at(recalls: Floats, recall: Floats, precision: Floats) -> Floats:
    at = np.minimum(np.searchsorted(recall, recalls - 1e-12), len(recall) - 1)
    reached: Floats = precision[at]
    return reached


def banded(kind: Kind, curves: Floats, level: float) -> PerformanceCurve:
    """Return the median of the curves (d, g) at each point of `GRID`, with a central interval."""
    ends = np.quantile(curves, [(1 - level) / 2, 0.5, (1 + level) / 2], axis=0)
    return PerformanceCurve(kind, GRID, ends[1], ends[0], ends[2], level)
