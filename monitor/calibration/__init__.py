"""Calibration: from raw scores to probabilities that mean what they say."""

from collections.abc import Mapping
from typing import Any

from monitor.calibration.base import Calibration, Calibrator, confidence_of, cross_fit_in_time
from monitor.calibration.isotonic import IsotonicCalibration, IsotonicCalibrator
from monitor.calibration.none import NoCalibrator, Uncalibrated
from monitor.calibration.ssme import SSMECalibration

__all__ = [
    "CALIBRATIONS",
    "CALIBRATORS",
    "Calibration",
    "Calibrator",
    "IsotonicCalibration",
    "IsotonicCalibrator",
    "NoCalibrator",
    "SSMECalibration",
    "Uncalibrated",
    "calibration_from_snapshot",
    "confidence_of",
    "cross_fit_in_time",
]

CALIBRATORS: Mapping[str, type[Calibrator]] = {
    "isotonic": IsotonicCalibrator,
    "none": NoCalibrator,
}
"""Every way to fit a calibration on a reference, by its name in the configuration."""

CALIBRATIONS: Mapping[str, type[Calibration]] = {
    **{method: calibrator.calibration for method, calibrator in CALIBRATORS.items()},
    SSMECalibration.method: SSMECalibration,
}
"""Every fitted calibration by its method: those of `CALIBRATORS`, and what refits bring."""


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
    if method not in CALIBRATIONS:
        raise ValueError(f"snapshot.method must be one of {', '.join(sorted(CALIBRATIONS))}, got {method!r}")
    return CALIBRATIONS[str(method)].from_snapshot(snapshot)
