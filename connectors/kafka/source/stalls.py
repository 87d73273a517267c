"""Finds partitions that have stopped delivering while more and more records wait in them.

The time is an argument, so that nothing here depends on a clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(slots=True)
class _LastCheck:
    position: int
    end: int
    growing_since: float | None = None


@dataclass(frozen=True, slots=True)
class Stall:
    """A partition that stopped delivering.

    Parameters
    ----------
    name : str
        The name of the partition, such as ``topic-3``.
    position : int
        The position that does not move.
    lag : int
        The number of records after it.
    """

    name: str
    position: int
    lag: int


class StallWatch:
    """A detector of stuck partitions, from their positions and the ends of their logs.

    A partition is stuck once its position has not moved for `seconds` after its log was first seen to grow. A
    partition without new records is not stuck. Nor is one with a constant distance to its end, which can be
    the records of an open transaction, or the markers at the end of a log.

    Parameters
    ----------
    seconds : float

    Examples
    --------
    >>> watch = StallWatch(60)
    >>> watch.find_stalls(0, {"clicks-0": (40, 40)}), watch.find_stalls(10, {"clicks-0": (40, 50)})
    ([], [])
    >>> watch.find_stalls(70, {"clicks-0": (40, 90)})
    [Stall(name='clicks-0', position=40, lag=50)]
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._seen: dict[str, _LastCheck] = {}

    def find_stalls(self, now: float, places: Mapping[str, tuple[int, int]]) -> list[Stall]:
        """Compare positions with those of the last call, and return the partitions that are stuck.

        Parameters
        ----------
        now : float
            Seconds of reading so far: time in which nothing was read on purpose proves nothing.
        places : mapping of str to (int, int)
            The position and the end of the log of each partition that is read; the others are forgotten.
        """
        self._seen = {name: seen for name, seen in self._seen.items() if name in places}
        stalls = []
        for name, (position, end) in places.items():
            seen = self._seen.get(name)
            if seen is None or seen.position != position:
                self._seen[name] = _LastCheck(position, end)
                continue
            if end <= seen.end:
                seen.growing_since = None
            elif seen.growing_since is None:
                seen.growing_since = now
            elif now - seen.growing_since >= self._seconds:
                stalls.append(Stall(name, position, end - position))
        return stalls

    def has_not_moved(self, name: str, position: int) -> bool:
        """Return whether a partition has not moved since the last call of `find_stalls`."""
        seen = self._seen.get(name)
        return seen is not None and seen.position == position

    def forget(self) -> None:
        """Forget all positions, because a new consumer gets its own time."""
        self._seen.clear()
