"""The state of a model on the page: its worst state, the metric that needs attention, and the headline."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from markupsafe import Markup

from monitor.base.results import Estimate, Result
from monitor.export.alertmanager.holding import (
    AT_RISK,
    BREACHED,
    BROKEN_FEATURE,
    NO_WINDOW,
    OUT_OF_CONTROL,
    UNTRUSTED,
)
from monitor.export.page.words import tone
from monitor.reports.statements import count, is_unchecked, shown_estimate
from monitor.reports.views import ObjectiveState, SeriesState, SeriesView
from monitor.reports.window_report import finite


class WorstState(IntEnum):
    """The states of a model on the page, from the worst to the best.

    The page shows the worst that applies.
    """

    UNTRUSTED = 0
    BREACHED = 1
    OUT_OF_CONTROL = 2
    SILENT = 3
    AT_RISK = 4
    WARMING_UP = 5
    IN_CONTROL = 6

    @property
    def tone(self) -> str:
        """The CSS class that gives the state's words their colour."""
        if self <= WorstState.OUT_OF_CONTROL:
            return "bad"
        return {WorstState.WARMING_UP: "soft", WorstState.IN_CONTROL: "good"}.get(self, "warn")

    @property
    def words(self) -> str:
        """The name of the state in plain words."""
        return _WORDS[self]


_WORDS: Mapping[WorstState, str] = {
    WorstState.UNTRUSTED: "untrusted",
    WorstState.BREACHED: "objective breached",
    WorstState.OUT_OF_CONTROL: "out of control",
    WorstState.SILENT: "silent",
    WorstState.AT_RISK: "objective at risk",
    WorstState.WARMING_UP: "warming up",
    WorstState.IN_CONTROL: "in control",
}
_BROKEN = ("is untrusted: a feature is broken", "are untrusted: features are broken")
_BROKEN_AND_CONTRADICTED = (
    "is untrusted: a feature is broken, and labels contradict its estimate",
    "are untrusted: features are broken, and labels contradict estimates",
)
_HEADLINES: Mapping[WorstState, tuple[str, str]] = {
    WorstState.UNTRUSTED: (
        "is untrusted: labels contradict its estimate",
        "are untrusted: labels contradict them",
    ),
    WorstState.BREACHED: ("misses its objective", "miss their objectives"),
    WorstState.OUT_OF_CONTROL: ("is out of control", "are out of control"),
    WorstState.SILENT: ("is silent", "are silent"),
    WorstState.AT_RISK: ("may miss its objective", "may miss their objectives"),
    WorstState.WARMING_UP: ("is warming up", "are warming up"),
    WorstState.IN_CONTROL: ("is in control", "are in control"),
}


def worst_state(one: SeriesView) -> WorstState:
    """Return the worst state of a model or group, by its trust, objectives, charts and missing answers."""
    states = {objective.state for objective in one.objectives}
    if one.state is SeriesState.UNTRUSTED:
        return WorstState.UNTRUSTED
    if ObjectiveState.BREACHED in states:
        return WorstState.BREACHED
    if one.state in (SeriesState.OUT_OF_CONTROL, SeriesState.SILENT):
        return WorstState[one.state.name]
    return WorstState.AT_RISK if ObjectiveState.AT_RISK in states else WorstState[one.state.name]


RUNBOOKS: dict[WorstState, str] = {
    WorstState.UNTRUSTED: UNTRUSTED,
    WorstState.BREACHED: BREACHED,
    WorstState.OUT_OF_CONTROL: OUT_OF_CONTROL,
    WorstState.SILENT: NO_WINDOW,
    WorstState.AT_RISK: AT_RISK,
}
"""The runbook of each state that needs attention."""


def runbook_of(one: SeriesView) -> str:
    """Return the name of the runbook for a model's worst state; empty if nothing needs attention."""
    state = worst_state(one)
    if one.broken_features and state is WorstState.UNTRUSTED:
        return BROKEN_FEATURE
    return RUNBOOKS.get(state, "")


def urgency(one: SeriesView) -> tuple[WorstState, float]:
    """Return the key that sorts models and groups, the worst first.

    Within one state, the order follows the distance of the worst metric from its objective, and the farthest
    on the wrong side is first. Series without an objective or without an estimate are last.
    """
    metric = worst_metric(one)
    objective = next((each for each in one.objectives if each.metric == metric), None)
    result = judged(one, metric)
    if objective is None or not isinstance(result, Estimate):
        return worst_state(one), math.inf
    above = result.value - objective.bound
    return worst_state(one), above if objective.is_floor else -above


def worst_word(one: SeriesView) -> Markup:
    """Return the worst state of a model or group as coloured HTML text."""
    now = worst_state(one)
    return tone(now.words, now.tone)


class Headline(NamedTuple):
    """A summary of models: the worst state, a sentence on it, and the counts of the other states in words."""

    worst: WorstState
    words: str
    rest: str


def headline(models: Sequence[SeriesView]) -> Headline:
    """Return the headline of one or more models."""
    often = Counter(map(worst_state, models))
    worst = min(often)
    many = often[worst]
    words = f"{count(many, 'model')} {_predicate(worst, models)[many > 1]}"
    stable = all(one.state is SeriesState.IN_CONTROL for one in models if worst_state(one) is worst)
    if worst is WorstState.BREACHED and stable:
        words += "; its chart is stable" if many == 1 else "; their charts are stable"
    if any(one.lost_trust_in_errors is not None for one in models):
        words += "; labels contradict estimated errors"
    rest = ", ".join(f"{number:,} {state.words}" for state, number in sorted(often.items())[1:])
    return Headline(worst, f"{words}.", f"{rest}." if rest else "")


def _predicate(worst: WorstState, models: Sequence[SeriesView]) -> tuple[str, str]:
    """Return the predicate of the headline for one model in the worst state, and for several models."""
    if worst is WorstState.UNTRUSTED:
        untrusted = [one for one in models if one.state is SeriesState.UNTRUSTED]
        if any(one.broken_features for one in untrusted):
            both = any(one.contradicted or not one.broken_features for one in untrusted)
            return _BROKEN_AND_CONTRADICTED if both else _BROKEN
    return _fine(models) or _HEADLINES[worst]


def _fine(models: Sequence[SeriesView]) -> tuple[str, str] | None:
    """Return the sentence on models that are all in control, unchanged and meet all of their objectives."""
    charts = [chart for one in models for chart in one.charts]
    objectives = [objective for one in models for objective in one.objectives]
    if any(one.state is not SeriesState.IN_CONTROL or any(one.feature_alarms.values()) for one in models):
        return None
    if any(one.recalibrations is not None and one.recalibrations.held for one in models):
        return None
    if any(one.lost_trust_in_errors is not None for one in models):
        return None
    if any(chart.verdict.improved or chart.confidences_moved for chart in charts):
        return None
    if any(objective.state is not ObjectiveState.MET for objective in objectives):
        return None
    if any(is_unchecked(one, objective.metric) for one in models for objective in one.objectives):
        return None
    met = ("", "") if not objectives else (", objective met", ", objectives met")
    return f"is fine: nothing has changed{met[0]}", f"are fine: nothing has changed{met[1]}"


def not_meaningful(one: SeriesView) -> str:
    """Return the warning on the chart of an untrusted model: until when the chart is not meaningful."""
    if not one.broken_features:
        return "not meaningful until labels agree again"
    more = " or labels contradict the estimate" if one.contradicted else ""
    return f"not meaningful while a feature is broken{more}"


def worst_metric(one: SeriesView) -> str:
    """Return the name of the metric that needs attention most, or of the first metric if none does.

    A metric with a breached objective comes first, then one with an alarm, then one with an objective at
    risk. The result is "" for a series without metrics.
    """
    alarmed = [chart.metric for chart in one.charts if chart.verdict.out_of_control]
    first = [each.metric for each in one.estimates] + [each.metric for each in one.charts]
    by_state = [
        [each.metric for each in one.objectives if each.state is state]
        for state in (ObjectiveState.BREACHED, ObjectiveState.AT_RISK)
    ]
    ranked = [*by_state[0], *alarmed, *by_state[1], *first]
    return next(iter(ranked), "")


def judged(one: SeriesView, metric: str) -> Result | None:
    """Return the result of the estimate that the page shows first, or None if there is no estimate."""
    estimate = shown_estimate(one, metric)
    return None if estimate is None else finite(estimate.result)
