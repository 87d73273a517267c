"""A replay in the terminal: a progress bar, then a line a model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from monitor.commands.replay import REPORTS, Replayed, replay
from monitor.result import Estimate
from monitor.view import LabelOutcome, MetricEstimate, SeriesView

_PLAIN = (".ndjson", ".jsonl", ".json")
_WIDE = 160  # columns where the output is no terminal: a table cut to 80 would lose figures


def replay_with_progress(config: str, files: Sequence[Path], out: Path) -> None:
    """Replay files and say what came out."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        bars = {path: bar.add_task(escape(path.name), total=_size(path)) for path in files}
        done = replay(config, files, out, lambda path, size: bar.advance(bars[path], size))
    _summarise(done, out)


def _size(path: Path) -> int | None:
    """Bytes to come, where the file says: a compressed one does not."""
    return path.stat().st_size if path.suffix in _PLAIN and path.is_file() else None


def _summarise(done: Replayed, out: Path) -> None:
    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, _WIDE)
    table = Table("task", "model", "windows", "state", "last estimate", "realised")
    for series in done.view.series:
        table.add_row(
            escape(series.task),
            escape(f"{series.model} {series.group}".strip()),
            str(series.windows_closed),
            series.state.value,
            shown(series, "average_confidence"),
            shown(series, "realised"),
        )
    console.print(table)
    summary = f"Windows: {done.windows}, in {out / REPORTS}. Pictures beside it: {len(done.pictures)}."
    lines = [summary, *_of_rejects(done)]
    console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)


def _of_rejects(done: Replayed) -> list[str]:
    if not done.rejects:
        return []
    answers = sum(done.view.rejected.values())
    labels = sum(n for (_, outcome), n in done.view.labels.items() if outcome is LabelOutcome.REJECTED)
    counts = f"Not used: {answers} answers, {labels} labels. The first of them:"
    return [counts, *(f"  {message}" for message in done.rejects)]


def shown(series: SeriesView, estimator: str) -> str:
    """The accuracy by one estimator, with its interval, in percent.

    Returns
    -------
    str
        ``91.3 % (88.8–93.6)``, or why it is unknown.
    """
    found: MetricEstimate | None = next(
        (e for e in series.estimates if e.metric == "accuracy" and e.estimator == estimator), None
    )
    if found is None:
        return "–"
    if not isinstance(found.result, Estimate):
        return found.result.reason
    result = found.result
    return f"{100 * result.value:.1f} % ({100 * result.lower:.1f}–{100 * result.upper:.1f})"
