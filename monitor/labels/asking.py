"""Which answers to have labelled next: more often those that say more about the accuracy.

Every answer has a chance, and the chance is written down, so that estimates weighted by its inverse stay
those of all answers, whatever the confidences are worth.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from monitor.estimate.proportion import wilson_interval
from monitor.records import Floats, Ints

UNIFORM = 0.1
"""Share of the labels spread evenly: no answer weighs more than 1 / `UNIFORM` times what it would if drawn
evenly, also where the confidences are wrong."""

_FEWEST_FAILURES = 0.5  # of the pool: with every confidence at 1 the expected accuracy would have no scatter


def inclusion_probabilities(confidence: ArrayLike, n: int, *, uniform: float = UNIFORM) -> Floats:
    """Chance of each answer to be among n that are labelled.

    In proportion to sqrt(c(1 − c) + (c − p)²), the expected distance of right or wrong from the accuracy
    p = mean(c), which makes the variance of the weighted share (`monitor.estimate.hajek`) as small as it
    can be, mixed with an even share. What would be above 1 is 1, and the others share the rest.

    It helps as far as the confidences rank the answers: where they are wrong the estimate stays unbiased,
    but its interval can be wider than that of an even draw.

    Parameters
    ----------
    confidence : (N,) array of float
        Calibrated chance of each answer to be right, 0 to 1.
    n : int
        Labels to draw, at least 1. With N or more, every answer is drawn.
    uniform : float
        Share of the labels that is spread evenly, above 0 and at most 1.

    Returns
    -------
    (N,) float64
        Above 0, at most 1; they sum to min(n, N).

    Raises
    ------
    ValueError
        An argument is out of range.

    References
    ----------
    J. Neyman, *On the two different aspects of the representative method*, JRSS 97 (1934): the optimal
    allocation. C.-E. Särndal, B. Swensson, J. Wretman, *Model Assisted Survey Sampling* (1992), sections
    3.6 and 12.2.

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
    """Rows drawn with these chances: systematically, out of a random order.

    The number of rows is always the sum of the chances, where that is whole.

    Parameters
    ----------
    probability : (N,) array of float
        `inclusion_probabilities`.
    rng : numpy.random.Generator

    Returns
    -------
    (n,) int64
        Rising.

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
    # The sum is whole but for rounding, which must neither add a row nor lose one.
    upto[-1:] = np.round(upto[-1:], 9)
    ticks = np.floor(upto - rng.random()).astype(np.int64)
    rows: Ints = np.sort(order[np.diff(ticks, prepend=-1) > 0])
    return rows


class Widths(NamedTuple):
    """Expected widths of the realised accuracy's interval, 0 to 1.

    Parameters
    ----------
    chosen : float
        With n labels drawn by these chances.
    even : float
        With as many drawn evenly.
    """

    chosen: float
    even: float


def expected_widths(confidence: ArrayLike, probability: ArrayLike, level: float = 0.95) -> Widths:
    """How wide the realised accuracy's interval will be, if the confidences are right.

    The interval is Wilson's at as many labels of equal weight as would know the accuracy so well, with the
    linearised variance Σ E(y − p)²/π / N² in place of what the labels will show. The interval that
    `monitor.estimate.hajek` makes is some percent wider at fewer than 100 labels: it allows for one right
    and one wrong answer more.

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


def _width(p: float, n: float, level: float) -> float:
    lower, upper = wilson_interval(p, n, level)
    return upper - lower


def _scatter(c: Floats) -> Floats:
    """E(y − p)² of each answer."""
    p = c.mean()
    found: Floats = c * (1.0 - c) + (c - p) ** 2
    return found


def _capped(share: Floats, n: int) -> Floats:
    """`n` times each share, none above 1: those that would be are 1, the rest scaled until none is."""
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
        raise ValueError("confidence must be a list of numbers from 0 to 1, one an answer, and not empty")
    return c
