"""Pseudo-labels: class probabilities from a logistic regression on all models' scores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy

from monitor.base.records import Floats, Ints
from monitor.base.results import Reason
from monitor.stats.calibration.newton import minimise
from monitor.stats.labelled.base import Fitted
from monitor.stats.labelled.inputs import LabelledScores, effective_weights, mean_of_models
from monitor.stats.labelled.posterior import PosteriorEstimator

_DRAWS = 100
_FREE = 1e-6
"""Precision of the prior of the intercepts: negligible, but it makes the softmax's intercepts unique."""


@dataclass(frozen=True, slots=True, eq=False)
class _Regression:
    """A fitted regression."""

    seen: Ints  # the classes with labels
    mode: Floats  # the most probable coefficients
    around: Floats  # normal draws around them

    def chances(self, design: Floats, coefficients: Floats, classes: int) -> Floats:
        """Return the (n, K) class probabilities, which are 0 for a class without labels."""
        table = np.zeros((len(design), classes))
        table[:, self.seen] = scipy.special.softmax(_logits(design, coefficients, len(self.seen)), axis=1)
        return table


class PseudoLabel(PosteriorEstimator):
    """Metrics with the predictions of a logistic regression in place of missing labels.

    The regressors are all models' class probabilities. The fit is scikit-learn's default: an L2 penalty of
    ½‖w‖² on the slopes (C = 1), and none on the intercept; for more than two classes it is a softmax
    regression. Metrics use the class probabilities of unlabelled rows, not their most probable class.

    The estimator assumes that the penalty suits the data. The penalty is a standard normal prior of each
    slope, while scores are between 0 and 1. So with about 20 labels **the probabilities are shrunk towards
    the share of each class**, and the AUROC of a good model is far too low (Table S4 of the paper: by 17
    percentage points). The interval includes the sampling of the rows and the uncertainty of the coefficients
    by Laplace's approximation, but not that error. Unlabelled rows do not contribute to the fit.

    The fit needs labels of at least two classes; a class without labels gets the probability 0. `weights`
    multiply the log-likelihood. Missing scores of a model are replaced by the mean of the models that
    answered.

    Lowest coverage of its 95 % intervals on real classifiers (`tests/fidelity/SCOREBOARD.md`): accuracy 72
    %, class_ece 67 %, auroc 41 %, average_precision 49 %.

    References
    ----------
    Shanmugam et al., section 5 and appendix B.2 ("Pseudo-Labeling"). D.-H. Lee, *Pseudo-label: the simple
    and efficient semi-supervised learning method for deep neural networks* (2013).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.integers(0, 2, 400)
    >>> odds = 3 * (2 * truth[:, None] - 1) + rng.normal(size=(400, 2))
    >>> scores = np.stack([1 / (1 + np.exp(odds)), 1 / (1 + np.exp(-odds))], axis=2)
    >>> fit = PseudoLabel().fit(scores, np.where(np.arange(400) < 100, truth, -1))
    >>> round(fit.point("accuracy"), 2), round(float((scores[:, 0].argmax(axis=1) == truth).mean()), 2)
    (0.94, 1.0)
    """

    tag = "pseudo_label"
    draws: ClassVar[int] = _DRAWS
    _fitted_regression: _Regression | None = None

    def _fit(self, data: LabelledScores) -> Fitted:
        self._fitted_regression = None
        rows = np.flatnonzero(data.labelled)
        seen, labels = np.unique(data.labels[rows], return_inverse=True)
        if len(seen) < 2:
            reason = Reason.TOO_FEW_LABELS if len(seen) else Reason.NO_LABELS
            return Fitted(data.clamp(data.mean_of_models()), refused=reason)
        weight = effective_weights(data, rows)
        mode, around = _regression(_design(data.scores[rows]), labels, weight, len(seen), self.rng())
        self._fitted_regression = _Regression(seen, mode, around)
        posterior = data.clamp(self._fitted_regression.chances(_design(data.scores), mode, data.classes))
        flags = () if len(seen) == data.classes else ("a class without labels",)
        return Fitted(posterior, iterations=1, flags=flags)

    def _draw_posteriors(self, rng: np.random.Generator) -> Iterator[Floats]:
        data, fitted = self._done()
        if self._fitted_regression is None:
            yield fitted.posterior
            return
        design = _design(data.scores)
        for coefficients in self._fitted_regression.around:
            yield data.clamp(self._fitted_regression.chances(design, coefficients, data.classes))

    def _predict(self, scores: Floats) -> Floats:
        data, _ = self._done()
        if self._fitted_regression is None:
            return mean_of_models(scores)
        return self._fitted_regression.chances(_design(scores), self._fitted_regression.mode, data.classes)


def _design(scores: Floats) -> Floats:
    """Return the (n, p) models' probabilities, of two classes the second's only, and a column of ones."""
    filled = np.where(np.isnan(scores), mean_of_models(scores)[:, None, :], scores)
    kept = filled[:, :, 1:] if scores.shape[2] == 2 else filled
    return np.hstack([kept.reshape(len(scores), kept.shape[1] * kept.shape[2]), np.ones((len(scores), 1))])


def _logits(design: Floats, coefficients: Floats, classes: int) -> Floats:
    """Return (n, S) logits; for two classes the first has 0."""
    line: Floats = design @ coefficients.reshape(-1, design.shape[1]).T
    return np.hstack([np.zeros((len(design), 1)), line]) if classes == 2 else line


def _regression(
    design: Floats, labels: Ints, weight: Floats, classes: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Return the most probable coefficients (p·C,), and draws (draws, p·C) of Laplace's approximation."""
    first = 1 if classes == 2 else 0
    columns = classes - first
    penalty = np.tile(np.r_[np.ones(design.shape[1] - 1), _FREE], columns)
    truth = np.eye(classes)[labels]

    def objective(at: Floats) -> tuple[float, Floats, Floats]:
        logits = _logits(design, at, classes)
        chance = scipy.special.softmax(logits, axis=1)
        value = -float(weight @ (truth * scipy.special.log_softmax(logits, axis=1)).sum(axis=1))
        slope = ((chance - truth) * weight[:, None])[:, first:].T @ design
        kept = chance[:, first:]
        blocks = [
            [(design.T * (weight * kept[:, k] * ((k == j) - kept[:, j]))) @ design for j in range(columns)]
            for k in range(columns)
        ]
        return (
            value + 0.5 * float(penalty @ (at * at)),
            slope.ravel() + penalty * at,
            np.block(blocks) + np.diag(penalty),
        )

    start = np.zeros(len(penalty))
    mode = minimise(objective, start, np.full(len(penalty), -np.inf))
    root = np.linalg.cholesky(objective(mode)[2])
    normal = rng.standard_normal((len(penalty), _DRAWS))
    around = mode + scipy.linalg.solve_triangular(root, normal, lower=True, trans="T").T
    return mode, around
