"""Calibration `ssme`: a curve for each model, fitted on all models' scores and a few labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from monitor.stats.calibration.isotonic import IsotonicCalibration


@dataclass(frozen=True, slots=True, eq=False)
class SSMECalibration(IsotonicCalibration):
    """The rising curve or curves of one model from an `ssme` fit.

    The curve adapts to drift, whereas an isotonic calibration does not change after the reference. Like the
    fit, the curve misleads if most models are wrong together and no label shows this yet. It also misleads
    within a group of rows if a score means another probability in this group, because the curve depends on
    the score alone. `monitor.engine.refit.fit.refit` fits it on the recent scores of all models. It cannot be
    fitted on a reference, because a reference has the scores of only one model.

    Parameters
    ----------
    width, curves
        See `IsotonicCalibration`.

    Examples
    --------
    >>> import numpy as np
    >>> from monitor.stats.calibration.isotonic import fit_curve
    >>> curve = fit_curve(np.array([0.1, 0.9]), np.array([0.3, 0.7]))
    >>> fitted = SSMECalibration.from_isotonic(IsotonicCalibration(2, (curve,)))
    >>> fitted.apply(np.array([[0.5, 0.5]])).tolist(), fitted.snapshot()["method"]
    ([[0.5, 0.5]], 'ssme')
    """

    method: ClassVar[str] = "ssme"

    @classmethod
    def from_isotonic(cls, curves: IsotonicCalibration) -> SSMECalibration:
        """Return the calibration with these curves, a result of `monitor.stats.labelled.SSME.calibration`."""
        return cls(curves.width, curves.curves)
