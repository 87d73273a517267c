"""A worker process of a replay: it reads parts of the input, and computes the windows of its models.

A worker carries out one order of the main process after another. Between orders it keeps the split (a part of
an input file) that it is reading, its engines, and the answers of its models that it has read. It writes all
other answers and labels to files, for the workers of their models.
"""

from __future__ import annotations

import pickle
import signal
import traceback
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import BinaryIO

from connectors.files import FileSource
from connectors.formats.decode.decoder import Decoder
from connectors.formats.files.line_cutter import BLOCK_BYTES
from connectors.formats.wires.choice import wire_for
from connectors.splits import Split, is_plain, read_split
from monitor.base.collector import tune_collector
from monitor.base.errors import SinkError, SourceError
from monitor.base.records import Batch
from monitor.base.source import Raw, RawBlock, RawTable
from monitor.cli.process import one_heap
from monitor.config.layouts import layouts
from monitor.config.root import Config
from monitor.engine.engine import EngineSettings
from monitor.export.page.period import Period
from monitor.parallel.computing import Computer
from monitor.parallel.orders import Answer, ComputePieces, Order, Piece, ReadPiece, Slice
from monitor.parallel.partitioning import Partition, StreamPartitioner
from monitor.parallel.planning import Facts, most_groups, note_share

PIECE_BYTES = BLOCK_BYTES
"""The size of a piece, which is also the size that a single process reads at once.

Therefore pieces and the reads of a single process end at the same places. This matters because the labels
that a full join forgets depend on these places (`LabelJoin`). Larger pieces would not be faster: with four
times as many records in a chunk, decoding takes 20 % longer for each record.
"""

_READS_OF_PIECE = 3  # a piece ends at the end of a line, so it may be longer than a read


@dataclass(frozen=True, slots=True)
class WorkerJob:
    """The settings and the input of a replay. All workers of the replay get them.

    Parameters
    ----------
    config : Config
    settings : EngineSettings
        Settings of all tasks.
    splits : tuple of Split
        The input files, large ones divided, in the order of the stream.
    folder : Path
        The folder for records that workers have read, and for which no worker has computed windows yet.
    """

    config: Config
    settings: EngineSettings
    splits: tuple[Split, ...]
    folder: Path


def serve(connection: Connection, job: WorkerJob, models: Mapping[str, Sequence[str]]) -> None:
    """Answer orders until the other end closes the connection. An error is sent as an answer.

    Parameters
    ----------
    connection : Connection
    job : WorkerJob
    models : mapping of str to sequence of str
        The configured models of this worker, by task.
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
    """The state of a worker process, which carries out orders for `serve`."""

    def __init__(self, job: WorkerJob, models: Mapping[str, Sequence[str]]) -> None:
        self._job = job
        self._computer = Computer(job.settings, models, Period.from_config(job.config))
        self._reading: SplitReader | None = None
        self._own: set[tuple[str, str]] = set()

    def do(self, order: Order) -> Answer:
        """Carry out one order, and return its answer."""
        if isinstance(order, ReadPiece):
            return self._read(order)
        if isinstance(order, ComputePieces):
            return self._computer.compute(order)
        return self._computer.end()

    def _read(self, order: ReadPiece) -> Piece:
        if self._reading is None:
            self._reading = SplitReader(self._job, order.split)
        self._own.update(order.own)
        piece, kept = self._reading.next_piece(order.path, self._own)
        self._computer.keep(order.path, kept)
        if piece.last:
            self._reading = None
        return piece


def decoder_of(config: Config, split: Split) -> tuple[FileSource, Decoder]:
    """Return the file source and the decoder with which a split is read."""
    wire = wire_for(config, split.path)
    source = FileSource(split.path, mapped=wire.columns)
    known = layouts(config.tasks, numbered=config.numbers_rows)
    return source, Decoder(known, source.name, keep=config.keep_of_rejects, wire=wire)


class SplitReader:
    """A reader of a split (a part of an input file), which reads one piece for each order.

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
        """Decode the next piece, and write its records to the file `path`, except those of the models `own`.

        Return a description of the piece, and the records of the models `own`. An empty split has one empty
        piece.

        Raises
        ------
        SinkError
            The file cannot be written.
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
