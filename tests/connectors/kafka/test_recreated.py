"""A topic that was deleted and created again is read from its start, and its lost records are counted."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition

from connectors.kafka import KafkaSource
from connectors.kafka.source import placement
from monitor.base.errors import SourceError
from monitor.base.source import SourceCounts
from tests.services.kafka_broker import KafkaBroker, OldKafkaBroker
from tests.services.kafka_reading import Reader
from tests.services.process import wait_until

Sources = Callable[..., KafkaSource]


def numbers(first: int, after: int) -> list[bytes]:
    return [b"%d" % i for i in range(first, after)]


def messages_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if "created again" in r.getMessage()]


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_while_nobody_reads(
    kafka_broker: KafkaBroker, kafka_source: Sources, caplog: pytest.LogCaptureFixture, start: str
) -> None:
    topic = f"again-{start}"
    kafka_broker.create_topic(topic)
    first = kafka_source(kafka_broker.address, topic, group=topic)
    first.open({})
    reader = Reader(first)
    kafka_broker.produce(topic, numbers(0, 5000))
    reader.until(5000)
    first.close()
    kafka_broker.recreate_topic(topic)
    kafka_broker.produce(topic, numbers(5000, 13_000))

    again = kafka_source(kafka_broker.address, topic, group=topic, auto_offset_reset=start)
    again.open(reader.positions)
    after = Reader(again)
    after.until(8000)
    after.quiet(0.5)
    assert after.offsets[f"{topic}-0"] == [*range(8000)]
    assert after.values[f"{topic}-0"] == numbers(5000, 13_000)
    assert again.counts == SourceCounts()
    assert messages_of(caplog) == [
        f"source kafka: topic {topic}, partition 0: the topic was deleted and created again; reading "
        "continues at 0; of the old topic, 0 records are lost, as far as its end was known"
    ]
    again.close()
    assert kafka_broker.committed(topic, topic, 1) == {f"{topic}-0": 8000}
    # It is known by now: the next one goes on.
    kafka_broker.produce(topic, [b"more"])
    last = kafka_source(kafka_broker.address, topic, group=topic)
    last.open(after.positions)
    reader = Reader(last)
    reader.until(1)
    assert reader.offsets[f"{topic}-0"] == [8000]


def test_while_the_agent_has_no_room(
    kafka_broker: KafkaBroker, kafka_source: Sources, caplog: pytest.LogCaptureFixture
) -> None:
    kafka_broker.create_topic("stalled", 2)
    kafka_broker.produce("stalled", numbers(0, 5000), partition=0)
    source = kafka_source(kafka_broker.address, "stalled", group="stalled")
    source.open({})
    reader = Reader(source)
    reader.until(5000)
    kafka_broker.recreate_topic("stalled", 2)
    kafka_broker.produce("stalled", numbers(5000, 13_000), partition=0)
    wait_until(lambda: bool(source.keep_alive() or messages_of(caplog)), "it is seen")
    reader.until(13_000)
    reader.quiet(0.5)
    assert reader.offsets["stalled-0"] == [*range(5000), *range(8000)]
    assert reader.values["stalled-0"] == numbers(0, 13_000)
    assert source.counts == SourceCounts()
    assert any("stalled, partition 0" in line for line in messages_of(caplog))
    source.close()
    assert kafka_broker.committed("stalled", "stalled", 2)["stalled-0"] == 8000


def test_while_it_is_read(
    kafka_broker: KafkaBroker, kafka_source: Sources, caplog: pytest.LogCaptureFixture
) -> None:
    """Between two looks at the ids, records of the new log may be taken for the old one's, and come twice.

    librdkafka may say that the old position is gone once the new log is already read: it is told of once.
    """
    kafka_broker.create_topic("running")
    source = kafka_source(kafka_broker.address, "running", group="running", metadata_max_age_ms=500)
    source.open({})
    reader = Reader(source)
    count = 0
    for size in (300, 40, 500):
        if count:
            kafka_broker.recreate_topic("running")
        kafka_broker.produce("running", numbers(count, count + size))
        whole = numbers(count, count + size)
        while reader.values["running-0"][-size:] != whole:
            reader.until(reader.count + 1)
        assert reader.offsets["running-0"][-size:] == [*range(size)]
        count += size
    reader.quiet(0.5)
    assert source.counts == SourceCounts()
    assert not any("beyond the end" in record.getMessage() for record in caplog.records)


def test_what_of_the_old_log_was_not_read_is_counted_as_far_as_its_end_was_known(
    kafka_broker: KafkaBroker, kafka_source: Sources, caplog: pytest.LogCaptureFixture
) -> None:
    kafka_broker.create_topic("lost")
    kafka_broker.produce("lost", numbers(0, 100))
    source = kafka_source(kafka_broker.address, "lost", group="lost", max_poll_records=30)
    source.open({})
    reader = Reader(source)
    wait_until(
        lambda: reader.once() >= 0 and reader.positions.get("lost-0", {}).get("end") == 100,
        "its end is known",
    )
    at = reader.count
    source.close()
    kafka_broker.recreate_topic("lost")
    kafka_broker.produce("lost", numbers(0, 150))
    again = kafka_source(kafka_broker.address, "lost", group="lost")
    again.open(reader.positions)
    after = Reader(again)
    after.until(150)
    after.quiet(0.5)
    assert after.offsets["lost-0"] == [*range(150)]
    assert again.counts == SourceCounts(gap_records=100 - at)
    assert messages_of(caplog)[0].endswith(f"{100 - at} records are lost, as far as its end was known")


@pytest.mark.parametrize("stopped", [True, False], ids=["stopped", "reading"])
def test_with_fewer_partitions_what_was_not_read_of_the_others_is_counted_and_their_positions_go(
    kafka_broker: KafkaBroker,
    kafka_source: Sources,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    stopped: bool,
) -> None:
    # The ends are known before the last partition has been read, which takes 24 reads with pauses.
    monkeypatch.setattr(placement, "CHECK_SECONDS", 0.2)
    topic, old, new = f"fewer-{stopped}", numbers(0, 720), numbers(720, 770)
    kafka_broker.create_topic(topic, 3)
    kafka_broker.produce(topic, old, partitions=3)
    few: dict[str, Any] = {"group": topic, "max_poll_records": 10, "metadata_max_age_ms": 500}
    source = kafka_source(kafka_broker.address, topic, **few)
    source.open({})
    reader = Reader(source)

    def ends_are_known() -> bool:
        reader.once()
        return [reader.positions.get(f"{topic}-{n}", {}).get("end") for n in range(3)] == [240] * 3

    wait_until(ends_are_known, "the ends are known", pause=0.05)
    if stopped:
        source.close()
    kafka_broker.recreate_topic(topic, 1)
    kafka_broker.produce(topic, new)
    if stopped:
        source = kafka_source(kafka_broker.address, topic, **few)
        source.open(reader.positions)
        reader.source = source
    wait_until(lambda: reader.once() >= 0 and reader.positions.keys() == {f"{topic}-0"}, "two positions go")
    assert reader.values[f"{topic}-0"][-50:] == new
    reader.quiet(0.5)
    lost = {*old}.difference(*reader.values.values())
    assert lost
    assert source.counts == SourceCounts(gap_records=len(lost))
    gone = {f"topic {topic} was deleted and created again without partition {n}" for n in (1, 2)}
    assert gone == {line.split(": ")[1] for line in messages_of(caplog) if "without" in line}
    # A partition that the topic gains later is a new one.
    kafka_broker.add_partitions(topic, 2)
    kafka_broker.produce(topic, numbers(0, 20), partition=1)
    reader.until(reader.count + 20)
    assert reader.offsets[f"{topic}-1"][-20:] == [*range(20)]
    assert reader.positions[f"{topic}-1"]["at"] == 20
    assert source.counts == SourceCounts(gap_records=len(lost))


def test_a_position_of_an_older_version_is_taken_for_one_of_the_same_log(
    kafka_broker: KafkaBroker, kafka_source: Sources
) -> None:
    kafka_broker.create_topic("older")
    kafka_broker.produce("older", numbers(0, 80))
    source = kafka_source(kafka_broker.address, "older", group="older")
    source.open({"older-0": 50})
    reader = Reader(source)
    reader.until(30)
    assert reader.offsets["older-0"] == [*range(50, 80)]
    assert source.counts == SourceCounts()
    assert reader.positions["older-0"]["at"] == 80


def test_a_position_that_the_group_has_of_another_log_is_none(
    kafka_broker: KafkaBroker, kafka_source: Sources
) -> None:
    kafka_broker.create_topic("stale")
    kafka_broker.produce("stale", numbers(0, 80))
    late = KafkaConsumer(bootstrap_servers=kafka_broker.address, group_id="stale", enable_auto_commit=False)
    late.commit({TopicPartition("stale", 0): OffsetAndMetadata(60, f"began=0 log={uuid.uuid4()}", -1)})
    late.close(autocommit=False)
    source = kafka_source(kafka_broker.address, "stale", group="stale", auto_offset_reset="latest")
    source.open({})
    reader = Reader(source)
    reader.until(80)
    assert reader.offsets["stale-0"] == [*range(80)]
    assert source.counts == SourceCounts()


def test_who_wants_to_decide_alone_is_told(kafka_broker: KafkaBroker, kafka_source: Sources) -> None:
    kafka_broker.create_topic("decide")
    kafka_broker.produce("decide", numbers(0, 20))
    source = kafka_source(kafka_broker.address, "decide", group="decide", auto_offset_reset="none")
    source.open({"decide-0": {"at": 5, "log": "deleted", "end": 7}})
    with pytest.raises(SourceError) as caught:
        Reader(source).until(1)
    assert "and options.auto_offset_reset is none; set it to earliest or latest" in str(caught.value)


@pytest.fixture
def old_topic(old_kafka_broker: OldKafkaBroker, kafka_driver: str) -> str:
    """Return a topic without an id, of this test and try alone."""
    name = f"old-{kafka_driver}-{uuid.uuid4().hex[:8]}"
    old_kafka_broker.create_topic(name)
    return name


def test_without_ids_while_nobody_reads(
    old_kafka_broker: OldKafkaBroker, kafka_source: Sources, old_topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    first = kafka_source(old_kafka_broker.address, old_topic, group=old_topic)
    first.open({})
    reader = Reader(first)
    old_kafka_broker.produce(old_topic, numbers(0, 5000))
    reader.until(5000)
    first.close()
    assert reader.positions[f"{old_topic}-0"].keys() == {"at", "log", "end", "epoch", "time"}
    assert reader.positions[f"{old_topic}-0"]["log"] == ""
    old_kafka_broker.recreate_topic(old_topic)
    old_kafka_broker.produce(old_topic, numbers(5000, 13_000))

    again = kafka_source(old_kafka_broker.address, old_topic, group=old_topic, auto_offset_reset="latest")
    again.open(reader.positions)
    after = Reader(again)
    after.until(8000)
    after.quiet(0.5)
    assert after.values[f"{old_topic}-0"] == numbers(5000, 13_000)
    assert again.counts == SourceCounts()
    assert messages_of(caplog) == [
        f"source kafka: topic {old_topic}, partition 0: the topic was deleted and created again; reading "
        "continues at 0; of the old topic, 0 records are lost, as far as its end was known"
    ]
    again.close()
    assert old_kafka_broker.committed(old_topic, old_topic, 1) == {f"{old_topic}-0": 8000}


def test_without_ids_the_same_log_is_read_on_and_nothing_comes_twice(
    old_kafka_broker: OldKafkaBroker, kafka_source: Sources, old_topic: str
) -> None:
    positions: dict[str, Any] = {}
    for count in range(0, 400, 100):
        source = kafka_source(old_kafka_broker.address, old_topic, group=old_topic)
        source.open(positions)
        reader = Reader(source)
        old_kafka_broker.produce(old_topic, numbers(count, count + 50))
        reader.until(50)
        reader.quiet(1.5)  # a pause, after which the last record is looked at again
        old_kafka_broker.produce(old_topic, numbers(count + 50, count + 100))
        reader.until(100)
        reader.quiet(0.5)
        assert reader.values[f"{old_topic}-0"] == numbers(count, count + 100)
        assert source.counts == SourceCounts()
        positions = reader.positions
        source.close()


def test_without_ids_while_the_agent_has_no_room(
    old_kafka_broker: OldKafkaBroker, kafka_source: Sources, old_topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    old_kafka_broker.produce(old_topic, numbers(0, 5000))
    source = kafka_source(old_kafka_broker.address, old_topic, group=old_topic)
    source.open({})
    reader = Reader(source)
    reader.until(5000)
    old_kafka_broker.recreate_topic(old_topic)
    old_kafka_broker.produce(old_topic, numbers(5000, 13_000))
    paused = time.monotonic() + 1.5
    wait_until(lambda: source.keep_alive() or time.monotonic() > paused, "a pause of more than a second")
    reader.until(13_000)
    reader.quiet(0.5)
    assert reader.values[f"{old_topic}-0"] == numbers(0, 13_000)
    assert source.counts == SourceCounts()


def test_without_ids_a_last_record_that_retention_took_is_no_gap(
    old_kafka_broker: OldKafkaBroker, kafka_source: Sources, old_topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    old_kafka_broker.produce(old_topic, numbers(0, 100))
    source = kafka_source(old_kafka_broker.address, old_topic, group=old_topic)
    source.open({})
    reader = Reader(source)
    reader.until(100)
    source.close()
    old_kafka_broker.delete_records(old_topic, 0, 100)
    old_kafka_broker.produce(old_topic, numbers(100, 150))
    again = kafka_source(old_kafka_broker.address, old_topic, group=old_topic)
    again.open(reader.positions)
    after = Reader(again)
    after.until(50)
    after.quiet(0.5)
    assert after.values[f"{old_topic}-0"] == numbers(100, 150)
    assert again.counts == SourceCounts()
    assert messages_of(caplog) == []
