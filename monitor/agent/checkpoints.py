"""How closed windows and positions leave the agent: at once, or by checkpoints in a thread of their own.

Without a store, windows go to their file and sources hear at once what has been used. With one, a checkpoint
comes between: every `every_seconds`, and as soon as an alarm is raised or released. Only what is saved is
written to the reports file and told to the sources. The engine never waits for the disk.

One checkpoint is under way at a time. The engine gives its changes, goes on, and hears at a later step
whether they were saved; those that could not be are given again with the next.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from monitor.base.errors import CommitUnknownError, LeaseLostError, StoreAwayError, StoreError
from monitor.base.state_changes import Changes
from monitor.engine.engine import Engine
from monitor.reports.window_report import WindowReport
from monitor.store import StateStore

log = logging.getLogger("blindsight")

_AGAIN_SECONDS = 0.5
_SLOW_SECONDS = 10.0  # a checkpoint takes a fraction of a second

Written = Callable[[], Mapping[str, tuple[int, int]]]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What one checkpoint saves.

    Parameters
    ----------
    changes : Changes
    reports : sequence of WindowReport
    positions : mapping of str to mapping of str to object
        By source, where it stood: to be told to it once this is saved.
    config : str or None
        The configuration as JSON, where it changed.
    """

    changes: Changes
    reports: Sequence[WindowReport]
    positions: Mapping[str, Mapping[str, object]]
    config: str | None = None


@dataclass(frozen=True, slots=True)
class CheckpointOutcome:
    """What became of a checkpoint: saved, or not and why."""

    checkpoint: Checkpoint
    error: str | None


class CheckpointWriter:
    """Saves checkpoints.

    Parameters
    ----------
    store : StateStore
        Used by the keeper's thread alone, once started.
    written : callable
        How far the reports file has been written, to be saved along.
    """

    def __init__(self, store: StateStore, written: Written = dict) -> None:
        self._store = store
        self._written = written
        self._given: queue.Queue[Checkpoint | None] = queue.Queue(1)
        self._done: queue.Queue[CheckpointOutcome] = queue.Queue()
        self._busy = False
        self._thread = threading.Thread(target=self._run, name="store", daemon=True)
        self._unsaved: str | None = None  # why the last checkpoint could not be saved
        self._unreached: str | None = None  # why the lease could not be renewed
        self._since = 0.0  # when the checkpoint under way was given, monotonic
        self._asked: float | None = None  # since when the store is waited for, monotonic
        self.failures = 0
        self.lost: LeaseLostError | None = None
        """Set for good once another agent has taken over."""

    def start(self) -> None:
        """Begin to take checkpoints."""
        self._thread.start()

    @property
    def failing(self) -> str | None:
        """Why nothing can be saved at present; None where it can."""
        stands = time.monotonic() - self._since
        if self._unsaved is None and self._busy and stands > _SLOW_SECONDS:
            return f"a checkpoint has been under way for {stands:.0f} s"
        known, asked = self._unsaved or self._unreached, self._asked
        if known is None and asked is not None and (stands := time.monotonic() - asked) > _SLOW_SECONDS:
            return f"the store has not answered for {stands:.0f} s"
        return known

    @property
    def busy(self) -> bool:
        """Whether a checkpoint is under way, or done and not yet heard of."""
        return self._busy

    def save(self, checkpoint: Checkpoint) -> None:
        """Give a checkpoint; only while not `busy`."""
        self._busy, self._since = True, time.monotonic()
        self._given.put(checkpoint)

    def heard(self, timeout_seconds: float = 0.0) -> CheckpointOutcome | None:
        """What became of the checkpoint under way; None while that is open, or where there is none."""
        if not self._busy:
            return None
        try:
            outcome = self._done.get(timeout=timeout_seconds) if timeout_seconds else self._done.get_nowait()
        except queue.Empty:
            return None
        self._busy = False
        return outcome

    def close(self, timeout_seconds: float) -> None:
        """End the thread after the checkpoint under way, and close the store."""
        if self._thread.ident is not None:
            self._given.put(None)
            self._thread.join(timeout_seconds)
        if not self._thread.is_alive():
            self._store.close()

    def _run(self) -> None:
        while True:
            try:
                checkpoint = self._given.get(timeout=self._store.renew_seconds)
            except queue.Empty:
                self._renew()
                continue
            if checkpoint is None:
                return
            self._done.put(CheckpointOutcome(checkpoint, self._saved(checkpoint)))

    def _saved(self, checkpoint: Checkpoint) -> str | None:
        """Why it could not be saved; None where it was. Whether it was is found out first."""
        while True:
            error = self._try(lambda: self._commit(checkpoint))
            self._say(self._unsaved or self._unreached, error)
            if error is None:
                self._unsaved = self._unreached = None
                return None
            self._unsaved = str(error)
            self.failures += 1
            # The engine may give other changes next only if these do not count.
            if not isinstance(error, CommitUnknownError) or not self._given.empty():
                if not isinstance(error, StoreAwayError):
                    self._renew()  # a full disk is no reason to lose the lease
                return str(error)
            time.sleep(_AGAIN_SECONDS)

    def _commit(self, checkpoint: Checkpoint) -> None:
        self._store.commit(checkpoint.changes, checkpoint.reports, self._written(), checkpoint.config)

    def _renew(self) -> None:
        """Keep the right to write; that this works does not say that anything can be saved."""
        error = self._try(self._store.renew)
        if self._unsaved is None:
            self._say(self._unreached, error)
        self._unreached = None if error is None else str(error)

    def _try(self, do: Callable[[], object]) -> Exception | None:
        """Use the store."""
        self._asked = time.monotonic()
        try:
            do()
        except StoreError as found:
            if isinstance(found, LeaseLostError):
                self.lost = found
            return found
        except Exception as found:
            log.exception("A checkpoint failed unexpectedly.")
            return found
        finally:
            self._asked = None
        return None

    def _say(self, before: str | None, error: Exception | None) -> None:
        """Say once that nothing can be saved, and once that it can again."""
        if error is None and before is not None:
            log.info("The state is saved again.")
        elif error is not None and before is None and self.lost is None:
            log.error("%s. Nothing is lost while the agent runs; it tries again.", error)


Tell = Callable[[str, Mapping[str, object]], None]
"""Tells a source, by its name, what has been used."""

Take = Callable[[Sequence[WindowReport]], None]

Then = Callable[[], None]

_MOST_REPORTS = 10_000  # that wait for a store which cannot be written; beyond, the sources wait


class OutputPolicy(ABC):
    """What the agent does with its results. Used by the engine's thread alone."""

    keeps_windows: bool
    """Whether open windows outlive the agent, so that it need not close them when it stops."""

    saved_time: float | None = None
    """When the last checkpoint was saved, seconds since the epoch."""

    @property
    def failing(self) -> str | None:
        """Why the state cannot be saved at present; None where it can, or need not be."""
        return None

    @property
    def full(self) -> bool:
        """Whether so many closed windows wait to be saved that no more may close."""
        return False

    @property
    def failures(self) -> int:
        """Checkpoints that could not be saved."""
        return 0

    @abstractmethod
    def reports(self, reports: Sequence[WindowReport]) -> None:
        """Take closed windows, in order."""

    @abstractmethod
    def absorbed(self, source: str, positions: Mapping[str, object]) -> None:
        """Hear that the engine has used everything of a source before these positions."""

    @abstractmethod
    def after_save(self, then: Then) -> None:
        """Hear that the engine has changed; call back once that change is saved."""

    @abstractmethod
    def configured(self, config: str) -> None:
        """Hear of the configuration, as JSON, that holds from now on."""

    @abstractmethod
    def step(self, engine: Engine) -> None:
        """Do what is due; called between two chunks.

        Raises
        ------
        LeaseLostError
            Another agent has taken over.
        """

    @abstractmethod
    def flush(self, engine: Engine, timeout_seconds: float) -> bool:
        """Save everything; whether that was done in time."""


class ImmediateOutput(OutputPolicy):
    """Without a store.

    Parameters
    ----------
    take : callable
        Where closed windows go.
    tell : callable
    """

    keeps_windows = False

    def __init__(self, take: Take, tell: Tell) -> None:
        self._take = take
        self._tell = tell

    def reports(self, reports: Sequence[WindowReport]) -> None:
        self._take(reports)

    def absorbed(self, source: str, positions: Mapping[str, object]) -> None:
        self._tell(source, positions)

    def after_save(self, then: Then) -> None:
        then()

    def configured(self, config: str) -> None:
        """Nothing keeps it."""

    def step(self, engine: Engine) -> None:
        """Nothing is due."""

    def flush(self, engine: Engine, timeout_seconds: float) -> bool:
        return True


class CheckpointedOutput(OutputPolicy):
    """By way of the store.

    Parameters
    ----------
    keeper : CheckpointWriter
    every_seconds : float
        Between two checkpoints.
    take : callable
        Shown the closed windows of a checkpoint once it is saved.
    tell : callable
    config : str or None
        The configuration as JSON, where it is not the one that the store has.
    clock : callable
        Monotonic seconds.
    """

    keeps_windows = True

    def __init__(
        self,
        keeper: CheckpointWriter,
        every_seconds: float,
        take: Take,
        tell: Tell,
        config: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._keeper = keeper
        self._every = every_seconds
        self._take = take
        self._tell = tell
        self._clock = clock
        self.config = config
        self._began = clock()
        self._urgent = False
        self._reports: list[WindowReport] = []
        self._under_way = 0  # reports in the checkpoint under way
        self._positions: dict[str, dict[str, object]] = {}
        self._alarms: dict[tuple[str, str, str, str], bool] = {}
        self._news = config is not None
        self._then: list[Then] = []
        self._then_under_way: list[Then] = []

    @property
    def full(self) -> bool:
        return len(self._reports) + self._under_way >= _MOST_REPORTS

    @property
    def failing(self) -> str | None:
        return self._keeper.failing

    @property
    def failures(self) -> int:
        return self._keeper.failures

    def reports(self, reports: Sequence[WindowReport]) -> None:
        for report in reports:
            if report.revision:  # its charts are those of the time when its window closed
                continue
            for chart in report.charts:
                series = (report.task, report.model, report.group, chart.metric)
                raised = chart.verdict.out_of_control
                self._urgent |= self._alarms.get(series, False) != raised
                self._alarms[series] = raised
        self._reports += reports
        self._news |= bool(reports)

    def absorbed(self, source: str, positions: Mapping[str, object]) -> None:
        self._positions.setdefault(source, {}).update(positions)
        self._news = True

    def after_save(self, then: Then) -> None:
        self._then.append(then)
        self._urgent = self._news = True

    def configured(self, config: str) -> None:
        self.config = config
        self._news = True

    def step(self, engine: Engine) -> None:
        self._hear(engine, 0.0)
        due = self._urgent or self._clock() - self._began >= self._every
        if self._news and due and not self._keeper.busy:
            self._save(engine)

    def flush(self, engine: Engine, timeout_seconds: float) -> bool:
        deadline = self._clock() + timeout_seconds
        while self._news or self._keeper.busy:
            if self._clock() > deadline:
                return False
            if not self._keeper.busy:
                self._save(engine)
            self._hear(engine, max(0.01, deadline - self._clock()))
            if self.failing:
                return False
        return True

    def _save(self, engine: Engine) -> None:
        self._began = self._clock()
        self._urgent = self._news = False
        reports, self._reports = self._reports, []
        self._under_way = len(reports)
        positions, self._positions = self._positions, {}
        self._then_under_way, self._then = self._then, []
        self._keeper.save(Checkpoint(engine.changes(), reports, positions, self.config))

    def _hear(self, engine: Engine, timeout_seconds: float) -> None:
        outcome = self._keeper.heard(timeout_seconds)
        if self._keeper.lost is not None:
            raise self._keeper.lost
        if outcome is None:
            return
        self._under_way = 0
        if outcome.error is None:
            engine.confirm()
            self.saved_time = time.time()
            if self.config == outcome.checkpoint.config:
                self.config = None
            self._take(outcome.checkpoint.reports)
            for source, positions in outcome.checkpoint.positions.items():
                self._tell(source, positions)
            for then in self._then_under_way:
                then()
        else:
            engine.retract()
            self._put_back(outcome)

    def _put_back(self, outcome: CheckpointOutcome) -> None:
        """What could not be saved goes before what has come since."""
        self._reports = [*outcome.checkpoint.reports, *self._reports]
        for source, positions in outcome.checkpoint.positions.items():
            self._positions[source] = {**positions, **self._positions.get(source, {})}
        self._then = [*self._then_under_way, *self._then]
        self._news = True
