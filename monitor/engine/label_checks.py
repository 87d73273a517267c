"""Tests a series' estimates on labelled rows, and corrects the estimates by labels."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import msgspec
import numpy as np
from numpy.typing import NDArray

from monitor.base.records import Floats, Ints
from monitor.engine.calibration import ActiveCalibration
from monitor.engine.labels.audit import AuditState, IntervalAudit, first_labelled, newest_of
from monitor.engine.labels.columns import Matches
from monitor.engine.labels.correcting import Correcting, CorrectingState
from monitor.engine.labels.curve import CurveFollower, CurveState
from monitor.engine.labels.error_trust import (
    ErrorTest,
    ErrorTestState,
    ExpectedError,
    choose_tests,
    compare_errors,
)
from monitor.engine.labels.trust import TrustState, TrustTest, add_together, epsilon_of
from monitor.engine.reference import Reference
from monitor.reports.trust import ERRORS_TESTED, Trust, join_tests
from monitor.reports.views import Coverage
from monitor.stats.estimate.class_bias import ClassErrors, ClassErrorsState
from monitor.stats.estimate.corrected import shifted

PREDICTION_TOLERANCE = 2.0
"""The tolerance of the test of predictions, in standard deviations of the forecast bias."""

_MOST_WAITING = 64  # steps whose rows may wait for the audit and the curve
_Rows = tuple[Ints, Floats, NDArray[np.bool_]]  # window, confidence, whether it was right


class ChecksState(msgspec.Struct, frozen=True):
    """The stored state of `LabelChecks`: the states of its parts."""

    audit: AuditState | None = None
    trust: TrustState = msgspec.field(default_factory=TrustState)
    prediction: TrustState = msgspec.field(default_factory=TrustState)
    correction: CorrectingState = CorrectingState()
    curve: CurveState = CurveState()
    errors: ClassErrorsState = ClassErrorsState()
    number_errors: ErrorTestState | None = None
    signed_errors: ErrorTestState | None = None

    def restarted(self, window: int) -> ChecksState:
        """Return the state with all checks restarted at this window, and with an empty correction."""
        audit = self.audit and self.audit.restarted(window)
        return ChecksState(
            audit,
            self.trust.restarted(window),
            self.prediction.restarted(window),
            curve=self.curve.restarted(window),
            errors=ClassErrorsState(window),
            number_errors=self.number_errors and self.number_errors.restarted(window),
            signed_errors=self.signed_errors and self.signed_errors.restarted(window),
        )


class LabelChecks:
    """The checks and the correction of one series' estimates by its labelled rows.

    A labelled row is an answer with its label. The parts are an audit of the intervals, a calibration curve,
    two tests and a correction. The two tests use each labelled row at once:

    * `test` compares rows with their confidences. If it fails, it requests a recalibration.
    * `prediction` compares rows with the accuracy that the correction predicted when the newest window
      closed. This accuracy was published before the rows' labels came. Therefore `prediction` decides whether
      the estimates are trusted. It leaves out rows whose calibration is not known. After a loss of trust, the
      next closed window gives a new prediction, and the test restarts.

    With many models, each step has only one or two labelled rows of a model. To save time, the audit and the
    curve collect these rows. They process the collected rows when 64 steps have added rows, or when the audit
    or the curve is read.

    A group has only the two tests and a correction. It has too few batches of 30 labels for an audit, and a
    curve would add three families of metrics for each group. The model's audit and curve include the rows of
    its groups.

    Parameters
    ----------
    level : float
        The level of the intervals.
    correction : Correcting
        The correction of the series' estimates, which also makes the predictions.
    by_class : bool
        Whether a metric needs the errors of each predicted class.
    state : ChecksState, optional
        A snapshot of the checks or of the whole series.
    errors_kept : int
        The number of newest windows whose estimated errors are tested.
    error_metrics : collection of str
        The metrics of errors; by default none.
    """

    def __init__(
        self,
        level: float,
        correction: Correcting,
        by_class: bool,
        state: ChecksState | None = None,
        errors_kept: int = 0,
        error_metrics: Collection[str] = (),
    ) -> None:
        state = state or ChecksState()
        self._audit = IntervalAudit(level, state.audit)
        self.test = TrustTest(level=level, resume=state.trust)
        self.prediction = TrustTest(level=level, resume=state.prediction)
        self._tolerance_is_known = state.prediction.epsilon is not msgspec.UNSET
        self.correction = correction
        self._curve = CurveFollower(state.curve)
        self._waiting: list[_Rows] = []  # for the audit and the curve
        self._by_class = by_class
        self.errors = ClassErrors(state.errors)
        """The errors of the labelled rows by window and predicted class."""
        self._has_no_tolerance = state.trust.epsilon is msgspec.UNSET
        stored = {"mae": state.number_errors, "bias": state.signed_errors}
        self.error_tests = {
            metric: ErrorTest(errors_kept, level, stored[metric], signed=metric == "bias")
            for metric in choose_tests(error_metrics)
        }
        """The tests of the estimated errors of predicted numbers, by metric."""

    @property
    def trusted(self) -> bool:
        """False if labels contradict the predicted accuracy, otherwise True."""
        return self.prediction.trusted

    @property
    def errors_trusted(self) -> bool:
        """False if labels contradict the estimated errors, otherwise True."""
        return all(each.test.trusted for each in self.error_tests.values())

    @property
    def audit(self) -> IntervalAudit:
        """The audit of the intervals, including all labelled rows so far."""
        self._take_waiting()
        return self._audit

    @property
    def curve(self) -> CurveFollower:
        """The calibration curve, including all labelled rows so far."""
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
        """Add rows that have just got their first labels to the correction of the accuracy.

        The rows are also added to the errors of each predicted class.

        Parameters
        ----------
        window : (n,) int64
            The number of each row's window.
        block : (n,) int64
            For each row, the number in the series of the first row of its block; -1 if unknown. A block is a
            run of successive rows for which the correction estimates one bias.
        predicted : (n,) int64
            The predicted class of each row.
        confidence : (n,) float64
        right : (n,) bool
            Whether the predicted class is the label.
        """
        self.correction.add(block, confidence, right)
        if self._by_class:
            self.errors.add(window, predicted, confidence, right)

    def keep_for_later(self, window: Ints, confidence: Floats, right: NDArray[np.bool_]) -> None:
        """Store rows that the audit and the curve will use when one of them is read.

        The two tests have already used these rows.

        Parameters
        ----------
        window : (n,) int64
            The number of each row's window.
        confidence : (n,) float64
        right : (n,) bool
            Whether the predicted class is the label.
        """
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
        """Set the tolerance of `test` from the error of a calibration fitted on a reference.

        If the tolerance is already set, do nothing.

        Parameters
        ----------
        active : ActiveCalibration
        reference : Reference
            The reference of the fit. The tolerance is the uncertainty of the calibration, computed from these
            rows.
        """
        if self._has_no_tolerance and active.view.version > 0:
            known = active.confidence(reference.scores, reference.predicted)
            self.test.change_calibration(0, epsilon_of(known))

    def inherit_tolerance(self, epsilon: float) -> None:
        """Set the tolerance of a group's `test` to that of its model's `test`, unless it is set already.

        Parameters
        ----------
        epsilon : float
            The tolerance of the model's test, in logits.
        """
        if self._has_no_tolerance or (self.test.trust() is None and not self.test.epsilon):
            self.test.change_calibration(0, epsilon)
            self._has_no_tolerance = False

    def change_calibration(
        self, window: int, pending: int, first: bool, epsilon: float | None = None
    ) -> None:
        """Adapt the checks to a new calibration.

        Parameters
        ----------
        window : int
            The number of the open window.
        pending : int
            The number of rows in the open window. Their confidences come from the previous calibration.
        first : bool
            True if there was no calibration before. In this case the audit, the calibration curve and `test`
            restart.
        epsilon : float, optional
            The tolerance of `test`, in logits, for the uncertainty of a calibration fitted on labels. If it
            is set, the audit and the curve restart, because labels contradicted the previous intervals.
        """
        clean = window + (pending > 0)
        self.test.change_calibration(clean, epsilon)
        self.errors.restart(clean)
        if first:
            self.test.restart(clean)
        if first or epsilon is not None:
            self.audit.restart(clean)
            self.curve.restart(clean)

    def restart(self, window: int) -> None:
        """Restart all checks at this window, because a new version of the model or a new baseline begins."""
        self.audit.restart(window)
        self.test.restart(window)
        self.prediction.restart(window)
        for each in self.error_tests.values():
            each.test.restart(window)
        self.correction.restart()
        self.errors.restart(window)
        self.curve.restart(window)

    def coverage(self) -> Coverage | None:
        """Return the share of intervals that contained the true accuracy, over batches of 30 labelled rows.

        The result is None until the first batch is full.
        """
        return self.audit.coverage()

    def predict(self) -> None:
        """Predict the accuracy from the labels so far. Later labels test this prediction."""
        self._tolerance_is_known = self.correction.predict()
        if self._tolerance_is_known:
            self._update_tolerance()

    def _update_tolerance(self) -> None:
        self.prediction.begin_prediction(PREDICTION_TOLERANCE * self.correction.forecast.deviation)

    def prediction_terms(self) -> tuple[float, float]:
        """Return two numbers that turn a confidence into the predicted probability of being right.

        The logit of the confidence is multiplied by the first number. The second number, the forecast bias in
        logits, is added to the product.
        """
        if not self._tolerance_is_known:
            self._update_tolerance()
            self._tolerance_is_known = True
        return self.correction.stretch, self.correction.forecast.mean

    def trust(self) -> Trust | None:
        """Return the results of the tests `test` and `prediction`; None before the first labelled row."""
        trust, of_confidences = self.prediction.trust(), self.test.trust()
        biased = None if of_confidences is None else of_confidences.bias
        if biased is None:
            return trust
        return replace(trust or Trust(self.trusted, self.prediction.evidence, 0), confidences=biased)

    def close_errors(self, window: int, expected: Mapping[str, ExpectedError]) -> Trust | None:
        """Test the estimated errors of a window that closes, by metric: see `ErrorTest.close`."""
        return join_tests(
            [each.close(window, expected.get(metric)) for metric, each in self.error_tests.items()]
        )

    def trust_in_errors(self) -> Trust | None:
        """Return the results of the tests of estimated errors; None before the first labelled row."""
        return join_tests([each.trust() for each in self.error_tests.values()])

    def lost_trust(self) -> Trust | None:
        """Return the results of both tests if labels contradict the predictions, otherwise None."""
        return None if self.trusted else self.trust()

    def snapshot(self) -> ChecksState:
        """Return the states of the audit, the curve, the two tests and the correction."""
        self._take_waiting()
        return ChecksState(
            self._audit.snapshot(),
            self.test.snapshot(),
            self._prediction_state(),
            self.correction.snapshot(),
            self._curve.snapshot(),
            self.errors.snapshot(),
            *[
                self.error_tests[metric].snapshot() if metric in self.error_tests else None
                for metric in ERRORS_TESTED
            ],
        )

    def _prediction_state(self) -> TrustState:
        state = self.prediction.snapshot()
        return state if self._tolerance_is_known else msgspec.structs.replace(state, epsilon=msgspec.UNSET)


class FirstLabels:
    """The rows that get their first labels in one step, sorted by series.

    In a step, the engine processes a part of a chunk. Iteration yields the index of each series that still
    has rows which `take` has not returned.

    Parameters
    ----------
    matches : Matches
        The labels matched to answers in this step, sorted by sequence number.

    Attributes
    ----------
    window, block, predicted, confidence, right : (n,) array
        The columns of these rows, as in `Matches`.
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
        """Return the next rows of a series as a slice; each row is returned once.

        Parameters
        ----------
        series : int
            The number of the series.
        up_to : int, optional
            The largest sequence number of the rows to return. By default, all rows are returned.
        """
        left = self._left.pop(series, slice(0, 0))
        stop = left.stop
        if up_to is not None:
            piece = self._sequence[left]
            stop = left.start + int(piece.searchsorted(up_to, side="right"))
            self._left[series] = slice(stop, left.stop)
        return slice(left.start, stop)


def compare_with_labels(checks: Sequence[LabelChecks], matches: Matches, audited: bool) -> list[int]:
    """Run the tests of several series on their newly labelled rows, in one vectorised call.

    Parameters
    ----------
    checks : sequence of LabelChecks
        The checks of each series; `matches.series` holds indices into this sequence.
    matches : Matches
        Sorted by series, then by sequence.
    audited : bool
        True if the series are models, False if they are groups. Only models have an audit and a calibration
        curve.

    Returns
    -------
    list of int
        The indices of the series whose `test` failed at one of these rows.
    """
    first, right = first_labelled(matches)
    of, window, confidence = matches.series[first], matches.window[first], matches.confidence[first]
    cost = add_together([each.test for each in checks], of, window, confidence, right)
    _test_predictions(checks, of, window, matches.block[first], confidence, right)
    for metric in checks[0].error_tests if len(of) else ():
        errors = matches.error[newest_of(matches)[first]]
        compare_errors(
            [each.error_tests[metric] for each in checks], of, window, errors, matches.weight[first]
        )
    for piece in _pieces(of) if audited else ():
        checks[of[piece.start]].keep_for_later(window[piece], confidence[piece], right[piece])
    return cost


def _test_predictions(
    checks: Sequence[LabelChecks],
    of: Ints,
    window: Ints,
    block: Ints,
    confidence: Floats,
    right: NDArray[np.bool_],
) -> None:
    """Compare rows, which are sorted by series, with the prediction for their series."""
    factor, shift = np.array([each.prediction_terms() for each in checks]).reshape(-1, 2)[of].T
    moved = [checks[of[piece.start]].correction.moved(block[piece]) for piece in _pieces(of)]
    predicted = shifted(confidence, factor, shift + np.concatenate([np.zeros(0), *moved]))
    add_together([each.prediction for each in checks], of, window, predicted, right)


def _joined(rows: Sequence[_Rows]) -> _Rows:
    window, confidence, right = map(np.concatenate, zip(*rows, strict=True))
    return window, confidence, right


def _pieces(of: Ints) -> list[slice]:
    """Return the slice of each series' rows, for rows sorted by series."""
    edges = [*np.flatnonzero(np.diff(of, prepend=-1)).tolist(), len(of)]
    return [slice(start, stop) for start, stop in pairwise(edges)]
