"""Assigns rows to the windows of a series (a model or group) by their positions in the source.

Each report records the range of positions of its window.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from monitor.base.records import Ints
from monitor.reports.window_report import WindowLine

Series = tuple[str, str, str]

BEFORE = -1
"""The window number for a row before the first recorded window. The store no longer has the window of the
row."""

NOWHERE = -2
"""The window number for a row between or after the windows. The row is a duplicate or belongs to the open
window."""


@dataclass(slots=True)
class _Track:
    """The ranges of one series in one partition, in the order of its windows; a window may have several."""

    first: list[int] = field(default_factory=list)
    last: list[int] = field(default_factory=list)
    window: list[int] = field(default_factory=list)


class Ranges:
    """The ranges of source positions of all windows, as the reports record them.

    Two windows of a series share at most one position of a partition: the position of a message with many
    records, if its first records belong to the earlier window. If ranges overlap by more, the positions have
    started again, because a file was rotated or a consumer group read from the beginning. The rows of such
    windows cannot be distinguished, so the windows are listed in `overlapping`.

    Parameters
    ----------
    lines : iterable of WindowLine
        The recorded windows in the order in which they closed.
    """

    def __init__(self, lines: Iterable[WindowLine]) -> None:
        self._tracks: dict[Series, dict[str, _Track]] = {}
        self._newest: dict[Series, int] = {}
        self._oldest: dict[Series, int] = {}
        self.overlapping: set[tuple[Series, int]] = set()
        for line in lines:
            tracks = self._tracks.setdefault(line.series, {})
            self._newest[line.series] = line.window
            self._oldest.setdefault(line.series, line.window)
            for partition in line.positions:
                self._note(line, partition, tracks.setdefault(partition, _Track()))
        self._arrays = {
            (series, partition): (np.array(t.first), np.array(t.last), np.array(t.window))
            for series, tracks in self._tracks.items()
            for partition, t in tracks.items()
        }

    def _note(self, line: WindowLine, partition: str, track: _Track) -> None:
        for first, last in line.stretches(partition):
            if track.last and first < track.last[-1]:
                self.overlapping |= {(line.series, line.window), (line.series, track.window[-1])}
                continue
            track.first.append(first)
            track.last.append(last)
            track.window.append(line.window)

    @property
    def series(self) -> set[Series]:
        """The series that have at least one recorded window."""
        return set(self._tracks)

    def newest(self, series: Series) -> int:
        """Return the number of the last window of a series, which must have at least one window."""
        return self._newest[series]

    def windows(self, series: Series, partition: str, position: Ints) -> Ints:
        """Return the number of the window that holds each position, (n,).

        The result is `BEFORE` for a position before the first recorded window, unless this window has the
        number 0. The result is `NOWHERE` for any other position without a window. A position that two windows
        share belongs to the first of them.
        """
        track = self._arrays.get((series, partition))
        if track is None:
            return np.full(len(position), NOWHERE)
        first, last, window = track
        at = np.searchsorted(last, position, side="left")
        inside = at < len(last)
        inside[inside] = first[at[inside]] <= position[inside]
        numbers = np.full(len(position), NOWHERE)
        numbers[inside] = window[at[inside]]
        # Rows before the first window of a series are duplicates of rows in another partition.
        numbers[position < first[0]] = BEFORE if self._oldest[series] else NOWHERE
        return numbers

    def shared(self, series: Series, window: int, partition: str) -> tuple[int, int] | None:
        """Return the position that a window shares with the next window, and the number of the next window.

        Return None if the two windows share no position.
        """
        track = self._arrays.get((series, partition))
        if track is None:
            return None
        first, last, windows = track
        at = int(np.searchsorted(windows, window, side="right")) - 1  # the last range of the window
        if 0 <= at < len(windows) - 1 and windows[at] == window and first[at + 1] == last[at]:
            return int(last[at]), int(windows[at + 1])
        return None
