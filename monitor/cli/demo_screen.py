"""`blindsight demo`: the agent on a year of real flights, watched live, held against the truth at the end."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from monitor.agent.agent import Agent
from monitor.base.errors import ConfigError, SinkError
from monitor.cli import series_table
from monitor.cli.daemon import Daemon
from monitor.cli.demo.calibration import CALIBRATION_WHY, calibration_sentence, summarise_calibration
from monitor.cli.demo.pour import Pour
from monitor.cli.demo.stream import METRICS, TASK, DemoData, prepare
from monitor.cli.demo.summary import WHY, ModelSummary, alarms_of_truth, metric_charts, sentences, summarise
from monitor.cli.demo.trust import TRUST_WHY, TrustStories, trust_sentences
from monitor.config.file import load_config
from monitor.config.root import Config, FileSourceConfig, Task, listen_address
from monitor.engine.charting import chart_for
from monitor.export.charts.pictures import Histories
from monitor.export.charts.svg import stacked_svg
from monitor.export.sinks.line_file import cannot_write
from monitor.reports.views import AgentView, SeriesView
from monitor.reports.window_report import WindowReport

PICTURES = {"accuracy": "control-charts.svg", "ece": "control-charts-ece.svg"}
_FRAME_SECONDS = 0.25
_DRAIN_SECONDS = 10.0


def run_demo(folder: Path, listen: str, seconds: float) -> int:
    """Prepare the flights, run the agent on them, say how its estimates did; the exit code.

    Raises
    ------
    ConfigError
        `listen` is not an address that can be had; nothing was written.
    SinkError
        The folder cannot be written.
    """
    _free(listen)
    console = series_table.output()
    with console.status("") as status:
        data = prepare(folder, progress=lambda step: status.update(f"{step} …"))
    console.print(_opening(data), highlight=False)
    return watch(console, data, _free(listen), seconds)


def watch(console: Console, data: DemoData, listen: str, seconds: float) -> int:
    """Run the agent on what was prepared, show it at work, hold it against the truth; the exit code."""
    histories, stories = Histories(), TrustStories()

    def seen(reports: Sequence[WindowReport]) -> None:
        histories.add(reports)
        stories.add(reports)

    config = _configured(load_config(data.config), data.stream, listen)
    with _poured(data.stream, seconds) as pour:
        daemon = Daemon(config, watch=seen, in_flow=True)
        with daemon.running() as agent:
            console.print(
                f"The agent follows {data.stream.name}: http://127.0.0.1:{daemon.server.port}/metrics"
            )
            _show(console, agent, pour, len(data) * len(data.models))
    if agent.failure is not None:
        return 1
    _close(console, data, histories, stories)
    return 0


@contextmanager
def _poured(stream: Path, seconds: float) -> Iterator[Pour]:
    """The stream, growing under its own name, so that the positions in the reports stay true of it."""
    whole = stream.with_name(f"{stream.name}.whole")
    try:
        stream.replace(whole)
        pour = Pour(whole, stream, seconds)
        try:
            pour.start()
            yield pour
        finally:
            pour.stop()
            whole.replace(stream)  # the same bytes, and all of them also where the demo was interrupted
    except OSError as error:
        raise SinkError(cannot_write(str(stream), error)) from error


def _configured(config: Config, live: Path, listen: str) -> Config:
    """The demo's configuration, following the growing file."""
    source = FileSourceConfig(kind="file", path=str(live), follow=True)
    export = config.export.model_copy(update={"listen": listen})
    return config.model_copy(update={"sources": (source,), "export": export})


def _show(console: Console, agent: Agent, pour: Pour, expected: int) -> None:
    """Show the agent's view until it has used everything that was poured."""
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


def _free(listen: str) -> str:
    """The address, or a free port on it where somebody has it already."""
    try:
        host, port = listen_address(listen)
    except ValueError as error:
        raise ConfigError(f"--listen: {error}") from error
    with closing(socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return f"{listen.rpartition(':')[0]}:0"
            raise ConfigError(
                f"--listen: cannot listen on {listen!r}: {error.strerror}; give another address, "
                "such as '127.0.0.1:9109'"
            ) from error
    return listen


def _screen(view: AgentView, width: int) -> Group:
    """The live table: what is left out on a narrow terminal is what the demo can do without."""
    series = view.engine.series
    columns = {
        "task": [Text(one.task) for one in series],
        "model": [Text(one.model) for one in series],
        "window": [Text(str(one.windows_closed)) for one in series],
        "accuracy, %": [series_table.accuracy(one, "average_confidence") for one in series],
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


def _close(console: Console, data: DemoData, histories: Histories, stories: TrustStories) -> None:
    """Hold the estimates against the truth, in words and in pictures."""
    folder = data.config.parent
    charts = {metric: metric_charts(data, histories, metric) for metric in METRICS}
    for metric, name in PICTURES.items():
        try:
            (folder / name).write_text(stacked_svg(charts[metric]), encoding="utf-8")
        except OSError as error:
            raise SinkError(cannot_write(str(folder / name), error)) from error
    alarms = histories.alarms()
    task = load_config(data.config).tasks[TASK]
    assert isinstance(task, Task)  # the demo's own
    alike = chart_for(task.charting, "accuracy")
    summaries = [
        summarise(
            charts["accuracy"][column],
            model,
            float(data.reference_accuracy[column]),
            alarms[TASK, model, ""],
            alarms_of_truth(data, column, alike),
        )
        for column, model in enumerate(data.models)
    ]
    console.print()
    console.print(_by_month(summaries, console.width))
    trust = trust_sentences(data, charts["accuracy"], stories)
    _print_points(console, "Trust by labels, and recalibrations", [*trust, TRUST_WHY])
    calibrations = summarise_calibration(data, charts["ece"])
    _print_points(console, "Where the estimates were wrong", [*sentences(summaries), WHY])
    said = [calibration_sentence(found) for found in calibrations]
    _print_points(console, "And the calibration error (ECE), which has a chart too", [*said, CALIBRATION_WHY])
    for line in _left_behind(folder, data):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _print_points(console: Console, heading: str, points: list[str]) -> None:
    console.print(f"[bold]{heading}[/bold]")
    for point in points:
        console.print(f"* {point}", highlight=False, markup=False)


def _left_behind(folder: Path, data: DemoData) -> list[str]:
    """What the demo leaves on the disk, and how much of it."""
    megabytes = sum(path.stat().st_size for path in folder.iterdir() if path.is_file()) / 1e6
    pictures = ", ".join(str(folder / name) for name in PICTURES.values())
    return [
        f"Control charts: {pictures}",
        f"Windows: {data.reports}",
        f"The stream, the reports and the pictures stay in {folder}: {megabytes:.0f} MB. "
        "Delete the folder when you have seen enough.",
    ]


def _by_month(summaries: list[ModelSummary], width: int) -> Group:
    """Estimate and truth by month; a gap of two points or more stands out."""
    columns = {"": [Text(month.name[:3]) for month in summaries[0].months]}
    for found in summaries:
        cells = []
        for month in found.months:
            estimate, realised = 100 * month.estimate, 100 * month.realised
            style = "bold red" if abs(estimate - realised) >= 2 else ""
            cells.append(Text(f"{estimate:.1f} → {realised:.1f}", style=style))
        columns[found.model] = cells
    title = Text(f"Accuracy of {TASK} predictions by month, %: estimated → turned out", style="bold")
    return Group(title, series_table.fitted(columns, (), width))
