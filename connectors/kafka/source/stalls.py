"""Detection of partitions that deliver no records while their lag grows.

The functions receive the time as an argument, and do not read a clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(slots=True)
class _LastCheck:
    """A partition's position and end at the last check, and the time since when its log has grown."""

    position: int
    end: int
    growing_since: float | None = None


@dataclass(frozen=True, slots=True)
class Stall:
    """A partition that has stopped delivering records.

    Parameters
    ----------
    name : str
        The name of the partition, such as ``topic-3``.
    position : int
        The position, which does not change.
    lag : int
        The number of records between the position and the end of the log.
    """

    name: str
    position: int
    lag: int


class StallWatch:
    """A detector of stuck partitions, which compares their positions with the ends of their logs.

    A partition is stuck if its position has not changed for `seconds` since its log was first seen to grow. A
    partition without new records is not stuck. A partition at a constant distance from its end is not stuck
    either, because this distance may consist of records of an open transaction, or of markers of
    transactions.

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
            The time spent reading so far, in seconds, without the time in which the source paused reading on
            purpose.
        places : mapping of str to (int, int)
            The position and the end of the log of each partition that is read. The watch forgets all other
            partitions.
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
        """Return whether a partition still has the position that it had in the last call of `find_stalls`."""
        seen = self._seen.get(name)
        return seen is not None and seen.position == position

    def forget(self) -> None:
        """Forget all positions, so that a new consumer has the full time to deliver records."""
        self._seen.clear()
