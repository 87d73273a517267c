"""A series is one model of a task, or one group of its answers. It turns answers into reports of windows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np

from monitor.base.errors import ConfigError
from monitor.base.records import Floats, Ints
from monitor.base.registry import SHARES
from monitor.config.task import Task
from monitor.engine.attribution import BaselineParts, PartRows
from monitor.engine.baselines import (
    baselines,
    reference_by_labels,
    reference_curve,
    reference_hours,
    reference_parts,
    reference_windows,
)
from monitor.engine.calibration import ActiveCalibration, CalibrationState
from monitor.engine.comparators import ComparisonEstimators, ComparisonFits
from monitor.engine.error_estimates import ErrorEstimator
from monitor.engine.evaluate import EstimationRequest, Evaluation, calibrate, informed
from monitor.engine.feature_changes import FeatureSplitter
from monitor.engine.features import FeaturesState, FeatureWatch
from monitor.engine.judge import Judge, JudgeSettings, JudgeState, standing
from monitor.engine.label_checks import ChecksState, LabelChecks
from monitor.engine.labels.correcting import Correcting, CorrectingState
from monitor.engine.labels.tally import Tally, TallyState
from monitor.engine.reference import Reference
from monitor.engine.refit.due import RecalibrationState, schedule_of
from monitor.engine.series_output import LastWindow, NotedRebaseline, OutputState, SavedEstimate, SeriesOutput
from monitor.engine.versions import VersionState, VersionTracker
from monitor.engine.windows import AnswerRows, ClosedWindow, CountWindow, SeriesName, WindowLogic, WindowState
from monitor.reports.views import MetricEstimate, SeriesView
from monitor.reports.window_report import WindowReport
from monitor.stats.calibration import calibration_from_snapshot
from monitor.stats.calibration.base import Calibration, confidence_of
from monitor.stats.calibration.rests_on import RestsOn
from monitor.stats.charts.base import Baseline
from monitor.stats.charts.season import HourPoint
from monitor.stats.estimate.classification import CLASSIFICATION_METRICS
from monitor.stats.estimate.corrected import Correction, block_rows
from monitor.stats.estimate.hajek import Excess
from monitor.stats.histograms import CalibrationCurve, ConfidenceHistogram, Distributions

DrawnBaselines = tuple[
    dict[str, Baseline], dict[str, BaselineParts], CalibrationCurve | None, dict[str, list[HourPoint]]
]
"""From a reference: baselines and parts by metric, the calibration curve, and the windows by hour."""

_FEWEST_WINDOWS_TALLIED = 100


@dataclass(frozen=True, slots=True)
class SeriesSettings:
    """The settings of a series, which is one model of a task, or one group of its answers.

    Parameters
    ----------
    task_name, model, group : str
        The names. `group` is ``""`` for the whole model.
    task : Task
        The task's section of the configuration.
    """

    task_name: str
    model: str
    group: str
    task: Task

    @property
    def name(self) -> SeriesName:
        """The task, model and group of this series."""
        return SeriesName(self.task_name, self.model, self.group)

    @property
    def positive(self) -> int:
        """The index of the positive class, if there are two classes; see `Task.positive_index`."""
        return self.task.positive_index

    @property
    def windows_tallied(self) -> int:
        """The number of newest windows whose labelled rows are counted.

        These windows contain all answers that the label join can store.
        """
        return max(_FEWEST_WINDOWS_TALLIED, self.task.labels.max_answers // self.task.window.size)

    @property
    def errors_kept(self) -> tuple[int, Collection[str]]:
        """The number of newest windows whose estimated errors are kept for labels, and their metrics."""
        return self.windows_tallied, self.task.error_units

    @property
    def silent_after_seconds(self) -> float:
        """The time without answers after which the model is silent."""
        return self.task.silent_after_seconds

    @property
    def judge(self) -> JudgeSettings:
        """The settings of the series' `Judge`, which applies charts and objectives."""
        named = ", ".join(filter(None, (self.task_name, self.model, self.group)))
        return JudgeSettings(self.task, named)

    def feature_watch(self, reference: Reference | None, state: FeaturesState | None) -> FeatureWatch | None:
        """Return the check of the model's input features; None for a group, or if there are no features."""
        task = self.task
        if self.group or not task.features:
            return None
        windows = self.judge.baseline_windows
        if reference is None:
            return FeatureWatch(task, None, windows, state)
        rows = reference
        return FeatureWatch(
            task, lambda: rows.feature_baseline(task.features, task.window.size), windows, state
        )

    def correcting(self, reference: Reference | None, first_row: int, state: CorrectingState) -> Correcting:
        """Return the object that corrects the accuracy by labels; its settings come from the reference."""
        method, size = self.task.calibration.reference_method, self.task.window.size

        def correction() -> Correction:
            if reference is None or method == "none":
                return Correction.unknown(size)
            return reference.correction(method, size, self.group)

        return Correcting(correction, block_rows(size), first_row, state)

    def build(self, reference: Reference | None, resume: SeriesSnapshot | None = None) -> Series:
        """Return the series, new or resumed from a snapshot.

        Raises
        ------
        ValueError
            The calibration cannot be fitted on the reference; the text gives the reason.
        """
        return Series(self, reference, resume)


class SeriesSnapshot(ChecksState, frozen=True, kw_only=True):
    """The whole state of a series, without its settings.

    The fields of `ChecksState` and of `OutputState` are fields of this struct, too.
    """

    windows: WindowState | None = None
    versions: VersionState = VersionState()
    judge: JudgeState | None = None
    tally: TallyState | None = None
    duplicates: int = 0
    used: int = 0
    last_arrival: float = -np.inf
    judged_version: str = ""
    confidences: ConfidenceHistogram = ConfidenceHistogram()
    reference_curve: CalibrationCurve | None = None
    fits: int = 0
    calibration: CalibrationState | None = None
    recalibration: RecalibrationState | None = None
    last: LastWindow | None = None
    fitted: Sequence[SavedEstimate] = ()
    rebaselines: Sequence[NotedRebaseline] = ()
    unreported: Sequence[tuple[str, str]] = msgspec.field(default=(), name="untold")
    rivals: ComparisonFits | None = None
    # The calibration before the open window's; older versions stored a group's as a pair with its shift.
    former: dict[str, Any] | tuple[dict[str, Any], float] | None = None
    unusable: Mapping[str, tuple[int, int]] = {}
    features: FeaturesState | None = None

    def without_baseline(self) -> SeriesSnapshot:
        """Return the state without the results of a baseline: calibration, charts, objectives, checks."""
        window = self.windows.number if self.windows else 0
        return msgspec.structs.replace(
            self,
            **msgspec.structs.asdict(self.restarted(window)),
            judge=None,
            calibration=None,
            reference_curve=None,
            recalibration=self.recalibration and self.recalibration.restarted(window),
            last=self.last and msgspec.structs.replace(self.last, charts=[]),
            features=None,
        )


class Series:
    """A running series: the windows, checks, charts and reports of one model, or of one group of its answers.

    `push`, `tick` and `end` return closed windows. `close` makes the report of a closed window.
    """

    def __init__(
        self, settings: SeriesSettings, reference: Reference | None, resume: SeriesSnapshot | None = None
    ) -> None:
        state = resume or SeriesSnapshot()
        task = settings.task
        self.settings = settings
        cut = task.window
        window = CountWindow(cut.size, cut.min_size, cut.max_age_seconds, settings.name)
        self._windows: WindowLogic = window.build(state.windows)
        self._versions = VersionTracker(task.window.min_size, state.versions)
        self._judge: Judge = settings.judge.build(state.judge)
        self.tally = Tally(settings.windows_tallied, task.labels.horizon_seconds, state.tally)
        correction = settings.correcting(reference, self._windows.first_row, state.correction)
        by_class = any(metric in CLASSIFICATION_METRICS[1:] for metric in task.metrics)
        self.checks = LabelChecks(task.level, correction, by_class, state, *settings.errors_kept)
        former = state.former[0] if isinstance(state.former, tuple) else state.former
        self._former = None if former is None else calibration_from_snapshot(former)
        self.duplicates = state.duplicates
        self._used = state.used
        self._last_arrival = state.last_arrival
        self._silent, self._changed = False, True
        self._view: SeriesView | None = None
        self.without_baseline = ""
        """The reason why a group gets no baseline from its windows in the reference; ``""`` if it does."""
        self._judged_version = state.judged_version
        self._fits = state.fits
        output = OutputState(state.last, state.fitted, state.rebaselines, state.unreported)
        self._output = SeriesOutput(task, settings.name, self.tally, self.checks.correction, output)
        self._confidences = state.confidences
        self._reference_curve = state.reference_curve
        self._unusable = dict(state.unusable)
        self._features = settings.feature_watch(reference, state.features)
        self._reference = reference
        self._errors = ErrorEstimator(task, reference, settings.group)
        saved = state.calibration
        self.active = ActiveCalibration.resumed(saved, task, reference, state.fits, settings.group)
        self._comparisons = ComparisonEstimators(task, reference, self.active.calibration, state.rivals)
        self.recalibration = schedule_of(task.relabelled_every, settings.group, state.recalibration)
        if reference is not None:
            self._begin(reference, state)

    def _begin(self, reference: Reference, state: SeriesSnapshot) -> None:
        """Compute the parts of the state that the snapshot does not contain from the reference."""
        if state.calibration is None:
            self._start(reference, fitted=state.rivals is not None)
        elif state.judge is not None and state.judge.by_labels is None:
            self._learn_by_labels(reference, state)
        if not self.settings.group:
            self.checks.begin(self.active, reference)

    def _start(self, reference: Reference, fitted: bool) -> None:
        """Compute the charts' limits from the reference.

        Parameters
        ----------
        reference : Reference
        fitted : bool
            Whether the snapshot contains fitted comparison estimators. Limits cached in the reference are
            then invalid.
        """
        task = self.settings.task
        if reference.version and not self._versions.current:
            seeded = msgspec.structs.replace(self._versions.snapshot(), current=reference.version)
            self._versions = VersionTracker(task.window.min_size, seeded)
            self._judged_version = reference.version
        method, group = self.active.view.method, self.settings.group

        def draw() -> DrawnBaselines:
            windows = reference_windows(method, reference, group, task, self.settings.positive, self._errors)
            judged = [self._comparisons.judged(window).for_charts() for window in windows]
            curve = None if group or not windows else reference_curve(windows, reference, task.window.size)
            parts = reference_parts(windows, reference, group, task)
            return baselines(judged), parts, curve, reference_hours(judged, reference, group, task)

        drawing = draw() if fitted else reference.cached_baselines(task, group, draw)
        baseline, parts, self._reference_curve, hours = drawing
        try:
            self._judge.set_baseline(baseline, parts, hours)
        except ConfigError as error:
            if not self.settings.group:
                raise
            # A small group must not keep the agent from starting: the stream's windows make its baseline.
            self.without_baseline = str(error)
        else:
            by_labels = reference_by_labels(reference, group, task.window.size)
            self._judge.set_baseline_by_labels(by_labels)

    def _learn_by_labels(self, reference: Reference, state: SeriesSnapshot) -> None:
        """Set the baseline of the labelled accuracy if the state of an older version lacks it.

        If the charts' baseline is no longer the reference, nothing is set. This happens after a rebaseline,
        and for another version of the model.
        """
        rebaselined = any(each.metric in SHARES for each in state.rebaselines)
        if not rebaselined and state.judged_version == reference.version:
            size, group = self.settings.task.window.size, self.settings.group
            self._judge.set_baseline_by_labels(reference_by_labels(reference, group, size))

    def window_sds(self) -> dict[str, float]:
        """Return the standard deviation between windows of each metric; see `Judge.window_sds`."""
        return self._judge.window_sds()

    @property
    def changed(self) -> bool:
        """True if the state has changed since the last checkpoint."""
        return self._changed

    @changed.setter
    def changed(self, changed: bool) -> None:
        self._changed = changed
        if changed:
            self.invalidate_view()

    def invalidate_view(self) -> None:
        """Drop the cached view, because something that it shows has changed."""
        self._view = None

    def push(
        self,
        rows: AnswerRows,
        piece: slice,
        partitions: tuple[str, ...],
        version: Ints,
        names: tuple[str, ...],
        numbers: Ints,
    ) -> list[ClosedWindow]:
        """Add the rows of a batch that belong to this series, and return the windows that the rows closed.

        Parameters
        ----------
        rows : AnswerRows
            The m rows of the batch, sorted by series.
        piece : slice
            The rows of this series, at least one.
        partitions : tuple of str
            The names of partitions; `rows.partition` holds indices into them.
        version : (m,) int64
            The index of each row's version in `names`. It is not read if there is only one name.
        names : tuple of str
            The names of versions.
        numbers : (m,) int64
            An output array. The method writes the number of each row's window into it.
        """
        self.changed = True
        self._last_arrival, self._silent = float(rows.arrival[piece.stop - 1]), False
        if len(names) == 1 and self._versions.keeps(names[0], piece.stop - piece.start):
            return self._windows.take(rows, piece, partitions, self._versions.current, numbers)
        closed: list[ClosedWindow] = []
        codes = version[piece] if len(names) > 1 else np.zeros(piece.stop - piece.start, dtype=np.int64)
        for start, stop, current, took_over in self._versions.stretches(codes, names):
            part = slice(piece.start + start, piece.start + stop)
            if took_over and (cut := self._windows.close("version", int(rows.sequence[part.start]))):
                closed.append(cut)
            closed += self._windows.take(rows, part, partitions, current, numbers)
        return closed

    def interrupt(self, partition: str) -> None:
        """Record that another agent has read the next records of a partition, which ends its range."""
        if self._windows.interrupt(partition):
            self.changed = True

    def tick(self, now: float) -> ClosedWindow | None:
        """Close and return the open window if it is too old. Check if the model has stopped answering."""
        if self._last_arrival == -np.inf:
            self._last_arrival = now  # a model that never answered is silent from the start on
        silent = now - self._last_arrival > self.settings.silent_after_seconds
        if silent != self._silent:
            self._silent = silent
            self.invalidate_view()
        closed = self._windows.tick(now)
        if closed is not None:
            self.changed = True
        return closed

    def end(self) -> ClosedWindow | None:
        """Close the open window because the input has ended."""
        self.changed = True
        return self._windows.close("end")

    def rebaseline(self, metric: str, reason: str, time: float) -> int:
        """End a metric's alarm, and make a new baseline from the next windows, beginning with the open one.

        Other metrics, objectives and the calibration do not change. The report of the next window mentions
        the rebaseline. A series stores its newest 20 requests. A baseline that a new version of the model has
        begun goes on, and the request only notes its reason.

        Parameters
        ----------
        metric : str
            One of the task's configured metrics.
        reason : str
            The operator's reason, for the report.
        time : float
            The time of the request, seconds since the epoch.

        Returns
        -------
        int
            The number of windows that make the new baseline, or that it lacks.

        Raises
        ------
        RequestError
            No metric has a baseline yet.
        """
        windows = self._judge.rebaseline(metric)
        self.changed = True
        self._output.note_rebaseline(metric, reason, time, self._windows.number)
        return windows

    def add_labels(
        self, window: int, labelled: int, correct: int, excess: Excess, errors: Floats | None = None
    ) -> None:
        """Add to the counts of labelled and correct rows of a window: see `Tally.add`."""
        self.tally.add(window, labelled, correct, excess, errors)
        self.changed = True

    def add_duplicates(self, count: int) -> None:
        """Add to the count of repeated answers, which are not used."""
        self.duplicates += count
        self.changed = True

    def request(self, window: ClosedWindow) -> EstimationRequest:
        """Return the input of the estimators for a window."""
        return self.active.request(window, self.settings.task)

    @property
    def open_window(self) -> tuple[WindowLogic, str]:
        """The open window, and the model's current version."""
        return self._windows, self._versions.current

    def take_fitted(self, estimates: tuple[MetricEstimate, ...]) -> None:
        """Store the estimates of a new refit. Reports show them from now on."""
        self.changed = True
        self._output.take_fitted(estimates)

    def recalibrate(
        self, calibration: Calibration, time: float, rows: RestsOn | None, epsilon: float | None = None
    ) -> None:
        """Use a new calibration from now on.

        If there was no calibration before, charts begin a new baseline, because earlier estimates are not
        comparable.

        Parameters
        ----------
        calibration : Calibration
        time : float
            The time of the newest answer in the fit, seconds since the epoch.
        rows : RestsOn or None
            The labelled rows of the fit; None if there are too few. The calibration's error is computed from
            them.
        epsilon : float, optional
            As in `LabelChecks.change_calibration`.
        """
        fits = max(self._fits, self.active.view.version)
        self._take_over(self.active.followed_by(calibration, time, fits, rows), epsilon)

    def follow(self, model: Series) -> None:
        """Use the calibration of this group's model, and the tolerance of the model's test of trust.

        A group has no fits of its own. The engine calls this method after the model was recalibrated.
        """
        if self.active.is_of(model.active):
            self.checks.inherit_tolerance(model.checks.test.epsilon)
        else:
            self._take_over(self.active.following(model.active), model.checks.test.epsilon)

    def _take_over(self, active: ActiveCalibration, epsilon: float | None = None) -> None:
        self.changed = True
        first = self.active.view.method == "none"
        if self._former is None:
            self._former = self.active.calibration
        self.active = active.begin_baseline() if first else active
        self._comparisons.refit(active.calibration)
        self.checks.change_calibration(self._windows.number, self._windows.pending, first, epsilon)
        self.checks.correction.announce(self._windows.first_row + self._windows.pending)
        if first:
            self._judge.restart()
            self._output.forget_charts()

    def close(
        self,
        window: ClosedWindow,
        evaluation: Evaluation,
        group_name: Callable[[int], str],
        *,
        is_newest: bool = True,
    ) -> WindowReport:
        """Correct a closed window by labels, judge it by charts and objectives, and return its report.

        Parameters
        ----------
        window : ClosedWindow
        evaluation : Evaluation
            The estimates of the window without labels.
        group_name : callable
            Returns the name of a group by its number in `window.groups`.
        is_newest : bool
            Whether exporters can see the window before the next one closes. The confusion matrix of another
            window is not computed.
        """
        self.changed = True
        self._follow_version(window)
        self.active = self.active.adapted_by(evaluation)
        if (epsilon := self.active.epsilon(evaluation.adapted)) is not None:
            self.checks.test.set_tolerance(epsilon)
        self._correct(window, evaluation)
        evaluation = self._informed(window, evaluation)
        rows = PartRows(
            evaluation.confidence, window.predicted, window.groups, group_name, self.settings.task
        )
        features = None
        if self._features is not None:
            features = FeatureSplitter(self.settings.task, self._reference, self.active, window, rows)
        means = self._errors.means(window.features)
        evaluation, errors = replace(evaluation, losses=means), self._errors.estimates(means)
        charts, attributions = self._judge.judge(
            self._comparisons.judged(evaluation), window, rows, self.checks.correction, features, errors
        )
        self._used += window.size
        self._count_unusable(evaluation)
        self._confidences = self._confidences.plus(evaluation.confidence)
        self.tally.close(window.number, window.end_time)
        comparisons = self._comparisons.estimates(evaluation)
        trust = self.checks.lost_trust()
        self.checks.predict()
        lost = self.checks.close_errors(window.number, self._errors.expected(means))
        judged = charts, self._judge.objectives(self.tally, lost is None), attributions
        doubts = trust, lost, () if self._features is None else self._features.close(window.features)
        if is_newest and not self.settings.group:
            self._output.show_rows(evaluation, window.predicted)
        return self._output.report(window, evaluation, comparisons, judged, self.active.view, doubts, errors)

    def _correct(self, window: ClosedWindow, evaluation: Evaluation) -> None:
        """Add a window to the correction.

        A new calibration may have changed the confidences. The correction then gets both the old and the new
        confidences of the window's rows. A group's window may span weeks, and most of its labels may have
        come under the former calibration. So rows before the change count with the former confidences.
        """
        correction, former, self._former = self.checks.correction, self._former, None
        confidence = evaluation.confidence
        if former is not None:
            scores = calibrate(former, window.scores)
            before = confidence_of(window.scores if scores is None else scores, window.predicted)
            confidence = correction.change_calibration(before, confidence, within=bool(self.settings.group))
        correction.close(window.number, confidence)

    def _informed(self, window: ClosedWindow, evaluation: Evaluation) -> Evaluation:
        """Return the evaluation with intervals widened for the errors that labels show by predicted class."""
        model = evaluation.predictive
        if model is None or not evaluation.others:
            return evaluation
        return informed(evaluation, model, self.checks.errors.shown(model.strata, window.number))

    def corrected(self, window: int) -> MetricEstimate | None:
        """Return a window's accuracy corrected by labels, for its report; None if it is not known."""
        return self._output.corrected(window)

    def take_revision(self, window: int) -> None:
        """Update the view after a further report has been written for a window that closed earlier."""
        self._output.take_revision(window)
        self.changed = True

    def learn(self) -> bool:
        """Compute the models of errors in advance; return False if they are already computed."""
        learnt = self.active.learn(), self.checks.correction.learn(), self._errors.learn()
        return any(learnt)

    def _count_unusable(self, evaluation: Evaluation) -> None:
        if (own := evaluation.adapted) is None:
            return
        for name, missing, unseen in zip(
            self.settings.task.covariates, own.missing.tolist(), own.unseen.tolist(), strict=True
        ):
            before = self._unusable.get(name, (0, 0))
            self._unusable[name] = before[0] + missing, before[1] + unseen

    def _follow_version(self, window: ClosedWindow) -> None:
        """Begin a new baseline for a new version of the model, and mark the calibration as the old version's.

        Answers without a version count as answers of the current version. The first version that an answer
        names does not begin a new baseline.
        """
        version = window.version
        if not version:
            return
        if self._judged_version and version != self._judged_version:
            self._judge.restart()
            self.checks.restart(window.number)
            if self._features is not None:
                self._features.restart()
            self._former = None
            if self.recalibration is not None:
                self.recalibration.restart(window.number)
            self.active = self.active.for_another_version()
        self._judged_version = version

    def view(self) -> SeriesView:
        """Return an immutable view for exporters. The view is cached until its content changes."""
        if self._view is None:
            self._view = self._seen()
        return self._view

    @property
    def stale(self) -> bool:
        """True if the next call of `view` builds a new view."""
        return self._view is None

    def _seen(self) -> SeriesView:
        watch = self._features
        broken = () if watch is None else watch.broken
        return SeriesView(
            **self.settings.name._asdict(),
            share=self.settings.task.share,
            version=self._versions.current,
            state=standing(self._silent, self.checks.trusted and not broken, self._judge),
            window_size=self.settings.task.window.size,
            windows_closed=self._windows.number,
            predictions=self._used,
            duplicates=self.duplicates,
            pending=self._windows.pending,
            window_end_time=self._output.end_time,
            calibration=self.active.view,
            estimates=self._output.estimates(self._windows.number),
            values=self._output.values(self._windows.number),
            charts=self._output.charts,
            objectives=self._judge.objectives(self.tally, self.checks.errors_trusted),
            violations=dict(self._judge.violations),
            labelled=self.tally.labelled,
            correct=self.tally.correct,
            coverage=self.checks.coverage(),
            trust=self.checks.trust(),
            trust_in_errors=self.checks.trust_in_errors(),
            alarmed_since=self._judge.alarmed_since,
            attributions=tuple(self._judge.attributions.values()),
            classes=self._output.classes,
            confusion=self._output.confusion,
            rebaselining=self._output.progress_of(self._judge.rebaselining),
            seasons=self._judge.seasons,
            recalibrations=None if self.recalibration is None else self.recalibration.view(),
            distributions=self._distributions(),
            rows_unusable=self._rows_unusable(),
            features=None if watch is None else watch.newest,
            broken_features=broken,
            shared_seconds=self.settings.task.shared_seconds,
        )

    def _rows_unusable(self) -> dict[tuple[str, str], int]:
        """Return the number of answers with each feature missing or unseen: see `SeriesView`."""
        return {
            (name, why): count
            for name in self.settings.task.covariates
            for why, count in zip(("missing", "unseen"), self._unusable.get(name, (0, 0)), strict=True)
        }

    def _distributions(self) -> Distributions | None:
        if self.settings.group:
            return None
        curve = self.checks.curve  # only whole models have one
        return Distributions(
            self._confidences, curve.total, curve.current, self._output.confidences, self._reference_curve
        )

    def snapshot(self) -> SeriesSnapshot:
        """Return the whole state of the series, without the settings."""
        return SeriesSnapshot(
            windows=self._windows.snapshot(),
            versions=self._versions.snapshot(),
            judge=self._judge.snapshot(),
            tally=self.tally.snapshot(),
            **msgspec.structs.asdict(self.checks.snapshot()),
            duplicates=self.duplicates,
            used=self._used,
            last_arrival=self._last_arrival,
            judged_version=self._judged_version,
            confidences=self._confidences,
            reference_curve=self._reference_curve,
            fits=max(self._fits, self.active.view.version),
            calibration=self.active.snapshot(),
            recalibration=None if self.recalibration is None else self.recalibration.snapshot(),
            **msgspec.structs.asdict(self._output.snapshot()),
            rivals=self._comparisons.fits,
            former=None if self._former is None else dict(self._former.snapshot()),
            unusable=dict(self._unusable),
            features=None if self._features is None else self._features.snapshot(),
        )
