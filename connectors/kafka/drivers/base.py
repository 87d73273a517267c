"""What the source needs of a client library: one consumer in a group, over whichever library is below.

Partitions go by their names (``topic-3``). Errors are those of kafka-python, which is always installed, so
that `errors` says the same sentence whichever library found something wrong; a `Driver` raises no others but
`PositionGoneError` and `monitor.base.errors`' own.
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
"""How long brokers may take for the last commit of partitions that they take away; the group waits for us."""


class CommittedPosition(NamedTuple):
    """A committed position, and what its writer noted beside it."""

    position: int
    note: str


class Stamp(NamedTuple):
    """What tells a record from one at the same offset of another log; -1 where unknown.

    Parameters
    ----------
    epoch : int
        That of the leader that took it.
    time : int
        Its timestamp, in ms.
    """

    epoch: int = -1
    time: int = -1

    def differs(self, other: Stamp) -> bool:
        """Whether both cannot be of one record.

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
    """Messages of one partition.

    Parameters
    ----------
    partition : str
    values : sequence of bytes or None
        None is a message without a value.
    offsets : sequence of int
        One a message, rising.
    headers : sequence of Headers or None
        One a message, of `connectors.formats.wires.beside`, where the driver was asked for them.
    first, last : Stamp
        Those of the first and of the last message.
    unreadable : str
        Why these are placeholders for messages that a broker's disk has spoilt; else empty.
    """

    partition: str
    values: Sequence[bytes | None]
    offsets: Sequence[int]
    unreadable: str = ""
    headers: Sequence[Headers] | None = None
    first: Stamp = NO_STAMP
    last: Stamp = NO_STAMP

    def after_first(self) -> Polled:
        """All but the first message."""
        headers = self.headers and self.headers[1:]
        return replace(self, values=self.values[1:], offsets=self.offsets[1:], headers=headers)


class TopicDescription(NamedTuple):
    """What the brokers say of a topic.

    Parameters
    ----------
    id : str
        It is another one after the topic was deleted and created again. Empty for brokers before 2.8.
    partitions : collection of int
        Their numbers; empty while the brokers do not know them.
    """

    id: str
    partitions: Collection[int]


class PositionGoneError(Exception):
    """The brokers hold no records at the positions that are read.

    Parameters
    ----------
    places : mapping of str to int or None
        By partition, where our log and theirs part, if the brokers know it.
    cause : Exception
        What the library said.
    truncated : bool
        Their log has lost records before a position, so that others may stand there now.
    """

    def __init__(self, places: Mapping[str, int | None], cause: Exception, truncated: bool = False) -> None:
        super().__init__(*cause.args)
        self.places = places
        self.cause = cause
        self.truncated = truncated


class RebalanceListener(Protocol):
    """Hears of partitions that come and go; a driver calls it from whichever thread its library does."""

    def assigned(self, names: set[str]) -> None:
        """These are ours now; the driver holds them still until each was `seek`ed and `resume`d."""

    def draining(self, names: set[str]) -> Iterator[None]:
        """These are being taken away: yields, between short sleeps, while they should be held back."""

    def last_marks(self, names: set[str]) -> Mapping[str, CommittedPosition]:
        """What is still to be committed of them, after `draining`."""

    def committed(self, marks: Mapping[str, CommittedPosition], error: Exception | None) -> None:
        """Whether those last marks arrived."""

    def lost(self, names: set[str]) -> None:
        """The group has given them to others already: there is nothing left to commit."""


class Driver(ABC):
    """One consumer. Made anew after an error; used by one thread, `close` included.

    Attributes
    ----------
    with_headers : bool
        Whether what is polled must hold the messages' headers, keys and times; set before `connect`.
    with_any_headers : bool
        Whether it must where a message has any headers, which may tell its format.
    """

    with_headers: bool = False
    with_any_headers: bool = False

    @abstractmethod
    def connect(self, timeout_seconds: float) -> bool:
        """Whether a broker has answered within the time; to be called again until one has."""

    @abstractmethod
    def subscribe(self, topics: Sequence[str], listener: RebalanceListener) -> None:
        """Join the group; once, after `connect`."""

    @abstractmethod
    def assign(self, positions: Mapping[str, int]) -> None:
        """Read these partitions from there, outside of any group; in place of `subscribe`."""

    @abstractmethod
    def poll(self, timeout_seconds: float, most: int) -> list[Polled]:
        """At most so many messages, waiting for the first; the listener is called meanwhile.

        Raises
        ------
        PositionGoneError
            There are no records at a position.
        """

    @abstractmethod
    def idle(self) -> None:
        """Stay in the group without reading; called every few milliseconds, instead of `poll`."""

    @abstractmethod
    def assigned(self) -> set[str]:
        """The partitions that are ours."""

    @abstractmethod
    def partitions_of(self, topic: str) -> set[int]:
        """Numbers of a topic's partitions; empty where the brokers have told of none."""

    @abstractmethod
    def describe(self, topics: Collection[str], timeout_seconds: float) -> dict[str, TopicDescription]:
        """Ask the brokers for the ids and the partitions of topics. A topic that does not exist is left out.

        Raises
        ------
        KafkaTimeoutError
            The brokers did not answer in time.
        """

    @abstractmethod
    def connected(self) -> bool:
        """Whether the brokers that lead our partitions are connected; where we have none, any broker."""

    @abstractmethod
    def refresh(self) -> None:
        """Ask which topics there are, sooner than otherwise."""

    @abstractmethod
    def position(self, name: str) -> int | None:
        """Offset of the next message, where it is known."""

    @abstractmethod
    def highwater(self, name: str) -> int | None:
        """The end of the log as the last messages told it, where they did."""

    @abstractmethod
    def ends(self, names: Collection[str], end: End, timeout_seconds: float) -> dict[str, int]:
        """Ask the brokers where logs begin, or end; all at once.

        A partition is left out if its leader is away, or does not answer in time.
        """

    @abstractmethod
    def told(self, names: Collection[str], timeout_seconds: float) -> dict[str, CommittedPosition]:
        """Ask the brokers what the group has committed, all at once; left out where it is nothing.

        Raises
        ------
        KafkaTimeoutError
            The brokers did not answer in time.
        """

    @abstractmethod
    def seek(self, name: str, position: int) -> None:
        """Read a partition from there."""

    @abstractmethod
    def pause(self, names: Collection[str]) -> None:
        """Hold partitions still."""

    @abstractmethod
    def resume(self, names: Collection[str]) -> None:
        """Let them move again."""

    @abstractmethod
    def commit_soon(
        self, marks: Mapping[str, CommittedPosition], arrived: Callable[[Mapping[str, int]], None]
    ) -> None:
        """Send what is to be committed, without waiting; `arrived` hears of the positions that did."""

    @abstractmethod
    def commit(self, marks: Mapping[str, CommittedPosition], timeout_seconds: float) -> None:
        """Send what is to be committed and wait until it has arrived."""

    @abstractmethod
    def close(self, timeout_seconds: float) -> None:
        """Leave the group without committing."""


def name_of(tp: TopicPartition) -> str:
    """``topic-3``.

    Examples
    --------
    >>> name_of(TopicPartition("clicks", 3)), partition_of("page-views-12")
    ('clicks-3', TopicPartition(topic='page-views', partition=12))
    """
    return f"{tp.topic}-{tp.partition}"


def partition_of(name: str) -> TopicPartition:
    """The partition of a name; topics may hold hyphens, numbers may not."""
    topic, _, number = name.rpartition("-")
    return TopicPartition(topic, int(number))
