"""Special records of a topic besides plain messages: both libraries read, reject and report the same.

Topics that are created again have a file of their own, `test_recreated.py`.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kafka import KafkaProducer

from connectors.formats.decode.decoder import Decoder
from connectors.kafka import KafkaSource
from monitor.base.records import RejectReason, TaskLayout
from monitor.base.source import RawMessages, SourceCounts
from tests.services.kafka_broker import KafkaBroker
from tests.services.kafka_reading import Reader
from tests.services.process import PATIENCE_SECONDS, wait_until

Sources = Callable[..., KafkaSource]
MIB = 1 << 20


def numbers(first: int, after: int) -> list[bytes]:
    return [b"%d" % i for i in range(first, after)]


@contextmanager
def open_transaction(broker: KafkaBroker, topic: str, values: list[bytes]) -> Iterator[Any]:
    """Yield a producer whose transaction the brokers hold these values of; it is to be committed or
    aborted.
    """
    producer = KafkaProducer(bootstrap_servers=broker.address, transactional_id=uuid.uuid4().hex)
    try:
        producer.init_transactions()
        producer.begin_transaction()
        for value in values:
            producer.send(topic, value, partition=0)
        producer.flush(timeout=PATIENCE_SECONDS)
        yield producer
    finally:
        producer.close()


def until_lag(reader: Reader, lag: int) -> None:
    """Read until the source tells this lag."""
    wait_until(lambda: reader.once() >= 0 and reader.source.lag == lag, f"the lag is {lag}")


def test_only_what_is_committed_is_read_and_a_marker_is_no_record(
    kafka_broker: KafkaBroker, kafka_source: Sources
) -> None:
    kafka_broker.create_topic("committed")
    with kafka_broker.transaction() as producer:
        for value in numbers(0, 400):
            producer.send("committed", value)
    for _ in range(2):
        with open_transaction(kafka_broker, "committed", [b"aborted"] * 400) as aborted:
            aborted.abort_transaction()
    source = kafka_source(kafka_broker.address, "committed", group="committed")
    source.open({})
    reader = Reader(source)
    reader.until(400)
    until_lag(reader, 0)
    # Behind the aborted ones, and the three markers, it goes on.
    kafka_broker.produce("committed", numbers(400, 410))
    reader.until(410)
    reader.quiet(0.5)
    assert reader.values["committed-0"] == numbers(0, 410)
    assert reader.offsets["committed-0"] == [*range(400), *range(1203, 1213)]
    assert source.counts == SourceCounts()
    source.close()
    assert kafka_broker.committed("committed", "committed", 1) == {"committed-0": 1213}


def test_who_asks_for_it_reads_what_is_not_committed_too(
    kafka_broker: KafkaBroker, kafka_source: Sources
) -> None:
    kafka_broker.create_topic("uncommitted")
    with open_transaction(kafka_broker, "uncommitted", numbers(0, 5)) as producer:
        source = kafka_source(
            kafka_broker.address, "uncommitted", group="uncommitted", isolation_level="read_uncommitted"
        )
        source.open({})
        reader = Reader(source)
        reader.until(5)
        producer.abort_transaction()
    assert reader.values["uncommitted-0"] == numbers(0, 5)


def test_what_waits_behind_an_open_transaction_is_lag_and_no_stall(
    kafka_broker: KafkaBroker, kafka_source: Sources
) -> None:
    kafka_broker.create_topic("open")
    kafka_broker.produce("open", numbers(0, 10))
    source = kafka_source(kafka_broker.address, "open", group="open", stall_seconds=2)
    source.open({})
    reader = Reader(source)
    reader.until(10)
    until_lag(reader, 0)
    with open_transaction(kafka_broker, "open", numbers(10, 40)) as producer:
        for i in range(40, 48):  # each look at the lag is a second after the one before
            kafka_broker.produce("open", [b"%d" % i])
            until_lag(reader, i - 9)
            assert (reader.count, source.up, source.trouble) == (10, True, None)
        producer.commit_transaction()
    reader.until(48)
    until_lag(reader, 0)
    assert reader.values["open-0"] == numbers(0, 48)
    assert source.counts == SourceCounts()


def test_a_message_without_a_value_is_handed_on_empty(
    kafka_broker: KafkaBroker, kafka_source: Sources
) -> None:
    kafka_broker.create_topic("tombstones")
    kafka_broker.produce("tombstones", [b"1", None, b"3", None])
    source = kafka_source(kafka_broker.address, "tombstones", group="tombstones")
    source.open({})
    reader = Reader(source)
    reader.until(4)
    source.close()
    assert reader.values["tombstones-0"] == [b"1", b"", b"3", b""]
    assert kafka_broker.committed("tombstones", "tombstones", 1) == {"tombstones-0": 4}


def test_what_compaction_removed_is_no_gap(kafka_broker: KafkaBroker, kafka_source: Sources) -> None:
    """All messages have one key, so the newest of a closed segment is left, and what came after it."""
    kafka_broker.create_topic(
        "compacted",
        **{"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.001"},
    )
    kafka_broker.produce("compacted", numbers(0, 100))
    log = kafka_broker.data / "compacted-0"
    before = sum(path.stat().st_size for path in log.glob("*.log"))

    def cleaned() -> bool:
        kafka_broker.produce("compacted", [b"more"])  # a segment is closed when something comes
        first = log / f"{0:020d}.log"
        return not first.exists() or first.stat().st_size < before / 2

    wait_until(cleaned, "the log is compacted", pause=0.5)
    source = kafka_source(kafka_broker.address, "compacted", group="compacted")
    source.open({"compacted-0": 10})
    reader = Reader(source)
    kafka_broker.produce("compacted", [b"last"])
    while b"last" not in reader.values["compacted-0"]:
        reader.until(reader.count + 1)
    until_lag(reader, 0)
    assert reader.offsets["compacted-0"][0] >= 99
    assert source.counts == SourceCounts()


@pytest.mark.parametrize("codec", [None, "gzip", "lz4", "zstd", "snappy"])
def test_a_record_that_is_too_large_is_rejected_and_counted(
    kafka_broker: KafkaBroker, kafka_source: Sources, codec: str | None
) -> None:
    topic = f"too-large-{codec}"
    kafka_broker.create_topic(topic, **{"max.message.bytes": str(32 * MIB)})
    record = {"id": "a", "task": "t", "model": "m", "scores": [0.25, 0.75]}
    sent = [json.dumps({**record, "more": "x" * size}).encode() for size in (1, 20 * MIB, 2, 2 * MIB, 3)]
    producer = KafkaProducer(
        bootstrap_servers=kafka_broker.address, max_request_size=32 * MIB, compression_type=codec
    )
    for value in sent:
        producer.send(topic, value, partition=0).get(PATIENCE_SECONDS)
    producer.close()
    source = kafka_source(kafka_broker.address, topic, group=topic)
    source.open({})
    decoder = Decoder([TaskLayout("t", ("no", "yes"))], "kafka")
    answers, rejects = 0, []
    while answers < len(sent):
        for raw in source.read(0.2):
            assert isinstance(raw, RawMessages)
            chunk = decoder.decode([raw])
            answers += chunk.answers
            rejects += chunk.rejects
            source.acknowledge({raw.partition: raw.after})
    assert rejects[0].position == 1
    assert {reject.reason for reject in rejects} == {RejectReason.TOO_LARGE}
    # Beyond 16 MiB of rejects in one read, one stands for all that follow of its kind.
    assert sum(reject.records for reject in rejects) == 2
    assert f"a record of {len(sent[1])} bytes; at most {MIB} are read" in rejects[0].message
    source.close()
    assert kafka_broker.committed(topic, topic, 1) == {f"{topic}-0": 5}
