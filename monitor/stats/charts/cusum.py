"""The CUSUM chart, which sums the distances of windows from the centre to detect small lasting shifts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from monitor.stats.charts.detectors import CusumDetector
from monitor.stats.charts.settings import Chart


@dataclass(frozen=True)
class Cusum(Chart):
    """The settings of a CUSUM chart, which sums small distances from the centre up to an alarm.

    The chart keeps two sums, ``S ← max(0, S + y - k)`` for a rise and ``S ← max(0, S - y - k)`` for a fall. A
    window of n rows with the estimate x has the standardised value ``y = (x - centre)/√(v/n)``, with the
    centre and the variance v of one row as in `Shewhart`. So windows of any size have the same weight. The
    allowance k is half of `shift`. Distances below k do not increase the sums. The sums start at 0. A sum
    above the decision interval h raises the alarm.

    `Verdict.lower` and `upper` apply to the estimate of this window alone: if it lies outside them, a sum
    exceeds h. They become narrower as a sum grows.

    h is computed from `arl0`, k and the number m of reference windows. The computation solves the integral
    equation of the run length (`monitor.stats.charts.smoothed`) and averages over the centres and sigmas that
    m windows can give. The mean of m windows has a standard error of 1/√m sigma, and a sum accumulates this
    error. For an ARL0 of 370 and k = 1/2, h is 4.77 with known limits, 4.86 with m = 100, 6.12 with m = 20
    and 8.75 with m = 10. With few reference windows, a larger `shift` increases h less: for a `shift` of 1.5,
    h is 3.34 with known limits and 3.74 with m = 20.

    In the worst case, no chart with the same ARL0 detects a lasting shift of `shift` sigma sooner
    (Moustakides, 1986). With known limits and a `shift` of 1 the chart detects 1 sigma after 9.9 windows
    (`Shewhart`: 44), and 3 sigma after 2.5 windows (`Shewhart`: 2.0).

    False alarms: one in 370 windows in control at the defaults. `tests/fidelity/output/all_charts.txt` has
    measurements.

    Assumptions: independent, near-normal windows and a reference in control.

    The chart misleads if windows are autocorrelated: at 0.3 it alarms once in 85 windows instead of 370,
    because the sums accumulate similar windows. Choose a larger window, or `shewhart`. One extreme window can
    lift a sum above h, just as it breaks `we1`.

    An alarm lasts as long as the shift, because the sums continue, limited to 1.5h. The alarm ends after
    eight windows in a row with sums below h/2, which is about 20 windows after the shift ended. Then the sums
    start at 0 again.

    Parameters
    ----------
    arl0 : float, optional
        The mean number of windows between false alarms, 10 to 1,000,000. The default is 370 unless `sigmas`
        is set.
    sigmas : float, optional
        The decision interval h in sigmas, above 0 and up to 10. It replaces `arl0`.
    shift : float
        The shift that the chart detects soonest, in standard deviations of one window: 0.25 to 5.

    Raises
    ------
    ConfigError
        The settings are impossible (constructor), or the reference is too short for `arl0` (`build`).

    References
    ----------
    Page: Continuous inspection schemes, Biometrika 41 (1954), 100-115. Moustakides: Optimal stopping times
    for detecting changes in distributions, Annals of Statistics 14 (1986), 1379-1387. Jones, Champ, Rigdon:
    The run length distribution of the CUSUM with estimated parameters, Journal of Quality Technology 36
    (2004), 95-108.

    Examples
    --------
    >>> import numpy as np
    >>> from monitor.stats.charts.base import Baseline
    >>> rng = np.random.default_rng(7)
    >>> baseline = Baseline(rng.normal(0.9, 0.008, 20), np.full(20, 500.0), row_sd=0.18)
    >>> logic = Cusum().build(baseline)
    >>> for value in (0.885, 0.884, 0.886, 0.885, 0.884, 0.885):
    ...     v = logic.update(value, 500)
    ...     print(f"{value} in {v.lower:.3f} to {v.upper:.3f}:", v.rules, v.out_of_control)
    0.885 in 0.844 to 0.951: () False
    0.884 in 0.853 to 0.951: () False
    0.886 in 0.862 to 0.951: () False
    0.885 in 0.870 to 0.951: () False
    0.884 in 0.878 to 0.951: () False
    0.885 in 0.887 to 0.951: ('cusum',) True
    """

    kind: ClassVar[str] = "cusum"

    shift: float = 1.0

    @property
    def detector(self) -> CusumDetector:
        """The detector for the two sums, with half of `shift` as its allowance k."""
        return CusumDetector(self.shift)
