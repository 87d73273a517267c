"""SSME with a normalizing flow: a Gaussian mixture over an invertible map of all models' scores."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from monitor.base.records import Floats
from monitor.base.results import Reason
from monitor.stats.labelled.base import Fitted
from monitor.stats.labelled.inputs import LabelledScores, mean_of_models
from monitor.stats.labelled.posterior import PosteriorEstimator
from monitor.stats.rivals.flow import NormalMixture, Training, train_flow
from monitor.stats.rivals.ssme_paper import additive_log_ratio

FEWEST_ROWS = 20
EM_ITERATIONS = 700
"""Largest number of EM iterations of the mixture after the flow, as in the paper."""

_TOLERANCE = 1e-4  # EM stops if no responsibility changes by more
_CLIP = 1e-6
_STREAM = 10


class SSMEFlow(PosteriorEstimator):
    """A Gaussian mixture over an invertible map of the scores, with one normal distribution for each class.

    1. The scores are mapped by additive log-ratio to R^(M(K−1)) and standardised. The mixture is fitted to
       the mapped scores. The weight of a row for a class is the mean score of the classifiers; a labelled row
       has the weight 1 for its class.
    2. Adam fits the map, a RealNVP of affine couplings, by maximum likelihood with the mixture fixed. The
       training stops when the likelihood of the held-out rows (one in ten) no longer rises, after at most
       `epochs` passes.
    3. EM fits the mixture again to the mapped points, where labelled rows have the probability 1 for their
       class.

    The estimator assumes that one smooth map makes the scores of each class normal, that the classifiers'
    mean identifies the classes, and that labelled rows were chosen at random. **A flexible map can turn any
    split of the rows into the mixture**: so the start determines the result, not the likelihood, and EM may
    drift from the start. On seven real classifiers a map trained for 5 passes instead of 300 left the
    accuracies 28 points off; at the default settings they are 4.5, 4.0 and 3.4 points off with 20, 50 and 100
    labels, twice as far as `ssme_paper` (`tests/fidelity/SCOREBOARD.md`; the paper has no such row for that
    task). The interval includes only the sampling of the rows, not this error. For one model and two classes
    the map is the identity, and the fit a plain Gaussian mixture.

    The estimator needs the extra `flow` (jax, flowjax). A fit takes from seven seconds (1,020 rows, seven
    models, an idle core) to minutes on a CPU. If the agent runs other estimators too, compare this with the
    setting `ssme.seconds`. `weights` are ignored. Equal seeds give equal numbers on one machine with one
    version of jax.

    Lowest coverage of its 95 % intervals on real classifiers (`tests/fidelity/SCOREBOARD.md`): accuracy 13
    %, class_ece 6 %, auroc 12 %, average_precision 0 %.

    Parameters
    ----------
    couplings, width, epochs : int
        See `Training`; the paper has 10, 128 and 300 (appendix C).
    seed, positive
        See `LabelEstimator`.

    Raises
    ------
    ValueError
        A parameter is below 1.
    MissingExtraError
        `fit` was called without the extra installed.

    References
    ----------
    Shanmugam et al., appendix C. L. Dinh, J. Sohl-Dickstein, S. Bengio, *Density estimation using Real NVP*,
    ICLR 2017. P. Izmailov et al., *Semi-supervised learning with normalizing flows*, ICML 2020.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.integers(0, 2, 500)
    >>> odds = 4.0 * truth - 2.0 + rng.normal(size=500)  # one model needs no flow, and no extra
    >>> scores = np.stack([1 / (1 + np.exp(odds)), 1 / (1 + np.exp(-odds))], axis=1)[:, None]
    >>> fit = SSMEFlow().fit(scores, np.where(np.arange(500) < 50, truth, -1))
    >>> round(fit.point("accuracy"), 2), round(float((scores[:, 0].argmax(axis=1) == truth).mean()), 2)
    (0.98, 0.98)
    """

    tag = "ssme_flow"

    def __init__(
        self,
        *,
        couplings: int = 10,
        width: int = 128,
        epochs: int = 300,
        seed: int = 0,
        positive: int | None = None,
    ) -> None:
        super().__init__(seed=seed, positive=positive)
        for name, value in (("couplings", couplings), ("width", width), ("epochs", epochs)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value!r}")
        self.training = Training(couplings, width, epochs)
        self._standard: tuple[Floats, Floats] | None = None
        self._latent: Callable[[Floats], Floats] = _same
        self._mixture: NormalMixture | None = None

    def _fit(self, data: LabelledScores) -> Fitted:
        start = data.clamp(data.mean_of_models())
        if data.rows < FEWEST_ROWS:
            return Fitted(start, converged=False, refused=Reason.TOO_FEW_ROWS)
        points = _points(data.scores)
        spread = points.std(axis=0)
        self._standard = points.mean(axis=0), np.where(spread > 1e-9, spread, 1.0)
        points = self._standardised(points)
        mixture, epochs = NormalMixture.fit(points, start), 0
        if points.shape[1] > 1:
            allowed = data.clamp(np.ones_like(start)) > 0
            self._latent, epochs = train_flow(points, allowed, mixture, self.training, self.rng(_STREAM))
        self._mixture, posterior, iterations, converged = _iterated(data, self._latent(points), start)
        flags = [] if data.labelled.any() else ["no labels"]
        flags += [] if converged else ["not converged"]
        expected, fitted = start[~data.labelled].sum(axis=0), posterior[~data.labelled].sum(axis=0)
        refused = Reason.COLLAPSED if ((expected >= 5.0) & (fitted < 0.5)).any() else None
        return Fitted(posterior, converged, iterations, refused, tuple(flags), {"epochs": float(epochs)})

    def _predict(self, scores: Floats) -> Floats:
        if self._mixture is None or not len(scores):
            return mean_of_models(scores)
        return self._mixture.chances(self._latent(self._standardised(_points(scores))))

    def _standardised(self, points: Floats) -> Floats:
        if self._standard is None:
            raise RuntimeError("there is no fit yet: call fit(scores, labels) first")
        centre, spread = self._standard
        return (points - centre) / spread

    def _forget(self) -> None:
        super()._forget()
        self._standard, self._latent, self._mixture = None, _same, None


def _iterated(data: LabelledScores, latent: Floats, start: Floats) -> tuple[NormalMixture, Floats, int, bool]:
    """Run EM of the mixture from responsibilities (n, K)."""
    posterior = start
    for iteration in range(1, EM_ITERATIONS + 1):
        mixture = NormalMixture.fit(latent, posterior)
        updated = data.clamp(mixture.chances(latent))
        moved = float(np.abs(updated - posterior).max())
        posterior = updated
        if moved <= _TOLERANCE:
            return mixture, posterior, iteration, True
    return mixture, posterior, EM_ITERATIONS, False


def _points(scores: Floats) -> Floats:
    """Return (n, M(K − 1)) coordinates; the mean of the other models replaces a missing model's scores."""
    filled = np.where(np.isnan(scores), mean_of_models(scores)[:, None, :], scores)
    ratios = additive_log_ratio(filled, _CLIP)
    return ratios.reshape(len(scores), ratios.shape[1] * ratios.shape[2])


def _same(points: Floats) -> Floats:
    return points
