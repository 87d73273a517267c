"""What is saved and moves as one: an engine, with the way that its results take.

An ordinary agent has one shard for as long as it runs. With `store.by_partition` it has one for each
partition number that its consumer group assigns to it. Each has its own state, in one transaction with the
positions of its partitions, under its own lease. When a partition is taken away, its shard saves a last time
and gives the lease up; whoever gets the partition opens the shard again and goes on at the saved positions.
What was read and not saved is dropped: the next owner reads it again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from monitor.agent.checkpoints import CheckpointedOutput, CheckpointWriter, OutputPolicy, Tell
from monitor.agent.requests import RequestHandler
from monitor.base.errors import InUseError, LeaseLostError, StoreAwayError
from monitor.base.records import Chunk
from monitor.base.source import Raw
from monitor.engine.engine import Engine
from monitor.reports.union import since, twice, union
from monitor.reports.views import EngineView, SinkView
from monitor.reports.window_report import WindowReport

log = logging.getLogger("blindsight")

FLUSH_SECONDS = 2.0
_CLOSE_SECONDS = 2.0
_AWAY_SECONDS = 1.0


class Sinks(Protocol):
    """Where the agent's output goes. No method blocks."""

    def reports(self, reports: Sequence[WindowReport]) -> None:
        """Take closed windows."""

    def rejects(self, chunk: Chunk) -> None:
        """Take what could not be used."""

    @property
    def lost(self) -> int:
        """Closed windows that are missing in a sink."""

    @property
    def views(self) -> tuple[SinkView, ...]:
        """How each place stands that the output goes to."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What the agent needs of a store.

    Parameters
    ----------
    keeper : CheckpointWriter
        Started.
    every_seconds : float
        Between two checkpoints.
    config : str or None
        The configuration to be saved, where the store has another.
    reports : sequence of WindowReport
        Windows that closed when the engine was resumed.
    desk : RequestHandler, optional
        Takes requests; without it none are.
    """

    keeper: CheckpointWriter
    every_seconds: float
    config: str | None = None
    reports: Sequence[WindowReport] = ()
    desk: RequestHandler | None = None

    def output(self, sinks: Sinks, tell: Tell) -> CheckpointedOutput:
        """The way of the results by the store."""
        found = CheckpointedOutput(self.keeper, self.every_seconds, sinks.reports, tell, self.config)
        found.reports(self.reports)
        return found


@dataclass(slots=True, eq=False)
class Shard:
    """An engine, and how what it brings leaves the agent. Used by the engine's thread alone.

    Parameters
    ----------
    engine : Engine
    delivery : OutputPolicy
    desk : RequestHandler, optional
        Takes requests; without it none are.
    """

    engine: Engine
    delivery: OutputPolicy
    desk: RequestHandler | None = None


@dataclass(frozen=True, slots=True)
class OpenedShard:
    """The state of one partition number, and what hangs on it.

    Parameters
    ----------
    engine : Engine
        Resumed from it.
    kept : Kept
    sinks : Sinks
        Started; for the shard's windows alone.
    close : callable
        Delivers what waits, saves what is under way, gives the lease up.
    """

    engine: Engine
    kept: Kept
    sinks: Sinks
    close: Callable[[], None]


@dataclass(slots=True, eq=False, kw_only=True)
class MovingShard(Shard):
    """A shard that comes and goes.

    Parameters
    ----------
    number : int
        Of the partition.
    opened : OpenedShard
    before : EngineView
        As it was when it came: what was counted before, another agent has counted.
    seen : EngineView
        As it was when somebody last looked.
    queued, used : int
        Chunks of it that the reading thread has handed over, and that the engine's thread has taken.
    leaving : bool
        Set once, from any thread: it is to be saved and given up, and takes nothing more.
    ended : bool
        Set by the engine's thread: nothing of it counts any more.
    token : object
        Tells it from others of its number, also when it is gone.
    """

    number: int
    opened: OpenedShard
    before: EngineView
    seen: EngineView
    queued: int = 0
    used: int = 0
    leaving: bool = False
    ended: bool = False
    token: object = field(default_factory=object)


@dataclass(slots=True)
class _Past:
    """What shards counted here that are gone."""

    engine: EngineView = field(default_factory=EngineView)
    sinks: tuple[SinkView, ...] = ()
    lost: int = 0
    failures: int = 0
    saved_time: float | None = None


class Shards:
    """The shards of an agent, by the numbers of their partitions; a `monitor.base.source.ShardOwner`.

    Parameters
    ----------
    open_ : callable
        Opens the state of a partition number; raises `InUseError` where another agent has it still.
    source : str
        Name of the source whose partitions they are.
    """

    def __init__(self, open_: Callable[[int], OpenedShard], source: str) -> None:
        self._open = open_
        self._source = source
        self._tell: Tell = _tell_nobody
        self._here: dict[int, MovingShard] = {}
        self._by_partition: dict[str, MovingShard] = {}
        self._waiting: dict[int, str] = {}
        self._past = _Past()
        self._told: set[tuple[str, str]] = set()
        self._closing: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._finished = False
        self._next_try = 0.0

    def bind(self, tell: Tell) -> None:
        """Hear how sources are told what is saved."""
        self._tell = tell

    def take(self, partition: str, number: int) -> tuple[object, Mapping[str, Any]] | None:
        """See `ShardOwner.take`. Opening a shard waits for the database."""
        shard = self._here.get(number) or self._opened(number)
        if shard is None or shard.leaving or shard.ended:
            return None
        self._by_partition[partition] = shard
        return shard.token, shard.engine.positions(self._source)

    def held(self) -> set[str]:
        """See `ShardOwner.held`."""
        there = self._by_partition.copy()
        return {name for name, shard in there.items() if not (shard.leaving or shard.ended)}

    def give_up(self, partitions: Collection[str]) -> None:
        """See `ShardOwner.give_up`."""
        for name in partitions:
            if (shard := self._by_partition.get(name)) is not None:
                shard.leaving = True

    def given_up(self, partitions: Collection[str]) -> bool:
        """See `ShardOwner.given_up`."""
        known = [shard for name in partitions if (shard := self._by_partition.get(name)) is not None]
        return all(self._here.get(shard.number) is not shard for shard in known)

    @property
    def waiting(self) -> str | None:
        """See `ShardOwner.waiting`."""
        there = self._waiting.copy()
        return "; ".join(f"partition {number} waits: {why}" for number, why in sorted(there.items())) or None

    def split(self, raws: Sequence[Raw]) -> list[tuple[MovingShard, list[Raw]]]:
        """What was read, by shard; without what belongs to one that leaves. For the reading thread."""
        found: dict[int, tuple[MovingShard, list[Raw]]] = {}
        for raw in raws:
            shard = self._by_partition.get(raw.partition)
            if shard is not None and not (shard.leaving or shard.ended):
                found.setdefault(shard.number, (shard, []))[1].append(raw)
        return list(found.values())

    def live(self) -> list[MovingShard]:
        """Those that work. This and what follows is for the engine's thread."""
        return [shard for shard in list(self._here.values()) if not shard.ended]

    def step(self) -> None:
        """Checkpoints that are due; give up what is to leave, once all that was read of it is used."""
        for shard in self.live():
            if shard.leaving and shard.queued == shard.used:
                self._end(shard, save=True)
                continue
            try:
                shard.delivery.step(shard.engine)
            except LeaseLostError as error:
                log.warning("Partition %d: %s.", shard.number, error)
                self._end(shard, save=False)

    def finish(self, save: bool) -> bool:
        """Give all of them up, for good; whether all was saved."""
        with self._lock:
            self._finished = True
        saved = [self._end(shard, save) for shard in self.live()]
        deadline = time.monotonic() + _CLOSE_SECONDS
        for thread in self._closing:
            thread.join(max(0.0, deadline - time.monotonic()))
        return all(saved)

    def view(self) -> EngineView:
        """All of them as one engine. What is counted for a task or a source is what was counted here."""
        for shard in self.live():
            shard.seen = shard.engine.view()
        live = self.live()
        self._warn_of_keys([shard.seen for shard in live])
        return union([*(since(shard.seen, shard.before) for shard in live), self._past.engine])

    def number_of(self, task: str, model: str, group: str) -> int | None:
        """The partition number whose shard has this series; None where none has it here. For any thread."""
        series = (task, model, group)
        having = [
            (one.windows_closed, shard.number)
            for shard in list(self._here.values())
            for one in shard.seen.series
            if (one.task, one.model, one.group) == series
        ]
        return max(having)[1] if having else None

    @property
    def lost(self) -> int:
        """Closed windows that are missing in a sink, or could not be kept."""
        live, past = self._counted()
        return past.lost + sum(shard.opened.sinks.lost for shard in live)

    @property
    def failing(self) -> str | None:
        """Why the state of one of them cannot be saved at present."""
        return next((why for shard in self.live() if (why := shard.delivery.failing) is not None), None)

    @property
    def full(self) -> bool:
        """Whether so many closed windows of one of them wait to be saved that no more may close."""
        return any(shard.delivery.full for shard in self.live())

    @property
    def failures(self) -> int:
        """Checkpoints that could not be saved."""
        live, past = self._counted()
        return past.failures + sum(shard.delivery.failures for shard in live)

    @property
    def saved_time(self) -> float | None:
        """When the newest checkpoint was saved."""
        live, past = self._counted()
        times = [past.saved_time, *(shard.delivery.saved_time for shard in live)]
        return max((time for time in times if time is not None), default=None)

    @property
    def sinks(self) -> tuple[SinkView, ...]:
        """How the places stand that their windows go to, each once."""
        found: dict[str, SinkView] = {}
        live, past = self._counted()
        here = [view for shard in live for view in shard.opened.sinks.views]
        for view in (*past.sinks, *here):
            found[view.name] = _together(found[view.name], view) if view.name in found else view
        return tuple(found.values())

    def _counted(self) -> tuple[list[MovingShard], _Past]:
        """Return the shards that work and the counts of those that are gone: each shard is in one of both."""
        with self._lock:
            return self.live(), self._past

    def _opened(self, number: int) -> MovingShard | None:
        if time.monotonic() < self._next_try:
            return None
        try:
            opened = self._open(number)
        except (InUseError, StoreAwayError) as error:
            if isinstance(error, StoreAwayError):  # each try may take seconds, and partitions are many
                self._next_try = time.monotonic() + _AWAY_SECONDS
            if number not in self._waiting:
                log.info("Partition %d waits for its state: %s.", number, error)
            self._waiting[number] = str(error)
            return None
        self._waiting.pop(number, None)
        before = opened.engine.view()
        shard = MovingShard(
            opened.engine,
            opened.kept.output(opened.sinks, self._tell),
            opened.kept.desk,
            number=number,
            opened=opened,
            before=before,
            seen=before,
        )
        with self._lock:
            if not self._finished:
                self._here[number] = shard
                return shard
        opened.close()
        return None

    def _end(self, shard: MovingShard, save: bool) -> bool:
        """Save a shard a last time, and give its lease up in a thread of its own; whether it was saved."""
        saved = False
        try:
            saved = save and shard.delivery.flush(shard.engine, FLUSH_SECONDS)
        except LeaseLostError as error:
            log.warning("Partition %d: %s.", shard.number, error)
        if save and not saved:
            log.warning(
                "Partition %d: the last checkpoint failed; its next owner reads the records since the one "
                "before again.",
                shard.number,
            )
        shard.leaving = True
        past = self._past_with(shard)
        with self._lock:  # whoever counts sees it among those that work, or among those that are gone
            shard.ended, self._past = True, past
        thread = threading.Thread(
            target=self._close, args=(shard,), name=f"close {shard.number}", daemon=True
        )
        self._closing = [each for each in self._closing if each.is_alive()] + [thread]
        thread.start()
        return saved

    def _close(self, shard: MovingShard) -> None:
        try:
            shard.opened.close()
        except Exception:
            log.exception("Partition %d: its state could not be closed cleanly.", shard.number)
        finally:
            # Its number last: from then on it may be opened again, and its partitions be another shard's.
            for name, known in list(self._by_partition.items()):
                if known is shard:
                    del self._by_partition[name]
            del self._here[shard.number]

    def _warn_of_keys(self, views: Sequence[EngineView]) -> None:
        """Say once of a model that its answers come in several partitions."""
        for task, model, _ in twice(views):
            if (task, model) not in self._told:
                self._told.add((task, model))
                log.warning(
                    "Task %s: answers of model %s come in several partitions, and each partition makes its "
                    "own windows. Give each message its model, or its task, as key. Metrics and page show "
                    "the partition with the most windows.",
                    task,
                    model,
                )

    def _past_with(self, shard: MovingShard) -> _Past:
        """Return the counts of the shards that are gone, with those of this one."""
        past, delivery = self._past, shard.delivery
        times = [each for each in (past.saved_time, delivery.saved_time) if each is not None]
        counted = since(shard.engine.view(), shard.before)
        counted = replace(counted, series=(), arenas=(), refits={}, labels_waiting={}, label_lag_seconds={})
        sinks = {view.name: view for view in past.sinks}
        for view in shard.opened.sinks.views:
            left = replace(view, waiting=0, trouble=None, failing_since=None)
            sinks[view.name] = _together(sinks[view.name], left) if view.name in sinks else left
        return _Past(
            union([past.engine, counted]),
            tuple(sinks.values()),
            past.lost + shard.opened.sinks.lost,
            past.failures + delivery.failures,
            max(times, default=None),
        )


def _together(one: SinkView, other: SinkView) -> SinkView:
    """Two sinks of one name as one."""
    began = [each for each in (one.failing_since, other.failing_since) if each is not None]
    return SinkView(
        one.name,
        one.waiting + other.waiting,
        one.delivered + other.delivered,
        one.lost + other.lost,
        one.trouble or other.trouble,
        min(began, default=None),
    )


def _tell_nobody(source: str, positions: Mapping[str, object]) -> None:
    """Before the agent is there."""
