"""The distribution of a metric over the unknown labels of a window, by its first three cumulants.

Row i has class k with probability p_ik, independently of other rows. A metric of class k is a ratio N/D of
sums of products of at most two labels. Let f be the ratio of expectations, u = (N − f D)/E[D], and
δ = (D − E[D])/E[D]; then the metric is f + u (1 − δ + δ² − …). With a the derivative of f with respect
to each probability, d that of log E[D], B_ij the second derivatives of u and s = p (1 − p):

* mean: f − c, with c = Cov(u, δ) = Σ s a d + (what the products of two labels add);
* variance: Var u − 2 E[u²δ] + 3 Var u Var δ + 5 c², with Var u = Σ s a² + ½ Σ_{i≠j} B_ij² s_i s_j;
* third cumulant: Σ s (1 − 2p) a³ + 3 (vᵀ B v − 2 (v·a)(v·d)), with v = s a.

The first sum of each line alone is the linearisation. At ten expected positives, the standard deviation of
the linearisation is 5 % too small. For the mean of several classes, the covariances of a row's labels replace
s, and the second-order part of the variance is the sum over classes. Quantiles are computed by the
Cornish-Fisher expansion, with the fourth cumulant of a gamma distribution of the same skewness. A logit scale
would make the skewness larger, with the opposite sign: for an AUROC near 1, tails of nominally 2.5 % had a
probability of 4 to 7 %.

The cumulants of independent windows add, so pooling is exact to the same order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy

from monitor.base.records import Floats, Ints
from monitor.stats.estimate._one_class import OneClass
from monitor.stats.estimate.poisson_binomial import checked_level
from monitor.stats.estimate.ranking import Ranking

FEWEST_EXPECTED = 15.0
"""The smallest expected number of rows in a class's denominator. With fewer, the metric may be undefined."""

ROUGHEST = 0.6
"""The largest sum of the rows' absolute third moments, in cubed standard deviations.

The sum is about the step by which one label changes the metric. With a larger sum, the distribution has only
a few steps, and random draws of labels are used instead.
"""


@dataclass(frozen=True, slots=True)
class Cumulants:
    """The mean, variance and third cumulant of a metric over the unknown labels of one or several windows.

    `joined` pools windows, and `interval` approximates quantiles of the distribution.

    Parameters
    ----------
    value : float
        The estimate, from 0 to 1.
    mean, variance, third : float
        Cumulants, in the unit of the value, its square and its cube; `variance` is 0 or more.
    size : int
        Rows, 1 or more.

    References
    ----------
    E. A. Cornish, R. A. Fisher, *Moments and cumulants in the specification of distributions*, Revue de
    l'Institut International de Statistique 5 (1938); P. Hall, *The Bootstrap and Edgeworth Expansion* (1992),
    section 2.5.

    Examples
    --------
    >>> window = Cumulants(0.9, 0.9, 0.0004, -4e-6, 500)
    >>> [round(end, 4) for end in window.interval(0.95)]
    [0.8563, 0.9342]
    >>> [round(end, 4) for end in window.joined(window).interval(0.95)]
    [0.87, 0.9253]
    """

    value: float
    mean: float
    variance: float
    third: float
    size: int

    @classmethod
    def from_draws(cls, value: float, draws: Floats, size: int) -> Cumulants:
        """Return the sample cumulants of b values of the metric, each computed with random labels."""
        apart = draws - draws.mean()
        return cls(value, float(draws.mean()), float((apart**2).mean()), float((apart**3).mean()), size)

    def joined(self, other: Cumulants) -> Cumulants:
        """Return the cumulants of the mean of two independent windows, weighted by their rows."""
        size = self.size + other.size
        a, b = self.size / size, other.size / size
        return Cumulants(
            a * self.value + b * other.value,
            a * self.mean + b * other.mean,
            a**2 * self.variance + b**2 * other.variance,
            a**3 * self.third + b**3 * other.third,
            size,
        )

    def interval(self, level: float) -> tuple[float, float]:
        """Return the central quantiles of the metric, within 0 and 1.

        A level that is not strictly between 0 and 1 raises a ValueError.
        """
        if self.variance <= 0.0:
            return self.mean, self.mean
        z, sd = _normal_quantile(checked_level(level)), math.sqrt(self.variance)
        skew = self.third / (self.variance * sd)
        even = skew * (z**2 - 1) / 6
        odd = z + skew**2 * ((z**3 - 3 * z) / 16 - (2 * z**3 - 5 * z) / 36)
        return max(self.mean + sd * (even - odd), 0.0), min(self.mean + sd * (even + odd), 1.0)


@lru_cache(maxsize=64)
def _normal_quantile(level: float) -> float:
    return float(scipy.special.ndtri((1.0 + level) / 2.0))


class Expansion:
    """The second-order expansion of one class's metric around its expected counts, in m windows of n rows.

    It consists of the value of the metric, of its first derivatives with respect to each row's probability of
    the class, and of the second derivatives B_ij of u (see the module). Arrays have the shape (m,), or (m, n)
    with rows in the order of arrival.

    Parameters
    ----------
    one : OneClass
        The probabilities and predictions of the class.
    metric : str
        ``"precision"``, ``"recall"``, ``"specificity"``, ``"f1"``, ``"auroc"`` or ``"average_precision"``.
    """

    def __init__(self, one: OneClass, metric: str) -> None:
        p, n = one.chance, one.chance.shape[-1]
        self.chance, self.ranking = p, one.ranking if metric in ("auroc", "average_precision") else None
        self.metric = metric
        self.products = np.zeros(len(p))
        """B_ij of an AUROC, the same for all pairs."""
        self.curve = np.zeros(len(p))
        """The second derivatives of log E[D], the same for all pairs."""
        positives = one.positives
        if metric == "auroc":
            ordered = one.ranking.sorted(p)
            self.value, slope = one.ranking.sorted_auroc_slope(ordered)
            self.slope = one.ranking.back(slope)
            negatives = n - positives
            below = _above_0(positives * negatives - (p * (1.0 - p)).sum(axis=-1))
            self.below = (negatives - positives)[:, None] / below[:, None] - (1.0 - 2.0 * p) / below[:, None]
            self.products, self.curve = (2.0 * self.value - 1.0) / below, -2.0 / below
            self.expected = np.minimum(positives, negatives)
            return
        if metric == "average_precision":
            ordered = one.ranking.sorted(p)
            self.value, slope = one.ranking.sorted_precision_slope(ordered)
            self.slope = one.ranking.back(slope)
            self.expected = positives
            self.below = np.broadcast_to(1.0 / _above_0(positives)[:, None], p.shape)
            return
        self.value, self.expected = one.expected_ratio(metric)
        self.slope = one.slope(metric)
        change = {"precision": 0.0, "recall": 1.0, "specificity": -1.0, "f1": 1.0}[metric]
        self.below = np.broadcast_to(change / _above_0(self.expected)[:, None], p.shape)

    def select(self, rows: Ints) -> Expansion:
        """Return the expansion of the windows with the indices `rows`."""
        part = copy(self)
        for name in ("chance", "value", "slope", "below", "products", "curve", "expected"):
            setattr(part, name, getattr(self, name)[rows])
        if self.ranking is not None:
            part.ranking = Ranking(
                *(each[rows] for each in (self.ranking.order, self.ranking.first, self.ranking.last))
            )
        return part

    def form(self, x: Floats, y: Floats) -> Floats:
        """Return the (m,) sums Σ_{i≠j} x_i B_ij y_j over the pairs of rows of each window.

        B_ij is the second derivative of u (see the module) with respect to the probabilities of rows i and j.
        It is 0 except for AUROC and average precision, which contain products of two labels.

        Parameters
        ----------
        x, y : (m, n) float64
        """
        if self.ranking is None:
            return np.zeros(len(x))
        if self.metric == "auroc":
            return self.products * _pairs(x, y)
        # For an average precision, B_ij is 1 over the rows at or above the lower of both, over E[D].
        x, y = self.ranking.sorted(x), self.ranking.sorted(y)
        reached = x * (self.ranking.reached(y) - y) + y * (self.ranking.reached(x) - x)
        form: Floats = (reached / self.ranking.rows).sum(axis=-1) * self.below[:, 0]
        return form

    def squares(self, s: Floats) -> Floats:
        """Return the (m,) sums Σ_{i≠j} B_ij² s_i s_j over the pairs of rows of each window.

        Half of the sum is the contribution of products of two labels to the variance.

        B_ij is as in `form`.

        Parameters
        ----------
        s : (m, n) float64
            The variance p (1 − p) of each row's label.
        """
        if self.ranking is None:
            return np.zeros(len(s))
        if self.metric == "auroc":
            return self.products**2 * _pairs(s, s)
        s = self.ranking.sorted(s)
        reached, tied = self.ranking.reached_and_tied(s)
        each = 2.0 * s * (reached + tied - 2.0 * s)  # twice strictly above, four times tied
        squares: Floats = (each / self.ranking.rows**2).sum(axis=-1) * self.below[:, 0] ** 2
        return squares

    @property
    def beyond(self) -> tuple[Floats, Floats]:
        """The second-order corrections to the mean and the variance of each window, both with shape (m,).

        The first is c (see the module), which is subtracted from the mean. The second is added to the
        variance.
        """
        p, a, d = self.chance, self.slope, self.below
        s = p * (1.0 - p)
        v, pairs = s * a, _pairs(s, s)
        squares = self.squares(s)
        own = (v * a).sum(axis=-1) + squares / 2.0
        shared = (v * d).sum(axis=-1) + self.products * self.curve * pairs / 2.0
        of_below = (s * d * d).sum(axis=-1) + self.curve**2 * pairs / 2.0
        third = (v * a * d * (1.0 - 2.0 * p)).sum(axis=-1) + 2.0 * self.form(v, s * d)
        third += self.curve * _pairs(v, v)
        return shared, squares / 2.0 - 2.0 * third + 3.0 * own * of_below + 5.0 * shared**2


def _above_0(total: Floats) -> Floats:
    """Return a denominator with 1 instead of 0: the quotient is not used there."""
    return np.where(total > 0.0, total, 1.0)


def _pairs(x: Floats, y: Floats) -> Floats:
    """Return (m,) Σ_{i≠j} x_i y_j."""
    sums: Floats = x.sum(axis=-1) * y.sum(axis=-1) - (x * y).sum(axis=-1)
    return sums


def label_cumulants(classes: Sequence[Expansion]) -> list[Cumulants | None]:
    """Return the distribution of a metric, or of its mean over classes, in each of m windows.

    The distribution misleads if rows share an error that the probabilities ignore: the true distribution is
    then wider.

    Parameters
    ----------
    classes : sequence of Expansion
        One expansion for each class, for the same rows of the same windows.

    Returns
    -------
    list of Cumulants or None
        One entry for each window. None if the expansion is not accurate enough: the expected denominator of a
        class is below `FEWEST_EXPECTED` rows, or one label changes the metric by a large part of its standard
        deviation (`ROUGHEST`).

    Examples
    --------
    >>> chance = np.linspace(0.01, 0.99, 100)[None]
    >>> [auroc] = label_cumulants([Expansion(OneClass(chance, chance > 0.5, chance), "auroc")])
    >>> round(auroc.value, 3), [round(end, 3) for end in auroc.interval(0.95)]
    (0.832, [0.755, 0.901])
    """
    share, n = 1.0 / len(classes), classes[0].chance.shape[-1]
    slopes = [share * each.slope for each in classes]
    moments = [
        sum(each.chance * slope**power for each, slope in zip(classes, slopes, strict=True))
        for power in (1, 2, 3)
    ]
    first, second, third = (np.asarray(each) for each in moments)
    value = share * np.sum([each.value for each in classes], axis=0)
    mean = value.copy()
    variance = (second - first**2).sum(axis=-1)
    skewed = (third - 3.0 * second * first + 2.0 * first**3).sum(axis=-1)
    rough, rest = np.zeros(len(value)), np.ones(first.shape)
    for each, slope in zip(classes, slopes, strict=True):
        apart = slope - first
        v = each.chance * apart
        rough += (np.abs(v) * apart**2).sum(axis=-1)
        rest = rest - each.chance
        shared, added = each.beyond
        mean -= share * shared
        variance += share**2 * added
        along = (v * each.slope).sum(axis=-1) * (v * each.below).sum(axis=-1)
        skewed += 3.0 * share * (each.form(v, v) - 2.0 * along)
    rough += (np.maximum(rest, 0.0) * np.abs(first) ** 3).sum(axis=-1)
    expected = np.min([each.expected for each in classes], axis=0)
    variance = np.maximum(variance, 0.0)
    skewed = np.where(variance > 0.0, skewed, 0.0)
    serves = (expected >= FEWEST_EXPECTED - _NO_TIE) & (rough <= ROUGHEST * variance**1.5)
    columns = zip(*(each.tolist() for each in (value, mean, variance, skewed, serves)), strict=True)
    return [Cumulants(f, m, v, k, n) if yes else None for f, m, v, k, yes in columns]


_NO_TIE = 1e-7
"""A margin for comparisons of expected counts. These are often round numbers, and rounding errors must not
decide."""
