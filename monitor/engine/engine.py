"""The engine: chunks and the time go in, reports of closed windows come out. Pure: no socket, no clock.

`absorb` takes a chunk through the whole flow, cut where a window may close that something waits for. Each
piece goes to its tasks: duplicates out, answers into windows, labels to their answers. The windows that
close come back in their order; all are evaluated in one vectorised call, and then each series closes its
own: labels, charts, objectives, trust, report. Every call goes down to what stands below, none back up.

However a stream is cut into chunks, the same records in the same order give the same reports: whatever the
engine decides about a window rests on records up to the one that closed it, in sequence, and on nothing
that came later in the same chunk.
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
from monitor.base.results import Outcome
from monitor.base.state_changes import Changes
from monitor.config.layouts import layouts as layouts
from monitor.config.root import Arena, Task
from monitor.engine.arena.arenas import Arenas
from monitor.engine.arena.engine import ArenaEngine, ArenaState
from monitor.engine.chunks import Closes, cut, timed
from monitor.engine.clock import EventClock
from monitor.engine.inline_refits import InlineRefits
from monitor.engine.labels.columns import Forgotten
from monitor.engine.labels.join import LabelJoinLogic
from monitor.engine.reference import Reference
from monitor.engine.refit.job import RefitJob, RefitResult
from monitor.engine.refit.recalibration import RecalibrationJob, RecalibrationResult
from monitor.engine.refit.wire import Job, JobResult
from monitor.engine.report_order import OrderedReport, Phase, StreamPosition
from monitor.engine.reporting import reports_of
from monitor.engine.series import Series
from monitor.engine.task import TaskSettings, TaskState
from monitor.engine.windows import LAST
from monitor.reports.views import EngineView, LabelOutcome
from monitor.reports.window_report import WindowReport
from monitor.stats.estimate.hajek import WeightedCounts

SNAPSHOT_FORMAT = 2


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What an engine is built from.

    Parameters
    ----------
    tasks : mapping of str to Task
        The tasks of the configuration whose models give scores.
    references : mapping of str to mapping of str to Reference
        By task and model.
    event_time : bool
        Whether windows age by the records' own times, as in a replay, or by the time of arrival.
    refit, recalibrate : callable, optional
        With them refits and recalibrations are done in the flow, each as the window closes with which it is
        due, so that the same records bring the same reports. Without one `refits` gives its jobs out, and
        nothing waits.
    arenas : mapping of str to Arena
        The tasks whose models are compared in pairs.
    numbered : bool
        Whether a source numbers the rows of its requests: see `TaskLayout.numbered`.
    """

    tasks: Mapping[str, Task]
    references: Mapping[str, Mapping[str, Reference]] = field(default_factory=dict)
    event_time: bool = False
    refit: Callable[[RefitJob], RefitResult] | None = None
    recalibrate: Callable[[RecalibrationJob], RecalibrationResult] | None = None
    arenas: Mapping[str, Arena] = field(default_factory=dict)
    numbered: bool = False

    @property
    def names(self) -> list[str]:
        """All tasks, in the order of their lines at the end of the input."""
        return [*self.tasks, *self.arenas]

    def build(self, resume: EngineState | Mapping[str, Any] | None = None) -> Engine:
        """The engine, from the start or from where a snapshot left it: as it was, or its plain values.

        Raises
        ------
        ValueError
            The snapshot is of another format.
        """
        return Engine(self, resume)


class EngineState(msgspec.Struct, frozen=True):
    """Everything that an engine needs to go on from where it was, but its settings.

    Counts stand by source, those of rejected and shed labels by task; an older version did not say whence
    labels came.
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
    """The engine at work. Used by one thread at a time."""

    def __init__(
        self, settings: EngineSettings, resume: EngineState | Mapping[str, Any] | None = None
    ) -> None:
        known = EngineState() if resume is None else resume
        got = known.get("format") if isinstance(known, Mapping) else known.format
        if got != SNAPSHOT_FORMAT:
            raise ValueError(f"format: expected a snapshot of format {SNAPSHOT_FORMAT}, got {got!r}")
        state = restored(known, EngineState)
        self._event_time = settings.event_time
        self._inline = InlineRefits(settings.refit, settings.recalibrate)
        self._now = -np.inf
        self._tasks = {
            name: TaskSettings(
                name, task, settings.references.get(name, {}), numbered=settings.numbered
            ).build(state.tasks.get(name))
            for name, task in settings.tasks.items()
        }
        self._arenas = Arenas(settings.arenas, state.arenas)
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
            # An older state does not say whence; where there was one source there is no question.
            source = next(iter(self._received)) if len(self._received) == 1 else ""
            self._labels_received[source] = self._labels_accounted()
        self.forgotten: list[Keys] = []
        """Ids of which sources have to hear yet that nothing may stay of them."""
        self.answered = {number: Outcome(*answer) for number, answer in state.answered.items()}
        """By id, requests that were acted on and whose files may still be there, with their answers."""

    @property
    def _only_task(self) -> str:
        """The task of a label that names none, where there is one task only."""
        names = [*self._tasks, *self._arenas]
        return names[0] if len(names) == 1 else ""

    @property
    def series(self) -> dict[str, Sequence[Series]]:
        """By task, every model and group, in the order of their first answers."""
        return {name: tuple(task.series) for name, task in self._tasks.items()}

    @property
    def arenas(self) -> Mapping[str, ArenaEngine]:
        """The arenas by name."""
        return self._arenas

    def positions(self, source: str) -> Mapping[str, object]:
        """By partition, where reading goes on after the last record of this source that was absorbed."""
        return dict(self._positions.get(source, {}))

    def revise_positions(self, source: str, revise: Callable[[Any], Any]) -> None:
        """Replace the positions of a source by what a function makes of each."""
        held = self._positions.get(source, {})
        held.update({partition: revise(position) for partition, position in held.items()})

    def absorb(self, chunk: Chunk, now: float) -> list[WindowReport]:
        """Take a chunk; return what it brings to report, in the order in which that came about.

        A report is of a window that closed, or a revision of an earlier one that labels have reached.

        Parameters
        ----------
        chunk : Chunk
        now : float
            The time of arrival, seconds since the epoch, never falling.
        """
        return [ordered.report for ordered in self.take(chunk, now)]

    def take(self, chunk: Chunk, now: float) -> list[OrderedReport]:
        """As `absorb`, with the position of each report in the stream."""
        reports: list[OrderedReport] = []
        rest: Chunk | None = chunk
        while rest is not None:
            clock = self._clock.now if self._event_time else now
            piece, rest = cut(rest, self._waited_for(rest), clock, self._event_time)
            reports += self._take(piece, now)
            self._inline.done(self._tasks.values(), self._sequence - 1, self._now)
        return reports

    def _waited_for(self, chunk: Chunk) -> dict[str, Closes]:
        """Whose windows something waits for.

        An arena's window says what the verdicts before its end say; a refit in the flow is done as a window
        closes, before any later record is looked at; and where each window has its own calibration, the
        confidences of later answers are by that of the newest closed one.
        """
        scored = [batch.task for batch in chunk.batches if batch.task in self._tasks]
        waiting = [
            name
            for name in scored
            if self._tasks[name].adapts or self._inline.wait_for(self._tasks[name], chunk)
        ]
        return {**self._arenas, **{name: self._tasks[name] for name in waiting}}

    def _take(self, chunk: Chunk, now: float) -> list[OrderedReport]:
        for partition in chunk.after_others:
            for series in (series for task in self._tasks.values() for series in task.series):
                series.interrupt(partition)
        batches, labels = timed(chunk, self._clock if self._event_time else None, now)
        self._now = self._clock.now if self._event_time else now
        places = self._places(chunk)
        compared, shed = self._arenas.absorb(batches, labels, chunk, places)
        outputs = [
            (task, task.absorb(batches.get(name), labels.get(name), chunk.partitions, places))
            for name in dict.fromkeys((*batches, *labels))
            if (task := self._tasks.get(name)) is not None
        ]
        self._shed[chunk.source] += shed + sum(output.shed for _, output in outputs)
        self._account(chunk)
        self._sequence += len(places) if chunk.within is None else 0
        return [*reports_of(outputs, self._now), *compared]

    def _places(self, chunk: Chunk) -> Ints:
        """By the chunk's order, the place of each record in the stream."""
        if chunk.within is None:
            return self._sequence + np.arange(chunk.answers + chunk.labels_received)
        if len(chunk.within.sequence):
            self._sequence = int(chunk.within.sequence[-1]) + 1
        return chunk.within.sequence

    def tick(self, now: float, reached: float = -np.inf) -> list[WindowReport]:
        """Let time pass without records: close what has grown old.

        `reached` is a time of the records' own clock that is known from records which came elsewhere.
        """
        self._clock.follow(max(self._clock.now, reached))
        time, live = self._clock.now if self._event_time else now, not self._event_time
        self._now = time
        outputs = [(task, task.tick(time, live)) for task in self._tasks.values()]
        reports = [*reports_of(outputs, time), *self._arenas.tick(time, live)]
        self._inline.done(self._tasks.values(), self._sequence - 1, self._now)
        return [ordered.report for ordered in reports]

    def learn(self) -> bool:
        """Work ahead: what one more reference says of its calibration's error; False where all is known.

        A model's first window or first label waits for it otherwise. No result depends on when it is done.
        """
        return any(task.learn() for task in self._tasks.values())

    def refits(self) -> list[Job]:
        """What is due, at most one of each kind under way a task; each wants an answer by `publish`.

        They rest on the records absorbed so far. Nothing waits for the answers: the last fit holds on.
        """
        tasks = self._tasks.values()
        return [job for task in tasks for job in self._inline.given_out(task, self._sequence - 1, self._now)]

    def publish(self, result: JobResult, now: float) -> bool:
        """Take the answer to a refit: windows from here on have what it brought, or its refusal is counted.

        Parameters
        ----------
        result : RefitResult or RecalibrationResult
        now : float
            Seconds since the epoch.

        Returns
        -------
        bool
            False where nobody waits for it: the engine was replaced meanwhile. It is to be dropped then.
        """
        task = self._tasks.get(result.task)
        return task is not None and task.publish(result, now)

    def finish(self) -> list[WindowReport]:
        """The input has ended: close every open window as incomplete, and tell what labels have changed."""
        return [ordered.report for ordered in self.end()]

    def end(self) -> list[OrderedReport]:
        """As `finish`, with the position of each report in the stream."""
        outputs = [(task, task.end()) for task in self._tasks.values()]
        reports = [*reports_of(outputs, self._now), *self._arenas.close()]
        for task in self._tasks.values():
            for closed_at, report in task.finish():
                names = report.task, report.model, report.group
                reports.append(OrderedReport(StreamPosition(LAST, Phase.ENDED, closed_at, *names), report))
        return reports

    def forget(self, ids: Keys, task: str = "") -> Forgotten:
        """Let go of everything that is known by these ids, in one task or in all; counts in windows stay.

        Parameters
        ----------
        ids : (n,) uint64
            See `monitor.base.records.id_keys`.
        task : str
            ``""`` for every task.

        Raises
        ------
        KeyError
            There is no such task.
        """
        if task and task not in self._arenas and task not in self._tasks:
            raise KeyError(task)
        self.forgotten.append(ids)
        forgotten = [each.forget(ids) for name, each in self._tasks.items() if task in ("", name)]
        return sum([*forgotten, *self._arenas.forget(ids, task)], Forgotten())

    def snapshot(self) -> EngineState:
        """The whole state with the positions that it has absorbed: plain values and numpy arrays.

        It shares nothing with the engine, which may go on at once.
        """
        tasks = {name: task.snapshot() for name, task in self._tasks.items()}
        arenas = {name: arena.snapshot() for name, arena in self._arenas.items()}
        return msgspec.structs.replace(self._counts(), tasks=tasks, arenas=arenas)

    def changes(self) -> Changes:
        """What changed since the last call, to be saved in one transaction with the reports since then.

        Call `confirm` once it is saved, or `retract` if it could not be: then the next call gives it again.
        The engine may go on meanwhile.
        """
        of_arenas, rings = self._arenas.changes()
        parts: dict[str, Any] = {"engine": self._counts()} | of_arenas
        for name, task in self._tasks.items():
            of_task, of_rings = task.changes(name)
            parts |= of_task
            rings += of_rings
        return Changes(parts, rings)

    def confirm(self) -> None:
        """What `changes` gave is saved."""
        for task in self._tasks.values():
            task.confirm()
        self._arenas.confirm()

    def retract(self) -> None:
        """What `changes` gave could not be saved."""
        for task in self._tasks.values():
            task.retract()
        self._arenas.retract()

    def _counts(self) -> EngineState:
        """The snapshot without the tasks."""
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
        """An engine with other settings that goes on where this one is.

        Parameters
        ----------
        settings : EngineSettings
            Of the same tasks, with the same classes and groups.
        fresh : collection of str
            Tasks that begin a new baseline: their open windows are closed as incomplete first, and
            calibration and charts are made anew from the new settings.

        Returns
        -------
        Engine
        list of WindowReport
            Of the windows closed.
        """
        self._renewed(settings, fresh)  # what it raises, it raises before a window is closed
        outputs = [(self._tasks[name], self._tasks[name].end()) for name in fresh if name in self._tasks]
        reports = [*reports_of(outputs, self._now), *self._arenas.close(fresh)]
        return self._renewed(settings, fresh), [ordered.report for ordered in reports]

    def _renewed(self, settings: EngineSettings, fresh: Collection[str]) -> Engine:
        state = self.snapshot()
        for name in set(fresh) & self._tasks.keys():
            state.tasks[name] = state.tasks[name].without_baseline()
        return settings.build(state)

    def labelled(self) -> dict[tuple[str, str, str], dict[int, WeightedCounts]]:
        """By task, model and group: the labelled rows of each window, and how many of those were right."""
        return {
            (name, series.settings.model, series.settings.group): series.tally.windows()
            for name, task in self._tasks.items()
            for series in task.series
        }

    def waiting_labels(self) -> dict[str, Keys]:
        """Return by task the keys of labels that wait for their answer."""
        return {name: join.waiting_keys for name, join in self._joins().items() if join.waiting}

    def _joins(self) -> dict[str, LabelJoinLogic]:
        joins = {name: task.join for name, task in self._tasks.items()}
        return joins | {name: arena.join.logic for name, arena in self._arenas.items()}

    def view(self) -> EngineView:
        """An immutable view for exporters."""
        tasks, arenas, joins = self._tasks, self._arenas, self._joins()
        lags = {name: join.lag_seconds for name, join in joins.items()}
        return EngineView(
            series=tuple(view for task in tasks.values() for view in task.views()),
            arenas=tuple(arena.view() for arena in arenas.values()),
            labels=self._label_outcomes(joins),
            labels_waiting={name: join.waiting for name, join in joins.items()},
            label_lag_seconds={name: lag for name, lag in lags.items() if lag is not None},
            series_dropped=sum(task.dropped for task in tasks.values())
            + sum(arena.dropped for arena in arenas.values()),
            answers_forgotten={name: join.forgotten for name, join in joins.items()},
            refits={name: task.refits.view() for name, task in tasks.items() if task.refits},
            labels_unrevised={name: task.revisions.missed for name, task in tasks.items()},
            received=dict(self._received),
            labels_received=dict(self._labels_received),
            shed=dict(self._shed),
            rejected=dict(self._rejected),
            ignored=dict(self._ignored),
            rows_left=dict(self._rows_left),
        )

    def _label_outcomes(self, joins: Mapping[str, LabelJoinLogic]) -> dict[tuple[str, LabelOutcome], int]:
        labels = {(name, what): join.outcomes[what] for name, join in joins.items() for what in LabelOutcome}
        refused = {LabelOutcome.REJECTED: self._labels_rejected, LabelOutcome.SHED: self._labels_shed}
        for outcome, counts in refused.items():
            for name, count in counts.items():
                labels[name, outcome] = labels.get((name, outcome), 0) + count
        return labels

    def _labels_accounted(self) -> int:
        """Labels that stand somewhere."""
        joins = [task.join for task in self._tasks.values()]
        joins += [arena.join.logic for arena in self._arenas.values()]
        return sum(join.outcomes.total() + join.waiting for join in joins) + self._labels_rejected.total()

    def _account(self, chunk: Chunk) -> None:
        held = self._positions.setdefault(chunk.source, {})
        held.update(chunk.positions)
        for ended in [name for name, after in chunk.positions.items() if after is None]:
            del held[ended]
        # What a source shed itself never reached a task, but came.
        self._received[chunk.source] += chunk.answers + chunk.shed
        self._shed[chunk.source] += chunk.shed
        along = sum(int((batch.label >= 0).sum()) for batch in chunk.batches)
        along += sum(reject.records for reject in chunk.rejects if reject.along)
        shed = sum(chunk.labels_shed.values())
        self._labels_received[chunk.source] += chunk.labels_received + along + shed
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
