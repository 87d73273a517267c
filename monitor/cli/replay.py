"""`blindsight replay`: the daemon's computation over files, as fast as it goes on one core."""

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
from connectors.formats.wires.choice import columns_of, wire_for
from monitor.base.errors import ConfigError, SinkError, SourceError
from monitor.base.records import Chunk
from monitor.base.source import EndOfSource, Raw, RawBlock, RawTable
from monitor.cli.accounts import Accounts, accounts_of
from monitor.cli.reporting import write_report
from monitor.cli.settings import engine_settings
from monitor.config.file import load_config
from monitor.config.layouts import layouts
from monitor.config.root import Config
from monitor.export.charts.pictures import Alarm
from monitor.export.charts.svg import stacked_svg
from monitor.export.page.period import Period
from monitor.export.sinks.line_file import cannot_write
from monitor.export.sinks.queued import QueuedSink
from monitor.export.sinks.rejects_file import Rejected, RejectWriter
from monitor.export.sinks.reports_file import ReportWriter
from monitor.reports.views import ArenaView, EngineView, SeriesView
from monitor.reports.window_report import WindowReport, to_json
from monitor.stats.estimate.hajek import WeightedCounts

if TYPE_CHECKING:
    from monitor.engine.planning import Facts

REPORTS = "windows.ndjson"
REJECTS = "rejects.ndjson"
PAGE = "report.html"
OURS = (REPORTS, REJECTS, f"{REJECTS}.1", PAGE)
_NAME_BYTES = 150  # file systems allow 255; the ending and a number come on top
_READ_SECONDS = 0.2  # of a pipe only; a file is always ready
_WRITE_SECONDS = 60.0  # a replay waits for its disk: a missing line would be worse than a late one

Labelled = dict[tuple[str, str, str], dict[int, WeightedCounts]]

Progress = Callable[[Path, int], None]
"""Told the file that is being read, and how many bytes of it have been, where that is known."""


@dataclass(slots=True)
class Unused:
    """What could not be used.

    Parameters
    ----------
    answers, labels : Counter of str
        By reason.
    first : list of str
        The first messages: the file, the place in it, what was wrong.
    received : int
        Answers and labels, used or not.
    rows_left : Counter of str
        Rows that a mapping did not read, by the path of the one beside them that it read.
    """

    answers: Counter[str] = field(default_factory=Counter)
    labels: Counter[str] = field(default_factory=Counter)
    rows_left: Counter[str] = field(default_factory=Counter)
    first: list[str] = field(default_factory=list)
    received: int = 0

    @property
    def everything(self) -> bool:
        """Whether records came and not one was used."""
        return 0 < self.received == self.answers.total() + self.labels.total()


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay did.

    Parameters
    ----------
    view : EngineView
        The engine at the end.
    windows : int
        Closed windows written, each counted once however often it was revised.
    pictures : tuple of Path
    alarms : mapping of (task, model, group) to mapping of metric to tuple of Alarm
    unused : Unused
    rejects : Path or None
        Where those were written; None where the configuration has no `rejects`.
    accounts : Accounts
        What became of the answers and labels that could be used.
    notes : tuple of str
        What else whoever runs it should know, as sentences.
    seconds : tuple of float
        Of the processor, by process, where others than this one read and computed.
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


def replay(config_path: str, files: Sequence[Path], out: Path, progress: Progress) -> Replayed:
    """Compute the windows of files, one file after the other in the order given.

    Windows age by the records' own times, so that the same files give the same bytes. What could not be
    used goes to the folder too where the configuration has a `rejects` section, whatever path that names:
    a replay must not write among the daemon's rejects.

    Raises
    ------
    ConfigError
        The configuration, a file or the folder cannot be used; nothing was written.
    SourceError
        A file turned out to be damaged.
    SinkError
        The disk did not take everything.
    """
    from monitor.engine.planning import Facts

    config = load_config(config_path)
    engine = engine_settings(config, event_time=True).build()
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
    return Replayed(
        replace(view, series=series_of(config, [view], models)),
        written.windows,
        draw(engine.labelled(), written.period, out),
        written.period.histories.alarms(),
        unused_of([facts]),
        out / REJECTS if config.rejects else None,
        order_notes([facts], accounts),
        accounts,
    )


def order_notes(facts: Sequence[Facts], accounts: Accounts) -> tuple[str, ...]:
    """Return notes on the order of files, if any label found its answer."""
    from monitor.engine.planning import notes_of_order

    return tuple(notes_of_order(facts)) if accounts.labels.matched else ()


class Written:
    """The files of a replay, begun anew, and what the pictures need.

    Parameters
    ----------
    config : Config
    out : Path
        Their folder.

    Attributes
    ----------
    period : Period
    windows : int
        Closed windows written, revisions not counted.

    Raises
    ------
    ConfigError
        The folder cannot be used.
    """

    def __init__(self, config: Config, out: Path) -> None:
        self.period = period_of(config)
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
        """Write windows."""
        self.lines(map(to_json, reports), sum(not report.revision for report in reports))
        self.period.add(reports)

    def lines(self, lines: Iterable[bytes], windows: int) -> None:
        """Write lines, so many of windows that closed, of which `period` learns elsewhere."""
        for line in lines:
            self._reports.write(line, wait_seconds=_WRITE_SECONDS)
        self.windows += windows

    def rejected(self, rejects: Iterable[Rejected]) -> None:
        """Write what could not be used, where that is wanted."""
        if self._rejects is None:
            return
        for rejected in rejects:
            self._rejects.write(rejected, wait_seconds=_WRITE_SECONDS)

    def close(self) -> bool:
        """Whether every line is on the disk."""
        complete = self._reports.close(_WRITE_SECONDS) and not self._reports.lost
        if self._rejects is None:
            return complete
        return self._rejects.close(_WRITE_SECONDS) and not self._rejects.lost and complete


def period_of(config: Config) -> Period:
    """What takes the windows that a configuration closes, for their pictures."""
    judged = {name: task.chart.estimator for name, task in config.scored_tasks.items()}
    return Period(judged, external_url=config.export.external_url or "")


def check_files(files: Sequence[Path], out: Path) -> None:
    """Look at every file before the first is read: the last may be hours away.

    Raises
    ------
    ConfigError
        One cannot be read, or would be replaced.
    """
    for path in files:
        problem = why_not_a_file(path)
        if problem is not None:
            raise ConfigError(problem)
        if is_pipe(path):
            continue  # opened and closed again, its writer would take us for gone
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
    """Begin a file of the folder anew."""
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
    """What each read brought, and what its positions count."""
    known = layouts(config.tasks, numbered=config.numbers_rows)
    for path in files:
        wire = wire_for(config, str(path))
        source = FileSource(path, mapped=columns_of(wire))
        decoder = Decoder(known, source.name, keep=config.keep_of_rejects, wire=wire)
        source.open({})
        try:
            with suppress(EndOfSource):
                while True:
                    raws = source.read(_READ_SECONDS)
                    unit = "row" if any(isinstance(raw, RawTable) for raw in raws) else "byte"
                    yield decoder.decode(raws), unit
                    progress(path, _bytes_read(raws))
        finally:
            source.close()


def _bytes_read(raws: Sequence[Raw]) -> int:
    return sum(len(raw.data) for raw in raws if isinstance(raw, RawBlock))


def series_of(
    config: Config, views: Sequence[EngineView], models: Iterable[tuple[str, str]]
) -> tuple[SeriesView, ...]:
    """The series of engines in one order: by task, its models before their groups.

    Parameters
    ----------
    config : Config
    views : sequence of EngineView
    models : iterable of (task, model)
        In their order; others, which never answered, come after them.
    """
    tasks = {name: number for number, name in enumerate(config.tasks)}
    places = {name: number for number, name in enumerate(models)}

    def place(one: SeriesView) -> tuple[int, bool, int, str]:
        model = places.get((one.task, one.model), len(places))
        return tasks[one.task], one.group != "", model, one.group

    return tuple(sorted((one for view in views for one in view.series), key=place))


def arenas_of(config: Config, views: Sequence[EngineView]) -> tuple[ArenaView, ...]:
    """The arenas of engines in the order of the configuration."""
    found = {one.task: one for view in views for one in view.arenas}
    return tuple(found[name] for name in config.arenas if name in found)


def unused_of(facts: Sequence[Facts]) -> Unused:
    """What could not be used of the parts of a stream, in their order."""
    from monitor.engine.planning import MESSAGES_KEPT

    found = Unused()
    for each in facts:
        found.answers.update(each.answers_rejected)
        for (_, reason), count in each.labels_rejected.items():
            found.labels[reason] += count
        found.first += each.first[: MESSAGES_KEPT - len(found.first)]
        found.received += each.received
        found.rows_left.update(each.rows_left)
    return found


def draw(labelled: Labelled, period: Period, out: Path) -> tuple[Path, ...]:
    """A picture a model, and one a group, beside the reports; and all of them in one page.

    Parameters
    ----------
    labelled : mapping
        As `Engine.labelled` gives it.
    period : Period
    out : Path
        The folder.
    """
    paths: list[Path] = []
    for series, charts in period.histories.charts(labelled).items():
        path = out / f"{file_name(*series)}.svg"
        if path in paths:  # two names that differ only in what a file's name may not hold
            path = path.with_name(f"{path.stem}-{len(paths)}.svg")
        try:
            path.write_text(stacked_svg(charts), encoding="utf-8")
        except OSError as error:
            raise SinkError(cannot_write(str(path), error)) from error
        paths.append(path)
    write_report(out / PAGE, period.html(labelled))
    return tuple(paths)


def file_name(task: str, model: str, group: str) -> str:
    """A file's name for a series: no separators, nothing hidden, at most 150 bytes in UTF-8.

    Examples
    --------
    >>> file_name("toxicity", "erm/v2", "region=eu")
    'toxicity-erm_v2-region=eu'
    """
    parts = [re.sub(r"[^\w.=+-]", "_", part) for part in (task, model, group) if part]
    name = "-".join(parts).lstrip(".").encode("utf-8", "replace")
    return name[:_NAME_BYTES].decode("utf-8", "ignore")
