"""A histogram of the durations of refits."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate

BUCKETS_SECONDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""The inclusive upper ends of the buckets.

A refit on 1,020 rows of seven models takes about 2 s, on 20,000 rows about a minute.
"""


@dataclass(frozen=True, slots=True)
class RefitDurations:
    """A histogram of the durations of refits.

    Parameters
    ----------
    counts : tuple of int
        The number of durations in each bucket of `BUCKETS_SECONDS`, not cumulative. The last number counts
        the longer durations.
    seconds : float
        The sum of the durations, in seconds.

    Examples
    --------
    >>> durations = RefitDurations().plus(0.3).plus(1000.0)
    >>> durations.cumulative()[2:4], durations.cumulative()[-1], durations.seconds
    ((1, 1), 2, 1000.3)
    """

    counts: tuple[int, ...] = (0,) * (len(BUCKETS_SECONDS) + 1)
    seconds: float = 0.0

    def plus(self, seconds: float) -> RefitDurations:
        """Return the histogram with one more duration, in seconds."""
        at = bisect_left(BUCKETS_SECONDS, seconds)
        counts = (*self.counts[:at], self.counts[at] + 1, *self.counts[at + 1 :])
        return RefitDurations(counts, self.seconds + seconds)

    def cumulative(self) -> tuple[int, ...]:
        """Return the number of durations up to the end of each bucket; the last number counts all of them."""
        return tuple(accumulate(self.counts))
