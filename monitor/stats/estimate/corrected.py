"""The accuracy of a window, corrected by labels: a state-space model of the bias of the confidences.

**The model.** An answer with the calibrated confidence c is right with probability expit(k·logit c + x). The
factor k ≥ 1 is a constant of the model (see **Stretch**). The bias x, in logits, is constant within a block
of rows. A block has a tenth of a window's rows, or a fifth if
the window has less than 1,000 rows, and at least 25 rows. No block belongs to two windows. The bias is x = s
+ g₁·f₁ + g₂·f₂. s is a random walk with the variance q in 10,000 rows. f₁ and f₂ are Ornstein–Uhlenbeck
processes with the variance v and the correlation length ℓ in rows. g² is the share of a process's variance
that remains in the mean over the block's rows. The parameters of the motion are unknown, so each (q, v₁, ℓ₁,
v₂, ℓ₂) of `HYPOTHESES` is a hypothesis with a weight. At the start, s has the variance of the calibration's
fit, and f₁ and f₂ are stationary.

**Prior weights.** The filter first runs over the cross-fitted reference in time order. It starts with the
weight `STILL` on the first hypothesis, in which only the slow walk moves, and with equal weights on the
others. The prior is a mixture: nine tenths of the weights at the end of the reference, and one tenth of the
weights at its start. So a reference without movement gives narrow intervals, but movement remains possible
later. In each block, 0.2 % of the weight returns to the prior.

**Stretch.** k² = 1 + π/8·Σ w·(v₁ + v₂), with the prior weights w. With this factor, the probability averaged
over f₁ and f₂ is about the confidence.

**Labels.** The state of each hypothesis is normal. The filter multiplies the state by the exact likelihood of
a block's labels, and integrates the product at 11 points around the common peak. The mean and variance of the
product become the new state (an assumed-density filter), and the integral multiplies the weight of the
hypothesis. The likelihood has a floor, so that one block with wrong labels cannot remove all hypotheses but
one.

**A window.** The number of right answers in a window is the number among its labelled rows, plus the expected
number among its unlabelled rows at the bias of their blocks. For each window to estimate, the expected
numbers since its first row are summed, and the sum is a component of each hypothesis's state. So one pass
estimates a window alone and together with the windows before it. Each block adds its statistical
linearisation to the sum: the mean, the covariance with the bias, and the variance around the line. Later
labels correct the sum through the covariance, so the filter needs neither a backward pass nor simulated
paths. The ends of the interval are quantiles of the mixture in logits. For this, each count is converted to
the bias that would give this count if all rows had the same bias. Deviations of the bias below the mean are
multiplied by 1.2, and deviations above it by 1.1, because the true motion may differ from every hypothesis.
The binomial variance of the count at the mean is added on each side, and the ends are rounded to whole
numbers of right answers. The value is the mean. Labels of later windows do not count.

**Late labels** count in the block of their answer. Sums over a block are integer multiples of 2⁻³⁰. So the
result does not depend on the order of labels or on the division into batches, and a label moves its row
exactly from the unlabelled to the labelled rows of its window. The newest `WINDOWS` closed windows can be
estimated. About `BLOCKS` blocks with labels are kept. Older blocks merge in pairs, first the pairs that are
shortest in relation to their distance from the newest block. So even a label that arrives a thousand windows
late belongs to a block of about its time.

**A new calibration** changes later rows only: `recalibrated` moves s by the mean difference of the logits,
and no label counts twice. A new version of the model starts from the prior (`restarted`). Late labels of the
former version still revise its windows.

**A group** of a model's answers has a separate correction of its rows (`from_group`). The initial bias is the
difference between the group's reference and the model's calibration, shrunk with a variance of 0.04 between
groups. A model's new calibration applies to whole windows. A group's window may last for weeks, so for a
group a new calibration applies to the rows after it came, even within a window.

**Assumptions.** Among rows of one block with the same confidence, labelling does not depend on whether the
answer was right. The bias is the same shift in logits for all confidences of a block.

**When it misleads.** The estimate misleads after a lasting jump of the bias while there are few labels; with
1 % of 500 rows, a window has only five. It also misleads if the labelled part of the traffic has another bias
than the rest.

`tests/stats/estimate/test_corrected.py` compares the results with simulated paths. Sources: the mixture of
hypotheses is a switching state-space model (H. A. P. Blom, Y. Bar-Shalom, IEEE Transactions on Automatic
Control 33, 1988). P. S. Maybeck, *Stochastic Models, Estimation, and Control* II (1982), describes
assumed-density filters and statistical linearisation. The hypotheses, the prior and both factors are ours.
They were chosen on the demo's flights and on simulated streams (`python -m tests.fidelity.streams`).
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from monitor.base.errors import ConfigError
from monitor.base.records import Floats, Ints
from monitor.base.results import Estimate, Reason, Result, Unknown
from monitor.stats.estimate.poisson_binomial import checked_level, checked_probabilities
from monitor.stats.estimate.variance_components import remembered

HYPOTHESES = tuple(
    (q, v1, l1, v2, l2)
    for q in (1e-4, 1e-2)
    for v1, l1 in ((0.0, 100.0), *((v, length) for v in (0.1, 0.4, 1.5) for length in (100.0, 400.0)))
    for v2, l2 in ((0.0, 1000.0), (0.2, 1000.0), (0.2, 3000.0))
)
"""The hypotheses: the variance of s in 10,000 rows, then the variance and length in rows of f₁ and of f₂. All
variances are in logits²."""

STILL = 0.95
"""The weight of the first hypothesis before the reference is read. In this hypothesis, only the slow walk
moves."""

WINDOWS = 6
"""The number of newest closed windows of a series that can be estimated."""

BLOCKS = 80
"""The number of blocks with labels that are kept: ten for each kept window, and older blocks, which merge."""

UNIT = 2.0**-30
"""The unit of sums over rows. The sums are integer multiples, so they do not depend on the order of rows."""

FARTHEST = 6.0
NODES: Floats = FARTHEST * np.cos(np.pi * (np.arange(21) + 0.5) / 21)
"""Chebyshev nodes of the bias, in logits. Sums are stored at these nodes. Between them, interpolation is
exact to 10⁻⁵ for each row."""

LATTICE: Floats = np.linspace(-FARTHEST, FARTHEST, 401)

_FEWEST_ROWS = 25  # in a full block
_FROM_REFERENCE = 0.9  # the reference's share of the prior
_KEPT = 0.998  # the share of the weights that is kept from block to block
_LASTING = 0.003  # logits²: variance of the reference's own mean
_UNKNOWN = 0.5  # logits²: variance of the bias without a labelled reference
_BETWEEN = 0.04  # logits²: variance of groups' biases around their model's
_GROUP_ROWS = 1000  # the fewest rows of a group's reference that change the hypotheses' weights
_LEAST, _LEAST_WEIGHT = 1e-6, 1e-4  # floors relative to the largest likelihood: of a point, of a hypothesis
_WIDER = (1.2, 1.1)  # deviations below and above the mean
_NEAREST = 1e-6  # the least distance of confidences from 0 and 1
_SHOWN = 1e-4  # the least weight of a hypothesis in the interval
_STEPS, _NEAR = 30, 1e-4  # the most steps to a quantile, and how near it is, in its own deviations
_MERGED_AT_ONCE = 8  # pairs of blocks
_CACHED = 12  # beliefs after old blocks
_CACHED_WITHIN = 2  # beliefs after blocks of kept windows; the counts of each take 15 kB
_SHIFTS = 16  # recalibrations that are kept separately
_BIAS = 3  # components of the state: s, f₁ and f₂; counts follow

_RISE: Floats = np.linspace(0.0, 1e-10, len(LATTICE))  # so that counts can be inverted
_STEP = float(LATTICE[1] - LATTICE[0])
_BETWEEN_POINTS: Floats = (LATTICE[1:] + LATTICE[:-1]) / 2
_POINTS: Floats = np.linspace(-3.5, 3.5, 11)
_POWERS: Floats = np.stack([_POINTS**0, _POINTS, _POINTS**2])
_STANDARD: Floats = np.exp(-(_POINTS**2) / 2) / np.exp(-(_POINTS**2) / 2).sum()
_ODDS: Floats = np.exp(NODES)
_TO_LATTICE = np.linalg.solve(
    *(np.polynomial.chebyshev.chebvander(each / FARTHEST, len(NODES) - 1).T for each in (NODES, LATTICE))
).astype(np.float64)
_WALK, _VARIANCE, _LENGTH = (np.array(HYPOTHESES).T[rows] for rows in (0, [1, 3], [2, 4]))
_MANY = len(HYPOTHESES)
_MOVING: Floats = _VARIANCE.sum(axis=0)
_ONES, _ZEROS = np.ones(_MANY), np.zeros(_MANY)
_START: Floats = np.where(np.arange(_MANY) == 0, STILL, (1 - STILL) / (_MANY - 1))


@lru_cache(maxsize=256)
def _motion(rows: float) -> tuple[Floats, Floats]:
    """Return the shares of f₁ and f₂ that remain after `rows` rows, and the variances that s, f₁, f₂ gain."""
    left = np.exp(-rows / _LENGTH)
    gained = np.zeros((_BIAS, _BIAS, _MANY))
    gained[0, 0] = _WALK * rows / 10_000
    gained[[1, 2], [1, 2]] = _VARIANCE * (1 - left**2)
    return left, gained


@lru_cache(maxsize=256)
def _loading(rows: int) -> Floats:
    """Return the share of s, f₁ and f₂ in the mean bias of a block of `rows`, (3, hypotheses)."""
    shares = [[math.sqrt(remembered(rows, length)) for length in each] for each in _LENGTH.tolist()]
    return np.vstack([np.ones(_MANY), shares])


class _Run(NamedTuple):
    """The terms of a run of blocks: loadings on the state at its start, and the covariances added within it.

    Parameters
    ----------
    load : (blocks, 3, hypotheses) float64
        The shares of s, f₁ and f₂, at the middle of the first block, in the mean bias of each block.
    left : (3, hypotheses) float64
        The shares of s, f₁ and f₂ that remain at the middle of the last block.
    between : (blocks, blocks, hypotheses) float64
        The covariance that the biases of two blocks gain within the run.
    own : (blocks, hypotheses) float64
        The variance that the bias of each block gains.
    at_end : (blocks, 3, hypotheses) float64
        The covariance that the bias of each block gains with s, f₁ and f₂ at the middle of the last block.
    """

    load: Floats
    left: Floats
    between: Floats
    own: Floats
    at_end: Floats


@lru_cache(maxsize=256)
def _run_of(rows: tuple[int, ...]) -> _Run:
    """Return the terms of a run of blocks without labels, from the number of rows of each block."""
    middle = np.cumsum(rows) - np.array(rows) / 2
    apart = np.abs(middle - middle[:, None])
    left = np.ones((len(rows), len(rows), _BIAS, _MANY))
    left[:, :, 1:] = np.exp(-apart[:, :, None, None] / _LENGTH)
    gained = np.stack([_motion(since)[1][range(_BIAS), range(_BIAS)] for since in apart[0].tolist()])
    both = left * np.minimum(gained[:, None], gained)  # it never falls along the run
    load = np.stack([_loading(many) for many in rows])
    between = (load[:, None] * load * both).sum(axis=2)
    own = between[range(len(rows)), range(len(rows))]
    return _Run(load * left[0], left[0, -1], between, own, load * both[:, -1])


class Forecast(NamedTuple):
    """The mean and the standard deviation of the bias of future rows, in logits."""

    mean: float
    deviation: float


class _Belief(NamedTuple):
    """The weight and the normal state of each hypothesis at a place in the stream.

    Parameters
    ----------
    at : float
    weight : (hypotheses,) float64
    state : (5, 3 + counts, hypotheses) float64
        The moments of s, f₁, f₂ and the counts since the first rows of some windows: the covariances with s,
        f₁ and f₂, the mean, and the variance of a count.
    """

    at: float
    weight: Floats
    state: Floats

    def counting_from_here(self) -> _Belief:
        """Return the same belief with one more count, which is zero.

        Only the newest `WINDOWS` counts are kept.
        """
        before = self.state[:, :_BIAS], self.state[:, _BIAS:][:, 1 - WINDOWS :]
        return self._replace(state=np.concatenate([*before, np.zeros((5, 1, _MANY))], axis=1))

    def with_counts(self, counts: Floats) -> _Belief:
        """Return the same belief with these counts at its place, (5, counts, hypotheses)."""
        return self._replace(state=np.concatenate([self.state[:, :_BIAS], counts], axis=1))

    def without_counts(self) -> _Belief:
        """Return the same belief of the bias alone."""
        return self._replace(state=self.state[:, :_BIAS].copy())


class _Passed(NamedTuple):
    """The beliefs after a window's last block with labels (without counts), and after its last block.

    The first belief skips blocks without labels, so it does not depend on which windows are counted.
    """

    labelled: _Belief
    counted: _Belief


def _started(at: float, variance: float, weight: Floats, mean: float = 0.0) -> _Belief:
    state = np.zeros((5, _BIAS, _MANY))
    state[0, 0] = variance
    state[3, 0] = mean
    state[[1, 2], [1, 2]] = _VARIANCE
    return _Belief(at, weight, state)


def _moved(belief: _Belief, at: float, prior: Floats, share: float) -> _Belief:
    """Return the belief at a later place if there are no labels in between.

    `share` is the share of the weights that does not return to the prior.
    """
    rows = at - belief.at
    if rows <= 0:
        return belief
    left, gained = _motion(rows)
    state = belief.state.copy()
    state[1:_BIAS] *= left[:, None]
    state[:4, 1:_BIAS] *= left
    state[:_BIAS, :_BIAS] += gained
    return _Belief(at, prior + share * (belief.weight - prior), state)


def _after_block(belief: _Belief, rows: int, gains: Ints | None, unlabelled: Ints | None) -> _Belief:
    """Return the belief after the labels of a block. `belief` is at the middle of this block.

    Parameters
    ----------
    belief : _Belief
    rows : int
    gains : (21,) int64 or None
        Log-likelihood of the block's labels; None without labels.
    unlabelled : (21,) int64 or None
        The expected right answers among the block's unlabelled rows, if they must be counted.
    """
    load, weight, state = _loading(rows), belief.weight, belief.state.copy()
    along = np.add.reduce(state[:_BIAS] * load[:, None])  # covariance with the bias
    mean = np.add.reduce(state[3, :_BIAS] * load)
    deviation = np.sqrt(np.maximum(np.add.reduce(along[:_BIAS] * load), 1e-9))
    along /= deviation
    sums = _on_lattice(*(each for each in (gains, unlabelled) if each is not None))
    away, masses, whole, first = _POINTS[:, None], _STANDARD[:, None], _ONES, _ZEROS
    known, middle = _ONES, _ZEROS
    if gains is not None:
        # The points cover most of the mass of labels and state together, in deviations from the mean.
        top, information = _peak(sums[0])
        steep = information * deviation
        known = 1 / np.sqrt(1 + steep * deviation)
        middle = steep * known * known * (top - mean)
        away = known * away
        away += middle
    points = deviation * away
    points += mean
    values = _read(sums, points)
    if gains is not None:
        away *= away
        away *= -0.5
        masses = np.exp(away, out=away)
        masses *= np.exp(values[0]) + _LEAST
        whole, first, second = _POWERS @ masses
        first /= whole
        less = np.minimum(known * known * (second / whole - first * first), 1.0) - 1.0
        evidence = known * whole
        weight = weight * (evidence + _LEAST_WEIGHT * evidence.max())
        weight /= np.add.reduce(weight)
        lessened = less * along
        state[:_BIAS] += lessened[:_BIAS, None] * along
        state[3] += (middle + known * first) * along
        state[4] += lessened * along
    if unlabelled is not None:
        _add_counts(state, along, (known, whole, first), masses, values[-1])
    return _Belief(belief.at, weight, state)


def _add_counts(
    state: Floats, along: Floats, labels: tuple[Floats, Floats, Floats], masses: Floats, values: Floats
) -> None:
    """Add the right answers among a block's unlabelled rows to the counts of a state.

    Parameters
    ----------
    state : (5, 3 + counts, hypotheses) float64
    along : (3 + counts, hypotheses) float64
        The covariance of the state with the bias before the labels, in standard deviations of the bias.
    labels : three of (hypotheses,) float64
        The share of the deviation that the points span, the sum of `masses`, and the mean place weighted by
        `masses`.
    masses, values : (11, hypotheses) float64
        The weights of the points, and the expected right answers at each point.
    """
    known, whole, first = labels
    weighted = masses * values
    counted, leaning = _POWERS[:2] @ weighted / whole
    weighted *= values
    spread = np.add.reduce(weighted) / whole - counted * counted
    beside = known * (leaning - first * counted) * along
    state[:_BIAS, _BIAS:] += beside[:_BIAS, None]
    state[3, _BIAS:] += counted
    state[4, _BIAS:] += 2 * beside[_BIAS:] + np.maximum(spread, 0.0)


def _after_unlabelled(belief: _Belief, rows: tuple[int, ...], unlabelled: Ints) -> Floats:
    """Return the counts at the middle of the last of several blocks without labels.

    `_after_block` and `_moved` compute the same result block by block. Without labels, the bias only drifts,
    so its mean and covariance can be computed for all blocks at once.

    Parameters
    ----------
    belief : _Belief
        At the middle of the first block.
    rows : tuple of int
        Of each block.
    unlabelled : (blocks, 21) int64
        The expected right answers among the unlabelled rows of each block.

    Returns
    -------
    (5, counts, hypotheses) float64
        As in the state of a belief.
    """
    run, state = _run_of(rows), belief.state
    along = (state[:_BIAS, :_BIAS] * run.load[:, :, None]).sum(axis=1)  # covariance with each bias
    variance = np.maximum((along * run.load).sum(axis=1) + run.own, 1e-9)
    deviation, mean = np.sqrt(variance), (state[3, :_BIAS] * run.load).sum(axis=1)
    points = mean[:, None] + deviation[:, None] * _POINTS[:, None]
    values = _read_each((unlabelled * UNIT) @ _TO_LATTICE, points)
    weighted = values * _STANDARD[:, None]
    counted = weighted.sum(axis=1)
    slope = (weighted * _POINTS[:, None]).sum(axis=1) / deviation
    beside = (weighted * values).sum(axis=1) - counted * counted - slope * slope * variance
    lean, covariance = (run.load * slope[:, None]).sum(axis=0), (along * slope[:, None]).sum(axis=0)
    spread = np.maximum(beside, 0.0).sum(axis=0) + (lean * covariance).sum(axis=0)
    spread += (slope * (run.between * slope[:, None]).sum(axis=0)).sum(axis=0)
    counts = state[:, _BIAS:].copy()
    counts[4] += spread + 2 * (counts[:_BIAS] * lean[:, None]).sum(axis=0)
    counts[3] += counted.sum(axis=0)
    counts[:_BIAS] *= run.left[:, None]
    counts[:_BIAS] += (run.left * covariance + (run.at_end * slope[:, None]).sum(axis=0))[:, None]
    return counts


def _forecast(belief: _Belief, rows: int) -> Forecast:
    """Return the bias of a block of `rows` rows. The belief is at the middle of the block."""
    load = _loading(rows)
    along = (belief.state[:4, :_BIAS] * load).sum(axis=1)
    mean = float(belief.weight @ along[3])
    variance = (along[:_BIAS] * load).sum(axis=0) + (along[3] - mean) ** 2
    return Forecast(mean, math.sqrt(max(float(belief.weight @ variance), 0.0)))


def _on_lattice(*units: Ints) -> Floats:
    """Return sums at `NODES`, each (21,), as values on `LATTICE`, (sums, 401)."""
    # Separately: a product of two rows differs from the products of each in its last bits.
    values = np.empty((len(units), len(LATTICE)))
    for value, each in zip(values, units, strict=True):
        np.matmul(each * UNIT, _TO_LATTICE, out=value)
    return values


def _read(values: Floats, points: Floats) -> Floats:
    """Interpolate values on `LATTICE`, (sums, 401), at points, (m, hypotheses).

    They are constant beyond its ends.
    """
    at, share = _place_on_lattice(points)
    between: Floats = (values[:, 1:] - values[:, :-1]).take(at, axis=1)
    between *= share
    between += values.take(at, axis=1)
    return between


def _read_each(values: Floats, points: Floats) -> Floats:
    """Interpolate like `_read`, but each row of values, (sums, 401), at its own points, (sums, m, ...)."""
    at, share = _place_on_lattice(points)
    at += (np.arange(len(values)) * len(LATTICE))[:, None, None]
    low = values.take(at)
    at += 1
    between: Floats = (values.take(at) - low) * share
    between += low
    return between


def _place_on_lattice(points: Floats) -> tuple[NDArray[np.intp], Floats]:
    """Return the index of the lattice point below each point, and the share of the step from there."""
    place = points + FARTHEST
    place *= 1 / _STEP
    np.maximum(place, 0.0, out=place)
    np.minimum(place, len(LATTICE) - 1 - 1e-9, out=place)  # np.clip takes three times as long
    at = place.astype(np.intp)
    place -= at
    return at, place


def _peak(gains: Floats) -> tuple[float, float]:
    """Subtract the largest gain from the gains; return its bias, and the information there, 0 at an end."""
    at = int(gains.argmax())
    gains -= gains[at]
    if at in (0, len(gains) - 1):
        return 0.0, 0.0
    below, most, above = gains[at - 1 : at + 2].tolist()
    bend = 2 * most - below - above
    if bend <= 0:
        return 0.0, 0.0
    return float(LATTICE[at]) + _STEP * (above - below) / (2 * bend), bend / _STEP**2


def _stretched(confidence: Floats | NDArray[np.float32], weight: Floats) -> Floats:
    """Return stretched confidences, whose mean over the fast parts is about the original confidence.

    The confidences are first rounded to float32, like the stored confidences.
    """
    return shifted(confidence.astype(np.float32).astype(np.float64), _stretch(weight), 0.0)


def _stretch(weight: Floats) -> float:
    return math.sqrt(1 + math.pi / 8 * float(weight @ _MOVING))


def shifted(confidence: Floats, factor: Floats | float, shift: Floats | float) -> Floats:
    """Return the probability that each row is right, expit(factor · logit c + shift), (n,)."""
    chance: Floats = scipy.special.expit(
        factor * scipy.special.logit(np.clip(confidence, _NEAREST, 1 - _NEAREST)) + shift
    )
    return chance


def logit_change(before: Floats, after: Floats) -> tuple[float, float]:
    """Return the mean and variance of logit c_new − logit c_old, with the weights c_old(1 − c_old).

    Parameters
    ----------
    before, after : (n,) float64
        Confidences; n is 1 or more.

    Examples
    --------
    >>> change, variance = logit_change(np.array([0.5, 0.8]), np.array([0.6, 0.8]))
    >>> round(change, 3), round(variance, 3)
    (0.247, 0.039)
    """
    old, new = (np.clip(each, _NEAREST, 1 - _NEAREST) for each in (before, after))
    weight = old * (1 - old)
    moved = scipy.special.logit(new) - scipy.special.logit(old)
    change = float(weight @ moved) / float(weight.sum())
    return change, float(weight @ (moved - change) ** 2) / float(weight.sum())


def _expected(stretched: Floats) -> Floats:
    """Return the probability that each row is right at `NODES`, (n, 21), in integer multiples of `UNIT`."""
    chances = ((1 - stretched) / stretched)[:, None] * (UNIT / _ODDS)
    chances += UNIT
    return np.rint(np.reciprocal(chances, out=chances), out=chances)


def _gains(stretched: Floats, right: NDArray[np.bool_]) -> Ints:
    """Return each outcome's log-likelihood ratio to no bias at `NODES`, (n, 21), in multiples of `UNIT`."""
    gains = right[:, None] * NODES - np.log(stretched[:, None] * _ODDS + (1 - stretched)[:, None])
    units: Ints = np.rint(gains / UNIT).astype(np.int64)
    return units


@dataclass(frozen=True, slots=True, eq=False)
class Correction:
    """The settings of the correction of one series under one calibration: the prior of the bias.

    The constructors are `from_reference`, `from_group` and `unknown`.

    Parameters
    ----------
    variance : float
        The variance at the start of the slow part s of the bias (see the module), in logits².
    weights : (hypotheses,) float64
        Prior weights; their sum is 1.
    block_rows : int
        The number of rows in a block, 1 or more.
    mean : float
        The mean of the bias at the start, in logits.

    Raises
    ------
    ConfigError
        A number is out of its range.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> logic = Correction.from_reference(np.full(4000, 0.9), rng.random(4000) < 0.9, window_rows=500).build()
    >>> confidence = np.full(500, 0.9)
    >>> for window in range(20):
    ...     blocks = logic.close(window, confidence)
    ...     logic.push(blocks[::5], confidence[::5], rng.random(100) < 0.8)
    >>> accuracy = logic.estimate(19)
    >>> accuracy.lower < 0.8 < accuracy.upper, accuracy.upper - accuracy.lower < 0.15
    (True, True)
    """

    variance: float
    weights: Floats
    block_rows: int
    mean: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.variance < math.inf:
            raise ConfigError(f"variance must be 0 or more logits², got {self.variance}; see from_reference")
        if self.block_rows < 1:
            raise ConfigError(f"block_rows must be 1 row or more, got {self.block_rows}")
        if np.shape(self.weights) != (_MANY,) or not math.isclose(float(np.sum(self.weights)), 1.0):
            raise ConfigError(
                f"weights must be {_MANY} numbers whose sum is 1, got {np.size(self.weights)} whose sum is "
                f"{float(np.sum(self.weights)):g}; see from_reference"
            )

    @classmethod
    def from_reference(cls, confidence: ArrayLike, right: ArrayLike, window_rows: int) -> Correction:
        """Return the settings for a series with a labelled reference, whose rows are in order of time.

        Parameters
        ----------
        confidence : (N,) float64
            The confidence of each row, by a calibration that was fitted without this row
            (`cross_fit_in_time`).
        right : (N,) bool
        window_rows : int
            The number of rows in a full window.
        """
        checked, hits = _checked(confidence, right)
        rows = block_rows(window_rows)
        variance = 1 / max(float((checked * (1 - checked)).sum()), 1.0) + _LASTING
        return cls(variance, _learnt(checked, hits, rows, variance), rows)

    @classmethod
    def from_group(cls, confidence: ArrayLike, right: ArrayLike, window_rows: int) -> Correction:
        """Return the settings for a group, from the group's rows in the model's labelled reference.

        The rows are in order of time.

        Parameters
        ----------
        confidence : (m,) float64
            As in `from_reference`, by the model's calibration. m may be 0.
        right : (m,) bool
        window_rows : int
        """
        checked, hits = _checked(confidence, right)
        rows, information = block_rows(window_rows), float((checked * (1 - checked)).sum())
        off = float((hits - checked).sum()) / max(information, 1.0)
        mean = off * _BETWEEN / (_BETWEEN + 1 / max(information, 1.0))
        weights = _START
        if len(checked) >= _GROUP_ROWS:
            weights = _learnt(checked, hits, rows, _BETWEEN + _LASTING)
        return cls(1 / (1 / _BETWEEN + information) + _LASTING, weights, rows, mean)

    @classmethod
    def unknown(cls, window_rows: int) -> Correction:
        """Return the settings for a series without a labelled reference, which allow any bias."""
        return cls(_UNKNOWN, _START, block_rows(window_rows))

    @property
    def stretch(self) -> float:
        """The factor k by which the correction multiplies the logits of the confidences."""
        return _stretch(self.weights)

    @property
    def forecast(self) -> Forecast:
        """The distribution of the bias of future rows before any label."""
        return _forecast(_started(0.0, self.variance, self.weights, self.mean), self.block_rows)

    def build(self, resume: CorrectionState | None = None) -> CorrectionLogic:
        """Return a correction that starts from the prior, or resumes from a snapshot."""
        return CorrectionLogic(self, resume)


def block_rows(window_rows: int) -> int:
    """Return the number of rows in a full block (a run of rows with one bias) for windows of this size.

    Examples
    --------
    >>> [block_rows(rows) for rows in (40, 500, 5000)]
    [25, 100, 500]
    """
    if window_rows < 1:
        raise ConfigError(f"window_rows must be 1 row or more, got {window_rows}")
    return max(-(-window_rows // 10), min(-(-window_rows // 5), 100), _FEWEST_ROWS)


def block_starts(place: Ints, first: Ints | int, rows: int) -> Ints:
    """Return for each row the place of the first row of its block.

    A place is the index of a row among all rows of a series. A block is a run of rows with one bias.

    Parameters
    ----------
    place : (n,) int64
        The place of each row.
    first : (n,) int64 or int
        The place of the first row of each row's window.
    rows : int
        The number of rows in a full block.

    Examples
    --------
    >>> block_starts(np.arange(100, 105), 100, rows=2).tolist()
    [100, 100, 102, 102, 104]
    """
    return first + (place - first) // rows * rows


def _checked(confidence: ArrayLike, right: ArrayLike) -> tuple[Floats, NDArray[np.bool_]]:
    checked = checked_probabilities(np.asarray(confidence, dtype=np.float64), 1, "confidence")
    hits = np.asarray(right, dtype=np.bool_)
    if hits.shape != checked.shape:
        raise ValueError(f"right must have a value for each confidence, got {hits.shape} for {checked.shape}")
    return checked, hits


def _learnt(confidence: Floats, right: NDArray[np.bool_], rows: int, variance: float) -> Floats:
    """Return the prior weights after a reference."""
    weight = np.zeros(_MANY)  # no stretch in the first pass
    for _ in range(2):
        weight = _weights_after(_gains(_stretched(confidence, weight), right), rows, variance)
    learnt: Floats = _FROM_REFERENCE * weight + (1 - _FROM_REFERENCE) * _START
    return learnt


def _weights_after(gains: Ints, rows: int, variance: float) -> Floats:
    """Return the weights of the hypotheses after all full blocks of a reference."""
    belief = _started(0.0, variance, _START)
    for number in range(len(gains) // rows):
        belief = _moved(belief, (number + 0.5) * rows, _START, 1.0)
        labels = gains[number * rows : (number + 1) * rows].sum(axis=0)
        belief = _after_block(belief, rows, labels, None)
    return belief.weight


class KeptWindow(msgspec.Struct):
    """A closed window whose accuracy can still be estimated: its place, and sums over its unlabelled rows.

    Parameters
    ----------
    number, first, rows : int
        The window's number, the place of its first row in the series, and its number of rows.
    unlabelled : (blocks, 21) int64
        For each block, the expected right answers among its unlabelled rows at `NODES`, in multiples of
        `UNIT`.
    left, right : int
        The numbers of unlabelled rows, and of right answers among the labelled ones.
    """

    number: int
    first: int
    rows: int
    unlabelled: Ints
    left: int
    right: int = 0


class Ahead(msgspec.Struct):
    """The labelled rows of a block (a run of rows with one bias) whose window has not closed yet.

    Parameters
    ----------
    start : int
        The place of the block's first row in the series.
    expected : (21,) int64
        The expected right answers among the labelled rows at `NODES`, in multiples of `UNIT`.
    labels, right : int
        The number of labelled rows, and the number of right answers among them.
    """

    start: int
    expected: Ints
    labels: int = 0
    right: int = 0


class CorrectionState(msgspec.Struct, frozen=True):
    """The stored state of a correction, at most 30 kB.

    Parameters
    ----------
    rows, labelled : int
        The number of rows of closed windows, and of labelled rows since the last restart.
    windows : list of KeptWindow
    starts, ends, gains : (blocks,), (blocks,), (blocks, 21) int64
        Places and log-likelihoods of the blocks with labels.
    shifts : list of (int, float, float)
        The place, the change of the bias, and the variance of this change, for each recalibration. A restart
        has an infinite variance.
    ahead : list of Ahead
    anchor : (hypotheses, 13) float64 or None
        The weight, mean and covariance of the belief at the place `anchored`, after all earlier blocks; None
        if no block was dropped.
    anchored : float
    """

    rows: int = 0
    labelled: int = 0
    windows: list[KeptWindow] = []
    starts: Ints = msgspec.field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    ends: Ints = msgspec.field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    gains: Ints = msgspec.field(default_factory=lambda: np.zeros((0, len(NODES)), dtype=np.int64))
    shifts: list[tuple[int, float, float]] = []
    ahead: list[Ahead] = []
    anchor: Floats | None = None
    anchored: float = 0.0

    @classmethod
    def beginning_at(cls, rows: int) -> CorrectionState:
        """Return the state of a correction that starts after `rows` rows of a series."""
        return cls(rows, shifts=[(rows, 0.0, math.inf)] if rows else [])


@dataclass(slots=True)
class _Block:
    """A block with labels. `gains` is the log-likelihood of the labels at `NODES`."""

    end: int
    gains: Ints = field(default_factory=lambda: np.zeros(len(NODES), dtype=np.int64))


def _copied(windows: list[KeptWindow]) -> list[KeptWindow]:
    return [msgspec.structs.replace(one, unlabelled=one.unlabelled.copy()) for one in windows]


def _copies(ahead: Iterable[Ahead]) -> list[Ahead]:
    return [msgspec.structs.replace(one, expected=one.expected.copy()) for one in ahead]


class CorrectionLogic:
    """The running correction of one series, which estimates the accuracy of its windows."""

    def __init__(self, settings: Correction, resume: CorrectionState | None = None) -> None:
        state = resume or CorrectionState()
        self._settings = settings
        self._rows, self._labelled = state.rows, state.labelled
        self._windows = _copied(state.windows)
        self._starts: list[int] = state.starts.tolist()
        columns = zip(self._starts, state.ends.tolist(), state.gains, strict=True)
        self._blocks = {start: _Block(end, gains.copy()) for start, end, gains in columns}
        self._shifts = list(state.shifts)
        self._ahead = {one.start: one for one in _copies(state.ahead)}
        self._beginning = _started(0.0, settings.variance, settings.weights, settings.mean)
        self._anchor = self._beginning if state.anchor is None else _unpacked(state.anchored, state.anchor)
        self._unsummed: dict[int, NDArray[np.float32]] = {}  # confidences of kept windows, by number
        self._passed: dict[int, _Passed] = {}  # through kept windows, by number
        self._within: dict[int, _Belief] = {}  # after blocks with labels of kept windows, by start
        self._after_old: dict[int, _Belief] = {}  # from the beginning through blocks, by the last's start

    @property
    def labelled(self) -> int:
        """The number of labelled rows since the last restart."""
        return self._labelled

    @property
    def rows(self) -> int:
        """The number of rows in all closed windows so far."""
        return self._rows

    @property
    def windows(self) -> tuple[int, ...]:
        """The numbers of the windows that can be estimated."""
        return tuple(one.number for one in self._windows)

    def close(self, window: int, confidence: ArrayLike) -> Ints:
        """Add the rows of a window that closes, and return the number of each row's block.

        Parameters
        ----------
        window : int
            The number of the window, larger than all earlier numbers.
        confidence : (n,) float64
            Calibrated.

        Returns
        -------
        (n,) int64
            The block of each row, which `push` takes. Later rows never have a smaller block number.

        Raises
        ------
        ValueError
            A confidence is out of range, or `window` is not above the number of the newest window.
        """
        checked = checked_probabilities(np.asarray(confidence, dtype=np.float64), 1, "confidence")
        if self._windows and window <= self._windows[-1].number:
            raise ValueError(f"window must be above {self._windows[-1].number}, got {window}: it has closed")
        n, step, first = len(checked), self._settings.block_rows, self._rows
        self._windows.append(KeptWindow(window, first, n, np.zeros((0, len(NODES)), dtype=np.int64), n))
        self._unsummed[window] = checked.astype(np.float32)
        self._rows += n
        for start in range(first, first + n, step):
            if start in self._blocks:
                self._blocks[start].end = min(start + step, first + n)
            if (known := self._ahead.pop(start, None)) is not None:
                self._subtract(start, known.expected, known.labels, known.right)
        if len(self._windows) > WINDOWS:
            self._leave_oldest()
        return block_starts(np.arange(first, first + n), first, step)

    def push(self, block: Ints, confidence: ArrayLike, right: ArrayLike) -> None:
        """Add rows that have got their first labels, in any order.

        Parameters
        ----------
        block : (m,) int64
            The block of each row, from `close`. For a window that is still open, it is the block that `close`
            will return.
        confidence : (m,) float64
            The confidence as in `close`; rows with NaN are ignored.
        right : (m,) bool

        Raises
        ------
        ValueError
            A block is negative.
        """
        confidences, hits = np.asarray(confidence, dtype=np.float64), np.asarray(right, dtype=np.bool_)
        known = ~np.isnan(confidences)
        if not known.all():
            block, confidences, hits = block[known], confidences[known], hits[known]
        if not len(block):
            return
        if (low := int(block.min())) < 0:
            raise ValueError(f"block must be one that close returns, 0 or more, got {low}")
        self._labelled += int(np.count_nonzero(block >= self._restart))
        order = block.argsort(kind="stable")
        block, hits = block[order], hits[order]
        stretched = _stretched(confidences[order], self._settings.weights)
        first = np.concatenate([[0], (block[1:] != block[:-1]).nonzero()[0] + 1])
        gains = np.add.reduceat(_gains(stretched, hits), first)
        expected = np.add.reduceat(_expected(stretched), first).astype(np.int64)
        correct = np.add.reduceat(hits, first, dtype=np.int64)
        many = np.concatenate([first[1:], [len(block)]]) - first
        for at, one, fewer, labels, rights in zip(
            block[first].tolist(), gains, expected, many.tolist(), correct.tolist(), strict=True
        ):
            self._label_block(at, one)
            self._subtract(at, fewer, labels, rights)
        self._forget_after(low)

    def recalibrated(self, change: float, variance: float, row: int | None = None) -> None:
        """Adapt the bias to a new calibration, which is used from a row of the next window on.

        Parameters
        ----------
        change : float
            The mean of logit c_new − logit c_old over recent rows, weighted by c(1 − c).
        variance : float
            The variance of logit c_new − logit c_old over the same rows, in logits².
        row : int, optional
            The place of the first row with the new calibration; by default the first row of the next window.
        """
        if len(self._shifts) == _SHIFTS:
            self._join_shifts()
        self._shifts.append((self._rows if row is None else row, change, variance))

    def _join_shifts(self) -> None:
        """Join the two oldest neighbouring shifts between which no belief before the kept windows lies.

        Such a belief would apply the first of the two shifts twice. A restart cancels the shifts before it,
        but not the shifts after it.
        """
        anchored = self._anchor.at
        for at, ((place, one, first), (then, other, second)) in enumerate(pairwise(self._shifts)):
            if second == math.inf or (first < math.inf and not place < anchored <= then):
                self._shifts[at : at + 2] = [(then, one + other, first + second)]
                break
        for beliefs in (self._passed, self._within, self._after_old):
            beliefs.clear()

    def restarted(self) -> None:
        """Restart from the prior with the next window, because a new version of the model answers."""
        self.recalibrated(0.0, math.inf)
        self._labelled = sum(one.labels for one in self._ahead.values())

    @property
    def _restart(self) -> int:
        """The place of the last restart."""
        return max((place for place, _, variance in self._shifts if variance == math.inf), default=0)

    def estimate(self, window: int, level: float = 0.95, pooled: int = 1) -> Result:
        """Return the estimated accuracy of a kept window, corrected by all labels of rows up to its end.

        Parameters
        ----------
        window : int
        level : float
        pooled : int
            The number of windows to estimate together. `window` is the last of them.

        Returns
        -------
        Estimate or Unknown
            Unknown if the windows have no rows.

        Raises
        ------
        ValueError
            One of the windows is not kept, or the level is out of range.
        """
        checked_level(level)
        last = bisect_left(self._windows, window, key=lambda one: one.number)
        if last == len(self._windows) or self._windows[last].number != window or not 1 <= pooled <= last + 1:
            raise ValueError(
                f"window must be one of {self.windows}, with the {pooled - 1} before it, got {window}: only "
                f"the newest {WINDOWS} closed windows are kept"
            )
        several = [self._summed(one) for one in self._windows[last - pooled + 1 : last + 1]]
        n, right, left = (sum(getattr(one, name) for one in several) for name in ("rows", "right", "left"))
        if not n:
            return Unknown(Reason.NO_ROWS)
        if not left:
            return Estimate(right / n, right / n, right / n, level, n)
        [expected] = _on_lattice(np.concatenate([one.unlabelled for one in several]).sum(axis=0))
        value, lower, upper = _interval(self._through(last, pooled).counted, pooled, expected, level)
        # Labels that came when their rows had other confidences may leave a small difference.
        ends = max(round(lower), 0), min(max(value, 0.0), left), min(round(upper), left)
        low, middle, high = ((right + each) / n for each in ends)
        return Estimate(middle, min(low, middle), max(high, middle), level, n)

    def labels_in(self, window: int, pooled: int = 1) -> int:
        """Return the number of labelled rows of a kept window, or of several windows that end with it.

        Windows before the last restart do not count. If the window is not kept, a ValueError is raised.
        """
        last, start = self.windows.index(window) + 1, self._restart
        several = self._windows[max(last - pooled, 0) : last]
        return sum(one.rows - one.left for one in several if one.first >= start)

    def forecast(self) -> Forecast:
        """Return the distribution of the next block's bias, from all labels of closed windows."""
        belief = self._through(len(self._windows) - 1, 0).labelled if self._windows else self._anchor
        rows = self._settings.block_rows
        return _forecast(self._advanced(belief, self._rows + rows / 2), rows)

    def snapshot(self) -> CorrectionState:
        """Return the state, from which another correction can resume."""
        blocks = [self._blocks[start] for start in self._starts]
        state = CorrectionState(
            self._rows,
            self._labelled,
            _copied([self._summed(one) for one in self._windows]),
            shifts=list(self._shifts),
            ahead=_copies(self._ahead.values()),
            anchor=None if self._anchor is self._beginning else _packed(self._anchor),
            anchored=float(self._anchor.at),
        )
        if not blocks:
            return state
        return msgspec.structs.replace(
            state,
            starts=np.array(self._starts, dtype=np.int64),
            ends=np.array([one.end for one in blocks], dtype=np.int64),
            gains=np.stack([one.gains for one in blocks]),
        )

    def _label_block(self, start: int, gains: Ints) -> None:
        before = bisect_right(self._starts, start) - 1
        if start < self._rows and before >= 0 and self._blocks[self._starts[before]].end > start:
            start = self._starts[before]
        elif start not in self._blocks:
            self._blocks[start] = _Block(self._end_of(start))
            insort(self._starts, start)
        self._blocks[start].gains += gains

    def _end_of(self, start: int) -> int:
        """Return the end of a block: at its full length, its window's end, or the start of the next block."""
        at = bisect_right(self._windows, start, key=lambda one: one.first) - 1
        end = start + self._settings.block_rows
        if start >= self._rows:
            return end  # until its window closes
        if at >= 0:
            return min(end, self._windows[at].first + self._windows[at].rows)
        following = bisect_right(self._starts, start)
        return min(end, self._starts[following]) if following < len(self._starts) else min(end, self._rows)

    def _subtract(self, start: int, expected: Ints, labels: int, right: int) -> None:
        if start >= self._rows:
            known = self._ahead.setdefault(start, Ahead(start, np.zeros(len(NODES), dtype=np.int64)))
            known.expected += expected
            known.labels += labels
            known.right += right
            return
        at = bisect_right(self._windows, start, key=lambda one: one.first) - 1
        if at < 0:
            return
        window = self._summed(self._windows[at])
        window.unlabelled[(start - window.first) // self._settings.block_rows] -= expected
        window.left -= labels
        window.right += right

    def _summed(self, window: KeptWindow) -> KeptWindow:
        """Return a window with the sums over its blocks. A series without labels never needs the sums."""
        confidence = self._unsummed.pop(window.number, None)
        if confidence is not None:
            stretched, step = _stretched(confidence, self._settings.weights), self._settings.block_rows
            blocks = range(0, window.rows, step)
            if blocks:
                window.unlabelled = np.add.reduceat(_expected(stretched), blocks).astype(np.int64)
        return window

    def _forget_after(self, start: int) -> None:
        """Drop the cached results from this block on, because its labels have changed."""
        for window in self._windows:
            if window.first + window.rows > start:
                self._passed.pop(window.number, None)
        self._within = {at: belief for at, belief in self._within.items() if at < start}
        self._forget_old(self._starts[bisect_right(self._starts, start) - 1])
        if self._windows and start < self._windows[0].first:
            self._anchor = self._beginning

    def _forget_old(self, start: int) -> None:
        self._after_old = {at: belief for at, belief in self._after_old.items() if at < start}

    def _leave_oldest(self) -> None:
        """Keep the belief at the first row of the oldest kept window, and merge the blocks before it."""
        self._anchor = self._through(0, 0).labelled
        gone = self._windows.pop(0)
        self._passed.pop(gone.number, None)
        self._unsummed.pop(gone.number, None)
        if len(self._starts) > BLOCKS:
            self._merge_before(self._windows[0].first)

    def _merge_before(self, first: int) -> None:
        """Merge neighbouring blocks before a place, first the shortest for their distance from the newest."""
        starts = np.array(self._starts[: bisect_left(self._starts, first)])
        ends = np.array([self._blocks[start].end for start in starts.tolist()])
        lengths = (ends[1:] - starts[:-1]) / (self._starts[-1] + 1 - starts[:-1])
        merged: set[int] = set()
        for pair in np.argsort(lengths, kind="stable").tolist():
            if len(self._starts) <= BLOCKS - _MERGED_AT_ONCE:
                break
            if merged.isdisjoint((pair, pair + 1)):
                merged |= {pair, pair + 1}
                self._merge(int(starts[pair]), int(starts[pair + 1]))

    def _merge(self, one: int, other: int) -> None:
        self._forget_old(one)
        gone = self._blocks.pop(other)
        self._starts.remove(other)
        self._blocks[one].end = gone.end
        self._blocks[one].gains += gone.gains

    def _through(self, index: int, counts: int) -> _Passed:
        """Return the beliefs after a kept window's blocks, with the counts of at least `pooled` windows."""
        window = self._windows[index]
        step, stop = self._settings.block_rows, window.first + window.rows
        known = self._passed.get(window.number)
        if known is not None and known.counted.state.shape[1] >= _BIAS + counts:
            return known
        starts = range(window.first, stop, step)
        rows = tuple(min(step, stop - start) for start in starts)
        middles = [start + many / 2 for start, many in zip(starts, rows, strict=True)]
        done, labelled, belief = self._begun(index, counts, starts)
        unlabelled = self._summed(window).unlabelled if counts else None
        shifted_from = {bisect_right(middles, place) for place, *_ in self._shifts}
        for run in _runs([start in self._blocks for start in starts], done, shifted_from):
            start, last = starts[run.start], run.stop - 1
            after = self._beside(labelled, belief, middles[run.start])
            if start in self._blocks:
                own = None if unlabelled is None else unlabelled[last]
                belief = _after_block(after, rows[last], self._blocks[start].gains, own)
                labelled = self._keep_within(start, belief).without_counts()
            elif unlabelled is not None:
                counted = _after_unlabelled(after, rows[run], unlabelled[run])
                belief = self._drifted(after, middles[last]).with_counts(counted)
        self._passed[window.number] = _Passed(labelled, belief)
        return self._passed[window.number]

    def _begun(self, index: int, counts: int, starts: range) -> tuple[int, _Belief, _Belief]:
        """Return the number of a window's blocks before the known beliefs, and these beliefs (`_Passed`)."""
        for k in reversed(range(len(starts))):
            known = self._within.get(starts[k])
            if known is not None and known.state.shape[1] >= _BIAS + counts:
                labelled = known.without_counts()
                return k + 1, labelled, known if counts else labelled
        if index:
            labelled, belief = self._through(index - 1, max(counts - 1, 0))
        else:
            labelled = belief = self._before_kept(starts.start)
        return 0, labelled, belief.counting_from_here() if counts else labelled

    def _keep_within(self, start: int, belief: _Belief) -> _Belief:
        """Keep the belief after a block with labels, because the next labels are often in the next block."""
        self._within[start] = belief
        if len(self._within) > _CACHED_WITHIN:
            del self._within[next(iter(self._within))]
        return belief

    def _beside(self, labelled: _Belief, belief: _Belief, at: float) -> _Belief:
        """Return the belief at a later place. After the last labels, the bias only drifts."""
        after = self._advanced(belief, at)
        if labelled.at == belief.at:
            return after
        return self._advanced(labelled, at).with_counts(after.state[:, _BIAS:])

    def _before_kept(self, first: int) -> _Belief:
        """Return the belief before the first row of the oldest kept window."""
        return self._through_old(first) if self._anchor is self._beginning else self._anchor

    def _through_old(self, first: int) -> _Belief:
        """Return the belief after all blocks before a place, from the beginning."""
        last = max(self._after_old, default=-1)
        belief = self._after_old.get(last, self._beginning)
        stop = bisect_left(self._starts, first)
        for start in self._starts[bisect_right(self._starts, last) : stop]:
            belief = self._after_old[start] = self._after(belief, start)
        for start in sorted(self._after_old)[:-_CACHED]:
            del self._after_old[start]
        return belief

    def _after(self, belief: _Belief, start: int) -> _Belief:
        """Return the belief after a block with labels."""
        block = self._blocks[start]
        belief = self._advanced(belief, (start + block.end) / 2)
        return _after_block(belief, block.end - start, block.gains, None)

    def _advanced(self, belief: _Belief, at: float) -> _Belief:
        """Return the belief at a later place, after the recalibrations before it."""
        for place, change, variance in self._shifts:
            if belief.at <= place < at:
                belief = self._drifted(belief, float(place))
                if variance == math.inf:
                    belief = self._restarted_belief(belief)
                    continue
                state = belief.state.copy()
                state[3, 0] -= change
                state[0, 0] += variance
                belief = belief._replace(state=state)
        return self._drifted(belief, at)

    def _restarted_belief(self, belief: _Belief) -> _Belief:
        """Return the belief after a restart, with the same counts."""
        state = belief.state.copy()
        state[:_BIAS] = 0.0
        state[:, :_BIAS] = self._beginning.state
        return _Belief(belief.at, self._settings.weights, state)

    def _drifted(self, belief: _Belief, at: float) -> _Belief:
        share = _KEPT ** ((at - belief.at) / self._settings.block_rows)
        return _moved(belief, at, self._settings.weights, share)


def _runs(labelled: list[bool], start: int, cuts: Collection[int] = ()) -> Iterator[slice]:
    """Yield each labelled block alone, and the runs of blocks without labels, from one block on.

    A run also ends before each block of `cuts`.

    Examples
    --------
    >>> [(run.start, run.stop) for run in _runs([True, False, False, True, True, False], 1)]
    [(1, 3), (3, 4), (4, 5), (5, 6)]
    >>> [(run.start, run.stop) for run in _runs([False] * 4, 0, cuts={3})]
    [(0, 3), (3, 4)]
    """
    for stop in range(start + 1, len(labelled) + 1):
        if stop == len(labelled) or labelled[stop] or labelled[start] or stop in cuts:
            yield slice(start, stop)
            start = stop


def _interval(belief: _Belief, pooled: int, expected: Floats, level: float) -> tuple[float, float, float]:
    """Return the mean number of right answers among unlabelled rows, and the ends of its interval.

    Parameters
    ----------
    belief : _Belief
        The belief after these rows.
    pooled : int
        The number of windows that the rows belong to.
    expected : (401,) float64
        The expected right answers if all rows have one bias.
    level : float
    """
    shown = belief.weight > _SHOWN
    weight = belief.weight[shown] / belief.weight[shown].sum()
    counts, spread = belief.state[3:, -pooled, shown]
    mean = float(weight @ counts)
    rising = np.maximum.accumulate(expected) + _RISE
    biases = np.interp(np.append(counts, mean), rising, LATTICE)
    steep = np.interp(biases, _BETWEEN_POINTS, np.maximum(rising[1:] - rising[:-1], 1e-9) / _STEP)
    chance, middle = steep[-1], biases[-1]  # the slope is Σ p(1 − p)
    wider, shares = np.array(_WIDER)[:, None], np.array([(1 - level) / 2, (1 + level) / 2])
    deviations = wider * (np.sqrt(np.maximum(spread, 0.0)) / steep[:-1]) + _RISE[1]
    biased = _quantiles(weight, middle + wider * (biases[:-1] - middle), deviations, shares)
    z = scipy.special.ndtri(shares)
    away = np.copysign(np.hypot(np.interp(biased, LATTICE, rising) - mean, z * np.sqrt(chance)), z)
    return mean, *(mean + away).tolist()


def _quantiles(weight: Floats, centres: Floats, deviations: Floats, shares: Floats) -> Floats:
    """Return quantiles of mixtures of normal distributions, (ends, hypotheses), at the given probabilities.

    The function searches by the secant method on the normal quantile of the CDF, which is nearly linear.
    """
    target = scipy.special.ndtri(shares)
    each = centres + deviations * target[:, None]
    low, high = each.min(axis=1).tolist(), each.max(axis=1).tolist()
    mean = centres @ weight
    spread = np.sqrt((deviations * deviations + (centres - mean[:, None]) ** 2) @ weight)
    at, scale = np.clip(mean + target * spread, low, high).tolist(), spread.tolist()
    before: list[tuple[float, float]] = []
    for _ in range(_STEPS):
        points = np.array(at)
        away = (points[:, None] - centres) / deviations
        off = (scipy.special.ndtri(scipy.special.ndtr(away) @ weight) - target).tolist()
        if max(map(abs, off)) < _NEAR:
            break
        before, last = list(zip(at, off, strict=True)), before
        for end, (point, much) in enumerate(before):
            (low if much < 0 else high)[end] = point
            if last and last[end][1] != much:
                scale[end] = (point - last[end][0]) / (much - last[end][1])
            there = point - scale[end] * much
            slow = last and abs(much) > abs(last[end][1]) / 2
            inside = low[end] < there < high[end] and not slow
            at[end] = there if inside else (low[end] + high[end]) / 2
    return np.array(at)


def _packed(belief: _Belief) -> Floats:
    """Return a belief without its counts as an array, (hypotheses, 13)."""
    state = belief.state[:4, :_BIAS].reshape(-1, _MANY).T
    return np.concatenate([belief.weight[:, None], state], axis=1)


def _unpacked(at: float, packed: Floats) -> _Belief:
    state = np.zeros((5, _BIAS, _MANY))
    state[:4] = packed[:, 1:].T.reshape(4, _BIAS, _MANY)
    return _Belief(at, packed[:, 0].copy(), state)
