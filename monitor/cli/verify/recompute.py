"""The recomputation of a window from its rows, and its comparison with the reported line."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from monitor.base.codec import plain, restored
from monitor.base.names import AVERAGE_CONFIDENCE, DOUBLY_ROBUST
from monitor.base.records import Ints
from monitor.base.results import Estimate
from monitor.cli.verify.rows import Rows
from monitor.config.root import Task
from monitor.config.task import COVARIATES
from monitor.engine.error_estimates import ErrorEstimator
from monitor.engine.evaluate import EstimationRequest, Evaluation, calibrate, evaluate
from monitor.engine.reference import Reference
from monitor.engine.series import SeriesSettings
from monitor.reports.views import MetricEstimate
from monitor.reports.window_report import WindowLine, WrittenEstimate, rfc3339, rounded, significant
from monitor.reports.window_view import PREDICTIVE
from monitor.stats.calibration import calibration_from_snapshot
from monitor.stats.calibration.base import Calibration
from monitor.stats.calibration.none import Uncalibrated
from monitor.stats.estimate.count_ratio import MOSTLY_UNDEFINED
from monitor.stats.estimate.predictive import Predictive

_BY_LABELS = ("labels", "lower", "upper")
"""The fields of an estimate that also depend on rows of other windows, if labels moved the interval."""

_ROUNDED = 0.5e-6
"""Half a unit of the last decimal of the numbers in a line."""

_LAST_BITS = 1e-9
"""The tolerance for the arithmetic of another processor.

Sums, exponentials and products differ between processors in the last bits: by 6e-16 where measured
(`python -m tests.fidelity.other_arithmetic estimates`). Every metric lies from 0 to 1.
"""

_SINGLE_PRECISION = 1e-7
"""The tolerance for the ends of a calibration error's interval. Single precision can shift them by 7e-9."""

_LAST_DECIMAL = 1e-6
"""The tolerance for rows of several partitions. Their order may differ, so a sum may round differently."""

_FITTED = 1e-6
"""The relative tolerance for metrics of errors. Their weights come from a fit that iterates."""

_EDGE = 2e-12
"""A change of the level that moves the probability in each tail by 1e-12.

This is more than the last bits can move a cumulative probability. If the end of an interval is a count whose
probability lies within this distance, the next count is also accepted as the end.
"""

_CALIBRATION_ERRORS = ("ece", "class_ece")


class Calibrations:
    """The calibrations in the store, by series.

    Parameters
    ----------
    saved : mapping of (task, model, group) to state
        The stored state of each series' calibration.
    references : mapping of str to mapping of str to Reference, optional
        The references by task and model, for the tasks in which each window has its own calibration.
    """

    def __init__(
        self,
        saved: Mapping[tuple[str, str, str], Mapping[str, Any]],
        references: Mapping[str, Mapping[str, Reference]] | None = None,
    ) -> None:
        self._saved = saved
        self._references = references or {}
        self._built: dict[tuple[str, str, str], Calibration] = {}

    def why_not(self, line: WindowLine) -> str:
        """Return the reason why the calibration of a window is not available; ``""`` if it is available."""
        wanted = line.calibration.version
        if not wanted and not _predictive(line):
            return ""
        saved = self._saved.get(line.series)
        if saved is None:
            return "its series is no longer in the store"
        by_window = saved.get("reference")
        method = COVARIATES if by_window else saved["fit"]["method"]
        if (saved["version"], method) != (wanted, line.calibration.method):
            return f"its calibration, version {wanted}, is no longer in the store"
        if _predictive(line) and not saved.get("predictive"):
            return "what its predictive intervals rest on is no longer in the store"
        if by_window:
            reference = self.reference(line)
            if reference is None or reference.fingerprint != by_window:
                return "its reference is not the one that reference.path names now"
        return ""

    def reference(self, line: WindowLine) -> Reference | None:
        """Return the reference on which the calibration of a single window is fitted.

        Return None if the window's calibration is not fitted for this window alone.
        """
        if line.calibration.method != COVARIATES:
            return None
        return self._references.get(line.task, {}).get(line.model)

    def of(self, line: WindowLine, task: Task) -> Calibration:
        """Return the calibration that the report of a window names."""
        if not line.calibration.version:
            return Uncalibrated(max(len(task.classes), 1))
        if line.series not in self._built:
            self._built[line.series] = calibration_from_snapshot(self._saved[line.series]["fit"])
        return self._built[line.series]

    def predictive(self, line: WindowLine) -> Predictive | None:
        """Return the model of errors from which a window's predictive intervals were computed.

        Return None if the intervals are exact, that is, cover chance alone, or if the store has no model.
        """
        saved = self._saved.get(line.series, {}).get("predictive")
        return restored(saved, Predictive) if saved and _predictive(line) else None


def _predictive(line: WindowLine) -> bool:
    return line.calibration.interval == PREDICTIVE


def compared(
    line: WindowLine,
    task: Task,
    rows: Rows,
    calibration: Calibration,
    predictive: Predictive | None = None,
    reference: Reference | None = None,
    errors: ErrorEstimator | None = None,
) -> list[tuple[str, str, str]]:
    """Recompute a window. Return the name, reported value and recomputed value of each field that differs.

    The estimates of the average confidence and the metrics of errors without labels are recomputed. Ends of
    intervals are not compared if labels moved the interval; see `informed`.

    Parameters
    ----------
    line : WindowLine
    task : Task
    rows : Rows
        The rows at the reported positions, without rows whose id an earlier row used.
    calibration : Calibration
        The calibration that the line names.
    predictive : Predictive or None
        The fit of predictive intervals; None if the line has exact intervals.
    reference : Reference or None
        The reference on which the window's own calibration is fitted; None if the calibration is not fitted
        for this window alone.
    errors : ErrorEstimator, optional
        The estimator of the metrics of errors. If None, these metrics are not recomputed.
    """
    if len(rows) != line.size:
        return [("size", str(line.size), str(len(rows)))]
    differences = _times(line, rows) + _positions(line, rows)
    recomputed = _Recomputed(line, task, rows, calibration, predictive, reference)
    for reported in line.estimates:
        if reported.estimator == AVERAGE_CONFIDENCE:
            differences += recomputed.differing(reported)
    return differences + (
        [] if errors is None else _differing_errors(line, errors.estimates(errors.means(rows.features)))
    )


def _differing_errors(line: WindowLine, recomputed: Sequence[MetricEstimate]) -> list[tuple[str, str, str]]:
    """Return the fields of the metrics of errors that differ. Metrics that are not configured are skipped."""
    known = {each.metric: plain(WrittenEstimate.from_estimate(each, significant)) for each in recomputed}
    differences = []
    for estimate in line.values:
        if estimate.estimator != DOUBLY_ROBUST or estimate.metric not in known:
            continue
        reported, own = plain(estimate), known[estimate.metric]
        names = ("unknown", "size", "value", "lower", "upper")
        differences += [
            (f"values.{estimate.metric}.{name}", str(reported.get(name)), str(own.get(name)))
            for name in names[: 3 if reported.get("level") != own.get("level") else None]
            if not _is_equal(reported.get(name), own.get(name))
        ]
    return differences


def _is_equal(reported: Any, recomputed: Any) -> bool:
    """Return whether two values are equal, numbers but for the order of rows and another processor."""
    if isinstance(reported, float) and isinstance(recomputed, float):
        return math.isclose(reported, recomputed, rel_tol=_FITTED, abs_tol=_FITTED)
    return bool(reported == recomputed)


def informed(reported: WrittenEstimate) -> bool:
    """Return whether labels moved an estimate's interval, which then depends on rows of other windows."""
    return reported.estimator == AVERAGE_CONFIDENCE and reported.labels > 0


def _times(line: WindowLine, rows: Rows) -> list[tuple[str, str, str]]:
    if not len(rows) or np.isnan(rows.time).any():
        return []
    ends = [
        ("start_time", line.start_time, rfc3339(float(rows.time.min()))),
        ("end_time", line.end_time, rfc3339(float(rows.time.max()))),
    ]
    return [(name, reported, recomputed) for name, reported, recomputed in ends if reported != recomputed]


def _positions(line: WindowLine, rows: Rows) -> list[tuple[str, str, str]]:
    differences = []
    for partition, ends in line.positions.items():
        own = rows.position[rows.partition == partition]
        recomputed = [_used(own, first, last) for first, last in line.stretches(partition)]
        if "; ".join(recomputed) != _ranges_text(ends):
            differences.append((f"positions.{partition}", _ranges_text(ends), "; ".join(recomputed)))
    return differences


def _used(position: Ints, first: int, last: int) -> str:
    own = position[(position >= first) & (position <= last)]
    return _ranges_text((int(own.min()), int(own.max()))) if len(own) else "no row used"


def _ranges_text(ends: Sequence[int]) -> str:
    """Return ranges as text, from the list of their ends: ``3 to 7; 9 to 9``."""
    return "; ".join(f"{first} to {last}" for first, last in zip(ends[::2], ends[1::2], strict=True))


class _Recomputed:
    """The estimates without labels of a line's metrics, recomputed from the rows of its window."""

    def __init__(
        self,
        line: WindowLine,
        task: Task,
        rows: Rows,
        calibration: Calibration,
        predictive: Predictive | None,
        reference: Reference | None,
    ) -> None:
        reported = [each for each in line.estimates if each.estimator == AVERAGE_CONFIDENCE]
        level = next((each.level for each in reported if each.unknown is None), task.level)
        self._request = EstimationRequest(
            scores=rows.scores,
            predicted=rows.predicted,
            calibrated=calibrate(calibration, rows.scores),
            metrics=tuple(each.metric for each in reported),
            positive=SeriesSettings(line.task, line.model, line.group, task).positive,
            level=task.level if level == rounded(task.level) else level,
            seed=line.window,
            average=task.charted_average,
            predictive=predictive,
        )
        if reference is not None:
            self._request = self._request.adapted_to(reference.covariates(task.covariates), rows.features)
        self._several_partitions = len(line.positions) > 1
        [self._evaluation] = evaluate([self._request])

    def differing(self, estimate: WrittenEstimate) -> list[tuple[str, str, str]]:
        """Return the fields of an estimate that differ: name, reported value and recomputed value."""
        metric, reported = estimate.metric, plain(estimate)
        if self._hardly_defined(metric):
            return []
        result = self._evaluation.estimates[metric]
        recomputed = plain(
            WrittenEstimate.from_estimate(MetricEstimate(metric, AVERAGE_CONFIDENCE, result), rounded)
        )
        passed_over = _BY_LABELS if informed(estimate) else ()
        return [
            (f"estimates.{metric}.{name}", str(reported.get(name)), str(recomputed.get(name)))
            for name in sorted((reported.keys() | recomputed.keys()).difference(passed_over))
            if reported.get(name) != recomputed.get(name)
            and not self._is_close(metric, name, reported.get(name))
        ]

    def _is_close(self, metric: str, name: str, reported: Any) -> bool:
        """Return whether a number differs by rounding alone: in its last bits, or by the order of rows."""
        if not isinstance(reported, int | float) or name not in ("value", "lower", "upper"):
            return False
        allowed = _ROUNDED + (
            _LAST_DECIMAL
            if self._several_partitions
            else _SINGLE_PRECISION
            if metric in _CALIBRATION_ERRORS and name != "value"
            else _LAST_BITS
        )
        evaluations = [self._evaluation] if name == "value" else [self._evaluation, *self._at_the_edge]
        results = [each.estimates[metric] for each in evaluations]
        return any(
            isinstance(each, Estimate) and abs(getattr(each, name) - reported) <= allowed for each in results
        )

    def _hardly_defined(self, metric: str) -> bool:
        """Return whether rounding decides if a metric is unknown."""
        metric_value = self._evaluation.others.get(metric)
        return metric_value is not None and abs(metric_value.undefined - MOSTLY_UNDEFINED) < _EDGE

    @cached_property
    def _at_the_edge(self) -> list[Evaluation]:
        """The evaluations at a slightly lower and a slightly higher level.

        Rounding may have the effect of either.
        """
        levels = [self._request.level - _EDGE, min(self._request.level + _EDGE, math.nextafter(1.0, 0.0))]
        return evaluate([replace(self._request, level=each) for each in levels])
