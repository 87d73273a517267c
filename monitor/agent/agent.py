"""The agent (daemon): a thread for each source, one engine, and a view of the state for exporters.

The engine itself has no clock and no threads, so the agent provides them. Each chunk of records passes three
steps: the engine processes the chunk, the sinks get the reports of the windows that closed, and the agent
acknowledges the records to their source.
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

_QUEUE_CHUNKS = 8  # about 1 MiB each; enough to bridge short delays of a source or of the engine
_TICK_SECONDS = 1.0
_VIEW_SECONDS = 0.25  # the shortest time between two snapshots
_VIEW_SHARE = 0.1  # the largest share of the time spent on snapshots, which are slow with ten thousand models
_FULL_SECONDS = 0.05
_STALLED_SECONDS = 30.0
_JOIN_SECONDS = 2.0  # for all sources together; one read takes a tenth of this time

Swap = Callable[[Engine], tuple[Engine, list[WindowReport]]]
"""The type of a function that replaces an engine.

It takes the old engine. It returns a new engine that continues from the state of the old one, and the reports
of the windows that it closed.
"""


@dataclass(frozen=True, slots=True)
class Reload:
    """The reloads of the configuration: whether the last one succeeded, and the time of the last success."""

    successful: bool
    time: float


class Agent:
    """The running agent: its sources, engines, outputs and threads.

    Parameters
    ----------
    engine : Engine or Shards
        A single engine, or one engine for each partition that is assigned to the agent.
    inputs : sequence of Input
        The sources. With `Shards`, there must be only one.
    sinks : Sinks
        The destinations of reports and rejected records.
    clock : callable, optional
        Returns the time by which windows age, in seconds since the epoch; by default a `SteadyClock`. The
        agent ignores a decrease of this time.
    store : Kept, optional
        Saves checkpoints. Without it, all state is lost when the agent ends.
    refitter : Refitter, optional
        Runs refits. The agent starts and stops it. Without it, there are no refits.
    decoders : Decoders, optional
        Processes that decode the bytes of sources. The agent starts and stops them. Without them, the threads
        of the sources decode.
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
        """Open all sources and start the threads.

        Raises
        ------
        SourceError
            A source cannot be opened.
        """
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
        # The engine's thread starts last, because at its end it joins the others.
        for feeder in self._feeders:
            feeder.start()
        if self._refitter is not None:
            self._refitter.start()
        self._thread.start()

    def stop(self) -> None:
        """Request the end of the agent, without waiting for it.

        The threads stop reading, and process the chunks that have already been read. Open windows are saved,
        or closed if there is no store.
        """
        for feeder in self._feeders:
            feeder.stop()
        self._stop.set()

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Wait until the agent has ended. Return False if the time limit passes first.

        The agent ends after `stop`, or when every source has ended.
        """
        return self._finished.wait(timeout_seconds)

    def reconfigure(self, swap: Swap, config: str | None = None) -> Future[None]:
        """Replace the engine, between two chunks, because the configuration has changed.

        Parameters
        ----------
        swap : callable
            Takes an engine of the agent. Returns the new engine, and the reports of the windows that were
            closed by the change. The function is called for each engine.
        config : str, optional
            The configuration as JSON. It is saved with the state from then on.

        Returns
        -------
        Future
            A future that is done when the engine has been replaced. If `swap` raises an error, the future
            raises this error, and the old engine continues. If the state cannot be saved before the
            replacement, or the agent has ended, the future raises a `BlindsightError`. To prevent a
            replacement that has not begun, cancel the future.
        """
        outcome: Future[None] = Future()
        self._swaps.put((swap, config, outcome))
        if self._finished.is_set():
            self._refuse_swaps()
        return outcome

    def note_reload(self, successful: bool) -> None:
        """Store whether a reload of the configuration succeeded, which the metrics show."""
        self._reload = Reload(successful, self._clock() if successful else self._reload.time)

    def view(self) -> AgentView:
        """Return the present state of the agent for exporters. The method does not wait for the engine."""
        sources = tuple(feeder.view() for feeder in self._feeders)
        stalled = time.monotonic() - self._alive_at
        ended = self._finished.is_set() and self.failure is None
        unready = [
            feeder.how_ended(self._picture) if ended and feeder.failure is None else feeder.why_down()
            for feeder, source in zip(self._feeders, sources, strict=True)
            if ended or not source.up
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
            ended=ended,
        )

    @property
    def _way(self) -> OutputPolicy | Shards:
        """The output of the only shard, or all shards. Both have the attributes that describe checkpoints."""
        if self._own is not None:
            return self._own.delivery
        assert self._shards is not None
        return self._shards

    def _working(self) -> Sequence[Shard]:
        """Return the shards that are not released; an agent without moving shards has one."""
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
            full = self._way.full  # then the queue fills up and the feeders stop reading
            fed = None if full else self._next_chunk()
            self._make_swaps()  # after the wait, so that the new engine absorbs chunks that follow a reload
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
        """Delete forgotten ids from the positions of all sources, before the next checkpoint."""
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
        """Return the next chunk of the queue; None if no chunk arrives within `_VIEW_SECONDS`."""
        try:
            return self._chunks.get(timeout=_VIEW_SECONDS)
        except queue.Empty:
            return None

    def _learn(self) -> None:
        """Let the engines compute calibration errors in advance, until a chunk arrives or time is up."""
        until = time.monotonic() + _VIEW_SECONDS
        working = self._working()
        while self._chunks.empty() and time.monotonic() < until:
            if not any(shard.engine.learn() for shard in working):
                return

    def _drain(self) -> None:
        """Absorb and save the chunks that were read before the stop.

        Open windows are closed if there is no store, or if every source has ended and no record can follow.
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
        """Make a last checkpoint of all unsaved changes, and return whether it succeeded.

        After a request to stop, the time limit is `FLUSH_SECONDS`. After the end of every source there is no
        time limit, because records from a pipe cannot be read again.
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
            if moving.ended:  # the last checkpoint is without this chunk, so the next owner reads it again
                self._by_name[chunk.source].absorbed()
                return
        shard.delivery.reports(shard.engine.absorb(chunk, self._time()))
        if chunk.rejects:
            self._sinks.rejects(chunk)
        self._unjoined.note(chunk)
        self._rises.check_scores(chunk)
        self._by_name[chunk.source].absorbed()
        shard.delivery.absorbed(chunk.source, chunk.positions)

    def _tell(self, source: str, positions: Mapping[str, object]) -> None:
        """Acknowledge saved positions to a source."""
        self._by_name[source].acknowledge(positions)

    def _join_feeders(self) -> None:
        deadline = time.monotonic() + _JOIN_SECONDS
        for feeder in self._feeders:
            feeder.join(max(deadline - time.monotonic(), 0.0))

    def _make_swaps(self) -> None:
        """Replace the engines by those of the waiting swaps, after a checkpoint of the old engines."""
        for swap, config, outcome in self._waiting_swaps():
            try:
                working = self._working()
                # The new engine starts from a snapshot of the old engine, all of which must be saved before.
                if not all(shard.delivery.flush(shard.engine, FLUSH_SECONDS) for shard in working):
                    raise BlindsightError("the state cannot be saved at present; try again when it can")
                swapped = [(shard, *swap(shard.engine)) for shard in working]
            except Exception as error:  # noqa: BLE001 - the future passes it to the caller
                log.error("The engine was not replaced, the old one continues: %r", error)
                outcome.set_exception(error)
                continue
            for shard, engine, reports in swapped:
                shard.engine = engine
                if config is not None:
                    shard.delivery.set_config(config)
                shard.delivery.reports(reports)
            outcome.set_result(None)

    def _refuse_swaps(self) -> None:
        """Make the futures of the waiting swaps raise an error, because the agent has ended."""
        for _, _, outcome in self._waiting_swaps():
            outcome.set_exception(BlindsightError("the agent has ended"))

    def _waiting_swaps(self) -> Iterator[tuple[Swap, str | None, Future[None]]]:
        """Yield the waiting swaps whose futures were not cancelled."""
        with suppress(queue.Empty):
            while True:
                swap, config, outcome = self._swaps.get_nowait()
                if outcome.set_running_or_notify_cancel():
                    yield swap, config, outcome

    def _time(self) -> float:
        """Return the time of the clock, or the latest earlier reading if the clock was set back."""
        self._now = max(self._now, self._clock())
        return self._now

    def _paint(self, force: bool = False) -> None:
        """Make the view for exporters, if the last one is old enough or `force` is set. Log warnings."""
        began = time.monotonic()
        if force or began >= self._pictured_next:
            self._picture = self._rises.marked(self._seen())
            duration = time.monotonic() - began
            self._pictured_next = began + duration + max(_VIEW_SECONDS, duration / _VIEW_SHARE)
            self._unjoined.check(self._picture, ended=force and not self._stop.is_set())
            self._rises.log_rises(self._picture)

    def _seen(self) -> EngineView:
        """Return the view of the only engine, or one view of all shards."""
        if self._own is not None:
            return self._own.engine.view()
        assert self._shards is not None
        return self._shards.view()
