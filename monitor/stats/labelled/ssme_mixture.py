"""Hypotheses weighted by labelled rows: the draws behind `SSME`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Self

import numpy as np

from monitor.base.records import Floats, Ints
from monitor.stats.labelled.ssme_adjust import FACTORS, Adjustment, CorrectionRows, Corrections
from monitor.stats.labelled.ssme_evidence import Evidence
from monitor.stats.labelled.ssme_families import ParticleFamily, log_likelihoods
from monitor.stats.labelled.ssme_hypotheses import Hypothesis

_CENTRE = 24
"""Particles whose mean logits represent a family in the features of its corrections."""


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """The input of a mixture's fit.

    Parameters
    ----------
    evidence : Evidence
        Of all rows.
    known : Evidence
        Of the labelled rows.
    labels : (l,) int64
    weights : (l,) float64
    model_size : (M,) float64
        See `Corrections`.
    """

    evidence: Evidence
    known: Evidence
    labels: Ints
    weights: Floats
    model_size: Floats


@dataclass(frozen=True, slots=True, eq=False)
class _Weighed:
    """A hypothesis with the posterior of its particles (`chance`), draws from it, and its corrections."""

    family: ParticleFamily
    chance: Floats
    centre: Ints
    corrections: Corrections | None
    adjustment: Adjustment | None
    log_weights: Floats

    @classmethod
    def of(cls, hypothesis: Hypothesis, seen: Seen) -> Self:
        family = hypothesis.family
        logs = log_likelihoods(family, seen.known, seen.labels, seen.weights)
        chance = np.exp(logs - logs.max())
        log_marginal = float(logs.max() + np.log(chance.mean()) + hypothesis.log_prior)
        chance /= chance.sum()
        centre = systematic(chance, min(_CENTRE, family.size), 0.5)
        if hypothesis.factors is None:
            alone = np.where(np.array(FACTORS) == 0.0, log_marginal, -np.inf)
            return cls(family, chance, centre, None, None, alone)
        middle = family.mean_logits(seen.evidence, centre)
        corrections = Corrections.of(seen.evidence, middle, seen.model_size)
        known = family.mean_logits(seen.known, centre)
        rows = CorrectionRows(corrections.features(seen.known, known), seen.labels, seen.weights)
        adjustment = Adjustment.of(rows, known, corrections.prior_scales, hypothesis.factors)
        return cls(family, chance, centre, corrections, adjustment, log_marginal + adjustment.log_weights)

    def part(self, factors: Ints, known: Evidence, rng: np.random.Generator) -> HypothesisDraws:
        """Draws with given indices into `FACTORS`."""
        particles = rng.permutation(systematic(self.chance, len(factors), rng.random()))
        if self.corrections is None or self.adjustment is None or not factors.any():
            return HypothesisDraws(self.family, particles, self.centre, None, np.zeros((len(factors), 0)))
        drawn = self.adjustment.draw(factors, self.family.logits(known, particles), rng)
        return HypothesisDraws(self.family, particles, self.centre, self.corrections, drawn)


@dataclass(frozen=True, slots=True, eq=False)
class HypothesisDraws:
    """Draws of one hypothesis.

    Parameters
    ----------
    family : ParticleFamily
    particles : (draws,) int64
    centre : (24,) int64
    corrections : Corrections or None
        None if no draw has any.
    coefficients : (draws, p) float64
    """

    family: ParticleFamily
    particles: Ints
    centre: Ints
    corrections: Corrections | None
    coefficients: Floats

    def logits(self, evidence: Evidence) -> Iterator[Floats]:
        """(d, n, K) logits of rows, some draws at a time."""
        every = self.family.blocks(evidence, self.particles)
        if self.corrections is None:
            yield from every
            return
        features = self.corrections.features(evidence, self.family.mean_logits(evidence, self.centre))
        flat = np.ascontiguousarray(features.T).reshape(features.shape[2], -1)
        first = 0
        for plain in every:
            rows = self.coefficients[first : first + len(plain)]
            first += len(plain)
            bent = np.flatnonzero(rows.any(axis=1))
            plain[bent] += (rows[bent] @ flat).reshape(len(bent), *plain.shape[:0:-1]).swapaxes(1, 2)
            yield plain


@dataclass(frozen=True, slots=True, eq=False)
class PosteriorMixture:
    """Draws from the posterior over hypotheses, their particles and their corrections.

    Parameters
    ----------
    parts : tuple of HypothesisDraws
        Of the hypotheses with draws.
    shares : mapping of str to float
        Posterior weight of every hypothesis; they sum to 1.
    """

    parts: tuple[HypothesisDraws, ...]
    shares: Mapping[str, float]

    @classmethod
    def of(cls, hypotheses: Sequence[Hypothesis], seen: Seen, draws: int, rng: np.random.Generator) -> Self:
        """Weight the hypotheses by the labelled rows, and draw."""
        weighed = [_Weighed.of(hypothesis, seen) for hypothesis in hypotheses]
        logs = np.stack([one.log_weights for one in weighed])
        weight = np.exp(logs - logs.max())
        weight /= weight.sum()
        cells = systematic(weight.ravel(), draws, rng.random())
        owner, factors = np.divmod(cells, len(FACTORS))
        parts = tuple(
            one.part(factors[owner == at], seen.known, rng)
            for at, one in enumerate(weighed)
            if (owner == at).any()
        )
        shares = zip((one.family.name for one in weighed), weight.sum(axis=1).tolist(), strict=True)
        return cls(parts, dict(shares))

    @property
    def ends(self) -> tuple[int, ...]:
        """For each part the number of the draw after its last."""
        return tuple(accumulate(len(part.particles) for part in self.parts))

    def logits(self, evidence: Evidence) -> Iterator[Floats]:
        """(d, n, K) logits of rows, some draws at a time, part by part."""
        for part in self.parts:
            yield from part.logits(evidence)


def systematic(chance: Floats, draws: int, start: float) -> Ints:
    """Systematic draws: the number of draws of each place is its probability times `draws`, up to one.

    `start` in [0, 1) is the offset.

    Examples
    --------
    >>> systematic(np.array([0.5, 0.2, 0.3]), 10, 0.5).tolist()
    [0, 0, 0, 0, 0, 1, 1, 2, 2, 2]
    """
    places = (np.arange(draws) + start) / draws
    found: Ints = np.minimum(np.searchsorted(np.cumsum(chance), places), len(chance) - 1)
    return found
