"""What a task's engine takes of a chunk, and what that brings."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from monitor.base.records import Batch, Chunk, Floats, LabelBatch
from monitor.engine.clock import EventClock
from monitor.engine.labels.columns import Matches
from monitor.engine.windows import ClosedWindow

_FUTURE_SECONDS = 86_400.0  # ahead of the clock by more, a time is an error: time zones differ by less


@dataclass(frozen=True, slots=True)
class SeriesWindow:
    """A window that closed, and the series it belongs to."""

    series: int
    window: ClosedWindow


@dataclass(frozen=True, slots=True)
class TimedBatch:
    """Answers with the clock by which windows age.

    Parameters
    ----------
    batch : Batch
        Its times are all there.
    arrival : (n,) float64
        The clock at each answer, seconds, never falling.
    """

    batch: Batch
    arrival: Floats

    @classmethod
    def at(cls, batch: Batch, arrival: Floats) -> TimedBatch:
        """Answers that came then; one without a time, or with one a day ahead, gets that of its arrival."""
        wrong = np.isnan(batch.time) | (batch.time > arrival + _FUTURE_SECONDS)
        return cls(replace(batch, time=np.where(wrong, arrival, batch.time)), arrival)


@dataclass(frozen=True, slots=True)
class TaskOutput:
    """What a chunk did to a task: windows that closed, labels that matched, answers that were shed."""

    closed: list[SeriesWindow]
    matches: list[Matches]
    shed: int


def timed(
    chunk: Chunk, clock: EventClock | None, now: float
) -> tuple[dict[str, TimedBatch], dict[str, LabelBatch]]:
    """A chunk's answers with the clock by which windows age, its labels with a time each; both by task.

    Live, that clock is the time of arrival. In a replay it is read off the records, answers and labels of
    all tasks together, in the order in which they came. A label's time is at most that of its arrival, and
    just that where it names none. A chunk that is a part of a stream brings the times of the whole stream.

    Parameters
    ----------
    chunk : Chunk
    clock : EventClock or None
        That of a replay, which goes on; None for a live one.
    now : float
        The time of arrival, seconds since the epoch.
    """
    records: list[Batch | LabelBatch] = [*chunk.batches, *chunk.labels]
    marks = np.full(sum(map(len, records)), now) if clock is None else _read_clock(chunk, records, clock)
    marks[np.isneginf(marks)] = 0.0  # before the first record that names a time
    parts = np.split(marks, np.cumsum([len(part) for part in records])[:-1]) if records else []
    batches = {b.task: TimedBatch.at(b, mark) for b, mark in zip(chunk.batches, parts, strict=False)}
    labels = {
        found.task: replace(found, time=np.fmin(found.time, mark))
        for found, mark in zip(chunk.labels, parts[len(chunk.batches) :], strict=True)
    }
    return batches, labels


def _read_clock(chunk: Chunk, records: list[Batch | LabelBatch], clock: EventClock) -> Floats:
    """The time of a replay at each record; the clock goes on to that of the last."""
    order = np.concatenate([np.zeros(0, dtype=np.int64), *(part.order for part in records)])
    if chunk.within is not None:
        if len(chunk.within.clock):
            clock.follow(float(chunk.within.clock[-1]))
        found: Floats = chunk.within.clock[order]
        return found
    by_order = np.argsort(order, kind="stable")
    marks = np.empty(len(order))
    marks[by_order] = clock.advance(np.concatenate([np.zeros(0), *(part.time for part in records)])[by_order])
    return marks
