"""Calibration `ssme`: a curve for each model, from a fit on all models' scores and a few labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from monitor.stats.calibration.isotonic import IsotonicCalibration


@dataclass(frozen=True, slots=True, eq=False)
class SSMECalibration(IsotonicCalibration):
    """One rising curve for each model, from an `ssme` fit, at the cost of an isotonic calibration.

    It follows drift, while an isotonic calibration stays with the reference. It misleads where the fit does:
    if most models are wrong together and no label shows it yet. And it misleads within groups of rows whose
    scores have another meaning, because it is a curve of one model's score. `monitor.engine.refit.fit.refit`
    fits it on the score pool, never on a reference, which has one model's scores only.

    Parameters
    ----------
    width, curves
        As in `IsotonicCalibration`.

    Examples
    --------
    >>> import numpy as np
    >>> from monitor.stats.calibration.isotonic import fit_curve
    >>> curve = fit_curve(np.array([0.1, 0.9]), np.array([0.3, 0.7]))
    >>> fitted = SSMECalibration.of(IsotonicCalibration(2, (curve,)))
    >>> fitted.apply(np.array([[0.5, 0.5]])).tolist(), fitted.snapshot()["method"]
    ([[0.5, 0.5]], 'ssme')
    """

    method: ClassVar[str] = "ssme"

    @classmethod
    def of(cls, distilled: IsotonicCalibration) -> SSMECalibration:
        """The calibration with the curves of an `ssme` fit: see `monitor.stats.labelled.SSME.calibration`."""
        return cls(distilled.width, distilled.curves)
