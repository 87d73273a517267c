"""Checkpoints in a thread of their own: the engine never waits for the disk.

One checkpoint is under way at a time. The engine gives its changes, goes on, and hears at a later step
whether they were saved; those that could not be are given again with the next.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from monitor.base.errors import StoreError
from monitor.base.state_changes import Changes
from monitor.reports.window_report import WindowReport
from monitor.store import Store

log = logging.getLogger("blindsight")

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
    store : Store
        Used by the keeper's thread alone, once started.
    written : callable
        How far the reports file has been written, to be saved along.
    """

    def __init__(self, store: Store, written: Written = dict) -> None:
        self._store = store
        self._written = written
        self._given: queue.Queue[Checkpoint | None] = queue.Queue(1)
        self._done: queue.Queue[CheckpointOutcome] = queue.Queue()
        self._busy = False
        self._thread = threading.Thread(target=self._run, name="store", daemon=True)
        self.failing: str | None = None
        """Why the last checkpoint could not be saved; None where it was."""
        self.failures = 0

    def start(self) -> None:
        """Begin to take checkpoints."""
        self._thread.start()

    @property
    def busy(self) -> bool:
        """Whether a checkpoint is under way, or done and not yet heard of."""
        return self._busy

    def save(self, checkpoint: Checkpoint) -> None:
        """Give a checkpoint; only while not `busy`."""
        self._busy = True
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
        self._note(outcome)
        return outcome

    def close(self, timeout_seconds: float) -> None:
        """End the thread after the checkpoint under way, and close the store."""
        if self._thread.ident is not None:
            self._given.put(None)
            self._thread.join(timeout_seconds)
        if not self._thread.is_alive():
            self._store.close()

    def _run(self) -> None:
        while (checkpoint := self._given.get()) is not None:
            error = None
            try:
                self._store.commit(checkpoint.changes, checkpoint.reports, self._written(), checkpoint.config)
            except StoreError as found:
                error = str(found)
            except Exception as found:
                log.exception("A checkpoint failed unexpectedly.")
                error = str(found)
            self._done.put(CheckpointOutcome(checkpoint, error))

    def _note(self, outcome: CheckpointOutcome) -> None:
        """Say once that saving fails, and once that it works again."""
        if outcome.error is not None:
            self.failures += 1
            if self.failing is None:
                log.error("%s. Nothing is lost while the agent runs; it tries again.", outcome.error)
        elif self.failing is not None:
            log.info("The state is saved again.")
        self.failing = outcome.error
