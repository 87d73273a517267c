"""A hundred thousand partitions of one source: more than a broker here can have, so the driver is a dummy."""

from __future__ import annotations

import time
import tracemalloc
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient
from kafka.net.manager import KafkaConnectionManager

from connectors.kafka.drivers import native
from connectors.kafka.drivers.base import CommittedPosition, Driver, End, Polled, RebalanceListener
from connectors.kafka.source import source as source_module
from connectors.kafka.source.ledger import PositionLedger
from connectors.kafka.source.membership import MAX_ASKED
from connectors.kafka.source.source import KafkaSource
from monitor.base.source import SourceCounts
from tests.services.kafka_broker import KafkaBroker
from tests.services.kafka_reading import Reader, make_source
from tests.services.process import DRIVERS
from tests.services.process import Driver as DriverName

FEW, MANY = 10_000, 100_000
MOST_TIMES_AS_LONG = 30
"""A tenfold number takes ten times as long; the square of it would take a hundred times."""
KIB = 1 << 10
FEW_REQUESTS = 5
"""One for all, and again where a coordinator or a leader is not there yet, and a look at the lag."""


class MemoryDriver(Driver):
    """One topic whose partitions have one message each."""

    def __init__(self, partitions: int) -> None:
        self.names = [f"clicks-{number}" for number in range(partitions)]
        self.numbers = {*range(partitions)}
        self.places: dict[str, int] = {}
        self.ready: deque[str] = deque()
        self.committed: dict[str, int] = {}
        self.listener: RebalanceListener | None = None
        self.asked = Counter[str]()

    def connect(self, timeout_seconds: float) -> bool:
        """Return at once."""
        return True

    def subscribe(self, topics: Sequence[str], listener: RebalanceListener) -> None:
        """Assign all partitions at the next poll."""
        self.listener = listener

    def assign(self, positions: Mapping[str, int]) -> None:
        """Do nothing: there is a group."""

    def poll(self, timeout_seconds: float, most: int) -> list[Polled]:
        """Return the next messages."""
        if not self.places and self.listener is not None:
            self.places = dict.fromkeys(self.names, -1)
            self.listener.assigned({*self.names})
            return []
        ready = [self.ready.popleft() for _ in range(min(most, len(self.ready)))]
        self.places |= dict.fromkeys(ready, 1)
        return [Polled(name, [b"{}"], [0]) for name in ready]

    def idle(self) -> None:
        """Do nothing."""

    def assigned(self) -> set[str]:
        """Return all partitions."""
        return {*self.places}

    def partitions_of(self, topic: str) -> set[int]:
        """Return the numbers."""
        return self.numbers

    def topic_ids(self, topics: Collection[str], timeout_seconds: float) -> dict[str, str]:
        """Return one id."""
        return dict.fromkeys(topics, "00000000-0000-0000-0000-000000000001")

    def connected(self) -> bool:
        """Return True."""
        return True

    def refresh(self) -> None:
        """Do nothing."""

    def position(self, name: str) -> int | None:
        """Return where reading goes on."""
        return self.places[name]

    def highwater(self, name: str) -> int | None:
        """Return the end."""
        return 1

    def ends(self, names: Collection[str], end: End, timeout_seconds: float) -> dict[str, int]:
        """Return the ends."""
        self.asked["ends"] += 1
        return dict.fromkeys(names, int(end == "latest"))

    def told(self, names: Collection[str], timeout_seconds: float) -> dict[str, CommittedPosition]:
        """Return nothing: the group is new."""
        self.asked["told"] += 1
        return {}

    def seek(self, name: str, position: int) -> None:
        """Read a partition from there."""
        self.places[name] = position
        self.ready.append(name)

    def pause(self, names: Collection[str]) -> None:
        """Do nothing."""

    def resume(self, names: Collection[str]) -> None:
        """Do nothing."""

    def commit_soon(
        self, marks: Mapping[str, CommittedPosition], arrived: Callable[[Mapping[str, int]], None]
    ) -> None:
        """Commit at once."""
        self.commit(marks, 0.0)
        arrived({name: mark.position for name, mark in marks.items()})

    def commit(self, marks: Mapping[str, CommittedPosition], timeout_seconds: float) -> None:
        """Commit at once."""
        self.committed |= {name: mark.position for name, mark in marks.items()}

    def close(self, timeout_seconds: float) -> None:
        """Do nothing."""


def read_all(partitions: int, monkeypatch: pytest.MonkeyPatch) -> tuple[KafkaSource, MemoryDriver, float]:
    """Read every message of so many partitions, and return the processor time that it took."""
    driver = MemoryDriver(partitions)
    monkeypatch.setattr(source_module, "make_driver", lambda *given: driver)
    source, names = make_source("unused:9092", "clicks"), set[str]()
    with processor_time() as took:
        source.open({})
        while len(names) < partitions:
            raws = source.read(0.0)
            names |= {raw.partition for raw in raws}
            source.acknowledge({raw.partition: raw.after for raw in raws})
        source.close()
    return source, driver, took[0]


@contextmanager
def processor_time() -> Iterator[list[float]]:
    took, began = [0.0], time.thread_time()
    yield took
    took[0] = time.thread_time() - began


def test_a_hundred_thousand_partitions_take_ten_times_as_long_as_ten_thousand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, _, few = read_all(FEW, monkeypatch)
    source, driver, many = read_all(MANY, monkeypatch)
    print(f"{FEW:,} partitions: {few:.2f} s of processor time; {MANY:,}: {many:.2f} s")
    assert driver.committed == dict.fromkeys(driver.names, 1)
    assert source.counts == SourceCounts()
    assert many < MOST_TIMES_AS_LONG * few
    assert driver.asked["told"] == MANY / MAX_ASKED
    assert driver.asked["ends"] <= 2 * MANY / MAX_ASKED, "where they begin, and a look at the lag"


def test_a_position_of_a_hundred_thousand_takes_less_than_a_kibibyte() -> None:
    names = [f"clicks-{number}" for number in range(MANY)]
    tracemalloc.start()
    try:
        ledger = PositionLedger({})
        for name in names:
            ledger.handed_out(name, 0, 1)
        ledger.absorb(dict.fromkeys(names, 1))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert ledger.to_commit(names) == dict.fromkeys(names, 1)
    assert not ledger.outstanding(names)
    print(f"{kept / MANY:.0f} bytes a partition")
    assert kept < KIB * MANY


def count_requests(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count what both libraries ask for of positions."""
    counts = Counter[str]()
    send, list_offsets = KafkaConnectionManager.send, AdminClient.list_offsets

    class Counting(Consumer):
        def committed(self, *given: Any, **named: Any) -> Any:
            counts["OffsetFetch"] += 1
            return super().committed(*given, **named)

        def get_watermark_offsets(self, *given: Any, **named: Any) -> Any:
            counts["ListOffsets"] += not named.get("cached")
            return super().get_watermark_offsets(*given, **named)

    def sent(self: Any, request: Any, *given: Any, **named: Any) -> Any:
        counts[type(request).__name__.removesuffix("Request")] += 1
        return send(self, request, *given, **named)

    def listed(self: Any, *given: Any, **named: Any) -> Any:
        counts["ListOffsets"] += 1
        return list_offsets(self, *given, **named)

    monkeypatch.setattr(native, "Consumer", Counting)
    monkeypatch.setattr(KafkaConnectionManager, "send", sent)
    monkeypatch.setattr(AdminClient, "list_offsets", listed)
    return counts


@pytest.mark.kafka
@pytest.mark.parametrize("driver", DRIVERS)
def test_the_brokers_are_asked_for_the_positions_of_all_partitions_at_once(
    kafka_broker: KafkaBroker, driver: DriverName, monkeypatch: pytest.MonkeyPatch
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
