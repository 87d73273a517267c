"""Translation of a source's options to properties of librdkafka, with checks before any client is created."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from connectors.kafka.drivers.connection import SECRET_FILES
from monitor.base.errors import ConfigError, MissingExtraError
from monitor.config.root import KafkaSourceConfig as KafkaSettings

PROPERTIES: dict[str, str] = {
    "check_crcs": "check.crcs",
    "client_id": "client.id",
    "client_rack": "client.rack",
    "connections_max_idle_ms": "connections.max.idle.ms",
    "fetch_max_bytes": "fetch.max.bytes",
    "fetch_max_wait_ms": "fetch.wait.max.ms",
    "fetch_min_bytes": "fetch.min.bytes",
    "group_instance_id": "group.instance.id",
    "heartbeat_interval_ms": "heartbeat.interval.ms",
    "isolation_level": "isolation.level",
    "max_partition_fetch_bytes": "max.partition.fetch.bytes",
    "max_poll_interval_ms": "max.poll.interval.ms",
    "metadata_max_age_ms": "topic.metadata.refresh.interval.ms",
    "receive_buffer_bytes": "socket.receive.buffer.bytes",
    "reconnect_backoff_max_ms": "reconnect.backoff.max.ms",
    "reconnect_backoff_ms": "reconnect.backoff.ms",
    "request_timeout_ms": "socket.timeout.ms",
    "sasl_kerberos_service_name": "sasl.kerberos.service.name",
    "sasl_mechanism": "sasl.mechanism",
    "sasl_plain_password": "sasl.password",
    "sasl_plain_username": "sasl.username",
    "security_protocol": "security.protocol",
    "send_buffer_bytes": "socket.send.buffer.bytes",
    "session_timeout_ms": "session.timeout.ms",
    "ssl_cafile": "ssl.ca.location",
    "ssl_certfile": "ssl.certificate.location",
    "ssl_check_hostname": "ssl.endpoint.identification.algorithm",
    "ssl_ciphers": "ssl.cipher.suites",
    "ssl_crlfile": "ssl.crl.location",
    "ssl_keyfile": "ssl.key.location",
    "ssl_password": "ssl.key.password",
}
"""The options of kafka-python, each with the name of librdkafka's property."""

OURS = ("auto_offset_reset", "max_poll_records", "bootstrap_timeout_ms")
"""The options that the source itself uses, or that librdkafka does not need."""

_TWINS = {**{dotted: ours for ours, dotted in PROPERTIES.items()}, "auto.offset.reset": "auto_offset_reset"}

_COMMITS = "Blindsight commits positions itself, once their records have been used"
_SHARES = "a partition must be put back with all others for positions to be set"

REFUSED: dict[str, str] = {
    "bootstrap.servers": "write it as `brokers` of the source",
    "metadata.broker.list": "write it as `brokers` of the source",
    "group.id": "write it as `group` of the source",
    "enable.auto.commit": _COMMITS,
    "auto.commit.interval.ms": _COMMITS,
    "enable.auto.offset.store": _COMMITS,
    "enable.partition.eof": "Blindsight needs to hear of the ends of logs",
    "statistics.interval.ms": "Blindsight hears from it once a second whether brokers are connected",
    "allow.auto.create.topics": "Blindsight only reads, so it never makes a topic",
    "partition.assignment.strategy": _SHARES,
    "group.protocol": _SHARES,
}
"""The properties of librdkafka that a configuration cannot set, each with the reason."""


def native_options(settings: KafkaSettings, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return librdkafka's properties for a source.

    Parameters
    ----------
    settings : KafkaSettings
        The configuration of the source.
    options : mapping of str to object
        The result of `options.consumer_options` for the source.

    Raises
    ------
    ConfigError
        librdkafka has no property for an option of kafka-python. Or a configured property is unknown to
        librdkafka, has a value that librdkafka refuses, must not be configured, or must be configured under
        kafka-python's name for it.
    MissingExtraError
        confluent-kafka is not installed.

    Examples
    --------
    >>> settings = KafkaSettings(kind="kafka", driver="confluent", brokers=("one:9092", "two:9092"),
    ...                          topics=("clicks",), options={"fetch_min_bytes": 1000})
    >>> properties = native_options(settings, settings.options)
    >>> properties["bootstrap.servers"], properties["fetch.min.bytes"], properties["enable.auto.commit"]
    ('one:9092,two:9092', 1000, False)
    """
    own = {key: value for key, value in settings.options.items() if "." in key}
    for key in settings.options:
        if "." not in key and key not in {*PROPERTIES, *OURS, *SECRET_FILES}:
            raise ConfigError(
                f"options.{key}: librdkafka has nothing like it; leave it out, or set driver: kafka-python"
            )
    for key in own:
        if key in _TWINS:
            raise ConfigError(f"options.{key}: write it as {_TWINS[key]}, for both drivers")
        if key in REFUSED:
            raise ConfigError(f"options.{key}: cannot be set here: {REFUSED[key]}")
    _check(own)
    named = {PROPERTIES[key]: _value(key, value) for key, value in options.items() if key in PROPERTIES}
    return {
        "check.crcs": True,  # kafka-python's default, and not librdkafka's
        **own,
        **named,
        "bootstrap.servers": ",".join(settings.brokers),
        "group.id": settings.group,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",  # every position is set by `placement`
        "enable.partition.eof": True,
        "statistics.interval.ms": 1000,
        "allow.auto.create.topics": False,
        "log.connection.close": False,
    }


def _value(key: str, value: object) -> object:
    if key == "ssl_check_hostname":
        return "https" if value else "none"
    return value


def _check(own: Mapping[str, object]) -> None:
    """Check the names and values of properties with librdkafka, on a consumer without brokers.

    Raises
    ------
    ConfigError
        librdkafka refuses a property.
    MissingExtraError
        confluent-kafka is not installed.
    """
    try:
        from confluent_kafka import Consumer, KafkaException
    except ImportError as error:
        raise MissingExtraError("Reading Kafka with driver: confluent", "kafka-native") from error
    for key, value in own.items():
        try:
            Consumer({"group.id": "check", key: value}).close()
        except (KafkaException, TypeError, ValueError) as error:
            reason = error.args[0].str() if isinstance(error, KafkaException) else error
            raise ConfigError(f"options.{key}: librdkafka refuses it: {str(reason).strip()}") from error
