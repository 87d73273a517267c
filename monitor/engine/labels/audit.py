"""Do the confidences alone tell how many answers are right? Asked of the labelled rows.

The interval that is reported of a window also carries the calibration's error, and what labels said of it;
the audit leaves both out, so that a share below the level says that the confidences are off, and no more.

Whole windows are never labelled, so the intervals cannot be held against what windows turned out to be.
But the interval follows from the confidences of *any* rows. The labelled rows of a model, in the order in
which they became labelled, are cut into batches of exactly 30; for each batch the exact interval of the
number of right answers, by the Poisson binomial of those rows' own confidences (Kivimäki et al., section
4.2), either holds the number that was right or not. The share of batches where it does is what is told.

What it assumes: that rows are picked for labelling without regard to whether the answer was right, given
its score. Labels that are asked for where the score is low are no problem, as the confidences of those
very rows are used; labels that come mostly from complaints are one, and make every interval look wrong.
Each row counts with its first label; one that is corrected later is not counted again.

A new version of the model, or a new baseline, begins the audit anew; labels that reach the new version's
first window before it closes count for none.

How to read it: counts are discrete, so that the interval covers *at least* its level, at 30 rows of a
good model about 98 % for a level of 95 %: a ratio above the level is no fault. Of B batches, chance
alone moves the share by one binomial error, √(level (1 − level) / B): 5 points at 20 batches (600 labels),
1.5 points at the 200 that are kept. A share that lies more than two of those below the level says that the
confidences are off. A bias of three points lowers the share to 93 %, one of five to 86 %, one of ten to
59 % (`tests/fidelity/output/audit.txt`): a share near the level is no proof that the estimate is right to
a point.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from monitor.base.names import BATCH_ROWS
from monitor.base.records import Floats, Ints
from monitor.engine.labels.columns import Matches
from monitor.reports.views import Coverage
from monitor.stats.estimate.average_confidence import average_confidence_many

BATCHES_KEPT = 200
"""The newest, on which the share rests: 6,000 labelled rows, and a binomial error of 1.5 points."""

_MOST_WAITING = 64 * BATCH_ROWS  # rows before their intervals are computed, in one vectorised call


def covered(confidence: Floats, right: Ints, level: float) -> NDArray[np.bool_]:
    """Whether each batch's number of right answers lies in the exact interval of its confidences.

    Parameters
    ----------
    confidence : (batches, n) float64
        The chance of each answer to be right, 0 to 1.
    right : (batches,) int64
        How many were.
    level : float
        Of the interval, strictly between 0 and 1.

    Returns
    -------
    (batches,) bool

    Raises
    ------
    ValueError
        As `average_confidence_many`.

    Examples
    --------
    >>> covered(np.full((3, 30), 0.9), np.array([27, 24, 22]), level=0.95).tolist()
    [True, True, False]
    """
    n = confidence.shape[1]
    counts = np.rint(average_confidence_many(confidence, level)[:, 1:] * n)  # back from shares, exactly
    inside: NDArray[np.bool_] = (counts[:, 0] <= right) & (right <= counts[:, 1])
    return inside


@dataclass(frozen=True, slots=True)
class IntervalAudit:
    """Settings of the audit of one model.

    Parameters
    ----------
    level : float
        Of the intervals, strictly between 0 and 1.

    Examples
    --------
    >>> audit = IntervalAudit(level=0.95).build()
    >>> sure = np.full(90, 0.9)
    >>> audit.add(np.zeros(90, dtype=np.int64), sure, np.arange(90) % 10 > 0)
    >>> audit.coverage()
    Coverage(ratio=1.0, rows=90, level=0.95)
    """

    level: float

    def build(self, resume: AuditState | None = None) -> IntervalAuditLogic:
        """The audit, from the start or from where a snapshot left it.

        A snapshot of another level begins anew: shares of different levels do not add up.
        """
        return IntervalAuditLogic(self.level, resume)


class AuditState(msgspec.Struct, frozen=True):
    """The outcomes of the newest batches, and the rows of the open one."""

    level: float
    since: int = 0
    covered: list[bool] = []
    confidence: Floats = msgspec.field(default_factory=lambda: np.zeros(0))
    right: NDArray[np.bool_] = msgspec.field(default_factory=lambda: np.zeros(0, dtype=np.bool_))

    def begun_anew(self, window: int) -> AuditState:
        """That of an audit that begins anew with this window."""
        return AuditState(self.level, window)


class IntervalAuditLogic:
    """The audit of one model at work. Rows in the same order give the same, in whatever pieces they come."""

    def __init__(self, level: float, resume: AuditState | None = None) -> None:
        state = resume or AuditState(level)
        self._level = level
        self._since = state.since
        if state.level != level:
            state = AuditState(level)
        self._covered = deque[bool](state.covered, maxlen=BATCHES_KEPT)
        self._confidence, self._right = state.confidence, state.right

    def add(self, window: Ints, confidence: Floats, right: NDArray[np.bool_]) -> None:
        """Take rows that have just got their first labels, in the order in which they did.

        Parameters
        ----------
        window : (n,) int64
            The window that each counts in; those of an earlier baseline are passed over.
        confidence : (n,) float64
            NaN where it is not known: passed over.
        right : (n,) bool
        """
        kept = (window >= self._since) & ~np.isnan(confidence)
        self._confidence = np.concatenate([self._confidence, confidence[kept]])
        self._right = np.concatenate([self._right, right[kept]])
        if len(self._right) >= _MOST_WAITING:
            self._judge_batches()

    def begin_anew(self, window: int) -> None:
        """Forget everything; rows of windows before this one do not count any more."""
        self._since = window
        self._covered.clear()
        self._confidence, self._right = self._confidence[:0], self._right[:0]

    def coverage(self) -> Coverage | None:
        """The share over the newest 200 batches; None before the first one is full."""
        self._judge_batches()
        if not self._covered:
            return None
        batches = len(self._covered)
        return Coverage(sum(self._covered) / batches, batches * BATCH_ROWS, self._level)

    def snapshot(self) -> AuditState:
        """The outcomes of the newest batches, and the rows of the open one."""
        self._judge_batches()
        return AuditState(
            self._level, self._since, list(self._covered), self._confidence.copy(), self._right.copy()
        )

    def _judge_batches(self) -> None:
        if len(self._right) >= BATCH_ROWS:
            judge_together([self])


def judge_together(audits: Iterable[IntervalAuditLogic]) -> None:
    """Judge the full batches that wait in audits of one level, all of them in one vectorised call."""
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
    """Place and outcome of each row that gets its first label.

    One answer at most gets its label at one place in the stream. If that label is changed at the same
    place (of two that waited for it, the later one holds), what it says in the end counts.

    Parameters
    ----------
    matches : Matches
        Of any series, sorted by series and then by sequence.

    Returns
    -------
    place : (n,) int64
    right : (n,) bool
    """
    moved = np.diff(matches.sequence, prepend=-1) != 0
    places = np.flatnonzero(moved | (np.diff(matches.series, prepend=-1) != 0))
    if not len(places):
        return places, matches.right
    labelled = np.add.reduceat(matches.labelled, places) > 0
    right = np.add.reduceat(matches.correct, places) > 0
    return places[labelled], right[labelled]
