"""The replay of files as they were, which also saves the engine's state at the starting points of drops."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from connectors.files import FileSource, is_table_name
from connectors.formats.wires.choice import wire_for
from connectors.splits import is_plain
from monitor.base.errors import SinkError
from monitor.base.records import NO_ID, Batch, Chunk, Floats, Keys, LabelBatch
from monitor.base.source import EndOfSource, Raw, RawBlock, bytes_in, records_in
from monitor.cli.backtest.injecting import DropPoint, Model, models_with_baseline, without_labels
from monitor.cli.backtest.results import quantile
from monitor.cli.backtest.signals import SignalLog
from monitor.cli.replay import chunks_of
from monitor.config.root import Config
from monitor.engine.chunks import split
from monitor.engine.engine import Engine, EngineSettings
from monitor.export.page.period import Period
from monitor.parallel.planning import Facts
from monitor.reports.window_report import WindowReport

_PIECES = 256  # so many parts of the files or more, so that drops begin near the requested shares
_READ_SECONDS = 0.2
_COME = 0.9  # the share of the labels that come within the delay that counts
_MOST_TIMES = 1_000_000  # answers and labels of a task from which the delay of labels is measured


@dataclass(frozen=True, slots=True)
class WantedStart:
    """A requested starting point of a drop: a share of the files after the reference, or a time.

    Parameters
    ----------
    name : str
        The text of the option.
    share : float or None
        0 to 1.
    time : float or None
        Seconds since the epoch; the drop begins with the first answer that is not earlier.
    """

    name: str
    share: float | None = None
    time: float | None = None


@dataclass(frozen=True, slots=True)
class SavedStart:
    """A starting point of drops, with its place in the files and the states of the engines there.

    Parameters
    ----------
    point : DropPoint
    file : int
        The index of the file.
    positions : mapping of str to object
        The position before the chunk that holds the point.
    records : int
        The number of the chunk's answers and labels before the point.
    states : mapping of bool to Path
        The pickled states of the engine with labels (True) and of the engine without labels (False).
    models : mapping of bool to frozenset of Model
        The models that have a baseline there, by engine.
    """

    point: DropPoint
    file: int
    positions: Mapping[str, Any]
    records: int
    states: Mapping[bool, Path]
    models: Mapping[bool, frozenset[Model]]


@dataclass(slots=True)
class LabelDelays:
    """The times of the first answers and labels of a task, which show how late its labels come."""

    _answers: list[tuple[Keys, Floats]] = field(default_factory=list)
    _labels: list[tuple[Keys, Floats]] = field(default_factory=list)
    _along: int = 0
    _rows: int = 0

    def add(self, batch: Batch | LabelBatch) -> None:
        """Add a batch; labels that come along with their answers have no delay."""
        if isinstance(batch, Batch):
            self._along += int((batch.label >= 0).sum())
        if self._rows >= _MOST_TIMES:
            return
        self._rows += len(batch)
        if isinstance(batch, Batch):
            self._answers.append((batch.key, batch.time))
            return
        self._labels.append((batch.key, batch.time))
        if len(batch.first_row) == len(batch):  # a label of a request belongs to its rows
            self._labels.append((batch.first_row, batch.time))

    def longest(self) -> float:
        """Return the time within which 90 % of the labels come, in seconds; 0 without timed labels."""
        delays = np.zeros(self._along)
        if self._answers and self._labels:
            (keys, times), (labels, came) = (
                tuple(map(np.concatenate, zip(*pairs, strict=True)))
                for pairs in (self._answers, self._labels)
            )
            order = np.argsort(keys, kind="stable")
            place = np.minimum(np.searchsorted(keys[order], labels), len(keys) - 1)
            joined = (keys[order][place] == labels) & (labels != NO_ID)
            late = (came - times[order][place])[joined]
            delays = np.concatenate([delays, np.maximum(late[np.isfinite(late)], 0.0)])
        return quantile(delays.tolist(), _COME) or 0.0


@dataclass(slots=True)
class HistoryRun:
    """An engine that replays the history as it was, and the signals (alarms) in its reports.

    Attributes
    ----------
    signals : dict of Model to SignalLog
    period : Period
    """

    engine: Engine
    period: Period
    signals: dict[Model, SignalLog] = field(default_factory=dict)

    def note(self, reports: Sequence[WindowReport]) -> None:
        """Add the reports of closed windows to the period and to the signals of their models."""
        self.period.add(reports)
        for report in reports:
            if not report.group and not report.revision:
                self.signals.setdefault(Model(report.task, report.model), SignalLog()).add(report)


class HistoryReplay:
    """The replay of files as they were, with the files' labels and without labels.

    Parameters
    ----------
    config : Config
    settings : EngineSettings
    files : sequence of Path
    wanted : sequence of WantedStart
    tasks : collection of str
        The tasks with an accuracy. Shares count the part of the files that follows the first window of these
        tasks that a chart judges.
    folder : Path
        The folder for the states at the starting points.

    Attributes
    ----------
    runs : dict of bool to HistoryRun
        The engine with labels (True), and the engine without labels (False).
    starts : list of SavedStart
        The starting points that were reached, in the order of the stream.
    facts : Facts
    labels : int
        The number of labels in the files.
    delays : dict of str to LabelDelays
        How late labels come, by task.
    times : tuple of float
        The times of the first and of the last answer; NaN if no answer has a time.
    """

    def __init__(
        self,
        config: Config,
        settings: EngineSettings,
        files: Sequence[Path],
        wanted: Sequence[WantedStart],
        tasks: Collection[str],
        folder: Path,
    ) -> None:
        self.runs = {
            labelled: HistoryRun(settings.build(), Period.from_config(config)) for labelled in (True, False)
        }
        self.starts: list[SavedStart] = []
        self.facts = Facts()
        self.labels = 0
        self.delays: dict[str, LabelDelays] = {}
        self.times = math.nan, math.nan
        self._tasks = tasks
        self._config, self._files, self._folder = config, files, folder
        self._waiting = list(enumerate(wanted))
        # Files have one unit in common, so that shares of several files are right.
        self._amount_of = records_in if any(is_table_name(path.name) for path in files) else bytes_in
        self._sizes = [size_of(config, path, self._amount_of) for path in files]
        self._base: float | None = None  # the share of the files up to the first judged window
        self._record = 0

    def run(self) -> None:
        """Replay all files, and save the states at the starting points."""
        for number in range(len(self._files)):
            self._read(number)
        for run in self.runs.values():
            run.note(run.engine.finish())

    def _read(self, file: int) -> None:
        whole = max(sum(self._sizes), 1)
        consumed, size = sum(self._sizes[:file]), max(self._sizes[file], 1)
        path, read = self._files[file], 0
        for chunk, raws in chunks_of(self._config, path):
            self.facts.note(chunk, "byte" if any(isinstance(raw, RawBlock) for raw in raws) else "row")
            amount = min(sum(map(self._amount_of, raws)), size - read)
            positions = dict(self.runs[True].engine.positions(chunk.source))
            parts = max(1, math.ceil(_PIECES * amount / whole))
            records = 0
            for k, piece in enumerate(_pieces(chunk, parts)):
                at = (consumed + read + amount * k / parts) / whole
                place = file, positions, records
                self._absorb(piece, at, place)
                records += piece.answers + piece.labels_received
            read += amount

    def _absorb(self, chunk: Chunk, at: float, place: tuple[int, Mapping[str, Any], int]) -> None:
        """Absorb a piece of a chunk that begins at the share `at` of the files."""
        rest = chunk
        for number, wanted in list(self._waiting):
            stop = self._stop(wanted, rest, at)
            if stop is None:
                continue
            head, rest = split(rest, stop)
            self._take(head, at)
            self._waiting.remove((number, wanted))
            file, positions, records = place
            place = file, positions, records + stop
            self._save(number, wanted, rest, place)
        self._take(rest, at)

    def _stop(self, wanted: WantedStart, chunk: Chunk, at: float) -> int | None:
        """Return the number of records before a starting point in the chunk; None if the point is later."""
        if wanted.time is None:
            reached = self._base is not None and at >= self._base + (wanted.share or 0.0) * (1 - self._base)
            return 0 if reached else None
        late = [
            batch.order[first[0]]
            for batch in chunk.batches
            if len(first := np.flatnonzero(batch.time >= wanted.time))
        ]
        return int(min(late)) if late else None

    def _take(self, chunk: Chunk, at: float) -> None:
        for batch in chunk.batches:
            known = batch.time[~np.isnan(batch.time)]
            if len(known):
                earliest, latest = float(known.min()), float(known.max())
                self.times = float(np.fmin(self.times[0], earliest)), float(np.fmax(self.times[1], latest))
        batches: list[Batch | LabelBatch] = [*chunk.batches, *chunk.labels]
        for each in batches:
            self.delays.setdefault(each.task, LabelDelays()).add(each)
        along = sum(int((batch.label >= 0).sum()) for batch in chunk.batches)
        self.labels += along + sum(len(labels) for labels in chunk.labels)
        self.runs[True].note(self.runs[True].engine.absorb(chunk, 0.0))
        self.runs[False].note(self.runs[False].engine.absorb(without_labels(chunk), 0.0))
        self._record += chunk.answers + chunk.labels_received
        logs = self.runs[True].signals.items()
        if self._base is None and any(log.windows for model, log in logs if model.task in self._tasks):
            self._base = at

    def _save(
        self, number: int, wanted: WantedStart, chunk: Chunk, place: tuple[int, Mapping[str, Any], int]
    ) -> None:
        states = {labelled: self._folder / f"{number}-{labelled}.pickle" for labelled in self.runs}
        time, models = math.nan, dict[bool, frozenset[Model]]()
        for labelled, path in states.items():
            state = self.runs[labelled].engine.snapshot()
            time, models[labelled] = state.clock.now, models_with_baseline(state)
            try:
                path.write_bytes(pickle.dumps(state, protocol=5))
            except OSError as error:
                raise SinkError(
                    f"{path.parent}, for the states at the starting points, cannot be written: "
                    f"{error.strerror or error}; make room, or name another folder in TMPDIR"
                ) from error
        timed = self.times[0] < self.times[1]
        point = DropPoint(wanted.name, number, self._record, time, timed)
        self.starts.append(SavedStart(point, *place, states, models))

    def time_to_alarm(self, task: str) -> float:
        """Return the time from an answer to the alarm that its label can raise, in seconds.

        This is the time within which 90 % of the labels come, and the mean time between the windows of the
        median model, at most `window.max_age_seconds`, because an alarm begins with a window. The result is
        0 if labels come along with their answers.
        """
        delay = self.delays[task].longest() if task in self.delays else 0.0
        logs = [log for model, log in self.runs[True].signals.items() if model.task == task and log.timed]
        lengths = [(log.last_time - log.first_time) / (log.windows - 1) for log in logs]
        most = self._config.scored_tasks[task].window.max_age_seconds
        return delay + min(median(lengths or [0.0]), most) if delay else 0.0

    def missing_starts(self) -> list[WantedStart]:
        """Return the requested starting points that the files do not reach."""
        return [wanted for _, wanted in self._waiting]


def size_of(config: Config, path: Path, amount_of: Callable[[Raw], int]) -> int:
    """Return the size of a file: its number of rows and lines, or its uncompressed bytes.

    Parameters
    ----------
    config : Config
    path : Path
    amount_of : callable
        `records_in` or `bytes_in`, which define the unit.
    """
    if amount_of is bytes_in and is_plain(path):
        return path.stat().st_size
    source = FileSource(path, mapped=wire_for(config, str(path)).columns)
    source.open({})
    total = 0
    try:
        while True:
            total += sum(map(amount_of, source.read(_READ_SECONDS)))
    except EndOfSource:
        return total
    finally:
        source.close()


def _pieces(chunk: Chunk, parts: int) -> Iterator[Chunk]:
    """Yield a chunk in this number of parts with about equal numbers of records."""
    records = chunk.answers + chunk.labels_received
    for left in range(parts, 1, -1):
        stop = records // left
        head, chunk = split(chunk, stop)
        yield head
        records -= stop
    yield chunk
