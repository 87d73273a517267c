"""The choice of the client library with which a source reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from connectors.kafka.drivers.base import Driver
from connectors.kafka.drivers.connection import with_secrets
from connectors.kafka.drivers.options import consumer_options
from connectors.kafka.drivers.python import PythonDriver
from monitor.config.root import KafkaSourceConfig as KafkaSettings


def checked_options(settings: KafkaSettings) -> dict[str, Any]:
    """Check the options of a source for its driver, and return them under the names of kafka-python.

    Raises
    ------
    ConfigError
        See `options.consumer_options` and `native_options.native_options`.
    MissingExtraError
        The driver's package is not installed.
    """
    options = consumer_options(settings)
    if settings.driver == "confluent":
        from connectors.kafka.drivers.native_options import native_options

        native_options(settings, options)
    return options


def make_driver(settings: KafkaSettings, options: Mapping[str, Any]) -> Driver:
    """Return a new, unconnected driver of the client library that the source names.

    The driver returns the headers of messages if the source's mapping reads headers. Without a mapping, the
    driver returns headers if any message of a partition has them.

    Parameters
    ----------
    settings : KafkaSettings
    options : mapping of str to object
        The result of `checked_options`.

    Raises
    ------
    SourceError
        The file of a password cannot be read.
    """
    options = with_secrets(options)
    if settings.driver == "confluent":
        from connectors.kafka.drivers.native import NativeDriver
        from connectors.kafka.drivers.native_options import native_options

        driver: Driver = NativeDriver(native_options(settings, options), settings.topics)
    else:
        driver = PythonDriver(options)
    driver.with_headers = settings.mapping is not None and settings.mapping.reads_headers
    driver.with_any_headers = settings.mapping is None
    return driver
