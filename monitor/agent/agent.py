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
from typing import Protocol

from monitor.agent.checkpoints import CheckpointedOutput, CheckpointWriter, ImmediateOutput, OutputPolicy
from monitor.agent.clock import SteadyClock
from monitor.agent.feeder import Feeder
from monitor.agent.refits import Refitter
from monitor.agent.requests import RequestHandler
from monitor.agent.unjoined import UnjoinedLabels
from monitor.base.errors import BlindsightError, LeaseLostError
from monitor.base.records import Chunk
from monitor.base.source import Input
from monitor.engine.engine import Engine
from monitor.reports.views import AgentView, SinkView
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
_FLUSH_SECONDS = 2.0

Swap = Callable[[Engine], tuple[Engine, list[WindowReport]]]
"""Makes an engine that goes on where another one is; the reports are of windows that this closed."""


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


@dataclass(frozen=True, slots=True)
class Reload:
    """How the last reading of the configuration went."""

    successful: bool
    time: float


class Agent:
    """The running daemon.

    Parameters
    ----------
    engine : Engine
    inputs : sequence of Input
    sinks : Sinks
    clock : callable, optional
        Seconds since the epoch, by which windows age; a `SteadyClock` where none is given. It may fall;
        the engine's time does not.
    store : Kept, optional
        Where checkpoints are saved; without it nothing outlives the agent.
    refitter : Refitter, optional
        Runs the refits that come due, and is started and stopped here; without it none are run.
    """

    def __init__(
        self,
        engine: Engine,
        inputs: Sequence[Input],
        sinks: Sinks,
        clock: Callable[[], float] | None = None,
        store: Kept | None = None,
        refitter: Refitter | None = None,
    ) -> None:
        self._engine = engine
        self._refitter = refitter
        self._sinks = sinks
        self._clock = SteadyClock() if clock is None else clock
        self._now = self._clock()
        self._chunks: queue.Queue[Chunk] = queue.Queue()
        self._feeders = [Feeder(source, self._chunks, _QUEUE_CHUNKS) for source in inputs]
        self._by_name = {feeder.name: feeder for feeder in self._feeders}
        self._delivery: OutputPolicy = (
            ImmediateOutput(sinks.reports, self._tell)
            if store is None
            else CheckpointedOutput(
                store.keeper, store.every_seconds, sinks.reports, self._tell, store.config
            )
        )
        self._desk = None if store is None else store.desk
        if store is not None:
            self._delivery.reports(store.reports)
        self._stop = threading.Event()
        self._finished = threading.Event()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._alive_at = time.monotonic()
        self._swaps: queue.SimpleQueue[tuple[Swap, Future[None]]] = queue.SimpleQueue()
        self._reload = Reload(successful=True, time=self._now)
        self._picture = engine.view()
        self._pictured_next = 0.0
        self._unjoined = UnjoinedLabels()
        self.failure: BaseException | None = None

    def start(self) -> None:
        """Open every source and begin; raises `SourceError` where one cannot be had at all."""
        opened: list[Feeder] = []
        try:
            for feeder in self._feeders:
                feeder.open(self._engine.positions(feeder.name))
                opened.append(feeder)
        except BaseException:
            for feeder in opened:
                feeder.close()
            raise
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

    def reconfigure(self, swap: Swap) -> Future[None]:
        """Replace the engine between two chunks; several swaps are done in their order.

        Returns
        -------
        Future
            Done once the engine has been replaced. It holds the error where the swap raised one, and the
            old engine goes on; `BlindsightError` where the agent has ended. Cancelled before the engine's
            thread comes to it, the swap is not made.
        """
        outcome: Future[None] = Future()
        self._swaps.put((swap, outcome))
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
        if self._delivery.failing is not None:
            waits = " So many closed windows wait for it that the sources wait too." * self._delivery.full
            unready.append(f"The state cannot be saved: {self._delivery.failing}.{waits}")
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
            reports_lost=self._sinks.lost,
            store_failing=self._delivery.failing,
            store_failures=self._delivery.failures,
            checkpoint_time=self._delivery.saved_time,
            sinks=self._sinks.views,
            refit_durations={} if self._refitter is None else self._refitter.durations,
        )

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
            for feeder in self._feeders:
                feeder.close()
            self._finished.set()
            self._refuse_swaps()

    def _loop(self) -> None:
        ticked = time.monotonic()
        while not self._stop.is_set():
            self._alive_at = time.monotonic()
            if self._desk is not None:
                self._desk.step(self._engine, self._delivery)
            full = self._delivery.full  # then the feeders find no room, and read no more
            chunk = None if full else self._next_chunk()
            self._take_swaps()  # after the wait: what comes after a reload was told of, the new engine uses
            if chunk is not None:
                self._absorb(chunk)
            elif full:
                self._stop.wait(_FULL_SECONDS)
            elif all(feeder.ended for feeder in self._feeders) and self._chunks.empty():
                return
            else:
                self._learn()
            if not full and time.monotonic() - ticked > _TICK_SECONDS:
                ticked = time.monotonic()
                self._delivery.reports(self._engine.tick(self._time()))
            if self._refitter is not None:
                self._refitter.step(self._engine, self._time())
            self._delivery.step(self._engine)
            self._paint()

    def _next_chunk(self) -> Chunk | None:
        try:
            return self._chunks.get(timeout=_VIEW_SECONDS)
        except queue.Empty:
            return None

    def _learn(self) -> None:
        """Nothing has come: let the engine work ahead, until something does."""
        until = time.monotonic() + _VIEW_SECONDS
        while self._chunks.empty() and self._engine.learn() and time.monotonic() < until:
            pass

    def _drain(self) -> None:
        """Absorb what was read before the stop, and save it; without a store, close the open windows.

        Open windows are closed too where every source has ended: nothing will fill them.
        """
        self._join_feeders()
        while not self._chunks.empty():
            self._absorb(self._chunks.get_nowait())
        if not (self._delivery.keeps_windows and self._stop.is_set()):
            self._delivery.reports(self._engine.finish())
        if not self._delivery.flush(self._engine, _FLUSH_SECONDS):
            log.error(
                "The last checkpoint failed; the next start reads the records since the one before again."
            )

    def _absorb(self, chunk: Chunk) -> None:
        self._delivery.reports(self._engine.absorb(chunk, self._time()))
        if chunk.rejects:
            self._sinks.rejects(chunk)
        self._unjoined.saw(chunk)
        self._by_name[chunk.source].absorbed()
        self._delivery.absorbed(chunk.source, chunk.positions)

    def _tell(self, source: str, positions: Mapping[str, object]) -> None:
        self._by_name[source].acknowledge(positions)

    def _join_feeders(self) -> None:
        deadline = time.monotonic() + _JOIN_SECONDS
        for feeder in self._feeders:
            feeder.join(max(deadline - time.monotonic(), 0.0))

    def _take_swaps(self) -> None:
        for swap, outcome in self._waiting_swaps():
            try:
                # The new engine begins from the old one's snapshot, as if all of it were saved.
                if not self._delivery.flush(self._engine, _FLUSH_SECONDS):
                    raise BlindsightError("the state cannot be saved at present; try again when it can")
                self._engine, reports = swap(self._engine)
            except Exception as error:  # noqa: BLE001 - whoever asked for it hears of it
                log.error("The engine was not replaced, the old one continues: %r", error)
                outcome.set_exception(error)
                continue
            self._delivery.reports(reports)
            outcome.set_result(None)

    def _refuse_swaps(self) -> None:
        for _, outcome in self._waiting_swaps():
            outcome.set_exception(BlindsightError("the agent has ended"))

    def _waiting_swaps(self) -> Iterator[tuple[Swap, Future[None]]]:
        """Those that nobody has given up on."""
        with suppress(queue.Empty):
            while True:
                swap, outcome = self._swaps.get_nowait()
                if outcome.set_running_or_notify_cancel():
                    yield swap, outcome

    def _time(self) -> float:
        """The clock, never falling: a window that has aged must not grow young again."""
        self._now = max(self._now, self._clock())
        return self._now

    def _paint(self, force: bool = False) -> None:
        began = time.monotonic()
        if force or began >= self._pictured_next:
            self._picture = self._engine.view()
            took = time.monotonic() - began
            self._pictured_next = began + took + max(_VIEW_SECONDS, took / _VIEW_SHARE)
            self._unjoined.look(self._picture, ended=force and not self._stop.is_set())
