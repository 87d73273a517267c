"""The calibration curve of one model as labels come: of all labelled answers, and of the newest kind.

Each answer counts with its first label and with the confidence that it had when it came, as in the audit of
the intervals (`monitor.engine.labels.audit`), so that counts only rise.
"""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from monitor.base.records import Floats, Ints
from monitor.stats.histograms import CalibrationCurve


class CurveState(msgspec.Struct, frozen=True):
    """The curves as far as they are counted."""

    since: int = 0
    total: CalibrationCurve = CalibrationCurve()
    current: CalibrationCurve = CalibrationCurve()

    def begun_anew(self, window: int) -> CurveState:
        """That of one that begins anew with this window."""
        return CurveState(window, self.total)


class CurveFollower:
    """Counts labelled answers by their confidence.

    Parameters
    ----------
    state : CurveState, optional
        What `snapshot` gave.

    Attributes
    ----------
    total : CalibrationCurve
        Since the start.
    current : CalibrationCurve
        Since it was last begun anew.

    Examples
    --------
    >>> curve = CurveFollower()
    >>> curve.add(np.array([0, 1]), np.array([0.7, 0.8]), np.array([True, False]))
    >>> curve.begin_anew(2)
    >>> curve.add(np.array([1, 2]), np.array([0.7, 0.8]), np.array([True, False]))
    >>> sum(curve.total.labelled), sum(curve.current.labelled)
    (4, 1)
    """

    def __init__(self, state: CurveState | None = None) -> None:
        state = state or CurveState()
        self._since, self.total, self.current = state.since, state.total, state.current

    def add(self, window: Ints, confidence: Floats, right: NDArray[np.bool_]) -> None:
        """Take rows that have just got their first labels.

        Parameters
        ----------
        window : (n,) int64
            The window that each counts in; of earlier ones nothing goes into `current`.
        confidence : (n,) float64
            NaN where it is not known: passed over.
        right : (n,) bool
        """
        known = ~np.isnan(confidence)
        if not known.any():
            return
        self.total = self.total.plus(confidence[known], right[known])
        known &= window >= self._since
        self.current = self.current.plus(confidence[known], right[known])

    def begin_anew(self, window: int) -> None:
        """Confidences are of another kind from this window on."""
        self._since, self.current = window, CalibrationCurve()

    def snapshot(self) -> CurveState:
        """What is counted."""
        return CurveState(self._since, self.total, self.current)
