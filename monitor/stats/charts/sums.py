"""The memory of EWMA and CUSUM charts on standardised values.

Both go on during an alarm, so a lasting shift keeps the alarm on. They are held at 1.5 times the threshold,
so the alarm ends soon after the shift. Only values below half of the threshold count as calm: a shift of the
size that a chart is tuned to brings the average back within its limits every few windows, and would raise
three alarms in 120 windows where it now raises 1.01 (0.75 of that shift: 1.2). The price is an alarm that
outlasts its shift by about 20 windows. After the release both start again, as the run lengths of the promise
assume.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

_HELD, _CALM = 1.5, 0.5  # in thresholds


class EwmaMemory:
    """The exponentially weighted moving average ``z ← (1 - λ)z + λy`` of standardised windows y.

    Parameters
    ----------
    weight : float
        λ, above 0, up to 1.
    threshold : float
        L: half width of the limits in the average's own standard deviations √(λ/(2 - λ)), above 0.
    state : sequence of float, optional
        From `snapshot`; a wrong one raises a ValueError.

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
        self._limit = threshold * math.sqrt(weight / (2 - weight))
        (self._average,) = _checked(state, 1, self.kind)

    def update(self, z: float) -> tuple[str, ...]:
        """Take the next window's standardised value; return ``("ewma",)`` if the average is outside."""
        average = (1 - self._weight) * self._average + self._weight * z
        held = _HELD * self._limit
        self._average = min(max(average, -held), held)
        return (self.kind,) if abs(average) > self._limit else ()

    def calm(self) -> bool:
        """Whether the average is within half of its limits."""
        return abs(self._average) <= _CALM * self._limit

    def bounds(self) -> tuple[float, float]:
        """The values of the next window that leave the average within its limits."""
        kept = (1 - self._weight) * self._average
        return (-self._limit - kept) / self._weight, (self._limit - kept) / self._weight

    def restart(self) -> None:
        """Start at the centre again."""
        self._average = 0.0

    def snapshot(self) -> list[float]:
        """The average."""
        return [self._average]


class CusumMemory:
    """Two cumulative sums of standardised windows y, ``S ← max(0, S ± y - k)``.

    Parameters
    ----------
    reference : float
        k, above 0.
    threshold : float
        h, the decision interval, above 0.
    state : sequence of float, optional
        From `snapshot`; a wrong one raises a ValueError.

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

    def update(self, z: float) -> tuple[str, ...]:
        """Take the next window's standardised value; return ``("cusum",)`` if a sum is above h."""
        held = _HELD * self._interval
        self._up = min(max(0.0, self._up + z - self._reference), held)
        self._down = min(max(0.0, self._down - z - self._reference), held)
        return (self.kind,) if max(self._up, self._down) > self._interval else ()

    def calm(self) -> bool:
        """Whether both sums are within half of the interval."""
        return max(self._up, self._down) <= _CALM * self._interval

    def bounds(self) -> tuple[float, float]:
        """The values of the next window that leave both sums within the interval."""
        reach = self._interval + self._reference
        return self._down - reach, reach - self._up

    def restart(self) -> None:
        """Start both sums at 0 again."""
        self._up = self._down = 0.0

    def snapshot(self) -> list[float]:
        """The upper and the lower sum."""
        return [self._up, self._down]


def _checked(state: Sequence[float] | None, numbers: int, kind: str) -> list[float]:
    if state is None:
        return [0.0] * numbers
    if len(state) != numbers or not all(math.isfinite(number) for number in state):
        raise ValueError(f"{kind} must hold {numbers} finite numbers, got {list(state)}")
    return [float(number) for number in state]
