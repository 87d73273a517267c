"""A source's part in its consumer group: partitions come and go, and positions follow them."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable

from kafka import AsyncConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.errors import KafkaError
from kafka.net.compat import KafkaNetClient

from connectors.kafka.ledger import Ledger
from connectors.kafka.placement import ASK_MS, Placement, name_of

log = logging.getLogger(__name__)

DRAIN_SECONDS = 10.0
"""How long a partition is held back from its next owner until what was read of it has been absorbed."""

COMMIT_SECONDS = 1.0
"""Shortest time between two commits; bounds what two owners may both use after a kill -9."""

RETRY_SECONDS = 1.0
"""After a partition could not be placed: how long before its brokers are asked again."""


class Membership(AsyncConsumerRebalanceListener):  # type: ignore[misc]
    """Places newly assigned partitions, and hands revoked ones over with nothing in flight.

    kafka-python runs the two listener methods in its network thread, while the reading thread waits
    inside `poll`; the other methods belong to the reading thread.

    Parameters
    ----------
    consumer : KafkaConsumer
        Not subscribed yet.
    client : KafkaNetClient
        The network client below it.
    ledger : Ledger
    placement : Placement
    """

    def __init__(
        self, consumer: KafkaConsumer, client: KafkaNetClient, ledger: Ledger, placement: Placement
    ) -> None:
        self._consumer = consumer
        self._client = client
        self._ledger = ledger
        self._placement = placement
        self._unplaced: set[TopicPartition] = set()
        self._next_commit = 0.0
        self._next_try = 0.0
        self._leaving = False
        self._asked_anew = False
        self.joined = False

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Hold the new partitions still until `place` has set their positions."""
        self._unplaced |= set(assigned)
        self._consumer.pause(*assigned)
        for tp in assigned:
            # A paused partition without any position would make every poll raise; `place` sets the right one.
            self._consumer.seek(tp, 0)
        self.joined = True

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Before another member may read on: wait until what was read is absorbed, and commit it."""
        self._unplaced -= set(revoked)
        self.joined = False
        if self._leaving:
            return
        names = [name_of(tp) for tp in revoked]
        deadline = time.monotonic() + DRAIN_SECONDS
        while self._ledger.outstanding(names) and time.monotonic() < deadline:
            # The network thread's own sleep: heartbeats go on meanwhile.
            await self._client._net.sleep(0.01)
        if self._ledger.outstanding(names):
            log.warning(
                "Kafka takes %s away, and what was read of them is not all used after %g s: "
                "the next owner will read some of it again",
                ", ".join(sorted(names)),
                DRAIN_SECONDS,
            )
        positions = self._ledger.to_commit(names)
        if positions:
            try:
                await self._consumer.commit_async(self._placement.notes(positions))
                self._ledger.committed(positions)
            except KafkaError as error:
                log.warning("could not commit the positions of %s: %s", ", ".join(sorted(positions)), error)

    async def on_partitions_lost(self, lost: Iterable[TopicPartition]) -> None:
        """The group has given our partitions to others already: there is nothing left to commit."""
        self._unplaced -= set(lost)
        self.joined = False

    @property
    def settled(self) -> bool:
        """Whether the group has assigned its partitions and each has its position."""
        return self.joined and not self._unplaced

    def see_through(self) -> None:
        """Let kafka-python finish a join that it has begun.

        Where a join was begun because topics changed (one came into being, one gained partitions) and took
        longer than one poll, kafka-python 3.0 takes it for done as soon as the new division is computed,
        never collects its own part, and reads nothing any more.
        """
        coordinator = self._consumer._coordinator
        if coordinator.rejoining or self._stands_in():
            coordinator.request_rejoin()

    def _stands_in(self) -> bool:
        """Whether it has just taken the place, and the empty share, of a named member that died.

        Brokers give a member with a `group_instance_id` the share of the one before it, without dividing
        anew, also where that one had joined before the topic came into being: nobody would look again.
        """
        if self._asked_anew or not self.joined or self._consumer.assignment():
            return False
        if self._consumer.config["group_instance_id"] is None:
            return False
        topics = self._consumer.subscription() or ()
        self._asked_anew = any(self._client.cluster.partitions_for_topic(topic) for topic in topics)
        return self._asked_anew

    def place(self) -> None:
        """Set the newly assigned partitions to where reading goes on: see `Placement.place`.

        Raises
        ------
        KafkaTimeoutError
            The brokers did not name the group's position in time; to be tried again.
        NoOffsetForPartitionError
            Nobody has read a partition, and `auto_offset_reset` is none.
        """
        new = self._unplaced & self._consumer.assignment()
        if not new or time.monotonic() < self._next_try:
            return
        self._placement.meet(self._client.cluster, self._consumer.subscription())
        for tp in sorted(new):
            if self._placement.place(self._consumer, tp):
                self._consumer.resume(tp)
                self._unplaced.discard(tp)
            else:
                self._next_try = time.monotonic() + RETRY_SECONDS

    def drain(self) -> None:
        """Wait until what was read is absorbed, before the consumer is made anew."""
        names = [name_of(tp) for tp in self._consumer.assignment()]
        deadline = time.monotonic() + DRAIN_SECONDS
        while self._ledger.outstanding(names) and time.monotonic() < deadline:
            time.sleep(0.01)

    def hold(self) -> None:
        """Let `poll` return no records."""
        self._consumer.pause(*self._consumer.assignment())

    def release(self) -> None:
        """Undo `hold`, but for partitions that have no position yet."""
        self._consumer.resume(*(self._consumer.assignment() - self._unplaced))

    def commit_if_due(self) -> None:
        """Send what is absorbed and not committed, at most once a second, without waiting."""
        now = time.monotonic()
        if now < self._next_commit or not self.joined:
            return
        positions = self._ledger.to_commit(map(name_of, self._consumer.assignment()))
        if positions:
            self._next_commit = now + COMMIT_SECONDS
            self._consumer.commit_async(self._placement.notes(positions), callback=self._heard)

    def leave(self) -> None:
        """Commit what is absorbed, waiting two seconds at most, and be ready to be closed."""
        self._leaving = True
        positions = self._ledger.to_commit(map(name_of, self._consumer.assignment()))
        if not positions:
            return
        try:
            self._consumer.commit(self._placement.notes(positions), timeout_ms=ASK_MS)
            self._ledger.committed(positions)
        except KafkaError as error:
            log.warning(
                "could not commit the last positions of %s, so the group reads some records again: %s",
                ", ".join(sorted(positions)),
                error,
            )

    def _heard(self, offsets: dict[TopicPartition, OffsetAndMetadata], answer: object) -> None:
        if isinstance(answer, Exception):
            log.debug("a commit failed and is repeated: %s", answer)
            return
        self._ledger.committed({name_of(tp): offset.offset for tp, offset in offsets.items()})
