"""The report of a period: a single HTML file without links to other files, for readers without the agent."""

from __future__ import annotations

import heapq
import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import reduce
from typing import Any

import numpy as np
from markupsafe import Markup

from monitor import __version__
from monitor.base.names import AVERAGE_CONFIDENCE
from monitor.base.registry import SHARES
from monitor.base.results import Estimate
from monitor.config.root import Config
from monitor.config.task import CALIBRATION_ERRORS
from monitor.export.charts.pictures import MOST_KEPT, Alarm, Histories
from monitor.export.charts.svg import ControlChartData, control_chart_svg
from monitor.export.page import assets, models
from monitor.export.page.addresses import external_address
from monitor.export.page.features import features_table
from monitor.export.page.overview import MOST_SERIES, glance, in_place, models_table
from monitor.export.page.states import urgency
from monitor.export.page.templates import render
from monitor.export.page.windows import series_view
from monitor.export.page.words import format_result, moment, percent, thousands, time_words, tone, values_in
from monitor.reports import features
from monitor.reports.attribution import FEATURE, Attribution, sentence
from monitor.reports.features import BrokenFeature, FeatureCounts
from monitor.reports.shared import SharedView, shared_views
from monitor.reports.statements import count, describe_shared
from monitor.reports.views import EngineView, ObjectiveState, SeriesView, TaskView
from monitor.reports.window_report import WindowReport
from monitor.reports.window_view import leading_estimate
from monitor.stats.estimate.hajek import WeightedCounts

Series = tuple[str, str, str]
Charts = Mapping[Series, Sequence[ControlChartData]]

_FEW_MODELS = 2
"""The largest number of models whose sections are open when the report is opened."""
_ROWS_SHOWN = 50
_ALARMS_SHOWN, _WORST_SHOWN, _WORST_OF_A_MODEL = 20, 24, 3
_DAYS_SHOWN, _MODELS_BESIDE = 31, 8

# The file contains its style; no script may run, and no request is allowed.
_POLICY = Markup(
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
)


@dataclass(frozen=True, slots=True)
class FaultStretch:
    """A fault of a feature over several windows.

    Parameters
    ----------
    worst : BrokenFeature
        The fault in the window in which it concerns the most rows.
    window, time : int, float
        The number and the end of the first of these windows.
    windows : int
        The number of windows.
    last_time : float
        The end of the last of these windows.
    """

    worst: BrokenFeature
    window: int
    time: float
    windows: int = 0
    last_time: float = 0.0


class Period:
    """The closed windows of a period, for its report, in bounded memory (see `Histories`).

    Parameters
    ----------
    judged : mapping of str to str
        See `Histories`.
    since, until : float or None
        Seconds since the epoch. Windows that end before `since`, or at or after `until`, are left out.
    external_url : str
        Public address of the agent, for links to the pages of models; no links if empty.
    shared_seconds : mapping of str to float, optional
        See `Histories.shared`. By default, no models are compared.

    Examples
    --------
    >>> "No window closed in this period." in Period({}).html({})
    True
    """

    @classmethod
    def from_config(cls, config: Config) -> Period:
        """Return an empty period for the windows of a configuration."""
        judged = {name: task.chart.estimator for name, task in config.scored_tasks.items()}
        shared = {name: task.shared_seconds for name, task in config.scored_tasks.items()}
        return cls(judged, external_url=config.export.external_url or "", shared_seconds=shared)

    def __init__(
        self,
        judged: Mapping[str, str],
        since: float | None = None,
        until: float | None = None,
        external_url: str = "",
        shared_seconds: Mapping[str, float] | None = None,
    ) -> None:
        self.histories = Histories(judged)
        self._shared_seconds = shared_seconds or {}
        self._since, self._until, self._external_url = since, until, external_url
        self._first: dict[Series, WindowReport] = {}
        self._last: dict[Series, WindowReport] = {}
        self._windows: Counter[Series] = Counter()
        self._left_out: Counter[Series] = Counter()
        self._attributions: dict[Series, dict[str, Attribution]] = {}
        self._wheres: dict[Series, deque[tuple[str, int, Attribution]]] = {}
        self._tasks: dict[str, TaskView] = {}
        self._days: dict[Series, dict[str, _Stretch]] = {}
        self._faults: dict[Series, dict[tuple[str, str], FaultStretch]] = {}

    def add(self, reports: Sequence[WindowReport]) -> None:
        """Add closed windows and revisions, in the order in which they were written."""
        for report in reports:
            if not self._within(report.end_time):
                continue
            if (view := report.task_view(self._tasks.get(report.task))) is not None:
                self._tasks[report.task] = view
                continue
            series = (report.task, report.model, report.group)
            last = self._last.get(series)
            if last is not None and last.version != report.version:
                self._attributions.pop(series, None)
            if not report.revision:
                if last is not None and report.window == 0:
                    self._restart(series)
                self._first.setdefault(series, report)
                self._last[series] = report
                self._windows[series] += 1
                self._attribute(series, report, last)
                self._note_faults(series, report)
                if not report.group and (stretch := _Stretch.from_report(report)):
                    days = self._days.setdefault(series, {})
                    day = moment(report.end_time)[:10]
                    days[day] = days[day].merge(stretch) if day in days else stretch
            elif last is not None and report.window == last.window:
                self._last[series] = report
            self.histories.add([report])

    def join(self, others: Sequence[Period], order: Iterable[Series]) -> None:
        """Copy the windows of other periods into this period.

        No two of the other periods may have the same series. `order` lists all their series in the order of
        the series' first windows.
        """
        owners = {series: other for other in others for series in other._last}
        tasks = {name: view for other in others for name, view in other._tasks.items()}
        for series in order:
            if series[0] in tasks:
                self._tasks[series[0]] = tasks[series[0]]
                continue
            for own, theirs in zip(self._by_series, owners[series]._by_series, strict=True):
                if series in theirs:
                    own[series] = theirs[series]
            self.histories.take_over(series, owners[series].histories)

    @property
    def _by_series(self) -> Sequence[dict[Series, Any]]:
        of_windows = self._first, self._last, self._windows, self._left_out
        return *of_windows, self._attributions, self._wheres, self._days, self._faults

    @property
    def last_windows(self) -> dict[Series, int]:
        """The number of the last window of each series."""
        return {series: last.window for series, last in self._last.items()}

    def _note_faults(self, series: Series, report: WindowReport) -> None:
        known = self._faults.setdefault(series, {}) if report.broken_features else {}
        for each in report.broken_features:
            place = each.feature, each.fault
            before = known.get(place) or FaultStretch(each, report.window, report.end_time)
            worst = max(before.worst, each, key=lambda fault: fault.ratio)
            known[place] = FaultStretch(
                worst, before.window, before.time, before.windows + 1, report.end_time
            )

    def faults(self) -> Mapping[Series, Sequence[FaultStretch]]:
        """Return the faults of the features of each series, in order of time."""
        return {
            series: sorted(faults.values(), key=lambda each: each.window)
            for series, faults in self._faults.items()
        }

    def shared(self, series: Iterable[SeriesView] = ()) -> tuple[SharedView, ...]:
        """Return the changes that the models of a task share, or shared in the period.

        Parameters
        ----------
        series : iterable of SeriesView, optional
            The series at the end of the stream, which decide about the changes that are still on.
        """
        now = [each for each in shared_views(series) if each.alarm]
        known = {(each.task, each.metric) for each in now}
        past = [
            each
            for each in self.histories.shared(self._shared_seconds)
            if each.until is not None or (each.task, each.metric) not in known
        ]
        return *past, *now

    def _attribute(self, series: Series, report: WindowReport, last: WindowReport | None) -> None:
        """Keep the newest attribution of each metric that alarms, and the first attribution of each alarm."""
        on, before = _alarms(report), set() if last is None else _alarms(last)
        known = self._attributions.get(series, {})
        began = [
            (each.metric, report.window, each)
            for each in report.attributions
            if each.metric in on - (known.keys() & before)
        ]
        if began:
            self._wheres.setdefault(series, deque(maxlen=_ALARMS_SHOWN)).extend(began)
        on |= {chart.metric for chart in report.charts if chart.verdict.improved or chart.confidences_moved}
        on |= {each.metric for each in report.objectives if each.state is ObjectiveState.BREACHED}
        on |= {each.metric for each in report.attributions if each.by == FEATURE}
        known = known | {each.metric: each for each in report.attributions}
        self._attributions[series] = {metric: each for metric, each in known.items() if metric in on}

    def _within(self, end: float) -> bool:
        return (self._since is None or end >= self._since) and (self._until is None or end < self._until)

    def _restart(self, series: Series) -> None:
        """Drop the windows of a series whose numbers start again from 0. No chart can show both parts."""
        self._left_out[series] += self._windows.pop(series)
        del self._first[series], self._last[series]
        self._attributions.pop(series, None)
        self._wheres.pop(series, None)
        self._days.pop(series, None)
        self._faults.pop(series, None)
        self.histories.forget(series)

    def html(
        self,
        labelled: Mapping[Series, Mapping[int, WeightedCounts]],
        views: Iterable[EngineView] = (),
        features: Mapping[Series, FeatureCounts] | None = None,
        more: str = "",
    ) -> str:
        """Return the report as a complete HTML document without scripts and requests.

        Parameters
        ----------
        labelled : mapping
            See `Histories.charts`.
        views : iterable of EngineView, optional
            The engines at the end of the stream. The states of their series count, because labels may have
            come after the last windows closed.
        features : mapping of (task, model, group) to FeatureCounts, optional
            The counts of the features in the last windows, by default those of `views`. If there are no
            counts, the report has no table of features.
        more : str
            The HTML of further sections, before those of the period.
        """
        charts = self.histories.charts({series: dict(rows) for series, rows in labelled.items()})
        alarms = self.histories.alarms()
        ends = {_key(one): one for view in views for one in view.series}
        if features is None:
            features = {series: one.features for series, one in ends.items() if one.features is not None}
        last = self._views(alarms, features, ends)
        figures = _Figures(charts, self._windows)
        form = models.Form(
            lambda one: self._progress(one, alarms.get(_key(one), {})),
            lambda one: Markup().join(figures(one, metric) for metric in models.charted_metrics(one)),
            Markup("left out to keep this file small"),
            self._page,
        )
        engine = EngineView(series=tuple(last), tasks=tuple(self._tasks.values()))
        style = Markup(assets.content("page.css").decode())
        body = Markup(more) + self._body(engine, form, figures)
        return str(render("report.html", "report", body, _POLICY, style, __version__, self._span()))

    def _body(self, engine: EngineView, form: models.Form, figures: _Figures) -> Markup:
        whole_tasks = Markup().join(models.whole_tasks(engine.tasks).values())
        if not engine.series:  # no model has windows of its own
            return whole_tasks
        whole = sorted((one for one in engine.series if not one.group), key=urgency)
        series = engine.series[:MOST_SERIES]
        more = sum(not one.group for one in series) - _ROWS_SHOWN
        return (
            render(
                "report.html",
                "body",
                glance(whole, in_place, None) if whole else "",  # a period may contain windows of groups only
                models_table(series, in_place, most=_ROWS_SHOWN),
                models_table(series, in_place, rank=_ROWS_SHOWN) if more > 0 else "",
                self._alarms(),
                self._shared(whole),
                self._broken_features(),
                features_table(whole, _WORST_SHOWN, lambda one: self._name(_key(one))),
                self._times(whole),
                self._worst(whole),
                self._by_labels(whole, figures),
                self._errors(whole, figures),
                models.tasks(engine, form),
                more=more,
                models=len(whole),
                unfolded=len(whole) <= _FEW_MODELS,
            )
            + whole_tasks
        )

    def _name(self, series: Series) -> str:
        """Return the name of a model or group, with its task if there are several."""
        several = len({task for task, _, _ in self._last}) > 1
        return " ".join(filter(None, series if several else series[1:]))

    def _alarms(self) -> Markup:
        """Return the alarms of the period, as timelines and as a list, the newest first."""
        by_chart = {
            (series, metric): alarms
            for series, metrics in self.histories.alarms().items()
            for metric, alarms in metrics.items()
        }
        latest = sorted(by_chart, key=lambda key: by_chart[key][-1].time, reverse=True)[:_ALARMS_SHOWN]
        timelines = [
            (
                self._name(series),
                metric,
                self._timeline(series, metric, by_chart[series, metric]),
                thousands(len(by_chart[series, metric])),
            )
            for series, metric in latest
        ]
        every = [(alarm, *key) for key, own in by_chart.items() for alarm in own]
        every.sort(key=lambda each: each[0].time, reverse=True)
        listed = [self._alarm(*each) for each in every[:_ALARMS_SHOWN]]
        return render("report.html", "alarms", timelines, listed, more=len(every) - _ALARMS_SHOWN)

    def _timeline(self, series: Series, metric: str, alarms: Sequence[Alarm]) -> Markup:
        since, until = self._ends()
        length = max(until - since, 1e-9)  # all windows may end in the same second
        shares = [
            (
                (alarm.time - since) / length,
                ((until if alarm.ended_time is None else alarm.ended_time) - since) / length,
            )
            for alarm in alarms
        ]
        return models.timeline(f"Alarms of {self._name(series)}: {metric}, {len(alarms):,}", shares)

    def _alarm(self, alarm: Alarm, series: Series, metric: str) -> tuple[str, ...]:
        stop = math.inf if alarm.ended_window is None else alarm.ended_window
        where = next(
            (
                sentence(attribution)
                for alarm_metric, window, attribution in self._wheres.get(series, ())
                if alarm_metric == metric and alarm.window <= window < stop
            ),
            "",
        )
        until = tone("still on", "bad nowrap") if alarm.ended_time is None else time_words(alarm.ended_time)
        windows = "" if alarm.ended_window is None else thousands(alarm.ended_window - alarm.window)
        return self._name(series), metric, time_words(alarm.time), until, windows, where

    def _shared(self, whole: Sequence[SeriesView]) -> Markup:
        """Return the changes that models share, the newest first."""
        every = [describe_shared(each) for each in reversed(self.shared(whole))]
        rows = [(str(each), each.details) for each in every[:_ALARMS_SHOWN]]
        return render("report.html", "shared", rows, more=len(every) - _ALARMS_SHOWN)

    def _broken_features(self) -> Markup:
        """Return the features that were broken in the period, those of the newest windows first."""
        every = [(fault, series) for series, faults in self.faults().items() for fault in faults]
        every.sort(key=lambda each: each[0].last_time, reverse=True)
        rows = [
            (
                self._name(series),
                features.sentence([fault.worst]),
                time_words(fault.time),
                time_words(fault.last_time),
                thousands(fault.windows),
            )
            for fault, series in every[:_ALARMS_SHOWN]
        ]
        return render("report.html", "broken_features", rows, more=len(every) - _ALARMS_SHOWN)

    def _times(self, whole: Sequence[SeriesView]) -> Markup:
        """Return the mean estimate and the alarms of each model by month, or by day for a short period."""
        known = [one for one in whole if self._days.get(_key(one))]
        shown = known[:_MODELS_BESIDE]
        days = sorted({day for one in shown for day in self._days[_key(one)]})
        monthly = len(days) > _DAYS_SHOWN
        names = list(dict.fromkeys(day[:7] if monthly else day for day in days))
        rows = [(name, *(self._stretch(one, name) for one in shown)) for name in names[-_DAYS_SHOWN:]]
        heads = [f"Mean {self._metric(one)} of {self._name(_key(one))}" for one in shown]
        more = len(known) - len(shown)
        return render("report.html", "times", "Month" if monthly else "Day", heads, rows, more)

    def _metric(self, one: SeriesView) -> str:
        return next(iter(self._days[_key(one)].values())).metric

    def _stretch(self, one: SeriesView, name: str) -> Markup:
        days = self._days[_key(one)]
        merged = _together(stretch for day, stretch in days.items() if day.startswith(name))
        return Markup() if merged is None else render("report.html", "stretch", merged)

    def _worst(self, whole: Sequence[SeriesView]) -> Markup:
        """Return the windows with the worst estimates of each model."""
        worst = [
            (one, stretch.metric, window)
            for one in whole
            for stretch in [_together(self._days.get(_key(one), {}).values())]
            if stretch is not None
            for window in stretch.worst
        ]
        left = len({_key(one) for one, _, _ in worst} - {_key(one) for one, _, _ in worst[:_WORST_SHOWN]})
        rows = [
            (
                self._name(_key(one)),
                metric,
                f"{percent(value)} % ({percent(lower)} to {percent(upper)})",
                thousands(number),
                time_words(end),
            )
            for one, metric, (_, number, end, value, lower, upper) in worst[:_WORST_SHOWN]
        ]
        return render("report.html", "worst", rows, left)

    def _by_labels(self, whole: Sequence[SeriesView], figures: _Figures) -> Markup:
        """Return the values by labels beside the estimates of the same windows."""
        rows: list[tuple[float, tuple[str, ...]]] = []
        for one in whole:
            chart = figures.chart(one, self._metric(one)) if _key(one) in self._days else None
            both = np.isfinite(chart.value) & np.isfinite(chart.realised) if chart else np.zeros(0, bool)
            if chart is None or not both.any():
                continue
            own, labels = float(chart.value[both].mean()), float(chart.realised[both].mean())
            points = round(100 * (own - labels), 1)
            shares = f"{percent(own)} %", f"{percent(labels)} %", f"{points:+.1f}" if points else "0.0"
            cells = (self._name(_key(one)), self._metric(one), f"{both.sum():,}", *shares)
            rows.append((-abs(points), cells))
        if len(rows) > _WORST_SHOWN:
            rows.sort(key=lambda row: row[0])
        return render(
            "report.html",
            "by_labels",
            [row for _, row in rows[:_WORST_SHOWN]],
            more=len(rows) - _WORST_SHOWN,
            thinned=max(self._windows.values()) > MOST_KEPT,
        )

    def _errors(self, whole: Sequence[SeriesView], figures: _Figures) -> Markup:
        """Return the metrics of errors of each model: estimates, and labels where windows have them."""
        rows = []
        for one in whole:
            for metric in dict.fromkeys(each.metric for each in one.values):
                chart = figures.chart(one, metric)
                if chart is not None:
                    newest = next(each.result for each in one.values if each.metric == metric)
                    cells = format_result(newest, chart.unit), *_means(chart)
                    rows.append((self._name(_key(one)), metric, *cells))
        more, thinned = len(rows) - _ROWS_SHOWN, max(self._windows.values()) > MOST_KEPT
        return render("report.html", "errors", rows[:_ROWS_SHOWN], more, thinned)

    def _ends(self) -> tuple[float, float]:
        """Return the requested beginning and end of the period, or those of the windows."""
        starts = [report.start_time for report in self._first.values()]
        ends = [report.end_time for report in self._last.values()]
        since = self._since if self._since is not None else min(starts, default=math.nan)
        return since, self._until if self._until is not None else max(ends, default=math.nan)

    def _span(self) -> str:
        """Describe the number of windows and the period."""
        since, until = self._ends()
        words = [f"{sum(self._windows.values()):,} windows"]
        words += [] if math.isnan(since) else [f"from {moment(since)}"]
        words += [] if math.isnan(until) else [f"until {moment(until)}"]
        return " ".join(words) + "."

    def _views(
        self,
        alarms: Mapping[Series, Mapping[str, Sequence[Alarm]]],
        features: Mapping[Series, FeatureCounts],
        ends: Mapping[Series, SeriesView],
    ) -> list[SeriesView]:
        """Return each series as of its last window, in the state of its end if that is known."""
        views = []
        for series, last in self._last.items():
            first = self._first[series].window
            latched = {chart.metric for chart in last.charts if chart.verdict.out_of_control}
            since = {
                # An alarm that is on in the first window may have been raised before the period.
                metric: None if raised[-1].window == first else raised[-1].time
                for metric, raised in alarms.get(series, {}).items()
                if metric in latched
            }
            attributions = tuple(self._attributions.get(series, {}).values())
            view = series_view(last, self._windows[series], since, attributions)
            end = ends.get(series, view)
            view = replace(
                view,
                state=end.state,
                trust=end.trust,
                trust_in_errors=end.trust_in_errors,
                objectives=end.objectives,
                charts=end.charts,
                shared_seconds=end.shared_seconds,
            )
            views.append(replace(view, features=features.get(series)))
        return views

    def _page(self, one: SeriesView) -> str:
        if not self._external_url:
            return ""
        return external_address(self._external_url, one.task, one.model, one.group)

    def _progress(self, one: SeriesView, raised: Mapping[str, Sequence[Alarm]]) -> str:
        series = _key(one)
        first, last = self._first[series], self._last[series]
        words = [f"{self._windows[series]:,} windows, {moment(first.start_time)} to {moment(last.end_time)}"]
        words += [f"alarms of {metric}: {len(alarms):,}" for metric, alarms in raised.items()]
        if self._left_out[series]:
            words.append(f"{self._left_out[series]:,} from before a new start of the numbers are left out")
        return " · ".join(words)


def _alarms(report: WindowReport) -> set[str]:
    """Return the metrics whose alarm is on."""
    return {chart.metric for chart in report.charts if chart.verdict.out_of_control}


def _means(chart: ControlChartData) -> tuple[str, str, str]:
    """Describe the mean of all estimates, and the means of estimates and labels in windows that have both."""
    known = np.isfinite(chart.value)
    both = known & np.isfinite(chart.realised)
    parts = [each for each in (chart.value[known], chart.value[both], chart.realised[both]) if len(each)]
    every, own, labels = [*values_in(chart.unit, *(float(each.mean()) for each in parts)), "", ""][:3]
    return every, own and f"{own} in {count(int(both.sum()), 'window')}", labels


def _key(one: SeriesView) -> Series:
    return one.task, one.model, one.group


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Windows of one model over a day or more, with the metric that is judged first."""

    metric: str
    windows: int
    total: float
    alarmed: int
    worst: tuple[tuple[float, int, float, float, float, float], ...]
    """For each window: how bad it is, number, end, value, lower and upper; the worst window is first."""

    @classmethod
    def from_report(cls, report: WindowReport) -> _Stretch | None:
        """Return the stretch of one window, or None if its estimate is unknown."""
        by = {chart.metric: chart for chart in report.charts}
        metrics = [*by, *(each.metric for each in report.estimates)]
        metric = next((each for each in metrics if each in SHARES), next(iter(metrics), ""))
        judge = by[metric].estimator if metric in by else AVERAGE_CONFIDENCE
        first = leading_estimate(report.estimates, metric, judge)
        if first is None or not isinstance(first.result, Estimate):
            return None
        estimate = first.result
        bad = estimate.value if metric in CALIBRATION_ERRORS else -estimate.value
        window = (bad, report.window, report.end_time, estimate.value, estimate.lower, estimate.upper)
        alarmed = metric in by and by[metric].verdict.out_of_control
        return cls(metric, 1, estimate.value, int(alarmed), (window,))

    def merge(self, other: _Stretch) -> _Stretch:
        """Return the stretch of both."""
        worst = heapq.nlargest(_WORST_OF_A_MODEL, (*self.worst, *other.worst))
        return _Stretch(
            self.metric,
            self.windows + other.windows,
            self.total + other.total,
            self.alarmed + other.alarmed,
            tuple(worst),
        )


def _together(stretches: Iterable[_Stretch]) -> _Stretch | None:
    every = list(stretches)
    return reduce(_Stretch.merge, every) if every else None


class _Figures:
    """A maker of figures, which embed the chart of a metric in the file."""

    def __init__(self, charts: Charts, windows: Mapping[Series, int]) -> None:
        self._charts, self._windows = charts, windows

    def chart(self, one: SeriesView, metric: str) -> ControlChartData | None:
        """Return the chart of a metric, or None if there is none."""
        title = ": ".join((" · ".join(filter(None, (one.model, one.group))), metric))
        return next((chart for chart in self._charts.get(_key(one), ()) if chart.title == title), None)

    def __call__(self, one: SeriesView, metric: str) -> Markup:
        chart = self.chart(one, metric)
        if chart is None:
            return Markup()
        picture, thinned = Markup(control_chart_svg(chart)), self._windows[_key(one)] > MOST_KEPT
        return render("report.html", "figure", one, chart.title, models.doubt(one, metric), picture, thinned)


def parse_time(words: str) -> float:
    """Parse a date or a time in RFC 3339 to seconds since the epoch. Without an offset, the time is in UTC.

    Raises
    ------
    ValueError
        The text is neither a date nor a time.

    Examples
    --------
    >>> parse_time("2026-11-20"), parse_time("2026-11-20T12:00:00+02:00")
    (1795132800.0, 1795168800.0)
    """
    parsed = datetime.fromisoformat(words)
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()
