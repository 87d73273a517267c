"""The schedule of a task's refits: when the estimators that use labels are fitted again."""

from __future__ import annotations

import msgspec
import numpy as np


class ScheduleState(msgspec.Struct, frozen=True):
    """The stored state of `RefitSchedule`.

    `windows` and `labels` are the counts since the last refit began. `since` is the time when it began, in
    seconds.
    """

    due: bool = False
    number: int = 0
    windows: int = 0
    labels: int = 0
    since: float = np.inf


class RefitSchedule:
    """The schedule of one task, which decides when the estimators that use labels are fitted again.

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
    resume : ScheduleState, optional
        A snapshot.

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

    Raises
    ------
    ValueError
        A number is out of its range.

    Examples
    --------
    >>> schedule = RefitSchedule(every_windows=2, every_labels=25)
    >>> schedule.window_closed(now=0.0)
    >>> schedule.due
    False
    >>> schedule.window_closed(now=1.0)
    >>> schedule.due, schedule.begin(now=1.0), schedule.due
    (True, 1, False)
    """

    def __init__(
        self,
        every_windows: int,
        every_labels: int,
        every_seconds: float | None = None,
        *,
        resume: ScheduleState | None = None,
    ) -> None:
        for name, value in (("every_windows", every_windows), ("every_labels", every_labels)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if every_seconds is not None and not every_seconds > 0:
            raise ValueError(f"every_seconds must be above 0 or None, got {every_seconds}")
        state = resume or ScheduleState()
        self._every_windows, self._every_labels = every_windows, every_labels
        self._every_seconds = every_seconds
        self.due, self.number, self.under_way = state.due, state.number, False
        self._windows, self._labels, self._since = state.windows, state.labels, state.since

    def labels_came(self, count: int) -> None:
        """Count newly labelled rows."""
        self._labels += count

    def window_closed(self, now: float) -> None:
        """Count a window of a model (not of a group) that closed at the time `now`, in seconds."""
        self._windows += 1
        self.due |= self._windows >= self._every_windows or self._labels >= self._every_labels
        self.tick(now)

    def tick(self, now: float) -> None:
        """Pass the current time to the schedule, in seconds.

        The first call begins the wait for `every_seconds`.
        """
        if np.isneginf(now):
            return  # no record has had a time yet
        self._since = min(self._since, now)
        if self._every_seconds is not None:
            self.due |= now - self._since >= self._every_seconds

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
        """Return the state of the schedule, which contains all counts."""
        due = self.due or self.under_way
        return ScheduleState(due, self.number, self._windows, self._labels, self._since)
