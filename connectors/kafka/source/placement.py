"""Where a partition is read on: our own position, the group's, or an end of its log; and what that skips.

A client library could do some of this itself (`auto_offset_reset`), but it would neither say how many records
retention took, nor read a partition that is new from its start where reading begins at `latest`. So its
own reset is switched off, and every position is set here.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from typing import Literal

from kafka.errors import KafkaTimeoutError, NoOffsetForPartitionError

from connectors.kafka.drivers.base import CommittedPosition, Driver, End, PositionGoneError, partition_of
from connectors.kafka.source.ledger import PositionLedger
from monitor.base.source import SourceCounts

log = logging.getLogger(__name__)

Start = Literal["earliest", "latest", "none"]

ASK_SECONDS = 2.0
"""How long the brokers may take to name a position, or to take a last commit."""

MAX_OWNERS = 100
"""How many owners of a partition, one after another, a commit names; Kafka takes notes of 4,096 bytes."""

_BEGAN = re.compile(r"began=(\d+(?:,\d+)*)")


def _began(told: CommittedPosition | None) -> tuple[int, ...]:
    """Where the owners that led to this commit began, the last one's at the end; empty where not known."""
    found = _BEGAN.fullmatch(told.note) if told is not None else None
    return tuple(map(int, found[1].split(","))) if found else ()


def _used_twice(own: int, began: tuple[int, ...]) -> int:
    """What a successor of ours used again: it began at what we had committed, before our own position."""
    return own - max((position for position in began if position <= own), default=own)


class Placement:
    """Sets positions, and counts what was missed or used twice on the way. Outlives consumers.

    A commit carries where its writer began to read the partition, and where the owners before it did, as
    far as each went on from the commit of the one before (``began=400,900``). So an owner that comes back
    after a crash knows which records its successor had used again, also if that one has handed the
    partition on since: those from where the successor began up to its own position.

    Belongs to the reading thread; `counts` and `marks` may be used from any.

    Parameters
    ----------
    source : str
        For the log.
    ledger : PositionLedger
        Our own positions.
    start : {"earliest", "latest", "none"}
        Where a partition begins that nobody has read.
    """

    def __init__(self, source: str, ledger: PositionLedger, start: Start) -> None:
        self._source = source
        self._ledger = ledger
        self._start = start
        self._known: dict[str, set[int]] = {}
        self._began: dict[str, tuple[int, ...]] = {}
        self._after_others: set[str] = set()
        self._gap = self._taken_over = self._overlap = 0

    def counts(self, rebuilds: int) -> SourceCounts:
        """What was missed, used elsewhere or used twice so far."""
        return SourceCounts(self._gap, self._taken_over, self._overlap, rebuilds)

    def after_others(self, name: str) -> bool:
        """Whether another member used what lies before the records handed out now; asked once for each."""
        if name in self._after_others:
            self._after_others.discard(name)
            return True
        return False

    def marks(self, positions: Mapping[str, int]) -> dict[str, CommittedPosition]:
        """Positions as they are committed: each says where reading of its partition began."""
        return {
            name: CommittedPosition(position, f"began={','.join(map(str, began))}" if began else "")
            for name, position in positions.items()
            for began in [self._began.get(name, ())]
        }

    def meet(self, driver: Driver, topics: Iterable[str]) -> None:
        """Keep which partitions there are when the topics are first read: all others are new ones."""
        for topic in topics:
            self._known.setdefault(topic, driver.partitions_of(topic))

    def place(self, driver: Driver, name: str) -> bool:
        """Set a newly assigned partition to the larger of our own position and the group's.

        Returns
        -------
        bool
            False where nobody has read the partition and its brokers did not name an end of its log in
            time: to be tried again.

        Raises
        ------
        KafkaTimeoutError
            The brokers did not name the group's position in time; to be tried again.
        NoOffsetForPartitionError
            Nobody has read it, and `start` is none.
        """
        own = self._ledger.resume(name)
        told = driver.told(name, ASK_SECONDS)
        position = self._larger(name, own, told)
        if position is None:
            position = self._beginning(driver, name)
            if position is None:
                return False
            self._ledger.begun(name, position)
        self._go(driver, name, position)
        if told is not None and (own is None or own < told.position):
            self._began[name] = (*_began(told), position)[-MAX_OWNERS:]
        elif told is not None:
            # Nobody has taken it further than we have: the stretch goes on that the last commit began.
            self._began[name] = _began(told) or self._began[name]
        return True

    def mend(self, driver: Driver, error: PositionGoneError) -> None:
        """Go on where there are records, after the brokers said that there are none at our position.

        Where retention deleted what had not been read, that is the log's start, whatever `start` says, and
        the records between are counted. Where the log ends before our position (the topic was made anew,
        or a leader came up that had less), it is the point of divergence if the brokers know it, else the
        end of the log that `start` names.

        Raises
        ------
        PositionGoneError
            `start` is none: whoever runs us wants to decide this.
        KafkaTimeoutError
            The brokers did not answer in time; to be tried again.
        """
        if self._start == "none":
            raise error
        for name, divergence in error.places.items():
            at = driver.position(name) if name in driver.assigned() else None
            if at is None:
                continue
            first = driver.ends([name], "earliest", ASK_SECONDS)[name]
            if at < first:
                self._fell_behind(name, at, first)
                divergence = first
            else:
                log.warning(
                    "source %s: topic %s, partition %d: position %d is beyond the end of the log: the "
                    "topic was created again, or its brokers lost records; reading continues at %s",
                    self._source,
                    *partition_of(name),
                    at,
                    self._start if divergence is None else divergence,
                )
                if divergence is None:
                    divergence = driver.ends([name], self._start, ASK_SECONDS)[name]
            self._ledger.begun(name, divergence)
            self._go(driver, name, divergence)

    def _larger(self, name: str, own: int | None, told: CommittedPosition | None) -> int | None:
        group = None if told is None else told.position
        if own is None or group is None:
            return own if group is None else group
        if group > own:
            twice = 0 if self._ledger.is_told(name) else _used_twice(own, _began(told))
            self._taken_over += group - own
            self._overlap += twice
            log.info(
                "source %s: %s continues at the group's position %d, not at our %d; another member also "
                "used %d records before ours",
                self._source,
                name,
                group,
                own,
                twice,
            )
            self._ledger.overtaken(name, group)
            self._after_others.add(name)
            return group
        self._overlap += own - group
        return own

    def _beginning(self, driver: Driver, name: str) -> int | None:
        tp = partition_of(name)
        known = self._known.get(tp.topic)
        end: End = "latest" if self._start == "latest" else "earliest"
        if known is not None and tp.partition not in known:
            log.info("source %s: %s is new; it is read from its start", self._source, name)
            end = "earliest"
        elif self._start == "none":
            raise NoOffsetForPartitionError(tp)
        try:
            return driver.ends([name], end, ASK_SECONDS)[name]
        except KafkaTimeoutError:
            # A leader that is away must not keep the other partitions waiting for an exception's way up.
            return None

    def _fell_behind(self, name: str, at: int, first: int) -> None:
        self._gap += first - at
        log.warning(
            "source %s: topic %s, partition %d: %d records (%d to %d) were deleted by retention before the "
            "agent read them; reading continues at %d. Keep records longer (retention.ms, "
            "retention.bytes), or read "
            "faster",
            self._source,
            *partition_of(name),
            first - at,
            at,
            first - 1,
            first,
        )

    def _go(self, driver: Driver, name: str, position: int) -> None:
        self._began[name] = (position,)
        driver.seek(name, position)
