"""Removes stored rows by their age. In a slow stream, new rows do not overwrite them in time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from monitor.base.records import Ints
from monitor.engine.labels.table import BoundedTable

HORIZONS_KEPT = 2
"""The age at which a row is removed, in label horizons (up to a tenth of a horizon later).

Labels and repeated ids are matched by the records' own times, and a record may arrive long after its time.
With two horizons, a feed or an agent that is up to one horizon late gives the same results.
"""

Marks = list[tuple[float, dict[str, int]]]
"""Times in seconds, each with the number of rows that each ring had received until then.

In a snapshot, the last entry holds the number of removed rows of each ring instead.
"""

_MARKS = 20  # set in the time for which a row is kept
_ROWS_AT_ONCE = 1 << 16  # of a ring in one step: some ten milliseconds


class Ageing:
    """Finds and removes the old rows of a task's ring tables.

    The tables do not store the time of arrival of a row. Instead, this object records from time to time how
    many rows each table has received.

    Parameters
    ----------
    rings : mapping of str to BoundedTable
        The ring tables by name.
    horizon_seconds : float
        The largest time between an answer and its label.
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
        """Return times, each with the numbers of rows that the tables had received until then.

        The last entry contains the numbers of removed rows instead.
        """
        return [*((time, dict(numbers)) for time, numbers in self._marks), (0.0, dict(self._gone))]

    def step(self, now: float) -> Iterator[tuple[str, Ints]]:
        """Remove rows that are too old, and yield the name of each table with the indices of its rows.

        The rows are removed after the caller has received them. One step removes only a limited number of
        rows. Later steps remove the others.

        Parameters
        ----------
        now : float
            The present time of arrival, in seconds.
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
