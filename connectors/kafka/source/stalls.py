"""Whether a partition has stopped delivering while more and more waits in it. Time is an argument."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(slots=True)
class _Seen:
    position: int
    end: int
    growing_since: float | None = None


@dataclass(frozen=True, slots=True)
class Stall:
    """A partition that stopped delivering.

    Parameters
    ----------
    name : str
        ``topic-3``.
    position : int
        Where it stands.
    lag : int
        Records behind it.
    """

    name: str
    position: int
    lag: int


class StallWatch:
    """Looks at positions and at the ends of logs, and finds the partitions that are stuck.

    A partition is stuck once its position has stood still for `seconds` after its log was first seen to
    grow. A partition that is idle, or one with a constant distance to the end (an open transaction's
    records, the markers at the end of a log), is not.

    Examples
    --------
    >>> watch = StallWatch(60)
    >>> watch.look(0, {"clicks-0": (40, 40)}), watch.look(10, {"clicks-0": (40, 50)})
    ([], [])
    >>> watch.look(70, {"clicks-0": (40, 90)})
    [Stall(name='clicks-0', position=40, lag=50)]
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._seen: dict[str, _Seen] = {}

    def look(self, now: float, places: Mapping[str, tuple[int, int]]) -> list[Stall]:
        """The partitions that are stuck.

        Parameters
        ----------
        now : float
            Seconds of reading so far: time in which nothing was read on purpose proves nothing.
        places : mapping of str to (int, int)
            Position and end of the log of each partition that is read; the others are forgotten.
        """
        self._seen = {name: seen for name, seen in self._seen.items() if name in places}
        found = []
        for name, (position, end) in places.items():
            seen = self._seen.get(name)
            if seen is None or seen.position != position:
                self._seen[name] = _Seen(position, end)
                continue
            if end <= seen.end:
                seen.growing_since = None
            elif seen.growing_since is None:
                seen.growing_since = now
            elif now - seen.growing_since >= self._seconds:
                found.append(Stall(name, position, end - position))
        return found

    def stands(self, name: str, position: int) -> bool:
        """Whether a partition has not moved since the last look."""
        seen = self._seen.get(name)
        return seen is not None and seen.position == position

    def forget(self) -> None:
        """Begin anew: a new consumer gets its own time."""
        self._seen.clear()
