"""Restores an engine from a store after a restart, even if the configuration has changed."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from monitor.base.errors import StoreError
from monitor.base.registry import WHOLE_TASKS
from monitor.base.state_changes import assemble, piece_names
from monitor.config.regression import Regression
from monitor.config.reload import classify
from monitor.config.root import Config, Task, TaskSection
from monitor.engine.engine import Engine, EngineSettings
from monitor.engine.regression import rule_of
from monitor.reports.window_report import RestoreMark, WindowReport
from monitor.stats.regression.tolerance import Tolerance
from monitor.store import Saved

log = logging.getLogger("blindsight")


@dataclass(frozen=True, slots=True)
class Resumed:
    """An engine restored from a store, and the effects of a changed configuration.

    Parameters
    ----------
    engine : Engine
        The restored engine.
    reports : list of WindowReport
        The reports of windows that were closed because the configuration changed.
    forgotten : list of str
        The names of saved parts of the state that the store must delete. Their task is no longer configured,
        or its records now have a different layout.
    """

    engine: Engine
    reports: list[WindowReport]
    forgotten: list[str]


def resume(settings: EngineSettings, saved: Saved) -> Resumed:
    """Return an engine that continues from the saved state.

    If the kind, classes, positive class, groups, features or quantiles of a task have changed, its state has
    a different layout, so the task starts without it. The task also starts without its state if the tolerance
    has changed, because labels were compared with the old one. A tolerance that is not configured follows
    from the reference. If the window, reference, calibration or chart of a task has changed, the task begins
    a new baseline, as after a reload. A regression task does so also if the rows of its reference have
    changed, because its confidences follow from them. If a task is no longer configured, its state is
    dropped.

    Raises
    ------
    StoreError
        The state was written in a format that this version does not read.
    """
    before, now = tasks_of(saved), settings.scored_tasks
    reasons = {name: _why_without_state(name, task, settings, saved) for name, task in before.items()}
    lost = [name for name, why in reasons.items() if why]
    for name in lost:
        log.warning("Task %s does not continue from the store: %s.", name, reasons[name])
    kinds = {name: task.kind for name, task in settings.tasks.items()}
    gone = [name for name, kind in _whole_tasks(saved).items() if kinds.get(name) != kind]
    for name in gone:
        kind = _whole_tasks(saved)[name].capitalize()
        log.warning("%s %s does not continue from the store: it is no longer configured.", kind, name)
    pieces = [piece for name in (*lost, *gone) for piece in piece_names(name, saved.parts)]
    parts = {name: state for name, state in saved.parts.items() if name not in pieces}
    rings = {name: state for name, state in saved.rings.items() if name not in pieces}
    try:
        engine = settings.build(assemble(parts, rings))
    except (ValueError, KeyError) as error:
        raise StoreError(
            f"the state in the store cannot be read by this version ({error}); move the store away to "
            "start afresh, or run the version that wrote it"
        ) from error
    known = {name: task for name, task in before.items() if name not in lost}
    plan = classify(_config(known), _config({name: now[name] for name in known}))
    moved = {name for name in known if _has_another_reference(name, settings, saved)} - plan.fresh_tasks
    for name in sorted(moved):
        log.warning("A new baseline begins for task %s, because the rows of its reference changed.", name)
    if plan.fresh_tasks:
        changes = ", ".join(plan.new_baseline)
        log.warning("A new baseline begins, because the configuration changed: %s.", changes)
    elif not moved:
        return Resumed(engine, [], pieces)
    engine, reports = engine.reconfigured(settings, plan.fresh_tasks | moved)
    return Resumed(engine, reports, pieces)


def restore_marks(saved: Saved) -> list[RestoreMark]:
    """Return a mark for each series (model or group) of a store that was restored from a backup.

    A task whose models share their windows has one mark. After the backup was made, the agent may have
    reported further windows. After the restore, it reports them again. A mark contains the number of the
    first such window.

    Raises
    ------
    StoreError
        The state was written in a format that this version does not read.
    """
    numbers = []
    whole = {entry.piece for entry in WHOLE_TASKS.values()}
    try:
        for name, state in saved.parts.items():
            kind, _, task = name.partition("/")
            if kind == "series":
                model, group, series = state
                numbers.append((task.partition("/")[2], model, group, series["windows"]["number"]))
            elif kind in whole:
                numbers.append((task, "", "", (state["window"] or {"number": 0})["number"]))
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"the state in the store cannot be read by this version: {error!r}") from error
    return [
        RestoreMark(task=task, model=model, group=group, window=number, backup_time=saved.backup_time)
        for task, model, group, number in numbers
    ]


def tasks_as_json(tasks: Mapping[str, TaskSection]) -> str:
    """Return the configuration of tasks as JSON. Sources are left out, because they may contain passwords."""
    return _config(tasks).model_dump_json(include={"tasks"})


def _config(tasks: Mapping[str, TaskSection]) -> Config:
    return Config.model_construct(tasks=dict(tasks))


def _whole_tasks(saved: Saved) -> dict[str, str]:
    """Return the kind of each saved task whose models share their windows."""
    kinds = {entry.piece: kind for kind, entry in WHOLE_TASKS.items()}
    pieces = [name.partition("/") for name in saved.parts]
    return {task: kinds[piece] for piece, _, task in pieces if piece in kinds}


def tasks_of(saved: Saved) -> dict[str, Task]:
    """Return the saved configuration of each task whose models give scores, by name; {} in a new store.

    Raises
    ------
    StoreError
        The configuration was written in a format that this version does not read.
    """
    if not saved.config:
        return {}
    try:
        return Config.model_validate_json(saved.config).scored_tasks
    except ValidationError as error:
        raise StoreError(
            f"the configuration in the store cannot be read by this version ({error.error_count()} "
            "problems); move the store away to start afresh, or run the version that wrote it"
        ) from error


def _why_without_state(name: str, before: Task, settings: EngineSettings, saved: Saved) -> str:
    """Return the reason why a task cannot continue from its saved state; "" if it can."""
    now = settings.scored_tasks.get(name)
    if now is None:
        return "it is not configured any more"
    if _layout(before) != _layout(now):
        return "its kind, classes, groups, features or quantiles changed"
    if not isinstance(now, Regression):
        return ""
    known = saved.parts.get(f"task/{name}", {}).get("join", {}).get("tolerance")
    tolerance = rule_of(name, settings.references.get(name, {})).tolerance
    if known is None or Tolerance(*known) == tolerance:
        return ""
    return f"its {Tolerance(*known)} changed to {tolerance}"


def _has_another_reference(name: str, settings: EngineSettings, saved: Saved) -> bool:
    """Return whether the confidences of a regression task follow from other rows than those in the store."""
    if not isinstance(settings.tasks[name], Regression) or not settings.references.get(name):
        return False
    known = saved.parts.get(f"task/{name}", {}).get("rule", "")
    return known not in ("", rule_of(name, settings.references[name]).fingerprint)


def _layout(task: Task) -> tuple[object, ...]:
    quantiles = task.quantiles if isinstance(task, Regression) else ()
    return task.kind, task.classes, task.positive, task.groups, task.features, quantiles
