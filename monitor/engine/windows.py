"""Windows of a fixed number of rows: a model's answers in order of arrival, divided after every `size` rows.

A window of at least `min_size` rows closes early by age. It does so when `max_age_seconds` have passed since
its first row arrived. The windows depend only on the rows and their arrival times, not on the number of calls
that add the rows.
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
"""A sequence number greater than that of any row."""

_FIRST_ROOM = 16  # rows
_FEW = 64  # rows


class SeriesName(NamedTuple):
    """The name of a series: a model of a task, or one group of that model's answers.

    If the models of a task share their windows, the task has one series. Its name contains only the task.
    """

    task: str = ""
    model: str = ""
    group: str = ""


NO_NAME = SeriesName()


@dataclass(frozen=True, slots=True)
class AnswerRows:
    """The columns of n answers that are added to windows, in order of arrival.

    Parameters
    ----------
    scores : (n, K) float64
        Raw scores.
    predicted : (n,) int64
        The index of the predicted class.
    time : (n,) float64
        The records' own times, seconds since the epoch.
    arrival : (n,) float64
        The time of the clock by which windows age, in seconds, nondecreasing.
    sequence : (n,) int64
        The number of each record among all records that the engine received, increasing.
    partition, position : (n,) int64
        The index of the partition in a separate list of names, and the position of the record in this
        partition.
    features : (n, F) float64, optional
        As in `Batch`. F is 0 by default.
    groups : (n, G) int64, optional
        The number of the series of each row's group, in one column for each configured group name; -1 if the
        row has no such group. G is 0 by default.
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
        """Return the rows at these indices as a new object."""
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

    def of_groups(self, with_features: bool) -> AnswerRows:
        """Return the rows without the columns that windows of groups do not use.

        They do not use the numbers of groups. Without `with_features`, they do not use features either.
        """
        n = len(self)
        if with_features or not self.features.shape[1]:
            return self if not self.groups.shape[1] else replace(self, groups=no_groups(n))
        return replace(self, groups=no_groups(n), features=no_features(n))


@dataclass(frozen=True, slots=True)
class ClosedWindow:
    """The rows of a closed window of one series, which is ready to be evaluated.

    Parameters
    ----------
    series : SeriesName
        The model, or the group of its answers.
    number : int
        The window's number in its series, from 0.
    closed_by : {"size", "age", "version", "end"}
        The reason for closing: the window was full, it was too old, another version of the model answered, or
        the stream ended.
    version : str
        The version of the model that answered.
    scores : (n, K) float64
        The raw scores of n rows for K classes.
    predicted : (n,) int64
        The index of each row's predicted class.
    start_time, end_time : float
        The smallest and the largest time of the records, seconds since the epoch.
    closed_at : int
        The sequence number of the row that closed the window; `LAST` if no row closed it. The report includes
        labels up to this row.
    positions : mapping of str to tuple of int
        The first and the last position of the window's records in each partition. If another agent read some
        of the records between them, there are several ranges: first, last, first, last, and so on.
    features : (n, F) float64
        As in `Batch`.
    groups : (n, G) int64
        As in `AnswerRows`.
    middle_time : float
        The time of the record in the middle, in order of arrival, seconds since the epoch.
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
    middle_time: float = 0.0

    @property
    def size(self) -> int:
        """The number of rows."""
        return len(self.predicted)


@dataclass(frozen=True, slots=True)
class CountWindow:
    """The settings of fixed-size windows, which decide when a window of a series closes.

    Parameters
    ----------
    size : int
        The number of rows of a full window, at least 1.
    min_size : int
        The smallest number of rows of a window that closes by age; at most `size`.
    max_age_seconds : float
        The age above which a window closes early. A row that arrives when the window is older belongs to the
        next window.
    series : SeriesName, optional
        The series of the windows.

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
        """Return the window logic, new or resumed from a snapshot."""
        return WindowLogic(self, resume)


Columns = tuple[Floats, Ints, Floats, Floats, Ints]
"""Arrays of n rows: scores (n, K), predicted classes (n,), times (n,), features (n, F) and groups (n, G)."""


class _Kept:
    """The rows of an open window between pushes.

    When the arrays are full, their size doubles. So rows that come one by one need at most about twice the
    memory of their own data, instead of three array objects for each row.

    Parameters
    ----------
    most : int
        The largest number of rows.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._arrays: Columns
        self._room = 0
        self.count = 0

    def add(self, rows: Columns) -> None:
        """Append copies of these rows."""
        start, count = self.count, self.count + len(rows[2])
        if count > self._room or any(
            # Older versions did not store the predictions and groups of an open window's rows.
            kept.shape[1] < new.shape[1]
            for kept, new in zip(self._arrays[3:], rows[3:], strict=True)
        ):
            self._grow(count, rows)
        scores, predicted, times, features, groups = self._arrays
        scores[start:count], predicted[start:count], times[start:count] = rows[:3]
        if features.shape[1]:
            features[start:count] = rows[3]
        if groups.shape[1]:
            groups[start:count] = rows[4]
        self.count = count

    def add_piece(self, rows: AnswerRows, piece: slice) -> None:
        """Append copies of a slice of these rows."""
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
        """Return views of all rows; there must be at least one."""
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
                if more.shape == (room,):
                    more[: self.count] = kept
                else:
                    more[: self.count] = -1 if more.dtype == np.int64 else np.nan
                    more[: self.count, : kept.shape[1]] = kept
        self._arrays, self._room = grown, room


class WindowState(msgspec.Struct, frozen=True):
    """The stored state of `WindowLogic`: the number and the rows of the open window.

    The columns are None if the window has no rows. `first_row` is the number of rows in closed windows; it is
    0 in states of older versions. `interrupted` contains the partitions whose next row begins a new range of
    positions.
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
    """The open window of one series, which collects rows and closes when it is full or too old.

    Attributes
    ----------
    first_row : int
        The number of rows in the closed windows of the series.
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
        """The number of rows in the open window, which is not full yet."""
        return self._count

    @property
    def number(self) -> int:
        """The number of the open window, which equals the number of closed windows."""
        return self._number

    def push(
        self, rows: AnswerRows, partitions: tuple[str, ...], version: str = ""
    ) -> tuple[list[ClosedWindow], Ints]:
        """Add rows. Return the windows that they closed, and the number of each row's window, (n,).

        A window has the version of its first row. If the version changes, call `close` before the next push.

        Parameters
        ----------
        rows : AnswerRows
        partitions : tuple of str
            The names of partitions; `rows.partition` holds indices into them.
        version : str
            The version of the model that gave these answers.
        """
        numbers = np.empty(len(rows), dtype=np.int64)
        return self.take(rows, slice(0, len(rows)), partitions, version, numbers), numbers

    def take(
        self, rows: AnswerRows, piece: slice, partitions: tuple[str, ...], version: str, numbers: Ints
    ) -> list[ClosedWindow]:
        """Add a slice of rows as `push` does, and write their window numbers into `numbers`.

        Parameters
        ----------
        rows : AnswerRows
        piece : slice
            The rows to add.
        partitions, version
            As in `push`.
        numbers : (n,) int64
            An output array. The method writes the number of each added row's window into it.
        """
        start, end = piece.start, piece.stop
        room = self._settings.size - self._count
        if self._count and start < end < start + room and rows.arrival[end - 1] <= self._deadline:
            # With many models that answer in turn, most pieces are a few rows that close no window.
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
        """Return the index of the first of the next rows at which the window may close by size or age.

        If the window closes at none of the rows, the index is the number of rows. The index is never too
        late. It is too early if some of the rows are left out later as duplicates.

        Parameters
        ----------
        arrival : (n,) float64
            An upper bound of the clock at each of the next rows, in seconds, nondecreasing.
        now : float
            The time of the clock before these rows, in seconds.
        """
        size, oldest = self._settings.size, self._settings.max_age_seconds
        deadline = self._deadline if self._count else now + oldest
        enough = max(self._settings.min_size - self._count, 0)
        aged = max(int(np.searchsorted(arrival, deadline, side="right")), enough)
        return min(size - self._count - 1, aged, len(arrival))

    def interrupt(self, partition: str) -> bool:
        """Record that another agent has read the next records of a partition.

        The partition's range of positions in the open window ends, and its next row begins a new range. If
        the open window has no rows of the partition, do nothing and return False.
        """
        if partition not in self._positions:
            return False
        self._interrupted.add(partition)
        return True

    @property
    def closes_at(self) -> float:
        """The time after which `tick` closes the open window by age; infinite while it has too few rows."""
        return self._deadline if self._count >= self._settings.min_size else np.inf

    def tick(self, now: float) -> ClosedWindow | None:
        """Close and return the open window if it is too old at the time `now`; otherwise return None."""
        return self._age_closed(now, LAST)

    def close(self, reason: ClosedBy, at: int = LAST) -> ClosedWindow | None:
        """Close and return the open window; return None if it is empty.

        Parameters
        ----------
        reason : {"size", "age", "version", "end"}
        at : int
            The sequence number of the next row, which closes the window and is not in it. By default no row
            closes it.
        """
        return self._close(reason, at) if self._count else None

    def snapshot(self) -> WindowState:
        """Return a copy of the open window's state, from which `CountWindow.build` can resume."""
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
        if self._kept.count:  # the closed window owns the arrays
            self._kept = _Kept(self._settings.size)
        self._fresh = None
        self._count, self._first_arrival = 0, 0.0
        self._positions = {}
        self._interrupted = set()

    def _age_closed(self, now: float, at: int) -> ClosedWindow | None:
        return self._close("age", at) if now > self.closes_at else None

    @property
    def _deadline(self) -> float:
        """The time after which the open window is too old."""
        return self._first_arrival + self._settings.max_age_seconds

    def _room(self, arrival: Floats, start: int, end: int) -> int:
        """Return the index of the row at which the window is full, or too old with enough rows."""
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
        """Copy the remaining rows, so that the window of a slow series does not keep a batch in memory."""
        if self._fresh is not None:
            self._kept.add(self._fresh)
            self._fresh = None

    def _columns(self) -> Columns:
        """Return the open window's rows, without a copy if one push filled the window."""
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
            middle_time=float(times[len(times) // 2]),
        )
        self._number += 1
        self.first_row += self._count
        self._clear()
        return window
