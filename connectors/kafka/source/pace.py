"""How often something is looked at that may take long, as 100,000 partitions do."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

LOOKING = 20
"""A look that takes long is made again after so many times its processor time."""


class Looks:
    """Looks that are made every few seconds, less often where each takes much processor time.

    Belongs to one thread.

    Parameters
    ----------
    seconds : float
        Shortest time between two looks.

    Examples
    --------
    >>> looks = Looks(3600.0)
    >>> looks.due
    True
    >>> with looks.one():
    ...     looks.due
    True
    >>> looks.due
    False
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._next = 0.0

    @property
    def due(self) -> bool:
        """Whether it is time for the next look."""
        return time.monotonic() >= self._next

    @contextmanager
    def one(self) -> Iterator[None]:
        """Make a look in the block; the next one is due accordingly, also where this one fails."""
        began = time.thread_time()
        try:
            yield
        finally:
            self._next = time.monotonic() + max(self._seconds, LOOKING * (time.thread_time() - began))
