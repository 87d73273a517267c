"""One window recomputed from its rows, and held against its line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from monitor.base.names import AVERAGE_CONFIDENCE
from monitor.base.records import Ints
from monitor.cli.verify.rows import Rows
from monitor.config.root import Task
from monitor.engine.evaluate import EstimationRequest, calibrate, evaluate
from monitor.engine.series import SeriesSettings
from monitor.reports.views import CalibrationView, MetricEstimate
from monitor.reports.window_report import WindowReport, rfc3339, to_json
from monitor.reports.window_view import PREDICTIVE
from monitor.stats.calibration import calibration_from_snapshot
from monitor.stats.calibration.base import Calibration
from monitor.stats.calibration.none import Uncalibrated
from monitor.stats.estimate.predictive import Predictive
from monitor.store.history import Line

_BY_LABELS = ("labels", "lower", "upper")
"""Fields of an estimate that do not follow from a window's rows alone where it has the first of them."""

_LAST_DECIMAL = 1.01e-6
"""Rows of several partitions come in another order than they did: a sum may round to the other side."""


class Calibrations:
    """The calibrations that the store holds, by series.

    Parameters
    ----------
    saved : mapping of (task, model, group) to state
    """

    def __init__(self, saved: Mapping[tuple[str, str, str], Mapping[str, Any]]) -> None:
        self._saved = saved
        self._built: dict[tuple[str, str, str], Calibration] = {}

    def why_not(self, line: Line) -> str:
        """Why a window's calibration is not there; ``""`` where it is."""
        wanted = line.calibration["version"]
        if not wanted and not _predictive(line):
            return ""
        saved = self._saved.get(line.series)
        if saved is None:
            return "its series is no longer in the store"
        if (saved["version"], saved["fit"]["method"]) != (wanted, line.calibration["method"]):
            return f"its calibration, version {wanted}, is no longer in the store"
        if _predictive(line) and not saved.get("predictive"):
            return "what its predictive intervals rest on is no longer in the store"
        return ""

    def of(self, line: Line, task: Task) -> Calibration:
        """The calibration that a window names."""
        if not line.calibration["version"]:
            return Uncalibrated(max(len(task.classes), 1))
        if line.series not in self._built:
            self._built[line.series] = calibration_from_snapshot(self._saved[line.series]["fit"])
        return self._built[line.series]

    def predictive(self, line: Line) -> Predictive | None:
        """What widens the intervals of a window; None where they are exact."""
        saved = self._saved.get(line.series, {}).get("predictive")
        return Predictive.from_snapshot(saved) if saved and _predictive(line) else None


def _predictive(line: Line) -> bool:
    return line.calibration.get("interval") == PREDICTIVE


def compared(
    line: Line, task: Task, rows: Rows, calibration: Calibration, predictive: Predictive | None = None
) -> list[tuple[str, str, str]]:
    """The fields that differ: name, as reported, as recomputed.

    The ends of an interval that labels moved are passed over: see `informed`.

    Parameters
    ----------
    line : Line
    task : Task
    rows : Rows
        Those that the positions name, first uses only.
    calibration : Calibration
        The one that the line names.
    predictive : Predictive or None
        What goes with it, where the line's intervals are predictive.
    """
    if len(rows) != line.size:
        return [("size", str(line.size), str(len(rows)))]
    found = _times(line, rows) + _positions(line, rows)
    tolerance = _LAST_DECIMAL if len(line.positions) > 1 else 0.0
    again = {each["metric"]: each for each in _estimates(line, task, rows, calibration, predictive)}
    for reported in line.estimates:
        if reported["estimator"] != AVERAGE_CONFIDENCE:
            continue
        recomputed = again[reported["metric"]]
        passed_over = _BY_LABELS if informed(reported) else ()
        for name in sorted((reported.keys() | recomputed.keys()).difference(passed_over)):
            left, right = reported.get(name), recomputed.get(name)
            if not _same(left, right, tolerance):
                found.append((f"estimates.{reported['metric']}.{name}", str(left), str(right)))
    return found


def informed(reported: Mapping[str, Any]) -> bool:
    """Whether labels moved the interval of an estimate: its ends rest on rows of other windows too."""
    return "labels" in reported


def _same(left: Any, right: Any, tolerance: float) -> bool:
    if isinstance(left, int | float) and isinstance(right, int | float):
        return abs(left - right) <= tolerance
    return bool(left == right)


def _times(line: Line, rows: Rows) -> list[tuple[str, str, str]]:
    if not len(rows) or np.isnan(rows.time).any():
        return []
    ends = [
        ("start_time", line.start_time, rfc3339(float(rows.time.min()))),
        ("end_time", line.end_time, rfc3339(float(rows.time.max()))),
    ]
    return [(name, reported, again) for name, reported, again in ends if reported != again]


def _positions(line: Line, rows: Rows) -> list[tuple[str, str, str]]:
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


def _estimates(
    line: Line, task: Task, rows: Rows, calibration: Calibration, predictive: Predictive | None
) -> list[dict[str, Any]]:
    """The label-free estimates of the metrics that the line has, as a line would hold them."""
    reported = [each for each in line.estimates if each["estimator"] == AVERAGE_CONFIDENCE]
    metrics = tuple(each["metric"] for each in reported)
    level = next((each["level"] for each in reported if "level" in each), task.level)
    request = EstimationRequest(
        scores=rows.scores,
        predicted=rows.predicted,
        calibrated=calibrate(calibration, rows.scores),
        metrics=metrics,
        positive=SeriesSettings(line.task, line.model, line.group, task).positive,
        level=level,
        seed=line.window,
        average=task.charted_average,
        predictive=predictive,
    )
    [evaluation] = evaluate([request])
    report = WindowReport(
        task=line.task, model=line.model, group=line.group, version="", window=line.window, size=line.size,
        closed_by="size", start_time=0.0, end_time=0.0, calibration=CalibrationView("none", 0, False, None),
        estimates=tuple(
            MetricEstimate(metric, AVERAGE_CONFIDENCE, evaluation.estimates[metric]) for metric in metrics
        ),
    )  # fmt: skip
    found: list[dict[str, Any]] = msgspec.json.decode(to_json(report))["estimates"]
    return found
