"""SPE: how a classifier does, from a mixture of two parametric densities of its scores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from monitor.base.records import Floats
from monitor.base.results import Estimate, Reason, Result, Unknown
from monitor.stats.estimate.poisson_binomial import checked_level
from monitor.stats.labelled.base import Fitted, LabelEstimator
from monitor.stats.labelled.inputs import Bools, LabelledScores, checked_scores
from monitor.stats.labelled.metrics import METRICS
from monitor.stats.labelled.spe.checks import checked_choice, checked_families, checked_share
from monitor.stats.labelled.spe.curves import Kind, PerformanceCurve, Rates, banded
from monitor.stats.labelled.spe.families import FAMILIES
from monitor.stats.labelled.spe.one_model import NO_SPREAD, OneModel, Scope

_DRAWN = 200
"""Thresholds that are tried, at most, at equal counts of rows."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """A threshold that meets a precision and a recall.

    Parameters
    ----------
    value : float
        The model's own score of the positive class, 0 to 1; act on rows that score as much or more.
    probability : float
        That precision and recall are both met there, under the fit.
    precision, recall : float
        Their medians there.
    """

    value: float
    probability: float
    precision: float
    recall: float


class SPE(LabelEstimator):
    """Semisupervised performance evaluation: scores as a mixture of two parametric densities.

    Each model has a fit of its own. Its score of the positive class is put on a line (see `scale`) and scaled
    into (0, 1]. There it follows (1 − π) p₀(s) + π p₁(s), p₀ and p₁ each of one of eight families: truncated
    normal, truncated Student's t, Gamma, log-normal, right- and left-skewed Gumbel, Fréchet, Gompertz. All 64
    pairs are fitted to labelled and unlabelled scores together (equation 2) by L-BFGS-B from several starts,
    with weak priors. The paper keeps the pair of the highest likelihood, as if that were certain; here the
    eight most likely ones share 100 draws by Schwarz's criterion. The draws are of the parameters, by
    importance sampling around the most probable ones; each metric is that of the rows' class probabilities
    under a draw.

    `scope` says what is estimated: "population", that which the rows are a sample of (the interval carries
    the sampling of the rows), or "sample", these very rows (labels are drawn for the unlabelled ones, and
    with all labels the interval has no width). Curves of the population are those of the densities.

    Assumptions, and when it misleads: each class's scores have one mode and a shape of the eight. Where not,
    the fit is biased, and its intervals, which trust the shape, are too narrow: labels hardly mend it, for
    they are few beside the unlabelled rows. On seven toxicity classifiers it is 9 points off with 20 labels
    (`tests/fidelity/SCOREBOARD.md`), and 1.5 on scores of the likeliest families there
    (`python -m tests.fidelity.spe_form`). Labels that lie too far from it are flagged ("labels contradict the
    fit", `details["labels_z"]`: see `monitor.stats.labelled.spe.checks`), there 56 to 86 % of the models;
    refits then give `Unknown` for those (`contradicted`). That no labels contradict it is no proof. Of
    scores that are of the families, the AUROC's intervals of 95 % hold 86 to 94 %
    (`python -m tests.fidelity.spe_digits`). Rows may be picked for labelling by their score, since the fit is
    conditional on it; where they are picked by anything else the estimate is biased, and `weights` are not
    read. Two densities of different widths can make the chance of the positive class fall again at the ends.

    With more than two classes each class is fitted against the rest, and a row's chances are divided by
    their sum, as nothing in the paper says. The calibration errors are `Unknown`: the paper defines none.
    The paper's proposal is Normal with a diagonal covariance; ours is Student's t with the full one.

    Parameters
    ----------
    seed, positive
        As in `LabelEstimator`.
    scope : {"population", "sample"}
    scale : {"logit", "identity"}
        Where the densities live: on the log odds of the score (those of a probability of 0 or 1 are cut at
        10⁻⁶), or on the score itself, as the paper's detectors have it.
    families : sequence of str, optional
        Names of `FAMILIES` to try; all if absent.

    Raises
    ------
    ValueError
        A setting is not allowed.

    References
    ----------
    P. Welinder, M. Welling, P. Perona, *A lazy man's approach to benchmarking: semisupervised classifier
    evaluation and recalibration*, CVPR 2013.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.random(600) < 0.3
    >>> chance = 1 / (1 + np.exp(1 - 4 * truth - rng.normal(size=600)))
    >>> scores = np.stack([1 - chance, chance], axis=1)[:, None]
    >>> fit = SPE().fit(scores, np.where(np.arange(600) < 20, truth, -1))
    >>> found = fit.precision_at_recall(0.9)
    >>> found.lower < found.value < found.upper
    True
    """

    tag = "spe"
    metrics = frozenset(METRICS) - {"ece", "class_ece"}

    def __init__(
        self,
        *,
        seed: int = 0,
        positive: int | None = None,
        scope: Scope = "population",
        scale: Literal["logit", "identity"] = "logit",
        families: Sequence[str] | None = None,
    ) -> None:
        super().__init__(seed=seed, positive=positive)
        self.scope: Scope = checked_choice("scope", scope, get_args(Scope))
        self.scale = checked_choice("scale", scale, ("logit", "identity"))
        self._families = checked_families(families)
        self._fits: list[OneModel] = []

    @property
    def families(self) -> tuple[tuple[str, str] | None, ...]:
        """Of each model in the caller's order, the likeliest families of the other classes and the positive.

        None for a model without a fit.
        """
        data, _ = self._done()
        chosen: list[tuple[str, str] | None] = [None] * data.models
        for at, fit in zip(data.model_order, self._fits, strict=True):
            if fit.refused is None:
                pair = fit.mixtures[fit.place].pair
                chosen[int(at)] = (pair.negative.name, pair.positive.name)
        return tuple(chosen)

    def curve(
        self, kind: Kind = "precision_recall", model: int = 0, level: float = 0.95
    ) -> PerformanceCurve | Unknown:
        """Precision against recall, or recall against the false positive rate, with a band.

        Parameters
        ----------
        kind : {"precision_recall", "roc"}
        model : int
        level : float
            Of the band at each point.

        Returns
        -------
        Curve or Unknown
            Of the positive class, for the population or the sample as `scope` says.

        Raises
        ------
        ValueError
            The kind, the model or the level is not allowed.
        RuntimeError
            Nothing was fitted yet.
        """
        checked_choice("kind", kind, get_args(Kind))
        checked_level(level)
        rates = self._rates(model)
        return rates if isinstance(rates, Unknown) else banded(kind, rates.on_grid(kind), level)

    def equal_error_rate(self, model: int = 0, level: float = 0.95) -> Result:
        """The rate at the threshold where false positives are as frequent as false negatives, 0 to 1.

        Parameters
        ----------
        model, level
            As in `curve`.
        """
        checked_level(level)
        rates = self._rates(model)
        return rates if isinstance(rates, Unknown) else self._told(rates.equal_error(), model, level)

    def precision_at_recall(self, recall: float, model: int = 0, level: float = 0.95) -> Result:
        """The precision at the highest threshold that reaches a recall.

        Parameters
        ----------
        recall : float
            Above 0 and at most 1.
        model, level
            As in `curve`.

        Raises
        ------
        ValueError
            The recall, the model or the level is not allowed.
        """
        checked_share("recall", recall)
        checked_level(level)
        rates = self._rates(model)
        if isinstance(rates, Unknown):
            return rates
        return self._told(rates.at_recall(np.array([recall]))[:, 0], model, level)

    def threshold(
        self, precision: float, recall: float, probability: float = 0.9, model: int = 0
    ) -> Threshold | Unknown:
        """The threshold that most probably meets a precision and a recall (section 4.4 of the paper).

        Parameters
        ----------
        precision, recall : float
            Above 0 and at most 1; both are to be reached.
        probability : float
            Above 0 and at most 1; with less than that there is no answer.
        model : int

        Returns
        -------
        Threshold or Unknown
            The middle of the thresholds of the highest probability. Unknown where that is below
            `probability`; the reason says the highest.

        Raises
        ------
        ValueError
            A share or the model is not allowed.
        """
        for name, value in (("precision", precision), ("recall", recall), ("probability", probability)):
            checked_share(name, value)
        rates = self._rates(model, thresholds=True)
        if isinstance(rates, Unknown):
            return rates
        met = ((rates.precision >= precision) & (rates.recall >= recall)).mean(axis=0)
        best = np.flatnonzero(met == met.max())
        at = int(best[len(best) // 2])
        if met[at] < probability:
            return Unknown(f"no threshold meets both with that probability; the highest is {met[at]:.2f}")
        value = self._fits[self._model(model)].unscaled(float(rates.thresholds[at]))
        middle = np.median(rates.precision[:, at]), np.median(rates.recall[:, at])
        return Threshold(value, float(met[at]), float(middle[0]), float(middle[1]))

    def recalibrated(self, scores: ArrayLike, model: int = 0) -> Floats:
        """Class probabilities of new rows from one model's scores: the classifier calibrated anew.

        Parameters
        ----------
        scores : (m, K) array of float
            Class probabilities as the model gives them.
        model : int

        Returns
        -------
        (m, K) float64
            Means over the draws; rows sum to 1. Scores outside those fitted on count as the nearest.

        Raises
        ------
        ValueError
            The scores or the model are not allowed.
        RuntimeError
            Nothing was fitted yet, or that model's fit was refused.
        """
        data, _ = self._done()
        fit = self._fits[self._model(model)]
        given = np.asarray(scores, dtype=np.float64)
        return fit.predict(checked_scores(given[:, None] if given.ndim == 2 else given, 1, data.classes))

    def contradicted(self, model: int = 0) -> bool:
        """Whether labels lie too far from the model's mixture; see `monitor.stats.labelled.spe.checks`.

        Parameters
        ----------
        model : int

        Raises
        ------
        ValueError, RuntimeError
            As in `LabelEstimator.contradicted`.
        """
        _, fitted = self._done()
        at = self._model(model)
        return fitted.refused is None and Reason.CONTRADICTED in self._fits[at].flags

    def _fit(self, data: LabelledScores) -> Fitted:
        self._fits = [self._one(data, model) for model in range(data.models)]
        good = [fit for fit in self._fits if fit.refused is None]
        flags = tuple(dict.fromkeys(flag for fit in good for flag in fit.flags))
        if not good:
            return Fitted(data.clamp(data.mean_of_models()), converged=False, refused=NO_SPREAD)
        return Fitted(
            data.clamp(self._mean([fit.posterior for fit in self._fits], data.present)),
            converged=all(fit.converged for fit in good),
            iterations=sum(fit.iterations for fit in good),
            flags=flags,
            details={
                "effective_draws": min(fit.details["effective_draws"] for fit in good),
                "labels_z": max(fit.details["labels_z"] for fit in good),
            },
        )

    def _one(self, data: LabelledScores, model: int) -> OneModel:
        at = slice(model, model + 1)
        alone = LabelledScores(
            data.scores[:, at],
            data.labels,
            data.predicted[:, at],
            data.present[:, at],
            data.weights,
            data.acquisition,
            np.arange(data.rows),
            np.zeros(1, dtype=np.int64),
        )
        positive = data.classes - 1 if self.positive is None else self.positive
        fit = OneModel(self.seed, positive, self.scope, self.scale, [FAMILIES[f] for f in self._families])
        fit.learn(alone)
        return fit

    def _mean(self, posteriors: Sequence[Floats], present: Bools) -> Floats:
        """Mean over the models that answered and have a fit; where none has, over all that have a fit."""
        fitted = np.array([fit.refused is None for fit in self._fits])
        weight = (present & fitted).astype(np.float64)
        weight[weight.sum(axis=1) == 0] = fitted
        stacked = np.stack(posteriors, axis=1)
        mean: Floats = np.einsum("nm,nmk->nk", weight, stacked) / weight.sum(axis=1, keepdims=True)
        return mean

    def _estimate(self, metric: str, model: int, where: Bools, level: float) -> Result:
        return self._fits[model].estimate(metric, 0, where, level)

    def _predict(self, scores: Floats) -> Floats:
        uniform = np.full((len(scores), scores.shape[2]), 1.0 / scores.shape[2])
        found = [
            fit.predict(scores[:, [at]]) if fit.refused is None else uniform
            for at, fit in enumerate(self._fits)
        ]
        return self._mean(found, ~np.isnan(scores[:, :, 0]))

    def _rates(self, model: int, *, thresholds: bool = False) -> Rates | Unknown:
        """Of all draws, for the population or for drawn labels of the sample."""
        _, fitted = self._done()
        if fitted.refused is not None:
            return Unknown(fitted.refused)
        return self._fits[self._model(model)].rates(_DRAWN if thresholds else None)

    def _told(self, drawn: Floats, model: int, level: float) -> Result:
        known: Iterator[float] = map(float, np.quantile(drawn, [0.5, (1 - level) / 2, (1 + level) / 2]))
        value, lower, upper = known
        rows = int(self._rows(self._model(model), self._where(None)).sum())
        if not rows:
            return Unknown(Reason.NO_ROWS)
        return Estimate(value, lower, upper, level, rows)
