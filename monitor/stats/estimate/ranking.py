"""AUROC and average precision of rows with probabilities instead of labels.

Row i is positive with probability p_i, independently of the others, and ranked by its score s_i. The value of
a metric is a ratio of expectations, in which no row is paired with itself. The value differs from the
expected ratio by O(1/n):

* AUROC: Σ_{i≠j} p_i (1 − p_j) ([s_i > s_j] + ½ [s_i = s_j]), over Σ_{i≠j} p_i (1 − p_j);
* average precision: Σ_i p_i (1 + Σ_{j≠i, s_j ≥ s_i} p_j) / #{j: s_j ≥ s_i}, over Σ_i p_i.

With probabilities of 0 and 1 the values equal scikit-learn's. All arrays may have leading dimensions, to
compute windows of equal size together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from monitor.base.records import Floats, Ints

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """The order of rows by their scores, in which tied rows share a rank.

    Parameters
    ----------
    order : (…, n) int64
        The rows from the highest score to the lowest. Tied rows are in order of arrival.
    first, last : (…, n) int64
        For each position in that order, the positions of the first and of the last row with the same score.
    """

    order: Ints
    first: Ints
    last: Ints

    @classmethod
    def from_scores(cls, score: Floats) -> Ranking:
        """Return the ranking of rows by a score (…, n), n at least 1.

        Examples
        --------
        >>> Ranking.from_scores(np.array([0.2, 0.9, 0.2])).midrank.tolist()
        [0.5, 2.0, 0.5]
        """
        order = np.argsort(-score, axis=-1, kind="stable")
        ordered = np.take_along_axis(score, order, axis=-1)
        places = np.arange(score.shape[-1])
        begins = np.ones(score.shape, dtype=np.bool_)
        np.not_equal(ordered[..., 1:], ordered[..., :-1], out=begins[..., 1:])
        ends = np.ones(score.shape, dtype=np.bool_)
        ends[..., :-1] = begins[..., 1:]
        first = np.maximum.accumulate(np.where(begins, places, 0), axis=-1)
        last = np.minimum.accumulate(np.where(ends, places, len(places))[..., ::-1], axis=-1)[..., ::-1]
        return cls(order, first, np.ascontiguousarray(last))

    @property
    def midrank(self) -> Floats:
        """The number of lower rows plus half the number of other tied rows, (…, n), in order of arrival."""
        return self.back(self.order.shape[-1] - 1 - (self.first + self.last) / 2)

    @property
    def rows(self) -> Ints:
        """The number of rows with an equal or higher score, (…, n), in the order of the scores."""
        rows: Ints = self.last + 1
        return rows

    def sorted(self, values: Floats) -> Floats:
        """Rearrange (…, n) values from the order of arrival to the order of the scores, and return them."""
        return np.take_along_axis(values, self.order, axis=-1)

    def back(self, values: Floats) -> Floats:
        """Rearrange (…, n) values from the order of the scores to the order of arrival, and return them."""
        out = np.empty(self.order.shape)
        np.put_along_axis(out, self.order, values, axis=-1)
        return out

    def reached(self, values: Floats) -> Floats:
        """Return, for each row, the sum of the values of all rows with an equal or higher score, (…, n).

        Values and sums are in the order of the scores.
        """
        return np.take_along_axis(np.cumsum(values, axis=-1), self.last, axis=-1)

    def reached_and_tied(self, values: Floats) -> tuple[Floats, Floats]:
        """Return the result of `reached`, and for each row the sum over all rows with its score, (…, n)."""
        sums = np.cumsum(values, axis=-1)
        reached = np.take_along_axis(sums, self.last, axis=-1)
        above = np.take_along_axis(sums, np.maximum(self.first - 1, 0), axis=-1)
        return reached, np.where(self.first > 0, reached - above, reached)

    def auroc(self, chance: Floats) -> tuple[Floats, Floats]:
        """Return the AUROC (…), 0 to 1, and each row's influence, from (…, n) probabilities.

        The AUROC is 0.5 if one class has the probability 0 in all rows. The influence of a row is n times the
        first-order change of the AUROC that an additional copy of the row would cause. Influences have the
        shape (…, n). Their standard deviation divided by √n is the standard error over random rows.
        """
        p = self.sorted(chance)
        parts = _Pairs(self, p)
        positives, negatives = np.maximum(parts.positives, _TINY), np.maximum(parts.negatives, _TINY)
        n = p.shape[-1]
        by_positive = p * (parts.beaten / negatives - parts.value[..., None]) * (n / positives)
        by_negative = (1.0 - p) * (parts.beating / positives - parts.value[..., None]) * (n / negatives)
        influence = np.where(parts.defined[..., None], by_positive + by_negative, 0.0)
        return parts.value, self.back(influence)

    def average_precision(self, chance: Floats) -> tuple[Floats, Floats]:
        """Return the average precision (…) and each row's influence (…, n); 0 without positives."""
        p = self.sorted(chance)
        positives = p.sum(axis=-1)[..., None]
        rows, n = self.rows, p.shape[-1]
        precision = self.reached(p) / rows
        total = np.maximum(positives, _TINY)
        value = np.clip((p * (precision + (1.0 - p) / rows)).sum(axis=-1)[..., None] / total, 0.0, 1.0)
        # A row that counts once more changes the precision at every threshold below its score.
        below = [self._passing(each) for each in (p / rows, p / rows * precision)]
        influence = p * (precision - value) + p * below[0] - below[1]
        influence = np.where(positives > 0.0, influence * (n / total), 0.0)
        return value[..., 0], self.back(influence)

    def auroc_slope(self, chance: Floats) -> Floats:
        """Return the (…, n) derivative of the AUROC with respect to each row's probability.

        The derivative is 0 if the AUROC is undefined.
        """
        p = self.sorted(chance)
        parts = _Pairs(self, p)
        return self.back(parts.slope(p))

    def average_precision_slope(self, chance: Floats) -> Floats:
        """Return the (…, n) derivative of the average precision with respect to each row's probability.

        The derivative is 0 if the average precision is undefined.
        """
        p = self.sorted(chance)
        return self.back(self.sorted_precision_slope(p)[1])

    def sorted_precision_slope(self, p: Floats) -> tuple[Floats, Floats]:
        """Return the average precision (…) and its derivative (…, n), rows in the order of the scores."""
        positives, rows = p.sum(axis=-1)[..., None], self.rows
        total = np.maximum(positives, _TINY)
        share, reached = p / rows, self.reached(p)
        value = (share * (reached + 1.0 - p)).sum(axis=-1)[..., None] / total
        above = (reached + 1.0 - 2.0 * p) / rows + self._passing(share)
        slope = np.where(positives > 0.0, (above - value) / total, 0.0)
        return np.clip(value[..., 0], 0.0, 1.0), slope

    def sorted_auroc_slope(self, p: Floats) -> tuple[Floats, Floats]:
        """Return the AUROC (…) and its derivative (…, n), rows in the order of the scores."""
        parts = _Pairs(self, p)
        return parts.value, parts.slope(p)

    def _passing(self, values: Floats) -> Floats:
        """Return (…, n) sums over all rows with an equal or lower score, in the order of the scores."""
        reached, tied = self.reached_and_tied(values)
        passing: Floats = values.sum(axis=-1)[..., None] - reached + tied
        return passing

    def drawn_auroc(self, positive: Bools) -> Floats:
        """Return the (draws,) AUROCs of one window for random labels.

        `positive` has the shape (draws, n), with the rows in the order of the scores. The AUROC is NaN for a
        draw with only one class.
        """
        rows = positive.shape[1]
        midrank = rows - 1 - (self.first + self.last) / 2
        count = np.count_nonzero(positive, axis=1).astype(np.float64)
        ranks = positive.astype(np.float64) @ midrank
        with np.errstate(invalid="ignore", divide="ignore"):
            values: Floats = (ranks - count * (count - 1.0) / 2.0) / (count * (rows - count))
        values[(count == 0.0) | (count == rows)] = np.nan
        return values

    def drawn_average_precision(self, positive: Bools) -> Floats:
        """Return the (draws,) average precisions for random labels; NaN for draws without positives."""
        draws, rows = positive.shape
        count = np.count_nonzero(positive, axis=1)
        if int(count.sum()) > _FEW_POSITIVES * positive.size:
            reached = np.cumsum(positive, axis=1, dtype=np.int32)[:, self.last] / (self.last + 1.0)
            total = np.einsum("dn,dn->d", reached, positive)
        else:  # visit only the positives
            places = np.flatnonzero(positive)
            draw = np.repeat(np.arange(draws), count)
            last = self.last[places - draw * rows]
            # Places increase: count the positives of the draw at or before each.
            reached = (
                np.searchsorted(places, draw * rows + last, side="right") - (np.cumsum(count) - count)[draw]
            )
            total = np.bincount(draw, reached / (last + 1.0), minlength=draws)
        with np.errstate(invalid="ignore"):
            values: Floats = total / count
        return values


_FEW_POSITIVES = 0.1
_TINY = 1e-300  # no division by 0 where a metric is undefined


class _Pairs:
    """The sums over pairs of rows in an AUROC, from probabilities in the order of the scores."""

    def __init__(self, ranking: Ranking, p: Floats) -> None:
        self.positives, self.negatives = p.sum(axis=-1)[..., None], (1.0 - p).sum(axis=-1)[..., None]
        own = (p * (1.0 - p)).sum(axis=-1)[..., None]
        self.below = self.positives * self.negatives - own
        reached, tied = ranking.reached_and_tied(p)
        self.beating = reached - tied / 2
        # Negative rows: all rows less the positive ones.
        size = (ranking.last - ranking.first + 1) / 2
        self.beaten = self.negatives - (ranking.rows - size) + self.beating
        self.defined = self.below[..., 0] > 0.0
        pairs = (p * self.beaten).sum(axis=-1)
        value = (pairs - own[..., 0] / 2) / np.where(self.defined, self.below[..., 0], 1.0)
        self.value: Floats = np.where(self.defined, np.clip(value, 0.0, 1.0), 0.5)

    def slope(self, p: Floats) -> Floats:
        """Return the derivative of the AUROC by each row's probability."""
        own = 1.0 - 2.0 * p  # derivative of p (1 − p)
        rise = self.beaten - self.beating - own / 2
        rise -= self.value[..., None] * (self.negatives - self.positives - own)
        derivative: Floats = np.where(self.defined[..., None], rise / np.maximum(self.below, _TINY), 0.0)
        return derivative
