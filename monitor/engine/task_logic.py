"""The interface of the engines of tasks, which is the same for every kind of task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from monitor.base.records import Batch, Chunk, Floats, Ints, Keys, LabelBatch
from monitor.base.registry import TASK_KINDS, load
from monitor.base.state_changes import RingChange
from monitor.config.task import TaskSection
from monitor.engine.chunks import TimedBatch
from monitor.engine.label_fit import LabelFit
from monitor.engine.labels.columns import Forgotten, Matches
from monitor.engine.labels.join import LabelJoinLogic
from monitor.engine.labels.table import BoundedTable
from monitor.engine.reference import Reference
from monitor.engine.refit.job import RefitJob, RefitResult
from monitor.engine.refit.recalibration import RecalibrationJob, RecalibrationResult
from monitor.engine.report_order import OrderedReport
from monitor.engine.windows import ClosedWindow
from monitor.reports.views import EngineView
from monitor.reports.window_report import WindowReport

TaskT = TypeVar("TaskT", bound=TaskSection)


@dataclass(frozen=True, slots=True)
class TaskSettings(Generic[TaskT]):
    """The settings of the engine of one task.

    Parameters
    ----------
    name : str
    task : TaskSection
        The task's section of the configuration.
    references : mapping of str to Reference
        By model.
    numbered : bool
        Whether a source numbers the rows of its requests: see `TaskLayout.numbered`.
    refit, recalibrate : callable, optional
        See `EngineSettings`.
    """

    name: str
    task: TaskT
    references: Mapping[str, Reference] = field(default_factory=dict)
    numbered: bool = False
    refit: Callable[[RefitJob], RefitResult] | None = None
    recalibrate: Callable[[RecalibrationJob], RecalibrationResult] | None = None

    def build(self, resume: Any = None) -> TaskLogic:
        """Return the task's engine, new or resumed from a snapshot."""
        logic: TaskLogic = load(TASK_KINDS[self.task.kind].path)(self, resume)
        return logic


@dataclass(frozen=True, slots=True)
class TaskOutput:
    """The results of a task's records, or of time that passed.

    Parameters
    ----------
    windows : list of ClosedWindow
        Windows to evaluate, in the order of their reports.
    matches : list of Matches
        Answers that got labels.
    shed : int
        Answers of models beyond the limit.
    reports : list of OrderedReport
        Reports that need no evaluation.
    """

    windows: list[ClosedWindow] = field(default_factory=list)
    matches: list[Matches] = field(default_factory=list)
    shed: int = 0
    reports: list[OrderedReport] = field(default_factory=list)


class TaskLogic(ABC):
    """The running engine of one task: records go in, and closed windows or their reports come out.

    Attributes
    ----------
    join : LabelJoinLogic
        The join of the task's labels to its answers.
    fits : tuple of LabelFit
        The kinds of fit on labels that the task has.
    series : sequence of Series
        The models and groups with windows of their own, in the order of their first answers.
    """

    join: LabelJoinLogic
    fits: tuple[LabelFit[Any, Any], ...] = ()
    series: Sequence[Any] = ()

    @property
    @abstractmethod
    def rings(self) -> dict[str, BoundedTable]:
        """The ring tables of rows, by the first parts of their names in the store."""

    @abstractmethod
    def cuts(self, chunk: Chunk) -> bool:
        """Return whether records of the chunk must wait for a window of the task to close."""

    @abstractmethod
    def next_piece(self, batch: Batch, labels: LabelBatch | None, arrival: Floats, now: float) -> int:
        """Return the place of the first record that must wait for a window, or the number of records.

        Parameters
        ----------
        batch : Batch
        labels : LabelBatch or None
        arrival : (m,) float64
            The latest time that the clock may show at each place of the chunk's order, nondecreasing.
        now : float
            The time of the clock before the chunk.
        """

    @abstractmethod
    def absorb(
        self,
        answers: TimedBatch | None,
        labels: LabelBatch | None,
        partitions: tuple[str, ...],
        sequence: Ints,
    ) -> TaskOutput:
        """Process the task's answers and labels of a chunk, in order of arrival.

        Parameters
        ----------
        answers, labels
            None if the chunk holds no answers, or no labels, of this task.
        partitions : tuple of str
            The names that the batch's `partition` indexes.
        sequence : (n,) int64
            The sequence number of each record in the stream, in the chunk's order.
        """

    @abstractmethod
    def interrupt(self, partition: str) -> None:
        """Begin a new range of positions in a partition: another agent used the records in between."""

    @abstractmethod
    def tick(self, now: float, live: bool = True) -> TaskOutput:
        """Close the windows that are too old, and if `live`, also drop rows that are too old for a label."""

    @abstractmethod
    def end(self) -> TaskOutput:
        """Close every open window because the input has ended."""

    def finish(self) -> Sequence[tuple[int, WindowReport]]:
        """Return the final reports of windows at the end of the input, each with its place."""
        return ()

    def learn(self) -> bool:
        """Compute one calibration error in advance; return False if there is nothing to compute."""
        return False

    @property
    @abstractmethod
    def closes_at(self) -> float:
        """The time after which `tick` closes a window; infinite while no window holds enough rows."""

    @abstractmethod
    def forget(self, ids: Keys) -> Forgotten:
        """Delete all records that are stored under these ids; reports stay."""

    @abstractmethod
    def snapshot(self) -> Any:
        """Return the whole state, without the settings."""

    @abstractmethod
    def changes(self) -> tuple[dict[str, Any], list[RingChange]]:
        """Return the parts of the state that changed since the last call, by name, and the rings' changes.

        Call `confirm` after the changes are saved, or `retract` if saving them failed.
        """

    def confirm(self) -> None:
        """Mark the result of `changes` as saved, so that the next call leaves it out."""
        for ring in self.rings.values():
            ring.confirm()

    def retract(self) -> None:
        """Mark the result of `changes` as not saved, so that the next call returns it again."""
        for ring in self.rings.values():
            ring.retract()

    @abstractmethod
    def view(self) -> EngineView:
        """Return the task's part of the view for exporters, without the counts of its join."""
