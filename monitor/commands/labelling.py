"""`blindsight labels ask`: which answers to have labelled next, and what that will bring."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from connectors.base import EndOfSource, Raw
from connectors.build import read_references
from connectors.files import FileSource, is_pipe, why_not_a_file
from connectors.formats.decoder import Decoder
from connectors.formats.record_ids import holds, id_at
from connectors.formats.wires import columns_of, wire_for
from monitor.calibration.base import confidence_of
from monitor.config import Config, Task
from monitor.configfile import load_config
from monitor.engine import layouts
from monitor.errors import ConfigError
from monitor.estimate import average_confidence
from monitor.estimate.predictive import predictive_interval
from monitor.export.reports import cannot_write
from monitor.forget import count
from monitor.inforce import InForce
from monitor.labels.asking import draw, expected_widths, inclusion_probabilities
from monitor.rebaseline import not_there
from monitor.records import NO_ID, Batch, Floats, Ints, Keys, LabelBatch
from monitor.reference import Reference
from monitor.report import rfc3339
from monitor.result import Estimate

_READ_SECONDS = 0.2  # a file is always ready
_ANY = ""  # a label of every model's answer

Columns = dict[str, list[np.ndarray]]


@dataclass(slots=True)
class _Pool:
    """What the files hold: answers by task and model, the keys labelled already, and what is no use."""

    answers: dict[tuple[str, str], Columns] = field(default_factory=lambda: defaultdict(_columns))
    labelled: dict[tuple[str, str], list[Keys]] = field(default_factory=lambda: defaultdict(list))
    rejected: int = 0
    without_id: int = 0

    def add(self, batch: Batch, file: int, by_model: bool) -> None:
        self.without_id += int((batch.key == NO_ID).sum())
        for code, model in enumerate(batch.models):
            here = (batch.model == code) & (batch.key != NO_ID)
            known = here & (batch.label >= 0)
            if known.any():
                self.labelled[batch.task, model if by_model else _ANY].append(batch.key[known])
            if not here.any():
                continue
            into = self.answers[batch.task, model]
            for name in ("scores", "predicted", "time", "key", "position"):
                into[name].append(getattr(batch, name)[here])
            into["file"].append(np.full(int(here.sum()), file))

    def add_labels(self, labels: LabelBatch) -> None:
        for code, model in ((-1, _ANY), *enumerate(labels.models)):
            self.labelled[labels.task, model].append(labels.key[labels.model == code])

    def open_answers(self, task: str, model: str) -> dict[str, np.ndarray]:
        """Those without a label, of each id the first."""
        columns = {name: np.concatenate(parts) for name, parts in self.answers[task, model].items()}
        first = np.zeros(len(columns["key"]), dtype=np.bool_)
        first[np.unique(columns["key"], return_index=True)[1]] = True
        for known in (*self.labelled[task, _ANY], *self.labelled[task, model]):
            first &= ~np.isin(columns["key"], known)
        return {name: column[first] for name, column in columns.items()}


def _columns() -> Columns:
    return defaultdict(list)


@dataclass(frozen=True, slots=True)
class _Asked:
    """The answers of one model that were drawn."""

    task: str
    model: str
    file: Ints
    position: Ints
    key: Keys
    time: Floats
    predicted: Ints
    confidence: Floats
    probability: Floats


def ask(
    path: str, files: Sequence[Path], n: int, task: str = "", model: str = "", seed: int = 0
) -> tuple[list[str], list[str]]:
    """Draw answers to be labelled, n of each model.

    Parameters
    ----------
    path : str
        The configuration, whose reference gives the calibration.
    files : sequence of Path
        Answers, and labels that are known already, whose answers are left out. They are read twice.
    n : int
        At least 1; where a model has no more answers, all of them.
    task, model : str
        Only this one; ``""`` for all.
    seed : int
        The same files, configuration and seed give the same lines.

    Returns
    -------
    (list of str, list of str)
        Label records as JSON, with `label` or `correct` to be filled in; a sentence a model, and what was
        left out.

    Raises
    ------
    ConfigError
        A setting, the configuration or a file cannot be used, or no answer is left to ask about.
    SourceError
        A file turned out to be damaged.
    """
    if n < 1:
        raise ConfigError(f"-n: expected at least 1 label, got {n}; say how many can be made")
    if seed < 0:
        raise ConfigError(f"--seed: expected a whole number from 0, got {seed}")
    config = load_config(path)
    if task and task not in config.tasks:
        raise ConfigError(f"--{not_there('task', task, list(config.tasks))}")
    _check(files)
    pool = _read(config, files)
    references = read_references(config)
    asked: list[_Asked] = []
    said: list[str] = []
    for number, (name, who) in enumerate(_chosen(pool, task, model)):
        rows = pool.open_answers(name, who)
        if len(rows["key"]):
            force = _in_force(name, config.tasks[name], who, references.get(name, {}).get(who))
            drawn, sentence = _drawn(name, who, config.tasks[name], force, rows, n, (seed, number))
            asked.append(drawn)
            said.append(sentence)
    if not asked:
        raise ConfigError(
            "FILE…: no answer in them has an id and no label yet; give files of predictions whose records "
            "have an id"
        )
    return _lines(config, files, asked), [*said, *_left_out(pool)]


def _left_out(pool: _Pool) -> Iterator[str]:
    if pool.without_id:
        yield f"{count(pool.without_id, 'answer')} without an id left out: no label can reach them."
    if pool.rejected:
        yield f"{count(pool.rejected, 'record')} could not be used; `blindsight replay` says why."


def _chosen(pool: _Pool, task: str, model: str) -> list[tuple[str, str]]:
    found = sorted(each for each in pool.answers if task in ("", each[0]))
    models = sorted({name for _, name in found})
    if model and models and model not in models:
        raise ConfigError(f"--{not_there('model', model, models)}")
    return [each for each in found if model in ("", each[1])]


def _in_force(name: str, task: Task, model: str, reference: Reference | None) -> InForce:
    try:
        return InForce.at_start(task, reference, 0)
    except ValueError as error:
        raise ConfigError(f"tasks.{name}.reference, model {model}: {error}") from error


def write(lines: Sequence[str], out: Path | None) -> None:
    """Print the lines, or write them to a new file.

    Raises
    ------
    ConfigError
        The file exists, or cannot be written.
    """
    if out is None:
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        return
    try:
        with out.open("x", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
    except FileExistsError as error:
        raise ConfigError(f"--out: {out} exists, and may hold labels; give another path") from error
    except OSError as error:
        raise ConfigError(f"--out: {cannot_write(str(out), error)}") from error


def _check(files: Sequence[Path]) -> None:
    for path in files:
        problem = why_not_a_file(path)
        if problem is not None:
            raise ConfigError(problem)
        if is_pipe(path):
            raise ConfigError(f"{path}: it is a pipe, and is to be read twice; write it to a file first")


def _read(config: Config, files: Sequence[Path]) -> _Pool:
    pool = _Pool()
    for number, path in enumerate(files):
        wire = wire_for(config, str(path))
        decoder = Decoder(layouts(config.tasks), str(path), wire=wire)
        for raws in _raws(config, path):
            chunk = decoder.decode(raws)
            pool.rejected += len(chunk.rejects)
            for batch in chunk.batches:
                pool.add(batch, number, by_model=not config.tasks[batch.task].classes)
            for labels in chunk.labels:
                pool.add_labels(labels)
    return pool


def _raws(config: Config, path: Path) -> Iterator[Sequence[Raw]]:
    source = FileSource(path, mapped=columns_of(wire_for(config, str(path))))
    source.open({})
    try:
        with suppress(EndOfSource):
            while True:
                yield source.read(_READ_SECONDS)
    finally:
        source.close()


def _drawn(
    name: str,
    model: str,
    task: Task,
    force: InForce,
    rows: dict[str, np.ndarray],
    n: int,
    seed: tuple[int, int],
) -> tuple[_Asked, str]:
    """The answers of one model, and what their labels will bring."""
    confidence = confidence_of(force.calibration.apply(rows["scores"]), rows["predicted"])
    probability = inclusion_probabilities(confidence, n)
    at = draw(probability, np.random.default_rng(seed))
    picked = {column: rows[column][at] for column in ("file", "position", "key", "time", "predicted")}
    asked = _Asked(name, model, confidence=confidence[at], probability=probability[at], **picked)
    widths = expected_widths(confidence, probability, task.level)
    free = (
        average_confidence(confidence, task.level)
        if force.predictive is None
        else predictive_interval(confidence, force.predictive, task.level)
    )
    without = f"{free.upper - free.lower:.3f}" if isinstance(free, Estimate) else "unknown"
    raw = (
        "" if force.view.version else " The confidences are not calibrated: all this is as right as they are."
    )
    return asked, (
        f"{name}, {model}: {len(at):,} of {len(confidence):,} answers. Expected width of the realised "
        f"accuracy's {task.level:.0%} interval: {widths.chosen:.3f} with these labels, {widths.even:.3f} "
        f"with as many drawn evenly; of the estimate without labels: {without}.{raw}"
    )


def _lines(config: Config, files: Sequence[Path], asked: Sequence[_Asked]) -> list[str]:
    """Label records, a model after the other in the order of the files; ids from a second reading."""
    ids: dict[tuple[int, int, int], str] = {}
    for number, path in enumerate(files):
        wanted = sorted(
            {
                (int(position), int(key))
                for each in asked
                for file, position, key in zip(each.file, each.position, each.key, strict=True)
                if file == number
            }
        )
        for position, key, text in _found(config, path, wanted):
            ids[number, position, key] = text
    return [
        json.dumps(record, ensure_ascii=False) for each in asked for record in _records(config, each, ids)
    ]


def _found(config: Config, path: Path, wanted: list[tuple[int, int]]) -> Iterator[tuple[int, int, str]]:
    left = list(reversed(wanted))
    for raws in _raws(config, path) if wanted else ():
        for raw in raws:
            while left and holds(raw, left[-1][0]):
                position, key = left.pop()
                text = id_at(raw, position, key)
                if text is None:
                    raise ConfigError(
                        f"{path}: the record at {position:,} does not hold its id as one text; `labels ask` "
                        "needs it so"
                    )
                yield position, key, text
    if left:
        raise ConfigError(f"{path}: it changed while it was read; run it again on a file that stays")


def _records(
    config: Config, asked: _Asked, ids: dict[tuple[int, int, int], str]
) -> Iterator[dict[str, object]]:
    classes = config.tasks[asked.task].classes
    for i in range(len(asked.key)):
        record: dict[str, object] = {
            "id": ids[int(asked.file[i]), int(asked.position[i]), int(asked.key[i])],
            "task": asked.task,
            "model": asked.model,
            "probability": float(asked.probability[i]),
        }
        if np.isfinite(asked.time[i]):
            record["answered"] = rfc3339(float(asked.time[i]))
        if classes:
            record["predicted"] = classes[int(asked.predicted[i])]
        record["calibrated_confidence"] = round(float(asked.confidence[i]), 6)
        record["label" if classes else "correct"] = None
        yield record
