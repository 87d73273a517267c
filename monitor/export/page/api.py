"""The JSON API under `/api/v1/`: the content of the page, for programs.

`ENDPOINTS` defines the API; routes, checks of parameters and the OpenAPI document follow from this table.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
import numpy as np
from msgspec import UNSET, Meta, UnsetType

from monitor.base.errors import StoreError
from monitor.base.names import AVERAGE_CONFIDENCE, DOUBLY_ROBUST
from monitor.base.records import FeatureKind
from monitor.export.charts.svg import ControlChartData
from monitor.export.http.messages import HttpRequest, RefusedError, Response
from monitor.export.http.negotiation import packed
from monitor.export.http.query import MOST_NUMBER, parse_query, some
from monitor.export.page.addresses import model_address
from monitor.export.page.overview import Shown, selected
from monitor.export.page.states import worst_metric, worst_state
from monitor.export.page.windows import (
    MOST_WINDOWS,
    RANGES,
    AlarmLine,
    ChartColumns,
    Range,
    Windows,
    alarms_of,
    chart_columns,
    chart_of,
    with_other,
)
from monitor.reports.features import BrokenFeature
from monitor.reports.reader import from_json
from monitor.reports.shared import shared_views
from monitor.reports.statements import SharedLine
from monitor.reports.views import AgentView, SeriesView
from monitor.reports.window_report import (
    ChartLine,
    ObjectiveLine,
    WindowLine,
    WindowReport,
    WrittenEstimate,
    encoded,
    rfc3339,
    rounded,
    significant,
)
from monitor.stats.features.health import FaultKind

API = "/api/v1/"
_JSON = "application/json"
_NDJSON = "application/x-ndjson"
_CSV = "text/csv; charset=utf-8"
_NO_FILE_NAME = re.compile(r"[^A-Za-z0-9.-]+")

# No `type` statement before Python 3.12.
_Task: TypeAlias = Annotated[str, Meta(description="The task, as the metrics name it.")]
_Model: TypeAlias = Annotated[str, Meta(description="The model, as the metrics name it.")]
_Group: TypeAlias = Annotated[str, Meta(description="A group such as `region=eu`; the whole model if empty.")]
_Metric: TypeAlias = Annotated[str, Meta(description="A metric such as `accuracy`.")]
_Limit: TypeAlias = Annotated[
    int, Meta(ge=1, le=MOST_WINDOWS, description="Windows at most, the newest ones.")
]
_Before: TypeAlias = Annotated[
    int, Meta(ge=0, le=MOST_NUMBER, description="Only windows with numbers below this one.")
]
TimeRange: TypeAlias = (
    Annotated[
        Range,
        Meta(description="The windows of this span before the newest one's end, evenly spread if many."),
    ]
    | UnsetType
)
_Window: TypeAlias = Annotated[int, Meta(ge=0, le=MOST_NUMBER, description="The number of the window.")]


class ModelsQuery(Shown, frozen=True, kw_only=True):
    """The parameters of `/api/v1/models`."""

    groups: Annotated[
        Literal["leave_out", "include"], Meta(description="Whether the groups of models come too.")
    ] = "leave_out"
    limit: Annotated[int, Meta(ge=1, le=500, description="Models and groups at most.")] = 100
    offset: Annotated[int, Meta(ge=0, le=MOST_NUMBER, description="How many of them to pass over.")] = 0


class SeriesQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters that name a model or a group of a model."""

    task: _Task
    model: _Model
    group: _Group = ""


class WindowsQuery(SeriesQuery, frozen=True, kw_only=True):
    """The parameters of `/api/v1/windows`."""

    limit: _Limit = 100
    before: _Before | UnsetType = UNSET
    format: Annotated[
        Literal["json", "ndjson", "csv"],
        Meta(description="`ndjson`: the lines of the reports; `csv`: a row for each estimate."),
    ] = "json"


class WindowQuery(SeriesQuery, frozen=True, kw_only=True):
    """The parameters of `/api/v1/window`."""

    window: _Window


class ChartQuery(SeriesQuery, frozen=True, kw_only=True):
    """The parameters of `/api/v1/chart`."""

    metric: _Metric
    limit: _Limit = MOST_WINDOWS
    range: TimeRange = UNSET
    compare: Annotated[str, Meta(description="Another model of the task, drawn beside this one.")] = ""
    former: (
        Annotated[
            int,
            Meta(
                ge=0,
                le=MOST_NUMBER,
                description="As many windows up to this one are drawn beside the newest.",
            ),
        ]
        | UnsetType
    ) = UNSET


class AlarmsQuery(SeriesQuery, frozen=True, kw_only=True):
    """The parameters of `/api/v1/alarms`."""

    metric: Annotated[str, Meta(description="A metric such as `accuracy`; all of them if empty.")] = ""
    limit: Annotated[int, Meta(ge=1, le=MOST_WINDOWS, description="Windows looked at, the newest ones.")] = (
        MOST_WINDOWS
    )
    before: _Before | UnsetType = UNSET


class SharedQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of `/api/v1/shared`."""

    task: Annotated[str, Meta(description="The task; all of them if empty.")] = ""


class FeaturesQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of `/api/v1/features`."""

    task: _Task
    model: _Model


class ModelLine(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a model or a group at the end of its newest window.

    Parameters
    ----------
    task, model, version : str
    group : str
        ``""`` for the whole model.
    state : str
        The worst state by trust, objectives, charts and missing answers: a value of `Shown.state`.
    worst_metric : str
        The metric of a breached objective or of an alarm, otherwise the first metric. It is ``""`` before the
        first window.
    page : str
        The address of the page of the model or group, relative to the agent's page.
    window : int or None
        Number of the newest window.
    window_end_time : str or None
        RFC 3339.
    window_size, pending : int
        The configured size of a window, and the number of answers in the open window.
    labelled, correct : int
        The number of answers whose label has arrived since the start, and the number of right answers among
        them.
    trusted : bool or None
        True if labels agree with the estimated accuracy; None before the first label.
    errors_trusted : bool or None
        True if labels agree with the estimated errors in `values`; None before the first label, and if
        predictions are no numbers.
    broken_features : list
        The faults of features in the newest window.
    estimates, charts, objectives : list
        The estimates, charts and objectives of the newest window.
    alarmed_since : mapping of str to str or None
        The time when each active alarm was raised, by metric.
    """

    task: str
    model: str
    group: str
    version: str
    state: str
    worst_metric: str
    page: str
    window: int | None
    window_end_time: str | None
    window_size: int
    pending: int
    labelled: int
    correct: int
    trusted: bool | None
    errors_trusted: bool | None
    broken_features: list[BrokenFeature]
    estimates: list[WrittenEstimate]
    values: list[WrittenEstimate]
    charts: list[ChartLine]
    objectives: list[ObjectiveLine]
    alarmed_since: dict[str, str | None]

    @classmethod
    def from_view(cls, one: SeriesView) -> ModelLine:
        """Return the API's description of a series."""
        end = one.window_end_time
        return cls(
            task=one.task,
            model=one.model,
            group=one.group,
            version=one.version,
            state=worst_state(one).name.lower(),
            worst_metric=worst_metric(one),
            page=model_address(one.task, one.model, group=one.group),
            window=one.windows_closed - 1 if one.windows_closed else None,
            window_end_time=None if end is None else rfc3339(end),
            window_size=one.window_size,
            pending=one.pending,
            labelled=one.labelled,
            correct=one.correct,
            trusted=None if one.trust is None else one.trust.trusted,
            errors_trusted=None if one.trust_in_errors is None else one.trust_in_errors.trusted,
            broken_features=list(one.broken_features),
            estimates=[WrittenEstimate.from_estimate(e, rounded) for e in one.estimates],
            values=[WrittenEstimate.from_estimate(e, significant) for e in one.values],
            charts=[ChartLine.from_view(chart) for chart in one.charts],
            objectives=[ObjectiveLine.from_view(objective) for objective in one.objectives],
            alarmed_since={
                metric: None if since is None else rfc3339(since)
                for metric, since in one.alarmed_since.items()
            },
        )


class Models(msgspec.Struct, frozen=True, kw_only=True):
    """The models that match the filters, the worst first.

    `total` is the number of all models that match, whether they are listed or not.
    """

    total: int
    models: list[ModelLine]


class WindowLines(msgspec.Struct, frozen=True, kw_only=True):
    """The newest revision of each closed window, beginning with the oldest window."""

    windows: list[WindowLine]


class Alarms(msgspec.Struct, frozen=True, kw_only=True):
    """The alarms in the order in which they were raised, and the range of the searched windows."""

    first_window: int | None
    last_window: int | None
    alarms: list[AlarmLine]


class SharedChanges(msgspec.Struct, frozen=True, kw_only=True):
    """The changes for the worse that the models of a task share now."""

    changes: list[SharedLine]


class BinLine(msgspec.Struct, frozen=True, kw_only=True):
    """A bin of a feature.

    Parameters
    ----------
    name : str
        For a number, the range of the bin. For a text, its rank among the reference's texts by frequency.
    lower, upper : float or None
        The edges of a number's bin. The upper edge belongs to the bin. None for other bins.
    reference, window : int
        The number of rows in the bin, in the reference and in the window.
    """

    name: str
    lower: float | None
    upper: float | None
    reference: int
    window: int


class FeatureLine(msgspec.Struct, frozen=True, kw_only=True):
    """A feature in the newest window of a model, compared with the reference.

    If there is no reference for the feature, most fields are None and there are no bins.

    Parameters
    ----------
    feature : str
    kind : {"number", "text"}
    broken : list of str
        The faults of the feature, if it is broken.
    drifted : bool
        True if the distance exceeds its threshold and the p-value is significant among the p-values of all
        features.
    alarm : bool
        True if the drift raises an alarm. Alarms on drift require `chart.features`.
    missing : float
        The share of rows without the feature.
    unseen : float or None
        The share of rows with a text that does not occur in the reference, or a number beyond the reference's
        range.
    distance, distance_threshold, psi, psi_threshold, p_value : float or None
        See `monitor.stats.features.drift.Drift`.
    bins : list of BinLine
        The last two bins count the rows of `unseen` and of `missing`.
    """

    feature: str
    kind: FeatureKind
    broken: list[FaultKind]
    drifted: bool
    alarm: bool
    missing: float
    unseen: float | None
    distance: float | None
    distance_threshold: float | None
    psi: float | None
    psi_threshold: float | None
    p_value: float | None
    bins: list[BinLine]


class Features(msgspec.Struct, frozen=True, kw_only=True):
    """The features of a model in its newest window, broken features first.

    Within both parts, the ratio of the distance to its threshold decreases.
    """

    window: int | None
    window_end_time: str | None
    rows: int
    features: list[FeatureLine]


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a request that failed: a sentence with the reason."""

    error: str


@dataclass(frozen=True, slots=True)
class ApiEndpoint:
    """One address of the API.

    Parameters
    ----------
    name : str
        The part of the address after `/api/v1/`.
    summary : str
    query, answer : type of msgspec.Struct
    answered : callable
        A function from the data and a query to the answer.
    files : mapping of str to (str, callable)
        For each value of the parameter `format`, the media type, and a function from the answer to a file.
    """

    name: str
    summary: str
    query: type[Any]
    answer: type[msgspec.Struct]
    answered: Callable[[Data, Any], msgspec.Struct]
    files: Mapping[str, tuple[str, Callable[[Any], bytes]]]


class Data:
    """The data behind the page and the API: the newest view, and the windows.

    Parameters
    ----------
    view : callable
        A function that returns the newest view.
    windows : Windows
    """

    def __init__(self, view: Callable[[], AgentView], windows: Windows) -> None:
        self.view, self._windows = view, windows

    def series(self, task: str, model: str, group: str = "") -> SeriesView:
        """Return the view of a model or a group.

        Raises
        ------
        RefusedError
            Status 404: there is no such model or group; the sentence names some that exist.
        """
        series = self.view().engine.series
        of_task = [one for one in series if one.task == task]
        if not of_task:
            known = some(one.task for one in series)
            raise RefusedError(404, f"There is no task {task!r} with models; tasks: {known}.")
        of_model = [one for one in of_task if one.model == model]
        if not of_model:
            known = some(one.model for one in of_task)
            raise RefusedError(404, f"Task {task!r} has no model {model!r}; its models: {known}.")
        match = next((one for one in of_model if one.group == group), None)
        if match is None:
            known = some(one.group for one in of_model if one.group)
            raise RefusedError(404, f"Model {model!r} has no group {group!r}; its groups: {known}.")
        return match

    def reports(
        self,
        one: SeriesView,
        limit: int,
        before: int | UnsetType = UNSET,
        span: Range | UnsetType = UNSET,
        end: float | None = None,
    ) -> list[WindowReport]:
        """Return at most `limit` windows of a series, oldest first.

        They are the newest windows, or with `before` the newest with a lower number. With `span`, they are
        the windows of this range of time, evenly spread if there are more than `limit`. The range ends at
        `end`, by default with the newest window of the series.

        Raises
        ------
        RefusedError
            Status 503: the store cannot be read.
        """
        try:
            key, last = (one.task, one.model, one.group), one.window_end_time if end is None else end
            since = None if span is UNSET else (last or 0.0) - RANGES[span]
            lines = self._windows.newest(key, limit, None if before is UNSET else before, since)
        except StoreError as error:
            raise RefusedError(503, str(error)) from error
        return [from_json(line) for line in lines]

    def window(self, one: SeriesView, number: int) -> WindowReport:
        """Return one window of a series.

        Raises
        ------
        RefusedError
            Status 404: the window is not stored.
        """
        reports = self.reports(one, 1, number + 1)
        if reports and reports[0].window == number:
            return reports[0]
        newest = self.reports(one, 1)
        known = f"the newest one is {newest[0].window:,}" if newest else "there is none"
        raise RefusedError(404, f"Window {number:,} is not stored; {known}.")

    def estimator(self, one: SeriesView, metric: str) -> str:
        """Return the estimator that the chart of a metric judges, or that is drawn where nothing is judged.

        Raises
        ------
        RefusedError
            Status 404: the series has no such metric.
        """
        judged = {chart.metric: chart.estimator for chart in one.charts}
        judged |= {e.metric: AVERAGE_CONFIDENCE for e in one.estimates if e.metric not in judged}
        judged |= {e.metric: DOUBLY_ROBUST for e in one.values if e.metric not in judged}
        if metric not in judged:
            raise RefusedError(404, f"There is no metric {metric!r} here; metrics: {some([*judged])}.")
        return judged[metric]

    def chart(self, query: ChartQuery) -> ChartColumns:
        """Return the chart of a metric, together with a second model or period if the query compares two.

        Raises
        ------
        RefusedError
            There is no such chart, the comparison is impossible, or the store cannot be read.
        """
        one = self.series(query.task, query.model, query.group)
        if query.former is not UNSET:
            for name in ("compare", "range"):
                if getattr(query, name):
                    raise RefusedError(400, f"{name}, former: expected one of them, got both.")
        estimator = self.estimator(one, query.metric)
        own = chart_columns(self.reports(one, query.limit, span=query.range), query.metric, estimator)
        if query.compare:
            other = self.series(query.task, query.compare, query.group)
            estimator = self.estimator(other, query.metric)
            beside = self.reports(other, MOST_WINDOWS, span=query.range, end=one.window_end_time)
            columns = chart_columns(beside, query.metric, estimator)
            return with_other(own, columns, query.compare, by_time=True)
        if query.former is not UNSET:
            former = self.reports(one, len(own.window) or 1, query.former + 1)
            name = f"up to window {query.former:,}"
            return with_other(own, chart_columns(former, query.metric, estimator), name, by_time=False)
        return own

    def picture(self, query: ChartQuery) -> ControlChartData:
        """Return the data of `chart` as `ControlChartData`, for drawing a picture.

        Raises
        ------
        RefusedError
            As for `chart`; also status 404 if no window is stored.
        """
        one = self.series(query.task, query.model, query.group)
        estimator = self.estimator(one, query.metric)
        reports = self.reports(one, query.limit, span=query.range)
        if not reports:
            raise RefusedError(404, "Its windows are no longer stored.")
        picture = chart_of(reports, query.metric, estimator)
        if not query.compare and query.former is UNSET:
            return picture
        columns = self.chart(query)
        other = np.array([np.nan if value is None else value for value in columns.other])
        return replace(picture, other=other, other_name=columns.other_name)


def _models(data: Data, query: ModelsQuery) -> Models:
    series = data.view().engine.series
    kept = [one for one in selected(series, query) if not one.group or query.groups == "include"]
    kept.sort(key=worst_state)
    shown = kept[query.offset : query.offset + query.limit]
    return Models(total=len(kept), models=[ModelLine.from_view(one) for one in shown])


def _windows(data: Data, query: WindowsQuery) -> WindowLines:
    one = data.series(query.task, query.model, query.group)
    return WindowLines(
        windows=[WindowLine.from_report(r) for r in data.reports(one, query.limit, query.before)]
    )


def _window(data: Data, query: WindowQuery) -> WindowLine:
    return WindowLine.from_report(
        data.window(data.series(query.task, query.model, query.group), query.window)
    )


def _alarms(data: Data, query: AlarmsQuery) -> Alarms:
    one = data.series(query.task, query.model, query.group)
    if query.metric:
        data.estimator(one, query.metric)
    reports = data.reports(one, query.limit, query.before)
    return Alarms(
        first_window=reports[0].window if reports else None,
        last_window=reports[-1].window if reports else None,
        alarms=[alarm for alarm in alarms_of(reports) if query.metric in ("", alarm.metric)],
    )


def _shared(data: Data, query: SharedQuery) -> SharedChanges:
    series = data.view().engine.series
    if query.task and query.task not in (known := {one.task for one in series}):
        raise RefusedError(404, f"There is no task {query.task!r} with models; tasks: {some(known)}.")
    every = [one for one in shared_views(series) if one.alarm and query.task in ("", one.task)]
    return SharedChanges(changes=[SharedLine.from_view(one) for one in every])


def _features(data: Data, query: FeaturesQuery) -> Features:
    one = data.series(query.task, query.model)
    end = one.window_end_time
    return Features(
        window=one.windows_closed - 1 if one.windows_closed else None,
        window_end_time=None if end is None else rfc3339(end),
        rows=0 if one.features is None else one.features.rows,
        features=[_feature(one, name) for name in sorted(one.feature_rates, key=one.feature_order)],
    )


def _feature(one: SeriesView, name: str) -> FeatureLine:
    assert one.features is not None  # it has this feature
    rates = one.feature_rates[name]
    own = rates.drift
    return FeatureLine(
        feature=name,
        kind=one.features.kinds[name],
        broken=[each.fault for each in one.broken_features if each.feature == name],
        drifted=rates.drifted,
        alarm=one.feature_alarms.get(name, False),
        missing=rounded(rates.missing),
        unseen=None if rates.unseen is None else rounded(rates.unseen),
        distance=None if own is None else rounded(own.distance),
        distance_threshold=None if own is None else rounded(own.distance_threshold),
        psi=None if own is None else rounded(own.psi),
        psi_threshold=rounded(own.psi_threshold) if own and math.isfinite(own.psi_threshold) else None,
        p_value=None if own is None else own.p_value,
        bins=[
            BinLine(name=each.name, lower=each.lower, upper=each.upper, reference=before, window=now)
            for each, before, now in one.features.bins(name)
        ],
    )


def _as_ndjson(answer: WindowLines) -> bytes:
    return b"".join(encoded(line) + b"\n" for line in answer.windows)


_CSV_HEADS = (
    "window", "revision", "version", "size", "closed_by", "start_time", "end_time", "metric", "estimator",
    "value", "lower", "upper", "level", "rows", "unknown", "center", "limit_lower", "limit_upper", "rules",
    "out_of_control", "floor", "ceiling", "objective_state", "improved", "alarm_by", "unit",
)  # fmt: skip


def _as_csv(answer: WindowLines) -> bytes:
    """Return a row for each estimate of a window, with the chart and the objective of its metric."""
    text = io.StringIO()
    write = csv.writer(text, lineterminator="\n").writerow
    write(_CSV_HEADS)
    for line in answer.windows:
        charts = {chart.metric: chart for chart in line.charts}
        objectives = {objective.metric: objective for objective in line.objectives}
        facts = [line.window, line.revision, _cell(line.version), line.size, line.closed_by]
        facts += [line.start_time, line.end_time]
        for e in (*line.estimates, *line.values):
            chart, objective = charts.get(e.metric), objectives.get(e.metric)
            row: list[Any] = [*facts, e.metric, e.estimator]
            row += ["", "", "", ""] if e.unknown else [e.value, e.lower, e.upper, e.level]
            row += [e.size, e.unknown]
            row += (
                [chart.center, chart.lower, chart.upper, " ".join(chart.rules), chart.out_of_control]
                if chart
                else [""] * 5
            )
            row += [objective.floor, objective.ceiling, objective.state] if objective else [""] * 3
            row.append(chart.improved if chart else "")
            row.append(("labels" if chart.by_labels else "estimates") if chart else "")
            row.append(_cell(e.unit or ""))
            write(row)
    return text.getvalue().encode("utf-8", "replace")


def _cell(words: str) -> str:
    """Quote a text from outside so that no spreadsheet reads it as a formula."""
    return f"'{words}" if words.startswith(("=", "+", "-", "@", "\t", "\r")) else words


ENDPOINTS = (
    ApiEndpoint("models", "Models with their state, the worst first.", ModelsQuery, Models, _models, {}),
    ApiEndpoint(
        "windows",
        "The newest windows of a model.",
        WindowsQuery,
        WindowLines,
        _windows,
        {"ndjson": (_NDJSON, _as_ndjson), "csv": (_CSV, _as_csv)},
    ),
    ApiEndpoint("window", "One window of a model.", WindowQuery, WindowLine, _window, {}),
    ApiEndpoint(
        "chart", "The control chart of a metric, in columns.", ChartQuery, ChartColumns, Data.chart, {}
    ),
    ApiEndpoint("alarms", "The alarms of a model's control charts.", AlarmsQuery, Alarms, _alarms, {}),
    ApiEndpoint(
        "features",
        "The features of a model in its newest window, beside the reference.",
        FeaturesQuery,
        Features,
        _features,
        {},
    ),
    ApiEndpoint(
        "shared", "The changes that the models of a task share now.", SharedQuery, SharedChanges, _shared, {}
    ),
)
"""Every address of the API except that of its OpenAPI document."""


def answered(endpoint: ApiEndpoint, data: Data, request: HttpRequest) -> Response:
    """Return the answer to a request, in JSON or as the requested file."""
    try:
        query = parse_query(request.query, endpoint.query)
        answer = endpoint.answered(data, query)
    except RefusedError as error:
        return Response(error.status, encoded(Problem(error=str(error))), {"content-type": _JSON})
    form = getattr(query, "format", "json")
    if form not in endpoint.files:
        return packed(request, encoded(answer), _JSON)
    media_type, written = endpoint.files[form]
    name = _NO_FILE_NAME.sub("_", f"{query.task}-{query.model}-{query.group}").strip("_-.")
    saved = f'attachment; filename="{name or "windows"}.{form}"'
    return packed(request, written(answer), media_type, content_disposition=saved)
