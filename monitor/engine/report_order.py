"""The position of a report in a stream, by which the reports of several engines are merged in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from monitor.engine.windows import ClosedWindow
from monitor.reports.window_report import WindowReport


class Phase(IntEnum):
    """The kind of event that causes a report. Reports caused by the same record are sorted by their kind."""

    REACHED = 0
    """Labels matched answers of a closed window, so its report is revised."""
    CLOSED = 1
    """A window closed: its report, then last reports of old windows that are dropped because of it."""
    COMPARED = 2
    """The input has ended: reports of open windows that a task made itself, without an evaluation."""
    ENDED = 3
    """The input has ended: last reports of windows that labels have changed since their previous report."""


class StreamPosition(NamedTuple):
    """The sort key of a report among the reports of one stream.

    Reports with equal keys belong to one series and keep their order. If there are several tasks, reports of
    `Phase.COMPARED` and `Phase.ENDED` are sorted by the order of the tasks in the configuration: see
    `task_number`.

    Parameters
    ----------
    sequence : int
        The sequence number of the record that caused the report. After the last record, it is
        `monitor.engine.windows.LAST`.
    phase : Phase
        The kind of event that caused the report.
    closed_at : int
        In `Phase.ENDED` the sequence number of the record that closed the window; otherwise 0.
    task, model, group : str
        The series of the window. The last report of a dropped window has the series of the window whose
        closing dropped it.

    Examples
    --------
    >>> late = StreamPosition(7, Phase.REACHED, 0, "t", "b", "")
    >>> late < StreamPosition(7, Phase.CLOSED, 0, "t", "a", "")
    True
    """

    sequence: int
    phase: Phase
    closed_at: int
    task: str
    model: str
    group: str

    @classmethod
    def from_window(cls, window: ClosedWindow) -> StreamPosition:
        """Return the position of the report of a closed window.

        The position does not depend on the division of the stream into chunks.
        """
        return cls(window.closed_at, Phase.CLOSED, 0, *window.series)

    def task_number(self, tasks: Sequence[str]) -> int:
        """Return the sort key that follows the phase.

        At the end of the input, it is the index of the task in `tasks`. Before the end, it is 0.
        """
        return tasks.index(self.task) if self.phase > Phase.CLOSED else 0


@dataclass(frozen=True, slots=True)
class OrderedReport:
    """A report with its position in the stream."""

    position: StreamPosition
    report: WindowReport
