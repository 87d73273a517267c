"""Where each partition stands: handed out, absorbed, committed. The only part that several threads touch."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(slots=True)
class _Place:
    """One partition, as positions after the last record.

    `first` and `read` bound what was handed out since reading (re)started there; both None before.
    """

    resume: int | None = None
    first: int | None = None
    read: int | None = None
    absorbed: int | None = None
    committed: int | None = None


class PositionLedger:
    """Positions by partition name (``topic-3``), from the store, from reading, and from what was absorbed.

    Safe to use from several threads.

    Examples
    --------
    >>> ledger = PositionLedger({"clicks-0": 40})
    >>> ledger.resume("clicks-0"), ledger.resume("clicks-1")
    (40, None)
    >>> ledger.handed_out("clicks-0", first=40, after=60)
    >>> ledger.outstanding(["clicks-0"])
    True
    >>> ledger.absorb({"clicks-0": 50})
    >>> ledger.to_commit(["clicks-0"])
    {'clicks-0': 50}
    """

    def __init__(self, positions: Mapping[str, int]) -> None:
        self._lock = threading.Lock()
        self._places = {name: _Place(resume=position) for name, position in positions.items()}

    def resume(self, name: str) -> int | None:
        """Where reading of a partition goes on: after what was handed out, else the opening position."""
        with self._lock:
            place = self._places.get(name)
            if place is None:
                return None
            return place.read if place.read is not None else place.resume

    def is_told(self, name: str) -> bool:
        """Whether the group's brokers took all that was read of a partition, as far as this process knows."""
        with self._lock:
            place = self._places.get(name)
            return place is not None and place.read is not None and place.read == place.committed

    def handed_out(self, name: str, first: int, after: int) -> None:
        """Records from `first` up to, not including, `after` went to the agent."""
        with self._lock:
            place = self._places.setdefault(name, _Place())
            if place.read is None or first < place.read:
                # The first read, or the topic was made anew: older positions say nothing of this log.
                place.first, place.absorbed, place.committed = first, None, None
            place.read = after

    def overtaken(self, name: str, position: int) -> None:
        """Another member of the group has taken this partition further, up to `position`."""
        with self._lock:
            self._places[name] = _Place(position, position, position, position, position)

    def begun(self, name: str, position: int) -> None:
        """Reading begins here, as nobody had read the partition or its log has changed.

        The group is to hear it with the next commit: whoever gets the partition before a record came would
        else look for a beginning of its own, which at `latest` is another one, or count a gap again.
        """
        with self._lock:
            self._places[name] = _Place(position, position, position, position)

    def absorb(self, positions: Mapping[str, int]) -> None:
        """Everything before these positions has been used.

        A position outside of what was handed out is left aside: a store also names partitions that
        another member of the group has taken further in the meantime.
        """
        with self._lock:
            for name, position in positions.items():
                place = self._places.get(name)
                if place is None or place.first is None or place.read is None:
                    continue
                if place.first <= position <= place.read:
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
            for name, position in positions.items():
                self._places[name].committed = position
