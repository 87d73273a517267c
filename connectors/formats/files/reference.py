"""Reads labelled reference files, from which calibrations and the limits of charts are computed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from connectors.files import FileSource, why_not_a_file
from connectors.formats.decode.decoder import Decoder
from connectors.formats.files.joining import join_batches, one_value, take
from connectors.formats.messages.hints import misspelt, names_of
from monitor.base.errors import ConfigError, SourceError
from monitor.base.records import Batch, Chunk, Floats, Ints, Reject, RejectReason, TaskLayout
from monitor.base.source import EndOfSource, Raw, RawBlock, RawTable

_SHOWN_REJECTS = 3
_WAIT_SECONDS = 0.2  # for a pipe; a file is always ready
_KEPT = "scores", "predicted", "time", "label", "features", "numbers"
_DROPPED = "key", "order", "partition", "position", "probability", "other", "request", "alone"


def read_reference(path: str | Path, layout: TaskLayout) -> Batch:
    """Return the labelled answers of a reference file in order of time.

    Rows of other tasks are ignored, so that several tasks can share a file. A row without a time gets the
    latest time of the rows before it in the file, or 0 if no row before it has a time. If a record has
    several models, its label applies to each model.

    Parameters
    ----------
    path : str or Path
        An NDJSON (plain, ``.gz`` or ``.zst``), CSV or Parquet file; the extension determines the format.
    layout : TaskLayout

    Returns
    -------
    Batch
        The rows with a label, each with a time; `order` counts the rows. Ids, positions and probabilities are
        not read: these columns have the same value in all rows.

    Raises
    ------
    ConfigError
        The file cannot be read, a row cannot be used, or no row has a label.
    MissingExtraError
        The format needs an optional package.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "reference.csv"
    >>> _ = path.write_text("model,label,scores.ok,scores.toxic\\nerm,toxic,0.25,0.75\\nerm,ok,0.5,0.5\\n")
    >>> batch = read_reference(path, TaskLayout("toxicity", ("ok", "toxic")))
    >>> batch.label.tolist(), batch.predicted.tolist()
    ([1, 0], [1, 0])
    """
    return reference_rows(str(path), _read_raws(Path(path), layout.name), layout)


def reference_rows(name: str, raws: Iterable[Raw], layout: TaskLayout) -> Batch:
    """Return the labelled answers in raw input, in the same form as `read_reference`.

    Parameters
    ----------
    name : str
        The name of the input in messages.
    raws : iterable of Raw
    layout : TaskLayout

    Raises
    ------
    ConfigError
        A row cannot be used, has a label and no answer, or no row has a label.
    """
    reading = _Reading(name)
    decoder = Decoder([layout], name)
    for raw in raws:
        reading.add(raw, decoder.decode([raw]))
    if reading.rejected:
        raise ConfigError(reading.complaint())
    if reading.bare_labels:
        raise ConfigError(
            f"{name}: {reading.bare_labels} lines have a label and no {layout.answer_field}; "
            "a reference file needs both on every line"
        )
    if not any((batch.label >= 0).any() for batch in reading.batches):
        raise ConfigError(
            f"{name}: no row of task {layout.name} has a label; a reference file needs label on every line"
            f"{misspelt(reading.names, ('label', 'correct'))}"
        )
    joined = join_batches(reading.batches, _KEPT)
    reading.batches.clear()  # frees memory: references of thousands of models take gigabytes
    joined = replace(joined, time=_filled(joined.time))
    labelled = np.flatnonzero(joined.label >= 0)
    rows = labelled[np.argsort(joined.time[labelled], kind="stable")]
    return joined if np.array_equal(rows, joined.order) else take(joined, rows, _KEPT)


def _bare(batch: Batch) -> Batch:
    """Return the rows without the columns that a reference does not need, and with their records' labels."""
    nothing: dict[str, Any] = {name: one_value(getattr(batch, name), len(batch)) for name in _DROPPED}
    numbers = batch.numbers
    if numbers.shape[1]:
        numbers = np.column_stack((numbers[:, 0], _spread_labels(numbers[:, 1], batch.position)))
    return replace(batch, label=_spread_labels(batch.label, batch.position), numbers=numbers, **nothing)


def _filled(time: Floats) -> Floats:
    """Return each time, or the latest time before it, or 0.

    Examples
    --------
    >>> _filled(np.array([np.nan, 5.0, np.nan, 3.0, np.nan])).tolist()
    [0.0, 5.0, 5.0, 3.0, 5.0]
    """
    latest = np.fmax.accumulate(time)
    return np.where(np.isnan(time), np.nan_to_num(latest, nan=0.0), time)


def _spread_labels(label: NDArray[Any], position: Ints) -> NDArray[Any]:
    """Return labels with that of a record on all of its rows, which share a position in the file.

    Examples
    --------
    >>> _spread_labels(np.array([1, -1, -1, 0]), np.array([0, 0, 80, 160])).tolist()
    [1, 1, -1, 0]
    """
    starts = np.flatnonzero(np.diff(position, prepend=-1))
    return np.repeat(np.fmax.reduceat(label, starts), np.diff(starts, append=len(label)))


def _read_raws(path: Path, task: str) -> Iterator[Raw]:
    place = f"tasks.{task}.reference.path"
    problem = why_not_a_file(path)
    if problem is not None:
        raise ConfigError(f"{place}: {problem}")
    source = FileSource(path)
    try:
        source.open({})
        while True:
            yield from source.read(_WAIT_SECONDS)
    except EndOfSource:
        return
    except SourceError as error:
        raise ConfigError(f"{place}: {error}") from error
    finally:
        source.close()


class _Reading:
    """The rows of a reference that have been read, with counts of unusable ones."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.batches: list[Batch] = []
        self.bare_labels = 0
        self.rejected = 0
        self.names: tuple[str, ...] = ()  # of the fields of the first record, or of the columns
        self._first: list[str] = []
        self._lines = 0

    def add(self, raw: Raw, chunk: Chunk) -> None:
        """Add the decoded chunk of a raw input."""
        self.names = self.names or names_of(raw)
        self.batches.extend(map(_bare, chunk.batches))
        self.bare_labels += chunk.labels_received
        for reject in chunk.rejects:
            if reject.reason is RejectReason.UNKNOWN_TASK:
                continue  # rows of other tasks in a shared file
            self.rejected += 1
            if len(self._first) < _SHOWN_REJECTS:
                self._first.append(f"{self._place(raw, reject)}: {reject.message}")
        self._lines += raw.data.count(b"\n") if isinstance(raw, RawBlock) else 1

    def _place(self, raw: Raw, reject: Reject) -> str:
        if isinstance(raw, RawTable):
            return f"row {reject.position + 1}"
        before = raw.data.count(b"\n", 0, reject.position - raw.start) if isinstance(raw, RawBlock) else 0
        return f"line {self._lines + before + 1}"

    def complaint(self) -> str:
        """Return the message about the rejected rows, with the first few of them."""
        shown = "; ".join(self._first)
        more = self.rejected - len(self._first)
        rest = f"; and {more} more" if more else ""
        rows = "row" if self.rejected == 1 else "rows"
        return f"{self.name}: {self.rejected} {rows} of the reference cannot be used: {shown}{rest}"
