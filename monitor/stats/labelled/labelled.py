"""Metrics from the labelled rows alone; they need many labels."""

from __future__ import annotations

import numpy as np
import scipy

from monitor.base.records import Floats, Ints
from monitor.base.results import Estimate, Reason, Result, Unknown
from monitor.stats.estimate.proportion import wilson_interval
from monitor.stats.labelled.base import Fitted, LabelEstimator
from monitor.stats.labelled.inputs import Bools, LabelledScores
from monitor.stats.labelled.metrics import ModelRows, undefined
from monitor.stats.labelled.powered import accuracy_covariance
from monitor.stats.solvers import brentq

_BESIDE = 1e-9
RESAMPLINGS = 400
"""The number of resamplings of the rows for intervals without a formula."""


class Labelled(LabelEstimator):
    """Metrics over the labelled rows.

    A subgroup without labels gets the metrics of all labelled rows, as in the paper. In this case,
    `Estimate.n` counts rows outside of the subgroup. The estimator assumes that labelled rows were sampled at
    random, or that `weights` have the inverse sampling probabilities. If wrong answers are labelled more
    often, the estimates are biased for any number of labels. With `weights` they are Hájek's estimator of a
    mean, and the intervals use the effective number of labels.

    The intervals are for the population from which the labelled rows are a sample:

    * accuracy, precision, recall and specificity have Wilson's interval for their counts;
    * F1 = 2J / (1 + J) has Wilson's interval for J, the share of right answers among the rows that belong to
      the class or are predicted as it;
    * AUROC has Newcombe's score interval, which keeps a positive width at an AUROC of 1;
    * average precision has Wilson's interval with the number of positive rows as trials;
    * calibration errors, and all means over more than two classes, have the interval of a Bayesian bootstrap
      of the rows, centred on the value. It is too narrow with fewer than about 50 labels.

    The calibration errors are corrected for the bias from label noise
    (`monitor.stats.estimate.labelled_calibration_error`); with fewer than about 10 rows per bin they are
    mostly noise.

    Lowest coverage of its 95 % intervals on real classifiers (`tests/fidelity/SCOREBOARD.md`): class_ece 87
    %.

    References
    ----------
    Shanmugam et al., appendix B.2 ("Labeled"). R. G. Newcombe, *Confidence intervals for an effect size
    measure based on the Mann-Whitney statistic, part 2*, Statistics in Medicine 25 (2006), method 5.
    K. Boyd, K. H. Eng, C. D. Page, *Area under the precision-recall curve: point estimates and confidence
    intervals*, ECML PKDD 2013, for the binomial interval of average precision.

    Examples
    --------
    >>> scores = np.tile([[[0.2, 0.8]], [[0.9, 0.1]]], (25, 1, 1))
    >>> labels = np.tile([1, 0], 25)
    >>> labels[:5] = [0, 1, 0, 1, 0]
    >>> accuracy = Labelled().fit(scores, labels).estimate("accuracy")
    >>> round(accuracy.value, 6), round(accuracy.lower, 4), round(accuracy.upper, 4), accuracy.n
    (0.9, 0.7864, 0.9565, 50)
    """

    tag = "labelled"

    def _fit(self, data: LabelledScores) -> Fitted:
        known = data.labelled
        if not known.any():
            uniform = np.full((data.rows, data.classes), 1.0 / data.classes)
            return Fitted(uniform, refused=Reason.NO_LABELS)
        weight = np.ones(data.rows) if data.weights is None else data.weights
        shares = np.bincount(data.labels[known], weight[known], minlength=data.classes)
        return Fitted(data.clamp(np.tile(shares / shares.sum(), (data.rows, 1))))

    @property
    def prevalence(self) -> Floats:
        """The (K,) share of each class among the labelled rows; equal shares if there are none."""
        data, fitted = self._done()
        if not data.labelled.any():
            return np.full(data.classes, 1.0 / data.classes)
        if data.labelled.all():
            weight = np.ones(data.rows) if data.weights is None else data.weights
            return np.asarray(weight @ fitted.posterior / weight.sum())
        shares: Floats = fitted.posterior[~data.labelled][0].copy()
        return shares

    def _predict(self, scores: Floats) -> Floats:
        return np.tile(self.prevalence, (len(scores), 1))

    def _estimate(self, metric: str, model: int, where: Bools, level: float) -> Result:
        data, _ = self._done()
        known = data.labelled & where
        rows = np.flatnonzero(self._rows(model, known))
        if not len(rows):
            known = data.labelled
            rows = np.flatnonzero(self._rows(model, known))
        if not len(rows):
            return Unknown(Reason.NO_LABELS)
        view = ModelRows.from_data(data, [model], known, self._positive(), [metric])
        weight = np.ones(data.rows) if data.weights is None else data.weights
        posterior = data.clamp(np.zeros((data.rows, data.classes)))[None]
        values = view.values(posterior, None if data.weights is None else weight[None])
        value = float(values[0, 0, 0])
        if np.isnan(value):
            return Unknown(undefined(metric, len(rows)))
        ends = self._ends(metric, value, data.labels[rows], data.predicted[rows, model], weight[rows], level)
        if ends is None:
            ends = self._bootstrapped(metric, value, view, weight, level)
        lower, upper = (float(np.clip(end, 0.0, 1.0)) for end in ends)
        return Estimate(value, min(lower, value), max(upper, value), level, len(rows))

    def _covariance(self, metric: str) -> Floats | None:
        data, fitted = self._done()
        if metric != "accuracy":
            return None
        return accuracy_covariance(data, [fitted.posterior] * data.models, 0.0)  # 0 ignores the annotator

    def _ends(
        self, metric: str, value: float, labels: Ints, predicted: Ints, weight: Floats, level: float
    ) -> tuple[float, float] | None:
        """Return the ends of the interval if a formula exists, else None."""
        data, _ = self._done()
        if metric == "accuracy":
            return wilson_interval(value, _effective(weight), level)
        if data.classes > 2 or metric in ("ece", "class_ece"):
            return None
        of_class, acted = labels == self._positive(), predicted == self._positive()
        if metric == "auroc":
            return newcombe_ends(value, _effective(weight[of_class]), _effective(weight[~of_class]), level)
        trials = {"precision": acted, "f1": acted | of_class, "specificity": ~of_class}.get(metric, of_class)
        if metric != "f1":
            return wilson_interval(value, _effective(weight[trials]), level)
        low, high = wilson_interval(value / (2.0 - value), _effective(weight[trials]), level)
        return 2 * low / (1 + low), 2 * high / (1 + high)

    def _bootstrapped(
        self, metric: str, value: float, view: ModelRows, weight: Floats, level: float
    ) -> tuple[float, float]:
        data, _ = self._done()
        rng = np.random.default_rng([self.seed, 1])
        resampled = rng.standard_exponential((RESAMPLINGS, data.rows)) * weight
        labels = data.clamp(np.zeros((data.rows, data.classes)))
        posterior = np.broadcast_to(labels, (RESAMPLINGS, *labels.shape))
        values = view.values(posterior, resampled)[0, 0]
        values = values[~np.isnan(values)]
        centred = values + (value - values.mean())
        low, high = np.quantile(centred, [(1 - level) / 2, (1 + level) / 2])
        return float(low), float(high)


def _effective(weight: Floats) -> float:
    """Return the effective number of rows, (Σw)² / Σw² (L. Kish)."""
    return float(weight.sum() ** 2 / (weight @ weight))


def newcombe_ends(auroc: float, positives: float, negatives: float, level: float) -> tuple[float, float]:
    """Return the ends of a score interval for an AUROC (0 to 1) from positive and negative rows.

    The ends are the values θ that differ from the observed AUROC by z standard errors. The variance for an
    AUROC of θ is given by Hanley and McNeil: θ(1 − θ) [1 + N ((1 − θ)/(2 − θ) + θ/(1 + θ))] / (positives ·
    negatives), with N = (positives + negatives)/2 − 1. `positives` and `negatives` are numbers of rows.

    Examples
    --------
    >>> [round(end, 3) for end in newcombe_ends(1.0, 10, 10, 0.95)]
    [0.8, 1.0]
    """
    z = float(scipy.special.ndtri(0.5 + level / 2))
    size = (positives + negatives) / 2 - 1

    def excess(theta: float) -> float:
        spread = theta * (1 - theta) * (1 + size * ((1 - theta) / (2 - theta) + theta / (1 + theta)))
        return float((auroc - theta) ** 2 - z * z * spread / (positives * negatives))

    # Near the AUROC the excess is negative; at 0 and 1 it is at least 0.
    lower = 0.0 if auroc <= _BESIDE else brentq(excess, 0.0, auroc - _BESIDE)
    upper = 1.0 if auroc >= 1.0 - _BESIDE else brentq(excess, auroc + _BESIDE, 1.0)
    return lower, upper
