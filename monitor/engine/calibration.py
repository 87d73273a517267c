"""The calibration that a series uses, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from monitor.base.names import FeatureKind
from monitor.base.records import Floats, Ints
from monitor.config.root import Task
from monitor.config.task import COVARIATES
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
    """A calibration, of whatever method, with what is said of it."""

    fit: dict[str, Any]
    version: int
    foreign: bool
    fitted_time: float | None
    predictive: Predictive | None = None
    reference: str | None = None  # the fingerprint of the one on which calibrations for windows are fitted
    adapted: dict[str, Any] | None = None
    baseline: dict[str, Any] = {}  # the fit of the baseline's; older versions charted by the one in force


class Learnt:
    """What a reference says of a calibration's error, worked out when somebody first asks.

    It takes some twenty milliseconds, for ten thousand models minutes, and nothing asks before the model's
    first window closes or its first label comes.

    Parameters
    ----------
    learn : callable
        Called once at most.
    """

    __slots__ = ("_found", "_learn")

    def __init__(self, learn: Callable[[], Predictive]) -> None:
        self._learn = learn
        self._found: Predictive | None = None

    @property
    def known(self) -> bool:
        """Whether it has been worked out."""
        return self._found is not None

    def __call__(self) -> Predictive:
        if self._found is None:
            self._found = self._learn()
        return self._found


@dataclass(frozen=True, slots=True)
class ActiveCalibration:
    """A calibration in force.

    Parameters
    ----------
    calibration : Calibration
    view : CalibrationView
    learnt : Learnt or None
        Its error, and what varies between windows; None where intervals are to be exact, or nothing is
        known of it.
    reference : Reference or None
        Where each window has a calibration of its own: what those are fitted on.
    features : mapping of str to {"number", "text"}
        By which they are.
    adapted : Calibration or None
        That of the newest closed window; None before the first.
    baseline : Calibration or None
        The one with which the charts' baseline began, by which they judge calibration errors: a new
        calibration moves these errors, though the model is as it was. None where it is this one.
    """

    calibration: Calibration
    view: CalibrationView
    learnt: Learnt | None = None
    reference: Reference | None = None
    features: Mapping[str, FeatureKind] = field(default_factory=dict)
    adapted: Calibration | None = None
    baseline: Calibration | None = None

    @classmethod
    def at_start(
        cls, task: Task, reference: Reference | None, fits: int, group: str = ""
    ) -> ActiveCalibration:
        """The one fitted on the reference, or none where there is none.

        Parameters
        ----------
        task : Task
        reference : Reference or None
        fits : int
            How often a calibration was fitted before.
        group : str
            Of the series.

        Raises
        ------
        ValueError
            The reference cannot carry the method, with the reason.
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
        """The one that was saved; `at_start` where none was, or for windows on another reference."""
        if saved and task.adapts and reference is not None and saved.reference != reference.fingerprint:
            return cls.at_start(task, reference, saved.version, group)
        if saved:
            return cls.from_snapshot(saved, task, reference, group)
        return cls.at_start(task, reference, fits, group)

    @classmethod
    def from_snapshot(
        cls, state: CalibrationState, task: Task, reference: Reference | None, group: str = ""
    ) -> ActiveCalibration:
        """The one that a snapshot holds; what it lacks for the intervals of `task`, from the reference."""
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
            baseline = reference.calibration(task.calibration.reference_method)  # a store without one
        return replace(active, adapted=adapted, baseline=baseline)

    def _by_window(self, task: Task, reference: Reference | None) -> ActiveCalibration:
        """With calibrations for single windows, where the task asks for them."""
        if not task.adapts or reference is None:
            return self
        reference.covariates(task.features)  # what it raises, it raises at the start
        return replace(self, reference=reference, features=task.features)

    def _learning(self, task: Task, reference: Reference | None, group: str) -> ActiveCalibration:
        """The same with what a reference says, where there is one and predictive intervals are wanted."""
        if task.interval != PREDICTIVE or reference is None:
            return self
        method, number = task.calibration.reference_method, self.view.version
        learnt = Learnt(lambda: replace(reference.predictive(method, group), number=number))
        short = None if reference.shows_variation(method) else len(reference.labels)
        view = replace(self.view, interval=PREDICTIVE, short_reference=short)
        return replace(self, view=view, learnt=learnt)

    def with_predictive(self, predictive: Predictive | None) -> ActiveCalibration:
        """The same calibration with these intervals."""
        short = None if predictive is None or predictive.components else predictive.rows
        interval = EXACT if predictive is None else PREDICTIVE
        view = replace(self.view, interval=interval, short_reference=short)
        learnt = None
        if predictive is not None:
            learnt = Learnt(lambda: predictive)
            learnt()
        return replace(self, view=view, learnt=learnt)

    @property
    def predictive(self) -> Predictive | None:
        """Its error, and what varies between windows: see `learnt`."""
        return None if self.learnt is None else self.learnt()

    def learn(self) -> bool:
        """Work out what nobody has asked for yet; whether there was anything."""
        if self.learnt is None or self.learnt.known:
            return False
        self.learnt()
        return True

    def snapshot(self) -> CalibrationState:
        """The calibration with what is said of it."""
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
        """Scores of answers as they come, by this calibration; None where there is none.

        Where each window has its own it is by that of the newest closed one: a label that comes while its
        answer's window is open must not wait.

        Parameters
        ----------
        scores : (n, K) float64
            Raw.

        Returns
        -------
        (n, K) float64 or None
        """
        return calibrate(self.adapted or self.calibration, scores)

    def confidence(self, scores: Floats, predicted: Ints) -> Floats:
        """The probability that each answer is right, by `calibrated`; raw where there is no calibration.

        Parameters
        ----------
        scores : (n, K) float64
            Raw.
        predicted : (n,) int64

        Returns
        -------
        (n,) float64
        """
        calibrated = self.calibrated(scores)
        return confidence_of(scores if calibrated is None else calibrated, predicted)

    def request(self, window: ClosedWindow, task: Task) -> EstimationRequest:
        """What is to be estimated of a window by this calibration."""
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
            charted=self._charted(window),
        )
        if self.reference is None:
            return request
        return request.adapted_to(self.reference.covariates(self.features), window.features)

    def _charted(self, window: ClosedWindow) -> Floats | None:
        if self.baseline is None:
            return None
        return calibrate(self.baseline, window.scores)

    def begin_baseline(self) -> ActiveCalibration:
        """The same, with which the charts' next baseline begins."""
        return replace(self, baseline=None)

    def adapted_by(self, evaluation: Evaluation) -> ActiveCalibration:
        """The same once a window has closed: with its calibration, where it has one of its own."""
        adapted = evaluation.adapted
        if adapted is None:
            return self
        said = CovariatesView(
            adapted.effective,
            dict(zip(self.features, adapted.missing.tolist(), strict=True)),
            dict(zip(self.features, adapted.unseen.tolist(), strict=True)),
        )
        newest = adapted.calibration or self.adapted
        return replace(self, adapted=newest, view=replace(self.view, covariates=said))

    def epsilon(self, adapted: Adapted | None) -> float | None:
        """The shift in logits that a window's own calibration excuses by its error; None without one."""
        if adapted is None or adapted.calibration is None or self.reference is None:
            return None
        rows = self.reference.covariates(self.features)
        confidence = confidence_of(adapted.calibration.apply(rows.scores), rows.predicted)
        return epsilon_of(confidence, adapted.weights)

    def of_another_version(self) -> ActiveCalibration:
        """The same for a baseline of another version of the model, flagged as foreign where it was fitted."""
        begun = self.begin_baseline()
        return replace(begun, view=replace(self.view, foreign=True)) if self.view.version else begun

    def following(self, model: ActiveCalibration) -> ActiveCalibration:
        """A group's next: its model's calibration, with its own intervals."""
        predictive = self.predictive
        if predictive is not None and model.predictive is not None:
            predictive = predictive.with_curves_of(model.predictive)
        found = model.with_predictive(predictive)
        version = max(self.view.version + 1, model.view.version)  # no two of a group have one number
        return replace(found, view=replace(found.view, version=version))

    def is_of(self, model: ActiveCalibration) -> bool:
        """Whether a group has its model's calibration."""
        own, theirs = self.view, model.view
        return (own.version, own.fitted_time) == (theirs.version, theirs.fitted_time)

    def followed_by(
        self, calibration: Calibration, time: float, fits: int, rests_on: RestsOn | None = None
    ) -> ActiveCalibration:
        """The next fit.

        Parameters
        ----------
        calibration : Calibration
        time : float
            Of the newest answer that it rests on.
        fits : int
            As in `at_start`.
        rests_on : RestsOn, optional
            The rows that tell its error. Where that is not known it is taken to be what it was.
        """
        view = CalibrationView(calibration.method, fits + 1, False, time)
        predictive = self.predictive
        if predictive is not None and rests_on is not None and len(rests_on.predicted):
            confidence = confidence_of(calibration.apply(rests_on.scores), rests_on.predicted)
            predictive = predictive.refitted_on(confidence, rests_on.predicted, number=fits + 1)
        before = self.baseline or self.calibration
        return ActiveCalibration(calibration, view, baseline=before).with_predictive(predictive)
