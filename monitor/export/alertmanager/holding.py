"""The alert conditions of a view, under the names of the alert rules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from monitor.base.registry import METRICS
from monitor.base.results import Estimate
from monitor.export.rules import Alert, RuleSettings, rule_groups
from monitor.reports import features
from monitor.reports.attribution import sentence
from monitor.reports.views import AgentView, ChartView, ObjectiveState, ObjectiveView, SeriesState, SeriesView

Identity = frozenset[tuple[str, str]]
"""The labels of an alert, which identify it."""

BREACHED = "BlindsightObjectiveBreached"
AT_RISK = "BlindsightObjectiveAtRisk"
OUT_OF_CONTROL = "BlindsightOutOfControl"
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
    text : str
        A sentence with the figures.
    windows : int
        Number of closed windows of the series.
    patient : bool
        True if the condition must be true in two windows before it becomes an alert, and false in two windows
        before the alert ends; False if one window suffices.
    """

    name: str
    labels: tuple[tuple[str, str], ...]
    text: str
    windows: int
    patient: bool = True

    @property
    def identity(self) -> Identity:
        """The labels that identify the alert; they contain neither window nor value."""
        labels = {**dict(self.labels), "alertname": self.name, "severity": rule(self.name).severity}
        return frozenset(labels.items())


@cache
def rule(name: str) -> Alert:
    """Return the rule of an alert, for its severity and its summary."""
    groups = rule_groups(RuleSettings())
    return next(alert for group in groups for alert in group.alerts if alert.name == name)


def active_conditions(view: AgentView) -> Iterator[Condition]:
    """Yield the conditions that are true now; there are none for a model that is warming up."""
    lost = {
        (one.task, one.model)
        for one in view.engine.series
        if not one.group and (_untrusted(one) or one.broken_features)
    }
    for one in view.engine.series:
        if not _warming(one):
            yield from _of_series(one, model_lost_trust=bool(one.group) and (one.task, one.model) in lost)
    for task, refits in view.engine.refits.items():
        if refits.held:
            text = f"Task {task}: no refit begins: {refits.refused}."
            yield Condition(CONFLICT, (("task", task),), text, refits.number, patient=False)


def _warming(one: SeriesView) -> bool:
    """Return whether a series has no baseline yet; a series that became silent before that has no chart."""
    return one.state is SeriesState.WARMING_UP or (one.state is SeriesState.SILENT and not one.charts)


def _untrusted(one: SeriesView) -> bool:
    return one.trust is not None and not one.trust.trusted


def _of_series(one: SeriesView, model_lost_trust: bool) -> Iterator[Condition]:
    """Yield the conditions of a series, without lost trust if an alert for its model reports it."""
    who = [("task", one.task), ("model", one.model), *([("group", one.group)] if one.group else [])]
    closed = one.windows_closed
    for objective in one.objectives:
        labels = (*who, ("metric", objective.metric))
        if objective.state is ObjectiveState.BREACHED and not one.group:
            yield Condition(BREACHED, labels, _judged(one, objective), closed)
        if objective.state in (ObjectiveState.BREACHED, ObjectiveState.AT_RISK):
            yield Condition(AT_RISK, labels, _judged(one, objective), closed)
    for chart in one.charts:
        if chart.verdict.out_of_control and METRICS[chart.metric].pages:
            labels = (*who, ("metric", chart.metric))
            yield Condition(OUT_OF_CONTROL, labels, _charted(one, chart), closed)
    if one.broken_features:
        broken = features.sentence(one.broken_features)
        text = f"Model {one.model}, task {one.task}: {broken}. Estimates do not count meanwhile."
        yield Condition(BROKEN_FEATURE, tuple(who), text, closed, patient=False)
    elif _untrusted(one) and not model_lost_trust:
        text = f"{_name(one, 'accuracy')}: labels contradict the accuracy that was predicted."
        yield Condition(UNTRUSTED, (*who, ("metric", "accuracy")), text, closed, patient=False)
    if drifted := [name for name, alarm in one.feature_alarms.items() if alarm]:
        text = (
            f"Model {one.model}, task {one.task}: features drift beyond chart.features: "
            f"{', '.join(drifted)}. Estimates still count."
        )
        yield Condition(DRIFTED_FEATURE, tuple(who), text, closed, patient=False)
    if one.recalibrations is not None and one.recalibrations.held:
        text = f"Model {one.model}, task {one.task}: no recalibration begins: {one.recalibrations.refused}."
        yield Condition(CONFLICT, tuple(who), text, closed, patient=False)
    if one.state is SeriesState.SILENT and not one.group:
        text = f"Model {one.model}, task {one.task}: no answer for three times max_age_seconds."
        yield Condition(NO_WINDOW, tuple(who), text, closed, patient=False)


def _name(one: SeriesView, metric: str) -> str:
    group = f", group {one.group}" if one.group else ""
    return f"{metric} of model {one.model}, task {one.task}{group}"


def _judged(one: SeriesView, objective: ObjectiveView) -> str:
    side = "at least" if objective.is_floor else "at most"
    where = _where(one, objective.metric, "by the newest window in breach")
    return (
        f"{_name(one, objective.metric)}: the objective is {side} {objective.bound:.1%}. By the interval "
        f"pooled over the last windows, it is {str(objective.state).replace('_', ' ')}. Last window:"
        f"{_estimates(one, objective.metric)}.{where}"
    )


def _charted(one: SeriesView, chart: ChartView) -> str:
    metric = chart.metric
    broken = [
        f"{rule} {count}"
        for (charted_metric, rule), count in one.violations.items()
        if charted_metric == metric and count
    ]
    rules = f" Windows that broke a rule so far: {', '.join(broken)}." if broken else ""
    where = _where(one, metric, "by the newest window that broke a rule")
    by = "" if chart.by_labels is None else f", {chart.by_labels}"
    return f"{_name(one, metric)} is out of control{by}. Last window:{_estimates(one, metric)}.{rules}{where}"


def _where(one: SeriesView, metric: str, window: str) -> str:
    return "".join(
        f" Where it changed, {window}: {sentence(each)}."
        for each in one.attributions
        if each.metric == metric
    )


def _estimates(one: SeriesView, metric: str) -> str:
    shown = [
        f" {each.estimator} {each.result.value:.1%} ({each.result.lower:.1%} to {each.result.upper:.1%})"
        for each in one.estimates
        if each.metric == metric and isinstance(each.result, Estimate)
    ]
    return ",".join(shown) or " unknown"
