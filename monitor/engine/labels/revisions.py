"""Closed windows whose labels come later: when each gets another line, and what stands in it.

A window is written when it closes, with the labels that had come by then. From there on it gets a further
line, the same with its realised accuracy as it is by then, each time that the number of its labelled rows
has doubled since its last line (from none: with the first label), and a last one as it is let go of, where
anything changed meanwhile. While the correction keeps the window, the line has its corrected accuracy by then
too, with the one at the close beside it. So a window of n rows has at most log2(n) + 3 lines, and the newest
is never behind by more than half of the labels.

A window is let go of when a later window of its series ends more than the labels' horizon after it, or
when memory ends: `keep` windows of a task, `keep_each` of a series, oldest out first. All of this hangs on
the sequence of the records alone and on no clock, so that however a stream is cut, and wherever it was
interrupted, the same lines come in the same order.
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
"""Windows of a task that are kept in any case: 2 MB. Reports kept beside their lines: as many."""


Correction = Callable[[int], MetricEstimate | None]
"""Gives the corrected accuracy of a window."""


class Crossing(NamedTuple):
    """The place in the stream at which a window's next line is due."""

    sequence: int
    series: int
    window: int


@dataclass(slots=True)
class _Kept:
    """A window's newest line, how many labelled rows it tells of, and when the window ended and closed."""

    line: bytes
    revision: int
    told: int
    end_time: float
    closed_at: int = -1

    @property
    def due(self) -> int:
        return max(1, 2 * self.told)


@dataclass(frozen=True, slots=True)
class Revisions:
    """Settings of the revisions of one task.

    Parameters
    ----------
    keep : int
        Closed windows kept, of all series together.
    keep_each : int
        Of one series; labelled rows must be counted of as many windows at least.
    horizon_seconds : float
        Between a window's end and that of a later one of its series, past which labels are not awaited.
    level : float
        Of the intervals.

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
        """The revisions, from the start or from where a snapshot left them."""
        return RevisionsLogic(self, resume)


class RevisionsState(msgspec.Struct, frozen=True):
    """The closed windows that labels may still reach: columns, and the newest window by series.

    A store has the `lines` in its reports and finds them by the series' `names`, model and group; None is one
    that it has dropped, as it keeps too few.
    """

    series: Ints
    window: Ints
    revision: Ints
    told: Ints
    end_time: Floats
    newest: list[tuple[int, int]]
    missed: int
    names: list[tuple[str, str]] = []
    lines: list[str | None] = []


class RevisionsLogic:
    """The revisions of one task at work.

    Attributes
    ----------
    missed : int
        Labelled rows that reached a closed window too late for any line: it had been let go of.
    changed : bool
        Whether there is something that no checkpoint has saved yet.
    """

    def __init__(self, settings: Revisions, resume: RevisionsState | None = None) -> None:
        self._settings = settings
        self._tallies: list[Tally] = []
        self._corrections: list[Correction] = []
        self._kept: OrderedDict[Cell, _Kept] = OrderedDict()  # in the order of closing
        self._reports: OrderedDict[Cell, WindowReport] = OrderedDict()  # the lines of some of those, as read
        self._of_series: dict[int, deque[int]] = {}
        self._newest: dict[int, int] = {}
        self.missed = 0
        self.changed = True
        if resume is not None:
            self._restore(resume)

    def __len__(self) -> int:
        return len(self._kept)

    def add_series(self, tally: Tally, corrected: Correction = lambda window: None) -> None:
        """The task has one more series, whose labelled rows are counted there.

        Parameters
        ----------
        tally : Tally
        corrected : callable, optional
            Gives a window's accuracy by all labels so far; None where it is not kept or there is no label.
        """
        self._tallies.append(tally)
        self._corrections.append(corrected)

    def closed(self, series: int, report: WindowReport, closed_at: int) -> list[WindowReport]:
        """Take a window as it closes; return the last lines of those that are let go of for it.

        `closed_at` is the sequence of the record that closed it.
        """
        if not any(estimate.estimator == REALISED for estimate in report.estimates):
            return []
        self.changed = True
        cell = series, report.window
        told = self._labelled(*cell)
        self._kept[cell] = _Kept(to_json(report), report.revision, told, report.end_time, closed_at)
        self._remember(cell, report)
        own = self._of_series.setdefault(series, deque())
        own.append(report.window)
        self._newest[series] = report.window
        gone = []
        while len(own) > 1 and (len(own) > self._settings.keep_each or self._is_over(series, report)):
            gone.append((series, own[0]))
            own.popleft()
        reports = self._let_go(gone)
        while len(self._kept) > self._settings.keep:
            oldest = next(iter(self._kept))
            self._of_series[oldest[0]].popleft()
            reports += self._let_go([oldest])
        return reports

    def _labelled(self, series: int, window: int) -> int:
        """How many rows of a window are labelled so far."""
        return self._tallies[series].counts(window)[0]

    def _is_over(self, series: int, report: WindowReport) -> bool:
        oldest = self._kept[series, self._of_series[series][0]]
        return report.end_time - oldest.end_time > self._settings.horizon_seconds

    def crossings(self, cells: Cells) -> list[Crossing]:
        """Where in these matches lines will be due, sorted; rows of windows let go of are counted as missed.

        The matches are those that come next: to be given once, before any of them is counted.
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
        """The sequences at which the counts, all rows of one sequence taken together, reach what is due."""
        before = self._labelled(*cell)
        due, places = kept.due, []
        while (row := max(due - before - 1, 0)) < len(sequence):
            place = sequence[row]
            places.append(place)
            due = 2 * (before + bisect_right(sequence, place))
        return places

    def revise(self, series: int, window: int) -> WindowReport | None:
        """The next line of a window, as things stand; None where it would say what its last one says."""
        cell = series, window
        kept, told = self._kept[cell], self._labelled(series, window)
        if not told:
            return None
        before = self._reports.pop(cell, None) or from_json(kept.line)
        # Held against what was written: a label that was changed and changed back is no news.
        realised = self._tallies[series].realised(window, self._settings.level)
        corrected = self._corrections[series](window)
        report = revised(before, kept.line, REALISED, realised, corrected)
        self._remember(cell, report or before)
        if report is not None:
            kept.line, kept.revision, kept.told = report.line, report.revision, told
            self.changed = True
        return report

    def _remember(self, cell: Cell, report: WindowReport) -> None:
        """Keep the newest reports as they are: reading one off its line takes as long as writing it."""
        self._reports[cell] = report
        if len(self._reports) > FEWEST_KEPT:
            self._reports.popitem(last=False)

    def finish(self) -> list[tuple[int, WindowReport]]:
        """The input has ended: a line for every window that has changed since its last one.

        With each the sequence of the record that closed its window; −1 where that was before a restart.
        """
        revised = [(kept.closed_at, self.revise(*key)) for key, kept in list(self._kept.items())]
        return [(closed_at, report) for closed_at, report in revised if report is not None]

    def _let_go(self, keys: Iterable[Cell]) -> list[WindowReport]:
        """Forget windows; return their last lines."""
        reports = []
        for key in keys:
            report = self.revise(*key)
            if report is not None:
                reports.append(report)
            del self._kept[key]
            self._reports.pop(key, None)
        return reports

    def counts(self) -> RevisionsState:
        """The snapshot without its lines: they are in the reports, by series, window and revision."""
        kept = list(self._kept.values())
        keys = np.array(list(self._kept), dtype=np.int64).reshape(-1, 2)
        return RevisionsState(
            series=keys[:, 0].astype(np.int32),
            window=keys[:, 1],
            revision=np.array([one.revision for one in kept], dtype=np.int32),
            told=np.array([one.told for one in kept], dtype=np.int64),
            end_time=np.array([one.end_time for one in kept], dtype=np.float64),
            newest=list(self._newest.items()),
            missed=self.missed,
        )

    def snapshot(self) -> RevisionsState:
        """All that is kept."""
        lines = [kept.line.decode() for kept in self._kept.values()]
        return msgspec.structs.replace(self.counts(), lines=lines)

    def _restore(self, state: RevisionsState) -> None:
        arrays = state.series, state.window, state.revision, state.told, state.end_time
        columns = [array.tolist() for array in arrays]
        for series, window, revision, told, end_time, line in zip(*columns, state.lines, strict=True):
            if line is not None:
                self._kept[series, window] = _Kept(line.encode(), revision, told, end_time)
                self._of_series.setdefault(series, deque()).append(window)
        self._newest = dict(state.newest)
        self.missed = state.missed
