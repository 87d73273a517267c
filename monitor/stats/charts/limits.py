"""The limits of a chart that keep a promised ARL0 with all its rules, even after a short reference.

ARL0 is the mean number of windows between false alarms. The promise is for a fleet of models: the false
alarms per window are 1/ARL0 on average over the baselines that m reference windows can give. So ARL0 is the
harmonic mean of the mean run lengths of these baselines. The arithmetic mean is unsuitable, because a few
baselines with far too wide limits, which never alarm, dominate this mean. All other baselines would then
alarm more often than promised. With about a dozen reference windows or fewer, the arithmetic mean is
infinite: 1/rate grows like exp(L²s²/2) in the dispersion s of the reference, and the probability of s falls
only like exp(−(m−1)s²/2).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from monitor.base.errors import ConfigError
from monitor.stats.charts.base import DEFAULT_ARL0
from monitor.stats.charts.detectors import CusumDetector, Detector, RunRules, Spread
from monitor.stats.charts.fleet import Limits, check_reference, mean_rate
from monitor.stats.solvers import brentq

if TYPE_CHECKING:
    from monitor.stats.charts.settings import Chart

LOWEST_ARL0, HIGHEST_ARL0 = 10.0, 1_000_000.0


def check_settings(arl0: float | None, sigmas: float | None, detector: Detector) -> None:
    """Raise a ConfigError if the settings are impossible with any reference.

    Raises
    ------
    ConfigError
        Both `arl0` and `sigmas` are set, one is out of range, or the ARL0 is out of reach even with known
        limits.
    """
    if arl0 is not None and sigmas is not None:
        raise ConfigError(f"arl0 and sigmas: got both ({arl0:g} and {sigmas:g}); give one of them")
    if sigmas is not None and not 0 < sigmas <= 10:
        raise ConfigError(f"sigmas: got {sigmas:g}; allowed is a number above 0, up to 10")
    if sigmas is None:
        checked_arl0(DEFAULT_ARL0 if arl0 is None else arl0, detector, math.inf, Spread.REFERENCE)


def limits(
    arl0: float,
    rules: tuple[str, ...] | Detector,
    reference_windows: float,
    spread: Spread = Spread.REFERENCE,
) -> Limits:
    """Return the multiplier and inflation that give 1/ARL0 false alarms per window, averaged over baselines.

    For windows of one size, x = μ + φσ₀z with independent standard normal z. Here σ₀ is the sigma of
    independent rows, and φ ≥ 1 is Laney's ratio for the excess variation between windows. The centre from m
    reference windows is off by ε/√m standard deviations of the process. The reference shows the dispersion
    s²φ², where (m−1)s² is χ² with m−1 degrees of freedom. The chart's sigma is φ̂σ₀ with φ̂² = 1 + κ²·max(0,
    s²φ²−1). So the chart has the run length of known limits with half width Lφ̂/φ and a centre off by ε/√m.
    `monitor.stats.charts.runlength` and `monitor.stats.charts.smoothed` compute this run length exactly.
    Quadrature integrates its inverse over ε and s.

    Two conditions determine the two numbers. The multiplier L gives the rate 1/ARL0 at φ = 1. The inflation κ
    gives the same rate in the limit of infinite φ, where only s determines the variance. (With s instead of
    φ̂, the rate would be exact for every φ. But L would be 3.53 at m = 20, and two of ten 3-sigma shifts that
    are now detected at once would be missed.)

    Assumptions: normal, independent estimates, windows of one size, and a reference in control. At a moderate
    φ, false alarms are more frequent than promised: with m = 20 at most 2.3 times, at φ = 1.35; with m = 100
    at most 1.4 times (with κ = 1: 3.4 and 1.5 times). `tests/fidelity/output/arl.txt` shows the effects of
    skewed estimates and autocorrelation.

    Parameters
    ----------
    arl0 : float
        Promised mean number of windows between false alarms, 10 to 1,000,000.
    rules : tuple of str or Detector
    reference_windows : float
        m, at least 5; infinity stands for known limits.
    spread : Spread
        `KNOWN`: sigma comes from a formula, not from the reference (`shewhart_p`), so φ̂ = φ. `MOVING_RANGE`:
        sigma comes from the reference windows alone (`laney`), so the promise holds at every φ. In both cases
        the inflation is 1.

    Raises
    ------
    ConfigError
        The reference has too few windows, or the ARL0 is out of range or out of reach for these rules.

    References
    ----------
    Champ, Woodall: Technometrics 29 (1987), 393-399 (run lengths). Laney: Improved control charts
    for attributes, Quality Engineering 14 (2002), 531-537 (φ). Jensen, Jones-Farmer, Champ,
    Woodall: Effects of parameter estimation on control chart properties, Journal of Quality
    Technology 38 (2006), 349-364 (short references). Jones, Champ, Rigdon: Technometrics 43 (2001), 156-167,
    and Journal of Quality Technology 36 (2004), 95-108 (short references for EWMA and CUSUM). The
    harmonic mean and κ are our own.

    Examples
    --------
    >>> limits(370.4, ("we1",), math.inf)
    Limits(multiplier=3.0000..., inflation=1.0)
    >>> few = limits(370.4, ("we1",), 20)
    >>> round(few.multiplier, 3), round(few.inflation, 3)
    (2.957, 1.195)
    """
    detector = RunRules(rules) if isinstance(rules, tuple) else rules
    promised = checked_arl0(arl0, detector, reference_windows, spread)
    return _limits(promised, detector, float(reference_windows), spread)


def checked_arl0(arl0: float, detector: Detector, reference_windows: float, spread: Spread) -> float:
    """Return the ARL0 as a float, or raise a ConfigError if no chart with this detector can promise it.

    Examples
    --------
    >>> checked_arl0(370, RunRules(("we1", "we4")), 20, Spread.REFERENCE)
    Traceback (most recent call last):
    ...
    monitor.base.errors.ConfigError: arl0: got 370, ... reach at most 153 windows together, because ...
    """
    check_reference(reference_windows)
    if not LOWEST_ARL0 <= arl0 <= HIGHEST_ARL0:
        raise ConfigError(f"arl0: got {arl0:g}; allowed is {LOWEST_ARL0:g} to {HIGHEST_ARL0:,.0f} windows")
    if detector.rules == ("we1",) and spread is not Spread.MOVING_RANGE:
        return float(arl0)  # `we1` reaches every allowed ARL0 with five reference windows or more
    rarest = _rarest(detector, float(reference_windows), spread)[1]
    if arl0 > 1.0 / rarest:
        raise ConfigError(_out_of_reach(arl0, detector, reference_windows, 1.0 / rarest))
    return float(arl0)


def chosen_limits(settings: Chart, reference_windows: float) -> Limits:
    """Return the limits of a chart: from `sigmas` if it is set, otherwise from `arl0` (default 370)."""
    check_reference(reference_windows)
    if settings.sigmas is not None:
        return Limits(settings.sigmas, 1.0)
    arl0 = DEFAULT_ARL0 if settings.arl0 is None else settings.arl0
    return limits(arl0, settings.detector, reference_windows, settings.spread)


def false_alarm_rate(settings: Chart, reference_windows: float, window_sd: float | None = None) -> float:
    """Return the mean number of false alarms per window of a chart, 0 to 1.

    The rate is ``1/arl0``, or the rate at `sigmas`. It is lower if `min_change`, the smallest relevant
    change, lies beyond the limits. Improvements count too. `blindsight check` adds up these rates.

    Parameters
    ----------
    settings : a chart
    reference_windows : float
        m, at least 5; infinity stands for known limits.
    window_sd : float, optional
        Standard deviation of the estimates of windows in control, above 0. Without it, the rate ignores
        `min_change` and is an upper bound. With run rules and `min_change`, the rate is always an upper
        bound: the smaller of the rules' rate and the rate of windows beyond `min_change`.

    Raises
    ------
    ConfigError
        The limits cannot be computed: see `limits`.

    Examples
    --------
    >>> from monitor import Shewhart
    >>> round(1 / false_alarm_rate(Shewhart(), 20))
    370
    >>> round(1 / false_alarm_rate(Shewhart(sigmas=3.0), 20))
    403
    >>> round(1 / false_alarm_rate(Shewhart(min_change=0.01), 20, window_sd=0.0025))  # 4 sigma
    10861
    """
    detector, spread = settings.detector, settings.spread
    least = settings.min_change / window_sd if window_sd else 0.0
    if settings.sigmas is None and detector.fixed is None:  # the limits are computed for this rate
        promised = 1.0 / checked_arl0(settings.arl0 or DEFAULT_ARL0, detector, reference_windows, spread)
        if least == 0.0:
            return promised
    chosen = chosen_limits(settings, reference_windows)
    return mean_rate(detector, reference_windows, chosen, 1.0, spread, least)


@lru_cache(maxsize=256)
def _rarest(detector: Detector, m: float, spread: Spread) -> tuple[float, float]:
    """Return the threshold with the fewest alarms, and its rate: the widest one, except with nelson7."""
    thresholds = [detector.widest if detector.fixed is None else detector.fixed]
    if "nelson7" in detector.rules and detector.fixed is None:
        thresholds = list(np.linspace(0.5, detector.widest, 28))
    rates = [mean_rate(detector, m, Limits(t, 1.0), 1.0, spread) for t in thresholds]
    best = int(np.argmin(rates))
    return float(thresholds[best]), max(rates[best], 1e-300)


@lru_cache(maxsize=256)
def _limits(arl0: float, detector: Detector, m: float, spread: Spread) -> Limits:
    widest, _ = _rarest(detector, m, spread)
    if detector.fixed is not None:
        return Limits(detector.fixed, 1.0)  # the rules use the centre only; the limits are only displayed

    def excess(multiplier: float, inflation: float, over: float) -> float:
        rate = mean_rate(detector, m, Limits(multiplier, inflation), over, spread)
        return math.log(max(rate, 1e-300) * arl0)  # the rate of we1 alone underflows to 0 at wide limits

    def multiplier(inflation: Callable[[float], float]) -> float:
        ends = (detector.narrowest, widest)
        return brentq(lambda half: excess(half, inflation(half), 1.0), *ends, xtol=1e-9)

    if math.isinf(m) or spread is not Spread.REFERENCE or "nelson7" in detector.rules:
        return Limits(multiplier(lambda _: 1.0), 1.0)
    if isinstance(detector, CusumDetector):
        return _with_slope(multiplier, lambda interval, kappa: excess(interval, kappa, math.inf))
    wide = 1000 * widest  # an ARL0 very near its maximum may need still more: this must suffice
    far = 0.0  # L·κ, the multiplier of a sigma that is known from the reference windows alone
    if excess(wide, 1.0, math.inf) < 0:
        far = brentq(lambda half: excess(half, 1.0, math.inf), detector.narrowest, wide)
    far = far or wide
    solved = multiplier(lambda at: far / at)
    return Limits(solved, max(1.0, far / solved))


def _with_slope(
    multiplier: Callable[[Callable[[float], float]], float], far: Callable[[float, float], float]
) -> Limits:
    """Return the limits of a CUSUM, solving for multiplier and inflation in turn, six times at most."""
    inflation = 1.0
    for _ in range(6):
        interval = multiplier(lambda _, kappa=inflation: kappa)  # type: ignore[misc]
        if far(interval, 1.0) <= 0:
            return Limits(multiplier(lambda _: 1.0), 1.0)
        before, inflation = inflation, MOST_INFLATION
        if far(interval, inflation) < 0:
            inflation = brentq(lambda kappa, at=interval: far(at, kappa), 1.0, MOST_INFLATION)  # type: ignore[misc]
        if abs(inflation - before) < 1e-6:
            break
    return Limits(multiplier(lambda _: inflation), inflation)


MOST_INFLATION = 5.0


def _out_of_reach(arl0: float, detector: Detector, m: float, widest: float) -> str:
    known = "known limits" if math.isinf(m) else f"{m:g} reference windows"
    default = ", which stands where neither arl0 nor sigmas is given" if arl0 == DEFAULT_ARL0 else ""
    names = ", ".join(detector.rules)
    who = f"the rules {names} reach" if isinstance(detector, RunRules) else f"the {names} chart reaches"
    together = " together" if isinstance(detector, RunRules) else ""
    return (
        f"arl0: got {arl0:g}{default}, but with {known} {who} at most "
        f"{math.floor(widest)} windows{together}, because {_cause(detector)}, or give sigmas"
    )


def _cause(detector: Detector) -> str:
    stuck = [rule for rule in detector.rules if rule in _UNMOVED]
    if stuck:
        reasons = " and ".join(f"{rule} ({_UNMOVED[rule]})" for rule in stuck)
        verb = "do" if len(stuck) > 1 else "does"
        return f"{reasons} {verb} not widen with the limits; lower arl0, leave out {' and '.join(stuck)}"
    more = "" if isinstance(detector, RunRules) else ", tune the chart to a larger shift"
    return f"so few windows tell centre and sigma too badly; lower arl0, take more reference windows{more}"


_UNMOVED = {
    "we4": "eight in a row on one side",
    "nelson2": "nine in a row on one side",
    "nelson3": "six in a row up or down",
    "nelson4": "fourteen in a row up and down in turn",
    "nelson7": "fifteen in a row near the centre",
}
