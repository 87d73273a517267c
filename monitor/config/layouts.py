"""The layouts of the configured tasks, which decoders need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from monitor.base.records import TaskLayout
from monitor.config.task import TaskSection


def layouts(
    tasks: Mapping[str, TaskSection], long_names: frozenset[str] = frozenset(), numbered: bool = False
) -> tuple[TaskLayout, ...]:
    """Return the layout of each task, which describes its records. See `TaskLayout` for the parameters."""
    return tuple(
        replace(task.layout, name=name, long_names=long_names, numbered=numbered)
        for name, task in tasks.items()
    )
