"""The source of records in topics of an Apache Kafka cluster, which is a member of a consumer group."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from kafka.errors import CorruptRecordError, KafkaConfigurationError, OffsetOutOfRangeError

from connectors.kafka.drivers.base import Driver, Polled, PositionGoneError
from connectors.kafka.drivers.choice import checked_options, make_driver
from connectors.kafka.drivers.errors import explain, is_transient
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
"""The time for which `open` waits for a broker, in seconds; after that, `read` waits."""

CLOSE_SECONDS = 2.0
"""The time limit for closing a consumer, in seconds."""

SESSION_MILLISECONDS = 45_000
"""The default time without a heartbeat after which the group reassigns a member's partitions."""

READ_BYTES = 4 << 20
"""The approximate size of one read; if messages are large, the source requests fewer of them."""

JOIN_SLICE_SECONDS = 0.05
"""The longest poll while partitions lack positions, which are set between two polls, in seconds."""

MOMENT_SECONDS = 1.0
"""The longest time between two reads that counts as time spent reading, in seconds.

A longer pause, as in a suspended process, is no sign of a stuck partition.
"""


class KafkaSource(Source[Stored]):
    """A source that reads topics in a consumer group, and keeps positions of its own.

    The source hands out each record once: it continues at the larger of the saved position and the position
    that the group has committed. It commits positions that the agent has acknowledged, at most every second,
    and whenever a partition is revoked. Before it gives up a partition, it waits up to ten seconds until the
    agent has used all records that were read from the partition. A graceful hand-over therefore loses and
    repeats nothing. After a kill -9, the next owner reads the records that were used since the last commit
    again. The killed agent counts these records when it returns (`counts.overlap_records`).

    If retention deleted records before they were read, the source continues at the first record that is left,
    logs this, and counts the deleted records (`counts.gap_records`). The option `auto_offset_reset` applies
    only to partitions that nobody has read. A partition that is added to a topic while the topic is read is
    discovered within `metadata_max_age_ms` (30 s), and is read from its start.

    A topic that was deleted and created again has a new log. The source recognises this by the topic's id,
    logs it, and reads the new log from its start. It counts the unread records of all partitions of the old
    topic as a gap, as far as the end of the old log was known. The ids are checked once a second. Between two
    checks, records of the new log may be handed out twice. Brokers before 2.8 have no ids of topics: for such
    brokers, the source reads the last record again after each pause, and compares it.

    A partition is stuck if it delivers nothing for `stall_seconds` while its lag grows. Then the source is
    not `up`, `trouble` has the reason, and a new consumer continues at the same positions.

    If no broker is reachable, the source is not `up`, logs this once, and continues at its positions when a
    broker answers again. The source also waits for a topic that does not exist yet. It never creates a topic.
    If a topic that was read no longer exists, the source is not `up` until the topic is created again, and
    `trouble` names the topic.

    A message without a value (a tombstone) is handed out as ``b""``. Each message of a batch that is damaged
    on a broker's disk is handed out as `unreadable.PLACEHOLDER`, which the decoder rejects.

    One thread uses the source. Any thread may use `acknowledge` and the properties. If neither `read` nor
    `keep_alive` is called for `max_poll_interval_ms` (five minutes), the group assigns the partitions to
    other members. While the agent has no room for messages, the reading thread should call `keep_alive`. It
    should not read messages and hold them back, because the agent cannot use them before the thread passes
    them on.

    Parameters
    ----------
    settings : KafkaSourceConfig
        Brokers, topics, group and options.

    Raises
    ------
    ConfigError
        The options, brokers or topics cannot be used.
    MissingExtraError
        `driver: confluent` is configured, and confluent-kafka is not installed.

    Examples
    --------
    >>> settings = KafkaSettings(kind="kafka", brokers=("broker:9092",), topics=("clicks", "labels"))
    >>> source = KafkaSource(settings)
    >>> source.name, source.up, source.lag
    ('kafka', False, None)
    """

    @classmethod
    def sample(cls, settings: Any, records: int) -> list[Raw] | str:
        """Return the newest messages of the topics, read outside of the consumer group."""
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
        self._clock_at = 0.0
        self._rebuild_due = False
        self._rebuilds = 0
        self._postponed_error: BlindsightError | None = None
        self._max_records: int = self._options["max_poll_records"]

    @property
    def up(self) -> bool:
        """True if every assigned partition has a position and a connected broker, and none is stuck."""
        return self._health.up

    @property
    def lag(self) -> int | None:
        """The number of waiting records in the assigned partitions, at most a second old; None if unknown."""
        return self._health.lag

    @property
    def trouble(self) -> str | None:
        """The reason why no records are read, such as silent brokers or a missing state; otherwise None."""
        waiting = None if self._shards is None else self._shards.waiting
        return self._health.trouble or waiting

    @property
    def counts(self) -> SourceCounts:
        """The numbers of records missed, used by other members or used twice, and of replaced consumers."""
        return self._placement.counts(self._rebuilds)

    def share(self, shards: ShardOwner) -> None:
        """Take the states and positions of partitions from `shards`. Call this method before `open`.

        Parameters
        ----------
        shards : ShardOwner
            The owner of the states of partitions, which move between agents.
        """
        self._shards = shards

    def open(self, positions: Mapping[str, Stored]) -> None:
        """Prepare to read from these positions, or from the group's positions.

        The method waits up to two seconds for a broker. If no broker has answered by then, `read` continues
        to wait.

        Parameters
        ----------
        positions : mapping of str to Stored
            The saved positions by partition (``topic-3``).

        Raises
        ------
        SourceError
            The brokers refuse access (login, rights) or are too old for kafka-python, or the file of a
            certificate is missing.
        ConfigError
            The options contradict each other.
        """
        self._ledger = PositionLedger(positions)
        self._placement = self._new_placement()
        self._join(OPEN_SECONDS)

    def read(self, timeout_seconds: float) -> list[Raw]:
        """Return the available messages by partition: about 4 MiB, or one larger message.

        Parameters
        ----------
        timeout_seconds : float
            The longest time to wait for the first message.

        Raises
        ------
        SourceError
            See `open`; also if the package for a compression is not installed. The next call connects again
            and continues at the same positions.
        """
        if self._postponed_error is not None:
            error, self._postponed_error = self._postponed_error, None
            raise error
        deadline = time.monotonic() + timeout_seconds
        self._give_up_shards_if_away()
        if self._rebuild_due:
            # Only the next read does this: the agent absorbs the messages of a read after it has returned.
            self._rebuild()
        if not self._join(timeout_seconds):
            return []
        while True:
            raws = self._poll(max(deadline - time.monotonic(), 0.0))
            self._advance_clock()
            try:
                self._observe()
            except BlindsightError as error:
                if not raws:
                    raise
                self._postponed_error = error  # raised by the next read: these messages would be lost
            if raws or time.monotonic() >= deadline:
                return raws

    def keep_alive(self) -> None:
        """Stay in the group without reading. Call this method every few seconds while `read` is not called.

        Raises
        ------
        SourceError
            The same as for `read`.
        """
        self._give_up_shards_if_away()
        if not self._join(0.0):
            return
        self._poll(0.0, idle=True)
        self._observe()
        self._clock_at = time.monotonic()

    def acknowledge(self, positions: Mapping[str, Stored]) -> None:
        """Record that the agent has used everything before these positions, so that `read` commits them.

        Any thread may call this method.
        """
        self._ledger.absorb(positions)

    def close(self) -> None:
        """Commit the used positions and leave the group, within a few seconds, even without brokers."""
        if self._membership is not None:
            self._membership.leave()
        self._drop()

    def _give_up_shards_if_away(self) -> None:
        """Give up all shards if no broker was connected for the length of a session.

        After that time, the group has assigned the partitions to other members.
        """
        if self._shards is None:
            return
        session = self._options.get("session_timeout_ms", SESSION_MILLISECONDS) / 1000
        if time.monotonic() - self._health.connected_at > session:
            self._health.connected_at = time.monotonic()
            self._shards.give_up(self._shards.held())

    def _new_placement(self) -> Placement:
        return Placement(self.name, self._ledger, self._options["auto_offset_reset"], self._shards)

    def _join(self, timeout_seconds: float) -> bool:
        """Subscribe a consumer if none is subscribed, and return whether a broker has answered in time."""
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
            self._health.set_away()
            return False
        topics = self._settings.topics
        self._membership = Membership(self._driver, topics, self._ledger, self._placement, self._shards)
        self._driver.subscribe(topics, self._membership)
        return True

    def _poll(self, timeout_seconds: float, idle: bool = False) -> list[Raw]:
        driver, membership = self._driver, self._membership
        assert driver is not None
        assert membership is not None
        if not membership.is_settled:
            timeout_seconds = min(timeout_seconds, JOIN_SLICE_SECONDS)
        try:
            membership.place()
            membership.check_topics()
            membership.commit_if_due()
            if idle:
                driver.idle()
                return []
            return self._hand_out(driver, driver.poll(timeout_seconds, self._max_records))
        except PositionGoneError as error:
            self._repair(driver, error)
        except BlindsightError:  # raised by the shards if their store cannot be used
            raise
        except Exception as error:  # noqa: BLE001 - the method raises what is not transient
            self._raise_unless_transient(error)
            time.sleep(min(timeout_seconds, JOIN_SLICE_SECONDS))
        return []

    def _repair(self, driver: Driver, error: PositionGoneError) -> None:
        try:
            self._placement.repair(driver, error)
        except PositionGoneError as gone:
            self._raise_unless_transient(gone.cause)
        except Exception as unknown:  # noqa: BLE001 - the method raises what is not transient
            self._raise_unless_transient(unknown)

    def _raise_unless_transient(self, error: Exception) -> None:
        """Log a transient error; for any other error, drop the consumer and raise a SourceError."""
        if isinstance(error, (OffsetOutOfRangeError, CorruptRecordError)) or not is_transient(error):
            self._drop()
            raise explain(error, self._settings.brokers) from error
        log.debug("source %s: %s", self.name, error)

    def _hand_out(self, driver: Driver, polled: list[Polled]) -> list[Raw]:
        raws: list[Raw] = [RawPosition(name, None) for name in self._placement.pop_dropped()]
        count = size = 0
        for part in filter(None, [self._placement.check_log(driver, each) for each in polled]):
            values = [b"" if value is None else value for value in part.values]
            name, offsets = part.partition, part.offsets
            if part.unreadable:
                self._log_unreadable(part)
            after = self._ledger.record_handed_out(name, offsets[0], offsets[-1] + 1, part.last)
            others = self._placement.pop_after_others(name)
            raws.append(RawMessages(values, name, offsets, others, part.headers, after))
            count += len(values)
            size += sum(map(len, values))
        if count:
            most = READ_BYTES * count // max(size, 1)
            self._max_records = max(1, min(self._options["max_poll_records"], most))
        return raws

    def _log_unreadable(self, part: Polled) -> None:
        log.error(
            "source %s: %s: offsets %d to %d are unreadable (%s); the agent rejects them and continues",
            self.name,
            part.partition,
            part.offsets[0],
            part.offsets[-1],
            part.unreadable,
        )

    def _advance_clock(self) -> None:
        """Advance the clock of the time spent reading.

        A pause in reading counts as one second at most, and time in which the agent has no room does not
        count.
        """
        now = time.monotonic()
        self._reading_seconds += min(now - self._clock_at, MOMENT_SECONDS)
        self._clock_at = now

    def _observe(self) -> None:
        """Check the health of the connection, and request a new consumer if a partition is stuck."""
        driver, membership = self._driver, self._membership
        if driver is None or membership is None:
            return
        try:
            stalls = self._health.observe(driver, membership, self._reading_seconds)
        except Exception as error:
            if not is_transient(error):
                self._drop()
                raise explain(error, self._settings.brokers) from error
            return
        self._rebuild_due = self._rebuild_due or bool(stalls)

    def _rebuild(self) -> None:
        """Drop a consumer that is stuck; the next consumer continues at the positions in the ledger."""
        self._rebuilds += 1
        if self._membership is not None:
            self._membership.wait_until_absorbed()
            self._membership.leave()
        self._drop()

    def _drop(self) -> None:
        """Close the consumer and its sockets, and keep the ledger, so that reading can continue."""
        driver = self._driver
        self._driver = self._membership = None
        self._rebuild_due = False
        self._health.reset()
        if driver is not None:
            driver.close(CLOSE_SECONDS)
