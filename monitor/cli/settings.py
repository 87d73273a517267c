"""The input of a configuration's engine: its sections, and their labelled references.

The engine, and what it computes with, is imported only where a reference has to be read or an engine built.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from monitor.base.errors import ConfigError
from monitor.base.registry import ESTIMATORS
from monitor.cli.check.calibrations import References
from monitor.cli.check.check import check
from monitor.config.layouts import layouts
from monitor.config.root import Config
from monitor.config.task import Task

if TYPE_CHECKING:
    from monitor.cli.tried import Tried
    from monitor.engine.engine import EngineSettings
    from monitor.engine.reference import Reference


def read_references(config: Config, only: Callable[[Task], bool] = lambda task: True) -> References:
    """The references of every task that names a file, by task and model; or of some tasks.

    Raises
    ------
    ConfigError
        A file cannot be read, a row of it cannot be used, or it holds no labelled row.
    """
    tasks = config.scored_tasks
    named = {name: task for name, task in tasks.items() if task.reference.path is not None and only(task)}
    if not named:
        return {}
    from connectors.formats.files.reference import read_reference
    from monitor.engine.reference import split_by_model

    found: dict[str, Mapping[str, Reference]] = {}
    for layout in layouts(named):
        path = named[layout.name].reference.path
        assert path is not None
        found[layout.name] = split_by_model(read_reference(path, layout))
        if not found[layout.name]:
            raise ConfigError(
                f"tasks.{layout.name}.reference.path: {path} has no labelled answer; each line needs "
                "`label` in addition to `model` and `scores`"
            )
    return found


def refuse_missing_extras(config: Config) -> None:
    """Refuse estimators whose extra is not installed.

    Raises
    ------
    MissingExtraError
    """
    for name, task in config.scored_tasks.items():
        for tag in task.estimators:
            if (extra := ESTIMATORS[tag].extra) is not None:
                extra.require(f"tasks.{name}.estimators: {tag}")


def engine_settings(
    config: Config,
    event_time: bool = False,
    in_flow: bool = False,
    tried: Tried | None = None,
    references: References | None = None,
) -> EngineSettings:
    """What the engine of a configuration is built from, its references read, unless they are given.

    Everything is tried here that the engine would otherwise do as models appear: what a reference or a
    chart cannot carry must be known before the start, and not stop the agent when the first answer comes;
    but for what `tried` knows.

    Raises
    ------
    ConfigError
        A reference cannot be used, cannot carry its calibration, or says that two classes are the wrong
        way round; a chart cannot keep its promise.
    MissingExtraError
        An estimator needs an extra that is not installed.
    """
    from monitor.engine.engine import EngineSettings

    references = tried_references(config, tried, references)
    if not (event_time or in_flow):
        return EngineSettings(
            config.scored_tasks, references, arenas=config.arenas, numbered=config.numbers_rows
        )
    # A replay must give the same bytes, however fast it goes.
    from monitor.engine.refit.fit import refit
    from monitor.engine.refit.recalibration import recalibrate

    inline = event_time, refit, recalibrate
    return EngineSettings(
        config.scored_tasks, references, *inline, config.arenas, numbered=config.numbers_rows
    )


def tried_references(
    config: Config, tried: Tried | None = None, references: References | None = None
) -> References:
    """The references; what the engine could not use is refused as `engine_settings` says."""
    refuse_missing_extras(config)
    references = read_references(config) if references is None else references
    if references:
        from monitor.cli.tried import try_references

        try_references(config.scored_tasks, references, tried)
    check(config, reference_windows(config, references))
    return references


def reference_windows(config: Config, references: References) -> dict[str, dict[str, int]]:
    """Windows in each task's reference file, by model."""
    return {
        name: {
            model: len(reference.labels) // config.scored_tasks[name].window.size
            for model, reference in models.items()
        }
        for name, models in references.items()
    }
