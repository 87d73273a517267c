"""The options that a configuration may set for Kafka, and the errors for those that it may not."""

from __future__ import annotations

from typing import Any

import pytest
from kafka import KafkaConsumer

from connectors.kafka import KafkaSource
from connectors.kafka.drivers.options import CHOICES, DEFAULTS, REFUSED, consumer_options
from monitor.base.errors import ConfigError, SourceError
from monitor.config.root import KafkaSourceConfig as KafkaSettings


def settings(**changes: Any) -> KafkaSettings:
    return KafkaSettings(**{"kind": "kafka", "brokers": ("one:9092",), "topics": ("clicks",), **changes})


def test_what_is_configured_reaches_the_consumer() -> None:
    options = consumer_options(
        settings(
            brokers=("one:9092", "[::1]:9093", "two"),
            group="team",
            options={
                "client_id": "me",
                "security_protocol": "PLAINTEXT",
                "ssl_cafile": "ca.pem",
                "check_crcs": False,
            },
        )
    )
    assert options == {
        **DEFAULTS,
        "bootstrap_servers": ["one:9092", "[::1]:9093", "two"],
        "group_id": "team",
        "enable_auto_commit": False,
        "client_id": "me",
        "security_protocol": "PLAINTEXT",
        "ssl_cafile": "ca.pem",
        "check_crcs": False,
    }


def test_partitions_that_a_topic_gains_are_looked_for_twice_a_minute() -> None:
    assert consumer_options(settings())["metadata_max_age_ms"] == 30_000
    assert consumer_options(settings(options={"metadata_max_age_ms": 5000}))["metadata_max_age_ms"] == 5000


def test_reading_starts_at_the_earliest_record_unless_told_otherwise() -> None:
    assert consumer_options(settings())["auto_offset_reset"] == "earliest"
    assert (
        consumer_options(settings(options={"auto_offset_reset": "latest"}))["auto_offset_reset"] == "latest"
    )


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        (
            "security_protcol",
            "SSL",
            "options.security_protcol: not an option of kafka-python's KafkaConsumer; "
            "did you mean security_protocol?",
        ),
        ("zzz", 1, "options.zzz: not an option of kafka-python's KafkaConsumer"),
        ("group_id", "x", "options.group_id: cannot be set here: write it as `group` of the source"),
        (
            "enable_auto_commit",
            True,
            "options.enable_auto_commit: cannot be set here: Blindsight commits positions itself, "
            "once their records have been used",
        ),
        (
            "ssl_context",
            "x",
            "options.ssl_context: cannot be set here: it takes a Python object, "
            "which a configuration cannot hold",
        ),
        ("fetch_max_wait_ms", "500", "options.fetch_max_wait_ms: expected a whole number, got '500'"),
        ("fetch_max_wait_ms", True, "options.fetch_max_wait_ms: expected a whole number, got True"),
        ("check_crcs", "yes", "options.check_crcs: expected true or false, got 'yes'"),
        ("sasl_plain_password", 12345, "options.sasl_plain_password: expected a text, got something else"),
        ("ssl_cafile", 5, "options.ssl_cafile: expected a text, got 5"),
        (
            "security_protocol",
            "TLS",
            "options.security_protocol: expected one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL, got 'TLS'",
        ),
    ],
)
def test_an_option_that_cannot_be_is_refused_in_one_sentence(
    option: str, value: object, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        consumer_options(settings(options={option: value}))
    assert str(caught.value) == message


@pytest.mark.parametrize("broker", ["one two:9092", "one:port", "one:9092:9092", "http://one:9092"])
def test_a_broker_that_is_no_address_is_refused(broker: str) -> None:
    with pytest.raises(ConfigError) as caught:
        consumer_options(settings(brokers=(broker,)))
    assert str(caught.value) == f"brokers: expected host:port, got {broker!r}"


@pytest.mark.parametrize("topic", ["a b", "..", "a/b", "ü"])
def test_a_topic_that_cannot_be_one_is_refused(topic: str) -> None:
    with pytest.raises(ConfigError) as caught:
        consumer_options(settings(topics=(topic,)))
    assert str(caught.value) == (
        f"topics: expected 1 to 249 letters, digits, dots, underscores or hyphens, got {topic!r}"
    )


def test_every_name_in_our_tables_is_an_option_of_kafka_python() -> None:
    assert set(REFUSED) | set(CHOICES) | set(DEFAULTS) <= set(KafkaConsumer.DEFAULT_CONFIG)
    assert not set(REFUSED) & set(DEFAULTS)


def test_every_option_that_is_not_refused_takes_its_own_default() -> None:
    for option, default in KafkaConsumer.DEFAULT_CONFIG.items():
        if option not in REFUSED and default is not None:
            assert consumer_options(settings(options={option: default}))[option] == default


def test_a_certificate_that_is_not_there_is_named_when_the_source_opens() -> None:
    source = KafkaSource(settings(options={"security_protocol": "SSL", "ssl_cafile": "no/such/ca.pem"}))
    with pytest.raises(SourceError) as caught:
        source.open({})
    assert str(caught.value) == "options.ssl_cafile: there is no file no/such/ca.pem; correct the path"


def test_a_source_is_refused_when_it_is_made_not_when_it_opens() -> None:
    with pytest.raises(ConfigError, match="did you mean client_id"):
        KafkaSource(settings(options={"clientid": "me"}))
