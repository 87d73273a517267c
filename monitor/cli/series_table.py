"""The models as a table that fits the terminal: whole columns are left out before anything is cut."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from monitor.base.results import Estimate
from monitor.reports.views import MetricEstimate, SeriesState, SeriesView
from monitor.reports.window_view import leading_estimate

WIDE = 160
"""Columns to print where the output is no terminal and nobody said how wide it is."""

_GAP = 2  # between columns: one of padding, one of the box
_STYLES = {
    SeriesState.IN_CONTROL: "green",
    SeriesState.OUT_OF_CONTROL: "bold red",
    SeriesState.UNTRUSTED: "bold red",
    SeriesState.WARMING_UP: "yellow",
    SeriesState.SILENT: "dim",
}


def output() -> Console:
    """Standard output, wide where it is a file or a pipe: rich would take 80 columns then."""
    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = max(console.width, WIDE)
    return console


def fitted(columns: Mapping[str, Sequence[Text]], expendable: Sequence[str], width: int) -> Table:
    """A table no wider than a terminal.

    Parameters
    ----------
    columns : mapping of str to sequence of Text
        Cells by heading; a heading may have two lines.
    expendable : sequence of str
        Columns that may go, the first of them first. Where even the rest does not fit, cells are folded:
        no letter is lost.
    width : int
        Of the terminal, in columns.

    Examples
    --------
    >>> cells = {"task": [Text("toxicity")], "model": [Text("erm")]}
    >>> [str(column.header) for column in fitted(cells, ["task"], 10).columns]
    ['model']
    """
    kept = dict(columns)
    for name in expendable:
        if _width(kept) <= width:
            break
        kept.pop(name, None)
    fits = _width(kept) <= width
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for name in kept:
        table.add_column(name, no_wrap=fits, overflow="fold", vertical="top")
    for row in zip(*kept.values(), strict=True):
        table.add_row(*row)
    return table


def _width(columns: Mapping[str, Sequence[Text]]) -> int:
    widths = [max(_widest(Text(name)), *map(_widest, cells), 0) for name, cells in columns.items()]
    return sum(widths) + _GAP * (len(widths) - 1)


def _widest(text: Text) -> int:
    return max((line.cell_len for line in text.split()), default=0)


def expendable(series: Sequence[SeriesView], *more: str) -> list[str]:
    """Which columns go first; the task last where there are several, as it then tells models apart."""
    several = len({one.task for one in series}) > 1
    return [*more, "task"] if several else ["task", *more]


def state(series: SeriesView) -> Text:
    """The state, and by which metrics it is so: ``out of control: ece``, ``in control, improved: f1``.

    Where labels decide on the alarm, it also says that the confidences moved.
    """
    words = series.state.value.replace("_", " ")
    latched = [chart.metric for chart in series.charts if chart.verdict.out_of_control]
    if series.state is SeriesState.OUT_OF_CONTROL and latched:
        words = f"{words}: {', '.join(latched)}"
    better = [chart.metric for chart in series.charts if chart.verdict.improved]
    if series.state is SeriesState.IN_CONTROL and better:
        words = f"{words}, improved: {', '.join(better)}"
    if any(chart.confidences_moved for chart in series.charts):
        words = f"{words}, confidences moved"
    return Text(words, style=_STYLES[series.state])


def objective(series: SeriesView) -> Text:
    """Where each objective stands, named where there are several: ``accuracy at risk, ece met``."""
    found = [(o.metric, o.state.value.replace("_", " ") if o.state else "unknown") for o in series.objectives]
    if len(found) == 1:
        return Text(found[0][1])
    return Text(", ".join(f"{metric} {words}" for metric, words in found) or "–")


def newest_accuracy(series: SeriesView) -> Text:
    """The accuracy as `accuracy` has it, by labels where there are any."""
    return _words(leading_estimate(series.estimates, "accuracy"))


def accuracy(series: SeriesView, estimator: str) -> Text:
    """The accuracy by one estimator in percent, with its interval: ``91.3 (88.8–93.6)``; or why unknown."""
    return _words(_accuracy(series, estimator))


def _words(result: MetricEstimate | None) -> Text:
    if result is None:
        return Text("–")
    if not isinstance(result.result, Estimate):
        return Text(result.result.reason)
    found = result.result
    return Text(f"{100 * found.value:.1f} ({100 * found.lower:.1f}–{100 * found.upper:.1f})")


def realised(series: SeriesView) -> Text:
    """What labels say of the newest window that they have reached, and how many do: ``… of 100``."""
    words, found = accuracy(series, "realised"), _accuracy(series, "realised")
    if found is not None and isinstance(found.result, Estimate):
        words.append(f" of {found.result.n:,}")
    return words


def _accuracy(series: SeriesView, estimator: str) -> MetricEstimate | None:
    wanted = ("accuracy", estimator)
    return next((e for e in series.estimates if (e.metric, e.estimator) == wanted), None)
