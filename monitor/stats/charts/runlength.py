"""Exact run lengths of a Shewhart chart with run rules, by the Markov chain of Champ and Woodall.

The rules use only the zone of a window: its side of the centre, and how many thirds of the limit it exceeds.
The zones of the last windows are the states of a finite Markov chain that ends in the alarm. The mean time
until the alarm is the solution of one linear system. Nothing is simulated.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import scipy

from monitor.base.records import Floats, Ints
from monitor.stats.charts.rules import check_rules

_ZONES = 8  # four on each side: up to L/3, 2L/3, L, and beyond L


class _State(NamedTuple):
    """A state of the chain; what no rule uses is empty or 0."""

    outer: tuple[int, ...]  # sides (1, -1, or 0) of the last windows beyond 2/3 of the limit
    inner: tuple[int, ...]  # sides of the last windows beyond 1/3 of the limit
    run: int  # windows in a row above the centre; negative: below it
    far: int  # windows in a row beyond 1/3 of the limit
    near: int  # windows in a row within 1/3 of the limit


_ORDER_RATES = {
    (): 0.0,
    ("nelson3",): 1 / 421.5986,
    ("nelson4",): 1 / 601.0078,
    ("nelson3", "nelson4"): 1 / 248.8016,
}
"""Alarms per window of the rules about order: exact, from `python -m tests.stats.charts.order_rates`."""
_SAME = {"nelson1": "we1", "nelson5": "we2", "nelson6": "we3"}

NARROWEST, WIDEST = 0.05, 7.25
"""The range of half widths in standard deviations. With narrower limits nearly every window alarms; with
wider ones rates are under 1e-11, and the linear system has lost half of its digits."""
_WIDTHS = np.concatenate([np.linspace(NARROWEST, 0.75, 8), np.linspace(1.0, WIDEST, 26)])
# Up to six standard errors of the centre at five reference windows; dense near 0, where the logarithm of
# the rate curves on a scale of 1/width.
_ERRORS = 2.7 * np.linspace(0.0, 1.0, 20) ** 1.5


_NEVER = 1e13
"""Windows; rounding in the solver does not resolve longer run lengths."""


@dataclass(frozen=True, slots=True)
class _Chain:
    """The linear system ``(I - Q) a = 1`` of one set of rules.

    Its sparse entries are ``identity - moves @ p`` for the probabilities p of the zones.
    """

    states: int
    rows: Ints
    columns: Ints
    identity: Floats
    moves: Floats


def _step(state: _State, zone: int, rules: frozenset[str]) -> _State | None:
    """Return the state after one more window, or None if the window breaks a rule."""
    side = 1 if zone >= _ZONES // 2 else -1
    thirds = zone - 4 if side > 0 else 3 - zone
    beyond_two = side if thirds >= 2 else 0
    beyond_one = side if thirds >= 1 else 0
    run = state.run + side if state.run * side > 0 else side
    far = state.far + 1 if thirds else 0
    near = 0 if thirds else state.near + 1
    broken = {
        "we1": thirds == 3,
        "we2": beyond_two and state.outer.count(side) >= 1,
        "we3": beyond_one and state.inner.count(side) >= 3,
        "we4": abs(run) >= 8,
        "nelson2": abs(run) >= 9,
        "nelson7": near >= 15,
        "nelson8": far >= 8,
    }
    if any(broken[rule] for rule in rules):
        return None
    return _State(
        (*state.outer, beyond_two)[-2:] if "we2" in rules else (),
        (*state.inner, beyond_one)[-4:] if "we3" in rules else (),
        run if rules & {"we4", "nelson2"} else 0,
        far if "nelson8" in rules else 0,
        near if "nelson7" in rules else 0,
    )


def _reachable(rules: frozenset[str]) -> Ints:
    """Return the (S, 8) table of the next state for each state and zone, with -1 for the alarm.

    A breadth-first search numbers the states; 0 is the fresh start.
    """
    start = _State((0, 0), (0, 0, 0, 0), 0, 0, 0)
    number = {start: 0}
    waiting = [start]
    table: list[list[int]] = []
    for state in waiting:  # grows while it is read
        row = []
        for zone in range(_ZONES):
            following = _step(state, zone, rules)
            if following is not None and following not in number:
                number[following] = len(waiting)
                waiting.append(following)
            row.append(-1 if following is None else number[following])
        table.append(row)
    return np.array(table, dtype=np.int64)


def _merged(table: Ints) -> Ints:
    """Return the table with equivalent states merged, by Moore's partition refinement."""
    part = np.zeros(len(table) + 1, dtype=np.int64)
    part[-1] = 1  # the alarm, at index -1
    groups = 1
    while True:
        signature = np.column_stack([part[:-1], part[table]])
        _, first, inverse = np.unique(signature, axis=0, return_index=True, return_inverse=True)
        order = np.argsort(np.argsort(first))  # numbered by first appearance: the fresh start stays 0
        part = np.append(order[inverse.ravel()], len(first))
        if len(first) == groups:
            break
        groups = len(first)
    kept = table[np.sort(first)]
    return np.where(kept < 0, -1, part[kept])


@lru_cache(maxsize=32)
def _chain(rules: frozenset[str]) -> _Chain:
    table = _merged(_reachable(rules))
    states = len(table)
    state, zone = np.nonzero(table >= 0)
    moves = state * states + table[state, zone]
    diagonal = np.arange(states) * (states + 1)
    cells, where = np.unique(np.concatenate([moves, diagonal]), return_inverse=True)
    entries = np.zeros((len(cells), _ZONES))
    np.add.at(entries, (where[: len(moves)], zone), 1.0)
    identity = np.zeros(len(cells))
    identity[where[len(moves) :]] = 1.0
    return _Chain(states, cells // states, cells % states, identity, entries)


def widens(rules: tuple[str, ...]) -> bool:
    """Return whether windows break at least one of these rules less often if the limits are wider."""
    return bool(_split(rules)[0] - {"we4", "nelson2", "nelson7"})


def _split(rules: tuple[str, ...]) -> tuple[frozenset[str], float]:
    """Return the rules about zones, each under one name, and the alarm rate of the rules about order."""
    zones = frozenset(_SAME.get(rule, rule) for rule in rules) - {"nelson3", "nelson4"}
    return zones, _ORDER_RATES[tuple(rule for rule in ("nelson3", "nelson4") if rule in rules)]


def _arls(chain: _Chain, error: Floats, width: Floats) -> Floats:
    """Return the (g,) mean windows from a fresh start to the first alarm, for independent normal windows.

    The function solves ``(I - Q) a = 1``, where Q holds the probabilities of moving between the chain's
    states without an alarm. The solution is exact: with a known centre (error 0) it is 370.4 for ``we1`` at
    width 3, and 91.75 for all four rules, as in Champ and Woodall, Technometrics 29 (1987), 393-399, table 1.
    Above about 1e11 rounding dominates.
    """
    entries = chain.identity - _zone_probabilities(error, width) @ chain.moves.T
    ones = np.ones(chain.states)
    shape = (chain.states, chain.states)
    # The systems are small, but a sparse solver is 5 times as fast as the dense one, and starts no threads
    # that would compete with the agent's other work.
    return np.array(
        [
            scipy.sparse.linalg.splu(
                scipy.sparse.csc_matrix((data, (chain.rows, chain.columns)), shape=shape)
            ).solve(ones)[0]
            for data in entries
        ]
    )


def _zone_probabilities(error: Floats, width: Floats) -> Floats:
    """Return the (g, 8) probabilities of a standard normal window in each zone, to full relative accuracy."""
    thirds = np.array([-1.0, -2 / 3, -1 / 3, 0.0, 1 / 3, 2 / 3, 1.0])
    edges = width[:, None] * thirds + error[:, None]
    # A difference of lower tails loses the digits of the upper tail, so each side uses its own tail.
    low = np.diff(scipy.special.ndtr(edges[:, :4]), axis=1, prepend=0.0)
    high = -np.diff(scipy.special.ndtr(-edges[:, 3:]), axis=1, append=0.0)
    return np.concatenate([low, high], axis=1)


@lru_cache(maxsize=32)
def _log_rate_table(rules: frozenset[str]) -> scipy.interpolate.RectBivariateSpline:
    """Return a spline of log(1/ARL) over (error, width), for any number of reference windows."""
    chain = _chain(rules)
    arls = np.array([_arls(chain, np.full(len(_WIDTHS), error), _WIDTHS) for error in _ERRORS])
    # With narrow limits nelson7 is so rare that the system is singular to rounding.
    rows = -np.log(np.where((arls > 0) & (arls < _NEVER), arls, _NEVER))
    # The mirror image keeps the spline symmetric about error 0, where most of the weight lies.
    errors = np.concatenate([-_ERRORS[:0:-1], _ERRORS])
    return scipy.interpolate.RectBivariateSpline(
        errors, _WIDTHS, np.concatenate([rows[:0:-1], rows]), kx=3, ky=3, s=0
    )


def alarm_rate(rules: tuple[str, ...], error: Floats, width: Floats) -> Floats:
    """Return the (g,) mean numbers of false alarms per window for g charts, which are ``1/ARL``.

    `we1` alone has a closed form. For other rules a spline over 680 exact solutions gives the rate to 0.1 %.
    It is built once for each set of rules, in at most a second. `nelson3` and `nelson4` use only the order of
    the windows, so their rate does not depend on limits or baseline, and is added. A window that breaks rules
    of both kinds then counts twice, so the true rate is up to 5 % lower (all eight Nelson rules at 3 sigma).

    Parameters
    ----------
    rules : tuple of str
    error : (g,) float64
        Distance of the chart's centre from the process mean, in the process's standard deviations.
    width : (g,) float64
        Half width of the limits in the same unit; clipped to 0.05 to 7.25, except for `we1` alone.

    Examples
    --------
    >>> alarm_rate(("we1",), np.array([0.0, 0.5]), np.array([3.0, 3.0])).round(5)
    array([0.0027 , 0.00644])
    """
    check_rules(rules)
    zones, order = _split(rules)
    if not zones:
        return np.full(np.broadcast(error, width).shape, order)
    if zones == {"we1"}:
        return np.asarray(scipy.special.ndtr(-width - error) + scipy.special.ndtr(-width + error)) + order
    table = _log_rate_table(zones)
    clipped = np.clip(width, _WIDTHS[0], _WIDTHS[-1])
    return np.asarray(np.exp(table.ev(np.minimum(np.abs(error), _ERRORS[-1]), clipped))) + order
