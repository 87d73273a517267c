"""SSME: semi-supervised estimates of metrics, from the scores of several models and few labels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar

import numpy as np
import scipy

from monitor.base.records import Floats
from monitor.base.results import Estimate, Reason, Result, Unknown
from monitor.stats.calibration.isotonic import IsotonicCalibration
from monitor.stats.labelled.base import Fitted
from monitor.stats.labelled.inputs import Bools, LabelledScores, effective_weights
from monitor.stats.labelled.metrics import undefined
from monitor.stats.labelled.posterior import PosteriorEstimator
from monitor.stats.labelled.ssme_curve import distil
from monitor.stats.labelled.ssme_evidence import Evidence, Pooling
from monitor.stats.labelled.ssme_families import softmax
from monitor.stats.labelled.ssme_hypotheses import disagreement, hypotheses
from monitor.stats.labelled.ssme_mixture import MixtureData, PosteriorMixture

FEWEST_ROWS = 20
"""The smallest number of rows for a fit. With fewer rows, ranks and class shares are too uncertain."""

_DRAWS = 100
_KEPT_BYTES = 32 << 20  # size up to which the draws of a fit are kept: 20,000 rows of two classes

BIAS = {
    "accuracy": 0.32,
    "ece": 0.4,
    "class_ece": 0.4,
    "auroc": 0.34,
    "average_precision": 0.8,
    "precision": 0.6,
    "recall": 0.55,
    "f1": 0.55,
    "specificity": 0.55,
}
"""The error from the shape of the fit with one model: the standard deviation of a metric's error beyond the
draws, times (number of labels + 50)^0.6. The values are about the smallest with which 95 % intervals cover
95 % on average over the development suite, at 20, 100 and 400 labels. Specificity has the value of recall."""

SPREAD = {
    2: {
        "accuracy": (2.61, 0.40),
        "ece": (3.02, 0.53),
        "class_ece": (3.18, 0.44),
        "auroc": (1.15, 0.45),
        "average_precision": (4.55, 0.82),
        "precision": (5.10, 1.54),
        "recall": (3.54, 0.94),
        "f1": (3.80, 1.14),
        "specificity": (3.10, 0.61),
    },
    3: {
        "accuracy": (2.11, 0.53),
        "ece": (2.01, 0.52),
        "class_ece": (2.05, 0.53),
        "auroc": (0.41, 0.42),
        "average_precision": (2.95, 0.65),
        "precision": (2.21, 0.54),
        "recall": (2.04, 0.55),
        "f1": (2.32, 0.55),
        "specificity": (2.07, 0.22),
    },
}
"""The coefficients f and t of the interval with several models, for two classes and for more (`SSME`, step
5): the factor of the draws' spread, and the standard deviation of the error from the shape of the fit. Both
shrink with the number of labels, except f of the AUROC, because labels correct the order of scores least. The
values minimise the interval score on the development draws of trained classifiers, where rows with low
coverage count more and widths stay near those of the formula for one model."""

_LEAST_SPREAD, _LEAST_DISAGREEMENT = 0.001, 0.01
_MEAN_TO_DEVIATION = (np.pi / 2) ** 0.5  # the mean absolute deviation is robust against one extreme draw
_BIAS_LABELS, _BIAS_POWER = 50.0, 0.6

_REFUSED = "the fit was refused ({}), so {}"


@dataclass(frozen=True, slots=True, eq=False)
class _Fit:
    """The parts of a fit that are kept; `disagreement` is None if only one model has a weight above 0."""

    pooling: Pooling
    mixture: PosteriorMixture
    disagreement: float | None


class SSME(PosteriorEstimator):
    """Semi-supervised estimates of metrics, from the labels and all models' scores together.

    The paper fits densities of the scores. In more than a few dimensions, such a fit does not move away from
    its starting point. This class fits the conditional distribution of the label given the scores instead.
    The fit is Bayesian, with priors from the classifiers' confidences:

    1. *Evidence.* The models' centred log-probabilities are averaged with weights from the models' agreement
       (`agreement_weights`): copies of a model share its weight, and a model that agrees with no other has
       the weight 0. The result is the pooled evidence.
    2. *Hypotheses.* There are four hypotheses. The mean of the classifiers is right. Each classifier is
    calibrated. A softmax of the pooled evidence with unknown scale and class shares is right. Only the order
    of the pooled evidence is right (normal distributions on the scale of ranks, for two classes). The prior
    weights of the hypotheses were chosen on sets of trained classifiers. They depend on two numbers that need
    no label (`hypotheses`): whether the models agree about the shares of the classes, and whether they claim
    fewer errors than they can have. Each hypothesis is a set of particles, weighted by the likelihood of the
    labelled rows (Bayesian model averaging).
    3. *Corrections.* A Bayesian logistic regression on the labelled rows, with the logits as offset and
       shrunk towards no correction (`Corrections`), corrects all hypotheses but the first. It changes the
       shape of the curve, and corrects each model's number of right answers. With few labels, it widens the
       intervals by the usual error of the curve's shape. With many labels, the fit follows the labels.
    4. *Value.* 100 draws are divided among the hypotheses. The value is the mean of the hypotheses' medians,
       weighted by their numbers of draws. With one model, it is the median of all draws. `details` has the
       weight of each hypothesis.
    5. *Interval.* With several models: the value ± z·√(B + f²·s^1.5·d^0.5·h + (u·t·h)²), clipped to 0 and 1.
       B is the variance over resampled rows, s is √(π/2) times the mean distance of the draws from the value,
       d the models' `disagreement`, u the share of rows without a label, h = (labels + 50)^−0.6 (1 in the
       second term of the AUROC), and f and t are `SPREAD`. Errors grow with disagreement. With one model: see
       `PosteriorEstimator`.

    SSME assumes that the labelled rows were chosen at random given the scores. If they were not, pass
    `weights`. SSME misleads if most models are wrong together and no label shows this. Without labels, SSME
    uses the models' confidences and their typical overconfidence in the development suites, and sets the flag
    `no labels`.

    Only the metrics use `predicted`; the fit does not.

    Parameters
    ----------
    seed, positive
        See `LabelEstimator`.

    References
    ----------
    Shanmugam et al., *Evaluating multiple models using labeled and unlabeled data* (2025), for the
    problem and the metrics; Angelopoulos et al., *Prediction-powered inference* (2023), for rectifying;
    Johnstone and Silverman, *Needles and straw in haystacks* (2004), for medians over a point and a spread.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.integers(0, 2, 500)
    >>> odds = 2 * truth[:, None] - 1 + rng.normal(size=(500, 3))  # 2·odds would be the log-odds
    >>> positive = 1 / (1 + np.exp(-6 * odds))                     # three times overconfident
    >>> scores = np.stack([1 - positive, positive], axis=2)
    >>> labels = np.where(np.arange(500) < 60, truth, -1)
    >>> fit = SSME().fit(scores, labels)
    >>> bool(abs(fit.point("accuracy") - (scores[:, 0].argmax(1) == truth).mean()) < 0.05)
    True
    """

    tag = "ssme"
    draws: ClassVar[int] = _DRAWS

    _parts: _Fit | None = None
    _kept: Sequence[Floats] = ()

    def calibration(self, model: int = 0) -> IsotonicCalibration:
        """Return a calibration of one model's scores that reproduces the fit: see `distil`.

        Parameters
        ----------
        model : int
            Column of the scores, from 0.

        Raises
        ------
        ValueError
            There is no such model, or it is missing in every row.
        RuntimeError
            `fit` was not called yet, or the fit was refused.
        """
        data, fitted = self._done()
        at = self._model(model)
        if self._parts is None:
            raise RuntimeError(_REFUSED.format(self.refused, "it gives no calibration"))
        return distil(data.scores[:, at], fitted.posterior)

    def _fit(self, data: LabelledScores) -> Fitted:
        self._parts, self._kept = None, ()
        mean = data.clamp(data.mean_of_models())
        if data.rows < FEWEST_ROWS:
            return Fitted(mean, converged=False, refused=Reason.TOO_FEW_ROWS)
        pooling = Pooling.from_scores(data.scores)
        evidence = pooling.evidence(data.scores)
        rows = np.flatnonzero(data.labelled)
        known = pooling.evidence(data.scores[rows])
        weights = effective_weights(data, rows)
        voices = np.flatnonzero(pooling.weights > 0.0)
        differ = disagreement(evidence.votes[:, voices], evidence.present[:, voices])
        candidates = hypotheses(evidence, data.scores, pooling.weights, differ)
        mixture_data = MixtureData(evidence, known, data.labels[rows], weights, pooling.scales)
        mixture = PosteriorMixture.fit(candidates, mixture_data, self.draws, self.rng())
        self._parts = _Fit(pooling, mixture, differ if len(voices) > 1 else None)
        blocks: Iterable[Floats] = self._probabilities(evidence)
        if 8 * self.draws * data.rows * data.classes <= _KEPT_BYTES:
            blocks = self._kept = [data.clamp(chances) for chances in blocks]
        posterior = data.clamp(self._mean(evidence, blocks))
        return Fitted(posterior, iterations=1, flags=_flags(data), details=mixture.shares)

    def _draw_posteriors(self, rng: np.random.Generator) -> Iterator[Floats]:
        data, _ = self._done()
        if self._parts is None:
            raise RuntimeError("a refused fit has no draws")
        if self._kept:
            yield from chain.from_iterable(self._kept)
            return
        for chances in self._probabilities(self._parts.pooling.evidence(data.scores)):
            yield from data.clamp(chances)

    def _bias(self, metric: str, model: int, where: Bools) -> float:
        return BIAS[metric] * self._unlabelled(where) * self._fewness

    @property
    def _fewness(self) -> float:
        """The factor h = (labels + 50)^−0.6."""
        return float((_BIAS_LABELS + self.effective_labels) ** -_BIAS_POWER)

    def _unlabelled(self, where: Bools) -> float:
        """Return the share of rows without a label."""
        return float(1.0 - self._done()[0].labelled[where].mean())

    def _estimate(self, metric: str, model: int, where: Bools, level: float) -> Result:
        if self._parts is None or self._parts.disagreement is None:
            return super()._estimate(metric, model, where, level)
        value = self._value(metric, model, where)
        if isinstance(value, Unknown):
            return value
        values = self._metric_draws(metric, where, resampled=False)[model]
        moved = self._moved(metric, model, where)
        known, moved = values[~np.isnan(values)], moved[~np.isnan(moved)]
        spread = max(_MEAN_TO_DEVIATION * float(np.abs(known - value).mean()), _LEAST_SPREAD)
        factor, shape = SPREAD[min(self._done()[0].classes, 3)][metric]
        differ = max(self._parts.disagreement, _LEAST_DISAGREEMENT)
        variance = factor**2 * spread**1.5 * differ**0.5 * (1.0 if metric == "auroc" else self._fewness)
        variance += (shape * self._unlabelled(where) * self._fewness) ** 2
        if len(moved):
            variance += float(moved.var())
        half = float(scipy.special.ndtri(0.5 + level / 2)) * variance**0.5
        ends = max(value - half, 0.0), min(value + half, 1.0)
        return Estimate(value, *ends, level, int(self._rows(model, where).sum()))

    def _value(self, metric: str, model: int, where: Bools) -> float | Unknown:
        if self._parts is None or self._parts.disagreement is None:
            return super()._value(metric, model, where)
        values = self._metric_draws(metric, where, resampled=False)[model]
        known = ~np.isnan(values)
        if 2 * known.sum() <= len(values):
            return Unknown(undefined(metric, int(self._rows(model, where).sum())))
        parts = [part[~np.isnan(part)] for part in np.split(values, self._parts.mixture.ends[:-1])]
        total = sum(len(part) * float(np.median(part)) for part in parts if len(part))
        return float(np.clip(total / known.sum(), 0.0, 1.0))

    def _predict(self, scores: Floats) -> Floats:
        if self._parts is None:
            raise RuntimeError(_REFUSED.format(self.refused, "it cannot predict"))
        evidence = self._parts.pooling.evidence(scores)
        return self._mean(evidence, self._probabilities(evidence))

    def _mean(self, evidence: Evidence, blocks: Iterable[Floats]) -> Floats:
        total = np.zeros((evidence.rows, evidence.classes))
        for chance in chain.from_iterable(blocks):
            total += chance
        return total / self.draws

    def _probabilities(self, evidence: Evidence) -> Iterator[Floats]:
        """Yield class probabilities (d, n, K), a block of draws at a time."""
        if self._parts is not None:
            for logits in self._parts.mixture.logits(evidence):
                yield softmax(logits)


def _flags(data: LabelledScores) -> tuple[str, ...]:
    seen = np.unique(data.labels[data.labelled])
    if len(seen) == 0:
        return ("no labels",)
    return () if len(seen) == data.classes else ("a class without labels",)
