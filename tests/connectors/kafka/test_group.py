"""Several sources in one consumer group: partitions move, and nothing is lost or doubled."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from connectors.kafka import KafkaSource
from connectors.kafka.source import membership
from tests.services.kafka_broker import KafkaBroker
from tests.services.kafka_reading import Reader, Worker
from tests.services.process import Driver, wait_until

Sources = Callable[..., KafkaSource]


def test_two_sources_share_the_partitions_and_one_takes_over_without_loss_or_double(
    kafka_broker: KafkaBroker, kafka_source: Sources
) -> None:
    kafka_broker.create_topic("shared", 4)
    first, second = (
        Worker(kafka_source(kafka_broker.address, "shared", group="pair", max_poll_records=200))
        for _ in range(2)
    )
    kafka_broker.produce("shared", [b"%d" % i for i in range(20_000)], partitions=4)
    first.start()
    wait_until(lambda: first.reader.count > 1000, "the first reads")
    second.start()
    wait_until(lambda: second.source.up, "the second is up")
    kafka_broker.produce("shared", [b"%d" % i for i in range(20_000, 40_000)], partitions=4)
    wait_until(lambda: first.reader.count + second.reader.count >= 40_000, "both have read what came")
    assert second.reader.count > 0
    first.finish()
    kafka_broker.produce("shared", [b"%d" % i for i in range(40_000, 60_000)], partitions=4)
    wait_until(lambda: first.reader.count + second.reader.count >= 60_000, "the second reads the rest")
    second.finish()

    every = [int(v) for w in (first, second) for values in w.reader.values.values() for v in values]
    assert len(every) == 60_000
    assert sorted(every) == list(range(60_000))
    assert kafka_broker.committed("pair", "shared", 4) == {f"shared-{n}": 15_000 for n in range(4)}


def test_a_partition_is_handed_over_only_when_what_was_read_is_absorbed(
    kafka_broker: KafkaBroker, kafka_source: Sources
) -> None:
    kafka_broker.create_topic("drain", 2)
    kafka_broker.produce("drain", [b"%d" % i for i in range(100)], partitions=2)
    first = kafka_source(kafka_broker.address, "drain", group="drain")
    first.open({})
    slow = Reader(first, absorb=False)
    slow.until(100)
    second = Worker(kafka_source(kafka_broker.address, "drain", group="drain"))
    second.start()

    absorb = threading.Timer(2.0, lambda: first.acknowledge({"drain-0": 50, "drain-1": 50}))
    absorb.start()
    wait_until(lambda: slow.once() == 0 and second.source.up, "the second has its partitions")
    second.finish()
    first.close()
    absorb.join()
    assert second.reader.count == 0


def test_a_source_that_never_absorbs_gives_the_partition_up_after_a_time_and_says_so(
    kafka_broker: KafkaBroker,
    kafka_source: Sources,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(membership, "DRAIN_SECONDS", 0.5)
    kafka_broker.create_topic("stuck", 1)
    kafka_broker.produce("stuck", [b"%d" % i for i in range(10)])
    first = kafka_source(kafka_broker.address, "stuck", group="stuck")
    first.open({})
    stuck = Reader(first, absorb=False)
    stuck.until(10)
    second = Worker(kafka_source(kafka_broker.address, "stuck", group="stuck"))
    second.start()
    wait_until(lambda: stuck.once() == 0 and second.source.up, "the partition is taken from the first")
    first.close()
    wait_until(lambda: second.reader.count == 10, "the second reads it all")
    second.finish()
    assert "Kafka revokes stuck-0, and some of their records are still unused after 0.5 s" in caplog.text


def test_keep_alive_holds_the_membership_while_nothing_is_read(
    kafka_broker: KafkaBroker, kafka_source: Sources
) -> None:
    kafka_broker.create_topic("alive", 2)
    # librdkafka wants a session to be no longer than that.
    options = {"max_poll_interval_ms": 6000, "session_timeout_ms": 6000}
    source = kafka_source(kafka_broker.address, "alive", group="alive", **options)
    source.open({})
    reader = Reader(source)
    reader.until_up()
    kafka_broker.produce("alive", [b"%d" % i for i in range(100)], partitions=2)
    before = kafka_broker.members("alive")
    deadline = time.monotonic() + 9
    while time.monotonic() < deadline:
        source.keep_alive()
        assert source.up
        time.sleep(0.2)
    reader.until(100)
    # Without keep_alive the group is left after six seconds, and joined anew by the next read.
    assert kafka_broker.members("alive") == before
    source.close()
    assert reader.offsets == {"alive-0": list(range(50)), "alive-1": list(range(50))}


def test_keep_alive_lets_another_source_in_and_reads_nothing(
    kafka_broker: KafkaBroker, kafka_source: Sources
) -> None:
    kafka_broker.create_topic("let-in", 2)
    source = kafka_source(kafka_broker.address, "let-in", group="let-in")
    source.open({})
    reader = Reader(source)
    reader.until_up()
    second = Worker(kafka_source(kafka_broker.address, "let-in", group="let-in"))
    second.start()
    wait_until(lambda: source.keep_alive() or second.source.up, "the second has a partition")
    kafka_broker.produce("let-in", [b"%d" % i for i in range(100)], partitions=2)
    wait_until(lambda: second.reader.count == 50, "it reads its half")
    reader.until(50)
    source.close()
    second.finish()
    assert sorted([*reader.offsets, *second.reader.offsets]) == ["let-in-0", "let-in-1"]


def test_a_named_member_that_replaces_one_that_joined_before_the_topic_reads_it(
    kafka_driver: Driver,
    kafka_broker: KafkaBroker,
    kafka_source: Sources,
) -> None:
    """Brokers hand it the empty share of its predecessor, and nobody divides the partitions again."""
    named = {"group": "named", "group_instance_id": "the-one"}
    before = kafka_source(kafka_broker.address, "late-for-named", **named)
    before.open({})
    if kafka_driver == "confluent":
        # It joins no group before there is something to share out; then it would throw the other out.
        before.close()
    else:
        joining = Reader(before)
        wait_until(lambda: joining.once() == 0 and bool(kafka_broker.members("named")), "it has joined")
    kafka_broker.create_topic("late-for-named", 2)
    kafka_broker.produce("late-for-named", [b"1"] * 10, partitions=2)
    after = kafka_source(kafka_broker.address, "late-for-named", **named)
    after.open({})
    Reader(after).until(10)
