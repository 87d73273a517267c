"""The options of a `kafka` source as options of Spark's reader, which uses Kafka's own Java client.

Certificates and keys are passed as text, so that executors need no files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from connectors.kafka.drivers.connection import with_secrets
from connectors.kafka.drivers.options import check_files, consumer_options
from monitor.base.errors import ConfigError, SourceError
from monitor.config.root import KafkaSourceConfig

_SAME = (
    "check_crcs",
    "client_rack",
    "connections_max_idle_ms",
    "fetch_max_bytes",
    "fetch_max_wait_ms",
    "fetch_min_bytes",
    "isolation_level",
    "max_partition_fetch_bytes",
    "max_poll_records",
    "metadata_max_age_ms",
    "receive_buffer_bytes",
    "reconnect_backoff_max_ms",
    "reconnect_backoff_ms",
    "request_timeout_ms",
    "retry_backoff_ms",
    "security_protocol",
    "send_buffer_bytes",
)
"""The options that Kafka's Java client has under the same name with dots."""

_LOGIN = "org.apache.kafka.common.security"
_LOGINS: Mapping[str, str] = {
    "PLAIN": f"{_LOGIN}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_LOGIN}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_LOGIN}.scram.ScramLoginModule",
}
_SASL = ("sasl_mechanism", "sasl_plain_username", "sasl_plain_password")
_TLS = ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_password", "ssl_check_hostname")
_FILES = ("sasl_plain_password_file", "ssl_password_file")
_STARTS = ("earliest", "latest")
_ALLOWED = ("auto_offset_reset", *_SAME, *_SASL, *_TLS, *_FILES)


def reader_options(source: KafkaSourceConfig) -> dict[str, str]:
    """Return the options of Spark's reader for a source. The source's `driver` is ignored.

    Raises
    ------
    ConfigError
        An option is unknown to Spark, options contradict each other, or the file of a certificate or password
        cannot be used.

    Examples
    --------
    >>> options = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN",
    ...            "sasl_plain_username": "agent", "sasl_plain_password": "secret"}
    >>> source = KafkaSourceConfig(
    ...     kind="kafka", brokers=("b1:9092", "b2:9092"), topics=("p", "l"), options=options
    ... )
    >>> reader = reader_options(source)
    >>> reader["kafka.bootstrap.servers"], reader["subscribe"], reader["startingOffsets"]
    ('b1:9092,b2:9092', 'p,l', 'earliest')
    >>> reader["kafka.security.protocol"], reader["kafka.sasl.mechanism"]
    ('SASL_PLAINTEXT', 'PLAIN')
    """
    before = f"sources.{source.label}."
    options = _checked(source, before)
    start = options.get("auto_offset_reset", "earliest")
    if start not in _STARTS:
        raise ConfigError(
            f"{before}options.auto_offset_reset: on Spark expected one of {', '.join(_STARTS)}, got {start!r}"
        )
    reader = {
        "kafka.bootstrap.servers": ",".join(source.brokers),
        "subscribe": ",".join(source.topics),
        "startingOffsets": str(start),
    }
    reader |= {f"kafka.{_dotted(name)}": _text(options[name]) for name in _SAME if name in options}
    if source.mapping is not None and source.mapping.reads_headers:
        reader["includeHeaders"] = "true"
    return reader | _login(options, before) | _tls(options, before)


def _checked(source: KafkaSourceConfig, before: str) -> dict[str, Any]:
    """Return the checked options of the source with the passwords in files."""
    for name, value in source.options.items():
        if name not in _ALLOWED:
            got = "one" if "password" in name else repr(value)
            raise ConfigError(
                f"{before}options.{name}: not handed on to Spark, got {got}; allowed are "
                f"{', '.join(sorted(_ALLOWED))}: leave it out, or use `run` without --engine spark"
            )
    try:
        consumer_options(source)
        check_files(source.options)
        return with_secrets(source.options)
    except (ConfigError, SourceError) as error:
        raise ConfigError(f"{before}{error}") from error


def _dotted(name: str) -> str:
    return name.replace("_", ".")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _login(options: Mapping[str, Any], before: str) -> dict[str, str]:
    """Return the options of a login by name and password."""
    mechanism = options.get("sasl_mechanism")
    if mechanism is None and not str(options.get("security_protocol")).startswith("SASL"):
        return {}
    module = _LOGINS.get(mechanism or "")
    if mechanism is None or module is None:
        raise ConfigError(
            f"{before}options.sasl_mechanism: on Spark expected one of {', '.join(_LOGINS)}, got "
            f"{mechanism or 'none'}; use one of them, or `run` without --engine spark"
        )
    name, password = (
        _quoted(str(options.get(f"sasl_plain_{what}") or "")) for what in ("username", "password")
    )
    return {
        "kafka.sasl.mechanism": mechanism,
        "kafka.sasl.jaas.config": f"{module} required username={name} password={password};",
    }


def _quoted(text: str) -> str:
    r"""Return a text as a quoted value of a login's configuration.

    Examples
    --------
    >>> print(_quoted('a"b\\c'))
    "a\"b\\c"
    """
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _tls(options: Mapping[str, Any], before: str) -> dict[str, str]:
    """Return the options of TLS, with certificates and the key as PEM text."""
    tls = {}
    if "ssl_cafile" in options:
        tls["kafka.ssl.truststore.type"] = "PEM"
        tls["kafka.ssl.truststore.certificates"] = _pem(options, "ssl_cafile", before)
    if "ssl_certfile" in options or "ssl_keyfile" in options:
        tls["kafka.ssl.keystore.type"] = "PEM"
        tls["kafka.ssl.keystore.certificate.chain"] = _pem(options, "ssl_certfile", before)
        tls["kafka.ssl.keystore.key"] = _key(options, before)
    if "ssl_password" in options:
        tls["kafka.ssl.key.password"] = str(options["ssl_password"])
    if options.get("ssl_check_hostname") is False:
        tls["kafka.ssl.endpoint.identification.algorithm"] = ""
    return tls


def _pem(options: Mapping[str, Any], name: str, before: str) -> str:
    if name not in options:
        raise ConfigError(
            f"{before}options.{name}: expected a file, as ssl_certfile and ssl_keyfile go together, got "
            "none; add it, or leave out the other"
        )
    try:
        return Path(options[name]).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not in PEM"
        raise ConfigError(
            f"{before}options.{name}: {options[name]} cannot be used: {why}; give a readable file in PEM"
        ) from error


def _key(options: Mapping[str, Any], before: str) -> str:
    text = _pem(options, "ssl_keyfile", before)
    if re.search(r"-----BEGIN (ENCRYPTED )?PRIVATE KEY-----", text) is None:
        raise ConfigError(
            f"{before}options.ssl_keyfile: expected a key in PKCS #8 (BEGIN PRIVATE KEY), as Kafka's Java "
            f"client reads no other, got {options['ssl_keyfile']}; convert it: openssl pkcs8 -topk8"
        )
    return text
