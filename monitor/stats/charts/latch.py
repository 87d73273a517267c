"""The latch, which combines the alarms of one shift into one, and the chart logic that uses it."""

from __future__ import annotations

import math
from typing import NamedTuple

from monitor.stats.charts.base import RATIO, ChartState, Verdict
from monitor.stats.charts.detectors import Detector
from monitor.stats.charts.rules import FAR

RELEASE_WINDOWS = 8
"""The number of windows in a row without a broken rule that end an alarm. It is the number that `we4`
uses."""

RESOLUTION = 1e-9
"""An estimate within this distance from the centre counts as equal to the centre. Means of equal numbers
differ by rounding. Estimates without bounds have the larger of the centre and a row's deviation as unit."""


class Latch:
    """An alarm that stays on until eight windows in a row are in control.

    A lasting shift breaks rules several times, with quiet windows in between. The latch reports this as one
    alarm. A second shift within eight windows belongs to the first alarm.

    Parameters
    ----------
    quiet_windows : int or None
        Windows in a row without a broken rule while the alarm is on; None while it is off.

    Examples
    --------
    >>> latch = Latch()
    >>> latch.update(broken=True), [latch.update(broken=False) for _ in range(8)]
    (True, [True, True, True, True, True, True, True, False])
    """

    def __init__(self, quiet_windows: int | None = None) -> None:
        if quiet_windows is not None and not 0 <= quiet_windows < RELEASE_WINDOWS:
            raise ValueError(
                f"quiet_windows must be None or 0 to {RELEASE_WINDOWS - 1}, got {quiet_windows!r}"
            )
        self._quiet_windows = quiet_windows

    @property
    def on(self) -> bool:
        """True while the alarm is on."""
        return self._quiet_windows is not None

    def update(self, broken: bool, windows: int = 1) -> bool:
        """Record whether the next window breaks a rule, and return whether the alarm is on after it.

        Parameters
        ----------
        broken : bool
        windows : int
            The number of newest windows that are judged together. If they break no rule together, all of
            them are in control.
        """
        if broken:
            self._quiet_windows = 0
        elif self._quiet_windows is not None:
            self._quiet_windows = max(self._quiet_windows + 1, windows)
            if self._quiet_windows >= RELEASE_WINDOWS:
                self._quiet_windows = None
        return self.on

    def snapshot(self) -> int | None:
        """Return the state, which the constructor takes as `quiet_windows`."""
        return self._quiet_windows


class RelevantChange(NamedTuple):
    """The changes that raise an alarm: changes of at least `least` that are no improvement.

    `least` is in the unit of the estimates. `better` is the direction of an improvement: 1 for larger values,
    -1 for smaller values, 0 for neither.
    """

    least: float = 0.0
    better: int = 0


class ChartLogic:
    """A chart that judges the windows of one series in time order, and holds the state of this series.

    It standardises windows, and has two latches. One latch is for the alarm, the other for an improvement. An
    improvement neither raises nor prolongs an alarm, and verdicts show it only while no alarm is on.

    A window of n rows has ``σ = √(row_variance/n)``. Its distance from the centre, divided by σ, is its
    standardised value, so windows of any size have the same weight. The limits of a verdict, within the
    bounds, are ``centre ± L·σ`` for run rules. For EWMA and CUSUM charts they apply to the estimate of this
    window alone: if it lies outside them, the average or a sum passes its own limit. The lower limit is never
    above the centre, and the upper limit is never below it.

    If all reference rows and windows are equal, sigma is 0. Then a window within 1e-9 of the centre is in
    control, and any other window lies beyond every limit.

    Parameters
    ----------
    center : float
        Within the bounds.
    row_variance : float
        Variance of one row, 0 or more: the estimate of n rows has the variance `row_variance`/n.
    multiplier : float
        Half width of the limits in sigmas; for a CUSUM its decision interval.
    detector : Detector
    resume : ChartState, optional
        The state to resume from. From the state of another kind of chart, only the latches are used.
    relevant : RelevantChange, optional
        By default every change raises an alarm.
    bounds : tuple of float
        The least and the greatest possible estimate.

    Raises
    ------
    ValueError
        `resume` is not a valid state.
    """

    def __init__(
        self,
        center: float,
        row_variance: float,
        multiplier: float,
        detector: Detector,
        resume: ChartState | None = None,
        relevant: RelevantChange | None = None,
        bounds: tuple[float, float] = RATIO,
    ) -> None:
        self.center = center
        self.bounds = bounds
        unit = 1.0 if all(map(math.isfinite, bounds)) else max(abs(center), math.sqrt(row_variance))
        self._resolution = RESOLUTION * unit
        self.row_variance = row_variance
        self.multiplier = multiplier
        self.detector = detector
        state = resume or ChartState(quiet_windows=None)
        self._memory = detector.memory(multiplier, None)
        kept = state.memory(self._memory.kind)
        if kept is not None:
            self._memory = detector.memory(multiplier, kept)
        self._relevant = relevant or RelevantChange()
        self._alarm = Latch(state.quiet_windows)
        self._improvement = Latch(state.quiet_improved)

    def update(self, value: float, size: float) -> Verdict:
        """Return the verdict on the next window, from its estimate and number of rows (1 or more).

        With a season, the number of rows need not be whole; see `monitor.stats.charts.season`.

        Raises
        ------
        ValueError
            The estimate or the number of rows is out of range or NaN.
        """
        low, high = self.bounds
        if not (low - self._resolution <= value <= high + self._resolution and math.isfinite(value)):
            raise ValueError(
                f"value: got {value}; a chart takes an estimate from {low:g} to {high:g}, and no unknown one"
            )
        if not size >= 1:
            raise ValueError(f"size: got {size}; a window has at least 1 row")
        sigma = math.sqrt(self.row_variance / size)
        change = self._relevant.least
        alone = 0 < change >= FAR * sigma  # the windows hardly vary, so the least change alone decides
        least = 0.0 if alone else max(change - self._resolution, 0.0) / sigma if change else 0.0
        lower, upper = (min(max(z, -FAR), FAR) for z in self._memory.bounds(least))
        deviation = self._standardised(value, sigma)
        rules = self._memory.update(deviation, least)
        self._latch(bool(rules))
        return Verdict(
            center=self.center,
            lower=max(low, self.center - change if alone else self.center + min(lower, 0.0) * sigma),
            upper=min(high, self.center + change if alone else self.center + max(upper, 0.0) * sigma),
            rules=rules,
            out_of_control=self._alarm.on,
            improved=self._improvement.on and not self._alarm.on,
            deviation=deviation,
        )

    def _latch(self, broken: bool) -> None:
        """Add the window to both latches, and restart the memory when the last of them is released."""
        better = self._relevant.better
        improves = broken and better != 0 and self._memory.side == better
        were_on = self._alarm.on, self._improvement.on
        self._alarm.update((broken and not improves) or (were_on[0] and not self._memory.calm(-better)))
        self._improvement.update(improves or (were_on[1] and not self._memory.calm(better)))
        if any(were_on) and not (self._alarm.on or self._improvement.on):
            self._memory.restart()

    def _standardised(self, value: float, sigma: float) -> float:
        distance = value - self.center
        if abs(distance) <= self._resolution:
            return 0.0
        if abs(distance) >= FAR * sigma:
            return (
                math.copysign(FAR, distance)
                if abs(distance) >= self._relevant.least - self._resolution
                else 0.0
            )
        return distance / sigma

    def snapshot(self) -> ChartState:
        """Return the state, which `Chart.build` takes as `resume`: the memory, and both latches."""
        latches = self._alarm.snapshot(), self._improvement.snapshot()
        return ChartState.from_memory(self._memory.kind, self._memory.snapshot(), *latches)
