"""Calibration: from raw scores to probabilities that mean what they say."""

from collections.abc import Mapping
from typing import Any

from monitor.stats.calibration.auto import AutoCalibrator, Choice, choose
from monitor.stats.calibration.base import Calibration, Calibrator, confidence_of, cross_fit_in_time
from monitor.stats.calibration.beta import BetaCalibration, BetaCalibrator
from monitor.stats.calibration.isotonic import IsotonicCalibration, IsotonicCalibrator
from monitor.stats.calibration.none import NoCalibrator, Uncalibrated
from monitor.stats.calibration.platt import PlattCalibration, PlattCalibrator
from monitor.stats.calibration.refit import LabelledRows, Refitted, refitted
from monitor.stats.calibration.ssme import SSMECalibration
from monitor.stats.calibration.temperature import TemperatureCalibration, TemperatureCalibrator
from monitor.stats.calibration.vector import VectorCalibration, VectorCalibrator

__all__ = [
    "CALIBRATIONS",
    "CALIBRATORS",
    "AutoCalibrator",
    "BetaCalibration",
    "BetaCalibrator",
    "Calibration",
    "Calibrator",
    "Choice",
    "IsotonicCalibration",
    "IsotonicCalibrator",
    "LabelledRows",
    "NoCalibrator",
    "PlattCalibration",
    "PlattCalibrator",
    "Refitted",
    "SSMECalibration",
    "TemperatureCalibration",
    "TemperatureCalibrator",
    "Uncalibrated",
    "VectorCalibration",
    "VectorCalibrator",
    "calibration_from_snapshot",
    "choose",
    "confidence_of",
    "cross_fit_in_time",
    "refitted",
]

CALIBRATORS: Mapping[str, type[Calibrator]] = {
    "auto": AutoCalibrator,
    "beta": BetaCalibrator,
    "isotonic": IsotonicCalibrator,
    "none": NoCalibrator,
    "platt": PlattCalibrator,
    "temperature": TemperatureCalibrator,
    "vector": VectorCalibrator,
}
"""Every way to fit a calibration on a reference, by its name in the configuration."""

CALIBRATIONS: Mapping[str, type[Calibration]] = {
    **{name: each.calibration for name, each in CALIBRATORS.items() if each is not AutoCalibrator},
    SSMECalibration.method: SSMECalibration,
}
"""Every fitted calibration by its method: what `auto` fits bears the name of another; refits bring `ssme`."""


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
