"""A worker process of a replay: it reads pieces of the input, and computes the models that it owns.

A worker carries out one order after another. Between orders it keeps the split that it is reading, its
engines, and the answers of its own models that it has read. All other answers and labels that it has read are
in files until the workers that own the models have computed them.
"""

from __future__ import annotations

import pickle
import signal
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from connectors.files import FileSource
from connectors.formats.decode.decoder import Decoder
from connectors.formats.files.line_cutter import BLOCK_BYTES
from connectors.formats.wires.choice import columns_of, wire_for
from connectors.splits import Split, is_plain, read_split
from monitor.base.collector import tune_collector
from monitor.base.errors import SinkError, SourceError
from monitor.base.records import Batch, Reject
from monitor.base.source import Raw, RawBlock, RawTable
from monitor.cli.accounts import Waiting
from monitor.cli.process import one_heap
from monitor.cli.replay import period_of
from monitor.config.layouts import layouts
from monitor.config.root import Config
from monitor.engine.engine import Engine, EngineSettings
from monitor.engine.partitioning import Begin, Partition, StreamPartitioner, joined
from monitor.engine.planning import Facts, Unit, most_groups, note_share, settings_of, with_models
from monitor.engine.report_order import OrderedReport, StreamPosition
from monitor.export.page.period import Period
from monitor.reports.views import EngineView
from monitor.reports.window_report import to_json

PIECE_BYTES = BLOCK_BYTES
"""The size of a piece, which is also the size that a single process reads at once.

Pieces and the reads of a single process therefore end at the same places, on which the labels that a full
join forgets depend (`LabelJoin`). Larger pieces would not be faster: with four times as many records in a
chunk, decoding takes a fifth longer for each record.
"""

_READS_OF_PIECE = 3  # a piece ends at the end of a line, so it may be longer than a read

Labelled = Mapping[tuple[str, str, str], Any]


@dataclass(frozen=True, slots=True)
class WorkerJob:
    """The job that all workers of a replay share.

    Parameters
    ----------
    config : Config
    settings : EngineSettings
        Settings of all tasks.
    splits : tuple of Split
        The splits of the input in the order of the stream.
    folder : Path
        Folder for shares that are read but not yet computed.
    """

    config: Config
    settings: EngineSettings
    splits: tuple[Split, ...]
    folder: Path


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
    waiting: Sequence[Waiting]
    labelled: Labelled
    resident: int
    seconds: float


Order = ReadPiece | ComputePieces | EndStream
Answer = Piece | list[ComputedLine] | EndedStream


def serve(connection: Connection, job: WorkerJob, models: Mapping[str, Sequence[str]]) -> None:
    """Answer orders until the other end closes the connection; an error is sent as an answer.

    Parameters
    ----------
    connection : Connection
    job : WorkerJob
    models : mapping of str to sequence of str
        The configured models that this worker owns, by task.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the main one ends this one
    one_heap()
    tune_collector()
    worker = ReplayWorker(job, models)
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the main process has ended
        while True:
            order = connection.recv()
            try:
                answer: object = worker.do(order)
            except SourceError as error:
                answer = SourceError(str(error))  # a subclass may not be created from its text alone
            except SinkError as error:
                answer = error
            except Exception:  # noqa: BLE001 - the main process raises it
                answer = RuntimeError(f"in a process of the replay:\n{traceback.format_exc()}")
            connection.send(answer)


class ReplayWorker:
    """The state of a worker process; see `serve`."""

    def __init__(self, job: WorkerJob, models: Mapping[str, Sequence[str]]) -> None:
        self._job = job
        self._models = models
        self._reading: SplitReader | None = None
        self._engines: dict[str, Engine] = {}
        self._period = period_of(job.config)
        self._own: set[tuple[str, str]] = set()
        self._kept: dict[tuple[Path, str, str], Partition] = {}

    def do(self, order: Order) -> Answer:
        """Carry out one order, and return its answer."""
        if isinstance(order, ReadPiece):
            return self._read(order)
        if isinstance(order, ComputePieces):
            return self._compute(order)
        return self._end()

    def _read(self, order: ReadPiece) -> Piece:
        if self._reading is None:
            self._reading = SplitReader(self._job, order.split)
        self._own.update(order.own)
        piece, kept = self._reading.next_piece(order.path, self._own)
        self._kept.update(((order.path, *name), share) for name, share in kept.items())
        if piece.last:
            self._reading = None
        return piece

    def _compute(self, order: ComputePieces) -> list[ComputedLine]:
        together: dict[tuple[str, int], list[tuple[Partition, Begin]]] = {}
        for number, piece in enumerate(order.pieces):
            with piece.path.open("rb") as file:
                for share in piece.shares:
                    name = piece.path, share.task, share.model
                    partition = share.read(file) if share.stop else self._kept.pop(name)
                    step = share.task, number if share.task in order.one_by_one else 0
                    together.setdefault(step, []).append((partition, piece.begin))
        return [
            line
            for (task, _), shares in together.items()
            for line in self._lines(self._engine(task).take(joined(shares, "replay"), 0.0))
        ]

    def _lines(self, reports: Sequence[OrderedReport]) -> list[ComputedLine]:
        self._period.add([ordered.report for ordered in reports])
        return [ComputedLine.from_report(ordered) for ordered in reports]

    def _engine(self, name: str) -> Engine:
        if name not in self._engines:
            settings = settings_of(self._job.settings, Unit(name, None, 0))
            own = with_models(settings.tasks, self._models[name])
            self._engines[name] = replace(settings, tasks=own).build()
        return self._engines[name]

    def _end(self) -> EndedStream:
        for name, own in self._models.items():
            if own:
                self._engine(name)  # so that models that never answered are listed as silent
        engines = self._engines.values()
        lines = [line for engine in engines for line in self._lines(engine.end())]
        labelled = {series: rows for engine in engines for series, rows in engine.labelled().items()}
        waiting = [engine.waiting_labels() for engine in engines]
        views = [engine.view() for engine in engines]
        return EndedStream(lines, self._period, views, waiting, labelled, *used())


def decoder_of(config: Config, split: Split) -> tuple[FileSource, Decoder]:
    """Return the source and the decoder of a split."""
    wire = wire_for(config, split.path)
    source = FileSource(split.path, mapped=columns_of(wire))
    known = layouts(config.tasks, numbered=config.numbers_rows)
    return source, Decoder(known, source.name, keep=config.keep_of_rejects, wire=wire)


class SplitReader:
    """A split that is read a piece at a time.

    Parameters
    ----------
    job : WorkerJob
    number : int
        Number of the split.
    """

    def __init__(self, job: WorkerJob, number: int) -> None:
        self._job, self._number = job, number
        self._caps = most_groups(job.settings)
        split = job.splits[number]
        source, self._decoder = decoder_of(job.config, split)
        at_once = _READS_OF_PIECE if is_plain(source.path) else 1
        self._raws: Iterator[Sequence[Raw]] = read_split(source, split, at_once)
        self._next: Sequence[Raw] | None = next(self._raws, None)

    def next_piece(
        self, path: Path, own: Set[tuple[str, str]]
    ) -> tuple[Piece, dict[tuple[str, str], Partition]]:
        """Decode the next piece, and write its shares to a file; an empty split is one empty piece.

        Return the piece, and the answers of the models `own`, which are not written.
        """
        raws = self._next or ()
        chunk = self._decoder.decode(raws)
        sharing, facts = StreamPartitioner(), Facts()
        facts.note(chunk, "row" if any(isinstance(raw, RawTable) for raw in raws) else "byte")
        shares, kept = [], {}
        try:
            # An existing file is overwritten in place, so that the system allocates no new memory for it.
            with path.open("r+b" if path.exists() else "wb") as file:
                for share in sharing.share(chunk):
                    if isinstance(share.records, Batch) and (share.task, share.model) in own:
                        kept[share.task, share.model] = share
                        shares.append(Slice(share.task, share.model, "", 0, 0))
                    else:
                        shares.append(_written(file, share, share.task, share.model, share.besides))
                    note_share(facts, share, 0, self._caps[share.task])
                times = _written(file, sharing.times(), "", "", "")
        except OSError as error:
            raise SinkError(
                f"{path.parent}, for what is read and not yet computed, cannot be written: "
                f"{error.strerror or error}; make room, name another folder in TMPDIR, or run it with "
                "--processes 1"
            ) from error
        facts.stretch = sharing.stretch
        size = sum(len(raw.data) for raw in raws if isinstance(raw, RawBlock))
        rejects = chunk.rejects if self._job.config.rejects else ()
        self._next = next(self._raws, None)
        last = self._next is None
        piece = Piece(self._number, last, path, facts, tuple(shares), times, size, rejects, chunk.source)
        return piece, kept


def _written(file: BinaryIO, value: object, task: str = "", model: str = "", besides: str = "") -> Slice:
    start = file.tell()
    pickle.dump(value, file, protocol=5)
    return Slice(task, model, besides, start, file.tell())


def used() -> tuple[int, float]:
    """Return the largest number of bytes of memory that this process held, and its processor time."""
    try:
        import resource
    except ImportError:  # Windows
        return 0, 0.0
    usage = resource.getrusage(resource.RUSAGE_SELF)
    unit = 1 if sys.platform == "darwin" else 1024
    return usage.ru_maxrss * unit, usage.ru_utime + usage.ru_stime
