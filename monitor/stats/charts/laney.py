"""Laney's p′ chart: a p-chart whose limits include the variation between windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from monitor.stats.charts.base import Baseline
from monitor.stats.charts.detectors import Spread
from monitor.stats.charts.settings import LimitsAndRules

_MEAN_RANGE = 2 / np.sqrt(np.pi)
"""Mean distance of two independent standard normal numbers: 1.128, the constant d2 for samples of two."""


@dataclass(frozen=True)
class Laney(LimitsAndRules):
    """The settings of Laney's p′ chart, with the limits ``p ± L·σz·√(p(1-p)/n)`` for a window of n rows.

    p is the mean of the reference windows.

    σz is the mean moving range of ``zᵢ = (xᵢ - p)/√(p(1-p)/nᵢ)`` over the reference windows, divided by
    1.128. It measures the variation from one window to the next, relative to a binomial. An estimate without
    labels varies less than labels do, so its σz is below 1 (0.62 on the data of Kivimäki et al., table 2);
    the chart suits such estimates too. The chart measures σz on the reference windows alone. `Shewhart` also
    uses the rows, and needs fewer windows.

    σz compares only neighbouring windows. So a slow wave or a single shift in the reference widens the limits
    less than in `Shewhart`. But autocorrelation makes the limits too narrow: at 0.3, the mean number of
    windows between false alarms is 118 with m = 20 and 89 with m = 100, instead of 370. A drop of three
    points at n = 500 is detected after 48 windows with m = 20 and after 6 with m = 100 (`python -m
    tests.fidelity.all_charts`).

    L is computed from `arl0`, the rules and the number m of reference windows. The moving range estimates
    sigma less precisely than the variance of the windows does, so L is larger than for `Shewhart`: 3.73 at m
    = 20 and 3.13 at m = 100, for an ARL0 of 370. Unlike in `Shewhart`, the ARL0 holds for any amount of
    variation between windows.

    Assumptions: normal, independent windows whose variance is proportional to 1/n, and a reference in
    control. The chart misleads if windows are autocorrelated. With few reference windows it detects shifts
    late. Realised accuracy is skewed if np(1-p) is below 10.

    Parameters
    ----------
    arl0, sigmas, rules
        See `Shewhart`, also for the errors.

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
