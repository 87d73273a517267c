"""The memories of EWMA and CUSUM charts: the moving average and the cumulative sums of past windows.

Average and sums continue during an alarm, so a lasting shift keeps the alarm on. They are limited to 1.5
times the threshold, so the alarm ends soon after the shift. A window counts towards the end of the alarm only
if the average or sum is below half of the threshold. Without this rule, a shift of the size that a chart is
tuned to would raise three alarms in 120 windows, because the average returns within its limits every few
windows. With this rule, the shift raises 1.01 alarms (0.75 of the shift raises 1.2). The disadvantage is that
an alarm lasts about 20 windows longer than its shift. After the alarm, average and sums start at 0 again, as
the computed run lengths assume.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

_HELD, _CALM = 1.5, 0.5  # in thresholds


class EwmaMemory:
    """The memory of an EWMA chart: the moving average ``z ← (1 - λ)z + λy`` of standardised windows y.

    Parameters
    ----------
    weight : float
        λ, above 0 and up to 1.
    threshold : float
        L: half width of the limits in the average's own standard deviations √(λ/(2 - λ)), above 0.
    state : sequence of float, optional
        A result of `snapshot`; an invalid one raises a ValueError.

    Examples
    --------
    >>> memory = EwmaMemory(0.2, 3.0)
    >>> [memory.update(y) for y in (1.0, 2.0, 2.0, 2.0)]
    [(), (), (), ('ewma',)]
    >>> [round(z, 2) for z in memory.snapshot()]
    [1.08]
    """

    kind = "ewma"

    def __init__(self, weight: float, threshold: float, state: Sequence[float] | None = None) -> None:
        self._weight = weight
        self._limit = self._reach = threshold * math.sqrt(weight / (2 - weight))
        (self._average,) = _checked(state, 1, self.kind)
        self.side = 0

    def update(self, z: float, least: float = 0.0) -> tuple[str, ...]:
        """Add the next window's standardised value. Return ``("ewma",)`` if the average leaves its limits.

        The limits are never nearer to the centre than `least` sigmas.
        """
        average = (1 - self._weight) * self._average + self._weight * z
        self._reach = max(self._limit, least)
        held = _HELD * self._reach
        self._average = min(max(average, -held), held)
        self.side = (average > self._reach) - (average < -self._reach)
        return (self.kind,) if self.side else ()

    def calm(self, side: int = 0) -> bool:
        """Return whether the average is within half of its limits, so that the window counts as quiet.

        `side` selects one side; 0 means both.
        """
        return (abs(self._average) if side == 0 else side * self._average) <= _CALM * self._reach

    def bounds(self, least: float = 0.0) -> tuple[float, float]:
        """Return the lowest and highest next value, in sigmas, that keep the average within its limits."""
        kept, reach = (1 - self._weight) * self._average, max(self._limit, least)
        return (-reach - kept) / self._weight, (reach - kept) / self._weight

    def restart(self) -> None:
        """Set the average to the centre."""
        self._average = 0.0

    def snapshot(self) -> list[float]:
        """Return the average, in sigmas, as a list of one number."""
        return [self._average]


class CusumMemory:
    """The memory of a CUSUM chart: two sums ``S ← max(0, S ± y - k)`` of standardised windows y.

    Parameters
    ----------
    reference : float
        The allowance k, above 0.
    threshold : float
        The decision interval h, above 0.
    state : sequence of float, optional
        A result of `snapshot`; an invalid one raises a ValueError.

    Examples
    --------
    >>> memory = CusumMemory(0.5, 4.0)
    >>> [memory.update(y) for y in (1.5, 2.0, 2.0, 2.0)]
    [(), (), (), ('cusum',)]
    >>> memory.snapshot()
    [5.5, 0.0]
    """

    kind = "cusum"

    def __init__(self, reference: float, threshold: float, state: Sequence[float] | None = None) -> None:
        self._reference = reference
        self._interval = threshold
        self._up, self._down = _checked(state, 2, self.kind)
        self.side = 0

    def update(self, z: float, least: float = 0.0) -> tuple[str, ...]:
        """Add the next window's standardised value. Return ``("cusum",)`` if a sum is above h.

        A sum grows by the distance from the centre minus k, or minus `least` if that is larger. So if a sum
        is above h, the windows since it left 0 are on average more than `least` sigmas from the centre.
        """
        held, k = _HELD * self._interval, max(self._reference, least)
        self._up = min(max(0.0, self._up + z - k), held)
        self._down = min(max(0.0, self._down - z - k), held)
        self.side = (self._up > self._interval) - (self._down > self._interval)
        return (self.kind,) if max(self._up, self._down) > self._interval else ()

    def calm(self, side: int = 0) -> bool:
        """Return whether the sums are at most half of h, so that the window counts as quiet.

        `side` selects one sum; 0 means both.
        """
        largest = max(self._up, self._down) if side == 0 else self._up if side > 0 else self._down
        return largest <= _CALM * self._interval

    def bounds(self, least: float = 0.0) -> tuple[float, float]:
        """Return the lowest and highest next value, in sigmas, that keep both sums within h."""
        reach = self._interval + max(self._reference, least)
        return self._down - reach, reach - self._up

    def restart(self) -> None:
        """Set both sums to 0."""
        self._up = self._down = 0.0

    def snapshot(self) -> list[float]:
        """Return the sum for rises and the sum for falls, in sigmas."""
        return [self._up, self._down]


def _checked(state: Sequence[float] | None, numbers: int, kind: str) -> list[float]:
    if state is None:
        return [0.0] * numbers
    if len(state) != numbers or not all(math.isfinite(number) for number in state):
        raise ValueError(f"{kind} must hold {numbers} finite numbers, got {list(state)}")
    return [float(number) for number in state]
