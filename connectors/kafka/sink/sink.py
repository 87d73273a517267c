"""Kafka topics as destinations of reports, with or without a store, and of rejected records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from urllib.parse import quote

import msgspec

from connectors.kafka.sink.clients import place_of
from connectors.kafka.sink.tail import LEASE_HEADER, REPORT_HEADER, STORE_HEADER, Tail, digest, read_tail
from connectors.kafka.sink.topic import Message, Topic
from monitor.base.errors import SinkError
from monitor.config.root import KafkaSink
from monitor.export.sinks.destination import Destination, FollowedDestination, Item, Mark, ReportsAfter, Row
from monitor.export.sinks.rejects_file import Rejected, reject_line

MARK = "reports.kafka/"
"""The prefix of the keys under which the store saves a mark for each partition of the topic of reports."""


class TopicDestination(Destination[Item]):
    """A topic that receives each item of a queue as one message.

    Parameters
    ----------
    name : str
        The value of the label `sink` in metrics.
    topic : Topic
        Sends the messages.
    encode : callable
        Converts an item to a message.
    """

    def __init__(self, name: str, topic: Topic, encode: Callable[[Item], Message]) -> None:
        self.name = name
        self.setting = topic.setting
        self.where = place_of(topic.settings)
        self._topic = topic
        self._encode = encode
        self._count = 0

    @property
    def refused(self) -> int:  # type: ignore[override]
        """The number of items that were too large for the topic."""
        return self._topic.refused

    def open(self) -> None:
        """Check the files of certificates and passwords.

        The method does not wait for brokers. `deliver` waits for them.
        """
        self._topic.check()

    def deliver(self, items: Sequence[Item]) -> int:
        """Send items, wait until the brokers have acknowledged them, and return the number of items.

        The number includes items that were dropped because they were too large for the topic.

        Raises
        ------
        SinkError
            Some items are not acknowledged yet; the next call continues.
        """
        if not self._topic.is_busy:
            self._count = len(items)
            self._topic.send([self._encode(item) for item in items])
        self._topic.settle()
        return self._count

    def interrupt(self) -> None:
        """End a wait inside `deliver`. Another thread calls this method."""
        self._topic.interrupted.set()

    def close(self, timeout_seconds: float) -> None:
        """Close the producer."""
        self._topic.close(timeout_seconds)


class ReportsTopic(FollowedDestination):
    """A topic that receives each report of the store exactly once, even after a crash.

    The headers of each message contain the identity of the store and the id of the report. After a crash, the
    destination reads each partition from the offset where it ended at the last checkpoint, and sends only the
    reports that the topic does not contain yet.

    Parameters
    ----------
    topic : Topic
        Sends the messages.
    store : str
        The identity of the store.
    lease : int, optional
        The number of the lease on the store, which grows with each owner; None if the store has no leases.
    """

    name = "reports_topic"

    def __init__(self, topic: Topic, store: str, lease: int | None = None) -> None:
        self.setting = topic.setting
        self.where = place_of(topic.settings)
        self._topic = topic
        self._store = store
        self._lease = [] if lease is None else [(LEASE_HEADER, b"%d" % lease)]
        self._prefix = f"{MARK}{topic.settings.topic}-"
        self._must_read_tail = False
        self._in_topic: dict[int, set[bytes]] = {}
        self._rows: Sequence[Row] = ()
        self._last = 0
        self._starts: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        self._marks: Mapping[str, Mark] = {}

    @property
    def refused(self) -> int:  # type: ignore[override]
        """The number of reports that were too large for the topic."""
        return self._topic.refused

    @property
    def marks(self) -> Mapping[str, Mark]:
        """The mark of each partition: the id of the last delivered report, and an offset.

        All later reports are after this offset.
        """
        return self._marks

    def open(self) -> None:
        """Check the files of certificates and passwords.

        The method does not wait for brokers. `resume` waits for them.
        """
        self._topic.check()

    def last_of(self, saved: Mapping[str, Mark]) -> int:
        """Return the id of the last report delivered before the marks were saved; 0 without marks."""
        return max((last for last, _ in self._own_marks(saved).values()), default=0)

    def resume(self, saved: Mapping[str, Mark], reports_after: ReportsAfter) -> int:
        """Read from the topic which reports were delivered after the last checkpoint.

        Return the id of the last report that was delivered before this checkpoint; 0 if there was none.

        Parameters
        ----------
        saved : mapping of str to Mark
            The marks that the last checkpoint saved.
        reports_after : callable
            Not used, because the topic shows which later reports it contains.

        Raises
        ------
        SinkError
            The topic cannot be read at present.
        """
        self._last = self.last_of(saved)
        self._starts = {partition: place for partition, (_, place) in self._own_marks(saved).items()}
        self._read_tail()
        return self._last

    def deliver(self, items: Sequence[Row]) -> int:
        """Send the reports that the topic does not contain yet, and wait for their acknowledgement.

        Return the number of reports, including those that the topic already contained, and those that were
        dropped because they were too large for the topic.

        Raises
        ------
        SinkError
            Some reports are not acknowledged yet; the next call continues.
        """
        if self._must_read_tail:
            self._read_tail()
            self._must_read_tail = False
        if not self._topic.is_busy:
            self._rows = items
            self._topic.send([self._message(row) for row in items if not self._is_in_topic(row)])
        try:
            ends = self._topic.settle()
        except SinkError:
            if self._topic.is_uncertain:
                self._topic.forget()
                self._must_read_tail = True
            raise
        self._ends = _larger_offsets(self._ends, ends)
        self._last = self._rows[-1][0]
        if self._in_topic and self._last >= max(self._in_topic):
            self._in_topic = {}
        self._update_marks()
        return len(self._rows)

    def interrupt(self) -> None:
        """End a wait inside `deliver` or `resume`. Another thread calls this method."""
        self._topic.interrupted.set()

    def close(self, timeout_seconds: float) -> None:
        """Close the producer."""
        self._topic.close(timeout_seconds)

    def _own_marks(self, saved: Mapping[str, Mark]) -> dict[int, Mark]:
        """Return the marks of this topic's partitions, by the number of the partition."""
        start = len(self._prefix)
        return {
            int(name[start:]): mark
            for name, mark in saved.items()
            if name.startswith(self._prefix) and name[start:].isdigit()
        }

    def _read_tail(self) -> None:
        tail: Tail = read_tail(
            self._topic.settings, self._store, self._starts, self._last, self._topic.interrupted
        )
        self._in_topic = tail.reports
        self._ends = dict(tail.ends)
        self._update_marks()

    def _is_in_topic(self, row: Row) -> bool:
        number, line = row
        return digest(line) in self._in_topic.get(number, ())

    def _update_marks(self) -> None:
        """Update the marks, so that a later start finds all reports after the last delivered one."""
        if not self._in_topic:
            self._starts = dict(self._ends)
        self._marks = {
            f"{self._prefix}{partition}": (self._last, place) for partition, place in self._starts.items()
        }

    def _message(self, row: Row) -> Message:
        number, line = row
        headers = [(STORE_HEADER, self._store.encode()), (REPORT_HEADER, b"%d" % number), *self._lease]
        return Message(series_key(line), line, headers)


class _Series(msgspec.Struct):
    """The fields of a window's line that form the key of its message."""

    task: str
    model: str = ""
    group: str = ""


_decode_series = msgspec.json.Decoder(_Series).decode


def series_key(line: bytes) -> bytes:
    """Return the key of a report's message in Kafka, which consists of the task, the model and the group.

    Kafka keeps the order of messages with the same key, so the reports of a series stay in order. The report
    of a whole task has no model.

    Examples
    --------
    >>> series_key(b'{"task": "t", "model": "a/b", "group": "region=eu", "window": 1}')
    b't/a%2Fb/region=eu'
    >>> series_key(b'{"task": "duel", "window": 1}')
    b'duel//'
    """
    series = _decode_series(line)
    return "/".join(quote(part, safe="= ") for part in (series.task, series.model, series.group)).encode()


def lines_topic(settings: KafkaSink) -> TopicDestination[bytes]:
    """Return the destination of reports for an agent without a store."""
    topic = Topic(settings, "reports.kafka")
    return TopicDestination("reports_topic", topic, lambda line: Message(series_key(line), line))


def rejects_topic(settings: KafkaSink) -> TopicDestination[Rejected]:
    """Return the destination of rejected records.

    The key of each message is the name of the source that has read the record.
    """
    topic = Topic(settings, "rejects.kafka")

    def encode(item: Rejected) -> Message:
        return Message(item[1].encode("utf-8", "backslashreplace"), reject_line(item)[:-1])

    return TopicDestination("rejects_topic", topic, encode)


def _larger_offsets(one: Mapping[int, int], other: Mapping[int, int]) -> dict[int, int]:
    return {each: max(one.get(each, 0), other.get(each, 0)) for each in {*one, *other}}
