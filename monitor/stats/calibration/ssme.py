"""Calibration `ssme`: what a fit on all models' scores and a few labels says one model's scores mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from monitor.stats.calibration.isotonic import IsotonicCalibration


@dataclass(frozen=True, slots=True, eq=False)
class SSMECalibration(IsotonicCalibration):
    """One rising curve for each model, from an `ssme` fit, at the cost of an isotonic calibration.

    It follows the present where the isotonic calibration stays with the reference. It misleads where the
    fit does: where most models are wrong together and no label says so yet; and, as a curve of one
    model's own score, within groups of rows whose scores mean something else. It is fitted on the score
    pool by `monitor.engine.refit.fit.refit`, never on a reference, which holds one model's scores alone.

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
        """The curves that an `ssme` fit was distilled into: see `monitor.stats.labelled.SSME.calibration`."""
        return cls(distilled.width, distilled.curves)
