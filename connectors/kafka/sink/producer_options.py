"""Checks of the configured options of kafka-python's producer, and the options that Blindsight sets."""

from __future__ import annotations

from typing import Any

from kafka import KafkaConsumer, KafkaProducer

from connectors.kafka.drivers.connection import SECRET_FILES
from connectors.kafka.drivers.options import OBJECTS, REFUSED, check_brokers, check_option, check_secrets
from monitor.config.root import KafkaSink

_ONCE = "Blindsight sets it, so that nothing is lost and nothing comes twice"
_ENCODES = "Blindsight encodes the messages itself"

PRODUCER_REFUSED: dict[str, str] = {
    **OBJECTS,
    "bootstrap_servers": "write it as `brokers` beside",
    **dict.fromkeys(
        (
            "acks",
            "delivery_timeout_ms",
            "enable_idempotence",
            "max_in_flight_requests_per_connection",
            "retries",
            "transaction_timeout_ms",
            "transactional_id",
        ),
        _ONCE,
    ),
    "key_serializer": _ENCODES,
    "value_serializer": _ENCODES,
    "partitioner": "it takes a Python object; the key names the series, so that its windows keep their order",
    "max_block_ms": "Blindsight waits in a thread of its own",
    "allow_auto_create_topics": "Blindsight never makes a topic: a misspelt name would go unnoticed",
    "socks5_proxy": "it is called `proxy_url` now",
}
"""The options of kafka-python's producer that a configuration cannot set, each with the reason."""

PRODUCER_DEFAULTS: dict[str, Any] = {
    "client_id": "blindsight",
    # The windows of several models and groups close at the same time, and fit into one request.
    "linger_ms": 5,
    "batch_size": 1 << 18,
    # kafka-python's default of 30 s would delay the sink for this time after a broker has returned.
    "reconnect_backoff_max_ms": 1000,
    "metadata_max_age_ms": 30_000,
    "bootstrap_timeout_ms": 3000,
}
"""The options for which Blindsight has other defaults than kafka-python, with these defaults."""

_OURS: dict[str, Any] = {
    "acks": "all",
    "enable_idempotence": True,
    "max_block_ms": 3000,
    # A batch that the producer gives up may still arrive. A batch that it repeats without end, under the
    # same number, arrives once.
    "delivery_timeout_ms": 2**31 - 1,
    "allow_auto_create_topics": False,
}


def producer_options(settings: KafkaSink, setting: str) -> dict[str, Any]:
    """Check the options of a sink, and return the keyword arguments of `kafka.KafkaProducer`.

    Parameters
    ----------
    settings : KafkaSink
        The configuration of the sink.
    setting : str
        The path of the section in the configuration, for messages.

    Raises
    ------
    ConfigError
        kafka-python does not know an option (the message names the most similar one), Blindsight sets the
        option itself, a value has the wrong type, a password is set both as a text and as a file, or the
        address of a broker is not valid.

    Examples
    --------
    >>> settings = KafkaSink(brokers=("broker:9092",), topic="windows", options={"compression_type": "gzip"})
    >>> arguments = producer_options(settings, "reports.kafka")
    >>> arguments["acks"], arguments["enable_idempotence"], arguments["compression_type"]
    ('all', True, 'gzip')
    """
    before = f"{setting}."
    check_brokers(settings.brokers, before)
    known = KafkaProducer.DEFAULT_CONFIG
    for key, value in settings.options.items():
        check_option(key, value, known, PRODUCER_REFUSED, "KafkaProducer", before)
    check_secrets(settings.options, before)
    return {
        **PRODUCER_DEFAULTS,
        **settings.options,
        **_OURS,
        "bootstrap_servers": list(settings.brokers),
    }


def tail_options(settings: KafkaSink) -> dict[str, Any]:
    """Return the keyword arguments of the `kafka.KafkaConsumer` that reads the end of a sink's topic.

    Examples
    --------
    >>> settings = KafkaSink(brokers=("broker:9092",), topic="windows", options={"linger_ms": 1})
    >>> "linger_ms" in tail_options(settings), tail_options(settings)["group_id"]
    (False, None)
    """
    shared = {**PRODUCER_DEFAULTS, **settings.options}
    known = {
        key: value
        for key, value in shared.items()
        if key in SECRET_FILES or (key in KafkaConsumer.DEFAULT_CONFIG and key not in REFUSED)
    }
    return {
        **known,
        "bootstrap_servers": list(settings.brokers),
        "group_id": None,
        "enable_auto_commit": False,
        "fetch_max_bytes": 16 << 20,
        "max_poll_records": 5000,
    }
