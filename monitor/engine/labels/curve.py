"""The calibration curve of one model as labels come: of all labelled answers, and of the newest kind.

Each answer counts with its first label and with the confidence that it had when it came, as in the audit of
the intervals (`monitor.engine.labels.audit`), so that counts only rise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monitor.base.records import Floats, Ints
from monitor.stats.histograms import CalibrationCurve


class CurveFollower:
    """Counts labelled answers by their confidence.

    Parameters
    ----------
    state : mapping
        A snapshot; empty from the start.

    Attributes
    ----------
    total : CalibrationCurve
        Since the start.
    current : CalibrationCurve
        Since it was last begun anew.

    Examples
    --------
    >>> curve = CurveFollower({})
    >>> curve.add(np.array([0, 1]), np.array([0.7, 0.8]), np.array([True, False]))
    >>> curve.begin_anew(2)
    >>> curve.add(np.array([1, 2]), np.array([0.7, 0.8]), np.array([True, False]))
    >>> sum(curve.total.labelled), sum(curve.current.labelled)
    (4, 1)
    """

    def __init__(self, state: Mapping[str, Any]) -> None:
        self._since: int = state.get("since", 0)
        self.total = CalibrationCurve.from_snapshot(state.get("total", {}))
        self.current = CalibrationCurve.from_snapshot(state.get("current", {}))

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

    def snapshot(self) -> dict[str, Any]:
        """By name."""
        return {
            "since": self._since,
            "total": self.total.snapshot(),
            "current": self.current.snapshot(),
        }


def curve_begun_anew(state: Mapping[str, Any], window: int) -> dict[str, Any]:
    """The snapshot of one that begins anew with this window."""
    curve = CurveFollower(state)
    curve.begin_anew(window)
    return curve.snapshot()
