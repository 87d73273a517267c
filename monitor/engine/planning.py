"""Who computes what of a stream that many processes share: units from what was read, spread by their size."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from monitor.base.records import Batch, Chunk, Floats
from monitor.config.root import Task
from monitor.engine.engine import EngineSettings
from monitor.engine.labels.join import rows_within
from monitor.engine.partitioning import Partition, Segment
from monitor.engine.task import TaskSettings

MESSAGES_KEPT = 5
_SKEWED = 0.5


@dataclass(slots=True)
class Facts:
    """What the driver must know of a split.

    Parameters
    ----------
    stretch : Segment
    models : dict of (task, model) to [place, rows]
        The place in the split of its first answer, and how many there are; those of an arena under ``""``.
    groups : dict of task to set of (model, group)
        As far as they are no more than may be watched.
    labels : Counter of task
        Labels on their own or along with answers, which other models of the task need too.
    verdicts : int
        Right or wrong along with answers of tasks without classes, of use to the one model.
    answers_rejected : Counter of str
        By reason.
    labels_rejected : Counter of (task, reason)
        ``""`` for a label that names no task.
    first : list of str
        The first messages.
    received : int
        Answers and labels, used or not.
    largest : int
        Bytes of the largest share.
    ignored : int
        Events without answers that were passed over.
    rows_left : Counter of str
        Rows that the mapping did not read, by the path of the one beside them that it read.
    files : dict of str to [answers, labels]
        Those that could be used and came by themselves, by file.
    certain : Counter of (task, model)
        Answers with a score of exactly 1, or a confidence of exactly 0 or 1.
    named_labels : int
        Labels on their own, read along with answers, that name a model: they may be answers without scores.
    newest : float
        Of a stream: the largest time of a record, where it is no more than a day after that of its message.
    """

    stretch: Segment = field(default_factory=Segment)
    models: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    groups: dict[str, set[tuple[str, str]]] = field(default_factory=dict)
    labels: Counter[str] = field(default_factory=Counter)
    verdicts: int = 0
    answers_rejected: Counter[str] = field(default_factory=Counter)
    labels_rejected: Counter[tuple[str, str]] = field(default_factory=Counter)
    first: list[str] = field(default_factory=list)
    received: int = 0
    largest: int = 0
    ignored: int = 0
    rows_left: Counter[str] = field(default_factory=Counter)
    files: dict[str, list[int]] = field(default_factory=dict)
    certain: Counter[tuple[str, str]] = field(default_factory=Counter)
    named_labels: int = 0
    newest: float = -math.inf

    def absorb(self, later: Facts, sequence: int, caps: Mapping[str, int]) -> None:
        """Take what follows in the stream; its first place is `sequence`.

        `caps` says by task how many groups are enough to know that they are too many.
        """
        for name, (place, rows) in later.models.items():
            self.models.setdefault(name, [sequence + place, 0])[1] += rows
        for task, groups in later.groups.items():
            known = self.groups.setdefault(task, set())
            if len(known) <= caps[task]:
                known |= groups
        self.labels.update(later.labels)
        self.verdicts += later.verdicts
        self.answers_rejected.update(later.answers_rejected)
        self.labels_rejected.update(later.labels_rejected)
        self.rows_left.update(later.rows_left)
        self.certain.update(later.certain)
        self.named_labels += later.named_labels
        for file, counts in later.files.items():
            self._count(file, *counts)
        self.first += later.first[: MESSAGES_KEPT - len(self.first)]
        self.received += later.received
        self.ignored += later.ignored

    def _count(self, file: str, answers: int, labels: int) -> None:
        known = self.files.setdefault(file, [0, 0])
        known[0] += answers
        known[1] += labels

    def note(self, chunk: Chunk, unit: str) -> None:
        """Count what a chunk of one file brought, used or not; `unit` is what its positions count."""
        self.received += chunk.answers + chunk.labels_received
        self.ignored += chunk.ignored
        self.rows_left.update(chunk.rows_left)
        for file in chunk.partitions:
            self._count(file, sum(map(len, chunk.batches)), sum(map(len, chunk.labels)))
        for batch in chunk.batches:
            self._note_certain(batch)
        if chunk.batches:
            self.named_labels += sum(int((each.model >= 0).sum()) for each in chunk.labels)
        for reject in chunk.rejects:
            if reject.answers:
                self.answers_rejected[reject.reason.value] += reject.answers
            else:
                self.labels_rejected[reject.task, reject.reason.value] += reject.records
            if len(self.first) < MESSAGES_KEPT:
                self.first.append(f"{reject.partition}: {unit} {reject.position}: {reject.message}")

    def _note_certain(self, batch: Batch) -> None:
        certain = certain_rows(batch.scores)
        if certain.any():
            often = np.bincount(batch.model[certain], minlength=len(batch.models)).tolist()
            pairs = zip(batch.models, often, strict=True)
            self.certain.update({(batch.task, model): count for model, count in pairs if count})

    def rows(self, task: str) -> int:
        """Answers of a task."""
        return sum(rows for (name, _), (_, rows) in self.models.items() if name == task)


def certain_rows(scores: Floats) -> NDArray[np.bool_]:
    """Return (n,) bool, True where the largest of (n, K) scores is 1, or a confidence is 0 or 1, exactly.

    Of three classes, say, a forest gives many a score of exactly 0, which says nothing of the largest one.

    Examples
    --------
    >>> certain_rows(np.array([[1.0, 0.0, 0.0], [0.75, 0.25, 0.0]])).tolist()
    [True, False]
    >>> certain_rows(np.array([[0.0], [0.5]])).tolist()
    [True, False]
    """
    found: NDArray[np.bool_] = (scores == 1).any(axis=1)
    return found | (scores[:, 0] == 0) if scores.shape[1] == 1 else found


@dataclass(frozen=True, slots=True)
class Unit:
    """What one engine computes: one model of a task, or a whole task, as an arena always is.

    Parameters
    ----------
    task : str
    model : str or None
        None for a whole task.
    rows : int
        Answers.
    """

    task: str
    model: str | None
    rows: int


def configured(settings: EngineSettings) -> dict[str, list[str]]:
    """By task, the models that are there before any answer; of an arena ``""``, which stands for them all."""
    models = {name: list(task.models) for name, task in settings.tasks.items()}
    return models | {name: [""] for name in settings.arenas}


def most_groups(settings: EngineSettings) -> dict[str, int]:
    """By task, how many groups are enough to know that they are too many; an arena has none."""
    most = {name: task.max_series for name, task in settings.tasks.items()}
    return most | dict.fromkeys(settings.arenas, 0)


def note_share(facts: Facts, share: Partition, size: int, cap: int) -> None:
    """Count a share of so many packed bytes; of a task no more than `cap` groups are remembered."""
    facts.largest = max(facts.largest, size)
    if not isinstance(share.records, Batch):
        facts.labels[share.task] += len(share)
        return
    if not share.model:  # of an arena: verdicts along with comparisons are no share of their own
        facts.labels[share.task] += int((share.records.label >= 0).sum())
    elif share.records.scores.shape[1] == 1:
        facts.verdicts += int((share.records.label >= 0).sum())
    known = facts.models.setdefault((share.task, share.model), [int(share.records.order[0]), 0])
    known[1] += len(share)
    groups = facts.groups.setdefault(share.task, set())
    for name, (values, codes) in share.records.groups.items():
        if len(groups) <= cap:
            groups.update((share.model, f"{name}={values[i]}") for i in np.unique(codes[codes >= 0]))


def rows_of(facts: Sequence[Facts]) -> dict[tuple[str, str], int]:
    """Answers by task and model, models in the order of their first one."""
    found: dict[tuple[str, str], int] = {}
    for each in facts:
        for name in sorted(each.models, key=lambda name: each.models[name][0]):
            found[name] = found.get(name, 0) + each.models[name][1]
    return found


def why_whole(settings: EngineSettings, facts: Sequence[Facts]) -> dict[str, str]:
    """Tasks whose models must be computed together, and why: a sentence.

    One engine for each model gives the lines of one engine for all, unless they are estimated together or
    share a memory that is full.
    """
    rows: Counter[str] = Counter()
    models: dict[str, set[str]] = {}
    groups: dict[str, set[tuple[str, str]]] = {}
    for (name, model), count in rows_of(facts).items():
        rows[name] += count
        models.setdefault(name, set()).add(model)
    for each in facts:
        for name, found in each.groups.items():
            groups.setdefault(name, set()).update(found)
    labels = sum((each.labels for each in facts), Counter[str]())
    reasons = {}
    for name in rows:
        if why := why_together(settings, name):
            reasons[name] = why
            continue
        task, most = settings.tasks[name], settings.tasks[name].max_series
        if len(models[name] | set(task.models)) > most or len(groups.get(name, ())) > most:
            reasons[name] = f"it has more models or groups than max_series, {most:,}, allows"
        elif labels[name] and (
            rows[name] > remembered(settings, name)
            or may_close(settings, name, rows[name]) > kept(settings, name)
        ):
            reasons[name] = too_many(settings, name, rows[name])
    return reasons


def why_together(settings: EngineSettings, name: str) -> str:
    """Why the models of a task are computed together whatever comes; ``""`` where they need not be."""
    if name in settings.arenas:
        return "its models are compared in pairs"
    task = settings.tasks[name]
    by = " and ".join(task.refit_estimators) or "ssme"
    return f"{by} estimates its models together" if task.refits else ""


def may_close(settings: EngineSettings, name: str, rows: int) -> int:
    """Windows that so many answers of a task fill."""
    task = settings.tasks[name]
    return (1 + len(task.groups)) * (rows // task.window.size)


def kept(settings: EngineSettings, name: str) -> int:
    """Windows of a task that are kept for labels to come."""
    return TaskSettings(name, settings.tasks[name], {}).revisions.keep


def remembered(settings: EngineSettings, name: str) -> int:
    """Answers of a task that its labels find."""
    task = settings.tasks[name]
    bounds = task.labels.max_bytes, task.labels.max_answers, task.labels.max_waiting
    return rows_within(*bounds, 1 + len(task.groups), task.scored, settings.numbered)[0]


def too_many(settings: EngineSettings, name: str, rows: int) -> str:
    """Why a task with labels and more windows than are kept is computed as a whole."""
    most = settings.tasks[name].labels.max_answers
    return (
        f"its labels are awaited by more windows than labels.max_answers, {most:,}, keeps, oldest out first "
        f"whichever model they are of; with {max(rows, most + 1):,} or more its models go side by side"
    )


def units_of(facts: Sequence[Facts], whole: Collection[str]) -> list[Unit]:
    """What engines compute: a task that is `whole`, or one model of it."""
    by_model = rows_of(facts)
    rows: dict[tuple[str, str | None], int] = {}
    for (task, model), count in by_model.items():
        key = (task, None) if task in whole else (task, model)
        rows[key] = rows.get(key, 0) + count
    return [Unit(task, model, count) for (task, model), count in rows.items()]


def settings_of(settings: EngineSettings, unit: Unit) -> EngineSettings:
    """What the engine of a unit is built from: its task, of whose models it knows its own only."""
    tasks = {name: task for name, task in settings.tasks.items() if name == unit.task}
    arenas = {name: arena for name, arena in settings.arenas.items() if name == unit.task}
    references = settings.references.get(unit.task, {})
    if unit.model is not None:
        tasks = with_models(tasks, [unit.model])
        references = {k: v for k, v in references.items() if k == unit.model}
    return replace(settings, tasks=tasks, references={unit.task: references}, arenas=arenas)


def with_models(tasks: Mapping[str, Task], own: Collection[str]) -> dict[str, Task]:
    """Tasks that know of their configured models these only."""
    return {
        name: task.model_copy(update={"models": {k: v for k, v in task.models.items() if k in own}})
        for name, task in tasks.items()
    }


def spread(units: Sequence[Unit], partitions: int) -> list[int]:
    """A partition for each unit: largest first, each to the one with the fewest rows so far.

    Examples
    --------
    >>> spread([Unit("t", "a", 90), Unit("t", "b", 5), Unit("t", "c", 5), Unit("t", "d", 4)], 2)
    [0, 1, 1, 1]
    """
    loads = [(0, number) for number in range(partitions)]
    found = [0] * len(units)
    for i in sorted(range(len(units)), key=lambda i: -units[i].rows):
        load, number = heapq.heappop(loads)
        found[i] = number
        heapq.heappush(loads, (load + units[i].rows, number))
    return found


def notes_of(units: Sequence[Unit], whole: Mapping[str, str], cores: int) -> list[str]:
    """What whoever runs it should know of how the work is spread, as sentences."""
    found = [f"{task} is computed as a whole, by one core: {why}." for task, why in whole.items()]
    total = sum(unit.rows for unit in units)
    for unit in units:
        if cores > 1 and unit.model is not None and unit.rows > _SKEWED * total:
            found.append(
                f"{unit.task} {unit.model} has {unit.rows / total:.0%} of the answers: its windows follow on "
                "each other, so one core computes them while others wait; more of them make only the "
                "reading faster."
            )
    return found


def notes_of_order(facts: Sequence[Facts]) -> list[str]:
    """A sentence where a file has labels alone and follows one with answers, as files are not merged by time.

    Examples
    --------
    >>> notes_of_order([Facts(files={"a.ndjson": [900, 0]}), Facts(files={"labels.csv": [0, 40]})])[0][:88]
    'Files are read one after another: the labels of labels.csv came after all answers of a.n'
    >>> notes_of_order([Facts(files={"labels.csv": [0, 40], "a.ndjson": [900, 0]})])
    []
    """
    together = Facts()
    for each in facts:
        together.absorb(replace(each, groups={}), 0, {})
    before = ""
    for file, (answers, labels) in together.files.items():
        if before and labels and not answers:
            return [
                f"Files are read one after another: the labels of {file} came after all answers of {before}, "
                "so every window closed without them. To replay them when they came, put answers and labels "
                "into one file, sorted by time."
            ]
        before = file if answers else before
    return []
