"""The settings of a configuration's engine: its sections, and their labelled references.

The engine and its algorithms are imported only when a reference is read or an engine is built.
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
    """Read the reference files of tasks, and return the references by task and model.

    Parameters
    ----------
    config : Config
    only : callable
        Whether to read the reference of a task; by default every task that names a file is read.

    Raises
    ------
    ConfigError
        A file cannot be read, contains a row that cannot be used, or contains no labelled row.
    """
    tasks = config.scored_tasks
    named = {name: task for name, task in tasks.items() if task.reference.path is not None and only(task)}
    if not named:
        return {}
    from connectors.formats.files.reference import read_reference
    from monitor.engine.reference import split_by_model

    references: dict[str, Mapping[str, Reference]] = {}
    for layout in layouts(named):
        path = named[layout.name].reference.path
        assert path is not None
        references[layout.name] = split_by_model(read_reference(path, layout))
        if not references[layout.name]:
            raise ConfigError(
                f"tasks.{layout.name}.reference.path: {path} has no labelled answer; each line needs "
                "`label` in addition to `model` and `scores`"
            )
    return references


def refuse_missing_extras(config: Config) -> None:
    """Raise `MissingExtraError` if the extra of an estimator is not installed."""
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
    """Return the settings of a configuration's engine; references are read unless `references` has them.

    Everything that the engine would compute when a model first appears is tried here, except for tasks that
    `tried` knows. A reference or chart that cannot work is therefore an error at the start, and does not stop
    the agent later.

    Raises
    ------
    ConfigError
        A reference cannot be used, does not allow its calibration, or has two classes in the wrong order; or
        a chart cannot reach its rate of false alarms.
    MissingExtraError
        An estimator needs an extra that is not installed.
    """
    from monitor.engine.engine import EngineSettings

    references = tried_references(config, tried, references)
    if not (event_time or in_flow):
        return EngineSettings(config.tasks, references, numbered=config.numbers_rows)
    # Refits run in the engine, so that a replay gives the same bytes at any speed.
    from monitor.engine.refit.fit import refit
    from monitor.engine.refit.recalibration import recalibrate

    inline = event_time, refit, recalibrate
    return EngineSettings(config.tasks, references, *inline, numbered=config.numbers_rows)


def tried_references(
    config: Config, tried: Tried | None = None, references: References | None = None
) -> References:
    """Read and try the references, and return them; raise the same errors as `engine_settings`."""
    refuse_missing_extras(config)
    references = read_references(config) if references is None else references
    if references:
        from monitor.cli.tried import try_references

        try_references(config.scored_tasks, references, tried)
    check(config, reference_windows(config, references))
    return references


def reference_windows(config: Config, references: References) -> dict[str, dict[str, int]]:
    """Return the number of windows in each task's reference file, by task and model."""
    return {
        name: {
            model: len(reference.labels) // config.scored_tasks[name].window.size
            for model, reference in models.items()
        }
        for name, models in references.items()
    }
