"""The second stage of a replay on the executors: one engine for each model or task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Any

from connectors.spark.job import (
    ENDED_UNIT,
    LINES,
    Computing,
    Job,
    LineRow,
    as_arrow,
    begin_task,
    packed,
    unpacked,
)
from monitor.engine.engine import Engine
from monitor.engine.report_order import OrderedReport
from monitor.parallel.partitioning import Begin, Partition, joined
from monitor.parallel.planning import settings_of
from monitor.reports.views import EngineView
from monitor.reports.window_report import to_json

_ROWS_AT_ONCE = 65_536  # some hundred windows of one model, which are evaluated in one call
_BYTES_AT_ONCE = 4 << 20


@dataclass(frozen=True, slots=True)
class Ended:
    """The result of a unit. A unit is one model or a whole task.

    Parameters
    ----------
    unit : int
        The number of the unit.
    view : EngineView
        The view of the unit's engine.
    labelled : mapping
        The numbers of labelled and of correct rows of each window, from `Engine.labelled`.
    waiting : mapping
        The keys of labels whose answers have not arrived yet, by task.
    windows : int
        The number of reports. Revisions of reports by later labels do not count.
    line_bytes : int
        The size of all lines of reports, in bytes.
    """

    unit: int
    view: EngineView
    labelled: Any
    waiting: Any
    windows: int
    line_bytes: int


def compute_units(job: Any, computing: Any, batches: Iterator[Any]) -> Iterator[Any]:
    """Compute models or tasks from their records; return the lines of reports. For use with `mapInArrow`.

    Parameters
    ----------
    job, computing : Broadcast of Job and of Computing
    batches : iterator of pyarrow.RecordBatch
        The blocks, sorted by the columns `unit`, `split` and `number`; the column `data` has the share.
    """
    begin_task()
    rows = chain.from_iterable(_rows(batch) for batch in batches)
    by_unit = groupby(rows, key=lambda row: row[0])
    lines = chain.from_iterable(
        lines_of(job.value, computing.value, unit, ((row[1:]) for row in blocks)) for unit, blocks in by_unit
    )
    return as_arrow(lines, LINES, _BYTES_AT_ONCE)


def _rows(batch: Any) -> Iterator[tuple[int, int, int, bytes]]:
    units, splits, numbers = (batch.column(i).to_pylist() for i in range(3))
    data = batch.column(3)
    for i, place in enumerate(zip(units, splits, numbers, strict=True)):
        yield (*place, data[i].as_py())


def lines_of(
    job: Job, computing: Computing, number: int, blocks: Iterable[tuple[int, int, bytes]]
) -> Iterator[LineRow]:
    """Yield the lines of one unit's reports in order, then its result (`Ended`).

    Parameters
    ----------
    job : Job
    computing : Computing
    number : int
        The number of the unit.
    blocks : iterable of (split, number, data)
        The blocks in the order of the stream; blocks of the same chunk may be in any order.
    """
    unit = computing.units[number]
    engine = settings_of(job.settings, unit).build()
    tasks = list(job.settings.tasks)
    windows = size = 0
    for place, line in enumerate(_lines(engine, _steps(blocks, computing.begins))):
        row = _row(line, tasks, place)
        windows += not line.report.revision
        size += len(row.line)
        yield row
    ended = Ended(number, engine.view(), engine.labelled(), engine.waiting_labels(), windows, size)
    yield LineRow(0, ENDED_UNIT, 0, 0, unit.task, unit.model or "", "", 0, packed(ended))


def _steps(
    blocks: Iterable[tuple[int, int, bytes]], begins: Sequence[Begin]
) -> Iterator[list[tuple[Partition, Begin]]]:
    """Yield lists of shares to be computed at once: whole chunks with enough rows together."""
    pending: list[tuple[Partition, Begin]] = []
    rows = 0
    for (split, _), of_chunk in groupby(blocks, key=lambda block: block[:2]):
        if rows >= _ROWS_AT_ONCE:
            yield pending
            pending, rows = [], 0
        for *_, data in of_chunk:
            share: Partition = unpacked(data)
            pending.append((share, begins[split]))
            rows += len(share)
    if pending:
        yield pending


def _lines(engine: Engine, steps: Iterable[list[tuple[Partition, Begin]]]) -> Iterator[OrderedReport]:
    for step in steps:
        yield from engine.take(joined(step, "spark"), 0.0)
    yield from engine.end()


def _row(line: OrderedReport, tasks: Sequence[str], number: int) -> LineRow:
    place = line.position
    order = place.sequence, int(place.phase), place.task_number(tasks), place.closed_at
    return LineRow(*order, place.task, place.model, place.group, number, to_json(line.report))
