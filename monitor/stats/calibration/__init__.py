"""Calibration: from raw scores to probabilities. `monitor.base.registry` lists the methods, one a module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from monitor.base import registry

if TYPE_CHECKING:
    from monitor.stats.calibration.base import Calibration, Calibrator

_FITTING = registry.TablePart(registry.CALIBRATIONS, lambda entry: not entry.refitted)
_FITTED = registry.TablePart(registry.CALIBRATIONS, lambda entry: not entry.chooses)

CALIBRATORS: Mapping[str, type[Calibrator]] = registry.Classes(_FITTING)
"""Every method that fits a calibration on a reference, by its name in the configuration."""

CALIBRATIONS: Mapping[str, type[Calibration]] = registry.Classes(
    _FITTED,
    convert=lambda code: getattr(code, "calibration", code),
)
"""Every fitted calibration by its method; `auto` returns one of the others, and `ssme` comes from refits."""


def calibration_from_snapshot(snapshot: Mapping[str, Any]) -> Calibration:
    """The calibration in a snapshot, of any method. Raises a ValueError if the method is unknown.

    Examples
    --------
    >>> calibration_from_snapshot({"method": "none", "width": 2})
    Uncalibrated(width=2)
    """
    method = snapshot.get("method")
    if method not in CALIBRATIONS:
        raise ValueError(f"snapshot.method must be one of {', '.join(sorted(CALIBRATIONS))}, got {method!r}")
    return CALIBRATIONS[str(method)].from_snapshot(snapshot)
