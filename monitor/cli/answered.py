"""The answers and labels in the files of `blindsight labels ask`.

The files are read twice: first for all answers and labels, then for the ids of the selected answers as text.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from connectors.files import FileSource, is_pipe, why_not_a_file
from connectors.formats.decode.decoder import Decoder
from connectors.formats.decode.names import holds, id_at
from connectors.formats.wires.choice import wire_for
from monitor.agent.rebaseline import not_there
from monitor.base.errors import ConfigError
from monitor.base.records import NO_ID, Batch, Ints, Keys, LabelBatch
from monitor.base.source import EndOfSource, Raw
from monitor.cli.check.calibrations import References
from monitor.cli.trial import read_references
from monitor.config.file import load_config
from monitor.config.layouts import layouts
from monitor.config.root import Config, Task
from monitor.engine.calibration import ActiveCalibration
from monitor.engine.reference import Reference
from monitor.reports.statements import count

_READ_SECONDS = 0.2  # never waited for, because a file is always ready
_ANY = ""  # stands for all models that answered with the label's id

Columns = dict[str, list[np.ndarray]]
Place = tuple[int, int, int]
"""The place of an answer: the index of its file, its position in the file, and the key of its id."""


def read_inputs(
    path: str, files: Sequence[Path], n: int, task: str, seed: int
) -> tuple[Config, References, Answered]:
    """Check the settings, and return the configuration, its references and the contents of the files.

    Raises
    ------
    ConfigError
        A setting, the configuration or a file cannot be used.
    SourceError
        A file is damaged.
    """
    if n < 1:
        raise ConfigError(
            f"-n: expected at least 1 label, got {n}; give the number of labels that you can make"
        )
    if seed < 0:
        raise ConfigError(f"--seed: expected a whole number from 0, got {seed}")
    config = load_config(path)
    _refuse_whole_tasks(config, task)
    if task and task not in config.scored_tasks:
        raise ConfigError(f"--{not_there('task', task, list(config.scored_tasks))}")
    _check(files)
    references = read_references(config)
    return config, references, _read(config, references, files)


def _refuse_whole_tasks(config: Config, task: str) -> None:
    if task in config.tasks and task not in config.scored_tasks:
        raise ConfigError(f"--task: {task!r} is an arena, and comparisons are not drawn; name another task")
    if not config.scored_tasks:
        raise ConfigError(
            "tasks: there are only arenas, and comparisons are not drawn; give one with other tasks"
        )


_NONE: Keys = np.zeros(0, dtype=np.uint64)


@dataclass(slots=True)
class Answered:
    """The content of the read files: answers by model, keys of labelled ids, and unusable records."""

    answers: dict[tuple[str, str], Columns] = field(default_factory=lambda: defaultdict(_columns))
    labelled: dict[tuple[str, str], list[Keys]] = field(default_factory=lambda: defaultdict(list))
    rejected: int = 0
    without_id: int = 0

    def add(self, batch: Batch, file: int) -> None:
        """Add the answers of a batch from one file, and the keys of the answers that have a label.

        If labels say whether one model was right, the label of an answer applies only to the model of the
        answer. Otherwise it applies to every model that answered with the same id.
        """
        self.without_id += int((batch.key == NO_ID).sum())
        for code, model in enumerate(batch.models):
            here = (batch.model == code) & (batch.key != NO_ID)
            known = here & (batch.label >= 0)
            if known.any():
                self.labelled[batch.task, _ANY if batch.labels_are_general else model].append(
                    batch.key[known]
                )
            if not here.any():
                continue
            into = self.answers[batch.task, model]
            for name in ("scores", "predicted", "numbers", "time", "key", "position"):
                into[name].append(getattr(batch, name)[here])
            into["file"].append(np.full(int(here.sum()), file))

    def add_labels(self, labels: LabelBatch) -> None:
        """Add the keys of the ids in a batch of labels."""
        for code, model in ((-1, _ANY), *enumerate(labels.models)):
            self.labelled[labels.task, model].append(labels.key[labels.model == code])

    def answers_of(self, task: str, model: str) -> dict[str, np.ndarray]:
        """Return the columns of one model's answers, with only the first answer of each id."""
        columns = {name: np.concatenate(parts) for name, parts in self.answers[task, model].items()}
        first = np.sort(np.unique(columns["key"], return_index=True)[1])
        return {name: column[first] for name, column in columns.items()}

    def open_answers(self, task: str, model: str) -> dict[str, np.ndarray]:
        """Return the columns of one model's unlabelled answers, with only the first answer of each id."""
        columns = self.answers_of(task, model)
        known = [*self.labelled[task, _ANY], *self.labelled[task, model]]
        open_ = ~np.isin(columns["key"], np.concatenate([_NONE, *known]))
        return {name: column[open_] for name, column in columns.items()}

    def labelled_of(self, task: str) -> Keys:
        """Return the keys of all labelled ids of a task."""
        parts = (keys for (name, _), of_model in self.labelled.items() if name == task for keys in of_model)
        return np.concatenate([_NONE, *parts])


def _columns() -> Columns:
    return defaultdict(list)


def left_out(pool: Answered) -> Iterator[str]:
    """Yield a sentence on each kind of record that cannot be selected."""
    if pool.without_id:
        yield f"{count(pool.without_id, 'answer')} without an id left out: no label can reach them."
    if pool.rejected:
        yield f"{count(pool.rejected, 'record')} could not be used; `blindsight replay` says why."


def matching_models(pool: Answered, task: str, model: str) -> list[tuple[str, str]]:
    """Return the pairs of task and model that match the options. The option ``""`` matches all.

    Raises
    ------
    ConfigError
        The files have answers, but no answer of this task and model.
    """
    pairs = sorted(each for each in pool.answers if task in ("", each[0]))
    models = sorted({name for _, name in pairs})
    if model and models and model not in models:
        raise ConfigError(f"--{not_there('model', model, models)}")
    return [each for each in pairs if model in ("", each[1])]


def active_calibration(name: str, task: Task, model: str, reference: Reference | None) -> ActiveCalibration:
    """Return the calibration of a model, fitted on its reference.

    Raises
    ------
    ConfigError
        The reference is not suitable for a calibration.
    """
    try:
        return ActiveCalibration.at_start(task, reference, 0)
    except ValueError as error:
        raise ConfigError(f"tasks.{name}.reference, model {model}: {error}") from error


def texts_of(
    config: Config, files: Sequence[Path], file: Ints, position: Ints, key: Keys
) -> dict[Place, str]:
    """Read the files again, and return the ids of answers as text, by place.

    Parameters
    ----------
    config : Config
    files : sequence of Path
    file, position : (m,) int64
        Number of the file of each answer, and position in the file.
    key : (m,) uint64
        Key of each answer's id.

    Raises
    ------
    ConfigError
        A file has changed since the first reading, or a record's id is not a single text.
    """
    ids: dict[Place, str] = {}
    places = list(zip(file.tolist(), position.tolist(), key.tolist(), strict=True))
    for number, path in enumerate(files):
        in_file = sorted({(at, own) for of, at, own in places if of == number})
        for at, own, text in _ids_at(config, path, in_file):
            ids[number, at, own] = text
    return ids


def _ids_at(config: Config, path: Path, wanted: list[tuple[int, int]]) -> Iterator[tuple[int, int, str]]:
    left = list(reversed(wanted))
    wire = wire_for(config, str(path))
    for raws in _raws(config, path) if wanted else ():
        for raw in raws:
            while left and holds(raw, left[-1][0]):
                position, key = left.pop()
                text = id_at(raw, position, key, wire)
                if text is None:
                    raise ConfigError(
                        f"{path}: the record at {position:,} does not have its id as one text, which "
                        "`labels ask` needs"
                    )
                yield position, key, text
    if left:
        raise ConfigError(f"{path}: it changed while it was read; run it again on a file that stays")


def _check(files: Sequence[Path]) -> None:
    for path in files:
        problem = why_not_a_file(path)
        if problem is not None:
            raise ConfigError(problem)
        if is_pipe(path):
            raise ConfigError(f"{path}: it is a pipe, and is to be read twice; write it to a file first")


def _read(config: Config, references: References, files: Sequence[Path]) -> Answered:
    """Return the contents of the files; the scores of answers are those on which calibrations are fitted."""
    pool = Answered()
    for number, path in enumerate(files):
        wire = wire_for(config, str(path))
        decoder = Decoder(layouts(config.tasks), str(path), wire=wire)
        for raws in _raws(config, path):
            chunk = decoder.decode(raws)
            pool.rejected += chunk.rejected
            for batch in chunk.batches:
                if batch.task not in config.scored_tasks:
                    continue  # a whole task, which has no labels by model
                known = next(iter(references.get(batch.task, {}).values()), None)
                pool.add(batch if known is None else known.scored(batch), number)
            for labels in chunk.labels:
                pool.add_labels(labels)
    return pool


def _raws(config: Config, path: Path) -> Iterator[Sequence[Raw]]:
    source = FileSource(path, mapped=wire_for(config, str(path)).columns)
    source.open({})
    try:
        with suppress(EndOfSource):
            while True:
                yield source.read(_READ_SECONDS)
    finally:
        source.close()
