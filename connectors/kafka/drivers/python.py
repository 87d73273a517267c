"""A driver that uses kafka-python, the client library that is always installed."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from kafka import AsyncConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.errors import (
    CorruptRecordError,
    KafkaError,
    KafkaTimeoutError,
    LogTruncationError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from kafka.net.compat import KafkaNetClient
from kafka.protocol.metadata import MetadataRequest

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
    name_of,
    partition_of,
)
from connectors.kafka.drivers.connection import BrokerConnection
from connectors.kafka.drivers.unreadable import skip_damaged_batch

log = logging.getLogger(__name__)

GENTLE_SECONDS = 1.0
"""The time for which polls only sleep, after a poll that used the processor without a result, in seconds."""

SLICE_SECONDS = 0.05
"""The longest duration of one of these sleeps, in seconds."""


class PythonDriver(Driver):
    """A driver that uses a consumer of kafka-python and its network client.

    Parameters
    ----------
    options : mapping of str to object
        Keyword arguments of `KafkaConsumer`.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        # kafka-python's reset neither counts records deleted by retention nor knows new partitions.
        self._connection = BrokerConnection({**options, "auto_offset_reset": "none"})
        self._ready_consumer: KafkaConsumer | None = None
        self._paused: set[TopicPartition] = set()
        self._rebalances: _Rebalances | None = None
        self._gentle_until = 0.0
        self._has_requested_rejoin = False

    @property
    def _consumer(self) -> KafkaConsumer:
        assert self._ready_consumer is not None, "there is no consumer before a broker has answered"
        return self._ready_consumer

    def connect(self, timeout_seconds: float) -> bool:
        """Wait for an answer from a broker, and return whether an answer arrived in time."""
        self._ready_consumer = self._connection.consumer(timeout_seconds)
        return self._ready_consumer is not None

    def subscribe(self, topics: Sequence[str], listener: RebalanceListener) -> None:
        """Join the group to read topics."""
        self._rebalances = _Rebalances(self._consumer, self._connection.client, self._paused, listener)
        self._consumer.subscribe(topics=list(topics), listener=self._rebalances)

    def assign(self, positions: Mapping[str, int]) -> None:
        """Read these partitions from these positions without joining a group."""
        self._consumer.assign(list(map(partition_of, positions)))
        for name, position in positions.items():
            self.seek(name, position)

    def poll(self, timeout_seconds: float, most: int) -> list[Polled]:
        """Wait for the first message, and return the available messages, at most `most` of them."""
        try:
            polled = self._fetch(timeout_seconds, most)
        except CorruptRecordError as error:
            lost = skip_damaged_batch(self._consumer, error)
            return [] if lost is None else [lost]
        return [self._polled(name_of(tp), records) for tp, records in polled.items()]

    def _polled(self, name: str, records: Sequence[Any]) -> Polled:
        wanted = self.with_headers or (self.with_any_headers and any(each.headers for each in records))
        headers = [_headers(record) for record in records] if wanted else None
        values, offsets = [record.value for record in records], [record.offset for record in records]
        first, last = _stamp(records[0]), _stamp(records[-1])
        return Polled(name, values, offsets, headers=headers, first=first, last=last)

    def idle(self) -> None:
        """Stay in the group without reading messages."""
        self._consumer.pause(*self._consumer.assignment())
        try:
            # The next poll raises the error of a damaged batch again.
            with suppress(CorruptRecordError):
                self._fetch(0.0, 1)
        finally:
            self._consumer.resume(*(self._consumer.assignment() - self._paused))

    def assignment(self) -> set[str]:
        """Return the partitions that the group has assigned to this consumer."""
        return set(map(name_of, self._consumer.assignment()))

    def partitions_of(self, topic: str) -> set[int]:
        """Return the numbers of a topic's partitions."""
        # Without a subscription, the cluster knows no topics, and the consumer requests their metadata.
        metadata = self._consumer if self._rebalances is None else self._connection.client.cluster
        return set(metadata.partitions_for_topic(topic) or ())

    def describe(self, topics: Collection[str], timeout_seconds: float) -> dict[str, TopicDescription]:
        """Ask the brokers for the ids and the partitions of topics."""
        client = self._connection.client
        request = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics],
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )

        async def ask() -> Any:
            return await client._manager.wait_for(client._manager.send(request), 1000 * timeout_seconds)

        answers = client._net.run(ask).topics
        existing = [each for each in answers if each.error_code != UnknownTopicOrPartitionError.errno]
        return {
            each.name: TopicDescription(
                str(each.topic_id or ""), {part.partition_index for part in each.partitions}
            )
            for each in existing
        }

    def is_connected(self) -> bool:
        """Return whether the brokers that lead the assigned partitions are connected."""
        client, assigned = self._connection.client, self._consumer.assignment()
        if assigned:
            return all(client.connected(client.cluster.leader_for_partition(tp)) for tp in assigned)
        return any(client.connected(broker.node_id) for broker in client.cluster.brokers())

    def refresh(self) -> None:
        """Ask the brokers now which topics exist.

        kafka-python itself asks only after `metadata_max_age_ms`.
        """
        self._connection.client.cluster.request_update()

    def position(self, name: str) -> int | None:
        """Return the offset of the next message of a partition, or None if the partition has no position."""
        position: int | None = self._consumer.position(partition_of(name), timeout_ms=0)
        return position

    def highwater(self, name: str) -> int | None:
        """Return the end of a partition's log as of the last fetch, or None before the first fetch."""
        end: int | None = self._consumer.highwater(partition_of(name))
        return end

    def ends(self, names: Collection[str], end: End, timeout_seconds: float) -> dict[str, int]:
        """Ask each leader for the first or the last offsets of its partitions.

        In a single call for all partitions, kafka-python would drop all answers if one leader is unreachable.
        """
        fetch = self._consumer.end_offsets if end == "latest" else self._consumer.beginning_offsets
        by_leader: dict[int | None, list[TopicPartition]] = defaultdict(list)
        for tp in map(partition_of, names):
            by_leader[self._connection.client.cluster.leader_for_partition(tp)].append(tp)
        offsets: dict[str, int] = {}
        for partitions in by_leader.values():
            with suppress(KafkaTimeoutError):
                answer = fetch(partitions, timeout_ms=int(1000 * timeout_seconds))
                offsets |= {name_of(tp): int(offset) for tp, offset in answer.items()}
        return offsets

    def committed_positions(
        self, names: Collection[str], timeout_seconds: float
    ) -> dict[str, CommittedPosition]:
        """Ask the brokers for the positions that the group has committed, in one request.

        `KafkaConsumer.committed` would send a request for each partition.
        """
        committed = self._consumer._coordinator.fetch_committed_offsets(
            list(map(partition_of, names)), timeout_ms=int(1000 * timeout_seconds)
        )
        return {
            name_of(tp): CommittedPosition(int(each.offset), each.metadata or "")
            for tp, each in committed.items()
        }

    def seek(self, name: str, position: int) -> None:
        """Set the offset from which a partition is read."""
        self._consumer.seek(partition_of(name), position)

    def pause(self, names: Collection[str]) -> None:
        """Stop fetching messages of these partitions until `resume` is called.

        The partitions stay assigned.
        """
        partitions = list(map(partition_of, names))
        self._paused.update(partitions)
        self._consumer.pause(*partitions)

    def resume(self, names: Collection[str]) -> None:
        """Continue to fetch messages of paused partitions."""
        partitions = list(map(partition_of, names))
        self._paused.difference_update(partitions)
        self._consumer.resume(*partitions)

    def commit_soon(
        self, marks: Mapping[str, CommittedPosition], on_stored: Callable[[Mapping[str, int]], None]
    ) -> None:
        """Send positions to commit, without waiting for the answer."""

        def on_answer(offsets: dict[TopicPartition, OffsetAndMetadata], answer: object) -> None:
            if isinstance(answer, Exception):
                log.debug("a commit failed and is repeated: %s", answer)
            else:
                on_stored({name_of(tp): offset.offset for tp, offset in offsets.items()})

        self._consumer.commit_async(_offsets(marks), callback=on_answer)

    def commit(self, marks: Mapping[str, CommittedPosition], timeout_seconds: float) -> None:
        """Send positions to commit, and wait until the brokers have stored them."""
        self._consumer.commit(_offsets(marks), timeout_ms=int(1000 * timeout_seconds))

    def close(self, timeout_seconds: float) -> None:
        """Leave the group and close the consumer, without a commit."""
        self._connection.close(timeout_seconds)

    def _fetch(self, timeout_seconds: float, most: int) -> Mapping[TopicPartition, list[Any]]:
        self._finish_join()
        try:
            return self._poll_gently(timeout_seconds, most)
        except OffsetOutOfRangeError as error:
            raise PositionGoneError(dict.fromkeys(map(name_of, error.args[0])), error) from error
        except LogTruncationError as error:
            places = {name_of(tp): to and to.offset for tp, to in error.divergent_offsets.items()}
            raise PositionGoneError(places, error, truncated=True) from error

    def _finish_join(self) -> None:
        """Make kafka-python join the group again if it would otherwise read nothing.

        A change of the topics (a new topic, or new partitions) makes a consumer join the group again. If this
        takes longer than one poll, kafka-python 3.0 regards the join as finished when the new assignment is
        computed. It then never fetches its own part of the assignment.
        """
        if self._rebalances is None:
            return
        coordinator = self._consumer._coordinator
        if coordinator.rejoining or self._has_replaced_member(joined=self._rebalances.joined):
            coordinator.request_rejoin()

    def _has_replaced_member(self, joined: bool) -> bool:
        """Return whether the consumer has replaced a dead static member and got no partitions.

        A static member has a `group_instance_id`. Brokers give the partitions of a dead static member to the
        consumer that replaces it, without a new assignment for the group. If the dead member had joined
        before the topic was created, the new consumer gets no partitions, and nobody would read the topic.
        After the first True, the result is always False.
        """
        consumer = self._consumer
        if self._has_requested_rejoin or not joined or consumer.assignment():
            return False
        if consumer.config["group_instance_id"] is None:
            return False
        self._has_requested_rejoin = any(map(self.partitions_of, consumer.subscription()))
        return self._has_requested_rejoin

    def _poll_gently(self, timeout_seconds: float, most: int) -> Mapping[TopicPartition, list[Any]]:
        """Poll without keeping a core of the processor busy while a broker does not answer.

        If a heartbeat has no answer and the next one is due, kafka-python's poll waits in steps of length
        zero. It does so until it closes the connection after `request_timeout_ms`.
        """
        if time.monotonic() < self._gentle_until:
            time.sleep(min(timeout_seconds, SLICE_SECONDS))
            timeout_seconds = 0.0
        began, busy = time.monotonic(), time.thread_time()
        polled: Mapping[TopicPartition, list[Any]] = self._consumer.poll(
            int(1000 * timeout_seconds), max_records=most
        )
        elapsed, busy = time.monotonic() - began, time.thread_time() - busy
        if not polled and elapsed >= SLICE_SECONDS and busy > elapsed / 4:
            self._gentle_until = time.monotonic() + GENTLE_SECONDS
        return polled


class _Rebalances(AsyncConsumerRebalanceListener):  # type: ignore[misc]
    """A listener that kafka-python calls in its network thread, while the reading thread polls."""

    def __init__(
        self,
        consumer: KafkaConsumer,
        client: KafkaNetClient,
        paused: set[TopicPartition],
        listener: RebalanceListener,
    ) -> None:
        self._consumer = consumer
        self._client = client
        self._paused = paused
        self._listener = listener
        self.joined = False

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Pause newly assigned partitions until they have positions, and report them to the listener."""
        self._paused |= set(assigned)
        self._consumer.pause(*assigned)
        for tp in assigned:
            # A paused partition without a position would make every poll raise; `place` sets the right one.
            self._consumer.seek(tp, 0)
        self._listener.on_assigned(set(map(name_of, assigned)))
        self.joined = True

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Wait until the listener has finished with revoked partitions, and commit their last positions."""
        self._paused -= set(revoked)
        self.joined = False
        names = set(map(name_of, revoked))
        for _ in self._listener.on_revoke(names):
            # This is the sleep of the network thread, which sends heartbeats meanwhile.
            await self._client._net.sleep(0.01)
        marks = self._listener.last_marks(names)
        if not marks:
            return
        try:
            commit = self._consumer.commit_async(_offsets(marks))
            await self._client._manager.wait_for(commit, 1000 * LAST_COMMIT_SECONDS)
            self._listener.on_committed(marks, None)
        except KafkaError as error:
            self._listener.on_committed(marks, error)

    async def on_partitions_lost(self, lost: Iterable[TopicPartition]) -> None:
        """Report lost partitions, which the group has assigned to other members, to the listener."""
        self._paused -= set(lost)
        self.joined = False
        self._listener.on_lost(set(map(name_of, lost)))


def _headers(record: Any) -> Headers:
    return beside(record.headers, record.key, -1 if record.timestamp is None else record.timestamp)


def _stamp(record: Any) -> Stamp:
    epoch, moment = record.leader_epoch, record.timestamp
    return Stamp(-1 if epoch is None else epoch, -1 if moment is None else moment)


def _offsets(marks: Mapping[str, CommittedPosition]) -> dict[TopicPartition, OffsetAndMetadata]:
    return {
        partition_of(name): OffsetAndMetadata(mark.position, mark.note, -1) for name, mark in marks.items()
    }
