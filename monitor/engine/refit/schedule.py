"""When a task's estimators that use labels are fitted anew."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np


@dataclass(frozen=True, slots=True)
class RefitSchedule:
    """Settings of the schedule of one task.

    A refit comes due as a window of a whole model closes, once enough windows have closed or enough rows
    have got their first label since the last refit began, or enough time has passed. Where the time of
    arrival is told in between (`tick`), it comes due by time then too.

    Parameters
    ----------
    every_windows : int
        Windows of whole models, of all of them together; at least 1.
    every_labels : int
        Rows that got their first label; at least 1.
    every_seconds : float, optional
        Above 0; None for no such rule.

    Raises
    ------
    ValueError
        A number is out of its range.

    Examples
    --------
    >>> schedule = RefitSchedule(every_windows=2, every_labels=25).build()
    >>> schedule.window_closed(now=0.0)
    >>> schedule.due
    False
    >>> schedule.window_closed(now=1.0)
    >>> schedule.due, schedule.begin(now=1.0), schedule.due
    (True, 1, False)
    """

    every_windows: int
    every_labels: int
    every_seconds: float | None = None

    def __post_init__(self) -> None:
        for name in ("every_windows", "every_labels"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.every_seconds is not None and not self.every_seconds > 0:
            raise ValueError(f"every_seconds must be above 0 or None, got {self.every_seconds}")

    def build(self, resume: ScheduleState | None = None) -> RefitScheduleLogic:
        """The schedule, from the start or from where a snapshot left it."""
        return RefitScheduleLogic(self, resume)


class ScheduleState(msgspec.Struct, frozen=True):
    """What a schedule has counted; `since` is the time from which it counts."""

    due: bool = False
    number: int = 0
    windows: int = 0
    labels: int = 0
    since: float = np.inf


class RefitScheduleLogic:
    """The schedule of one task at work.

    Attributes
    ----------
    due : bool
        Whether a refit is to begin. It stays so until one does: what is due while another is under way,
        or while there are too few rows, is done as soon as can be.
    number : int
        Refits begun since the start.
    under_way : bool
        One has begun and not ended. Not part of the snapshot: a restart loses it, so that it is due again.
    """

    def __init__(self, settings: RefitSchedule, resume: ScheduleState | None = None) -> None:
        state = resume or ScheduleState()
        self._settings = settings
        self.due, self.number, self.under_way = state.due, state.number, False
        self._windows, self._labels, self._since = state.windows, state.labels, state.since

    def labels_came(self, count: int) -> None:
        """So many rows have got their first label."""
        self._labels += count

    def window_closed(self, now: float) -> None:
        """A window of a whole model has closed, at this time in seconds."""
        self._windows += 1
        settings = self._settings
        enough = self._windows >= settings.every_windows or self._labels >= settings.every_labels
        self.due |= enough
        self.tick(now)

    def tick(self, now: float) -> None:
        """It is now so late, in seconds; the time counts from the first that is told."""
        if np.isneginf(now):
            return  # no record has told the time yet
        self._since = min(self._since, now)
        if self._settings.every_seconds is not None:
            self.due |= now - self._since >= self._settings.every_seconds

    def begin(self, now: float) -> int:
        """A refit begins; its number, from 1. Windows, labels and time count anew."""
        self.number += 1
        self.due, self.under_way = False, True
        self._windows, self._labels, self._since = 0, 0, now
        return self.number

    def end(self) -> None:
        """The refit under way has ended, however it did."""
        self.under_way = False

    def snapshot(self) -> ScheduleState:
        """All that is counted."""
        due = self.due or self.under_way
        return ScheduleState(due, self.number, self._windows, self._labels, self._since)
