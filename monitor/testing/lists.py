"""A source that reads a list, sinks that fill lists, a manual clock and delayed labels."""

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
"""The exit code that a shell shows for a process that was ended by kill -9."""


class Marker(Enum):
    """An action of a `ListSource` in place of a record."""

    CRASH = "crash"
    """End the process at once, like kill -9: nothing is flushed, nothing is closed."""
    PAUSE = "pause"
    """Return no records from this read."""
    END = "end"
    """Signal the end of the source."""


class HandClock:
    """A clock whose time changes only when `advance` is called.

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
        """Return the time."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Move the clock forward by a number of seconds, or back if the number is negative."""
        self._now += seconds


class ListSource(Source[int]):
    """A source that reads records from a list and acts on the markers in it.

    Positions are indices of the list, so a test can check exactly where a source resumes.

    Parameters
    ----------
    records : sequence of mapping, bytes or Marker
        Mappings are encoded as JSON. If the list does not end with `Marker.END`, reads after the last record
        return no records.
    per_read : int
        The largest number of records of one read.
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
        """Position after the last record that the agent acknowledged."""

    def open(self, positions: Mapping[str, int]) -> None:
        """Prepare to read from the position of the partition ``list``, or from the beginning."""
        self._next = positions.get("list", 0)
        self._open = True

    def read(self, timeout_seconds: float) -> list[Raw]:
        """Return the next records, or act on the next marker."""
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
        """Close the source."""
        self._open = False

    @property
    def up(self) -> bool:
        """True if the source is open."""
        return self._open

    @property
    def lag(self) -> int:
        """The number of records and markers that have not been read yet."""
        return len(self._records) - self._next

    def acknowledge(self, positions: Mapping[str, int]) -> None:
        """Store the acknowledged position in the attribute `used`."""
        self.used = positions.get("list", self.used)

    def _act(self, marker: Marker) -> None:
        if marker is Marker.CRASH:
            os._exit(KILLED)
        if marker is Marker.END:
            raise EndOfSource


class ListSinks:
    """Sinks that keep the output of an agent in lists.

    Attributes
    ----------
    windows : list of WindowReport
    rejected : list of Reject
    lost : int
        The number of lost records, always 0.
    views : tuple of SinkView
        The states of outputs that can fail, always empty.

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
        """Append the reports of closed windows to `windows`."""
        self.windows.extend(reports)

    def rejects(self, chunk: Chunk) -> None:
        """Append the rejected records of a chunk to `rejected`."""
        self.rejected.extend(chunk.rejects)


@dataclass(frozen=True, slots=True)
class DelayedLabels:
    """A generator of streams in which each label arrives a constant time after its prediction.

    Parameters
    ----------
    delay_seconds : float
        The time from a prediction to the arrival of its label.

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
        """Yield the records of pairs in order of time.

        A pair is a prediction with `id` and `time` in seconds, and its label or None. The pairs must be in
        order of time.
        """
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
