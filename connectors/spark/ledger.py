"""A stream's checkpoint folder: which batch is committed, and the state of every unit as of it.

A batch is committed by one rename, of `committed.json`, once all that it names is on the disk. What a batch
writes before that bears its number: a batch that was cut short writes the same names again.

    lock              held by the one driver
    committed.json    the last batch, its units and their states, what was counted
    turn.json         that time passed without records, before what rests on it is computed
    state/            a file a unit and batch
    spark/            Spark's own: which offsets each batch has
"""

from __future__ import annotations

import hashlib
import uuid
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from monitor.base.codec import pack, unpack
from monitor.base.errors import ClusterError, ConfigError
from monitor.base.files import put
from monitor.config.root import Config
from monitor.engine.planning import Facts, Unit
from monitor.export.sinks.line_file import cannot_write

_FILE = "committed.json"
_TURN = "turn.json"
STATES = "state"
SPARK = "spark"


@dataclass(frozen=True, slots=True)
class UnitState:
    """A unit and the file with its state.

    Parameters
    ----------
    task : str
    model : str or None
        None for a whole task.
    state : str
    due : float or None
        The stream's time past which it has something to do although nothing came; None for never.
    """

    task: str
    model: str | None
    state: str
    due: float | None = None


@dataclass(slots=True)
class Committed:
    """What `committed.json` holds.

    Parameters
    ----------
    batch : int
        -1 before the first.
    config : str
        A digest of what the states rest on.
    units : list of UnitState
        In the order in which they came.
    received, labels_received : int
        Used or not.
    rejected : dict of str to int
        Answers, by reason.
    labels_rejected : dict of str to int
        By task; ``""`` for labels that name none.
    shed : int
        Answers of models beyond `max_series`.
    ignored : int
        Events without answers.
    rows_left : int
        Rows that the mapping did not read, of messages that hold several.
    dropped : list of (task, model)
        Models beyond `max_series`, of which nothing is computed.
    time : float or None
        When it was committed, seconds since the epoch.
    stream : str
        By which messages tell whose they are.
    reports : int
        Lines so far.
    marks : dict of str to (int, int)
        How far the topic of reports was written: see `monitor.export.sinks.destination.Mark`.
    clock : float or None
        The time of the stream: the largest of its records' that is no error. None before the first.
    turn : int
        How often time has passed without records since the batch.
    """

    batch: int = -1
    config: str = ""
    units: list[UnitState] = field(default_factory=list)
    received: int = 0
    labels_received: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    labels_rejected: dict[str, int] = field(default_factory=dict)
    shed: int = 0
    ignored: int = 0
    rows_left: int = 0
    dropped: list[tuple[str, str]] = field(default_factory=list)
    time: float | None = None
    stream: str = ""
    reports: int = 0
    marks: dict[str, tuple[int, int]] = field(default_factory=dict)
    clock: float | None = None
    turn: int = 0

    @property
    def states(self) -> dict[tuple[str, str | None], str]:
        """The files of the units, by task and model."""
        return {(one.task, one.model): one.state for one in self.units}


@dataclass(frozen=True, slots=True)
class Turn:
    """Time that passes without records, written down before anything rests on it.

    Parameters
    ----------
    batch, turn : int
        What will be committed.
    clock : float
        The stream's time then.
    """

    batch: int
    turn: int
    clock: float


_decoder = msgspec.json.Decoder(Committed)


class CheckpointLedger:
    """The folder of a stream.

    Parameters
    ----------
    folder : Path
        Made where it is not there. Driver and executors see it by this path.
    config : Config

    Raises
    ------
    ConfigError
        The folder cannot be used, or was begun under another configuration.
    ClusterError
        The disk does not take a new one.
    """

    def __init__(self, folder: Path, config: Config) -> None:
        self.folder = folder
        self.states = folder / STATES
        digest = digest_of(config)
        try:
            self.states.mkdir(parents=True, exist_ok=True)
            path = folder / _FILE
            self.committed = _decoder.decode(path.read_bytes()) if path.exists() else Committed(config=digest)
        except (OSError, msgspec.DecodeError) as error:
            raise ConfigError(
                f"--checkpoint: {folder} cannot be used: {error}; give another folder"
            ) from error
        if self.committed.batch < 0 and not (folder / SPARK / "offsets" / "0").exists():
            self.committed.config = digest  # nothing was read yet
        if self.committed.config != digest:
            raise ConfigError(
                f"--checkpoint: {folder} belongs to other tasks or topics; give another folder, or restore "
                "the old configuration"
            )
        if self.committed.batch < 0 and (folder / SPARK / "commits" / "0").exists():
            raise ConfigError(
                f"--checkpoint: {folder} has Spark's log but no {_FILE}; give an empty folder, and start "
                "from nothing"
            )
        self._remove_others()
        if not self.committed.stream:
            # Known before the first message bears it: one that was sent before a crash must be found again.
            named = replace(self.committed, stream=uuid.uuid4().hex)
            _save(folder / _FILE, msgspec.json.encode(named))
            self.committed = named

    def is_done(self, batch: int) -> bool:
        """Whether a batch is committed; Spark may not have come to note that it is.

        Raises
        ------
        ClusterError
            It does not follow on the last one.
        """
        last = self.committed.batch
        if batch > last + 1 or batch < last:
            raise ClusterError(
                f"--checkpoint: Spark gives batch {batch}, but {_FILE} in {self.folder} is of batch {last}: "
                "they do not belong together; restore the folder, or start with an empty one"
            )
        return batch == last

    def commit(self, new: Committed) -> None:
        """Make a batch count: everything that it names is there.

        Raises
        ------
        ClusterError
            A state is not to be seen here, or the disk does not take the commit.
        """
        missing = next((one for one in new.units if not (self.states / one.state).exists()), None)
        if missing is not None:
            raise ClusterError(
                f"--checkpoint: the state of {missing.task} {missing.model or ''} that an executor wrote "
                f"is not in {self.states}; the folder must be on a disk that driver and executors share"
            )
        _save(self.folder / _FILE, msgspec.json.encode(new))
        self.committed = new
        self._remove_others()

    def intend(self, clock: float) -> Turn:
        """Write down that time passes to there, so that what rests on it is the same after a crash."""
        turn = Turn(self.committed.batch, self.committed.turn + 1, clock)
        _save(self.folder / _TURN, msgspec.json.encode(turn))
        return turn

    def intended(self) -> Turn | None:
        """The turn that was cut short before its commit; None where there is none.

        Raises
        ------
        ConfigError
            It cannot be read.
        """
        path = self.folder / _TURN
        try:
            found = msgspec.json.decode(path.read_bytes(), type=Turn) if path.exists() else None
        except (OSError, msgspec.DecodeError) as error:
            raise ConfigError(f"--checkpoint: {path} cannot be used: {error}; give another folder") from error
        last = self.committed
        return found if found and (found.batch, found.turn) == (last.batch, last.turn + 1) else None

    def _remove_others(self) -> None:
        """States that no commit names: older ones, and those of a batch that was cut short."""
        named = {one.state for one in self.committed.units}
        for path in self.states.iterdir():
            if path.name not in named:
                path.unlink(missing_ok=True)


def counted(before: Committed, facts: list[Facts]) -> dict[str, Any]:
    """What was counted with a batch more."""
    rejected = sum((each.answers_rejected for each in facts), Counter[str]())
    used = sum(rows for each in facts for _, rows in each.models.values())
    labels_rejected = Counter(before.labels_rejected)
    for each in facts:
        for (task, _), count in each.labels_rejected.items():
            labels_rejected[task] += count
    labels = sum(each.labels.total() + each.labels_rejected.total() + each.verdicts for each in facts)
    return {
        "received": before.received + used + rejected.total(),
        "labels_received": before.labels_received + labels,
        "rejected": dict(Counter(before.rejected) + rejected),
        "labels_rejected": dict(labels_rejected),
        "ignored": before.ignored + sum(each.ignored for each in facts),
        "rows_left": before.rows_left + sum(each.rows_left.total() for each in facts),
    }


def digest_of(config: Config) -> str:
    """A digest of what the states of a stream rest on: tasks, topics and how they are written.

    Brokers and options are none of it: a renewed password begins no other stream.
    """
    of_source = {"kind", "name", "topics", "mapping"}
    text = config.model_dump_json(include={"tasks": True, "sources": {"__all__": of_source}})
    return hashlib.sha256(text.encode()).hexdigest()


def write_state(folder: Path, unit: Unit, as_of: str, state: Any) -> str:
    """Save a unit's state as of a batch and turn; the name of its file.

    Raises
    ------
    ClusterError
        The disk does not take it.
    """
    who = hashlib.sha256(f"{unit.task}\0{unit.model}".encode()).hexdigest()[:32]
    name = f"{who}.{as_of}"
    _save(folder / name, pack(state))
    return name


def read_state(folder: Path, name: str) -> Any:
    """A state that was saved.

    Raises
    ------
    ClusterError
        It is not there, or damaged.
    """
    try:
        return unpack((folder / name).read_bytes())
    except (OSError, ValueError) as error:
        raise ClusterError(
            f"--checkpoint: the state {folder / name} cannot be read: {error}; the folder must be on a disk "
            "that driver and executors share"
        ) from error


def _save(path: Path, data: bytes) -> None:
    """As `put`, for a file of the checkpoint."""
    try:
        put(path, data)
    except OSError as error:
        raise ClusterError(
            f"--checkpoint: {cannot_write(str(path), error)}. Everything committed is whole: the next "
            "start continues from there"
        ) from error
