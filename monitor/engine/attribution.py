"""Attributes an alarm to the parts of a window (groups, classes, ranges of confidence) that changed most.

Only two kinds of windows are divided into parts: windows of a baseline, and windows that break a rule of a
chart. Other windows cost no time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec
import numpy as np

from monitor.base.records import Floats, Ints
from monitor.base.registry import SHARES
from monitor.config.task import Task
from monitor.engine.evaluate import Evaluation
from monitor.reports.attribution import CLASS, CONFIDENCE, GROUP, Attribution, PartChange
from monitor.stats.estimate.calibration_error import CLASS_ECE_BINS, ECE_BINS, calibration_error_slope
from monitor.stats.estimate.decomposition import (
    COUNTED_METRICS,
    OTHER,
    Decomposition,
    PartSums,
    count_columns,
    decomposed,
    most_concentrated,
    ratio_terms,
)
from monitor.stats.histograms import BIN_NAMES, bins_of

_MOST_REPORTED = 5
_DECIMALS = 6
_ROUNDING = 1e-6
_RANGES = [f"{CONFIDENCE}={each}" for each in BIN_NAMES]


class BaselineParts(msgspec.Struct, frozen=True):
    """The sums of a metric over each part (such as a group) of a baseline, for comparison with windows.

    Parameters
    ----------
    by : dict of str to PartSums
        The sums of each part, by dimension. A dimension is a group name (``region=``), ``class`` or
        ``confidence``.
    counts : (2, C) float64 or None
        For a metric that is a mean of C ratios: the sum of each ratio's numerators, and of its denominators.
        None for other metrics.
    """

    by: dict[str, PartSums]
    counts: Floats | None = None

    def plus(self, more: BaselineParts) -> BaselineParts:
        """Return the sums over the windows of this baseline and of `more`, which are other windows."""
        counts = self.counts if self.counts is None or more.counts is None else self.counts + more.counts
        return BaselineParts({name: self.by[name].plus(more.by[name]) for name in self.by}, counts)


@dataclass(frozen=True, eq=False)
class PartRows:
    """The n rows of a window, with the parts (group, class, range of confidence) that each row belongs to.

    Parameters
    ----------
    confidence : (n,) float64
    predicted : (n,) int64
    groups : (n, G) int64
        The number of each row's group, in one column for each group name in `task.groups`; -1 if the row has
        no such group. G is 0 in the windows of a group.
    name_of : callable
        Takes the number of a group and returns its name, such as ``region=eu``.
    task : Task
    """

    confidence: Floats
    predicted: Ints
    groups: Ints
    name_of: Callable[[int], str]
    task: Task

    def baseline(self, metric: str, evaluation: Evaluation) -> BaselineParts | None:
        """Return the sums of a metric over each part of the window, as a part of a baseline.

        The result is None if the metric is not a mean over rows.
        """
        terms, counts = self.terms(metric, evaluation, None)
        return None if terms is None else BaselineParts(self._by(terms), counts)

    def attribution(
        self, metric: str, evaluation: Evaluation, baseline: BaselineParts, change: float | None
    ) -> Attribution | None:
        """Return the parts that changed most since the baseline.

        The result is None if the metric is not a mean over rows, or if the chart of the accuracy judges an
        estimate that is not the mean confidence.

        Parameters
        ----------
        metric : str
        evaluation : Evaluation
        baseline : BaselineParts
        change : float or None
            The difference of the charted value and the chart's centre. None if the centre is not the mean of
            the baseline, as with a season; the change of the parts' sums then counts.
        """
        terms, _ = self.terms(metric, evaluation, baseline.counts)
        if terms is None:
            return None
        window = self._by(terms)
        split = {
            name: decomposed(window[name], before) for name, before in baseline.by.items() if name in window
        }
        # A metric of one class of two concerns only its answers: to name that class would be no news.
        uninformative = (
            (CONFIDENCE, CLASS)
            if baseline.counts is not None and self._positive is not None
            else (CONFIDENCE,)
        )
        causes = {name: each for name, each in split.items() if name not in uninformative}
        change = split[CONFIDENCE].change if change is None else change
        if metric in SHARES and abs(change - split[CONFIDENCE].change) > _ROUNDING:
            return None  # the chart judges an estimator that is not a mean of confidences
        named = most_concentrated(causes)
        alike = named is None and any(len(each.names) > 1 for each in causes.values())
        return _attribution(metric, change, named or CONFIDENCE, split, alike)

    def terms(
        self, metric: str, evaluation: Evaluation, before: Floats | None
    ) -> tuple[Floats | None, Floats | None]:
        """Return each row's contribution to the metric, and the sums of the counts in its ratios.

        Parameters
        ----------
        metric : str
        evaluation : Evaluation
            The estimates of these rows.
        before : (2, C) float64 or None
            The `counts` of the baseline. A metric that is a mean of ratios is approximated linearly around
            them.

        Returns
        -------
        (n,) float64 or None
            The contributions; None if the metric is not a mean over rows.
        (2, C) float64 or None
            The sums of each ratio's numerators and denominators; None if the metric is not a mean of ratios.
        """
        if metric in SHARES:
            return evaluation.confidence, None
        if metric in evaluation.errors:
            return _error_terms(metric, evaluation), None
        if metric not in COUNTED_METRICS or evaluation.scores is None:
            return None, None
        micro = self.task.charted_average == "micro"
        columns = count_columns(metric, evaluation.scores, self.predicted, self._positive, micro)
        own = columns.sum(axis=1)
        return ratio_terms(columns, own if before is None else before), own

    @property
    def _positive(self) -> int | None:
        """The index of the positive class, of two classes; None for other tasks."""
        return self.task.positive_index if len(self.task.classes) == 2 else None

    def _by(self, terms: Floats) -> dict[str, PartSums]:
        return {
            by: PartSums.from_rows(names, codes, terms) for by, (names, codes) in self._dimensions.items()
        }

    @cached_property
    def _dimensions(self) -> dict[str, tuple[Sequence[str], Ints]]:
        """The names of the parts by dimension, and each row's index into them; all metrics share them."""
        parts: dict[str, tuple[Sequence[str], Ints]] = {
            f"{name}=": self._grouped(f"{name}=", codes)
            # A group's own windows have no columns of groups.
            for name, codes in zip(self.task.groups, self.groups.T, strict=False)
        }
        parts[CLASS] = [f"{CLASS}={each}" for each in self.task.classes] or [f"{CLASS}="], self.predicted
        return parts | {CONFIDENCE: (_RANGES, bins_of(self.confidence))}

    def _grouped(self, prefix: str, codes: Ints) -> tuple[list[str], Ints]:
        """Return the names of the groups, and each row's index into them."""
        known, places = np.unique(codes, return_inverse=True)
        return [self.name_of(code) if code >= 0 else prefix for code in known.tolist()], places


def add_parts(parts: dict[str, BaselineParts], metric: str, evaluation: Evaluation, rows: PartRows) -> None:
    """Add the sums of one window, over parts such as groups, to those of a baseline, for one metric."""
    more = rows.baseline(metric, evaluation)
    if more is not None:
        parts[metric] = parts[metric].plus(more) if metric in parts else more


def _error_terms(metric: str, evaluation: Evaluation) -> Floats | None:
    """Return terms whose mean is a calibration error, (n,): differences signed by their bin's gap."""
    error = evaluation.errors[metric]
    if error.order is None or error.differences is None:
        return None
    bins = ECE_BINS if metric == "ece" else CLASS_ECE_BINS
    slope, _, _ = calibration_error_slope(error.order, error.differences, bins)
    terms = np.empty(len(slope))
    terms[error.order] = error.differences
    return terms * slope * -len(slope)


def _attribution(
    metric: str, change: float, by: str, split: Mapping[str, Decomposition], alike: bool
) -> Attribution:
    decomposition = split[by]
    changes = decomposition.changes
    order = np.argsort(-changes * np.sign(decomposition.change), kind="stable")[:_MOST_REPORTED]
    # If fewer parts changed, leave out the zeros.
    reported = [i for i in order.tolist() if abs(changes[i]) >= 10.0**-_DECIMALS]
    parts = tuple(_part(decomposition, i, by) for i in reported)
    reported_change = float(sum(changes[i] for i in reported))
    return Attribution(
        metric=metric,
        change=_rounded(change),
        by=by if by in (CLASS, CONFIDENCE) else GROUP,
        parts=parts,
        alike=alike,
        # The default is exactly 0, which reports leave out.
        others=_rounded(decomposition.change - reported_change) or 0,
        remainder=_rounded(change - decomposition.change) or 0,
    )


def _part(decomposition: Decomposition, i: int, by: str) -> PartChange:
    columns = (
        decomposition.mix,
        decomposition.within,
        decomposition.share,
        decomposition.share_before,
        decomposition.mean,
        decomposition.mean_before,
    )
    name = f"{by.rstrip('=')}={OTHER}" if decomposition.names[i] == OTHER else decomposition.names[i]
    return PartChange(name, *(_rounded(float(column[i])) for column in columns))


def _rounded(x: float) -> float:
    return round(x, _DECIMALS) + 0.0
