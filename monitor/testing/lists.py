"""Source and sink that are lists, a clock moved by hand, labels that come late."""

from __future__ import annotations

import heapq
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import msgspec

from monitor.base.records import Chunk, Reject
from monitor.base.source import EndOfSource, Raw, RawMessages, Source
from monitor.reports.views import SinkView
from monitor.reports.window_report import WindowReport

KILLED = 137
"""What a shell shows of a process that died of kill -9."""


class Marker(Enum):
    """What a `ListSource` does instead of giving a record."""

    CRASH = "crash"
    """End the process at once, as kill -9 would: nothing is flushed, nothing is closed."""
    PAUSE = "pause"
    """Give nothing for this read."""
    END = "end"
    """Nothing will come any more."""


class HandClock:
    """A clock that stands still until it is moved.

    Examples
    --------
    >>> clock = HandClock(1000.0)
    >>> clock.advance(5)
    >>> clock()
    1005.0
    """

    def __init__(self, start: float = 0.0) -> None:
        self._now = start

    def __call__(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        """Move on, or back: a real clock may do that too."""
        self._now += seconds


class ListSource(Source[int]):
    """A source that gives the records of a list, some at a read, and acts on the markers in it.

    Positions are places in the list, so a test sees exactly where a source is resumed.

    Parameters
    ----------
    records : sequence of mapping, bytes or Marker
        Mappings are written as JSON. A list without `Marker.END` stays silent at its end.
    per_read : int
        Records a read.
    name : str

    Examples
    --------
    >>> source = ListSource([{"id": "a"}, {"id": "b"}, Marker.END], per_read=1)
    >>> source.open({"list": 1})
    >>> [messages] = source.read(0)
    >>> messages.values, messages.offsets
    ([b'{"id":"b"}'], [1])
    """

    def __init__(
        self, records: Sequence[Mapping[str, Any] | bytes | Marker], per_read: int = 100, name: str = "list"
    ) -> None:
        self.name = name
        self._records = records
        self._per_read = per_read
        self._next = 0
        self._open = False
        self.used: int | None = None
        """Position after the last record that the agent said it had used."""

    def open(self, positions: Mapping[str, int]) -> None:
        self._next = positions.get("list", 0)
        self._open = True

    def read(self, timeout_seconds: float) -> list[Raw]:
        values: list[bytes] = []
        start = self._next
        while len(values) < self._per_read and self._next < len(self._records):
            record = self._records[self._next]
            if isinstance(record, Marker):
                if values:
                    break
                self._next += record is not Marker.END
                self._act(record)
                return []
            values.append(record if isinstance(record, bytes) else msgspec.json.encode(record))
            self._next += 1
        if not values:
            time.sleep(min(timeout_seconds, 0.01))
            return []
        return [RawMessages(values, "list", list(range(start, start + len(values))))]

    def close(self) -> None:
        self._open = False

    @property
    def up(self) -> bool:
        return self._open

    @property
    def lag(self) -> int:
        return len(self._records) - self._next

    def acknowledge(self, positions: Mapping[str, int]) -> None:
        self.used = positions.get("list", self.used)

    def _act(self, marker: Marker) -> None:
        if marker is Marker.CRASH:
            os._exit(KILLED)
        if marker is Marker.END:
            raise EndOfSource


class ListSinks:
    """Keeps what an agent gives out, in lists.

    Attributes
    ----------
    windows : list of WindowReport
    rejected : list of Reject
    lost : int
        Always 0: a list has room.
    views : tuple of SinkView
        Always empty: there is nothing that could fail.

    Examples
    --------
    >>> sinks = ListSinks()
    >>> sinks.reports([]), sinks.windows, sinks.lost
    (None, [], 0)
    """

    lost = 0
    views: tuple[SinkView, ...] = ()

    def __init__(self) -> None:
        self.windows: list[WindowReport] = []
        self.rejected: list[Reject] = []

    def reports(self, reports: Sequence[WindowReport]) -> None:
        """Take closed windows."""
        self.windows.extend(reports)

    def rejects(self, chunk: Chunk) -> None:
        """Take what could not be used."""
        self.rejected.extend(chunk.rejects)


@dataclass(frozen=True, slots=True)
class DelayedLabels:
    """Replays predictions and their labels in the order in which they would have arrived.

    Parameters
    ----------
    delay_seconds : float
        From a prediction's time to its label's arrival.

    Examples
    --------
    >>> replay = DelayedLabels(delay_seconds=15)
    >>> stream = replay([({"id": "a", "time": 0.0}, "ok"), ({"id": "b", "time": 10.0}, None),
    ...                  ({"id": "c", "time": 20.0}, "ok")])
    >>> [(record["id"], record.get("label"), record["time"]) for record in stream]
    [('a', None, 0.0), ('b', None, 10.0), ('a', 'ok', 15.0), ('c', None, 20.0), ('c', 'ok', 35.0)]
    """

    delay_seconds: float

    def __call__(self, pairs: Iterable[tuple[Mapping[str, Any], str | None]]) -> Iterator[dict[str, Any]]:
        """Pairs of (prediction with `id` and `time` in seconds, its label or None), in order of time."""
        waiting: list[tuple[float, int, dict[str, Any]]] = []
        for count, (prediction, label) in enumerate(pairs):
            while waiting and waiting[0][0] <= prediction["time"]:
                yield heapq.heappop(waiting)[2]
            yield dict(prediction)
            if label is not None:
                due = prediction["time"] + self.delay_seconds
                answer = {"id": prediction["id"], "label": label, "time": due}
                if "task" in prediction:
                    answer["task"] = prediction["task"]
                heapq.heappush(waiting, (due, count, answer))
        while waiting:
            yield heapq.heappop(waiting)[2]
