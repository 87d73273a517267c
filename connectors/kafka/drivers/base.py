"""The interface of a client library: one consumer in a group, whichever library does the work.

Partitions have names such as ``topic-3``. A position is the offset of the next record to read from a
partition. Errors are those of kafka-python, which is always installed, so that `errors` explains the same
problem in the same words for each library. Beside these, a `Driver` raises only `PositionGoneError` and the
errors of `monitor.base.errors`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, Protocol

from kafka import TopicPartition

from connectors.formats.wires.cloudevents import Headers

End = Literal["earliest", "latest"]


LAST_COMMIT_SECONDS = 10.0
"""The longest time for the last commit of revoked partitions, for which the whole group waits."""


class CommittedPosition(NamedTuple):
    """A position that is committed to the group, with the note that is stored beside it.

    Parameters
    ----------
    position : int
        The offset of the next record.
    note : str
        A text of the consumer that commits, for later owners of the partition; see
        `connectors.kafka.source.placement.Placement`.
    """

    position: int
    note: str


class Stamp(NamedTuple):
    """Properties of a record by which it differs from a record at the same offset of another log.

    A topic that was deleted and created again is another log under the same name.

    Parameters
    ----------
    epoch : int
        The epoch of the leader that received the record; -1 if unknown.
    time : int
        The record's timestamp in ms; -1 if unknown.
    """

    epoch: int = -1
    time: int = -1

    def differs(self, other: Stamp) -> bool:
        """Return whether two stamps cannot belong to one record.

        An unknown number fits any other.

        Examples
        --------
        >>> Stamp(0, 1000).differs(Stamp(0, 2000)), Stamp(0, 1000).differs(Stamp(-1, 1000))
        (True, False)
        """
        both = zip(self, other, strict=True)
        return any(ours != theirs and min(ours, theirs) >= 0 for ours, theirs in both)


NO_STAMP = Stamp()


@dataclass(frozen=True, slots=True)
class Polled:
    """The messages of one partition that a poll returned.

    Parameters
    ----------
    partition : str
    values : sequence of bytes or None
        The value of each message; None for a message without a value.
    offsets : sequence of int
        The offset of each message, rising.
    unreadable : str
        If the values are placeholders for messages that a broker's disk has damaged, the reason; else empty.
    headers : sequence of Headers or None
        The headers of each message, from `connectors.formats.wires.beside`, if the driver must return them.
    first, last : Stamp
        The stamps of the first and of the last message.
    """

    partition: str
    values: Sequence[bytes | None]
    offsets: Sequence[int]
    unreadable: str = ""
    headers: Sequence[Headers] | None = None
    first: Stamp = NO_STAMP
    last: Stamp = NO_STAMP

    def after_first(self) -> Polled:
        """Return a copy without the first message."""
        headers = self.headers and self.headers[1:]
        return replace(self, values=self.values[1:], offsets=self.offsets[1:], headers=headers)


class TopicDescription(NamedTuple):
    """A topic as the brokers describe it.

    Parameters
    ----------
    id : str
        The id of the topic, which changes if the topic is deleted and created again. Empty for brokers before
        2.8.
    partitions : collection of int
        The numbers of its partitions; empty while the brokers do not know them.
    """

    id: str
    partitions: Collection[int]


class PositionGoneError(Exception):
    """An error that says that the brokers have no records at the positions of some partitions.

    Parameters
    ----------
    places : mapping of str to int or None
        By partition, the offset from which on the brokers' log differs from the one that was read, or None if
        the brokers do not know it.
    cause : Exception
        The error of the library.
    truncated : bool
        Whether the log has lost records before a position, so that other records may be there now.
    """

    def __init__(self, places: Mapping[str, int | None], cause: Exception, truncated: bool = False) -> None:
        super().__init__(*cause.args)
        self.places = places
        self.cause = cause
        self.truncated = truncated


class RebalanceListener(Protocol):
    """The interface that a driver calls when the group assigns or revokes partitions.

    The calls come from a thread of the client library.
    """

    def on_assigned(self, names: set[str]) -> None:
        """Add newly assigned partitions.

        The driver pauses each until it has a position (`Driver.seek`) and is resumed.
        """

    def on_revoke(self, names: set[str]) -> Iterator[None]:
        """Yield while these partitions, which the group takes away, must not be given up yet.

        The driver sleeps for a moment after each step.
        """

    def last_marks(self, names: set[str]) -> Mapping[str, CommittedPosition]:
        """Return the positions of these partitions that must still be committed, after `on_revoke`."""

    def on_committed(self, marks: Mapping[str, CommittedPosition], error: Exception | None) -> None:
        """Receive the outcome of the commit of the `last_marks`.

        Parameters
        ----------
        marks : mapping of str to CommittedPosition
            The positions that were sent, by partition.
        error : Exception or None
            None if the brokers have stored them.
        """

    def on_lost(self, names: set[str]) -> None:
        """Remove partitions that the group has already given to other members.

        Nothing can be committed for them.
        """


class Driver(ABC):
    """One consumer of a client library, for use by one thread.

    A driver lives as long as its consumer: after an error, another driver replaces it.

    Attributes
    ----------
    with_headers : bool
        Whether polled messages must have their headers, keys and times; set before `connect`.
    with_any_headers : bool
        Whether they must have them if any message has headers, which may show its format.
    """

    with_headers: bool = False
    with_any_headers: bool = False

    @abstractmethod
    def connect(self, timeout_seconds: float) -> bool:
        """Wait for an answer of a broker, and return whether one came in time.

        Call it again until one has.
        """

    @abstractmethod
    def subscribe(self, topics: Sequence[str], listener: RebalanceListener) -> None:
        """Join the group, once, after `connect`.

        Parameters
        ----------
        topics : sequence of str
        listener : RebalanceListener
            Called when the group assigns or revokes partitions.
        """

    @abstractmethod
    def assign(self, positions: Mapping[str, int]) -> None:
        """Read these partitions from these positions, outside of any group, instead of `subscribe`."""

    @abstractmethod
    def poll(self, timeout_seconds: float, most: int) -> list[Polled]:
        """Return at most `most` messages, and wait for the first of them.

        The driver may call the listener meanwhile.

        Raises
        ------
        PositionGoneError
            There are no records at a position.
        """

    @abstractmethod
    def idle(self) -> None:
        """Stay in the group without reading; it is called every few milliseconds instead of `poll`."""

    @abstractmethod
    def assignment(self) -> set[str]:
        """Return the partitions that the group has assigned to this consumer."""

    @abstractmethod
    def partitions_of(self, topic: str) -> set[int]:
        """Return the numbers of a topic's partitions; empty while the brokers have named none."""

    @abstractmethod
    def describe(self, topics: Collection[str], timeout_seconds: float) -> dict[str, TopicDescription]:
        """Ask the brokers for the ids and the partitions of topics, and leave out topics that do not exist.

        Raises
        ------
        KafkaTimeoutError
            The brokers did not answer in time.
        """

    @abstractmethod
    def is_connected(self) -> bool:
        """Return whether the brokers that lead the assigned partitions are connected.

        Without assigned partitions, any broker is enough.
        """

    @abstractmethod
    def refresh(self) -> None:
        """Ask the brokers at once which topics exist, sooner than the library would."""

    @abstractmethod
    def position(self, name: str) -> int | None:
        """Return the offset of the next message of a partition, or None if it is not known."""

    @abstractmethod
    def highwater(self, name: str) -> int | None:
        """Return the end of a partition's log as of the last messages, or None if it is not known."""

    @abstractmethod
    def ends(self, names: Collection[str], end: End, timeout_seconds: float) -> dict[str, int]:
        """Ask the brokers for the first or the last offsets of partitions, of all at once.

        A partition is left out if its leader is away, or does not answer in time.
        """

    @abstractmethod
    def committed_positions(
        self, names: Collection[str], timeout_seconds: float
    ) -> dict[str, CommittedPosition]:
        """Ask the brokers for the positions that the group has committed, of all partitions at once.

        A partition without a committed position is left out.

        Raises
        ------
        KafkaTimeoutError
            The brokers did not answer in time.
        """

    @abstractmethod
    def seek(self, name: str, position: int) -> None:
        """Set the position from which a partition is read."""

    @abstractmethod
    def pause(self, names: Collection[str]) -> None:
        """Stop fetching messages of these partitions until `resume`, without giving the partitions up."""

    @abstractmethod
    def resume(self, names: Collection[str]) -> None:
        """Fetch messages of these partitions again."""

    @abstractmethod
    def commit_soon(
        self, marks: Mapping[str, CommittedPosition], on_stored: Callable[[Mapping[str, int]], None]
    ) -> None:
        """Send positions to commit, without waiting for the answer.

        Parameters
        ----------
        marks : mapping of str to CommittedPosition
        on_stored : callable
            Called later with the positions that the brokers have stored.
        """

    @abstractmethod
    def commit(self, marks: Mapping[str, CommittedPosition], timeout_seconds: float) -> None:
        """Send positions to commit, and wait until the brokers have stored them."""

    @abstractmethod
    def close(self, timeout_seconds: float) -> None:
        """Leave the group without a commit."""


def name_of(tp: TopicPartition) -> str:
    """Return the name of a partition, such as ``topic-3``.

    Examples
    --------
    >>> name_of(TopicPartition("clicks", 3)), partition_of("page-views-12")
    ('clicks-3', TopicPartition(topic='page-views', partition=12))
    """
    return f"{tp.topic}-{tp.partition}"


def partition_of(name: str) -> TopicPartition:
    """Return the partition of a name, whose last hyphen is before the number: topics may contain hyphens."""
    topic, _, number = name.rpartition("-")
    return TopicPartition(topic, int(number))
