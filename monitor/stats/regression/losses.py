"""The mean loss of a regressor over a window without labels: a doubly robust estimate with an interval.

A loss ℓ is a function of a row's prediction and label: the absolute error, the squared error, the signed
error, or 1 for an error within a tolerance. The reference has N labelled rows, and the window has n rows
without labels. All rows have columns x: the prediction, features, and the spread that the model claims.

1. *The scale* s(x) of the errors e is the exponential of a fit of log(|e| + 0.1 · mean |e|). A loss whose
   unit is that of e to the power p is fitted as ℓ / s(x)^p, so that the functions of the columns multiply.
   A scale below the reference's 1 % quantile is raised to it, and one above its maximum lowered to it.
2. *The expected loss* m(x) is a fit of ℓ, and v(x) a fit of the squared residual. Each fit is penalised least
   squares on a function of each column: piecewise linear in a number, a height for each category of a text.
   The fits are cross-fitted: the residual r = ℓ − m(x) of a row of the reference comes from a fit without
   the row's fold.
3. *The weights* w make the reference resemble the window: the ratio of densities of
   `monitor.stats.features.ratio`.
4. *The estimate* is Σ_window m(x)/n + Σ_reference w r / Σ w. It is right if either the fit or the weights
   are right (doubly robust). For a loss that is never below 0, the estimate and its interval are not either.
5. *The interval* is for the mean loss of the window's own rows. Its variance is the sum of

   * Σ v(x)/n², of the window's losses;
   * Σ w² r² / (Σ w)², of the reference's;
   * dᵀ A⁻¹ d times the variance of a residual, of the fit's parameters, with d the difference between the
     functions' means in the window and in the weighted reference, and A the matrix of the normal equations;
   * the variance between consecutive parts of the reference that the columns do not explain.

   The first two terms also have third cumulants, because losses are skewed. Quantiles are computed by the
   Cornish–Fisher expansion.
6. *A function of several means*, such as a ratio, has the value of the function at the estimates. Its
   interval is that of one loss: the sum of the losses, each times the function's derivative by its mean
   (delta method).

The estimate misleads if p(label | x) changes (concept drift), which only labels can show, or if the shift
depends on a variable that is not among the columns. The estimate is unknown if the window is too different
from the reference.

References
----------
J. Robins, A. Rotnitzky, L. Zhao, *Estimation of regression coefficients when some regressors are not always
observed*, JASA 89 (1994); V. Chernozhukov et al., *Double/debiased machine learning for treatment and
structural parameters*, Econometrics Journal 21 (2018), section 3, for cross-fitting; P. Eilers, B. Marx,
*Flexible smoothing with B-splines and penalties*, Statistical Science 11 (1996), for the penalty.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy

from monitor.base.records import FeatureKind, Floats, Ints
from monitor.base.results import Reason, TooFew, Unknown
from monitor.stats.estimate.poisson_binomial import checked_level
from monitor.stats.features.ratio import RatioReference, evenly
from monitor.stats.regression.additive import AdditiveFit, ColumnBasis

FEWEST_ROWS = 200
"""The smallest number of complete rows of a reference."""

FEWEST_IN_WINDOW = 30
"""The smallest number of complete rows of a window."""

MOST_UNUSABLE = 0.05
"""The largest share of a window's rows that may lack a value or have a value beyond the reference."""

MOST_ROWS = 10_000
"""The largest number of reference rows that are used. From a longer reference, evenly spaced rows are
used."""

_LEAST_ERROR = 0.1  # mean absolute errors
_LEAST_VARIANCE = 0.1  # mean variances
_LOW_SCALES = 0.01  # the share of rows whose scales are raised: a tiny scale gives a row a huge weight
_FEWEST_PARTS = 8  # consecutive parts of the reference that show a difference between windows
_MOST_SKEWED = 1.5  # with a larger skewness the quantiles of the expansion cross


class RowLosses(NamedTuple):
    """The losses of the N rows of a reference.

    Parameters
    ----------
    values : (N,) float64
    power : int
        The power of the error's size with which the loss grows: 1 for an absolute or signed error, 2 for a
        squared error, and 0 for a loss that does not grow with it.
    signed : bool
        Whether values may be below 0. If not, neither the estimate nor its interval goes below 0.
    """

    values: Floats
    power: int
    signed: bool = False


class LossFunction(NamedTuple):
    """A metric that is a function of the means of several losses.

    Parameters
    ----------
    losses : tuple of str
        The names of the losses.
    at : callable
        Maps the means, (L,), to the function's value and its derivatives, (L,). They are NaN where the
        function is not defined.
    undefined : Reason
        The reason of a metric that is not defined.
    """

    losses: tuple[str, ...]
    at: Callable[[Floats], tuple[float, Floats]]
    undefined: Reason


@dataclass(frozen=True, slots=True)
class MeanLoss:
    """The estimated mean loss of a window's rows, or a function of such means, with two more cumulants.

    Parameters
    ----------
    value : float
        The estimate, in the unit of the loss.
    variance, third : float
        The cumulants of the window's mean loss around `value`.
    n : int
        The number of the window's rows.
    least : float
        The smallest possible mean, 0 for a loss without sign. The interval does not go below it.
    chance : float
        The part of the variance that is the chance of the window's own rows.
    shared_variance, shared_third : float
        The parts of `variance` and `third` that come from the reference. Windows with the same reference
        have this error in common.

    Examples
    --------
    >>> mean = MeanLoss(value=12.0, variance=0.25, third=0.05, n=500)
    >>> [round(end, 2) for end in mean.interval(0.95)]
    [11.13, 13.06]
    """

    value: float
    variance: float
    third: float
    n: int
    least: float = -math.inf
    chance: float = 0.0
    shared_variance: float = 0.0
    shared_third: float = 0.0

    def joined(self, other: MeanLoss) -> MeanLoss:
        """Return the mean loss of the rows of two windows with the same reference.

        The errors of the two windows' own rows are independent. The errors that come from the reference are
        taken as fully dependent, so more windows do not reduce them.

        Examples
        --------
        >>> window = MeanLoss(value=12.0, variance=0.25, third=0.0, n=500, shared_variance=0.05)
        >>> both = window.joined(window)
        >>> both.n, round(both.variance, 4), round(both.shared_variance, 4)
        (1000, 0.15, 0.05)
        """
        n = self.n + other.n
        parts = ((self, self.n / n), (other, other.n / n))
        shared = sum(a * math.sqrt(one.shared_variance) for one, a in parts) ** 2
        shared_third = sum(a * math.cbrt(one.shared_third) for one, a in parts) ** 3
        own = sum(a**2 * (one.variance - one.shared_variance) for one, a in parts)
        own_third = sum(a**3 * (one.third - one.shared_third) for one, a in parts)
        return MeanLoss(
            value=sum(a * one.value for one, a in parts),
            variance=own + shared,
            third=own_third + shared_third,
            n=n,
            least=self.least,
            chance=sum(a**2 * one.chance for one, a in parts),
            shared_variance=shared,
            shared_third=shared_third,
        )

    def interval(self, level: float) -> tuple[float, float]:
        """Return the central quantiles of the window's mean loss; the level is above 0 and below 1."""
        z = float(scipy.special.ndtri((1.0 + checked_level(level)) / 2.0))
        sd = math.sqrt(self.variance)
        skew = 0.0 if sd == 0.0 else min(max(self.third / sd**3, -_MOST_SKEWED), _MOST_SKEWED)
        even = skew * (z**2 - 1.0) / 6.0
        odd = z - skew**2 * (2.0 * z**3 - 5.0 * z) / 36.0
        lower, upper = self.value + sd * (even - odd), self.value + sd * (even + odd)
        return max(lower, self.least), max(upper, self.least)


@dataclass(frozen=True, slots=True, eq=False)
class LossReference:
    """A labelled reference of a regressor; `estimate` estimates the losses of a window from it.

    Parameters
    ----------
    names : tuple of str
        The names of the losses.
    residuals, units : (L, N) float64
        The residuals of the reference's losses, and the scale s(x) raised to the power of each loss.
    least : tuple of float
        The smallest possible mean of each loss.
    """

    names: tuple[str, ...]
    residuals: Floats
    units: Floats
    least: tuple[float, ...]
    _powers: Ints
    _fits: _Fits
    _ratio: RatioReference

    @classmethod
    def from_rows(
        cls,
        columns: Floats,
        kinds: Sequence[FeatureKind],
        errors: Floats,
        losses: Mapping[str, RowLosses],
        most_rows: int = MOST_ROWS,
    ) -> LossReference:
        """Return the reference with these rows, which are in the order of time.

        Parameters
        ----------
        columns : (N, C) float64
            Texts are encoded as numbers, equal texts as equal numbers.
        kinds : sequence of {"number", "text"}
            The kind of each column.
        errors : (N,) float64
            The prediction minus the label of each row.
        losses : mapping of str to RowLosses
            The losses by name.
        most_rows : int
            The largest number of rows to use. Rows with a NaN or infinite column, error or loss are left out.
            If more rows remain, evenly spaced ones among them are used.

        Raises
        ------
        ValueError
            Shapes differ, there is no column or no loss, a loss that is not signed has a value below 0, or
            fewer than `FEWEST_ROWS` rows are complete.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> x = rng.normal(size=(4000, 1))
        >>> error = rng.normal(size=4000) * (1 + np.abs(x[:, 0]))
        >>> losses = {"absolute": RowLosses(np.abs(error), 1)}
        >>> reference = LossReference.from_rows(x, ["number"], error, losses)
        >>> shifted = reference.estimate(rng.normal(size=(1000, 1)) + 1.0)["absolute"]
        >>> truth = math.sqrt(2 / math.pi) * (1 + 1.1666)  # E|error| where x has the mean 1
        >>> lower, upper = shifted.interval(0.95)
        >>> lower < truth < upper, upper - lower < 0.4
        (True, True)
        """
        values = _check_rows(columns, kinds, errors, losses)
        whole = np.flatnonzero(np.isfinite(columns).all(axis=1) & np.isfinite(values).all(axis=0))
        if len(whole) < FEWEST_ROWS:
            raise ValueError(
                f"an estimate of losses needs at least {FEWEST_ROWS} rows of the reference with a label and "
                f"all columns, got {len(whole):,} of {len(columns):,}; give a longer reference, or leave out "
                "the columns that it lacks"
            )
        kept = whole[evenly(len(whole), most_rows)]
        ratio = RatioReference.from_rows(columns[kept], kinds)
        bases = tuple(map(ColumnBasis.from_values, ratio.bins, ratio.values))
        additive = AdditiveFit.from_rows(bases, columns[kept])
        size = np.abs(values[0, kept])
        scale, line = additive.fit(np.log(size + (_LEAST_ERROR * size.mean() or 1.0))[None])
        lowest, highest = np.quantile(additive.rows @ scale[0], (_LOW_SCALES, 1.0))
        line = np.clip(line, lowest, highest)
        powers = np.array([loss.power for loss in losses.values()])
        units = np.exp(powers[:, None] * line)
        expected, fitted = additive.fit(values[1:, kept] / units)
        residuals = values[1:, kept] - fitted * units
        squared, _ = additive.fit((residuals / units) ** 2)
        fits = _Fits(additive, scale[0], (float(lowest), float(highest)), expected, squared)
        least = tuple(-math.inf if loss.signed else 0.0 for loss in losses.values())
        return cls(tuple(losses), residuals, units, least, powers, fits, ratio)

    def __len__(self) -> int:
        return len(self.residuals[0])

    def estimate(
        self, columns: Floats, functions: Mapping[str, LossFunction] | None = None
    ) -> dict[str, MeanLoss | Unknown]:
        """Return the mean of each loss over a window's rows, or the reason why it is unknown.

        The means are unknown if too many rows are unusable, if fewer than `FEWEST_IN_WINDOW` rows are usable,
        or if the window is too different from the reference.

        Parameters
        ----------
        columns : (n, C) float64
            See `from_rows`. A row is unusable if it lacks a value or has a value beyond the reference
            (`FeatureBins.unseen`). A share of up to `MOST_UNUSABLE` of the rows may be unusable. Such rows
            are left out of the estimate.
        functions : mapping of str to LossFunction, optional
            Functions of the means, by name. Each is one more result.

        Raises
        ------
        ValueError
            `columns` does not have C columns.
        """
        functions = functions or {}
        count = len(self._ratio.bins)
        if columns.ndim != 2 or columns.shape[1] != count:
            raise ValueError(f"columns must have the shape (n, {count}), got {columns.shape}")
        lacking, unseen = ~np.isfinite(columns), self._ratio.unseen(columns)
        usable = np.flatnonzero(~(lacking | unseen).any(axis=1))
        reason: Unknown | None = None
        if not len(columns):
            reason = Unknown(Reason.NO_ROWS)
        elif len(columns) - len(usable) > MOST_UNUSABLE * len(columns):
            more = lacking.any(axis=1).sum() >= unseen.any(axis=1).sum()
            reason = Unknown(Reason.FEATURES_MISSING if more else Reason.FEATURES_UNSEEN)
        elif len(usable) < FEWEST_IN_WINDOW:
            reason = TooFew(Reason.TOO_FEW_ROWS, len(usable))
        else:
            ratio = self._ratio.fit(columns[usable])
            if ratio.overlaps:
                return self._means(columns[usable], ratio.weights / ratio.weights.sum(), functions)
            reason = Unknown(Reason.NO_OVERLAP)
        return dict.fromkeys((*self.names, *functions), reason)

    def expected(self, columns: Floats) -> dict[str, Floats]:
        """Return the expected losses m(x) of a window's rows, (n,) each; NaN for an unusable row.

        They lack the correction by the reference's residuals.

        Parameters
        ----------
        columns : (n, C) float64
            See `estimate`.
        """
        usable = np.isfinite(columns).all(axis=1) & ~self._ratio.unseen(columns).any(axis=1)
        every = np.full((len(self.names), len(columns)), np.nan)
        every[:, usable] = self._fits.at(columns[usable], self._powers)[2]
        return dict(zip(self.names, every, strict=True))

    def _means(
        self, columns: Floats, shares: Floats, functions: Mapping[str, LossFunction]
    ) -> dict[str, MeanLoss | Unknown]:
        n, fits = len(columns), self._fits
        design, units, expected = fits.at(columns, self._powers)
        value = expected.mean(axis=1) + self.residuals @ shares
        known, undefined = self._combined(np.maximum(value, self.least), functions)
        residuals, scales = known.mix @ self.residuals, units[known.scale]
        relative = known.squared @ design.T
        least = _LEAST_VARIANCE * np.maximum(relative.mean(axis=1, keepdims=True), 0.0)
        own = (scales**2 * np.maximum(relative, least)).mean(axis=1)
        apart = residuals - (residuals @ shares)[:, None]
        skewness = (apart**3 @ shares) / np.maximum(apart**2 @ shares, 1e-200) ** 1.5
        unbalanced = units @ design / n - (shares * self.units) @ fits.additive.rows
        alone = self.residuals / self.units
        fitted = alone @ alone.T / len(self) * fits.additive.leverage(unbalanced)
        chance, shared = own / n, apart**2 @ shares**2 + ((known.mix @ fitted) * known.mix).sum(axis=1)
        shared_third = -(apart**3 @ shares**3)
        variance = chance + shared + _between(residuals, n)
        third = skewness * own**1.5 / n**2 + shared_third
        parts = np.stack((chance, shared, shared_third), axis=1).tolist()
        return undefined | {
            name: MeanLoss(known.value[k], float(variance[k]), float(third[k]), n, least, *parts[k])
            for k, (name, least) in enumerate(zip(known.names, known.least, strict=True))
        }

    def _combined(
        self, means: Floats, functions: Mapping[str, LossFunction]
    ) -> tuple[_Combined, dict[str, Unknown]]:
        """Return losses and functions as combinations of losses, and the functions that are not defined."""
        count, undefined = len(means), {}
        names, value, mix, scale = list(self.names), means.tolist(), list(np.eye(count)), list(range(count))
        for name, function in functions.items():
            places = np.array([self.names.index(loss) for loss in function.losses])
            at, slopes = function.at(means[places])
            if not (math.isfinite(at) and np.isfinite(slopes).all()):
                undefined[name] = Unknown(function.undefined)
                continue
            row = np.zeros(count)
            row[places] = slopes
            names, value, mix = [*names, name], [*value, at], [*mix, row]
            scale.append(int(places[self._powers[places].argmax()]))
        squared = self._fits.squared
        if len(names) > count:
            residuals = np.array(mix[count:]) @ self.residuals
            added, _ = self._fits.additive.fit((residuals / self.units[scale[count:]]) ** 2)
            squared = np.vstack((squared, added))
        least = (*self.least, *[-math.inf] * (len(names) - count))
        return _Combined(names, value, np.array(mix), np.array(scale), squared, least), undefined


def _between(residuals: Floats, n: int) -> Floats:
    """Return the (L,) variances between windows of n rows that the columns do not explain."""
    rows = residuals.shape[1]
    parts = max(rows // n, _FEWEST_PARTS)
    starts = np.arange(parts) * rows // parts
    sizes = np.diff(np.append(starts, rows))
    means = np.add.reduceat(residuals, starts, axis=1) / sizes
    chance = np.add.reduceat(residuals**2, starts, axis=1) / sizes**2
    between: Floats = np.maximum(means.var(axis=1, ddof=1) - chance.mean(axis=1), 0.0)
    return between


def _check_rows(
    columns: Floats, kinds: Sequence[FeatureKind], errors: Floats, losses: Mapping[str, RowLosses]
) -> Floats:
    """Return the (1 + L, N) errors and losses, or raise ValueError."""
    n = len(errors)
    if not losses:
        raise ValueError("losses must have at least one entry, got none")
    if columns.ndim != 2 or columns.shape != (n, len(kinds)) or not kinds:
        raise ValueError(
            f"columns must have the shape ({n}, {max(len(kinds), 1)}), a row for each error and a column for "
            f"each kind, got {columns.shape}"
        )
    for name, loss in losses.items():
        if loss.values.shape != (n,):
            raise ValueError(f"the loss {name} must have the shape ({n},), got {loss.values.shape}")
        if not loss.signed and (loss.values < 0.0).any():
            raise ValueError(
                f"the loss {name} must be at least 0, got {np.nanmin(loss.values):g}; give signed=True for a "
                "loss with a sign"
            )
    return np.stack([errors, *[loss.values for loss in losses.values()]]).astype(np.float64)


class _Fits(NamedTuple):
    """The fitted parameters: of the scale (1 + P,), and of L losses and their squared residuals (L, 1 + P).

    `scales` has the least and the greatest logarithm of the scale.
    """

    additive: AdditiveFit
    scale: Floats
    scales: tuple[float, float]
    expected: Floats
    squared: Floats

    def at(self, columns: Floats, powers: Ints) -> tuple[Floats, Floats, Floats]:
        """Return the design of rows (n, 1 + P), and the unit and the expectation of each loss (L, n)."""
        design = self.additive.design(columns)
        units = np.exp(powers[:, None] * np.clip(design @ self.scale, *self.scales))
        return design, units, units * (self.expected @ design.T)


class _Combined(NamedTuple):
    """M results of a window, each a combination of the L losses: the losses, then functions of their means.

    `mix` (M, L) has the factor of each loss, `scale` (M,) the loss whose unit divides the combination's
    residuals, and `squared` (M, 1 + P) the parameters of their squares.
    """

    names: list[str]
    value: list[float]
    mix: Floats
    scale: Ints
    squared: Floats
    least: tuple[float, ...]
