"""The page of one model or group: `/models/{task}/{model}`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated
from urllib.parse import urlencode

import msgspec
from msgspec import UNSET, Meta, UnsetType

from monitor.export.alertmanager.holding import (
    AT_RISK,
    BREACHED,
    BROKEN_FEATURE,
    NO_WINDOW,
    OUT_OF_CONTROL,
    UNTRUSTED,
)
from monitor.export.http.query import MOST_NUMBER
from monitor.export.page import health
from monitor.export.page.addresses import model_address
from monitor.export.page.api import ChartQuery, Data
from monitor.export.page.confidences import LEVEL, confidences
from monitor.export.page.document import html_document
from monitor.export.page.features import features_table
from monitor.export.page.models import (
    charted_metrics,
    figure,
    introduction,
    metrics_table,
    progress,
    timeline,
    whole_tasks,
)
from monitor.export.page.overview import (
    WorstState,
    live_trend,
    row,
    rows_table,
    time_words,
    untrusted,
    worst_metric,
    worst_state,
)
from monitor.export.page.windows import MOST_WINDOWS, AlarmLine, ChartColumns, alarms_of, series_view
from monitor.export.page.words import (
    anchor,
    broken_rules,
    format_result,
    moment,
    numbers,
    percent,
    table,
    text,
)
from monitor.reports.views import EngineView, SeriesView
from monitor.reports.window_report import WindowReport, seconds_of
from monitor.stats.estimate.hajek import WeightedCounts, hajek

_MOST_ALARMS = 20
_MOST_OTHERS = 10

RUNBOOKS: dict[WorstState, str] = {
    WorstState.UNTRUSTED: UNTRUSTED,
    WorstState.BREACHED: BREACHED,
    WorstState.OUT_OF_CONTROL: OUT_OF_CONTROL,
    WorstState.SILENT: NO_WINDOW,
    WorstState.AT_RISK: AT_RISK,
}
"""The runbook of each state that needs attention."""


class ModelQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The query parameters of a model's page."""

    metric: Annotated[str, Meta(description="The metric of the large chart; the worst one if empty.")] = ""
    group: Annotated[str, Meta(description="A group such as `region=eu`; the whole model if empty.")] = ""
    window: (
        Annotated[
            int,
            Meta(
                ge=0, le=MOST_NUMBER, description="The window that is shown in detail; the newest if absent."
            ),
        ]
        | UnsetType
    ) = UNSET
    limit: Annotated[int, Meta(ge=1, le=MOST_WINDOWS, description="Windows in the charts, the newest.")] = (
        MOST_WINDOWS
    )
    compare: Annotated[str, Meta(description="Another model of the task, to compare with.")] = ""
    former: (
        Annotated[
            int,
            Meta(ge=0, le=MOST_NUMBER, description="The last window of an earlier period to compare with."),
        ]
        | UnsetType
    ) = UNSET


class NamedModelQuery(ModelQuery, frozen=True, kw_only=True):
    """The query parameters of `/models`, which also name the model."""

    task: Annotated[str, Meta(description="The task.")]
    model: Annotated[str, Meta(description="The model.")]


def render_model(data: Data, query: NamedModelQuery, root: str, now: float | None = None) -> bytes:
    """Return the page of a model or group as a complete HTML document.

    Parameters
    ----------
    data : Data
    query : NamedModelQuery
    root : str
        The relative address of the agent's page.
    now : float, optional
        Time of the page, seconds since the epoch.

    Raises
    ------
    RefusedError
        There is no such model, group, metric or window; or the store cannot be read.
    """
    # Alerts on the models of such a task lead here; one section of the page is for all of them.
    if own := [each for each in data.view().engine.tasks if each.task == query.task]:
        title = f"{query.task} · Blindsight"
        return html_document(title, whole_tasks(own), root, "All models", now).encode("utf-8", "replace")
    one = data.series(query.task, query.model, query.group)
    page = _Page(data, one, query, root)
    title = " ".join(filter(None, (one.model, one.group, "· Blindsight")))
    return html_document(title, page.parts(), root, "All models", now).encode("utf-8", "replace")


@dataclass(frozen=True)
class _Page:
    data: Data
    one: SeriesView
    query: NamedModelQuery
    root: str

    @cached_property
    def _reports(self) -> list[WindowReport]:
        return self.data.reports(self.one, self.query.limit)

    @cached_property
    def _metric(self) -> str:
        """The metric of the large chart; before the first window any name is accepted."""
        if self.query.metric and self.one.windows_closed:
            self.data.estimator(self.one, self.query.metric)
        return self.query.metric or worst_metric(self.one)

    def parts(self) -> dict[str, Iterable[str]]:
        parts = {
            "model": self._head(),
            "chart": self._chart(),
            "others": self._small_multiples(),
            "compared": self._compared(),
            "window": self._window(),
            "features": self._features(),
            "alarms": self._alarms(),
            "labels": self._labels(),
            "confidences": self._confidences(),
            "groups": self._groups(),
        }
        return {name: list(content) for name, content in parts.items()}

    def _here(self, **changes: str | int) -> str:
        """Return the address of this page with other parameters; empty ones are left out."""
        parameters = {
            name: value
            for name, value in msgspec.structs.asdict(self.query).items()
            if name not in ("task", "model") and value is not UNSET
        }
        parameters = {
            name: value for name, value in parameters.items() if (name, value) != ("limit", MOST_WINDOWS)
        }
        return self._address(self.one.model, **{**parameters, **changes})

    def _address(self, model: str, **query: str | int) -> str:
        return text(model_address(self.one.task, model, self.root, **query))

    def _head(self) -> Iterator[str]:
        one = self.one
        yield f"<section{untrusted(one, 'series')}>"
        yield introduction(one, "h2", f"task {text(one.task)} · {progress(one)}")
        yield f'<nav class="choices" aria-label="Of this model">{"".join(self._links())}</nav>'
        yield from metrics_table(one)
        yield "</section>"

    def _links(self) -> Iterator[str]:
        one = self.one
        if one.group:
            yield f'<a href="{self._address(one.model)}">Whole model</a>'
        runbook = RUNBOOKS.get(worst_state(one))
        if one.broken_features and worst_state(one) is WorstState.UNTRUSTED:
            runbook = BROKEN_FEATURE
        if runbook:
            yield f'<a href="{self.root}runbooks/{runbook}.md">Runbook {runbook}</a>'
        names = {"task": one.task, "model": one.model, "group": one.group, "limit": MOST_WINDOWS}
        for form, words in (("csv", "CSV"), ("ndjson", "NDJSON")):
            link_query = text(urlencode({**names, "format": form}, errors="replace"))
            yield f'<a href="{self.root}api/v1/windows?{link_query}" download>Windows as {words}</a>'

    def _chart_parameters(self) -> dict[str, str | int]:
        query = self.query
        parameters: dict[str, str | int] = {"limit": query.limit}
        parameters |= {"compare": query.compare} if query.compare else {}
        return parameters | ({} if query.former is UNSET else {"former": query.former})

    def _chart(self) -> Iterator[str]:
        if self.one.windows_closed and self._metric in charted_metrics(self.one):
            yield figure(self.one, self._metric, self.root, "large", **self._chart_parameters())

    def _small_multiples(self) -> Iterator[str]:
        others = [metric for metric in charted_metrics(self.one) if metric != self._metric]
        if not others or not self.one.windows_closed:
            return
        yield '<h2>Other metrics</h2><div class="multiples">'
        for metric in others:
            yield f'<div><a href="{self._here(metric=metric)}">{text(metric)}</a>'
            yield figure(self.one, metric, self.root, "small", **self._chart_parameters()) + "</div>"
        yield "</div>"

    def _compared(self) -> Iterator[str]:
        one, query, links = self.one, self.query, list(self._comparisons())
        if not links and not query.compare and query.former is UNSET:
            return
        yield f'<h2>Compare</h2><nav class="choices" aria-label="Compare with">{"".join(links)}</nav>'
        if not query.compare and query.former is UNSET:
            return
        names = {"task": one.task, "model": one.model, "group": one.group, "metric": self._metric}
        chart_request = ChartQuery(**names, limit=query.limit, compare=query.compare, former=query.former)
        chart = self.data.chart(chart_request)
        rows = [_summary(one.model, chart, chart.value), _summary(chart.other_name, chart, chart.other)]
        heads = ("Of", "#Windows", "#Mean estimate", "#Lowest", "#Highest", "#Mean difference in points")
        yield from table(f"Estimates of {self._metric}, side by side", heads, rows, hidden=False)

    def _comparisons(self) -> Iterator[str]:
        one, query = self.one, self.query
        series = self.data.view().engine.series
        others = [
            each.model
            for each in series
            if (each.task, each.group) == (one.task, one.group) and each.model != one.model
        ]
        reports = self._reports
        if query.compare or query.former is not UNSET:
            yield f'<a href="{self._here(compare="", former="")}">with nothing</a>'
        if len(reports) > 1:
            half = len(reports) // 2
            former = reports[-1].window - half
            link = self._here(compare="", limit=half, former=former)
            yield f'<a href="{link}">the newest {half:,} windows with those before</a>'
        for model in others[:_MOST_OTHERS]:
            here = ' aria-current="true"' if model == query.compare else ""
            yield f'<a href="{self._here(compare=model, former="")}"{here}>with {text(model)}</a>'
        if len(others) > _MOST_OTHERS:
            yield f"<span>{len(others) - _MOST_OTHERS:,} more by compare=MODEL in the address</span>"

    def _window(self) -> Iterator[str]:
        reports = self._reports
        if self.query.window is not UNSET:
            number = self.query.window
            kept = next((report for report in reports if report.window == number), None)
            report = kept or self.data.window(self.one, number)
        elif reports:
            report = reports[-1]
        else:
            return
        one = series_view(report, report.window + 1, {})
        size = f"{report.size:,} answers, closed by {text(report.closed_by)}"
        revised = f" · revision {report.revision:,}" if report.revision else ""
        span = f"{moment(report.start_time)} to {moment(report.end_time)}"
        yield f"<section{untrusted(one, 'series')}>"
        yield introduction(one, "h2", f"{span} · {size}{revised}", name=f"Window {report.window:,}")
        yield f'<nav class="choices" aria-label="Windows">{"".join(self._beside(report))}</nav>'
        yield from metrics_table(one, f"Metrics of window {report.window:,}")
        yield from _positions(report)
        yield "</section>"

    def _beside(self, report: WindowReport) -> Iterator[str]:
        newest = self._reports[-1].window if self._reports else report.window
        if report.window:
            yield f'<a href="{self._here(window=report.window - 1)}">Window before</a>'
        if report.window < newest:
            yield f'<a href="{self._here(window=report.window + 1)}">Window after</a>'
            yield f'<a href="{self._here(window="")}">Newest window</a>'

    def _features(self) -> Iterator[str]:
        if self.one.feature_rates:
            yield "<h2>Features</h2>"
            yield from features_table([self.one])

    def _alarms(self) -> Iterator[str]:
        reports = self._reports
        if not reports or not any(report.charts for report in reports):
            return
        alarms = alarms_of(reports)
        first, last = reports[0].window, reports[-1].window
        yield "<h2>Alarms</h2>"
        yield f'<p class="soft">Of windows {first:,} to {last:,}, {moment(reports[0].end_time)} to '
        yield f"{moment(reports[-1].end_time)}: {len(alarms):,}.</p>"
        if not alarms:
            return
        metrics = dict.fromkeys(alarm.metric for alarm in alarms)
        rows = (
            f'<tr><th scope="row">{text(metric)}</th><td>'
            f"{_timeline(metric, [each for each in alarms if each.metric == metric], reports)}</td></tr>"
            for metric in metrics
        )
        yield from table("Alarms over the windows", ("Metric", "When the alarm was on"), rows, "timelines")
        listed = (self._alarm(alarm) for alarm in alarms[::-1][:_MOST_ALARMS])
        heads = ("Metric", "Raised", "Ended", "What the window showed")
        yield from table("Alarms, the newest first", heads, listed)
        if len(alarms) > _MOST_ALARMS:
            yield f'<p class="soft">{len(alarms) - _MOST_ALARMS:,} earlier ones: api/v1/alarms.</p>'

    def _alarm(self, alarm: AlarmLine) -> str:
        def window(number: int, end: str) -> str:
            link = self._here(window=number, metric=alarm.metric)
            return f'<a href="{link}">window {number:,}</a>, {time_words(seconds_of(end))}'

        ended = '<span class="bad">still on</span>'
        if alarm.ended_window is not None and alarm.ended_time is not None:
            ended = window(alarm.ended_window, alarm.ended_time)
        return (
            f'<tr><th scope="row">{text(alarm.metric)}</th>'
            f"<td>{window(alarm.raised_window, alarm.raised_time)}</td><td>{ended}</td>"
            f"<td>{broken_rules(alarm.rules)}</td></tr>"
        )

    def _labels(self) -> Iterator[str]:
        one, engine = self.one, self.data.view().engine
        yield "<h2>Labels so far</h2>"
        share = format_result(hajek(WeightedCounts(one.labelled, one.correct), LEVEL)) if one.labelled else ""
        cells = numbers([f"{one.predictions:,}", f"{one.labelled:,}", f"{one.correct:,}"])
        name = text(" ".join(filter(None, (one.model, one.group))))
        line = f'<tr><th scope="row">{name}</th>{cells}<td>{share}</td></tr>'
        heads = ("Model", "#Answers in windows", "#Labelled", "#Right", "Share of right answers")
        yield from table("Labels of the model", heads, [line])
        of_task = EngineView(
            series=(one,),
            labels={key: count for key, count in engine.labels.items() if key[0] == one.task},
            labels_waiting={task: n for task, n in engine.labels_waiting.items() if task == one.task},
            label_lag_seconds=engine.label_lag_seconds,
            refits={task: refit for task, refit in engine.refits.items() if task == one.task},
        )
        yield from health.labels(of_task, "Labels of the task")
        yield from health.refits(of_task)
        yield from health.recalibrations(of_task)

    def _confidences(self) -> Iterator[str]:
        one = self.one
        if one.distributions is not None:
            key = anchor(one.task, one.model, "confidences of")
            yield "".join(confidences(one.model, key, one.distributions, unfolded=True))

    def _groups(self) -> Iterator[str]:
        one = self.one
        groups = [
            each
            for each in self.data.view().engine.series
            if (each.task, each.model) == (one.task, one.model) and each.group
        ]
        if not groups:
            return
        yield "<h2>Groups</h2>"

        def link(each: SeriesView) -> str:
            return model_address(each.task, each.model, self.root, group=each.group)

        def trend(each: SeriesView, metric: str) -> str:
            return live_trend(each, metric, self.root)

        shown = sorted(groups, key=worst_state)
        rows = (row(each, each.group, link, trend) for each in shown)
        yield from rows_table(f"Groups of {one.model}, the worst first", "Group", rows, has_trend=True)


def _summary(name: str, chart: ChartColumns, values: Sequence[float | None]) -> str:
    """Return a row of the comparison; the mean difference is over windows in which both values are known."""
    known = [value for value in values if value is not None]
    if not known:
        return f'<tr><th scope="row">{text(name)}</th>{numbers(["0", "", "", "", ""])}</tr>'
    cells = [
        f"{len(known):,}",
        *(f"{percent(x)} %" for x in (sum(known) / len(known), min(known), max(known))),
    ]
    pairs = [value - own for value, own in zip(values, chart.value, strict=True) if None not in (value, own)]  # type: ignore[operator]
    difference = "" if values is chart.value or not pairs else f"{100 * sum(pairs) / len(pairs):+.1f}"
    return f'<tr><th scope="row">{text(name)}</th>{numbers([*cells, difference])}</tr>'


def _positions(report: WindowReport) -> Iterator[str]:
    if not report.positions:
        return
    line = ", ".join(
        f"{text(name)} {'; '.join(f'{a} to {b}' for a, b in zip(ends[::2], ends[1::2], strict=True))}"
        for name, ends in report.positions.items()
    )
    yield f'<p class="soft">Positions in the source: {line}</p>'


def _timeline(metric: str, alarms: Sequence[AlarmLine], reports: Sequence[WindowReport]) -> str:
    """Draw the stretches in which the alarm was on; windows have equal distances, as in charts."""
    places = {report.window: place for place, report in enumerate(reports)}
    ends = [len(reports) if a.ended_window is None else places[a.ended_window] for a in alarms]
    shares = [
        (places[a.raised_window] / len(reports), end / len(reports))
        for a, end in zip(alarms, ends, strict=True)
    ]
    words = [
        f"window {a.raised_window:,} to {'now' if a.ended_window is None else f'window {a.ended_window:,}'}"
        for a in alarms
    ]
    return timeline(f"Alarms of {metric}: {', '.join(words)}", shares)
