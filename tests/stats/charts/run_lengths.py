"""One run length, one rate, one multiplier: what tests and fidelity scripts ask of the charts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from monitor.base.records import Floats
from monitor.stats.charts.detectors import Detector, RunRules, Spread
from monitor.stats.charts.fleet import Limits, check_reference, mean_rate
from monitor.stats.charts.limits import HIGHEST_ARL0, _rarest, limits
from monitor.stats.charts.rules import _MIXED, _PATTERNS, _QUIET, _TREND, _ZIGZAG, RULES, Bools, check_rules
from monitor.stats.charts.runlength import _arls, _chain, _split
from monitor.stats.charts.smoothed import cusum_arls, ewma_arls


def conditional_arl(rules: tuple[str, ...], error: float, width: float) -> float:
    """Return mean windows until the first alarm of these rules, solved exactly: what `alarm_rate` has a
    table of.
    """
    zones, order = _split(rules)
    if not zones:
        return 1 / order
    length = float(_arls(_chain(zones), np.array([error]), np.array([width]))[0])
    return 1 / (1 / length + order) if order else length


def ewma_arl(weight: float, error: float, width: float) -> float:
    return float(ewma_arls(weight, np.array([error]), np.array([width]))[0])


def cusum_arl(slope: float, interval: float) -> float:
    return float(cusum_arls(np.array([slope]), np.array([interval]))[0])


def detector_of(rules: tuple[str, ...] | Detector) -> Detector:
    return RunRules(rules) if isinstance(rules, tuple) else rules


def in_control_rate(
    rules: tuple[str, ...] | Detector,
    reference_windows: float,
    chosen: Limits,
    overdispersion: float = 1.0,
    spread: Spread = Spread.REFERENCE,
) -> float:
    """Return the false alarms a window of a fleet with these limits; each alarm starts the count again.

    The latch makes the true rate a little lower: no second alarm comes while one is on. `overdispersion` is
    φ, the standard deviation between windows over that of independent rows.
    """
    check_reference(reference_windows)
    return mean_rate(detector_of(rules), reference_windows, chosen, overdispersion, spread)


def limit_multiplier(arl0: float, rules: tuple[str, ...] | Detector, reference_windows: float) -> float:
    return limits(arl0, rules, reference_windows).multiplier


def max_arl0(
    rules: tuple[str, ...] | Detector, reference_windows: float, spread: Spread = Spread.REFERENCE
) -> float:
    """Return the largest ARL0, in windows, that can be promised."""
    check_reference(reference_windows)
    return min(HIGHEST_ARL0, 1.0 / _rarest(detector_of(rules), reference_windows, spread)[1])


def broken_rules(z: Floats, multiplier: float | Floats, rules: Sequence[str] = RULES) -> Bools:
    """Return which windows of many series complete which rule: `RuleMemory` for whole arrays, for simulation.

    Parameters
    ----------
    z : (..., t) float64
        Standardised values in time order along the last axis.
    multiplier : float or array that broadcasts against z
        L, above 0.
    rules : sequence of str

    Returns
    -------
    (len(rules), ..., t) bool

    Examples
    --------
    >>> broken_rules(np.array([0.4, 2.1, -0.3, 2.2, -3.4]), 3.0, ("we1", "we2")).astype(int)
    array([[0, 0, 0, 0, 1],
           [0, 0, 0, 1, 0]])
    """
    check_rules(rules)
    z = np.asarray(z, dtype=np.float64)
    out = np.zeros((len(rules), *z.shape), dtype=np.bool_)
    for row, rule in zip(out, rules, strict=True):
        if rule not in _PATTERNS:
            row[...] = _broken_two_sided(z, multiplier, rule)
            continue
        needed, span, share = _PATTERNS[rule]
        bound = np.asarray(multiplier) * share
        for beyond in (z > bound, z < -bound):
            row |= beyond & (_so_many(beyond, span) >= needed)
    return out


def _broken_two_sided(z: Floats, multiplier: float | Floats, rule: str) -> Bools:
    third = np.asarray(multiplier) / 3
    if rule == "nelson7":
        return _all_of((np.abs(z) > 0) & (np.abs(z) <= third), _QUIET)
    if rule == "nelson8":
        return _all_of(np.abs(z) > third, _MIXED)
    steps = np.zeros_like(z)
    steps[..., 1:] = np.sign(np.diff(z, axis=-1))
    if rule == "nelson3":
        return _all_of(steps > 0, _TREND - 1) | _all_of(steps < 0, _TREND - 1)
    turns = np.zeros(z.shape, dtype=np.bool_)
    turns[..., 1:] = steps[..., 1:] * steps[..., :-1] < 0
    return _all_of(turns, _ZIGZAG - 2)


def _all_of(flags: Bools, span: int) -> Bools:
    return np.asarray(_so_many(flags, span) == span)


def _so_many(flags: Bools, span: int) -> NDArray[np.int64]:
    """Return how many of the last `span` windows are flagged, the present one included."""
    total = np.cumsum(flags, axis=-1, dtype=np.int64)
    counts = total.copy()
    counts[..., span:] -= total[..., :-span]
    return counts
