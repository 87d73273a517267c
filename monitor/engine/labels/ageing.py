"""Rows that nothing can need any more go by the clock, also where a stream is too slow to push them out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from monitor.base.records import Ints
from monitor.engine.labels.table import BoundedTable

HORIZONS_KEPT = 2
"""Horizons after its arrival at which a row goes, or up to a tenth of one later: marks are set in steps.

Labels and repeated ids are told by the records' own times, and a record may arrive long after its time.
With two horizons nothing changes for a feed, or an agent, that is up to one horizon behind.
"""

Marks = list[tuple[float, dict[str, int]]]
"""Times with how many rows of each ring had come by then; in a snapshot the last is how many are gone."""

_MARKS = 20  # while one row is kept
_ROWS_AT_ONCE = 1 << 16  # of a ring at one step: some ten milliseconds


class Ageing:
    """The rows of a task's rings by the time of their arrival.

    Rows carry no time of arrival: from time to time it is noted how many had come by then.

    Parameters
    ----------
    rings : mapping of str to BoundedTable
    horizon_seconds : float
    resume : Marks, optional
        What `snapshot` gave.

    Examples
    --------
    >>> import numpy as np
    >>> ring = BoundedTable({"label": np.int32}, capacity=2000)
    >>> ageing = Ageing({"labels": ring}, horizon_seconds=3600.0)
    >>> _ = ring.add(np.array([11], dtype=np.uint64), {"label": np.array([1])})
    >>> for now in (0.0, 7199.0, 7200.0):
    ...     for kind, rows in ageing.step(now):
    ...         print(kind, rows.tolist())
    ...     print(ring.find(np.array([11], dtype=np.uint64)).tolist())
    [0]
    [0]
    labels [0]
    [-1]
    """

    def __init__(
        self, rings: Mapping[str, BoundedTable], horizon_seconds: float, resume: Marks | None = None
    ) -> None:
        self._rings = rings
        self._keep = HORIZONS_KEPT * horizon_seconds
        # A ring may have been begun anew since: what was noted of the one before says nothing of its rows.
        self._marks: Marks = []
        self._gone: dict[str, int] = {}
        if resume is not None:
            *marks, (_, gone) = resume
            self._gone = self._known(gone)
            self._marks = [(time, self._known(numbers)) for time, numbers in marks]

    def _known(self, numbers: Mapping[str, int]) -> dict[str, int]:
        return {k: min(n, self._rings[k].span[1]) for k, n in numbers.items() if k in self._rings}

    def snapshot(self) -> Marks:
        """The marks, and last how many rows are gone."""
        return [*((time, dict(numbers)) for time, numbers in self._marks), (0.0, dict(self._gone))]

    def step(self, now: float) -> Iterator[tuple[str, Ints]]:
        """Wipe what has come of age, some of it at a time: each ring and rows of it are given, and then go.

        Parameters
        ----------
        now : float
            The clock by which records arrive, seconds.
        """
        if not self._marks or now - self._marks[-1][0] >= self._keep / _MARKS:
            self._marks.append((now, {kind: ring.span[1] for kind, ring in self._rings.items()}))
        while self._marks and now - self._marks[0][0] >= self._keep:
            for kind, stop in self._marks[0][1].items():
                rows, last = self._due(kind, stop)
                if len(rows):
                    yield kind, rows
                    self._rings[kind].retire(rows)
                self._gone[kind] = last
                if last < stop:
                    return  # the rest at the next step
            del self._marks[0]

    def _due(self, kind: str, stop: int) -> tuple[Ints, int]:
        """Rows of a ring numbered below `stop`, and the number after the last of them."""
        ring = self._rings[kind]
        first = max(self._gone.get(kind, 0), ring.span[0])
        last = min(stop, first + _ROWS_AT_ONCE)
        return ring.numbered(first, last), max(first, last)
