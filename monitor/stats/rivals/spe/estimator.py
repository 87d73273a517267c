"""The estimator SPE: metrics of a classifier from a mixture of two parametric densities of its scores."""

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
from monitor.stats.rivals.spe.checks import checked_choice, checked_families, checked_share
from monitor.stats.rivals.spe.curves import Kind, PerformanceCurve, Rates, banded
from monitor.stats.rivals.spe.families import FAMILIES
from monitor.stats.rivals.spe.one_model import NO_SPREAD, OneModel, Scope

_THRESHOLDS = 200
"""The largest number of candidate thresholds, at equal counts of rows."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """A threshold of the score, chosen to reach a required precision and recall.

    Parameters
    ----------
    value : float
        The score of the positive class, 0 to 1, at or above which a row counts as positive.
    probability : float
        Probability, according to the fit, that both requirements are met.
    precision, recall : float
        The median precision and recall at this threshold.
    """

    value: float
    probability: float
    precision: float
    recall: float


class SPE(LabelEstimator):
    """Semisupervised performance evaluation: the scores as a mixture of two parametric densities.

    Each model is fitted separately. Its score of the positive class is transformed (see `scale`) and scaled
    into (0, 1]. The scaled score has the density (1 − π) p₀(s) + π p₁(s), with p₀ and p₁ from eight families:
    truncated normal, truncated Student's t, Gamma, log-normal, right- and left-skewed Gumbel, Fréchet,
    Gompertz. L-BFGS-B from several starts fits all 64 pairs of families to labelled and unlabelled scores
    together (equation 2), with weak priors. The paper uses only the pair with the highest likelihood. Here
    100 draws are divided among the eight most likely pairs by Schwarz's criterion. The parameters are drawn
    by importance sampling around the most probable ones, and a metric uses the class probabilities of the
    rows under each draw.

    `scope` determines the rows that the metrics describe. With "population", the metrics are for a population
    of which the rows are a sample. The interval includes the sampling of the rows, and curves are computed
    from the densities. With "sample", the metrics are for these rows: labels are drawn for the unlabelled
    rows. If all rows are labelled, the interval has the width 0.

    SPE assumes that the scores of each class have one mode and one of the eight shapes. If they do not, the
    fit is biased and its intervals are too narrow. Labels hardly correct the fit, because they are few
    compared with the unlabelled rows. On seven toxicity classifiers the accuracy is 9 points off with 20
    labels (`tests/fidelity/SCOREBOARD.md`). On simulated scores from the families that are most likely there,
    it is 1.5 points off (`python -m tests.fidelity.spe_form`). If labels contradict the fit, it has the flag
    "labels contradict the fit" and the z value `details["labels_z"]` (see `monitor.stats.rivals.spe.checks`),
    and the agent publishes `Unknown` (`contradicted`). This is so for 56 to 86 % of those classifiers; the
    absence of the flag does not prove the fit. On scores from these families, the coverage of the AUROC's 95
    % intervals is 86 to 94 % (`python -m tests.fidelity.spe_digits`).

    Labelling may depend on the score, because the fit is conditional on the score. If it depends on anything
    else that is related to the class, the estimate is biased. `weights` are ignored. If the two densities
    have different widths, the probability of the positive class can fall again at the ends of the scale.

    The paper has only two classes; with more, each class is fitted against the rest, and a row's
    probabilities are divided by their sum. Calibration errors are `Unknown`, because the paper defines none.
    The paper's proposal distribution for importance sampling is normal with a diagonal covariance; here it is
    Student's t with the full covariance.

    Lowest coverage of its 95 % intervals on real classifiers (`tests/fidelity/SCOREBOARD.md`): accuracy 7
    %, auroc 13 %, average_precision 0 %.

    Parameters
    ----------
    seed, positive
        See `LabelEstimator`.
    scope : {"population", "sample"}
    scale : {"logit", "identity"}
        The scale on which the densities are defined: the log odds of the score (clipped at 10⁻⁶), or the
        score itself, as for the paper's detectors.
    families : sequence of str, optional
        The names of the families in `FAMILIES` to compare, by default all.

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
    >>> precision = fit.precision_at_recall(0.9)
    >>> precision.lower < precision.value < precision.upper
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
        """The most likely families of each model, for negative and positive rows; None without a fit."""
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
        """Return the precision-recall curve or the ROC curve of a model, with a band.

        Parameters
        ----------
        kind : {"precision_recall", "roc"}
        model : int
        level : float
            Level of the band at each point.

        Returns
        -------
        PerformanceCurve or Unknown
            The curve for the positive class, of the population or the sample according to `scope`. Unknown if
            the fit was refused, or if too many random labels of a sample have only one class.

        Raises
        ------
        ValueError
            The kind, the model or the level is wrong.
        RuntimeError
            `fit` was not called yet.
        """
        checked_choice("kind", kind, get_args(Kind))
        checked_level(level)
        rates = self._rates(model)
        return rates if isinstance(rates, Unknown) else banded(kind, rates.on_grid(kind), level)

    def equal_error_rate(self, model: int = 0, level: float = 0.95) -> Result:
        """Return the error rate, 0 to 1, at which false positive and false negative rate are equal.

        See `curve` for the arguments.
        """
        checked_level(level)
        rates = self._rates(model)
        return rates if isinstance(rates, Unknown) else self._result(rates.equal_error(), model, level)

    def precision_at_recall(self, recall: float, model: int = 0, level: float = 0.95) -> Result:
        """Return the precision at the highest threshold that reaches this recall, above 0 and at most 1.

        See `curve` for the other arguments and the errors.
        """
        checked_share("recall", recall)
        checked_level(level)
        rates = self._rates(model)
        if isinstance(rates, Unknown):
            return rates
        return self._result(rates.at_recall(np.array([recall]))[:, 0], model, level)

    def threshold(
        self, precision: float, recall: float, probability: float = 0.9, model: int = 0
    ) -> Threshold | Unknown:
        """Return the threshold with the highest probability to reach a precision and a recall.

        If several thresholds have the highest probability, the result is the middle one (section 4.4 of the
        paper). If the highest probability is below `probability`, the result is Unknown, and its reason
        states the highest probability. The result is also Unknown in the cases of `curve`.

        Raises
        ------
        ValueError
            The precision, the recall or `probability` is not above 0 and at most 1, or there is no such
            model.
        RuntimeError
            `fit` was not called yet.
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
        """Return (m, K) class probabilities of new rows from one model's scores (m, K), averaged over draws.

        Scores outside the range of the fitted scores are clipped to it.

        Raises
        ------
        ValueError
            The scores are invalid, or there is no such model.
        RuntimeError
            `fit` was not called yet, or the fit of the model was refused.
        """
        data, _ = self._done()
        fit = self._fits[self._model(model)]
        table = np.asarray(scores, dtype=np.float64)
        return fit.predict(checked_scores(table[:, None] if table.ndim == 2 else table, 1, data.classes))

    def contradicted(self, model: int = 0) -> bool:
        """Return whether labels contradict a model's mixture: see `monitor.stats.rivals.spe.checks`."""
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
        """Return the mean over the models that answered and have a fit; if none, over all with a fit."""
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
        chances = [
            fit.predict(scores[:, [at]]) if fit.refused is None else uniform
            for at, fit in enumerate(self._fits)
        ]
        return self._mean(chances, ~np.isnan(scores[:, :, 0]))

    def _rates(self, model: int, *, thresholds: bool = False) -> Rates | Unknown:
        """Return the rates of all draws, for the population or for sampled labels of the rows."""
        _, fitted = self._done()
        if fitted.refused is not None:
            return Unknown(fitted.refused)
        return self._fits[self._model(model)].rates(_THRESHOLDS if thresholds else None)

    def _result(self, draws: Floats, model: int, level: float) -> Result:
        known: Iterator[float] = map(float, np.quantile(draws, [0.5, (1 - level) / 2, (1 + level) / 2]))
        value, lower, upper = known
        rows = int(self._rows(self._model(model), self._where(None)).sum())
        if not rows:
            return Unknown(Reason.NO_ROWS)
        return Estimate(value, lower, upper, level, rows)
