"""The change of a mean between two sets of rows, split into contributions of parts such as groups.

The estimated accuracy is the mean of the confidences, so its change against the baseline is a sum over parts:
groups, predicted classes or ranges of confidence. A part contributes in two ways: its share of the answers
changes (the mix), or its mean changes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from monitor.base.records import Floats, Ints

MOST_PARTS = 64
"""The largest number of parts of one dimension that are kept by name. All other parts count together as
`OTHER`."""

OTHER = "other"

LEVEL = 0.01
"""The probability that any part of any dimension stands out by chance if all parts changed alike."""

REST_AT_MOST = 0.75
"""A part stands out only if the rows outside of the part changed by less than this share of the whole
change."""

COUNTED_METRICS = ("precision", "recall", "specificity", "f1")
"""The metrics that are ratios of expected counts of the confusion matrix."""

_ROUNDING = 1e-24  # the square of the rounding error of sums of millions of confidences


class PartSums(msgspec.Struct, frozen=True, eq=False):
    """The sums of a value, such as the confidence, over the rows of each part, such as each group.

    Parameters
    ----------
    names : list of str
        The parts: at most `MOST_PARTS`, and `OTHER` for the remaining ones.
    table : (3, m) float64
        For each of the m parts, the number of rows, the sum of the values, and the sum of their squares.
    folded : bool
        True if small parts were joined into `OTHER`. Then every part that is not named belongs to `OTHER`.

    Examples
    --------
    >>> sums = PartSums.from_rows(["eu", "us"], np.array([0, 1, 1]), np.array([0.5, 1.0, 0.9]))
    >>> sums.names, sums.table[:2].tolist()
    (['eu', 'us'], [[1.0, 2.0], [0.5, 1.9]])
    """

    names: list[str]
    table: Floats
    folded: bool = False

    @classmethod
    def from_rows(cls, names: Sequence[str], codes: Ints, terms: Floats, most: int = MOST_PARTS) -> PartSums:
        """Return the sums of a value over the rows of each part, from n rows.

        Parameters
        ----------
        names : sequence of str
        codes : (n,) int64
            The part of each row, an index into `names`; parts without rows are left out.
        terms : (n,) float64
        most : int
            The largest number of parts to name. The parts with the most rows are named, and the others joined
            into `OTHER`.
        """
        size = len(names)
        table = np.empty((3, size))
        table[0] = np.bincount(codes, minlength=size)
        table[1] = np.bincount(codes, terms, size)
        table[2] = np.bincount(codes, terms * terms, size)
        there = table[0] > 0
        if there.all():
            return cls(list(names), table)._bounded(most)
        return cls([names[i] for i in np.flatnonzero(there).tolist()], table[:, there])._bounded(most)

    @property
    def rows(self) -> float:
        """The number of rows of all parts."""
        return float(self.table[0].sum())

    @property
    def mean(self) -> float:
        """The mean of the values of all rows."""
        return float(self.table[1].sum() / self.table[0].sum())

    def plus(self, more: PartSums, most: int = MOST_PARTS) -> PartSums:
        """Return the sums over the rows of both objects.

        If this object already joins small parts in `OTHER`, its names are kept. Otherwise the result names at
        most `most` parts.
        """
        if more.names == self.names:  # the usual case in a baseline
            return PartSums(self.names, self.table + more.table, self.folded or more.folded)
        names = self.joint_names(more)
        joint = PartSums(names, self.along(names) + more.along(names), self.folded or more.folded)
        return joint if self.folded else joint._bounded(most)

    def joint_names(self, other: PartSums) -> list[str]:
        """Return the names of the parts of both objects.

        If this object already joins small parts in `OTHER`, return only its own names.
        """
        return list(self.names) if self.folded else list(dict.fromkeys([*self.names, *other.names]))

    def along(self, names: Sequence[str]) -> Floats:
        """Return the table of sums with one column for each of these parts, in this order, (3, m).

        If `OTHER` is one of the names, it includes all parts that are not among the names.
        """
        place = {name: i for i, name in enumerate(names)}
        table = np.zeros((3, len(names)))
        for i, name in enumerate(self.names):
            at = place.get(name, place.get(OTHER))
            if at is not None:
                table[:, at] += self.table[:, i]
        return table

    def _bounded(self, most: int) -> PartSums:
        named = [i for i, name in enumerate(self.names) if name != OTHER]
        if len(named) <= most:
            return self
        kept = sorted(named, key=lambda i: (-self.table[0, i], self.names[i]))[:most]
        names = [*sorted(self.names[i] for i in kept), OTHER]
        return PartSums(names, self.along(names), folded=True)


@dataclass(frozen=True, slots=True, eq=False)
class Decomposition:
    """The change of a mean between window and baseline, split into the contributions of m parts.

    In the descriptions, p is the share of a part, a its mean, and A the mean of all rows. The index 0 stands
    for the baseline.

    Parameters
    ----------
    names : list of str
    share, share_before : (m,) float64
        p and p0: the part's share of the rows, in the window and in the baseline.
    mean, mean_before : (m,) float64
        a and a0. If a part has no rows in the baseline, a0 is a. If it has no rows in the window, a is a0.
    mix : (m,) float64
        Contribution of the changed share: (p − p0)·(a0 − level).
    within : (m,) float64
        Contribution of the changed mean: p·(a − a0).
    change : float
        A − A0, the sum of `mix` and `within` over all parts.
    evidence : (m,) float64
        Evidence z² that the part causes the change: see `decomposed`.
    outside : (m,) float64
        The change of the mean of the rows outside of the part.
    level : float
        The value c, to which the mean of a part is compared if the part's share changes: see `decomposed`.
    """

    names: list[str]
    share: Floats
    share_before: Floats
    mean: Floats
    mean_before: Floats
    mix: Floats
    within: Floats
    change: float
    evidence: Floats
    outside: Floats
    level: float

    @property
    def changes(self) -> Floats:
        """The (m,) contribution of each part to the change, `mix` + `within`."""
        return self.mix + self.within


def decomposed(window: PartSums, baseline: PartSums) -> Decomposition:
    """Split the change of a mean against the baseline into contributions of parts.

    With p_k the share of part k, a_k its mean, and 0 for the baseline, A = Σ p_k·a_k gives

        A − A0 = Σ p_k·(a_k − a0_k) + Σ (p_k − p0_k)·(a0_k − c),

    the change of the parts' means, and the change of the mix. This is the two-fold decomposition of Kitagawa,
    and of Oaxaca and Blinder for means by category. It weights means by the window's shares, and the mix by
    the baseline's means, so there is no third term. The contribution of a part that appears or disappears
    belongs entirely to the mix.

    The shares sum to 1, so the total is the same for every c. But the contributions depend on c. The function
    sets c to the baseline's mean of the rows outside of the leading part. So if the shares of the other parts
    changed in proportion, the leading part gets the whole effect of its share. With c = A0, the effect of a
    large part that grows would mostly be attributed to the parts that shrink. The leading part is the one
    whose share changes the mean most, compared with all others together: (p_k − p0_k)·(a0_k − a0_rest). If
    two parts have the same value, the leading part is the one that grew.

    The evidence that part k causes the change is z². It compares the change Δ of all rows with the change
    Δ_outside of the rows outside of the part. If all parts changed by the same amount, Δ − Δ_outside has the
    mean 0 and the variance

        (1/n + 1/n0)·q·[σ²_k·(1 − q) + σ²_rest·q + (a0_k − a0_rest)²·(1 − q)²] / (1 − q)

    where q is the mean of p_k and p0_k, and the variances σ² are within window and baseline. z² is (Δ −
    Δ_outside)² divided by this variance. If only one part changed, in its mean or its share, this part has
    the largest z². A part of another dimension has ρ² times as much evidence, where ρ is the correlation
    between the memberships in both parts.

    The result misleads if the traffic differs from the baseline's: at an hour of the day with another mix of
    groups, the mean can be lower without a fault of the model. The result shows where the change is, and not
    why it happened.

    Parameters
    ----------
    window, baseline : PartSums
        Each with at least 1 row.

    References
    ----------
    E. M. Kitagawa, *Components of a Difference Between Two Rates*, JASA 50 (1955), 1168-1194; R. Oaxaca,
    *Male-Female Wage Differentials in Urban Labor Markets*, International Economic Review 14 (1973); A. S.
    Blinder, *Wage Discrimination: Reduced Form and Structural Estimates*, Journal of Human Resources 8
    (1973). The evidence is ours.

    Examples
    --------
    >>> names = ["eu", "us"]
    >>> before = PartSums.from_rows(names, np.repeat([0, 1], [20, 80]), np.repeat([0.7, 0.9], [20, 80]))
    >>> now = PartSums.from_rows(names, np.repeat([0, 1], [45, 55]), np.repeat([0.7, 0.9], [45, 55]))
    >>> split = decomposed(now, before)
    >>> round(split.change, 6), (split.mix + 0.0).round(6).tolist(), np.abs(split.within).round(6).tolist()
    (-0.05, [-0.05, 0.0], [0.0, 0.0])
    """
    names = baseline.joint_names(window)
    now, before = window.along(names), baseline.along(names)
    (n, total, _), (n0, total0, _) = now, before
    rows, rows0 = n.sum(), n0.sum()
    share, share_before = n / rows, n0 / rows0
    mean, mean_before = _ratio(total, n, total0, n0), _ratio(total0, n0, total, n)
    whole_before = total0.sum() / rows0
    change = float(total.sum() / rows - whole_before)
    (r, rest, _), (r0, rest0, _) = _others(now), _others(before)
    rest_before = _ratio(rest0, r0, rest, r)
    outside = _ratio(rest, r, rest0, r0) - rest_before
    q = (share + share_before) / 2
    inside, elsewhere = (_pooled(*each) for each in ((now, before), (_others(now), _others(before))))
    gap = (mean_before - rest_before) * (1 - q)
    noise = (1 / rows + 1 / rows0) * q * (inside * (1 - q) + elsewhere * q + gap * gap)
    beyond = (change - outside) ** 2 * (1 - q)
    certain = np.where(beyond > _ROUNDING, np.inf, 0.0)  # for rows without any scatter
    evidence = np.divide(beyond, noise, out=certain, where=noise > 0)
    leads = (share - share_before) * (mean_before - rest_before) * np.sign(change)
    if len(names) == 2:
        leads = np.where(share >= share_before, leads, 0.0)
    level = rest_before[leads.argmax()] if leads.max() > 0 else whole_before
    return Decomposition(
        names=names,
        share=share,
        share_before=share_before,
        mean=mean,
        mean_before=mean_before,
        mix=(share - share_before) * (mean_before - level),
        within=share * (mean - mean_before),
        change=change,
        evidence=evidence,
        outside=outside,
        level=float(level),
    )


def _ratio(total: Floats, n: Floats, other_total: Floats, other_n: Floats) -> Floats:
    """Return means; without rows the other's mean, and 0 if that has no rows either."""
    other = np.divide(other_total, other_n, out=np.zeros(len(n)), where=other_n > 0)
    means: Floats = np.divide(total, n, out=other, where=n > 0)
    return means


def _others(table: Floats) -> Floats:
    """Return the table of the rows outside of each part."""
    others: Floats = table.sum(axis=1, keepdims=True) - table
    return others


def _pooled(one: Floats, other: Floats) -> Floats:
    """Return the (m,) variance of the term within each of two sets of rows; 0 without rows."""
    scatter = np.zeros(one.shape[1])
    for n, total, squares in (one, other):
        scatter += np.maximum(squares - total * _ratio(total, n, total, n), 0.0)
    rows = one[0] + other[0]
    return _ratio(scatter, rows, scatter, rows)


def most_concentrated(splits: Mapping[str, Decomposition]) -> str | None:
    """Return the dimension with the part that explains the change best; None if no part stands out.

    A part stands out under two conditions. Its evidence is significant at `LEVEL`, after Bonferroni's
    correction for all parts of all dimensions. And the rows outside of it changed by less than `REST_AT_MOST`
    of the whole change, because with many rows even irrelevant differences are significant. The result is the
    dimension of the part with the largest evidence. A cause in one group also changes correlated classes, but
    with less evidence: see `decomposed`.

    Parameters
    ----------
    splits : mapping of str to Decomposition
        Decompositions of the same rows, by dimension (such as ``"region"``). Leave out ranges of confidence:
        a lower confidence is in a lower range, whatever its cause.

    Examples
    --------
    >>> codes, other = np.repeat([0, 1], 500), np.tile([0, 1], 500)
    >>> flat = np.tile([0.8, 0.8, 0.9, 0.9], 250)
    >>> fallen = flat - 0.2 * codes
    >>> sums = lambda by, terms: PartSums.from_rows("ab", by, terms)
    >>> split = lambda by: decomposed(sums(by, fallen), sums(by, flat))
    >>> most_concentrated({"class": split(other), "region": split(codes)})
    'region'
    """
    parts = sum(len(each.names) for each in splits.values() if len(each.names) > 1)
    if not parts:
        return None
    best, named = 0.0, None
    for dimension, each in splits.items():
        apart = each.outside * np.sign(each.change) < REST_AT_MOST * abs(each.change)
        strongest = float(np.max(each.evidence, where=apart, initial=0.0)) if len(each.names) > 1 else 0.0
        # The probability of a larger χ² with one degree of freedom.
        if strongest > best and parts * math.erfc(math.sqrt(strongest / 2)) < LEVEL:
            best, named = strongest, dimension
    return named


def count_columns(
    metric: str, scores: Floats, predicted: Ints, positive: int | None = None, micro: bool = False
) -> Floats:
    """Return each row's contribution to the expected numerator and denominator of a metric.

    Parameters
    ----------
    metric : str
        One of `COUNTED_METRICS`.
    scores : (n, K) float64
        Calibrated, K at least 2.
    predicted : (n,) int64
    positive : int, optional
        The class that the metric describes; by default each class separately.
    micro : bool
        True to count all classes together, if `positive` is None.

    Returns
    -------
    (2, n, C) float64
        Numerators and denominators; the metric is the mean over C classes of the ratio of their sums.

    Examples
    --------
    >>> scores, predicted = np.array([[0.1, 0.9], [0.8, 0.2]]), np.array([1, 0])
    >>> above, below = count_columns("recall", scores, predicted, positive=1).sum(axis=1)
    >>> float(above[0] / below[0]).__round__(3)
    0.818
    """
    width = scores.shape[1]
    kept = np.arange(width) if positive is None else np.array([positive])
    chance, acted = scores[:, kept], (predicted[:, None] == kept).astype(np.float64)
    if metric == "specificity":
        columns = np.stack([(1 - chance) * (1 - acted), 1 - chance])
    else:
        hits = chance * acted
        above, below = {
            "precision": (hits, acted),
            "recall": (hits, chance),
            "f1": (2 * hits, acted + chance),
        }[metric]
        columns = np.stack([above, below])
    if micro and positive is None:
        columns = columns.sum(axis=2, keepdims=True)
    return columns


def ratio_terms(columns: Floats, before: Floats) -> Floats:
    """Return a value for each row, (n,); their mean is the change of a metric against the baseline.

    With these values, the change of a ratio, or of a mean of ratios, can be split by parts like the change of
    a mean. A row has the numerator a and the denominator b. With M0 = Σ a0 / Σ b0 of the baseline and b̄ the
    window's mean denominator, the row's value is (a − M0·b) / b̄. The mean of these values is exactly Σ a / Σ
    b − M0. The split is exact to first order. A class is left out if its denominator is 0 in the window or in
    the baseline.

    Parameters
    ----------
    columns : (2, n, C) float64
        The result of `count_columns`.
    before : (2, C) float64
        The sums of the baseline's columns.

    Examples
    --------
    >>> columns = np.array([[[1.0], [0.0]], [[1.0], [1.0]]])
    >>> float(ratio_terms(columns, np.array([[3.0], [4.0]])).mean())
    -0.25
    """
    (above, below), n = columns, columns.shape[1]
    total = below.sum(axis=0)
    known = (total > 0) & (before[1] > 0)
    if not known.any():
        return np.zeros(n)
    level = before[0, known] / before[1, known]
    terms: Floats = ((above[:, known] - level * below[:, known]) * (n / total[known])).mean(axis=1)
    return terms
