"""Distances between the distributions of a feature in the reference and in a window, from counts.

All statistics are computed from two arrays of counts over the same cells: bins of a number, categories of a
text, and missing values. A fixed threshold of a distance, such as 0.1 for the population stability index
(PSI), does not suit all windows. For example, without drift, the PSI of 10 equal bins exceeds 0.1 in a third
of windows of 100 rows. But it exceeds 0.033 in only one of a thousand windows of 1,000 rows. So the threshold
of each distance depends on the numbers of rows and cells.

Let N be the number of rows of the reference, n the number of rows of the window, B the number of cells, and X
a χ² variable with B − 1 degrees of freedom. Without drift,

* the statistic G of the likelihood-ratio test has the distribution of X,
* the PSI has the distribution of (1/n + 1/N)·X,
* the Jensen–Shannon divergence in bits has the distribution of (1/n + 1/N)·X / (8 ln 2).

These distributions are valid for large counts. So cells with fewer than `FEWEST_EXPECTED` expected rows are
joined, and Williams's factor corrects G. For both distances, one half is added to each count. Otherwise the
PSI would be infinite if the reference or the window has no rows in a cell.

A small p-value shows that the distributions differ. It does not show that the difference matters: with many
rows, every feature differs. The distances show how large a difference is. `monitor.stats.features.split`
computes how much of a change of the estimate the feature explains.

References
----------
S. Kullback, *Information Theory and Statistics* (1959), chapter 6, for the likelihood-ratio test of
homogeneity; N. Cressie, T. Read, *Multinomial goodness-of-fit tests*, JRSS B 46 (1984), for its relation to
χ²; D. A. Williams, *Improved likelihood ratio tests for complete contingency tables*, Biometrika 63 (1976).
J. Lin, *Divergence measures based on the Shannon entropy*, IEEE Transactions on Information Theory 37 (1991).
B. Yurdakul, J. Naranjo, *Statistical properties of the population stability index*, Journal of Risk Model
Validation 14 (2020), for the threshold of the PSI. Y. Benjamini, Y. Hochberg, *Controlling the false
discovery rate*, JRSS B 57 (1995).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc, chdtri

from monitor.base.records import Floats, Ints

Cell: TypeAlias = tuple[int, int]
"""The rows of the reference and of the window in a cell."""

FEWEST_EXPECTED = 5.0
"""The smallest expected number of rows of a cell in the smaller sample. Smaller cells are joined."""

LEVEL = 0.01
"""The probability that a distance exceeds its threshold without drift."""

FALSE_DISCOVERIES = 0.05
"""The largest expected share of features without drift among those that `discoveries` names."""


@dataclass(frozen=True, slots=True)
class Drift:
    """The distances between two samples of a feature, with their thresholds.

    Parameters
    ----------
    p_value : float
        Probability of a larger G without drift; 1 if there are too few rows for two cells.
    psi : float
        Population stability index in nats.
    psi_threshold : float
        Without drift, `psi` exceeds this value with the probability `level` of the function `drift`.
    distance : float
        Jensen–Shannon distance: the square root of the divergence in bits, 0 to 1.
    distance_threshold : float
    """

    p_value: float
    psi: float
    psi_threshold: float
    distance: float
    distance_threshold: float


def drift(before: Ints, now: Ints, level: float = LEVEL) -> Drift:
    """Return the distances between the counts of the reference and the counts of a window.

    Parameters
    ----------
    before, now : (B,) int64
        Rows in each cell, in the reference and in the window.
    level : float
        The probability with which each distance exceeds its threshold without drift, above 0 and below 1.

    Raises
    ------
    ValueError
        The shapes differ, a count is negative, or `level` is out of range.

    Examples
    --------
    >>> reference = np.array([1000, 1000, 1000, 1000])
    >>> same = drift(reference, np.array([28, 22, 27, 23]))
    >>> round(same.p_value, 2), same.psi < same.psi_threshold, same.distance < same.distance_threshold
    (0.8, True, True)
    >>> moved = drift(reference, np.array([70, 10, 10, 10]))
    >>> moved.p_value < 1e-9, round(moved.distance, 3), round(moved.distance_threshold, 3)
    (True, 0.382, 0.145)
    """
    if before.shape != now.shape or before.ndim != 1:
        raise ValueError(
            f"before and now must be counts of the same cells, got shapes {before.shape} and {now.shape}"
        )
    if min(before.min(initial=0), now.min(initial=0)) < 0:
        raise ValueError(f"counts must not be negative, got {before.tolist()} and {now.tolist()}")
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level}")
    cells = _joined(list(zip(before.tolist(), now.tolist(), strict=True)))
    if len(cells) < 2:
        return Drift(1.0, 0.0, math.inf, 0.0, 1.0)
    degrees = len(cells) - 1
    threshold = sum(1.0 / sum(side) for side in zip(*cells, strict=True)) * float(chdtri(degrees, level))
    shares = _shares(cells)
    return Drift(
        p_value=float(chdtrc(degrees, max(_likelihood_ratio(cells), 0.0))),
        psi=sum((q - p) * math.log(q / p) for p, q in shares),
        psi_threshold=threshold,
        distance=math.sqrt(_divergence(shares)),
        distance_threshold=min(math.sqrt(threshold / (8 * math.log(2))), 1.0),
    )


def discoveries(p_values: Floats, level: float = FALSE_DISCOVERIES) -> NDArray[np.bool_]:
    """Return a mask (F,) of the features that have drifted, by the procedure of Benjamini and Hochberg.

    The expected share of false discoveries among all discoveries is at most `level` if the p-values are
    independent or positively dependent.

    Parameters
    ----------
    p_values : (F,) float64
    level : float

    Examples
    --------
    >>> discoveries(np.array([0.001, 0.03, 0.04, 0.5])).tolist()
    [True, False, False, False]
    >>> discoveries(np.array([0.001, 0.02, 0.03, 0.5])).tolist()
    [True, True, True, False]
    """
    many = len(p_values)
    order = np.argsort(p_values, kind="stable")
    below = np.flatnonzero(p_values[order] <= level * np.arange(1, many + 1) / max(many, 1))
    chosen = np.zeros(many, dtype=np.bool_)
    if len(below):
        chosen[order[: below[-1] + 1]] = True
    return chosen


def median_shift(edges: Floats, before: Ints, now: Ints) -> float | None:
    """Return the shift of a number's median, in interquartile ranges of the reference.

    Quantiles are interpolated within a bin. A median beyond the outermost edge is set to this edge, so the
    true shift may be larger.

    Parameters
    ----------
    edges : (B - 1,) float64
        The ascending edges between the bins.
    before, now : (B,) int64
        Rows in each bin, in the reference and in the window.

    Returns
    -------
    float or None
        None if the reference or the window has no rows, or if the interquartile range of the reference is 0.

    Examples
    --------
    >>> edges = np.array([0.0, 1.0, 2.0, 3.0, 4.0])
    >>> median_shift(edges, np.array([0, 25, 25, 25, 25, 0]), np.array([0, 0, 25, 25, 25, 25]))
    0.5
    """
    if not before.sum() or not now.sum() or not len(edges):
        return None
    low, middle, high = _quantiles(edges, before, [0.25, 0.5, 0.75])
    (moved,) = _quantiles(edges, now, [0.5])
    return (moved - middle) / (high - low) if high > low else None


def _quantiles(edges: Floats, counts: Ints, levels: list[float]) -> list[float]:
    below = counts.cumsum()[:-1] / counts.sum()
    quantiles: list[float] = np.interp(levels, below, edges).tolist()
    return quantiles


# The tables are so small that loops are about twice as fast as calls of numpy.


def _joined(cells: Sequence[Cell]) -> list[Cell]:
    """Join small cells, in order, until each has enough expected rows."""
    sides = [sum(side) for side in zip(*cells, strict=True)]
    smaller = min(sides, default=0) / max(sum(sides), 1)  # the share of the smaller sample in all rows
    kept = [cell for cell in cells if (cell[0] + cell[1]) * smaller >= FEWEST_EXPECTED]
    a, b = 0, 0
    for cell in cells:
        if (cell[0] + cell[1]) * smaller >= FEWEST_EXPECTED:
            continue
        a, b = a + cell[0], b + cell[1]
        if (a + b) * smaller >= FEWEST_EXPECTED:
            kept.append((a, b))
            a, b = 0, 0
    if not kept:
        return [(a, b)]
    least = min(range(len(kept)), key=lambda k: kept[k][0] + kept[k][1])
    kept[least] = kept[least][0] + a, kept[least][1] + b  # the rest goes to the smallest cell
    return kept


def _likelihood_ratio(cells: Sequence[Cell]) -> float:
    """Return the statistic G of homogeneity, divided by Williams's factor."""
    before, now = zip(*cells, strict=True)
    rows, columns = (sum(before), sum(now)), [a + b for a, b in cells]
    total = sum(rows)
    # The sum of O·log(O / E) with E = row·column / total, of which each logarithm is taken once.
    statistic: float = 2.0 * (
        sum(count * math.log(count) for count in (*before, *now) if count)
        - sum(count * math.log(count) for count in (*rows, *columns))
        + total * math.log(total)
    )
    by_rows = total * sum(1.0 / count for count in rows) - 1.0
    by_cells = total * sum(1.0 / count for count in columns) - 1.0
    williams: float = 1.0 + by_rows * by_cells / (6.0 * total * (len(cells) - 1))
    return statistic / williams


def _shares(cells: Sequence[Cell]) -> list[tuple[float, float]]:
    """Return the shares of both samples in each cell, with half a row more in each."""
    many, few = (sum(side) + 0.5 * len(cells) for side in zip(*cells, strict=True))
    return [((a + 0.5) / many, (b + 0.5) / few) for a, b in cells]


def _divergence(shares: Sequence[tuple[float, float]]) -> float:
    """Return the Jensen–Shannon divergence in bits, 0 to 1."""
    nats = sum(p * math.log(2 * p / (p + q)) + q * math.log(2 * q / (p + q)) for p, q in shares)
    return min(max(nats / (2.0 * math.log(2)), 0.0), 1.0)
