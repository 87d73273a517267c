"""Reads earlier draws from the output of `labels ask --for active_testing`, to continue them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from connectors.files import is_pipe, why_not_a_file
from connectors.formats.decode.draws import draw_fault
from connectors.formats.decode.names import text_of
from connectors.formats.messages.wording import listing
from monitor.base.errors import ConfigError
from monitor.base.records import Floats, Ints, Keys, id_keys
from monitor.config.root import Task
from monitor.stats.labelled.inputs import UNLABELLED

_WRITTEN = "give files that `labels ask --for active_testing` wrote, labels filled in or not"


@dataclass(frozen=True, slots=True)
class Begun:
    """A round that has begun: M requests were drawn for labelling, one after another.

    Parameters
    ----------
    round : str
        Name of the round, which depends on the requests and the seed.
    pool : int
        The number of requests from which the first one was drawn.
    key : (M,) uint64
        Keys of the requests' ids.
    probability : (M,) float64
        The probability of each draw.
    label : (M,) int64
        The class of each request's label; −1 without a label.
    """

    round: str
    pool: int
    key: Keys
    probability: Floats
    label: Ints

    @classmethod
    def nothing(cls) -> Begun:
        """Return a new round, of which no request has been drawn yet."""
        return cls("", 0, id_keys([]), np.zeros(0), np.zeros(0, dtype=np.int64))

    @property
    def seed(self) -> int:
        """The seed of the round, which is a part of its name; 0 if the name contains no seed."""
        tail = self.round.rpartition("-")[2]
        return int(tail) if tail.isdecimal() else 0


def read_rounds(paths: Sequence[Path], tasks: Mapping[str, Task]) -> dict[str, Begun]:
    """Read rounds from files, and return the round of each task.

    A draw may have several lines, and its label may be in any of them.

    Raises
    ------
    ConfigError
        A file cannot be read, no file has a line, a line is not a draw, a task has two rounds, or draws are
        missing.
    """
    lines: dict[str, list[dict[str, Any]]] = {}
    for path in paths:
        problem = why_not_a_file(path) or (f"{path}: it is a pipe; give a file" if is_pipe(path) else None)
        if problem is not None:
            raise ConfigError(f"--continue: {problem}")
        for number, line in enumerate(path.read_bytes().splitlines(), start=1):
            if line.strip():
                record = _record(line, tasks, f"--continue: {path}: line {number}")
                lines.setdefault(record["task"], []).append(record)
    if paths and not lines:
        raise ConfigError(f"--continue: {', '.join(map(str, paths))}: there is no line; {_WRITTEN}")
    return {task: _begun(task, records) for task, records in lines.items()}


def _record(line: bytes, tasks: Mapping[str, Task], where: str) -> dict[str, Any]:
    """Return the record in a line, with its label as the number of a class."""
    try:
        record = msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigError(f"{where}: it is not JSON ({error}); {_WRITTEN}") from error
    if not isinstance(record, dict) or not isinstance(record.get("id"), str | int):
        raise ConfigError(f"{where}: it is not a label record with an id; {_WRITTEN}")
    fault = draw_fault(record.get("draw"))
    if fault is not None:
        raise ConfigError(f"{where}: {fault[1]}; {_WRITTEN}")
    task, label = record.get("task"), record.get("label")
    if not isinstance(task, str) or task not in tasks:
        raise ConfigError(f"{where}: task: expected one of {listing(list(tasks))}, got {task!r}; {_WRITTEN}")
    classes = tasks[task].classes
    if label is not None and text_of(label) not in classes:
        raise ConfigError(
            f"{where}: label: expected one of {listing(classes)}, or null, got {label!r}; correct it"
        )
    code = UNLABELLED if label is None else classes.index(text_of(label))
    return record | {"id": str(record["id"]), "label": code}


def _begun(task: str, records: Sequence[dict[str, Any]]) -> Begun:
    rounds = {(text_of(record["draw"]["round"]), int(record["draw"]["pool"])) for record in records}
    if len(rounds) > 1:
        names = listing([f"{name} of {pool:,} requests" for name, pool in sorted(rounds)])
        raise ConfigError(f"--continue: expected one round of {task}, got {names}; give the files of one")
    ((name, pool),) = rounds
    draws: dict[int, dict[str, Any]] = {}
    for record in records:
        number = int(record["draw"]["number"])
        same = draws.setdefault(number, record)
        if same["id"] != record["id"]:
            raise ConfigError(
                f"--continue: draw {number} of the round {name} is of {same['id']} and of {record['id']}; "
                "give files of one run of `labels ask`"
            )
        if record["label"] != UNLABELLED:
            draws[number] = record
    missing = sorted(set(range(1, max(draws) + 1)) - set(draws))
    if missing:
        raise ConfigError(
            f"--continue: draws {listing([str(number) for number in missing])} of the round {name} are "
            "missing; give every file in which it was asked about, its unlabelled lines too"
        )
    ordered = [draws[number] for number in sorted(draws)]
    return Begun(
        name,
        pool,
        id_keys([record["id"] for record in ordered]),
        np.array([record["draw"]["probability"] for record in ordered], dtype=np.float64),
        np.array([record["label"] for record in ordered], dtype=np.int64),
    )
