"""Western Electric rules, scaled with the limits: which patterns of windows count as an alarm."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from monitor.errors import ConfigError
from monitor.records import Floats

RULES = ("we1", "we2", "we3", "we4")
MEMORY = 8
"""Windows that the rules look back on: the eight of `we4`, the present one included."""

FAR = 1e6
"""Where standardised values are cut: past any limit, and still a number that JSON can hold."""

_PATTERNS = {"we1": (1, 1, 1.0), "we2": (2, 3, 2 / 3), "we3": (4, 5, 1 / 3), "we4": (8, 8, 0.0)}
"""For each rule: so many, out of so many windows, beyond so much of the limit on one side."""


def check_rules(rules: Sequence[str]) -> None:
    """Refuse rules that do not exist, none, or one named twice.

    Raises
    ------
    ConfigError

    Examples
    --------
    >>> check_rules(("we1", "we4"))
    >>> check_rules(("we5",))
    Traceback (most recent call last):
    ...
    monitor.errors.ConfigError: rules: got 'we5'; allowed are we1, we2, we3 and we4, each once
    """
    wrong = next((r for r in rules if r not in RULES), None)
    if isinstance(rules, str) or wrong is not None:
        raise ConfigError(f"rules: got {(rules if isinstance(rules, str) else wrong)!r}; {_ALLOWED}")
    if not rules or len(set(rules)) != len(rules):
        got = "none" if not rules else "one of them twice: " + ", ".join(rules)
        raise ConfigError(f"rules: got {got}; {_ALLOWED}")


_ALLOWED = "allowed are we1, we2, we3 and we4, each once"


class RuleMemory:
    """The rules at work on one series: tells which of them each window completes.

    With z the window's distance from the centre in its own sigma, and L the limits' half width:

    * `we1`: \\|z\\| beyond L;
    * `we2`: two of three windows in a row beyond 2/3 L on the same side;
    * `we3`: four of five in a row beyond 1/3 L on the same side;
    * `we4`: eight in a row on the same side of the centre.

    At L = 3 these are the textbook's 3, 2, 1 and 0 sigma. The window that completes a pattern is the
    one reported: it takes part in it, so that a window back at the centre never breaks a rule. A
    window exactly at the centre or on a boundary is not beyond it.

    Parameters
    ----------
    rules : sequence of str
        Of `RULES`, each once.
    multiplier : float
        L, above 0.
    recent : sequence of float
        Standardised values from before, oldest first, from `snapshot`.

    Raises
    ------
    ConfigError
        Unknown rules.
    ValueError
        A multiplier that is not above 0, or a memory that is too long or holds NaN.

    Notes
    -----
    More rules see small shifts sooner and raise more false alarms: with L = 3 and known limits `we1`
    alone alarms once in 370 windows in control, all four once in 92. `monitor.charts.limits` takes
    L from the promise for the enabled rules together.

    References
    ----------
    Western Electric: Statistical Quality Control Handbook (1956), part B, "Tests for unnatural
    patterns". Champ, Woodall: Technometrics 29 (1987), 393-399.

    Examples
    --------
    >>> memory = RuleMemory(("we1", "we2"), multiplier=3.0)
    >>> [memory.update(z) for z in (0.4, 2.1, -0.3, 2.2, -3.4)]
    [(), (), (), ('we2',), ('we1',)]
    """

    def __init__(self, rules: Sequence[str], multiplier: float, recent: Sequence[float] = ()) -> None:
        check_rules(rules)
        if not multiplier > 0:
            raise ValueError(f"multiplier must be above 0, got {multiplier}")
        if len(recent) > MEMORY or any(math.isnan(z) for z in recent):
            raise ValueError(f"recent must hold at most {MEMORY} numbers, got {list(recent)}")
        self._rules = tuple(r for r in RULES if r in rules)
        self._multiplier = multiplier
        self._recent = [float(z) for z in recent]

    def update(self, z: float) -> tuple[str, ...]:
        """Take the next window's standardised value; return the rules that it completes."""
        if math.isnan(z):
            raise ValueError("z: got NaN; a window without an estimate is not given to the rules")
        self._recent = [*self._recent, min(max(z, -FAR), FAR)][-MEMORY:]
        return tuple(rule for rule in self._rules if self._completed(rule))

    def _completed(self, rule: str) -> bool:
        needed, span, share = _PATTERNS[rule]
        side = math.copysign(1.0, self._recent[-1])
        bound = share * self._multiplier
        beyond = [side * z > bound for z in self._recent[-span:]]
        return beyond[-1] and sum(beyond) >= needed

    def snapshot(self) -> list[float]:
        """The last eight standardised values, oldest first."""
        return list(self._recent)


def broken_rules(z: Floats, multiplier: float | Floats, rules: Sequence[str] = RULES) -> NDArray[np.bool_]:
    """Which windows of many series complete which rule: `RuleMemory` for whole arrays, for simulation.

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
        needed, span, share = _PATTERNS[rule]
        bound = np.asarray(multiplier) * share
        for beyond in (z > bound, z < -bound):
            total = np.cumsum(beyond, axis=-1, dtype=np.int64)
            total[..., span:] -= np.cumsum(beyond, axis=-1, dtype=np.int64)[..., :-span]
            row |= beyond & (total >= needed)
    return out
