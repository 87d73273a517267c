"""The output of a series: the reports of its windows, and the newest results for exporters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from monitor.base.names import AVERAGE_CONFIDENCE, CORRECTED, REALISED, REALISED_COHORT, REALISED_HORIZON
from monitor.base.records import Ints
from monitor.base.registry import SHARES
from monitor.base.results import Estimate, RankInterval, Reason, Result, TooFew, Unknown
from monitor.config.task import Task
from monitor.engine.evaluate import Evaluation, confusion_shares
from monitor.engine.labels.correcting import Correcting
from monitor.engine.labels.tally import Tally
from monitor.engine.windows import ClosedWindow, SeriesName
from monitor.reports.attribution import Attribution
from monitor.reports.features import BrokenFeature
from monitor.reports.trust import Trust
from monitor.reports.views import (
    AlarmByLabels,
    BaselineProgress,
    CalibrationView,
    ChartView,
    ClassEstimate,
    ConfusionView,
    MetricEstimate,
    ObjectiveView,
    Rebaselined,
)
from monitor.reports.window_report import WindowReport
from monitor.stats.charts.base import Verdict
from monitor.stats.histograms import ConfidenceHistogram

MOST_CONFUSED = 10
"""The largest number of classes with a confusion matrix: 100 numbers, each with its interval."""

_REBASELINES_KEPT = 20
_NUMBERS = 5  # of an estimate


SavedEstimate = list[Any]
"""An estimate as plain values: metric, estimator, numbers, then the number of labels and ranks if known."""


class LastWindow(msgspec.Struct, frozen=True):
    """The stored results of the last closed window. Exporters show them until the next window closes."""

    end_time: float | None = None
    estimates: list[SavedEstimate] = []
    classes: list[tuple[str, str, str, list[Any]]] = []
    charts: list[tuple[str, float, float, float, tuple[str, ...], bool]] = []
    improved: list[str] = []  # the metrics whose charts show an improvement
    deviations: dict[str, float] = {}  # of the charts' verdicts; older versions did not store them
    by_labels: dict[str, tuple[float, float, float, int, bool]] = {}  # alarms decided by labels
    values: list[SavedEstimate] = []  # the estimates of metrics of errors
    shares: list[list[list[Any]]] = []  # the results of the confusion matrix, a row for each true class
    confidences: ConfidenceHistogram = ConfidenceHistogram()


class NotedRebaseline(msgspec.Struct, frozen=True):
    """An operator's request for a new baseline, with its time and the number of the open window."""

    metric: str
    reason: str
    time: float
    window: int


class OutputState(msgspec.Struct, frozen=True):
    """The stored state of `SeriesOutput`.

    It holds the last window's results, the last refit's estimates, and the newest requests for baselines.
    `unreported` are the requests that no report has mentioned yet.
    """

    last: LastWindow | None = None
    fitted: Sequence[SavedEstimate] = ()
    rebaselines: Sequence[NotedRebaseline] = ()
    unreported: Sequence[tuple[str, str]] = msgspec.field(default=(), name="untold")


class SeriesOutput:
    """The output of a series, made from estimates, labels and the last refit: reports and newest results.

    Parameters
    ----------
    task : Task
    name : SeriesName
    tally : Tally
        The counts of the series' labelled rows.
    correction : Correcting
        The correction of the series' accuracy by labels.
    resume : OutputState, optional
        A snapshot.

    Attributes
    ----------
    end_time : float or None
        The end of the last closed window, seconds since the epoch; None before the first.
    charts : tuple of ChartView
        The charts' results for the last closed window.
    classes : tuple of ClassEstimate
        The estimates of each class in the last closed window.
    confusion : ConfusionView or None
        The expected confusion matrix of that window. None for groups, for tasks with one class or more than
        `MOST_CONFUSED`, and if the scores could not be calibrated.
    confidences : ConfidenceHistogram
        The confidences in that window; empty for groups.
    """

    def __init__(
        self,
        task: Task,
        name: SeriesName,
        tally: Tally,
        correction: Correcting,
        resume: OutputState | None = None,
    ) -> None:
        state = resume or OutputState()
        self._task = task
        self._refits = not name.group and name.model in task.refit_models
        self._by_labels = task.realised_estimators if task.share in task.metrics else ()
        self._tally = tally
        self._correction = correction
        self._fitted = estimates_from(state.fitted)
        last = state.last or LastWindow()
        self.end_time = last.end_time
        self._estimates = estimates_from(last.estimates)
        self._errors = _with_units(estimates_from(last.values), task)
        self._newest: tuple[int, MetricEstimate] | None = None  # the last window and result of `corrected`
        self.charts = _charts_of(last, task)
        self.classes = tuple(
            ClassEstimate(metric, tag, of_class, _result(saved))
            for metric, tag, of_class, saved in last.classes
        )
        shares = tuple(tuple(map(_result, row)) for row in last.shares)
        self.confusion = ConfusionView(self._task.classes, shares) if shares else None
        self.confidences = last.confidences
        self._rebaselines = list(state.rebaselines)
        self._unreported = [Rebaselined(*each) for each in state.unreported]

    def take_fitted(self, fitted: tuple[MetricEstimate, ...]) -> None:
        """Use the estimates of a new refit in reports from now on."""
        self._fitted = fitted

    def show_rows(self, evaluation: Evaluation, predicted: Ints) -> None:
        """Compute the confusion matrix and the histogram that exporters show for the newest window."""
        self.confidences = ConfidenceHistogram().plus(evaluation.confidence)
        classes = self._task.classes
        self.confusion = None
        if 1 < len(classes) <= MOST_CONFUSED and evaluation.scores is not None:
            shares = confusion_shares(evaluation, predicted, self._task.level)
            self.confusion = ConfusionView(classes, shares)

    def report(
        self,
        window: ClosedWindow,
        evaluation: Evaluation,
        comparisons: Sequence[MetricEstimate],
        judged: tuple[tuple[ChartView, ...], tuple[ObjectiveView, ...], tuple[Attribution, ...]],
        calibration: CalibrationView,
        doubts: tuple[Trust | None, Trust | None, tuple[BrokenFeature, ...]],
        errors: tuple[MetricEstimate, ...],
    ) -> WindowReport:
        """Return the report of a window that has just closed.

        Parameters
        ----------
        window : ClosedWindow
        evaluation : Evaluation
        comparisons : sequence of MetricEstimate
            The estimates of `monitor.engine.comparators`.
        judged : tuple of three tuples
            The results of charts, the results of objectives, and the attributions.
        calibration : CalibrationView
        doubts : tuple of Trust or None, Trust or None, and tuple of BrokenFeature
            The results of the tests of trust in the accuracy and in the estimated errors, None if labels do
            not contradict them; and the broken features.
        errors : tuple of MetricEstimate
            The estimates of the metrics of errors.
        """
        trust, trust_in_errors, broken = doubts
        self.end_time = window.end_time
        self._estimates = self._of_window(window.number, evaluation, comparisons)
        self.classes = self._of_classes(evaluation)
        self._errors = errors
        self.charts, objectives, attributions = judged
        unreported, self._unreported = self._unreported, []
        return WindowReport(
            **window.series._asdict(),
            version=window.version,
            window=window.number,
            size=window.size,
            closed_by=window.closed_by,
            start_time=window.start_time,
            end_time=window.end_time,
            calibration=calibration,
            estimates=self._estimates,
            charts=self.charts,
            objectives=objectives,
            positions=window.positions,
            rebaselined=tuple(unreported),
            trust=trust,
            trust_in_errors=trust_in_errors,
            classes=self.classes,
            values=self._with_realised(window.number),
            attributions=attributions,
            broken_features=broken,
        )

    def note_rebaseline(self, metric: str, reason: str, time: float, window: int) -> None:
        """Store a request for a new baseline, to be mentioned in the next report.

        `window` is the number of the open window, and `time` is in seconds since the epoch. The newest 20
        requests are stored.
        """
        self._unreported = [*self._unreported, Rebaselined(metric, reason)][-_REBASELINES_KEPT:]
        noted = NotedRebaseline(metric, reason, time, window)
        self._rebaselines = [*self._rebaselines, noted][-_REBASELINES_KEPT:]
        self.charts = tuple(chart for chart in self.charts if chart.metric != metric)

    def progress_of(self, rebaselining: Mapping[str, tuple[int, int]]) -> tuple[BaselineProgress, ...]:
        """Return the progress of each baseline that an operator requested, with the newest reason."""
        reasons = {each.metric: each.reason for each in self._rebaselines}
        return tuple(
            BaselineProgress(metric, reasons.get(metric, ""), *windows)
            for metric, windows in rebaselining.items()
        )

    def forget_charts(self) -> None:
        """Drop the last results of the charts, because a new baseline begins."""
        self.charts = ()

    def estimates(self, open_window: int) -> tuple[MetricEstimate, ...]:
        """Return the estimates of the last closed window, with the newest results of labels and refits.

        The realised accuracy belongs to the newest closed window with labels.

        Parameters
        ----------
        open_window : int
            The number of the open window. Its labels are left out.
        """
        if self.end_time is None:
            return ()
        newest = self._tally.newest(before=open_window)
        now = self._realised(self._tally.closed - 1 if newest is None else newest) + self._refitted()
        by_labels = {each.estimator for each in now}
        return (*(each for each in self._estimates if each.estimator not in by_labels), *now)

    def values(self, open_window: int) -> tuple[MetricEstimate, ...]:
        """Return the metrics of errors of the last closed window, with the newest results of labels.

        The parameter and the realised results are as in `estimates`.
        """
        if self.end_time is None or not self._task.error_units:
            return ()
        newest = self._tally.newest(before=open_window)
        return self._with_realised(self._tally.closed - 1 if newest is None else newest)

    def _with_realised(self, window: int) -> tuple[MetricEstimate, ...]:
        """Return the estimates of metrics of errors, each with the realised result of a window."""
        realised = REALISED in self._by_labels
        level = self._task.level
        return tuple(
            each
            for own in self._errors
            for each in (
                own,
                MetricEstimate(
                    own.metric,
                    REALISED,
                    self._tally.realised_error(own.metric, window, level),
                    unit=own.unit,
                ),
            )[: 1 + realised]
        )

    def snapshot(self) -> OutputState:
        """Return the last window's results, the last refit's estimates, and the requests for baselines."""
        return OutputState(
            last=None if self.end_time is None else self._shown(self.end_time),
            fitted=plain_estimates(self._fitted),
            rebaselines=list(self._rebaselines),
            unreported=[(each.metric, each.reason) for each in self._unreported],
        )

    def _shown(self, end_time: float) -> LastWindow:
        return LastWindow(
            end_time=end_time,
            estimates=plain_estimates(self._estimates),
            classes=[(e.metric, e.estimator, e.of_class, _plain(e.result)) for e in self.classes],
            charts=[
                (c.metric, v.center, v.lower, v.upper, v.rules, v.out_of_control)
                for c in self.charts
                for v in (c.verdict,)
            ],
            shares=[list(map(_plain, row)) for row in (self.confusion.shares if self.confusion else ())],
            confidences=self.confidences,
            values=plain_estimates(self._errors),
            improved=[c.metric for c in self.charts if c.verdict.improved],
            deviations={c.metric: c.verdict.deviation for c in self.charts},
            by_labels={
                c.metric: (b.value, b.lower, b.upper, b.labels, b.confidences_moved)
                for c in self.charts
                if (b := c.by_labels) is not None
            },
        )

    def _of_window(
        self, window: int, evaluation: Evaluation, comparisons: Sequence[MetricEstimate]
    ) -> tuple[MetricEstimate, ...]:
        own: list[MetricEstimate] = []
        if AVERAGE_CONFIDENCE in self._task.estimators:
            own = [
                MetricEstimate(metric, AVERAGE_CONFIDENCE, result, evaluation.informed.get(metric, 0))
                for metric, result in evaluation.estimates.items()
            ]
        corrected = self.corrected(window)
        if corrected is not None and isinstance(evaluation.estimates[self._task.share], Estimate):
            own.insert(1, corrected)  # at the same place as in a revision
        return (*own, *comparisons, *self._realised(window), *self._refitted())

    def _of_classes(self, evaluation: Evaluation) -> tuple[ClassEstimate, ...]:
        """Return the estimates of single classes, if they are configured."""
        if AVERAGE_CONFIDENCE not in self._task.estimators:
            return ()
        return tuple(
            ClassEstimate(metric, AVERAGE_CONFIDENCE, self._task.classes[k], result)
            for (metric, k), result in evaluation.classes.items()
        )

    def _refitted(self) -> list[MetricEstimate]:
        """Return the last refit's estimates of this model. They do not belong to a single window or group."""
        if not self._refits:
            return []
        known = {(estimate.estimator, estimate.metric): estimate for estimate in self._fitted}
        none = Unknown(Reason.NOT_FITTED)
        return [
            known.get((tag, metric), MetricEstimate(metric, tag, none))
            for tag in self._task.refit_estimators
            for metric in self._task.metrics
        ]

    def corrected(self, window: int) -> MetricEstimate | None:
        """Return the accuracy of a window, corrected by all labels so far.

        The result is None if the estimator `corrected` is not configured, if there are no labels, or if the
        window is no longer stored.
        """
        if CORRECTED not in self._by_labels:
            return None
        result = self._correction.estimate(window, self._task.level)
        if result is None:
            return None
        estimate = MetricEstimate(self._task.share, CORRECTED, result, self._correction.labelled)
        self._newest = window, estimate
        return estimate

    def take_revision(self, window: int) -> None:
        """Update the corrected accuracy that exporters show, if the window is the last closed one.

        The engine calls this method when it writes a further report of a window.
        """
        if self._newest is None or self._newest[0] != window or window != self._tally.closed - 1:
            return
        newest = self._newest[1]
        own = next((e for e in self._estimates if e.estimator == CORRECTED), None)
        accuracy = next((e.result for e in self._estimates if e.metric in SHARES), None)
        if own is None and isinstance(accuracy, Estimate):
            self._estimates = (*self._estimates[:1], newest, *self._estimates[1:])
        elif own is not None and isinstance(own.result, Estimate) and own.result != newest.result:
            newest = replace(newest, at_close=own.at_close or own.result)
            self._estimates = tuple(newest if e is own else e for e in self._estimates)

    def _realised(self, window: int) -> list[MetricEstimate]:
        """Return the realised accuracy of this window, of the newest cohort, and of the horizon."""
        task = self._task
        if not self._by_labels:
            return []
        realised: dict[str, Callable[[], Result]] = {
            REALISED: lambda: self._tally.realised(window, task.level),
            REALISED_COHORT: lambda: self._tally.realised_cohort(task.level),
            REALISED_HORIZON: lambda: self._tally.realised_horizon(task.level),
        }
        return [
            MetricEstimate(task.share, name, estimate())
            for name, estimate in realised.items()
            if name in self._by_labels
        ]


def _charts_of(last: LastWindow, task: Task) -> tuple[ChartView, ...]:
    """Return the results of the charts from the stored results of the last closed window."""
    return tuple(
        ChartView(
            metric,
            Verdict(
                *(center, lower, upper, rules, out),
                improved=metric in last.improved,
                deviation=last.deviations.get(metric, 0.0),
            ),
            estimator=task.judged_estimator(metric),
            by_labels=AlarmByLabels(*last.by_labels[metric]) if metric in last.by_labels else None,
            unit=task.error_units.get(metric),
        )
        for metric, center, lower, upper, rules, out in last.charts
    )


def _with_units(estimates: Sequence[MetricEstimate], task: Task) -> tuple[MetricEstimate, ...]:
    """Return the estimates of configured metrics of errors, with their units."""
    units = task.error_units
    return tuple(replace(each, unit=units[each.metric]) for each in estimates if each.metric in units)


def plain_estimates(estimates: Sequence[MetricEstimate]) -> list[SavedEstimate]:
    """Return estimates as lists of plain values, to be stored."""
    return [
        [e.metric, e.estimator, _plain(e.result) + _plain_close(e.at_close), *_more(e)] for e in estimates
    ]


def _plain_close(at_close: Estimate | None) -> list[Any]:
    return [] if at_close is None else [at_close.value, at_close.lower, at_close.upper]


def _more(e: MetricEstimate) -> list[int]:
    """Return the optional parts of an estimate: the number of labels, then the ends of one or two ranks."""
    ranks = [end for rank in (e.rank, e.rank_chi_square) if rank for end in (rank.best, rank.worst)]
    return [e.labels, *ranks] if e.labels or ranks else []


def estimates_from(state: Sequence[SavedEstimate]) -> tuple[MetricEstimate, ...]:
    """Convert the result of `plain_estimates` back to estimates."""
    return tuple(
        replace(MetricEstimate(metric, tag, _result(written), *_of_few(*more)), at_close=_at_close(written))
        for metric, tag, written, *more in state
    )


def _at_close(written: Sequence[Any]) -> Estimate | None:
    """Return the estimate from the result of `_plain_close`."""
    return Estimate(*written[_NUMBERS:], *written[3:_NUMBERS]) if len(written) > _NUMBERS else None


def _of_few(labels: int = 0, *ends: int) -> tuple[int, *tuple[RankInterval, ...]]:
    """Return the labels and ranks from the result of `_more`."""
    return labels, *(RankInterval(*ends[at : at + 2]) for at in range(0, len(ends), 2))


def _result(written: Sequence[Any]) -> Result:
    if not isinstance(written[0], str):
        return Estimate(*written[:_NUMBERS])
    return Unknown(*written) if len(written) == 1 else TooFew(*written)


def _plain(result: Result) -> list[Any]:
    if isinstance(result, Unknown):
        return [str(result.reason), result.n] if isinstance(result, TooFew) else [str(result.reason)]
    return [result.value, result.lower, result.upper, result.level, result.n]
