"""The Shewhart chart, for estimates that use no labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from monitor.stats.charts.settings import LimitsAndRules


@dataclass(frozen=True)
class Shewhart(LimitsAndRules):
    """The settings of a Shewhart chart, whose limits follow from the variation of the estimate itself.

    For a window of n rows the limits are ``centre ± L·√(v/n)``, where

    * centre is the mean of the reference windows, weighted by their sizes nᵢ;
    * ``v = v0 + κ²·max(0, v_ref − v0)``: v0 = row_sd² is the variance of independent rows, and
      ``v_ref = Σ nᵢ(xᵢ − centre)²/(m − 1)`` the variance between the m reference windows. v/v0 is the square
      of Laney's p′ inflation, but never below 1; κ ≥ 1 corrects for few reference windows;
    * L and κ follow from `arl0`, the rules and m (`monitor.stats.charts.limits`), or L is `sigmas` and κ = 1.

    The mean confidence varies less than the share of correct answers: on the data of Kivimäki et al. (table
    2) row_sd is 0.62 times √(p(1−p)). So the limits of the textbook's p-chart (`ShewhartP`) are too wide, by
    a factor of 1/0.62.

    Assumptions: estimates of different windows are independent and nearly normal, and the reference is in
    control. Windows may have different sizes; the ARL0 is computed for windows of equal sizes.

    False alarms: one in 370 windows in control at the defaults, on average over many baselines. With m = 20,
    the rate of a single baseline lies between nearly zero and twice the mean. Measurements with 1,000
    baselines of 2,000 windows each (`python -m tests.fidelity.arl`), for m = 20, 50, 100 and known limits:
    one alarm in 372 (±9), 371, 375 and 372 windows. With an autocorrelation of 0.3, which violates the
    assumptions: one in 295, 341, 362 and 373. On mean confidences of the paper's data with m = 20: one in 348
    at n = 500, and one in 280 at n = 100, where the means are more skewed.

    Autocorrelation affects run rules far more. All four `we` rules at the textbook's 3 sigma (`sigmas=3`)
    alarm once in 92 windows with known limits, once in 72 with 20 reference windows, and once in 43 with
    known limits and an autocorrelation of 0.3.

    The chart misleads in these cases. Autocorrelated windows alarm too often, and more so with more rules.
    Reference windows that vary moderately more than their rows raise up to 2.3 times the false alarms at m =
    20 (`monitor.stats.charts.limits.limits`). Small windows of skewed confidences alarm too often on the low
    side. If the reference contains a shift, the limits are too wide. The chart uses only the estimate, so it
    does not detect that a model makes more errors at the same confidence.

    Parameters
    ----------
    arl0 : float, optional
        The mean number of windows between false alarms of all rules together, 10 to 1,000,000. The default is
        370 unless `sigmas` is set.
    sigmas : float, optional
        The half width of the limits in sigmas, above 0 and up to 10. It replaces `arl0`.
    rules : tuple of str
        `we1` to `we4`, `nelson1` to `nelson8`: see `monitor.stats.charts.rules`.

    Raises
    ------
    ConfigError
        The settings are impossible (constructor), or there are too few reference windows (`build`).

    References
    ----------
    Shewhart: Economic Control of Quality of Manufactured Product (1931). Laney: Improved control charts for
    attributes, Quality Engineering 14 (2002), 531-537. Kivimäki, Białek, Nurminen, Kuberski: Confidence-based
    Estimators for Predictive Performance in Model Monitoring, section 2.2 (control charts) and table 2.

    Examples
    --------
    >>> import numpy as np
    >>> from monitor.stats.charts.base import Baseline
    >>> rng = np.random.default_rng(7)
    >>> baseline = Baseline(rng.normal(0.9, 0.008, 20), np.full(20, 500.0), row_sd=0.18)
    >>> logic = Shewhart().build(baseline)
    >>> for value in (0.905, 0.893, 0.851, 0.899):
    ...     v = logic.update(value, 500)
    ...     print(f"{value} in {v.lower:.4f} to {v.upper:.4f}:", v.rules, v.out_of_control)
    0.905 in 0.8737 to 0.9213: () False
    0.893 in 0.8737 to 0.9213: () False
    0.851 in 0.8737 to 0.9213: ('we1',) True
    0.899 in 0.8737 to 0.9213: () True
    """

    kind: ClassVar[str] = "shewhart"
