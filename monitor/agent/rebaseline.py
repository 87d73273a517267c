"""A new baseline for one metric of one model, at an operator's word: `blindsight rebaseline`."""

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
    """What a request for a new baseline says.

    Parameters
    ----------
    task : str
        ``""`` for the only one.
    model, metric, reason : str
    group : str
        ``""`` for the whole model, else ``region=eu``.
    """

    model: str
    metric: str
    reason: str
    task: str = ""
    group: str = ""


def rebaseline(engine: Engine, request: OperatorRequest) -> str:
    """Release the alarm of one chart and take its baseline anew; what was done, in a sentence.

    Raises
    ------
    RequestError
        The request lacks something, or names what is not there; the sentence has the nearest name.
    """
    try:
        asked = msgspec.convert(request.body, RebaselineRequest)
    except msgspec.ValidationError as error:
        raise RequestError(f"the request is damaged: {error}; ask again with the command itself") from error
    if not asked.reason.strip():
        raise RequestError("reason: it is empty; give the reason in a few words, for readers of the reports")
    series = _find(engine, asked)
    metrics = series.settings.task.metrics
    if asked.metric not in metrics:
        raise RequestError(not_there("metric", asked.metric, metrics))
    windows = series.rebaseline(asked.metric, asked.reason, request.time)
    who = ", ".join(filter(None, (series.settings.task_name, asked.model, asked.group, asked.metric)))
    return f"{who}: a new baseline begins with the next {windows} windows; its alarm is off."


def _find(engine: Engine, asked: RebaselineRequest) -> Series:
    task = task_named(asked.task, list(engine.series))
    found = engine.series[task]
    models = [each.settings.model for each in found if not each.settings.group]
    if asked.model not in models:
        raise RequestError(not_there("model", asked.model, models))
    groups = {each.settings.group: each for each in found if each.settings.model == asked.model}
    if asked.group not in groups:
        raise RequestError(not_there("group", asked.group, [name for name in groups if name]))
    return groups[asked.group]


def task_named(name: str, tasks: Sequence[str]) -> str:
    """The task of this name, or the only one where none is named.

    Raises
    ------
    RequestError
        There is none, or none is named and there are several.

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
    """A sentence about a name that is not there, with the nearest that is.

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
