"""The driver of a stream on Spark, which commits each batch from Kafka once.

1. Spark logs the offsets of a batch first, so that a repeated batch has the same records.
2. Executors decode the messages and partition the records by model (`messages`). The engine of each unit
   continues from its state after the last batch, and writes its new state to another file (`stepping`).
3. The windows become one file, named after the batch; then the batch is committed (`ledger`).

An interrupted batch is computed again. The second attempt writes the same states and the same file under the
same names. If Spark repeats a batch that was committed, the batch is ignored.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any

from connectors.build import long_names, names_in
from connectors.spark.job import BLOCKS, ENDED_UNIT, LINES, BlockKind, unpacked
from connectors.spark.ledger import SPARK, CheckpointLedger, Committed, Turn, UnitState, counted
from connectors.spark.messages import MESSAGES, Stream, read_messages
from connectors.spark.reader_options import reader_options
from connectors.spark.replaying import ROWS_AT_ONCE, by_unit
from connectors.spark.stepping import Stepped, Stepping, engine_of, step_units
from monitor.export.sinks.destination import Mark
from monitor.export.sinks.rejects_file import Rejected
from monitor.parallel.planning import Facts, Unit, rows_of
from monitor.reports.views import EngineView

SEED = "\0"
"""The model name of the unit that keeps only a task's labels; new models of the task start from its state."""


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """The output of a batch of messages.

    Parameters
    ----------
    number : int
    lines : list of bytes
        The lines of reports by task and model, in order of time for each model.
    rejects : list of Rejected
    first : int
        The number of the first line, counted from 1 over the stream.
    turn : int
        0 for a batch of records; otherwise the number of turns since the batch. A turn advances the stream's
        time without records: see `Steps.pass_time`.
    """

    number: int
    lines: list[bytes]
    rejects: list[Rejected]
    first: int = 1
    turn: int = 0


@dataclass(slots=True)
class Steps:
    """Computes and commits the batches of a stream, one after another.

    Parameters
    ----------
    stream : Stream
    ledger : CheckpointLedger
    deliver : callable
        A function that writes the output of a batch durably, under names with the number of the batch. It is
        called before the commit, and again with the same batch if the commit fails. Its result is committed
        as `Committed.marks`.
    done : callable
        A function that is called with each batch after its commit.
    views : dict of (task, model) to EngineView
        The view of each unit after its last batch.
    """

    stream: Stream
    ledger: CheckpointLedger
    deliver: Callable[[MicroBatch], Mapping[str, Mark]]
    done: Callable[[MicroBatch], None]
    views: dict[tuple[str, str | None], EngineView] = field(default_factory=dict)
    _one: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __post_init__(self) -> None:
        for one in self.ledger.committed.units:
            engine = engine_of(self.stream, Unit(one.task, one.model, 0), self.ledger.states, one.state)
            self.views[one.task, one.model] = engine.view()
        names = chain.from_iterable(map(names_in, self.views.values()))
        self.stream = replace(self.stream, long_names=long_names(names))

    def take(self, messages: Any, number: int) -> None:
        """Compute and commit a batch. For use with `foreachBatch`.

        Parameters
        ----------
        messages : pyspark.sql.DataFrame
            The messages, with the columns `messages.MESSAGES`.
        number : int
        """
        from pyspark import StorageLevel

        if self.ledger.is_done(number):
            return
        session = messages.sparkSession
        shared = session.sparkContext.broadcast(self.stream)
        messages_at_once = session.conf.get(ROWS_AT_ONCE)
        blocks = messages.mapInArrow(partial(read_messages, shared), BLOCKS).persist(StorageLevel.DISK_ONLY)
        try:
            with self._one:
                facts = [unpacked(bytes(row.data)) for row in _of_kind(blocks, BlockKind.FACTS).collect()]
                rejects = _of_kind(blocks, BlockKind.REJECTS).collect()
                new, touched, rows = self._planned(number, facts)
                stepping = self._stepping(new, touched)
                largest = max((each.largest for each in facts), default=0)
                parts = by_unit(session, blocks, stepping.units, rows, largest) if touched else None
                lines, stepped = self._computed(session, shared, stepping, parts, len(touched))
                rejected = [one for row in rejects for one in unpacked(bytes(row.data))]
                self._finish(new, stepping, stepped, lines, rejected)
        finally:
            session.conf.set(ROWS_AT_ONCE, messages_at_once)  # the session is used again for the next batch
            blocks.unpersist()
            shared.unpersist()

    def pass_time(self, session: Any, clock: float) -> bool:
        """Advance the stream's time without records, and compute and commit the units that are then due.

        Such an advance is called a turn. It is saved first, so that `redo` can repeat an interrupted turn.

        Returns
        -------
        bool
            True if a turn was committed; False if no unit is due, or a batch is being computed.
        """
        if not self._one.acquire(blocking=False):
            return False
        try:
            return bool(_due(self.ledger.committed, clock)) and self._turned(
                session, self.ledger.intend(clock)
            )
        finally:
            self._one.release()

    def redo(self, session: Any) -> bool:
        """Compute a turn again if `pass_time` was interrupted in it, and return whether there was one.

        A turn is an advance of the stream's time without records.
        """
        turn = self.ledger.intended()
        return turn is not None and self._turned(session, turn)

    def _turned(self, session: Any, turn: Turn) -> bool:
        new = replace(self.ledger.committed, turn=turn.turn, clock=turn.clock, time=time.time())
        shared = session.sparkContext.broadcast(self.stream)
        stepping = self._stepping(new, [])
        lines, stepped = self._computed(session, shared, stepping, None, 0)
        shared.unpersist()
        self._finish(new, stepping, stepped, lines, [])
        return True

    def _planned(
        self, number: int, facts: list[Facts]
    ) -> tuple[Committed, list[Unit], dict[tuple[str, str], int]]:
        """Return the next commit without states, the units with records, and their numbers of answers."""
        before = self.ledger.committed
        known = before.states
        rows = dict(sorted(rows_of(facts).items()))
        dropped = _beyond(self.stream, rows, known)
        shed = sum(rows.pop(name) for name in dropped)
        labelled = {task for each in facts for task, n in each.labels.items() if n}
        newest = max([-math.inf if before.clock is None else before.clock, *(each.newest for each in facts)])
        new = replace(
            before,
            batch=number,
            turn=0,
            clock=newest if newest > -math.inf else None,
            time=time.time(),
            dropped=sorted({*before.dropped, *dropped}),
            shed=before.shed + shed,
            **counted(before, facts),
        )
        return new, _touched(self.stream, rows, labelled, known), rows

    def _stepping(self, new: Committed, touched: Sequence[Unit]) -> Stepping:
        """Return the plan of the executors: units with records, then units that are due without records."""
        before = self.ledger.committed
        known = before.states
        named = {(unit.task, unit.model) for unit in touched}
        clock = -math.inf if new.clock is None else new.clock
        units = [*touched, *(unit for unit in _due(before, clock) if (unit.task, unit.model) not in named)]
        begins = {
            i: state
            for i, unit in enumerate(units)
            if (state := known.get((unit.task, unit.model), known.get((unit.task, SEED)))) is not None
        }
        return Stepping(new.batch, tuple(units), begins, str(self.ledger.states), clock, new.turn)

    def _computed(
        self, session: Any, shared: Any, stepping: Stepping, parts: Any, touched: int
    ) -> tuple[list[bytes], list[Stepped]]:
        """Return the lines and states of all units, of which the first `touched` have `parts`."""
        if not stepping.units:
            return [], []
        woken = [(number, 0, 0, b"") for number in range(touched, len(stepping.units))]
        if woken:
            rows = session.createDataFrame(woken, "unit int, split int, number int, data binary")
            parts = rows if parts is None else parts.union(rows)
        plan = session.sparkContext.broadcast(stepping)
        rows_of_units = parts.mapInArrow(partial(step_units, shared, plan), LINES).collect()
        plan.unpersist()
        lines = [row for row in rows_of_units if row.stage != ENDED_UNIT]
        lines.sort(key=lambda row: (row.task, row.model, row.number))
        stepped = [unpacked(bytes(row.line)) for row in rows_of_units if row.stage == ENDED_UNIT]
        return [bytes(row.line) for row in lines], stepped

    def _finish(
        self,
        new: Committed,
        stepping: Stepping,
        stepped: Sequence[Stepped],
        lines: list[bytes],
        rejects: list[Rejected],
    ) -> None:
        """Deliver the output, commit the batch, and report it as done."""
        batch = MicroBatch(new.batch, lines, rejects, new.reports + 1, new.turn)
        marks = dict(self.deliver(batch))
        new = replace(new, marks=marks, reports=new.reports + len(lines))
        self.ledger.commit(_with_states(new, stepping.units, stepped))
        for one in stepped:
            unit = stepping.units[one.unit]
            self.views[unit.task, unit.model] = one.view
        self.done(batch)


def started_query(session: Any, steps: Steps, most: int, every_seconds: float, once: bool) -> Any:
    """Start reading, and return the running pyspark.sql.streaming.StreamingQuery.

    Parameters
    ----------
    session : pyspark.sql.SparkSession
    steps : Steps
    most : int
        The largest number of messages of a batch.
    every_seconds : float
        The time from the start of a batch to the start of the next batch.
    once : bool
        Whether to end after the messages that exist at the start.
    """
    options = reader_options(steps.stream.source)
    reader = session.readStream.format("kafka").option("maxOffsetsPerTrigger", most).options(**options)
    messages = reader.load().selectExpr(*(MESSAGES if "includeHeaders" in options else MESSAGES[:-2]))
    writer = messages.writeStream.foreachBatch(steps.take)
    writer = writer.option("checkpointLocation", str(steps.ledger.folder / SPARK))
    if once:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{every_seconds} seconds").start()


@dataclass(slots=True)
class Quiet:
    """The clock of a stream while no messages arrive. From the last record on, it advances with real time.

    Parameters
    ----------
    clock : callable
        A monotonic clock in seconds.
    """

    clock: Callable[[], float] = time.monotonic
    _batch: int = -1
    _since: float = 0.0
    _from: float = 0.0

    def now(self, committed: Committed, lag: int | None) -> float:
        """Return the stream's time; -inf before the first record and while messages may be waiting.

        Examples
        --------
        >>> wall = iter([100.0, 160.0])
        >>> quiet = Quiet(lambda: next(wall))
        >>> last = Committed(batch=3, clock=1000.0)
        >>> quiet.now(last, 0), quiet.now(last, 0), quiet.now(last, 5), quiet.now(last, None)
        (1000.0, 1060.0, -inf, -inf)
        """
        if lag != 0 or committed.clock is None:
            self._batch = -1
            return -math.inf
        if self._batch != committed.batch:
            self._batch, self._since, self._from = committed.batch, self.clock(), committed.clock
            return self._from
        return self._from + self.clock() - self._since


def lag_of(query: Any) -> int | None:
    """Return the number of messages in Kafka that Spark has not put into a batch yet; None if unknown.

    `query` is a pyspark StreamingQuery.
    """
    progress = query.lastProgress
    try:
        source = progress["sources"][0]
        newest, read = (json.loads(source[name]) for name in ("latestOffset", "endOffset"))
    except (TypeError, KeyError, IndexError, ValueError):
        return None
    return sum(
        int(to) - int(read.get(topic, {}).get(partition, 0))
        for topic, partitions in newest.items()
        for partition, to in partitions.items()
    )


def _of_kind(blocks: Any, kind: BlockKind) -> Any:
    return blocks.filter(f"kind = {int(kind)}").select("data")


def _beyond(
    stream: Stream, rows: Mapping[tuple[str, str], int], known: Mapping[tuple[str, str | None], str]
) -> set[tuple[str, str]]:
    """Return the new models for which a task has no room; the engine of a whole task drops its own."""
    dropped = set()
    for task, settings in stream.settings.tasks.items():
        if settings.together:
            continue
        held = sum(1 for name, model in known if name == task and model != SEED)
        new = [name for name in rows if name[0] == task and name not in known]
        dropped |= set(new[max(settings.most_series - held, 0) :])
    return dropped


def _touched(
    stream: Stream,
    rows: Mapping[tuple[str, str], int],
    labelled: set[str],
    known: Mapping[tuple[str, str | None], str],
) -> list[Unit]:
    """Return the units with records.

    Labels are records of all models of their task, and of the unit `SEED` for future models.
    """
    rows_of_unit: dict[tuple[str, str | None], int] = {}
    for (task, model), count in rows.items():
        key = (task, None if stream.settings.tasks[task].together else model)
        rows_of_unit[key] = rows_of_unit.get(key, 0) + count
    for task in sorted(labelled):
        to_come = None if stream.settings.tasks[task].together else SEED
        for key in [name for name in known if name[0] == task] + [(task, to_come)]:
            rows_of_unit.setdefault(key, 0)
    return [Unit(task, model, count) for (task, model), count in rows_of_unit.items()]


def _due(committed: Committed, clock: float) -> list[Unit]:
    """Return the units that must be computed by then even without records."""
    return [
        Unit(one.task, one.model, 0) for one in committed.units if one.due is not None and one.due < clock
    ]


def _with_states(new: Committed, units: Sequence[Unit], stepped: Sequence[Stepped]) -> Committed:
    states = {(one.task, one.model): one for one in new.units}
    for one in stepped:
        task, model = units[one.unit].task, units[one.unit].model
        due = one.due if one.due < math.inf else None
        states[task, model] = UnitState(task, model, one.state, due)
    return replace(new, units=list(states.values()))
