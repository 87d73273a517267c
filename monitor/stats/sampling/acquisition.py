"""Random selection of answers to label, which prefers answers that are informative about the accuracy.

The probability of selection of each answer is recorded. Estimates that weight answers by the inverse of this
probability are valid for all answers, even if the confidences are wrong.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from monitor.base.records import Floats, Ints
from monitor.stats.estimate.proportion import wilson_interval
from monitor.stats.labelled.active_testing import lure_weights

UNIFORM = 0.1
"""The share of the labels that is spread evenly over the answers. This share limits the weight of an answer
to 1 / `UNIFORM` times its weight in an even draw, even if the confidences are wrong."""

_FEWEST_FAILURES = 0.5  # expected wrong answers of the pool: 0 would give the accuracy no variance


def inclusion_probabilities(confidence: ArrayLike, n: int, *, uniform: float = UNIFORM) -> Floats:
    """Return the (N,) probabilities with which to select each answer for labelling; the sum is min(n, N).

    A probability is the sum of two parts. One part is equal for all answers. The other part is proportional
    to sqrt(c(1 − c) + (c − p)²), the root mean square distance of the outcome (1 or 0) from the accuracy p =
    mean(c). This part minimises the variance of the weighted accuracy (`monitor.stats.estimate.hajek`).
    Probabilities above 1 are lowered to 1, and the excess is divided among the other answers.

    If the confidences rank the answers well, such a selection narrows the interval. If not, the estimate is
    still unbiased, but its interval can be wider than with equal probabilities.

    Parameters
    ----------
    confidence : (N,) array of float
        Calibrated probability that each answer is right, 0 to 1.
    n : int
        Number of labels, at least 1. With N or more, every answer is selected.
    uniform : float
        Share of the labels in the equal part, above 0 and at most 1.

    Raises
    ------
    ValueError
        An argument is out of range.

    References
    ----------
    J. Neyman, *On the two different aspects of the representative method*, JRSS 97 (1934): the optimal
    allocation. C.-E. Särndal, B. Swensson, J. Wretman, *Model Assisted Survey Sampling* (1992), sections 3.6
    and 12.2.

    Examples
    --------
    >>> inclusion_probabilities([0.99, 0.99, 0.99, 0.5], 2).round(3).tolist()
    [0.333, 0.333, 0.333, 1.0]
    """
    c = _checked(confidence)
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n}")
    if not 0.0 < uniform <= 1.0:
        raise ValueError(f"uniform must be a share above 0 and at most 1, got {uniform}")
    if n >= len(c):
        return np.ones(len(c))
    scatter = np.sqrt(_scatter(c))
    total = scatter.sum()
    own = scatter / total if total > 0 else np.full(len(c), 1.0 / len(c))
    return _capped((1.0 - uniform) * own + uniform / len(c), n)


def draw(probability: ArrayLike, rng: np.random.Generator) -> Ints:
    """Select rows with these (N,) inclusion probabilities, and return their indices in ascending order.

    The selection is systematic, from a random order of the rows. If the sum of the probabilities is an
    integer, exactly as many rows are selected.

    References
    ----------
    W. G. Madow, *On the theory of systematic sampling, II*, Annals of Mathematical Statistics 20 (1949);
    Särndal, Swensson, Wretman (1992), section 3.6.

    Examples
    --------
    >>> draw([1.0, 0.5, 0.5, 1.0], np.random.default_rng(0)).tolist()
    [0, 2, 3]
    """
    pi = np.asarray(probability, dtype=np.float64)
    order = rng.permutation(len(pi))
    upto = np.cumsum(pi[order])
    # The sum is whole up to rounding, which must neither add nor lose a row.
    upto[-1:] = np.round(upto[-1:], 9)
    ticks = np.floor(upto - rng.random()).astype(np.int64)
    rows: Ints = np.sort(order[np.diff(ticks, prepend=-1) > 0])
    return rows


class Turns(NamedTuple):
    """A sample of n of N rows, drawn one after another without replacement.

    Parameters
    ----------
    row : (n,) int64
        The rows in the order of the draws.
    probability : (n,) float64
        The probability with which each draw selected its row among the remaining rows: q_m of
        `monitor.stats.labelled.active_testing.lure_weights`.
    """

    row: Ints
    probability: Floats


def draw_in_turn(chance: ArrayLike, n: int, rng: np.random.Generator) -> Turns:
    """Draw n rows one after another without replacement.

    The probability of a row is its `chance` divided by the sum over the remaining rows. The function sorts
    independent exponential waiting times with these rates. Their order has the same distribution as such
    draws. With the same generator state, a larger n gives the same first rows.

    Parameters
    ----------
    chance : (N,) array of float
        Proportional to the probability that a row is drawn first; 0 excludes a row.
    n : int
        Number of draws, at least 1. If fewer rows have a chance above 0, the result has only these rows.
    rng : numpy.random.Generator

    Raises
    ------
    ValueError
        An argument is out of range.

    References
    ----------
    P. S. Efraimidis, P. G. Spirakis, *Weighted random sampling with a reservoir*, Information Processing
    Letters 97 (2006).

    Examples
    --------
    >>> turns = draw_in_turn([1.0, 0.0, 3.0], 3, np.random.default_rng(0))
    >>> turns.row.tolist(), turns.probability.tolist()
    ([2, 0], [0.75, 1.0])
    """
    share = np.asarray(chance, dtype=np.float64)
    if share.ndim != 1 or not (np.isfinite(share) & (share >= 0.0)).all():
        raise ValueError("chance must be a list of numbers of 0 or more, one for each row")
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n}")
    open_ = np.flatnonzero(share > 0)
    waiting = rng.exponential(size=len(share))[open_] / share[open_]
    row: Ints = open_[np.argsort(waiting, kind="stable")]
    # Sum from the last draw, because a subtraction from the total would leave rounding errors.
    left = np.cumsum(share[row][::-1])[::-1]
    return Turns(row[:n], np.minimum(share[row] / left, 1.0)[:n])


def as_if_at_once(probability: ArrayLike, rows: int) -> Floats:
    """Return inclusion probabilities that correspond to the probabilities of successive draws.

    The result is for estimators that weight a label by the inverse of its inclusion probability and ignore
    the order of the draws. The result is n / (N v) with the weights v of `lure_weights`, so its inverse is
    proportional to v. The estimates are as accurate as with other unequal probabilities. They are not exactly
    unbiased, because a result above 1 becomes 1.

    Parameters
    ----------
    probability : (n,) array of float
        `Turns.probability` of a sample by `draw_in_turn`.
    rows : int
        The number N of rows before the first draw.

    Examples
    --------
    >>> as_if_at_once([1 / 4, 1 / 3], rows=4).round(6).tolist()
    [0.5, 0.5]
    """
    weight = lure_weights(probability, rows)
    return np.minimum(len(weight) / (rows * weight), 1.0)


class Widths(NamedTuple):
    """Expected widths, 0 to 1, of the interval of the realised accuracy for two ways to select labels.

    Parameters
    ----------
    chosen : float
        The width if rows are selected with the chosen probabilities.
    even : float
        The width if the same number of rows is selected with equal probabilities.
    """

    chosen: float
    even: float


def expected_widths(confidence: ArrayLike, probability: ArrayLike, level: float = 0.95) -> Widths:
    """Return the expected interval widths of the realised accuracy if the confidences are right.

    The interval is Wilson's for the effective number of labels, with the linearised variance Σ E(y − p)²/π /
    N² instead of the sample variance of the labels; π is the probability of each answer. With fewer than 100
    labels, the interval of `monitor.stats.estimate.hajek` is a few percent wider, because it includes one
    more right and one more wrong answer.

    Parameters
    ----------
    confidence : (N,) array of float
        The argument of `inclusion_probabilities`.
    probability : (N,) array of float
        The result of `inclusion_probabilities`.
    level : float
        Above 0 and below 1.

    Examples
    --------
    >>> confidence = np.r_[np.full(900, 0.99), np.full(100, 0.6)]
    >>> widths = expected_widths(confidence, inclusion_probabilities(confidence, 50))
    >>> round(widths.chosen, 3), round(widths.even, 3)
    (0.092, 0.132)
    """
    c, pi = _checked(confidence), np.asarray(probability, dtype=np.float64)
    if c.shape != pi.shape:
        raise ValueError(f"probability must have the shape of confidence, {c.shape}, got {pi.shape}")
    least = _FEWEST_FAILURES / len(c)
    p = min(max(float(c.mean()), least), 1.0 - least)
    variance = float((_scatter(c) / pi).sum()) / len(c) ** 2
    even = float(pi.sum())
    chosen = p * (1.0 - p) / variance if variance > 0 else even
    return Widths(_width(p, chosen, level), _width(p, even, level))


def expected_turn_widths(error: ArrayLike, chance: ArrayLike, n: int, level: float = 0.95) -> Widths:
    """Return the expected interval widths of `active_testing` if the expected errors are right.

    The interval is for the accuracy. The variance of the weighted mean error of n draws is (Σ e/q / N² − R²)
    / n, with the expected errors e, their mean R, and the probabilities q of the first draw. The interval is
    Wilson's for the effective number of labels. The formula is for draws with replacement; without
    replacement, the interval of many draws is narrower.

    Parameters
    ----------
    error : (N,) array of float
        Probability that each answer is wrong, 0 to 1.
    chance : (N,) array of float
        Proportional to the probability that a row is drawn first; above 0.
    n : int
        Number of draws.
    level : float
        Above 0 and below 1.

    Examples
    --------
    >>> error = np.r_[np.full(900, 0.01), np.full(100, 0.4)]
    >>> widths = expected_turn_widths(error, error + 0.005, 50)
    >>> round(widths.chosen, 3), round(widths.even, 3)
    (0.113, 0.132)
    """
    e, q = _checked(error), np.asarray(chance, dtype=np.float64)
    if e.shape != q.shape or not (q > 0.0).all():
        raise ValueError(f"chance must be above 0 and have the shape of error, {e.shape}, got {q.shape}")
    least = _FEWEST_FAILURES / len(e)
    wrong = min(max(float(e.mean()), least), 1.0 - least)
    variance = float((e / (q / q.sum())).sum()) / len(e) ** 2 - wrong**2
    chosen = n * wrong * (1.0 - wrong) / variance if variance > 0 else float(n)
    return Widths(_width(1.0 - wrong, chosen, level), _width(1.0 - wrong, float(n), level))


def _width(p: float, n: float, level: float) -> float:
    lower, upper = wilson_interval(p, n, level)
    return upper - lower


def _scatter(c: Floats) -> Floats:
    """Return E(y − p)² for each answer."""
    p = c.mean()
    squares: Floats = c * (1.0 - c) + (c - p) ** 2
    return squares


def _capped(share: Floats, n: int) -> Floats:
    """Return `n` times each share, at most 1, with the shares below 1 scaled up so that the sum is n."""
    certain = np.zeros(len(share), dtype=np.bool_)
    while True:
        free = share[~certain]
        capped = np.where(certain, 1.0, share * ((n - int(certain.sum())) / free.sum()))
        more = (capped > 1.0) & ~certain
        if not more.any():
            return capped
        certain |= more


def _checked(confidence: ArrayLike) -> Floats:
    c = np.asarray(confidence, dtype=np.float64)
    if c.ndim != 1 or not len(c) or not ((c >= 0.0) & (c <= 1.0)).all():
        raise ValueError("confidence must be numbers from 0 to 1, one for each answer, and not empty")
    return c
