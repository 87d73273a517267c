"""One window recomputed from its rows, and held against its line."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from monitor.base.codec import plain, restored
from monitor.base.names import AVERAGE_CONFIDENCE
from monitor.base.records import Ints
from monitor.base.results import Estimate
from monitor.cli.verify.rows import Rows
from monitor.config.root import Task
from monitor.config.task import COVARIATES
from monitor.engine.evaluate import EstimationRequest, Evaluation, calibrate, evaluate
from monitor.engine.reference import Reference
from monitor.engine.series import SeriesSettings
from monitor.reports.views import MetricEstimate
from monitor.reports.window_report import WindowLine, WrittenEstimate, rfc3339, rounded
from monitor.reports.window_view import PREDICTIVE
from monitor.stats.calibration import calibration_from_snapshot
from monitor.stats.calibration.base import Calibration
from monitor.stats.calibration.none import Uncalibrated
from monitor.stats.estimate.count_ratio import MOSTLY_UNDEFINED
from monitor.stats.estimate.predictive import Predictive

_BY_LABELS = ("labels", "lower", "upper")
"""Fields of an estimate that do not follow from a window's rows alone where it has the first of them."""

_ROUNDED = 0.5e-6
"""Half of the last decimal that a line has."""

_LAST_BITS = 1e-9
"""Processors' sums, exponentials and products differ in the last bits: by 6e-16 in what was measured
(`python -m tests.fidelity.other_arithmetic estimates`). Every metric lies from 0 to 1."""

_SINGLE_PRECISION = 1e-7
"""The same of the ends of a calibration error, which rest on single precision: by 7e-9."""

_LAST_DECIMAL = 1e-6
"""Rows of several partitions come in another order than they did: a sum may round to the other side."""

_EDGE = 2e-12
"""Added to a level, it moves the chance left out on either side by 1e-12: beyond what the last bits move a
cumulative chance by. An end that is a count is the next one where that chance lies so close to an edge."""

_CALIBRATION_ERRORS = ("ece", "class_ece")


class Calibrations:
    """The calibrations that the store holds, by series.

    Parameters
    ----------
    saved : mapping of (task, model, group) to state
    references : mapping of str to mapping of str to Reference, optional
        By task and model, of the tasks in which each window has its own calibration.
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
        """Why a window's calibration is not there; ``""`` where it is."""
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
        """What the window's own calibration is fitted on; None where it has none."""
        if line.calibration.method != COVARIATES:
            return None
        return self._references.get(line.task, {}).get(line.model)

    def of(self, line: WindowLine, task: Task) -> Calibration:
        """The calibration that a window names."""
        if not line.calibration.version:
            return Uncalibrated(max(len(task.classes), 1))
        if line.series not in self._built:
            self._built[line.series] = calibration_from_snapshot(self._saved[line.series]["fit"])
        return self._built[line.series]

    def predictive(self, line: WindowLine) -> Predictive | None:
        """What widens the intervals of a window; None where they are exact."""
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
) -> list[tuple[str, str, str]]:
    """The fields that differ: name, as reported, as recomputed.

    The ends of an interval that labels moved are passed over: see `informed`.

    Parameters
    ----------
    line : WindowLine
    task : Task
    rows : Rows
        Those that the positions name, first uses only.
    calibration : Calibration
        The one that the line names.
    predictive : Predictive or None
        What goes with it, where the line's intervals are predictive.
    reference : Reference or None
        Where the window has its own calibration: what that is fitted on.
    """
    if len(rows) != line.size:
        return [("size", str(line.size), str(len(rows)))]
    found = _times(line, rows) + _positions(line, rows)
    again = _Recomputed(line, task, rows, calibration, predictive, reference)
    for reported in line.estimates:
        if reported.estimator == AVERAGE_CONFIDENCE:
            found += again.differing(reported)
    return found


def informed(reported: WrittenEstimate) -> bool:
    """Whether labels moved the interval, of which rows of other windows are a part."""
    return reported.estimator == AVERAGE_CONFIDENCE and reported.labels > 0


def _times(line: WindowLine, rows: Rows) -> list[tuple[str, str, str]]:
    if not len(rows) or np.isnan(rows.time).any():
        return []
    ends = [
        ("start_time", line.start_time, rfc3339(float(rows.time.min()))),
        ("end_time", line.end_time, rfc3339(float(rows.time.max()))),
    ]
    return [(name, reported, again) for name, reported, again in ends if reported != again]


def _positions(line: WindowLine, rows: Rows) -> list[tuple[str, str, str]]:
    found = []
    for partition, ends in line.positions.items():
        own = rows.position[rows.partition == partition]
        again = [_used(own, first, last) for first, last in line.stretches(partition)]
        if "; ".join(again) != _told(ends):
            found.append((f"positions.{partition}", _told(ends), "; ".join(again)))
    return found


def _used(position: Ints, first: int, last: int) -> str:
    own = position[(position >= first) & (position <= last)]
    return _told((int(own.min()), int(own.max()))) if len(own) else "no row used"


def _told(ends: Sequence[int]) -> str:
    """Of stretches, each by its two ends: ``3 to 7; 9 to 9``."""
    return "; ".join(f"{first} to {last}" for first, last in zip(ends[::2], ends[1::2], strict=True))


class _Recomputed:
    """The label-free estimates of the metrics that a line has, computed again."""

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
            self._request = self._request.adapted_to(reference.covariates(task.features), rows.features)
        self._several_partitions = len(line.positions) > 1
        [self._evaluation] = evaluate([self._request])

    def differing(self, estimate: WrittenEstimate) -> list[tuple[str, str, str]]:
        """The fields of an estimate that differ: name, as reported, as recomputed."""
        metric, reported = estimate.metric, plain(estimate)
        if self._hardly_defined(metric):
            return []
        result = self._evaluation.estimates[metric]
        again = plain(
            WrittenEstimate.from_estimate(MetricEstimate(metric, AVERAGE_CONFIDENCE, result), rounded)
        )
        passed_over = _BY_LABELS if informed(estimate) else ()
        return [
            (f"estimates.{metric}.{name}", str(reported.get(name)), str(again.get(name)))
            for name in sorted((reported.keys() | again.keys()).difference(passed_over))
            if reported.get(name) != again.get(name) and not self._may_be(metric, name, reported.get(name))
        ]

    def _may_be(self, metric: str, name: str, reported: Any) -> bool:
        """Whether a number is right but for the last bits of another processor, or another order of rows."""
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
        """Whether the last bits decide if a metric is unknown."""
        found = self._evaluation.others.get(metric)
        return found is not None and abs(found.undefined - MOSTLY_UNDEFINED) < _EDGE

    @cached_property
    def _at_the_edge(self) -> list[Evaluation]:
        """The same with a level that is lower, and higher, by less than could be told."""
        levels = [self._request.level - _EDGE, min(self._request.level + _EDGE, math.nextafter(1.0, 0.0))]
        return evaluate([replace(self._request, level=each) for each in levels])
