"""Laney's p′ chart: the p-chart with the variation between windows counted in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from monitor.stats.charts.base import Baseline
from monitor.stats.charts.detectors import Spread
from monitor.stats.charts.settings import LimitsAndRules

_MEAN_RANGE = 2 / np.sqrt(np.pi)
"""Mean distance of two standard normal numbers: 1.128, the d2 of two."""


@dataclass(frozen=True)
class Laney(LimitsAndRules):
    """Control chart with the limits ``p ± L·σz·√(p(1-p)/n)``.

    σz is the mean moving range of the reference windows' ``zᵢ = (xᵢ - p)/√(p(1-p)/nᵢ)`` over 1.128: how
    much more, or less, than a binomial the windows vary from one to the next. On a label-free estimate,
    which varies less than labels do, σz is below 1 (0.62 on the data of Kivimäki et al., table 2), so that
    the chart fits there too, from the reference alone; `Shewhart` knows that from the rows, and so needs
    fewer windows to know it as well.

    Under an autocorrelation of 0.3 a promised 370 comes to 118 windows with m = 20 and 89 with m = 100, and a
    drop of three points at n = 500 takes 48 windows at m = 20 and 6 at m = 100
    (`python -m tests.fidelity.all_charts`).

    Neighbouring windows only: a slow wave or one shift in the reference widens the limits less than it
    does those of `Shewhart`, and windows that resemble their neighbours (autocorrelation) make them too
    narrow. L comes from `arl0`, the rules and m; the moving range of m windows tells sigma less well than
    their variance would, which makes L larger than that of `Shewhart`: 3.73 at m = 20, 3.13 at
    m = 100, for an ARL0 of 370. Unlike that chart's, this promise does not depend on how much more than
    their rows the windows vary.

    Assumptions: normal, independent windows whose variance goes with 1/n, and a reference in control.
    When it misleads: as above; with few windows L is so large that shifts are seen late; on realised
    accuracy with np(1-p) below 10 shares are skewed.

    Parameters
    ----------
    arl0 : float, optional
        One false alarm in so many windows, all rules together: 10 to 1,000,000. 370 where neither
        this nor `sigmas` is given.
    sigmas : float, optional
        Half width of the limits in sigmas instead, above 0 and up to 10.
    rules : tuple of str
        `we1` to `we4`, `nelson1` to `nelson8`; `monitor.stats.charts.rules` says what they are.

    Raises
    ------
    ConfigError
        Settings that cannot be, from the constructor; too few reference windows, from `build`.

    References
    ----------
    Laney: Improved control charts for attributes, Quality Engineering 14 (2002), 531-537.

    Examples
    --------
    >>> baseline = Baseline(0.9 + 0.01 * np.array([1, -1] * 10), np.full(20, 400.0), row_sd=0.3)
    >>> verdict = Laney(sigmas=3.0).build(baseline).update(0.85, 400)
    >>> round(verdict.lower, 4), round(verdict.upper, 4), verdict.rules  # sigma is 0.02/1.128
    (0.8468, 0.9532, ())
    """

    kind: ClassVar[str] = "laney"
    spread: ClassVar[Spread] = Spread.MOVING_RANGE
    of_counts: ClassVar[bool] = True

    def _row_variance(self, baseline: Baseline, center: float, inflation: float) -> float:
        z = (baseline.values - center) * np.sqrt(baseline.sizes)  # the binomial's own sigma cancels out
        return float((np.mean(np.abs(np.diff(z))) / _MEAN_RANGE) ** 2)
