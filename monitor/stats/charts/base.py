"""The baseline, the verdicts and the stored state of a control chart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from monitor.base.records import Floats

RATIO = (0.0, 1.0)
"""The bounds of estimates that are ratios."""

DEFAULT_ARL0 = 370.0
"""Windows: the ARL0 of `we1` at the textbook's 3 sigma with known limits (370.4)."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """The estimates of the m reference windows, from which a chart computes its centre and limits.

    Parameters
    ----------
    values : (m,) float64
        The estimate of each reference window, within the chart's bounds, in time order.
    sizes : (m,) float64
        Rows of each window.
    row_sd : float
        The standard deviation of one row: the estimate of a window of n rows has the standard error
        row_sd/√n. If the estimate is the mean confidence, row_sd is the standard deviation of the
        confidences.
    """

    values: Floats
    sizes: Floats
    row_sd: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of judging one window on a control chart: its limits, the broken rules, and the alarm.

    Parameters
    ----------
    center, lower, upper : float
        The centre line and the control limits for a window of this size, within the chart's bounds.
    rules : tuple of str
        The names of the broken rules, such as ``("we1",)``.
    out_of_control : bool
        True if the alarm is on after this window.
    improved : bool
        True if the chart shows a change for the better after this window and no alarm is on.
    deviation : float
        The distance of the estimate from the centre, in standard deviations of such a window. Reports do not
        contain it, so verdicts are compared without it.
    """

    center: float
    lower: float
    upper: float
    rules: tuple[str, ...]
    out_of_control: bool
    improved: bool = False
    deviation: float = field(default=0.0, compare=False)

    def moved_by(self, distance: float, bounds: tuple[float, float] = RATIO) -> Verdict:
        """Return the verdict with its centre and limits moved by a distance, and clipped to the bounds."""
        least, greatest = bounds
        center, lower, upper = (
            min(max(end + distance, least), greatest) for end in (self.center, self.lower, self.upper)
        )
        return replace(self, center=center, lower=lower, upper=upper)

    def mapped(self, function: Callable[[float], float]) -> Verdict:
        """Return the verdict with a function applied to its centre and limits."""
        center, lower, upper = map(function, (self.center, self.lower, self.upper))
        return replace(self, center=center, lower=lower, upper=upper)


class ChartState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The stored state of a chart: its memory of past windows, and its two latches.

    A latch keeps an alarm on until eight windows in a row are in control
    (`monitor.stats.charts.latch.Latch`). One latch is for alarms, the other for improvements. The state
    contains no limits, so a chart that resumes from it uses the current settings.
    """

    recent: list[float] | None = None
    ewma: list[float] | None = None
    cusum: list[float] | None = None
    others: dict[str, list[float]] = {}  # memories of kinds without a field, by kind
    quiet_windows: int | None
    quiet_improved: int | None = None  # the latch of changes for the better, which older versions lack

    @classmethod
    def from_memory(
        cls, kind: str, memory: list[float], quiet_windows: int | None, quiet_improved: int | None = None
    ) -> ChartState:
        """Return a state with the memory of a kind of chart (such as ``"ewma"``) and both latches."""
        own: dict[str, Any] = {kind: memory} if kind in cls.__struct_fields__ else {"others": {kind: memory}}
        return cls(quiet_windows=quiet_windows, quiet_improved=quiet_improved, **own)

    def memory(self, kind: str) -> list[float] | None:
        """Return the memory of this kind of chart, or None if the state belongs to another kind."""
        kept: list[float] | None = getattr(self, kind, None)
        return self.others.get(kind) if kept is None else kept
