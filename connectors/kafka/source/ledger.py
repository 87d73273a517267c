"""The positions up to which the records of each partition were handed out, absorbed and committed.

A record is *handed out* when the source returns it to the agent. It is *absorbed* when the agent has used it
and saved its state. It is *committed* when the brokers have stored the position after it for the group.
Several threads use the ledger.

A topic that was deleted and created again has a new log. The offsets of the new log are unrelated to the
offsets of the old log. A saved position therefore contains the id of the topic. Brokers before 2.8 have no
ids of topics. With such brokers, a position contains the epoch and the timestamp of the last record instead.
Older versions of the agent saved a whole number as the position.
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
    """A position in the log of a partition, with properties that identify the log.

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
        """The stamp (leader epoch and timestamp) of the record before the position."""
        return Stamp(self.epoch, self.time)


def log_position(stored: Stored) -> LogPosition:
    """Convert a position that the agent has saved to a `LogPosition`.

    Examples
    --------
    >>> log_position(40).at, log_position({"at": 40, "log": "x", "end": 50})
    (40, LogPosition(at=40, log='x', end=50, epoch=-1, time=-1))
    """
    return LogPosition(stored) if isinstance(stored, int) else LogPosition(**stored)


@dataclass(slots=True)
class _Place:
    """The positions of one partition, each the offset after a record.

    `resume` is the saved position. `first` and `read` bound the records that were handed out since reading
    began; both are None before that. `absorbed` and `committed` are the last absorbed and the last committed
    position. `log` is the id of the topic, `end` is the end of the log as far as it is known, and `stamp`
    belongs to the record before the position. A value is None, empty or 0 if it is unknown.
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
    """The positions of all partitions: those that are saved, handed out, absorbed and committed.

    Several threads may use a ledger.

    Parameters
    ----------
    positions : mapping of str to Stored
        The saved positions by the name of the partition, such as ``topic-3``.

    Examples
    --------
    >>> ledger = PositionLedger({"clicks-0": 40})
    >>> ledger.resume_position("clicks-0"), ledger.resume_position("clicks-1")
    (40, None)
    >>> ledger.record_handed_out("clicks-0", first=40, after=60)
    60
    >>> ledger.has_outstanding(["clicks-0"])
    True
    >>> ledger.absorb({"clicks-0": 50})
    >>> ledger.positions_to_commit(["clicks-0"])
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
        """Replace the positions of a partition with the position that was saved together with its state.

        Parameters
        ----------
        name : str
            The partition.
        stored : Stored or None
            None if the state has no position.
        """
        known = LogPosition(0) if stored is None else log_position(stored)
        resume = None if stored is None else known.at
        with self._lock:
            self._places[name] = _Place(resume=resume, log=known.log, end=known.end, stamp=known.stamp)

    def resume_position(self, name: str) -> int | None:
        """Return the offset at which reading of a partition continues, or None if no offset is known.

        The offset follows the records that were handed out. If none were handed out, it is the saved
        position.
        """
        with self._lock:
            place = self._places.get(name)
            if place is None:
                return None
            return place.read if place.read is not None else place.resume

    def drop(self, name: str) -> None:
        """Remove a partition whose log no longer exists."""
        with self._lock:
            self._places.pop(name, None)

    def names(self) -> list[str]:
        """Return the names of the partitions in the ledger."""
        with self._lock:
            return [*self._places]

    def topics(self) -> set[str]:
        """Return the topics of the partitions in the ledger, which this source or an earlier one has read."""
        return {partition_of(name).topic for name in self.names()}

    def position_in_log(self, name: str) -> LogPosition:
        """Return the position where reading continues, with the known properties of its log.

        The offset is 0 if no position is known.
        """
        with self._lock:
            place = self._places.get(name, _Place())
            at = place.read if place.read is not None else place.resume
            return LogPosition(at or 0, place.log, place.end, *place.stamp)

    def record_log(self, name: str, log: str, end: int = 0) -> None:
        """Record the id of the log from which a partition is read, and the end of this log if it is known."""
        with self._lock:
            place = self._places.setdefault(name, _Place())
            place.log = log or place.log
            if place.read is not None and place.read != place.first:  # a fetch has reported `end`
                place.end = max(end, place.end)

    def record_handed_out(self, name: str, first: int, after: int, last: Stamp = NO_STAMP) -> Stored:
        """Record that messages were handed out to the agent, and return the position after them.

        Parameters
        ----------
        name : str
            The partition.
        first, after : int
            The offset of the first message, and the offset after the last message.
        last : Stamp
            The stamp of the last message.
        """
        with self._lock:
            place = self._places.setdefault(name, _Place())
            if place.read is None or first < place.read:
                # The first read, or the topic was created again: older positions belong to another log.
                place.first, place.absorbed, place.committed = first, None, None
            place.read, place.stamp = after, NO_STAMP if place.log else last
            if place.log:
                return {"at": after, "log": place.log, "end": max(place.end, after)}
            if place.stamp == NO_STAMP:
                return after
            return LogPosition(after, "", max(place.end, after), *place.stamp)._asdict()

    def record_takeover(self, name: str, position: int) -> None:
        """Set all positions of a partition to the position that another member of the group has reached."""
        with self._lock:
            old = self._places.get(name, _Place())
            self._places[name] = _Place(
                position, position, position, position, position, log=old.log, end=old.end
            )

    def record_start(self, name: str, position: int, log: str | None = None) -> None:
        """Record that reading of a partition begins at a position, which the next commit stores in the group.

        Call this method if nobody has read the partition before, or if its log was replaced. The position is
        committed even if no record arrives. Without this commit, the next owner would choose the start again.
        With `latest`, it would choose a later offset. After a gap, it would count the gap a second time.

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
        """Record that the agent has used all messages before these positions.

        The method ignores a partition with the position None, because such a partition was dropped. It also
        ignores a position outside of the messages that were handed out. Such a position is an old one from
        the store: another member of the group may have read the partition further since, or the log may no
        longer exist.
        """
        with self._lock:
            for name, stored in positions.items():
                place = self._places.get(name)
                if stored is None or place is None or place.first is None or place.read is None:
                    continue
                position, log, *_ = log_position(stored)
                if log in ("", place.log) and place.first <= position <= place.read:
                    place.absorbed = position

    def has_outstanding(self, names: Iterable[str]) -> bool:
        """Return whether any of these partitions has messages that were handed out but not absorbed."""
        with self._lock:
            return any(
                place.read is not None and place.absorbed != place.read
                for place in map(self._places.get, names)
                if place is not None
            )

    def positions_to_commit(self, names: Iterable[str]) -> dict[str, int]:
        """Return the absorbed positions of these partitions that are not committed yet."""
        with self._lock:
            places = [(name, self._places.get(name)) for name in names]
            return {
                name: place.absorbed
                for name, place in places
                if place is not None and place.absorbed is not None and place.absorbed != place.committed
            }

    def record_committed(self, positions: Mapping[str, int]) -> None:
        """Record that the brokers have stored these positions for the group."""
        with self._lock:
            for name in positions.keys() & self._places.keys():
                self._places[name].committed = positions[name]
