"""Gives orders to the worker processes of a replay, and writes their reports in the order of the stream.

Workers read pieces of the input in any order. A piece is divided into shares, the records of single models.
When all pieces before it have been read, each share is sent to the worker that computes its model. A worker
computes waiting shares before it reads more. So all workers are busy, whether reading or computing takes more
time, and the amount of data that waits to be computed is bounded.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_all_start_methods, get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from monitor.base.errors import ClusterError
from monitor.export.sinks.rejects_file import Rejected
from monitor.parallel.orders import (
    Answer,
    ComputedLine,
    ComputePieces,
    EndedStream,
    EndStream,
    Order,
    Piece,
    PlacedShares,
    ReadPiece,
    Slice,
)
from monitor.parallel.owners import Owners, Together
from monitor.parallel.partitioning import Begin, Segment, each_begin
from monitor.parallel.planning import Facts, kept, most_groups, too_many, why_whole

_COMPUTED_AT_ONCE = 4  # pieces in one order; a step of an engine takes about 0.3 ms, and so does an order
_ENDS_SECONDS = 5.0


@dataclass(slots=True)
class _Worker:
    number: int
    process: BaseProcess
    connection: Connection
    order: Order | None = None
    reading: int | None = None
    known_models: int = 0
    computing: list[_PlacedPiece] = field(default_factory=list)
    waiting: deque[_PlacedPiece] = field(default_factory=deque)


@dataclass(slots=True, eq=False)
class _PlacedPiece:
    """A piece whose place in the stream is known."""

    path: Path
    begin: Begin
    shares: Mapping[int, tuple[Slice, ...]]
    missing: int
    lines: list[ComputedLine] = field(default_factory=list)


@contextmanager
def started(serve: Callable[..., None], job: object, owners: Owners) -> Iterator[list[_Worker]]:
    """Start the worker processes, and kill them when the ``with`` block ends.

    Parameters
    ----------
    serve : callable
        The function that each process runs. Its arguments are the process's end of a connection, `job`, and
        the configured models of the process, by task.
    job : object
        An argument for `serve`.
    owners : Owners
        The assignment of models to processes.
    """
    context: Any = get_context("forkserver" if "forkserver" in get_all_start_methods() else "spawn")
    with ExitStack() as stack:
        workers = []
        for number in range(owners.processes):
            ours, theirs = context.Pipe()
            stack.callback(ours.close)
            process = context.Process(
                target=serve, args=(theirs, job, owners.models(number)), name=f"replay-{number}", daemon=True
            )
            process.start()
            stack.callback(process.join, _ENDS_SECONDS)
            stack.callback(process.kill)
            theirs.close()
            workers.append(_Worker(number, process, ours))
        yield workers


class Scheduler:
    """The main process of a replay, which gives orders to workers and writes their reports.

    Reports are written in the order of the stream.

    Parameters
    ----------
    paths : sequence of Path
        The input file of each split (a part of the input), in the order of the stream.
    folder : Path
        The folder for records that workers have read, and for which no worker has computed windows yet.
    workers : list of _Worker
    owners : Owners
        The assignment of models to workers.
    write : callable
        Writes reports as lines. Its second argument is the number of newly closed windows among them.
    reject : callable
        Writes rejected records.
    progress : callable
        Takes a file and the number of bytes that were read from it.

    Attributes
    ----------
    facts : Facts
        Facts about the input from the start of the stream to the first piece that has not been read yet.
    series : dict of (task, model, group)
        The series that have a closed window, in the order of their first closed windows.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        folder: Path,
        workers: list[_Worker],
        owners: Owners,
        write: Callable[[Iterable[bytes], int], None],
        reject: Callable[[Iterable[Rejected]], None],
        progress: Callable[[Path, int], None],
    ) -> None:
        self._paths, self._workers, self._owners = paths, workers, owners
        self._write_lines, self._reject, self._progress = write, reject, progress
        self._most_held = 2 * len(workers) + 2
        self._files: list[Path] = []
        self._new_files = (folder / str(number) for number in itertools.count())
        self._unread = deque(range(len(paths)))
        self._head = 0
        self._read: dict[int, deque[Piece]] = {}
        self._in_place: deque[_PlacedPiece] = deque()
        self._segments: deque[Segment] = deque()
        self._placing: Piece | None = None
        self._begins = each_begin(self._next_segments(), lambda _: self._times())
        self._windows: Counter[str] = Counter()
        self._caps = most_groups(owners.settings)
        self.facts = Facts()
        self.series: dict[tuple[str, str, str], None] = {}

    def run(self) -> list[EndedStream]:
        """Run the whole replay, and return the final results of each worker.

        Raises
        ------
        Together
            Models in different processes are not independent.
        """
        while self._head < len(self._paths) or self._in_place:
            self._hand_out()
            for worker in self._answered():
                self._take(worker, worker.order, self._answer(worker))
        for worker in self._workers:
            self._send(worker, EndStream())
        ended = [self._answer(worker) for worker in self._workers]
        results = [one for one in ended if isinstance(one, EndedStream)]
        self._write([line for one in results for line in one.lines])
        return results

    def _hand_out(self) -> None:
        for worker in self._workers:
            if worker.order is None:
                self._give(worker)

    def _give(self, worker: _Worker) -> None:
        """Give an order to an idle worker. Orders to compute come first, so that less data waits."""
        if worker.waiting:
            batch = [worker.waiting.popleft() for _ in range(min(len(worker.waiting), _COMPUTED_AT_ONCE))]
            worker.computing = batch
            pieces = tuple(PlacedShares(one.path, one.begin, one.shares[worker.number]) for one in batch)
            self._send(worker, ComputePieces(pieces, frozenset(self._owners.whole)))
            return
        split = worker.reading
        if split is None and self._unread:
            split = self._unread[0]
        if split is not None and self._may_read(split):
            if worker.reading is None:
                worker.reading = self._unread.popleft()
            file = self._files.pop() if self._files else next(self._new_files)
            own = self._owners.own(worker.number, worker.known_models)
            worker.known_models = len(self._owners.order)
            self._send(worker, ReadPiece(split, file, own))

    def _may_read(self, split: int) -> bool:
        """Return whether there is room for a piece. There is always room for the next piece of the stream."""
        held = len(self._in_place) + sum(map(len, self._read.values()))
        under_way = sum(isinstance(worker.order, ReadPiece) for worker in self._workers)
        return held + under_way < self._most_held or (split == self._head and not self._in_place)

    def _answered(self) -> list[_Worker]:
        busy = {worker.connection: worker for worker in self._workers}
        return [busy[one] for one in wait(list(busy)) if isinstance(one, Connection)]

    def _send(self, worker: _Worker, order: Order) -> None:
        worker.order = order
        try:
            worker.connection.send(order)
        except OSError as error:
            raise self._death(worker) from error

    def _answer(self, worker: _Worker) -> Answer:
        try:
            answer: Answer | Exception = worker.connection.recv()
        except (EOFError, OSError) as error:
            raise self._death(worker) from error
        worker.order = None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _death(self, worker: _Worker) -> ClusterError:
        worker.process.join(_ENDS_SECONDS)
        code = worker.process.exitcode
        how = (
            "was killed (signal 9: by hand, or by the system for want of memory)"
            if code == -9
            else f"ended by signal {-code}"
            if code is not None and code < 0
            else f"ended with exit code {code}"
        )
        return ClusterError(
            f"a process of the replay {how}: the output is not complete; run it again, with fewer "
            "--processes if memory is short"
        )

    def _take(self, worker: _Worker, order: Order | None, answer: Answer) -> None:
        if isinstance(answer, Piece):
            self._progress(self._paths[answer.split], answer.size)
            worker.reading = None if answer.last else worker.reading
            self._read.setdefault(answer.split, deque()).append(answer)
            self._place_what_follows()
        elif isinstance(answer, list):
            begins = [piece_in_place.begin.sequence for piece_in_place in worker.computing]
            for line in answer:
                worker.computing[bisect_right(begins, line.position.sequence) - 1].lines.append(line)
            for piece_in_place in worker.computing:
                piece_in_place.missing -= 1
        self._write_what_is_complete()

    def _place_what_follows(self) -> None:
        while waiting := self._read.get(self._head):
            piece = waiting.popleft()
            self._place(piece)
            if piece.last:
                del self._read[self._head]
                self._head += 1

    def _place(self, piece: Piece) -> None:
        """Queue a piece for its workers, now that its place in the stream is known."""
        self._segments.append(piece.facts.stretch)
        self._placing = piece
        begin = next(self._begins)
        self.facts.absorb(piece.facts, begin.sequence, self._caps)
        self._refuse(why_whole(self._owners.settings, [self.facts]))
        self._reject((reject, piece.source) for reject in piece.rejects)
        shares = self._owners.routed(piece)
        piece_in_place = _PlacedPiece(piece.path, begin, shares, len(shares))
        self._in_place.append(piece_in_place)
        for process in shares:
            self._workers[process].waiting.append(piece_in_place)

    def _next_segments(self) -> Iterator[Segment]:
        while True:
            yield self._segments.popleft()

    def _times(self) -> Any:
        assert self._placing is not None
        with self._placing.path.open("rb") as file:
            return self._placing.times.read(file)

    def _refuse(self, whole: Mapping[str, str]) -> None:
        if more := {name: why for name, why in whole.items() if name not in self._owners.whole}:
            raise Together(more)

    def _write_what_is_complete(self) -> None:
        while self._in_place and not self._in_place[0].missing:
            piece_in_place = self._in_place.popleft()
            self._files.append(piece_in_place.path)
            self._write(piece_in_place.lines)

    def _write(self, lines: list[ComputedLine]) -> None:
        """Write the lines of a piece in the order in which a single process would."""
        tasks = list(self._owners.settings.tasks)

        def place(line: ComputedLine) -> tuple[Any, ...]:
            return line.position[:2], line.position.task_number(tasks), line.position[2:]

        lines.sort(key=place)
        closed = [line for line in lines if not line.revision]
        self._write_lines((line.line for line in lines), len(closed))
        for line in closed:
            if line.window == 0:  # the series may have started again
                self.series.pop(line.series, None)
            self.series.setdefault(line.series)
            self._windows[line.series[0]] += 1
        self._refuse(
            {
                task: too_many(self._owners.settings, task, self.facts.rows(task))
                for task, count in self._windows.items()
                if task not in self._owners.whole
                and self.facts.labels[task]
                and count > kept(self._owners.settings, task)
            }
        )
