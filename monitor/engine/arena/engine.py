"""The engine of one arena, a task whose models are compared in pairs.

The engine adds comparisons to windows, and joins the verdicts of humans to them. When a window closes, the
engine estimates a Bradley-Terry coefficient for each model.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from monitor.base.records import Batch, Chunk, Floats, Ints, Keys, LabelBatch
from monitor.base.state_changes import RingChange
from monitor.config.arena import Arena
from monitor.engine.arena.join import ComparisonJoin
from monitor.engine.chunks import TimedBatch
from monitor.engine.labels.ageing import Marks
from monitor.engine.labels.columns import Forgotten
from monitor.engine.labels.join import JoinState
from monitor.engine.labels.table import BoundedTable
from monitor.engine.report_order import OrderedReport, Phase, StreamPosition
from monitor.engine.task_logic import TaskLogic, TaskOutput, TaskSettings
from monitor.engine.windows import ClosedWindow, CountWindow, SeriesName, WindowLogic, WindowState
from monitor.reports.arena_report import ArenaReport, ArenaView
from monitor.reports.reader import from_json
from monitor.reports.views import EngineView, LabelOutcome
from monitor.stats.pairwise.standing import standing


class ArenaState(msgspec.Struct, frozen=True):
    """The whole state of an arena, without its settings.

    `names` lists the models; the number of a model is its index in this list. `beyond` lists the models
    beyond the limit `max_models`. Their comparisons are only counted. `last` is the last report, as a line of
    JSON.
    """

    join: JoinState = JoinState()
    ageing: Marks | None = None
    names: list[str] = []
    beyond: list[str] = []
    count: dict[str, int] = {}
    window: WindowState | None = None
    last: bytes = b""

    def without_baseline(self) -> ArenaState:
        """Return the state unchanged: an arena has no baseline."""
        return self


class ArenaEngine(TaskLogic):
    """The running engine of one arena, which turns comparisons and verdicts into reports of windows."""

    def __init__(self, settings: TaskSettings[Arena], resume: ArenaState | None = None) -> None:
        state = resume or ArenaState()
        self._name, self._arena = settings.name, settings.task
        self._comparisons = ComparisonJoin(self._arena.labels, state.join, state.ageing)
        self.join = self._comparisons.logic
        self._names, self._beyond = list(state.names), set(state.beyond)
        self._count = {"used": 0, "duplicates": 0, "shed": 0} | state.count
        last = from_json(state.last) if state.last else None
        self._last = last if isinstance(last, ArenaReport) else None
        for name in self._arena.models:  # a model that never answers must show as unknown
            self._number(name)
        size = self._arena.window
        series = SeriesName(self._name)
        window = CountWindow(size.size, size.min_size, size.max_age_seconds, series)
        self._overdue, self._window = _resumed(window, state.window)

    @property
    def rings(self) -> dict[str, BoundedTable]:
        """The ring tables (tables of limited size) of the arena's rows.

        The key is the ring's kind, such as ``comparisons``. In the store, the name of a ring is its kind, a
        slash and the name of the arena.
        """
        return self._comparisons.rings

    def cuts(self, chunk: Chunk) -> bool:
        """Return True: a chunk is always divided where a window may close.

        A window includes only verdicts that came before it closed. So later verdicts must wait.
        """
        return True

    def absorb(
        self,
        answers: TimedBatch | None,
        labels: LabelBatch | None,
        partitions: tuple[str, ...],
        sequence: Ints,
    ) -> TaskOutput:
        """Process the comparisons and verdicts in a part of a chunk.

        If a window closes, it includes all verdicts of the part. So the caller must end the part where a
        window may close.
        """
        reports = self._take_overdue()
        if answers is None:
            self._comparisons.add_verdicts(None, labels, np.zeros(0, dtype=np.int64), sequence)
            return TaskOutput(reports=reports)
        # A time ahead of the clock is the sender's error, and would make verdicts wait or expire for ever.
        time = np.minimum(answers.batch.time, answers.arrival)
        order = sequence[answers.batch.order]
        batch, new = self._comparisons.is_new(replace(answers.batch, time=time), order)
        a, b = self._models(batch)
        watched = (a >= 0) & (b >= 0)
        kept = np.flatnonzero(watched & new)
        self._count["duplicates"] += int((watched & ~new).sum())
        self.join.outcomes[LabelOutcome.SHED] += int((~watched & (batch.label >= 0)).sum())
        rows = TimedBatch(batch, answers.arrival).rows(order)
        closed, window = self._window.push(rows.take(kept), partitions)
        self._comparisons.add(batch, kept, (a[kept], b[kept]), window, order[kept])
        self._comparisons.add_verdicts(batch, labels, np.flatnonzero(watched), sequence)
        reports += map(self._report, closed)
        return TaskOutput(shed=int((~watched).sum()), reports=reports)

    def next_piece(self, batch: Batch, labels: LabelBatch | None, arrival: Floats, now: float) -> int:
        """Return the index just after the first comparison that may close the window.

        If no comparison may close the window, the index is the number of records. Verdicts do not close
        windows, so `labels` is ignored.
        """
        place = self._window.may_close(arrival[batch.order], now)
        return int(batch.order[place]) + 1 if place < len(batch) else len(arrival)

    def interrupt(self, partition: str) -> None:
        """Record that another agent has read the next records of a partition, which ends its range."""
        self._window.interrupt(partition)

    def tick(self, now: float, live: bool = True) -> TaskOutput:
        """Close the open window if it is too old.

        In a live run, also drop comparisons that are too old to get a verdict.
        """
        if live:
            self._comparisons.tick(now)
        return self._closed(self._window.tick(now))

    def end(self) -> TaskOutput:
        """Close the open window because the input has ended."""
        return self._closed(self._window.close("end"))

    def _closed(self, window: ClosedWindow | None) -> TaskOutput:
        return TaskOutput(reports=[*self._take_overdue(), *([self._report(window)] if window else [])])

    @property
    def closes_at(self) -> float:
        """The time after which `tick` closes the open window; infinite while it has too few rows."""
        return self._window.closes_at

    def forget(self, ids: Keys) -> Forgotten:
        """Delete the stored records with these ids. Reports are kept."""
        return self._comparisons.forget(ids)

    def snapshot(self, rings: bool = True) -> ArenaState:
        """Return the whole state without the settings, with or without the rows of the ring tables."""
        return ArenaState(
            self.join.snapshot(rings),
            self._comparisons.ageing.snapshot(),
            list(self._names),
            sorted(self._beyond),
            dict(self._count),
            self._window.snapshot(),
            self._last.line if self._last else b"",
        )

    def changes(self) -> tuple[dict[str, Any], list[RingChange]]:
        """Return the parts of the state that changed since the last call.

        Call `confirm` after the changes are saved, or `retract` if saving them failed.
        """
        name = self._name
        rings = [ring.changes(f"{kind}/{name}") for kind, ring in self.rings.items()]
        return {f"arena/{name}": self.snapshot(rings=False)}, [ring for ring in rings if ring is not None]

    def view(self) -> EngineView:
        """Return the arena's part of the view for exporters, without the counts of matched labels."""
        last = self._last
        view = ArenaView(
            task=self._name,
            window_size=self._arena.window.size,
            windows_closed=self._window.number,
            comparisons=self._count["used"],
            duplicates=self._count["duplicates"],
            pending=self._window.pending,
            window_end_time=last.end_time if last else None,
            standing=last.standing if last else None,
        )
        return EngineView(tasks=(view,), series_dropped=len(self._beyond))

    def _models(self, batch: Batch) -> tuple[Ints, Ints]:
        """Return the numbers of both models of each row; -1 for a model beyond the limit."""
        codes = np.full(len(batch.models), -1, dtype=np.int64)
        both = np.stack([batch.model, batch.other], axis=1).ravel()
        _, first = np.unique(both, return_index=True)
        for code in both[np.sort(first)].tolist():
            codes[code] = self._number(batch.models[code])
        return codes[batch.model], codes[batch.other]

    def _number(self, name: str) -> int:
        if name in self._names:
            return self._names.index(name)
        if len(self._names) >= self._arena.max_models:
            if len(self._beyond) < _NAMES_KEPT:
                self._beyond.add(name)
            return -1
        self._names.append(name)
        return len(self._names) - 1

    def _take_overdue(self) -> list[OrderedReport]:
        """Return the report of a window that closed because the configuration now has a smaller size."""
        overdue, self._overdue = self._overdue, None
        return [self._report(overdue)] if overdue else []

    def _report(self, window: ClosedWindow) -> OrderedReport:
        arena = self._arena
        rows = self._comparisons.pooled(window.number - arena.windows + 1, window.number, window.end_time)
        self._count["used"] += window.size
        self._last = ArenaReport.from_standing(
            self._name,
            window.number,
            size=window.size,
            closed_by=window.closed_by,
            times=(window.start_time, window.end_time),
            positions=window.positions,
            standing=standing(tuple(self._names), rows, arena.reference_model, arena.level),
        )
        position = StreamPosition.from_window(window)
        if window.closed_by == "end":
            position = position._replace(phase=Phase.COMPARED)
        return OrderedReport(position, self._last)


_NAMES_KEPT = 10_000  # limits memory in a flood of names


def _resumed(settings: CountWindow, state: WindowState | None) -> tuple[ClosedWindow | None, WindowLogic]:
    """Return the closed window and the open window of a state.

    A window is closed only if the configuration now has a smaller size; otherwise the first result is None.
    """
    if state is None or state.time is None or len(state.time) < settings.size:
        return None, settings.build(state)
    wide = CountWindow(len(state.time), 1, settings.max_age_seconds, settings.series).build(state)
    closed = wide.close("size")
    return closed, settings.build(wide.snapshot())
