"""The interface of a Kafka client library: a `Driver` is one consumer in a consumer group.

Partitions have names such as ``topic-3``. The position of a partition is the offset of the next record to
read. Drivers raise the errors of kafka-python, which is always installed, so that `errors` explains a problem
in the same words for every library. In addition, drivers raise `PositionGoneError` and the errors of
`monitor.base.errors`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, Protocol

from kafka import TopicPartition

from connectors.formats.wires.cloudevents import Headers

End = Literal["earliest", "latest"]
"""The start of a log (earliest) or its end (latest)."""


LAST_COMMIT_SECONDS = 10.0
"""The time limit for the last commit of revoked partitions, in seconds; the whole group waits for it."""


class CommittedPosition(NamedTuple):
    """A position that the consumer group has committed, with a note for later owners of the partition.

    Parameters
    ----------
    position : int
        The offset of the next record to read.
    note : str
        A text for later owners of the partition, which Kafka stores as the metadata of the commit; see
        `connectors.kafka.source.placement.Placement`.
    """

    position: int
    note: str


class Stamp(NamedTuple):
    """The leader epoch and the timestamp of a record, which show whether a log was replaced.

    A topic that was deleted and created again has a new log, which uses the same offsets as the old log. Two
    records with the same offset and different stamps belong to different logs.

    Parameters
    ----------
    epoch : int
        The epoch of the leader that received the record; -1 if unknown.
    time : int
        The timestamp of the record in milliseconds; -1 if unknown.
    """

    epoch: int = -1
    time: int = -1

    def differs(self, other: Stamp) -> bool:
        """Return whether this stamp and another one belong to different records.

        A field that is unknown in one of the stamps is not compared.

        Examples
        --------
        >>> Stamp(0, 1000).differs(Stamp(0, 2000)), Stamp(0, 1000).differs(Stamp(-1, 1000))
        (True, False)
        """
        both = zip(self, other, strict=True)
        return any(ours != theirs and min(ours, theirs) >= 0 for ours, theirs in both)


NO_STAMP = Stamp()
"""The stamp of an unknown record."""


@dataclass(frozen=True, slots=True)
class Polled:
    """The messages of one partition that a poll returned.

    Parameters
    ----------
    partition : str
    values : sequence of bytes or None
        The value of each message; None for a message without a value (a tombstone).
    offsets : sequence of int
        The offset of each message, in increasing order.
    unreadable : str
        The reason why the messages of a damaged batch cannot be read; `values` are placeholders then. Empty
        for readable messages.
    headers : sequence of Headers or None
        The headers of each message, from `connectors.formats.wires.beside`; None if the driver does not
        return headers.
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
        """Return a copy that does not contain the first message."""
        headers = self.headers and self.headers[1:]
        return replace(self, values=self.values[1:], offsets=self.offsets[1:], headers=headers)


class TopicDescription(NamedTuple):
    """The id and the partitions of a topic, as the brokers report them.

    Parameters
    ----------
    id : str
        The id of the topic, which changes if the topic is deleted and created again. Empty for brokers before
        2.8.
    partitions : collection of int
        The numbers of the topic's partitions; empty if the brokers do not know them yet.
    """

    id: str
    partitions: Collection[int]


class PositionGoneError(Exception):
    """An error about positions at which the brokers have no records.

    Parameters
    ----------
    places : mapping of str to int or None
        For each partition, the first offset at which the brokers' log differs from the log that was read;
        None if the brokers do not know this offset.
    cause : Exception
        The error of the library.
    truncated : bool
        True if the brokers have lost records before a position. Then a different record may have the same
        offset now.
    """

    def __init__(self, places: Mapping[str, int | None], cause: Exception, truncated: bool = False) -> None:
        super().__init__(*cause.args)
        self.places = places
        self.cause = cause
        self.truncated = truncated


class RebalanceListener(Protocol):
    """The interface that a driver calls when the group assigns or revokes partitions.

    The calls may come from a thread of the client library.
    """

    def on_assigned(self, names: set[str]) -> None:
        """Receive newly assigned partitions.

        The driver pauses each partition until `Driver.seek` sets its position and `Driver.resume` is called.
        """

    def on_revoke(self, names: set[str]) -> Iterator[None]:
        """Yield again and again until the consumer may give up these partitions, which the group revokes.

        The driver sleeps for a moment after each value. When the iterator has ended, the driver gives the
        partitions up.
        """

    def last_marks(self, names: set[str]) -> Mapping[str, CommittedPosition]:
        """Return the last positions to commit for these partitions, which the group revokes.

        The driver calls this after `on_revoke` has ended.
        """

    def on_committed(self, marks: Mapping[str, CommittedPosition], error: Exception | None) -> None:
        """Receive the result of the commit of the positions from `last_marks`.

        Parameters
        ----------
        marks : mapping of str to CommittedPosition
            The positions that were sent to the brokers, by partition.
        error : Exception or None
            None if the brokers have stored the positions.
        """

    def on_lost(self, names: set[str]) -> None:
        """Remove partitions that the group has already assigned to other members.

        The positions of these partitions can no longer be committed.
        """


class Driver(ABC):
    """A consumer of one client library, for use by one thread.

    A driver has one consumer for its whole life. After an error, a new driver replaces it.

    Attributes
    ----------
    with_headers : bool
        True if `poll` must return the headers, the key and the time of each message. Set it before `connect`.
    with_any_headers : bool
        True if `poll` must return the headers, the key and the time of all messages of a partition if any of
        them has headers. The decoder may recognise the format of messages by their headers.
    """

    with_headers: bool = False
    with_any_headers: bool = False

    @abstractmethod
    def connect(self, timeout_seconds: float) -> bool:
        """Wait for an answer from a broker, and return whether an answer arrived in time.

        Call this method again until it returns True.
        """

    @abstractmethod
    def subscribe(self, topics: Sequence[str], listener: RebalanceListener) -> None:
        """Join the group to read topics. Call this method once, after `connect`.

        Parameters
        ----------
        topics : sequence of str
        listener : RebalanceListener
            Called when the group assigns or revokes partitions.
        """

    @abstractmethod
    def assign(self, positions: Mapping[str, int]) -> None:
        """Read these partitions from these positions, outside of any group.

        Call this method instead of `subscribe`.
        """

    @abstractmethod
    def poll(self, timeout_seconds: float, most: int) -> list[Polled]:
        """Wait for the first message, and return the available messages, at most `most` of them.

        The list is empty if no message arrives in time. The driver may call the listener during a poll.

        Raises
        ------
        PositionGoneError
            The brokers have no records at the position of a partition.
        """

    @abstractmethod
    def idle(self) -> None:
        """Stay in the group without reading messages.

        The source calls this method every few milliseconds while it does not call `poll`.
        """

    @abstractmethod
    def assignment(self) -> set[str]:
        """Return the partitions that the group has assigned to this consumer."""

    @abstractmethod
    def partitions_of(self, topic: str) -> set[int]:
        """Return the numbers of a topic's partitions, or an empty set if none is known yet."""

    @abstractmethod
    def describe(self, topics: Collection[str], timeout_seconds: float) -> dict[str, TopicDescription]:
        """Ask the brokers for the ids and the partitions of topics.

        The result does not contain topics that do not exist.

        Raises
        ------
        KafkaTimeoutError
            The brokers did not answer in time.
        """

    @abstractmethod
    def is_connected(self) -> bool:
        """Return whether the brokers that lead the assigned partitions are connected.

        If no partition is assigned, one connected broker is enough.
        """

    @abstractmethod
    def refresh(self) -> None:
        """Ask the brokers now which topics exist. The library itself asks only at regular intervals."""

    @abstractmethod
    def position(self, name: str) -> int | None:
        """Return the offset of the next message of a partition, or None if the offset is not known."""

    @abstractmethod
    def highwater(self, name: str) -> int | None:
        """Return the end of a partition's log as of the last fetch, or None if the end is not known."""

    @abstractmethod
    def ends(self, names: Collection[str], end: End, timeout_seconds: float) -> dict[str, int]:
        """Ask the brokers for the first or the last offsets of partitions, in as few requests as possible.

        The result does not contain a partition if its leader is unreachable or does not answer in time.
        """

    @abstractmethod
    def committed_positions(
        self, names: Collection[str], timeout_seconds: float
    ) -> dict[str, CommittedPosition]:
        """Ask the brokers for the positions that the group has committed, in one request.

        The result does not contain partitions without a committed position.

        Raises
        ------
        KafkaTimeoutError
            The brokers did not answer in time.
        """

    @abstractmethod
    def seek(self, name: str, position: int) -> None:
        """Set the offset from which a partition is read."""

    @abstractmethod
    def pause(self, names: Collection[str]) -> None:
        """Stop fetching messages of these partitions until `resume` is called.

        The partitions stay assigned.
        """

    @abstractmethod
    def resume(self, names: Collection[str]) -> None:
        """Continue to fetch messages of paused partitions."""

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
        """Send positions to commit, and wait until the brokers have stored them.

        Raises
        ------
        KafkaError
            The brokers refused the positions, or did not answer in time.
        """

    @abstractmethod
    def close(self, timeout_seconds: float) -> None:
        """Leave the group and close the consumer, without a commit."""


def name_of(tp: TopicPartition) -> str:
    """Return the name of a partition, such as ``topic-3``.

    Examples
    --------
    >>> name_of(TopicPartition("clicks", 3)), partition_of("page-views-12")
    ('clicks-3', TopicPartition(topic='page-views', partition=12))
    """
    return f"{tp.topic}-{tp.partition}"


def partition_of(name: str) -> TopicPartition:
    """Return the partition with a name such as ``topic-3``.

    The number follows the last hyphen, because the name of a topic may contain hyphens.
    """
    topic, _, number = name.rpartition("-")
    return TopicPartition(topic, int(number))
