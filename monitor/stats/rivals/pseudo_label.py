"""Pseudo-labels: a logistic regression of the labels on all models' scores, applied to the other rows."""

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
"""Precision of the prior of the intercepts: negligible, but it determines the softmax's intercepts."""


@dataclass(frozen=True, slots=True, eq=False)
class _Regression:
    """The classes `seen` in labels, the most probable coefficients, and normal draws around them."""

    seen: Ints
    found: Floats
    around: Floats

    def chances(self, design: Floats, coefficients: Floats, classes: int) -> Floats:
        """(n, K) class probabilities; 0 for a class without labels."""
        table = np.zeros((len(design), classes))
        table[:, self.seen] = scipy.special.softmax(_logits(design, coefficients, len(self.seen)), axis=1)
        return table


class PseudoLabel(PosteriorEstimator):
    """Uses a logistic regression of the label on all models' class probabilities.

    The fit is scikit-learn's default: an L2 penalty of ½‖w‖² on the slopes (C = 1), none on the intercept;
    for more than two classes the softmax with coefficients for each class. The unlabelled rows count by their
    class probabilities, not by the most probable class.

    It assumes that the penalty suits the data. The penalty is the standard normal prior of a slope, and
    scores lie between 0 and 1. So with some 20 labels **it shrinks towards the share of each class**, and the
    AUROC of a good model is far too low (Table S4 of the paper: off by 17 points). The interval contains the
    sampling of the rows and the normal approximation (Laplace) of the coefficients' distribution, but not
    that error. It learns nothing from unlabelled rows.

    It needs labels of at least two classes; a class without labels gets the probability 0. `weights` count in
    the likelihood. The mean of the models that answered replaces a missing model's scores.

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
    _learnt: _Regression | None = None

    def _fit(self, data: LabelledScores) -> Fitted:
        self._learnt = None
        rows = np.flatnonzero(data.labelled)
        seen, labels = np.unique(data.labels[rows], return_inverse=True)
        if len(seen) < 2:
            reason = Reason.TOO_FEW_LABELS if len(seen) else Reason.NO_LABELS
            return Fitted(data.clamp(data.mean_of_models()), refused=reason)
        weight = effective_weights(data, rows)
        found, around = _regression(_design(data.scores[rows]), labels, weight, len(seen), self.rng())
        self._learnt = _Regression(seen, found, around)
        posterior = data.clamp(self._learnt.chances(_design(data.scores), found, data.classes))
        flags = () if len(seen) == data.classes else ("a class without labels",)
        return Fitted(posterior, iterations=1, flags=flags)

    def _draw_posteriors(self, rng: np.random.Generator) -> Iterator[Floats]:
        data, fitted = self._done()
        if self._learnt is None:
            yield fitted.posterior
            return
        design = _design(data.scores)
        for coefficients in self._learnt.around:
            yield data.clamp(self._learnt.chances(design, coefficients, data.classes))

    def _predict(self, scores: Floats) -> Floats:
        data, _ = self._done()
        if self._learnt is None:
            return mean_of_models(scores)
        return self._learnt.chances(_design(scores), self._learnt.found, data.classes)


def _design(scores: Floats) -> Floats:
    """(n, p) all models' probabilities and a column of ones; for two classes only the second's."""
    filled = np.where(np.isnan(scores), mean_of_models(scores)[:, None, :], scores)
    kept = filled[:, :, 1:] if scores.shape[2] == 2 else filled
    return np.hstack([kept.reshape(len(scores), kept.shape[1] * kept.shape[2]), np.ones((len(scores), 1))])


def _logits(design: Floats, coefficients: Floats, classes: int) -> Floats:
    """(n, S) logits; for two classes the first has 0."""
    line: Floats = design @ coefficients.reshape(-1, design.shape[1]).T
    return np.hstack([np.zeros((len(design), 1)), line]) if classes == 2 else line


def _regression(
    design: Floats, labels: Ints, weight: Floats, classes: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """The most probable coefficients (p·C,), and draws (draws, p·C) of Laplace's approximation."""
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
    found = minimise(objective, start, np.full(len(penalty), -np.inf))
    root = np.linalg.cholesky(objective(found)[2])
    normal = rng.standard_normal((len(penalty), _DRAWS))
    around = found + scipy.linalg.solve_triangular(root, normal, lower=True, trans="T").T
    return found, around
