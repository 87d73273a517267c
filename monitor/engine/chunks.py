"""Gives each record of a chunk a time, and divides a chunk where a record must wait for a window to close.

A chunk is the decoded records of one read. When a window closes, a refit may become due. The refit must end
before the engine processes later records of the same chunk. So the engine processes such a chunk in parts.
Its results do not depend on how the stream is divided into chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from monitor.base.places import by_first_row
from monitor.base.records import NO_ID, Batch, Chunk, Floats, Ints, Keys, LabelBatch
from monitor.config.task import Window
from monitor.engine.clock import EventClock
from monitor.engine.windows import AnswerRows, CountWindow, WindowLogic

_B = TypeVar("_B", Batch, LabelBatch)
_FUTURE_SECONDS = 86_400.0  # a time further ahead is an error: time zones differ by less


@dataclass(frozen=True, slots=True)
class TimedBatch:
    """Answers, each with its time of arrival on the clock that decides when windows close by age.

    Parameters
    ----------
    batch : Batch
        The answers. Each has a time.
    arrival : (n,) float64
        The time of the clock at each answer, in seconds, nondecreasing.
    """

    batch: Batch
    arrival: Floats

    @classmethod
    def from_arrivals(cls, batch: Batch, arrival: Floats) -> TimedBatch:
        """Return the answers with `arrival`, the time of the clock at each answer.

        An answer without a time, or with a time more than a day ahead of the clock, gets the time of the
        clock.
        """
        wrong = np.isnan(batch.time) | (batch.time > arrival + _FUTURE_SECONDS)
        return cls(replace(batch, time=np.where(wrong, arrival, batch.time)), arrival)

    def rows(self, sequence: Ints) -> AnswerRows:
        """Return the answers as rows for windows.

        Parameters
        ----------
        sequence : (n,) int64
            The number of each answer's record in the stream.
        """
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
    """Return a chunk's answers and labels by task, each record with a time.

    In a live run, the clock shows the time of arrival. In a replay, the clock follows the times of the
    answers and labels of all tasks, in the order of the chunk. A label that has no time, or a time ahead of
    the clock, gets the time of the clock. If the chunk contains only a part of the stream's records,
    `Chunk.within` contains the times of the clock.

    Parameters
    ----------
    chunk : Chunk
    clock : EventClock or None
        The clock of a replay, which this function advances; None in a live run.
    now : float
        The time of arrival, seconds since the epoch.
    """
    records: list[Batch | LabelBatch] = [*chunk.batches, *chunk.labels]
    marks = np.full(sum(map(len, records)), now) if clock is None else _read_clock(chunk, records, clock)
    marks[np.isneginf(marks)] = 0.0  # before the first record with a time
    parts = np.split(marks, np.cumsum([len(part) for part in records])[:-1]) if records else []
    batches = {
        b.task: TimedBatch.from_arrivals(b, mark) for b, mark in zip(chunk.batches, parts, strict=False)
    }
    labels = {
        batch.task: replace(batch, time=np.fmin(batch.time, mark))
        for batch, mark in zip(chunk.labels, parts[len(chunk.batches) :], strict=True)
    }
    return batches, labels


def _read_clock(chunk: Chunk, records: list[Batch | LabelBatch], clock: EventClock) -> Floats:
    """Return the clock of a replay at each record, and advance it."""
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


NextPiece = Callable[[Batch, LabelBatch | None, Floats, float], int]
"""The type of `TaskLogic.next_piece`."""


def cut(
    chunk: Chunk, next_piece: Mapping[str, NextPiece], clock: float, event_time: bool
) -> tuple[Chunk, Chunk | None]:
    """Divide a chunk before the first record that must wait until a window has closed.

    Parameters
    ----------
    chunk : Chunk
    next_piece : mapping of str to callable
        The method `TaskLogic.next_piece` of each task whose windows make records wait.
    clock : float
        The time of the clock before the chunk.
    event_time : bool
        Whether the records' own times advance the clock.

    Returns
    -------
    Chunk
        The records before the one that must wait.
    Chunk or None
        The other records; None if no record must wait.
    """
    batches = [batch for batch in chunk.batches if batch.task in next_piece]
    if not batches:
        return chunk, None
    arrival = latest_arrivals(chunk, clock, event_time)
    labels = {each.task: each for each in chunk.labels}
    stop = min(next_piece[batch.task](batch, labels.get(batch.task), arrival, clock) for batch in batches)
    return split(chunk, stop) if stop < len(arrival) else (chunk, None)


def split(chunk: Chunk, stop: int) -> tuple[Chunk, Chunk]:
    """Divide a chunk into its first records and the rest.

    The counts of the two parts add up to the counts of the chunk. The second part gets the rejected records,
    the positions, and the counts of records that the chunk does not contain.

    Parameters
    ----------
    chunk : Chunk
    stop : int
        The number of records (answers and labels) in the first part.
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
        # Rejected records may be answers: only the sum with the rest is exact.
        labels_received=stop - answers,
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
    """Return an upper bound of the clock at each answer and label, in the chunk's order.

    The result has the shape (answers + labels,), in seconds.

    Parameters
    ----------
    chunk : Chunk
    now : float
        The time of the clock before the chunk.
    event_time : bool
        Whether the records' own times advance the clock.
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
    """Return the index just after the first record that may close a window.

    If no record may close a window, the index is the number of records. The index is never too late. It may
    be too early for three reasons: rows may be duplicates, the clock may ignore a wrong time, or a row of
    another version may be a late answer of an old version. If a record holds answers of several models, the
    index is not inside this record.

    Parameters
    ----------
    batch : Batch
    arrival : (m,) float64
        An upper bound of the clock at each record of the chunk, in seconds, nondecreasing.
    now : float
        The time of the clock before the chunk.
    known : mapping of str to (WindowLogic, str)
        The open window and the current version of each model; ``""`` if the model has no version.
    settings : Window
        The window settings of a model that is not in `known`.
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
    """Return the index of the first record that must wait because a window of its model may close before it.

    The records of a model are its answers, and the labels that may match them. When a window closes, only
    later records of the same model must wait.

    Parameters
    ----------
    batch, arrival, now, known, settings
        As in `first_closing`.
    labels : LabelBatch or None
        The chunk's labels in separate records.
    answered : callable
        Takes ids and a model. Returns for each id whether an earlier chunk may hold an answer of the model
        with this id.

    Returns
    -------
    int
        The index; the number of records if no record must wait.
    """
    first = len(arrival)
    # A label that means right or wrong concerns its record's model only.
    along = np.flatnonzero((batch.label >= 0) & (batch.key != NO_ID) & batch.labels_are_general)
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
    """The first place where a model's window may close: the model's rows, and the place after this record."""

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
    """Yield the first possible closing of each model that has one."""
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
    """Return the indices of the rows with another version than `current`.

    If `current` is empty, the rows are compared with the first version that a row names.
    """
    if all(name in ("", current) for name in names):
        return np.zeros(0, dtype=np.int64)
    named = np.flatnonzero(np.array([bool(name) for name in names], dtype=bool)[version])
    if not current and len(named):
        current = names[int(version[named[0]])]
    return np.flatnonzero(np.array([name not in ("", current) for name in names], dtype=bool)[version])


def _end_of_record(batch: Batch, row: int) -> int:
    """Return the place just after the last answer in the same record as this row."""
    same = (batch.partition[row:] == batch.partition[row]) & (batch.position[row:] == batch.position[row])
    rows = len(same) if same.all() else int(same.argmin())
    return int(batch.order[row + rows - 1]) + 1


def _start_of_record(batch: Batch, row: int) -> int:
    """Return the place of the first answer in the same record as this row."""
    partition, position = batch.partition[: row + 1], batch.position[: row + 1]
    others = np.flatnonzero((partition != partition[row]) | (position != position[row]))
    return int(batch.order[others[-1] + 1 if len(others) else 0])


def _slice(batch: _B, stop: int, rest: bool) -> _B:
    """Return the rows before a place in the chunk's order; with `rest`, return the other rows instead.

    The order of the returned rows begins at 0.
    """
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
