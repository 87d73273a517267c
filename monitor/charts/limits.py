"""How wide the limits must be for a promised ARL0, all enabled rules and the short reference counted in.

What is promised is the rate of false alarms that a fleet of models sees: averaged over the baselines
that m reference windows can give, the alarms a window in control equal 1/ARL0. So ARL0 is the harmonic
mean of the baselines' own mean run lengths. Their plain mean would not do: it is dominated by the few
baselines whose limits came out far too wide, which never alarm, and so lets all the others alarm more
often than was asked for. With about a dozen reference windows or fewer it is even infinite: 1/rate grows
like exp(L²s²/2) in the dispersion s that they show, and the chance of that s falls only like
exp(−(m−1)s²/2).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

from scipy.optimize import brentq

from monitor.charts.fleet import Limits, check_reference, in_control_rate, mean_rate
from monitor.charts.rules import RULES, check_rules
from monitor.charts.runlength import NARROWEST, WIDEST
from monitor.errors import ConfigError

DEFAULT_ARL0 = 370.0
"""Windows: what `we1` gives at the textbook's 3 sigma with known limits (370.4)."""

LOWEST_ARL0, HIGHEST_ARL0 = 10.0, 1_000_000.0


class LimitSettings(Protocol):
    """What decides the limits: a section of the configuration, or a chart."""

    @property
    def kind(self) -> str: ...
    @property
    def arl0(self) -> float | None: ...
    @property
    def sigmas(self) -> float | None: ...
    @property
    def rules(self) -> tuple[str, ...]: ...


def check_settings(arl0: float | None, sigmas: float | None, rules: Sequence[str]) -> None:
    """Refuse what no reference could make possible.

    Raises
    ------
    ConfigError
        Unknown rules, both `arl0` and `sigmas`, one of them out of range, or an ARL0 that the rules
        cannot reach even with known limits.
    """
    check_rules(rules)
    if arl0 is not None and sigmas is not None:
        raise ConfigError(f"arl0 and sigmas: got both ({arl0:g} and {sigmas:g}); give one of them")
    if sigmas is not None and not 0 < sigmas <= 10:
        raise ConfigError(f"sigmas: got {sigmas:g}; allowed is a number above 0, up to 10")
    if sigmas is None:
        limits(DEFAULT_ARL0 if arl0 is None else arl0, tuple(rules), math.inf)


def limits(
    arl0: float, rules: tuple[str, ...], reference_windows: float, known_dispersion: bool = False
) -> Limits:
    """Multiplier and inflation that make the false-alarm rate 1/ARL0, averaged over baselines.

    With windows of one size, x = μ + φσ₀z for independent standard normal z, where σ₀ is what
    independent rows give and φ ≥ 1 the excess between windows (Laney's). m reference windows put the
    centre ε/√m of the process's own standard deviations off, and show the dispersion s²φ², where
    (m−1)s² is χ² with m−1 degrees of freedom. The chart's sigma is φ̂σ₀ with φ̂² = 1 + κ²·max(0, s²φ²−1),
    so a baseline's run length is that of known limits of half width Lφ̂/φ, off by ε/√m, which
    `monitor.charts.runlength` has exactly. Its inverse is integrated over ε and s by quadrature.

    Two conditions settle two numbers. L: the rate is 1/ARL0 at φ = 1. κ: it is 1/ARL0 again as φ grows
    without bound, where the rows' variance tells nothing and only s does. (That alone, s in place of
    φ̂, would be exact for every φ, and would need L = 3.53 for m = 20: of ten 3-sigma
    shifts that are now seen at once, two would be missed.)

    Assumptions: normal, independent estimates, windows of one size, and a reference in control. In
    between, at a moderate φ, false alarms are more frequent than promised: with m = 20 at most 2.3
    times, at φ = 1.35; with m = 100 at most 1.4 times (with κ = 1: 3.4 and 1.5 times). Skewed
    estimates and autocorrelation are not covered; `tests/fidelity/output/arl.txt` says what they do.

    Parameters
    ----------
    arl0 : float
        Windows, 10 to 1,000,000.
    rules : tuple of str
    reference_windows : float
        m, at least 5; infinity stands for known limits.
    known_dispersion : bool
        The chart takes its sigma from a formula, not from the reference (`shewhart_p`): φ̂ = φ = 1.

    Raises
    ------
    ConfigError
        Too few reference windows, or an ARL0 out of range or out of these rules' reach.

    References
    ----------
    Champ, Woodall: Technometrics 29 (1987), 393-399 (run lengths). Laney: Improved control charts
    for attributes, Quality Engineering 14 (2002), 531-537 (φ). Jensen, Jones-Farmer, Champ,
    Woodall: Effects of parameter estimation on control chart properties, Journal of Quality
    Technology 38 (2006), 349-364. The harmonic mean and κ are our own.

    Examples
    --------
    >>> limits(370.4, ("we1",), math.inf)
    Limits(multiplier=3.0000..., inflation=1.0)
    >>> few = limits(370.4, ("we1",), 20)
    >>> round(few.multiplier, 3), round(few.inflation, 3)
    (2.957, 1.195)
    """
    rules = tuple(rule for rule in RULES if rule in rules) if not isinstance(rules, str) else rules
    check_rules(rules)
    check_reference(reference_windows)
    if not LOWEST_ARL0 <= arl0 <= HIGHEST_ARL0:
        raise ConfigError(f"arl0: got {arl0:g}; allowed is {LOWEST_ARL0:g} to {HIGHEST_ARL0:,.0f} windows")
    return _limits(float(arl0), rules, float(reference_windows), known_dispersion)


def limit_multiplier(
    arl0: float, rules: tuple[str, ...], reference_windows: float, known_dispersion: bool = False
) -> float:
    """The multiplier L of `limits`.

    Examples
    --------
    >>> round(limit_multiplier(91.75, ("we1", "we2", "we3", "we4"), math.inf), 3)
    3.0
    """
    return limits(arl0, rules, reference_windows, known_dispersion).multiplier


def max_arl0(rules: tuple[str, ...], reference_windows: float, known_dispersion: bool = False) -> float:
    """The largest ARL0, in windows, that these rules can promise.

    Only `we4` sets one: eight windows on one side of the centre come by chance however far out the
    limits are, and the sooner the less exactly the centre is known.

    Returns
    -------
    float
        At most 1,000,000, the largest that may be asked for.

    Examples
    --------
    >>> round(max_arl0(("we4",), math.inf)), round(max_arl0(("we1", "we4"), 20))
    (255, 153)
    """
    check_rules(rules)
    check_reference(reference_windows)
    rate = mean_rate(rules, reference_windows, Limits(WIDEST, 1.0), 1.0, known_dispersion)
    return min(HIGHEST_ARL0, 1.0 / rate)


def chosen_limits(settings: LimitSettings, reference_windows: float) -> Limits:
    """The limits of a chart: from `arl0`, from `sigmas`, or from an ARL0 of 370 where neither is given."""
    check_reference(reference_windows)
    if settings.sigmas is not None:
        return Limits(settings.sigmas, 1.0)
    arl0 = DEFAULT_ARL0 if settings.arl0 is None else settings.arl0
    return limits(arl0, settings.rules, reference_windows, settings.kind == "shewhart_p")


def false_alarm_rate(settings: LimitSettings, reference_windows: float) -> float:
    """False alarms a window that a chart raises in control: what `blindsight check` adds up.

    Parameters
    ----------
    settings : ChartConfig or a chart
    reference_windows : float
        m, at least 5; or infinity.

    Returns
    -------
    float
        0 to 1: ``1/arl0``, or what `sigmas` come to.

    Raises
    ------
    ConfigError
        As `limits` does.

    Examples
    --------
    >>> from monitor.config import ChartConfig
    >>> round(1 / false_alarm_rate(ChartConfig(), 20))
    370
    >>> round(1 / false_alarm_rate(ChartConfig(sigmas=3.0), 20))
    403
    """
    chosen = chosen_limits(settings, reference_windows)
    return in_control_rate(
        settings.rules, reference_windows, chosen, known_dispersion=settings.kind == "shewhart_p"
    )


@lru_cache(maxsize=256)
def _limits(arl0: float, rules: tuple[str, ...], m: float, known_dispersion: bool) -> Limits:
    widest = 1.0 / mean_rate(rules, m, Limits(WIDEST, 1.0), 1.0, known_dispersion)
    if arl0 > widest:
        raise ConfigError(_out_of_reach(arl0, rules, m, widest))
    if rules == ("we4",):
        return Limits(3.0, 1.0)  # it looks at the centre only; the limits drawn are the textbook's

    def excess(multiplier: float, spread: float, over: float) -> float:
        chosen = Limits(multiplier, spread / multiplier if spread else 1.0)
        rate = mean_rate(rules, m, chosen, over, known_dispersion)
        return math.log(max(rate, 1e-300) * arl0)  # we1 alone underflows to 0 when far out

    spread = 0.0  # L·κ, the multiplier of a sigma that is known from the reference windows alone
    if math.isfinite(m) and not known_dispersion:
        spread = 1000 * WIDEST  # an ARL0 within a hair of its largest may ask for still more: this must do
        if excess(spread, 0.0, math.inf) < 0:
            spread = float(brentq(excess, NARROWEST, spread, args=(0.0, math.inf)))
    multiplier = float(brentq(excess, NARROWEST, WIDEST, args=(spread, 1.0), xtol=1e-9))
    return Limits(multiplier, max(1.0, spread / multiplier) if spread else 1.0)


def _out_of_reach(arl0: float, rules: tuple[str, ...], m: float, widest: float) -> str:
    known = "known limits" if math.isinf(m) else f"{m:g} reference windows"
    default = ", which stands where neither arl0 nor sigmas is given" if arl0 == DEFAULT_ARL0 else ""
    if "we4" in rules:
        cause = "we4 (eight in a row on one side) does not widen with the limits; lower arl0, leave out we4"
    else:
        cause = "the centre is known too badly; lower arl0, take more reference windows"
    return (
        f"arl0: got {arl0:g}{default}, but with {known} the rules {', '.join(rules)} reach at most "
        f"{math.floor(widest)} windows together, because {cause}, or give sigmas"
    )
