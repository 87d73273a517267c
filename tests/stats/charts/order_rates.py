"""Exact mean run lengths of the rules of the windows' order: ``python -m tests.stats.charts.order_rates``.

The order of independent windows is the same for any continuous law, so take uniform ones. With the last
window at x after `steps` rises in a row, and before them `turns` changes of direction in a row, the mean
number of windows still to come is a polynomial in x; falls are the mirror image, f(1 - x). A window y
leads on to more rises where y > x, else to a first fall. On Gauss-Legendre nodes integrals of polynomials
are exact, so that one linear system gives the answer to rounding.
"""

from __future__ import annotations

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import NDArray

NODES = 40


def from_zero() -> NDArray[np.float64]:
    """Return the matrix that takes values at the nodes to integrals from 0 to each, and to 1."""
    x, _ = legendre.leggauss(NODES)
    coefficients = np.linalg.inv(legendre.legvander(x, NODES - 1))
    integral = legendre.legint(np.eye(NODES), lbnd=-1, axis=0)
    ends = legendre.legvander(np.append(x, 1.0), NODES)
    return ends @ integral @ coefficients / 2


def run_length(trend: int | None, zigzag: int | None) -> float:
    """Return the mean windows until `trend` in a row rise or fall, or `zigzag` in a row alternate."""
    most_steps = 10**6 if trend is None else trend - 1
    most_turns = 10**6 if zigzag is None else zigzag - 2
    states = [(1, turns) for turns in range(min(most_turns, 20))]
    states += [(steps, 0) for steps in range(2, min(most_steps, 20))]
    number = {state: at for at, state in enumerate(states)}
    integral = from_zero()
    below, whole = integral[:-1], integral[-1]
    mirror = np.eye(NODES)[::-1]
    system = np.eye(len(states) * NODES)

    def block(row: int, column: int) -> tuple[slice, slice]:
        return slice(row * NODES, (row + 1) * NODES), slice(column * NODES, (column + 1) * NODES)

    for (steps, turns), at in number.items():
        rise = (min(steps + 1, 19) if trend is None else steps + 1, 0)
        fall = (1, min(turns + 1, 19) if zigzag is None else turns + 1)
        if rise[0] < most_steps:
            system[block(at, number[rise])] -= whole - below
        if fall[1] < most_turns:
            turned = fall if steps == 1 else (1, 1)
            system[block(at, number[turned])] -= below @ mirror
    first = np.linalg.solve(system, np.ones(len(system)))[:NODES]
    # the first window, then one to either side of it: f rises over y > x, the mirror image over y < x
    return float(2.0 + whole @ ((whole - below) @ first) + whole @ (below @ (mirror @ first)))


if __name__ == "__main__":
    for name, trend, zigzag in (("nelson3", 6, None), ("nelson4", None, 14), ("both", 6, 14)):
        windows = run_length(trend, zigzag)
        print(f"{name:8s} once in {windows:.4f} windows, {1 / windows:.9f} a window")
