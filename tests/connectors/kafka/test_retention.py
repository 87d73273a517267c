"""Logs that have changed: retention took records, a topic was created again, one got more partitions."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import pytest
from kafka.errors import LogTruncationError, OffsetOutOfRangeError

from connectors.kafka import KafkaSource
from connectors.kafka.drivers.base import PositionGoneError
from connectors.kafka.drivers.python import PythonDriver
from connectors.kafka.source.ledger import PositionLedger
from connectors.kafka.source.placement import Placement
from monitor.base.errors import SourceError
from monitor.base.source import SourceCounts
from tests.services.kafka_broker import KafkaBroker
from tests.services.kafka_reading import Reader, Worker
from tests.services.process import wait_until

Sources = Callable[..., KafkaSource]


def numbers(first: int, after: int) -> list[bytes]:
    return [b"%d" % i for i in range(first, after)]


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_records_that_retention_took_before_they_were_read_are_counted_and_named(
    kafka_broker: KafkaBroker, kafka_source: Sources, caplog: pytest.LogCaptureFixture, start: str
) -> None:
    topic = f"gap-{start}"
    kafka_broker.create_topic(topic, 2)
    kafka_broker.produce(topic, numbers(0, 200), partitions=2)
    kafka_broker.delete_records(topic, 0, before=70)
    source = kafka_source(kafka_broker.address, topic, group=topic, auto_offset_reset=start)
    source.open({f"{topic}-0": 30, f"{topic}-1": 30})
    reader = Reader(source)
    reader.until(100)
    reader.quiet(0.5)
    assert reader.offsets == {f"{topic}-0": list(range(70, 100)), f"{topic}-1": list(range(30, 100))}
    assert source.counts == SourceCounts(gap_records=40)
    messages = [r.getMessage() for r in caplog.records if "retention" in r.getMessage()]
    assert messages == [
        f"source kafka: topic {topic}, partition 0: 40 records (30 to 69) were deleted by retention "
        "before the agent read them; reading continues at 70. Keep records longer (retention.ms, "
        "retention.bytes), or read faster"
    ]


def test_a_gap_behind_the_groups_position_counts_too_and_only_once(
    kafka_broker: KafkaBroker, kafka_source: Sources
) -> None:
    kafka_broker.create_topic("emptied")
    kafka_broker.produce("emptied", numbers(0, 100))
    first = kafka_source(kafka_broker.address, "emptied", group="emptied", max_poll_records=25)
    first.open({})
    Reader(first).until(25)
    first.close()
    (at,) = kafka_broker.committed("emptied", "emptied", 1).values()
    kafka_broker.delete_records("emptied", 0, before=100)

    again = kafka_source(kafka_broker.address, "emptied", group="emptied")
    again.open({})
    reader = Reader(again)
    reader.until_counts(SourceCounts(gap_records=100 - at))
    # The partition is placed anew when another member comes and goes.
    second = Worker(kafka_source(kafka_broker.address, "emptied", group="emptied"))
    second.start()
    while not second.source.up:
        reader.once(0.05)
    finish = threading.Thread(target=second.finish)
    finish.start()
    while finish.is_alive():
        reader.once(0.05)
    reader.until_up()
    reader.quiet(0.5)
    assert (again.counts, second.source.counts) == (SourceCounts(gap_records=100 - at), SourceCounts())
    kafka_broker.produce("emptied", [b"new"])
    reader.until(1)
    assert reader.offsets["emptied-0"] == [100]


@pytest.mark.parametrize(("start", "expected"), [("earliest", list(range(20))), ("latest", [])])
def test_a_position_behind_the_end_of_the_log_is_told_and_reading_begins_where_configured(
    kafka_broker: KafkaBroker,
    kafka_source: Sources,
    caplog: pytest.LogCaptureFixture,
    start: str,
    expected: list[int],
) -> None:
    topic = f"anew-{start}"
    kafka_broker.create_topic(topic)
    kafka_broker.produce(topic, numbers(0, 20))
    source = kafka_source(kafka_broker.address, topic, group=topic, auto_offset_reset=start)
    source.open({f"{topic}-0": 500})
    reader = Reader(source)
    reader.until_up()
    warning = (
        f"source kafka: topic {topic}, partition 0: position 500 is beyond the end of the log: the topic was "
        f"created again, or its brokers lost records; reading continues at {start}"
    )
    # A record produced before the agent asks for the end of the log would lie before "latest".
    wait_until(lambda: reader.once(0.05) >= 0 and warning in caplog.text, "the position is replaced", pause=0)
    reader.until(len(expected))
    reader.quiet(0.7)
    assert reader.offsets[f"{topic}-0"] == expected
    kafka_broker.produce(topic, [b"new"])
    reader.until(len(expected) + 1)
    assert reader.offsets[f"{topic}-0"] == [*expected, 20]
    assert source.counts == SourceCounts()


def test_who_wants_to_decide_alone_is_told_that_the_position_is_gone(
    kafka_broker: KafkaBroker, kafka_source: Sources
) -> None:
    kafka_broker.create_topic("none")
    kafka_broker.produce("none", numbers(0, 20))
    kafka_broker.delete_records("none", 0, before=10)
    for positions in ({"none-0": 3}, {}):
        source = kafka_source(kafka_broker.address, "none", group="none", auto_offset_reset="none")
        source.open(positions)
        with pytest.raises(SourceError) as caught:
            Reader(source).until(1)
        assert "and options.auto_offset_reset is none; set it to earliest or latest" in str(caught.value)
        source.close()


def test_after_an_unclean_election_reading_goes_on_where_the_logs_part(kafka_broker: KafkaBroker) -> None:
    kafka_broker.create_topic("parted")
    kafka_broker.produce("parted", numbers(0, 20))
    driver = PythonDriver({"bootstrap_servers": kafka_broker.address, "group_id": "parted"})
    try:
        assert driver.connect(20)
        driver.assign({"parted-0": 20})
        ledger = PositionLedger({"parted-0": 20})
        placement = Placement("kafka", ledger, "earliest")
        error = LogTruncationError({})
        placement.repair(driver, PositionGoneError({"parted-0": 12}, error, truncated=True))
        assert (driver.position("parted-0"), ledger.resume_position("parted-0")) == (12, 12)
        # What is said late of a log that had this topic's name before: this one holds the position.
        placement.repair(driver, PositionGoneError({"parted-0": None}, OffsetOutOfRangeError()))
        assert (driver.position("parted-0"), ledger.resume_position("parted-0")) == (12, 12)
        placement.repair(driver, PositionGoneError({"parted-0": None}, error, truncated=True))
        assert (driver.position("parted-0"), ledger.resume_position("parted-0")) == (0, 0)
        assert placement.counts(0) == SourceCounts()
    finally:
        driver.close(1.0)


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_partitions_that_a_topic_gains_are_found_and_read_from_their_earliest_record(
    kafka_broker: KafkaBroker, kafka_source: Sources, caplog: pytest.LogCaptureFixture, start: str
) -> None:
    caplog.set_level(logging.INFO, "connectors.kafka")
    topic = f"grows-{start}"
    kafka_broker.create_topic(topic)
    kafka_broker.produce(topic, numbers(0, 10), partition=0)
    source = kafka_source(
        kafka_broker.address, topic, group=topic, auto_offset_reset=start, metadata_max_age_ms=700
    )
    source.open({})
    reader = Reader(source)
    reader.until_up()
    reader.until(10 if start == "earliest" else 0)
    reader.quiet(0.3)
    kafka_broker.add_partitions(topic, 3)
    kafka_broker.produce(topic, numbers(0, 60), partitions=3)
    reader.until(reader.count + 60)
    reader.quiet(0.5)
    source.close()
    old = range(10, 30) if start == "latest" else range(30)
    assert reader.offsets == {
        f"{topic}-0": list(old),
        f"{topic}-1": list(range(20)),
        f"{topic}-2": list(range(20)),
    }
    assert f"source kafka: {topic}-2 is new; it is read from its start" in caplog.text


def test_a_join_that_takes_longer_than_a_read_is_seen_through(
    kafka_broker: KafkaBroker, kafka_source: Sources
) -> None:
    """kafka-python alone forgets a join that changed topics began: such a source never read again."""
    kafka_broker.create_topic("slow-join")
    source = kafka_source(kafka_broker.address, "slow-join", group="slow-join", metadata_max_age_ms=500)
    source.open({})
    reader = Reader(source)
    reader.until_up()
    kafka_broker.add_partitions("slow-join", 4)
    kafka_broker.produce("slow-join", numbers(0, 40), partitions=4)
    wait_until(lambda: reader.once(0.001) >= 0 and reader.count >= 40, "all is read", pause=0.002)
    assert reader.offsets == {f"slow-join-{n}": list(range(10)) for n in range(4)}


def test_where_reading_begins_is_told_to_the_group_before_any_record_comes(
    kafka_broker: KafkaBroker, kafka_source: Sources
) -> None:
    kafka_broker.create_topic("begun")
    kafka_broker.produce("begun", numbers(0, 10))
    first = kafka_source(kafka_broker.address, "begun", group="begun", auto_offset_reset="latest")
    first.open({})
    # Short reads: each sees one step of joining, and a partition is assigned before it has its place.
    reader = Reader(first)
    wait_until(lambda: reader.once(0.01) == 0 and first.up, "the first source is up")
    first.close()
    assert kafka_broker.committed("begun", "begun", 1) == {"begun-0": 10}
    kafka_broker.produce("begun", numbers(10, 15))
    second = kafka_source(kafka_broker.address, "begun", group="begun", auto_offset_reset="latest")
    second.open({})
    reader = Reader(second)
    reader.until(5)
    assert reader.offsets["begun-0"] == list(range(10, 15))
