"""What every executor of a replay is told, and the rows that stages hand to each other."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

import pyarrow

from connectors.splits import Split
from monitor.config.root import Config
from monitor.engine.engine import EngineSettings
from monitor.engine.partitioning import Begin
from monitor.engine.planning import Unit


@dataclass(frozen=True, slots=True)
class Job:
    """A replay.

    Parameters
    ----------
    config : Config
    settings : EngineSettings
        Of all tasks.
    splits : tuple of Split
        In the order of the stream.
    """

    config: Config
    settings: EngineSettings
    splits: tuple[Split, ...]


class BlockKind(IntEnum):
    """What a block holds."""

    FACTS = 0
    TIMES = 1
    REJECTS = 2
    SHARE = 3


class Block(NamedTuple):
    """A row of the first stage.

    Parameters
    ----------
    kind : BlockKind
    task, model, besides : str
        As of `monitor.engine.partitioning.Partition`; ``""`` for what is no share.
    split : int
    number : int
        Of the chunk in the split: shares of one chunk belong together.
    data : bytes
    """

    kind: int
    task: str
    model: str
    besides: str
    split: int
    number: int
    data: bytes


BLOCKS = "kind int, task string, model string, besides string, split int, number int, data binary"
"""The columns of `Block`, for Spark."""


@dataclass(frozen=True, slots=True)
class Computing:
    """What the second stage is told beside the job.

    Parameters
    ----------
    units : tuple of Unit
    begins : tuple of Begin
        By split.
    """

    units: tuple[Unit, ...]
    begins: tuple[Begin, ...]


class LineRow(NamedTuple):
    """A row of the second stage: a line of the reports, or what became of a unit (`ENDED_UNIT`).

    The first seven columns are the order of the lines; `ended` is the number of the line's task in the
    configuration where the input's end brought it, else 0.
    """

    sequence: int
    stage: int
    ended: int
    closed_at: int
    task: str
    model: str
    group: str
    number: int
    line: bytes


LINES = (
    "sequence long, stage int, ended int, closed_at long, task string, model string, "
    "`group` string, number long, line binary"
)
"""The columns of `LineRow`, for Spark."""

ENDED_UNIT = 9
"""The `stage` of a row that tells what became of a unit."""


def packed(value: Any) -> bytes:
    """Something on its way from one of our processes to another."""
    return pickle.dumps(value, protocol=5)


def unpacked(data: bytes) -> Any:
    """What `packed` was given."""
    return pickle.loads(data)


_TYPES = {
    "int": pyarrow.int32(),
    "long": pyarrow.int64(),
    "string": pyarrow.string(),
    "binary": pyarrow.binary(),
}


def as_arrow(rows: Iterable[Sequence[Any]], columns: str, each: int) -> Iterator[Any]:
    """Rows as record batches of about so many bytes of their last column.

    Parameters
    ----------
    rows : iterable of Block or LineRow
    columns : str
        `BLOCKS` or `LINES`.
    each : int
    """
    pairs = [column.replace("`", "").split() for column in columns.split(", ")]
    schema = pyarrow.schema([(name, _TYPES[kind]) for name, kind in pairs])
    some, held = [], 0
    for row in rows:
        some.append(row)
        held += len(row[-1])
        if held >= each:
            yield _batch(some, schema)
            some, held = [], 0
    if some:
        yield _batch(some, schema)


def _batch(rows: list[Sequence[Any]], schema: pyarrow.Schema) -> Any:
    columns = zip(*rows, strict=True)
    arrays = [pyarrow.array(column, one.type) for column, one in zip(columns, schema, strict=True)]
    return pyarrow.RecordBatch.from_arrays(arrays, schema=schema)
