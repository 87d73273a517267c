"""Numbers the series (models, and groups of their answers) of a task, and finds the series of each row."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from monitor.base.places import by_first_row
from monitor.base.records import Batch, Ints

_DROPPED_NAMES_KEPT = 10_000  # limits memory in a flood of names; a name beyond it is counted each time


class SeriesIndex:
    """The numbers that identify the series of a task, by model and group, up to a limit.

    A series beyond the limit gets no number. It is only counted.

    Parameters
    ----------
    most : int
        The largest number of models, and the largest number of groups.
    names : iterable of (str, str)
        The stored models and groups beyond the limit.
    dropped : int
        The number of series beyond the limit. Only the first 10,000 of their names are stored.
    """

    def __init__(self, most: int, names: Iterable[tuple[str, str]] = (), dropped: int = 0) -> None:
        self._most = most
        self._index: dict[tuple[str, str], int] = {}
        self._new: list[tuple[str, str]] = []
        self._groups = 0
        self._names = set(names)
        self.dropped = dropped

    @property
    def dropped_names(self) -> list[tuple[str, str]]:
        """The stored models and groups beyond the limit, sorted."""
        return sorted(self._names)

    def add(self, model: str, group: str) -> int:
        """Assign the next number to a series and return it. The caller must create the series."""
        self._index[model, group] = len(self._index)
        self._groups += bool(group)
        self._new.append((model, group))
        return self._index[model, group]

    def take_new(self) -> list[tuple[str, str]]:
        """Return the model and group of each series added since the last call, in the order of numbers."""
        new, self._new = self._new, []
        return new

    def series_of(self, model: str, group: str) -> int:
        """Return the number of a series, or -1 if it is beyond the limit.

        A new series gets the next number.
        """
        known = self._index.get((model, group))
        if known is not None:
            return known
        # Models and groups have a limit each: a flood of group values must not use up the models' places.
        alike = self._groups if group else len(self._index) - self._groups
        if alike >= self._most:
            self._drop(model, group)
            return -1
        return self.add(model, group)

    def models(self, batch: Batch) -> Ints:
        """Return the series number of each row's model, (n,); -1 if the model is beyond the limit."""
        codes = np.full(len(batch.models), -1, dtype=np.int64)
        for code in by_first_row(batch.model):
            codes[code] = self.series_of(batch.models[code], "")
        return codes[batch.model]

    def groups(self, batch: Batch, name: str, watched: NDArray[np.bool_]) -> Ints:
        """Return the series number of each row's group, (n,), for one configured group name.

        The number is -1 in three cases: the row has no such group, its model is not monitored (`watched` is
        False), or the group is beyond the limit.
        """
        values, column = batch.groups.get(name, ((), np.full(len(batch), -1, dtype=np.int64)))
        numbers = np.full(len(batch), -1, dtype=np.int64)
        rows = np.flatnonzero(watched & (column >= 0))
        pairs = batch.model[rows] * max(len(values), 1) + column[rows]
        series = {
            pair: self.series_of(batch.models[pair // len(values)], f"{name}={values[pair % len(values)]}")
            for pair in by_first_row(pairs)
        }
        kinds, place = np.unique(pairs, return_inverse=True)
        numbers[rows] = np.array([series[pair] for pair in kinds.tolist()], dtype=np.int64)[place.ravel()]
        return numbers

    def _drop(self, model: str, group: str) -> None:
        if (model, group) not in self._names:
            self.dropped += 1
            if len(self._names) < _DROPPED_NAMES_KEPT:
                self._names.add((model, group))
