"""The trial of a configuration before the start: of its labelled references and of its models' charts.

The engine and its algorithms are imported only when a reference is read or an engine is built.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from monitor.base.errors import ConfigError
from monitor.base.registry import ESTIMATORS, TASK_KINDS, load
from monitor.cli.check.calibrations import References, refuse_absent_features, refuse_one_class
from monitor.cli.check.check import check
from monitor.cli.tried import Tried
from monitor.config.layouts import layouts
from monitor.config.root import Config
from monitor.config.task import Task

if TYPE_CHECKING:
    from monitor.engine.engine import EngineSettings
    from monitor.engine.reference import Reference
    from monitor.engine.series import Series, SeriesSettings

log = logging.getLogger("blindsight")


def read_references(config: Config, only: Callable[[Task], bool] = lambda task: True) -> References:
    """Read the reference files of tasks, and return the references by task and model.

    Parameters
    ----------
    config : Config
    only : callable
        A function that returns whether to read the reference of a task. By default, every reference file is
        read.

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

    references: dict[str, Mapping[str, Reference]] = {}
    for layout in layouts(named):
        task = named[layout.name]
        path = task.reference.path
        assert path is not None
        batch = read_reference(path, layout)
        try:
            references[layout.name] = load(TASK_KINDS[task.kind].references)(batch, task)
        except ValueError as error:
            raise ConfigError(f"tasks.{layout.name}.reference.path: {path}: {error}") from error
        if not references[layout.name]:
            raise ConfigError(
                f"tasks.{layout.name}.reference.path: {path} has no labelled answer; each line needs "
                f"`label` in addition to `model` and `{layout.answer_field}`"
            )
    return references


def refuse_missing_extras(config: Config) -> None:
    """Raise `MissingExtraError` if an extra that an estimator needs is not installed."""
    for name, task in config.scored_tasks.items():
        for tag in task.estimators:
            if (extra := ESTIMATORS[tag].extra) is not None:
                extra.require(f"tasks.{name}.estimators: {tag}")


class ReferenceTrial:
    """The references of a configuration, read and tried by the constructor.

    The trial computes everything that the engine computes when a model first appears: the calibration and the
    charts. So a reference or chart that cannot work is an error at the start, and does not stop the agent
    later. The engine reuses the results.

    Parameters
    ----------
    config : Config
    tried : Tried, optional
        The tasks that passed an earlier trial. They are not tried again. Tasks that pass now are added.
    references : mapping of str to mapping of str to Reference, optional
        The references by task and model, instead of the files that the configuration names.

    Attributes
    ----------
    references : mapping of str to mapping of str to Reference
    report : CheckReport
        The forecast of the configuration with these references.

    Raises
    ------
    ConfigError
        A reference cannot be used, does not allow its calibration, or has two classes in the wrong order; or
        a chart cannot reach its rate of false alarms.
    MissingExtraError
        An estimator needs an extra that is not installed.
    """

    def __init__(
        self, config: Config, tried: Tried | None = None, references: References | None = None
    ) -> None:
        refuse_missing_extras(config)
        self._config = config
        self.references = read_references(config) if references is None else references
        tasks = config.scored_tasks
        windows = {
            name: {model: len(one.labels) // tasks[name].window.size for model, one in models.items()}
            for name, models in self.references.items()
        }
        self._window_sds: dict[str, dict[str, dict[str, float]]] = {}
        for name, models in self.references.items():
            if tried is None or not tried.knows(name):
                # A list and not any(): each model may log a warning.
                warned = [self._try_model(name, model, reference) for model, reference in models.items()]
                if tried is not None and not any(warned):
                    tried.note(name)
        self.report = check(config, windows, self._window_sds)

    def _try_model(self, name: str, model: str, reference: Reference) -> bool:
        """Build the series of a model and of its groups; return whether the trial logged a warning."""
        from monitor.engine.baselines import FEWEST_WINDOWS
        from monitor.engine.reference import refuse_reversed_classes
        from monitor.engine.series import SeriesSettings

        task = self._config.scored_tasks[name]
        charted = FEWEST_WINDOWS * task.window.size  # groups with fewer rows have no chart to try
        groups = [group for group, rows in reference.groups.items() if len(rows) >= charted]
        refuse_one_class(name, task, model, reference)
        refuse_reversed_classes(name, task.classes, model, reference)
        refuse_absent_features(name, task, model, reference)
        warned = False
        for group in ("", *groups):
            series = _tried(SeriesSettings(name, model, group, task), reference)
            warned |= bool(series.without_baseline)
            if not group:
                self._window_sds.setdefault(name, {})[model] = series.window_sds()
        return warned

    def engine_settings(self, event_time: bool = False, in_flow: bool = False) -> EngineSettings:
        """Return the settings of the engine for the configuration.

        For `event_time`, see `EngineSettings`. If either argument is True, the engine itself runs refits.
        """
        from monitor.engine.engine import EngineSettings

        config = self._config
        if not (event_time or in_flow):
            return EngineSettings(config.tasks, self.references, numbered=config.numbers_rows)
        # Refits run in the engine, so that a replay gives the same bytes at any speed.
        from monitor.engine.refit.fit import refit
        from monitor.engine.refit.recalibration import recalibrate

        inline = event_time, refit, recalibrate
        return EngineSettings(config.tasks, self.references, *inline, numbered=config.numbers_rows)


def _tried(settings: SeriesSettings, reference: Reference) -> Series:
    """Build a series from its reference as the engine does, and log a warning if it gets no baseline."""
    try:
        series = settings.build(reference)
    except (ValueError, ConfigError) as error:
        name = " ".join(filter(None, ("model", settings.model, settings.group)))
        raise ConfigError(f"tasks.{settings.task_name}.reference, {name}: {error}") from error
    if series.without_baseline:
        log.warning(
            "tasks.%s.reference, %s %s: %s. Its charts wait for the stream's first %d windows.",
            settings.task_name,
            settings.model,
            settings.group,
            series.without_baseline,
            settings.judge.baseline_windows,
        )
    return series
