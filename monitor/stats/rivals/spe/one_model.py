"""SPE's fit for one model: transformed scores, a mixture for each class, and class probabilities."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy

from monitor.base.records import Floats, Ints
from monitor.base.results import Reason, Unknown
from monitor.stats.labelled.base import Fitted
from monitor.stats.labelled.inputs import Bools, LabelledScores
from monitor.stats.labelled.posterior import PosteriorEstimator
from monitor.stats.rivals.spe.checks import LIMIT, labels_z
from monitor.stats.rivals.spe.curves import Rates
from monitor.stats.rivals.spe.families import DensityFamily
from monitor.stats.rivals.spe.mixture import MixtureFit, fit_mixture

Scope = Literal["population", "sample"]

NO_SPREAD = "scores all equal"
"""The reason why a model has no fit: equal scores have no density."""

DRAWS = 100
_CUT = 1e-6
_MARGIN = 0.05  # gap below the lowest score, as a share of the range: some densities need space above 0
_NARROW = 1e-9
_FEW_DRAWS = 50.0
_STREAM = 20  # first random stream of importance sampling; each class has its own
_LABEL_STREAM = 19


@dataclass(frozen=True, slots=True)
class _Line:
    """A transformation of the scores of one class into (0, 1].

    It scales the log odds (with `odds`) or the scores linearly, from the range `low` to `high`.
    """

    low: float
    high: float
    odds: bool

    @classmethod
    def from_scores(cls, scores: Floats, odds: bool) -> _Line | None:
        """Return the transformation of the scores; None without two different scores."""
        if not len(scores):
            return None
        on_line = _on_line(scores, odds)
        low, high = float(on_line.min()), float(on_line.max())
        return cls(low, high, odds) if high - low > _NARROW else None

    def __call__(self, scores: Floats) -> Floats:
        """Return the scaled scores."""
        moved = np.clip(_on_line(scores, self.odds), self.low, self.high) - self.low
        return (moved / (self.high - self.low) + _MARGIN) / (1.0 + _MARGIN)

    def back(self, scaled: float) -> float:
        """Return the score that has this scaled value."""
        there = (scaled * (1.0 + _MARGIN) - _MARGIN) * (self.high - self.low) + self.low
        return float(scipy.special.expit(there)) if self.odds else there


def _on_line(scores: Floats, odds: bool) -> Floats:
    line: Floats = scipy.special.logit(np.clip(scores, _CUT, 1.0 - _CUT)) if odds else scores
    return line


class OneModel(PosteriorEstimator):
    """The fit of `SPE` for one model, on sorted rows.

    Attributes
    ----------
    mixtures : tuple of MixtureFit
        For two classes, one mixture, for the positive class; for more, one for each class against the rest.
    """

    tag = "spe"
    draws = DRAWS

    def __init__(
        self, seed: int, positive: int, scope: Scope, scale: str, families: Sequence[DensityFamily]
    ) -> None:
        super().__init__(seed=seed, positive=positive)
        self.scope, self.scale, self.families = scope, scale, families
        self._of_two = positive
        self.mixtures: tuple[MixtureFit, ...] = ()
        self._lines: tuple[_Line, ...] = ()

    @property
    def place(self) -> int:
        """The index, in `mixtures`, of the mixture for the positive class."""
        return 0 if len(self.mixtures) == 1 else self._positive()

    def learn(self, data: LabelledScores) -> None:
        """Fit the mixtures on checked and sorted rows of one model."""
        self._data = data
        self._fitted = self._fit(data)

    def unscaled(self, scaled: float) -> float:
        """Return the score of the positive class, as the model gave it, for a scaled value in (0, 1]."""
        return self._lines[self.place].back(scaled)

    def rates(self, thresholds: int | None) -> Rates | Unknown:
        """Return the recall, the false positive rate and the precision at each threshold, for each draw.

        With the scope "population", the rates come from the fitted densities; with "sample", from random
        labels of the rows. `thresholds` is the largest number of thresholds, which are evenly spaced among
        the ranked scores (with "sample": among the distinct scores). With None, the thresholds are a fine
        grid ("population") or all distinct scores ("sample").

        The result is Unknown if the fit was refused, or, with "sample", if at most half of the draws of
        labels have both positive and other rows.
        """
        data, fitted = self._done()
        if fitted.refused is not None:
            return Unknown(fitted.refused)
        rows = data.present[:, 0]
        scores = self._lines[self.place](data.scores[rows, 0, self._classes(data)[self.place]])
        if self.scope == "population":
            places = None if thresholds is None else _places(scores, thresholds)
            mixture = self.mixtures[self.place]
            return Rates.concatenate([Rates.from_mixture(*part, places) for part in mixture.samples])
        rng = self.rng(_LABEL_STREAM)
        labels = np.stack([_sampled_labels(p[None, rows], rng)[0] for p in self._draw_posteriors(rng)])
        positive = labels[:, :, self._positive()]
        counts = positive.sum(axis=1)
        positive = positive[(counts > 0) & (counts < positive.shape[1])]
        if 2 * len(positive) <= DRAWS:
            return Unknown(Reason.ONE_CLASS)
        rates = Rates.from_labels(scores, positive)
        return rates if thresholds is None else _picked(rates, thresholds)

    def _positive(self) -> int:
        return self._of_two

    def _classes(self, data: LabelledScores) -> tuple[int, ...]:
        return (self._positive(),) if data.classes == 2 else tuple(range(data.classes))

    def _fit(self, data: LabelledScores) -> Fitted:
        rows = data.present[:, 0]
        mean = data.clamp(data.mean_of_models())
        if not rows.any():
            return Fitted(mean, converged=False, refused=Reason.NO_ROWS)
        lines = [
            _Line.from_scores(data.scores[rows, 0, k], self.scale == "logit") for k in self._classes(data)
        ]
        known = tuple(line for line in lines if line is not None)
        if len(known) < len(lines):
            return Fitted(mean, converged=False, refused=NO_SPREAD)
        self._lines = known
        self.mixtures = tuple(
            self._mixture(data, rows, k, line) for k, line in zip(self._classes(data), known, strict=True)
        )
        effective = min(mixture.effective for mixture in self.mixtures)
        chance = self._chances(data.scores[:, 0]).mean(axis=0)
        against = self._against(data, chance)
        warnings = {
            "no labels": not data.labelled[rows].any(),
            "few effective draws": effective < _FEW_DRAWS,
            Reason.CONTRADICTED.value: against > LIMIT,
        }
        return Fitted(
            data.clamp(chance),
            converged=all(mixture.converged for mixture in self.mixtures),
            iterations=sum(mixture.iterations for mixture in self.mixtures),
            flags=tuple(flag for flag, holds in warnings.items() if holds),
            details={"effective_draws": effective, "labels_z": against},
        )

    def _against(self, data: LabelledScores, chance: Floats) -> float:
        """Return the largest |z| over the classes; `chance` (n, K) is computed without the labels."""
        rows = data.present[:, 0] & data.labelled
        known, labels = chance[rows], data.labels[rows]
        return max(abs(labels_z(known[:, k], (labels == k).astype(np.float64))) for k in self._classes(data))

    def _mixture(self, data: LabelledScores, rows: Bools, k: int, line: _Line) -> MixtureFit:
        raw = data.scores[rows, 0, k]
        labels = np.where(data.labelled, data.labels == k, -1)[rows].astype(np.int64)
        seed = [self.seed, _STREAM + k]
        return fit_mixture(line(raw), labels, self.families, _guesses(raw, labels), DRAWS, seed)

    def _chances(self, scores: Floats) -> Floats:
        """Return the (draws, m, K) class probabilities of scores (m, K).

        A row without an answer has the shares of the classes.
        """
        missing = np.isnan(scores[:, 0])
        parts = []
        classes = (self._positive(),) if len(self.mixtures) == 1 else range(len(self.mixtures))
        for k, line, mixture in zip(classes, self._lines, self.mixtures, strict=True):
            chance = mixture.chance(line(np.where(missing, 0.5, scores[:, k])))
            chance[:, missing] = mixture.shares()
            parts.append(chance)
        if len(parts) == 1:
            both = [1.0 - parts[0], parts[0]] if self._positive() == 1 else [parts[0], 1.0 - parts[0]]
            return np.stack(both, axis=2)
        stacked = np.maximum(np.stack(parts, axis=2), 1e-12)
        return np.asarray(stacked / stacked.sum(axis=2, keepdims=True))

    def _predict(self, scores: Floats) -> Floats:
        mean: Floats = self._chances(scores[:, 0]).mean(axis=0)
        return mean

    def _draw_posteriors(self, rng: np.random.Generator) -> Iterator[Floats]:
        data, _ = self._done()
        for chance in self._chances(data.scores[:, 0]):
            yield data.clamp(chance)

    def _gathered(self, compute: Callable[[Floats, Floats | None], Floats], *, resampled: bool) -> Floats:
        """Gather results as the base class does; for the scope "sample", sample labels instead of rows."""
        if self.scope == "population" or not resampled:
            return super()._gathered(compute, resampled=resampled)
        rng = self.rng(_LABEL_STREAM)
        return np.concatenate(
            [
                compute(_sampled_labels(chance, rng), np.ones(chance.shape[:2]))
                for chance in self._blocks(self._repeats)
            ]
        )


def _sampled_labels(chance: Floats, rng: np.random.Generator) -> Floats:
    """Return random (d, n, K) one-hot labels with these probabilities."""
    at = rng.random((*chance.shape[:2], 1)) * chance.sum(axis=2, keepdims=True)
    picked = (np.cumsum(chance, axis=2) <= at).sum(axis=2)
    labels: Floats = np.eye(chance.shape[2])[np.minimum(picked, chance.shape[2] - 1)]
    return labels


def _places(scores: Floats, most: int) -> Floats:
    """Return at most `most` of the scores, descending, at equal counts."""
    distinct = np.unique(scores)
    return (
        distinct[::-1]
        if len(distinct) <= most
        else np.unique(np.quantile(scores, np.linspace(0, 1, most)))[::-1]
    )


def _picked(rates: Rates, most: int) -> Rates:
    at = np.unique(np.linspace(0, len(rates.thresholds) - 1, most).astype(np.int64))
    return Rates(
        rates.thresholds[at], rates.recall[:, at], rates.false_positive[:, at], rates.precision[:, at]
    )


def _guesses(scores: Floats, labels: Ints) -> Floats:
    """Return (starts, n) start values of the probability of the positive class.

    The first is the score; the others cut the ranked scores at the labels' share of positives and at usual
    shares.
    """
    known = labels >= 0
    share = (float(labels[known].sum()) + 1.0) / (known.sum() + 2.0)
    rank = np.argsort(np.argsort(scores, kind="stable"), kind="stable") / max(len(scores), 1)
    guesses = [np.clip(scores, 0.02, 0.98)]
    guesses += [np.where(rank >= 1.0 - cut, 0.95, 0.05) for cut in (share, 0.15, 0.5)]
    stacked = np.stack(guesses)
    stacked[:, known] = labels[known]
    return stacked
