"""The driver's side of a stream on Spark: batches from Kafka, each committed once.

1. Spark notes in its log which offsets a batch has, before anything else: whenever it is computed, it is the
   same records.
2. They are decoded and shared out by model (`messages`), and go to their unit, whose engine goes on from the
   state of the batch before (`stepping`). It writes its new state beside the old one.
3. The windows become one file, named after the batch; then the batch is committed (`ledger`).

Cut short anywhere, a batch is computed again to the same states and the same file, under the same names. One
that Spark gives again although it is committed is passed over.
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
from connectors.spark.stepping import Stepped, Stepping, begun, step_units
from monitor.engine.planning import Facts, Unit, rows_of, why_together
from monitor.export.sinks.destination import Mark
from monitor.export.sinks.rejects_file import Rejected
from monitor.reports.views import EngineView

SEED = "\0"
"""In place of a model: the unit of a task that sees labels alone, and from whose state new models begin."""


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """What a batch brought.

    Parameters
    ----------
    number : int
    lines : list of bytes
        By task and model; those of one model in the order in which they came about.
    rejects : list of Rejected
    first : int
        The number of the first line among all of the stream, which count from 1.
    turn : int
        Above 0 where time has passed for so often since the batch without records: see `Steps.pass_time`.
    """

    number: int
    lines: list[bytes]
    rejects: list[Rejected]
    first: int = 1
    turn: int = 0


@dataclass(slots=True)
class Steps:
    """Takes batches one after the other.

    Parameters
    ----------
    stream : Stream
    ledger : CheckpointLedger
    deliver : callable
        Writes what a batch brought so that it stays, under names of its numbers; called before the batch is
        committed, and again with the same if that did not come about. Its answer is committed as `marks`.
    done : callable
        Told of each batch once it is committed.
    """

    stream: Stream
    ledger: CheckpointLedger
    deliver: Callable[[MicroBatch], Mapping[str, Mark]]
    done: Callable[[MicroBatch], None]
    views: dict[tuple[str, str | None], EngineView] = field(default_factory=dict)
    _one: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __post_init__(self) -> None:
        for one in self.ledger.committed.units:
            engine = begun(self.stream, Unit(one.task, one.model, 0), self.ledger.states, one.state)
            self.views[one.task, one.model] = engine.view()
        names = chain.from_iterable(map(names_in, self.views.values()))
        self.stream = replace(self.stream, long_names=long_names(names))

    def take(self, messages: Any, number: int) -> None:
        """Compute a batch and commit it; for `foreachBatch`.

        Parameters
        ----------
        messages : pyspark.sql.DataFrame
            With the columns of `messages.MESSAGES`.
        number : int
        """
        from pyspark import StorageLevel

        if self.ledger.is_done(number):
            return
        session = messages.sparkSession
        told = session.sparkContext.broadcast(self.stream)
        messages_at_once = session.conf.get(ROWS_AT_ONCE)
        blocks = messages.mapInArrow(partial(read_messages, told), BLOCKS).persist(StorageLevel.DISK_ONLY)
        try:
            with self._one:
                facts = [unpacked(bytes(row.data)) for row in _of_kind(blocks, BlockKind.FACTS).collect()]
                rejects = _of_kind(blocks, BlockKind.REJECTS).collect()
                new, touched, rows = self._planned(number, facts)
                stepping = self._stepping(new, touched)
                largest = max((each.largest for each in facts), default=0)
                parts = by_unit(session, blocks, stepping.units, rows, largest) if touched else None
                lines, stepped = self._computed(session, told, stepping, parts, len(touched))
                rejected = [one for row in rejects for one in unpacked(bytes(row.data))]
                self._finish(new, stepping, stepped, lines, rejected)
        finally:
            session.conf.set(ROWS_AT_ONCE, messages_at_once)  # it stays one session, batch after batch
            blocks.unpersist()
            told.unpersist()

    def pass_time(self, session: Any, clock: float) -> bool:
        """Let the stream's time pass to there without records: what is due by then is computed and committed.

        That it passes is written down first: cut short, `redo` computes the same again.

        Returns
        -------
        bool
            False where nothing is due, or a batch is under way.
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
        """Compute what `pass_time` was cut short in, before any batch; whether there was something."""
        turn = self.ledger.intended()
        return turn is not None and self._turned(session, turn)

    def _turned(self, session: Any, turn: Turn) -> bool:
        new = replace(self.ledger.committed, turn=turn.turn, clock=turn.clock, time=time.time())
        told = session.sparkContext.broadcast(self.stream)
        stepping = self._stepping(new, [])
        lines, stepped = self._computed(session, told, stepping, None, 0)
        told.unpersist()
        self._finish(new, stepping, stepped, lines, [])
        return True

    def _planned(
        self, number: int, facts: list[Facts]
    ) -> tuple[Committed, list[Unit], dict[tuple[str, str], int]]:
        """What will be committed but for the states, units with records, and the answers that are used."""
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
        """What executors are told: units that have records, then those to which only time has come."""
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
        self, session: Any, told: Any, stepping: Stepping, parts: Any, touched: int
    ) -> tuple[list[bytes], list[Stepped]]:
        """Lines and states of all units; the first `touched` have `parts`."""
        if not stepping.units:
            return [], []
        woken = [(number, 0, 0, b"") for number in range(touched, len(stepping.units))]
        if woken:
            rows = session.createDataFrame(woken, "unit int, split int, number int, data binary")
            parts = rows if parts is None else parts.union(rows)
        plan = session.sparkContext.broadcast(stepping)
        found = parts.mapInArrow(partial(step_units, told, plan), LINES).collect()
        plan.unpersist()
        lines = [row for row in found if row.stage != ENDED_UNIT]
        lines.sort(key=lambda row: (row.task, row.model, row.number))
        stepped = [unpacked(bytes(row.line)) for row in found if row.stage == ENDED_UNIT]
        return [bytes(row.line) for row in lines], stepped

    def _finish(
        self,
        new: Committed,
        stepping: Stepping,
        stepped: Sequence[Stepped],
        lines: list[bytes],
        rejects: list[Rejected],
    ) -> None:
        """Write what came of it, commit, and tell."""
        batch = MicroBatch(new.batch, lines, rejects, new.reports + 1, new.turn)
        marks = dict(self.deliver(batch))
        new = replace(new, marks=marks, reports=new.reports + len(lines))
        self.ledger.commit(_with_states(new, stepping.units, stepped))
        for one in stepped:
            unit = stepping.units[one.unit]
            self.views[unit.task, unit.model] = one.view
        self.done(batch)


def started_query(session: Any, steps: Steps, most: int, every_seconds: float, once: bool) -> Any:
    """Begin to read; the running pyspark.sql.streaming.StreamingQuery.

    Parameters
    ----------
    session : pyspark.sql.SparkSession
    steps : Steps
    most : int
        Messages of a batch.
    every_seconds : float
        From a batch's start to the next one's.
    once : bool
        End when all is read that was there at the start.
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
    """The stream's clock while nothing comes: it goes on from its last record at the pace of the wall clock.

    Parameters
    ----------
    clock : callable
        Seconds, never falling.
    """

    clock: Callable[[], float] = time.monotonic
    _batch: int = -1
    _since: float = 0.0
    _from: float = 0.0

    def now(self, committed: Committed, lag: int | None) -> float:
        """The stream's time; infinitely early while messages wait, or may, and before the first record.

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
    """Messages that are in Kafka and in no batch yet; None where that is not known."""
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
    """New models for which a task has no room left, by name; a task computed as a whole sees to it itself."""
    found = set()
    for task, settings in stream.settings.tasks.items():
        if settings.refits:
            continue
        held = sum(1 for name, model in known if name == task and model != SEED)
        new = [name for name in rows if name[0] == task and name not in known]
        found |= set(new[max(settings.max_series - held, 0) :])
    return found


def _touched(
    stream: Stream,
    rows: Mapping[tuple[str, str], int],
    labelled: set[str],
    known: Mapping[tuple[str, str | None], str],
) -> list[Unit]:
    """Units that have records: of a task with labels all of its models, and the seed of those to come."""
    found: dict[tuple[str, str | None], int] = {}
    for (task, model), count in rows.items():
        key = (task, None if why_together(stream.settings, task) else model)
        found[key] = found.get(key, 0) + count
    for task in sorted(labelled):
        to_come = None if why_together(stream.settings, task) else SEED
        for key in [name for name in known if name[0] == task] + [(task, to_come)]:
            found.setdefault(key, 0)
    return [Unit(task, model, count) for (task, model), count in found.items()]


def _due(committed: Committed, clock: float) -> list[Unit]:
    """Units for which time alone does something by then."""
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
