"""Counts of labelled and correct rows in each window, and the changes that new labels make to the counts."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise

import msgspec
import numpy as np
from numpy.typing import NDArray

from monitor.base.records import Floats
from monitor.base.results import Reason, Result, TooFew
from monitor.engine.labels.columns import Matches
from monitor.stats.estimate.hajek import Excess, WeightedCounts, excess, hajek
from monitor.stats.regression.metrics import (
    NO_SUMS,
    TERMS,
    added_terms,
    error_terms,
    padded,
    realised_metric,
)

FEWEST_IN_COHORT = 200
"""The labelled rows that `realised_cohort` needs: a 95 % interval of ±4 points at an accuracy of 0.9."""

_NONE = Excess()
_FIRST_ROOM = 64  # windows


class TallyState(msgspec.Struct, frozen=True):
    """The stored counts of the windows from `start` on.

    Sums of weights may exceed 64 bits, so they are stored as text.
    """

    start: int
    counts: NDArray[np.int32]
    end: Floats
    newest_end: float
    closed: int
    excess: list[tuple[int, str, str, str, str]]
    labelled: int
    correct: int
    errors: list[tuple[int, list[float]]] = []  # by window, the sums of the labelled rows' errors, row by row
    terms: int | None = None  # the length of a row of these sums; None for `TERMS`


class Tally:
    """The counts of labelled and correct rows of one series, by window.

    Parameters
    ----------
    keep : int
        The number of newest windows whose counts are kept, at least 1. Labels of older windows count only in
        the totals `labelled` and `correct`.
    horizon_seconds : float
        The largest time between the end of a window and the end of the newest closed window, for
        `realised_horizon`.
    resume : TallyState, optional
        A snapshot.

    Attributes
    ----------
    labelled, correct : int
        The numbers of labelled and correct rows in all windows since the start.
    closed : int
        The number of closed windows.

    Raises
    ------
    ValueError
        `keep` is below 1.

    Notes
    -----
    The stored ends of windows never decrease. If a window ends before an earlier window, the earlier window's
    end is stored.

    Examples
    --------
    >>> tally = Tally(keep=100)
    >>> tally.add(window=3, labelled=20, correct=19)
    >>> tally.realised(3, level=0.95).value
    0.95
    >>> print(tally.realised(4, level=0.95).reason)
    no labels yet
    """

    def __init__(
        self, keep: int, horizon_seconds: float = math.inf, resume: TallyState | None = None
    ) -> None:
        if keep < 1:
            raise ValueError(f"keep must be at least 1 window, got {keep}")
        self._keep = keep
        self._horizon = horizon_seconds
        self.labelled = self.correct = self.closed = 0
        self._base = self._start = self._stop = 0  # window of the first column; kept windows: start to stop
        self._counts: NDArray[np.int32] = np.zeros((2, 0), dtype=np.int32)  # labelled, correct
        self._end = np.zeros(0)
        self._newest_end = -math.inf
        self._excess: dict[int, Excess] = {}  # by window, for windows with a weighted row
        self._errors: dict[int, Floats] = {}  # by window, sums of the errors of predicted numbers
        self._inside = 0  # the first window whose end lies within the horizon
        self._within = WeightedCounts()  # the counts of the closed windows from there on
        if resume is not None:
            self._restore(resume)

    def add(
        self, window: int, labelled: int, correct: int, excess: Excess = _NONE, errors: Floats | None = None
    ) -> None:
        """Add to the counts of a window.

        Parameters
        ----------
        window : int
        labelled : int
            The number of newly labelled rows.
        correct : int
            The change of the number of correct rows. It is negative if a corrected label makes rows wrong.
        excess : Excess
            The part of the sums of weights that comes from weights above 1.
        errors : (n, 2, T) float64, optional
            The changes of the sums of errors: see `error_terms`.
        """
        self.labelled += labelled
        self.correct += correct
        self._reach(window)
        if window < self._start:
            return
        self._counts[0, window - self._base] += labelled
        self._counts[1, window - self._base] += correct
        if any(excess):
            self._excess[window] = self._excess.get(window, _NONE).plus(excess)
        if errors is not None:
            self._errors[window] = added_terms(self._errors.get(window, NO_SUMS), errors)
        if self._inside <= window < self.closed:
            self._within = self._within.plus(WeightedCounts(labelled, correct, excess))

    def close(self, window: int, end_time: float) -> None:
        """Store the end of a closed window, in seconds. Windows close in the order of their numbers."""
        self._reach(window)
        self._newest_end = max(self._newest_end, end_time)
        first = max(self.closed, self._start)
        if window >= first:
            self._end[first - self._base : window + 1 - self._base] = self._newest_end
        self.closed = window + 1
        self._within = self._within.plus(self._sum(first, self.closed))
        oldest = self._newest_end - self._horizon
        while self._inside < self.closed and self._end[self._inside - self._base] < oldest:
            self._drop_from_horizon(self._inside + 1)

    def counts(self, window: int) -> tuple[int, int]:
        """Return the numbers of labelled and correct rows of a window."""
        return self.sums(window)[:2]

    def sums(self, window: int) -> WeightedCounts:
        """Return the numbers of labelled and correct rows of a window, with the sums of their weights."""
        if not self._start <= window < self._stop:
            return WeightedCounts()
        labelled, correct = self._counts[:, window - self._base].tolist()
        return WeightedCounts(labelled, correct, self._excess.get(window, _NONE))

    def windows(self) -> dict[int, WeightedCounts]:
        """Return the counts of each kept window that has labelled rows, by the window's number."""
        labelled = np.flatnonzero(self._column(0)) + self._start
        return {window: self.sums(window) for window in labelled.tolist()}

    def realised(self, window: int, level: float) -> Result:
        """Return the accuracy of a window's labelled rows. Without weights, its interval is Wilson's."""
        return hajek(self.sums(window), level)

    def realised_error(self, metric: str, window: int, level: float, windows: int = 1) -> Result:
        """Return a metric of the errors of the labelled rows: see `realised_metric`.

        The rows are those of `window` and of the `windows` - 1 windows before it.
        """
        sums = NO_SUMS
        for each in range(window - windows + 1, window + 1):
            if each in self._errors:
                sums = added_terms(sums, self._errors[each][:, None]) if windows > 1 else self._errors[each]
        return realised_metric(metric, sums, level)

    def realised_cohort(self, level: float, fewest: int = FEWEST_IN_COHORT) -> Result:
        """Return the accuracy of the labelled rows of the newest closed windows, as few as are sufficient.

        The windows must have at least `fewest` labelled rows together. The result is unknown if all kept
        windows together have fewer.
        """
        first = self._cohort(fewest)
        cohort = self._sum(first, self._last(self.closed))
        if 0 < cohort.n < fewest:
            return TooFew(Reason.TOO_FEW_LABELS, cohort.n)
        return hajek(cohort, level)

    def realised_horizon(self, level: float) -> Result:
        """Return the accuracy of the labelled rows of all closed windows that ended within the horizon."""
        return hajek(self._within, level)

    def newest(self, before: int) -> int | None:
        """Return the number of the newest window with labelled rows before window `before`, or None."""
        labelled = np.flatnonzero(self._column(0, before))
        return self._start + int(labelled[-1]) if len(labelled) else None

    def snapshot(self) -> TallyState:
        """Return the counts of all kept windows as a state to store."""
        terms = max((sums.shape[1] for sums in self._errors.values()), default=TERMS)
        kept = slice(self._start - self._base, self._stop - self._base)
        return TallyState(
            start=self._start,
            counts=self._counts[:, kept].copy(),
            end=self._end[kept].copy(),
            newest_end=self._newest_end,
            closed=self.closed,
            excess=[
                (window, str(weight), str(successes), str(squares), str(squared))
                for window, (weight, successes, squares, squared) in self._excess.items()
            ],
            labelled=self.labelled,
            correct=self.correct,
            errors=[(window, padded(sums, terms).ravel().tolist()) for window, sums in self._errors.items()],
            terms=None if terms == TERMS else terms,
        )

    def _restore(self, state: TallyState) -> None:
        self.labelled, self.correct, self.closed = state.labelled, state.correct, state.closed
        self._newest_end = state.newest_end
        skipped = max(0, len(state.end) - self._keep)
        self._counts, self._end = state.counts[:, skipped:].copy(), state.end[skipped:].copy()
        self._base = self._start = state.start + skipped
        self._stop = self._start + len(self._end)
        self._excess = {
            window: Excess(*map(int, sums)) for window, *sums in state.excess if window >= self._start
        }
        self._errors = {
            window: np.reshape(sums, (-1, state.terms or TERMS))
            for window, sums in state.errors
            if window >= self._start
        }
        ends = self._end[: self._last(self.closed) - self._start]
        oldest = self._newest_end - self._horizon
        self._inside = self._start + int(np.searchsorted(ends, oldest)) if len(ends) else self._start
        self._within = self._sum(self._inside, self._last(self.closed))

    def _reach(self, window: int) -> None:
        """Extend the kept windows to this one, and drop the oldest."""
        if window < self._stop:
            return
        start = max(self._start, window + 1 - self._keep)
        self._drop_from_horizon(start)
        for old in range(self._start, min(start, self._stop)):
            self._excess.pop(old, None)
            self._errors.pop(old, None)
        if window + 1 - self._base > len(self._end):
            self._make_room(start, 2 * (window + 1 - start) + _FIRST_ROOM)
        self._start, self._stop = start, window + 1

    def _make_room(self, start: int, room: int) -> None:
        """Move the counts to new columns that begin with the window `start`."""
        kept = slice(start - self._base, max(start, self._stop) - self._base)
        counts, end = self._counts[:, kept], self._end[kept]
        self._counts, self._end = np.zeros((2, room), dtype=np.int32), np.full(room, -math.inf)
        self._counts[:, : len(end)], self._end[: len(end)] = counts, end
        self._base = start

    def _drop_from_horizon(self, inside: int) -> None:
        """Subtract windows before `inside` from the counts within the horizon."""
        gone = self._sum(self._inside, min(inside, self._last(self.closed)))
        self._within = self._within.plus(gone, -1)
        self._inside = max(self._inside, inside)

    def _cohort(self, fewest: int) -> int:
        """Return the newest window from which on at least `fewest` rows are labelled, or else the oldest."""
        size = _FIRST_ROOM
        stop = self._last(self.closed)
        while True:
            labelled = self._column(0, stop)[-size:]
            enough = np.flatnonzero(np.cumsum(labelled[::-1]) >= fewest)
            if len(enough):
                return stop - 1 - int(enough[0])
            if size >= stop - self._start:
                return self._start
            size *= 4

    def _last(self, stop: int) -> int:
        """Return the end of the kept windows before `stop`."""
        return min(max(stop, self._start), self._stop)

    def _column(self, which: int, stop: int | None = None) -> NDArray[np.int32]:
        last = self._stop if stop is None else self._last(stop)
        return self._counts[which, self._start - self._base : last - self._base]

    def _sum(self, first: int, stop: int) -> WeightedCounts:
        """Return the sums over these windows, which must be kept."""
        if stop <= first:
            return WeightedCounts()
        labelled, correct = self._counts[:, first - self._base : stop - self._base].sum(axis=1).tolist()
        total = _NONE
        if self._excess:
            for window in range(first, stop):
                total = total.plus(self._excess.get(window, _NONE))
        return WeightedCounts(labelled, correct, total)


_WINDOW_BITS = 40  # a trillion windows a series; the series has the 23 bits above
_NEWEST_WINDOW = (1 << _WINDOW_BITS) - 1
Cell = tuple[int, int]
"""The number of a series, and the number of one of its windows."""


class Cells:
    """New labels that were matched to answers, grouped by cell (a series and a window).

    `take` removes labels of a cell in the order of their sequence numbers. Iteration yields the cells. The
    sums use plain Python, which is faster than arrays for the usual few dozen labels.

    Parameters
    ----------
    matches : Matches
        Sorted by sequence number.

    Examples
    --------
    >>> ones, no = np.ones(4, dtype=np.int64), np.zeros(4)
    >>> cells = Cells(Matches(np.array([2, 0, 2, 2]), 5 * ones, ones, np.array([1, 1, 0, 1]),
    ...                       np.arange(10, 14), np.ones(4), no, no > 0, ones.astype(np.uint64), ones,
    ...                       no > 0, ones, ones))
    >>> list(cells), cells.newly_labelled((2, 5))
    ([(0, 5), (2, 5)], [10, 12, 13])
    >>> cells.take((2, 5), up_to=12)[:2], cells.take((2, 5))[:2]
    ((2, 1), (1, 1))
    """

    def __init__(self, matches: Matches) -> None:
        # One number for each cell, because sorting pairs takes several times as long.
        code = matches.series << _WINDOW_BITS | matches.window
        order = np.argsort(code, kind="stable")
        code = code[order]
        first = np.flatnonzero(np.diff(code, prepend=-1))
        edges = [*first.tolist(), len(code)]
        self._spans: dict[Cell, tuple[int, int]] = {
            (cell >> _WINDOW_BITS, cell & _NEWEST_WINDOW): span
            for cell, span in zip(code[first].tolist(), pairwise(edges), strict=True)
        }
        self._sequence: list[int] = matches.sequence[order].tolist()
        self._labelled: list[int] = matches.labelled[order].tolist()
        self._correct: list[int] = matches.correct[order].tolist()
        weight = matches.weight[order]
        self._weight: list[float] | None = weight.tolist() if (weight != 1.0).any() else None
        self._errors: Floats | None = None
        if not np.isnan(matches.error).all():
            more = () if np.isnan(matches.truths).all() else (matches.truths[order], matches.inside[order])
            errors = matches.error[order], matches.replaced_error[order]
            self._errors = error_terms(*errors, weight, *more)

    def __iter__(self) -> Iterator[Cell]:
        return iter(list(self._spans))

    def newly_labelled(self, cell: Cell) -> list[int]:
        """Return the sequence numbers of a cell's rows that get their first label and are not yet removed."""
        rows = slice(*self._spans[cell])
        return [place for place, n in zip(self._sequence[rows], self._labelled[rows], strict=True) if n > 0]

    def take(self, cell: Cell, up_to: int | None = None) -> tuple[int, int, Excess, Floats | None]:
        """Remove rows of a cell, and return the changes that these rows make to the window's counts.

        Parameters
        ----------
        cell : Cell
        up_to : int, optional
            The largest sequence number of the rows to remove. By default, all rows are removed.

        Returns
        -------
        labelled, correct : int
            The changes of the numbers of labelled and of correct rows.
        excess : Excess
            The change of the sums of weights, as in `Tally.add`.
        errors : (n, 2, T) float64 or None
            The changes of the sums of errors, as in `Tally.add`. None if there is none.
        """
        start, stop = self._spans[cell]
        end = stop if up_to is None else bisect_right(self._sequence, up_to, start, stop)
        self._spans[cell] = end, stop
        rows = slice(start, end)
        errors = None if self._errors is None or start == end else self._errors[rows]
        return sum(self._labelled[rows]), sum(self._correct[rows]), self._excess(rows), errors

    def _excess(self, rows: slice) -> Excess:
        """Return the excess of the rows' weights.

        The weights are summed row by row, because few rows are weighted.
        """
        total = _NONE
        if self._weight is not None:
            for w, n, k in zip(self._weight[rows], self._labelled[rows], self._correct[rows], strict=True):
                if w != 1.0:
                    total = total.plus(excess(w, n, k))
        return total
