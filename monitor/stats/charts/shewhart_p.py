"""The textbook's p-chart and np-chart, for realised accuracy and for comparison."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from monitor.stats.charts.base import Baseline
from monitor.stats.charts.detectors import Spread
from monitor.stats.charts.settings import LimitsAndRules


@dataclass(frozen=True)
class ShewhartP(LimitsAndRules):
    """The settings of the textbook's p-chart, with binomial limits ``p ± L·√(p(1−p)/n)``.

    p is the mean of the reference windows, weighted by their sizes, and n the size of the judged window. L is
    computed from `arl0`, the rules and the number of reference windows. The reference determines p only;
    sigma follows from p.

    Assumptions: the value is the share of successes among n independent rows with one common probability, and
    np(1−p) is at least 10, so the share is nearly normal.

    The chart misleads on an estimate without labels. The mean confidence varies less than labels do, so the
    limits are too wide: on the data of Kivimäki et al. (table 2) nominal 3 sigma are 4.8 sigma of the
    estimate, which gives one alarm in 642,000 windows instead of 370 (for a normal mean; the skewed mean at n
    = 500 alarms once in 172,000). The chart then detects a drift late or never; use `Shewhart` instead. Even
    for shares, discreteness and skewness change the rate of false alarms: with p = 0.897 and n = 500 an ARL0
    of 370 becomes 351 with m = 20 and 301 with known limits (`python -m tests.fidelity.arl`; standard errors
    8 and 4). If shares vary more between windows than a binomial, the chart alarms too often; use `Laney` or
    `Shewhart`.

    Parameters
    ----------
    arl0, sigmas, rules
        See `Shewhart`, also for the errors.

    References
    ----------
    Kivimäki, Białek, Nurminen, Kuberski: Confidence-based Estimators for Predictive Performance in Model
    Monitoring, section 2.2. Montgomery: Introduction to Statistical Quality Control, chapter 7 (control
    charts for fraction nonconforming).

    Examples
    --------
    >>> import numpy as np
    >>> baseline = Baseline(np.full(20, 0.9), np.full(20, 400.0), row_sd=0.3)
    >>> verdict = ShewhartP(sigmas=3.0).build(baseline).update(0.85, 400)
    >>> round(verdict.lower, 4), round(verdict.upper, 4), verdict.rules, verdict.out_of_control
    (0.855, 0.945, ('we1',), True)
    """

    kind: ClassVar[str] = "shewhart_p"
    spread: ClassVar[Spread] = Spread.KNOWN
    of_counts: ClassVar[bool] = True

    def _row_variance(self, baseline: Baseline, center: float, inflation: float) -> float:
        return center * (1.0 - center)


@dataclass(frozen=True)
class ShewhartNp(ShewhartP):
    """The settings of the textbook's np-chart, with limits ``np ± L·√(np(1-p))`` for the number of successes.

    The chart raises the same alarms as `ShewhartP` with the same settings, because the number and its limits
    are n times the share and its limits. Centre and limits are shares, so windows of different sizes have one
    scale. Multiply them by the window's size for counts. The assumptions and the warnings of `ShewhartP`
    apply.

    References
    ----------
    Montgomery: Introduction to Statistical Quality Control, section 7.2 (the np control chart).

    Examples
    --------
    >>> import numpy as np
    >>> baseline = Baseline(np.full(20, 0.9), np.full(20, 400.0), row_sd=0.3)
    >>> verdict = ShewhartNp(sigmas=3.0).build(baseline).update(341 / 400, 400)
    >>> round(400 * verdict.lower), round(400 * verdict.upper), verdict.rules
    (342, 378, ('we1',))
    """

    kind: ClassVar[str] = "shewhart_np"
