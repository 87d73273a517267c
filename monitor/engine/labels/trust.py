"""The test of trust: a sequential test of whether labels contradict an estimate, valid at any time.

An answer has a probability c of being right, which is known before its label. The test checks whether labels
contradict these probabilities by more than a tolerance ε, a shift on the logit scale. The tolerance allows
for the uncertainty of c.

Each series has two tests (`monitor.engine.label_checks`). In the first test, c is the confidence. The
tolerance is the calibration's error (`epsilon_of`). The first test decides when to recalibrate.

The second test decides on **trust**. When a window closes, the correction by labels predicts the
probabilities of later rows (`monitor.stats.estimate.corrected`). In the second test, c is this prediction.
The tolerance is two standard deviations of the forecast bias (`begin_prediction`). The prediction is made
before the row's label comes. So the guarantee below holds while the bias of each row is within the tolerance.
In some windows the bias is larger. The next forecast follows the larger bias, so the evidence shrinks again.
In the trials, no stream without a change has lost trust in this way
(`tests/fidelity/output/trust_predicted.txt`). If the correction follows a lasting bias, trust is not lost,
unless the bias begins suddenly and each window has many labels.

**The evidence.** The test bets on shifts δ of 0.15, 0.3, 0.6 and 1.2 logits, upwards and downwards. At an
accuracy of 90 %, the downward shifts are 1.4, 2.7, 5.6 and 14 points. For each bet, a labelled row has a
likelihood ratio. The numerator is the likelihood of the row's outcome if the answer is right with probability
expit(logit c ± (ε + δ)). The denominator is the likelihood at the nearer edge of the tolerance, expit(logit c
± ε). The expected ratio is at most 1 for every true shift within ±ε, given the earlier rows. So a bet against
an honest estimate gains nothing on average.

An estimate may be wrong from the first row on, or become wrong after months. Therefore 0.8 of the stake is
set at the beginning. The rest is set on changes at every row, with weights w(s) = 0.2 H / ((H + s)(H + s +
1)) that sum to 0.2 over all of time. An accuracy lower than estimated does more harm than a higher one. So
the downward shifts have 0.8 of the stake, v = 0.1, 0.2, 0.3 and 0.2, and the upward shifts 0.05 each:

    A(0) = 0.8,   A(t) = (A(t − 1) + w(t − 1)) · ratio(t),   E(t) = Σ v A(t) + 0.2 H / (H + t).

E begins at 1 and is a non-negative supermartingale while the estimate is within ε. By Ville's inequality, the
probability that E ever reaches 20 is at most 1/20. This holds for any number of labels, and although E is
computed after each of them. After H = 2,500 labels, half of the stake on changes is spent. A later change is
detected with some more labels (ln 121 nats of evidence at 10 H). Each model and each group has its own test,
so the guarantee holds for each of them. If an estimate is too high from the first label on, the test needs at
most 1.5 times the labels of the ideal test, which knows the shift beforehand (ln 20 nats;
`tests/fidelity/output/labels_help_trust.txt`).

**Trust is lost** when E reaches 20. It stays lost (`untrusted`), even if E falls again. Only a fresh test can
restore trust. A fresh test begins after a recalibration (`change_calibration`), a new prediction
(`begin_prediction`) or another version of the model (`restart`). It concerns the strongest bet, which made
the test fail. Trust is lost with odds of 20 to 1 for the bet's shift, δ beyond the tolerance, against the
edge of the tolerance. It returns with odds of 20 to 1 for the edge against the shift, on later labels, with
the tolerance of the new calibration or prediction. So trust returns if the estimate lies within the
tolerance, even if a small bias is left. If the estimate is still wrong by δ beyond the tolerance, trust
returns with a probability of at most 5 % (for a prediction, at each close of a window). While the fresh test
runs, the test for a loss also restarts. If the test for a loss fails first, trust needs another recalibration
or prediction.

**Assumptions.** Among rows with the same score, the choice of rows for labelling does not depend on whether
the answer was right. ε covers the error of the probabilities c; `epsilon_of` computes it from the reference.
Rows need not be independent: the test uses each row's probability given the rows before it.

**When it misleads.** If complaints are used as labels, they show only wrong answers, and a good estimate
loses trust. A bias below ε is never detected. To detect a bias of two points, the test needs about 1,000
labels. In one of three cases a calibration is wrong by more than its standard error, and in the long run the
test detects that too: with a reference of 1,000 rows, 4 % of good models lose trust within 2,500 labels and 7
% within 10,000 (`tests/fidelity/output/trust.txt`). An answer counts once, with its first label.

Sources: J. Ville, *Étude critique de la notion de collectif* (1939). A. Ramdas, P. Grünwald, V. Vovk, G.
Shafer, *Game-theoretic statistics and safe anytime-valid inference*, Statistical Science 38 (2023). A. N.
Shiryaev, *On optimum methods in quickest detection problems*, Theory of Probability and Its Applications 8
(1963), for bets that begin at every row. The prior, the grid and ε are our own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from monitor.base.errors import ConfigError
from monitor.base.records import Floats, Ints
from monitor.engine.labels.bias import bias
from monitor.reports.trust import Trust

SHIFTS = (0.15, 0.3, 0.6, 1.2)
"""The shifts of the bets, in logits beyond ε; a bias between two of them is detected nearly as soon."""

ALARM = 20.0
"""The evidence at which trust is lost: odds of 20 to 1, so at most 5 % of tests ever raise a false alarm."""

PLANNED_LABELS = 2500
"""The labels after which half of the stake on changes is spent: 5 % of half a year at 270 answers a day."""

ROWS_KEPT = 1000
"""The number of newest rows kept to measure the bias: ±1.9 points at an accuracy of 90 %, 9 kB of state."""

Outcomes = NDArray[np.bool_] | Floats
"""Whether each answer is right; or outcomes between 0 and 1, whose expected values are tested."""

_STAKES = (0.1, 0.2, 0.3, 0.2, 0.05, 0.05, 0.05, 0.05)  # on shifts downwards, then upwards
_SHARE_AT_ONCE = 0.8
_AT_ONCE = np.full(len(_STAKES), _SHARE_AT_ONCE)
_MOST = 1e12  # of the evidence and of each bet: they stay finite, and can sink again within a usable time
_CHUNK = 4096  # rows whose ratios are in memory at once


def epsilon_of(confidence: Floats, weights: Floats | None = None) -> float:
    """Return the tolerance for a calibration's uncertainty, as a shift in logits.

    The tolerance is 1/√I, where I = Σ c(1 − c) is the Fisher information of the rows about a shift of all
    confidences. So the tolerance is the standard error of this shift. If the calibration was fitted on more
    rows than these, the tolerance is too large. For weighted rows, I is (Σ w c(1 − c))² / Σ w² c(1 − c), from
    the variance of the estimating equation.

    Parameters
    ----------
    confidence : (n,) float64
        The calibrated confidences of the answers that the calibration was fitted on.
    weights : (n,) float64, optional
        The weight of each row in the fit, 0 or more; by default all are equal.

    Returns
    -------
    float
        The tolerance, at most 1, because I counts as at least 1. Without rows there is no calibration, and
        the tolerance is 0.

    Examples
    --------
    >>> epsilon_of(np.full(100, 0.5)), epsilon_of(np.full(500, 0.5), np.repeat([3.0, 0.0], [100, 400]))
    (0.2, 0.2)
    """
    if not len(confidence):
        return 0.0
    weights = np.ones(len(confidence)) if weights is None else weights
    spread = confidence * (1 - confidence)
    least = float((weights**2 * spread).sum())
    information = float((weights * spread).sum()) ** 2 / least if least else 0.0
    return 1 / math.sqrt(max(information, 1.0))  # at least that of one row: certain confidences prove nothing


class TrustState(msgspec.Struct, frozen=True):
    """The state of a test of trust: the bets, the newest rows, and the shift for which trust was lost.

    Parameters
    ----------
    epsilon : float, optional
        The tolerance in logits. If unset, the settings give the tolerance.
    since : int
        The first window whose rows count.
    seen : int
        The number of rows since the test began.
    bets : (8,) float64
        The value A of each bet.
    beyond : float or None
        The shift δ, in logits beyond the tolerance, for which trust was lost; negative if the estimate was
        too high. None while the estimate is trusted.
    regained : float or None
        The evidence that the estimate is within the tolerance again. None if no fresh test has begun.
    confidence, right : (n,) array
        The newest rows: the probability c, and whether the answer was right.
    whole_shift : float or None
        The shift for which trust was lost, including the tolerance at that time. Only states of older
        versions have this field; its stored name is `found`.
    """

    epsilon: float | msgspec.UnsetType = msgspec.UNSET
    since: int = 0
    seen: int = 0
    bets: Floats = msgspec.field(default_factory=lambda: _AT_ONCE)
    beyond: float | None = None
    regained: float | None = None
    confidence: Floats = msgspec.field(default_factory=lambda: np.zeros(0))
    right: NDArray[Any] = msgspec.field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    whole_shift: float | None = msgspec.field(default=None, name="found")

    def shift_beyond(self) -> float | None:
        """Return `beyond`. A state of an older version has only `whole_shift`; return its nearest bet."""
        if self.beyond is not None or self.whole_shift is None:
            return self.beyond
        tolerance = 0.0 if self.epsilon is msgspec.UNSET else self.epsilon
        away = abs(self.whole_shift) - tolerance
        return math.copysign(min(SHIFTS, key=lambda shift: abs(shift - away)), self.whole_shift)

    def restarted(self, window: int) -> TrustState:
        """Return the state of a test that begins again with the rows of this window.

        The state has no tolerance ε of its own, so `TrustTest` uses its argument `epsilon`. Trust that was
        lost stays lost until the new test restores it.
        """
        logic = TrustTest(resume=self)
        logic.restart(window)
        return msgspec.structs.replace(logic.snapshot(), epsilon=msgspec.UNSET)


class TrustTest:
    """The running test of trust: whether labels contradict one estimate.

    The result depends on the rows and their order, not on the number of calls that add them.

    Parameters
    ----------
    epsilon : float
        The tolerated shift in logits, 0 or more: see `epsilon_of`.
    level : float
        The level of the bias's interval, above 0 and below 1.
    planned : int
        The number of labels after which half of the stake on changes is spent, 1 or more.
    resume : TrustState, optional
        A snapshot. If it has its own ε, this replaces `epsilon`.

    Raises
    ------
    ConfigError
        A number is out of its range.

    Examples
    --------
    >>> test, zeros = TrustTest(epsilon=0.1), np.zeros(200, dtype=np.int64)
    >>> _ = test.add(zeros, np.full(200, 0.9), np.arange(200) % 10 > 0)
    >>> test.trust().trusted
    True
    >>> _ = test.add(zeros, np.full(200, 0.9), np.arange(200) % 10 > 2)
    >>> trust = test.trust()
    >>> trust.trusted, round(trust.bias.value, 2), trust.bias.rows
    (False, -0.2, 200)
    """

    def __init__(
        self,
        epsilon: float = 0.0,
        level: float = 0.95,
        planned: int = PLANNED_LABELS,
        resume: TrustState | None = None,
    ) -> None:
        if not 0 <= epsilon < math.inf:
            raise ConfigError(f"epsilon must be 0 or more logits, got {epsilon}; see epsilon_of")
        if not 0 < level < 1:
            raise ConfigError(f"level must be above 0 and below 1, got {level}")
        if planned < 1:
            raise ConfigError(f"planned must be 1 label or more, got {planned}")
        state = resume or TrustState()
        self._level, self._planned = level, planned
        self._epsilon = epsilon if state.epsilon is msgspec.UNSET else state.epsilon
        self._odds: tuple[float, Floats, Floats] | None = None  # ε, and the odds of the shifts for it
        self._since, self._seen = state.since, state.seen
        self._bets = state.bets.copy()
        self._beyond, self._regained = state.shift_beyond(), state.regained
        self._confidence, self._right = state.confidence, state.right
        self._last: Trust | None = None

    @property
    def trusted(self) -> bool:
        """True if labels have not contradicted the estimate, or if a fresh test has restored trust."""
        return self._beyond is None

    @property
    def lost(self) -> bool:
        """True if trust is lost and no fresh test has begun.

        A fresh test begins with a new calibration or prediction.
        """
        return self._beyond is not None and self._regained is None

    @property
    def epsilon(self) -> float:
        """The tolerance of the test, a shift of the confidences in logits; 0 without a calibration."""
        return self._epsilon

    @property
    def evidence(self) -> float:
        """The evidence E against the estimate after the last row; trust is lost if it becomes too large."""
        return float(self._evidence(self._bets[None], self._seen)[0])

    def add(self, window: Ints, confidence: Floats, right: Outcomes) -> bool:
        """Add rows that have just got their first labels, in the order of these labels.

        Parameters
        ----------
        window : (n,) int64
            The number of each row's window. Rows of windows before the last restart are ignored.
        confidence : (n,) float64
            The probability c of each row; NaN if it is unknown. Rows with NaN are ignored.
        right : (n,) bool or float64
            Whether the answer is right by its label; or an outcome between 0 and 1, whose expected value is
            `confidence`.

        Returns
        -------
        bool
            Whether trust was lost at one of the rows, even if later rows restored it.
        """
        kept = (window >= self._since) & ~np.isnan(confidence)
        confidence, right = confidence[kept], right[kept]
        start, cost = 0, False
        while start < len(right):
            self._last, before = None, self.lost
            piece = slice(start, start + _CHUNK)
            start += self._advance(confidence[piece], right[piece])
            cost |= self.lost and not before
        return cost

    def set_tolerance(self, epsilon: float) -> None:
        """Set the tolerance for later rows, in logits. The bets do not change.

        A bet gains nothing, on average, from a row whose shift is within the tolerance of this row. So the
        guarantee holds although the tolerance changes.
        """
        self._epsilon = TrustTest(epsilon).epsilon

    def begin_prediction(self, epsilon: float) -> None:
        """Test another prediction with later rows, of any window.

        The new prediction uses all labels so far. If trust is lost, a fresh test begins. If a fresh test has
        already begun, the evidence against the previous prediction is dropped.

        Parameters
        ----------
        epsilon : float
            The tolerance for the prediction's uncertainty, in logits.
        """
        self.set_tolerance(epsilon)
        if self.lost:
            self.restart(self._since)
        elif self._regained is not None:
            self._regained = max(self._regained, 1.0)

    def change_calibration(self, window: int, epsilon: float | None = None) -> None:
        """Adapt the test to another calibration, which is used from this window on.

        While the estimate is trusted, the test continues: it compares each row with the row's own confidence.
        If trust is lost, a fresh test begins. If a fresh test has already begun, it continues, because
        frequent recalibrations would otherwise prevent its end.

        Parameters
        ----------
        window : int
            The first window whose rows all have confidences of the new calibration.
        epsilon : float, optional
            The tolerance for the new calibration's uncertainty, in logits. By default it does not change.
        """
        if epsilon is not None:
            self._epsilon = TrustTest(epsilon).epsilon
        if self._beyond is not None and self._regained is None:
            self.restart(window)

    def restart(self, window: int) -> None:
        """Begin a fresh test on rows of this and later windows. It can restore trust that was lost."""
        self._since = window
        self._seen, self._bets = 0, _AT_ONCE.copy()
        self._regained = None if self._beyond is None else 1.0
        self._confidence, self._right = self._confidence[:0], self._right[:0]
        self._last = None

    def trust(self) -> Trust | None:
        """Return the result of the test.

        The result is None before the first labelled row, except while trust is lost.
        """
        if not self._seen and self.trusted:
            return None
        if self._last is None:
            known = not self.trusted and len(self._right) > 0
            measured = bias(*self.since_change(), self._level) if known else None
            self._last = Trust(
                self.trusted, self.evidence, self._seen, measured, on_probation=self._regained is not None
            )
        return self._last

    def snapshot(self) -> TrustState:
        """Return the state of the test, from which another `TrustTest` can resume."""
        return TrustState(
            epsilon=self._epsilon,
            since=self._since,
            seen=self._seen,
            bets=self._bets.copy(),
            beyond=self._beyond,
            regained=self._regained,
            confidence=self._confidence.copy(),
            right=self._right.copy(),
        )

    def _advance(self, confidence: Floats, right: Outcomes) -> int:
        """Add rows up to the first that changes whether the estimate is trusted; return their number."""
        path = self._bets_along(confidence, right)
        alarmed = self._evidence(path, self._seen + 1 + np.arange(len(path))) >= ALARM
        used, regained = len(path), None
        if self.trusted or self._regained is not None:
            used = _count_to_first(alarmed, used)
        if self._regained is not None:
            edge, shift = self._lost_bet()
            regained = _running_products(self._regained, ratio(confidence, right, shift, edge))
            used = min(used, _count_to_first(regained >= ALARM, used))
        self._record(path[used - 1], confidence[:used], right[:used])
        if (self.trusted or self._regained is not None) and alarmed[used - 1]:
            edge, shift = self._shifts()[int(self._bets.argmax())]
            self._beyond, self._regained = shift - edge, None
            if right.dtype != np.bool_:
                self._beyond = self._nearest_to_rows()
        elif regained is not None:
            self._regained = float(regained[used - 1])
            if self._regained >= ALARM:
                self._beyond = self._regained = None
        return used

    def _record(self, bets: Floats, confidence: Floats, right: Outcomes) -> None:
        """Record tested rows, and the bets after the last of them."""
        self._last = None
        self._seen += len(right)
        self._bets = bets.copy()
        self._confidence = np.concatenate([self._confidence, confidence])[-ROWS_KEPT:]
        self._right = np.concatenate([self._right, right])[-ROWS_KEPT:]

    def _shifts(self) -> list[tuple[float, float]]:
        """Return the nearer edge of the tolerance and the shift of each bet, in logits."""
        return [
            (sign * self._epsilon, sign * (self._epsilon + shift)) for sign in (-1.0, 1.0) for shift in SHIFTS
        ]

    def _lost_bet(self) -> tuple[float, float]:
        """Return the edge of the tolerance and the shift of the bet that made the test fail, in logits."""
        assert self._beyond is not None
        edge = math.copysign(self._epsilon, self._beyond)
        return edge, edge + self._beyond

    def _nearest_to_rows(self) -> float:
        """Return the bet that is nearest to the difference of the rows since the change, in logits.

        Outcomes between 0 and 1 vary less than those of 0 and 1. So a bet on a shift that is larger than the
        true one gains most. A fresh test of such a shift would restore trust although the shift remains.
        """
        edge, _ = self._lost_bet()
        expected, shown = (np.clip(each.mean(), 1e-9, 1 - 1e-9) for each in self.since_change())
        beyond = math.log(shown / (1.0 - shown)) - math.log(expected / (1.0 - expected)) - edge
        size = min(SHIFTS, key=lambda shift: abs(shift - abs(beyond)))
        return math.copysign(size, self._lost_bet()[1])

    def _shift_odds(self) -> tuple[Floats, Floats]:
        """Return the odds ratios of `_shifts`, (8,) and (8,): of the nearer edges, and of the shifts."""
        if self._odds is None or self._odds[0] != self._epsilon:
            self._odds = self._epsilon, *_odds(self._shifts())
        return self._odds[1:]

    def _bets_along(self, confidence: Floats, right: Outcomes) -> Floats:
        """Return the bets A after each row, (n, 8).

        They are computed row by row, so that the division of rows into calls changes nothing.
        """
        ratios = _ratios(confidence, right, *self._shift_odds())
        bets, weights = self._bets, self._weights(self._seen + np.arange(len(right)))
        path = np.empty_like(ratios)
        for row, (factor, weight) in enumerate(zip(ratios, weights.tolist(), strict=True)):
            bets = path[row] = np.minimum((bets + weight) * factor, _MOST)
        return path

    def _weights(self, seen: Ints) -> Floats:
        """Return the stake on a change at each row, from the numbers of rows before it."""
        planned = self._planned
        begun = planned + seen
        weights: Floats = (1 - _SHARE_AT_ONCE) * planned / (begun * (begun + 1.0))
        return weights

    def _evidence(self, bets: Floats, seen: Ints | int) -> Floats:
        """Return the evidence E of bets A, (n, 8), after these numbers of rows. The sum has a fixed order."""
        planned = self._planned
        total = (1 - _SHARE_AT_ONCE) * planned / (planned + np.asarray(seen))
        for column, stake in enumerate(_STAKES):
            total = total + stake * bets[:, column]
        return total

    def since_change(self) -> tuple[Floats, Outcomes]:
        """Return the stored rows since the estimated change point: confidences, and whether they were right.

        The change point is the row at which the accuracy probably began to differ from the estimate: a bet on
        the difference (the one with the largest gain) would have gained most if it had begun there.
        """
        gains = np.log(ratio(self._confidence, self._right, *self._lost_bet()))
        from_here = gains[::-1].cumsum()[::-1]
        start = int(from_here.argmax()) if from_here.max() > 0 else 0
        return self._confidence[start:], self._right[start:]


def add_together(
    tests: Sequence[TrustTest], of: Ints, window: Ints, confidence: Floats, right: Outcomes
) -> list[int]:
    """Add rows to many tests in one vectorised call.

    The results equal the results of `TrustTest.add` for each test, to the last bit. The time depends on the
    largest number of rows of one test, because the loop has one step for each row of this test.

    Parameters
    ----------
    tests : sequence of TrustTest
        The tests. Their settings differ at most in ε.
    of : (n,) int64
        The index of each row's test, nondecreasing.
    window, confidence, right : (n,) array
        As in `TrustTest.add`, with the rows of each test in the order of their labels.

    Returns
    -------
    list of int
        The indices of the tests that lost trust at one of these rows.

    Examples
    --------
    >>> tests = [TrustTest(), TrustTest()]
    >>> of, sure = np.repeat([0, 1], 100), np.full(200, 0.9)
    >>> add_together(tests, of, of * 0, sure, np.arange(200) % 10 > 3 * of)
    [1]
    """
    since = np.array([test._since for test in tests])
    kept = np.flatnonzero((window >= since[of]) & ~np.isnan(confidence))
    of, confidence, right = of[kept], confidence[kept], right[kept]
    if not len(of):
        return []
    counts = np.bincount(of, minlength=len(tests))
    starts = counts.cumsum() - counts
    step = np.arange(len(of)) - starts[of]
    seen = np.array([test._seen for test in tests])[of] + step
    path = _bets_of_all(tests, of, step, counts, seen, confidence, right)
    alarmed = np.bincount(of, tests[0]._evidence(path, seen + 1) >= ALARM, minlength=len(tests)) > 0
    cost = []
    for i in np.flatnonzero(counts).tolist():
        test, piece = tests[i], slice(starts[i], starts[i] + counts[i])
        if test.lost or (test.trusted and not alarmed[i]):
            test._record(path[piece.stop - 1], confidence[piece], right[piece])
        elif test.add(np.full(counts[i], test._since), confidence[piece], right[piece]):
            cost.append(i)
    return cost


def _bets_of_all(
    tests: Sequence[TrustTest],
    of: Ints,
    step: Ints,
    counts: Ints,
    seen: Ints,
    confidence: Floats,
    right: Outcomes,
) -> Floats:
    """Return the bets after each row, (n, 8), as `TrustTest._bets_along` does for one test.

    Parameters
    ----------
    tests, of, confidence, right
        As in `add_together`.
    step, seen : (n,) int64
        The number of earlier rows of the same test: in this call, and since the test began.
    counts : (tests,) int64
        The number of rows of each test.
    """
    longest = np.argsort(-counts, kind="stable")
    rank = np.empty_like(longest)
    rank[longest] = np.arange(len(tests))
    below, above = (
        np.concatenate(each).reshape(len(tests), -1)
        for each in zip(*(test._shift_odds() for test in tests), strict=True)
    )
    # The rows of a step are adjacent, the longest tests first, so each step uses the first of the bets.
    order = np.lexsort((rank[of], step))
    along = _ratios(confidence[order], right[order], below[of[order]], above[of[order]])
    weights = tests[0]._weights(seen[order])[:, None]
    bets = np.concatenate([tests[i]._bets for i in longest.tolist()]).reshape(len(tests), -1)
    start = 0
    for many in np.bincount(step).tolist():
        rows, now = slice(start, start + many), bets[:many]
        now += weights[rows]
        now *= along[rows]
        along[rows] = np.minimum(now, _MOST, out=now)
        start += many
    path = np.empty_like(along)
    path[order] = along
    return path


def ratio(confidence: Floats, right: Outcomes, low: float, high: float) -> Floats:
    """Return the likelihood of each outcome at the shift `high` over its likelihood at the shift `low`.

    A shift does not move a confidence of exactly 0 or 1. The computation uses odds, so such a confidence
    gives the finite ratio of a confidence close to it. Otherwise a single wrong answer would cause a loss of
    trust. The computation uses only products and quotients, which all processors round alike.

    Parameters
    ----------
    confidence : (n,) float64
        The probability of each answer to be right.
    right : (n,) bool
        Whether the answer is right by its label.
    low, high : float
        Shifts in logits.

    Returns
    -------
    (n,) float64
        Above 0.

    Examples
    --------
    >>> ratio(np.array([0.5, 0.5, 1.0]), np.array([True, False, False]), 0.0, np.log(3)).round(9).tolist()
    [1.5, 0.5, 0.333333333]
    """
    return _ratios(confidence, right, *_odds([(low, high)]))[:, 0]


def _odds(shifts: Sequence[tuple[float, float]]) -> tuple[Floats, Floats]:
    """Return e to the power of `low` and e to the power of `high`, (pairs,) and (pairs,)."""
    return np.array([math.exp(low) for low, _ in shifts]), np.array([math.exp(high) for _, high in shifts])


def _ratios(confidence: Floats, right: Outcomes, below: Floats, above: Floats) -> Floats:
    """Return the `ratio` of several pairs of shifts, (n, pairs), from their `_odds`.

    The odds may differ by row. An outcome between 0 and 1 has the ratio between those of 0 and 1.
    """
    sure, missed = confidence[:, None], 1.0 - confidence[:, None]
    wrong = (sure * below + missed) / (sure * above + missed)
    if right.dtype != np.bool_:
        return wrong * (1.0 + right[:, None] * (above / below - 1.0))
    ratios: Floats = np.where(right[:, None], wrong * (above / below), wrong)
    return ratios


def _running_products(value: float, factors: Floats) -> Floats:
    """Return the running products of a value with these factors, each at most `_MOST`."""
    path = np.empty_like(factors)
    for row, factor in enumerate(factors.tolist()):
        value = path[row] = min(value * factor, _MOST)
    return path


def _count_to_first(reached: NDArray[np.bool_], otherwise: int) -> int:
    """Return the number of entries up to and including the first true one; `otherwise` if none is true."""
    return int(reached.argmax()) + 1 if reached.any() else otherwise
