"""AUROC and average precision of rows whose labels are known as probabilities only.

Row i is positive with probability p_i, independently of the others, and ranked by its score s_i. The value is
the ratio of expectations, without the products of a row with itself; it differs from the expected ratio by
O(1/n):

* AUROC: Σ_{i≠j} p_i (1 − p_j) ([s_i > s_j] + ½ [s_i = s_j]), over Σ_{i≠j} p_i (1 − p_j);
* average precision: Σ_i p_i (1 + Σ_{j≠i, s_j ≥ s_i} p_j) / #{j: s_j ≥ s_i}, over Σ_i p_i.

With probabilities of 0 and 1 they are scikit-learn's values.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from monitor.base.records import Floats, Ints

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """Rows in order of their scores, with ties joined.

    Parameters
    ----------
    order : (n,) int64
        Rows from the highest score to the lowest; tied ones as they came.
    ends : (groups,) int64
        Place of the last row of each group of tied rows, in that order.
    midrank : (n,) float64
        For each row as it came, the rows with lower scores and half of the other tied ones.
    """

    order: Ints
    ends: Ints
    midrank: Floats

    @classmethod
    def of(cls, score: Floats) -> Ranking:
        """Rank rows by a score (n,), n at least 1.

        Examples
        --------
        >>> Ranking.of(np.array([0.2, 0.9, 0.2])).midrank.tolist()
        [0.5, 2.0, 0.5]
        """
        order = np.argsort(-score, kind="stable")
        ordered = score[order]
        ends = np.flatnonzero(np.r_[ordered[1:] != ordered[:-1], True])
        rows = np.diff(ends, prepend=-1)
        midrank = np.empty(len(score))
        midrank[order] = np.repeat(len(score) - 1 - ends + (rows - 1) / 2, rows)
        return cls(order, ends, midrank)

    def _reached(self, values: Floats) -> Floats:
        """(n,) sums of the values of all rows with an equal or higher score, in the order of arrival."""
        sums = np.cumsum(values[self.order])[self.ends]
        return self._back(sums)

    def _back(self, groups: Floats) -> Floats:
        """(n,) value of each row's group, in the order of arrival."""
        out = np.empty(len(self.order))
        out[self.order] = np.repeat(groups, np.diff(self.ends, prepend=-1))
        return out

    def auroc(self, chance: Floats) -> tuple[float, Floats]:
        """AUROC, 0 to 1, and each row's influence, from (n,) probabilities of being positive.

        It is 0.5 if one class has no probability. The (n,) influence is the first-order change, times n, if a
        row counted once more: its standard deviation over √n is the standard error for rows drawn at random.
        """
        positives, negatives = float(chance.sum()), float((1.0 - chance).sum())
        own = float(chance @ (1.0 - chance))
        if positives * negatives - own <= 0.0:
            return 0.5, np.zeros(len(chance))
        at_or_above, total = self._reached(1.0 - chance), negatives
        tied = self._tied(1.0 - chance)
        beaten = total - at_or_above + tied / 2
        beating = self._reached(chance) - self._tied(chance) / 2
        pairs = float(chance @ beaten)
        value = min(max((pairs - own / 2) / (positives * negatives - own), 0.0), 1.0)
        n = len(chance)
        by_positive = chance * (beaten / negatives - value) * (n / positives)
        by_negative = (1.0 - chance) * (beating / positives - value) * (n / negatives)
        return value, by_positive + by_negative

    def average_precision(self, chance: Floats) -> tuple[float, Floats]:
        """Average precision and each row's influence, as `auroc`; 0 if no row can be positive."""
        positives, n = float(chance.sum()), len(chance)
        if positives <= 0.0:
            return 0.0, np.zeros(n)
        rows = self._back(np.asarray(self.ends + 1, dtype=np.float64))
        precision = self._reached(chance) / rows
        value = float(chance @ (precision + (1.0 - chance) / rows)) / positives
        # A row that counts once more changes the precision at every threshold below its score.
        share = chance / rows
        below = [np.sum(v) - self._reached(v) + self._tied(v) for v in (share, share * precision)]
        influence = chance * (precision - value) + chance * below[0] - below[1]
        return min(max(value, 0.0), 1.0), influence * (n / positives)

    def auroc_slope(self, chance: Floats) -> Floats:
        """(n,) derivative of `auroc`'s value by each row's probability; 0 if one class has none."""
        positives, negatives = float(chance.sum()), float((1.0 - chance).sum())
        below = positives * negatives - float(chance @ (1.0 - chance))
        if below <= 0.0:
            return np.zeros(len(chance))
        beaten = negatives - self._reached(1.0 - chance) + self._tied(1.0 - chance) / 2
        beating = self._reached(chance) - self._tied(chance) / 2
        value = self.auroc(chance)[0]
        own = 1.0 - 2.0 * chance  # derivative of p (1 − p)
        slope: Floats = (beaten - beating - own / 2 - value * (negatives - positives - own)) / below
        return slope

    def average_precision_slope(self, chance: Floats) -> Floats:
        """(n,) derivative of `average_precision`'s value by each row's probability; 0 if it is undefined."""
        positives = float(chance.sum())
        if positives <= 0.0:
            return np.zeros(len(chance))
        rows = self._back(np.asarray(self.ends + 1, dtype=np.float64))
        share = chance / rows
        passing = float(share.sum()) - self._reached(share) + self._tied(share)
        above = self._reached(chance) / rows + (1.0 - 2.0 * chance) / rows + passing
        slope: Floats = (above - self.average_precision(chance)[0]) / positives
        return slope

    def _tied(self, values: Floats) -> Floats:
        """(n,) sums over each row's group of tied rows."""
        sums = np.cumsum(values[self.order])[self.ends]
        return self._back(np.diff(sums, prepend=0.0))

    def drawn_auroc(self, positive: Bools) -> Floats:
        """(draws,) AUROC of drawn labels (draws, n); NaN for a draw with one class only."""
        rows = positive.shape[1]
        count = np.count_nonzero(positive, axis=1).astype(np.float64)
        ranks = positive @ self.midrank
        with np.errstate(invalid="ignore", divide="ignore"):
            values: Floats = (ranks - count * (count - 1.0) / 2.0) / (count * (rows - count))
        values[(count == 0.0) | (count == rows)] = np.nan
        return values

    def drawn_average_precision(self, positive: Bools) -> Floats:
        """(draws,) average precision of drawn labels (draws, n); NaN for a draw without a positive."""
        reached = np.cumsum(positive[:, self.order], axis=1, dtype=np.int32)[:, self.ends].astype(np.float64)
        found = np.diff(reached, prepend=0.0, axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            values: Floats = np.einsum("dg,dg,g->d", found, reached, 1.0 / (self.ends + 1.0)) / reached[:, -1]
        return values
