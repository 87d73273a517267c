"""Shards: engines with their outputs, which are saved separately and may move between agents.

An ordinary agent has a single shard for as long as it runs. With `store.by_partition`, an agent has a shard
for each partition number that its consumer group assigns to it. Each shard has its own lease and its own
state, which is saved in one transaction with the positions of its partitions. When a partition is revoked,
the agent saves its shard a last time and releases the lease. The next owner of the partition opens the shard
and continues at the saved positions. Records that were read but not saved are dropped, because the next owner
reads them again.
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
    """The interface of the destinations of an agent's output; no method blocks."""

    def reports(self, reports: Sequence[WindowReport]) -> None:
        """Add the reports of closed windows to the output."""

    def rejects(self, chunk: Chunk) -> None:
        """Add the rejected records of a chunk to the output."""

    @property
    def lost(self) -> int:
        """The number of closed windows that the sinks have lost."""

    @property
    def views(self) -> tuple[SinkView, ...]:
        """The state of each sink."""


@dataclass(frozen=True, slots=True)
class Kept:
    """The objects that save an agent's state: the writer of checkpoints and the handler of requests.

    Parameters
    ----------
    keeper : CheckpointWriter
        The writer of checkpoints, already started.
    every_seconds : float
        The time between two checkpoints.
    config : str or None
        The configuration to save, if the store has a different configuration; otherwise None.
    reports : sequence of WindowReport
        The windows that were closed when the engine was restored, to be output first.
    desk : RequestHandler, optional
        Handles requests; without it there are none.
    """

    keeper: CheckpointWriter
    every_seconds: float
    config: str | None = None
    reports: Sequence[WindowReport] = ()
    desk: RequestHandler | None = None

    def output(self, sinks: Sinks, tell: Tell) -> CheckpointedOutput:
        """Return the output of an engine whose results are saved before they are passed on.

        Parameters
        ----------
        sinks : Sinks
            The destinations of saved windows.
        tell : callable
            Called with the positions of a saved checkpoint.
        """
        output = CheckpointedOutput(self.keeper, self.every_seconds, sinks.reports, tell, self.config)
        output.reports(self.reports)
        return output


@dataclass(slots=True, eq=False)
class Shard:
    """An engine with its output and its requests, used only by the engine's thread.

    Parameters
    ----------
    engine : Engine
    delivery : OutputPolicy
        Outputs the windows and positions of the engine.
    desk : RequestHandler, optional
        Handles requests; without it there are none.
    """

    engine: Engine
    delivery: OutputPolicy
    desk: RequestHandler | None = None


@dataclass(frozen=True, slots=True)
class OpenedShard:
    """The engine of one partition number, opened from its saved state, with its output.

    Parameters
    ----------
    engine : Engine
        The engine, resumed from the state.
    kept : Kept
        The objects that save its state.
    sinks : Sinks
        The sinks of the shard's windows, already started.
    close : callable
        Delivers waiting windows, finishes the current checkpoint, and releases the lease.
    """

    engine: Engine
    kept: Kept
    sinks: Sinks
    close: Callable[[], None]


@dataclass(slots=True, eq=False, kw_only=True)
class MovingShard(Shard):
    """A shard that may move between agents, with values that the reading and the engine's thread share.

    Parameters
    ----------
    number : int
        The number of its partitions.
    opened : OpenedShard
    before : EngineView
        The view when the shard was opened; earlier owners have exported its counts.
    seen : EngineView
        The latest view.
    queued, used : int
        The number of its chunks that the reading thread has queued, and that the engine's thread has used.
    leaving : bool
        Set once, by any thread: the shard accepts no more records, and must be saved and released.
    ended : bool
        Set by the engine's thread when the shard is released.
    token : object
        Identifies this opening of the shard, even after its end.
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
    """The shards of an agent, by the numbers of their partitions.

    This class is the `monitor.base.source.ShardOwner` of the source with these partitions.

    Parameters
    ----------
    open_ : callable
        Opens the state of a partition number; raises `InUseError` while another agent holds it.
    source : str
        The name of the source with these partitions.
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
        """Set the function that acknowledges saved positions to sources."""
        self._tell = tell

    def take(self, partition: str, number: int) -> tuple[object, Mapping[str, Any]] | None:
        """Open the state of a partition; see `ShardOwner.take`.

        Opening waits for the database.

        Parameters
        ----------
        partition : str
        number : int
            The number of the partition in its topic, which is also the number of the shard.
        """
        shard = self._here.get(number) or self._opened(number)
        if shard is None or shard.leaving or shard.ended:
            return None
        self._by_partition[partition] = shard
        return shard.token, shard.engine.positions(self._source)

    def held(self) -> set[str]:
        """Return the partitions whose state this agent holds."""
        there = self._by_partition.copy()
        return {name for name, shard in there.items() if not (shard.leaving or shard.ended)}

    def give_up(self, partitions: Collection[str]) -> None:
        """Begin to save and release the shards of these partitions, so that another agent may open them."""
        for name in partitions:
            if (shard := self._by_partition.get(name)) is not None:
                shard.leaving = True

    def given_up(self, partitions: Collection[str]) -> bool:
        """Return whether the shards of these partitions are released, so that another agent may open them."""
        known = [shard for name in partitions if (shard := self._by_partition.get(name)) is not None]
        return all(self._here.get(shard.number) is not shard for shard in known)

    @property
    def waiting(self) -> str | None:
        """The reason why the state of an assigned partition is not open yet, without a full stop, or None."""
        there = self._waiting.copy()
        return "; ".join(f"partition {number} waits: {why}" for number, why in sorted(there.items())) or None

    def split(self, raws: Sequence[Raw]) -> list[tuple[MovingShard, list[Raw]]]:
        """Divide a read by shard, and drop the records of shards that are leaving.

        The reading thread calls this method.
        """
        parts: dict[int, tuple[MovingShard, list[Raw]]] = {}
        for raw in raws:
            shard = self._by_partition.get(raw.partition)
            if shard is not None and not (shard.leaving or shard.ended):
                parts.setdefault(shard.number, (shard, []))[1].append(raw)
        return list(parts.values())

    # Only the engine's thread calls the following methods, unless a docstring says otherwise.

    def live(self) -> list[MovingShard]:
        """Return the shards that are not released."""
        return [shard for shard in list(self._here.values()) if not shard.ended]

    def step(self) -> None:
        """Make the checkpoints that are due, and release leaving shards once their queued chunks are used."""
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
        """Return one view of all shards; it leaves out the counts that earlier owners have exported."""
        for shard in self.live():
            shard.seen = shard.engine.view()
        live = self.live()
        self._warn_of_keys([shard.seen for shard in live])
        return union([*(since(shard.seen, shard.before) for shard in live), self._past.engine])

    def number_of(self, task: str, model: str, group: str) -> int | None:
        """Return the partition number whose shard has this series, or None; any thread may call it."""
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
        """The number of closed windows that a sink has lost."""
        live, past = self._counted()
        return past.lost + sum(shard.opened.sinks.lost for shard in live)

    @property
    def failing(self) -> str | None:
        """The reason why the state of a shard cannot be saved at present, or None."""
        return next((why for shard in self.live() if (why := shard.delivery.failing) is not None), None)

    @property
    def full(self) -> bool:
        """True if too many closed windows of a shard wait to be saved, so that no window may close."""
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
        """Return the live shards, and the counts of the released shards; no shard is missing or in both."""
        with self._lock:
            return self.live(), self._past

    def _opened(self, number: int) -> MovingShard | None:
        """Open the shard of a partition number; return None if it cannot be opened at present."""
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
        """Save a shard a last time, release its lease in a thread, and return whether it was saved."""
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
        """Warn once for each model whose answers arrive in several partitions."""
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
