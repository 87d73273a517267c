"""Reading topics of a real broker: every message once, untouched, from the right place."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from itertools import chain

import pytest

from connectors.kafka import KafkaSource
from connectors.kafka.drivers.unreadable import PLACEHOLDER
from monitor.base.errors import SourceError
from tests.services.kafka_broker import KafkaBroker
from tests.services.kafka_reading import Reader

Sources = Callable[..., KafkaSource]
RECORD = b'{"id": "req-%d", "task": "toxicity", "model": "erm", "scores": [0.12, 0.88]}'


def test_each_of_100_000_messages_over_6_partitions_is_read_once(
    kafka_broker: KafkaBroker, kafka_source: Sources
) -> None:
    kafka_broker.create_topic("many", 6)
    sent = [RECORD % i for i in range(100_000)]
    kafka_broker.produce("many", sent, partitions=6)
    source = kafka_source(kafka_broker.address, "many", group="many")
    source.open({})
    reader = Reader(source)
    reader.until(100_000)
    reader.quiet()
    source.close()

    assert sorted(reader.offsets) == [f"many-{n}" for n in range(6)]
    for offsets in reader.offsets.values():
        assert offsets == list(range(len(offsets)))
    assert sorted(chain.from_iterable(reader.values.values())) == sorted(sent)
    for name, values in reader.values.items():
        assert values == sent[int(name[-1]) :: 6]
    assert kafka_broker.committed("many", "many", 6) == {n: len(o) for n, o in reader.offsets.items()}


def test_a_message_passes_through_untouched_whatever_it_holds(
    kafka_broker: KafkaBroker, kafka_source: Sources
) -> None:
    kafka_broker.create_topic("forms")
    one = json.dumps({"id": "a"}).encode()
    array = json.dumps([{"id": "b"}, {"id": "c"}]).encode()
    ndjson = b'{"id": "d"}\n{"id": "e"}\n'
    broken = b"\xff\x00{"
    kafka_broker.produce("forms", [one, array, ndjson, broken, b""])
    source = kafka_source(kafka_broker.address, "forms", group="forms")
    source.open({})
    reader = Reader(source)
    reader.until(5)
    source.close()
    assert reader.values["forms-0"] == [one, array, ndjson, broken, b""]


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd", "snappy"])
def test_compressed_messages_are_read(kafka_broker: KafkaBroker, kafka_source: Sources, codec: str) -> None:
    kafka_broker.create_topic(codec)
    sent = [RECORD % i for i in range(2_000)]
    kafka_broker.produce(codec, sent, compression=codec)
    source = kafka_source(kafka_broker.address, codec, group=codec)
    source.open({})
    reader = Reader(source)
    reader.until(2_000)
    source.close()
    assert reader.values[f"{codec}-0"] == sent


@pytest.mark.parametrize("kafka_driver", ["kafka-python"], indirect=True)
def test_a_codec_that_is_not_installed_is_named_and_reading_can_go_on_once_it_is(
    kafka_broker: KafkaBroker, kafka_source: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka_broker.create_topic("codec")
    kafka_broker.produce("codec", [b"1" * 1000, b"2" * 1000], compression="lz4")
    source = kafka_source(kafka_broker.address, "codec", group="codec")
    source.open({})
    reader = Reader(source)
    with monkeypatch.context() as without:
        without.setattr("kafka.codec.lz4", None)
        without.setattr("kafka.codec.lz4f", None)
        without.setattr("kafka.codec.lz4framed", None)
        with pytest.raises(SourceError) as caught:
            reader.until(2)
    assert str(caught.value) == (
        f"Kafka at {kafka_broker.address}: Reading messages compressed with lz4, snappy or zstd "
        "needs an optional package: pip install 'blindsight[kafka-codecs]' "
        "(from a checkout: pip install '.[kafka-codecs]')"
    )
    assert not source.up
    reader.until(2)
    source.close()
    assert reader.offsets["codec-0"] == [0, 1]


def test_own_positions_hold_where_they_are_ahead_of_the_groups(
    kafka_broker: KafkaBroker, kafka_source: Sources
) -> None:
    kafka_broker.create_topic("own", 2)
    kafka_broker.produce("own", [b"%d" % i for i in range(200)], partitions=2)
    first = kafka_source(kafka_broker.address, "own", group="own")
    first.open({"own-0": 40})
    reader = Reader(first)
    reader.until(160)
    reader.quiet(0.5)
    first.close()
    assert reader.offsets == {"own-0": list(range(40, 100)), "own-1": list(range(100))}

    # The group now stands at 100 and 100: it wins over an older position of our own.
    kafka_broker.produce("own", [b"more"] * 20, partitions=2)
    again = kafka_source(kafka_broker.address, "own", group="own")
    again.open({"own-0": 7, "own-1": 105})
    reader = Reader(again)
    reader.until(15)
    reader.quiet(0.5)
    again.close()
    assert reader.offsets == {"own-0": list(range(100, 110)), "own-1": list(range(105, 110))}


def test_what_is_not_absorbed_is_not_committed(kafka_broker: KafkaBroker, kafka_source: Sources) -> None:
    kafka_broker.create_topic("unabsorbed")
    kafka_broker.produce("unabsorbed", [b"%d" % i for i in range(50)])
    source = kafka_source(kafka_broker.address, "unabsorbed", group="unabsorbed")
    source.open({})
    reader = Reader(source, absorb=False)
    reader.until(50)
    source.acknowledge({"unabsorbed-0": 30})
    source.close()
    assert kafka_broker.committed("unabsorbed", "unabsorbed", 1) == {"unabsorbed-0": 30}


def test_lag_counts_what_is_behind_the_position(kafka_broker: KafkaBroker, kafka_source: Sources) -> None:
    kafka_broker.create_topic("lag", 2)
    kafka_broker.produce("lag", [b"%d" % i for i in range(100)], partitions=2)
    source = kafka_source(kafka_broker.address, "lag", group="lag", max_poll_records=10)
    source.open({})
    assert source.lag is None
    reader = Reader(source)
    reader.until(10)
    seen = source.lag  # of a look at most a second ago: perhaps from before the first message came
    reader.until(100)
    reader.until_caught_up()
    assert seen is None or 0 < seen <= 100
    assert source.lag == 0
    source.close()
    assert source.lag is None


def test_large_messages_make_reads_of_fewer(kafka_broker: KafkaBroker, kafka_source: Sources) -> None:
    kafka_broker.create_topic("large")
    kafka_broker.produce("large", [b"x" * 500_000] * 40)
    source = kafka_source(kafka_broker.address, "large", group="large", max_partition_fetch_bytes=2 << 20)
    source.open({})
    reader = Reader(source)
    sizes = []
    while reader.count < 40:
        sizes.append(reader.once(1.0))
    source.close()
    # 4 MiB hold 8 of these; the first read cannot know how large they are.
    assert max(filter(None, sizes[sizes.index(next(filter(None, sizes))) + 1 :])) <= 8


def test_a_spoilt_batch_is_handed_on_as_unreadable_and_the_rest_is_read(
    kafka_broker: KafkaBroker, kafka_source: Sources, caplog: pytest.LogCaptureFixture
) -> None:
    kafka_broker.create_topic("spoilt", 2)
    for batch in range(5):
        values = [b'{"n": %d}' % i for i in range(100 * batch, 100 * batch + 100)]
        kafka_broker.produce("spoilt", values, partition=0)
    kafka_broker.produce("spoilt", [b"beside"] * 10, partition=1)
    log = next((kafka_broker.data / "spoilt-0").glob("*.log"))
    at = log.read_bytes().index(b'"n": 250}')
    with log.open("r+b") as file:
        file.seek(at + 5)
        file.write(b"9")

    source = kafka_source(kafka_broker.address, "spoilt", group="spoilt")
    source.open({})
    reader = Reader(source)
    with caplog.at_level(logging.ERROR, "connectors.kafka"):
        reader.until(510)
        reader.quiet(0.5)
    source.close()

    assert reader.offsets["spoilt-0"] == list(range(500))
    lost = [offset for offset in range(500) if reader.values["spoilt-0"][offset] == PLACEHOLDER]
    assert 250 in lost
    assert lost == list(range(lost[0], lost[-1] + 1))
    assert set(lost) <= set(range(200, 300))
    assert reader.values["spoilt-1"] == [b"beside"] * 10
    assert f"offsets {lost[0]} to {lost[-1]} are unreadable" in caplog.text


def test_a_transactions_markers_leave_no_lag_behind(kafka_broker: KafkaBroker, kafka_source: Sources) -> None:
    kafka_broker.create_topic("transaction")
    with kafka_broker.transaction() as producer:
        for i in range(5):
            producer.send("transaction", b"%d" % i)
    source = kafka_source(kafka_broker.address, "transaction", group="transaction")
    source.open({})
    reader = Reader(source)
    reader.until(5)
    reader.until_caught_up()
    source.close()
    assert reader.offsets["transaction-0"] == [0, 1, 2, 3, 4]
