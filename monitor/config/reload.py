"""The effect of a changed configuration: none, a new baseline, or a restart.

On SIGHUP, the agent reads its configuration again. The table `CONSEQUENCES` has the effect of a change of
each key. A test checks that no key is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from monitor.config.messages import show_path
from monitor.config.root import Config


class Consequence(StrEnum):
    """The effect of a changed key."""

    AT_ONCE = "at once"
    NEW_BASELINE = "new baseline"
    RESTART = "restart"


CONSEQUENCES: Mapping[str, Consequence] = {
    "tasks.*.estimators": Consequence.AT_ONCE,
    "tasks.*.level": Consequence.AT_ONCE,
    "tasks.*.windows": Consequence.AT_ONCE,
    "tasks.*.reference_model": Consequence.AT_ONCE,
    "tasks.*.max_models": Consequence.AT_ONCE,
    "tasks.*.interval": Consequence.AT_ONCE,
    "tasks.*.objective": Consequence.AT_ONCE,
    "tasks.*.labels": Consequence.AT_ONCE,
    "tasks.*.ssme": Consequence.AT_ONCE,
    "tasks.*.max_series": Consequence.AT_ONCE,
    "tasks.*.models.*.answers_per_day": Consequence.AT_ONCE,
    "tasks.*.unit": Consequence.AT_ONCE,
    "tasks.*.window": Consequence.NEW_BASELINE,
    "tasks.*.reference": Consequence.NEW_BASELINE,
    "tasks.*.calibration.refit_labels": Consequence.AT_ONCE,
    "tasks.*.calibration": Consequence.NEW_BASELINE,
    "tasks.*.chart": Consequence.NEW_BASELINE,
    "tasks.*.chart.features": Consequence.AT_ONCE,
    "tasks.*.chart.shared": Consequence.AT_ONCE,
    # The chart of a metric that was not estimated before has no baseline.
    "tasks.*.metrics": Consequence.NEW_BASELINE,
    "tasks.*.error_metrics": Consequence.NEW_BASELINE,
    "tasks.*.average": Consequence.NEW_BASELINE,
    # These keys determine the layout of the columns; buffered and joined rows have the old layout.
    "tasks.*.classes": Consequence.RESTART,
    "tasks.*.positive": Consequence.RESTART,
    "tasks.*.groups": Consequence.RESTART,
    "tasks.*.features": Consequence.RESTART,
    # Labels that were joined counted as right or wrong by the old tolerance.
    "tasks.*.tolerance": Consequence.RESTART,
    "tasks.*.relative_tolerance": Consequence.RESTART,
    "tasks.*.quantiles": Consequence.RESTART,
    "tasks.*.models.*": Consequence.RESTART,
    "tasks.*": Consequence.RESTART,
    # These keys concern open files and sockets.
    "sources": Consequence.RESTART,
    "decoders": Consequence.RESTART,
    "reports": Consequence.RESTART,
    "rejects": Consequence.RESTART,
    "store": Consequence.RESTART,
    "alertmanager": Consequence.RESTART,
    "export": Consequence.RESTART,
}
"""The effect of a change at or below each key. The longest matching key applies."""


@dataclass(frozen=True, slots=True)
class ReloadPlan:
    """The paths of the changed keys, by the effect of the change.

    Parameters
    ----------
    at_once : tuple of str
        Changes that apply from the next window on.
    new_baseline : tuple of str
        Changes that close the open windows; the models of the task begin a new baseline.
    restart : tuple of str
        Changes that need a restart of the agent.
    fresh_tasks : frozenset of str
        The names of the tasks in `new_baseline`. The names are listed separately, because a name in a path
        may contain dots and brackets.
    """

    at_once: tuple[str, ...]
    new_baseline: tuple[str, ...]
    restart: tuple[str, ...]
    fresh_tasks: frozenset[str] = frozenset()

    @property
    def changes(self) -> bool:
        """True if at least one key changed."""
        return bool(self.at_once or self.new_baseline or self.restart)


def classify(old: Config, new: Config) -> ReloadPlan:
    """Return the effects of the differences between two configurations.

    Only values are compared. If a default value is written into the file, nothing has changed. A new or
    removed task is one change, with the path of the task. All changes of the sources together are one change.

    Examples
    --------
    >>> old = Config(tasks={"spam": {"level": 0.95}})
    >>> new = Config(tasks={"spam": {"level": 0.9, "window": {"size": 200}}, "ham": {}})
    >>> plan = classify(old, new)
    >>> plan.at_once, plan.new_baseline, plan.restart
    (('tasks.spam.level',), ('tasks.spam.window.size',), ('tasks.ham',))
    """
    paths: dict[Consequence, list[tuple[str, ...]]] = {each: [] for each in Consequence}
    for path in _changed((), old.model_dump(), new.model_dump()):
        paths[consequence(path)].append(path)
    return ReloadPlan(
        at_once=tuple(map(show_path, paths[Consequence.AT_ONCE])),
        new_baseline=tuple(map(show_path, paths[Consequence.NEW_BASELINE])),
        restart=tuple(map(show_path, paths[Consequence.RESTART])),
        fresh_tasks=frozenset(path[1] for path in paths[Consequence.NEW_BASELINE]),
    )


def consequence(path: tuple[str, ...]) -> Consequence:
    """Return the effect of a change of the key at `path`.

    Raise KeyError if `CONSEQUENCES` has no entry for this key.

    Examples
    --------
    >>> consequence(("tasks", "spam", "chart", "rules")).value
    'new baseline'
    """
    for length in range(len(path), 0, -1):
        for pattern, effect in CONSEQUENCES.items():
            parts = pattern.split(".")
            if len(parts) == length and all(
                part in ("*", key) for part, key in zip(parts, path, strict=False)
            ):
                return effect
    raise KeyError(show_path(path))


_OF_A_TASK = 2  # the length of the path of a task


def _changed(path: tuple[str, ...], old: Any, new: Any) -> Iterator[tuple[str, ...]]:
    if not isinstance(old, dict) or not isinstance(new, dict):
        if old != new:
            yield path
        return
    if path[:1] == ("tasks",) and old.get("kind") != new.get("kind") and len(path) == _OF_A_TASK:
        yield (*path, "kind")  # the two kinds of tasks have different keys
        return
    for key in [*old, *(key for key in new if key not in old)]:
        if key in old and key in new:
            yield from _changed((*path, key), old[key], new[key])
        else:
            yield (*path, key)
