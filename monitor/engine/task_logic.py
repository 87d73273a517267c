"""The interface of the engines of tasks. It is the same for every kind of task."""

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
        The labelled reference of each model.
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
    """The results of one step of a task, which processes a part of a chunk or only advances the time.

    Parameters
    ----------
    windows : list of ClosedWindow
        Windows to evaluate, in the order of their reports.
    matches : list of Matches
        Labels that were matched to answers.
    shed : int
        The number of answers that were not used, because their model is beyond the limit.
    reports : list of OrderedReport
        Reports that the task itself made. Their windows need no evaluation.
    """

    windows: list[ClosedWindow] = field(default_factory=list)
    matches: list[Matches] = field(default_factory=list)
    shed: int = 0
    reports: list[OrderedReport] = field(default_factory=list)


class TaskLogic(ABC):
    """The running engine of one task, which turns records into closed windows or reports.

    Attributes
    ----------
    join : LabelJoinLogic
        The join of the task's labels with its answers.
    fits : tuple of LabelFit
        The fits (refits, recalibrations) that the task repeats when labels come.
    series : sequence of Series
        The models and groups that have their own windows, in the order of their first answers.
    """

    join: LabelJoinLogic
    fits: tuple[LabelFit[Any, Any], ...] = ()
    series: Sequence[Any] = ()

    @property
    @abstractmethod
    def rings(self) -> dict[str, BoundedTable]:
        """The ring tables (tables of limited size) of the task's rows.

        The key is the ring's kind, such as ``answers``. In the store, the name of a ring is its kind, a slash
        and the name of the task.
        """

    @abstractmethod
    def cuts(self, chunk: Chunk) -> bool:
        """Return whether records of the chunk may have to wait until a window of the task has closed."""

    @abstractmethod
    def next_piece(self, batch: Batch, labels: LabelBatch | None, arrival: Floats, now: float) -> int:
        """Return the index of the first record that must wait until a window has closed.

        If no record must wait, the index is the number of records.

        Parameters
        ----------
        batch : Batch
        labels : LabelBatch or None
        arrival : (m,) float64
            An upper bound of the clock at each record of the chunk, in seconds, nondecreasing.
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
            The chunk's answers and labels of this task; None if there are none.
        partitions : tuple of str
            The names of partitions; the `partition` of the answers holds indices into them.
        sequence : (n,) int64
            The sequence number of each record in the stream, in the chunk's order.
        """

    @abstractmethod
    def interrupt(self, partition: str) -> None:
        """Record that another agent has read the next records of a partition.

        In each window, the partition's range of positions ends, and its next row begins a new range.
        """

    @abstractmethod
    def tick(self, now: float, live: bool = True) -> TaskOutput:
        """Close the windows that are too old.

        In a live run, also drop stored rows that are too old to be joined.
        """

    @abstractmethod
    def end(self) -> TaskOutput:
        """Close every open window because the input has ended."""

    def finish(self) -> Sequence[tuple[int, WindowReport]]:
        """Return the last reports of windows at the end of the input.

        Each report comes with the sequence number of the record that closed its window.
        """
        return ()

    def learn(self) -> bool:
        """Compute the calibration error of one series in advance; return False if all errors are known."""
        return False

    @property
    @abstractmethod
    def closes_at(self) -> float:
        """The time after which `tick` closes a window; infinite while no window has enough rows."""

    @abstractmethod
    def forget(self, ids: Keys) -> Forgotten:
        """Delete the stored records with these ids. Reports are kept."""

    @abstractmethod
    def snapshot(self) -> Any:
        """Return the whole state of the task, without the settings."""

    @abstractmethod
    def changes(self) -> tuple[dict[str, Any], list[RingChange]]:
        """Return the parts of the state that changed since the last call, and the changes of ring tables.

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
        """Return the task's part of the view for exporters, without the counts of matched labels."""
