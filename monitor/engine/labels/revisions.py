"""Revisions: further reports of a closed window, written because more of its rows have got labels.

When a window closes, its first report (a line of JSON) is written, with the labels known at that time. A
further line is written when the number of labelled rows becomes 1, and each time it has doubled since the
last line. This line repeats the report with the newest realised accuracy. While the correction stores the
window, the line also has the newest corrected accuracy, beside the corrected accuracy at the close. When the
window is dropped, a last line is written if its results have changed. So a window of n rows has at most
log2(n) + 3 lines, and the newest line includes at least half of its labels.

A window is dropped when a later window of its series ends more than the label horizon after it. If a task has
more than `keep` windows, or a series more than `keep_each`, the oldest windows are dropped too. These rules
depend only on the sequence of the records, not on a clock. So the same stream gives the same lines in the
same order, also after an interruption.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec
import numpy as np

from monitor.base.names import REALISED
from monitor.base.records import Floats, Ints
from monitor.base.results import Result
from monitor.engine.labels.tally import Cell, Cells, Tally
from monitor.reports.reader import from_json
from monitor.reports.views import MetricEstimate
from monitor.reports.window_report import WindowReport, revised, to_json

FEWEST_KEPT = 1000
"""The windows of a task that are always kept (2 MB), and the largest number of reports kept as objects."""

Correction = Callable[[int], MetricEstimate | None]
"""The type of a function that returns the corrected accuracy of a window by its number."""


@dataclass(slots=True)
class _Kept:
    """The newest line of a window, the number of labelled rows in it, and the end and close of the window."""

    line: bytes
    revision: int
    labelled: int
    end_time: float
    closed_at: int = -1

    @property
    def due(self) -> int:
        return max(1, 2 * self.labelled)


class RevisionsState(msgspec.Struct, frozen=True):
    """The stored state of `Revisions`: the windows that are kept, as columns, and each series' newest one.

    `lines` contains the last report of each window. The store reads these reports from its table of reports.
    It finds them by `names`, the model and the group of each series. A line is None if the store has already
    deleted the report.
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


class Revisions:
    """The closed windows of one task that may get further reports because of late labels.

    Parameters
    ----------
    keep : int
        The largest number of closed windows to keep, over all series.
    keep_each : int
        The largest number of closed windows to keep in each series. `Tally` must keep at least this number.
    horizon_seconds : float
        A window is dropped when a later window of its series ends more than this time after it.
    level : float
        The level of the intervals.
    resume : RevisionsState, optional
        A snapshot.

    Attributes
    ----------
    keep : int
        See the parameters.
    missed : int
        The number of rows whose labels came too late for a revision, because the window had been dropped.
    changed : bool
        Whether the state has changed since the last checkpoint.

    Raises
    ------
    ValueError
        A number is below 1, or the horizon is not above 0.
    """

    def __init__(
        self,
        keep: int,
        keep_each: int,
        horizon_seconds: float,
        level: float,
        resume: RevisionsState | None = None,
    ) -> None:
        for name, value in (("keep", keep), ("keep_each", keep_each)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1 window, got {value}")
        if not horizon_seconds > 0:
            raise ValueError(f"horizon_seconds must be above 0, got {horizon_seconds}")
        self.keep, self._keep_each = keep, keep_each
        self._horizon_seconds, self._level = horizon_seconds, level
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
        """Add the next series of the task, with its counts of labels and its corrected accuracy.

        Parameters
        ----------
        tally : Tally
            The counts of the series' labelled rows.
        corrected : callable, optional
            Takes the number of a window, and returns its accuracy corrected by all labels so far. Returns
            None if the correction does not store the window, or if there are no labels.
        """
        self._tallies.append(tally)
        self._corrections.append(corrected)

    def closed(self, series: int, report: WindowReport, closed_at: int) -> list[WindowReport]:
        """Add a window that has closed; return the last reports of the windows that it displaces.

        `closed_at` is the sequence number of the record that closed the window. A window whose report has no
        realised accuracy is not added.
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
        while len(own) > 1 and (len(own) > self._keep_each or self._is_over(series, report)):
            dropped.append((series, own[0]))
            own.popleft()
        reports = self._drop(dropped)
        while len(self._kept) > self.keep:
            oldest = next(iter(self._kept))
            self._of_series[oldest[0]].popleft()
            reports += self._drop([oldest])
        return reports

    def _labelled(self, series: int, window: int) -> int:
        """Return the number of a window's labelled rows."""
        return self._tallies[series].counts(window)[0]

    def _is_over(self, series: int, report: WindowReport) -> bool:
        oldest = self._kept[series, self._of_series[series][0]]
        return report.end_time - oldest.end_time > self._horizon_seconds

    def crossings(self, cells: Cells) -> list[tuple[int, Cell]]:
        """Return the sequence numbers at which these labels make reports due, sorted.

        Each comes with the cell (series and window) of the report. Labels of dropped windows are counted in
        `missed`. Call this method once for new labels, before they are added to the counts of windows.
        """
        crossings: list[tuple[int, Cell]] = []
        for cell in cells:
            sequence = cells.newly_labelled(cell)
            kept = self._kept.get(cell)
            if kept is not None:
                crossings += ((place, cell) for place in self._due_at(kept, cell, sequence))
            elif sequence and cell[1] <= self._newest.get(cell[0], -1):
                self.missed += len(sequence)
                self.changed = True
        return sorted(crossings)

    def _due_at(self, kept: _Kept, cell: Cell, sequence: list[int]) -> list[int]:
        """Return the sequence numbers at which further lines of the window are due."""
        before = self._labelled(*cell)
        due, places = kept.due, []
        while (row := max(due - before - 1, 0)) < len(sequence):
            place = sequence[row]
            places.append(place)
            due = 2 * (before + bisect_right(sequence, place))
        return places

    def revise(self, series: int, window: int) -> WindowReport | None:
        """Return the next report of a window; None without labels, or if it would equal the last report."""
        cell = series, window
        kept, labelled = self._kept[cell], self._labelled(series, window)
        if not labelled:
            return None
        before = self._reports.pop(cell, None) or from_json(kept.line)
        # The comparison is with the last line: a label that was changed and changed back makes no new line.
        tally = self._tallies[series]
        realised = tally.realised(window, self._level)
        corrected = self._corrections[series](window)

        def error(metric: str) -> Result:
            return tally.realised_error(metric, window, self._level)

        report = revised(before, kept.line, REALISED, realised, corrected, error)
        self._remember(cell, report or before)
        if report is not None:
            kept.line, kept.revision, kept.labelled = report.line, report.revision, labelled
            self.changed = True
        return report

    def _remember(self, cell: Cell, report: WindowReport) -> None:
        """Keep the newest reports as objects. Parsing a line would take as long as writing it."""
        self._reports[cell] = report
        if len(self._reports) > FEWEST_KEPT:
            self._reports.popitem(last=False)

    def finish(self) -> list[tuple[int, WindowReport]]:
        """Return a last report for each window that has changed since its previous report.

        Call this method at the end of the input. Each report comes with the sequence number of the record
        that closed the window. This number is −1 if the window closed before a restart.
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
        """Return the state without the lines, which a store already has in its table of reports."""
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
