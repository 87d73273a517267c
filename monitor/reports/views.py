"""Immutable views of the engine and of the agent around it, for exporters.

The engine makes a new `EngineView` after each step; exporters read the newest one. A view holds no reference
to the engine's state, so a scrape never waits for the engine and never sees a half-finished step.
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
    CalibrationView,
    ChartView,
    ClassEstimate,
    CovariatesView,
    Coverage,
    MetricEstimate,
    ObjectiveState,
    ObjectiveView,
    Rebaselined,
    SeriesState,
)
from monitor.stats.histograms import Distributions


@dataclass(frozen=True, slots=True)
class TaskView(ABC):
    """A task whose models have their windows in common, as of its last closed window.

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
        """The names of the models in the last closed window's results."""


__all__ = [
    "AgentView",
    "AlarmByLabels",
    "CalibrationView",
    "ChartView",
    "ClassEstimate",
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
    """The state of one model's recalibrations on labels: see `monitor.engine.refit.due`.

    Parameters
    ----------
    outcomes : mapping of str to int
        Number of recalibrations by outcome, with every key of `monitor.engine.refit.due.OUTCOMES`.
    refused : str or None
        A sentence that says why the newest recalibration that was due fitted no calibration; None if it
        fitted a calibration.
    under_way : bool
        Whether a recalibration has begun and not ended.
    held : bool
        Whether the newest recalibration that was due did not begin because too many labels replaced an
        earlier label of another class.
    """

    outcomes: Mapping[str, int]
    refused: str | None = None
    under_way: bool = False
    held: bool = False


@dataclass(frozen=True, slots=True)
class SeriesView:
    """One model of a task, or one group of its answers, as of its last closed window.

    Parameters
    ----------
    task, model, version : str
    group : str
        ``""`` for the whole model, else such as ``region=eu``.
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
        The results of the last closed window; empty before the first window has closed.
    violations : mapping of (metric, rule) to int
        Number of windows since the start that broke the rule. Every metric and rule is present; the number is
        0 if no window broke the rule.
    labelled, correct : int
        Answers whose label has arrived since the start, and how many of them were right.
    coverage : Coverage or None
        Measured coverage of the accuracy's intervals, on the newest labelled rows; None for fewer than 30
        rows, and for groups.
    trust : Trust or None
        The result of the test whether labels contradict the accuracy; None before the first label, and for
        groups.
    alarmed_since : mapping of str to float or None
        For each metric with a latched alarm, the end of the window that raised the alarm, seconds since the
        epoch; None if the state comes from an older version, which stored no time.
    classes : tuple of ClassEstimate
        The estimates by class in the last closed window, for metrics that are estimated by class.
    recalibrations : RecalibrationsView or None
        None for groups, and for a calibration that is never fitted again automatically.
    distributions : Distributions or None
        Distributions of the confidences; None for groups.
    rows_unusable : mapping of (feature, {"missing", "unseen"}) to int
        Number of answers in closed windows since the start that lack the feature (`missing`), or have a text
        that the reference lacks (`unseen`). Every feature is present.
    features : FeatureCounts or None
        The counts of the features in the last closed window. None for groups, and for tasks without features.
    broken_features : tuple of BrokenFeature
        The faults of features in the last closed window.
    attributions : tuple of Attribution
        For each metric with a latched alarm or improvement, the split of its change into parts, in the newest
        window that broke a rule.
    certain : int
        Number of answers since the start of the agent if every answer has a score of exactly 1 or a
        confidence of exactly 0 or 1; otherwise 0. Also 0 for fewer than 200 answers, and for groups.
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
    features: FeatureCounts | None = None
    broken_features: tuple[BrokenFeature, ...] = ()

    @property
    def feature_rates(self) -> Mapping[str, FeatureRates]:
        """The rates of each feature in the last closed window; empty without any."""
        return {} if self.features is None else self.features.rates

    def feature_order(self, name: str) -> tuple[bool, float]:
        """Return the sort key of a feature: broken ones first, then those farthest from the reference."""
        return all(each.feature != name for each in self.broken_features), -self.feature_rates[name].excess


@dataclass(frozen=True, slots=True)
class RefitView:
    """The state of the refits of a task's estimators that use labels.

    The fields from `rows` to `iterations` describe the last published fit.

    Parameters
    ----------
    number : int
        Refits begun since the start.
    under_way : bool
        Whether a refit has begun and not ended.
    success_time : float or None
        When a fit was last published, seconds since the epoch; None before the first.
    rows, labelled : int
        Rows that the fit used, and how many of them have labels.
    pool_rows : int
        Rows that the used rows represent; larger than `rows` if the fit used a sample.
    widening : float
        Relative widening of the interval of a model's accuracy that is due to sampling, for the model with
        the largest widening; 0.1 means wider by a tenth.
    effective_labels : float
        Size of a simple random sample of labels with the same information.
    prevalence : mapping of class to float
        Estimated share of each class.
    converged : bool
        Whether the fit converged within its limit of iterations.
    iterations : int
    failures : int
        Refused refits since the start.
    refused : str or None
        Why the newest refit was refused, or why a due refit does not begin; None if the newest refit was
        published.
    held : bool
        Whether a refit is due and does not begin because too many labels replaced an earlier label of another
        class.
    without_id : int
        Answers of the refitted models that no fit uses because they have no id, since the start.
    labelled_draws : int or None
        Labelled rows that `active_testing` uses: consecutive draws of one round, and no other labelled rows.
        None if `active_testing` is not configured.
    missing_draws : int or None
        Earlier draws of that round whose labels have not arrived; None if `active_testing` is not configured.
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
    """The engine after a step.

    Parameters
    ----------
    series : tuple of SeriesView
        In order of first appearance.
    labels : mapping of (task, LabelOutcome) to int
        Labels since the start, by outcome.
    labels_waiting : mapping of task to int
        Labels whose prediction has not arrived yet.
    label_lag_seconds : mapping of task to float
        Median time from prediction to label over the newest matched labels.
    received, shed : mapping of source to int
        Answers received, and answers that were refused because the source was full.
    labels_received : mapping of source to int
        Labels received, whether they were used or not: labels in separate records, and labels in the record
        of a usable prediction.
    rejected : mapping of (source, reason) to int
        Answers rejected, by source and reason. Rejected labels are counted in `labels`.
    series_dropped : int
        Models and groups beyond the cap, each counted once.
    labels_unrevised : mapping of task to int
        Labelled rows whose label arrived too late for any further revision of their window.
    refits : mapping of task to RefitView
        The refits of each task that has refits.
    answers_forgotten : mapping of task to int
        Unlabelled answers that were dropped from memory while a label could still arrive.
    tasks : tuple of TaskView
        The tasks whose models have their windows in common.
    ignored : mapping of source to int
        Events that were ignored because they hold no answer.
    rows_left : mapping of source to int
        Rows that a mapping did not read, in records that hold several rows.
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
    """The health of a source.

    Parameters
    ----------
    name : str
    up : bool
        Whether the source is connected and can be read.
    lag : int or None
        Number of records that wait in the source or have been read but not used yet; None if the source does
        not report how many records wait.
    refused : mapping of str to int
        Requests that the source answered with an error, by HTTP status code, with every possible code; empty
        if no records are posted to the source.
    reads_events : bool
        Whether the source reads events, some of which may hold no answer.
    counts : SourceCounts or None
        Lost and overlapping records; None if the source does not count such records.
    labels_by_token : mapping of str to int
        Labels posted since the start, by the name of the sender's token; empty if no token is required.
    """

    name: str
    up: bool
    lag: int | None
    counts: SourceCounts | None = None
    refused: Mapping[str, int] = field(default_factory=dict)
    reads_events: bool = False
    labels_by_token: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SinkView:
    """The state of one output of the agent.

    Parameters
    ----------
    name : str
        `reports_file`, `reports_topic`, `rejects_file`, `rejects_topic`; or `metrics`, whose items are
        answers to requests.
    waiting : int
        Windows or records that have not been delivered yet; for `metrics`, open requests.
    delivered, lost : int
        Counts since the start. Lost items were dropped by the sink's documented policy.
    trouble : str or None
        Why nothing can be delivered at present: a sentence without its full stop. None if delivery works.
    failing_since : float or None
        When the trouble began, seconds since the epoch.
    """

    name: str
    waiting: int = 0
    delivered: int = 0
    lost: int = 0
    trouble: str | None = None
    failing_since: float | None = None


@dataclass(frozen=True, slots=True)
class AgentView:
    """The whole agent, for exporters and health checks.

    Parameters
    ----------
    engine : EngineView
    sources : tuple of SourceView
    ready : bool
        Whether every source is connected and the engine runs.
    healthy : bool
        Whether the engine has made progress lately.
    reasons : tuple of str
        The reasons why the agent is not ready or not healthy, each as a sentence.
    reload_successful : bool
        Whether the newest reload of the configuration succeeded.
    reload_time : float
        When the configuration was last loaded with success, seconds since the epoch.
    reports_lost : int
        Closed windows that are missing in a reports sink, or were lost while the store could not be written.
    store_failing : str or None
        Why the state cannot be saved at present; None if it can be saved, or if there is no store.
    store_failures : int
        Failed attempts to save a checkpoint; each is tried again.
    checkpoint_time : float or None
        When the last checkpoint was saved, seconds since the epoch; None without a store.
    sinks : tuple of SinkView
        The outputs. An output that fails makes the agent neither unready nor unhealthy.
    refit_durations : mapping of task to RefitDurations
        Durations of the refits since the start.
    decoder_failures : int
        Decoder processes that ended unexpectedly since the start; the agent itself decoded their records.
    external_url : str
        Public address of the agent's page; ``""`` if none is configured.
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
