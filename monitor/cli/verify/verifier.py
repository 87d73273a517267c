"""The verifier: it recomputes reported windows from decoded input, and compares them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from monitor.base.names import AVERAGE_CONFIDENCE, CORRECTED, REALISED
from monitor.base.records import Batch, Chunk, Ints
from monitor.base.registry import COMPARISON_ESTIMATORS, WHOLE_TASKS
from monitor.cli.verify.ranges import BEFORE, Ranges, Series
from monitor.cli.verify.recompute import Calibrations, compared, informed
from monitor.cli.verify.rows import FirstUses, Rows, split
from monitor.config.root import Task
from monitor.engine.error_estimates import ErrorEstimator
from monitor.engine.reference import Reference
from monitor.reports.window_report import WindowLine
from monitor.store.history import StoreHistory

if TYPE_CHECKING:
    from monitor.cli.inputs import Inputs

_SHOWN = 10


OF_WHOLE_TASKS = f"windows of {' and '.join(f'{kind}s' for kind in WHOLE_TASKS)} are not recomputed"
"""The reason why windows of whole tasks cannot be checked."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A field of a window whose recomputed value differs from its reported value.

    Parameters
    ----------
    series : (str, str, str)
        Task, model and group.
    window : int
        The number of the window.
    field : str
        The path of the field in the report, such as ``estimates.accuracy.value``.
    reported, recomputed : str
    """

    series: Series
    window: int
    field: str
    reported: str
    recomputed: str


@dataclass(slots=True)
class Findings:
    """The results of a verification.

    Parameters
    ----------
    equal, different : int
        The numbers of checked windows without a difference, and with a difference.
    first : list of Difference
        The first ten differences.
    missing : Counter of str
        The numbers of windows whose rows are not in the input, by reason.
    not_checkable : Counter of str
        The numbers of windows that cannot be recomputed, by reason.
    untimed : int
        The number of windows whose times were not checked, because rows without `time` got their time of
        arrival.
    realised : int
        The number of estimates from labels. They are not recomputed.
    corrected : int
        The number of accuracies corrected by labels. They are not recomputed, because a report does not
        contain the labels.
    rivals : int
        The number of estimates by estimators that are fitted on the reference's labels. They are not
        recomputed.
    informed : int
        The number of estimates whose interval was moved by labels. The ends of these intervals are not
        recomputed.
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
        """The number of windows that were recomputed."""
        return self.equal + self.different

    @property
    def clean(self) -> bool:
        """True if at least one window was checked, and all checked windows are equal."""
        return self.checked > 0 and not self.different


class Verifier:
    """A verifier of all windows of a store, in the order in which they closed.

    Before each check, the input is read up to the window's recorded positions, so only the rows of windows
    that were open at the same time are in memory. A row with an id that was used before does not count, by
    the same rule and the same horizon as in the agent's join of labels.
    """

    def __init__(
        self,
        history: StoreHistory,
        tasks: Mapping[str, Task],
        feed: Inputs,
        references: Mapping[str, Mapping[str, Reference]] | None = None,
    ) -> None:
        self._history = history
        self._tasks = tasks
        self._feed = feed
        self._ranges = Ranges(history.windows())
        self._references = references or {}
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
        if windows := self._history.count_windows_of_tasks():
            self.findings.not_checkable[OF_WHOLE_TASKS] = windows
        return self.findings

    def _check(self, line: WindowLine) -> None:
        findings, place = self.findings, (line.series, line.window)
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
            findings.missing[missing] += 1
            self._lacking.add(line.task)
        if missing or place in self._unsure:
            self._unsure |= {(line.series, number) for number in self._sharing(line)}
        if missing:
            return
        if why or task is None:
            findings.not_checkable[why] += 1
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
        """Return the windows that begin in the middle of the message that filled this window."""
        shared = [self._ranges.shared(line.series, line.window, name) for name in line.positions]
        return [each[1] for each in shared if each is not None]

    def _compare(self, line: WindowLine, task: Task, rows: Rows) -> None:
        findings = self.findings
        calibration = self._calibrations.of(line, task)
        predictive = self._calibrations.predictive(line)
        reference = self._calibrations.reference(line)
        fitted = calibration, predictive, reference
        of_model = self._references.get(line.task, {}).get(line.model)
        errors = ErrorEstimator(task, of_model, line.group)
        candidates = [compared(line, task, each, *fitted, errors) for each in self._readings(line, rows)]
        different = min(candidates, key=len)
        findings.untimed += bool(np.isnan(rows.time).any())
        findings.rivals += sum(e.estimator in COMPARISON_ESTIMATORS for e in line.estimates)
        findings.corrected += sum(e.estimator == CORRECTED for e in line.estimates)
        known = (AVERAGE_CONFIDENCE, CORRECTED, *COMPARISON_ESTIMATORS)
        findings.realised += sum(e.estimator not in known for e in line.estimates)
        findings.realised += sum(e.estimator == REALISED for e in line.values)
        findings.informed += sum(map(informed, line.estimates))
        if not different:
            findings.equal += 1
            return
        findings.different += 1
        for name, reported, recomputed in different:
            if len(findings.first) < _SHOWN:
                findings.first.append(Difference(line.series, line.window, name, reported, recomputed))

    def _take(self, line: WindowLine) -> Rows:
        """Return the rows of a window: first uses of ids, and as many rows of a shared message as fit."""
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
        """Return the candidates for the rows of a window.

        The newest window of a series may have become full in the middle of a message. The other records of
        the message belong to the open window, which has no line. With several partitions, the message may
        belong to any of them.
        """
        if len(rows) <= line.size or line.window != self._ranges.newest(line.series):
            return [rows]
        cut = [split(rows, name, ends[-1], line.size)[0] for name, ends in line.positions.items()]
        return [each for each in cut if len(each) == line.size] or [rows]

    def _width(self, task: str) -> tuple[int, int]:
        """Return the number of scores and of features that a row of a task has."""
        known = self._tasks.get(task)
        if known is None:
            return 1, 0
        return max(len(known.classes), 1), len(known.features) + known.layout.numeric  # and the prediction

    def _sort(self, chunk: Chunk) -> None:
        """Assign the rows of a chunk to their windows."""
        for batch in map(self._scored, chunk.batches):
            for code, model in enumerate(batch.models):
                for group in self._by_model.get((batch.task, model), ()):
                    rows = np.flatnonzero((batch.model == code) & _members(batch, group))
                    for part, partition in enumerate(chunk.partitions):
                        own = rows[batch.partition[rows] == part]
                        if len(own):
                            self._hold((batch.task, model, group), partition, batch, own)

    def _scored(self, batch: Batch) -> Batch:
        references = self._references.get(batch.task, {}).values()
        return next((reference.scored(batch) for reference in references), batch)

    def _hold(self, series: Series, partition: str, batch: Batch, rows: Ints) -> None:
        numbers = self._ranges.windows(series, partition, batch.position[rows])
        for number in np.unique(numbers).tolist():
            of_window = Rows.from_batch(batch, rows[numbers == number], partition)
            if number == BEFORE:
                self._uses[series[0]].first(series, of_window)
            elif number > self._done.get(series, -1):
                self._held.setdefault((series, number), []).append(of_window)


def _members(batch: Batch, group: str) -> Any:
    """Return a mask of the rows of a group such as ``region=eu``, or of all rows for ``""``."""
    if not group:
        return np.ones(len(batch), dtype=bool)
    name, _, value = group.partition("=")
    values, column = batch.groups.get(name, ((), np.full(len(batch), -1)))
    return column == (values.index(value) if value in values else -2)
