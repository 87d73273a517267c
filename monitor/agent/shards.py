"""Shards: engines with their outputs, which are saved separately and may move between agents.

An ordinary agent has one shard. With `store.by_partition`, an agent has a shard for each partition number
that the Kafka consumer group assigns to it. Each shard has its own lease and its own state. One transaction
saves the state together with the positions of the shard's partitions. When a partition is revoked, the agent
saves the shard a last time and releases the lease. The next owner opens the shard and continues at the saved
positions. Records that were read but not saved are dropped, because the next owner reads them again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from monitor.agent.checkpoints import CheckpointedOutput, CheckpointWriter, OutputPolicy, Tell
from monitor.agent.requests import RequestHandler
from monitor.base.errors import InUseError, LeaseLostError, StoreAwayError
from monitor.base.records import Chunk
from monitor.base.source import Raw
from monitor.reports.union import since, twice, union
from monitor.reports.views import EngineView, SinkView
from monitor.reports.window_report import WindowReport

if TYPE_CHECKING:  # the agent passes its engine
    from monitor.engine.engine import Engine

log = logging.getLogger("blindsight")

FLUSH_SECONDS = 2.0
_CLOSE_SECONDS = 2.0
_AWAY_SECONDS = 1.0


class Sinks(Protocol):
    """The interface of the destinations of an agent's output. Its methods do not block."""

    def reports(self, reports: Sequence[WindowReport]) -> None:
        """Queue the reports of closed windows for output."""

    def rejects(self, chunk: Chunk) -> None:
        """Queue the rejected records of a chunk for output."""

    @property
    def lost(self) -> int:
        """The number of reports that the sinks could not deliver and therefore dropped."""

    @property
    def views(self) -> tuple[SinkView, ...]:
        """The state of each sink, such as the numbers of waiting and delivered items."""


@dataclass(frozen=True, slots=True)
class Kept:
    """The parts of an agent that need a store: checkpoints and the handling of requests.

    Parameters
    ----------
    keeper : CheckpointWriter
        The thread that saves checkpoints, already started.
    every_seconds : float
        The time between two checkpoints.
    config : str or None
        The configuration as JSON, if the store has a different configuration; otherwise None.
    reports : sequence of WindowReport
        The reports of windows that were closed when the engine was restored. They are output first.
    desk : RequestHandler, optional
        Handles requests of operators. Without it, there are no requests.
    """

    keeper: CheckpointWriter
    every_seconds: float
    config: str | None = None
    reports: Sequence[WindowReport] = ()
    desk: RequestHandler | None = None

    def output(self, sinks: Sinks, tell: Tell) -> CheckpointedOutput:
        """Return an output that writes reports and acknowledges positions after a checkpoint has saved them.

        Parameters
        ----------
        sinks : Sinks
            The destinations of saved reports.
        tell : callable
            Acknowledges the positions of a saved checkpoint to a source.
        """
        output = CheckpointedOutput(self.keeper, self.every_seconds, sinks.reports, tell, self.config)
        output.reports(self.reports)
        return output


@dataclass(slots=True, eq=False)
class Shard:
    """An engine, its output and its handler of requests. Only the engine's thread may use it.

    Parameters
    ----------
    engine : Engine
    delivery : OutputPolicy
        Writes the engine's reports and acknowledges positions.
    desk : RequestHandler, optional
        Handles requests of operators. Without it, there are no requests.
    """

    engine: Engine
    delivery: OutputPolicy
    desk: RequestHandler | None = None


@dataclass(frozen=True, slots=True)
class OpenedShard:
    """The restored engine of one partition number, with the parts that save its state and output its reports.

    Parameters
    ----------
    engine : Engine
        The engine, resumed from the saved state.
    kept : Kept
        Saves the engine's state.
    sinks : Sinks
        The destinations of the engine's reports, already started.
    close : callable
        Delivers the waiting reports, finishes the current checkpoint, and releases the lease.
    """

    engine: Engine
    kept: Kept
    sinks: Sinks
    close: Callable[[], None]


@dataclass(slots=True, eq=False, kw_only=True)
class MovingShard(Shard):
    """A shard that may move between agents. The reading thread and the engine's thread share it.

    Parameters
    ----------
    number : int
        The number of the shard's partitions. Each topic has one partition with this number.
    opened : OpenedShard
    before : EngineView
        The engine's view when the shard was opened. Earlier owners have already exported the counts of this
        view.
    seen : EngineView
        The engine's latest view.
    queued, used : int
        The number of chunks that the reading thread has queued, and the number that the engine's thread has
        processed.
    leaving : bool
        True if the shard must not accept further records, and must be saved and released. Any thread may set
        it.
    ended : bool
        True if the shard is released. Only the engine's thread sets it.
    token : object
        Identifies this opening of the shard, even after its release.
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
    """The counts of released shards."""

    engine: EngineView = field(default_factory=EngineView)
    sinks: tuple[SinkView, ...] = ()
    lost: int = 0
    failures: int = 0
    saved_time: float | None = None


class Shards:
    """The shards of an agent, which are engines with separate states, by partition number.

    The source of the partitions uses this class as its `monitor.base.source.ShardOwner`.

    Parameters
    ----------
    open_ : callable
        Takes a partition number and opens its state. Raises `InUseError` while another agent has the lease.
    source : str
        The name of the source.
    """

    def __init__(self, open_: Callable[[int], OpenedShard], source: str) -> None:
        self._open = open_
        self._source = source
        self._tell: Tell = _tell_nobody
        self._here: dict[int, MovingShard] = {}
        self._by_partition: dict[str, MovingShard] = {}
        self._waiting: dict[int, str] = {}
        self._past = _Past()
        self._warned: set[tuple[str, str]] = set()
        self._closing: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._finished = False
        self._next_try = 0.0

    def bind(self, tell: Tell) -> None:
        """Set `tell`, the function that acknowledges saved positions to sources."""
        self._tell = tell

    def take(self, partition: str, number: int) -> tuple[object, Mapping[str, Any]] | None:
        """Open the shard of a partition, and return its token and positions; see `ShardOwner.take`.

        This method waits for the database.

        Parameters
        ----------
        partition : str
        number : int
            The number of the partition in its topic. It is also the number of the shard.
        """
        shard = self._here.get(number) or self._opened(number)
        if shard is None or shard.leaving or shard.ended:
            return None
        self._by_partition[partition] = shard
        return shard.token, shard.engine.positions(self._source)

    def held(self) -> set[str]:
        """Return the names of the partitions whose shards are open in this agent."""
        there = self._by_partition.copy()
        return {name for name, shard in there.items() if not (shard.leaving or shard.ended)}

    def give_up(self, partitions: Collection[str]) -> None:
        """Begin to save and release the shards of these partitions, so that another agent can open them."""
        for name in partitions:
            if (shard := self._by_partition.get(name)) is not None:
                shard.leaving = True

    def given_up(self, partitions: Collection[str]) -> bool:
        """Return whether the shards of all these partitions are released."""
        known = [shard for name in partitions if (shard := self._by_partition.get(name)) is not None]
        return all(self._here.get(shard.number) is not shard for shard in known)

    @property
    def waiting(self) -> str | None:
        """The reasons why the states of assigned partitions cannot be opened yet; None if all are open."""
        there = self._waiting.copy()
        return "; ".join(f"partition {number} waits: {why}" for number, why in sorted(there.items())) or None

    def split(self, raws: Sequence[Raw]) -> list[tuple[MovingShard, list[Raw]]]:
        """Divide the records that a source has read by shard.

        Records of shards that are being released are left out. The reading thread calls this method.
        """
        parts: dict[int, tuple[MovingShard, list[Raw]]] = {}
        for raw in raws:
            shard = self._by_partition.get(raw.partition)
            if shard is not None and not (shard.leaving or shard.ended):
                parts.setdefault(shard.number, (shard, []))[1].append(raw)
        return list(parts.values())

    # Only the engine's thread calls the following methods, unless a docstring says otherwise.

    def live(self) -> list[MovingShard]:
        """Return the shards that this agent has not released yet."""
        return [shard for shard in list(self._here.values()) if not shard.ended]

    def step(self) -> None:
        """Make the checkpoints that are due. Release each leaving shard when its chunks are processed."""
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
        """Release all shards at the end of the agent, and return whether all of them were saved.

        Parameters
        ----------
        save : bool
            Whether to save the states of the shards before they are released.
        """
        with self._lock:
            self._finished = True
        saved = [self._end(shard, save) for shard in self.live()]
        deadline = time.monotonic() + _CLOSE_SECONDS
        for thread in self._closing:
            thread.join(max(0.0, deadline - time.monotonic()))
        return all(saved)

    def view(self) -> EngineView:
        """Return one view of all shards, without the counts that earlier owners have exported."""
        for shard in self.live():
            shard.seen = shard.engine.view()
        live = self.live()
        self._warn_of_keys([shard.seen for shard in live])
        return union([*(since(shard.seen, shard.before) for shard in live), self._past.engine])

    def number_of(self, task: str, model: str, group: str) -> int | None:
        """Return the number of the shard that contains a series, or None. Any thread may call this method."""
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
        """The number of reports that the sinks could not deliver and therefore dropped."""
        live, past = self._counted()
        return past.lost + sum(shard.opened.sinks.lost for shard in live)

    @property
    def failing(self) -> str | None:
        """The reason why the state of a shard cannot be saved at present, or None."""
        return next((why for shard in self.live() if (why := shard.delivery.failing) is not None), None)

    @property
    def full(self) -> bool:
        """True if the agent must stop reading, because too much output of a shard waits to be saved."""
        return any(shard.delivery.full for shard in self.live())

    @property
    def failures(self) -> int:
        """The number of checkpoints that could not be saved."""
        live, past = self._counted()
        return past.failures + sum(shard.delivery.failures for shard in live)

    @property
    def saved_time(self) -> float | None:
        """The time of the newest saved checkpoint, in seconds since the epoch."""
        live, past = self._counted()
        times = [past.saved_time, *(shard.delivery.saved_time for shard in live)]
        return max((time for time in times if time is not None), default=None)

    @property
    def sinks(self) -> tuple[SinkView, ...]:
        """The state of each sink, with the counts of all shards together."""
        by_name: dict[str, SinkView] = {}
        live, past = self._counted()
        here = [view for shard in live for view in shard.opened.sinks.views]
        for view in (*past.sinks, *here):
            by_name[view.name] = _together(by_name[view.name], view) if view.name in by_name else view
        return tuple(by_name.values())

    def _counted(self) -> tuple[list[MovingShard], _Past]:
        """Return the live shards, and the counts of the released shards.

        Each shard is in exactly one of the two.
        """
        with self._lock:
            return self.live(), self._past

    def _opened(self, number: int) -> MovingShard | None:
        """Open the shard of a partition number. Return None if it cannot be opened at present."""
        if time.monotonic() < self._next_try:
            return None
        try:
            opened = self._open(number)
        except (InUseError, StoreAwayError) as error:
            if isinstance(error, StoreAwayError):
                # An attempt may take seconds, and there may be many partitions.
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
        """Save a shard a last time, and release its lease in a thread. Return whether it was saved."""
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
        with self._lock:  # `_counted` must see the shard either as live or as released
            shard.ended, self._past = True, past
        thread = threading.Thread(
            target=self._close, args=(shard,), name=f"close {shard.number}", daemon=True
        )
        self._closing = [each for each in self._closing if each.is_alive()] + [thread]
        thread.start()
        return saved

    def _close(self, shard: MovingShard) -> None:
        """Close a released shard and delete it from the shards of the agent."""
        try:
            shard.opened.close()
        except Exception:
            log.exception("Partition %d: its state could not be closed cleanly.", shard.number)
        finally:
            # The number is deleted last, because the shard may be opened again as soon as it is deleted.
            for name, known in list(self._by_partition.items()):
                if known is shard:
                    del self._by_partition[name]
            del self._here[shard.number]

    def _warn_of_keys(self, views: Sequence[EngineView]) -> None:
        """Log a warning for each model whose answers arrive in several partitions, once for each model."""
        for task, model, _ in twice(views):
            if (task, model) not in self._warned:
                self._warned.add((task, model))
                log.warning(
                    "Task %s: answers of model %s come in several partitions, and each partition makes its "
                    "own windows. Give each message its model, or its task, as key. Metrics and page show "
                    "the partition with the most windows.",
                    task,
                    model,
                )

    def _past_with(self, shard: MovingShard) -> _Past:
        """Return the counts of the released shards, including a shard that is being released."""
        past, delivery = self._past, shard.delivery
        times = [each for each in (past.saved_time, delivery.saved_time) if each is not None]
        counted = since(shard.engine.view(), shard.before)
        counted = replace(counted, series=(), tasks=(), refits={}, labels_waiting={}, label_lag_seconds={})
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
    """Combine the states of two sinks with the same name."""
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
    """Do nothing; used until `bind` is called."""
