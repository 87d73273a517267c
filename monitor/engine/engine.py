"""The engine turns chunks of records and times into reports of closed windows. It uses no socket or clock.

`Engine.absorb` processes a chunk. If records must wait until a window has closed, it processes the chunk in
parts. Each task removes duplicates from its records, adds answers to windows, and matches labels to answers.
One vectorised call estimates the metrics of all closed windows. Then each series (a model, or a group of its
answers) corrects its estimates by labels, applies charts, objectives and the test of trust, and makes the
reports of its windows.

The same records in the same order give the same reports. The division of the stream into chunks does not
matter. The decisions about a window depend only on the records up to the one that closed it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from monitor.base.codec import restored
from monitor.base.records import Chunk, Ints, Keys
from monitor.base.registry import TASK_KINDS, WHOLE_TASKS
from monitor.base.results import Outcome
from monitor.base.state_changes import Changes, RingChange
from monitor.config.layouts import layouts as layouts
from monitor.config.task import Task, TaskSection, scored
from monitor.engine.arena.engine import ArenaState
from monitor.engine.chunks import NextPiece, cut, timed
from monitor.engine.clock import EventClock
from monitor.engine.label_fit import LabelFit
from monitor.engine.labels.columns import Forgotten
from monitor.engine.reference import Reference
from monitor.engine.refit.job import RefitJob, RefitResult
from monitor.engine.refit.recalibration import RecalibrationJob, RecalibrationResult
from monitor.engine.refit.wire import Job, JobResult
from monitor.engine.report_order import OrderedReport, Phase, StreamPosition
from monitor.engine.reporting import reports_of
from monitor.engine.series import Series
from monitor.engine.task import TaskState
from monitor.engine.task_logic import TaskLogic, TaskSettings
from monitor.engine.windows import LAST
from monitor.reports.views import EngineView, LabelOutcome
from monitor.reports.window_report import WindowReport
from monitor.stats.estimate.hajek import WeightedCounts

SNAPSHOT_FORMAT = 2


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """The settings of an engine.

    Parameters
    ----------
    tasks : mapping of str to TaskSection
        The configured tasks by name, in the order of their reports at the end of the input.
    references : mapping of str to mapping of str to Reference
        The labelled reference of each model, by task and model.
    event_time : bool
        True if windows age by the records' own times, as in a replay. False if they age by the time of
        arrival.
    refit, recalibrate : callable, optional
        Functions that compute a refit and a recalibration. The engine calls one of them as soon as a closed
        window makes a fit due. So the same records give the same reports. Without these functions,
        `Engine.refits` returns the jobs, and the engine does not wait for their results.
    numbered : bool
        Whether a source numbers the rows of its requests: see `TaskLayout.numbered`.
    """

    tasks: Mapping[str, TaskSection]
    references: Mapping[str, Mapping[str, Reference]] = field(default_factory=dict)
    event_time: bool = False
    refit: Callable[[RefitJob], RefitResult] | None = None
    recalibrate: Callable[[RecalibrationJob], RecalibrationResult] | None = None
    numbered: bool = False

    @property
    def scored_tasks(self) -> dict[str, Task]:
        """The tasks whose models give scores. Arenas are left out."""
        return scored(self.tasks)

    def task_settings(self, name: str) -> TaskSettings[Any]:
        """Return the settings of one task's engine."""
        references = self.references.get(name, {})
        return TaskSettings(name, self.tasks[name], references, self.numbered, self.refit, self.recalibrate)

    def build(self, resume: EngineState | Mapping[str, Any] | None = None) -> Engine:
        """Return the engine, new or resumed from a snapshot.

        Raises
        ------
        ValueError
            The snapshot has another format than `SNAPSHOT_FORMAT`.
        """
        return Engine(self, resume)


class EngineState(msgspec.Struct, frozen=True):
    """The whole state of an engine, without its settings.

    `labels_rejected` and `labels_shed` are counts by task. All other counts are by source. Older versions did
    not count the received labels of each source.
    """

    format: int = SNAPSHOT_FORMAT
    sequence: int = 0
    clock: EventClock = msgspec.field(default_factory=EventClock)
    positions: dict[str, dict[str, Any]] = {}
    received: dict[str, int] = {}
    labels_received: dict[str, int] | None = None
    shed: dict[str, int] = {}
    rejected: list[tuple[str, str, int]] = []
    labels_rejected: dict[str, int] = {}
    labels_shed: dict[str, int] = {}
    ignored: dict[str, int] = {}
    rows_left: dict[str, int] = {}
    answered: dict[str, tuple[bool, str]] = {}
    tasks: dict[str, TaskState] = {}
    arenas: dict[str, ArenaState] = {}


class Engine:
    """A running engine, which holds the state of all tasks.

    Only one thread at a time may use it.
    """

    def __init__(
        self, settings: EngineSettings, resume: EngineState | Mapping[str, Any] | None = None
    ) -> None:
        resumed = EngineState() if resume is None else resume
        found_format = resumed.get("format") if isinstance(resumed, Mapping) else resumed.format
        if found_format != SNAPSHOT_FORMAT:
            raise ValueError(f"format: expected a snapshot of format {SNAPSHOT_FORMAT}, got {found_format!r}")
        state = restored(resumed, EngineState)
        self._event_time = settings.event_time
        self._now = -np.inf
        self._kinds = {name: task.kind for name, task in settings.tasks.items()}
        self._tasks: dict[str, TaskLogic] = {
            name: settings.task_settings(name).build(_states(state, kind).get(name))
            for name, kind in self._kinds.items()
        }
        self._sequence = state.sequence
        self._clock = copy(state.clock)
        self._positions: dict[str, dict[str, object]] = {
            source: dict(positions) for source, positions in state.positions.items()
        }
        self._received = Counter(state.received)
        self._shed = Counter(state.shed)
        self._rejected = Counter({(source, reason): count for source, reason, count in state.rejected})
        self._labels_rejected = Counter(state.labels_rejected)
        self._labels_shed = Counter(state.labels_shed)
        self._ignored = Counter(state.ignored)
        self._rows_left = Counter(state.rows_left)
        self._labels_received = Counter(state.labels_received or {})
        if resume is not None and state.labels_received is None:
            # Older states do not count labels by source; with one source all are its.
            source = next(iter(self._received)) if len(self._received) == 1 else ""
            self._labels_received[source] = self._labels_accounted()
        self.forgotten: list[Keys] = []
        """Ids that sources must still be told to forget."""
        self.answered = {number: Outcome(*answer) for number, answer in state.answered.items()}
        """Completed requests whose files may still exist: the outcome of each by the request's id."""

    @property
    def _only_task(self) -> str:
        """The task of a label that names none: the only task, or ``""`` if there are several."""
        return next(iter(self._tasks)) if len(self._tasks) == 1 else ""

    @property
    def series(self) -> dict[str, Sequence[Series]]:
        """All series (models, and groups of their answers), by task.

        Arenas are left out, because their models share the windows.
        """
        by_model = {name: task for name, task in self._tasks.items() if self._kinds[name] not in WHOLE_TASKS}
        return {name: tuple(task.series) for name, task in by_model.items()}

    @property
    def closes_at(self) -> float:
        """The time after which `tick` closes a window; infinite while no window has enough rows."""
        return min((task.closes_at for task in self._tasks.values()), default=np.inf)

    def positions(self, source: str) -> Mapping[str, object]:
        """Return the position after the last processed record of each partition of a source."""
        return dict(self._positions.get(source, {}))

    def revise_positions(self, source: str, revise: Callable[[Any], Any]) -> None:
        """Replace each stored position of a source by the result of calling `revise` with it."""
        held = self._positions.get(source, {})
        held.update({partition: revise(position) for partition, position in held.items()})

    def absorb(self, chunk: Chunk, now: float) -> list[WindowReport]:
        """Process a chunk, and return the reports of the windows that closed, in order.

        If labels have changed the results of earlier windows, their revised reports are included.

        Parameters
        ----------
        chunk : Chunk
        now : float
            The time of arrival, seconds since the epoch, nondecreasing.
        """
        return [ordered.report for ordered in self.take(chunk, now)]

    def take(self, chunk: Chunk, now: float) -> list[OrderedReport]:
        """Process a chunk as `absorb` does, and return the reports with their positions in the stream."""
        reports: list[OrderedReport] = []
        rest: Chunk | None = chunk
        while rest is not None:
            clock = self._clock.now if self._event_time else now
            piece, rest = cut(rest, self._waited_for(rest), clock, self._event_time)
            reports += self._take(piece, now)
            for fit in self._fits():
                fit.run_due(self._sequence - 1, self._now)
        return reports

    def _waited_for(self, chunk: Chunk) -> dict[str, NextPiece]:
        """Return the methods `next_piece` of the tasks whose windows records of the chunk must wait for."""
        tasks = {batch.task: self._tasks.get(batch.task) for batch in chunk.batches}
        return {
            name: task.next_piece for name, task in tasks.items() if task is not None and task.cuts(chunk)
        }

    def _take(self, chunk: Chunk, now: float) -> list[OrderedReport]:
        for partition in chunk.after_others:
            for task in self._tasks.values():
                task.interrupt(partition)
        batches, labels = timed(chunk, self._clock if self._event_time else None, now)
        self._now = self._clock.now if self._event_time else now
        places = self._places(chunk)
        outputs = [
            (task, task.absorb(batches.get(name), labels.get(name), chunk.partitions, places))
            for name, task in self._tasks.items()
            if name in batches or name in labels
        ]
        self._shed[chunk.source] += sum(output.shed for _, output in outputs)
        self._account(chunk)
        self._sequence += len(places) if chunk.within is None else 0
        return reports_of(outputs, self._now)

    def _places(self, chunk: Chunk) -> Ints:
        """Return the sequence number of each record in the stream, in the chunk's order."""
        if chunk.within is None:
            return self._sequence + np.arange(chunk.answers + chunk.labels_received)
        if len(chunk.within.sequence):
            self._sequence = int(chunk.within.sequence[-1]) + 1
        return chunk.within.sequence

    def tick(self, now: float, reached: float = -np.inf) -> list[WindowReport]:
        """Advance the time without records, and return the reports of windows that became too old.

        Parameters
        ----------
        now : float
            The time of arrival, seconds since the epoch.
        reached : float
            The time of the records' clock in the whole stream, if this engine reads only a part of the
            stream.
        """
        self._clock.follow(max(self._clock.now, reached))
        time, live = self._clock.now if self._event_time else now, not self._event_time
        self._now = time
        outputs = [(task, task.tick(time, live)) for task in self._tasks.values()]
        reports = reports_of(outputs, time)
        for fit in self._fits():
            fit.run_due(self._sequence - 1, self._now)
        return [ordered.report for ordered in reports]

    def learn(self) -> bool:
        """Compute the calibration error of one series in advance; return False if no series lacks its error.

        Without this call, the error is computed at the series' first window or first label. The results are
        the same.
        """
        return any(task.learn() for task in self._tasks.values())

    def refits(self) -> list[Job]:
        """Return the jobs (refits, recalibrations) that are due, at most one of each kind per task.

        The jobs use the records processed so far. Pass the result of each job to `publish`. Until then, the
        previous fit stays in use.
        """
        fits = [fit for fit in self._fits() if not fit.runs_inline]
        return [job for fit in fits if (job := fit.begin(self._sequence - 1, self._now)) is not None]

    def _fits(self) -> list[LabelFit[Any, Any]]:
        return [fit for task in self._tasks.values() for fit in task.fits]

    def publish(self, result: JobResult, now: float) -> bool:
        """Use the result of a job for windows that close from now on.

        If the result is a refusal, only count it.

        Parameters
        ----------
        result : RefitResult or RecalibrationResult
        now : float
            Seconds since the epoch.

        Returns
        -------
        bool
            False if no job waits for the result: the engine was replaced meanwhile, or a new version of the
            model has ended the job. The result is then dropped.
        """
        task = self._tasks.get(result.task)
        return task is not None and any(fit.end(result, now) for fit in task.fits)

    def finish(self) -> list[WindowReport]:
        """End the input: close every open window as incomplete, and return all remaining reports.

        The result contains the reports of these windows. It also contains the final reports of earlier
        windows that labels have changed.
        """
        return [ordered.report for ordered in self.end()]

    def end(self) -> list[OrderedReport]:
        """End the input as `finish` does, and return the reports with their positions in the stream."""
        outputs = [(task, task.end()) for task in self._tasks.values()]
        reports = reports_of(outputs, self._now)
        for task in self._tasks.values():
            for closed_at, report in task.finish():
                names = report.task, report.model, report.group
                reports.append(OrderedReport(StreamPosition(LAST, Phase.ENDED, closed_at, *names), report))
        return reports

    def forget(self, ids: Keys, task: str = "") -> Forgotten:
        """Delete the stored records with these ids. The counts of windows do not change.

        Parameters
        ----------
        ids : (n,) uint64
            Hashes of the ids: see `monitor.base.records.id_keys`.
        task : str
            The task whose records to delete; ``""`` for every task.

        Raises
        ------
        KeyError
            There is no such task.
        """
        if task and task not in self._tasks:
            raise KeyError(task)
        self.forgotten.append(ids)
        forgotten = [each.forget(ids) for name, each in self._tasks.items() if task in ("", name)]
        return sum(forgotten, Forgotten())

    def snapshot(self) -> EngineState:
        """Return the whole state as plain values and numpy arrays.

        The state includes the positions of the processed records. The snapshot shares no data with the
        engine, which may continue immediately.
        """
        state = self._counts()
        for name, task in self._tasks.items():
            _states(state, self._kinds[name])[name] = task.snapshot()
        return state

    def changes(self) -> Changes:
        """Return the changes of the state since the last call.

        Save the changes in one transaction with the new reports. Call `confirm` after the changes are saved,
        or `retract` if saving failed. After `retract`, the next call returns the changes again. The engine
        may continue meanwhile.
        """
        parts: dict[str, Any] = {"engine": self._counts()}
        rings: list[RingChange] = []
        for task in self._tasks.values():
            of_task, of_rings = task.changes()
            parts |= of_task
            rings += of_rings
        return Changes(parts, rings)

    def confirm(self) -> None:
        """Mark the result of `changes` as saved, so that the next call leaves it out."""
        for task in self._tasks.values():
            task.confirm()

    def retract(self) -> None:
        """Mark the result of `changes` as not saved, so that the next call returns it again."""
        for task in self._tasks.values():
            task.retract()

    def _counts(self) -> EngineState:
        """Return the snapshot without the tasks."""
        return EngineState(
            sequence=self._sequence,
            clock=copy(self._clock),
            positions={source: dict(positions) for source, positions in self._positions.items()},
            received=dict(self._received),
            labels_received=dict(self._labels_received),
            shed=dict(self._shed),
            rejected=[(source, reason, count) for (source, reason), count in self._rejected.items()],
            labels_rejected=dict(self._labels_rejected),
            labels_shed=dict(self._labels_shed),
            ignored=dict(self._ignored),
            rows_left=dict(self._rows_left),
            answered={number: (answer.done, answer.text) for number, answer in self.answered.items()},
        )

    def reconfigured(
        self, settings: EngineSettings, fresh: Collection[str]
    ) -> tuple[Engine, list[WindowReport]]:
        """Return an engine with other settings that continues from the state of this engine.

        Parameters
        ----------
        settings : EngineSettings
            The new settings, which must have the same tasks, classes and groups.
        fresh : collection of str
            The tasks that begin a new baseline. Their open windows are closed as incomplete. Their
            calibrations and charts start again with the new settings.

        Returns
        -------
        Engine
            The new engine.
        list of WindowReport
            The reports of the windows that were closed.
        """
        self._renewed(settings, fresh)  # an error must come before a window is closed
        outputs = [(task, task.end()) for name, task in self._tasks.items() if name in fresh]
        reports = reports_of(outputs, self._now)
        return self._renewed(settings, fresh), [ordered.report for ordered in reports]

    def _renewed(self, settings: EngineSettings, fresh: Collection[str]) -> Engine:
        state = self.snapshot()
        for name in set(fresh) & self._tasks.keys():
            states = _states(state, self._kinds[name])
            states[name] = states[name].without_baseline()
        return settings.build(state)

    def labelled(self) -> dict[tuple[str, str, str], dict[int, WeightedCounts]]:
        """Return the numbers of labelled and of correct rows, by task, model and group, then by window.

        Windows without labelled rows, and windows whose counts are no longer kept, are left out.
        """
        return {
            (name, series.settings.model, series.settings.group): series.tally.windows()
            for name, task in self._tasks.items()
            for series in task.series
        }

    def waiting_labels(self) -> dict[str, Keys]:
        """Return the keys of labels whose answers have not come yet, by task."""
        return {name: task.join.waiting_keys for name, task in self._tasks.items() if task.join.waiting}

    def view(self) -> EngineView:
        """Return an immutable view for exporters."""
        joins = {name: task.join for name, task in self._tasks.items()}
        views = [task.view() for task in self._tasks.values()]
        lags = {name: join.lag_seconds for name, join in joins.items()}
        return EngineView(
            series=tuple(one for view in views for one in view.series),
            tasks=tuple(one for view in views for one in view.tasks),
            labels=self._label_outcomes(),
            labels_waiting={name: join.waiting for name, join in joins.items()},
            label_lag_seconds={name: lag for name, lag in lags.items() if lag is not None},
            series_dropped=sum(view.series_dropped for view in views),
            answers_forgotten={name: join.forgotten for name, join in joins.items()},
            refits={name: refit for view in views for name, refit in view.refits.items()},
            labels_unrevised={name: count for view in views for name, count in view.labels_unrevised.items()},
            received=dict(self._received),
            labels_received=dict(self._labels_received),
            shed=dict(self._shed),
            rejected=dict(self._rejected),
            ignored=dict(self._ignored),
            rows_left=dict(self._rows_left),
        )

    def _label_outcomes(self) -> dict[tuple[str, LabelOutcome], int]:
        labels = {
            (name, what): task.join.outcomes[what]
            for name, task in self._tasks.items()
            for what in LabelOutcome
        }
        refused = {LabelOutcome.REJECTED: self._labels_rejected, LabelOutcome.SHED: self._labels_shed}
        for outcome, counts in refused.items():
            for name, count in counts.items():
                labels[name, outcome] = labels.get((name, outcome), 0) + count
        return labels

    def _labels_accounted(self) -> int:
        """Return the number of labels in all counts together."""
        joins = [task.join for task in self._tasks.values()]
        return sum(join.outcomes.total() + join.waiting for join in joins) + self._labels_rejected.total()

    def _account(self, chunk: Chunk) -> None:
        held = self._positions.setdefault(chunk.source, {})
        held.update(chunk.positions)
        for ended in [name for name, after in chunk.positions.items() if after is None]:
            del held[ended]
        # Records that the source shed never reach a task, but count as received.
        self._received[chunk.source] += chunk.answers + chunk.shed
        self._shed[chunk.source] += chunk.shed
        with_answers = sum(int((batch.label >= 0).sum()) for batch in chunk.batches)
        with_answers += sum(reject.records for reject in chunk.rejects if reject.along)
        shed = sum(chunk.labels_shed.values())
        self._labels_received[chunk.source] += chunk.labels_received + with_answers + shed
        self._labels_shed.update(chunk.labels_shed)
        if chunk.ignored:
            self._ignored[chunk.source] += chunk.ignored
        if chunk.rows_left:
            self._rows_left[chunk.source] += sum(chunk.rows_left.values())
        for reject in chunk.rejects:
            if reject.answers:
                self._rejected[chunk.source, reject.reason.value] += reject.answers
            else:
                self._labels_rejected[reject.task or self._only_task] += reject.records


def _states(state: EngineState, kind: str) -> dict[str, Any]:
    """Return the states of the tasks of one kind, by the name of the task.

    The caller may change the returned states.
    """
    states: dict[str, Any] = getattr(state, f"{TASK_KINDS[kind].piece}s")
    return states
