"""A replay in the terminal: a progress bar, then a line a model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from monitor.commands.replay import REPORTS, Replayed, replay
from monitor.result import Estimate
from monitor.view import MetricEstimate, SeriesView

_PLAIN = (".ndjson", ".jsonl", ".json")


def replay_with_progress(config: str, files: Sequence[Path], out: Path) -> None:
    """Replay files and say what came out."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        bars = {path: bar.add_task(path.name, total=_size(path)) for path in files}
        done = replay(config, files, out, lambda path, size: bar.advance(bars[path], size))
    _summarise(done, out)


def _size(path: Path) -> int | None:
    """Bytes to come, where the file says: a compressed one does not."""
    return path.stat().st_size if path.suffix in _PLAIN and path.is_file() else None


def _summarise(done: Replayed, out: Path) -> None:
    console = Console()
    table = Table("task", "model", "windows", "state", "last estimate", "realised", title=None)
    for series in done.view.series:
        table.add_row(
            series.task,
            f"{series.model} {series.group}".strip(),
            str(series.windows_closed),
            series.state.value,
            shown(series, "average_confidence"),
            shown(series, "realised"),
        )
    console.print(table)
    rejected = sum(done.view.rejected.values())
    console.print(f"{done.windows} windows in {out / REPORTS}, {len(done.pictures)} pictures beside it.")
    if rejected or done.rejects:
        console.print(f"{rejected} answers could not be used; the first:")
        for message in done.rejects:
            console.print(f"  {message}", markup=False)


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
