"""The command `blindsight replay`, which computes the windows of files in one process."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from connectors.files import FileSource, is_pipe, why_not_a_file
from connectors.formats.decode.decoder import Decoder
from connectors.formats.wires.choice import wire_for
from monitor.base.errors import ConfigError, SinkError, SourceError
from monitor.base.records import Chunk
from monitor.base.source import EndOfSource, Raw, RawBlock, RawTable
from monitor.cli.accounts import Accounts, accounts_of
from monitor.cli.reporting import write_report
from monitor.cli.trial import ReferenceTrial
from monitor.config.file import load_config
from monitor.config.layouts import layouts
from monitor.config.root import Config
from monitor.export.charts.pictures import Alarm
from monitor.export.charts.svg import stacked_svg
from monitor.export.page.period import FaultStretch, Period
from monitor.export.sinks.line_file import cannot_write
from monitor.export.sinks.queued import QueuedSink
from monitor.export.sinks.rejects_file import Rejected, RejectWriter
from monitor.export.sinks.reports_file import ReportWriter
from monitor.reports.shared import SharedView
from monitor.reports.views import EngineView, SeriesView, TaskView
from monitor.reports.window_report import WindowReport, to_json
from monitor.stats.estimate.hajek import WeightedCounts

if TYPE_CHECKING:
    from monitor.parallel.planning import Facts

REPORTS = "windows.ndjson"
REJECTS = "rejects.ndjson"
PAGE = "report.html"
OURS = (REPORTS, REJECTS, f"{REJECTS}.1", PAGE)
_NAME_BYTES = 150  # file systems allow 255, and an ending and a number are added
_READ_SECONDS = 0.2  # the longest wait for a pipe; a file is always ready
_WRITE_SECONDS = 60.0  # a replay waits for its disk, because a late line is better than a missing one

Labelled = dict[tuple[str, str, str], dict[int, WeightedCounts]]

Progress = Callable[[Path, int], None]
"""A function that is called with a file and the number of bytes read from it since the last call.

The number is that of uncompressed bytes. It is 0 for a table, and negative if the replay starts again.
"""


@dataclass(slots=True)
class Unused:
    """The numbers of records of a replay that could not be used.

    Parameters
    ----------
    answers, labels : Counter of str
        Counts by reason.
    first : list of str
        The first messages, each with file, place and fault.
    received : int
        The number of all answers and labels, including unusable records.
    rows_left : Counter of str
        The numbers of rows that were not read, because the mapping reads only one row of each record. The
        key is the path of the row that the mapping reads.
    """

    answers: Counter[str] = field(default_factory=Counter)
    labels: Counter[str] = field(default_factory=Counter)
    rows_left: Counter[str] = field(default_factory=Counter)
    first: list[str] = field(default_factory=list)
    received: int = 0

    @property
    def everything(self) -> bool:
        """True if there were records, and none of them could be used."""
        return 0 < self.received == self.answers.total() + self.labels.total()


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of a replay.

    Parameters
    ----------
    view : EngineView
        The engine at the end.
    windows : int
        The number of closed windows that were written, without revisions.
    pictures : tuple of Path
    alarms : mapping of (task, model, group) to mapping of metric to tuple of Alarm
    unused : Unused
    rejects : Path or None
        The file of unused records; None if the configuration has no `rejects`.
    accounts : Accounts
        The outcomes of the answers and labels that could be read.
    notes : tuple of str
        Further sentences to print for the user.
    seconds : tuple of float
        Processor time of each worker process, if there were any.
    faults : mapping of (task, model, group) to sequence of FaultStretch
        The faults of features.
    shared : tuple of SharedView
        The changes that the models of a task share, by their ends.
    """

    view: EngineView
    windows: int
    pictures: tuple[Path, ...]
    alarms: Mapping[tuple[str, str, str], Mapping[str, tuple[Alarm, ...]]]
    unused: Unused
    rejects: Path | None
    notes: tuple[str, ...] = ()
    accounts: Accounts = field(default_factory=Accounts)
    seconds: tuple[float, ...] = ()
    faults: Mapping[tuple[str, str, str], Sequence[FaultStretch]] = field(default_factory=dict)
    shared: tuple[SharedView, ...] = ()


def replay(config_path: str, files: Sequence[Path], out: Path, progress: Progress) -> Replayed:
    """Compute the windows of files, one file after the other in the order of `files`.

    The age of a window follows from the times of the records, so that the same files give the same bytes. If
    the configuration has a `rejects` section, rejects are written to the folder of the windows. The path in
    the section is ignored, so that the rejects do not mix with the daemon's rejects.

    Raises
    ------
    ConfigError
        The configuration, a file or the folder cannot be used. Nothing was written.
    SourceError
        A file is damaged.
    SinkError
        The disk did not accept all lines.
    """
    from monitor.parallel.planning import Facts

    config = load_config(config_path)
    engine = ReferenceTrial(config).engine_settings(event_time=True).build()
    check_files(files, out)
    written = Written(config, out)
    facts = Facts()
    try:
        for chunk, unit in _chunks(config, files, progress):
            facts.note(chunk, unit)
            written.rejected((reject, chunk.source) for reject in chunk.rejects)
            written.closed(engine.absorb(chunk, 0.0))
        written.closed(engine.finish())
    finally:
        complete = written.close()
    if not complete:
        raise SinkError(f"{out}: the disk did not take every line; make room and run it again")
    view = engine.view()
    models = [(one.task, one.model) for one in view.series if not one.group]
    accounts = accounts_of(config, [view], [engine.waiting_labels()], [facts])
    series = series_of(config, [view], models)
    return Replayed(
        replace(view, series=series),
        written.windows,
        draw(engine.labelled(), written.period, out, [view]),
        written.period.histories.alarms(),
        unused_of([facts]),
        out / REJECTS if config.rejects else None,
        order_notes([facts], accounts),
        accounts,
        faults=written.period.faults(),
        shared=written.period.shared(series),
    )


def order_notes(facts: Sequence[Facts], accounts: Accounts) -> tuple[str, ...]:
    """Return notes about the order of the files; none if no label joined its answer."""
    from monitor.parallel.planning import notes_of_order

    return tuple(notes_of_order(facts)) if accounts.labels.matched else ()


class Written:
    """Writes the output files of a replay, which it empties first, and collects the data of the pictures.

    Parameters
    ----------
    config : Config
    out : Path
        The folder of the files.

    Attributes
    ----------
    period : Period
    windows : int
        The number of closed windows that were written, without revisions.

    Raises
    ------
    ConfigError
        The folder cannot be used.
    """

    def __init__(self, config: Config, out: Path) -> None:
        self.period = Period.from_config(config)
        self.windows = 0
        self._reports = ReportWriter(str(out / REPORTS))
        self._rejects: RejectWriter | None = None
        _begin(self._reports, out / REPORTS)
        if config.rejects:
            self._rejects = RejectWriter(str(out / REJECTS), config.rejects.max_bytes)
            try:
                _begin(self._rejects, out / REJECTS)
            except ConfigError:
                self._reports.close(_WRITE_SECONDS)
                raise

    def closed(self, reports: Sequence[WindowReport]) -> None:
        """Write the reports of closed windows, and add them to `period`, from which pictures are drawn."""
        self.lines(map(to_json, reports), sum(not report.revision for report in reports))
        self.period.add(reports)

    def lines(self, lines: Iterable[bytes], windows: int) -> None:
        """Write reports as lines, `windows` of them without revisions; do not add the reports to `period`."""
        for line in lines:
            self._reports.write(line, wait_seconds=_WRITE_SECONDS)
        self.windows += windows

    def rejected(self, rejects: Iterable[Rejected]) -> None:
        """Write rejects if the configuration has a `rejects` section."""
        if self._rejects is None:
            return
        for rejected in rejects:
            self._rejects.write(rejected, wait_seconds=_WRITE_SECONDS)

    def close(self) -> bool:
        """Write the remaining lines, and return whether all lines were written."""
        complete = self._reports.close(_WRITE_SECONDS) and not self._reports.lost
        if self._rejects is None:
            return complete
        return self._rejects.close(_WRITE_SECONDS) and not self._rejects.lost and complete


def check_files(files: Sequence[Path], out: Path) -> None:
    """Check that every file can be read.

    The check is made before the replay, which may read the last file only after hours.

    Raises
    ------
    ConfigError
        A file cannot be read, or would be replaced by the output.
    """
    for path in files:
        problem = why_not_a_file(path)
        if problem is not None:
            raise ConfigError(problem)
        if is_pipe(path):
            continue  # if it were opened and closed, its writer would see a reader that went away
        source = FileSource(path)
        try:
            source.open({})
        except SourceError as error:
            raise ConfigError(str(error)) from error
        finally:
            source.close()
        for name in OURS:
            if (out / name).exists() and path.samefile(out / name):
                raise ConfigError(
                    f"--out: {name} would replace {path}, which is to be read; give another folder"
                )


def _begin(writer: QueuedSink[Any], path: Path) -> None:
    """Remove a file of an earlier replay, and start the writer."""
    out = path.parent
    if out.exists() and not out.is_dir():
        raise ConfigError(f"--out: {str(out)!r} is not a folder; give another path")
    try:
        out.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        if path.name == REJECTS:
            path.with_name(f"{REJECTS}.1").unlink(missing_ok=True)
        writer.start()
    except OSError as error:
        raise ConfigError(f"--out: {cannot_write(str(path), error)}") from error
    except SinkError as error:
        raise ConfigError(f"--out: {str(error).partition(': ')[2]}") from error


def _chunks(config: Config, files: Sequence[Path], progress: Progress) -> Iterator[tuple[Chunk, str]]:
    """Yield each decoded chunk, with the unit of its positions."""
    for path in files:
        for chunk, raws in chunks_of(config, path):
            yield chunk, "row" if any(isinstance(raw, RawTable) for raw in raws) else "byte"
            progress(path, _bytes_read(raws))


def chunks_of(
    config: Config, path: Path, positions: Mapping[str, Any] | None = None
) -> Iterator[tuple[Chunk, Sequence[Raw]]]:
    """Yield each decoded chunk of a file, with the raw records.

    Parameters
    ----------
    config : Config
    path : Path
    positions : mapping of str to object, optional
        The position after the last chunk, by partition: see `Engine.positions`. By default the file is read
        from its start.
    """
    wire = wire_for(config, str(path))
    source = FileSource(path, mapped=wire.columns)
    known = layouts(config.tasks, numbered=config.numbers_rows)
    decoder = Decoder(known, source.name, keep=config.keep_of_rejects, wire=wire)
    source.open(positions or {})
    try:
        with suppress(EndOfSource):
            while True:
                raws = source.read(_READ_SECONDS)
                yield decoder.decode(raws), raws
    finally:
        source.close()


def _bytes_read(raws: Sequence[Raw]) -> int:
    return sum(len(raw.data) for raw in raws if isinstance(raw, RawBlock))


def series_of(
    config: Config, views: Sequence[EngineView], models: Iterable[tuple[str, str]]
) -> tuple[SeriesView, ...]:
    """Return the series of engines in a fixed order: by task, with the models of a task before its groups.

    Parameters
    ----------
    config : Config
    views : sequence of EngineView
    models : iterable of (task, model)
        The models in the order of the result. Models that are not among them, because they never answered,
        are last in the result.
    """
    tasks = {name: number for number, name in enumerate(config.tasks)}
    places = {name: number for number, name in enumerate(models)}

    def place(one: SeriesView) -> tuple[int, bool, int, str]:
        model = places.get((one.task, one.model), len(places))
        return tasks[one.task], one.group != "", model, one.group

    return tuple(sorted((one for view in views for one in view.series), key=place))


def views_of_tasks(config: Config, views: Sequence[EngineView]) -> tuple[TaskView, ...]:
    """Return the views of whole tasks in the order of the configuration."""
    by_name = {one.task: one for view in views for one in view.tasks}
    return tuple(by_name[name] for name in config.tasks if name in by_name)


def unused_of(facts: Sequence[Facts]) -> Unused:
    """Return the records that could not be used. `facts` describe the parts of the stream, in order."""
    from monitor.parallel.planning import MESSAGES_KEPT

    unused = Unused()
    for each in facts:
        unused.answers.update(each.answers_rejected)
        for (_, reason), count in each.labels_rejected.items():
            unused.labels[reason] += count
        unused.first += each.first[: MESSAGES_KEPT - len(unused.first)]
        unused.received += each.received
        unused.rows_left.update(each.rows_left)
    return unused


def draw(
    labelled: Labelled,
    period: Period,
    out: Path,
    views: Sequence[EngineView],
) -> tuple[Path, ...]:
    """Write a picture for each model and group, and a page with all pictures, and return the pictures' paths.

    Parameters
    ----------
    labelled : mapping
        The result of `Engine.labelled`.
    period : Period
    out : Path
        The folder of the reports.
    views : sequence of EngineView
        The states of the engines at the end. The page and the terminal show the same states.

    Raises
    ------
    SinkError
        A file cannot be written.
    """
    paths: list[Path] = []
    for series, charts in period.histories.charts(labelled).items():
        path = out / f"{file_name(*series)}.svg"
        if path in paths:  # two names may differ only in characters that a file's name must not have
            path = path.with_name(f"{path.stem}-{len(paths)}.svg")
        try:
            path.write_text(stacked_svg(charts), encoding="utf-8")
        except OSError as error:
            raise SinkError(cannot_write(str(path), error)) from error
        paths.append(path)
    write_report(out / PAGE, period.html(labelled, views))
    return tuple(paths)


def file_name(task: str, model: str, group: str) -> str:
    """Return a file name for a series: without separators, not hidden, and at most 150 bytes of UTF-8.

    Examples
    --------
    >>> file_name("toxicity", "erm/v2", "region=eu")
    'toxicity-erm_v2-region=eu'
    """
    parts = [re.sub(r"[^\w.=+-]", "_", part) for part in (task, model, group) if part]
    name = "-".join(parts).lstrip(".").encode("utf-8", "replace")
    return name[:_NAME_BYTES].decode("utf-8", "ignore")
