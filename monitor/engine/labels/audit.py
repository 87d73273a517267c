"""The audit of a model's confidences: how often intervals computed from them contain the true accuracy.

The reported interval of a window also includes the calibration's error and the correction by labels. The
audit leaves both out. So if the share is clearly below the level, the confidences themselves are wrong.

Windows are never labelled completely, so their intervals cannot be compared with their true accuracy. But the
confidences of *any* rows give such an interval. The audit divides the labelled rows of a model into batches
of exactly 30, in the order in which their labels came. For each batch it computes the exact interval of the
number of right answers, from the Poisson-binomial distribution of the rows' confidences (Kivimäki et al.,
section 4.2). It reports the share of batches whose interval contains the true number.

**Assumption.** Among rows with the same score, the choice of rows for labelling does not depend on whether
the answer was right. Labels may be requested mainly for low scores, because the audit uses the confidences of
the labelled rows. But labels that come mostly from complaints make every interval look wrong. Each row counts
with its first label, even if the label is corrected later.

A new version of the model, or a new baseline, restarts the audit. Some labels may come for the first window
of the new version before this window closes. They do not count.

**How to read it.** Counts are discrete, so the interval covers *at least* its level. For a good model and 30
rows, it covers about 98 % at a level of 95 %. A share above the level is therefore not a fault. With B
batches, one binomial standard error of the share is √(level (1 − level) / B): 5 points with 20 batches (600
labels), 1.5 points with 200 batches, the largest number that is kept. If the share is more than two standard
errors below the level, the confidences are wrong. A bias of 3 points lowers the share to 93 %, a bias of 5
points to 86 %, and a bias of 10 points to 59 % (`tests/fidelity/output/audit.txt`). So a share near the level
does not exclude a bias of a few points.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import msgspec
import numpy as np
from numpy.typing import NDArray

from monitor.base.names import BATCH_ROWS
from monitor.base.records import Floats, Ints
from monitor.engine.labels.columns import Matches
from monitor.reports.views import Coverage
from monitor.stats.estimate.average_confidence import average_confidence_many

BATCHES_KEPT = 200
"""The number of newest batches that count: 6,000 labelled rows, with a binomial error of 1.5 points."""

_MOST_WAITING = 64 * BATCH_ROWS  # rows before one vectorised call computes their intervals


def covered(confidence: Floats, right: Ints, level: float) -> NDArray[np.bool_]:
    """Return for each batch whether its number of right answers lies in the interval of its confidences.

    Parameters
    ----------
    confidence : (batches, n) float64
        The probability that each answer is right, 0 to 1.
    right : (batches,) int64
        The number of right answers in each batch.
    level : float
        The level of the interval, strictly between 0 and 1.

    Returns
    -------
    (batches,) bool

    Raises
    ------
    ValueError
        A confidence or the level is out of range, or a batch has no rows.

    Examples
    --------
    >>> covered(np.full((3, 30), 0.9), np.array([27, 24, 22]), level=0.95).tolist()
    [True, True, False]
    """
    n = confidence.shape[1]
    counts = np.rint(average_confidence_many(confidence, level)[:, 1:] * n)  # shares back to counts, exactly
    inside: NDArray[np.bool_] = (counts[:, 0] <= right) & (right <= counts[:, 1])
    return inside


class AuditState(msgspec.Struct, frozen=True):
    """The stored state of an audit: the results of the newest batches, and the rows of the open batch."""

    level: float
    since: int = 0
    covered: list[bool] = []
    confidence: Floats = msgspec.field(default_factory=lambda: np.zeros(0))
    right: NDArray[np.bool_] = msgspec.field(default_factory=lambda: np.zeros(0, dtype=np.bool_))

    def restarted(self, window: int) -> AuditState:
        """Return the state of an audit that restarts with this window."""
        return AuditState(self.level, window)


class IntervalAudit:
    """The running audit of one model's confidences.

    The result depends on the rows and their order, not on the number of calls that add them.

    Parameters
    ----------
    level : float
        The level of the intervals, strictly between 0 and 1.
    resume : AuditState, optional
        A snapshot. If its level is different, its batches are dropped.

    Examples
    --------
    >>> audit = IntervalAudit(level=0.95)
    >>> sure = np.full(90, 0.9)
    >>> audit.add(np.zeros(90, dtype=np.int64), sure, np.arange(90) % 10 > 0)
    >>> audit.coverage()
    Coverage(ratio=1.0, rows=90, level=0.95)
    """

    def __init__(self, level: float, resume: AuditState | None = None) -> None:
        state = resume or AuditState(level)
        self._level = level
        self._since = state.since
        if state.level != level:
            state = AuditState(level)
        self._covered = deque[bool](state.covered, maxlen=BATCHES_KEPT)
        self._confidence, self._right = state.confidence, state.right

    def add(self, window: Ints, confidence: Floats, right: NDArray[np.bool_]) -> None:
        """Add rows that have just got their first labels, in the order of these labels.

        Parameters
        ----------
        window : (n,) int64
            The number of each row's window. Rows of windows before the last restart are ignored.
        confidence : (n,) float64
            The confidence of each row; NaN if it is unknown. Rows with NaN are ignored.
        right : (n,) bool
            Whether the predicted class is the label.
        """
        kept = (window >= self._since) & ~np.isnan(confidence)
        self._confidence = np.concatenate([self._confidence, confidence[kept]])
        self._right = np.concatenate([self._right, right[kept]])
        if len(self._right) >= _MOST_WAITING:
            self._judge_batches()

    def restart(self, window: int) -> None:
        """Drop all rows and results. From now on, ignore rows of windows before this one."""
        self._since = window
        self._covered.clear()
        self._confidence, self._right = self._confidence[:0], self._right[:0]

    def coverage(self) -> Coverage | None:
        """Return the share of the newest 200 batches whose interval contained the true number.

        The result is None before the first batch is full.
        """
        self._judge_batches()
        if not self._covered:
            return None
        batches = len(self._covered)
        return Coverage(sum(self._covered) / batches, batches * BATCH_ROWS, self._level)

    def snapshot(self) -> AuditState:
        """Return the results of the newest batches, and the rows of the open batch."""
        self._judge_batches()
        return AuditState(
            self._level, self._since, list(self._covered), self._confidence.copy(), self._right.copy()
        )

    def _judge_batches(self) -> None:
        if len(self._right) >= BATCH_ROWS:
            judge_together([self])


def judge_together(audits: Iterable[IntervalAudit]) -> None:
    """Compute the results of the full batches of several audits in one call.

    All audits must have the same level.
    """
    waiting = [(audit, len(audit._right) // BATCH_ROWS * BATCH_ROWS) for audit in audits]
    waiting = [(audit, full) for audit, full in waiting if full]
    if not waiting:
        return
    confidence = np.concatenate([audit._confidence[:full] for audit, full in waiting])
    right = np.concatenate([audit._right[:full] for audit, full in waiting])
    held = covered(
        confidence.reshape(-1, BATCH_ROWS), right.reshape(-1, BATCH_ROWS).sum(axis=1), waiting[0][0]._level
    ).tolist()
    start = 0
    for audit, full in waiting:
        stop = start + full // BATCH_ROWS
        audit._covered.extend(held[start:stop])
        audit._confidence, audit._right = audit._confidence[full:], audit._right[full:]
        start = stop


def first_labelled(matches: Matches) -> tuple[Ints, NDArray[np.bool_]]:
    """Return the index of each row that gets its first label, and whether its answer is right.

    Two labels may have waited for the same answer. Both are then joined at the same record, and the later
    label counts.

    Parameters
    ----------
    matches : Matches
        Rows of any series, sorted by series and then by sequence.

    Returns
    -------
    place : (n,) int64
        Indices into `matches`.
    right : (n,) bool
        Whether the predicted class is the label.
    """
    moved = np.diff(matches.sequence, prepend=-1) != 0
    places = np.flatnonzero(moved | (np.diff(matches.series, prepend=-1) != 0))
    if not len(places):
        return places, matches.right
    labelled = np.add.reduceat(matches.labelled, places) > 0
    right = np.add.reduceat(matches.correct, places) > 0
    return places[labelled], right[labelled]


def newest_of(matches: Matches) -> Ints:
    """Return for each row the index of the last row with the same series and sequence, (n,).

    The parameter is as in `first_labelled`.
    """
    other = (np.diff(matches.sequence) != 0) | (np.diff(matches.series) != 0)
    ends = np.flatnonzero(np.append(other, True))
    return np.repeat(ends, np.diff(ends, prepend=-1))
