"""Calibration: from raw scores to probabilities that mean what they say."""

from collections.abc import Mapping
from typing import Any

from monitor.calibration.base import Calibration, Calibrator, confidence_of, cross_fit_in_time
from monitor.calibration.isotonic import IsotonicCalibration, IsotonicCalibrator
from monitor.calibration.none import NoCalibrator, Uncalibrated

__all__ = [
    "CALIBRATORS",
    "Calibration",
    "Calibrator",
    "IsotonicCalibration",
    "IsotonicCalibrator",
    "NoCalibrator",
    "Uncalibrated",
    "calibration_from_snapshot",
    "confidence_of",
    "cross_fit_in_time",
]

CALIBRATORS: Mapping[str, type[Calibrator]] = {
    "isotonic": IsotonicCalibrator,
    "none": NoCalibrator,
}
"""Every calibration method by its name in the configuration."""


def calibration_from_snapshot(snapshot: Mapping[str, Any]) -> Calibration:
    """The calibration that a snapshot holds, of whatever method.

    Raises
    ------
    ValueError
        The method is unknown.

    Examples
    --------
    >>> calibration_from_snapshot({"method": "none", "width": 2})
    Uncalibrated(width=2)
    """
    method = snapshot.get("method")
    if method not in CALIBRATORS:
        raise ValueError(f"snapshot.method must be one of {', '.join(sorted(CALIBRATORS))}, got {method!r}")
    return CALIBRATORS[str(method)].calibration.from_snapshot(snapshot)
