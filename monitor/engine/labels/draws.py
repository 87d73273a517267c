"""Which labelled rows were drawn one after another, and how: what `active_testing` needs beside labels.

Draws stand in a ring of their own, apart from the labels that brought them: few labels have any, and a row
counts as drawn whatever becomes of its label, also where one had come before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from monitor.base.records import Floats, Ints, Keys, LabelBatch, mix
from monitor.base.state_changes import RingState
from monitor.engine.labels.columns import Horizon
from monitor.engine.labels.matching import repeats
from monitor.engine.labels.table import BoundedTable

FEWEST_DRAWS = 30
"""So many labels a newer round must have before it takes the place of one that has as many."""

_COLUMNS: dict[str, DTypeLike] = {
    "id": np.uint64,
    "round": np.uint64,
    "number": np.int64,
    "pool": np.int64,
    "probability": np.float64,
    "time": np.float64,
}


@dataclass(frozen=True, slots=True)
class Round:
    """The draws of one round among some rows.

    Parameters
    ----------
    number : (n,) int64
        Of the draw of each row, from 1; −1 for those that are not of the round.
    probability : (n,) float64
        The chance with which that draw took it; NaN likewise.
    pool : int
        Rows before the first draw; 0 where there is no round.
    """

    number: Ints
    probability: Floats
    pool: int

    @classmethod
    def none(cls, rows: int) -> Round:
        """No row is drawn."""
        return cls(np.full(rows, -1, dtype=np.int64), np.full(rows, np.nan), 0)

    @property
    def drawn(self) -> int:
        """How many of the rows are of it."""
        return int((self.number > 0).sum())

    @property
    def missing(self) -> int:
        """Draws before the last of these whose rows are not among them."""
        return int(self.number.max(initial=0)) - self.drawn if self.drawn else 0


class Draws:
    """The draws that labels of a task brought.

    Parameters
    ----------
    limit : int
        Kept at most, oldest out first.
    horizon_days : float
        A label further than this from its row's answer is of another use of the id.
    resume : RingState, optional

    Attributes
    ----------
    ring : BoundedTable
        By id and round.

    Examples
    --------
    >>> from monitor.base.records import DRAW
    >>> ids, ones = np.array([7, 8], dtype=np.uint64), np.ones(2, dtype=np.int64)
    >>> how = np.array([(5, 1, 90, 0.1), (5, 2, 90, 0.2)], dtype=DRAW)
    >>> draws = Draws(1000, horizon_days=30.0)
    >>> draws.add(LabelBatch("t", ids, ones, -ones, (), ones.astype(float), ones / 2, np.arange(2), how))
    >>> found = draws.newest(np.array([8, 9], dtype=np.uint64), np.zeros(2))
    >>> found.number.tolist(), found.pool, found.missing
    ([2, -1], 90, 1)
    """

    def __init__(self, limit: int, horizon_days: float, resume: RingState | None = None) -> None:
        self._horizon = Horizon(horizon_days * 86_400.0)
        self.ring = BoundedTable(_COLUMNS, limit, resume)

    def add(self, labels: LabelBatch) -> None:
        """Take the draws of labels, in the order in which these came; of a row twice in a round the first."""
        rows = np.flatnonzero(labels.draw["number"])
        if not len(rows):
            return
        ids, drawn = labels.key[rows], labels.draw[rows]
        # Who counts another pool has drawn from another: numbers of the two would not fit together.
        rounds = mix(drawn["round"] ^ mix(drawn["pool"].astype(np.uint64)))
        keys = mix(ids ^ rounds)
        fresh = self.ring.find(keys) < 0
        fresh[repeats(keys)[0]] = False
        columns: dict[str, NDArray[Any]] = {"id": ids, "round": rounds, "time": labels.time[rows]}
        columns |= {name: drawn[name] for name in ("number", "pool", "probability")}
        self.ring.add(keys[fresh], {name: column[fresh] for name, column in columns.items()})

    def newest(self, ids: Keys, time: Floats) -> Round:
        """The round to estimate from: of those with at least 30 of these rows, the newest; else the newest.

        A round is as new as its first label.

        Parameters
        ----------
        ids : (n,) uint64
            Of labelled rows, each once.
        time : (n,) float64
            Of their answers, seconds since the epoch.
        """
        kept = self.ring.live()
        kept = kept[self.ring.keys(kept) != 0]
        if not len(ids) or not len(kept):
            return Round.none(len(ids))
        order = np.argsort(ids)
        at = order[np.minimum(np.searchsorted(ids, self.ring["id"][kept], sorter=order), len(ids) - 1)]
        there = (ids[at] == self.ring["id"][kept]) & self._horizon.is_near(self.ring["time"][kept] - time[at])
        kept, at = kept[there], at[there]
        if not len(kept):
            return Round.none(len(ids))
        rounds, first, many = np.unique(self.ring["round"][kept], return_index=True, return_counts=True)
        chosen = rounds[np.lexsort((first, many >= FEWEST_DRAWS))[-1]]
        own = np.flatnonzero(self.ring["round"][kept] == chosen)
        own = own[np.unique(self.ring["number"][kept[own]], return_index=True)[1]]  # the first of a number
        newest = Round.none(len(ids))
        newest.number[at[own]] = self.ring["number"][kept[own]]
        newest.probability[at[own]] = self.ring["probability"][kept[own]]
        return Round(newest.number, newest.probability, int(self.ring["pool"][kept[own[0]]]))

    def wipe(self, ids: Keys) -> None:
        """Let go of what is known of these ids for good."""
        kept = self.ring.live()
        self.ring.wipe(self.ring.keys(kept[np.isin(self.ring["id"][kept], ids)]))
