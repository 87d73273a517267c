"""The agent's handler of `blindsight rebaseline`, which begins a new baseline for one metric."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from monitor.agent.requests import OperatorRequest
from monitor.base.errors import RequestError
from monitor.config.messages import nearest
from monitor.engine.engine import Engine
from monitor.engine.series import Series

KIND = "rebaseline"
_SHOWN = 5


class RebaselineRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request for a new baseline.

    Parameters
    ----------
    task : str
        The task; ``""`` for the only task of the agent.
    model, metric, reason : str
    group : str
        The group, such as ``region=eu``; ``""`` for the whole model.
    """

    model: str
    metric: str
    reason: str
    task: str = ""
    group: str = ""


def rebaseline(engine: Engine, request: OperatorRequest) -> str:
    """End a chart's alarm, begin a new baseline for it, and return a sentence that confirms this.

    Raises
    ------
    RequestError
        The request is incomplete, or names an unknown task, model, group or metric. The message suggests the
        closest known name.
    """
    try:
        body = msgspec.convert(request.body, RebaselineRequest)
    except msgspec.ValidationError as error:
        raise RequestError(f"the request is damaged: {error}; ask again with the command itself") from error
    if not body.reason.strip():
        raise RequestError("reason: it is empty; give the reason in a few words, for readers of the reports")
    series = _find(engine, body)
    metrics = series.settings.task.judged_metrics
    if body.metric not in metrics:
        raise RequestError(not_there("metric", body.metric, metrics))
    windows = series.rebaseline(body.metric, body.reason, request.time)
    who = ", ".join(filter(None, (series.settings.task_name, body.model, body.group, body.metric)))
    return f"{who}: the next {windows} windows complete its new baseline; its alarm is off."


def _find(engine: Engine, body: RebaselineRequest) -> Series:
    task = task_named(body.task, list(engine.series))
    series = engine.series[task]
    models = [each.settings.model for each in series if not each.settings.group]
    if body.model not in models:
        raise RequestError(not_there("model", body.model, models))
    groups = {each.settings.group: each for each in series if each.settings.model == body.model}
    if body.group not in groups:
        raise RequestError(not_there("group", body.group, [name for name in groups if name]))
    return groups[body.group]


def task_named(name: str, tasks: Sequence[str]) -> str:
    """Return the task with this name, or the only task if the name is empty.

    Raises
    ------
    RequestError
        There is no such task, or the name is empty and there are several tasks.

    Examples
    --------
    >>> task_named("", ["toxicity"])
    'toxicity'
    """
    if not name and len(tasks) == 1:
        return tasks[0]
    if not name:
        raise RequestError(f"task: there are several, say which: {', '.join(tasks)}")
    if name not in tasks:
        raise RequestError(not_there("task", name, tasks))
    return name


def not_there(what: str, name: str, names: Sequence[str]) -> str:
    """Return a message that a name is unknown. The message suggests the closest known name.

    Examples
    --------
    >>> not_there("metric", "acuracy", ["accuracy", "ece"])
    "metric: there is no 'acuracy'; did you mean 'accuracy'?"
    >>> not_there("model", "x", [])
    "model: there is no 'x'; none has answered yet"
    >>> not_there("task", "x", ["toxicity"])
    "task: there is no 'x'; there is only 'toxicity'"
    """
    meant = nearest(name, names)
    if meant:
        return f"{what}: there is no {name!r}; did you mean {meant!r}?"
    if not names:
        return f"{what}: there is no {name!r}; none has answered yet"
    if len(names) == 1:
        return f"{what}: there is no {name!r}; there is only {names[0]!r}"
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{what}: there is no {name!r}; there are {', '.join(map(repr, names[:_SHOWN]))}{more}"
