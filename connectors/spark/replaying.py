"""The driver of a replay on Spark, which runs two stages and writes the lines of the second stage in order.

1. Executors read and decode each split, and partition the records by model (`reading`); the blocks stay on
   the disks of the executors.
2. The driver computes the start of each split in the stream, and from it the clock at each record.
3. Spark moves the blocks to the partition of their unit and sorts them, and the engine of each unit computes
   its blocks (`computing`).
4. The driver fetches the sorted lines, a partition at a time, and writes its files.

If an executor is lost with its blocks and lines, Spark reads the same splits and computes the same units
again. The result has the same bytes.
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
from monitor.export.sinks.rejects_file import Rejected
from monitor.parallel.partitioning import begins
from monitor.parallel.planning import (
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

_LINES_AT_ONCE = 64 << 20  # bytes that the driver fetches at once
_BLOCKS_AT_ONCE = 32 << 20  # bytes that an executor's Python gets at once
_PARTITIONS_A_CORE = 3
ROWS_AT_ONCE = "spark.sql.execution.arrow.maxRecordsPerBatch"
"""Spark's setting for the number of rows that a Python process gets at once, whatever their size."""

_WORD = (1 << 32) - 1
_BLOCK = ("unit", "split", "number", "data")
_ORDER = ("sequence", "stage", "ended", "closed_at", "task", "model", "group", "number")


@dataclass(frozen=True, slots=True)
class SparkReplay:
    """The result of a replay. Its lines and rejects can be read until the session ends.

    Parameters
    ----------
    facts : list of Facts
        The facts of each split.
    ended : list of Ended
        The result of each unit.
    units : list of Unit
    notes : list of str
        Sentences for the user.
    """

    facts: list[Facts]
    ended: list[Ended]
    units: list[Unit]
    notes: list[str]
    _lines: Any = field(repr=False)
    _blocks: Any = field(repr=False)

    def lines(self) -> Iterator[bytes]:
        """Yield every line of the reports, in the order of a replay in one process."""
        if self._lines is None:
            return
        rows = self._lines.filter(f"stage != {ENDED_UNIT}")
        parts = 1 + sum(unit.line_bytes for unit in self.ended) // _LINES_AT_ONCE
        rows = rows.coalesce(1) if parts == 1 else rows.repartitionByRange(parts, *_ORDER)
        for row in rows.sortWithinPartitions(*_ORDER).select("line").toLocalIterator():
            yield bytes(row.line)

    def rejects(self) -> Iterator[Rejected]:
        """Yield every rejected record in the order of the input."""
        rows = (
            self._blocks.filter(f"kind = {int(BlockKind.REJECTS)}").orderBy("split", "number").select("data")
        )
        for row in rows.toLocalIterator():
            yield from unpacked(bytes(row.data))


def replayed(session: Any, job: Job) -> SparkReplay:
    """Run a replay, and return its result. The lines stay on the executors until they are read."""
    from pyspark import StorageLevel

    shared = session.sparkContext.broadcast(job)
    numbers = session.range(0, len(job.splits), 1, max(len(job.splits), 1))
    blocks = numbers.mapInArrow(partial(read_splits, shared), BLOCKS).persist(StorageLevel.DISK_ONLY)
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
            computed = sorted_blocks.mapInArrow(partial(compute_units, shared, computing), LINES)
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
    by_split = {row.split: unpacked(bytes(row.data)) for row in rows}
    return [by_split[number] for number in range(splits)]


def _times(blocks: Any, number: int) -> Any:
    rows = blocks.filter(f"kind = {int(BlockKind.TIMES)} and split = {number}").select("data").collect()
    return unpacked(bytes(rows[0].data))


def _ended(lines: Any) -> list[Ended]:
    rows = lines.filter(f"stage = {ENDED_UNIT}").select("line").collect()
    return sorted((unpacked(bytes(row.line)) for row in rows), key=lambda ended: ended.unit)


def by_unit(
    session: Any, blocks: Any, units: Sequence[Unit], rows: Mapping[tuple[str, str], int], largest: int
) -> Any:
    """Return a DataFrame of the shares, each in the Spark partition of its unit.

    Within a partition, the shares are sorted by unit, and then in the order of the stream.

    The labels of a task are copied to every unit of the task.

    Parameters
    ----------
    session : pyspark.sql.SparkSession
    blocks : pyspark.sql.DataFrame
        The blocks of the first stage, with the columns of `Block`.
    units : sequence of Unit
    rows : mapping of (str, str) to int
        The tasks and models of the answers; the numbers are not used.
    largest : int
        The size of the largest share in bytes.
    """
    from pyspark.sql import functions as f

    parts = min(len(units), _PARTITIONS_A_CORE * session.sparkContext.defaultParallelism)
    keys = keys_of(parts)
    targets = _targets(units, rows, [keys[part] for part in spread(units, parts)])
    routes = session.createDataFrame(targets, "task string, model string, own string, unit int, key int")
    # A label beside an answer is in the share of the answer's model already; `own` is "" for a whole task.
    elsewhere = (f.col("besides") == "") | ((f.col("own") != "") & (f.col("besides") != f.col("own")))
    shares = blocks.filter(f"kind = {int(BlockKind.SHARE)}").join(f.broadcast(routes), ["task", "model"])
    session.conf.set(ROWS_AT_ONCE, max(1, _BLOCKS_AT_ONCE // max(largest, 1)))
    spread_out = shares.filter(elsewhere).select(*_BLOCK, "key").repartition(parts, "key")
    return spread_out.sortWithinPartitions("unit", "split", "number").select(*_BLOCK)


def _targets(
    units: Sequence[Unit], rows: Mapping[tuple[str, str], int], keys: Sequence[int]
) -> list[tuple[str, str, str, int, int]]:
    """Return the routes of shares: task, model, own model, unit and key.

    The shares of labels, without a model, go to each unit of their task, whose model is the own model; it is
    "" for a whole task and for answers.
    """
    number = {(unit.task, unit.model): i for i, unit in enumerate(units)}
    answers = []
    for task, model in rows:
        i = number[(task, None) if (task, None) in number else (task, model)]
        answers.append((task, model, "", i, keys[i]))
    labels = [(unit.task, "", unit.model or "", i, keys[i]) for i, unit in enumerate(units)]
    return list(dict.fromkeys(answers + labels))  # answers of a whole task have no model either


def keys_of(parts: int) -> list[int]:
    """Return a number for each Spark partition, so that Spark's hash of the number selects the partition.

    Examples
    --------
    >>> [spark_hash(key) % 3 for key in keys_of(3)]
    [0, 1, 2]
    """
    key_of_part: dict[int, int] = {}
    key = 0
    while len(key_of_part) < parts:
        key_of_part.setdefault(spark_hash(key) % parts, key)
        key += 1
    return [key_of_part[part] for part in range(parts)]


def spark_hash(value: int) -> int:
    """Return the result of Spark's `hash` of an `int`: 32-bit MurmurHash3 (Appleby 2011) with seed 42.

    Examples
    --------
    >>> spark_hash(1)
    -559580957
    """
    mixed = _turned(value * 0xCC9E2D51, 15) * 0x1B873593 & _WORD
    digest = (_turned(42 ^ mixed, 13) * 5 + 0xE6546B64) & _WORD ^ 4
    digest = (digest ^ digest >> 16) * 0x85EBCA6B & _WORD
    digest = (digest ^ digest >> 13) * 0xC2B2AE35 & _WORD
    digest ^= digest >> 16
    return digest - (digest >> 31 << 32)


def _turned(word: int, by: int) -> int:
    word &= _WORD
    return (word << by | word >> 32 - by) & _WORD


def _overfull(
    job: Job, facts: Sequence[Facts], units: Sequence[Unit], ended: Sequence[Ended], whole: Mapping[str, str]
) -> dict[str, str]:
    """Return the tasks with more closed windows than an engine keeps, and why each must be computed whole."""
    windows: Counter[str] = Counter()
    rows: Counter[str] = Counter()
    for unit, result in zip(units, ended, strict=True):
        windows[unit.task] += result.windows
    for (task, _), count in rows_of(facts).items():
        rows[task] += count
    labels = sum((each.labels for each in facts), Counter[str]())
    return {
        task: too_many(job.settings, task, rows[task])
        for task, count in windows.items()
        if task not in whole and labels[task] and count > kept(job.settings, task)
    }
