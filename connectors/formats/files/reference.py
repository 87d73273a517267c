"""Reads a labelled reference file whole: the rows that calibration and limits are set from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from connectors.files import FileSource, why_not_a_file
from connectors.formats.decode.decoder import Decoder
from connectors.formats.files.joining import join_batches, one_value, take
from connectors.formats.messages.hints import misspelt, names_of
from monitor.base.errors import ConfigError, SourceError
from monitor.base.records import Batch, Chunk, Floats, Ints, Reject, RejectReason, TaskLayout
from monitor.base.source import EndOfSource, Raw, RawBlock, RawTable

_SHOWN_REJECTS = 3
_WAIT_SECONDS = 0.2  # of a pipe only; a file is always ready
_KEPT = "scores", "predicted", "time", "label", "features"
_DROPPED = "key", "order", "partition", "position", "probability", "other", "request", "alone"


def read_reference(path: str | Path, layout: TaskLayout) -> Batch:
    """The labelled answers of a reference file, in order of their time.

    Rows of other tasks are passed over, so that several tasks can share a file. A row without a time takes
    the latest before it in the file, so that it keeps its place after that row, or 0 if there is none. The
    label of a record of several models is that of each.

    Parameters
    ----------
    path : str or Path
        NDJSON (plain, ``.gz``, ``.zst``), CSV or Parquet, by its name.
    layout : TaskLayout

    Returns
    -------
    Batch
        Only rows with a label, each with a time; `order` counts them. Of ids, places in the file and chances
        it has none: one value stands for all rows.

    Raises
    ------
    ConfigError
        The file cannot be read, a row of it cannot be used, or no row has a label.
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
    return reference_rows(str(path), _raws_of(Path(path)), layout)


def reference_rows(name: str, raws: Iterable[Raw], layout: TaskLayout) -> Batch:
    """As `read_reference`, of what was read already.

    Parameters
    ----------
    name : str
        What messages call it.
    raws : iterable of Raw
    layout : TaskLayout
    """
    reading = _Reading(name)
    decoder = Decoder([layout], name)
    for raw in raws:
        reading.add(raw, decoder.decode([raw]))
    if reading.rejected:
        raise ConfigError(reading.complaint())
    if reading.bare_labels:
        raise ConfigError(
            f"{name}: {reading.bare_labels} lines have a label and no scores; "
            "a reference file needs both on every line"
        )
    if not any((batch.label >= 0).any() for batch in reading.batches):
        raise ConfigError(
            f"{name}: no row of task {layout.name} has a label; a reference file needs label on every line"
            f"{misspelt(reading.names, ('label', 'correct'))}"
        )
    joined = join_batches(reading.batches, _KEPT)
    reading.batches.clear()  # references of thousands of models are gigabytes
    joined = replace(joined, time=_filled(joined.time))
    labelled = np.flatnonzero(joined.label >= 0)
    rows = labelled[np.argsort(joined.time[labelled], kind="stable")]
    return joined if np.array_equal(rows, joined.order) else take(joined, rows, _KEPT)


def _bare(batch: Batch) -> Batch:
    """The rows with what a reference is asked for, and each with its record's label."""
    nothing: dict[str, Any] = {name: one_value(getattr(batch, name), len(batch)) for name in _DROPPED}
    return replace(batch, label=_of_every_model(batch.label, batch.position), **nothing)


def _filled(time: Floats) -> Floats:
    """Each time, or the latest before it, or 0.

    Examples
    --------
    >>> _filled(np.array([np.nan, 5.0, np.nan, 3.0, np.nan])).tolist()
    [0.0, 5.0, 5.0, 3.0, 5.0]
    """
    latest = np.fmax.accumulate(time)
    return np.where(np.isnan(time), np.nan_to_num(latest, nan=0.0), time)


def _of_every_model(label: Ints, position: Ints) -> Ints:
    """Labels with the one that a record brought on all of its rows: they share a position in the file.

    Examples
    --------
    >>> _of_every_model(np.array([1, -1, -1, 0]), np.array([0, 0, 80, 160])).tolist()
    [1, 1, -1, 0]
    """
    starts = np.flatnonzero(np.diff(position, prepend=-1))
    return np.repeat(np.maximum.reduceat(label, starts), np.diff(starts, append=len(label)))


def _raws_of(path: Path) -> Iterator[Raw]:
    problem = why_not_a_file(path)
    if problem is not None:
        raise ConfigError(f"The reference cannot be read. {problem}")
    source = FileSource(path)
    try:
        source.open({})
        while True:
            yield from source.read(_WAIT_SECONDS)
    except EndOfSource:
        return
    except SourceError as error:
        raise ConfigError(f"The reference cannot be read. {error}") from error
    finally:
        source.close()


class _Reading:
    """What has been read of a reference so far."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.batches: list[Batch] = []
        self.bare_labels = 0
        self.rejected = 0
        self.names: tuple[str, ...] = ()  # of the first record's fields, or of the columns
        self._first: list[str] = []
        self._lines = 0

    def add(self, raw: Raw, chunk: Chunk) -> None:
        """Take what one read brought."""
        self.names = self.names or names_of(raw)
        self.batches.extend(map(_bare, chunk.batches))
        self.bare_labels += chunk.labels_received
        for reject in chunk.rejects:
            if reject.reason is RejectReason.UNKNOWN_TASK:
                continue  # rows of the tasks that share the file
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
        shown = "; ".join(self._first)
        more = self.rejected - len(self._first)
        rest = f"; and {more} more" if more else ""
        rows = "row" if self.rejected == 1 else "rows"
        return f"{self.name}: {self.rejected} {rows} of the reference cannot be used: {shown}{rest}"
