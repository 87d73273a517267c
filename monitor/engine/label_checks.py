"""The comparison of a series' labelled rows with its estimates, and the correction of those by them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import msgspec
import numpy as np
from numpy.typing import NDArray

from monitor.base.records import Floats, Ints
from monitor.engine.calibration import ActiveCalibration
from monitor.engine.labels.audit import AuditState, IntervalAudit, IntervalAuditLogic, first_labelled
from monitor.engine.labels.columns import Matches
from monitor.engine.labels.correcting import Correcting, CorrectingState
from monitor.engine.labels.curve import CurveFollower, CurveState
from monitor.engine.labels.trust import TrustState, TrustTest, add_together, epsilon_of
from monitor.engine.reference import Reference
from monitor.reports.trust import Trust
from monitor.reports.views import Coverage
from monitor.stats.estimate.class_bias import ClassErrors, ClassErrorsState
from monitor.stats.estimate.corrected import shifted

EXCUSED = 2.0
"""Standard deviations of the forecast bias that a prediction is excused."""

_MOST_WAITING = 64  # steps whose rows wait for the audit and the curve
_Rows = tuple[Ints, Floats, NDArray[np.bool_]]  # window, confidence, whether it was right


class ChecksState(msgspec.Struct, frozen=True):
    """What the checks have taken."""

    audit: AuditState | None = None
    trust: TrustState = msgspec.field(default_factory=TrustState)
    prediction: TrustState = msgspec.field(default_factory=TrustState)
    correction: CorrectingState = CorrectingState()
    curve: CurveState = CurveState()
    errors: ClassErrorsState = ClassErrorsState()

    def begun_anew(self, window: int) -> ChecksState:
        """Where they begin anew with this window; of the correction nothing: another reference comes."""
        audit = self.audit and self.audit.begun_anew(window)
        return ChecksState(
            audit,
            self.trust.begun_anew(window),
            self.prediction.begun_anew(window),
            curve=self.curve.begun_anew(window),
            errors=ClassErrorsState(window),
        )


class LabelChecks:
    """Audit, calibration curve, tests and correction of one series, fed with the same rows.

    Two tests take the rows as they come. `test` holds them against their confidences, and asks for a
    recalibration. `prediction` holds them against what the correction by the labels before the newest closed
    window's end says of them: the accuracy that is shown first, so that this one decides on trust. Rows of
    which it is not known what calibration announced them are left out of it. Once it has cost the trust, the
    next window's close brings another prediction and a fresh test of that.

    The others take them in whatever pieces: with many models a step brings each of them a row or two, which
    wait for the next question. The correction is asked at each window, the others where somebody looks.

    A group has both tests and a correction alone. Its batches of 30 labels are too few for an audit, and its
    curve would be three more families of metrics for each group; both hold for its model, of whose labels
    its own are part.

    Parameters
    ----------
    level : float
        Of the intervals.
    correction : Correcting
    by_class : bool
        Whether a metric asks for the errors by predicted class.
    state : ChecksState, optional
        A snapshot, or that of a series, which holds one.
    """

    def __init__(
        self, level: float, correction: Correcting, by_class: bool, state: ChecksState | None = None
    ) -> None:
        state = state or ChecksState()
        self._audit = IntervalAudit(level).build(state.audit)
        self.test = TrustTest(level=level).build(state.trust)
        self.prediction = TrustTest(level=level).build(state.prediction)
        self._excused = state.prediction.epsilon is not msgspec.UNSET
        self.correction = correction
        self._curve = CurveFollower(state.curve)
        self._waiting: list[_Rows] = []  # for the audit and the curve
        self._by_class = by_class
        self.errors = ClassErrors(state.errors)
        """Of the labelled rows by window and predicted class."""
        self._excuses_nothing = state.trust.epsilon is msgspec.UNSET

    @property
    def trusted(self) -> bool:
        """Whether labels have not contradicted the predicted accuracy, or no longer do."""
        return self.prediction.trusted

    @property
    def audit(self) -> IntervalAuditLogic:
        """The audit of the intervals, of all rows so far."""
        self._take_waiting()
        return self._audit

    @property
    def curve(self) -> CurveFollower:
        """The calibration curve, of all rows so far."""
        self._take_waiting()
        return self._curve

    def correct(
        self,
        window: Ints,
        block: Ints,
        predicted: Ints,
        confidence: Floats,
        right: NDArray[np.bool_],
    ) -> None:
        """Give the correction, and the errors by class, rows that have just got their first labels.

        Parameters
        ----------
        window, block, predicted : (n,) int64
        confidence : (n,) float64
        right : (n,) bool
        """
        self.correction.add(block, confidence, right)
        if self._by_class:
            self.errors.add(window, predicted, confidence, right)

    def wait_with(self, window: Ints, confidence: Floats, right: NDArray[np.bool_]) -> None:
        """Keep rows that the test of trust has taken until the others are asked."""
        self._waiting.append((window, confidence, right))
        if len(self._waiting) == _MOST_WAITING:
            self._take_waiting()

    def _take_waiting(self) -> None:
        if not self._waiting:
            return
        rows = _joined(self._waiting)
        self._waiting.clear()
        self._audit.add(*rows)
        self._curve.add(*rows)

    def begin(self, active: ActiveCalibration, reference: Reference) -> None:
        """Learn how sure the calibration is that a series with a reference starts with, where that is new.

        Parameters
        ----------
        active : ActiveCalibration
        reference : Reference
            What it was fitted on.
        """
        if self._excuses_nothing and active.view.version > 0:
            known = active.confidence(reference.scores, reference.predicted)
            self.test.recalibrated(0, epsilon_of(known))

    def excuse(self, epsilon: float) -> None:
        """What a group's calibration excuses, as that is its model's, where nothing was excused so far."""
        if self._excuses_nothing or (self.test.trust() is None and not self.test.epsilon):
            self.test.recalibrated(0, epsilon)
            self._excuses_nothing = False

    def recalibrated(self, window: int, pending: int, first: bool, epsilon: float | None = None) -> None:
        """A refit brought a calibration while so many rows stood in this open window.

        Parameters
        ----------
        window : int
            The open one's number.
        pending : int
            Its rows, whose confidences the former calibration gave.
        first : bool
            None held before: audit and calibration curve begin anew, as the test does.
        epsilon : float, optional
            What the uncertainty of one that labels brought excuses: then they begin anew too, as the
            intervals before were those that the labels spoke against.
        """
        clean = window + (pending > 0)
        self.test.recalibrated(clean, epsilon)
        self.errors.begin_anew(clean)
        if first:
            self.test.begin_anew(clean)
        if first or epsilon is not None:
            self.audit.begin_anew(clean)
            self.curve.begin_anew(clean)

    def begin_anew(self, window: int) -> None:
        """Another version of the model, or another baseline, from this window on."""
        self.audit.begin_anew(window)
        self.test.begin_anew(window)
        self.prediction.begin_anew(window)
        self.correction.restarted()
        self.errors.begin_anew(window)
        self.curve.begin_anew(window)

    def coverage(self) -> Coverage | None:
        """How often the intervals held; None before there are 30 rows."""
        return self.audit.coverage()

    def predict(self) -> None:
        """Hold rows from here on against what the correction says now."""
        self._excused = self.correction.predict()
        if self._excused:
            self._excuse()

    def _excuse(self) -> None:
        self.prediction.predicted(EXCUSED * self.correction.forecast.deviation)

    def prediction_terms(self) -> tuple[float, float]:
        """Return what the logits of confidences are multiplied by, and the mean of the forecast bias."""
        if not self._excused:
            self._excuse()
            self._excused = True
        return self.correction.stretch, self.correction.forecast.mean

    def trust(self) -> Trust | None:
        """Where the tests stand; None before the first row."""
        trust, of_confidences = self.prediction.trust(), self.test.trust()
        biased = None if of_confidences is None else of_confidences.bias
        if biased is None:
            return trust
        return replace(trust or Trust(self.trusted, self.prediction.evidence, 0), confidences=biased)

    def lost_trust(self) -> Trust | None:
        """Where the tests stand once trust is lost, else None."""
        return None if self.trusted else self.trust()

    def snapshot(self) -> ChecksState:
        """By name."""
        self._take_waiting()
        return ChecksState(
            self._audit.snapshot(),
            self.test.snapshot(),
            self._of_prediction(),
            self.correction.snapshot(),
            self._curve.snapshot(),
            self.errors.snapshot(),
        )

    def _of_prediction(self) -> TrustState:
        state = self.prediction.snapshot()
        return state if self._excused else msgspec.structs.replace(state, epsilon=msgspec.UNSET)


class FirstLabels:
    """The rows of a step that get their first labels, by series, to be taken up to places of the stream.

    Parameters
    ----------
    matches : Matches
        Sorted by sequence.

    Attributes
    ----------
    window, block, predicted, confidence, right : (n,) array
        Of each row, as in `Matches`.
    """

    def __init__(self, matches: Matches) -> None:
        matches = matches.take(np.argsort(matches.series.astype(np.int32), kind="stable"))
        first, self.right = first_labelled(matches)
        self.window, self.block = matches.window[first], matches.block[first]
        self.predicted = matches.predicted[first]
        self.confidence, self._sequence = matches.confidence[first], matches.sequence[first]
        of = matches.series[first]
        self._left = {int(of[piece.start]): piece for piece in _pieces(of)}

    def __iter__(self) -> Iterator[int]:
        return iter(list(self._left))

    def take(self, series: int, up_to: int | None = None) -> slice:
        """Return where the rows of a series are that have not been taken, up to this sequence or all."""
        left = self._left.pop(series, slice(0, 0))
        stop = left.stop
        if up_to is not None:
            piece = self._sequence[left]
            stop = left.start + int(piece.searchsorted(up_to, side="right"))
            self._left[series] = slice(stop, left.stop)
        return slice(left.start, stop)


def hold_against(checks: Sequence[LabelChecks], matches: Matches, audited: bool) -> list[int]:
    """Hold labelled rows against confidences and predictions, of all series at once.

    Parameters
    ----------
    checks : sequence of LabelChecks
        Of each series, by the place that stands in `matches.series`.
    matches : Matches
        Sorted by series, then by sequence.
    audited : bool
        Whether the series are whole models.

    Returns
    -------
    list of int
        The places of the series whose confidences one of these rows was the one to contradict.
    """
    first, right = first_labelled(matches)
    of, window, confidence = matches.series[first], matches.window[first], matches.confidence[first]
    cost = add_together([each.test for each in checks], of, window, confidence, right)
    _test_predictions(checks, of, window, matches.block[first], confidence, right)
    for piece in _pieces(of) if audited else ():
        checks[of[piece.start]].wait_with(window[piece], confidence[piece], right[piece])
    return cost


def _test_predictions(
    checks: Sequence[LabelChecks],
    of: Ints,
    window: Ints,
    block: Ints,
    confidence: Floats,
    right: NDArray[np.bool_],
) -> None:
    """Hold rows, which are sorted by series, against what the correction of each predicts."""
    factor, shift = np.array([each.prediction_terms() for each in checks]).reshape(-1, 2)[of].T
    moved = [checks[of[piece.start]].correction.moved(block[piece]) for piece in _pieces(of)]
    predicted = shifted(confidence, factor, shift + np.concatenate([np.zeros(0), *moved]))
    add_together([each.prediction for each in checks], of, window, predicted, right)


def _joined(rows: Sequence[_Rows]) -> _Rows:
    window, confidence, right = map(np.concatenate, zip(*rows, strict=True))
    return window, confidence, right


def _pieces(of: Ints) -> list[slice]:
    """The rows of each series, of rows that are sorted by series."""
    edges = [*np.flatnonzero(np.diff(of, prepend=-1)).tolist(), len(of)]
    return [slice(start, stop) for start, stop in pairwise(edges)]
