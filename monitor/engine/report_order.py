"""A line of the reports with its place in a stream, so that those of its parts can be put together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from monitor.engine.windows import ClosedWindow
from monitor.reports.window_report import WindowReport


class Phase(IntEnum):
    """What brings a line at a place in the stream, in the order in which lines come."""

    REACHED = 0
    """Labels have reached a closed window."""
    CLOSED = 1
    """A window closed: its line, and the last ones of windows that are let go of for it."""
    COMPARED = 2
    """The input has ended: the open windows of arenas."""
    ENDED = 3
    """The input has ended: lines of windows that labels have changed since their last one."""


class StreamPosition(NamedTuple):
    """Where a line stands: lines of one stream, sorted by it, are in the order in which they are written.

    Lines with equal places are of one series, whose own order holds. Of several tasks, the lines of
    `Phase.COMPARED` and of `Phase.ENDED` are in the order of the configuration: see `task_number`.

    Parameters
    ----------
    sequence : int
        Of the record with which the line came about; `monitor.engine.windows.LAST` after the last one.
    phase : Phase
    closed_at : int
        In `Phase.ENDED`, the sequence of the record that closed the window; else 0.
    task, model, group : str
        Of the window; of the last line of a window that is let go of, those of the window it goes for.

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
    def of_closing(cls, window: ClosedWindow) -> StreamPosition:
        """Where a window stands among those that close together: the same however the stream was cut."""
        return cls(window.closed_at, Phase.CLOSED, 0, *window.series)

    def task_number(self, tasks: Sequence[str]) -> int:
        """What lines are sorted by after their phase: the number of the task among all, 0 before the end."""
        return tasks.index(self.task) if self.phase > Phase.CLOSED else 0


@dataclass(frozen=True, slots=True)
class OrderedReport:
    """A report, and where it stands."""

    position: StreamPosition
    report: WindowReport
