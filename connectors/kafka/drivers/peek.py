"""Reading of the newest messages of topics, outside of the consumer group.

Nothing is committed, and the members of the group are not affected.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import islice

from connectors.formats.wires.cloudevents import Headers
from connectors.kafka.drivers.base import Driver
from connectors.kafka.drivers.choice import checked_options, make_driver
from connectors.kafka.drivers.connection import why_away
from connectors.kafka.drivers.errors import explain
from monitor.base.errors import BlindsightError, SourceError
from monitor.base.source import RawMessages
from monitor.config.root import KafkaSourceConfig as KafkaSettings

_SECONDS = 10.0


def peek(settings: KafkaSettings, records: int) -> list[RawMessages]:
    """Return about `records` of the newest messages, from all partitions of the topics.

    Parameters
    ----------
    settings : KafkaSourceConfig
    records : int
        The number of messages, divided equally among the partitions that have messages. Each of these
        partitions contributes at least one message.

    Raises
    ------
    SourceError
        The brokers do not answer within ten seconds, or refuse access.
    ConfigError
        The options cannot be used.
    """
    options = {**checked_options(settings), "group_id": None}
    driver = make_driver(settings, options)
    driver.with_headers = True  # even if the mapping needs none: they show which mapping would fit
    try:
        if not driver.connect(_SECONDS):
            why = why_away(settings.brokers, options)
            raise SourceError(f"Kafka at {', '.join(settings.brokers)}: no Kafka broker answers ({why})")
        return _newest(driver, settings, records)
    except BlindsightError:
        raise
    except Exception as error:
        raise explain(error, settings.brokers) from error
    finally:
        driver.close(_SECONDS)


def _newest(driver: Driver, settings: KafkaSettings, records: int) -> list[RawMessages]:
    names = [
        f"{topic}-{number}" for topic in settings.topics for number in sorted(driver.partitions_of(topic))
    ]
    if not names:
        return []
    first, last = driver.ends(names, "earliest", _SECONDS), driver.ends(names, "latest", _SECONDS)
    filled = [name for name in names if name in first and last.get(name, 0) > first[name]]
    if not filled:
        return []
    per_partition = max(records // len(filled), 1)
    driver.assign({name: max(first[name], last[name] - per_partition) for name in filled})
    by_partition: dict[str, dict[int, tuple[bytes, Headers]]] = {name: {} for name in filled}
    deadline = time.monotonic() + _SECONDS
    while time.monotonic() < deadline and any((driver.position(name) or 0) < last[name] for name in filled):
        for part in driver.poll(0.2, records):
            headers = [()] * len(part.values) if part.headers is None else part.headers
            messages = zip((value or b"" for value in part.values), headers, strict=True)
            by_partition[part.partition].update(zip(part.offsets, messages, strict=True))
    return [
        _raw(name, dict(islice(messages.items(), per_partition)))
        for name, messages in by_partition.items()
        if messages
    ]


def _raw(name: str, messages: Mapping[int, tuple[bytes, Headers]]) -> RawMessages:
    values, headers = zip(*messages.values(), strict=True)
    return RawMessages(values, name, list(messages), headers=headers)
