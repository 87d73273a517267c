"""The daemon: sources in threads of their own, one engine, a picture of it for whoever asks.

A thin shell around the pure engine: it owns the clock, the threads and the order of things. A chunk is
first absorbed, then its reports are handed to the sinks, then its source hears what has been used.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from monitor.agent.checkpoints import ImmediateOutput, OutputPolicy
from monitor.agent.clock import SteadyClock
from monitor.agent.decoders import Decoders
from monitor.agent.feeder import Fed, Feeder
from monitor.agent.refits import Refitter
from monitor.agent.rises import RisingShares
from monitor.agent.shards import FLUSH_SECONDS, Kept, MovingShard, Shard, Shards, Sinks
from monitor.agent.unjoined import UnjoinedLabels
from monitor.base.errors import BlindsightError, LeaseLostError
from monitor.base.records import Chunk
from monitor.base.source import Input
from monitor.engine.engine import Engine
from monitor.reports.views import AgentView, EngineView
from monitor.reports.window_report import WindowReport

log = logging.getLogger("blindsight")

_QUEUE_CHUNKS = 8  # of a MiB or so each: enough that neither side waits for the other's hiccup
_TICK_SECONDS = 1.0
_VIEW_SECONDS = 0.25  # a new picture at most so often
_VIEW_SHARE = (
    0.1  # of the time at most: with ten thousand models a picture may take as long as all answers since
)
_FULL_SECONDS = 0.05
_STALLED_SECONDS = 30.0
_JOIN_SECONDS = 2.0  # all sources together: a read lasts a tenth of it

Swap = Callable[[Engine], tuple[Engine, list[WindowReport]]]
"""Makes an engine that goes on where another one is; the reports are of windows that this closed."""


@dataclass(frozen=True, slots=True)
class Reload:
    """How the last reading of the configuration went."""

    successful: bool
    time: float


class Agent:
    """The running daemon.

    Parameters
    ----------
    engine : Engine or Shards
        One for as long as it runs; or one for each partition that the agent has at a time.
    inputs : sequence of Input
        A single one, where its partitions move.
    sinks : Sinks
    clock : callable, optional
        Seconds since the epoch, by which windows age; a `SteadyClock` where none is given. It may fall;
        the engine's time does not.
    store : Kept, optional
        Where checkpoints are saved; without it nothing outlives the agent.
    refitter : Refitter, optional
        Runs the refits that come due, and is started and stopped here; without it none are run.
    decoders : Decoders, optional
        Decode what sources read, and are started and stopped here; without them the sources' threads do.
    """

    def __init__(
        self,
        engine: Engine | Shards,
        inputs: Sequence[Input],
        sinks: Sinks,
        clock: Callable[[], float] | None = None,
        store: Kept | None = None,
        refitter: Refitter | None = None,
        decoders: Decoders | None = None,
    ) -> None:
        self._shards = engine if isinstance(engine, Shards) else None
        self._refitter = refitter
        self._decoders = decoders
        self._sinks = sinks
        self._clock = SteadyClock() if clock is None else clock
        self._now = self._clock()
        self._chunks: queue.Queue[Fed] = queue.Queue()
        self._feeders = [
            Feeder(source, self._chunks, _QUEUE_CHUNKS, self._shards, decoders) for source in inputs
        ]
        self._by_name = {feeder.name: feeder for feeder in self._feeders}
        self._own: Shard | None = None
        if isinstance(engine, Shards):
            engine.bind(self._tell)
        elif store is None:
            self._own = Shard(engine, ImmediateOutput(sinks.reports, self._tell))
        else:
            self._own = Shard(engine, store.output(sinks, self._tell), store.desk)
        self._stop = threading.Event()
        self._finished = threading.Event()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._alive_at = time.monotonic()
        self._swaps: queue.SimpleQueue[tuple[Swap, str | None, Future[None]]] = queue.SimpleQueue()
        self._reload = Reload(successful=True, time=self._now)
        self._picture = engine.view()
        self._pictured_next = 0.0
        self._unjoined = UnjoinedLabels()
        self._rises = RisingShares()
        self.failure: BaseException | None = None

    def start(self) -> None:
        """Open every source and begin; raises `SourceError` where one cannot be had at all."""
        opened: list[Feeder] = []
        try:
            for feeder in self._feeders:
                feeder.open({} if self._own is None else self._own.engine.positions(feeder.name))
                opened.append(feeder)
        except BaseException:
            for feeder in opened:
                feeder.close()
            raise
        if self._decoders is not None:
            self._decoders.start()
        # The engine last: when it ends, for whatever reason, it joins threads that have begun.
        for feeder in self._feeders:
            feeder.start()
        if self._refitter is not None:
            self._refitter.start()
        self._thread.start()

    def stop(self) -> None:
        """Begin to drain: stop reading, absorb what was read, close the open windows."""
        for feeder in self._feeders:
            feeder.stop()
        self._stop.set()

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Wait until the agent has drained, or every source has ended; whether it has."""
        return self._finished.wait(timeout_seconds)

    def reconfigure(self, swap: Swap, config: str | None = None) -> Future[None]:
        """Replace the engine between two chunks; several swaps are done in their order.

        Parameters
        ----------
        swap : callable
            Called for each engine that the agent has.
        config : str, optional
            The configuration as JSON that is saved with the state from then on.

        Returns
        -------
        Future
            Done once the engine has been replaced. It holds the error where the swap raised one, and the
            old engine goes on; `BlindsightError` where the agent has ended. Cancelled before the engine's
            thread comes to it, the swap is not made.
        """
        outcome: Future[None] = Future()
        self._swaps.put((swap, config, outcome))
        if self._finished.is_set():
            self._refuse_swaps()
        return outcome

    def note_reload(self, successful: bool) -> None:
        """Keep for the metrics how the last reading of the configuration went."""
        self._reload = Reload(successful, self._clock() if successful else self._reload.time)

    def view(self) -> AgentView:
        """The agent as it is now: never blocks, never waits for the engine."""
        sources = tuple(feeder.view() for feeder in self._feeders)
        stalled = time.monotonic() - self._alive_at
        unready = [
            feeder.why_down() for feeder, source in zip(self._feeders, sources, strict=True) if not source.up
        ]
        way = self._way
        if way.failing is not None:
            waits = " So many closed windows wait for it that the sources wait too." * way.full
            unready.append(f"The state cannot be saved: {way.failing}.{waits}")
        ill = []
        if self.failure is not None:
            ill.append(f"The engine has failed: {self.failure}.")
        elif stalled > _STALLED_SECONDS and not self._finished.is_set():
            ill.append(f"The engine has made no step for {stalled:.0f} s.")
        return AgentView(
            engine=self._picture,
            sources=sources,
            ready=not unready and not ill and self._thread.is_alive(),
            healthy=not ill,
            reasons=(*ill, *unready),
            reload_successful=self._reload.successful,
            reload_time=self._reload.time,
            reports_lost=self._sinks.lost + (0 if self._shards is None else self._shards.lost),
            store_failing=way.failing,
            store_failures=way.failures,
            checkpoint_time=way.saved_time,
            sinks=(*(() if self._shards is None else self._shards.sinks), *self._sinks.views),
            refit_durations={} if self._refitter is None else self._refitter.durations,
            decoder_failures=0 if self._decoders is None else self._decoders.failures,
        )

    @property
    def _way(self) -> OutputPolicy | Shards:
        """What knows how the saving goes."""
        if self._own is not None:
            return self._own.delivery
        assert self._shards is not None
        return self._shards

    def _working(self) -> Sequence[Shard]:
        if self._own is not None:
            return (self._own,)
        assert self._shards is not None
        return self._shards.live()

    def _run(self) -> None:
        try:
            self._loop()
            self._drain()
            self._paint(force=True)
        except LeaseLostError as error:
            self.failure = error
            log.error("%s. The agent stops.", error)
        except Exception as error:
            self.failure = error
            log.exception("The engine has failed; the agent stops.")
        finally:
            if self._refitter is not None:
                self._refitter.stop()
            for feeder in self._feeders:
                feeder.stop()
            self._join_feeders()
            if self._decoders is not None:
                self._decoders.close()
            if self._shards is not None:
                self._shards.finish(save=False)
            for feeder in self._feeders:
                feeder.close()
            self._finished.set()
            self._refuse_swaps()

    def _loop(self) -> None:
        ticked = time.monotonic()
        while not self._stop.is_set():
            self._alive_at = time.monotonic()
            for shard in self._working():
                if shard.desk is not None:
                    shard.desk.step(shard.engine, shard.delivery)
                self._forget(shard.engine)
            full = self._way.full  # then the feeders find no room, and read no more
            fed = None if full else self._next_chunk()
            self._take_swaps()  # after the wait: what comes after a reload was told of, the new engine uses
            if fed is not None:
                self._absorb(*fed)
            elif full:
                self._stop.wait(_FULL_SECONDS)
            elif all(feeder.ended for feeder in self._feeders) and self._chunks.empty():
                return
            else:
                self._learn()
            if not full and time.monotonic() - ticked > _TICK_SECONDS:
                ticked = time.monotonic()
                for shard in self._working():
                    shard.delivery.reports(shard.engine.tick(self._time()))
            self._refit()
            if self._own is not None:
                self._own.delivery.step(self._own.engine)
            elif self._shards is not None:
                self._shards.step()
            self._paint()

    def _forget(self, engine: Engine) -> None:
        """Make sources drop the ids that the engine was asked to forget, before the next checkpoint."""
        forgotten, engine.forgotten = engine.forgotten, []
        for keys in forgotten:
            for feeder in self._feeders:
                feeder.forget(keys)
                engine.revise_positions(feeder.name, partial(feeder.without, keys=keys))

    def _refit(self) -> None:
        if self._refitter is None:
            return
        working = self._working()
        for shard in working:
            self._refitter.step(shard.engine, self._time(), shard)
        if self._shards is not None:
            self._refitter.drop(working)

    def _next_chunk(self) -> Fed | None:
        try:
            return self._chunks.get(timeout=_VIEW_SECONDS)
        except queue.Empty:
            return None

    def _learn(self) -> None:
        """Nothing has come: let the engine work ahead, until something does."""
        until = time.monotonic() + _VIEW_SECONDS
        working = self._working()
        while self._chunks.empty() and time.monotonic() < until:
            if not any(shard.engine.learn() for shard in working):
                return

    def _drain(self) -> None:
        """Absorb what was read before the stop, and save it; without a store, close the open windows.

        Open windows are closed too where every source has ended: nothing will fill them.
        """
        self._join_feeders()
        while not self._chunks.empty():
            self._absorb(*self._chunks.get_nowait())
        if self._own is None:
            saved = self._shards is None or self._shards.finish(save=True)
        else:
            engine, delivery = self._own.engine, self._own.delivery
            if not (delivery.keeps_windows and self._stop.is_set()):
                delivery.reports(engine.finish())
            saved = self._save_last(engine, delivery)
        if not saved:
            log.error(
                "The last checkpoint failed; the next start reads the records since the one before again."
            )

    def _save_last(self, engine: Engine, delivery: OutputPolicy) -> bool:
        """Save everything, and return whether that succeeded.

        A request to stop leaves `FLUSH_SECONDS`. Where every source has ended, a slow disk has all the time
        that it takes: what came from a pipe cannot be read again.
        """
        failures = delivery.failures
        while not delivery.flush(engine, FLUSH_SECONDS):
            if self._stop.is_set() or delivery.failures > failures:
                return False
        return True

    def _absorb(self, moving: MovingShard | None, chunk: Chunk) -> None:
        shard = self._own if moving is None else moving
        assert shard is not None
        if moving is not None:
            moving.used += 1
            if moving.ended:  # it was not saved with the rest: the next owner reads it again
                self._by_name[chunk.source].absorbed()
                return
        shard.delivery.reports(shard.engine.absorb(chunk, self._time()))
        if chunk.rejects:
            self._sinks.rejects(chunk)
        self._unjoined.saw(chunk)
        self._rises.check_scores(chunk)
        self._by_name[chunk.source].absorbed()
        shard.delivery.absorbed(chunk.source, chunk.positions)

    def _tell(self, source: str, positions: Mapping[str, object]) -> None:
        self._by_name[source].acknowledge(positions)

    def _join_feeders(self) -> None:
        deadline = time.monotonic() + _JOIN_SECONDS
        for feeder in self._feeders:
            feeder.join(max(deadline - time.monotonic(), 0.0))

    def _take_swaps(self) -> None:
        for swap, config, outcome in self._waiting_swaps():
            try:
                working = self._working()
                # The new engine begins from the old one's snapshot, as if all of it were saved.
                if not all(shard.delivery.flush(shard.engine, FLUSH_SECONDS) for shard in working):
                    raise BlindsightError("the state cannot be saved at present; try again when it can")
                swapped = [(shard, *swap(shard.engine)) for shard in working]
            except Exception as error:  # noqa: BLE001 - whoever asked for it hears of it
                log.error("The engine was not replaced, the old one continues: %r", error)
                outcome.set_exception(error)
                continue
            for shard, engine, reports in swapped:
                shard.engine = engine
                if config is not None:
                    shard.delivery.configured(config)
                shard.delivery.reports(reports)
            outcome.set_result(None)

    def _refuse_swaps(self) -> None:
        for _, _, outcome in self._waiting_swaps():
            outcome.set_exception(BlindsightError("the agent has ended"))

    def _waiting_swaps(self) -> Iterator[tuple[Swap, str | None, Future[None]]]:
        """Those that nobody has given up on."""
        with suppress(queue.Empty):
            while True:
                swap, config, outcome = self._swaps.get_nowait()
                if outcome.set_running_or_notify_cancel():
                    yield swap, config, outcome

    def _time(self) -> float:
        """The clock, never falling: a window that has aged must not grow young again."""
        self._now = max(self._now, self._clock())
        return self._now

    def _paint(self, force: bool = False) -> None:
        began = time.monotonic()
        if force or began >= self._pictured_next:
            self._picture = self._rises.marked(self._seen())
            took = time.monotonic() - began
            self._pictured_next = began + took + max(_VIEW_SECONDS, took / _VIEW_SHARE)
            self._unjoined.look(self._picture, ended=force and not self._stop.is_set())
            self._rises.log_rises(self._picture)

    def _seen(self) -> EngineView:
        if self._own is not None:
            return self._own.engine.view()
        assert self._shards is not None
        return self._shards.view()
