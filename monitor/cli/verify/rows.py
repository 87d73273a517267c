"""The rows of a window that is computed again, to check its report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monitor.base.columns import ColumnarRows
from monitor.base.records import NO_ID, Batch, Floats, Ints, Keys, id_keys
from monitor.config.root import Task
from monitor.engine.labels.columns import answer_keys
from monitor.engine.labels.matching import repeats
from monitor.engine.labels.table import LARGEST, BoundedTable

_SECONDS_A_DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Rows(ColumnarRows):
    """The columns of n answers of one model or group, with K scores and F features each.

    Parameters
    ----------
    scores : (n, K) float64
    predicted, position : (n,) int64
        The predicted class of each row, and its position in its partition.
    time : (n,) float64
        Seconds since the epoch; NaN if the record has no time.
    key : (n,) uint64
        The hash of each row's id.
    partition : (n,) object
        Names of partitions.
    features : (n, F) float64
    """

    scores: Floats
    predicted: Ints
    time: Floats
    key: Keys
    partition: NDArray[Any]
    position: Ints
    features: Floats

    def __len__(self) -> int:
        return len(self.predicted)

    @classmethod
    def from_batch(cls, batch: Batch, rows: Ints, partition: str) -> Rows:
        """Return the rows of a batch with these indices."""
        return cls(
            batch.scores[rows],
            batch.predicted[rows],
            batch.time[rows],
            batch.key[rows],
            np.full(len(rows), partition, dtype=object),
            batch.position[rows],
            batch.features[rows],
        )

    @classmethod
    def join(cls, parts: Sequence[Rows], width: int, features: int) -> Rows:
        """Concatenate `parts`.

        Without parts, return zero rows with `width` scores and `features` features.
        """
        none, empty = np.zeros(0, dtype=np.int64), np.zeros(0)
        nothing = cls(
            np.zeros((0, width)),
            none,
            empty,
            none.astype(np.uint64),
            empty.astype(object),
            none,
            np.zeros((0, features)),
        )
        return cls.concatenate([nothing, *parts])


def split(rows: Rows, partition: str, position: int, size: int) -> tuple[Rows, Rows]:
    """Divide rows into the rows of a full window and the rows of the next window.

    One message may have several rows, all with the same position. Therefore the last position of a window can
    include rows that came after the end of the window.

    Parameters
    ----------
    rows : Rows
        The rows of the window, up to and including all rows of its last message.
    partition : str
        The partition of the message in which the window became full.
    position : int
        The position of that message.
    size : int
        The number of rows of the window. Only rows of the last message are moved to the next window.
    """
    message = (rows.partition == partition) & (rows.position == position)
    fits = ~message
    fits[np.flatnonzero(message)[: max(size - int(fits.sum()), 0)]] = True
    return rows.take(fits), rows.take(~fits)


class FirstUses:
    """A memory of the ids of a task's answers, which finds the first answer with each id.

    Later answers with the same id do not count. The memory has the same limits of age and size as the task's
    join of labels. Beyond these limits, an id counts as new.
    """

    def __init__(self, task: Task) -> None:
        self._horizon = task.labels.horizon_days * _SECONDS_A_DAY
        # Each answer has one entry for its model and one for each of its groups.
        most = min(LARGEST, task.labels.max_answers * (1 + len(task.groups)))
        self._known = BoundedTable({"time": np.float64}, most)

    def first(self, series: tuple[str, str, str], rows: Rows) -> NDArray[np.bool_]:
        """Return a mask of the rows that use their id for the first time, and remember their ids."""
        code = int(id_keys(["\0".join(series)])[0] >> np.uint64(1))
        keys = answer_keys(rows.key, np.full(len(rows), code))
        named = np.flatnonzero(keys != NO_ID)
        known = self._known.find(keys[named])
        suspects = np.flatnonzero((known >= 0) | np.isin(np.arange(len(named)), repeats(keys[named])[0]))
        fresh = np.ones(len(rows), dtype=bool)
        # Reversed, so that the first time of a repeated key stays.
        begun = dict(zip(keys[named].tolist()[::-1], rows.time[named].tolist()[::-1], strict=True))
        latest: dict[int, float] = {}
        for at in suspects.tolist():
            row, key = int(named[at]), int(keys[named[at]])
            before = float(self._known["time"][known[at]]) if known[at] >= 0 else begun[key]
            before = latest.get(key, before)
            # Without a time the answer counts as a repetition, because a NaN is never above the horizon.
            fresh[row] = rows.time[row] - before > self._horizon
            if fresh[row]:
                latest[key] = float(rows.time[row])
        self._known.forget(known[(known >= 0) & fresh[named]])
        new = named[fresh[named]]
        last = np.sort(len(new) - 1 - np.unique(keys[new][::-1], return_index=True)[1])
        self._known.add(keys[new][last], {"time": rows.time[new][last]})
        return fresh
