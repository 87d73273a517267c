"""A source's part in its consumer group: partitions come and go, and positions follow them."""

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
"""How long a partition is held back from its next owner until what was read of it has been absorbed."""

COMMIT_SECONDS = 1.0
"""Shortest time between two commits; bounds what two owners may both use after a kill -9."""

MAX_ASKED = 10_000
"""For how many partitions the brokers are asked at once: a position and its note take 4 KiB at most."""

TAKE_SECONDS = 0.2
"""How long before the state of a partition is asked for again that another agent has still."""

RETRY_SECONDS = 1.0
"""After a partition could not be placed: how long before its brokers are asked again."""


class Membership:
    """Places newly assigned partitions, and hands revoked ones over with nothing in flight.

    The driver calls the methods of `RebalanceListener`, in whichever thread its library does, while the
    reading thread waits inside `poll`; the other methods belong to the reading thread.

    Parameters
    ----------
    driver : Driver
        Not subscribed yet.
    topics : sequence of str
    ledger : PositionLedger
    placement : Placement
    shards : ShardOwner, optional
        Has the state of the partitions, where it moves with them.
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

    def assigned(self, names: set[str]) -> None:
        """Hear of new partitions, which `place` will set to their positions."""
        self._unplaced |= names
        self.joined = True

    def draining(self, names: set[str]) -> Iterator[None]:
        """Before another member may read on: wait until what was read is absorbed."""
        self._unplaced -= names
        self.joined = False
        deadline = time.monotonic() + DRAIN_SECONDS
        if self._shards is not None:
            self._shards.give_up(names)
        while not self._leaving and self._in_use(names) and time.monotonic() < deadline:
            yield

    def _in_use(self, names: set[str]) -> bool:
        """Whether another member must not have these partitions yet."""
        if self._shards is not None:
            return not self._shards.given_up(names)
        return self._ledger.outstanding(names)

    def last_marks(self, names: set[str]) -> Mapping[str, CommittedPosition]:
        """Then commit it. Who leaves has done so already."""
        if self._leaving:
            return {}
        if self._shards is None and self._ledger.outstanding(
            names
        ):  # shards say themselves what was not saved
            log.warning(
                "Kafka revokes %s, and some of their records are still unused after %g s: the next owner "
                "will read these again",
                ", ".join(sorted(names)),
                DRAIN_SECONDS,
            )
        return self._placement.marks(self._ledger.to_commit(names))

    def committed(self, marks: Mapping[str, CommittedPosition], error: Exception | None) -> None:
        """Hear whether that arrived."""
        if error is None:
            self._ledger.committed(_positions(marks))
        else:
            log.warning("could not commit the positions of %s: %s", ", ".join(sorted(marks)), error)

    def lost(self, names: set[str]) -> None:
        """The group has given our partitions to others already: there is nothing left to commit."""
        self._unplaced -= names
        self.joined = False
        if self._shards is not None:
            self._shards.give_up(names)

    @property
    def settled(self) -> bool:
        """Whether the group has assigned its partitions and each has its position."""
        return self.joined and not self._unplaced

    def place(self) -> None:
        """Set the newly assigned partitions to where reading goes on: see `Placement.place`.

        Raises
        ------
        KafkaTimeoutError
            The brokers did not name the group's positions in time; to be tried again.
        NoOffsetForPartitionError
            Nobody has read a partition, and `auto_offset_reset` is none.
        """
        self._compare()
        if not self._unplaced or time.monotonic() < self._next_try:
            return
        self._placement.meet(self._driver, self._topics)
        names = sorted(self._unplaced & self._driver.assigned())
        for start in range(0, len(names), MAX_ASKED):
            part = names[start : start + MAX_ASKED]
            for name in self._placement.place(self._driver, part):
                self._driver.resume([name])
                self._unplaced.discard(name)
        if not self._unplaced.isdisjoint(names):
            self._next_try = time.monotonic() + (RETRY_SECONDS if self._shards is None else TAKE_SECONDS)

    def _compare(self) -> None:
        """Have the shards of the partitions that are ours, and no others.

        They differ where a consumer was made anew, which hears of no partition that it lost; and where a
        lease was lost.
        """
        if self._shards is None or not self.joined:
            return
        assigned, held = self._driver.assigned(), self._shards.held()
        if held - assigned:
            self._shards.give_up(held - assigned)
        without = assigned - self._unplaced - held
        if without:
            self._driver.pause(without)
            self._unplaced |= without

    def check(self) -> None:
        """See whether the topics are still the same: see `Placement.check`."""
        placed = self._driver.assigned() - self._unplaced if self.joined else set()
        self._placement.check(self._driver, self._topics, placed)

    @property
    def absent(self) -> set[str]:
        """Topics that were read, and that the brokers did not know when they were asked last."""
        return self._placement.absent

    @property
    def deleted(self) -> set[str]:
        """Topics that are there no more: see `Placement.deleted`."""
        return self._placement.deleted

    def drain(self) -> None:
        """Wait until what was read is absorbed, before the consumer is made anew."""
        names = self._driver.assigned()
        deadline = time.monotonic() + DRAIN_SECONDS
        while self._ledger.outstanding(names) and time.monotonic() < deadline:
            time.sleep(0.01)

    def commit_if_due(self) -> None:
        """Send what is absorbed and not committed, at most once a second, without waiting."""
        now = time.monotonic()
        if now < self._next_commit or not self.joined:
            return
        positions = self._ledger.to_commit(self._driver.assigned())
        if positions:
            self._next_commit = now + COMMIT_SECONDS
            self._driver.commit_soon(self._placement.marks(positions), self._ledger.committed)

    def leave(self) -> None:
        """Commit what is absorbed, waiting two seconds at most, and be ready to be closed."""
        self._leaving = True
        positions = self._ledger.to_commit(self._driver.assigned())
        if not positions:
            return
        try:
            self._driver.commit(self._placement.marks(positions), ASK_SECONDS)
            self._ledger.committed(positions)
        except KafkaError as error:
            log.warning(
                "could not commit the last positions of %s, so the group reads some records again: %s",
                ", ".join(sorted(positions)),
                error,
            )


def _positions(marks: Mapping[str, CommittedPosition]) -> dict[str, int]:
    return {name: mark.position for name, mark in marks.items()}
