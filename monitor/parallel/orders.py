"""The orders that the main process of a replay gives to a worker process, and the worker's answers."""

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
    """An order to decode the next piece of a split, and to write its shares to a file, which may exist.

    Answers of models that the worker owns stay in its memory until it computes them.

    Parameters
    ----------
    split : int
    path : Path
    own : tuple of (task, model)
        Models that were assigned to the worker since its last order.
    """

    split: int
    path: Path
    own: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Slice:
    """The place of a share in a piece's file; see `Partition` for `task`, `model` and `besides`.

    The length is zero if the worker that read the share keeps the share in memory.
    """

    task: str
    model: str
    besides: str
    start: int
    stop: int

    def read(self, file: BinaryIO) -> Any:
        """Return the value that was written at the place."""
        file.seek(self.start)
        return pickle.loads(file.read(self.stop - self.start))


@dataclass(frozen=True, slots=True)
class Piece:
    """The answer to `ReadPiece`.

    Parameters
    ----------
    split : int
    last : bool
        Whether the piece is the last of its split.
    path : Path
        The file with the piece's shares.
    facts : Facts
        Facts on the piece, with the whole piece as their `stretch`.
    shares : tuple of Slice
    times : Slice
        Place of the records' times.
    size : int
        The number of bytes read, if the file has lines.
    rejects : tuple of Reject
        Empty if the configuration has no `rejects`.
    source : str
        Name of the rejects' source.
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
    """The shares of a piece that one worker computes.

    Parameters
    ----------
    path : Path
    begin : Begin
        The beginning of the piece in the stream.
    shares : tuple of Slice
    """

    path: Path
    begin: Begin
    shares: tuple[Slice, ...]


class ComputedLine(NamedTuple):
    """A line of the reports, with the data by which lines are sorted; the report stays in the worker."""

    position: StreamPosition
    line: bytes
    window: int
    revision: int
    series: tuple[str, str, str]

    @classmethod
    def from_report(cls, ordered: OrderedReport) -> ComputedLine:
        """Return the line of a report."""
        report = ordered.report
        names = report.task, report.model, report.group
        return cls(ordered.position, to_json(report), report.window, report.revision, names)


@dataclass(frozen=True, slots=True)
class ComputePieces:
    """An order to compute shares in the order of the stream; the answer is a list of `ComputedLine`.

    Parameters
    ----------
    pieces : tuple of PlacedShares
    one_by_one : frozenset of str
        Tasks whose pieces the engine absorbs one after another, as in a single process. The engine absorbs
        all pieces of any other task at once.
    """

    pieces: tuple[PlacedShares, ...]
    one_by_one: frozenset[str]


@dataclass(frozen=True, slots=True)
class EndStream:
    """An order to close the open windows and return the results; the answer is an `EndedStream`."""


@dataclass(frozen=True, slots=True)
class EndedStream:
    """The results of a worker.

    Parameters
    ----------
    lines : list of ComputedLine
        Lines of the windows that were closed at the end of the stream.
    period : Period
        All windows of this worker.
    views : list of EngineView
        The states of the worker's engines.
    waiting : list of mapping
        The result of `Engine.waiting_labels` for each engine.
    labelled : mapping
        The results of `Engine.labelled` for all engines.
    resident : int
        The largest number of bytes of memory that the worker held; 0 if the system does not report it.
    seconds : float
        Processor time.
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
