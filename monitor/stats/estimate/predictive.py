"""The predictive interval: chance, the calibration's error, and what varies between windows.

The exact Poisson-binomial interval takes the confidences for right. On a reference of 1,000 rows they
are off by more than a window of 5,000 rows varies by chance, and on real streams the accuracy moves
between windows for reasons that no confidence shows. Two variances are added, in counts of right
answers of n rows:

* **calibration:** the reference is drawn anew 200 times (its rows with replacement, each answer right
  with its confidence), a rising curve is fitted to each draw over bins of equal count, for each predicted
  class by itself, and what the draws' curves say of the window's mean confidence has a variance, `v_cal`,
  of which only the curves' main directions are kept;
* **between windows:** `I² · D(n)`, the larger of `monitor.stats.estimate.variance_components` and
  `monitor.stats.estimate.drift_spectrum`.

The exact distribution is convolved with a normal of variance `a = I² · D(n) + n² · v_cal`, by
multiplying its transform by exp(−a ω² / 2), and cut at 0 and n; the limits are its mid-p quantiles,
which cover the level and not more wherever a window has more than a few answers in doubt.

Any other metric is widened by the variance of its linearisation. It may hang on the answers of one
predicted class only, as precision does, or on both in opposite directions, so that what varies between
windows is learnt for the answers of each predicted class, and for all together: where the total varies by
less, or more, than its parts would if they had nothing in common, that is their correlation (the same for
all pairs of classes).

It misleads on drift: what the reference did not show is in no variance
(`tests/fidelity/output/predictive.txt` says how far it falls). It is no calibration: a bias that lasts
is told by the test of trust.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from monitor.base.records import Floats, Ints
from monitor.base.results import Estimate, Reason, Result, Unknown
from monitor.stats.estimate.curves import bootstrap_curves
from monitor.stats.estimate.poisson_binomial import (
    TrimmedPmf,
    checked_level,
    checked_probabilities,
    trimmed_pmf_many,
)
from monitor.stats.estimate.shared_error import Exposure
from monitor.stats.estimate.variance_components import Components
from monitor.stats.estimate.widening import mid_p_interval, widened


def _one_stratum() -> Ints:
    return np.zeros(1, dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """The rows of a window among the bins of a calibration's curves.

    Parameters
    ----------
    confidence : (n,) float64
    stratum, bins : (n,) int64
        Of each row; bins are counted through all strata.
    spread : (n,) float64
        c(1 − c) of each confidence c.
    """

    confidence: Floats
    stratum: Ints
    bins: Ints
    spread: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Predictive:
    """The error of later windows, as learnt from a calibration's reference by `fit_predictive`.

    Parameters
    ----------
    edges : tuple of float64 arrays
        For each stratum (the answers of a predicted class), confidences between which its bins lie, rising.
    directions : (r, bins) array of float
        How the curves vary: the covariance of two bins is the sum over r of their products.
    components : Components or None
        None where the reference is too short: only the calibration's error is known then, and the
        interval holds as long as nothing but chance moves the accuracy.
    strata : (K,) int64
        By predicted class, its stratum.
    by_stratum : tuple of Components or None
        As `components`, of the answers of one stratum; None or absent where that of all serves.
    rows : int
        Of the reference.
    number : int
        Tells it from those of other calibrations of the series.
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
        """The strata's edges one after the other, 2 apart: each brings a bin more than it has edges."""
        return np.concatenate([edges + 2.0 * k for k, edges in enumerate(self.edges)])

    def variance(
        self, confidence: Floats, weights: Floats | None = None, predicted: Ints | None = None
    ) -> float:
        """Variance of `Σ w·chance` of the rows beyond chance, for any weights: what any metric needs.

        A metric that is a ratio of such sums is widened by that of its linearisation: precision, for one,
        with w = 1 / (predicted positive) for the rows that are.

        Parameters
        ----------
        confidence : (n,) float64
            Calibrated.
        weights : (n,) float64, optional
            1/n if absent: the accuracy.
        predicted : (n,) int64, optional
            Class acted on. All 0 if absent.

        Returns
        -------
        float
            In the square of the sum's unit.
        """
        if not len(confidence):
            return 0.0
        classes = np.zeros(len(confidence), dtype=np.int64) if predicted is None else predicted
        return self.variance_of([self.exposure(self.place(confidence, classes), weights)])

    def place(self, confidence: Floats, predicted: Ints) -> Placed:
        """Rows among the bins of the curves: once for all metrics of a window.

        Parameters
        ----------
        confidence : (n,) float64
            n at least 1.
        predicted : (n,) int64
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
        """How far a metric of n rows moves with what they share.

        Parameters
        ----------
        rows : Placed
            By `place`.
        slope : (n,) float64, optional
            What each row's confidence moves the metric by. Of the accuracy if absent, 1/n each.
        weight : float
            What the window counts for among others.
        lean : float
            As in `Exposure`.
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

    def curve_variances(self, rows: Placed, slope: Floats, place: Ints, places: int) -> Floats:
        """Variance by the calibration's own error of `Σ slope·confidence` over the rows of each place.

        Parameters
        ----------
        rows : Placed
            By `place`.
        slope : (n,) float64
        place : (n,) int64
            From 0 to `places` - 1.
        places : int

        Returns
        -------
        (places,) float64
        """
        many = self.directions.shape[1]
        shares = np.bincount(place * many + rows.bins, slope, minlength=places * many).reshape(places, many)
        along = shares @ self.directions.astype(np.float64).T
        found: Floats = np.einsum("pr,pr->p", along, along)
        return found

    def variance_of(self, exposures: Sequence[Exposure]) -> float:
        """Variance of a metric of several windows together, in the square of its unit.

        Windows of one calibration share its error; those of different ones are taken to have errors of
        their own. What varies between windows is that of one window as long as all of them. Windows from
        before the classes were told apart as they are now are passed over.

        Parameters
        ----------
        exposures : sequence of Exposure
            Of the same metric; at least one.
        """
        exposures = [one for one in exposures if len(one.moved) == len(exposures[-1].moved)]
        weight = sum(one.weight for one in exposures)
        if weight <= 0:
            return 0.0
        shared: dict[int, Floats] = {}
        for one in exposures:
            shared[one.model] = shared[one.model] + one.along if one.model in shared else one.along
        curves = sum(float(along @ along) for along in shared.values())
        moved, information = exposures[0].moved, exposures[0].information
        for one in exposures[1:]:
            moved, information = moved + one.moved, information + one.information
        n = sum(one.rows for one in exposures)
        return (curves + self._between(moved, information, n)) / weight**2

    def _between(self, moved: Floats, information: Floats, n: int) -> float:
        """Variance of what biases between windows move, by stratum or all alike."""
        if self.components is None:
            return 0.0
        total = float(information.sum())
        whole = self.components.of_bias(n, total)
        if len(moved) == 1:
            return float(moved[0]) ** 2 * whole
        each: list[float] = information.tolist()
        sd = [math.sqrt(self._of(k).of_bias(n, i)) for k, i in enumerate(each)]
        parts = [i * s for i, s in zip(each, sd, strict=True)]
        own, alike = sum(part * part for part in parts), sum(parts) ** 2
        shared = 1.0
        if alike > own:
            shared = (whole * total**2 - own) / (alike - own)
            shared = min(max(shared, -1 / max(sum(part != 0 for part in parts) - 1, 1)), 1.0)
        along: list[float] = [m * s for m, s in zip(moved.tolist(), sd, strict=True)]
        return (1 - shared) * sum(one * one for one in along) + shared * sum(along) ** 2

    def _of(self, stratum: int) -> Components:
        found = self.by_stratum[stratum] if self.by_stratum else None
        assert self.components is not None
        return found or self.components

    def refitted_on(self, confidence: Floats, predicted: Ints, number: int, seed: int = 0) -> Predictive:
        """That of a calibration fitted on other rows: its own error, and what the reference says varies.

        Parameters
        ----------
        confidence : (n,) float64
            Of the rows that the new calibration was fitted on, by it.
        predicted : (n,) int64
        number : int
        seed : int
        """
        stratum = self.strata[np.minimum(predicted, len(self.strata) - 1)]
        edges, directions = bootstrap_curves(
            confidence, stratum, len(self.edges), np.random.default_rng(seed)
        )
        return replace(self, edges=edges, directions=directions, number=number)

    def with_curves_of(self, other: Predictive) -> Predictive:
        """What varies between windows here, with the error of another's calibration.

        As it is where the two do not tell the same predicted classes apart.
        """
        if not np.array_equal(self.strata, other.strata):
            return self
        return replace(self, edges=other.edges, directions=other.directions, number=other.number)


def predictive_windows(
    confidences: Sequence[ArrayLike],
    model: Predictive,
    level: float = 0.95,
    predicted: Sequence[Ints] | None = None,
) -> list[tuple[Result, TrimmedPmf | None]]:
    """The accuracy of many windows with predictive intervals, and the distributions behind them.

    Parameters
    ----------
    confidences : sequence of (n,) array of float
        Calibrated, one array a window.
    model : Predictive
    level : float
    predicted : sequence of (n,) int64, optional
        Classes acted on; all 0 if absent, as of models that give a confidence.

    Returns
    -------
    list of (Estimate or Unknown, TrimmedPmf or None)
        The distributions of several windows must not be convolved as if they were independent: they
        share the calibration's error. Pooled rows are one longer window.

    Raises
    ------
    ValueError
        A confidence or the level is out of range.

    Examples
    --------
    >>> model = Predictive((np.zeros(0),), np.zeros((1, 1)), Components(0.0, ((1000.0, 0.1),), 10_000))
    >>> (found, _), = predictive_windows([np.full(500, 0.9)], model)
    >>> found.value, found.lower, found.upper
    (0.9..., 0.838, 0.962)
    """
    checked_level(level)
    checked = [checked_probabilities(one, 1, f"confidences[{i}]") for i, one in enumerate(confidences)]
    found: list[tuple[Result, TrimmedPmf | None]] = [(Unknown(Reason.NO_ROWS), None)] * len(checked)
    for n in {len(one) for one in checked} - {0}:
        places = [i for i, one in enumerate(checked) if len(one) == n]
        for i, pmf in zip(places, trimmed_pmf_many(np.stack([checked[i] for i in places])), strict=True):
            classes = None if predicted is None else predicted[i]
            wide = widened(pmf, n**2 * model.variance(checked[i], None, classes))
            found[i] = mid_p_estimate(float(checked[i].mean()), wide, level), wide
    return found


def mid_p_estimate(value: float, wide: TrimmedPmf, level: float) -> Estimate:
    """An accuracy with the mid-p limits of its widened distribution, moved to the value where it is outside.

    Parameters
    ----------
    value : float
        The mean confidence.
    wide : TrimmedPmf
        Of the number of right answers.
    level : float
    """
    low, high = mid_p_interval(wide, level)
    return Estimate(value, min(low / wide.n, value), max(high / wide.n, value), level, wide.n)


def predictive_interval(confidence: ArrayLike, model: Predictive, level: float = 0.95) -> Result:
    """`predictive_windows` for one window; returns its Estimate alone."""
    return predictive_windows([np.asarray(confidence, dtype=np.float64)], model, level)[0][0]
