"""`blindsight demo`: the agent on a year of real flights, watched live, held against the truth at the end."""

from __future__ import annotations

import socket
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from monitor.agent import Agent
from monitor.commands.daemon import Daemon
from monitor.commands.replay_screen import shown
from monitor.config import Config, FileSource
from monitor.configfile import load_config
from monitor.demo.pour import Pour
from monitor.demo.stream import TASK, DemoData, prepare
from monitor.demo.summary import ModelSummary, accuracy_charts, sentences, summarise
from monitor.errors import SinkError
from monitor.export.http import parse_listen
from monitor.export.reports import cannot_write
from monitor.export.svg import stacked_svg
from monitor.pictures import Histories
from monitor.view import AgentView, SeriesState, SeriesView

PICTURE = "control-charts.svg"
GROWING = "flights-so-far.ndjson"
_FRAME_SECONDS = 0.25
_DRAIN_SECONDS = 10.0
_STYLES = {
    SeriesState.IN_CONTROL: "green",
    SeriesState.OUT_OF_CONTROL: "bold red",
    SeriesState.WARMING_UP: "yellow",
    SeriesState.SILENT: "dim",
}


def run_demo(folder: Path, listen: str, seconds: float) -> int:
    """Prepare the flights, run the agent on them, say how its estimates did; the exit code."""
    console = Console()
    with console.status("") as status:
        data = prepare(folder, progress=lambda step: status.update(f"{step} …"))
    console.print(_opening(data), highlight=False)
    histories = Histories()
    live = data.stream.with_name(GROWING)
    config = _configured(load_config(data.config), live, _free(listen))
    pour = Pour(data.stream, live, seconds)
    try:
        pour.start()
        daemon = Daemon(config, watch=histories.add)
        with daemon.running() as agent:
            console.print(f"The agent follows {live.name}: http://127.0.0.1:{daemon.server.port}/metrics")
            _watch(console, agent, pour, len(data) * len(data.models))
    except OSError as error:
        raise SinkError(cannot_write(str(live), error)) from error
    finally:
        pour.stop()
        live.unlink(missing_ok=True)
    if agent.failure is not None:
        return 1
    _close(console, data, histories, config.reports.path if config.reports else "")
    return 0


def _configured(config: Config, live: Path, listen: str) -> Config:
    """The demo's configuration, following the growing file."""
    source = FileSource(kind="file", path=str(live), follow=True)
    export = config.export.model_copy(update={"listen": listen})
    return config.model_copy(update={"sources": (source,), "export": export})


def _watch(console: Console, agent: Agent, pour: Pour, expected: int) -> None:
    """Show the agent's view until it has used everything that was poured."""
    with Live(console=console, refresh_per_second=1 / _FRAME_SECONDS) as live:
        while not agent.wait(_FRAME_SECONDS):
            view = agent.view()
            live.update(_screen(view))
            if pour.done and (pour.error or sum(view.engine.received.values()) >= expected):
                break
        agent.stop()
        agent.wait(_DRAIN_SECONDS)
        live.update(_screen(agent.view()))
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
    host, port = parse_listen(listen)
    with closing(socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return f"{listen.rpartition(':')[0]}:0"
    return listen


def _screen(view: AgentView) -> Group:
    table = Table(
        "task", "model", "window", "estimate (95 %)", "realised so far", "chart", "objective", "until"
    )
    for series in view.engine.series:
        table.add_row(
            series.task,
            series.model,
            str(series.windows_closed),
            shown(series, "average_confidence"),
            _so_far(series),
            Text(series.state.value, style=_STYLES[series.state]),
            next((o.state.value for o in series.objectives if o.state), "–"),
            _day(series.window_end_time),
        )
    received = sum(view.engine.received.values())
    labels = sum(view.engine.labels.values())
    return Group(table, Text(f"{received:,} answers, {labels:,} labels", style="dim"))


def _so_far(series: SeriesView) -> str:
    if not series.labelled:
        return "no labels yet"
    return f"{100 * series.correct / series.labelled:.1f} % of {series.labelled:,}"


def _day(seconds: float | None) -> str:
    return "–" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%d %b")


def _close(console: Console, data: DemoData, histories: Histories, reports: str) -> None:
    """Hold the estimates against the truth, in words and in a picture."""
    charts = accuracy_charts(data, histories)
    picture = data.config.parent / PICTURE
    try:
        picture.write_text(stacked_svg(charts), encoding="utf-8")
    except OSError as error:
        raise SinkError(cannot_write(str(picture), error)) from error
    summaries = [
        summarise(chart, model, float(accuracy))
        for chart, model, accuracy in zip(charts, data.models, data.reference_accuracy, strict=True)
    ]
    console.print()
    console.print(_by_month(summaries))
    console.print("[bold]Where the estimates were wrong[/bold]")
    for sentence in sentences(summaries):
        console.print(f"* {sentence}", highlight=False, markup=False)
    console.print(f"Control charts: {picture}\nWindows: {reports}", highlight=False, markup=False)


def _by_month(summaries: list[ModelSummary]) -> Table:
    """Estimate and truth by month; a gap of two points or more stands out."""
    table = Table("month", *(found.model for found in summaries), title=f"{TASK}: estimated → turned out, %")
    for place, month in enumerate(summaries[0].months):
        cells = []
        for found in summaries:
            estimate, realised = 100 * found.months[place].estimate, 100 * found.months[place].realised
            style = "bold red" if abs(estimate - realised) >= 2 else ""
            cells.append(Text(f"{estimate:.1f} → {realised:.1f}", style=style))
        table.add_row(month.name, *cells)
    return table
