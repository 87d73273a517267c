"""Limits the processor time of regular checks, which may be long with 100,000 partitions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

PAUSE_FACTOR = 20
"""The pause after a check is at least this many times its processor time."""


class CheckSchedule:
    """A schedule of regular checks, which are less frequent if each takes much processor time.

    It is for use by one thread.

    Parameters
    ----------
    seconds : float
        The shortest time between two checks.

    Examples
    --------
    >>> schedule = CheckSchedule(3600.0)
    >>> schedule.is_due
    True
    >>> with schedule.run():
    ...     schedule.is_due
    True
    >>> schedule.is_due
    False
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._next = 0.0

    @property
    def is_due(self) -> bool:
        """True if it is time for the next check."""
        return time.monotonic() >= self._next

    @contextmanager
    def run(self) -> Iterator[None]:
        """Measure a check in the block, and schedule the next one, even if this one fails."""
        began = time.thread_time()
        try:
            yield
        finally:
            self._next = time.monotonic() + max(self._seconds, PAUSE_FACTOR * (time.thread_time() - began))
