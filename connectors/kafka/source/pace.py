"""A schedule that limits the processor time of regular checks.

With 100,000 partitions, a check may take long.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

PAUSE_FACTOR = 20
"""The shortest pause after a check, as a multiple of the processor time of the check."""


class CheckSchedule:
    """A schedule of regular checks, with longer pauses if a check takes much processor time.

    A schedule is for use by one thread.

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
        """Measure the processor time of a check in the `with` block, and then schedule the next check."""
        began = time.thread_time()
        try:
            yield
        finally:
            self._next = time.monotonic() + max(self._seconds, PAUSE_FACTOR * (time.thread_time() - began))
