"""The checkpoint folder of a stream: the last committed batch, and the state of every unit after it.

Renaming `committed.json` commits a batch, after all files that `committed.json` names are on the disk. The
files of a batch have the number of the batch in their names, so that a repeated batch overwrites the files of
its interrupted attempt.

    lock              held by the only driver
    committed.json    the last batch, its units and their states, and the counts
    turn.json         the clock of a turn (an advance of time without records), written before it is computed
    state/            a file for each unit and batch
    spark/            Spark's own log of the offsets of each batch
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
from monitor.export.sinks.line_file import cannot_write
from monitor.parallel.planning import Facts, Unit

_FILE = "committed.json"
_TURN = "turn.json"
STATES = "state"
SPARK = "spark"


@dataclass(frozen=True, slots=True)
class UnitState:
    """A unit (one model or a whole task) and the file with its state.

    Parameters
    ----------
    task : str
    model : str or None
        None if the unit is a whole task.
    state : str
        The name of the file.
    due : float or None
        The time of the stream after which the unit must be computed even without records; None for never.
    """

    task: str
    model: str | None
    state: str
    due: float | None = None


@dataclass(slots=True)
class Committed:
    """The content of `committed.json`.

    Parameters
    ----------
    batch : int
        The number of the last batch, -1 before the first.
    config : str
        The digest of the configuration on which the states depend.
    units : list of UnitState
        The units in the order of their first records.
    received, labels_received : int
        The numbers of all answers and labels, including unused answers and labels.
    rejected : dict of str to int
        The number of rejected answers by reason.
    labels_rejected : dict of str to int
        The number of rejected labels by task, with ``""`` for labels that name no task.
    shed : int
        The number of answers of models beyond `max_series`.
    ignored : int
        The number of events without answers.
    rows_left : int
        The number of rows that the mapping skipped in messages with several rows.
    dropped : list of (task, model)
        The models beyond `max_series`, which are not computed.
    time : float or None
        The time of the commit in seconds since the epoch.
    stream : str
        The id of the stream, which its messages carry.
    reports : int
        The number of lines so far.
    marks : dict of str to (int, int)
        The end of the written part of the topic of reports, by partition: see
        `monitor.export.sinks.destination.Mark`.
    clock : float or None
        The time of the stream: the largest plausible time of its records. None before the first record.
    turn : int
        The number of turns since the batch. A turn advances the stream's time without records.
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
        """The files of the states by task and model."""
        return {(one.task, one.model): one.state for one in self.units}


@dataclass(frozen=True, slots=True)
class Turn:
    """An advance of the stream's time without records. It is saved before its windows are computed.

    Parameters
    ----------
    batch, turn : int
        The numbers of the batch and the turn that will be committed.
    clock : float
        The new time of the stream.
    """

    batch: int
    turn: int
    clock: float


_decoder = msgspec.json.Decoder(Committed)


class CheckpointLedger:
    """The checkpoint folder of a stream.

    Parameters
    ----------
    folder : Path
        The folder, which is created if necessary. Driver and executors must share it under this path.
    config : Config

    Raises
    ------
    ConfigError
        The folder cannot be used, or belongs to another configuration.
    ClusterError
        The new folder cannot be written.
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
            self.committed.config = digest  # no batch has been read
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
            # Saved before the first message carries it, so that a message sent before a crash is recognised.
            named = replace(self.committed, stream=uuid.uuid4().hex)
            _save(folder / _FILE, msgspec.json.encode(named))
            self.committed = named

    def is_done(self, batch: int) -> bool:
        """Return whether a batch is committed. Spark may repeat a batch whose commit it has not logged.

        Raises
        ------
        ClusterError
            The batch is neither the last committed batch nor the next batch.
        """
        last = self.committed.batch
        if batch > last + 1 or batch < last:
            raise ClusterError(
                f"--checkpoint: Spark gives batch {batch}, but {_FILE} in {self.folder} is of batch {last}: "
                "they do not belong together; restore the folder, or start with an empty one"
            )
        return batch == last

    def commit(self, new: Committed) -> None:
        """Commit a batch, whose files are all on the disk.

        Raises
        ------
        ClusterError
            A state is missing in the folder, or the commit cannot be written.
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
        """Save a turn, an advance of time without records up to `clock`, before it is computed; return it.

        After a crash, this turn is computed again.
        """
        turn = Turn(self.committed.batch, self.committed.turn + 1, clock)
        _save(self.folder / _TURN, msgspec.json.encode(turn))
        return turn

    def intended(self) -> Turn | None:
        """Return the saved turn that was not committed, or None.

        Raises
        ------
        ConfigError
            The turn cannot be read.
        """
        path = self.folder / _TURN
        try:
            turn = msgspec.json.decode(path.read_bytes(), type=Turn) if path.exists() else None
        except (OSError, msgspec.DecodeError) as error:
            raise ConfigError(f"--checkpoint: {path} cannot be used: {error}; give another folder") from error
        last = self.committed
        return turn if turn and (turn.batch, turn.turn) == (last.batch, last.turn + 1) else None

    def _remove_others(self) -> None:
        """Remove the states that no commit names: older ones, and those of interrupted batches."""
        named = {one.state for one in self.committed.units}
        for path in self.states.iterdir():
            if path.name not in named:
                path.unlink(missing_ok=True)


def counted(before: Committed, facts: list[Facts]) -> dict[str, Any]:
    """Return the counts of `before` after one more batch, by the names of the fields of `Committed`."""
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
    """Return a digest of the configuration on which states depend: tasks, topics and mappings.

    Brokers and options are not part of the digest, so that a new password does not start another stream.
    """
    source_keys = {"kind", "name", "topics", "mapping"}
    text = config.model_dump_json(include={"tasks": True, "sources": {"__all__": source_keys}})
    return hashlib.sha256(text.encode()).hexdigest()


def write_state(folder: Path, unit: Unit, as_of: str, state: Any) -> str:
    """Save the state of a unit after a batch and turn (`as_of`), and return the name of its file.

    Raises
    ------
    ClusterError
        The file cannot be written.
    """
    who = hashlib.sha256(f"{unit.task}\0{unit.model}".encode()).hexdigest()[:32]
    name = f"{who}.{as_of}"
    _save(folder / name, pack(state))
    return name


def read_state(folder: Path, name: str) -> Any:
    """Return a saved state.

    Raises
    ------
    ClusterError
        The file is missing or damaged.
    """
    try:
        return unpack((folder / name).read_bytes())
    except (OSError, ValueError) as error:
        raise ClusterError(
            f"--checkpoint: the state {folder / name} cannot be read: {error}; the folder must be on a disk "
            "that driver and executors share"
        ) from error


def _save(path: Path, data: bytes) -> None:
    """Write a file of the checkpoint like `put`, or raise a ClusterError."""
    try:
        put(path, data)
    except OSError as error:
        raise ClusterError(
            f"--checkpoint: {cannot_write(str(path), error)}. Everything committed is whole: the next "
            "start continues from there"
        ) from error
