"""The watchdog: a partition that delivers nothing while its lag grows is found, told, and read on."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

import pytest

from connectors.kafka import KafkaSource
from connectors.kafka.drivers.base import End
from connectors.kafka.source import health, pace
from connectors.kafka.source import source as source_module
from connectors.kafka.source.stalls import Stall, StallWatch
from monitor.base.source import SourceCounts
from tests.connectors.kafka.memory_driver import MemoryDriver
from tests.services.kafka_broker import KafkaBroker
from tests.services.kafka_reading import Reader, make_source
from tests.services.process import wait_until

Sources = Callable[..., KafkaSource]


def looks(*seen: tuple[float, int, int], seconds: float = 60) -> list[list[Stall]]:
    """Return the stalls that a watch finds at each (time, position, end) of one partition."""
    watch = StallWatch(seconds)
    return [watch.find_stalls(now, {"t-0": (position, end)}) for now, position, end in seen]


@pytest.mark.parametrize(
    "seen",
    [
        [(0, 5, 5), (60, 5, 5), (600, 5, 5)],  # idle
        [(0, 5, 9), (60, 5, 9), (600, 5, 9)],  # a constant distance to the end
        [(0, 5, 5), (600, 5, 9), (659.9, 5, 99)],  # an hour's silence before does not count
        [(0, 5, 9), (10, 5, 20), (69, 6, 99), (79, 6, 120), (138, 6, 200)],  # one record is enough
        [(0, 5, 9), (10, 5, 20), (60, 5, 9), (80, 5, 12), (139, 5, 20)],  # what had grown has gone again
        [(0, 5, 9), (10, 5, 20), (69, 2, 20), (79, 2, 21), (138, 2, 22)],  # put back: the topic was made anew
    ],
)
def test_a_partition_that_is_idle_or_moves_is_not_stuck(seen: list[tuple[float, int, int]]) -> None:
    assert looks(*seen) == [[]] * len(seen)


def test_a_partition_is_stuck_so_long_after_its_lag_was_first_seen_to_grow() -> None:
    assert looks((0, 5, 9), (10, 5, 20), (69, 5, 30), (70, 5, 40)) == [[], [], [], [Stall("t-0", 5, 35)]]
    assert looks((0, 5, 9), (1, 5, 10), (4, 5, 10), seconds=3)[-1] == [Stall("t-0", 5, 5)]


def test_a_partition_that_went_away_and_one_that_is_forgotten_begin_anew() -> None:
    watch = StallWatch(10)
    for now, places in enumerate([{"a": (0, 1)}, {"a": (0, 2)}, {"b": (0, 1)}]):
        assert watch.find_stalls(now, places) == []
    assert watch.find_stalls(30, {"a": (0, 9), "b": (0, 9)}) == []
    assert watch.has_not_moved("a", 0)
    watch.forget()
    assert not watch.has_not_moved("a", 0)
    assert watch.find_stalls(60, {"b": (0, 20)}) == []


class OpenTransaction(MemoryDriver):
    """A driver whose brokers do not always name the ends of logs in time."""

    answers = True
    last = 1

    def highwater(self, name: str) -> int | None:
        """Return the end, with the records of the transaction."""
        return self.last

    def ends(self, names: Collection[str], end: End, timeout_seconds: float) -> dict[str, int]:
        """Return the ends of the committed records, if the brokers answer."""
        return super().ends(names, end, timeout_seconds) if self.answers or end == "earliest" else {}


def test_records_of_an_open_transaction_are_no_stall_if_the_brokers_do_not_answer_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = OpenTransaction(1)
    monkeypatch.setattr(health, "CHECK_SECONDS", 0.0)
    monkeypatch.setattr(pace, "PAUSE_FACTOR", 0.0)
    monkeypatch.setattr(source_module, "make_driver", lambda *arguments: driver)
    source = make_source("unused:9092", "clicks", stall_seconds=6)
    source.open({})
    while not source.read(0.0):
        pass
    assert source._membership is not None
    for reading, answers in ((10, True), (14, False), (15, True), (30, True), (45, True)):
        driver.answers = answers
        assert source._health.observe(driver, source._membership, reading) == []
        driver.last = 31
    assert (source.up, source.lag, source.trouble) == (True, 30, None)
    source.close()


def test_a_stuck_partition_makes_the_source_not_up_and_is_read_on_by_a_new_consumer(
    kafka_broker: KafkaBroker, kafka_source: Sources, caplog: pytest.LogCaptureFixture
) -> None:
    kafka_broker.create_topic("sticks", 2)
    kafka_broker.produce("sticks", [b"%d" % i for i in range(20)], partitions=2)
    source = kafka_source(kafka_broker.address, "sticks", group="sticks", stall_seconds=3.0)
    source.open({})
    reader = Reader(source)
    reader.until(20)
    reader.until_up()
    assert source.trouble is None
    # As a fetcher that has lost a partition does: it asks for nothing, and says nothing.
    assert source._driver is not None
    source._driver.pause(["sticks-0"])

    sent = 10

    def is_seen() -> bool:
        nonlocal sent
        kafka_broker.produce("sticks", [b"x"] * 2, partitions=2)
        sent += 1
        reader.once(0.1)
        return source.trouble is not None  # the next read has another consumer, which may read all at once

    wait_until(is_seen, "the stuck partition is found", pause=0)
    assert not source.up
    assert source.trouble is not None
    assert source.trouble.startswith("sticks-0 has delivered nothing for 3 s, from position 10 on, while its")
    assert len(reader.offsets["sticks-0"]) == 10
    assert len(reader.offsets["sticks-1"]) > 10
    assert f"source kafka: {source.trouble}; the agent replaces its consumer" in caplog.text

    reader.until(2 * sent)
    reader.until_up()
    reader.quiet(1.2)
    assert source.up
    assert source.trouble is None
    assert source.counts == SourceCounts(rebuilds=1)
    assert reader.offsets == {f"sticks-{n}": list(range(sent)) for n in (0, 1)}


def test_the_lag_of_a_stuck_partition_is_seen_to_grow(
    kafka_broker: KafkaBroker, kafka_source: Sources
) -> None:
    kafka_broker.create_topic("lags")
    source = kafka_source(kafka_broker.address, "lags", group="lags", stall_seconds=60.0)
    source.open({})
    reader = Reader(source)
    reader.until_up()
    reader.quiet(1.2)
    assert source._driver is not None
    source._driver.pause(["lags-0"])
    kafka_broker.produce("lags", [b"x"] * 30)
    wait_until(lambda: reader.once(0.1) == 0 and source.lag == 30, "its lag is 30")
    # It is no stall yet, and what is fetched again moves on.
    assert source.up
    source._driver.resume(["lags-0"])
    reader.until(30)
    assert source.counts == SourceCounts()


def test_time_in_which_there_is_no_room_is_no_stall(kafka_broker: KafkaBroker, kafka_source: Sources) -> None:
    kafka_broker.create_topic("full")
    source = kafka_source(kafka_broker.address, "full", group="full", stall_seconds=1.0)
    source.open({})
    reader = Reader(source)
    reader.until_up()
    for _ in range(8):
        kafka_broker.produce("full", [b"x"])
        deadline = time.monotonic() + 0.25
        while time.monotonic() < deadline:
            source.keep_alive()
    assert source.up
    assert source.counts == SourceCounts()
    reader.until(8)


def test_a_broker_that_stands_still_is_no_stuck_partition(
    new_kafka_broker: Callable[[], KafkaBroker], kafka_source: Sources
) -> None:
    broker = new_kafka_broker()
    broker.start()
    broker.create_topic("frozen")
    broker.produce("frozen", [b"x"] * 10)
    source = kafka_source(broker.address, "frozen", group="frozen", stall_seconds=2.0)
    source.open({})
    reader = Reader(source)
    reader.until(10)
    reader.until_up()
    with broker.frozen():
        deadline = time.monotonic() + 4
        while time.monotonic() < deadline:
            began = time.monotonic()
            reader.once(0.2)
            # A read may wait two seconds for the ends of logs, and not for the half minute of the libraries.
            assert time.monotonic() - began < 20
    broker.produce("frozen", [b"y"] * 10)
    reader.until(20)
    reader.until_up()
    assert source.counts == SourceCounts()
    assert reader.offsets["frozen-0"] == list(range(20))
