"""The driver over confluent-kafka, Confluent's Python binding of the C library librdkafka.

librdkafka fetches messages in its own threads, outside of Python, so a poll only collects messages that have
come. The driver sets positions by a new assignment: each partition with the position where it continues.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import msgspec
from confluent_kafka import Consumer, IsolationLevel, KafkaException, TopicCollection, TopicPartition
from confluent_kafka import KafkaError as NativeError
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from kafka import errors as kafka_errors
from kafka.errors import KafkaTimeoutError, UnknownTopicOrPartitionError

from connectors.formats.wires.beside import beside
from connectors.formats.wires.cloudevents import Headers
from connectors.kafka.drivers.base import (
    LAST_COMMIT_SECONDS,
    CommittedPosition,
    Driver,
    End,
    Polled,
    PositionGoneError,
    RebalanceListener,
    Stamp,
    TopicDescription,
    partition_of,
)
from connectors.kafka.drivers.errors import passes
from connectors.kafka.drivers.unreadable import PLACEHOLDER, PROBE_SECONDS, end_of_batch

log = logging.getLogger(__name__)

IDLE_SECONDS = 0.5
"""The shortest time between two calls that keep the consumer in the group while nothing is read.

Pausing partitions drops the messages that were fetched ahead, so a reader that waits only a moment for room
must not do it.
"""

Message = Any
"""A message of confluent-kafka, whose type hints allow for a missing topic and offset."""

ASK_SECONDS = 1.0
"""The longest time for the brokers to name a topic's partitions."""


class NativeDriver(Driver):
    """A driver over a consumer of confluent-kafka.

    Parameters
    ----------
    options : mapping of str to object
        librdkafka's properties, from `native_options`.
    topics : sequence of str
        The topics to read.
    """

    def __init__(self, options: Mapping[str, Any], topics: Sequence[str]) -> None:
        self._topics = topics
        self._partitions: dict[str, set[int]] = {}
        self._feed = BrokerStats()
        self._listener: RebalanceListener | None = None
        self._mine: set[str] = set()
        self._still: set[str] = set()
        self._places: dict[str, int] = {}
        self._moved = self._held = self._tell_gone = False
        self._revoked: set[str] = set()
        self._gone: dict[str, Exception] = {}
        self._truncated = False  # one of those
        self._sought: set[str] = set()  # nothing has been read since `seek`
        self._spoilt: Message | None = None
        self._failure: Exception | None = None
        self._polled_at = 0.0
        self._arrived: Callable[[Mapping[str, int]], None] = lambda positions: None
        self._commit_error: Exception | None = None
        self._asking: AdminClient | None = None
        # It meets no trouble that the consumer does not meet and tell.
        uncommitted = options.get("isolation.level") == "read_uncommitted"
        self._isolation = IsolationLevel.READ_UNCOMMITTED if uncommitted else IsolationLevel.READ_COMMITTED
        self._asks_by = {**options, "log_level": 0, "statistics.interval.ms": 0}
        callbacks = {"error_cb": self._erred, "stats_cb": self._feed.hear, "on_commit": self._committed}
        with raised():
            # What it logs belongs beside what kafka-python logs; unasked, it writes to standard error.
            self._consumer = Consumer({**options, **callbacks}, logger=logging.getLogger("kafka.librdkafka"))

    @property
    def _admin(self) -> AdminClient:
        self._asking = self._asking or AdminClient(self._asks_by)
        return self._asking

    def connect(self, timeout_seconds: float) -> bool:
        """Wait for an answer of a broker, and return whether one came in time."""
        deadline = time.monotonic() + timeout_seconds
        try:
            for topic in self._topics:
                self._look_up(topic, max(deadline - time.monotonic(), 0.01))
        except Exception as error:
            self._consumer.poll(0)  # for `_erred` to hear why
            self._raise_failure()
            if not passes(error):
                raise
            return False
        return True

    def subscribe(self, topics: Sequence[str], listener: RebalanceListener) -> None:
        """Join the group."""
        self._listener = listener
        self._consumer.subscribe(
            list(topics), on_assign=self._assigned, on_revoke=self._taken, on_lost=self._lost
        )

    def assign(self, positions: Mapping[str, int]) -> None:
        """Read these partitions from these positions, outside of any group."""
        self._mine, self._places, self._moved = set(positions), dict(positions), True

    def poll(self, timeout_seconds: float, most: int) -> list[Polled]:
        """Return at most `most` messages, and wait for the first of them."""
        self._raise_failure()
        if self._tell_gone:
            self._raise_gone()
        if self._spoilt is not None:
            return self._step_over(self._spoilt)
        self._settle()
        self._revoked.clear()
        found = self._sort_out(self._take(timeout_seconds, most))
        self._tell_gone = bool(self._gone)
        if not found:
            self._raise_failure()
            self._raise_gone()
        return found

    def idle(self) -> None:
        """Stay in the group without reading."""
        self._raise_failure()
        if time.monotonic() - self._polled_at < IDLE_SECONDS:
            return
        if not self._held:
            self._held = True
            with raised():
                self._consumer.assign([])
        self._revoked.clear()
        for event in self._take(0.0, 1):
            if event.error() is not None:
                self._judge(event)

    def assigned(self) -> set[str]:
        """Return the partitions that the group has assigned to this consumer."""
        return set(self._mine)

    def partitions_of(self, topic: str) -> set[int]:
        """Return the numbers of a topic's partitions, as of the last answer of a broker."""
        return self._partitions.get(topic, set())

    def describe(self, topics: Collection[str], timeout_seconds: float) -> dict[str, TopicDescription]:
        """Ask the brokers for the ids and the partitions of topics.

        A separate client asks, because consumers of the library do not receive ids.
        """
        with raised():
            asked = self._admin.describe_topics(TopicCollection([*topics]), request_timeout=timeout_seconds)
        found = {}
        for topic, answer in asked.items():
            try:
                with raised():
                    described = answer.result(timeout_seconds + 1)
            except UnknownTopicOrPartitionError:
                self._partitions[topic] = set()  # once it is there again, `refresh` subscribes to it
                continue
            uuid = uuid_of(described.topic_id)
            numbers = {partition.id for partition in described.partitions}
            found[topic] = TopicDescription(str(uuid) if uuid.int else "", numbers)
        return found

    def connected(self) -> bool:
        """Return whether the brokers that lead the assigned partitions were connected a second ago."""
        return self._feed.connected(self._mine)

    def refresh(self) -> None:
        """Ask the brokers which topics exist, and subscribe again if a topic has been created.

        librdkafka reads a topic that did not exist before only after this.
        """
        came = False
        for topic in self._topics:
            if not self._partitions.get(topic):
                self._look_up(topic, ASK_SECONDS)
                came = came or bool(self._partitions[topic])
        if came and self._listener is not None:
            self.subscribe(self._topics, self._listener)

    def position(self, name: str) -> int | None:
        """Return the offset of the next message of a partition, or None if it has no position."""
        return self._places.get(name)

    def highwater(self, name: str) -> int | None:
        """Return the end of a partition's log as of the last messages, or None if no message has come."""
        try:
            _, end = self._consumer.get_watermark_offsets(place(name), cached=True)
        except KafkaException:
            return None  # nothing was fetched of it yet
        return int(end) if end >= 0 else None

    def ends(self, names: Collection[str], end: End, timeout_seconds: float) -> dict[str, int]:
        """Ask the brokers for the first or the last offsets of partitions, of all at once.

        The consumer itself would ask for one partition at a time.
        """
        spec: Any = getattr(OffsetSpec, end)()
        with raised():
            asked = self._admin.list_offsets(
                {place(name): spec for name in names},
                isolation_level=self._isolation,
                request_timeout=timeout_seconds,
            )
        found, deadline = {}, time.monotonic() + timeout_seconds + 1
        for each, answer in asked.items():
            try:
                with raised():
                    found[name_at(each)] = int(answer.result(max(deadline - time.monotonic(), 0)).offset)
            except Exception as error:
                if not passes(error):
                    raise
        return found

    def told(self, names: Collection[str], timeout_seconds: float) -> dict[str, CommittedPosition]:
        """Ask the brokers for the positions that the group has committed."""
        with raised():
            found = self._consumer.committed(list(map(place, names)), timeout=timeout_seconds)
        for each in found:
            if each.error is not None:
                raise translated(each.error)
        return {
            name_at(each): CommittedPosition(each.offset, note_of(each)) for each in found if each.offset >= 0
        }

    def seek(self, name: str, position: int) -> None:
        """Set the position from which a partition is read, from the next poll on."""
        self._places[name] = position
        self._sought.add(name)
        self._gone.pop(name, None)
        self._truncated &= bool(self._gone)
        self._moved = True

    def pause(self, names: Collection[str]) -> None:
        """Stop fetching messages of these partitions from the next poll on, until `resume`.

        The consumer keeps the partitions, and messages that were fetched ahead are dropped.
        """
        self._still.update(names)
        self._moved = True

    def resume(self, names: Collection[str]) -> None:
        """Fetch messages of these partitions again, from the next poll on."""
        self._still.difference_update(names)
        self._moved = True

    def commit_soon(
        self, marks: Mapping[str, CommittedPosition], arrived: Callable[[Mapping[str, int]], None]
    ) -> None:
        """Send positions to commit, without waiting for the answer."""
        self._arrived = arrived
        with raised():
            self._consumer.commit(offsets=marked(marks), asynchronous=True)

    def commit(self, marks: Mapping[str, CommittedPosition], timeout_seconds: float) -> None:
        """Send positions to commit, and wait until the brokers have stored them.

        Nothing may be read after it.
        """
        done = threading.Event()
        self._commit_error = None
        self.commit_soon(marks, lambda positions: done.set())
        deadline = time.monotonic() + timeout_seconds
        while not done.is_set():
            if self._commit_error is not None:
                raise self._commit_error
            if time.monotonic() >= deadline:
                raise KafkaTimeoutError(f"no answer within {timeout_seconds:g} s")
            self._consumer.poll(0.05)

    def close(self, timeout_seconds: float) -> None:
        """Leave the group without a commit."""
        # librdkafka may wait for a broker that is away longer than whoever stops us has time for.
        self._asking = None
        closing = threading.Thread(target=self._consumer.close, name="kafka-close", daemon=True)
        closing.start()
        closing.join(timeout_seconds)

    def _look_up(self, topic: str, timeout_seconds: float) -> None:
        with raised():
            found = self._consumer.list_topics(topic, timeout=timeout_seconds)
        self._partitions[topic] = set(found.topics[topic].partitions)

    def _settle(self) -> None:
        """Assign to librdkafka the partitions that are read now, each with its position."""
        if not (self._moved or self._held):
            return
        names = sorted((self._mine - self._still) & self._places.keys())
        with raised():
            self._consumer.assign([place(name, self._places[name]) for name in names])
        self._moved = self._held = False

    def _take(self, timeout_seconds: float, most: int) -> list[Message]:
        """Wait for one message, and return it with the others that are available.

        `consume` alone would wait for `most` messages.
        """
        with raised():
            first = self._consumer.poll(timeout_seconds)
            self._polled_at = time.monotonic()
            if first is None:
                return []
            return [first, *self._consumer.consume(most - 1, 0)] if most > 1 else [first]

    def _sort_out(self, messages: Sequence[Message]) -> list[Polled]:
        """Return messages by partition, without those of partitions that were revoked meanwhile.

        The next owner of a revoked partition reads its messages.
        """
        parts: dict[tuple[str, int], list[Message]] = {}
        part: list[Message] = []
        last: tuple[str, int] | None = None
        events: list[Message] = []
        for message in messages:
            key = message.topic(), message.partition()
            if message.error() is not None:
                if not self._is_overtaken(message, parts.get(key)):
                    events.append(message)
                continue
            if key != last:
                part, last = parts.setdefault(key, []), key
            part.append(message)
        found = []
        for (topic, number), part in parts.items():
            name = f"{topic}-{number}"
            if name in self._mine and name not in self._revoked and name in self._places:
                found.append(self._polled(name, part))
                self._places[name] = part[-1].offset() + 1
                self._sought.discard(name)
        for event in events:
            # After the messages: the end of a log may lie behind the last of them.
            self._judge(event)
        return found

    def _is_overtaken(self, event: Message, before: Sequence[Message] | None) -> bool:
        """Return whether an event says that there is nothing at a position that `seek` has changed since.

        librdkafka then drops older messages, but not these events. A position after the messages that were
        read may be the present one, because the markers of transactions are in between.
        """
        name = f"{event.topic()}-{event.partition()}"
        if event.error().code() not in GONE or name not in self._places:
            return False
        position = before[-1].offset() + 1 if before else self._places[name]
        if name in self._sought and not before:
            return bool(event.offset() != position)
        return bool(event.offset() < position)

    def _polled(self, name: str, messages: Sequence[Message]) -> Polled:
        values, offsets = [each.value() for each in messages], [each.offset() for each in messages]
        wanted = self.with_headers or (self.with_any_headers and any(each.headers() for each in messages))
        headers = [beside_of(each) for each in messages] if wanted else None
        first, last = stamp_of(messages[0]), stamp_of(messages[-1])
        return Polled(name, values, offsets, headers=headers, first=first, last=last)

    def _judge(self, message: Message) -> None:
        """Process an event among the messages: the end of a log, or an error."""
        error = message.error()
        name = f"{message.topic()}-{message.partition()}"
        live = name in self._places and name not in self._revoked
        if error.code() == NativeError._PARTITION_EOF:
            if live:
                # Behind the markers of transactions, which are no messages.
                self._places[name] = max(self._places[name], message.offset())
                self._sought.discard(name)
        elif error.code() in GONE:
            if live:
                self._gone[name] = translated(error)
                self._truncated |= error.code() == NativeError._LOG_TRUNCATION
        elif error.code() in SPOILT:
            self._spoilt = message if live else None
        else:
            self._erred(error)

    def _erred(self, error: NativeError) -> None:
        found = translated(error)
        if passes(found) and not error.fatal():
            log.debug("%s", error.str())
        else:
            self._failure = found

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _raise_gone(self) -> None:
        """Raise the error of missing records at each call until `seek`: librdkafka reports it only once."""
        self._tell_gone = False
        if self._gone:
            cause = next(iter(self._gone.values()))
            raise PositionGoneError(dict.fromkeys(self._gone), cause, self._truncated)

    def _step_over(self, message: Message) -> list[Polled]:
        """Continue after a batch that fails its checksum; see `unreadable`."""
        self._spoilt = None
        name, start, why = f"{message.topic()}-{message.partition()}", message.offset(), message.error().str()
        high, begin = self.highwater(name), self._places.get(name)
        if name not in self._mine or high is None or begin is None:
            return []
        self._revoked.clear()
        end = end_of_spoilt(self._consumer, name, start, high, lambda: name in self._mine)
        self._moved = True
        if end is None or name in self._revoked:
            return []
        begin = max(start, begin)
        self._places[name] = end
        return [Polled(name, [PLACEHOLDER] * (end - begin), range(begin, end), why)]

    def _assigned(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        # Nothing is fetched before `seek` has said from where.
        consumer.assign([])
        self._mine = set(map(name_at, places))
        self._places.clear()
        self._still = set(self._mine)
        assert self._listener is not None
        self._listener.assigned(self.assigned())

    def _taken(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        assert self._listener is not None
        names = set(map(name_at, places))
        self._let_go(names)
        for _ in self._listener.draining(names):
            # In librdkafka's threads heartbeats go on meanwhile.
            time.sleep(0.01)
        marks = self._listener.last_marks(names)
        if marks:
            self._listener.committed(marks, commit_within(consumer, marks, LAST_COMMIT_SECONDS))
        consumer.unassign()

    def _lost(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        assert self._listener is not None
        names = set(map(name_at, places))
        self._let_go(names)
        self._listener.lost(names)
        consumer.unassign()

    def _let_go(self, names: set[str]) -> None:
        self._revoked |= names
        self._mine -= names
        self._still -= names
        for name in names:
            self._places.pop(name, None)
            self._sought.discard(name)
            self._gone.pop(name, None)

    def _committed(self, error: NativeError | None, places: list[TopicPartition]) -> None:
        if error is not None:
            log.debug("a commit failed and is repeated: %s", error.str())
            self._commit_error = translated(error)
        else:
            self._arrived({name_at(each): each.offset for each in places if each.error is None})


def commit_within(
    consumer: Consumer, marks: Mapping[str, CommittedPosition], seconds: float
) -> Exception | None:
    """Commit inside a callback, where nothing can be polled, and return the error, or None if it succeeded.

    A commit that waits has no time limit: if the coordinator is away, it blocks the whole group as long as a
    session lasts. So the function sends a commit without waiting, and asks the brokers whether it has
    arrived.
    """
    try:
        with raised():
            consumer.commit(offsets=marked(marks), asynchronous=True)
            found = consumer.committed([place(name) for name in marks], timeout=seconds)
    except Exception as error:  # noqa: BLE001 - told to the listener: a callback must not raise
        return error
    without = sorted(name_at(each) for each in found if each.offset != marks[name_at(each)].position)
    return KafkaTimeoutError(f"it has not arrived for {', '.join(without)}") if without else None


def beside_of(message: Message) -> Headers:
    """Return the headers of a message, with its key and its time."""
    return beside(message.headers() or (), message.key(), message.timestamp()[1])


def stamp_of(message: Message) -> Stamp:
    """Return the stamp of a message, by which it differs from messages of another log."""
    epoch, (_, moment) = message.leader_epoch(), message.timestamp()
    return Stamp(-1 if epoch is None else epoch, moment)


def uuid_of(topic_id: Any) -> UUID:
    """Convert an id of librdkafka to the form that kafka-python has.

    Examples
    --------
    >>> from confluent_kafka import Uuid
    >>> uuid_of(Uuid(1, -1))
    UUID('00000000-0000-0001-ffff-ffffffffffff')
    """
    bits = topic_id.get_most_significant_bits(), topic_id.get_least_significant_bits()
    return UUID(bytes=b"".join(each.to_bytes(8, "big", signed=True) for each in bits))


def name_at(place: TopicPartition) -> str:
    """Return the name of a partition, such as ``topic-3``."""
    return f"{place.topic}-{place.partition}"


def place(name: str, position: int | None = None) -> TopicPartition:
    """Return the partition of a name, with a position if there is one.

    Examples
    --------
    >>> found = place("page-views-3", 40)
    >>> found.topic, found.partition, found.offset
    ('page-views', 3, 40)
    """
    topic, number = partition_of(name)
    return TopicPartition(topic, number) if position is None else TopicPartition(topic, number, position)


def note_of(found: TopicPartition) -> str:
    """Return the note beside a committed position, perhaps with a few bytes of garbage after it.

    librdkafka copies a note without its end, and confluent-kafka reads on to the next zero byte.
    """
    try:
        return found.metadata or ""
    except UnicodeDecodeError as error:
        return error.object[: error.start].decode()


def marked(marks: Mapping[str, CommittedPosition]) -> list[TopicPartition]:
    """Convert positions to commit, with their notes, to librdkafka's form.

    Examples
    --------
    >>> [(each.offset, each.metadata) for each in marked({"clicks-0": CommittedPosition(40, "began=7")})]
    [(40, 'began=7')]
    """
    found = []
    for name, (position, note) in marks.items():
        topic, number = partition_of(name)
        found.append(TopicPartition(topic, number, position, note))
    return found


class _Broker(msgspec.Struct):
    nodeid: int
    state: str


class _Partition(msgspec.Struct):
    leader: int


class _Topic(msgspec.Struct):
    partitions: dict[str, _Partition] = {}


class _Statistics(msgspec.Struct):
    brokers: dict[str, _Broker] = {}
    topics: dict[str, _Topic] = {}


class BrokerStats:
    """The connected brokers, and the broker that leads each partition, from librdkafka's statistics.

    Examples
    --------
    >>> feed = BrokerStats()
    >>> feed.connected({"clicks-0"})  # nothing is known yet, and a broker has just answered
    True
    >>> feed.hear('{"brokers": {"one:9092/1": {"nodeid": 1, "state": "UP"},'
    ...           ' "two:9092/2": {"nodeid": 2, "state": "CONNECT"}},'
    ...           ' "topics": {"clicks": {"partitions": {"0": {"leader": 1}, "1": {"leader": 2}}}}}')
    >>> feed.connected({"clicks-0"}), feed.connected({"clicks-0", "clicks-1"}), feed.connected(())
    (True, False, True)
    """

    def __init__(self) -> None:
        self._decode = msgspec.json.Decoder(_Statistics).decode
        self._heard = False
        self._up: set[int] = set()
        self._leaders: dict[str, int] = {}

    def hear(self, statistics: str) -> None:
        """Update from librdkafka's statistics, a text of JSON."""
        found = self._decode(statistics)
        self._heard = True
        self._up = {broker.nodeid for broker in found.brokers.values() if broker.state == "UP"}
        self._leaders = {
            f"{topic}-{number}": partition.leader
            for topic, each in found.topics.items()
            for number, partition in each.partitions.items()
        }

    def connected(self, names: Collection[str]) -> bool:
        """Return whether the leaders of these partitions are connected.

        Without partitions it is whether any broker is connected. Before the first statistics it is True.
        """
        if not self._heard:
            return True
        known = [self._leaders[name] for name in names if name in self._leaders]
        return self._up.issuperset(known) if known else bool(self._up)


_LOCAL: dict[int, type[kafka_errors.KafkaError]] = {
    NativeError._TRANSPORT: kafka_errors.KafkaConnectionError,
    NativeError._ALL_BROKERS_DOWN: kafka_errors.KafkaConnectionError,
    NativeError._RESOLVE: kafka_errors.KafkaConnectionError,
    NativeError._SSL: kafka_errors.KafkaConnectionError,
    NativeError._DESTROY: kafka_errors.KafkaConnectionError,
    NativeError._TIMED_OUT: kafka_errors.KafkaTimeoutError,
    NativeError._TIMED_OUT_QUEUE: kafka_errors.KafkaTimeoutError,
    NativeError._WAIT_COORD: kafka_errors.KafkaTimeoutError,
    NativeError._WAIT_CACHE: kafka_errors.KafkaTimeoutError,
    NativeError._UNKNOWN_TOPIC: kafka_errors.UnknownTopicOrPartitionError,
    NativeError._UNKNOWN_PARTITION: kafka_errors.UnknownTopicOrPartitionError,
    NativeError._NOENT: kafka_errors.LeaderNotAvailableError,  # of `list_offsets`, which found no leader
    NativeError._MAX_POLL_EXCEEDED: kafka_errors.RebalanceInProgressError,
    NativeError._ASSIGNMENT_LOST: kafka_errors.RebalanceInProgressError,
    NativeError._STATE: kafka_errors.IllegalGenerationError,
    NativeError._AUTHENTICATION: kafka_errors.SaslAuthenticationFailedError,
    NativeError._AUTO_OFFSET_RESET: kafka_errors.OffsetOutOfRangeError,
    NativeError._LOG_TRUNCATION: kafka_errors.OffsetOutOfRangeError,
    NativeError._BAD_COMPRESSION: kafka_errors.CorruptRecordError,
    NativeError._BAD_MSG: kafka_errors.CorruptRecordError,
    NativeError._INVALID_ARG: kafka_errors.KafkaConfigurationError,
}

GONE = frozenset(
    {NativeError._AUTO_OFFSET_RESET, NativeError._LOG_TRUNCATION, NativeError.OFFSET_OUT_OF_RANGE}
)
"""The codes of errors which say that there are no records at a position."""

SPOILT = frozenset({NativeError._BAD_MSG, NativeError.INVALID_MSG})
"""The codes of errors which say that a batch fails its checksum."""


def translated(error: NativeError) -> Exception:
    """Return the error of kafka-python that has the same meaning as an error of confluent-kafka.

    Examples
    --------
    >>> translated(NativeError(NativeError._TIMED_OUT))
    KafkaTimeoutError('Local: Timed out')
    >>> translated(NativeError(NativeError.TOPIC_AUTHORIZATION_FAILED))
    TopicAuthorizationFailedError('Broker: Topic authorization failed')
    """
    code = error.code()
    kind = kafka_errors.for_code(code) if code > 0 else _LOCAL.get(code, kafka_errors.KafkaError)
    found: Exception = kind(error.str())
    return found


@contextmanager
def raised() -> Iterator[None]:
    """Run a block, and replace an error of confluent-kafka in it by the same error of kafka-python."""
    try:
        yield
    except KafkaException as error:
        raise translated(error.args[0]) from error


def end_of_spoilt(
    consumer: Consumer, name: str, start: int, high: int, ours: Callable[[], bool]
) -> int | None:
    """Return the offset after a damaged batch.

    The consumer stays assigned to this partition alone.

    Parameters
    ----------
    consumer : Consumer
        Nothing else may poll it meanwhile.
    name : str
        The partition.
    start : int
        The batch's first offset.
    high : int
        The end of the log.
    ours : callable
        Returns whether the partition still belongs to this consumer: it may be revoked meanwhile.

    Returns
    -------
    int or None
        None if the brokers did not answer in time, or the partition was revoked.
    """

    def is_inside(offset: int) -> bool | None:
        with raised():
            consumer.assign([place(name, offset)])
        deadline = time.monotonic() + PROBE_SECONDS
        while time.monotonic() < deadline and ours():
            message: Any = consumer.poll(0.2)
            if message is None or (message.topic(), message.partition()) != partition_of(name):
                continue
            if message.error() is None:
                return False
            if message.error().code() in SPOILT:
                return bool(message.offset() == start)
        return None

    return end_of_batch(is_inside, start, high)
