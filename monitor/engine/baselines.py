"""The baselines of a series' charts, from windows of its reference or of the stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from monitor.base.records import Ints
from monitor.base.results import Estimate
from monitor.base.zones import time_zone
from monitor.config.task import Task
from monitor.engine.attribution import BaselineParts, PartRows, add_parts
from monitor.engine.error_estimates import ErrorEstimator
from monitor.engine.evaluate import EstimationRequest, Evaluation, evaluate
from monitor.engine.label_alarm import LabelBaseline
from monitor.engine.reference import Reference
from monitor.stats.charts.base import Baseline
from monitor.stats.charts.season import HourPoint, hour_number
from monitor.stats.features.ratio import evenly
from monitor.stats.histograms import CalibrationCurve

FEWEST_WINDOWS = 5
"""The least number of reference windows for a chart: fewer do not show how much windows vary."""

MOST_ERROR_WINDOWS = 100
"""The largest number of reference windows whose errors are estimated, because each takes some 20 ms."""


def reference_windows(
    method: str, reference: Reference, group: str, task: Task, positive: int, errors: ErrorEstimator
) -> list[Evaluation]:
    """Divide the reference, or one of its groups, into windows of the configured size, and evaluate them.

    The scores are calibrated by `Reference.cross_fitted`, or by a separate calibration for each window if the
    task is configured so. The last rows are left out if they do not fill a window. The estimated accuracies
    have no interval. `errors` estimates the metrics of errors as in a window of the stream, in at most
    `MOST_ERROR_WINDOWS` evenly spaced windows, or in all windows if the task has a season.

    Returns
    -------
    list of Evaluation
        In order of time; empty if there are fewer than `FEWEST_WINDOWS` windows.
    """
    cuts = _cuts(reference, group, task.window.size)
    if not cuts:
        return []
    calibrated = reference.cross_fitted(task.calibration.reference_method if task.adapts else method)
    requests = [
        EstimationRequest(
            scores=reference.scores[cut],
            predicted=reference.predicted[cut],
            calibrated=None if calibrated is None else calibrated[cut],
            metrics=task.metrics,
            positive=positive,
            level=task.level,
            seed=number,
            average=task.charted_average,
        )
        for number, cut in enumerate(cuts)
    ]
    if task.adapts:
        outside = reference.covariates_outside(cuts, task.covariates)
        adapted_rows = zip(requests, outside, cuts, strict=True)
        requests = [each.adapted_to(others, reference.features[cut]) for each, others, cut in adapted_rows]
    evaluations = evaluate(requests, accuracy_interval=False)
    if not task.error_units:
        return evaluations
    columns = np.column_stack((reference.features, reference.numbers[:, :1]))
    most = MOST_ERROR_WINDOWS if task.chart.season is None else len(cuts)
    for number in evenly(len(cuts), most).tolist():
        losses = errors.means(columns[cuts[number]])
        evaluations[number] = replace(evaluations[number], losses=losses)
    return evaluations


def _cuts(reference: Reference, group: str, size: int) -> list[Ints]:
    """Return the rows of each window; an empty list if there are too few."""
    every = np.arange(len(reference.labels))
    rows = reference.groups.get(group, every[:0]) if group else every
    if len(rows) < FEWEST_WINDOWS * size:
        return []
    return [rows[start : start + size] for start in range(0, len(rows) - size + 1, size)]


def reference_curve(windows: Sequence[Evaluation], reference: Reference, size: int) -> CalibrationCurve:
    """Return the calibration curve of the windows of `reference_windows`, whose size is `size` rows."""
    curve, right = CalibrationCurve(), reference.labels == reference.predicted
    for window, cut in zip(windows, _cuts(reference, "", size), strict=True):
        curve = curve.plus(window.confidence, right[cut])
    return curve


def reference_by_labels(reference: Reference, group: str, size: int) -> LabelBaseline | None:
    """Return the baseline of the labelled accuracy from the reference's windows of `size` rows.

    The result is None if there are fewer than `FEWEST_WINDOWS` windows.
    """
    if not (cuts := _cuts(reference, group, size)):
        return None
    right = reference.labels == reference.predicted
    return LabelBaseline.from_windows([float(right[cut].mean()) for cut in cuts], [size] * len(cuts))


def reference_parts(
    windows: Sequence[Evaluation], reference: Reference, group: str, task: Task
) -> dict[str, BaselineParts]:
    """Return the sums of each metric over each part (group or class) of the reference's windows.

    Parameters
    ----------
    windows : sequence of Evaluation
        The result of `reference_windows`.
    reference : Reference
    group : str
        The name of a group; ``""`` for the model.
    task : Task
    """
    names = [name for name in reference.groups if not group and name.partition("=")[0] in task.groups]
    codes = np.full((len(reference.labels), 0 if group else len(task.groups)), -1)
    for number, name in enumerate(names):
        codes[reference.groups[name], task.groups.index(name.partition("=")[0])] = number
    parts: dict[str, BaselineParts] = {}
    for cut, window in zip(_cuts(reference, group, task.window.size), windows, strict=False):
        rows = PartRows(window.confidence, reference.predicted[cut], codes[cut], names.__getitem__, task)
        for metric, estimate in window.estimates.items():
            if isinstance(estimate, Estimate):
                add_parts(parts, metric, window, rows)
    return parts


def reference_hours(
    windows: Sequence[Evaluation], reference: Reference, group: str, task: Task
) -> dict[str, list[HourPoint]]:
    """Return the windows of a reference by hour, for each metric; empty if the task has no season.

    Parameters
    ----------
    windows : sequence of Evaluation
        The judged estimates of the windows of `reference_windows`.
    reference : Reference
    group : str
        The name of a group; ``""`` for the model.
    task : Task
    """
    if task.chart.season is None:
        return {}
    zone = time_zone(task.chart.time_zone)
    hours: dict[str, dict[int, HourPoint]] = {}
    for cut, window in zip(_cuts(reference, group, task.window.size), windows, strict=False):
        hour = hour_number(float(reference.time[cut[len(cut) // 2]]), zone)
        for metric, estimate in window.estimates.items():
            if isinstance(estimate, Estimate):
                own = hours.setdefault(metric, {})
                first = HourPoint.from_window(hour, estimate.value, estimate.n, window.row_sd[metric])
                own[hour] = own[hour].plus(estimate.value, estimate.n) if hour in own else first
    return {metric: list(own.values()) for metric, own in hours.items()}


class Point(NamedTuple):
    """One window from which a baseline is made: its estimate, its rows, the standard deviation of a row."""

    value: float
    size: int
    row_sd: float


def baseline(points: Sequence[Point]) -> Baseline:
    """Return the baseline of a chart from several windows."""
    values, sizes, row_sd = np.array(points, dtype=np.float64).T
    return Baseline(values, sizes, float(np.sqrt(np.average(row_sd**2, weights=sizes))))


def baselines(evaluations: Sequence[Evaluation]) -> dict[str, Baseline]:
    """Return the baseline of each metric's chart from the estimates of several windows.

    Metrics with estimates in fewer than `FEWEST_WINDOWS` windows are left out.

    Parameters
    ----------
    evaluations : sequence of Evaluation
        The estimates of the windows.
    """
    points: dict[str, list[Point]] = {}
    for evaluation in evaluations:
        for metric, estimate in evaluation.estimates.items():
            if isinstance(estimate, Estimate):
                point = Point(estimate.value, estimate.n, evaluation.row_sd[metric])
                points.setdefault(metric, []).append(point)
    return {metric: baseline(known) for metric, known in points.items() if len(known) >= FEWEST_WINDOWS}
