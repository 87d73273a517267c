"""The command `blindsight replay --processes N`: it writes the same bytes with many cores of one machine.

This process gives orders and writes the results; worker processes (`replay_worker`) carry out one order after
another. Workers read pieces of the input in any order. When everything before a piece is known, the shares of
the piece are sent to the workers that own its models. A worker computes waiting pieces before it reads more.
All workers are therefore busy whether reading or computing takes longer, and the amount that is read but not
yet computed is bounded.
"""

from __future__ import annotations

import itertools
import tempfile
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing import get_all_start_methods, get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from connectors.files import is_pipe
from connectors.splits import read_split, splits_of
from monitor.base.errors import ClusterError, ConfigError, SinkError
from monitor.cli.accounts import accounts_of
from monitor.cli.process import processes_for, start_fork_server
from monitor.cli.replay import (
    REJECTS,
    Progress,
    Replayed,
    Written,
    arenas_of,
    check_files,
    draw,
    order_notes,
    replay,
    series_of,
    unused_of,
)
from monitor.cli.replay_worker import (
    PIECE_BYTES,
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
    WorkerJob,
    decoder_of,
    serve,
    used,
)
from monitor.cli.settings import engine_settings
from monitor.config.file import load_config
from monitor.config.root import Config
from monitor.engine.engine import EngineSettings
from monitor.engine.partitioning import Begin, Segment, StreamPartitioner, each_begin
from monitor.engine.planning import (
    Facts,
    configured,
    kept,
    most_groups,
    note_share,
    notes_of,
    rows_of,
    too_many,
    units_of,
    why_whole,
)
from monitor.reports.views import EngineView

_MOST_PROCESSES = 1024
_SAMPLED = 16  # files whose first MiB is read to distribute the models
_COMPUTED_AT_ONCE = 4  # pieces in one order; a step of an engine takes about 0.3 ms, and so does an order
_ENDS_SECONDS = 5.0


def replay_on_cores(
    config_path: str, files: Sequence[Path], out: Path, progress: Progress, processes: int | None = None
) -> Replayed:
    """Compute the windows of files as `monitor.cli.replay.replay` does, with several processes.

    `out` gets the same bytes.

    Parameters
    ----------
    config_path : str
    files : sequence of Path
    out : Path
    progress : callable
    processes : int, optional
        The number of worker processes. The default is the number of cores, but at most one worker for each
        `monitor.cli.process.BYTES_A_PROCESS` of the input.

    Raises
    ------
    ConfigError, SourceError, SinkError
        The same as for `replay`.
    ClusterError
        A worker was killed, or died.
    """
    if processes is not None and not 1 <= processes <= _MOST_PROCESSES:
        raise ConfigError(
            f"--processes: expected 1 to {_MOST_PROCESSES}, got {processes}; leave it out for as many as "
            "there are cores"
        )
    config = load_config(config_path)
    number = processes_for(files, processes)
    reason = why_alone(files) if number > 1 else None
    if number == 1 or reason:
        done = replay(config_path, files, out, progress)
        return done if reason is None else replace(done, notes=(*done.notes, reason))
    start_fork_server()
    settings = engine_settings(config, event_time=True)
    check_files(files, out)
    splits = tuple(split for path in files for split in splits_of(path, PIECE_BYTES))
    whole: dict[str, str] = {}
    while True:
        with tempfile.TemporaryDirectory(prefix="blindsight-replay-") as folder:
            job = WorkerJob(config, settings, splits, Path(folder))
            outcome = _attempt(job, files, out, progress, number, whole)
        if isinstance(outcome, Replayed):
            return outcome
        whole = outcome


def why_alone(files: Sequence[Path]) -> str | None:
    """Return a sentence on why one process must compute everything, or None if several processes can."""
    for path in files:
        if is_pipe(path):
            return f"One process computed everything: {path} is a pipe, which only one process can read."
    return None


def _attempt(
    job: WorkerJob, files: Sequence[Path], out: Path, progress: Progress, number: int, whole: dict[str, str]
) -> Replayed | dict[str, str]:
    """Return the replay; or, if models that were separated are not independent, the tasks to keep whole."""
    owners = Owners(job.settings, number, _sampled(job, files), whole)
    written = Written(job.config, out)
    reported: Counter[Path] = Counter()

    def progressed(path: Path, size: int) -> None:
        reported[path] += size
        progress(path, size)

    try:
        with _started(job, owners) as workers:
            run = Scheduler(job, workers, owners, written, progressed)
            ended = run.run()
    except Together as error:
        for path, size in reported.items():
            progress(path, -size)
        return owners.whole | error.tasks
    finally:
        complete = written.close()
    if not complete:
        raise SinkError(f"{out}: the disk did not take every line; make room and run it again")
    return _result(job.config, out, owners, run, ended, written)


def _result(
    config: Config, out: Path, owners: Owners, run: Scheduler, ended: Sequence[EndedStream], written: Written
) -> Replayed:
    labelled = {series: rows for one in ended for series, rows in one.labelled.items()}
    written.period.join([one.period for one in ended], run.series)
    views = [view for one in ended for view in one.views]
    waiting = [each for one in ended for each in one.waiting]
    accounts = accounts_of(config, views, waiting, [run.facts])
    units = units_of([run.facts], owners.whole)
    reasons = owners.whole | why_whole(owners.settings, [run.facts])
    most = max(one.resident for one in ended), used()[0]
    memory = (
        f"{len(ended)} processes read and computed, each with at most {most[0] / 1e6:,.0f} MB of memory; "
        f"the one that wrote had {most[1] / 1e6:,.0f} MB."
    )
    return Replayed(
        EngineView(series=series_of(config, views, owners.order), arenas=arenas_of(config, views)),
        written.windows,
        draw(labelled, written.period, out),
        written.period.histories.alarms(),
        unused_of([run.facts]),
        out / REJECTS if config.rejects else None,
        (*notes_of(units, reasons, len(ended)), *order_notes([run.facts], accounts), memory),
        accounts,
        tuple(one.seconds for one in ended),
    )


def _sampled(job: WorkerJob, files: Sequence[Path]) -> list[Facts]:
    """Return facts on the input from the first MiB of each file: models with their answers, and labels."""
    facts_of_files = []
    caps = most_groups(job.settings)
    first = {split.path: split for split in reversed(job.splits)}
    for path in list(dict.fromkeys(files))[:_SAMPLED]:
        source, decoder = decoder_of(job.config, first[str(path)])
        raws = next(read_split(source, first[str(path)], 1), ())
        read = sum(len(getattr(raw, "data", b"")) for raw in raws)
        times = max(1.0, path.stat().st_size / read) if read else 1.0
        facts = Facts()
        for share in StreamPartitioner().share(decoder.decode(raws)):
            note_share(facts, share, 0, caps[share.task])
        models = {name: [place, int(rows * times)] for name, (place, rows) in facts.models.items()}
        labels = Counter({name: int(count * times) for name, count in facts.labels.items()})
        facts_of_files.append(replace(facts, models=models, labels=labels))
    return facts_of_files


class Together(Exception):  # noqa: N818 - not an error: the replay starts again
    """An exception that starts the replay again: models in different processes are not independent.

    Parameters
    ----------
    tasks : mapping of str to str
        The reason for each task whose models must stay in one process.
    """

    def __init__(self, tasks: Mapping[str, str]) -> None:
        super().__init__(tasks)
        self.tasks = dict(tasks)


class Owners:
    """The assignment of models to processes.

    The labels of a task are sent to every process that owns a model of the task, from the first label on. A
    model that first appears after labels is therefore assigned to one of these processes.

    Parameters
    ----------
    settings : EngineSettings
    processes : int
    sampled : sequence of Facts
        Facts on samples of the input.
    whole : mapping of str to str
        The reason for each task whose models must stay in one process.

    Attributes
    ----------
    order : dict of (task, model) to int
        The process of every model: first the configured models, then the others in order of appearance.
    whole : dict of str to str
    """

    def __init__(
        self, settings: EngineSettings, processes: int, sampled: Sequence[Facts], whole: Mapping[str, str]
    ) -> None:
        self.settings = settings
        self.whole = {**why_whole(settings, [_configured(settings), *sampled]), **whole}
        self.processes = processes
        self._loads = [0] * processes
        self._labelled: set[str] = set()
        self._homes: dict[str, list[int]] = {}
        rows = rows_of([_configured(settings), *sampled])
        by_task: Counter[str] = Counter()
        for (task, _), count in rows.items():
            by_task[task] += count
        self.order: dict[tuple[str, str], int] = dict.fromkeys(rows, -1)
        for key in sorted(rows, key=lambda key: -(by_task[key[0]] if key[0] in self.whole else rows[key])):
            self.order[key] = self._place(key[0], rows[key])

    def _place(self, task: str, rows: int) -> int:
        homes = self._homes.setdefault(task, [])
        bound = homes and (task in self.whole or task in self._labelled)
        process = min(homes if bound else range(len(self._loads)), key=lambda i: self._loads[i])
        if process not in homes:
            homes.append(process)
        self._loads[process] += rows
        return process

    def models(self, process: int) -> dict[str, list[str]]:
        """Return the configured models of a process, by task."""
        return {
            name: [model for model in models if self.order[name, model] == process]
            for name, models in configured(self.settings).items()
        }

    def own(self, process: int, known: int) -> tuple[tuple[str, str], ...]:
        """Return the models of a process that were assigned after the first `known` models of all processes.

        A model never moves to another process.
        """
        later = itertools.islice(self.order.items(), known, None)
        return tuple(name for name, owner in later if owner == process)

    def routed(self, piece: Piece) -> dict[int, tuple[Slice, ...]]:
        """Return the shares of a piece, by process; a new model is assigned to a process."""
        for (task, model), (_, rows) in sorted(piece.facts.models.items(), key=lambda item: item[1][0]):
            if (task, model) not in self.order:
                self.order[task, model] = self._place(task, rows)
        by_process: dict[int, list[Slice]] = {}
        for share in piece.shares:
            if share.model:
                by_process.setdefault(self.order[share.task, share.model], []).append(share)
                continue
            if not self._homes.get(share.task):
                self._place(share.task, 0)
            self._labelled.add(share.task)
            # Labels that came in an answer's record are already in the share with the answer.
            own = self.order[share.task, share.besides] if share.besides else None
            for process in self._homes[share.task]:
                if process != own:
                    by_process.setdefault(process, []).append(share)
        return {process: tuple(shares) for process, shares in by_process.items()}


def _configured(settings: EngineSettings) -> Facts:
    """Return facts with the models that the configuration names, without answers."""
    return Facts(
        models={(name, model): [0, 0] for name, models in configured(settings).items() for model in models}
    )


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
def _started(job: WorkerJob, owners: Owners) -> Iterator[list[_Worker]]:
    """Start the workers; kill them at the exit, as they hold nothing that would be lost."""
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
    """The main process of a replay, which gives orders to workers and writes their lines in stream order.

    Parameters
    ----------
    job : WorkerJob
    workers : list of _Worker
    owners : Owners
    written : Written
    progress : callable

    Attributes
    ----------
    facts : Facts
        Facts on the input up to the last piece whose place is known.
    series : dict of (task, model, group)
        The series with a closed window, in the order of their first closed windows.
    """

    def __init__(
        self, job: WorkerJob, workers: list[_Worker], owners: Owners, written: Written, progress: Progress
    ) -> None:
        self._job, self._workers, self._owners = job, workers, owners
        self._written, self._progress = written, progress
        self._most_held = 2 * len(workers) + 2
        self._files: list[Path] = []
        self._new_files = (job.folder / str(number) for number in itertools.count())
        self._unread = deque(range(len(job.splits)))
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
        """Compute everything, and return the final result of each worker.

        Raises
        ------
        Together
            Models in different processes are not independent.
        """
        while self._head < len(self._job.splits) or self._in_place:
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
        """Give an order to an idle worker: first to compute, so that less has to be held."""
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
        """Return whether there is room for a piece; the piece that all wait for always has room."""
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
            self._progress(Path(self._job.splits[answer.split].path), answer.size)
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
        self._written.rejected((reject, piece.source) for reject in piece.rejects)
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
        tasks = self._owners.settings.names

        def place(line: ComputedLine) -> tuple[Any, ...]:
            return line.position[:2], line.position.task_number(tasks), line.position[2:]

        lines.sort(key=place)
        closed = [line for line in lines if not line.revision]
        self._written.lines((line.line for line in lines), len(closed))
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
