"""Judges the windows of a series: makes baselines, and applies control charts and objectives."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec

from monitor.base.errors import ConfigError, RequestError
from monitor.base.registry import SHARES
from monitor.base.results import Estimate
from monitor.config.task import Bound, Task
from monitor.engine.attribution import BaselineParts, PartRows, add_parts
from monitor.engine.baselines import FEWEST_WINDOWS, Point, baseline
from monitor.engine.charting import STREAM_BASELINE_WINDOWS, chart_for, in_unit
from monitor.engine.evaluate import Evaluation
from monitor.engine.feature_changes import LEAST_CHANGE, FeatureSplitter, concept_drift
from monitor.engine.label_alarm import LabelAlarm, LabelAlarmState, LabelBaseline
from monitor.engine.labels.correcting import Correcting
from monitor.engine.labels.tally import Tally
from monitor.engine.objective import (
    BootstrapDraws,
    Objective,
    ObjectiveLogic,
    Poolable,
    PooledState,
    judge,
)
from monitor.engine.season import SeasonLogic, SeasonSettings, SeasonState
from monitor.engine.windows import ClosedWindow
from monitor.reports.attribution import Attribution
from monitor.reports.views import (
    ChartView,
    MetricEstimate,
    ObjectiveState,
    ObjectiveView,
    SeasonView,
    SeriesState,
)
from monitor.stats.charts.base import Baseline, ChartState
from monitor.stats.charts.latch import ChartLogic
from monitor.stats.charts.season import HourPoint
from monitor.stats.charts.settings import Chart
from monitor.stats.regression.losses import MeanLoss

log = logging.getLogger("blindsight")


@dataclass(frozen=True, slots=True)
class JudgeSettings:
    """The settings by which the windows of one series are judged.

    Parameters
    ----------
    task : Task
        The task's section of the configuration.
    series : str
        The name of the series in the log, such as ``toxicity, erm, region=eu``.
    """

    task: Task
    series: str = ""

    @property
    def baseline_windows(self) -> int:
        """The number of windows of the stream that make a baseline if there is no reference."""
        return self.task.reference.first_windows or STREAM_BASELINE_WINDOWS

    def chart(self, metric: str) -> Chart:
        """Return the chart of a metric: of the configured kind, if this kind fits the metric."""
        return chart_for(self.task.charting, metric)

    def season(self, metric: str, state: SeasonState | None = None) -> SeasonLogic | None:
        """Return the season of a metric, new or resumed from a snapshot; None if none is configured."""
        if self.task.chart.season is None:
            return None
        name, weight = f"{self.series}, {metric}", self.chart(metric).detector.newest_weight
        return SeasonSettings(self.task.chart, name, metric, weight).build(state)

    def label_alarm(self, state: LabelAlarmState | None = None) -> LabelAlarm:
        """Return the alarm of the accuracy by labels, new or resumed from a snapshot."""
        return LabelAlarm(self.task.charting.least_change(self.task.share), self.baseline_windows, state)

    def build(self, resume: JudgeState | None = None) -> Judge:
        """Return the judge, new or resumed from a snapshot."""
        return Judge(self, resume)


class JudgeState(msgspec.Struct, frozen=True):
    """The stored state of a `Judge`: baselines, charts, objectives and counts, by metric."""

    baselines: dict[str, Baseline] = {}
    charts: dict[str, ChartState] = {}
    warming: dict[str, list[Point]] = {}
    warmed: int = 0
    rebaselining: dict[str, int] = msgspec.field(default_factory=dict, name="anew")
    alarmed: list[str] = []
    alarmed_since: dict[str, float] = {}
    objectives: dict[str, PooledState] = {}
    standing: dict[str, ObjectiveState | None] = {}
    pooled: dict[str, tuple[float, float]] = {}
    violations: list[tuple[str, str, int]] = []
    parts: dict[str, BaselineParts] = {}
    warming_parts: dict[str, BaselineParts] = {}
    attributions: dict[str, Attribution] = {}
    by_labels: LabelAlarmState | None = None  # None in states of older versions
    seasons: dict[str, SeasonState] = {}
    restarted: bool = False


class Judge:
    """The running control charts and objectives of one series, which judge its closed windows in order.

    Charts need a baseline, from a reference or from the first windows of the stream. Before there is a
    baseline, there are no charts and no alarms.
    """

    def __init__(self, settings: JudgeSettings, resume: JudgeState | None = None) -> None:
        self._settings = settings
        task = settings.task
        state = resume or JudgeState()
        self._baselines = dict(state.baselines)
        self._charts: dict[str, ChartLogic] = {
            metric: settings.chart(metric).build(self._baselines[metric], chart)
            for metric, chart in state.charts.items()
            if metric in task.judged_metrics
        }
        self._seasons = {
            metric: season
            for metric in self._charts
            if (season := settings.season(metric, state.seasons.get(metric))) is not None
        }
        self._warming = {metric: list(points) for metric, points in state.warming.items()}
        self._warmed = state.warmed
        self._restarted = state.restarted  # whether the next baseline follows one that was dropped
        self._parts = dict(state.parts)
        self._warming_parts = dict(state.warming_parts)
        self._attributions = dict(state.attributions)
        self._by_labels = settings.label_alarm(state.by_labels)
        self._rebaselining = dict(state.rebaselining)  # windows collected so far, by metric
        since = state.alarmed_since  # older versions did not store the time
        self._alarmed: dict[str, float | None] = {each: since.get(each) for each in state.alarmed}
        self._bounds = task.objective.bounds()
        self._objectives = self._build_objectives(state.objectives)
        self._standing = dict(state.standing)
        self._pooled: dict[str, tuple[float, float] | None] = dict(state.pooled)
        self.violations: Counter[tuple[str, str]] = Counter(
            {
                (metric, rule): 0
                for metric in task.judged_metrics
                for rule in settings.chart(metric).detector.rules
            }
        )
        self.violations.update({(metric, rule): count for metric, rule, count in state.violations})

    @property
    def warming_up(self) -> bool:
        """True if there is no chart yet, because the baseline is not complete."""
        return not self._charts

    @property
    def out_of_control(self) -> bool:
        """True if the alarm of any metric is on."""
        return bool(self._alarmed)

    @property
    def alarmed_since(self) -> Mapping[str, float | None]:
        """The end time of the window that raised each metric's latched alarm, seconds since the epoch.

        The time is None if an older version raised the alarm, because it stored no time.
        """
        return dict(self._alarmed)

    @property
    def attributions(self) -> Mapping[str, Attribution]:
        """The split of each metric's change into parts (such as groups), in the newest window that has one.

        `SeriesView` describes which windows have a split.
        """
        return dict(self._attributions)

    def window_sds(self) -> dict[str, float]:
        """Return the standard deviation of each charted metric over full windows that are in control."""
        size = self._settings.task.window.size
        charts = {metric: self._settings.chart(metric) for metric in self._baselines}
        return {
            metric: math.sqrt(chart.row_variance(self._baselines[metric]) / size)
            for metric, chart in charts.items()
        }

    @property
    def seasons(self) -> tuple[SeasonView, ...]:
        """The state of the limits by hour of the week, for each metric with a chart."""
        return tuple(season.view(self._held(metric)) for metric, season in self._seasons.items())

    def set_baseline(
        self,
        baselines: Mapping[str, Baseline],
        parts: Mapping[str, BaselineParts] | None = None,
        hours: Mapping[str, Sequence[HourPoint]] | None = None,
    ) -> None:
        """Replace all charts and alarms by charts of these baselines, without an alarm.

        If `baselines` is empty, there are no charts until windows of the stream have made a new baseline. The
        baseline of the labelled accuracy is then dropped too.

        Parameters
        ----------
        baselines : mapping of str to Baseline
            The baseline of each metric.
        parts : mapping of str to BaselineParts, optional
            For each metric, the sums over groups and other parts, which the attribution of an alarm needs.
        hours : mapping of str to sequence of HourPoint, optional
            For each metric, the windows of a reference by hour. If the metric has a season and the reference
            has four weeks, the windows without the season are the baseline.
        """
        seasons, by_season = {}, {}
        for metric in baselines:
            if (season := self._settings.season(metric)) is not None:
                seasons[metric] = season
                by_season[metric] = season.start((hours or {}).get(metric, ())) or baselines[metric]
        baselines = {**baselines, **by_season}
        self._charts = {
            metric: self._settings.chart(metric).build(baseline) for metric, baseline in baselines.items()
        }
        self._baselines, self._seasons = dict(baselines), seasons
        self._parts = dict(parts or {})
        self._warming, self._warmed, self._alarmed, self._rebaselining = {}, 0, {}, {}
        self._warming_parts, self._attributions = {}, {}
        if baselines:
            self._restarted = False
        else:
            self._by_labels = self._settings.label_alarm()

    def set_baseline_by_labels(self, baseline: LabelBaseline | None) -> None:
        """Set the baseline of the labelled accuracy. If it is None, wait for windows of the stream."""
        state = LabelAlarmState(baseline, from_reference=baseline is not None)
        self._by_labels = self._settings.label_alarm(state)

    def rebaseline(self, metric: str) -> int:
        """Drop a metric's baseline, chart and alarm, and return the number of windows of its next baseline.

        If a new version of the model has begun a baseline that is not complete, nothing is dropped, and the
        number is that of the windows that it lacks.

        Other metrics and all objectives do not change. The next baseline is made from windows of the stream,
        even if the old one was made from a reference. The request means that the reference no longer holds.

        Parameters
        ----------
        metric : str

        Raises
        ------
        RequestError
            No metric has a baseline yet, so there is nothing to drop.
        """
        if self.warming_up and not self._rebaselining:
            if self._restarted:
                return self._settings.baseline_windows - self._warmed % self._settings.baseline_windows
            raise RequestError(
                f"there is no baseline yet, {self._warmed} of {self._settings.baseline_windows} windows "
                "are closed, so there can be no alarm; wait for the baseline"
            )
        of_metrics: tuple[dict[str, Any], ...] = (
            self._baselines,
            self._charts,
            self._seasons,
            self._parts,
            self._warming,
            self._warming_parts,
            self._alarmed,
            self._attributions,
        )
        for each in of_metrics:
            each.pop(metric, None)
        if metric in SHARES:
            self._by_labels = self._settings.label_alarm()
        self._rebaselining[metric] = 0
        return self._settings.baseline_windows

    @property
    def rebaselining(self) -> Mapping[str, tuple[int, int]]:
        """The progress of each new baseline that an operator requested, by metric.

        An entry contains the number of windows collected so far, and the number that is needed.
        """
        needed = self._settings.baseline_windows
        return {metric: (windows % needed, needed) for metric, windows in self._rebaselining.items()}

    def restart(self) -> None:
        """Drop baselines, charts and pooled windows, because another version of the model answers."""
        self.set_baseline({})
        self._restarted = True
        self._objectives = self._build_objectives({})
        self._standing, self._pooled = {}, {}

    def judge(
        self,
        evaluation: Evaluation,
        window: ClosedWindow,
        rows: PartRows,
        correction: Correcting,
        features: FeatureSplitter | None = None,
        errors: Sequence[MetricEstimate] = (),
    ) -> tuple[tuple[ChartView, ...], tuple[Attribution, ...]]:
        """Judge a closed window by its charts and objectives, and return the charts with attributions.

        A window of fewer than `min_size` rows is not judged, and does not change the objectives. Its
        distribution is too far from the normal one that the limits assume.

        Parameters
        ----------
        evaluation : Evaluation
        window : ClosedWindow
        rows : PartRows
            The window's rows, divided into parts (groups, classes, ranges of confidence).
        correction : Correcting
            The correction by labels. If the corrected accuracy is known, the objective of the accuracy judges
            it. If there are enough labels, it also decides about the alarm.
        features : FeatureSplitter, optional
            Splits changes also over the features of the window's rows.
        errors : sequence of MetricEstimate
            The estimates of the metrics of errors, whose changes are split over features alone.

        Returns
        -------
        tuple of ChartView
            The result of each chart; empty if the window is not judged, or if there are no charts yet.
        tuple of Attribution
            The changes of metrics whose chart broke a rule in this window, or whose objective is breached,
            and of metrics of errors that clearly changed.
        """
        charts: tuple[ChartView, ...] = ()
        attributions: tuple[Attribution, ...] = ()
        if window.size >= self._settings.task.window.min_size:
            if self._settings.task.share in self._settings.task.metrics:
                season = self._seasons.get(self._settings.task.share)
                offset = season.offset(window.middle_time) if season else 0.0
                self._by_labels.collect(correction, window.number, offset)
            charted, before = evaluation.for_charts(), dict(self._attributions)
            if self.warming_up and not self._rebaselining:
                self._warm(charted, rows)
                self._pool(evaluation, window, correction)
            else:
                judged = [self._chart(metric, charted, window, correction) for metric in self._known(charted)]
                charts = tuple(_moved_to_published(chart, evaluation, charted) for chart in judged)
                self._warm_rebaselined(charted, rows)
                self._pool(evaluation, window, correction)
                each = [
                    self._attribute(chart, before, charted, rows, correction, features) for chart in judged
                ]
                attributions = tuple(filter(None, each))
            attributions += self._attribute_errors(errors, before, features)
        return charts, attributions

    def objectives(self, tally: Tally, errors_trusted: bool) -> tuple[ObjectiveView, ...]:
        """Return the state and the pooled interval of each objective.

        Parameters
        ----------
        tally : Tally
            The labelled rows. If they breach the objective of an error, it is breached.
        errors_trusted : bool
            False if labels contradict the estimated errors, whose objectives then have no state.
        """
        objectives = []
        for metric, bound in self._bounds.items():
            one = ObjectiveView(
                metric=metric,
                bound=bound.min if bound.min is not None else float(bound.max or 0.0),
                is_floor=bound.min is not None,
                state=self._standing.get(metric),
                pooled=self._pooled.get(metric),
                unit=self._settings.task.error_units.get(metric),
            )
            if one.unit is not None and not errors_trusted:
                one = replace(one, state=None, pooled=None)
            elif one.unit is not None and one.state is not ObjectiveState.BREACHED:
                one = self._judged_by_labels(one, bound, tally)
            objectives.append(one)
        return tuple(objectives)

    def _judged_by_labels(self, one: ObjectiveView, bound: Bound, tally: Tally) -> ObjectiveView:
        """Return the breached objective if the labelled rows of the pooled windows breach it."""
        level, windows = self._settings.task.level, self._objectives[one.metric].windows
        labelled = tally.realised_error(one.metric, tally.closed - 1, level, windows)
        if not isinstance(labelled, Estimate):
            return one
        state = judge(bound, labelled.lower, labelled.value, labelled.upper)
        if state is not ObjectiveState.BREACHED:
            return one
        return replace(one, state=state, pooled=(labelled.lower, labelled.upper), labels=labelled.n)

    def snapshot(self) -> JudgeState:
        """Return the state of baselines, charts, objectives and counts."""
        return JudgeState(
            baselines=dict(self._baselines),
            charts={metric: chart.snapshot() for metric, chart in self._charts.items()},
            warming={metric: list(points) for metric, points in self._warming.items()},
            warmed=self._warmed,
            rebaselining=dict(self._rebaselining),
            alarmed=sorted(self._alarmed),
            alarmed_since={metric: time for metric, time in self._alarmed.items() if time is not None},
            objectives={metric: logic.snapshot() for metric, logic in self._objectives.items()},
            standing=dict(self._standing),
            pooled={metric: ends for metric, ends in self._pooled.items() if ends is not None},
            violations=[(metric, rule, count) for (metric, rule), count in self.violations.items()],
            parts=dict(self._parts),
            warming_parts=dict(self._warming_parts),
            attributions=dict(self._attributions),
            by_labels=self._by_labels.snapshot(),
            seasons={metric: season.snapshot() for metric, season in self._seasons.items()},
            restarted=self._restarted,
        )

    def _build_objectives(self, states: Mapping[str, PooledState]) -> dict[str, ObjectiveLogic]:
        task = self._settings.task
        return {
            metric: Objective(bound, task.objective.windows, task.level, metric).build(states.get(metric))
            for metric, bound in self._bounds.items()
        }

    def _known(self, evaluation: Evaluation) -> Sequence[str]:
        return [metric for metric in self._charts if isinstance(evaluation.estimates.get(metric), Estimate)]

    def _chart(
        self,
        metric: str,
        evaluation: Evaluation,
        window: ClosedWindow,
        correction: Correcting,
    ) -> ChartView:
        estimate, by_labels = evaluation.estimates[metric], None
        assert isinstance(estimate, Estimate)
        chart, season = self._charts[metric], self._seasons.get(metric)
        if season is None:
            verdict = chart.update(estimate.value, estimate.n)
        else:
            verdict = season.judge(chart, estimate.value, estimate.n, window.middle_time)
        for rule in verdict.rules:
            self.violations[metric, rule] += 1
        if not (verdict.out_of_control or verdict.improved):
            self._attributions.pop(metric, None)
        if metric in SHARES:
            offset = season.pooled_offset if season else 0.0
            verdict, by_labels = self._by_labels.judge(verdict, correction, window.number, offset)
        if verdict.out_of_control:
            self._alarmed.setdefault(metric, window.end_time)
        else:
            self._alarmed.pop(metric, None)
        if season is not None:
            point = Point(estimate.value, estimate.n, evaluation.row_sd[metric])
            self._collect_season(metric, season, point, window, correction)
        task = self._settings.task
        unit = task.error_units.get(metric)
        return ChartView(metric, verdict, task.judged_estimator(metric), by_labels, unit)

    def _held(self, metric: str) -> bool:
        """Return whether labels hold the alarm of a metric."""
        return metric in SHARES and self._by_labels.on

    def _collect_season(
        self,
        metric: str,
        season: SeasonLogic,
        point: Point,
        window: ClosedWindow,
        correction: Correcting,
    ) -> None:
        """Add a window to the weeks of a season. If it begins, build a chart of the weeks without the season.

        The alarm of the old chart stays on. The labels of the same weeks make the baseline by which labels
        judge, unless that of a reference is there.
        """
        if season.fitted:
            return
        times = window.middle_time, window.end_time
        labelled = self._by_labels.estimate(correction, window.number) if metric in SHARES else None
        held = self._held(metric)
        baseline = season.collect(point, times, self._alarmed.get(metric), labelled, held)
        if baseline is None:
            return
        before = self._charts[metric].snapshot()
        latches = ChartState(quiet_windows=before.quiet_windows, quiet_improved=before.quiet_improved)
        try:
            self._charts[metric] = self._settings.chart(metric).build(baseline, latches)
        except ConfigError as error:
            self._warn_too_few(f"the limits of {metric} by hour of the week wait for four weeks more", error)
            self._seasons[metric] = season.restarted()
            return
        self._baselines[metric] = baseline
        if metric in SHARES:
            self._by_labels.start_season(*season.pop_labelled())

    def _attribute(
        self,
        chart: ChartView,
        before: Mapping[str, Attribution],
        evaluation: Evaluation,
        rows: PartRows,
        correction: Correcting,
        features: FeatureSplitter | None,
    ) -> Attribution | None:
        """Return the split of a change over parts and features; None if there is no alarm or breach.

        Parameters
        ----------
        chart : ChartView
        before : mapping of str to Attribution
            The attributions before this window, by metric.
        evaluation : Evaluation
        rows : PartRows
        correction : Correcting
        features : FeatureSplitter or None
        """
        metric, estimate = chart.metric, evaluation.estimates[chart.metric]
        assert isinstance(estimate, Estimate)
        change = estimate.value - chart.verdict.center
        breached = self._standing.get(metric) is ObjectiveState.BREACHED and abs(change) >= LEAST_CHANGE
        parts = self._parts.get(metric)
        if parts is None or not (chart.verdict.rules or breached):
            return None
        # With a season, the chart's centre is not the mean of the baseline's parts.
        seasonal = metric in self._seasons and self._seasons[metric].fitted
        attribution = rows.attribution(metric, evaluation, parts, None if seasonal else change)
        if attribution is not None:
            change = attribution.change if seasonal else change
            if features is not None:
                known = before[metric].features if metric in before else None
                split = features.split(metric, evaluation, parts, change, known)
                drift = None
                if metric in SHARES:
                    drift = concept_drift(correction, evaluation.confidence, self._settings.task.level)
                attribution = msgspec.structs.replace(attribution, features=split, concept_drift=drift)
            self._attributions[metric] = attribution
        return attribution

    def _attribute_errors(
        self,
        errors: Sequence[MetricEstimate],
        before: Mapping[str, Attribution],
        features: FeatureSplitter | None,
    ) -> tuple[Attribution, ...]:
        """Return the splits over features of the metrics of errors that clearly changed."""
        attributions: list[Attribution] = []
        if features is None:
            return ()
        for estimate in errors:
            known = before.get(estimate.metric)
            self._attributions.pop(estimate.metric, None)
            one = features.attribution_of_error(estimate, known.features if known else None)
            if one is not None:
                self._attributions[estimate.metric] = one
                attributions.append(one)
        return tuple(attributions)

    def _warm(self, evaluation: Evaluation, rows: PartRows) -> None:
        """Collect a window of the stream for the baseline; make the charts if there are enough windows."""
        for metric in evaluation.estimates:
            self._collect(metric, evaluation, rows)
        self._warmed += 1
        if self._warmed % self._settings.baseline_windows:
            return
        known = {metric: points for metric, points in self._warming.items() if len(points) >= FEWEST_WINDOWS}
        try:
            collected = {metric: baseline(points) for metric, points in known.items()}
            self.set_baseline(collected, self._warming_parts)
        except ConfigError as error:
            # Too few for the charts' promised run length: collect as many windows again.
            more = self._settings.baseline_windows
            self._warn_too_few(
                f"the baseline waits for {more} windows more, {self._warmed} are too few", error
            )

    def _warm_rebaselined(self, evaluation: Evaluation, rows: PartRows) -> None:
        """Collect a window for the metrics whose baseline is being replaced."""
        for metric in list(self._rebaselining):
            self._collect(metric, evaluation, rows)
            self._rebaselining[metric] += 1
            points = self._warming.get(metric, [])
            if self._rebaselining[metric] % self._settings.baseline_windows or len(points) < FEWEST_WINDOWS:
                continue
            try:
                self._baselines[metric] = baseline(points)
                self._charts[metric] = self._settings.chart(metric).build(self._baselines[metric])
                if (season := self._settings.season(metric)) is not None:
                    self._seasons[metric] = season
            except ConfigError as error:
                more = self._settings.baseline_windows
                why = f"the new baseline of {metric} waits for {more} windows more, {len(points)} are too few"
                self._warn_too_few(why, error)
                continue
            del self._rebaselining[metric], self._warming[metric]
            if metric in self._warming_parts:
                self._parts[metric] = self._warming_parts.pop(metric)

    def _warn_too_few(self, what: str, error: ConfigError) -> None:
        log.warning("%s: %s. %s.", self._settings.series, what, error)

    def _collect(self, metric: str, evaluation: Evaluation, rows: PartRows) -> None:
        estimate = evaluation.estimates.get(metric)
        if isinstance(estimate, Estimate):
            point = Point(estimate.value, estimate.n, evaluation.row_sd[metric])
            self._warming.setdefault(metric, []).append(point)
            add_parts(self._warming_parts, metric, evaluation, rows)

    def _pool(self, evaluation: Evaluation, window: ClosedWindow, correction: Correcting) -> None:
        level = self._settings.task.level
        for metric, objective in self._objectives.items():
            item, exposure = self._poolable(metric, evaluation, window.size), evaluation.exposures.get(metric)
            known = metric in SHARES and isinstance(evaluation.estimates.get(metric), Estimate)
            by_labels = partial(correction.estimate, window.number, level) if known else None
            verdict = objective.update(item, exposure, evaluation.predictive, by_labels)
            self._standing[metric] = verdict.state
            lower, upper = verdict.lower, verdict.upper
            self._pooled[metric] = None if lower is None or upper is None else (lower, upper)

    def _poolable(self, metric: str, evaluation: Evaluation, size: int) -> Poolable | None:
        if metric in SHARES:
            return evaluation.accuracy
        if isinstance(mean := evaluation.losses.get(metric), MeanLoss):
            return mean
        if metric in evaluation.others:
            other = evaluation.others[metric]
            if other.draws is None or not isinstance(other.result, Estimate):
                return other.counts or other.cumulants
            return BootstrapDraws(other.result.value, other.draws, size)
        error = evaluation.errors.get(metric)
        if error is None or error.draws is None or not isinstance(error.result, Estimate):
            return None
        return BootstrapDraws(error.result.value, error.draws, size)


def _moved_to_published(chart: ChartView, shown: Evaluation, charted: Evaluation) -> ChartView:
    """Return the chart with its centre and limits moved to the published estimate.

    The limits of a metric of errors are converted to its unit. If the chart judged another estimate, they
    move by the difference of the two estimates. So the published estimate is within the limits exactly if the
    judged one is.
    """
    if chart.metric in shown.losses:
        return replace(chart, verdict=chart.verdict.mapped(partial(in_unit, chart.metric)))
    seen, judged = (each.estimates.get(chart.metric) for each in (shown, charted))
    if not isinstance(seen, Estimate) or not isinstance(judged, Estimate) or seen is judged:
        return chart
    return replace(chart, verdict=chart.verdict.moved_by(seen.value - judged.value))


def standing(silent: bool, trusted: bool, judge: Judge) -> SeriesState:
    """Return the state of a series. If several states apply, return the one with the highest rank.

    The states, from the highest rank:

    1. The model has stopped answering.
    2. A baseline is missing, so that no alarm is sent.
    3. Labels contradict the estimates or a feature is broken, so that charts mean little.
    4. The state of the charts.

    Parameters
    ----------
    silent : bool
        Whether the model has stopped answering.
    trusted : bool
        Whether labels do not contradict the estimates, and no feature is broken.
    judge : Judge
    """
    if silent:
        return SeriesState.SILENT
    if judge.warming_up:
        return SeriesState.WARMING_UP
    if not trusted:
        return SeriesState.UNTRUSTED
    return SeriesState.OUT_OF_CONTROL if judge.out_of_control else SeriesState.IN_CONTROL
