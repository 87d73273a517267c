"""The driver's side of a replay on Spark: two stages, and the lines of the second in the order of the stream.

1. Each split is read, decoded and shared out by model (`reading`); the blocks stay on the executors' disks.
2. The driver learns where in the stream each split begins, and so the clock at each record of it.
3. Blocks go to the partition of their unit, sorted; each unit's engine takes them (`computing`).
4. The lines, sorted by their places, come to the driver a partition at a time, and into its files.

A lost executor loses blocks, and lines that were not fetched: Spark reads those splits, computes those units
again, to the same bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from connectors.spark.computing import Ended, compute_units
from connectors.spark.job import BLOCKS, ENDED_UNIT, LINES, BlockKind, Computing, Job, unpacked
from connectors.spark.reading import read_splits
from monitor.engine.partitioning import begins
from monitor.engine.planning import (
    Facts,
    Unit,
    kept,
    notes_of,
    rows_of,
    spread,
    too_many,
    units_of,
    why_whole,
)
from monitor.export.sinks.rejects_file import Rejected

_LINES_AT_ONCE = 64 << 20  # bytes that the driver fetches at a time
_BLOCKS_AT_ONCE = 32 << 20  # bytes that an executor's Python is handed at a time
_PARTITIONS_A_CORE = 3
ROWS_AT_ONCE = "spark.sql.execution.arrow.maxRecordsPerBatch"
"""Spark's setting of how many rows a Python is handed at a time, whatever their size."""

_WORD = (1 << 32) - 1
_BLOCK = ("unit", "split", "number", "data")
_ORDER = ("sequence", "stage", "ended", "closed_at", "task", "model", "group", "number")


@dataclass(frozen=True, slots=True)
class SparkReplay:
    """What became of a replay; its lines and rejects can be read for as long as the session is there.

    Parameters
    ----------
    facts : list of Facts
        By split.
    ended : list of Ended
        By unit.
    units : list of Unit
    notes : list of str
        What whoever runs it should know, as sentences.
    """

    facts: list[Facts]
    ended: list[Ended]
    units: list[Unit]
    notes: list[str]
    _lines: Any = field(repr=False)
    _blocks: Any = field(repr=False)

    def lines(self) -> Iterator[bytes]:
        """Every line of the reports, in the order in which one process would write them."""
        if self._lines is None:
            return
        rows = self._lines.filter(f"stage != {ENDED_UNIT}")
        parts = 1 + sum(unit.line_bytes for unit in self.ended) // _LINES_AT_ONCE
        rows = rows.coalesce(1) if parts == 1 else rows.repartitionByRange(parts, *_ORDER)
        for row in rows.sortWithinPartitions(*_ORDER).select("line").toLocalIterator():
            yield bytes(row.line)

    def rejects(self) -> Iterator[Rejected]:
        """Every record that could not be used, in the order of the input."""
        rows = (
            self._blocks.filter(f"kind = {int(BlockKind.REJECTS)}").orderBy("split", "number").select("data")
        )
        for row in rows.toLocalIterator():
            yield from unpacked(bytes(row.data))


def replayed(session: Any, job: Job) -> SparkReplay:
    """Read everything and compute everything; the lines stay with the executors until they are asked for."""
    from pyspark import StorageLevel

    told = session.sparkContext.broadcast(job)
    numbers = session.range(0, len(job.splits), 1, max(len(job.splits), 1))
    blocks = numbers.mapInArrow(partial(read_splits, told), BLOCKS).persist(StorageLevel.DISK_ONLY)
    facts = _facts(blocks, len(job.splits))
    starts = tuple(begins([each.stretch for each in facts], lambda number: _times(blocks, number)))
    whole = why_whole(job.settings, facts)
    while True:
        units = units_of(facts, whole)
        lines, ended = None, []
        if units:
            computing = session.sparkContext.broadcast(Computing(tuple(units), starts))
            sorted_blocks = by_unit(
                session, blocks, units, rows_of(facts), max(each.largest for each in facts)
            )
            computed = sorted_blocks.mapInArrow(partial(compute_units, told, computing), LINES)
            lines = computed.persist(StorageLevel.DISK_ONLY)
            ended = _ended(lines)
        more = _overfull(job, facts, units, ended, whole)
        if not more:
            break
        whole |= more
    notes = notes_of(units, whole, session.sparkContext.defaultParallelism)
    return SparkReplay(facts, ended, units, notes, lines, blocks)


def _facts(blocks: Any, splits: int) -> list[Facts]:
    rows = blocks.filter(f"kind = {int(BlockKind.FACTS)}").select("split", "data").collect()
    found = {row.split: unpacked(bytes(row.data)) for row in rows}
    return [found[number] for number in range(splits)]


def _times(blocks: Any, number: int) -> Any:
    rows = blocks.filter(f"kind = {int(BlockKind.TIMES)} and split = {number}").select("data").collect()
    return unpacked(bytes(rows[0].data))


def _ended(lines: Any) -> list[Ended]:
    rows = lines.filter(f"stage = {ENDED_UNIT}").select("line").collect()
    return sorted((unpacked(bytes(row.line)) for row in rows), key=lambda ended: ended.unit)


def by_unit(
    session: Any, blocks: Any, units: Sequence[Unit], rows: Mapping[tuple[str, str], int], largest: int
) -> Any:
    """Shares in the partition of their unit, in the order of the stream; labels go to each of a task's."""
    from pyspark.sql import functions as f

    parts = min(len(units), _PARTITIONS_A_CORE * session.sparkContext.defaultParallelism)
    keys = keys_of(parts)
    targets = _targets(units, rows, [keys[part] for part in spread(units, parts)])
    routes = session.createDataFrame(targets, "task string, model string, own string, unit int, key int")
    # One that came along with an answer is with that answer's model already; `own` is "" of a whole task.
    elsewhere = (f.col("besides") == "") | ((f.col("own") != "") & (f.col("besides") != f.col("own")))
    shares = blocks.filter(f"kind = {int(BlockKind.SHARE)}").join(f.broadcast(routes), ["task", "model"])
    session.conf.set(ROWS_AT_ONCE, max(1, _BLOCKS_AT_ONCE // max(largest, 1)))
    spread_out = shares.filter(elsewhere).select(*_BLOCK, "key").repartition(parts, "key")
    return spread_out.sortWithinPartitions("unit", "split", "number").select(*_BLOCK)


def _targets(
    units: Sequence[Unit], rows: Mapping[tuple[str, str], int], keys: Sequence[int]
) -> list[tuple[str, str, str, int, int]]:
    """Task and model of shares, and the unit and key to which they go: those of labels to each of a task's.

    Between them stands the model of the unit to which labels go; "" of a whole task, and for answers.
    """
    number = {(unit.task, unit.model): i for i, unit in enumerate(units)}
    answers = []
    for task, model in rows:
        i = number[(task, None) if (task, None) in number else (task, model)]
        answers.append((task, model, "", i, keys[i]))
    labels = [(unit.task, "", unit.model or "", i, keys[i]) for i, unit in enumerate(units)]
    return list(dict.fromkeys(answers + labels))  # both of an arena have no model


def keys_of(parts: int) -> list[int]:
    """A number for each partition that Spark, by its hash, sends there.

    Examples
    --------
    >>> [spark_hash(key) % 3 for key in keys_of(3)]
    [0, 1, 2]
    """
    found: dict[int, int] = {}
    key = 0
    while len(found) < parts:
        found.setdefault(spark_hash(key) % parts, key)
        key += 1
    return [found[part] for part in range(parts)]


def spark_hash(value: int) -> int:
    """What Spark's `hash` gives of an `int`: MurmurHash3 for 32 bits (Appleby 2011) of its bytes, from 42.

    Examples
    --------
    >>> spark_hash(1)
    -559580957
    """
    mixed = _turned(value * 0xCC9E2D51, 15) * 0x1B873593 & _WORD
    found = (_turned(42 ^ mixed, 13) * 5 + 0xE6546B64) & _WORD ^ 4
    found = (found ^ found >> 16) * 0x85EBCA6B & _WORD
    found = (found ^ found >> 13) * 0xC2B2AE35 & _WORD
    found ^= found >> 16
    return found - (found >> 31 << 32)


def _turned(word: int, by: int) -> int:
    word &= _WORD
    return (word << by | word >> 32 - by) & _WORD


def _overfull(
    job: Job, facts: Sequence[Facts], units: Sequence[Unit], ended: Sequence[Ended], whole: Mapping[str, str]
) -> dict[str, str]:
    """Tasks that turned out to have closed more windows than are kept, which one engine would let go of."""
    windows: Counter[str] = Counter()
    rows: Counter[str] = Counter()
    for unit, found in zip(units, ended, strict=True):
        windows[unit.task] += found.windows
    for (task, _), count in rows_of(facts).items():
        rows[task] += count
    labels = sum((each.labels for each in facts), Counter[str]())
    return {
        task: too_many(job.settings, task, rows[task])
        for task, count in windows.items()
        if task not in whole and labels[task] and count > kept(job.settings, task)
    }
