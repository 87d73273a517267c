"""A driver that uses confluent-kafka, Confluent's Python binding of the C library librdkafka.

librdkafka fetches messages in threads of its own, so a poll only collects messages that have already arrived.
To set a position, the driver gives librdkafka a new assignment: all partitions, each with its position.
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
from connectors.kafka.drivers.errors import is_transient
from connectors.kafka.drivers.unreadable import PLACEHOLDER, PROBE_SECONDS, end_of_batch

log = logging.getLogger(__name__)

IDLE_SECONDS = 0.5
"""The time without a poll after which `idle` stops fetching and polls to stay in the group, in seconds.

When fetching stops, librdkafka drops the messages that it has fetched ahead. A source that waits only a
moment before it reads again must therefore not stop fetching.
"""

Message = Any
"""A message of confluent-kafka; the type hints of its own class allow a missing topic and offset."""

ASK_SECONDS = 1.0
"""The time limit of a request for the partitions of a topic, in seconds."""


class NativeDriver(Driver):
    """A driver that uses a consumer of confluent-kafka.

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
        self._statistics = BrokerStats()
        self._listener: RebalanceListener | None = None
        self._assignment: set[str] = set()
        self._paused: set[str] = set()
        self._positions: dict[str, int] = {}
        self._must_assign = self._is_idle = self._must_report_gone = False
        self._revoked: set[str] = set()
        self._gone: dict[str, Exception] = {}
        self._truncated = False  # whether an error in `_gone` reports a truncated log
        self._unread_since_seek: set[str] = set()  # nothing has been read since `seek`
        self._damaged: Message | None = None
        self._failure: Exception | None = None
        self._polled_at = 0.0
        self._on_stored: Callable[[Mapping[str, int]], None] = lambda positions: None
        self._commit_error: Exception | None = None
        self._admin_client: AdminClient | None = None
        # The admin client logs nothing: the consumer meets the same errors and reports them.
        uncommitted = options.get("isolation.level") == "read_uncommitted"
        self._isolation = IsolationLevel.READ_UNCOMMITTED if uncommitted else IsolationLevel.READ_COMMITTED
        self._admin_options = {**options, "log_level": 0, "statistics.interval.ms": 0}
        callbacks = {
            "error_cb": self._on_error,
            "stats_cb": self._statistics.update,
            "on_commit": self._on_commit,
        }
        with translated_errors():
            # Without a logger, librdkafka writes its log to standard error.
            self._consumer = Consumer({**options, **callbacks}, logger=logging.getLogger("kafka.librdkafka"))

    @property
    def _admin(self) -> AdminClient:
        self._admin_client = self._admin_client or AdminClient(self._admin_options)
        return self._admin_client

    def connect(self, timeout_seconds: float) -> bool:
        """Wait for an answer from a broker, and return whether an answer arrived in time."""
        deadline = time.monotonic() + timeout_seconds
        try:
            for topic in self._topics:
                self._fetch_partitions(topic, max(deadline - time.monotonic(), 0.01))
        except Exception as error:
            self._consumer.poll(0)  # calls `_on_error` with the reason
            self._raise_failure()
            if not is_transient(error):
                raise
            return False
        return True

    def subscribe(self, topics: Sequence[str], listener: RebalanceListener) -> None:
        """Join the group to read topics."""
        self._listener = listener
        self._consumer.subscribe(
            list(topics), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def assign(self, positions: Mapping[str, int]) -> None:
        """Read these partitions from these positions without joining a group."""
        self._assignment, self._positions, self._must_assign = set(positions), dict(positions), True

    def poll(self, timeout_seconds: float, most: int) -> list[Polled]:
        """Wait for the first message, and return the available messages, at most `most` of them."""
        self._raise_failure()
        if self._must_report_gone:
            self._raise_gone()
        if self._damaged is not None:
            return self._skip_damaged(self._damaged)
        self._update_assignment()
        self._revoked.clear()
        polled = self._split_by_partition(self._consume(timeout_seconds, most))
        self._must_report_gone = bool(self._gone)
        if not polled:
            self._raise_failure()
            self._raise_gone()
        return polled

    def idle(self) -> None:
        """Stay in the group without reading messages."""
        self._raise_failure()
        if time.monotonic() - self._polled_at < IDLE_SECONDS:
            return
        if not self._is_idle:
            self._is_idle = True
            with translated_errors():
                self._consumer.assign([])
        self._revoked.clear()
        for event in self._consume(0.0, 1):
            if event.error() is not None:
                self._process_event(event)

    def assignment(self) -> set[str]:
        """Return the partitions that the group has assigned to this consumer."""
        return set(self._assignment)

    def partitions_of(self, topic: str) -> set[int]:
        """Return the numbers of a topic's partitions, as of the last answer from a broker."""
        return self._partitions.get(topic, set())

    def describe(self, topics: Collection[str], timeout_seconds: float) -> dict[str, TopicDescription]:
        """Ask the brokers for the ids and the partitions of topics.

        An admin client sends the request, because consumers of confluent-kafka do not receive the ids of
        topics.
        """
        with translated_errors():
            futures = self._admin.describe_topics(TopicCollection([*topics]), request_timeout=timeout_seconds)
        descriptions = {}
        for topic, future in futures.items():
            try:
                with translated_errors():
                    described = future.result(timeout_seconds + 1)
            except UnknownTopicOrPartitionError:
                self._partitions[topic] = set()  # after it is created again, `refresh` subscribes to it
                continue
            uuid = uuid_of(described.topic_id)
            numbers = {partition.id for partition in described.partitions}
            descriptions[topic] = TopicDescription(str(uuid) if uuid.int else "", numbers)
        return descriptions

    def is_connected(self) -> bool:
        """Return whether the brokers that lead the assigned partitions are connected.

        The result is up to a second old, because librdkafka reports its connections once a second.
        """
        return self._statistics.is_connected(self._assignment)

    def refresh(self) -> None:
        """Ask the brokers which topics exist, and subscribe again if a topic has been created.

        Without a new subscription, librdkafka does not read a topic that did not exist when it subscribed.
        """
        has_new_topic = False
        for topic in self._topics:
            if not self._partitions.get(topic):
                self._fetch_partitions(topic, ASK_SECONDS)
                has_new_topic = has_new_topic or bool(self._partitions[topic])
        if has_new_topic and self._listener is not None:
            self.subscribe(self._topics, self._listener)

    def position(self, name: str) -> int | None:
        """Return the offset of the next message of a partition, or None if the partition has no position."""
        return self._positions.get(name)

    def highwater(self, name: str) -> int | None:
        """Return the end of a partition's log as of the last fetch, or None before the first fetch."""
        try:
            _, end = self._consumer.get_watermark_offsets(native_partition(name), cached=True)
        except KafkaException:
            return None  # before the first fetch
        return int(end) if end >= 0 else None

    def ends(self, names: Collection[str], end: End, timeout_seconds: float) -> dict[str, int]:
        """Ask the brokers for the first or the last offsets of all these partitions at once.

        An admin client sends the request, because a consumer would send a request for each partition.
        """
        spec: Any = getattr(OffsetSpec, end)()
        with translated_errors():
            futures = self._admin.list_offsets(
                {native_partition(name): spec for name in names},
                isolation_level=self._isolation,
                request_timeout=timeout_seconds,
            )
        offsets, deadline = {}, time.monotonic() + timeout_seconds + 1
        for partition, future in futures.items():
            try:
                with translated_errors():
                    offsets[name_at(partition)] = int(
                        future.result(max(deadline - time.monotonic(), 0)).offset
                    )
            except Exception as error:
                if not is_transient(error):
                    raise
        return offsets

    def committed_positions(
        self, names: Collection[str], timeout_seconds: float
    ) -> dict[str, CommittedPosition]:
        """Ask the brokers for the positions that the group has committed."""
        with translated_errors():
            committed = self._consumer.committed(list(map(native_partition, names)), timeout=timeout_seconds)
        for partition in committed:
            if partition.error is not None:
                raise translated(partition.error)
        return {
            name_at(partition): CommittedPosition(partition.offset, note_of(partition))
            for partition in committed
            if partition.offset >= 0
        }

    def seek(self, name: str, position: int) -> None:
        """Set the offset from which a partition is read, beginning with the next poll."""
        self._positions[name] = position
        self._unread_since_seek.add(name)
        self._gone.pop(name, None)
        self._truncated &= bool(self._gone)
        self._must_assign = True

    def pause(self, names: Collection[str]) -> None:
        """Stop fetching messages of these partitions, beginning with the next poll, until `resume` is called.

        The partitions stay assigned. Messages that librdkafka has fetched ahead are dropped and fetched again
        later.
        """
        self._paused.update(names)
        self._must_assign = True

    def resume(self, names: Collection[str]) -> None:
        """Continue to fetch messages of paused partitions, beginning with the next poll."""
        self._paused.difference_update(names)
        self._must_assign = True

    def commit_soon(
        self, marks: Mapping[str, CommittedPosition], on_stored: Callable[[Mapping[str, int]], None]
    ) -> None:
        """Send positions to commit, without waiting for the answer."""
        self._on_stored = on_stored
        with translated_errors():
            self._consumer.commit(offsets=native_offsets(marks), asynchronous=True)

    def commit(self, marks: Mapping[str, CommittedPosition], timeout_seconds: float) -> None:
        """Send positions to commit, and wait until the brokers have stored them.

        The method drops messages that arrive while it waits. Do not poll afterwards.
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
        """Leave the group and close the consumer, without a commit."""
        # librdkafka may wait for an unreachable broker longer than `timeout_seconds`.
        self._admin_client = None
        closing = threading.Thread(target=self._consumer.close, name="kafka-close", daemon=True)
        closing.start()
        closing.join(timeout_seconds)

    def _fetch_partitions(self, topic: str, timeout_seconds: float) -> None:
        with translated_errors():
            metadata = self._consumer.list_topics(topic, timeout=timeout_seconds)
        self._partitions[topic] = set(metadata.topics[topic].partitions)

    def _update_assignment(self) -> None:
        """Give librdkafka the partitions to read and their positions, if these have changed."""
        if not (self._must_assign or self._is_idle):
            return
        names = sorted((self._assignment - self._paused) & self._positions.keys())
        with translated_errors():
            self._consumer.assign([native_partition(name, self._positions[name]) for name in names])
        self._must_assign = self._is_idle = False

    def _consume(self, timeout_seconds: float, most: int) -> list[Message]:
        """Wait for one message, and return it with the other available messages, at most `most` in all.

        The method `consume` of confluent-kafka alone would wait until `most` messages have arrived.
        """
        with translated_errors():
            first = self._consumer.poll(timeout_seconds)
            self._polled_at = time.monotonic()
            if first is None:
                return []
            return [first, *self._consumer.consume(most - 1, 0)] if most > 1 else [first]

    def _split_by_partition(self, messages: Sequence[Message]) -> list[Polled]:
        """Return messages by partition, and process the events among them.

        Messages of partitions that were revoked meanwhile are dropped, because the next owner reads them.
        """
        parts: dict[tuple[str, int], list[Message]] = {}
        part: list[Message] = []
        last: tuple[str, int] | None = None
        events: list[Message] = []
        for message in messages:
            key = message.topic(), message.partition()
            if message.error() is not None:
                if not self._is_outdated(message, parts.get(key)):
                    events.append(message)
                continue
            if key != last:
                part, last = parts.setdefault(key, []), key
            part.append(message)
        polled = []
        for (topic, number), part in parts.items():
            name = f"{topic}-{number}"
            if name in self._assignment and name not in self._revoked and name in self._positions:
                polled.append(self._polled(name, part))
                self._positions[name] = part[-1].offset() + 1
                self._unread_since_seek.discard(name)
        for event in events:
            # Events come after the messages, because the end of a log may lie behind the last message.
            self._process_event(event)
        return polled

    def _is_outdated(self, event: Message, before: Sequence[Message] | None) -> bool:
        """Return whether an event is about a position that `seek` has replaced.

        The event says that the brokers have no record at a position. After `seek`, librdkafka drops messages
        from the former position, but not these events. The current position may be higher than the offset
        after the last message, because the markers of transactions have offsets too.
        """
        name = f"{event.topic()}-{event.partition()}"
        if event.error().code() not in GONE or name not in self._positions:
            return False
        position = before[-1].offset() + 1 if before else self._positions[name]
        if name in self._unread_since_seek and not before:
            return bool(event.offset() != position)
        return bool(event.offset() < position)

    def _polled(self, name: str, messages: Sequence[Message]) -> Polled:
        values, offsets = [each.value() for each in messages], [each.offset() for each in messages]
        wanted = self.with_headers or (self.with_any_headers and any(each.headers() for each in messages))
        headers = [headers_of(each) for each in messages] if wanted else None
        first, last = stamp_of(messages[0]), stamp_of(messages[-1])
        return Polled(name, values, offsets, headers=headers, first=first, last=last)

    def _process_event(self, message: Message) -> None:
        """Process an event among the messages: the end of a log, or an error."""
        error = message.error()
        name = f"{message.topic()}-{message.partition()}"
        is_current = name in self._positions and name not in self._revoked
        if error.code() == NativeError._PARTITION_EOF:
            if is_current:
                # The end of the log lies behind the markers of transactions, which are no messages.
                self._positions[name] = max(self._positions[name], message.offset())
                self._unread_since_seek.discard(name)
        elif error.code() in GONE:
            if is_current:
                self._gone[name] = translated(error)
                self._truncated |= error.code() == NativeError._LOG_TRUNCATION
        elif error.code() in DAMAGED:
            self._damaged = message if is_current else None
        else:
            self._on_error(error)

    def _on_error(self, error: NativeError) -> None:
        failure = translated(error)
        if is_transient(failure) and not error.fatal():
            log.debug("%s", error.str())
        else:
            self._failure = failure

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _raise_gone(self) -> None:
        """Raise PositionGoneError if the brokers have no record at a position.

        librdkafka reports such a position only once. The driver raises the error at each poll until `seek`.
        """
        self._must_report_gone = False
        if self._gone:
            cause = next(iter(self._gone.values()))
            raise PositionGoneError(dict.fromkeys(self._gone), cause, self._truncated)

    def _skip_damaged(self, message: Message) -> list[Polled]:
        """Skip a batch that fails its checksum, and return placeholders for its messages.

        See `connectors.kafka.drivers.unreadable`.
        """
        self._damaged = None
        name, start, why = f"{message.topic()}-{message.partition()}", message.offset(), message.error().str()
        high, begin = self.highwater(name), self._positions.get(name)
        if name not in self._assignment or high is None or begin is None:
            return []
        self._revoked.clear()
        end = end_of_damaged_batch(self._consumer, name, start, high, lambda: name in self._assignment)
        self._must_assign = True
        if end is None or name in self._revoked:
            return []
        begin = max(start, begin)
        self._positions[name] = end
        return [Polled(name, [PLACEHOLDER] * (end - begin), range(begin, end), why)]

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        # Nothing is fetched before `seek` has set the positions.
        consumer.assign([])
        self._assignment = set(map(name_at, partitions))
        self._positions.clear()
        self._paused = set(self._assignment)
        assert self._listener is not None
        self._listener.on_assigned(self.assignment())

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        assert self._listener is not None
        names = set(map(name_at, partitions))
        self._remove(names)
        for _ in self._listener.on_revoke(names):
            # librdkafka's threads send heartbeats meanwhile.
            time.sleep(0.01)
        marks = self._listener.last_marks(names)
        if marks:
            self._listener.on_committed(marks, commit_within(consumer, marks, LAST_COMMIT_SECONDS))
        consumer.unassign()

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        assert self._listener is not None
        names = set(map(name_at, partitions))
        self._remove(names)
        self._listener.on_lost(names)
        consumer.unassign()

    def _remove(self, names: set[str]) -> None:
        self._revoked |= names
        self._assignment -= names
        self._paused -= names
        for name in names:
            self._positions.pop(name, None)
            self._unread_since_seek.discard(name)
            self._gone.pop(name, None)

    def _on_commit(self, error: NativeError | None, partitions: list[TopicPartition]) -> None:
        if error is not None:
            log.debug("a commit failed and is repeated: %s", error.str())
            self._commit_error = translated(error)
        else:
            self._on_stored(
                {name_at(partition): partition.offset for partition in partitions if partition.error is None}
            )


def commit_within(
    consumer: Consumer, marks: Mapping[str, CommittedPosition], seconds: float
) -> Exception | None:
    """Commit positions within `seconds`, in the callback that revokes partitions.

    Return the error, or None on success. A synchronous commit of librdkafka has no time limit. If the
    coordinator of the group is unreachable, such a commit blocks the whole group for the length of a session.
    The function therefore sends an asynchronous commit. A callback cannot poll for the result of this commit,
    so the function asks the brokers for the committed positions.
    """
    try:
        with translated_errors():
            consumer.commit(offsets=native_offsets(marks), asynchronous=True)
            committed = consumer.committed([native_partition(name) for name in marks], timeout=seconds)
    except Exception as error:  # noqa: BLE001 - passed to the listener, because a callback must not raise
        return error
    missing = sorted(name_at(each) for each in committed if each.offset != marks[name_at(each)].position)
    return KafkaTimeoutError(f"it has not arrived for {', '.join(missing)}") if missing else None


def headers_of(message: Message) -> Headers:
    """Return the headers of a message, with its key and its time."""
    return beside(message.headers() or (), message.key(), message.timestamp()[1])


def stamp_of(message: Message) -> Stamp:
    """Return the leader epoch and the timestamp of a message."""
    epoch, (_, moment) = message.leader_epoch(), message.timestamp()
    return Stamp(-1 if epoch is None else epoch, moment)


def uuid_of(topic_id: Any) -> UUID:
    """Return the id of a topic as a `UUID`, as in kafka-python.

    Examples
    --------
    >>> from confluent_kafka import Uuid
    >>> uuid_of(Uuid(1, -1))
    UUID('00000000-0000-0001-ffff-ffffffffffff')
    """
    bits = topic_id.get_most_significant_bits(), topic_id.get_least_significant_bits()
    return UUID(bytes=b"".join(each.to_bytes(8, "big", signed=True) for each in bits))


def name_at(partition: TopicPartition) -> str:
    """Return the name of a partition, such as ``topic-3``."""
    return f"{partition.topic}-{partition.partition}"


def native_partition(name: str, position: int | None = None) -> TopicPartition:
    """Return confluent-kafka's `TopicPartition` for a partition's name, with a position if one is passed.

    Examples
    --------
    >>> partition = native_partition("page-views-3", 40)
    >>> partition.topic, partition.partition, partition.offset
    ('page-views', 3, 40)
    """
    topic, number = partition_of(name)
    return TopicPartition(topic, number) if position is None else TopicPartition(topic, number, position)


def note_of(partition: TopicPartition) -> str:
    """Return the note of a committed position, possibly followed by a few bytes of garbage.

    librdkafka copies a note without the zero byte at its end, and confluent-kafka reads up to the next zero
    byte.
    """
    try:
        return partition.metadata or ""
    except UnicodeDecodeError as error:
        return error.object[: error.start].decode()


def native_offsets(marks: Mapping[str, CommittedPosition]) -> list[TopicPartition]:
    """Return positions to commit as `TopicPartition` objects of confluent-kafka, with notes as metadata.

    Examples
    --------
    >>> marks = {"clicks-0": CommittedPosition(40, "began=7")}
    >>> [(offset.offset, offset.metadata) for offset in native_offsets(marks)]
    [(40, 'began=7')]
    """
    offsets = []
    for name, (position, note) in marks.items():
        topic, number = partition_of(name)
        offsets.append(TopicPartition(topic, number, position, note))
    return offsets


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
    >>> stats = BrokerStats()
    >>> stats.is_connected({"clicks-0"})  # nothing is known yet, and a broker has just answered
    True
    >>> stats.update('{"brokers": {"one:9092/1": {"nodeid": 1, "state": "UP"},'
    ...           ' "two:9092/2": {"nodeid": 2, "state": "CONNECT"}},'
    ...           ' "topics": {"clicks": {"partitions": {"0": {"leader": 1}, "1": {"leader": 2}}}}}')
    >>> stats.is_connected({"clicks-0"}), stats.is_connected({"clicks-0", "clicks-1"}), stats.is_connected(())
    (True, False, True)
    """

    def __init__(self) -> None:
        self._decode = msgspec.json.Decoder(_Statistics).decode
        self._has_statistics = False
        self._up: set[int] = set()
        self._leaders: dict[str, int] = {}

    def update(self, statistics: str) -> None:
        """Replace the known brokers and leaders by those in `statistics`, a JSON text from librdkafka."""
        decoded = self._decode(statistics)
        self._has_statistics = True
        self._up = {broker.nodeid for broker in decoded.brokers.values() if broker.state == "UP"}
        self._leaders = {
            f"{topic}-{number}": partition.leader
            for topic, each in decoded.topics.items()
            for number, partition in each.partitions.items()
        }

    def is_connected(self, names: Collection[str]) -> bool:
        """Return whether the leaders of these partitions are connected.

        If no leader is known, return whether any broker is connected. Before the first statistics, return
        True.
        """
        if not self._has_statistics:
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
    NativeError._NOENT: kafka_errors.LeaderNotAvailableError,  # `list_offsets`: no leader
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
"""The codes of errors that report a position without a record."""

DAMAGED = frozenset({NativeError._BAD_MSG, NativeError.INVALID_MSG})
"""The codes of errors that report a batch with a wrong checksum."""


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
    result: Exception = kind(error.str())
    return result


@contextmanager
def translated_errors() -> Iterator[None]:
    """Replace an error of confluent-kafka in the block by the error of kafka-python with the same meaning."""
    try:
        yield
    except KafkaException as error:
        raise translated(error.args[0]) from error


def end_of_damaged_batch(
    consumer: Consumer, name: str, start: int, high: int, is_assigned: Callable[[], bool]
) -> int | None:
    """Return the offset after a damaged batch.

    The function assigns only this partition to the consumer, and does not restore the earlier assignment.

    Parameters
    ----------
    consumer : Consumer
        No other code may poll the consumer during the call.
    name : str
        The partition.
    start : int
        The first offset of the batch.
    high : int
        The end of the log.
    is_assigned : callable
        Returns whether the partition is still assigned to this consumer; the group may revoke it meanwhile.

    Returns
    -------
    int or None
        None if the brokers did not answer in time, or the partition was revoked.
    """

    def is_inside(offset: int) -> bool | None:
        with translated_errors():
            consumer.assign([native_partition(name, offset)])
        deadline = time.monotonic() + PROBE_SECONDS
        while time.monotonic() < deadline and is_assigned():
            message: Any = consumer.poll(0.2)
            if message is None or (message.topic(), message.partition()) != partition_of(name):
                continue
            if message.error() is None:
                return False
            if message.error().code() in DAMAGED:
                return bool(message.offset() == start)
        return None

    return end_of_batch(is_inside, start, high)
