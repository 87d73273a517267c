"""The tests of trust of estimated errors: whether labels contradict their predicted size or their bias.

When a window of predicted numbers closes, its features give an estimate of its errors without labels
(`monitor.stats.regression.losses`). A test compares each labelled row with the estimate of the row's window.
A label that came before its window closed waits until then.

The size of an error is |e|, at most `cap`, the size that 99.5 % of the reference's errors do not exceed. Its
share of the cap lies between 0 and 1, and so does the estimate of the mean share. The complements of both go
to a `TrustTest`, so that its larger stakes are on errors that are larger than estimated. Its bets are linear
in the outcome. So the bets gain nothing on average, as with outcomes of 0 and 1, if the mean of the shares is
within the tolerance. The tolerance is two standard deviations of the estimate's error, without the part that
is the chance of the window's own rows.

A second test does the same for the error with its sign: e, at least −`cap` and at most `cap`, as a share of
this range. The first test cannot see a bias whose sign turns, and the second one no errors that grow on both
sides. The second test runs if `bias` is among the metrics of errors, and the first one if another metric is
(`choose_tests`). The estimated errors lose trust if one of the tests does. Each test has its own odds of 20
to 1, as each model and each group has. So with both tests, right estimates lose trust with a probability of
at most 10 %.

**Assumption.** The labelled rows of a window are a random sample of it. A row that was picked with a
probability, so that it stands for w rows, is used with the probability w / W, where W is the largest w so
far. The others are left out of the test.

**When it misleads.** If the rows with large errors get their labels first, or only these, then good estimates
lose trust. A difference below the tolerance is never detected.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

import msgspec
import numpy as np

from monitor.base.records import Floats, Ints, mix
from monitor.engine.labels.trust import TrustState, TrustTest, add_together
from monitor.reports.trust import ERRORS_TESTED, Bias, Trust

TOLERANCE = 2.0
"""The tolerance, in standard deviations of the estimate's error."""

_MOST_WAITING = 4096  # labelled rows of windows that are not closed yet
_NEAREST = 1e-6  # to 0 and 1: the tolerance in logits is finite
_INTEGERS = 2.0**64
_COLUMNS = 2  # of a waiting row: its window and its error, without the sign for a test of sizes


class ExpectedError(NamedTuple):
    """The estimate of a window's errors without labels.

    Parameters
    ----------
    mean : float
        The mean of the errors' sizes, each at most `cap`, in the unit of the target; for the test of the
        bias, the mean of the errors, each from -`cap` to `cap`.
    deviation : float
        The standard deviation of the estimate's error, without the chance of the window's own rows.
    cap : float
        Above 0.
    """

    mean: float
    deviation: float
    cap: float


class ErrorTestState(msgspec.Struct, frozen=True):
    """The stored state of `ErrorTest`.

    `small` has the expected complements of the windows from `first` on, NaN if unknown. `waiting` has the
    rows of open windows. `heaviest` is the largest weight of a row so far, and `seen` the number of rows.
    """

    test: TrustState = msgspec.field(default_factory=TrustState)
    cap: float = 1.0
    heaviest: float = 1.0
    seen: int = 0
    first: int = 0
    small: Floats = msgspec.field(default_factory=lambda: np.zeros(0))
    waiting: Floats = msgspec.field(default_factory=lambda: np.zeros((0, _COLUMNS)))

    def restarted(self, window: int) -> ErrorTestState:
        """Return the state of a test that begins again with the rows of this window."""
        return msgspec.structs.replace(self, test=self.test.restarted(window))


def choose_tests(metrics: Collection[str]) -> tuple[str, ...]:
    """Return those of `ERRORS_TESTED` that labels test if these metrics of errors are estimated.

    Examples
    --------
    >>> choose_tests(["rmse", "bias"]), choose_tests(["bias"]), choose_tests([])
    (('mae', 'bias'), ('bias',), ())
    """
    size, signed = ERRORS_TESTED
    of_size = (size,) if any(metric != signed for metric in metrics) else ()
    return (*of_size, signed) if signed in metrics else of_size


class ErrorTest:
    """The running test of one series' estimated errors by its labelled rows.

    Parameters
    ----------
    keep : int
        The number of newest windows whose estimates are kept. Labels of older windows are not used.
    level : float
        The level of the interval of the difference.
    resume : ErrorTestState, optional
        A snapshot.
    signed : bool
        Whether to test the bias. By default, the test is of the sizes of the errors.

    Examples
    --------
    >>> test, rows = ErrorTest(keep=10), np.arange(100)
    >>> sizes = 1.0 + rows % 3
    >>> _ = test.close(0, ExpectedError(mean=2.0, deviation=0.1, cap=6.0))
    >>> compare_errors([test], rows * 0, rows * 0, sizes, np.ones(100))
    >>> test.test.trusted
    True
    >>> compare_errors([test], rows * 0, rows * 0, 2 * sizes, np.ones(100))
    >>> lost = test.trust()
    >>> lost.trusted, round(lost.predicted, 1), round(lost.bias.value, 1), lost.bias.rows
    (False, 2.0, 2.0, 99)
    """

    def __init__(
        self, keep: int, level: float = 0.95, resume: ErrorTestState | None = None, signed: bool = False
    ) -> None:
        state = resume or ErrorTestState()
        self.test = TrustTest(level=level, resume=state.test)
        self._keep, self._signed = keep, signed
        self._cap, self._heaviest, self._seen = state.cap, state.heaviest, state.seen
        self._first, self._small = state.first, state.small.tolist()
        self._waiting: list[Floats] = [state.waiting] if len(state.waiting) else []

    def close(self, window: int, expected: ExpectedError | None) -> Trust | None:
        """Use the estimate of a window that closes, and test the window's rows whose labels came before.

        Parameters
        ----------
        window : int
        expected : ExpectedError or None
            None if the estimate is unknown. Rows of the window are then not used.

        Returns
        -------
        Trust or None
            The result of the test, if labels contradicted the estimates before this window or in it.
        """
        before = self.lost_trust()
        small = np.nan
        if expected is not None:
            self._cap = expected.cap
            share = (expected.mean - self._least) / self._width
            small = 1.0 - min(max(share, _NEAREST), 1.0 - _NEAREST)
            deviation = expected.deviation / self._width
            self.test.begin_prediction(TOLERANCE * deviation / (small * (1.0 - small)))
        self._store(window, small)
        if self._waiting:
            rows = np.concatenate(self._waiting)
            due = rows[:, 0] <= window
            self._waiting = [] if due.all() else [rows[~due]]
            windows = rows[due, 0].astype(np.int64)
            self.test.add(windows, self._expected(windows), self._shares(rows[due, 1]))
        return before or self.lost_trust()

    @property
    def _least(self) -> float:
        """The smallest error that counts as such."""
        return -self._cap if self._signed else 0.0

    @property
    def _width(self) -> float:
        """The difference between the largest and the smallest error that count as such."""
        return self._cap - self._least

    def _store(self, window: int, small: float) -> None:
        stop = self._first + len(self._small)
        if not self._small or window < stop:
            self._first, self._small = window, []
        else:
            self._small += [np.nan] * (window - stop)
        self._small.append(small)
        gone = max(len(self._small) - self._keep, 0)
        self._first, self._small = self._first + gone, self._small[gone:]

    def _expected(self, window: Ints) -> Floats:
        """Return the expected complement of each row's window; NaN if it is unknown."""
        known, place = np.array([*self._small, np.nan]), window - self._first
        inside = (place >= 0) & (place < len(self._small))
        expected: Floats = known[np.where(inside, place, -1)]
        return expected

    def _shares(self, errors: Floats) -> Floats:
        """Return the complements of the errors' shares of the range, 0 to 1."""
        return 1.0 - np.clip((errors - self._least) / self._width, 0.0, 1.0)

    def pick(self, window: Ints, errors: Floats, weight: Floats) -> tuple[Ints, Floats, Floats]:
        """Return the windows, the expected and the shown complements of the rows to test now.

        Rows of windows that are not closed wait.

        Parameters
        ----------
        window : (n,) int64
            The number of each row's window.
        errors : (n,) float64
            The prediction minus the label of each row.
        weight : (n,) float64
            The number of rows that each row stands for, 1 or more.
        """
        errors = errors if self._signed else np.abs(errors)
        heaviest = np.maximum(np.maximum.accumulate(weight), self._heaviest)
        places = np.arange(self._seen, self._seen + len(weight), dtype=np.uint64)
        used = mix(places) < weight / heaviest * _INTEGERS
        self._heaviest, self._seen = float(heaviest[-1]), self._seen + len(weight)
        waits = used & (window >= self._first + len(self._small))
        if waits.any():
            room = _MOST_WAITING - sum(map(len, self._waiting))
            rows = np.column_stack((window, errors)).astype(np.float64)[waits]
            self._waiting.append(rows[: max(room, 0)])
        used &= ~waits
        return window[used], self._expected(window[used]), self._shares(errors[used])

    def trust(self) -> Trust | None:
        """Return the result of the test, with the difference in the unit of the target; None without rows.

        The difference is the labelled rows' mean size minus the predicted one, with sizes of at most the cap;
        or that of the errors with their signs.
        """
        trust = self.test.trust()
        if trust is None:
            return None
        trust = replace(trust, metric=ERRORS_TESTED[self._signed])
        if trust.bias is None:
            return trust
        expected, _ = self.test.since_change()
        bias = trust.bias
        value, lower, upper = (-self._width * each for each in (bias.value, bias.upper, bias.lower))
        predicted = self._least + self._width * (1.0 - float(expected.mean()))
        return replace(trust, bias=Bias(value, lower, upper, bias.level, bias.rows), predicted=predicted)

    def lost_trust(self) -> Trust | None:
        """Return the result of the test if labels contradict the estimates, otherwise None."""
        return None if self.test.trusted else self.trust()

    def snapshot(self) -> ErrorTestState:
        """Return the state of the test, from which another `ErrorTest` can resume."""
        return ErrorTestState(
            test=self.test.snapshot(),
            cap=self._cap,
            heaviest=self._heaviest,
            seen=self._seen,
            first=self._first,
            small=np.array(self._small, dtype=np.float64),
            waiting=np.concatenate([np.zeros((0, _COLUMNS)), *self._waiting]),
        )


def compare_errors(
    tests: Sequence[ErrorTest], of: Ints, window: Ints, errors: Floats, weight: Floats
) -> None:
    """Test the estimated errors of several series on newly labelled rows, in one vectorised call.

    Parameters
    ----------
    tests : sequence of ErrorTest
    of : (n,) int64
        The index of each row's test, nondecreasing.
    window, errors, weight : (n,) array
        As in `ErrorTest.pick`, with the rows of each test in the order of their labels.
    """
    starts = np.flatnonzero(np.diff(of, prepend=-1)).tolist()
    pieces = [slice(start, stop) for start, stop in zip(starts, [*starts[1:], len(of)], strict=True)]
    picked = [tests[of[each.start]].pick(window[each], errors[each], weight[each]) for each in pieces]
    if not picked:
        return
    windows, expected, shown = map(np.concatenate, zip(*picked, strict=True))
    rows_of = np.repeat(of[starts], [len(each) for each, *_ in picked])
    add_together([each.test for each in tests], rows_of, windows, expected, shown)
