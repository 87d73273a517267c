"""Who computes what: units from what was read, spread over partitions by their size."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from connectors.spark.job import Facts, Unit
from monitor.engine.engine import EngineSettings
from monitor.engine.task import TaskSettings

_SKEWED = 0.5


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
        task, most = settings.tasks[name], settings.tasks[name].max_series
        if task.refits:
            reasons[name] = f"{' and '.join(task.refit_estimators) or 'ssme'} estimates its models together"
        elif len(models[name] | set(task.models)) > most or len(groups.get(name, ())) > most:
            reasons[name] = f"it has more models or groups than max_series, {most:,}, allows"
        elif labels[name] and may_close(settings, name, rows[name]) > kept(settings, name):
            reasons[name] = too_many(settings, name, rows[name])
    return reasons


def may_close(settings: EngineSettings, name: str, rows: int) -> int:
    """Windows that so many answers of a task fill."""
    task = settings.tasks[name]
    return (1 + len(task.groups)) * (rows // task.window.size)


def kept(settings: EngineSettings, name: str) -> int:
    """Windows of a task that are kept for labels to come."""
    return TaskSettings(name, settings.tasks[name], {}).revisions.keep


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
                "each other, so one core computes them while others wait; more executors make only the "
                "reading faster."
            )
    return found
