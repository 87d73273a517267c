"""Checkpoints, and the output of reports and acknowledgements after checkpoints.

Without a store, reports are written and positions acknowledged immediately. With a store, a checkpoint first
saves the state. A checkpoint is made every `every_seconds`, and immediately when an alarm begins or ends.
Only saved reports are written, and only saved positions are acknowledged. The engine never waits for the
disk.

A separate thread saves one checkpoint at a time. The engine's thread passes the changes to this thread and
continues. At a later step it gets the outcome. Changes that could not be saved become part of the next
checkpoint.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from monitor.base.errors import CommitUnknownError, LeaseLostError, StoreAwayError, StoreError
from monitor.base.state_changes import Changes
from monitor.reports.window_report import WindowReport
from monitor.store import StateStore

if TYPE_CHECKING:  # the agent passes its engine
    from monitor.engine.engine import Engine

log = logging.getLogger("blindsight")

_AGAIN_SECONDS = 0.5
_SLOW_SECONDS = 10.0  # normally a checkpoint takes a fraction of a second

Written = Callable[[], Mapping[str, tuple[int, int]]]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The content of one checkpoint, which the store saves in one transaction.

    Parameters
    ----------
    changes : Changes
        The parts of the engine's state that changed since the last checkpoint.
    reports : sequence of WindowReport
        The reports since the last checkpoint.
    positions : mapping of str to mapping of str to object
        The positions of each source, by partition. They are acknowledged after the checkpoint.
    config : str or None
        The configuration as JSON, if it changed.
    """

    changes: Changes
    reports: Sequence[WindowReport]
    positions: Mapping[str, Mapping[str, object]]
    config: str | None = None


@dataclass(frozen=True, slots=True)
class CheckpointOutcome:
    """The outcome of saving a checkpoint.

    `error` is the message of the error, or None if the checkpoint was saved.
    """

    checkpoint: Checkpoint
    error: str | None


class CheckpointWriter:
    """A thread that saves checkpoints.

    Parameters
    ----------
    store : StateStore
        The store. After the start, only this thread uses it.
    written : callable
        Returns the progress of each sink, by name. Each checkpoint saves this progress.
    """

    def __init__(self, store: StateStore, written: Written = dict) -> None:
        self._store = store
        self._written = written
        self._pending: queue.Queue[Checkpoint | None] = queue.Queue(1)
        self._done: queue.Queue[CheckpointOutcome] = queue.Queue()
        self._busy = False
        self._thread = threading.Thread(target=self._run, name="store", daemon=True)
        self._unsaved: str | None = None  # the reason why the last checkpoint could not be saved
        self._unreached: str | None = None  # the reason why the lease could not be renewed
        self._since = 0.0  # monotonic time at which saving the current checkpoint began
        self._waiting_since: float | None = (
            None  # monotonic time at which the current call of the store began
        )
        self.failures = 0
        self.lost: LeaseLostError | None = None
        """The error if another agent has taken over the store, otherwise None."""

    def start(self) -> None:
        """Start the thread that saves checkpoints."""
        self._thread.start()

    @property
    def failing(self) -> str | None:
        """The reason why checkpoints cannot be saved at present, or None."""
        stands = time.monotonic() - self._since
        if self._unsaved is None and self._busy and stands > _SLOW_SECONDS:
            return f"a checkpoint has been under way for {stands:.0f} s"
        known, since = self._unsaved or self._unreached, self._waiting_since
        if known is None and since is not None and (stands := time.monotonic() - since) > _SLOW_SECONDS:
            return f"the store has not answered for {stands:.0f} s"
        return known

    @property
    def busy(self) -> bool:
        """True from a call of `save` until `outcome` has returned the outcome."""
        return self._busy

    def save(self, checkpoint: Checkpoint) -> None:
        """Begin to save a checkpoint in the thread. The caller must check that `busy` is False."""
        self._busy, self._since = True, time.monotonic()
        self._pending.put(checkpoint)

    def outcome(self, timeout_seconds: float = 0.0) -> CheckpointOutcome | None:
        """Wait for the outcome of the current checkpoint, and return it.

        The result is None if the checkpoint does not finish in time, or if there is no current checkpoint.
        """
        if not self._busy:
            return None
        try:
            outcome = self._done.get(timeout=timeout_seconds) if timeout_seconds else self._done.get_nowait()
        except queue.Empty:
            return None
        self._busy = False
        return outcome

    def close(self, timeout_seconds: float) -> None:
        """Finish the current checkpoint, end the thread, and close the store.

        If the thread does not end within `timeout_seconds`, the store stays open.
        """
        if self._thread.ident is not None:
            self._pending.put(None)
            self._thread.join(timeout_seconds)
        if not self._thread.is_alive():
            self._store.close()

    def _run(self) -> None:
        while True:
            try:
                checkpoint = self._pending.get(timeout=self._store.renew_seconds)
            except queue.Empty:
                self._renew()
                continue
            if checkpoint is None:
                return
            self._done.put(CheckpointOutcome(checkpoint, self._saved(checkpoint)))

    def _saved(self, checkpoint: Checkpoint) -> str | None:
        """Save a checkpoint, and return the error or None.

        If the outcome of the commit is unknown, repeat the commit until its outcome is known.
        """
        while True:
            error = self._try(lambda: self._commit(checkpoint))
            self._log_change(self._unsaved or self._unreached, error)
            if error is None:
                self._unsaved = self._unreached = None
                return None
            self._unsaved = str(error)
            self.failures += 1
            # Another checkpoint may follow only if this checkpoint was certainly not saved.
            if not isinstance(error, CommitUnknownError) or not self._pending.empty():
                if not isinstance(error, StoreAwayError):
                    self._renew()  # an agent whose disk is full keeps its lease
                return str(error)
            time.sleep(_AGAIN_SECONDS)

    def _commit(self, checkpoint: Checkpoint) -> None:
        self._store.commit(checkpoint.changes, checkpoint.reports, self._written(), checkpoint.config)

    def _renew(self) -> None:
        """Renew the lease. A renewal may succeed although checkpoints fail."""
        error = self._try(self._store.renew)
        if self._unsaved is None:
            self._log_change(self._unreached, error)
        self._unreached = None if error is None else str(error)

    def _try(self, do: Callable[[], object]) -> Exception | None:
        """Call a function that uses the store, and return its error or None."""
        self._waiting_since = time.monotonic()
        try:
            do()
        except StoreError as error:
            if isinstance(error, LeaseLostError):
                self.lost = error
            return error
        except Exception as error:
            log.exception("A checkpoint failed unexpectedly.")
            return error
        finally:
            self._waiting_since = None
        return None

    def _log_change(self, before: str | None, error: Exception | None) -> None:
        """Log the first failure after a success, and the first success after a failure."""
        if error is None and before is not None:
            log.info("The state is saved again.")
        elif error is not None and before is None and self.lost is None:
            log.error("%s. Nothing is lost while the agent runs; it tries again.", error)


Tell = Callable[[str, Mapping[str, object]], None]
"""The type of a function that acknowledges positions (by partition) to the source with a name."""

Take = Callable[[Sequence[WindowReport]], None]

Then = Callable[[], None]

_MOST_REPORTS = (
    10_000  # largest number of reports that wait for a failing store; beyond it, the sources stop reading
)


class OutputPolicy(ABC):
    """The interface through which the engine's thread outputs reports and acknowledges positions.

    `ImmediateOutput` implements it without a store, `CheckpointedOutput` with checkpoints.
    """

    keeps_windows: bool
    """True if open windows are saved. The agent then need not close them when it stops."""

    saved_time: float | None = None
    """The time of the last saved checkpoint, in seconds since the epoch."""

    @property
    def failing(self) -> str | None:
        """The reason why the state cannot be saved at present, or None."""
        return None

    @property
    def full(self) -> bool:
        """True if the agent must stop reading, because too much output waits to be saved."""
        return False

    @property
    def failures(self) -> int:
        """The number of checkpoints that could not be saved."""
        return 0

    @abstractmethod
    def reports(self, reports: Sequence[WindowReport]) -> None:
        """Output the reports of closed windows, in order."""

    @abstractmethod
    def absorbed(self, source: str, positions: Mapping[str, object]) -> None:
        """Acknowledge positions of a source. The engine has processed all records before these positions."""

    @abstractmethod
    def after_save(self, then: Then) -> None:
        """Call `then` as soon as the present state of the engine is saved."""

    @abstractmethod
    def set_config(self, config: str) -> None:
        """Set the configuration, as JSON. It is saved with the state from now on."""

    @abstractmethod
    def step(self, engine: Engine) -> None:
        """Process the outcome of the current checkpoint, and start the next checkpoint if it is due.

        The engine's thread calls this method between two chunks.

        Raises
        ------
        LeaseLostError
            Another agent has taken the lease.
        """

    @abstractmethod
    def flush(self, engine: Engine, timeout_seconds: float) -> bool:
        """Save all unsaved changes. Return False if this fails or takes longer than the time limit."""


class ImmediateOutput(OutputPolicy):
    """The output of an agent without a store: it writes reports and acknowledges positions immediately.

    Parameters
    ----------
    take : callable
        Writes reports.
    tell : callable
        Acknowledges positions to a source.
    """

    keeps_windows = False

    def __init__(self, take: Take, tell: Tell) -> None:
        self._take = take
        self._tell = tell

    def reports(self, reports: Sequence[WindowReport]) -> None:
        """Write the reports of closed windows immediately."""
        self._take(reports)

    def absorbed(self, source: str, positions: Mapping[str, object]) -> None:
        """Acknowledge positions to their source immediately."""
        self._tell(source, positions)

    def after_save(self, then: Then) -> None:
        """Call `then` immediately, because there are no checkpoints."""
        then()

    def set_config(self, config: str) -> None:
        """Do nothing, because nothing is saved."""

    def step(self, engine: Engine) -> None:
        """Do nothing, because there are no checkpoints."""

    def flush(self, engine: Engine, timeout_seconds: float) -> bool:
        """Return True, because nothing waits to be saved."""
        return True


class CheckpointedOutput(OutputPolicy):
    """The output of an agent with a store: it writes reports and acknowledges positions after a checkpoint.

    Parameters
    ----------
    keeper : CheckpointWriter
        The thread that saves checkpoints.
    every_seconds : float
        The time between two checkpoints.
    take : callable
        Writes the reports of a saved checkpoint.
    tell : callable
        Acknowledges the positions of a saved checkpoint to a source.
    config : str or None
        The configuration as JSON, if the store has a different configuration; otherwise None.
    clock : callable
        Returns monotonic seconds.
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
        self._under_way = 0  # number of reports in the current checkpoint
        self._positions: dict[str, dict[str, object]] = {}
        self._alarms: dict[tuple[str, str, str, str], bool] = {}
        self._news = config is not None
        self._then: list[Then] = []
        self._then_under_way: list[Then] = []

    @property
    def full(self) -> bool:
        """True if the agent must stop reading, because 10,000 reports or more wait to be saved."""
        return len(self._reports) + self._under_way >= _MOST_REPORTS

    @property
    def failing(self) -> str | None:
        """The reason why the state cannot be saved at present, or None."""
        return self._keeper.failing

    @property
    def failures(self) -> int:
        """The number of checkpoints that could not be saved."""
        return self._keeper.failures

    def reports(self, reports: Sequence[WindowReport]) -> None:
        """Add reports to the next checkpoint, which is due immediately if an alarm has begun or ended."""
        for report in reports:
            if report.revision:  # a revision has the charts from the time when its window closed
                continue
            for chart in report.charts:
                series = (report.task, report.model, report.group, chart.metric)
                raised = chart.verdict.out_of_control
                self._urgent |= self._alarms.get(series, False) != raised
                self._alarms[series] = raised
        self._reports += reports
        self._news |= bool(reports)

    def absorbed(self, source: str, positions: Mapping[str, object]) -> None:
        """Add positions to the next checkpoint."""
        self._positions.setdefault(source, {}).update(positions)
        self._news = True

    def after_save(self, then: Then) -> None:
        """Make a checkpoint due immediately. After it is saved, call `then`."""
        self._then.append(then)
        self._urgent = self._news = True

    def set_config(self, config: str) -> None:
        """Add the configuration, as JSON, to the next checkpoint."""
        self.config = config
        self._news = True

    def step(self, engine: Engine) -> None:
        """Process the outcome of the current checkpoint, and start the next checkpoint if it is due."""
        self._finish_checkpoint(engine, 0.0)
        due = self._urgent or self._clock() - self._began >= self._every
        if self._news and due and not self._keeper.busy:
            self._save(engine)

    def flush(self, engine: Engine, timeout_seconds: float) -> bool:
        """Save all unsaved changes. Return False if this fails or takes longer than the time limit."""
        deadline = self._clock() + timeout_seconds
        while self._news or self._keeper.busy:
            if self._clock() > deadline:
                return False
            if not self._keeper.busy:
                self._save(engine)
            self._finish_checkpoint(engine, max(0.01, deadline - self._clock()))
            if self.failing:
                return False
        return True

    def _save(self, engine: Engine) -> None:
        """Start a checkpoint of the engine's changes."""
        self._began = self._clock()
        self._urgent = self._news = False
        reports, self._reports = self._reports, []
        self._under_way = len(reports)
        positions, self._positions = self._positions, {}
        self._then_under_way, self._then = self._then, []
        self._keeper.save(Checkpoint(engine.changes(), reports, positions, self.config))

    def _finish_checkpoint(self, engine: Engine, timeout_seconds: float) -> None:
        """Process the outcome of the current checkpoint. If it does not finish in time, do nothing.

        Raises
        ------
        LeaseLostError
            Another agent has taken the lease.
        """
        outcome = self._keeper.outcome(timeout_seconds)
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
        """Put the content of a failed checkpoint back, before later changes, reports and positions."""
        self._reports = [*outcome.checkpoint.reports, *self._reports]
        for source, positions in outcome.checkpoint.positions.items():
            self._positions[source] = {**positions, **self._positions.get(source, {})}
        self._then = [*self._then_under_way, *self._then]
        self._news = True
