"""Brokers that let in only whom they know: reading and writing over TLS and SASL, and what refusals say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer

from connectors.build import build_lines_topic
from connectors.kafka import KafkaSource
from connectors.kafka.drivers.choice import checked_options
from connectors.kafka.drivers.connection import why_away, with_secrets
from connectors.kafka.drivers.options import consumer_options
from connectors.kafka.sink.clients import make
from connectors.kafka.sink.producer_options import producer_options, tail_options
from monitor.base.errors import BlindsightError, ConfigError, SinkError, SourceError
from monitor.config.file import resolve_paths
from monitor.config.root import Config, KafkaSink
from monitor.config.root import KafkaSourceConfig as KafkaSettings
from monitor.export.sinks.queued import QueuedSink
from monitor.export.sinks.reports_file import QUEUED_REPORTS
from tests.services.authority import Authority
from tests.services.guarded_broker import GUARDS, PASSWORD, USER, Guard, GuardedBroker, client_options
from tests.services.kafka_reading import JOIN_FAST, Reader
from tests.services.kafka_topics import read_topic
from tests.services.process import wait_until

RECORDS = [b'{"id": "%d"}' % i for i in range(50)]


@pytest.fixture
def broker(guarded_broker: GuardedBroker) -> GuardedBroker:
    return guarded_broker


@pytest.fixture
def authority(guarded_broker: GuardedBroker) -> Authority:
    return guarded_broker.authority


@pytest.fixture
def password_file(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text(PASSWORD + "\n", encoding="utf-8")
    return path


def settings(address: str, topic: str, driver: str, **options: Any) -> KafkaSettings:
    return KafkaSettings(
        kind="kafka", driver=driver, brokers=(address,), topics=(topic,), options={**JOIN_FAST, **options}
    )


@pytest.mark.parametrize("guard", GUARDS)
def test_a_topic_is_read_by_whom_the_brokers_know(
    broker: GuardedBroker, authority: Authority, password_file: Path, kafka_driver: str, guard: Guard
) -> None:
    topic = f"read-{guard}-{kafka_driver}"
    broker.create_topic(topic)
    broker.produce(topic, RECORDS)
    options = client_options(guard, authority, password_file)
    source = KafkaSource(settings(broker.guarded(guard), topic, kafka_driver, **options))
    source.open({})
    try:
        reader = Reader(source)
        reader.until(len(RECORDS))
        assert reader.values[f"{topic}-0"] == RECORDS
        wait_until(lambda: bool(reader.once(0.1) == 0 and source.up), "it is up")
    finally:
        source.close()
    assert broker.committed("blindsight", topic, 1) == {f"{topic}-0": len(RECORDS)}


@pytest.mark.parametrize("guard", GUARDS)
def test_a_topic_is_written_by_whom_the_brokers_know(
    broker: GuardedBroker, authority: Authority, password_file: Path, guard: Guard
) -> None:
    topic = f"written-{guard}"
    broker.create_topic(topic)
    options: dict[str, Any] = client_options(guard, authority, password_file)
    sink = QueuedSink(
        build_lines_topic(KafkaSink(brokers=(broker.guarded(guard),), topic=topic, options=options)),
        QUEUED_REPORTS,
        drop_oldest=True,
    )
    sink.start()
    lines = [b'{"task": "t", "model": "m", "group": "", "window": %d}' % i for i in range(5)]
    for line in lines:
        assert sink.write(line)
    try:
        wait_until(lambda: len(read_topic(broker, topic)) == len(lines), "they are written")
    finally:
        sink.close(5.0)
    assert [each.value for each in read_topic(broker, topic)] == lines


def not_let_in(settings: KafkaSettings) -> str:
    """Return the message of a source that is not let in, from an error or from the reason why it is down."""
    source = KafkaSource(settings)
    try:
        source.open({})
        for _ in range(20):
            source.read(0.1)
    except SourceError as error:
        return str(error)
    finally:
        source.close()
    return "" if source.up else "down"


def test_a_wrong_password_is_said(
    broker: GuardedBroker, authority: Authority, tmp_path: Path, kafka_driver: str
) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("another", encoding="utf-8")
    for guard in ("SASL_SSL", "SASL_PLAINTEXT"):
        options = client_options(guard, authority, wrong)
        message = not_let_in(settings(broker.guarded(guard), "any", kafka_driver, **options))
        assert "the brokers refused the login; check options.sasl_mechanism" in message
        assert "another" not in message
        sink = KafkaSink(brokers=(broker.guarded(guard),), topic="any", options=options)
        with pytest.raises(SinkError, match="the brokers refused the login; check options"):
            make(KafkaProducer, producer_options(sink, "reports.kafka"), sink)


def test_brokers_that_are_not_trusted_are_not_talked_to(
    broker: GuardedBroker,
    password_file: Path,
    tmp_path: Path,
    kafka_driver: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    other = Authority(tmp_path / "other")
    address = broker.guarded("SASL_SSL")
    options = client_options("SASL_SSL", other, password_file)
    assert not_let_in(settings(address, "any", kafka_driver, **options)) == "down"
    message = f"{address} is not trusted: unable to get local issuer certificate; see options.ssl_cafile"
    assert message in caplog.text
    sink = KafkaSink(brokers=(address,), topic="any", options=options)
    with pytest.raises(SinkError, match=r"no Kafka broker answers .*is not trusted: unable to get"):
        make(KafkaProducer, producer_options(sink, "reports.kafka"), sink)


def test_brokers_that_ask_for_a_certificate_are_told_apart(
    broker: GuardedBroker, authority: Authority, password_file: Path, kafka_driver: str
) -> None:
    address = broker.guarded("SSL")
    options = client_options("SASL_SSL", authority, password_file) | {"security_protocol": "SSL"}
    assert not_let_in(settings(address, "any", kafka_driver, **options)) == "down"
    message = f"{address} takes connections, but not as Kafka with security_protocol SSL: "
    assert why_away([address], options).startswith(message)
    known = client_options("SSL", authority, password_file)
    assert why_away([address], known) == message.removesuffix(": ")


# ── passwords in files ──


def test_files_are_read_when_a_client_is_made_and_not_before(tmp_path: Path, kafka_driver: str) -> None:
    path = tmp_path / "password"
    named = {"sasl_plain_username": USER, "sasl_plain_password_file": str(path)}
    options = checked_options(settings("one:9092", "t", kafka_driver, **named))
    with pytest.raises(SourceError) as caught:
        with_secrets(options)
    expected = f"options.sasl_plain_password_file: {path} cannot be used: No such file or directory; give a"
    assert str(caught.value).startswith(expected)
    path.write_text("one two\n", encoding="utf-8")
    assert with_secrets(options)["sasl_plain_password"] == "one two"
    path.write_text("three", encoding="utf-8")
    assert with_secrets(options)["sasl_plain_password"] == "three"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"\xff", "it is no text; give a file that holds it in UTF-8"),
        (b"\n", "it is empty, or more than one line; give a file that holds it alone"),
        (b"one\ntwo", "it is empty, or more than one line; give a file that holds it alone"),
    ],
)
def test_a_file_that_holds_no_password_is_named(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "password"
    path.write_bytes(content)
    source = KafkaSource(settings("127.0.0.1:1", "t", "kafka-python", ssl_password_file=str(path)))
    with pytest.raises(SourceError) as caught:
        source.open({})
    assert str(caught.value) == f"options.ssl_password_file: {path} cannot be used: {problem}"
    sink = KafkaSink(brokers=("127.0.0.1:1",), topic="t", options={"ssl_password_file": str(path)})
    with pytest.raises(SinkError, match=r"options\.ssl_password_file: .* cannot be used: it is"):
        build_lines_topic(sink).open()


def test_a_password_is_given_one_way_only_and_a_path_is_a_text() -> None:
    both: dict[str, Any] = {"sasl_plain_password": "secret", "sasl_plain_password_file": "p"}
    message = "options.sasl_plain_password_file: expected it or sasl_plain_password, got both: leave one out"
    with pytest.raises(ConfigError) as caught:
        consumer_options(settings("one:9092", "t", "kafka-python", **both))
    assert str(caught.value) == message
    sink = KafkaSink(brokers=("one:9092",), topic="t", options=both)
    with pytest.raises(ConfigError) as caught:
        producer_options(sink, "reports.kafka")
    assert str(caught.value) == f"reports.kafka.{message}"
    with pytest.raises(BlindsightError, match=r"options\.ssl_password_file: expected a text, got 5"):
        consumer_options(settings("one:9092", "t", "kafka-python", ssl_password_file=5))


def test_files_are_taken_from_the_folder_of_the_configuration_and_read_by_the_tail_too() -> None:
    options = {"sasl_plain_password_file": "p", "ssl_password_file": "q"}
    config = Config(
        tasks={"t": {}}, reports={"kafka": {"brokers": ["one:9092"], "topic": "w", "options": options}}
    )
    section = resolve_paths(config, "/etc").reports
    assert section is not None
    assert section.kafka is not None
    assert section.kafka.options == {"sasl_plain_password_file": "/etc/p", "ssl_password_file": "/etc/q"}
    assert tail_options(section.kafka)["sasl_plain_password_file"] == "/etc/p"
