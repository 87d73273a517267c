"""One process of a replay on several: it reads pieces of the input, and computes the models that are its own.

It does one order after another, and keeps nothing between them but the split that it has begun to read, its
engines, and what it has read of its own models. The rest of that lies in a file until the processes have
computed it that it belongs to.
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
"""As much as one process reads at once, and cut at the same places.

Where a join is full, what it lets go of depends on where the stream is cut (`LabelJoin`). And to decode
four times as many records at once takes a fifth longer each.
"""

_READS_OF_PIECE = 3  # a piece ends where a line does, so it may be longer than a read

Labelled = Mapping[tuple[str, str, str], Any]


@dataclass(frozen=True, slots=True)
class WorkerJob:
    """What every process of a replay is told.

    Parameters
    ----------
    config : Config
    settings : EngineSettings
        Of all tasks.
    splits : tuple of Split
        In the order of the stream.
    folder : Path
        For what is read and not yet computed.
    """

    config: Config
    settings: EngineSettings
    splits: tuple[Split, ...]
    folder: Path


@dataclass(frozen=True, slots=True)
class ReadPiece:
    """An order: read and decode the next piece of a split, into a file, over what it may hold.

    Answers of models that are its own a process keeps in its memory, until it computes them.

    Parameters
    ----------
    split : int
    path : Path
    own : tuple of (task, model)
        Models that have become its own since the order before.
    """

    split: int
    path: Path
    own: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Slice:
    """Where in a piece's file a share lies; `task`, `model` and `besides` as of `Partition`.

    Nowhere, and as long as nothing, if the process that has read it keeps it.
    """

    task: str
    model: str
    besides: str
    start: int
    stop: int

    def read(self, file: BinaryIO) -> Any:
        """What was written there."""
        file.seek(self.start)
        return pickle.loads(file.read(self.stop - self.start))


@dataclass(frozen=True, slots=True)
class Piece:
    """The answer to `ReadPiece`.

    Parameters
    ----------
    split : int
    last : bool
        Whether the split ends with it.
    path : Path
        The file with its shares.
    facts : Facts
        Its `stretch` is the piece.
    shares : tuple of Slice
    times : Slice
        Where the times of its records lie.
    size : int
        Bytes that were read, of lines.
    rejects : tuple of Reject
        As far as they are to be kept.
    source : str
        The name of their source.
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
    """What a process is to take of a piece.

    Parameters
    ----------
    path : Path
    begin : Begin
        Where in the stream the piece begins.
    shares : tuple of Slice
    """

    path: Path
    begin: Begin
    shares: tuple[Slice, ...]


class ComputedLine(NamedTuple):
    """A line of the reports, and what the first process must know of it; its report stays where it is."""

    position: StreamPosition
    line: bytes
    window: int
    revision: int
    series: tuple[str, str, str]

    @classmethod
    def of(cls, ordered: OrderedReport) -> ComputedLine:
        """The line of a report."""
        report = ordered.report
        names = report.task, report.model, report.group
        return cls(ordered.position, to_json(report), report.window, report.revision, names)


@dataclass(frozen=True, slots=True)
class ComputePieces:
    """An order: take these, in the order of the stream; the answer is a list of `ComputedLine`.

    Parameters
    ----------
    pieces : tuple of PlacedShares
    one_by_one : frozenset of str
        Tasks of which each piece is taken by itself, as one process does; of the others all at once.
    """

    pieces: tuple[PlacedShares, ...]
    one_by_one: frozenset[str]


@dataclass(frozen=True, slots=True)
class EndStream:
    """An order: close what is open, and say what became of it; the answer is an `EndedStream`."""


@dataclass(frozen=True, slots=True)
class EndedStream:
    """What a process has computed.

    Parameters
    ----------
    lines : list of ComputedLine
        Those that the end brought.
    period : Period
        All windows of this process.
    views : list of EngineView
    waiting : list of mapping
        As `Engine.waiting_labels` gives them.
    labelled : mapping
        As `Engine.labelled` gives it.
    resident : int
        The most bytes of memory that it ever held; 0 where the system does not say.
    seconds : float
        Of the processor.
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
    """Answer orders until the other end is closed; what goes wrong is an answer too.

    Parameters
    ----------
    connection : Connection
    job : WorkerJob
    models : mapping of str to sequence of str
        By task, those of its configured models that are this process's own.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal it goes to all: the first process ends us
    one_heap()
    tune_collector()
    worker = ReplayWorker(job, models)
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the first process has gone
        while True:
            order = connection.recv()
            try:
                answer: object = worker.do(order)
            except SourceError as error:
                answer = SourceError(str(error))  # a kind of it may not be made anew from its text
            except SinkError as error:
                answer = error
            except Exception:  # noqa: BLE001 - the first process raises it
                answer = RuntimeError(f"in a process of the replay:\n{traceback.format_exc()}")
            connection.send(answer)


class ReplayWorker:
    """What a process does; see `serve`."""

    def __init__(self, job: WorkerJob, models: Mapping[str, Sequence[str]]) -> None:
        self._job = job
        self._models = models
        self._reading: SplitReader | None = None
        self._engines: dict[str, Engine] = {}
        self._period = period_of(job.config)
        self._own: set[tuple[str, str]] = set()
        self._kept: dict[tuple[Path, str, str], Partition] = {}

    def do(self, order: Order) -> Answer:
        """Carry out one order."""
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
                    found = share.read(file) if share.stop else self._kept.pop(name)
                    step = share.task, number if share.task in order.one_by_one else 0
                    together.setdefault(step, []).append((found, piece.begin))
        return [
            line
            for (task, _), shares in together.items()
            for line in self._lines(self._engine(task).take(joined(shares, "replay"), 0.0))
        ]

    def _lines(self, reports: Sequence[OrderedReport]) -> list[ComputedLine]:
        self._period.add([ordered.report for ordered in reports])
        return [ComputedLine.of(ordered) for ordered in reports]

    def _engine(self, name: str) -> Engine:
        if name not in self._engines:
            settings = settings_of(self._job.settings, Unit(name, None, 0))
            own = with_models(settings.tasks, self._models[name])
            self._engines[name] = replace(settings, tasks=own).build()
        return self._engines[name]

    def _end(self) -> EndedStream:
        for name, own in self._models.items():
            if own:
                self._engine(name)  # models that never answered show, as silent
        engines = self._engines.values()
        lines = [line for engine in engines for line in self._lines(engine.end())]
        labelled = {series: rows for engine in engines for series, rows in engine.labelled().items()}
        waiting = [engine.waiting_labels() for engine in engines]
        views = [engine.view() for engine in engines]
        return EndedStream(lines, self._period, views, waiting, labelled, *used())


def decoder_of(config: Config, split: Split) -> tuple[FileSource, Decoder]:
    """What a split is read and decoded with."""
    wire = wire_for(config, split.path)
    source = FileSource(split.path, mapped=columns_of(wire))
    known = layouts(config.tasks, numbered=config.numbers_rows)
    return source, Decoder(known, source.name, keep=config.keep_of_rejects, wire=wire)


class SplitReader:
    """Reads a split a piece at a time.

    Parameters
    ----------
    job : WorkerJob
    number : int
        Of the split.
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
        """Decode the next reads, and write their shares to a file; an empty split is one empty piece.

        The answers of `own` models, by task and name, are given back instead.
        """
        raws = self._next or ()
        chunk = self._decoder.decode(raws)
        sharing, facts = StreamPartitioner(), Facts()
        facts.note(chunk, "row" if any(isinstance(raw, RawTable) for raw in raws) else "byte")
        shares, kept = [], {}
        try:
            # Bytes that are there are written over: the system need not find memory for them anew.
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
    """The most bytes of memory that this process ever held, and the processor time that it has used."""
    try:
        import resource
    except ImportError:  # Windows
        return 0, 0.0
    found = resource.getrusage(resource.RUSAGE_SELF)
    unit = 1 if sys.platform == "darwin" else 1024
    return found.ru_maxrss * unit, found.ru_utime + found.ru_stime
