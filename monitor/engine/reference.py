"""The reference of one model: what its calibration is fitted on, and what its charts are drawn around."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from monitor.base.records import Batch, Floats, Ints
from monitor.base.results import Estimate
from monitor.config.root import Task
from monitor.engine.evaluate import EstimationRequest, Evaluation, evaluate
from monitor.stats.calibration import CALIBRATORS
from monitor.stats.calibration.auto import AutoCalibrator, Choice, choose
from monitor.stats.calibration.base import Calibration, cross_fit_in_time
from monitor.stats.charts.base import Baseline
from monitor.stats.estimate.predictive import Predictive
from monitor.stats.estimate.predictive_fit import FEWEST_ROWS, Folded

FEWEST_WINDOWS = 5
"""Reference windows without which no chart is drawn: the spread of fewer says next to nothing."""


@dataclass(frozen=True, eq=False)
class Reference:
    """Labelled answers of one model in time order, n rows.

    Parameters
    ----------
    scores : (n, K) float64
    predicted, labels : (n,) int64
    time : (n,) float64
    version : str
        Of the newest row; a reference should be of one version.
    groups : mapping of str to (m,) int64
        The rows of each group: ``region=eu``.
    """

    scores: Floats
    predicted: Ints
    labels: Ints
    time: Floats
    version: str
    groups: Mapping[str, Ints]
    _fits: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    def calibration(self, method: str) -> Calibration:
        """The calibration by this method, fitted once: the model and its groups share it.

        By `auto` it is that of the chosen method, whose name it bears.

        Raises
        ------
        ValueError
            The reference cannot carry the method, with the reason.
        """
        if method == AutoCalibrator.method:
            method = self.choice().method
        if method not in self._fits:
            self._fits[method] = CALIBRATORS[method]().fit(self.scores, self.predicted, self.labels)
        found: Calibration = self._fits[method]
        return found

    def choice(self) -> Choice:
        """The method that `auto` takes, with the losses by which it does; worked out once.

        Raises
        ------
        ValueError
            The rows outside some part of the reference cannot be fitted on.
        """
        if AutoCalibrator.method not in self._fits:
            self._fits[AutoCalibrator.method] = choose(self.scores, self.predicted, self.labels)
        found: Choice = self._fits[AutoCalibrator.method]
        return found

    def predictive(self, method: str, group: str = "") -> Predictive:
        """The error of later windows under this calibration, of the model or of one group of it.

        A group of fewer than `FEWEST_ROWS` rows varies as the model does, as far as anyone can tell.

        Raises
        ------
        ValueError
            The reference cannot carry the method, with the reason.
        """
        if method == AutoCalibrator.method:
            method = self.choice().method
        rows = self.groups.get(group)
        group = group if rows is not None and len(rows) >= FEWEST_ROWS else ""
        key = f"{method}, predictive {group}"
        if key not in self._fits:
            found = self._folded(method).predictive(self.scores.shape[1], among=rows if group else None)
            whole = group and found.components is None
            self._fits[key] = self.predictive(method) if whole else found
        answer: Predictive = self._fits[key]
        return answer

    def _folded(self, method: str) -> Folded:
        key = f"{method}, folded"
        if key not in self._fits:
            calibrator = CALIBRATORS[method]()
            self._fits[key] = Folded.of(calibrator, self.scores, self.predicted, self.labels)
        found: Folded = self._fits[key]
        return found

    def cross_fitted(self, method: str) -> Floats | None:
        """Its own scores, calibrated by folds contiguous in time, each by a fit on the others; None for none.

        A row that the calibration was fitted on looks better calibrated than it is.
        """
        if method == "none":
            return None
        key = f"{method}, cross-fitted"
        if key not in self._fits:
            self._fits[key] = cross_fit_in_time(
                CALIBRATORS[method](), self.scores, self.predicted, self.labels
            )
        found: Floats = self._fits[key]
        return found


def split_by_model(batch: Batch) -> dict[str, Reference]:
    """A reference file's rows, a model at a time, each in time order."""
    found = {}
    for code, name in enumerate(batch.models):
        rows = np.flatnonzero((batch.model == code) & (batch.label >= 0))
        if not len(rows):
            continue
        rows = rows[np.argsort(batch.time[rows], kind="stable")]
        found[name] = Reference(
            scores=batch.scores[rows],
            predicted=batch.predicted[rows],
            labels=batch.label[rows],
            time=batch.time[rows],
            version=batch.versions[int(batch.version[rows[-1]])],
            groups=_groups(batch, rows),
        )
    return found


def _groups(batch: Batch, rows: Ints) -> dict[str, Ints]:
    found = {}
    for name, (values, column) in batch.groups.items():
        codes = column[rows]
        order = np.argsort(codes, kind="stable")
        cuts = np.searchsorted(codes[order], np.arange(len(values) + 1))
        for code, value in enumerate(values):
            found[f"{name}={value}"] = order[cuts[code] : cuts[code + 1]]
    return found


def reference_windows(
    method: str, reference: Reference, group: str, task: Task, positive: int
) -> list[Evaluation]:
    """Estimates of the reference, or of one group of it, cut into windows of the configured size.

    They are calibrated by `Reference.cross_fitted`. The last rows that fill no window are left out;
    fewer than `FEWEST_WINDOWS` windows are none.
    """
    every = np.arange(len(reference.labels))
    rows = reference.groups.get(group, every[:0]) if group else every
    size = task.window.size
    if len(rows) < FEWEST_WINDOWS * size:
        return []
    calibrated = reference.cross_fitted(method)
    cuts = [rows[start : start + size] for start in range(0, len(rows) - size + 1, size)]
    return evaluate(
        [
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
    )


class Point(NamedTuple):
    """What a baseline takes from one window: its estimate, its rows, and what one row adds."""

    value: float
    size: int
    row_sd: float


def baseline(points: Sequence[Point]) -> Baseline:
    """The baseline that these windows make."""
    values, sizes, row_sd = np.array(points, dtype=np.float64).T
    return Baseline(values, sizes, float(np.sqrt(np.average(row_sd**2, weights=sizes))))


def baselines(evaluations: Sequence[Evaluation]) -> dict[str, Baseline]:
    """A baseline for each metric that enough of these windows know."""
    points: dict[str, list[Point]] = {}
    for evaluation in evaluations:
        for metric, estimate in evaluation.estimates.items():
            if isinstance(estimate, Estimate):
                point = Point(estimate.value, estimate.n, evaluation.row_sd[metric])
                points.setdefault(metric, []).append(point)
    return {metric: baseline(known) for metric, known in points.items() if len(known) >= FEWEST_WINDOWS}
