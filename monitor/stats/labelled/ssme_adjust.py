"""Corrections of the pooled evidence by labels: a Bayesian logistic regression."""

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
"""Prior standard deviations of the corrections' coefficients (see `Corrections`), chosen on the development
suites. A larger value for `model` helps with more than two classes, and hurts with two at 20 labels."""

FACTORS = (0.0, 0.5, 1.0, 2.0, 4.0)
"""Candidate factors of the prior scales; each hypothesis has prior weights for them."""

_FIT_STEPS = 10
_DRAW_STEPS = 4
_LARGEST_STEP = 2.0
_SMALL_STEP = 1e-3


@dataclass(frozen=True, slots=True, eq=False)
class Corrections:
    """The features of the regression, whose weighted sum over j is added to the logit of row i and class k.

    Let m be the centred logits of a family of curves, averaged over its particles, and v the share of models
    that predict a class. The features are:

    * share: one constant for each class;
    * slope: m; bend: m times the row's extremeness, h/(1 + |h|) with h the logit of the rank of |m|;
      class_slope (more than two classes): m of one class alone;
    * vote: v; model_vote, one for each model: 1 for its predicted class, minus v. Without a prior, their
      coefficients would make the fitted number of right answers of each model on the labelled rows equal to
      the observed number. So this correction is prediction-powered inference, shrunk towards 0 with few
      labels;
    * model, one for each model: its evidence minus the pooled evidence, both scaled to the size of m. This
      feature detects a model that is more informative than the others, or uninformative.

    Parameters
    ----------
    size, pooled_size : float
        Root mean square of m and of the pooled evidence.
    model_size : (M,) float64
        Root mean square of each model's evidence.
    reach : (n,) float64
        The Euclidean lengths of m on the rows of the fit, ascending.
    classes : int
    """

    size: float
    pooled_size: float
    model_size: Floats
    reach: Floats
    classes: int

    @classmethod
    def from_rows(cls, evidence: Evidence, mean_logits: Floats, model_size: Floats) -> Self:
        """Return the features, with scales computed on the rows of the fit."""
        size = max(float(np.sqrt(np.mean(mean_logits**2))), 1e-3)
        pooled = max(float(np.sqrt(np.mean(evidence.pooled**2))), 1e-3)
        return cls(size, pooled, model_size, np.sort(_length(mean_logits)), evidence.classes)

    @property
    def prior_scales(self) -> Floats:
        """The (p,) prior standard deviations of the coefficients."""
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
        """Return the (n, K, p) features, centred over the classes, of rows with (n, K) `mean_logits`."""
        rows, classes = mean_logits.shape
        ranks = mid_ranks(self.reach, _length(mean_logits))
        far = np.log(ranks / (1.0 - ranks))
        unit = np.eye(classes) - 1.0 / classes
        columns = [
            np.broadcast_to(unit, (rows, classes, classes))
            if classes > 2
            else np.tile(2.0 * unit[:, :1], (rows, 1, 1))
        ]
        columns += [mean_logits[:, :, None], (mean_logits * (far / (1.0 + np.abs(far)))[:, None])[:, :, None]]
        if classes > 2:
            columns.append(mean_logits[:, None, :] * unit)
        columns += self._model_features(evidence, unit)
        return np.concatenate(columns, axis=2)

    def _model_features(self, evidence: Evidence, unit: Floats) -> list[Floats]:
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
    """Return the lengths (n,), rounded so that rows that differ only in their last bits have one rank."""
    lengths: Floats = np.round(np.sqrt((logits**2).sum(axis=1)), 9)
    return lengths


@dataclass(frozen=True, slots=True, eq=False)
class CorrectionRows:
    """The l labelled rows of the regression, with p features for each of K classes.

    The fields are the (l, K, p) `features`, the (l,) `labels` and the (l,) `weights`.
    """

    features: Floats
    labels: Ints
    weights: Floats

    def gradient(self, logits: Floats, coefficients: Floats, precision: Floats) -> tuple[Floats, Floats]:
        """Return the gradient of the log posterior at coefficients (…, p), and probabilities (…, l, K)."""
        flat = self.features.reshape(-1, len(precision))
        chance = softmax(logits + (coefficients @ flat.T).reshape(logits.shape))
        missed = -chance
        missed[..., np.arange(len(self.labels)), self.labels] += 1.0
        missed *= self.weights[:, None]
        gradient = missed.reshape(*coefficients.shape[:-1], len(flat)) @ flat - precision * coefficients
        return gradient, chance

    def log_likelihood(self, chance: Floats) -> float:
        """Return the weighted log-likelihood of the labels, given their class probabilities (l, K)."""
        likely = np.maximum(chance[np.arange(len(self.labels)), self.labels], 1e-300)
        return float(self.weights @ np.log(likely))

    def curvature(self, chance: Floats, precision: Floats) -> Floats:
        """Return the (p, p) negative Hessian of the log posterior, given class probabilities (l, K)."""
        p = len(precision)
        weighted = self.features * (chance * self.weights[:, None])[:, :, None]
        mean = (chance[:, None] @ self.features)[:, 0]
        square: Floats = weighted.reshape(-1, p).T @ self.features.reshape(-1, p)
        square -= (mean * self.weights[:, None]).T @ mean
        square[np.diag_indices(p)] += precision
        return square


@dataclass(frozen=True, slots=True, eq=False)
class _Mode:
    """Laplace's approximation of the posterior for one prior, whose `precision` is (p,)."""

    coefficients: Floats
    precision: Floats
    covariance: Floats
    log_evidence: float


def _mode(rows: CorrectionRows, logits: Floats, prior_scales: Floats, start: Floats) -> _Mode:
    precision: Floats = prior_scales**-2.0
    mode = start
    for _ in range(_FIT_STEPS):
        gradient, chance = rows.gradient(logits, mode, precision)
        step = np.linalg.solve(rows.curvature(chance, precision), gradient)
        largest = float(np.abs(rows.features @ step).max(initial=0.0))
        mode = mode + step * min(1.0, _LARGEST_STEP / max(largest, 1e-300))
        if largest < _SMALL_STEP:
            break
    chance = rows.gradient(logits, mode, precision)[1]
    curvature = rows.curvature(chance, precision)
    fit = rows.log_likelihood(chance) - 0.5 * float(precision @ mode**2)
    volume = float(np.log(precision).sum()) - float(np.linalg.slogdet(curvature)[1])
    covariance = np.asarray(np.linalg.inv(curvature), dtype=np.float64)
    return _Mode(mode, precision, covariance, fit + 0.5 * volume)


@dataclass(frozen=True, slots=True, eq=False)
class Adjustment:
    """The posterior of the regression's coefficients, for each of several scales of their prior.

    `FACTORS` multiply the prior standard deviations. Each factor has a probability, from its prior weight and
    the evidence of the labelled rows (Laplace's approximation). Therefore the data determine the size of the
    corrections.

    Parameters
    ----------
    rows : CorrectionRows
    modes : tuple
        The maximum of the posterior for each factor above 0.
    log_weights : (len(FACTORS),) float64
        For each factor, the logarithm of its prior weight times the Bayes factor against no correction.
    """

    rows: CorrectionRows
    modes: tuple[_Mode, ...]
    log_weights: Floats

    @classmethod
    def fit(
        cls, rows: CorrectionRows, logits: Floats, prior_scales: Floats, factors: Sequence[float]
    ) -> Self:
        """Return the regression's coefficients, fitted once for each factor of their prior's scale.

        Each fit starts from the coefficients for the previous factor.

        Parameters
        ----------
        rows : CorrectionRows
        logits : (l, K) float64
            Logits of the labelled rows without corrections.
        prior_scales : (p,) float64
        factors : sequence of float
            Prior weights of `FACTORS`, above 0.
        """
        start, modes = np.zeros(len(prior_scales)), list[_Mode]()
        for factor in FACTORS[1:]:
            modes.append(_mode(rows, logits, factor * prior_scales, start))
            start = modes[-1].coefficients
        plain = rows.log_likelihood(softmax(logits))
        gains = np.array([0.0, *(mode.log_evidence - plain for mode in modes)])
        return cls(rows, tuple(modes), np.log(factors) + gains)

    def draw(self, factors: Ints, logits: Floats, rng: np.random.Generator) -> Floats:
        """Return (draws, p) random coefficients, one set for each draw of the logits (draws, l, K).

        A draw of coefficients is the mode of the posterior for its logits, plus normal noise. The mode is
        computed by Newton steps, with the curvature at the mode for the mean logits. The inverse of this
        curvature is the covariance of the noise. Every second draw has the negative noise of the previous
        draw, which makes medians over few draws more stable. `factors` are indices into `FACTORS`.
        """
        noise = rng.standard_normal((len(logits), self.rows.features.shape[2]))
        noise[1::2] = -noise[0 : len(noise) - 1 : 2]
        coefficients = np.zeros_like(noise)
        for number, mode in enumerate(self.modes, start=1):
            at, root = factors == number, np.linalg.cholesky(mode.covariance)
            coefficients[at] = _moved(self.rows, logits[at], mode) + noise[at] @ root.T
        return coefficients


def _moved(rows: CorrectionRows, logits: Floats, mode: _Mode) -> Floats:
    """Return the (d, p) modes for other logits (d, l, K)."""
    modes = np.tile(mode.coefficients, (len(logits), 1))
    for _ in range(_DRAW_STEPS):
        modes += rows.gradient(logits, modes, mode.precision)[0] @ mode.covariance.T
    return modes
