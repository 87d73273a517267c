"""Families of curves from pooled evidence to class probabilities, which `SSME` weights by labels.

The pooled evidence of a row is an average of all classifiers' log-probabilities. A family of curves is
represented by particles: samples of the curve's parameters from a prior, which uses the classifiers'
confidences. The likelihood of the labelled rows determines the weight of each particle.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Self

import numpy as np
import scipy

from monitor.base.records import Floats, Ints
from monitor.stats.labelled.ssme_evidence import Evidence

PARTICLES = 256
"""Number of particles of each family, a power of two for Sobol points. Chosen for speed, not tuned."""

_PREVALENCE_SCALE = 0.15
"""Smallest standard deviation of the prior on the prevalence, on the logit scale, for any number of models
that agree."""

_MODEL_SCALE = 0.25
"""Smallest standard deviation between models' prevalences, on the logit scale: three models may agree by
chance."""

_MAD_TO_SCALE = 1.85
"""Factor from the median absolute deviation of few models to the scale of the error of their mean."""

_TAIL_DEGREES = 3.0
"""Degrees of freedom of the Student-t priors, whose tails allow for claims that are far off."""

_EDGE = 1e-4
"""Smallest distance of the priors' quantiles from 0 and 1."""

_LARGEST_LOGIT = 8.0

_SMALLEST_SHARE = 1e-3

_BLOCK_BYTES = 1 << 18


class ParticleFamily(ABC):
    """A family of curves from evidence to class probabilities, sampled as particles.

    A particle is one curve: one sample of the family's parameters.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the family in the details of a fit."""

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of particles (curves) in the family."""

    @abstractmethod
    def points(self, evidence: Evidence) -> Floats:
        """Return the inputs at which the curves are evaluated: the same for all particles, one for each row.

        The rows are on the last axis.
        """

    @abstractmethod
    def at(self, points: Floats, particles: Ints) -> Floats:
        """Return the (p, K, n) class logits at n inputs for p particles, up to a constant for each row.

        Parameters
        ----------
        points : (…, n) float64
            Inputs, as `points` returns them.
        particles : (p,) int64
            The indices of the particles.
        """

    def logits(self, evidence: Evidence, particles: Ints) -> Floats:
        """Return the (p, n, K) class logits of n rows for p particles, up to a constant for each row.

        Parameters
        ----------
        evidence : Evidence
            The evidence of the rows.
        particles : (p,) int64
            The indices of the particles.
        """
        return self.at(self.points(evidence), particles).swapaxes(1, 2)

    def blocks(self, evidence: Evidence, particles: Ints) -> Iterator[Floats]:
        """Yield the result of `logits` in blocks of particles, to bound the memory.

        Each block has the shape (b, n, K), for the next b particles.

        Parameters
        ----------
        evidence : Evidence
            The evidence of the n rows.
        particles : (p,) int64
            The indices of the particles.
        """
        points = self.points(evidence)
        together = max(1, _BLOCK_BYTES // max(1, evidence.pooled.nbytes))
        for first in range(0, len(particles), together):
            yield self.at(points, particles[first : first + together]).swapaxes(1, 2)

    def mean_logits(self, evidence: Evidence, particles: Ints) -> Floats:
        """Return the (n, K) logits averaged over these particles, minus their mean over the classes."""
        total = np.zeros((evidence.rows, evidence.classes))
        for block in self.blocks(evidence, particles):
            # Add one by one, so that the sum of a row depends neither on other rows nor on the blocks.
            for logits in block:
                total += logits
        return centred(total / len(particles))


def softmax(logits: Floats) -> Floats:
    """Return the softmax over the last axis."""
    raised = np.exp(logits - _by_class(np.maximum, logits)[..., None])
    raised /= _by_class(np.add, raised)[..., None]
    return raised


def log_softmax(logits: Floats) -> Floats:
    """Return the logarithm of the softmax over the last axis."""
    shifted: Floats = logits - _by_class(np.maximum, logits)[..., None]
    shifted -= np.log(_by_class(np.add, np.exp(shifted)))[..., None]
    return shifted


def _by_class(ufunc: np.ufunc, values: Floats) -> Floats:
    """Return `ufunc.reduce` over the last axis, class by class, which is faster for a short axis."""
    reduced: Floats = ufunc(values[..., 0], values[..., 1])
    for k in range(2, values.shape[-1]):
        ufunc(reduced, values[..., k], out=reduced)
    return reduced


def centred(logits: Floats) -> Floats:
    """Return logits (…, K) minus their mean over the classes."""
    difference: Floats = logits - (_by_class(np.add, logits) / logits.shape[-1])[..., None]
    return difference


def claimed_shares(scores: Floats, heard: Floats) -> tuple[Floats, Floats]:
    """Return the class shares that the models' scores imply, as centred logarithms, and their errors.

    The result for a class is the median over the models of the centred logarithm of the mean score. The error
    on the logit scale is √(0.15² + max(0.25, 1.85·MAD)²/M), where MAD is the median absolute deviation of the
    M models' values on this scale. Both results have the shape (K,).

    Parameters
    ----------
    scores : (n, M, K) float64
    heard : (M,) float64
        The weight of each model. Only models with a weight above 0 count.
    """
    means = np.array([np.nanmean(scores[:, m], axis=0) for m in np.flatnonzero(heard > 0.0)])
    logs = np.log(np.clip(means, _SMALLEST_SHARE, 1.0))
    logs -= logs.mean(axis=1, keepdims=True)
    centre = np.median(logs, axis=0)
    unit = 0.5 if scores.shape[2] == 2 else 1.0  # each of two centred logs is half of the logit
    deviation = np.median(np.abs(logs - centre), axis=0) / unit
    between = np.maximum(_MODEL_SCALE, _MAD_TO_SCALE * deviation)
    return centre, np.sqrt(_PREVALENCE_SCALE**2 + between**2 / len(logs))


@cache
def _uniforms(dimensions: int, seed: int) -> Floats:
    """Return read-only (particles, dimensions) scrambled Sobol points, which cover the priors evenly."""
    points = scipy.stats.qmc.Sobol(dimensions, seed=np.random.default_rng(seed)).random(PARTICLES)
    clipped: Floats = np.clip(points, _EDGE, 1.0 - _EDGE)
    clipped.flags.writeable = False
    return clipped


def _tails(uniform: Floats) -> Floats:
    quantiles: Floats = scipy.special.stdtrit(_TAIL_DEGREES, uniform)
    return quantiles


def _sampled_shares(centre: Floats, scale: Floats, uniform: Floats) -> Floats:
    """Return (particles, K) class shares; two classes have one degree of freedom, their logit."""
    if len(centre) == 2:
        steps = _tails(uniform[:, :1]) * np.array([-0.5, 0.5]) * scale
    else:
        steps = _tails(uniform) * scale
    return np.exp(log_softmax(np.clip(centre + steps, -_LARGEST_LOGIT, _LARGEST_LOGIT)))


@dataclass(frozen=True, slots=True, eq=False)
class RankBinormal(ParticleFamily):
    """The binormal family of curves for two classes, which uses only the order of the evidence.

    Let u be the mid-rank of a row's pooled evidence, divided by n, and π the prevalence of class 1. On a
    latent scale, class 0 has the distribution N(0, 1) and class 1 N(d, σ²). The mixture has the distribution
    function G(t) = (1 − π)Φ(t) + πΦ((t − d)/σ), and the row lies at t = G⁻¹(u). Its log-odds are logit π −
    ((t − d)/σ)²/2 − log σ + t²/2; if σ ≠ 1, they are constant beyond the point where they would fall again.
    They do not depend on distortions of the scores that keep the order.

    The priors are:

    * logit π around the claimed prevalence (`claimed_shares`);
    * d ~ 0.7 + 0.43·d_claim + 0.35·t₃, where d_claim = √2·Φ⁻¹(AUC of the evidence for labels with the claimed
      probabilities); d is smaller than a large d_claim, because classifiers are overconfident;
    * log σ ~ N(0, 0.15).

    The numbers in the second and third prior were chosen on simulated suites.

    Parameters
    ----------
    prevalence, separation, spread : (particles,) float64
        π, d and σ.
    reference : (n,) float64
        Pooled log-odds of the rows of the fit, ascending.
    """

    prevalence: Floats
    separation: Floats
    spread: Floats
    reference: Floats

    @classmethod
    def from_prior(cls, evidence: Evidence, scores: Floats, heard: Floats, seed: int) -> Self:
        """Return a family with particles sampled from the priors."""
        odds = evidence.pooled[:, 1] - evidence.pooled[:, 0]
        centre, scale = claimed_shares(scores, heard)
        uniform = _uniforms(3, seed)
        claimed = _claimed_separation(odds)
        wanted = _CLAIM_BASE + _CLAIM_SLOPE * claimed + _SEPARATION_SCALE * _tails(uniform[:, 1])
        return cls(
            _sampled_shares(centre, scale, uniform[:, :1])[:, 1],
            np.clip(wanted, *_SEPARATIONS),
            np.exp(_SPREAD_SCALE * scipy.special.ndtri(uniform[:, 2])),
            np.sort(odds),
        )

    @property
    def name(self) -> str:
        """The name of the family in the details of a fit, ``"binormal"``."""
        return "binormal"

    @property
    def size(self) -> int:
        """The number of particles (curves) in the family."""
        return len(self.prevalence)

    def points(self, evidence: Evidence) -> Floats:
        """Return the (n,) mid-ranks of the rows' pooled log-odds, 0 to 1."""
        return mid_ranks(self.reference, evidence.pooled[:, 1] - evidence.pooled[:, 0])

    def at(self, points: Floats, particles: Ints) -> Floats:
        """Return the (p, 2, n) class logits at n mid-ranks for p particles."""
        parameters = (self.prevalence, self.separation, self.spread)
        share, apart, spread = (values[particles][:, None] for values in parameters)
        mixture = (1.0 - share) * _BELOW + share * scipy.special.ndtr((_AXIS - apart) / spread)
        place = np.stack([np.interp(points, reached, _AXIS) for reached in mixture])
        with np.errstate(divide="ignore"):  # with a spread of 1 the log-odds have no turning point
            turn = np.where(spread == 1.0, -np.inf, apart / (1.0 - spread**2))
        place = np.where(spread < 1.0, np.minimum(place, turn), np.maximum(place, turn))
        odds = (
            scipy.special.logit(share)
            - ((place - apart) / spread) ** 2 / 2.0
            - np.log(spread)
            + place**2 / 2.0
        )
        return np.stack([-odds / 2.0, odds / 2.0], axis=1)


_AXIS = np.linspace(-9.0, 16.0, 600)
_BELOW = scipy.special.ndtr(_AXIS)
_CLAIM_BASE, _CLAIM_SLOPE, _SEPARATION_SCALE = 0.7, 0.43, 0.35
_SEPARATIONS = (0.05, 6.0)
_SPREAD_SCALE = 0.15


def mid_ranks(reference: Floats, values: Floats) -> Floats:
    """Return the mid-ranks of values among ascending reference values, divided by the number of references.

    The results are clipped, so they are never 0 or 1.

    Examples
    --------
    >>> mid_ranks(np.array([1.0, 2.0, 2.0, 3.0]), np.array([0.0, 2.0, 3.0])).tolist()
    [0.125, 0.5, 0.875]
    """
    n = len(reference)
    ranks = (np.searchsorted(reference, values, "left") + np.searchsorted(reference, values, "right")) / (
        2 * n
    )
    clipped: Floats = np.clip(ranks, 0.5 / n, 1.0 - 0.5 / n)
    return clipped


def _claimed_separation(odds: Floats) -> float:
    """Return √2·Φ⁻¹(AUC) of log-odds against their own soft labels."""
    chance = np.sort(scipy.special.expit(odds))
    self_products = float(chance @ (1.0 - chance))
    pairs = float(chance @ np.cumsum(1.0 - chance)) - self_products
    total = float(chance.sum() * (1.0 - chance).sum()) - self_products
    area = pairs / total if total > 1e-9 else 0.5
    return float(np.sqrt(2.0) * scipy.special.ndtri(np.clip(area, 0.5, 1.0 - 1e-6)))


@dataclass(frozen=True, slots=True, eq=False)
class ScaledSoftmax(ParticleFamily):
    """The family of curves softmax(a + b·x) of the evidence x, with a slope b and an offset a for each class.

    The offsets are chosen so that the mean probabilities over the rows equal given class shares.

    Parameters
    ----------
    kind : str
        The name of the family.
    slope : (particles,) float64
        The slopes b.
    offset : (particles, K) float64
        The offsets a.
    of_mean : bool
        True if x is the centred logarithm of the classifiers' mean score. Otherwise x is the pooled evidence.
    """

    kind: str
    slope: Floats
    offset: Floats
    of_mean: bool = False

    @classmethod
    def from_prior(cls, evidence: Evidence, scores: Floats, heard: Floats, seed: int) -> Self:
        """Return a family whose particles have slopes with log b ~ N(min(0.15 − 0.75·log rms(x), 0.3), 0.5).

        Here rms(x) is the root mean square of the pooled evidence. The class shares are those of
        `claimed_shares`. The factor −0.75 was chosen on simulated suites, in which models with larger
        evidence are more overconfident.
        """
        centre, scale = claimed_shares(scores, heard)
        uniform = _uniforms(1 + len(centre), seed)
        size = np.sqrt(np.mean(evidence.pooled**2))
        usual = min(_SCALE_BASE + _SCALE_SLOPE * np.log(max(size, 1e-6)), _LARGEST_SCALE)
        slope = np.exp(usual + _SCALE_SCALE * scipy.special.ndtri(uniform[:, 0]))
        shares = _sampled_shares(centre, scale, uniform[:, 1:])
        return cls("softmax", slope, offsets(evidence.pooled, slope, shares))

    @classmethod
    def near(cls, evidence: Evidence, slope: float, shares: Floats, seed: int) -> Self:
        """Return a family with particles near this slope and these class shares.

        The logarithms of the slopes and the logits of the shares have a random deviation of about 0.1.
        """
        slopes, sampled = _nearby(np.log(slope), shares, seed)
        return cls("each", slopes, offsets(evidence.pooled, slopes, sampled))

    @classmethod
    def from_claims(cls, evidence: Evidence, seed: int) -> Self:
        """Return a family with particles near the mean of the classifiers.

        The logarithms of the slopes and the logits of the shares have a random deviation of about 0.1.
        """
        slopes, sampled = _nearby(0.0, evidence.mean.mean(axis=0), seed)
        return cls("claims", slopes, offsets(centred_mean(evidence), slopes, sampled), of_mean=True)

    @classmethod
    def unchanged_mean(cls, classes: int) -> Self:
        """Return a family with one particle, which returns the mean of the classifiers unchanged."""
        return cls("mean", np.ones(1), np.zeros((1, classes)), of_mean=True)

    @property
    def name(self) -> str:
        """The name of the family in the details of a fit: its `kind`."""
        return self.kind

    @property
    def size(self) -> int:
        """The number of particles (curves) in the family."""
        return len(self.slope)

    def points(self, evidence: Evidence) -> Floats:
        """Return the evidence x of each row and class, (K, n), the input of the curves."""
        return np.ascontiguousarray(self._evidence(evidence).T)

    def at(self, points: Floats, particles: Ints) -> Floats:
        """Return the (p, K, n) logits a + b·x."""
        logits: Floats = self.slope[particles, None, None] * points
        logits += self.offset[particles][:, :, None]
        return logits

    def mean_logits(self, evidence: Evidence, particles: Ints) -> Floats:
        """Return the (n, K) centred logits for the mean a and the mean b of these particles."""
        offset, slope = self.offset[particles].mean(axis=0), float(self.slope[particles].mean())
        return centred(offset + slope * self._evidence(evidence))

    def _evidence(self, evidence: Evidence) -> Floats:
        return centred_mean(evidence) if self.of_mean else evidence.pooled


def _nearby(log_slope: float, shares: Floats, seed: int) -> tuple[Floats, Floats]:
    """Return (particles,) slopes and (particles, K) class shares, within about 10 % of the arguments."""
    centre = np.log(np.clip(shares, _SMALLEST_SHARE, 1.0))
    uniform = _uniforms(1 + len(centre), seed)
    slopes = np.exp(log_slope + _CLAIM_SCALE * scipy.special.ndtri(uniform[:, 0]))
    return slopes, _sampled_shares(centre, np.full(len(centre), _CLAIM_SCALE), uniform[:, 1:])


_SCALE_BASE, _SCALE_SLOPE, _LARGEST_SCALE, _SCALE_SCALE = 0.15, -0.75, 0.3, 0.5
_CLAIM_SCALE = 0.1
_OFFSET_ROWS = 256
_OFFSET_STEPS = 12


def centred_mean(evidence: Evidence) -> Floats:
    """Return the (n, K) logarithms of the classifiers' mean scores minus their mean over the classes."""
    return centred(np.log(np.maximum(evidence.mean, 1e-6)))


def offsets(x: Floats, slope: Floats, shares: Floats) -> Floats:
    """Return the (particles, K) offsets a for which softmax(a + b·x), averaged over rows, gives these shares.

    The computation uses 256 evenly spaced rows. The resulting error is far smaller than the error of the
    shares. Exponentials are computed once, and each step needs two matrix products.

    Parameters
    ----------
    x : (n, K) float64
        Centred evidence.
    slope : (particles,) float64
    shares : (particles, K) float64
    """
    picked = x[np.linspace(0, len(x) - 1, min(len(x), _OFFSET_ROWS)).astype(np.int64)]
    odds = np.exp(slope[:, None, None] * (picked[:, 1:] - picked[:, :1]).T)  # against the first class
    wanted = np.log(shares)
    offset, reached = wanted.copy(), np.empty_like(wanted)
    for _ in range(_OFFSET_STEPS):
        raised = np.exp(offset[:, 1:] - offset[:, :1])
        first = 1.0 / (1.0 + (raised[:, None] @ odds)[:, 0])
        reached[:, 0] = first.mean(axis=1)
        reached[:, 1:] = raised * (odds @ first[:, :, None])[:, :, 0] / len(picked)
        offset += np.clip(1.5 * (wanted - np.log(np.maximum(reached, 1e-12))), -3.0, 3.0)
    return offset


def log_likelihoods(family: ParticleFamily, evidence: Evidence, labels: Ints, weights: Floats) -> Floats:
    """Return the (particles,) weighted log-likelihoods of the labelled rows."""
    rows = np.arange(evidence.rows)
    every = family.blocks(evidence, np.arange(family.size))
    return np.concatenate([log_softmax(logits)[:, rows, labels] @ weights for logits in every])
