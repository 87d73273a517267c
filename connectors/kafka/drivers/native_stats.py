"""What librdkafka says of its connections, once a second."""

from __future__ import annotations

from collections.abc import Collection

import msgspec


class _Broker(msgspec.Struct):
    nodeid: int
    state: str


class _Partition(msgspec.Struct):
    leader: int


class _Topic(msgspec.Struct):
    partitions: dict[str, _Partition] = {}


class _Statistics(msgspec.Struct):
    brokers: dict[str, _Broker] = {}
    topics: dict[str, _Topic] = {}


class BrokerStats:
    """Which brokers are connected, and which partitions they lead.

    Examples
    --------
    >>> feed = BrokerStats()
    >>> feed.connected({"clicks-0"})  # nothing is known yet, and a broker has just answered
    True
    >>> feed.hear('{"brokers": {"one:9092/1": {"nodeid": 1, "state": "UP"},'
    ...           ' "two:9092/2": {"nodeid": 2, "state": "CONNECT"}},'
    ...           ' "topics": {"clicks": {"partitions": {"0": {"leader": 1}, "1": {"leader": 2}}}}}')
    >>> feed.connected({"clicks-0"}), feed.connected({"clicks-0", "clicks-1"}), feed.connected(())
    (True, False, True)
    """

    def __init__(self) -> None:
        self._decode = msgspec.json.Decoder(_Statistics).decode
        self._heard = False
        self._up: set[int] = set()
        self._leaders: dict[str, int] = {}

    def hear(self, statistics: str) -> None:
        """Take librdkafka's statistics in."""
        found = self._decode(statistics)
        self._heard = True
        self._up = {broker.nodeid for broker in found.brokers.values() if broker.state == "UP"}
        self._leaders = {
            f"{topic}-{number}": partition.leader
            for topic, each in found.topics.items()
            for number, partition in each.partitions.items()
        }

    def connected(self, names: Collection[str]) -> bool:
        """Whether the leaders of these partitions are connected; of none, whether any broker is."""
        if not self._heard:
            return True
        known = [self._leaders[name] for name in names if name in self._leaders]
        return self._up.issuperset(known) if known else bool(self._up)
