"""Partitions and positions in confluent-kafka's words."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import TopicPartition

from connectors.kafka.drivers.base import CommittedPosition, partition_of


def name_at(place: TopicPartition) -> str:
    """``topic-3``."""
    return f"{place.topic}-{place.partition}"


def place(name: str, position: int | None = None) -> TopicPartition:
    """The partition of a name, at a position where one is given.

    Examples
    --------
    >>> found = place("page-views-3", 40)
    >>> found.topic, found.partition, found.offset
    ('page-views', 3, 40)
    """
    topic, number = partition_of(name)
    return TopicPartition(topic, number) if position is None else TopicPartition(topic, number, position)


def marked(marks: Mapping[str, CommittedPosition]) -> list[TopicPartition]:
    """What is to be committed.

    Examples
    --------
    >>> [(each.offset, each.metadata) for each in marked({"clicks-0": CommittedPosition(40, "began=7")})]
    [(40, 'began=7')]
    """
    found = []
    for name, (position, note) in marks.items():
        topic, number = partition_of(name)
        found.append(TopicPartition(topic, number, position, note))
    return found
