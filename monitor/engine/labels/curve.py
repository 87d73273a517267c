"""The calibration curve of one model from its labelled answers: in total, and since the last restart.

The curve counts labelled answers and right answers by ranges of confidence. Each answer counts with its first
label, and with the confidence that it had when it came. So counts never decrease.
"""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from monitor.base.records import Floats, Ints
from monitor.stats.histograms import CalibrationCurve


class CurveState(msgspec.Struct, frozen=True):
    """The counts of two calibration curves: `total`, and `current`, which begins with the window `since`."""

    since: int = 0
    total: CalibrationCurve = CalibrationCurve()
    current: CalibrationCurve = CalibrationCurve()

    def restarted(self, window: int) -> CurveState:
        """Return the state in which `current` restarts with this window, and `total` does not change."""
        return CurveState(window, self.total)


class CurveFollower:
    """Two calibration curves of one model, which count labelled answers by their confidence.

    Parameters
    ----------
    state : CurveState, optional
        A snapshot.

    Attributes
    ----------
    total : CalibrationCurve
        The counts since the start.
    current : CalibrationCurve
        The counts since the last restart.

    Examples
    --------
    >>> curve = CurveFollower()
    >>> curve.add(np.array([0, 1]), np.array([0.7, 0.8]), np.array([True, False]))
    >>> curve.restart(2)
    >>> curve.add(np.array([1, 2]), np.array([0.7, 0.8]), np.array([True, False]))
    >>> sum(curve.total.labelled), sum(curve.current.labelled)
    (4, 1)
    """

    def __init__(self, state: CurveState | None = None) -> None:
        state = state or CurveState()
        self._since, self.total, self.current = state.since, state.total, state.current

    def add(self, window: Ints, confidence: Floats, right: NDArray[np.bool_]) -> None:
        """Add rows that have just got their first labels.

        Parameters
        ----------
        window : (n,) int64
            The number of each row's window. Rows of windows before the last restart count only in `total`.
        confidence : (n,) float64
            The confidence of each row; NaN if it is unknown. Rows with NaN are ignored.
        right : (n,) bool
            Whether the predicted class is the label.
        """
        known = ~np.isnan(confidence)
        if not known.any():
            return
        self.total = self.total.plus(confidence[known], right[known])
        known &= window >= self._since
        self.current = self.current.plus(confidence[known], right[known])

    def restart(self, window: int) -> None:
        """Restart `current` with this window, because another calibration or version begins there."""
        self._since, self.current = window, CalibrationCurve()

    def snapshot(self) -> CurveState:
        """Return the counts of both curves, and the first window of the current curve."""
        return CurveState(self._since, self.total, self.current)
