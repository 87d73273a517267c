"""The command `blindsight run`: the agent with its HTTP server, its outputs and its signal handlers."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import wait
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import FrameType

from connectors.build import build_inputs, decoders_of
from monitor.agent.agent import Agent
from monitor.agent.decoders import Decoders
from monitor.agent.refit_process import ProcessLimits, RefitWorker
from monitor.agent.refits import Refitter
from monitor.agent.resume import tasks_as_json
from monitor.agent.shards import Shards
from monitor.base.errors import BlindsightError, ConfigError, InUseError, SinkError, SourceError, StoreError
from monitor.cli.check.calibrations import interval_sentences
from monitor.cli.journal import Journal, JournalSinks
from monitor.cli.outputs import alert_pushers, exporter, otlp_pushers, reject_queues, report_queues, retention
from monitor.cli.process import abandon_threads
from monitor.cli.standby import StandBy
from monitor.cli.state import ShardOpener, State, open_state
from monitor.cli.trial import ReferenceTrial
from monitor.cli.tried import Stamp, Tried, reference_stamps
from monitor.config.file import load_config
from monitor.config.reload import classify
from monitor.config.root import Config
from monitor.engine.engine import Engine, EngineSettings
from monitor.export.page.routes import page_routes
from monitor.export.page.windows import RecentWindows, StoredWindows, Windows
from monitor.export.prometheus.collector import registry
from monitor.export.sinks.sinks import AgentSinks, ReportSink, SinkSet
from monitor.reports.views import AgentView, EngineView
from monitor.reports.window_report import WindowReport
from monitor.store.database import Database
from monitor.store.opening import store_location

log = logging.getLogger("blindsight")

_WAKE_SECONDS = 0.2
_DRAIN_SECONDS = 4.0  # the process must end within five seconds of SIGTERM
_SWAP_SECONDS = 2.0  # until the engine starts a reload, and the same time again until it has ended

Watch = Callable[[Sequence[WindowReport]], None]


class Daemon:
    """An agent with its sources, sinks, store and HTTP server, built from a configuration.

    Parameters
    ----------
    config : Config
    watch : callable, optional
        A function that is called with closed windows in the engine's thread. By default a `Journal` logs the
        changes of state in the windows, and the records that could not be used.
    in_flow : bool
        If True, a refit starts as soon as a window makes it due, and the stream waits until the refit ends.
        If False, refits run in another process while the stream continues. Use True for a replayed stream
        that is so fast that the result of another process would be weeks of data late.
    stopping : threading.Event, optional
        An event that ends the wait for a store that another agent uses. Without an event, the start does not
        wait for the store.
    """

    def __init__(
        self,
        config: Config,
        watch: Watch | None = None,
        in_flow: bool = False,
        stopping: threading.Event | None = None,
    ) -> None:
        self.config = config
        self._stamps = reference_stamps(config)  # before the files are read, so that a later change is seen
        tried = Tried(config)
        trial = ReferenceTrial(config, tried)
        settings = trial.engine_settings(in_flow=in_flow)
        journal = Journal()
        self._opener = ShardOpener(config, settings, journal) if _is_partitioned(config) else None
        self._shards = None if self._opener is None else Shards(self._opener, config.sources[0].label)
        self._state = None if self._shards else _open_state(config, settings, stopping)
        tried.save()
        sinks = SinkSet(self._report_sinks(), reject_queues(config))
        windows, watch_recent = self._windows()
        self._sinks = (
            AgentSinks(sinks, _both(watch, watch_recent))
            if watch
            else JournalSinks(sinks, journal, watch_recent)
        )
        self._retention = retention(config)
        for warning in trial.report.unmatched:
            log.warning("%s.", warning)
        for sentence in interval_sentences(config.scored_tasks, settings.references):
            log.info("%s.", sentence)
        engine = self._shards or (settings.build() if self._state is None else self._state.engine)
        resumed = engine.view()
        journal.resume(resumed)
        kept, spools = (None, None) if self._state is None else (self._state.kept, self._state.spools)
        refitter, decoders = Refitter(RefitWorker(), self._refit_limits), _decoders(config, resumed)
        inputs = build_inputs(config, resumed, spools, self._shards)
        self.agent = Agent(engine, inputs, self._sinks, store=kept, refitter=refitter, decoders=decoders)
        export = config.export
        metrics = registry(self.view, export.max_series, distributions=export.distributions)
        self._pushers = [*alert_pushers(config, self.agent.view), *otlp_pushers(config, metrics)]
        self.server = exporter(export, self.view, metrics, page_routes(self.view, windows))

    def view(self) -> AgentView:
        """Return the present state of the agent and of its HTTP server."""
        agent_view = self.agent.view()
        pushers = [pusher.view for pusher in self._pushers]
        outside = self.config.export.external_url or ""
        return replace(
            agent_view, sinks=(*agent_view.sinks, *pushers, self.server.view), external_url=outside
        )

    def _report_sinks(self) -> Sequence[ReportSink]:
        """Return the sinks of reports that live as long as the agent."""
        if self._shards is not None:
            return ()
        return report_queues(self.config) if self._state is None else self._state.followers

    def _windows(self) -> tuple[Windows, Watch | None]:
        """Return the source of windows for the page's charts, and the function that feeds it, if any."""
        shards, opener, store = self._shards, self._opener, self.config.store
        if shards is not None and opener is not None:

            def where(series: tuple[str, str, str]) -> Path | Database | None:
                number = shards.number_of(*series)
                return None if number is None else store_location(opener.section(number))

            return StoredWindows(where), None
        if store is not None:
            return StoredWindows(store_location(store)), None
        recent = RecentWindows()
        return recent, recent.add

    def _refit_limits(self, task: str) -> ProcessLimits:
        """Return the limits of the current configuration.

        After a reload, they apply from the next refit on.
        """
        limits = self.config.scored_tasks[task].ssme
        return ProcessLimits(limits.seconds, limits.memory_bytes)

    @contextmanager
    def running(self) -> Iterator[Agent]:
        """Start the agent, its sinks and its HTTP server.

        At the exit of the context, drain and stop all of them.

        Raises
        ------
        ConfigError
            A file, a source or a port that the configuration names cannot be used.
        InUseError
            Another process uses a port or a folder.
        """
        with ExitStack() as stack:
            if self._state is not None:
                stack.callback(self._state.close)
            try:
                stack.callback(self.server.stop)
                self.server.start()
                stack.callback(self._sinks.close)
                self._sinks.start()
                if self._retention is not None:
                    stack.callback(self._retention.stop)
                    self._retention.start()
                self.agent.start()
                for pusher in self._pushers:
                    stack.callback(pusher.stop)
                    pusher.start()
            except InUseError:
                raise
            except (SourceError, SinkError) as error:
                raise ConfigError(str(error)) from error
            stack.callback(self._drain)
            yield self.agent

    def _drain(self) -> None:
        self.agent.stop()
        if not self.agent.wait(_DRAIN_SECONDS):
            log.warning("Not everything that was read could be used within %.0f s.", _DRAIN_SECONDS)
            abandon_threads()

    def reload(self, path: str) -> None:
        """Read the configuration again. If it cannot be used, log the reason and keep the old configuration.

        A changed reference file is read again, and its task begins a new baseline. The method returns when
        the engine uses the new configuration.
        """
        try:
            changes = self._reload(path)
        except BlindsightError as error:
            self.agent.note_reload(successful=False)
            log.error("The configuration was not reloaded, the old one stays in use: %s", error)
        except Exception:
            self.agent.note_reload(successful=False)
            log.exception("The configuration was not reloaded, the old one stays in use.")
        else:
            self.agent.note_reload(successful=True)
            log.info("The configuration was reloaded: %s.", ", ".join(changes) or "no change")

    def _reload(self, path: str) -> list[str]:
        """Apply the new configuration, and return its changes."""
        new = load_config(path)
        plan = classify(self.config, new)
        if plan.restart:
            raise ConfigError(
                f"{', '.join(plan.restart)}: cannot change while the agent runs; restart it, or put "
                "the old value back"
            )
        stamps = reference_stamps(new)
        rewritten = self._rewritten(new, stamps)
        if plan.changes or rewritten:
            self._swap(new, plan.fresh_tasks | set(rewritten))
        self.config, self._stamps = new, stamps
        files = [f"tasks.{name}.reference (its file {file} has changed)" for name, file in rewritten.items()]
        return [*plan.at_once, *plan.new_baseline, *files]

    def _rewritten(self, new: Config, stamps: Mapping[str, Stamp]) -> dict[str, str]:
        """Return the reference files with the same path as before and new contents, by task."""
        return {
            name: str(new.scored_tasks[name].reference.path)
            for name, stamp in stamps.items()
            if new.scored_tasks[name].reference.path == self.config.scored_tasks[name].reference.path
            and stamp != self._stamps[name]
        }

    def _swap(self, new: Config, fresh: Collection[str]) -> None:
        """Make the engine's thread use the new configuration.

        Raises
        ------
        BlindsightError
            The engine does not use the new configuration in time, because it is busy with one chunk or its
            input has ended.
        """
        tried = Tried(new)
        settings = ReferenceTrial(new, tried).engine_settings()
        tried.save()

        def swap(engine: Engine) -> tuple[Engine, list[WindowReport]]:
            return engine.reconfigured(settings, fresh)

        with nullcontext() if self._opener is None else self._opener.using(new, settings):
            outcome = self.agent.reconfigure(swap, tasks_as_json(new.tasks))
            wait([outcome], _SWAP_SECONDS)
            if outcome.cancel():
                raise BlindsightError(
                    f"the engine was busy for {_SWAP_SECONDS:.0f} s; reload again when it has caught up"
                )
            if not wait([outcome], _SWAP_SECONDS).done:
                raise BlindsightError(
                    f"the engine has not taken it over within {2 * _SWAP_SECONDS:.0f} s, though it may yet; "
                    "reload again to be sure"
                )
            outcome.result()


def _decoders(config: Config, resumed: EngineView) -> Decoders | None:
    """Return the processes that decode records, or None if the agent itself decodes them."""
    return Decoders(config.decoders, decoders_of(config, resumed)) if config.decoders else None


def _open_state(config: Config, settings: EngineSettings, stopping: threading.Event | None) -> State | None:
    """Open the state, after waiting until this agent may use it. Return None without a store."""
    if config.store is None:
        return None
    with StandBy(config, stopping) as stand_by:
        return open_state(config, settings, stand_by.wait)


def _is_partitioned(config: Config) -> bool:
    """Return whether the state moves with partitions."""
    return config.store is not None and config.store.by_partition


def _both(first: Watch, second: Watch | None) -> Watch:
    def watch(reports: Sequence[WindowReport]) -> None:
        first(reports)
        if second is not None:
            second(reports)

    return watch


def run(path: str) -> int:
    """Run the daemon until a signal or the end of every source, and return the exit code."""
    config = load_config(path)
    if not config.sources:
        raise ConfigError("sources: there are none; `run` needs one, or use `replay` for files")
    stopping, reloading = threading.Event(), threading.Event()
    with signals(stopping, reloading):
        # The handlers are set first: a SIGHUP while references are read must not end the process.
        try:
            daemon = Daemon(config, stopping=stopping)
        except StoreError:
            if stopping.is_set():
                return 0
            raise
        with daemon.running() as agent:
            log.info(
                "Running: metrics on port %d of %s.",
                daemon.server.port,
                config.export.listen.rsplit(":", 1)[0],
            )
            while not stopping.is_set() and not agent.wait(_WAKE_SECONDS):
                if reloading.is_set():
                    reloading.clear()
                    daemon.reload(path)
            log.info("Stopping: %s.", _why(stopping, agent))
    return 1 if agent.failure is not None else 0


def _why(stopping: threading.Event, agent: Agent) -> str:
    if agent.failure is not None:
        return "the engine has failed"
    return "asked to" if stopping.is_set() else "every source has ended"


@contextmanager
def signals(stopping: threading.Event, reloading: threading.Event) -> Iterator[None]:
    """Install signal handlers: SIGTERM and SIGINT set `stopping`, SIGHUP sets `reloading`.

    At the exit of the context, the earlier handlers are restored.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        stopping.set()

    def reload(number: int, frame: FrameType | None) -> None:
        reloading.set()

    wanted = {signal.SIGTERM: stop, signal.SIGINT: stop, signal.SIGHUP: reload}
    before = {number: signal.signal(number, handler) for number, handler in wanted.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
