"""The command `blindsight demo --full`, which compares the agent's estimates for a year with the truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from monitor.agent.agent import Agent
from monitor.base.errors import SinkError
from monitor.cli import series_table
from monitor.cli.demo.calibration import CALIBRATION_WHY, calibration_sentence, summarise_calibration
from monitor.cli.demo.live import WHOLE, Pour, followed, free_address, serve_on
from monitor.cli.demo.stream import METRICS, TASK, DemoData, prepare
from monitor.cli.demo.summary import (
    SHORT_WHY,
    WHY,
    FirstShown,
    ModelSummary,
    alarms_of_truth,
    metric_charts,
    sentences,
    summarise,
)
from monitor.cli.demo.trust import TRUST_WHY, TrustStories, lasting_errors, trust_sentences
from monitor.cli.reporting import write_report
from monitor.config.file import load_config
from monitor.config.root import Task
from monitor.engine.charting import chart_for
from monitor.export.charts.pictures import Histories
from monitor.export.charts.svg import ControlChartData, stacked_svg
from monitor.export.page.period import Period
from monitor.export.sinks.line_file import cannot_write
from monitor.reports.views import AgentView, SeriesView
from monitor.reports.window_report import WindowReport

PICTURES = {"accuracy": "control-charts.svg", "ece": "control-charts-ece.svg"}
"""The file name of each metric's control charts."""
REPORT = "report.html"
_FRAME_SECONDS = 0.25
_DRAIN_SECONDS = 10.0


def run_demo(folder: Path, listen: str, seconds: float, explain: bool, page: bool) -> int:
    """Prepare the flights, run the agent, compare its estimates with the truth, and return the exit code.

    Parameters
    ----------
    folder : Path
        The folder for everything that the demo writes.
    listen : str
        Address of the page and the metrics.
    seconds : float
        The time in which the stream grows to its full size.
    explain : bool
        True to print sentences about wrong estimates and their causes.
    page : bool
        True to serve the page until Ctrl-C, if the output is a terminal.

    Raises
    ------
    ConfigError
        The address cannot be used. Nothing was written.
    SinkError
        The folder cannot be written.
    """
    free_address(listen)
    console = series_table.output()
    with console.status("") as status:
        data = prepare(folder, progress=lambda step: status.update(f"{step} …"))
    console.print(_opening(data), highlight=False)
    return watch(console, data, free_address(listen), seconds, explain, page and console.is_terminal)


def watch(
    console: Console, data: DemoData, listen: str, seconds: float, explain: bool = False, stay: bool = False
) -> int:
    """Run the agent on the prepared data, compare its estimates with the truth, and return the exit code.

    With `stay`, serve the page until Ctrl-C.
    """
    period, stories, at_close = Period({TASK: "average_confidence"}), TrustStories(), FirstShown()

    def record(reports: Sequence[WindowReport]) -> None:
        period.add(reports)
        stories.add(reports)
        at_close.add(reports)

    with followed(data.config, data.stream, listen, seconds, record) as (agent, pour, address):
        console.print(f"The agent follows {data.stream.name}. Its page: {address}", highlight=False)
        _show(console, agent, pour, len(data) * len(data.models))
        if agent.failure is not None:
            return 1
        write_report(data.config.parent / REPORT, period.html({}, [agent.view().engine]))
        _close(console, data, period.histories, stories, at_close, explain)
        if stay:
            serve_on(console, address)
    return 0


def _show(console: Console, agent: Agent, pour: Pour, expected: int) -> None:
    """Show the agent's state until it has used the whole stream."""
    with Live(console=console, refresh_per_second=1 / _FRAME_SECONDS) as live:
        while not agent.wait(_FRAME_SECONDS):
            view = agent.view()
            live.update(_screen(view, console.width))
            if pour.done and (pour.error or sum(view.engine.received.values()) >= expected):
                break
        agent.stop()
        agent.wait(_DRAIN_SECONDS)
        live.update(_screen(agent.view(), console.width))
    if pour.error:
        raise pour.error


def _opening(data: DemoData) -> str:
    return (
        f"{len(data.models)} models ({', '.join(data.models)}) say whether a flight out of New York arrives "
        f"more than 15 minutes late. Trained on {data.trained_on:,} flights of January to March 2013, "
        f"calibrated on {data.reference_flights:,} others of those months. Now April to December: "
        f"{len(data):,} flights, labels for {100 * data.labelled.mean():.0f} % of them, hours after the "
        "prediction."
    )


def _screen(view: AgentView, width: int) -> Group:
    """Return the live table. On a narrow terminal, the least important columns are left out."""
    series = view.engine.series
    columns = {
        "task": [Text(one.task) for one in series],
        "model": [Text(one.model) for one in series],
        "window": [Text(str(one.windows_closed)) for one in series],
        "accuracy, %": [series_table.newest_accuracy(one) for one in series],
        "realised": [_so_far(one) for one in series],
        "labels": [Text(f"{one.labelled:,}") for one in series],
        "chart": [series_table.state(one) for one in series],
        "objective": [series_table.objective(one) for one in series],
        "until": [Text(_day(one.window_end_time)) for one in series],
    }
    expendable = series_table.expendable(series, "until", "objective", "window", "labels", "realised")
    received = sum(view.engine.received.values())
    labels = sum(view.engine.labels.values())
    return Group(
        series_table.fitted(columns, expendable, width),
        Text(f"{received:,} answers, {labels:,} labels", style="dim"),
    )


def _so_far(series: SeriesView) -> Text:
    return Text(f"{100 * series.correct / series.labelled:.1f}" if series.labelled else "–")


def _day(seconds: float | None) -> str:
    return "–" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%d %b")


def _close(
    console: Console,
    data: DemoData,
    histories: Histories,
    stories: TrustStories,
    at_close: FirstShown,
    explain: bool,
) -> None:
    """Print the comparison of estimates and truth, a row for each model, and write the pictures.

    With `explain`, print sentences too.
    """
    folder = data.config.parent
    charts = _write_pictures(data, histories)
    alarms = histories.alarms()
    task = load_config(data.config).tasks[TASK]
    assert isinstance(task, Task)  # the demo's own
    alike = chart_for(task.charting, "accuracy")
    summaries = [
        summarise(
            at_close.on(model, charts["accuracy"][column]),
            model,
            float(data.reference_accuracy[column]),
            alarms[TASK, model, ""],
            alarms_of_truth(data, column, alike),
        )
        for column, model in enumerate(data.models)
    ]
    console.print()
    lasting = lasting_errors(data, charts["accuracy"])
    console.print(_comparison_table(summaries, lasting, console.width))
    if explain:
        console.print(_by_month(summaries, console.width))
        trust = trust_sentences(data.models, stories, lasting)
        _print_points(console, "Trust by labels, and recalibrations", [*trust, TRUST_WHY])
        calibrations = [calibration_sentence(each) for each in summarise_calibration(data, charts["ece"])]
        _print_points(console, "Where the estimates were wrong", [*sentences(summaries), WHY])
        _print_points(console, "And the calibration error (ECE)", [*calibrations, CALIBRATION_WHY])
    else:
        console.print(SHORT_WHY, highlight=False)
    for line in _list_files(folder, data):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _write_pictures(data: DemoData, histories: Histories) -> Mapping[str, list[ControlChartData]]:
    """Write the pictures of the charts, and return the charts by metric."""
    charts = {metric: metric_charts(data, histories, metric) for metric in METRICS}
    for metric, name in PICTURES.items():
        path = data.config.parent / name
        try:
            path.write_text(stacked_svg(charts[metric]), encoding="utf-8")
        except OSError as error:
            raise SinkError(cannot_write(str(path), error)) from error
    return charts


def _print_points(console: Console, heading: str, points: list[str]) -> None:
    console.print(f"[bold]{heading}[/bold]")
    for point in points:
        console.print(f"* {point}", highlight=False, markup=False)


def _list_files(folder: Path, data: DemoData) -> list[str]:
    """Return lines with the files that the demo leaves, and their size."""
    kept = [path for path in folder.rglob("*") if path.is_file() and path.suffix != WHOLE]
    megabytes = sum(path.stat().st_size for path in kept) / 1e6
    pictures = ", ".join(str(folder / name) for name in PICTURES.values())
    return [
        f"Report: {folder / REPORT}",
        f"Control charts: {pictures}",
        f"Windows: {data.reports}",
        f"The stream, the reports and the pictures stay in {folder}: {megabytes:.0f} MB. "
        "Delete the folder when you have seen enough.",
    ]


def _comparison_table(
    summaries: Sequence[ModelSummary], lasting: Sequence[tuple[float, float]], width: int
) -> Group:
    """Return a table with a row for each model, with its estimate and truth by month as lines of blocks."""
    months = summaries[0].months
    values = [100 * value for summary in summaries for month in summary.months for value in month.both]
    bounds = min(values), max(values)
    columns = {
        "model": [Text(summary.model) for summary in summaries],
        "estimated": [
            series_table.blocks([100 * m.estimate for m in summary.months], bounds) for summary in summaries
        ],
        "turned out": [
            series_table.blocks([100 * m.realised for m in summary.months], bounds) for summary in summaries
        ],
        "in the\ninterval": [Text(f"{100 * summary.covered:.0f} %") for summary in summaries],
        "alarms\naccuracy, ECE": [
            Text(", ".join(str(len(summary.alarms.get(metric, ()))) for metric in METRICS))
            for summary in summaries
        ],
        "lasting error,\nlabels mended": [
            Text(f"{100 * without:.1f} → {100 * with_labels:.1f} points") for with_labels, without in lasting
        ],
    }
    title = Text(
        f"Accuracy by month, {months[0].name} to {months[-1].name}, as blocks from {bounds[0]:.0f} to "
        f"{bounds[1]:.0f} %",
        style="bold",
    )
    return Group(title, series_table.fitted(columns, (), width))


def _by_month(summaries: list[ModelSummary], width: int) -> Group:
    """Return a table of estimate and truth by month.

    A difference of at least two percentage points is red.
    """
    columns = {"": [Text(month.name[:3]) for month in summaries[0].months]}
    for summary in summaries:
        cells = []
        for month in summary.months:
            estimate, realised = 100 * month.estimate, 100 * month.realised
            style = "bold red" if abs(estimate - realised) >= 2 else ""
            cells.append(Text(f"{estimate:.1f} → {realised:.1f}", style=style))
        columns[summary.model] = cells
    title = Text(f"Accuracy of {TASK} predictions by month, %: estimated → turned out", style="bold")
    return Group(title, series_table.fitted(columns, (), width))
