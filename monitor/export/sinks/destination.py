"""The interfaces of sinks and of their destinations.

The destinations that are files are in this package, and those that are topics are in `connectors`.

A sink is a thread that moves items from a bounded queue, or from the store, to a destination. The thread may
wait for its destination, and tries failed deliveries again. The rest of the agent does not wait for the
thread.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from monitor.reports.views import SinkView

Item = TypeVar("Item")

Row = tuple[int, bytes]
"""A closed window in the store: its id and its line. Ids only increase."""

Mark = tuple[int, int]
"""A position in a destination: the id of the last report, and the end of the destination after this
report."""

ReportsAfter = Callable[[int, int], list[Row]]
"""Returns the reports with ids above the first argument, in order, at most as many as the second argument."""

CLOSE_SECONDS = 1.0
"""The time in which a sink may deliver its queue when the agent stops."""


class Destination(ABC, Generic[Item]):
    """A place to which a sink delivers items in order, such as a file or a topic.

    The sink's thread calls `deliver` and `close`; the thread that starts the sink calls `open`.

    Attributes
    ----------
    name : str
        The label `sink` of the metrics.
    setting : str
        Key of the configuration that names the destination, for messages.
    where : str
        The path or the topic, for messages.
    refused : int
        The number of items that can never be delivered and were left out. `deliver` counts them as delivered.
    """

    name: str
    setting: str
    where: str
    refused: int = 0

    @abstractmethod
    def open(self) -> None:
        """Prepare for delivery, without waiting.

        Raises
        ------
        SinkError
            The destination cannot be used, and waiting would not help. If the destination may recover, no
            error is raised.
        """

    @abstractmethod
    def deliver(self, items: Sequence[Item]) -> int:
        """Deliver at least the first item within a few seconds, and return the number of delivered items.

        Raises
        ------
        SinkError
            No item is known to have been delivered. The next call must begin with the same items.
        """

    @abstractmethod
    def close(self, timeout_seconds: float) -> None:
        """Close files and sockets."""

    def interrupt(self) -> None:
        """End a wait inside `deliver`, because the time for closing is over.

        Another thread calls this method.
        """


class FollowedDestination(Destination[Row]):
    """A destination for the store's reports. After a crash, it can determine which reports it has."""

    @abstractmethod
    def last_of(self, saved: Mapping[str, Mark]) -> int:
        """Return the id of the last report that was delivered when `marks` were saved; 0 if none was."""

    @abstractmethod
    def resume(self, saved: Mapping[str, Mark], reports_after: ReportsAfter) -> int:
        """Find the reports delivered since the last checkpoint, and return the id of the last of them.

        The sink calls this method before the first `deliver`, and again until it succeeds. `saved` are the
        `marks` of the last checkpoint.

        Raises
        ------
        SinkError
            The delivered reports cannot be determined at present.
        """

    @property
    @abstractmethod
    def marks(self) -> Mapping[str, Mark]:
        """The positions to save with the next checkpoint. Any thread may read this immutable value."""


class ReportStore(Protocol):
    """The store in which closed windows wait for their sinks."""

    def reports_after(self, last: int, most: int) -> list[Row]:
        """Return the reports with an id above `last`, in order, at most `most` of them."""

    def newest_report(self) -> int:
        """Return the id of the newest report; 0 before the first."""


class Sink(ABC):
    """A thread that delivers items to a destination, and its interface to the rest of the agent.

    A subclass defines the place where items wait, and the function that the thread runs.

    Parameters
    ----------
    destination : Destination
    """

    def __init__(self, destination: Destination[Any]) -> None:
        self._destination = destination
        self._delivered = self._lost = 0
        self._failing: str | None = None
        self._failing_since: float | None = None
        name = f"blindsight-{destination.name}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Open the destination and start to deliver.

        Raises
        ------
        SinkError
            The destination cannot be opened; the message says why and what to do.
        """
        self._destination.open()
        self._thread.start()

    @abstractmethod
    def close(self, timeout: float) -> bool:
        """Deliver the waiting items for at most `timeout` seconds, and stop.

        Return whether all were delivered.
        """

    @property
    def view(self) -> SinkView:
        """The state of the sink for exporters, such as its numbers of waiting and delivered items."""
        return SinkView(
            name=self._destination.name,
            waiting=self._waiting(),
            delivered=self._delivered - self._destination.refused,
            lost=self._lost + self._destination.refused,
            trouble=self._failing,
            failing_since=self._failing_since,
        )

    @abstractmethod
    def _waiting(self) -> int:
        """Return the number of items that wait."""

    @abstractmethod
    def _run(self) -> None:
        """Deliver until `close` ends it."""

    def _join(self, timeout: float) -> None:
        """Wait for the thread, if it was started, and end its wait for the destination after a timeout."""
        if self._thread.ident is not None:
            self._thread.join(timeout)
            if self._thread.is_alive():
                self._destination.interrupt()

    def _fails(self, why: str) -> bool:
        """Record the reason of a failure, and return whether the last delivery had succeeded."""
        is_new = self._failing is None
        if is_new:
            self._failing_since = time.time()
        self._failing = why
        return is_new

    def _works(self) -> bool:
        """Record a success, and return whether the last delivery had failed."""
        had_failed = self._failing is not None
        self._failing = self._failing_since = None
        return had_failed
