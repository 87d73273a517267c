"""Topics of an Apache Kafka cluster, read in a consumer group."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from kafka.errors import CorruptRecordError, KafkaConfigurationError, OffsetOutOfRangeError

from connectors.kafka.drivers.base import Driver, Polled, PositionGoneError
from connectors.kafka.drivers.choice import checked_options, make_driver
from connectors.kafka.drivers.errors import explain, passes
from connectors.kafka.drivers.options import check_files
from connectors.kafka.source.health import Health
from connectors.kafka.source.ledger import PositionLedger, Stored
from connectors.kafka.source.membership import Membership
from connectors.kafka.source.placement import Placement
from monitor.base.errors import BlindsightError, ConfigError
from monitor.base.source import Raw, RawMessages, RawPosition, ShardOwner, Source, SourceCounts
from monitor.config.root import KafkaSourceConfig as KafkaSettings

log = logging.getLogger(__name__)

OPEN_SECONDS = 2.0
"""How long `open` waits for a broker before it leaves the rest to `read`."""

CLOSE_SECONDS = 2.0

SESSION_MILLISECONDS = 45_000
"""After so long without a heartbeat the group gives a member's partitions to others, unless configured."""

READ_BYTES = 4 << 20
"""What one read should bring at most; kept by asking for fewer messages where messages are large."""

JOIN_SLICE_SECONDS = 0.05
"""A poll while joining is this short, so that new partitions get their positions as soon as they come."""

MOMENT_SECONDS = 1.0
"""Longest time between two reads that counts as reading: a process that stood still proves nothing."""


class KafkaSource(Source[Stored]):
    """Reads topics in a consumer group, from positions of its own.

    Each record is handed out once to this source: it goes on at the larger of the position that
    `open` was given and the one that the group has committed. Positions are committed once they are
    `acknowledged`, at most every second, and whenever a partition is taken away: there it first waits up
    to ten seconds for what was read to be absorbed, so that a graceful hand-over loses and doubles
    nothing. After a kill -9 the next owner reads again what was absorbed since the last commit: the
    one that was killed counts it when it comes back (`counts.overlap_records`).

    Where retention deleted records before they were read, it goes on at the first that is left, says so
    in the log and counts them (`counts.gap_records`). `auto_offset_reset` only says where a partition
    begins that nobody has read; one that is added to a topic while it is read begins at its start,
    found within `metadata_max_age_ms` (30 s).

    A topic that was deleted and created again is another log, known by the topic's id: it is read from its
    start, which is logged, and what of the old one was not read is counted as a gap, as far as its end was
    known, also of partitions that the new one does not have. Between two looks at the ids, a second, records
    of the new log may be handed out twice. Brokers before 2.8 have no ids: there the last record that was
    read is looked at again after each pause.

    A partition that delivers nothing for `stall_seconds` while its lag grows makes the source not `up`,
    with the reason in `trouble`, until it moves: the consumer is made anew and goes on where it was.

    Brokers that are away do not end it: it is not `up`, says so once in the log, and goes on where it
    was once they are back. So for a topic that does not exist yet; it never makes one. A topic that was read
    and is there no more makes it not `up`, with the topic's name in `trouble`, until it is created again.

    A message without a value (a tombstone) is handed on as ``b""``. Where a broker's disk has spoilt
    a batch, each message of it is handed on as `unreadable.PLACEHOLDER`, for the decoder to reject.

    Use it from one thread; `acknowledge` and the properties may be used from any. Either `read` or
    `keep_alive` must be called well within `max_poll_interval_ms` (five minutes), else the group
    gives the partitions away. While it waits for room, the reading thread should call `keep_alive`
    and hold nothing itself: what it holds cannot be absorbed before it returns.

    Parameters
    ----------
    settings : KafkaSourceConfig
        Brokers, topics, group and options.

    Raises
    ------
    ConfigError
        The options, brokers or topics cannot be used.
    MissingExtraError
        `driver: confluent` without confluent-kafka.

    Examples
    --------
    >>> settings = KafkaSettings(kind="kafka", brokers=("broker:9092",), topics=("clicks", "labels"))
    >>> source = KafkaSource(settings)
    >>> source.name, source.up, source.lag
    ('kafka', False, None)
    """

    @classmethod
    def sample(cls, settings: Any, records: int) -> list[Raw] | str:
        """The newest messages of the topics, read outside of the group."""
        from connectors.kafka.drivers.peek import peek

        return list(peek(settings, records))

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._options: dict[str, Any] = checked_options(settings)
        self.name = settings.label
        self._shards: ShardOwner | None = None
        self._ledger = PositionLedger({})
        self._placement = self._new_placement()
        self._health = Health(settings)
        self._driver: Driver | None = None
        self._membership: Membership | None = None
        self._reading_seconds = 0.0
        self._told_at = 0.0
        self._rebuild_due = False
        self._rebuilds = 0
        self._failed_look: BlindsightError | None = None
        self._max_records: int = self._options["max_poll_records"]

    @property
    def up(self) -> bool:
        """Whether every assigned partition has its position, its broker is connected, and none is stuck."""
        return self._health.up

    @property
    def lag(self) -> int | None:
        """Records behind the position in the assigned partitions, as of the last second; None if unknown."""
        return self._health.lag

    @property
    def trouble(self) -> str | None:
        """Which topic was deleted, or which partition is stuck or waits for its state, where one does."""
        waiting = None if self._shards is None else self._shards.waiting
        return self._health.trouble or waiting

    @property
    def counts(self) -> SourceCounts:
        """Records that retention took, that others used, that may be used twice; consumers made anew."""
        return self._placement.counts(self._rebuilds)

    def share(self, shards: ShardOwner) -> None:
        """From `open` on, have the state of each partition, with its position, from there."""
        self._shards = shards

    def open(self, positions: Mapping[str, Stored]) -> None:
        """Get ready to read, from these positions (by ``topic-partition``) or the group's.

        Waits up to two seconds for a broker; one that comes later is found by `read`.

        Raises
        ------
        SourceError
            The brokers refuse us (login, rights), or are no use to kafka-python; a certificate file
            is not there.
        ConfigError
            Options that do not go together.
        """
        self._ledger = PositionLedger(positions)
        self._placement = self._new_placement()
        self._join(OPEN_SECONDS)

    def read(self, timeout_seconds: float) -> list[Raw]:
        """Messages that are there, one `RawMessages` a partition: about 4 MiB, or a single larger one.

        Waits at most `timeout_seconds` for the first.

        Raises
        ------
        SourceError
            As for `open`, and for a codec that is not installed. The next read connects anew and goes
            on where this one was.
        """
        if self._failed_look is not None:
            error, self._failed_look = self._failed_look, None
            raise error
        deadline = time.monotonic() + timeout_seconds
        self._let_go_if_away()
        if self._rebuild_due:
            # Not in the read that found it: what that one brought could not be absorbed before it returned.
            self._rebuild()
        if not self._join(timeout_seconds):
            return []
        while True:
            found = self._poll(max(deadline - time.monotonic(), 0.0))
            self._tell_time()
            try:
                self._observe()
            except BlindsightError as error:
                if not found:
                    raise
                self._failed_look = error  # raised by the next read: these messages would be lost
            if found or time.monotonic() >= deadline:
                return found

    def keep_alive(self) -> None:
        """Stay in the group without reading: to be called every few seconds where `read` is not.

        Raises
        ------
        SourceError
            As for `read`.
        """
        self._let_go_if_away()
        if not self._join(0.0):
            return
        self._poll(0.0, idle=True)
        self._observe()
        self._told_at = time.monotonic()

    def acknowledge(self, positions: Mapping[str, Stored]) -> None:
        """Hear that everything before these positions is used, for `read` to commit. Thread-safe."""
        self._ledger.absorb(positions)

    def close(self) -> None:
        """Commit what is absorbed and leave the group; takes a few seconds at most, also without brokers."""
        if self._membership is not None:
            self._membership.leave()
        self._drop()

    def _let_go_if_away(self) -> None:
        """Who has not seen the brokers for a session's length has no partitions any more: give them up."""
        if self._shards is None:
            return
        session = self._options.get("session_timeout_ms", SESSION_MILLISECONDS) / 1000
        if time.monotonic() - self._health.connected_at > session:
            self._health.connected_at = time.monotonic()
            self._shards.give_up(self._shards.held())

    def _new_placement(self) -> Placement:
        return Placement(self.name, self._ledger, self._options["auto_offset_reset"], self._shards)

    def _join(self, timeout_seconds: float) -> bool:
        """Have a subscribed consumer, if a broker answers within the time."""
        if self._membership is not None:
            return True
        if self._driver is None:
            check_files(self._options)
        try:
            self._driver = self._driver or make_driver(self._settings, self._options)
            there = self._driver.connect(timeout_seconds)
        except KafkaConfigurationError as error:
            self._drop()
            raise ConfigError(f"source {self.name}: options: {' '.join(map(str, error.args))}") from error
        except Exception as error:
            self._drop()
            raise explain(error, self._settings.brokers) from error
        if not there:
            self._health.away()
            return False
        topics = self._settings.topics
        self._membership = Membership(self._driver, topics, self._ledger, self._placement, self._shards)
        self._driver.subscribe(topics, self._membership)
        return True

    def _poll(self, timeout_seconds: float, idle: bool = False) -> list[Raw]:
        driver, membership = self._driver, self._membership
        assert driver is not None
        assert membership is not None
        if not membership.settled:
            timeout_seconds = min(timeout_seconds, JOIN_SLICE_SECONDS)
        try:
            membership.place()
            membership.check()
            membership.commit_if_due()
            if idle:
                driver.idle()
                return []
            return self._hand_out(driver, driver.poll(timeout_seconds, self._max_records))
        except PositionGoneError as error:
            self._mend(driver, error)
        except BlindsightError:  # of the shards: their store cannot be used
            raise
        except Exception as error:  # noqa: BLE001 - told apart there
            self._bear(error)
            time.sleep(min(timeout_seconds, JOIN_SLICE_SECONDS))
        return []

    def _mend(self, driver: Driver, error: PositionGoneError) -> None:
        try:
            self._placement.mend(driver, error)
        except PositionGoneError as gone:
            self._bear(gone.cause)
        except Exception as unknown:  # noqa: BLE001 - told apart there
            self._bear(unknown)

    def _bear(self, error: Exception) -> None:
        """Go on after an error that passes; let go of the consumer and raise any other as ours."""
        if isinstance(error, (OffsetOutOfRangeError, CorruptRecordError)) or not passes(error):
            self._drop()
            raise explain(error, self._settings.brokers) from error
        log.debug("source %s: %s", self.name, error)

    def _hand_out(self, driver: Driver, polled: list[Polled]) -> list[Raw]:
        found: list[Raw] = [RawPosition(name, None) for name in self._placement.dropped()]
        count = size = 0
        for part in filter(None, [self._placement.checked(driver, each) for each in polled]):
            values = [b"" if value is None else value for value in part.values]
            name, offsets = part.partition, part.offsets
            if part.unreadable:
                self._say_unreadable(part)
            after = self._ledger.handed_out(name, offsets[0], offsets[-1] + 1, part.last)
            others = self._placement.after_others(name)
            found.append(RawMessages(values, name, offsets, others, part.headers, after))
            count += len(values)
            size += sum(map(len, values))
        if count:
            most = READ_BYTES * count // max(size, 1)
            self._max_records = max(1, min(self._options["max_poll_records"], most))
        return found

    def _say_unreadable(self, part: Polled) -> None:
        log.error(
            "source %s: %s: offsets %d to %d are unreadable (%s); the agent rejects them and continues",
            self.name,
            part.partition,
            part.offsets[0],
            part.offsets[-1],
            part.unreadable,
        )

    def _tell_time(self) -> None:
        """Move the clock of reading: it stands while there is no room, and takes a pause for a moment."""
        now = time.monotonic()
        self._reading_seconds += min(now - self._told_at, MOMENT_SECONDS)
        self._told_at = now

    def _observe(self) -> None:
        """Look at the feed's health; a stuck partition is mended by a consumer made anew."""
        driver, membership = self._driver, self._membership
        if driver is None or membership is None:
            return
        try:
            stalls = self._health.observe(driver, membership, self._reading_seconds)
        except Exception as error:
            if not passes(error):
                self._drop()
                raise explain(error, self._settings.brokers) from error
            return
        self._rebuild_due = self._rebuild_due or bool(stalls)

    def _rebuild(self) -> None:
        """A new consumer in place of one that is stuck. The ledger knows where it goes on."""
        self._rebuilds += 1
        if self._membership is not None:
            self._membership.drain()
            self._membership.leave()
        self._drop()

    def _drop(self) -> None:
        """Let go of consumer and sockets; the ledger stays, so that reading can go on from it."""
        driver = self._driver
        self._driver = self._membership = None
        self._rebuild_due = False
        self._health.dropped()
        if driver is not None:
            driver.close(CLOSE_SECONDS)
