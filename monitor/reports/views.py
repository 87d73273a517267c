"""What the outside may see: one immutable picture of the engine and of the agent around it.

The engine makes a new `EngineView` after each step; exporters read whichever is newest. Nothing here
refers back to the engine's state, so a scrape never waits for it and never sees half a step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from monitor.base.durations import RefitDurations
from monitor.base.source import SourceCounts
from monitor.reports.attribution import Attribution
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

if TYPE_CHECKING:
    from monitor.stats.pairwise.standing import Standing


@dataclass(frozen=True, slots=True)
class ArenaView:
    """An arena as of its last closed window.

    Parameters
    ----------
    task : str
    window_size : int
        Configured size.
    windows_closed, comparisons, duplicates : int
        Counts since the start; comparisons are those in closed windows.
    pending : int
        Comparisons in the open window.
    window_end_time : float or None
        Time of the last record of the last closed window, seconds since the epoch.
    standing : Standing or None
        None before the first window has closed.
    """

    task: str
    window_size: int
    windows_closed: int = 0
    comparisons: int = 0
    duplicates: int = 0
    pending: int = 0
    window_end_time: float | None = None
    standing: Standing | None = None


__all__ = [
    "AgentView",
    "AlarmByLabels",
    "ArenaView",
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
]


class LabelOutcome(StrEnum):
    """What became of a label."""

    MATCHED = "matched"
    DUPLICATE = "duplicate"
    CONFLICTING = "conflicting"
    EXPIRED = "expired"
    REJECTED = "rejected"
    AMBIGUOUS = "ambiguous"
    SHED = "shed"


@dataclass(frozen=True, slots=True)
class RecalibrationsView:
    """How the recalibrations of one model on labels stand: see `monitor.engine.refit.due`.

    Parameters
    ----------
    outcomes : mapping of str to int
        How many ended how, by `monitor.engine.refit.due.OUTCOMES`; complete from the start, with zeros.
    refused : str or None
        Why the newest one that was due brought nothing to judge, a sentence; None where it did.
    under_way : bool
        One has begun and not ended.
    held : bool
        The newest one that was due did not begin, because too many labels replaced another class.
    """

    outcomes: Mapping[str, int]
    refused: str | None = None
    under_way: bool = False
    held: bool = False


@dataclass(frozen=True, slots=True)
class SeriesView:
    """One model of a task, or one group of it, as of its last closed window.

    Parameters
    ----------
    task, model, version : str
    group : str
        ``""`` for the whole model, else ``region=eu``.
    state : SeriesState
    window_size : int
        Configured size.
    windows_closed, predictions, duplicates : int
        Counts since the start; predictions are those in closed windows.
    pending : int
        Answers in the open window.
    window_end_time : float or None
        Time of the last record of the last closed window, seconds since the epoch.
    calibration : CalibrationView
    estimates, charts, objectives : tuple
        Of the last closed window; empty before the first.
    violations : mapping of (metric, rule) to int
        Windows that broke a rule, since the start; complete from the start, with zeros.
    labelled, correct : int
        Answers whose label has come, since the start, and how many of those were right.
    coverage : Coverage or None
        Of the accuracy's intervals, by the newest labelled rows; None before there are 30, and for groups.
    trust : Trust or None
        Whether labels contradict the accuracy; None before the first of them, and for groups.
    alarmed_since : mapping of str to float or None
        The metrics whose alarm is latched, and the end of the window that raised it, seconds since the
        epoch; None where an older version kept no time.
    classes : tuple of ClassEstimate
        Of the last closed window, where each class is estimated by itself.
    recalibrations : RecalibrationsView or None
        None where its calibration is never fitted again by itself, as that of groups.
    distributions : Distributions or None
        Of its confidences; None for groups.
    rows_unusable : mapping of (feature, {"missing", "unseen"}) to int
        Answers in closed windows without a feature, or with a text that the reference lacks, since the start;
        complete from the start, with zeros.
    attributions : tuple of Attribution
        Of the metrics whose alarm or improvement is latched: where the change is, in the newest window that
        broke a rule.
    certain : int
        Answers since the start of the agent, where each has a score of exactly 1, or a confidence of exactly
        0 or 1; 0 where one has not, where fewer than 200 came, and for groups.
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


@dataclass(frozen=True, slots=True)
class RefitView:
    """How the refits of a task's estimators that use labels stand.

    Parameters
    ----------
    number : int
        Refits begun since the start.
    under_way : bool
        One has begun and not ended.
    success_time : float or None
        When a fit was last published, seconds since the epoch; None before the first. What follows is of
        that fit.
    rows, labelled : int
        Rows that it rests on, and how many of those have labels.
    pool_rows : int
        Rows that those stand for: more where it rests on a sample.
    widening : float
        By how much that makes the interval of a model's accuracy wider, of the model for which it does most:
        0.1 for a tenth.
    effective_labels : float
        Labels taken at random with equal chances that would weigh as much.
    prevalence : mapping of class to float
    converged : bool
    iterations : int
    failures : int
        Refits that were refused, since the start.
    refused : str or None
        Why the newest one was, or does not begin; None where it was good.
    held : bool
        One is due and does not begin, because too many labels replaced another class.
    without_id : int
        Answers of the refitted models that took no part since the start, as they have no id.
    drawn : int or None
        Labelled rows that `active_testing` rests on: drawn one after another, in one round. The other
        labelled ones are of no use to it. None where it is not asked for.
    missing_draws : int or None
        Draws of that round below the last of these whose labels have not come.
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
    drawn: int | None = None
    missing_draws: int | None = None


@dataclass(frozen=True, slots=True)
class EngineView:
    """The engine after a step.

    Parameters
    ----------
    series : tuple of SeriesView
        In order of first appearance.
    labels : mapping of (task, LabelOutcome) to int
    labels_waiting : mapping of task to int
        Labels that came before their prediction.
    label_lag_seconds : mapping of task to float
        Median time from prediction to label over the newest matched labels.
    received, shed : mapping of source to int
        Answers.
    labels_received : mapping of source to int
        Labels, used or not: records that are labels, and labels that came along with a good prediction.
    rejected : mapping of (source, reason) to int
        Answers not used; rejected labels are in `labels`.
    series_dropped : int
        Answers' models and groups beyond the cap, counted once each.
    labels_unrevised : mapping of task to int
        Labelled rows that reached a closed window too late for any further line of it.
    refits : mapping of task to RefitView
        Only of tasks that refit anything.
    answers_forgotten : mapping of task to int
        Answers pushed out of memory unlabelled while a label could still come.
    arenas : tuple of ArenaView
    ignored : mapping of source to int
        Events without answers.
    rows_left : mapping of source to int
        Rows that a mapping did not read, of records that hold several.
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
    arenas: tuple[ArenaView, ...] = ()
    ignored: Mapping[str, int] = field(default_factory=dict)
    rows_left: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SourceView:
    """A feed's health.

    Parameters
    ----------
    name : str
    up : bool
    lag : int or None
        Records that wait in it, and those read from it and not used yet; None where it cannot tell.
    refused : mapping of str to int
        Requests that it answered with an error, by code; complete from the start. Empty where nothing
        is posted to it.
    reads_events : bool
        Whether it reads events, some of which may hold no answer.
    counts : SourceCounts or None
        None where nothing of the kind can happen to the feed.
    labels_by_token : mapping of str to int
        Labels posted since the start, by the name of their token; empty where none is asked for.
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
    """How a place stands that the agent's output goes to.

    Parameters
    ----------
    name : str
        `reports_file`, `reports_topic`, `rejects_file`, `rejects_topic`; `metrics`, whose items are answers
        to requests.
    waiting : int
        Windows or records that have not been delivered yet; requests that are open.
    delivered, lost : int
        Since the start. What is lost was dropped by the sink's stated policy.
    trouble : str or None
        Why nothing can be delivered at present: a sentence without its full stop. None where it can.
    failing_since : float or None
        Since when, seconds since the epoch.
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
        Every source is connected, and the engine runs.
    healthy : bool
        The engine has made progress lately: it is not stuck.
    reasons : tuple of str
        Why it is not ready or not healthy, a sentence each.
    reload_successful : bool
        Whether the last reading of the configuration was.
    reload_time : float
        When it was last read with success, seconds since the epoch.
    reports_lost : int
        Closed windows that are missing in a reports sink, or were lost while the store could not be written.
    store_failing : str or None
        Why the state cannot be saved at present; None where it can, or need not be.
    store_failures : int
        Checkpoints that could not be saved; they are tried again.
    checkpoint_time : float or None
        When the last checkpoint was saved, seconds since the epoch; None without a store.
    sinks : tuple of SinkView
        Where the output goes. One that fails makes the agent neither unready nor unhealthy.
    refit_durations : mapping of task to RefitDurations
        Since the start.
    decoder_failures : int
        Processes that decoded and were lost, since the start: the agent has decoded what they had.
    external_url : str
        The address of its page for others; ``""`` where it has none.
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
