"""The calibration that a series (a model, or a group of its answers) uses, and an estimate of its error."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from monitor.base.records import FeatureKind, Floats, Ints
from monitor.config.task import COVARIATES, Task
from monitor.engine.evaluate import EstimationRequest, Evaluation, calibrate
from monitor.engine.labels.trust import epsilon_of
from monitor.engine.reference import Reference
from monitor.engine.windows import ClosedWindow
from monitor.reports.views import CalibrationView, CovariatesView
from monitor.reports.window_view import EXACT, PREDICTIVE
from monitor.stats.calibration import calibration_from_snapshot
from monitor.stats.calibration.base import Calibration, confidence_of
from monitor.stats.calibration.covariates import Adapted
from monitor.stats.calibration.none import Uncalibrated
from monitor.stats.calibration.rests_on import RestsOn
from monitor.stats.estimate.predictive import Predictive


class CalibrationState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The stored state of an `ActiveCalibration`."""

    fit: dict[str, Any]
    version: int
    foreign: bool
    fitted_time: float | None
    predictive: Predictive | None = None
    reference: str | None = None  # the fingerprint of the reference of calibrations for single windows
    adapted: dict[str, Any] | None = None
    baseline: dict[str, Any] = {}  # the baseline's fit; empty in states of older versions


class LazyPredictive:
    """The model of a calibration's error, which is computed from the reference when it is first needed.

    The computation takes about twenty milliseconds. For ten thousand models, this would add minutes to the
    start. A model needs the result only when its first window closes or its first label comes.

    Parameters
    ----------
    learn : callable
        Returns the model of the error. It is called at most once.
    """

    __slots__ = ("_learn", "_predictive")

    def __init__(self, learn: Callable[[], Predictive]) -> None:
        self._learn = learn
        self._predictive: Predictive | None = None

    @property
    def known(self) -> bool:
        """True if the model of the error has been computed."""
        return self._predictive is not None

    def __call__(self) -> Predictive:
        """Return the error, computed at the first call."""
        if self._predictive is None:
            self._predictive = self._learn()
        return self._predictive


@dataclass(frozen=True, slots=True)
class ActiveCalibration:
    """The calibration that a series uses now, with its description and a model of its error.

    Parameters
    ----------
    calibration : Calibration
    view : CalibrationView
        The description of the calibration for reports and exporters.
    learnt : LazyPredictive or None
        The model of the calibration's error and of the variation between windows. None if the task is
        configured with exact intervals, or if the error is not known.
    reference : Reference or None
        The labelled rows for a task that fits a separate calibration for each window; None for other tasks.
    features : mapping of str to {"number", "text"}
        The features that the separate calibrations use, each with its kind.
    adapted : Calibration or None
        The calibration that was fitted for the newest closed window. None if there is none yet.
    baseline : Calibration or None
        The calibration that was in use when the charts' baseline began; None if it is still in use as
        `calibration`. A new calibration changes calibration errors (such as ECE) even if the model did not
        change. So charts judge the errors of the baseline's calibration.
    """

    calibration: Calibration
    view: CalibrationView
    learnt: LazyPredictive | None = None
    reference: Reference | None = None
    features: Mapping[str, FeatureKind] = field(default_factory=dict)
    adapted: Calibration | None = None
    baseline: Calibration | None = None

    @classmethod
    def at_start(
        cls, task: Task, reference: Reference | None, fits: int, group: str = ""
    ) -> ActiveCalibration:
        """Return the first calibration of a series, fitted on the reference.

        Without a reference, the scores are used as they are.

        Parameters
        ----------
        task : Task
        reference : Reference or None
        fits : int
            The number of calibrations fitted before.
        group : str
            The series' group; ``""`` for a whole model.

        Raises
        ------
        ValueError
            The method cannot be fitted on the reference; the text gives the reason.
        """
        if reference is None:
            none = Uncalibrated(max(len(task.classes), 1))
            return cls(none, CalibrationView(none.method, 0, foreign=False, fitted_time=None))
        calibration = reference.calibration(task.calibration.reference_method)
        fitted = calibration.method != "none"
        view = CalibrationView(
            method=COVARIATES if task.adapts else calibration.method,
            version=fits + 1 if fitted else 0,
            foreign=False,
            fitted_time=float(reference.time[-1]) if fitted else None,
        )
        return cls(calibration, view)._learning(task, reference, group)._by_window(task, reference)

    @classmethod
    def resumed(
        cls,
        saved: CalibrationState | None,
        task: Task,
        reference: Reference | None,
        fits: int,
        group: str = "",
    ) -> ActiveCalibration:
        """Return the saved calibration, or the result of `at_start` if there is none.

        If the task fits a calibration for each window and its reference has changed, the saved calibration is
        ignored.
        """
        if saved and task.adapts and reference is not None and saved.reference != reference.fingerprint:
            return cls.at_start(task, reference, saved.version, group)
        if saved:
            return cls.from_snapshot(saved, task, reference, group)
        return cls.at_start(task, reference, fits, group)

    @classmethod
    def from_snapshot(
        cls, state: CalibrationState, task: Task, reference: Reference | None, group: str = ""
    ) -> ActiveCalibration:
        """Return the calibration that a snapshot describes.

        Parts that the snapshot does not contain are computed from the reference.
        """
        calibration = calibration_from_snapshot(state.fit)
        method = COVARIATES if state.reference else calibration.method
        view = CalibrationView(method, state.version, state.foreign, state.fitted_time)
        active = cls(calibration, view)
        if state.predictive is None:
            active = active._learning(task, reference, group)
        elif task.interval == PREDICTIVE:
            active = active.with_predictive(state.predictive)
        active = active._by_window(task, reference)
        adapted = None if state.adapted is None else calibration_from_snapshot(state.adapted)
        baseline = None
        if state.baseline and state.baseline != state.fit:
            baseline = calibration_from_snapshot(state.baseline)
        elif not state.baseline and reference is not None and not state.foreign and state.version > 1:
            baseline = reference.calibration(task.calibration.reference_method)  # a state of an older version
        return replace(active, adapted=adapted, baseline=baseline)

    def _by_window(self, task: Task, reference: Reference | None) -> ActiveCalibration:
        """Return the calibration, with one for each single window if the task configures that."""
        if not task.adapts or reference is None:
            return self
        reference.covariates(task.covariates)  # errors must come at the start
        return replace(self, reference=reference, features=task.covariates)

    def _learning(self, task: Task, reference: Reference | None, group: str) -> ActiveCalibration:
        """Return the calibration with its error according to a reference, for predictive intervals."""
        if task.interval != PREDICTIVE or reference is None:
            return self
        method, number = task.calibration.reference_method, self.view.version
        learnt = LazyPredictive(lambda: replace(reference.predictive(method, group), number=number))
        short = None if reference.shows_variation(method) else len(reference.labels)
        view = replace(self.view, interval=PREDICTIVE, short_reference=short)
        return replace(self, view=view, learnt=learnt)

    def with_predictive(self, predictive: Predictive | None) -> ActiveCalibration:
        """Return a copy whose intervals include this model of the error; None means exact intervals."""
        short = None if predictive is None or predictive.components else predictive.rows
        interval = EXACT if predictive is None else PREDICTIVE
        view = replace(self.view, interval=interval, short_reference=short)
        learnt = None
        if predictive is not None:
            learnt = LazyPredictive(lambda: predictive)
            learnt()
        return replace(self, view=view, learnt=learnt)

    @property
    def predictive(self) -> Predictive | None:
        """The model of the calibration's error, computed at the first access; None for exact intervals."""
        return None if self.learnt is None else self.learnt()

    def learn(self) -> bool:
        """Compute the model of the calibration's error in advance.

        Return False if the model has been computed already, or if the task does not need it.
        """
        if self.learnt is None or self.learnt.known:
            return False
        self.learnt()
        return True

    def snapshot(self) -> CalibrationState:
        """Return the state of the calibration with its description."""
        view, fit = self.view, self.calibration.snapshot()
        return CalibrationState(
            fit,
            view.version,
            view.foreign,
            view.fitted_time,
            self.learnt() if self.learnt is not None and self.learnt.known else None,
            reference=None if self.reference is None else self.reference.fingerprint,
            adapted=None if self.adapted is None else self.adapted.snapshot(),
            baseline=fit if self.baseline is None else self.baseline.snapshot(),
        )

    def calibrated(self, scores: Floats) -> Floats | None:
        """Return calibrated scores of new answers, or None if there is no calibration.

        If each window has its own calibration, this method uses the calibration of the newest closed window.
        Therefore a label can be compared with an answer whose window is still open.

        Parameters
        ----------
        scores : (n, K) float64
            Raw scores.

        Returns
        -------
        (n, K) float64 or None
        """
        return calibrate(self.adapted or self.calibration, scores)

    def confidence(self, scores: Floats, predicted: Ints) -> Floats:
        """Return the probability that each answer is right.

        It is the calibrated score of the predicted class. Without a calibration, it is the raw score.

        Parameters
        ----------
        scores : (n, K) float64
            Raw scores.
        predicted : (n,) int64

        Returns
        -------
        (n,) float64
        """
        calibrated = self.calibrated(scores)
        return confidence_of(scores if calibrated is None else calibrated, predicted)

    def request(self, window: ClosedWindow, task: Task) -> EstimationRequest:
        """Return the estimators' input for a window: its rows, their calibrated scores and the settings."""
        request = EstimationRequest(
            scores=window.scores,
            predicted=window.predicted,
            calibrated=calibrate(self.calibration, window.scores),
            metrics=task.metrics,
            positive=task.positive_index,
            level=task.level,
            seed=window.number,
            average=task.average,
            predictive=self.predictive,
            charted=self.charted(window.scores),
        )
        if self.reference is None:
            return request
        return request.adapted_to(self.reference.covariates(self.features), window.features)

    def charted(self, scores: Floats) -> Floats | None:
        """Return the scores calibrated as in the baseline of the charts, (n, K).

        Charts judge the calibration errors of these scores. Otherwise each recalibration would move the
        errors although the model has not changed. The result is None if the calibration has not changed since
        the baseline began.
        """
        return None if self.baseline is None else calibrate(self.baseline, scores)

    def begin_baseline(self) -> ActiveCalibration:
        """Return a copy in which charts use the present calibration, because their baseline begins again."""
        return replace(self, baseline=None)

    def adapted_by(self, evaluation: Evaluation) -> ActiveCalibration:
        """Return a copy that stores the calibration fitted for a closed window, if there is one.

        The calibration is used for new answers. Without a new one, the newest earlier one stays in use.
        """
        adapted = evaluation.adapted
        if adapted is None:
            return self
        covariates = CovariatesView(
            adapted.effective,
            dict(zip(self.features, adapted.missing.tolist(), strict=True)),
            dict(zip(self.features, adapted.unseen.tolist(), strict=True)),
        )
        newest = adapted.calibration or self.adapted
        return replace(self, adapted=newest, view=replace(self.view, covariates=covariates))

    def epsilon(self, adapted: Adapted | None) -> float | None:
        """Return the tolerance of `TrustTest` for a calibration that is fitted for one window, in logits.

        The result is None if no calibration was fitted for the window.
        """
        if adapted is None or adapted.calibration is None or self.reference is None:
            return None
        rows = self.reference.covariates(self.features)
        confidence = confidence_of(adapted.calibration.apply(rows.scores), rows.predicted)
        return epsilon_of(confidence, adapted.weights)

    def for_another_version(self) -> ActiveCalibration:
        """Return a copy for another version of the model.

        In the copy, a fitted calibration is marked as fitted on rows of another version.
        """
        begun = self.begin_baseline()
        return replace(begun, view=replace(self.view, foreign=True)) if self.view.version else begun

    def following(self, model: ActiveCalibration) -> ActiveCalibration:
        """Return the calibration with which a group replaces this one after its model was recalibrated.

        The group takes over the calibration of its model. The model of the calibration's error remains the
        group's own.
        """
        predictive = self.predictive
        if predictive is not None and model.predictive is not None:
            predictive = predictive.with_curves_of(model.predictive)
        next_one = model.with_predictive(predictive)
        version = max(self.view.version + 1, model.view.version)  # unique among the group's
        return replace(next_one, view=replace(next_one.view, version=version))

    def is_of(self, model: ActiveCalibration) -> bool:
        """Return whether this group already has the newest calibration of its model."""
        own, theirs = self.view, model.view
        return (own.version, own.fitted_time) == (theirs.version, theirs.fitted_time)

    def followed_by(
        self, calibration: Calibration, time: float, fits: int, rests_on: RestsOn | None = None
    ) -> ActiveCalibration:
        """Return the active calibration that replaces this one after a new fit.

        Parameters
        ----------
        calibration : Calibration
        time : float
            The time of the newest answer in the fit.
        fits : int
            The number of calibrations fitted before.
        rests_on : RestsOn, optional
            The rows of the fit. The error is computed from them. Without rows, the model of the error does
            not change.
        """
        view = CalibrationView(calibration.method, fits + 1, False, time)
        predictive = self.predictive
        if predictive is not None and rests_on is not None and len(rests_on.predicted):
            confidence = confidence_of(calibration.apply(rests_on.scores), rests_on.predicted)
            predictive = predictive.refitted_on(confidence, rests_on.predicted, number=fits + 1)
        before = self.baseline or self.calibration
        return ActiveCalibration(calibration, view, baseline=before).with_predictive(predictive)
