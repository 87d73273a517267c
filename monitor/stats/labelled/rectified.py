"""Metrics by PPI++ with SSME as annotator; they are valid even if SSME's assumptions fail."""

from __future__ import annotations

from math import sqrt

import numpy as np
import scipy

from monitor.base.records import Floats, Ints
from monitor.base.results import Estimate, Reason, Result, Unknown
from monitor.stats.labelled.base import Fitted, LabelEstimator
from monitor.stats.labelled.inputs import UNLABELLED, Bools, LabelledScores
from monitor.stats.labelled.metrics import METRICS, ModelRows, undefined
from monitor.stats.labelled.powered import accuracy_covariance, accuracy_of
from monitor.stats.labelled.ssme import SSME

FOLDS = 5
FEWEST_LABELS = 10
"""The smallest number of labels for metrics other than accuracy, which need the variance of corrections."""

_GROUPS = 40  # groups of labelled rows that give the variance of a correction
_RESAMPLINGS = 200
_BLOCK = 20  # posteriors in one computation
_STEP = 1e-4  # step of a numerical derivative
_FOLD_STREAM, _GROUP_STREAM, _ROW_STREAM = range(20, 23)


class Rectified(LabelEstimator):
    """Metrics from SSME's class probabilities, corrected by their error on labelled rows.

    SSME is fitted `FOLDS` times, each time without the labels of one fold. So the class probabilities q of a
    labelled row do not depend on its label y. Accuracy is then estimated by PPI++ as in `autoeval`. For the
    other metrics, the errors y − q of labelled rows are added to the class probabilities, weighted by the
    number of rows that each labelled row represents. Every count is then a plain PPI mean (λ = 1), and every
    metric is a function of such counts or of pairs of rows. The interval includes the variance of the
    corrections (Student's t over groups of labelled rows) and the sampling of the rows (Bayesian bootstrap).

    The estimate remains valid if SSME's assumptions fail, as long as the labelled rows are a random sample or
    `weights` correct for the sampling. If SSME's assumptions hold, `ssme` has narrower intervals. A value
    outside 0 to 1 is clipped. The interval of a clipped value is too narrow. Calibration errors are not
    supported, because no such correction makes sums of absolute values unbiased. With a few dozen labels, the
    coverage of the other metrics' intervals is too small (about 85 % for the AUROC with 60). With fewer than
    `FEWEST_LABELS` labels only accuracy is known.

    Lowest coverage of its 95 % intervals on real classifiers (`tests/fidelity/SCOREBOARD.md`): auroc 76 %,
    average_precision 81 %.

    References
    ----------
    Boyeau et al., *AutoEval Done Right*; T. Zrnic, E. J. Candès, *Cross-prediction-powered inference*, PNAS
    121 (2024), for the folds.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.integers(0, 2, 600)
    >>> logit = (2 * truth - 1)[:, None] + rng.normal(size=(600, 2))
    >>> scores = np.stack([1 / (1 + np.exp(logit)), 1 / (1 + np.exp(-logit))], axis=2)
    >>> accuracy = Rectified().fit(scores, np.where(np.arange(600) < 60, truth, -1)).estimate("accuracy")
    >>> realised = float((scores[:, 0].argmax(axis=1) == truth).mean())
    >>> accuracy.lower < realised < accuracy.upper
    True
    """

    tag = "rectified"
    metrics = frozenset(METRICS) - {"ece", "class_ece"}

    def __init__(self, *, seed: int = 0, positive: int | None = None) -> None:
        super().__init__(seed=seed, positive=positive)
        self._chance: Floats = np.empty((0, 0))
        self._kept: dict[tuple[int, bytes], tuple[Floats, Floats, int]] = {}
        self._whole: SSME | None = None

    def _forget(self) -> None:
        self._kept = {}
        self._whole = None

    def _fit(self, data: LabelledScores) -> Fitted:
        known = np.flatnonzero(data.labelled)
        if not len(known):
            return Fitted(data.mean_of_models(), refused=Reason.NO_LABELS)
        shuffled = np.random.default_rng([self.seed, _FOLD_STREAM]).permutation(known)
        fits = [self._without(data, fold) for fold in np.array_split(shuffled, min(FOLDS, len(known)))]
        whole = self._without(data, known[:0])
        refused = next((fit.refused for fit in [whole, *fits] if fit.refused is not None), None)
        if refused is not None:
            return Fitted(data.clamp(data.mean_of_models()), converged=False, refused=refused)
        self._chance = np.mean([fit.posterior for fit in fits], axis=0)
        for fit, fold in zip(fits, np.array_split(shuffled, len(fits)), strict=True):
            self._chance[fold] = fit.posterior[fold]
        self._whole = whole
        return Fitted(
            data.clamp(self._chance),
            all(fit.converged for fit in fits),
            max(fit.iterations for fit in fits),
        )

    def _without(self, data: LabelledScores, fold: Ints) -> SSME:
        """Fit SSME without the labels of some rows."""
        labels = data.labels.copy()
        labels[fold] = UNLABELLED
        return SSME(seed=self.seed, positive=self.positive).fit(
            data.scores, labels, predicted=data.predicted, weights=data.weights
        )

    def _predict(self, scores: Floats) -> Floats:
        if self._whole is None:
            raise RuntimeError("the fit was refused, so it cannot predict")
        return self._whole.predict(scores)

    def _estimate(self, metric: str, model: int, where: Bools, level: float) -> Result:
        data, _ = self._done()
        rows = np.flatnonzero(self._rows(model, where))
        if metric == "accuracy":
            return accuracy_of(data, rows, model, self._chance, None, level)
        known = rows[data.labels[rows] >= 0]
        if len(known) < FEWEST_LABELS:
            return Unknown(Reason.TOO_FEW_LABELS if len(known) else Reason.NO_LABELS)
        key = model, np.packbits(where).tobytes()
        if key not in self._kept:
            self._kept[key] = self._stepped(data, model, where, known)
        values, errors, groups = self._kept[key]
        value, error = float(values[METRICS.index(metric)]), float(errors[METRICS.index(metric)])
        if np.isnan(value) or np.isnan(error):
            return Unknown(undefined(metric, len(rows)))
        half = float(scipy.special.stdtrit(groups - 1, 0.5 + level / 2)) * error
        lower, upper = max(value - half, 0.0), min(value + half, 1.0)
        if 0.0 < value < 1.0:  # on the logit scale the error of a share depends less on the share
            half /= value * (1.0 - value)
            lower, upper = (
                float(scipy.special.expit(scipy.special.logit(value) + side * half)) for side in (-1, 1)
            )
        return Estimate(value, min(lower, value), max(upper, value), level, len(known))

    def _covariance(self, metric: str) -> Floats | None:
        data, _ = self._done()
        return accuracy_covariance(data, [self._chance] * data.models, None) if metric == "accuracy" else None

    def _stepped(
        self, data: LabelledScores, model: int, where: Bools, known: Ints
    ) -> tuple[Floats, Floats, int]:
        """Return all corrected metrics, their standard errors, and the number of groups for the errors."""
        view = ModelRows.from_data(data, [model], where, self._positive())
        posterior = data.clamp(self._chance)
        weight = np.ones(data.rows) if data.weights is None else data.weights
        # A labelled row represents itself, which the posterior counts already, and rows without a label.
        rows = int(self._rows(model, where).sum())
        share = weight[known] * rows / weight[known].sum() - 1.0
        step = share[:, None] * (posterior[known] - self._chance[known])
        rng = np.random.default_rng([self.seed, _GROUP_STREAM])
        groups = np.array_split(rng.permutation(len(known)), min(_GROUPS, len(known)))
        corrected = posterior.copy()
        corrected[known] += step
        moved = np.stack([_slope(view, corrected, known[g], step[g]) for g in groups], axis=1)
        of_labels = moved.var(axis=1, ddof=1) * len(groups)
        values = view.values(corrected[None])[0, :, 0]
        errors = np.sqrt(of_labels + self._of_rows(view, posterior))
        return np.clip(values, 0.0, 1.0), errors, len(groups)

    def _of_rows(self, view: ModelRows, posterior: Floats) -> Floats:
        """Return the (metrics,) variances from the sampling of the rows."""
        rng = np.random.default_rng([self.seed, _ROW_STREAM])
        values = []
        for _ in range(_RESAMPLINGS // _BLOCK):
            weight = rng.standard_exponential((_BLOCK, len(posterior)))
            values.append(view.values(np.broadcast_to(posterior, (_BLOCK, *posterior.shape)), weight)[0])
        variance: Floats = np.concatenate(values, axis=1).var(axis=1)
        return variance


def _slope(view: ModelRows, posterior: Floats, rows: Ints, step: Floats) -> Floats:
    """Return the (metrics,) derivatives of the metrics along a step of some rows' posterior."""
    size = _STEP / max(1.0, sqrt(float((step * step).sum(axis=1).max())))
    both = np.stack([posterior, posterior])
    both[0, rows] += size * step
    both[1, rows] -= size * step
    ahead, behind = view.values(both)[0].T
    slope: Floats = (ahead - behind) / (2 * size)
    return slope
