"""Predictive intervals, which include chance, the calibration's error and the variation between windows.

The exact Poisson-binomial interval assumes that the confidences are right. But with a reference of 1,000
rows, the error of the confidences is larger than the chance variation of a window of 5,000 rows. In real
streams, the accuracy also varies between windows for reasons that confidences do not show. Therefore two
variances are added to the variance of the number of right answers among n rows:

* **calibration:** the reference is resampled 200 times (its rows with replacement, each answer right with its
  confidence). A rising curve is fitted to each draw over bins of equal count, separately for each predicted
  class. `v_cal` is the variance of the window's mean confidence under these curves; only their main principal
  components are kept;
* **between windows:** `I² · D(n)`, where I is the sum of c(1 − c) over the confidences c, and D(n) the
  variance of the bias in logits²: the larger one of the estimates by
  `monitor.stats.estimate.variance_components` and by `monitor.stats.estimate.drift_spectrum`.

The exact distribution is convolved with a normal distribution of variance `a = I² · D(n) + n² · v_cal` (its
transform is multiplied by exp(−a ω² / 2)), and cut at 0 and n. The limits are the mid-p quantiles of the
result. Their coverage is close to the level if a window has more than a few uncertain answers.

The interval of any other metric is widened by the variance of its linearisation. Such a metric may depend on
the answers of one predicted class only (precision), or on the answers of both classes in opposite directions.
So the variation between windows is estimated for the answers of each predicted class, and for all answers
together. The difference between the total variance and the sum over classes gives the correlation of the
classes, the same for all pairs.

Biases of the predicted classes may cancel in the accuracy, for instance if the share of positives changes. A
reference without such biases does not rule them out. So the bias of each predicted class has a variance of at
least 0.04 (a standard deviation of 0.2 logits). The correlation of the classes is chosen so that the variance
of the accuracy does not change.

The interval misleads if a drift occurs that the reference did not show
(`tests/fidelity/output/predictive.txt` has the coverage). The interval is not corrected for a lasting bias;
`monitor.engine.labels.trust` tests for such a bias.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from monitor.base.records import Floats, Ints
from monitor.base.results import Estimate, Reason, Result, Unknown
from monitor.stats.estimate.class_bias import ShownErrors
from monitor.stats.estimate.curves import bootstrap_curves
from monitor.stats.estimate.poisson_binomial import (
    TrimmedPmf,
    checked_level,
    checked_probabilities,
    trimmed_pmf_many,
)
from monitor.stats.estimate.shared_error import Exposure, SharedError
from monitor.stats.estimate.variance_components import Components
from monitor.stats.estimate.widening import mid_p_interval, widened

_NEAREST = 1e-6  # the least distance of confidences from 0 and 1
_UNSEEN = 0.04  # logits²: the least variance of each predicted class's bias


def _one_stratum() -> Ints:
    return np.zeros(1, dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """The rows of a window, each with its stratum and its bin in the curves of a calibration.

    Parameters
    ----------
    confidence : (n,) float64
    stratum, bins : (n,) int64
        A stratum is a predicted class, or several classes that share a curve. Bins are numbered consecutively
        over all strata.
    spread : (n,) float64
        c(1 − c) of each confidence c.
    """

    confidence: Floats
    stratum: Ints
    bins: Ints
    spread: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Predictive:
    """A model of the errors of later windows, from the reference of a calibration (`fit_predictive`).

    Parameters
    ----------
    edges : tuple of float64 arrays
        For each stratum (the answers of one predicted class, or of several), the confidences that separate
        its bins, increasing.
    directions : (r, bins) array of float
        Factor of the covariance of the calibration curves: for bins i and j it is Σ_r directions[r,
        i]·directions[r, j].
    components : Components or None
        The variation between windows. None if the reference is too short: the interval then includes only
        chance and the calibration's error.
    strata : (K,) int64
        The stratum of each predicted class.
    by_stratum : tuple of Components or None
        The variation between windows of each stratum's answers. For a None or missing entry, `components` is
        used.
    rows : int
        The number of rows of the reference.
    number : int
        A number that identifies the calibration among those of the series.
    """

    edges: tuple[Floats, ...]
    directions: NDArray[Any]
    components: Components | None
    strata: Ints = field(default_factory=_one_stratum)
    by_stratum: tuple[Components | None, ...] = ()
    rows: int = 0
    number: int = 0

    @property
    def _along(self) -> Floats:
        """The strata's edges in sequence, 2 apart: each stratum has one bin more than edges."""
        return np.concatenate([edges + 2.0 * k for k, edges in enumerate(self.edges)])

    def variance(
        self, confidence: Floats, weights: Floats | None = None, predicted: Ints | None = None
    ) -> float:
        """Return the variance of Σ w·probability over the rows, without the variance of chance.

        Use this to widen the interval of a metric by the variance of its linearisation. For precision, for
        example, w is 1 / (number of predicted positives) for these rows, and 0 for others.

        Parameters
        ----------
        confidence : (n,) float64
            Calibrated.
        weights : (n,) float64, optional
            w of each row; by default 1/n, for the accuracy.
        predicted : (n,) int64, optional
            Predicted class, by default 0.
        """
        if not len(confidence):
            return 0.0
        classes = np.zeros(len(confidence), dtype=np.int64) if predicted is None else predicted
        return self.error_of([self.exposure(self.place(confidence, classes), weights)]).variance

    def place(self, confidence: Floats, predicted: Ints) -> Placed:
        """Assign n ≥ 1 rows to the strata and bins of the calibration's curves.

        All metrics of a window use the result.
        """
        spread: Floats = confidence * (1 - confidence)
        if len(self.edges) == 1:
            alone = np.zeros(len(confidence), dtype=np.int64)
            return Placed(confidence, alone, self.edges[0].searchsorted(confidence, side="right"), spread)
        stratum = self.strata[np.minimum(predicted, len(self.strata) - 1)]
        bins = self._along.searchsorted(confidence + 2.0 * stratum, side="right") + stratum
        return Placed(confidence, stratum, bins, spread)

    def exposure(
        self, rows: Placed, slope: Floats | None = None, weight: float = 1.0, lean: float = 0.0
    ) -> Exposure:
        """Return how a metric of n rows responds to errors that the rows share.

        Parameters
        ----------
        rows : Placed
            The result of `place`.
        slope : (n,) float64, optional
            Derivative of the metric with respect to each row's confidence; by default 1/n, for the accuracy.
        weight : float
            The window's weight when windows are pooled.
        lean : float
            See `Exposure`.
        """
        n, bins = len(rows.confidence), self.directions.shape[1]
        if slope is None:
            shares: Floats = np.bincount(rows.bins, minlength=bins) / n
            information: Floats = np.array([float(rows.spread.sum())])
            moved: Floats = information / n
        else:
            many = len(self.edges)
            shares = np.bincount(rows.bins, slope, minlength=bins).astype(np.float64)
            information = np.bincount(rows.stratum, rows.spread, minlength=many).astype(np.float64)
            moved = np.bincount(rows.stratum, slope * rows.spread, minlength=many).astype(np.float64)
        along = weight * (self.directions.astype(np.float64) @ shares)
        return Exposure(self.number, weight, n, along, weight * moved, information, lean)

    def exposures(self, rows: Placed, slopes: Floats, weights: Sequence[float]) -> list[Exposure]:
        """Return the result of `exposure` for several metrics of the same rows, with slopes (metrics, n)."""
        (metrics, n), bins, strata = slopes.shape, self.directions.shape[1], len(self.edges)
        places = rows.bins + bins * np.arange(metrics)[:, None]
        shares = np.bincount(places.ravel(), slopes.ravel(), metrics * bins).reshape(metrics, bins)
        information = np.bincount(rows.stratum, rows.spread, minlength=strata).astype(np.float64)
        member = (rows.stratum[:, None] == np.arange(strata)).astype(np.float64)
        moved = (slopes * rows.spread) @ member
        along = shares @ self.directions.astype(np.float64).T
        moved = _larger(moved, (slopes * (rows.spread * _tilt(rows, information))) @ member)
        return [
            Exposure(self.number, weight, n, weight * one, weight * own, information)
            for weight, one, own in zip(weights, along, moved, strict=True)
        ]

    def curve_variances(self, rows: Placed, slope: Floats, place: Ints, places: int) -> Floats:
        """Return the (places,) variances of Σ slope·confidence over the rows of each place.

        `place` assigns the rows to subsets 0 to `places` − 1. The variances include only the error of the
        calibration.
        """
        many = self.directions.shape[1]
        shares = np.bincount(place * many + rows.bins, slope, minlength=places * many).reshape(places, many)
        along = shares @ self.directions.astype(np.float64).T
        variances: Floats = np.einsum("pr,pr->p", along, along)
        return variances

    def errors_of(self, exposures: Sequence[Exposure]) -> list[SharedError]:
        """Return the error that the rows of one window share, for several metrics: see `error_of`."""
        laws: dict[int, _Biases] = {}
        errors = []
        for one in exposures:
            if one.weight <= 0:
                errors.append(SharedError(0.0))
                continue
            if len(one.moved) not in laws:
                laws[len(one.moved)] = self._biases(one.information, one.rows)
            curves = float(one.along @ one.along)
            errors.append(laws[len(one.moved)].error(one.moved, curves, one.weight))
        return errors

    def error_of(self, exposures: Sequence[Exposure]) -> SharedError:
        """Return the error of one metric that the rows of several windows share.

        Windows with the same calibration share the error of this calibration. The errors of different
        calibrations are independent. The variation between windows is computed as for one window with the
        rows of all windows. Windows with other strata than the last window are ignored.
        """
        exposures = [one for one in exposures if len(one.moved) == len(exposures[-1].moved)]
        weight = sum(one.weight for one in exposures)
        if weight <= 0:
            return SharedError(0.0)
        shared: dict[int, Floats] = {}
        for one in exposures:
            shared[one.model] = shared[one.model] + one.along if one.model in shared else one.along
        curves = sum(float(along @ along) for along in shared.values())
        moved, information = exposures[0].moved, exposures[0].information
        for one in exposures[1:]:
            moved, information = moved + one.moved, information + one.information
        n = sum(one.rows for one in exposures)
        return self._biases(information, n).error(moved, curves, weight)

    def _biases(self, information: Floats, n: int) -> _Biases:
        """Return the distribution of the biases of n rows, by stratum or common to all."""
        total = float(information.sum())
        whole = 0.0 if self.components is None else self.components.of_bias(n, total)
        if len(information) == 1:
            return _Biases([math.sqrt(whole)], 1.0)
        each: list[float] = information.tolist()
        sd = [math.sqrt(max(variance, _UNSEEN)) for variance in self._shown(information, n)]
        parts = [i * s for i, s in zip(each, sd, strict=True)]
        own, alike = sum(part * part for part in parts), sum(parts) ** 2
        shared = 1.0
        if alike > own:
            shared = (whole * total**2 - own) / (alike - own)
            shared = min(max(shared, -1 / max(sum(part != 0 for part in parts) - 1, 1)), 1.0)
        return _Biases(sd, shared)

    def _shown(self, information: Floats, n: int) -> list[float]:
        """Return D(n) of the biases of n rows by stratum, according to the reference."""
        parts = self.by_stratum or (None,) * len(information)
        used = (part or self.components for part in parts)
        known = zip(used, information.tolist(), strict=True)
        return [0.0 if part is None else part.of_bias(n, own) for part, own in known]

    def refitted_on(self, confidence: Floats, predicted: Ints, number: int, seed: int = 0) -> Predictive:
        """Return the model of errors for a calibration fitted on other rows.

        The variation between windows stays the same.

        Parameters
        ----------
        confidence : (n,) float64
            The new calibration's confidences for the rows of its fit.
        predicted : (n,) int64
        number : int
        seed : int
        """
        stratum = self.strata[np.minimum(predicted, len(self.strata) - 1)]
        edges, directions = bootstrap_curves(
            confidence, stratum, len(self.edges), np.random.default_rng(seed)
        )
        return replace(self, edges=edges, directions=directions, number=number)

    def informed(self, shown: ShownErrors) -> Predictive:
        """Return a model that also includes the biases by predicted class that labels have shown."""
        own: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(Predictive)}
        return InformedPredictive(**own, shown=shown)

    def with_curves_of(self, other: Predictive) -> Predictive:
        """Return a copy with the calibration error of another model and the same variation between windows.

        If the two models have different strata, return this model.
        """
        if not np.array_equal(self.strata, other.strata):
            return self
        return replace(self, edges=other.edges, directions=other.directions, number=other.number)


def _tilt(rows: Placed, information: Floats) -> Floats:
    """Return a bias (n,) proportional to each row's logit.

    In each stratum, the mean of the bias, weighted by c(1 − c), is 1.
    """
    inside = np.clip(rows.confidence, _NEAREST, 1 - _NEAREST)
    away = np.abs(np.log(inside) - np.log1p(-inside))
    total = np.bincount(rows.stratum, away * rows.spread, minlength=len(information))
    mean = np.where(total > 0, total / np.maximum(information, _NEAREST), 1.0)
    tilt: Floats = away / mean[rows.stratum]
    return tilt


def _larger(one: Floats, other: Floats) -> Floats:
    """Return the value farther from 0 at each place."""
    larger: Floats = np.where(np.abs(other) > np.abs(one), other, one)
    return larger


@dataclass(frozen=True, slots=True, eq=False)
class InformedPredictive(Predictive):
    """A model of errors that includes biases by predicted class, estimated from labels.

    Parameters
    ----------
    shown : ShownErrors
        The sums over labelled rows from which the biases are estimated, by stratum.
    """

    shown: ShownErrors = field(kw_only=True)

    def _biases(self, information: Floats, n: int) -> _Biases:
        # Not `super()`: a dataclass with slots is another class than the one that its methods know.
        usual = Predictive._biases(self, information, n)
        if len(information) != len(self.shown.error):
            return usual
        mean, square = self.shown.moments(np.array(self._shown(information, n)))
        return replace(usual, mean=mean, square=square)


@dataclass(frozen=True, slots=True)
class _Biases:
    """The distribution of the biases of a window's rows.

    Parameters
    ----------
    sd : list of float
        The standard deviation by stratum, in logits.
    shared : float
        Their correlation, the same for all pairs.
    mean, square : (strata,) float64 or None
        The labels' contribution: see `ShownErrors.moments`.
    """

    sd: list[float]
    shared: float
    mean: Floats | None = None
    square: Floats | None = None

    def error(self, moved: Floats, curves: float, weight: float) -> SharedError:
        """Return a metric's error, from `weight` times its changes by one logit in each stratum.

        `curves` is the calibration's contribution to the variance, times the square of `weight`.
        """
        along: list[float] = [m * s for m, s in zip(moved.tolist(), self.sd, strict=True)]
        variance = (1 - self.shared) * sum(one * one for one in along) + self.shared * sum(along) ** 2
        if self.mean is None or self.square is None:
            return SharedError((curves + variance) / weight**2)
        variance += float(moved**2 @ (self.square - self.mean**2))
        return SharedError((curves + variance) / weight**2, float(moved @ self.mean) / weight)


def predictive_windows(
    confidences: Sequence[ArrayLike],
    model: Predictive,
    level: float = 0.95,
    predicted: Sequence[Ints] | None = None,
) -> list[tuple[Result, TrimmedPmf | None]]:
    """Return the accuracy of each of many windows with a predictive interval, and its distribution.

    Parameters
    ----------
    confidences : sequence of (n,) array of float
        Calibrated, one array for each window.
    model : Predictive
    level : float
    predicted : sequence of (n,) int64, optional
        Predicted classes; by default 0, as for models that give a confidence.

    Returns
    -------
    list of (Estimate or Unknown, TrimmedPmf or None)
        Do not convolve the distributions of several windows. The windows share the calibration's error, so
        they are not independent. To pool windows, pass their rows as one window.

    Raises
    ------
    ValueError
        A confidence or the level is out of range.

    Examples
    --------
    >>> model = Predictive((np.zeros(0),), np.zeros((1, 1)), Components(0.0, ((1000.0, 0.1),), 10_000))
    >>> (accuracy, _), = predictive_windows([np.full(500, 0.9)], model)
    >>> accuracy.value, accuracy.lower, accuracy.upper
    (0.9..., 0.838, 0.962)
    """
    checked_level(level)
    checked = [checked_probabilities(one, 1, f"confidences[{i}]") for i, one in enumerate(confidences)]
    results: list[tuple[Result, TrimmedPmf | None]] = [(Unknown(Reason.NO_ROWS), None)] * len(checked)
    for n in {len(one) for one in checked} - {0}:
        places = [i for i, one in enumerate(checked) if len(one) == n]
        for i, pmf in zip(places, trimmed_pmf_many(np.stack([checked[i] for i in places])), strict=True):
            classes = None if predicted is None else predicted[i]
            wide = widened(pmf, n**2 * model.variance(checked[i], None, classes))
            results[i] = mid_p_estimate(float(checked[i].mean()), wide, level), wide
    return results


def mid_p_estimate(value: float, wide: TrimmedPmf, level: float) -> Estimate:
    """Return an accuracy with the mid-p limits of its widened distribution, which include the value."""
    low, high = mid_p_interval(wide, level)
    return Estimate(value, min(low / wide.n, value), max(high / wide.n, value), level, wide.n)


def predictive_interval(confidence: ArrayLike, model: Predictive, level: float = 0.95) -> Result:
    """Return the accuracy of one window with a predictive interval; see `predictive_windows`."""
    return predictive_windows([np.asarray(confidence, dtype=np.float64)], model, level)[0][0]
