"""Tries what references and charts must carry before the start, unless a store's agent has already."""

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
"""In the store's folder."""

Stamp = tuple[int, int] | None
"""When a file was last changed, in nanoseconds, and its bytes; None where it cannot be looked at."""


def reference_stamps(config: Config) -> dict[str, Stamp]:
    """By task that has one, what its reference file looks like: another stamp is another reference."""
    paths = {name: task.reference.path for name, task in config.scored_tasks.items()}
    return {name: _stamp(path) for name, path in paths.items() if path is not None}


def _stamp(path: str) -> Stamp:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


class Tried:
    """Which tasks were tried with just this configuration and file, by this version, and without a warning.

    To try a model's reference is to calibrate on it and to draw its charts, a fifth of a second for 10,000
    rows; a restart must not pay that for each of a hundred models. It is a cache: where the file is missing
    or cannot be read or written, all is tried.

    Parameters
    ----------
    config : Config
        Its reference files are looked at now, before they are read: one that changes meanwhile counts as
        another at the next start.
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
        """Whether it need not be tried again."""
        known = task in self._digests and self._known.get(task) == self._digests[task]
        if known:
            self._good.add(task)
        return known

    def note(self, task: str) -> None:
        """Remember that nothing is wrong with it."""
        self._good.add(task)

    def save(self) -> None:
        """Write what is known to the store's folder, once that is there."""
        found = {name: digest for name, digest in self._digests.items() if name in self._good}
        if self._file is None or found == self._known:
            return
        draft = self._file.with_suffix(".new")
        with suppress(OSError):
            draft.write_text(json.dumps(found), encoding="utf-8")
            draft.replace(self._file)

    def _read(self) -> Mapping[str, str]:
        if self._file is None:
            return {}
        try:
            found = json.loads(self._file.read_bytes())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}


def _digest(task: str, stamp: tuple[int, int]) -> str:
    return hashlib.sha256(json.dumps([__version__, task, stamp]).encode()).hexdigest()


def try_references(
    tasks: Mapping[str, Task], references: Mapping[str, Mapping[str, Reference]], tried: Tried | None = None
) -> None:
    """Do what the engine would otherwise do as models appear.

    Parameters
    ----------
    tasks : mapping of str to Task
    references : mapping of str to mapping of str to Reference
        By task and model.
    tried : Tried, optional
        Tells which tasks need not be tried, and hears which are good.

    Raises
    ------
    ConfigError
        A reference cannot carry its calibration, or says that two classes are the wrong way round; a chart
        cannot keep its promise.
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
    """How much windows of each model vary in the reference, by task, model and metric: `Judge.window_sds`.

    Of references that `try_references` has tried.
    """
    return {
        name: {
            model: SeriesSettings(name, model, "", tasks[name]).build(reference).window_sds()
            for model, reference in models.items()
        }
        for name, models in references.items()
    }


def _try_model(name: str, task: Task, model: str, reference: Reference) -> bool:
    """Whether something was warned of."""
    charted = FEWEST_WINDOWS * task.window.size  # groups with fewer rows have no chart to try
    groups = [group for group, rows in reference.groups.items() if len(rows) >= charted]
    refuse_one_class(name, task, model, reference)
    refuse_reversed_classes(name, task.classes, model, reference)
    series = [SeriesSettings(name, model, group, task) for group in ("", *groups)]
    return sum(_try_series(each, reference) for each in series) > 0  # each of them is warned of


def _try_series(settings: SeriesSettings, reference: Reference) -> bool:
    """Whether something was warned of."""
    try:
        built = settings.build(reference)
    except (ValueError, ConfigError) as error:
        who = " ".join(filter(None, ("model", settings.model, settings.group)))
        raise ConfigError(f"tasks.{settings.task_name}.reference, {who}: {error}") from error
    if built.without_baseline:
        log.warning(
            "tasks.%s.reference, %s %s: %s. Its charts wait for the stream's first %d windows.",
            settings.task_name,
            settings.model,
            settings.group,
            built.without_baseline,
            settings.judge.baseline_windows,
        )
    return bool(built.without_baseline)
