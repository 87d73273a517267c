"""The parts that tests of the Kafka source share: settings, and a reader that checks as it reads."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from connectors.kafka import KafkaSource
from monitor.base.codec import pack, unpack
from monitor.base.source import RawMessages, RawPosition, SourceCounts
from monitor.config.root import KafkaSourceConfig as KafkaSettings
from tests.services.process import PATIENCE_SECONDS, Driver

JOIN_FAST: dict[str, Any] = {"heartbeat_interval_ms": 300}
"""Options that let tests see a rebalance soon; the default heartbeat is 3 s.

A member leaves its group as it is closed. Only a test that kills one makes the session short, as on a busy
machine a member that lives may miss a short one.
"""


def make_source(
    broker: str,
    *topics: str,
    driver: Driver = "kafka-python",
    group: str = "blindsight",
    stall_seconds: float = 60,
    **options: Any,
) -> KafkaSource:
    """Return a source that is not open yet."""
    settings = KafkaSettings(
        kind="kafka",
        driver=driver,
        brokers=(broker,),
        topics=topics,
        group=group,
        stall_seconds=stall_seconds,
        options={**JOIN_FAST, **options},
    )
    return KafkaSource(settings)


class Reader:
    """A reader of a source that keeps messages, and checks that offsets only rise within a partition.

    Parameters
    ----------
    source : KafkaSource
        Open.
    absorb : bool
        Whether to report records as absorbed as soon as they are read.

    Attributes
    ----------
    positions : dict of str to object
        The newest of each partition, as a store would have them.
    """

    def __init__(self, source: KafkaSource, absorb: bool = True) -> None:
        self.source = source
        self.absorb = absorb
        self.offsets: dict[str, list[int]] = defaultdict(list)
        self.values: dict[str, list[bytes]] = defaultdict(list)
        self.positions: dict[str, Any] = {}

    @property
    def count(self) -> int:
        """Messages read so far."""
        return sum(map(len, self.offsets.values()))

    def once(self, timeout_seconds: float = 0.2) -> int:
        """Return one read; how many messages it brought."""
        before = self.count
        for raw in self.source.read(timeout_seconds):
            if isinstance(raw, RawPosition):
                assert raw.after is None, "a position alone is dropped"
                self.positions.pop(raw.partition)
                if self.absorb:
                    self.source.acknowledge({raw.partition: None})
                continue
            assert isinstance(raw, RawMessages)
            assert len(raw.values) == len(raw.offsets)
            self.offsets[raw.partition].extend(raw.offsets)
            self.values[raw.partition].extend(raw.values)
            self.positions = unpack(pack({**self.positions, raw.partition: raw.after}))
            if self.absorb:
                self.source.acknowledge({raw.partition: raw.after})
        return self.count - before

    def until(self, count: int, seconds: float = PATIENCE_SECONDS) -> None:
        """Read until `count` messages have come in all; raise AssertionError if they have not in time."""
        deadline = time.monotonic() + seconds
        while self.count < count:
            assert time.monotonic() < deadline, f"{self.count} of {count} messages within {seconds:g} s"
            self.once()

    def until_up(self, seconds: float = PATIENCE_SECONDS) -> None:
        """Read until the source is up; AssertionError if it is not in time."""
        deadline = time.monotonic() + seconds
        while not self.source.up:
            assert time.monotonic() < deadline, f"not up within {seconds:g} s"
            self.once()

    def until_caught_up(self, seconds: float = PATIENCE_SECONDS) -> None:
        """Read until the lag is 0; AssertionError if it is not in time, or anything more comes."""
        deadline = time.monotonic() + seconds
        while self.source.lag != 0:
            assert time.monotonic() < deadline, f"lag {self.source.lag} after {seconds:g} s"
            assert self.once() == 0, "something came twice"

    def until_counts(self, counts: SourceCounts, seconds: float = PATIENCE_SECONDS) -> None:
        """Read until the source has counted this; AssertionError if it has not in time, or anything comes."""
        deadline = time.monotonic() + seconds
        while self.source.counts != counts:
            assert time.monotonic() < deadline, f"{self.source.counts} after {seconds:g} s"
            assert self.once() == 0, "something came twice"

    def quiet(self, seconds: float = 1.0) -> None:
        """Raise AssertionError if anything more comes within this time."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            assert self.once() == 0, "something came twice"


class Worker(threading.Thread):
    """A thread that reads a source, absorbing at once, until it is stopped.

    Parameters
    ----------
    source : KafkaSource
        Not open yet.
    positions : mapping of str to object
        What a store would know.
    """

    def __init__(self, source: KafkaSource, positions: Mapping[str, Any] | None = None) -> None:
        super().__init__(daemon=True)
        self.source = source
        self.positions = positions or {}
        self.reader = Reader(self.source)
        self.halt = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.source.open(self.positions)
            while not self.halt.is_set():
                self.reader.once(0.1)
            self.source.close()
        except BaseException as error:  # noqa: BLE001 - shown by the test that joins
            self.error = error

    def finish(self) -> None:
        """Close the source in its thread; AssertionError where that hangs or anything went wrong."""
        self.halt.set()
        self.join(PATIENCE_SECONDS)
        assert not self.is_alive()
        assert self.error is None, self.error
