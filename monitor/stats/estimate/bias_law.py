"""The distribution of a window's bias, on a lattice of logits, and its effect on counts.

With a bias of b logits, an answer of confidence c is right with probability expit(logit c + b). The
distribution of b has masses on a lattice from −3.2 to 3.2, 0.05 apart. No shape is assumed: "most likely
none, but perhaps half a logit since yesterday" fits as well as a normal. A variance is added on the lattice's
cosines, as a product: for any variance, however small beside the step, the mean stays and the variance grows
by exactly that; two additions equal one of the sum. Mass that reaches an end of the lattice stays there.

A window's count of right answers is the exact count without a bias plus a shift of Σ expit(logit c + b) − Σ
c. The mass between two lattice points is spread evenly, which adds a variance of at most (0.05)²/6 logits² (a
deviation of 0.02).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from monitor.base.records import Floats, Ints
from monitor.stats.estimate.poisson_binomial import TrimmedPmf
from monitor.stats.solvers import convolve

FARTHEST = 3.2
"""Logits; at this bias a model with confidences of 90 % is right in 27 %."""

STEP = 0.05
LATTICE: Floats = np.linspace(-FARTHEST, FARTHEST, round(2 * FARTHEST / STEP) + 1)

NODES: Floats = FARTHEST * np.cos(np.pi * (np.arange(17) + 0.5) / 17)
"""Chebyshev nodes: log-likelihoods and expected counts are so smooth in b that 17 values give seven digits
everywhere."""

_TO_LATTICE: Floats = np.polynomial.chebyshev.chebvander(LATTICE / FARTHEST, 16) @ np.linalg.inv(
    np.polynomial.chebyshev.chebvander(NODES / FARTHEST, 16)
)
UNIT = 2.0**-30
"""Of sums of log-likelihoods, in nats: whole numbers, so that no order of rows can be seen."""

_NEGLIGIBLE = 1e-9  # of the mass, at each end


def on_lattice(at_nodes: Floats) -> Floats:
    """A smooth function of the bias, (17,) at the nodes, as (129,) on the lattice."""
    found: Floats = _TO_LATTICE @ at_nodes
    return found


def gains_of(confidence: Floats, right: NDArray[np.bool_]) -> Ints:
    """(n, 17) log-likelihood of each outcome at the `NODES`, less that without a bias, in whole `UNIT`.

    Parameters
    ----------
    confidence : (n,) float64
        From 0 to 1.
    right : (n,) bool

    Examples
    --------
    >>> found = gains_of(np.array([0.9]), np.array([False]))
    >>> abs(round(float(on_lattice(found[0] * UNIT)[64]), 6))    # without a bias, less itself
    0.0
    """
    gains = right[:, None] * NODES - np.log1p(confidence[:, None] * np.expm1(NODES))
    found: Ints = np.rint(gains / UNIT).astype(np.int64)
    return found


@lru_cache(maxsize=1)
def cosines() -> tuple[Floats, Floats]:
    """The lattice's cosines, (129, 129) by columns, and the decay of each per logit² of added variance."""
    many = len(LATTICE)
    wave = np.arange(many)
    basis = np.cos(np.pi * (wave[:, None] + 0.5) * wave / many) * np.sqrt(np.where(wave == 0, 1, 2) / many)
    return basis, (1 - np.cos(np.pi * wave / many)) / STEP**2


def damped(mass: Floats, factors: Floats) -> Floats:
    """Masses, (…, 129), whose cosines are multiplied by factors; rounding errors below 0 are cut off."""
    basis, _ = cosines()
    found: Floats = np.maximum(((mass @ basis) * factors) @ basis.T, 0.0)
    return found


def spread(mass: Floats, variance: Floats | float) -> Floats:
    """Masses, (…, 129), with an added variance in logits², one for all or one for each row.

    Examples
    --------
    >>> point = np.where(LATTICE == 0, 1.0, 0.0)
    >>> wide = BiasLaw(spread(point, 0.0004))
    >>> round(wide.mean, 9), round(wide.variance, 9)
    (0.0, 0.0004)
    """
    return damped(mass, decays(variance))


def decays(variance: Floats | float) -> Floats:
    """What an added variance leaves of each cosine: (…, 129) factors for `damped`."""
    _, rates = cosines()
    found: Floats = np.exp(-np.asarray(variance)[..., None] * rates)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class BiasLaw:
    """A distribution of the bias of one window's confidences.

    Parameters
    ----------
    mass : (129,) float64
        Probabilities on `LATTICE`; their sum is 1.

    Examples
    --------
    >>> law = BiasLaw(np.where(LATTICE == 0.5, 1.0, 0.0))
    >>> law.mean, law.variance, round(law.quantile(0.5), 3)
    (0.5, 0.0, 0.5)
    """

    mass: Floats

    @property
    def mean(self) -> float:
        """The mean in logits; above 0 the answers are better than their confidences."""
        return float(self.mass @ LATTICE)

    @property
    def variance(self) -> float:
        """The variance in logits²."""
        return float(self.mass @ (LATTICE - self.mean) ** 2)

    def quantile(self, share: float) -> float:
        """The quantile at this share, in logits."""
        ends = np.append(LATTICE - STEP / 2, FARTHEST + STEP / 2)
        return float(np.interp(share, np.append(0.0, self.mass.cumsum()), ends))


def expected_shift(confidence: Floats, bias: Floats) -> Floats:
    """(k,) expected change of the number of right answers, Σ expit(logit c + b) − Σ c, for (k,) biases b.

    Confidences of 0 and 1 stay the same under any bias.

    Examples
    --------
    >>> expected_shift(np.array([0.5, 0.5, 1.0]), np.log(np.array([1.0, 3.0]))).round(9).tolist()
    [0.0, 0.5]
    """
    factor = np.expm1(bias)
    # c e^b / (1 − c + c e^b) − c, with one denominator so that small biases lose no digits.
    found: Floats = (confidence * (1 - confidence)) @ (factor / (1 + confidence[:, None] * factor))
    return found


def biased(pmf: TrimmedPmf, confidence: Floats, law: BiasLaw) -> TrimmedPmf:
    """A window's distribution of right answers, given the distribution of its confidences' bias.

    Mass beyond 0 or n moves to that end.

    Parameters
    ----------
    pmf : TrimmedPmf
        Distribution of the count without a bias.
    confidence : (n,) float64
    law : BiasLaw

    Examples
    --------
    >>> sharp = TrimmedPmf(offset=50, mass=np.array([1.0]), n=100)
    >>> law = BiasLaw(np.where(np.isclose(LATTICE, -1.0), 1.0, 0.0))
    >>> found = biased(sharp, np.full(100, 0.5), law)
    >>> round(float((np.arange(len(found.mass)) + found.offset) @ found.mass), 1)   # 100 expit(-1)
    26.9
    """
    return shifted(pmf, on_lattice(expected_shift(confidence, NODES)), law)


def shifted(pmf: TrimmedPmf, shift: Floats, law: BiasLaw) -> TrimmedPmf:
    """`biased`, given the (129,) expected change of the count at each bias of the lattice."""
    low, mass = _on_counts(shift, law.mass)
    found = np.maximum(convolve(pmf.mass, mass), 0.0)
    counts = np.clip(np.arange(len(found)) + pmf.offset + low, 0, pmf.n)
    folded = np.bincount(counts - counts[0], found)
    return TrimmedPmf(int(counts[0]), folded / folded.sum(), pmf.n)


def _on_counts(shift: Floats, mass: Floats) -> tuple[int, Floats]:
    """The distribution of a shift on whole counts: the lowest count, and the masses from there on."""
    cumulated = mass.cumsum()
    kept = (cumulated >= _NEGLIGIBLE) & (cumulated - mass <= 1 - _NEGLIGIBLE)
    shift, mass = np.maximum.accumulate(shift[kept]), mass[kept]
    middle = (shift[:-1] + shift[1:]) / 2
    # A mass reaches half-way to its neighbours; the outermost are symmetric around their points.
    first = 2 * shift[0] - middle[0] if len(middle) else shift[0] - 0.5
    last = 2 * shift[-1] - middle[-1] if len(middle) else shift[-1] + 0.5
    ends = np.concatenate([[first], middle, [last]])
    counts = np.arange(np.floor(ends[0]), np.ceil(ends[-1]) + 1)
    below = np.interp(counts + 0.5, ends, np.append(0.0, mass.cumsum()))
    found: Floats = np.diff(below, prepend=0.0)
    return int(counts[0]), found / found.sum()
