"""Copies of functions of `scipy.optimize`, whose import took a sixth of the agent's time to start."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from monitor.base.records import Floats

_RELATIVE = 8.881784197001252e-16  # four steps of a float at 1
_MOST_STEPS = 100


def brentq(f: Callable[[float], float], start: float, end: float, xtol: float = 2e-12) -> float:
    """Return a zero of a continuous function with different signs at both ends, by Brent's method.

    The steps are those of `scipy.optimize.brentq`. The error is at most `xtol`, apart from rounding. If both
    ends have the same sign, a ValueError is raised.

    References
    ----------
    R. P. Brent, *Algorithms for Minimization Without Derivatives* (1973), chapters 3 and 4.

    Examples
    --------
    >>> round(brentq(lambda x: x * x - 2, 0.0, 2.0), 9)
    1.414213562
    """
    before, at = float(start), float(end)
    f_before, f_at = float(f(before)), float(f(at))
    if f_before == 0:
        return before
    if f_at == 0:
        return at
    if (f_before < 0) == (f_at < 0):
        raise ValueError(f"f must have different signs at start and end, got {f_before} and {f_at}")
    other = f_other = last = step = 0.0
    for _ in range(_MOST_STEPS):
        if f_before != 0 and f_at != 0 and (f_before < 0) != (f_at < 0):
            other, f_other = before, f_before
            last = step = at - before
        if abs(f_other) < abs(f_at):
            before, at, other = at, other, at
            f_before, f_at, f_other = f_at, f_other, f_at
        least, half = (xtol + _RELATIVE * abs(at)) / 2, (other - at) / 2
        if f_at == 0 or abs(half) < least:
            break
        following = (half, half)
        if abs(last) > least and abs(f_at) < abs(f_before):
            tried = _interpolated((before, f_before), (at, f_at), (other, f_other))
            if 2 * abs(tried) < min(abs(last), 3 * abs(half) - least):
                following = (step, tried)
        last, step = following
        before, f_before = at, f_at
        at += step if abs(step) > least else least if half > 0 else -least
        f_at = float(f(at))
    return at


def _interpolated(before: tuple[float, float], at: tuple[float, float], other: tuple[float, float]) -> float:
    """Return the step to the zero of the line through two points, or of the curve through three."""
    (x, y), (x_before, y_before), (x_other, y_other) = at, before, other
    if x_before == x_other:
        return -y * (x - x_before) / (y - y_before)
    slope, slope_other = (y_before - y) / (x_before - x), (y_other - y) / (x_other - x)
    return -y * (y_other * slope_other - y_before * slope) / (slope_other * slope * (y_other - y_before))


def non_negative_least_squares(a: Floats, b: Floats) -> Floats:
    """Return the (n,) vector x ≥ 0 that minimises ``‖a x − b‖`` for an (m, n) matrix `a`.

    The method is Lawson and Hanson's active-set algorithm.

    References
    ----------
    C. L. Lawson, R. J. Hanson, *Solving Least Squares Problems* (1974), chapter 23.

    Examples
    --------
    >>> non_negative_least_squares(np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]), np.array([3.0, 2.0, 1.0]))
    array([2., 0.])
    """
    x, free = np.zeros(a.shape[1]), np.zeros(a.shape[1], dtype=np.bool_)
    tolerance = 10 * max(a.shape) * np.finfo(np.float64).eps * np.abs(a).sum(axis=0).max(initial=0.0)
    for _ in range(3 * len(x)):
        slope = np.where(free, -np.inf, a.T @ (b - a @ x))
        if slope.max(initial=-np.inf) <= tolerance:
            break
        free[slope.argmax()] = True
        while (tried := _least_squares(a, b, free))[free].min(initial=0.0) < 0:
            down = free & (tried < 0)
            x += (x[down] / (x[down] - tried[down])).min() * (tried - x)
            free &= x > tolerance
            x[~free] = 0.0
        x = tried
    return x


def _least_squares(a: Floats, b: Floats, free: NDArray[np.bool_]) -> Floats:
    """Return the least-squares solution of the free columns; 0 at the others."""
    x = np.zeros(len(free))
    x[free] = np.linalg.lstsq(a[:, free], b, rcond=None)[0]
    return x
