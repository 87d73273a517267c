"""Finding the end of a batch that a broker's disk has spoilt, with confluent-kafka: see `unreadable`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer

from connectors.kafka.drivers.base import partition_of
from connectors.kafka.drivers.native_errors import SPOILT, raised
from connectors.kafka.drivers.native_places import place
from connectors.kafka.drivers.unreadable import PROBE_SECONDS, end_of_batch


def end_of_spoilt(
    consumer: Consumer, name: str, start: int, high: int, ours: Callable[[], bool]
) -> int | None:
    """The offset behind a batch; the consumer is left assigned to this partition alone.

    Parameters
    ----------
    consumer : Consumer
        Nothing else may poll it meanwhile.
    name : str
        The partition.
    start : int
        The batch's first offset.
    high : int
        The end of the log.
    ours : callable
        Whether the partition is still ours: it may be taken away meanwhile.

    Returns
    -------
    int or None
        None where the brokers did not answer in time, or the partition is gone.
    """

    def is_inside(offset: int) -> bool | None:
        with raised():
            consumer.assign([place(name, offset)])
        deadline = time.monotonic() + PROBE_SECONDS
        while time.monotonic() < deadline and ours():
            message: Any = consumer.poll(0.2)
            if message is None or (message.topic(), message.partition()) != partition_of(name):
                continue
            if message.error() is None:
                return False
            if message.error().code() in SPOILT:
                return bool(message.offset() == start)
        return None

    return end_of_batch(is_inside, start, high)
