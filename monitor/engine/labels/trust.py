"""Can the estimate still be trusted? A sequential test on the labelled rows, to be looked at at any time.

An answer that is announced with chance c should be right with probability c. The test asks whether labels
contradict that by more than what the announcement's own uncertainty excuses: a shift of ε on the logit
scale.

Each series has two tests (`monitor.engine.label_checks`). One takes the confidences for c, and excuses the
calibration's error (`epsilon_of`); it says when to recalibrate. The other decides on **trust**: its c is the
chance that the correction by labels predicts (`monitor.stats.estimate.corrected`), from labels that were
known when the newest window closed, and it excuses two standard deviations of the forecast bias
(`predicted`). A row is held against a prediction that has not seen its label, so the promise below holds
while the bias of each row is within what is excused. A forecast misses that in some windows; it follows at
the next close, so the miss does not last, and what is at stake shrinks again. No stream without a change of
those tried has lost trust so (`tests/fidelity/output/trust_predicted.txt`). A lasting bias that the
correction follows costs no trust, unless it comes at once with many labels a window.

**The evidence.** For each shift δ of 0.15, 0.3, 0.6 and 1.2 logits (1.4, 2.7, 5.6 and 14 points downwards
at an accuracy of 90 %), upwards and downwards, each labelled row has a likelihood ratio: that of being
right with probability expit(logit c ± (ε + δ)) to that of the nearer edge, expit(logit c ± ε). Its
expectation is at most 1 for every true shift within ±ε, whatever came before: the stake of a bet that an
honest estimate does not lose. An estimate may be wrong from the first row on, or good for months before it
is not: 0.8 of the stake is set at once, the rest on changes at every row, with weights w(s) =
0.2 H / ((H + s)(H + s + 1)) that sum to 0.2 over all of time. An accuracy that is lower than estimated does
the harm, so downward shifts have 0.8 of the stake, v = 0.1, 0.2, 0.3 and 0.2, and upward ones 0.05 each:

    A(0) = 0.8,   A(t) = (A(t − 1) + w(t − 1)) · ratio(t),   E(t) = Σ v A(t) + 0.2 H / (H + t).

E begins at 1 and is a non-negative supermartingale while the estimate is within ε. By Ville's inequality
it ever reaches 20 with a probability of at most 1/20, however often and whenever one looks, over the whole
life and not only over a planned number of labels; H, 2,500, is the number of labels by which half of what
is set on changes is spent; later ones take some labels more (ln 121 nats of evidence at 10 H). Each model and
each group has a test of its own, so that the promise is one for each. An estimate that is too high from the
first label on is found within 1.5 times the labels of the ideal test, which knows the shift before
(ln 20 nats; `tests/fidelity/output/labels_help_trust.txt`).

**Trust is lost** as E reaches 20, and stays lost: `untrusted`. It does not come back because the evidence
sinks, only through a fresh test after a recalibration (`recalibrated`), of another prediction (`predicted`)
or for another version (`begin_anew`). Both tests ask the same question of the bet that cost the trust (the
strongest one): losing takes odds of 20 to 1 for its shift, δ beyond what is excused, against the edge of what
is excused, and regaining takes 20 to 1 for the edge against the shift, on the labels that follow and by what
the new calibration or prediction excuses. So trust comes back wherever the estimate lies within what is
excused, and not only where its bias has gone; the chance that it comes back to an estimate that is still off
by δ beyond it is at most 5 %, and to a prediction at most 5 % at each close. Meanwhile the first test runs
anew too; if it alarms first, another recalibration has to come.

**What it assumes:** that rows are picked for labelling without regard to whether the answer was right,
given its score; and that ε covers the error of what is announced. `epsilon_of` takes it from the reference.
Rows need not be independent: what counts is each row's chance given those before it.

**When it misleads:** complaints, which are labels of wrong answers, cost the trust of a good estimate. A
bias below ε is never found, one of two points takes about 1,000 labels. A calibration is off by more than
its standard error in one of three cases, and given time that is found too: with a reference of 1,000 rows,
4 % of good models lose trust within 2,500 labels and 7 % within 10,000
(`tests/fidelity/output/trust.txt`). An answer counts once, with its first label.

Sources: J. Ville, *Étude critique de la notion de collectif* (1939). A. Ramdas, P. Grünwald, V. Vovk,
G. Shafer, *Game-theoretic statistics and safe anytime-valid inference*, Statistical Science 38 (2023).
A. N. Shiryaev, *On optimum methods in quickest detection problems*, Theory of Probability and Its
Applications 8 (1963), for bets that begin at every row. The prior, the grid and ε are our own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from monitor.base.errors import ConfigError
from monitor.base.records import Floats, Ints
from monitor.engine.labels.bias import bias
from monitor.reports.trust import Trust

SHIFTS = (0.15, 0.3, 0.6, 1.2)
"""Logits beyond ε; a bias between two of them is found nearly as soon."""

ALARM = 20.0
"""Evidence that costs the trust: the odds of 20 to 1 that make a false alarm at most 5 % likely, ever."""

PLANNED_LABELS = 2500
"""By which half of the prior of a change is spent: half a year of 5 % labels at 270 answers a day."""

ROWS_KEPT = 1000
"""The newest, for the size of the bias: ±1.9 points at an accuracy of 90 %, and 9 kB in the state."""

_STAKES = (0.1, 0.2, 0.3, 0.2, 0.05, 0.05, 0.05, 0.05)  # on shifts downwards, then upwards
_SHARE_AT_ONCE = 0.8
_AT_ONCE = np.full(len(_STAKES), _SHARE_AT_ONCE)
_MOST = 1e12  # of the evidence and the stakes: it can sink again within a usable time, and stays finite
_CHUNK = 4096  # rows whose ratios are held at once


def epsilon_of(confidence: Floats, weights: Floats | None = None) -> float:
    """The shift in logits that a calibration's own uncertainty excuses: 1/√I, I = Σ c(1 − c).

    I is Fisher's information of the reference on a shift of all its confidences, so this is the standard
    error with which the reference itself pins the shift down. A fit on more rows than are given has less.
    Of weighted rows I is (Σ w c(1 − c))² / Σ w² c(1 − c), which is of the estimating equation's variance.

    Parameters
    ----------
    confidence : (n,) float64
        Of the answers that the calibration was fitted on, calibrated.
    weights : (n,) float64, optional
        What each row counted for in the fit, 0 or more; all the same if absent.

    Returns
    -------
    float
        0 for no rows: what was never calibrated excuses nothing.

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
    return 1 / math.sqrt(max(information, 1.0))  # one row's worth at least: all answers certain is no proof


@dataclass(frozen=True, slots=True)
class TrustTest:
    """Settings of the test of one model.

    Parameters
    ----------
    epsilon : float
        Shift in logits that is excused, 0 or more: see `epsilon_of`.
    level : float
        Of the bias's interval, above 0 and below 1.
    planned : int
        Labels by which half of the prior of a change is spent, 1 or more.

    Raises
    ------
    ConfigError
        A number is out of its range.

    Examples
    --------
    >>> test, zeros = TrustTest(epsilon=0.1).build(), np.zeros(200, dtype=np.int64)
    >>> _ = test.add(zeros, np.full(200, 0.9), np.arange(200) % 10 > 0)
    >>> test.trust().trusted
    True
    >>> _ = test.add(zeros, np.full(200, 0.9), np.arange(200) % 10 > 2)
    >>> found = test.trust()
    >>> found.trusted, round(found.bias.value, 2), found.bias.rows
    (False, -0.2, 200)
    """

    epsilon: float = 0.0
    level: float = 0.95
    planned: int = PLANNED_LABELS

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon < math.inf:
            raise ConfigError(f"epsilon must be 0 or more logits, got {self.epsilon}; see epsilon_of")
        if not 0 < self.level < 1:
            raise ConfigError(f"level must be above 0 and below 1, got {self.level}")
        if self.planned < 1:
            raise ConfigError(f"planned must be 1 label or more, got {self.planned}")

    def build(self, resume: TrustState | None = None) -> TrustLogic:
        """The test, from the start or from where a snapshot left it, whose ε is then kept."""
        return TrustLogic(self, resume)


class TrustState(msgspec.Struct, frozen=True):
    """The stakes, the newest rows, and what trust was lost to.

    Parameters
    ----------
    epsilon : float, optional
        What is excused; as the settings say where it is not set.
    since, seen : int
    bets : (8,) float64
    beyond : float or None
        The shift that cost the trust, beyond what is excused: δ, negative downwards; None while trusted.
    regained : float or None
        Evidence that it is gone; None: not asked yet.
    confidence, right : (n,) array
    found : float or None
        In states of older versions: the shift that cost the trust, with what was excused then.
    """

    epsilon: float | msgspec.UnsetType = msgspec.UNSET
    since: int = 0
    seen: int = 0
    bets: Floats = msgspec.field(default_factory=lambda: _AT_ONCE)
    beyond: float | None = None
    regained: float | None = None
    confidence: Floats = msgspec.field(default_factory=lambda: np.zeros(0))
    right: NDArray[np.bool_] = msgspec.field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    found: float | None = None

    def shift_beyond(self) -> float | None:
        """Return `beyond`, in a state of an older version too: the bet that is nearest to its shift."""
        if self.beyond is not None or self.found is None:
            return self.beyond
        excused = 0.0 if self.epsilon is msgspec.UNSET else self.epsilon
        away = abs(self.found) - excused
        return math.copysign(min(SHIFTS, key=lambda shift: abs(shift - away)), self.found)

    def begun_anew(self, window: int) -> TrustState:
        """That of a test that begins anew with this window, by whatever ε its settings then say."""
        logic = TrustTest().build(self)
        logic.begin_anew(window)
        return msgspec.structs.replace(logic.snapshot(), epsilon=msgspec.UNSET)


class TrustLogic:
    """The test of one model at work. Rows in the same order give the same, in whatever pieces they come."""

    def __init__(self, settings: TrustTest, resume: TrustState | None = None) -> None:
        state = resume or TrustState()
        self._settings = settings
        self._epsilon = settings.epsilon if state.epsilon is msgspec.UNSET else state.epsilon
        self._odds: tuple[float, Floats, Floats] | None = None  # of the shifts, and by which ε they are
        self._since, self._seen = state.since, state.seen
        self._bets = state.bets.copy()
        self._beyond, self._regained = state.shift_beyond(), state.regained
        self._confidence, self._right = state.confidence, state.right
        self._last: Trust | None = None

    @property
    def trusted(self) -> bool:
        """Whether labels have not contradicted the estimate, or no longer do."""
        return self._beyond is None

    @property
    def lost(self) -> bool:
        """Whether trust is lost and no fresh test has begun: another calibration has to come."""
        return self._beyond is not None and self._regained is None

    @property
    def epsilon(self) -> float:
        """The shift in logits that the calibration's uncertainty excuses; 0: none was ever fitted."""
        return self._epsilon

    @property
    def evidence(self) -> float:
        """E as of the last row."""
        return float(self._evidence(self._bets[None], self._seen)[0])

    def add(self, window: Ints, confidence: Floats, right: NDArray[np.bool_]) -> bool:
        """Take rows that have just got their first labels, in the order in which they did.

        Returns whether one of them cost the trust, be it that later ones gave it back.

        Parameters
        ----------
        window : (n,) int64
            The window that each counts in; those of before a fresh test are passed over.
        confidence : (n,) float64
            As announced when the answer came. NaN where it is not known: passed over.
        right : (n,) bool
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

    def excuse(self, epsilon: float) -> None:
        """So much is excused from the next row on, whatever was until now; what is at stake stays.

        A shift within the excuse of its row never favours a bet, so the promise holds though it changes.
        """
        self._epsilon = TrustTest(epsilon).epsilon

    def predicted(self, epsilon: float) -> None:
        """Test another prediction with the rows from here on, whatever window they are of.

        It has learnt from all rows so far. So where trust is lost a fresh test begins, and one that has begun
        forgets what spoke against the prediction before.

        Parameters
        ----------
        epsilon : float
            What its uncertainty excuses.
        """
        self.excuse(epsilon)
        if self.lost:
            self.begin_anew(self._since)
        elif self._regained is not None:
            self._regained = max(self._regained, 1.0)

    def recalibrated(self, window: int, epsilon: float | None = None) -> None:
        """Another calibration holds for the windows from this one on.

        While trusted the test goes on: each row is held against what was announced for it. Where trust is
        lost, a fresh test begins; one that has begun goes on through further recalibrations, so that
        frequent ones cannot keep it from ending.

        Parameters
        ----------
        window : int
            The first whose rows all have the new calibration's confidences.
        epsilon : float, optional
            What the new calibration's uncertainty excuses; as before if absent.
        """
        if epsilon is not None:
            self._epsilon = TrustTest(epsilon).epsilon
        if self._beyond is not None and self._regained is None:
            self.begin_anew(window)

    def begin_anew(self, window: int) -> None:
        """A fresh test, on rows of windows from this one on; lost trust must be regained in it."""
        self._since = window
        self._seen, self._bets = 0, _AT_ONCE.copy()
        self._regained = None if self._beyond is None else 1.0
        self._confidence, self._right = self._confidence[:0], self._right[:0]
        self._last = None

    def trust(self) -> Trust | None:
        """Where the test stands; None before the first labelled row, unless trust is lost."""
        if not self._seen and self.trusted:
            return None
        if self._last is None:
            known = not self.trusted and len(self._right) > 0
            found = bias(*self.since_change(), self._settings.level) if known else None
            self._last = Trust(
                self.trusted, self.evidence, self._seen, found, on_probation=self._regained is not None
            )
        return self._last

    def snapshot(self) -> TrustState:
        """The stakes, the newest rows, and what trust was lost to."""
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

    def _advance(self, confidence: Floats, right: NDArray[np.bool_]) -> int:
        """Take rows up to the first that changes whether the estimate is trusted; how many that were."""
        path = self._bets_along(confidence, right)
        alarmed = self._evidence(path, self._seen + 1 + np.arange(len(path))) >= ALARM
        taken, regained = len(path), None
        if self.trusted or self._regained is not None:
            taken = _first(alarmed, taken)
        if self._regained is not None:
            edge, shift = self._contested()
            regained = _along(self._regained, ratio(confidence, right, shift, edge))
            taken = min(taken, _first(regained >= ALARM, taken))
        self._take(path[taken - 1], confidence[:taken], right[:taken])
        if (self.trusted or self._regained is not None) and alarmed[taken - 1]:
            edge, shift = self._shifts()[int(self._bets.argmax())]
            self._beyond, self._regained = shift - edge, None
        elif regained is not None:
            self._regained = float(regained[taken - 1])
            if self._regained >= ALARM:
                self._beyond = self._regained = None
        return taken

    def _take(self, bets: Floats, confidence: Floats, right: NDArray[np.bool_]) -> None:
        """Rows that have been judged, and the stakes after the last of them."""
        self._last = None
        self._seen += len(right)
        self._bets = bets.copy()
        self._confidence = np.concatenate([self._confidence, confidence])[-ROWS_KEPT:]
        self._right = np.concatenate([self._right, right])[-ROWS_KEPT:]

    def _shifts(self) -> list[tuple[float, float]]:
        """The nearer edge of what is excused and the shift of each bet, in logits."""
        return [
            (sign * self._epsilon, sign * (self._epsilon + shift)) for sign in (-1.0, 1.0) for shift in SHIFTS
        ]

    def _contested(self) -> tuple[float, float]:
        """The edge of what is excused now, and the shift beyond it of the bet that cost the trust."""
        assert self._beyond is not None
        edge = math.copysign(self._epsilon, self._beyond)
        return edge, edge + self._beyond

    def _shift_odds(self) -> tuple[Floats, Floats]:
        """The odds ratios of `_shifts`, (8,) and (8,): of the nearer edges, and of the shifts."""
        if self._odds is None or self._odds[0] != self._epsilon:
            self._odds = self._epsilon, *_odds(self._shifts())
        return self._odds[1:]

    def _bets_along(self, confidence: Floats, right: NDArray[np.bool_]) -> Floats:
        """A after each row, (n, 8): a row at a time, so that where rows are cut cannot be seen."""
        ratios = _ratios(confidence, right, *self._shift_odds())
        bets, weights = self._bets, self._weights(self._seen + np.arange(len(right)))
        path = np.empty_like(ratios)
        for row, (factor, weight) in enumerate(zip(ratios, weights.tolist(), strict=True)):
            bets = path[row] = np.minimum((bets + weight) * factor, _MOST)
        return path

    def _weights(self, seen: Ints) -> Floats:
        """What is set on a change at each row, after so many."""
        planned = self._settings.planned
        begun = planned + seen
        weights: Floats = (1 - _SHARE_AT_ONCE) * planned / (begun * (begun + 1.0))
        return weights

    def _evidence(self, bets: Floats, seen: Ints | int) -> Floats:
        """E from A, (n, 8), after so many rows; summed column by column, whose order never changes."""
        planned = self._settings.planned
        total = (1 - _SHARE_AT_ONCE) * planned / (planned + np.asarray(seen))
        for column, stake in enumerate(_STAKES):
            total = total + stake * bets[:, column]
        return total

    def since_change(self) -> tuple[Floats, NDArray[np.bool_]]:
        """Confidence and outcome of the rows that are kept of those since the change that cost the trust.

        From the one on from which the bet that won would have won most.
        """
        gains = np.log(ratio(self._confidence, self._right, *self._contested()))
        from_here = gains[::-1].cumsum()[::-1]
        start = int(from_here.argmax()) if from_here.max() > 0 else 0
        return self._confidence[start:], self._right[start:]


def add_together(
    tests: Sequence[TrustLogic], of: Ints, window: Ints, confidence: Floats, right: NDArray[np.bool_]
) -> list[int]:
    """As `TrustLogic.add` for many tests, to the last bit, with a step for each row of the longest alone.

    Parameters
    ----------
    tests : sequence of TrustLogic
        Of the same settings but for ε.
    of : (n,) int64
        The place in `tests` of each row; never falling.
    window, confidence, right : (n,) array
        As in `add`, for each test in its order.

    Returns
    -------
    list of int
        The places of the tests for which one of these rows cost the trust.

    Examples
    --------
    >>> tests = [TrustTest().build(), TrustTest().build()]
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
            test._take(path[piece.stop - 1], confidence[piece], right[piece])
        elif test.add(np.full(counts[i], test._since), confidence[piece], right[piece]):
            cost.append(i)
    return cost


def _bets_of_all(
    tests: Sequence[TrustLogic],
    of: Ints,
    step: Ints,
    counts: Ints,
    seen: Ints,
    confidence: Floats,
    right: NDArray[np.bool_],
) -> Floats:
    """A of each row's test after it, (n, 8), as `TrustLogic._bets_along` has it of one.

    Parameters
    ----------
    tests, of, confidence, right
        As in `add_together`.
    step, seen : (n,) int64
        How many rows of the same test come before, in this call and ever.
    counts : (tests,) int64
        Rows of each test.
    """
    longest = np.argsort(-counts, kind="stable")
    rank = np.empty_like(longest)
    rank[longest] = np.arange(len(tests))
    below, above = (
        np.concatenate(each).reshape(len(tests), -1)
        for each in zip(*(test._shift_odds() for test in tests), strict=True)
    )
    # The rows of a step side by side, the longest tests first: what is at stake then shortens from its end.
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


def ratio(confidence: Floats, right: NDArray[np.bool_], low: float, high: float) -> Floats:
    """Likelihood of each outcome under a shift by `high` logits, to that under one by `low`.

    In odds, so that a confidence of exactly 0 or 1 gives a finite ratio (no shift moves it, and one wrong
    answer would end all trust; here it weighs as the limit of confidences near it), and in products and
    quotients alone, which every processor rounds alike.

    Parameters
    ----------
    confidence : (n,) float64
    right : (n,) bool
    low, high : float

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
    """e to the power of `low` and of `high`, (pairs,) and (pairs,)."""
    return np.array([math.exp(low) for low, _ in shifts]), np.array([math.exp(high) for _, high in shifts])


def _ratios(confidence: Floats, right: NDArray[np.bool_], below: Floats, above: Floats) -> Floats:
    """`ratio` for several pairs, (n, pairs), by their `_odds`; those may differ by row, (n, pairs)."""
    sure, missed = confidence[:, None], 1.0 - confidence[:, None]
    wrong = (sure * below + missed) / (sure * above + missed)
    ratios: Floats = np.where(right[:, None], wrong * (above / below), wrong)
    return ratios


def _along(value: float, factors: Floats) -> Floats:
    """The running products from a value on, kept from growing or vanishing beyond use."""
    path = np.empty_like(factors)
    for row, factor in enumerate(factors.tolist()):
        value = path[row] = min(value * factor, _MOST)
    return path


def _first(reached: NDArray[np.bool_], otherwise: int) -> int:
    """How many entries up to and with the first that is true."""
    return int(reached.argmax()) + 1 if reached.any() else otherwise
