"""Calibration of raw scores to probabilities; each method of `monitor.base.registry` has a module here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from monitor.base import registry

if TYPE_CHECKING:
    from monitor.stats.calibration.base import Calibration, Calibrator

CALIBRATORS: Mapping[str, type[Calibrator]] = registry.Classes(registry.FITTED_ON_REFERENCE)
"""The class of each method that fits a calibration on a reference, by its name in the configuration."""

CALIBRATIONS: Mapping[str, type[Calibration]] = registry.Classes(
    registry.CALIBRATING,
    convert=lambda code: getattr(code, "calibration", code),
)
"""The class of a fitted calibration of each method, including `ssme`; `auto` fits another method."""


def calibration_from_snapshot(snapshot: Mapping[str, Any]) -> Calibration:
    """Return the calibration that a snapshot describes, or raise a ValueError if its method is unknown.

    Examples
    --------
    >>> calibration_from_snapshot({"method": "none", "width": 2})
    Uncalibrated(width=2)
    """
    method = snapshot.get("method")
    if method not in CALIBRATIONS:
        raise ValueError(f"snapshot.method must be one of {', '.join(sorted(CALIBRATIONS))}, got {method!r}")
    return CALIBRATIONS[str(method)].from_snapshot(snapshot)
