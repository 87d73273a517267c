"""The probability that the error of a prediction lies within a tolerance.

The probability is computed from the spread that the model itself gives: a standard deviation, or quantiles.
If the model gives no spread, the probability is computed from the errors e of a labelled reference. The scale
s(x) of these errors is the exponential of a fit of log(|e| + 0.1 · mean |e|) on the prediction and the
features, as in `monitor.stats.regression.losses`. The probability that the error of a row is at most t is the
share of the reference's ratios |e| / s(x) that are at most t / s(x) of the row.

These probabilities may be wrong, like those of a classifier: calibrations correct them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from monitor.base.records import FeatureKind, Floats
from monitor.stats.features.ratio import FeatureBins, evenly
from monitor.stats.regression.additive import AdditiveFit, ColumnBasis

FEWEST_ERRORS = 200
"""The smallest number of labelled rows that show how large the errors are."""

DEFAULT_SHARE = 0.8
"""The share of the reference's rows whose error is within a tolerance that is not configured."""

_MOST_ROWS = 10_000  # a longer reference is thinned evenly
_LEAST_ERROR = 0.1  # mean absolute errors
_ROUNDING = 1e-9  # of the larger number: 10.3 - 10.0 is more than 0.3 in binary


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The tolerance of a task: the largest error with which a prediction still counts as right.

    Parameters
    ----------
    value : float
        In the unit of the target, or a share of the absolute prediction; above 0.
    relative : bool
        Whether `value` is a share of the prediction.

    Raises
    ------
    ValueError
        `value` is not above 0 and finite.

    Examples
    --------
    >>> Tolerance(0.3).holds(np.array([10.0, 10.0]), np.array([10.3, 10.4])).tolist()
    [True, False]
    >>> Tolerance(0.1, relative=True).limits(np.array([-20.0, 5.0])).tolist()
    [2.0, 0.5]
    """

    value: float
    relative: bool = False

    def __post_init__(self) -> None:
        if not 0.0 < self.value < np.inf:
            raise ValueError(f"a tolerance must be above 0 and finite, got {self.value}")

    @classmethod
    def from_errors(cls, errors: Floats) -> Tolerance:
        """Return the tolerance within which `DEFAULT_SHARE` of these errors lie.

        Raises
        ------
        ValueError
            There are no errors, or `DEFAULT_SHARE` of them are 0.

        Examples
        --------
        >>> Tolerance.from_errors(np.array([-1.0, 2.0, -3.0, 4.0, -5.0]))
        Tolerance(value=4.0, relative=False)
        """
        if not len(errors):
            raise ValueError("a tolerance needs at least one error, got none")
        return cls(float(np.quantile(np.abs(errors), DEFAULT_SHARE, method="inverted_cdf")))

    def __str__(self) -> str:
        """Return the key and the value that configure this tolerance."""
        return f"{'relative_tolerance' if self.relative else 'tolerance'}: {self.value!r}"

    def limits(self, predictions: Floats) -> Floats:
        """Return the largest error with which each prediction is right, (n,)."""
        return self.value * np.abs(predictions) if self.relative else np.full(len(predictions), self.value)

    def holds(self, predictions: Floats, truths: Floats) -> NDArray[np.bool_]:
        """Return whether the error of each prediction is within the tolerance, (n,)."""
        room = _ROUNDING * np.maximum(np.abs(predictions), np.abs(truths))
        right: NDArray[np.bool_] = np.abs(truths - predictions) <= self.limits(predictions) + room
        return right


def chance_by_deviation(deviations: Floats, limits: Floats) -> Floats:
    """Return the probability that a normal error with mean 0 is at most the limit in size, (n,).

    Parameters
    ----------
    deviations : (n,) float64
        Standard deviations of the errors, above 0.
    limits : (n,) float64
        The largest absolute error of each row.

    Examples
    --------
    >>> chance_by_deviation(np.array([1.0, 2.0]), np.array([1.96, 1.96])).round(3).tolist()
    [0.95, 0.673]
    """
    with np.errstate(over="ignore"):  # a tiny deviation: the ratio is infinite, and the probability 1
        chance: Floats = scipy.special.erf(limits / (deviations * np.sqrt(2.0)))
    return chance


def chance_by_quantiles(
    levels: Sequence[float], quantiles: Floats, predictions: Floats, limits: Floats
) -> Floats:
    """Return the probability that the true number lies within the limit of the prediction, (n,).

    Between two quantiles, and beyond the outer ones, the quantile of the normal distribution at the level is
    linear in the number. With two quantiles, the distribution is normal. A number that several levels share
    has the probability between the first and the last of them, and lies within the limit if it is the end.

    Parameters
    ----------
    levels : sequence of float
        Q increasing levels between 0 and 1; at least two.
    quantiles : (n, Q) float64
        The model's quantiles, nondecreasing in each row.
    predictions, limits : (n,) float64

    Examples
    --------
    >>> rows = np.array([[-1.6449, 1.6449], [-3.2897, 3.2897]])
    >>> chance_by_quantiles([0.05, 0.95], rows, np.zeros(2), np.full(2, 1.96)).round(3).tolist()
    [0.95, 0.673]
    """
    scores = scipy.special.ndtri(np.asarray(levels, dtype=np.float64))
    below = _score_at(scores, quantiles, _snapped(predictions - limits, quantiles), np.less)
    up_to = _score_at(scores, quantiles, _snapped(predictions + limits, quantiles), np.less_equal)
    chance: Floats = scipy.special.ndtr(up_to) - scipy.special.ndtr(below)
    return chance


def _snapped(at: Floats, quantiles: Floats) -> Floats:
    """Return each number, or the quantile of its row that differs from it by rounding only, (n,)."""
    nearest = np.abs(quantiles - at[:, None]).argmin(axis=1)
    quantile = quantiles[np.arange(len(at)), nearest]
    is_rounded = np.abs(quantile - at) <= _ROUNDING * np.maximum(np.abs(quantile), np.abs(at))
    return np.where(is_rounded, quantile, at)


def _score_at(scores: Floats, quantiles: Floats, at: Floats, reached_by: np.ufunc) -> Floats:
    """Return the quantile of the normal distribution at the level of each number, (n,).

    The level is the probability of the numbers below `at` if `reached_by` is `np.less`, and of those up to
    `at` if it is `np.less_equal`. They differ at a number that several quantiles share.
    """
    last = quantiles.shape[1] - 1
    right = np.clip(reached_by(quantiles, at[:, None]).sum(axis=1), 1, last)
    rows = np.arange(len(at))
    low, high = quantiles[rows, right - 1], quantiles[rows, right]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        share = (at - low) / (high - low)
    share = np.where(high > low, share, np.where(reached_by(low, at), np.inf, -np.inf))
    score: Floats = scores[right - 1] + share * (scores[right] - scores[right - 1])
    return score


@dataclass(frozen=True, slots=True, eq=False)
class ErrorSpread:
    """The usual size of a model's errors as a function of a row's columns, fitted on labelled rows.

    Parameters
    ----------
    ratios : (N,) float64
        The absolute errors of the reference as multiples of their scale, in increasing order.
    own : (M,) float64
        The scale of each row passed to `from_rows`, from a fit on other rows.
    """

    ratios: Floats
    own: Floats
    _fit: AdditiveFit
    _line: Floats
    _range: tuple[float, float]

    @classmethod
    def from_rows(cls, columns: Floats, kinds: Sequence[FeatureKind], errors: Floats) -> ErrorSpread:
        """Return the spread fitted on the errors of labelled rows.

        Parameters
        ----------
        columns : (M, C) float64
            Finite; texts are encoded as numbers.
        kinds : sequence of {"number", "text"}
            The kind of each column.
        errors : (M,) float64

        Raises
        ------
        ValueError
            There are fewer than `FEWEST_ERRORS` rows.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> x = rng.normal(size=(4000, 1))
        >>> spread = ErrorSpread.from_rows(x, ["number"], rng.normal(size=4000) * np.exp(0.5 * x[:, 0]))
        >>> chances = spread.chance(np.array([[-1.0], [1.0]]), np.ones(2))
        >>> bool(np.abs(chances - [0.901, 0.456]).max() < 0.05)  # of normal errors with these deviations
        True
        """
        if len(errors) < FEWEST_ERRORS:
            raise ValueError(
                f"the size of the errors needs at least {FEWEST_ERRORS} labelled rows, got {len(errors)}; "
                "give a longer reference"
            )
        size = np.abs(errors)
        logs = np.log(size + (_LEAST_ERROR * size.mean() or 1.0))
        kept = evenly(len(size), _MOST_ROWS)
        bins = [FeatureBins.from_values(kind, columns[kept, k]) for k, kind in enumerate(kinds)]
        bases = [ColumnBasis.from_values(each, columns[kept, k]) for k, each in enumerate(bins)]
        fit = AdditiveFit.from_rows(tuple(bases), columns[kept])
        line, fitted = fit.fit(logs[None, kept])
        fitted = np.clip(fitted, logs.min(), logs.max())  # an outlier is far from the fit of the other folds
        ends = float(fitted.min()), float(fitted.max())
        own = np.exp(np.clip(fit.design(columns) @ line[0], *ends))
        own[kept] = np.exp(fitted[0])
        return cls(np.sort(size[kept] / own[kept]), own, fit, line[0], ends)

    def reaches(self, columns: Floats) -> NDArray[np.bool_]:
        """Return a mask of the rows that have all columns, and only texts that the reference has, (n,)."""
        reached: NDArray[np.bool_] = np.isfinite(columns).all(axis=1)
        for k, basis in enumerate(self._fit.bases):
            if basis.bins.kind == "text":
                reached[reached] &= ~basis.bins.unseen(columns[reached, k])
        return reached

    def scales(self, columns: Floats) -> Floats:
        """Return the expected size of the error of each row, (n,).

        Sizes outside of the range in the reference are replaced by the nearest end of this range.

        Parameters
        ----------
        columns : (n, C) float64
            Rows for which `reaches` is true.
        """
        scales: Floats = np.exp(np.clip(self._fit.design(columns) @ self._line, *self._range))
        return scales

    def chance(self, columns: Floats, limits: Floats) -> Floats:
        """Return the probability that the error of each row is at most its limit in size, (n,).

        The probability is above 0 and below 1.

        Parameters
        ----------
        columns : (n, C) float64
            Rows for which `reaches` is true.
        limits : (n,) float64
        """
        return self.chance_at(self.scales(columns), limits)

    def chance_at(self, scales: Floats, limits: Floats) -> Floats:
        """Return the result of `chance` for rows with these scales, such as `own`."""
        within = np.searchsorted(self.ratios, limits / scales, side="right").astype(np.float64)
        return (within + 0.5) / (len(self.ratios) + 1.0)
