"""A record of the tasks whose references passed their trial at an earlier start, to skip it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from monitor import __version__
from monitor.config.root import Config

FILE = "references.json"
"""The name of the cache in the store's folder."""

Stamp = tuple[int, int] | None
"""Time of a file's last change in nanoseconds, and its size in bytes; None if it cannot be examined."""


def reference_stamps(config: Config) -> dict[str, Stamp]:
    """Return the modification time and size of each task's reference file, to detect changes."""
    paths = {name: task.reference.path for name, task in config.scored_tasks.items()}
    return {name: _stamp(path) for name, path in paths.items() if path is not None}


def _stamp(path: str) -> Stamp:
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


class Tried:
    """A cache of the tasks that passed their trial without a warning.

    An entry is valid while the task's configuration, its reference and the program's version are unchanged.
    The trial of a model takes a fifth of a second for 10,000 rows, and a restart should not repeat it for a
    hundred models. If the file of the cache cannot be read or written, every task is tried.

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
        """Return whether a task passed the trial at an earlier start and has not changed since."""
        known = task in self._digests and self._known.get(task) == self._digests[task]
        if known:
            self._good.add(task)
        return known

    def note(self, task: str) -> None:
        """Record that the references of a task have passed their trial."""
        self._good.add(task)

    def save(self) -> None:
        """Write the tasks that passed to the store's folder, if the folder exists."""
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
