"""Draws: the order and the probabilities in which rows were picked for labelling.

The estimator `active_testing` needs draws in addition to labels. Draws are stored in a separate table,
because few labels have a draw. Two kinds of rows also count as drawn: rows that already had a label, and rows
whose label is dropped.
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
"""The number of labels that a newer round of draws needs before it replaces an older one."""

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
    """The draws of one round, which picked rows for labelling one by one, without replacement.

    Parameters
    ----------
    number : (n,) int64
        The number of the draw that picked each row, from 1; −1 for rows that are not in the round.
    probability : (n,) float64
        The probability with which the draw picked the row; NaN for rows that are not in the round.
    pool : int
        The number of rows that could be picked before the first draw; 0 if there is no round.
    """

    number: Ints
    probability: Floats
    pool: int

    @classmethod
    def none(cls, rows: int) -> Round:
        """Return a round without draws, for this number of rows."""
        return cls(np.full(rows, -1, dtype=np.int64), np.full(rows, np.nan), 0)

    @property
    def draws(self) -> int:
        """The number of rows that the round picked."""
        return int((self.number > 0).sum())

    @property
    def missing(self) -> int:
        """The number of missing rows: draws up to the last known one whose rows are not in this object."""
        return int(self.number.max(initial=0)) - self.draws if self.draws else 0


class Draws:
    """The stored draws of a task's labels: which rows were picked, in which order and with which probability.

    Parameters
    ----------
    limit : int
        The largest number of draws; above it, the oldest are dropped.
    horizon_days : float
        The largest time between an answer and its label. A draw at a larger distance belongs to another
        request with the same id.
    resume : RingState, optional
        A snapshot.

    Attributes
    ----------
    ring : BoundedTable
        The ring table of draws; its keys are hashes of id and round.

    Examples
    --------
    >>> from monitor.base.records import DRAW
    >>> ids, ones = np.array([7, 8], dtype=np.uint64), np.ones(2, dtype=np.int64)
    >>> how = np.array([(5, 1, 90, 0.1), (5, 2, 90, 0.2)], dtype=DRAW)
    >>> draws = Draws(1000, horizon_days=30.0)
    >>> draws.add(LabelBatch("t", ids, ones, -ones, (), ones.astype(float), ones / 2, np.arange(2), how))
    >>> newest = draws.newest(np.array([8, 9], dtype=np.uint64), np.zeros(2))
    >>> newest.number.tolist(), newest.pool, newest.missing
    ([2, -1], 90, 1)
    """

    def __init__(self, limit: int, horizon_days: float, resume: RingState | None = None) -> None:
        self._horizon = Horizon(horizon_days * 86_400.0)
        self.ring = BoundedTable(_COLUMNS, limit, resume)

    def add(self, labels: LabelBatch) -> None:
        """Add the draws of labels, in the labels' order. Only a row's first draw in a round counts."""
        rows = np.flatnonzero(labels.draw["number"])
        if not len(rows):
            return
        ids, draw = labels.key[rows], labels.draw[rows]
        # A draw with another pool size is from another pool: the numbers of both do not belong together.
        rounds = mix(draw["round"] ^ mix(draw["pool"].astype(np.uint64)))
        keys = mix(ids ^ rounds)
        fresh = self.ring.find(keys) < 0
        fresh[repeats(keys)[0]] = False
        columns: dict[str, NDArray[Any]] = {"id": ids, "round": rounds, "time": labels.time[rows]}
        columns |= {name: draw[name] for name in ("number", "pool", "probability")}
        self.ring.add(keys[fresh], {name: column[fresh] for name, column in columns.items()})

    def newest(self, ids: Keys, time: Floats) -> Round:
        """Return the newest round that picked at least 30 of these rows.

        If there is none, return the newest round that picked any of them, or a round without draws. The
        newest round is the one whose first label came last.

        Parameters
        ----------
        ids : (n,) uint64
            The ids of labelled rows, without repeats.
        time : (n,) float64
            The times of the rows' answers, seconds since the epoch.
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
        own = own[np.unique(self.ring["number"][kept[own]], return_index=True)[1]]  # first of a number
        newest = Round.none(len(ids))
        newest.number[at[own]] = self.ring["number"][kept[own]]
        newest.probability[at[own]] = self.ring["probability"][kept[own]]
        return Round(newest.number, newest.probability, int(self.ring["pool"][kept[own[0]]]))

    def wipe(self, ids: Keys) -> None:
        """Delete the draws of these ids, here and in the store."""
        kept = self.ring.live()
        self.ring.wipe(self.ring.keys(kept[np.isin(self.ring["id"][kept], ids)]))
