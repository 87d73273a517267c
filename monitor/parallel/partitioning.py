"""Divides a stream of records by model, so that several processes can compute different models.

Two properties of a record depend on all records before it: its sequence number, and the stream's clock (the
largest time so far). All other properties of a model's windows depend only on the model's answers and on the
labels of its task. So the work has three steps:

1. The stream is divided into stretches. A stretch is a run of successive chunks from one partition of a
   source, such as a file.
2. `StreamPartitioner` divides each stretch into shares, independently of the other stretches. A share
   contains the records of one model, or of a whole task, with their indices in the stretch.
3. `begins` computes the first sequence number of each stretch, and the clock before the stretch. With these,
   `joined` joins a model's shares of all stretches.

If the models of a task are estimated together (for example by `ssme`) or compared in pairs, all records of
the task in a stretch are one share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monitor.base.places import Named, unite_names
from monitor.base.records import Batch, Chunk, Floats, Ints, LabelBatch, Within
from monitor.engine.clock import LEAP_SECONDS, EventClock
from monitor.engine.labels.matching import labels_along, merged


@dataclass(frozen=True, slots=True)
class Partition:
    """A share: the n records of one chunk that belong to one model, or to a whole task.

    Parameters
    ----------
    task : str
    model : str
        The model; ``""`` for records of the whole task: labels, and comparisons of two models.
    besides : str
        The name of a model, if the share contains labels from the records of this model's answers. The
        model's own share contains these labels too. Otherwise ``""``.
    records : Batch or LabelBatch
        The records. Their `order` is their index in the stretch.
    clock : (n,) float64
        The largest time in the stretch up to each record; -inf before the first time.
    partition : str
        The name of the source's partition, which is the same for the whole stretch.
    """

    task: str
    model: str
    besides: str
    records: Batch | LabelBatch
    clock: Floats
    partition: str

    def __len__(self) -> int:
        return len(self.records)


@dataclass(frozen=True, slots=True)
class Segment:
    """The number and times of the records of a stretch (a run of successive chunks of one partition).

    They determine the beginning of the next stretch.

    Parameters
    ----------
    length : int
        The number of sequence numbers that the records of the stretch use.
    first, newest : float
        The first and the largest time of a record, in seconds; -inf if no record has a time.
    last : float or None
        The time of the last usable record, or -inf if this record has no time. None if there is no usable
        record.
    leaps : bool
        Whether a time is further ahead of all earlier times than `EventClock` accepts from a single record.
    """

    length: int = 0
    first: float = -np.inf
    newest: float = -np.inf
    last: float | None = None
    leaps: bool = False


class StreamPartitioner:
    """Divides the chunks of one stretch into shares, the records of single models.

    Chunks must come in the order of the stretch.

    Attributes
    ----------
    stretch : Segment
        The number and times of the records so far.
    """

    def __init__(self) -> None:
        self.stretch = Segment()
        self._times: list[tuple[Ints, Floats]] = []

    def share(self, chunk: Chunk) -> list[Partition]:
        """Divide a chunk into shares by model. All records of the chunk must come from one partition.

        Raises
        ------
        ValueError
            The records come from several partitions.
        """
        if len(chunk.partitions) > 1:
            raise ValueError(f"a stretch is of one partition, got {', '.join(chunk.partitions)}")
        records: list[Batch | LabelBatch] = [*chunk.batches, *chunk.labels]
        marks = self._marks(chunk, records)
        partition = chunk.partitions[0] if chunk.partitions else ""
        begin = self.stretch.length
        self.stretch = replace(self.stretch, length=begin + chunk.answers + chunk.labels_received)
        shares = []
        for part in records:
            clock = marks[part.order]
            part = replace(part, order=part.order + begin)
            if isinstance(part, LabelBatch) or (part.other >= 0).any():  # comparisons are one share
                shares.append(Partition(part.task, "", "", part, clock, partition))
            else:
                shares += _of_models(part, clock, partition)
        return shares

    def times(self) -> tuple[Ints, Floats]:
        """Return the index within the stretch of each answer and label, and its time in seconds, (m,)."""
        if not self._times:
            return np.zeros(0, dtype=np.int64), np.zeros(0)
        places, times = zip(*self._times, strict=True)
        return np.concatenate(places), np.concatenate(times)

    def _marks(self, chunk: Chunk, records: list[Batch | LabelBatch]) -> Floats:
        """Return the largest time up to each record, in the chunk's order. Update `stretch`."""
        stretch = self.stretch
        order = np.concatenate([np.zeros(0, dtype=np.int64), *(part.order for part in records)])
        by_order = np.argsort(order, kind="stable")
        times = np.concatenate([np.zeros(0), *(part.time for part in records)])[by_order]
        self._times.append((stretch.length + order[by_order], times))
        clock = np.full(chunk.answers + chunk.labels_received, -np.inf)
        if not len(times):
            return clock
        known = np.where(np.isnan(times), -np.inf, times)
        marks = np.maximum.accumulate(np.maximum(known, stretch.newest))
        before = np.concatenate([[stretch.newest], marks[:-1]])
        named = known[known > -np.inf]
        self.stretch = replace(
            stretch,
            first=float(named[0]) if stretch.first == -np.inf and len(named) else stretch.first,
            newest=float(marks[-1]),
            last=float(known[-1]),
            leaps=stretch.leaps or bool(np.any((marks > before + LEAP_SECONDS) & (before > -np.inf))),
        )
        clock[order[by_order]] = marks
        return clock


def _of_models(batch: Batch, clock: Floats, partition: str) -> Iterator[Partition]:
    """Yield the share of each model in a batch, and the labels in its records for other models.

    Other models match these labels by id.
    """
    by_model = _sorted_by(batch.model, len(batch.models))
    batch, clock = _take(batch, by_model), clock[by_model]
    edges = np.searchsorted(batch.model, np.arange(len(batch.models) + 1)).tolist()
    for name, first, last in zip(batch.models, edges, edges[1:], strict=False):
        if first == last:
            continue
        own, of_own = _with_fewest_names(_take(batch, slice(first, last))), clock[first:last]
        yield Partition(batch.task, name, "", own, of_own, partition)
        # In a task without classes a label means right or wrong, and concerns only its model.
        if own.labels_are_general and len(labels := labels_along(own, np.flatnonzero(own.label >= 0))):
            known = of_own[np.searchsorted(own.order, labels.order)]
            yield Partition(batch.task, "", name, labels, known, partition)


def _sorted_by(codes: Ints, names: int) -> Ints:
    """Return the rows stably sorted by code. Numpy sorts small integer types by counting."""
    return np.argsort(codes.astype(np.min_scalar_type(names)), kind="stable")


def _take(batch: Batch, rows: Ints | slice) -> Batch:
    """Return rows of a batch."""
    columns: dict[str, Any] = {
        each.name: _rows_of(value, rows)
        for each in fields(batch)
        if isinstance(value := getattr(batch, each.name), np.ndarray)
    }
    groups = {name: (values, codes[rows]) for name, (values, codes) in batch.groups.items()}
    return replace(batch, **columns, groups=groups)


def _rows_of(column: NDArray[Any], rows: Ints | slice) -> NDArray[Any]:
    """Return rows of a column. For many rows of a matrix, `take` is ten times as fast as an index."""
    return column[rows] if isinstance(rows, slice) or column.ndim == 1 else column.take(rows, axis=0)


def _with_fewest_names(batch: Batch) -> Batch:
    """Return a batch with only the names that it uses."""
    models, model = _fewest((batch.models, batch.model))
    versions, version = _fewest((batch.versions, batch.version))
    groups = {name: _fewest(named) for name, named in batch.groups.items()}
    return replace(batch, models=models, model=model, versions=versions, version=version, groups=groups)


def _fewest(named: Named) -> Named:
    names, codes = named
    if len(codes) and (codes == codes[0]).all():
        only = int(codes[0])
        return (() if only < 0 else (names[only],)), np.full(len(codes), min(only, 0), dtype=np.int64)
    used, place = np.unique(codes, return_inverse=True)
    absent = int(bool(len(used)) and used[0] < 0)
    return tuple(names[code] for code in used[absent:].tolist()), place.astype(np.int64) - absent


@dataclass(frozen=True, slots=True)
class Begin:
    """The beginning of a stretch (a run of successive chunks of one partition) in the whole stream.

    Parameters
    ----------
    sequence : int
        The first sequence number of the stretch.
    clock : float
        The stream's clock before the stretch, in seconds.
    exact : ((m,) int64, (m,) float64) or None
        The m indices in the stretch at which the clock changes, increasing, and the time of the clock after
        each change. None if no time leaps ahead. Then the clock is the largest time so far.
    """

    sequence: int
    clock: float
    exact: tuple[Ints, Floats] | None = None

    def clock_at(self, share: Partition) -> Floats:
        """Return the clock of the whole stream, (n,) seconds, at each record of a share of this stretch."""
        if self.exact is None:
            return np.maximum(share.clock, self.clock)
        places, marks = self.exact
        at = np.searchsorted(places, share.records.order, side="right")
        return np.concatenate([[self.clock], marks])[at]


def begins(stretches: Sequence[Segment], times_of: Callable[[int], tuple[Ints, Floats]]) -> list[Begin]:
    """Return the beginning of each stretch of a stream.

    Parameters
    ----------
    stretches : sequence of Segment
        A summary of each stretch, in the order of the stream.
    times_of : callable
        Takes the index of a stretch, and returns the result of `StreamPartitioner.times` for this stretch. It
        is called only if a time of the stretch is ahead of all earlier times by more than
        `monitor.engine.clock.LEAP_SECONDS`.

    Examples
    --------
    >>> starts = begins([Segment(3, 10.0, 12.0, 12.0), Segment(2, 11.0, 13.0, 13.0)], lambda _: None)
    >>> [(each.sequence, each.clock) for each in starts]
    [(0, -inf), (3, 12.0)]
    """
    return list(each_begin(stretches, times_of))


def each_begin(
    stretches: Iterable[Segment], times_of: Callable[[int], tuple[Ints, Floats]]
) -> Iterator[Begin]:
    """Yield the beginning of each stretch as `begins` does, before the next stretch is read."""
    sequence, now, last = 0, -np.inf, -np.inf
    for number, stretch in enumerate(stretches):
        if stretch.leaps or (now > -np.inf and stretch.first > now + LEAP_SECONDS):
            clock = EventClock(now, last)
            places, times = times_of(number)
            marks = clock.advance(times)
            moved = np.flatnonzero(np.diff(marks, prepend=now))
            exact = places[moved], marks[moved]
            yield Begin(sequence, now, exact)
            now = clock.now
        else:
            yield Begin(sequence, now)
            now = max(now, stretch.newest)
        last = last if stretch.last is None else stretch.last
        sequence += stretch.length


def joined(shares: Iterable[tuple[Partition, Begin]], source: str) -> Chunk:
    """Return one chunk with the shares (records of single models) of one task from several stretches.

    Parameters
    ----------
    shares : iterable of (Partition, Begin)
        Each share with the beginning of its stretch, in any order, without repeated records.
    source : str
        The name of the source.

    Raises
    ------
    ValueError
        There are no shares.
    """
    parts = list(shares)
    if not parts:
        raise ValueError("shares: expected one or more, got none")
    partitions = tuple(dict.fromkeys(share.partition for share, _ in parts))
    sequences = [share.records.order + begin.sequence for share, begin in parts]
    clocks = [begin.clock_at(share) for share, begin in parts]
    whole = np.concatenate(sequences)
    by_sequence = np.argsort(whole, kind="stable")
    order = np.empty(len(whole), dtype=np.int64)
    order[by_sequence] = np.arange(len(whole))
    ends = np.cumsum([len(sequence) for sequence in sequences])[:-1]
    ordered = [
        (replace(share.records, order=own), partitions.index(share.partition))
        for (share, _), own in zip(parts, np.split(order, ends), strict=True)
    ]
    batches = [
        replace(part, partition=np.full(len(part), partition, dtype=np.int64))
        for part, partition in ordered
        if isinstance(part, Batch)
    ]
    labels = [part for part, _ in ordered if isinstance(part, LabelBatch)]
    return Chunk(
        source=source,
        batches=(_one(batches),) if batches else (),
        labels=(reduce(merged, labels),) if labels else (),
        partitions=partitions,
        answers=sum(map(len, batches)),
        labels_received=sum(map(len, labels)),
        within=Within(whole[by_sequence], np.concatenate(clocks)[by_sequence]),
    )


def _one(batches: Sequence[Batch]) -> Batch:
    """Return several batches of one task as one batch, in the order of their records."""
    if len(batches) == 1:
        return batches[0]
    by_order = np.argsort(np.concatenate([batch.order for batch in batches]), kind="stable")
    columns = {
        each.name: _rows_of(np.concatenate([getattr(batch, each.name) for batch in batches]), by_order)
        for each in fields(Batch)
        if isinstance(getattr(batches[0], each.name), np.ndarray)
    }
    models, columns["model"] = unite_names([(b.models, b.model) for b in batches], by_order)
    _, columns["other"] = unite_names([(b.models, b.other) for b in batches], by_order)
    versions, columns["version"] = unite_names([(b.versions, b.version) for b in batches], by_order)
    names = dict.fromkeys(name for batch in batches for name in batch.groups)
    groups = {
        name: unite_names([b.groups.get(name, ((), np.full(len(b), -1))) for b in batches], by_order)
        for name in names
    }
    return Batch(task=batches[0].task, models=models, versions=versions, groups=groups, **columns)
