"""The trial of references and charts before the start, without tasks that passed at an earlier start.

The trial shows that each reference can be calibrated and that each chart can be computed.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from monitor import __version__
from monitor.base.errors import ConfigError
from monitor.cli.check.calibrations import refuse_one_class
from monitor.config.root import Config, Task
from monitor.engine.reference import FEWEST_WINDOWS, Reference, refuse_reversed_classes
from monitor.engine.series import SeriesSettings

log = logging.getLogger("blindsight")

FILE = "references.json"
"""The name of the cache in the store's folder."""

Stamp = tuple[int, int] | None
"""Time of a file's last change in nanoseconds, and its size in bytes; None if it cannot be examined."""


def reference_stamps(config: Config) -> dict[str, Stamp]:
    """Return the stamp of each task's reference file; a changed stamp means a changed reference."""
    paths = {name: task.reference.path for name, task in config.scored_tasks.items()}
    return {name: _stamp(path) for name, path in paths.items() if path is not None}


def _stamp(path: str) -> Stamp:
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


class Tried:
    """The tasks that passed the trial without a warning, with the same configuration, reference and version.

    The trial of a model takes a fifth of a second for 10,000 rows, and a restart must not repeat it for a
    hundred models. The class is a cache: if its file cannot be read or written, every task is tried.

    Parameters
    ----------
    config : Config
        The configuration. The constructor records the stamps of the reference files before the files are
        read, so that a file that changes meanwhile counts as changed at the next start.
    """

    def __init__(self, config: Config) -> None:
        self._file = Path(config.store.path) / FILE if config.store and config.store.path else None
        self._digests = {
            name: _digest(config.scored_tasks[name].model_dump_json(), stamp)
            for name, stamp in reference_stamps(config).items()
            if stamp is not None
        }
        self._known: Mapping[str, str] = self._read()
        self._good: set[str] = set()

    def knows(self, task: str) -> bool:
        """Return whether a task has passed the trial."""
        known = task in self._digests and self._known.get(task) == self._digests[task]
        if known:
            self._good.add(task)
        return known

    def note(self, task: str) -> None:
        """Record that a task has passed the trial."""
        self._good.add(task)

    def save(self) -> None:
        """Write the passed tasks to the store's folder, if the folder exists."""
        passed = {name: digest for name, digest in self._digests.items() if name in self._good}
        if self._file is None or passed == self._known:
            return
        draft = self._file.with_suffix(".new")
        with suppress(OSError):
            draft.write_text(json.dumps(passed), encoding="utf-8")
            draft.replace(self._file)

    def _read(self) -> Mapping[str, str]:
        if self._file is None:
            return {}
        try:
            passed = json.loads(self._file.read_bytes())
        except (OSError, ValueError):
            return {}
        return passed if isinstance(passed, dict) else {}


def _digest(task: str, stamp: tuple[int, int]) -> str:
    return hashlib.sha256(json.dumps([__version__, task, stamp]).encode()).hexdigest()


def try_references(
    tasks: Mapping[str, Task], references: Mapping[str, Mapping[str, Reference]], tried: Tried | None = None
) -> None:
    """Build each model's series from its reference, as the engine does when the model first appears.

    Parameters
    ----------
    tasks : mapping of str to Task
    references : mapping of str to mapping of str to Reference
        The references by task and model.
    tried : Tried, optional
        The tasks that are not tried again; tasks that pass now are recorded in it.

    Raises
    ------
    ConfigError
        A reference does not allow its calibration, or has two classes in the wrong order; or a chart cannot
        reach its rate of false alarms.
    """
    for name, task in tasks.items():
        if tried is not None and tried.knows(name):
            continue
        known = references.get(name, {}).items()
        warnings = [_try_model(name, task, model, reference) for model, reference in known]
        if tried is not None and not any(warnings):
            tried.note(name)


def window_sds(
    tasks: Mapping[str, Task], references: Mapping[str, Mapping[str, Reference]]
) -> dict[str, dict[str, dict[str, float]]]:
    """Return the standard deviations over windows of each reference (`Judge.window_sds`).

    The keys of the mappings are the task, the model and the metric.

    The references must have passed `try_references`.
    """
    return {
        name: {
            model: SeriesSettings(name, model, "", tasks[name]).build(reference).window_sds()
            for model, reference in models.items()
        }
        for name, models in references.items()
    }


def _try_model(name: str, task: Task, model: str, reference: Reference) -> bool:
    """Return whether the trial of a model logged a warning."""
    charted = FEWEST_WINDOWS * task.window.size  # groups with fewer rows have no chart to try
    groups = [group for group, rows in reference.groups.items() if len(rows) >= charted]
    refuse_one_class(name, task, model, reference)
    refuse_reversed_classes(name, task.classes, model, reference)
    series = [SeriesSettings(name, model, group, task) for group in ("", *groups)]
    return sum(_try_series(each, reference) for each in series) > 0  # not any(): each may log a warning


def _try_series(settings: SeriesSettings, reference: Reference) -> bool:
    """Return whether the trial of a series logged a warning."""
    try:
        trial = settings.build(reference)
    except (ValueError, ConfigError) as error:
        name = " ".join(filter(None, ("model", settings.model, settings.group)))
        raise ConfigError(f"tasks.{settings.task_name}.reference, {name}: {error}") from error
    if trial.without_baseline:
        log.warning(
            "tasks.%s.reference, %s %s: %s. Its charts wait for the stream's first %d windows.",
            settings.task_name,
            settings.model,
            settings.group,
            trial.without_baseline,
            settings.judge.baseline_windows,
        )
    return bool(trial.without_baseline)
