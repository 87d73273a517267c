"""`blindsight labels ask --for active_testing`: requests to be labelled, drawn one after another."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from monitor.base.errors import ConfigError
from monitor.base.records import Floats, Ints, Keys
from monitor.cli.answered import Answered, Place, active_calibration, chosen, left_out, opened, texts_of
from monitor.cli.labels_ask import ask
from monitor.cli.rounds import Begun, read_rounds
from monitor.cli.settings import read_references
from monitor.config.root import Config, Task
from monitor.engine.reference import Reference
from monitor.reports.window_report import rfc3339
from monitor.stats.labelled.active_testing import ActiveTesting, expected_error
from monitor.stats.labelled.inputs import UNLABELLED, mean_of_models
from monitor.stats.labelled.ssme import SSME
from monitor.stats.sampling.acquisition import as_if_at_once, draw_in_turn, expected_turn_widths

FOR = ActiveTesting.tag
"""The possible values of `--for`."""


@dataclass(frozen=True, slots=True)
class _Requests:
    """The requests of one task from which a round is drawn, N by rising key, and M models' answers.

    Parameters
    ----------
    models : tuple of str
    key : (N,) uint64
    file, position : (N,) int64
        Where one of the answers stands.
    time : (N,) float64
        Of that answer.
    scores, calibrated : (N, M, K) float64
        NaN where a model has no answer.
    predicted : (N, M) int64
        −1 likewise.
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
        """Of the round that is drawn from them with this seed: other requests have another."""
        told = hashlib.sha256(json.dumps([task, len(self), *self.models]).encode() + self.key.tobytes())
        return f"{told.hexdigest()[:12]}-{seed}"


@dataclass(frozen=True, slots=True)
class _Asked:
    """The draws made now: rows of the requests, the chances, and the number of the first."""

    task: str
    round: str
    pool: int
    first: int
    row: Ints
    chance: Floats
    probability: Floats


def asked_for(
    estimator: str,
    path: str,
    files: Sequence[Path],
    n: int,
    task: str,
    model: str,
    seed: int,
    earlier: Sequence[Path],
) -> tuple[list[str], list[str]]:
    """Lines and sentences of `ask`, or of `ask_in_turn` where that is what an estimator needs.

    Raises
    ------
    ConfigError
        No estimator needs labels drawn for it under that name; see also the two.
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
) -> tuple[list[str], list[str]]:
    """Draw requests to be labelled one after another, n of each task: one sequence for all its models.

    Chances are in proportion to the error that a surrogate expects of the models, a tenth of them spread
    evenly; it is the mean of the calibrated models, or `ssme` fitted on the labels of earlier draws.

    Parameters
    ----------
    path : str
        The configuration, whose reference gives the calibration.
    files : sequence of Path
        Answers, and labels that are known already, whose requests are left out. They are read twice.
    n : int
        At least 1; where fewer requests are left, all of them.
    task, model : str
        Only this task; draws for this model only. ``""`` for all.
    seed : int
        The same files, configuration and seed give the same lines.
    earlier : sequence of Path
        Lines of earlier calls, labelled or not: their rounds go on. The files must be those of then.

    Returns
    -------
    (list of str, list of str)
        Label records as JSON, with `label` to be filled in; a sentence a task, and what was left out.

    Raises
    ------
    ConfigError
        A setting, the configuration or a file cannot be used, nothing is left to ask about, or a round
        cannot go on with these files.
    SourceError
        A file turned out to be damaged.
    """
    config, found = opened(path, files, n, task, seed)
    begun = read_rounds(earlier, config.scored_tasks)
    references = read_references(config)
    asked: list[tuple[_Asked, _Requests]] = []
    said: list[str] = []
    for name, models in _by_task(found, config, task, model):
        round_ = begun.get(name)
        if earlier and round_ is None:
            continue
        requests = _requests(config.scored_tasks[name], name, models, found, references.get(name, {}), round_)
        if len(requests):
            drawn, sentence = _drawn(name, config.scored_tasks[name], requests, n, seed, round_)
            asked.append((drawn, requests))
            said.append(sentence)
    if not asked:
        raise ConfigError(
            "FILE…: no request in them has an id, an answer with scores and no label yet; give files of "
            "predictions whose records have an id"
        )
    return _lines(config, files, asked), [*said, *left_out(found)]


def _by_task(found: Answered, config: Config, task: str, model: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Tasks with classes, each with its models: of right and wrong alone there is no surrogate."""
    pairs = chosen(found, task, model)
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
    found: Answered,
    references: Mapping[str, Reference],
    begun: Begun | None,
) -> _Requests:
    """Those without a label; a label of the round itself is none."""
    answers = {who: found.answers_of(name, who) for who in models}
    labelled = found.labelled_of(name)
    if begun is not None:
        labelled = np.setdiff1d(labelled, begun.key)
    key = np.setdiff1d(np.concatenate([rows["key"] for rows in answers.values()]), labelled)
    shape = (len(key), len(models), len(task.classes))
    scores, calibrated = np.full(shape, np.nan), np.full(shape, np.nan)
    predicted = np.full(shape[:2], -1, dtype=np.int64)
    file, position = np.full((2, len(key)), -1)
    time = np.full(len(key), np.nan)
    for m, (who, rows) in enumerate(answers.items()):
        own = np.flatnonzero(np.isin(rows["key"], key))
        at = np.searchsorted(key, rows["key"][own])
        active = active_calibration(name, task, who, references.get(who))
        scores[at, m], predicted[at, m] = rows["scores"][own], rows["predicted"][own]
        calibrated[at, m] = active.calibration.apply(rows["scores"][own])
        file[at], position[at], time[at] = rows["file"][own], rows["position"][own], rows["time"][own]
    return _Requests(models, key, file, position, time, scores, calibrated, predicted)


def _drawn(
    name: str, task: Task, requests: _Requests, n: int, seed: int, begun: Begun | None
) -> tuple[_Asked, str]:
    """The next draws of a round, which is a new one where none was begun, and what they will bring."""
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
        _Asked(name, round_, len(requests), first, turns.row, turns.probability, picked),
        f"{name}: draws {first:,} to {last:,} of the round {round_}, out of {len(requests):,} requests, by "
        f"the errors that {which} expects. Expected width of {FOR}'s {task.level:.0%} interval of the "
        f"accuracy with {last:,} labels: {_widths(requests, surrogate, chance, last, task.level)}."
        + (
            ""
            if FOR in task.estimators
            else f" Add {FOR} to tasks.{name}.estimators: nothing else counts draws."
        ),
    )


def _widths(requests: _Requests, surrogate: Floats, chance: Floats, labels: int, level: float) -> str:
    said = []
    for m, who in enumerate(requests.models):
        own = np.flatnonzero(requests.predicted[:, m] >= 0)
        if len(own):
            error = 1.0 - surrogate[own, requests.predicted[own, m]]
            found = expected_turn_widths(np.clip(error, 0.0, 1.0), chance[own], labels, level)
            said.append(f"{who} {found.chosen:.3f} ({found.even:.3f} if drawn evenly)")
    return ", ".join(said)


def _same_round(name: str, requests: _Requests, begun: Begun) -> int:
    """The seed of a round that goes on.

    Raises
    ------
    ConfigError
        It was drawn from other requests.
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
    """Class probabilities (N, K) that the draws are made by, and what they are."""
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
    """(N,) of a first draw: the mean over the models of what would be best for each."""
    chance = np.zeros(len(requests))
    for m in range(len(requests.models)):
        own = np.flatnonzero(requests.predicted[:, m] >= 0)
        if len(own):
            chance[own] += expected_error(surrogate[own], requests.predicted[own, m])
    share: Floats = chance / chance.sum()
    return share


def _lines(config: Config, files: Sequence[Path], asked: Sequence[tuple[_Asked, _Requests]]) -> list[str]:
    places = np.concatenate(
        [np.stack([r.file[a.row], r.position[a.row], r.key[a.row].view(np.int64)], axis=1) for a, r in asked]
    )
    ids = texts_of(config, files, places[:, 0], places[:, 1], places[:, 2].view(np.uint64))
    return [
        json.dumps(record, ensure_ascii=False)
        for drawn, requests in asked
        for record in _records(drawn, requests, ids)
    ]


def _records(asked: _Asked, requests: _Requests, ids: dict[Place, str]) -> Iterator[dict[str, object]]:
    for m, row in enumerate(asked.row.tolist()):
        record: dict[str, object] = {
            "id": ids[int(requests.file[row]), int(requests.position[row]), int(requests.key[row])],
            "task": asked.task,
            "probability": float(asked.probability[m]),
            "draw": {
                "round": asked.round,
                "number": asked.first + m,
                "pool": asked.pool,
                "probability": float(asked.chance[m]),
            },
        }
        if np.isfinite(requests.time[row]):
            record["answered"] = rfc3339(float(requests.time[row]))
        yield record | {"label": None}
