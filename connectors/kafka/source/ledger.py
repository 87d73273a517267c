"""The positions of each partition: up to where records are handed out, absorbed and committed.

Records are handed out when the source returns them to the agent. They are absorbed when the agent has used
them and saved its state. They are committed when the group's brokers have stored the position after them. The
ledger is the only part of the source that several threads use.

A position that leaves the source names its log by the id of the topic: the offsets of a topic that was
deleted and created again have nothing to do with the former ones. Brokers before 2.8 have no such ids. For
them a position has the epoch and the time of the last record instead. A position of an older version of the
agent is a whole number.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from connectors.kafka.drivers.base import NO_STAMP, Stamp, partition_of

Stored = int | Mapping[str, Any]
"""A position as the agent saves it: an offset, or the fields of `LogPosition`."""


class LogPosition(NamedTuple):
    """A position in one log, that is, in one life of a topic.

    Parameters
    ----------
    at : int
        The offset after the last record.
    log : str
        The id of the topic; empty if unknown.
    end : int
        The end of the log, as far as it was known; 0 if unknown.
    epoch, time : int
        The `Stamp` of the record before `at`; -1 if unknown, or if the topic has an id.
    """

    at: int
    log: str = ""
    end: int = 0
    epoch: int = -1
    time: int = -1

    @property
    def stamp(self) -> Stamp:
        """The stamp of the record before the position."""
        return Stamp(self.epoch, self.time)


def log_position(stored: Stored) -> LogPosition:
    """Convert a position that the agent has saved.

    Examples
    --------
    >>> log_position(40).at, log_position({"at": 40, "log": "x", "end": 50})
    (40, LogPosition(at=40, log='x', end=50, epoch=-1, time=-1))
    """
    return LogPosition(stored) if isinstance(stored, int) else LogPosition(**stored)


@dataclass(slots=True)
class _Place:
    """The positions of one partition, each the offset after a last record.

    `first` and `read` bound the records that were handed out since reading began there; both are None before.
    `log` is the id of the topic of these offsets, `end` is that log's end as far as it is known, and `stamp`
    is the stamp of the record before the position.
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
    """The positions by partition, from the store, from reading, and from the agent's acknowledgements.

    Several threads may use it.

    Parameters
    ----------
    positions : mapping of str to Stored
        The saved positions by the name of the partition, such as ``topic-3``.

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
        """Replace all positions of a partition by one from a store, with which its state has come."""
        known = LogPosition(0) if stored is None else log_position(stored)
        resume = None if stored is None else known.at
        with self._lock:
            self._places[name] = _Place(resume=resume, log=known.log, end=known.end, stamp=known.stamp)

    def resume(self, name: str) -> int | None:
        """Return the position at which reading of a partition continues, or None if there is none.

        It is the position after the records that were handed out, or else the saved one.
        """
        with self._lock:
            place = self._places.get(name)
            if place is None:
                return None
            return place.read if place.read is not None else place.resume

    def drop(self, name: str) -> None:
        """Remove a partition, whose log no longer exists."""
        with self._lock:
            self._places.pop(name, None)

    def names(self) -> list[str]:
        """Return the names of the partitions in the ledger."""
        with self._lock:
            return [*self._places]

    def topics(self) -> set[str]:
        """Return the topics of these partitions, which this source or an earlier one has read."""
        return {partition_of(name).topic for name in self.names()}

    def known(self, name: str) -> LogPosition:
        """Return the position of `resume` with the facts about its log, or position 0 if there is none."""
        with self._lock:
            place = self._places.get(name, _Place())
            at = place.read if place.read is not None else place.resume
            return LogPosition(at or 0, place.log, place.end, *place.stamp)

    def told(self, name: str, log: str, end: int = 0) -> None:
        """Record the id of the log in which a partition is read, and its end if that is known."""
        with self._lock:
            place = self._places.setdefault(name, _Place())
            place.log = log or place.log
            if place.read is not None and place.read != place.first:  # else no fetch has told it of this log
                place.end = max(end, place.end)

    def handed_out(self, name: str, first: int, after: int, last: Stamp = NO_STAMP) -> Stored:
        """Record that messages went to the agent, and return the position after them.

        Parameters
        ----------
        name : str
            The partition.
        first, after : int
            The offset of the first message, and the offset after the last one.
        last : Stamp
            The stamp of the last message.
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
        """Set all positions of a partition to one that another member of the group has reached."""
        with self._lock:
            old = self._places.get(name, _Place())
            self._places[name] = _Place(
                position, position, position, position, position, log=old.log, end=old.end
            )

    def begun(self, name: str, position: int, log: str | None = None) -> None:
        """Record that reading of a partition begins at a position.

        Nobody had read the partition before, or its log was replaced by another one. The next commit tells
        the group the position. Otherwise an owner that gets the partition before a record came would look for
        its own beginning, which at `latest` is another one, or would count a gap again.

        Parameters
        ----------
        name : str
            The partition.
        position : int
        log : str, optional
            The id of the new log; by default the log is the same.
        """
        with self._lock:
            old = self._places.get(name, _Place())
            log, end = (old.log, old.end) if log is None else (log, 0)
            self._places[name] = _Place(position, position, position, position, log=log, end=end)

    def absorb(self, positions: Mapping[str, Stored | None]) -> None:
        """Record that all messages before these positions have been used.

        A partition with None was dropped. A position outside of the messages that were handed out is ignored:
        a store also names partitions that another member of the group has read further meanwhile, and logs
        that no longer exist.
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
        """Return whether any of these partitions has messages that were handed out and not absorbed yet."""
        with self._lock:
            return any(
                place.read is not None and place.absorbed != place.read
                for place in map(self._places.get, names)
                if place is not None
            )

    def to_commit(self, names: Iterable[str]) -> dict[str, int]:
        """Return the positions of these partitions that are absorbed and not committed yet."""
        with self._lock:
            places = [(name, self._places.get(name)) for name in names]
            return {
                name: place.absorbed
                for name, place in places
                if place is not None and place.absorbed is not None and place.absorbed != place.committed
            }

    def committed(self, positions: Mapping[str, int]) -> None:
        """Record that the group's brokers have stored these positions."""
        with self._lock:
            for name in positions.keys() & self._places.keys():
                self._places[name].committed = positions[name]
