"""Matched labels by the window that they count in, to be counted a part at a time.

Often there are a few dozen of them, in a few windows: sums are then cheaper in plain Python than in arrays.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from monitor.engine.labels.columns import Matches
from monitor.stats.estimate.hajek import Excess, excess

_WINDOW_BITS = 40  # a trillion windows a series; series have the 23 bits above
_NEWEST_WINDOW = (1 << _WINDOW_BITS) - 1
_NONE = Excess()

Cell = tuple[int, int]
"""A series and one of its windows."""


class Cells:
    """Matches by series and window, in each by sequence.

    Parameters
    ----------
    matches : Matches
        Sorted by sequence.

    Examples
    --------
    >>> ones, no = np.ones(4, dtype=np.int64), np.zeros(4)
    >>> cells = Cells(Matches(np.array([2, 0, 2, 2]), 5 * ones, ones, np.array([1, 1, 0, 1]),
    ...                       np.arange(10, 14), np.ones(4), no, no > 0, ones.astype(np.uint64), ones))
    >>> list(cells), cells.newly_labelled((2, 5))
    ([(0, 5), (2, 5)], [10, 12, 13])
    >>> cells.take((2, 5), up_to=12)[:2], cells.take((2, 5))[:2]
    ((2, 1), (1, 1))
    """

    def __init__(self, matches: Matches) -> None:
        # One number a cell: sorting pairs takes several times as long.
        code = matches.series << _WINDOW_BITS | matches.window
        order = np.argsort(code, kind="stable")
        code = code[order]
        first = np.flatnonzero(np.diff(code, prepend=-1))
        edges = [*first.tolist(), len(code)]
        self._spans: dict[Cell, tuple[int, int]] = {
            (found >> _WINDOW_BITS, found & _NEWEST_WINDOW): span
            for found, span in zip(code[first].tolist(), pairwise(edges), strict=True)
        }
        self._sequence: list[int] = matches.sequence[order].tolist()
        self._labelled: list[int] = matches.labelled[order].tolist()
        self._correct: list[int] = matches.correct[order].tolist()
        weight = matches.weight[order]
        self._weight: list[float] | None = weight.tolist() if (weight != 1.0).any() else None

    def __iter__(self) -> Iterator[Cell]:
        return iter(list(self._spans))

    def newly_labelled(self, cell: Cell) -> list[int]:
        """The sequences of the rows of a cell, not yet taken, that get their first label."""
        rows = slice(*self._spans[cell])
        return [place for place, n in zip(self._sequence[rows], self._labelled[rows], strict=True) if n > 0]

    def take(self, cell: Cell, up_to: int | None = None) -> tuple[int, int, Excess]:
        """Labelled rows, correct ones and the excess of their weights, of what was not yet taken.

        Parameters
        ----------
        cell : Cell
        up_to : int, optional
            The last sequence that is taken; all are, where none is given.
        """
        start, stop = self._spans[cell]
        end = stop if up_to is None else bisect_right(self._sequence, up_to, start, stop)
        self._spans[cell] = end, stop
        rows = slice(start, end)
        return sum(self._labelled[rows]), sum(self._correct[rows]), self._excess(rows)

    def _excess(self, rows: slice) -> Excess:
        """Added one by one, as whole numbers: weighted rows are few."""
        total = _NONE
        if self._weight is not None:
            for w, n, k in zip(self._weight[rows], self._labelled[rows], self._correct[rows], strict=True):
                if w != 1.0:
                    total = total.plus(excess(w, n, k))
        return total
