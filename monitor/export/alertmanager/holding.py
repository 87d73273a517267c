"""The alerts on models that are due in a view, under the names of the rules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from monitor.base.registry import METRICS
from monitor.base.results import Estimate
from monitor.export.rules import Alert, RuleSettings, rule_groups
from monitor.reports.attribution import sentence
from monitor.reports.views import AgentView, ChartView, ObjectiveState, ObjectiveView, SeriesState, SeriesView

Identity = frozenset[tuple[str, str]]
"""The labels of an alert; the same alert has the same ones."""

BREACHED = "BlindsightObjectiveBreached"
AT_RISK = "BlindsightObjectiveAtRisk"
OUT_OF_CONTROL = "BlindsightOutOfControl"
UNTRUSTED = "BlindsightEstimateUntrusted"
CONFLICT = "BlindsightLabelsConflict"
NO_WINDOW = "BlindsightNoWindowClosed"


@dataclass(frozen=True, slots=True)
class Condition:
    """Something that holds now.

    Parameters
    ----------
    name : str
        The alert's, as in the rules.
    labels : tuple of (str, str)
        Whom it is about.
    text : str
        How much; a sentence.
    windows : int
        Windows of that series that have closed.
    patient : bool
        It must hold in two windows before it is an alert, and be gone for two before it ends.
    """

    name: str
    labels: tuple[tuple[str, str], ...]
    text: str
    windows: int
    patient: bool = True

    @property
    def identity(self) -> Identity:
        """The labels that identify the alert: neither window nor value."""
        labels = {**dict(self.labels), "alertname": self.name, "severity": rule(self.name).severity}
        return frozenset(labels.items())


@cache
def rule(name: str) -> Alert:
    """The rule of this name, for its severity and its summary."""
    groups = rule_groups(RuleSettings())
    return next(alert for group in groups for alert in group.alerts if alert.name == name)


def holding(view: AgentView) -> Iterator[Condition]:
    """The conditions that are true; none for a model that is warming up."""
    lost = {(one.task, one.model) for one in view.engine.series if not one.group and _untrusted(one)}
    for one in view.engine.series:
        if not _warming(one):
            yield from _of_series(one, told=bool(one.group) and (one.task, one.model) in lost)
    for task, refits in view.engine.refits.items():
        if refits.held:
            text = f"Task {task}: no refit begins: {refits.refused}."
            yield Condition(CONFLICT, (("task", task),), text, refits.number, patient=False)


def _warming(one: SeriesView) -> bool:
    """Before there is a baseline; what fell silent meanwhile has had no chart yet."""
    return one.state is SeriesState.WARMING_UP or (one.state is SeriesState.SILENT and not one.charts)


def _untrusted(one: SeriesView) -> bool:
    return one.trust is not None and not one.trust.trusted


def _of_series(one: SeriesView, told: bool) -> Iterator[Condition]:
    """Those of a series; `told`: its model's lost trust stands for its own."""
    who = [("task", one.task), ("model", one.model), *([("group", one.group)] if one.group else [])]
    closed = one.windows_closed
    for objective in one.objectives:
        of = (*who, ("metric", objective.metric))
        if objective.state is ObjectiveState.BREACHED and not one.group:
            yield Condition(BREACHED, of, _judged(one, objective), closed)
        if objective.state in (ObjectiveState.BREACHED, ObjectiveState.AT_RISK):
            yield Condition(AT_RISK, of, _judged(one, objective), closed)
    for chart in one.charts:
        if chart.verdict.out_of_control and METRICS[chart.metric].pages:
            of = (*who, ("metric", chart.metric))
            yield Condition(OUT_OF_CONTROL, of, _charted(one, chart), closed)
    if _untrusted(one) and not told:
        text = f"{_name(one, 'accuracy')}: labels contradict the accuracy that was predicted."
        yield Condition(UNTRUSTED, (*who, ("metric", "accuracy")), text, closed, patient=False)
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
    return (
        f"{_name(one, objective.metric)}: the objective is {side} {objective.bound:.1%}. By the interval "
        f"pooled over the last windows, it is {str(objective.state).replace('_', ' ')}. Last window:"
        f"{_estimates(one, objective.metric)}."
    )


def _charted(one: SeriesView, chart: ChartView) -> str:
    metric = chart.metric
    broken = [f"{rule} {count}" for (of, rule), count in one.violations.items() if of == metric and count]
    rules = f" Windows that broke a rule so far: {', '.join(broken)}." if broken else ""
    where = "".join(
        f" Where it changed, by the newest window that broke a rule: {sentence(each)}."
        for each in one.attributions
        if each.metric == metric
    )
    by = "" if chart.by_labels is None else f", {chart.by_labels}"
    return f"{_name(one, metric)} is out of control{by}. Last window:{_estimates(one, metric)}.{rules}{where}"


def _estimates(one: SeriesView, metric: str) -> str:
    shown = [
        f" {each.estimator} {each.result.value:.1%} ({each.result.lower:.1%} to {each.result.upper:.1%})"
        for each in one.estimates
        if each.metric == metric and isinstance(each.result, Estimate)
    ]
    return ",".join(shown) or " unknown"
