"""A table of models that fits the terminal. Columns are left out before cells are broken into lines."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from monitor.base.names import DOUBLY_ROBUST, REALISED
from monitor.base.registry import metric_words
from monitor.base.results import Estimate
from monitor.reports.statements import in_unit
from monitor.reports.views import MetricEstimate, SeriesState, SeriesView
from monitor.reports.window_report import finite
from monitor.reports.window_view import leading_estimate

WIDE = 160
"""The width of the output if it is not a terminal and the environment does not set a width."""

_GAP = 2  # characters between columns: one of padding, one of the box
_STYLES = {
    SeriesState.IN_CONTROL: "green",
    SeriesState.OUT_OF_CONTROL: "bold red",
    SeriesState.UNTRUSTED: "bold red",
    SeriesState.WARMING_UP: "yellow",
    SeriesState.SILENT: "dim",
}
_BLOCKS = "▁▂▃▄▅▆▇█"


def output() -> Console:
    """Return a rich console for standard output. For a file or a pipe, it is wider than 80 columns."""
    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = max(console.width, WIDE)
    return console


def fitted(columns: Mapping[str, Sequence[Text]], expendable: Sequence[str], width: int) -> Table:
    """Return a table that is no wider than a terminal.

    Parameters
    ----------
    columns : mapping of str to sequence of Text
        Cells by heading; a heading may have two lines.
    expendable : sequence of str
        Columns that may be left out, in this order. If the other columns do not fit either, cells are
        broken into several lines, so that no letter is lost.
    width : int
        Width of the terminal in columns.

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
    """Return the columns that `fitted` may leave out, in order.

    If there are several tasks, the task is last.
    """
    several = len({one.task for one in series}) > 1
    return [*more, "task"] if several else ["task", *more]


def state(series: SeriesView) -> Text:
    """Return the state of a model and the metrics concerned, such as ``in control, improved: f1``.

    If labels decide on alarms, the text also says if the confidences alone show a change.
    """
    words = series.state.value.replace("_", " ")
    latched = [chart.metric for chart in series.charts if chart.verdict.out_of_control]
    if series.state is SeriesState.OUT_OF_CONTROL and latched:
        words = f"{words}: {', '.join(latched)}"
    improved = [chart.metric for chart in series.charts if chart.verdict.improved]
    if series.state is SeriesState.IN_CONTROL and improved:
        words = f"{words}, improved: {', '.join(improved)}"
    if any(chart.confidences_moved for chart in series.charts):
        words = f"{words}, confidences moved"
    return Text(words, style=_STYLES[series.state])


def objective(series: SeriesView) -> Text:
    """Return the state of each objective, with metrics if there are several: ``f1 at risk, ece met``."""
    states = [
        (o.metric, o.state.value.replace("_", " ") if o.state else "unknown") for o in series.objectives
    ]
    if len(states) == 1:
        return Text(states[0][1])
    return Text(", ".join(f"{metric} {words}" for metric, words in states) or "–")


def share_words(series: Sequence[SeriesView]) -> str:
    """Return the name of the share of right answers of these models, such as accuracy."""
    return " or ".join(dict.fromkeys(metric_words(one.share) for one in series)) or metric_words("accuracy")


def newest_accuracy(series: SeriesView) -> Text:
    """Return the accuracy of the newest window with its interval, in percent, corrected by any labels."""
    return _words(leading_estimate(series.estimates, series.share))


def newest_error(series: SeriesView, metric: str = "mae") -> Text:
    """Return a metric of errors of the newest window, such as ``12.3 (11.5 to 13.1) minutes``.

    The metric is from labels if the window has enough of them, and ``, of 120 labels`` follows.
    """
    results = {each.estimator: each for each in series.values if each.metric == metric}
    own = results.get(REALISED)
    if own is None or not isinstance(finite(own.result), Estimate):
        own = results.get(DOUBLY_ROBUST)
    if own is None:
        return Text("–")
    result = finite(own.result)
    if not isinstance(result, Estimate):
        return Text(result.reason)
    labels = f", of {result.n:,} labels" if own.estimator == REALISED else ""
    return Text(in_unit(result, own.unit or "") + labels)


def accuracy(series: SeriesView, estimator: str) -> Text:
    """Return the accuracy by one estimator in percent, such as ``91.3 (88.8–93.6)``, or why it is unknown."""
    return _words(_accuracy(series, estimator))


def _words(result: MetricEstimate | None) -> Text:
    if result is None:
        return Text("–")
    if not isinstance(result.result, Estimate):
        return Text(result.result.reason)
    estimate = result.result
    return Text(f"{100 * estimate.value:.1f} ({100 * estimate.lower:.1f}–{100 * estimate.upper:.1f})")


def realised(series: SeriesView) -> Text:
    """Return the accuracy of the labelled rows in the newest window with labels, and their number."""
    words, metric_estimate = accuracy(series, "realised"), _accuracy(series, "realised")
    if metric_estimate is not None and isinstance(metric_estimate.result, Estimate):
        words.append(f" of {metric_estimate.result.n:,}")
    return words


def blocks(values: Sequence[float], bounds: tuple[float, float]) -> Text:
    """Return a block character for each value. The height shows the value between the bounds."""
    low, high = bounds
    steps = [round((value - low) / max(high - low, 1e-9) * (len(_BLOCKS) - 1)) for value in values]
    return Text("".join(_BLOCKS[step] for step in steps))


def _accuracy(series: SeriesView, estimator: str) -> MetricEstimate | None:
    wanted = (series.share, estimator)
    return next((e for e in series.estimates if (e.metric, e.estimator) == wanted), None)
