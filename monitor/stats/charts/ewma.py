"""The EWMA chart, which judges an exponentially weighted moving average of the windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from monitor.stats.charts.detectors import EwmaDetector, best_weight
from monitor.stats.charts.settings import Chart


@dataclass(frozen=True)
class Ewma(Chart):
    r"""The settings of an EWMA chart, which judges a moving average of the windows.

    An EWMA is an exponentially weighted moving average, here ``z ← (1 - λ)z + λy`` of the standardised
    windows y. A window of n rows with the estimate x has ``y = (x - centre)/√(v/n)``, with the centre and the
    variance v of one row as in `Shewhart`. So windows of any size have the same weight. z starts at 0, and
    \|z\| above ``L·√(λ/(2 - λ))`` raises the alarm. These limits are exact for an average of many windows,
    and slightly too wide for the first windows after a new baseline. `Verdict.lower` and `upper` apply to the
    estimate of this window alone: if it lies outside them, z leaves its limits.

    L is computed from `arl0`, λ and the number m of reference windows. The computation solves the integral
    equation of the run length (`monitor.stats.charts.smoothed`) and averages over the centres and sigmas that
    m windows can give. The mean of m windows has a standard error of 1/√m sigma, which affects an average
    more than a single window. For an ARL0 of 370 and λ = 0.14, L is 2.78 with known limits, 2.86 with m = 100
    and 3.25 with m = 20.

    At an ARL0 of 370 with known limits and the default λ, the chart detects a lasting shift of 1 sigma after
    9.6 windows (`Shewhart`: 44), and 3 sigma after 2.5 windows (`Shewhart`: 2.0). It performs nearly as well
    as `Cusum`. A single extreme window has only the weight λ in the average, whereas it can lift a sum of
    `Cusum` above the limit.

    False alarms: one in 370 windows in control at the defaults. `tests/fidelity/output/all_charts.txt` has
    measurements.

    Assumptions: independent windows and a reference in control. The chart tolerates windows that are not
    normal better than the other charts, because their average is nearer to normal.

    The chart misleads if windows are autocorrelated: at 0.3 it alarms once in 94 windows instead of 370,
    because the average of similar windows varies more than the limits assume. Choose a larger window, or
    `shewhart`. A fall right after a rise can stay hidden, because z still contains the rise.

    An alarm lasts as long as the shift, because z continues, limited to 1.5 times its limit. The alarm ends
    after eight windows in a row with z within half of the limit, which is about 20 windows after the shift
    ended. Then z starts at 0 again.

    Parameters
    ----------
    arl0 : float, optional
        The mean number of windows between false alarms, 10 to 1,000,000. The default is 370 unless `sigmas`
        is set.
    sigmas : float, optional
        The half width L in sigmas, above 0 and up to 10. It replaces `arl0`.
    shift : float
        The shift that the chart detects soonest, in standard deviations of one window: 0.25 to 5.
    weight : float, optional
        The weight λ, 0.05 to 1. With 1, the chart is `Shewhart` with `we1`. The default is the best λ for
        `shift`.

    Raises
    ------
    ConfigError
        The settings are impossible (constructor), or the reference is too short for `arl0` (`build`).

    References
    ----------
    Roberts: Control chart tests based on geometric moving averages, Technometrics 1 (1959), 239-250. Lucas,
    Saccucci: Exponentially weighted moving average control schemes, Technometrics 32 (1990), 1-12. Jones,
    Champ, Rigdon: The performance of exponentially weighted moving average charts with estimated parameters,
    Technometrics 43 (2001), 156-167.

    Examples
    --------
    >>> import numpy as np
    >>> from monitor.stats.charts.base import Baseline
    >>> rng = np.random.default_rng(7)
    >>> baseline = Baseline(rng.normal(0.9, 0.008, 20), np.full(20, 500.0), row_sd=0.18)
    >>> logic = Ewma().build(baseline)
    >>> for value in (0.885, 0.884, 0.886, 0.885, 0.884, 0.885):
    ...     v = logic.update(value, 500)
    ...     print(f"{value} in {v.lower:.3f} to {v.upper:.3f}:", v.rules, v.out_of_control)
    0.885 in 0.846 to 0.949: () False
    0.884 in 0.857 to 0.960: () False
    0.886 in 0.867 to 0.970: () False
    0.885 in 0.874 to 0.977: () False
    0.884 in 0.881 to 0.983: () False
    0.885 in 0.887 to 0.990: ('ewma',) True
    """

    kind: ClassVar[str] = "ewma"

    shift: float = 1.0
    weight: float | None = None

    @property
    def detector(self) -> EwmaDetector:
        """The detector of this chart, with `weight`, or with the best weight for `shift`, as its λ."""
        return EwmaDetector(best_weight(self.shift) if self.weight is None else self.weight)
