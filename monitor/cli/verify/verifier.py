"""Recomputes reported windows from decoded input, and compares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from monitor.base.names import AVERAGE_CONFIDENCE, CORRECTED
from monitor.base.records import Batch, Chunk, Ints
from monitor.base.registry import COMPARISON_ESTIMATORS
from monitor.cli.verify.ranges import BEFORE, Ranges, Series
from monitor.cli.verify.recompute import Calibrations, compared, informed
from monitor.cli.verify.rows import FirstUses, Rows, split
from monitor.config.root import Task
from monitor.engine.reference import Reference
from monitor.reports.window_report import WindowLine
from monitor.store.history import StoreHistory

_SHOWN = 10


class VerifiedInput(Protocol):
    """The raw input, decoded, partition by partition."""

    def until(self, partition: str, position: int) -> Iterable[Chunk]:
        """What is still to be read of a partition to get past this position; empty where it is read."""

    def missing(self, partition: str, first: int, last: int) -> str:
        """Why positions of a partition are not in the input; ``""`` where they are, as far as it reaches."""


OF_ARENAS = "windows of arenas are not recomputed"
"""A reason why windows are not checkable."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A field of a window that is not what was reported.

    Parameters
    ----------
    series : (str, str, str)
        Task, model and group.
    window : int
    field : str
        ``estimates.accuracy.value``.
    reported, recomputed : str
    """

    series: Series
    window: int
    field: str
    reported: str
    recomputed: str


@dataclass(slots=True)
class Findings:
    """What a verification found.

    Parameters
    ----------
    equal, different : int
        Windows checked.
    first : list of Difference
        The first ten.
    missing : Counter of str
        Windows whose rows are not in the input, by reason.
    not_checkable : Counter of str
        Windows that cannot be recomputed, by reason.
    untimed : int
        Windows checked but for their times: rows without `time` got that of their arrival.
    realised : int
        Estimates from labels, which are not recomputed.
    corrected : int
        Accuracies corrected by labels, which are not recomputed: a line does not say which labels were known.
    rivals : int
        Estimates by what was fitted on the labels of the reference, which are not recomputed.
    informed : int
        Estimates whose interval labels moved: its ends are not recomputed.
    """

    equal: int = 0
    different: int = 0
    first: list[Difference] = field(default_factory=list)
    missing: Counter[str] = field(default_factory=Counter)
    not_checkable: Counter[str] = field(default_factory=Counter)
    untimed: int = 0
    realised: int = 0
    corrected: int = 0
    rivals: int = 0
    informed: int = 0

    @property
    def checked(self) -> int:
        """Windows that were recomputed."""
        return self.equal + self.different

    @property
    def clean(self) -> bool:
        """Whether windows were checked and all of those are equal."""
        return self.checked > 0 and not self.different


class Verifier:
    """Goes through the windows of a store in the order in which they closed.

    For each the input is read as far as its recorded positions reach, so that only rows of windows that
    are open at the same time are held. A row that an earlier window used (by the id and the horizon, as
    the agent's own join has it) counts once.
    """

    def __init__(
        self,
        history: StoreHistory,
        tasks: Mapping[str, Task],
        feed: VerifiedInput,
        references: Mapping[str, Mapping[str, Reference]] | None = None,
    ) -> None:
        self._history = history
        self._tasks = tasks
        self._feed = feed
        self._ranges = Ranges(history.windows())
        self._calibrations = Calibrations(history.calibrations(), references)
        self._uses = {name: FirstUses(task) for name, task in tasks.items()}
        self._held: dict[tuple[Series, int], list[Rows]] = {}
        self._carried: dict[tuple[Series, int], Rows] = {}
        self._done: dict[Series, int] = {}
        self._lacking: set[str] = set()
        self._unsure: set[tuple[Series, int]] = set()
        self._by_model: dict[tuple[str, str], list[str]] = {}
        for task, model, group in sorted(self._ranges.series):
            self._by_model.setdefault((task, model), []).append(group)
        self.findings = Findings()

    def run(self) -> Findings:
        """Check every window.

        Raises
        ------
        StoreError
            The store cannot be read.
        SourceError
            A file cannot be read.
        """
        for line in self._history.windows():
            self._check(line)
        if arenas := self._history.count_arena_windows():
            self.findings.not_checkable[OF_ARENAS] = arenas
        return self.findings

    def _check(self, line: WindowLine) -> None:
        found, place = self.findings, (line.series, line.window)
        missing = ""
        for partition in line.positions:
            for first, last in line.stretches(partition):
                for chunk in self._feed.until(partition, last):
                    self._sort(chunk)
                missing = missing or self._feed.missing(partition, first, last)
        rows = self._take(line)
        self._done[line.series] = max(line.window, self._done.get(line.series, -1))
        task = self._tasks.get(line.task)
        why = self._why_not(line, task, place, rows)
        if missing:
            found.missing[missing] += 1
            self._lacking.add(line.task)
        if missing or place in self._unsure:
            self._unsure |= {(line.series, number) for number in self._sharing(line)}
        if missing:
            return
        if why or task is None:
            found.not_checkable[why] += 1
        else:
            self._compare(line, task, rows)

    def _why_not(self, line: WindowLine, task: Task | None, place: tuple[Series, int], rows: Rows) -> str:
        if task is None:
            return f"task {line.task} is not in the configuration"
        if place in self._ranges.overlapping:
            return "positions of a partition began anew: a rotated file, or a topic read again"
        if place in self._unsure:
            return "it shares a message with a window whose rows are missing"
        if line.task in self._lacking and len(rows) > line.size:
            return "ids among its rows may have been used before, in rows that are missing"
        return self._calibrations.why_not(line)

    def _sharing(self, line: WindowLine) -> list[int]:
        """The windows that begin in the middle of a message in which this one was full."""
        shared = [self._ranges.shared(line.series, line.window, name) for name in line.positions]
        return [each[1] for each in shared if each is not None]

    def _compare(self, line: WindowLine, task: Task, rows: Rows) -> None:
        found = self.findings
        calibration = self._calibrations.of(line, task)
        predictive = self._calibrations.predictive(line)
        reference = self._calibrations.reference(line)
        told = calibration, predictive, reference
        every = [compared(line, task, each, *told) for each in self._readings(line, rows)]
        different = min(every, key=len)
        found.untimed += bool(np.isnan(rows.time).any())
        found.rivals += sum(e.estimator in COMPARISON_ESTIMATORS for e in line.estimates)
        found.corrected += sum(e.estimator == CORRECTED for e in line.estimates)
        known = (AVERAGE_CONFIDENCE, CORRECTED, *COMPARISON_ESTIMATORS)
        found.realised += sum(e.estimator not in known for e in line.estimates)
        found.informed += sum(map(informed, line.estimates))
        if not different:
            found.equal += 1
            return
        found.different += 1
        for name, reported, recomputed in different:
            if len(found.first) < _SHOWN:
                found.first.append(Difference(line.series, line.window, name, reported, recomputed))

    def _take(self, line: WindowLine) -> Rows:
        """The rows of a window: first uses, and of a message that two windows share as many as fit."""
        place = (line.series, line.window)
        width, features = self._width(line.task)
        rows = Rows.join(self._held.pop(place, []), width, features)
        if line.task in self._uses:
            rows = rows.take(self._uses[line.task].first(line.series, rows))
        carried = self._carried.pop(place, None)
        if carried is not None:
            rows = Rows.join([carried, rows], width, features)
        for partition in line.positions:
            if place in self._ranges.overlapping:
                break
            shared = self._ranges.shared(line.series, line.window, partition)
            if shared is not None:
                rows, rest = split(rows, partition, shared[0], line.size)
                if len(rest):
                    self._carried[line.series, shared[1]] = rest
        return rows

    def _readings(self, line: WindowLine, rows: Rows) -> list[Rows]:
        """The rows that the window may have held.

        The newest window of a series may have been full in the middle of a message whose other records are
        in the open one, which has no line. Of several partitions it is then not said which message it was.
        """
        if len(rows) <= line.size or line.window != self._ranges.newest(line.series):
            return [rows]
        cut = [split(rows, name, ends[-1], line.size)[0] for name, ends in line.positions.items()]
        return [each for each in cut if len(each) == line.size] or [rows]

    def _width(self, task: str) -> tuple[int, int]:
        """How many scores and features a row of a task has."""
        known = self._tasks.get(task)
        return (1, 0) if known is None else (max(len(known.classes), 1), len(known.features))

    def _sort(self, chunk: Chunk) -> None:
        """Put a chunk's rows to the windows that they belong to."""
        for batch in chunk.batches:
            for code, model in enumerate(batch.models):
                for group in self._by_model.get((batch.task, model), ()):
                    rows = np.flatnonzero((batch.model == code) & _members(batch, group))
                    for part, partition in enumerate(chunk.partitions):
                        own = rows[batch.partition[rows] == part]
                        if len(own):
                            self._hold((batch.task, model, group), partition, batch, own)

    def _hold(self, series: Series, partition: str, batch: Batch, rows: Ints) -> None:
        numbers = self._ranges.windows(series, partition, batch.position[rows])
        for number in np.unique(numbers).tolist():
            found = Rows.of(batch, rows[numbers == number], partition)
            if number == BEFORE:
                self._uses[series[0]].first(series, found)
            elif number > self._done.get(series, -1):
                self._held.setdefault((series, number), []).append(found)


def _members(batch: Batch, group: str) -> Any:
    """Which rows are of a group, ``region=eu``; all of them for ``""``."""
    if not group:
        return np.ones(len(batch), dtype=bool)
    name, _, value = group.partition("=")
    values, column = batch.groups.get(name, ((), np.full(len(batch), -1)))
    return column == (values.index(value) if value in values else -2)
