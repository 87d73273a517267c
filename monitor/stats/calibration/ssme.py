"""Calibration `ssme`, which fits a curve for each model on all models' scores and a few labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from monitor.stats.calibration.isotonic import IsotonicCalibration


@dataclass(frozen=True, slots=True, eq=False)
class SSMECalibration(IsotonicCalibration):
    """A rising curve of one model from an `ssme` fit, which is as cheap to apply as an isotonic calibration.

    The curve follows drift, while an isotonic calibration stays with the reference. The curve misleads if
    most models are wrong together and no label shows this yet, as the fit does. The curve also misleads
    within groups of rows whose scores have another meaning, because it is a function of the score alone.
    `monitor.engine.refit.fit.refit` fits it on the pool of recent scores, never on a reference, which has the
    scores of one model only.

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
        """Return the calibration with the curves of `monitor.stats.labelled.SSME.calibration`."""
        return cls(curves.width, curves.curves)
