"""The command `blindsight demo`, which runs the agent on an incident and prints the events as they happen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from rich.console import Console

from monitor.agent.agent import Agent
from monitor.base.errors import SinkError
from monitor.base.records import Floats
from monitor.base.registry import SHARES
from monitor.base.results import Estimate
from monitor.cli import series_table
from monitor.cli.demo.incident import (
    BROKEN,
    FEATURE,
    MODEL,
    ORIGIN,
    REPAIRED,
    TASK,
    WINDOW_SIZE,
    Incident,
    moment_of,
    prepare_incident,
)
from monitor.cli.demo.live import Pour, followed, free_address, serve_on
from monitor.cli.reporting import write_report
from monitor.export.charts.pictures import Histories
from monitor.export.charts.svg import ControlChartData, stacked_svg
from monitor.export.page.period import Period
from monitor.export.sinks.line_file import cannot_write
from monitor.reports.attribution import top_features, top_parts
from monitor.reports.window_report import WindowReport
from monitor.stats.charts.latch import RELEASE_WINDOWS

PICTURE = "incident.svg"
REPORT = "report.html"
_POLL_SECONDS = 0.25
_DAY = 86_400
_INDENT = 15


def run_incident(folder: Path, listen: str, seconds: float, page: bool) -> int:
    """Prepare the incident, run the agent on it, print the agent's reports, and return the exit code.

    Parameters
    ----------
    folder : Path
        The folder for everything that the demo writes.
    listen : str
        Address of the page and the metrics.
    seconds : float
        The time in which the stream grows to its full size.
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
        incident = prepare_incident(folder, progress=lambda step: status.update(f"{step} …"))
    return watch_incident(console, incident, free_address(listen), seconds, page and console.is_terminal)


def watch_incident(
    console: Console, incident: Incident, listen: str, seconds: float, stay: bool = False
) -> int:
    """Run the agent on the prepared incident, print the agent's reports, and return the exit code.

    With `stay`, serve the page until Ctrl-C.
    """
    period, story = Period({TASK: "average_confidence"}), IncidentStory(incident)

    def record(reports: Sequence[WindowReport]) -> None:
        period.add(reports)
        story.add(reports)

    with followed(incident.config, incident.stream, listen, seconds, record) as (agent, pour, address):
        _print(console, *_opening(incident), f"Watch it on {address}", "")
        _follow(console, agent, pour, story, len(incident))
        if agent.failure is not None:
            return 1
        folder = incident.config.parent
        chart = incident_chart(incident, period.histories)
        try:
            (folder / PICTURE).write_text(stacked_svg([chart]), encoding="utf-8")
        except OSError as error:
            raise SinkError(cannot_write(str(folder / PICTURE), error)) from error
        write_report(folder / REPORT, period.html({}, [agent.view().engine]))
        _print(console, "", *_curves(chart), *story.summary())
        files = f"Picture and report: {folder / PICTURE} and {REPORT}"
        console.print(files, highlight=False, markup=False, soft_wrap=True)
        if stay:
            serve_on(console, address)
    return 0


def _print(console: Console, *lines: str) -> None:
    for line in lines:
        console.print(line, highlight=False, markup=False)


def _follow(console: Console, agent: Agent, pour: Pour, story: IncidentStory, expected: int) -> None:
    """Print the story until the agent has used all answers and all labels."""
    while not agent.wait(_POLL_SECONDS):
        _print(console, *story.new_lines())
        engine = agent.view().engine
        received = min(sum(engine.received.values()), sum(engine.labels.values()))
        if pour.done and (pour.error or received >= expected):
            break
    _print(console, *story.new_lines())
    if pour.error:
        raise pour.error


def _opening(incident: Incident) -> list[str]:
    return [
        "For each flight out of New York a model says whether the aircraft has more than 100 seats.",
        f"You see {len(incident):,} real flights of summer 2013. Two days later the airline says what flew.",
    ]


class IncidentStory:
    """A story of the incident: a line of text for each event, made from the agent's reports.

    Parameters
    ----------
    incident : Incident
    """

    def __init__(self, incident: Incident) -> None:
        self._incident = incident
        self._lines: list[str] = []
        self._printed = 0
        self._normal: list[float] = []
        self._begun = self._repaired = self._untrusted = False
        self._lowest = 1.0
        self.alarm: tuple[float, float, str] | None = None
        self.confirmed: tuple[float, float] | None = None
        self.ended: float | None = None

    def add(self, reports: Sequence[WindowReport]) -> None:
        """Add the lines for these windows. Only windows of the whole model count."""
        for report in reports:
            if report.group:
                continue
            if report.revision:
                self._confirm(report)
            else:
                self._close(report)

    def new_lines(self) -> list[str]:
        """Return the lines that were added since the last call."""
        lines = self._lines[self._printed :]
        self._printed += len(lines)
        return lines

    def summary(self) -> list[str]:
        """Return three sentences that summarise the incident."""
        if self.alarm is None or self.confirmed is None or self.ended is None:
            return ["The agent did not report the whole incident."]
        first = self._incident.labelled[self._incident.wrong_feature].min()
        hours = (first - self.alarm[0]) / 3600
        return [
            f"The alarm came {hours:.0f} hours before anybody could check an answer.",
            f"It said where to look: {self.alarm[2]}.",
            "The real aircraft confirmed the fall, and after the repair the answers were as good as before.",
        ]

    def _close(self, report: WindowReport) -> None:
        value = _accuracy(report, "average_confidence")
        if value is None:
            return
        broken, repaired = moment_of(BROKEN), moment_of(REPAIRED)
        if not self._begun and report.end_time > broken:
            self._begun = True
            before = _of_100(float(np.mean(self._normal)))
            self._line(self._incident.time[0], f"Estimated: {before} of 100 answers are right. All is well.")
            self._line(broken, f"{ORIGIN} begins to send the {FEATURE} of its flights in hours, not minutes.")
        if not self._repaired and report.end_time > repaired:
            self._repaired = True
            self._line(repaired, f"{ORIGIN} sends minutes again.")
        if not self._begun:
            self._normal.append(value)
        alarmed = any(chart.metric in SHARES and chart.verdict.out_of_control for chart in report.charts)
        if alarmed and self.alarm is None:
            where = " at ".join(_causes(report)) or "no part stands out"
            self.alarm = report.end_time, value, where
            self._line(
                report.end_time,
                f"ALARM: estimated only {_of_100(value)} of 100. It comes from {where}.",
            )
        elif self.alarm is not None and self.ended is None and not alarmed:
            self.ended = report.end_time
            self._line(
                report.end_time,
                f"The alarm ends after {RELEASE_WINDOWS * WINDOW_SIZE:,} flights without a fall: "
                f"estimated {_of_100(value)} of 100.",
            )
        if report.broken_features and not self._untrusted:
            self._untrusted = True
            first = report.broken_features[0]
            fault = first.fault.replace("_", " ")
            self._line(
                report.end_time,
                f"UNTRUSTED: {first.feature} is {fault}. The estimates do not count until the repair.",
            )

    def _confirm(self, report: WindowReport) -> None:
        """Add the line of the first window of the incident whose answers are all checked."""
        realised = _accuracy(report, "realised", WINDOW_SIZE)
        if self.alarm is None or self.confirmed or realised is None or report.start_time < moment_of(BROKEN):
            return
        rows = slice(report.window * WINDOW_SIZE, (report.window + 1) * WINDOW_SIZE)
        checked = float(self._incident.labelled[rows].max())
        self.confirmed = checked, realised
        estimate = _accuracy(report, "average_confidence")
        assert estimate is not None
        self._line(
            checked,
            f"The airlines say what flew: {_of_100(realised)} of 100 were right, "
            f"{_of_100(estimate)} were estimated.",
        )

    def _line(self, time: float, words: str) -> None:
        self._lines.append(f"{moment(time):<{_INDENT}}{words}")


def moment(seconds: float) -> str:
    """Format a time as day, month, hour and minute in UTC.

    Examples
    --------
    >>> moment(1374000000.0)
    '16 July 18:40'
    """
    return datetime.fromtimestamp(seconds, UTC).strftime("%-d %B %H:%M")


def _causes(report: WindowReport) -> Iterator[str]:
    """Yield the names of the feature and the airport with the largest parts of the change."""
    for attribution in report.attributions:
        if attribution.metric not in SHARES:
            continue
        if attribution.features is not None:
            yield from (part.feature for part in top_features(attribution.features)[:1])
        yield from (part.part.partition("=")[2] for part in top_parts(attribution)[:1])


def _accuracy(report: WindowReport, estimator: str, rows: int = 0) -> float | None:
    """Return an estimator's accuracy of a window, 0 to 1; None if it is based on fewer than `rows` rows."""
    for each in report.estimates:
        known = isinstance(each.result, Estimate) and each.result.n >= rows
        if (each.metric, each.estimator) == ("accuracy", estimator) and known:
            assert isinstance(each.result, Estimate)
            return each.result.value
    return None


def _of_100(ratio: float) -> str:
    return f"{100 * ratio:.0f}"


def incident_chart(incident: Incident, histories: Histories) -> ControlChartData:
    """Return the chart of the model's accuracy, estimated and true."""
    chart = histories.chart((TASK, MODEL, ""), "accuracy")
    starts = range(0, len(chart.x) * WINDOW_SIZE, WINDOW_SIZE)
    truth = [float(incident.right[start : start + WINDOW_SIZE].mean()) for start in starts]
    days = f"{datetime.fromtimestamp(moment_of(BROKEN), UTC):%-d} to "
    days += f"{datetime.fromtimestamp(moment_of(REPAIRED) - _DAY, UTC):%-d %B}"
    return replace(
        chart,
        title=f"Right answers; from {days} {ORIGIN} sends {FEATURE} in hours",
        subtitle=f"each point: {WINDOW_SIZE} flights out of New York, 2013",
        realised=np.array(truth),
        realised_lower=np.full(len(truth), np.nan),
        realised_upper=np.full(len(truth), np.nan),
        realised_name="true (known two days later)",
    )


def _curves(chart: ControlChartData) -> list[str]:
    """Return the estimated and the true accuracy as two lines of blocks, with the days below."""
    both: Floats = np.concatenate([chart.value, chart.realised])
    bounds = float(both.min()), float(both.max())
    low, high = (f"{100 * bound:.0f}" for bound in bounds)
    estimated, true = (series_table.blocks(each.tolist(), bounds) for each in (chart.value, chart.realised))
    days = [datetime.fromtimestamp(time, UTC) for time in (chart.x[0], chart.x[-1])]
    ends = f"{days[0]:%-d %B}", f"{days[1]:%-d %B}"
    return [
        f"{'estimated':<{_INDENT}}{estimated}",
        f"{'true':<{_INDENT}}{true}   ({low} to {high} of 100)",
        f"{'':<{_INDENT}}{ends[0]}{ends[1]:>{len(chart.x) - len(ends[0])}}",
    ]
