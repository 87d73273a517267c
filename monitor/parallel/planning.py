"""Plans how processes divide the work on a stream, from facts about the records.

A split is a part of the stream that one process reads. A unit is the work of one engine: one model, or a
whole task. Units are assigned to processes by their numbers of answers.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from monitor.base.records import Batch, Chunk
from monitor.engine.labels.join import rows_within
from monitor.engine.task import revisions_of
from monitor.parallel.partitioning import Partition, Segment

if TYPE_CHECKING:  # a command passes the settings
    from monitor.engine.engine import EngineSettings

MESSAGES_KEPT = 5
_SKEWED = 0.5


@dataclass(slots=True)
class Facts:
    """The facts about a split (a part of the stream) from which the work is planned.

    Parameters
    ----------
    stretch : Segment
        The number and times of the split's records.
    models : dict of (task, model) to [index, rows]
        For each model, the index of its first answer in the split, and its number of answers. The model
        ``""`` means all models of a task that are computed together.
    groups : dict of task to set of (model, group)
        The groups of each task. At most one group more than the largest allowed number is collected.
    labels : Counter of task
        Number of labels that apply to all models of a task, in separate records or in records of answers.
    verdicts : int
        Number of labels in records of answers, for tasks without classes. Such a label says whether the
        answer is right. It applies only to the model of the answer.
    answers_rejected : Counter of str
        Number of rejected answers, by reason.
    labels_rejected : Counter of (task, reason)
        Number of rejected labels; the task is ``""`` if a label names no task.
    first : list of str
        The messages of the first rejected records.
    received : int
        Number of answers and labels, whether they are used or not.
    largest : int
        The size in bytes of the largest share (the records of one model or task in a chunk).
    ignored : int
        Number of events that hold no answer.
    rows_left : Counter of str
        Number of rows that were not read, because the mapping reads only one row of each record. The key is
        the path of the row that the mapping reads.
    files : dict of str to [answers, labels]
        Number of usable answers, and of usable labels in separate records, by file.
    certain : Counter of (task, model)
        Number of answers with a score of exactly 1, or a confidence of exactly 0 or 1.
    named_labels : int
        Number of separate labels that name a model, in chunks that also contain answers. Such records may be
        answers without scores.
    newest : float
        The largest time of a record, in seconds. A time is ignored if it is more than a day later than the
        record's message.
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
        """Add the facts about the next part of the stream.

        Parameters
        ----------
        later : Facts
        sequence : int
            The first sequence number of the next part.
        caps : mapping of str to int
            The largest number of groups to collect, by task.
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
        """Add the records of a chunk of one file to the counts, whether they are usable or not.

        Parameters
        ----------
        chunk : Chunk
        unit : str
            The unit of the chunk's positions in messages, such as rows or bytes.
        """
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
        certain = batch.certain
        if certain.any():
            often = np.bincount(batch.model[certain], minlength=len(batch.models)).tolist()
            pairs = zip(batch.models, often, strict=True)
            self.certain.update({(batch.task, model): count for model, count in pairs if count})

    def rows(self, task: str) -> int:
        """Return the number of answers of a task."""
        return sum(rows for (name, _), (_, rows) in self.models.items() if name == task)


@dataclass(frozen=True, slots=True)
class Unit:
    """The work of one engine: one model of a task, or a whole task.

    Parameters
    ----------
    task : str
    model : str or None
        None for a whole task.
    rows : int
        The number of answers.
    """

    task: str
    model: str | None
    rows: int


def configured(settings: EngineSettings) -> dict[str, list[str]]:
    """Return the configured models of each task. The model ``""`` means all models of a task together."""
    return {name: list(task.shares) for name, task in settings.tasks.items()}


def most_groups(settings: EngineSettings) -> dict[str, int]:
    """Return the largest number of groups to collect, for each task."""
    return {name: task.most_series for name, task in settings.tasks.items()}


def note_share(facts: Facts, share: Partition, size: int, cap: int) -> None:
    """Add a share (the records of one model or task in a chunk) to the facts about its split.

    Parameters
    ----------
    facts : Facts
    share : Partition
    size : int
        The packed size of the share in bytes.
    cap : int
        The largest number of groups of a task to collect.
    """
    facts.largest = max(facts.largest, size)
    if not isinstance(share.records, Batch):
        facts.labels[share.task] += len(share)
        return
    if not share.model:  # a whole task's: labels that come with its answers are no share of their own
        facts.labels[share.task] += int((share.records.label >= 0).sum())
    elif not share.records.labels_are_general:
        facts.verdicts += int((share.records.label >= 0).sum())
    known = facts.models.setdefault((share.task, share.model), [int(share.records.order[0]), 0])
    known[1] += len(share)
    groups = facts.groups.setdefault(share.task, set())
    for name, (values, codes) in share.records.groups.items():
        if len(groups) <= cap:
            groups.update((share.model, f"{name}={values[i]}") for i in np.unique(codes[codes >= 0]))


def rows_of(facts: Sequence[Facts]) -> dict[tuple[str, str], int]:
    """Return the number of answers by task and model, in the order of the models' first answers."""
    rows: dict[tuple[str, str], int] = {}
    for each in facts:
        for name in sorted(each.models, key=lambda name: each.models[name][0]):
            rows[name] = rows.get(name, 0) + each.models[name][1]
    return rows


def why_whole(settings: EngineSettings, facts: Sequence[Facts]) -> dict[str, str]:
    """Return the tasks whose models must be computed by one engine, each with the reason as a sentence.

    Separate engines for the models give the same reports, except in three cases: the models are estimated
    together, there are more models or groups than `max_series`, or labels are joined and there are more
    answers or windows than the models' common memory keeps for late labels.
    """
    rows: Counter[str] = Counter()
    models: dict[str, set[str]] = {}
    groups: dict[str, set[tuple[str, str]]] = {}
    for (name, model), count in rows_of(facts).items():
        rows[name] += count
        models.setdefault(name, set()).add(model)
    for each in facts:
        for name, named in each.groups.items():
            groups.setdefault(name, set()).update(named)
    labels = sum((each.labels for each in facts), Counter[str]())
    reasons = {}
    for name in rows:
        task = settings.tasks[name]
        most = task.most_series
        if why := task.together:
            reasons[name] = why
        elif len(models[name] | set(task.shares)) > most or len(groups.get(name, ())) > most:
            reasons[name] = f"it has more models or groups than max_series, {most:,}, allows"
        elif labels[name] and (
            rows[name] > remembered(settings, name)
            or may_close(settings, name, rows[name]) > kept(settings, name)
        ):
            reasons[name] = too_many(settings, name, rows[name])
    return reasons


def may_close(settings: EngineSettings, name: str, rows: int) -> int:
    """Return the number of windows of a task, including windows of groups, that `rows` answers fill."""
    task = settings.scored_tasks[name]
    return (1 + len(task.groups)) * (rows // task.window.size)


def kept(settings: EngineSettings, name: str) -> int:
    """Return the largest number of closed windows of a task that are kept for late labels."""
    return revisions_of(settings.task_settings(name)).keep


def remembered(settings: EngineSettings, name: str) -> int:
    """Return the largest number of answers of a task that are stored for the label join."""
    task = settings.scored_tasks[name]
    bounds = task.labels.max_bytes, task.labels.max_answers, task.labels.max_waiting
    return rows_within(*bounds, 1 + len(task.groups), task.scored, settings.numbered)[0]


def too_many(settings: EngineSettings, name: str, rows: int) -> str:
    """Return the reason why one engine computes a task with more answers or windows than are kept."""
    most = settings.tasks[name].labels.max_answers
    return (
        f"its labels are awaited by more windows than labels.max_answers, {most:,}, keeps, oldest out first "
        f"whichever model they are of; with {max(rows, most + 1):,} or more its models go side by side"
    )


def units_of(facts: Sequence[Facts], whole: Collection[str]) -> list[Unit]:
    """Return the units of work: each task in `whole`, and each model of the other tasks."""
    by_model = rows_of(facts)
    rows: dict[tuple[str, str | None], int] = {}
    for (task, model), count in by_model.items():
        key = (task, None) if task in whole else (task, model)
        rows[key] = rows.get(key, 0) + count
    return [Unit(task, model, count) for (task, model), count in rows.items()]


def settings_of(settings: EngineSettings, unit: Unit) -> EngineSettings:
    """Return the engine settings for a unit of work, with only the task and the models of the unit."""
    tasks = {name: task for name, task in settings.tasks.items() if name == unit.task}
    references = settings.references.get(unit.task, {})
    if unit.model is not None:
        tasks = {name: task.with_models([unit.model]) for name, task in tasks.items()}
        # References may share what the task needs, as a tolerance: a model without its own keeps one of them.
        own = {k: v for k, v in references.items() if k == unit.model}
        references = own or dict(islice(references.items(), 1))
    return replace(settings, tasks=tasks, references={unit.task: references})


def spread(units: Sequence[Unit], partitions: int) -> list[int]:
    """Assign units of work to partitions, so that the partitions have about equal numbers of answers.

    The units are assigned in the order of their size, the largest first. Each unit is assigned to the
    partition that has the fewest answers so far. The result is the index of each unit's partition.

    Parameters
    ----------
    units : sequence of Unit
    partitions : int
        The number of partitions.

    Examples
    --------
    >>> spread([Unit("t", "a", 90), Unit("t", "b", 5), Unit("t", "c", 5), Unit("t", "d", 4)], 2)
    [0, 1, 1, 1]
    """
    loads = [(0, number) for number in range(partitions)]
    assigned = [0] * len(units)
    for i in sorted(range(len(units)), key=lambda i: -units[i].rows):
        load, number = heapq.heappop(loads)
        assigned[i] = number
        heapq.heappush(loads, (load + units[i].rows, number))
    return assigned


def notes_of(units: Sequence[Unit], whole: Mapping[str, str], cores: int) -> list[str]:
    """Return sentences that explain the division of the work to the user.

    Parameters
    ----------
    units : sequence of Unit
    whole : mapping of str to str
        The tasks that one engine computes, each with the reason.
    cores : int
        The number of processes that can run at the same time.
    """
    notes = [f"{task} is computed as a whole, by one core: {why}." for task, why in whole.items()]
    total = sum(unit.rows for unit in units)
    for unit in units:
        if cores > 1 and unit.model is not None and unit.rows > _SKEWED * total:
            notes.append(
                f"{unit.task} {unit.model} has {unit.rows / total:.0%} of the answers: its windows follow on "
                "each other, so one core computes them while others wait; more of them make only the "
                "reading faster."
            )
    return notes


def notes_of_order(facts: Sequence[Facts]) -> list[str]:
    """Return a list with advice if a file of labels follows a file of answers, otherwise an empty list.

    Files are read one after another. So the labels of a later file come after all answers of the earlier
    file.

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
