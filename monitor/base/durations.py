"""How long refits have taken, counted into buckets."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate

BUCKETS_SECONDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Upper ends, each its own bucket's: 1,020 rows of seven models take about 2 s, 20,000 about a minute."""


@dataclass(frozen=True, slots=True)
class RefitDurations:
    """A histogram of durations.

    Parameters
    ----------
    counts : tuple of int
        By bucket of `BUCKETS_SECONDS`, and last those beyond; not cumulative.
    seconds : float
        Their sum.

    Examples
    --------
    >>> found = RefitDurations().plus(0.3).plus(1000.0)
    >>> found.cumulative()[2:4], found.cumulative()[-1], found.seconds
    ((1, 1), 2, 1000.3)
    """

    counts: tuple[int, ...] = (0,) * (len(BUCKETS_SECONDS) + 1)
    seconds: float = 0.0

    def plus(self, seconds: float) -> RefitDurations:
        """With one more."""
        at = bisect_left(BUCKETS_SECONDS, seconds)
        counts = (*self.counts[:at], self.counts[at] + 1, *self.counts[at + 1 :])
        return RefitDurations(counts, self.seconds + seconds)

    def cumulative(self) -> tuple[int, ...]:
        """How many took at most as long as each bucket's end, and last how many there are."""
        return tuple(accumulate(self.counts))
