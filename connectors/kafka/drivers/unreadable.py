"""Skipping of record batches that are damaged on a broker's disk.

A batch is the unit in which brokers store records and compute checksums. A client cannot read past a batch
that fails its checksum. The driver returns a placeholder for each record of the batch and continues after it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import CorruptRecordError

from connectors.kafka.drivers.base import Polled, name_of

PLACEHOLDER = b"(unreadable in Kafka: its batch fails the checksum)"
"""The value that replaces each lost message; it is not JSON, so that the decoder rejects it."""

PROBE_SECONDS = 5.0
"""The time limit for the answer to one fetch during the search for the end of a batch, in seconds."""

_WHERE = re.compile(r"TopicPartition\(topic='(.+)', partition=(\d+)\) at offset (\d+)")


def damaged_batch_of(error: CorruptRecordError) -> tuple[TopicPartition, int] | None:
    """Return the partition and first offset of the batch that an error names, or None."""
    match = _WHERE.search(str(error))
    if match is None:
        return None
    return TopicPartition(match[1], int(match[2])), int(match[3])


def skip_damaged_batch(consumer: KafkaConsumer, error: CorruptRecordError) -> Polled | None:
    """Move a consumer of kafka-python past a damaged batch, and return placeholders for the batch's messages.

    Parameters
    ----------
    consumer : KafkaConsumer
        No other code may poll the consumer during the call.
    error : CorruptRecordError
        The error that `poll` raised.

    Returns
    -------
    Polled or None
        One `PLACEHOLDER` for each lost offset. None if the partition is no longer assigned. None also if the
        end of its log is unknown, or if the brokers did not answer in time; then the next poll raises the
        same error.

    Raises
    ------
    CorruptRecordError
        The error does not name the batch.
    """
    where = damaged_batch_of(error)
    if where is None:
        raise error
    tp, start = where
    if tp not in consumer.assignment():
        return None
    begin = max(start, consumer.position(tp) or 0)
    high = consumer.highwater(tp)
    if high is None:
        return None
    others = [other for other in consumer.assignment() if other != tp and other not in consumer.paused()]
    consumer.pause(*others)
    try:
        end = end_of_batch(lambda offset: _is_inside(consumer, tp, start, offset), start, high)
    finally:
        consumer.seek(tp, begin)
        consumer.resume(*others)
    if end is None:
        return None
    consumer.seek(tp, end)
    return Polled(name_of(tp), [PLACEHOLDER] * (end - begin), range(begin, end), str(error))


def end_of_batch(is_inside: Callable[[int], bool | None], start: int, high: int) -> int | None:
    """Search for the offset after a damaged batch, and return this offset.

    The batch states its own end, but the data of a damaged batch cannot be trusted. For every offset inside
    the batch, brokers return this batch; for the first offset after it, they return another batch. The search
    doubles its step until it has passed the end, and then bisects. It needs about 2 log2(n) fetches for n
    records.

    Parameters
    ----------
    is_inside : callable
        Returns whether an offset belongs to the batch, or None if the brokers did not answer in time.
    start : int
        The first offset of the batch.
    high : int
        The end of the log.

    Returns
    -------
    int or None
        None if the brokers did not answer in time.

    Examples
    --------
    >>> end_of_batch(lambda offset: offset < 137, 100, 500), end_of_batch(lambda offset: True, 100, 137)
    (137, 137)
    """
    inside, step = start, 1
    while inside + step < high:
        is_in_batch = is_inside(inside + step)
        if is_in_batch is None:
            return None
        if not is_in_batch:
            break
        inside, step = inside + step, 2 * step
    outside = min(inside + step, high)
    while outside - inside > 1:
        middle = (inside + outside) // 2
        is_in_batch = is_inside(middle)
        if is_in_batch is None:
            return None
        inside, outside = (middle, outside) if is_in_batch else (inside, middle)
    return outside


def _is_inside(consumer: KafkaConsumer, tp: TopicPartition, start: int, offset: int) -> bool | None:
    """Return whether an offset is in the batch that begins at `start`, or None if no answer arrives."""
    consumer.seek(tp, offset)
    deadline = time.monotonic() + PROBE_SECONDS
    while time.monotonic() < deadline:
        try:
            if consumer.poll(timeout_ms=200, max_records=1):
                return False
        except CorruptRecordError as error:
            return damaged_batch_of(error) == (tp, start)
        if tp not in consumer.assignment():
            return None
    return None
