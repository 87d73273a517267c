"""Laney's p′ chart: the p-chart widened by the variation between windows."""

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

    σz is the mean moving range of the reference windows' ``zᵢ = (xᵢ - p)/√(p(1-p)/nᵢ)`` over 1.128: the
    variation from one window to the next, relative to a binomial. A label-free estimate varies less than
    labels do, so σz is below 1 (0.62 on the data of Kivimäki et al., table 2), and the chart fits there too,
    from the reference alone. `Shewhart` knows this from the rows, and needs fewer windows.

    Under an autocorrelation of 0.3 a promised 370 is 118 windows with m = 20 and 89 with m = 100. A drop of
    three points at n = 500 takes 48 windows at m = 20 and 6 at m = 100 (`python -m
    tests.fidelity.all_charts`).

    It compares neighbouring windows only: a slow wave or one shift in the reference widens the limits less
    than those of `Shewhart`, and autocorrelation makes them too narrow. L follows from `arl0`, the rules and
    m. The moving range of m windows knows sigma less well than their variance would, so L is larger than that
    of `Shewhart`: 3.73 at m = 20, 3.13 at m = 100, for an ARL0 of 370. Unlike there, this promise does not
    depend on the excess of the windows' variation over that of their rows.

    Assumptions: normal, independent windows whose variance is proportional to 1/n, and a reference in
    control. It misleads as above; with few windows L is so large that it detects shifts late; realised
    accuracy with np(1-p) below 10 is skewed.

    Parameters
    ----------
    arl0, sigmas, rules
        As in `Shewhart`, with the same errors.

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
