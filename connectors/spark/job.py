"""The settings of a replay, which every executor gets, and the rows that its stages exchange."""

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
from monitor.parallel.partitioning import Begin
from monitor.parallel.planning import Unit


@dataclass(frozen=True, slots=True)
class Job:
    """The settings and the input files of a replay on Spark."""

    config: Config
    settings: EngineSettings
    splits: tuple[Split, ...]


class BlockKind(IntEnum):
    """The kind of data in a block, which is a row from the first stage."""

    FACTS = 0
    TIMES = 1
    REJECTS = 2
    SHARE = 3


class Block(NamedTuple):
    """A row from the first stage. It has a share (the records of one model or task) or other data of a split.

    Parameters
    ----------
    kind : BlockKind
    task, model, besides : str
        See `monitor.parallel.partitioning.Partition`; ``""`` in a block that is not a share.
    split : int
    number : int
        The number of the chunk in the split; the shares of one chunk belong together.
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
    """The settings of the second stage, in addition to the job.

    Parameters
    ----------
    units : tuple of Unit
    begins : tuple of Begin
        The start of each split in the stream.
    """

    units: tuple[Unit, ...]
    begins: tuple[Begin, ...]


class LineRow(NamedTuple):
    """A row from the second stage. It has a line of the reports, or the result of a unit (`ENDED_UNIT`).

    The lines are sorted by the first eight columns. The column `ended` is `StreamPosition.task_number`.
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
"""The `stage` of a row with the result of a unit."""


_tune_once = cache(tune_collector)


def begin_task() -> None:
    """Prepare an executor's Python process, which runs one task after another, for the next task.

    Before each task Spark makes Python search for modules again, and then each `zipimporter` reads the whole
    directory of its archive, in Python. Spark's archive has an importer for each package, and all importers
    together take longer than decoding 20,000 messages. This function therefore removes the importers; Python
    creates an importer again when it needs one.
    """
    _tune_once()
    for path, importer in tuple(sys.path_importer_cache.items()):
        if isinstance(importer, zipimporter):
            del sys.path_importer_cache[path]


def packed(value: Any) -> bytes:
    """Serialize a value for another process of the job, with arrays in as few bytes as possible.

    Spark copies each byte of a share several times, to disks and between Java and Python. Most columns of a
    share hold a single value, or integers close to each other.

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
    """Return the value that `packed` has serialized."""
    return pickle.loads(data)


class _Packer(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        """Return a compact form of an array; other values are pickled as usual."""
        if type(value) is not np.ndarray or value.dtype.kind not in "biufV" or not value.size:
            return NotImplemented
        if value.dtype.kind == "V":  # the draws of labels, which most rows lack
            return NotImplemented if value.tobytes().strip(b"\0") else (np.zeros, (value.shape, value.dtype))
        kind = value.dtype.str
        # The bits of a float as an integer, which preserves NaN and the sign of zero.
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
    """Yield rows as record batches.

    Parameters
    ----------
    rows : iterable of Block or LineRow
    columns : str
        `BLOCKS` or `LINES`.
    each : int
        The approximate size of a batch in bytes of the last column.
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
