"""The clock that decides when an agent's windows close by age: the wall clock without its jumps."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

_LEAP_SECONDS = 60.0
"""The largest lead of the wall clock that is not a jump; time servers and leap seconds correct by less."""

_BELIEVED_AFTER_SECONDS = 60.0
"""The time that a jump ahead must last to be adopted.

A jump from a wrong reading is shorter; after a sleep of the machine, the wall clock stays ahead.
"""

_SLOWED = 0.9
"""The rate at which the time advances while the wall clock is behind, relative to the normal rate."""


class _State(NamedTuple):
    """The last reading: monotonic time, returned time, and the monotonic time at which a jump was noticed."""

    monotonic: float
    now: float
    jumped_at: float | None


class SteadyClock:
    """A clock of seconds since the epoch that never goes back and does not follow a jump immediately.

    The clock advances with the monotonic clock. At each reading, it is compared with the wall clock:

    * If the wall clock is at most a minute ahead, this clock adopts the wall clock's time.
    * If the wall clock stays further ahead for a minute, this clock adopts the wall clock's time after this
      minute. So one wrong reading does not make all windows old. After a sleep of the machine, this clock is
      wrong for a minute.
    * If the wall clock was set back and is behind, this clock advances at nine tenths of the normal rate
      until both agree. Until then, windows age a tenth more slowly. After a difference of a day, this takes
      ten days.

    Several threads may read the clock.

    Parameters
    ----------
    wall : callable
        Returns seconds since the epoch, which may jump.
    monotonic : callable
        Returns seconds from any origin, which never decrease.

    Examples
    --------
    >>> from monitor.testing import HandClock
    >>> wall, monotonic = HandClock(1000.0), HandClock(0.0)
    >>> clock = SteadyClock(wall, monotonic)
    >>> wall.advance(86_400), monotonic.advance(10), clock()  # a jump, 10 s after the start
    (None, None, 1010.0)
    >>> wall.advance(-86_390), monotonic.advance(10), clock()  # which was a wrong reading
    (None, None, 1019.0)
    """

    def __init__(
        self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._wall = wall
        self._monotonic = monotonic
        # One object that is replaced atomically, so that other threads see a consistent state.
        self._state = _State(monotonic(), wall(), None)

    def __call__(self) -> float:
        """Return the time, in seconds since the epoch."""
        self._state = self._moved(self._state, self._monotonic(), self._wall())
        return self._state.now

    @staticmethod
    def _moved(state: _State, monotonic: float, wall: float) -> _State:
        """Return the state after readings of the monotonic clock and the wall clock."""
        elapsed = max(monotonic - state.monotonic, 0.0)
        ahead = wall - (state.now + elapsed)
        if ahead < 0:
            return _State(monotonic, max(wall, state.now + _SLOWED * elapsed), None)
        if ahead <= _LEAP_SECONDS:
            return _State(monotonic, wall, None)
        jumped_at = monotonic if state.jumped_at is None else state.jumped_at
        if monotonic - jumped_at >= _BELIEVED_AFTER_SECONDS:
            return _State(monotonic, wall, None)
        return _State(monotonic, state.now + elapsed, jumped_at)
