"""Checks of the options that a configuration passes to kafka-python, before any client is created."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kafka import KafkaConsumer

from connectors.kafka.drivers.connection import SECRET_FILES, with_secrets
from monitor.base.errors import ConfigError, SourceError
from monitor.config.root import KafkaSourceConfig as KafkaSettings

_OBJECT = "it takes a Python object, which a configuration cannot hold"

OBJECTS: dict[str, str] = dict.fromkeys(
    (
        "api_version",
        "kafka_client",
        "metric_reporters",
        "sasl_oauth_token_provider",
        "selector",
        "socket_options",
        "ssl_context",
    ),
    _OBJECT,
)
"""The options of all clients of kafka-python that a configuration cannot set, each with the reason."""

_COMMITS = "Blindsight commits positions itself, once their records have been used"
_DECODES = "Blindsight decodes the messages itself"
_POLLS = "it only ends iteration, and Blindsight polls"

REFUSED: dict[str, str] = {
    "bootstrap_servers": "write it as `brokers` of the source",
    "group_id": "write it as `group` of the source",
    "enable_auto_commit": _COMMITS,
    "auto_commit_interval_ms": _COMMITS,
    "default_offset_commit_callback": _COMMITS,
    "key_deserializer": _DECODES,
    "value_deserializer": _DECODES,
    "consumer_timeout_ms": _POLLS,
    "allow_auto_create_topics": "Blindsight only reads, so it never makes a topic",
    "socks5_proxy": "it is called `proxy_url` now",
    **dict.fromkeys((*OBJECTS, "partition_assignment_strategy"), _OBJECT),
}
"""The options of kafka-python's consumer that a configuration cannot set, each with the reason."""

CHOICES: dict[str, tuple[str, ...]] = {
    "auto_offset_reset": ("earliest", "latest", "none"),
    "isolation_level": ("read_uncommitted", "read_committed"),
    "security_protocol": ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    "sasl_mechanism": ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "AWS_MSK_IAM"),
}
"""The allowed values of the options that have a fixed set of values."""

COMPRESSIONS = ("gzip", "snappy", "lz4", "zstd")
"""The compressions that a producer may use; all but the first need the extra `kafka-codecs`."""

DEFAULTS: dict[str, Any] = {
    "client_id": "blindsight",
    "auto_offset_reset": "earliest",
    # kafka-python's default also reads records of transactions that are aborted later.
    "isolation_level": "read_committed",
    # kafka-python's default (1 MiB for each partition) halves the rate of reading small messages.
    "fetch_max_bytes": 64 << 20,
    "max_partition_fetch_bytes": 16 << 20,
    # kafka-python's default of 30 s would delay reading for this time after a broker has returned.
    "reconnect_backoff_max_ms": 1000,
    "max_poll_records": 20_000,
    # kafka-python's default of five minutes would delay reading of a partition that is added to a topic.
    "metadata_max_age_ms": 30_000,
    # The limit of one attempt to reach any broker; attempts follow each other until one succeeds.
    "bootstrap_timeout_ms": 15_000,
}
"""The options for which Blindsight has other defaults than kafka-python, with these defaults."""

_WHOLE_OR_NONE = ("receive_buffer_bytes", "send_buffer_bytes")
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_BROKER = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s:,/\[\]]+)(:\d{1,5})?")


def consumer_options(settings: KafkaSettings) -> dict[str, Any]:
    """Check the options of a source, and return the keyword arguments of `kafka.KafkaConsumer`.

    Parameters
    ----------
    settings : KafkaSettings
        The configuration of the source.

    Returns
    -------
    dict of str to object
        Blindsight's defaults, replaced by the configured `options`, with the brokers and the group.

    Raises
    ------
    ConfigError
        kafka-python does not know an option (the message names the most similar one), a configuration must
        not set the option, a value has the wrong type, a password is set both as a text and as a file, or the
        name of a broker or topic is not valid.

    Examples
    --------
    >>> settings = KafkaSettings(kind="kafka", brokers=("broker:9092",), topics=("predictions",),
    ...                          options={"security_protocol": "SSL"})
    >>> arguments = consumer_options(settings)
    >>> arguments["security_protocol"], arguments["group_id"], arguments["enable_auto_commit"]
    ('SSL', 'blindsight', False)
    """
    check_brokers(settings.brokers)
    for topic in settings.topics:
        if not _TOPIC.fullmatch(topic) or topic in {".", ".."}:
            raise ConfigError(
                f"topics: expected 1 to 249 letters, digits, dots, underscores or hyphens, got {topic!r}"
            )
    for key, value in settings.options.items():
        if settings.driver == "confluent" and "." in key:
            continue  # a property of librdkafka, which `native_options` checks
        check_option(key, value, KafkaConsumer.DEFAULT_CONFIG, REFUSED, "KafkaConsumer")
    check_secrets(settings.options)
    return {
        **DEFAULTS,
        **settings.options,
        "bootstrap_servers": list(settings.brokers),
        "group_id": settings.group,
        "enable_auto_commit": False,
    }


def check_files(options: Mapping[str, Any]) -> None:
    """Check that the files of certificates and passwords exist.

    If a file is missing, a client would only try to connect again and again.

    Raises
    ------
    SourceError
        A file is missing, or a password file holds no password.
    """
    for key in ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_crlfile"):
        path = options.get(key)
        if path is not None and not Path(path).is_file():
            raise SourceError(f"options.{key}: there is no file {path}; correct the path")
    with_secrets(options)


def check_secrets(options: Mapping[str, Any], before: str = "") -> None:
    """Raise ConfigError if a password is set both as a text and as a file.

    Parameters
    ----------
    options : mapping of str to object
    before : str
        The path of the section in the configuration, with a dot at its end, for the message.
    """
    for file, plain in SECRET_FILES.items():
        if file in options and plain in options:
            raise ConfigError(f"{before}options.{file}: expected it or {plain}, got both: leave one out")


def check_brokers(brokers: Sequence[str], before: str = "") -> None:
    """Raise ConfigError if a broker is not a valid address.

    Parameters
    ----------
    brokers : sequence of str
    before : str
        The path of the section in the configuration, with a dot at its end, for the message.
    """
    for broker in brokers:
        if not _BROKER.fullmatch(broker):
            raise ConfigError(f"{before}brokers: expected host:port, got {broker!r}")


def check_option(
    key: str,
    value: object,
    known: Mapping[str, Any],
    refused: Mapping[str, str],
    client: str,
    before: str = "",
) -> None:
    """Raise ConfigError if an option cannot be passed to kafka-python.

    Parameters
    ----------
    key : str
        The name of the option.
    value : object
        The configured value.
    known : mapping of str to object
        The options of the client, with their defaults.
    refused : mapping of str to str
        The options that a configuration cannot set, each with the reason.
    client : str
        The class of the client, for the message.
    before : str
        The path of the section in the configuration, with a dot at its end, for the message.
    """
    name = f"{before}options.{key}"
    if key in refused:
        raise ConfigError(f"{name}: cannot be set here: {refused[key]}")
    if key in SECRET_FILES:
        known = {**known, key: None}
    if key not in known:
        near = difflib.get_close_matches(key, [k for k in known if k not in refused], n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ConfigError(f"{name}: not an option of kafka-python's {client}{hint}")
    got = "something else" if "password" in key and key not in SECRET_FILES else repr(value)
    wanted = _expected_type(key, known[key])
    choices = {**CHOICES, "compression_type": COMPRESSIONS}.get(key)
    if choices and value not in choices:
        raise ConfigError(f"{name}: expected one of {', '.join(choices)}, got {got}")
    if not _has_type(value, wanted):
        raise ConfigError(f"{name}: expected {wanted}, got {got}")


def _expected_type(key: str, default: object) -> str:
    if key in _WHOLE_OR_NONE:
        return "a whole number"
    if isinstance(default, bool):
        return "true or false"
    if isinstance(default, int):
        return "a whole number"
    return "a text"


def _has_type(value: object, wanted: str) -> bool:
    if wanted == "true or false":
        return isinstance(value, bool)
    if wanted == "a whole number":
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, str)
