"""A driver without a broker."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence

from connectors.kafka.drivers.base import (
    CommittedPosition,
    Driver,
    End,
    Polled,
    RebalanceListener,
    TopicDescription,
)


class MemoryDriver(Driver):
    """One topic whose partitions have one message each."""

    def __init__(self, partitions: int) -> None:
        self.names = [f"clicks-{number}" for number in range(partitions)]
        self.numbers = {*range(partitions)}
        self.places: dict[str, int] = {}
        self.ready: deque[str] = deque()
        self.committed: dict[str, int] = {}
        self.listener: RebalanceListener | None = None
        self.requests = Counter[str]()

    def connect(self, timeout_seconds: float) -> bool:
        """Return at once."""
        return True

    def subscribe(self, topics: Sequence[str], listener: RebalanceListener) -> None:
        """Assign all partitions at the next poll."""
        self.listener = listener

    def assign(self, positions: Mapping[str, int]) -> None:
        """Do nothing: there is a group."""

    def poll(self, timeout_seconds: float, most: int) -> list[Polled]:
        """Return the next messages."""
        if not self.places and self.listener is not None:
            self.places = dict.fromkeys(self.names, -1)
            self.listener.on_assigned({*self.names})
            return []
        ready = [self.ready.popleft() for _ in range(min(most, len(self.ready)))]
        self.places |= dict.fromkeys(ready, 1)
        return [Polled(name, [b"{}"], [0]) for name in ready]

    def idle(self) -> None:
        """Do nothing."""

    def assignment(self) -> set[str]:
        """Return all partitions."""
        return {*self.places}

    def partitions_of(self, topic: str) -> set[int]:
        """Return the numbers."""
        return self.numbers

    def describe(self, topics: Collection[str], timeout_seconds: float) -> dict[str, TopicDescription]:
        """Return one id and the numbers."""
        return dict.fromkeys(topics, TopicDescription("00000000-0000-0000-0000-000000000001", self.numbers))

    def is_connected(self) -> bool:
        """Return True."""
        return True

    def refresh(self) -> None:
        """Do nothing."""

    def position(self, name: str) -> int | None:
        """Return where reading goes on."""
        return self.places[name]

    def highwater(self, name: str) -> int | None:
        """Return the end."""
        return 1

    def ends(self, names: Collection[str], end: End, timeout_seconds: float) -> dict[str, int]:
        """Return the ends."""
        self.requests["ends"] += 1
        return dict.fromkeys(names, int(end == "latest"))

    def committed_positions(
        self, names: Collection[str], timeout_seconds: float
    ) -> dict[str, CommittedPosition]:
        """Return nothing: the group is new."""
        self.requests["committed_positions"] += 1
        return {}

    def seek(self, name: str, position: int) -> None:
        """Read a partition from there."""
        self.places[name] = position
        self.ready.append(name)

    def pause(self, names: Collection[str]) -> None:
        """Do nothing."""

    def resume(self, names: Collection[str]) -> None:
        """Do nothing."""

    def commit_soon(
        self, marks: Mapping[str, CommittedPosition], on_stored: Callable[[Mapping[str, int]], None]
    ) -> None:
        """Commit at once."""
        self.commit(marks, 0.0)
        on_stored({name: mark.position for name, mark in marks.items()})

    def commit(self, marks: Mapping[str, CommittedPosition], timeout_seconds: float) -> None:
        """Commit at once."""
        self.committed |= {name: mark.position for name, mark in marks.items()}

    def close(self, timeout_seconds: float) -> None:
        """Do nothing."""
