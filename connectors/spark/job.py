"""What every executor of a replay is told, and the rows that stages hand to each other."""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import Any, NamedTuple
from zipimport import zipimporter

import numpy as np
import pyarrow

from connectors.splits import Split
from monitor.base.collector import tune_collector
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

    The first seven columns are the order of the lines; `ended` is `StreamPosition.task_number`.
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
