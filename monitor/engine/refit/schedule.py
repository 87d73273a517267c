"""The schedule of a task's refits: when the estimators that use labels are fitted again."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np


@dataclass(frozen=True, slots=True)
class RefitSchedule:
    """The settings of a task's schedule, which decides when estimators that use labels are fitted again.

    When a window of a model closes, a refit is due if one of three limits has been reached since the last
    refit began: a number of closed windows, a number of newly labelled rows, or a time. `tick` can make a
    refit due by time even if no window closes.

    Parameters
    ----------
    every_windows : int
        The number of closed windows of all models together (without groups); at least 1.
    every_labels : int
        The number of newly labelled rows; at least 1.
    every_seconds : float, optional
        The time, above 0; None if there is no limit of time.

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
        """Return the schedule, new or resumed from a snapshot."""
        return RefitScheduleLogic(self, resume)


class ScheduleState(msgspec.Struct, frozen=True):
    """The stored state of `RefitScheduleLogic`.

    `windows` and `labels` are the counts since the last refit began. `since` is the time when it began, in
    seconds.
    """

    due: bool = False
    number: int = 0
    windows: int = 0
    labels: int = 0
    since: float = np.inf


class RefitScheduleLogic:
    """The running schedule of one task, which counts windows, labels and time until a refit is due.

    Attributes
    ----------
    due : bool
        Whether a refit is due and has not begun. If another refit is running, or if there are too few rows,
        the refit begins later, as soon as possible.
    number : int
        The number of refits begun since the start.
    under_way : bool
        Whether a refit has begun and not ended. The snapshot does not include this attribute. After a restart
        of the agent, the lost refit is due again.
    """

    def __init__(self, settings: RefitSchedule, resume: ScheduleState | None = None) -> None:
        state = resume or ScheduleState()
        self._settings = settings
        self.due, self.number, self.under_way = state.due, state.number, False
        self._windows, self._labels, self._since = state.windows, state.labels, state.since

    def labels_came(self, count: int) -> None:
        """Count newly labelled rows."""
        self._labels += count

    def window_closed(self, now: float) -> None:
        """Count a window of a model (not of a group) that closed at the time `now`, in seconds."""
        self._windows += 1
        settings = self._settings
        enough = self._windows >= settings.every_windows or self._labels >= settings.every_labels
        self.due |= enough
        self.tick(now)

    def tick(self, now: float) -> None:
        """Set the time, in seconds. At the first call, the wait for `every_seconds` begins."""
        if np.isneginf(now):
            return  # no record has had a time yet
        self._since = min(self._since, now)
        if self._settings.every_seconds is not None:
            self.due |= now - self._since >= self._settings.every_seconds

    def begin(self, now: float) -> int:
        """Begin a refit: reset all counts, and return the refit's number, from 1."""
        self.number += 1
        self.due, self.under_way = False, True
        self._windows, self._labels, self._since = 0, 0, now
        return self.number

    def end(self) -> None:
        """Record that the running refit has ended, with a result or a refusal."""
        self.under_way = False

    def snapshot(self) -> ScheduleState:
        """Return the state, which contains all counts."""
        due = self.due or self.under_way
        return ScheduleState(due, self.number, self._windows, self._labels, self._since)
