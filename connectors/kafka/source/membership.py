"""The membership of a source in its consumer group.

A member receives partitions from the group and sets their positions, and hands over partitions that the group
revokes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence

from kafka.errors import KafkaError

from connectors.kafka.drivers.base import CommittedPosition, Driver
from connectors.kafka.source.ledger import PositionLedger
from connectors.kafka.source.placement import ASK_SECONDS, Placement
from monitor.base.source import ShardOwner

log = logging.getLogger(__name__)

DRAIN_SECONDS = 10.0
"""The longest wait for the absorption of records before a revoked partition is given up, in seconds."""

COMMIT_SECONDS = 1.0
"""The shortest time between two commits, in seconds.

After a kill -9, the next owner reads the records that were used since the last commit again.
"""

MAX_REQUESTED = 10_000
"""The largest number of partitions in one request; the answer has up to 4 KiB for each partition."""

TAKE_SECONDS = 0.2
"""The pause between two attempts to get the state of a partition that another agent holds, in seconds."""

RETRY_SECONDS = 1.0
"""The pause between two attempts to set the position of a partition, in seconds."""


class Membership:
    """A member of a consumer group, which sets positions of new partitions and hands over revoked partitions.

    Before the member gives up a revoked partition, it waits until all records that were read from the
    partition have been absorbed.

    The driver calls the methods of `RebalanceListener`, perhaps in a thread of its library, while the reading
    thread waits inside `poll`. The reading thread calls the other methods.

    Parameters
    ----------
    driver : Driver
        A driver that is not subscribed yet.
    topics : sequence of str
    ledger : PositionLedger
    placement : Placement
    shards : ShardOwner, optional
        The owner of the shards, if state moves with partitions from one agent to another. A shard is the
        state of all partitions with the same number.
    """

    def __init__(
        self,
        driver: Driver,
        topics: Sequence[str],
        ledger: PositionLedger,
        placement: Placement,
        shards: ShardOwner | None = None,
    ) -> None:
        self._shards = shards
        self._driver = driver
        self._topics = topics
        self._ledger = ledger
        self._placement = placement
        self._unplaced: set[str] = set()
        self._next_commit = 0.0
        self._next_try = 0.0
        self._leaving = False
        self.joined = False

    def on_assigned(self, names: set[str]) -> None:
        """Add newly assigned partitions. `place` sets their positions later."""
        self._unplaced |= names
        self.joined = True

    def on_revoke(self, names: set[str]) -> Iterator[None]:
        """Yield until the agent has used all records of these partitions, for at most `DRAIN_SECONDS`.

        The driver sleeps between two steps. Other members can read the partitions only after the iterator has
        ended.
        """
        self._unplaced -= names
        self.joined = False
        deadline = time.monotonic() + DRAIN_SECONDS
        if self._shards is not None:
            self._shards.give_up(names)
        while not self._leaving and self._is_in_use(names) and time.monotonic() < deadline:
            yield

    def _is_in_use(self, names: set[str]) -> bool:
        """Return whether this agent still uses the partitions, so that no other member may read them."""
        if self._shards is not None:
            return not self._shards.given_up(names)
        return self._ledger.has_outstanding(names)

    def last_marks(self, names: set[str]) -> Mapping[str, CommittedPosition]:
        """Return the absorbed positions of revoked partitions that are not committed yet.

        The result is empty after `leave`, which commits these positions itself.
        """
        if self._leaving:
            return {}
        # With shards, their owner reports the records that were not saved.
        if self._shards is None and self._ledger.has_outstanding(names):
            log.warning(
                "Kafka revokes %s, and some of their records are still unused after %g s: the next owner "
                "will read these again",
                ", ".join(sorted(names)),
                DRAIN_SECONDS,
            )
        return self._placement.marks(self._ledger.positions_to_commit(names))

    def on_committed(self, marks: Mapping[str, CommittedPosition], error: Exception | None) -> None:
        """Receive the result of the commit of the positions from `last_marks`."""
        if error is None:
            self._ledger.record_committed(_positions(marks))
        else:
            log.warning("could not commit the positions of %s: %s", ", ".join(sorted(marks)), error)

    def on_lost(self, names: set[str]) -> None:
        """Remove partitions that the group has already assigned to other members.

        The positions of these partitions can no longer be committed.
        """
        self._unplaced -= names
        self.joined = False
        if self._shards is not None:
            self._shards.give_up(names)

    @property
    def is_settled(self) -> bool:
        """True if the group has assigned partitions, and each of them has its position."""
        return self.joined and not self._unplaced

    def place(self) -> None:
        """Set newly assigned partitions to the positions at which reading continues; see `Placement.place`.

        Raises
        ------
        KafkaTimeoutError
            The brokers did not report the group's positions in time; the next call tries again.
        NoOffsetForPartitionError
            Nobody has read a partition, and `auto_offset_reset` is none.
        SourceError
            State moves with partitions, and the topics have different numbers of partitions.
        """
        self._reconcile_shards()
        if not self._unplaced or time.monotonic() < self._next_try:
            return
        self._placement.record_topics(self._driver, self._topics)
        names = sorted(self._unplaced & self._driver.assignment())
        for start in range(0, len(names), MAX_REQUESTED):
            part = names[start : start + MAX_REQUESTED]
            for name in self._placement.place(self._driver, part):
                self._driver.resume([name])
                self._unplaced.discard(name)
        if not self._unplaced.isdisjoint(names):
            self._next_try = time.monotonic() + (RETRY_SECONDS if self._shards is None else TAKE_SECONDS)

    def _reconcile_shards(self) -> None:
        """Give up the shards of partitions that are not assigned, and request the missing shards.

        The shards differ from the assignment after the loss of a lease. They also differ after a new consumer
        has replaced another one, because the new consumer does not learn which partitions the other one had.
        """
        if self._shards is None or not self.joined:
            return
        assigned, held = self._driver.assignment(), self._shards.held()
        if held - assigned:
            self._shards.give_up(held - assigned)
        without_shard = assigned - self._unplaced - held
        if without_shard:
            self._driver.pause(without_shard)
            self._unplaced |= without_shard

    def check_topics(self) -> None:
        """Check whether the topics have been deleted or created again; see `Placement.check_topics`."""
        positioned = self._driver.assignment() - self._unplaced if self.joined else set()
        self._placement.check_topics(self._driver, self._topics, positioned)

    @property
    def absent(self) -> set[str]:
        """The topics that this source has read, and that the brokers did not know at the last check."""
        return self._placement.absent

    @property
    def deleted(self) -> set[str]:
        """The topics that no longer exist; see `Placement.deleted`."""
        return self._placement.deleted

    def wait_until_absorbed(self) -> None:
        """Wait until all records that were read are absorbed, for at most `DRAIN_SECONDS`.

        The source calls this before it replaces a consumer.
        """
        names = self._driver.assignment()
        deadline = time.monotonic() + DRAIN_SECONDS
        while self._ledger.has_outstanding(names) and time.monotonic() < deadline:
            time.sleep(0.01)

    def commit_if_due(self) -> None:
        """Send the absorbed positions to commit, at most once a second, without waiting for the answer."""
        now = time.monotonic()
        if now < self._next_commit or not self.joined:
            return
        positions = self._ledger.positions_to_commit(self._driver.assignment())
        if positions:
            self._next_commit = now + COMMIT_SECONDS
            self._driver.commit_soon(self._placement.marks(positions), self._ledger.record_committed)

    def leave(self) -> None:
        """Commit the absorbed positions within two seconds. Call this before the driver is closed.

        If the commit fails, this is logged, and the group will read some records again.
        """
        self._leaving = True
        positions = self._ledger.positions_to_commit(self._driver.assignment())
        if not positions:
            return
        try:
            self._driver.commit(self._placement.marks(positions), ASK_SECONDS)
            self._ledger.record_committed(positions)
        except KafkaError as error:
            log.warning(
                "could not commit the last positions of %s, so the group reads some records again: %s",
                ", ".join(sorted(positions)),
                error,
            )


def _positions(marks: Mapping[str, CommittedPosition]) -> dict[str, int]:
    return {name: mark.position for name, mark in marks.items()}
