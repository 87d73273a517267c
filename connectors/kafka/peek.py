"""The newest messages of topics, looked at from outside the group: nothing committed, nobody rebalanced."""

from __future__ import annotations

import time

from kafka import KafkaConsumer, TopicPartition

from connectors.base import RawMessages
from connectors.kafka.errors import explain
from connectors.kafka.options import consumer_options
from monitor.config import KafkaSource as KafkaSettings

_SECONDS = 10.0


def peek(settings: KafkaSettings, records: int) -> list[RawMessages]:
    """About so many of the newest messages, spread over the partitions of the topics.

    Parameters
    ----------
    settings : monitor.config.KafkaSource
    records : int
        At most so many, and at least one a partition that holds any.

    Raises
    ------
    SourceError
        The brokers do not answer within ten seconds, or refuse us.
    ConfigError
        The options cannot be used.
    """
    options = {**consumer_options(settings), "group_id": None, "enable_auto_commit": False}
    try:
        consumer = KafkaConsumer(**options)
        try:
            return _newest(consumer, settings, records)
        finally:
            consumer.close()
    except Exception as error:
        raise explain(error, settings.brokers) from error


def _newest(consumer: KafkaConsumer, settings: KafkaSettings, records: int) -> list[RawMessages]:
    places = [
        TopicPartition(topic, number)
        for topic in settings.topics
        for number in sorted(consumer.partitions_for_topic(topic) or ())
    ]
    if not places:
        return []
    first, last = consumer.beginning_offsets(places), consumer.end_offsets(places)
    filled = [place for place in places if last[place] > first[place]]
    each = max(records // max(len(filled), 1), 1)
    consumer.assign(filled)
    for place in filled:
        consumer.seek(place, max(first[place], last[place] - each))
    found: dict[TopicPartition, dict[int, bytes]] = {place: {} for place in filled}
    deadline = time.monotonic() + _SECONDS
    waiting = set(filled)
    while waiting and time.monotonic() < deadline:
        for place, messages in consumer.poll(timeout_ms=200).items():
            found[place].update({each.offset: each.value or b"" for each in messages})
        waiting = {place for place in waiting if consumer.position(place) < last[place]}
    return [
        RawMessages(list(values.values())[:each], f"{place.topic}-{place.partition}", list(values)[:each])
        for place, values in found.items()
        if values
    ]
