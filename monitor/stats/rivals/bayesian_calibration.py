"""Separate Bayesian calibration of each classifier, after Ji, Smyth and Steyvers, for two classes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import scipy

from monitor.base.records import Floats, Ints
from monitor.base.results import Reason, Result, Unknown
from monitor.stats.labelled.base import Fitted, LabelEstimator
from monitor.stats.labelled.inputs import Bools, LabelledScores, effective_weights, mean_of_models
from monitor.stats.labelled.posterior import PosteriorEstimator

CLIP = 0.01
"""Scores are clipped to [CLIP, 1 − CLIP], as in the authors' code."""

PRIOR = (np.hypot(0.4, 0.15), np.hypot(0.4, 0.15), np.hypot(2.0, 0.75))
"""Prior standard deviations of ln a, ln b and c. The authors use 0.4, 0.4 and 2 for the mean of the groups,
and half-normals of 0.15, 0.15 and 0.75 for a group around it; for one group the variances add up."""

_PROPOSALS = 2000
_DRAWS = 100
_DEGREES = 5.0  # degrees of freedom of the proposal, whose tails are heavier than the posterior's
_STEPS = 50
_BLOCK = 1 << 21  # entries of a (draws, rows) table in one computation


class _Curve(PosteriorEstimator):
    """The posterior of one classifier's rows, from draws of its calibration curve."""

    tag = "bayesian_calibration"
    draws: ClassVar[int] = _DRAWS

    def __init__(self, *, seed: int = 0, positive: int | None = None) -> None:
        super().__init__(seed=seed, positive=positive)
        self._parameters = np.empty((0, 3))

    def _fit(self, data: LabelledScores) -> Fitted:
        rows = np.flatnonzero(data.labelled & data.present[:, 0])
        features = _features(data.scores[rows, 0])
        weight = effective_weights(data, rows)
        self._parameters = _posterior_draws(features, data.labels[rows], weight, self.rng())
        return Fitted(data.clamp(self._predict(data.scores)))

    def _draw_posteriors(self, rng: np.random.Generator) -> Iterator[Floats]:
        data, _ = self._done()
        features = _features(mean_of_models(data.scores))
        for parameters in self._parameters:
            chance = scipy.special.expit(_log_odds(features, parameters))
            yield data.clamp(np.stack([1.0 - chance, chance], axis=1))

    def _predict(self, scores: Floats) -> Floats:
        features = _features(mean_of_models(scores))
        chance = np.mean(
            [scipy.special.expit(_log_odds(features, draw)) for draw in self._parameters], axis=0
        )
        return np.stack([1.0 - chance, chance], axis=1)


class BayesianCalibration(LabelEstimator):
    """Metrics from calibrated scores, with a Bayesian beta calibration of each classifier.

        logit P(y = 1 | s) = a ln s − b ln(1 − s) + c,   ln a, ln b ~ N(0, 0.43²),   c ~ N(0, 2.1²)

    The posterior given the labelled rows is sampled by importance sampling, from a Student-t distribution
    around the mode (the authors use MCMC for this posterior). A metric is the median over 100 curves. The
    authors' hierarchy over groups of people is left out: each model has one curve for all subgroups.

    The estimator assumes a curve of this family, where a and b are above 0 and keep the order of the scores.
    It also assumes that, before any label, the most probable curve is a = b = 1 and c = 0 (a calibrated
    model). The estimate for a model uses only the scores of this model. With few labels, it stays near the
    model's confidence, which is too high for an overconfident model. The interval includes the posterior of
    the curve and the sampling of the rows. Its coverage is right if the family is right.

    Without labels the estimate comes from the prior, and the fit has the flag "no labels". For more than two
    classes, estimates are `Unknown` with the reason `not defined`. `posterior` and `predict` average over the
    models' curves. `weights` multiply the log-likelihood.

    Lowest coverage of its 95 % intervals on real classifiers (`tests/fidelity/SCOREBOARD.md`): accuracy 81
    %, class_ece 88 %, auroc 83 %.

    References
    ----------
    D. Ji, P. Smyth, M. Steyvers, *Can I trust my fairness metric? Assessing fairness with unlabeled data
    and Bayesian inference*, NeurIPS 2020; priors and clipping from their published code. M. Kull, T. M.
    Silva Filho, P. Flach, *Beyond sigmoids: how to obtain well-calibrated probabilities from binary
    classifiers with beta calibration*, Electronic Journal of Statistics 11 (2017).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> p = rng.beta(0.8, 1.2, 1000)
    >>> truth = (rng.random(1000) < p).astype(int)
    >>> bold = p**3 / (p**3 + (1 - p) ** 3)  # overconfident
    >>> scores = np.stack([1 - bold, bold], axis=1)[:, None]
    >>> fit = BayesianCalibration().fit(scores, np.where(np.arange(1000) < 200, truth, -1))
    >>> claimed, right = np.maximum(bold, 1 - bold).mean(), ((bold > 0.5) == truth).mean()
    >>> [round(float(x), 2) for x in (claimed, fit.estimate("accuracy").value, right)]
    [0.89, 0.81, 0.77]
    """

    tag = "bayesian_calibration"
    two_classes_only: ClassVar[bool] = True

    def __init__(self, *, seed: int = 0, positive: int | None = None) -> None:
        super().__init__(seed=seed, positive=positive)
        self._curves: dict[int, _Curve] = {}

    def _fit(self, data: LabelledScores) -> Fitted:
        for model in np.flatnonzero(data.present.any(axis=0)).tolist():
            self._curves[model] = _Curve(seed=self.seed, positive=self.positive).fit(
                data.scores[:, [model]],
                data.labels,
                predicted=data.predicted[:, [model]],
                weights=data.weights,
            )
        flags = () if data.labelled.any() else ("no labels",)
        return Fitted(data.clamp(self._predict(data.scores)), flags=flags)

    def _estimate(self, metric: str, model: int, where: Bools, level: float) -> Result:
        curve = self._curves.get(model)
        return Unknown(Reason.NO_ROWS) if curve is None else curve.estimate(metric, 0, where, level)

    def _predict(self, scores: Floats) -> Floats:
        calibrated = np.full(scores.shape, np.nan)
        for model, curve in self._curves.items():
            there = ~np.isnan(scores[:, model, 0])
            calibrated[there, model] = curve.predict(scores[there][:, [model]])
        return mean_of_models(calibrated)

    def _forget(self) -> None:
        self._curves = {}


def _features(scores: Floats) -> Floats:
    """Return (n, 2) ln s and −ln(1 − s), where s is the clipped score of the second class."""
    clipped = np.clip(scores[:, 1], CLIP, 1.0 - CLIP)
    return np.stack([np.log(clipped), -np.log1p(-clipped)], axis=1)


def _log_odds(features: Floats, parameters: Floats) -> Floats:
    """Return the (n,) log-odds under one curve (ln a, ln b, c)."""
    line: Floats = features @ np.exp(parameters[:2]) + parameters[2]
    return line


def _log_posterior(features: Floats, sign: Floats, weight: Floats, parameters: Floats) -> Floats:
    """Return the (draws,) log posterior of parameters (draws, 3).

    `sign` is 1 for rows of the second class, else −1.
    """
    prior = -0.5 * ((parameters / PRIOR) ** 2).sum(axis=1)
    together = max(1, _BLOCK // max(1, len(features)))
    parts = []
    for first in range(0, len(parameters), together):
        block = parameters[first : first + together]
        line = np.exp(block[:, :2]) @ features.T + block[:, 2:]
        parts.append(-np.logaddexp(0.0, -sign * line) @ weight)
    log_posterior: Floats = prior + np.concatenate(parts)
    return log_posterior


def _mode(features: Floats, sign: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """Return the most probable (ln a, ln b, c), and the precision of likelihood and prior at that point."""
    at, ridge = np.zeros(3), np.diag(1.0 / np.square(PRIOR))
    value = float(_log_posterior(features, sign, weight, at[None])[0])
    for _ in range(_STEPS):
        line = _log_odds(features, at)
        slopes = np.hstack([features * np.exp(at[:2]), np.ones((len(line), 1))])
        gradient = slopes.T @ (weight * sign * scipy.special.expit(-sign * line)) - ridge @ at
        spread = weight * scipy.special.expit(line) * scipy.special.expit(-line)
        step = np.linalg.solve((slopes.T * spread) @ slopes + ridge, gradient)
        tried = at + step * 0.5 ** np.arange(30)[:, None]
        reached = _log_posterior(features, sign, weight, tried)
        best = int(np.argmax(reached))
        if reached[best] <= value + 1e-10:
            break
        at, value = tried[best], float(reached[best])
    slopes = np.hstack([features * np.exp(at[:2]), np.ones((len(features), 1))])
    line = _log_odds(features, at)
    return at, (slopes.T * (weight * scipy.special.expit(line) * scipy.special.expit(-line))) @ slopes + ridge


def _posterior_draws(features: Floats, labels: Ints, weight: Floats, rng: np.random.Generator) -> Floats:
    """Return (draws, 3) equally weighted draws of (ln a, ln b, c)."""
    sign = np.where(labels == 1, 1.0, -1.0)
    mode, information = _mode(features, sign, weight)
    root = np.linalg.cholesky(np.linalg.inv(information))
    normal = rng.standard_normal((_PROPOSALS, 3))
    stretched = normal * np.sqrt(_DEGREES / rng.chisquare(_DEGREES, (_PROPOSALS, 1)))
    proposed = mode + stretched @ root.T
    student = -0.5 * (_DEGREES + 3) * np.log1p((stretched**2).sum(axis=1) / _DEGREES)
    logs = _log_posterior(features, sign, weight, proposed) - student
    reached = np.cumsum(np.exp(logs - logs.max()))
    at = (rng.random() + np.arange(_DRAWS)) / _DRAWS * reached[-1]
    chosen: Floats = proposed[np.minimum(np.searchsorted(reached, at), _PROPOSALS - 1)]
    return chosen
