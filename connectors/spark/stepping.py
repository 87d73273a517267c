"""The second stage of a stream, on the executors: each unit's engine goes on from its state by one batch.

A unit's records are taken in one order, whichever executor reads what: by the time that Kafka holds of their
messages, which counts as never falling within a partition, so that a partition's own order always holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import numpy as np

from connectors.spark.job import ENDED_UNIT, LINES, LineRow, as_arrow, begin_task, packed, unpacked
from connectors.spark.ledger import read_state, write_state
from connectors.spark.messages import MessagePart, Stream
from monitor.base.records import Chunk
from monitor.engine.engine import Engine
from monitor.engine.partitioning import Begin, joined
from monitor.engine.planning import Unit, settings_of
from monitor.reports.views import EngineView
from monitor.reports.window_report import to_json

_BYTES_AT_ONCE = 4 << 20
_FIRST = Begin(0, -np.inf)


@dataclass(frozen=True, slots=True)
class Stepping:
    """What the stage is told of a batch.

    Parameters
    ----------
    batch : int
    units : tuple of Unit
        That have records in it, or windows that are old by now.
    begins : mapping of int to str
        By the unit's number, the file of the state from which it goes on; none for one that begins.
    folder : str
        Of the states.
    clock : float
        The time of the stream, which has passed for every model; by it their windows age.
    turn : int
        0 for a batch of records; counts how often time passed without any since.
    """

    batch: int
    units: tuple[Unit, ...]
    begins: Mapping[int, str]
    folder: str
    clock: float = -np.inf
    turn: int = 0


@dataclass(frozen=True, slots=True)
class Stepped:
    """Where a unit stands after a batch.

    Parameters
    ----------
    unit : int
    state : str
        The file of its state.
    view : EngineView
    due : float
        The clock's time past which it has something to do although nothing came; infinite for never.
    """

    unit: int
    state: str
    view: EngineView
    due: float


def step_units(stream: Any, stepping: Any, batches: Iterator[Any]) -> Iterator[Any]:
    """Lines of the units whose parts come sorted by unit, and where each stands; for `mapInArrow`.

    Parameters
    ----------
    stream, stepping : Broadcast of Stream and of Stepping
    batches : iterator of pyarrow.RecordBatch
        With the columns `unit`, `split`, `number` and `data`.
    """
    begin_task()
    rows = chain.from_iterable(
        zip(batch.column(0).to_pylist(), batch.column(3).to_pylist(), strict=True) for batch in batches
    )
    lines = chain.from_iterable(
        lines_of(stream.value, stepping.value, number, (unpacked(data) for _, data in of_unit if data))
        for number, of_unit in groupby(rows, key=lambda row: row[0])
    )
    return as_arrow(lines, LINES, _BYTES_AT_ONCE)


def lines_of(
    stream: Stream, stepping: Stepping, number: int, parts: Iterable[MessagePart]
) -> Iterator[LineRow]:
    """The lines that a batch brings of one unit, in their order; then where it stands, its state saved.

    Parameters
    ----------
    stream : Stream
    stepping : Stepping
    number : int
        Of the unit.
    parts : iterable of MessagePart
        In any order; none for time alone to pass.
    """
    unit, folder, parts = stepping.units[number], Path(stepping.folder), list(parts)
    engine = begun(stream, unit, folder, stepping.begins.get(number))
    reports = engine.absorb(in_order(parts, stream.source.label), 0.0) if parts else []
    reports += engine.tick(0.0, stepping.clock)
    for place, report in enumerate(reports):
        names = report.task, report.model, report.group
        yield LineRow(0, 0, 0, 0, *names, place, to_json(report))
    state = write_state(folder, unit, f"{stepping.batch}-{stepping.turn}", engine.snapshot())
    ended = packed(Stepped(number, state, engine.view(), due_of(engine, stepping.clock)))
    yield LineRow(0, ENDED_UNIT, 0, 0, unit.task, unit.model or "", "", 0, ended)


def due_of(engine: Engine, clock: float) -> float:
    """When time alone will change something: a window grows old, or a model may have fallen silent."""
    states = {(one.model, one.group): one.state for one in engine.view().series}
    found = [np.inf, *(arena.closes_at for arena in engine.arenas.values())]
    for series in (each for of_task in engine.series.values() for each in of_task):
        found.append(series.open_window[0].closes_at)
        if states[series.settings.model, series.settings.group] != "silent":
            found.append(clock + series.settings.task.window.max_age_seconds)
    return min(found)


def begun(stream: Stream, unit: Unit, folder: Path, state: str | None) -> Engine:
    """A unit's engine as of a state, or as it begins."""
    resume = None if state is None else read_state(folder, state)
    return settings_of(stream.settings, unit).build(resume)


def in_order(parts: list[MessagePart], source: str) -> Chunk:
    """A unit's parts of a batch as one chunk; a record that names no time has that of its message.

    Parameters
    ----------
    parts : list of MessagePart
        Of one task, one or more, in any order.
    source : str
    """
    names = sorted({part.share.partition for part in parts})
    sizes = [len(part) for part in parts]
    partition = np.repeat([names.index(part.share.partition) for part in parts], sizes)
    offset = np.concatenate([part.offset for part in parts])
    within = np.concatenate([part.share.records.order for part in parts])
    stamp = np.concatenate([part.stamp for part in parts])
    by_time = np.lexsort((within, offset, partition, stamp))
    rank = np.empty(len(by_time), dtype=np.int64)
    rank[by_time] = np.arange(len(by_time))
    places = np.split(rank, np.cumsum(sizes)[:-1])
    shares = []
    for part, order in zip(parts, places, strict=True):
        records = replace(part.share.records, order=order, time=part.time)
        shares.append((replace(part.share, records=records), _FIRST))
    # One engine sees all of its stream here, and so reads its own clock.
    return replace(joined(shares, source), within=None)
