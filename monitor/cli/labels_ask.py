"""`blindsight labels ask`: which answers to have labelled next, and what that will bring."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from monitor.base.errors import ConfigError
from monitor.base.records import Floats, Ints, Keys
from monitor.base.results import Estimate
from monitor.cli.answered import Place, active_calibration, chosen, left_out, opened, texts_of
from monitor.cli.settings import read_references
from monitor.config.root import Config, Task
from monitor.engine.calibration import ActiveCalibration
from monitor.export.sinks.line_file import cannot_write
from monitor.reports.window_report import rfc3339
from monitor.stats.calibration.base import confidence_of
from monitor.stats.estimate.average_confidence import average_confidence
from monitor.stats.estimate.predictive import predictive_interval
from monitor.stats.sampling.acquisition import draw, expected_widths, inclusion_probabilities


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
    config, pool = opened(path, files, n, task, seed)
    references = read_references(config)
    asked: list[_Asked] = []
    said: list[str] = []
    for number, (name, who) in enumerate(chosen(pool, task, model)):
        rows = pool.open_answers(name, who)
        if len(rows["key"]):
            active = active_calibration(
                name, config.scored_tasks[name], who, references.get(name, {}).get(who)
            )
            drawn, sentence = _drawn(name, who, config.scored_tasks[name], active, rows, n, (seed, number))
            asked.append(drawn)
            said.append(sentence)
    if not asked:
        raise ConfigError(
            "FILE…: no answer in them has an id and no label yet; give files of predictions whose records "
            "have an id"
        )
    return _lines(config, files, asked), [*said, *left_out(pool)]


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
        raise ConfigError(f"--out: {out} exists, and may contain labels; give another path") from error
    except OSError as error:
        raise ConfigError(f"--out: {cannot_write(str(out), error)}") from error


def _drawn(
    name: str,
    model: str,
    task: Task,
    active: ActiveCalibration,
    rows: dict[str, np.ndarray],
    n: int,
    seed: tuple[int, int],
) -> tuple[_Asked, str]:
    """The answers of one model, and what their labels will bring."""
    confidence = confidence_of(active.calibration.apply(rows["scores"]), rows["predicted"])
    probability = inclusion_probabilities(confidence, n)
    at = draw(probability, np.random.default_rng(seed))
    picked = {column: rows[column][at] for column in ("file", "position", "key", "time", "predicted")}
    asked = _Asked(name, model, confidence=confidence[at], probability=probability[at], **picked)
    widths = expected_widths(confidence, probability, task.level)
    free = (
        average_confidence(confidence, task.level)
        if active.predictive is None
        else predictive_interval(confidence, active.predictive, task.level)
    )
    without = f"{free.upper - free.lower:.3f}" if isinstance(free, Estimate) else "unknown"
    raw = (
        ""
        if active.view.version
        else " The confidences are not calibrated: all this is as right as they are."
    )
    return asked, (
        f"{name}, {model}: {len(at):,} of {len(confidence):,} answers. Expected width of the realised "
        f"accuracy's {task.level:.0%} interval: {widths.chosen:.3f} with these labels, {widths.even:.3f} "
        f"with as many drawn evenly; of the estimate without labels: {without}.{raw}"
    )


def _lines(config: Config, files: Sequence[Path], asked: Sequence[_Asked]) -> list[str]:
    """Label records, a model after the other in the order of the files."""
    file, position, key = (
        np.concatenate([getattr(each, name) for each in asked]) for name in ("file", "position", "key")
    )
    ids = texts_of(config, files, file, position, key)
    return [
        json.dumps(record, ensure_ascii=False) for each in asked for record in _records(config, each, ids)
    ]


def _records(config: Config, asked: _Asked, ids: dict[Place, str]) -> Iterator[dict[str, object]]:
    classes = config.scored_tasks[asked.task].classes
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
