"""The command `blindsight labels ask --for active_testing`, which draws requests to label in sequence."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from monitor.base.errors import ConfigError
from monitor.base.records import Floats, Ints, Keys
from monitor.cli.answered import (
    Answered,
    Place,
    active_calibration,
    left_out,
    matching_models,
    read_inputs,
    texts_of,
)
from monitor.cli.labels_ask import LabelSelection, ModelWidth, RoundForecast, ask
from monitor.cli.rounds import Begun, read_rounds
from monitor.config.root import Config, Task
from monitor.engine.reference import Reference
from monitor.reports.window_report import rfc3339
from monitor.stats.labelled.active_testing import ActiveTesting, expected_error
from monitor.stats.labelled.inputs import UNLABELLED, mean_of_models
from monitor.stats.labelled.ssme import SSME
from monitor.stats.sampling.acquisition import as_if_at_once, draw_in_turn, expected_turn_widths

FOR = ActiveTesting.tag
"""The only estimator that `--for` accepts."""


@dataclass(frozen=True, slots=True)
class _Requests:
    """The N requests of one task from which a round is drawn, with the answers of M models, sorted by key.

    Parameters
    ----------
    models : tuple of str
    key : (N,) uint64
    file, position : (N,) int64
        Place of one of the request's answers.
    time : (N,) float64
        Time of that answer.
    scores, calibrated : (N, M, K) float64
        NaN if a model has no answer.
    predicted : (N, M) int64
        −1 if a model has no answer.
    """

    models: tuple[str, ...]
    key: Keys
    file: Ints
    position: Ints
    time: Floats
    scores: Floats
    calibrated: Floats
    predicted: Ints

    def __len__(self) -> int:
        return len(self.key)

    def name(self, task: str, seed: int) -> str:
        """Return the name of the round with this seed. Different requests give a different name."""
        digest = hashlib.sha256(json.dumps([task, len(self), *self.models]).encode() + self.key.tobytes())
        return f"{digest.hexdigest()[:12]}-{seed}"


@dataclass(frozen=True, slots=True)
class _Draws:
    """New draws of a round: rows of the requests, their probabilities, and the number of the first draw."""

    task: str
    round: str
    pool: int
    first: int
    row: Ints
    chance: Floats
    probability: Floats


def ask_for_estimator(
    estimator: str,
    path: str,
    files: Sequence[Path],
    n: int,
    task: str,
    model: str,
    seed: int,
    earlier: Sequence[Path],
) -> LabelSelection:
    """Select the answers or requests to label for an estimator.

    If `estimator` is empty, return the result of `ask`. If the estimator needs draws in sequence, return the
    result of `ask_in_turn`.

    Raises
    ------
    ConfigError
        No estimator of this name needs draws in sequence, `earlier` has files although `estimator` is empty,
        or `ask` or `ask_in_turn` failed.
    """
    if estimator == FOR:
        return ask_in_turn(path, files, n, task, model, seed, earlier)
    if estimator:
        raise ConfigError(
            f"--for: expected {FOR}, got {estimator!r}; others take labels that are drawn without --for"
        )
    if earlier:
        raise ConfigError(
            f"--continue: expected --for {FOR} beside it, got none: only its draws have an order"
        )
    return ask(path, files, n, task, model, seed)


def ask_in_turn(
    path: str,
    files: Sequence[Path],
    n: int,
    task: str = "",
    model: str = "",
    seed: int = 0,
    earlier: Sequence[Path] = (),
) -> LabelSelection:
    """Draw n requests of each task, one after another, to label them for all models of the task.

    Nine tenths of the probability of a draw are proportional to the models' expected error on a request; one
    tenth is spread evenly over the requests. The expected error comes from a surrogate: the mean of the
    calibrated models, or `ssme` fitted on the labels of earlier draws.

    Parameters
    ----------
    path : str
        The configuration; the calibrations are fitted on its references.
    files : sequence of Path
        Files with answers and known labels; requests with a label are left out. The files are read twice.
    n : int
        The number of requests to draw, at least 1. If fewer requests are left, all of them are drawn.
    task, model : str
        The task and the model to draw for; ``""`` for all.
    seed : int
        The seed of the draws. The same files, configuration and seed give the same lines.
    earlier : sequence of Path
        Files with lines of earlier calls, with or without labels. The draws continue the draws of the earlier
        calls. `files` must be the same as in those calls.

    Raises
    ------
    ConfigError
        A setting, the configuration or a file cannot be used, no request is left, or a round cannot be
        continued with these files.
    SourceError
        A file is damaged.
    """
    config, references, pool = read_inputs(path, files, n, task, seed)
    rounds = read_rounds(earlier, config.scored_tasks)
    draws: list[tuple[_Draws, _Requests]] = []
    forecasts: list[RoundForecast] = []
    for name, models in _by_task(pool, config, task, model):
        round_ = rounds.get(name)
        if earlier and round_ is None:
            continue
        requests = _requests(config.scored_tasks[name], name, models, pool, references.get(name, {}), round_)
        if len(requests):
            draw, forecast = _draw_round(name, config.scored_tasks[name], requests, n, seed, round_)
            draws.append((draw, requests))
            forecasts.append(forecast)
    if not draws:
        raise ConfigError(
            "FILE…: no request in them has an id, an answer with scores and no label yet; give files of "
            "predictions whose records have an id"
        )
    return LabelSelection(_label_records(config, files, draws), forecasts, tuple(left_out(pool)))


def _by_task(pool: Answered, config: Config, task: str, model: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each task with classes and its models. A task without classes has no surrogate."""
    pairs = matching_models(pool, task, model)
    for name in dict.fromkeys(name for name, _ in pairs):
        if config.scored_tasks[name].classes:
            yield name, tuple(who for of, who in pairs if of == name)
        elif task:
            raise ConfigError(
                f"--for: {FOR} needs the scores of classes, and tasks.{name} has none; leave --for out"
            )


def _requests(
    task: Task,
    name: str,
    models: tuple[str, ...],
    pool: Answered,
    references: Mapping[str, Reference],
    begun: Begun | None,
) -> _Requests:
    """Return the requests without a label. Labels of draws of this round do not count."""
    answers = {model_name: pool.answers_of(name, model_name) for model_name in models}
    labelled = pool.labelled_of(name)
    if begun is not None:
        labelled = np.setdiff1d(labelled, begun.key)
    key = np.setdiff1d(np.concatenate([rows["key"] for rows in answers.values()]), labelled)
    shape = (len(key), len(models), len(task.classes))
    scores, calibrated = np.full(shape, np.nan), np.full(shape, np.nan)
    predicted = np.full(shape[:2], -1, dtype=np.int64)
    file, position = np.full((2, len(key)), -1)
    time = np.full(len(key), np.nan)
    for m, (model_name, rows) in enumerate(answers.items()):
        own = np.flatnonzero(np.isin(rows["key"], key))
        at = np.searchsorted(key, rows["key"][own])
        active = active_calibration(name, task, model_name, references.get(model_name))
        scores[at, m], predicted[at, m] = rows["scores"][own], rows["predicted"][own]
        calibrated[at, m] = active.calibration.apply(rows["scores"][own])
        file[at], position[at], time[at] = rows["file"][own], rows["position"][own], rows["time"][own]
    return _Requests(models, key, file, position, time, scores, calibrated, predicted)


def _draw_round(
    name: str, task: Task, requests: _Requests, n: int, seed: int, begun: Begun | None
) -> tuple[_Draws, RoundForecast]:
    """Return the next draws of a round, new or continued, and their expected benefit."""
    done = Begun.nothing() if begun is None else begun
    seed = seed if begun is None else _same_round(name, requests, begun)
    round_, known = requests.name(name, seed), np.searchsorted(requests.key, done.key)
    labels = np.full(len(requests), UNLABELLED)
    labels[known] = done.label
    surrogate, which = _surrogate(task, requests, labels)
    chance = _chances(requests, surrogate)
    left = chance.copy()
    left[known] = 0.0
    if not left.any():
        raise ConfigError(
            f"--continue: every request of the round {round_} is drawn; begin another without it"
        )
    turns = draw_in_turn(left, n, np.random.default_rng((seed, len(known))))
    first, last = len(known) + 1, len(known) + len(turns.row)
    picked = as_if_at_once(np.r_[done.probability, turns.probability], len(requests))[len(known) :]
    return (
        _Draws(name, round_, len(requests), first, turns.row, turns.probability, picked),
        RoundForecast(
            name,
            round_,
            first,
            last,
            len(requests),
            which,
            task.level,
            tuple(_widths(requests, surrogate, chance, last, task.level)),
            FOR in task.estimators,
        ),
    )


def _widths(
    requests: _Requests, surrogate: Floats, chance: Floats, labels: int, level: float
) -> Iterator[ModelWidth]:
    for m, who in enumerate(requests.models):
        own = np.flatnonzero(requests.predicted[:, m] >= 0)
        if len(own):
            error = 1.0 - surrogate[own, requests.predicted[own, m]]
            widths = expected_turn_widths(np.clip(error, 0.0, 1.0), chance[own], labels, level)
            yield ModelWidth(who, widths.chosen, widths.even)


def _same_round(name: str, requests: _Requests, begun: Begun) -> int:
    """Return the seed of the round to be continued.

    Raises
    ------
    ConfigError
        The round was drawn from other requests.
    """
    seed = begun.seed
    same = (requests.name(name, seed), len(requests)) == (begun.round, begun.pool)
    if not same or not np.isin(begun.key, requests.key).all():
        raise ConfigError(
            f"--continue: the round {begun.round} was drawn from {begun.pool:,} requests of {name}; here are "
            f"{len(requests):,} without a label from elsewhere, and not those. Give the files that it was "
            "asked with, --model as then, and no labels that came from elsewhere since"
        )
    return seed


def _surrogate(task: Task, requests: _Requests, labels: Ints) -> tuple[Floats, str]:
    """Return the class probabilities (N, K) that determine the draws, and their name."""
    known = int((labels != UNLABELLED).sum())
    if known:
        spread = np.random.default_rng(0).permutation(np.flatnonzero(labels == UNLABELLED))
        rows = np.r_[np.flatnonzero(labels != UNLABELLED), spread[: task.ssme.fit_rows]]
        fit = SSME(positive=task.positive_index if len(task.classes) == 2 else None).fit(
            requests.scores[rows], labels[rows], predicted=requests.predicted[rows]
        )
        if fit.refused is None:
            return fit.predict(requests.scores), f"ssme, fitted on {known:,} labels,"
    return mean_of_models(requests.calibrated), "the mean of the calibrated models"


def _chances(requests: _Requests, surrogate: Floats) -> Floats:
    """Return the probabilities (N,) of a first draw: the mean of the best probabilities for each model."""
    chance = np.zeros(len(requests))
    for m in range(len(requests.models)):
        own = np.flatnonzero(requests.predicted[:, m] >= 0)
        if len(own):
            chance[own] += expected_error(surrogate[own], requests.predicted[own, m])
    share: Floats = chance / chance.sum()
    return share


def _label_records(
    config: Config, files: Sequence[Path], draws: Sequence[tuple[_Draws, _Requests]]
) -> list[dict[str, object]]:
    places = np.concatenate(
        [np.stack([r.file[a.row], r.position[a.row], r.key[a.row].view(np.int64)], axis=1) for a, r in draws]
    )
    ids = texts_of(config, files, places[:, 0], places[:, 1], places[:, 2].view(np.uint64))
    return [record for draw, requests in draws for record in _records(draw, requests, ids)]


def _records(draws: _Draws, requests: _Requests, ids: dict[Place, str]) -> Iterator[dict[str, object]]:
    for m, row in enumerate(draws.row.tolist()):
        record: dict[str, object] = {
            "id": ids[int(requests.file[row]), int(requests.position[row]), int(requests.key[row])],
            "task": draws.task,
            "probability": float(draws.probability[m]),
            "draw": {
                "round": draws.round,
                "number": draws.first + m,
                "pool": draws.pool,
                "probability": float(draws.chance[m]),
            },
        }
        if np.isfinite(requests.time[row]):
            record["answered"] = rfc3339(float(requests.time[row]))
        yield record | {"label": None}
