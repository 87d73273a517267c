"""The choice of answers to label: more often those that tell more about the accuracy.

Every answer has a recorded probability, so estimates weighted by its inverse are for all answers, even if the
confidences are wrong.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from monitor.base.records import Floats, Ints
from monitor.stats.estimate.proportion import wilson_interval
from monitor.stats.labelled.active_testing import lure_weights

UNIFORM = 0.1
"""Share of the labels spread evenly: no answer weighs more than 1 / `UNIFORM` times its weight in an even
draw, even if the confidences are wrong."""

_FEWEST_FAILURES = 0.5  # of the pool: with every confidence at 1 the expected accuracy would have no scatter


def inclusion_probabilities(confidence: ArrayLike, n: int, *, uniform: float = UNIFORM) -> Floats:
    """(N,) probabilities of each answer to be among n labelled ones; their sum is min(n, N).

    They are proportional to sqrt(c(1 − c) + (c − p)²), the expected distance of right or wrong from the
    accuracy p = mean(c), which minimises the variance of the weighted share (`monitor.stats.estimate.hajek`),
    mixed with an even share. Values above 1 become 1, and the others share the rest.

    It helps if the confidences rank the answers: otherwise the estimate stays unbiased, but its interval can
    be wider than with an even draw.

    Parameters
    ----------
    confidence : (N,) array of float
        Calibrated probability of each answer to be right, 0 to 1.
    n : int
        Labels to draw, at least 1. With N or more, every answer is drawn.
    uniform : float
        Evenly spread share of the labels, above 0 and at most 1.

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
    """Rows drawn with the (N,) `inclusion_probabilities`, rising: systematically, from a random order.

    If the sum of the probabilities is whole, it is always the number of rows.

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
    """n of N rows drawn one after another, without replacement.

    Parameters
    ----------
    row : (n,) int64
        In the order of the draws.
    probability : (n,) float64
        The probability of each among those left at its draw: q_m of
        `monitor.stats.labelled.active_testing.lure_weights`.
    """

    row: Ints
    probability: Floats


def draw_in_turn(chance: ArrayLike, n: int, rng: np.random.Generator) -> Turns:
    """Draw n rows one after another, each with its probability among those left.

    It is done at once: the order of independent exponential waiting times with these rates is such an order
    of draws. More draws with the same generator begin with the same n.

    Parameters
    ----------
    chance : (N,) array of float
        Proportional to the probability of each row to be the first; 0 excludes a row.
    n : int
        Draws, at least 1; fewer if fewer rows can be drawn.
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
    # Summed from the last draw: subtraction from the whole would leave rounding errors.
    left = np.cumsum(share[row][::-1])[::-1]
    return Turns(row[:n], np.minimum(share[row] / left, 1.0)[:n])


def as_if_at_once(probability: ArrayLike, rows: int) -> Floats:
    """Probabilities of n rows drawn at once that give the same weights as their draws in turn.

    They are n / (N v), with v the weights of `lure_weights`, for estimators that know no draws and weight a
    label by the inverse of its `probability`. These estimators are as good as with other unequal
    probabilities, but no longer exactly unbiased: a weight below 1 becomes 1.

    Parameters
    ----------
    probability : (n,) array of float
        From `draw_in_turn`.
    rows : int
        N.

    Examples
    --------
    >>> as_if_at_once([1 / 4, 1 / 3], rows=4).round(6).tolist()
    [0.5, 0.5]
    """
    weight = lure_weights(probability, rows)
    return np.minimum(len(weight) / (rows * weight), 1.0)


class Widths(NamedTuple):
    """Expected widths, 0 to 1, of the realised accuracy's interval.

    Parameters
    ----------
    chosen : float
        With n labels drawn by these probabilities.
    even : float
        With n labels drawn evenly.
    """

    chosen: float
    even: float


def expected_widths(confidence: ArrayLike, probability: ArrayLike, level: float = 0.95) -> Widths:
    """The expected width of the realised accuracy's interval, if the confidences are right.

    The interval is Wilson's at the effective number of labels, with the linearised variance Σ E(y − p)²/π /
    N² instead of the labels' own. The interval of `monitor.stats.estimate.hajek` is some percent wider at
    fewer than 100 labels: it allows for one more right and one more wrong answer.

    Parameters
    ----------
    confidence, probability : (N,) array of float
        As in `inclusion_probabilities`, and its result.
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
    """The expected width of `active_testing`'s interval of the accuracy, if expected errors are right.

    The variance of n draws' weighted mean error is (Σ e/q / N² − R²) / n, with e the expected errors, R their
    mean and q the probabilities of a first draw; the interval is Wilson's at the effective number of labels.
    It ignores that rows are drawn without replacement, which makes the interval of many draws narrower.

    Parameters
    ----------
    error : (N,) array of float
        Probability of each answer to be wrong, 0 to 1.
    chance : (N,) array of float
        Proportional to the probability of each row to be the first; above 0.
    n : int
        Draws.
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
    """E(y − p)² of each answer."""
    p = c.mean()
    found: Floats = c * (1.0 - c) + (c - p) ** 2
    return found


def _capped(share: Floats, n: int) -> Floats:
    """`n` times each share, at most 1; the rest is scaled up accordingly."""
    certain = np.zeros(len(share), dtype=np.bool_)
    while True:
        free = share[~certain]
        found = np.where(certain, 1.0, share * ((n - int(certain.sum())) / free.sum()))
        more = (found > 1.0) & ~certain
        if not more.any():
            return found
        certain |= more


def _checked(confidence: ArrayLike) -> Floats:
    c = np.asarray(confidence, dtype=np.float64)
    if c.ndim != 1 or not len(c) or not ((c >= 0.0) & (c <= 1.0)).all():
        raise ValueError("confidence must be numbers from 0 to 1, one for each answer, and not empty")
    return c
