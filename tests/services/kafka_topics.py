"""Reading a topic from its start to its end, to see what a sink has written."""

from __future__ import annotations

from dataclasses import dataclass

from kafka import KafkaConsumer, TopicPartition

from tests.services.kafka_broker import KafkaBroker


@dataclass(frozen=True, slots=True)
class Written:
    """One message."""

    partition: int
    key: bytes | None
    value: bytes
    headers: dict[str, bytes]
    milliseconds: int


def read_topic(broker: KafkaBroker, topic: str) -> list[Written]:
    """Return everything in a topic, partition by partition."""
    consumer = KafkaConsumer(
        bootstrap_servers=broker.address,
        group_id=None,
        enable_auto_commit=False,
        allow_auto_create_topics=False,
    )
    try:
        places = [TopicPartition(topic, n) for n in sorted(consumer.partitions_for_topic(topic) or ())]
        ends = consumer.end_offsets(places)
        consumer.assign(places)
        consumer.seek_to_beginning(*places)
        messages: list[Written] = []
        while any(consumer.position(place) < ends[place] for place in places):
            for records in consumer.poll(timeout_ms=500).values():
                messages += [
                    Written(r.partition, r.key, r.value, dict(r.headers), r.timestamp) for r in records
                ]
        return sorted(messages, key=lambda each: each.partition)
    finally:
        consumer.close(autocommit=False)
