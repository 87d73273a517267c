"""Revisions of closed windows whose labels come later: when a window gets another line, and the line itself.

A window gets its first line when it closes, with the labels known then. A further line repeats it with the
newest realised accuracy. It comes each time that the number of labelled rows has doubled since the last line
(with the first label, if there was none). A last line comes when the window is dropped, if anything has
changed. While the correction keeps the window, a line also has the newest corrected accuracy, beside the
corrected accuracy at the close. So a window of n rows has at most log2(n) + 3 lines, and its newest line
covers at least half of its labels.

A window is dropped when a later window of its series ends more than the labels' horizon after it, or when the
limits are reached: `keep` windows of a task, `keep_each` of a series, oldest out first. All of this depends
only on the records' sequence and on no clock, so every cut or interruption of a stream gives the same lines
in the same order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import numpy as np

from monitor.base.names import REALISED
from monitor.base.records import Floats, Ints
from monitor.engine.labels.tally import Cell, Cells, Tally
from monitor.reports.reader import from_json
from monitor.reports.views import MetricEstimate
from monitor.reports.window_report import WindowReport, revised, to_json

FEWEST_KEPT = 1000
"""The windows of a task that are always kept (2 MB), and the number of reports kept beside their lines."""

Correction = Callable[[int], MetricEstimate | None]
"""Returns the corrected accuracy of a window."""


class Crossing(NamedTuple):
    """The place in the stream at which a window's next line is due."""

    sequence: int
    series: int
    window: int


@dataclass(slots=True)
class _Kept:
    """A window's newest line, the number of labelled rows in it, and the end and close of the window."""

    line: bytes
    revision: int
    labelled: int
    end_time: float
    closed_at: int = -1

    @property
    def due(self) -> int:
        return max(1, 2 * self.labelled)


@dataclass(frozen=True, slots=True)
class Revisions:
    """The settings of a task's revisions.

    Parameters
    ----------
    keep : int
        The number of closed windows kept, over all series.
    keep_each : int
        The number of closed windows kept of each series. The tally must keep at least as many.
    horizon_seconds : float
        The time after a window's end for which labels may come, by the ends of later windows of its series.
    level : float
        The level of the intervals.

    Raises
    ------
    ValueError
        A number is below 1, or the horizon not above 0.
    """

    keep: int
    keep_each: int
    horizon_seconds: float
    level: float

    def __post_init__(self) -> None:
        for name in ("keep", "keep_each"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1 window, got {getattr(self, name)}")
        if not self.horizon_seconds > 0:
            raise ValueError(f"horizon_seconds must be above 0, got {self.horizon_seconds}")

    def build(self, resume: RevisionsState | None = None) -> RevisionsLogic:
        """Return the revisions, new or resumed from a snapshot."""
        return RevisionsLogic(self, resume)


class RevisionsState(msgspec.Struct, frozen=True):
    """The closed windows that labels may still reach, as columns, and the newest window of each series.

    A store has the `lines` in its reports, and finds them by the series' `names`: model and group. A line is
    None if the store has already dropped it.
    """

    series: Ints
    window: Ints
    revision: Ints
    labelled: Ints = msgspec.field(name="told")
    end_time: Floats
    newest: list[tuple[int, int]]
    missed: int
    names: list[tuple[str, str]] = []
    lines: list[str | None] = []


class RevisionsLogic:
    """The running revisions of one task.

    Attributes
    ----------
    missed : int
        The number of labelled rows that came too late for a line, because their window was dropped.
    changed : bool
        Whether there are changes that no checkpoint has saved yet.
    """

    def __init__(self, settings: Revisions, resume: RevisionsState | None = None) -> None:
        self._settings = settings
        self._tallies: list[Tally] = []
        self._corrections: list[Correction] = []
        self._kept: OrderedDict[Cell, _Kept] = OrderedDict()  # in the order in which they closed
        self._reports: OrderedDict[Cell, WindowReport] = OrderedDict()  # the newest of their reports
        self._of_series: dict[int, deque[int]] = {}
        self._newest: dict[int, int] = {}
        self.missed = 0
        self.changed = True
        if resume is not None:
            self._restore(resume)

    def __len__(self) -> int:
        return len(self._kept)

    def add_series(self, tally: Tally, corrected: Correction = lambda window: None) -> None:
        """Add the task's next series.

        Parameters
        ----------
        tally : Tally
            The counts of the series' labelled rows.
        corrected : callable, optional
            Returns a window's corrected accuracy by all labels so far; None if the window is not kept or has
            no label.
        """
        self._tallies.append(tally)
        self._corrections.append(corrected)

    def closed(self, series: int, report: WindowReport, closed_at: int) -> list[WindowReport]:
        """Add a window that closes; return the last lines of the windows that are dropped for it.

        `closed_at` is the sequence of the record that closed the window.
        """
        if not any(estimate.estimator == REALISED for estimate in report.estimates):
            return []
        self.changed = True
        cell = series, report.window
        labelled = self._labelled(*cell)
        self._kept[cell] = _Kept(to_json(report), report.revision, labelled, report.end_time, closed_at)
        self._remember(cell, report)
        own = self._of_series.setdefault(series, deque())
        own.append(report.window)
        self._newest[series] = report.window
        dropped = []
        while len(own) > 1 and (len(own) > self._settings.keep_each or self._is_over(series, report)):
            dropped.append((series, own[0]))
            own.popleft()
        reports = self._drop(dropped)
        while len(self._kept) > self._settings.keep:
            oldest = next(iter(self._kept))
            self._of_series[oldest[0]].popleft()
            reports += self._drop([oldest])
        return reports

    def _labelled(self, series: int, window: int) -> int:
        """Return the number of a window's labelled rows."""
        return self._tallies[series].counts(window)[0]

    def _is_over(self, series: int, report: WindowReport) -> bool:
        oldest = self._kept[series, self._of_series[series][0]]
        return report.end_time - oldest.end_time > self._settings.horizon_seconds

    def crossings(self, cells: Cells) -> list[Crossing]:
        """Return the places in these matches at which lines become due, sorted.

        Rows of dropped windows count as missed. Call it once for the next matches, before they are counted.
        """
        crossings: list[Crossing] = []
        for cell in cells:
            sequence = cells.newly_labelled(cell)
            kept = self._kept.get(cell)
            if kept is not None:
                crossings += (Crossing(place, *cell) for place in self._due_at(kept, cell, sequence))
            elif sequence and cell[1] <= self._newest.get(cell[0], -1):
                self.missed += len(sequence)
                self.changed = True
        return sorted(crossings)

    def _due_at(self, kept: _Kept, cell: Cell, sequence: list[int]) -> list[int]:
        """Return the sequences at which the window's next lines are due; each counts with all its rows."""
        before = self._labelled(*cell)
        due, places = kept.due, []
        while (row := max(due - before - 1, 0)) < len(sequence):
            place = sequence[row]
            places.append(place)
            due = 2 * (before + bisect_right(sequence, place))
        return places

    def revise(self, series: int, window: int) -> WindowReport | None:
        """Return the next line of a window; None if it would equal the last line."""
        cell = series, window
        kept, labelled = self._kept[cell], self._labelled(series, window)
        if not labelled:
            return None
        before = self._reports.pop(cell, None) or from_json(kept.line)
        # The comparison is with the last line: a label that was changed and changed back makes no new line.
        realised = self._tallies[series].realised(window, self._settings.level)
        corrected = self._corrections[series](window)
        report = revised(before, kept.line, REALISED, realised, corrected)
        self._remember(cell, report or before)
        if report is not None:
            kept.line, kept.revision, kept.labelled = report.line, report.revision, labelled
            self.changed = True
        return report

    def _remember(self, cell: Cell, report: WindowReport) -> None:
        """Keep the newest reports as objects, because parsing a line takes as long as writing it."""
        self._reports[cell] = report
        if len(self._reports) > FEWEST_KEPT:
            self._reports.popitem(last=False)

    def finish(self) -> list[tuple[int, WindowReport]]:
        """Return, at the end of the input, a line for every window that has changed since its last line.

        Each has the sequence of the record that closed its window, −1 if the window closed before a restart.
        """
        revised = [(kept.closed_at, self.revise(*key)) for key, kept in list(self._kept.items())]
        return [(closed_at, report) for closed_at, report in revised if report is not None]

    def _drop(self, keys: Iterable[Cell]) -> list[WindowReport]:
        """Drop windows; return their last lines."""
        reports = []
        for key in keys:
            report = self.revise(*key)
            if report is not None:
                reports.append(report)
            del self._kept[key]
            self._reports.pop(key, None)
        return reports

    def counts(self) -> RevisionsState:
        """Return the snapshot without the lines, which are in the reports by series, window and revision."""
        kept = list(self._kept.values())
        keys = np.array(list(self._kept), dtype=np.int64).reshape(-1, 2)
        return RevisionsState(
            series=keys[:, 0].astype(np.int32),
            window=keys[:, 1],
            revision=np.array([one.revision for one in kept], dtype=np.int32),
            labelled=np.array([one.labelled for one in kept], dtype=np.int64),
            end_time=np.array([one.end_time for one in kept], dtype=np.float64),
            newest=list(self._newest.items()),
            missed=self.missed,
        )

    def snapshot(self) -> RevisionsState:
        """Return the state of all kept windows, with their lines."""
        lines = [kept.line.decode() for kept in self._kept.values()]
        return msgspec.structs.replace(self.counts(), lines=lines)

    def _restore(self, state: RevisionsState) -> None:
        arrays = state.series, state.window, state.revision, state.labelled, state.end_time
        columns = [array.tolist() for array in arrays]
        for series, window, revision, labelled, end_time, line in zip(*columns, state.lines, strict=True):
            if line is not None:
                self._kept[series, window] = _Kept(line.encode(), revision, labelled, end_time)
                self._of_series.setdefault(series, deque()).append(window)
        self._newest = dict(state.newest)
        self.missed = state.missed
