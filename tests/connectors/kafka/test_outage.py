"""Brokers and topics that are away: the source waits, says so, and loses nothing."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from unittest.mock import Mock

import pytest
from kafka.coordinator.consumer import ConsumerCoordinator
from kafka.errors import KafkaError

from connectors.kafka import KafkaSource
from connectors.kafka.drivers.connection import why_away
from tests.services.kafka_broker import KafkaBroker
from tests.services.kafka_reading import Reader
from tests.services.process import wait_until

Sources = Callable[..., KafkaSource]
Brokers = Callable[[], KafkaBroker]
SAYS_SECONDS = 30.0
"""A source must say within this time that it cannot read all."""

PROMPT_SECONDS = 20.0
"""Well above the two seconds that anything waits for brokers, and below the half minute of the libraries."""


def test_a_broker_that_is_not_there_is_waited_for(
    new_kafka_broker: Brokers, kafka_source: Sources, caplog: pytest.LogCaptureFixture
) -> None:
    broker = new_kafka_broker()
    source = kafka_source(broker.address, "late", group="late", client_id="late-client")
    began = time.monotonic()
    source.open({"late-0": 3})
    assert time.monotonic() - began < PROMPT_SECONDS
    assert source.read(0.1) == []
    source.keep_alive()
    assert not source.up
    assert source.lag is None
    ours = [r.getMessage() for r in caplog.records if r.name.startswith("connectors.")]
    reason = f"{broker.address}: Connection refused"
    assert ours == [f"source kafka: no Kafka broker answers ({reason}); trying again until one does"]

    broker.start()
    broker.create_topic("late")
    broker.produce("late", [b"%d" % i for i in range(10)])
    reader = Reader(source)
    reader.until_up()
    reader.until(7)
    assert reader.offsets["late-0"] == list(range(3, 10))


def test_a_broker_killed_and_started_again_in_mid_stream_loses_and_doubles_nothing(
    new_kafka_broker: Brokers, kafka_source: Sources, caplog: pytest.LogCaptureFixture
) -> None:
    broker = new_kafka_broker()
    broker.start()
    broker.create_topic("killed", 3)
    broker.produce("killed", [b"%d" % i for i in range(30_000)], partitions=3)
    source = kafka_source(broker.address, "killed", group="killed", max_poll_records=500)
    source.open({})
    reader = Reader(source)
    reader.until(3_000)
    assert source.up

    broker.kill()
    wait_until(lambda: reader.once() >= 0 and not source.up, "it is not up without a broker")
    began = time.monotonic()
    reader.source.keep_alive()
    reader.once(0.3)
    assert time.monotonic() - began < PROMPT_SECONDS

    broker.start()
    broker.produce("killed", [b"%d" % i for i in range(30_000, 60_000)], partitions=3)
    reader.until(60_000)
    reader.until_up()
    reader.quiet()
    source.close()
    assert reader.offsets == {f"killed-{n}": list(range(20_000)) for n in range(3)}
    assert broker.committed("killed", "killed", 3) == {f"killed-{n}": 20_000 for n in range(3)}
    away = [r.getMessage() for r in caplog.records if "no Kafka broker answers" in r.getMessage()]
    # A broker that starts may take a connection and hang up: then it is told once more, with this reason.
    assert [("takes connections" in each) for each in away] in ([False], [False, True])


def test_a_broker_that_is_silent_is_not_asked_without_a_pause(
    new_kafka_broker: Brokers, kafka_source: Sources
) -> None:
    broker = new_kafka_broker()
    broker.start()
    broker.create_topic("silent")
    source = kafka_source(broker.address, "silent", group="silent")
    source.open({})
    reader = Reader(source)
    reader.until_up()
    with broker.frozen():
        busy, deadline = time.thread_time(), time.monotonic() + 4
        while time.monotonic() < deadline:
            reader.once(0.5)
        busy = time.thread_time() - busy
    # kafka-python's own poll keeps a core busy: 3.6 s of 4.
    assert busy < 1.5
    broker.produce("silent", [b"1"])
    reader.until(1)


def test_closing_without_a_broker_takes_seconds_and_says_what_was_not_committed(
    new_kafka_broker: Brokers, kafka_source: Sources, caplog: pytest.LogCaptureFixture
) -> None:
    broker = new_kafka_broker()
    broker.start()
    broker.create_topic("gone")
    broker.produce("gone", [b"1", b"2"])
    source = kafka_source(broker.address, "gone", group="gone")
    source.open({})
    reader = Reader(source, absorb=False)
    reader.until(2)
    broker.kill()
    source.acknowledge({"gone-0": 2})
    began = time.monotonic()
    source.close()
    assert time.monotonic() - began < PROMPT_SECONDS
    assert not source.up
    assert "could not commit the last positions of gone-0" in caplog.text


def test_closing_while_no_broker_ever_answered_is_quick(
    new_kafka_broker: Brokers, kafka_source: Sources
) -> None:
    source = kafka_source(new_kafka_broker().address, "never", group="never")
    source.open({})
    began = time.monotonic()
    source.close()
    source.close()
    assert time.monotonic() - began < PROMPT_SECONDS


def test_a_consumer_that_cannot_leave_its_group_leaves_no_thread(
    kafka_broker: KafkaBroker, kafka_source: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka_broker.create_topic("stays")
    source = kafka_source(kafka_broker.address, "stays", group="stays", driver="kafka-python")
    before = {*threading.enumerate()}
    source.open({})
    Reader(source).until_up()
    assert {*threading.enumerate()} - before
    with monkeypatch.context() as patched:
        patched.setattr(ConsumerCoordinator, "close", Mock(side_effect=KafkaError("no")))
        source.close()
    wait_until(lambda: not {*threading.enumerate()} - before, "its threads have ended")


def test_a_topic_that_does_not_exist_is_waited_for_and_not_made(
    kafka_broker: KafkaBroker, kafka_source: Sources, caplog: pytest.LogCaptureFixture
) -> None:
    kafka_broker.create_topic("there")
    source = kafka_source(kafka_broker.address, "there", "not-yet", group="not-yet")
    source.open({})
    reader = Reader(source)

    def warnings_told() -> list[str]:
        records = [r for r in caplog.records if r.levelno >= logging.WARNING and "connectors" in r.name]
        return [record.getMessage() for record in records]

    # What is there is read meanwhile.
    wait_until(lambda: reader.once() == 0 and source.up and warnings_told(), "it waits for the other topic")
    reader.quiet(3.0)
    assert warnings_told() == ["source kafka: topic not-yet does not exist yet; waiting for it"]
    assert source.up
    assert "not-yet" not in kafka_broker.topics()

    kafka_broker.create_topic("not-yet")
    kafka_broker.produce("not-yet", [b"1", b"2"])
    kafka_broker.produce("there", [b"3"])
    reader.until(3)
    assert reader.values == {"not-yet-0": [b"1", b"2"], "there-0": [b"3"]}


def test_a_deleted_topic_is_named_within_30_s_and_read_again_once_it_is_created(
    kafka_broker: KafkaBroker, kafka_source: Sources, kafka_driver: str, caplog: pytest.LogCaptureFixture
) -> None:
    kept, deleted = f"kept-{kafka_driver}", f"deleted-{kafka_driver}"
    for topic in (kept, deleted):
        kafka_broker.create_topic(topic)
        kafka_broker.produce(topic, [b"%d" % i for i in range(5)])
    both = kafka_source(kafka_broker.address, kept, deleted, group=f"both-{deleted}")
    alone = kafka_source(kafka_broker.address, deleted, group=f"alone-{deleted}", max_poll_records=2)
    readers = [Reader(both), Reader(alone)]
    for reader in readers:
        reader.source.open({})
    wait_until(
        lambda: (
            _each_reads(readers)
            and min(r.positions.get(f"{deleted}-0", {}).get("at", 0) for r in readers) == 5
        ),
        "all came",
    )
    wait_until(lambda: _each_reads(readers) and both.up and alone.up, "both are up")

    kafka_broker.delete_topic(deleted)
    began, message = (
        time.monotonic(),
        f"topic {deleted} was deleted; create it again, or take it out of `topics`",
    )
    wait_until(lambda: _each_reads(readers) and both.trouble == alone.trouble == message, "it is told")
    assert time.monotonic() - began < SAYS_SECONDS
    assert not both.up
    assert not alone.up
    alone.close()
    restarted = kafka_source(kafka_broker.address, deleted, group=f"alone-{deleted}")
    position = readers[1].positions[f"{deleted}-0"] | {"end": 8}  # three more were known, and not read
    restarted.open({f"{deleted}-0": position})
    readers[1] = Reader(restarted)
    wait_until(
        lambda: _each_reads(readers) and restarted.trouble == message, "it is told after a restart too"
    )

    kafka_broker.produce(kept, [b"more"])
    wait_until(
        lambda: _each_reads(readers) and readers[0].values[f"{kept}-0"][-1] == b"more", "the other is read"
    )
    kafka_broker.create_topic(deleted)
    kafka_broker.produce(deleted, [b"again"])
    for reader in readers:
        wait_until(
            lambda reader=reader: (
                _each_reads(readers) and reader.values[f"{deleted}-0"][-1:] == [b"again"] and reader.source.up
            ),
            "it is read again",
        )
        assert reader.source.trouble is None
    assert (both.counts.gap_records, restarted.counts.gap_records) == (0, 3)
    errors = [
        each.getMessage()
        for each in caplog.records
        if each.levelno == logging.ERROR and "connectors" in each.name
    ]
    assert errors == [f"source kafka: {message}"] * 3


def _each_reads(readers: list[Reader]) -> bool:
    for reader in readers:
        reader.once(0.05)
    return True


def test_only_a_topic_that_does_not_exist_is_not_up(kafka_broker: KafkaBroker, kafka_source: Sources) -> None:
    source = kafka_source(kafka_broker.address, "misspelt", group="misspelt")
    source.open({})
    reader = Reader(source)
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline:
        reader.once()
        assert not source.up
    assert source.lag is None


def test_a_server_that_is_no_kafka_is_told_from_one_that_is_not_there(kafka_broker: KafkaBroker) -> None:
    tls = {"security_protocol": "SSL"}
    assert why_away([kafka_broker.address, "no-such-host.invalid"], {}) == (
        f"{kafka_broker.address} takes connections, but not as Kafka with security_protocol PLAINTEXT; "
        + why_away(["no-such-host.invalid:9092"], tls).replace(":9092", "")
    )
    message = f"{kafka_broker.address} takes connections, but not as Kafka with security_protocol SSL: "
    assert why_away([kafka_broker.address], tls).startswith(message)


def test_a_wrong_security_protocol_is_not_up_and_says_so(
    kafka_broker: KafkaBroker, kafka_source: Sources, caplog: pytest.LogCaptureFixture
) -> None:
    source = kafka_source(kafka_broker.address, "tls", group="tls", security_protocol="SSL")
    source.open({})
    source.read(0.2)
    assert not source.up
    assert (
        f"{kafka_broker.address} takes connections, but not as Kafka with security_protocol SSL"
        in caplog.text
    )
