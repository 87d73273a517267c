"""The destination of a sink: an interface for files here, and for topics in `connectors`.

A sink is a thread with something bounded before it (a queue, or the store) and a destination behind it.
The thread may wait for its destination, and tries again what failed; nobody waits for the thread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from monitor.reports.views import SinkView

Item = TypeVar("Item")

Row = tuple[int, bytes]
"""A closed window as the store keeps it: its id there, which only rises, and its line."""

Mark = tuple[int, int]
"""How far a place was written: the last report's id, and where the place ends after it."""

ReportsAfter = Callable[[int, int], list[Row]]
"""Reports with a larger id than the first argument, at most the second, in order."""

CLOSE_SECONDS = 1.0
"""The time in which a sink may deliver its queue when the agent stops."""


class Destination(ABC, Generic[Item]):
    """Takes items in order. Used by one thread; `open` by the one that starts it.

    Attributes
    ----------
    name : str
        The label `sink` of the metrics.
    setting : str
        Key of the configuration that names it, for messages.
    where : str
        The path, or the topic, for messages.
    refused : int
        Items that can never be delivered there, and were left out; `deliver` counts them as done.
    """

    name: str
    setting: str
    where: str
    refused: int = 0

    @abstractmethod
    def open(self) -> None:
        """Get ready; returns at once.

        Raises
        ------
        SinkError
            It cannot be had, and waiting would not help. One that may come back does not raise.
        """

    @abstractmethod
    def deliver(self, items: Sequence[Item]) -> int:
        """Deliver items from the first on; how many, at least one. Takes a few seconds at most.

        Raises
        ------
        SinkError
            None is known to have arrived. The next call must begin with the same items.
        """

    @abstractmethod
    def close(self, timeout_seconds: float) -> None:
        """Let go of files and sockets."""

    def interrupt(self) -> None:
        """End a wait inside `deliver`, from another thread: the time to close has come."""


class FollowedDestination(Destination[Row]):
    """One that takes the store's reports, and can tell after a crash which of them it has."""

    @abstractmethod
    def last_of(self, saved: Mapping[str, Mark]) -> int:
        """The last report that had arrived when these marks were saved; 0 where none had."""

    @abstractmethod
    def resume(self, saved: Mapping[str, Mark], reports_after: ReportsAfter) -> int:
        """Find out what has arrived since `saved`; the id of the last report that need not be delivered.

        Called before the first `deliver`, and again until it succeeds.

        Raises
        ------
        SinkError
            It cannot be told at present.
        """

    @property
    @abstractmethod
    def marks(self) -> Mapping[str, Mark]:
        """What to save with the next checkpoint. May be asked by any thread; the value never changes."""


class ReportStore(Protocol):
    """Where closed windows wait for their sinks."""

    def reports_after(self, last: int, most: int) -> list[Row]:
        """Reports with a larger id than `last`, at most so many, in order."""

    def newest_report(self) -> int:
        """The id of the newest report; 0 before the first."""


class Sink(ABC):
    """A thread that delivers, as the rest of the agent sees it."""

    @abstractmethod
    def start(self) -> None:
        """Begin; raises `SinkError` where the destination cannot be had."""

    @abstractmethod
    def close(self, timeout: float) -> bool:
        """Deliver what waits, for so many seconds at most, and end; whether all of it was."""

    @property
    @abstractmethod
    def view(self) -> SinkView:
        """How it stands."""
