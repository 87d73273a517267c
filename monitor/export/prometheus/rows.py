"""Rows of metric families for Prometheus, from the views of models and groups."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

from monitor.base.results import RankInterval
from monitor.reports.attribution import FEATURE, Attribution, top_features, top_parts
from monitor.reports.shared import shared_views
from monitor.reports.views import AgentView, SeriesView

_SAME_FEATURES = "same_features"

Row = tuple[str, dict[str, str], float]
"""A row: key in `FAMILIES`, labels, value. In a row of a histogram, the key has a suffix such as `:bucket`.

A row of a series does not have the labels that all rows of the series share: task, model and group. The
function `shared` makes the other labels.
"""


class SharedLabels(dict[str, str]):
    """Labels that the rows of many models have in common, made once: see `shared`."""

    __hash__ = object.__hash__  # type: ignore[assignment]


@lru_cache(maxsize=10_000)
def shared(*labels: tuple[str, str]) -> SharedLabels:
    """Return labels with these names and values; for equal arguments, the same object.

    Rows of thousands of models have equal labels, so that the text of the labels is made only once.

    Examples
    --------
    >>> shared(("metric", "ece")), shared(("metric", "ece")) is shared(("metric", "ece"))
    ({'metric': 'ece'}, True)
    """
    return SharedLabels(labels)


def known(key: str, labels: dict[str, str], value: float | None) -> list[Row]:
    """Return the row of a value, or no row if the value is unknown or not finite."""
    return [] if value is None or not math.isfinite(value) else [(key, labels, value)]


def text(value: str) -> str:
    """Return a text as a label value, without lone surrogates, which would make the whole scrape fail."""
    return value if value.isascii() else value.encode("utf-8", "replace").decode()


def rank_rows(
    labels: dict[str, str], rank: RankInterval | None, chi_square: RankInterval | None
) -> list[Row]:
    """Return the rows of a model's possible ranks, by each method that has a result."""
    rows: list[Row] = []
    for key, ends in (("rank", rank), ("rank_chi_square", chi_square)):
        if ends is not None:
            rows += [(f"{key}_best", labels, ends.best), (f"{key}_worst", labels, ends.worst)]
    return rows


def feature_rows(one: SeriesView) -> Iterator[tuple[dict[str, str], float]]:
    """Yield the counts of answers that calibrations for windows cannot use, by feature and reason."""
    for (feature, reason), count in one.rows_unusable.items():
        yield {"feature": text(feature), "reason": reason}, count


def untrusted_rows(one: SeriesView) -> Iterator[tuple[dict[str, str], float]]:
    """Yield a row for each possible reason of lost trust: 1 if the reason applies now, else 0."""
    if one.trust is not None:
        yield {"reason": "labels"}, float(not one.trust.trusted)
    if one.trust_in_errors is not None:
        yield {"reason": "errors"}, float(not one.trust_in_errors.trusted)
    if one.features is not None:
        yield {"reason": "feature"}, float(bool(one.broken_features))


def feature_missing_rows(one: SeriesView) -> Iterator[tuple[dict[str, str], float]]:
    """Yield for each feature the share of rows without the feature."""
    for name, rates in one.feature_rates.items():
        yield {"feature": text(name)}, rates.missing


def feature_unseen_rows(one: SeriesView) -> Iterator[tuple[dict[str, str], float]]:
    """Yield for each feature the share of rows with values that do not occur in the reference."""
    for name, rates in one.feature_rates.items():
        if rates.unseen is not None:
            yield {"feature": text(name)}, rates.unseen


def feature_distance_rows(one: SeriesView) -> Iterator[tuple[dict[str, str], float]]:
    """Yield for each feature the distance of its distribution from the reference."""
    for name, rates in one.feature_rates.items():
        if rates.drift is not None:
            yield {"feature": text(name)}, rates.drift.distance


def feature_threshold_rows(one: SeriesView) -> Iterator[tuple[dict[str, str], float]]:
    """Yield the threshold of each feature's distance, which chance rarely exceeds."""
    for name, rates in one.feature_rates.items():
        if rates.drift is not None:
            yield {"feature": text(name)}, rates.drift.distance_threshold


def feature_broken_rows(one: SeriesView) -> Iterator[tuple[dict[str, str], float]]:
    """Yield for each fault of a broken feature the share of rows with the fault."""
    for each in one.broken_features:
        yield {"feature": text(each.feature), "fault": each.fault}, each.ratio


def feature_drift_alarm_rows(one: SeriesView) -> Iterator[tuple[dict[str, str], float]]:
    """Yield for each feature 1 if its drift raises an alarm, else 0."""
    for name, alarm in one.feature_alarms.items():
        yield {"feature": text(name)}, float(alarm)


def alarm_rows(one: SeriesView) -> Iterator[tuple[dict[str, str], float]]:
    """Yield the change of each metric with an active alarm or improvement, or a breached objective.

    It is the change in the newest window that broke a rule or whose objective is breached. Changes of metrics
    of errors are no ratios, so they are left out.
    """
    for each in _of_ratios(one):
        yield {"metric": each.metric}, each.change


def alarm_part_rows(one: SeriesView) -> Iterator[tuple[dict[str, str], float]]:
    """Yield the parts that contribute most to each change in `alarm_rows`, by metric.

    The parts are two groups, classes or ranges of confidence, and two features. If a large part of the change
    is not explained by features, the unexplained part is included too.
    """
    for each in _of_ratios(one):
        # A group may be named `feature`, and a label must not come twice.
        for part, change in (_feature_parts(each) | {p.part: p.change for p in top_parts(each)}).items():
            yield {"metric": each.metric, "part": text(part)}, change


def _of_ratios(one: SeriesView) -> Iterator[Attribution]:
    return (each for each in one.attributions if each.by != FEATURE)


def shared_alarm_rows(view: AgentView) -> Iterator[tuple[dict[str, str], float]]:
    """Yield for each task and metric with three comparable models 1 if they share a change, else 0."""
    for each in shared_views(view.engine.series):
        yield {"task": text(each.task), "metric": each.metric}, float(each.alarm)


def shared_breach_rows(view: AgentView) -> Iterator[tuple[dict[str, str], float]]:
    """Yield likewise 1 if the objective of a model that shares the change is breached, else 0."""
    for each in shared_views(view.engine.series):
        yield {"task": text(each.task), "metric": each.metric}, float(bool(each.breached))


def shared_alarm_change_rows(view: AgentView) -> Iterator[tuple[dict[str, str], float]]:
    """Yield the change of each model that shares a change with the others of its task."""
    for each in shared_views(view.engine.series):
        for model, change in each.changes:
            if change is not None:
                yield {"task": text(each.task), "model": text(model), "metric": each.metric}, change


def _feature_parts(attribution: Attribution) -> dict[str, float]:
    split = attribution.features
    if split is None:
        return {}
    parts = {f"feature={part.feature}": part.change for part in top_features(split)}
    return parts | ({_SAME_FEATURES: split.remainder} if split.remainder_named else {})
