"""Tests for broken features: often missing, often outside of the reference's values, or constant.

If a feature is lost, a model's answers change, but its confidences may not show the change. The share of rows
without the feature shows the loss in the first window, before any label arrives.

**Rates.** The rate of missing values is compared with that of the reference. A value is beyond the reference
if it is outside its range or a new category. The rate of such values is compared with the rate in the
reference itself: the share of values in its later half that lie beyond its earlier half. So rare values and
slow trends are normal. A feature is broken if a rate

* is significantly higher by Fisher's exact test at the `level`,
* is higher by `LEAST_RISE`, and
* is higher than in every part of the reference of a window's length. Real rates vary more over time than the
  rates of independent rows.

The feature is no longer broken if the rate is higher by less than half of `LEAST_RISE`, or is no higher than
in some part of the reference of a window's length.

**A constant.** A feature is broken if three conditions hold. All of a window's rows have the same value. For
independent rows, this has a probability of at most the `level`. The window is more than `_RUNS` times longer
than the longest run of equal values in the reference.

**Drift.** A number that always rises or falls (a date, an id) leaves the range of any reference. So for a
number whose rank correlation with time is 0.9 or more, only missing values are tested. Values beyond the
reference are not tested either if more than half of the reference's later values lie beyond its earlier half
(such as an id as a text).

The tests mislead if a new category or a wider range is correct. Then the feature counts as broken until the
model has a new reference.

References
----------
R. A. Fisher, *The logic of inductive inference*, JRSS 98 (1935), for the exact test of two rates.
C. J. Clopper, E. S. Pearson, Biometrika 26 (1934), for the bound on the largest share.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Literal, NamedTuple

import msgspec
import numpy as np
import scipy
from numpy.typing import NDArray

from monitor.base.records import FeatureKind, Floats, Ints
from monitor.stats.features.tables import MISSING, OUTSIDE, FeatureTable

FaultKind = Literal["missing", "unseen", "out_of_range", "constant"]

LEAST_RISE = 0.05
"""The smallest rise of a rate with which a feature counts as broken."""

FALSE_ALARMS_PER_YEAR = 0.5
"""The largest expected number of features of a task that are wrongly reported as broken in a year."""

ASSUMED_WINDOWS_PER_DAY = 100.0
"""The number of windows per day of a model whose traffic is unknown."""

_TESTS = 3  # of each feature: missing, beyond the reference, constant
_RUNS = 5
_ALWAYS_RISES = 0.9  # rank correlation
_MOST_OUTSIDE = 0.5


class Fault(NamedTuple):
    """A fault of a feature in a window.

    `ratio` is the share of rows with the fault, and `expected` is that share in the reference.
    """

    kind: FaultKind
    ratio: float
    expected: float


class Rate(msgspec.Struct, frozen=True):
    """The rate of an event in the reference, such as a missing value: `count` of `rows` rows have it.

    The reference is cut into parts of a window's length; `worst` is the largest share of the event in one
    part.
    """

    count: int
    rows: int
    worst: float

    @property
    def ratio(self) -> float:
        """The share of rows with the event."""
        return self.count / self.rows if self.rows else 0.0

    @classmethod
    def from_rows(cls, concerned: NDArray[np.bool_], length: int) -> Rate:
        """Return the rate of an event from a mask of rows in time order. Each part has `length` rows."""
        count, rows = int(concerned.sum()), len(concerned)
        stretches = rows // length
        worst = concerned[: stretches * length].reshape(stretches, length).mean(axis=1).max(initial=0.0)
        return cls(count, rows, float(worst))

    def exceeded(self, count: int, rows: int, level: float, broken: bool) -> bool:
        """Return whether the event is significantly more frequent than here: in `count` of `rows` rows.

        If the feature is already `broken`, a smaller excess is enough, and no test is made.
        """
        ratio = count / rows
        rise = LEAST_RISE / 2 if broken else LEAST_RISE
        if ratio < self.ratio + rise or ratio <= self.worst:
            return False
        return broken or rate_p_value(count, rows, self.count, self.rows) <= level


def rate_p_value(count: int, rows: int, count_before: int, rows_before: int) -> float:
    """Return the p-value of Fisher's exact test that a rate is higher than an earlier rate.

    The p-value is the probability that `rows` rows, drawn at random from all rows, contain the event at least
    `count` times.

    Parameters
    ----------
    count, rows : int
        The number of rows with the event, and of all rows.
    count_before, rows_before : int
        The same numbers for the earlier rate.

    Examples
    --------
    >>> round(rate_p_value(2, 2, 1, 4), 3), rate_p_value(0, 10, 5, 10)
    (0.2, 1.0)
    """
    concerned, every = count + count_before, rows + rows_before
    if count <= 0:
        return 1.0
    draws = np.arange(count, min(rows, concerned) + 1.0)
    log = _log_choices(concerned, draws) + _log_choices(every - concerned, rows - draws)
    # A draw that needs more of the other rows than there are has a binomial coefficient of 0.
    possible = rows - draws <= every - concerned
    log_p = scipy.special.logsumexp(log[possible]) - float(_log_choices(every, np.array(float(rows))))
    return min(1.0, math.exp(log_p))


def _log_choices(n: float, k: Floats) -> Floats:
    lgamma = scipy.special.gammaln
    chosen: Floats = lgamma(n + 1.0) - lgamma(k + 1.0) - lgamma(np.maximum(n - k, 0.0) + 1.0)
    return chosen


class FeatureNorm(msgspec.Struct, frozen=True):
    """The rates of one feature's faults in the reference, with which later windows are compared.

    Parameters
    ----------
    kind : {"number", "text"}
    missing : Rate
        The rate of missing values.
    outside : Rate or None
        The rate at which values of the reference's later half lie outside of the values of its earlier half.
        None if this is not tested: see the module.
    longest_run : int
        The largest number of successive rows with equal values, not counting rows without a value.
    largest_share : float
        The share of the most frequent value.
    rows : int
        The number of rows with the feature.
    drifts : bool
        True if the number rises or falls with time: see the module.
    """

    kind: FeatureKind
    missing: Rate
    outside: Rate | None
    longest_run: int
    largest_share: float
    rows: int
    drifts: bool = False

    @classmethod
    def from_values(cls, kind: FeatureKind, values: Floats, window_rows: int, step: int = 1) -> FeatureNorm:
        """Return the rates of a feature's faults, computed from its values in the reference.

        Parameters
        ----------
        kind : {"number", "text"}
        values : (N,) float64
            The feature in order of time, NaN if missing.
        window_rows : int
            The number of rows of a full window.
        step : int
            The distance in rows between two entries of `values`, if it does not have every row of the stream.
        """
        length = max(window_rows // step, 1)
        known = np.isfinite(values)
        present = values[known]
        drifts = kind == "number" and _always_rises(present)
        counts = np.unique(present, return_counts=True)[1]
        return cls(
            kind=kind,
            missing=Rate.from_rows(~known, length),
            outside=None if drifts else _beyond_earlier_half(kind, values, length),
            longest_run=_longest_run(present) * step,
            largest_share=int(counts.max(initial=0)) / max(len(present), 1),
            rows=len(present),
            drifts=drifts,
        )

    def faults(
        self, counts: Ints, constant: bool, level: float, broken: Collection[FaultKind] = ()
    ) -> tuple[Fault, ...]:
        """Return the faults of the feature in a window; empty if it is not broken.

        Parameters
        ----------
        counts : (WIDTH,) int64
            The window's counts: a result of `FeatureTable.count`.
        constant : bool
            True if all values of the window that are not missing are equal.
        level : float
            The level of each test.
        broken : collection of FaultKind
            The feature's faults in the previous window.

        Examples
        --------
        >>> hours = np.random.default_rng(0).integers(0, 24, 5000) * 1.0
        >>> table = FeatureTable.from_values("number", hours)
        >>> norm = FeatureNorm.from_values("number", hours, 500)
        >>> lost = np.where(np.arange(500) % 3 > 0, hours[:500], np.nan)
        >>> norm.faults(table.count(lost), False, 3e-7)
        (Fault(kind='missing', ratio=0.334, expected=0.0),)
        """
        rows, missing, outside = int(counts.sum()), int(counts[MISSING]), int(counts[OUTSIDE])
        if not rows:
            return ()
        faults = []
        if self.missing.exceeded(missing, rows, level, "missing" in broken):
            faults.append(Fault("missing", missing / rows, self.missing.ratio))
        beyond: FaultKind = "out_of_range" if self.kind == "number" else "unseen"
        if self.outside is not None and self.outside.exceeded(outside, rows, level, beyond in broken):
            faults.append(Fault(beyond, outside / rows, self.outside.ratio))
        if constant and self._never_constant(rows - missing, level):
            faults.append(Fault("constant", 1 - missing / rows, self.largest_share))
        return tuple(faults)

    def _never_constant(self, rows: int, level: float) -> bool:
        """Return whether a run of equal values of this length is abnormal for the feature."""
        if self.drifts or not self.rows or rows <= _RUNS * self.longest_run:
            return False
        most = round(self.largest_share * self.rows)
        if most == self.rows:
            return False
        share = float(scipy.special.betaincinv(most + 1.0, float(self.rows - most), 1 - level / 2))
        return (rows - 1) * math.log(share) <= math.log(level / 2)


def _always_rises(values: Floats) -> bool:
    """Return whether a number rises or falls with time over the whole reference."""
    levels, place, count = np.unique(values, return_inverse=True, return_counts=True)
    if len(levels) < 3:
        return False
    ranks = (count.cumsum() - count / 2)[place]
    return bool(abs(np.corrcoef(ranks, np.arange(len(ranks)))[0, 1]) >= _ALWAYS_RISES)


def _beyond_earlier_half(kind: FeatureKind, values: Floats, length: int) -> Rate | None:
    """Return the rate at which values of the later half lie beyond the earlier; None if that is usual."""
    earlier, later = values[: len(values) // 2], values[len(values) // 2 :]
    if not np.isfinite(earlier).any():
        return None
    outside = FeatureTable.from_values(kind, earlier).places(later) == OUTSIDE
    rate = Rate.from_rows(outside, length)
    return None if rate.ratio > _MOST_OUTSIDE else rate


def _longest_run(values: Floats) -> int:
    starts = np.flatnonzero(np.diff(values, prepend=np.nan, append=np.nan) != 0)
    return int(np.diff(starts).max(initial=0))


def health_level(features: int, windows_per_day: float) -> float:
    """Return the level of each test that gives less than one false fault in a task in a year.

    Parameters
    ----------
    features : int
        The number of the task's features.
    windows_per_day : float
        The number of windows of all models of the task in a day.

    Examples
    --------
    >>> round(1e7 * health_level(16, 100.0), 2)
    2.85
    """
    return FALSE_ALARMS_PER_YEAR / (365 * max(windows_per_day, 1.0) * max(features, 1) * _TESTS)


def constant_features(features: Floats) -> NDArray[np.bool_]:
    """Return a mask (F,) of the features with the same value in all rows of (n, F) in which they are present.

    Examples
    --------
    >>> constant_features(np.array([[1.0, 2.0, np.nan], [1.0, 3.0, np.nan]])).tolist()
    [True, False, False]
    """
    equal: NDArray[np.bool_] = np.fmin.reduce(features, axis=0) == np.fmax.reduce(features, axis=0)
    return equal


def window_faults(
    norms: Sequence[FeatureNorm],
    counts: Ints,
    constant: NDArray[np.bool_],
    level: float,
    broken: Sequence[Collection[FaultKind]],
) -> list[tuple[Fault, ...]]:
    """Return the faults of each feature of a window. See `FeatureNorm.faults` for the parameters."""
    return [
        norm.faults(own, bool(same), level, before)
        for norm, own, same, before in zip(norms, counts, constant, broken, strict=True)
    ]
