"""Removal of stored rows by their age, for streams that are too slow to push them out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from monitor.base.records import Ints
from monitor.engine.labels.table import BoundedTable

HORIZONS_KEPT = 2
"""The age at which a row is removed, in horizons; up to a tenth of one more, as marks are set in steps.

Labels and repeated ids are recognised by the records' own times, and a record may arrive long after its time.
At two horizons, the results of a feed, or an agent, that is up to one horizon behind stay the same.
"""

Marks = list[tuple[float, dict[str, int]]]
"""Times, each with the number of rows that each ring had received by then.

In a snapshot, the last entry has the numbers of removed rows instead.
"""

_MARKS = 20  # set in the time for which a row is kept
_ROWS_AT_ONCE = 1 << 16  # of a ring in one step: some ten milliseconds


class Ageing:
    """The ages of the rows in a task's rings, and the removal of old rows.

    Rows have no time of arrival. Instead, marks record from time to time how many rows each ring received.

    Parameters
    ----------
    rings : mapping of str to BoundedTable
    horizon_seconds : float
    resume : Marks, optional
        A snapshot.

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
        # A ring may be newer than the snapshot: numbers of its predecessor do not apply to its rows.
        self._marks: Marks = []
        self._gone: dict[str, int] = {}
        if resume is not None:
            *marks, (_, gone) = resume
            self._gone = self._limit_to_added(gone)
            self._marks = [(time, self._limit_to_added(numbers)) for time, numbers in marks]

    def _limit_to_added(self, numbers: Mapping[str, int]) -> dict[str, int]:
        return {k: min(n, self._rings[k].span[1]) for k, n in numbers.items() if k in self._rings}

    def snapshot(self) -> Marks:
        """Return the marks, and last the numbers of removed rows."""
        return [*((time, dict(numbers)) for time, numbers in self._marks), (0.0, dict(self._gone))]

    def step(self, now: float) -> Iterator[tuple[str, Ints]]:
        """Yield rows that are too old, with the name of their ring, and then remove them.

        A step removes a limited number of rows of a ring; later steps remove the rest.

        Parameters
        ----------
        now : float
            The clock of the records' arrival, seconds.
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
                    return  # the next step removes the rest
            del self._marks[0]

    def _due(self, kind: str, stop: int) -> tuple[Ints, int]:
        """Return the next rows to remove, numbered below `stop`, and the number after the last of them."""
        ring = self._rings[kind]
        first = max(self._gone.get(kind, 0), ring.span[0])
        last = min(stop, first + _ROWS_AT_ONCE)
        return ring.numbered(first, last), max(first, last)
