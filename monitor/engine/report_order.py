"""Reports with their position in a stream, so that the reports of several parts can be merged in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from monitor.engine.windows import ClosedWindow
from monitor.reports.window_report import WindowReport


class Phase(IntEnum):
    """The event that makes a report, in the order of the reports of one record."""

    REACHED = 0
    """Labels matched answers of a closed window."""
    CLOSED = 1
    """A window closed: its report, and the final reports of old windows that it displaces."""
    COMPARED = 2
    """The input has ended: reports of open windows that need no evaluation."""
    ENDED = 3
    """The input has ended: final reports of windows that labels have changed since their last report."""


class StreamPosition(NamedTuple):
    """The place of a report among the reports of one stream, which are written in the order of these places.

    Reports with equal places belong to one series and keep its order. With several tasks, reports of
    `Phase.COMPARED` and `Phase.ENDED` are in the order of the configuration: see `task_number`.

    Parameters
    ----------
    sequence : int
        The sequence number of the record that caused the report; `monitor.engine.windows.LAST` after the last
        record.
    phase : Phase
        The kind of event that caused the report.
    closed_at : int
        In `Phase.ENDED` the sequence number of the record that closed the window; otherwise 0.
    task, model, group : str
        The window's series; for the final report of a displaced window, the series of the window that
        displaces it.

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
        """Return the position of a closed window, which does not depend on how the stream was divided."""
        return cls(window.closed_at, Phase.CLOSED, 0, *window.series)

    def task_number(self, tasks: Sequence[str]) -> int:
        """Return the sort key after the phase: the task's number at the end of the input, 0 before it."""
        return tasks.index(self.task) if self.phase > Phase.CLOSED else 0


@dataclass(frozen=True, slots=True)
class OrderedReport:
    """A report with its position in the stream."""

    position: StreamPosition
    report: WindowReport
