"""`MonitorResult`: the closed windows of a frame, as text, HTML, frames, pictures and a report."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

from markupsafe import Markup

from monitor.base.errors import ConfigError
from monitor.base.results import Estimate
from monitor.cli.replay import Labelled, Unused
from monitor.cli.reporting import write_report
from monitor.export.charts.svg import ControlChartData, control_chart_svg
from monitor.export.page.period import Period
from monitor.export.page.states import Headline, headline, worst_metric
from monitor.export.page.templates import render
from monitor.export.page.words import moment
from monitor.notebook.frames import new_frame
from monitor.notebook.plots import altair_chart, matplotlib_axes
from monitor.reports.attribution import sentence
from monitor.reports.statements import describe
from monitor.reports.views import EngineView, SeriesView
from monitor.reports.window_report import WindowReport, finite

_STYLE = (
    ".blindsight b.bad{color:#c4320a}.blindsight b.warn{color:#a15c00}.blindsight b.good{color:#00795a}"
    ".blindsight img{max-width:100%;background:#fff}"
)
_ALARMS_SHOWN = 3


class RaisedAlarm(NamedTuple):
    """An alarm of a control chart, with the series and metric of the chart and the window that raised it.

    `time` is the end of this window in seconds since the epoch; NaN if the answers had no times. `change` is
    a text about the change of the metric, and the groups and features that contributed to it; ``""`` if it is
    unknown.
    """

    model: str
    group: str
    metric: str
    window: int
    time: float
    change: str = ""


@dataclass(frozen=True, eq=False, repr=False)
class MonitorResult:
    """The result of `Monitor.estimate`. A notebook shows the verdict and the chart of the worst metric.

    Parameters
    ----------
    write_config : callable
        The function that `to_config` calls.
    reports : tuple of WindowReport
        The reports that `replay` would write (`monitor.reports.window_report.to_json` makes their lines). If
        labels revised a window, the window has more than one report.
    view : EngineView
        The state of the engine after the last row.
    period, labelled, unused
        The data for charts and the report.

    Examples
    --------
    `Monitor` has one.
    """

    write_config: Callable[[str | Path, str, bool], Path]
    reports: tuple[WindowReport, ...]
    view: EngineView
    period: Period = field(repr=False)
    labelled: Labelled = field(repr=False)
    unused: Unused = field(repr=False)

    @property
    def windows(self) -> tuple[WindowReport, ...]:
        """The newest report of each window, in the order in which the windows closed."""
        newest = {(report.model, report.group, report.window): report for report in self.reports}
        return tuple(newest.values())

    @property
    def alarms(self) -> tuple[RaisedAlarm, ...]:
        """Every raised alarm, in the order of the windows."""
        changes = {
            (report.model, report.group, each.metric, report.window): sentence(each)
            for report in self.windows
            for each in report.attributions
        }
        alarms = [
            RaisedAlarm(
                *(place := (model, group, metric, raised.window)),
                raised.time if self._timed else math.nan,
                changes.get(place, ""),
            )
            for (_, model, group), metrics in self.period.histories.alarms().items()
            for metric, each in metrics.items()
            for raised in each
        ]
        return tuple(
            sorted(alarms, key=lambda alarm: (alarm.time, alarm.window) if self._timed else alarm[3:4])
        )

    @property
    def rejected(self) -> Mapping[str, int]:
        """The number of rows that could not be used, by reason.

        As in `replay`, a row with a label and without scores counts as a label. Such a row is rejected,
        because it has no id that joins it to an answer.
        """
        return dict(self.unused.answers + self.unused.labels)

    def to_pandas(self) -> Any:
        """Return a pandas `DataFrame` with a row for each window, metric and estimator.

        Absent times, intervals and limits are missing values. The column `unknown` has the reason why there
        is no estimate. The column `unit` has the unit of a metric of errors, such as minutes; it is missing
        for ratios.

        Raises
        ------
        BlindsightError
            pandas or narwhals is not installed.
        """
        return new_frame(self._columns(), "pandas")

    def to_polars(self) -> Any:
        """Return a polars `DataFrame` with the content of `to_pandas`."""
        return new_frame(self._columns(), "polars")

    def plot(
        self,
        metric: str | None = None,
        group: str = "",
        backend: Literal["matplotlib", "altair"] = "matplotlib",
        ax: Any = None,
    ) -> Any:
        """Draw the control chart of a metric.

        Parameters
        ----------
        metric : str, optional
            One of the task's `metrics` or `error_metrics`; by default the accuracy, or the share within
            tolerance.
        group : str
            ``""`` for the whole model, otherwise a group such as ``region=eu``.
        backend : {"matplotlib", "altair"}
        ax : matplotlib.axes.Axes, optional
            Axes to draw in with matplotlib; new axes by default.

        Returns
        -------
        matplotlib.axes.Axes or altair.LayerChart

        Raises
        ------
        ConfigError
            There is no such chart.
        BlindsightError
            The library is not installed; the message has the pip command.
        """
        if backend not in ("matplotlib", "altair"):
            raise ConfigError(f"backend: expected matplotlib or altair, got {backend!r}")
        share = self.view.series[0].share if self.view.series else "accuracy"
        data = self._chart(share if metric is None else metric, group)
        return matplotlib_axes(data, ax) if backend == "matplotlib" else altair_chart(data)

    def save_html(self, path: str | Path) -> Path:
        """Write the report of `replay` to an HTML file without links to other files, and return its path.

        Raises
        ------
        SinkError
            The file cannot be written.
        """
        write_report(Path(path), self.period.html(self.labelled, [self.view]))
        return Path(path)

    def to_config(
        self, path: str | Path = "blindsight.yaml", source: str = "answers.ndjson", replace: bool = False
    ) -> Path:
        """Write the daemon's configuration, and return its path; see `Monitor.to_config`."""
        return self.write_config(path, source, replace)

    def __repr__(self) -> str:
        return f"{type(self).__name__}: {' '.join([*self._verdict(), *self._facts()])}"

    def _repr_html_(self) -> str:
        summary, facts = self._headline(), " ".join(self._facts())
        pictures = [
            (data.title, base64.b64encode(control_chart_svg(data).encode()).decode())
            for data in self._worst_charts()
        ]
        return str(render("notebook.html", "result", Markup(_STYLE), summary, facts, pictures))

    @property
    def _timed(self) -> bool:
        """True if any answer had a time; without times, every window lies at the beginning of 1970."""
        return any(report.end_time for report in self.reports)

    @property
    def _models(self) -> list[SeriesView]:
        return [one for one in self.view.series if not one.group]

    def _headline(self) -> Headline:
        return headline(self._models)

    def _verdict(self) -> Iterator[str]:
        summary = self._headline()
        yield from filter(None, (summary.words, summary.rest))

    def _facts(self) -> Iterator[str]:
        for one in self._models:
            yield f"{describe(one)}, in the newest window ({one.windows_closed:,} closed);"
        raised = [alarm for alarm in self.alarms if not alarm.group]
        shown = [
            f"{each.metric} in window {each.window}{self._when(each)}" for each in raised[:_ALARMS_SHOWN]
        ]
        more = f" and {len(raised) - _ALARMS_SHOWN} more" if len(raised) > _ALARMS_SHOWN else ""
        yield (
            f"{'alarm' if len(raised) == 1 else 'alarms'}: {', '.join(shown)}{more}" if shown else "no alarm"
        )
        if raised and any(one.features for one in self._models) and raised[0].change:
            yield f"({raised[0].metric} in window {raised[0].window}: {raised[0].change})"
        if self.rejected:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in self.rejected.items())
            yield f"(rows not used: {reasons})"

    @staticmethod
    def _when(alarm: RaisedAlarm) -> str:
        return f" ({moment(alarm.time)})" if alarm.time == alarm.time else ""

    def _worst_charts(self) -> Iterator[ControlChartData]:
        for one in self._models:
            if one.windows_closed:
                yield self._chart(worst_metric(one), "")

    def _chart(self, metric: str, group: str) -> ControlChartData:
        known = {report.group: report for report in self.windows}
        if group not in known:
            groups = ", ".join(repr(name) for name in known) or "none: no window has closed"
            raise ConfigError(f"group: expected one of {groups}, got {group!r}")
        metrics = dict.fromkeys(each.metric for each in (*known[group].estimates, *known[group].values))
        if metric not in metrics:
            raise ConfigError(
                f"plot: expected one of {', '.join(metrics)}, got {metric!r}: name it in metrics"
            )
        series = known[group].task, known[group].model, group
        return self.period.histories.chart(series, metric, self.labelled.get(series))

    def _columns(self) -> dict[str, tuple[str, list[Any]]]:
        rows = [row for report in self.windows for row in _rows(report, self._timed)]
        return {
            name: (kind, [row[place] for row in rows]) for place, (name, kind) in enumerate(_COLUMNS.items())
        }


_COLUMNS: Mapping[str, str] = {
    "model": "String",
    "group": "String",
    "version": "String",
    "window": "Int64",
    "start": "time",
    "end": "time",
    "size": "Int64",
    "metric": "String",
    "estimator": "String",
    "value": "Float64",
    "lower": "Float64",
    "upper": "Float64",
    "unknown": "String",
    "center": "Float64",
    "limit_lower": "Float64",
    "limit_upper": "Float64",
    "alarm": "Boolean",
    "improved": "Boolean",
    "alarm_by_labels": "Boolean",
    "confidences_moved": "Boolean",
    "unit": "String",
}


def _rows(report: WindowReport, timed: bool) -> Iterator[tuple[Any, ...]]:
    """Yield a row for each estimate, its cells in the order of `_COLUMNS`."""
    charts = {(chart.metric, chart.estimator): chart for chart in report.charts}
    window = (report.model, report.group, report.version, report.window)
    ends = (report.start_time, report.end_time)
    times = [datetime.fromtimestamp(end, UTC) if timed else None for end in ends]
    for each in (*report.estimates, *report.values):
        result = finite(each.result)
        if isinstance(result, Estimate):
            numbers: tuple[Any, ...] = (result.value, result.lower, result.upper, None)
        else:
            numbers = (None, None, None, result.reason)
        chart = charts.get((each.metric, each.estimator))
        limits: tuple[Any, ...] = (None, None, None, False, False, False, False)
        if chart is not None:
            verdict = chart.verdict
            known = map(_known, (verdict.center, verdict.lower, verdict.upper))
            by_labels = chart.by_labels is not None, chart.confidences_moved
            limits = (*known, verdict.out_of_control, verdict.improved, *by_labels)
        yield (*window, *times, report.size, each.metric, each.estimator, *numbers, *limits, each.unit)


def _known(value: float) -> float | None:
    return value if value == value else None
