"""Fixed-size windows: a model's answers in order of arrival, cut every `size` rows.

A window closes early, by age, once `max_age_seconds` have passed since its first row arrived and at
least `min_size` rows are in. Whatever the pieces in which rows are pushed, the same rows give the same
windows: the cut depends on the rows and their arrival times alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import msgspec
import numpy as np

from monitor.base.names import ClosedBy
from monitor.base.records import Floats, Ints, no_features, no_groups

LAST = 2**62
"""A sequence after every row's."""

_FIRST_ROOM = 16  # rows
_FEW = 64  # rows


class SeriesName(NamedTuple):
    """Whose windows they are: a model of a task, or one group of it; of an arena the task alone."""

    task: str = ""
    model: str = ""
    group: str = ""


NO_NAME = SeriesName()


@dataclass(frozen=True, slots=True)
class AnswerRows:
    """Answers on their way into windows, n rows in order of arrival.

    Parameters
    ----------
    scores : (n, K) float64
    predicted : (n,) int64
    time : (n,) float64
        The records' own times, seconds since the epoch.
    arrival : (n,) float64
        The clock by which windows age, seconds, never falling.
    sequence : (n,) int64
        Place among everything that the engine received, rising.
    partition, position : (n,) int64
        Index into the partition names given beside the rows, and the place there.
    features : (n, F) float64, optional
        As in `Batch`. Left out, F is 0.
    groups : (n, G) int64, optional
        The number of the series of each row's group, by each watched name; -1 for none. Left out, G is 0.
    """

    scores: Floats
    predicted: Ints
    time: Floats
    arrival: Floats
    sequence: Ints
    partition: Ints
    position: Ints
    features: Floats = field(default_factory=lambda: no_features(0))
    groups: Ints = field(default_factory=lambda: no_groups(0))

    def __post_init__(self) -> None:
        if not len(self.features) and len(self.time):
            object.__setattr__(self, "features", no_features(len(self.time)))
        if not len(self.groups) and len(self.time):
            object.__setattr__(self, "groups", no_groups(len(self.time)))

    def __len__(self) -> int:
        return len(self.time)

    def take(self, index: Ints) -> AnswerRows:
        """The rows at these places."""
        return AnswerRows(
            self.scores[index],
            self.predicted[index],
            self.time[index],
            self.arrival[index],
            self.sequence[index],
            self.partition[index],
            self.position[index],
            self.features[index],
            self.groups[index],
        )

    def ungrouped(self) -> AnswerRows:
        """The same without groups: of a group's own windows they are of no use."""
        return self if not self.groups.shape[1] else replace(self, groups=no_groups(len(self)))


@dataclass(frozen=True, slots=True)
class ClosedWindow:
    """A window that will take no more rows.

    Parameters
    ----------
    series : SeriesName
    number : int
        Counts from 0 in its series.
    closed_by : {"size", "age", "version", "end"}
    version : str
        Of the model, as given with its rows.
    scores : (n, K) float64
    predicted : (n,) int64
    start_time, end_time : float
        Smallest and largest time of its records, seconds since the epoch.
    closed_at : int
        Sequence of the row that closed it: labels up to there were known when it closed. `LAST` where
        it was closed between rows.
    positions : mapping of str to tuple of int
        By partition, the first and the last position used; where another agent used records in between,
        the first and the last of each stretch, in turn.
    features : (n, F) float64
        As in `Batch`.
    groups : (n, G) int64
        As in `AnswerRows`.
    """

    series: SeriesName
    number: int
    closed_by: ClosedBy
    version: str
    scores: Floats
    predicted: Ints
    start_time: float
    end_time: float
    closed_at: int
    positions: Mapping[str, tuple[int, ...]]
    features: Floats = field(default_factory=lambda: no_features(0))
    groups: Ints = field(default_factory=lambda: no_groups(0))

    @property
    def size(self) -> int:
        return len(self.predicted)


@dataclass(frozen=True, slots=True)
class CountWindow:
    """Settings of fixed-size windows.

    Parameters
    ----------
    size : int
        Rows a window, at least 1.
    min_size : int
        Rows without which no window closes by age, at most `size`.
    max_age_seconds : float
        Age past which a window closes early: with the first row that arrives later, which is not in it.
    series : SeriesName, optional
        Whose windows they are.

    Raises
    ------
    ValueError
        A number is out of its range.

    Examples
    --------
    >>> logic = CountWindow(size=2, min_size=1, max_age_seconds=60).build()
    >>> column = np.arange(5)
    >>> times = column * 1.0
    >>> rows = AnswerRows(np.full((5, 2), 0.5), column, times, times, column, column * 0, column)
    >>> closed, numbers = logic.push(rows, ("a.ndjson",))
    >>> [(w.number, w.size, w.closed_by) for w in closed], numbers.tolist(), logic.pending
    ([(0, 2, 'size'), (1, 2, 'size')], [0, 0, 1, 1, 2], 1)
    """

    size: int
    min_size: int
    max_age_seconds: float
    series: SeriesName = NO_NAME

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"size must be at least 1, got {self.size}")
        if not 1 <= self.min_size <= self.size:
            raise ValueError(f"min_size must be from 1 to size ({self.size}), got {self.min_size}")
        if not self.max_age_seconds > 0:
            raise ValueError(f"max_age_seconds must be above 0, got {self.max_age_seconds}")

    def build(self, resume: WindowState | None = None) -> WindowLogic:
        """The logic, from the start or from where a snapshot left it."""
        return WindowLogic(self, resume)


Columns = tuple[Floats, Ints, Floats, Floats, Ints]
"""Scores (n, K), predicted classes (n,), times (n,), features (n, F) and groups (n, G)."""


class _Kept:
    """The rows that an open window keeps from one push to the next.

    They lie in arrays that double as they fill: rows that come one at a time take at most about twice
    their own bytes, not three array objects each.

    Parameters
    ----------
    most : int
        Rows that may come.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._arrays: Columns
        self._room = 0
        self.count = 0

    def add(self, rows: Columns) -> None:
        """Copy these rows behind the others."""
        start, count = self.count, self.count + len(rows[2])
        if count > self._room:
            self._grow(count, rows)
        if (width := rows[4].shape[1]) != self._arrays[4].shape[1]:
            # Older versions kept no groups of an open window's rows: they are not known.
            self._arrays = (*self._arrays[:4], np.full((self._room, width), -1))
        scores, predicted, times, features, groups = self._arrays
        scores[start:count], predicted[start:count], times[start:count] = rows[:3]
        if features.shape[1]:
            features[start:count] = rows[3]
        if groups.shape[1]:
            groups[start:count] = rows[4]
        self.count = count

    def add_piece(self, rows: AnswerRows, piece: slice) -> None:
        """Copy a piece of these behind the others."""
        start, count = self.count, self.count + piece.stop - piece.start
        if count > self._room or rows.features.shape[1] or self._arrays[4].shape[1] or rows.groups.shape[1]:
            features, groups = rows.features[piece], rows.groups[piece]
            self.add((rows.scores[piece], rows.predicted[piece], rows.time[piece], features, groups))
            return
        scores, predicted, times, _, _ = self._arrays
        scores[start:count] = rows.scores[piece]
        predicted[start:count] = rows.predicted[piece]
        times[start:count] = rows.time[piece]
        self.count = count

    def columns(self) -> Columns:
        """The rows, as views; there must be some."""
        scores, predicted, times, features, groups = self._arrays
        count = self.count
        return scores[:count], predicted[:count], times[:count], features[:count], groups[:count]

    def _grow(self, count: int, like: Columns) -> None:
        room = max(count, min(self._most, max(2 * self._room, _FIRST_ROOM)))
        scores = np.empty((room, like[0].shape[1]))
        width = like[3].shape[1]
        features = np.empty((room, width)) if width else no_features(room)
        width = like[4].shape[1]
        groups = np.empty((room, width), dtype=np.int64) if width else no_groups(room)
        grown = scores, np.empty(room, dtype=np.int64), np.empty(room), features, groups
        if self.count:
            for more, kept in zip(grown, self.columns(), strict=True):
                more[: self.count] = kept if more.shape[1:] == kept.shape[1:] else -1
        self._arrays, self._room = grown, room


class WindowState(msgspec.Struct, frozen=True):
    """The open window and its number; no columns where it holds no row.

    `first_row` counts the rows of closed windows, since a version that counts them.
    """

    number: int
    version: str
    scores: Floats | None
    predicted: Ints | None
    time: Floats | None
    first_arrival: float
    positions: dict[str, tuple[int, ...]]
    interrupted: list[str] = []
    features: Floats | None = None
    groups: Ints | None = None
    first_row: int = 0


class WindowLogic:
    """The open window of one series.

    Attributes
    ----------
    first_row : int
        Rows of the windows that closed before: the place of the open window's first row in the series.
    """

    def __init__(self, settings: CountWindow, resume: WindowState | None = None) -> None:
        self._settings = settings
        self._number = self.first_row = 0
        self._version = ""
        self._kept = _Kept(self._settings.size)
        self._fresh: Columns | None = None
        self._count = 0
        self._first_arrival = 0.0
        self._positions: dict[str, tuple[int, ...]] = {}
        self._interrupted: set[str] = set()
        if resume is not None:
            self._restore(resume)

    @property
    def pending(self) -> int:
        """Rows in the open window."""
        return self._count

    @property
    def number(self) -> int:
        """Number of the open window: how many have been closed."""
        return self._number

    def push(
        self, rows: AnswerRows, partitions: tuple[str, ...], version: str = ""
    ) -> tuple[list[ClosedWindow], Ints]:
        """Add rows; return the windows that closed, and the number of the window of each row.

        A window has the version that was given with its first row; who wants to cut at a change of it
        calls `close` in between.
        """
        numbers = np.empty(len(rows), dtype=np.int64)
        return self.take(rows, slice(0, len(rows)), partitions, version, numbers), numbers

    def take(
        self, rows: AnswerRows, piece: slice, partitions: tuple[str, ...], version: str, numbers: Ints
    ) -> list[ClosedWindow]:
        """As `push`, of the piece of these rows; its places in `numbers` are filled."""
        start, end = piece.start, piece.stop
        room = self._settings.size - self._count
        if self._count and start < end < start + room and rows.arrival[end - 1] <= self._deadline:
            # Where many models answer in turn most pieces are a few rows that close nothing.
            self._kept.add_piece(rows, piece)
            self._count = self._kept.count
            if len(partitions) == 1:
                self._widen(partitions[0], int(rows.position[start]), int(rows.position[end - 1]))
            else:
                self._note_positions(rows.partition[piece], rows.position[piece], partitions)
            numbers[piece] = self._number
            return []
        closed: list[ClosedWindow] = []
        while start < end:
            aged = self._age_closed(float(rows.arrival[start]), int(rows.sequence[start]))
            if aged is not None:
                closed.append(aged)
            stop = self._room(rows.arrival, start, end)
            if not self._count:
                self._version = version
            self._append(rows, start, stop, partitions)
            numbers[start:stop] = self._number
            if self._count == self._settings.size:
                closed.append(self._close("size", int(rows.sequence[stop - 1])))
            start = stop
        self._keep()
        return closed

    def may_close(self, arrival: Floats, now: float) -> int:
        """The first of further rows at which the window may close by size or age; their number for none.

        Of rows that are not all pushed it is too early, never too late.

        Parameters
        ----------
        arrival : (n,) float64
            The clock at each row at the latest, never falling.
        now : float
            The clock before them.
        """
        size, oldest = self._settings.size, self._settings.max_age_seconds
        deadline = self._deadline if self._count else now + oldest
        enough = max(self._settings.min_size - self._count, 0)
        aged = max(int(np.searchsorted(arrival, deadline, side="right")), enough)
        return min(size - self._count - 1, aged, len(arrival))

    def interrupt(self, partition: str) -> bool:
        """Another agent used records of this partition: what follows is a stretch of its own.

        Returns whether the open window holds rows of it; else there is nothing to tell apart.
        """
        if partition not in self._positions:
            return False
        self._interrupted.add(partition)
        return True

    @property
    def closes_at(self) -> float:
        """The clock's time past which `tick` closes the open window; infinite while it holds too few rows."""
        return self._deadline if self._count >= self._settings.min_size else np.inf

    def tick(self, now: float) -> ClosedWindow | None:
        """Close the open window if it has grown old by `now`."""
        return self._age_closed(now, LAST)

    def close(self, reason: ClosedBy, at: int = LAST) -> ClosedWindow | None:
        """Close the open window whatever it holds; None where it holds nothing.

        `at` is the sequence of the row that closes it, which is not in it.
        """
        return self._close(reason, at) if self._count else None

    def snapshot(self) -> WindowState:
        """The open window and its number."""
        scores, predicted, times, features, groups = self._columns() if self._count else (None,) * 5
        return WindowState(
            number=self._number,
            version=self._version,
            scores=None if scores is None else scores.copy(),
            predicted=None if predicted is None else predicted.copy(),
            time=None if times is None else times.copy(),
            first_arrival=self._first_arrival,
            positions=dict(self._positions),
            interrupted=sorted(self._interrupted),
            features=None if features is None or not features.shape[1] else features.copy(),
            groups=None if groups is None or not groups.shape[1] else groups.copy(),
            first_row=self.first_row,
        )

    def _restore(self, state: WindowState) -> None:
        self._number, self.first_row = state.number, state.first_row
        self._version = state.version
        if state.scores is None or state.predicted is None or state.time is None:
            return
        self._count = len(state.time)
        features = no_features(self._count) if state.features is None else state.features
        groups = no_groups(self._count) if state.groups is None else state.groups
        self._kept.add((state.scores, state.predicted, state.time, features, groups))
        self._first_arrival = state.first_arrival
        self._positions = dict(state.positions)
        self._interrupted = set(state.interrupted)

    def _clear(self) -> None:
        if self._kept.count:  # the closed window has its arrays
            self._kept = _Kept(self._settings.size)
        self._fresh = None
        self._count, self._first_arrival = 0, 0.0
        self._positions = {}
        self._interrupted = set()

    def _age_closed(self, now: float, at: int) -> ClosedWindow | None:
        return self._close("age", at) if now > self.closes_at else None

    @property
    def _deadline(self) -> float:
        """The clock's time past which the open window is old."""
        return self._first_arrival + self._settings.max_age_seconds

    def _room(self, arrival: Floats, start: int, end: int) -> int:
        """Where the next cut falls: full, or past the deadline with `min_size` rows in."""
        full = min(end, start + self._settings.size - self._count)
        deadline = self._deadline if self._count else float(arrival[start]) + self._settings.max_age_seconds
        if arrival[full - 1] <= deadline:
            return full
        on_time = start + int(np.searchsorted(arrival[start:full], deadline, side="right"))
        return min(full, max(on_time, start + self._settings.min_size - self._count, start + 1))

    def _append(self, rows: AnswerRows, start: int, stop: int, partitions: tuple[str, ...]) -> None:
        if not self._count:
            self._first_arrival = float(rows.arrival[start])
        self._keep()
        part = slice(start, stop)
        self._fresh = (
            rows.scores[part],
            rows.predicted[part],
            rows.time[part],
            rows.features[part],
            rows.groups[part],
        )
        self._count += stop - start
        self._note_positions(rows.partition[start:stop], rows.position[start:stop], partitions)

    def _note_positions(self, partition: Ints, position: Ints, partitions: tuple[str, ...]) -> None:
        if len(partitions) == 1:
            self._widen(partitions[0], int(position[0]), int(position[-1]))
            return
        if len(partition) <= _FEW:  # cheaper in plain Python than in arrays
            ends: dict[int, tuple[int, int]] = {}
            for code, place in zip(partition.tolist(), position.tolist(), strict=True):
                ends[code] = ends.get(code, (place,))[0], place
            for code, (first, last) in sorted(ends.items()):
                self._widen(partitions[code], first, last)
            return
        for code in np.unique(partition).tolist():
            places = position[partition == code]
            self._widen(partitions[code], int(places[0]), int(places[-1]))

    def _widen(self, name: str, first: int, last: int) -> None:
        known = self._positions.get(name, ())
        if known and name not in self._interrupted:
            self._positions[name] = (*known[:-1], last)
        else:
            self._positions[name] = (*known, first, last)
            self._interrupted.discard(name)

    def _keep(self) -> None:
        """Copy what stays, so that a slow series does not keep a whole batch in memory."""
        if self._fresh is not None:
            self._kept.add(self._fresh)
            self._fresh = None

    def _columns(self) -> Columns:
        """The open window's rows; those of a window that one push filled are not copied."""
        if self._fresh is not None and not self._kept.count:
            return self._fresh
        self._keep()
        return self._kept.columns()

    def _close(self, reason: ClosedBy, at: int) -> ClosedWindow:
        scores, predicted, times, features, groups = self._columns()
        window = ClosedWindow(
            series=self._settings.series,
            number=self._number,
            closed_by=reason,
            version=self._version,
            scores=scores,
            predicted=predicted,
            start_time=float(times.min()),
            end_time=float(times.max()),
            closed_at=at,
            positions=self._positions,
            features=features,
            groups=groups,
        )
        self._number += 1
        self.first_row += self._count
        self._clear()
        return window
