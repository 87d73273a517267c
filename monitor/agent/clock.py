"""The time by which a running agent's windows age: the wall clock's, without its jumps."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

_LEAP_SECONDS = 60.0
"""A wall clock that is ahead by more has jumped; time servers and leap seconds correct by less."""

_BELIEVED_AFTER_SECONDS = 60.0
"""How long a jump ahead must last: a wrong reading is gone by then, a machine that slept stays ahead."""

_SLOWED = 0.9
"""The pace at which the time waits for a wall clock that is behind it."""


class _State(NamedTuple):
    monotonic: float
    now: float
    jumped_at: float | None


class SteadyClock:
    """Seconds since the epoch that never fall, never stand still and do not follow a jump at once.

    The time passes with the monotonic clock and is held against the wall clock whenever it is read:

    * the wall clock is up to a minute ahead: its time is taken over;
    * it is ahead by more: only after it has been so for a minute, so that one wrong reading does not
      make every window old. A machine that slept, or got its time late, is a minute late for that;
    * it is behind, set back by hand or after a jump that was believed: the time goes on at nine tenths of
      its pace until the wall clock has caught up. Windows still age, and models still fall silent, a
      tenth later; a day takes ten days.

    Reading it from several threads is safe.

    Parameters
    ----------
    wall : callable
        Seconds since the epoch, which may jump.
    monotonic : callable
        Seconds since anything, never falling.

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
        # One object, replaced whole: another thread sees the one before or the one after.
        self._state = _State(monotonic(), wall(), None)

    def __call__(self) -> float:
        """The time."""
        self._state = self._moved(self._state, self._monotonic(), self._wall())
        return self._state.now

    @staticmethod
    def _moved(state: _State, monotonic: float, wall: float) -> _State:
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
