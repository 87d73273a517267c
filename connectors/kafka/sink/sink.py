"""Topics as destinations: of closed windows with or without a store behind them, and of rejected records."""

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
"""Before the name of a partition: under which the store keeps how far it was written."""


class TopicDestination(Destination[Item]):
    """A topic that takes what a queue holds, a message an item.

    Parameters
    ----------
    name : str
        The label `sink`.
    topic : Topic
    encode : callable
        Makes an item a message.
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
        """Items too large for the topic."""
        return self._topic.refused

    def open(self) -> None:
        """Returns at once: brokers that are away are waited for by `deliver`."""
        self._topic.check()

    def deliver(self, items: Sequence[Item]) -> int:
        """Send items and wait for their acknowledgement; how many."""
        if not self._topic.busy:
            self._count = len(items)
            self._topic.send([self._encode(item) for item in items])
        self._topic.settle()
        return self._count

    def interrupt(self) -> None:
        """End a wait inside `deliver`."""
        self._topic.interrupted.set()

    def close(self, timeout_seconds: float) -> None:
        """Close the producer."""
        self._topic.close(timeout_seconds)


class ReportsTopic(FollowedDestination):
    """A topic that takes the store's reports, each once, whatever was killed when.

    Each message bears the store's identity and the report's id. After a crash the partitions are read from
    where they were known to end at the last checkpoint, and what is there is not sent again.

    Parameters
    ----------
    topic : Topic
    store : str
        The store's identity.
    lease : int, optional
        The number of the lease on it, where it has one: it grows with each owner.
    """

    name = "reports_topic"

    def __init__(self, topic: Topic, store: str, lease: int | None = None) -> None:
        self.setting = topic.setting
        self.where = place_of(topic.settings)
        self._topic = topic
        self._store = store
        self._lease = [] if lease is None else [(LEASE_HEADER, b"%d" % lease)]
        self._prefix = f"{MARK}{topic.settings.topic}-"
        self._uncertain = False
        self._there: dict[int, set[bytes]] = {}
        self._rows: Sequence[Row] = ()
        self._last = 0
        self._known: dict[int, int] = {}
        self._ahead: dict[int, int] = {}
        self._marks: Mapping[str, Mark] = {}

    @property
    def refused(self) -> int:  # type: ignore[override]
        """Windows too large for the topic."""
        return self._topic.refused

    @property
    def marks(self) -> Mapping[str, Mark]:
        """By partition, the last report delivered, and an offset before which no later one stands."""
        return self._marks

    def open(self) -> None:
        """Returns at once: brokers that are away are waited for by `resume`."""
        self._topic.check()

    def last_of(self, saved: Mapping[str, Mark]) -> int:
        """The last report that had arrived when these marks were saved."""
        return max((last for last, _ in self._own(saved).values()), default=0)

    def resume(self, saved: Mapping[str, Mark], reports_after: ReportsAfter) -> int:
        """Read the ends of the partitions; the last report that was known to be there."""
        self._last = self.last_of(saved)
        self._known = {partition: place for partition, (_, place) in self._own(saved).items()}
        self._look()
        return self._last

    def deliver(self, items: Sequence[Row]) -> int:
        """Send those that are not there yet; how many there are now."""
        if self._uncertain:
            self._look()
            self._uncertain = False
        if not self._topic.busy:
            self._rows = items
            self._topic.send([self._message(row) for row in items if not self._has(row)])
        try:
            ends = self._topic.settle()
        except SinkError:
            if self._topic.uncertain:
                self._topic.forget()
                self._uncertain = True
            raise
        self._ahead = _later(self._ahead, ends)
        self._last = self._rows[-1][0]
        if self._there and self._last >= max(self._there):
            self._there = {}
        self._note()
        return len(self._rows)

    def interrupt(self) -> None:
        """End a wait inside `deliver` or `resume`."""
        self._topic.interrupted.set()

    def close(self, timeout_seconds: float) -> None:
        """Close the producer."""
        self._topic.close(timeout_seconds)

    def _own(self, saved: Mapping[str, Mark]) -> dict[int, Mark]:
        """The marks of this topic, by partition."""
        start = len(self._prefix)
        return {
            int(name[start:]): mark
            for name, mark in saved.items()
            if name.startswith(self._prefix) and name[start:].isdigit()
        }

    def _look(self) -> None:
        tail: Tail = read_tail(
            self._topic.settings, self._store, self._known, self._last, self._topic.interrupted
        )
        self._there = tail.reports
        self._ahead = dict(tail.ends)
        self._note()

    def _has(self, row: Row) -> bool:
        number, line = row
        return digest(line) in self._there.get(number, ())

    def _note(self) -> None:
        """What a later start reads again must hold every report after the last one that is noted."""
        if not self._there:
            self._known = dict(self._ahead)
        self._marks = {
            f"{self._prefix}{partition}": (self._last, place) for partition, place in self._known.items()
        }

    def _message(self, row: Row) -> Message:
        number, line = row
        headers = [(STORE_HEADER, self._store.encode()), (REPORT_HEADER, b"%d" % number), *self._lease]
        return Message(series_key(line), line, headers)


class _Series(msgspec.Struct):
    """What of a window's line its key is made of."""

    task: str
    model: str = ""
    group: str = ""


_decode_series = msgspec.json.Decoder(_Series).decode


def series_key(line: bytes) -> bytes:
    """The key of a window's message: task, model and group, so that a series keeps its order.

    An arena's line has a task alone.

    Examples
    --------
    >>> series_key(b'{"task": "t", "model": "a/b", "group": "region=eu", "window": 1}')
    b't/a%2Fb/region=eu'
    >>> series_key(b'{"task": "duel", "kind": "arena", "window": 1}')
    b'duel//'
    """
    series = _decode_series(line)
    return "/".join(quote(part, safe="= ") for part in (series.task, series.model, series.group)).encode()


def lines_topic(settings: KafkaSink) -> TopicDestination[bytes]:
    """The topic of windows, where no store keeps them."""
    topic = Topic(settings, "reports.kafka")
    return TopicDestination("reports_topic", topic, lambda line: Message(series_key(line), line))


def rejects_topic(settings: KafkaSink) -> TopicDestination[Rejected]:
    """The topic of records that could not be used; the key is their source."""
    topic = Topic(settings, "rejects.kafka")

    def encode(item: Rejected) -> Message:
        return Message(item[1].encode("utf-8", "backslashreplace"), reject_line(item)[:-1])

    return TopicDestination("rejects_topic", topic, encode)


def _later(one: Mapping[int, int], other: Mapping[int, int]) -> dict[int, int]:
    return {each: max(one.get(each, 0), other.get(each, 0)) for each in {*one, *other}}
