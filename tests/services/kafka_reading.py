"""What tests of the Kafka source share: settings, and a reader that checks as it reads."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Any

from connectors.base import RawMessages
from connectors.kafka import KafkaSource
from monitor.config import KafkaSource as KafkaSettings

JOIN_FAST: dict[str, Any] = {"heartbeat_interval_ms": 300, "session_timeout_ms": 6000}
"""Options that let tests see a rebalance soon; the default heartbeat is 3 s."""


def make_source(broker: str, *topics: str, group: str = "blindsight", **options: Any) -> KafkaSource:
    """A source that is not open yet."""
    settings = KafkaSettings(
        kind="kafka", brokers=(broker,), topics=topics, group=group, options={**JOIN_FAST, **options}
    )
    return KafkaSource(settings)


class Reader:
    """Reads a source, keeps what came, and holds that offsets only rise within a partition.

    Parameters
    ----------
    source : KafkaSource
        Open.
    absorb : bool
        Whether to report what was read as absorbed at once.
    """

    def __init__(self, source: KafkaSource, absorb: bool = True) -> None:
        self.source = source
        self.absorb = absorb
        self.offsets: dict[str, list[int]] = defaultdict(list)
        self.values: dict[str, list[bytes]] = defaultdict(list)

    @property
    def count(self) -> int:
        """Messages read so far."""
        return sum(map(len, self.offsets.values()))

    def once(self, timeout_seconds: float = 0.2) -> int:
        """One read; how many messages it brought."""
        before = self.count
        for raw in self.source.read(timeout_seconds):
            assert isinstance(raw, RawMessages)
            assert len(raw.values) == len(raw.offsets)
            self.offsets[raw.partition].extend(raw.offsets)
            self.values[raw.partition].extend(raw.values)
            if self.absorb:
                self.source.absorbed({raw.partition: raw.offsets[-1] + 1})
        return self.count - before

    def until(self, count: int, seconds: float = 30) -> None:
        """Read until so many messages have come in all; AssertionError if they have not in time."""
        deadline = time.monotonic() + seconds
        while self.count < count:
            assert time.monotonic() < deadline, f"{self.count} of {count} messages within {seconds:g} s"
            self.once()

    def until_up(self, seconds: float = 30) -> None:
        """Read until the source is up; AssertionError if it is not in time."""
        deadline = time.monotonic() + seconds
        while not self.source.up:
            assert time.monotonic() < deadline, f"not up within {seconds:g} s"
            self.once()

    def quiet(self, seconds: float = 1.0) -> None:
        """AssertionError if anything more comes within this time."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            assert self.once() == 0, "something came twice"
