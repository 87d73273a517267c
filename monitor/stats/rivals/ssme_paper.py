"""The SSME-KDE estimator of the paper, for comparison with `ssme`."""

from __future__ import annotations

import numpy as np
import scipy

from monitor.base.records import Floats, Ints
from monitor.base.results import Reason
from monitor.stats.labelled.base import Fitted
from monitor.stats.labelled.inputs import LabelledScores, mean_of_models
from monitor.stats.labelled.posterior import PosteriorEstimator
from monitor.stats.rivals.kde import BANDWIDTHS, Bandwidth, ClassDensities, bandwidths

EPSILON = 1e-6
"""Lower bound of scores before log ratios, which then stay within ±14."""

EPOCHS = 50
"""Largest number of EM iterations (Shanmugam et al., section 4). With 1000, as in their appendix E.3, no
estimate of any run on the toxicity task moves by more than 0.6 points (`python -m tests.fidelity.ssme
epochs`)."""

TOLERANCE = 1e-4
"""EM stops if no responsibility changes by more."""

_INITIAL_STREAM = 10


def additive_log_ratio(scores: Floats, epsilon: float = EPSILON) -> Floats:
    """Return unbounded coordinates (…, K − 1) of class probabilities (…, K): log(p_k / p_K) for k < K.

    Probabilities below `epsilon` are raised to `epsilon`.

    References
    ----------
    J. Aitchison, *The statistical analysis of compositional data*, JRSS B 44 (1982); Shanmugam et al.,
    appendix E.1.

    Examples
    --------
    >>> additive_log_ratio(np.array([[0.5, 0.5], [1.0, 0.0]])).round(2).tolist()
    [[0.0], [13.82]]
    """
    logs = np.log(np.clip(scores, epsilon, 1.0))
    ratios: Floats = logs[..., :-1] - logs[..., -1:]
    return ratios


class SSMEPaper(PosteriorEstimator):
    """A mixture of kernel densities of all models' scores, one density for each class, fitted by EM.

    Let s be the scores of a row, mapped by additive log-ratio to R^(M(K−1)), and r the responsibilities (n,
    K). Labelled rows have c_j = 1, and others c_j = λ:

        M-step   π_k ∝ Σ_j c_j r_jk,   f_k(s) = Σ_j c_j r_jk K_h(s − s_j) / Σ_j c_j r_jk
        E-step   r_ik ∝ π_k f_k(s_i),  labelled rows stay on their label

    K_h is a product of Gaussians with one bandwidth for each dimension, chosen once from all rows. EM begins
    with a random class for each unlabelled row, sampled from the mean of the classifiers. EM stops when no
    responsibility changes by more than `TOLERANCE`, or after `epochs` iterations (flag "not converged"). With
    kernels in the M-step the likelihood may fall.

    The estimator assumes that labelled rows were chosen at random from the population of the others, that one
    bandwidth for each dimension suits all classes, and that the mean of the classifiers, its start, is near
    the truth.

    **It misleads** with the scores of seven real classifiers: a row's own kernel dominates f_k(s_i), so EM
    stays at the initial classes. For any labels, the result is then the mean of the classifiers plus the
    noise of the sampled classes. The interval includes only the sampling of the rows.

    Missing scores of a model are replaced by the mean of the models that answered.

    Lowest coverage of its 95 % intervals on real classifiers (`tests/fidelity/SCOREBOARD.md`): accuracy 37
    %, class_ece 36 %, auroc 18 %, average_precision 36 %.

    Parameters
    ----------
    bandwidth : {"isj", "silverman", "scott"}
        See `monitor.stats.rivals.kde.bandwidths`.
    unlabelled_weight : float
        λ, above 0 (1 in the paper).
    epochs : int
        Largest number of iterations.
    seed, positive
        See `LabelEstimator`.

    Raises
    ------
    ValueError
        A parameter is out of range.

    References
    ----------
    D. Shanmugam, S. Sadhuka, M. Raghavan, J. Guttag, B. Berger, E. Pierson, *Evaluating multiple models using
    labeled and unlabeled data*, NeurIPS 2025, section 4, appendices E.1 to E.3.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> truth = (rng.random(400) < 0.5).astype(int)
    >>> shared, own = rng.normal(size=(400, 1)), rng.normal(size=(400, 7))
    >>> evidence = 4.0 * truth[:, None] - 2.0 + 2.0 * shared + 0.5 * own
    >>> scores = np.stack([1 / (1 + np.exp(evidence)), 1 / (1 + np.exp(-evidence))], axis=2)
    >>> fit = SSMEPaper(seed=1).fit(scores, np.where(np.arange(400) < 40, truth, -1))
    >>> right = (scores[:, 0].argmax(axis=1) == truth).mean()
    >>> fit.iterations, round(fit.point("accuracy", 0), 2), round(float(right), 2)
    (50, 0.85, 0.85)
    """

    tag = "ssme_paper"

    def __init__(
        self,
        *,
        bandwidth: Bandwidth = "isj",
        unlabelled_weight: float = 1.0,
        epochs: int = EPOCHS,
        seed: int = 0,
        positive: int | None = None,
    ) -> None:
        super().__init__(seed=seed, positive=positive)
        if bandwidth not in BANDWIDTHS:
            raise ValueError(f"bandwidth must be one of {', '.join(BANDWIDTHS)}, got {bandwidth!r}")
        if not 0.0 < unlabelled_weight < np.inf:
            raise ValueError(f"unlabelled_weight must be a number above 0, got {unlabelled_weight!r}")
        if epochs < 1:
            raise ValueError(f"epochs must be at least 1, got {epochs!r}")
        self.bandwidth: Bandwidth = bandwidth
        self.unlabelled_weight = float(unlabelled_weight)
        self.epochs = epochs
        self._densities: ClassDensities | None = None
        self._mass: Floats | None = None

    def _fit(self, data: LabelledScores) -> Fitted:
        claimed = data.mean_of_models()
        posterior = data.clamp(np.eye(data.classes)[_sampled_classes(claimed, self.rng(_INITIAL_STREAM))])
        if data.rows < 2:
            return Fitted(posterior, converged=False, refused=Reason.TOO_FEW_ROWS)
        points = _points(data.scores)
        width, failed = bandwidths(points, self.bandwidth)
        self._densities = ClassDensities(points, width)
        posterior, iterations, converged = self._iterated(data, self._densities, posterior)
        self._mass = self._weighted(data, posterior)
        flags = [] if data.labelled.any() else ["no labels"]
        flags += [] if converged else ["not converged"]
        flags += [f"rule of thumb for {failed} bandwidths"] if failed else []
        details = {"bandwidth": float(np.exp(np.log(width).mean()))}
        refused = Reason.COLLAPSED if _collapsed(data, claimed, posterior) else None
        return Fitted(posterior, converged, iterations, refused, tuple(flags), details)

    def _iterated(
        self, data: LabelledScores, densities: ClassDensities, posterior: Floats
    ) -> tuple[Floats, int, bool]:
        for iteration in range(1, self.epochs + 1):
            mass = self._weighted(data, posterior)
            updated = data.clamp(_responsibilities(densities.at_points(mass), mass))
            moved = float(np.abs(updated - posterior).max())
            posterior = updated
            if moved <= TOLERANCE:
                return posterior, iteration, True
        return posterior, self.epochs, False

    def _weighted(self, data: LabelledScores, posterior: Floats) -> Floats:
        mass: Floats = posterior * np.where(data.labelled, 1.0, self.unlabelled_weight)[:, None]
        return mass

    def _predict(self, scores: Floats) -> Floats:
        if self._densities is None or self._mass is None:
            return mean_of_models(scores)
        return _responsibilities(self._densities.at(_points(scores), self._mass), self._mass)


def _points(scores: Floats) -> Floats:
    """Return the (n, M(K − 1)) coordinates of the rows."""
    filled = np.where(np.isnan(scores), mean_of_models(scores)[:, None, :], scores)
    ratios = additive_log_ratio(filled)
    return ratios.reshape(len(scores), ratios.shape[1] * ratios.shape[2])


def _sampled_classes(chances: Floats, rng: np.random.Generator) -> Ints:
    """Return a random class for each row (n,), with the probabilities (n, K)."""
    reached = np.cumsum(chances, axis=1)
    above = (rng.random((len(chances), 1)) > reached).sum(axis=1)
    classes: Ints = np.minimum(above, chances.shape[1] - 1)
    return classes


def _responsibilities(log_density: Floats, mass: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        joint = log_density + np.log(mass.sum(axis=0))
    responsibilities: Floats = np.exp(joint - scipy.special.logsumexp(joint, axis=1, keepdims=True))
    return responsibilities


def _collapsed(data: LabelledScores, claimed: Floats, posterior: Floats) -> bool:
    """Return whether a class that the classifiers expect on five unlabelled rows has lost them all."""
    free = ~data.labelled
    return bool(((claimed[free].sum(axis=0) >= 5.0) & (posterior[free].sum(axis=0) < 0.5)).any())
