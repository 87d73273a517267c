"""The layouts of the configured tasks, which decoders need."""

from __future__ import annotations

from collections.abc import Mapping

from monitor.base.records import TaskLayout
from monitor.config.root import Task, TaskConfig


def layouts(
    tasks: Mapping[str, TaskConfig], long_names: frozenset[str] = frozenset(), numbered: bool = False
) -> tuple[TaskLayout, ...]:
    """Return the layout of each task; see `TaskLayout` for the parameters `long_names` and `numbered`."""
    return tuple(
        TaskLayout(
            name=name,
            classes=task.classes,
            positive=task.positive_index,
            models=tuple(task.models),
            groups=task.groups,
            long_names=long_names,
            numbered=numbered,
            features=tuple(task.features.items()),
        )
        if isinstance(task, Task)
        else TaskLayout(name=name, classes=(), models=task.models, arena=True, long_names=long_names)
        for name, task in tasks.items()
    )
