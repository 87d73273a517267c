"""Draws from the posterior of `SSME`: hypotheses, weighted by the labelled rows."""

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
"""Number of particles whose mean logits represent a family in the features of its corrections."""


@dataclass(frozen=True, slots=True, eq=False)
class MixtureData:
    """The input of `PosteriorMixture.fit`.

    Parameters
    ----------
    evidence : Evidence
        The evidence of all rows.
    known : Evidence
        The evidence of the labelled rows.
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
class _Weighted:
    """A hypothesis with the posterior probabilities of its particles (`chance`), and its corrections."""

    family: ParticleFamily
    chance: Floats
    centre: Ints
    corrections: Corrections | None
    adjustment: Adjustment | None
    log_weights: Floats

    @classmethod
    def fit(cls, hypothesis: Hypothesis, data: MixtureData) -> Self:
        """Weight the particles by the labelled rows, and fit the corrections."""
        family = hypothesis.family
        logs = log_likelihoods(family, data.known, data.labels, data.weights)
        chance = np.exp(logs - logs.max())
        log_marginal = float(logs.max() + np.log(chance.mean()) + hypothesis.log_prior)
        chance /= chance.sum()
        centre = systematic(chance, min(_CENTRE, family.size), 0.5)
        if hypothesis.factors is None:
            alone = np.where(np.array(FACTORS) == 0.0, log_marginal, -np.inf)
            return cls(family, chance, centre, None, None, alone)
        middle = family.mean_logits(data.evidence, centre)
        corrections = Corrections.from_rows(data.evidence, middle, data.model_size)
        known = family.mean_logits(data.known, centre)
        rows = CorrectionRows(corrections.features(data.known, known), data.labels, data.weights)
        adjustment = Adjustment.fit(rows, known, corrections.prior_scales, hypothesis.factors)
        return cls(family, chance, centre, corrections, adjustment, log_marginal + adjustment.log_weights)

    def part(self, factors: Ints, known: Evidence, rng: np.random.Generator) -> HypothesisDraws:
        """Return a draw for each of `factors`, which are indices into `FACTORS`."""
        particles = rng.permutation(systematic(self.chance, len(factors), rng.random()))
        if self.corrections is None or self.adjustment is None or not factors.any():
            return HypothesisDraws(self.family, particles, self.centre, None, np.zeros((len(factors), 0)))
        coefficients = self.adjustment.draw(factors, self.family.logits(known, particles), rng)
        return HypothesisDraws(self.family, particles, self.centre, self.corrections, coefficients)


@dataclass(frozen=True, slots=True, eq=False)
class HypothesisDraws:
    """Posterior draws under one hypothesis; a draw is a curve with the coefficients of its correction.

    Parameters
    ----------
    family : ParticleFamily
        The family of curves of the hypothesis.
    particles : (draws,) int64
        The index of each draw's particle.
    centre : (24,) int64
        The particles over which logits are averaged for the features of the corrections.
    corrections : Corrections or None
        None if no draw has corrections.
    coefficients : (draws, p) float64
        The coefficients of the corrections in each draw; 0 for no correction.
    """

    family: ParticleFamily
    particles: Ints
    centre: Ints
    corrections: Corrections | None
    coefficients: Floats

    def logits(self, evidence: Evidence) -> Iterator[Floats]:
        """Yield the class logits of n rows for each draw, in blocks (d, n, K) of d draws."""
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
    """Posterior draws under all hypotheses, with the posterior weights of the hypotheses.

    Parameters
    ----------
    parts : tuple of HypothesisDraws
        The draws of each hypothesis that has at least one.
    shares : mapping of str to float
        Posterior weight of every hypothesis, with the sum 1.
    """

    parts: tuple[HypothesisDraws, ...]
    shares: Mapping[str, float]

    @classmethod
    def fit(
        cls, hypotheses: Sequence[Hypothesis], data: MixtureData, draws: int, rng: np.random.Generator
    ) -> Self:
        """Return posterior draws, divided among the hypotheses by the likelihood of the labelled rows."""
        weighted = [_Weighted.fit(hypothesis, data) for hypothesis in hypotheses]
        logs = np.stack([one.log_weights for one in weighted])
        weight = np.exp(logs - logs.max())
        weight /= weight.sum()
        cells = systematic(weight.ravel(), draws, rng.random())
        owner, factors = np.divmod(cells, len(FACTORS))
        parts = tuple(
            one.part(factors[owner == at], data.known, rng)
            for at, one in enumerate(weighted)
            if (owner == at).any()
        )
        shares = zip((one.family.name for one in weighted), weight.sum(axis=1).tolist(), strict=True)
        return cls(parts, dict(shares))

    @property
    def ends(self) -> tuple[int, ...]:
        """The number of draws up to the end of each of the `parts`."""
        return tuple(accumulate(len(part.particles) for part in self.parts))

    def logits(self, evidence: Evidence) -> Iterator[Floats]:
        """Yield the class logits of n rows for all draws, in blocks (d, n, K), part by part."""
        for part in self.parts:
            yield from part.logits(evidence)


def systematic(chance: Floats, draws: int, start: float) -> Ints:
    """Return (draws,) indices, sampled systematically with these probabilities.

    The number of times that an index occurs differs from its probability times `draws` by less than one.
    `start` is the offset of the first sample, at least 0 and below 1.

    Examples
    --------
    >>> systematic(np.array([0.5, 0.2, 0.3]), 10, 0.5).tolist()
    [0, 0, 0, 0, 0, 1, 1, 2, 2, 2]
    """
    places = (np.arange(draws) + start) / draws
    indices: Ints = np.minimum(np.searchsorted(np.cumsum(chance), places), len(chance) - 1)
    return indices
