"""The output of a replay on the terminal: progress, a table of models, alarms, and counts of records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from monitor.base.errors import SourceError
from monitor.base.names import BATCH_ROWS
from monitor.cli import series_table
from monitor.cli.accounts import table
from monitor.cli.replay import REPORTS, Replayed
from monitor.cli.replay_processes import replay_on_cores
from monitor.cli.replay_spark import OnSpark, replay_on_spark
from monitor.export.page.states import headline
from monitor.reports.features import sentence
from monitor.reports.statements import count, describe_shared
from monitor.reports.views import ObjectiveState
from monitor.reports.window_report import rfc3339

_PLAIN = (".ndjson", ".jsonl", ".json")


def replay_with_progress(
    config: str,
    files: Sequence[Path],
    out: Path,
    spark: OnSpark | None = None,
    processes: int | None = None,
) -> Replayed:
    """Replay files in processes or on Spark. Show the progress on standard error if it is a terminal."""
    if spark is not None:
        return replay_on_spark(config, files, out, spark)
    return _here(config, files, out, processes)


def print_results(done: Replayed, out: Path, as_json: bool) -> None:
    """Print the results of a replay into the folder `out`, as text or as a JSON document."""
    if as_json:
        from monitor.cli.documents import replay_document, to_json

        print(to_json(replay_document(done, out)))
        return
    console = series_table.output()
    if done.view.series:
        console.print(_table(done, console.width))
    for line in (
        *_of_state(done),
        *_of_series(done),
        *_of_alarms(done),
        *_of_files(done, out),
        *done.notes,
        *_of_accounts(done),
        *_of_rejects(done),
    ):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def refuse_unusable(done: Replayed, config: str) -> None:
    """Raise `SourceError` if there were records and none could be used."""
    if done.unused.everything:
        raise SourceError(
            f"not one of the {done.unused.received:,} answers and labels could be used; compare the first "
            f"messages with the tasks in {config}"
        )


def _here(config: str, files: Sequence[Path], out: Path, processes: int | None) -> Replayed:
    console = Console(stderr=True)
    if not console.is_terminal:  # older versions of rich print an empty line even for a disabled bar
        return replay_on_cores(config, files, out, lambda _path, _size: None, processes)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        bars = {path: bar.add_task(escape(path.name), total=_size(path)) for path in files}
        return replay_on_cores(
            config, files, out, lambda path, size: bar.advance(bars[path], size), processes
        )


def _size(path: Path) -> int | None:
    """Return the size of a file of lines, or None for other files, whose progress has no known end."""
    return path.stat().st_size if path.suffix in _PLAIN and path.is_file() else None


def _table(done: Replayed, width: int) -> Table:
    series = done.view.series
    columns = {
        "task": [Text(one.task) for one in series],
        "model": [Text(f"{one.model} {one.group}".strip()) for one in series],
        "windows": [Text(f"{one.windows_closed:,}") for one in series],
        "state": [series_table.state(one) for one in series],
        f"last {series_table.share_words(series)}, %": [series_table.newest_accuracy(one) for one in series],
        "realised, %, of labels": [series_table.realised(one) for one in series],
        "objective": [series_table.objective(one) for one in series],
    }
    if any(each.metric == "mae" for one in series for each in one.values):
        columns["last mae"] = [series_table.newest_error(one) for one in series]
    expendable = series_table.expendable(series, "last mae", "windows", "objective", "realised, %, of labels")
    return series_table.fitted(columns, expendable, width)


def _of_state(done: Replayed) -> Iterator[str]:
    """Yield the first sentence of the report: the worst state, and the counts of the other states."""
    models = [one for one in done.view.series if not one.group]
    if models:
        summary = headline(models)
        yield f"{summary.words} {summary.rest}".strip()


def _of_series(done: Replayed) -> Iterator[str]:
    """Yield lines that explain the table, and the objectives, whose column may not fit."""
    if done.view.series:
        yield "Realised is of the newest window that labels have reached, and of how many labels."
    yield from _of_audits(done)
    judged = [(one, o) for one in done.view.series for o in one.objectives]
    missed = [
        f"  {_name(one.task, one.model, one.group)}: {o.metric} {o.state.value.replace('_', ' ')}"
        for one, o in judged
        if o.state in (ObjectiveState.AT_RISK, ObjectiveState.BREACHED)
    ]
    if judged:
        yield "Objectives at risk or breached:" if missed else "No objective is at risk or breached."
    yield from missed


def _of_audits(done: Replayed) -> Iterator[str]:
    """Yield lines on how often confidences alone agreed with the labelled rows."""
    audited = [(one, one.coverage) for one in done.view.series if one.coverage is not None]
    if audited:
        yield "Newest batches of 30 labelled rows within the exact interval of their confidences:"
    for one, coverage in audited:
        yield (
            f"  {_name(one.task, one.model)}: {100 * coverage.ratio:.0f} % of {coverage.rows // BATCH_ROWS} "
            f"(right confidences: {100 * coverage.level:g} % or more)"
        )


def _name(*series: str) -> str:
    return " ".join(part for part in series if part)


def _of_alarms(done: Replayed) -> Iterator[str]:
    lines = [
        f"  {_name(*series)}: {len(raised)} {metric} "
        f"alarm{'s' if len(raised) > 1 else ''}, the first in window {raised[0].window} "
        f"(to {_time(raised[0].time)})"
        for series, metrics in done.alarms.items()
        for metric, raised in metrics.items()
    ]
    yield "Alarms:" if lines else "No alarm was raised."
    yield from lines
    if done.shared:
        yield "Changes that models share:"
    yield from (f"  {describe_shared(each)}" for each in done.shared)
    if done.faults:
        yield "Broken features:"
    for series, faults in done.faults.items():
        for each in faults:
            yield (
                f"  {_name(*series)}: {sentence([each.worst])}; {count(each.windows, 'window')}, "
                f"the first {each.window} (to {_time(each.time)})"
            )


def _time(seconds: float) -> str:
    return rfc3339(seconds)[:19].replace("T", " ") + " UTC"


def _of_files(done: Replayed, out: Path) -> Iterator[str]:
    if not done.unused.received:
        yield "There was no record in what was read."
    yield f"Windows: {done.windows:,}, in {out / REPORTS}. Pictures beside it: {len(done.pictures)}."


def _of_accounts(done: Replayed) -> Iterator[str]:
    if done.unused.received:
        yield from table(done.accounts, done.unused.answers, done.unused.labels)


def _of_rejects(done: Replayed) -> Iterator[str]:
    unused = done.unused
    for path, rows in unused.rows_left.items():
        yield f"The mapping reads {path} alone, and leaves {count(rows, 'row')} that stand beside it."
    if not unused.first:
        return
    yield "The first rejected (places count from 0, in a compressed file after unpacking):"
    yield from (f"  {message}" for message in unused.first)
    if done.rejects:
        yield f"All of them, as far as rejects.max_bytes allows: {done.rejects}"
    else:
        yield "For all of them, name a file under `rejects:` in the configuration."
