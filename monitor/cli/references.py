"""The labelled references that the configuration names."""

from __future__ import annotations

from collections.abc import Mapping

from connectors.formats.files.reference import read_reference
from monitor.base.errors import ConfigError
from monitor.config.layouts import layouts
from monitor.config.root import Config
from monitor.engine.reference import Reference, split_by_model


def read_references(config: Config) -> Mapping[str, Mapping[str, Reference]]:
    """The references of every task that names a file, by task and model.

    Raises
    ------
    ConfigError
        A file cannot be read, a row of it cannot be used, or it holds no labelled row.
    """
    found: dict[str, Mapping[str, Reference]] = {}
    for layout in layouts(config.scored_tasks):
        path = config.scored_tasks[layout.name].reference.path
        if path is None:
            continue
        found[layout.name] = split_by_model(read_reference(path, layout))
        if not found[layout.name]:
            raise ConfigError(
                f"tasks.{layout.name}.reference.path: {path} holds no labelled answer; "
                "each line needs `label` beside `model` and `scores`"
            )
    return found
