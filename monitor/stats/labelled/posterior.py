"""Estimators with class probabilities of every row: all metrics and their intervals follow."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from monitor.base.records import Floats
from monitor.base.results import Estimate, Result, Unknown
from monitor.stats.estimate.poisson_binomial import checked_level
from monitor.stats.labelled.base import LabelEstimator
from monitor.stats.labelled.inputs import Bools
from monitor.stats.labelled.metrics import METRICS, ModelRows, undefined

REPLICATES = 200
"""Resamplings of the rows for an interval, if the fit gives fewer draws."""

_BLOCK_BYTES = 4 << 20  # of one array of draws: a dozen such arrays live at once
_TABLES_KEPT = 8  # subgroup masks whose draws are kept

_DRAW_STREAM, _ROW_STREAM, _BIAS_STREAM = range(3)  # separate: a change of one does not change the others
_FIRST_FREE_STREAM = 10


@dataclass(frozen=True, slots=True, eq=False)
class ConfusionEstimate:
    """An expected confusion matrix with an interval for each cell.

    Parameters
    ----------
    value, lower, upper : (K, K) float64
        Shares of the rows, true class by predicted class; `value` sums to 1.
    level : float
    n : int
        Rows.
    """

    value: Floats
    lower: Floats
    upper: Floats
    level: float
    n: int


class PosteriorEstimator(LabelEstimator):
    """An estimator whose fit is a distribution of class probabilities (n, K) for the rows.

    Each metric is computed for each draw in closed form (expectation over labels, no Bernoulli noise). The
    value is the median over the draws. The interval is the central part of

        metric(draw, resampled rows) + bias · N(0, 1).

    So it contains the uncertainty of labels and fit (the draws), the sampling of the rows (weights of the
    Bayesian bootstrap, moved so that the resampling alone shifts nothing) and, if the subclass states one,
    the error of the fit's shape. It is for the population of the rows, not for these rows.

    A subclass gives

    * `tag`;
    * `_fit(data) -> Fitted`: learn, and return the posterior with labelled rows on their labels
      (`data.clamp`). `self.rng()` is for anything random;
    * `_draw_posteriors(rng)`: yield `self.draws` posteriors (n, K), labelled rows on their labels. By
      default the fitted posterior itself, once (`draws = 1`): then the interval contains only the rows'
      sampling;
    * `_predict(scores)`;
    * `_bias(metric, model, where)`, if it knows the error of the fit's shape: a standard deviation in the
      metric's own unit, 0 by default;
    * `center`, "median" or "mean" over draws.

    Rows and models have the order of `LabelledScores` everywhere. Memory depends on a block of draws, not on
    their number: each new subgroup computes the draws again (same seed).
    """

    draws: ClassVar[int] = 1
    center: ClassVar[Literal["median", "mean"]] = "median"

    def __init__(self, *, seed: int = 0, positive: int | None = None) -> None:
        super().__init__(seed=seed, positive=positive)
        self._tables: OrderedDict[tuple[bytes, bool], dict[str, Floats]] = OrderedDict()

    def rng(self, stream: int = _FIRST_FREE_STREAM) -> np.random.Generator:
        """A generator that depends only on the seed and the stream's number, from 10 up."""
        return np.random.default_rng([self.seed, stream])

    def point(self, metric: str, model: int = 0, where: ArrayLike | None = None) -> float | Unknown:
        """The value of `estimate` without its interval, several times faster."""
        asked = self._asked(metric, model, where)
        return asked if isinstance(asked, Unknown) else self._value(metric, *asked)

    def confusion(
        self, model: int = 0, where: ArrayLike | None = None, level: float = 0.95
    ) -> ConfusionEstimate | Unknown:
        """Expected confusion matrix of one model; arguments as in `estimate`.

        The value is the mean over the draws, so its cells add up. The intervals, each for its own cell,
        contain labels, fit and the sampling of the rows, not the error of the fit's shape.

        Examples
        --------
        >>> from monitor import Ensemble
        >>> scores = np.tile([[[0.8, 0.2]], [[0.3, 0.7]]], (50, 1, 1))
        >>> Ensemble().fit(scores, np.full(100, -1)).confusion().value.round(2).tolist()
        [[0.4, 0.15], [0.1, 0.35]]
        """
        checked_level(level)
        asked = self._asked("accuracy", model, where)
        if isinstance(asked, Unknown):
            return asked
        at, where = asked
        view = ModelRows.of(self._done()[0], [at], where, self._positive(), ["accuracy"])
        plain, moved = (
            self._gathered(lambda drawn, weight: view.confusion(drawn, weight)[0], resampled=resampled)
            for resampled in (False, True)
        )
        value = plain.mean(axis=0)
        drawn = moved + (np.repeat(plain, self._repeats, axis=0) - moved).mean(axis=0)
        ends = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2], axis=0)
        lower, upper = np.clip(np.minimum(ends[0], value), 0, 1), np.clip(np.maximum(ends[1], value), 0, 1)
        return ConfusionEstimate(value, lower, upper, level, int(self._rows(at, where).sum()))

    def _draw_posteriors(self, rng: np.random.Generator) -> Iterator[Floats]:
        """Posteriors (n, K) from the fit's own uncertainty, `draws` of them."""
        yield self._done()[1].posterior

    def _bias(self, metric: str, model: int, where: Bools) -> float:
        """Standard deviation of the metric's error from the fit's shape; `model` in the fit's order."""
        return 0.0

    def _forget(self) -> None:
        self._tables.clear()

    def _estimate(self, metric: str, model: int, where: Bools, level: float) -> Result:
        value = self._value(metric, model, where)
        if isinstance(value, Unknown):
            return value
        ends = np.quantile(self._spread(metric, model, where), [(1 - level) / 2, (1 + level) / 2])
        lower, upper = float(np.clip(ends[0], 0.0, value)), float(np.clip(ends[1], value, 1.0))
        return Estimate(value, lower, upper, level, int(self._rows(model, where).sum()))

    def _value(self, metric: str, model: int, where: Bools) -> float | Unknown:
        drawn = self._drawn(metric, where, resampled=False)[model]
        known = drawn[~np.isnan(drawn)]
        if 2 * len(known) <= len(drawn):
            return Unknown(undefined(metric, int(self._rows(model, where).sum())))
        middle = np.median(known) if self.center == "median" else np.mean(known)
        return float(np.clip(middle, 0.0, 1.0))

    def _spread(self, metric: str, model: int, where: Bools) -> Floats:
        """Draws of the metric with all three uncertainties."""
        plain = np.repeat(self._drawn(metric, where, resampled=False)[model], self._repeats)
        moved = self._moved(metric, model, where)
        known = ~np.isnan(moved)
        if not known.any():  # a metric of a handful of rows, which no resampling of them defines
            alone: Floats = plain[~np.isnan(plain)]
            return alone
        bias = self._bias(metric, model, where) * self.rng(_BIAS_STREAM).standard_normal(len(plain))
        drawn: Floats = (plain + moved - moved[known].mean() + bias)[known]
        return drawn

    def _moved(self, metric: str, model: int, where: Bools) -> Floats:
        """(draws · repeats,) by how much the resampling of the rows moves each draw of the metric."""
        plain = np.repeat(self._drawn(metric, where, resampled=False)[model], self._repeats)
        moved: Floats = self._drawn(metric, where, resampled=True)[model] - plain
        return moved

    @property
    def _repeats(self) -> int:
        """Resamplings of the rows for each draw."""
        return -(-REPLICATES // self.draws)

    def _drawn(self, metric: str, where: Bools, *, resampled: bool) -> Floats:
        """(M, draws) values of a metric, or (M, draws · repeats) with the rows resampled.

        The first metric of a subgroup is computed with the `expected` ones only; another, with all others.
        """
        key = np.packbits(where).tobytes(), resampled
        found = self._tables.setdefault(key, {})
        if metric not in found:
            metrics = METRICS if found else tuple({metric, *self.expected} & set(METRICS))
            found.update(zip(metrics, self._computed(metrics, where, resampled), strict=True))
        self._tables.move_to_end(key)
        while len(self._tables) > _TABLES_KEPT:
            self._tables.popitem(last=False)
        return found[metric]

    def _computed(self, metrics: Sequence[str], where: Bools, resampled: bool) -> Floats:
        """(metrics, M, draws)."""
        data, _ = self._done()
        view = ModelRows.of(data, range(data.models), where, self._positive(), metrics)

        def all_models(drawn: Floats, weights: Floats | None) -> Floats:
            return np.moveaxis(view.values(drawn, weights), 2, 0)

        return np.moveaxis(self._gathered(all_models, resampled=resampled), 0, 2).swapaxes(0, 1)

    def _gathered(self, of: Callable[[Floats, Floats | None], Floats], *, resampled: bool) -> Floats:
        """The results of `of` for all draws (and weights of resampled rows), along the first axis."""
        row_rng = self.rng(_ROW_STREAM)
        parts = []
        for drawn in self._blocks(self._repeats if resampled else 1):
            weights = row_rng.standard_exponential(drawn.shape[:2]) if resampled else None
            parts.append(of(drawn, weights))
        return np.concatenate(parts)

    def _blocks(self, repeats: int) -> Iterator[Floats]:
        """The draws, each `repeats` times in a row, in read-only blocks (draws, n, K)."""
        drawn = iter(self._draw_posteriors(self.rng(_DRAW_STREAM)))
        for draw in drawn:
            together = max(1, _BLOCK_BYTES // draw.nbytes)
            if together < repeats:
                for first in range(0, repeats, together):
                    yield np.broadcast_to(draw, (min(together, repeats - first), *draw.shape))
            else:
                yield np.repeat(np.stack([draw, *islice(drawn, together // repeats - 1)]), repeats, axis=0)
