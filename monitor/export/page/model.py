"""The page of one model or group: `/models/{task}/{model}`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Annotated
from urllib.parse import urlencode

import msgspec
from markupsafe import Markup
from msgspec import UNSET, Meta, UnsetType

from monitor.export.http.query import MOST_NUMBER
from monitor.export.page import health
from monitor.export.page.addresses import model_address
from monitor.export.page.api import ChartQuery, Data, TimeRange
from monitor.export.page.classes import classes
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
from monitor.export.page.overview import row, rows_table, runbook_address
from monitor.export.page.states import runbook_of, urgency, worst_metric
from monitor.export.page.templates import render
from monitor.export.page.windows import (
    MOST_WINDOWS,
    RANGES,
    AlarmLine,
    ChartColumns,
    alarms_of,
    series_view,
)
from monitor.export.page.words import anchor, broken_rules, difference_in, moment, tone, values_in
from monitor.reports.views import EngineView, SeriesView
from monitor.reports.window_report import WindowReport, seconds_of
from monitor.stats.estimate.hajek import WeightedCounts, hajek

_MOST_ALARMS = 20
_MOST_OTHERS = 10


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
    range: TimeRange = UNSET
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
        return self.data.reports(self.one, self.query.limit, span=self.query.range)

    @cached_property
    def _metric(self) -> str:
        """The metric of the large chart. Before the first window, any name is accepted."""
        if self.query.metric and self.one.windows_closed:
            self.data.estimator(self.one, self.query.metric)
        return self.query.metric or worst_metric(self.one)

    def parts(self) -> dict[str, Markup]:
        return {
            "model": self._head(),
            "range": self._ranges(),
            "chart": self._chart(),
            "others": self._small_multiples(),
            "compared": self._compared(),
            "window": self._window(),
            "classes": classes(self.one),
            "features": self._features(),
            "alarms": self._alarms(),
            "labels": self._labels(),
            "confidences": self._confidences(),
            "groups": self._groups(),
        }

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
        return model_address(self.one.task, model, self.root, **query)

    def _head(self) -> Markup:
        one = self.one
        return render(
            "model.html",
            "head",
            one,
            introduction(one, "h2", f"task {one.task} · {progress(one)}"),
            metrics_table(one),
            whole=self._address(one.model) if one.group else "",
            root=self.root,
            runbook=runbook_of(self.one),
            runbook_address=runbook_address(self.one, self.root),
            windows=[(words, self._windows(form)) for form, words in (("csv", "CSV"), ("ndjson", "NDJSON"))],
        )

    def _windows(self, form: str) -> str:
        names = {"task": self.one.task, "model": self.one.model, "group": self.one.group}
        query = urlencode({**names, "limit": MOST_WINDOWS, "format": form}, errors="replace")
        return f"{self.root}api/v1/windows?{query}"

    def _chart_parameters(self) -> dict[str, str | int]:
        query = self.query
        parameters: dict[str, str | int] = {"limit": query.limit}
        parameters |= {"compare": query.compare} if query.compare else {}
        parameters |= {} if query.range is UNSET else {"range": query.range}
        return parameters | ({} if query.former is UNSET else {"former": query.former})

    def _ranges(self) -> Markup:
        """Return links that choose the windows of the charts, and a sentence on the chosen ones."""
        reports, chosen = self._reports, self.query.range
        if not reports:
            return Markup()
        newest = chosen is UNSET and self.query.limit == MOST_WINDOWS
        links = [(f"newest {MOST_WINDOWS}", self._here(range="", limit=""), newest)]
        for name in RANGES:
            words = f"{name[:-1]} {name[-1]}" if name != "all" else name
            links.append((words, self._here(range=name, limit="", former=""), name == chosen))
        return render("model.html", "ranges", links, reports[0], reports[-1], len(reports), self._step)

    @cached_property
    def _step(self) -> int:
        """The distance between the numbers of windows that are shown: 1 if all are shown."""
        numbers = [report.window for report in self._reports]
        return min((b - a for a, b in pairwise(numbers[:-1])), default=1)

    def _figure(self, metric: str, kind: str) -> Markup:
        return figure(self.one, metric, self.root, kind, **self._chart_parameters())

    def _chart(self) -> Markup:
        if self.one.windows_closed and self._metric in charted_metrics(self.one):
            return self._figure(self._metric, "large")
        return Markup()

    def _small_multiples(self) -> Markup:
        others = [metric for metric in charted_metrics(self.one) if metric != self._metric]
        if not self.one.windows_closed:
            return Markup()
        charts = [(metric, self._here(metric=metric), self._figure(metric, "small")) for metric in others]
        return render("model.html", "others", charts)

    def _compared(self) -> Markup:
        one, query = self.one, self.query
        is_compared = bool(query.compare) or query.former is not UNSET
        rows = []
        if is_compared:
            names = {"task": one.task, "model": one.model, "group": one.group, "metric": self._metric}
            chart_request = ChartQuery(
                **names,
                limit=query.limit,
                range=query.range,
                compare=query.compare,
                former=query.former,
            )
            chart = self.data.chart(chart_request)
            rows = [_summary(one.model, chart, chart.value), _summary(chart.other_name, chart, chart.other)]
        models = self._other_models()
        links = [*self._comparisons(is_compared), *models[:_MOST_OTHERS]]
        return render("model.html", "compared", self._metric, links, rows, more=len(models) - _MOST_OTHERS)

    def _other_models(self) -> list[tuple[str, str, bool]]:
        one = self.one
        return [
            (
                f"with {each.model}",
                self._here(compare=each.model, former=""),
                each.model == self.query.compare,
            )
            for each in self.data.view().engine.series
            if (each.task, each.group) == (one.task, one.group) and each.model != one.model
        ]

    def _comparisons(self, is_compared: bool) -> Iterator[tuple[str, str, bool]]:
        """Yield links that end a comparison, and that compare with an earlier period."""
        if is_compared:
            yield "with nothing", self._here(compare="", former=""), False
        if len(self._reports) > 1:
            half = len(self._reports) // 2
            former = self._reports[-1].window - half
            words = f"the newest {half:,} windows with those before"
            yield words, self._here(compare="", limit=half, range="", former=former), False

    def _window(self) -> Markup:
        reports = self._reports
        if self.query.window is not UNSET:
            number = self.query.window
            kept = next((report for report in reports if report.window == number), None)
            report = kept or self.data.window(self.one, number)
        elif reports:
            report = reports[-1]
        else:
            return Markup()
        one = series_view(report, report.window + 1, {})
        size = f"{report.size:,} answers, closed by {report.closed_by}"
        revised = f" · revision {report.revision:,}" if report.revision else ""
        span = f"{moment(report.start_time)} to {moment(report.end_time)}"
        return render(
            "model.html",
            "window",
            one,
            introduction(one, "h2", f"{span} · {size}{revised}", name=f"Window {report.window:,}"),
            list(self._beside(report)),
            metrics_table(one, f"Metrics of window {report.window:,}"),
            positions={
                name: zip(ends[::2], ends[1::2], strict=True) for name, ends in report.positions.items()
            },
        )

    def _beside(self, report: WindowReport) -> Iterator[tuple[str, str, bool]]:
        newest = self._reports[-1].window if self._reports else report.window
        if report.window:
            yield "Window before", self._here(window=report.window - 1), False
        if report.window < newest:
            yield "Window after", self._here(window=report.window + 1), False
            yield "Newest window", self._here(window=""), False

    def _features(self) -> Markup:
        return render("model.html", "features", features_table([self.one]))

    def _alarms(self) -> Markup:
        reports = self._reports
        if not reports or not any(report.charts for report in reports):
            return Markup()
        alarms = alarms_of(reports)
        timelines = [
            (metric, _timeline(metric, [each for each in alarms if each.metric == metric], reports))
            for metric in dict.fromkeys(alarm.metric for alarm in alarms)
        ]
        return render(
            "model.html",
            "alarms",
            reports[0],
            reports[-1],
            timelines,
            [self._alarm(alarm) for alarm in alarms[::-1][:_MOST_ALARMS]],
            count=len(alarms),
            step=self._step,
        )

    def _alarm(self, alarm: AlarmLine) -> tuple[str, ...]:
        def window(number: int, end: str) -> Markup:
            address = self._here(window=number, metric=alarm.metric)
            return render("model.html", "window_link", number, address, seconds_of(end))

        ended = tone("still on", "bad")
        if alarm.ended_window is not None and alarm.ended_time is not None:
            ended = window(alarm.ended_window, alarm.ended_time)
        raised = window(alarm.raised_window, alarm.raised_time)
        return alarm.metric, raised, ended, broken_rules(alarm.rules)

    def _labels(self) -> Markup:
        one, engine = self.one, self.data.view().engine
        share = hajek(WeightedCounts(one.labelled, one.correct), LEVEL) if one.labelled else None
        of_task = EngineView(
            series=(one,),
            labels={key: count for key, count in engine.labels.items() if key[0] == one.task},
            labels_waiting={task: n for task, n in engine.labels_waiting.items() if task == one.task},
            label_lag_seconds=engine.label_lag_seconds,
            refits={task: refit for task, refit in engine.refits.items() if task == one.task},
        )
        return (
            render("model.html", "labels", one, share)
            + health.labels(of_task, "Labels of the task")
            + health.refits(of_task)
            + health.recalibrations(of_task)
        )

    def _confidences(self) -> Markup:
        one = self.one
        if one.distributions is None:
            return Markup()
        key = anchor(one.task, one.model, "confidences of")
        return confidences(one.model, key, one.distributions, unfolded=True)

    def _groups(self) -> Markup:
        one = self.one
        groups = [
            each
            for each in self.data.view().engine.series
            if (each.task, each.model) == (one.task, one.model) and each.group
        ]
        if not groups:
            return Markup()

        def link(each: SeriesView) -> str:
            return model_address(each.task, each.model, self.root, group=each.group)

        rows = [row(each, each.group, link, has_trend=True) for each in sorted(groups, key=urgency)]
        table = rows_table(f"Groups of {one.model}, the worst first", "Group", rows, self.root)
        return render("model.html", "groups", table)


def _summary(name: str, chart: ChartColumns, values: Sequence[float | None]) -> tuple[str, ...]:
    """Return a row of the comparison; the mean difference is over windows in which both values are known."""
    known = [value for value in values if value is not None]
    if not known:
        return name, "0", "", "", "", ""
    means = [sum(known) / len(known), min(known), max(known)]
    shown = values_in(chart.unit, *means)
    pairs = [value - own for value, own in zip(values, chart.value, strict=True) if None not in (value, own)]  # type: ignore[operator]
    difference = ""
    if values is not chart.value and pairs:
        difference = difference_in(chart.unit, sum(pairs) / len(pairs))
    return name, f"{len(known):,}", *shown, difference


def _timeline(metric: str, alarms: Sequence[AlarmLine], reports: Sequence[WindowReport]) -> Markup:
    """Draw the periods in which the alarm was on. Windows have equal distances, as in charts."""
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
