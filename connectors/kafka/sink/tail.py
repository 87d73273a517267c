"""Reading of the reports of a store from the end of a topic.

Each partition is read from the offset where it ended at the last checkpoint to its present end.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka.consumer.fetcher import ConsumerRecord

from connectors.kafka.sink.clients import explain_sink, make, place_of
from connectors.kafka.sink.producer_options import tail_options
from monitor.base.errors import SinkError
from monitor.config.root import KafkaSink

STORE_HEADER = "blindsight-store"
"""The header with the identity of the store that sent a message."""
REPORT_HEADER = "blindsight-report"
"""The header with the id of the report in a message."""
LEASE_HEADER = "blindsight-lease"
"""The header with the number of the lease under which a message was sent, if its store has leases."""

_POLL_MS = 200
_SILENT_SECONDS = 10.0  # without a record before the end: the broker has stopped delivering


@dataclass(frozen=True, slots=True)
class Tail:
    """The last reports of one store in a topic, and the end offsets of the topic's partitions.

    Parameters
    ----------
    ends : mapping of int to int
        The offset after the last record of each partition, by the number of the partition.
    reports : dict of int to set of bytes
        By the id of a report, the digests of its lines in the topic. Usually there is one line. A store that
        was restored from a backup uses the ids since the backup again, perhaps for other reports, so an id
        may have several lines.
    """

    ends: Mapping[int, int]
    reports: dict[int, set[bytes]] = field(default_factory=dict)


def digest(line: bytes) -> bytes:
    """Return a hash of a report's line (16 bytes), to check whether topic and store have the same line."""
    return hashlib.blake2b(line, digest_size=16).digest()


def read_tail(
    settings: KafkaSink, store: str, starts: Mapping[int, int], after: int, stop: threading.Event
) -> Tail:
    """Read each partition from a known offset to its end, and return the reports of one store.

    Parameters
    ----------
    settings : KafkaSink
        The configuration of the sink.
    store : str
        The identity of the store, as in the header of its messages. Reports that the store sent before it was
        restored from a backup are included.
    starts : mapping of int to int
        The offset at which to begin, by partition. A partition is read from its first record if it has no
        offset here, or if its log does not contain the offset because the topic was created again.
    after : int
        Only reports with a larger id are returned.
    stop : threading.Event
        If another thread sets this event, the function raises a SinkError before it has read everything.

    Raises
    ------
    SinkError
        The topic does not exist, no broker answers, or `stop` was set.
    """
    consumer = make(KafkaConsumer, tail_options(settings), settings)
    try:
        return _read(consumer, settings, store, starts, after, stop)
    except SinkError:
        raise
    except Exception as error:
        raise explain_sink(error, settings) from error
    finally:
        consumer.close(autocommit=False, timeout_ms=1000)


def _read(
    consumer: KafkaConsumer,
    settings: KafkaSink,
    store: str,
    starts: Mapping[int, int],
    after: int,
    stop: threading.Event,
) -> Tail:
    partitions = consumer.partitions_for_topic(settings.topic)
    if not partitions:
        raise SinkError(f"{place_of(settings)}: there is no such topic; create it, or correct the name")
    places = [TopicPartition(settings.topic, n) for n in sorted(partitions)]
    firsts, ends = consumer.beginning_offsets(places), consumer.end_offsets(places)
    consumer.assign(places)
    for place in places:
        known = starts.get(place.partition, 0)
        consumer.seek(place, known if firsts[place] <= known <= ends[place] else firsts[place])
    tail = Tail({place.partition: end for place, end in ends.items()})
    received_at = time.monotonic()
    while any(consumer.position(place) < ends[place] for place in places):
        records = consumer.poll(timeout_ms=_POLL_MS)
        if records:
            received_at = time.monotonic()
        if stop.is_set() or time.monotonic() - received_at > _SILENT_SECONDS:
            raise SinkError(f"{place_of(settings)}: its end could not be read")
        for part in records.values():
            _collect(part, store, after, tail.reports)
    return tail


def _collect(records: list[ConsumerRecord], store: str, after: int, reports: dict[int, set[bytes]]) -> None:
    own = store.encode().partition(b".")[0]
    for record in records:
        headers: dict[str, Any] = dict(record.headers)
        sender = headers.get(STORE_HEADER) or b""
        if sender.partition(b".")[0] != own or not headers.get(REPORT_HEADER, b"").isdigit():
            continue
        report = int(headers[REPORT_HEADER])
        if report > after:
            reports.setdefault(report, set()).add(digest(record.value or b""))
