"""Immutable views of the engine and of the agent, for exporters.

The engine makes a new `EngineView` after each step, and exporters read the newest view. A view does not share
data with the engine. So a scrape never waits for the engine, and never shows a half-finished step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar

from monitor.base.durations import RefitDurations
from monitor.base.source import SourceCounts
from monitor.reports.attribution import Attribution
from monitor.reports.features import BrokenFeature, FeatureCounts, FeatureRates
from monitor.reports.trust import Trust
from monitor.reports.window_view import (
    AlarmByLabels,
    BaselineProgress,
    CalibrationView,
    ChartView,
    ClassEstimate,
    ConfusionView,
    CovariatesView,
    Coverage,
    MetricEstimate,
    ObjectiveState,
    ObjectiveView,
    Rebaselined,
    SeasonView,
    SeriesState,
)
from monitor.stats.histograms import Distributions


@dataclass(frozen=True, slots=True)
class TaskView(ABC):
    """The state of a task whose models share their windows, after its last closed window.

    Parameters
    ----------
    task : str
    window_size : int
        Configured size.
    windows_closed, duplicates : int
        Counts since the start.
    pending : int
        Answers in the open window.
    window_end_time : float or None
        Time of the last record of the last closed window, seconds since the epoch.
    """

    task: str
    window_size: int
    windows_closed: int = 0
    duplicates: int = 0
    pending: int = 0
    window_end_time: float | None = None

    kind: ClassVar[str]
    """The kind of the task, a tag in `monitor.base.registry.WHOLE_TASKS`."""

    @property
    @abstractmethod
    def used(self) -> int:
        """The number of answers in closed windows and in the open window."""

    @property
    @abstractmethod
    def models(self) -> Sequence[str]:
        """The names of the models in the results of the last closed window."""


__all__ = [
    "AgentView",
    "AlarmByLabels",
    "BaselineProgress",
    "CalibrationView",
    "ChartView",
    "ClassEstimate",
    "ConfusionView",
    "CovariatesView",
    "Coverage",
    "EngineView",
    "LabelOutcome",
    "MetricEstimate",
    "ObjectiveState",
    "ObjectiveView",
    "Rebaselined",
    "RecalibrationsView",
    "RefitView",
    "SeasonView",
    "SeriesState",
    "SeriesView",
    "SinkView",
    "SourceView",
    "TaskView",
]


class LabelOutcome(StrEnum):
    """The outcome of a label, such as a match with an answer, or expiry without an answer."""

    MATCHED = "matched"
    DUPLICATE = "duplicate"
    CONFLICTING = "conflicting"
    EXPIRED = "expired"
    REJECTED = "rejected"
    AMBIGUOUS = "ambiguous"
    SHED = "shed"


@dataclass(frozen=True, slots=True)
class RecalibrationsView:
    """The state of the recalibrations of one model by labels: see `monitor.engine.refit.due`.

    Parameters
    ----------
    outcomes : mapping of str to int
        Number of recalibrations by outcome, with every key of `monitor.engine.refit.due.OUTCOMES`.
    refused : str or None
        The reason why the last due recalibration did not fit a calibration, as a sentence; otherwise None.
    under_way : bool
        Whether a recalibration runs now.
    held : bool
        True if the last due recalibration did not begin, because too many labels replaced earlier labels of
        another class.
    """

    outcomes: Mapping[str, int]
    refused: str | None = None
    under_way: bool = False
    held: bool = False


@dataclass(frozen=True, slots=True)
class SeriesView:
    """The state of one model of a task, or of one group of its answers, after its last closed window.

    Parameters
    ----------
    task, model, version : str
    group : str
        ``""`` for the whole model, otherwise a group such as ``region=eu``.
    state : SeriesState
    window_size : int
        Configured size.
    windows_closed, predictions, duplicates : int
        Counts since the start; `predictions` counts the answers in closed windows.
    pending : int
        Answers in the open window.
    window_end_time : float or None
        Time of the last record of the last closed window, seconds since the epoch.
    calibration : CalibrationView
    estimates, charts, objectives : tuple
        The estimates of the last closed window, with the newest results of labels and refits; the results of
        the charts for that window; and the newest result of each objective. Estimates and charts are empty
        before the first window has closed. Charts are also empty while there is no baseline.
    violations : mapping of (metric, rule) to int
        Number of windows since the start that broke the rule. Every metric and rule has an entry, which may
        be 0.
    labelled, correct : int
        Number of answers that got a label since the start, and number of right answers among them.
    coverage : Coverage or None
        Measured coverage of the accuracy's intervals on the newest labelled rows. None if there are fewer
        than 30 rows, and for groups.
    trust : Trust or None
        The result of the test of trust (whether labels contradict the accuracy). None before the first label.
    trust_in_errors : Trust or None
        The same for the metrics of errors in `values`; None if predictions are no numbers.
    alarmed_since : mapping of str to float or None
        For each metric whose alarm is on: the end of the window that raised the alarm, seconds since the
        epoch. None if an older version raised the alarm, because it stored no time.
    classes : tuple of ClassEstimate
        The estimates by class in the last closed window, for metrics that are estimated by class.
    recalibrations : RecalibrationsView or None
        None for groups, and for a calibration that is not refitted automatically.
    distributions : Distributions or None
        Distributions of the confidences; None for groups.
    rows_unusable : mapping of (feature, {"missing", "unseen"}) to int
        Number of answers in closed windows since the start that a calibration for a window cannot use.
        `missing`: they lack the feature. `unseen`: the reference lacks their text, or their number is beyond
        its range. Every feature that the calibration uses has an entry.
    features : FeatureCounts or None
        The counts of the features in the last closed window. None for groups, and for tasks without features.
    broken_features : tuple of BrokenFeature
        The faults of features in the last closed window.
    confusion : ConfusionView or None
        The expected confusion matrix of the last closed window. None for groups, for tasks with one class or
        more than ten, and if the scores could not be calibrated.
    rebaselining : tuple of BaselineProgress
        The new baselines that were requested and are not complete.
    seasons : tuple of SeasonView
        The state of the limits by hour of the week, for each metric with a chart; empty without
        `chart.season`.
    attributions : tuple of Attribution
        The split of a metric's change into parts, from the newest window in which its chart broke a rule or
        its objective was breached. A split is dropped when the chart of the estimates shows neither an alarm
        nor an improvement, and the objective is not breached.
    values : tuple of MetricEstimate
        The metrics of errors of the last closed window, each with its unit and the newest results of
        labels; empty if predictions are no numbers.
    certain : int
        Number of answers since the start of the agent, if each of them has a score of exactly 1, or a
        confidence of exactly 0 or 1. Such a model probably sends classes instead of probabilities. Otherwise
        0; also 0 for fewer than 200 answers, and for groups.
    shared_seconds : float
        The longest time by which the end of the last closed window may precede that of another model's, if
        the two are compared by `monitor.reports.shared`. 0 if `chart.shared` is off.
    """

    task: str
    model: str
    group: str
    version: str
    state: SeriesState
    window_size: int
    windows_closed: int
    predictions: int
    duplicates: int
    pending: int
    window_end_time: float | None
    calibration: CalibrationView
    estimates: tuple[MetricEstimate, ...]
    charts: tuple[ChartView, ...]
    objectives: tuple[ObjectiveView, ...]
    violations: Mapping[tuple[str, str], int]
    labelled: int = 0
    correct: int = 0
    coverage: Coverage | None = None
    trust: Trust | None = None
    alarmed_since: Mapping[str, float | None] = field(default_factory=dict)
    classes: tuple[ClassEstimate, ...] = ()
    recalibrations: RecalibrationsView | None = None
    distributions: Distributions | None = None
    rows_unusable: Mapping[tuple[str, str], int] = field(default_factory=dict)
    attributions: tuple[Attribution, ...] = ()
    certain: int = 0
    share: str = "accuracy"
    features: FeatureCounts | None = None
    broken_features: tuple[BrokenFeature, ...] = ()
    confusion: ConfusionView | None = None
    rebaselining: tuple[BaselineProgress, ...] = ()
    shared_seconds: float = 0.0
    seasons: tuple[SeasonView, ...] = ()
    values: tuple[MetricEstimate, ...] = ()
    trust_in_errors: Trust | None = None

    @property
    def contradicted(self) -> bool:
        """True if labels contradict the estimated accuracy."""
        return self.trust is not None and not self.trust.trusted

    @property
    def lost_trust_in_errors(self) -> Trust | None:
        """The result of the test of estimated errors if labels contradict them, otherwise None."""
        own = self.trust_in_errors
        return None if own is None or own.trusted else own

    @property
    def feature_rates(self) -> Mapping[str, FeatureRates]:
        """The rates of each feature in the last closed window; empty if there are no features."""
        return {} if self.features is None else self.features.rates

    @property
    def feature_alarms(self) -> Mapping[str, bool]:
        """The features whose drift is judged, each with whether its drift raises an alarm.

        The drift of a broken feature raises no alarm, because a broken feature has its own alert. The mapping
        is empty if drift never raises an alarm.
        """
        if self.features is None or not self.features.alarm_level:
            return {}
        broken = {each.feature for each in self.broken_features}
        return {
            name: rates.alarm and name not in broken
            for name, rates in self.feature_rates.items()
            if rates.drift is not None
        }

    def feature_order(self, name: str) -> tuple[bool, float]:
        """Return the sort key of a feature: broken features first, then the farthest from the reference."""
        return all(each.feature != name for each in self.broken_features), -self.feature_rates[name].excess


@dataclass(frozen=True, slots=True)
class RefitView:
    """The state of a task's refits, which fit its estimators that use labels.

    The fields from `rows` to `iterations`, `labelled_draws` and `missing_draws` describe the last published
    fit.

    Parameters
    ----------
    number : int
        Number of refits that began since the start.
    under_way : bool
        Whether a refit runs now.
    success_time : float or None
        The time when a fit was last published, seconds since the epoch; None before the first fit.
    rows, labelled : int
        Number of rows that the fit used, and of labelled rows among them.
    pool_rows : int
        Number of rows that could be used; larger than `rows` if the fit used a sample.
    widening : float
        The share by which sampling widens the interval of the accuracy, for the most affected model. 0.1
        means that the interval is 10 % wider.
    effective_labels : float
        Number of labels of a simple random sample with the same information.
    prevalence : mapping of class to float
        Estimated share of each class.
    converged : bool
        Whether the fit converged within its limit of iterations.
    iterations : int
    failures : int
        Refused refits since the start.
    refused : str or None
        The reason why the last refit was refused, or why a due refit does not begin; None if the last refit
        was published.
    held : bool
        True if a due refit does not begin, because too many labels replaced earlier labels of another class.
    without_id : int
        Number of answers since the start without an id. No fit uses them.
    labelled_draws : int or None
        Number of labelled rows that `active_testing` uses: the rows of one round of draws. None if
        `active_testing` is not configured.
    missing_draws : int or None
        Number of earlier draws of that round whose labels have not arrived. None if `active_testing` is not
        configured.
    """

    number: int = 0
    under_way: bool = False
    success_time: float | None = None
    rows: int = 0
    labelled: int = 0
    pool_rows: int = 0
    widening: float = 0.0
    effective_labels: float = 0.0
    prevalence: Mapping[str, float] = field(default_factory=dict)
    converged: bool = False
    iterations: int = 0
    failures: int = 0
    refused: str | None = None
    held: bool = False
    without_id: int = 0
    labelled_draws: int | None = None
    missing_draws: int | None = None


@dataclass(frozen=True, slots=True)
class EngineView:
    """The state of the engine after a step.

    Parameters
    ----------
    series : tuple of SeriesView
        In order of first appearance.
    labels : mapping of (task, LabelOutcome) to int
        Number of labels since the start, by outcome.
    labels_waiting : mapping of task to int
        Number of labels whose answer has not arrived yet.
    label_lag_seconds : mapping of task to float
        Median time from an answer to its label, over the newest matched labels.
    received, shed : mapping of source to int
        Number of answers received, and number of answers not used, because the source was full or their model
        is beyond the limit.
    labels_received : mapping of source to int
        Number of labels received, in separate records and in records of usable answers. It includes labels
        that were not used.
    rejected : mapping of (source, reason) to int
        Number of rejected answers. Rejected labels are counted in `labels`.
    series_dropped : int
        Number of models and groups that are not monitored, because there is a limit on their number.
    labels_unrevised : mapping of task to int
        Number of rows whose label arrived too late to revise the report of their window.
    refits : mapping of task to RefitView
        The refits of each task that has refits.
    answers_forgotten : mapping of task to int
        Number of unlabelled answers that were dropped from memory although a label could still arrive.
    tasks : tuple of TaskView
        The tasks whose models share their windows.
    ignored : mapping of source to int
        Number of events that were ignored because they contain no answer.
    rows_left : mapping of source to int
        Number of rows that were not read, in records that contain several rows.
    """

    series: tuple[SeriesView, ...] = ()
    labels: Mapping[tuple[str, LabelOutcome], int] = field(default_factory=dict)
    labels_waiting: Mapping[str, int] = field(default_factory=dict)
    label_lag_seconds: Mapping[str, float] = field(default_factory=dict)
    received: Mapping[str, int] = field(default_factory=dict)
    shed: Mapping[str, int] = field(default_factory=dict)
    rejected: Mapping[tuple[str, str], int] = field(default_factory=dict)
    series_dropped: int = 0
    labels_received: Mapping[str, int] = field(default_factory=dict)
    labels_unrevised: Mapping[str, int] = field(default_factory=dict)
    refits: Mapping[str, RefitView] = field(default_factory=dict)
    answers_forgotten: Mapping[str, int] = field(default_factory=dict)
    tasks: tuple[TaskView, ...] = ()
    ignored: Mapping[str, int] = field(default_factory=dict)
    rows_left: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SourceView:
    """The state of a source.

    Parameters
    ----------
    name : str
    up : bool
        Whether the source is connected and can be read.
    lag : int or None
        Number of records that the agent has not used yet. It includes records that wait in the source. None
        if the source does not report their number.
    refused : mapping of str to int
        Number of requests that the source answered with an error, by HTTP status code. Every possible code
        has an entry. Empty if no records are posted to the source.
    reads_events : bool
        Whether the source reads events, which may contain no answer.
    counts : SourceCounts or None
        Numbers of lost and of overlapping records; None if the source does not count them.
    labels_by_token : mapping of str to int
        Number of labels posted since the start, by the name of the sender's token; empty if no token is
        required.
    ended_time : float or None
        When reading ended, seconds since the epoch: at the end of the source, or when the agent stopped. None
        while the agent reads.
    """

    name: str
    up: bool
    lag: int | None
    counts: SourceCounts | None = None
    refused: Mapping[str, int] = field(default_factory=dict)
    reads_events: bool = False
    labels_by_token: Mapping[str, int] = field(default_factory=dict)
    ended_time: float | None = None


@dataclass(frozen=True, slots=True)
class SinkView:
    """The state of one output of the agent.

    Parameters
    ----------
    name : str
        `reports_file`, `reports_topic`, `rejects_file`, `rejects_topic`, `otlp`, `alertmanager` or
        `metrics`. If there are several Alertmanagers, their names have numbers: `alertmanager_0`, and so on.
        The items of `metrics` are answers to requests.
    waiting : int
        Number of windows or records that have not been delivered yet. For `metrics`, number of open requests.
    delivered, lost : int
        Numbers of delivered and of lost items since the start. The sink dropped the lost items, by its
        documented policy.
    trouble : str or None
        The reason why nothing can be delivered now, as a sentence without a full stop. None if delivery
        works.
    failing_since : float or None
        The time when the trouble began, seconds since the epoch.
    """

    name: str
    waiting: int = 0
    delivered: int = 0
    lost: int = 0
    trouble: str | None = None
    failing_since: float | None = None


@dataclass(frozen=True, slots=True)
class AgentView:
    """The state of the whole agent, for exporters and health checks.

    Parameters
    ----------
    engine : EngineView
    sources : tuple of SourceView
    ready : bool
        Whether every source is connected, the state can be saved, and the engine runs.
    healthy : bool
        Whether the engine has made progress lately.
    reasons : tuple of str
        The reasons why the agent is not ready or not healthy, each as a sentence.
    reload_successful : bool
        Whether the newest reload of the configuration succeeded.
    reload_time : float
        The time when the configuration was last loaded with success, seconds since the epoch.
    reports_lost : int
        Number of closed windows that are missing in a sink of reports, or that were lost while the store
        could not be written.
    store_failing : str or None
        The reason why the state cannot be saved now. None if it can be saved, or if there is no store.
    store_failures : int
        Number of failed attempts to save a checkpoint. A failed attempt is repeated.
    checkpoint_time : float or None
        The time when the last checkpoint was saved, seconds since the epoch; None without a store.
    sinks : tuple of SinkView
        The outputs. A failing output does not make the agent unready or unhealthy.
    refit_durations : mapping of task to RefitDurations
        Durations of the refits since the start.
    decoder_failures : int
        Number of decoder processes that ended unexpectedly since the start. The agent itself decoded their
        records.
    external_url : str
        Public address of the agent's page; ``""`` if none is configured.
    ended : bool
        Whether the agent has ended without a failure: it was stopped, or it used all records of its sources.
    """

    engine: EngineView = EngineView()
    sources: tuple[SourceView, ...] = ()
    ready: bool = False
    healthy: bool = True
    reasons: tuple[str, ...] = ()
    reload_successful: bool = True
    reload_time: float = 0.0
    reports_lost: int = 0
    store_failing: str | None = None
    store_failures: int = 0
    checkpoint_time: float | None = None
    sinks: tuple[SinkView, ...] = ()
    refit_durations: Mapping[str, RefitDurations] = field(default_factory=dict)
    decoder_failures: int = 0
    external_url: str = ""
    ended: bool = False
