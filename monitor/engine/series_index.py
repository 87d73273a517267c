"""Which series of a task a record's rows belong to: that of its model, and those of its groups."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from monitor.base.places import by_first_row
from monitor.base.records import Batch, Ints

_DROPPED_NAMES_KEPT = 10_000  # a flood of names must not fill the memory: beyond, they are counted again


class SeriesIndex:
    """The series of a task by name, up to a cap; what is beyond it is counted.

    Parameters
    ----------
    most : int
        Models, and as many groups.
    names : iterable of (str, str)
        Models and groups that found no place.
    dropped : int
        How many; beyond some thousands their names are not kept.
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
        """The names that found no place, sorted."""
        return sorted(self._names)

    def add(self, model: str, group: str) -> int:
        """Number a series, which is to be made next."""
        self._index[model, group] = len(self._index)
        self._groups += bool(group)
        self._new.append((model, group))
        return self._index[model, group]

    def take_new(self) -> list[tuple[str, str]]:
        """Model and group of the series that were numbered since this was last asked, in that order."""
        new, self._new = self._new, []
        return new

    def series_of(self, model: str, group: str) -> int:
        """The number of a series, given where it is new; -1 beyond the cap."""
        known = self._index.get((model, group))
        if known is not None:
            return known
        # Models and groups have a cap each: a flood of group values must not take the models' places.
        alike = self._groups if group else len(self._index) - self._groups
        if alike >= self._most:
            self._drop(model, group)
            return -1
        return self.add(model, group)

    def models(self, batch: Batch) -> Ints:
        """The series of each row's model, -1 beyond the cap."""
        codes = np.full(len(batch.models), -1, dtype=np.int64)
        for code in by_first_row(batch.model):
            codes[code] = self.series_of(batch.models[code], "")
        return codes[batch.model]

    def groups(self, batch: Batch, name: str, watched: NDArray[np.bool_]) -> Ints:
        """The series of each row's group by this name, -1 where it has none or beyond the cap."""
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
