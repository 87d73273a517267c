"""What every executor of a replay is told, and the rows that stages hand to each other."""

from __future__ import annotations

import io
import math
import pickle
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache
from typing import Any, NamedTuple
from zipimport import zipimporter

import numpy as np
import pyarrow

from connectors.spark.partitioning import Begin, Segment
from connectors.spark.splits import Split
from monitor.base.collector import tune_collector
from monitor.config.root import Config
from monitor.engine.engine import EngineSettings


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
        As of `connectors.spark.partitioning.Share`; ``""`` for what is no share.
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


@dataclass(slots=True)
class Facts:
    """What the driver must know of a split.

    Parameters
    ----------
    stretch : Segment
    models : dict of (task, model) to [place, rows]
        The place in the split of its first answer, and how many there are.
    groups : dict of task to set of (model, group)
        As far as they are no more than may be watched.
    labels : Counter of task
        Labels on their own or along with answers.
    answers_rejected : Counter of str
        By reason.
    labels_rejected : Counter of (task, reason)
        ``""`` for a label that names no task.
    first : list of str
        The first messages.
    received : int
        Answers and labels, used or not.
    largest : int
        Bytes of the largest share.
    ignored : int
        Events without answers that were passed over.
    rows_left : Counter of str
        Rows that the mapping did not read, by the path of the one beside them that it read.
    newest : float
        Of a stream: the largest time of a record, where it is no more than a day after that of its message.
    """

    stretch: Segment = field(default_factory=Segment)
    models: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    groups: dict[str, set[tuple[str, str]]] = field(default_factory=dict)
    labels: Counter[str] = field(default_factory=Counter)
    answers_rejected: Counter[str] = field(default_factory=Counter)
    labels_rejected: Counter[tuple[str, str]] = field(default_factory=Counter)
    first: list[str] = field(default_factory=list)
    received: int = 0
    largest: int = 0
    ignored: int = 0
    rows_left: Counter[str] = field(default_factory=Counter)
    newest: float = -math.inf


@dataclass(frozen=True, slots=True)
class Unit:
    """What one engine computes: one model of a task, or a whole task.

    Parameters
    ----------
    task : str
    model : str or None
        None for a whole task.
    rows : int
        Answers.
    """

    task: str
    model: str | None
    rows: int


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


_tune_once = cache(tune_collector)


def begin_task() -> None:
    """What an executor's Python, which works on one task after another, does at the start of each.

    Before each task Spark has Python look anew for modules. So each `zipimporter` reads all of its archive's
    directory again, in Python; Spark's archive has one for each package, which takes longer than to decode
    20,000 messages. Python makes an importer that is forgotten here again where it imports by it.
    """
    _tune_once()
    for path, importer in tuple(sys.path_importer_cache.items()):
        if isinstance(importer, zipimporter):
            del sys.path_importer_cache[path]


def packed(value: Any) -> bytes:
    """Something on its way from one of our processes to another, its arrays in as few bytes as hold them.

    Spark copies each byte of a share several times, to disks and between Java and Python, and most columns
    of a share hold one value only, or whole numbers that lie close together.

    Examples
    --------
    >>> order = np.arange(5_000, 6_000)
    >>> len(packed(order)) < 1_200 + 2 * 1_000, bool((unpacked(packed(order)) == order).all())
    (True, True)
    """
    file = io.BytesIO()
    _Packer(file, protocol=5).dump(value)
    return file.getvalue()


def unpacked(data: bytes) -> Any:
    """What `packed` was given."""
    return pickle.loads(data)


class _Packer(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        """How an array is put together again; anything else is packed as always."""
        if type(value) is not np.ndarray or value.dtype.kind not in "biufV" or not value.size:
            return NotImplemented
        if value.dtype.kind == "V":  # the draws of labels, which most have not
            return NotImplemented if value.tobytes().strip(b"\0") else (np.zeros, (value.shape, value.dtype))
        kind = value.dtype.str
        # The bits of a float as a whole number: what is not a number, and which zero it is, stay as they are.
        whole = kind if value.dtype.kind in "iu" else f"u{value.dtype.itemsize}"
        bits = value.view(whole)
        low, high = int(bits.min()), int(bits.max())
        if low == high:
            return _filled, (kind, value.shape, whole, low)
        narrow = np.min_scalar_type(high - low)
        if narrow.itemsize >= value.dtype.itemsize:
            return NotImplemented
        above = (bits - bits.dtype.type(low)).astype(narrow)
        return _widened, (kind, value.shape, whole, low, narrow.str, above.tobytes())


def _filled(kind: str, shape: tuple[int, ...], whole: str, low: int) -> Any:
    return np.full(shape, low, dtype=whole).view(kind)


def _widened(kind: str, shape: tuple[int, ...], whole: str, low: int, narrow: str, above: bytes) -> Any:
    bits = np.frombuffer(above, narrow).astype(whole)
    bits += bits.dtype.type(low)
    return bits.view(kind).reshape(shape)


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
