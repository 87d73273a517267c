"""Where each partition stands: handed out, absorbed, committed. The only part that several threads touch.

A position that leaves names its log, by the id of the topic: offsets of a topic that was deleted and created
again say nothing of the new one. Brokers before 2.8 have no such ids: there a position has the epoch and the
time of the last record instead. A whole number is a position of an older version.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from connectors.kafka.drivers.base import NO_STAMP, Stamp, partition_of

Stored = int | Mapping[str, Any]
"""A position as the agent keeps it: an offset, or the fields of `LogPosition`."""


class LogPosition(NamedTuple):
    """A position in one log.

    Parameters
    ----------
    at : int
        Offset after the last record.
    log : str
        Id of the topic; empty where unknown.
    end : int
        The end of the log as far as it was known; 0 where unknown.
    epoch, time : int
        The `Stamp` of the record before `at`; -1 where unknown, or where the topic has an id.
    """

    at: int
    log: str = ""
    end: int = 0
    epoch: int = -1
    time: int = -1

    @property
    def stamp(self) -> Stamp:
        """That of the record before it."""
        return Stamp(self.epoch, self.time)


def log_position(stored: Stored) -> LogPosition:
    """A position that the agent has kept.

    Examples
    --------
    >>> log_position(40).at, log_position({"at": 40, "log": "x", "end": 50})
    (40, LogPosition(at=40, log='x', end=50, epoch=-1, time=-1))
    """
    return LogPosition(stored) if isinstance(stored, int) else LogPosition(**stored)


@dataclass(slots=True)
class _Place:
    """One partition, as positions after the last record.

    `first` and `read` bound what was handed out since reading (re)started there; both None before.
    `log` is the id of the topic that they count in, `end` that log's end as far as it is known, and `stamp`
    that of the record before the position.
    """

    resume: int | None = None
    first: int | None = None
    read: int | None = None
    absorbed: int | None = None
    committed: int | None = None
    log: str = ""
    end: int = 0
    stamp: Stamp = NO_STAMP


class PositionLedger:
    """Positions by partition name (``topic-3``), from the store, from reading, and from what was absorbed.

    Safe to use from several threads.

    Examples
    --------
    >>> ledger = PositionLedger({"clicks-0": 40})
    >>> ledger.resume("clicks-0"), ledger.resume("clicks-1")
    (40, None)
    >>> ledger.handed_out("clicks-0", first=40, after=60)
    60
    >>> ledger.outstanding(["clicks-0"])
    True
    >>> ledger.absorb({"clicks-0": 50})
    >>> ledger.to_commit(["clicks-0"])
    {'clicks-0': 50}
    """

    def __init__(self, positions: Mapping[str, Stored]) -> None:
        self._lock = threading.Lock()
        known = {name: log_position(stored) for name, stored in positions.items()}
        self._places = {
            name: _Place(resume=each.at, log=each.log, end=each.end, stamp=each.stamp)
            for name, each in known.items()
        }

    def restore(self, name: str, stored: Stored | None) -> None:
        """Forget what is known of a partition: its state has come from a store, with this position."""
        known = LogPosition(0) if stored is None else log_position(stored)
        resume = None if stored is None else known.at
        with self._lock:
            self._places[name] = _Place(resume=resume, log=known.log, end=known.end, stamp=known.stamp)

    def resume(self, name: str) -> int | None:
        """Where reading of a partition goes on: after what was handed out, else the opening position."""
        with self._lock:
            place = self._places.get(name)
            if place is None:
                return None
            return place.read if place.read is not None else place.resume

    def drop(self, name: str) -> None:
        """Forget a partition, whose log is gone."""
        with self._lock:
            self._places.pop(name, None)

    def names(self) -> list[str]:
        """Return the partitions of which anything is known."""
        with self._lock:
            return [*self._places]

    def topics(self) -> set[str]:
        """The topics of which any partition has been read, here or by whoever kept the positions."""
        return {partition_of(name).topic for name in self.names()}

    def known(self, name: str) -> LogPosition:
        """As `resume`, with what is known of the log; position 0 where none is."""
        with self._lock:
            place = self._places.get(name, _Place())
            at = place.read if place.read is not None else place.resume
            return LogPosition(at or 0, place.log, place.end, *place.stamp)

    def told(self, name: str, log: str, end: int = 0) -> None:
        """Hear the id of the log in which a partition is read, and perhaps its end."""
        with self._lock:
            place = self._places.setdefault(name, _Place())
            place.log = log or place.log
            if place.read is not None and place.read != place.first:  # else no fetch has told it of this log
                place.end = max(end, place.end)

    def handed_out(self, name: str, first: int, after: int, last: Stamp = NO_STAMP) -> Stored:
        """Records from `first` up to, not including, `after` went to the agent; the position behind them.

        `last` is the stamp of the last one.
        """
        with self._lock:
            place = self._places.setdefault(name, _Place())
            if place.read is None or first < place.read:
                # The first read, or the topic was made anew: older positions say nothing of this log.
                place.first, place.absorbed, place.committed = first, None, None
            place.read, place.stamp = after, NO_STAMP if place.log else last
            if place.log:
                return {"at": after, "log": place.log, "end": max(place.end, after)}
            if place.stamp == NO_STAMP:
                return after
            return LogPosition(after, "", max(place.end, after), *place.stamp)._asdict()

    def overtaken(self, name: str, position: int) -> None:
        """Another member of the group has taken this partition further, up to `position`."""
        with self._lock:
            old = self._places.get(name, _Place())
            self._places[name] = _Place(
                position, position, position, position, position, log=old.log, end=old.end
            )

    def begun(self, name: str, position: int, log: str | None = None) -> None:
        """Reading begins here, as nobody had read the partition, or its log has changed: to this one.

        The group is to hear it with the next commit: whoever gets the partition before a record came would
        else look for a beginning of its own, which at `latest` is another one, or count a gap again.
        """
        with self._lock:
            old = self._places.get(name, _Place())
            log, end = (old.log, old.end) if log is None else (log, 0)
            self._places[name] = _Place(position, position, position, position, log=log, end=end)

    def absorb(self, positions: Mapping[str, Stored | None]) -> None:
        """Everything before these positions has been used.

        One that is None was dropped. A position outside of what was handed out is left aside: a store also
        names partitions that another member of the group has taken further in the meantime, and logs that
        are gone.
        """
        with self._lock:
            for name, stored in positions.items():
                place = self._places.get(name)
                if stored is None or place is None or place.first is None or place.read is None:
                    continue
                position, log, *_ = log_position(stored)
                if log in ("", place.log) and place.first <= position <= place.read:
                    place.absorbed = position

    def outstanding(self, names: Iterable[str]) -> bool:
        """Whether any of these partitions has records handed out and not absorbed yet."""
        with self._lock:
            return any(
                place.read is not None and place.absorbed != place.read
                for place in map(self._places.get, names)
                if place is not None
            )

    def to_commit(self, names: Iterable[str]) -> dict[str, int]:
        """For these partitions, what is absorbed and not committed yet."""
        with self._lock:
            places = [(name, self._places.get(name)) for name in names]
            return {
                name: place.absorbed
                for name, place in places
                if place is not None and place.absorbed is not None and place.absorbed != place.committed
            }

    def committed(self, positions: Mapping[str, int]) -> None:
        """The group's brokers have these positions now."""
        with self._lock:
            for name in positions.keys() & self._places.keys():
                self._places[name].committed = positions[name]
