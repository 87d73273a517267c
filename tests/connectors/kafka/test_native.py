"""`driver: confluent`: what a configuration may say of it, its errors, and both libraries in one group."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import KafkaError as NativeError
from kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka import errors as kafka_errors

from connectors.kafka import KafkaSource
from connectors.kafka.drivers import native
from connectors.kafka.drivers.base import CommittedPosition, RebalanceListener
from connectors.kafka.drivers.choice import checked_options
from connectors.kafka.drivers.errors import explain, is_transient
from connectors.kafka.drivers.native import NativeDriver, native_partition, translated
from connectors.kafka.drivers.native_options import OURS, PROPERTIES, REFUSED, native_options
from connectors.kafka.drivers.options import DEFAULTS
from connectors.kafka.drivers.options import REFUSED as REFUSED_ANYWAY
from monitor.base.errors import ConfigError, MissingExtraError
from monitor.base.source import SourceCounts
from monitor.config.root import KafkaSourceConfig as KafkaSettings
from tests.services.kafka_broker import KafkaBroker
from tests.services.kafka_reading import Worker, make_source
from tests.services.process import DRIVERS, PATIENCE_SECONDS, wait_until

CODES = [getattr(NativeError, name) for name in dir(NativeError) if name.isupper()]


def settings(**options: Any) -> KafkaSettings:
    return KafkaSettings(
        kind="kafka", driver="confluent", brokers=("one:9092", "two"), topics=("clicks",), options=options
    )


def properties(**options: Any) -> dict[str, Any]:
    section = settings(**options)
    return native_options(section, checked_options(section))


def test_options_are_written_alike_for_both_drivers() -> None:
    written = properties(
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-256",
        sasl_plain_username="me",
        sasl_plain_password="secret",
        ssl_cafile="ca.pem",
        ssl_check_hostname=False,
        metadata_max_age_ms=5000,
        auto_offset_reset="latest",
    )
    assert written == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "me",
        "sasl.password": "secret",
        "ssl.ca.location": "ca.pem",
        "ssl.endpoint.identification.algorithm": "none",
        "topic.metadata.refresh.interval.ms": 5000,
        "client.id": DEFAULTS["client_id"],
        "fetch.max.bytes": DEFAULTS["fetch_max_bytes"],
        "max.partition.fetch.bytes": DEFAULTS["max_partition_fetch_bytes"],
        "isolation.level": "read_committed",
        "reconnect.backoff.max.ms": DEFAULTS["reconnect_backoff_max_ms"],
        "bootstrap.servers": "one:9092,two",
        "group.id": "blindsight",
        "check.crcs": True,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "statistics.interval.ms": 1000,
        "allow.auto.create.topics": False,
        "log.connection.close": False,
    }


def test_librdkafkas_own_properties_are_passed_through() -> None:
    assert properties(**{"queued.max.messages.kbytes": 4096})["queued.max.messages.kbytes"] == 4096


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        (
            "fetch.max.bytes",
            1,
            "options.fetch.max.bytes: write it as fetch_max_bytes, for both drivers",
        ),
        (
            "auto.offset.reset",
            "latest",
            "options.auto.offset.reset: write it as auto_offset_reset, for both drivers",
        ),
        ("group.id", "x", "options.group.id: cannot be set here: write it as `group` of the source"),
        (
            "enable_incremental_fetch_sessions",
            True,
            "options.enable_incremental_fetch_sessions: librdkafka has nothing like it; leave it out, or set "
            "driver: kafka-python",
        ),
        (
            "queued.max.messages",
            1,
            'options.queued.max.messages: librdkafka refuses it: No such configuration property: "queued.max'
            '.messages"',
        ),
        (
            "queued.min.messages",
            "many",
            "options.queued.min.messages: librdkafka refuses it: Invalid value for configuration property "
            '"queued.min.messages"',
        ),
        ("check_crcs", "yes", "options.check_crcs: expected true or false, got 'yes'"),
    ],
)
def test_an_option_that_cannot_be_is_refused_before_anything_starts(
    option: str, value: object, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        KafkaSource(settings(**{option: value}))
    assert str(caught.value) == message


def test_dots_are_no_part_of_an_option_of_kafka_python() -> None:
    plain = settings(**{"queued.min.messages": 5}).model_copy(update={"driver": "kafka-python"})
    with pytest.raises(ConfigError, match="not an option of kafka-python's KafkaConsumer"):
        KafkaSource(plain)


def unknown(name: str) -> bool:
    try:
        Consumer({"group.id": "check", name: "?"}).close()
    except KafkaException as error:
        return "No such configuration property" in str(error)
    return False


def test_librdkafka_knows_every_property_in_our_tables() -> None:
    assert unknown("no.such")
    assert [name for name in (*PROPERTIES.values(), *REFUSED) if unknown(name)] == []
    assert set(PROPERTIES) | set(OURS) <= set(KafkaConsumer.DEFAULT_CONFIG)
    assert not set(PROPERTIES) & set(REFUSED_ANYWAY)


def test_without_confluent_kafka_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(MissingExtraError) as caught:
        KafkaSource(settings())
    assert str(caught.value) == (
        "Reading Kafka with driver: confluent needs an optional package: pip install "
        "'blindsight[kafka-native]' (from a checkout: pip install '.[kafka-native]')"
    )


def test_each_error_of_librdkafka_has_a_sentence() -> None:
    assert len(CODES) > 100
    for code in CODES:
        error = translated(NativeError(code, "as it is"))
        assert isinstance(error, kafka_errors.KafkaError), code
        assert "as it is" in str(explain(error, ["one:9092"])) or isinstance(
            error, kafka_errors.UnsupportedCodecError
        ), code


def test_what_ends_by_itself_passes_and_what_a_person_must_mend_does_not() -> None:
    for code in (
        NativeError._TRANSPORT,
        NativeError._ALL_BROKERS_DOWN,
        NativeError._TIMED_OUT,
        NativeError._MAX_POLL_EXCEEDED,
        NativeError.NOT_LEADER_FOR_PARTITION,
        NativeError.REBALANCE_IN_PROGRESS,
    ):
        assert is_transient(translated(NativeError(code))), code
    for code in (
        NativeError._AUTHENTICATION,
        NativeError._FATAL,
        NativeError.TOPIC_AUTHORIZATION_FAILED,
        NativeError.GROUP_AUTHORIZATION_FAILED,
        NativeError.FENCED_INSTANCE_ID,
    ):
        assert not is_transient(translated(NativeError(code))), code


class Leaving(RebalanceListener):
    """A source that has a last position to commit."""

    def __init__(self) -> None:
        self.errors: list[Exception | None] = []

    def on_assigned(self, names: set[str]) -> None:
        """Do nothing."""

    def on_revoke(self, names: set[str]) -> Iterator[None]:
        """Hold nothing back."""
        return iter(())

    def last_marks(self, names: set[str]) -> dict[str, CommittedPosition]:
        """Return one position for each partition."""
        return dict.fromkeys(names, CommittedPosition(40, ""))

    def on_committed(self, marks: Mapping[str, CommittedPosition], error: Exception | None) -> None:
        """Keep the error."""
        self.errors.append(error)

    def on_lost(self, names: set[str]) -> None:
        """Do nothing."""


def test_a_last_commit_that_nobody_answers_ends_before_the_group_gives_the_member_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A commit of librdkafka that waits does so for a coordinator for as long as a session."""
    monkeypatch.setattr(native, "LAST_COMMIT_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        driver = NativeDriver({"bootstrap.servers": address, "group.id": "silent"}, ["clicks"])
        driver._listener = listener = Leaving()
        began = time.monotonic()
        driver._on_revoke(driver._consumer, [native_partition("clicks-0")])
        assert time.monotonic() - began < 20
        driver.close(0.5)
    [error] = listener.errors
    assert isinstance(error, kafka_errors.KafkaTimeoutError)


def test_one_group_may_hold_both_libraries_while_agents_are_moved_over(kafka_broker: KafkaBroker) -> None:
    kafka_broker.create_topic("mixed", 4)
    workers = [
        Worker(make_source(kafka_broker.address, "mixed", driver=driver, group="mixed", max_poll_records=50))
        for driver in DRIVERS
    ]
    sent = 0
    for worker in workers:
        worker.start()
        wait_until(lambda worker=worker: worker.source.up, "it is up")
        kafka_broker.produce("mixed", [b"%d" % i for i in range(sent, sent + 2_000)], partitions=4)
        sent += 2_000
    wait_until(lambda: sum(worker.reader.count for worker in workers) >= sent, "all is read")
    workers[0].finish()
    kafka_broker.produce("mixed", [b"%d" % i for i in range(sent, sent + 2_000)], partitions=4)
    sent += 2_000
    wait_until(lambda: sum(worker.reader.count for worker in workers) >= sent, "all is read")
    workers[1].finish()
    every = [int(v) for w in workers for values in w.reader.values.values() for v in values]
    assert sorted(every) == list(range(sent))
    assert workers[1].reader.count > 2_000, "it shared, and then had all"
    assert [worker.source.counts for worker in workers] == [SourceCounts()] * 2


def test_the_end_behind_a_transactions_marker_is_reached_with_the_last_messages(
    kafka_broker: KafkaBroker,
) -> None:
    kafka_broker.create_topic("transacted", 1)
    producer = Producer({"bootstrap.servers": kafka_broker.address, "transactional.id": "writer"})
    producer.init_transactions(PATIENCE_SECONDS)
    producer.begin_transaction()
    for i in range(3):
        producer.produce("transacted", b"%d" % i)
    producer.commit_transaction(PATIENCE_SECONDS)
    options = settings_at(kafka_broker.address)
    driver = NativeDriver(native_options(options, checked_options(options)), ["transacted"])
    driver.assign({"transacted-0": 0})
    polled = driver.poll(0.0, 100)
    time.sleep(2)  # most often the messages and the event behind them are then there at once
    end = driver.ends(["transacted-0"], "latest", PATIENCE_SECONDS)["transacted-0"]
    wait_until(
        lambda: polled.extend(driver.poll(1.0, 100)) or driver.position("transacted-0") == end, "its end"
    )
    assert [offset for part in polled for offset in part.offsets] == [0, 1, 2]
    assert end == 4
    driver.close(5)


def test_a_note_of_any_length_is_read_whatever_memory_held_behind_it(kafka_broker: KafkaBroker) -> None:
    """confluent-kafka alone reads on behind a note, and raises for one in ten of these."""
    kafka_broker.create_topic("notes", 90)
    group = KafkaConsumer(bootstrap_servers=kafka_broker.address, group_id="blindsight")
    places = {TopicPartition("notes", n): OffsetAndMetadata(n, "a" * n, -1) for n in range(8, 90)}
    group.commit(places)
    group.close(autocommit=False)
    options = settings_at(kafka_broker.address)
    driver = NativeDriver(native_options(options, checked_options(options)), ["notes"])
    for n in [*range(8, 90)] * 3:
        committed = driver.committed_positions([f"notes-{n}"], PATIENCE_SECONDS).get(f"notes-{n}")
        assert committed is not None
        assert (committed.position, committed.note[:n]) == (n, "a" * n)
    driver.close(5)


def settings_at(address: str) -> KafkaSettings:
    return KafkaSettings(kind="kafka", driver="confluent", brokers=(address,), topics=("transacted",))
