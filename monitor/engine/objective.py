"""Judges objectives: whether a metric of pooled windows stays above a floor or below a ceiling.

A control chart detects changes; an objective decides whether the metric is still good enough. The interval of
one window is usually too wide for that, so the newest windows are pooled.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from monitor.base.codec import restored
from monitor.base.records import Floats
from monitor.base.results import Estimate, Result
from monitor.config.task import Bound
from monitor.reports.views import ObjectiveState
from monitor.stats.estimate.count_ratio import MOSTLY_UNDEFINED, CountRatio
from monitor.stats.estimate.label_cumulants import Cumulants
from monitor.stats.estimate.poisson_binomial import TrimmedPmf
from monitor.stats.estimate.predictive import Predictive
from monitor.stats.estimate.shared_error import Exposure
from monitor.stats.estimate.widening import mid_p_interval, widened, widened_interval
from monitor.stats.regression.losses import MeanLoss
from monitor.stats.regression.metrics import metric_of_mean


@dataclass(frozen=True, slots=True)
class BootstrapDraws:
    """A window's estimate of a metric, and the estimates from bootstrap draws of the window's rows.

    Parameters
    ----------
    value : float
        The window's estimate.
    draws : (b,) float64
        The estimate in each bootstrap draw of the window's rows; b is the same for all windows.
    size : int
        The number of rows, 1 or more.
    """

    value: float
    draws: Floats
    size: int

    def __post_init__(self) -> None:
        if np.ndim(self.draws) != 1 or len(self.draws) == 0 or not np.all(np.isfinite(self.draws)):
            raise ValueError(f"draws must be finite numbers, (b,) with b of 1 or more, got {self.draws!r}")
        if not np.isfinite(self.value):
            raise ValueError(f"value must be a finite number, got {self.value}")
        if self.size < 1:
            raise ValueError(f"size must be 1 or more, got {self.size}")


Poolable = TrimmedPmf | CountRatio | Cumulants | BootstrapDraws | MeanLoss
"""The distribution of a window's estimate, from which an objective pools several windows."""

_Ratio = TrimmedPmf | CountRatio | Cumulants | BootstrapDraws

Pooled = Callable[[int], Result | None]
"""The type of a function that takes a number n, and returns the corrected accuracy of the newest n windows.

The accuracy is corrected by all labels so far. It is None before the first label.
"""


@dataclass(frozen=True, slots=True)
class ObjectiveVerdict:
    """The verdict on an objective for the pooled windows.

    Parameters
    ----------
    state : ObjectiveState or None
        None if no window has an estimate, or if the metric is probably undefined in the pooled windows.
    lower, upper : float or None
        The pooled interval that was judged, in the metric's unit; None if `state` is None.
    windows, rows : int
        The number of pooled windows, and the number of their rows.
    """

    state: ObjectiveState | None
    lower: float | None
    upper: float | None
    windows: int
    rows: int


_NEAR = 0.25
"""An estimate is at risk if its distance to the bound is less than this share of the interval's width."""


def judge(bound: Bound, lower: float, value: float, upper: float) -> ObjectiveState:
    """Return the state of an objective from an estimate of the metric and its interval.

    For a floor, the state is:

    * met, if the whole interval lies at or above the floor;
    * breached, if the whole interval lies below the floor;
    * at risk, if the floor lies within the interval and the estimate is below the floor, or above it by less
      than a quarter of the interval's width;
    * not proven, if the floor lies within the interval and the estimate is higher. The interval is then too
      wide.

    A ceiling is judged in the opposite direction.

    Examples
    --------
    >>> floor = Bound(min=0.9)
    >>> [judge(floor, value - 0.02, value, value + 0.02).value for value in (0.92, 0.915, 0.905, 0.88, 0.87)]
    ['met', 'not_proven', 'at_risk', 'at_risk', 'breached']
    """
    if bound.min is not None:
        met, breached, room = lower >= bound.min, upper < bound.min, value - bound.min
    else:
        assert bound.max is not None  # a Bound has either min or max
        met, breached, room = upper <= bound.max, lower > bound.max, bound.max - value
    if met or breached:
        return ObjectiveState.MET if met else ObjectiveState.BREACHED
    return ObjectiveState.AT_RISK if room < _NEAR * (upper - lower) else ObjectiveState.NOT_PROVEN


@dataclass(frozen=True)
class Objective:
    """The settings of an objective: a floor or a ceiling for one metric, pooled over the newest windows.

    Parameters
    ----------
    bound : Bound
        A floor (`min`) or a ceiling (`max`).
    windows : int
        The number of newest windows that are pooled, 1 or more. A window without an estimate also counts,
        although it adds nothing. So no older window replaces it.
    level : float
        The level of the interval, above 0 and below 1. With 0.95, a metric that lies exactly at its bound is
        judged as breached after 2.5 % of the windows, if the estimator's assumptions hold.
    metric : str
        The name of the metric. It is used only for a metric of errors, which follows from a mean loss.

    Raises
    ------
    ValueError
        A number is out of its range.

    Examples
    --------
    >>> logic = Objective(Bound(min=0.9), windows=2).build()
    >>> for k in (95, 88, 80):
    ...     v = logic.update(TrimmedPmf(offset=k - 1, mass=np.array([0.25, 0.5, 0.25]), n=100))
    ...     print(v.state, v.lower, v.upper)
    met 0.94 0.96
    met 0.905 0.925
    breached 0.83 0.85
    """

    bound: Bound
    windows: int = 5
    level: float = 0.95
    metric: str = ""

    def __post_init__(self) -> None:
        if not self.windows >= 1:
            raise ValueError(f"windows must be 1 or more, got {self.windows}")
        if not 0 < self.level < 1:
            raise ValueError(f"level must be above 0 and below 1, got {self.level}")

    def build(self, resume: PooledState | None = None) -> ObjectiveLogic:
        """Return the objective's logic, new or resumed from a snapshot.

        If `windows` is less than in the snapshot, the newest windows are kept.
        """
        if resume is None:
            return ObjectiveLogic(self)
        return ObjectiveLogic(self, [_item(each) for each in resume.items], resume.next, resume.exposures)


class PooledState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The stored state of an objective: its pooled windows, oldest first.

    Parameters
    ----------
    items : list
        `TrimmedPmf`, `CountRatio`, `Cumulants`, `BootstrapDraws` or `MeanLoss`, or mappings of their fields;
        None for a window whose estimate is unknown.
    next : int
        The index of the next window in the circular list of pooled windows.
    exposures : list of Exposure or None
        The dependence of each window's estimate on errors that its rows share; None for exact intervals.
    """

    items: list[Any]
    next: int
    exposures: list[Exposure | None] = []


class ObjectiveLogic:
    """A running objective of one series, which pools the newest windows and judges them.

    Adding a window costs about log2(`windows`) convolutions.
    """

    def __init__(
        self,
        settings: Objective,
        items: Sequence[Poolable | None] = (),
        place: int = 0,
        exposures: Sequence[Exposure | None] = (),
    ) -> None:
        self._settings = settings
        self._exposures: deque[Exposure | None] = deque(exposures, maxlen=settings.windows)
        self._items: deque[Poolable | None] = deque(items, maxlen=settings.windows)
        self._place = place % settings.windows
        self._pool = _Pool(settings.windows, self._items, self._place)

    def update(
        self,
        item: Poolable | None,
        exposure: Exposure | None = None,
        model: Predictive | None = None,
        corrected: Pooled | None = None,
    ) -> ObjectiveVerdict:
        """Add the next window, and judge the pooled windows.

        Parameters
        ----------
        item : TrimmedPmf, CountRatio, Cumulants, BootstrapDraws or MeanLoss, or None
            The distribution of the window's estimate. None if the estimate is unknown. Only a `MeanLoss`
            includes the errors that windows share; the others include the random error of single rows.
        exposure : Exposure, optional
            The dependence of the estimate on errors that the window's rows share.
        model : Predictive, optional
            The model of the calibration's error and of the variation between windows. It widens the interval
            of the pooled windows, as if they were one long window. Without this model, the interval includes
            only the random error of single rows.
        corrected : Pooled, optional
            Takes a number of windows, and returns the accuracy of the newest ones, corrected by labels. If
            this accuracy is known, it is judged instead of the estimate.
        """
        self._items.append(item)
        self._exposures.append(exposure)
        self._pool.put(self._place, item)
        self._place = (self._place + 1) % self._settings.windows
        if corrected is not None and isinstance(by_labels := corrected(len(self._items)), Estimate):
            state = judge(self._settings.bound, by_labels.lower, by_labels.value, by_labels.upper)
            return ObjectiveVerdict(state, by_labels.lower, by_labels.upper, len(self._items), by_labels.n)
        total = self._pool.total
        if total is None or (isinstance(total, CountRatio) and total.undefined > MOSTLY_UNDEFINED):
            return ObjectiveVerdict(None, None, None, 0, 0)
        lower, value, upper = self._interval(total, model)
        state = judge(self._settings.bound, lower, value, upper)
        return ObjectiveVerdict(state, lower, upper, len(self._items) - self._items.count(None), _rows(total))

    def _interval(self, total: Poolable, model: Predictive | None) -> tuple[float, float, float]:
        """Return the lower end, the value and the upper end of the pooled metric."""
        if isinstance(total, MeanLoss):
            result = metric_of_mean(self._settings.metric, total, self._settings.level)
            assert isinstance(result, Estimate)
            return result.lower, result.value, result.upper
        lower, upper = self._ends(total, model)
        return lower, _value(total), upper

    def _ends(self, total: _Ratio, model: Predictive | None) -> tuple[float, float]:
        known = [one for one in self._exposures if one is not None]
        level = self._settings.level
        if model is None or not known:
            return _interval(total, level)
        variance, shift = model.error_of(known)
        if isinstance(total, BootstrapDraws | Cumulants | CountRatio):
            lean = sum(one.lean for one in known) / sum(one.weight for one in known)
            lower, upper = widened_interval(total.value, *_interval(total, level), variance, level, shift)
            return max(lower - lean, 0.0), upper
        k_low, k_high = mid_p_interval(widened(total, total.n**2 * variance), level)
        return k_low / total.n, k_high / total.n

    @property
    def windows(self) -> int:
        """The number of pooled windows, with those whose estimate is unknown."""
        return len(self._items)

    def clear(self) -> None:
        """Drop all windows, for example because a new version of the model begins."""
        self._items.clear()
        self._exposures.clear()
        self._place = 0
        self._pool = _Pool(self._settings.windows, (), 0)

    def snapshot(self) -> PooledState:
        """Return the pooled windows, oldest first, for `Objective.build`."""
        exposures = list(self._exposures)
        return PooledState(list(self._items), self._place, exposures if any(exposures) else [])


class _Pool:
    """The newest windows, joined: a ring of windows, which are the leaves of a binary tree of their joins.

    A new window replaces the one at its place. Only the nodes above this place are computed again. The total
    depends only on the place of each window. A snapshot stores the places. So a pool that is built from a
    snapshot continues with the same numbers, to the last bit.

    In another order, the same windows give a slightly different CDF, because each convolution trims and
    rounds. The difference is below 1e-15 per window. The quantiles are the same, except at a closer tie.

    Parameters
    ----------
    places : int
        The number of places in the ring.
    items : sequence
        Windows, oldest first, at most `places`.
    following : int
        The place after the newest window's place.
    """

    def __init__(self, places: int, items: Collection[Poolable | None], following: int) -> None:
        # As in a binary heap: node i holds nodes 2i and 2i + 1, and the last `places` nodes are the ring.
        self._places = places
        self._nodes: list[Poolable | None] = [None] * (2 * places)
        for age, item in enumerate(items):
            self._nodes[places + (following - len(items) + age) % places] = item
        for node in range(places - 1, 0, -1):
            self._join(node)

    @property
    def total(self) -> Poolable | None:
        """All windows joined; None if no window has an estimate."""
        return self._nodes[1]

    def put(self, place: int, item: Poolable | None) -> None:
        """Replace the window at a place."""
        node = self._places + place
        self._nodes[node] = item
        while node > 1:
            node //= 2
            self._join(node)

    def _join(self, node: int) -> None:
        self._nodes[node] = _joined(self._nodes[2 * node], self._nodes[2 * node + 1])


def _joined(one: Poolable | None, other: Poolable | None) -> Poolable | None:
    """Return two windows joined into one. None adds nothing.

    Counts are convolved, which is exact for independent windows. Cumulants are joined to the cumulants of the
    mean of both windows, weighted by size. Bootstrap draws are averaged draw by draw with the same weights.
    For a metric that is not a mean over rows (``ece``), the result is the mean of the windows' values, not
    the value of all rows at once. To join draws with cumulants, the draws are converted to cumulants. The
    result includes only the random error of single rows.
    """
    if one is None or other is None:
        return one if other is None else other
    if isinstance(one, BootstrapDraws) and isinstance(other, BootstrapDraws):
        return _weighted(one, other)
    if isinstance(one, MeanLoss) and isinstance(other, MeanLoss):
        return one.joined(other)
    if isinstance(one, BootstrapDraws | Cumulants) and isinstance(other, BootstrapDraws | Cumulants):
        return _cumulants(one).joined(_cumulants(other))
    if isinstance(one, CountRatio) and isinstance(other, CountRatio):
        return one.convolve(other)
    if not isinstance(one, TrimmedPmf) or not isinstance(other, TrimmedPmf):
        raise ValueError("items must be windows of one kind, got counts and draws")
    return one.convolve(other)


def _cumulants(item: BootstrapDraws | Cumulants) -> Cumulants:
    return item if isinstance(item, Cumulants) else Cumulants.from_draws(item.value, item.draws, item.size)


def _weighted(one: BootstrapDraws, other: BootstrapDraws) -> BootstrapDraws:
    if len(one.draws) != len(other.draws):
        raise ValueError(f"draws must be as many in each window, got {len(one.draws)} and {len(other.draws)}")
    size = one.size + other.size
    share, rest = one.size / size, other.size / size
    return BootstrapDraws(
        share * one.value + rest * other.value, share * one.draws + rest * other.draws, size
    )


def _interval(total: _Ratio, level: float) -> tuple[float, float]:
    if isinstance(total, BootstrapDraws):
        low, high = np.quantile(total.draws, [(1 - level) / 2, (1 + level) / 2])
        return float(low), float(high)
    if isinstance(total, CountRatio | Cumulants):
        return total.interval(level)
    k_low, k_high = total.interval(level)
    return k_low / total.n, k_high / total.n


def _value(total: _Ratio) -> float:
    if isinstance(total, BootstrapDraws | CountRatio | Cumulants):
        return total.value
    return float(np.dot(total.mass, np.arange(len(total.mass))) / total.mass.sum() + total.offset) / total.n


def _rows(item: Poolable) -> int:
    if isinstance(item, CountRatio):
        return item.rows
    return item.size if isinstance(item, BootstrapDraws | Cumulants) else item.n


_ITEMS: tuple[tuple[str, type[Poolable]], ...] = (
    ("draws", BootstrapDraws),
    ("least", MeanLoss),
    ("third", Cumulants),
    ("hits", CountRatio),
    ("mass", TrimmedPmf),
)


def _item(saved: Any) -> Poolable | None:
    """Return a pooled window from a snapshot's value."""
    if not isinstance(saved, Mapping):
        pooled: Poolable | None = saved
        return pooled
    for field, kind in _ITEMS:
        if field in saved:
            return restored(saved, kind)
    raise ValueError(f"resume must hold windows of an objective, got one with {sorted(saved)}")
