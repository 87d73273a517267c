"""The command `blindsight labels ask`, which selects answers to label and predicts the interval's width."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from monitor.base.errors import ConfigError
from monitor.base.records import Floats, Ints, Keys
from monitor.base.registry import metric_words
from monitor.base.results import Estimate
from monitor.cli.answered import Place, active_calibration, left_out, matching_models, read_inputs, texts_of
from monitor.config.root import Config, Task
from monitor.engine.calibration import ActiveCalibration
from monitor.export.sinks.line_file import cannot_write
from monitor.reports.window_report import rfc3339
from monitor.stats.calibration.base import confidence_of
from monitor.stats.estimate.average_confidence import average_confidence
from monitor.stats.estimate.predictive import predictive_interval
from monitor.stats.labelled.active_testing import ActiveTesting
from monitor.stats.sampling.acquisition import draw, expected_widths, inclusion_probabilities


@dataclass(frozen=True, slots=True)
class _Selection:
    """The selected answers of one model; `predicted` has classes, or the predicted numbers."""

    task: str
    model: str
    file: Ints
    position: Ints
    key: Keys
    time: Floats
    predicted: Ints | Floats
    confidence: Floats
    probability: Floats


@dataclass(frozen=True, slots=True)
class ModelForecast:
    """The draw of answers of one model, and the expected benefit of their labels. `str` gives a sentence.

    Parameters
    ----------
    task, model : str
    metric : str
        The metric that is the share of right answers, in words.
    selected, answers : int
        The number of answers to label, and the number of answers from which they are drawn.
    level : float
        The level of the intervals.
    width, width_evenly : float
        The expected width of the interval of the realised metric, with these labels, and with the same
        number of labels drawn evenly.
    width_without_labels : float or None
        The width of the interval of the estimate without labels; None if the estimate is unknown.
    calibrated : bool
        True if the confidences are calibrated. All widths depend on the confidences.
    """

    task: str
    model: str
    metric: str
    selected: int
    answers: int
    level: float
    width: float
    width_evenly: float
    width_without_labels: float | None
    calibrated: bool

    def __str__(self) -> str:
        without = "unknown" if self.width_without_labels is None else f"{self.width_without_labels:.3f}"
        raw = " The confidences are not calibrated: all this is as right as they are."
        return (
            f"{self.task}, {self.model}: {self.selected:,} of {self.answers:,} answers. Expected width of "
            f"the {self.level:.0%} interval of the realised {self.metric}: {self.width:.3f} with these "
            f"labels, {self.width_evenly:.3f} with as many drawn evenly; of the estimate without labels: "
            f"{without}."
            f"{'' if self.calibrated else raw}"
        )


@dataclass(frozen=True, slots=True)
class ModelWidth:
    """The expected width of a model's interval: with these draws, and with equal probabilities."""

    model: str
    width: float
    width_evenly: float

    def __str__(self) -> str:
        return f"{self.model} {self.width:.3f} ({self.width_evenly:.3f} if drawn evenly)"


@dataclass(frozen=True, slots=True)
class RoundForecast:
    """The draws for one task in a round of `active_testing`, with their expected benefit.

    `str` gives a sentence.

    Parameters
    ----------
    task, round : str
    first, last : int
        The numbers of the first and of the last draw.
    requests : int
        The number of requests from which the round is drawn.
    surrogate : str
        The name of the model of expected errors, which determine the draws.
    level : float
        The level of the intervals.
    models : tuple of ModelWidth
    counted : bool
        True if the task has the estimator `active_testing`. Other estimators do not use the draws.
    """

    task: str
    round: str
    first: int
    last: int
    requests: int
    surrogate: str
    level: float
    models: tuple[ModelWidth, ...]
    counted: bool

    def __str__(self) -> str:
        name = ActiveTesting.tag
        text = (
            f"{self.task}: draws {self.first:,} to {self.last:,} of the round {self.round}, out of "
            f"{self.requests:,} requests, by the errors that {self.surrogate} expects. Expected width of "
            f"{name}'s {self.level:.0%} interval of the accuracy with {self.last:,} labels: "
            f"{', '.join(map(str, self.models))}."
        )
        if self.counted:
            return text
        return f"{text} Add {name} to tasks.{self.task}.estimators: nothing else counts draws."


@dataclass(frozen=True, slots=True)
class LabelSelection:
    """The result of `labels ask`.

    Parameters
    ----------
    records : list of dict
        Label records, with an empty `label` or `correct`.
    forecasts : list of ModelForecast or RoundForecast
    remarks : tuple of str
        A sentence about each kind of record that cannot be selected.
    """

    records: list[dict[str, object]]
    forecasts: Sequence[ModelForecast | RoundForecast]
    remarks: tuple[str, ...]

    @property
    def lines(self) -> list[str]:
        """The selected records as lines of JSON."""
        return [json.dumps(record, ensure_ascii=False) for record in self.records]

    @property
    def sentences(self) -> list[str]:
        """A sentence about each forecast of a model, followed by the remarks."""
        return [*map(str, self.forecasts), *self.remarks]


def ask(
    path: str, files: Sequence[Path], n: int, task: str = "", model: str = "", seed: int = 0
) -> LabelSelection:
    """Draw n answers of each model, for people to label.

    Parameters
    ----------
    path : str
        The configuration; the calibrations are fitted on its references.
    files : sequence of Path
        Files with answers and known labels; answers with a label are left out. The files are read twice.
    n : int
        The number of answers to draw, at least 1. If a model has fewer answers, all of them are drawn.
    task, model : str
        The task and the model to draw for; ``""`` for all.
    seed : int
        The seed of the draws. The same files, configuration and seed give the same lines.

    Raises
    ------
    ConfigError
        A setting, the configuration or a file cannot be used, or no answer is left.
    SourceError
        A file is damaged.
    """
    config, references, pool = read_inputs(path, files, n, task, seed)
    selections: list[_Selection] = []
    forecasts: list[ModelForecast] = []
    for number, (name, model_name) in enumerate(matching_models(pool, task, model)):
        rows = pool.open_answers(name, model_name)
        if len(rows["key"]):
            active = active_calibration(
                name, config.scored_tasks[name], model_name, references.get(name, {}).get(model_name)
            )
            selection, forecast = _select(
                name, model_name, config.scored_tasks[name], active, rows, n, (seed, number)
            )
            selections.append(selection)
            forecasts.append(forecast)
    if not selections:
        raise ConfigError(
            "FILE…: no answer in them has an id and no label yet; give files of predictions whose records "
            "have an id"
        )
    return LabelSelection(_label_records(config, files, selections), forecasts, tuple(left_out(pool)))


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


def _select(
    name: str,
    model: str,
    task: Task,
    active: ActiveCalibration,
    rows: dict[str, np.ndarray],
    n: int,
    seed: tuple[int, int],
) -> tuple[_Selection, ModelForecast]:
    """Draw answers of one model, and return them with the expected benefit of their labels."""
    confidence = confidence_of(active.calibration.apply(rows["scores"]), rows["predicted"])
    probability = inclusion_probabilities(confidence, n)
    at = draw(probability, np.random.default_rng(seed))
    picked = {column: rows[column][at] for column in ("file", "position", "key", "time", "predicted")}
    if task.layout.numeric:
        picked["predicted"] = rows["numbers"][at, 0]
    selection = _Selection(name, model, confidence=confidence[at], probability=probability[at], **picked)
    widths = expected_widths(confidence, probability, task.level)
    free = (
        average_confidence(confidence, task.level)
        if active.predictive is None
        else predictive_interval(confidence, active.predictive, task.level)
    )
    without = free.upper - free.lower if isinstance(free, Estimate) else None
    calibrated = bool(active.view.version)
    return selection, ModelForecast(
        name,
        model,
        metric_words(task.share),
        len(at),
        len(confidence),
        task.level,
        widths.chosen,
        widths.even,
        without,
        calibrated,
    )


def _label_records(
    config: Config, files: Sequence[Path], selections: Sequence[_Selection]
) -> list[dict[str, object]]:
    """Return the label records, model by model in the order of the files."""
    file, position, key = (
        np.concatenate([getattr(each, name) for each in selections]) for name in ("file", "position", "key")
    )
    ids = texts_of(config, files, file, position, key)
    return [record for each in selections for record in _records(config, each, ids)]


def _records(config: Config, selection: _Selection, ids: dict[Place, str]) -> Iterator[dict[str, object]]:
    task = config.scored_tasks[selection.task]
    for i in range(len(selection.key)):
        record: dict[str, object] = {
            "id": ids[int(selection.file[i]), int(selection.position[i]), int(selection.key[i])],
            "task": selection.task,
            "model": selection.model,
            "probability": float(selection.probability[i]),
        }
        if np.isfinite(selection.time[i]):
            record["answered"] = rfc3339(float(selection.time[i]))
        if task.layout.numeric:
            record["predicted"] = float(selection.predicted[i])
        elif task.classes:
            record["predicted"] = task.classes[int(selection.predicted[i])]
        record["calibrated_confidence"] = round(float(selection.confidence[i]), 6)
        record["label" if task.classes or task.layout.numeric else "correct"] = None
        yield record
