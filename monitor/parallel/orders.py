"""The messages between the main process of a replay and its worker processes: orders and answers.

A split is a part of the input, such as a file. A worker reads a split in pieces. A share is the part of a
piece that belongs to one model, or to a whole task.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from monitor.base.records import Keys, Reject
from monitor.engine.report_order import OrderedReport, StreamPosition
from monitor.export.page.period import Period
from monitor.parallel.partitioning import Begin
from monitor.parallel.planning import Facts
from monitor.reports.views import EngineView
from monitor.reports.window_report import to_json
from monitor.stats.estimate.hajek import WeightedCounts


@dataclass(frozen=True, slots=True)
class ReadPiece:
    """An order to read the next piece of a split (an input file), and to divide its records by model.

    The worker keeps the records of its own models in memory. It writes the records of each other model to a
    file.

    Parameters
    ----------
    split : int
        The number of the split.
    path : Path
        The file for the records. If it exists, it is overwritten.
    own : tuple of (task, model)
        Models that were assigned to the worker since its last order.
    """

    split: int
    path: Path
    own: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Slice:
    """The range of bytes of a share (the records of one model or task in a piece) in a file.

    The names `task`, `model` and `besides` are those of the share's `Partition`. The range is empty if the
    worker that read the share keeps it in memory.
    """

    task: str
    model: str
    besides: str
    start: int
    stop: int

    def read(self, file: BinaryIO) -> Any:
        """Read the range of bytes, and return its unpickled value."""
        file.seek(self.start)
        return pickle.loads(file.read(self.stop - self.start))


@dataclass(frozen=True, slots=True)
class Piece:
    """The answer to `ReadPiece`: a piece of a split, which was read, decoded and divided into shares.

    Parameters
    ----------
    split : int
        The number of the split.
    last : bool
        Whether the piece is the last of its split.
    path : Path
        The file with the shares.
    facts : Facts
        Facts about the piece. Their `stretch` summarises the whole piece.
    shares : tuple of Slice
        The ranges of the shares in the file.
    times : Slice
        The range of the records' times in the file.
    size : int
        The size of the lines that were read from the input, in bytes; 0 for a table.
    rejects : tuple of Reject
        The rejected records; empty if the configuration has no `rejects`.
    source : str
        The name of the source of the rejected records.
    """

    split: int
    last: bool
    path: Path
    facts: Facts
    shares: tuple[Slice, ...]
    times: Slice
    size: int
    rejects: tuple[Reject, ...]
    source: str


@dataclass(frozen=True, slots=True)
class PlacedShares:
    """The shares in one piece of the input that are sent to one worker.

    A share is the records of one model, or of a whole task.

    Parameters
    ----------
    path : Path
        The file with the shares.
    begin : Begin
        The sequence number and the clock at the beginning of the piece.
    shares : tuple of Slice
        The ranges of the shares in the file.
    """

    path: Path
    begin: Begin
    shares: tuple[Slice, ...]


class ComputedLine(NamedTuple):
    """A report as a line of JSON, with the data by which the main process sorts lines."""

    position: StreamPosition
    line: bytes
    window: int
    revision: int
    series: tuple[str, str, str]

    @classmethod
    def from_report(cls, ordered: OrderedReport) -> ComputedLine:
        """Return the JSON line of a report, with the data by which lines are sorted."""
        report = ordered.report
        names = report.task, report.model, report.group
        return cls(ordered.position, to_json(report), report.window, report.revision, names)


@dataclass(frozen=True, slots=True)
class ComputePieces:
    """An order to process shares with the worker's engines. The answer is a list of `ComputedLine`.

    Parameters
    ----------
    pieces : tuple of PlacedShares
        The shares, in the order of the stream.
    one_by_one : frozenset of str
        The tasks whose engines process one piece after another, as a single process does. The engine of any
        other task processes all pieces in one call.
    """

    pieces: tuple[PlacedShares, ...]
    one_by_one: frozenset[str]


@dataclass(frozen=True, slots=True)
class EndStream:
    """An order to close the open windows and return all results. The answer is an `EndedStream`."""


@dataclass(frozen=True, slots=True)
class EndedStream:
    """The results of a worker at the end of the stream.

    Parameters
    ----------
    lines : list of ComputedLine
        The reports of the windows that were closed at the end of the stream.
    period : Period
        The collected reports of all windows of this worker.
    views : list of EngineView
        The states of the worker's engines.
    waiting : list of mapping
        The result of `Engine.waiting_labels` for each engine.
    labelled : mapping
        The results of `Engine.labelled` for all engines.
    resident : int
        The largest memory of the worker, in bytes; 0 if the system does not report it.
    seconds : float
        The processor time of the worker.
    """

    lines: list[ComputedLine]
    period: Period
    views: list[EngineView]
    waiting: Sequence[Mapping[str, Keys]]
    labelled: Mapping[tuple[str, str, str], dict[int, WeightedCounts]]
    resident: int
    seconds: float


Order = ReadPiece | ComputePieces | EndStream
Answer = Piece | list[ComputedLine] | EndedStream
