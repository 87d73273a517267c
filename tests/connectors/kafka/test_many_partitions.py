"""A hundred thousand partitions of one source: more than a broker here can have, so the driver is a dummy."""

from __future__ import annotations

import time
import tracemalloc
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient
from kafka.errors import KafkaTimeoutError, OffsetOutOfRangeError
from kafka.net.manager import KafkaConnectionManager

from connectors.kafka.drivers import native
from connectors.kafka.drivers.base import End, PositionGoneError
from connectors.kafka.source import source as source_module
from connectors.kafka.source.ledger import PositionLedger
from connectors.kafka.source.membership import MAX_REQUESTED
from connectors.kafka.source.placement import Placement
from connectors.kafka.source.source import KafkaSource
from monitor.base.source import SourceCounts
from tests.connectors.kafka.memory_driver import MemoryDriver
from tests.services.kafka_broker import KafkaBroker
from tests.services.kafka_reading import Reader, make_source
from tests.services.process import DRIVERS, Driver

FEW, MANY = 10_000, 100_000
MOST_TIMES_AS_LONG = 30
"""A tenfold number takes ten times as long; the square of it would take a hundred times."""
KIB = 1 << 10
FEW_REQUESTS = 5
"""One for all, and again where a coordinator or a leader is not there yet, and a look at the lag."""


def read_all(partitions: int, monkeypatch: pytest.MonkeyPatch) -> tuple[KafkaSource, MemoryDriver, float]:
    """Read every message of `partitions` partitions, and return the processor time that it took."""
    driver = MemoryDriver(partitions)
    monkeypatch.setattr(source_module, "make_driver", lambda *arguments: driver)
    source, names = make_source("unused:9092", "clicks"), set[str]()
    with processor_time() as seconds:
        source.open({})
        while len(names) < partitions:
            raws = source.read(0.0)
            names |= {raw.partition for raw in raws}
            source.acknowledge({raw.partition: raw.after for raw in raws})
        source.close()
    return source, driver, seconds[0]


@contextmanager
def processor_time() -> Iterator[list[float]]:
    seconds, began = [0.0], time.thread_time()
    yield seconds
    seconds[0] = time.thread_time() - began


@pytest.mark.slow
def test_a_hundred_thousand_partitions_take_ten_times_as_long_as_ten_thousand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, _, few = read_all(FEW, monkeypatch)
    source, driver, many = read_all(MANY, monkeypatch)
    print(f"{FEW:,} partitions: {few:.2f} s of processor time; {MANY:,}: {many:.2f} s")
    assert driver.committed == dict.fromkeys(driver.names, 1)
    assert source.counts == SourceCounts()
    assert many < MOST_TIMES_AS_LONG * few
    assert driver.requests["committed_positions"] == MANY / MAX_REQUESTED
    assert driver.requests["ends"] <= 2 * MANY / MAX_REQUESTED, "where they begin, and a look at the lag"


def test_the_ends_of_all_logs_that_lost_their_positions_are_asked_for_at_once() -> None:
    driver = Trimmed(1000)
    driver.places = dict.fromkeys(driver.names, 3)
    ledger = PositionLedger(dict.fromkeys(driver.names, 3))
    placement = Placement("kafka", ledger, "earliest")
    gone = PositionGoneError(dict.fromkeys(driver.names), OffsetOutOfRangeError())
    with pytest.raises(KafkaTimeoutError, match="the leaders of 1 partitions did not name the ends"):
        placement.repair(driver, gone)
    assert driver.places == {**dict.fromkeys(driver.names, 10), "clicks-0": 1, "clicks-999": 3}
    assert placement.counts(0) == SourceCounts(gap_records=7 * 998)
    assert driver.requests["ends"] == 2, "where they begin, and where one of them ends"


class Trimmed(MemoryDriver):
    """Logs from 10 to 20, but the first, which ends at 1, and the last, whose leader is away."""

    def ends(self, names: Collection[str], end: End, timeout_seconds: float) -> dict[str, int]:
        """Return the ends."""
        super().ends(names, end, timeout_seconds)
        ends = {name: 10 if end == "earliest" else 20 for name in names if name != self.names[-1]}
        return ends | dict.fromkeys({*names} & {self.names[0]}, 1)


@pytest.mark.slow
def test_a_position_of_a_hundred_thousand_takes_less_than_a_kibibyte() -> None:
    names = [f"clicks-{number}" for number in range(MANY)]
    tracemalloc.start()
    try:
        ledger = PositionLedger({})
        for name in names:
            ledger.record_handed_out(name, 0, 1)
        ledger.absorb(dict.fromkeys(names, 1))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert ledger.positions_to_commit(names) == dict.fromkeys(names, 1)
    assert not ledger.has_outstanding(names)
    print(f"{kept / MANY:.0f} bytes a partition")
    assert kept < KIB * MANY


def count_requests(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count what both libraries ask for of positions."""
    counts = Counter[str]()
    send, list_offsets = KafkaConnectionManager.send, AdminClient.list_offsets

    class Counting(Consumer):
        def committed(self, *arguments: Any, **named: Any) -> Any:
            counts["OffsetFetch"] += 1
            return super().committed(*arguments, **named)

        def get_watermark_offsets(self, *arguments: Any, **named: Any) -> Any:
            counts["ListOffsets"] += not named.get("cached")
            return super().get_watermark_offsets(*arguments, **named)

    def sent(self: Any, request: Any, *arguments: Any, **named: Any) -> Any:
        counts[type(request).__name__.removesuffix("Request")] += 1
        return send(self, request, *arguments, **named)

    def listed(self: Any, *arguments: Any, **named: Any) -> Any:
        counts["ListOffsets"] += 1
        return list_offsets(self, *arguments, **named)

    monkeypatch.setattr(native, "Consumer", Counting)
    monkeypatch.setattr(KafkaConnectionManager, "send", sent)
    monkeypatch.setattr(AdminClient, "list_offsets", listed)
    return counts


@pytest.mark.kafka
@pytest.mark.parametrize("driver", DRIVERS)
def test_the_brokers_are_asked_for_the_positions_of_all_partitions_at_once(
    kafka_broker: KafkaBroker, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, filled = f"wide-{driver}", 100
    kafka_broker.create_topic(topic, 2 * filled)
    counts = count_requests(monkeypatch)
    for beginnings in (1, 0):  # at first nothing is committed, and then all is
        kafka_broker.produce(topic, [b"1"] * filled, partitions=filled)
        counts.clear()
        source = make_source(kafka_broker.address, topic, driver=driver, group=topic, stall_seconds=600)
        source.open({})
        reader = Reader(source)
        reader.until_up()
        assert 1 <= counts["OffsetFetch"] <= FEW_REQUESTS, counts
        assert beginnings <= counts["ListOffsets"] <= FEW_REQUESTS, counts
        reader.until(filled)
        source.close()
        assert source.counts == SourceCounts()
