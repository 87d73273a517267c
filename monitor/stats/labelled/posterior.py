"""The base class of estimators that compute all metrics from class probabilities of every row."""

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
"""The smallest number of resamplings of the rows for an interval."""

_BLOCK_BYTES = 4 << 20  # size of one array of draws; about a dozen such arrays exist together
_TABLES_KEPT = 8  # subgroup masks whose draws are kept

_DRAW_STREAM, _ROW_STREAM, _BIAS_STREAM = range(3)  # separate streams do not affect each other
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
        The number of rows.
    """

    value: Floats
    lower: Floats
    upper: Floats
    level: float
    n: int


class PosteriorEstimator(LabelEstimator):
    """An estimator that fits a distribution over the (n, K) class probabilities of the rows.

    For each random draw of class probabilities, a metric is its expectation over the labels, in closed form.
    The value is the median over the draws. The interval is the central part of

        metric(draw, resampled rows) + bias · N(0, 1).

    So the interval includes the uncertainty of labels and fit (from the draws), and the sampling of the rows
    (from weights of the Bayesian bootstrap, centred so that they do not shift the mean). If the subclass
    defines `_bias`, the interval also includes the error from a wrong shape of the model. The interval is for
    the population from which the rows come, and not for these rows.

    A subclass defines

    * `tag`;
    * `_fit(data) -> Fitted`, which returns class probabilities, with 1 for the class of labelled rows
      (`data.clamp`). It takes random numbers from `self.rng()`;
    * `_draw_posteriors(rng)`, which yields `self.draws` draws of (n, K) class probabilities, also with 1 for
      the class of labelled rows. By default it yields the fitted probabilities once (`draws = 1`), and the
      interval includes only the sampling of the rows;
    * `_predict(scores)`;
    * `_bias(metric, model, where)`, the standard deviation of the error from a wrong shape of the model, in
      the unit of the metric; 0 by default;
    * `center`, "median" or "mean" over draws.

    Rows and models have the order of `LabelledScores` everywhere. To bound the memory, an object keeps only
    one block of draws. So for each new subgroup, it computes the draws again, with the same seed.
    """

    draws: ClassVar[int] = 1
    center: ClassVar[Literal["median", "mean"]] = "median"

    def __init__(self, *, seed: int = 0, positive: int | None = None) -> None:
        super().__init__(seed=seed, positive=positive)
        self._tables: OrderedDict[tuple[bytes, bool], dict[str, Floats]] = OrderedDict()

    def rng(self, stream: int = _FIRST_FREE_STREAM) -> np.random.Generator:
        """Return a random generator that depends only on the seed and on `stream`, a number from 10."""
        return np.random.default_rng([self.seed, stream])

    def point(self, metric: str, model: int = 0, where: ArrayLike | None = None) -> float | Unknown:
        """Return the value of `estimate` without an interval, several times faster."""
        resolved = self._resolve(metric, model, where)
        return resolved if isinstance(resolved, Unknown) else self._value(metric, *resolved)

    def confusion(
        self, model: int = 0, where: ArrayLike | None = None, level: float = 0.95
    ) -> ConfusionEstimate | Unknown:
        """Return the expected confusion matrix of one model. See `estimate` for the arguments.

        The value is the mean over the draws, so its cells add up to 1. The interval of each cell includes the
        uncertainty of labels and fit and the sampling of the rows, but not the error from a wrong shape of
        the model.

        Examples
        --------
        >>> from monitor import Ensemble
        >>> scores = np.tile([[[0.8, 0.2]], [[0.3, 0.7]]], (50, 1, 1))
        >>> Ensemble().fit(scores, np.full(100, -1)).confusion().value.round(2).tolist()
        [[0.4, 0.15], [0.1, 0.35]]
        """
        checked_level(level)
        resolved = self._resolve("accuracy", model, where)
        if isinstance(resolved, Unknown):
            return resolved
        at, where = resolved
        view = ModelRows.from_data(self._done()[0], [at], where, self._positive(), ["accuracy"])
        plain, moved = (
            self._gathered(lambda draws, weight: view.confusion(draws, weight)[0], resampled=resampled)
            for resampled in (False, True)
        )
        value = plain.mean(axis=0)
        centred = moved + (np.repeat(plain, self._repeats, axis=0) - moved).mean(axis=0)
        ends = np.quantile(centred, [(1 - level) / 2, (1 + level) / 2], axis=0)
        lower, upper = np.clip(np.minimum(ends[0], value), 0, 1), np.clip(np.maximum(ends[1], value), 0, 1)
        return ConfusionEstimate(value, lower, upper, level, int(self._rows(at, where).sum()))

    def _draw_posteriors(self, rng: np.random.Generator) -> Iterator[Floats]:
        """Yield `draws` posteriors (n, K) from the distribution of the fit."""
        yield self._done()[1].posterior

    def _bias(self, metric: str, model: int, where: Bools) -> float:
        """Return the standard deviation of the metric's error from the shape of the fit."""
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
        values = self._metric_draws(metric, where, resampled=False)[model]
        known = values[~np.isnan(values)]
        if 2 * len(known) <= len(values):
            return Unknown(undefined(metric, int(self._rows(model, where).sum())))
        middle = np.median(known) if self.center == "median" else np.mean(known)
        return float(np.clip(middle, 0.0, 1.0))

    def _spread(self, metric: str, model: int, where: Bools) -> Floats:
        """Return draws of the metric with all three kinds of uncertainty."""
        plain = np.repeat(self._metric_draws(metric, where, resampled=False)[model], self._repeats)
        moved = self._moved(metric, model, where)
        known = ~np.isnan(moved)
        if not known.any():  # a metric of a few rows, which no resampling defines
            alone: Floats = plain[~np.isnan(plain)]
            return alone
        bias = self._bias(metric, model, where) * self.rng(_BIAS_STREAM).standard_normal(len(plain))
        spread: Floats = (plain + moved - moved[known].mean() + bias)[known]
        return spread

    def _moved(self, metric: str, model: int, where: Bools) -> Floats:
        """Return the (draws · repeats,) changes of the metric's draws when the rows are resampled."""
        plain = np.repeat(self._metric_draws(metric, where, resampled=False)[model], self._repeats)
        moved: Floats = self._metric_draws(metric, where, resampled=True)[model] - plain
        return moved

    @property
    def _repeats(self) -> int:
        """The number of resamplings of the rows for each draw."""
        return -(-REPLICATES // self.draws)

    def _metric_draws(self, metric: str, where: Bools, *, resampled: bool) -> Floats:
        """Return (M, draws) values of a metric, or (M, draws · repeats) with the rows resampled.

        The first call for a subgroup computes the metric and the `expected` ones; a call for another metric
        computes all.
        """
        key = np.packbits(where).tobytes(), resampled
        table = self._tables.setdefault(key, {})
        if metric not in table:
            metrics = METRICS if table else tuple({metric, *self.expected} & set(METRICS))
            table.update(zip(metrics, self._computed(metrics, where, resampled), strict=True))
        self._tables.move_to_end(key)
        while len(self._tables) > _TABLES_KEPT:
            self._tables.popitem(last=False)
        return table[metric]

    def _computed(self, metrics: Sequence[str], where: Bools, resampled: bool) -> Floats:
        """Return the (metrics, M, draws) values of the metrics."""
        data, _ = self._done()
        view = ModelRows.from_data(data, range(data.models), where, self._positive(), metrics)

        def all_models(draws: Floats, weights: Floats | None) -> Floats:
            return np.moveaxis(view.values(draws, weights), 2, 0)

        return np.moveaxis(self._gathered(all_models, resampled=resampled), 0, 2).swapaxes(0, 1)

    def _gathered(self, compute: Callable[[Floats, Floats | None], Floats], *, resampled: bool) -> Floats:
        """Return the results of `compute` for all draws, with weights if rows are resampled, concatenated."""
        row_rng = self.rng(_ROW_STREAM)
        parts = []
        for block in self._blocks(self._repeats if resampled else 1):
            weights = row_rng.standard_exponential(block.shape[:2]) if resampled else None
            parts.append(compute(block, weights))
        return np.concatenate(parts)

    def _blocks(self, repeats: int) -> Iterator[Floats]:
        """Yield the draws, each `repeats` times in a row, in read-only blocks (draws, n, K)."""
        draws = iter(self._draw_posteriors(self.rng(_DRAW_STREAM)))
        for draw in draws:
            together = max(1, _BLOCK_BYTES // draw.nbytes)
            if together < repeats:
                for first in range(0, repeats, together):
                    yield np.broadcast_to(draw, (min(together, repeats - first), *draw.shape))
            else:
                yield np.repeat(np.stack([draw, *islice(draws, together // repeats - 1)]), repeats, axis=0)
