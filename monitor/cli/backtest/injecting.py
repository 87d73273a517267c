"""The replay of files with injected drops of accuracy: several engines read the same chunks side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from monitor.base.records import NO_ID, Batch, Chunk, Ints, Keys, LabelBatch, mix
from monitor.cli.backtest.results import Detection, Injection, Outcome
from monitor.cli.backtest.signals import SignalLog, signals_of, statement_of
from monitor.config.task import Task
from monitor.engine.engine import Engine, EngineSettings, EngineState
from monitor.engine.labels.columns import answer_keys, model_code
from monitor.engine.report_order import OrderedReport
from monitor.engine.windows import LAST
from monitor.reports.window_report import WindowReport, rfc3339
from monitor.stats.drops import Lowering, replaced_labels, uniform

_HOUR = 3600.0
_LABEL_COLUMNS = (
    "key",
    "label",
    "model",
    "time",
    "probability",
    "order",
    "draw",
    "first_row",
    "numbers",
)
_POSITIONS = np.uint64(0x9E3779B97F4A7C15)  # answers without an id draw by their position in the stream


class Model(NamedTuple):
    """The task and the name of a model."""

    task: str
    model: str


def without_labels(chunk: Chunk) -> Chunk:
    """Return a chunk without labels; the positions of its records do not change."""
    batches = [replace(batch, label=np.full(len(batch), -1, dtype=np.int64)) for batch in chunk.batches]
    return replace(chunk, batches=tuple(batches), labels=())


def models_with_baseline(state: EngineState) -> frozenset[Model]:
    """Return the models whose windows charts judge. Windows of the other models become their baseline."""
    return frozenset(
        Model(task, model)
        for task, of_task in state.tasks.items()
        for model, group, series in of_task.series
        if not group and series.judge is not None and series.judge.charts
    )


def models_within_window(state: EngineState) -> frozenset[Model]:
    """Return the models whose open window has rows, so that this window began before the state was saved."""
    return frozenset(
        Model(task, model)
        for task, of_task in state.tasks.items()
        for model, group, series in of_task.series
        if not group and series.windows is not None and series.windows.scores is not None
    )


def with_share_of_labels(chunk: Chunk, record: int, share: float, seed: int) -> Chunk:
    """Return a chunk with a random share of its labels; the positions of its records do not change.

    Parameters
    ----------
    chunk : Chunk
    record : int
        The number of the chunk's first record in the stream.
    share : float
        0 to 1. The labels of a smaller share are among those of a larger share.
    seed : int
    """
    if share == 0:
        return without_labels(chunk)
    if share == 1:
        return chunk
    batches = [
        replace(batch, label=np.where(uniform(_draw_keys(batch, record), seed) < share, batch.label, -1))
        for batch in chunk.batches
    ]
    labels = [_labels_where(each, uniform(each.key, seed) < share) for each in chunk.labels]
    return replace(chunk, batches=tuple(batches), labels=tuple(labels))


def _draw_keys(batch: Batch, record: int) -> Keys:
    """Return the keys by which the labels of answers are drawn, (n,)."""
    positions = mix((record + batch.order).astype(np.uint64) ^ _POSITIONS)
    keys: Keys = np.where(batch.key == NO_ID, positions, batch.key)
    return keys


def _labels_where(labels: LabelBatch, rows: np.ndarray) -> LabelBatch:
    columns = {name: getattr(labels, name)[rows] for name in _LABEL_COLUMNS}
    return replace(labels, **columns)


@dataclass(frozen=True, slots=True)
class DropPoint:
    """A point of the stream from which drops of accuracy are injected.

    Parameters
    ----------
    name : str
        The point as requested, such as ``25 %``.
    number : int
        The number of the point, which also seeds its draws.
    record : int
        The number of answers and labels before the point.
    time : float
        The time of the stream's clock there, seconds since the epoch.
    timed : bool
        Whether the records have times.
    """

    name: str
    number: int
    record: int
    time: float
    timed: bool


class Injector:
    """Injects a drop of accuracy into the answers that come after a starting point.

    The engine at the starting point gives each model's calibration, and its state the answers before the
    point, whose labels do not change when they come later.

    Parameters
    ----------
    tasks : mapping of str to Task
    engine : Engine
    state : EngineState
    injection : Injection
    shares : mapping of str to float
        The share of the labels to replace, by task.
    seed : int
    """

    def __init__(
        self,
        tasks: Mapping[str, Task],
        engine: Engine,
        state: EngineState,
        injection: Injection,
        shares: Mapping[str, float],
        seed: int,
    ) -> None:
        self._injection, self._shares, self._seed = injection, shares, seed
        self._tasks = {name: task for name, task in tasks.items() if name in shares}
        self._before = {name: _answers_before(state, name) for name in self._tasks}
        self._lowering = {
            Model(name, series.settings.model): Lowering(
                classes_of(task), shares[name], series.active.confidence
            )
            for name, task in self._tasks.items()
            for series in engine.series[name]
            if injection.known and not series.settings.group
        }

    def inject(self, chunk: Chunk, record: int) -> Chunk:
        """Return a chunk with the drop; `record` is the number of its first record in the stream."""
        batches = tuple(self._answers(batch, record) for batch in chunk.batches)
        if not self._injection.labelled:
            return replace(without_labels(chunk), batches=batches)
        return replace(chunk, batches=batches, labels=tuple(map(self._labels, chunk.labels)))

    def _answers(self, batch: Batch, record: int) -> Batch:
        task = self._tasks.get(batch.task)
        if task is None:
            return batch
        scores = batch.scores
        if self._injection.known:
            scores = scores.copy()
            for code, name in enumerate(batch.models):
                rows, lowering = batch.model == code, self._lowering.get(Model(batch.task, name))
                if lowering is not None:
                    scores[rows] = lowering(scores[rows], batch.predicted[rows])
        label = np.full(len(batch), -1)
        if self._injection.labelled:
            keys = _draw_keys(batch, record)
            label = replaced_labels(batch.label, keys, self._shares[batch.task], classes_of(task), self._seed)
        return replace(batch, scores=scores, label=label)

    def _labels(self, labels: LabelBatch) -> LabelBatch:
        task = self._tasks.get(labels.task)
        if task is None:
            return labels
        share, classes = self._shares[labels.task], classes_of(task)
        after = replaced_labels(labels.label, labels.key, share, classes, self._seed)
        return replace(labels, label=np.where(self.follows(labels), after, labels.label))

    def follows(self, labels: LabelBatch) -> np.ndarray:
        """Return whether each label is for an answer after the starting point, (n,)."""
        before = self._before.get(labels.task)
        return np.ones(len(labels), dtype=bool) if before is None else ~before.holds(labels)


def classes_of(task: Task) -> int:
    """Return the number of classes of a task, which is 1 for a task without classes."""
    return max(len(task.classes), 1)


@dataclass(frozen=True, slots=True)
class _EarlierAnswers:
    """The stored answers of a task at a starting point: their keys, sorted, and the codes of its models."""

    keys: Keys
    models: Ints

    def holds(self, labels: LabelBatch) -> np.ndarray:
        """Return whether each label has the id of one of the answers, or the id of its request, (n,)."""
        known = np.zeros(len(labels), dtype=bool)
        for ids in (labels.key, labels.first_row):
            for model in self.models.tolist():
                known |= np.isin(answer_keys(ids, np.full(len(ids), model)), self.keys)
        return known


def _answers_before(state: EngineState, task: str) -> _EarlierAnswers | None:
    of_task = state.tasks.get(task)
    if of_task is None or of_task.join.answers is None:
        return None
    keys = of_task.join.answers.keys
    models = {model for model, group, _ in of_task.series if not group}
    return _EarlierAnswers(np.sort(keys[keys != NO_ID]), np.array(sorted(map(model_code, models))))


class InjectedReplay:
    """A replay with one drop, from its starting point until each model's alarm, or the end of the files.

    Parameters
    ----------
    settings : EngineSettings
    state : EngineState
        The engine at the starting point.
    injection : Injection
    point : DropPoint
    shares : mapping of str to float
        The share of the labels to replace, by task.
    history : mapping of Model to SignalLog
        The signals of the same replay without a drop. A signal that is on in the same window without the drop
        does not count.
    seed : int

    Attributes
    ----------
    detections : list of Detection
        The outcomes so far; after `finish`, one for each model that had a baseline at the point, and answers
        after it.
    """

    def __init__(
        self,
        settings: EngineSettings,
        state: EngineState,
        injection: Injection,
        point: DropPoint,
        shares: Mapping[str, float],
        history: Mapping[Model, SignalLog],
        seed: int,
    ) -> None:
        self._injection, self._point, self._history = injection, point, history
        self._engine = settings.build(state)
        tasks = settings.scored_tasks
        self._injector = Injector(tasks, self._engine, state, injection, shares, seed + point.number)
        self._record = state.sequence
        based = models_with_baseline(state)
        self._open = {model for model in history if model.task in shares and model in based}
        self._begun = models_within_window(state)
        self._answered: set[Model] = set()  # after the point
        self._windows: Counter[Model] = Counter()
        self._quiet: set[Model] = set()
        self._labels: Counter[Model] = Counter()
        self.detections: list[Detection] = []

    @property
    def ended(self) -> bool:
        """True if the drop was detected for each model."""
        return not self._open

    def absorb(self, chunk: Chunk) -> None:
        """Process the next records after the starting point."""
        for batch in chunk.batches:
            codes = np.unique(batch.model).tolist()
            self._answered.update(Model(batch.task, batch.models[code]) for code in codes)
        injected = self._injector.inject(chunk, self._record)
        came = self._labels_of(injected) if self._injection.labelled else {}
        for ordered in self._engine.take(injected, 0.0):
            self._note(ordered, came)
        for model, records in came.items():
            self._labels[model] += len(records)
        self._record += chunk.answers + chunk.labels_received

    def finish(self) -> None:
        """End the input, and add the outcomes of the models without a detection."""
        for ordered in self._engine.end():
            self._note(ordered, {})
        for model in sorted(self._open):
            if self._windows[model] and model in self._answered:
                outcome: Outcome = "missed" if model in self._quiet else "alarm_before"
                self.detections.append(self._outcome(model, outcome, None, self._labels[model]))

    def _note(self, ordered: OrderedReport, came: Mapping[Model, Ints]) -> None:
        report, model = ordered.report, Model(ordered.report.task, ordered.report.model)
        if report.revision or report.group or model not in self._open:
            return
        self._windows[model] += 1
        history = self._history[model].at(report.window)
        if not history:
            self._quiet.add(model)
        new = signals_of(report) - history
        if not new:
            return
        record = ordered.position.sequence
        records = came.get(model, np.zeros(0, dtype=np.int64))
        labels = self._labels[model] + (
            len(records) if record == LAST else int(np.searchsorted(records, record, side="right"))
        )
        self.detections.append(self._outcome(model, "detected", report, labels, sorted(new)))
        self._open.discard(model)

    def _outcome(
        self,
        model: Model,
        outcome: Outcome,
        report: WindowReport | None,
        labels: int,
        signals: Sequence[str] = (),
    ) -> Detection:
        point, hours, fact = self._point, None, ""
        if report is not None:
            fact = statement_of(report).fact
            hours = max(report.end_time - point.time, 0.0) / _HOUR if point.timed else None
        return Detection(
            task=model.task,
            model=model.model,
            start=point.name,
            start_time=rfc3339(point.time) if point.timed else None,
            drop=self._injection.drop,
            known=self._injection.known,
            labelled=self._injection.labelled,
            outcome=outcome,
            windows=max(self._windows[model] - (model in self._begun), 1),
            hours=hours,
            labels=labels,
            signals=list(signals),
            fact=fact,
        )

    def _labels_of(self, chunk: Chunk) -> dict[Model, Ints]:
        """Return the records that brought labels of answers after the starting point, ascending, by model."""
        came: dict[Model, list[Ints]] = {}
        for model, order in self._labelled_records(chunk):
            came.setdefault(model, []).append(self._record + order)
        return {model: np.sort(np.concatenate(records)) for model, records in came.items()}

    def _labelled_records(self, chunk: Chunk) -> Iterator[tuple[Model, Ints]]:
        for batch in chunk.batches:
            # A record of several models holds its label once.
            along = batch.label >= 0
            ids = np.unique(batch.key[along & (batch.key != NO_ID)])
            labelled = along | np.isin(batch.key, ids)
            for code, name in enumerate(batch.models):
                yield Model(batch.task, name), batch.order[labelled & (batch.model == code)]
        for labels in chunk.labels:
            follows = self._injector.follows(labels)
            for model in self._open:
                if model.task == labels.task:
                    own = labels.models.index(model.model) if model.model in labels.models else -1
                    yield model, labels.order[follows & np.isin(labels.model, [-1, own])]
