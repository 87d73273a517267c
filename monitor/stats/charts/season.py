"""The season of a metric: how its level depends on the hour of the week, by empirical Bayes.

**Model.** A window of n rows in the hour h of the week has the estimate ``x = μ + s_h + e``. Here e has the
variance v/n, and the deviation s_h is the sum of three normal numbers with mean 0: one of the day of the
week, with the variance τ_d², one of the hour of the day, with τ_c², and one of the hour of the week alone,
with τ_r². The deviations of the 168 hours thus have a covariance matrix Σ, whose elements are the variances
that two hours share. If an hour has N rows in the weeks of the fit, the error of its mean x̄_h has the
variance v/N; D is the diagonal matrix of these. The conditional distribution of the deviations has the mean
and covariance matrix

``ŝ = Σ(Σ + D)⁻¹(x̄ − μ)`` and ``V = Σ − Σ(Σ + D)⁻¹Σ``.

So each hour is shrunk towards its day, its hour of the day and the common centre, and the less hours differ,
the more. If Mondays differ, all 24 hours of the day show by how much. Without any season, Σ is 0 and all
hours have the common centre.

**Variances.** The unit is the mean of each hour of each week, a *cell*. v is the variance between cells of
the same hour (at least the variance of the rows), so it contains what all windows of an hour share in one
week. The three τ² follow from three sums of squares of the x̄_h, weighted by rows: between days, between hours
of the day, and between all hours. A sum of squares ``y'Qy`` has the expectation ``tr(QΣ) + tr(QD)``, which
gives three linear equations; they are solved by least squares with τ² ≥ 0.

**Chart.** A chart judges ``x − ŝ_h`` in place of x. This difference varies by ``v/n + V_h`` around μ, like
the estimate of a window of ``n·v/(v + n·V_h)`` rows. The chart therefore gets this number of rows, which
widens the limits of hours with few rows. Averaged over the hours, false alarms remain as promised. EWMA and
CUSUM charts add up the error that successive hours have in common. With the variance of the moving average of
these errors, times ``(2 - λ)/λ``, in place of V_h, the average would vary as such a chart assumes. But an
error that lasts all day raises one alarm in place of several, so the chart gets the mean of both variances.
With a Monday three points lower, an ARL0 of 370 is then 358 and 373 (``python -m tests.fidelity.season``).

**Baseline.** A window has moved the mean of its own hour, so its deviation from ŝ_h is too small to show how
much windows vary. The baseline of the chart therefore consists of differences from the ŝ_h that follows from
the other weeks alone, with the rows that follow from its V_h. It has the first window of each cell.

**Weeks out of control.** If a cell is more than five standard deviations from the median of its hour in
the other weeks, it is left out: a holiday or an incident is no season. The standard deviation comes from the
median difference of the same hours of successive weeks, which such cells hardly change.

References
----------
Efron, Morris: Stein's estimation rule and its competitors, Journal of the American Statistical Association 68
(1973), 117-130. Searle, Casella, McCulloch: Variance Components (1992), sections 5.3 (Henderson's method 1)
and 7.4 (the conditional mean). Rasmussen, Williams: Gaussian Processes for Machine Learning (2006), section
5.4.2 (predictions without one observation).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, tzinfo
from itertools import pairwise
from statistics import median
from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls
from scipy.special import fdtrc

from monitor.base.records import Floats, Ints
from monitor.stats.charts.base import RATIO, Baseline, Verdict
from monitor.stats.charts.latch import ChartLogic

HOURS = 168
"""The hours of a week, from Monday 00:00."""

WEEKS = 4
"""The number of weeks from which a season is fitted."""

FEWEST_REPEATED = 100
"""The least number of cells beyond the first of their hour: fewer do not show how much a week varies."""

_DAY = 24
_SMALLEST = (
    1e-9  # the least error, as a share of the variance of a deviation: without it Σ + D has no inverse
)
_ROUNDING = 1e-20  # a sum of squares that equal means can have
_FAR = 5.0  # standard deviations
_NORMAL_MEDIAN = 0.6745  # of the absolute value of a standard normal number
_FIRST, _LAST = -62_135_510_400.0, 253_402_214_400.0  # seconds; a day within the years 1 to 9999, for zones


def hour_number(time: float, zone: tzinfo) -> int:
    """Return the number of hours from Monday, 1 January of the year 1, to a time on the clocks of a zone.

    The remainder modulo 168 is the hour of the week. Where clocks go back, an hour occurs twice.

    Parameters
    ----------
    time : float
        Seconds since the epoch. Times before 2 January of the year 1, or after 31 December 9999, 00:00 UTC,
        count as these.
    zone : tzinfo

    Examples
    --------
    >>> from datetime import UTC
    >>> hour_number(1.7e9, UTC) % HOURS  # Tuesday, 14 November 2023, 22:13
    46
    """
    local = datetime.fromtimestamp(min(max(time, _FIRST), _LAST), zone)
    return (local.toordinal() - 1) * _DAY + local.hour


def date_of(hour: int) -> str:
    """Return the date of an `hour_number`, such as ``2023-11-14``; 9999-12-31 for all later hours."""
    return date.fromordinal(min(max(hour // _DAY + 1, 1), date.max.toordinal())).isoformat()


class HourPoint(NamedTuple):
    """The windows of one cell, which is one hour of one week.

    Parameters
    ----------
    hour : int
        The result of `hour_number`.
    value, size, row_sd : float
        The estimate of the first window, its number of rows, and the standard deviation of one row.
    mean, rows : float
        The mean of all windows of the cell, weighted by their rows, and the number of these rows.
    """

    hour: int
    value: float
    size: float
    row_sd: float
    mean: float
    rows: float

    @classmethod
    def from_window(cls, hour: int, value: float, size: float, row_sd: float) -> HourPoint:
        """Return the cell of a first window."""
        return cls(hour, value, size, row_sd, value, size)

    def plus(self, value: float, size: float) -> HourPoint:
        """Return the cell with one more window."""
        rows = self.rows + size
        return self._replace(mean=self.mean + (value - self.mean) * size / rows, rows=rows)


@dataclass(frozen=True)
class Season:
    """The fitted deviations of the hours of the week.

    Parameters
    ----------
    offsets : (168,) float64
        ŝ_h: the deviation of each hour from the common centre, in the unit of the estimates.
    variances : (168,) float64
        V_h: the variance of the error of each offset, as it matters to the chart.
    row_variance : float
        v: the variance of one row of a window, without the season.
    """

    offsets: Floats
    variances: Floats
    row_variance: float

    def rows(self, size: float, hour: int) -> float:
        """Return the number of rows, at least 1, with which a chart judges a window of `size` rows."""
        return float(_equivalent(size, self.variances[hour % HOURS], self.row_variance))

    def judge(self, chart: ChartLogic, value: float, size: int, hour: int) -> Verdict:
        """Return the verdict of a chart on a window, with the centre and limits of the window's hour."""
        offset = float(self.offsets[hour % HOURS])
        least, greatest = chart.bounds
        without = min(max(value - offset, least), greatest)
        verdict = chart.update(without, self.rows(size, hour))
        return verdict.moved_by(offset, chart.bounds)


class SeasonFit(NamedTuple):
    """A fitted season with its baseline and its test.

    Parameters
    ----------
    season : Season
    baseline : Baseline
        The windows without the season, for a chart.
    p_value : float
        The probability of hours that differ as much, or more, if there is no season: 0 to 1.
    left_out : int
        The number of cells that were left out, because they are far from the other weeks.
    """

    season: Season
    baseline: Baseline
    p_value: float
    left_out: int


def fit_season(
    points: Sequence[HourPoint], weight: float = 1.0, bounds: tuple[float, float] = RATIO
) -> SeasonFit | None:
    """Return the season of these cells, or None if fewer than `FEWEST_REPEATED` cells repeat an hour.

    The result assumes independent cells, and deviations that are normal numbers. It misleads for a few
    extreme hours that neither their day nor their hour of the day shares: their deviations are shrunk too
    much, so that they raise more false alarms than other hours.

    Parameters
    ----------
    points : sequence of HourPoint
    weight : float
        λ: the weight of the newest window in the average that the chart judges (`Detector.newest_weight`).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> levels = 0.9 - 0.03 * (np.arange(4 * HOURS) % HOURS < 24)  # three points lower on Mondays
    >>> values = levels + rng.normal(0, 0.008, 4 * HOURS)
    >>> fit = fit_season([HourPoint.from_window(h, x, 500, 0.18) for h, x in enumerate(values.tolist())])
    >>> mondays, others = fit.season.offsets[:24].mean(), fit.season.offsets[24:].mean()
    >>> fit.p_value < 0.01, round(float(mondays), 3), round(float(others), 3)
    (True, -0.025, 0.004)
    """
    kept = near_other_weeks(points)
    # `sorted` by hour, so that the order in which windows came changes no sum.
    table = np.array(sorted(kept), dtype=np.float64).reshape(-1, 6).T
    _, value, size, row_sd, mean, rows = table
    hour = table[0].astype(np.int64) % HOURS
    total, sums = (np.bincount(hour, weights, HOURS) for weights in (rows, rows * mean))
    known = np.flatnonzero(total)
    repeated = len(hour) - len(known)
    if repeated < FEWEST_REPEATED:
        return None
    means = np.divide(sums, total, out=np.zeros(HOURS), where=total > 0)
    least = float(np.average(row_sd**2, weights=size))
    within = float(np.sum(rows * (mean - means[hour]) ** 2)) / repeated
    variance = max(within, least)
    p_value = _p_value(_sum_of_squares(means[known], total[known]), within, len(known) - 1, repeated)
    row_variance = max(_within(hour, value, size, repeated), least)
    covariance = _covariance(means[known], total[known], known, variance)
    posterior = _Posterior.of(means[known], variance / total[known], known, covariance)
    averaged = posterior.averaged(known, weight, float(rows.sum() / size.sum()))
    season = Season(posterior.offsets, averaged, row_variance)
    # Without the cell itself; a subtraction that leaves rounding errors alone leaves no rows.
    others = np.where(total[hour] - rows > 0.5, total[hour] - rows, 0.0)
    rest = np.divide(sums[hour] - rows * mean, others, out=np.zeros(len(hour)), where=others > 0)
    offsets, variances = posterior.without_own(hour, rest, others, variance)
    values = np.clip(value - offsets, *bounds)
    sizes = _equivalent(size, variances, row_variance)
    return SeasonFit(season, Baseline(values, sizes, least**0.5), p_value, len(points) - len(kept))


def _sum_of_squares(values: Floats, rows: Floats) -> float:
    return float(np.sum(rows * (values - np.average(values, weights=rows)) ** 2))


def _covariance(means: Floats, rows: Floats, hours: Ints, variance: float) -> Floats:
    """Return Σ, (168, 168), from the means of k hours with rows."""
    every = np.arange(HOURS)
    parts = [each // _DAY for each in (every, every % _DAY * _DAY)] + [every]
    shared = [np.equal.outer(part, part).astype(np.float64) for part in parts]
    equations, values = [], []
    for part in parts:
        _, code = np.unique(part[hours], return_inverse=True)
        weights = np.bincount(code, rows)
        # y'Qy is the sum of squares between the classes of this part, each with the mean of its rows.
        classes = np.equal.outer(code, np.arange(len(weights))) * rows[:, None]
        form = (classes / weights) @ classes.T - np.outer(rows, rows) / rows.sum()
        noise = variance * float(np.sum(form.diagonal() / rows))
        scale = max(len(weights) - 1, 1) * rows.mean()
        equations.append([float(np.sum(form * each[np.ix_(hours, hours)])) / scale for each in shared])
        values.append((float(means @ form @ means) - noise) / scale)
    components, _ = nnls(np.array(equations), np.array(values))
    return np.asarray(np.tensordot(components, np.array(shared), 1))


@dataclass(frozen=True)
class _Posterior:
    """The conditional distribution of the deviations of the hours.

    Parameters
    ----------
    offsets : (168,) float64
        ŝ.
    covariance : (168, 168) float64
        V.
    center : float
        μ, the generalised least squares estimate.
    means, errors : (168,) float64
        m and u: the prediction of each hour by the other hours, and its variance.
    """

    offsets: Floats
    covariance: Floats
    center: float
    means: Floats
    errors: Floats

    @classmethod
    def of(cls, means: Floats, errors: Floats, hours: Ints, covariance: Floats) -> _Posterior:
        """Return the distribution from the means of k hours, whose errors have these variances."""
        own = covariance[np.ix_(hours, hours)]
        smallest = _SMALLEST * (own[0, 0] + _SMALLEST)
        inverse = np.linalg.inv(own + np.diag(errors + smallest))
        center = float(inverse.sum(axis=0) @ means / inverse.sum())
        away = inverse @ (means - center)
        gain = covariance[:, hours] @ inverse
        offsets, rest = covariance[:, hours] @ away, covariance - gain @ covariance[hours]
        others, left = offsets.copy(), np.maximum(rest.diagonal(), 0.0)
        diagonal = inverse.diagonal()
        others[hours] = means - center - away / diagonal
        left[hours] = np.maximum(1 / diagonal - errors, 0.0)
        return cls(offsets, rest, center, others, left)

    def averaged(self, hours: Ints, weight: float, windows: float) -> Floats:
        """Return the variance of the error of each hour, (168,), as it matters to a moving average.

        Parameters
        ----------
        hours : (k,) int64
            The hours of the week with windows. The others have the diagonal of V.
        weight : float
            λ, above 0 and up to 1; with 1, the result is the diagonal of V.
        windows : float
            The number of windows in an hour, at least 1.
        """
        kept = (1 - weight) ** windows
        lags = np.subtract.outer(np.arange(len(hours)), np.arange(len(hours))) % len(hours)
        average = kept**lags * (1 - kept) / (1 - kept ** len(hours))
        own = np.sum(average @ self.covariance[np.ix_(hours, hours)] * average, axis=1)
        variances = self.covariance.diagonal().copy()
        variances[hours] = (variances[hours] + own * (2 - weight) / weight) / 2
        return np.maximum(variances, 0.0)

    def without_own(self, hour: Ints, rest: Floats, rows: Floats, variance: float) -> tuple[Floats, Floats]:
        """Return offsets and variances of cells' hours from other cells alone, (k,) and (k,).

        Parameters
        ----------
        hour : (k,) int64
            The hour of the week of each cell.
        rest, rows : (k,) float64
            The mean of the other cells of this hour, and their rows; 0 rows if there are none.
        variance : float
            The variance of one row of a cell.
        """
        prior, spread = self.means[hour], self.errors[hour]
        error = np.divide(variance, rows, out=np.zeros(len(rows)), where=rows > 0)
        gain = np.divide(spread, spread + error, out=np.zeros(len(rows)), where=(rows > 0) & (spread > 0))
        return prior + gain * (rest - self.center - prior), (1 - gain) * spread


def _within(hour: Ints, value: Floats, size: Floats, repeated: int) -> float:
    """Return the variance of one row from the first windows of cells of the same hour."""
    total = np.bincount(hour, size, HOURS)
    means = np.divide(np.bincount(hour, size * value, HOURS), total, out=np.zeros(HOURS), where=total > 0)
    return float(np.sum(size * (value - means[hour]) ** 2)) / repeated


def _p_value(squares: float, within: float, freedom: int, repeated: int) -> float:
    """Return the p-value of the F test of a sum of squares between hours against the variance within."""
    if freedom < 1 or squares <= _ROUNDING:
        return 1.0
    return float(fdtrc(freedom, repeated, squares / freedom / within)) if within > 0 else 0.0


def _equivalent(size: Floats | float, error: Floats | float, row_variance: float) -> Floats:
    """Return the number of rows whose mean varies as much as that of `size` rows and the error together."""
    size, error = np.asarray(size, dtype=np.float64), np.asarray(error, dtype=np.float64)
    whole = row_variance + size * error
    return np.maximum(np.divide(size * row_variance, whole, out=size.copy(), where=whole > 0), 1.0)


def near_other_weeks(points: Sequence[HourPoint]) -> list[HourPoint]:
    """Return the cells that are near the median of their hour in the other weeks."""
    hours: dict[int, list[HourPoint]] = {}
    for point in sorted(points):
        hours.setdefault(point.hour % HOURS, []).append(point)
    steps = [
        abs(b.mean - a.mean) / (1 / a.rows + 1 / b.rows) ** 0.5
        for each in hours.values()
        for a, b in pairwise(each)
    ]
    row_sd = median(steps) / _NORMAL_MEDIAN if steps else 0.0
    if row_sd == 0:
        return list(points)
    return [point for each in hours.values() for point in each if _is_near(point, each, row_sd)]


def repeated_cells(points: Sequence[HourPoint]) -> int:
    """Return the number of cells that count, beyond the first of their hour; see `FEWEST_REPEATED`."""
    kept = near_other_weeks(points)
    return len(kept) - len({point.hour % HOURS for point in kept})


def _is_near(point: HourPoint, cells: Sequence[HourPoint], row_sd: float) -> bool:
    others = [each for each in cells if each is not point]
    if len(others) < 2:
        return True
    error = row_sd * (1 / point.rows + 1 / sum(each.rows for each in others)) ** 0.5
    return bool(abs(point.mean - median(each.mean for each in others)) <= _FAR * error)
