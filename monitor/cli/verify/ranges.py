"""Which window of a series a row belongs to, by the recorded ranges of positions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from monitor.base.records import Ints
from monitor.reports.window_report import WindowLine

Series = tuple[str, str, str]

BEFORE = -1
"""Of a row before the first recorded window: it was used in one that the store no longer has."""

NOWHERE = -2
"""Of a row between windows, or after the last: a duplicate, or in the open window."""


@dataclass(slots=True)
class _Track:
    """The ranges of one series in one partition, in the order of its windows; a window may have several."""

    first: list[int] = field(default_factory=list)
    last: list[int] = field(default_factory=list)
    window: list[int] = field(default_factory=list)


class Ranges:
    """The recorded ranges of all windows.

    Two windows of a series share at most one position of a partition: that of a message which held many
    records, where the first window was full. Where ranges overlap by more, positions began anew (a file
    was rotated, a group read again): such windows are in `overlapping`, and rows cannot be told apart.

    Parameters
    ----------
    lines : iterable of WindowLine
        In the order of closing.
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
        """Every series that has a window."""
        return set(self._tracks)

    def newest(self, series: Series) -> int:
        """The number of the last window of a series that has one."""
        return self._newest[series]

    def windows(self, series: Series, partition: str, position: Ints) -> Ints:
        """The window of each position; of two that share it the first. `BEFORE` or `NOWHERE` for none."""
        found = self._arrays.get((series, partition))
        if found is None:
            return np.full(len(position), NOWHERE)
        first, last, window = found
        at = np.searchsorted(last, position, side="left")
        inside = at < len(last)
        inside[inside] = first[at[inside]] <= position[inside]
        numbers = np.full(len(position), NOWHERE)
        numbers[inside] = window[at[inside]]
        # Before a series' very first window there are duplicates only, of rows in another partition.
        numbers[position < first[0]] = BEFORE if self._oldest[series] else NOWHERE
        return numbers

    def shared(self, series: Series, window: int, partition: str) -> tuple[int, int] | None:
        """The position that a window shares with the next one of its series, and that one's number."""
        found = self._arrays.get((series, partition))
        if found is None:
            return None
        first, last, windows = found
        at = int(np.searchsorted(windows, window, side="right")) - 1  # the last of its stretches
        if 0 <= at < len(windows) - 1 and windows[at] == window and first[at + 1] == last[at]:
            return int(last[at]), int(windows[at + 1])
        return None
