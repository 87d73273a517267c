"""Chunks on their way to the tasks: with a clock at each record, and cut where a record waits for a window.

However a stream is cut into chunks, the engine brings the same; so a chunk may be taken in pieces. A refit
that is due as a window closes is then done before any later record that it concerns is looked at, whatever
chunk that record came in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from monitor.base.places import by_first_row
from monitor.base.records import NO_ID, Batch, Chunk, Floats, Ints, Keys, LabelBatch
from monitor.config.task import Window
from monitor.engine.clock import EventClock
from monitor.engine.windows import AnswerRows, CountWindow, WindowLogic

_B = TypeVar("_B", Batch, LabelBatch)
_FUTURE_SECONDS = 86_400.0  # ahead of the clock by more, a time is an error: time zones differ by less


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

    def rows(self, sequence: Ints) -> AnswerRows:
        """The answers as windows take them; `sequence` is the place in the stream of each."""
        batch = self.batch
        return AnswerRows(
            scores=batch.scores,
            predicted=batch.predicted,
            time=batch.time,
            arrival=self.arrival,
            sequence=sequence,
            partition=batch.partition,
            position=batch.position,
            features=batch.features,
        )


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
        batch.task: replace(batch, time=np.fmin(batch.time, mark))
        for batch, mark in zip(chunk.labels, parts[len(chunk.batches) :], strict=True)
    }
    return batches, labels


def _read_clock(chunk: Chunk, records: list[Batch | LabelBatch], clock: EventClock) -> Floats:
    """The time of a replay at each record; the clock goes on to that of the last."""
    order = np.concatenate([np.zeros(0, dtype=np.int64), *(part.order for part in records)])
    if chunk.within is not None:
        if len(chunk.within.clock):
            clock.follow(float(chunk.within.clock[-1]))
        reading: Floats = chunk.within.clock[order]
        return reading
    by_order = np.argsort(order, kind="stable")
    marks = np.empty(len(order))
    marks[by_order] = clock.advance(np.concatenate([np.zeros(0), *(part.time for part in records)])[by_order])
    return marks


class Closes(Protocol):
    """What closes windows of a task: its engine, or an arena's."""

    def next_piece(self, batch: Batch, labels: LabelBatch | None, arrival: Floats, now: float) -> int:
        """The order of the first record that must wait for a window to close; past all for none."""


def cut(
    chunk: Chunk, waited_for: Mapping[str, Closes], clock: float, event_time: bool
) -> tuple[Chunk, Chunk | None]:
    """A chunk up to the first record that waits for a window to close, and the rest; the whole for none.

    Parameters
    ----------
    chunk : Chunk
    waited_for : mapping of str to Closes
        By task, who tells where.
    clock : float
        Before the chunk.
    event_time : bool
        Whether the records' own times move it.
    """
    batches = [batch for batch in chunk.batches if batch.task in waited_for]
    if not batches:
        return chunk, None
    arrival = latest_arrivals(chunk, clock, event_time)
    labels = {each.task: each for each in chunk.labels}
    stop = min(
        waited_for[batch.task].next_piece(batch, labels.get(batch.task), arrival, clock) for batch in batches
    )
    return split(chunk, stop) if stop < len(arrival) else (chunk, None)


def split(chunk: Chunk, stop: int) -> tuple[Chunk, Chunk]:
    """The records of a chunk before a place in its order, and the others.

    Both count in sum what the chunk counts; the second has its rejects, its positions, and what is no record.

    Parameters
    ----------
    chunk : Chunk
    stop : int
        From 0 to the number of its answers and labels.
    """
    batches = [(_slice(batch, stop, False), _slice(batch, stop, True)) for batch in chunk.batches]
    labels = [(_slice(batch, stop, False), _slice(batch, stop, True)) for batch in chunk.labels]
    answers = sum(len(first) for first, _ in batches)
    head = replace(
        chunk,
        batches=tuple(first for first, _ in batches if len(first)),
        labels=tuple(first for first, _ in labels if len(first)),
        rejects=(),
        positions={},
        answers=answers,
        labels_received=stop - answers,  # rejected ones may be answers: the sum with the rest is right
        within=chunk.within and chunk.within[:stop],
        ignored=0,
        shed=0,
        labels_shed={},
        rows_left={},
    )
    tail = replace(
        chunk,
        batches=tuple(rest for _, rest in batches if len(rest)),
        labels=tuple(rest for _, rest in labels if len(rest)),
        answers=chunk.answers - answers,
        labels_received=chunk.labels_received - (stop - answers),
        after_others=(),
        within=chunk.within and chunk.within[stop:],
    )
    return head, tail


def latest_arrivals(chunk: Chunk, now: float, event_time: bool) -> Floats:
    """The clock at each answer and label of a chunk at the latest, by their order; (answers + labels,).

    Parameters
    ----------
    chunk : Chunk
    now : float
        The clock before.
    event_time : bool
        Whether the records' own times move it.
    """
    if event_time and chunk.within is not None:
        return np.where(np.isneginf(chunk.within.clock), 0.0, chunk.within.clock)
    marks = np.full(chunk.answers + chunk.labels_received, -np.inf)
    if event_time:
        parts: list[Batch | LabelBatch] = [*chunk.batches, *chunk.labels]
        for part in parts:
            marks[part.order] = np.where(np.isnan(part.time), -np.inf, part.time)
    marks = np.maximum.accumulate(np.maximum(marks, now))
    return np.where(np.isneginf(marks), 0.0, marks)


def first_closing(
    batch: Batch,
    arrival: Floats,
    now: float,
    known: Mapping[str, tuple[WindowLogic, str]],
    settings: Window,
) -> int:
    """The order after the first record at which a model's window may close; that after all for none.

    It is never too late; it is too early where rows turn out to be duplicates, where the clock does not
    follow a time, and where another version's row is no more than a straggler. A record of several models
    is not cut.

    Parameters
    ----------
    batch : Batch
    arrival : (m,) float64
        The clock at each place of the chunk's order at the latest, never falling.
    now : float
        The clock before.
    known : mapping of str to (WindowLogic, str)
        The open window of each model, and its version in charge; ``""`` for none.
    settings : Window
        Of a model that is not known.
    """
    ends = (closing.end for closing in _closings(batch, arrival, now, known, settings))
    return min(ends, default=len(arrival))


def first_concerned(
    batch: Batch,
    labels: LabelBatch | None,
    arrival: Floats,
    now: float,
    known: Mapping[str, tuple[WindowLogic, str]],
    settings: Window,
    answered: Callable[[Keys, str], NDArray[np.bool_]],
) -> int:
    """The order of the first record that concerns a model of which a window may close before it.

    That is an answer of the model, or a label that may reach one. What a window that closes changes for
    later records, it changes for its own model alone: other models' records need not wait for it.

    Parameters
    ----------
    batch, arrival, now, known, settings
        As in `first_closing`.
    labels : LabelBatch or None
        Those of the chunk that came apart from the answers.
    answered : callable
        Of ids, whether a model may have answered under them in earlier chunks.

    Returns
    -------
    int
        The order after all records for none.
    """
    first = len(arrival)
    # Right or wrong, of scores of one column, is said of the record's own model alone.
    along = np.flatnonzero((batch.label >= 0) & (batch.key != NO_ID) & (batch.scores.shape[1] > 1))
    for closing in _closings(batch, arrival, now, known, settings):
        later = closing.rows[np.searchsorted(batch.order[closing.rows], closing.end) :]
        stop = _start_of_record(batch, int(later[0])) if len(later) else len(arrival)
        stop = first = min(first, stop)
        own, model = batch.key[closing.rows[: len(closing.rows) - len(later)]], batch.models[closing.code]
        parts: list[tuple[Ints, Keys]] = [(batch.order[along], batch.key[along])]
        if labels is not None:
            to = [labels.models.index(model)] if model in labels.models else []
            about = np.isin(labels.model, [-1, *to])
            parts.append((labels.order[about], labels.key[about]))
        for order, key in parts:
            between = slice(*np.searchsorted(order, (closing.end, stop)))
            if between.start >= between.stop:
                continue
            reaching = np.isin(key[between], own) | answered(key[between], model)
            first = min([first, *order[between][reaching][:1].tolist()])
    return first


class _Closing(NamedTuple):
    """Where a window of a model may close first: its rows in the batch, and the order after that record."""

    code: int
    rows: Ints
    end: int


def _closings(
    batch: Batch,
    arrival: Floats,
    now: float,
    known: Mapping[str, tuple[WindowLogic, str]],
    settings: Window,
) -> Iterator[_Closing]:
    """Of each model of which a window may close."""
    fresh = CountWindow(settings.size, settings.min_size, settings.max_age_seconds).build()
    for code in by_first_row(batch.model):
        rows = np.flatnonzero(batch.model == code)
        window, current = known.get(batch.models[code], (fresh, ""))
        place = window.may_close(arrival[batch.order[rows]], now)
        other = _another_version(batch.version[rows], batch.versions, current)
        place = min([place, *other[:1].tolist()])
        if place < len(rows):
            yield _Closing(code, rows, _end_of_record(batch, int(rows[place])))


def _another_version(version: Ints, names: tuple[str, ...], current: str) -> Ints:
    """The rows of another version than the one in charge, or than the first that is named."""
    if all(name in ("", current) for name in names):
        return np.zeros(0, dtype=np.int64)
    named = np.flatnonzero(np.array([bool(name) for name in names], dtype=bool)[version])
    if not current and len(named):
        current = names[int(version[named[0]])]
    return np.flatnonzero(np.array([name not in ("", current) for name in names], dtype=bool)[version])


def _end_of_record(batch: Batch, row: int) -> int:
    """The order after the last answer of the record that a row came in."""
    same = (batch.partition[row:] == batch.partition[row]) & (batch.position[row:] == batch.position[row])
    rows = len(same) if same.all() else int(same.argmin())
    return int(batch.order[row + rows - 1]) + 1


def _start_of_record(batch: Batch, row: int) -> int:
    """The order of the first answer of the record that a row came in."""
    partition, position = batch.partition[: row + 1], batch.position[: row + 1]
    others = np.flatnonzero((partition != partition[row]) | (position != position[row]))
    return int(batch.order[others[-1] + 1 if len(others) else 0])


def _slice(batch: _B, stop: int, rest: bool) -> _B:
    """The rows before a place in the chunk's order, or the rest, whose order begins there anew."""
    cut = int(np.searchsorted(batch.order, stop))
    rows = slice(cut, None) if rest else slice(cut)
    changed: dict[str, Any] = {
        column.name: value[rows]
        for column in fields(batch)
        if isinstance(value := getattr(batch, column.name), np.ndarray)
    }
    if rest:
        changed["order"] = changed["order"] - stop
    if isinstance(batch, Batch):
        changed["groups"] = {name: (values, column[rows]) for name, (values, column) in batch.groups.items()}
    return replace(batch, **changed)
