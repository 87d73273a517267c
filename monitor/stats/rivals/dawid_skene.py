"""The estimator of Dawid and Skene, which treats models as annotators with confusion matrices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy

from monitor.base.records import Floats, Ints
from monitor.base.results import Reason
from monitor.stats.labelled.base import Fitted
from monitor.stats.labelled.inputs import LabelledScores, votes
from monitor.stats.labelled.posterior import PosteriorEstimator

TOLERANCE = 1e-5
"""Total change of the class shares, and of the confusion matrices, below which EM stops."""

ITERATIONS = 100
"""The largest number of iterations of EM."""

_DRAWS = 100
_DRAW_ITERATIONS = 30
_SMALLEST = 1e-300  # lower bound before a logarithm, for answers that never occur


@dataclass(frozen=True, slots=True, eq=False)
class _Annotators:
    """The result of EM: class shares and confusion matrices."""

    shares: Floats  # (K,)
    answers: Floats  # (M, K, K) probabilities of each answer, by true class

    def chances(self, patterns: Floats) -> Floats:
        """Return the (P, K) class probabilities of answers (P, M, K), which are 0 for a missing model."""
        logs = np.log(np.maximum(self.answers, _SMALLEST))
        joint = np.einsum("pml,mkl->pk", patterns, logs) + np.log(np.maximum(self.shares, _SMALLEST))
        chances: Floats = scipy.special.softmax(joint, axis=1)
        return chances

    def moved(self, other: _Annotators) -> float:
        """Return the larger of the total changes of the shares and of the confusion matrices."""
        return max(
            float(np.abs(self.shares - other.shares).sum()), float(np.abs(self.answers - other.answers).sum())
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Counted:
    """The distinct patterns of answers, so that EM counts rows with the same answers together."""

    patterns: Floats  # (P, M, K) one-hot answers, 0 for a missing model
    of_row: Ints  # (n,) the pattern of each row

    @classmethod
    def from_scores(cls, scores: Floats) -> _Counted:
        """Return the patterns of the models' most probable classes."""
        classes = scores.shape[2]
        unique, inverse = np.unique(votes(scores), axis=0, return_inverse=True)
        one_hot = np.vstack([np.eye(classes), np.zeros(classes)])  # the answer −1 is the last row
        return cls(one_hot[unique], inverse.reshape(-1))


class DawidSkene(PosteriorEstimator):
    """The latent class model of Dawid and Skene: a confusion matrix for each model, fitted by EM.

        M-step   π_k ∝ Σ_i r_ik,   θ_m(l | k) = Σ_i r_ik [model m says l on row i] / Σ_i r_ik
        E-step   r_ik ∝ π_k Π_m θ_m(answer of m on i | k),   labelled rows stay on their label

    A model's answer is its most probable class. EM starts from the shares of the models' answers in each row.
    It stops when neither the class shares nor the matrices change by `TOLERANCE` in total, or after
    `ITERATIONS` (flag "not converged"). There is no smoothing: the result is the maximum of the likelihood,
    as in the paper.

    The estimator assumes that the models' errors are independent given the class, and equally likely for all
    rows of a class. But models that are trained on the same data make errors on the same rows. **These common
    errors count as the truth, and the models' accuracies are too high**, for any number of rows, until labels
    outnumber the unlabelled rows. The class probabilities are near 0 and 1, so average precision is far off
    in rare classes. The interval includes the sampling of the rows and of the fit (a Bayesian bootstrap of
    all rows, with EM continued on each sample), but not that error. Two models without any label do not
    determine the fit.

    `weights` are ignored, because the model assumes that, given the answers, a row's class does not depend on
    whether the row was labelled.

    Lowest coverage of its 95 % intervals on real classifiers (`tests/fidelity/SCOREBOARD.md`): accuracy 5
    %, class_ece 16 %, auroc 0 %, average_precision 0 %.

    References
    ----------
    A. P. Dawid, A. M. Skene, *Maximum likelihood estimation of observer error-rates using the EM
    algorithm*, Applied Statistics 28 (1979), equations 2.3 to 2.5 and 3.1. Shanmugam et al., appendix B.2,
    for the tolerance and the number of iterations.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.integers(0, 2, 2000)
    >>> answers = np.where(rng.random((2000, 3)) < [0.9, 0.8, 0.7], truth[:, None], 1 - truth[:, None])
    >>> fit = DawidSkene().fit(np.eye(2)[answers], np.full(2000, -1))
    >>> [round(fit.point("accuracy", m), 2) for m in range(3)], fit.flags
    ([0.92, 0.8, 0.69], ('no labels', 'not converged'))
    """

    tag = "dawid_skene"
    draws: ClassVar[int] = _DRAWS
    _annotators: _Annotators | None = None
    _around: tuple[_Annotators, ...] = ()

    def _fit(self, data: LabelledScores) -> Fitted:
        counted = _Counted.from_scores(data.scores)
        started = _first(counted.patterns)
        annotators, iterations, converged = _iterated(data, counted, np.ones(data.rows), started, ITERATIONS)
        self._annotators = annotators
        posterior = data.clamp(annotators.chances(counted.patterns)[counted.of_row])
        self._around = tuple(self._resampled(data, counted, annotators))
        flags = [] if data.labelled.any() else ["no labels"]
        flags += [] if converged else ["not converged"]
        vanished = _vanished(data, started[counted.of_row], posterior)
        return Fitted(posterior, converged, iterations, Reason.COLLAPSED if vanished else None, tuple(flags))

    def _resampled(
        self, data: LabelledScores, counted: _Counted, annotators: _Annotators
    ) -> Iterator[_Annotators]:
        rng = self.rng()
        started = annotators.chances(counted.patterns)
        for _ in range(_DRAWS):
            mass = rng.standard_exponential(data.rows)
            yield _iterated(data, counted, mass, started, _DRAW_ITERATIONS)[0]

    def _draw_posteriors(self, rng: np.random.Generator) -> Iterator[Floats]:
        data, _ = self._done()
        counted = _Counted.from_scores(data.scores)
        for annotators in self._around:
            yield data.clamp(annotators.chances(counted.patterns)[counted.of_row])

    def _predict(self, scores: Floats) -> Floats:
        counted = _Counted.from_scores(scores)
        if self._annotators is None:
            raise RuntimeError("a refused fit predicts nothing")
        return self._annotators.chances(counted.patterns)[counted.of_row]


def _first(patterns: Floats) -> Floats:
    """Return the (P, K) shares of the answers; equal shares if there are none."""
    count = patterns.sum(axis=1)
    total = count.sum(axis=1, keepdims=True)
    equal = np.full_like(count, 1.0 / count.shape[1])
    shares: Floats = np.divide(count, total, out=equal, where=total > 0)
    return shares


def _iterated(
    data: LabelledScores, counted: _Counted, mass: Floats, started: Floats, most: int
) -> tuple[_Annotators, int, bool]:
    """Run at most `most` iterations of EM on rows of weight `mass` (n,), from responsibilities (P, K)."""
    shape = started.shape
    known = data.labelled
    at = counted.of_row[known] * shape[1] + data.labels[known]
    labelled = np.bincount(at, mass[known], minlength=started.size).reshape(shape)
    free = np.bincount(counted.of_row[~known], mass[~known], minlength=shape[0])[:, None]
    annotators = _maximised(counted.patterns, labelled + free * started)
    for iteration in range(1, most + 1):
        following = _maximised(counted.patterns, labelled + free * annotators.chances(counted.patterns))
        moved = following.moved(annotators)
        annotators = following
        if moved < TOLERANCE:
            return annotators, iteration, True
    return annotators, most, False


def _maximised(patterns: Floats, mass: Floats) -> _Annotators:
    """Return the M-step for the mass (P, K) of each class in each pattern."""
    answers = np.einsum("pk,pml->mkl", mass, patterns)
    total = answers.sum(axis=2, keepdims=True)
    classes = mass.shape[1]
    equal = np.full_like(answers, 1.0 / classes)  # a class without any row, a model without any answer
    return _Annotators(mass.sum(axis=0) / mass.sum(), np.divide(answers, total, out=equal, where=total > 0))


def _vanished(data: LabelledScores, voted: Floats, posterior: Floats) -> bool:
    """Return whether a class with the votes of at least five unlabelled rows has lost them all."""
    free = ~data.labelled
    return bool(((voted[free].sum(axis=0) >= 5.0) & (posterior[free].sum(axis=0) < 0.5)).any())
