"""The labels' correction of the pooled evidence: a Bayesian logistic one, of shape and of single models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from monitor.base.records import Floats, Ints
from monitor.stats.labelled.ssme_evidence import Evidence
from monitor.stats.labelled.ssme_families import mid_ranks, softmax

SCALES = {
    "share": 0.08,
    "slope": 0.15,
    "bend": 0.15,
    "class_slope": 0.08,
    "vote": 0.2,
    "model_vote": 0.15,
    "model": 0.07,
}
"""Prior standard deviations of the corrections' coefficients (see `Corrections`), from the development
suites; for `model` larger ones help with more than two classes and hurt with two at 20 labels."""

FACTORS = (0.0, 0.5, 1.0, 2.0, 4.0)
"""Factors of the prior scales; each hypothesis has prior weights for them."""

_FIT_STEPS = 10
_DRAW_STEPS = 4
_LARGEST_STEP = 2.0
_SMALL_STEP = 1e-3


@dataclass(frozen=True, slots=True, eq=False)
class Corrections:
    """Features φ(i, k, j) whose weighted sum is added to a row's logits; weights start at 0.

    With m the centred mean logits of the families over their particles, and v the share of models that vote
    for a class:

    * share: one constant for each class;
    * slope: m itself; bend: m times the row's extremeness, h/(1 + |h|) with h the logit of the rank of |m|;
      class_slope (more than two classes): m of one class alone;
    * vote: v; model_vote, one for each model: its vote minus v. Without a prior, these weights would make the
      fitted number of right answers of each model on the labelled rows equal the observed one: the
      correction is prediction-powered inference, shrunk towards none with few labels;
    * model, one for each model: its evidence minus the pooled evidence, both of unit size, on the scale of m:
      it detects a model that knows more than the others, or nothing.

    Parameters
    ----------
    size, pooled_size : float
        Root mean square of m and of the pooled evidence.
    model_size : (M,) float64
    reach : (n,) float64
        Rising lengths of m on the rows of the fit.
    classes : int
    """

    size: float
    pooled_size: float
    model_size: Floats
    reach: Floats
    classes: int

    @classmethod
    def of(cls, evidence: Evidence, mean_logits: Floats, model_size: Floats) -> Self:
        """Learn the features' scales from the rows of the fit."""
        size = max(float(np.sqrt(np.mean(mean_logits**2))), 1e-3)
        pooled = max(float(np.sqrt(np.mean(evidence.pooled**2))), 1e-3)
        return cls(size, pooled, model_size, np.sort(_length(mean_logits)), evidence.classes)

    @property
    def prior_scales(self) -> Floats:
        """(p,) prior standard deviations."""
        models = len(self.model_size)
        several = self.classes > 2
        counts = {
            "share": self.classes if several else 1,
            "slope": 1,
            "bend": 1,
            "class_slope": self.classes if several else 0,
            "vote": 1,
            "model_vote": models if models > 1 else 0,
            "model": models if models > 1 else 0,
        }
        return np.concatenate([np.full(count, SCALES[name]) for name, count in counts.items()])

    def features(self, evidence: Evidence, mean_logits: Floats) -> Floats:
        """(n, K, p) features, each centred over the classes, from the rows' centred mean logits (n, K)."""
        rows, classes = mean_logits.shape
        ranks = mid_ranks(self.reach, _length(mean_logits))
        far = np.log(ranks / (1.0 - ranks))
        unit = np.eye(classes) - 1.0 / classes
        found = [
            np.broadcast_to(unit, (rows, classes, classes))
            if classes > 2
            else np.tile(2.0 * unit[:, :1], (rows, 1, 1))
        ]
        found += [mean_logits[:, :, None], (mean_logits * (far / (1.0 + np.abs(far)))[:, None])[:, :, None]]
        if classes > 2:
            found.append(mean_logits[:, None, :] * unit)
        found += self._of_models(evidence, unit)
        return np.concatenate(found, axis=2)

    def _of_models(self, evidence: Evidence, unit: Floats) -> list[Floats]:
        present = evidence.present[:, :, None]
        votes = np.where(present, unit[evidence.votes], 0.0)
        answered = np.maximum(present.sum(axis=1), 1)
        share = votes.sum(axis=1) / answered
        if len(self.model_size) == 1:
            return [share[:, :, None]]
        dissent = np.where(present, votes - share[:, None], 0.0)
        own = evidence.each / self.model_size[:, None] - (evidence.pooled / self.pooled_size)[:, None]
        own = np.where(present, self.size * own, 0.0)
        return [share[:, :, None], dissent.transpose(0, 2, 1), own.transpose(0, 2, 1)]


def _length(logits: Floats) -> Floats:
    """Lengths (n,), rounded: rows that differ by their last bits only must have one rank."""
    lengths: Floats = np.round(np.sqrt((logits**2).sum(axis=1)), 9)
    return lengths


@dataclass(frozen=True, slots=True, eq=False)
class CorrectionRows:
    """The rows of the corrections' fit: (l, K, p) `features`, (l,) `labels`, (l,) `weights`."""

    features: Floats
    labels: Ints
    weights: Floats

    def gradient(self, logits: Floats, coefficients: Floats, precision: Floats) -> tuple[Floats, Floats]:
        """Gradient (…, p) of the log posterior of coefficients (…, p), and class probabilities (…, l, K)."""
        flat = self.features.reshape(-1, len(precision))
        chance = softmax(logits + (coefficients @ flat.T).reshape(logits.shape))
        missed = -chance
        missed[..., np.arange(len(self.labels)), self.labels] += 1.0
        missed *= self.weights[:, None]
        gradient = missed.reshape(*coefficients.shape[:-1], len(flat)) @ flat - precision * coefficients
        return gradient, chance

    def log_likelihood(self, chance: Floats) -> float:
        """Weighted log-likelihood of the labels under class probabilities (l, K)."""
        likely = np.maximum(chance[np.arange(len(self.labels)), self.labels], 1e-300)
        return float(self.weights @ np.log(likely))

    def curvature(self, chance: Floats, precision: Floats) -> Floats:
        """(p, p) negative Hessian of the log posterior."""
        p = len(precision)
        weighted = self.features * (chance * self.weights[:, None])[:, :, None]
        mean = (chance[:, None] @ self.features)[:, 0]
        square: Floats = weighted.reshape(-1, p).T @ self.features.reshape(-1, p)
        square -= (mean * self.weights[:, None]).T @ mean
        square[np.diag_indices(p)] += precision
        return square


@dataclass(frozen=True, slots=True, eq=False)
class _Mode:
    """Laplace's approximation under one scale of the prior, whose `precision` is (p,)."""

    coefficients: Floats
    precision: Floats
    covariance: Floats
    log_evidence: float


def _mode(rows: CorrectionRows, logits: Floats, prior_scales: Floats, start: Floats) -> _Mode:
    precision: Floats = prior_scales**-2.0
    found = start
    for _ in range(_FIT_STEPS):
        gradient, chance = rows.gradient(logits, found, precision)
        step = np.linalg.solve(rows.curvature(chance, precision), gradient)
        largest = float(np.abs(rows.features @ step).max(initial=0.0))
        found = found + step * min(1.0, _LARGEST_STEP / max(largest, 1e-300))
        if largest < _SMALL_STEP:
            break
    chance = rows.gradient(logits, found, precision)[1]
    curvature = rows.curvature(chance, precision)
    fit = rows.log_likelihood(chance) - 0.5 * float(precision @ found**2)
    volume = float(np.log(precision).sum()) - float(np.linalg.slogdet(curvature)[1])
    covariance = np.asarray(np.linalg.inv(curvature), dtype=np.float64)
    return _Mode(found, precision, covariance, fit + 0.5 * volume)


@dataclass(frozen=True, slots=True, eq=False)
class Adjustment:
    """The posterior of the corrections' coefficients under each factor.

    The size of corrections is learnt too: one of `FACTORS` multiplies the prior scales, each with a
    probability from its prior weight and the evidence of the labelled rows (Laplace's approximation).

    Parameters
    ----------
    rows : CorrectionRows
    modes : tuple
        One for each factor above 0.
    log_weights : (len(FACTORS),) float64
        For each factor: prior, and evidence of the labels with corrections of that size over their likelihood
        without any.
    """

    rows: CorrectionRows
    modes: tuple[_Mode, ...]
    log_weights: Floats

    @classmethod
    def of(cls, rows: CorrectionRows, logits: Floats, prior_scales: Floats, factors: Sequence[float]) -> Self:
        """Fit every factor, each from the one before, to the labelled rows' logits (l, K) without
        corrections; `factors` are the prior weights of `FACTORS`, above 0.
        """
        found, modes = np.zeros(len(prior_scales)), list[_Mode]()
        for factor in FACTORS[1:]:
            modes.append(_mode(rows, logits, factor * prior_scales, found))
            found = modes[-1].coefficients
        plain = rows.log_likelihood(softmax(logits))
        gains = np.array([0.0, *(mode.log_evidence - plain for mode in modes)])
        return cls(rows, tuple(modes), np.log(factors) + gains)

    def draw(self, factors: Ints, logits: Floats, rng: np.random.Generator) -> Floats:
        """(draws, p) draws of the coefficients, one for each draw of the family's logits (draws, l, K).

        Each is the mode for its own logits, by Newton steps with the curvature at the mode for the mean
        logits, plus normal noise with the inverse of that curvature as covariance. Each second draw has the
        noise of the one before with the other sign: medians over few draws vary less. `factors` are indices
        into `FACTORS`.
        """
        noise = rng.standard_normal((len(logits), self.rows.features.shape[2]))
        noise[1::2] = -noise[0 : len(noise) - 1 : 2]
        drawn = np.zeros_like(noise)
        for number, mode in enumerate(self.modes, start=1):
            at, root = factors == number, np.linalg.cholesky(mode.covariance)
            drawn[at] = _moved(self.rows, logits[at], mode) + noise[at] @ root.T
        return drawn


def _moved(rows: CorrectionRows, logits: Floats, mode: _Mode) -> Floats:
    """(d, p) the modes for other logits (d, l, K)."""
    found = np.tile(mode.coefficients, (len(logits), 1))
    for _ in range(_DRAW_STEPS):
        found += rows.gradient(logits, found, mode.precision)[0] @ mode.covariance.T
    return found
