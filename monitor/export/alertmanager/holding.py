"""The alert conditions of a view, under the names of the alert rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from monitor.base.registry import METRICS
from monitor.export.rules import RuleSettings, rule_groups
from monitor.reports.shared import SharedView, shared_views
from monitor.reports.statements import (
    Statement,
    describe_alarm,
    describe_broken_features,
    describe_distrust,
    describe_distrust_in_errors,
    describe_drifted_features,
    describe_held_labels,
    describe_objective,
    describe_shared,
    describe_silence,
    subject,
)
from monitor.reports.trust import ERRORS_TESTED
from monitor.reports.views import AgentView, ObjectiveState, SeriesState, SeriesView

Identity = frozenset[tuple[str, str]]
"""The labels of an alert, which identify it."""

BREACHED = "BlindsightObjectiveBreached"
AT_RISK = "BlindsightObjectiveAtRisk"
OUT_OF_CONTROL = "BlindsightOutOfControl"
SHARED = "BlindsightSharedChange"
MUTES_WARNINGS, MUTES_CRITICAL = "mutes-warnings", "mutes-critical"
"""The severities of `SHARED` with a model: it notifies nobody, and inhibits alerts of this model alone."""
UNTRUSTED = "BlindsightEstimateUntrusted"
BROKEN_FEATURE = "BlindsightFeatureBroken"
DRIFTED_FEATURE = "BlindsightFeatureDrifted"
CONFLICT = "BlindsightLabelsConflict"
NO_WINDOW = "BlindsightNoWindowClosed"


@dataclass(frozen=True, slots=True)
class Condition:
    """An alert condition that is true now.

    Parameters
    ----------
    name : str
        Name of the alert, as in the rules.
    labels : tuple of (str, str)
        The task, and the model, group and metric if the condition concerns them.
    statement : Statement
        The sentences of the alert, with the newest figures.
    windows : int
        Number of closed windows of the series, or of the task: see `closed_windows`.
    patient : bool
        True if the condition must be true in two windows before it becomes an alert, and false in two windows
        before the alert ends. False if one window is enough.
    at_once : bool
        True if a patient condition becomes an alert at once, and is patient only about its end.
    severity : str
        The severity, if rules of this name have several; by default that of the only rule.
    """

    name: str
    labels: tuple[tuple[str, str], ...]
    statement: Statement
    windows: int
    patient: bool = True
    at_once: bool = False
    severity: str = ""

    @property
    def identity(self) -> Identity:
        """The labels that identify the alert. They do not contain the window or the value."""
        severity = self.severity or severities()[self.name]
        labels = {**dict(self.labels), "alertname": self.name, "severity": severity}
        return frozenset(labels.items())


@cache
def severities() -> dict[str, str]:
    """Return the severity of each alert on models by its name, as in the alert rules."""
    return {alert.name: alert.severity for group in rule_groups(RuleSettings()) for alert in group.alerts}


def active_conditions(view: AgentView) -> Iterator[Condition]:
    """Yield the conditions that are true now. A model that is warming up has none."""
    lost = {(one.task, one.model): _lost_metrics(one) for one in view.engine.series if not one.group}
    for one in view.engine.series:
        if not _warming(one):
            yield from _of_series(one, lost.get((one.task, one.model), ()) if one.group else ())
    closed = closed_windows(view)
    for shared in shared_views(view.engine.series):
        yield from _of_shared(shared, closed[shared.task, "", ""])
    for task, refits in view.engine.refits.items():
        if refits.held:
            conflict = describe_held_labels(task, refits.refused)
            yield Condition(CONFLICT, (("task", task),), conflict, refits.number, patient=False)


def closed_windows(view: AgentView) -> Mapping[tuple[str, str, str], int]:
    """Return the number of closed windows by task, model and group.

    For a task alone, with an empty model and group, it is the largest number of its models.
    """
    closed = {(one.task, one.model, one.group): one.windows_closed for one in view.engine.series}
    for (task, _, _), windows in list(closed.items()):
        closed[task, "", ""] = max(windows, closed.get((task, "", ""), 0))
    return closed


def _of_shared(shared: SharedView, windows: int) -> Iterator[Condition]:
    """Yield the alerts of a shared change, and for each of its models the one that inhibits its own alerts.

    The warning is at once, because it must precede the warnings of the models. The critical alert waits as
    long as `BREACHED`, and Alertmanager takes both of one push together.
    """
    statement = describe_shared(shared)
    of_task, of_metric = ("task", shared.task), ("metric", shared.metric)
    for on, severity, mute, at_once in (
        (shared.alarm, "warning", MUTES_WARNINGS, True),
        (bool(shared.breached), "critical", MUTES_CRITICAL, False),
    ):
        if on:
            labels = (of_task, of_metric)
            yield Condition(SHARED, labels, statement, windows, at_once=at_once, severity=severity)
            for model, _ in shared.changes:
                labels_of_model = (of_task, ("model", model), of_metric)
                yield Condition(SHARED, labels_of_model, statement, windows, at_once=at_once, severity=mute)


def _warming(one: SeriesView) -> bool:
    """Return whether a series has no baseline yet; a series that became silent before that has no chart."""
    return one.state is SeriesState.WARMING_UP or (one.state is SeriesState.SILENT and not one.charts)


def _lost_metrics(one: SeriesView) -> tuple[str, ...]:
    """Return the metrics of a series that are not trusted, of those that labels test."""
    share = (one.share,) if one.contradicted or one.broken_features else ()
    if one.broken_features:
        return share + ERRORS_TESTED
    lost = one.lost_trust_in_errors
    return share if lost is None else (*share, *(each.metric for each in lost.lost))


def _of_series(one: SeriesView, reported: tuple[str, ...]) -> Iterator[Condition]:
    """Yield the conditions of a series.

    Lost trust in the metrics `reported` is left out, because an alert for the whole model reports it.
    """
    who = (("task", one.task), ("model", one.model), *([("group", one.group)] if one.group else []))
    closed = one.windows_closed
    for objective in one.objectives:
        labels = (*who, ("metric", objective.metric))
        if objective.state is ObjectiveState.BREACHED and not one.group:
            yield Condition(BREACHED, labels, describe_objective(one, objective), closed)
        if objective.state in (ObjectiveState.BREACHED, ObjectiveState.AT_RISK):
            yield Condition(AT_RISK, labels, describe_objective(one, objective), closed)
    for chart in one.charts:
        if chart.verdict.out_of_control and METRICS[chart.metric].pages:
            labels = (*who, ("metric", chart.metric))
            yield Condition(OUT_OF_CONTROL, labels, describe_alarm(one, chart), closed)
    if one.broken_features:
        yield Condition(BROKEN_FEATURE, who, describe_broken_features(one), closed, patient=False)
    elif one.contradicted and one.share not in reported:
        labels = (*who, ("metric", one.share))
        yield Condition(UNTRUSTED, labels, describe_distrust(one), closed, patient=False)
    lost = one.lost_trust_in_errors
    for each in lost.lost if lost is not None and not one.broken_features else ():
        if each.metric not in reported:
            labels = (*who, ("metric", each.metric))
            yield Condition(UNTRUSTED, labels, describe_distrust_in_errors(one, each), closed, patient=False)
    if any(one.feature_alarms.values()):
        yield Condition(DRIFTED_FEATURE, who, describe_drifted_features(one), closed, patient=False)
    if one.recalibrations is not None and one.recalibrations.held:
        conflict = describe_held_labels(subject(one), one.recalibrations.refused)
        yield Condition(CONFLICT, who, conflict, closed, patient=False)
    if one.state is SeriesState.SILENT and not one.group:
        yield Condition(NO_WINDOW, who, describe_silence(one), closed, patient=False)
