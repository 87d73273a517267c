"""The clock of a replay, which follows the times of the records and ignores single wrong times."""

from __future__ import annotations

import msgspec
import numpy as np

from monitor.base.records import Floats

LEAP_SECONDS = 7 * 86_400.0
"""The largest step, in seconds, by which a single record may advance the clock."""


class EventClock(msgspec.Struct):
    """A clock that shows the largest time of the records so far.

    A record's time may be wrong, because of a sender's clock or a typing error. A single wrong time must not
    make all later windows too old and all waiting labels too late. So the clock ignores a time more than
    `LEAP_SECONDS` ahead, unless the next record's time is as far ahead. The clock always uses the time of the
    first record.

    Parameters
    ----------
    now : float
        The time of the clock at the last record, in seconds; -inf before the first record.
    last : float
        The last record's own time, in seconds.

    Examples
    --------
    >>> clock = EventClock()
    >>> clock.advance(np.array([10.0, 12.0, 11.0, 4e9, 13.0])).tolist()
    [10.0, 12.0, 12.0, 12.0, 13.0]
    >>> clock.advance(np.array([4e9, 4e9 + 1, np.nan])).tolist()
    [13.0, 4000000001.0, 4000000001.0]
    """

    now: float = -np.inf
    last: float = -np.inf

    def advance(self, times: Floats) -> Floats:
        """Advance the clock over records, and return the time of the clock at each record, of shape (n,).

        Parameters
        ----------
        times : (n,) float64
            The times of the records, in order; NaN for a record without a time.
        """
        if not len(times):
            return times
        known = np.where(np.isnan(times), -np.inf, times)
        marks: Floats = np.maximum.accumulate(np.maximum(known, self.now))
        before = np.concatenate([[self.now], marks[:-1]])
        if np.any((marks > before + LEAP_SECONDS) & (before > -np.inf)):
            marks = self._one_by_one(known)
        self.now = float(marks[-1])
        self.last = float(known[-1])
        return marks

    def follow(self, now: float) -> None:
        """Set the clock to the time of another clock that follows the whole stream."""
        self.now = now

    def _one_by_one(self, times: Floats) -> Floats:
        marks = np.empty_like(times)
        now, last = self.now, self.last
        for i, time in enumerate(times.tolist()):
            believed = now == -np.inf or time <= now + LEAP_SECONDS or last >= time - LEAP_SECONDS
            now, last = (max(now, time) if believed else now), time
            marks[i] = now
        return marks
