"""The second stage of a stream on the executors: the engine of each unit computes one batch from its state.

The order of a unit's records does not depend on the executors that read them: the records are sorted by the
time of their messages in Kafka. If this time decreases within a partition, the largest time so far counts, so
that the order of the partition is kept.
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
from monitor.parallel.partitioning import Begin, joined
from monitor.parallel.planning import Unit, settings_of
from monitor.reports.views import EngineView
from monitor.reports.window_report import to_json

_BYTES_AT_ONCE = 4 << 20
_FIRST = Begin(0, -np.inf)


@dataclass(frozen=True, slots=True)
class Stepping:
    """The plan of the second stage for one batch: its units (models or tasks) and their earlier states.

    Parameters
    ----------
    batch : int
    units : tuple of Unit
        The units with records in the batch or with windows that are due.
    begins : mapping of int to str
        The file of the state before the batch, by the number of the unit; a new unit has no file.
    folder : str
        The folder of the states.
    clock : float
        The time of the stream, which closes the due windows of every model.
    turn : int
        0 for a batch of records; otherwise the number of turns since the batch. A turn advances the stream's
        time without records.
    """

    batch: int
    units: tuple[Unit, ...]
    begins: Mapping[int, str]
    folder: str
    clock: float = -np.inf
    turn: int = 0


@dataclass(frozen=True, slots=True)
class Stepped:
    """The state of a unit (one model or a whole task) after a batch.

    Parameters
    ----------
    unit : int
    state : str
        The name of the file with the state.
    view : EngineView
    due : float
        The time of the stream after which the unit must be computed even without records; inf for never.
    """

    unit: int
    state: str
    view: EngineView
    due: float


def step_units(stream: Any, stepping: Any, batches: Iterator[Any]) -> Iterator[Any]:
    """Compute units from their parts of a batch; return lines and states. For use with `mapInArrow`.

    Parameters
    ----------
    stream, stepping : Broadcast of Stream and of Stepping
    batches : iterator of pyarrow.RecordBatch
        The parts, sorted by unit, with the columns `unit`, `split`, `number` and `data`.
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
    """Yield the lines of one unit's reports in order, and then its saved state after the batch (`Stepped`).

    Parameters
    ----------
    stream : Stream
    stepping : Stepping
    number : int
        The number of the unit.
    parts : iterable of MessagePart
        The records in any order; empty if only the time advances.
    """
    unit, folder, parts = stepping.units[number], Path(stepping.folder), list(parts)
    engine = engine_of(stream, unit, folder, stepping.begins.get(number))
    reports = engine.absorb(in_order(parts, stream.source.label), 0.0) if parts else []
    reports += engine.tick(0.0, stepping.clock)
    for place, report in enumerate(reports):
        names = report.task, report.model, report.group
        yield LineRow(0, 0, 0, 0, *names, place, to_json(report))
    state = write_state(folder, unit, f"{stepping.batch}-{stepping.turn}", engine.snapshot())
    ended = packed(Stepped(number, state, engine.view(), due_of(engine, stepping.clock)))
    yield LineRow(0, ENDED_UNIT, 0, 0, unit.task, unit.model or "", "", 0, ended)


def due_of(engine: Engine, clock: float) -> float:
    """Return the time after which the engine must be computed even without records.

    At this time, a window closes by age, or a model may begin to count as silent.
    """
    states = {(one.model, one.group): one.state for one in engine.view().series}
    times = [engine.closes_at]
    for series in (each for of_task in engine.series.values() for each in of_task):
        if states[series.settings.model, series.settings.group] != "silent":
            times.append(clock + series.settings.task.window.max_age_seconds)
    return min(times)


def engine_of(stream: Stream, unit: Unit, folder: Path, state: str | None) -> Engine:
    """Return the engine of a unit, restored from a saved state; a new engine if `state` is None."""
    resume = None if state is None else read_state(folder, state)
    return settings_of(stream.settings, unit).build(resume)


def in_order(parts: list[MessagePart], source: str) -> Chunk:
    """Return the parts of a unit as one chunk. Records without a time get the time of their message.

    Parameters
    ----------
    parts : list of MessagePart
        One or more parts of one task, in any order.
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
    # The engine sees all of its stream here, so it can use its own clock.
    return replace(joined(shares, source), within=None)
