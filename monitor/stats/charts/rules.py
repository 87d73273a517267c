"""Western Electric and Nelson rules, scaled with the limits: the patterns of windows that raise an alarm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from monitor.base.errors import ConfigError

Bools = NDArray[np.bool_]

WESTERN_ELECTRIC = ("we1", "we2", "we3", "we4")
NELSON = tuple(f"nelson{number}" for number in range(1, 9))
RULES = WESTERN_ELECTRIC + NELSON
MEMORY = 15
"""The number of windows that the rules use, the current one included: `nelson7` uses fifteen."""

FAR = 1e6
"""The largest standardised value. It is beyond any limit, and finite, because JSON has no infinity."""

_PATTERNS = {
    "we1": (1, 1, 1.0), "we2": (2, 3, 2 / 3), "we3": (4, 5, 1 / 3), "we4": (8, 8, 0.0),
    "nelson1": (1, 1, 1.0), "nelson2": (9, 9, 0.0), "nelson5": (2, 3, 2 / 3), "nelson6": (4, 5, 1 / 3),
}  # fmt: skip
"""The one-sided rules: the windows needed, the windows looked at, and the share of the limit they exceed."""

_TREND, _ZIGZAG, _QUIET, _MIXED = 6, 14, 15, 8  # windows of nelson3, nelson4, nelson7, nelson8


class Memory(Protocol):
    """The interface of a detector's memory of one series, which reports the rules that a window breaks."""

    kind: str
    """The kind of the state. A memory does not read the state of another kind."""

    side: int
    """The direction that the last window's broken rules show: 1 above the centre, -1 below, 0 for neither."""

    def update(self, z: float, least: float = 0.0) -> tuple[str, ...]:
        """Add the next window's standardised value, and return the rules that it breaks.

        A value less than `least` sigmas from the centre breaks no rule.
        """

    def calm(self, side: int = 0) -> bool:
        """Return whether the last window counts towards the end of the alarm.

        `side` is the side of the alarm: 1 for a rise, -1 for a fall, or 0 for both.
        """

    def bounds(self, least: float = 0.0) -> tuple[float, float]:
        """Return the limits for the next window alone, in sigmas from the centre."""

    def restart(self) -> None:
        """Forget the past windows, because an alarm has ended."""

    def snapshot(self) -> list[float]:
        """Return the memory of past windows as a list of numbers."""


def check_rules(rules: Sequence[str]) -> None:
    """Raise a ConfigError if a rule is unknown or named twice, or if there is none.

    Examples
    --------
    >>> check_rules(("we1", "we4"))
    >>> check_rules(("we5",))
    Traceback (most recent call last):
    ...
    monitor.base.errors.ConfigError: rules: got 'we5'; allowed are we1 to we4 and nelson1 to nelson8, each
    once
    """
    wrong = next((r for r in rules if r not in RULES), None)
    if isinstance(rules, str) or wrong is not None:
        raise ConfigError(f"rules: got {(rules if isinstance(rules, str) else wrong)!r}; {_ALLOWED}")
    if not rules or len(set(rules)) != len(rules):
        got = "none" if not rules else "one of them twice: " + ", ".join(rules)
        raise ConfigError(f"rules: got {got}; {_ALLOWED}")


_ALLOWED = "allowed are we1 to we4 and nelson1 to nelson8, each once"


def in_order(rules: Sequence[str]) -> tuple[str, ...]:
    """Return the rules in the order of `RULES`."""
    return tuple(rule for rule in RULES if rule in rules)


class RuleMemory:
    """The memory of the last windows of one series, which reports the rules that each window completes.

    The rules use z, the window's distance from the centre in its own sigma, and L, the half width of the
    limits:

    * `we1`, `nelson1`: \\|z\\| beyond L;
    * `we2`, `nelson5`: two of three windows in a row beyond 2/3 L on the same side;
    * `we3`, `nelson6`: four of five in a row beyond 1/3 L on the same side;
    * `we4`: eight in a row on the same side of the centre; `nelson2`: nine;
    * `nelson3`: six in a row, each above the one before, or each below it;
    * `nelson4`: fourteen in a row that go up and down in turn;
    * `nelson7`: fifteen in a row within 1/3 L of the centre, but not on it;
    * `nelson8`: eight in a row beyond 1/3 L, on whichever side.

    At L = 3 the zones are the textbook's 3, 2, 1 and 0 sigma. The window that completes a pattern breaks the
    rule, so a window back at the centre breaks no one-sided rule. A window exactly at the centre or on a
    boundary is not beyond it. Equal windows go neither up nor down.

    `we1` to `we3` detect shifts; longer patterns detect smaller shifts. `we4` and `nelson2` detect a small
    lasting shift, and `nelson3` a drift. `nelson4` detects two alternating sources, such as two models behind
    one name. `nelson7` detects limits that are too wide, because the windows vary less than the reference.
    `nelson8` detects a mixture of two processes, whose windows avoid the centre.

    Parameters
    ----------
    rules : sequence of str
        Rules of `RULES`, each once.
    multiplier : float
        L, above 0.
    recent : sequence of float
        Earlier standardised values, oldest first, from `snapshot`.

    Raises
    ------
    ConfigError
        A rule is unknown or repeated, or there is none.
    ValueError
        The multiplier is not above 0, or `recent` is too long or contains NaN.

    Notes
    -----
    More rules detect small shifts sooner and raise more false alarms: with L = 3 and known limits, `we1`
    alone alarms once in 370 windows in control, and all four `we` rules together once in 92.
    `monitor.stats.charts.limits` computes L from the promised ARL0 for all enabled rules together.

    References
    ----------
    Western Electric: Statistical Quality Control Handbook (1956), part B, "Tests for unnatural
    patterns". Nelson: The Shewhart control chart - tests for special causes, Journal of Quality
    Technology 16 (1984), 237-239. Champ, Woodall: Technometrics 29 (1987), 393-399.

    Examples
    --------
    >>> memory = RuleMemory(("we1", "we2"), multiplier=3.0)
    >>> [memory.update(z) for z in (0.4, 2.1, -0.3, 2.2, -3.4)]
    [(), (), (), ('we2',), ('we1',)]
    """

    kind = "recent"

    def __init__(self, rules: Sequence[str], multiplier: float, recent: Sequence[float] = ()) -> None:
        check_rules(rules)
        if not multiplier > 0:
            raise ValueError(f"multiplier must be above 0, got {multiplier}")
        if len(recent) > MEMORY or any(math.isnan(z) for z in recent):
            raise ValueError(f"recent must hold at most {MEMORY} numbers, got {list(recent)}")
        self._rules = in_order(rules)
        self._multiplier = multiplier
        self._recent = [float(z) for z in recent]
        self.side = 0

    def update(self, z: float, least: float = 0.0) -> tuple[str, ...]:
        """Add the next window's standardised value, and return the rules that it completes.

        A value nearer to the centre than `least` completes no rule, but counts in later patterns.
        """
        if math.isnan(z):
            raise ValueError("z: got NaN; a window without an estimate is not given to the rules")
        self._recent = [*self._recent, min(max(z, -FAR), FAR)][-MEMORY:]
        relevant = abs(self._recent[-1]) >= least
        broken = tuple(rule for rule in self._rules if relevant and self._completed(rule))
        self.side = self._side_of(broken)
        return broken

    def calm(self, side: int = 0) -> bool:
        """Return True: for run rules, every window that breaks no rule counts towards the alarm's end."""
        return True

    def bounds(self, least: float = 0.0) -> tuple[float, float]:
        """Return -L and L in sigmas, or -`least` and `least` if these are wider."""
        reach = max(self._multiplier, least)
        return -reach, reach

    def restart(self) -> None:
        """Do nothing, because old windows leave the patterns anyway."""

    def _side_of(self, broken: Sequence[str]) -> int:
        """Return the side of the last window, or 0 if a broken rule is about the windows' order or spread.

        A trend (`nelson3`) points to a side if it leads away from the centre on that side.
        """
        last = (self._recent[-1] > 0) - (self._recent[-1] < 0)
        trend = _directions(self._recent[-2:])
        one_sided = all(rule in _PATTERNS or (rule == "nelson3" and trend == [last]) for rule in broken)
        return last if broken and one_sided else 0

    def _completed(self, rule: str) -> bool:
        if rule in _PATTERNS:
            needed, span, share = _PATTERNS[rule]
            side = math.copysign(1.0, self._recent[-1])
            bound = share * self._multiplier
            beyond = [side * z > bound for z in self._recent[-span:]]
            return beyond[-1] and sum(beyond) >= needed
        return self._two_sided(rule)

    def _two_sided(self, rule: str) -> bool:
        recent, third = self._recent, self._multiplier / 3
        if rule == "nelson3":
            steps = _directions(recent[-_TREND:])
            return len(steps) == _TREND - 1 and abs(sum(steps)) == _TREND - 1
        if rule == "nelson4":
            steps = _directions(recent[-_ZIGZAG:])
            turns = [a * b for a, b in zip(steps[1:], steps, strict=False)]
            return len(turns) == _ZIGZAG - 2 and all(turn < 0 for turn in turns)
        if rule == "nelson7":
            return len(recent) >= _QUIET and all(0 < abs(z) <= third for z in recent[-_QUIET:])
        return len(recent) >= _MIXED and all(abs(z) > third for z in recent[-_MIXED:])

    def snapshot(self) -> list[float]:
        """Return the last fifteen standardised values, oldest first."""
        return list(self._recent)


def _directions(values: Sequence[float]) -> list[int]:
    """Return 1 for each value above the one before it, -1 for one below, and 0 for an equal one."""
    return [(b > a) - (b < a) for a, b in pairwise(values)]
